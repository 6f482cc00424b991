/* SPDX-License-Identifier: BSD-3-Clause */
/* What a loop of clients goes through: made, joined by clients, measured, stopped, gone. */
#include <stdlib.h>

#include "app_load.h"

int
app_load_init(struct app_load *load, const struct app_load_conf *conf, uint32_t n)
{
	load->conf = conf;
	load->extras = conf->cas || conf->ttl_ms != 0 || conf->value_size > CRPC_KV_VALUE_INLINE;
	load->plain = !load->extras && !(conf->gap_ns > 0) && !conf->latest && !conf->rmw &&
		conf->scan == 0 && app_sizes_fixed(&conf->sizes);
	for (enum kv_op op = CRPC_KV_GET; op <= CRPC_KV_DELETE; op++)
		load->form[op].len = kv_req_write(&load->form[op].head, op, conf->key_size,
			op == CRPC_KV_PUT ? conf->value_size : 0);
	/* A get's value is written too: see call_draw_plain(). */
	load->room = (uint32_t)sizeof(struct kv_req_hdr) + conf->key_size +
		(uint32_t)crpc_max(conf->value_size, 8u);
	load->answer = (uint32_t)(sizeof(struct kv_resp_hdr) +
		crpc_min(crpc_max(conf->value_size, 8u), CRPC_KV_VALUE_INLINE));
	if (n == 0)
		return 0;
	load->client = aligned_alloc(CRPC_CACHE_GUARD, n * sizeof(*load->client));
	if (load->client == NULL)
		return -ENOMEM;
	memset(load->client, 0, n * sizeof(*load->client));
	load->n = n;
	return 0;
}

int
app_load_join(struct app_load *load, uint32_t i, const struct crpc_ipc_client_conf *to,
	uint32_t conns, uint32_t home, uint32_t writer)
{
	const struct app_load_conf *conf = load->conf;
	struct app_load_client *c = &load->client[i];

	c->home = home;
	c->number = i;
	load->plain &= conns <= 1;
	/* By a draw, which also makes its steps: a multiple of those would be another's stream. */
	c->rng = conf->seed * UINT64_C(0xd6e8feb86659fd93) + writer;
	c->rng = crpc_random(&c->rng);
	for (uint32_t k = 0; k < conf->depth; k++)
		c->free[c->free_n++] = (uint8_t)(conf->depth - 1 - k);
	if (app_verify_init(&c->verify, conf->verify ? conf->keys.n : 1, conf->value_size, writer,
		    conf->writers, conf->may_miss) != 0)
		return -ENOMEM;
	c->verify.sizes = &conf->sizes;
	c->verify.may_refuse = conf->may_refuse;
	for (uint32_t k = 0; k < conns; k++) {
		c->ipc[k] = crpc_ipc_client_connect(&to[k]);
		if (c->ipc[k] == NULL)
			return -errno;
		c->arena[k] = to[k].arena;
		c->conns++;
	}
	c->own = c->ipc[0];
	return 0;
}

void
app_load_record(struct app_load *load, struct app_records *records)
{
	load->records = records;
	load->plain = false;
}

void
app_load_fini(struct app_load *load)
{
	for (uint32_t k = 0; k < CRPC_KV_DAEMONS_MAX; k++)
		if (load->blocks[k].cache != NULL) /* The thread that ran the loop had it. */
			crpc_arena_hand_over(load->blocks[k].cache);
	for (uint32_t i = 0; i < load->n; i++) {
		for (uint32_t k = 0; k < load->client[i].conns; k++)
			crpc_ipc_client_close(load->client[i].ipc[k]);
		app_verify_fini(&load->client[i].verify);
	}
	free(load->client);
	for (uint32_t k = 0; k < CRPC_KV_DAEMONS_MAX; k++)
		crpc_kv_blocks_close(&load->blocks[k]);
	load->client = NULL;
	load->n = 0;
}

void
app_load_measure(struct app_load *load, uint64_t now)
{
	load->counts = (struct app_load_counts){0};
	load->measure_from = now;
	load->phase = APP_LOAD_MEASURE;
}

void
app_load_freeze(struct app_load *load, uint64_t now)
{
	if (load->phase == APP_LOAD_WARMUP)
		app_load_measure(load, now);
	load->counts.window_ns = now - load->measure_from;
	for (uint32_t i = 0; i < load->n; i++)
		if (load->client[i].due_ns != 0 && load->client[i].due_ns < now)
			load->counts.lag_ns =
				crpc_max(load->counts.lag_ns, now - load->client[i].due_ns);
	load->phase = APP_LOAD_COOLDOWN;
}

void
app_load_stop(struct app_load *load, uint64_t now)
{
	if (load->phase < APP_LOAD_COOLDOWN)
		app_load_freeze(load, now);
	load->phase = APP_LOAD_STOPPED;
}

void
app_words_add(void *sum, const void *from, size_t bytes, int sign)
{
	const uint64_t *f = from;
	uint64_t *to = sum;

	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] += (uint64_t)(int64_t)sign * f[i];
}

void
app_load_counts_add(struct app_load_counts *sum, const struct app_load_counts *from)
{
	/* What stands before the window's length are words. */
	app_words_add(sum, from, offsetof(struct app_load_counts, window_ns), 1);
	for (uint32_t i = 0; i < CRPC_KV_PATHS; i++)
		crpc_hist_merge(&sum->lat[i], &from->lat[i]);
	sum->window_ns = crpc_max(sum->window_ns, from->window_ns);
	sum->lag_ns = crpc_max(sum->lag_ns, from->lag_ns);
}
