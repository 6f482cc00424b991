/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_out.h"
#include "sweep.h"

/* Arguments of a point at most. */
#define ARGS_MAX 256

static int
bad_spec(const char *spec)
{
	return app_fail_once("--sweep '%s': give OPTION=VALUE,VALUE..., up to %d such axes with / "
			     "between, up to %d values each; for instance "
			     "clients=1,2,4/flush=clocked,immediate",
		spec, KV_AXES_MAX, KV_AXIS_VALUES_MAX);
}

/* "clients=1,2": the option's name gets its dashes in place of what is before it. */
static int
parse_axis(struct kv_axis *axis, char *text, const char *spec)
{
	char *values = strchr(text, '='), *save = NULL;

	if (values == NULL || values == text)
		return bad_spec(spec);
	*values++ = '\0';
	if (asprintf(&axis->option, "--%s", text) < 0)
		return app_fail("no memory for the sweep");
	for (char *v = strtok_r(values, ",", &save); v != NULL; v = strtok_r(NULL, ",", &save)) {
		if (axis->n == KV_AXIS_VALUES_MAX)
			return bad_spec(spec);
		axis->value[axis->n++] = v;
	}
	return axis->n == 0 ? bad_spec(spec) : 0;
}

static int
parse_axes(struct kv_sweep *s, const char *spec)
{
	char *save = NULL;
	int rc = 0;

	s->text = strdup(spec);
	if (s->text == NULL)
		return app_fail("no memory for the sweep");
	s->points = 1;
	for (char *t = strtok_r(s->text, "/", &save); t != NULL && rc == 0;
		t = strtok_r(NULL, "/", &save)) {
		if (s->axes == KV_AXES_MAX)
			return bad_spec(spec);
		rc = parse_axis(&s->axis[s->axes], t, spec);
		s->points *= s->axis[s->axes++].n;
	}
	return rc == 0 && s->axes == 0 ? bad_spec(spec) : rc;
}

/* Everything that is chosen once for all points must be enough for the largest. */
static void
grow(struct kv_options *largest, const struct kv_options *o)
{
	largest->daemons = crpc_max(largest->daemons, o->daemons);
	largest->clients = crpc_max(largest->clients, o->clients);
}

int
kv_sweep_parse(struct kv_sweep *s, const char *spec, uint32_t passes, int argc, char *const *argv,
	uint32_t ranks, struct kv_options *largest)
{
	struct kv_sweep_point p;
	struct kv_options o;
	int rc;

	*s = (struct kv_sweep){.passes = passes};
	rc = parse_axes(s, spec);
	s->runs = s->points * passes;
	if (rc == 0 && s->runs > KV_SWEEP_RUNS_MAX)
		rc = app_fail_once("--sweep: %u runs are more than %u; give fewer values or "
				   "--repeat",
			s->runs, KV_SWEEP_RUNS_MAX);
	for (uint32_t i = 0; i < s->points && rc == 0; i++) {
		kv_sweep_point(s, i, &p);
		rc = kv_sweep_options(&p, argc, argv, &o);
		if (rc == 0)
			rc = kv_options_check_ranks(&o, ranks);
		if (rc == 0)
			grow(largest, &o);
	}
	if (rc != 0)
		return rc;
	s->run = calloc(s->runs, sizeof(*s->run));
	return s->run == NULL ? app_fail("no memory for the sweep") : 0;
}

void
kv_sweep_fini(struct kv_sweep *s)
{
	for (uint32_t i = 0; i < s->axes; i++)
		free(s->axis[i].option);
	free(s->text);
	free(s->run);
	*s = (struct kv_sweep){0};
}

void
kv_sweep_point(const struct kv_sweep *s, uint32_t run, struct kv_sweep_point *p)
{
	uint32_t left = run % s->points, inner = s->points;

	*p = (struct kv_sweep_point){.sweep = s, .pass = run / s->points};
	p->rising = p->pass % 2 == 0;
	for (uint32_t i = 0; i < s->axes; i++) {
		inner /= s->axis[i].n;
		p->at[i] = left / inner;
		left %= inner;
		if (i == 0 && !p->rising)
			p->at[0] = s->axis[0].n - 1 - p->at[0];
		p->number += p->at[i] * inner;
	}
}

int
kv_sweep_options(
	const struct kv_sweep_point *p, int argc, char *const *argv, struct kv_options *o)
{
	char *args[ARGS_MAX];
	uint32_t n = (uint32_t)argc;

	if (n + 2 * KV_AXES_MAX > ARGS_MAX)
		return app_fail_once("--sweep with more than %d arguments; give fewer",
			ARGS_MAX - 2 * KV_AXES_MAX);
	for (uint32_t i = 0; i < n; i++)
		args[i] = argv[i];
	for (uint32_t i = 0; i < p->sweep->axes; i++) {
		args[n++] = p->sweep->axis[i].option;
		args[n++] = p->sweep->axis[i].value[p->at[i]];
	}
	return kv_options_parse(o, KV_PROGRAM_DAEMON, (int)n, args);
}

static double
quantile_us(const struct crpc_hist *h, double q)
{
	return h->count == 0 ? 0 : (double)crpc_hist_quantile(h, q) / 1e3;
}

void
kv_sweep_note(struct kv_sweep *s, uint32_t run, const struct kv_result *total, bool noisy)
{
	static struct crpc_hist all;
	const struct crpc_hist *lat = total->counts.lat;
	struct kv_sweep_point p;
	double ops = kv_result_ops(total), p99;
	char text[512];
	FILE *f = fmemopen(text, sizeof(text), "w");

	all = lat[CRPC_KV_LOCAL];
	crpc_hist_merge(&all, &lat[CRPC_KV_FORWARDED]);
	crpc_hist_merge(&all, &lat[CRPC_KV_REMOTE]);
	p99 = quantile_us(&all, 0.99);
	kv_sweep_point(s, run, &p);
	s->run[p.number * s->passes + p.pass] = (struct kv_sweep_run){ops, p99, true};
	if (f == NULL)
		return;
	fprintf(f, " %u/%u", run + 1, s->runs);
	for (uint32_t i = 0; i < s->axes; i++)
		fprintf(f, "%s %s %s", i == 0 ? "" : ",", s->axis[i].option + 2,
			s->axis[i].value[p.at[i]]);
	fprintf(f, " %s: %.3f M ops/s, p50 %.2f, p99 %.2f us, remote p50 %.2f, p99 %.2f us%s%s",
		p.rising ? "rising" : "falling", ops / 1e6, quantile_us(&all, 0.5), p99,
		quantile_us(&lat[CRPC_KV_REMOTE], 0.5), quantile_us(&lat[CRPC_KV_REMOTE], 0.99),
		noisy ? " (noisy)" : "", kv_result_faults(total) != 0 ? ", WRONG ANSWERS" : "");
	fclose(f);
	app_out_text(6, text);
	fflush(stdout);
}

/* Figures of a point over the passes that were done: M ops/s, p99, falling / rising. */
static json_t *
point_row(const struct kv_sweep *s, const struct kv_sweep_point *p)
{
	double v[KV_SWEEP_RUNS_MAX], p99[KV_SWEEP_RUNS_MAX], half[2][KV_SWEEP_RUNS_MAX], rising;
	const struct kv_sweep_run *r = &s->run[p->number * s->passes];
	uint32_t n = 0, halves[2] = {0};
	json_t *row = json_object();
	struct app_figure f;

	for (uint32_t i = 0; i < s->axes; i++)
		app_row_set(row, "{s:s}", s->axis[i].option + 2, s->axis[i].value[p->at[i]]);
	for (uint32_t i = 0; i < s->passes; i++) {
		if (!r[i].done)
			continue;
		half[i % 2][halves[i % 2]++] = v[n] = r[i].ops / 1e6;
		p99[n++] = r[i].p99;
	}
	f = app_figure_of(v, n);
	rising = app_median(half[0], halves[0]);
	app_row_figure(row, "rate", &f, "Mops/s");
	app_row_set(row, "{s:f}", "p99_us", app_median(p99, n));
	app_row_ratio(
		row, "ratio_falling", rising > 0 ? app_median(half[1], halves[1]) / rising : 0);
	return row;
}

void
kv_sweep_table(const struct kv_sweep *s)
{
	json_t *rows = json_array();
	struct kv_sweep_point p;

	for (uint32_t i = 0; i < s->points; i++) {
		kv_sweep_point(s, i, &p);
		json_array_append_new(rows, point_row(s, &p));
	}
	app_out_table("curves, medians of passes", rows);
}
