/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_kv_proto.h"

/* The next extra; its bytes are the client's, and are loaded once. */
static uint64_t
extra(struct kv_req *req)
{
	uint64_t word;

	memcpy(&word, req->value, 8);
	req->value += 8;
	return word;
}

int
crpc_kv_req_read_rare(const void *msg, uint32_t len, struct kv_req_hdr hdr, struct kv_req *req)
{
	uint32_t expect = hdr.flags & CRPC_KV_EXPECT ? 8 : 0, ttl = hdr.flags & CRPC_KV_TTL ? 8 : 0;

	if (hdr.key_len > CRPC_KV_KEY_MAX || hdr.value_len > CRPC_KV_VALUE_MAX ||
		(hdr.flags & ~CRPC_KV_FLAGS) ||
		len != sizeof(hdr) + hdr.key_len + expect + ttl + hdr.value_len)
		return -EBADMSG;
	if ((expect != 0 && hdr.op != CRPC_KV_PUT && hdr.op != CRPC_KV_DELETE) ||
		(ttl != 0 && hdr.op != CRPC_KV_PUT))
		return -EBADMSG;
	*req = (struct kv_req){.op = hdr.op,
		.flags = hdr.flags,
		.key_len = hdr.key_len,
		.value_len = hdr.value_len,
		.key = (const uint8_t *)msg + sizeof(hdr)};
	req->value = req->key + hdr.key_len;
	if (expect != 0)
		req->extras.expect = extra(req);
	if (ttl != 0)
		req->extras.ttl_ms = extra(req);
	if (ttl != 0 && (req->extras.ttl_ms == 0 || req->extras.ttl_ms > CRPC_KV_TTL_MAX_MS))
		return -EBADMSG;
	return 0;
}

uint8_t
crpc_kv_walk_read(const void *msg, uint32_t len, struct kv_walk *walk)
{
	struct kv_req req;

	if (kv_req_read(msg, len, &req) != 0 ||
		(req.op != CRPC_KV_SCAN && req.op != CRPC_KV_STATS) || req.flags != 0 ||
		req.key_len != 0 || req.value_len != sizeof(*walk))
		return 0;
	memcpy(walk, req.value, sizeof(*walk));
	walk->room = (uint32_t)crpc_min(walk->room, CRPC_KV_RESP_MAX);
	return walk->room < sizeof(struct kv_resp_hdr) ? 0 : req.op;
}

const char *
crpc_kv_stat_name(enum kv_stat stat)
{
	/* in the order of the enum */
	static const char *const names[] = {"keys", "capacity", "local", "forwarded", "remote",
		"of_daemons", "of_ranks", "failed", "bad", "gets", "puts", "deletes", "misses",
		"refused", "mismatches", "expired", "clients", "open", "waiting", "version",
		"block_bytes"};
	_Static_assert(CRPC_DIM(names) == CRPC_KV_STATS_N, "every counter has a name");

	return names[stat];
}
