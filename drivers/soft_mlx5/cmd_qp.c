/* SPDX-License-Identifier: BSD-3-Clause */

/* Shared receive queues and queue pairs. */
#include "uverbs.h"

#include <errno.h>
#include <string.h>

#include "port.h"
#include "say.h"
#include "sysfs.h"

/* ---- shared receive queues ---- */

/* Entries as the kernel computes them from what libmlx5 asks: it keeps one for itself. A WQE is a
 * 16-byte link and 16 bytes per element. */
static int
srq_attr(const struct uv_call *call, const struct ib_uverbs_create_srq *req,
		struct sm_srq_attr *attr)
{
	const struct mlx5_ib_create_srq *drv = uv_drv_req(call);

	if (req->max_wr > UV_SRQ_WR_MAX || req->max_sge > UV_SRQ_SGE_MAX ||
			req->srq_limit > req->max_wr)
		return EINVAL;
	if (drv->flags != 0)
		return sm_refuse(
			EOPNOTSUPP, "a shared receive queue with mlx5 flags 0x%x", drv->flags);
	attr->nwqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->max_wr + 1);
	attr->wqe_shift = crpc_log2(crpc_pow2_ceil(crpc_max(32, 16 + (uint64_t)req->max_sge * 16)));
	attr->max_sge = req->max_sge;
	attr->limit = req->srq_limit;
	attr->buf = (void *)(uintptr_t)drv->buf_addr;
	attr->dbrec = (void *)(uintptr_t)drv->db_addr;
	return uv_check_queue(drv->buf_addr, (uint64_t)attr->nwqe << attr->wqe_shift, drv->db_addr);
}

static int
create_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_srq *req = uv_req(call);
	const struct uv_obj *pd = call->obj;
	struct mlx5_ib_create_srq_resp *drv = uv_drv_resp(call);
	struct ib_uverbs_create_srq_resp *resp = uv_resp(call);
	struct uv_queue *srq = call->made;
	struct sm_srq_attr attr = {.pd = pd->pd, .user = srq};
	int err = srq_attr(call, req, &attr);

	if (err != 0)
		return err;
	srq->async = (struct uv_events){.ctx = ctx, .element = req->user_handle};
	err = sm_srq_create(uv_nic(ctx), &attr, &srq->obj.srq, &drv->srqn);
	*resp = (struct ib_uverbs_create_srq_resp){
		.max_wr = attr.nwqe - 1,
		.max_sge = attr.max_sge,
		.srqn = drv->srqn,
	};
	return err;
}

static int
modify_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_modify_srq *req = uv_req(call);
	const struct uv_obj *srq = call->obj;

	if ((req->attr_mask & IBV_SRQ_MAX_WR) != 0)
		return sm_refuse(EINVAL, "resizing a shared receive queue");
	if ((req->attr_mask & ~(uint32_t)IBV_SRQ_LIMIT) != 0)
		return EINVAL;
	if ((req->attr_mask & IBV_SRQ_LIMIT) == 0)
		return 0;
	return sm_srq_limit(uv_nic(ctx), srq->srq, req->srq_limit);
}

static int
query_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct uv_obj *srq = call->obj;
	struct ib_uverbs_query_srq_resp *resp = uv_resp(call);
	struct sm_srq_attr attr = sm_srq_query(uv_nic(ctx), srq->srq);

	resp->max_wr = attr.nwqe - 1;
	resp->max_sge = attr.max_sge;
	resp->srq_limit = attr.limit;
	return 0;
}

/* ---- queue pairs: create ---- */

#define QP_DC_FLAGS (MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI)
#define QP_FLAGS                                                                                   \
	(MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |                               \
			MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_DCI_STREAM | QP_DC_FLAGS)

/* What a program asks for, and the type that it is; 0: none of ours. */
static const struct qp_type {
	uint8_t verbs;
	uint32_t flags;
	enum sm_qp_type type;
	const char *name;
} qp_types[] = {
	{IBV_QPT_RC, 0, SM_RC, "RC"},
	{IBV_QPT_UC, 0, SM_UC, "UC"},
	{IBV_QPT_UD, 0, SM_UD, "UD"},
	{IBV_QPT_DRIVER, MLX5_QP_FLAG_TYPE_DCI, SM_DCI, "DC"},
	{IBV_QPT_DRIVER, MLX5_QP_FLAG_TYPE_DCT, SM_DCT, "DC"},
	{IBV_QPT_RAW_PACKET, 0, 0, "RAW_PACKET"},
	{IBV_QPT_XRC_SEND, 0, 0, "XRC"},
	{IBV_QPT_XRC_RECV, 0, 0, "XRC"},
};

static int
qp_type(uint8_t verbs, uint32_t flags, enum sm_qp_type *type)
{
	const char *name = flags != 0 ? "DC" : "of an unknown type";

	for (uint32_t i = 0; i < CRPC_DIM(qp_types); i++) {
		if (qp_types[i].verbs != verbs || qp_types[i].flags != flags)
			continue;
		*type = qp_types[i].type;
		if (*type != 0)
			return 0;
		name = qp_types[i].name;
	}
	return sm_refuse(EOPNOTSUPP, "a QP %s", name);
}

/* The receive queue lies at buf_addr, the send queue behind it. */
static int
qp_buffers(const struct mlx5_ib_create_qp *drv, struct sm_qp_attr *attr)
{
	uint64_t rq_len = 0, sq_len = (uint64_t)drv->sq_wqe_count * 64;

	if (attr->rq_nwqe != 0) {
		if (drv->rq_wqe_count > UV_WR_MAX || drv->rq_wqe_shift < 4 ||
			drv->rq_wqe_shift > 9)
			return EINVAL;
		rq_len = (uint64_t)drv->rq_wqe_count << drv->rq_wqe_shift;
	}
	if (drv->sq_wqe_count > UV_WR_MAX || (rq_len & 63) != 0)
		return EINVAL;
	attr->rq_buf = (uint8_t *)(uintptr_t)drv->buf_addr;
	attr->sq_buf = attr->rq_buf + rq_len;
	attr->dbrec = (void *)(uintptr_t)drv->db_addr;
	attr->sq_nwqebb = drv->sq_wqe_count;
	attr->rq_wqe_shift = drv->rq_wqe_shift;
	return uv_check_queue(drv->buf_addr, rq_len + sq_len, drv->db_addr);
}

static int
qp_attr(const struct uv_call *call, const struct ib_uverbs_ex_create_qp *req,
	struct sm_qp_attr *attr)
{
	const struct mlx5_ib_create_qp *drv = uv_drv_req(call);
	int err = qp_type(req->qp_type, drv->flags & QP_DC_FLAGS, &attr->type);

	if (err != 0)
		return err;
	if ((drv->flags & ~(uint32_t)QP_FLAGS) != 0 ||
		(drv->flags & (MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TYPE_DCT)) == 0)
		return sm_refuse(EOPNOTSUPP, "a QP with mlx5 flags 0x%x", drv->flags);
	if (req->max_send_wr > UV_WR_MAX || req->max_recv_wr > UV_WR_MAX ||
			req->max_send_sge > UV_SGE_MAX || req->max_recv_sge > UV_SGE_MAX)
		return EINVAL;
	attr->uidx = drv->uidx;
	if ((drv->flags & MLX5_QP_FLAG_DCI_STREAM) != 0) {
		if (attr->type != SM_DCI ||
			drv->dci_streams.log_num_concurent > SM_DCI_STREAMS_LOG ||
			drv->dci_streams.log_num_errored > SM_DCI_STREAMS_LOG)
			return EINVAL;
		attr->bad_streams = 1u << drv->dci_streams.log_num_errored;
	}
	if (attr->type == SM_DCT) {
		attr->dc_key = drv->access_key;
		return 0;
	}
	attr->rq_nwqe = req->is_srq ? 0 : drv->rq_wqe_count;
	attr->uar_page = drv->bfreg_index;
	attr->scatter_cqe = (drv->flags & MLX5_QP_FLAG_SCATTER_CQE) != 0;
	err = qp_buffers(drv, attr);
	if (attr->type == SM_DCI) /* It only sends, whatever room was made. */
		attr->rq_nwqe = 0;
	return err;
}

static int
qp_objects(struct uv_ctx *ctx, const struct ib_uverbs_ex_create_qp *req, struct sm_qp_attr *attr)
{
	struct uv_obj *pd = uv_get(ctx, req->pd_handle, UV_PD);
	struct uv_obj *send_cq = uv_get(ctx, req->send_cq_handle, UV_CQ);
	struct uv_obj *recv_cq = uv_get(ctx, req->recv_cq_handle, UV_CQ);
	struct uv_obj *srq = uv_get(ctx, req->srq_handle, UV_SRQ);
	bool has_srq = req->is_srq && attr->type != SM_DCI;

	if (pd == NULL || send_cq == NULL || recv_cq == NULL || (has_srq && srq == NULL))
		return EINVAL;
	attr->srq = has_srq ? srq->srq : NULL;
	attr->pd = pd->pd;
	attr->send_cq = send_cq->cq;
	attr->recv_cq = recv_cq->cq;
	return 0;
}

static int
create_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_ex_create_qp_resp *resp = uv_resp(call);
	struct ib_uverbs_ex_create_qp req;
	struct uv_qp *qp = call->made;
	struct sm_qp_attr attr = {.user = qp};
	int err;

	uv_req_both(call, &req, sizeof(req), offsetof(struct ib_uverbs_ex_create_qp, comp_mask));
	if (req.comp_mask != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with an indirection table");
	/* Datagrams to oneself by multicast, of which there is none. */
	if ((req.create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with create flags 0x%x", req.create_flags);
	err = qp_attr(call, &req, &attr);
	if (err == 0)
		err = qp_objects(ctx, &req, &attr);
	if (err != 0)
		return err;
	qp->queue.async = (struct uv_events){.ctx = ctx, .element = req.user_handle};
	err = sm_qp_create(uv_nic(ctx), &attr, &qp->queue.obj.qp, &qp->qpn);
	if (err != 0)
		return err;
	qp->sq_sig_all = req.sq_sig_all;
	qp->is_dct = attr.type == SM_DCT;
	qp->cap = (struct ib_uverbs_create_qp_resp){
		.qpn = qp->is_dct ? 0 : qp->qpn, /* A DCT's is answered when it can be reached. */
		.max_send_wr = req.max_send_wr,
		.max_recv_wr = attr.rq_nwqe,
		.max_send_sge = req.max_send_sge,
		.max_recv_sge = req.max_recv_sge,
		.max_inline_data = req.max_inline_data,
	};
	resp->base = qp->cap;
	resp->response_length = sizeof(*resp);
	(void)uv_drv_resp(call);
	return 0;
}

/* ---- queue pairs: modify, query, destroy ---- */

#define QP_MASK_ALL 0x3ffffffu /* up to IBV_QP_RATE_LIMIT */

/* The attributes, from the Q_Key to the RNR retries, lie alike in request and answer. */
#define REQ_AT offsetof(struct ib_uverbs_modify_qp, qkey)
#define RESP_AT offsetof(struct ib_uverbs_query_qp_resp, qkey)
#define ATTR_BYTES (offsetof(struct ib_uverbs_modify_qp, rnr_retry) + 1 - REQ_AT)
#define SAME(name)                                                                                 \
	(offsetof(struct ib_uverbs_modify_qp, name) - REQ_AT ==                                    \
		offsetof(struct ib_uverbs_query_qp_resp, name) - RESP_AT)
_Static_assert(SAME(dest_qp_num) && SAME(pkey_index) && SAME(qp_state) && SAME(path_mig_state) &&
		SAME(max_rd_atomic) && SAME(port_num) && SAME(rnr_retry),
	"ABI");

static int
check_modify(const struct ib_uverbs_modify_qp *req)
{
	uint32_t mask = req->attr_mask;

	if ((mask & ~QP_MASK_ALL) != 0)
		return EINVAL;
	if ((mask & IBV_QP_ALT_PATH) != 0)
		return sm_refuse(EOPNOTSUPP, "an alternate path (automatic path migration)");
	if ((mask & IBV_QP_CAP) != 0)
		return sm_refuse(EOPNOTSUPP, "resizing a QP");
	if ((mask & IBV_QP_RATE_LIMIT) != 0)
		return sm_refuse(EOPNOTSUPP, "a rate limit");
	if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && req->path_mig_state != IBV_MIG_MIGRATED)
		return sm_refuse(EOPNOTSUPP, "automatic path migration");
	/* Other values are for the NIC to judge. */
	if ((mask & IBV_QP_AV) != 0 && req->dest.is_global && req->dest.sgid_index >= SM_GIDS)
		return EINVAL;
	return 0;
}

static int
modify_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	/* Of the extended form it is the first part. */
	const struct ib_uverbs_modify_qp *req = uv_req(call);
	const struct uv_qp *qp = call->obj;
	struct ib_uverbs_ex_modify_qp_resp *resp = uv_resp(call);
	const struct mlx5_ib_modify_qp *drv = uv_drv_req(call);
	struct mlx5_ib_modify_qp_resp *answer = uv_drv_resp(call);
	int err = check_modify(req);

	if (err != 0)
		return err;
	if (drv->comp_mask != 0 || drv->burst_info.max_burst_sz != 0 || drv->ece_options != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with packet pacing or enhanced connection "
					     "establishment options");
	resp->response_length = sizeof(*resp);
	answer->response_length = (uint32_t)crpc_min(call->drv_room, sizeof(*answer));
	if (qp->is_dct && req->qp_state == IBV_QPS_RTR)
		answer->dctn = qp->qpn;
	return sm_qp_modify(uv_nic(ctx), qp->queue.obj.qp, req);
}

static int
query_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct uv_qp *qp = call->obj;
	struct ib_uverbs_query_qp_resp *resp = uv_resp(call);
	struct ib_uverbs_modify_qp mod;

	sm_qp_query(uv_nic(ctx), qp->queue.obj.qp, &mod);
	resp->dest = mod.dest;
	resp->dest.port_num = mod.port_num;
	resp->max_send_wr = qp->cap.max_send_wr;
	resp->max_recv_wr = qp->cap.max_recv_wr;
	resp->max_send_sge = qp->cap.max_send_sge;
	resp->max_recv_sge = qp->cap.max_recv_sge;
	resp->max_inline_data = qp->cap.max_inline_data;
	memcpy((uint8_t *)resp + RESP_AT, (const uint8_t *)&mod + REQ_AT, ATTR_BYTES);
	resp->path_mig_state = IBV_MIG_MIGRATED;
	resp->sq_sig_all = qp->sq_sig_all;
	return 0;
}

const struct uv_cmd uv_queue_commands[] = {
	{UV_CMD(CREATE_SRQ, create_srq, create_srq, UV_OF(create_srq, UV_PD, pd_handle),
		UV_MAKES(UV_SRQ, sizeof(struct uv_queue)), UV_DRV(create_srq, db_addr))},
	{UV_CMD_NO_RESP(MODIFY_SRQ, modify_srq, modify_srq, UV_OF(modify_srq, UV_SRQ, srq_handle))},
	{UV_CMD(QUERY_SRQ, query_srq, query_srq, UV_OF(query_srq, UV_SRQ, srq_handle))},
	{UV_DESTROY(DESTROY_SRQ, destroy_srq, sizeof(struct ib_uverbs_destroy_srq_resp), UV_SRQ,
		srq_handle)},
	{UV_CMD(CREATE_QP, create_qp, create_qp, UV_MAKES(UV_QP, sizeof(struct uv_qp)),
		UV_DRV(create_qp, access_key))},
	{UV_CMD_EX(CREATE_QP, offsetof(struct ib_uverbs_ex_create_qp, create_flags),
		offsetof(struct ib_uverbs_ex_create_qp_resp, comp_mask), create_qp,
		UV_MAKES(UV_QP, sizeof(struct uv_qp)), UV_DRV(create_qp, access_key))},
	{UV_CMD_NO_RESP(MODIFY_QP, modify_qp, modify_qp, UV_OF(modify_qp, UV_QP, qp_handle),
		.drv_len = sizeof(struct mlx5_ib_modify_qp))},
	{UV_CMD_EX(MODIFY_QP, sizeof(struct ib_uverbs_modify_qp), 0, modify_qp,
		UV_OF(modify_qp, UV_QP, qp_handle), .drv_len = sizeof(struct mlx5_ib_modify_qp))},
	{UV_CMD(QUERY_QP, query_qp, query_qp, UV_OF(query_qp, UV_QP, qp_handle))},
	{UV_DESTROY(DESTROY_QP, destroy_qp, sizeof(struct ib_uverbs_destroy_qp_resp), UV_QP,
		qp_handle)},
	{0},
};
