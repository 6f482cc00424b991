/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_fail.h"
#include "app_out.h"
#include "sweep.h"

int
kv_sweep_parse(struct kv_sweep *s, const char *spec, uint32_t passes, int argc, char *const *argv,
	uint32_t ranks, struct kv_options *largest)
{
	struct app_sweep_point p;
	struct kv_options o;
	int rc = app_sweep_parse(&s->plan, spec, passes);

	for (uint32_t i = 0; i < s->plan.points && rc == 0; i++) {
		app_sweep_point(&s->plan, i, &p);
		rc = kv_sweep_options(&p, argc, argv, &o);
		if (rc == 0)
			rc = kv_options_check_ranks(&o, ranks);
		/* What is chosen once for all points must be enough for the largest. */
		if (rc == 0) {
			largest->daemons = crpc_max(largest->daemons, o.daemons);
			largest->clients = crpc_max(largest->clients, o.clients);
		}
	}
	if (rc != 0)
		return rc;
	s->run = calloc(s->plan.runs, sizeof(*s->run));
	return s->run == NULL ? app_fail("no memory for the sweep") : 0;
}

void
kv_sweep_fini(struct kv_sweep *s)
{
	app_sweep_fini(&s->plan);
	free(s->run);
}

int
kv_sweep_options(
	const struct app_sweep_point *p, int argc, char *const *argv, struct kv_options *o)
{
	char **args = app_sweep_args(p, &argc, argv);
	int rc = args == NULL ? APP_EXIT_USAGE
			      : kv_options_parse(o, KV_PROGRAM_DAEMON, argc, args);

	free(args);
	return rc;
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
	const struct app_sweep *plan = &s->plan;
	struct app_sweep_point p;
	double ops = kv_result_ops(total), p99;
	char text[512];
	FILE *f = fmemopen(text, sizeof(text), "w");

	kv_result_lat(total, &all);
	p99 = quantile_us(&all, 0.99);
	app_sweep_point(plan, run, &p);
	s->run[p.number * plan->passes + p.pass] = (struct kv_sweep_run){ops, p99, true};
	if (f == NULL)
		return;
	fprintf(f, " %u/%u", run + 1, plan->runs);
	for (uint32_t i = 0; i < plan->axes; i++)
		fprintf(f, "%s %s %s", i == 0 ? "" : ",", plan->axis[i].option + 2,
			plan->axis[i].value[p.at[i]]);
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
point_row(const struct kv_sweep *s, const struct app_sweep_point *p)
{
	double v[APP_SWEEP_RUNS_MAX], p99[APP_SWEEP_RUNS_MAX], half[2][APP_SWEEP_RUNS_MAX], rising;
	const struct kv_sweep_run *r = &s->run[p->number * s->plan.passes];
	uint32_t n = 0, halves[2] = {0};
	json_t *row = json_object();
	struct app_figure f;

	app_sweep_add(p, row);
	for (uint32_t i = 0; i < s->plan.passes; i++) {
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
	struct app_sweep_point p;

	for (uint32_t i = 0; i < s->plan.points; i++) {
		app_sweep_point(&s->plan, i, &p);
		json_array_append_new(rows, point_row(s, &p));
	}
	app_out_table("curves, medians of passes", rows);
}
