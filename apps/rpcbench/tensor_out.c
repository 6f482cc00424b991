/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of the ways: a table for people, a line of JSON for each way and stage. */

#include "tensor.h"

/* What has to be reached: the pass by reference, us. */
#define TARGET_US 5.0
/* Bytes of memory traffic of one conversion, per byte of f32: all read, half written, or back. */
#define HALF_TRAFFIC 1.5

static void
figure_of(const struct tensor_run *run, uint32_t way, uint32_t stage, struct app_figure *f)
{
	app_series_figure(&run->series[way][stage], run->trial.state, f);
}

static bool
measured(const struct tensor_run *run, uint32_t way)
{
	return run->series[way][TENSOR_TOTAL].n != 0;
}

/* How many times longer this way takes than the array in place; 0 if one has no figure. */
static double
ratio_of(const struct tensor_run *run, uint32_t way, uint32_t stage)
{
	struct app_figure mine, its;

	figure_of(run, TENSOR_F32, stage, &mine);
	figure_of(run, way, stage, &its);
	return mine.median > 0 ? its.median / mine.median : 0;
}

/* Share of memcpy()'s rate that a conversion moves bytes at; 0 where there is none. */
static double
ratio_memcpy(const struct tensor_run *run, uint32_t way, uint32_t stage)
{
	struct app_figure f, copy;
	double gbps;

	if (way != TENSOR_BF16 || (stage != TENSOR_SERIALIZE && stage != TENSOR_DESERIALIZE))
		return 0;
	figure_of(run, way, stage, &f);
	app_series_figure(&run->copy, run->trial.state, &copy);
	gbps = f.median > 0 ? HALF_TRAFFIC * (double)run->opt->size / (f.median * 1e3) : 0;
	return copy.median > 0 ? gbps / copy.median : 0;
}

static void
print_way(const struct tensor_run *run, uint32_t way)
{
	struct app_figure f;
	uint32_t stage;

	printf("  %-25s", tensor_ways[way]->name);
	for (stage = 0; stage < TENSOR_STAGES; stage++) {
		figure_of(run, way, stage, &f);
		printf(" %11.2f", f.median);
	}
	printf(" %8.1f", ratio_of(run, way, TENSOR_TOTAL));
	figure_of(run, way, TENSOR_TOTAL, &f);
	printf("  %.2f..%.2f of %u\n", f.min, f.max, f.n);
}

static void
print_verdicts(const struct tensor_run *run)
{
	struct app_target target = {.what = "the array in place, total",
		.bound = TARGET_US,
		.at_most = true,
		.unit = "us"};
	struct app_figure f;

	app_series_figure(&run->copy, run->trial.state, &f);
	printf("\nmemcpy of that array: %.1f GB/s read and written\n", f.median);
	if (measured(run, TENSOR_BF16))
		printf("bf16: narrowing moves bytes at %.2f of memcpy's rate, widening at %.2f\n",
			ratio_memcpy(run, TENSOR_BF16, TENSOR_SERIALIZE),
			ratio_memcpy(run, TENSOR_BF16, TENSOR_DESERIALIZE));
	if (!measured(run, TENSOR_F32))
		return;
	figure_of(run, TENSOR_F32, TENSOR_TOTAL, &f);
	target.value = f.median;
	app_out_target(&target, run->trial.noisy, NULL, NULL);
}

static json_t *
json_begin(const struct tensor_run *run, const char *transport, const char *stage, uint32_t n)
{
	struct app_json_base base = app_out_base(&run->trial, "rpcbench", run->rpb->lcores, n);
	json_t *obj = app_json_new(&base);

	json_object_set_new(obj, "layer", json_string("tensor"));
	json_object_set_new(obj, "transport", json_string(transport));
	json_object_set_new(obj, "clients", json_integer(1));
	json_object_set_new(obj, "endpoints", json_integer(1));
	json_object_set_new(obj, "depth", json_integer(1));
	json_object_set_new(obj, "size", json_integer((json_int_t)run->opt->size));
	json_object_set_new(obj, "mode", json_string("sync"));
	json_object_set_new(obj, "stage", json_string(stage));
	json_object_set_new(obj, "ledger", json_null());
	return obj;
}

static int
json_way(const struct tensor_run *run, uint32_t way)
{
	struct app_figure f;
	uint32_t stage;
	json_t *obj;
	double line;
	int rc = 0;

	for (stage = 0; stage < TENSOR_STAGES && rc == 0; stage++) {
		figure_of(run, way, stage, &f);
		line = app_series_line_ns(&run->series[way][stage], run->trial.state);
		obj = json_begin(run, tensor_ways[way]->name, tensor_stage_names[stage], f.n);
		app_json_figure(obj, "latency", f.median, f.min, f.max, "us");
		app_json_ratio(obj, "ratio_tensor", ratio_of(run, way, stage));
		app_json_ratio(obj, "ratio_line", line > 0 ? f.median * 1e3 / line : 0);
		app_json_ratio(obj, "ratio_memcpy", ratio_memcpy(run, way, stage));
		rc = app_json_write(run->json, obj);
	}
	return rc;
}

static int
json_memcpy(const struct tensor_run *run)
{
	struct app_figure f;
	json_t *obj;

	app_series_figure(&run->copy, run->trial.state, &f);
	obj = json_begin(run, "memcpy", "total", f.n);
	app_json_figure(obj, "rate", f.median, f.min, f.max, "GB/s");
	return app_json_write(run->json, obj);
}

int
tensor_out(const struct tensor_run *run)
{
	uint32_t i;
	int rc = 0;

	app_out_machine("lcores", run->rpb->lcores);
	printf("\narray of %lu bytes, us: ", (unsigned long)run->opt->size);
	app_out_trial(&run->trial);
	printf("  %-25s", "way");
	for (i = 0; i < TENSOR_STAGES; i++)
		printf(" %11s", tensor_stage_names[i]);
	printf(" %8s  total: min..max of slices\n", "it/f32");
	for (i = 0; i < TENSOR_WAYS; i++) {
		if (!measured(run, i))
			continue;
		print_way(run, i);
		if (run->json != NULL && rc == 0)
			rc = json_way(run, i);
	}
	print_verdicts(run);
	if (run->json != NULL && rc == 0)
		rc = json_memcpy(run);
	fflush(stdout);
	return rc;
}
