/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Dynamic connections.
 *
 *     DCI                                     DCT
 *      | WQE for another target: wait until everything is acknowledged
 *      | DISCONNECT ------------> (old target)
 *      | CONNECT key, psn ------------------> | key wrong: NAK
 *      | SEND, WRITE, READ ... -------------> | a connection: as the queue pair of an RC
 *      | <------------------------ ACK, NAK | on the DCT's SRQ and CQ
 *
 * A DCI is an RC requester whose peer changes. A DCT makes a responder of its own, a struct
 * sm_qp that no number leads to, for each DCI that is connected. What it refuses fails the DCI and
 * not the DCT.
 *
 * Where packets get lost, DISCONNECT cannot end a connection: what was sent before may come after,
 * and the connection alone knows what was done already. So it stays, and a DCT would collect one of
 * every DCI that ever was. Hence there is a limit, beyond which the one that was silent longest
 * goes, if that was long enough. A DCI whose connection was forgotten connects again. It may have
 * sent what was done, but not acknowledged, and then neither side can know: CONNECT says since
 * when something may be without acknowledgement, and if that is longer than what a connection is
 * kept for at least, it is refused for good. Nothing is done twice.
 *
 *     0         1 s            5 s                   10 s          silence, or age of a CONNECT
 *     |          |              |                     |
 *     |          |              |                     +-- the connection may go
 *     |          |              +-- too old for a DCT that has forgotten any
 *     |          +-- a DCI to whom all was acknowledged connects again before it goes on
 */
#include <errno.h>
#include <stdlib.h>

#include "qp.h"

#define NS_PER_S UINT64_C(1000000000)
#define FRESH_NS NS_PER_S
#define OLD_S 5u
#define IDLE_NS (10 * NS_PER_S)
/* Seconds in a CONNECT: all that a packet of the wire between hosts has room for. */
#define AGE_MAX_S 255u

/* CONNECT or DISCONNECT; false: no room. */
static bool
control_send(const struct sm_nic *nic, struct sm_qp *qp, enum sm_pkt_type type)
{
	uint64_t age = (nic->now - qp->dc.at) / NS_PER_S;
	struct sm_hdr h = {
		.dst = qp->dest_qpn | (uint32_t)qp->req.epoch << 24,
		.src = qp->from,
		.psn = qp->req.psn,
		.raddr = qp->dc.key,
		.rkey = (uint32_t)crpc_min(age, AGE_MAX_S),
		.imm = qp->dc.life,
	};

	if (!sm_tx_send(&qp->peer->tx, SM_RING_RESERVE, &h, type))
		return false;
	qp->n.tx.kind[SM_KIND_CONTROL]++;
	return true;
}

void
sm_dci_leave(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->dc.connected && !qp->peer->dead)
		/* If not, the next CONNECT finds the rest. */
		control_send(nic, qp, SM_PKT_DISCONNECT);
	qp->dc.connected = false;
	sm_peer_leave(nic, qp);
	qp->dest_qpn = 0;
	qp->far = 0;
}

/* Whether everything sent was acknowledged or answered. */
static bool
is_quiet(const struct sm_qp *qp)
{
	return qp->req.rd_head == qp->req.rd_tail &&
		qp->req.acked == ((qp->req.psn - 1) & SM_PSN_MASK);
}

/* All was acknowledged, and the last CONNECT says little of what is sent from now on. */
static bool
is_stale(const struct sm_nic *nic, const struct sm_qp *qp)
{
	return nic->lossy && nic->now - qp->dc.at >= FRESH_NS && is_quiet(qp);
}

/* The place of a stream among those in error; behind them: it is none. */
static uint32_t
stream_find(const struct sm_qp *qp, uint32_t stream)
{
	uint32_t i = 0;

	while (i < qp->dc.nbad && qp->dc.bad[i] != stream)
		i++;
	return i;
}

bool
sm_dci_stream_fail(struct sm_qp *qp, const struct sm_swr *w)
{
	/* A WQE that cannot be read does not say of which stream it is. */
	if (w->syndrome == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR)
		return false;
	if (qp->dc.nbad < qp->made.bad_streams && stream_find(qp, w->stream) == qp->dc.nbad)
		qp->dc.bad[qp->dc.nbad++] = w->stream;
	return qp->dc.nbad < qp->made.bad_streams;
}

int
sm_dci_stream_reset(struct sm_nic *nic, struct sm_qp *qp, uint32_t stream)
{
	uint32_t i;

	SM_LOCKED(nic);
	i = stream_find(qp, stream);
	if (qp->state != IBV_QPS_RTS || i == qp->dc.nbad)
		return EINVAL;
	qp->dc.bad[i] = qp->dc.bad[--qp->dc.nbad];
	return 0;
}

enum sm_step
sm_dci_connect(struct sm_nic *nic, struct sm_qp *qp)
{
	const struct sm_av *av = &qp->req.tx.av;
	struct sm_peer *peer;
	int rc;

	if (crpc_unlikely(stream_find(qp, qp->req.tx.swr.stream) != qp->dc.nbad))
		/* Behind what is under way: its packets' numbers are passed over. */
		return qp->req.wr_done != qp->req.wr_tx
			? SM_STEP_BLOCKED
			: sm_sq_fail(nic, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	if (crpc_likely(qp->dest_qpn == av->qpn && qp->dc.key == av->key)) {
		if (crpc_likely(qp->dc.connected && !is_stale(nic, qp)))
			return SM_STEP_ON;
		if (qp->dc.connected) {
			qp->dc.connected = false;
			qp->dc.at = nic->now;
		}
	} else {
		if (!is_quiet(qp))
			return SM_STEP_BLOCKED;
		sm_dci_leave(nic, qp);
	}
	if (qp->peer == &nic->nowhere) {
		rc = sm_peer_av(nic, av, &peer);
		if (peer == NULL)
			return sm_sq_fail(nic, qp,
				rc != 0 ? MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
					: MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		sm_peer_join(peer, qp);
		qp->dest_qpn = av->qpn;
		sm_qp_names(nic, qp, av->kind);
		qp->dc.key = av->key;
		qp->dc.at = nic->now;
	}
	if (!control_send(nic, qp, SM_PKT_CONNECT))
		return SM_STEP_FULL;
	qp->dc.connected = true;
	return SM_STEP_ON;
}

/* A target that may be reached. */
static bool
is_ready(const struct sm_qp *qp)
{
	return qp != NULL && qp->kind->sends == SM_SENDS_NOTHING && qp->state == IBV_QPS_RTR;
}

/* The connection of a DCI, or NULL; then, if there is any, the one that was silent longest. */
static struct sm_qp *
conn_find(struct sm_qp *dct, const struct sm_peer *peer, uint32_t src, struct sm_qp **last)
{
	struct sm_qp *c;

	*last = NULL;
	LIST_FOREACH(c, &dct->dc.conns, dc.link) {
		if (c->far == src && c->peer == peer)
			break;
		*last = c;
	}
	if (c != NULL && c != LIST_FIRST(&dct->dc.conns)) {
		LIST_REMOVE(c, dc.link);
		LIST_INSERT_HEAD(&dct->dc.conns, c, dc.link);
	}
	return c;
}

void
sm_dct_conn_free(struct sm_nic *nic, struct sm_qp *c)
{
	if (!c->peer->dead)
		sm_resp_settle(nic, c);
	sm_recv_abandon(c);
	sm_direct_withdraw(nic, c);
	sm_turn_del(nic, c, SM_TURN_ANSWER);
	sm_peer_leave(nic, c);
	sm_count_add(&c->dc.dct->n, &c->n, SM_COUNT_WORDS);
	c->dc.dct->dc.nconns--;
	LIST_REMOVE(c, dc.link);
	free(c);
}

void
sm_dct_drop(struct sm_nic *nic, struct sm_qp *dct)
{
	while (!LIST_EMPTY(&dct->dc.conns))
		sm_dct_conn_free(nic, LIST_FIRST(&dct->dc.conns));
}

void
sm_dct_silent(struct sm_nic *nic, struct sm_peer *peer)
{
	struct sm_qp *qp, *next;

	SM_FOREACH_SAFE (qp, &peer->qps, peer_link, next) {
		if (qp->dc.dct == NULL)
			continue;
		qp->dc.dct->dc.forgot = true;
		sm_dct_conn_free(nic, qp);
	}
}

/* Whether there is room for one more connection; the one that was silent longest may go for it. */
static bool
conn_room(struct sm_nic *nic, struct sm_qp *dct, struct sm_qp *last)
{
	/* Without loss DISCONNECT and the peer's end are known: there are as many as DCIs. */
	if (!nic->lossy || dct->dc.nconns < nic->attr.dct_conns)
		return true;
	if (nic->now - last->dc.at < IDLE_NS)
		return false;
	dct->dc.forgot = true;
	sm_dct_conn_free(nic, last);
	return true;
}

static struct sm_qp *
conn_make(struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer, uint32_t src)
{
	struct sm_qp *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->kind = dct->kind;
	c->state = IBV_QPS_RTR;
	c->dc.dct = dct;
	c->qpn = dct->qpn;
	c->from = dct->from;
	c->far = src;
	c->dest_qpn = src & SM_PSN_MASK;
	c->made = dct->made;
	c->attr.qp_access_flags = dct->attr.qp_access_flags;
	c->attr.min_rnr_timer = dct->attr.min_rnr_timer;
	c->attr.max_dest_rd_atomic = SM_RD_MAX;
	c->mtu_shift = dct->mtu_shift;
	c->headers = dct->headers;
	sm_peer_join(peer, c);
	LIST_INSERT_HEAD(&dct->dc.conns, c, dc.link);
	dct->dc.nconns++;
	return c;
}

/*
 * A CONNECT that the DCI sent before its last RESET, and that comes late. A DCI of another process,
 * which had its address before or has it now, differs in the upper bits.
 */
static bool
is_earlier(uint32_t life, uint32_t than)
{
	return (life ^ than) >> 16 == 0 && (int16_t)(life - than) < 0;
}

void
sm_dct_control(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h)
{
	struct sm_qp *dct = sm_qp_find(nic, h->dst & SM_PSN_MASK), *c, *last;
	bool connect = sm_pkt_type(h->head) == SM_PKT_CONNECT;

	if (!is_ready(dct) || ((h->src ^ dct->far) & SM_SRC_KIND) != 0) {
		if (connect)
			sm_peer_nak(peer, h, SM_NAK_LOST);
		return;
	}
	c = conn_find(dct, peer, h->src, &last);
	/* On a bad network what was sent before may come after. Only the connection knows which
	 * number is next, so it stays. */
	if (!connect && nic->lossy)
		return;
	/* With another key it is late, too, if the connection has what was sent since. */
	if (c != NULL && (is_earlier(h->imm, c->dc.life) ||
				 (h->imm == c->dc.life && h->raddr != dct->dc.key &&
					 sm_psn_diff(h->psn, c->resp.psn) < 0)))
		return;
	if (c != NULL && (!connect || c->dc.life != h->imm || h->raddr != dct->dc.key)) {
		sm_dct_conn_free(nic, c);
		c = NULL;
	}
	if (!connect)
		return;
	if (h->raddr != dct->dc.key) {
		sm_peer_nak(peer, h, SM_NAK_ACCESS);
		return;
	}
	if (c == NULL) {
		if (dct->dc.forgot && h->rkey >= OLD_S) { /* What it sends may have been done. */
			sm_peer_nak(peer, h, SM_NAK_OP);
			return;
		}
		c = conn_room(nic, dct, last) ? conn_make(nic, dct, peer, h->src) : NULL;
		if (c == NULL) {
			sm_peer_nak(peer, h, SM_NAK_LOST);
			return;
		}
		c->dc.life = h->imm;
		c->resp.psn = h->psn & SM_PSN_MASK;
	} else if (sm_psn_diff(h->psn, c->resp.psn) > 0) {
		c->resp.psn = h->psn & SM_PSN_MASK; /* Others got the messages between. */
		sm_recv_abandon(c);
	}
	c->dc.at = nic->now;
	c->n.rx.kind[SM_KIND_CONTROL]++;
	c->resp.refusing = false;
	c->resp.nak = 0;
}

bool
sm_dct_knows(struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer, const struct sm_hdr *h,
	uint32_t life)
{
	struct sm_qp *last, *c = conn_find(dct, peer, h->src, &last);

	if (c == NULL || c->dc.life == life)
		return true;
	if (!is_earlier(life, c->dc.life))
		sm_peer_nak(peer, h, SM_NAK_RECONNECT);
	return false;
}

struct sm_qp *
sm_dct_conn(struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer, const struct sm_hdr *h)
{
	bool ready = is_ready(dct);
	struct sm_qp *last, *c = ready ? conn_find(dct, peer, h->src, &last) : NULL;

	if (crpc_unlikely(c == NULL))
		sm_peer_nak(peer, h, ready ? SM_NAK_RECONNECT : SM_NAK_LOST);
	else
		c->dc.at = nic->now;
	return c;
}
