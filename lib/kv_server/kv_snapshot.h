/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_SNAPSHOT_H
#define KV_SNAPSHOT_H

/**
 * @file
 * A store in a file: what a run ended with, for the next one to start with. One file per daemon,
 * named after its number among all owners; doc/protocol/benchkv_snapshot.md has the format.
 *
 *     claim(&snap)          PATH.OWNER.new is ours
 *     write(&snap)          what may wait for the disk: the begin of the file, what was copied
 *     copy(&snap, store)    the keys as they are; write() again
 *     commit(&snap)         made lasting, renamed; a child of the process that claimed may do both
 *     release(&snap)
 *
 * The file is written beside its place and then renamed to it, so there is either the old one or
 * the new one. The file beside it is locked from the claim on: of two runs with one path the second
 * is refused. What a run left there that was killed is removed by the next claim or read. All of a
 * file is checked before any key of it is taken.
 */

#include <limits.h>
#include <stdio.h>

#include "kv_store.h"

/** Which store it is: a file of another one is refused. */
struct kv_snapshot {
	const char *path; /**< Of all of them; ".<owner>" is put behind it. */
	uint32_t owner;
	uint32_t owners;
	uint32_t key_size;
	char name[PATH_MAX], fresh_name[PATH_MAX]; /**< Of the two files; set by claim and read. */
	uint64_t generation; /**< Of what was read or copied last; 0: nothing was. */
	FILE *fresh;         /**< What is written, open and locked; NULL: it is not claimed. */
	void *buffer;        /**< Of it. */
	bool begun, copied;
	bool claimed; /**< Since the last begin: the next write() begins the file. */
	uint32_t at;  /**< While it is copied: the store's next place. */
	uint64_t items, bytes, newest; /**< What is in the file. */
};

/**
 * Make the file that will be written, and lock it; again, once it was written.
 *
 * @return
 *   0, or -errno, with the cause in crpc_log_last(): -EBUSY (a run that lives has it), -ENOENT (no
 *   such folder), -EACCES.
 */
int __crpc_kv_snapshot_claim(struct kv_snapshot *snap);

/** Remove what was not written, and unlock; what is not claimed is fine. */
void __crpc_kv_snapshot_release(struct kv_snapshot *snap);

/** Begin the file, or write what was copied. @return 0 or -errno, as copy(). */
int __crpc_kv_snapshot_write(struct kv_snapshot *snap);

/**
 * Copy a store for the file that was claimed, if no process that shares the claim has committed it.
 *
 * @param places
 *   Look at so many of the store's places and return: the next call continues there. Requests may
 *   be served between two calls.
 * @return
 *   Keys written; -EAGAIN: there are more places; or another -errno, with the cause in
 *   crpc_log_last().
 */
int64_t __crpc_kv_snapshot_copy(struct kv_snapshot *snap, struct kv_store *s, uint32_t places);

/** Make it lasting and give it its name. @return 0 or -errno, as copy(). */
int __crpc_kv_snapshot_commit(struct kv_snapshot *snap);

/**
 * Fill an empty store.
 *
 * @return
 *   Keys read, or -errno, with the cause in crpc_log_last(): -ENOENT (no such file), -EBADMSG (cut
 *   short, changed, or none at all), -EPROTO (another version), -EXDEV (of another store: key size,
 *   number of daemons), -ENOSPC (more keys, or larger values, than the store takes), -EBUSY (a run
 *   writes a newer one now), -EIO.
 */
int64_t __crpc_kv_snapshot_read(struct kv_snapshot *snap, struct kv_store *s);

#endif
