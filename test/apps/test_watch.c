/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * app_watch: a process that is killed is found dead, one that only does not run is not; by its
 * pidfd and, as if it were on another host, by its connection. What cannot be watched is refused.
 *
 * Each test forks a process that does nothing, and kills it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_watch.h"
#include "crpc_clock.h"

/* A process, and what it tells of itself. */
struct other {
	pid_t pid;
	struct app_watch_card card;
};

static void
other_main(int fd)
{
	struct app_watch *w = app_watch_create(2);
	struct app_watch_card card;

	card = w->card;
	if (write(fd, &card, sizeof(card)) != sizeof(card))
		_exit(1);
	for (;;) {
		app_watch_look(w, crpc_clock_ns());
		usleep(1000);
	}
}

static void
other_start(struct other *o)
{
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	o->pid = fork();
	assert_true(o->pid >= 0);
	if (o->pid == 0) {
		close(fd[0]);
		alarm(60); /* Whatever happens to the test, it ends. */
		other_main(fd[1]);
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], &o->card, sizeof(o->card)), sizeof(o->card));
	close(fd[0]);
}

/* Look until the process is found dead, or the time is over. */
static bool
found_dead(struct app_watch *w, uint64_t limit_ms)
{
	uint64_t end = crpc_clock_ns() + limit_ms * 1000000;

	while (!w->peer[1].gone && crpc_clock_ns() < end) {
		app_watch_look(w, crpc_clock_ns());
		usleep(1000);
	}
	return w->peer[1].gone;
}

/*
 * Stopped for longer than its host is given to answer: it lives all the same. Killed: it is dead.
 */
static void
stopped_is_not_dead(struct other *o)
{
	struct app_watch *w = app_watch_create(2);

	assert_non_null(w);
	assert_int_equal(app_watch_add(w, 1, &o->card), 0);
	assert_int_equal(app_watch_add(w, 1, &o->card), -EINVAL);
	kill(o->pid, SIGSTOP);
	assert_false(found_dead(w, APP_WATCH_HOST_MS + 3 * APP_WATCH_BEACON_MS));
	kill(o->pid, SIGKILL);
	assert_true(found_dead(w, 10000));
	/* It is found before its parent has waited for it, and stays dead. */
	assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
	assert_true(found_dead(w, 0));
	app_watch_free(w);
}

static void
same_host(void **state)
{
	struct other o;

	other_start(&o);
	stopped_is_not_dead(&o);
}

/* Another network namespace; this host answers by all addresses of its loopback. */
static void
make_far(struct other *o)
{
	o->card.net_ns++;
	o->card.addrs = 1;
	o->card.addr[0] = htonl(0x7f000002);
}

static void
other_host(void **state)
{
	struct other o;

	other_start(&o);
	make_far(&o);
	stopped_is_not_dead(&o);
}

/* Many processes may have the same address; of two one answers. */
static void
second_address(void **state)
{
	struct app_watch *w = app_watch_create(2);
	struct other o;

	other_start(&o);
	make_far(&o);
	o.card.addrs = 2;
	o.card.addr[1] = o.card.addr[0];
	o.card.addr[0] = htonl(0x7f000003);
	assert_int_equal(app_watch_add(w, 1, &o.card), 0);
	kill(o.pid, SIGKILL);
	assert_true(found_dead(w, 10000));
	waitpid(o.pid, NULL, 0);
	app_watch_free(w);
}

static void
cannot_be_watched(void **state)
{
	struct app_watch *w = app_watch_create(2);
	struct app_watch_card ours;
	struct other o;

	other_start(&o);
	ours = w->card;
	assert_int_equal(app_watch_add(w, 2, &o.card), -EINVAL);
	make_far(&o);
	o.card.port = 0; /* It does not listen. */
	assert_int_equal(app_watch_add(w, 1, &o.card), -EHOSTUNREACH);
	o.card.port = htons(1); /* Nobody does. */
	assert_int_equal(app_watch_add(w, 1, &o.card), -EHOSTUNREACH);
	if (ours.addrs != 0) { /* An address of our own host leads to ourselves. */
		o.card.port = ours.port;
		o.card.addr[0] = ours.addr[0];
		assert_int_equal(app_watch_add(w, 1, &o.card), -EHOSTUNREACH);
	}
	kill(o.pid, SIGKILL);
	waitpid(o.pid, NULL, 0);
	o.card.net_ns = ours.net_ns; /* Dead before it could be watched. */
	assert_int_equal(app_watch_add(w, 1, &o.card), -ESRCH);
	assert_false(w->peer[1].gone);
	app_watch_free(w);
	app_watch_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_host),
		cmocka_unit_test(other_host),
		cmocka_unit_test(second_address),
		cmocka_unit_test(cannot_be_watched),
	};

	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
