/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/**
 * @file
 * Two contexts on two paper devices, joined by endpoints: the bench of the copyrpc tests, of which
 * there is one at a time. Include it after cmocka.h.
 */

#include <string.h>

#include "copyrpc_conn.h"
#include "crpc_copyrpc.h"
#include "crpc_paper_nic.h"

#define PAIR_EPS 4

static struct pair {
	struct crpc_paper w;
	struct crpc_rdma *dev[2];
	struct crpc_copyrpc *ctx[2];
	struct crpc_copyrpc_ep *ep[2][PAIR_EPS];
	uint32_t neps;
	struct crpc_copyrpc_ep_conf mode; /* of endpoints to come */
} p;

#define LIBRARY copyrpc
#include "pair_rpc.h"

/* Connect the two endpoints of a place. */
static inline void
pair_join(uint32_t i)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];

	for (int side = 0; side < 2; side++)
		crpc_copyrpc_ep_addr(p.ep[side][i], addr[side]);
	for (int side = 0; side < 2; side++)
		assert_int_equal(crpc_copyrpc_ep_connect(p.ep[side][i], addr[!side]), 0);
}

/* Make one more connection between the two. */
static inline void
pair_connect(uint32_t i)
{
	for (int side = 0; side < 2; side++) {
		p.ep[side][i] = crpc_copyrpc_ep_create_as(p.ctx[side], 100 + i, &p.mode);
		assert_non_null(p.ep[side][i]);
	}
	pair_join(i);
}

static inline void
pair_init3(const struct crpc_copyrpc_conf *a, const struct crpc_copyrpc_conf *b, uint32_t neps,
	uint64_t seed, struct crpc_copyrpc_ep_conf mode)
{
	struct crpc_copyrpc_conf conf[2] = {*a, *b};

	pair_fini();
	memset(&p, 0, sizeof(p));
	p.w.rng = seed * 2 + 1;
	p.w.now_ns = 1000000;
	p.neps = neps;
	p.mode = mode;
	for (int side = 0; side < 2; side++) {
		p.dev[side] = crpc_paper_open(&p.w, &(struct crpc_paper_conf){.inline_max = 256});
		assert_non_null(p.dev[side]);
		conf[side].dev = p.dev[side];
		p.ctx[side] = crpc_copyrpc_create(&conf[side]);
		assert_non_null(p.ctx[side]);
	}
	for (uint32_t i = 0; i < neps; i++)
		pair_connect(i);
}

static inline void
pair_init2(const struct crpc_copyrpc_conf *a, const struct crpc_copyrpc_conf *b, uint32_t neps,
	uint64_t seed)
{
	pair_init3(a, b, neps, seed, (struct crpc_copyrpc_ep_conf){0});
}

static inline void
pair_init(const struct crpc_copyrpc_conf *conf)
{
	pair_init2(conf, conf, 1, 42);
}

/* One turn of one side: time passes, the wire runs, poll. */
static inline uint16_t
pair_poll(int side, struct crpc_done *done, uint16_t n)
{
	p.w.now_ns += 100;
	crpc_paper_run(&p.w);
	return crpc_copyrpc_poll(p.ctx[side], p.w.now_ns, done, n);
}

/* The first connection ends and is made again. */
static inline void
pair_reset(void)
{
	for (int side = 0; side < 2; side++) {
		crpc_copyrpc_ep_shutdown(p.ep[side][0]);
		pair_turn(side);
		assert_int_equal(crpc_copyrpc_ep_reset(p.ep[side][0]), 0);
	}
	pair_join(0);
}

/* The auditor finds both ends in order, and the positions of one end are those of the other. */
static inline void
pair_at_rest(void)
{
	for (int turns = 0; turns < 8; turns++) {
		p.w.now_ns += 1000000;
		pair_turn(turns & 1);
	}
	for (int side = 0; side < 2; side++) {
		if (crpc_copyrpc_check(p.ctx[side], true) != 0)
			fail_msg("side %d: %s", side, crpc_log_last());
		for (uint32_t i = 0; i < p.neps; i++) {
			const struct crpc_copyrpc_ep *a = p.ep[side][i];
			const struct crpc_copyrpc_ep *b = p.ep[!side][i];

			if (a == NULL || a->err != 0 || b->err != 0)
				continue;
			assert_int_equal(a->tx[WIRE_REQ].sent, b->conn->rx_pos[WIRE_REQ]);
			assert_int_equal(a->tx[WIRE_RESP].sent, b->conn->rx_pos[WIRE_RESP]);
			if (a->conn->conf.flow != CRPC_COPYRPC_FLOW_READ)
				assert_int_equal(a->conn->peer_released, b->conn->released);
		}
	}
}

#endif
