/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_sweep.h"

static int
bad_spec(const char *spec)
{
	return app_fail_once(
		"--sweep '%.200s': give OPTION=VALUE,VALUE..., up to %d such axes with / between, "
		"up to %d values each; for instance clients=1,2,4/flush=clocked,immediate",
		spec, APP_AXES_MAX, APP_AXIS_VALUES_MAX);
}

/* "clients=1,2": the option's name gets its dashes in place of what is before it. */
static int
parse_axis(struct app_sweep_axis *axis, char *text, const char *spec)
{
	char *values = strchr(text, '='), *save = NULL;

	if (values == NULL || values == text)
		return bad_spec(spec);
	*values++ = '\0';
	if (asprintf(&axis->option, "--%s", text) < 0)
		return app_fail("no memory for the sweep");
	for (char *v = strtok_r(values, ",", &save); v != NULL; v = strtok_r(NULL, ",", &save)) {
		if (axis->n == APP_AXIS_VALUES_MAX)
			return bad_spec(spec);
		axis->value[axis->n++] = v;
	}
	return axis->n == 0 ? bad_spec(spec) : 0;
}

static int
parse_axes(struct app_sweep *s, const char *spec)
{
	char *save = NULL;
	int rc = 0;

	s->text = strdup(spec);
	if (s->text == NULL)
		return app_fail("no memory for the sweep");
	for (char *t = strtok_r(s->text, "/", &save); t != NULL && rc == 0;
		t = strtok_r(NULL, "/", &save)) {
		if (s->axes == APP_AXES_MAX)
			return bad_spec(spec);
		rc = parse_axis(&s->axis[s->axes], t, spec);
		s->points *= s->axis[s->axes++].n;
	}
	return rc == 0 && s->axes == 0 ? bad_spec(spec) : rc;
}

int
app_sweep_parse(struct app_sweep *s, const char *spec, uint32_t passes)
{
	int rc;

	*s = (struct app_sweep){.passes = passes, .points = 1};
	rc = spec == NULL ? 0 : parse_axes(s, spec);
	s->runs = s->points * passes;
	if (rc == 0 && s->runs > APP_SWEEP_RUNS_MAX)
		rc = app_fail_once("--sweep: %u runs are more than %u; give fewer values or "
				   "--repeat",
			s->runs, APP_SWEEP_RUNS_MAX);
	return rc;
}

void
app_sweep_fini(struct app_sweep *s)
{
	for (uint32_t i = 0; i < s->axes; i++)
		free(s->axis[i].option);
	free(s->text);
	*s = (struct app_sweep){0};
}

void
app_sweep_point(const struct app_sweep *s, uint32_t run, struct app_sweep_point *p)
{
	uint32_t left = run % s->points, inner = s->points;

	*p = (struct app_sweep_point){.sweep = s, .pass = run / s->points};
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

char **
app_sweep_args(const struct app_sweep_point *p, int *argc, char *const *argv)
{
	char **args = calloc((size_t)*argc + 2 * APP_AXES_MAX, sizeof(*args));

	if (args == NULL) {
		app_fail("no memory for the sweep");
		return NULL;
	}
	memcpy(args, argv, (size_t)*argc * sizeof(*args));
	for (uint32_t i = 0; i < p->sweep->axes; i++) {
		args[(*argc)++] = p->sweep->axis[i].option;
		args[(*argc)++] = p->sweep->axis[i].value[p->at[i]];
	}
	return args;
}

void
app_sweep_add(const struct app_sweep_point *p, json_t *row)
{
	for (uint32_t i = 0; i < p->sweep->axes; i++)
		json_object_set_new(row, p->sweep->axis[i].option + 2,
			json_string(p->sweep->axis[i].value[p->at[i]]));
}
