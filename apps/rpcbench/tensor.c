/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layer tensor. A slice of a way passes arrays for a while. Every array differs from the one
 * before, and every element is compared, outside of the timed part.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_idle.h"
#include "tensor.h"

#define PASSES_MIN 3
#define PASSES_MAX 1000
#define WARM       2 /* passes that are not counted */
#define SETTLE_NS  2000
/* bf16 has 8 bits of mantissa, one of which is implied, and rounds to the nearest. */
#define HALF_ERROR (1.0 / 256)
/* Of a result that was computed of exact elements, in f32. */
#define RESULT_ERROR 1e-4

/* Where the packages were not there, names remain. */
#ifndef RPB_HAVE_MSGPACK
#define NO_WAY(text, how, over_ipc)                                                                \
	{                                                                                          \
		.base = { text, "libzmq3-dev libmsgpack-dev" }                                     \
	}
const struct tensor_way tensor_zmq[TENSOR_ZMQ] = TENSOR_ZMQ_WAYS(NO_WAY);
#endif

static const struct app_way *const ways[] = {&tensor_f32.base, &tensor_f32_copied.base,
	&tensor_bf16.base, &tensor_zmq[0].base, &tensor_zmq[1].base, &tensor_zmq[2].base,
	&tensor_zmq[3].base, &tensor_zmq[4].base, &tensor_zmq[5].base};

static struct rpb_opt opt = {.sizes = {1, {10000000}}, .length = APP_LENGTH_DEFAULT};

static const char *const computes[] = {"none", "separate", "fused", NULL};

static const struct app_opt opts[] = {
	APP_TRANSPORT(&opt.transports, "arrays; without it all that are built", rpb_transports),
	APP_SIZE(&opt.sizes, "the array of f32, a multiple of 4", 4, TENSOR_SIZE_MAX, .unit = 4),
	APP_CHOICE("compute", &opt.compute,
		"matrix product, sum and activation of the array, the last two in a pass each or "
		"in one",
		computes),
	APP_LENGTH(&opt.length, ", at least 3 passes", "ways"),
	APP_JSON(&opt.json),
};

static void
array_write(float *x, uint32_t n, uint32_t seq)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = tensor_element(i, seq);
}

/* Let the last writes of an array leave the core: they are not of the pass that follows. */
static void
settle(void)
{
	uint64_t t0 = crpc_clock_ns();

	while (crpc_clock_ns() - t0 < SETTLE_NS)
		crpc_pause();
}

static void
array_compare(struct tensor_user *u, const float *x)
{
	struct tensor_answer *a = &u->answer;
	double error, squares = 0, max = 0;
	uint64_t changed = 0;

	a->wrong = 0;
	for (uint32_t i = 0; i < u->elems; i++) {
		error = fabs((double)x[i] / (double)tensor_element(i, u->seq) - 1);
		changed += error != 0;
		a->wrong += !(error <= u->error);
		max = fmax(max, error);
		squares += error * error;
	}
	a->loss = (struct tensor_loss){
		(double)changed / u->elems, max, sqrt(squares / u->elems),
		u->compute != NULL ? tensor_compute_error(u->compute, u->seq) : 0};
	a->wrong += a->loss.result > fmax(u->error, RESULT_ERROR);
	u->seq++;
}

/* Load every element, as whoever uses the array does. */
static void
array_read(const float *x, uint32_t n)
{
	uint32_t word, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(&word, &x[i], sizeof(word));
		sum += word;
	}
	__asm__ __volatile__("" : : "r"(sum));
}

/* ---- side 1 ---- */

void
tensor_use(struct tensor_user *u, const float *x)
{
	u->answer.done = crpc_clock_ticks();
	if (u->compute != NULL)
		tensor_compute(u->compute, x);
	else
		array_read(x, u->elems);
	u->answer.read = crpc_clock_ticks();
	array_compare(u, x);
}

/* ---- side 0 ---- */

static double
us_between(uint64_t begin, uint64_t end)
{
	/*
	 * The counters of two cores differ by some ns: what looks like less than nothing is none.
	 */
	return end <= begin ? 0 : (double)crpc_clock_ticks_to_ns(end - begin) / 1e3;
}

static void
stages_of(const struct tensor_pass *t, double us[TENSOR_STAGES])
{
	/* What the receiver had before the sender's call returned belongs to the call. */
	uint64_t sent = crpc_min(t->sent, crpc_max(t->answer.received, t->serialized));

	us[TENSOR_SERIALIZE] = us_between(t->begin, t->serialized);
	us[TENSOR_SEND] = us_between(t->serialized, sent);
	us[TENSOR_RECEIVE] = us_between(sent, t->answer.received);
	us[TENSOR_DESERIALIZE] = us_between(t->answer.received, t->answer.done);
	us[TENSOR_TOTAL] = us_between(t->begin, t->answer.done);
	us[TENSOR_READ] = us_between(t->answer.done, t->answer.read);
	us[TENSOR_REQUEST] = us_between(t->begin, t->answer.read);
}

/* Passes for a while; sample[stage][pass]. Returns their number, or -errno. */
static int
pass_all(struct tensor_lane *l, double (*sample)[PASSES_MAX])
{
	uint64_t end = crpc_clock_ns() + l->slice_ns;
	double us[TENSOR_STAGES];
	struct tensor_pass t;
	int rc, n = 0;

	for (uint32_t seq = 0; n < PASSES_MAX && (n < PASSES_MIN || crpc_clock_ns() < end); seq++) {
		array_write(l->array, l->elems, seq);
		settle();
		rc = tensor_way(l)->pass(l, &t);
		if (rc != 0)
			return rc;
		if (t.answer.wrong != 0)
			return tensor_fail(l, -EIO, "%lu of %u elements arrived wrong",
				(unsigned long)t.answer.wrong, l->elems);
		if (seq < WARM)
			continue;
		l->report[0].loss = t.answer.loss;
		stages_of(&t, us);
		for (uint32_t stage = 0; stage < TENSOR_STAGES; stage++)
			sample[stage][n] = us[stage];
		n++;
	}
	return n;
}

static int
client_turn(struct tensor_lane *l)
{
	static double sample[TENSOR_STAGES][PASSES_MAX];
	int n = pass_all(l, sample);

	for (uint32_t stage = 0; n > 0 && stage < TENSOR_STAGES; stage++)
		l->report[0].us[stage] = app_median(sample[stage], (uint32_t)n);
	return n < 0 ? n : 1;
}

/* ---- the lane ---- */

static int
tensor_turn(struct app_lane *base, int side)
{
	struct tensor_lane *l = (struct tensor_lane *)base;
	int rc = 0;

	if (side == 0)
		return client_turn(l);
	l->user = (struct tensor_user){.elems = l->elems,
		.error = tensor_way(l)->form == TENSOR_BF16 ? HALF_ERROR : 0};
	if (opt.compute != TENSOR_NOTHING) {
		l->user.compute = tensor_compute_new(l->elems, opt.compute == TENSOR_FUSED);
		rc = l->user.compute == NULL ? -ENOMEM : 0;
	}
	while (rc == 0 && crpc_load_acquire(&base->party->flag[0].over) == 0)
		rc = tensor_way(l)->serve(l);
	free(l->user.compute);
	return rc == 0 ? 1 : tensor_fail(l, rc, "side 1: %s", strerror(-rc));
}

static bool
tensor_keep(struct app_lane *base)
{
	const struct tensor_report *r = ((struct tensor_lane *)base)->report;

	for (uint32_t stage = 0; stage < TENSOR_STAGES; stage++)
		app_lane_keep(base, stage, r->us[stage], app_lane_ns(base));
	return true;
}

/* ---- rows ---- */

static double
median(const struct app_group *g, const struct app_lane *l, enum tensor_stage stage)
{
	return app_series_median(&l->series[stage], g->trial.state);
}

static void
tensor_row(const struct app_group *g, const struct app_lane *l, json_t *row)
{
	const struct tensor_loss *loss = &((const struct tensor_lane *)l)->report[0].loss;
	const char *const keys[TENSOR_STAGES] = {"latency", "time_serialize", "time_send",
		"time_receive", "time_deserialize",
		opt.compute == TENSOR_NOTHING ? "time_read" : "time_compute", "latency_request"};
	uint32_t stages = opt.compute == TENSOR_NOTHING ? TENSOR_REQUEST : TENSOR_STAGES;
	double line_ns = app_series_line_ns(&l->series[TENSOR_TOTAL], g->trial.state);
	double total = median(g, l, TENSOR_TOTAL), place = median(g, g->lane[0], TENSOR_TOTAL);

	app_row_set(row, "{s:I,s:s,s:f,s:f,s:f}", "size",
		(json_int_t)(((const struct tensor_lane *)l)->elems * sizeof(float)), "mode",
		"sync", "changed", loss->changed, "error_max", loss->max, "error_rms", loss->rms);
	if (opt.compute != TENSOR_NOTHING)
		app_row_set(row, "{s:s,s:f,s:f}", "compute", computes[opt.compute], "error_result",
			loss->result, "share_transport", total / median(g, l, TENSOR_REQUEST));
	for (uint32_t stage = 0; stage < stages; stage++) {
		app_row_series(row, keys[stage], &l->series[stage], &g->trial, "us");
		if (stage == TENSOR_TOTAL)
			app_row_ratio(row, "ratio_tensor",
				g->lane[0]->way == &tensor_f32.base && total > 0 ? place / total
										 : 0);
	}
	app_row_ratio(row, "ratio_line", total > 0 ? line_ns / (total * 1e3) : 0);
}

static const struct app_lane_ops lane_ops = {
	.turn = tensor_turn, .keep = tensor_keep, .row = tensor_row};

/* ---- the run ---- */

static int
check(void)
{
	return opt.compute == TENSOR_NOTHING ? 0 : tensor_compute_check(&opt.sizes);
}

static void
lane_add(const struct rpb_run *run, struct app_group *g, const struct app_way *way, uint64_t size)
{
	struct tensor_lane *l = (struct tensor_lane *)app_group_add(g, way, sizeof(*l));

	if (l == NULL)
		return;
	l->elems = (uint32_t)(size / sizeof(float));
	l->slice_ns = opt.length.slice_ms * 1000000;
	snprintf(l->name, sizeof(l->name), "rpcbench.%ld.t%u", run->party->id, g->n);
	snprintf(l->base.text, sizeof(l->base.text), "%s", way->name);
	l->base.report[0] = &l->report[0].base;
	l->base.report[1] = &l->report[1].base;
	l->base.report_len = sizeof(l->report[0]);
	l->base.addr_max = TENSOR_ADDR_MAX;
	l->base.mib += (uint32_t)((uint64_t)l->elems * tensor_way(l)->elem_bytes >> 20);
	l->base.whole = l->base.brief = true;
}

static int
run_size(struct rpb_run *run, uint64_t size)
{
	struct app_group g = {.party = run->party,
		.ops = &lane_ops,
		.rounds = app_length_slices(&opt.length),
		.what = "tensor"};
	int rc;

	for (uint32_t i = 0; i < opt.transports.n; i++)
		lane_add(run, &g, ways[opt.transports.v[i]], size);
	rc = app_group_run(&g);
	app_group_fini(&g);
	return rc;
}

static int
tensor_run(void *arg)
{
	struct rpb_run *run = arg;
	int rc = 0;

	for (uint32_t i = 0; i < opt.sizes.n && rc == 0 && !app_party_stopped(run->party); i++)
		rc = run_size(run, opt.sizes.v[i]);
	return rc;
}

const struct rpb_layer rpb_layer_tensor = {
	.name = "tensor",
	.what = "an array from one process to another, with and without serialization",
	.about = "An array of f32 goes from one process to another, stage by stage.\n",
	.notes = "  tensor_f32                written where the receiver reads it\n"
		 "  tensor_f32_copied         copied into shared memory first\n"
		 "  tensor_bf16               narrowed into shared memory, widened out of it\n"
		 "  raw_zmq_*                 ZeroMQ, bytes as they are\n"
		 "  msgpack_bin_zmq_*         one msgpack binary over ZeroMQ\n"
		 "  msgpack_elements_zmq_*    msgpack element by element over ZeroMQ\n",
	RPB_TABLES(&opt, opts, ways),
	.check = check,
	.run = tensor_run,
};
