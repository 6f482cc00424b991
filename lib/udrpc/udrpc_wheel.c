/* SPDX-License-Identifier: BSD-3-Clause */
#include "udrpc_wheel.h"

#include "crpc_util.h"

void
__crpc_udrpc_wheel_add(struct wheel *w, struct wheel_entry *e, uint64_t now_ns, uint64_t at_ns)
{
	/* rounded up: never before its time, but for what is out of reach */
	uint64_t tick = (at_ns >> w->tick_log2) + 1;

	/* an empty wheel does not move */
	if (w->count++ == 0)
		w->pos = (now_ns >> w->tick_log2) + 1;
	tick = crpc_min(crpc_max(tick, w->pos), w->pos + WHEEL_BUCKETS - 1);
	LIST_INSERT_HEAD(&w->bucket[tick % WHEEL_BUCKETS], e, link);
	e->is_on = true;
}

void
__crpc_udrpc_wheel_del(struct wheel *w, struct wheel_entry *e)
{
	if (!e->is_on)
		return;
	LIST_REMOVE(e, link);
	e->is_on = false;
	w->count--;
}

struct wheel_entry *
__crpc_udrpc_wheel_due(struct wheel *w, uint64_t now_ns)
{
	uint64_t now = now_ns >> w->tick_log2;
	struct wheel_entry *e;

	/* one lap sees every bucket */
	w->pos = crpc_max(w->pos, crpc_max(now, WHEEL_BUCKETS) - WHEEL_BUCKETS);
	for (; wheel_has_turned(w, now_ns); w->pos++) {
		e = LIST_FIRST(&w->bucket[w->pos % WHEEL_BUCKETS]);
		if (e != NULL) {
			__crpc_udrpc_wheel_del(w, e);
			return e;
		}
	}
	return NULL;
}
