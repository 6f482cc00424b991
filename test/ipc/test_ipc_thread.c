/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Server and clients in threads that share one mapping, so that the thread sanitizer sees each word
 * from both sides: messages, places, the bell. Clients come and go meanwhile, and answers come late
 * and in any order.
 */
#include "ipc_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "crpc_atomic.h"
#include "crpc_idle.h"
#include "rnd.h"

#define THREADS 3
#define ROUNDS  40
#define CALLS   500
#define DEPTH   5
#define HELD    32

struct shared {
	struct crpc_ipc_server *s;
	_Atomic uint32_t left; /* client threads still at work */
	_Atomic uint32_t wrong;
};

static void *
server_thread(void *arg)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_req held[HELD];
	struct shared *sh = arg;
	uint64_t seed = 99, turn = 0;
	uint32_t n = 0, k, got;

	while (crpc_load_acquire(&sh->left) != 0) {
		got = take(sh->s, held + n, (uint16_t)(HELD - n));
		n += got;
		if (n > 0 && rnd(&seed) % 3 != 0) {
			k = (uint32_t)(rnd(&seed) % n);
			reply(sh->s, held[k].token, held[k].data, held[k].len);
			held[k] = held[--n];
			got++;
		}
		if (turn++ % 16 == 0)
			crpc_ipc_server_reap(sh->s);
		crpc_idle_turn(&idle, got);
	}
	crpc_ipc_server_reap(sh->s); /* the last ones to leave */
	return NULL;
}

static void
one_life(struct shared *sh, uint64_t *seed)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_ipc_client_conf conf = {.timeout_ms = 30000, .server = sh->s};
	struct crpc_ipc_client *c = crpc_ipc_client_connect(&conf);
	uint64_t msg[20], sent = 0, done_n = 0, i;
	struct crpc_done done[4];
	uint32_t n, k;

	if (c == NULL) {
		crpc_fetch_add_relaxed(&sh->wrong, 1);
		return;
	}
	while (done_n < CALLS) {
		for (i = 0; i < 20; i++)
			msg[i] = sent + i;
		if (sent < CALLS && call(c, msg, (uint32_t)(8 + rnd(seed) % 153), sent) == 0)
			sent++;
		n = poll_done(c, done, 4);
		for (k = 0; k < n; k++) {
			const uint64_t *d = done[k].data;

			if (done[k].status != 0 || d[0] != done[k].cookie ||
				d[done[k].len / 8 - 1] != done[k].cookie + done[k].len / 8 - 1)
				crpc_fetch_add_relaxed(&sh->wrong, 1);
		}
		done_n += n;
		crpc_idle_turn(&idle, n);
	}
	/* Some leave with a call open. */
	if (rnd(seed) % 2 == 0)
		call(c, msg, 8, 0);
	crpc_ipc_client_close(c);
}

static void *
client_thread(void *arg)
{
	struct shared *sh = arg;
	uint64_t seed = (uint64_t)(uintptr_t)&seed | 1;

	for (int i = 0; i < ROUNDS; i++)
		one_life(sh, &seed);
	crpc_fetch_add_relaxed(&sh->left, (uint32_t)-1);
	return NULL;
}

TEST(threads_share_a_server)
{
	struct shared sh = {.left = THREADS};
	struct crpc_ipc_server_stats st;
	pthread_t server, client[THREADS];

	assert_non_null(sh.s = new_server(2, DEPTH, 160, 160)); /* fewer places than threads */
	assert_ok(pthread_create(&server, NULL, server_thread, &sh));
	for (int i = 0; i < THREADS; i++)
		assert_ok(pthread_create(&client[i], NULL, client_thread, &sh));
	for (int i = 0; i < THREADS; i++)
		pthread_join(client[i], NULL);
	pthread_join(server, NULL);
	assert_int_equal(crpc_load_relaxed(&sh.wrong), 0);
	crpc_ipc_server_stats(sh.s, &st);
	assert_int_equal(st.clients, 0);
	assert_true(st.rpc.requests >= THREADS * ROUNDS * CALLS);
	assert_int_equal(st.rpc.malformed, 0);
	crpc_ipc_server_free(sh.s);
}

/* The server may go first: a client that shares its mapping lives on, and its calls fail. */
TEST(the_mapping_outlives_the_server)
{
	struct crpc_ipc_server *s = new_server(1, 1, 8, 8);
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_done done;

	assert_ok(call(c, "x", 1, 3));
	crpc_ipc_server_free(s);
	for (int i = 0; poll_done(c, &done, 1) == 0; i++)
		assert_true(i <= CRPC_IPC_CHECK_POLLS);
	assert_int_equal(done.status, -ECONNRESET);
}

#ifdef CRPC_DEBUG
static void *
use_client(void *c)
{
	struct crpc_done done;

	poll_done(c, &done, 1);
	return NULL;
}

/* A debug build stops the second thread that uses an object. */
TEST(a_second_thread_is_stopped)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 1, 8, 8));
	struct crpc_ipc_client *c = keep(new_client(s));
	pthread_t t;
	int status;
	pid_t pid;

	use_client(c);
	pid = fork();
	if (pid == 0) {
		signal(SIGILL, SIG_DFL); /* the test library's handler would go on with the tests */
		signal(SIGTRAP, SIG_DFL);
		pthread_create(&t, NULL, use_client, c);
		pthread_join(t, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}
#endif

TEST_MAIN(make_dir, remove_dir)
