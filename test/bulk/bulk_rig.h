/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_RIG_H
#define BULK_RIG_H

/**
 * @file
 * Two bulk objects on paper devices, joined by one connection: the bench of the bulk tests, with a
 * virtual clock and a seeded wire; there is one at a time. Include it after cmocka.h.
 *
 * With RAILS=tcp in the environment they are joined by TCP over the loopback device, which delivers
 * in the call that sends: every message is eager then.
 *
 * Also an engine, "test", that does its work as its mode says: late, never or wrongly.
 */

#include <stdlib.h>
#include <string.h>

#include "bulk_check.h"
#include "bulk_conn.h"
#include "crpc_bulk.h"
#include "crpc_log.h"
#include "crpc_paper_nic.h"

#define RIG_PORTS 2
/* Bytes beside a buffer that must stay as they are. */
#define GUARD 64

static struct rig {
	struct crpc_paper w;
	struct crpc_bulk_conf conf[2];
	struct crpc_rdma *dev[2][RIG_PORTS];
	struct crpc_copyrpc *ctx[2][RIG_PORTS];
	struct crpc_bulk *b[2];
	struct crpc_bulk_conn *conn[2];
	uint32_t rails, nports;
	bool tcp;
	uint64_t seed;
} rig;

/*
 * Seeds of tests that play many: from the first one, so many. SEED=n in the environment plays that
 * one alone, SEEDS=n so many.
 */
static inline uint64_t
rig_seed_first(void)
{
	const char *one = getenv("SEED");

	return one != NULL ? strtoull(one, NULL, 0) : 1;
}

static inline uint64_t
rig_seeds(uint64_t few)
{
	const char *many = getenv("SEEDS");

	if (many != NULL)
		return strtoull(many, NULL, 0);
	return getenv("SEED") != NULL ? 1 : few;
}

/* One path after the other: eager, written, read. */
static inline uint8_t
rig_path(uint64_t i)
{
	return (uint8_t)(CRPC_BULK_EAGER << (rig.tcp ? 0 : i % 3));
}

/* Tests of what only RDMA has are skipped over TCP. */
static inline bool
rig_over_tcp(void)
{
	return getenv("RAILS") != NULL && strcmp(getenv("RAILS"), "tcp") == 0;
}

/* One of 0 to n - 1. */
static inline uint32_t
rig_rnd(uint32_t n)
{
	return (uint32_t)(crpc_paper_rnd(&rig.w) % n);
}

/* ---- the engine ---- */

enum tool_mode {
	TOOL_GOES,  /* one poll late */
	TOOL_HOLDS, /* nothing is done */
	TOOL_FAILS, /* jobs fail without work */
	TOOL_REFUSES,
	TOOL_FULL,   /* submit says -EAGAIN */
	TOOL_SPOILS, /* a byte is wrong */
};

#define TOOL_JOBS 256

struct tool_job {
	uint64_t id; /* 0: free */
	uint32_t n, polls;
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
};

struct tool {
	enum tool_mode mode;
	uint64_t next;
	uint32_t stops;
	struct tool_job job[TOOL_JOBS];
};

static struct tool tool;

static int
tool_create(const struct crpc_unpack_conf *conf, void **state)
{
	memset(&tool, 0, sizeof(tool));
	*state = &tool;
	return 0;
}

static void
tool_free(void *state)
{
}

static int
tool_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *id)
{
	uint32_t i = 0;

	if (tool.mode == TOOL_FULL)
		return -EAGAIN;
	if (tool.mode == TOOL_REFUSES)
		return -EFAULT;
	while (tool.job[i].id != 0)
		i++;
	tool.job[i] = (struct tool_job){.id = ++tool.next << 8 | i, .n = n};
	memcpy(tool.job[i].desc, desc, n * sizeof(*desc));
	*id = tool.job[i].id;
	return 0;
}

static int
tool_done(void *state, uint64_t id)
{
	struct tool_job *job = &tool.job[id & 0xff];

	assert_int_equal(job->id, id);
	if (tool.mode == TOOL_HOLDS || job->polls++ == 0)
		return -EAGAIN;
	job->id = 0;
	if (tool.mode == TOOL_FAILS)
		return -EIO;
	for (uint32_t i = 0; i < job->n; i++) {
		memcpy(job->desc[i].dst, job->desc[i].src, job->desc[i].len);
		if (tool.mode == TOOL_SPOILS)
			*(uint8_t *)job->desc[i].dst ^= 1;
	}
	return 0;
}

static int
tool_stop(void *state)
{
	tool.stops++;
	for (uint32_t i = 0; i < TOOL_JOBS; i++)
		tool.job[i].id = 0;
	return 0;
}

static const struct crpc_unpack_ops tool_ops = {
	"test", 0, tool_create, tool_free, tool_submit, NULL, tool_done, tool_stop};

/* ---- the pair ---- */

static inline int
rig_status(int side)
{
	return rig.conn[side]->err;
}

/* CRPC_BULK_FREE: there is no such request. */
static inline enum bulk_state
rig_state(int side, uint64_t handle)
{
	const struct bulk_req *req = rig.conn[side]->req;
	const struct bulk_req *end = req + 2 * rig.b[side]->conf.requests;

	while (req < end && req->handle != handle)
		req++;
	return req < end ? (enum bulk_state)req->state : CRPC_BULK_FREE;
}

static inline const struct crpc_bulk_stats *
rig_stats(int side)
{
	return crpc_bulk_stats(rig.b[side]);
}

static inline void
rig_progress(int side)
{
	crpc_bulk_progress(rig.b[side], rig.w.now_ns);
}

/* At side 1. */
static inline int
rig_consumed(uint64_t token)
{
	return crpc_bulk_consumed(rig.b[1], rig.w.now_ns, token);
}

static inline void
rig_connect(void)
{
	uint8_t addr[2][CRPC_BULK_ADDR_LEN];

	for (int side = 0; side < 2; side++)
		crpc_bulk_conn_addr(rig.conn[side], addr[side]);
	for (int side = 0; side < 2; side++) {
		if (crpc_bulk_conn_connect(rig.conn[side], addr[!side]) != 0)
			fail_msg("connect: %s", crpc_log_last());
	}
}

/* The context of a device. */
static inline void
rig_context(int side, uint32_t port)
{
	const struct crpc_copyrpc_conf conf = {
		.dev = rig.dev[side][port], .ring_size = 16384, .max_eps = 8};

	rig.ctx[side][port] = crpc_copyrpc_create(&conf);
	assert_non_null(rig.ctx[side][port]);
	rig.conf[side].port[port].ctx = rig.ctx[side][port];
	rig.conf[side].port[port].dev = rig.dev[side][port];
}

/* The bulk object of a side, and its connection. */
static inline void
rig_bulk(int side)
{
	rig.b[side] = crpc_bulk_create(&rig.conf[side]);
	if (rig.b[side] == NULL)
		fail_msg("create: %s", crpc_log_last());
	rig.conn[side] = crpc_bulk_conn_create(rig.b[side], rig.rails, 7);
	if (rig.conn[side] == NULL)
		fail_msg("connection: %s", crpc_log_last());
}

/* The rig of the last test, if there is one, ends. */
static inline void
rig_fini(void)
{
	for (int side = 0; side < 2; side++) {
		if (rig.b[side] == NULL)
			continue;
		crpc_bulk_free(rig.b[side]);
		rig.b[side] = NULL;
		for (uint32_t i = 0; i < rig.nports && !rig.tcp; i++) {
			crpc_copyrpc_free(rig.ctx[side][i]);
			crpc_rdma_close(rig.dev[side][i]);
		}
	}
}

static inline int
rig_close(void **state)
{
	rig_fini();
	return 0;
}

static inline void
rig_init(const struct crpc_bulk_conf *a, const struct crpc_bulk_conf *b, uint32_t rails,
	uint32_t nports, uint64_t seed)
{
	rig_fini();
	memset(&rig, 0, sizeof(rig));
	rig.seed = seed;
	rig.tcp = rig_over_tcp();
	rig.w.rng = seed * 2 + 1;
	rig.w.now_ns = 1000000;
	rig.conf[0] = *a;
	rig.conf[1] = *b;
	rig.rails = rails;
	rig.nports = nports;
	for (int side = 0; side < 2; side++) {
		for (uint32_t i = 0; i < nports && rig.tcp; i++)
			strcpy(rig.conf[side].port[i].tcp, i == 0 ? "127.0.0.1" : "127.0.0.2");
		for (uint32_t i = 0; i < nports && !rig.tcp; i++) {
			rig.dev[side][i] = crpc_paper_open(
				&rig.w, &(struct crpc_paper_conf){.inline_max = 256});
			assert_non_null(rig.dev[side][i]);
			rig_context(side, i);
		}
		rig.conf[side].nports = nports;
		rig_bulk(side);
	}
	rig_connect();
}

static inline void
rig_check(bool at_rest)
{
	for (int side = 0; side < 2; side++) {
		if (bulk_check(rig.b[side], at_rest) != 0)
			fail_msg("side %d: %s", side, crpc_log_last());
	}
}

/* The queue pair, or the TCP connection, of a rail breaks at one end. */
static inline void
rig_rail_fail(int side, uint32_t rail)
{
	if (rig.tcp) {
		rig.b[side]->link->shutdown(rig.conn[side]->rail[rail].ep);
		return;
	}
	assert_int_equal(
		crpc_paper_fail(rig.dev[side][rail % rig.nports], rail / rig.nports, -ECONNRESET),
		0);
}

/* One side's turn; the wire does a few things of its choice before. */
static inline void
rig_turn(int side)
{
	uint64_t n = crpc_paper_rnd(&rig.w) % 16;

	rig.w.now_ns += 1000;
	while (n-- != 0 && crpc_paper_step(&rig.w))
		;
	rig_progress(side);
}

static inline void
rig_turns(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		rig_turn(i & 1);
}

/* One side sends, or receives; the request. */
static inline uint64_t
rig_send(int side, uint64_t tag, const void *buf, uint64_t len, uint32_t flags)
{
	uint64_t req = 0;

	assert_int_equal(
		crpc_bulk_isend(rig.conn[side], rig.w.now_ns, tag, buf, len, flags, 11, &req), 0);
	return req;
}

static inline uint64_t
rig_recv(int side, uint64_t tag, void *buf, uint64_t len, uint32_t flags)
{
	uint64_t req = 0;

	assert_int_equal(
		crpc_bulk_irecv(rig.conn[side], rig.w.now_ns, tag, buf, len, flags, 22, &req), 0);
	return req;
}

/* Until both sides' requests have ended; their results. */
static inline void
rig_end(uint64_t send, uint64_t recv, struct crpc_bulk_result result[2])
{
	uint64_t req[2] = {send, recv};
	bool have[2] = {send == 0, recv == 0};

	memset(result, 0, 2 * sizeof(*result));
	for (uint32_t i = 0; i < 2000000 && !(have[0] && have[1]); i++) {
		int side = i & 1;

		rig_turn(side);
		if (!have[side])
			have[side] = crpc_bulk_test(rig.b[side], req[side], &result[side]) == 0;
	}
	if (!have[0] || !have[1])
		fail_msg("seed %llu: send ended: %d, receive ended: %d",
			(unsigned long long)rig.seed, have[0], have[1]);
}

/* Both end with this status. */
static inline void
rig_ends(uint64_t send, uint64_t recv, int32_t status)
{
	struct crpc_bulk_result result[2];

	rig_end(send, recv, result);
	if (result[0].status != status || result[1].status != status)
		fail_msg("seed %llu: send %d, receive %d, expected %d: %s",
			(unsigned long long)rig.seed, result[0].status, result[1].status, status,
			crpc_log_last());
}

/* Until no message is due and no chunk under way. */
static inline void
rig_rest(void)
{
	for (uint32_t i = 0; i < 1000; i++) {
		rig_turns(20);
		crpc_paper_run(&rig.w);
		if (bulk_check(rig.b[0], true) == 0 && bulk_check(rig.b[1], true) == 0)
			return;
	}
	rig_check(true);
}

/* ---- an end that a test plays by hand ---- */

/* A control message goes from a side to its peer, and arrives. */
static inline void
rig_say(int side, const void *msg, uint32_t len)
{
	const struct bulk_link *link = rig.b[side]->link;
	union bulk_wire m;

	memcpy(&m, msg, len);
	assert_int_equal(
		link->send(rig.conn[side], rig.conn[side]->rail[0].ep, NULL, &m.head), 0);
	if (rig.tcp)
		__crpc_bulk_tcp_turn(rig.conn[side]);
	else
		crpc_copyrpc_flush(rig.ctx[side][0], rig.w.now_ns);
	crpc_paper_run(&rig.w);
}

/* The oldest control message that arrived at a side; its bytes, or 0: there is none. */
static inline uint32_t
rig_hear(int side, union bulk_wire *msg)
{
	struct crpc_copyrpc *ctx = rig.ctx[side][0];
	struct crpc_done done[4];
	struct crpc_req req;

	crpc_paper_run(&rig.w);
	crpc_copyrpc_poll(ctx, rig.w.now_ns, done, 4);
	if (crpc_copyrpc_recv(ctx, rig.w.now_ns, &req, 1) == 0)
		return 0;
	memcpy(msg, req.data, req.len);
	crpc_copyrpc_release(ctx, rig.w.now_ns, req.token);
	crpc_copyrpc_flush(ctx, rig.w.now_ns);
	return req.len;
}

/* ---- buffers ---- */

/* len bytes between guards. */
static inline uint8_t *
buf_make(uint64_t len)
{
	uint8_t *p = malloc(len + 2 * GUARD);

	assert_non_null(p);
	memset(p, 0xa5, len + 2 * GUARD);
	return p + GUARD;
}

static inline void
buf_fill(uint8_t *p, uint64_t len, uint64_t seed)
{
	uint64_t i, x = seed * 2654435761u + 1;

	for (i = 0; i < len; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		p[i] = (uint8_t)(x >> 56);
	}
}

static inline void
buf_guards(const uint8_t *p, uint64_t len)
{
	for (uint32_t i = 1; i <= GUARD; i++) {
		assert_int_equal(p[-(int)i], 0xa5);
		assert_int_equal(p[len + i - 1], 0xa5);
	}
}

static inline void
buf_free(uint8_t *p)
{
	free(p - GUARD);
}

/* ---- one message from side 0 to side 1 ---- */

struct job {
	uint8_t *src, *dst;
	uint64_t len, send, recv;
	struct crpc_bulk_result result[2];
	bool same; /* What was received is what was sent. */
};

static inline void
job_start(struct job *j, uint64_t len, uint32_t send_flags, uint32_t recv_flags)
{
	*j = (struct job){.src = buf_make(len), .dst = buf_make(len), .len = len};
	buf_fill(j->src, len, len + 77);
	j->send = rig_send(0, 3, j->src, len, send_flags);
	j->recv = rig_recv(1, 3, j->dst, len, recv_flags);
}

/* Until some of its chunks were posted, but not all. */
static inline void
job_middle(const struct job *j)
{
	for (uint32_t i = 0; i < 10000; i++) {
		rig_turn((int)i & 1);
		if (rig_state(0, j->send) == CRPC_BULK_TRANSMITTING &&
			rig_state(1, j->recv) >= CRPC_BULK_ACTIVE && i > 20)
			return;
	}
	fail_msg("it does not begin");
}

/* Both requests have ended: the buffers are spoiled, so that later accesses show. */
static inline void
job_over(struct job *j)
{
	buf_guards(j->dst, j->len);
	j->same = memcmp(j->src, j->dst, j->len) == 0;
	memset(j->dst, 0x5a, j->len);
	memset(j->src, 0x5a, j->len);
}

static inline void
job_end(struct job *j)
{
	rig_end(j->send, j->recv, j->result);
	job_over(j);
}

/* Both end with this status; success comes with the right content. */
static inline void
job_ends(struct job *j, int32_t status)
{
	job_end(j);
	if (j->result[0].status != status || j->result[1].status != status ||
		(status == 0 && !j->same))
		fail_msg("seed %llu, %llu bytes: send %d, receive %d, expected %d, content %s: %s",
			(unsigned long long)rig.seed, (unsigned long long)j->len,
			j->result[0].status, j->result[1].status, status,
			j->same ? "right" : "wrong", crpc_log_last());
}

/* Whatever still happens touches neither buffer. */
static inline void
job_quiet(struct job *j)
{
	uint64_t i, touched = 0;

	rig_rest();
	for (i = 0; i < j->len; i++)
		touched += j->dst[i] != 0x5a || j->src[i] != 0x5a;
	assert_int_equal(touched, 0);
	/* before the allocator gives this memory to another buffer */
	for (i = 0; i < rig.b[0]->ndevs; i++) {
		crpc_mrcache_invalidate(rig.b[0]->cache[i], j->src, j->len);
		crpc_mrcache_invalidate(rig.b[1]->cache[i], j->dst, j->len);
	}
	buf_free(j->src);
	buf_free(j->dst);
}

#endif
