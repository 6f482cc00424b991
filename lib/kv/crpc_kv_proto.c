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
	uint32_t expect = hdr.flags & KV_EXPECT ? 8 : 0, ttl = hdr.flags & KV_TTL ? 8 : 0;

	if (hdr.key_len > KV_KEY_MAX || hdr.value_len > KV_VALUE_MAX || (hdr.flags & ~KV_FLAGS) ||
		len != sizeof(hdr) + hdr.key_len + expect + ttl + hdr.value_len)
		return -EBADMSG;
	if ((expect != 0 && hdr.op != KV_PUT && hdr.op != KV_DELETE) ||
		(ttl != 0 && hdr.op != KV_PUT))
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
	if (ttl != 0 && (req->extras.ttl_ms == 0 || req->extras.ttl_ms > KV_TTL_MAX_MS))
		return -EBADMSG;
	return 0;
}
