/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_KV_PROTO_H
#define CRPC_KV_PROTO_H

/**
 * @file
 * The key-value messages, the same between client and daemon (ipc) and between daemons (copyrpc,
 * and flux within a rank); doc/protocol/benchkv_kv.md is their manual.
 *
 *     request    0 op  1 flags 2 key_len (16)   4 value_len (32)   8 key, then extras, then value
 *     response   0 status  1 op  2 zero (16)    4 value_len (32)   8 version (64)   16 value
 *
 * Little endian. With 8-byte keys and values a request has 24 bytes, and so has a response: either
 * fits the one cache line of an ipc message. A daemon passes both on to another daemon as they are.
 *
 * A request may have extras of 8 bytes each, one per flag: KV_EXPECT makes a put or a delete depend
 * on the version that the key has (compare-and-swap), KV_TTL ends a value's life.
 *
 * A message with a value above KV_VALUE_INLINE has the same bytes, in a block of shared memory.
 *
 * Every successful put or delete gets a version from the owner's counter, which never goes back; a
 * response carries the version of what it read or wrote, and "not found" carries the counter
 * itself. So the versions that one client sees of one key never decrease.
 */

#include <errno.h>
#include <string.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

#define KV_KEY_MIN   8
#define KV_KEY_MAX   64
#define KV_VALUE_MIN 8
#define KV_VALUE_MAX (1u << 20)
/** A larger value is stored in a block, and its messages travel in blocks (crpc_kv_blocks.h). */
#define KV_VALUE_INLINE 4096
/** Bytes of a message in an ipc slot, at most. */
#define KV_REQ_MAX   (sizeof(struct kv_req_hdr) + KV_KEY_MAX + KV_EXTRAS_MAX + KV_VALUE_INLINE)
#define KV_RESP_MAX  (sizeof(struct kv_resp_hdr) + KV_VALUE_INLINE)
/** And of one in a block. */
#define KV_REQ_LARGE (sizeof(struct kv_req_hdr) + KV_KEY_MAX + KV_EXTRAS_MAX + KV_VALUE_MAX)

/** What is asked. */
enum kv_op {
	KV_GET = 1,
	KV_PUT = 2,
	KV_DELETE = 3,
	KV_INFO = 4, /**< No key, no value; answered by the nearest daemon with struct kv_info. */
	KV_PING = 5, /**< Between daemons: are you there. */
	KV_STOP = 6, /**< Between daemons: the run was interrupted, stop. */
};

/** Flags of a request; each adds 8 bytes between the key and the value, in this order. */
#define KV_EXPECT 0x1u /**< Put, delete: only if the key has this version; 0: if it is not there. */
#define KV_TTL    0x2u /**< Put: milliseconds until the value is gone, 1 to KV_TTL_MAX_MS. */
#define KV_FLAGS  (KV_EXPECT | KV_TTL)
#define KV_EXTRAS_MAX 16
/** Two weeks and more: times are 32 bits of milliseconds. */
#define KV_TTL_MAX_MS (1u << 30)

/** What is answered. */
enum kv_status {
	KV_OK = 0,
	KV_NOT_FOUND = 1,
	KV_BAD_REQUEST = 2, /**< Malformed, or a key that this daemon does not own. */
	KV_NO_SPACE = 3,    /**< The store is full. */
	KV_MISMATCH = 4,    /**< The key has another version: this one, with this value. */
};

/** Head of a request. */
struct kv_req_hdr {
	uint8_t op;
	uint8_t flags;
	uint16_t key_len;
	uint32_t value_len;
};

/** Head of a response. */
struct kv_resp_hdr {
	uint8_t status;
	uint8_t op;
	uint16_t zero;
	uint32_t value_len;
	uint64_t version;
};

/** Daemons of one rank, and of all ranks, at most. */
#define KV_DAEMONS_MAX 32
#define KV_OWNERS_MAX  4096

/** Value of the answer to KV_INFO: what a client that knows nothing must know. */
struct kv_info {
	uint32_t ranks;
	uint32_t rank;
	uint32_t daemons; /**< Of each rank. */
	uint32_t daemon;  /**< Which of this rank's answers. */
	uint32_t keys; /**< Of all ranks. */
	uint32_t key_size;
	uint32_t value_size;
	/** A writer id that no other connected client has; 0: none is left. */
	uint32_t writer;
	uint32_t writers;   /**< Writer ids are below this. */
	uint32_t preloaded; /**< 1: every key exists until somebody deletes it. */
	/** From 1 on: the writer id had other holders, whose values may still be there. */
	uint32_t generation;
};

_Static_assert(
	__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are used as they lie in memory");
_Static_assert(sizeof(struct kv_req_hdr) == 8, "wire format");
_Static_assert(offsetof(struct kv_req_hdr, key_len) == 2, "wire format");
_Static_assert(offsetof(struct kv_req_hdr, value_len) == 4, "wire format");
_Static_assert(sizeof(struct kv_resp_hdr) == 16, "wire format");
_Static_assert(offsetof(struct kv_resp_hdr, value_len) == 4, "wire format");
_Static_assert(offsetof(struct kv_resp_hdr, version) == 8, "wire format");
_Static_assert(sizeof(struct kv_info) == 44, "wire format");
_Static_assert(KV_RESP_MAX <= CRPC_IPC_MSG_MAX && KV_REQ_MAX <= CRPC_IPC_MSG_MAX, "fits ipc");

/** What the extras of a request say. */
struct kv_extras {
	uint64_t expect; /**< KV_EXPECT. */
	uint64_t ttl_ms; /**< KV_TTL. */
};

/** A request taken apart. The key and value pointers are into the message. */
struct kv_req {
	uint8_t op;
	uint8_t flags;
	uint32_t key_len;
	uint32_t value_len;
	const uint8_t *key;
	const uint8_t *value;
	struct kv_extras extras; /**< Set if there are flags. */
};

/** Hash of a key of 8 to 64 bytes: chooses the owner and the bucket in its store. */
static inline uint32_t
kv_hash(const void *key, uint32_t len)
{
	const uint8_t *p = (const uint8_t *)key;
	uint64_t h = len, w;

	for (; len > 8; p += 8, len -= 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	/* The last 8 bytes; they overlap the word before where len is no multiple of 8. */
	memcpy(&w, p + len - 8, 8);
	h = (h ^ w) * UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return (uint32_t)(h >> 32);
}

/**
 * The daemon that owns a key: number rank * daemons + daemon of all owners.
 *
 * @param hash
 *   kv_hash() of the key.
 * @param owners
 *   Daemons of all ranks.
 */
static inline uint32_t
kv_owner(uint32_t hash, uint32_t owners)
{
	return (uint32_t)(((uint64_t)hash * owners) >> 32);
}

/** How an operation travels from its client's daemon to the key's owner. */
enum kv_path {
	KV_LOCAL,     /**< Not at all: the client's daemon owns it. */
	KV_FORWARDED, /**< By flux to another daemon of the rank. */
	KV_REMOTE,    /**< By copyrpc to another rank. */
	KV_PATHS,
};

/**
 * The path to an owner, without a branch.
 *
 * @param owner
 *   Its number.
 * @param home
 *   The daemon that the client is connected to.
 * @param first, daemons
 *   The daemons of its rank.
 */
static inline enum kv_path
kv_path(uint32_t owner, uint32_t home, uint32_t first, uint32_t daemons)
{
	return (enum kv_path)((owner != home) + (owner - first >= daemons));
}

/** Write key number @p id as @p len bytes. Different ids give different keys. */
static inline void
kv_key_write(void *key, uint32_t len, uint64_t id)
{
	uint8_t *p = (uint8_t *)key;
	uint64_t w = id;

	if (crpc_likely(len == 8)) {
		memcpy(p, &w, 8);
		return;
	}
	for (; len > 8; p += 8, len -= 8) {
		memcpy(p, &w, 8);
		w = (w + 1) * UINT64_C(0x9e3779b97f4a7c15);
	}
	memcpy(p, &w, len);
}

/** Head of a plain get with a key of 8 bytes. */
#define KV_QUICK_GET (KV_GET | UINT64_C(8) << 16)

/** kv_hash() of a key of 8 bytes. */
static inline uint32_t
kv_hash8(uint64_t key)
{
	uint64_t h = (8 ^ key) * UINT64_C(0xff51afd7ed558ccd);

	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return (uint32_t)(h >> 32);
}

/** Write a request's head; the key and the value follow it. @return bytes of the whole request. */
static inline uint32_t
kv_req_write(void *msg, enum kv_op op, uint32_t key_len, uint32_t value_len)
{
	uint64_t head = (uint64_t)op | (uint64_t)key_len << 16 | (uint64_t)value_len << 32;

	memcpy(msg, &head, sizeof(head));
	return (uint32_t)sizeof(head) + key_len + value_len;
}

/**
 * The same with extras, which are written behind the key; the value follows them.
 *
 * @param msg
 *   The request.
 * @param op, key_len, value_len
 *   As kv_req_write().
 * @param flags
 *   KV_EXPECT, KV_TTL.
 * @param expect, ttl_ms
 *   Used as the flags say.
 */
static inline uint32_t
kv_req_write_with(void *msg, enum kv_op op, uint32_t key_len, uint32_t value_len, uint32_t flags,
	uint64_t expect, uint64_t ttl_ms)
{
	uint32_t len = kv_req_write(msg, op, key_len, value_len);
	uint8_t *p = (uint8_t *)msg + sizeof(struct kv_req_hdr) + key_len;

	((uint8_t *)msg)[1] = (uint8_t)flags;
	if (flags & KV_EXPECT) {
		memcpy(p, &expect, 8);
		p += 8;
		len += 8;
	}
	if (flags & KV_TTL) {
		memcpy(p, &ttl_ms, 8);
		len += 8;
	}
	return len;
}

/** Write a response's head; the value follows it. */
static inline void
kv_resp_write(void *msg, uint32_t status, uint32_t op, uint64_t value_len, uint64_t version)
{
	uint64_t head[2] = {status | op << 8 | value_len << 32, version};

	memcpy(msg, head, sizeof(head));
}

/** A request that is not plain, for kv_req_read(): it has extras, or is none. */
int crpc_kv_req_read_rare(const void *msg, uint32_t len, struct kv_req_hdr hdr, struct kv_req *req);

/**
 * Take a request apart. The head is copied once; its lengths are checked against the message's.
 *
 * @return
 *   0, or -EBADMSG.
 */
static inline int
kv_req_read(const void *msg, uint32_t len, struct kv_req *req)
{
	struct kv_req_hdr hdr;

	if (crpc_unlikely(len < sizeof(hdr)))
		return -EBADMSG;
	memcpy(&hdr, msg, sizeof(hdr));
	if (crpc_unlikely(hdr.key_len > KV_KEY_MAX || hdr.value_len > KV_VALUE_MAX ||
		    len != sizeof(hdr) + hdr.key_len + hdr.value_len || hdr.flags != 0))
		return crpc_kv_req_read_rare(msg, len, hdr, req);
	req->op = hdr.op;
	req->flags = 0;
	req->key_len = hdr.key_len;
	req->value_len = hdr.value_len;
	req->key = (const uint8_t *)msg + sizeof(hdr);
	req->value = req->key + hdr.key_len;
	return 0;
}

/**
 * Take a response apart.
 *
 * @return
 *   0, or -EBADMSG.
 */
static inline int
kv_resp_read(const void *msg, uint32_t len, struct kv_resp_hdr *hdr, const uint8_t **value)
{
	uint32_t value_len = len - (uint32_t)sizeof(*hdr);

	if (crpc_unlikely(value_len > KV_VALUE_MAX)) /* or it is too short for a head */
		return -EBADMSG;
	memcpy(hdr, msg, sizeof(*hdr));
	if (crpc_unlikely(hdr->value_len != value_len))
		return -EBADMSG;
	*value = (const uint8_t *)msg + sizeof(*hdr);
	return 0;
}

CRPC_END_DECLS

#endif
