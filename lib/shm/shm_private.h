/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHM_PRIVATE_H
#define SHM_PRIVATE_H

/**
 * @file
 * What the files of lib/shm share.
 *
 *     crpc_shm.c   another process's segment: attach, use, detach; and the texts of errors
 *     shm_owner.c  the owner's side: create, ready, free
 *     shm_file.c   names, paths, the file of a segment, leftovers, what tools see of it
 *     shm_door.c   memory without a name: the door, both ends of its socket, who may attach
 *     shm_lock.c   kernel locks that live as long as the process that took them
 *
 * Errors are logged where they are found, unless a comment here says otherwise.
 */

#include <sys/stat.h>

#include "crpc_clock.h"
#include "crpc_conf.h"
#include "crpc_shm.h"

/** The byte whose lock says that the owner lives. */
#define SHM_OWNER_BYTE 0
/** The byte that a process locks while it removes a leftover, so that there is one remover. */
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

/** The file at a memfd's name: for tools, and as a mark that there is a socket. */
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

/** "CRPCANS1": what the owner sends to its peer, with a descriptor if status is 0. */
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
	int accept_errno;            /**< Its last accept's: a lasting failure is logged once. */
	pid_t pid;                   /**< The owner's process: not a child that it forked. */
	struct crpc_shm_allow allow; /**< Points to the arrays below. */
	uid_t uids[CRPC_SHM_ALLOW_MAX];
	gid_t gids[CRPC_SHM_ALLOW_MAX];
	char path[CRPC_SHM_PATH_MAX];
};

static inline uint64_t
shm_now_ms(void)
{
	return crpc_clock_monotonic_ns() / 1000000;
}

/* ---- crpc_shm.c ---- */

/** Log "PATH: WHAT: the text of -rc". Returns @p rc, a negative errno. */
int __crpc_shm_failed(const char *path, const char *what, int rc);

/** True, and logged, if a field is not what it must be. */
bool __crpc_shm_wrong(const char *path, const char *field, uint64_t expected, uint64_t found);

/** Set the page size by the file system of seg->fd. 0 or -errno: -ENOTSUP if @p huge, and it has
 * no huge pages. */
int __crpc_shm_page_size(struct crpc_shm *seg, bool huge);

/** Map seg->size bytes of seg->fd. 0 or -errno. */
int __crpc_shm_map(struct crpc_shm *seg);

/* ---- shm_file.c ---- */

/** Path of the first hugetlbfs mount, in CRPC_SHM_PATH_MAX bytes. False, not logged: none. */
bool __crpc_shm_huge_dir(char *dir);

/** Write "dir/crpc.name" into CRPC_SHM_PATH_MAX bytes. 0, or -EINVAL if name or length is bad. */
int __crpc_shm_path(char *path, const char *dir, const char *name);

/** Write the path of the socket beside a door into SHM_SOCK_MAX bytes. */
void __crpc_shm_sock_path(char *sock, const char *path);

/** True if the file at seg->path still is the segment's. */
bool __crpc_shm_at_path(const struct crpc_shm *seg);

/** Open the file at seg->path if it still is the segment's. Descriptor, or -errno, not logged:
 * -ECONNREFUSED if it is another file, or none. */
int __crpc_shm_file_reopen(const struct crpc_shm *seg, int flags);

/**
 * Create the file at @p path under the owner's lock, replacing a leftover.
 *
 * @return
 *   A descriptor whose description holds the lock, or -errno.
 */
int __crpc_shm_file_create(const char *path, mode_t mode, gid_t gid);

/* ---- shm_lock.c ---- */

/**
 * Lock @p byte through @p fd's description: with F_WRLCK, as its holder; or with F_RDLCK the
 * owner's byte against owners without being one: attach() and others who ask whether the owner
 * lives see no lock. 0 or -errno, not logged; -EAGAIN: another holds it.
 */
int __crpc_shm_fd_lock(int fd, uint32_t byte, short type);

/** How many of the bytes from @p first to @p last other descriptions hold; -errno, not logged. */
int __crpc_shm_fd_locks(int fd, uint32_t first, uint32_t last);

/** 1 if an owner lives, 0 if not, or -errno, not logged. */
static inline int
shm_fd_owned(int fd)
{
	return __crpc_shm_fd_locks(fd, SHM_OWNER_BYTE, SHM_OWNER_BYTE);
}

/** Hand the locks of @p fd's description to a mapping, and close @p fd. NULL: errno, @p fd open. */
struct crpc_shm_lock *__crpc_shm_lock_hold(const struct crpc_shm *seg, int fd);

/* ---- shm_door.c ---- */

/** A new description of the file behind @p fd, which needs no name. -errno is not logged. */
int __crpc_shm_fd_reopen(int fd);

/** Memory without a name, not sized yet, under the owner's lock. Descriptor or -errno. */
int __crpc_shm_memfd(const char *name, bool huge);

/** Fix the size of a memfd for ever, fill the door behind @p fd, and listen beside it. 0 or
 * -errno. */
int __crpc_shm_door_open(struct crpc_shm *seg, int fd);

/** Write @p state into the door, for its readers. */
void __crpc_shm_door_state(const struct crpc_shm *seg, uint32_t state);

/** Remove the socket and stop listening. Does nothing if there is none. */
void __crpc_shm_door_close(struct crpc_shm *seg);

/** Remove a socket that has no door, unless a process listens; then listen there, if for @p seg.
 * The caller holds the name. 0 or -errno. */
int __crpc_shm_sock_take(const char *path, struct crpc_shm *seg);

/** True if a socket stands beside @p path. */
bool __crpc_shm_sock_there(const char *path);

/** True if @p path is a door with its socket, whose owner may live. Sets @p uid to whose it is. */
bool __crpc_shm_door_find(const char *path, uid_t *uid);

/**
 * Get the descriptor of a memfd from its owner's socket.
 *
 * @param uid
 *   The user who must listen.
 * @return
 *   The descriptor, checked, or -errno: -ENOENT, -ECONNREFUSED, -EAGAIN are not logged, because
 *   waiting may cure them.
 */
int __crpc_shm_door_fetch(struct crpc_shm *seg, uid_t uid, uint64_t wait_ms);

/**
 * Take the owner's answer from a connected socket.
 *
 * @return
 *   The descriptor, checked, or -errno: -EINPROGRESS (nothing there yet) and -ECONNREFUSED are not
 *   logged.
 */
int __crpc_shm_door_receive(const struct crpc_shm *seg, int sock);

#endif
