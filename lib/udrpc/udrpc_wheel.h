/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDRPC_WHEEL_H
#define UDRPC_WHEEL_H

/**
 * @file
 * A timing wheel of one level (G. Varghese and T. Lauck, Hashed and Hierarchical Timing Wheels,
 * SOSP 1987): adding and removing cost a few stores, and time that passes costs one look per tick.
 *
 * An entry is a member of what is due. It is due early rather than never: what lies beyond the
 * wheel's reach is given at its reach; its owner looks at the clock and adds it again.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/** Ticks ahead that a wheel reaches; a power of two. */
#define WHEEL_BUCKETS 1024u

/** Zero is not on a wheel. */
struct wheel_entry {
	LIST_ENTRY(wheel_entry) link;
	bool is_on;
};

/** A wheel. */
struct wheel {
	uint32_t tick_log2; /**< ns of a tick, log2. A wheel of zeros is ready but for this. */
	uint32_t count;     /**< Entries on it. */
	uint64_t pos;       /**< The tick to be given next. */
	LIST_HEAD(wheel_bucket, wheel_entry) bucket[WHEEL_BUCKETS];
};

/** Put an entry that is on no wheel on this one, due at @p at_ns. */
void __crpc_udrpc_wheel_add(
	struct wheel *w, struct wheel_entry *e, uint64_t now_ns, uint64_t at_ns);

/** Take an entry off, if it is on. */
void __crpc_udrpc_wheel_del(struct wheel *w, struct wheel_entry *e);

/** Whether a tick has passed, with something on the wheel. */
static inline bool
wheel_has_turned(const struct wheel *w, uint64_t now_ns)
{
	return w->count != 0 && now_ns >> w->tick_log2 >= w->pos;
}

/** Take an entry off that is due; NULL: none is. It may be added again, later than now. */
struct wheel_entry *__crpc_udrpc_wheel_due(struct wheel *w, uint64_t now_ns);

#endif
