/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RPC between processes, and what is left when one of them is killed, stopped or denied: the others
 * go on, open calls end, places and names come back.
 */
#include "ipc_test.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "crpc_idle.h"
#include "crpc_mem.h"

#define DEPTH        8
#define MSG_MAX      3000
#define UNPRIVILEGED 65534
/* A bound for what must happen in a bounded time, on a machine that does other things too. */
#define SOON_MS 20000

static pid_t
child(void (*fn)(void))
{
	pid_t pid = fork_mortal();

	if (pid == 0) {
		fn();
		_exit(0);
	}
	return pid;
}

static int
end_child(pid_t pid, int sig)
{
	int status;

	if (sig != 0)
		assert_ok(kill(pid, sig));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void
server_main(void)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_ipc_server *s = new_server(4, DEPTH, MSG_MAX, MSG_MAX);

	if (s == NULL)
		_exit(1);
	for (uint32_t turn = 0;; turn++) {
		crpc_idle_turn(&idle, serve(s));
		if (turn % 64 == 0)
			crpc_ipc_server_reap(s);
	}
}

static struct crpc_ipc_client *
connect_soon(void)
{
	struct crpc_ipc_client_conf conf = {
		.name = "t", .dir = test_dir, .timeout_ms = SOON_MS, .probe_ms = 1};
	struct crpc_ipc_client *c = crpc_ipc_client_connect(&conf);

	if (c == NULL) /* Its status alone would not say why. */
		fprintf(stderr, "connect: %s: %s\n", strerror(errno), crpc_log_last());
	return c;
}

static void
client_that_never_polls(void)
{
	struct crpc_ipc_client *c = connect_soon();

	if (c == NULL)
		_exit(1);
	for (uint64_t i = 0; call(c, &i, 8, i) == 0; i++)
		;
	for (;;)
		pause();
}

static void
client_that_exits_without_a_word(void)
{
	struct crpc_ipc_client *c = connect_soon();
	struct crpc_done done;

	if (c == NULL)
		_exit(1);
	call(c, "x", 1, 1);
	for (int i = 0; i < 1000 && poll_done(c, &done, 1) == 0; i++)
		sched_yield();
	_exit(0); /* no close */
}

/* ---- tests ---- */

TEST(bytes_arrive_whole_between_processes)
{
	static uint8_t msg[DEPTH][MSG_MAX];
	uint32_t len[DEPTH], i, k, n;
	bool busy[DEPTH] = {false};
	pid_t server = child(server_main);
	struct crpc_ipc_client *c = connect_soon();
	struct crpc_done done[DEPTH];
	uint64_t end = now_ms() + 4 * SOON_MS, finished = 0;
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};

	assert_non_null(c);
	while (finished < 30000) {
		for (i = 0; i < DEPTH; i++) {
			if (busy[i])
				continue;
			len[i] = (uint32_t)(rng() % (rng() % 2 == 0 ? 65 : MSG_MAX + 1));
			for (k = 0; k < len[i]; k += 97)
				msg[i][k] = (uint8_t)rng();
			assert_ok(call(c, msg[i], len[i], i));
			busy[i] = true;
		}
		n = poll_done(c, done, DEPTH);
		for (k = 0; k < n; k++) {
			i = (uint32_t)done[k].cookie;
			assert_int_equal(done[k].status, 0);
			assert_true(i < DEPTH && busy[i]);
			assert_int_equal(done[k].len, len[i]);
			assert_memory_equal(done[k].data, msg[i], len[i]);
			busy[i] = false;
		}
		finished += n;
		crpc_idle_turn(&idle, n);
		assert_true(now_ms() < end);
	}
	crpc_ipc_client_close(c);
	end_child(server, SIGKILL);
}

/*
 * Killed at any moment, with or without calls open: the place is free again, round after round,
 * once the server has ended what it held.
 */
TEST(places_of_killed_clients_come_back)
{
	struct crpc_ipc_server *s = keep_server(new_server(4, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_server_stats st;
	struct crpc_req req[64], held[3 * DEPTH];
	uint32_t round, i, n, nheld;
	uint64_t end;
	pid_t pid[3];

	for (round = 0; round < 100; round++) {
		for (i = 0; i < 3; i++)
			pid[i] = child(round & 1 ? client_that_never_polls
						 : client_that_exits_without_a_word);
		end = now_ms() + rng() % 4;
		nheld = 0;
		do { /* leave half of the requests open */
			n = take(s, req, 64);
			for (i = 0; i < n; i++)
				if (i % 2 != 0)
					held[nheld++] = req[i];
				else
					reply(s, req[i].token, req[i].data, req[i].len);
			sched_yield();
		} while (now_ms() < end);
		for (i = 0; i < 3; i++)
			end_child(pid[i], SIGKILL);
		end = now_ms() + SOON_MS;
		do {
			crpc_ipc_server_reap(s); /* 4 places: each call looks at all */
			crpc_ipc_server_stats(s, &st);
			assert_true(now_ms() < end);
		} while (st.clients != 0);
		for (i = 0; i < nheld; i++)
			assert_int_equal(reply(s, held[i].token, "x", 1), -ECONNRESET);
		crpc_ipc_server_reap(s);
	}
	/* Nothing is lost: all four places can be had at once. */
	struct crpc_ipc_client *c[4];

	for (i = 0; i < 4; i++)
		assert_non_null(c[i] = new_client(NULL));
	crpc_ipc_server_reap(s);
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 4);
	assert_true(st.deaths > 50);
	for (i = 0; i < 4; i++)
		crpc_ipc_client_close(c[i]);
}

TEST(hundreds_of_clients_pass_through_four_places)
{
	struct crpc_ipc_server *s = keep_server(new_server(4, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_server_stats st;
	uint32_t started = 0, ended = 0;
	int status;
	pid_t pid;

	while (ended < 300) {
		for (; started < 300 && started - ended < 8;
			started++) /* more than there are places */
			child(client_that_exits_without_a_word);
		serve(s);
		crpc_ipc_server_reap(s);
		while (ended < started && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
			assert_int_equal(status, 0); /* each got a place in time */
			ended++;
		}
		sched_yield();
	}
	crpc_ipc_server_reap(s);
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 0);
	assert_int_equal(st.deaths, 300);
	assert_true(st.rpc.requests >= 300 - st.lost_calls);
}

TEST(a_killed_server_fails_calls_and_its_successor_starts)
{
	struct crpc_ipc_client *c = NULL;
	struct crpc_done done[DEPTH];
	uint64_t end, i;

	for (uint32_t round = 0; round < 20; round++) {
		pid_t server = child(server_main); /* over the leftover of the one before */

		c = connect_soon();
		assert_non_null(c);
		for (i = 0; i < rng() % 2000; i++) {
			call(c, "x", 1, i);
			poll_done(c, done, DEPTH);
		}
		end_child(server, SIGKILL);
		end = now_ms() + SOON_MS;
		while (call(c, "x", 1, 0) != -ECONNRESET || crpc_ipc_client_open(c) != 0) {
			uint32_t n = poll_done(c, done, DEPTH);

			while (n-- > 0)
				assert_true(done[n].status == 0 || done[n].status == -ECONNRESET);
			assert_true(now_ms() < end);
		}
		assert_int_equal(crpc_ipc_client_status(c), -ECONNRESET);
		assert_non_null(strstr(crpc_log_last(), "died"));
		assert_null(new_client(NULL));
		assert_int_equal(errno, ECONNREFUSED);
		crpc_ipc_client_close(c);
	}
	crpc_ipc_server_free(new_server(1, 1, 1, 1)); /* and takes the file with it */
}

TEST(a_stopped_server_is_late_not_dead)
{
	pid_t server = child(server_main);
	struct crpc_ipc_client *c = connect_soon();
	struct crpc_ipc_client_stats st;
	struct crpc_done done;
	int status;

	assert_non_null(c);
	assert_ok(kill(server, SIGSTOP));
	assert_int_equal(waitpid(server, &status, WUNTRACED), server);
	assert_ok(call(c, "x", 1, 7));
	for (uint64_t end = now_ms() + 300; now_ms() < end;)
		assert_int_equal(poll_done(c, &done, 1), 0);
	crpc_ipc_client_stats(c, &st);
	assert_true(st.probes > 10); /* it did ask */
	assert_ok(crpc_ipc_client_status(c));
	assert_null(new_server(1, 1, 1, 1));
	assert_int_equal(errno, EADDRINUSE);
	assert_ok(kill(server, SIGCONT));
	for (uint64_t end = now_ms() + SOON_MS; poll_done(c, &done, 1) == 0;)
		assert_true(now_ms() < end);
	assert_int_equal(done.cookie, 7);
	assert_int_equal(done.status, 0);
	crpc_ipc_client_close(c);
	end_child(server, SIGKILL);
	crpc_ipc_server_free(new_server(1, 1, 1, 1));
}

static void
client_without_descriptors(void)
{
	struct crpc_ipc_client *c = connect_soon();
	uint64_t end = now_ms() + 100;
	struct crpc_done done;

	if (c == NULL)
		_exit(1);
	closefrom(3);
	while (now_ms() < end)
		if (poll_done(c, &done, 1) != 0 || crpc_ipc_client_status(c) != 0)
			_exit(2);
	if (call(c, "x", 1, 7) != 0)
		_exit(3);
	while (poll_done(c, &done, 1) == 0)
		if (now_ms() > end + SOON_MS)
			_exit(4);
	_exit(done.status == 0 && done.cookie == 7 ? 0 : 5);
}

/* A program that becomes a daemon closes descriptors that are not its own: no proof of a death. */
TEST(who_cannot_be_asked_is_not_dead)
{
	pid_t server = child(server_main);

	assert_ok(end_child(child(client_without_descriptors), 0));
	end_child(server, SIGKILL);
	crpc_ipc_server_free(new_server(1, 1, 1, 1));
}

static void
client_that_calls_stops_and_wants_its_answer(void)
{
	struct crpc_ipc_client *c = connect_soon();
	uint64_t end = now_ms() + 4 * SOON_MS;
	struct crpc_done done;

	if (c == NULL || call(c, "x", 1, 7) != 0)
		_exit(1);
	raise(SIGSTOP);
	while (poll_done(c, &done, 1) == 0)
		if (now_ms() > end)
			_exit(2);
	_exit(done.status == 0 && done.cookie == 7 ? 0 : 3);
}

TEST(a_stopped_client_keeps_its_place)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_req req;
	uint64_t end = now_ms() + SOON_MS;
	int status, i;
	pid_t pid = child(client_that_calls_stops_and_wants_its_answer);

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	while (take(s, &req, 1) == 0)
		assert_true(now_ms() < end);
	for (i = 0; i < 1000; i++)
		assert_int_equal(crpc_ipc_server_reap(s), 0);
	assert_ok(reply(s, req.token, "y", 1));
	assert_ok(kill(pid, SIGCONT));
	assert_ok(end_child(pid, 0));
	assert_int_equal(crpc_ipc_server_reap(s), 1);
}

static void
client_with_a_child(void)
{
	struct crpc_ipc_client *c = connect_soon();
	pid_t pid;

	if (c == NULL)
		_exit(1);
	pid = fork();
	if (pid == 0) {
		alarm(120);
		for (;;)
			pause();
	}
	/* The test learns whom to end by asking for it. */
	while (call(c, &pid, sizeof(pid), 1) == 0)
		;
	for (;;)
		pause();
}

TEST(a_clients_child_does_not_keep_its_place)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, DEPTH, MSG_MAX, MSG_MAX));
	uint64_t end = now_ms() + SOON_MS;
	struct crpc_req req;
	pid_t pid, orphan;
	int reaped;

	pid = child(client_with_a_child);
	while (take(s, &req, 1) == 0)
		assert_true(now_ms() < end);
	orphan = *(const pid_t *)req.data;
	assert_ok(release(s, req.token));
	end_child(pid, SIGKILL);
	reaped = crpc_ipc_server_reap(s);
	assert_ok(kill(orphan, SIGKILL)); /* it lives, and ends whatever was found */
	assert_int_equal(reaped, 1);
}

static void
note_page_size(const struct crpc_mem_part *part, void *arg)
{
	if (strcmp(part->name, "ipc_segment") == 0)
		*(uint64_t *)arg = part->page_size;
}

static void
client_with_one_call(void)
{
	struct crpc_ipc_client *c = connect_soon();

	if (c == NULL || call(c, "x", 1, 1) != 0)
		_exit(1);
	for (;;)
		pause();
}

/* They are taken exactly where the node has enough, and a list can say what the mode says. */
TEST(a_segment_lies_on_hugepages_where_there_are_some)
{
	static const mode_t modes[] = {0, 0660, 0666};
	bool some = crpc_mem_huge_free(crpc_mem_here().node) >= UINT64_C(4) << 20;
	uint64_t end, page_size;
	struct crpc_req req;
	pid_t pid;

	for (uint32_t i = 0; i < CRPC_DIM(modes); i++) {
		struct crpc_ipc_server_conf conf = {
			.name = "t", .dir = test_dir, .huge = true, .mode = modes[i]};
		struct crpc_ipc_server *s = keep_server(crpc_ipc_server_create(&conf));

		page_size = 0;
		assert_ok(crpc_mem_walk(note_page_size, &page_size));
		assert_int_equal(page_size, some && modes[i] != 0666 ? 2 << 20 : 4096);
		pid = child(client_with_one_call);
		for (end = now_ms() + SOON_MS; take(s, &req, 1) == 0; crpc_ipc_server_reap(s))
			assert_true(now_ms() < end);
		end_child(pid, SIGKILL);
		kept_end(NULL);
	}
}

static void
late_server_main(void)
{
	usleep(100000);
	server_main();
}

TEST(connect_waits_for_a_late_server)
{
	struct crpc_ipc_client *c;
	pid_t server;

	assert_null(new_client(NULL));
	assert_int_equal(errno, ENOENT);
	server = child(late_server_main);
	c = connect_soon();
	assert_non_null(c);
	crpc_ipc_client_close(c);
	end_child(server, SIGKILL);
	crpc_ipc_server_free(new_server(1, 1, 1, 1));
}

/*
 * fn in a process of a pid namespace of its own, as in a container that shares nothing but the
 * directory. The one that is returned stays outside and ends as fn's process does.
 */
static pid_t
contained(void (*fn)(void))
{
	int status;
	pid_t pid = fork_mortal(), inner;

	if (pid != 0)
		return pid;
	if (unshare(CLONE_NEWPID) != 0)
		_exit(77);
	inner = fork();
	if (inner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getpid() != 1) /* it is indeed another namespace */
			_exit(78);
		fn();
		_exit(0);
	}
	if (inner < 0 || waitpid(inner, &status, 0) != inner)
		_exit(79);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 80);
}

static void
client_that_is_answered(void)
{
	struct crpc_ipc_client *c = connect_soon();
	char back[8];

	if (c == NULL)
		_exit(1);
	for (int i = 0; i < 100; i++)
		if (crpc_ipc_client_call_sync(c, now_ns(), "hello", 5, back, 8, 0) != 5)
			_exit(2);
	_exit(0); /* without a word */
}

static int answered_pipe[2];

static void
client_that_is_told_of_the_death(void)
{
	struct crpc_ipc_client *c = connect_soon();
	char back[8];
	int rc, n = 0;

	if (c == NULL)
		_exit(1);
	do {
		rc = crpc_ipc_client_call_sync(c, now_ns(), "hello", 5, back, 8, 0);
		if (n++ == 0 && write(answered_pipe[1], "", 1) != 1)
			_exit(3);
	} while (rc == 5);
	_exit(rc == -ECONNRESET ? 0 : 2);
}

/* Neither side can name the other's process; each still learns of its death. */
TEST(other_pid_namespaces_do_not_matter)
{
	struct crpc_ipc_server *s = new_server(4, DEPTH, MSG_MAX, MSG_MAX);
	struct crpc_ipc_server_stats st;
	uint64_t end = now_ms() + 4 * SOON_MS;
	pid_t pid, server;
	int status;
	char byte;

	assert_non_null(s);
	pid = contained(client_that_is_answered);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (serve(s) == 0)
			sched_yield();
		crpc_ipc_server_reap(s);
		assert_true(now_ms() < end);
	}
	if (WEXITSTATUS(status) == 77) {
		crpc_ipc_server_free(s);
		skip(); /* not allowed here */
	}
	assert_int_equal(status, 0);
	crpc_ipc_server_reap(s);
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 0);
	assert_int_equal(st.deaths, 1);
	crpc_ipc_server_free(s);
	server = child(server_main);
	assert_ok(pipe(answered_pipe));
	pid = contained(client_that_is_told_of_the_death);
	close(answered_pipe[1]);
	assert_int_equal(read(answered_pipe[0], &byte, 1), 1);
	close(answered_pipe[0]);
	end_child(server, SIGKILL);
	assert_ok(end_child(pid, 0));
	crpc_ipc_server_free(new_server(1, 1, 1, 1));
}

TEST(another_user_is_denied)
{
	struct crpc_ipc_server *s;
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_ok(chmod(test_dir, 0755));
	assert_non_null(s = new_server(1, 1, 8, 8));
	pid = fork_mortal();
	if (pid == 0) {
		if (setgid(UNPRIVILEGED) != 0 || setuid(UNPRIVILEGED) != 0)
			_exit(99);
		_exit(new_client(NULL) == NULL &&
					strstr(crpc_log_last(), "permission denied") != NULL
				? errno
				: 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), EACCES);
	crpc_ipc_server_free(s);
}

TEST_MAIN(make_dir, remove_dir)
