/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an array with operations on it costs: beside a bulk transfer of the same bytes, and with
 * operations fused into its request beside one request for each.
 */
#include "xb.h"

/* Of the array whose operations are counted. */
#define OPS_SIZE (64u << 10)

/* The lanes of a size. */
static const struct {
	enum xb_transport transport;
	enum xb_path path;
} lanes[] = {{XB_TENSOR, XB_EAGER}, {XB_TENSOR, XB_WRITE}, {XB_TENSOR_BF16, XB_EAGER},
	{XB_BULK, XB_EAGER}, {XB_BULK, XB_WRITE}, {XB_MEMCPY, XB_WRITE}};

static int
one_size(struct xb_run *run, uint64_t size)
{
	struct app_group g = xb_group(run);
	struct app_case p = xb_options_case(run->opt);

	p.size = size;
	for (uint32_t i = 0; i < CRPC_DIM(lanes); i++) {
		p.transport = lanes[i].transport;
		p.path = lanes[i].path;
		xb_group_add(run, &g, &p);
	}
	return xb_group_run(&g);
}

static int
fused_operations(struct xb_run *run)
{
	struct app_group g = xb_group(run);
	struct app_case p = xb_options_case(run->opt);

	p.transport = XB_TENSOR;
	p.path = XB_EAGER;
	p.size = OPS_SIZE;
	p.depth = 1;
	for (p.ops = 1; p.ops <= XB_OPS_MAX; p.ops *= 2)
		/* Of one there is nothing to fuse. */
		for (int separate = 0; separate < (p.ops == 1 ? 1 : 2); separate++) {
			p.separate = separate != 0;
			xb_group_add(run, &g, &p);
		}
	return xb_group_run(&g);
}

int
xb_arrays(struct xb_run *run)
{
	int rc = 0;

	for (uint32_t i = 0; i < run->opt->sizes.n && rc == 0 && !app_party_stopped(run->party);
		i++)
		rc = one_size(run, run->opt->sizes.v[i]);
	if (rc == 0 && !app_party_stopped(run->party))
		rc = fused_operations(run);
	return rc;
}
