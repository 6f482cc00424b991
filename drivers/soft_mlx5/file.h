/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_FILE_H
#define SOFT_MLX5_FILE_H

/**
 * @file
 * The descriptors that stand for files of the kernel's RDMA side: device nodes, completion
 * channels, asynchronous event queues.
 *
 * A descriptor number proves nothing: the program may have closed it behind our back (dup2, a
 * syscall of its own) and have something else there now. So a file is known by its inode, and
 * the number is a hint that is checked, except in sm_file_at(), which poll loops use.
 *
 * Life: sm_file_add() when the descriptor is made; close() of the last descriptor of the inode
 * (preload.c calls sm_file_closed()) calls release. In a forked child the files exist, their
 * objects are dead (uverbs.c); a child made by vfork shares our memory, and what it closes is
 * not closed here: see pid.
 *
 * Locks: the files lock guards the list and is held for a few instructions, never across a call
 * of the NIC, which opens and looks at files of its own through preload.c. Whoever drives
 * devices that it found in the list holds the drive lock (progress.h). Order: context, drive,
 * files, nic; who holds the drive lock only tries a context's.
 */

#include <pthread.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

#define SM_FD_MAX 65536 /**< Descriptors above it cannot be files of ours: open says EMFILE. */

enum sm_file_kind {
	SM_FILE_DEVICE,
	SM_FILE_COMP,
	SM_FILE_ASYNC,
	SM_FILE_CM, /**< The connection manager's node (cm.h). */
};

struct sm_file {
	enum sm_file_kind kind;
	int fd; /**< A descriptor of the program that shows this inode. */
	dev_t dev;
	ino_t ino;
	pid_t pid; /**< The process that may release it. */
	LIST_ENTRY(sm_file) link;
	/** Whether a descriptor with this inode shows the file; NULL: the inode is of it alone. */
	bool (*is_shown_by)(const struct sm_file *file, int fd);
	/** The last descriptor is gone. Called without the files lock. */
	void (*release)(struct sm_file *file);
};

extern struct sm_file *_Atomic sm_file_table[SM_FD_MAX];
extern _Atomic uint32_t sm_file_count;

/** Whatever is registered for @p fd, unchecked; for poll loops. NULL if nothing. */
static inline struct sm_file *
sm_file_at(int fd)
{
	if (crpc_unlikely((unsigned int)fd >= SM_FD_MAX))
		return NULL;
	return crpc_load_acquire(&sm_file_table[fd]); /* A1 pairs with R1 in sm_file_add */
}

/**
 * Register @p file under @p fd; kind and release are set by the caller.
 *
 * @return
 *   0, EMFILE (the number is above SM_FD_MAX), or what fstat() said.
 */
int sm_file_add(struct sm_file *file, int fd);

/** The file that @p fd shows now, also by a duplicate; NULL if none of ours. */
struct sm_file *sm_file_find(int fd);

/** The file that @p fd shows, whose fstat() is @p st, or NULL. */
struct sm_file *sm_file_by_stat(int fd, const struct stat *st);

/** close(@p fd) was done for a registered number: release the file if no descriptor is left. */
void sm_file_closed(int fd);

LIST_HEAD(sm_files, sm_file);
extern struct sm_files sm_files; /**< Under the files lock. */
extern pthread_mutex_t sm_files_lock;

/** Whether the peer of a Unix socket is a process of the same user. */
bool sm_is_own_user(int fd);

/** In a forked child: files belong to it from now on, and the lock is free. */
void sm_files_fork_child(void);

#endif
