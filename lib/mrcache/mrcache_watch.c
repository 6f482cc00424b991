/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watcher of the address space; mrcache_watch.h describes it. Source: userfaultfd(2) and
 * ioctl_userfaultfd(2) of the Linux manual.
 */
#include "mrcache_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crpc_log.h"
#include "crpc_thread.h"

/* Events that one read takes. */
#define READ_MAX 16
#define FEATURES                                                                                   \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |         \
		UFFD_FEATURE_PAGEFAULT_FLAG_WP)
/* Since Linux 6.7: any kind of mapping can be watched, and no fault ever waits. */
#define FEATURE_WP_ASYNC (UINT64_C(1) << 15)

static struct {
	/* of the control path; the watcher never takes it */
	pthread_mutex_t lock;
	uint32_t users;
	int fd, stop;
	pthread_t thread;
	_Atomic uint32_t added; /* ranges, since the first cache joined */
	/* shared with the watcher */
	_Atomic uint32_t busy;
	_Atomic uint32_t gone; /* it has done with fd */
	_Atomic uint64_t faults;
	_Atomic uint64_t reports; /* so far; the newest lie in range[] */
	struct {
		_Atomic uint64_t start, end;
	} range[MRWATCH_RANGES];
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .stop = -1};

/* ---- the watcher ---- */

static void
range_put(uint64_t start, uint64_t end)
{
	uint64_t n = crpc_load_relaxed(&watch.reports);

	/* release, paired with the acquire of next(): who reads these sees that reports was n */
	crpc_store_release(&watch.range[n % MRWATCH_RANGES].start, start);
	crpc_store_release(&watch.range[n % MRWATCH_RANGES].end, end);
	/* W1: release, pairs with O1 */
	crpc_store_release(&watch.reports, n + 1);
}

/* Wake threads that wait for a page: none should, but none may wait for ever. */
static void
fault_wake(uint64_t addr)
{
	struct uffdio_range page = {.start = addr & ~UINT64_C(4095), .len = 4096};

	crpc_fetch_add_relaxed(&watch.faults, 1);
	ioctl(watch.fd, UFFDIO_WAKE, &page);
}

static void
event_take(const struct uffd_msg *msg)
{
	if (msg->event == UFFD_EVENT_UNMAP || msg->event == UFFD_EVENT_REMOVE)
		range_put(msg->arg.remove.start, msg->arg.remove.end);
	else if (msg->event == UFFD_EVENT_REMAP)
		range_put(msg->arg.remap.from, msg->arg.remap.from + msg->arg.remap.len);
	else if (msg->event == UFFD_EVENT_PAGEFAULT)
		fault_wake(msg->arg.pagefault.address);
}

static void *
watcher(void *arg)
{
	struct pollfd fds[2] = {
		{.fd = watch.fd, .events = POLLIN}, {.fd = watch.stop, .events = POLLIN}};
	struct uffd_msg msg[READ_MAX];
	ssize_t n;

	while (fds[1].revents == 0) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[0].revents == 0)
			continue;
		/*
		 * W0: before the read, which is what lets munmap() return; the kernel's own locks
		 * order it before what follows there.
		 */
		crpc_exchange_seq_cst(&watch.busy, 1);
		n = read(watch.fd, msg, sizeof(msg));
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(msg[0]); i++)
			event_take(&msg[i]);
		/* W2: release, pairs with O0 */
		crpc_store_release(&watch.busy, 0);
	}
	/* release: pairs with leave() */
	crpc_store_release(&watch.gone, 1);
	return NULL;
}

void
__crpc_mrwatch_settle(void)
{
	/* O0: acquire, pairs with W2. It is a few hundred instructions, unless it lost its core. */
	while (crpc_unlikely(crpc_load_acquire(&watch.busy) != 0))
		sched_yield();
}

bool
__crpc_mrwatch_next(uint64_t *seen, struct mr_range *range)
{
	uint64_t n = crpc_load_acquire(&watch.reports); /* O1 pairs with W1 */

	if (crpc_likely(n == *seen))
		return false;
	range->start = crpc_load_acquire(&watch.range[*seen % MRWATCH_RANGES].start);
	range->end = crpc_load_acquire(&watch.range[*seen % MRWATCH_RANGES].end);
	/* the watcher was faster, or is just writing there: any range may be meant */
	if (crpc_load_relaxed(&watch.reports) - *seen >= MRWATCH_RANGES) {
		*range = (struct mr_range){0, UINT64_MAX};
		*seen = n;
	} else {
		++*seen;
	}
	return true;
}

uint64_t
__crpc_mrwatch_faults(void)
{
	return crpc_load_relaxed(&watch.faults);
}

/* ---- making it ---- */

/*
 * For faults of user mode only, as we want none at all: that needs no privilege, but a container
 * may forbid it. Older kernels do not know of it.
 */
static int
fd_open(void)
{
	int fd, dev;

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -EPERM;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = -errno;
	close(dev);
	return fd;
}

/* An fd takes one query, and refuses features that the kernel does not have. */
static int
fd_make(void)
{
	struct uffdio_api api;
	int fd;

	for (uint64_t more = FEATURE_WP_ASYNC;; more = 0) {
		fd = fd_open();
		if (fd < 0)
			return fd;
		api = (struct uffdio_api){.api = UFFD_API, .features = FEATURES | more};
		if (ioctl(fd, UFFDIO_API, &api) == 0)
			return fd;
		close(fd);
		if (more == 0)
			return -EOPNOTSUPP;
	}
}

static void
watch_fini(void)
{
	close(watch.fd); /* from here on unmapping does not wait for the watcher */
	close(watch.stop);
	watch.fd = watch.stop = -1;
}

static int
watch_init(void)
{
	int rc;

	watch.fd = fd_make();
	if (watch.fd < 0)
		return watch.fd;
	watch.stop = eventfd(0, EFD_CLOEXEC);
	crpc_store_relaxed(&watch.gone, 0);
	crpc_store_relaxed(&watch.added, 0);
	rc = watch.stop < 0 ? -errno
			    : -crpc_thread_start(&watch.thread, "crpc-mrwatch", watcher, NULL);
	if (rc != 0)
		watch_fini();
	return rc;
}

int
__crpc_mrwatch_join(uint64_t *seen)
{
	int rc;

	pthread_mutex_lock(&watch.lock);
	rc = watch.users == 0 ? watch_init() : 0;
	watch.users += rc == 0;
	pthread_mutex_unlock(&watch.lock);
	*seen = crpc_load_relaxed(&watch.reports);
	return rc;
}

void
__crpc_mrwatch_leave(void)
{
	uint64_t one = 1;

	pthread_mutex_lock(&watch.lock);
	if (--watch.users == 0) {
		while (write(watch.stop, &one, sizeof(one)) != sizeof(one))
			;
		while (crpc_load_acquire(&watch.gone) == 0)
			sched_yield();
		/* first this: a join may unmap a stack, and no thread reads that event */
		watch_fini();
		pthread_join(watch.thread, NULL);
	}
	pthread_mutex_unlock(&watch.lock);
}

bool
__crpc_mrwatch_add(uint64_t start, uint64_t end)
{
	struct uffdio_register reg = {
		.range = {.start = start, .len = end - start}, .mode = UFFDIO_REGISTER_MODE_WP};

	return crpc_fetch_add_relaxed(&watch.added, 1) < MRWATCH_ADDED &&
	       ioctl(watch.fd, UFFDIO_REGISTER, &reg) == 0;
}
