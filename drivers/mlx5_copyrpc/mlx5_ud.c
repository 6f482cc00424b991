/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams, the control path: the queue pair with its receive buffers, and address handles.
 *
 *     receive WQE i --> buffer i:  | 24 unused | GRH 40 | payload, up to 4096 |
 *                                  0           24       64
 *
 * The device takes receives in the order of the ring, so a completion's index is its buffer, and
 * handing buffers back is adding to a counter.
 */
#include <errno.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

/* Receive buffers for the whole ring, registered, and named by its WQEs. */
int
crpc_mlx5_ud_memory_init(struct crpc_mlx5_qp *qp, const struct mlx5dv_qp *raw)
{
	struct crpc_mlx5_dev *dev = crpc_mlx5_dev(qp->ib.base.dev);
	struct crpc_mlx5_ud *ud = crpc_container_of(qp, struct crpc_mlx5_ud, qp);

	qp->rq.ud = ud;
	ud->mtu = 128u << dev->ib.mtu;
	ud->mask = raw->rq.wqe_cnt - 1;
	ud->buf = qp->memory = crpc_ib_buffers_make(&dev->ib, raw->rq.wqe_cnt, &qp->mr);
	if (ud->buf == NULL)
		return -ENOMEM;
	ud->lkey = qp->mr->lkey;
	crpc_mlx5_rq_prefill(CRPC_IB_UD, ud, raw->rq.buf, raw->rq.wqe_cnt, raw->rq.stride);
	return 0;
}

/* Nothing is handed back any more. */
void
crpc_mlx5_ud_forget(struct crpc_mlx5_ud *ud)
{
	struct crpc_mlx5_ud **at = &crpc_mlx5_dev(ud->qp.ib.base.dev)->held;

	while (*at != NULL && *at != ud)
		at = &(*at)->next_held;
	if (*at != NULL)
		*at = ud->next_held;
}

struct crpc_rdma_ah *
crpc_mlx5_ah_create(struct crpc_rdma_qp *ud, const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_ib_addr peer;
	struct crpc_mlx5_ah *ah = crpc_ib_ah_new(ud, bytes, sizeof(*ah), &peer);
	bool full;

	if (ah == NULL)
		return NULL;
	if (crpc_mlx5_av_get(crpc_mlx5_dev(ud->dev), ah->ib.ibah, &peer, &ah->av, &full) != 0) {
		crpc_ib_ah_free(&ah->ib.base);
		return crpc_null(-EHOSTUNREACH);
	}
	ah->av.key.qkey.qkey = htobe32((uint32_t)peer.key);
	return &ah->ib.base;
}
