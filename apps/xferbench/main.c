/* SPDX-License-Identifier: BSD-3-Clause */
/* xferbench: the two sides, buffers, and every case of the command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "app_fail.h"
#include "crpc_unpack_dmadev.h"
#include "crpc_unpack_gpudev.h"
#include "xb.h"

#define HUGE (UINT64_C(2) << 20)

static struct app_party party;

/* ---- memory ---- */

/*
 * Send and receive buffers of the sides that have them: a rank its own, under both numbers, as its
 * copies are from its own memory to its own. Touched, so that no slice pays for pages; in large
 * ones where the kernel gives them.
 */
static int
memory_make(void *arg)
{
	struct xb_run *run = arg;
	uint64_t len = crpc_align_up(xb_options_memory(run->opt), HUGE);
	bool rank = run->party->place == APP_PLACE_RANK, both = false;
	uint8_t *p;

	for (uint32_t i = 0; i < run->opt->directions.n; i++)
		both |= !rank && run->opt->directions.v[i] != 0;
	run->mem_len = (both ? 4 : 2) * len;
	p = mmap(NULL, run->mem_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return app_fail("no memory for buffers of %lu MiB each; give a smaller --size",
			(unsigned long)(len >> 20));
	madvise(p, run->mem_len, MADV_HUGEPAGE);
	memset(p, 1, run->mem_len);
	run->mem[0].send = p;
	run->mem[1].recv = p + len;
	if (both || rank) {
		run->mem[1].send = rank ? p : p + 2 * len;
		run->mem[0].recv = rank ? p + len : p + 3 * len;
	}
	return 0;
}

/* ---- cases ---- */

/* Ours by every path, and the others, side by side. */
static int
run_case(struct xb_run *run, const struct app_case *point)
{
	const struct xb_opt *o = run->opt;
	struct app_group g = xb_group(run);
	struct app_case p = *point;

	for (uint32_t i = 0; i < o->transports.n; i++) {
		p.transport = (uint32_t)o->transports.v[i];
		/* A memcpy has no path, and ZeroMQ but one. */
		for (uint32_t k = 0; k < o->paths.n; k++) {
			p.path = (uint32_t)o->paths.v[k];
			if (k == 0 || p.transport == XB_BULK || p.transport == XB_UCX ||
				p.transport == XB_TENSOR)
				xb_group_add(run, &g, &p);
		}
	}
	return xb_group_run(&g);
}

/* --preset arrays: operations fused into a request, and one request for each, side by side. */
static int
fused_operations(struct xb_run *run)
{
	struct app_group g = xb_group(run);
	struct app_case p = xb_options_case(run->opt);

	p.transport = XB_TENSOR;
	p.path = XB_EAGER;
	p.size = XB_OPS_SIZE;
	p.depth = 1;
	for (p.ops = 1; p.ops <= XB_OPS_MAX; p.ops *= 2)
		/* Of one there is nothing to fuse. */
		for (int separate = 0; separate < (p.ops == 1 ? 1 : 2); separate++) {
			p.separate = separate != 0;
			xb_group_add(run, &g, &p);
		}
	return xb_group_run(&g);
}

static int
run_all(void *arg)
{
	struct xb_run *run = arg;
	const struct xb_opt *o = run->opt;
	struct app_case p = xb_options_case(o);
	const struct app_axis axes[] = {{&o->directions, &p.both}, {&o->chunks, &p.chunk},
		{&o->windows, &p.window}, {&o->rails, &p.rails}, {&o->engines, &p.engine},
		{&o->unpacks, &p.unpack}};
	int rc = 0;

	for (uint32_t s = 0; s < o->sizes.n; s++) {
		p.size = o->sizes.v[s];
		for (uint32_t at = 0; rc == 0 && !app_party_stopped(run->party) &&
			app_axes_set(axes, CRPC_DIM(axes), at);
			at++)
			rc = run_case(run, &p);
	}
	return rc == 0 && o->preset == XB_ARRAYS && !app_party_stopped(run->party)
		? fused_operations(run)
		: rc;
}

static int
run(const struct xb_opt *o)
{
	struct xb_run run = {.opt = o, .party = &party};
	const struct app_bench bench = {"xferbench", o->json, memory_make, run_all, &run};
	int rc;

	party.out.common = json_pack("{s:i,s:i}", "ranks", party.place == APP_PLACE_RANK ? 2 : 1,
		"hosts", party.one_host ? 1 : 2);
	rc = app_party_run(&party, &bench);
	if (run.mem[0].send != NULL)
		munmap(run.mem[0].send, run.mem_len);
	return rc;
}

int
main(int argc, char **argv)
{
	static struct xb_opt o;
	struct app_args args;
	int rc;

	app_fail_name("xferbench");
	if (app_args_answer("xferbench", argc, argv, xb_options_help))
		return APP_EXIT_OK;
	app_args_split(&args, argc, argv, true);
	crpc_unpack_dmadev_register();
	xb_unpack_register();
#ifdef XB_HAVE_GPUDEV
	crpc_unpack_gpudev_register();
#endif
	rc = xb_options_parse(&o, args.argc, args.argv);
	if (rc != 0)
		return rc;
	rc = app_party_start(&party, &args, o.device);
	if (rc != 0)
		return rc;
	return run(&o);
}
