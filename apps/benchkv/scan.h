/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SCAN_H
#define KV_SCAN_H

/**
 * @file
 * Which key comes next where that depends on the one before: latest, and scans.
 *
 * Scans, for YCSB E, on a store that is a hash: gets of keys whose numbers follow each other, as
 * from a store whose keys are spread by hash. Where a scan begins is drawn like any key; how long
 * it is evenly from 1 to work.scan; behind the last key comes the first. Each get is an operation
 * of its own, and a client has as many of them open as its qd allows. Puts take the keys in turn.
 */

#include "client.h"

/** latest: puts take the keys in turn, all others draw how long ago their key was put. */
static inline uint32_t
kv_recent(const struct kv_work *work, struct kv_client *c, uint32_t age, bool put)
{
	if (put) {
		c->newest = c->newest + 1 < work->keys.n ? c->newest + 1 : 0;
		return c->newest;
	}
	return c->newest >= age ? c->newest - age : c->newest + work->keys.n - age;
}

/* The get that was drawn last was sent, or never will be because its owner is lost. */
static inline void
kv_scan_step(struct kv_loop *loop, struct kv_client *c)
{
	c->scan_key = c->scan_key + 1 < loop->work->keys.n ? c->scan_key + 1 : 0;
	if (--c->scan_left == 0 && loop->phase < KV_COOLDOWN)
		loop->counts.scans++;
}

/** The next operation of a load with scans. A get that was put off comes again. */
static inline void
kv_scan_draw(struct kv_loop *loop, struct kv_client *c, struct kv_call *call)
{
	const struct kv_work *work = loop->work;
	uint32_t draw, key;

	call->op = KV_GET;
	call->reads = false;
	if (c->scan_left != 0 && !c->put_off)
		kv_scan_step(loop, c);
	c->put_off = false;
	if (c->scan_left == 0) {
		key = app_keys_next_with(&work->keys, &c->rng, &draw);
		call->op = (uint8_t)(
			KV_GET + (draw >= work->read_below) + (draw >= work->delete_from));
		if (work->latest || call->op == KV_PUT)
			key = kv_recent(work, c, key, call->op == KV_PUT);
		if (call->op != KV_GET) {
			call->key = key;
			call->reads = work->rmw && call->op == KV_PUT;
			call->op = call->reads ? KV_GET : call->op;
			return;
		}
		c->scan_key = key;
		c->scan_left = 1 + (uint32_t)((crpc_random(&c->rng) >> 32) * work->scan >> 32);
	}
	call->key = c->scan_key;
}

#endif
