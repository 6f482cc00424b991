/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LANE_LOOP_H
#define LANE_LOOP_H

/**
 * @file
 * The loops of clients of layer ipc, for ways that take and issue calls client by client. Each way
 * has them with functions of its own, which are inlined.
 */

#include "lane.h"

/** What a way does for its clients. */
struct lane_loop {
	/** Before all clients, or the one that waits, take answers. */
	void (*begin)(struct lane_end *e);
	/** Take the answers of a client that are there: count them in its `ack` and in e->calls. */
	void (*take)(struct lane_end *e, uint32_t id, uint32_t size, bool check);
	/** Make at most n calls: count them in its `seq`; one-way messages in e->calls. */
	void (*issue)(struct lane_end *e, uint32_t id, uint32_t size, uint32_t n);
	uint32_t waits; /**< Takes that find nothing between two looks at the clock. */
	uint32_t turns; /**< Turns between two looks at the clock; a power of two. */
};

/** LANE_SYNC: a call that began at *then has ended. */
LANE_INLINE void
lane_call_ended(struct lane_end *e, uint64_t *then)
{
	uint64_t now;

	if (crpc_likely(e->hist == NULL))
		return;
	now = crpc_clock_ticks();
	crpc_hist_record(e->hist, now - *then);
	*then = now;
}

LANE_INLINE bool
lane_over(const struct lane_end *e, uint32_t *turn, uint32_t turns, uint64_t end)
{
	return ((++*turn & (turns - 1)) == 0 && crpc_clock_ticks() >= end) || e->broken;
}

/** Clients keep depth calls open. */
LANE_INLINE uint64_t
lane_async(
	struct lane_end *e, uint64_t end, uint32_t size, bool check, const struct lane_loop *way)
{
	uint32_t active = e->conf.active, depth = e->conf.depth, burst = e->conf.burst;
	uint32_t room, turn = 0;

	e->calls = 0;
	do {
		way->begin(e);
		for (uint32_t i = 0; i < active; i++) {
			way->take(e, i, size, check);
			room = depth - (uint32_t)(e->one[i].seq - e->one[i].ack);
			if (room != 0)
				way->issue(e, i, size, room < burst ? room : burst);
		}
	} while (!lane_over(e, &turn, way->turns, end));
	return e->calls;
}

/** Clients call in turn, one call at a time. */
LANE_INLINE uint64_t
lane_sync(
	struct lane_end *e, uint64_t end, uint32_t size, bool check, const struct lane_loop *way)
{
	uint32_t i = 0, turn = 0, takes;
	uint64_t then = crpc_clock_ticks();

	e->calls = 0;
	do {
		if (e->one[i].seq == e->one[i].ack) /* Else one is left from before. */
			way->issue(e, i, size, 1);
		for (takes = 1; e->one[i].seq != e->one[i].ack; takes++) {
			way->begin(e);
			way->take(e, i, size, check);
			if (takes % way->waits == 0 && (crpc_clock_ticks() >= end || e->broken))
				return e->calls;
		}
		lane_call_ended(e, &then);
		i = i + 1 == e->conf.active ? 0 : i + 1;
	} while (!lane_over(e, &turn, way->turns, end));
	return e->calls;
}

LANE_INLINE uint64_t
lane_calls(
	struct lane_end *e, uint64_t end, uint32_t size, bool check, const struct lane_loop *way)
{
	return e->conf.mode == LANE_SYNC ? lane_sync(e, end, size, check, way)
					 : lane_async(e, end, size, check, way);
}

#endif
