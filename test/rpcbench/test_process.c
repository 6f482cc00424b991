/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The second process of a measurement: bytes go both ways, descriptors reach it, both play the
 * line ping-pong; it outlives signals; a wait ends when the peer leaves or dies, and it leaves
 * nothing behind when the first process is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_link.h"
#include "app_process.h"
#include "app_watch.h"
#include "crpc_clock.h"

#define ROUNDS 1000

/* Start a second process that runs fn and ends. */
static struct app_process *
start(void (*fn)(struct app_process *p))
{
	struct app_process *p;

	crpc_clock_init();
	p = app_process_start();
	if (p != NULL && p->side == 1) {
		fn(p);
		app_process_end(p);
		_exit(0);
	}
	assert_non_null(p);
	return p;
}

static int
receive(struct app_process *p, void *buf, size_t len)
{
	struct pollfd in = {.fd = p->link[p->side], .events = POLLIN};
	uint8_t *to = buf;
	ssize_t n;

	for (; len > 0; to += n, len -= (size_t)n) {
		n = app_link_recv(in.fd, to, len);
		if (n < 0)
			return (int)n;
		if (n == 0)
			poll(&in, 1, 1000);
	}
	return 0;
}

/* Both send, then both receive. */
static int
swap(struct app_process *p, uint32_t mine)
{
	uint32_t theirs = 0;
	int rc = app_link_send(p->link[p->side], &mine, sizeof(mine));

	if (rc == 0)
		rc = receive(p, &theirs, sizeof(theirs));
	return rc != 0 ? rc : (int)theirs;
}

static uint8_t large[65536];

/* Then many bytes at once. */
static void
counts(struct app_process *p)
{
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		if (swap(p, 2 * i) != (int)i)
			_exit(1);
	for (i = 0; i < sizeof(large); i++)
		large[i] = (uint8_t)(i % 251);
	if (app_link_send(p->link[1], large, sizeof(large)) != 0)
		_exit(1);
	swap(p, 7);
}

static void
bytes_go_both_ways(void **state)
{
	struct app_process *p = start(counts);
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		assert_int_equal(swap(p, i), 2 * i);
	assert_int_equal(receive(p, large, sizeof(large)), 0);
	for (i = 0; i < sizeof(large); i++)
		assert_int_equal(large[i], i % 251);
	assert_int_equal(swap(p, 0), 7);
	app_process_end(p);
}

static int
call(uint16_t port, const void *msg, size_t len)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)&in, sizeof(in)) != 0 ||
		send(fd, msg, len, MSG_NOSIGNAL) != (ssize_t)len)
		_exit(1);
	return fd;
}

/* One says nothing, one something else, one too little; the last one is the other rank. */
static void
only_who_shows_the_secret_is_taken(void **state)
{
	const uint64_t secret = 0x1122334455667788, wrong = secret + 1;
	struct app_watch_card card = {0};
	static struct app_boot boot;
	int listener = app_watch_listen(&card, 4), fd, status;
	uint8_t byte = 0;
	pid_t pid;

	crpc_clock_init();
	assert_true(listener >= 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		call(card.port, "", 0);
		call(card.port, &wrong, sizeof(wrong));
		close(call(card.port, &secret, 4));
		fd = call(card.port, &secret, sizeof(secret));
		_exit(send(fd, "x", 1, 0) == 1 && recv(fd, &byte, 1, 0) == 0 ? 0 : 1);
	}
	fd = __app_link_accept(&boot, listener, secret);
	assert_true(fd >= 0);
	assert_int_equal(recv(fd, &byte, 1, MSG_WAITALL), 1);
	assert_int_equal(byte, 'x');
	close(fd);
	close(listener);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* A rank that has gone is not waited for. */
	boot.lost[1] = 1;
	assert_int_equal(__app_link_accept(&boot, -1, secret), -ECONNRESET);
}

static void
writes_to_fds(struct app_process *p)
{
	int fd[2];

	if (app_process_take_fds(p, fd, 2) != 0 || write(fd[0], "a", 1) != 1 ||
		write(fd[1], "b", 1) != 1)
		_exit(1);
}

static void
descriptors_reach_it(void **state)
{
	struct app_process *p = start(writes_to_fds);
	int one[2], two[2], give[2];
	char c;

	assert_int_equal(pipe2(one, O_CLOEXEC), 0);
	assert_int_equal(pipe2(two, O_CLOEXEC), 0);
	give[0] = one[1];
	give[1] = two[1];
	assert_int_equal(app_process_give_fds(p, give, APP_PROCESS_FDS_MAX + 1), -EMSGSIZE);
	assert_int_equal(app_process_give_fds(p, give, 2), 0);
	assert_true(read(one[0], &c, 1) == 1 && c == 'a');
	assert_true(read(two[0], &c, 1) == 1 && c == 'b');
	close(one[0]);
	close(one[1]);
	close(two[0]);
	close(two[1]);
	app_process_end(p);
}

static void
pongs(struct app_process *p)
{
	swap(p, 0);
	app_court_pong(&p->shared->court);
}

static void
lines_go_between_the_two(void **state)
{
	struct app_process *p = start(pongs);
	double ns;

	swap(p, 0);
	ns = app_court_ping(&p->shared->court);
	assert_true(ns > 1 && ns <= APP_COURT_LATE_NS);
	app_process_end(p);
}

static void
answers_twice(struct app_process *p)
{
	swap(p, 1);
	swap(p, 2);
}

static void
it_outlives_signals(void **state)
{
	struct app_process *p = start(answers_twice);
	pid_t second = p->pid[1];

	assert_int_equal(swap(p, 0), 1);
	assert_int_equal(kill(second, SIGTERM), 0);
	assert_int_equal(kill(second, SIGINT), 0);
	assert_int_equal(swap(p, 0), 2);
	app_process_end(p);
}

static void
dies(struct app_process *p)
{
	raise(SIGKILL);
}

static void
its_death_ends_a_wait(void **state)
{
	struct app_process *p = start(dies);

	assert_int_equal(swap(p, 0), -ECONNRESET);
	assert_true(app_process_ended(p, 1000));
	assert_non_null(strstr(p->why, "signal 9"));
	app_process_end(p);
}

static int quit_pipe[2];

static void
waits_for_ever(struct app_process *p)
{
	swap(p, 1);
	if (swap(p, 2) != -ECONNRESET || write(quit_pipe[1], "q", 1) != 1)
		_exit(1);
}

/* It is stuck, if the first process only waits for it. */
static void
it_ends_when_the_first_leaves(void **state)
{
	struct app_process *p;
	char c;

	assert_int_equal(pipe2(quit_pipe, 0), 0);
	p = start(waits_for_ever);
	assert_int_equal(swap(p, 0), 1);
	app_process_end(p);
	close(quit_pipe[1]);
	assert_true(read(quit_pipe[0], &c, 1) == 1 && c == 'q');
	close(quit_pipe[0]);
}

static void
it_ends_when_the_first_is_killed(void **state)
{
	pid_t first;
	int status;
	char c;

	assert_int_equal(pipe2(quit_pipe, 0), 0);
	first = fork();
	if (first == 0) {
		swap(start(waits_for_ever), 0);
		raise(SIGKILL);
	}
	close(quit_pipe[1]);
	assert_int_equal(waitpid(first, &status, 0), first);
	assert_true(WIFSIGNALED(status));
	assert_true(read(quit_pipe[0], &c, 1) == 1 && c == 'q');
	assert_int_equal(read(quit_pipe[0], &c, 1), 0); /* It is gone. */
	close(quit_pipe[0]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_go_both_ways),
		cmocka_unit_test(only_who_shows_the_secret_is_taken),
		cmocka_unit_test(descriptors_reach_it),
		cmocka_unit_test(lines_go_between_the_two),
		cmocka_unit_test(it_outlives_signals),
		cmocka_unit_test(its_death_ends_a_wait),
		cmocka_unit_test(it_ends_when_the_first_leaves),
		cmocka_unit_test(it_ends_when_the_first_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
