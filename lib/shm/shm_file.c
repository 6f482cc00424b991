/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, paths, and the file of a segment: found, created, taken over from the dead. */
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crpc_crash.h"
#include "crpc_log.h"
#include "shm_private.h"

/* Rounds in which creators of one name may get into each other's way before one gives up. */
#define CREATE_ROUNDS 16
/* Between two looks at a leftover that somebody else removes. */
#define BUSY_NS 1000000

bool
__crpc_shm_name_ok(const char *name)
{
	static const char ok[] =
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = name == NULL ? 0 : strnlen(name, CRPC_SHM_NAME_MAX);

	return len != 0 && len != CRPC_SHM_NAME_MAX && strspn(name, ok) == len;
}

int
__crpc_shm_name_check(const char *name)
{
	if (!__crpc_shm_name_ok(name)) {
		crpc_err("segment name '%.60s': expected 1 to %d of [A-Za-z0-9._-]",
				name == NULL ? "(none)" : name, CRPC_SHM_NAME_MAX - 1);
		return -EINVAL;
	}
	return 0;
}

int
__crpc_shm_huge_dir(char *dir, size_t len)
{
	struct mntent mnt, *m;
	char buf[1024];
	FILE *f = setmntent("/proc/self/mounts", "r");
	int rc = -ENOENT;

	if (f == NULL)
		return -ENOENT;
	while ((m = getmntent_r(f, &mnt, buf, sizeof(buf))) != NULL) {
		if (strcmp(m->mnt_type, "hugetlbfs") != 0 || strlen(m->mnt_dir) >= len)
			continue;
		memcpy(dir, m->mnt_dir, strlen(m->mnt_dir) + 1);
		rc = 0;
		break;
	}
	endmntent(f);
	return rc;
}

int
__crpc_shm_path(char *path, size_t len, const char *dir, const char *name)
{
	int n = snprintf(path, len, "%s/crpc.%s", dir, name);

	if (n > 0 && (size_t)n < len)
		return 0;
	crpc_err("segment path '%s/crpc.%s' has %d bytes; expected at most %zu", dir, name, n,
			len - 1);
	return -EINVAL;
}

void
__crpc_shm_sock_path(char *sock, const char *path)
{
	snprintf(sock, SHM_SOCK_MAX, "%s" SHM_SOCK_SUFFIX, path);
}

bool
__crpc_shm_same_file(const char *path, dev_t dev, ino_t ino)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

bool
__crpc_shm_is_ours(int fd, const struct stat *st, struct crpc_shm_header *h)
{
	memset(h, 0, sizeof(*h));
	if (!S_ISREG(st->st_mode))
		return false;
	if (st->st_size < (off_t)sizeof(*h))
		return st->st_size == 0;
	/* hugetlbfs cannot be read by pread() on all kernels; a file of ours is all it can be. */
	if (pread(fd, h, sizeof(*h), 0) != (ssize_t)sizeof(*h))
		return true;
	return h->magic == CRPC_SHM_MAGIC || h->magic == 0;
}

/* Remove the file, and before it a door's socket: both are of the dead owner whose byte we bar. */
static int
leftover_unlink(const char *path, const struct crpc_shm_header *h)
{
	char sock[SHM_SOCK_MAX];

	if (h->kind == SHM_DOOR_KIND && __crpc_shm_door_there(path)) {
		__crpc_shm_sock_path(sock, path);
		if (unlink(sock) != 0 && errno != ENOENT)
			return -errno;
		CRPC_CRASH_POINT("shm.remove.2");
	}
	return unlink(path) == 0 ? 0 : -errno;
}

static void
say_no_lock(const char *path, int rc)
{
	crpc_err("%s: cannot lock it: %s; the file system must have open file description locks",
			path, strerror(-rc));
}

/*
 * Lock a leftover for its removal. Nobody becomes its owner meanwhile, and nobody who asks takes us
 * for one: who attaches would find a living owner and a ready header. And there is one remover, so
 * that a second cannot remove what comes to stand in its place. 0 or -errno, not said.
 */
static int
lock_leftover(int fd)
{
	int rc = __crpc_shm_fd_lock(fd, SHM_REMOVE_BYTE);

	if (rc != 0)
		return rc == -EAGAIN ? -EBUSY : rc;
	rc = __crpc_shm_fd_bar(fd);
	return rc == -EAGAIN ? -EADDRINUSE : rc;
}

/* Remove what a dead owner left at path. 0: the path is free, or somebody else was faster. */
int
__crpc_shm_leftover_remove(const char *path)
{
	struct crpc_shm_header h;
	struct stat st;
	int fd, rc = 0;

	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		if (errno == ENOENT)
			return 0;
		rc = errno == ELOOP || errno == EISDIR ? -EEXIST : -errno;
		crpc_err("%s: exists, and cannot be opened: %s; remove it or use another name",
				path, strerror(errno));
		return rc;
	}
	if (fstat(fd, &st) != 0 || !__crpc_shm_is_ours(fd, &st, &h)) {
		crpc_err("%s: is no segment of this project; remove it or use another name", path);
		close(fd);
		return -EEXIST;
	}
	rc = lock_leftover(fd);
	if (rc == -EADDRINUSE) {
		crpc_err("%s: belongs to a living process; stop it or use another name", path);
	} else if (rc != 0 && rc != -EBUSY) {
		say_no_lock(path, rc);
	} else if (rc == 0 && __crpc_shm_same_file(path, st.st_dev, st.st_ino)) {
		CRPC_CRASH_POINT("shm.remove.1");
		rc = leftover_unlink(path, &h);
		CRPC_CRASH_POINT("shm.remove.3");
		if (rc != 0)
			crpc_err("%s: cannot remove a dead owner's segment: %s", path,
					strerror(-rc));
	}
	close(fd);
	return rc;
}

int
__crpc_shm_file_create(const char *path, mode_t mode)
{
	const struct timespec pause = {.tv_nsec = BUSY_NS};
	struct stat st;
	int fd, rc, round;

	for (round = 0; round < CREATE_ROUNDS; round++) {
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
		if (fd < 0 && errno != EEXIST) {
			rc = -errno;
			crpc_err("%s: cannot create it: %s", path, strerror(errno));
			return rc;
		}
		if (fd < 0) {
			rc = __crpc_shm_leftover_remove(path);
			if (rc == -EBUSY)
				nanosleep(&pause, NULL);
			else if (rc != 0)
				return rc;
			continue;
		}
		CRPC_CRASH_POINT("shm.create.1");
		/*
		 * Between open and lock another creator may take the file for a leftover and remove
		 * it; then this one is nobody's.
		 */
		rc = __crpc_shm_fd_lock(fd, SHM_OWNER_BYTE);
		if (rc == 0 && fstat(fd, &st) == 0 &&
				__crpc_shm_same_file(path, st.st_dev, st.st_ino)) {
			CRPC_CRASH_POINT("shm.create.2");
			fchmod(fd, mode); /* whatever the umask: mode is who may attach */
			return fd;
		}
		if (rc != 0 && rc != -EAGAIN) {
			unlink(path);
			close(fd);
			say_no_lock(path, rc);
			return rc;
		}
		close(fd);
	}
	crpc_err("%s: others keep creating it; expected one owner of the name", path);
	return -EADDRINUSE;
}
