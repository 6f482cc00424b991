/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SHM_H
#define CRPC_SHM_H

/**
 * @file
 * Named shared-memory segments with one owner, whose life the kernel vouches for.
 *
 *     owner                                     any other process
 *     seg = crpc_shm_create(&conf)
 *     ... lays its part out ...
 *     crpc_shm_ready(seg)        <-- then -->   seg = crpc_shm_attach(dir, name, kind, ...)
 *                                               crpc_shm_owner_alive(seg)
 *     crpc_shm_serve(seg)        <-- memfd: answers the socket
 *     crpc_shm_free(seg)                        crpc_shm_detach(seg)
 *
 * A segment is the file `DIR/crpc.NAME`: in /dev/shm (POSIX shared memory) by default, on a
 * hugetlbfs mount, or in any directory on a memory file system that the processes share, such as a
 * volume of two containers. Its space is reserved when it is created, so that no later access can
 * end in SIGBUS for want of memory.
 *
 * Or it is a memory file without a name (`memfd`). Then `DIR/crpc.NAME` is a door: one page that
 * describes the segment, and beside it `DIR/crpc.NAME.sock`, a Unix socket. The kernel reports who
 * connects; if the owner's list allows that user, it gets a descriptor of the memory. Such a
 * segment is sealed: its size cannot change any more, so truncation cannot hurt who attached.
 * The owner answers in crpc_shm_serve(), which never blocks and needs no thread; call it every few
 * milliseconds, off the datapath.
 *
 * Life. The owner holds a kernel lock on byte 0 of the file, which drops when the owner dies by
 * whatever cause, and only then: a stopped owner still lives. Pids decide nothing, so no pid
 * namespace needs to be shared. crpc_shm_create() replaces what a dead owner left behind and never
 * touches a living owner's segment. Further bytes can be locked the same way
 * (crpc_shm_lock_take()): lib/ipc gives each client one. Locks belong to a mapping that fork() does
 * not copy, so a child that outlives its parent keeps nothing alive.
 *
 * Trust. Any process that may open the file (mode 0600: the same user) may write every byte of it,
 * and may truncate it. The first is treated as hostile input everywhere; against the second only
 * the file's mode protects, or memfd. attach() checks every field of the header before it uses one.
 *
 * Threads: crpc_shm_ptr(), crpc_shm_off() and the getters are for a datapath, and for any thread
 * while the segment is attached. The rest is not for a datapath, and is called by one thread at a
 * time per segment, but for crpc_shm_ref() and crpc_shm_detach(). Nothing here needs EAL.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** "CRPCSHM1" in memory, on a little-endian machine. */
#define CRPC_SHM_MAGIC UINT64_C(0x314d485343505243)
/** Version of struct crpc_shm_header. */
#define CRPC_SHM_VERSION 1
/** Bytes of a segment's name, with the terminating zero. */
#define CRPC_SHM_NAME_MAX 48
/** Bytes of a segment's path, with the terminating zero. */
#define CRPC_SHM_PATH_MAX 256
/** Users, and groups, of an allow list. */
#define CRPC_SHM_ALLOW_MAX 32
/** Locks on bytes 1 to this are users of a segment; what is above belongs to its parts. */
#define CRPC_SHM_USERS_LAST 65535
/** Supplementary groups of a peer that are looked at. */
#define CRPC_SHM_GROUPS_MAX 64

/** What crpc_shm_header.state says. */
enum crpc_shm_state {
	CRPC_SHM_INIT = 0,   /**< The owner is laying it out. */
	CRPC_SHM_READY = 1,  /**< In use. */
	CRPC_SHM_CLOSED = 2, /**< The owner closed it in good order. */
};

/**
 * First bytes of every segment. Written by the owner before it is ready; read-only then, but for
 * state. doc/protocol/shm_segment.md shows the bytes.
 */
struct crpc_shm_header {
	uint64_t magic;         /**< CRPC_SHM_MAGIC. */
	uint32_t version;       /**< CRPC_SHM_VERSION. */
	uint32_t header_size;   /**< sizeof(struct crpc_shm_header). */
	uint64_t total_size;    /**< Bytes of the file. */
	uint32_t kind;          /**< Whose layout follows, four letters: CRPC_SHM_KIND(). */
	uint32_t kind_version;  /**< Version of that layout. */
	uint32_t owner_pid;     /**< In the owner's pid namespace: for people, not for liveness. */
	uint32_t owner_uid;     /**< Effective uid of the owner. */
	uint64_t owner_start;   /**< Start time of that pid, clock ticks since boot. */
	uint64_t incarnation;   /**< Random, new at each create. */
	_Atomic uint32_t state; /**< enum crpc_shm_state; published last, by a release store. */
	uint32_t page_size;     /**< Bytes of a page of the file system. */
	char name[CRPC_SHM_NAME_MAX];
	uint8_t reserved[16]; /**< Zero. */
};

_Static_assert(sizeof(struct crpc_shm_header) == 128, "two lines");
_Static_assert(offsetof(struct crpc_shm_header, kind) == 24, "layout version 1");
_Static_assert(offsetof(struct crpc_shm_header, incarnation) == 48, "layout version 1");
_Static_assert(offsetof(struct crpc_shm_header, state) == 56, "layout version 1");
_Static_assert(offsetof(struct crpc_shm_header, name) == 64, "layout version 1");

/** Four letters as a kind: CRPC_SHM_KIND('I', 'P', 'C', ' '). */
#define CRPC_SHM_KIND(a, b, c, d)                                                                  \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/**
 * Who may attach, beside the owner's own user and root. Numbers as the owner's namespace has them.
 */
struct crpc_shm_allow {
	const uid_t *uids;
	const gid_t *gids;  /**< A peer's group or one of its supplementary groups. */
	uint32_t uid_count; /**< At most CRPC_SHM_ALLOW_MAX. */
	uint32_t gid_count;
};

/** The peer of a Unix socket, as the kernel reports it. */
struct crpc_shm_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint32_t group_count;
	gid_t groups[CRPC_SHM_GROUPS_MAX];
};

/** What crpc_shm_create() makes. Zero it, then set what is wanted. */
struct crpc_shm_conf {
	const char *name;      /**< 1 to 47 of [A-Za-z0-9._-]. */
	const char *dir;       /**< NULL: /dev/shm, or with `huge` the first hugetlbfs mount. */
	uint64_t size;         /**< Bytes with the header; rounded up to whole pages. */
	uint32_t kind;         /**< Whose layout: CRPC_SHM_KIND(). */
	uint32_t kind_version; /**< Its version. */
	mode_t mode;           /**< Mode of the file; 0: 0600. A memfd has an allow list instead. */
	gid_t gid;             /**< Its group; 0 or (gid_t)-1: the process's. Not of a memfd. */
	bool huge;             /**< The directory must be a hugetlbfs; memfd: of 2 MiB pages. */
	bool memfd;            /**< Memory without a name, its descriptor passed over a socket. */
	bool prefault; /**< Map every page now, since Linux 5.14: first uses do not fault. */
	/** memfd: who may attach; copied. NULL: the same user and root. */
	const struct crpc_shm_allow *allow;
};

/** A segment that this process has mapped. */
struct crpc_shm;
/** A lock of this process on one byte of a segment's file. */
struct crpc_shm_lock;

/**
 * Create a segment, reserve its space, and own it. All bytes behind the header are zero.
 *
 * A leftover of the same name whose owner is dead is replaced.
 *
 * @return
 *   The segment in state INIT, or NULL with errno:
 *   EINVAL (name, size or allow list), ENOENT (no such directory; no hugetlbfs mounted),
 *   EACCES (the directory or the leftover), EADDRINUSE (a living owner has that name, or a
 *   process listens at its socket), EEXIST (a
 *   file of that name is no segment), ENOSPC (not enough shared memory or huge pages), ENOMEM,
 *   ENOTSUP (not a hugetlbfs), or what the kernel gave.
 */
struct crpc_shm *crpc_shm_create(const struct crpc_shm_conf *conf);

/** Publish it: attach() works from now on. Owner. */
void crpc_shm_ready(struct crpc_shm *seg);

/**
 * Answer those who wait at the segment's socket: at most 16 a call. Owner. Does nothing before
 * crpc_shm_ready(), and for a segment that is no memfd.
 *
 * @return
 *   How many were answered, those included that the list does not allow.
 */
uint32_t crpc_shm_serve(struct crpc_shm *seg);

/**
 * Remove the segment's names: no process attaches from now on, and another owner may take the name.
 * Who is attached stays. Owner; called by crpc_shm_free() at the latest.
 */
void crpc_shm_hide(struct crpc_shm *seg);

/**
 * Mark it closed, hide it, give the owner's lock up, and detach. Owner. In a child that the
 * owner forked it detaches, and no more. NULL is fine.
 */
void crpc_shm_free(struct crpc_shm *seg);

/**
 * Map a segment that another process (or this one) owns.
 *
 * A memfd is handed out by its owner in crpc_shm_serve(): the thread that must call it cannot
 * attach its own (crpc_shm_ref() shares it).
 *
 * @param dir
 *   As given to create; NULL looks in /dev/shm and then in the mounted hugetlbfs.
 * @param name
 *   As given to create.
 * @param kind, kind_version
 *   What the caller can read.
 * @param timeout_ms
 *   Wait so long while the answer is ENOENT, ECONNREFUSED or EAGAIN; the thread sleeps.
 * @return
 *   The segment, or NULL with errno: EINVAL (name), ENOENT (no such file), EACCES (the file's mode,
 *   or the owner's list), ECONNREFUSED (it is a leftover: its owner is dead or closed it), EAGAIN
 *   (its owner is still laying it out), EPROTO (magic, version, kind or size is not what it must
 *   be, or a memfd is not sealed: both values are said), ETIMEDOUT (a memfd's owner lives and did
 *   not serve for a second or timeout_ms, whichever is longer), EIO (a memfd's owner could not pass
 *   its memory), ENOMEM, or what the kernel gave.
 */
struct crpc_shm *crpc_shm_attach(const char *dir, const char *name, uint32_t kind,
		uint32_t kind_version, uint32_t timeout_ms);

/** Share an attached segment within this process: one more detach() is needed. Any thread. */
struct crpc_shm *crpc_shm_ref(struct crpc_shm *seg);

/** Unmap it when the last user detaches. Any thread. NULL is fine. */
void crpc_shm_detach(struct crpc_shm *seg);

/** True while the owner lives and has not closed it. One system call: not for a datapath. */
bool crpc_shm_owner_alive(const struct crpc_shm *seg);

/**
 * Who made the memory that is attached, as the kernel says: the owner of its file, or who listens
 * at a memfd's socket. Any user may take a name that is free; check this where it matters who
 * serves.
 */
uid_t crpc_shm_owner_uid(const struct crpc_shm *seg);

/** The header. Any process that may open the file may have overwritten it. */
struct crpc_shm_header *crpc_shm_header(const struct crpc_shm *seg);

/** Bytes mapped, as the kernel reported at attach: what every bounds check compares with. */
uint64_t crpc_shm_size(const struct crpc_shm *seg);

/** Path of the file. */
const char *crpc_shm_path(const struct crpc_shm *seg);

/**
 * The address of @p len bytes at offset @p off.
 *
 * @return
 *   The address, or NULL if not all of them lie in the segment.
 */
void *crpc_shm_ptr(const struct crpc_shm *seg, uint64_t off, uint64_t len);

/**
 * The offset of @p len bytes at @p ptr.
 *
 * @return
 *   0 with *off set, or -ERANGE if not all of them lie in the segment.
 */
int crpc_shm_off(const struct crpc_shm *seg, const void *ptr, uint64_t len, uint64_t *off);

/**
 * Lock byte @p byte of the segment's file for this process, until drop or death.
 *
 * @param seg
 *   The segment.
 * @param byte
 *   Any number; the byte need not exist. 0 is the owner's.
 * @return
 *   The lock, or NULL with errno: EAGAIN (it is held), ECONNREFUSED (the file at the path is
 *   gone, or another one by now), ENOMEM, or what the kernel gave.
 */
struct crpc_shm_lock *crpc_shm_lock_take(const struct crpc_shm *seg, uint32_t byte);

/** Give a lock up; in a forked child, which never had it, forget it. NULL is fine. */
void crpc_shm_lock_drop(struct crpc_shm_lock *lock);

/**
 * Whether any process, this one included, holds the lock of @p byte.
 *
 * @return
 *   1, 0, or -errno of fcntl.
 */
int crpc_shm_lock_held(const struct crpc_shm *seg, uint32_t byte);

/**
 * Count the bytes from @p first to @p last that any process, this one included, has locked. Some
 * ten system calls for each.
 *
 * @return
 *   How many, or -errno of fcntl.
 */
int crpc_shm_lock_count(const struct crpc_shm *seg, uint32_t first, uint32_t last);

/* ---- who may attach ---- */

/**
 * Get the peer of @p sock, a Unix socket, from the kernel. A peer with more supplementary groups
 * than CRPC_SHM_GROUPS_MAX is reported without them.
 *
 * @return
 *   0 or -errno of getsockopt.
 */
int crpc_shm_peer_get(int sock, struct crpc_shm_peer *peer);

/**
 * Whether @p peer may attach: it is this process's effective user, or root, or on the list.
 *
 * @param allow
 *   The list; NULL: an empty one.
 * @param peer
 *   As crpc_shm_peer_get() set it.
 * @return
 *   True if it may.
 */
bool crpc_shm_allowed(const struct crpc_shm_allow *allow, const struct crpc_shm_peer *peer);

/* ---- what is there: for tools ---- */

/** Where the bytes of a segment are. */
enum crpc_shm_medium {
	CRPC_SHM_FILE = 0,  /**< Memory file system, or a disk. */
	CRPC_SHM_HUGE = 1,  /**< hugetlbfs. */
	CRPC_SHM_MEMFD = 2, /**< Behind a door. */
};

/** crpc_shm_info.state of a file that is no segment: cut off, or another magic or version. */
#define CRPC_SHM_BROKEN UINT32_MAX

/** What can be seen of a segment from outside. */
struct crpc_shm_info {
	char name[CRPC_SHM_NAME_MAX];
	char path[CRPC_SHM_PATH_MAX];
	uint64_t size;         /**< Of the memory; memfd: as the door says. */
	uint64_t owner_start;  /**< The rest as in struct crpc_shm_header. */
	uint64_t incarnation;
	uint32_t kind;
	uint32_t kind_version;
	uint32_t owner_pid;
	uid_t uid;             /**< Who the file belongs to, as the kernel says. */
	uint32_t state;        /**< enum crpc_shm_state, or CRPC_SHM_BROKEN. */
	enum crpc_shm_medium medium;
	/** A segment, or one that was never finished; else leave it alone. */
	bool ours;
	int living;            /**< 1, 0, or -1: unknown, the file may not be opened. */
	/** Locks of others than the owner (ipc: clients), or -1: unknown. */
	int users;
};

/**
 * Look at one file of a directory, without attaching.
 *
 * @param dir
 *   The directory.
 * @param file
 *   Name of a directory's entry.
 * @param info
 *   Set on success.
 * @return
 *   0, -ENOENT (it is gone), -EINVAL (its name is no segment's, or its type is none), or what the
 *   kernel gave.
 */
int crpc_shm_inspect(const char *dir, const char *file, struct crpc_shm_info *info);

/**
 * Remove an unowned segment, and its socket. The leftover is locked meanwhile: a segment
 * that gets an owner at the same time is never the one that is removed.
 *
 * @return
 *   0 (also if it was gone already), -EADDRINUSE (a living owner), -EBUSY (another process removes
 *   it at this moment), -EEXIST (no segment of ours), -EACCES, -EINVAL (name), or what the kernel
 *   gave.
 */
int crpc_shm_remove(const char *dir, const char *name);

/**
 * Remove all unowned segments of this user whose names begin alike: for a program that
 * names its segments after itself and its pid, and may have been killed the last time.
 *
 * @param dir
 *   As given to create; NULL: /dev/shm.
 * @param prefix
 *   What the names begin with.
 * @return
 *   How many were removed, or -errno of opendir.
 */
int crpc_shm_sweep(const char *dir, const char *prefix);

CRPC_END_DECLS

#endif
