/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_KV_BLOCKS_H
#define CRPC_KV_BLOCKS_H

/**
 * @file
 * Blocks for the messages of benchkv that are too large for ipc: the arena that a daemon shares
 * with its clients, in a segment beside the one of its ipc, called as that with ".values" behind.
 *
 *     daemon                                             client
 *     crpc_kv_blocks_create(&b, name, bytes, ...)        crpc_kv_blocks_attach(&b, dir, name, ms)
 *     b.cache in the ipc server's conf                   b.cache in the ipc client's conf
 *                             crpc_kv_blocks_close(&b)
 *
 * A message that has more than CRPC_KV_REQ_MAX (CRPC_KV_RESP_MAX) bytes is the content of a block,
 * and 8 bytes beside the block's ref say how many bytes it has: crpc_kv_block_read() looks at them
 * once, and holds them against the block's size. Whoever may attach the segment can write all of
 * it: what a block says is checked as what stands in an ipc message is.
 *
 * Threads: create and close, attach and close by anybody; `cache` belongs to one thread.
 */

#include <string.h>

#include "crpc_arena.h"
#include "crpc_ipc.h"

CRPC_BEGIN_DECLS

/** A thread's membership of an arena, and what it holds open for it. */
struct crpc_kv_blocks {
	struct crpc_shm *owned;    /**< The daemon's. */
	struct crpc_shm *attached; /**< A client's. */
	struct crpc_arena *arena;
	struct crpc_arena_cache *cache; /**< NULL: there are no blocks. */
	bool shared;                    /**< arena is another object's of this process. */
};

/**
 * Make an arena, and join it.
 *
 * @param b
 *   Filled.
 * @param name
 *   Of the daemon's ipc.
 * @param bytes
 *   Of all blocks.
 * @param block
 *   Bytes of the largest message.
 * @param members
 *   Threads that join, with this one.
 * @param mode, gid
 *   As struct crpc_shm_conf has them.
 * @return
 *   0, or -errno of crpc_shm_create() and crpc_arena_format(); the cause is in crpc_log_last().
 */
int crpc_kv_blocks_create(struct crpc_kv_blocks *b, const char *name, uint64_t bytes,
	uint64_t block, uint32_t members, mode_t mode, gid_t gid);

/** Join the arena of a daemon of this process. @return 0 or -errno of crpc_arena_join(). */
int crpc_kv_blocks_join(struct crpc_kv_blocks *b, const struct crpc_kv_blocks *of);

/**
 * Join the arena of a daemon of another process.
 *
 * @param b
 *   Filled.
 * @param dir, name
 *   Of the daemon's ipc.
 * @param timeout_ms
 *   Wait so long for it to come up.
 * @param trust_uid
 *   As crpc_kv_owner_check().
 * @return
 *   0, or -errno of crpc_shm_attach(), crpc_kv_owner_check(), crpc_arena_attach() and
 *   crpc_arena_join().
 */
int crpc_kv_blocks_attach(struct crpc_kv_blocks *b, const char *dir, const char *name,
	uint32_t timeout_ms, uid_t trust_uid);

/**
 * Whether a service that this user owns is one to talk to: any user can take a name that is free,
 * to get what clients send. Root may use all.
 *
 * @param owner
 *   The user.
 * @param trust_uid
 *   One whose services are used, beside those of our own user and root; 0: none.
 * @return
 *   0 or -EACCES.
 */
int crpc_kv_owner_check(uid_t owner, uid_t trust_uid);

/** Leave; what was allocated is freed. The ipc that uses it is closed before. Zeroed is fine. */
void crpc_kv_blocks_close(struct crpc_kv_blocks *b);

/**
 * Find a message in the block that it came in.
 *
 * @param block
 *   The block.
 * @param data, len
 *   The bytes beside it; replaced by the message's.
 * @return
 *   False: they do not say a length that the block has.
 */
static inline bool
crpc_kv_block_read(const struct crpc_ipc_block *block, const void **data, uint32_t *len)
{
	uint64_t bytes;

	if (*len != sizeof(bytes))
		return false;
	memcpy(&bytes, *data, sizeof(bytes)); /* once */
	if (bytes > block->size || bytes > UINT32_MAX)
		return false;
	*data = block->data;
	*len = (uint32_t)bytes;
	return true;
}

/** Replace completions that came with a block by the messages in them; no message: no bytes. */
void crpc_kv_blocks_answers(const struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n);

CRPC_END_DECLS

#endif
