/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LOAD_SCAN_H
#define APP_LOAD_SCAN_H

/**
 * @file
 * Which key comes next where that depends on the one before: latest, and scans.
 *
 * Scans, for YCSB E, on a store that is a hash: gets of keys whose numbers follow each other, as
 * from a store whose keys are spread by hash. Where a scan begins is drawn like any key; how long
 * it is evenly from 1 to conf.scan; behind the last key comes the first. Each get is an operation
 * of its own, and a client has up to depth of them open. Puts take the keys in turn.
 */

#include "app_load.h"

/** latest: puts take the keys in turn, all others draw how long ago their key was put. */
static inline uint32_t
app_load_recent(const struct app_load_conf *conf, struct app_load_client *c, uint32_t age, bool put)
{
	if (put) {
		c->newest = c->newest + 1 < conf->keys.n ? c->newest + 1 : 0;
		return c->newest;
	}
	return c->newest >= age ? c->newest - age : c->newest + conf->keys.n - age;
}

/** Draw an operation and its key; with @p turns puts take the keys in turn. */
static inline void
app_load_draw(const struct app_load_conf *conf, struct app_load_client *c,
	struct app_load_call *call, bool turns)
{
	uint32_t draw;

	call->key = app_keys_next_with(&conf->keys, &c->rng, &draw);
	call->op =
		(uint8_t)(CRPC_KV_GET + (draw >= conf->read_below) + (draw >= conf->delete_from));
	if (conf->latest || (turns && call->op == CRPC_KV_PUT))
		call->key = app_load_recent(conf, c, call->key, call->op == CRPC_KV_PUT);
	call->reads = conf->rmw && call->op == CRPC_KV_PUT;
	if (call->reads)
		call->op = CRPC_KV_GET;
}

/* The get that was drawn last was sent, or never will be because its owner is lost. */
static inline void
app_load_scan_step(struct app_load *load, struct app_load_client *c)
{
	c->scan_key = c->scan_key + 1 < load->conf->keys.n ? c->scan_key + 1 : 0;
	if (--c->scan_left == 0 && load->phase < APP_LOAD_COOLDOWN)
		load->counts.scans++;
}

/** The next operation of a load with scans. A get that was put off comes again. */
static inline void
app_load_scan_draw(struct app_load *load, struct app_load_client *c, struct app_load_call *call)
{
	call->op = CRPC_KV_GET;
	call->reads = false;
	if (c->scan_left != 0 && !c->put_off)
		app_load_scan_step(load, c);
	c->put_off = false;
	if (c->scan_left == 0) {
		app_load_draw(load->conf, c, call, true);
		if (call->op != CRPC_KV_GET || call->reads)
			return;
		c->scan_key = call->key;
		c->scan_left =
			1 + (uint32_t)((crpc_random(&c->rng) >> 32) * load->conf->scan >> 32);
	}
	call->key = c->scan_key;
}

#endif
