/* SPDX-License-Identifier: BSD-3-Clause */
/* From slices to medians within one state of the machine; a table and JSON lines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "crpc_clock.h"
#include "rb.h"

struct slice {
	double value; /* Mops/s, or ns for latency */
	double cycles;
	struct rb_result r;
	unsigned int state;
};

struct bucket {
	struct slice *slice;
	uint32_t n;
};

struct figure {
	double median, min, max;
	uint32_t n;
};

struct rb_out {
	const struct rb_opt *o;
	char lcores[64];
	char cpu[128];
	FILE *json;
	double line_ns;
	double line_rate;
	struct bucket bucket[RB_TRANSPORTS];
};

struct rb_out *
rb_out_open(const struct rb_opt *o, const char *lcores)
{
	struct rb_out *out = calloc(1, sizeof(*out));
	uint32_t i;

	if (out == NULL)
		return NULL;
	out->o = o;
	snprintf(out->lcores, sizeof(out->lcores), "%s", lcores);
	rb_env_cpu(out->cpu, sizeof(out->cpu));
	for (i = 0; i < RB_TRANSPORTS; i++)
		out->bucket[i].slice = calloc(RB_SLICES_MAX, sizeof(struct slice));
	if (o->json != NULL) {
		out->json = fopen(o->json, "a");
		if (out->json == NULL) {
			fprintf(stderr, "ringbench: --json %s: %s\n", o->json, strerror(errno));
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
		free(out->bucket[i].slice);
	if (out->json != NULL)
		fclose(out->json);
	free(out);
}

void
rb_out_limits(struct rb_out *out, double line_ns, double line_rate)
{
	out->line_ns = line_ns;
	out->line_rate = line_rate;
	printf("%s, lcores %s, commit %s\n", out->cpu, out->lcores, rb_env_commit());
	printf("machine: line ping-pong %.0f ns round trip (%s), %.0f M lines/s one way\n", line_ns,
		line_ns < RB_NEAR_NS ? "near" : "far", line_rate);
}

void
rb_out_slice(struct rb_out *out, const struct rb_case *c, const struct rb_result *r)
{
	struct bucket *b = &out->bucket[c->transport];
	double ns_per = r->messages != 0 ? (double)r->ns / (double)r->messages : 0;
	struct slice *s;

	if (b->n == RB_SLICES_MAX || b->slice == NULL)
		return;
	s = &b->slice[b->n++];
	s->r = *r;
	s->state = rb_env_state(r->line_ns);
	s->value = c->pattern == RB_LATENCY ? ns_per : ns_per > 0 ? 1e3 / ns_per : 0;
	/* mult is ns per tick, times 2^32 */
	s->cycles = ns_per * 4294967296.0 / (double)crpc_clock.mult;
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Median and spread of the slices in one state; cycles instead of the value if asked. */
static struct figure
figure_of(const struct bucket *b, unsigned int state, bool all, bool cycles)
{
	struct figure f = {0};
	double *v = calloc(b->n + 1, sizeof(*v));
	uint32_t i;

	if (v == NULL)
		return f;
	for (i = 0; i < b->n; i++)
		if (all || b->slice[i].state == state)
			v[f.n++] = cycles ? b->slice[i].cycles : b->slice[i].value;
	qsort(v, f.n, sizeof(*v), by_value);
	if (f.n > 0) {
		f.min = v[0];
		f.max = v[f.n - 1];
		f.median = f.n % 2 != 0 ? v[f.n / 2] : (v[f.n / 2 - 1] + v[f.n / 2]) / 2;
	}
	free(v);
	return f;
}

/* The state of which every transport has most slices; 2, mixed, if none has one of each. */
static unsigned int
state_of(const struct rb_out *out, uint32_t *count)
{
	uint32_t least[2] = {UINT32_MAX, UINT32_MAX}, i, s;
	struct figure f;

	memset(count, 0, 3 * sizeof(*count));
	for (i = 0; i < RB_TRANSPORTS; i++) {
		if (out->bucket[i].n == 0)
			continue;
		for (s = 0; s < 3; s++) {
			f = figure_of(&out->bucket[i], s, false, false);
			count[s] += f.n;
			if (s < 2 && f.n < least[s])
				least[s] = f.n;
		}
	}
	if (least[0] == 0 && least[1] == 0)
		return 2;
	return least[0] >= least[1] ? 0 : 1;
}

/* What the transport is compared with: rte_ring's best API at this burst, in the same state. */
static double
rte_best(const struct rb_out *out, const struct rb_case *c, unsigned int state)
{
	static const enum rb_transport rte[] = {
		RB_RTE_RING, RB_RTE_RING_ZC, RB_RTE_RING_RTS, RB_RTE_RING_HTS};
	struct figure f;
	double best = 0;
	uint32_t i;

	for (i = 0; i < CRPC_DIM(rte); i++) {
		f = figure_of(&out->bucket[rte[i]], state, state == 2, false);
		if (f.n > 0 && (best == 0 || (c->pattern == RB_LATENCY ? f.median < best
								      : f.median > best)))
			best = f.median;
	}
	return best;
}

static void
json_figure(json_t *obj, const char *key, const struct figure *f, const char *unit)
{
	json_object_set_new(obj, key, json_pack("{s:f,s:f,s:f,s:s}", "median", f->median, "min",
					      f->min, "max", f->max, "unit", unit));
}

static void
json_counters(json_t *obj, const struct bucket *b)
{
	const struct rb_result *r;
	double v;
	uint32_t i, k, side;
	json_t *o[2] = {json_object(), json_object()};
	uint64_t sum, messages;

	for (side = 0; side < 2; side++)
		for (k = 0; k < RB_COUNTERS; k++) {
			for (sum = messages = 0, i = 0; i < b->n; i++) {
				r = &b->slice[i].r;
				sum += r->counter[side][k];
				messages += r->messages;
			}
			v = messages != 0 ? (double)sum / (double)messages : 0;
			json_object_set_new(o[side], rb_counter_names[k], json_real(v));
		}
	json_object_set_new(obj, "counters_per_msg", json_pack("[o,o]", o[0], o[1]));
}

struct row {
	const struct rb_case *c;
	enum rb_transport t;
	struct figure value;
	struct figure cycles;
	double ratio_rte;
	double ratio_line;
	double line_ns;
	unsigned int state;
	double steal_pct;
	bool noisy;
};

static int
json_row(struct rb_out *out, const struct row *w)
{
	const struct rb_case *c = w->c;
	bool latency = c->pattern == RB_LATENCY, nodes = c->pattern >= RB_FLUX;
	json_t *obj = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:f,s:b,s:i}", "app", "ringbench",
		"version", CRPC_VERSION, "commit", rb_env_commit(), "cpu", out->cpu, "lcores",
		out->lcores, "state", rb_state_names[w->state], "steal_pct", w->steal_pct, "noisy",
		w->noisy, "repeats", (int)w->value.n);
	int rc;

	json_object_set_new(obj, "pattern", json_string(rb_pattern_names[c->pattern]));
	json_object_set_new(obj, "transport", json_string(rb_transport_names[w->t]));
	json_object_set_new(obj, "msg_size", json_integer(c->size));
	json_object_set_new(obj, "burst", json_integer(c->burst));
	json_object_set_new(obj, "inflight", json_integer(c->inflight));
	json_object_set_new(obj, "depth", json_integer(c->depth));
	json_object_set_new(obj, "nodes", json_integer(nodes ? c->nodes : 2));
	json_figure(obj, latency ? "latency" : "rate", &w->value, latency ? "ns" : "Mops/s");
	json_figure(obj, "cycles_per_msg", &w->cycles, "cycles");
	json_object_set_new(
		obj, "ratio_rte_ring", w->ratio_rte > 0 ? json_real(w->ratio_rte) : json_null());
	json_object_set_new(
		obj, "ratio_line", w->ratio_line > 0 ? json_real(w->ratio_line) : json_null());
	json_object_set_new(obj, "line_ns", json_real(w->line_ns));
	json_object_set_new(obj, "line_rate_mlps", json_real(out->line_rate));
	if (out->bucket[w->t].n > 0 && out->bucket[w->t].slice[0].r.counted)
		json_counters(obj, &out->bucket[w->t]);
	rc = json_dumpf(obj, out->json, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 &&
			     fputc('\n', out->json) != EOF && fflush(out->json) == 0
		     ? 0
		     : -EIO;
	json_decref(obj);
	return rc;
}

/* Mean ping-pong around the slices that count. */
static double
line_of(const struct bucket *b, unsigned int state)
{
	double sum = 0;
	uint32_t i, n = 0;

	for (i = 0; i < b->n; i++)
		if (state == 2 || b->slice[i].state == state) {
			sum += (b->slice[i].r.line_ns[0] + b->slice[i].r.line_ns[1]) / 2;
			n++;
		}
	return n > 0 ? sum / n : 0;
}

static void
print_counters(const struct rb_out *out, enum rb_transport t)
{
	const struct bucket *b = &out->bucket[t];
	uint64_t sum, messages;
	uint32_t side, k, i;

	for (side = 0; side < 2; side++) {
		printf("  %-13s lcore %u per message:", "", side);
		for (k = 0; k < RB_COUNTERS; k++) {
			for (sum = messages = 0, i = 0; i < b->n; i++) {
				sum += b->slice[i].r.counter[side][k];
				messages += b->slice[i].r.messages;
			}
			printf(" %s %.2f", rb_counter_names[k],
				messages != 0 ? (double)sum / (double)messages : 0);
		}
		printf("\n");
	}
}

static uint32_t
disturbed(const struct rb_out *out)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < RB_TRANSPORTS; i++)
		for (k = 0; k < out->bucket[i].n; k++)
			n += out->bucket[i].slice[k].r.switches > 1;
	return n;
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
	printf("\n");
}

int
rb_out_case(struct rb_out *out, const struct rb_case *c, double steal_pct)
{
	bool latency = c->pattern == RB_LATENCY, noisy;
	uint32_t count[3], i, slices;
	unsigned int state = state_of(out, count);
	double rte = rte_best(out, c, state);
	int rc = 0;

	slices = count[0] + count[1] + count[2];
	noisy = steal_pct > RB_NOISY_STEAL_PCT || state == 2 || disturbed(out) * 4 > slices;
	printf("\n%s, %u bytes, burst %u, %u in flight", rb_pattern_names[c->pattern], c->size,
		c->burst, c->inflight);
	if (c->pattern >= RB_FLUX)
		printf(", %u nodes", c->nodes);
	printf(": slices near %u, far %u, mixed %u; stolen %.2f %%; %s\n", count[0], count[1],
		count[2], steal_pct, noisy ? "NOISY: no verdict" : rb_state_names[state]);
	printf("  %-13s %9s %9s %9s %9s %6s %8s\n", "transport", latency ? "ns" : "Mops/s", "min",
		"max", "cycles", "slices", latency ? "rte/it" : "it/rte");
	for (i = 0; i < RB_TRANSPORTS; i++) {
		struct row w = {.c = c, .t = (enum rb_transport)i, .state = state,
			.steal_pct = steal_pct, .noisy = noisy};

		if (out->bucket[i].n == 0)
			continue;
		w.value = figure_of(&out->bucket[i], state, state == 2, false);
		w.cycles = figure_of(&out->bucket[i], state, state == 2, true);
		w.line_ns = line_of(&out->bucket[i], state);
		if (rte > 0 && w.value.median > 0)
			w.ratio_rte = latency ? rte / w.value.median : w.value.median / rte;
		if (latency && w.line_ns > 0)
			w.ratio_line = w.value.median / w.line_ns;
		print_row(&w);
		if (out->bucket[i].slice[0].r.counted)
			print_counters(out, (enum rb_transport)i);
		if (out->json != NULL && rc == 0)
			rc = json_row(out, &w);
		out->bucket[i].n = 0;
	}
	fflush(stdout);
	return rc;
}
