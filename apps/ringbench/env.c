/* SPDX-License-Identifier: BSD-3-Clause */
/* What a line costs between two lcores. */
#include <rte_launch.h>
#include <rte_lcore.h>

#include "rb.h"

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

static int
line_reader(void *arg)
{
	app_court_read(&court);
	return 0;
}

double
rb_env_line_rate(unsigned int lcore)
{
	double rate;

	app_court_reset(&court);
	rte_eal_remote_launch(line_reader, NULL, lcore);
	rate = app_court_write(&court);
	rte_eal_wait_lcore(lcore);
	return rate;
}
