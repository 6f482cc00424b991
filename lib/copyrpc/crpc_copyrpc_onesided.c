/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets and puts between registered regions, on the queue pair of an endpoint. Each one requests a
 * completion, and as they complete in order, a FIFO holds what their completions are.
 */
#include "copyrpc_modes.h"

/* READ or WRITE between local memory and the peer's. */
static int
onesided_post(struct crpc_copyrpc_ep *ep, enum crpc_rdma_op op, const struct crpc_rdma_mr *mr,
	const void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	struct onesided *o = &ep->conn->onesided;
	struct crpc_rdma_wr wr = {.op = (uint8_t)op,
		.flags = CRPC_RDMA_WR_SIGNAL,
		.num_sge = 1,
		.raddr = raddr,
		.rkey = rkey,
		.wr_id = (uint32_t)WR_ONESIDED << WR_KIND_SHIFT};
	uint64_t at = (uintptr_t)buf - (uintptr_t)mr->addr;

	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	if (ep->err != 0)
		return ep_refusal(ep);
	if (len == 0 || at > mr->len || len > mr->len - at)
		return -EINVAL;
	if (len > CRPC_COPYRPC_ONESIDED_LEN_MAX)
		return -EMSGSIZE;
	if (o->open == o->max)
		return -EAGAIN;
	wr.sge[0] = (struct crpc_rdma_sge){.addr = buf, .len = len, .lkey = mr->lkey};
	if (crpc_rdma_post(ep->conn->qp, &wr, 1) != 1)
		return -EAGAIN;
	o->op[(o->first + o->open++) % o->max] =
		(struct crpc_done){.cookie = cookie, .data = buf, .len = len};
	return 0;
}

int
crpc_copyrpc_get(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const struct crpc_rdma_mr *mr,
	void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	return onesided_post(ep, CRPC_RDMA_READ, mr, buf, len, raddr, rkey, cookie);
}

int
crpc_copyrpc_put(struct crpc_copyrpc_ep *ep, uint64_t now_ns, const struct crpc_rdma_mr *mr,
	const void *buf, uint32_t len, uint64_t raddr, uint32_t rkey, uint64_t cookie)
{
	return onesided_post(ep, CRPC_RDMA_WRITE, mr, buf, len, raddr, rkey, cookie);
}

uint16_t
__crpc_copyrpc_onesided_take(struct crpc_copyrpc_ep *ep, struct crpc_done *done)
{
	struct onesided *o = &ep->conn->onesided;

	if (o->open == 0)
		return 0;
	*done = o->op[o->first];
	o->first = (o->first + 1) % o->max;
	o->open--;
	ep->ctx->stats.onesided++;
	return 1;
}

/*
 * The queue pair may work as well as ever, so it goes first: with it the device releases the memory
 * of gets and puts.
 */
uint16_t
__crpc_copyrpc_onesided_fail(struct crpc_copyrpc_ep *ep, struct crpc_done *done, uint16_t n)
{
	struct conn *conn = ep->conn;
	struct onesided *o = &conn->onesided;
	uint16_t k;

	if (o->open == 0 || (conn->qp != NULL && crpc_rdma_qp_drain(conn->qp) != 0))
		return 0;
	crpc_rdma_qp_free(conn->qp);
	conn->qp = NULL;
	for (k = 0; k < n && __crpc_copyrpc_onesided_take(ep, &done[k]) != 0; k++)
		done[k] = (struct crpc_done){.cookie = done[k].cookie, .status = -ECONNRESET};
	return k;
}
