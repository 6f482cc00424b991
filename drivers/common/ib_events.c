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

/*
 * It is cancelled in poll() alone: an event that read() took has to be acknowledged. One that
 * poll() found may have gone with its object, so read() does not wait.
 */
static void *
watcher(void *arg)
{
	struct crpc_ib *ib = arg;
	struct pollfd fd = {.fd = ib->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	for (;;) {
		poll(&fd, 1, -1);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		if (ibv_get_async_event(ib->context, &event) == 0) {
			event_take(ib, &event);
			/* Or the object cannot be destroyed. */
			ibv_ack_async_event(&event);
		} else if (errno != EINTR && errno != EAGAIN) {
			break;
		}
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	}
	crpc_err("device %s: its events cannot be read any more: %s",
		ibv_get_device_name(ib->context->device), strerror(errno));
	return NULL;
}

int
crpc_ib_events_open(struct crpc_ib *ib)
{
	int rc;

	if (fcntl(ib->context->async_fd, F_SETFL, O_NONBLOCK) != 0)
		return crpc_fail(-errno, "open: events of devices: %s", strerror(errno));
	rc = crpc_thread_start(&ib->watcher, "crpc-ib-events", watcher, ib);
	if (rc != 0)
		return crpc_fail(
			-ENOMEM, "open: no thread for events of devices: %s", strerror(rc));
	ib->watcher_pid = getpid();
	return 0;
}

void
crpc_ib_events_close(struct crpc_ib *ib)
{
	if (ib->watcher_pid != getpid()) /* There is none, or it is the parent's. */
		return;
	pthread_cancel(ib->watcher); /* Where it waits for an event. */
	pthread_join(ib->watcher, NULL);
	ib->watcher_pid = 0;
}
