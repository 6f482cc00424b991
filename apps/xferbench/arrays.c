/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an array with operations on it costs: beside a bulk transfer of the same bytes, beside
 * msgpack over ZeroMQ, and with operations fused into its request beside one request for each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "xb.h"

/* Of the array whose operations are counted. */
#define OPS_SIZE (64u << 10)

/* The lanes of a size, in this order. */
enum { TENSOR_EAGER, TENSOR_WRITE, TENSOR_BF16, BULK_EAGER, BULK_WRITE, MSGPACK, COPY, LANES };

static const struct {
	enum xb_transport transport;
	enum xb_path path;
} lanes[LANES] = {
	[TENSOR_EAGER] = {XB_TENSOR, XB_EAGER},
	[TENSOR_WRITE] = {XB_TENSOR, XB_WRITE},
	[TENSOR_BF16] = {XB_TENSOR_BF16, XB_EAGER},
	[BULK_EAGER] = {XB_BULK, XB_EAGER},
	[BULK_WRITE] = {XB_BULK, XB_WRITE},
	[MSGPACK] = {XB_MSGPACK, XB_EAGER},
	[COPY] = {XB_MEMCPY, XB_WRITE},
};

static const uint32_t counts[] = {1, 2, 4, XB_OPS_MAX};

/* Median time of a message, us; 0: it was not measured. */
static double
each_us(const struct xb_group *g, int i)
{
	struct app_figure f = {0};

	if (i >= 0 && g->lane[i].each.n != 0)
		xb_figure(g, &g->lane[i].each, &f);
	return f.median;
}

static void
tell_added(const struct xb_group *g, const char *path, int tensor, int bulk)
{
	double a = each_us(g, tensor), b = each_us(g, bulk);

	if (a > 0 && b > 0)
		printf("  head, operation and status add %.2f us (%.0f %%) to the same bytes by "
		       "bulk, %s\n", a - b, 100 * (a / b - 1), path);
}

static void
tell_ratio(const struct xb_group *g, const char *what, int a, int b)
{
	if (each_us(g, a) > 0 && each_us(g, b) > 0)
		printf("  %s: %.2f times as long\n", what,
			1 / xb_ratio(g, &g->lane[a].each, &g->lane[b].each));
}

static void
tell_noise(const struct xb_group *g)
{
	if (g->trial.noisy)
		printf("  noisy: what follows means nothing\n");
}

static int
one_size(struct xb_run *run, uint64_t size)
{
	struct xb_group *g = calloc(1, sizeof(*g));
	int index[LANES], i, rc;
	struct xb_point p;

	if (g == NULL)
		return -ENOMEM;
	g->run = run;
	for (i = 0; i < LANES; i++) {
		p = xb_options_point(run->opt);
		p.transport = lanes[i].transport;
		p.path = lanes[i].path;
		p.size = size;
		index[i] = xb_group_add(g, &p) ? (int)g->n - 1 : -1;
	}
	rc = xb_group_measure(g);
	if (rc == 0)
		rc = xb_out_group(g);
	tell_noise(g);
	tell_added(g, "eager", index[TENSOR_EAGER], index[BULK_EAGER]);
	tell_added(g, "rendezvous", index[TENSOR_WRITE], index[BULK_WRITE]);
	tell_ratio(g, "msgpack over ZeroMQ, beside eager", index[TENSOR_EAGER], index[MSGPACK]);
	tell_ratio(g, "f32 on the wire, beside bf16", index[TENSOR_BF16], index[TENSOR_EAGER]);
	xb_group_fini(g);
	free(g);
	return rc;
}

/* ---- fused operations ---- */

static void
tell_fused(const struct xb_group *g, const char *what, const int fused[], const int separate[])
{
	uint32_t i;

	for (i = 0; i < CRPC_DIM(counts); i++)
		if (fused[i] != separate[i] && each_us(g, fused[i]) > 0 &&
			each_us(g, separate[i]) > 0)
			printf("  %-16s %u operations: fused %.2f us, one by one %.2f us: %.2f "
			       "times as long\n", what, counts[i], each_us(g, fused[i]),
				each_us(g, separate[i]),
				1 / xb_ratio(g, &g->lane[fused[i]].each,
					&g->lane[separate[i]].each));
}

static int
add(struct xb_group *g, enum xb_transport t, uint32_t ops, bool separate)
{
	struct xb_point p = xb_options_point(g->run->opt);

	p.transport = t;
	p.path = XB_EAGER;
	p.size = OPS_SIZE;
	p.depth = 1;
	p.ops = ops;
	p.separate = separate;
	return xb_group_add(g, &p) ? (int)g->n - 1 : -1;
}

static int
fused_operations(struct xb_run *run)
{
	struct xb_group *g = calloc(1, sizeof(*g));
	int tensor[2][CRPC_DIM(counts)], msgpack[2][CRPC_DIM(counts)], rc;
	uint32_t i, s;

	if (g == NULL)
		return -ENOMEM;
	g->run = run;
	for (i = 0; i < CRPC_DIM(counts); i++)
		for (s = 0; s < 2; s++) {
			/* Of one there is nothing to fuse. */
			if (counts[i] == 1 && s == 1) {
				tensor[s][i] = tensor[0][i];
				msgpack[s][i] = msgpack[0][i];
				continue;
			}
			tensor[s][i] = add(g, XB_TENSOR, counts[i], s == 1);
			msgpack[s][i] = add(g, XB_MSGPACK, counts[i], s == 1);
		}
	rc = xb_group_measure(g);
	if (rc == 0)
		rc = xb_out_group(g);
	tell_noise(g);
	tell_fused(g, "tensor_net", tensor[0], tensor[1]);
	tell_fused(g, "msgpack_zmq_tcp", msgpack[0], msgpack[1]);
	fflush(stdout);
	xb_group_fini(g);
	free(g);
	return rc;
}

int
xb_arrays(struct xb_run *run)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < run->opt->sizes.n && rc == 0 && !xb_interrupted(); i++)
		rc = one_size(run, run->opt->sizes.v[i]);
	if (rc == 0 && !xb_interrupted())
		rc = fused_operations(run);
	return rc;
}
