/* SPDX-License-Identifier: BSD-3-Clause */
/* From slices to figures, a row for each lane. */
#include <string.h>

#include "xb.h"

static const char *const stages[XB_STAGES] = {
	"time_post", "time_wire", "time_unpack", "time_consume"};

/*
 * A turn that was stopped counts once, however many chunks it had posted before. A window that is
 * always full may be emptied, and filled by one turn, each time.
 */
static bool
found_room(const struct app_lane *l, uint64_t stopped, uint64_t chunks)
{
	return stopped * crpc_max(20u, 2 * xb_tx_chunks(l->c)) < chunks;
}

const char *
xb_bound(const struct app_lane *l)
{
	const uint64_t *n = ((const struct xb_lane *)l)->count;
	uint64_t most =
		crpc_max(n[XB_BLOCKED_WINDOW], crpc_max(n[XB_BLOCKED_SLOTS], n[XB_BLOCKED_QUEUE]));

	if (n[XB_CHUNKS] == 0 || found_room(l, most, n[XB_CHUNKS]))
		return "post: the sender found room for each chunk";
	if (most == n[XB_BLOCKED_QUEUE])
		return "wire: the device's queue was full";
	if (most == n[XB_BLOCKED_SLOTS])
		return "unpack: the receiver's slots were taken";
	return l->c->path == XB_EAGER ? "unpack and wire: the window was full of unconsumed chunks"
				      : "wire: the window was full";
}

/* Lanes on lib/bulk. */
static bool
has_chunks(const struct app_case *p)
{
	return xb_bulk(p->transport) || p->transport == XB_TENSOR ||
		p->transport == XB_TENSOR_BF16;
}

/* Add how many times faster a lane is than one of that case, if its group has one. */
static void
add_ratio(json_t *row, const char *key, const struct app_group *g, const struct app_lane *l,
	uint32_t transport, uint32_t path, bool separate)
{
	const struct app_lane *other;

	for (uint32_t i = 0; i < g->n; i++) {
		other = g->lane[i];
		if (other != l && other->c->transport == transport && other->c->path == path &&
			other->c->ops == l->c->ops && other->c->separate == separate)
			app_row_ratio(row, key,
				app_series_ratio(&other->series[XB_EACH], &l->series[XB_EACH],
					g->trial.state));
	}
}

static void
add_arrays(json_t *row, const struct app_group *g, const struct app_lane *l)
{
	const struct app_case *p = l->c;

	add_ratio(row, "ratio_bulk", g, l, XB_BULK, p->path, false);
	if (p->transport == XB_TENSOR_BF16)
		add_ratio(row, "ratio_f32", g, l, XB_TENSOR, p->path, p->separate);
	if (!p->separate)
		add_ratio(row, "ratio_separate", g, l, p->transport, p->path, true);
}

void
xb_row(const struct app_group *g, const struct app_lane *l, json_t *row)
{
	const struct xb_lane *x = (const struct xb_lane *)l;
	const struct app_lane *limit = xb_group_find(g, XB_MEMCPY);
	const struct app_case *p = l->c;
	struct app_figure f = app_series_figure(&l->series[XB_RATE], g->trial.state);

	app_row_set(row, "{s:s*,s:I,s:b,s:i}", "path",
		xb_copies(p->transport) ? NULL : xb_path_names[p->path], "size",
		(json_int_t)p->size, "both_directions", (int)p->both, "depth", p->depth);
	if (has_chunks(p))
		app_row_set(row, "{s:i,s:i,s:i,s:s*}", "chunk", p->chunk, "window", p->window,
			"rails", p->rails, "engine",
			p->path != XB_EAGER
				? NULL
				: xb_engine_names[xb_bulk(p->transport) ? p->engine : XB_CPU]);
	if (xb_bulk(p->transport) && p->path == XB_EAGER)
		app_row_set(row, "{s:s}", "unpack", xb_unpack_names[p->unpack]);
	if (p->transport >= XB_PLAIN)
		app_row_set(row, "{s:i,s:b}", "ops", p->ops, "fused", !p->separate);
	app_row_figure(row, "bandwidth", &f, "GB/s");
	app_row_series(row, "latency", &l->series[XB_EACH], &g->trial, "us");
	app_row_ratio(row, "ratio_memcpy",
		limit == NULL ? 0
			      : app_series_ratio(&l->series[XB_RATE], &limit->series[XB_RATE],
					g->trial.state));
	if (g->party->port_gbps > 0 && !xb_copies(p->transport))
		app_row_ratio(
			row, "ratio_port", f.median / g->party->port_gbps / (p->both ? 2 : 1));
	if (p->transport >= XB_PLAIN)
		add_arrays(row, g, l);
	for (uint32_t i = 0; i < XB_STAGES; i++)
		app_row_series(row, stages[i], &l->series[XB_STAGE + i], &g->trial, "us");
	if (p->transport == XB_BULK_TCP)
		app_row_set(row, "{s:I}", "zero_copy_bytes", (json_int_t)x->count[XB_ZERO_COPY]);
	if (xb_bulk(p->transport))
		app_row_set(row, "{s:f,s:I,s:s}", "occupancy",
			(double)x->count[XB_OCCUPANCY] /
				(double)crpc_max(x->count[XB_CHUNKS], UINT64_C(1)),
			"memory", (json_int_t)x->memory, "bound", xb_bound(l));
}
