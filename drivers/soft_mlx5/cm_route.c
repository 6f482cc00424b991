/* SPDX-License-Identifier: BSD-3-Clause */

/* Which device an address belongs to, and answers about the path between two of them. */
#include "cm.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric.h"
#include "port.h"
#include "sysfs.h"

#define HOP_LIMIT  64
#define LIFETIME   (CM_ACK_TIMEOUT - 1)
#define RATE       IBV_RATE_100_GBPS
#define AF_IB_ADDR 27 /* AF_IB of linux/socket.h */
#define NO_INDEX   UINT32_MAX

/* struct sockaddr_ib, which no public header of a kernel has. */
struct ib_sockaddr {
	uint16_t family;
	uint16_t pkey;
	uint32_t flowinfo;
	uint8_t gid[16];
	uint64_t service, service_mask, scope;
};
_Static_assert(sizeof(struct ib_sockaddr) == 48, "as the kernel has it");

/* A path record as the subnet administrator sends it, big endian. */
struct path_record {
	uint64_t service;
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid;
	uint32_t flow_hop;
	uint8_t tclass, reversible_npaths;
	uint16_t pkey, qos_sl;
	uint8_t mtu, rate, lifetime, preference, reserved[6];
};
_Static_assert(sizeof(struct path_record) == sizeof(((struct ib_path_rec_data *)0)->path_rec),
	"the same record");

#define SELECT_EXACTLY 2u

/* ---- addresses ---- */

uint32_t
cm_addr_size(const union cm_addr *addr)
{
	if (addr->sa.sa_family == AF_INET)
		return sizeof(addr->in);
	return addr->sa.sa_family == AF_INET6 ? sizeof(addr->in6) : 0;
}

bool
cm_addr_is_any(const union cm_addr *addr)
{
	return addr->sa.sa_family == AF_INET ? addr->in.sin_addr.s_addr == htonl(INADDR_ANY)
					     : IN6_IS_ADDR_UNSPECIFIED(&addr->in6.sin6_addr);
}

bool
cm_addr_equal(const union cm_addr *a, const union cm_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	return a->sa.sa_family == AF_INET
		? a->in.sin_addr.s_addr == b->in.sin_addr.s_addr
		: IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
}

/* The index of the GID that the connections of a port have: of RoCE v2, with the IPv4 address. */
static uint32_t
gid_index(const struct sm_port *port)
{
	return port->ethernet ? port->ngids - 1 : 0;
}

static const struct sm_port *
port_of(int device)
{
	return sm_port((uint32_t)device);
}

static const uint8_t *
gid_of(int device)
{
	return port_of(device)->gid[gid_index(port_of(device))].raw;
}

/* An address is of this host if a socket can have it. */
static bool
is_local(const union cm_addr *addr)
{
	union cm_addr any_port = *addr;
	int fd = socket(addr->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool local;

	cm_port_of(&any_port) = 0;
	local = fd >= 0 && bind(fd, &any_port.sa, cm_addr_size(addr)) == 0;
	if (fd >= 0)
		close(fd);
	return local;
}

int
cm_addr_device(const union cm_addr *addr)
{
	if (cm_addr_size(addr) == 0)
		return -1;
	/* On Ethernet a device has an address of its own, in its GID ::ffff:a.b.c.d. */
	for (int n = 0; n < (int)sm_ports() && addr->sa.sa_family == AF_INET; n++)
		if (port_of(n)->ethernet &&
			memcmp(gid_of(n) + 12, &addr->in.sin_addr, sizeof(addr->in.sin_addr)) == 0)
			return n;
	return is_local(addr) ? 0 : -1;
}

/* ---- queue pairs ---- */

/* The last entry: with several partitions the first one is that of a limited member. */
static uint16_t
pkey_index(const struct cm_id *id)
{
	return (uint16_t)(port_of(id->device)->npkeys - 1);
}

static uint16_t
pkey_of(const struct cm_id *id)
{
	return id->device < 0 ? 0 : htobe16(port_of(id->device)->pkey[pkey_index(id)]);
}

static uint8_t
path_mtu(const struct cm_id *id)
{
	return (uint8_t)crpc_min(port_of(id->device)->mtu, port_of(id->peer_device)->mtu);
}

void
cm_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *ah)
{
	*ah = (struct ib_uverbs_ah_attr){
		.grh.sgid_index = (uint8_t)gid_index(port_of(id->device)),
		.grh.hop_limit = HOP_LIMIT,
		.dlid = crpc_load_relaxed(&port_of(id->peer_device)->lid),
		.is_global = port_of(id->device)->ethernet || sm_fabric()->grh,
		.port_num = 1,
	};
	memcpy(ah->grh.dgid, gid_of(id->peer_device), sizeof(ah->grh.dgid));
}

static void
attr_init(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attr->pkey_index = pkey_index(id);
	attr->port_num = 1;
	if (cm_is_ud(id)) {
		attr->qp_attr_mask |= IBV_QP_QKEY;
		attr->qkey = CM_UD_QKEY;
		return;
	}
	attr->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	if (id->state >= CM_REQ_SENT)
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->state >= CM_REQ_SENT && id->resources != 0)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static void
attr_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask =
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	cm_ah(id, &attr->ah_attr);
	attr->path_mtu = path_mtu(id);
	attr->dest_qp_num = id->peer_qpn;
	attr->rq_psn = id->peer_psn;
	if (id->qp_type == IBV_QPT_UC)
		return;
	attr->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr->max_dest_rd_atomic = id->resources;
}

static void
attr_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	attr->sq_psn = id->psn;
	if (id->qp_type == IBV_QPT_UC)
		return;
	attr->qp_attr_mask |=
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->timeout = id->ack_timeout;
	attr->retry_cnt = id->retry;
	attr->rnr_retry = id->rnr_retry;
	attr->max_rd_atomic = id->depth;
}

int
cm_init_qp_attr(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_init_qp_attr *req = uv_req(call);
	struct ib_uverbs_qp_attr *attr = uv_resp(call);
	const struct cm_id *id = call->id;
	bool connecting = id->state >= CM_REQ_RECEIVED && id->state <= CM_ESTABLISHED;

	attr->qp_state = req->qp_state;
	attr->cur_qp_state = IBV_QPS_RESET;
	if (req->qp_state == IBV_QPS_INIT)
		attr_init(id, attr);
	else if (req->qp_state == IBV_QPS_RTR && connecting && !cm_is_ud(id))
		attr_rtr(id, attr);
	else if (req->qp_state == IBV_QPS_RTS && connecting && !cm_is_ud(id))
		attr_rts(id, attr);
	else
		return EINVAL;
	return 0;
}

/* ---- answers about addresses and the path ---- */

static uint64_t
node_guid(const struct cm_id *id)
{
	return id->device < 0 ? 0 : htobe64(SM_NODE_GUID + (uint64_t)id->device);
}

static bool
has_path(const struct cm_id *id)
{
	return id->state >= CM_ROUTE_RESOLVED && id->state != CM_LISTENING;
}

static struct rdma_ucm_query_addr_resp *
addr_answer(const struct cm_id *id, struct cm_call *call)
{
	struct rdma_ucm_query_addr_resp *resp = uv_resp(call);

	resp->node_guid = node_guid(id);
	resp->port_num = id->device >= 0;
	resp->pkey = pkey_of(id);
	resp->ibdev_index = NO_INDEX;
	return resp;
}

static void
query_addr(const struct cm_id *id, struct cm_call *call)
{
	struct rdma_ucm_query_addr_resp *resp = addr_answer(id, call);

	resp->src_size = (uint16_t)cm_addr_size(&id->src);
	resp->dst_size = (uint16_t)cm_addr_size(&id->dst);
	memcpy(&resp->src_addr, &id->src, sizeof(id->src));
	memcpy(&resp->dst_addr, &id->dst, sizeof(id->dst));
}

static void
query_gid(const struct cm_id *id, struct cm_call *call)
{
	struct rdma_ucm_query_addr_resp *resp = addr_answer(id, call);
	struct ib_sockaddr src = {.family = AF_IB_ADDR, .pkey = resp->pkey}, dst = src;

	if (id->device >= 0)
		memcpy(src.gid, gid_of(id->device), sizeof(src.gid));
	if (id->peer_device >= 0)
		memcpy(dst.gid, gid_of(id->peer_device), sizeof(dst.gid));
	resp->src_size = resp->dst_size = sizeof(src);
	memcpy(&resp->src_addr, &src, sizeof(src));
	memcpy(&resp->dst_addr, &dst, sizeof(dst));
}

static void
query_path(const struct cm_id *id, struct cm_call *call)
{
	struct rdma_ucm_query_path_resp *resp = uv_resp(call);
	struct path_record record = {
		.flow_hop = htobe32(HOP_LIMIT),
		.reversible_npaths = 1u << 7 | 1,
		.pkey = pkey_of(id),
		.rate = SELECT_EXACTLY << 6 | RATE,
		.lifetime = SELECT_EXACTLY << 6 | LIFETIME,
	};

	resp->num_paths = has_path(id);
	if (!has_path(id))
		return;
	memcpy(record.dgid, gid_of(id->peer_device), sizeof(record.dgid));
	memcpy(record.sgid, gid_of(id->device), sizeof(record.sgid));
	record.dlid = htobe16(crpc_load_relaxed(&port_of(id->peer_device)->lid));
	record.slid = htobe16(crpc_load_relaxed(&port_of(id->device)->lid));
	record.mtu = (uint8_t)(SELECT_EXACTLY << 6 | path_mtu(id));
	resp->path_data[0].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	memcpy(resp->path_data[0].path_rec, &record, sizeof(record));
}

int
cm_query(struct cm_chan *chan, struct cm_call *call)
{
	const struct rdma_ucm_query *req = uv_req(call);
	uint32_t least = req->option == RDMA_USER_CM_QUERY_PATH
		? sizeof(struct rdma_ucm_query_path_resp)
		: offsetof(struct rdma_ucm_query_addr_resp, ibdev_index);

	if (call->room < least)
		return ENOSPC;
	switch (req->option) {
	case RDMA_USER_CM_QUERY_ADDR:
		query_addr(call->id, call);
		return 0;
	case RDMA_USER_CM_QUERY_PATH:
		query_path(call->id, call);
		return 0;
	case RDMA_USER_CM_QUERY_GID:
		query_gid(call->id, call);
		return 0;
	default:
		return ENOSYS;
	}
}

/* The older form of all three. */
int
cm_query_route(struct cm_chan *chan, struct cm_call *call)
{
	struct rdma_ucm_query_route_resp *resp = uv_resp(call);
	struct ib_user_path_rec *path = &resp->ib_route[0];
	const struct cm_id *id = call->id;

	resp->node_guid = node_guid(id);
	resp->port_num = id->device >= 0;
	resp->ibdev_index = NO_INDEX;
	memcpy(&resp->src_addr, &id->src, sizeof(id->src));
	memcpy(&resp->dst_addr, &id->dst, sizeof(id->dst));
	path->pkey = pkey_of(id);
	if (id->device >= 0)
		memcpy(path->sgid, gid_of(id->device), sizeof(path->sgid));
	if (id->peer_device < 0)
		return 0;
	memcpy(path->dgid, gid_of(id->peer_device), sizeof(path->dgid));
	resp->num_paths = has_path(id);
	path->dlid = htobe16(crpc_load_relaxed(&port_of(id->peer_device)->lid));
	path->slid = htobe16(crpc_load_relaxed(&port_of(id->device)->lid));
	path->reversible = path->numb_path = 1;
	path->hop_limit = HOP_LIMIT;
	path->mtu_selector = path->rate_selector = path->packet_life_time_selector = SELECT_EXACTLY;
	path->mtu = path_mtu(id);
	path->rate = RATE;
	path->packet_life_time = LIFETIME;
	return 0;
}
