/* SPDX-License-Identifier: BSD-3-Clause */

/* Commands about an identifier; what a kernel refuses is refused with the same errno value. */
#include "cm.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "say.h"

#define AF_IB_SIZE 48

static int
create_id(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_create_id *req = uv_req(call);
	struct rdma_ucm_create_id_resp *resp = uv_resp(call);
	uint8_t type = req->qp_type;
	struct cm_id *id;

	if (req->ps == RDMA_PS_TCP)
		type = IBV_QPT_RC;
	else if (req->ps == RDMA_PS_UDP || req->ps == RDMA_PS_IPOIB)
		type = IBV_QPT_UD;
	else if (req->ps != RDMA_PS_IB)
		return EINVAL;
	id = cm_id_new(chan, req->ps, type);
	if (id == NULL)
		return errno;
	id->uid = req->uid;
	resp->id = id->obj.handle;
	return 0;
}

static int
destroy_id(struct cm_chan *chan, struct cm_call *call)
{
	struct rdma_ucm_destroy_id_resp *resp = uv_resp(call);

	resp->events_reported = call->id->events_reported;
	cm_id_free(call->id);
	return 0;
}

/* The new channel is that of the call, the old one a descriptor in the request. */
static int
migrate_id(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_migrate_id *req = uv_req(call);
	struct rdma_ucm_migrate_resp *resp = uv_resp(call);
	struct cm_chan *from = cm_chan_of(sm_file_find((int)req->fd));
	struct cm_id *id = cm_id_find(req->id);

	if (from == NULL || from->dead)
		return EINVAL;
	if (id == NULL)
		return ENOENT;
	if (id->chan != from)
		return EINVAL;
	resp->events_reported = id->events_reported;
	return cm_id_migrate(id, chan);
}

/* ---- addresses ---- */

/* An address of a request: 0, or EINVAL if it is none of its family's size. */
static int
addr_take(union cm_addr *to, const void *from, uint32_t size)
{
	memcpy(to, from, sizeof(*to));
	return cm_addr_size(to) != 0 && size == cm_addr_size(to) ? 0 : EINVAL;
}

static int
bind_id(struct cm_id *id, const union cm_addr *addr)
{
	int device = cm_addr_is_any(addr) ? -1 : cm_addr_device(addr), err;

	if (id->state != CM_IDLE)
		return EINVAL;
	if (device < 0 && !cm_addr_is_any(addr))
		return -device;
	id->src = *addr;
	err = cm_wire_bind(id, cm_port_of(addr));
	if (err != 0)
		return err;
	id->device = device;
	id->state = CM_BOUND;
	return 0;
}

static int
bind_any(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_bind *req = uv_req(call);
	static const uint8_t any[16];
	union cm_addr addr;

	/* librdmacm binds an address of InfiniBand to see whether it may use the newer commands. */
	if (req->addr.ss_family == CM_AF_IB && req->addr_size == AF_IB_SIZE &&
		call->id->ps == RDMA_PS_IB && call->id->state == CM_IDLE &&
		memcmp((const uint8_t *)&req->addr + 8, any, sizeof(any)) == 0)
		return 0;
	if (req->reserved != 0 || addr_take(&addr, &req->addr, req->addr_size) != 0)
		return EINVAL;
	return bind_id(call->id, &addr);
}

/* The address that stands for none: that of this host. */
static void
loopback_if_any(union cm_addr *addr)
{
	if (!cm_addr_is_any(addr))
		return;
	if (addr->sa.sa_family == AF_INET)
		addr->in.sin_addr.s_addr = htobe32(INADDR_LOOPBACK);
	else
		addr->in6.sin6_addr = in6addr_loopback;
}

static int
resolve_addr(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_resolve_addr *req = uv_req(call);
	struct cm_id *id = call->id;
	union cm_addr src, dst;
	int err = 0;

	if (req->reserved != 0 || addr_take(&dst, &req->dst_addr, req->dst_size) != 0)
		return EINVAL;
	src = (union cm_addr){.sa.sa_family = dst.sa.sa_family};
	if (req->src_size != 0 && addr_take(&src, &req->src_addr, req->src_size) != 0)
		return EINVAL;
	if (id->state == CM_IDLE)
		err = bind_id(id, &src);
	if (err != 0)
		return err;
	if (id->state != CM_BOUND || id->src.sa.sa_family != dst.sa.sa_family)
		return EINVAL;
	id->dst = dst;
	loopback_if_any(&id->dst);
	err = cm_addr_route(&id->dst, &src, &id->peer);
	if (err == -EHOSTUNREACH || err == -ENETUNREACH) {
		(void)cm_event_new(id, CM_EVENT_ADDR_ERROR, err);
		return 0;
	}
	if (err != 0)
		return -err;
	if (cm_addr_is_any(&id->src)) {
		cm_port_of(&src) = cm_port_of(&id->src);
		id->src = src;
		id->device = cm_addr_device(&src);
	}
	id->state = CM_ADDR_RESOLVED;
	(void)cm_event_new(id, CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

static int
resolve_route(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_resolve_route *req = uv_req(call);

	if (req->timeout_ms == 0 || call->id->state != CM_ADDR_RESOLVED)
		return EINVAL;
	call->id->state = CM_ROUTE_RESOLVED;
	(void)cm_event_new(call->id, CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

/* ---- connections ---- */

static int
listen_id(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_listen *req = uv_req(call);
	union cm_addr any = {.sa.sa_family = AF_INET};
	struct cm_id *id = call->id;
	int err = id->state == CM_IDLE ? bind_id(id, &any) : 0;

	if (err != 0)
		return err;
	if (id->state != CM_BOUND)
		return EINVAL;
	err = cm_wire_listen(id, req->backlog);
	if (err == 0)
		id->state = CM_LISTENING;
	return err;
}

/* The private data of a request, of which at most @most bytes fit; zero behind them. */
static int
conn_take(struct cm_msg *msg, const struct rdma_ucm_conn_param *conn, uint32_t most)
{
	if (conn->private_data_len > most || conn->qp_num >= 1u << 24)
		return EINVAL;
	msg->conn = *conn;
	memset(msg->conn.private_data + conn->private_data_len, 0,
		sizeof(conn->private_data) - conn->private_data_len);
	return 0;
}

int
cm_connect(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_connect *req = uv_req(call);
	struct cm_id *id = call->id;

	if (!req->conn_param.valid || id->state != CM_ROUTE_RESOLVED ||
		conn_take(&id->req, &req->conn_param,
			cm_is_ud(id) ? CM_SIDR_REQ_PRIVATE : CM_REQ_PRIVATE) != 0)
		return EINVAL;
	id->req.ece = req->ece;
	id->retry = req->conn_param.retry_count & 7;
	return cm_wire_connect(id);
}

static int
accept_ud(struct cm_id *id, struct cm_msg *rep)
{
	int err;

	if (rep->conn.qkey == 0)
		rep->conn.qkey = CM_UD_QKEY;
	err = cm_wire_send(id, CM_REP, rep);
	/* The answer stays in the socket; of datagrams no connection is left to watch. */
	cm_wire_end(id);
	return err;
}

static int
accept_request(struct cm_id *id, const struct rdma_ucm_accept *req)
{
	struct cm_msg rep = {.ece = req->ece};
	int err;

	if (!req->conn_param.valid ||
		conn_take(&rep, &req->conn_param,
			cm_is_ud(id) ? CM_SIDR_REP_PRIVATE : CM_REP_PRIVATE) != 0)
		return EINVAL;
	id->uid = req->uid;
	if (cm_is_ud(id))
		return accept_ud(id, &rep);
	id->depth = rep.conn.initiator_depth;
	id->resources = rep.conn.responder_resources;
	err = cm_wire_send(id, CM_REP, &rep);
	if (err == 0)
		err = cm_wire_watch(id, EPOLL_CTL_ADD);
	if (err != 0) {
		cm_wire_end(id);
		return err;
	}
	id->state = CM_REP_SENT;
	cm_wire_expect(id);
	return 0;
}

static int
accept_id(struct cm_chan *chan, struct cm_call *call)
{
	struct cm_id *id = call->id;
	int err = EINVAL;

	if (id->state == CM_REQ_RECEIVED)
		err = accept_request(id, uv_req(call));
	else if (id->state == CM_REP_RECEIVED)
		err = cm_wire_send(id, CM_RTU, NULL);
	if (err == 0 && id->state == CM_REP_RECEIVED)
		id->state = CM_ESTABLISHED;
	return err == 0 ? 0 : EINVAL; /* Also if the peer is gone. */
}

static int
reject(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_reject *req = uv_req(call);
	struct cm_id *id = call->id;
	struct cm_msg rej = {
		.status = req->reason != 0 ? req->reason : (uint32_t)CM_REJECT_CONSUMER};

	if ((rej.status != CM_REJECT_CONSUMER && rej.status != CM_REJECT_VENDOR_OPTION) ||
		req->private_data_len > (cm_is_ud(id) ? CM_SIDR_REP_PRIVATE : CM_REJ_PRIVATE) ||
		(id->state != CM_REQ_RECEIVED && id->state != CM_REP_RECEIVED))
		return EINVAL;
	memcpy(rej.conn.private_data, req->private_data, req->private_data_len);
	(void)cm_wire_send(id, CM_REJ, &rej);
	cm_wire_end(id);
	return 0;
}

static int
disconnect(struct cm_chan *chan, struct cm_call *call)
{
	struct cm_id *id = call->id;

	if (id->state < CM_REQ_SENT)
		return EINVAL;
	if (id->state == CM_REP_SENT)
		(void)cm_wire_ready(id); /* RTU may have come, which a kernel would have read. */
	if (id->state == CM_DREQ_RECEIVED) {
		(void)cm_wire_send(id, CM_DREP, NULL);
		cm_wire_end(id);
	} else if (id->state == CM_ESTABLISHED) {
		/* If the peer is gone, the end of the socket reports it. */
		(void)cm_wire_send(id, CM_DREQ, NULL);
		id->state = CM_DREQ_SENT;
		cm_wire_expect(id);
	}
	return 0;
}

/* The program saw a message of the peer before RTU. */
static int
notify(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_notify *req = uv_req(call);

	if (req->event != IBV_EVENT_COMM_EST || call->id->state < CM_REQ_SENT)
		return EINVAL;
	if (call->id->state == CM_ESTABLISHED)
		return EISCONN;
	if (call->id->state != CM_REP_SENT)
		return EINVAL;
	call->id->state = CM_ESTABLISHED;
	cm_id_deadline(call->id, 0);
	(void)cm_event_new(call->id, CM_EVENT_ESTABLISHED, 0);
	return 0;
}

static int
set_option(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_set_option *req = uv_req(call);
	bool is_byte =
		req->optname == RDMA_OPTION_ID_TOS || req->optname == RDMA_OPTION_ID_ACK_TIMEOUT;
	uint32_t value = 0;

	if (req->level != RDMA_OPTION_ID || req->optname > RDMA_OPTION_ID_ACK_TIMEOUT)
		return ENOSYS;
	if (req->optlen != (is_byte ? 1 : sizeof(int)))
		return EINVAL;
	if (uv_check_range(req->optval, req->optlen, false) != 0)
		return EFAULT;
	memcpy(&value, (const void *)(uintptr_t)req->optval, req->optlen);
	if (req->optname == RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (value > 31 || cm_is_ud(call->id))
			return EINVAL;
		call->id->ack_timeout = (uint8_t)value;
	} else if (req->optname == RDMA_OPTION_ID_REUSEADDR) {
		if (call->id->state != CM_IDLE)
			return EINVAL;
		call->id->reuse_addr = value != 0;
	}
	return 0;
}

static int
join_mcast(struct cm_chan *chan, struct cm_call *call)
{
	return sm_refuse(EOPNOTSUPP, "multicast by rdma_cm");
}

/* ---- the table ---- */

#define SIZE(word)   sizeof(struct rdma_ucm_##word)
#define REQ(word)    SIZE(word), SIZE(word)
#define ID(word)     offsetof(struct rdma_ucm_##word, id)
#define RESP(word)   offsetof(struct rdma_ucm_##word, response)
#define ROW(NR, ...) [RDMA_USER_CM_CMD_##NR] = {#NR, __VA_ARGS__}
/* Without what kernels added later. */
#define CONN(word) SIZE(word), offsetof(struct rdma_ucm_##word, ece), ID(word)
#define EVENT_MIN  offsetof(struct rdma_ucm_event_resp, reserved)
#define ATTR_SIZE  sizeof(struct ib_uverbs_qp_attr)

const struct cm_command cm_commands[CM_COMMANDS] = {
	ROW(CREATE_ID, create_id, REQ(create_id), CM_NO_ID, false, RESP(create_id),
		SIZE(create_id_resp), SIZE(create_id_resp)),
	ROW(DESTROY_ID, destroy_id, REQ(destroy_id), ID(destroy_id), false, RESP(destroy_id),
		SIZE(destroy_id_resp), SIZE(destroy_id_resp)),
	ROW(RESOLVE_ROUTE, resolve_route, REQ(resolve_route), ID(resolve_route), true),
	ROW(CONNECT, cm_connect, CONN(connect), true),
	ROW(LISTEN, listen_id, REQ(listen), ID(listen)),
	ROW(ACCEPT, accept_id, CONN(accept), true),
	ROW(REJECT, reject, REQ(reject), ID(reject), true),
	ROW(DISCONNECT, disconnect, REQ(disconnect), ID(disconnect), true),
	ROW(INIT_QP_ATTR, cm_init_qp_attr, REQ(init_qp_attr), ID(init_qp_attr), true,
		RESP(init_qp_attr), ATTR_SIZE, ATTR_SIZE),
	ROW(GET_EVENT, cm_get_event, REQ(get_event), CM_NO_ID, false, RESP(get_event),
		SIZE(event_resp), EVENT_MIN),
	ROW(SET_OPTION, set_option, REQ(set_option), ID(set_option)),
	ROW(NOTIFY, notify, REQ(notify), ID(notify), true),
	ROW(MIGRATE_ID, migrate_id, REQ(migrate_id), CM_NO_ID, false, RESP(migrate_id),
		SIZE(migrate_resp), SIZE(migrate_resp)),
	ROW(QUERY, cm_query, REQ(query), ID(query), false, RESP(query), SIZE(query_addr_resp), 1),
	ROW(BIND, bind_any, REQ(bind), ID(bind)),
	ROW(RESOLVE_ADDR, resolve_addr, REQ(resolve_addr), ID(resolve_addr)),
	ROW(JOIN_MCAST, join_mcast, REQ(join_mcast), ID(join_mcast)),
};

_Static_assert(SIZE(accept) <= UV_BYTES_MAX && SIZE(resolve_addr) <= UV_BYTES_MAX &&
		SIZE(event_resp) <= UV_BYTES_MAX,
	"the longest");
