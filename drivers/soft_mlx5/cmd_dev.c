/* SPDX-License-Identifier: BSD-3-Clause */
#include "uverbs.h"

#include <endian.h>
#include <errno.h>

#include "fabric.h"
#include "sysfs.h"

/* What the NIC can do, and not more: a program reads here what it may ask for. */
static int
query_device(struct uv_ctx *ctx, struct uv_call *call)
{
	uint64_t guid = SM_NODE_GUID + (uint64_t)ctx->device;
	struct ib_uverbs_query_device_resp *resp = uv_resp(call);

	*resp = (struct ib_uverbs_query_device_resp){
		.fw_ver = (uint64_t)SM_FW_MAJOR << 32 | SM_FW_MINOR << 16 | SM_FW_SUB,
		.node_guid = htobe64(guid),
		.sys_image_guid = htobe64(guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = SM_VENDOR_OUI,
		.vendor_part_id = SM_PART_ID,
		.max_qp = SM_QPS_MAX,
		.max_qp_wr = UV_WR_MAX,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
			IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = UV_SGE_MAX,
		.max_sge_rd = UV_SGE_MAX,
		.max_cq = 1 << 16,
		.max_cqe = UV_CQE_MAX,
		.max_mr = 1 << 20,
		.max_mw = 1 << 20,
		.max_pd = 1 << 16,
		.max_ah = 1 << 20,
		.max_qp_rd_atom = UV_RD_ATOM_MAX,
		.max_res_rd_atom = UV_RD_ATOM_MAX * SM_QPS_MAX,
		.max_qp_init_rd_atom = UV_RD_ATOM_MAX,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = 1 << 16,
		.max_srq_wr = UV_SRQ_WR_MAX,
		.max_srq_sge = UV_SRQ_SGE_MAX,
		.max_pkeys = SM_PKEYS_MAX,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
	return 0;
}

_Static_assert(sizeof(struct ib_uverbs_ex_query_device_resp) <= UV_BYTES_MAX, "the longest");

static int
query_device_ex(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_ex_query_device *req = uv_req(call);
	struct ib_uverbs_ex_query_device_resp *resp = uv_resp(call);
	struct mlx5_ib_query_device_resp *drv = uv_drv_resp(call); /* no offloads */
	const struct mlx5_ib_dci_streams_caps streams = {SM_DCI_STREAMS_LOG, SM_DCI_STREAMS_LOG};

	if (req->comp_mask != 0 || req->reserved != 0)
		return EINVAL;
	resp->timestamp_mask = UINT64_MAX;
	resp->hca_core_clock = 1000000; /* kHz: one tick is a nanosecond */
	resp->response_length = (uint32_t)crpc_min(call->resp_room, sizeof(*resp));
	drv->dci_streams_caps = streams;
	drv->response_length = (uint32_t)crpc_min(call->drv_room, sizeof(*drv));
	return query_device(ctx, call); /* What it begins with. */
}

static int
query_port(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_query_port *req = uv_req(call);
	const struct sm_port *port = sm_port((uint32_t)ctx->device);
	struct ib_uverbs_query_port_resp *resp = uv_resp(call);

	*resp = (struct ib_uverbs_query_port_resp){
		.max_msg_sz = SM_MSG_MAX,
		.gid_tbl_len = SM_GIDS,
		.pkey_tbl_len = (uint16_t)port->npkeys,
		.lid = port->lid,
		.sm_lid = port->ethernet ? 0 : SM_LID,
		.flags = sm_fabric()->grh ? IBV_QPF_GRH_REQUIRED : 0,
		.state = port->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = port->mtu,
		.max_vl_num = 4,
		.subnet_timeout = 18,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = port->down ? 3 : 5, /* Disabled, LinkUp */
		.link_layer = port->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
	};
	return req->port_num == 1 ? 0 : EINVAL;
}

const struct uv_cmd uv_device_commands[] = {
	{UV_CMD(GET_CONTEXT, get_context, uv_get_context,
		UV_DRV(alloc_ucontext_req_v2, num_low_latency_bfregs))},
	{UV_CMD(QUERY_DEVICE, query_device, query_device)},
	{UV_CMD(QUERY_PORT, query_port, query_port)},
	{UV_CMD_EX(QUERY_DEVICE, sizeof(struct ib_uverbs_ex_query_device),
		offsetof(struct ib_uverbs_ex_query_device_resp, odp_caps), query_device_ex)},
	{0},
};
