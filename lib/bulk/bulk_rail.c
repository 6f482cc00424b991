/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails: how control messages go, how one breaks without its connection, and how it comes back.
 * bulk_pvt.h has the picture.
 */
#include <stdlib.h>

#include "bulk_pvt.h"

/*
 * Each so many chunks go to the next rail whatever its rate, so that a slow one is measured again.
 */
#define PROBE_CHUNKS 64
/* A rail that does not last is tried again after twice the time, so many times. */
#define RETRY_DOUBLINGS 6u

int
__crpc_bulk_rails_init(struct crpc_bulk_conn *conn)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	uint32_t i, id;

	for (i = 0; i < conn->nrails; i++) {
		id = CRPC_BULK_USER_ID << 16 | conn->index << 3 | i;
		TAILQ_INIT(&conn->rail[i].sent);
		conn->rail[i].ep = crpc_copyrpc_ep_create(conf->port[i % conf->nports].ctx, id);
		if (conn->rail[i].ep == NULL)
			return -errno;
	}
	TAILQ_INIT(&conn->again);
	TAILQ_INIT(&conn->sent_free);
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
	uint32_t i;

	for (i = 0; i < conn->nrails; i++) {
		crpc_copyrpc_ep_free(conn->rail[i].ep);
		conn->rail[i].ep = NULL;
	}
	free(conn->sent);
	conn->sent = NULL;
}

void
__crpc_bulk_rails_up(struct crpc_bulk_conn *conn)
{
	uint32_t i;

	for (i = 0; i < conn->nrails; i++) {
		conn->rail[i] = (struct bulk_rail){
				.ep = conn->rail[i].ep, .life = 1};
		TAILQ_INIT(&conn->rail[i].sent);
	}
	conn->lead = 0;
	conn->nup = conn->nrails;
	conn->nclosing = 0;
	conn->nagain = 0;
	TAILQ_INIT(&conn->again);
	TAILQ_INIT(&conn->sent_free);
	for (i = 0; conn->sent != NULL && i < conn->nsent; i++)
		TAILQ_INSERT_TAIL(&conn->sent_free, &conn->sent[i], link);
	conn->nsent_free = conn->sent != NULL ? conn->nsent : 0;
}

/* ---- which rail ---- */

/* Where it is expected to be done first; a rail that was never measured counts as the best. */
uint32_t
__crpc_bulk_rail_choose(struct crpc_bulk_conn *conn, uint32_t len)
{
	uint32_t i, chosen = NONE, probe;
	double best = 0, t, fastest = 0;

	if (conn->nup == 1)
		return conn->lead;
	probe = (uint32_t)(++conn->posts / PROBE_CHUNKS % conn->nrails);
	if (conn->posts % PROBE_CHUNKS == 0 && conn->rail[probe].state == RAIL_UP)
		return probe;
	for (i = 0; i < conn->nrails; i++)
		fastest = conn->rail[i].rate > fastest ? conn->rail[i].rate : fastest;
	for (i = 0; i < conn->nrails; i++) {
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

int
crpc_bulk_rail_get(const struct crpc_bulk_conn *conn, uint32_t index, struct crpc_bulk_rail *rail)
{
	static const enum crpc_bulk_rail_state states[] = {
			[RAIL_UP] = CRPC_BULK_RAIL_UP,
			[RAIL_CLOSING] = CRPC_BULK_RAIL_CLOSING,
			[RAIL_DOWN] = CRPC_BULK_RAIL_DOWN,
			[RAIL_MEETING] = CRPC_BULK_RAIL_COMING,
			[RAIL_JOINED] = CRPC_BULK_RAIL_COMING};

	if (index >= conn->nrails)
		return -ENOENT;
	*rail = (struct crpc_bulk_rail){
			.state = conn->err == 0 ? states[conn->rail[index].state]
						: CRPC_BULK_RAIL_DOWN,
			.life = conn->rail[index].life,
			.under_way = conn->rail[index].under_way,
			.rate = conn->rail[index].rate};
	return 0;
}

/* ---- messages ---- */

static void
sent_give(struct crpc_bulk_conn *conn, struct bulk_sents *list, struct bulk_sent *sent)
{
	TAILQ_REMOVE(list, sent, link);
	TAILQ_INSERT_HEAD(&conn->sent_free, sent, link);
	conn->nsent_free++;
}

/* Forget what the peer has released. */
static void
sent_trim(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	struct crpc_copyrpc_positions pos;
	struct bulk_sent *sent;

	if (TAILQ_EMPTY(&rail->sent))
		return;
	crpc_copyrpc_ep_positions(rail->ep, &pos);
	while ((sent = TAILQ_FIRST(&rail->sent)) != NULL &&
			(int64_t)(pos.requests_released_by_peer - sent->end) >= 0) {
		rail->nknown = sent->number;
		sent_give(conn, &rail->sent, sent);
	}
}

/* A free one; NULL: the peer has released none. */
static struct bulk_sent *
sent_get(struct crpc_bulk_conn *conn)
{
	uint32_t i;

	for (i = 0; i < conn->nrails && conn->nsent_free == 0; i++) {
		if (conn->rail[i].state == RAIL_UP)
			sent_trim(conn, &conn->rail[i]);
	}
	return TAILQ_FIRST(&conn->sent_free);
}

/* The last message of a rail. */
static void
sent_note(struct crpc_bulk_conn *conn, uint32_t rail, struct bulk_sent *sent)
{
	struct bulk_rail *r = &conn->rail[rail];
	struct crpc_copyrpc_positions pos;

	crpc_copyrpc_ep_positions(r->ep, &pos);
	sent->number = r->nsent;
	sent->end = pos.requests_queued;
	TAILQ_INSERT_TAIL(&r->sent, sent, link);
}

/* 0, or -EAGAIN: not now, or the rail or the connection broke. */
static int
rail_send(struct crpc_bulk_conn *conn, uint32_t rail, const void *msg, uint32_t len)
{
	int rc = crpc_copyrpc_send(conn->rail[rail].ep, conn->b->now, msg, len);

	if (rc == 0) {
		conn->rail[rail].nsent++;
		conn->b->stats.messages++;
	} else if (rc != -EAGAIN) {
		__crpc_bulk_rail_break(conn, rail, rc);
	}
	return rc == 0 ? 0 : -EAGAIN;
}

/* Send a new message, and keep it if there are other rails that it might have to go by. */
static bool
msg_new(struct crpc_bulk_conn *conn, uint32_t rail, struct bulk_op *op, const void *msg,
		uint32_t len)
{
	struct bulk_sent *sent = NULL;

	if (conn->sent != NULL) {
		sent = sent_get(conn);
		if (sent == NULL)
			return false;
	}
	if (rail_send(conn, rail, msg, len) != 0)
		return false;
	if (sent == NULL)
		return true;
	TAILQ_REMOVE(&conn->sent_free, sent, link);
	conn->nsent_free--;
	memcpy(&sent->msg, msg, len);
	sent->op = op;
	sent->turn = op != NULL ? op->turn : 0;
	sent_note(conn, rail, sent);
	return true;
}

/* Nothing new before what goes again, and nothing at all while a rail is closing. */
static bool
msg_may(const struct crpc_bulk_conn *conn)
{
	return conn->err == 0 && conn->nclosing == 0 && TAILQ_EMPTY(&conn->again);
}

bool
__crpc_bulk_msg(struct crpc_bulk_conn *conn, const void *msg, uint32_t len)
{
	return msg_may(conn) && msg_new(conn, conn->lead, NULL, msg, len);
}

bool
__crpc_bulk_data_msg(struct crpc_bulk_conn *conn, struct bulk_op *op, const void *msg, uint32_t len)
{
	return msg_may(conn) && msg_new(conn, op->rail, op, msg, len);
}

/* What was lost with a rail goes first, in its old order. */
static void
again_send(struct crpc_bulk_conn *conn)
{
	struct bulk_sent *sent;

	while (conn->err == 0 && conn->nclosing == 0 &&
			(sent = TAILQ_FIRST(&conn->again)) != NULL) {
		if (rail_send(conn, conn->lead, &sent->msg, sent->msg.head.len) != 0)
			return;
		TAILQ_REMOVE(&conn->again, sent, link);
		sent_note(conn, conn->lead, sent);
		conn->b->stats.messages_again++;
	}
}

/* ---- a rail breaks ---- */

void
__crpc_bulk_rail_break(struct crpc_bulk_conn *conn, uint32_t i, int status)
{
	struct bulk_rail *rail = &conn->rail[i];
	bool up = rail->state == RAIL_UP;
	uint32_t k;

	if (conn->err != 0 || rail->state == RAIL_CLOSING || rail->state == RAIL_DOWN)
		return;
	crpc_err("connection %u to peer %u: rail %u of %u broke (%d)%s", conn->index, conn->user_id,
			i, conn->nrails, status,
			status == -EPROTO || (up && conn->nup == 1) ? ""
								    : "; the others take over");
	if (status == -EPROTO || (up && conn->nup == 1)) {
		__crpc_bulk_conn_break(conn, status == -EPROTO ? status : -ECONNRESET);
		return;
	}
	conn->nup -= up;
	conn->nclosing++;
	rail->state = RAIL_CLOSING;
	rail->gone = rail->heard = false;
	rail->down_life = rail->life;
	rail->down_taken = rail->ntaken;
	rail->down_via = NONE;
	for (k = 0; k < conn->nrails; k++) {
		if (conn->rail[k].down_via == i && conn->rail[k].down_life != 0)
			conn->rail[k].down_via = NONE;
	}
	rail->since_ns = conn->b->now;
	rail->fails++;
	crpc_copyrpc_ep_shutdown(rail->ep);
	if (conn->unfinished != NULL && conn->unfinished->rail == i)
		conn->unfinished = NULL;
	while (conn->rail[conn->lead].state != RAIL_UP)
		conn->lead = (conn->lead + 1) % conn->nrails;
	conn->b->stats.rails_broken++;
}

/* Nothing of it happens any more, at both ends: what it had goes again. */
static void
rail_down(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	struct bulk_sent *sent, *next;

	while ((sent = TAILQ_FIRST(&rail->sent)) != NULL && sent->number <= rail->nknown)
		sent_give(conn, &rail->sent, sent);
	for (sent = TAILQ_FIRST(&rail->sent); sent != NULL; sent = next) {
		next = TAILQ_NEXT(sent, link);
		/* of a chunk that is posted again, DATA is made anew */
		if (sent->op == NULL || sent->op->req == NULL || sent->op->turn != sent->turn)
			continue;
		if (!__crpc_bulk_op_unannounce(conn, sent->op))
			return;
		sent_give(conn, &rail->sent, sent);
	}
	TAILQ_CONCAT(&rail->sent, &conn->again, link);
	TAILQ_CONCAT(&conn->again, &rail->sent, link);
	__crpc_bulk_ops_again(conn, i);
	rail->state = RAIL_DOWN;
	rail->since_ns = conn->b->now;
	conn->nclosing--;
}

static void
down_tell(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	struct bulk_wire_rail msg = {.head = bulk_wire_head(BULK_RAIL_DOWN, sizeof(msg), 0),
			.rail = i,
			.life = rail->down_life,
			.taken = rail->down_taken};
	uint32_t via = conn->lead;

	if (rail_send(conn, via, &msg, sizeof(msg)) == 0)
		rail->down_via = via;
}

static void
closing_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];

	/* any answer but -EBUSY comes after the queue pair was destroyed */
	if (!rail->gone)
		rail->gone = crpc_copyrpc_ep_reset(rail->ep) != -EBUSY;
	if (rail->gone && rail->down_via == NONE)
		down_tell(conn, i);
	if (conn->err != 0)
		return;
	if (rail->gone && rail->down_via != NONE && rail->heard) {
		rail_down(conn, i);
	} else if (conn->b->now - rail->since_ns > conn->b->conf.confirm_ns) {
		crpc_err("connection %u to peer %u: the peer did not confirm the end of rail %u in "
			 "%llu ns", conn->index, conn->user_id, i,
				(unsigned long long)conn->b->conf.confirm_ns);
		__crpc_bulk_conn_break(conn, -ETIMEDOUT);
	}
}

/* ---- a rail comes back ---- */

static void
rail_meet(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	rail->state = RAIL_MEETING;
	rail->told = false;
	rail->heard = rail->invited;
	rail->invited = false;
	rail->life++;
	rail->since_ns = conn->b->now;
	rail->nsent = rail->ntaken = rail->nknown = 0;
}

static bool
addr_tell(struct crpc_bulk_conn *conn, uint32_t i)
{
	const struct bulk_rail *rail = &conn->rail[i];
	struct bulk_wire_rail_addr msg = {
			.head = bulk_wire_head(BULK_RAIL_ADDR, sizeof(msg), 0),
			.rail = i,
			.life = rail->life};

	crpc_copyrpc_ep_addr(rail->ep, msg.addr);
	return msg_may(conn) && msg_new(conn, conn->lead, NULL, &msg, sizeof(msg));
}

static bool
ready_tell(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_wire_rail msg = {.head = bulk_wire_head(BULK_RAIL_READY, sizeof(msg), 0),
			.rail = i,
			.life = conn->rail[i].life};

	return msg_may(conn) && msg_new(conn, conn->lead, NULL, &msg, sizeof(msg));
}

static void
down_turn(struct crpc_bulk_conn *conn, struct bulk_rail *rail)
{
	uint64_t retry = conn->b->conf.rail_retry_ns, since = conn->b->now - rail->since_ns;
	bool wait = retry == UINT64_MAX ||
		    since < retry << crpc_min(rail->fails, RETRY_DOUBLINGS);

	/* An invitation is followed sooner, but each costs a queue pair: not at the peer's pace. */
	if (rail->invited)
		wait = retry != UINT64_MAX && since < retry;
	if (wait)
		return;
	/* after a reset that failed there is no queue pair: try once more */
	if (crpc_copyrpc_ep_reset(rail->ep) == 0)
		rail_meet(conn, rail);
	else
		rail->since_ns = conn->b->now;
}

static void
meeting_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	int rc;

	if (!rail->told)
		rail->told = addr_tell(conn, i);
	if (!rail->told || !rail->heard)
		return;
	rc = crpc_copyrpc_ep_connect(rail->ep, rail->addr);
	rail->state = RAIL_JOINED;
	rail->told = rail->heard = false;
	if (rc != 0)
		__crpc_bulk_rail_break(conn, i, -ECONNRESET);
}

static void
joined_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];

	if (!rail->told)
		rail->told = ready_tell(conn, i);
	if (!rail->told || !rail->heard || conn->err != 0 || rail->state != RAIL_JOINED)
		return;
	crpc_notice("connection %u to peer %u: rail %u of %u is back", conn->index, conn->user_id,
			i, conn->nrails);
	rail->state = RAIL_UP;
	rail->since_ns = conn->b->now;
	rail->rate = 0;
	conn->nup++;
	conn->b->stats.rails_back++;
}

static void
rail_turn(struct crpc_bulk_conn *conn, uint32_t i)
{
	struct bulk_rail *rail = &conn->rail[i];
	int rc;

	if (rail->state == RAIL_UP || rail->state == RAIL_JOINED) {
		rc = crpc_copyrpc_ep_status(rail->ep);
		if (rc != 0)
			__crpc_bulk_rail_break(conn, i, rc);
	}
	/* the news of its last life was lost with the rail that it went by */
	if (rail->down_via == NONE && rail->down_life != 0 && rail->state != RAIL_CLOSING &&
			conn->err == 0)
		down_tell(conn, i);
	if (rail->state == RAIL_UP || conn->err != 0)
		return;
	if (rail->state == RAIL_CLOSING)
		closing_turn(conn, i);
	else if (rail->state == RAIL_DOWN)
		down_turn(conn, rail);
	else if (rail->state == RAIL_MEETING)
		meeting_turn(conn, i);
	else
		joined_turn(conn, i);
}

void
__crpc_bulk_rails_turn(struct crpc_bulk_conn *conn)
{
	uint32_t i;

	for (i = 0; i < conn->nrails && conn->err == 0; i++)
		rail_turn(conn, i);
	if (!TAILQ_EMPTY(&conn->again))
		again_send(conn);
}

/* ---- what the peer says ---- */

static void
down_take(struct crpc_bulk_conn *conn, const struct bulk_wire_rail *msg)
{
	struct bulk_rail *rail = &conn->rail[msg->rail];

	if (msg->life > rail->life || msg->life == 0) {
		__crpc_bulk_proto(conn, "the life of a rail that is down", msg->rail, msg->life,
				rail->life);
		return;
	}
	/* told before, and sent anew as that might have been lost */
	if (msg->life < rail->life || rail->state == RAIL_DOWN ||
			(rail->state == RAIL_CLOSING && rail->heard))
		return;
	if (msg->taken > rail->nsent || msg->taken < rail->nknown) {
		__crpc_bulk_proto(conn, "the messages taken from a rail", msg->rail, msg->taken,
				rail->nsent);
		return;
	}
	__crpc_bulk_rail_break(conn, msg->rail, -ECONNRESET);
	if (conn->err != 0)
		return;
	rail->heard = true;
	rail->nknown = msg->taken;
}

/* News of a life that has ended by now: RAIL_DOWN may pass the others on another rail. */
static bool
life_ended(const struct bulk_rail *rail, uint32_t life)
{
	return life < rail->life || (life == rail->life && (rail->state == RAIL_CLOSING ||
								     rail->state == RAIL_DOWN));
}

static void
addr_take(struct crpc_bulk_conn *conn, const struct bulk_wire_rail_addr *msg)
{
	struct bulk_rail *rail = &conn->rail[msg->rail];

	if (rail->state == RAIL_DOWN && msg->life == rail->life + 1 && !rail->invited) {
		memcpy(rail->addr, msg->addr, sizeof(rail->addr));
		rail->invited = true;
		return;
	}
	if (life_ended(rail, msg->life))
		return;
	if (msg->life != rail->life || rail->state != RAIL_MEETING || rail->heard) {
		__crpc_bulk_proto(conn, "the life of a rail's address", msg->rail, msg->life,
				rail->life);
		return;
	}
	memcpy(rail->addr, msg->addr, sizeof(rail->addr));
	rail->heard = true;
}

static void
ready_take(struct crpc_bulk_conn *conn, const struct bulk_wire_rail *msg)
{
	struct bulk_rail *rail = &conn->rail[msg->rail];

	if (life_ended(rail, msg->life))
		return;
	if (msg->life != rail->life || rail->state != RAIL_JOINED || rail->heard) {
		__crpc_bulk_proto(conn, "the life of a rail that is ready", msg->rail, msg->life,
				rail->life);
		return;
	}
	rail->heard = true;
}

void
__crpc_bulk_rail_take(struct crpc_bulk_conn *conn, const union bulk_wire *msg)
{
	if (msg->rail.rail >= conn->nrails || conn->nrails == 1) {
		__crpc_bulk_proto(conn, "the number of a rail", 0, msg->rail.rail, conn->nrails);
		return;
	}
	if (msg->head.type == BULK_RAIL_DOWN)
		down_take(conn, &msg->rail);
	else if (msg->head.type == BULK_RAIL_ADDR)
		addr_take(conn, &msg->rail_addr);
	else
		ready_take(conn, &msg->rail);
	/* at once: what the peer says next may depend on it */
	if (conn->err == 0)
		rail_turn(conn, msg->rail.rail);
}
