/* SPDX-License-Identifier: BSD-3-Clause */
/* What a loop of clients goes through: made, joined by clients, measured, stopped, gone. */
#include <stdlib.h>

#include "backend.h"
#include "client.h"

int
kv_loop_init(struct kv_loop *loop, const struct kv_work *work, uint32_t n)
{
	enum kv_op op;

	loop->work = work;
	loop->with = work->cas || work->ttl_ms != 0 || work->value_size > KV_VALUE_INLINE;
	loop->plain = !loop->with && !(work->gap_ns > 0) && !work->latest && !work->rmw &&
		work->scan == 0 && kv_sizes_fixed(&work->sizes) && kv_sizes_fixed(&work->key_sizes);
	for (op = KV_GET; op <= KV_DELETE; op++)
		loop->form[op].len = kv_req_write(&loop->form[op].head, op, work->key_size,
			op == KV_PUT ? work->value_size : 0);
	/* A get's value is written too: see call_draw_plain(). */
	loop->room = (uint32_t)sizeof(struct kv_req_hdr) + work->key_size +
		(uint32_t)crpc_max(work->value_size, 8u);
	loop->answer = (uint32_t)(sizeof(struct kv_resp_hdr) +
		crpc_min(crpc_max(work->value_size, 8u), KV_VALUE_INLINE));
	if (n == 0)
		return 0;
	loop->client = aligned_alloc(CRPC_CACHE_GUARD, n * sizeof(*loop->client));
	if (loop->client == NULL)
		return -ENOMEM;
	memset(loop->client, 0, n * sizeof(*loop->client));
	loop->n = n;
	return 0;
}

int
kv_loop_join(struct kv_loop *loop, uint32_t i, const struct crpc_ipc_client_conf *conf,
	uint32_t conns, uint32_t home, uint32_t writer)
{
	const struct kv_work *work = loop->work;
	struct kv_client *c = &loop->client[i];
	uint32_t k;

	c->home = home;
	c->number = i;
	loop->plain &= conns <= 1;
	/* By a draw, which also makes its steps: a multiple of those would be another's stream. */
	c->rng = work->seed * UINT64_C(0xd6e8feb86659fd93) + writer;
	c->rng = crpc_random(&c->rng);
	for (k = 0; k < work->qd; k++)
		c->free[c->free_n++] = (uint8_t)(work->qd - 1 - k);
	if (kv_history_init(&c->history, work->verify ? work->keys.n : 1, work->value_size, writer,
		    work->writers, work->may_miss) != 0)
		return -ENOMEM;
	c->history.sizes = &work->sizes;
	c->history.restored = work->restored;
	c->history.may_refuse = work->may_refuse;
	for (k = 0; k < conns; k++) {
		c->ipc[k] = crpc_ipc_client_connect(&conf[k]);
		if (c->ipc[k] == NULL)
			return -errno;
		c->arena[k] = conf[k].arena;
		c->conns++;
	}
	c->own = c->ipc[0];
	return 0;
}

void
kv_loop_fini(struct kv_loop *loop)
{
	uint32_t i, k;

	for (k = 0; k < KV_DAEMONS_MAX; k++)
		if (loop->blocks[k].cache != NULL) /* The thread that ran the loop had it. */
			crpc_arena_hand_over(loop->blocks[k].cache);
	for (i = 0; i < loop->n; i++) {
		for (k = 0; k < loop->client[i].conns; k++)
			crpc_ipc_client_close(loop->client[i].ipc[k]);
		kv_history_fini(&loop->client[i].history);
	}
	free(loop->client);
	for (k = 0; k < KV_DAEMONS_MAX; k++)
		crpc_kv_blocks_close(&loop->blocks[k]);
	loop->client = NULL;
	loop->n = 0;
}

void
kv_loop_measure(struct kv_loop *loop, uint64_t now)
{
	loop->counts = (struct kv_counts){0};
	loop->measure_from = now;
	loop->phase = KV_MEASURE;
}

void
kv_loop_freeze(struct kv_loop *loop, uint64_t now)
{
	uint32_t i;

	if (loop->phase == KV_WARMUP)
		kv_loop_measure(loop, now);
	loop->counts.window_ns = now - loop->measure_from;
	for (i = 0; i < loop->n; i++)
		if (loop->client[i].due_ns != 0 && loop->client[i].due_ns < now)
			loop->counts.lag_ns = crpc_max(
				loop->counts.lag_ns, now - loop->client[i].due_ns);
	loop->phase = KV_COOLDOWN;
}

void
kv_loop_stop(struct kv_loop *loop, uint64_t now)
{
	if (loop->phase < KV_COOLDOWN)
		kv_loop_freeze(loop, now);
	loop->phase = KV_STOPPED;
}

void
kv_loop_send_stop(struct kv_loop *loop, uint64_t now)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t i, len = kv_req_write(msg, KV_STOP, 0, 0);

	for (i = 0; i < loop->work->owners && !loop->passes; i++)
		loop->link->backend->call(loop->link, now, i, msg, len, sizeof(struct kv_resp_hdr),
			KV_COOKIE_NONE);
}
