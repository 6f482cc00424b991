/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the kernel: a Unix socket (SOCK_STREAM) or two pipes for each client. Both sides spin
 * on non-blocking descriptors, which is many times faster than to sleep in them, and pass all the
 * messages of a burst in one system call. A server of several clients asks epoll who has sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lane.h"

#define EVENTS 64
/* Empty reads between two looks at the clock of a client that waits for one answer. */
#define WAIT_READS 64

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
	uint64_t seq; /* Of the next call. */
	uint64_t ack; /* Of the next answer. */
};

/* All clients of one side. */
struct fd_side {
	struct lane_client base; /* First process only. */
	uint32_t n;
	uint32_t size;
	bool oneway;
	int epoll; /* Second process, several clients. */
	uint8_t *mem;
	struct fd_end end[];
};

static void
fd_side_free(struct fd_side *s)
{
	uint32_t i;

	for (i = 0; i < s->n; i++) {
		if (s->end[i].in >= 0)
			close(s->end[i].in);
		if (s->end[i].out >= 0 && s->end[i].out != s->end[i].in)
			close(s->end[i].out);
	}
	if (s->epoll >= 0)
		close(s->epoll);
	free(s->mem);
	free(s);
}

static struct fd_side *
fd_side_new(const struct lane_conf *c)
{
	struct fd_side *s = calloc(1, sizeof(*s) + c->clients * sizeof(s->end[0]));
	uint32_t each = c->depth * c->size, i;

	if (s == NULL)
		return NULL;
	s->epoll = -1;
	s->n = c->clients;
	s->size = c->size;
	s->oneway = c->mode == LANE_ONEWAY;
	for (i = 0; i < s->n; i++)
		s->end[i].in = s->end[i].out = -1;
	s->mem = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up((uint64_t)each * 2 * c->clients, CRPC_CACHE_LINE));
	if (s->mem == NULL) {
		fd_side_free(s);
		return NULL;
	}
	for (i = 0; i < s->n; i++) {
		s->end[i].rx =
			(struct fd_buf){.mem = s->mem + (uint64_t)each * 2 * i, .size = each};
		s->end[i].tx = (struct fd_buf){.mem = s->end[i].rx.mem + each, .size = each};
	}
	return s;
}

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

/* ---- second process ---- */

static int
fd_serve_open(struct rpb_pair *p, const struct lane_conf *c, void **server)
{
	struct fd_side *s = fd_side_new(c);
	struct epoll_event ev = {.events = EPOLLIN};
	int fd[2], rc = -ENOMEM;
	uint32_t i;

	if (s == NULL)
		return rpb_pair_fail(p, rc, "no memory");
	if (c->clients > 1)
		s->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < c->clients; i++) {
		rc = rpb_pair_take_fds(p, fd, 2);
		if (rc != 0)
			goto err_side;
		s->end[i].in = fd[0];
		s->end[i].out = fd[1];
		ev.data.u32 = i;
		if (c->clients > 1 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd[0], &ev) != 0) {
			rc = -errno;
			goto err_side;
		}
	}
	*server = s;
	return 0;

err_side:
	fd_side_free(s);
	return rpb_pair_fail(p, rc, "descriptors of client %u of %u: %s", i, c->clients,
		strerror(-rc));
}

/* Read the whole messages of one client, which wants no answer: how many, or -errno. */
static int
fd_swallow(struct fd_end *e, uint32_t size)
{
	int rc = fd_fill(e), n = 0;

	for (; e->rx.end - e->rx.at >= size; e->rx.at += size, n++)
		lane_read(e->rx.mem + e->rx.at, size, false, 0);
	return rc < 0 ? rc : n;
}

/* Echo the whole messages of one client: how many, or -errno. */
static int
fd_echo(struct fd_end *e, uint32_t size, bool oneway)
{
	uint32_t whole;
	int rc;

	if (oneway)
		return fd_swallow(e, size);
	if (e->tx.end != 0)
		return fd_flush(e);
	rc = fd_fill(e);
	whole = e->rx.end / size;
	if (rc < 0 || whole == 0)
		return rc < 0 ? rc : 0;
	memcpy(e->tx.mem, e->rx.mem, whole * size);
	e->tx.end = e->rx.at = whole * size;
	rc = fd_flush(e);
	return rc < 0 ? rc : (int)whole;
}

static int
fd_turn(struct fd_side *s)
{
	struct epoll_event ev[EVENTS];
	int n, i, rc, calls = 0;

	if (s->n == 1)
		return fd_echo(&s->end[0], s->size, s->oneway);
	n = epoll_wait(s->epoll, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		rc = fd_echo(&s->end[ev[i].data.u32], s->size, s->oneway);
		if (rc < 0)
			return rc;
		calls += rc;
	}
	return calls;
}

static void
fd_serve(struct rpb_pair *p, void *server, struct lane_served *out)
{
	int rc;

	out->clocked = false;
	rpb_pair_set_ready(p);
	while (!rpb_pair_stopped(p)) {
		rc = fd_turn(server);
		if (rc < 0) /* The first process finds its calls unanswered. */
			return;
		out->calls += (uint64_t)rc;
	}
}

static void
fd_serve_close(void *server)
{
	fd_side_free(server);
}

/* ---- first process ---- */

/* Descriptors of one client; mine and theirs are {in, out}. 0 or -errno. */
static int
fd_make(enum lane_transport t, int *mine, int *theirs)
{
	int there[2], back[2], err;

	if (t == LANE_UNIX) {
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

static struct lane_client *
fd_open(struct rpb_pair *p, const struct lane_conf *c)
{
	struct fd_side *s = fd_side_new(c);
	int mine[2] = {-1, -1}, theirs[2] = {-1, -1}, rc;
	uint32_t i;

	if (s == NULL) {
		lane_why("no memory");
		return NULL;
	}
	s->base.conf = *c;
	s->base.pair = p;
	for (i = 0; i < c->clients; i++) {
		rc = fd_make(c->transport, mine, theirs);
		if (rc != 0) {
			lane_why("client %u: %s", i, strerror(-rc));
			goto err_side;
		}
		s->end[i].in = mine[0];
		s->end[i].out = mine[1];
		rc = rpb_pair_give_fds(p, theirs, 2);
		close(theirs[0]);
		if (theirs[1] != theirs[0])
			close(theirs[1]);
		if (rc != 0) {
			lane_why("client %u: handing over its descriptors: %s", i, strerror(-rc));
			goto err_side;
		}
	}
	return &s->base;

err_side:
	fd_side_free(s);
	return NULL;
}

static void
fd_close(struct lane_client *base)
{
	fd_side_free((struct fd_side *)base);
}

/* Take the answers that are there. */
static uint32_t
fd_take(struct fd_side *s, uint32_t id, bool check)
{
	struct fd_end *e = &s->end[id];
	uint32_t n = 0;
	int rc = fd_fill(e);

	if (rc < 0)
		lane_break(&s->base, "reading answers: %s", strerror(-rc));
	for (; e->rx.end - e->rx.at >= s->size; n++, e->ack++, e->rx.at += s->size)
		s->base.bad += lane_read(e->rx.mem + e->rx.at,
			s->size, check, lane_word(id, e->ack));
	return n;
}

/* Write n calls, or the rest of those before. */
static void
fd_issue(struct fd_side *s, uint32_t id, uint32_t n)
{
	struct fd_end *e = &s->end[id];
	int rc;

	if (e->tx.end == 0)
		for (; n != 0; n--, e->seq++, e->tx.end += s->size)
			lane_fill((uint64_t *)(void *)(e->tx.mem + e->tx.end), s->size,
				lane_word(id, e->seq));
	rc = fd_flush(e);
	if (rc < 0)
		lane_break(&s->base, "writing calls: %s", strerror(-rc));
}

static uint64_t
fd_async(struct fd_side *s, uint64_t end, bool check)
{
	const struct lane_conf *c = &s->base.conf;
	uint32_t i, room, turn = 0;
	uint64_t calls = 0;

	do {
		for (i = 0; i < c->active; i++) {
			if (s->end[i].seq != s->end[i].ack)
				calls += fd_take(s, i, check);
			room = c->depth - (uint32_t)(s->end[i].seq - s->end[i].ack);
			if (room != 0 || s->end[i].tx.end != 0)
				fd_issue(s, i, room < c->burst ? room : c->burst);
		}
	} while (!lane_over(&turn, end) && !s->base.broken);
	return calls;
}

static uint64_t
fd_sync(struct fd_side *s, uint64_t end, bool check)
{
	uint32_t i = 0, reads, turn = 0;
	uint64_t calls = 0, then = crpc_clock_ticks();

	do {
		if (s->end[i].seq == s->end[i].ack) /* Else one is left from before. */
			fd_issue(s, i, 1);
		for (reads = 1; fd_take(s, i, check) == 0; reads++)
			if (reads % WAIT_READS == 0) {
				fd_issue(s, i, 0);
				if (crpc_clock_ticks() >= end || s->base.broken)
					return calls;
			}
		calls++;
		lane_call_ended(&s->base, &then);
		i = i + 1 == s->base.conf.active ? 0 : i + 1;
	} while (!lane_over(&turn, end) && !s->base.broken);
	return calls;
}

/* What was written counts: the kernel's buffer is what keeps the client from running ahead. */
static uint64_t
fd_oneway(struct fd_side *s, uint64_t end)
{
	uint32_t i, turn = 0;
	uint64_t calls = 0;

	do {
		for (i = 0; i < s->base.conf.active; i++) {
			if (s->end[i].tx.end == 0)
				calls += s->base.conf.burst;
			fd_issue(s, i, s->base.conf.burst);
			s->end[i].ack = s->end[i].seq;
		}
	} while (!lane_over(&turn, end) && !s->base.broken);
	return calls;
}

static uint64_t
fd_go(struct lane_client *base, uint64_t end, bool check)
{
	struct fd_side *s = (struct fd_side *)base;

	if (base->conf.mode == LANE_ONEWAY)
		return fd_oneway(s, end);
	return base->conf.mode == LANE_ASYNC ? fd_async(s, end, check) : fd_sync(s, end, check);
}

/* Calls without an answer, or a message that is not written to its end. */
static bool
fd_unfinished(const struct fd_end *e)
{
	return e->seq != e->ack || e->tx.end != 0;
}

static void
fd_drain(struct lane_client *base, uint64_t end)
{
	struct fd_side *s = (struct fd_side *)base;
	struct fd_end *e;

	base->open = 0;
	for (e = s->end; e < s->end + base->conf.active; e++) {
		while (fd_unfinished(e) && crpc_clock_ticks() < end && !base->broken) {
			fd_issue(s, (uint32_t)(e - s->end), 0);
			if (!s->oneway)
				fd_take(s, (uint32_t)(e - s->end), false);
		}
		base->open += fd_unfinished(e);
	}
}

const struct lane_ops lane_unix = {
	.name = "unix_socket",
	.built = true,
	.oneway = true,
	.clients_max = LANE_CLIENTS_MAX,
	.serve_open = fd_serve_open,
	.serve = fd_serve,
	.serve_close = fd_serve_close,
	.open = fd_open,
	.go = fd_go,
	.drain = fd_drain,
	.close = fd_close,
};

const struct lane_ops lane_pipe = {
	.name = "pipe",
	.built = true,
	.oneway = true,
	.clients_max = LANE_CLIENTS_MAX,
	.serve_open = fd_serve_open,
	.serve = fd_serve,
	.serve_close = fd_serve_close,
	.open = fd_open,
	.go = fd_go,
	.drain = fd_drain,
	.close = fd_close,
};
