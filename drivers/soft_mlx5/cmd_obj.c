/* SPDX-License-Identifier: BSD-3-Clause */

/* Protection domains, memory regions, completion channels and completion queues. */
#include "uverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

/* ---- protection domains ---- */

int
uv_alloc_pd(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct mlx5_ib_alloc_pd_resp drv;
	struct uv_pd *pd;
	int err;

	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return ENOMEM;
	err = sm_pd_create(uv_nic(ctx), &pd->pd, &drv.pdn);
	if (err != 0)
		goto err_free;
	err = uv_objs_add(&ctx->objs, &pd->obj, UV_PD);
	if (err != 0)
		goto err_destroy;
	resp.pd_handle = pd->obj.handle;
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;

err_destroy:
	sm_pd_destroy(uv_nic(ctx), pd->pd);
err_free:
	free(pd);
	return err;
}

int
uv_dealloc_pd(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_dealloc_pd *req = uv_req(call);
	struct uv_pd *pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	int err;

	if (pd == NULL)
		return ENOENT;
	err = pd->obj.users != 0 ? EBUSY : sm_pd_destroy(uv_nic(ctx), pd->pd);
	if (err != 0)
		return err;
	uv_objs_del(&ctx->objs, &pd->obj);
	free(pd);
	return 0;
}

/* ---- memory regions ---- */

#define MR_REMOTE_CHANGE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define MR_ACCESS                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |                    \
			IBV_ACCESS_HUGETLB | MR_REMOTE_CHANGE)

static int
check_mr(uint64_t start, uint64_t len, uint64_t iova, uint32_t access)
{
	uint32_t refused = access & ~(uint32_t)(MR_ACCESS | IBV_ACCESS_OPTIONAL_RANGE);

	if ((access & MR_REMOTE_CHANGE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
		return EINVAL;
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

int
uv_reg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_reg_mr *req = uv_req(call);
	struct ib_uverbs_reg_mr_resp resp = {0};
	struct uv_mr *mr;
	struct uv_pd *pd;
	int err;

	pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	if (pd == NULL)
		return EINVAL;
	err = check_mr(req->start, req->length, req->hca_va, req->access_flags);
	if (err != 0)
		return err;
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return ENOMEM;
	mr->pd = pd;
	err = sm_mr_create(uv_nic(ctx), pd->pd, req->start, req->length, req->hca_va,
			req->access_flags & MR_ACCESS, &mr->mr, &resp.lkey, &resp.rkey);
	if (err != 0)
		goto err_free;
	err = uv_objs_add(&ctx->objs, &mr->obj, UV_MR);
	if (err != 0)
		goto err_destroy;
	mr_note(mr, req->start, req->length, req->hca_va, req->access_flags);
	pd->obj.users++;
	resp.mr_handle = mr->obj.handle;
	uv_reply(call, &resp, sizeof(resp));
	return 0;

err_destroy:
	sm_mr_destroy(uv_nic(ctx), mr->mr);
err_free:
	free(mr);
	return err;
}

#define REREG_TRANS  1u
#define REREG_PD     2u
#define REREG_ACCESS 4u

int
uv_rereg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_rereg_mr *req = uv_req(call);
	struct uv_mr *mr = uv_get(ctx, req->mr_handle, UV_MR, uv_mr);
	struct ib_uverbs_rereg_mr_resp resp = {0};
	struct uv_mr now;
	struct uv_pd *pd;
	int err;

	if (mr == NULL)
		return ENOENT;
	if (req->flags == 0 || (req->flags & ~(REREG_TRANS | REREG_PD | REREG_ACCESS)) != 0)
		return EINVAL;
	pd = mr->pd;
	if ((req->flags & REREG_PD) != 0)
		pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	if (pd == NULL)
		return EINVAL;
	now = *mr;
	if ((req->flags & REREG_TRANS) != 0)
		mr_note(&now, req->start, req->length, req->hca_va, mr->access);
	if ((req->flags & REREG_ACCESS) != 0)
		now.access = req->access_flags;
	/* What may be written now must be memory that can be. */
	err = (req->flags & ~REREG_PD) == 0 ? 0
					    : check_mr(now.start, now.len, now.iova, now.access);
	if (err == 0)
		err = sm_mr_rereg(uv_nic(ctx), mr->mr, req->flags, pd->pd, now.start, now.len,
			now.iova, now.access & MR_ACCESS, &resp.lkey, &resp.rkey);
	if (err != 0)
		return err;
	mr_note(mr, now.start, now.len, now.iova, now.access);
	mr->pd->obj.users--;
	mr->pd = pd;
	pd->obj.users++;
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

int
uv_dereg_mr(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_dereg_mr *req = uv_req(call);
	struct uv_mr *mr = uv_get(ctx, req->mr_handle, UV_MR, uv_mr);
	int err;

	if (mr == NULL)
		return ENOENT;
	err = sm_mr_destroy(uv_nic(ctx), mr->mr);
	if (err != 0)
		return err;
	mr->pd->obj.users--;
	uv_objs_del(&ctx->objs, &mr->obj);
	free(mr);
	return 0;
}

/* ---- memory windows ---- */

int
uv_alloc_mw(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_alloc_mw *req = uv_req(call);
	struct uv_pd *pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	struct ib_uverbs_alloc_mw_resp resp = {0};
	struct mlx5_ib_alloc_mw drv;
	struct uv_mw *mw;
	int err;

	if (pd == NULL)
		return EINVAL;
	err = uv_driver_req(call, &drv, sizeof(drv), 0);
	if (err != 0)
		return err;
	if (drv.comp_mask != 0 || drv.num_klms > 1 || drv.reserved1 != 0 || drv.reserved2 != 0)
		return sm_refuse(EOPNOTSUPP, "a memory window with %u parts", drv.num_klms);
	mw = calloc(1, sizeof(*mw));
	if (mw == NULL)
		return ENOMEM;
	mw->pd = pd;
	err = sm_mw_create(uv_nic(ctx), pd->pd, req->mw_type, &mw->mw, &resp.rkey);
	if (err != 0)
		goto err_free;
	err = uv_objs_add(&ctx->objs, &mw->obj, UV_MW);
	if (err != 0)
		goto err_destroy;
	pd->obj.users++;
	resp.mw_handle = mw->obj.handle;
	uv_reply(call, &resp, sizeof(resp));
	return 0;

err_destroy:
	sm_mw_destroy(uv_nic(ctx), mw->mw);
err_free:
	free(mw);
	return err;
}

int
uv_dealloc_mw(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_dealloc_mw *req = uv_req(call);
	struct uv_mw *mw = uv_get(ctx, req->mw_handle, UV_MW, uv_mw);
	int err;

	if (mw == NULL)
		return ENOENT;
	err = sm_mw_destroy(uv_nic(ctx), mw->mw);
	if (err != 0)
		return err;
	mw->pd->obj.users--;
	uv_objs_del(&ctx->objs, &mw->obj);
	free(mw);
	return 0;
}

/* ---- completion channels and queues ---- */

int
uv_create_comp_channel(struct uv_ctx *ctx, struct uv_call *call)
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

struct cq_params {
	uint64_t user_handle;
	uint32_t cqe;
	uint32_t comp_vector;
	int32_t comp_channel;
	uint32_t flags;
};

static int
cq_attr(const struct uv_call *call, const struct cq_params *p, struct sm_cq_attr *attr)
{
	struct mlx5_ib_create_cq drv;
	int err;

	if (p->comp_vector >= UV_COMP_VECTORS || p->cqe == 0 || p->cqe > UV_CQE_MAX)
		return EINVAL;
	if ((p->flags & ~(uint32_t)(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN |
				IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)) != 0)
		return EOPNOTSUPP;
	err = uv_driver_req(call, &drv, sizeof(drv), offsetof(struct mlx5_ib_create_cq, flags));
	if (err != 0)
		return err;
	if (drv.cqe_comp_en != 0)
		return sm_refuse(EOPNOTSUPP, "compression of completion entries");
	if ((drv.flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0)
		return sm_refuse(EOPNOTSUPP, "a completion queue with mlx5 flags 0x%x", drv.flags);
	if ((drv.cqe_size != 64 && drv.cqe_size != 128) || (drv.buf_addr & 63) != 0 ||
			(drv.db_addr & 7) != 0)
		return EINVAL;
	attr->ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)p->cqe + 1);
	attr->cqe_size = drv.cqe_size;
	attr->buf = (void *)(uintptr_t)drv.buf_addr;
	attr->dbrec = (void *)(uintptr_t)drv.db_addr;
	attr->ignore_overrun = (p->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
	err = uv_check_range(drv.buf_addr, (uint64_t)attr->ncqe * attr->cqe_size, true);
	return err != 0 ? err : uv_check_range(drv.db_addr, 8, true);
}

/* The channel whose descriptor the program names; with a reference for the queue. */
static int
cq_channel(int32_t fd, struct uv_chan **chan)
{
	struct sm_file *file;

	*chan = NULL;
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
create_cq(struct uv_ctx *ctx, struct uv_call *call, const struct cq_params *p,
		struct ib_uverbs_create_cq_resp *resp)
{
	struct mlx5_ib_create_cq_resp drv = {0};
	struct sm_cq_attr attr = {0};
	struct uv_cq *cq;
	int err;

	err = cq_attr(call, p, &attr);
	if (err != 0)
		return err;
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL)
		return ENOMEM;
	err = cq_channel(p->comp_channel, &cq->chan);
	if (err != 0)
		goto err_free;
	cq->comp.ctx = ctx;
	cq->comp.element = p->user_handle;
	cq->async = cq->comp;
	attr.user = cq;
	err = sm_cq_create(uv_nic(ctx), &attr, &cq->cq, &drv.cqn);
	if (err != 0)
		goto err_chan;
	err = uv_objs_add(&ctx->objs, &cq->obj, UV_CQ);
	if (err != 0)
		goto err_destroy;
	resp->cq_handle = cq->obj.handle;
	resp->cqe = attr.ncqe - 1;
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;

err_destroy:
	sm_cq_destroy(uv_nic(ctx), cq->cq);
err_chan:
	if (cq->chan != NULL)
		uv_chan_put(cq->chan);
err_free:
	free(cq);
	return err;
}

int
uv_create_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_cq *req = uv_req(call);
	struct ib_uverbs_create_cq_resp resp = {0};
	struct cq_params p = {
			.user_handle = req->user_handle,
			.cqe = req->cqe,
			.comp_vector = req->comp_vector,
			.comp_channel = req->comp_channel,
	};
	int err = create_cq(ctx, call, &p, &resp);

	if (err == 0)
		uv_reply(call, &resp, sizeof(resp));
	return err;
}

int
uv_create_cq_ex(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_ex_create_cq *req = uv_req(call);
	struct ib_uverbs_ex_create_cq_resp resp = {0};
	struct cq_params p = {
			.user_handle = req->user_handle,
			.cqe = req->cqe,
			.comp_vector = req->comp_vector,
			.comp_channel = req->comp_channel,
			.flags = req->flags,
	};
	int err;

	if (req->comp_mask != 0 || req->reserved != 0)
		return EINVAL;
	err = create_cq(ctx, call, &p, &resp.base);
	if (err != 0)
		return err;
	resp.response_length = sizeof(resp);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

int
uv_resize_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_resize_cq *req = uv_req(call);
	struct uv_cq *cq = uv_get(ctx, req->cq_handle, UV_CQ, uv_cq);
	struct ib_uverbs_resize_cq_resp resp = {0};
	struct mlx5_ib_resize_cq drv;
	uint32_t ncqe;
	int err;

	if (cq == NULL || req->cqe == 0 || req->cqe > UV_CQE_MAX)
		return EINVAL;
	err = uv_driver_req(call, &drv, sizeof(drv), sizeof(drv));
	if (err != 0)
		return err;
	ncqe = (uint32_t)crpc_pow2_ceil((uint64_t)req->cqe + 1);
	if ((drv.cqe_size != 64 && drv.cqe_size != 128) || (drv.buf_addr & 63) != 0)
		return EINVAL;
	err = uv_check_range(drv.buf_addr, (uint64_t)ncqe * drv.cqe_size, true);
	if (err == 0)
		err = sm_cq_resize(uv_nic(ctx), cq->cq, (void *)(uintptr_t)drv.buf_addr, ncqe,
				drv.cqe_size);
	if (err != 0)
		return err;
	resp.cqe = ncqe - 1;
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}

int
uv_destroy_cq(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_destroy_cq *req = uv_req(call);
	struct uv_cq *cq = uv_get(ctx, req->cq_handle, UV_CQ, uv_cq);
	struct ib_uverbs_destroy_cq_resp resp;
	int err;

	if (cq == NULL)
		return ENOENT;
	err = cq->obj.users != 0 ? EBUSY : sm_cq_destroy(uv_nic(ctx), cq->cq);
	if (err != 0)
		return err;
	resp.comp_events_reported = uv_events_read(cq->chan, &cq->comp);
	resp.async_events_reported = uv_events_read(ctx->async, &cq->async);
	if (cq->chan != NULL)
		uv_chan_put(cq->chan);
	uv_objs_del(&ctx->objs, &cq->obj);
	free(cq);
	uv_reply(call, &resp, sizeof(resp));
	return 0;
}
