/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shmbench: what shared memory costs. One benchmark a run: blocks of it, pointers into it, copies
 * within it.
 */

#include "app_fail.h"
#include "app_lcore.h"
#include "app_out.h"
#include "crpc_shm.h"
#include "shmbench.h"

/* Stay on the core where we are: a move in the middle of a slice is no property of memory. */
static void
pin(cpu_set_t *set)
{
	int cpu = sched_getcpu();

	CPU_ZERO(set);
	CPU_SET(cpu < 0 ? 0 : cpu, set);
	sched_setaffinity(0, sizeof(*set), set);
}

static int
run(const struct sb_opt *o, const char *lcores)
{
	static int (*const benches[SB_BENCHES])(const struct sb_opt *, struct app_out *) = {
		sb_allocation, sb_lookup, sb_transfer};
	struct app_out out = {0};
	int rc;

	app_stop_catch();
	crpc_shm_sweep(NULL, "shmbench."); /* Of runs that were killed. */
	sb_allocation_sweep();
	crpc_clock_init();
	rc = app_out_open(&out, "shmbench", "lcore", lcores, o->json);
	if (rc != 0)
		return rc;
	rc = benches[o->bench](o, &out);
	app_out_close(&out, app_stopped() != 0);
	return rc;
}

int
main(int argc, char **argv)
{
	struct sb_opt *o;
	struct app_args args;
	bool eal = app_args_split(&args, argc, argv, true);
	char lcores[32];
	cpu_set_t set;
	int rc;

	app_fail_name("shmbench");
	if (app_args_answer("shmbench", argc, argv, sb_options_help))
		return APP_EXIT_OK;
	rc = sb_options_parse(&o, args.argc, args.argv);
	if (rc != 0)
		return rc;
	pin(&set);
	o->eal = eal;
	if (eal) {
		rc = app_eal_start(&args, &set);
		if (rc != 0)
			return rc;
		app_eal_lcores(1, &set);
	}
	app_lcore_text(&set, lcores, sizeof(lcores));
	rc = run(o, lcores);
	app_eal_stop();
	return rc;
}
