/* SPDX-License-Identifier: BSD-3-Clause */
/* From figures of slices to medians; a table and JSON lines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app_fail.h"
#include "app_json.h"
#include "shmbench.h"

struct sb_out {
	const struct sb_opt *o;
	const char *lcores;
	FILE *json;
	bool headed;
};

static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct sb_out *
sb_out_open(const struct sb_opt *o, const char *lcores)
{
	struct sb_out *out = calloc(1, sizeof(*out));

	if (out == NULL)
		return NULL;
	out->o = o;
	out->lcores = lcores;
	if (o->json != NULL) {
		out->json = app_json_open("json", o->json);
		if (out->json == NULL) {
			free(out);
			return NULL;
		}
	}
	return out;
}

void
sb_out_close(struct sb_out *out)
{
	if (out == NULL)
		return;
	if (out->json != NULL)
		fclose(out->json);
	free(out);
}

void
sb_point_begin(struct sb_point *p, const struct sb_opt *o, uint64_t size, uint64_t segments)
{
	p->bench = o->bench;
	p->size = size;
	p->segments = segments;
	p->page_size = 0;
	p->rate = o->bench == SB_TRANSFER;
	p->nseries = 0;
	p->line_ns = app_env_line_ns();
	app_env_steal(&p->steal);
	p->wall_ns = crpc_clock_ns();
	p->cpu_ns = cpu_ns();
}

struct sb_series *
sb_point_add(struct sb_point *p, const char *method, const char *place)
{
	struct sb_series *s = &p->series[p->nseries++];

	s->method = method;
	s->place = place;
	app_series_clear(&s->value);
	s->ratio = 0;
	s->ratio_key = NULL;
	return s;
}

void
sb_series_put(struct sb_series *s, double value)
{
	const struct app_slice slice = {.value = value};

	app_series_add(&s->value, &slice);
}

double
sb_series_ratio(const struct sb_series *a, const struct sb_series *b)
{
	return app_series_ratio(&a->value, &b->value, APP_STATE_MIXED);
}

/* One thread's: what two cores are apart does not matter. */
static struct app_figure
figure_of(const struct sb_series *s)
{
	struct app_figure f;

	app_series_figure(&s->value, APP_STATE_MIXED, &f);
	return f;
}

static int
json_row(struct sb_out *out, const struct sb_point *p, const struct sb_series *s,
	const struct app_json_base *base)
{
	struct app_figure f = figure_of(s);
	json_t *obj = app_json_new(base);

	json_object_set_new(obj, "bench", json_string(sb_bench_names[p->bench]));
	json_object_set_new(obj, "method", json_string(s->method));
	json_object_set_new(obj, "size", json_integer((json_int_t)p->size));
	json_object_set_new(obj, "segments", json_integer((json_int_t)p->segments));
	if (s->place != NULL)
		json_object_set_new(obj, "place", json_string(s->place));
	if (p->page_size != 0)
		json_object_set_new(obj, "page_size", json_integer((json_int_t)p->page_size));
	app_json_figure(obj, p->rate ? "rate" : "time", f.median, f.min, f.max,
		p->rate ? "GB/s" : "ns");
	if (s->ratio_key != NULL)
		json_object_set_new(obj, s->ratio_key, json_real(s->ratio));
	return app_json_write(out->json, obj);
}

static void
print_row(const struct sb_point *p, const struct sb_series *s)
{
	struct app_figure f = figure_of(s);
	char name[64];

	snprintf(name, sizeof(name), "%s%s%s", s->method, s->place != NULL ? ", " : "",
		s->place != NULL ? s->place : "");
	printf("  %-28s %12.2f %12.2f %12.2f %s", name, f.median, f.min, f.max,
		p->rate ? "GB/s" : "ns");
	if (s->ratio_key != NULL)
		printf("  %s %.2f", s->ratio_key, s->ratio);
	printf("\n");
}

int
sb_point_end(struct sb_point *p, struct sb_out *out)
{
	uint64_t wall = crpc_clock_ns() - p->wall_ns, cpu = cpu_ns() - p->cpu_ns;
	struct app_json_base base = {
		.app = "shmbench", .lcores = out->lcores, .repeats = p->series[0].value.n};
	struct app_steal now;
	double away = wall > cpu ? 100.0 * (double)(wall - cpu) / (double)wall : 0;
	uint32_t i;

	app_env_steal(&now);
	base.steal_pct = app_env_steal_pct(&p->steal, &now);
	base.state = app_env_state(p->line_ns, app_env_line_ns());
	base.noisy = base.steal_pct > APP_STEAL_PCT_NOISY || away > APP_AWAY_PCT_NOISY;
	if (!out->headed) {
		printf("%-30s %12s %12s %12s\n", sb_bench_names[p->bench], "median", "min", "max");
		out->headed = true;
	}
	printf("%lu bytes, %lu segment%s: %u rounds, cores %s, %.2f %% stolen, %.2f %% away%s\n",
		(unsigned long)p->size, (unsigned long)p->segments, p->segments == 1 ? "" : "s",
		p->series[0].value.n, base.state, base.steal_pct, away,
		base.noisy ? ": noisy, no verdict" : "");
	for (i = 0; i < p->nseries; i++) {
		if (p->series[i].value.n == 0)
			continue;
		print_row(p, &p->series[i]);
		if (out->json != NULL && json_row(out, p, &p->series[i], &base) != 0) {
			app_fail("--json: cannot append to '%s': %s", out->o->json,
				strerror(errno));
			return APP_EXIT_RUN;
		}
	}
	fflush(stdout);
	return 0;
}
