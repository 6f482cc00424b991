/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer tensor: options, and rounds of slices over the ways. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "tensor.h"

#define COPIES 5

static const char *const transports[] = {"tensor_f32", "tensor_f32_copied", "tensor_bf16",
	"raw_zmq_ipc", "raw_zmq_tcp", "msgpack_bin_zmq_ipc", "msgpack_bin_zmq_tcp",
	"msgpack_elements_zmq_ipc", "msgpack_elements_zmq_tcp", NULL};

const struct tensor_way *const tensor_ways[TENSOR_WAYS] = {
	[TENSOR_F32] = &tensor_f32,
	[TENSOR_F32_COPIED] = &tensor_f32_copied,
	[TENSOR_BF16] = &tensor_bf16,
	[TENSOR_RAW_IPC] = &tensor_raw_ipc,
	[TENSOR_RAW_TCP] = &tensor_raw_tcp,
	[TENSOR_BIN_IPC] = &tensor_bin_ipc,
	[TENSOR_BIN_TCP] = &tensor_bin_tcp,
	[TENSOR_ELEMS_IPC] = &tensor_elems_ipc,
	[TENSOR_ELEMS_TCP] = &tensor_elems_tcp,
};

/* Where ZeroMQ was not there, names and packages remain. */
#ifndef RPB_HAVE_ZMQ
#define NO_WAY(way, text, packages)                                                                \
	const struct tensor_way way = {.name = text, .package = packages}
NO_WAY(tensor_raw_ipc, "raw_zmq_ipc", "libzmq3-dev");
NO_WAY(tensor_raw_tcp, "raw_zmq_tcp", "libzmq3-dev");
NO_WAY(tensor_bin_ipc, "msgpack_bin_zmq_ipc", "libzmq3-dev libmsgpack-dev");
NO_WAY(tensor_bin_tcp, "msgpack_bin_zmq_tcp", "libzmq3-dev libmsgpack-dev");
NO_WAY(tensor_elems_ipc, "msgpack_elements_zmq_ipc", "libzmq3-dev libmsgpack-dev");
NO_WAY(tensor_elems_tcp, "msgpack_elements_zmq_tcp", "libzmq3-dev libmsgpack-dev");
#endif

static struct tensor_opt opt = {.size = 10000000, .slice_ms = 60, .repeat = 5};

static const struct app_opt opts[] = {
	{"transport", APP_OPT_CHOICES, "LIST",
		"some of the ways below, or all (all that are built)", &opt.transports, 0, 0,
		transports},
	{"size", APP_OPT_UINT, "BYTES", "of the array of f32, a multiple of 4", &opt.size, 4,
		TENSOR_SIZE_MAX, NULL},
	{"slice-ms", APP_OPT_UINT, "MS", "length of a slice, at least 3 passes", &opt.slice_ms, 1,
		10000, NULL},
	{"repeat", APP_OPT_UINT, "N", "rounds over all ways", &opt.repeat, 1, 1000, NULL},
	{"json", APP_OPT_STRING, "FILE", "append one object per way and stage", &opt.json, 0, 0,
		NULL},
};

static void
tensor_help(FILE *out)
{
	uint32_t i;

	fprintf(out, "usage: rpcbench [EAL arguments] -- tensor [options]\n\n"
		     "An array of f32 goes from one process to another, stage by stage.\n\n");
	app_opt_help(opts, CRPC_DIM(opts), out);
	fprintf(out, "\n  tensor_f32                written where the receiver reads it\n"
		     "  tensor_f32_copied         copied into shared memory first\n"
		     "  tensor_bf16               narrowed into shared memory, widened out of it\n"
		     "  raw_zmq_*                 ZeroMQ, bytes as they are\n"
		     "  msgpack_bin_zmq_*         one msgpack binary over ZeroMQ\n"
		     "  msgpack_elements_zmq_*    msgpack element by element over ZeroMQ\n");
	for (i = 0; i < TENSOR_WAYS; i++)
		if (!tensor_ways[i]->built)
			fprintf(out, "\n%s is not in this build: it needs %s.\n",
				tensor_ways[i]->name, tensor_ways[i]->package);
}

static int
transports_default(void)
{
	uint32_t i;
	bool all = opt.transports.n == 0 || opt.transports.n == TENSOR_WAYS;

	for (i = 0; i < opt.transports.n && !all; i++) {
		const struct tensor_way *way = tensor_ways[opt.transports.v[i]];

		if (!way->built)
			return app_fail("--transport %s is not in this build; install %s and build "
					"again",
				way->name, way->package);
	}
	if (!all)
		return 0;
	for (opt.transports.n = 0, i = 0; i < TENSOR_WAYS; i++)
		if (tensor_ways[i]->built)
			opt.transports.v[opt.transports.n++] = i;
	return 0;
}

static int
tensor_parse(int argc, char **argv)
{
	int rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);

	if (rc != 0)
		return rc;
	if (opt.size % sizeof(float) != 0)
		return app_fail("--size %lu is not a multiple of 4; give 4 to %u",
			(unsigned long)opt.size, TENSOR_SIZE_MAX);
	rc = transports_default();
	if (rc == 0 && opt.json != NULL)
		rc = app_json_check("json", opt.json);
	return rc;
}

/* What memcpy() of such an array reads and writes, GB/s: the best of a few. */
static double
copy_rate(float *to, const float *from)
{
	uint64_t t0, best = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < COPIES; i++) {
		t0 = crpc_clock_ticks();
		memcpy(to, from, opt.size);
		__asm__ __volatile__("" : : "r"(to) : "memory");
		best = crpc_min(best, crpc_clock_ticks() - t0);
	}
	return 2 * (double)opt.size / (double)crpc_max(crpc_clock_ticks_to_ns(best), 1);
}

/* One slice of a way, with the line ping-pong before and after. */
static void
way_slice(struct tensor_run *run, enum tensor_way_id way, double line[2])
{
	uint64_t began = crpc_clock_ticks();
	double us[TENSOR_STAGES];
	struct app_slice s = {0};
	uint32_t stage;

	if (tensor_slice(run, way, us, &s.away_ns) != 0) {
		app_note("%s: %s; it is left out", tensor_ways[way]->name, tensor_why_text());
		run->lost[way] = true;
		run->failed++;
		return;
	}
	s.ns = (double)crpc_clock_ticks_to_ns(crpc_clock_ticks() - began);
	line[1] = rpb_pair_line_ns(run->rpb->pair);
	s.line_ns[0] = line[0];
	s.line_ns[1] = line[1];
	for (stage = 0; line[1] >= 0 && stage < TENSOR_STAGES; stage++) {
		s.value = us[stage];
		app_series_add(&run->series[way][stage], &s);
	}
	line[0] = line[1];
}

static int
rounds(struct tensor_run *run)
{
	size_t bytes = crpc_align_up(opt.size, CRPC_CACHE_LINE);
	float *from = aligned_alloc(CRPC_CACHE_LINE, bytes);
	float *to = aligned_alloc(CRPC_CACHE_LINE, bytes);
	double line[2] = {rpb_pair_line_ns(run->rpb->pair), 0};
	struct app_slice s = {0};
	uint64_t round;
	uint32_t i;

	if (from == NULL || to == NULL) {
		free(from);
		free(to);
		return app_fail("no memory for two arrays of %lu bytes", (unsigned long)opt.size);
	}
	memset(from, 1, bytes);
	memset(to, 1, bytes);
	for (round = 0; round < opt.repeat && !rpb_interrupted(); round++) {
		app_out_progress("tensor", round, opt.repeat);
		for (i = 0; i < opt.transports.n && !rpb_interrupted(); i++)
			if (!run->lost[opt.transports.v[i]] && rpb_pair_alive(run->rpb->pair))
				way_slice(run, (enum tensor_way_id)opt.transports.v[i], line);
		s.line_ns[0] = s.line_ns[1] = line[0];
		s.value = copy_rate(to, from);
		app_series_add(&run->copy, &s);
	}
	app_out_progress("", opt.repeat, opt.repeat);
	free(from);
	free(to);
	return 0;
}

/* Of each way, its total counts. */
static void
judge(struct tensor_run *run)
{
	struct app_series total[TENSOR_WAYS];
	uint32_t i;

	for (i = 0; i < TENSOR_WAYS; i++) {
		total[i] = run->series[i][TENSOR_TOTAL];
		total[i].sleeps = tensor_ways[i]->sleeps;
	}
	app_trial_end(&run->trial, total, TENSOR_WAYS);
}

static void
series_free(struct tensor_run *run)
{
	uint32_t i, stage;

	for (i = 0; i < TENSOR_WAYS; i++)
		for (stage = 0; stage < TENSOR_STAGES; stage++)
			app_series_fini(&run->series[i][stage]);
	app_series_fini(&run->copy);
}

static int
tensor_layer_run(struct rpb *rpb)
{
	static struct tensor_run run;
	int rc;

	run.opt = &opt;
	run.rpb = rpb;
	if (opt.json != NULL) {
		run.json = app_json_open("json", opt.json);
		if (run.json == NULL)
			return APP_EXIT_USAGE;
	}
	app_trial_begin(&run.trial);
	rc = rounds(&run);
	judge(&run);
	if (rc == 0 && tensor_out(&run) != 0) {
		app_note("a result could not be written to %s", opt.json);
		rc = APP_EXIT_RUN;
	}
	if (run.json != NULL)
		fclose(run.json);
	if (!rpb_pair_alive(rpb->pair)) {
		app_note("%s", rpb_pair_why(rpb->pair));
		rc = APP_EXIT_RUN;
	}
	if (rpb_interrupted())
		app_note("interrupted: results so far");
	series_free(&run);
	return rc != 0 ? rc : run.failed != 0 ? APP_EXIT_RUN : APP_EXIT_OK;
}

const struct rpb_layer rpb_layer_tensor = {
	.name = "tensor",
	.what = "an array from one process to another, with and without serialization",
	.pair = true,
	.help = tensor_help,
	.parse = tensor_parse,
	.run = tensor_layer_run,
};
