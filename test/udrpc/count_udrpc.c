/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions per call of lib/udrpc: count_rpc.h. */
#include "crpc_udrpc.h"

#define PROTOCOL crpc_udrpc
#include "count_rpc.h"

static const struct count_case cases[CASES_MAX] = {
	{"calls_8x256", 8, 8, 256, 64, 0, 20000},
	{"calls_1x32", 1, 1, 32, 64, 0, 10000},
	{"calls_1x1", 1, 1, 1, 64, 0, 3000},
	{"eps_8_active_8", 8, 8, 4, 64, 0, 8000},
	{"eps_1000_active_8", EPS, 8, 4, 64, 0, 8000},
};

static const struct count_how how = {.step_ns = 100, .cq_depth = 16384};

static void
context_make(struct side *s, const struct count_case *c)
{
	struct crpc_udrpc_conf conf = {.max_eps = c->eps,
		.slots = c->depth,
		.credits = c->depth,
		.max_msg = 64,
		.sq_depth = 2048,
		.rq_depth = 4096,
		.seed = 1};

	conf.dev = s->dev;
	s->ctx = crpc_udrpc_create(&conf);
}
