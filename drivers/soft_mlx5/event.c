/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Event queues as socket pairs of type SEQPACKET: the program reads, polls and closes its end with
 * ordinary system calls, and one message is one event.
 *
 *     NIC -- late[], what found no room, in order --> socket --> program
 *
 * ibv_destroy_cq() waits until the program has acknowledged as many events as the kernel says it
 * read. So what was sent and not read is taken back at destroy and does not count.
 *
 * A channel's lock makes both one queue: whoever sends while something waits, waits behind it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "uverbs.h"

/* Socket memory for events; the kernel doubles it. One event takes about 768 bytes of it. */
#define CHAN_BYTES (208 * 1024)
/* More than fit into that. */
#define UNREAD_MAX 2048

static void
chan_release(struct sm_file *file)
{
	uv_chan_put(crpc_container_of(file, struct uv_chan, file));
}

/* Another thread may have held its lock and been at its list. */
static void
chan_forget(struct sm_file *file)
{
}

void
uv_chan_fork_child(struct uv_chan *chan)
{
	if (chan->file.release == chan_forget)
		return; /* Of a fork before. */
	close(chan->tx);
	chan->file.release = chan_forget;
}

/* Room for so many more that wait, and for all that a destroy may take back: it needs no memory. */
static bool
late_reserve(struct uv_chan *chan, uint32_t n)
{
	uint32_t room = chan->nlate + n + UNREAD_MAX;
	void *late;

	if (room <= chan->late_room)
		return true;
	room = (uint32_t)crpc_pow2_ceil(room);
	late = realloc(chan->late, room * sizeof(*chan->late));
	if (late == NULL)
		return false;
	chan->late = late;
	chan->late_room = room;
	return true;
}

int
uv_chan_create(enum sm_file_kind kind, struct uv_chan **chan, uint32_t *fd)
{
	int pair[2], size = CHAN_BYTES, err;
	struct uv_chan *c;

	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return ENOMEM;
	if (!late_reserve(c, 0) ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		err = errno;
		goto err_free;
	}
	c->tx = sm_fd_hide(pair[1]);
	/* Best effort: a smaller buffer only makes uv_send_late() work more often. */
	(void)setsockopt(c->tx, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	c->msg_size = kind == SM_FILE_COMP ? sizeof(struct ib_uverbs_comp_event_desc)
					   : sizeof(struct ib_uverbs_async_event_desc);
	pthread_mutex_init(&c->lock, NULL);
	atomic_init(&c->refs, 1);
	c->file.kind = kind;
	c->file.release = chan_release;
	err = c->tx >= 0 ? sm_file_add(&c->file, pair[0]) : EMFILE;
	if (err != 0)
		goto err_close;
	*chan = c;
	*fd = (uint32_t)pair[0];
	return 0;

err_close:
	close(pair[0]);
	close(c->tx);
	pthread_mutex_destroy(&c->lock);
err_free:
	free(c->late);
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
	pthread_mutex_destroy(&chan->lock);
	free(chan->late);
	free(chan);
}

/* One event, to who reads; false with EAGAIN: later, or with what else is wrong. */
static bool
send_now(const struct uv_chan *chan, const uint64_t msg[2])
{
	if (send(chan->tx, msg, chan->msg_size, MSG_DONTWAIT | MSG_NOSIGNAL) ==
			(ssize_t)chan->msg_size)
		return true;
	if (errno == ENOBUFS)
		errno = EAGAIN;
	return false;
}

/* Under the channel's lock: sends what waits, as much as there is room for. */
static void
late_send(struct uv_ctx *ctx, struct uv_chan *chan)
{
	uint32_t i = 0;

	/* Without a reader, an event is dropped. */
	while (i < chan->nlate && (send_now(chan, chan->late[i]) || errno != EAGAIN))
		i++;
	chan->nlate -= i;
	if (i != 0 && chan->nlate != 0)
		memmove(chan->late, chan->late + i, chan->nlate * sizeof(*chan->late));
	crpc_fetch_add_relaxed(&ctx->late_events, -i);
}

/* An event of a queue to its channel, now or when there is room. */
static void
event_send(struct uv_chan *chan, struct uv_events *events, const uint64_t msg[2])
{
	int saved = errno;
	bool sent;

	pthread_mutex_lock(&chan->lock);
	/* Counted before it can be read: a destroy that runs at once must not count too few. */
	crpc_fetch_add_relaxed(&events->sent, 1u);
	sent = chan->nlate == 0 && send_now(chan, msg);
	if (!sent && (chan->nlate != 0 || errno == EAGAIN) && late_reserve(chan, 1)) {
		memcpy(chan->late[chan->nlate++], msg, sizeof(*chan->late));
		crpc_fetch_add_relaxed(&events->ctx->late_events, 1u);
	} else if (!sent) {
		crpc_fetch_add_relaxed(&events->sent, -1u);
	}
	pthread_mutex_unlock(&chan->lock);
	errno = saved;
}

void
uv_comp_event(void *user)
{
	struct uv_cq *cq = user;
	const uint64_t msg[2] = {cq->comp.element};

	if (cq->chan != NULL)
		event_send(cq->chan, &cq->comp, msg);
}

void
uv_async_event(void *user, enum ibv_event_type type)
{
	struct uv_queue *q = user;
	struct ib_uverbs_async_event_desc desc = {
		.element = q->async.element, .event_type = type};
	uint64_t msg[2];

	memcpy(msg, &desc, sizeof(msg));
	if (q->async.ctx->async != NULL)
		event_send(q->async.ctx->async, &q->async, msg);
}

void
uv_port_event(struct uv_ctx *ctx, enum ibv_event_type type)
{
	struct uv_queue port = {.async = {.ctx = ctx, .element = ctx->port_events.element}};

	uv_async_event(&port, type);
}

uint32_t
uv_events_read(struct uv_chan *chan, struct uv_events *events)
{
	uint64_t unread[UNREAD_MAX][2];
	uint32_t n = 0, to = 0, before;

	if (chan == NULL || crpc_load_relaxed(&events->sent) == 0)
		return 0;
	pthread_mutex_lock(&chan->lock);
	before = chan->nlate;
	/* All that is unread, in its order, is what waits. The program may have closed its end:
	 * then the rest is never read, and it counts as read only if it was. */
	while (n < UNREAD_MAX && sm_file_find(chan->file.fd) == &chan->file &&
		recv(chan->file.fd, unread[n], chan->msg_size, MSG_DONTWAIT) ==
			(ssize_t)chan->msg_size)
		n++;
	if (n != 0) {
		memmove(chan->late + n, chan->late, chan->nlate * sizeof(*chan->late));
		memcpy(chan->late, unread, n * sizeof(*chan->late));
	}
	for (uint32_t i = 0; i < before + n; i++)
		if (chan->late[i][0] != events->element)
			memmove(chan->late[to++], chan->late[i], sizeof(*chan->late));
	chan->nlate = to;
	crpc_fetch_add_relaxed(&events->ctx->late_events, to - before);
	late_send(events->ctx, chan);
	pthread_mutex_unlock(&chan->lock);
	return crpc_load_relaxed(&events->sent) - (before + n - to);
}

static void
chan_send_late(struct uv_ctx *ctx, struct uv_chan *chan)
{
	if (chan == NULL)
		return;
	pthread_mutex_lock(&chan->lock);
	late_send(ctx, chan);
	pthread_mutex_unlock(&chan->lock);
}

void
uv_send_late(struct uv_ctx *ctx)
{
	struct uv_obj *obj;

	if (pthread_mutex_trylock(&ctx->lock) != 0)
		return;
	chan_send_late(ctx, ctx->async);
	for (uint32_t h = 1; (obj = uv_objs_at_or_after(&ctx->objs, h)) != NULL;
		h = obj->handle + 1)
		if (obj->type == UV_CQ)
			chan_send_late(ctx, ((struct uv_cq *)(void *)obj)->chan);
	pthread_mutex_unlock(&ctx->lock);
}
