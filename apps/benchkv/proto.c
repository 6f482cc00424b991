/* SPDX-License-Identifier: BSD-3-Clause */
#include "proto.h"

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
kv_req_extras(struct kv_req *req, uint32_t left)
{
	uint32_t expect = req->flags & KV_EXPECT ? 8 : 0, ttl = req->flags & KV_TTL ? 8 : 0;

	if ((req->flags & ~KV_FLAGS) != 0 || left != expect + ttl)
		return -EBADMSG;
	if ((expect != 0 && req->op != KV_PUT && req->op != KV_DELETE) ||
		(ttl != 0 && req->op != KV_PUT))
		return -EBADMSG;
	req->expect = expect != 0 ? extra(req) : 0;
	req->ttl_ms = ttl != 0 ? extra(req) : 0;
	if (ttl != 0 && (req->ttl_ms == 0 || req->ttl_ms > KV_TTL_MAX_MS))
		return -EBADMSG;
	return 0;
}
