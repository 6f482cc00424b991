/* SPDX-License-Identifier: BSD-3-Clause */
/* Two lcores side by side, one that plays both ends, or two ranks. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "app_fail.h"
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
	return t->second != UINT_MAX || t->link != NULL;
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

	if (t->link != NULL)
		return fn(arg, t->side);
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

int
xb_team_swap(struct xb_team *t, const void *mine, void *theirs, size_t len)
{
	int rc;

	if (t->stop)
		return -ECANCELED;
	rc = xb_link_tell(t->link, mine, len);
	if (rc != 0)
		return xb_team_lost(t, rc);
	while ((rc = xb_link_take(t->link, theirs, len)) == -EAGAIN)
		xb_link_idle(t->link);
	return rc == 0 ? 0 : xb_team_lost(t, rc);
}

int
xb_team_lost(struct xb_team *t, int rc)
{
	if (!t->stop)
		app_note("rank %d is lost: %s", !t->side, strerror(-rc));
	t->stop = true;
	return rc;
}

int
xb_team_barrier(struct xb_team *t)
{
	uint32_t phase = crpc_load_relaxed(&t->phase), other;

	if (t->link != NULL)
		return xb_team_swap(t, &phase, &other, sizeof(phase));
	/* AR70 pairs with itself: what either did before is seen by both behind. */
	if (crpc_fetch_add_acq_rel(&t->arrived, 1) == 1) {
		crpc_store_relaxed(&t->arrived, 0);
		crpc_store_release(&t->phase, phase + 1); /* R71 */
		return 0;
	}
	while (crpc_load_acquire(&t->phase) == phase) /* A71 pairs with R71 */
		crpc_pause();
	return 0;
}

double
xb_team_max(struct xb_team *t, double mine)
{
	double theirs = mine;

	if (t->link != NULL && xb_team_swap(t, &mine, &theirs, sizeof(mine)) != 0)
		return mine;
	return fmax(mine, theirs);
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

bool
xb_team_plays_line(const struct xb_team *t)
{
	return t->link != NULL ? t->segment != NULL : xb_team_two(t);
}

double
xb_team_line_ns(struct xb_team *t)
{
	if (t->link != NULL)
		return xb_court_line_ns(t);
	if (!xb_team_two(t))
		return 0;
	app_court_reset(&t->court);
	return xb_team_both(t, play, t) == 0 ? t->line_ns : APP_COURT_LATE_NS;
}
