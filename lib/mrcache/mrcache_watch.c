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
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crpc_log.h"
#include "crpc_util.h"

#define CACHES_MAX 64
/* Events that one read takes. */
#define READ_MAX 16
#define FEATURES                                                                                   \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |         \
		UFFD_FEATURE_PAGEFAULT_FLAG_WP)
/* Since Linux 6.7: any kind of mapping can be watched, and no fault ever waits. */
#define FEATURE_WP_ASYNC (UINT64_C(1) << 15)
#ifndef USERFAULTFD_IOC_NEW /* since Linux 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY /* since Linux 5.11 */
#define UFFD_USER_MODE_ONLY 1
#endif

struct range {
	uint64_t start, end;
};

static struct {
	/* of the control path; the watcher never takes it */
	pthread_mutex_t lock;
	uint32_t users;
	int fd, stop;
	pthread_t thread;
	struct range *range; /* one per region of any cache; they may overlap */
	uint32_t nranges, room;
	/* shared with the watcher */
	_Atomic uint32_t busy;
	_Atomic uint32_t gone; /* it has done with fd */
	_Atomic uint64_t faults;
	struct mrwatch *_Atomic cache[CACHES_MAX];
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .stop = -1};

/* ---- the watcher ---- */

static void
range_put(struct mrwatch *w, uint64_t start, uint64_t end)
{
	uint32_t tail = crpc_load_relaxed(&w->tail);

	/* acquire: pairs with the owner's release of head: it has read what was there */
	if (tail - crpc_load_acquire(&w->head) == MRWATCH_RANGES) {
		crpc_store_release(&w->lost, 1);
		return;
	}
	w->range[tail % MRWATCH_RANGES].start = start;
	w->range[tail % MRWATCH_RANGES].end = end;
	/* W1: release, pairs with O1 */
	crpc_store_release(&w->tail, tail + 1);
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
	uint64_t start, end;
	struct mrwatch *w;

	if (msg->event == UFFD_EVENT_UNMAP || msg->event == UFFD_EVENT_REMOVE) {
		start = msg->arg.remove.start;
		end = msg->arg.remove.end;
	} else if (msg->event == UFFD_EVENT_REMAP) {
		start = msg->arg.remap.from;
		end = start + msg->arg.remap.len;
	} else {
		if (msg->event == UFFD_EVENT_PAGEFAULT)
			fault_wake(msg->arg.pagefault.address);
		return;
	}
	for (uint32_t i = 0; i < CACHES_MAX; i++) {
		/* acquire: pairs with the release of join: the ring is empty, not garbage */
		w = crpc_load_acquire(&watch.cache[i]);
		if (w != NULL)
			range_put(w, start, end);
	}
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
		 * order it before what follows there. seq_cst: leave() looks at it.
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

/* An fd takes one query: the first fd is queried for what there is, the second one is configured.
 */
static int
fd_make(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = fd_open(), rc;
	uint64_t has;

	if (fd < 0)
		return fd;
	rc = ioctl(fd, UFFDIO_API, &api);
	has = api.features;
	close(fd);
	if (rc != 0 || (has & FEATURES) != FEATURES)
		return -EOPNOTSUPP;
	fd = fd_open();
	if (fd < 0)
		return fd;
	api = (struct uffdio_api){.api = UFFD_API, .features = FEATURES | (has & FEATURE_WP_ASYNC)};
	if (ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	close(fd);
	return -EOPNOTSUPP;
}

/* It runs on any core: its maker may be the only thread that is to run on its own. */
static int
thread_start(void)
{
	sigset_t all, old;
	cpu_set_t cpus;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&watch.thread, NULL, watcher, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return -rc;
	pthread_setname_np(watch.thread, "crpc-mrwatch");
	memset(&cpus, 0xff, sizeof(cpus));
	pthread_setaffinity_np(watch.thread, sizeof(cpus), &cpus);
	return 0;
}

static void
watch_fini(void)
{
	close(watch.fd); /* from here on unmapping does not wait for the watcher */
	close(watch.stop);
	watch.fd = watch.stop = -1;
	free(watch.range);
	watch.range = NULL;
	watch.nranges = watch.room = 0;
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
	rc = watch.stop < 0 ? -errno : thread_start();
	if (rc != 0)
		watch_fini();
	return rc;
}

int
__crpc_mrwatch_join(struct mrwatch *w)
{
	uint32_t i = 0;
	int rc = 0;

	pthread_mutex_lock(&watch.lock);
	while (i < CACHES_MAX && crpc_load_relaxed(&watch.cache[i]) != NULL)
		i++;
	if (i == CACHES_MAX)
		rc = -ENOSPC;
	else if (watch.users == 0)
		rc = watch_init();
	if (rc == 0) {
		watch.users++;
		crpc_store_release(&watch.cache[i], w);
	}
	pthread_mutex_unlock(&watch.lock);
	return rc;
}

void
__crpc_mrwatch_leave(struct mrwatch *w)
{
	uint64_t one = 1;
	uint32_t i = 0;

	pthread_mutex_lock(&watch.lock);
	while (crpc_load_relaxed(&watch.cache[i]) != w)
		i++;
	/* seq_cst with W0: it sees NULL, or we see it busy */
	(void)crpc_exchange_seq_cst(&watch.cache[i], NULL);
	while (crpc_load_seq_cst(&watch.busy) != 0)
		sched_yield();
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

/* ---- ranges ---- */

int
__crpc_mrwatch_add(uint64_t start, uint64_t end)
{
	struct uffdio_register reg = {
		.range = {.start = start, .len = end - start}, .mode = UFFDIO_REGISTER_MODE_WP};
	struct range *more;
	int rc = 0;

	pthread_mutex_lock(&watch.lock);
	if (watch.nranges == watch.room) {
		more = realloc(watch.range, (watch.room * 2 + 64) * sizeof(*more));
		if (more == NULL) {
			pthread_mutex_unlock(&watch.lock);
			return -ENOMEM;
		}
		watch.range = more;
		watch.room = watch.room * 2 + 64;
	}
	if (ioctl(watch.fd, UFFDIO_REGISTER, &reg) != 0)
		rc = -errno;
	else
		watch.range[watch.nranges++] = (struct range){start, end};
	pthread_mutex_unlock(&watch.lock);
	return rc;
}

/* The end of what is watched from an address on, or if it is not, *next the start of the next. */
static uint64_t
covered_to(uint64_t at, uint64_t *next)
{
	uint64_t to = at;

	for (uint32_t i = 0; i < watch.nranges; i++) {
		if (watch.range[i].start <= at)
			to = crpc_max(to, watch.range[i].end);
		else
			*next = crpc_min(*next, watch.range[i].start);
	}
	return to;
}

void
__crpc_mrwatch_remove(uint64_t start, uint64_t end)
{
	struct uffdio_range gap;
	uint64_t to, next;
	uint32_t i = 0;

	pthread_mutex_lock(&watch.lock);
	while (watch.range[i].start != start || watch.range[i].end != end)
		i++;
	watch.range[i] = watch.range[--watch.nranges];
	for (uint64_t at = start; at < end; at = to) {
		next = end;
		to = covered_to(at, &next);
		if (to != at)
			continue;
		to = next;
		gap = (struct uffdio_range){.start = at, .len = to - at};
		/* it fails where something else is mapped now, which is not watched anyway */
		ioctl(watch.fd, UFFDIO_UNREGISTER, &gap);
	}
	pthread_mutex_unlock(&watch.lock);
}
