/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app_fail.h"
#include "app_json.h"
#include "crpc_bulk.h"
#include "xb.h"

#define SIZE_MIN  4096
#define SIZE_MAX_ (UINT64_C(1) << 30)

const char *const xb_path_names[] = {"eager", "rendezvous", "rendezvous_read", NULL};
const char *const xb_engine_names[] = {"cpu", "dmadev", "gpudev", NULL};
static const char *const directions[] = {"one", "both", NULL};
static const char *const presets[] = {"none", "arrays", NULL};

static const char *transports[XB_TRANSPORTS + 1];
static struct xb_opt opt;

static const struct app_opt opts[] = {
	APP_SIZE(&opt.sizes, "a message", SIZE_MIN, SIZE_MAX_),
	APP_OPT("chunk", "BYTES", &opt.chunks, "size of a chunk, a power of two",
		CRPC_BULK_CHUNK_MIN, CRPC_BULK_CHUNK_MAX, .pow2 = true),
	APP_OPT("window", "N", &opt.windows, "slots of the receiver, of which the sender uses 3/4",
		1, CRPC_BULK_SLOTS_MAX),
	APP_OPT("rails", "N", &opt.rails, "endpoints of the connection", 1, CRPC_BULK_RAILS_MAX),
	APP_CHOICE("engine", &opt.engines, "what unpacks eager chunks", xb_engine_names),
	APP_CHOICE("unpack", &opt.unpacks,
		"how it gets chunks: as lib/bulk does it; cut, in one list or "
		"each by itself; waited for; or the engine is made for each",
		xb_unpack_names),
	APP_CHOICE("path", &opt.paths, "in chunks, or by one write or read", xb_path_names),
	APP_CHOICE("direction", &opt.directions, "one way, or both at once", directions),
	APP_DEPTH(&opt.depth, "each side: messages on their way", XB_DEPTH_MAX),
	APP_TRANSPORT(&opt.transports, "messages, or from tensor_net on arrays with operations",
		transports),
	APP_OPT("ops", "N", &opt.ops, "operations on each array", 1, XB_OPS_MAX),
	APP_UCX_TLS(&opt.ucx_tls),
	APP_DEVICE(&opt.device),
	APP_OPT("dma", "NAME", &opt.dma, "DMA device of the engine dmadev; without it the first"),
	APP_OPT("gpu", "NAME", &opt.gpu,
		"GPU of the engine gpudev, a number or a PCI address; without it the first"),
	APP_LENGTH(&opt.length, ", at least one message", "lanes of a case"),
	APP_VERIFY(&opt.verify, "the content of every slice, not only of each lane's first"),
	APP_PRESET(&opt.preset,
		"arrays: what they cost compared with their bytes, and operations one by one or "
		"fused",
		presets),
	APP_JSON(&opt.json),
};

static const struct xb_opt usual = {
	.sizes = {1, {64 << 20}},
	.chunks = {1, {512 << 10}},
	.windows = {1, {16}},
	.rails = {1, {1}},
	.engines = {1, {XB_CPU}},
	.unpacks = {1, {XB_BATCHED}},
	.paths = {2, {XB_EAGER, XB_WRITE}},
	.directions = {1, {0}},
	.length = APP_LENGTH_DEFAULT,
	.depth = 1,
	.ops = 1,
};
/* --preset arrays: arrays beside their bytes, which are moved by bulk and by memcpy. */
static const struct app_list array_transports = {
	4, {XB_TENSOR, XB_TENSOR_BF16, XB_BULK, XB_MEMCPY}};
static const struct app_list array_sizes = {5, {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}};

static int
check(const struct xb_opt *o)
{
	bool has_arrays = app_list_max(&o->transports) >= XB_PLAIN;

	for (uint32_t i = 0; i < o->sizes.n; i++)
		if (o->sizes.v[i] % sizeof(float) != 0 && has_arrays)
			return app_fail_once("--size %" PRIu64
					     " is not a multiple of 4, and arrays "
					     "are of f32",
				o->sizes.v[i]);
	for (uint32_t i = 0; i < o->engines.n; i++)
		if (crpc_unpack_find(xb_engine_names[o->engines.v[i]]) == NULL)
			return app_fail_once("--engine %s is not in this build, which was made "
					     "without nvcc; install CUDA and build again, or give "
					     "cpu or dmadev",
				xb_engine_names[o->engines.v[i]]);
	if (4 * xb_options_memory(o) > XB_MEMORY_MAX)
		return app_fail_once("--size and --depth ask for %" PRIu64
				     " MiB of buffers; at most "
				     "%" PRIu64 " MiB are taken, so give a smaller --depth",
			4 * xb_options_memory(o) >> 20, XB_MEMORY_MAX >> 20);
	return app_json_check("json", o->json);
}

int
xb_options_parse(struct xb_opt *o, int argc, char **argv)
{
	int rc;

	app_ways_names(transports, xb_ways, XB_TRANSPORTS);
	opt = usual;
	opt.sizes.n = 0;
	rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
	if (opt.preset == XB_ARRAYS && opt.transports.n == 0)
		opt.transports = array_transports;
	if (rc == 0)
		rc = app_ways_choose(
			&opt.transports, xb_ways, opt.transports.n == 0 ? XB_PLAIN : XB_TRANSPORTS);
	if (rc != 0)
		return rc;
	if (opt.sizes.n == 0)
		opt.sizes = opt.preset == XB_ARRAYS ? array_sizes : usual.sizes;
	*o = opt;
	return check(o);
}

void
xb_options_help(int argc, char *const *argv)
{
	opt = usual;
	app_ways_names(transports, xb_ways, XB_TRANSPORTS);
	app_ways_choose(&opt.transports, xb_ways, XB_PLAIN);
	printf("usage: xferbench [EAL arguments --] [options]\n\n"
	       "How fast large messages move between two ends, compared with one memcpy(), and\n"
	       "what bounds them. Every combination of the lists is a case. Without hugepages\n"
	       "give the EAL --no-huge; -l 0,1 gives each end a core, -l 0 has both on one;\n"
	       "mpirun -np 2, or srun --mpi=pmix -n 2, starts each end as a rank, on this host\n"
	       "or on two, of which rank 0 prints the results.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), stdout);
	app_ways_help(xb_ways, XB_TRANSPORTS, stdout);
}

uint64_t
xb_options_memory(const struct xb_opt *o)
{
	uint64_t most = app_list_max(&o->sizes);

	if (o->preset == XB_ARRAYS)
		most = crpc_max(most, XB_OPS_SIZE);
	return most * o->depth;
}

struct app_case
xb_options_case(const struct xb_opt *o)
{
	return (struct app_case){.transport = XB_BULK,
		.path = (uint32_t)o->paths.v[0],
		.engine = (uint32_t)o->engines.v[0],
		.unpack = (uint32_t)o->unpacks.v[0],
		.size = o->sizes.v[0],
		.chunk = (uint32_t)o->chunks.v[0],
		.window = (uint32_t)o->windows.v[0],
		.rails = (uint32_t)o->rails.v[0],
		.depth = (uint32_t)o->depth,
		.ops = (uint32_t)o->ops,
		.both = (uint32_t)o->directions.v[0]};
}
