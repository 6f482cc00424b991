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
		got = crpc_ipc_server_recv(sh->s, now_ns(), held + n, (uint16_t)(HELD - n));
		n += got;
		if (n > 0 && rnd(&seed) % 3 != 0) {
			k = (uint32_t)(rnd(&seed) % n);
			crpc_ipc_server_reply(
				sh->s, now_ns(), held[k].token, held[k].data, held[k].len);
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
	const uint64_t *d;
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
		n = crpc_ipc_client_poll(c, now_ns(), done, 4);
		for (k = 0; k < n; k++) {
			d = done[k].data;
			if (done[k].status != 0 || d[0] != done[k].cookie ||
					d[done[k].len / 8 - 1] !=
							done[k].cookie + done[k].len / 8 - 1)
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
	int i;

	for (i = 0; i < ROUNDS; i++)
		one_life(sh, &seed);
	crpc_fetch_add_relaxed(&sh->left, (uint32_t)-1);
	return NULL;
}

static void
threads_share_a_server(void **state)
{
	struct shared sh = {.left = THREADS};
	struct crpc_ipc_server_stats st;
	pthread_t server, client[THREADS];
	int i;

	assert_non_null(sh.s = new_server(2, DEPTH, 160, 160)); /* fewer places than threads */
	assert_int_equal(pthread_create(&server, NULL, server_thread, &sh), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&client[i], NULL, client_thread, &sh), 0);
	for (i = 0; i < THREADS; i++)
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
static void
the_mapping_outlives_the_server(void **state)
{
	struct crpc_ipc_server *s = new_server(1, 1, 8, 8);
	struct crpc_ipc_client *c = new_client(s);
	struct crpc_done done;
	int i;

	assert_non_null(c);
	assert_int_equal(call(c, "x", 1, 3), 0);
	crpc_ipc_server_free(s);
	for (i = 0; crpc_ipc_client_poll(c, now_ns(), &done, 1) == 0; i++)
		assert_true(i <= CRPC_IPC_CHECK_POLLS);
	assert_int_equal(done.status, -ECONNRESET);
	crpc_ipc_client_close(c);
}

#ifdef CRPC_DEBUG
static void *
use_client(void *c)
{
	struct crpc_done done;

	crpc_ipc_client_poll(c, now_ns(), &done, 1);
	return NULL;
}

/* A debug build stops the second thread that uses an object. */
static void
a_second_thread_is_stopped(void **state)
{
	struct crpc_ipc_server *s = new_server(1, 1, 8, 8);
	struct crpc_ipc_client *c = new_client(s);
	pthread_t t;
	int status;
	pid_t pid;

	assert_non_null(c);
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
	crpc_ipc_client_close(c);
	crpc_ipc_server_free(s);
}
#endif

int
main(void)
{
	const struct CMUnitTest tests[] = {
			cmocka_unit_test(threads_share_a_server),
			cmocka_unit_test(the_mapping_outlives_the_server),
#ifdef CRPC_DEBUG
			cmocka_unit_test(a_second_thread_is_stopped),
#endif
	};

	return cmocka_run_group_tests_name("ipc_thread", tests, make_dir, remove_dir);
}
