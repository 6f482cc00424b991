/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "sweep.h"

/* Arguments of a point at most. */
#define ARGS_MAX 256
#define LABEL    128

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
	char *values = strchr(text, '='), *save = NULL, *v;
	size_t len;

	if (values == NULL || values == text)
		return bad_spec(spec);
	*values++ = '\0';
	len = strlen(text) + 3;
	axis->option = malloc(len);
	if (axis->option == NULL)
		return app_fail("no memory for the sweep");
	snprintf(axis->option, len, "--%s", text);
	for (v = strtok_r(values, ",", &save); v != NULL; v = strtok_r(NULL, ",", &save)) {
		if (axis->n == KV_AXIS_VALUES_MAX)
			return bad_spec(spec);
		axis->value[axis->n++] = v;
	}
	return axis->n == 0 ? bad_spec(spec) : 0;
}

static int
parse_axes(struct kv_sweep *s, const char *spec)
{
	char *save = NULL, *t;
	int rc = 0;

	s->text = strdup(spec);
	if (s->text == NULL)
		return app_fail("no memory for the sweep");
	s->points = 1;
	for (t = strtok_r(s->text, "/", &save); t != NULL && rc == 0;
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
	uint32_t i;
	int rc;

	*s = (struct kv_sweep){.passes = passes};
	rc = parse_axes(s, spec);
	s->runs = s->points * passes;
	if (rc == 0 && s->runs > KV_SWEEP_RUNS_MAX)
		rc = app_fail_once("--sweep: %u runs are more than %u; give fewer values or "
				   "--passes",
			s->runs, KV_SWEEP_RUNS_MAX);
	for (i = 0; i < s->points && rc == 0; i++) {
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
	uint32_t i;

	for (i = 0; i < s->axes; i++)
		free(s->axis[i].option);
	free(s->text);
	free(s->run);
	*s = (struct kv_sweep){0};
}

void
kv_sweep_point(const struct kv_sweep *s, uint32_t run, struct kv_sweep_point *p)
{
	uint32_t i, left = run % s->points, inner = s->points;

	*p = (struct kv_sweep_point){.sweep = s, .pass = run / s->points};
	p->rising = p->pass % 2 == 0;
	for (i = 0; i < s->axes; i++) {
		inner /= s->axis[i].n;
		p->at[i] = left / inner;
		left %= inner;
	}
	if (!p->rising)
		p->at[0] = s->axis[0].n - 1 - p->at[0];
}

/* The run of this pass at the same values as run number @p run of pass 0. */
static const struct kv_sweep_run *
run_at(const struct kv_sweep *s, uint32_t pass, const struct kv_sweep_point *p)
{
	uint32_t i, number = 0;

	for (i = 0; i < s->axes; i++)
		number = number * s->axis[i].n +
			(i == 0 && pass % 2 != 0 ? s->axis[0].n - 1 - p->at[0] : p->at[i]);
	return &s->run[pass * s->points + number];
}

int
kv_sweep_options(
	const struct kv_sweep_point *p, int argc, char *const *argv, struct kv_options *o)
{
	char *args[ARGS_MAX];
	uint32_t i, n = (uint32_t)argc;

	if (n + 2 * KV_AXES_MAX > ARGS_MAX)
		return app_fail_once("--sweep with more than %d arguments; give fewer",
			ARGS_MAX - 2 * KV_AXES_MAX);
	for (i = 0; i < n; i++)
		args[i] = argv[i];
	for (i = 0; i < p->sweep->axes; i++) {
		args[n++] = p->sweep->axis[i].option;
		args[n++] = p->sweep->axis[i].value[p->at[i]];
	}
	return kv_options_parse(o, KV_PROGRAM_DAEMON, (int)n, args);
}

void
kv_sweep_label(const struct kv_sweep_point *p, char *buf, size_t len)
{
	size_t used = 0;
	uint32_t i;

	buf[0] = '\0';
	for (i = 0; i < p->sweep->axes && used < len; i++)
		used += (size_t)snprintf(buf + used, len - used, "%s%s %s", i == 0 ? "" : ", ",
			p->sweep->axis[i].option + 2, p->sweep->axis[i].value[p->at[i]]);
}

static double
quantile_us(const struct crpc_hist *h, double q)
{
	return h->count == 0 ? 0 : (double)crpc_hist_quantile(h, q) / 1e3;
}

void
kv_sweep_note(struct kv_sweep *s, uint32_t run, const struct kv_result *total, bool noisy,
	FILE *out)
{
	static struct crpc_hist all;
	const struct crpc_hist *lat = total->counts.lat;
	struct kv_sweep_run *r = &s->run[run];
	struct kv_sweep_point p;
	char label[LABEL];

	all = lat[KV_LOCAL];
	crpc_hist_merge(&all, &lat[KV_FORWARDED]);
	crpc_hist_merge(&all, &lat[KV_REMOTE]);
	*r = (struct kv_sweep_run){
		.ops = kv_result_ops(total),
		.p50 = quantile_us(&all, 0.5),
		.p99 = quantile_us(&all, 0.99),
		.remote_p50 = quantile_us(&lat[KV_REMOTE], 0.5),
		.remote_p99 = quantile_us(&lat[KV_REMOTE], 0.99),
		.offered = total->offered,
		.faults = kv_result_faults(total),
		.done = true,
		.noisy = noisy,
	};
	kv_sweep_point(s, run, &p);
	kv_sweep_label(&p, label, sizeof(label));
	fprintf(out,
		"%4u/%u %-36s %s %8.3f M ops/s  p50 %8.2f  p99 %8.2f us  remote p50 %8.2f  p99 "
		"%8.2f us%s\n",
		run + 1, s->runs, label, p.rising ? "rising " : "falling", r->ops / 1e6, r->p50,
		r->p99, r->remote_p50, r->remote_p99, noisy ? "  (noisy)" : "");
	if (r->faults != 0)
		fprintf(out, "     %llu wrong answers\n", (unsigned long long)r->faults);
	fflush(out);
}

static int
cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of a figure over the passes that were done; which: 1 rising, 2 falling, 3 both. */
static double
median(const struct kv_sweep *s, const struct kv_sweep_point *p, unsigned int which, bool p99)
{
	const struct kv_sweep_run *r;
	double v[KV_SWEEP_RUNS_MAX];
	uint32_t pass, n = 0;

	for (pass = 0; pass < s->passes; pass++) {
		r = run_at(s, pass, p);
		if (r->done && (which & (pass % 2 == 0 ? 1u : 2u)) != 0)
			v[n++] = p99 ? r->p99 : r->ops / 1e6;
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(v[0]), cmp_double);
	return n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

void
kv_sweep_table(const struct kv_sweep *s, FILE *out)
{
	struct kv_sweep_point p;
	char label[LABEL];
	double up, down;
	uint32_t i;

	fprintf(out, "curves: medians of %u passes\n", s->passes);
	for (i = 0; i < s->points; i++) {
		kv_sweep_point(s, i, &p);
		kv_sweep_label(&p, label, sizeof(label));
		up = median(s, &p, 1, false);
		down = median(s, &p, 2, false);
		fprintf(out, "  %-36s %8.3f M ops/s  p99 %8.2f us", label,
			median(s, &p, 3, false), median(s, &p, 3, true));
		if (up > 0 && down > 0)
			fprintf(out, "  falling / rising %.3f", down / up);
		fputc('\n', out);
	}
	fflush(out);
}
