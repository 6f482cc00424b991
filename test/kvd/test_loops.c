/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A loop that takes turns with the control work on one lcore: its daemon serves until the loop has
 * ended, and not once after, as the last snapshot would miss what it acknowledged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "crpc_clock.h"
#include "loops.h"

static uint32_t turns;

uint32_t
crpc_kv_daemon_turn(struct crpc_kv_daemon *d, uint64_t now)
{
	(void)d;
	(void)now;
	turns++;
	return 1;
}

void
crpc_kv_daemon_watch(struct crpc_kv_daemon *d, uint64_t now)
{
	(void)d;
	(void)now;
}

void
crpc_kv_daemon_stats(const struct crpc_kv_daemon *d, struct crpc_kv_stats *stats)
{
	(void)d;
	*stats = (struct crpc_kv_stats){0};
}

void
crpc_kv_daemon_join(struct crpc_kv_daemon *d, struct crpc_kv_daemon *mate)
{
	(void)d;
	(void)mate;
}

struct crpc_kv_daemon *
crpc_kv_server_daemon(struct crpc_kv_server *s, uint32_t daemon)
{
	(void)s;
	(void)daemon;
	return NULL;
}

static void
a_loop_that_has_ended_takes_no_turn(void **state)
{
	struct kvd_loops loops = {.loop = {{.daemons = 1}}, .n = 1, .on_main = true};
	uint32_t before;

	(void)state;
	kvd_loops_turn(&loops);
	assert_true(turns > 0);
	kvd_loops_stop(&loops);
	before = turns;
	kvd_loops_turn(&loops);
	assert_int_equal(turns, before);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_loop_that_has_ended_takes_no_turn),
	};

	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
