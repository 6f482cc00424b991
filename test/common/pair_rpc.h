/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_RPC_H
#define PAIR_RPC_H

/**
 * @file
 * The verbs of the tests of copyrpc and udrpc: on the first endpoint of a side, at the time of the
 * pair p. Included by their pair.h, which defines p and LIBRARY, the bare name of the library.
 */

#define PAIR_PASTE(lib, name) crpc_##lib##_##name
#define PAIR_API(lib, name)   PAIR_PASTE(lib, name)
#define API(name)             PAIR_API(LIBRARY, name)

#define pair_stats(side) API(stats)(p.ctx[side])

static inline int
pair_call(int side, const void *buf, uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	return API(call)(p.ep[side][0], p.w.now_ns, buf, len, resp_max, cookie);
}

static inline int
pair_notify(int side, const void *buf, uint32_t len)
{
	return API(notify)(p.ep[side][0], p.w.now_ns, buf, len);
}

static inline uint16_t
pair_recv(int side, struct crpc_req *req, uint16_t n)
{
	return API(recv)(p.ctx[side], p.w.now_ns, req, n);
}

static inline int
pair_reply(int side, uint64_t token, const void *buf, uint32_t len)
{
	return API(reply)(p.ctx[side], p.w.now_ns, token, buf, len);
}

static inline int
pair_release(int side, uint64_t token)
{
	return API(release)(p.ctx[side], p.w.now_ns, token);
}

static inline uint32_t
pair_flush(int side)
{
	return API(flush)(p.ctx[side], p.w.now_ns);
}

static inline int
pair_status(int side)
{
	return API(ep_status)(p.ep[side][0]);
}

/* One turn of one side: time passes, what was sent arrives, poll. */
static inline uint16_t pair_poll(int side, struct crpc_done *done, uint16_t n);

/* Poll a side that expects no completion. */
static inline void
pair_turn(int side)
{
	struct crpc_done done[CRPC_BURST_MAX];

	assert_int_equal(pair_poll(side, done, CRPC_BURST_MAX), 0);
}

/* What the peer has queued arrives: the only request. */
static inline struct crpc_req
pair_take(int side)
{
	struct crpc_req req[2];

	pair_flush(!side);
	pair_turn(side);
	assert_int_equal(pair_recv(side, req, 2), 1);
	return req[0];
}

/* The pair of the last test, if there is one, ends. */
static inline void
pair_fini(void)
{
	for (int side = 0; side < 2; side++) {
		if (p.ctx[side] == NULL)
			continue;
		API(free)(p.ctx[side]);
		crpc_rdma_close(p.dev[side]);
		p.ctx[side] = NULL;
	}
}

static inline int
pair_end(void **state)
{
	pair_fini();
	return 0;
}

#endif
