/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX active messages over its POSIX shared memory, eager, without a header of our own: the first
 * word of a message says whose it is. One worker on each side and an endpoint for each client,
 * which is its best case: a single receive queue to look at, however many clients there are.
 */
#include <stdlib.h>

#include "app_ucx.h"
#include "lane_loop.h"

#define AM_CALL  0
#define AM_REPLY 1

/* All clients of one side. */
struct ucx_side {
	struct lane_end base;
	struct app_ucx ucx;
	uint32_t half;   /* One-way messages between two words of how many have come. */
	uint64_t failed; /* Sends or messages that went wrong. */
	uint8_t *mem;    /* depth messages for each client: UCX may read one until it has gone. */
	ucp_ep_h ep[];
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
		((uint64_t)id * s->base.conf.depth + seq % s->base.conf.depth) * s->base.conf.size);
}

static inline void
ucx_send(struct ucx_side *s, uint32_t id, unsigned int am, const void *msg, uint32_t len)
{
	s->failed += UCS_PTR_IS_ERR(app_ucx_send(s->ep[id], am, msg, len, send_done, s));
}

/* ---- side 1 ---- */

/* UCX bounds nothing itself: say how many have come, twice in a window. */
static void
ucx_take_oneway(struct ucx_side *s, uint32_t id, const void *data)
{
	struct lane_one *o = &s->base.one[id];
	uint64_t *msg;

	app_msg_read(data, s->base.conf.size, false, 0);
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
	uint32_t id = len == s->base.conf.size ? lane_word_client(app_msg_load(data, 0))
					       : UINT32_MAX;

	if (crpc_unlikely(id >= s->base.conf.clients)) {
		s->failed++;
		return UCS_OK;
	}
	s->base.calls++;
	if (s->base.oneway) {
		ucx_take_oneway(s, id, data);
		return UCS_OK;
	}
	msg = ucx_msg(s, id, s->base.one[id].seq++);
	memcpy(msg, data, len);
	ucx_send(s, id, AM_REPLY, msg, s->base.conf.size);
	return UCS_OK;
}

static void
ucx_serve(struct app_lane *l, const _Atomic uint32_t *over, struct lane_served *out)
{
	struct ucx_side *s = l->state[1];

	out->clocked = false;
	s->base.calls = 0;
	while (crpc_load_acquire(over) == 0)
		ucp_worker_progress(s->ucx.worker);
	out->calls = s->base.calls;
}

/* ---- side 0 ---- */

static ucs_status_t
ucx_on_reply(void *arg, const void *header, size_t header_len, void *data, size_t len,
	const ucp_am_recv_param_t *param)
{
	struct ucx_side *s = arg;
	uint32_t id, want = s->base.oneway ? sizeof(uint64_t) : s->base.conf.size;

	id = len == want ? lane_word_client(app_msg_load(data, 0)) : UINT32_MAX;
	if (crpc_unlikely(id >= s->base.conf.clients)) {
		s->failed++;
		return UCS_OK;
	}
	if (s->base.oneway) {
		s->base.one[id].ack = lane_word_seq(app_msg_load(data, 0));
		return UCS_OK;
	}
	s->base.bad += app_msg_read(data, s->base.conf.size, s->base.check,
		lane_word(id, s->base.one[id].ack++));
	s->base.calls++;
	return UCS_OK;
}

static void
ucx_issue(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n)
{
	struct ucx_side *s = (struct ucx_side *)e;
	uint64_t *msg;

	e->calls += e->oneway ? n : 0;
	for (; n != 0; n--, e->one[id].seq++) {
		msg = ucx_msg(s, id, e->one[id].seq);
		app_msg_fill(msg, size, lane_word(id, e->one[id].seq));
		ucx_send(s, id, AM_CALL, msg, size);
	}
}

/* Answers of all clients are taken here. */
static void
ucx_begin(struct lane_end *e)
{
	struct ucx_side *s = (struct ucx_side *)e;

	ucp_worker_progress(s->ucx.worker);
	if (crpc_unlikely(s->failed != 0))
		lane_break(e, "UCX: a send or a message failed");
}

static void
ucx_take(struct lane_end *e, uint32_t id, uint32_t size, bool check)
{
}

static const struct lane_loop loop = {ucx_begin, ucx_take, ucx_issue, .waits = 1024, .turns = 64};

static uint64_t
ucx_go(struct lane_end *e, uint64_t end, bool check)
{
	return lane_calls(e, end, e->conf.size, check, &loop);
}

/* ---- both ---- */

static int
ucx_open(struct app_lane *l, int side)
{
	const struct app_case *c = l->c;
	struct ucx_side *s =
		lane_end_new(l, side, sizeof(*s) + c->clients * sizeof(s->ep[0]));
	static const struct app_ucx_set set[] = {{"TLS", "posix"}, {NULL, NULL}};
	ucs_status_t rc;
	size_t len;

	if (s == NULL)
		return -ENOMEM;
	s->half = (c->depth + 1) / 2;
	s->base.unsaid = s->base.oneway ? s->half - 1 : 0;
	s->mem = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up((uint64_t)c->clients * c->depth * c->size, CRPC_CACHE_LINE));
	if (s->mem == NULL)
		return app_lane_fail(l, -ENOMEM, "no memory");
	rc = app_ucx_open(&s->ucx, UCP_FEATURE_AM, s->base.conf.clients, set);
	if (rc == UCS_OK)
		rc = app_ucx_handler(&s->ucx, side == 0 ? AM_REPLY : AM_CALL,
			side == 0 ? ucx_on_reply : ucx_on_call, s);
	if (rc == UCS_OK)
		rc = app_ucx_address(&s->ucx, l->addr[side].bytes, LANE_ADDR_MAX, &len);
	return rc == UCS_OK ? 0 : app_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(rc));
}

/* An endpoint for each client. */
static int
ucx_meet(struct app_lane *l, int side)
{
	struct ucx_side *s = l->state[side];
	const void *theirs = l->addr[!side].bytes;
	ucs_status_t rc = UCS_OK;

	for (uint32_t i = 0; i < s->base.conf.clients && rc == UCS_OK; i++)
		rc = app_ucx_connect(&s->ucx, theirs, NULL, NULL, &s->ep[i]);
	return rc == UCS_OK ? 0 : app_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(rc));
}

static void
ucx_close(struct app_lane *l, int side)
{
	struct ucx_side *s = l->state[side];

	for (uint32_t i = 0; i < s->base.conf.clients; i++)
		app_ucx_disconnect(&s->ucx, s->ep[i]);
	app_ucx_close(&s->ucx);
	free(s->mem);
	free(s);
}

const struct lane_way lane_ucx = {
	.base = APP_WAY("ucx_posix", ucx_open, ucx_meet, ucx_close, .files = APP_UCX_FILES,
		.mib = APP_UCX_MIB),
	.oneway = true,
	.serve = ucx_serve,
	.go = ucx_go,
	.loop = &loop,
};
