/* SPDX-License-Identifier: BSD-3-Clause */

/* Protection domains, memory regions and windows, address handles, completion queues. */
#include "uverbs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fabric.h"
#include "say.h"
#include "sysfs.h"

static int
alloc_pd(struct uv_ctx *ctx, struct uv_call *call)
{
	struct uv_obj *pd = call->made;
	struct mlx5_ib_alloc_pd_resp *drv = uv_drv_resp(call);

	return sm_pd_create(uv_nic(ctx), &pd->pd, &drv->pdn);
}

/* ---- memory regions ---- */

#define MR_ACCESS                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB)

static int
check_mr(const struct sm_region *r)
{
	uint32_t refused = r->access & ~(uint32_t)(MR_ACCESS | IBV_ACCESS_OPTIONAL_RANGE);

	if ((refused & IBV_ACCESS_ON_DEMAND) != 0)
		return sm_refuse(EOPNOTSUPP, "a memory region with on-demand paging");
	if ((refused & IBV_ACCESS_ZERO_BASED) != 0)
		return sm_refuse(EOPNOTSUPP, "a zero-based memory region");
	if (refused != 0)
		return sm_refuse(EINVAL, "a memory region with access 0x%x", r->access);
	if (r->len == 0 || r->iova + r->len < r->iova ||
		(r->start & (UV_PAGE - 1)) != (r->iova & (UV_PAGE - 1)))
		return EINVAL;
	return uv_check_range(r->start, r->len, (r->access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

static int
reg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_reg_mr *req = uv_req(call);
	const struct uv_obj *pd = call->obj;
	struct uv_obj *mr = call->made;
	struct ib_uverbs_reg_mr_resp *resp = uv_resp(call);
	struct sm_region region = {req->start, req->length, req->hca_va, req->access_flags};
	int err = check_mr(&region);

	region.access &= MR_ACCESS;
	if (err == 0)
		err = sm_mr_create(uv_nic(ctx), pd->pd, &region, &mr->mr, &resp->lkey);
	resp->rkey = resp->lkey;
	return err;
}

static int
rereg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_rereg_mr *req = uv_req(call);
	struct uv_obj *mr = uv_get(ctx, req->mr_handle, UV_MR);
	struct uv_obj *pd = uv_get(ctx, req->pd_handle, UV_PD);
	struct ib_uverbs_rereg_mr_resp *resp = uv_resp(call);
	bool moves = (req->flags & IBV_REREG_MR_CHANGE_PD) != 0;
	struct sm_region now;
	int err = 0;

	if (mr == NULL)
		return ENOENT;
	if (req->flags == 0 || (req->flags & ~(uint32_t)IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
		(moves && pd == NULL))
		return EINVAL;
	now = sm_mr_region(uv_nic(ctx), mr->mr);
	if ((req->flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0)
		now = (struct sm_region){req->start, req->length, req->hca_va, now.access};
	if ((req->flags & IBV_REREG_MR_CHANGE_ACCESS) != 0)
		now.access = req->access_flags;
	/* What may be written now must be memory that can be. */
	if (req->flags != IBV_REREG_MR_CHANGE_PD)
		err = check_mr(&now);
	now.access &= MR_ACCESS;
	if (err == 0)
		err = sm_mr_rereg(uv_nic(ctx), mr->mr, moves ? pd->pd : NULL, &now, &resp->lkey);
	resp->rkey = resp->lkey;
	return err;
}

/* ---- memory windows, address handles ---- */

static int
alloc_mw(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_alloc_mw *req = uv_req(call);
	const struct uv_obj *pd = call->obj;
	struct uv_obj *mw = call->made;
	struct ib_uverbs_alloc_mw_resp *resp = uv_resp(call);
	const struct mlx5_ib_alloc_mw *drv = uv_drv_req(call);

	if (drv->comp_mask != 0 || drv->num_klms > 1 || drv->reserved1 != 0 || drv->reserved2 != 0)
		return sm_refuse(EOPNOTSUPP, "a memory window with %u parts", drv->num_klms);
	return sm_mw_create(uv_nic(ctx), pd->pd, req->mw_type, &mw->mw, &resp->rkey);
}

/*
 * On InfiniBand libmlx5 makes address handles by itself; on Ethernet the kernel finds the MAC
 * address of the next hop, which the kernel's own UDP does again for every packet here.
 */
static int
create_ah(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_ah *req = uv_req(call);
	struct mlx5_ib_create_ah_resp *drv = uv_drv_resp(call);
	const struct uv_obj *pd = call->obj;
	struct uv_obj *ah = call->made;

	if (req->attr.port_num != 1 || req->attr.grh.sgid_index >= SM_GIDS ||
		((sm_port((uint32_t)ctx->device)->ethernet || sm_fabric()->grh) &&
			!req->attr.is_global))
		return EINVAL;
	drv->response_length = sizeof(*drv);
	/* As captures have it: local, and the address. */
	drv->dmac[0] = 0x02;
	memcpy(drv->dmac + 2, req->attr.grh.dgid + 12, 4);
	return sm_ah_create(uv_nic(ctx), pd->pd, &ah->any);
}

/* ---- completion channels and queues ---- */

static int
create_comp_channel(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_create_comp_channel_resp *resp = uv_resp(call);
	struct uv_chan *chan;

	return uv_chan_create(SM_FILE_COMP, &chan, &resp->fd);
}

static int
cq_attr(const struct uv_call *call, const struct ib_uverbs_ex_create_cq *req,
	struct sm_cq_attr *attr)
{
	const struct mlx5_ib_create_cq *drv = uv_drv_req(call);

	if (req->comp_vector >= UV_COMP_VECTORS || req->cqe == 0 || req->cqe > UV_CQE_MAX ||
		req->comp_mask != 0 || req->reserved != 0)
		return EINVAL;
	if ((req->flags & ~(uint32_t)(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN |
				  IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)) != 0)
		return EOPNOTSUPP;
	if (drv->cqe_comp_en != 0)
		return sm_refuse(EOPNOTSUPP, "compression of completion entries");
	if ((drv->flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0)
		return sm_refuse(EOPNOTSUPP, "a completion queue with mlx5 flags 0x%x", drv->flags);
	if (drv->cqe_size != 64 && drv->cqe_size != 128)
		return EINVAL;
	attr->ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->cqe + 1);
	attr->cqe_size = drv->cqe_size;
	attr->buf = (void *)(uintptr_t)drv->buf_addr;
	attr->dbrec = (void *)(uintptr_t)drv->db_addr;
	attr->ignore_overrun = (req->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
	return uv_check_queue(drv->buf_addr, (uint64_t)attr->ncqe * attr->cqe_size, drv->db_addr);
}

/* The channel whose descriptor the program names; with a reference for the queue. */
static int
cq_channel(int32_t fd, struct uv_chan **chan)
{
	struct sm_file *file;

	if (fd < 0)
		return 0;
	file = sm_file_find(fd);
	if (file == NULL || file->kind != SM_FILE_COMP)
		return EINVAL;
	*chan = crpc_container_of(file, struct uv_chan, file);
	uv_chan_get(*chan);
	return 0;
}

static int
create_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_ex_create_cq_resp *resp = uv_resp(call);
	struct mlx5_ib_create_cq_resp *drv = uv_drv_resp(call);
	struct ib_uverbs_ex_create_cq req;
	struct uv_cq *cq = call->made;
	struct sm_cq_attr attr = {.user = cq};
	int err;

	uv_req_both(call, &req, sizeof(req), offsetof(struct ib_uverbs_ex_create_cq, comp_mask));
	err = cq_attr(call, &req, &attr);
	if (err != 0)
		return err;
	cq->comp = (struct uv_events){.ctx = ctx, .element = req.user_handle};
	cq->queue.async = (struct uv_events){.ctx = ctx, .element = req.user_handle};
	resp->base.cqe = attr.ncqe - 1;
	resp->response_length = sizeof(*resp);
	err = cq_channel(req.comp_channel, &cq->chan);
	return err != 0 ? err : sm_cq_create(uv_nic(ctx), &attr, &cq->queue.obj.cq, &drv->cqn);
}

static int
resize_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_resize_cq *req = uv_req(call);
	const struct mlx5_ib_resize_cq *drv = uv_drv_req(call);
	struct ib_uverbs_resize_cq_resp *resp = uv_resp(call);
	const struct uv_obj *cq = call->obj;
	uint32_t ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->cqe + 1);
	int err;

	if (req->cqe == 0 || req->cqe > UV_CQE_MAX || (drv->cqe_size != 64 && drv->cqe_size != 128))
		return EINVAL;
	resp->cqe = ncqe - 1;
	err = uv_check_queue(drv->buf_addr, (uint64_t)ncqe * drv->cqe_size, 0);
	return err != 0 ? err
			: sm_cq_resize(uv_nic(ctx), cq->cq, (void *)(uintptr_t)drv->buf_addr, ncqe,
				  drv->cqe_size);
}

const struct uv_cmd uv_object_commands[] = {
	{UV_CMD(ALLOC_PD, alloc_pd, alloc_pd, UV_MAKES(UV_PD, sizeof(struct uv_obj)))},
	{UV_DESTROY(DEALLOC_PD, dealloc_pd, 0, UV_PD, pd_handle)},
	{UV_CMD(REG_MR, reg_mr, reg_mr, UV_OF(reg_mr, UV_PD, pd_handle),
		UV_MAKES(UV_MR, sizeof(struct uv_obj)))},
	{UV_CMD(REREG_MR, rereg_mr, rereg_mr)},
	{UV_DESTROY(DEREG_MR, dereg_mr, 0, UV_MR, mr_handle)},
	{UV_CMD(ALLOC_MW, alloc_mw, alloc_mw, UV_OF(alloc_mw, UV_PD, pd_handle),
		UV_MAKES(UV_MW, sizeof(struct uv_obj)),
		.drv_len = sizeof(struct mlx5_ib_alloc_mw))},
	{UV_DESTROY(DEALLOC_MW, dealloc_mw, 0, UV_MW, mw_handle)},
	{UV_CMD(CREATE_AH, create_ah, create_ah, UV_OF(create_ah, UV_PD, pd_handle),
		UV_MAKES(UV_AH, sizeof(struct uv_obj)))},
	{UV_DESTROY(DESTROY_AH, destroy_ah, 0, UV_AH, ah_handle)},
	{UV_CMD(CREATE_COMP_CHANNEL, create_comp_channel, create_comp_channel)},
	{UV_CMD(CREATE_CQ, create_cq, create_cq, UV_MAKES(UV_CQ, sizeof(struct uv_cq)),
		UV_DRV(create_cq, cqe_comp_res_format))},
	{UV_CMD_EX(CREATE_CQ, sizeof(struct ib_uverbs_ex_create_cq),
		sizeof(struct ib_uverbs_ex_create_cq_resp), create_cq,
		UV_MAKES(UV_CQ, sizeof(struct uv_cq)), UV_DRV(create_cq, cqe_comp_res_format))},
	{UV_CMD(RESIZE_CQ, resize_cq, resize_cq, UV_OF(resize_cq, UV_CQ, cq_handle),
		UV_DRV(resize_cq, reserved1))},
	{UV_DESTROY(DESTROY_CQ, destroy_cq, sizeof(struct ib_uverbs_destroy_cq_resp), UV_CQ,
		cq_handle)},
	{0},
};
