/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "kv_wait.h"

int
__crpc_kv_wait_init(struct kv_wait *w, uint32_t calls, uint32_t msg_max, uint32_t queues)
{
	struct kv_record *rec;

	*w = (struct kv_wait){.queues = queues,
		.place = (uint32_t)crpc_align_up(
			sizeof(struct kv_record) + msg_max, CRPC_CACHE_LINE)};
	STAILQ_INIT(&w->free);
	STAILQ_INIT(&w->failed);
	w->queue = calloc(queues, sizeof(*w->queue));
	w->pool = aligned_alloc(CRPC_CACHE_LINE, (size_t)calls * w->place);
	if (w->queue == NULL || w->pool == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < queues; i++)
		STAILQ_INIT(&w->queue[i]);
	/* The bytes behind stay untouched until they are used: there may be a MiB of them. */
	for (uint32_t i = 0; i < calls; i++) {
		rec = (struct kv_record *)(void *)(w->pool + (size_t)i * w->place);
		memset(rec, 0, sizeof(*rec));
		kv_wait_put(w, rec);
	}
	return 0;
}

void
__crpc_kv_wait_free(struct kv_wait *w)
{
	free(w->queue);
	free(w->pool);
}

void
__crpc_kv_wait_add(struct kv_wait *w, uint32_t queue, struct kv_record *rec, uint64_t now)
{
	rec->since_ns = now;
	STAILQ_INSERT_TAIL(&w->queue[queue], rec, link);
	w->waiting++;
	w->waited++;
}

uint32_t
__crpc_kv_wait_drain(struct kv_wait *w, uint64_t now, kv_wait_send send, void *of)
{
	struct kv_record *rec;
	uint32_t sent = 0, at;
	int rc;

	/* The next turn begins with another peer: none waits for the calls of those before it. */
	w->next++;
	for (uint32_t i = 0; i < w->queues && w->waiting != 0; i++) {
		at = (w->next + i) % w->queues;
		while ((rec = STAILQ_FIRST(&w->queue[at])) != NULL && sent < CRPC_BURST_MAX) {
			STAILQ_REMOVE_HEAD(&w->queue[at], link);
			rc = send(of, at, rec, now);
			if (rc == -EAGAIN) {
				STAILQ_INSERT_HEAD(&w->queue[at], rec, link);
				break;
			}
			w->waiting--;
			sent++;
			if (rc == 0)
				continue;
			rec->status = rc;
			STAILQ_INSERT_TAIL(&w->failed, rec, link);
		}
	}
	return sent;
}
