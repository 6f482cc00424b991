/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory without a name, and the door to it.
 *
 * The door is a small file at the segment's path, created and replaced like any segment, under the
 * owner's lock. Only the process that holds that lock may touch the socket beside it. So a stale
 * socket is recognised without connecting to it, and two starters cannot remove each other's.
 *
 * A process that connects gets one message and is disconnected. It sends nothing, so there is
 * nothing to read, to wait for or to keep per connection. The descriptor it gets is a description
 * of its own: locks are owned by descriptions, so those that the receiver takes end with it.
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
#include <unistd.h>

#include <linux/mman.h>

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
	/* MAP_HUGE_2MB is MFD_HUGE_2MB, too. */
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING |
			(huge ? MFD_HUGETLB | MAP_HUGE_2MB : 0);
	char title[CRPC_SHM_NAME_MAX + 8];
	int fd, rc;

	snprintf(title, sizeof(title), "crpc.%.47s", name);
	fd = memfd_create(title, flags);
	if (fd < 0)
		return __crpc_shm_failed(
			name, huge ? "memfd_create of huge pages" : "memfd_create", -errno);
	rc = __crpc_shm_fd_lock(fd, SHM_OWNER_BYTE, F_WRLCK);
	if (rc == 0)
		return fd;
	close(fd);
	return __crpc_shm_failed(name, "cannot lock its memory", rc);
}

/* ---- who may attach ---- */

int
crpc_shm_peer_get(int sock, struct crpc_shm_peer *peer)
{
	socklen_t len = sizeof(struct ucred);
	struct ucred cred;

	memset(peer, 0, sizeof(*peer));
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
		return -errno;
	peer->pid = cred.pid;
	peer->uid = cred.uid;
	peer->gid = cred.gid;
	len = sizeof(peer->groups);
	/* More groups than fit, or a kernel before 4.13: the primary group alone counts. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &len) == 0)
		peer->group_count = (uint32_t)(len / sizeof(peer->groups[0]));
	return 0;
}

static bool
has_group(const struct crpc_shm_peer *peer, gid_t gid)
{
	bool has = peer->gid == gid;

	for (uint32_t i = 0; i < peer->group_count; i++)
		has |= peer->groups[i] == gid;
	return has;
}

bool
crpc_shm_allowed(const struct crpc_shm_allow *allow, const struct crpc_shm_peer *peer)
{
	bool may = peer->uid == geteuid() || peer->uid == 0;

	for (uint32_t i = 0; allow != NULL && i < allow->uid_count; i++)
		may |= peer->uid == allow->uids[i];
	for (uint32_t i = 0; allow != NULL && i < allow->gid_count; i++)
		may |= has_group(peer, allow->gids[i]);
	return may;
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
__crpc_shm_sock_there(const char *path)
{
	char sock[SHM_SOCK_MAX];
	struct stat st;

	__crpc_shm_sock_path(sock, path);
	return lstat(sock, &st) == 0 && S_ISSOCK(st.st_mode);
}

/*
 * Any user may put a socket into a directory such as /dev/shm: it counts only beside a door, and
 * only if both are the same user's. The door of another user cannot be read. And a socket of a dead
 * owner may still accept: its child has it.
 */
bool
__crpc_shm_door_find(const char *path, uid_t *uid)
{
	char sock[SHM_SOCK_MAX];
	struct crpc_shm_header h = {0};
	struct stat door, st;
	bool found;
	int fd;

	__crpc_shm_sock_path(sock, path);
	if (lstat(path, &door) != 0 || lstat(sock, &st) != 0 || !S_ISSOCK(st.st_mode) ||
		st.st_uid != door.st_uid)
		return false;
	*uid = door.st_uid;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == EACCES;
	found = pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) && h.magic == CRPC_SHM_MAGIC &&
		h.kind == SHM_DOOR_KIND && shm_fd_owned(fd) != 0;
	close(fd);
	return found;
}

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

/* ---- owner ---- */

/* A file stands at the socket's address: it is removed if it is a socket at which none listens. */
static int
remove_stranger(const char *sock, const struct sockaddr_un *addr)
{
	struct stat st;
	int rc;

	if (lstat(addr->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : __crpc_shm_failed(sock, "cannot look at it", -errno);
	if (!S_ISSOCK(st.st_mode))
		return crpc_fail(-EEXIST, "%s: is no socket; remove it or use another name", sock);
	rc = sock_connect(addr);
	if (rc >= 0)
		close(rc);
	if (rc != -ECONNREFUSED)
		return crpc_fail(-EADDRINUSE,
			"%s: a process listens there; stop it or use another name", sock);
	if (unlink(addr->sun_path) == 0 || errno == ENOENT)
		return 0;
	return __crpc_shm_failed(sock, "cannot remove a stale socket", -errno);
}

/* Bind and listen; what was bound is removed by door_close(). 0 or -errno. */
static int
sock_listen(struct crpc_shm *seg, const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc = -1;
	bool others = seg->allow.uid_count + seg->allow.gid_count != 0;

	if (fd >= 0 && bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0) {
		seg->listen_fd = fd;
		CRPC_CRASH_POINT("shm.door.2");
		/* The mode only spares strangers a refusal: the list is what decides. */
		rc = chmod(addr->sun_path, others ? 0666 : 0600);
		CRPC_CRASH_POINT("shm.door.3");
		if (rc == 0)
			rc = listen(fd, BACKLOG);
		CRPC_CRASH_POINT("shm.door.4");
	}
	if (rc == 0)
		return 0;
	rc = __crpc_shm_failed(seg->path, "cannot listen beside it", -errno);
	if (fd >= 0 && seg->listen_fd != fd)
		close(fd);
	return rc;
}

int
__crpc_shm_sock_take(const char *path, struct crpc_shm *seg)
{
	char sock[SHM_SOCK_MAX];
	struct sockaddr_un addr;
	int rc, dir = sock_addr(path, &addr);

	if (dir < 0)
		return __crpc_shm_failed(path, "cannot open its directory", dir);
	__crpc_shm_sock_path(sock, path);
	rc = remove_stranger(sock, &addr);
	if (rc == 0 && seg != NULL)
		rc = sock_listen(seg, &addr);
	close(dir);
	return rc;
}

int
__crpc_shm_door_open(struct crpc_shm *seg, int fd)
{
	struct shm_door door = {.size = seg->size,
		.kind = seg->hdr->kind,
		.kind_version = seg->hdr->kind_version,
		.page_size = seg->hdr->page_size};

	if (fcntl(seg->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return __crpc_shm_failed(seg->path, "cannot seal the size of its memory", -errno);
	memcpy(&door.hdr, seg->hdr, sizeof(door.hdr));
	door.hdr.kind = SHM_DOOR_KIND;
	door.hdr.kind_version = SHM_DOOR_VERSION;
	door.hdr.total_size = sizeof(door);
	if (pwrite(fd, &door, sizeof(door), 0) != (ssize_t)sizeof(door))
		return __crpc_shm_failed(
			seg->path, "cannot write it", errno == 0 ? -ENOSPC : -errno);
	CRPC_CRASH_POINT("shm.door.1");
	return __crpc_shm_sock_take(seg->path, seg);
}

void
__crpc_shm_door_state(const struct crpc_shm *seg, uint32_t state)
{
	int fd = __crpc_shm_file_reopen(seg, O_WRONLY);

	if (fd < 0)
		return;
	/* For tools that list segments: if it cannot be written, they see an older state. */
	if (pwrite(fd, &state, sizeof(state), offsetof(struct crpc_shm_header, state)) < 0)
		crpc_warn("%s: cannot write its state: %s", seg->path, strerror(errno));
	close(fd);
}

void
__crpc_shm_door_close(struct crpc_shm *seg)
{
	char sock[SHM_SOCK_MAX];

	if (seg->listen_fd < 0)
		return;
	/* We hold the door, so what stands there is ours; unless the door was removed by hand. */
	__crpc_shm_sock_path(sock, seg->path);
	if (__crpc_shm_at_path(seg) && unlink(sock) != 0 && errno != ENOENT)
		__crpc_shm_failed(sock, "cannot remove it", -errno);
	CRPC_CRASH_POINT("shm.free.3");
	close(seg->listen_fd);
	seg->listen_fd = -1;
}

/* ---- the one message ---- */

/* An answer, and room for a descriptor. */
struct letter {
	struct shm_answer answer;
	struct iovec io;
	struct msghdr msg;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl;
};

static void
letter_init(struct letter *l)
{
	memset(l, 0, sizeof(*l));
	l->io = (struct iovec){.iov_base = &l->answer, .iov_len = sizeof(l->answer)};
	l->msg = (struct msghdr){.msg_iov = &l->io,
		.msg_iovlen = 1,
		.msg_control = l->ctl.buf,
		.msg_controllen = sizeof(l->ctl.buf)};
}

/* Send the answer, and with it a descriptor if fd is one. */
static void
letter_send(struct letter *l, int sock, int fd)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(&l->msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (fd < 0)
		l->msg.msg_controllen = 0;
	/* A fresh socket has room for one message; if the peer left, it does not matter. */
	sendmsg(sock, &l->msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
answer(const struct crpc_shm *seg, int sock)
{
	struct crpc_shm_peer peer;
	struct letter l;
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
	letter_init(&l);
	l.answer = (struct shm_answer){.magic = SHM_ANSWER_MAGIC,
		.version = SHM_DOOR_VERSION,
		.status = (uint32_t)-rc,
		.size = seg->size,
		.incarnation = seg->hdr->incarnation};
	letter_send(&l, sock, fd);
	if (fd >= 0)
		close(fd);
}

uint32_t
crpc_shm_serve(struct crpc_shm *seg)
{
	uint32_t n = 0;
	int sock, err;

	if (seg->listen_fd < 0 || crpc_load_relaxed(&seg->hdr->state) != CRPC_SHM_READY)
		return 0;
	for (uint32_t tries = 0; tries < SERVE_BURST; tries++) {
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

/*
 * The one descriptor of a message, or -1. More than one are closed: the control buffer bounds them.
 */
static int
take_fd(struct msghdr *msg)
{
	int fd = -1, one;
	size_t n;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof(one), sizeof(one));
			if (fd >= 0)
				close(fd);
			fd = one;
		}
	}
	return fd;
}

/* What came is hostile until it is checked: magic, version, seals. 0 or -errno. */
static int
check_answer(const struct crpc_shm *seg, const struct shm_answer *a, ssize_t len, int fd)
{
	const int need = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals;

	if (__crpc_shm_wrong(seg->path, "length of the owner's answer", sizeof(*a), (size_t)len) ||
		__crpc_shm_wrong(
			seg->path, "magic of the owner's answer", SHM_ANSWER_MAGIC, a->magic) ||
		__crpc_shm_wrong(
			seg->path, "version of the owner's answer", SHM_DOOR_VERSION, a->version))
		return -EPROTO;
	if (a->status == EACCES)
		return crpc_fail(-EACCES,
			"%s: its owner's list does not allow this user (uid %u, gid %u)", seg->path,
			geteuid(), getegid());
	if (a->status != 0)
		return crpc_fail(-EIO, "%s: its owner could not pass its memory: %s", seg->path,
			strerror((int)a->status));
	if (__crpc_shm_wrong(seg->path, "number of descriptors", 1, fd >= 0))
		return -EPROTO;
	seals = fcntl(fd, F_GET_SEALS);
	seals = seals < 0 ? 0 : seals & need;
	return __crpc_shm_wrong(seg->path, "seals of its memory", need, (uint64_t)seals) ? -EPROTO
											 : 0;
}

int
__crpc_shm_door_receive(const struct crpc_shm *seg, int sock)
{
	struct letter l;
	ssize_t len;
	int fd, rc;

	letter_init(&l);
	len = recvmsg(sock, &l.msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return -EINPROGRESS;
	/* A message of no bytes may have a descriptor, too. */
	fd = len < 0 ? -1 : take_fd(&l.msg);
	/* No message: its owner died, or closed the segment, before it came to us. */
	rc = len <= 0 ? -ECONNREFUSED : check_answer(seg, &l.answer, len, fd);
	if (rc == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* A connection to the socket beside the path, at which this user must listen, or -errno. */
static int
connect_to(const struct crpc_shm *seg, uid_t uid)
{
	struct sockaddr_un addr;
	struct crpc_shm_peer peer;
	int sock, rc, dir = sock_addr(seg->path, &addr);

	sock = dir < 0 ? dir : sock_connect(&addr);
	if (dir >= 0)
		close(dir);
	if (sock == -EACCES)
		return crpc_fail(sock,
			"%s" SHM_SOCK_SUFFIX ": permission denied; let its owner allow this user",
			seg->path);
	if (sock == -ENOENT || sock == -ECONNREFUSED || sock == -EAGAIN)
		return sock;
	if (sock < 0)
		return __crpc_shm_failed(seg->path, "cannot connect to its socket", sock);
	/* Of a listener the kernel reports who called listen(). */
	rc = crpc_shm_peer_get(sock, &peer);
	if (rc == 0 && __crpc_shm_wrong(seg->path, "user who listens", uid, peer.uid))
		rc = -EPROTO;
	if (rc == 0)
		return sock;
	close(sock);
	return rc;
}

int
__crpc_shm_door_fetch(struct crpc_shm *seg, uid_t uid, uint64_t wait_ms)
{
	uint64_t now = shm_now_ms(), end = now + crpc_max(wait_ms, ANSWER_MS);
	struct pollfd p = {.fd = connect_to(seg, uid), .events = POLLIN};
	int rc;

	if (p.fd < 0)
		return p.fd;
	seg->uid = uid;
	do {
		poll(&p, 1, (int)crpc_min(end - now, 1000));
		rc = __crpc_shm_door_receive(seg, p.fd);
		now = shm_now_ms();
	} while (rc == -EINPROGRESS && now < end);
	close(p.fd);
	if (rc != -EINPROGRESS)
		return rc;
	return crpc_fail(-ETIMEDOUT,
		"%s: its owner lives and does not answer; it must call crpc_shm_serve()",
		seg->path);
}
