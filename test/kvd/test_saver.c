/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A snapshot while loops run: the disk is waited for while they run, the control thread gets its
 * turn, and the child that makes it lasting keeps no socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "control.h"
#include "crpc_clock.h"
#include "saver.h"

#define DAEMONS  3
#define SLICES   10u
#define SLICE_NS 2000000

struct kvd_health kvd_health;
_Atomic int kvd_hangup;
static bool stands, fails;
static uint32_t copies, writes, slices[DAEMONS];
static int file, sock;

int
kvd_loop_pause(struct kvd_loops *l, uint32_t i)
{
	assert_in_range(i, 0, l->n - 1);
	assert_false(stands);
	stands = true;
	return 0;
}

void
kvd_loop_resume(struct kvd_loops *l, uint32_t i)
{
	(void)l;
	(void)i;
	stands = false;
}

void
kvd_loops_turn(struct kvd_loops *l)
{
	(void)l;
}

int64_t
crpc_kv_server_restore(struct crpc_kv_server *s, const char *path, uint32_t *missing)
{
	(void)s;
	(void)path;
	*missing = 0;
	return 0;
}

int
crpc_kv_server_snapshot_claim(struct crpc_kv_server *s, const char *path)
{
	(void)s;
	(void)path;
	memset(slices, 0, sizeof(slices));
	return 0;
}

int
crpc_kv_server_snapshot_write(struct crpc_kv_server *s, uint32_t daemon)
{
	(void)s;
	assert_false(stands);
	assert_in_range(daemon, 0, DAEMONS - 1);
	writes++;
	return fails ? -ENOSPC : 0;
}

int64_t
crpc_kv_server_snapshot_copy(struct crpc_kv_server *s, uint32_t daemon, uint32_t places)
{
	const struct timespec slice = {.tv_nsec = SLICE_NS};

	(void)s;
	(void)places;
	assert_true(stands);
	assert_true(writes > copies);
	nanosleep(&slice, NULL);
	copies++;
	return ++slices[daemon] < SLICES ? -EAGAIN : 100;
}

int
crpc_kv_server_snapshot_commit(struct crpc_kv_server *s)
{
	uint32_t i;

	(void)s;
	for (i = 0; i < DAEMONS; i++)
		if (slices[i] != SLICES)
			return -EINVAL;
	return fcntl(sock, F_GETFD) == -1 && fcntl(file, F_GETFD) != -1 ? 0 : -EBADF;
}

static void
a_snapshot_leaves_time_for_other_control_work(void **state)
{
	struct kvd_loops loops = {.loop = {{.daemons = 2}, {.daemons = 1}}, .n = 2};
	struct kvd_saver v = {.path = "none", .loops = &loops, .places = 1};
	uint32_t before;

	(void)state;
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	kvd_saver_turn(&v, 1);
	assert_int_equal(copies, 0);
	kvd_hangup = 1;
	while (kvd_health.snapshots == 0 && kvd_health.snapshots_failed == 0) {
		before = copies;
		kvd_saver_turn(&v, 1);
		assert_in_range(copies - before, 0, 3);
		assert_int_equal(v.copying, copies != DAEMONS * SLICES);
	}
	assert_int_equal(kvd_health.snapshots, 1);
	assert_int_equal(kvd_health.snapshot_keys, DAEMONS * 100);
	/* A disk that is full, and the next snapshot. */
	kvd_hangup = 1;
	kvd_saver_turn(&v, 1);
	fails = true;
	kvd_saver_turn(&v, 1);
	assert_false(v.copying);
	assert_int_equal(kvd_health.snapshots_failed, 1);
	fails = false;
	/* The end breaks off what is being copied, and copies all again. */
	kvd_hangup = 1;
	kvd_saver_turn(&v, 1);
	kvd_saver_turn(&v, 1);
	assert_true(v.copying);
	close(sock);
	assert_int_equal(kvd_saver_end(&v), 0);
	assert_int_equal(kvd_health.snapshots, 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_snapshot_leaves_time_for_other_control_work),
	};

	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
