/* SPDX-License-Identifier: BSD-3-Clause */

/* Protection domains, memory regions and windows, address handles, completion queues. */
#include "uverbs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "port.h"
#include "say.h"
#include "sysfs.h"

static int
alloc_pd(struct uv_ctx *ctx, struct uv_call *call)
{
	struct uv_obj *pd = call->made;
	struct ib_uverbs_alloc_pd_resp resp = {.pd_handle = pd->handle};
	struct mlx5_ib_alloc_pd_resp drv;
	int err = sm_pd_create(uv_nic(ctx), &pd->pd, &drv.pdn);

	if (err != 0)
		return err;
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

/* ---- memory regions ---- */

#define MR_ACCESS                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB)

static int
check_mr(uint64_t start, uint64_t len, uint64_t iova, uint32_t access)
{
	uint32_t refused = access & ~(uint32_t)(MR_ACCESS | IBV_ACCESS_OPTIONAL_RANGE);

	if ((refused & IBV_ACCESS_ON_DEMAND) != 0)
		return sm_refuse(EOPNOTSUPP, "a memory region with on-demand paging");
	if ((refused & IBV_ACCESS_ZERO_BASED) != 0)
		return sm_refuse(EOPNOTSUPP, "a zero-based memory region");
	if (refused != 0)
		return sm_refuse(EINVAL, "a memory region with access 0x%x", access);
	if (len == 0 || iova + len < iova || (start & (UV_PAGE - 1)) != (iova & (UV_PAGE - 1)))
		return EINVAL;
	return uv_check_range(start, len, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

/* What a region is now: a change of its access alone needs the same memory as before. */
static void
mr_note(struct uv_mr *mr, uint64_t start, uint64_t len, uint64_t iova, uint32_t access)
{
	mr->start = start;
	mr->len = len;
	mr->iova = iova;
	mr->access = access & MR_ACCESS;
}

static int
reg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_reg_mr *req = uv_req(call);
	const struct uv_obj *pd = call->obj;
	struct uv_mr *mr = call->made;
	struct ib_uverbs_reg_mr_resp resp = {.mr_handle = mr->obj.handle};
	int err = check_mr(req->start, req->length, req->hca_va, req->access_flags);

	if (err != 0)
		return err;
	mr_note(mr, req->start, req->length, req->hca_va, req->access_flags);
	err = sm_mr_create(uv_nic(ctx), pd->pd, mr->start, mr->len, mr->iova, mr->access,
		&mr->obj.mr, &resp.lkey, &resp.rkey);
	if (err == 0)
		uv_reply(call, &resp, sizeof(resp));
	return err;
}

static int
rereg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_rereg_mr *req = uv_req(call);
	struct uv_mr *mr = uv_get(ctx, req->mr_handle, UV_MR);
	struct uv_obj *pd = uv_get(ctx, req->pd_handle, UV_PD);
	struct ib_uverbs_rereg_mr_resp resp = {0};
	struct uv_mr now;
	int err = 0;

	if (mr == NULL)
		return ENOENT;
	if ((req->flags & SM_REREG_PD) != 0 && pd == NULL)
		return EINVAL;
	now = *mr;
	if ((req->flags & SM_REREG_TRANS) != 0)
		mr_note(&now, req->start, req->length, req->hca_va, mr->access);
	if ((req->flags & SM_REREG_ACCESS) != 0)
		now.access = req->access_flags;
	/* What may be written now must be memory that can be. */
	if ((req->flags & ~SM_REREG_PD) != 0)
		err = check_mr(now.start, now.len, now.iova, now.access);
	if (err == 0)
		err = sm_mr_rereg(uv_nic(ctx), mr->obj.mr, req->flags, pd != NULL ? pd->pd : NULL,
			now.start, now.len, now.iova, now.access & MR_ACCESS, &resp.lkey,
			&resp.rkey);
	if (err != 0)
		return err;
	mr_note(mr, now.start, now.len, now.iova, now.access);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

/* ---- memory windows, address handles ---- */

static int
alloc_mw(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_alloc_mw *req = uv_req(call);
	const struct uv_obj *pd = call->obj;
	struct uv_obj *mw = call->made;
	struct ib_uverbs_alloc_mw_resp resp = {.mw_handle = mw->handle};
	struct mlx5_ib_alloc_mw drv;
	int err = uv_driver_req(call, &drv, sizeof(drv), 0);

	if (err != 0)
		return err;
	if (drv.comp_mask != 0 || drv.num_klms > 1 || drv.reserved1 != 0 || drv.reserved2 != 0)
		return sm_refuse(EOPNOTSUPP, "a memory window with %u parts", drv.num_klms);
	err = sm_mw_create(uv_nic(ctx), pd->pd, req->mw_type, &mw->mw, &resp.rkey);
	if (err == 0)
		uv_reply(call, &resp, sizeof(resp));
	return err;
}

/*
 * On InfiniBand libmlx5 makes address handles by itself; on Ethernet the kernel finds the MAC
 * address of the next hop, which the kernel's own UDP does again for every packet here.
 */
static int
create_ah(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_ah *req = uv_req(call);
	struct mlx5_ib_create_ah_resp drv = {.response_length = sizeof(drv)};
	const struct uv_obj *pd = call->obj;
	struct uv_obj *ah = call->made;
	struct ib_uverbs_create_ah_resp resp = {.ah_handle = ah->handle};
	int err;

	if (req->attr.port_num != 1 || req->attr.grh.sgid_index >= SM_GIDS ||
		(sm_port((uint32_t)ctx->device)->ethernet && !req->attr.is_global))
		return EINVAL;
	ah->pd = pd->pd;
	err = sm_pd_hold(uv_nic(ctx), pd->pd, 1);
	if (err != 0)
		return err;
	/* As captures have it: local, and the address. */
	drv.dmac[0] = 0x02;
	memcpy(drv.dmac + 2, req->attr.grh.dgid + 12, 4);
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

/* ---- completion channels and queues ---- */

static int
create_comp_channel(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	struct uv_chan *chan;
	int err, fd;

	err = uv_chan_create(SM_FILE_COMP, &chan, &fd);
	if (err != 0)
		return err;
	resp.fd = (uint32_t)fd;
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

static int
cq_attr(const struct uv_call *call, const struct ib_uverbs_ex_create_cq *req,
	struct sm_cq_attr *attr)
{
	struct mlx5_ib_create_cq drv;
	int err;

	if (req->comp_vector >= UV_COMP_VECTORS || req->cqe == 0 || req->cqe > UV_CQE_MAX ||
		req->comp_mask != 0 || req->reserved != 0)
		return EINVAL;
	if ((req->flags & ~(uint32_t)(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN |
				  IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)) != 0)
		return EOPNOTSUPP;
	err = uv_driver_req(call, &drv, sizeof(drv), offsetof(struct mlx5_ib_create_cq, flags));
	if (err != 0)
		return err;
	if (drv.cqe_comp_en != 0)
		return sm_refuse(EOPNOTSUPP, "compression of completion entries");
	if ((drv.flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0)
		return sm_refuse(EOPNOTSUPP, "a completion queue with mlx5 flags 0x%x", drv.flags);
	if (drv.cqe_size != 64 && drv.cqe_size != 128)
		return EINVAL;
	attr->ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->cqe + 1);
	attr->cqe_size = drv.cqe_size;
	attr->buf = (void *)(uintptr_t)drv.buf_addr;
	attr->dbrec = (void *)(uintptr_t)drv.db_addr;
	attr->ignore_overrun = (req->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
	return uv_check_queue(drv.buf_addr, (uint64_t)attr->ncqe * attr->cqe_size, drv.db_addr);
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
	struct ib_uverbs_ex_create_cq_resp resp = {.response_length = sizeof(resp)};
	struct mlx5_ib_create_cq_resp drv = {0};
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
	err = cq_channel(req.comp_channel, &cq->chan);
	if (err == 0)
		err = sm_cq_create(uv_nic(ctx), &attr, &cq->queue.obj.cq, &drv.cqn);
	if (err != 0)
		return err;
	resp.base.cq_handle = cq->queue.obj.handle;
	resp.base.cqe = attr.ncqe - 1;
	uv_reply(call, &resp, call->cmd->resp_min);
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

static int
resize_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_resize_cq *req = uv_req(call);
	const struct uv_obj *cq = call->obj;
	struct ib_uverbs_resize_cq_resp resp = {0};
	struct mlx5_ib_resize_cq drv;
	uint32_t ncqe;
	int err;

	if (req->cqe == 0 || req->cqe > UV_CQE_MAX)
		return EINVAL;
	err = uv_driver_req(call, &drv, sizeof(drv), sizeof(drv));
	if (err != 0)
		return err;
	ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->cqe + 1);
	if (drv.cqe_size != 64 && drv.cqe_size != 128)
		return EINVAL;
	err = uv_check_queue(drv.buf_addr, (uint64_t)ncqe * drv.cqe_size, 0);
	if (err == 0)
		err = sm_cq_resize(uv_nic(ctx), cq->cq, (void *)(uintptr_t)drv.buf_addr, ncqe,
			drv.cqe_size);
	if (err != 0)
		return err;
	resp.cqe = ncqe - 1;
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

const struct uv_cmd uv_object_commands[] = {
	UV_CMD(ALLOC_PD, alloc_pd, alloc_pd, UV_MAKES(UV_PD, sizeof(struct uv_obj))),
	UV_DESTROY(DEALLOC_PD, dealloc_pd, 0, UV_PD, pd_handle),
	UV_CMD(REG_MR, reg_mr, reg_mr, UV_OF(reg_mr, UV_PD, pd_handle),
		UV_MAKES(UV_MR, sizeof(struct uv_mr))),
	UV_CMD(REREG_MR, rereg_mr, rereg_mr),
	UV_DESTROY(DEREG_MR, dereg_mr, 0, UV_MR, mr_handle),
	UV_CMD(ALLOC_MW, alloc_mw, alloc_mw, UV_OF(alloc_mw, UV_PD, pd_handle),
		UV_MAKES(UV_MW, sizeof(struct uv_obj))),
	UV_DESTROY(DEALLOC_MW, dealloc_mw, 0, UV_MW, mw_handle),
	UV_CMD(CREATE_AH, create_ah, create_ah, UV_OF(create_ah, UV_PD, pd_handle),
		UV_MAKES(UV_AH, sizeof(struct uv_obj))),
	UV_DESTROY(DESTROY_AH, destroy_ah, 0, UV_AH, ah_handle),
	UV_CMD(CREATE_COMP_CHANNEL, create_comp_channel, create_comp_channel),
	UV_CMD(CREATE_CQ, create_cq, create_cq, UV_MAKES(UV_CQ, sizeof(struct uv_cq))),
	UV_CMD_EX(CREATE_CQ, sizeof(struct ib_uverbs_ex_create_cq),
		sizeof(struct ib_uverbs_ex_create_cq_resp), create_cq,
		UV_MAKES(UV_CQ, sizeof(struct uv_cq))),
	UV_CMD(RESIZE_CQ, resize_cq, resize_cq, UV_OF(resize_cq, UV_CQ, cq_handle)),
	UV_DESTROY(DESTROY_CQ, destroy_cq, sizeof(struct ib_uverbs_destroy_cq_resp), UV_CQ,
		cq_handle),
	{0},
};
