/* SPDX-License-Identifier: BSD-3-Clause */
/* Two lcores side by side, or one that plays both ends. */
#include <limits.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "crpc_idle.h"
#include "xb.h"

struct job {
	xb_side_fn fn;
	void *arg;
	int rc;
	_Atomic uint32_t ended;
};

bool
xb_team_two(const struct xb_team *t)
{
	return t->second != UINT_MAX;
}

static int
second_run(void *arg)
{
	struct job *job = arg;

	job->rc = job->fn(job->arg, 1);
	crpc_store_release(&job->ended, 1); /* R74 */
	return 0;
}

int
xb_team_both(struct xb_team *t, xb_side_fn fn, void *arg)
{
	struct job job = {.fn = fn, .arg = arg};
	int first, rc;

	if (!xb_team_two(t)) {
		first = fn(arg, 0);
		return first != 0 ? first : fn(arg, 1);
	}
	rc = rte_eal_remote_launch(second_run, &job, t->second);
	if (rc != 0)
		return rc;
	first = fn(arg, 0);
	/* A74 pairs with R74: what the other side did. */
	while (crpc_load_acquire(&job.ended) == 0)
		crpc_pause();
	rte_eal_wait_lcore(t->second);
	return first != 0 ? first : job.rc;
}

void
xb_team_barrier(struct xb_team *t)
{
	uint32_t phase = crpc_load_relaxed(&t->phase);

	/* AR70 pairs with itself: what either did before is seen by both behind. */
	if (crpc_fetch_add_acq_rel(&t->arrived, 1) == 1) {
		crpc_store_relaxed(&t->arrived, 0);
		crpc_store_release(&t->phase, phase + 1); /* R71 */
		return;
	}
	while (crpc_load_acquire(&t->phase) == phase) /* A71 pairs with R71 */
		crpc_pause();
}

static int
play(void *arg, int side)
{
	struct xb_team *t = arg;

	if (side == 1)
		app_court_pong(&t->court);
	else
		t->line_ns = app_court_ping(&t->court);
	return 0;
}

double
xb_team_line_ns(struct xb_team *t)
{
	if (!xb_team_two(t))
		return 0;
	app_court_reset(&t->court);
	return xb_team_both(t, play, t) == 0 ? t->line_ns : APP_COURT_LATE_NS;
}
