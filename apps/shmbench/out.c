/* SPDX-License-Identifier: BSD-3-Clause */
/* From figures of slices to rows; the segments that the benchmarks use. */
#include <unistd.h>

#include "app_fail.h"
#include "app_out.h"
#include "crpc_shm.h"
#include "shmbench.h"

void
sb_point_begin(struct sb_point *p, const struct sb_opt *o, uint64_t size, uint64_t segments)
{
	p->bench = o->bench;
	p->size = size;
	p->segments = segments;
	p->page_size = 0;
	p->rate = o->bench == SB_TRANSFER;
	p->nseries = 0;
	p->line_ns = app_measure_line_ns();
	app_trial_begin(&p->trial);
	p->begin_ns = crpc_clock_ns();
	p->away_ns = app_measure_away_ns();
}

struct sb_series *
sb_point_add(struct sb_point *p, const char *method, const char *place)
{
	struct sb_series *s = &p->series[p->nseries++];

	s->method = method;
	s->place = place;
	s->value.n = 0;
	s->other = NULL;
	return s;
}

void
sb_series_put(struct sb_series *s, double value)
{
	const struct app_slice slice = {.value = value};

	app_series_add(&s->value, &slice);
}

static json_t *
row_of(const struct app_out *out, const struct sb_point *p, const struct sb_series *s)
{
	json_t *row = app_row(out, "result", &p->trial);
	struct app_figure f = app_series_figure(&s->value, APP_STATE_MIXED);

	/* One thread's: what two cores are apart does not matter. */
	app_row_set(row, "{s:s,s:s*,s:s,s:I,s:I}", "method", s->method, "place", s->place, "bench",
		sb_bench_names[p->bench], "size", (json_int_t)p->size, "segments",
		(json_int_t)p->segments);
	if (p->page_size != 0)
		app_row_set(row, "{s:I}", "page_size", (json_int_t)p->page_size);
	app_row_figure(row, p->rate ? "bandwidth" : "time", &f, p->rate ? "GB/s" : "ns");
	if (s->other != NULL)
		app_row_ratio(row, s->ratio,
			p->rate ? app_series_ratio(&s->value, &s->other->value, APP_STATE_MIXED)
				: app_series_ratio(&s->other->value, &s->value, APP_STATE_MIXED));
	return row;
}

int
sb_point_end(struct sb_point *p, struct app_out *out)
{
	double wall = (double)(crpc_clock_ns() - p->begin_ns);
	uint64_t away = app_measure_away_ns() - p->away_ns;
	struct app_trial *t = &p->trial;
	json_t *rows = json_array();

	app_trial_end(t, NULL, 0);
	t->away_pct = 100.0 * (double)away / wall;
	t->state = app_state_of(p->line_ns, app_measure_line_ns());
	t->noisy = t->steal_pct > APP_STEAL_PCT_NOISY || t->away_pct > APP_AWAY_PCT_NOISY;
	for (uint32_t i = 0; i < p->nseries; i++)
		if (p->series[i].value.n != 0)
			json_array_append_new(rows, row_of(out, p, &p->series[i]));
	return app_out_rows(out, NULL, t, rows) == 0 ? 0 : APP_EXIT_RUN;
}

struct crpc_shm *
sb_segment(uint64_t size, bool prefault, bool huge)
{
	char name[CRPC_SHM_NAME_MAX];
	const struct crpc_shm_conf conf = {.name = name,
		.memfd = true,
		.prefault = prefault,
		.huge = huge,
		.size = size,
		.kind = CRPC_SHM_KIND('B', 'N', 'C', 'H')};

	snprintf(name, sizeof(name), "shmbench.%d", (int)getpid());
	return crpc_shm_create(&conf);
}
