/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the protocol itself costs, client and server in one thread over a device that only copies: a
 * post is a memcpy to the peer and a completion. Prints ns per call for several batch sizes.
 * Nothing is asserted; run it under `perf stat -e instructions:u` with one batch size for a count.
 *
 *     bench_copyrpc [calls per turn] [turns]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"
#include "crpc_rdma_driver.h"

#define CQ 256

struct dev {
	struct crpc_rdma base;
	struct crpc_rdma_cqe cq[CQ];
	uint32_t head, tail;
};

struct qp {
	struct crpc_rdma_qp base;
	struct qp *peer;
};

static struct qp *qps[2];
static uint32_t nqps;

static void
push(struct qp *qp, uint8_t type, uint32_t imm, uint32_t len, uint32_t wr_id)
{
	struct dev *dev = (struct dev *)qp->base.dev;

	dev->cq[dev->tail++ % CQ] = (struct crpc_rdma_cqe){.type = type,
			.qp_id = qp->base.id,
			.imm = imm,
			.byte_len = len,
			.wr_id = wr_id,
			.wrs = 1};
}

static uint16_t
dev_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct qp *qp = (struct qp *)base;
	uint32_t len;
	uint16_t i;

	for (i = 0; i < n; i++) {
		len = wr[i].num_sge != 0 ? wr[i].sge[0].len : 0;
		if (len != 0)
			memcpy((void *)(uintptr_t)wr[i].raddr, wr[i].sge[0].addr, len);
		push(qp->peer, CRPC_RDMA_CQE_RECV, wr[i].imm, len, 0);
		if (wr[i].flags & CRPC_RDMA_WR_SIGNAL)
			push(qp, CRPC_RDMA_CQE_SEND, 0, 0, wr[i].wr_id);
	}
	return n;
}

static uint16_t
dev_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct dev *dev = (struct dev *)base;
	uint16_t k = 0;

	while (k < n && dev->head != dev->tail)
		cqe[k++] = dev->cq[dev->head++ % CQ];
	return k;
}

static void
dev_info(const struct crpc_rdma *dev, struct crpc_rdma_info *info)
{
	info->inline_max = 220;
}

static int
dev_mr_reg(struct crpc_rdma *dev, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	*mr = (struct crpc_rdma_mr){.addr = addr, .len = len, .lkey = 1, .rkey = 1, .priv = addr};
	return 0;
}

static void
dev_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr)
{
}

static struct crpc_rdma_qp *
dev_qp_create(struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	if (qp == NULL)
		return NULL;
	qp->base = (struct crpc_rdma_qp){.dev = dev, .id = conf->id};
	qps[nqps++] = qp;
	return &qp->base;
}

static void
dev_qp_free(struct crpc_rdma_qp *qp)
{
	free(qp);
}

static void
dev_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
}

static int
dev_qp_connect(struct crpc_rdma_qp *base, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct qp *qp = (struct qp *)base;

	qp->peer = qps[0] == qp ? qps[1] : qps[0];
	return 0;
}

static const struct crpc_rdma_ops ops = {
		.name = "copy",
		.info_get = dev_info,
		.mr_reg = dev_mr_reg,
		.mr_dereg = dev_mr_dereg,
		.qp_create = dev_qp_create,
		.qp_free = dev_qp_free,
		.qp_addr = dev_qp_addr,
		.qp_connect = dev_qp_connect,
};

struct bench {
	struct dev dev[2];
	struct crpc_copyrpc *ctx[2];
	struct crpc_copyrpc_ep *ep[2];
};

static int
bench_init(struct bench *b)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_conf conf = {.ring_size = 65536};
	int i;

	nqps = 0;
	for (i = 0; i < 2; i++) {
		b->dev[i].base = (struct crpc_rdma){.fp = {dev_post, dev_poll}, .ops = &ops};
		conf.dev = &b->dev[i].base;
		b->ctx[i] = crpc_copyrpc_create(&conf);
		if (b->ctx[i] == NULL)
			return -1;
		b->ep[i] = crpc_copyrpc_ep_create(b->ctx[i], 0);
		if (b->ep[i] == NULL)
			return -1;
		crpc_copyrpc_ep_addr(b->ep[i], addr[i]);
	}
	return crpc_copyrpc_ep_connect(b->ep[0], addr[1]) |
	       crpc_copyrpc_ep_connect(b->ep[1], addr[0]);
}

/* One turn of the client and one of the server: `burst` calls there and back. */
static uint32_t
bench_turn(struct bench *b, uint32_t burst, uint64_t now)
{
	static uint8_t request[32], reply[16];
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[CRPC_BURST_MAX];
	uint32_t i;
	uint16_t n;

	for (i = 0; i < burst; i++)
		crpc_copyrpc_call(b->ep[0], now, request, sizeof(request), sizeof(reply), i);
	crpc_copyrpc_flush(b->ctx[0], now);
	crpc_copyrpc_poll(b->ctx[1], now, done, CRPC_BURST_MAX);
	n = crpc_copyrpc_recv(b->ctx[1], req, CRPC_BURST_MAX);
	for (i = 0; i < n; i++)
		crpc_copyrpc_reply(b->ctx[1], now, req[i].token, reply, sizeof(reply));
	crpc_copyrpc_flush(b->ctx[1], now);
	return crpc_copyrpc_poll(b->ctx[0], now, done, CRPC_BURST_MAX);
}

int
main(int argc, char **argv)
{
	static const uint32_t bursts[] = {1, 2, 4, 8, 16, 32, 64};
	uint32_t one = argc > 1 ? (uint32_t)atoi(argv[1]) : 0, i, k;
	uint32_t turns = argc > 2 ? (uint32_t)atoi(argv[2]) : 20000;
	uint64_t start, calls;
	struct bench *b;

	crpc_clock_init();
	for (i = 0; i < CRPC_DIM(bursts); i++) {
		if (one != 0 && bursts[i] != one)
			continue;
		b = calloc(1, sizeof(*b));
		if (b == NULL || bench_init(b) != 0) {
			fprintf(stderr, "cannot set up: %s\n", crpc_log_last());
			return 2;
		}
		start = crpc_clock_ns();
		for (calls = 0, k = 0; k < turns; k++)
			calls += bench_turn(b, bursts[i], start + k * 1000);
		printf("burst %2u: %6.1f ns per call, both ends (%llu calls)\n", bursts[i],
				(double)(crpc_clock_ns() - start) / (double)calls,
				(unsigned long long)calls);
		crpc_copyrpc_free(b->ctx[0]);
		crpc_copyrpc_free(b->ctx[1]);
		free(b);
	}
	return 0;
}
