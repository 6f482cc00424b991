/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events. A thread of each device sleeps until it has one: no poll asks the kernel.
 * What its owner has to do it finds in two words:
 *
 *     stale    the port is another one: read it again at the next control call
 *     failed   nothing completes any more: the next poll breaks all queue pairs
 *
 * A forked child has neither the thread nor the device.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "crpc_ib.h"
#include "crpc_log.h"
#include "crpc_thread.h"

static void
set_stale(struct crpc_ib *ib)
{
	/* Release: pairs with crpc_ib_refresh(), which reads the port after it. */
	crpc_store_release(&ib->stale, 1);
}

static void
set_failed(struct crpc_ib *ib)
{
	crpc_store_relaxed(&ib->failed, 1);
	/* Release: pairs with the owner's acquire, who then finds the word above. */
	crpc_store_release(&ib->attention, 1);
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
	struct crpc_ib *ib = arg;
	struct pollfd fds[] = {{.fd = ib->context->async_fd, .events = POLLIN},
		{.fd = ib->wake, .events = POLLIN}};

	while (fds[1].revents == 0) {
		events_take(ib);
		poll(fds, CRPC_DIM(fds), -1);
	}
	return NULL;
}

int
crpc_ib_events_open(struct crpc_ib *ib)
{
	int flags = fcntl(ib->context->async_fd, F_GETFL), rc;

	if (flags < 0 || fcntl(ib->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return crpc_fail(-EIO, "open: events of device %s: %s",
			ibv_get_device_name(ib->context->device), strerror(errno));
	ib->wake = eventfd(0, EFD_CLOEXEC);
	rc = ib->wake >= 0 ? crpc_thread_start(&ib->watcher, "crpc-ib-events", watcher, ib) : errno;
	if (rc == 0) {
		ib->watcher_pid = getpid();
		return 0;
	}
	if (ib->wake >= 0)
		close(ib->wake);
	return crpc_fail(-ENOMEM, "open: no thread for events of devices: %s", strerror(rc));
}

void
crpc_ib_events_close(struct crpc_ib *ib)
{
	if (ib->watcher_pid != getpid()) /* There is none, or it is the parent's. */
		return;
	eventfd_write(ib->wake, 1);
	pthread_join(ib->watcher, NULL);
	close(ib->wake);
	ib->watcher_pid = 0;
}
