/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clauses of crpc_rpc.h, each a test, run over the layers that this program has; and random
 * schedules of everything, in which the model checks all clauses at once.
 *
 *     CONTRACT_SEED=n     the one schedule of this seed
 *     CONTRACT_SEEDS=n    so many, from the first on
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "contract.h"

#define TIMEOUT_NS 400000u
/* So late may a deadline be, with a poll per microsecond. */
#define LATE_NS (2 * TIMEOUT_NS)

static const uint8_t zero[MSG_MAX + 1];

#define LEN_MAX (s->layer->msg_max)

static struct star *
begin(void **state)
{
	return star_open(*state, 1, WINDOW, 0, false);
}

/* A layer without this verb has not this clause. */
#define needs(verb)                                                                                \
	do {                                                                                       \
		if (((const struct contract_layer *)*state)->verb == NULL)                         \
			skip();                                                                    \
	} while (0)

static struct star *
begin_with_deadline(void **state)
{
	return star_open(*state, 1, WINDOW, TIMEOUT_NS, false);
}

/* Calls until the window is full: their number; *first is that of the first. */
static uint32_t
fill_window(struct star *s, uint32_t c, uint32_t len, uint32_t resp_max, uint32_t *first)
{
	uint32_t n = 0;

	*first = s->nids + 1;
	while (star_call(s, c, len, resp_max) != 0)
		n++;
	expect(s, n <= s->window);
	return n;
}

/* ---- calls ---- */

TEST(a_call_completes_once_with_its_reply)
{
	static const uint32_t lens[] = {
		4, 5, 31, 56, 57, 64, 120, 200, 228, 229, 455, 458, MSG_MAX};
	struct star *s = begin(state);

	for (uint32_t i = 0; i < CRPC_DIM(lens) && lens[i] <= LEN_MAX; i++)
		for (uint32_t k = 0; k < CRPC_DIM(lens) && lens[k] <= LEN_MAX; k++) {
			expect(s, star_call(s, 0, lens[i], lens[k]) != 0);
			star_hold(s, 1);
			star_reply(s, s->nids, k % 3 == 0 ? 0 : lens[k]);
			star_drain(s, 0, 1);
			expect(s, s->rec[s->nids].status == 0);
		}
	star_close(s);
}

TEST(replies_in_any_order_reach_their_calls)
{
	struct star *s = begin(state);
	uint32_t c, i, first, n = 0;

	for (i = 0; i < 50; i++) {
		for (c = 0, n = 0; c < CLIENTS; c++)
			n += fill_window(s, c, 4 + i, 40 + i, &first);
		star_hold(s, n);
		while (s->nheld != 0) {
			first = s->held[rnd_below(&s->rng, s->nheld)];
			star_reply(s, first, s->rec[first].resp_max);
		}
		for (c = 0; c < CLIENTS; c++)
			star_drain(s, c, (uint16_t)(1 + i % 5));
	}
	star_close(s);
}

TEST(a_released_request_completes_its_call_without_data)
{
	struct star *s = begin(state);
	uint32_t id = star_call(s, 0, 8, 100);

	star_hold(s, 1);
	star_release(s, id);
	star_drain(s, 0, 1);
	expect(s, s->rec[id].status == 0 && s->client[0].done[0].len == 0);
	star_release(s, id); /* -ENOENT */
	star_close(s);
}

TEST(a_failed_request_completes_its_call_with_the_status)
{
	static const int32_t good[] = {-1, -EIO, -ETIMEDOUT, -ECONNRESET, -ECANCELED, -4095};
	static const int32_t bad[] = {0, 1, 5, -4096, INT32_MAX, INT32_MIN};
	struct star *s;

	needs(fail_with);
	s = begin(state);
	for (uint32_t i = 0; i < CRPC_DIM(good); i++) {
		uint32_t id = star_call(s, 0, 8, 100);

		star_hold(s, 1);
		for (uint32_t k = 0; k < CRPC_DIM(bad); k++)
			expect(s, s->layer->fail_with(s, s->rec[id].token, bad[k]) == -EINVAL);
		star_fail(s, id, good[i]);
		star_drain(s, 0, 1);
		expect(s, s->rec[id].status == good[i]);
	}
	star_close(s);
}

TEST(a_token_ends_once)
{
	struct star *s = begin(state);
	uint32_t i, k, id;
	uint64_t token;

	for (i = 0; i < 3; i++) {
		id = star_call(s, 0, 8, 8);
		star_hold(s, 1);
		if (i == 0)
			star_reply(s, id, 8);
		else if (i == 1)
			star_fail(s, id, -EIO);
		else
			star_release(s, id);
		for (k = 0; k < 2;
			k++) { /* before its completion, and when its place is used again */
			star_reply(s, id, 8);
			star_fail(s, id, -EIO);
			star_release(s, id);
			if (k != 0)
				break;
			star_drain(s, 0, 1);
			expect(s, star_call(s, 0, 8, 8) != 0);
			star_hold(s, 1);
		}
		star_reply_all(s);
		star_drain(s, 0, 1);
	}
	for (i = 0; i < 64; i++) { /* nor does a token that is none */
		token = s->rec[id].token ^ (UINT64_C(1) << i);
		expect(s, s->layer->reply(s, token, zero, 1) == -ENOENT);
		if (s->layer->fail_with != NULL)
			expect(s, s->layer->fail_with(s, token, -EIO) == -ENOENT);
		expect(s, s->layer->release(s, token) == -ENOENT);
	}
	expect(s, s->layer->release(s, 0) == -ENOENT);
	expect(s, s->layer->release(s, UINT64_MAX) == -ENOENT);
	star_close(s);
}

TEST(what_is_too_large_is_refused_and_takes_nothing)
{
	static const uint32_t allowed[] = {0, 10, 20, 55, 57, 100, 199};
	struct star *s = begin(state);

	for (uint32_t c = 0; c < CLIENTS; c++) {
		expect(s, s->layer->call(s, c, zero, LEN_MAX + 1, 0, 1) == -EMSGSIZE);
		expect(s, s->layer->call(s, c, zero, 4, LEN_MAX + 1, 1) == -EMSGSIZE);
		expect(s, s->layer->call(s, c, zero, 4, UINT32_MAX, 1) == -EMSGSIZE);
		expect(s, s->layer->call(s, c, zero, UINT32_MAX, 4, 1) == -EMSGSIZE);
		expect(s, s->layer->notify(s, c, zero, LEN_MAX + 1) == -EMSGSIZE);
		for (uint32_t i = 0; i < CRPC_DIM(allowed); i++) {
			uint32_t max = allowed[i];
			uint32_t id = star_call(s, c, 8, max);

			star_hold(s, 1);
			expect(s, s->layer->reply(s, s->rec[id].token, zero, max + 1) == -EMSGSIZE);
			expect(s,
				s->layer->reply(s, s->rec[id].token, zero, UINT32_MAX) ==
					-EMSGSIZE);
			star_reply(s, id, max);
			star_drain(s, c, 1);
			expect(s, s->rec[id].status == 0);
		}
	}
	star_close(s);
}

TEST(a_notification_has_no_reply_and_no_completion)
{
	struct star *s = begin(state);

	for (uint32_t i = 0; i < 4 * WINDOW; i++) {
		uint32_t id = star_notify(s, i % CLIENTS, 4 + i);

		expect(s, id != 0);
		star_hold(s, 1);
		star_reply(s, id, 0);
		star_reply(s, id, 8);
		star_fail(s, id, -EIO);
		expect(s, s->nheld == 1);
		star_release(s, id);
		star_reply(s, id, 0); /* -ENOENT */
		star_pass(s, STEP_NS);
		expect(s, star_poll(s, i % CLIENTS, 8) == 0);
	}
	star_close(s);
}

/* ---- bursts and windows ---- */

TEST(no_verb_gives_more_than_a_burst_or_than_asked)
{
	struct star *s = star_open(*state, 1, WIDE, 0, false);
	uint32_t c, first, n, taken, turns, i;

	for (i = 0; i < 6; i++) {
		for (c = 0, n = 0; c < CLIENTS; c++)
			n += fill_window(s, c, 4, 4, &first);
		for (taken = turns = 0; taken < n; turns++) { /* checked in each */
			expect(s, turns < 10 * n);
			star_pass(s, STEP_NS);
			taken += star_recv(s, i % 2 ? 2 * CRPC_BURST_MAX : 1);
			for (c = 0; c < CLIENTS; c++)
				expect(s, star_poll(s, c, 1) == 0);
		}
		star_pass(s, STEP_NS);
		expect(s, star_recv(s, 2 * CRPC_BURST_MAX) == 0);
		star_reply_all(s);
		for (c = 0; c < CLIENTS; c++)
			star_drain(s, c, i % 2 ? 2 * CRPC_BURST_MAX : 1);
	}
	star_close(s);
}

TEST(a_full_window_refuses_and_then_takes_again)
{
	static const uint32_t windows[] = {1, 2, 4, WINDOW};
	uint32_t first, n, i, k;

	for (i = 0; i < 32; i++) {
		struct star *s = star_open(*state, 1, windows[i % 4], 0, false);

		n = fill_window(s, 0, 4 + i, LEN_MAX, &first);
		expect(s, n == s->window);
		for (k = 0; k < 3; k++)
			expect(s, star_call(s, 0, 4, 4) == 0);
		star_hold(s, n);
		star_reply(s, first + i % n, LEN_MAX);
		star_poll_some(s, 0);
		expect(s, star_poll(s, 0, 8) == 0); /* its data is given back */
		expect(s, star_call(s, 0, 4, 4) != 0);
		star_reply_all(s);
		star_hold(s, 1);
		star_reply_all(s);
		star_drain(s, 0, 3);
		star_close(s);
	}
}

/* ---- lifetime of memory: the model looks at all of it before each verb ---- */

TEST(the_data_of_completions_stays_until_the_next_poll)
{
	static const uint32_t windows[] = {4, 8, 2 * WINDOW};
	uint32_t round, i, first, n;
	struct star *s = NULL;

	for (round = 0; round < 60; round++) {
		if (round % 20 == 0)
			s = star_open(*state, 1, windows[round / 20], 0, false);
		n = fill_window(s, 0, 8, LEN_MAX - round, &first);
		for (i = 0; i < n; i += 3 + round % 3)
			star_cancel(s, 0, first + i);
		star_hold(s, n);
		if (round % 2) /* else they are canceled when their answers arrive */
			star_poll(s, 0, CRPC_BURST_MAX);
		for (i = 0; i < n; i += 2) /* late answers among those of open calls */
			star_reply(s, first + i, LEN_MAX - round);
		star_pass(s, STEP_NS);
		star_poll_some(s, 0);
		/* all that a client may do but to poll, and answers meanwhile */
		star_reply_all(s);
		star_pass(s, STEP_NS);
		while (star_call(s, 0, LEN_MAX, LEN_MAX) != 0)
			;
		(void)star_notify(s, 0, LEN_MAX);
		star_pass(s, STEP_NS);
		star_cancel(s, 0, s->nids);
		star_recv(s, 64);
		star_reply_all(s);
		star_pass(s, STEP_NS);
		star_settle(s, 30);
		if (round % 20 == 19)
			star_close(s);
	}
}

TEST(the_data_of_a_request_stays_until_its_end)
{
	struct star *s = begin(state);
	uint32_t held, round, first, i;

	held = star_call(s, 0, LEN_MAX, 8);
	star_hold(s, 1);
	/* others pass by for long */
	for (round = 0; round < 100; round++) {
		for (i = 0; i < CLIENTS; i++)
			(void)fill_window(s, i, LEN_MAX, 8, &first);
		star_pass(s, STEP_NS);
		star_recv(s, 64);
		for (i = s->nheld; i-- != 0;)
			if (s->held[i] != held)
				star_reply(s, s->held[i], 8);
		star_pass(s, STEP_NS);
		for (i = 0; i < CLIENTS; i++)
			star_poll(s, i, 64);
	}
	/* its caller cancels it, and more, leaves, and is there again */
	star_cancel(s, 0, held);
	star_pass(s, STEP_NS);
	star_poll(s, 0, 64);
	star_leave(s, 0);
	star_recv(s, 64);
	star_join(s, 0);
	for (round = 0; round < 20; round++) {
		(void)fill_window(s, 0, LEN_MAX, LEN_MAX, &first);
		star_pass(s, STEP_NS);
		star_recv(s, 64);
	}
	star_reply(s, held, 8); /* -ECONNRESET */
	star_reply(s, held, 8); /* -ENOENT */
	star_close(s);
}

/* ---- cancel and deadline ---- */

TEST(a_canceled_call_completes_once_wherever_it_is)
{
	struct star *s;

	needs(cancel);
	s = begin(state);
	for (uint32_t where = 0; where < 5; where++) {
		uint32_t id = star_call(s, 0, 8, 8);
		uint32_t other = star_call(s, 0, 8, 8);

		if (where > 0)
			star_pass(s, STEP_NS); /* sent */
		if (where > 1)
			star_hold(s, 2);
		if (where > 2)
			star_reply(s, id, 8);
		if (where > 3)
			star_pass(s, STEP_NS); /* it waits for the poll */
		star_cancel(s, 0, id);
		star_cancel(s, 0, id);
		star_cancel(s, 0, 0);
		star_poll_some(s, 0);
		expect(s, s->rec[id].done && s->rec[id].status == -ECANCELED);
		star_hold(s, where > 2 ? 1 : 2);
		star_reply_all(s);
		star_drain(s, 0, 4);
		expect(s, s->rec[other].status == 0);
		star_cancel(s, 0, id);
		star_cancel(s, 0, other);
	}
	star_close(s);
}

TEST(a_call_past_its_deadline_times_out_once)
{
	struct star *s = begin_with_deadline(state);
	uint32_t i, n, turns, first;
	uint64_t made;

	for (i = 0; i < 4; i++) {
		s->now += 50 * TIMEOUT_NS; /* time without a call counts for none */
		made = s->now;
		n = fill_window(s, 0, 8, 8, &first);
		star_hold(s, n);
		while (star_poll(s, 0, 1) == 0) {
			star_pass(s, STEP_NS);
			expect(s, s->now - made < LATE_NS);
		}
		for (turns = 0; s->client[0].open != 0; turns++) { /* the others follow */
			expect(s, turns < 2 * n);
			star_pass(s, STEP_NS);
			star_poll(s, 0, 1);
		}
		expect(s, s->rec[first].status == -ETIMEDOUT && s->now - made >= TIMEOUT_NS);
		star_reply_all(s); /* its server does not know */
		star_pass(s, STEP_NS);
		expect(s, star_poll(s, 0, 4) == 0);
	}
	star_close(s);
}

TEST(a_reply_that_waits_is_given_after_its_deadline)
{
	static const uint16_t rooms[] = {1, 3, CRPC_BURST_MAX};
	struct star *s = begin_with_deadline(state);
	uint32_t i, k, first, n;

	for (i = 0; i < CRPC_DIM(rooms); i++) {
		n = fill_window(s, 0, 8, 8, &first);
		star_hold(s, n);
		star_reply_all(s);
		star_pass(s, STEP_NS);
		star_pass(s, 10 * TIMEOUT_NS);
		star_drain(s, 0, rooms[i]);
		for (k = 0; k < n; k++)
			expect(s, s->rec[first + k].status == 0);
	}
	star_close(s);
}

/* One turn in which more replies wait than a poll has room for. */
static void
busy_turn(struct star *s, uint32_t slow, uint16_t room)
{
	while (star_call(s, 0, 8, 8) != 0)
		;
	star_pass(s, STEP_NS);
	star_recv(s, 64);
	for (uint32_t i = s->nheld; i-- != 0;)
		if (s->held[i] != slow)
			star_reply(s, s->held[i], 8);
	star_pass(s, STEP_NS);
	star_poll(s, 0, room);
}

TEST(full_polls_delay_neither_deadlines_nor_cancels)
{
	enum { WAIT, CANCEL, CANCEL_OTHERS, WAYS };
	static const uint16_t rooms[] = {1, 4, WINDOW / 2};
	uint32_t i, k, way, slow;
	struct star *s;
	uint64_t begun;

	for (i = 0; i < WAYS * CRPC_DIM(rooms); i++) {
		way = i % WAYS;
		if (way != WAIT && ((const struct contract_layer *)*state)->cancel == NULL)
			continue;
		s = begin_with_deadline(state);
		slow = star_call(s, 0, 8, 8);
		begun = s->now;
		if (way == CANCEL) {
			busy_turn(s, slow, rooms[i / WAYS]);
			star_cancel(s, 0, slow);
		}
		while (!s->rec[slow].done) {
			busy_turn(s, slow, rooms[i / WAYS]);
			for (k = 0; way == CANCEL_OTHERS && k < rooms[i / WAYS]; k++)
				if (s->nids - k > slow)
					star_cancel(s, 0, s->nids - k);
			expect(s, s->now - begun < LATE_NS);
		}
		expect(s, s->rec[slow].status == (way == CANCEL ? -ECANCELED : -ETIMEDOUT));
		star_close(s);
	}
}

/* ---- peers that come and go ---- */

TEST(a_reply_to_a_caller_that_left_is_refused_once)
{
	struct star *s = begin(state);
	uint32_t i, k, id[3], note, other = 0;

	for (i = 0; i < 4; i++) {
		for (k = 0; k < 3; k++)
			id[k] = star_call(s, 1, 50 * k + 4, 50);
		note = star_notify(s, 1, 30);
		other = star_call(s, 2, 8, 8);
		star_hold(s, 5);
		star_leave(s, 1);
		if (i % 2)
			star_join(s, 1);
		for (k = 0; k < 2; k++) { /* -ECONNRESET, then -ENOENT */
			star_reply(s, id[0], 50);
			star_fail(s, id[1], -EIO);
			star_release(s, id[2]);
			star_reply(s, note, 8); /* -EOPNOTSUPP, until it is released */
			star_fail(s, note, -EIO);
			star_release(s, note);
		}
		if (i % 2 == 0)
			star_join(s, 1);
		star_reply(s, other, 8);
		star_drain(s, 2, 8);
	}
	star_close(s);
}

TEST(a_client_that_joins_again_gets_nothing_of_its_earlier_life)
{
	struct star *s = begin(state);
	uint32_t i, first, n;

	for (i = 0; i < 8; i++) {
		n = fill_window(s, 0, 8, 8, &first);
		if (i % 2)
			star_hold(s, n / 2);
		star_leave(s, 0);
		if (i % 4 > 1)
			star_recv(s, 64);
		star_join(s, 0);
		(void)fill_window(s, 0, 8, 8, &first); /* on the same places */
		star_reply_all(s);
		star_pass(s, STEP_NS);
		star_poll(s, 0, 64); /* the model knows the life of each */
		star_settle(s, 10);
	}
	star_close(s);
}

TEST(a_caller_that_dies_leaves_its_requests_readable)
{
	struct star *s;
	uint32_t i, first;

	needs(call_and_die);
	s = begin(state);
	star_leave(s, 1);
	star_call_and_die(s, 1, LEN_MAX);
	star_hold(s, WINDOW);
	for (i = 0; i < 20; i++) {
		(void)fill_window(s, 0, LEN_MAX, LEN_MAX, &first);
		star_pass(s, STEP_NS);
		star_recv(s, 64);
	}
	star_reply_all(s);
	star_join(s, 1);
	star_close(s);
}

static void
server_ends(void **state, bool in_good_order)
{
	static const uint16_t rooms[] = {1, 5, 2 * CRPC_BURST_MAX};
	uint32_t i, c, first, n;
	int rc;

	for (i = 0; i < CRPC_DIM(rooms); i++) {
		/* The last time more than a burst ends at once. */
		struct star *s = star_open(*state, i + 1, i == 2 ? WIDE : WINDOW, 0, false);

		for (c = 0; c < CLIENTS; c++) {
			(void)star_notify(s, c, 50);
			n = fill_window(s, c, 100, 100, &first);
			star_cancel(s, c, first + n - 1);
		}
		star_hold(s, 2 * WINDOW);
		star_reply(s, s->held[0], 100);
		star_server_leave(s, in_good_order);
		for (c = 0; c < CLIENTS; c++) {
			star_drain(s, c, rooms[i]);
			rc = s->layer->call(s, c, zero, 8, 8, 1);
			expect(s, rc < 0 && rc != -EAGAIN);
			expect(s, s->layer->notify(s, c, zero, 8) == rc);
		}
		star_close(s);
	}
}

TEST(a_server_that_leaves_resets_each_call_once)
{
	server_ends(state, true);
}

TEST(a_server_that_dies_resets_each_call_once)
{
	needs(server_kill);
	server_ends(state, false);
}

TEST(counters_go_past_their_end)
{
	struct star *s = star_open(*state, 3, WINDOW, TIMEOUT_NS, true);
	uint32_t i, c, id, first;

	if (!s->near_end) {
		star_close(s);
		skip();
	}
	for (i = 0; i < 400; i++) {
		c = i % CLIENTS;
		if (i % 7 == 0)
			(void)star_notify(s, c, 4 + i % (LEN_MAX - 8));
		(void)fill_window(s, c, 4 + i % (LEN_MAX - 8), 8 + i % 90, &first);
		if (i % 3 == 0)
			star_cancel(s, c, first);
		star_pass(s, STEP_NS);
		star_recv(s, 64);
		if (i % 5 != 0)
			while (s->nheld != 0) {
				id = s->held[0];
				if (s->rec[id].oneway || id % 11 == 0)
					star_release(s, id);
				else if (id % 13 == 0)
					star_fail(s, id, -EIO);
				else
					star_reply(s, id, s->rec[id].resp_max);
			}
		star_pass(s, STEP_NS);
		star_poll(s, c, 64);
	}
	star_close(s);
}

TEST(an_idle_star_gives_nothing)
{
	struct star *s = begin(state);

	for (uint32_t i = 0; i < 1000; i++) {
		star_pass(s, STEP_NS);
		expect(s, star_recv(s, 64) == 0);
		for (uint32_t c = 0; c < CLIENTS; c++) {
			expect(s, star_poll(s, c, 64) == 0);
			star_cancel(s, c, 0);
		}
	}
	star_close(s);
}

/* ---- random schedules ---- */

static uint32_t
pick_len(struct star *s)
{
	return 4 + rnd_below(&s->rng, rnd_below(&s->rng, 4) == 0 ? LEN_MAX - 3u : 60u);
}

static void
act_client(struct star *s, uint32_t c)
{
	uint32_t k = 1 + rnd_below(&s->rng, rnd_below(&s->rng, 8) == 0 ? 2 * WINDOW : 4);

	switch (rnd_below(&s->rng, 8)) {
	case 0:
		if (s->nids != 0)
			star_cancel(s, c,
				s->nids - rnd_below(&s->rng, (uint32_t)crpc_min(s->nids, 40)));
		break;
	case 1:
		(void)star_notify(s, c, pick_len(s));
		break;
	case 2:
	case 3:
	case 4:
		while (k-- != 0 && star_call(s, c, pick_len(s), pick_len(s)) != 0)
			;
		break;
	default:
		star_poll(s, c, (uint16_t)(1 + rnd_below(&s->rng, 2 * CRPC_BURST_MAX)));
	}
}

static void
act_server(struct star *s)
{
	uint32_t id;

	switch (rnd_below(&s->rng, 6)) {
	case 0:
		star_recv(s, (uint16_t)(1 + rnd_below(&s->rng, 2 * CRPC_BURST_MAX)));
		break;
	case 1:
		s->layer->drive(s);
		break;
	case 2:
		if (s->nids != 0) /* mostly one that has ended */
			id = 1 + rnd_below(&s->rng, s->nids);
		else
			break;
		if (s->rec[id].given && !s->rec[id].held)
			star_release(s, id);
		break;
	default:
		if (s->nheld == 0)
			break;
		id = s->held[rnd_below(&s->rng, s->nheld)];
		if (s->rec[id].oneway || rnd_below(&s->rng, 10) == 0)
			star_release(s, id);
		else if (rnd_below(&s->rng, 10) == 0)
			star_fail(s, id, -1 - (int32_t)rnd_below(&s->rng, CRPC_ERRNO_MAX));
		else
			star_reply(s, id, rnd_below(&s->rng, s->rec[id].resp_max + 1u));
	}
}

static void
schedule(const struct contract_layer *layer, uint64_t seed, bool trouble)
{
	static const uint64_t timeouts[] = {0, TIMEOUT_NS, 30 * STEP_NS};
	struct star *s = star_open(layer, seed, seed % 11 == 0 ? WIDE : WINDOW,
		timeouts[seed % CRPC_DIM(timeouts)], seed % 5 == 0);

	s->troubled = trouble;
	if (trouble)
		layer->trouble(s, true);
	for (uint32_t i = 0; i < 1500; i++) {
		uint32_t c = rnd_below(&s->rng, CLIENTS);

		switch (rnd_below(&s->rng, 40)) {
		case 0:
			if (trouble || s->lives == LIVES_MAX || rnd_below(&s->rng, 4) != 0)
				break;
			star_leave(s, c);
			for (; rnd_below(&s->rng, 8) != 0; act_server(s))
				;
			star_join(s, c);
			break;
		case 1:
			star_pass(s, rnd_below(&s->rng, 20) * STEP_NS);
			break;
		default:
			if (rnd_below(&s->rng, 2))
				act_client(s, c);
			else
				act_server(s);
			if (rnd_below(&s->rng, 3) == 0)
				star_pass(s, rnd_below(&s->rng, STEP_NS));
		}
	}
	if (trouble)
		layer->trouble(s, false);
	if (seed % 7 == 0)
		star_server_leave(s, true);
	star_close(s);
}

static void
schedules(void **state, bool trouble)
{
	const char *one = getenv("CONTRACT_SEED"), *many = getenv("CONTRACT_SEEDS");
	uint64_t seed = one != NULL ? strtoull(one, NULL, 0) : 1;
	uint64_t n = one != NULL ? 1 : many != NULL ? strtoull(many, NULL, 0) : 60;
	const struct contract_layer *layer = *state;

	if (layer->is_slow)
		n = crpc_max(n / 4, 1u);

	print_message("CONTRACT_SEED=%llu and on, %llu schedules\n", (unsigned long long)seed,
		(unsigned long long)n);
	for (; n != 0; n--, seed++)
		schedule(*state, seed, trouble);
}

TEST(random_schedules_keep_every_clause)
{
	schedules(state, false);
}

TEST(random_schedules_keep_every_clause_over_a_bad_network)
{
	needs(trouble);
	schedules(state, true);
}

int
main(void)
{
	int failed = 0;

	for (uint32_t i = 0; contract_layers[i] != NULL; i++)
		failed += test_run_with(contract_layers[i]->name, contract_layers[i]);
	return failed;
}
