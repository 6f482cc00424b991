/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SNAPSHOT_H
#define KV_SNAPSHOT_H

/**
 * @file
 * A store in a file: what a run ended with, for the next one to start with. One file per daemon,
 * named after its number among all owners; doc/protocol/benchkv_snapshot.md has the format.
 *
 *     kv_snapshot_claim(&snap)          at the start: PATH.OWNER.new is ours
 *     kv_snapshot_write(&snap, store)   at the end, also in a child of the process that claimed
 *     kv_snapshot_release(&snap)
 *
 * The file is written beside its place and then renamed to it, so there is either the old one or
 * the new one. The file beside it is locked from the claim on: of two runs with one path the second
 * is refused. What a run left there that was killed is removed by the next claim or read. All of a
 * file is checked before any key of it is taken.
 */

#include <stdio.h>

#include "store.h"

/** Which store it is: a file of another one is refused. */
struct kv_snapshot {
	const char *path; /**< Of all of them; ".<owner>" is put behind it. */
	uint32_t owner;
	uint32_t owners;
	uint32_t key_size;
	uint32_t key_min; /**< As the store's. */
	uint32_t key_mix; /**< Which numbers have keys of which size: any hash of it. */
	FILE *fresh;      /**< What is written, open and locked; NULL: it is not claimed. */
};

/**
 * Make the file that will be written, and lock it.
 *
 * @return
 *   0, or -errno, with the cause in crpc_log_last(): -EBUSY (a run that lives has it), -ENOENT (no
 *   such folder), -EACCES.
 */
int kv_snapshot_claim(struct kv_snapshot *snap);

/** Remove what was not written, and unlock; what is not claimed is fine. */
void kv_snapshot_release(struct kv_snapshot *snap);

/**
 * Write a store to the file that was claimed, if none of the processes that share the claim has.
 *
 * @return
 *   Keys written, or -errno; the cause is in crpc_log_last().
 */
int64_t kv_snapshot_write(const struct kv_snapshot *snap, const struct kv_store *s);

/**
 * Fill an empty store.
 *
 * @return
 *   Keys read, or -errno, with the cause in crpc_log_last(): -ENOENT (no such file), -EBADMSG (cut
 *   short, changed, or none at all), -EPROTO (another version), -EXDEV (of another store: key size,
 *   number of daemons), -ENOSPC (more keys, or larger values, than the store takes), -EBUSY (a run
 *   writes a newer one now), -EIO.
 */
int64_t kv_snapshot_read(const struct kv_snapshot *snap, struct kv_store *s);

#endif
