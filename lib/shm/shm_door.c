/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory without a name, and the door to it.
 *
 * The door is a small file at the segment's path, created and replaced like any segment, under the
 * owner's lock. Who holds that lock, and nobody else, may touch the socket beside it; that is how a
 * stale socket is told from a living one without asking it, and why two starters cannot remove each
 * other's.
 *
 * Who connects gets one message and is disconnected. It sends nothing, so there is nothing to read,
 * nothing to wait for and nothing to keep per connection. The descriptor it gets is a description
 * of its own: locks are owned by descriptions, so whatever the receiver locks dies with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_crash.h"
#include "crpc_log.h"
#include "shm_private.h"

#define SERVE_BURST 16
#define BACKLOG     128
/* A living owner that serves at all serves within this. */
#define ANSWER_MS 1000

int
__crpc_shm_fd_reopen(int fd)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

int
__crpc_shm_memfd(const char *name, bool huge)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0);
	char title[CRPC_SHM_NAME_MAX + 8];
	int fd, rc;

	snprintf(title, sizeof(title), "crpc.%.47s", name);
	fd = memfd_create(title, flags);
	if (fd < 0) {
		rc = -errno;
		crpc_err("segment %s: memfd_create%s: %s", name, huge ? " of huge pages" : "",
				strerror(errno));
		return rc;
	}
	rc = __crpc_shm_fd_lock(fd, SHM_OWNER_BYTE);
	if (rc == 0)
		return fd;
	crpc_err("segment %s: cannot lock its memory: %s", name, strerror(-rc));
	close(fd);
	return rc;
}

int
__crpc_shm_seal(const struct crpc_shm *seg)
{
	int rc;

	if (fcntl(seg->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return 0;
	rc = -errno;
	crpc_err("%s: cannot seal the size of its memory: %s", seg->path, strerror(errno));
	return rc;
}

/* ---- the socket's address ---- */

/*
 * A socket's path has room for 107 bytes, a segment's is longer: go through the open directory. The
 * directory's descriptor or -errno; it must stay open while the address is used.
 */
static int
sock_addr(const char *path, struct sockaddr_un *addr)
{
	const char *base = strrchr(path, '/') + 1;
	char dir[CRPC_SHM_PATH_MAX];
	int fd;

	memcpy(dir, path, (size_t)(base - path));
	dir[base - path] = '\0'; /* with its slash: "/" stays "/" */
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	snprintf(addr->sun_path, sizeof(addr->sun_path), "/proc/self/fd/%d/%.60s" SHM_SOCK_SUFFIX,
			fd, base);
	return fd;
}

bool
__crpc_shm_door_there(const char *path)
{
	char sock[SHM_SOCK_MAX];
	struct stat st;

	__crpc_shm_sock_path(sock, path);
	return lstat(sock, &st) == 0 && S_ISSOCK(st.st_mode);
}

/*
 * Anybody may put a socket into a directory such as /dev/shm: it counts only beside a door, and
 * only if both are the same user's. What stands in the door of another user we may not read.
 */
int
__crpc_shm_door_find(const char *path, uid_t *uid)
{
	char sock[SHM_SOCK_MAX];
	struct crpc_shm_header h = {0};
	struct stat door, st;
	ssize_t len;
	int fd;

	__crpc_shm_sock_path(sock, path);
	if (lstat(path, &door) != 0)
		return -errno;
	if (lstat(sock, &st) != 0 || !S_ISSOCK(st.st_mode) || st.st_uid != door.st_uid)
		return 0;
	*uid = door.st_uid;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == EACCES ? 1 : -errno;
	len = pread(fd, &h, sizeof(h), 0);
	close(fd);
	return len == (ssize_t)sizeof(h) && h.magic == CRPC_SHM_MAGIC && h.kind == SHM_DOOR_KIND;
}

/* ---- owner ---- */

/* Connected to the address, or -errno. */
static int
sock_connect(const struct sockaddr_un *addr)
{
	int rc, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/*
 * Something stands where our socket belongs, and it is no door's: that one went with the door. So
 * it is somebody else's, and only if nobody listens may it be removed.
 */
static int
stranger_remove(const char *path, const struct sockaddr_un *addr)
{
	struct stat st;
	int rc;

	if (lstat(addr->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode)) {
		crpc_err("%s" SHM_SOCK_SUFFIX ": is no socket; remove it or use another name",
				path);
		return -EEXIST;
	}
	rc = sock_connect(addr);
	if (rc == -ECONNREFUSED) {
		if (unlink(addr->sun_path) == 0 || errno == ENOENT)
			return 0;
		rc = -errno;
		crpc_err("%s" SHM_SOCK_SUFFIX ": cannot remove a stale socket: %s", path,
				strerror(errno));
		return rc;
	}
	if (rc >= 0)
		close(rc);
	crpc_err("%s" SHM_SOCK_SUFFIX ": somebody listens there; stop it or use another name",
			path);
	return -EADDRINUSE;
}

int
__crpc_shm_sock_remove(const char *path)
{
	struct sockaddr_un addr;
	int rc, dir = sock_addr(path, &addr);

	if (dir < 0)
		return dir;
	rc = stranger_remove(path, &addr);
	close(dir);
	return rc;
}

static int
door_listen(struct crpc_shm *seg, const struct sockaddr_un *addr)
{
	bool others = seg->allow.uid_count + seg->allow.gid_count != 0;
	int fd, rc = stranger_remove(seg->path, addr);

	if (rc != 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		rc = -errno;
		crpc_err("%s" SHM_SOCK_SUFFIX ": cannot make a socket: %s", seg->path,
				strerror(-rc));
		return rc;
	}
	/* The mode only spares strangers a refusal: the list is asked for each of them. */
	rc = bind(fd, (const struct sockaddr *)addr, sizeof(*addr));
	CRPC_CRASH_POINT("shm.door.2");
	if (rc == 0)
		rc = chmod(addr->sun_path, others ? 0666 : 0600);
	CRPC_CRASH_POINT("shm.door.3");
	if (rc == 0)
		rc = listen(fd, BACKLOG);
	CRPC_CRASH_POINT("shm.door.4");
	if (rc == 0) {
		seg->listen_fd = fd;
		return 0;
	}
	rc = -errno;
	crpc_err("%s" SHM_SOCK_SUFFIX ": cannot listen there: %s", seg->path, strerror(errno));
	close(fd);
	return rc;
}

int
__crpc_shm_door_open(struct crpc_shm *seg, int fd)
{
	struct shm_door door = {.size = seg->size,
			.kind = seg->hdr->kind,
			.kind_version = seg->hdr->kind_version,
			.page_size = seg->hdr->page_size};
	struct sockaddr_un addr;
	int dir, rc;

	memcpy(&door.hdr, seg->hdr, sizeof(door.hdr));
	door.hdr.kind = SHM_DOOR_KIND;
	door.hdr.kind_version = SHM_DOOR_VERSION;
	door.hdr.total_size = sizeof(door);
	if (pwrite(fd, &door, sizeof(door), 0) != (ssize_t)sizeof(door)) {
		crpc_err("%s: cannot write it: %s", seg->path, strerror(errno));
		return errno == 0 ? -ENOSPC : -errno;
	}
	CRPC_CRASH_POINT("shm.door.1");
	dir = sock_addr(seg->path, &addr);
	if (dir < 0) {
		crpc_err("%s: cannot open its directory: %s", seg->path, strerror(-dir));
		return dir;
	}
	rc = door_listen(seg, &addr);
	close(dir);
	return rc;
}

void
__crpc_shm_door_state(const struct crpc_shm *seg, uint32_t state)
{
	int fd = open(seg->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	ssize_t done;

	if (fd < 0)
		return;
	/* For tools that list segments: if it cannot be told, they tell an older state. */
	if (fstat(fd, &st) == 0 && st.st_dev == seg->dev && st.st_ino == seg->ino) {
		done = pwrite(fd, &state, sizeof(state), offsetof(struct crpc_shm_header, state));
		(void)done;
	}
	close(fd);
}

void
__crpc_shm_door_close(struct crpc_shm *seg)
{
	char sock[SHM_SOCK_MAX];

	if (seg->listen_fd < 0)
		return;
	/*
	 * We hold the door, so what stands there is ours; unless the door was taken away by hand.
	 */
	__crpc_shm_sock_path(sock, seg->path);
	if (__crpc_shm_same_file(seg->path, seg->dev, seg->ino) && unlink(sock) != 0)
		crpc_err("%s: cannot remove it: %s", sock, strerror(errno));
	CRPC_CRASH_POINT("shm.free.3");
	close(seg->listen_fd);
	seg->listen_fd = -1;
}

/* Send the answer, and with it a descriptor if fd is one. */
static void
answer_send(int sock, struct shm_answer a, int fd)
{
	struct iovec io = {.iov_base = &a, .iov_len = sizeof(a)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (fd >= 0) {
		memset(&ctl, 0, sizeof(ctl));
		msg.msg_control = ctl.buf;
		msg.msg_controllen = sizeof(ctl.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	/* A fresh socket has room for one message; if the peer left, it does not matter. */
	sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
answer(const struct crpc_shm *seg, int sock)
{
	struct shm_answer a = {.magic = SHM_ANSWER_MAGIC,
			.version = SHM_DOOR_VERSION,
			.size = seg->size,
			.incarnation = seg->hdr->incarnation};
	struct crpc_shm_peer peer;
	int fd = -1, rc = crpc_shm_peer_get(sock, &peer);

	if (rc == 0 && !crpc_shm_allowed(&seg->allow, &peer)) {
		rc = -EACCES;
		crpc_notice("%s: pid %d of uid %u, gid %u is not on the list of who may attach",
				seg->path, (int)peer.pid, peer.uid, peer.gid);
	}
	if (rc == 0) {
		fd = __crpc_shm_fd_reopen(seg->fd);
		rc = fd < 0 ? fd : 0;
	}
	a.status = (uint32_t)-rc;
	answer_send(sock, a, fd);
	if (fd >= 0)
		close(fd);
}

uint32_t
crpc_shm_serve(struct crpc_shm *seg)
{
	uint32_t n = 0, tries;
	int sock, err;

	if (seg->listen_fd < 0 || crpc_load_relaxed(&seg->hdr->state) != CRPC_SHM_READY)
		return 0;
	for (tries = 0; tries < SERVE_BURST; tries++) {
		sock = accept4(seg->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		err = sock < 0 ? errno : 0;
		if (err == ECONNABORTED || err == EINTR)
			continue;
		if (err != 0 && err != EAGAIN && err != seg->accept_errno)
			crpc_err("%s" SHM_SOCK_SUFFIX ": cannot accept: %s", seg->path,
					strerror(err));
		seg->accept_errno = err;
		if (err != 0)
			break;
		CRPC_CRASH_POINT("shm.serve.1");
		answer(seg, sock);
		CRPC_CRASH_POINT("shm.serve.2");
		close(sock);
		n++;
	}
	return n;
}

/* ---- attach ---- */

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/*
 * The one descriptor of a message, or -1. More than one are closed: the control buffer bounds them.
 */
static int
take_fd(struct msghdr *msg)
{
	struct cmsghdr *c;
	int fd = -1, one;
	size_t i, n;

	for (c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof(one), sizeof(one));
			if (fd >= 0)
				close(fd);
			fd = one;
		}
	}
	return fd;
}

/* What came is hostile until it is checked: size, magic, version, seals. Takes fd. */
static int
check_answer(struct crpc_shm *seg, const struct shm_answer *a, ssize_t len, int fd)
{
	const int need = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals, rc = 0;

	if (len != (ssize_t)sizeof(*a))
		rc = __crpc_shm_wrong(
			seg, "length of the owner's answer", sizeof(*a), (uint64_t)len);
	else if (a->magic != SHM_ANSWER_MAGIC)
		rc = __crpc_shm_wrong(
			seg, "magic of the owner's answer", SHM_ANSWER_MAGIC, a->magic);
	else if (a->version != SHM_DOOR_VERSION)
		rc = __crpc_shm_wrong(seg, "version of the owner's answer", SHM_DOOR_VERSION,
				a->version);
	else if (a->status == EACCES) {
		crpc_err("%s: its owner's list does not allow this user (uid %u, gid %u)",
				seg->path, geteuid(), getegid());
		rc = -EACCES;
	} else if (a->status != 0) {
		crpc_err("%s: its owner could not pass its memory: %s", seg->path,
				strerror((int)a->status));
		rc = -EIO;
	} else if (fd < 0)
		rc = __crpc_shm_wrong(seg, "number of descriptors", 1, 0);
	if (rc == 0) {
		seals = fcntl(fd, F_GET_SEALS);
		if (seals < 0 || (seals & need) != need)
			rc = __crpc_shm_wrong(seg, "seals of its memory", (uint64_t)need,
					seals < 0 ? 0 : (uint64_t)seals);
	}
	if (rc == 0)
		seg->fd = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

int
__crpc_shm_door_receive(struct crpc_shm *seg, int sock)
{
	struct shm_answer a = {0};
	struct iovec io = {.iov_base = &a, .iov_len = sizeof(a)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct msghdr msg = {.msg_iov = &io,
			.msg_iovlen = 1,
			.msg_control = ctl.buf,
			.msg_controllen = sizeof(ctl.buf)};
	ssize_t len = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return -EINPROGRESS;
	if (len <= 0) /* its owner died, or closed the segment, before it came to us */
		return -ECONNREFUSED;
	return check_answer(seg, &a, len, take_fd(&msg));
}

/* True if it is certain that the door's owner is dead: a child of it may still hold the socket. */
static bool
owner_is_dead(const struct crpc_shm *seg)
{
	int fd = open(seg->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool dead = fd >= 0 && __crpc_shm_fd_locked(fd, SHM_OWNER_BYTE) == 0;

	if (fd >= 0)
		close(fd);
	return dead;
}

int
__crpc_shm_door_fetch(struct crpc_shm *seg, uid_t uid, uint64_t wait_ms)
{
	uint64_t now = now_ms(), end = now + crpc_max(wait_ms, ANSWER_MS);
	struct sockaddr_un addr;
	struct pollfd p = {.events = POLLIN};
	struct crpc_shm_peer peer;
	int dir, rc;

	if (owner_is_dead(seg))
		return -ECONNREFUSED;
	dir = sock_addr(seg->path, &addr);
	p.fd = dir < 0 ? dir : sock_connect(&addr);
	if (dir >= 0)
		close(dir);
	if (p.fd == -EACCES)
		crpc_err("%s" SHM_SOCK_SUFFIX ": permission denied; let its owner allow this user",
				seg->path);
	else if (p.fd < 0 && p.fd != -ENOENT && p.fd != -ECONNREFUSED && p.fd != -EAGAIN)
		crpc_err("%s" SHM_SOCK_SUFFIX ": cannot connect to it: %s", seg->path,
				strerror(-p.fd));
	if (p.fd < 0)
		return p.fd;
	/* Of a listener the kernel tells who called listen(). */
	rc = crpc_shm_peer_get(p.fd, &peer);
	if (rc == 0 && peer.uid != uid)
		rc = __crpc_shm_wrong(seg, "user who listens", uid, peer.uid);
	if (rc != 0) {
		close(p.fd);
		return rc;
	}
	seg->uid = uid;
	do {
		poll(&p, 1, (int)crpc_min(end - now, 1000));
		rc = __crpc_shm_door_receive(seg, p.fd);
		now = now_ms();
	} while (rc == -EINPROGRESS && now < end);
	close(p.fd);
	if (rc == -EINPROGRESS) {
		crpc_err("%s: its owner lives and does not answer; it must call crpc_shm_serve()",
				seg->path);
		rc = -ETIMEDOUT;
	}
	return rc;
}
