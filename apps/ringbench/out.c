/* SPDX-License-Identifier: BSD-3-Clause */
/* From slices to medians within one state of the machine; a table and JSON lines. */
#include <stdlib.h>
#include <string.h>

#include "app_out.h"
#include "crpc_clock.h"
#include "rb.h"

/* What the slices of one transport gave. */
struct bucket {
	struct app_series value; /* Mops/s, or ns for latency */
	uint64_t messages;
	uint64_t counter[2][APP_COUNTERS];
	bool counted;
};

struct rb_out {
	const struct rb_opt *o;
	char lcores[64];
	FILE *json;
	struct app_series line; /* M lines/s of the machine, in the rounds of this case */
	struct bucket bucket[RB_TRANSPORTS];
};

struct rb_out *
rb_out_open(const struct rb_opt *o, const char *lcores)
{
	struct rb_out *out = calloc(1, sizeof(*out));

	if (out == NULL)
		return NULL;
	out->o = o;
	snprintf(out->lcores, sizeof(out->lcores), "%s", lcores);
	if (o->json != NULL) {
		out->json = app_json_open("json", o->json);
		if (out->json == NULL) {
			rb_out_close(out);
			return NULL;
		}
	}
	return out;
}

void
rb_out_close(struct rb_out *out)
{
	uint32_t i;

	for (i = 0; i < RB_TRANSPORTS; i++)
		app_series_fini(&out->bucket[i].value);
	app_series_fini(&out->line);
	if (out->json != NULL)
		fclose(out->json);
	free(out);
}

void
rb_out_limits(struct rb_out *out, const struct rb_limits *limits)
{
	static const char *const names[RB_WAYS] = {"one way", "both ways"};
	uint32_t i, ways;

	app_out_machine("lcores", out->lcores);
	printf("machine: line ping-pong %.0f ns round trip (%s)\n  %-24s", limits->line_ns,
		limits->line_ns < APP_LINE_NEAR_NS ? "near" : "far", "lines in flight");
	for (i = 0; i < RB_LAGS; i++)
		printf(" %7u", rb_lags[i]);
	for (ways = 0; ways < RB_WAYS; ways++) {
		printf("\n  M lines/s %-14s", names[ways]);
		for (i = 0; i < RB_LAGS; i++)
			printf(" %7.1f", limits->rate[ways][i]);
	}
	printf("\n");
}

void
rb_out_line(struct rb_out *out, const struct app_slice *slice)
{
	app_series_add(&out->line, slice);
}

void
rb_out_slice(struct rb_out *out, const struct rb_case *c, const struct rb_result *r)
{
	struct app_slice s = {.line_ns = {r->line_ns[0], r->line_ns[1]},
		.away_ns = r->away_ns,
		.ns = (double)r->ns};
	struct bucket *b = &out->bucket[c->transport];
	uint32_t side, k;

	if (c->pattern == RB_LATENCY)
		s.value = (double)r->ns / (double)r->messages;
	else
		s.value = (double)r->messages * 1e3 / (double)r->ns;
	app_series_add(&b->value, &s);
	b->messages += r->messages;
	b->counted = r->counted;
	for (side = 0; side < 2; side++)
		for (k = 0; k < APP_COUNTERS; k++)
			b->counter[side][k] += r->counter[side][k];
}

/* Cycles of a message or round trip, from Mops/s or ns. */
static double
cycles_of(const struct rb_case *c, double value)
{
	double ns = c->pattern == RB_LATENCY ? value : value > 0 ? 1e3 / value : 0;

	/* mult is ns per tick, times 2^32 */
	return ns * 4294967296.0 / (double)crpc_clock.mult;
}

static double
per_message(const struct bucket *b, uint32_t side, uint32_t k)
{
	return b->messages != 0 ? (double)b->counter[side][k] / (double)b->messages : 0;
}

/* What the transport is compared with: rte_ring's best API at this burst, in the same state. */
static double
rte_best(const struct rb_out *out, const struct rb_case *c, enum app_state state)
{
	static const enum rb_transport rte[] = {
		RB_RTE_RING, RB_RTE_RING_ZC, RB_RTE_RING_RTS, RB_RTE_RING_HTS};
	struct app_figure f;
	double best = 0;
	uint32_t i;

	for (i = 0; i < CRPC_DIM(rte); i++) {
		app_series_figure(&out->bucket[rte[i]].value, state, &f);
		if (f.n > 0 && (best == 0 || (c->pattern == RB_LATENCY ? f.median < best
								      : f.median > best)))
			best = f.median;
	}
	return best;
}

static void
json_counters(json_t *obj, const struct bucket *b)
{
	json_t *o[2] = {json_object(), json_object()};
	uint32_t k, side;

	for (side = 0; side < 2; side++)
		for (k = 0; k < APP_COUNTERS; k++)
			json_object_set_new(
				o[side], app_counter_names[k], json_real(per_message(b, side, k)));
	json_object_set_new(obj, "counters_per_msg", json_pack("[o,o]", o[0], o[1]));
}

struct row {
	const struct rb_case *c;
	enum rb_transport t;
	struct app_figure value;
	struct app_figure cycles;
	double ratio_rte;
	double ratio_line;
	double line_ns;
	double line_rate;
	double share; /* of line_rate; 0: not between two lcores alone */
};

static int
json_row(struct rb_out *out, const struct row *w, const struct app_trial *trial)
{
	const struct rb_case *c = w->c;
	bool latency = c->pattern == RB_LATENCY, nodes = c->pattern >= RB_FLUX;
	struct app_json_base base = app_out_base(trial, "ringbench", out->lcores, w->value.n);
	json_t *obj = app_json_new(&base);

	json_object_set_new(obj, "pattern", json_string(rb_pattern_names[c->pattern]));
	json_object_set_new(obj, "transport", json_string(rb_transport_names[w->t]));
	json_object_set_new(obj, "msg_size", json_integer(c->size));
	json_object_set_new(obj, "burst", json_integer(c->burst));
	json_object_set_new(obj, "inflight", json_integer(c->inflight));
	json_object_set_new(obj, "depth", json_integer(c->depth));
	json_object_set_new(obj, "nodes", json_integer(nodes ? c->nodes : 2));
	app_json_figure(obj, latency ? "latency" : "rate", w->value.median, w->value.min,
		w->value.max, latency ? "ns" : "Mops/s");
	app_json_figure(obj, "cycles_per_msg", w->cycles.median, w->cycles.min, w->cycles.max,
		"cycles");
	app_json_ratio(obj, "ratio_rte_ring", w->ratio_rte);
	app_json_ratio(obj, "ratio_line", w->ratio_line);
	json_object_set_new(obj, "line_ns", json_real(w->line_ns));
	json_object_set_new(obj, "line_rate_mlps", json_real(w->line_rate));
	app_json_ratio(obj, "ratio_line_rate", w->share);
	if (out->bucket[w->t].counted)
		json_counters(obj, &out->bucket[w->t]);
	return app_json_write(out->json, obj);
}

static void
print_counters(const struct bucket *b)
{
	uint32_t side, k;

	for (side = 0; side < 2; side++) {
		printf("  %-13s lcore %u per message:", "", side);
		for (k = 0; k < APP_COUNTERS; k++)
			printf(" %s %.2f", app_counter_names[k], per_message(b, side, k));
		printf("\n");
	}
}

static void
print_row(const struct row *w)
{
	printf("  %-13s %9.2f %9.2f %9.2f %9.1f %6u ", rb_transport_names[w->t], w->value.median,
		w->value.min, w->value.max, w->cycles.median, w->value.n);
	if (w->ratio_rte > 0)
		printf("%8.2f", w->ratio_rte);
	else
		printf("%8s", "-");
	if (w->ratio_line > 0)
		printf("  %5.2f of the line", w->ratio_line);
	if (w->share > 0)
		printf(" %7.0f %%", 100 * w->share);
	printf("\n");
}

/* Lines that an operation moves at the least, both directions together: messages fill lines. */
static double
lines_of(const struct rb_case *c)
{
	return (c->pattern == RB_STREAM ? 1.0 : 2.0) * c->size / CRPC_CACHE_LINE;
}

/* The figures of one transport. */
static void
row_fill(const struct rb_out *out, struct row *w, enum app_state state, double rte)
{
	const struct app_series *s = &out->bucket[w->t].value;
	bool latency = w->c->pattern == RB_LATENCY;
	struct app_figure *f = &w->value, line;

	app_series_figure(s, state, f);
	w->cycles = (struct app_figure){.median = cycles_of(w->c, f->median),
		.min = cycles_of(w->c, latency ? f->min : f->max),
		.max = cycles_of(w->c, latency ? f->max : f->min)};
	w->line_ns = app_series_line_ns(s, state);
	if (rte > 0 && f->median > 0)
		w->ratio_rte = latency ? rte / f->median : f->median / rte;
	if (latency && w->line_ns > 0)
		w->ratio_line = f->median / w->line_ns;
	app_series_figure(&out->line, state, &line);
	w->line_rate = line.median;
	if (!latency && line.median > 0 && (w->c->pattern < RB_FLUX || w->c->nodes == 2))
		w->share = f->median * lines_of(w->c) / line.median;
}

static void
bucket_clear(struct bucket *b)
{
	app_series_clear(&b->value);
	b->messages = 0;
	memset(b->counter, 0, sizeof(b->counter));
}

int
rb_out_case(struct rb_out *out, const struct rb_case *c, struct app_trial *trial)
{
	bool latency = c->pattern == RB_LATENCY;
	struct app_series all[RB_TRANSPORTS + 1];
	double rte;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < RB_TRANSPORTS; i++)
		all[i] = out->bucket[i].value;
	all[RB_TRANSPORTS] = out->line;
	app_trial_end(trial, all, RB_TRANSPORTS + 1);
	rte = rte_best(out, c, trial->state);
	printf("\n%s, %u bytes, burst %u, %u in flight", rb_pattern_names[c->pattern], c->size,
		c->burst, c->inflight);
	if (c->pattern >= RB_FLUX)
		printf(", %u nodes", c->nodes);
	printf(": ");
	app_out_trial(trial);
	printf("  %-13s %9s %9s %9s %9s %6s %8s%s\n", "transport", latency ? "ns" : "Mops/s", "min",
		"max", "cycles", "slices", latency ? "rte/it" : "it/rte",
		latency ? "" : "  of lines");
	for (i = 0; i < RB_TRANSPORTS; i++) {
		struct row w = {.c = c, .t = (enum rb_transport)i};

		if (out->bucket[i].value.n == 0)
			continue;
		row_fill(out, &w, trial->state, rte);
		print_row(&w);
		if (out->bucket[i].counted)
			print_counters(&out->bucket[i]);
		if (out->json != NULL && rc == 0)
			rc = json_row(out, &w, trial);
		bucket_clear(&out->bucket[i]);
	}
	app_series_clear(&out->line);
	fflush(stdout);
	return rc;
}
