/* SPDX-License-Identifier: BSD-3-Clause */

/* Which device an address belongs to, and answers about the path between two of them. */
#include "cm.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/sa.h>

#include "fabric.h"
#include "port.h"
#include "say.h"
#include "sysfs.h"

#define HOP_LIMIT  64
#define LIFETIME   (CM_ACK_TIMEOUT - 1)
#define RATE       IBV_RATE_100_GBPS
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

_Static_assert(sizeof(struct ibv_path_record) == sizeof(((struct ib_path_rec_data *)0)->path_rec),
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

struct cm_end
cm_end_of(int device)
{
	const struct sm_port *port = port_of(device);
	struct cm_end end = {.lid = crpc_load_relaxed(&port->lid), .mtu = port->mtu};

	if (port->ngids != 0) /* Over UDP a device may have no address. */
		memcpy(end.gid, port->gid[gid_index(port)].raw, sizeof(end.gid));
	return end;
}

/* The first bytes of a GID that is an IPv4 address. */
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool
cm_end_is_valid(const struct cm_end *end)
{
	bool is_host = memcmp(end->gid, mapped, sizeof(mapped)) == 0 && end->gid[12] != 0 &&
		end->gid[12] < 224; /* No multicast. */

	return end->mtu >= IBV_MTU_256 && end->mtu <= IBV_MTU_4096 &&
		(is_host || !port_of(0)->udp);
}

/* The own address of a socket that is bound to this one, or to which the way to it leads. */
static int
own_addr(int (*call)(int fd, const struct sockaddr *addr, socklen_t len),
	const union cm_addr *addr, union cm_addr *own)
{
	union cm_addr any_port = *addr;
	int fd = socket(addr->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;
	socklen_t len = sizeof(*own);

	if (fd < 0)
		return -errno;
	cm_port_of(&any_port) = 0;
	if (call(fd, &any_port.sa, cm_addr_size(addr)) != 0 ||
		getsockname(fd, &own->sa, &len) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

int
cm_addr_device(const union cm_addr *addr)
{
	union cm_addr own;
	int rc;

	if (cm_addr_size(addr) == 0)
		return -ENODEV;
	/* On Ethernet a device has an address of its own, in its GID ::ffff:a.b.c.d. */
	for (int n = 0; n < (int)sm_ports() && addr->sa.sa_family == AF_INET; n++)
		if (port_of(n)->ethernet && port_of(n)->ngids != 0 &&
			memcmp(cm_end_of(n).gid + sizeof(mapped), &addr->in.sin_addr, 4) == 0)
			return n;
	/* One without an address cannot be opened either; else it is one that a socket can have. */
	rc = port_of(0)->ngids != 0 ? own_addr(bind, addr, &own) : -ENODEV;
	return rc == 0 || rc == -EMFILE || rc == -ENFILE ? rc : -ENODEV;
}

int
cm_addr_route(const union cm_addr *dst, union cm_addr *src, struct cm_end *peer)
{
	int device = cm_addr_device(dst), rc;

	*src = *dst;
	if (device == -ENODEV && !port_of(0)->udp)
		return -sm_refuse(EHOSTUNREACH,
			"rdma_cm to an address of another host without SOFT_MLX5_WIRE=udp");
	if (device == -ENODEV) {
		rc = own_addr(connect, dst, src);
		device = rc == 0 ? cm_addr_device(src) : rc;
	}
	if (device < 0)
		return device;
	*peer = cm_end_of(device);
	/* Also an address of this host may be that of another process' device. */
	if (port_of(0)->udp && dst->sa.sa_family == AF_INET &&
		ntohl(dst->in.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
		memcpy(peer->gid + sizeof(mapped), &dst->in.sin_addr, 4);
	return 0;
}

/* ---- queue pairs ---- */

/* The last entry: with several partitions the first one is that of a limited member. */
static uint16_t
pkey_index(const struct cm_id *id)
{
	return (uint16_t)(port_of(id->device)->npkeys - 1);
}

static uint8_t
path_mtu(const struct cm_id *id)
{
	return (uint8_t)crpc_min(port_of(id->device)->mtu, id->peer.mtu);
}

void
cm_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *ah)
{
	const struct sm_port *port = port_of(id->device);

	memcpy(ah->grh.dgid, id->peer.gid, sizeof(ah->grh.dgid));
	ah->grh.sgid_index = (uint8_t)gid_index(port);
	ah->grh.hop_limit = HOP_LIMIT;
	ah->dlid = id->peer.lid;
	ah->is_global = port->ethernet || sm_fabric()->grh;
	ah->port_num = 1;
}

static void
attr_init(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	bool ud = cm_is_ud(id), connects = id->state >= CM_REQ_SENT;

	attr->qp_attr_mask |=
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	attr->pkey_index = pkey_index(id);
	attr->port_num = 1;
	attr->qkey = ud ? CM_UD_QKEY : 0;
	if (!ud && connects)
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (!ud && connects && id->resources != 0)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static void
attr_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (id->qp_type != IBV_QPT_UC)
		attr->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	cm_ah(id, &attr->ah_attr);
	attr->path_mtu = path_mtu(id);
	attr->dest_qp_num = id->peer_qpn;
	attr->rq_psn = id->peer_psn;
	attr->max_dest_rd_atomic = id->resources;
}

static void
attr_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask |= IBV_QP_SQ_PSN;
	if (id->qp_type != IBV_QPT_UC)
		attr->qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	attr->sq_psn = id->psn;
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
	enum cm_state state = call->id->state;

	attr->qp_attr_mask = IBV_QP_STATE;
	attr->qp_state = req->qp_state;
	if (req->qp_state == IBV_QPS_INIT)
		attr_init(call->id, attr);
	else if (state < CM_REQ_RECEIVED || state > CM_ESTABLISHED || cm_is_ud(call->id))
		return EINVAL;
	else if (req->qp_state == IBV_QPS_RTR)
		attr_rtr(call->id, attr);
	else if (req->qp_state == IBV_QPS_RTS)
		attr_rts(call->id, attr);
	else
		return EINVAL;
	return 0;
}

/* ---- answers about addresses and the path ---- */

/* Of the device and its peer; what is not known yet is zero. */
static struct ibv_path_record
path_of(const struct cm_id *id)
{
	struct ibv_path_record path = {
		.flowlabel_hoplimit = htobe32(HOP_LIMIT),
		.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
		.mtu = SELECT_EXACTLY << 6,
		.rate = SELECT_EXACTLY << 6 | RATE,
		.packetlifetime = SELECT_EXACTLY << 6 | LIFETIME,
	};
	struct cm_end own;

	if (id->device >= 0) {
		own = cm_end_of(id->device);
		path.pkey = htobe16(port_of(id->device)->pkey[pkey_index(id)]);
		memcpy(path.sgid.raw, own.gid, sizeof(path.sgid));
		path.slid = htobe16(own.lid);
	}
	if (id->peer.mtu != 0) {
		memcpy(path.dgid.raw, id->peer.gid, sizeof(path.dgid));
		path.dlid = htobe16(id->peer.lid);
		path.mtu |= path_mtu(id);
	}
	return path;
}

static void
query_path(const struct cm_id *id, struct rdma_ucm_query_path_resp *resp)
{
	struct ibv_path_record path = path_of(id);

	resp->num_paths = id->state >= CM_ROUTE_RESOLVED && id->state != CM_LISTENING;
	resp->path_data[0].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	memcpy(resp->path_data[0].path_rec, &path, sizeof(path));
}

/* The addresses, or as addresses of InfiniBand the GIDs. */
static void
query_addr(const struct cm_id *id, bool gids, struct rdma_ucm_query_addr_resp *resp)
{
	struct ibv_path_record path = path_of(id);
	struct ib_sockaddr src = {.family = CM_AF_IB, .pkey = path.pkey}, dst = src;

	memcpy(src.gid, path.sgid.raw, sizeof(src.gid));
	memcpy(dst.gid, path.dgid.raw, sizeof(dst.gid));
	resp->node_guid = id->device < 0 ? 0 : htobe64(SM_NODE_GUID + (uint64_t)id->device);
	resp->port_num = id->device >= 0;
	resp->pkey = path.pkey;
	resp->ibdev_index = NO_INDEX;
	resp->src_size = (uint16_t)(gids ? sizeof(src) : cm_addr_size(&id->src));
	resp->dst_size = (uint16_t)(gids ? sizeof(dst) : cm_addr_size(&id->dst));
	memcpy(&resp->src_addr, gids ? (const void *)&src : &id->src, resp->src_size);
	memcpy(&resp->dst_addr, gids ? (const void *)&dst : &id->dst, resp->dst_size);
}

int
cm_query(struct cm_chan *chan, struct cm_call *call)
{
	uint32_t option = ((const struct rdma_ucm_query *)uv_req(call))->option;

	if (option > RDMA_USER_CM_QUERY_GID)
		return ENOSYS;
	if (call->room < (option == RDMA_USER_CM_QUERY_PATH
					 ? sizeof(struct rdma_ucm_query_path_resp)
					 : offsetof(struct rdma_ucm_query_addr_resp, ibdev_index)))
		return ENOSPC;
	if (option == RDMA_USER_CM_QUERY_PATH)
		query_path(call->id, uv_resp(call));
	else
		query_addr(call->id, option == RDMA_USER_CM_QUERY_GID, uv_resp(call));
	return 0;
}
