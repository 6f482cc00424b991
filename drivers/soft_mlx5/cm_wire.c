/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Ports and messages. On the wire of shared memory: Unix sockets with abstract names, which the
 * kernel removes with the process, and which belong to a network namespace as addresses do. The
 * peer is a process of the same user, on the same net.
 *
 * Over UDP: TCP, and the peer may be anybody. It has shown that it receives at its address before
 * there is anything to remember of it. Until its request is here, all of it, it has a socket and an
 * identifier, and few of those: who is new takes the place of who was silent longest.
 */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "port.h"

/* Ports that are given out, as Linux does without other settings. */
#define PORT_FIRST 32768u
#define PORT_COUNT 28232u
/* As the kernel: more are waiting than any program asked for. */
#define BACKLOG_MAX 1024u
/* A kernel sends REQ 16 times, 4.3 seconds apart. */
#define ANSWER_MS 69000u

/* Of one source, and of all, that have not sent their request. */
#define AWAITED_SOURCE 16u
#define AWAITED_MAX    64u
/* After which a listener looks whether there are descriptors again. */
#define AGAIN_NS 10000000u

#define is_tcp() (sm_port(0)->udp)

/* bind() or connect() to the port of an address: 0, or errno. */
static int
name_call(int (*call)(int fd, const struct sockaddr *name, socklen_t len), const struct cm_id *id,
	const union cm_addr *addr)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "soft_mlx5.%u.%s.cm.%x.%u",
		(unsigned int)geteuid(), uv_net_base(), id->ps, ntohs(cm_port_of(addr)));
	socklen_t len = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)n;

	if (!is_tcp() && (size_t)n >= sizeof(un.sun_path) - 1)
		return ENAMETOOLONG;
	return (is_tcp() ? call(id->fd, &addr->sa, cm_addr_size(addr))
			 : call(id->fd, (const struct sockaddr *)&un, len)) == 0
		? 0
		: errno;
}

/* Others that set it as well may have the port, unless one of them listens. */
static int
name_share(const struct cm_id *id)
{
	return setsockopt(id->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
}

static int
name_take(struct cm_id *id, in_port_t port)
{
	socklen_t len = sizeof(id->src);
	int err;

	cm_port_of(&id->src) = port;
	err = name_call(bind, id, &id->src);
	/* By connections of an earlier program? */
	if (err == EADDRINUSE && is_tcp() && name_share(id) == 0)
		err = name_call(bind, id, &id->src);
	if (err == 0 && is_tcp())
		err = getsockname(id->fd, &id->src.sa, &len) == 0 ? 0 : errno;
	id->named = err == 0;
	return err;
}

/* A port that is free: the search begins at another place in each process, and continues there. */
static int
name_take_any(struct cm_id *id)
{
	static uint32_t next;
	int err = EADDRINUSE;

	if (is_tcp())
		return name_take(id, 0);
	if (next == 0)
		next = (uint32_t)getpid() * 509u;
	for (uint32_t i = 0; i < PORT_COUNT && err == EADDRINUSE; i++)
		err = name_take(id, htons((uint16_t)(PORT_FIRST + next++ % PORT_COUNT)));
	return err;
}

/* Messages go at once, and a part of one is not readable. What is accepted inherits all of it. */
static void
tcp_set(int fd)
{
	const int on = 1, whole = sizeof(struct cm_msg);

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
}

int
cm_wire_bind(struct cm_id *id, in_port_t port)
{
	int family = is_tcp() ? id->src.sa.sa_family : AF_UNIX, err = 0;

	id->fd = sm_fd_hide(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (id->fd < 0)
		return errno;
	if (is_tcp())
		tcp_set(id->fd);
	if (id->reuse_addr)
		(void)name_share(id);
	/* A port that several share is free until one of them listens, which TCP knows itself. */
	if (port == 0)
		err = name_take_any(id);
	else if (!id->reuse_addr || is_tcp())
		err = name_take(id, port);
	else
		cm_port_of(&id->src) = port;
	if (err != 0)
		cm_wire_close(id);
	return err;
}

int
cm_wire_watch(struct cm_id *id, int op)
{
	struct epoll_event ev = {
		.events = EPOLLIN | (id->unsent ? EPOLLOUT : 0), .data.u64 = id->obj.handle};

	return epoll_ctl(id->chan->file.fd, op, id->fd, &ev) == 0 ? 0 : errno;
}

void
cm_wire_close(struct cm_id *id)
{
	if (id->fd >= 0) {
		/* A child between fork and exec may still have the socket: the set must not. */
		(void)cm_wire_watch(id, EPOLL_CTL_DEL);
		close(id->fd);
	}
	id->fd = -1;
	cm_id_deadline(id, 0);
}

void
cm_wire_end(struct cm_id *id)
{
	cm_wire_close(id);
	id->state = CM_CLOSED;
}

void
cm_wire_expect(struct cm_id *id)
{
	const char *env = getenv("SOFT_MLX5_CM_TIMEOUT");
	unsigned long ms = env != NULL ? strtoul(env, NULL, 10) : 0;

	cm_id_deadline(id,
		uv_clock_read(CLOCK_MONOTONIC) +
			(ms != 0 && ms < ANSWER_MS ? ms : ANSWER_MS) * UINT64_C(1000000));
}

int
cm_wire_listen(struct cm_id *id, uint32_t backlog)
{
	int err = id->named ? 0 : name_take(id, cm_port_of(&id->src));

	if (err != 0)
		return err;
	/* Of TCP it is for strangers too. */
	if (is_tcp() || backlog - 1 >= BACKLOG_MAX)
		backlog = BACKLOG_MAX;
	/* Who sends nothing does not make the channel readable, as a kernel's would not be. */
	(void)setsockopt(id->fd, SOL_TCP, TCP_DEFER_ACCEPT, &(int){ANSWER_MS / 1000}, sizeof(int));
	if (listen(id->fd, (int)backlog) != 0)
		return errno;
	/* So that its connections do not keep the port from a later program. */
	(void)name_share(id);
	return cm_wire_watch(id, EPOLL_CTL_ADD);
}

int
cm_wire_send(struct cm_id *id, enum cm_msg_type type, struct cm_msg *msg)
{
	struct pollfd pfd = {.fd = id->fd, .events = POLLRDHUP};
	struct cm_msg plain = {0};

	/* Of TCP it is no error to send to a peer that has closed. */
	if (poll(&pfd, 1, 0) == 1 && pfd.revents == POLLRDHUP)
		return EPIPE;
	if (msg == NULL)
		msg = &plain;
	msg->magic = CM_MAGIC;
	msg->ps = id->ps;
	msg->type = (uint16_t)type;
	msg->psn = id->psn;
	msg->from = cm_end_of(crpc_max(id->device, 0));
	return send(id->fd, msg, sizeof(*msg), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*msg) ? 0
											    : errno;
}

/* Each kind of message comes once at most: a peer that sends more is broken. */
#define MSGS_MAX 16

/*
 * Copied once by recv(), as a whole unless its sender ended. False: it is none of this version, or
 * its numbers are none of a queue or a port. A listener of another port space rejects too, and one
 * without a device has no end.
 */
static bool
msg_is_valid(struct cm_id *id, const struct cm_msg *msg, ssize_t n)
{
	return n == sizeof(*msg) && id->msgs++ < MSGS_MAX && msg->magic == CM_MAGIC &&
		msg->type <= CM_DREP && msg->psn < 1u << 24 && msg->conn.qp_num < 1u << 24 &&
		(msg->type == CM_REJ || (msg->ps == id->ps && cm_end_is_valid(&msg->from)));
}

/* A kernel's connections have no owner, and those of TCP neither. */
static bool
is_own_user(int fd)
{
	return is_tcp() || sm_is_own_user(fd);
}

/* ---- what ends an attempt or a connection ---- */

static struct rdma_ucm_event_resp *
closed(struct cm_id *id, enum cm_event_type type, int status)
{
	cm_wire_end(id);
	return cm_event_new(id, type, status);
}

/* A request is refused; for UD the event is another one, with a status of SIDR. */
static void
rejected(struct cm_id *id, uint32_t reason, const uint8_t *private_data)
{
	static const uint8_t none[CM_REJ_PRIVATE];
	struct rdma_ucm_event_resp *resp;

	if (private_data == NULL)
		private_data = none;
	if (cm_is_ud(id)) {
		resp = closed(id, CM_EVENT_UNREACHABLE,
			reason == CM_REJECT_NO_SERVICE ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECTED);
		resp->param.ud.private_data_len = CM_SIDR_REP_PRIVATE;
		memcpy(resp->param.ud.private_data, private_data, CM_SIDR_REP_PRIVATE);
		return;
	}
	resp = closed(id, CM_EVENT_REJECTED, (int)reason);
	resp->param.conn.private_data_len = CM_REJ_PRIVATE;
	memcpy(resp->param.conn.private_data, private_data, CM_REJ_PRIVATE);
}

/* The peer closed its identifier, or its process ended: what its kernel would send then. */
static void
lost(struct cm_id *id)
{
	switch (id->state) {
	case CM_REQ_SENT:
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
		rejected(id, CM_REJECT_CONSUMER, NULL);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		closed(id, CM_EVENT_DISCONNECTED, 0);
		break;
	default:
		cm_wire_end(id);
	}
}

void
cm_wire_expired(struct cm_id *id)
{
	if (id->state == CM_LISTENING)
		cm_id_deadline(
			id, cm_wire_watch(id, EPOLL_CTL_ADD) == 0 ? 0 : id->deadline_ns + AGAIN_NS);
	else if (id->state == CM_REQ_AWAITED)
		cm_id_free(id);
	else if (id->state == CM_DREQ_SENT)
		closed(id, CM_EVENT_DISCONNECTED, 0);
	else
		closed(id, CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

/* ---- messages ---- */

/* What a peer sent, for the program: what it may have outstanding is what this side answers. */
static void
conn_event(struct rdma_ucm_event_resp *resp, const struct cm_msg *msg, uint8_t private_len)
{
	struct rdma_ucm_conn_param *conn = &resp->param.conn;

	*conn = msg->conn;
	conn->responder_resources = msg->conn.initiator_depth;
	conn->initiator_depth = msg->conn.responder_resources;
	conn->private_data_len = private_len;
	resp->ece = msg->ece;
}

static void
ud_event(const struct cm_id *id, struct rdma_ucm_event_resp *resp, const struct cm_msg *msg,
	uint8_t private_len)
{
	struct rdma_ucm_ud_param *ud = &resp->param.ud;

	ud->qp_num = msg->conn.qp_num;
	ud->qkey = msg->conn.qkey;
	cm_ah(id, &ud->ah_attr);
	memcpy(ud->private_data, msg->conn.private_data, private_len);
	ud->private_data_len = private_len;
}

static void
peer_is(struct cm_id *id, const struct cm_msg *msg)
{
	id->peer = msg->from;
	id->peer_qpn = msg->conn.qp_num;
	id->peer_psn = msg->psn;
	id->depth = msg->conn.responder_resources;
	id->resources = msg->conn.initiator_depth;
	id->rnr_retry = msg->conn.rnr_retry_count & 7;
}

static void
rep_received(struct cm_id *id, const struct cm_msg *msg)
{
	peer_is(id, msg);
	if (!cm_is_ud(id)) {
		id->state = CM_REP_RECEIVED;
		cm_id_deadline(id, 0);
		conn_event(cm_event_new(id, CM_EVENT_CONNECT_RESPONSE, 0), msg, CM_REP_PRIVATE);
	} else if (msg->status != 0) {
		closed(id, CM_EVENT_UNREACHABLE, (int)msg->status);
	} else {
		ud_event(id, closed(id, CM_EVENT_ESTABLISHED, 0), msg, CM_SIDR_REP_PRIVATE);
	}
}

static void
disconnected(struct cm_id *id, uint8_t private_len)
{
	struct rdma_ucm_event_resp *resp = cm_event_new(id, CM_EVENT_DISCONNECTED, 0);

	cm_id_deadline(id, 0);
	resp->param.conn.private_data_len = private_len;
}

/* What does not fit the state came too late, and is nothing. */
static void
msg_received(struct cm_id *id, const struct cm_msg *msg)
{
	enum cm_state state = id->state;

	switch ((enum cm_msg_type)msg->type) {
	case CM_REQ:
		break;
	case CM_REP:
		if (state == CM_REQ_SENT)
			rep_received(id, msg);
		break;
	case CM_RTU:
		if (state == CM_REP_SENT) {
			id->state = CM_ESTABLISHED;
			cm_id_deadline(id, 0);
			(void)cm_event_new(id, CM_EVENT_ESTABLISHED, 0);
		}
		break;
	case CM_REJ:
		if (state == CM_REQ_SENT || state == CM_REP_SENT || state == CM_REP_RECEIVED)
			rejected(id, msg->status, msg->conn.private_data);
		break;
	case CM_DREQ:
		if (state < CM_REP_SENT || state > CM_DREQ_SENT)
			break;
		id->state = CM_DREQ_RECEIVED;
		(void)cm_wire_watch(id, EPOLL_CTL_DEL); /* The end of the socket is no event. */
		disconnected(id, CM_DREQ_PRIVATE);
		break;
	case CM_DREP:
		if (state != CM_DREQ_SENT)
			break;
		cm_wire_end(id);
		disconnected(id, CM_DREP_PRIVATE);
		break;
	}
}

/* recv() of a message, or of its part before the end; another part stays until the rest is here. */
static ssize_t
msg_recv(const struct cm_id *id, struct cm_msg *msg)
{
	struct pollfd pfd = {.fd = id->fd, .events = POLLIN};

	errno = EAGAIN;
	return poll(&pfd, 1, 0) == 1 ? recv(id->fd, msg, sizeof(*msg), MSG_DONTWAIT) : -1;
}

static void
receive(struct cm_id *id)
{
	struct cm_msg msg;
	ssize_t n = msg_recv(id, &msg);

	/* The peer closed with messages unread; what it sent before is still there. */
	if (n < 0 && (errno == EAGAIN || errno == ECONNRESET || errno == EINTR))
		return;
	if (msg_is_valid(id, &msg, n))
		msg_received(id, &msg);
	else
		lost(id);
}

/* Whom a socket is from and to. From IPv4 to a listener of IPv6 both are of IPv4. */
static void
ends_of(int fd, union cm_addr *src, union cm_addr *dst)
{
	union cm_addr *end[2] = {src, dst};
	socklen_t len[2] = {sizeof(*src), sizeof(*dst)};

	(void)getsockname(fd, &src->sa, &len[0]);
	(void)getpeername(fd, &dst->sa, &len[1]);
	for (int i = 0; i < 2; i++)
		if (end[i]->sa.sa_family == AF_INET6 &&
			IN6_IS_ADDR_V4MAPPED(&end[i]->in6.sin6_addr))
			end[i]->in = (struct sockaddr_in){.sin_family = AF_INET,
				.sin_port = end[i]->in.sin_port,
				.sin_addr.s_addr = end[i]->in6.sin6_addr.s6_addr32[3]};
}

/* False: it is none to the listener's addresses, or there is no memory for the event. */
static bool
req_received(struct cm_id *id, const struct cm_msg *req)
{
	const union cm_addr *at = &id->listener->src;
	struct rdma_ucm_event_resp *resp;

	if (!is_tcp()) {
		id->src = req->dst;
		id->dst = req->src;
	}
	id->device = cm_addr_device(&id->src);
	/* Without a descriptor to ask: the connection shows that the address is of this host. */
	if (is_tcp() && (id->device == -EMFILE || id->device == -ENFILE))
		id->device = 0;
	if (req->type != CM_REQ || id->device < 0 || cm_addr_size(&id->dst) == 0 ||
		(!is_tcp() && !cm_addr_is_any(at) && !cm_addr_equal(at, &id->src)))
		return false;
	id->state = CM_REQ_RECEIVED;
	cm_id_deadline(id, 0);
	/* What the peer does now is no event: accept reports that it is gone. */
	(void)cm_wire_watch(id, EPOLL_CTL_DEL);
	id->ack_timeout = id->listener->ack_timeout;
	id->retry = req->conn.retry_count & 7;
	peer_is(id, req);
	resp = cm_event_new(id, CM_EVENT_CONNECT_REQUEST, 0);
	if (cm_is_ud(id))
		ud_event(id, resp, req, CM_SIDR_REQ_PRIVATE);
	else
		conn_event(resp, req, CM_REQ_PRIVATE);
	return resp->id != 0;
}

/* The first message of a connection, unless the peer is yet to send it. */
static void
receive_first(struct cm_id *id)
{
	struct cm_msg msg;
	ssize_t n = msg_recv(id, &msg);

	if (n < 0 && errno == EAGAIN)
		return;
	if (msg_is_valid(id, &msg, n) && req_received(id, &msg))
		return;
	msg = (struct cm_msg){.status = CM_REJECT_NO_SERVICE};
	(void)cm_wire_send(id, CM_REJ, &msg);
	cm_id_free(id);
}

/* One more whose request is awaited: if there are too many, the oldest goes. */
static void
awaited_limit(const struct cm_id *last)
{
	struct cm_id *id, *oldest = NULL, *oldest_here = NULL;
	uint32_t all = 0, here = 0;

	TAILQ_FOREACH (id, &last->chan->waiting, wait) {
		if (id->state != CM_REQ_AWAITED)
			continue;
		if (all++ == 0)
			oldest = id;
		/* An address of IPv4; of IPv6 the network, of which its owner has all. */
		if (memcmp(id->dst.sa.sa_data + 2, last->dst.sa.sa_data + 2, 12) == 0 &&
			here++ == 0)
			oldest_here = id;
	}
	if (here > AWAITED_SOURCE)
		cm_id_free(oldest_here);
	else if (all > AWAITED_MAX)
		cm_id_free(oldest);
}

static void
accept_one(struct cm_id *listener)
{
	int fd = sm_fd_hide(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	struct cm_id *id;

	if (fd < 0) { /* No descriptor is left: the request waits until there is one. */
		(void)cm_wire_watch(listener, EPOLL_CTL_DEL);
		cm_id_deadline(listener, uv_clock_read(CLOCK_MONOTONIC) + AGAIN_NS);
		return;
	}
	id = is_own_user(fd) ? cm_id_new(listener->chan, listener->ps, listener->qp_type) : NULL;
	if (id == NULL) {
		close(fd);
		return;
	}
	id->fd = fd;
	id->listener = listener;
	id->state = CM_REQ_AWAITED;
	cm_wire_expect(id);
	(void)cm_wire_watch(id, EPOLL_CTL_ADD); /* Else it is dropped when its time is over. */
	if (is_tcp()) {
		ends_of(fd, &id->src, &id->dst);
		awaited_limit(id);
	}
	receive_first(id); /* Or a program that polls, and then waits, would wait for another. */
}

/* The peer cannot be reached. EAGAIN: the backlog of the listener is full. */
static void
failed(struct cm_id *id, int err)
{
	id->unsent = false;
	if (err == EAGAIN || err == ECONNREFUSED)
		rejected(id, err == EAGAIN ? CM_REJECT_CONSUMER : CM_REJECT_NO_SERVICE, NULL);
	else
		closed(id, CM_EVENT_UNREACHABLE, -err);
}

/* Once the socket is connected. */
static void
req_send(struct cm_id *id)
{
	int err = cm_wire_send(id, CM_REQ, &id->req);

	if (err == EAGAIN)
		return;
	id->unsent = false;
	/* If the listener is gone: receive() reports it. */
	if (err == 0 || err == EPIPE || err == ECONNRESET)
		(void)cm_wire_watch(id, EPOLL_CTL_MOD);
	else
		failed(id, err);
}

void
cm_wire_ready(struct cm_id *id)
{
	if (id->state == CM_LISTENING)
		accept_one(id);
	else if (id->state == CM_REQ_AWAITED)
		receive_first(id);
	else if (id->unsent)
		req_send(id);
	else
		receive(id);
}

int
cm_wire_connect(struct cm_id *id)
{
	int err;

	id->req.src = id->src;
	id->req.dst = id->dst;
	id->state = CM_REQ_SENT;
	id->unsent = true;
	/* A socket of TCP connects to its own port. */
	err = is_tcp() && cm_addr_equal(&id->src, &id->dst) &&
			cm_port_of(&id->src) == cm_port_of(&id->dst)
		? ECONNREFUSED
		: name_call(connect, id, &id->dst);
	(void)name_share(id);
	if (err == 0 && !is_own_user(id->fd))
		err = ECONNREFUSED;
	if (err != 0 && err != EINPROGRESS) {
		failed(id, err);
		return 0;
	}
	err = cm_wire_watch(id, EPOLL_CTL_ADD);
	if (err != 0) {
		cm_wire_end(id);
		return err;
	}
	cm_wire_expect(id);
	req_send(id); /* If it is connected already: one of TCP rarely to another host. */
	return 0;
}
