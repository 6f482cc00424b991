/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that are TCP connections. A chunk follows its DATA. Where the kernel can, its pages are
 * mapped into the connection's rx.map, and what is between them is copied to bounce memory, each at
 * the place of the chunk's piece. So it lies in fragments, which the unpack engine gathers.
 *
 *     in the stream     DATA | page | page | 411 bytes | page | ...
 *     rx.map            | page | page | page |
 *     rx.bounce         | 411 bytes |
 *     frag[]            2 pages of map, 411 bytes of bounce, 1 page of map
 *
 * A page stays mapped until its place is mapped again. Sockets never wait.
 */
#include <arpa/inet.h>
#include <linux/tcp.h> /* netinet/tcp.h collides with it, and lacks the mapping */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bulk_conn.h"

/* Messages of a rail that the peer has not taken. */
#define FRAMES 64u
/* Of a rail in a turn, so that it does not hold up others; a step counts as so many. */
#define TURN_BYTES (1u << 20)
#define STEP_BYTES (16u << 10)
/* What the kernel maps; where its pages are larger, all is copied. */
#define PAGE      4096u
#define NS_PER_MS 1000000u
/* An end that connects sends HELLO within so many seconds. */
#define HELLO_S 60
/* Connections that wait to be looked at, one in a turn: strangers can hold no more. */
#define BACKLOG 16

struct frame {
	union bulk_wire msg;
	struct bulk_op *op; /* Its chunk follows; NULL: none. */
};

struct bulk_tcp {
	struct crpc_bulk_conn *conn;
	struct bulk_rail *rail;
	struct bulk_wire_tcp self, peer; /* Addresses. */
	int listener, fd;                /* -1: none. */
	int status;
	/* out: those from taken on are kept, those below sent were begun */
	uint64_t queued, sent, taken;
	uint64_t reported; /* Of the peer's messages. */
	struct frame frame[FRAMES], own;
	struct frame *cur; /* Being sent: one of frame[], or own, a HELLO or TAKEN; or NULL. */
	uint32_t off;
	/* in: a message, then perhaps the chunk behind it */
	union bulk_wire msg;
	uint32_t have;
	struct rx_slot *slot;           /* NULL: no chunk. */
	uint32_t piece, mapped, copied; /* The next bytes are of this piece, behind so many. */
	uint32_t skip;                  /* Bytes that the kernel can not map. */
};

static struct bulk_tcp *
tcp_of(const struct crpc_copyrpc_ep *ep)
{
	return (struct bulk_tcp *)(uintptr_t)ep;
}

static int
tcp_socket(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void
fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void
__crpc_bulk_tcp_map(struct crpc_bulk_conn *conn, uint64_t len)
{
	void *map;
	int fd;

	/* pieces begin at units; a device that has to know memory can not read the kernel's */
	if (conn->b->conf.chunk < CRPC_BULK_PIECES_MAX * PAGE ||
		crpc_unpack_engine(conn->b->engine)->attach != NULL)
		return;
	conn->rx.frags = crpc_unpack_engine(conn->b->engine)->descs;
	if (conn->rx.frags == 0)
		conn->rx.frags = CRPC_UNPACK_DESCS_MAX;
	/* one mapping serves all sockets, which come and go */
	fd = tcp_socket();
	map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(&fd);
	conn->rx.map = map != MAP_FAILED ? map : NULL;
}

/* ---- how it begins and ends ---- */

static struct sockaddr_in
sockaddr_of(const struct bulk_wire_tcp *at)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(at->port)};

	memcpy(&to.sin_addr, at->ip, sizeof(to.sin_addr));
	return to;
}

/* Messages go at once; a host that takes nothing is noticed before requests to it time out. */
static void
tcp_begin(struct bulk_tcp *t, int fd)
{
	int ms = (int)crpc_min(t->conn->b->conf.timeout_ns / NS_PER_MS / 2 + 1, INT32_MAX), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	t->fd = fd;
	fd_close(&t->listener);
}

/* Nothing of it is carried out any more, and no chunk that is queued is read. */
static void
tcp_shutdown(struct crpc_copyrpc_ep *ep)
{
	struct bulk_tcp *t = tcp_of(ep);

	fd_close(&t->fd);
	fd_close(&t->listener);
	if (t->slot != NULL)
		__crpc_bulk_data_lose(t->slot);
	t->slot = NULL;
	t->status = -ECONNRESET;
}

/* Listen, with another key. */
static int
tcp_reset(struct crpc_copyrpc_ep *ep)
{
	struct bulk_tcp *t = tcp_of(ep);
	struct sockaddr_in at = sockaddr_of(&t->self);
	socklen_t len = sizeof(at);
	int wait_s = HELLO_S;

	if (t->status == -ENOTCONN || t->status == 0)
		return t->status == 0 ? -EISCONN : 0;
	fd_close(&t->listener);
	t->queued = t->sent = t->taken = t->reported = 0;
	t->cur = NULL;
	t->have = t->skip = 0;
	at.sin_port = 0;
	t->listener = tcp_socket();
	/* connections are given when they have said something */
	if (t->listener < 0 ||
		setsockopt(t->listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait_s, sizeof(int)) != 0 ||
		bind(t->listener, (struct sockaddr *)&at, len) != 0 ||
		listen(t->listener, BACKLOG) != 0 ||
		getsockname(t->listener, (struct sockaddr *)&at, &len) != 0 ||
		getrandom(&t->self.key, sizeof(t->self.key), 0) < 0)
		return crpc_fail(-EIO,
			"connection %u: a rail can not listen on the address of its port, %s (%d)",
			t->conn->index, inet_ntoa(at.sin_addr), errno);
	t->self.port = ntohs(at.sin_port);
	t->status = -ENOTCONN;
	return 0;
}

static void
tcp_free(struct crpc_copyrpc_ep *ep)
{
	if (ep != NULL)
		tcp_shutdown(ep);
	free(ep);
}

static struct crpc_copyrpc_ep *
tcp_create(struct crpc_bulk_conn *conn, uint32_t rail)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	struct bulk_tcp *t = calloc(1, sizeof(*t));
	struct crpc_copyrpc_ep *ep = (void *)t;

	if (t == NULL)
		return NULL;
	*t = (struct bulk_tcp){.conn = conn,
		.rail = &conn->rail[rail],
		.listener = -1,
		.fd = -1,
		.status = -ECONNRESET,
		.self = {.magic = BULK_WIRE_TCP_MAGIC, .version = BULK_WIRE_TCP_VERSION}};
	inet_pton(AF_INET, conf->port[rail % conf->nports].tcp, t->self.ip);
	conn->bytes += sizeof(*t);
	if (tcp_reset(ep) == 0)
		return ep;
	tcp_free(ep);
	return crpc_null(-EIO);
}

static void
tcp_addr(const struct crpc_copyrpc_ep *ep, uint8_t addr[CRPC_COPYRPC_ADDR_LEN])
{
	memcpy(addr, &tcp_of(ep)->self, CRPC_COPYRPC_ADDR_LEN);
}

static void
own_begin(struct bulk_tcp *t, uint8_t type, uint64_t id)
{
	t->own.msg.head = bulk_wire_head(type, sizeof(t->own.msg.head), id);
	t->cur = &t->own;
	t->off = 0;
}

static int
tcp_connect(struct crpc_copyrpc_ep *ep, const uint8_t peer[CRPC_COPYRPC_ADDR_LEN])
{
	struct bulk_tcp *t = tcp_of(ep);
	struct bulk_wire_tcp at;
	struct sockaddr_in to;
	int fd;

	memcpy(&at, peer, sizeof(at));
	to = sockaddr_of(&at);
	if (t->status != -ENOTCONN)
		return t->status;
	/* when a rail returns, the address comes from the peer: it must not name other hosts */
	if (at.magic != BULK_WIRE_TCP_MAGIC || at.version != BULK_WIRE_TCP_VERSION ||
		at.key == t->self.key ||
		(t->rail->state == RAIL_MEETING && memcmp(at.ip, t->peer.ip, sizeof(at.ip)) != 0))
		return crpc_fail(-EPROTO, "peer %u: no address of a rail over TCP, version %u",
			t->conn->user_id, BULK_WIRE_TCP_VERSION);
	t->peer = at;
	t->status = 0;
	if (t->self.key > at.key)
		return 0;
	fd = tcp_socket();
	if (fd < 0 ||
		(connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS))
		t->status = -errno;
	tcp_begin(t, fd);
	own_begin(t, BULK_HELLO, at.key);
	return 0;
}

/* The peer is the one that knows our key. */
static void
tcp_accept(struct bulk_tcp *t)
{
	struct bulk_wire_head hello, want = bulk_wire_head(BULK_HELLO, sizeof(want), t->self.key);
	int fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (recv(fd, &hello, sizeof(hello), 0) == sizeof(hello) &&
		memcmp(&hello, &want, sizeof(want)) == 0)
		tcp_begin(t, fd);
	else
		close(fd);
}

/* ---- what is sent ---- */

static int
tcp_send(struct crpc_bulk_conn *conn, struct crpc_copyrpc_ep *ep, struct bulk_op *op,
	const struct bulk_wire_head *msg)
{
	struct bulk_tcp *t = tcp_of(ep);
	struct frame *f = &t->frame[t->queued % FRAMES];

	if (t->status != 0)
		return t->status;
	if (t->queued - t->taken == FRAMES)
		return -EAGAIN;
	memcpy(&f->msg, msg, msg->len);
	f->op = op;
	t->queued++;
	return 0;
}

static void
tcp_positions(const struct crpc_copyrpc_ep *ep, struct crpc_copyrpc_positions *pos)
{
	pos->requests_queued = tcp_of(ep)->queued;
	pos->requests_released_by_peer = tcp_of(ep)->taken;
}

static void
taken_take(struct bulk_tcp *t, uint64_t n)
{
	uint64_t whole = t->sent - (t->cur != NULL && t->cur != &t->own);
	const struct bulk_op *op;

	if (n < t->taken || n > whole)
		__crpc_bulk_proto(t->conn, "the count of taken messages", t->taken, n, whole);
	while (t->taken < n && t->conn->err == 0) {
		op = t->frame[t->taken++ % FRAMES].op;
		if (op != NULL)
			__crpc_bulk_op_take(t->conn, (uint32_t)(op - t->conn->tx.op),
				op->turn & TURN_MASK);
	}
	t->rail->nknown = t->taken;
}

static bool
frame_begin(struct bulk_tcp *t)
{
	if (t->reported != t->rail->ntaken) {
		t->reported = t->rail->ntaken;
		own_begin(t, BULK_TAKEN, t->reported);
	} else if (t->sent != t->queued) {
		t->cur = &t->frame[t->sent++ % FRAMES];
		t->off = 0;
	}
	return t->cur != NULL;
}

/*
 * What a system call has moved: bytes; 0: nothing now, as without memory, or the connection is
 * lost: the rail reports its status.
 */
static uint32_t
moved(struct bulk_tcp *t, ssize_t n)
{
	int err = n < 0 ? errno : ECONNRESET;

	if (n > 0)
		return (uint32_t)n;
	if (err != EAGAIN && err != EINTR && err != ENOBUFS && err != ENOMEM)
		t->status = err == ENOTCONN ? -ECONNRESET : -err;
	return 0;
}

static void
frames_send(struct bulk_tcp *t)
{
	uint32_t bytes = 0, n = 1, of_head, off;
	const struct bulk_op *op;
	struct iovec iov[2];
	struct msghdr msg = {.msg_iov = iov};

	for (; n != 0 && bytes < TURN_BYTES && (t->cur != NULL || frame_begin(t)); bytes += n) {
		of_head = (uint32_t)crpc_min(t->off, t->cur->msg.head.len);
		iov[0] = (struct iovec){
			(uint8_t *)&t->cur->msg + of_head, t->cur->msg.head.len - of_head};
		op = t->cur->op;
		msg.msg_iovlen = op != NULL ? 2 : 1;
		off = t->off - of_head;
		if (op != NULL)
			iov[1] = (struct iovec){
				op->req->buf + chunk_off(op->req, op->index) + off, op->len - off};
		n = moved(t, sendmsg(t->fd, &msg, MSG_NOSIGNAL));
		t->off += n;
		if (t->off == t->cur->msg.head.len + (op != NULL ? op->len : 0))
			t->cur = NULL;
	}
}

/* ---- what arrives ---- */

/* Map whole pages of the next @p len bytes. Bytes; 0: the next ones can not be mapped. */
static uint32_t
chunk_map(struct bulk_tcp *t, uint8_t *map, uint32_t len)
{
	struct tcp_zerocopy_receive z = {.address = (uintptr_t)map, .length = len - len % PAGE};
	socklen_t size = sizeof(z);

	if (getsockopt(t->fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &size) != 0)
		return 0;
	t->skip = z.recv_skip_hint;
	if (z.length != 0)
		rx_frag_add(t->slot, map, z.length);
	t->mapped += z.length;
	t->conn->b->stats.bytes_zero_copy += z.length;
	return z.length;
}

/* The next bytes of a chunk; 0: there are none now. */
static uint32_t
chunk_step(struct bulk_tcp *t)
{
	struct rx_slot *slot = t->slot;
	const struct bulk_wire_piece *piece = &slot->piece[t->piece];
	uint64_t at = (uint64_t)piece->line * 64;
	uint8_t *to = t->conn->rx.bounce + at + t->copied;
	uint32_t rest = piece->len - t->mapped - t->copied, n = 0;

	/* two fragments more, and one of each piece that is not begun */
	if (slot->maps && t->skip == 0 && rest >= PAGE &&
		slot->nfrags + 2 + slot->npieces - t->piece <= t->conn->rx.frags)
		n = chunk_map(t, t->conn->rx.map + at + t->mapped, rest);
	if (n == 0) {
		n = moved(t, recv(t->fd, to, t->skip != 0 ? crpc_min(rest, t->skip) : rest, 0));
		t->skip -= (uint32_t)crpc_min(t->skip, n);
		t->copied += n;
		if (n != 0)
			rx_frag_add(slot, to, n);
	}
	if (n < rest)
		return n;
	t->mapped = t->copied = 0;
	if (++t->piece < slot->npieces)
		return n;
	t->slot = NULL;
	t->skip = 0;
	t->rail->ntaken++;
	__crpc_bulk_data_arrive(t->conn, &t->msg.data);
	return n;
}

/* A whole message is there. */
static void
msg_step(struct bulk_tcp *t)
{
	const struct bulk_wire_head *head = &t->msg.head;
	struct bulk_wire_head taken = bulk_wire_head(BULK_TAKEN, sizeof(taken), head->id);

	t->have = 0;
	if (memcmp(head, &taken, sizeof(taken)) == 0) {
		taken_take(t, head->id);
		return;
	}
	__crpc_bulk_msg_take(t->conn, t->rail, &t->msg, head->len);
	if (head->type != BULK_DATA || t->status != 0)
		return;
	t->rail->ntaken--; /* it is taken with its chunk */
	t->slot = &t->conn->rx.slot[t->msg.data.slot & 0xff];
	t->piece = t->mapped = t->copied = 0;
}

/* The next bytes; 0: there are none now. */
static uint32_t
step(struct bulk_tcp *t)
{
	uint32_t head = sizeof(t->msg.head), len = t->have < head ? head : t->msg.head.len, n;

	if (t->slot != NULL)
		return chunk_step(t);
	n = moved(t, recv(t->fd, (uint8_t *)&t->msg + t->have, len - t->have, 0));
	t->have += n;
	if (t->have < head)
		return n;
	len = t->msg.head.len;
	if (len < head || len > sizeof(t->msg))
		__crpc_bulk_proto(t->conn, "the length of a message", 0, len, sizeof(t->msg));
	else if (t->have == len)
		msg_step(t);
	return n;
}

void
__crpc_bulk_tcp_turn(struct crpc_bulk_conn *conn)
{
	struct bulk_tcp *t;
	uint32_t n;

	for (uint32_t i = 0; i < conn->nrails; i++) {
		t = tcp_of(conn->rail[i].ep);
		if (t->status == 0 && t->fd < 0)
			tcp_accept(t);
		if (t->status != 0 || t->fd < 0)
			continue;
		frames_send(t);
		n = 1;
		for (uint32_t bytes = 0; n != 0 && bytes < TURN_BYTES && t->status == 0;
			bytes += n + STEP_BYTES)
			n = step(t);
	}
}

static int
tcp_status(const struct crpc_copyrpc_ep *ep)
{
	return tcp_of(ep)->status;
}

const struct bulk_link __crpc_bulk_tcp = {
	.has_payload = true,
	.create = tcp_create,
	.free = tcp_free,
	.addr = tcp_addr,
	.connect = tcp_connect,
	.status = tcp_status,
	.shutdown = tcp_shutdown,
	.reset = tcp_reset,
	.send = tcp_send,
	.positions = tcp_positions,
};
