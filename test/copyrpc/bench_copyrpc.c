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

#include "copy_nic.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"

struct bench {
	struct copy_nic *dev[2];
	struct crpc_copyrpc *ctx[2];
	struct crpc_copyrpc_ep *ep[2];
};

static int
bench_init(struct bench *b)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_conf conf = {.ring_size = 65536};
	int i;

	for (i = 0; i < 2; i++) {
		b->dev[i] = copy_nic_open();
		if (b->dev[i] == NULL)
			return -1;
		conf.dev = &b->dev[i]->base;
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
		crpc_rdma_close(&b->dev[0]->base);
		crpc_rdma_close(&b->dev[1]->base);
		free(b);
	}
	return 0;
}
