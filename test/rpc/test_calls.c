/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The call table and its sweep: exactly one completion per call whatever ends it, ids that wrap,
 * and deadlines that neither hurry replies that wait nor starve behind them.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "rnd.h"
#include "rpc_calls.h"

#define SIZE    5u
#define TIMEOUT 800u

struct slot {
	struct rpc_call call;
	uint32_t dropped;
};

struct rig {
	struct slot slot[2][SIZE + 1];
	struct rpc_calls calls[2];
	struct rpc_calls *table[3];
	struct rpc_sweep sweep;
	struct crpc_rpc_counts counts;
	struct crpc_done done[CRPC_BURST_MAX];
};

static void
count_drop(struct rpc_calls *calls, struct rpc_call *call)
{
	(void)calls;
	crpc_container_of(call, struct slot, call)->dropped++;
}

static void
rig_init(struct rig *r, uint32_t first_use)
{
	memset(r, 0, sizeof(*r));
	for (uint32_t i = 0; i < 2; i++) {
		__crpc_calls_init(&r->calls[i], r->slot[i], SIZE, sizeof(struct slot), first_use);
		r->calls[i].drop = count_drop;
		r->table[2 * i] = &r->calls[i]; /* an empty entry between them */
	}
	__crpc_sweep_init(&r->sweep, r->table, 3, &r->counts, TIMEOUT);
}

static uint32_t
take(struct rig *r, uint32_t table, uint64_t cookie, uint64_t now)
{
	struct rpc_call *call =
		rpc_calls_take(&r->calls[table], cookie, rpc_deadline(now, TIMEOUT));

	assert_non_null(call);
	return call->id;
}

static bool
reply(struct rig *r, uint32_t table, uint32_t id)
{
	struct rpc_call *call = rpc_calls_find(&r->calls[table], id);

	assert_non_null(call);
	r->sweep.taken++;
	return rpc_calls_reply(&r->calls[table], call, "", 0, 0, &r->counts, r->done);
}

TEST(ids_wrap_and_are_never_zero)
{
	struct rig r;
	uint32_t i, id, old;

	(void)state;
	rig_init(&r, UINT32_MAX);
	for (i = 0; i < 100; i++) {
		id = take(&r, 0, i, 0);
		assert_int_not_equal(id, 0);
		assert_true(reply(&r, 0, id));
		assert_int_equal(r.done[0].cookie, i);
		assert_null(rpc_calls_find(&r.calls[0], id));
		old = id;
		id = take(&r, 0, i, 0);
		assert_null(rpc_calls_find(&r.calls[0], old));
		assert_true(reply(&r, 0, id));
	}
	/* no id, whatever a peer sends, leaves the table */
	for (id = 0; id < 64; id++)
		assert_null(rpc_calls_find(&r.calls[0], id));
}

TEST(a_full_table_takes_no_more)
{
	struct rig r;
	uint32_t i, id = 0;

	(void)state;
	rig_init(&r, 0);
	for (i = 0; i < SIZE; i++)
		id = take(&r, 0, i, 0);
	assert_null(rpc_calls_take(&r.calls[0], 0, 0));
	assert_int_equal(r.calls[0].open, SIZE);
	assert_true(reply(&r, 0, id));
	assert_int_equal(take(&r, 0, 9, 0), id + r.calls[0].mask + 1);
}

TEST(deadlines_are_kept_and_late_replies_free_the_slot)
{
	struct rig r;
	uint32_t a, b;

	(void)state;
	rig_init(&r, 0);
	a = take(&r, 0, 1, 0);
	b = take(&r, 1, 2, TIMEOUT / 2);
	assert_int_equal(rpc_sweep_turn(&r.sweep, TIMEOUT - 1, true, r.done, 8), 0);
	assert_int_equal(rpc_sweep_turn(&r.sweep, TIMEOUT + TIMEOUT / 8, true, r.done, 8), 1);
	assert_int_equal(r.done[0].cookie, 1);
	assert_int_equal(r.done[0].status, -ETIMEDOUT);
	assert_int_equal(r.calls[0].ended, 1);
	assert_false(reply(&r, 0, a));
	assert_int_equal(r.counts.late, 1);
	assert_int_equal(r.calls[0].ended, 0);
	assert_null(rpc_calls_find(&r.calls[0], a));
	assert_true(reply(&r, 1, b));
}

TEST(a_call_without_deadline_never_ends_by_time)
{
	struct rig r;

	(void)state;
	rig_init(&r, 0);
	assert_int_equal(rpc_deadline(5, 0), RPC_NEVER);
	assert_int_equal(rpc_deadline(5, UINT64_MAX - 5), RPC_NEVER);
	assert_non_null(rpc_calls_take(&r.calls[0], 1, RPC_NEVER));
	assert_int_equal(rpc_sweep_turn(&r.sweep, UINT64_MAX - 100, true, r.done, 8), 0);
	assert_int_equal(r.calls[0].open, 1);
}

TEST(full_bursts_delay_deadlines_by_the_open_calls_only)
{
	struct rig r;
	uint32_t i, id[SIZE];

	(void)state;
	rig_init(&r, 0);
	take(&r, 1, 99, 0);
	for (i = 0; i < SIZE; i++)
		id[i] = take(&r, 0, i, 0);
	/* Two tables with at most SIZE calls each: so many replies may have waited. */
	for (i = 0; i < 2 * SIZE; i++) {
		assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, false, r.done, 8), 0);
		assert_true(reply(&r, 0, id[i % SIZE]));
		id[i % SIZE] = take(&r, 0, i, 2 * TIMEOUT + i);
	}
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT + i, false, r.done, 8), 1);
	assert_int_equal(r.done[0].cookie, 99);
}

TEST(full_bursts_do_not_delay_a_cancel)
{
	struct rig r;
	uint32_t id;

	(void)state;
	rig_init(&r, 0);
	take(&r, 1, 99, 0);
	id = take(&r, 0, 1, 0);
	assert_int_equal(__crpc_calls_cancel(&r.calls[0], &r.sweep, 1), 1);
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, false, r.done, 0), 0);
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, false, r.done, 8), 1);
	assert_int_equal(r.done[0].status, -ECANCELED);
	assert_false(reply(&r, 0, id));
	/* the deadline of the other call is judged after it */
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, false, r.done, 8), 0);
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, true, r.done, 8), 1);
	assert_int_equal(r.done[0].cookie, 99);
}

TEST(canceled_calls_complete_once_whatever_comes)
{
	struct rig r;
	uint32_t a, b;

	(void)state;
	rig_init(&r, 0);
	a = take(&r, 0, 7, 0);
	b = take(&r, 0, 7, 0);
	take(&r, 0, 8, 0);
	assert_int_equal(__crpc_calls_cancel(&r.calls[0], &r.sweep, 7), 2);
	assert_int_equal(__crpc_calls_cancel(&r.calls[0], &r.sweep, 7), 0);
	assert_true(reply(&r, 0, a));
	assert_int_equal(r.done[0].status, -ECANCELED);
	assert_null(r.done[0].data);
	assert_int_equal(rpc_sweep_turn(&r.sweep, 1, true, r.done, 8), 1);
	assert_int_equal(r.done[0].status, -ECANCELED);
	assert_int_equal(r.done[0].cookie, 7);
	assert_false(reply(&r, 0, b));
	assert_int_equal(r.calls[0].open, 1);
	assert_int_equal(r.counts.cancels, 2);
}

TEST(a_cancel_during_a_sweep_is_seen)
{
	struct rig r;

	(void)state;
	rig_init(&r, 0);
	take(&r, 0, 1, 0);
	take(&r, 0, 2, 0);
	take(&r, 1, 3, 0);
	/* room for one completion: the sweep stops behind the first call */
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, true, r.done, 1), 1);
	assert_true(r.sweep.active);
	take(&r, 0, 4, 2 * TIMEOUT);
	assert_int_equal(__crpc_calls_cancel(&r.calls[0], &r.sweep, 4), 1);
	assert_int_equal(rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, true, r.done, 8) +
			rpc_sweep_turn(&r.sweep, 2 * TIMEOUT, true, r.done, 8),
		3);
	assert_int_equal(r.calls[0].open + r.calls[1].open, 0);
}

TEST(an_ended_connection_completes_and_drops_everything)
{
	struct rig r;

	(void)state;
	rig_init(&r, 0);
	for (uint32_t i = 0; i < SIZE; i++)
		take(&r, 0, i, i == 0 ? 0 : TIMEOUT);
	assert_int_equal(rpc_sweep_turn(&r.sweep, TIMEOUT + 100, true, r.done, 8), 1);
	for (uint32_t i = 1; i < SIZE; i++) {
		assert_int_equal(
			__crpc_calls_drop(&r.calls[0], -ECONNRESET, &r.counts, r.done, 1), 1);
		assert_int_equal(r.done[0].status, -ECONNRESET);
	}
	assert_int_equal(__crpc_calls_drop(&r.calls[0], -ECONNRESET, &r.counts, r.done, 1), 0);
	assert_int_equal(r.calls[0].open + r.calls[0].ended, 0);
	for (uint32_t i = 1; i <= SIZE; i++)
		assert_int_equal(r.slot[0][i].dropped, 1);
	for (uint32_t i = 0; i < SIZE; i++)
		take(&r, 0, i, 0);
}

/* Any order of calls, replies, cancels and time: each call completes once. */
TEST(random_schedules_complete_each_call_once)
{
	uint64_t seed = rnd_seed(), now = 0;
	uint32_t id[2 * SIZE], of[2 * SIZE], nid = 0, made = 0, completed = 0, i, t, k;
	bool ended;
	struct rig r;

	(void)state;
	rig_init(&r, UINT32_MAX - 2);
	for (i = 0; i < 200000; i++) {
		t = rnd_below(&seed, 2);
		now += rnd_below(&seed, 60);
		switch (rnd_below(&seed, 4)) {
		case 0:
			if (r.calls[t].free == NULL)
				break;
			of[nid] = t;
			id[nid++] = take(&r, t, made++, now);
			break;
		case 1:
			if (nid == 0)
				break;
			k = rnd_below(&seed, nid);
			completed += reply(&r, of[k], id[k]);
			id[k] = id[--nid];
			of[k] = of[nid];
			break;
		case 2:
			__crpc_calls_cancel(&r.calls[t], &r.sweep, made - rnd_below(&seed, 8));
			break;
		default:
			ended = rnd_below(&seed, 2) != 0;
			completed += rpc_sweep_turn(&r.sweep, now, ended, r.done, 1);
		}
		assert_int_equal(made - completed, r.calls[0].open + r.calls[1].open);
		assert_int_equal(nid,
			r.calls[0].open + r.calls[0].ended + r.calls[1].open + r.calls[1].ended);
	}
	assert_true(completed > 10000 && r.counts.timeouts > 1000 && r.counts.cancels > 1000);
}

TEST_MAIN(NULL, NULL)
