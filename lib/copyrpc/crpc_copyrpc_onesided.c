/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets and puts between registered regions, beside the calls of an endpoint and on its queue pair.
 * Each one asks for a completion, and as they complete in order, a FIFO remembers whose they are.
 */
#include "copyrpc_pvt.h"

/* READ or WRITE between local memory and the peer's. */
static int
onesided_post(struct crpc_copyrpc_ep *ep, enum crpc_rdma_op op, const struct crpc_rdma_mr *mr,
		const void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	struct crpc_rdma_wr wr = {.op = (uint8_t)op,
			.flags = CRPC_RDMA_WR_SIGNAL,
			.num_sge = 1,
			.raddr = raddr,
			.rkey = rkey,
			.wr_id = (uint32_t)WR_ONESIDED << WR_KIND_SHIFT};
	uint64_t at = (uintptr_t)buf - (uintptr_t)mr->addr;

	copyrpc_owner_check(ep->ctx);
	if (ep->err != 0)
		return ep->err;
	if (len == 0 || at > mr->len || len > mr->len - at)
		return -EINVAL;
	if (len > CRPC_COPYRPC_ONESIDED_LEN_MAX)
		return -EMSGSIZE;
	if (ep->op_tail - ep->op_head == ONESIDED_MAX)
		return -EAGAIN;
	wr.sge[0] = (struct crpc_rdma_sge){.addr = buf, .len = len, .lkey = mr->lkey};
	if (crpc_rdma_post(ep->qp, &wr, 1) != 1)
		return -EAGAIN;
	ep->ops[ep->op_tail++ & (ONESIDED_MAX - 1)] =
			(struct onesided){.cookie = cookie, .data = buf, .len = len};
	return 0;
}

int
crpc_copyrpc_get(struct crpc_copyrpc_ep *ep, const struct crpc_rdma_mr *mr, void *buf, uint32_t len,
		uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	return onesided_post(ep, CRPC_RDMA_READ, mr, buf, len, raddr, rkey, cookie);
}

int
crpc_copyrpc_put(struct crpc_copyrpc_ep *ep, const struct crpc_rdma_mr *mr, const void *buf,
		uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	return onesided_post(ep, CRPC_RDMA_WRITE, mr, buf, len, raddr, rkey, cookie);
}

/* The oldest get or put is done: they complete in their order. */
void
__crpc_copyrpc_onesided_take(struct crpc_copyrpc_ep *ep, struct crpc_done *done)
{
	const struct onesided *op = &ep->ops[ep->op_head++ & (ONESIDED_MAX - 1)];

	*done = (struct crpc_done){.cookie = op->cookie, .data = op->data, .len = op->len};
	ep->ctx->stats.onesided++;
}
