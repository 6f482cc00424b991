/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a silent peer is still there. What arrives is not noted when it arrives: positions move
 * with it, and it is enough to look at them now and then. A peer that moves none for a quarter of
 * the time is asked, and its poll() answers.
 */
#include "copyrpc_pvt.h"

/*
 * Questions without an answer before a peer is given up. We ask every eighth of the time (never
 * faster than every tenth, whatever else has the slots swept), so there are six by then; fewer
 * mean that it was us who were away, and the peer was not asked in time.
 */
#define ASKS_MIN 4

static uint64_t
heard_sum(const struct crpc_copyrpc_ep *ep)
{
	return ep->rx_pos[WIRE_REQ] + ep->rx_pos[WIRE_RESP] + ep->peer_released + ep->alive_yes;
}

void
__crpc_copyrpc_alive_check(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint64_t limit = ctx->conf.peer_timeout_ns, sum = heard_sum(ep), silent;

	if (limit == 0 || ep->err != 0)
		return;
	if (sum != ep->heard || ep->heard_ns == 0) {
		ep->heard = sum;
		ep->heard_ns = now_ns;
		ep->asks = 0;
		return;
	}
	silent = now_ns - ep->heard_ns;
	if (silent >= limit && ep->asks >= ASKS_MIN) {
		crpc_err("endpoint %u (peer %u): nothing was heard for %llu ms, expected an answer "
			 "within %llu: the peer is lost, its calls end with -ECONNRESET",
				ep->id, ep->user_id, (unsigned long long)(silent / 1000000),
				(unsigned long long)(limit / 1000000));
		ctx->stats.peers_lost++;
		__crpc_copyrpc_ep_break(ep, -ECONNRESET);
	} else if (silent >= limit / 4 && now_ns - ep->asked_ns >= limit / 10) {
		ep->asks++;
		ep->asked_ns = now_ns;
		ep->flags |= EP_ALIVE(WIRE_ALIVE_ASK);
		ep_mark_dirty(ep);
	}
}

void
__crpc_copyrpc_alive_take(struct crpc_copyrpc_ep *ep, uint32_t what, uint32_t byte_len)
{
	if (what >= WIRE_ALIVES || byte_len != 0) {
		__crpc_copyrpc_ep_lie(ep, "question whether we are there", WIRE_ALIVE_ASK,
				what | (uint64_t)byte_len << 32);
		return;
	}
	if (what == WIRE_ALIVE_YES) {
		ep->alive_yes++;
		return;
	}
	ep->flags |= EP_ALIVE(WIRE_ALIVE_YES);
	ep_mark_dirty(ep);
}

void
__crpc_copyrpc_alive_post(struct crpc_copyrpc_ep *ep)
{
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM,
			.raddr = ep->tx[WIRE_REQ].raddr,
			.rkey = ep->rkey};
	uint32_t what;

	for (what = 0; what < WIRE_ALIVES; what++) {
		if (!(ep->flags & EP_ALIVE(what)))
			continue;
		wr.imm = (uint32_t)WIRE_IMM_ALIVE << WIRE_IMM_BITS | what;
		if (crpc_rdma_post(ep->qp, &wr, 1) != 1)
			return;
		ep->flags &= ~EP_ALIVE(what);
		ep->ctx->stats.alive_sent++;
	}
}
