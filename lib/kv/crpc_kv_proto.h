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
 * A request may have extras of 8 bytes each, one per flag: CRPC_KV_EXPECT makes a put or a delete
 * depend on the version that the key has (compare-and-swap), CRPC_KV_TTL ends a value's life.
 *
 * A message with a value above CRPC_KV_VALUE_INLINE has the same bytes, in a block of shared
 * memory.
 *
 * Every successful put or delete gets a version from the owner's counter, which never goes back; a
 * response carries the version of what it read or wrote, and "not found" carries the counter
 * itself. So the versions that one client sees of one key never decrease.
 *
 * CRPC_KV_SCAN and CRPC_KV_STATS are walks: each request names an owner and a cursor, each answer
 * has what fits and, as its version, the cursor of the next request. A key has one place as long as
 * it exists, and a scan goes through the places: a key that exists from the first request to the
 * last answer is given exactly once. One that comes or goes meanwhile is given or not; one that is
 * deleted and put again may be given twice. What is given stood there when its answer was made.
 */

#include <errno.h>
#include <string.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

#define CRPC_KV_KEY_MIN   8
#define CRPC_KV_KEY_MAX   64
#define CRPC_KV_VALUE_MIN 8
#define CRPC_KV_VALUE_MAX (1u << 20)
/** A larger value is stored in a block, and its messages travel in blocks (crpc_kv_blocks.h). */
#define CRPC_KV_VALUE_INLINE 4096
/** Bytes of a message in an ipc slot, at most. */
#define CRPC_KV_REQ_MAX                                                                            \
	(sizeof(struct kv_req_hdr) + CRPC_KV_KEY_MAX + CRPC_KV_EXTRAS_MAX + CRPC_KV_VALUE_INLINE)
#define CRPC_KV_RESP_MAX (sizeof(struct kv_resp_hdr) + CRPC_KV_VALUE_INLINE)

/** What is asked. */
enum kv_op {
	CRPC_KV_GET = 1,
	CRPC_KV_PUT = 2,
	CRPC_KV_DELETE = 3,
	/** No key, no value; answered by the nearest daemon with struct kv_info. */
	CRPC_KV_INFO = 4,
	/* 5 asked another daemon whether it is there. */
	CRPC_KV_STOP = 6,  /**< Between daemons: the run was interrupted, stop. */
	CRPC_KV_SCAN = 7,  /**< The keys of one owner, some at a time: struct kv_walk. */
	CRPC_KV_STATS = 8, /**< The counters of one owner, likewise: 64-bit words. */
};

/* Flags of a request; each adds 8 bytes between the key and the value, in this order. */
/** Put, delete: only if the key has this version; 0: if it is not there. */
#define CRPC_KV_EXPECT     0x1u
/** Put: milliseconds until the value is gone, 1 to CRPC_KV_TTL_MAX_MS. */
#define CRPC_KV_TTL        0x2u
#define CRPC_KV_FLAGS      (CRPC_KV_EXPECT | CRPC_KV_TTL)
#define CRPC_KV_EXTRAS_MAX 16
/** Two weeks and more: times are 32 bits of milliseconds. */
#define CRPC_KV_TTL_MAX_MS (1u << 30)

/** What is answered. */
enum kv_status {
	CRPC_KV_OK = 0,
	CRPC_KV_NOT_FOUND = 1,
	CRPC_KV_BAD_REQUEST = 2, /**< Malformed, or a key that this daemon does not own. */
	CRPC_KV_NO_SPACE = 3,    /**< The store is full. */
	CRPC_KV_MISMATCH = 4,    /**< The key has another version: this one, with this value. */
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

/** Value of a CRPC_KV_SCAN or CRPC_KV_STATS, which has no key. It is passed on to its owner. */
struct kv_walk {
	uint32_t owner;
	uint32_t room; /**< Bytes of the answer at most, with its head. */
	uint64_t cursor; /**< 0 at first, then the version of the answer, until that is 0. */
};

/** One of the items that are the value of the answer to CRPC_KV_SCAN. The key follows. */
struct kv_scan_item {
	uint64_t version;
	uint32_t value_len;
	uint32_t ttl_ms; /**< Milliseconds until the value is gone; 0: it stays. */
};

/**
 * Places of a store that one CRPC_KV_SCAN looks at, at most: it ends at a multiple of them. This
 * bounds a daemon's turn.
 */
#define CRPC_KV_SCAN_PLACES 256
/** Every ipc of a service takes answers of this size: an item with the longest key fits. */
#define CRPC_KV_RESP_ROOM 120

/**
 * Words of the answer to CRPC_KV_STATS; crpc_kv_stat_name(). Later versions add some at the end.
 */
enum kv_stat {
	CRPC_KV_STAT_KEYS,       /**< Now. */
	CRPC_KV_STAT_CAPACITY,   /**< Keys at most. */
	CRPC_KV_STAT_LOCAL,      /**< Requests of its clients that it served itself. */
	CRPC_KV_STAT_FORWARDED,  /**< That it passed to another daemon of the rank. */
	CRPC_KV_STAT_REMOTE,     /**< That it passed to another rank. */
	CRPC_KV_STAT_OF_DAEMONS, /**< Requests of other daemons of the rank. */
	CRPC_KV_STAT_OF_RANKS,   /**< Requests of other ranks. */
	CRPC_KV_STAT_FAILED,     /**< Requests that ended with an error. */
	CRPC_KV_STAT_BAD,        /**< Malformed requests. */
	CRPC_KV_STAT_GETS,
	CRPC_KV_STAT_PUTS,
	CRPC_KV_STAT_DELETES,
	CRPC_KV_STAT_MISSES,
	CRPC_KV_STAT_REFUSED,     /**< Puts without room. */
	CRPC_KV_STAT_MISMATCHES,  /**< Puts and deletes whose key had another version. */
	CRPC_KV_STAT_EXPIRED,     /**< Keys whose life ended. */
	CRPC_KV_STAT_CLIENTS,     /**< Connected now. */
	CRPC_KV_STAT_OPEN,        /**< Requests of clients that wait for an answer now. */
	CRPC_KV_STAT_WAITING,     /**< Requests that wait for room towards another daemon now. */
	CRPC_KV_STAT_VERSION,     /**< The newest that it gave out. */
	CRPC_KV_STAT_BLOCK_BYTES, /**< Of the blocks of values above CRPC_KV_VALUE_INLINE. */
	CRPC_KV_STATS_N,
};

/** Daemons of one rank, and of all ranks, at most. */
#define CRPC_KV_DAEMONS_MAX 32
#define CRPC_KV_OWNERS_MAX  4096

/** Value of the answer to CRPC_KV_INFO: what a client that knows nothing must know. */
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
	uint32_t zero;
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
_Static_assert(
	sizeof(struct kv_walk) == 16 && offsetof(struct kv_walk, cursor) == 8, "wire format");
_Static_assert(sizeof(struct kv_scan_item) == 16 && offsetof(struct kv_scan_item, ttl_ms) == 12,
	"wire format");
_Static_assert(sizeof(struct kv_resp_hdr) + sizeof(struct kv_scan_item) + CRPC_KV_KEY_MAX <=
			CRPC_KV_RESP_ROOM &&
		sizeof(struct kv_resp_hdr) + sizeof(struct kv_info) <= CRPC_KV_RESP_ROOM,
	"fit the room");
_Static_assert(
	CRPC_KV_RESP_MAX <= CRPC_IPC_MSG_MAX && CRPC_KV_REQ_MAX <= CRPC_IPC_MSG_MAX, "fits ipc");

/** What the extras of a request say. */
struct kv_extras {
	uint64_t expect; /**< CRPC_KV_EXPECT. */
	uint64_t ttl_ms; /**< CRPC_KV_TTL. */
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
	CRPC_KV_LOCAL,     /**< Not at all: the client's daemon owns it. */
	CRPC_KV_FORWARDED, /**< By flux to another daemon of the rank. */
	CRPC_KV_REMOTE,    /**< By copyrpc to another rank. */
	CRPC_KV_PATHS,
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
 *   CRPC_KV_EXPECT, CRPC_KV_TTL.
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
	if (flags & CRPC_KV_EXPECT) {
		memcpy(p, &expect, 8);
		p += 8;
		len += 8;
	}
	if (flags & CRPC_KV_TTL) {
		memcpy(p, &ttl_ms, 8);
		len += 8;
	}
	return len;
}

/** Write a request of a walk. @return its bytes. */
static inline uint32_t
kv_walk_write(void *msg, enum kv_op op, uint32_t owner, uint32_t room, uint64_t cursor)
{
	struct kv_walk walk = {.owner = owner, .room = room, .cursor = cursor};
	uint32_t len = kv_req_write(msg, op, 0, sizeof(walk));

	memcpy((uint8_t *)msg + sizeof(struct kv_req_hdr), &walk, sizeof(walk));
	return len;
}

/**
 * Read a request of a walk, each byte once.
 *
 * @return
 *   CRPC_KV_SCAN or CRPC_KV_STATS; 0: it is none.
 */
uint8_t crpc_kv_walk_read(const void *msg, uint32_t len, struct kv_walk *walk);

/** Name of a counter, one of CRPC_KV_STATS_N. */
const char *crpc_kv_stat_name(enum kv_stat stat);

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
	if (crpc_unlikely(hdr.key_len > CRPC_KV_KEY_MAX || hdr.value_len > CRPC_KV_VALUE_MAX ||
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

	if (crpc_unlikely(value_len > CRPC_KV_VALUE_MAX)) /* or it is too short for a head */
		return -EBADMSG;
	memcpy(hdr, msg, sizeof(*hdr));
	if (crpc_unlikely(hdr->value_len != value_len))
		return -EBADMSG;
	*value = (const uint8_t *)msg + sizeof(*hdr);
	return 0;
}

CRPC_END_DECLS

#endif
