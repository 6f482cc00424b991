/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that the server stopped looking at: none of their calls is lost, whoever is faster, and
 * they cost nothing while they are quiet.
 */
#include "ipc_test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "crpc_idle.h"
#include "ipc_client_slow.h"
#include "ipc_server.h"

#define DEPTH 4

/* A server that puts everybody to sleep at the first visit that finds nothing. */
static struct crpc_ipc_server *
sleepy_server(uint32_t clients)
{
	struct crpc_ipc_server *s = new_server(clients, DEPTH, 56, 56);

	assert_non_null(s);
	s->sleep_visits = 1;
	s->awake_min = 0;
	return s;
}

static uint32_t
awake(const struct crpc_ipc_server *s)
{
	struct crpc_ipc_server_stats st;

	crpc_ipc_server_stats(s, &st);
	return st.awake;
}

/* ---- one thread: each step chosen ---- */

/* The first call after a sleep rings, those behind it do not; its answer comes. */
TEST(a_sleeper_rings_once)
{
	struct crpc_ipc_server *s = keep_server(sleepy_server(2));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_ipc_client_stats st;
	struct crpc_done done[DEPTH];

	for (uint32_t round = 1; round <= 100; round++) {
		serve(s);
		assert_int_equal(awake(s), 0);
		for (uint32_t i = 0; i < DEPTH; i++)
			assert_ok(call(c, &i, 4, i));
		crpc_ipc_client_stats(c, &st);
		assert_int_equal(st.rings, round);
		assert_int_equal(serve(s), DEPTH);
		assert_int_equal(awake(s), 1);
		assert_int_equal(poll_done(c, done, DEPTH), DEPTH);
	}
}

/*
 * The race, made by hand: the client looked at `sleep` before the server wrote it, and its request
 * became visible after the server looked at the slot. Only the announcement shows it.
 */
TEST(a_call_that_crossed_the_sleep_is_found_by_poll)
{
	struct crpc_ipc_server *s = keep_server(sleepy_server(2));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_done done;
	uint64_t word, i;
	struct ipc_slot *slot;

	serve(s);
	for (i = 0; i < 50; i++) {
		/* Wake it, so that it is awake when it calls. */
		assert_ok(call(c, &i, 8, i));
		assert_int_equal(serve(s), 1);
		assert_int_equal(poll_done(c, &done, 1), 1);
		slot = c->lone;
		assert_ok(call(c, &i, 8, i));
		word = crpc_load_relaxed(&slot->word);
		crpc_store_relaxed(&slot->word, 0); /* still in the client's store buffer */
		assert_int_equal(serve(s), 0);
		assert_int_equal(awake(s), 0);
		crpc_store_relaxed(&slot->word, word);
		assert_int_equal(serve(s), 0); /* the server does not look */
		for (int polls = 0; poll_done(c, &done, 1) == 0; polls++) {
			assert_true(polls <= IPC_LOOK_POLLS);
			serve(s);
		}
		assert_int_equal(done.cookie, i);
		serve(s);
	}
}

/* The other order: what was announced before the server asks keeps it awake. */
TEST(an_announced_call_keeps_the_server_awake)
{
	struct crpc_ipc_server *s = keep_server(sleepy_server(2));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct ipc_slot *slot;
	struct crpc_done done;
	uint64_t word;

	serve(s);
	assert_ok(call(c, "x", 1, 1));
	assert_int_equal(serve(s), 1);
	assert_int_equal(poll_done(c, &done, 1), 1);
	slot = c->lone;
	assert_ok(call(c, "y", 1, 2));
	crpc_ipc_client_flush(c, now_ns());
	word = crpc_load_relaxed(&slot->word);
	crpc_store_relaxed(&slot->word, 0);
	assert_int_equal(serve(s), 0);
	assert_int_equal(awake(s), 1); /* it was announced */
	crpc_store_relaxed(&slot->word, word);
	assert_int_equal(serve(s), 1);
	assert_int_equal(poll_done(c, &done, 1), 1);
}

/* A client that neither polls nor flushes after such a call is found by reap(). */
TEST(reap_finds_who_does_not_poll)
{
	struct crpc_ipc_server *s = keep_server(sleepy_server(40));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct ipc_slot *slot;
	uint64_t word;
	int i, n = 0;

	serve(s);
	assert_ok(call(c, "x", 1, 1));
	assert_int_equal(serve(s), 1);
	slot = c->next; /* it has not polled: this call is not alone */
	assert_ok(call(c, "y", 1, 2));
	word = crpc_load_relaxed(&slot->word);
	crpc_store_relaxed(&slot->word, 0);
	serve(s);
	assert_int_equal(awake(s), 0);
	crpc_store_relaxed(&slot->word, word);
	for (i = 0; i < 3; i++) { /* 40 places, 16 a time */
		crpc_ipc_server_reap(s);
		n += (int)serve(s);
	}
	assert_int_equal(n, 1);
}

/* Who has a call open is not put to sleep, nor are the last few. */
TEST(who_waits_stays_awake)
{
	struct crpc_ipc_server *s = keep_server(new_server(8, DEPTH, 8, 8));
	struct crpc_ipc_client *c[8];
	struct crpc_req req;

	s->sleep_visits = 1;
	for (int i = 0; i < 8; i++)
		assert_non_null(c[i] = new_client(s));
	assert_ok(call(c[5], "x", 1, 1));
	assert_int_equal(take(s, &req, 1), 1);
	for (int i = 0; i < 20; i++)
		serve(s);
	assert_int_equal(awake(s), IPC_AWAKE_MIN);
	assert_int_equal(s->peers[5].sleep & 1, 0);
	assert_ok(reply(s, req.token, "y", 1));
	for (int i = 0; i < 8; i++)
		crpc_ipc_client_close(c[i]);
	for (int i = 0; i < 8; i++)
		take(s, &req, 1);
	assert_int_equal(awake(s), 0);
}

/* 1,024 connected: all but those that call leave the list, and each is woken by its own bit. */
TEST(a_thousand_sleep_and_each_can_wake)
{
	static struct crpc_ipc_client *c[CRPC_IPC_CLIENTS_MAX];
	struct crpc_ipc_server *s = keep_server(new_server(CRPC_IPC_CLIENTS_MAX, 1, 8, 8));
	struct crpc_done done;

	s->sleep_visits = 2;
	for (uint32_t i = 0; i < CRPC_IPC_CLIENTS_MAX; i++)
		assert_non_null(c[i] = new_client(s));
	for (uint32_t i = 0; i < 40; i++)
		serve(s);
	assert_int_equal(awake(s), IPC_AWAKE_MIN);
	for (uint32_t i = 0; i < CRPC_IPC_CLIENTS_MAX; i++) {
		assert_ok(call(c[i], &i, 4, i));
		assert_int_equal(serve(s), 1);
		assert_int_equal(poll_done(c[i], &done, 1), 1);
		assert_int_equal(*(const uint32_t *)done.data, i);
	}
	assert_true(awake(s) < 64);
	/* All at once: the bell's bits are worked off a few at a time. */
	for (uint32_t i = 0; i < CRPC_IPC_CLIENTS_MAX; i++)
		assert_ok(call(c[i], &i, 4, i));
	for (uint32_t k = 0, n = 0; n < CRPC_IPC_CLIENTS_MAX; k++) {
		assert_true(k < 4 * CRPC_IPC_CLIENTS_MAX);
		n += serve(s);
	}
	for (uint32_t i = 0; i < CRPC_IPC_CLIENTS_MAX; i++) {
		assert_int_equal(poll_done(c[i], &done, 1), 1);
		crpc_ipc_client_close(c[i]);
	}
}

/* A one-way message that was published before close() is read, asleep or not. */
TEST(a_message_before_close_is_read)
{
	struct crpc_ipc_server *s = keep_server(sleepy_server(2));
	struct crpc_ipc_server_stats st;
	struct crpc_ipc_client *c;
	struct crpc_req req[8];

	for (uint32_t i = 0; i < 20; i++) {
		assert_non_null(c = new_client(NULL));
		if (i & 1)
			serve(s);
		for (uint32_t k = 0; k < DEPTH; k++)
			assert_ok(crpc_ipc_client_notify(c, now_ns(), &k, 4));
		crpc_ipc_client_close(c);
		if (i & 2)
			crpc_ipc_server_reap(s);
		assert_int_equal(take(s, req, 8), DEPTH);
		for (uint32_t k = 0; k < DEPTH; k++) {
			assert_int_equal(*(const uint32_t *)req[k].data, k);
			assert_true(crpc_ipc_token_oneway(req[k].token));
			assert_ok(release(s, req[k].token));
		}
		assert_int_equal(crpc_ipc_server_reap(s), 1);
	}
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 0);
	assert_int_equal(st.closes, 20);
}

/* ---- two threads, two processes: no call is lost in the race ---- */

struct shared {
	struct crpc_ipc_server *s;
	_Atomic uint32_t begun, left;
	_Atomic uint32_t wrong;
};

/* No reap here: nothing but the doorbell can find a call. */
static void *
server_thread(void *arg)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct shared *sh = arg;

	while (crpc_load_acquire(&sh->left) != 0)
		crpc_idle_turn(&idle, serve(sh->s));
	return NULL;
}

#define RACE_CALLS 20000

static void
race_client(struct shared *sh, uint64_t seed)
{
	struct crpc_ipc_client *c = new_client(sh->s);
	uint64_t i, pause, r = 2 * seed | 1;
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_done done;

	if (c == NULL) {
		crpc_fetch_add_relaxed(&sh->wrong, 1);
		return;
	}
	for (i = 0; i < RACE_CALLS; i++) {
		for (pause = rnd(&r) % 64; pause > 0; pause--)
			crpc_pause();
		if (call(c, &i, 8, i) != 0)
			crpc_fetch_add_relaxed(&sh->wrong, 1);
		while (poll_done(c, &done, 1) == 0)
			crpc_idle_turn(&idle, 0);
		if (done.status != 0 || *(const uint64_t *)done.data != i)
			crpc_fetch_add_relaxed(&sh->wrong, 1);
		idle.empty = 0;
	}
	crpc_ipc_client_close(c);
}

static void *
race_thread(void *arg)
{
	struct shared *sh = arg;

	race_client(sh, rng_state + crpc_fetch_add_relaxed(&sh->begun, 1));
	crpc_fetch_add_acq_rel(&sh->left, (uint32_t)-1);
	return NULL;
}

TEST(no_call_is_lost_between_threads)
{
	struct shared sh = {.left = 2, .s = sleepy_server(4)};
	struct crpc_ipc_server_stats st;
	pthread_t server, client[2];

	assert_ok(pthread_create(&server, NULL, server_thread, &sh));
	for (int i = 0; i < 2; i++)
		assert_ok(pthread_create(&client[i], NULL, race_thread, &sh));
	for (int i = 0; i < 2; i++)
		pthread_join(client[i], NULL); /* hangs if one is lost: the test's time limit */
	pthread_join(server, NULL);
	assert_int_equal(crpc_load_relaxed(&sh.wrong), 0);
	crpc_ipc_server_stats(sh.s, &st);
	assert_int_equal(st.rpc.requests, 2 * RACE_CALLS);
	assert_true(st.sleeps > 1000 && st.wakes > 1000); /* it did race */
	crpc_ipc_server_free(sh.s);
}

TEST(no_call_is_lost_between_processes)
{
	struct shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct crpc_ipc_server *s = keep_server(sleepy_server(4));
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	int status, left = 2;

	assert_true(sh != MAP_FAILED);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork_mortal();

		if (pid == 0) {
			race_client(sh, rng_state + (uint64_t)i);
			_exit(crpc_load_relaxed(&sh->wrong) == 0 ? 0 : 1);
		}
	}
	while (left > 0) {
		crpc_idle_turn(&idle, serve(s));
		if (idle.empty == CRPC_IDLE_SPINS && waitpid(-1, &status, WNOHANG) > 0) {
			assert_int_equal(status, 0);
			left--;
		}
	}
	munmap(sh, sizeof(*sh));
}

TEST_MAIN(make_dir, remove_dir)
