/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "app_fail.h"
#include "app_json.h"
#include "crpc_bulk.h"
#include "xb.h"

#define SIZE_MIN 4096
#define SIZE_MAX_ (UINT64_C(1) << 30)

const char *const xb_path_names[] = {"eager", "rendezvous", "rendezvous_read", NULL};
const char *const xb_engine_names[] = {"cpu", "dmadev", "gpudev", NULL};
const char *const xb_transport_names[] = {"bulk", "memcpy", "memcpy_two", "ucx", "zmq_tcp",
	"tensor_net", "tensor_net_bf16", "msgpack_zmq_tcp", NULL};
const char *const xb_stage_names[] = {"post", "wire", "unpack", "consume"};
static const char *const directions[] = {"one", "both", NULL};
static const char *const presets[] = {"none", "targets", "arrays", NULL};

#define OPTIONS 20

static size_t
table(struct xb_opt *o, struct app_opt *t)
{
	const struct app_opt opts[OPTIONS] = {
		{"size", APP_OPT_UINTS, "LIST", "bytes of a message (64Mi)", &o->sizes, SIZE_MIN,
			(double)SIZE_MAX_},
		{"chunk", APP_OPT_UINTS, "LIST", "bytes of a chunk, powers of two (512Ki)",
			&o->chunks, CRPC_BULK_CHUNK_MIN, CRPC_BULK_CHUNK_MAX},
		{"window", APP_OPT_UINTS, "LIST",
			"slots of the receiver; the sender has 3/4 of them under way (16)",
			&o->windows, 1, CRPC_BULK_SLOTS_MAX},
		{"rails", APP_OPT_UINTS, "LIST", "endpoints of the connection (1)", &o->rails, 1,
			CRPC_BULK_RAILS_MAX},
		{"engine", APP_OPT_CHOICES, "LIST", "who unpacks eager chunks (cpu)", &o->engines,
			0, 0, xb_engine_names},
		{"path", APP_OPT_CHOICES, "LIST",
			"eager, rendezvous (writes), rendezvous_read (eager,rendezvous)", &o->paths,
			0, 0, xb_path_names},
		{"direction", APP_OPT_CHOICES, "LIST", "one, or both at once (one)", &o->directions,
			0, 0, directions},
		{"depth", APP_OPT_UINT, "N", "messages open at a time, each way", &o->depth, 1,
			XB_DEPTH_MAX},
		{"transport", APP_OPT_CHOICES, "LIST",
			"bulk, memcpy, memcpy_two, ucx, zmq_tcp (these, if they are built); "
			"arrays with operations on them: tensor_net, tensor_net_bf16, "
			"msgpack_zmq_tcp; all",
			&o->transports, 0, 0, xb_transport_names},
		{"ops", APP_OPT_UINT, "N", "operations on each array", &o->ops, 1, XB_OPS_MAX},
		{"ucx-tls", APP_OPT_STRING, "LIST",
			"transports of UCX (rc_v; without a device posix)", &o->ucx_tls},
		{"device", APP_OPT_STRING, "NAME", "RDMA device (the first one)", &o->device},
		{"dma", APP_OPT_STRING, "NAME", "DMA device of the engine dmadev (the first one)",
			&o->dma},
		{"gpu", APP_OPT_STRING, "GPU",
			"GPU of the engine gpudev, a number or a PCI address (the first one)",
			&o->gpu},
		{"slice-ms", APP_OPT_UINT, "MS", "length of a slice; at least one message",
			&o->slice_ms, 1, 10000},
		{"repeat", APP_OPT_UINT, "N", "rounds over all lanes of a case", &o->repeat, 1,
			1000},
		{"verify", APP_OPT_FLAG, NULL,
			"prove the content of every slice, not only of each lane's first",
			&o->verify},
		{"preset", APP_OPT_CHOICE, "NAME",
			"targets: what has to be reached, with a verdict for each line; arrays: "
			"what they cost beside their bytes alone, and fused operations beside "
			"single ones", &o->preset,
			0, 0, presets},
		{"tune", APP_OPT_FLAG, NULL, "find the best chunk and window, and say why",
			&o->tune},
		{"json", APP_OPT_STRING, "FILE", "append one object per result", &o->json},
	};
	size_t i;

	for (i = 0; i < OPTIONS; i++)
		t[i] = opts[i];
	return OPTIONS;
}

static void
list_default(struct app_list *l, uint64_t a)
{
	if (l->n == 0)
		*l = (struct app_list){.n = 1, .v = {a}};
}

static void
defaults(struct xb_opt *o)
{
	uint32_t i;

	if (o->sizes.n == 0 && o->preset == XB_ARRAYS)
		o->sizes = (struct app_list){.n = 5,
			.v = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}};
	list_default(&o->sizes, UINT64_C(64) << 20);
	list_default(&o->chunks, 512 << 10);
	list_default(&o->windows, 16);
	list_default(&o->rails, 1);
	list_default(&o->engines, XB_CPU);
	list_default(&o->directions, 0);
	if (o->paths.n == 0)
		o->paths = (struct app_list){.n = 2, .v = {XB_EAGER, XB_WRITE}};
	for (i = 0; o->transports.n == 0 || (i > 0 && i < XB_PLAIN); i++)
		if (xb_lane_ops[i]->built)
			o->transports.v[o->transports.n++] = i;
}

static bool
has_arrays(const struct xb_opt *o)
{
	bool has = o->preset == XB_ARRAYS;
	uint32_t i;

	for (i = 0; i < o->transports.n; i++)
		has |= o->transports.v[i] >= XB_PLAIN;
	return has;
}

static int
check(const struct xb_opt *o)
{
	const struct xb_lane_ops *ops;
	uint32_t i;

	for (i = 0; i < o->chunks.n; i++)
		if (!crpc_is_pow2(o->chunks.v[i]))
			return app_fail_once("--chunk %" PRIu64
					     " is not a power of two; give one from "
					     "%u to %u",
				o->chunks.v[i], CRPC_BULK_CHUNK_MIN, CRPC_BULK_CHUNK_MAX);
	for (i = 0; i < o->sizes.n; i++)
		if (o->sizes.v[i] % sizeof(float) != 0 && has_arrays(o))
			return app_fail_once("--size %" PRIu64
					     " is not a multiple of 4, and arrays "
					     "are of f32",
				o->sizes.v[i]);
	for (i = 0; i < o->transports.n && o->transports.n < XB_TRANSPORTS; i++) {
		ops = xb_lane_ops[o->transports.v[i]];
		if (!ops->built)
			return app_fail_once(
				"--transport %s is not in this build; install %s and build "
				"again",
				xb_transport_names[o->transports.v[i]], ops->package);
	}
	for (i = 0; i < o->engines.n; i++)
		if (crpc_unpack_find(xb_engine_names[o->engines.v[i]]) == NULL)
			return app_fail_once("--engine %s is not in this build, which was made "
					     "without nvcc; install CUDA and build again, or give "
					     "cpu or dmadev",
				xb_engine_names[o->engines.v[i]]);
	if (o->tune && o->preset != XB_NONE)
		return app_fail_once("--tune and --preset exclude each other; give one");
	if (4 * xb_options_memory(o) > XB_MEMORY_MAX)
		return app_fail_once("--size and --depth ask for %" PRIu64
				     " MiB of buffers; at most "
				     "%" PRIu64 " MiB are taken, so give a smaller --depth",
			4 * xb_options_memory(o) >> 20, XB_MEMORY_MAX >> 20);
	return o->json == NULL ? 0 : app_json_check("json", o->json);
}

int
xb_options_parse(struct xb_opt *o, int argc, char **argv)
{
	struct app_opt t[OPTIONS];
	size_t n;
	int rc;

	*o = (struct xb_opt){.depth = 1, .repeat = 7, .slice_ms = 60, .ops = 1};
	n = table(o, t);
	rc = app_opt_parse(t, n, argc, argv);
	if (rc != 0)
		return rc;
	defaults(o);
	return check(o);
}

void
xb_options_help(int argc, char *const *argv)
{
	struct xb_opt o = {.depth = 1, .repeat = 7, .slice_ms = 60, .ops = 1};
	struct app_opt t[OPTIONS];
	uint32_t i;

	printf("usage: xferbench [EAL arguments --] [options]\n\n"
	       "How fast large messages move between two ends, beside one memcpy(), and what "
	       "bounds them.\nEvery combination of the lists is a case; default in brackets. "
	       "Without hugepages give the EAL\n--no-huge; -l 0,1 gives each end a core, -l 0 has "
	       "both on one; mpirun -np 2, or srun\n--mpi=pmix -n 2, starts each end as a rank, on "
	       "this host or on two, of which rank 0 prints\nthe results.\n\n");
	app_opt_help(t, table(&o, t), stdout);
	for (i = 0; i < XB_TRANSPORTS; i++)
		if (!xb_lane_ops[i]->built)
			printf("\n%s is not in this build: it needs %s.\n", xb_transport_names[i],
				xb_lane_ops[i]->package);
}

uint64_t
xb_options_memory(const struct xb_opt *o)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < o->sizes.n; i++)
		most = crpc_max(most, o->sizes.v[i]);
	if (o->preset == XB_TARGETS)
		most = crpc_max(most, UINT64_C(64) << 20);
	if (o->preset == XB_ARRAYS)
		most = crpc_max(most, UINT64_C(64) << 10);
	return most * o->depth;
}

struct xb_point
xb_options_point(const struct xb_opt *o)
{
	return (struct xb_point){.transport = XB_BULK,
		.path = (enum xb_path)o->paths.v[0],
		.engine = (enum xb_engine)o->engines.v[0],
		.size = o->sizes.v[0],
		.chunk = (uint32_t)o->chunks.v[0],
		.window = (uint32_t)o->windows.v[0],
		.rails = (uint32_t)o->rails.v[0],
		.depth = (uint32_t)o->depth,
		.ops = (uint32_t)o->ops,
		.both = o->directions.v[0] != 0};
}
