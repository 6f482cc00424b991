/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx: active messages of UCX, one worker for each lcore, and an endpoint from every link to every
 * daemon and back. Messages are eager and leave at once: UCX gathers nothing, and neither do we.
 *
 *     request    active message 0: head {sender, cookie}, then the message
 *     answer     active message 1: head {status, cookie}, then the message
 *
 * The bytes of an active message are UCX's again when its handler returns, so they are copied once.
 * A message that UCX cannot send now is read later: so each call, and each answer, has a place of
 * its own until it has left. A request's place also takes its answer.
 *
 * UCX says nothing of a peer that dies where its transport cannot find out, as shared memory, and
 * takes no call back that it could not send yet. So when a rank is lost, a link ends the calls that
 * are open to it by itself, and leaves the places that UCX may still read to UCX. The serial number
 * in the cookie identifies the call of an answer.
 */
#include <stdlib.h>
#include <sys/queue.h>

#include "app_fail.h"
#include "app_room.h"
#include "app_ucx.h"
#include "backend.h"
#include "crpc_kv_proto.h"

#define AM_CALL  0
#define AM_REPLY 1
/* Looks at the transports in one turn, while they bring something. */
#define PROGRESS_MAX 8

/* Before each message. */
struct ucx_head {
	int32_t status; /* Of an answer; a request has the link's number here. */
	uint32_t zero;
	uint64_t cookie;
};

/* One message. Its head and bytes follow. */
struct ucx_place {
	STAILQ_ENTRY(ucx_place) link;
	struct ucx *owner;
	uint64_t cookie;
	uint32_t peer, len;
	int32_t status;
	uint32_t serial; /* Makes tokens, and the cookies of calls, unique. */
	bool open;       /* A call without an answer. */
	bool leaves;     /* A call that UCX may still read. */
};

STAILQ_HEAD(ucx_places, ucx_place);

/* A port or a link. */
struct ucx {
	struct app_ucx ucx;
	struct ucx *beside; /* Whose context and worker ours are; NULL: our own. */
	struct ucx *closed; /* Beside us, and closed: kept, as the worker ends what they sent. */
	bool server;
	uint32_t self, peers;
	uint32_t daemons; /* Of each rank. */
	struct crpc_kv_server *service;
	uint32_t losses;
	bool lost[APP_RANKS_MAX];  /* Link: calls to this rank have been ended. */
	bool reports;              /* Its transports report a peer that has gone. */
	bool broke[APP_RANKS_MAX]; /* An endpoint to this rank did. */
	uint32_t rank;
	uint32_t msg_max; /* Of what we take. */
	uint32_t place_size, places;
	uint64_t sent, sent_bytes;
	struct ucx_places queue; /* Came, and not given yet. */
	uint32_t queued;
	struct ucx_places free;
	struct ucx_places given; /* Link: given by the last poll. */
	uint8_t *mem;            /* The places. */
	ucp_ep_h ep[];
};

static struct ucx_head *
place_head(struct ucx_place *p)
{
	return (struct ucx_head *)(p + 1);
}

static uint8_t *
place_msg(struct ucx_place *p)
{
	return (uint8_t *)(place_head(p) + 1);
}

static struct ucx_place *
place_at(const struct ucx *u, uint64_t i)
{
	return (struct ucx_place *)(void *)(u->mem + i * u->place_size);
}

/* What identifies what stands in a place now: {serial, index}. */
static uint64_t
place_token(const struct ucx *u, const struct ucx_place *p)
{
	return (uint64_t)p->serial << 32 | (uint64_t)((const uint8_t *)p - u->mem) / u->place_size;
}

/* The first of a list that is not empty. */
static struct ucx_place *
pop(struct ucx_places *list)
{
	struct ucx_place *p = STAILQ_FIRST(list);

	STAILQ_REMOVE_HEAD(list, link);
	return p;
}

/* ---- what comes ---- */

/* A call has its answer or its end. Its place is free, unless UCX may still read it. */
static void
call_close(struct ucx *u, struct ucx_place *call)
{
	call->open = false;
	if (!call->leaves)
		STAILQ_INSERT_HEAD(&u->free, call, link);
}

/* The open call that an answer is for; NULL: there is none, or no longer. */
static struct ucx_place *
call_of(const struct ucx *u, uint64_t token)
{
	struct ucx_place *call;

	if (crpc_unlikely((uint32_t)token >= u->places))
		return NULL;
	call = place_at(u, (uint32_t)token);
	return call->open && call->serial == token >> 32 ? call : NULL;
}

/* An active message: its bytes into a place of ours. */
static ucs_status_t
on_message(void *arg, const void *header, size_t header_len, void *data, size_t len,
	const ucp_am_recv_param_t *param)
{
	struct ucx *u = arg;
	struct ucx_place *p, *call;
	struct ucx_head head;

	if (crpc_unlikely(len < sizeof(head) || len - sizeof(head) > u->msg_max))
		return UCS_OK;
	memcpy(&head, data, sizeof(head));
	if (crpc_unlikely(u->server && (uint32_t)head.status >= u->peers))
		return UCS_OK;
	if (!u->server) {
		call = call_of(u, head.cookie);
		if (crpc_unlikely(call == NULL))
			return UCS_OK;
		head.cookie = call->cookie;
		call_close(u, call);
	}
	if (crpc_unlikely(STAILQ_EMPTY(&u->free)))
		return UCS_OK;
	p = pop(&u->free);
	p->cookie = head.cookie;
	p->peer = (uint32_t)head.status;
	p->status = head.status;
	p->len = (uint32_t)(len - sizeof(head));
	memcpy(place_msg(p), (const uint8_t *)data + sizeof(head), p->len);
	STAILQ_INSERT_TAIL(&u->queue, p, link);
	u->queued++;
	return UCS_OK;
}

static void
progress(struct ucx *u)
{
	for (uint32_t i = 0; i < PROGRESS_MAX && u->queued < CRPC_BURST_MAX; i++)
		if (ucp_worker_progress(u->ucx.worker) == 0)
			break;
}

/* ---- what goes ---- */

/* An answer has left: its place is free. */
static void
reply_gone(void *request, ucs_status_t status, void *arg)
{
	struct ucx_place *p = arg;

	STAILQ_INSERT_HEAD(&p->owner->free, p, link);
	ucp_request_free(request);
}

/* A call ends without an answer. */
static void
call_fail(struct ucx *u, struct ucx_place *call)
{
	struct ucx_place *done;

	call_close(u, call);
	if (STAILQ_EMPTY(&u->free))
		return;
	done = pop(&u->free);
	done->cookie = call->cookie;
	done->status = -EHOSTDOWN;
	STAILQ_INSERT_TAIL(&u->queue, done, link);
	u->queued++;
}

/* A call has left; one that could not completes with an error. */
static void
call_gone(void *request, ucs_status_t status, void *arg)
{
	struct ucx_place *p = arg;

	ucp_request_free(request);
	p->leaves = false;
	if (!p->open)
		call_close(p->owner, p);
	else if (status != UCS_OK)
		call_fail(p->owner, p);
}

/* @return UCS_OK: gone; UCS_INPROGRESS: gone() comes later; else an error. */
static inline ucs_status_t
am_send(struct ucx *u, uint32_t peer, unsigned int am, struct ucx_place *p, uint32_t len,
	ucp_send_nbx_callback_t gone)
{
	size_t size = sizeof(struct ucx_head) + len;
	ucs_status_ptr_t rc = app_ucx_send(u->ep[peer], am, place_head(p), size, gone, p);

	u->sent++;
	u->sent_bytes += size;
	return UCS_PTR_IS_PTR(rc) ? UCS_INPROGRESS : UCS_PTR_STATUS(rc);
}

static int
ucx_call(void *end, uint64_t now, uint32_t to, const void *msg, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct ucx *u = end;
	struct ucx_place *p = STAILQ_FIRST(&u->free);
	ucs_status_t rc;

	if (crpc_unlikely(u->losses != 0 && u->lost[to / u->daemons]))
		return -EHOSTUNREACH;
	if (crpc_unlikely(p == NULL))
		return -EAGAIN;
	STAILQ_REMOVE_HEAD(&u->free, link);
	p->cookie = cookie;
	p->peer = to;
	p->open = p->leaves = true;
	p->serial++;
	*place_head(p) = (struct ucx_head){.status = (int32_t)u->self, .cookie = place_token(u, p)};
	memcpy(place_msg(p), msg, len);
	rc = am_send(u, to, AM_CALL, p, len, call_gone);
	if (rc == UCS_INPROGRESS)
		return 0;
	p->leaves = false;
	if (crpc_likely(rc == UCS_OK))
		return 0;
	call_close(u, p);
	return -EHOSTUNREACH;
}

/* Answer from the request's own place. */
static void
answer(struct ucx *u, struct ucx_place *p, int status, uint32_t len)
{
	p->serial++;
	*place_head(p) = (struct ucx_head){.status = status, .cookie = p->cookie};
	if (am_send(u, p->peer, AM_REPLY, p, len, reply_gone) != UCS_INPROGRESS)
		STAILQ_INSERT_HEAD(&u->free, p, link);
}

/* The open request of a token. */
static struct ucx_place *
by_token(struct ucx *u, uint64_t token)
{
	struct ucx_place *p = place_at(u, (uint32_t)token);

	return p->serial == token >> 32 ? p : NULL;
}

static int
ucx_reply(void *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct ucx *u = end;
	struct ucx_place *p = by_token(u, token);

	if (crpc_unlikely(p == NULL))
		return -ENOENT;
	memcpy(place_msg(p), msg, len);
	answer(u, p, 0, len);
	return 0;
}

static void
ucx_fail(void *end, uint64_t now, uint64_t token, int status)
{
	struct ucx_place *p = by_token(end, token);

	if (p != NULL)
		answer(end, p, status, 0);
}

static uint32_t
ucx_poll(void *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct ucx *u = end;
	struct ucx_place *p;
	uint32_t i;

	while (!STAILQ_EMPTY(&u->given)) {
		p = pop(&u->given);
		STAILQ_INSERT_HEAD(&u->free, p, link);
	}
	/* The port beside us has looked in this turn already, and may have found enough. */
	if (u->beside == NULL || u->queued == 0)
		progress(u);
	for (i = 0; i < n && u->queued != 0; i++, u->queued--) {
		p = pop(&u->queue);
		done[i] = (struct crpc_done){.cookie = p->cookie, .status = p->status};
		if (p->status == 0) {
			done[i].data = place_msg(p);
			done[i].len = p->len;
		}
		STAILQ_INSERT_HEAD(&u->given, p, link);
	}
	return i;
}

static uint32_t
ucx_recv(void *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct ucx *u = end;
	struct ucx_place *p;
	uint32_t i;

	progress(u);
	for (i = 0; i < n && u->queued != 0; i++, u->queued--) {
		p = pop(&u->queue);
		req[i] = (struct crpc_req){
			.token = place_token(u, p),
			.data = place_msg(p),
			.len = p->len,
			.peer = p->peer,
		};
	}
	return i;
}

/* ---- who is lost ---- */

static void
calls_end(struct ucx *u, uint32_t rank)
{
	struct ucx_place *call;

	for (uint32_t i = 0; i < u->places; i++) {
		call = place_at(u, i);
		if (call->open && call->peer / u->daemons == rank)
			call_fail(u, call);
	}
}

static void
ucx_watch(void *end, uint64_t now)
{
	struct ucx *u = end;

	if (u->server || (!u->reports && crpc_kv_server_lost(u->service) == 0))
		return;
	for (uint32_t rank = 0; rank < u->peers / u->daemons; rank++) {
		if (u->broke[rank])
			crpc_kv_server_lose(u->service, rank, "its connection broke");
		if (u->lost[rank] || !crpc_kv_server_peer_why(u->service, rank))
			continue;
		u->lost[rank] = true;
		u->losses++;
		calls_end(u, rank);
	}
}

/* ---- set-up ---- */

static void
ucx_free(struct ucx *u)
{
	free(u->mem);
	free(u);
}

static void
ucx_close(void *end)
{
	struct ucx *u = end, *other;

	if (u->beside != NULL) {
		u->closed = u->beside->closed;
		u->beside->closed = u;
		return;
	}
	/* Endpoints end with their worker: what they have not sent yet may be to a dead peer. */
	app_ucx_close(&u->ucx);
	while ((other = u->closed) != NULL) {
		u->closed = other->closed;
		ucx_free(other);
	}
	ucx_free(u);
}

static int
open_worker(struct ucx *u, const char *tls, uint32_t eps)
{
	const struct app_ucx_set set[] = {{"TLS", tls}, {NULL, NULL}};
	const char *lacks = app_room_lacks(APP_UCX_FILES, APP_UCX_MIB);
	ucs_status_t rc;

	if (lacks != NULL)
		return app_fail("UCX: %s", lacks);
	rc = app_ucx_open(&u->ucx, UCP_FEATURE_AM, eps, set);
	if (rc == UCS_OK)
		return 0;
	return app_fail("UCX does not start with transports '%s': %s; ucx_info -d lists those of "
			"this machine (--ucx-tls)",
		tls == NULL ? "all" : tls, ucs_status_string(rc));
}

/*
 * A port: each call that can be open has a place for its request, and one more while the answer of
 * the call before has not left yet. A link: one for each call, which its answer takes, and one more
 * for each rank that can be lost and leave it to UCX. Both: one for each message that recv() or
 * poll() gave.
 */
static int
make_places(struct ucx *u, const struct app_end_conf *conf)
{
	uint64_t calls = (uint64_t)conf->calls * (u->server ? u->peers : 1);
	uint64_t ranks = u->server ? 1 : u->peers / u->daemons;
	struct ucx_place *p;

	u->place_size = (uint32_t)crpc_align_up(sizeof(struct ucx_place) + sizeof(struct ucx_head) +
			crpc_max(conf->req_max, conf->resp_max),
		CRPC_CACHE_LINE);
	u->places = (uint32_t)(crpc_max(2, ranks) * calls + CRPC_BURST_MAX);
	u->mem = calloc(u->places, u->place_size);
	if (u->mem == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; i < u->places; i++) {
		p = place_at(u, i);
		p->owner = u;
		STAILQ_INSERT_HEAD(&u->free, p, link);
	}
	return 0;
}

static void *
ucx_open(const struct app_end_conf *conf, int *rc)
{
	struct ucx *u = calloc(1, sizeof(*u) + conf->peers * sizeof(u->ep[0]));

	*rc = -ENOMEM;
	if (u == NULL)
		return NULL;
	u->server = conf->server;
	u->self = conf->self;
	u->peers = conf->peers;
	u->daemons = conf->daemons;
	u->service = conf->service;
	u->rank = conf->rank;
	u->reports = app_ucx_reports(conf->ucx_tls);
	u->msg_max = conf->server ? conf->req_max : conf->resp_max;
	STAILQ_INIT(&u->queue);
	STAILQ_INIT(&u->free);
	STAILQ_INIT(&u->given);
	u->beside = conf->beside;
	*rc = make_places(u, conf);
	if (*rc == 0 && u->beside != NULL) {
		u->ucx = u->beside->ucx;
	} else if (*rc == 0) {
		*rc = open_worker(u, conf->ucx_tls, conf->peers + conf->owners);
	}
	if (*rc == 0 &&
		app_ucx_handler(&u->ucx, u->server ? AM_CALL : AM_REPLY, on_message, u) != UCS_OK)
		*rc = -EIO;
	if (*rc == 0)
		return u;
	ucx_close(u);
	return NULL;
}

static size_t
ucx_address(void *end, void *buf, size_t max)
{
	struct ucx *u = end;
	size_t len;

	return app_ucx_address(&u->ucx, buf, max, &len) == UCS_OK ? len : 0;
}

/* The peer of an endpoint has gone; watch() reports it, or not, at the end of a run. */
static void
on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx *u = arg;

	for (uint32_t i = 0; i < u->peers && !u->server; i++)
		if (u->ep[i] == ep && i / u->daemons != u->rank)
			u->broke[i / u->daemons] = true;
}

static int
ucx_connect(void *end, uint32_t peer, const void *addr, size_t len)
{
	struct ucx *u = end;
	ucs_status_t rc =
		app_ucx_connect(&u->ucx, addr, u->reports ? on_error : NULL, u, &u->ep[peer]);

	if (rc == UCS_OK)
		return 0;
	app_note("UCX reaches peer %u by none of its transports: %s", peer, ucs_status_string(rc));
	return -EHOSTUNREACH;
}

static void
ucx_counts(const void *end, struct app_net_counts *counts)
{
	const struct ucx *u = end;

	counts->calls += u->server ? 0 : u->sent;
	counts->messages += u->sent;
	counts->batches += u->sent;
	counts->bytes += u->sent_bytes;
}

const struct app_backend kv_backend_ucx = {
	.name = "ucx",
	.open = ucx_open,
	.address = ucx_address,
	.connect = ucx_connect,
	.close = ucx_close,
	.load = {.call = ucx_call, .poll = ucx_poll, .flush = app_end_nothing},
	.front = {.recv = ucx_recv,
		.reply = ucx_reply,
		.fail = ucx_fail,
		.flush = app_end_nothing,
		.watch = ucx_watch},
	.counts = ucx_counts,
};
