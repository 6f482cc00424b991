/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHM_PRIVATE_H
#define SHM_PRIVATE_H

/** @file What the files of lib/shm share. */

#include <sys/stat.h>

#include "crpc_shm.h"

/** The byte whose lock says that the owner lives. */
#define SHM_OWNER_BYTE 0
/** The byte that who removes a leftover locks, so that there is one. */
#define SHM_REMOVE_BYTE (CRPC_SHM_USERS_LAST + 1)
/** What a reader could not map anyway; keeps sums from wrapping. */
#define SHM_SIZE_LIMIT (UINT64_C(1) << 46)
/** The kind of a door, and the version of struct shm_door. */
#define SHM_DOOR_KIND    CRPC_SHM_KIND('D', 'O', 'O', 'R')
#define SHM_DOOR_VERSION 1
/** A memfd's socket is named like its door, with this behind. */
#define SHM_SOCK_SUFFIX ".sock"
#define SHM_SOCK_MAX    (CRPC_SHM_PATH_MAX + sizeof(SHM_SOCK_SUFFIX))
#define SHM_DEFAULT_DIR "/dev/shm"

/** What stands in the file of a memfd's name: for tools, and to tell that there is a socket. */
struct shm_door {
	struct crpc_shm_header hdr; /**< As the segment's, but kind SHM_DOOR_KIND. */
	uint64_t size;              /**< Of the memory. */
	uint32_t kind;              /**< The segment's. */
	uint32_t kind_version;
	uint32_t page_size; /**< Of the memory. */
	uint8_t reserved[108];
};

_Static_assert(sizeof(struct shm_door) == 256, "door version 1");
_Static_assert(offsetof(struct shm_door, size) == 128, "door version 1");

/** "CRPCANS1": what the owner sends to who connects, with a descriptor if status is 0. */
#define SHM_ANSWER_MAGIC UINT64_C(0x31534e4143505243)

struct shm_answer {
	uint64_t magic;
	uint32_t version; /**< SHM_DOOR_VERSION. */
	uint32_t status;  /**< 0, or an errno. */
	uint64_t size;    /**< Of the memory. */
	uint64_t incarnation;
};

_Static_assert(sizeof(struct shm_answer) == 32, "door version 1");

struct crpc_shm {
	struct crpc_shm_header *hdr; /**< Start of the mapping. */
	uint64_t size;               /**< Bytes mapped. */
	uint64_t page_size;
	int fd; /**< Never holds a lock itself: it asks for those of others. */
	_Atomic uint32_t refs;
	bool memfd;
	uid_t uid; /**< Who made it: crpc_shm_owner_uid(). */
	dev_t dev; /**< Of the file at the path: it may come to name another. */
	ino_t ino;
	struct crpc_shm_lock *owner; /**< The owner's lock; NULL in others. */
	struct crpc_shm_lock *name;  /**< memfd: the owner's lock of the door. */
	int listen_fd;               /**< memfd: the owner's socket; else -1. */
	int accept_errno;            /**< Its last accept's: what lasts is said once. */
	pid_t pid;                   /**< The owner's process: not a child that it forked. */
	struct crpc_shm_allow allow; /**< Points to what follows. */
	uid_t uids[CRPC_SHM_ALLOW_MAX];
	gid_t gids[CRPC_SHM_ALLOW_MAX];
	char path[CRPC_SHM_PATH_MAX];
};

/** Check a segment's name. 0 or -EINVAL, said. */
int __crpc_shm_name_check(const char *name);

/** The same, not said. */
bool __crpc_shm_name_ok(const char *name);

/** Path of the first hugetlbfs mount. 0, or -ENOENT (not said). */
int __crpc_shm_huge_dir(char *dir, size_t len);

/** Write "dir/crpc.name". 0 or -EINVAL, said. */
int __crpc_shm_path(char *path, size_t len, const char *dir, const char *name);

/** Write the path of the socket beside a door; @p sock has SHM_SOCK_MAX bytes. */
void __crpc_shm_sock_path(char *sock, const char *path);

/** True if @p path names the file that @p st describes. */
bool __crpc_shm_same_file(const char *path, dev_t dev, ino_t ino);

/**
 * Create the file at @p path under the owner's lock, replacing a leftover.
 *
 * @return
 *   A descriptor whose description holds the lock, or -errno, said.
 */
int __crpc_shm_file_create(const char *path, mode_t mode);

/** Whether the file may be removed: empty, cut off before its magic, or a segment. Fills @p h. */
bool __crpc_shm_is_ours(int fd, const struct stat *st, struct crpc_shm_header *h);

/** Remove what a dead owner left at @p path: crpc_shm_remove(). -EBUSY is not said. */
int __crpc_shm_leftover_remove(const char *path);

/** Set the page size of the file's file system; 0, or -errno, said: it has no huge pages, ... */
int __crpc_shm_check_fs(struct crpc_shm *seg, int fd, bool huge);

/** Map seg->size bytes of seg->fd. 0 or -errno, said. */
int __crpc_shm_map(struct crpc_shm *seg);

/** Say that a field is not what it must be. -EPROTO. */
int __crpc_shm_wrong(
		const struct crpc_shm *seg, const char *field, uint64_t expected, uint64_t found);

/** Lock @p byte through @p fd's description. 0 or -errno; -EAGAIN if somebody else holds it. */
int __crpc_shm_fd_lock(int fd, uint32_t byte);

/**
 * Lock the owner's byte against owners without being one: attach() and others who ask for the
 * owner's life see no lock. 0 or -errno; -EAGAIN if the owner lives.
 */
int __crpc_shm_fd_bar(int fd);

/** 1 if somebody other than @p fd's description holds @p byte, 0 if not, or -errno. */
int __crpc_shm_fd_locked(int fd, uint32_t byte);

/** How many of the bytes from @p first to @p last somebody else holds, or -errno. */
int __crpc_shm_fd_locks(int fd, uint32_t first, uint32_t last);

/** Hand the locks of @p fd's description to a mapping, and close @p fd. NULL: errno, @p fd open. */
struct crpc_shm_lock *__crpc_shm_lock_hold(int fd, uint64_t page_size);

/** A new description of the file behind @p fd, which needs no name. Descriptor or -errno. */
int __crpc_shm_fd_reopen(int fd);

/** Memory without a name, not sized yet. Descriptor or -errno, said. */
int __crpc_shm_memfd(const char *name, bool huge);

/** Fix a memfd's size for ever. 0 or -errno, said. */
int __crpc_shm_seal(const struct crpc_shm *seg);

/** Fill the door behind @p fd, and listen beside it. 0 or -errno, said. */
int __crpc_shm_door_open(struct crpc_shm *seg, int fd);

/** Tell the door's readers that the segment is in @p state. */
void __crpc_shm_door_state(const struct crpc_shm *seg, uint32_t state);

/** Remove the socket and stop listening. Does nothing if there is none. */
void __crpc_shm_door_close(struct crpc_shm *seg);

/** Remove a socket that has no door, unless somebody listens. The caller holds the name. */
int __crpc_shm_sock_remove(const char *path);

/** True if a socket stands beside @p path. */
bool __crpc_shm_door_there(const char *path);

/**
 * Tell whether @p path is a door with its socket.
 *
 * @param uid
 *   Set to whose it is, if it is one.
 * @return
 *   1, 0 (it is something else), or -errno: -ENOENT if nothing is there.
 */
int __crpc_shm_door_find(const char *path, uid_t *uid);

/**
 * Get the descriptor of a memfd from its owner's socket, into seg->fd.
 *
 * @param uid
 *   Who must listen.
 * @return
 *   0; -ENOENT, -ECONNREFUSED, -EAGAIN (not said: waiting may cure it), or -errno, said.
 */
int __crpc_shm_door_fetch(struct crpc_shm *seg, uid_t uid, uint64_t wait_ms);

/**
 * Take the owner's answer from a connected socket: the descriptor, checked, into seg->fd.
 *
 * @return
 *   0; -EINPROGRESS (nothing there yet), -ECONNREFUSED (not said), or -errno, said.
 */
int __crpc_shm_door_receive(struct crpc_shm *seg, int sock);

#endif
