/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks that live exactly as long as the process that took them.
 *
 * An open-file-description lock (F_OFD_SETLK) conflicts between two openings of a file even within
 * one process, needs no shared pid namespace, and drops when the last reference to its description
 * goes. A forked child would inherit the descriptor and hold the lock on behalf of a dead parent.
 * So the description is kept by a mapping of one page that fork() does not copy (MADV_DONTFORK),
 * and the descriptor is closed: exit, death, exec or munmap of the taker, and nothing else, drops
 * the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crpc_crash.h"
#include "crpc_log.h"
#include "shm_private.h"

struct crpc_shm_lock {
	void *page; /**< Never touched: it only refers to the description. */
	size_t len;
	pid_t pid; /**< Who took it: a forked child has neither the lock nor the page. */
};

static int
lock_byte(int fd, uint32_t byte, short type)
{
	struct flock l = {.l_type = type,
			.l_whence = SEEK_SET,
			.l_start = (off_t)byte,
			.l_len = 1};

	if (fcntl(fd, F_OFD_SETLK, &l) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

int
__crpc_shm_fd_lock(int fd, uint32_t byte)
{
	return lock_byte(fd, byte, F_WRLCK);
}

int
__crpc_shm_fd_bar(int fd)
{
	return lock_byte(fd, SHM_OWNER_BYTE, F_RDLCK);
}

/*
 * 1 if somebody else holds any of the bytes, 0 if not, or -errno. A read lock is no sign of life:
 * see __crpc_shm_fd_bar().
 */
static int
range_locked(int fd, uint32_t first, uint32_t last)
{
	struct flock l = {.l_type = F_WRLCK,
			.l_whence = SEEK_SET,
			.l_start = (off_t)first,
			.l_len = (off_t)last - (off_t)first + 1};

	if (fcntl(fd, F_OFD_GETLK, &l) != 0)
		return -errno;
	return l.l_type == F_WRLCK;
}

int
__crpc_shm_fd_locked(int fd, uint32_t byte)
{
	return range_locked(fd, byte, byte);
}

/* The kernel tells any one lock of a range: halve it until a range is free or a single byte. */
int
__crpc_shm_fd_locks(int fd, uint32_t first, uint32_t last)
{
	uint32_t mid = first + (last - first) / 2;
	int rc = range_locked(fd, first, last), low;

	if (rc <= 0 || first == last)
		return rc;
	low = __crpc_shm_fd_locks(fd, first, mid);
	if (low < 0)
		return low;
	rc = __crpc_shm_fd_locks(fd, mid + 1, last);
	return rc < 0 ? rc : low + rc;
}

struct crpc_shm_lock *
__crpc_shm_lock_hold(int fd, uint64_t page_size)
{
	struct crpc_shm_lock *lock = malloc(sizeof(*lock));

	if (lock == NULL)
		return NULL;
	lock->len = page_size;
	lock->pid = getpid();
	lock->page = mmap(NULL, lock->len, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (lock->page == MAP_FAILED)
		goto err_map;
	if (madvise(lock->page, lock->len, MADV_DONTFORK) != 0)
		goto err_advise;
	close(fd);
	return lock;

err_advise:
	munmap(lock->page, lock->len);
err_map:
	free(lock);
	return NULL;
}

/* A description of the segment's memory that holds no lock yet; descriptor or -errno, said. */
static int
describe(const struct crpc_shm *seg)
{
	struct stat st;
	int fd, rc;

	if (seg->memfd) {
		fd = __crpc_shm_fd_reopen(seg->fd);
		rc = fd;
	} else {
		fd = open(seg->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		rc = fd >= 0 ? 0 : errno == ENOENT ? -ECONNREFUSED : -errno;
	}
	if (fd < 0) {
		crpc_err("%s: cannot open it again: %s", seg->path, strerror(-rc));
		return rc;
	}
	if (seg->memfd || (fstat(fd, &st) == 0 && st.st_dev == seg->dev && st.st_ino == seg->ino))
		return fd;
	crpc_err("%s: replaced by another segment since it was attached", seg->path);
	close(fd);
	return -ECONNREFUSED;
}

struct crpc_shm_lock *
crpc_shm_lock_take(const struct crpc_shm *seg, uint32_t byte)
{
	struct crpc_shm_lock *lock;
	int fd = describe(seg), rc = fd;

	if (fd < 0)
		goto err;
	rc = __crpc_shm_fd_lock(fd, byte);
	if (rc != 0) {
		if (rc != -EAGAIN)
			crpc_err("%s: lock of byte %u: %s", seg->path, byte, strerror(-rc));
		goto err_close;
	}
	CRPC_CRASH_POINT("shm.lock.1");
	lock = __crpc_shm_lock_hold(fd, seg->page_size);
	CRPC_CRASH_POINT("shm.lock.2");
	if (lock != NULL)
		return lock;
	rc = -errno;
	crpc_err("%s: cannot map a page to hold the lock of byte %u: %s", seg->path, byte,
			strerror(errno));

err_close:
	close(fd);
err:
	errno = -rc;
	return NULL;
}

void
crpc_shm_lock_drop(struct crpc_shm_lock *lock)
{
	if (lock == NULL)
		return;
	if (lock->pid == getpid())
		munmap(lock->page, lock->len);
	free(lock);
}

int
crpc_shm_lock_held(const struct crpc_shm *seg, uint32_t byte)
{
	return __crpc_shm_fd_locked(seg->fd, byte);
}

int
crpc_shm_lock_count(const struct crpc_shm *seg, uint32_t first, uint32_t last)
{
	return first > last ? 0 : __crpc_shm_fd_locks(seg->fd, first, last);
}
