/* SPDX-License-Identifier: BSD-3-Clause */
/* From slices to figures: a table for people, a line of JSON for each figure. */
#include <inttypes.h>
#include <string.h>

#include "xb.h"

void
xb_out_head(const struct xb_run *run)
{
	app_out_machine("lcores", run->lcores);
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

const char *
xb_bound(const struct xb_lane *l, char *buf, size_t len)
{
	const struct xb_counts *c = &l->counts;
	uint64_t most = crpc_max(c->blocked_window, crpc_max(c->blocked_slots, c->blocked_queue));

	if (c->chunks == 0 || most * 20 < c->chunks)
		snprintf(buf, len, "post: the sender found room for each chunk");
	else if (most == c->blocked_queue)
		snprintf(buf, len, "wire: the device's queue was full");
	else if (most == c->blocked_slots)
		snprintf(buf, len, "unpack: the receiver's slots were taken");
	else if (l->point.path == XB_EAGER)
		snprintf(buf, len, "unpack and wire: the window was full until news of consumed");
	else
		snprintf(buf, len, "wire: the window was full");
	return buf;
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
	printf("  %-10s %-15s", l->name, xb_copies(p->transport) ? "" : xb_path_names[p->path]);
	if (p->transport == XB_BULK)
		printf(" %6u %4u %2u %-6s", p->chunk >> 10, p->window, p->rails,
			p->path == XB_EAGER ? l->engine : "-");
	else
		printf(" %6s %4s %2s %-6s", "-", "-", "-", "-");
	printf(" %7.2f %7.2f %7.2f", f.median, f.min, f.max);
	if (ratio > 0)
		printf("  %5.2f", ratio);
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
	app_out_trial(&g->trial);
	printf("  %-10s %-15s %6s %4s %2s %-6s %7s %7s %7s  %s\n", "transport", "path", "KiB",
		"wind", "rl", "engine", "GB/s", "min", "max", "of memcpy");
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

	return app_json_new(&base);
}

static json_t *
lane_object(const struct xb_group *g, const struct xb_lane *l, const char *stage)
{
	const struct xb_point *p = &l->point;
	bool ours = p->transport == XB_BULK;
	json_t *obj = object(g, l->rate.n);

	json_object_set_new(obj, "transport", json_string(l->name));
	json_object_set_new(obj, "size", json_integer((json_int_t)p->size));
	json_object_set_new(obj, "chunk", ours ? json_integer(p->chunk) : json_null());
	json_object_set_new(obj, "window", ours ? json_integer(p->window) : json_null());
	json_object_set_new(obj, "rails", ours ? json_integer(p->rails) : json_null());
	json_object_set_new(obj, "engine",
		ours && p->path == XB_EAGER ? json_string(l->engine) : json_null());
	json_object_set_new(obj, "path",
		xb_copies(p->transport) ? json_null() : json_string(xb_path_names[p->path]));
	json_object_set_new(obj, "both_directions", json_boolean(p->both));
	json_object_set_new(obj, "depth", json_integer(p->depth));
	json_object_set_new(obj, "stage", json_string(stage));
	return obj;
}

static int
json_total(const struct xb_group *g, const struct xb_lane *l)
{
	const struct xb_lane *limit = xb_group_find(g, XB_MEMCPY);
	json_t *obj = lane_object(g, l, "total");
	struct app_figure f;
	char text[96];

	xb_figure(g, &l->rate, &f);
	app_json_figure(obj, "rate", f.median, f.min, f.max, "GB/s");
	app_json_ratio(obj, "ratio_memcpy",
		limit != NULL ? xb_ratio(g, &l->rate, &limit->rate) : 0);
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
