/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails; bulk_rail.h has the drawing of their states.
 */
#include <stdlib.h>

#include "bulk_conn.h"

/* Each so many chunks go to the next rail whatever its rate: a slow one is measured again. */
#define PROBE_CHUNKS 64
/* A rail that does not last is tried again after twice the time, so many times. */
#define RETRY_DOUBLINGS 6u

static bool
rail_closing(enum rail_state state)
{
	return state == RAIL_BREAKING || state == RAIL_LEAVING;
}

/* Enter the next state, which only those of the drawing precede. */
static void
rail_enter(struct crpc_bulk_conn *conn, struct bulk_rail *rail, enum rail_state state)
{
#ifdef CRPC_DEBUG
	static const uint8_t from[] = {[RAIL_UP] = 1 << RAIL_JOINING,
		[RAIL_BREAKING] = 1 << RAIL_UP | 1 << RAIL_MEETING | 1 << RAIL_JOINING,
		[RAIL_LEAVING] = 1 << RAIL_BREAKING,
		[RAIL_DOWN] = 1 << RAIL_LEAVING,
		[RAIL_MEETING] = 1 << RAIL_DOWN,
		[RAIL_JOINING] = 1 << RAIL_MEETING};

	if ((from[state] >> rail->state & 1) == 0)
		__builtin_trap();
#endif
	conn->nup += (state == RAIL_UP) - (rail->state == RAIL_UP);
	conn->nclosing += rail_closing(state) - rail_closing(rail->state);
	if (state != RAIL_LEAVING && state != RAIL_MEETING)
		rail->received = false;
	rail->sent = false;
	rail->state = state;
	if (state != RAIL_LEAVING)
		rail->since_ns = conn->b->now;
}

static struct crpc_copyrpc_ep *
rdma_create(struct crpc_bulk_conn *conn, uint32_t rail)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct crpc_copyrpc_ep *ep = crpc_copyrpc_ep_create(conf->port[rail % conf->nports].ctx,
		CRPC_BULK_USER_ID << 16 | conn->index << 3 | rail);

	if (ep != NULL)
		conn->bytes += crpc_copyrpc_ep_memory(ep);
	return ep;
}

static int
rdma_send(struct crpc_bulk_conn *conn, struct crpc_copyrpc_ep *ep, struct bulk_op *op,
	const struct bulk_wire_head *msg)
{
	return crpc_copyrpc_notify(ep, conn->b->now, msg, msg->len);
}

const struct bulk_link __crpc_bulk_rdma = {
	.create = rdma_create,
	.free = crpc_copyrpc_ep_free,
	.addr = crpc_copyrpc_ep_addr,
	.connect = crpc_copyrpc_ep_connect,
	.status = crpc_copyrpc_ep_status,
	.shutdown = crpc_copyrpc_ep_shutdown,
	.reset = crpc_copyrpc_ep_reset,
	.send = rdma_send,
	.positions = crpc_copyrpc_ep_positions,
};

int
__crpc_bulk_rails_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;

	for (uint32_t i = 0; i < conn->nrails; i++) {
		conn->rail[i].ep = conn->b->link->create(conn, i);
		if (conn->rail[i].ep == NULL)
			return -errno;
	}
	if (conn->nrails == 1)
		return 0;
	conn->nsent = conf->tx_chunks + conf->slots + 64;
	conn->sent = calloc(conn->nsent, sizeof(*conn->sent));
	conn->bytes += conn->nsent * sizeof(*conn->sent);
	return conn->sent != NULL ? 0 : -ENOMEM;
}

void
__crpc_bulk_rails_fini(struct crpc_bulk_conn *conn)
{
	for (uint32_t i = 0; i < conn->nrails; i++) {
		conn->b->link->free(conn->rail[i].ep);
		conn->rail[i].ep = NULL;
	}
	free(conn->sent);
	conn->sent = NULL;
}

void
__crpc_bulk_rails_up(struct crpc_bulk_conn *conn)
{
	for (uint32_t i = 0; i < conn->nrails; i++) {
		conn->rail[i] = (struct bulk_rail){.ep = conn->rail[i].ep, .life = 1};
		TAILQ_INIT(&conn->rail[i].kept);
	}
	conn->lead = 0;
	conn->nup = conn->nrails;
	conn->nclosing = 0;
	TAILQ_INIT(&conn->again);
	TAILQ_INIT(&conn->sent_free);
	for (uint32_t i = 0; conn->sent != NULL && i < conn->nsent; i++)
		TAILQ_INSERT_TAIL(&conn->sent_free, &conn->sent[i], link);
}

/* ---- which rail ---- */

/* Where it is expected to be done first; a rail that was never measured counts as the best. */
uint32_t
__crpc_bulk_rail_choose(struct crpc_bulk_conn *conn, uint32_t len)
{
	uint32_t chosen = NONE, probe;
	double best = 0, t, fastest = 0;

	if (conn->nup == 1)
		return conn->lead;
	probe = (uint32_t)(++conn->tx.posts / PROBE_CHUNKS % conn->nrails);
	if (conn->tx.posts % PROBE_CHUNKS == 0 && conn->rail[probe].state == RAIL_UP)
		return probe;
	for (uint32_t i = 0; i < conn->nrails; i++)
		fastest = conn->rail[i].rate > fastest ? conn->rail[i].rate : fastest;
	for (uint32_t i = 0; i < conn->nrails; i++) {
		if (conn->rail[i].state != RAIL_UP)
			continue;
		t = (double)(conn->rail[i].under_way + len);
		if (conn->rail[i].rate > 0)
			t *= fastest / conn->rail[i].rate;
		if (chosen == NONE || t < best) {
			best = t;
			chosen = i;
		}
	}
	return chosen;
}

void
__crpc_bulk_rail_load(struct crpc_bulk_conn *conn, uint32_t i, uint32_t len)
{
	struct bulk_rail *rail = &conn->rail[i];

	if (rail->under_way == 0) {
		rail->acc = 0;
		rail->acc_ns = bulk_clock(conn->b);
	}
	rail->under_way += len;
}

/* The rate: of bytes completed since the rail became busy, or since the last time. */
void
__crpc_bulk_rail_unload(struct crpc_bulk_conn *conn, uint32_t i, uint32_t len, bool done)
{
	struct bulk_rail *rail = &conn->rail[i];
	uint64_t now;
	double rate;

	rail->under_way -= len;
	if (!done)
		return;
	rail->fails = 0;
	rail->acc += len;
	conn->b->stats.rail_bytes[i] += len;
	now = bulk_clock(conn->b);
	if (now <= rail->acc_ns)
		return;
	rate = (double)rail->acc / (double)(now - rail->acc_ns);
	rail->rate = rail->rate > 0 ? rail->rate + (rate - rail->rate) / 8 : rate;
	rail->acc = 0;
	rail->acc_ns = now;
}

/* ---- messages ---- */

static void
kept_free(struct crpc_bulk_conn *conn, struct bulk_rail *rail, struct bulk_sent *sent)
{
	TAILQ_REMOVE(&rail->kept, sent, link);
	TAILQ_INSERT_HEAD(&conn->sent_free, sent, link);
}

/* Forget what the peer has released. */
static void
kept_trim(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	struct crpc_copyrpc_positions pos;
	struct bulk_sent *sent;

	if (TAILQ_EMPTY(&rail->kept))
		return;
	conn->b->link->positions(rail->ep, &pos);
	while ((sent = TAILQ_FIRST(&rail->kept)) != NULL &&
		(int64_t)(pos.requests_released_by_peer - sent->end) >= 0) {
		rail->nknown = sent->number;
		kept_free(conn, rail, sent);
	}
}

/* Keep a message, the last one of a rail. */
static void
kept_add(struct crpc_bulk_conn *conn, struct bulk_rail *rail, struct bulk_sents *from,
	struct bulk_sent *sent)
{
	struct crpc_copyrpc_positions pos;

	TAILQ_REMOVE(from, sent, link);
	conn->b->link->positions(rail->ep, &pos);
	sent->number = rail->nsent;
	sent->end = pos.requests_queued;
	TAILQ_INSERT_TAIL(&rail->kept, sent, link);
}

/* False: not now, or the rail or the connection broke. */
static bool
rail_send(struct crpc_bulk_conn *conn, uint32_t rail, struct bulk_op *op,
	const struct bulk_wire_head *msg)
{
	int rc = conn->b->link->send(conn, conn->rail[rail].ep, op, msg);

	if (rc == 0) {
		conn->rail[rail].nsent++;
		conn->b->stats.messages++;
	} else if (rc != -EAGAIN) {
		__crpc_bulk_rail_break(conn, rail, rc);
	}
	return rc == 0;
}

bool
__crpc_bulk_msg(struct crpc_bulk_conn *conn, struct bulk_op *op, const struct bulk_wire_head *msg)
{
	uint32_t rail = op != NULL ? op->rail : conn->lead;
	struct bulk_sent *sent;

	/* nothing new before what is sent again, and nothing at all while a rail is closing */
	if (conn->err != 0 || conn->nclosing != 0 || !TAILQ_EMPTY(&conn->again))
		return false;
	/* kept if there are other rails that it might have to go by */
	for (uint32_t i = 0;
		i < conn->nrails && conn->sent != NULL && TAILQ_EMPTY(&conn->sent_free); i++) {
		if (conn->rail[i].state == RAIL_UP)
			kept_trim(conn, &conn->rail[i]);
	}
	sent = TAILQ_FIRST(&conn->sent_free);
	if ((conn->sent != NULL && sent == NULL) || !rail_send(conn, rail, op, msg))
		return false;
	if (sent == NULL)
		return true;
	memcpy(&sent->msg, msg, msg->len);
	sent->op = op;
	sent->turn = op != NULL ? op->turn : 0;
	kept_add(conn, &conn->rail[rail], &conn->sent_free, sent);
	return true;
}

/* What was lost with a rail goes first, in its old order. */
static void
again_send(struct crpc_bulk_conn *conn)
{
	struct bulk_sent *sent;

	while (conn->err == 0 && conn->nclosing == 0 &&
		(sent = TAILQ_FIRST(&conn->again)) != NULL) {
		if (!rail_send(conn, conn->lead, NULL, &sent->msg.head))
			return;
		kept_add(conn, &conn->rail[conn->lead], &conn->again, sent);
		conn->b->stats.messages_again++;
	}
}

/* ---- a rail breaks ---- */

void
__crpc_bulk_rails_break(struct crpc_bulk_conn *conn)
{
	for (uint32_t i = 0; i < conn->nrails; i++) {
		conn->rail[i].state = RAIL_BREAKING;
		conn->b->link->shutdown(conn->rail[i].ep);
	}
}

/* Destroy the queue pair; any answer but -EBUSY means that this was done. */
static bool
rail_destroy(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	if (rail->state == RAIL_BREAKING && conn->b->link->reset(rail->ep) != -EBUSY)
		rail_enter(conn, rail, RAIL_LEAVING);
	return rail->state != RAIL_BREAKING;
}

bool
__crpc_bulk_rails_destroy(struct crpc_bulk_conn *conn)
{
	bool all = true;

	for (uint32_t i = 0; i < conn->nrails; i++)
		all = rail_destroy(conn, &conn->rail[i]) && all;
	return all;
}

void
__crpc_bulk_rail_break(struct crpc_bulk_conn *conn, uint32_t i, int status)
{
	struct bulk_rail *rail = &conn->rail[i];
	bool last = status == -EPROTO || (rail->state == RAIL_UP && conn->nup == 1);

	if (conn->err != 0 || rail_closing(rail->state) || rail->state == RAIL_DOWN)
		return;
	crpc_err("connection %u to peer %u: rail %u of %u broke (%d)%s", conn->index, conn->user_id,
		i, conn->nrails, status, last ? "" : "; the others take over");
	if (last) {
		__crpc_bulk_conn_break(conn, status == -EPROTO ? status : -ECONNRESET);
		return;
	}
	rail_enter(conn, rail, RAIL_BREAKING);
	rail->down.life = rail->life;
	rail->down.taken = rail->ntaken;
	rail->down.via = NONE;
	for (uint32_t k = 0; k < conn->nrails; k++)
		if (conn->rail[k].down.via == i)
			conn->rail[k].down.via = NONE;
	rail->fails++;
	conn->b->link->shutdown(rail->ep);
	if (conn->tx.unfinished != NULL && conn->tx.unfinished->rail == i)
		conn->tx.unfinished = NULL;
	while (conn->rail[conn->lead].state != RAIL_UP)
		conn->lead = (conn->lead + 1) % conn->nrails;
	conn->b->stats.rails_broken++;
}

static void
down_send(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	struct bulk_wire_rail msg = {.head = bulk_wire_head(BULK_RAIL_DOWN, sizeof(msg), 0),
		.rail = i,
		.life = rail->down.life,
		.taken = rail->down.taken};
	uint32_t via = conn->lead;

	if (rail_send(conn, via, NULL, &msg.head))
		rail->down.via = via;
}

/* Neither end can do anything on it any more: what it carried is sent again. */
static void
rail_down(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	struct bulk_sent *sent, *next;

	while ((sent = TAILQ_FIRST(&rail->kept)) != NULL && sent->number <= rail->nknown)
		kept_free(conn, rail, sent);
	for (sent = TAILQ_FIRST(&rail->kept); sent != NULL; sent = next) {
		next = TAILQ_NEXT(sent, link);
		/* of a chunk that is posted again, DATA is made again */
		if (sent->op == NULL || sent->op->req == NULL || sent->op->turn != sent->turn)
			continue;
		if (!__crpc_bulk_op_unannounce(conn, sent->op))
			return;
		kept_free(conn, rail, sent);
	}
	TAILQ_CONCAT(&rail->kept, &conn->again, link);
	TAILQ_CONCAT(&conn->again, &rail->kept, link);
	__crpc_bulk_ops_again(conn, i);
	rail_enter(conn, rail, RAIL_DOWN);
}

static void
closing_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];

	if (rail->state == RAIL_LEAVING && rail->down.via != NONE && rail->received) {
		rail_down(conn, i);
	} else if (conn->b->now - rail->since_ns > conn->b->conf.confirm_ns) {
		crpc_err("connection %u to peer %u: the peer did not confirm the end of rail %u in "
			 "%llu ns",
			conn->index, conn->user_id, i,
			(unsigned long long)conn->b->conf.confirm_ns);
		__crpc_bulk_conn_break(conn, -ETIMEDOUT);
	}
}

/* ---- a rail returns ---- */

static void
down_turn(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	uint64_t retry = conn->b->conf.rail_retry_ns, since = conn->b->now - rail->since_ns;
	/* An invitation is followed sooner, but each costs a queue pair: not at the peer's pace. */
	uint32_t doublings = rail->received ? 0 : crpc_min(rail->fails, RETRY_DOUBLINGS);

	if (retry == UINT64_MAX || since >> doublings < retry)
		return;
	/* after a reset that failed there is no queue pair: try once more */
	if (conn->b->link->reset(rail->ep) != 0) {
		rail->since_ns = conn->b->now;
		return;
	}
	rail_enter(conn, rail, RAIL_MEETING);
	rail->life++;
	rail->nsent = rail->ntaken = rail->nknown = 0;
}

/* Our message of the exchange. */
static bool
exchange_send(struct crpc_bulk_conn *conn, uint32_t i)
{
	const struct bulk_rail *rail = &conn->rail[i];
	union bulk_wire msg = {.rail = {.rail = i, .life = rail->life}};

	msg.head = bulk_wire_head(BULK_RAIL_READY, sizeof(msg.rail), 0);
	if (rail->state == RAIL_MEETING) {
		msg.head = bulk_wire_head(BULK_RAIL_ADDR, sizeof(msg.rail_addr), 0);
		conn->b->link->addr(rail->ep, msg.rail_addr.addr);
	}
	return __crpc_bulk_msg(conn, NULL, &msg.head);
}

static void
exchange_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	int rc;

	if (!rail->sent)
		rail->sent = exchange_send(conn, i);
	if (!rail->sent || !rail->received || conn->err != 0)
		return;
	if (rail->state == RAIL_MEETING) {
		rc = conn->b->link->connect(rail->ep, rail->addr);
		rail_enter(conn, rail, RAIL_JOINING);
		if (rc != 0)
			__crpc_bulk_rail_break(conn, i, -ECONNRESET);
		return;
	}
	crpc_notice("connection %u to peer %u: rail %u of %u is back", conn->index, conn->user_id,
		i, conn->nrails);
	rail_enter(conn, rail, RAIL_UP);
	rail->rate = 0;
	conn->b->stats.rails_back++;
}

static void
rail_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	int rc;

	if (rail_takes(rail)) {
		rc = conn->b->link->status(rail->ep);
		if (rc != 0)
			__crpc_bulk_rail_break(conn, i, rc);
	}
	if (conn->err == 0 && rail_destroy(conn, rail) && rail->down.life != 0 &&
		rail->down.via == NONE)
		down_send(conn, i);
	if (conn->err != 0)
		return;
	if (rail_closing(rail->state))
		closing_turn(conn, i);
	else if (rail->state == RAIL_DOWN)
		down_turn(conn, rail);
	else if (rail->state != RAIL_UP)
		exchange_turn(conn, i);
}

void
__crpc_bulk_rails_turn(struct crpc_bulk_conn *conn)
{
	for (uint32_t i = 0; i < conn->nrails && conn->err == 0; i++)
		rail_turn(conn, i);
	if (!TAILQ_EMPTY(&conn->again))
		again_send(conn);
}

/* ---- messages of the peer ---- */

static bool
down_take(struct crpc_bulk_conn *conn, const struct bulk_wire_rail *msg)
{
	struct bulk_rail *rail = &conn->rail[msg->rail];

	if (msg->life > rail->life || msg->life == 0)
		return __crpc_bulk_proto(
			conn, "the life of a rail that is down", msg->rail, msg->life, rail->life);
	/* it was received before */
	if (msg->life < rail->life || rail->state == RAIL_DOWN ||
		(rail_closing(rail->state) && rail->received))
		return true;
	if (msg->taken > rail->nsent || msg->taken < rail->nknown)
		return __crpc_bulk_proto(
			conn, "the messages taken from a rail", msg->rail, msg->taken, rail->nsent);
	__crpc_bulk_rail_break(conn, msg->rail, -ECONNRESET);
	rail->received = true;
	rail->nknown = msg->taken;
	return conn->err == 0;
}

/* ADDR and READY. */
static bool
exchange_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	struct bulk_rail *rail = &conn->rail[msg->rail.rail];
	enum rail_state state = msg->head.type == BULK_RAIL_ADDR ? RAIL_MEETING : RAIL_JOINING;
	bool down = rail_closing(rail->state) || rail->state == RAIL_DOWN;
	uint32_t life = msg->rail.life;
	bool invites = rail->state == RAIL_DOWN && state == RAIL_MEETING && life == rail->life + 1;

	/* of a life that has ended: RAIL_DOWN may overtake others on another rail */
	if (life < rail->life || (life == rail->life && down))
		return true;
	if (rail->received || (!invites && (life != rail->life || rail->state != state)))
		return __crpc_bulk_proto(
			conn, "the life of a rail that joins", msg->rail.rail, life, rail->life);
	rail->received = true;
	if (state == RAIL_MEETING)
		memcpy(rail->addr, msg->rail_addr.addr, sizeof(rail->addr));
	return true;
}

bool
__crpc_bulk_rail_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	if (msg->rail.rail >= conn->nrails || conn->nrails == 1)
		return __crpc_bulk_proto(
			conn, "the number of a rail", 0, msg->rail.rail, conn->nrails);
	if (msg->head.type == BULK_RAIL_DOWN ? !down_take(conn, &msg->rail)
					     : !exchange_take(conn, msg))
		return false;
	/* at once: the peer's next message may depend on it */
	rail_turn(conn, msg->rail.rail);
	return conn->err == 0;
}
