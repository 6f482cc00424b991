/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process killed between any two stores that others can see. The others go on: their calls are
 * answered, or end with an error in a bounded time; its place, its blocks and its segment come
 * back.
 *
 * Built with the crash points. A victim, first a client and then a server, does everything that one
 * can do and is killed at each point that it passes, at the first pass and at a later one. Then
 * victims of both kinds are killed at random passes for hundreds of rounds.
 */
#include "ipc_test.h"

#include <sched.h>
#include <sys/wait.h>

#include "crash.h"
#include "arena_check.h"
#include "crpc_idle.h"
#include "crpc_shm.h"
#include "ipc_client.h"
#include "ipc_server.h"

#define DEPTH   8
#define MSG     200
#define ROUNDS  150
#define SOON_MS 10000
/* What a whole run of a victim may take, so that a test that hangs says so. */
#define RUN_MS 20000

static struct crpc_shm *arena_seg;
static struct crpc_arena *arena;

/* Of the servers in this round: short answers may travel in runs, long ones leave the lone slot. */
static uint32_t resp_max;
static bool in_victim;

/* ---- what both kinds share ---- */

static int
set_up(void **state)
{
	const struct crpc_arena_conf ac = {.max_members = 8, .max_block = 65536};
	struct crpc_shm_conf conf = {.name = "a", .dir = test_dir};
	uint64_t len = crpc_arena_size(&ac, 2u << 20);

	if (make_dir(state) != 0)
		return 1;
	conf.dir = test_dir;
	conf.size = 4096 + len;
	arena_seg = crpc_shm_create(&conf);
	if (arena_seg == NULL || crpc_arena_format(arena_seg, 4096, len, &ac) != 0)
		return 1;
	crpc_shm_ready(arena_seg);
	arena = crpc_arena_attach(arena_seg, 4096);
	return arena == NULL;
}

static int
tear_down(void **state)
{
	crpc_arena_detach(arena);
	crpc_shm_free(arena_seg);
	return remove_dir(state);
}

static void
require(bool ok)
{
	if (!ok && in_victim)
		_exit(3);
	assert_true(ok);
}

/* A server that sends everybody to sleep at once, with blocks. */
static struct crpc_ipc_server *
make_server(struct crpc_arena_cache *m)
{
	struct crpc_ipc_server_conf conf = {.name = "t",
		.dir = test_dir,
		.max_clients = 3,
		.depth = DEPTH,
		.req_max = 56,
		.resp_max = resp_max,
		.arena = m};
	struct crpc_ipc_server *s = crpc_ipc_server_create(&conf);

	if (s != NULL) {
		s->sleep_visits = 2;
		s->awake_min = 0;
	}
	return s;
}

static struct crpc_ipc_client *
make_client(struct crpc_arena_cache *m, uint32_t timeout_ms)
{
	struct crpc_ipc_client_conf conf = {
		.name = "t", .dir = test_dir, .timeout_ms = timeout_ms, .probe_ms = 1, .arena = m};

	return crpc_ipc_client_connect(&conf);
}

/* One turn of a server: answers in every way there is. */
static uint32_t
serve_in_all_ways(struct crpc_ipc_server *s)
{
	static uint8_t msgs[32 * 32];
	struct crpc_ipc_block b;
	struct crpc_req req[32];
	uint16_t n = take(s, req, 32), i;

	if (n >= 4 && reply_burst(s, req, msgs, 32, n) == n)
		return n;
	for (i = 0; i < n; i++) {
		if (crpc_ipc_server_block(s, req[i].token, &b) == 0 && req[i].len != 0)
			reply_ref(s, req[i].token, b.ref, "ref", 3);
		else if (req[i].len == 33 && resp_max >= 100)
			answer(s, &req[i], msgs, 100);
		else
			answer(s, &req[i], req[i].data, req[i].len);
	}
	return n;
}

/* Whether the child ended; it can still be waited for. */
static bool
has_ended(pid_t pid)
{
	siginfo_t info = {0};

	assert_ok(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT));
	return info.si_pid == pid;
}

/* ---- the client that is killed ---- */

/* Poll until nothing is open, or the server is gone. */
static void
finish(struct crpc_ipc_client *c)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	uint64_t end = now_ms() + RUN_MS;
	struct crpc_done done[DEPTH];

	while (crpc_ipc_client_open(c) != 0) {
		crpc_idle_turn(&idle, poll_done(c, done, DEPTH));
		require(now_ms() < end);
	}
}

/* Everything that a client can do, as long as the server lives. */
static void
client_life(struct crpc_ipc_client *c, struct crpc_arena_cache *m)
{
	static const uint64_t cookies[DEPTH];
	uint8_t msgs[DEPTH * 32] = {0}, back[200];
	uint64_t ref;

	for (int i = 0; i < 6 && crpc_ipc_client_status(c) == 0; i++) {
		usleep(100); /* the server sleeps on it meanwhile */
		crpc_ipc_client_call_sync(c, now_ns(), msgs, 32 + (i & 1), back, sizeof(back), 0);
		call(c, msgs, 40, 1);
		call(c, msgs, 40, 1);
		crpc_ipc_client_notify(c, now_ns(), msgs, 10);
		crpc_ipc_client_flush(c, now_ns());
		finish(c);
		call_burst(c, msgs, 32, cookies, DEPTH - 1);
		finish(c);
		if (crpc_arena_alloc(m, 5000, &ref) != NULL &&
			call_ref(c, ref, msgs, i & 1, 1) != 0)
			crpc_arena_free(m, ref);
		finish(c);
	}
	crpc_ipc_client_notify(c, now_ns(), msgs, 10);
}

/* Dies at the nth pass of the point; NULL: of any. Exits with 0 if it lived through. */
static pid_t
client_victim(const char *point, uint32_t nth)
{
	struct crpc_arena_cache *m;
	pid_t pid = fork_mortal();

	if (pid != 0)
		return pid;
	in_victim = true;
	m = crpc_arena_join(arena, NULL);
	require(m != NULL);
	if (point != NULL)
		crpc_crash_arm(point, nth);
	else
		crpc_crash_arm_nth(nth);
	for (int i = 0; i < 4; i++) {
		struct crpc_ipc_client *c = make_client(m, SOON_MS);

		require(c != NULL);
		client_life(c, m);
		crpc_ipc_client_close(c);
	}
	crpc_crash_arm(NULL, 0);
	crpc_arena_leave(m);
	_exit(0);
}

/* The honest one calls, in its own thread of things, and is answered. */
static void
honest_call(struct crpc_ipc_server *s, struct crpc_ipc_client *h)
{
	uint64_t v = rng(), end = now_ms() + SOON_MS;
	struct crpc_done done;

	assert_ok(call(h, &v, 8, v));
	while (poll_done(h, &done, 1) == 0) {
		serve_in_all_ways(s);
		assert_true(now_ms() < end);
	}
	assert_int_equal(done.status, 0);
	assert_int_equal(done.cookie, v);
}

static void
nothing_is_left(struct crpc_arena_cache *m)
{
	struct arena_report r;
	struct crpc_arena_cache_stats st;

	assert_ok(crpc_arena_reclaim(arena, 0, NULL));
	crpc_arena_cache_stats(m, &st);
	assert_int_equal(st.held, st.cached);
	assert_ok(arena_check(arena, &r));
	assert_int_equal(r.blocks_allocated + r.blocks_transit, 0);
}

/* Serve the victim to its end. True: it was killed. */
static bool
outlive_client(
	struct crpc_ipc_server *s, struct crpc_ipc_client *h, struct crpc_arena_cache *m, pid_t pid)
{
	uint64_t end = now_ms() + RUN_MS;
	struct crpc_ipc_server_stats st;
	uint32_t turn = 0;
	int status, i;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (serve_in_all_ways(s) == 0)
			sched_yield();
		if (turn++ % 8 == 0)
			crpc_ipc_server_reap(s);
		if (turn % 64 == 0)
			honest_call(s, h);
		assert_true(now_ms() < end);
	}
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	honest_call(s, h);
	for (i = 0; i < 3; i++) { /* three places, and what was published before close */
		crpc_ipc_server_reap(s);
		while (serve_in_all_ways(s) != 0)
			;
	}
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 1);
	assert_int_equal(st.open, 0);
	assert_int_equal(st.rpc.malformed, 0);
	assert_ok(crpc_ipc_client_status(h));
	nothing_is_left(m);
	return WIFSIGNALED(status);
}

/* ---- the server that is killed ---- */

static pid_t
server_victim(const char *point, uint32_t nth)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_ipc_server *s;
	struct crpc_arena_cache *m;
	pid_t pid = fork_mortal();

	if (pid != 0)
		return pid;
	in_victim = true;
	m = crpc_arena_join(arena, NULL);
	require(m != NULL);
	if (point != NULL)
		crpc_crash_arm(point, nth);
	else if (nth != 0)
		crpc_crash_arm_nth(nth);
	s = make_server(m);
	require(s != NULL);
	for (uint32_t turn = 0;; turn++) {
		crpc_idle_turn(&idle, serve_in_all_ways(s));
		if (turn % 8 == 0)
			crpc_ipc_server_reap(s);
	}
}

/* A lie at its end, so that the server drops it. */
static void
break_the_protocol(struct crpc_ipc_client *c)
{
	call(c, "x", 1, 1);
	crpc_store_release(&c->next->word, ipc_word((uint32_t)c->req_seq, 57, 0));
	finish(c);
}

/* Connect to the server, or NULL: it is dead, and a client that connects fails at once. */
static struct crpc_ipc_client *
connect_to(pid_t pid, struct crpc_arena_cache *m)
{
	uint64_t end = now_ms() + RUN_MS;
	struct crpc_ipc_client *c;

	for (;;) {
		bool ended = has_ended(pid);

		c = make_client(m, 0);
		if (c != NULL || ended)
			break;
		/* Not there yet, or it has not taken the last client's place back. */
		assert_true(errno == ECONNREFUSED || errno == ENOENT || errno == EUSERS ||
			errno == EAGAIN);
		assert_true(now_ms() < end);
		usleep(1000);
	}
	if (c == NULL)
		assert_true(errno == ECONNREFUSED || errno == ENOENT);
	return c;
}

/*
 * Lives of clients, until the server dies of one: each call ends, so that each life comes to its
 * end. True: it was killed. It had blocks in hand then, and half an answer.
 */
static bool
outlive_server(struct crpc_arena_cache *m, pid_t pid)
{
	int status, lives;

	for (lives = 0; lives < 4; lives++) {
		struct crpc_ipc_client *c = connect_to(pid, m);

		if (c == NULL)
			break;
		client_life(c, m);
		if (lives == 2)
			break_the_protocol(c);
		crpc_ipc_client_close(c);
	}
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return WTERMSIG(status) == SIGKILL;
}

/* A server starts over what the dead one left, and serves. */
static void
a_successor_serves(struct crpc_arena_cache *m)
{
	pid_t pid = server_victim(NULL, 0);
	struct crpc_ipc_client *c = make_client(m, SOON_MS);
	int status;

	assert_non_null(c);
	client_life(c, m);
	finish(c);
	assert_ok(crpc_ipc_client_status(c));
	crpc_ipc_client_close(c);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	nothing_is_left(m);
}

/* ---- tests ---- */

static bool
is_of_ipc(const struct crpc_crash_point *point)
{
	return strstr(point->name, "lib/ipc/") != NULL;
}

static bool
any_killed(struct crpc_crash_point *const *points, const bool *killed, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (killed[i] && strcmp(points[i]->name, name) == 0)
			return true;
	return false;
}

TEST(whoever_dies_at_a_point_harms_nobody)
{
	struct crpc_crash_point *const *points;
	uint32_t n = crpc_crash_points(&points), i, pass, missed = 0, luck = 0;
	struct crpc_arena_cache *m = crpc_arena_join(arena, NULL);
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *h;
	bool *killed = calloc(n, sizeof(*killed));

	assert_non_null(m);
	assert_non_null(killed);
	for (pass = 0; pass < 2; pass++) {
		resp_max = pass == 0 ? 56 : MSG;
		assert_non_null(s = make_server(m));
		assert_non_null(h = new_client(s));
		for (i = 0; i < n; i++)
			if (is_of_ipc(points[i]))
				killed[i] |= outlive_client(
					s, h, m, client_victim(points[i]->name, 1 + 2 * pass));
		crpc_ipc_client_close(h);
		crpc_ipc_server_free(s);
		for (i = 0; i < n; i++) {
			if (!is_of_ipc(points[i]))
				continue;
			killed[i] |=
				outlive_server(m, server_victim(points[i]->name, 1 + 2 * pass));
			a_successor_serves(m);
		}
	}
	for (i = 0; i < n; i++) {
		if (!is_of_ipc(points[i]) || any_killed(points, killed, n, points[i]->name))
			continue;
		printf("no process was killed at %s\n", points[i]->name);
		if (strstr(points[i]->name, "ipc_server_admit.c") != NULL)
			luck++;
		else
			missed++;
	}
	assert_true(n > 40);
	assert_int_equal(missed, 0);
	/* A call that comes while its server falls asleep is a matter of luck. */
	assert_in_range(luck, 0, 1);
	free(killed);
	crpc_arena_leave(m);
	crpc_ipc_server_free(new_server(1, 1, 8, 8)); /* and takes the leftover with it */
}

TEST(clients_die_at_any_moment)
{
	struct crpc_arena_cache *m = crpc_arena_join(arena, NULL);
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *h;
	uint32_t round, killed = 0;

	assert_non_null(m);
	resp_max = 56;
	assert_non_null(s = make_server(m));
	assert_non_null(h = new_client(s));
	for (round = 0; round < ROUNDS; round++)
		killed += outlive_client(s, h, m, client_victim(NULL, (uint32_t)(1 + rng() % 500)));
	assert_true(killed > ROUNDS / 2);
	crpc_ipc_client_close(h);
	crpc_ipc_server_free(s);
	crpc_arena_leave(m);
}

TEST(servers_die_at_any_moment)
{
	struct crpc_arena_cache *m = crpc_arena_join(arena, NULL);
	uint32_t round, killed = 0;

	assert_non_null(m);
	for (round = 0; round < ROUNDS; round++) {
		resp_max = round % 4 == 0 ? MSG : 56;
		killed += outlive_server(m, server_victim(NULL, (uint32_t)(1 + rng() % 500)));
		if (round % 10 == 9)
			a_successor_serves(m);
	}
	assert_true(killed > ROUNDS / 2);
	nothing_is_left(m);
	crpc_arena_leave(m);
	crpc_ipc_server_free(new_server(1, 1, 8, 8));
}

TEST_MAIN(set_up, tear_down)
