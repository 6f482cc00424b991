/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Event queues as pipes: the program reads, polls and closes its end with ordinary system calls. It
 * reads one event at a time, as of a kernel, and finds it whole.
 *
 * ibv_destroy_cq() waits until the program has acknowledged as many events as the kernel says it
 * read. So what was sent and not read is taken back at destroy and does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "uverbs.h"

static void
chan_release(struct sm_file *file)
{
	uv_chan_put(crpc_container_of(file, struct uv_chan, file));
}

/* Another thread may have held its lock. */
static void
chan_forget(struct sm_file *file)
{
}

/* Our two ends have the same inode as the program's. */
static bool
is_shown_by(const struct sm_file *file, int fd)
{
	const struct uv_chan *chan = (const void *)file; /* It begins with it. */

	return fd != chan->tx && fd != chan->rx;
}

static void
ends_close(const struct uv_chan *chan)
{
	close(chan->tx);
	close(chan->rx);
}

void
uv_chan_fork_child(struct uv_chan *chan)
{
	if (chan->file.release == chan_forget)
		return; /* Of a fork before. */
	ends_close(chan);
	chan->file.release = chan_forget;
}

int
uv_chan_create(enum sm_file_kind kind, struct uv_chan **chan, uint32_t *fd)
{
	struct uv_chan *c = calloc(1, sizeof(*c));
	int ends[2], err;
	char path[32];

	if (c == NULL)
		return ENOMEM;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		err = errno;
		goto err_free;
	}
	/* Another open file than the program's, which may wait in it, or may not. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
	c->rx = sm_fd_hide(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	c->tx = sm_fd_hide(ends[1]);
	c->msg_size = kind == SM_FILE_COMP ? sizeof(struct ib_uverbs_comp_event_desc)
					   : sizeof(struct ib_uverbs_async_event_desc);
	pthread_mutex_init(&c->lock, NULL);
	atomic_init(&c->refs, 1);
	c->file.kind = kind;
	c->file.release = chan_release;
	c->file.is_shown_by = is_shown_by;
	err = c->rx < 0 || c->tx < 0 || fcntl(c->tx, F_SETFL, O_NONBLOCK) != 0
		? EMFILE
		: sm_file_add(&c->file, ends[0]);
	if (err != 0)
		goto err_close;
	*chan = c;
	*fd = (uint32_t)ends[0];
	return 0;

err_close:
	close(ends[0]);
	ends_close(c);
	pthread_mutex_destroy(&c->lock);
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
	ends_close(chan);
	pthread_mutex_destroy(&chan->lock);
	free(chan);
}

/*
 * One event, under the channel's lock. A pipe that is full gets larger, up to what the system
 * allows a user: from 65536 unread events on they are dropped.
 */
static bool
event_put(const struct uv_chan *chan, const uint64_t msg[2])
{
	while (write(chan->tx, msg, chan->msg_size) != (ssize_t)chan->msg_size)
		if (errno != EAGAIN ||
			fcntl(chan->tx, F_SETPIPE_SZ, 2 * fcntl(chan->tx, F_GETPIPE_SZ)) < 0)
			return false;
	return true;
}

static void
event_send(struct uv_chan *chan, struct uv_events *events, const uint64_t msg[2])
{
	int saved = errno;

	pthread_mutex_lock(&chan->lock);
	/* Counted before it can be read: a destroy that runs at once must not count too few. */
	crpc_fetch_add_relaxed(&events->sent, 1u);
	if (!event_put(chan, msg))
		crpc_fetch_add_relaxed(&events->sent, -1u);
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

uint32_t
uv_events_read(struct uv_chan *chan, struct uv_events *events)
{
	uint32_t sent = crpc_load_relaxed(&events->sent);
	uint64_t msg[2];
	int left = 0;

	if (chan == NULL || sent == 0)
		return 0;
	pthread_mutex_lock(&chan->lock);
	/* Once round all that is unread: what is of others goes behind the rest. */
	(void)ioctl(chan->rx, FIONREAD, &left);
	for (; left > 0 && read(chan->rx, msg, chan->msg_size) == (ssize_t)chan->msg_size;
		left -= (int)chan->msg_size)
		if (msg[0] == events->element)
			sent--;
		else
			(void)event_put(chan, msg);
	pthread_mutex_unlock(&chan->lock);
	return sent;
}
