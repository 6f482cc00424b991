/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Event queues as socket pairs of type SEQPACKET: the program reads, polls and closes its end with
 * ordinary system calls, and one message is one event.
 *
 * ibv_destroy_cq() waits until the program has acknowledged as many events as the kernel says it
 * read. So what was sent and not read is taken back at destroy and does not count.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "uverbs.h"

/* Socket memory for events; the kernel doubles it. One event takes about 768 bytes of it. */
#define CHAN_BYTES (208 * 1024)
/* More than fit into that. */
#define KEEP_MAX 2048

static void
chan_release(struct sm_file *file)
{
	uv_chan_put(crpc_container_of(file, struct uv_chan, file));
}

int
uv_chan_create(enum sm_file_kind kind, struct uv_chan **chan, int *fd)
{
	int pair[2], size = CHAN_BYTES, err;
	struct uv_chan *c;

	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		err = errno;
		goto err_free;
	}
	/* Best effort: a smaller buffer only makes uv_send_late() work more often. */
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	c->tx = pair[1];
	atomic_init(&c->refs, 1);
	c->file.kind = kind;
	c->file.release = chan_release;
	err = sm_file_add(&c->file, pair[0]);
	if (err != 0)
		goto err_close;
	*chan = c;
	*fd = pair[0];
	return 0;

err_close:
	close(pair[0]);
	close(pair[1]);
err_free:
	free(c);
	return err;
}

void
uv_chan_get(struct uv_chan *chan)
{
	crpc_fetch_add_relaxed(&chan->refs, 1u);
}

void
uv_chan_put(struct uv_chan *chan)
{
	if (atomic_fetch_sub_explicit(&chan->refs, 1u, memory_order_acq_rel) != 1)
		return;
	close(chan->tx);
	free(chan);
}

static bool
chan_send(struct uv_chan *chan, const void *msg, size_t len)
{
	return send(chan->tx, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

/* Whether the event is out of our hands: read or to be read, or there is no reader any more. */
static bool
comp_send(struct uv_cq *cq)
{
	struct ib_uverbs_comp_event_desc desc = {.cq_handle = cq->comp.element};

	/* Counted before it can be read: a destroy that runs at once must not count too few. */
	crpc_fetch_add_relaxed(&cq->comp.sent, 1u);
	if (chan_send(cq->chan, &desc, sizeof(desc)))
		return true;
	crpc_fetch_add_relaxed(&cq->comp.sent, -1u);
	return errno != EAGAIN && errno != ENOBUFS;
}

static void
mark_late(struct uv_cq *cq)
{
	if (!atomic_exchange_explicit(&cq->late, true, memory_order_relaxed))
		crpc_fetch_add_relaxed(&cq->comp.ctx->late_events, 1u);
}

bool
uv_unmark_late(struct uv_cq *cq)
{
	if (!atomic_exchange_explicit(&cq->late, false, memory_order_relaxed))
		return false;
	crpc_fetch_add_relaxed(&cq->comp.ctx->late_events, -1u);
	return true;
}

void
uv_comp_event(void *user)
{
	struct uv_cq *cq = user;
	int saved = errno;

	if (cq->chan != NULL && !comp_send(cq))
		mark_late(cq);
	errno = saved;
}

void
uv_async_event(void *user, enum sm_async_type type)
{
	struct uv_events *ev = user;
	struct ib_uverbs_async_event_desc desc = {.event_type = type};
	int saved = errno;

	if (type == SM_EVENT_CQ_ERR)
		ev = &((struct uv_cq *)user)->async;
	else if (type == SM_EVENT_SRQ_LIMIT_REACHED) /* it fires once: the limit is off now */
		crpc_store_relaxed(&crpc_container_of(ev, struct uv_srq, async)->limit, 0u);
	desc.element = ev->element;
	if (ev->ctx->async != NULL) {
		crpc_fetch_add_relaxed(&ev->sent, 1u);
		if (!chan_send(ev->ctx->async, &desc, sizeof(desc)))
			crpc_fetch_add_relaxed(&ev->sent, -1u);
	}
	errno = saved;
}

uint32_t
uv_events_read(struct uv_chan *chan, struct uv_events *events, size_t msg_size)
{
	uint64_t keep[KEEP_MAX][2];
	uint32_t i, n = 0, unread = 0;

	if (chan == NULL || crpc_load_relaxed(&events->sent) == 0)
		return 0;
	/* The program may have closed its end: then nobody will read the rest, and it counts as
	 * read only if it was. */
	while (n < KEEP_MAX && sm_file_find(chan->file.fd) == &chan->file &&
			recv(chan->file.fd, keep[n], msg_size, MSG_DONTWAIT) == (ssize_t)msg_size) {
		if (keep[n][0] == events->element)
			unread++;
		else
			n++;
	}
	for (i = 0; i < n; i++)
		(void)chan_send(chan, keep[i], msg_size); /* there is room: it was just there */
	return crpc_load_relaxed(&events->sent) - unread;
}

void
uv_send_late(struct uv_ctx *ctx)
{
	struct uv_obj *obj;
	struct uv_cq *cq;
	uint32_t h;

	if (pthread_mutex_trylock(&ctx->lock) != 0)
		return;
	for (h = 1; (obj = uv_objs_at_or_after(&ctx->objs, h)) != NULL; h = obj->handle + 1) {
		cq = crpc_container_of(obj, struct uv_cq, obj);
		/* Unmarked first: an event that comes meanwhile marks it again. */
		if (obj->type == UV_CQ && uv_unmark_late(cq) && !comp_send(cq))
			mark_late(cq);
	}
	pthread_mutex_unlock(&ctx->lock);
}
