/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Ports and messages: Unix sockets with abstract names, which the kernel removes with the process,
 * and which belong to a network namespace as addresses do. The peer is a process of the same user,
 * on the same net.
 */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "say.h"

/* Ports that are given out, as Linux does without other settings. */
#define PORT_FIRST 32768u
#define PORT_COUNT 28232u
/* As the kernel: more are waiting than any program asked for. */
#define BACKLOG_MAX 1024u
/* A kernel sends REQ 16 times, 4.3 seconds apart. */
#define ANSWER_MS 69000u

/* The name of a port; its length, 0 if the net's name is too long. */
static socklen_t
name_make(struct sockaddr_un *un, uint16_t ps, in_port_t port)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "soft_mlx5.%u.%s.cm.%x.%u",
		(unsigned int)geteuid(), uv_net_base(), ps,
		ntohs(port));
	return n > 0 && (size_t)n < sizeof(un->sun_path) - 1
		? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)
		: 0;
}

static int
name_take(struct cm_id *id, in_port_t port)
{
	struct sockaddr_un un;
	socklen_t len = name_make(&un, id->ps, port);

	if (len == 0)
		return ENAMETOOLONG;
	if (bind(id->fd, (const struct sockaddr *)&un, len) != 0)
		return errno;
	id->named = true;
	cm_port_of(&id->src) = port;
	return 0;
}

/* A port that is free: the search begins at another place in each process, and continues there. */
static int
name_take_any(struct cm_id *id)
{
	static uint32_t next;
	int err = EADDRINUSE;

	if (next == 0)
		next = (uint32_t)getpid() * 509u;
	for (uint32_t i = 0; i < PORT_COUNT && err == EADDRINUSE; i++)
		err = name_take(id, htons((uint16_t)(PORT_FIRST + next++ % PORT_COUNT)));
	return err;
}

int
cm_wire_bind(struct cm_id *id, in_port_t port)
{
	int err = 0;

	id->fd = sm_fd_hide(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (id->fd < 0)
		return errno;
	/* A port that several share is free until one of them listens. */
	if (port == 0)
		err = name_take_any(id);
	else if (!id->reuse_addr)
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
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = id->obj.handle};

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

	cm_id_deadline(id, uv_clock_read(CLOCK_MONOTONIC) +
			(ms != 0 && ms < ANSWER_MS ? ms : ANSWER_MS) * UINT64_C(1000000));
}

int
cm_wire_listen(struct cm_id *id, uint32_t backlog)
{
	int err = id->named ? 0 : name_take(id, cm_port_of(&id->src));

	if (err != 0)
		return err;
	if (listen(id->fd, (int)(backlog - 1 < BACKLOG_MAX ? backlog : BACKLOG_MAX)) != 0)
		return errno;
	return cm_wire_watch(id, EPOLL_CTL_ADD);
}

int
cm_wire_send(struct cm_id *id, enum cm_msg_type type, struct cm_msg *msg)
{
	struct cm_msg plain = {0};

	if (msg == NULL)
		msg = &plain;
	msg->magic = CM_MAGIC;
	msg->ps = id->ps;
	msg->type = (uint16_t)type;
	return send(id->fd, msg, sizeof(*msg), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*msg) ? 0
											    : errno;
}

/* Copied once by recv(); false: it is none of this version, or its numbers are none of a queue. */
static bool
msg_is_valid(const struct cm_id *id, const struct cm_msg *msg, ssize_t n)
{
	return n == sizeof(*msg) && msg->magic == CM_MAGIC && msg->ps == id->ps &&
		msg->type <= CM_DREP && msg->psn < 1u << 24 && msg->conn.qp_num < 1u << 24;
}

static bool
is_own_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
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
	if (id->state == CM_REQ_AWAITED)
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
	id->peer_qpn = msg->conn.qp_num;
	id->peer_psn = msg->psn;
	id->depth = msg->conn.responder_resources;
	id->resources = msg->conn.initiator_depth;
	id->rnr_retry = msg->conn.rnr_retry_count & 7;
}

static void
rep_received(struct cm_id *id, const struct cm_msg *msg)
{
	if (!cm_is_ud(id)) {
		peer_is(id, msg);
		id->state = CM_REP_RECEIVED;
		cm_id_deadline(id, 0);
		conn_event(
			cm_event_new(id, CM_EVENT_CONNECT_RESPONSE, 0), msg, CM_REP_PRIVATE);
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

/* Each kind of message comes once at most: a peer that sends more is broken. */
#define MSGS_MAX 16

static void
receive(struct cm_id *id)
{
	struct cm_msg msg;
	uint32_t msgs = 0;
	ssize_t n;

	while (id->fd >= 0) {
		n = recv(id->fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && errno == EAGAIN)
			return;
		/* The peer closed with messages unread; what it sent before is still there. */
		if (n < 0 && (errno == ECONNRESET || errno == EINTR))
			continue;
		if (msgs++ < MSGS_MAX && msg_is_valid(id, &msg, n))
			msg_received(id, &msg);
		else
			lost(id);
	}
}

/* False: it is none to the listener's addresses, or there is no memory for the event. */
static bool
req_received(struct cm_id *id, const struct cm_msg *req)
{
	const union cm_addr *at = &id->listener->src;
	struct rdma_ucm_event_resp *resp;

	id->src = req->dst;
	id->dst = req->src;
	id->device = cm_addr_device(&id->src);
	id->peer_device = cm_addr_device(&id->dst);
	if (req->type != CM_REQ || id->device < 0 || id->peer_device < 0 ||
		(!cm_addr_is_any(at) && !cm_addr_equal(at, &id->src)))
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
	ssize_t n = recv(id->fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && errno == EAGAIN)
		return;
	if (msg_is_valid(id, &msg, n) && req_received(id, &msg))
		return;
	msg = (struct cm_msg){.status = CM_REJECT_NO_SERVICE};
	(void)cm_wire_send(id, CM_REJ, &msg);
	cm_id_free(id);
}

static bool
accept_one(struct cm_id *listener)
{
	int fd = sm_fd_hide(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	struct cm_id *id;

	if (fd < 0) { /* No descriptor is left: the request waits until there is one. */
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		return false;
	}
	id = is_own_user(fd) ? cm_id_new(listener->chan, listener->ps, listener->qp_type) : NULL;
	if (id == NULL) {
		close(fd);
		return true;
	}
	id->fd = fd;
	id->listener = listener;
	id->state = CM_REQ_AWAITED;
	cm_wire_expect(id);
	(void)cm_wire_watch(id, EPOLL_CTL_ADD); /* Else it is dropped when its time is over. */
	receive_first(id);
	return true;
}

bool
cm_wire_ready(struct cm_id *id)
{
	if (id->state == CM_LISTENING)
		return accept_one(id);
	if (id->state == CM_REQ_AWAITED)
		receive_first(id);
	else
		receive(id);
	return true;
}

int
cm_wire_connect(struct cm_id *id, struct cm_msg *req)
{
	struct sockaddr_un un;
	socklen_t len = name_make(&un, id->ps, cm_port_of(&id->dst));
	int err;

	req->src = id->src;
	req->dst = id->dst;
	id->state = CM_REQ_SENT;
	if (connect(id->fd, (const struct sockaddr *)&un, len) != 0) {
		/* EAGAIN: the listener's backlog is full. */
		rejected(id, errno == EAGAIN ? CM_REJECT_CONSUMER : CM_REJECT_NO_SERVICE, NULL);
		return 0;
	}
	if (!is_own_user(id->fd)) {
		rejected(id, CM_REJECT_NO_SERVICE, NULL);
		return 0;
	}
	err = cm_wire_watch(id, EPOLL_CTL_ADD);
	if (err != 0) {
		cm_wire_end(id);
		return err;
	}
	cm_wire_expect(id);
	(void)cm_wire_send(id, CM_REQ, req); /* If the listener is gone: receive() reports it. */
	return 0;
}
