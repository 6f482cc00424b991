/* SPDX-License-Identifier: BSD-3-Clause */

/* The descriptor of rdma_cm, its identifiers, the queue of events, and waiting for one. */
#include "cm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "say.h"

#define READY_MAX  16 /* Sockets that one pass serves. */
#define PASSES_MAX 64 /* Without an event; then the answer is that there is none. */
#define CONNECT_MS 20

/* Recursive: a socket of ours may be closed under the lock, and have the number of a channel that
 * the program closed unseen, which is then released. */
pthread_mutex_t cm_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static LIST_HEAD(, cm_chan) chans = LIST_HEAD_INITIALIZER(chans);
static struct uv_objs ids; /* Of all channels: librdmacm looks identifiers up by number alone. */

/* ---- the timer ---- */

/* Readable now if events wait, else at the first deadline. */
static void
timer_set(struct cm_chan *chan)
{
	struct itimerspec at = {0};
	uint64_t first = UINT64_MAX;
	struct cm_id *id;

	TAILQ_FOREACH (id, &chan->waiting, wait)
		first = crpc_min(first, id->deadline_ns);
	if (!TAILQ_EMPTY(&chan->events))
		first = 1;
	if (first != UINT64_MAX) {
		at.it_value.tv_sec = (time_t)(first / 1000000000u);
		at.it_value.tv_nsec = (long)(first % 1000000000u);
	}
	(void)timerfd_settime(chan->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void
cm_id_deadline(struct cm_id *id, uint64_t at_ns)
{
	if (id->deadline_ns != 0)
		TAILQ_REMOVE(&id->chan->waiting, id, wait);
	id->deadline_ns = at_ns;
	if (at_ns != 0)
		TAILQ_INSERT_TAIL(&id->chan->waiting, id, wait);
}

/* ---- identifiers and events ---- */

static struct cm_id *
id_at(uint32_t handle)
{
	return (void *)uv_objs_get(&ids, handle, UV_CM_ID);
}

struct cm_id *
cm_id_find(uint32_t handle)
{
	struct cm_id *id = id_at(handle);

	return id != NULL && id->listener == NULL ? id : NULL;
}

struct cm_id *
cm_id_new(struct cm_chan *chan, uint16_t ps, uint8_t qp_type)
{
	struct cm_id *id = calloc(1, sizeof(*id));
	int err = id == NULL ? ENOMEM : uv_objs_add(&ids, &id->obj, UV_CM_ID);

	if (err != 0) {
		free(id);
		errno = err;
		return NULL;
	}
	id->chan = chan;
	id->ps = ps;
	id->qp_type = qp_type;
	id->fd = id->device = -1;
	id->ack_timeout = CM_ACK_TIMEOUT;
	id->psn = (uint32_t)(uv_clock_read(CLOCK_MONOTONIC) >> 8) & 0xffffff;
	TAILQ_INSERT_TAIL(&chan->ids, id, link);
	return id;
}

void
cm_id_free(struct cm_id *id)
{
	struct cm_chan *chan = id->chan;
	struct cm_event *ev, *next_ev;
	struct cm_id *other, *next;

	TAILQ_REMOVE(&chan->ids, id, link);
	/* Strangers come and go: one that is dropped costs no look at all the others. */
	if (id->state == CM_LISTENING)
		SM_FOREACH_SAFE (other, &chan->ids, link, next)
			if (other->listener == id)
				cm_id_free(other);
	if (id->state != CM_REQ_AWAITED)
		SM_FOREACH_SAFE (ev, &chan->events, link, next_ev)
			if (ev->owner == id || ev->resp.id == id->obj.handle) {
				TAILQ_REMOVE(&chan->events, ev, link);
				free(ev);
			}
	uv_objs_del(&ids, &id->obj);
	cm_wire_close(id);
	free(id);
}

int
cm_id_migrate(struct cm_id *id, struct cm_chan *to)
{
	struct cm_chan *from = id->chan;
	struct cm_event *ev, *next_ev;
	struct cm_id *other, *next;
	uint64_t deadline_ns = id->deadline_ns;
	bool watched;
	int err = 0;

	if (from == to)
		return 0;
	watched = id->fd >= 0 && cm_wire_watch(id, EPOLL_CTL_MOD) == 0;
	id->chan = to;
	if (watched)
		err = cm_wire_watch(id, EPOLL_CTL_ADD);
	id->chan = from;
	if (err != 0)
		return err;
	if (watched)
		(void)cm_wire_watch(id, EPOLL_CTL_DEL);
	cm_id_deadline(id, 0);
	id->chan = to;
	cm_id_deadline(id, deadline_ns);
	TAILQ_REMOVE(&from->ids, id, link);
	TAILQ_INSERT_TAIL(&to->ids, id, link);
	SM_FOREACH_SAFE (other, &from->ids, link, next)
		if (other->listener == id && cm_id_migrate(other, to) != 0)
			cm_id_free(other); /* As one that was never accepted. */
	SM_FOREACH_SAFE (ev, &from->events, link, next_ev)
		if (ev->owner == id) {
			TAILQ_REMOVE(&from->events, ev, link);
			TAILQ_INSERT_TAIL(&to->events, ev, link);
		}
	timer_set(from);
	return 0;
}

struct rdma_ucm_event_resp *
cm_event_new(struct cm_id *id, enum cm_event_type type, int status)
{
	static struct rdma_ucm_event_resp nowhere;
	struct cm_id *owner = id->listener != NULL ? id->listener : id;
	struct cm_event *ev = owner != id || id->uid != 0 ? calloc(1, sizeof(*ev)) : NULL;

	if (ev == NULL)
		return &nowhere;
	ev->owner = owner;
	ev->resp.uid = owner->uid;
	ev->resp.id = id->obj.handle;
	ev->resp.event = type;
	ev->resp.status = (uint32_t)status;
	TAILQ_INSERT_TAIL(&id->chan->events, ev, link);
	return &ev->resp;
}

/* ---- messages and deadlines ---- */

static void
expire(struct cm_chan *chan)
{
	uint64_t now = uv_clock_read(CLOCK_MONOTONIC);
	struct cm_id *id, *next;

	SM_FOREACH_SAFE (id, &chan->waiting, wait, next)
		if (now >= id->deadline_ns)
			cm_wire_expired(id);
}

/* One pass: messages first, so that one that has come is not late. How many sockets there were. */
static int
serve(struct cm_chan *chan)
{
	struct epoll_event ready[READY_MAX];
	int n = epoll_wait(chan->file.fd, ready, READY_MAX, 0), sockets = 0;
	struct cm_id *id;

	for (int i = 0; i < n; i++) {
		id = id_at((uint32_t)ready[i].data.u64); /* NULL: the timer's. */
		if (id != NULL)
			cm_wire_ready(id);
		sockets += id != NULL;
	}
	if (n > 0)
		expire(chan);
	return sockets;
}

/* ---- commands ---- */

/* EAGAIN: there is none. */
int
cm_get_event(struct cm_chan *chan, struct cm_call *call)
{
	struct cm_event *ev;

	for (int i = 0; i < PASSES_MAX && TAILQ_EMPTY(&chan->events) && serve(chan) != 0; i++)
		continue;
	ev = TAILQ_FIRST(&chan->events);
	if (ev == NULL)
		return EAGAIN;
	if (uv_check_range(call->answer, call->room, true) != 0)
		return EFAULT;
	TAILQ_REMOVE(&chan->events, ev, link);
	ev->owner->events_reported++;
	id_at(ev->resp.id)->listener = NULL;
	memcpy(call->resp.at, &ev->resp, sizeof(ev->resp));
	free(ev);
	return 0;
}

/* The identifier that a request names: 0, ENOENT, or EINVAL if it is not for this command. */
static int
call_id(struct cm_chan *chan, const struct cm_command *cmd, struct cm_call *call)
{
	uint32_t handle;

	if (cmd->id_at == CM_NO_ID)
		return 0;
	memcpy(&handle, call->req.at + cmd->id_at, sizeof(handle));
	call->id = cm_id_find(handle);
	if (call->id == NULL)
		return ENOENT;
	return call->id->chan != chan || (cmd->device && call->id->device < 0) ? EINVAL : 0;
}

/* What a command knows of its channel, which may be closed under it. */
struct open_file {
	int fd;
	bool nonblock;
	uint64_t serial;
};

/* The program may close the channel while a thread of it waits for an event. */
static struct cm_chan *
chan_find(uint64_t serial)
{
	struct cm_chan *chan;

	LIST_FOREACH (chan, &chans, link)
		if (chan->serial == serial)
			break;
	return chan;
}

/* Waits without the lock, and may be cancelled there; fd -1: for a signal alone. */
static int
wait_ready(int fd, int cancel_state)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int err;

	pthread_mutex_unlock(&cm_lock);
	pthread_setcancelstate(cancel_state, NULL);
	err = poll(&pfd, 1, -1) < 0 ? errno : 0;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_mutex_lock(&cm_lock);
	return err;
}

/* Within CONNECT_MS a peer that is there takes a connection: then the request is sent at once. */
static void
wait_connected(struct cm_id *id)
{
	uint32_t handle = id->obj.handle;
	struct pollfd pfd = {.fd = id->fd, .events = POLLOUT};

	pthread_mutex_unlock(&cm_lock);
	(void)poll(&pfd, 1, CONNECT_MS);
	pthread_mutex_lock(&cm_lock);
	id = cm_id_find(handle);
	if (id != NULL && id->unsent)
		cm_wire_ready(id);
}

static int
run(struct open_file file, const struct cm_command *cmd, struct cm_call *call, int cancel_state)
{
	struct cm_chan *chan = chan_find(file.serial);
	int err;

	while (chan != NULL) {
		if (chan->dead) /* Its set and its timer are shared with the parent. */
			return EIO;
		err = call_id(chan, cmd, call);
		if (err == 0)
			err = cmd->fn(chan, call);
		timer_set(chan);
		if (err == 0 && cmd->fn == cm_connect && call->id->unsent)
			wait_connected(call->id);
		if (err != EAGAIN || cmd->fn != cm_get_event || file.nonblock)
			return err;
		err = wait_ready(file.fd, cancel_state);
		if (err != 0)
			return err;
		chan = chan_find(file.serial);
	}
	/* As in a kernel, where the file stays as long as a thread waits. */
	return cmd->fn == cm_get_event && !file.nonblock ? wait_ready(-1, cancel_state) : EBADF;
}

static int
command(struct open_file file, const uint8_t *buf, size_t len, int cancel_state)
{
	struct rdma_ucm_cmd_hdr hdr;
	struct cm_call call = {0};
	const struct cm_command *cmd;
	int err;

	if (len < sizeof(hdr))
		return EINVAL;
	if (uv_check_range((uintptr_t)buf, len, false) != 0)
		return EFAULT;
	memcpy(&hdr, buf, sizeof(hdr));
	if (hdr.cmd >= CM_COMMANDS || hdr.in + sizeof(hdr) > len)
		return EINVAL;
	cmd = &cm_commands[hdr.cmd];
	if (cmd->name == NULL)
		return ENOSYS;
	if (hdr.in < cmd->req_min)
		return EINVAL;
	if (hdr.out < cmd->resp_min)
		return ENOSPC;
	memcpy(call.req.at, buf + sizeof(hdr), crpc_min(hdr.in, cmd->req));
	call.room = crpc_min(hdr.out, cmd->resp);
	if (call.room != 0)
		memcpy(&call.answer, call.req.at + cmd->response_at, sizeof(call.answer));
	/* An event is asked for often, and there rarely. */
	if (call.room != 0 && cmd->fn != cm_get_event &&
		uv_check_range(call.answer, call.room, true) != 0)
		return EFAULT;
	pthread_mutex_lock(&cm_lock);
	err = run(file, cmd, &call, cancel_state);
	pthread_mutex_unlock(&cm_lock);
	if (err == 0 && call.room != 0)
		memcpy((void *)(uintptr_t)call.answer, call.resp.at, call.room);
	if (sm_tracing())
		sm_trace("fd %d rdma_cm %s: %s", file.fd, cmd->name,
			err == 0 ? "ok" : strerror(err));
	return err;
}

ssize_t
cm_write(int fd, const void *buf, size_t len)
{
	struct open_file file = {.fd = fd, .nonblock = (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0};
	struct cm_chan *chan;
	int state, err;

	/* Only where it waits may the thread be cancelled, which a kernel allows anywhere. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&cm_lock);
	chan = cm_chan_of(sm_file_find(fd)); /* Under the lock, without which none is freed. */
	file.serial = chan != NULL ? chan->serial : 0;
	pthread_mutex_unlock(&cm_lock);
	err = chan != NULL ? command(file, buf, len, state) : EINVAL;
	pthread_setcancelstate(state, NULL);
	if (err == 0)
		return (ssize_t)len;
	errno = err;
	return -1;
}

/* ---- descriptors ---- */

/* All epoll sets have the same inode; this one has our timer in it. */
static bool
is_shown_by(const struct sm_file *file, int fd)
{
	int timer = ((const struct cm_chan *)(const void *)file)->timer; /* It begins with it. */
	struct epoll_event ev = {.events = EPOLLIN};

	return epoll_ctl(fd, EPOLL_CTL_MOD, timer, &ev) == 0;
}

static void
chan_release(struct sm_file *file)
{
	struct cm_chan *chan = cm_chan_of(file);
	struct cm_id *id;

	pthread_mutex_lock(&cm_lock);
	while ((id = TAILQ_FIRST(&chan->ids)) != NULL)
		cm_id_free(id);
	LIST_REMOVE(chan, link);
	close(chan->timer);
	free(chan);
	pthread_mutex_unlock(&cm_lock);
}

int
cm_open(int flags)
{
	static uint64_t serial;
	struct epoll_event ev = {.events = EPOLLIN};
	struct cm_chan *chan = calloc(1, sizeof(*chan));
	int fd, err = ENOMEM;

	uv_fork_register();
	if (chan == NULL)
		goto err_errno;
	TAILQ_INIT(&chan->ids);
	TAILQ_INIT(&chan->waiting);
	TAILQ_INIT(&chan->events);
	chan->file.kind = SM_FILE_CM;
	chan->file.release = chan_release;
	chan->file.is_shown_by = is_shown_by;
	chan->timer = sm_fd_hide(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	fd = epoll_create1((flags & O_CLOEXEC) != 0 ? EPOLL_CLOEXEC : 0);
	if (fd < 0 || chan->timer < 0 || fcntl(fd, F_SETFL, flags & O_NONBLOCK) != 0 ||
		epoll_ctl(fd, EPOLL_CTL_ADD, chan->timer, &ev) != 0) {
		err = errno;
		goto err_close;
	}
	pthread_mutex_lock(&cm_lock);
	chan->serial = ++serial;
	LIST_INSERT_HEAD(&chans, chan, link);
	pthread_mutex_unlock(&cm_lock);
	err = sm_file_add(&chan->file, fd);
	if (err == 0)
		return fd;
	pthread_mutex_lock(&cm_lock);
	LIST_REMOVE(chan, link);
	pthread_mutex_unlock(&cm_lock);

err_close:
	if (fd >= 0)
		close(fd);
	if (chan->timer >= 0)
		close(chan->timer);
	free(chan);
err_errno:
	errno = err;
	return -1;
}

/* The sockets are the parent's: while a copy is open, peers would not see that it ended. */
void
cm_fork_child(void)
{
	struct cm_chan *chan;
	struct cm_id *id;

	cm_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	LIST_FOREACH (chan, &chans, link) {
		chan->dead = true;
		TAILQ_FOREACH (id, &chan->ids, link) {
			if (id->fd >= 0)
				close(id->fd);
			id->fd = -1;
		}
	}
}
