/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/*
 * Two contexts in one world, with endpoints joined one to one, for the tests of lib/udrpc: one pair
 * at a time.
 */

#include <string.h>

#include "crpc_udrpc.h"
#include "crpc_paper_nic.h"
#include "udrpc_audit.h"

#define PAIR_EPS 8

static struct pair {
	struct crpc_paper w;
	struct crpc_rdma *dev[2];
	struct crpc_udrpc *ctx[2];
	struct crpc_udrpc_ep *ep[2][PAIR_EPS];
} p;

#define LIBRARY udrpc
#include "pair_rpc.h"

static inline void
pair_join(struct crpc_udrpc_ep *a, struct crpc_udrpc_ep *b)
{
	uint8_t addr[2][CRPC_UDRPC_ADDR_LEN];

	crpc_udrpc_ep_addr(a, addr[0]);
	crpc_udrpc_ep_addr(b, addr[1]);
	if (crpc_udrpc_ep_connect(a, addr[1]) != 0 || crpc_udrpc_ep_connect(b, addr[0]) != 0)
		fail_msg("%s", crpc_log_last());
}

static inline void
pair_init(const struct crpc_udrpc_conf *conf, uint32_t eps, uint64_t seed, uint32_t inline_max,
	uint32_t mtu)
{
	struct crpc_udrpc_conf c = *conf;

	pair_fini();
	memset(&p, 0, sizeof(p));
	p.w.rng = seed * 2 + 1;
	p.w.now_ns = 1000;
	for (uint32_t i = 0; i < 2; i++) {
		p.dev[i] = crpc_paper_open(
			&p.w, &(struct crpc_paper_conf){.inline_max = inline_max, .mtu = mtu});
		c.dev = p.dev[i];
		c.seed = seed * 2 + 77 + i;
		p.ctx[i] = crpc_udrpc_create(&c);
		if (p.ctx[i] == NULL)
			fail_msg("%s", crpc_log_last());
		for (uint32_t k = 0; k < eps; k++) {
			p.ep[i][k] = crpc_udrpc_ep_create(p.ctx[i], 100 * i + k);
			assert_non_null(p.ep[i][k]);
		}
	}
	for (uint32_t k = 0; k < eps; k++)
		pair_join(p.ep[0][k], p.ep[1][k]);
}

/* Everything that was sent arrives, time goes on, this side polls. */
static inline uint16_t
pair_poll(int side, struct crpc_done *done, uint16_t n)
{
	crpc_paper_run(&p.w);
	p.w.now_ns += 1000;
	return crpc_udrpc_poll(p.ctx[side], p.w.now_ns, done, n);
}

/* What the caller of a request that is open has room for. */
static inline uint64_t
pair_reply_max(int side, uint64_t token)
{
	const struct crpc_udrpc_ep *ep = &p.ctx[side]->eps[token & (CRPC_UDRPC_EPS_MAX - 1)];

	return ep->serves[token >> TOKEN_EP_BITS & (CRPC_UDRPC_SLOTS_MAX - 1)].resp_max;
}

/* The server's turn: take all that is there, echo it. Returns requests. */
static inline uint32_t
pair_echo(int side)
{
	struct crpc_done done[16];
	struct crpc_req req[64];
	uint16_t n, i;

	pair_poll(side, done, 16);
	n = pair_recv(side, req, 64);
	for (i = 0; i < n; i++)
		assert_int_equal(
			pair_reply(side, req[i].token, req[i].data,
				(uint32_t)crpc_min(req[i].len,
					pair_reply_max(side, req[i].token))),
			0);
	pair_flush(side);
	return n;
}

#endif
