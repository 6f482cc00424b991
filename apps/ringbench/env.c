/* SPDX-License-Identifier: BSD-3-Clause */
/* What a line costs between two lcores. */
#include "rb.h"

#define LAGS 5
static const uint32_t lags[LAGS] = {64, 256, 1024, 4096, 16384}; /* lines in flight */
static uint32_t best[RB_WAYS];                                   /* of the highest rate */

/* Lines from side 0, and back. */
static struct app_lines lines[2];

struct move {
	enum rb_ways ways;
	uint32_t lines;
};

static int
move(void *arg, int side)
{
	const struct move *m = arg;
	struct app_lines *back = m->ways == RB_BOTH_WAYS ? &lines[1] : NULL;

	app_lines_move(side == 0 ? &lines[0] : back, side == 0 ? back : &lines[0], m->lines);
	return 0;
}

static double
line_rate(struct app_party *p, enum rb_ways ways, uint32_t lag, uint64_t ns)
{
	struct move m = {ways, lag};

	app_lines_begin(&lines[1], ns);
	app_lines_begin(&lines[0], ns);
	app_party_both(p, move, &m);
	return (double)(crpc_load_relaxed(&lines[0].freed) + crpc_load_relaxed(&lines[1].freed)) *
		1e3 / (double)ns;
}

double
rb_env_line_rate(struct app_party *p, enum rb_ways ways, uint64_t ns)
{
	return line_rate(p, ways, lags[best[ways]], ns);
}

void
rb_env_limits(struct app_party *p)
{
	static const char *const names[RB_WAYS] = {"one way", "both ways"};
	double rate[LAGS];

	printf("  %-24s", "lines in flight");
	for (uint32_t i = 0; i < LAGS; i++)
		printf(" %7u", lags[i]);
	for (uint32_t ways = 0; ways < RB_WAYS; ways++) {
		printf("\n  M lines/s %-14s", names[ways]);
		for (uint32_t i = 0; i < LAGS; i++) {
			rate[i] = line_rate(p, (enum rb_ways)ways, lags[i], APP_LINES_NS);
			if (rate[i] > rate[best[ways]])
				best[ways] = i;
			printf(" %7.1f", rate[i]);
		}
	}
	printf("\n");
}
