/* SPDX-License-Identifier: BSD-3-Clause */
#include "kv_walk.h"

void
__crpc_kv_walk_count(const struct crpc_kv_daemon *d, uint64_t word[CRPC_KV_STATS_N])
{
	const uint64_t *store = __crpc_kv_store_stats(d->store);
	struct crpc_ipc_server_stats ipc = {0};

	if (d->front == NULL)
		crpc_ipc_server_stats(d->ipc, &ipc);
	/* What the one counts the other does not. */
	for (uint32_t i = 0; i < CRPC_KV_STATS_N; i++)
		word[i] = d->stats.stat[i] + store[i];
	word[CRPC_KV_STAT_KEYS] = __crpc_kv_store_count(d->store);
	word[CRPC_KV_STAT_CLIENTS] = ipc.clients;
	word[CRPC_KV_STAT_OPEN] = ipc.open;
	word[CRPC_KV_STAT_WAITING] = (d->hop == NULL ? 0 : d->hop->wait.waiting) +
		(d->net == NULL ? 0 : d->net->wait.waiting);
	word[CRPC_KV_STAT_VERSION] = __crpc_kv_store_version(d->store);
}

/* @return bytes of the words from *cursor on that fit; *cursor is the next one, 0: none. */
static uint32_t
stats(const struct crpc_kv_daemon *d, uint64_t *cursor, uint8_t *to, uint32_t max)
{
	uint64_t word[CRPC_KV_STATS_N], from = crpc_min(*cursor, CRPC_KV_STATS_N);
	uint32_t n = (uint32_t)crpc_min(CRPC_KV_STATS_N - from, max / sizeof(word[0]));

	__crpc_kv_walk_count(d, word);
	memcpy(to, word + from, n * sizeof(word[0]));
	*cursor = from + n < CRPC_KV_STATS_N ? from + n : 0;
	return n * (uint32_t)sizeof(word[0]);
}

/* The same with the keys of some places. */
static uint32_t
scan(const struct crpc_kv_daemon *d, uint64_t *cursor, uint8_t *to, uint32_t max)
{
	uint32_t one = (uint32_t)sizeof(struct kv_scan_item) + d->key_size, len = 0;
	uint64_t at = crpc_min(*cursor, UINT32_MAX),
		 end = (at / CRPC_KV_SCAN_PLACES + 1) * CRPC_KV_SCAN_PLACES;
	struct kv_item item;
	int found = 0;

	for (; at < end && max - len >= one; at++) {
		found = __crpc_kv_store_slot(d->store, (uint32_t)at, &item);
		if (found < 0)
			break;
		if (found == 0)
			continue;
		memcpy(to + len,
			&(struct kv_scan_item){.version = item.version,
				.value_len = item.len,
				.ttl_ms = item.ttl_ms},
			sizeof(struct kv_scan_item));
		memcpy(to + len + sizeof(struct kv_scan_item), item.key, d->key_size);
		len += one;
	}
	*cursor = found < 0 ? 0 : at;
	return len;
}

uint32_t
__crpc_kv_walk_owner(const struct crpc_req *r, uint32_t *room)
{
	struct kv_walk walk;

	if (crpc_kv_walk_read(r->data, r->len, &walk) == 0)
		return UINT32_MAX;
	*room = walk.room - (uint32_t)sizeof(struct kv_resp_hdr);
	return walk.owner;
}

uint32_t
__crpc_kv_walk_serve(
	const struct crpc_kv_daemon *d, const struct crpc_req *r, void *msg, uint32_t max)
{
	uint8_t *value = (uint8_t *)msg + sizeof(struct kv_resp_hdr);
	enum kv_status status = CRPC_KV_OK;
	struct kv_walk walk;
	uint8_t op = crpc_kv_walk_read(r->data, r->len, &walk);
	uint32_t len = 0;

	if (op == 0 || walk.owner != d->self)
		return 0;
	max = (uint32_t)crpc_min(max, walk.room) - (uint32_t)sizeof(struct kv_resp_hdr);
	if (op == CRPC_KV_STATS && max >= sizeof(uint64_t))
		len = stats(d, &walk.cursor, value, max);
	else if (op == CRPC_KV_SCAN && max >= sizeof(struct kv_scan_item) + d->key_size)
		len = scan(d, &walk.cursor, value, max);
	else
		status = CRPC_KV_BAD_REQUEST;
	kv_resp_write(msg, status, op, len, status == CRPC_KV_OK ? walk.cursor : 0);
	return (uint32_t)sizeof(struct kv_resp_hdr) + len;
}
