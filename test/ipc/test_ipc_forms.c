/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The forms of a call that only ipc has: bursts, own deadlines, synchronous calls. Server and
 * client take turns in one thread where order matters.
 */
#include "ipc_test.h"

#include <pthread.h>

#include "crpc_idle.h"
#include "ipc_client.h"
#include "ipc_run.h"
#include "ipc_inline.h"
#include "ipc_server.h"

#define DEPTH 32

/* Answer everything, by one reply_burst with the answers in msgs. */
static uint32_t
serve_burst(struct crpc_ipc_server *s, uint32_t len)
{
	static uint8_t msgs[64 * 256];
	struct crpc_req req[64];
	uint16_t n = take(s, req, 64), i;

	for (i = 0; i < n; i++)
		memcpy(msgs + (size_t)i * len, req[i].data, crpc_min(len, req[i].len));
	assert_int_equal(reply_burst(s, req, msgs, len, n), n);
	return n;
}

/* ---- bursts ---- */

/* Every length, every number, from every place in the ring: byte for byte and in order. */
TEST(bursts_carry_what_single_calls_carry)
{
	static const uint32_t lens[] = {0, 1, 3, 4, 7, 8, 15, 16, 24, 31, 32, 33, 56, 64, 65, 200};
	static uint8_t msgs[DEPTH * 200];
	struct crpc_ipc_server *s = keep_server(new_server(2, DEPTH, 200, 200));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_done done[DEPTH];
	uint64_t cookies[DEPTH];

	for (uint32_t round = 0; round < 400; round++) {
		uint32_t len = lens[round % CRPC_DIM(lens)];
		uint32_t n = (uint32_t)(1 + rng() % DEPTH);

		for (uint32_t i = 0; i < n; i++)
			cookies[i] = rng();
		for (uint32_t k = 0; k < n * len; k++)
			msgs[k] = (uint8_t)rng();
		assert_int_equal(call_burst(c, msgs, len, cookies, (uint16_t)n), n);
		assert_int_equal(crpc_ipc_client_open(c), n);
		assert_int_equal(round & 1 ? serve(s) : serve_burst(s, len), n);
		assert_int_equal(poll_done(c, done, DEPTH), n);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(done[i].cookie, cookies[i]);
			assert_int_equal(done[i].status, 0);
			assert_int_equal(done[i].len, len);
			assert_memory_equal(done[i].data, msgs + (size_t)i * len, len);
		}
	}
}

TEST(a_burst_stops_at_what_a_call_refuses)
{
	static uint8_t msgs[2 * DEPTH * 100];
	struct crpc_ipc_server *s = keep_server(new_server(2, DEPTH, 56, 56));
	struct crpc_ipc_client *c = new_client(s), *other = new_client(s);
	struct crpc_req req[DEPTH + 4];
	struct crpc_done done[DEPTH];
	uint64_t cookies[2 * DEPTH] = {0};

	assert_non_null(other);
	assert_int_equal(call_burst(c, msgs, 57, cookies, 4), 0);
	assert_int_equal(call_burst(c, msgs, 32, cookies, 2 * DEPTH), DEPTH);
	assert_int_equal(call_burst(c, msgs, 32, cookies, 1), 0);
	assert_ok(call(other, msgs, 32, 0));
	assert_int_equal(take(s, req, DEPTH + 4), DEPTH + 1);
	/* Too long for any; a token that is used up; answers to two clients. */
	assert_int_equal(reply_burst(s, req, msgs, 57, DEPTH + 1), 0);
	assert_ok(release(s, req[3].token));
	assert_int_equal(reply_burst(s, req, msgs, 8, DEPTH + 1), 3);
	assert_int_equal(reply_burst(s, req + 4, msgs, 8, DEPTH - 3), DEPTH - 3);
	assert_int_equal(poll_done(c, done, DEPTH), DEPTH);
	assert_int_equal(poll_done(other, done, DEPTH), 1);
	crpc_ipc_client_close(c);
	crpc_ipc_client_close(other);
}

/* A call that stays open is stepped over by bursts too, through many laps. */
TEST(bursts_step_over_a_slow_call)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 8, 56, 56));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_req slow[2], req[8];
	struct crpc_done done[8];
	uint64_t msgs[6], cookies[6], round, i;

	for (i = 0; i < 2; i++) {
		assert_ok(call(c, "slow", 4, 900 + i));
		assert_int_equal(take(s, &slow[i], 1), 1);
	}
	for (round = 0; round < 2000; round++) {
		for (i = 0; i < 6; i++)
			msgs[i] = cookies[i] = round * 6 + i;
		assert_int_equal(call_burst(c, msgs, 8, cookies, 6), 6);
		assert_int_equal(take(s, req, 8), 6);
		for (i = 0; i < 6; i++)
			assert_int_equal(*(const uint64_t *)req[i].data, msgs[i]);
		assert_int_equal(reply_burst(s, req, msgs, 8, 6), 6);
		assert_int_equal(poll_done(c, done, 8), 6);
		for (i = 0; i < 6; i++)
			assert_int_equal(done[i].cookie, cookies[i]);
		if (round == 1000) { /* one of the two ends in the middle */
			assert_ok(release(s, slow[0].token));
			assert_int_equal(poll_done(c, done, 8), 1);
			assert_int_equal(done[0].cookie, 900);
		}
	}
	assert_memory_equal(slow[1].data, "slow", 4);
	assert_ok(release(s, slow[1].token));
	assert_int_equal(poll_done(c, done, 8), 1);
	assert_int_equal(done[0].cookie, 901);
}

/*
 * A slot that calls went past for exactly 2^32 calls still holds the word of its last use, with the
 * sequence number that comes again. It must not be taken for a new request.
 */
TEST(an_old_slot_does_not_speak_again)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 3, 8, 8));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_req slow, req;
	struct crpc_done done;

	assert_ok(call(c, "l", 1, 1)); /* the lone slot stays busy */
	assert_ok(call(c, "a", 1, 1)); /* number 2, slot 0 */
	assert_int_equal(take(s, &req, 1), 1);
	assert_int_equal(take(s, &slow, 1), 1);
	/* slots 1, 2, 3, and 1 again promised: 0 is stepped over */
	for (uint32_t i = 2; i <= 4; i++) {
		assert_ok(call(c, "b", 1, i));
		assert_int_equal(take(s, &req, 1), 1);
		assert_ok(release(s, req.token));
		assert_int_equal(poll_done(c, &done, 1), 1);
	}
	assert_int_equal(c->next_slot, 1);
	assert_ok(release(s, slow.token));
	assert_int_equal(poll_done(c, &done, 1), 1);
	/* So that the call behind the one in slot 3 has number 2 again, and is promised slot 0. */
	c->req_seq = s->peers[0].req_seq = UINT64_C(0x1ffffffff);
	for (uint32_t i = 0; i < 3; i++) {
		assert_ok(call(c, "c", 1, i));
		assert_int_equal(take(s, &req, 1), 1);
		assert_ok(release(s, req.token));
		assert_int_equal(poll_done(c, &done, 1), 1);
	}
	assert_int_equal(c->next_slot, 0);
	assert_int_equal((uint32_t)s->peers[0].req_seq, 2);
	assert_int_equal(take(s, &req, 1), 0);
}

/*
 * Answers whose bytes are what the words of later responses will be: each place of the ring, lap by
 * lap, is polled where such an answer stood. None may be taken for a response.
 */
TEST(answers_do_not_look_like_words)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 16, 32, 32));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_req req[16];
	struct crpc_done done[16];
	uint64_t msgs[16][4], cookies[16] = {0}, seq, round, n, i, k, runs = 0;

	for (round = 0; round < 20000; round++) {
		n = round % 3 == 0 ? 1 + rng() % 3 : 4 + rng() % 13;
		assert_int_equal(call_burst(c, msgs, 8, cookies, (uint16_t)n), n);
		assert_int_equal(take(s, req, 16), n);
		seq = s->peers[0].resp_seq;
		for (i = 0; i < n; i++)
			for (k = 0; k < 4; k++) /* some later response's, or near it */
				msgs[i][k] = ipc_word((uint32_t)(seq + i / 2 + rng() % 3 - 1 +
							      (rng() % 4) * s->lay.resp_slots),
					8, (uint32_t)(rng() % 16));
		assert_int_equal(reply_burst(s, req, msgs, 32, (uint16_t)n), n);
		runs += (ipc_word_slot(crpc_load_relaxed(&c->head->word)) & IPC_SLOT_RUN) != 0;
		for (i = 0; i < n; i += k) {
			k = poll_done(c, done, (uint16_t)(1 + rng() % 16));
			assert_true(k > 0 && i + k <= n);
			for (uint64_t j = 0; j < k; j++)
				assert_memory_equal(done[j].data, msgs[i + j], 32);
		}
		assert_int_equal(poll_done(c, done, 16), 0);
		assert_ok(crpc_ipc_client_status(c));
	}
	assert_true(runs > 1000);
}

/* One token twice in a burst is one request: the second is refused as reply() would. */
TEST(a_burst_answers_a_request_once)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 16, 32, 32));
	struct crpc_ipc_client *c = keep(new_ring_client(s));
	struct crpc_req req[16], twice[16];
	struct crpc_ipc_server_stats st;
	uint64_t msgs[16][4] = {0}, cookies[16] = {0};
	struct crpc_done done[16];
	uint32_t at, i;

	for (i = 0; i < 4; i++) { /* past the lap without runs */
		assert_int_equal(call_burst(c, msgs, 32, cookies, 16), 16);
		assert_int_equal(take(s, req, 16), 16);
		assert_int_equal(reply_burst(s, req, msgs, 32, 16), 16);
		assert_int_equal(poll_done(c, done, 16), 16);
	}
	for (at = 1; at < 16; at++) {
		assert_int_equal(call_burst(c, msgs, 32, cookies, 16), 16);
		assert_int_equal(take(s, req, 16), 16);
		memcpy(twice, req, sizeof(twice));
		twice[at] = req[rng() % at];
		assert_int_equal(reply_burst(s, twice, msgs, 32, 16), at);
		assert_int_equal(reply_burst(s, req + at, msgs, 32, (uint16_t)(16 - at)), 16 - at);
		crpc_ipc_server_stats(s, &st);
		assert_int_equal(st.open, 0);
		assert_int_equal(st.stale, at);
		for (i = 0; i < 16;)
			i += poll_done(c, done, 16);
		assert_int_equal(i, 16);
		assert_ok(crpc_ipc_client_status(c));
	}
}

struct liar {
	struct crpc_ipc_server *s;
	_Atomic uint32_t stop;
};

/*
 * Answers to n requests, by a burst of what may be words of later responses; the last 8 bytes echo.
 */
static void *
wordy_thread(void *arg)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct liar *l = arg;
	struct crpc_req req[16];
	uint64_t msgs[16][4], seq, i, k, r = 88172645463325252u;

	while (crpc_load_acquire(&l->stop) == 0) {
		uint16_t n = take(l->s, req, 16);

		seq = l->s->peers[0].resp_seq;
		for (i = 0; i < n; i++) {
			for (k = 0; k < 3; k++) {
				rnd(&r);
				msgs[i][k] = ipc_word((uint32_t)(seq + r % 24), 8, r >> 40 & 15);
			}
			msgs[i][3] = *(const uint64_t *)req[i].data;
		}
		reply_burst(l->s, req, msgs, 32, n);
		if (n != 0 && r % 8 == 0)
			crpc_ipc_server_reap(l->s);
		crpc_idle_turn(&idle, n);
	}
	return NULL;
}

TEST(a_poller_at_work_is_not_fooled)
{
	struct liar l = {.s = new_server(1, 16, 32, 32)};
	struct crpc_ipc_client *c = new_client(l.s);
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	uint64_t msgs[16], next = 0, finished = 0;
	struct crpc_done done[16];
	pthread_t t;

	assert_non_null(c);
	assert_ok(pthread_create(&t, NULL, wordy_thread, &l));
	while (finished < 200000) {
		uint32_t n = 16 - crpc_ipc_client_open(c);

		for (uint32_t i = 0; i < n; i++)
			msgs[i] = next++;
		assert_int_equal(call_burst(c, msgs, 8, msgs, (uint16_t)n), n);
		n = poll_done(c, done, 16);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(done[i].status, 0);
			assert_int_equal(done[i].len, 32);
			assert_int_equal(((const uint64_t *)done[i].data)[3], done[i].cookie);
		}
		finished += n;
		crpc_idle_turn(&idle, n);
	}
	crpc_store_release(&l.stop, 1);
	pthread_join(t, NULL);
	crpc_ipc_client_close(c);
	crpc_ipc_server_free(l.s);
}

/* What a poll returned of a run stays until the next one, while the server answers a depth more. */
TEST(completions_of_runs_stay_until_the_next_poll)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 16, 32, 32));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_done held[16], done[16];
	uint64_t msgs[16], cookies[16], next = 0;
	uint32_t n_held = 0, round, i, n, k;

	for (round = 0; round < 3000; round++) {
		n = 16 - crpc_ipc_client_open(c);
		for (i = 0; i < n; i++)
			msgs[i] = cookies[i] = next++;
		assert_int_equal(call_burst(c, msgs, 8, cookies, (uint16_t)n), n);
		while (serve_burst(s, 8) != 0)
			;
		for (i = 0; i < n_held; i++)
			assert_int_equal(*(const uint64_t *)held[i].data, held[i].cookie);
		k = poll_done(c, done, (uint16_t)(1 + rng() % 16));
		for (i = 0; i < k; i++)
			assert_int_equal(*(const uint64_t *)done[i].data, done[i].cookie);
		memcpy(held, done, sizeof(held));
		n_held = k;
	}
}

/* Call and receive n requests of one byte. */
static void
open_calls(struct crpc_ipc_server *s, struct crpc_ipc_client *c, struct crpc_req *req, uint16_t n)
{
	static const uint8_t msgs[16];
	static const uint64_t cookies[16];

	assert_int_equal(call_burst(c, msgs, 1, cookies, n), n);
	assert_int_equal(take(s, req, n), n);
}

/*
 * Of k answers given together, one poll takes all but the last. The next takes that one and a
 * window more, and all of them stay while the server answers another whole window. Each size that
 * may travel in a run, each k.
 */
TEST(a_split_run_stays_while_a_window_is_answered)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 16, 32, 56));
	struct crpc_ipc_client *c = keep(new_ring_client(s));
	uint8_t first[16][32], other[56];
	struct crpc_req req[16], more[16];
	struct crpc_done done[16];

	memset(other, 0xee, sizeof(other));
	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t len = 1; len <= 32; len++)
			for (uint32_t k = 4; k <= 16; k++) {
				for (uint32_t i = 0; i < sizeof(first); i++)
					((uint8_t *)first)[i] = (uint8_t)rng();
				open_calls(s, c, req, 16);
				assert_int_equal(reply_burst(s, req, first, len, (uint16_t)k), k);
				assert_int_equal(poll_done(c, done, (uint16_t)(k - 1)), k - 1);
				open_calls(s, c, more, (uint16_t)(k - 1));
				for (uint32_t i = k; i < 16; i++)
					reply(s, req[i].token, other, 56);
				for (uint32_t i = 0; i < k - 1; i++)
					reply(s, more[i].token, other, 56);
				assert_int_equal(poll_done(c, done, 16), 16);
				open_calls(s, c, req, 16);
				for (uint32_t i = 0; i < 16; i++)
					reply(s, req[i].token, first, 56);
				assert_int_equal(done[0].len, len);
				assert_memory_equal(
					done[0].data, (uint8_t *)first + (k - 1) * len, len);
				for (uint32_t i = 1; i < 16; i++)
					assert_memory_equal(done[i].data, other, 56);
				assert_int_equal(poll_done(c, done, 16), 16);
			}
}

/* Once in 2^30 responses each place of the ring gets a word, whatever the pattern of runs is. */
TEST(an_epoch_starts_with_a_lap_without_runs)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 8, 32, 32));
	struct crpc_ipc_client *c = keep(new_client(s));
	uint64_t msgs[8] = {0}, cookies[8] = {0}, seq, e, round, from;
	struct crpc_done done[8];
	bool run;

	crpc_ipc_server_reap(s);
	for (e = 1; e <= 4; e++) { /* the fourth is where the numbers wrap */
		from = e * IPC_RUN_EPOCH - 64;
		c->resp_seq = s->peers[0].resp_seq = from;
		c->head = ipc_slot_at(c->resp, (uint32_t)from & c->resp_mask, c->resp_slot);
		for (round = 0; round < 32; round++) {
			seq = s->peers[0].resp_seq;
			assert_int_equal(call_burst(c, msgs, 8, cookies, 8), 8);
			assert_int_equal(serve_burst(s, 8), 8);
			run = (ipc_word_slot(crpc_load_relaxed(&c->head->word)) & IPC_SLOT_RUN) !=
				0;
			assert_int_equal(run, seq % IPC_RUN_EPOCH >= s->lay.resp_slots);
			assert_int_equal(poll_done(c, done, 8), 8);
		}
	}
}

/* ---- deadlines ---- */

static struct crpc_ipc_client *
client_with_deadline(struct crpc_ipc_server *s, uint64_t us)
{
	struct crpc_ipc_client_conf conf = {.server = s, .call_timeout_us = us};

	return crpc_ipc_client_connect(&conf);
}

/* Poll until something completes, for a bounded time. */
static uint32_t
poll_soon(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint64_t end = now_ms() + 5000;
	uint32_t got;

	while ((got = poll_done(c, done, n)) == 0)
		assert_true(now_ms() < end);
	return got;
}

/* A call's own deadline goes before the client's, either way. */
TEST(a_call_may_have_its_own_deadline)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 4, 16, 16));
	struct crpc_ipc_client *c = keep(client_with_deadline(s, 3000));
	struct crpc_req req[4];
	struct crpc_done done[4];

	assert_ok(call_timed(c, "x", 1, 1, 0));       /* never */
	assert_ok(call_timed(c, "x", 1, 2, 1000000)); /* 1 s */
	assert_ok(call(c, "x", 1, 3));                /* 3 ms */
	assert_ok(call_timed(c, "x", 1, 4, 1));
	assert_int_equal(poll_soon(c, done, 4), 1);
	assert_int_equal(done[0].cookie, 4);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_int_equal(poll_soon(c, done, 4), 1);
	assert_int_equal(done[0].cookie, 3);
	for (uint64_t end = now_ms() + 30; now_ms() < end;)
		assert_int_equal(poll_done(c, done, 4), 0);
	assert_int_equal(poll_soon(c, done, 4), 1);
	assert_int_equal(done[0].cookie, 2);
	assert_int_equal(take(s, req, 4), 4);
	assert_ok(reply(s, req[0].token, "y", 1));
	assert_int_equal(poll_soon(c, done, 4), 1);
	assert_int_equal(done[0].cookie, 1);
	assert_int_equal(done[0].status, 0);
}

/* A call that needs more room for its answer than the server's answers have is refused. */
TEST(answers_larger_than_the_servers_are_refused)
{
	static const uint64_t cookies[2];
	struct crpc_ipc_server *s = keep_server(new_server(1, 4, 100, 200));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_ipc_call_room room;
	uint64_t now = now_ns();

	assert_int_equal(crpc_ipc_client_call(c, now, "x", 1, 201, 1), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_call(c, now, "x", 1, UINT32_MAX, 1), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_call_timed(c, now, "x", 1, 201, 1, 5), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_call_burst(c, now, "xy", 1, 201, cookies, 2), 0);
	assert_int_equal(crpc_ipc_client_call_reserve(c, 1, 201, &room), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_open(c), 0);
	assert_ok(crpc_ipc_client_call(c, now, "x", 1, 200, 1));
	assert_int_equal(crpc_ipc_client_call(c, now, "x", 1, 201, 1), -EMSGSIZE);
}

TEST(runs_are_at_most_as_long_as_their_calls_allow)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 8, 56, 56));
	struct crpc_ipc_client *c = keep(new_client(s));
	const uint64_t cookies[8] = {0};
	uint8_t msgs[8 * 33] = {0};
	uint64_t now = now_ns();
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint32_t i, k;

	for (i = 0; i < 40; i++) { /* past the lap without runs */
		k = i % 32;
		assert_int_equal(crpc_ipc_client_call_burst(c, now, msgs, 8, k, cookies, 8), 8);
		assert_int_equal(crpc_ipc_server_recv(s, now, req, 8), 8);
		assert_int_equal(crpc_ipc_server_reply_burst(s, now, req, msgs, k + 1, 8), 0);
		assert_int_equal(crpc_ipc_server_reply_burst(s, now, req, msgs, k, 8), 8);
		assert_int_equal(crpc_ipc_client_poll(c, now, done, 8), 8);
	}
}

/* And a client takes no longer one of a server that lies. */
TEST(a_reply_longer_than_its_call_allows_breaks_the_protocol)
{
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c;
	const uint64_t cookies[8] = {0};
	uint8_t msgs[8 * 32] = {0};
	uint64_t now = now_ns();
	struct crpc_done done[8];
	struct crpc_req req[8];

	for (uint32_t way = 0; way < 4; way++) {
		/* Alone; through the ring; in a run; through the ring to the fast form of poll. */
		uint16_t n = way == 2 ? 8 : 1;

		assert_non_null(s = new_server(1, 8, 56, 56));
		assert_non_null(c = way == 0 ? new_client(s) : new_ring_client(s));
		assert_int_equal(crpc_ipc_server_recv(s, now, req, 8), 0);
		s->peers[0].resp_seq = c->resp_seq = 17; /* past the lap without runs */
		c->head = ipc_slot_at(c->resp, 1, c->resp_slot);
		assert_int_equal(crpc_ipc_client_call_burst(c, now, msgs, 8, 10, cookies, n), n);
		assert_int_equal(crpc_ipc_server_recv(s, now, req, 8), n);
		for (uint32_t i = 0; i <= c->req_mask + 1; i++)
			crpc_store_relaxed(&c->allow[i], 32);
		assert_int_equal(crpc_ipc_server_reply_burst(s, now, req, msgs, 32, n), n);
		if (way == 3)
			assert_int_equal(crpc_ipc_client_poll_plain(c, now, done), -1);
		assert_int_equal(crpc_ipc_client_poll(c, now, done, 8), n);
		assert_int_equal(done[0].status, -ECONNRESET);
		assert_int_equal(crpc_ipc_client_status(c), -EPROTO);
		crpc_ipc_client_close(c);
		crpc_ipc_server_free(s);
	}
}

/* However long a timeout is, it does not wrap to a short one. */
TEST(timeouts_do_not_wrap)
{
	static const uint64_t us[] = {UINT64_MAX, UINT64_MAX / 1000, UINT64_MAX / 1000 + 1};
	struct crpc_ipc_server *s = keep_server(new_server(1, 4, 16, 16));
	struct crpc_done done[4];

	for (uint32_t i = 0; i < CRPC_DIM(us); i++) {
		struct crpc_ipc_client *c = client_with_deadline(s, us[i]);

		assert_non_null(c);
		assert_ok(call(c, "x", 1, 1));
		assert_ok(call_timed(c, "x", 1, 2, us[i]));
		for (uint64_t end = now_ms() + 10; now_ms() < end;)
			assert_int_equal(poll_done(c, done, 4), 0);
		assert_int_equal(serve(s), 2);
		assert_int_equal(poll_done(c, done, 4), 2);
		assert_int_equal(done[0].status, 0);
		assert_int_equal(done[1].status, 0);
		crpc_ipc_client_close(c);
		crpc_ipc_server_reap(s);
	}
}

/* ---- synchronous ---- */

struct echo {
	struct crpc_ipc_server *s;
	_Atomic uint32_t stop;
};

/* Echoes; a request that starts with 'n' gets no answer until the end. */
static void *
echo_thread(void *arg)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct echo *e = arg;
	struct crpc_req req[4], held[4];
	uint16_t n, i, n_held = 0;

	while (crpc_load_acquire(&e->stop) == 0) {
		n = take(e->s, req, 4);
		for (i = 0; i < n; i++) {
			if (req[i].len > 0 && *(const char *)req[i].data == 'n')
				held[n_held++] = req[i];
			else
				reply(e->s, req[i].token, req[i].data, req[i].len);
		}
		crpc_idle_turn(&idle, n);
	}
	for (i = 0; i < n_held; i++)
		release(e->s, held[i].token);
	return NULL;
}

TEST(a_synchronous_call_waits_for_its_answer)
{
	struct echo e = {.s = new_server(1, 4, 100, 100)};
	struct crpc_ipc_client *c = keep(client_with_deadline(e.s, 0));
	uint8_t buf[100], back[100];
	struct crpc_done done;
	pthread_t t;

	assert_ok(pthread_create(&t, NULL, echo_thread, &e));
	for (uint32_t i = 0; i <= 100; i++) {
		for (uint32_t k = 0; k < i; k++)
			buf[k] = (uint8_t)(i + k);
		assert_int_equal(
			crpc_ipc_client_call_sync(c, now_ns(), buf, i, back, sizeof(back), 0), i);
		assert_memory_equal(back, buf, i);
	}
	assert_int_equal(crpc_ipc_client_call_sync(c, now_ns(), buf, 101, back, 100, 0), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_call_sync(c, now_ns(), buf, 100, back, 99, 0), -EMSGSIZE);
	assert_int_equal(
		crpc_ipc_client_call_sync(c, now_ns(), "no", 2, back, 99, 2000), -ETIMEDOUT);
	assert_int_equal(crpc_ipc_client_call_sync(c, now_ns(), "yes", 3, back, 99, 5000000), 3);
	assert_ok(call(c, "x", 1, 1));
	assert_int_equal(crpc_ipc_client_call_sync(c, now_ns(), "yes", 3, back, 99, 0), -EBUSY);
	assert_int_equal(poll_soon(c, &done, 1), 1);
	crpc_store_release(&e.stop, 1);
	pthread_join(t, NULL);
	crpc_ipc_server_free(e.s);
	assert_int_equal(
		crpc_ipc_client_call_sync(c, now_ns(), "yes", 3, back, 99, 0), -ECONNRESET);
}

TEST_MAIN(make_dir, remove_dir)
