/* SPDX-License-Identifier: BSD-3-Clause */

/* Shared receive queues and queue pairs. */
#include "uverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "sysfs.h"

/* ---- shared receive queues ---- */

/* Entries as the kernel computes them from what libmlx5 asks: it keeps one for itself. A WQE is a
 * 16-byte link and 16 bytes per element. */
static int
srq_attr(const struct uv_call *call, const struct ib_uverbs_create_srq *req,
		struct sm_srq_attr *attr)
{
	struct mlx5_ib_create_srq drv;
	int err;

	if (req->max_wr > UV_SRQ_WR_MAX || req->max_sge > UV_SRQ_SGE_MAX ||
			req->srq_limit > req->max_wr)
		return EINVAL;
	err = uv_driver_req(call, &drv, sizeof(drv), offsetof(struct mlx5_ib_create_srq, flags));
	if (err != 0)
		return err;
	if (drv.flags != 0)
		return sm_refuse(EOPNOTSUPP, "a shared receive queue with mlx5 flags 0x%x",
				drv.flags);
	if ((drv.buf_addr & 63) != 0 || (drv.db_addr & 7) != 0)
		return EINVAL;
	attr->nwqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->max_wr + 1);
	attr->wqe_shift = crpc_log2(crpc_pow2_ceil(crpc_max(32, 16 + (uint64_t)req->max_sge * 16)));
	attr->max_sge = (uint32_t)((1u << attr->wqe_shift) - 16) / 16;
	attr->limit = req->srq_limit;
	attr->buf = (void *)(uintptr_t)drv.buf_addr;
	attr->dbrec = (void *)(uintptr_t)drv.db_addr;
	err = uv_check_range(drv.buf_addr, (uint64_t)attr->nwqe << attr->wqe_shift, true);
	return err != 0 ? err : uv_check_range(drv.db_addr, 8, true);
}

int
uv_create_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_srq *req = uv_req(call);
	struct mlx5_ib_create_srq_resp drv = {0};
	struct ib_uverbs_create_srq_resp resp = {0};
	struct sm_srq_attr attr = {0};
	struct uv_srq *srq;
	int err;

	err = srq_attr(call, req, &attr);
	if (err != 0)
		return err;
	srq = calloc(1, sizeof(*srq));
	if (srq == NULL)
		return ENOMEM;
	err = EINVAL;
	srq->pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	if (srq->pd == NULL)
		goto err_free;
	srq->async.ctx = ctx;
	srq->async.element = req->user_handle;
	srq->max_wr = attr.nwqe - 1;
	srq->max_sge = req->max_sge;
	atomic_init(&srq->limit, req->srq_limit);
	attr.pd = srq->pd->pd;
	attr.user = &srq->async;
	err = sm_srq_create(uv_nic(ctx), &attr, &srq->srq, &drv.srqn);
	if (err != 0)
		goto err_free;
	err = uv_objs_add(&ctx->objs, &srq->obj, UV_SRQ);
	if (err != 0)
		goto err_destroy;
	srq->pd->obj.users++;
	resp.srq_handle = srq->obj.handle;
	resp.max_wr = srq->max_wr;
	resp.max_sge = srq->max_sge;
	resp.srqn = drv.srqn;
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;

err_destroy:
	sm_srq_destroy(uv_nic(ctx), srq->srq);
err_free:
	free(srq);
	return err;
}

int
uv_modify_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_modify_srq *req = uv_req(call);
	struct uv_srq *srq = uv_get(ctx, req->srq_handle, UV_SRQ, uv_srq);
	uint32_t old;
	int err;

	if (srq == NULL)
		return EINVAL;
	if ((req->attr_mask & IBV_SRQ_MAX_WR) != 0)
		return sm_refuse(EINVAL, "resizing a shared receive queue");
	if ((req->attr_mask & ~(uint32_t)IBV_SRQ_LIMIT) != 0)
		return EINVAL;
	if ((req->attr_mask & IBV_SRQ_LIMIT) == 0)
		return 0;
	if (req->srq_limit > srq->max_wr)
		return EINVAL;
	/* First, since the event, which takes it back, may come before the call returns. */
	old = atomic_exchange_explicit(&srq->limit, req->srq_limit, memory_order_relaxed);
	err = sm_srq_limit(uv_nic(ctx), srq->srq, req->srq_limit);
	if (err != 0)
		crpc_store_relaxed(&srq->limit, old);
	return err;
}

int
uv_query_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_query_srq *req = uv_req(call);
	struct uv_srq *srq = uv_get(ctx, req->srq_handle, UV_SRQ, uv_srq);
	struct ib_uverbs_query_srq_resp resp = {0};

	if (srq == NULL)
		return EINVAL;
	resp.max_wr = srq->max_wr;
	resp.max_sge = srq->max_sge;
	resp.srq_limit = crpc_load_relaxed(&srq->limit);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

int
uv_destroy_srq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_destroy_srq *req = uv_req(call);
	struct uv_srq *srq = uv_get(ctx, req->srq_handle, UV_SRQ, uv_srq);
	struct ib_uverbs_destroy_srq_resp resp;
	int err;

	if (srq == NULL)
		return ENOENT;
	err = srq->obj.users != 0 ? EBUSY : sm_srq_destroy(uv_nic(ctx), srq->srq);
	if (err != 0)
		return err;
	resp.events_reported = uv_events_read(ctx->async, &srq->async);
	srq->pd->obj.users--;
	uv_objs_del(&ctx->objs, &srq->obj);
	free(srq);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

/* ---- queue pairs: create ---- */

#define QP_DC_FLAGS (MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI)
#define QP_FLAGS                                                                                   \
	(MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |                               \
			MLX5_QP_FLAG_UAR_PAGE_INDEX | QP_DC_FLAGS)

static const char *
qp_type_name(uint8_t type, uint32_t flags)
{
	if ((flags & QP_DC_FLAGS) != 0)
		return "DC";
	switch (type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_RAW_PACKET:
		return "RAW_PACKET";
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return "XRC";
	default:
		return "of an unknown type";
	}
}

/* The receive queue lies at buf_addr, the send queue behind it. */
static int
qp_buffers(const struct mlx5_ib_create_qp *drv, struct sm_qp_attr *attr)
{
	uint64_t rq_len = 0, sq_len = (uint64_t)drv->sq_wqe_count * 64;
	int err;

	if (attr->rq_nwqe != 0) {
		if (!crpc_is_pow2(drv->rq_wqe_count) || drv->rq_wqe_count > UV_WR_MAX ||
				drv->rq_wqe_shift < 4 || drv->rq_wqe_shift > 9)
			return EINVAL;
		rq_len = (uint64_t)drv->rq_wqe_count << drv->rq_wqe_shift;
	}
	if (drv->sq_wqe_count != 0 &&
			(!crpc_is_pow2(drv->sq_wqe_count) || drv->sq_wqe_count > UV_WR_MAX))
		return EINVAL;
	if (((drv->buf_addr + rq_len) & 63) != 0 || (drv->db_addr & 7) != 0)
		return EINVAL;
	err = rq_len + sq_len == 0 ? 0 : uv_check_range(drv->buf_addr, rq_len + sq_len, true);
	if (err == 0)
		err = uv_check_range(drv->db_addr, 8, true);
	if (err != 0)
		return err;
	attr->rq_buf = (void *)(uintptr_t)drv->buf_addr;
	attr->sq_buf = (void *)(uintptr_t)(drv->buf_addr + rq_len);
	attr->dbrec = (void *)(uintptr_t)drv->db_addr;
	attr->sq_nwqebb = drv->sq_wqe_count;
	attr->rq_wqe_shift = drv->rq_wqe_shift;
	return 0;
}

static bool
qp_type(uint8_t verbs_type, uint32_t flags, enum sm_qp_type *type)
{
	if (verbs_type == IBV_QPT_DRIVER && (flags & QP_DC_FLAGS) == MLX5_QP_FLAG_TYPE_DCI)
		*type = SM_QPT_DCI;
	else if (verbs_type == IBV_QPT_DRIVER && (flags & QP_DC_FLAGS) == MLX5_QP_FLAG_TYPE_DCT)
		*type = SM_QPT_DCT;
	else if ((flags & QP_DC_FLAGS) == 0 && (verbs_type == IBV_QPT_RC ||
				verbs_type == IBV_QPT_UC || verbs_type == IBV_QPT_UD))
		*type = (enum sm_qp_type)verbs_type;
	else
		return false;
	return true;
}

static int
qp_attr(const struct uv_call *call, const struct ib_uverbs_create_qp *req, struct sm_qp_attr *attr)
{
	struct mlx5_ib_create_qp drv;
	int err;

	err = uv_driver_req(
			call, &drv, sizeof(drv), offsetof(struct mlx5_ib_create_qp, ece_options));
	if (err != 0)
		return err;
	if (!qp_type(req->qp_type, drv.flags, &attr->type))
		return sm_refuse(EOPNOTSUPP, "a QP %s", qp_type_name(req->qp_type, drv.flags));
	if ((drv.flags & ~(uint32_t)QP_FLAGS) != 0 ||
			(drv.flags & (MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TYPE_DCT)) == 0)
		return sm_refuse(EOPNOTSUPP, "a QP with mlx5 flags 0x%x", drv.flags);
	if (req->max_send_wr > UV_WR_MAX || req->max_recv_wr > UV_WR_MAX ||
			req->max_send_sge > UV_SGE_MAX || req->max_recv_sge > UV_SGE_MAX)
		return EINVAL;
	attr->uidx = drv.uidx;
	if (attr->type == SM_QPT_DCT) {
		attr->dc_key = drv.access_key;
		return 0;
	}
	attr->rq_nwqe = req->is_srq ? 0 : drv.rq_wqe_count;
	attr->uar_page = drv.bfreg_index;
	attr->scatter_cqe = (drv.flags & MLX5_QP_FLAG_SCATTER_CQE) != 0;
	err = qp_buffers(&drv, attr);
	if (attr->type == SM_QPT_DCI) /* It only sends, whatever room was made. */
		attr->rq_nwqe = 0;
	return err;
}

static int
qp_objects(struct uv_ctx *ctx, const struct ib_uverbs_create_qp *req, struct uv_qp *qp,
		struct sm_qp_attr *attr)
{
	qp->pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	qp->send_cq = uv_get(ctx, req->send_cq_handle, UV_CQ, uv_cq);
	qp->recv_cq = uv_get(ctx, req->recv_cq_handle, UV_CQ, uv_cq);
	if (qp->pd == NULL || qp->send_cq == NULL || qp->recv_cq == NULL)
		return EINVAL;
	if (req->is_srq && attr->type != SM_QPT_DCI) {
		qp->srq = uv_get(ctx, req->srq_handle, UV_SRQ, uv_srq);
		if (qp->srq == NULL)
			return EINVAL;
		attr->srq = qp->srq->srq;
	}
	attr->pd = qp->pd->pd;
	attr->send_cq = qp->send_cq->cq;
	attr->recv_cq = qp->recv_cq->cq;
	attr->user = &qp->async;
	return 0;
}

static void
qp_hold(struct uv_qp *qp, uint32_t one)
{
	qp->pd->obj.users += one;
	qp->send_cq->obj.users += one;
	qp->recv_cq->obj.users += one;
	if (qp->srq != NULL)
		qp->srq->obj.users += one;
}

static int
create_qp(struct uv_ctx *ctx, struct uv_call *call, const struct ib_uverbs_create_qp *req,
		struct ib_uverbs_create_qp_resp *resp)
{
	struct mlx5_ib_create_qp_resp drv = {0};
	struct sm_qp_attr attr = {0};
	struct uv_qp *qp;
	int err;

	err = qp_attr(call, req, &attr);
	if (err != 0)
		return err;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return ENOMEM;
	qp->async.ctx = ctx;
	qp->async.element = req->user_handle;
	err = qp_objects(ctx, req, qp, &attr);
	if (err != 0)
		goto err_free;
	err = sm_qp_create(uv_nic(ctx), &attr, &qp->qp, &qp->qpn);
	if (err == EOPNOTSUPP)
		sm_refuse(err, "a QP %s", qp_type_name(req->qp_type, 0));
	if (err != 0)
		goto err_free;
	err = uv_objs_add(&ctx->objs, &qp->obj, UV_QP);
	if (err != 0)
		goto err_destroy;
	qp_hold(qp, 1);
	qp->sq_sig_all = req->sq_sig_all;
	resp->qp_handle = qp->obj.handle;
	qp->is_dct = attr.type == SM_QPT_DCT;
	resp->qpn = qp->is_dct ? 0 : qp->qpn; /* A DCT's is told when it can be reached. */
	resp->max_send_wr = req->max_send_wr;
	resp->max_recv_wr = attr.rq_nwqe;
	resp->max_send_sge = req->max_send_sge;
	resp->max_recv_sge = req->max_recv_sge;
	resp->max_inline_data = req->max_inline_data;
	qp->cap = *resp;
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;

err_destroy:
	sm_qp_destroy(uv_nic(ctx), qp->qp);
err_free:
	free(qp);
	return err;
}

int
uv_create_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_create_qp_resp resp = {0};
	int err = create_qp(ctx, call, uv_req(call), &resp);

	if (err == 0)
		uv_reply(call, &resp, sizeof(resp));
	return err;
}

int
uv_create_qp_ex(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_ex_create_qp *ex = uv_req(call);
	struct ib_uverbs_ex_create_qp_resp resp = {0};
	struct ib_uverbs_create_qp req = {
			.user_handle = ex->user_handle,
			.pd_handle = ex->pd_handle,
			.send_cq_handle = ex->send_cq_handle,
			.recv_cq_handle = ex->recv_cq_handle,
			.srq_handle = ex->srq_handle,
			.max_send_wr = ex->max_send_wr,
			.max_recv_wr = ex->max_recv_wr,
			.max_send_sge = ex->max_send_sge,
			.max_recv_sge = ex->max_recv_sge,
			.max_inline_data = ex->max_inline_data,
			.sq_sig_all = ex->sq_sig_all,
			.qp_type = ex->qp_type,
			.is_srq = ex->is_srq,
	};
	int err;

	if (ex->comp_mask != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with an indirection table");
	/* Datagrams to oneself by multicast, of which there is none. */
	if ((ex->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with create flags 0x%x", ex->create_flags);
	err = create_qp(ctx, call, &req, &resp.base);
	if (err != 0)
		return err;
	resp.response_length = sizeof(resp);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

/* ---- queue pairs: modify, query, destroy ---- */

#define QP_MASK_ALL 0x3ffffffu /* up to IBV_QP_RATE_LIMIT */

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
	if ((mask & IBV_QP_STATE) != 0 && req->qp_state > IBV_QPS_ERR)
		return EINVAL;
	if ((mask & IBV_QP_CUR_STATE) != 0 && req->cur_qp_state > IBV_QPS_ERR)
		return EINVAL;
	if ((mask & IBV_QP_PORT) != 0 && req->port_num != 1)
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) != 0 && req->pkey_index >= SM_PKEYS)
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) != 0 &&
			(req->path_mtu < IBV_MTU_256 || req->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if ((mask & IBV_QP_AV) != 0 &&
			(req->dest.port_num > 1 ||
					(req->dest.is_global && req->dest.sgid_index >= SM_GIDS)))
		return EINVAL;
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && req->max_rd_atomic > UV_RD_ATOM_MAX) ||
			((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 &&
					req->max_dest_rd_atomic > UV_RD_ATOM_MAX))
		return EINVAL;
	return 0;
}

static int
modify_qp(struct uv_ctx *ctx, const struct uv_call *call, const struct ib_uverbs_modify_qp *req)
{
	struct uv_qp *qp = uv_get(ctx, req->qp_handle, UV_QP, uv_qp);
	struct mlx5_ib_modify_qp drv;
	struct sm_qp_mod mod = {
			.mask = req->attr_mask & ~(uint32_t)(IBV_QP_PATH_MIG_STATE),
			.state = (enum sm_qp_state)req->qp_state,
			.cur_state = (enum sm_qp_state)req->cur_qp_state,
			.access = req->qp_access_flags,
			.qkey = req->qkey,
			.dest_qpn = req->dest_qp_num,
			.rq_psn = req->rq_psn,
			.sq_psn = req->sq_psn,
			.pkey_index = req->pkey_index,
			.dlid = req->dest.dlid,
			.is_global = req->dest.is_global != 0,
			.sgid_index = req->dest.sgid_index,
			.port = req->port_num,
			.path_mtu = req->path_mtu,
			.min_rnr_timer = req->min_rnr_timer,
			.timeout = req->timeout,
			.retry_cnt = req->retry_cnt,
			.rnr_retry = req->rnr_retry,
			.max_rd_atomic = req->max_rd_atomic,
			.max_dest_rd_atomic = req->max_dest_rd_atomic,
	};
	int err;

	if (qp == NULL)
		return EINVAL;
	err = check_modify(req);
	if (err == 0)
		err = uv_driver_req(call, &drv, sizeof(drv), 0);
	if (err != 0)
		return err;
	if (drv.comp_mask != 0 || drv.burst_info.max_burst_sz != 0 || drv.ece_options != 0)
		return sm_refuse(EOPNOTSUPP, "a QP with packet pacing or enhanced connection "
					     "establishment options");
	memcpy(mod.dgid, req->dest.dgid, sizeof(mod.dgid));
	return sm_qp_modify(uv_nic(ctx), qp->qp, &mod);
}

int
uv_modify_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	return modify_qp(ctx, call, uv_req(call));
}

int
uv_modify_qp_ex(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_ex_modify_qp_resp resp = {0};
	const struct ib_uverbs_modify_qp *req = uv_req(call);
	struct mlx5_ib_modify_qp_resp drv = {0};
	struct uv_qp *qp;
	int err = modify_qp(ctx, call, uv_req(call)); /* its first part is the plain request */

	if (err != 0)
		return err;
	resp.response_length = sizeof(resp);
	drv.response_length = (uint32_t)crpc_min(call->uhw_out_len, sizeof(drv));
	qp = uv_get(ctx, req->qp_handle, UV_QP, uv_qp);
	if (qp->is_dct && req->qp_state == IBV_QPS_RTR)
		drv.dctn = qp->qpn;
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

int
uv_query_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_query_qp *req = uv_req(call);
	struct uv_qp *qp = uv_get(ctx, req->qp_handle, UV_QP, uv_qp);
	struct ib_uverbs_query_qp_resp resp = {0};
	struct sm_qp_mod mod = {0};
	int err;

	if (qp == NULL)
		return EINVAL;
	err = sm_qp_query(uv_nic(ctx), qp->qp, &mod);
	if (err != 0)
		return err;
	memcpy(resp.dest.dgid, mod.dgid, sizeof(mod.dgid));
	resp.dest.dlid = mod.dlid;
	resp.dest.sgid_index = mod.sgid_index;
	resp.dest.is_global = mod.is_global;
	resp.dest.port_num = mod.port;
	resp.max_send_wr = qp->cap.max_send_wr;
	resp.max_recv_wr = qp->cap.max_recv_wr;
	resp.max_send_sge = qp->cap.max_send_sge;
	resp.max_recv_sge = qp->cap.max_recv_sge;
	resp.max_inline_data = qp->cap.max_inline_data;
	resp.qkey = mod.qkey;
	resp.rq_psn = mod.rq_psn;
	resp.sq_psn = mod.sq_psn;
	resp.dest_qp_num = mod.dest_qpn;
	resp.qp_access_flags = mod.access;
	resp.pkey_index = mod.pkey_index;
	resp.qp_state = (uint8_t)mod.state;
	resp.cur_qp_state = (uint8_t)mod.state;
	resp.path_mtu = mod.path_mtu;
	resp.path_mig_state = IBV_MIG_MIGRATED;
	resp.max_rd_atomic = mod.max_rd_atomic;
	resp.max_dest_rd_atomic = mod.max_dest_rd_atomic;
	resp.min_rnr_timer = mod.min_rnr_timer;
	resp.port_num = mod.port;
	resp.timeout = mod.timeout;
	resp.retry_cnt = mod.retry_cnt;
	resp.rnr_retry = mod.rnr_retry;
	resp.sq_sig_all = qp->sq_sig_all;
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

int
uv_destroy_qp(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_destroy_qp *req = uv_req(call);
	struct uv_qp *qp = uv_get(ctx, req->qp_handle, UV_QP, uv_qp);
	struct ib_uverbs_destroy_qp_resp resp;
	int err;

	if (qp == NULL)
		return ENOENT;
	err = sm_qp_destroy(uv_nic(ctx), qp->qp);
	if (err != 0)
		return err;
	resp.events_reported = uv_events_read(ctx->async, &qp->async);
	qp_hold(qp, -1u);
	uv_objs_del(&ctx->objs, &qp->obj);
	free(qp);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}
