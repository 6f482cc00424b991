/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios over thousands of seeds: both directions call, send one-way, reply late and out
 * of order, fail and hold; tiny rings, random sizes, small send queues, random order on the wire.
 * Every call completes exactly once with the right bytes, requests arrive in order and stay
 * unchanged while held, completions stay readable until the next poll, and at the end the auditor
 * finds all positions equal. What a server answers is derived from the request, so each side checks
 * alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

#define CALLS_MAX 512
#define HELD_MAX  512
#define TURNS     1500

/* What one side knows of its open calls and of the requests it holds. */
struct side_call {
	bool open;
	uint64_t sum;
	uint32_t resp_max;
};

struct side_held {
	uint64_t token;
	const uint8_t *data;
	uint32_t len;
	uint64_t sum;
	uint8_t *copy;
};

struct side {
	struct side_call call[CALLS_MAX];
	uint64_t next_cookie;
	uint64_t completed, accepted, sent_oneway, got_oneway, got_requests;
	uint64_t next_seq[PAIR_EPS], seen_seq[PAIR_EPS];
	struct side_held held[HELD_MAX];
	uint32_t nheld;
	struct crpc_done done[CRPC_BURST_MAX];
	uint64_t done_sum[CRPC_BURST_MAX];
	uint16_t ndone;
};

struct scenario {
	struct pair p;
	struct side side[2];
	uint32_t max_msg;
	uint32_t hold; /* 1 in so many turns a side answers what it holds */
	uint64_t seed;
	uint64_t bytes;
};

static uint64_t
sum_of(const void *data, uint32_t len)
{
	const uint8_t *p = data;
	uint64_t h = 0xcbf29ce484222325u ^ len;
	uint32_t i;

	for (i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static void
fill(uint8_t *p, uint32_t len, uint64_t x)
{
	uint32_t i;

	for (i = 0; i < len; i++) {
		p[i] = (uint8_t)(x >> 32);
		x = x * 6364136223846793005u + 1442695040888963407u;
	}
}

/* Sizes: mostly small, sometimes the largest, sometimes just around a unit. */
static uint32_t
size_rnd(struct scenario *s)
{
	uint64_t r = crpc_paper_rnd(&s->p.w);

	switch (r % 8) {
	case 0:
		return (uint32_t)((r >> 8) % (s->max_msg + 1));
	case 1:
		return s->max_msg - (uint32_t)((r >> 8) % 17 < s->max_msg ? (r >> 8) % 17 : 0);
	case 2:
		return (uint32_t)crpc_min((r >> 8) % 3 * 16, s->max_msg);
	default:
		return (uint32_t)((r >> 8) % 100 % (s->max_msg + 1));
	}
}

/* The answer that a request's sum leads to. */
static bool
is_rejected(uint64_t sum)
{
	return sum % 13 == 0;
}

static uint32_t
reply_len(uint64_t sum, uint32_t resp_max)
{
	return sum % 5 == 0 ? resp_max : (uint32_t)((sum >> 16) % (resp_max + 1));
}

/* Make one call or one-way send, if there is room. */
static void
do_call(struct scenario *s, int me)
{
	struct side *side = &s->side[me];
	uint32_t e = (uint32_t)(crpc_paper_rnd(&s->p.w) % s->p.neps), len = size_rnd(s);
	uint32_t resp_max = size_rnd(s);
	struct side_call *call = &side->call[side->next_cookie % CALLS_MAX];
	bool oneway = crpc_paper_rnd(&s->p.w) % 6 == 0, inplace = crpc_paper_rnd(&s->p.w) % 3 == 0;
	static uint8_t buf[1 << 16];
	void *data;
	int rc;

	if (call->open)
		return;
	fill(buf, len, crpc_paper_rnd(&s->p.w));
	if (len >= 8)
		memcpy(buf, &side->next_seq[e], 8);
	if (oneway) {
		rc = crpc_copyrpc_notify(s->p.ep[me][e], s->p.w.now_ns, buf, len);
		side->sent_oneway += rc == 0;
	} else if (inplace) {
		rc = crpc_copyrpc_call_reserve(s->p.ep[me][e], s->p.w.now_ns, len, resp_max, &data);
		if (rc == 0) {
			memcpy(data, buf, len);
			crpc_copyrpc_call_commit(s->p.ep[me][e], s->p.w.now_ns, side->next_cookie);
		}
	} else {
		rc = crpc_copyrpc_call(s->p.ep[me][e], s->p.w.now_ns, buf, len, resp_max,
				side->next_cookie);
	}
	if (rc == -EAGAIN)
		return;
	assert_int_equal(rc, 0);
	side->next_seq[e] += len >= 8;
	s->bytes += len;
	if (oneway)
		return;
	*call = (struct side_call){.open = true, .sum = sum_of(buf, len), .resp_max = resp_max};
	side->next_cookie++;
	side->accepted++;
}

/* The completions of the poll before are still what they were. */
static void
check_old_done(struct side *side)
{
	uint16_t i;

	for (i = 0; i < side->ndone; i++) {
		if (side->done[i].status == 0)
			assert_int_equal(sum_of(side->done[i].data, side->done[i].len),
					side->done_sum[i]);
	}
}

static void
do_poll(struct scenario *s, int me)
{
	struct side *side = &s->side[me];
	uint16_t n = (uint16_t)(1 + crpc_paper_rnd(&s->p.w) % CRPC_BURST_MAX), i;
	static uint8_t want[1 << 16];
	struct side_call *call;

	check_old_done(side);
	side->ndone = crpc_copyrpc_poll(s->p.ctx[me], s->p.w.now_ns, side->done, n);
	assert_in_range(side->ndone, 0, n);
	for (i = 0; i < side->ndone; i++) {
		call = &side->call[side->done[i].cookie % CALLS_MAX];
		assert_true(call->open);
		call->open = false;
		side->completed++;
		if (is_rejected(call->sum)) {
			assert_int_equal(side->done[i].status, -EUCLEAN);
			assert_null(side->done[i].data);
			continue;
		}
		assert_int_equal(side->done[i].status, 0);
		assert_int_equal(side->done[i].len, reply_len(call->sum, call->resp_max));
		fill(want, side->done[i].len, call->sum);
		assert_memory_equal(want, side->done[i].data, side->done[i].len);
		side->done_sum[i] = sum_of(side->done[i].data, side->done[i].len);
		s->bytes += side->done[i].len;
	}
}

static void
do_recv(struct scenario *s, int me)
{
	struct side *side = &s->side[me];
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n = (uint16_t)(crpc_paper_rnd(&s->p.w) % CRPC_BURST_MAX), i;
	struct side_held *held;
	uint64_t seq;

	n = (uint16_t)crpc_min(n, HELD_MAX - side->nheld);
	n = crpc_copyrpc_recv(s->p.ctx[me], s->p.w.now_ns, req, n);
	for (i = 0; i < n; i++) {
		held = &side->held[side->nheld++];
		held->token = req[i].token;
		held->data = req[i].data;
		held->len = req[i].len;
		held->sum = sum_of(req[i].data, req[i].len);
		held->copy = malloc(held->len + 1);
		assert_non_null(held->copy);
		memcpy(held->copy, held->data, held->len);
		assert_int_equal((uintptr_t)held->data % 16, 0);
		side->got_requests++;
		if (held->len >= 8) {
			memcpy(&seq, held->data, 8);
			assert_int_equal(seq, side->seen_seq[req[i].peer - 100]++);
		}
	}
}

/* End one held request, any of them. */
static void
do_answer(struct scenario *s, int me)
{
	struct side *side = &s->side[me];
	static uint8_t buf[1 << 16];
	struct side_held *held;
	int64_t max;
	uint32_t len;
	void *data;

	if (side->nheld == 0)
		return;
	held = &side->held[crpc_paper_rnd(&s->p.w) % side->nheld];
	assert_memory_equal(held->copy, held->data, held->len);
	max = crpc_copyrpc_reply_max(s->p.ctx[me], held->token);
	if (max == -EOPNOTSUPP) {
		assert_int_equal(crpc_copyrpc_reply(
						 s->p.ctx[me], s->p.w.now_ns, held->token, buf, 0),
				-EOPNOTSUPP);
		assert_int_equal(crpc_copyrpc_release(s->p.ctx[me], s->p.w.now_ns, held->token), 0);
		side->got_oneway++;
	} else if (is_rejected(held->sum)) {
		assert_int_equal(
			crpc_copyrpc_fail(s->p.ctx[me], s->p.w.now_ns, held->token, -EUCLEAN), 0);
	} else {
		assert_in_range(max, 0, s->max_msg);
		len = reply_len(held->sum, (uint32_t)max);
		if (crpc_paper_rnd(&s->p.w) % 2) {
			fill(buf, len, held->sum);
			assert_int_equal(crpc_copyrpc_reply(s->p.ctx[me], s->p.w.now_ns,
							 held->token, buf, len),
					0);
		} else {
			assert_int_equal(crpc_copyrpc_reply_reserve(s->p.ctx[me], s->p.w.now_ns,
						 held->token, len, &data),
				0);
			fill(data, len, held->sum);
			crpc_copyrpc_reply_commit(s->p.ctx[me], s->p.w.now_ns);
		}
	}
	assert_int_equal(crpc_copyrpc_reply(s->p.ctx[me], s->p.w.now_ns, held->token, buf, 0),
			-ENOENT);
	free(held->copy);
	*held = side->held[--side->nheld];
}

/* One thing that one side does, or the wire. */
static void
turn(struct scenario *s, bool calls)
{
	struct crpc_paper *w = &s->p.w;
	int me = (int)(crpc_paper_rnd(w) % 2);
	uint64_t n = crpc_paper_rnd(w) % 16;

	w->now_ns += crpc_paper_rnd(w) % 1000;
	switch (crpc_paper_rnd(w) % 8) {
	case 0:
	case 1:
		for (; n != 0 && calls; n--)
			do_call(s, me);
		break;
	case 2:
		crpc_copyrpc_flush(s->p.ctx[me], w->now_ns);
		break;
	case 3:
		do_poll(s, me);
		break;
	case 4:
		do_recv(s, me);
		break;
	case 5:
		for (; n != 0 && crpc_paper_rnd(w) % s->hold == 0; n--)
			do_answer(s, me);
		break;
	case 6:
		crpc_paper_post_limit(s->p.dev[me], n > 8 ? UINT32_MAX : (uint32_t)n % 3);
		break;
	default:
		for (; n != 0; n--)
			crpc_paper_step(w);
		break;
	}
}

static void
audit(struct scenario *s)
{
	int side;

	for (side = 0; side < 2; side++) {
		if (crpc_copyrpc_check(s->p.ctx[side], false) != 0)
			fail_msg("seed %llu: %s", (unsigned long long)s->seed, crpc_log_last());
	}
}

/* Positions start anywhere, often just before a power of two that a counter could overflow at. */
static uint64_t
start_rnd(struct crpc_paper *w)
{
	static const uint64_t at[] = {0, 1ull << 32, 1ull << 34, 1ull << 63, 0};

	return (at[crpc_paper_rnd(w) % CRPC_DIM(at)] - crpc_paper_rnd(w) % 9000) & ~15ull;
}

/* What all seeds together must have met, or the test is weaker than it says. */
static struct crpc_copyrpc_stats met;

static void
met_add(const struct crpc_copyrpc_stats *stats)
{
	met.rpc.calls += stats->rpc.calls;
	met.wraps += stats->wraps;
	met.sq_full += stats->sq_full;
	met.age_flushes += stats->age_flushes;
	met.full_flushes += stats->full_flushes;
	met.again_window += stats->again_window;
	met.again_reply += stats->again_reply;
	met.again_inflight += stats->again_inflight;
	met.updates_sent += stats->updates_sent;
	met.updates_received += stats->updates_received;
	met.messages_sent += stats->messages_sent;
	met.batches_sent += stats->batches_sent;
	met.messages_received += stats->messages_received;
	met.batches_received += stats->batches_received;
}

static void
run_one(uint64_t seed, uint32_t turns)
{
	struct scenario *s = calloc(1, sizeof(*s));
	struct crpc_paper w = {.rng = seed * 2654435761u + 12345};
	struct crpc_copyrpc_conf conf[2];
	struct crpc_copyrpc_ep_conf mode = {0};
	uint32_t i, ring = 4096u << (crpc_paper_rnd(&w) % 4 == 0 ? crpc_paper_rnd(&w) % 3 : 0);
	int side;

	assert_non_null(s);
	s->seed = seed;
	s->max_msg = (uint32_t)(crpc_paper_rnd(&w) % 2 ? CRPC_COPYRPC_MSG_MAX(ring)
						       : 1 + crpc_paper_rnd(&w) % 300);
	s->hold = 1 + (uint32_t)(crpc_paper_rnd(&w) % 6);
	for (side = 0; side < 2; side++) {
		conf[side] = (struct crpc_copyrpc_conf){
			.max_eps = PAIR_EPS,
			.ring_size = ring,
			.max_msg = s->max_msg,
			.max_inflight = 1u << (crpc_paper_rnd(&w) % 8),
			.flush = (enum crpc_copyrpc_flush_policy)(crpc_paper_rnd(&w) % 4),
			.max_outstanding = 1 + (uint32_t)(crpc_paper_rnd(&w) % 3),
			.batch_max = crpc_paper_rnd(&w) % 2 ? ring : 512,
			.sq_depth = 8,
			.rq_depth = 1 + (uint32_t)(crpc_paper_rnd(&w) % 8),
			.age_ns = 1000 + crpc_paper_rnd(&w) % 50000,
			.timeout_ns = UINT64_C(1) << 60,
			.initial_pos = start_rnd(&w),
		};
	}
	mode.flow = (enum crpc_copyrpc_flow)(crpc_paper_rnd(&w) % 3);
	mode.arrival = (enum crpc_copyrpc_arrival)(crpc_paper_rnd(&w) % 2);
	pair_init3(&s->p, &conf[0], &conf[1], 1 + (uint32_t)(crpc_paper_rnd(&w) % 3), seed, mode);
	s->p.w.tear = crpc_paper_rnd(&w) % 2 * 3000; /* batches arrive in pieces */
	for (i = 0; i < turns; i++) {
		turn(s, true);
		if (i % 128 == 0)
			audit(s);
	}
	s->hold = 1;
	for (i = 0; i < 200000; i++) {
		turn(s, false);
		if (i % 128 == 0)
			audit(s);
		if (s->side[0].completed == s->side[0].accepted &&
				s->side[1].completed == s->side[1].accepted &&
				s->side[0].nheld == 0 && s->side[1].nheld == 0 &&
				s->side[0].got_oneway == s->side[1].sent_oneway &&
				s->side[1].got_oneway == s->side[0].sent_oneway)
			break;
	}
	for (side = 0; side < 2; side++) {
		if (s->side[side].completed != s->side[side].accepted)
			crpc_copyrpc_dump(s->p.ctx[side], stderr);
		assert_int_equal(s->side[side].completed, s->side[side].accepted);
		assert_int_equal(s->side[side].got_oneway, s->side[!side].sent_oneway);
		assert_int_equal(s->side[side].nheld, 0);
		crpc_paper_post_limit(s->p.dev[side], UINT32_MAX);
		met.reads_sent += crpc_paper_counts(s->p.dev[side])->reads;
		if (mode.flow != CRPC_COPYRPC_FLOW_READ)
			assert_int_equal(crpc_paper_counts(s->p.dev[side])->reads, 0);
		if (mode.arrival == CRPC_COPYRPC_MEMORY)
			assert_int_equal(crpc_paper_counts(s->p.dev[side])->write_imms, 0);
		else
			assert_int_equal(crpc_paper_counts(s->p.dev[side])->writes, 0);
	}
	pair_at_rest(&s->p);
	for (side = 0; side < 2; side++) {
		met_add(crpc_copyrpc_stats(s->p.ctx[side]));
		assert_int_equal(crpc_copyrpc_stats(s->p.ctx[side])->rpc.malformed, 0);
		assert_int_equal(crpc_copyrpc_stats(s->p.ctx[side])->ep_errors, 0);
	}
	pair_fini(&s->p);
	free(s);
}

static uint64_t seed_now;

static void
random_scenarios_complete_every_call_once(void **state)
{
	const char *one = getenv("CRPC_SEED"), *many = getenv("CRPC_SEEDS");
	uint64_t seeds = many != NULL ? strtoull(many, NULL, 0) : 1000;

	if (one != NULL) {
		run_one(strtoull(one, NULL, 0), TURNS);
		return;
	}
	for (seed_now = 1; seed_now <= seeds; seed_now++)
		run_one(seed_now, TURNS);
	assert_true(met.wraps > 0 && met.sq_full > 0 && met.age_flushes > 0);
	print_message("calls %llu, batches %llu, messages %llu, wraps %llu, sq_full %llu, age "
		      "%llu, full %llu, "
		      "window %llu, reply %llu, inflight %llu, updates %llu\n",
		(unsigned long long)met.rpc.calls, (unsigned long long)met.batches_sent,
		(unsigned long long)met.messages_sent, (unsigned long long)met.wraps,
		(unsigned long long)met.sq_full, (unsigned long long)met.age_flushes,
		(unsigned long long)met.full_flushes, (unsigned long long)met.again_window,
		(unsigned long long)met.again_reply, (unsigned long long)met.again_inflight,
		(unsigned long long)met.updates_sent);
	assert_true(met.full_flushes > 0 && met.again_window > 0 && met.again_reply > 0);
	assert_true(met.again_inflight > 0 && met.updates_sent > 0);
	assert_true(met.messages_sent > 2 * met.batches_sent);
	assert_true(met.reads_sent > 0);
	/* an update of a memory word is not counted on arrival */
	assert_true(met.updates_received > 0 && met.updates_received < met.updates_sent);
	assert_int_equal(met.messages_sent, met.messages_received);
	assert_int_equal(met.batches_sent, met.batches_received);
}

static int
print_seed(void **state)
{
	/* runs after the test too when it failed: a failed seed is the one we stopped at */
	fprintf(stderr, "last seed %llu (CRPC_SEED=%llu runs it alone, CRPC_SEEDS=n runs more)\n",
			(unsigned long long)seed_now, (unsigned long long)seed_now);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(random_scenarios_complete_every_call_once, print_seed),
	};

	return cmocka_run_group_tests_name("copyrpc scenario", tests, NULL, NULL);
}
