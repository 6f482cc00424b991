/* SPDX-License-Identifier: BSD-3-Clause */
#include "udrpc_wheel.h"

#include <errno.h>
#include <stdlib.h>

#include "crpc_util.h"

int
__crpc_udrpc_wheel_init(struct wheel *w, uint64_t tick_ns, uint32_t buckets)
{
	w->tick_log2 = tick_ns == 0 ? 0 : 63 - (uint32_t)__builtin_clzll(tick_ns);
	w->mask = buckets - 1;
	w->count = 0;
	w->pos = 0;
	w->bucket = calloc(buckets, sizeof(*w->bucket));
	return w->bucket != NULL ? 0 : -ENOMEM;
}

void
__crpc_udrpc_wheel_fini(struct wheel *w)
{
	free(w->bucket);
	w->bucket = NULL;
}

void
__crpc_udrpc_wheel_add(struct wheel *w, struct wheel_entry *e, uint64_t now_ns, uint64_t at_ns)
{
	/* rounded up: never before its time, but for what is out of reach */
	uint64_t tick = (at_ns >> w->tick_log2) + 1;
	struct wheel_entry **head;

	/* nobody has looked at the clock while the wheel was empty */
	if (w->count++ == 0)
		w->pos = now_ns >> w->tick_log2;
	if (tick <= w->pos)
		tick = w->pos + 1;
	if (tick > w->pos + w->mask)
		tick = w->pos + w->mask;
	head = &w->bucket[tick & w->mask];
	e->next = *head;
	if (e->next != NULL)
		e->next->at = &e->next;
	e->at = head;
	*head = e;
}

void
__crpc_udrpc_wheel_del(struct wheel *w, struct wheel_entry *e)
{
	if (e->at == NULL)
		return;
	*e->at = e->next;
	if (e->next != NULL)
		e->next->at = e->at;
	e->at = NULL;
	w->count--;
}

struct wheel_entry *
__crpc_udrpc_wheel_due(struct wheel *w, uint64_t now_ns)
{
	uint64_t now = now_ns >> w->tick_log2;
	struct wheel_entry *due = NULL, *e;

	if (w->count == 0 || now <= w->pos)
		return NULL;
	/* one lap sees every bucket */
	if (now - w->pos > w->mask + 1u)
		w->pos = now - (w->mask + 1u);
	while (w->pos != now) {
		w->pos++;
		while ((e = w->bucket[w->pos & w->mask]) != NULL) {
			__crpc_udrpc_wheel_del(w, e);
			e->next = due;
			due = e;
		}
	}
	return due;
}
