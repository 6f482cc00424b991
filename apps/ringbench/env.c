/* SPDX-License-Identifier: BSD-3-Clause */
/* What a line costs between two lcores. */
#include <rte_launch.h>
#include <rte_lcore.h>

#include "rb.h"

const uint32_t rb_lags[RB_LAGS] = {64, 256, 1024, 4096, 16384};

static struct app_court court;

static int
pong(void *arg)
{
	app_court_pong(&court);
	return 0;
}

double
rb_env_line_ns(unsigned int lcore)
{
	double ns;

	app_court_reset(&court);
	rte_eal_remote_launch(pong, NULL, lcore);
	ns = app_court_ping(&court);
	rte_eal_wait_lcore(lcore);
	return ns;
}

/* Lines from the main lcore, and back. */
static struct app_lines lines[2];

struct line_side {
	struct app_lines *to, *from;
	uint32_t lines;
};

static int
line_side(void *arg)
{
	struct line_side *side = arg;

	app_lines_move(side->to, side->from, side->lines);
	return 0;
}

double
rb_env_line_rate(unsigned int lcore, enum rb_ways ways, uint32_t n, uint64_t ns)
{
	struct app_lines *back = ways == RB_BOTH_WAYS ? &lines[1] : NULL;
	struct line_side other = {.to = back, .from = &lines[0], .lines = n};
	uint64_t moved;

	app_lines_begin(&lines[1], ns);
	app_lines_begin(&lines[0], ns);
	rte_eal_remote_launch(line_side, &other, lcore);
	app_lines_move(&lines[0], back, n);
	rte_eal_wait_lcore(lcore);
	moved = crpc_load_relaxed(&lines[0].freed);
	if (back != NULL)
		moved += crpc_load_relaxed(&back->freed);
	return (double)moved * 1e3 / (double)ns;
}

void
rb_env_limits(unsigned int lcore, struct rb_limits *limits)
{
	uint32_t i, ways;

	limits->line_ns = rb_env_line_ns(lcore);
	for (ways = 0; ways < RB_WAYS; ways++)
		for (i = 0; i < RB_LAGS; i++) {
			limits->rate[ways][i] = rb_env_line_rate(
				lcore, (enum rb_ways)ways, rb_lags[i], APP_LINES_NS);
			if (limits->rate[ways][i] > limits->rate[ways][limits->best[ways]])
				limits->best[ways] = i;
		}
}
