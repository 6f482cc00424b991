/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_KV_H
#define CRPC_KV_H

/**
 * @file
 * A client of the key-value service: keys and values of any process, without an EAL.
 *
 *     your process                       daemon of this host            daemons of other hosts
 *     crpc_kv_put(kv, ...)   -- ipc -->  its keys: served at once
 *     crpc_kv_poll(kv, ...)  <-- ipc --  others': passed on   -- copyrpc -->  the owner
 *
 * Order of calls:
 *
 *     kv = crpc_kv_connect(&conf)                         kvd --name NAME runs
 *     crpc_kv_put(kv, key, value, len, NULL, cookie)      asks; many may be open at once
 *     crpc_kv_get(kv, key, cookie)
 *     n = crpc_kv_poll(kv, done, 64)                      what was answered
 *     crpc_kv_wait(kv, &done)                             or: the answer of the only call
 *     crpc_kv_close(kv)
 *
 * Keys all have the size that the service was started with, values up to the size that it was
 * started with, 8 bytes at least and 1 MiB at most (crpc_kv_info()). A value above 4 KiB is copied
 * into a block of the daemon's memory, which then is where it is stored. One copy of each key
 * exists, at its owner; what is acknowledged is seen by every get that begins afterwards, of any
 * client. Calls of one client that are open together are not ordered among themselves.
 *
 * Versions: every change of a key gets a number that its owner has not given before. A put or
 * delete can be made to depend on it (struct crpc_kv_how), which is compare-and-swap:
 *
 *     get key -> value, version  ->  change the value  ->  put if the version is still that one
 *                    ^                                                       |
 *                    +---------------------- -ESTALE ------------------------+
 *
 * A scan gives all keys, owner after owner, in no order (crpc_kv_scan()). A key that exists during
 * the whole scan is given exactly once; one that comes or goes meanwhile is given or not, and one
 * that is deleted and put again may be given twice.
 *
 * Threads: an object belongs to one thread; have one for each. Nothing here allocates or makes a
 * system call but connect and close, and those of crpc_ipc_client_poll() and crpc_kv_wait(), which
 * yields the core. Ownership: keys and values are the caller's again when a call returns; the
 * bytes of a completion are readable until the next poll() or wait().
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "crpc_kv_proto.h"

CRPC_BEGIN_DECLS

/** Whom to connect to. Zero it, then set what is wanted. */
struct crpc_kv_conf {
	const char *name;         /**< Of its segment: kvd --name. */
	const char *dir;          /**< Where its segment is; NULL: /dev/shm. */
	uint32_t connect_ms;      /**< Wait so long for it to come up. */
	uint64_t call_timeout_us; /**< Deadline of each call; 0: 2 s. */
	/** Connect to services of this user, too, not only of our own and root; 0: no other. */
	uid_t trust_uid;
};

/** What a put or a delete depends on, and how long a value lives. */
struct crpc_kv_how {
	bool if_version;  /**< Only if the key's version is this one: */
	uint64_t version; /**< as a get reports it; 0: only if the key is not there. */
	uint32_t ttl_ms;  /**< Put: milliseconds until the value is gone; 0: it stays. */
};

/** One finished call. */
struct crpc_kv_done {
	uint64_t cookie;   /**< As given to the call. */
	/**
	 * 0.
	 * -ENOENT: the key is not there; also of a put or delete that depends on a version.
	 * -ESTALE: it has another version, which is given, with the value.
	 * -ENOSPC: the store is full.
	 * -ENOMEM, -ENOBUFS: the daemon has no room now for a large value on its way; nothing was
	 * changed.
	 * -EINVAL: the service refuses the request: sizes, or a key that it does not own.
	 * -EHOSTUNREACH: the rank that owns the key is lost; it was not asked any more.
	 * -EHOSTDOWN: that rank was lost before it answered; the change may have been made.
	 * -ETIMEDOUT: no answer in time; the change may have been made, or be made yet.
	 * -ECONNRESET: the daemon has gone; likewise.
	 * -EPROTO: the answer is none, or its value is larger than value_size.
	 */
	int32_t status;
	uint32_t len;      /**< Of the value: a get, -ESTALE. */
	const void *value;
	uint64_t version;  /**< Of what was read or written. */
};

/** Where a scan stands: zeroed it is at the begin. */
struct crpc_kv_scan {
	uint32_t owner; /**< Whose keys come next; crpc_kv_owners(): the scan is complete. */
	uint64_t next;  /**< Cursor of crpc_kv_scan(); 0 for the first keys of an owner. */
};

/** One key of a scan. */
struct crpc_kv_item {
	const void *key;    /**< key_size bytes, until the next call of scan(). */
	uint64_t version;   /**< As a get would give it. */
	uint32_t value_len; /**< Bytes of its value, which a get gives. */
	uint32_t ttl_ms;    /**< Milliseconds until the value is gone; 0: it stays. */
};

struct crpc_kv;

/**
 * Connect to a service.
 *
 * @param conf
 *   Which.
 * @return
 *   The client, or NULL with errno: EINVAL, and those of crpc_ipc_client_connect(): ENOENT,
 *   ECONNREFUSED, EACCES (also: it is the service of a user that is not trusted), EUSERS (all
 *   its places are taken), EPROTO (also: no key-value service), ETIMEDOUT, ENOMEM. The cause is in
 *   crpc_log_last().
 */
struct crpc_kv *crpc_kv_connect(const struct crpc_kv_conf *conf);

/** Disconnect; open calls are forgotten. NULL is fine. */
void crpc_kv_close(struct crpc_kv *kv);

struct crpc_ipc_client;

/**
 * Ask the daemon of a connection for what it is; for programs that write their messages themselves.
 *
 * @param c
 *   The connection, with no calls open.
 * @param trust_uid
 *   As crpc_kv_owner_check().
 * @param timeout_us
 *   As crpc_ipc_client_call_sync().
 * @param info
 *   Filled with values that are in range; each call gives another writer id.
 * @return
 *   0, or -errno of crpc_kv_owner_check() and crpc_ipc_client_call_sync(), or -EPROTO: it is no
 *   service of this version.
 */
int crpc_kv_info_ask(struct crpc_ipc_client *c, uid_t trust_uid, uint64_t timeout_us,
	struct kv_info *info);

/** Sizes of the service: key_size, value_size; ranks and daemons. */
const struct kv_info *crpc_kv_info(const struct crpc_kv *kv);

/** Daemons of all ranks: each owns a part of the keys. */
uint32_t crpc_kv_owners(const struct crpc_kv *kv);

/** Calls that may be open at a time. */
uint32_t crpc_kv_depth(const struct crpc_kv *kv);

/**
 * Ask for a value.
 *
 * @param kv
 *   The client.
 * @param key
 *   key_size bytes.
 * @param cookie
 *   Comes back with the completion.
 * @return
 *   0: it completes exactly once, by poll() or wait(). -EAGAIN: depth() calls are open, nothing was
 *   taken. -ECONNRESET, -EPROTO: final for this object.
 */
int crpc_kv_get(struct crpc_kv *kv, const void *key, uint64_t cookie);

/**
 * Write a value.
 *
 * @param kv
 *   The client.
 * @param key
 *   key_size bytes.
 * @param value
 *   The value.
 * @param len
 *   Its bytes, 8 to value_size.
 * @param how
 *   What it depends on; NULL: nothing, and it stays.
 * @param cookie
 *   Comes back with the completion.
 * @return
 *   As crpc_kv_get(), or -EINVAL: len, or ttl_ms above CRPC_KV_TTL_MAX_MS. Of a value above
 *   CRPC_KV_VALUE_INLINE also -EAGAIN while all blocks are in use, and -ENOSPC if no call is open
 *   that could give one back.
 */
int crpc_kv_put(struct crpc_kv *kv, const void *key, const void *value, uint32_t len,
	const struct crpc_kv_how *how, uint64_t cookie);

/**
 * Take a key out.
 *
 * @param kv, key, cookie
 *   As crpc_kv_put().
 * @param how
 *   What it depends on; NULL: nothing.
 * @return
 *   As crpc_kv_get(), or -EINVAL: how has a ttl_ms.
 */
int crpc_kv_delete(
	struct crpc_kv *kv, const void *key, const struct crpc_kv_how *how, uint64_t cookie);

/**
 * Take completions, in order of answer.
 *
 * @param kv
 *   The client.
 * @param done
 *   Filled from the front.
 * @param n
 *   Room in it; at most CRPC_BURST_MAX are taken.
 * @return
 *   How many; 0 is normal.
 */
uint16_t crpc_kv_poll(struct crpc_kv *kv, struct crpc_kv_done *done, uint16_t n);

/**
 * Poll until one call is answered; yields the core at every empty poll. Every call has a deadline,
 * so it ends.
 *
 * @param kv
 *   The client.
 * @param done
 *   The completion.
 * @return
 *   Its status, or -EINVAL: no call is open.
 */
int crpc_kv_wait(struct crpc_kv *kv, struct crpc_kv_done *done);

/**
 * Take the next keys of a scan: one request of bounded work. Waits for its answer as wait() does.
 *
 * @param kv
 *   The client, without open calls.
 * @param at
 *   Where the scan stands; moved on if the return value is not negative.
 * @param item
 *   Filled from the front.
 * @param n
 *   Room in it; fewer are given, as many as fit an answer.
 * @return
 *   How many were given; 0 is normal, the scan is complete when at->owner is crpc_kv_owners().
 *   -EBUSY: calls are open. -EOPNOTSUPP: the service has another version, without scans. -EPROTO:
 *   what was answered is none. Or a status of struct crpc_kv_done: -EHOSTUNREACH, -EHOSTDOWN,
 *   -ETIMEDOUT, -ECONNRESET; a scan of all others continues with the next owner and zeros. On an
 *   error *at is as it was.
 */
int crpc_kv_scan(
	struct crpc_kv *kv, struct crpc_kv_scan *at, struct crpc_kv_item *item, uint16_t n);

/**
 * Read the counters of one owner.
 *
 * @param kv
 *   The client, without open calls.
 * @param owner
 *   Which, below crpc_kv_owners().
 * @param stat
 *   Filled, as enum kv_stat says; counters that the service does not have are 0.
 * @return
 *   0, -EINVAL: there is no such owner, or as crpc_kv_scan().
 */
int crpc_kv_stats(struct crpc_kv *kv, uint32_t owner, uint64_t stat[CRPC_KV_STATS_N]);

CRPC_END_DECLS

#endif
