/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events. One thread of the process sleeps until a device has one: no poll asks the
 * kernel. What its owner has to do it finds in two words:
 *
 *     stale    the port is another one: read it again at the next control call
 *     failed   nothing completes any more: the next poll breaks all queue pairs
 *
 * The thread starts with the first open device and ends with the last one. A forked child has
 * neither it nor devices.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "crpc_ib.h"
#include "crpc_log.h"

/* Devices that one process may have open: one for each lcore and port. */
#define WATCH_MAX 256

static struct {
	pthread_mutex_t control; /* One opens or closes at a time. Taken before the other one. */
	pthread_mutex_t lock;    /* Of the list; the thread holds it but for its sleep. */
	pid_t pid;               /* Whose thread it is. */
	struct crpc_ib *ib[WATCH_MAX];
	uint32_t num;
	pthread_t thread;
	int wake[2]; /* A byte: look at the list again. */
} watch = {.control = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static void
set_stale(struct crpc_ib *ib)
{
	/* Release: pairs with crpc_ib_refresh(), which reads the port after it. */
	crpc_store_release(&ib->stale, 1);
}

static void
set_failed(struct crpc_ib *ib)
{
	crpc_store_relaxed(ib->failed, 1);
	/* Release: pairs with the owner's acquire, who then finds the word above. */
	crpc_store_release(ib->attention, 1);
}

static void
event_take(struct crpc_ib *ib, const struct ibv_async_event *event)
{
	const char *name = ibv_get_device_name(ib->context->device);
	const char *what = ibv_event_type_str(event->event_type);

	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		if (event->element.port_num != ib->port)
			break;
		crpc_warn("device %s port %u: %s", name, ib->port, what);
		set_stale(ib);
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR:
		crpc_err("device %s: %s: its queue pairs are closed", name, what);
		set_failed(ib);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
		break;
	default: /* Of one queue: completions say the rest. */
		crpc_notice("device %s: %s", name, what);
	}
}

static void
events_take(struct crpc_ib *ib)
{
	struct ibv_async_event event;

	/* Each one must be acknowledged, or the object cannot be destroyed. */
	while (ibv_get_async_event(ib->context, &event) == 0) {
		event_take(ib, &event);
		ibv_ack_async_event(&event);
	}
}

static void *
watcher(void *arg)
{
	struct pollfd fds[WATCH_MAX + 1];
	uint32_t num;
	char byte;

	pthread_mutex_lock(&watch.lock);
	while (watch.num != 0) {
		num = watch.num;
		for (uint32_t i = 0; i < num; i++)
			fds[i] = (struct pollfd){
				.fd = watch.ib[i]->context->async_fd, .events = POLLIN};
		fds[num] = (struct pollfd){.fd = watch.wake[0], .events = POLLIN};
		pthread_mutex_unlock(&watch.lock);
		poll(fds, num + 1, -1);
		pthread_mutex_lock(&watch.lock);
		while (read(watch.wake[0], &byte, 1) == 1)
			;
		/* The list may have changed: all of it, none of which waits. */
		for (uint32_t i = 0; i < watch.num; i++)
			events_take(watch.ib[i]);
	}
	pthread_mutex_unlock(&watch.lock);
	return NULL;
}

/* It runs on any core, as the lcore that opens a device is not to be shared. */
static int
thread_start(void)
{
	sigset_t all, old;
	cpu_set_t cpus;
	int rc;

	if (pipe2(watch.wake, O_NONBLOCK | O_CLOEXEC) != 0)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&watch.thread, NULL, watcher, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0) {
		close(watch.wake[0]);
		close(watch.wake[1]);
		return -rc;
	}
	pthread_setname_np(watch.thread, "crpc-ib-events");
	memset(&cpus, 0xff, sizeof(cpus));
	pthread_setaffinity_np(watch.thread, sizeof(cpus), &cpus);
	return 0;
}

static void
wake(void)
{
	/* Full: it will wake up in any case. */
	if (write(watch.wake[1], "", 1) < 0)
		return;
}

/* Adds it to the list, and has the thread look at that. */
static int
list_add(struct crpc_ib *ib)
{
	int rc = 0;

	pthread_mutex_lock(&watch.lock);
	if (watch.num == WATCH_MAX)
		rc = -ENOSPC;
	else
		watch.ib[watch.num++] = ib;
	if (rc == 0 && watch.num > 1) {
		wake();
	} else if (rc == 0) {
		rc = thread_start();
		watch.num = rc == 0;
	}
	pthread_mutex_unlock(&watch.lock);
	return rc;
}

int
crpc_ib_events_open(struct crpc_ib *ib, _Atomic uint32_t *failed, _Atomic uint32_t *attention)
{
	int flags = fcntl(ib->context->async_fd, F_GETFL), rc;

	if (flags < 0 || fcntl(ib->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return crpc_fail(-EIO, "open: events of device %s: %s",
			ibv_get_device_name(ib->context->device), strerror(errno));
	ib->failed = failed;
	ib->attention = attention;
	pthread_mutex_lock(&watch.control);
	if (watch.pid != getpid()) { /* What was inherited is the parent's. */
		pthread_mutex_init(&watch.lock, NULL);
		watch.num = 0;
		watch.pid = getpid();
	}
	rc = list_add(ib);
	pthread_mutex_unlock(&watch.control);
	if (rc == 0)
		return 0;
	ib->attention = NULL;
	return crpc_fail(-ENOMEM, "open: no thread for events of devices: %s", strerror(-rc));
}

/* The last one: the thread ends. */
static void
thread_end(void)
{
	pthread_join(watch.thread, NULL);
	close(watch.wake[0]);
	close(watch.wake[1]);
}

void
crpc_ib_events_close(struct crpc_ib *ib)
{
	bool last;

	if (ib->attention == NULL || watch.pid != getpid())
		return;
	pthread_mutex_lock(&watch.control);
	pthread_mutex_lock(&watch.lock);
	ib->attention = NULL;
	for (uint32_t i = 0; i < watch.num; i++)
		if (watch.ib[i] == ib)
			watch.ib[i] = watch.ib[watch.num - 1];
	last = --watch.num == 0;
	wake();
	pthread_mutex_unlock(&watch.lock);
	if (last)
		thread_end();
	pthread_mutex_unlock(&watch.control);
}
