/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHM_PRIVATE_H
#define SHM_PRIVATE_H

/** @file What the files of lib/shm share. */

#include <sys/stat.h>

#include "crpc_shm.h"

/** The byte whose lock says that the owner lives. */
#define SHM_OWNER_BYTE 0

struct crpc_shm {
	struct crpc_shm_header *hdr; /**< Start of the mapping. */
	uint64_t size;               /**< Bytes mapped. */
	uint64_t page_size;
	int fd; /**< Never holds a lock itself: it asks for those of others. */
	_Atomic uint32_t refs;
	dev_t dev; /**< Of the file: a path may come to name another. */
	ino_t ino;
	struct crpc_shm_lock *owner; /**< The owner's lock; NULL in others. */
	char path[CRPC_SHM_PATH_MAX];
};

/** Check a segment's name. 0 or -EINVAL, said. */
int __crpc_shm_name_check(const char *name);

/** Path of the first hugetlbfs mount. 0, or -ENOENT (not said). */
int __crpc_shm_huge_dir(char *dir, size_t len);

/** Write "dir/crpc.name". 0 or -EINVAL, said. */
int __crpc_shm_path(char *path, size_t len, const char *dir, const char *name);

/** True if @p path names the file that @p st describes. */
bool __crpc_shm_same_file(const char *path, dev_t dev, ino_t ino);

/**
 * Create the file at @p path under the owner's lock, replacing a leftover.
 *
 * @return
 *   A descriptor whose description holds the lock, or -errno, said.
 */
int __crpc_shm_file_create(const char *path, mode_t mode);

/** Lock @p byte through @p fd's description. 0 or -errno; -EAGAIN if somebody else holds it. */
int __crpc_shm_fd_lock(int fd, uint32_t byte);

/** 1 if somebody other than @p fd's description holds @p byte, 0 if not, or -errno. */
int __crpc_shm_fd_locked(int fd, uint32_t byte);

/** Hand the locks of @p fd's description to a mapping, and close @p fd. NULL: errno, @p fd open. */
struct crpc_shm_lock *__crpc_shm_lock_hold(int fd, uint64_t page_size);

#endif
