/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX active messages over its POSIX shared memory, eager, without a header of our own: the first
 * word of a message says whose it is. One worker on each side and an endpoint for each client,
 * which is its best case: a single receive queue to look at, however many clients there are.
 */
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

#include "app_room.h"
#include "lane.h"

#define AM_CALL  0
#define AM_REPLY 1
/* Progress calls between two looks at the clock of a client that waits for one answer. */
#define WAIT_TURNS 1024
#define CLOSE_TURNS 100000
/* What UCX opens and maps; it aborts where it cannot. */
#define UCX_FILES 32
#define UCX_MIB   256

/* A message in flight: UCX may read it until the send has completed. */
struct ucx_one {
	ucp_ep_h ep;
	uint64_t seq; /* Of the next call, or of the next reply. */
	uint64_t ack;
};

/* All clients of one side. */
struct ucx_side {
	struct lane_client base; /* First process only. */
	ucp_context_h context;
	ucp_worker_h worker;
	uint32_t n;
	uint32_t size;
	uint32_t depth;
	uint32_t half; /* One-way messages between two words of how many have come. */
	bool oneway;
	uint64_t calls;
	uint64_t failed; /* Sends or messages that went wrong. */
	bool check;
	uint8_t *mem; /* depth messages for each client. */
	struct ucx_one one[];
};

static void
send_done(void *request, ucs_status_t status, void *arg)
{
	struct ucx_side *s = arg;

	s->failed += status != UCS_OK;
	ucp_request_free(request);
}

/* Where the message with this number is built. */
static inline uint64_t *
ucx_msg(struct ucx_side *s, uint32_t id, uint64_t seq)
{
	return (uint64_t *)(void *)(s->mem +
				    ((uint64_t)id * s->depth + seq % s->depth) * s->size);
}

static inline void
ucx_send(struct ucx_side *s, uint32_t id, unsigned int am, const void *msg, uint32_t len)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = send_done,
		.user_data = s};
	ucs_status_ptr_t rc = ucp_am_send_nbx(s->one[id].ep, am, NULL, 0, msg, len, &param);

	s->failed += UCS_PTR_IS_ERR(rc);
}

/* ---- set-up, the same on both sides ---- */

static void
ucx_free(struct ucx_side *s)
{
	const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t rc;
	uint32_t i, k;

	for (i = 0; i < s->n; i++) {
		if (s->one[i].ep == NULL)
			continue;
		rc = ucp_ep_close_nbx(s->one[i].ep, &force);
		if (!UCS_PTR_IS_PTR(rc))
			continue;
		for (k = 0; k < CLOSE_TURNS && ucp_request_check_status(rc) == UCS_INPROGRESS; k++)
			ucp_worker_progress(s->worker);
		ucp_request_free(rc);
	}
	if (s->worker != NULL)
		ucp_worker_destroy(s->worker);
	if (s->context != NULL)
		ucp_cleanup(s->context);
	free(s->mem);
	free(s);
}

static ucs_status_t
ucx_context(struct ucx_side *s)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_AM,
		.estimated_num_eps = s->n};
	const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_config_t *config;
	ucs_status_t rc;

	rc = ucp_config_read(NULL, NULL, &config);
	if (rc != UCS_OK)
		return rc;
	rc = ucp_config_modify(config, "TLS", "posix");
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &s->context);
	ucp_config_release(config);
	if (rc != UCS_OK)
		return rc;
	return ucp_worker_create(s->context, &worker, &s->worker);
}

static ucs_status_t
ucx_handler(struct ucx_side *s, unsigned int am, ucp_am_recv_callback_t fn)
{
	const ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = am,
		.cb = fn,
		.arg = s};

	return ucp_worker_set_am_recv_handler(s->worker, &param);
}

/* Show our worker's address and connect an endpoint for each client to theirs: NULL, or why not. */
static const char *
ucx_meet(struct ucx_side *s, struct rpb_pair *p, enum rpb_side me)
{
	uint8_t theirs[RPB_PAIR_BLOB_MAX];
	const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
		.address = (const ucp_address_t *)(const void *)theirs};
	ucp_address_t *mine;
	ucs_status_t rc;
	size_t len;
	uint32_t i;

	rc = ucp_worker_get_address(s->worker, &mine, &len);
	if (rc != UCS_OK)
		return ucs_status_string(rc);
	i = rpb_pair_show(p, me, mine, len) != 0;
	ucp_worker_release_address(s->worker, mine);
	if (i != 0)
		return "the worker's address is too long";
	if (rpb_pair_see(p, me, theirs, sizeof(theirs), LANE_MEET_MS) <= 0)
		return "the other side shows no address";
	for (i = 0; i < s->n; i++) {
		rc = ucp_ep_create(s->worker, &params, &s->one[i].ep);
		if (rc != UCS_OK)
			return ucs_status_string(rc);
	}
	return NULL;
}

static struct ucx_side *
ucx_new(struct rpb_pair *p, const struct lane_conf *c, enum rpb_side me, unsigned int am,
	ucp_am_recv_callback_t fn, const char **why)
{
	struct ucx_side *s;
	ucs_status_t rc;

	*why = app_room_lacks(UCX_FILES, UCX_MIB);
	if (*why != NULL)
		return NULL;
	s = calloc(1, sizeof(*s) + c->clients * sizeof(s->one[0]));
	*why = "no memory";
	if (s == NULL)
		return NULL;
	s->base.conf = *c;
	s->base.pair = p;
	s->n = c->clients;
	s->size = c->size;
	s->depth = c->depth;
	s->half = (c->depth + 1) / 2;
	s->oneway = c->mode == LANE_ONEWAY;
	s->mem = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up((uint64_t)c->clients * c->depth * c->size, CRPC_CACHE_LINE));
	if (s->mem == NULL)
		goto err_side;
	rc = ucx_context(s);
	if (rc == UCS_OK)
		rc = ucx_handler(s, am, fn);
	*why = ucs_status_string(rc);
	if (rc != UCS_OK)
		goto err_side;
	*why = ucx_meet(s, p, me);
	if (*why == NULL)
		return s;
err_side:
	ucx_free(s);
	return NULL;
}

/* ---- second process ---- */

/* UCX bounds nothing itself: say how many have come, twice in a window. */
static void
ucx_take_oneway(struct ucx_side *s, uint32_t id, const void *data)
{
	struct ucx_one *o = &s->one[id];
	uint64_t *msg;

	lane_read(data, s->size, false, 0);
	if (++o->ack % s->half != 0)
		return;
	msg = ucx_msg(s, id, o->seq++);
	msg[0] = lane_word(id, o->ack);
	ucx_send(s, id, AM_REPLY, msg, sizeof(*msg));
}

/* A request: its bytes are UCX's again when this returns, so the answer is built elsewhere. */
static ucs_status_t
ucx_on_call(void *arg, const void *header, size_t header_len, void *data, size_t len,
	const ucp_am_recv_param_t *param)
{
	struct ucx_side *s = arg;
	uint64_t *msg;
	uint32_t id;

	id = len == s->size ? lane_word_client(lane_load(data, 0)) : UINT32_MAX;
	if (crpc_unlikely(id >= s->n)) {
		s->failed++;
		return UCS_OK;
	}
	s->calls++;
	if (s->oneway) {
		ucx_take_oneway(s, id, data);
		return UCS_OK;
	}
	msg = ucx_msg(s, id, s->one[id].seq++);
	memcpy(msg, data, len);
	ucx_send(s, id, AM_REPLY, msg, s->size);
	return UCS_OK;
}

static int
ucx_serve_open(struct rpb_pair *p, const struct lane_conf *c, void **server)
{
	const char *why;

	*server = ucx_new(p, c, RPB_SECOND, AM_CALL, ucx_on_call, &why);
	return *server != NULL ? 0 : rpb_pair_fail(p, -1, "UCX: %s", why);
}

static void
ucx_serve(struct rpb_pair *p, void *server, struct lane_served *out)
{
	struct ucx_side *s = server;

	out->clocked = false;
	s->calls = 0;
	rpb_pair_set_ready(p);
	while (!rpb_pair_stopped(p))
		ucp_worker_progress(s->worker);
	out->calls = s->calls;
}

static void
ucx_serve_close(void *server)
{
	ucx_free(server);
}

/* ---- first process ---- */

static ucs_status_t
ucx_on_reply(void *arg, const void *header, size_t header_len, void *data, size_t len,
	const ucp_am_recv_param_t *param)
{
	struct ucx_side *s = arg;
	uint32_t id, want = s->oneway ? sizeof(uint64_t) : s->size;

	id = len == want ? lane_word_client(lane_load(data, 0)) : UINT32_MAX;
	if (crpc_unlikely(id >= s->n)) {
		s->failed++;
		return UCS_OK;
	}
	if (s->oneway) {
		s->one[id].ack = lane_word_seq(lane_load(data, 0));
		return UCS_OK;
	}
	s->base.bad += lane_read(data, s->size, s->check, lane_word(id, s->one[id].ack));
	s->one[id].ack++;
	s->calls++;
	return UCS_OK;
}

static struct lane_client *
ucx_open(struct rpb_pair *p, const struct lane_conf *c)
{
	struct ucx_side *s;
	const char *why;

	s = ucx_new(p, c, RPB_FIRST, AM_REPLY, ucx_on_reply, &why);
	if (s != NULL)
		return &s->base;
	lane_why("UCX: %s", why);
	return NULL;
}

static void
ucx_close(struct lane_client *base)
{
	ucx_free((struct ucx_side *)base);
}

static void
ucx_issue(struct ucx_side *s, uint32_t id)
{
	uint64_t seq = s->one[id].seq++, *msg = ucx_msg(s, id, seq);

	lane_fill(msg, s->size, lane_word(id, seq));
	ucx_send(s, id, AM_CALL, msg, s->size);
}

static void
ucx_async(struct ucx_side *s, uint64_t end)
{
	const struct lane_conf *c = &s->base.conf;
	uint32_t i, k, room, turn = 0;

	do {
		ucp_worker_progress(s->worker);
		for (i = 0; i < c->active; i++) {
			room = c->depth - (uint32_t)(s->one[i].seq - s->one[i].ack);
			for (k = 0; k < room && k < c->burst; k++)
				ucx_issue(s, i);
			s->calls += s->oneway ? k : 0;
		}
	} while (!lane_over(&turn, end) && s->failed == 0);
}

static void
ucx_sync(struct ucx_side *s, uint64_t end)
{
	uint32_t i = 0, turn = 0, turns;
	uint64_t then = crpc_clock_ticks();

	do {
		if (s->one[i].seq == s->one[i].ack) /* Else one is left from before. */
			ucx_issue(s, i);
		for (turns = 1; s->one[i].seq != s->one[i].ack; turns++) {
			ucp_worker_progress(s->worker);
			if (turns % WAIT_TURNS == 0 && crpc_clock_ticks() >= end)
				return;
		}
		lane_call_ended(&s->base, &then);
		i = i + 1 == s->base.conf.active ? 0 : i + 1;
	} while (!lane_over(&turn, end) && s->failed == 0);
}

static uint64_t
ucx_go(struct lane_client *base, uint64_t end, bool check)
{
	struct ucx_side *s = (struct ucx_side *)base;

	s->check = check;
	s->calls = 0;
	if (base->conf.mode == LANE_SYNC)
		ucx_sync(s, end);
	else
		ucx_async(s, end);
	if (s->failed != 0)
		lane_break(base, "UCX: a send or a message failed");
	return s->calls;
}

/* The last one-way messages stay without a word until the next come. */
static uint64_t
ucx_open_calls(const struct ucx_side *s, uint32_t id)
{
	uint64_t open = s->one[id].seq - s->one[id].ack;

	return s->oneway && open < s->half ? 0 : open;
}

static void
ucx_drain(struct lane_client *base, uint64_t end)
{
	struct ucx_side *s = (struct ucx_side *)base;
	uint32_t i;

	s->check = false;
	do {
		ucp_worker_progress(s->worker);
		for (base->open = 0, i = 0; i < base->conf.active; i++)
			base->open += ucx_open_calls(s, i);
	} while (base->open != 0 && crpc_clock_ticks() < end);
}

const struct lane_ops lane_ucx = {
	.name = "ucx_posix",
	.package = "libucx-dev",
	.built = true,
	.oneway = true,
	.clients_max = LANE_CLIENTS_MAX,
	.serve_open = ucx_serve_open,
	.serve = ucx_serve,
	.serve_close = ucx_serve_close,
	.open = ucx_open,
	.go = ucx_go,
	.drain = ucx_drain,
	.close = ucx_close,
};
