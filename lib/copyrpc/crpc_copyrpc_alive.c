/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a silent peer is alive. Nothing is noted when something arrives: positions move with it,
 * and it is enough to look at them now and then. A peer that moves none for a quarter of the time
 * is probed, and its poll() answers.
 */
#include "copyrpc_conn.h"

/*
 * Unanswered probes before a peer is declared dead. We probe every eighth of the time (never faster
 * than every tenth), so there are six by then; fewer mean that we did not poll for that long,
 * and the peer was not probed in time.
 */
#define PROBES_MIN 4
/* Endpoints that one poll looks at, at most. */
#define EPS_TURN 64

static void
alive_check(struct crpc_copyrpc_ep *ep, uint64_t now_ns)
{
	struct conn *conn = ep->conn;
	uint64_t limit = ep->ctx->conf.peer_timeout_ns, silent;
	uint64_t sum = conn->rx_pos[WIRE_REQ] + conn->rx_pos[WIRE_RESP] + conn->peer_released +
		conn->alive_yes;

	if (sum != conn->heard || conn->heard_ns == 0) {
		conn->heard = sum;
		conn->heard_ns = now_ns;
		conn->probes = 0;
		return;
	}
	silent = now_ns - conn->heard_ns;
	if (silent >= limit && conn->probes >= PROBES_MIN) {
		crpc_err("endpoint %u (peer %u): nothing arrived for %llu ms, expected an answer "
			 "within %llu: the peer is lost, its calls end with -ECONNRESET",
			ep->id, ep->user_id, (unsigned long long)(silent / 1000000),
			(unsigned long long)(limit / 1000000));
		ep->ctx->stats.peers_lost++;
		__crpc_copyrpc_break(ep, -ETIMEDOUT);
	} else if (silent >= limit / 4 && now_ns - conn->probed_ns >= limit / 10) {
		conn->probes++;
		conn->probed_ns = now_ns;
		conn->alive |= 1u << WIRE_ALIVE_ASK;
		ep_list_add(ep, dirty);
	}
}

void
__crpc_copyrpc_alive_turn(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	uint32_t end = (uint32_t)crpc_min(ctx->alive_at + EPS_TURN, ctx->conf.max_eps);

	for (; ctx->alive_at < end; ctx->alive_at++)
		if (ctx->eps[ctx->alive_at] != NULL && ctx->eps[ctx->alive_at]->err == 0)
			alive_check(ctx->eps[ctx->alive_at], now_ns);
	if (end == ctx->conf.max_eps) {
		ctx->alive_at = 0;
		ctx->alive_ns = now_ns + ctx->conf.peer_timeout_ns / 8;
	}
}

void
__crpc_copyrpc_alive_take(struct crpc_copyrpc_ep *ep, uint32_t what, uint32_t byte_len)
{
	if (what >= WIRE_ALIVES || byte_len != 0) {
		__crpc_copyrpc_lie(ep, "probe whether we are alive", WIRE_ALIVE_ASK,
			what | (uint64_t)byte_len << 32);
	} else if (what == WIRE_ALIVE_YES) {
		ep->conn->alive_yes++;
	} else {
		ep->conn->alive |= 1u << WIRE_ALIVE_YES;
		ep_list_add(ep, dirty);
	}
}

void
__crpc_copyrpc_alive_post(struct crpc_copyrpc_ep *ep)
{
	struct conn *conn = ep->conn;
	struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM, .raddr = ep->tx[WIRE_REQ].raddr, .rkey = conn->rkey};

	for (uint32_t what = 0; what < WIRE_ALIVES; what++) {
		if (!(conn->alive >> what & 1))
			continue;
		wr.imm = (uint32_t)WIRE_IMM_ALIVE << WIRE_IMM_BITS | what;
		if (crpc_rdma_post(conn->qp, &wr, 1) != 1)
			return;
		conn->alive &= (uint8_t) ~(1u << what);
		ep->ctx->stats.alive_sent++;
	}
}
