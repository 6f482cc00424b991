/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions per call of lib/copyrpc: count_rpc.h. */
#include "crpc_copyrpc.h"

#define PROTOCOL crpc_copyrpc
#include "count_rpc.h"

static const struct count_case cases[CASES_MAX] = {
	{"calls_8x256", 8, 8, 256, 64, 65536, 400000},
	{"calls_8x16", 8, 8, 16, 64, 32768, 50000},
	{"calls_1x1", 1, 1, 1, 64, 32768, 5000},
	{"eps_8_active_8", 8, 8, 4, 64, 4096, 50000},
	{"eps_1000_active_8", EPS, 8, 4, 64, 4096, 50000},
};

static const struct count_how how = {.step_ns = 1000, .drain = true, .cq_depth = 1u << 18};

static void
context_make(struct side *s, const struct count_case *c)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = c->eps, .ring_size = c->ring_size, .max_inflight = c->depth};

	conf.dev = s->dev;
	s->ctx = crpc_copyrpc_create(&conf);
}
