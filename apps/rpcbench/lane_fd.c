/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the kernel: a Unix socket (SOCK_STREAM) or two pipes for each client. Both sides spin
 * on non-blocking descriptors, which is many times faster than to sleep in them, and pass all the
 * messages of a burst in one system call. A server of several clients asks epoll who has sent.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lane_loop.h"

extern const struct lane_way lane_unix, lane_pipe;

#define EVENTS 64

/* One direction of one client: whole messages and the begin of the next. */
struct fd_buf {
	uint8_t *mem;
	uint32_t size;
	uint32_t at;  /* Bytes from its begin that are done with. */
	uint32_t end; /* Bytes that are there. */
};

/* One side of one client. */
struct fd_end {
	int in, out;
	struct fd_buf rx, tx;
};

/* All clients of one side. */
struct fd_side {
	struct lane_end base;
	int epoll; /* Side 1, several clients. */
	uint8_t *mem;
	struct fd_end end[];
};

/* Read what is there: bytes, 0 for nothing, or -errno. */
static int
fd_fill(struct fd_end *e)
{
	ssize_t n;

	if (e->rx.at != 0) {
		memmove(e->rx.mem, e->rx.mem + e->rx.at, e->rx.end - e->rx.at);
		e->rx.end -= e->rx.at;
		e->rx.at = 0;
	}
	n = read(e->in, e->rx.mem + e->rx.end, e->rx.size - e->rx.end);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0 && e->rx.size != e->rx.end)
		return -ECONNRESET;
	e->rx.end += (uint32_t)n;
	return (int)n;
}

/* Write what is left to write: 0, or -errno. */
static int
fd_flush(struct fd_end *e)
{
	ssize_t n;

	if (e->tx.at == e->tx.end)
		return 0;
	n = write(e->out, e->tx.mem + e->tx.at, e->tx.end - e->tx.at);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	e->tx.at += (uint32_t)n;
	if (e->tx.at == e->tx.end)
		e->tx.at = e->tx.end = 0;
	return 0;
}

/* ---- side 1 ---- */

/* Echo the whole messages of one client, one-way ones only read: how many, or -errno. */
static int
fd_echo(struct fd_end *e, uint32_t size, bool oneway)
{
	uint32_t whole;
	int rc;

	if (e->tx.end != 0)
		return fd_flush(e);
	rc = fd_fill(e);
	whole = e->rx.end / size;
	if (rc < 0 || whole == 0)
		return rc < 0 ? rc : 0;
	e->rx.at = whole * size;
	for (uint32_t at = 0; oneway && at < e->rx.at; at += size)
		app_msg_read(e->rx.mem + at, size, false, 0);
	if (oneway)
		return (int)whole;
	memcpy(e->tx.mem, e->rx.mem, e->rx.at);
	e->tx.end = e->rx.at;
	rc = fd_flush(e);
	return rc < 0 ? rc : (int)whole;
}

static int
fd_turn(struct fd_side *s)
{
	struct epoll_event ev[EVENTS];
	int n, rc, calls = 0;

	if (s->base.conf.clients == 1)
		return fd_echo(&s->end[0], s->base.conf.size, s->base.oneway);
	n = epoll_wait(s->epoll, ev, EVENTS, 0);
	for (int i = 0; i < n; i++) {
		rc = fd_echo(&s->end[ev[i].data.u32], s->base.conf.size, s->base.oneway);
		if (rc < 0)
			return rc;
		calls += rc;
	}
	return calls;
}

static void
fd_serve(struct app_lane *l, const _Atomic uint32_t *over, struct lane_served *out)
{
	struct fd_side *s = l->state[1];
	int rc;

	out->clocked = false;
	while (crpc_load_acquire(over) == 0) {
		rc = fd_turn(s);
		if (rc < 0) /* Side 0 finds its calls unanswered. */
			return;
		out->calls += (uint64_t)rc;
	}
}

/* ---- side 0 ---- */

/* Descriptors of one client; mine and theirs are {in, out}. 0 or -errno. */
static int
fd_make(bool sockets, int *mine, int *theirs)
{
	int there[2], back[2], err;

	if (sockets) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, there) != 0)
			return -errno;
		mine[0] = mine[1] = there[0];
		theirs[0] = theirs[1] = there[1];
		return 0;
	}
	if (pipe2(there, O_NONBLOCK | O_CLOEXEC) != 0)
		return -errno;
	if (pipe2(back, O_NONBLOCK | O_CLOEXEC) != 0) {
		err = errno;
		close(there[0]);
		close(there[1]);
		return -err;
	}
	mine[0] = back[0];
	mine[1] = there[1];
	theirs[0] = there[0];
	theirs[1] = back[1];
	return 0;
}

static int
fd_give(struct app_lane *l, struct fd_side *s, uint32_t i)
{
	int mine[2] = {-1, -1}, theirs[2] = {-1, -1};
	int rc = fd_make(l->way == &lane_unix.base, mine, theirs);

	if (rc != 0)
		return rc;
	s->end[i].in = mine[0];
	s->end[i].out = mine[1];
	rc = app_process_give_fds(l->party->process, theirs, 2);
	close(theirs[0]);
	if (theirs[1] != theirs[0])
		close(theirs[1]);
	return rc;
}

/* ---- both ---- */

static int
fd_open(struct app_lane *l, int side)
{
	uint32_t n = l->c->clients, each = l->c->depth * l->c->size;
	struct fd_side *s = lane_end_new(l, side, sizeof(*s) + n * sizeof(s->end[0]));

	if (s == NULL)
		return -ENOMEM;
	s->mem = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up((uint64_t)each * 2 * n, CRPC_CACHE_LINE));
	s->epoll = -1;
	for (uint32_t i = 0; i < n; i++)
		s->end[i] = (struct fd_end){.in = -1,
			.out = -1,
			.rx = {.mem = s->mem + (uint64_t)each * 2 * i, .size = each},
			.tx = {.mem = s->mem + (uint64_t)each * (2 * i + 1), .size = each}};
	return s->mem != NULL ? 0 : app_lane_fail(l, -ENOMEM, "no memory");
}

static int
fd_take_one(struct app_lane *l, struct fd_side *s, uint32_t i)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = i};
	int fd[2], rc = app_process_take_fds(l->party->process, fd, 2);

	if (rc != 0)
		return rc;
	s->end[i].in = fd[0];
	s->end[i].out = fd[1];
	if (s->base.conf.clients > 1 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd[0], &ev) != 0)
		return -errno;
	return 0;
}

static int
fd_meet(struct app_lane *l, int side)
{
	struct fd_side *s = l->state[side];
	uint32_t i;
	int rc = 0;

	if (side == 1 && s->base.conf.clients > 1)
		s->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < s->base.conf.clients && rc == 0; i++)
		rc = side == 0 ? fd_give(l, s, i) : fd_take_one(l, s, i);
	if (rc != 0)
		app_lane_fail(l, rc, "descriptors of client %u of %u: %s", i, s->base.conf.clients,
			strerror(-rc));
	return rc;
}

static void
fd_close(struct app_lane *l, int side)
{
	struct fd_side *s = l->state[side];

	for (struct fd_end *e = s->end; e < s->end + l->c->clients; e++) {
		if (e->in >= 0)
			close(e->in);
		if (e->out >= 0 && e->out != e->in)
			close(e->out);
	}
	if (s->epoll >= 0)
		close(s->epoll);
	free(s->mem);
	free(s);
}

static void
fd_begin(struct lane_end *base)
{
}

/* Write the rest of the calls before, take the answers that are there. */
static void
fd_take(struct lane_end *base, uint32_t id, uint32_t size, bool check)
{
	struct fd_end *e = &((struct fd_side *)base)->end[id];
	struct lane_one *o = &base->one[id];
	int rc;

	if (o->seq == o->ack)
		return;
	rc = fd_flush(e);
	if (rc == 0 && !base->oneway)
		rc = fd_fill(e);
	if (rc < 0)
		lane_break(base, "calls and answers: %s", strerror(-rc));
	/* What was written counts: the kernel's buffer keeps the client from running ahead. */
	if (base->oneway && e->tx.end == 0)
		o->ack = o->seq;
	for (; e->rx.end - e->rx.at >= size; base->calls++, o->ack++, e->rx.at += size)
		base->bad += app_msg_read(e->rx.mem + e->rx.at, size, check, lane_word(id, o->ack));
}

static void
fd_issue(struct lane_end *base, uint32_t id, uint32_t size, uint32_t n)
{
	struct fd_end *e = &((struct fd_side *)base)->end[id];
	int rc;

	if (e->tx.end != 0) /* The rest of the calls before. */
		return;
	base->calls += base->oneway ? n : 0;
	for (; n != 0; n--, e->tx.end += size)
		app_msg_fill((uint64_t *)(void *)(e->tx.mem + e->tx.end), size,
			lane_word(id, base->one[id].seq++));
	rc = fd_flush(e);
	if (rc < 0)
		lane_break(base, "writing calls: %s", strerror(-rc));
}

static const struct lane_loop loop = {fd_begin, fd_take, fd_issue, .waits = 64, .turns = 64};

static uint64_t
fd_go(struct lane_end *e, uint64_t end, bool check)
{
	return lane_calls(e, end, e->conf.size, check, &loop);
}

#define FD_LANE(lane, text)                                                                        \
	const struct lane_way lane = {                                                             \
		.base = APP_WAY(text, fd_open, fd_meet, fd_close),                                 \
		.oneway = true,                                                                    \
		.serve = fd_serve,                                                                 \
		.go = fd_go,                                                                       \
		.loop = &loop,                                                                 \
	}

FD_LANE(lane_unix, "unix_socket");
FD_LANE(lane_pipe, "pipe");
