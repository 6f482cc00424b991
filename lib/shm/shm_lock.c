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

int
__crpc_shm_fd_lock(int fd, uint32_t byte, short type)
{
	struct flock l = {.l_type = type,
			.l_whence = SEEK_SET,
			.l_start = (off_t)byte,
			.l_len = 1};

	if (fcntl(fd, F_OFD_SETLK, &l) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/*
 * The kernel reports any one lock of a range: halve it until a range is free or a single byte. A
 * read lock is no sign of life: see __crpc_shm_fd_lock().
 */
int
__crpc_shm_fd_locks(int fd, uint32_t first, uint32_t last)
{
	struct flock l = {.l_type = F_WRLCK,
			.l_whence = SEEK_SET,
			.l_start = (off_t)first,
			.l_len = (off_t)last - (off_t)first + 1};
	uint32_t mid = first + (last - first) / 2;
	int low, high;

	if (fcntl(fd, F_OFD_GETLK, &l) != 0)
		return -errno;
	if (l.l_type != F_WRLCK || first == last)
		return l.l_type == F_WRLCK;
	low = __crpc_shm_fd_locks(fd, first, mid);
	if (low < 0)
		return low;
	high = __crpc_shm_fd_locks(fd, mid + 1, last);
	return high < 0 ? high : low + high;
}

struct crpc_shm_lock *
__crpc_shm_lock_hold(const struct crpc_shm *seg, int fd)
{
	struct crpc_shm_lock *lock = malloc(sizeof(*lock));
	int rc;

	if (lock == NULL)
		return NULL;
	*lock = (struct crpc_shm_lock){.len = seg->page_size, .pid = getpid()};
	lock->page = mmap(NULL, lock->len, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (lock->page != MAP_FAILED && madvise(lock->page, lock->len, MADV_DONTFORK) == 0) {
		close(fd);
		return lock;
	}
	rc = __crpc_shm_failed(seg->path, "cannot map a page to hold a lock", -errno);
	if (lock->page != MAP_FAILED)
		munmap(lock->page, lock->len);
	free(lock);
	return crpc_null(rc);
}

struct crpc_shm_lock *
crpc_shm_lock_take(const struct crpc_shm *seg, uint32_t byte)
{
	struct crpc_shm_lock *lock = NULL;
	/* A description that holds no lock yet: of the memory, or of the file at the path. */
	int fd = seg->memfd ? __crpc_shm_fd_reopen(seg->fd) : __crpc_shm_file_reopen(seg, O_RDWR);
	int rc = fd < 0 ? fd : __crpc_shm_fd_lock(fd, byte, F_WRLCK);

	if (fd < 0)
		__crpc_shm_failed(seg->path, "cannot open it again", rc);
	else if (rc != 0 && rc != -EAGAIN)
		__crpc_shm_failed(seg->path, "cannot lock a byte of it", rc);
	if (rc == 0) {
		CRPC_CRASH_POINT("shm.lock.1");
		lock = __crpc_shm_lock_hold(seg, fd);
		rc = -errno;
		CRPC_CRASH_POINT("shm.lock.2");
	}
	if (lock != NULL)
		return lock;
	if (fd >= 0)
		close(fd);
	return crpc_null(rc);
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
	return __crpc_shm_fd_locks(seg->fd, byte, byte);
}

int
crpc_shm_lock_count(const struct crpc_shm *seg, uint32_t first, uint32_t last)
{
	return first > last ? 0 : __crpc_shm_fd_locks(seg->fd, first, last);
}
