/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What stands between a program and the C library: paths of RDMA devices lead into our tree
 * (sysfs.h), descriptors of device nodes are ours (file.h, uverbs.h), everything else goes on
 * unchanged.
 *
 * Calls that the C library makes inside itself do not come through here: fopen() does not call our
 * open(), so each entry point that programs use stands in the list. mmap(), read(), poll() and the
 * like need no help, because a device node is a memfd whose file offsets are the mmap offsets that
 * the driver gets, event queues are pipes, and the connection manager is an epoll set.
 *
 * The library is loaded into every child of a program, RDMA or not: there is no constructor, and a
 * path that is not ours costs a comparison of a few bytes.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "crpc_atomic.h"
#include "cm.h"
#include "fabric.h"
#include "file.h"
#include "netlink.h"
#include "real.h"
#include "port.h"
#include "sysfs.h"
#include "uverbs.h"

#define LIBC(fn) REAL(fn, NULL, NULL)

void *
sm_real(void *_Atomic *cache, const char *soname, const char *name, const char *version)
{
	void *fn = crpc_load_acquire(cache); /* A2 pairs with R2 */
	void *lib;

	if (fn != NULL)
		return fn;
	if (version != NULL)
		fn = dlvsym(RTLD_NEXT, name, version);
	if (fn == NULL && (soname == NULL || version == NULL))
		fn = dlsym(RTLD_NEXT, name);
	lib = fn == NULL && soname != NULL ? dlopen(soname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (lib != NULL)
		fn = version != NULL ? dlvsym(lib, name, version) : dlsym(lib, name);
	if (fn == NULL)
		errno = ENOSYS;
	crpc_store_release(cache, fn); /* R2 */
	return fn;
}

/* ---- paths ---- */

#define SYS_PREFIX "/sys/class/infiniband"
#define CM_PREFIX  "/sys/class/misc/rdma_cm"
#define DEV_PREFIX "/dev/infiniband"

/*
 * Where a path leads: itself, or its place in our tree, written to buf. SYS_PREFIX is also the
 * prefix of infiniband_verbs, infiniband_mad and so on, which belong to the same world: what real
 * adapters have there is hidden as a whole, since half of it would be worse than none.
 */
static const char *
redirect(const char *path, char buf[PATH_MAX])
{
	const char *root, *rest;
	int n;

	if (path == NULL || path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
		return path;
	if (strncmp(path, SYS_PREFIX, sizeof(SYS_PREFIX) - 1) == 0 ||
		strncmp(path, CM_PREFIX, sizeof(CM_PREFIX) - 1) == 0) {
		rest = path + sizeof("/sys") - 1;
	} else if (strncmp(path, DEV_PREFIX, sizeof(DEV_PREFIX) - 1) == 0 &&
			(path[sizeof(DEV_PREFIX) - 1] == '/' ||
					path[sizeof(DEV_PREFIX) - 1] == '\0')) {
		rest = path;
	} else {
		return path;
	}
	root = sm_sysfs_root();
	if (root == NULL)
		return ""; /* ENOENT, as on a machine without RDMA */
	n = snprintf(buf, PATH_MAX, "%s%s", root, rest);
	return n > 0 && n < PATH_MAX ? buf : "";
}

#define CM_NODE SM_DEVICES_MAX

/* The number of the device whose node this path is, CM_NODE, or -1. */
static int
device_node(const char *path)
{
	int n;

	if (path == NULL || strncmp(path, DEV_PREFIX "/", sizeof(DEV_PREFIX)) != 0)
		return -1;
	if (strcmp(path + sizeof(DEV_PREFIX), "rdma_cm") == 0)
		return CM_NODE;
	if (strncmp(path, DEV_PREFIX "/uverbs", sizeof(DEV_PREFIX "/uverbs") - 1) != 0)
		return -1;
	path += sizeof(DEV_PREFIX "/uverbs") - 1;
	if (path[0] < '0' || path[0] > '9' || path[1] != '\0')
		return -1;
	n = path[0] - '0';
	return n < (int)sm_ports() ? n : -1;
}

static dev_t
node_rdev(int n)
{
	return n == CM_NODE ? makedev(SM_CM_MAJOR, SM_CM_MINOR)
			    : makedev(SM_UVERBS_MAJOR, SM_UVERBS_MINOR + (unsigned int)n);
}

static void
look_like_device(struct stat *st, int n)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = node_rdev(n);
	st->st_size = 0;
}

/* After a successful stat of a path. */
static void
patch_path(const char *path, struct stat *st)
{
	int n = device_node(path);

	if (n >= 0)
		look_like_device(st, n);
}

/* After a successful fstat: a memfd, or what has no type, may be a device node of ours. */
static void
patch_fd(int fd, struct stat *st)
{
	struct sm_file *file;

	if (!S_ISREG(st->st_mode) && (st->st_mode & S_IFMT) != 0)
		return;
	file = sm_file_by_stat(fd, st);
	if (uv_ctx_of(file) != NULL)
		look_like_device(st, uv_ctx_of(file)->device);
	else if (cm_chan_of(file) != NULL)
		look_like_device(st, CM_NODE);
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout of stat on 64 bits");

/* ---- open ---- */

static bool
needs_mode(int flags)
{
	return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

#define OPEN_CALL(name, params, ...)                                                               \
	EXPORT int name params                                                                     \
	{                                                                                          \
		char buf[PATH_MAX];                                                                \
		int n = device_node(path);                                                         \
		mode_t mode = 0;                                                                   \
		va_list ap;                                                                        \
                                                                                                   \
		if (n >= 0 && sm_sysfs_root() != NULL)                                             \
			return n == CM_NODE ? cm_open(flags) : uv_open(n, flags);                  \
		va_start(ap, flags);                                                               \
		if (needs_mode(flags))                                                             \
			mode = va_arg(ap, mode_t);                                                 \
		va_end(ap);                                                                        \
		return LIBC(name)(__VA_ARGS__, flags, mode);                                       \
	}

OPEN_CALL(open, (const char *path, int flags, ...), redirect(path, buf))
OPEN_CALL(open64, (const char *path, int flags, ...), redirect(path, buf))
OPEN_CALL(openat, (int dir, const char *path, int flags, ...), dir, redirect(path, buf))
OPEN_CALL(openat64, (int dir, const char *path, int flags, ...), dir, redirect(path, buf))

/*
 * The checked variants exist only for calls without O_CREAT. They are not declared by headers of
 * this C library; older binaries and fortified ones call them.
 */
#define OPEN_CHECKED(name, params, call)                                                           \
	EXPORT int name params;                                                                    \
	int name params                                                                            \
	{                                                                                          \
		return call;                                                                       \
	}

OPEN_CHECKED(__open_2, (const char *path, int flags), open(path, flags))
OPEN_CHECKED(__open64_2, (const char *path, int flags), open64(path, flags))
OPEN_CHECKED(__openat_2, (int dir, const char *path, int flags), openat(dir, path, flags))
OPEN_CHECKED(__openat64_2, (int dir, const char *path, int flags), openat64(dir, path, flags))

/* ---- look at a path ---- */

#define PATH_CALL(type, name, params, ...)                                                         \
	EXPORT type name params                                                                    \
	{                                                                                          \
		char buf[PATH_MAX];                                                                \
                                                                                                   \
		return LIBC(name)(__VA_ARGS__);                                                    \
	}

PATH_CALL(FILE *, fopen, (const char *path, const char *mode), redirect(path, buf), mode)
PATH_CALL(FILE *, fopen64, (const char *path, const char *mode), redirect(path, buf), mode)
PATH_CALL(DIR *, opendir, (const char *path), redirect(path, buf))
PATH_CALL(int, scandir,
	(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
		int (*compare)(const struct dirent **, const struct dirent **)),
	redirect(path, buf), list, filter, compare)
PATH_CALL(int, access, (const char *path, int how), redirect(path, buf), how)
PATH_CALL(int, faccessat, (int dir, const char *path, int how, int flags), dir,
	redirect(path, buf), how, flags)
PATH_CALL(ssize_t, readlink, (const char *path, char *out, size_t size), redirect(path, buf), out,
	size)
PATH_CALL(ssize_t, readlinkat, (int dir, const char *path, char *out, size_t size), dir,
	redirect(path, buf), out, size)

EXPORT char *__realpath_chk(const char *path, char *out, size_t size);
PATH_CALL(char *, __realpath_chk, (const char *path, char *out, size_t size), redirect(path, buf),
	out, size)

/* Without the version the oldest definition would be found, which cannot allocate the result. */
EXPORT char *
realpath(const char *path, char *out)
{
	char buf[PATH_MAX];

	return REAL(realpath, NULL, "GLIBC_2.3")(redirect(path, buf), out);
}

/* With a prototype: the versions with a number are not declared by headers of this C library. */
#define STAT_CALL(name, params, ...)                                                               \
	EXPORT int name params;                                                                    \
	int name params                                                                            \
	{                                                                                          \
		char buf[PATH_MAX];                                                                \
		int rc = LIBC(name)(__VA_ARGS__);                                                  \
                                                                                                   \
		if (rc == 0)                                                                       \
			patch_path(path, (struct stat *)(void *)st);                               \
		return rc;                                                                         \
	}

STAT_CALL(stat, (const char *path, struct stat *st), redirect(path, buf), st)
STAT_CALL(stat64, (const char *path, struct stat64 *st), redirect(path, buf), st)
STAT_CALL(lstat, (const char *path, struct stat *st), redirect(path, buf), st)
STAT_CALL(lstat64, (const char *path, struct stat64 *st), redirect(path, buf), st)
STAT_CALL(fstatat, (int dir, const char *path, struct stat *st, int flags), dir,
	redirect(path, buf), st, flags)
STAT_CALL(fstatat64, (int dir, const char *path, struct stat64 *st, int flags), dir,
	redirect(path, buf), st, flags)
STAT_CALL(__xstat, (int ver, const char *path, struct stat *st), ver, redirect(path, buf), st)
STAT_CALL(__xstat64, (int ver, const char *path, struct stat64 *st), ver, redirect(path, buf), st)
STAT_CALL(__lxstat, (int ver, const char *path, struct stat *st), ver, redirect(path, buf), st)
STAT_CALL(__lxstat64, (int ver, const char *path, struct stat64 *st), ver, redirect(path, buf), st)

EXPORT int
statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	char buf[PATH_MAX];
	int n = device_node(path);
	int rc = LIBC(statx)(dir, redirect(path, buf), flags, mask, st);

	if (rc == 0 && n >= 0) {
		st->stx_mode = S_IFCHR | 0666;
		st->stx_rdev_major = major(node_rdev(n));
		st->stx_rdev_minor = minor(node_rdev(n));
		st->stx_size = 0;
	}
	return rc;
}

/* ---- descriptors ---- */

int
sm_real_fstat(int fd, struct stat *st)
{
	return LIBC(fstat)(fd, st);
}

#define FSTAT_CALL(name, params, ...)                                                              \
	EXPORT int name params;                                                                    \
	int name params                                                                            \
	{                                                                                          \
		int rc = LIBC(name)(__VA_ARGS__);                                                  \
                                                                                                   \
		if (rc == 0)                                                                       \
			patch_fd(fd, (struct stat *)(void *)st);                                   \
		return rc;                                                                         \
	}

FSTAT_CALL(fstat, (int fd, struct stat *st), fd, st)
FSTAT_CALL(fstat64, (int fd, struct stat64 *st), fd, st)
FSTAT_CALL(__fxstat, (int ver, int fd, struct stat *st), ver, fd, st)
FSTAT_CALL(__fxstat64, (int ver, int fd, struct stat64 *st), ver, fd, st)

EXPORT int
ioctl(int fd, unsigned long request, ...)
{
	struct uv_ctx *ctx;
	va_list ap;
	void *arg;
	int err;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (crpc_likely(request != RDMA_VERBS_IOCTL))
		return LIBC(ioctl)(fd, request, arg);
	ctx = uv_ctx_of(sm_file_find(fd));
	if (ctx == NULL)
		return LIBC(ioctl)(fd, request, arg);
	err = uv_ioctl(ctx, fd, arg);
	if (err == 0)
		return 0;
	errno = err;
	return -1;
}

/*
 * Every program writes, also from a signal handler, where dlsym() and locks have no place: so not
 * LIBC(write). The kernel refuses to write to an epoll set, which a channel is for it; only then,
 * and if it is such a set, is it looked up.
 */
extern ssize_t __write(int fd, const void *buf, size_t len);

EXPORT ssize_t
write(int fd, const void *buf, size_t len)
{
	struct epoll_event ev;
	ssize_t n = __write(fd, buf, len);

	/* Of what is no epoll set, errno stays EINVAL. */
	if (crpc_likely(n >= 0) || errno != EINVAL ||
		syscall(SYS_epoll_pwait, fd, &ev, 1, 0, NULL, 0) < 0)
		return n;
	return cm_write(fd, buf, len);
}

/*
 * Pages that this device reads are copied for a child, as netlink.c reports: it reads and writes a
 * process's memory by its own addresses. After this call libibverbs would nevertheless protect each
 * queue and region, for which under RDMAV_HUGEPAGES_SAFE, which DPDK sets, it reads
 * /proc/self/smaps: a thousand queue pairs take minutes.
 */
EXPORT int
ibv_fork_init(void)
{
	return 0;
}

/* libmlx5 asks for it by device commands, which are refused: the answer would always be no. */
EXPORT int ibv_query_qp_data_in_order(
	struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);

EXPORT int
ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return flags == 0 && !sm_fabric()->unordered;
}

EXPORT int
close(int fd)
{
	bool ours = sm_file_at(fd) != NULL;
	int rc = LIBC(close)(fd);

	if (crpc_unlikely(ours))
		sm_file_closed(fd);
	return rc;
}

/* See netlink.h. Without a tree there are no devices to report. */
EXPORT int
socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		if (sm_sysfs_root() == NULL) {
			errno = EPROTONOSUPPORT;
			return -1;
		}
		protocol = NETLINK_USERSOCK;
	}
	return LIBC(socket)(domain, type, protocol);
}

EXPORT ssize_t
sendto(int fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
	ssize_t n = LIBC(sendto)(fd, buf, len, flags, to, to_len);

	return crpc_likely(n >= 0) || errno != ECONNREFUSED ? n : sm_netlink_send(fd, buf, len);
}

EXPORT ssize_t
sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n = LIBC(sendmsg)(fd, msg, flags);

	return crpc_likely(n >= 0) || errno != ECONNREFUSED || msg->msg_iovlen != 1
		? n
		: sm_netlink_send(fd, msg->msg_iov->iov_base, msg->msg_iov->iov_len);
}
