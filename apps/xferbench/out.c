/* SPDX-License-Identifier: BSD-3-Clause */
/* From slices to figures: a table for people, a line of JSON for each figure. */
#include <inttypes.h>
#include <string.h>

#include "xb.h"

void
xb_out_head(const struct xb_run *run)
{
	app_out_machine(run->team->link == NULL   ? "lcores"
			: run->team->one_host ? "lcores of two ranks"
					      : "lcores of two ranks on two hosts",
		run->lcores);
	if (run->line_gbps > 0)
		printf("the device's port: %.2f GB/s\n", run->line_gbps);
	fflush(stdout);
}

static double
stage_us(const struct xb_group *g, const struct xb_lane *l, enum xb_stage s)
{
	struct app_figure f;

	xb_figure(g, &l->stage[s], &f);
	return f.median;
}

static double
occupancy(const struct xb_lane *l)
{
	return l->counts.chunks == 0 ? 0 : (double)l->counts.occupancy / (double)l->counts.chunks;
}

/*
 * A turn that was stopped counts once, however many chunks it had posted before. A window that is
 * always full may be emptied, and filled by one turn, each time.
 */
static bool
found_room(const struct xb_lane *l, uint64_t stopped)
{
	return stopped * crpc_max(20u, 2 * xb_tx_chunks(&l->point)) < l->counts.chunks;
}

const char *
xb_bound(const struct xb_lane *l, char *buf, size_t len)
{
	const struct xb_counts *c = &l->counts;
	uint64_t most = crpc_max(c->blocked_window, crpc_max(c->blocked_slots, c->blocked_queue));

	if (c->chunks == 0 || found_room(l, most))
		snprintf(buf, len, "post: the sender found room for each chunk");
	else if (most == c->blocked_queue)
		snprintf(buf, len, "wire: the device's queue was full");
	else if (most == c->blocked_slots)
		snprintf(buf, len, "unpack: the receiver's slots were taken");
	else if (l->point.path == XB_EAGER)
		snprintf(buf, len, "unpack and wire: the window was full of unconsumed chunks");
	else
		snprintf(buf, len, "wire: the window was full");
	return buf;
}

/* What the ports of two hosts carry at most, GB/s. */
static double
line_of(const struct xb_group *g, const struct xb_point *p)
{
	return g->run->line_gbps * (p->both ? 2 : 1);
}

/* Lanes on lib/bulk. */
static bool
has_chunks(const struct xb_point *p)
{
	return p->transport == XB_BULK || p->transport == XB_TENSOR ||
		p->transport == XB_TENSOR_BF16;
}

static const char *
engine_of(const struct xb_lane *l)
{
	return l->engine[0] != '\0' ? l->engine : xb_engine_names[XB_CPU];
}

/* ---- for people ---- */

static void
print_lane(const struct xb_group *g, const struct xb_lane *l)
{
	const struct xb_lane *limit = xb_group_find(g, XB_MEMCPY);
	const struct xb_point *p = &l->point;
	struct app_figure f;
	char text[96];
	double ratio = 0;
	uint32_t i;

	xb_figure(g, &l->rate, &f);
	if (limit != NULL && limit != l)
		ratio = xb_ratio(g, &l->rate, &limit->rate);
	printf("  %-15s %-15s", l->name, xb_copies(p->transport) ? "" : xb_path_names[p->path]);
	if (has_chunks(p))
		printf(" %6u %4u %2u %-6s", p->chunk >> 10, p->window, p->rails,
			p->path == XB_EAGER ? engine_of(l) : "-");
	else
		printf(" %6s %4s %2s %-6s", "-", "-", "-", "-");
	printf(" %7.2f %7.2f %7.2f", f.median, f.min, f.max);
	xb_figure(g, &l->each, &f);
	printf(" %10.2f", f.median);
	xb_figure(g, &l->rate, &f);
	if (ratio > 0)
		printf("  %9.2f", ratio);
	if (g->run->line_gbps > 0 && !xb_copies(p->transport))
		printf("%s  %7.2f", ratio > 0 ? "" : "           ", f.median / line_of(g, p));
	if (p->transport >= XB_PLAIN)
		printf("  %u operations%s", p->ops, p->separate ? ", one by one" : "");
	printf("\n");
	if (p->transport != XB_BULK)
		return;
	printf("    us per chunk:");
	for (i = 0; i < XB_STAGES; i++)
		if (l->stage[i].n != 0)
			printf(" %s %.2f", xb_stage_names[i], stage_us(g, l, i));
	printf("; %.1f under way; bound by %s\n", occupancy(l), xb_bound(l, text, sizeof(text)));
}

static void
print_group(const struct xb_group *g)
{
	const struct xb_point *p = &g->lane[0].point;
	uint32_t i;

	printf("%" PRIu64 " bytes, %s, %u open, %u rounds; ", p->size,
		p->both ? "both directions" : "one direction", p->depth, g->lane[0].rate.n);
	if (xb_team_plays_line(g->run->team))
		app_out_trial(&g->trial);
	else
		printf("stolen %.2f %%%s\n", g->trial.steal_pct, g->trial.noisy ? "; NOISY" : "");
	printf("  %-15s %-15s %6s %4s %2s %-6s %7s %7s %7s %10s  %s%s\n", "transport", "path",
		"KiB", "wind", "rl", "engine", "GB/s", "min", "max", "us each", "of memcpy",
		g->run->line_gbps > 0 ? "  of port" : "");
	for (i = 0; i < g->n; i++)
		if (g->lane[i].rate.n != 0)
			print_lane(g, &g->lane[i]);
	fflush(stdout);
}

/* ---- for machines ---- */

static json_t *
object(const struct xb_group *g, uint64_t repeats)
{
	struct app_json_base base =
		app_out_base(&g->trial, "xferbench", g->run->lcores, repeats);

	json_t *obj = app_json_new(&base);
	const struct xb_team *t = g->run->team;

	json_object_set_new(obj, "ranks", json_integer(t->link != NULL ? 2 : 1));
	json_object_set_new(obj, "hosts", json_integer(t->link != NULL && !t->one_host ? 2 : 1));
	return obj;
}

static json_t *
lane_object(const struct xb_group *g, const struct xb_lane *l, const char *stage)
{
	const struct xb_point *p = &l->point;
	bool arrays = p->transport >= XB_PLAIN, ours = has_chunks(p);
	json_t *obj = object(g, l->rate.n);

	json_object_set_new(obj, "transport", json_string(l->name));
	json_object_set_new(obj, "size", json_integer((json_int_t)p->size));
	json_object_set_new(obj, "chunk", ours ? json_integer(p->chunk) : json_null());
	json_object_set_new(obj, "window", ours ? json_integer(p->window) : json_null());
	json_object_set_new(obj, "rails", ours ? json_integer(p->rails) : json_null());
	json_object_set_new(obj, "engine",
		ours && p->path == XB_EAGER ? json_string(engine_of(l)) : json_null());
	json_object_set_new(obj, "path",
		xb_copies(p->transport) ? json_null() : json_string(xb_path_names[p->path]));
	json_object_set_new(obj, "both_directions", json_boolean(p->both));
	json_object_set_new(obj, "depth", json_integer(p->depth));
	json_object_set_new(obj, "ops", arrays ? json_integer(p->ops) : json_null());
	json_object_set_new(obj, "fused", arrays ? json_boolean(!p->separate) : json_null());
	json_object_set_new(obj, "stage", json_string(stage));
	return obj;
}

static int
json_total(const struct xb_group *g, const struct xb_lane *l)
{
	const struct xb_lane *limit = xb_group_find(g, XB_MEMCPY);
	json_t *obj = lane_object(g, l, "total");
	struct app_figure f, each;
	char text[96];

	xb_figure(g, &l->rate, &f);
	app_json_figure(obj, "rate", f.median, f.min, f.max, "GB/s");
	xb_figure(g, &l->each, &each);
	app_json_figure(obj, "each", each.median, each.min, each.max, "us");
	app_json_ratio(obj, "ratio_memcpy",
		limit != NULL ? xb_ratio(g, &l->rate, &limit->rate) : 0);
	app_json_ratio(obj, "ratio_port",
		g->run->line_gbps > 0 && !xb_copies(l->point.transport)
			? f.median / line_of(g, &l->point)
			: 0);
	if (l->point.transport == XB_BULK) {
		json_object_set_new(obj, "occupancy", json_real(occupancy(l)));
		json_object_set_new(
			obj, "bound", json_string(xb_bound(l, text, sizeof(text))));
		json_object_set_new(obj, "memory", json_integer((json_int_t)l->memory));
	}
	return app_json_write(g->run->json, obj);
}

static int
json_lane(const struct xb_group *g, const struct xb_lane *l)
{
	struct app_figure f;
	json_t *obj;
	uint32_t i;
	int rc = json_total(g, l);

	for (i = 0; rc == 0 && i < XB_STAGES; i++) {
		if (l->stage[i].n == 0)
			continue;
		xb_figure(g, &l->stage[i], &f);
		obj = lane_object(g, l, xb_stage_names[i]);
		app_json_figure(obj, "time", f.median, f.min, f.max, "us");
		json_object_set_new(obj, "ratio_memcpy", json_null());
		rc = app_json_write(g->run->json, obj);
	}
	return rc;
}

int
xb_out_group(const struct xb_group *g)
{
	uint32_t i;
	int rc = 0;

	print_group(g);
	for (i = 0; g->run->json != NULL && i < g->n && rc == 0; i++)
		if (g->lane[i].rate.n != 0)
			rc = json_lane(g, &g->lane[i]);
	return rc;
}

int
xb_out_target(const struct xb_group *g, const struct app_target *t)
{
	json_t *obj = g->run->json != NULL ? object(g, g->n > 0 ? g->lane[0].rate.n : 0) : NULL;

	return app_out_target(t, g->trial.noisy, obj, g->run->json);
}

int
xb_out_tuned(const struct xb_group *g, const char *name, const struct xb_lane *l, const char *why)
{
	struct app_figure f;
	json_t *obj;

	if (g->run->json == NULL)
		return 0;
	xb_figure(g, &l->rate, &f);
	obj = object(g, l->rate.n);
	json_object_set_new(obj, "tuned", json_string(name));
	json_object_set_new(obj, "path", json_string(xb_path_names[l->point.path]));
	json_object_set_new(obj, "size", json_integer((json_int_t)l->point.size));
	json_object_set_new(obj, "chunk", json_integer(l->point.chunk));
	json_object_set_new(obj, "window", json_integer(l->point.window));
	app_json_figure(obj, "best", f.median, f.min, f.max, "GB/s");
	json_object_set_new(obj, "why", json_string(why));
	return app_json_write(g->run->json, obj);
}
