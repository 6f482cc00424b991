/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Seeded scenarios: random sizes of everything, random messages in both directions, of every path,
 * canceled at random, with chunks that the user consumes late, with connections that break, and
 * with rails that break and come back while others are left, which no request may notice. At every
 * step the auditor holds; at the end every request has ended, the pools are full, and what ended
 * with success has the right content. A failure prints its seed.
 */
#include <stdio.h>

#include "test.h"
#include "bulk_rig.h"

#define SEEDS    20
#define MESSAGES 40
#define LEN_MAX  200000u

struct msg {
	uint8_t *buf;
	uint64_t req;
	uint32_t len, tag;
	bool recv, ended;
	int32_t status;
};

struct play {
	uint64_t seed;
	struct msg msg[2][2 * MESSAGES];
	uint32_t n[2], ended[2];
	struct crpc_bulk_chunk late[2][64];
	uint32_t nlate[2];
	bool cancels, breaks, rails;
	uint32_t cut[CRPC_BULK_RAILS_MAX]; /* the last life of the rail that was cut */
};

static struct play play;
static uint64_t cuts;

static void
fill(struct msg *m, uint32_t number, uint64_t seed)
{
	buf_fill(m->buf, m->len, seed * 1000 + number);
	if (m->len >= 4)
		memcpy(m->buf, &number, 4);
}

/* A send or a receive. The tag says how long it is, but for a few that lie. */
static void
start(struct play *p, int side)
{
	static const uint32_t sends[] = {0, 0, CRPC_BULK_EAGER, CRPC_BULK_WRITE, CRPC_BULK_READ,
		CRPC_BULK_READ | CRPC_BULK_EAGER, CRPC_BULK_CRC, CRPC_BULK_WRITE | CRPC_BULK_CRC,
		CRPC_BULK_READ | CRPC_BULK_CRC};
	static const uint32_t recvs[] = {0, 0, 0, CRPC_BULK_EAGER, CRPC_BULK_MANUAL};
	struct msg *m = &p->msg[side][p->n[side]];
	struct crpc_bulk_conn *conn = rig.conn[side];
	int rc;

	if (p->n[side] == 2 * MESSAGES)
		return;
	m->recv = p->n[side] % 2;
	/* the same tags in the same order at both ends */
	m->tag = p->n[side] / 2 % 5;
	m->len = (uint32_t)((p->seed * 77773 + (uint64_t)m->tag * 131071) % LEN_MAX);
	if (m->tag == 4)
		m->len %= 100;
	if (p->cancels && rig_rnd(20) == 0)
		m->len += 1;
	m->buf = buf_make(m->len);
	if (!m->recv)
		fill(m, p->n[side], p->seed);
	rc = m->recv ? crpc_bulk_irecv(conn, rig.w.now_ns, m->tag, m->buf, m->len,
			       recvs[rig_rnd(CRPC_DIM(recvs))], p->n[side], &m->req)
		     : crpc_bulk_isend(conn, rig.w.now_ns, m->tag, m->buf, m->len,
			       sends[rig_rnd(CRPC_DIM(sends))], p->n[side], &m->req);
	if (rc == 0) {
		p->n[side]++;
		return;
	}
	buf_free(m->buf);
	if (rc != -EAGAIN && !p->breaks)
		fail_msg("seed %llu: %d: %s", (unsigned long long)p->seed, rc, crpc_log_last());
}

/* What a receive with success holds is one of the peer's messages, whole. */
static void
content(struct play *p, int side, const struct msg *m)
{
	const struct msg *from;
	uint32_t number;

	if (m->len < 4)
		return;
	memcpy(&number, m->buf, 4);
	if (number >= p->n[!side] || p->msg[!side][number].recv)
		fail_msg("seed %llu: message %u", (unsigned long long)p->seed, number);
	from = &p->msg[!side][number];
	/* the sender's buffer is as it was until its own end, and longer here */
	if (from->tag != m->tag || from->len != m->len || memcmp(from->buf, m->buf, m->len) != 0)
		fail_msg(
			"seed %llu: message %u is not itself", (unsigned long long)p->seed, number);
}

static void
take(struct play *p, int side)
{
	struct crpc_bulk_result result[8];
	uint16_t i, n = crpc_bulk_test_burst(rig.b[side], result, 8);

	for (i = 0; i < n; i++) {
		struct msg *m = &p->msg[side][result[i].cookie];

		assert_false(m->ended);
		assert_int_equal(m->req, result[i].req);
		m->ended = true;
		m->status = result[i].status;
		p->ended[side]++;
		if (m->status != 0 && !p->cancels && !p->breaks && m->status != -EOPNOTSUPP)
			fail_msg("seed %llu: status %d", (unsigned long long)p->seed, m->status);
		buf_guards(m->buf, m->len);
		if (m->recv && m->status == 0)
			content(p, side, m);
	}
}

static void
consume(struct play *p, int side)
{
	uint32_t i;
	int rc;

	p->nlate[side] += crpc_bulk_chunks(
		rig.b[side], p->late[side] + p->nlate[side], (uint16_t)(64 - p->nlate[side]));
	if (p->nlate[side] == 0)
		return;
	i = rig_rnd(p->nlate[side]);
	rc = crpc_bulk_consumed(rig.b[side], rig.w.now_ns, p->late[side][i].token);
	if (rc == -EBUSY)
		return;
	if (rc != 0 && !p->cancels && !p->breaks)
		fail_msg("seed %llu: consumed: %d", (unsigned long long)p->seed, rc);
	p->late[side][i] = p->late[side][--p->nlate[side]];
}

static void
cancel(struct play *p, int side)
{
	struct msg *m = &p->msg[side][rig_rnd(p->n[side] + 1)];
	int rc;

	if (m->req == 0)
		return;
	rc = crpc_bulk_cancel(rig.b[side], rig.w.now_ns, m->req);
	if (rc != 0 && rc != -EALREADY && rc != -ENOENT)
		fail_msg("seed %llu: cancel: %d", (unsigned long long)p->seed, rc);
}

/* Break a rail at one end, if both ends know of another one. */
static void
cut(struct play *p)
{
	uint32_t up[CRPC_BULK_RAILS_MAX], n = 0, i;

	for (i = 0; i < rig.rails; i++) {
		if (rig.conn[0]->rail[i].state == RAIL_UP &&
			rig.conn[1]->rail[i].state == RAIL_UP &&
			p->cut[i] != rig.conn[0]->rail[i].life)
			up[n++] = i;
	}
	if (n < 2)
		return;
	i = up[rig_rnd(n)];
	p->cut[i] = rig.conn[0]->rail[i].life;
	rig_rail_fail((int)rig_rnd(2), i);
	cuts++;
}

/* The devices are bad for a while: no completions, nothing moves, or their queues are full. */
static void
devices(struct play *p, bool good)
{
	rig.w.hold_acks = !good && rig_rnd(4) == 0;
	rig.w.frozen = !good && rig_rnd(8) == 0;
	for (int side = 0; side < 2; side++) {
		for (uint32_t i = 0; i < rig.nports; i++)
			crpc_paper_post_limit(rig.dev[side][i],
				good || rig_rnd(4) != 0 ? UINT32_MAX : rig_rnd(5));
	}
}

static void
step(struct play *p)
{
	int side = (int)rig_rnd(2);

	switch (rig_rnd(8)) {
	case 0:
	case 1:
		start(p, side);
		break;
	case 2:
		if (p->cancels && rig_rnd(8) == 0)
			cancel(p, side);
		break;
	case 3:
		consume(p, side);
		break;
	case 4:
		take(p, side);
		break;
	default:
		rig_turn(side);
	}
	if (p->breaks && rig_rnd(3000) == 0)
		rig_rail_fail((int)rig_rnd(2), rig_rnd(rig.rails));
	if (p->rails && rig_rnd(300) == 0)
		cut(p);
	if (p->rails && rig_rnd(100) == 0)
		devices(p, p->n[0] == 2 * MESSAGES && p->n[1] == 2 * MESSAGES);
	if (rig_rnd(16) == 0)
		rig_check(false);
}

static void
conf_random(struct play *p, struct crpc_bulk_conf *conf)
{
	*conf = (struct crpc_bulk_conf){.chunk = 4096u << rig_rnd(4),
		.slots = 1 + rig_rnd(24),
		.tx_chunks = 1 + rig_rnd(16),
		.requests = 1 + rig_rnd(16),
		.rendezvous_min = 1 + rig_rnd(200000),
		.timeout_ns = 400000000,
		.confirm_ns = 100000000,
		.rail_retry_ns = rig_rnd(4) == 0 ? UINT64_MAX : 1000 + rig_rnd(1000000)};
}

static void
play_end(struct play *p)
{
	for (uint32_t i = 0; i < 3000000 &&
		(p->ended[0] < p->n[0] || p->ended[1] < p->n[1] || p->n[0] < 2 * MESSAGES ||
			p->n[1] < 2 * MESSAGES);
		i++) {
		step(p);
		if (rig_status(0) != 0 && rig_status(1) != 0 && p->ended[0] == p->n[0] &&
			p->ended[1] == p->n[1])
			break;
		/* when nothing new comes time may pass */
		if (i > 60000)
			rig.w.now_ns += 10000;
	}
	if (p->ended[0] != p->n[0] || p->ended[1] != p->n[1])
		fail_msg("seed %llu: %u of %u, %u of %u ended", (unsigned long long)p->seed,
			p->ended[0], p->n[0], p->ended[1], p->n[1]);
	devices(p, true);
	/* an end that has not seen the break of its peer would wait for its messages */
	if (rig_status(0) != 0 || rig_status(1) != 0) {
		crpc_bulk_conn_shutdown(rig.conn[0]);
		crpc_bulk_conn_shutdown(rig.conn[1]);
	}
	rig_rest();
	for (int side = 0; side < 2; side++) {
		for (uint32_t k = 0; k < p->n[side]; k++) {
			if (!p->cancels && !p->breaks)
				assert_true(p->msg[side][k].ended);
			buf_free(p->msg[side][k].buf);
		}
	}
}

static void
play_seed(uint64_t seed, bool cancels, bool breaks, bool rails)
{
	struct crpc_bulk_conf conf[2];
	struct play *p = &play;

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	p->cancels = cancels;
	p->breaks = breaks;
	p->rails = rails;
	rig.w.rng = seed * 7919 + 1;
	conf_random(p, &conf[0]);
	conf_random(p, &conf[1]);
	conf[1].engine = crpc_unpack_create(seed % 2 ? "test" : "cpu", NULL);
	rig_init(&conf[0], &conf[1], rails ? 2 + rig_rnd(4) : 1 + rig_rnd(3), 1 + rig_rnd(2), seed);
	play_end(p);
	rig_fini();
	crpc_unpack_free(conf[1].engine);
}

static void
play_seeds(bool cancels, bool breaks, bool rails)
{
	uint64_t seed = rig_seed_first(), end = seed + rig_seeds(SEEDS);

	for (; seed < end; seed++)
		play_seed(seed, cancels, breaks, rails);
}

/* All goes well: every request ends with success, unless no path was allowed by both. */
TEST(messages_of_every_kind)
{
	play_seeds(false, false, false);
}

/* Requests are canceled, lengths differ. */
TEST(canceled_and_misfit)
{
	play_seeds(true, false, false);
}

/* Queue pairs break as well. */
TEST(connections_break)
{
	play_seeds(true, true, false);
}

/* Rails break and come back: no request notices. */
TEST(rails_break)
{
	play_seeds(false, false, true);
	if (rig_seeds(SEEDS) > 1)
		assert_true(cuts > 2 * rig_seeds(SEEDS));
}

/* The same, and requests are canceled. */
TEST(rails_break_and_canceled)
{
	play_seeds(true, false, true);
}

int
main(void)
{
	crpc_unpack_register(&tool_ops);
	return test_run(NULL, rig_close);
}
