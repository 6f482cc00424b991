/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: calls of 32 bytes there and back, client and
 * server in one thread. Only the functions of lib/copyrpc that a program calls are collected, with
 * all they call but the NIC; test/golden/instructions.py divides.
 *
 *     count_copyrpc                 names the cases
 *     count_copyrpc CASE            runs one, over a device that only copies
 *     count_copyrpc mlx5_CASE       the same over the first RDMA device
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy_nic.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"

#define LEN 32u
#define EPS 1000u
#define BURST_MAX 256

static const struct {
	const char *name;
	uint32_t eps, active, depth, burst, ring_size, calls;
} cases[] = {
		{"calls_8x256", 8, 8, 256, 256, 65536, 400000},
		{"calls_8x256_bursts_of_64", 8, 8, 256, 64, 65536, 400000},
		{"calls_8x16", 8, 8, 16, 64, 32768, 50000},
		{"calls_1x1", 1, 1, 1, 64, 32768, 5000},
		{"eps_8_active_8", 8, 8, 4, 64, 4096, 50000},
		{"eps_1000_active_8", EPS, 8, 4, 64, 4096, 50000},
};

struct side {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep[EPS];
};

static struct side client, server;

static int
side_open(struct side *s, size_t which, bool mlx5)
{
	uint32_t eps = cases[which].eps;
	struct crpc_rdma_conf rdma = {.gid_index = -1, .cq_depth = 8192};
	struct crpc_copyrpc_conf conf = {.max_eps = eps,
			.ring_size = cases[which].ring_size,
			.max_inflight = cases[which].depth};
	uint32_t i;

	if (mlx5) {
		s->dev = crpc_rdma_open(&rdma);
	} else {
		struct copy_nic *nic = copy_nic_open();

		s->dev = nic == NULL ? NULL : &nic->base;
	}
	conf.dev = s->dev;
	s->ctx = s->dev == NULL ? NULL : crpc_copyrpc_create(&conf);
	if (s->ctx == NULL)
		return -1;
	for (i = 0; i < eps; i++) {
		s->ep[i] = crpc_copyrpc_ep_create(s->ctx, i);
		if (s->ep[i] == NULL)
			return -1;
	}
	return 0;
}

static int
join(uint32_t eps)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	uint32_t i;

	for (i = 0; i < eps; i++) {
		crpc_copyrpc_ep_addr(client.ep[i], addr[0]);
		crpc_copyrpc_ep_addr(server.ep[i], addr[1]);
		if (crpc_copyrpc_ep_connect(client.ep[i], addr[1]) != 0 ||
				crpc_copyrpc_ep_connect(server.ep[i], addr[0]) != 0)
			return -1;
	}
	return 0;
}

static const uint8_t request[LEN];
static uint64_t now = 1000;

static uint32_t
server_turn(uint16_t burst)
{
	static const uint8_t reply[LEN];
	struct crpc_done done[BURST_MAX];
	struct crpc_req req[BURST_MAX];
	uint32_t bad = 0;
	uint16_t n, i;

	crpc_copyrpc_poll(server.ctx, now, done, burst);
	do {
		n = crpc_copyrpc_recv(server.ctx, req, burst);
		for (i = 0; i < n; i++)
			bad += crpc_copyrpc_reply(server.ctx, now, req[i].token, reply, LEN) != 0;
	} while (n != 0);
	crpc_copyrpc_flush(server.ctx, now);
	return bad;
}

static uint32_t
run(uint32_t active, uint32_t depth, uint16_t burst, uint32_t calls)
{
	struct crpc_done done[BURST_MAX];
	uint32_t bad = 0, issued = 0, ended = 0, i, k;
	uint16_t n;

	for (i = 0; i < active; i++)
		for (k = 0; k < depth; k++, issued++)
			bad += crpc_copyrpc_call(client.ep[i], now, request, LEN, LEN, i) != 0;
	crpc_copyrpc_flush(client.ctx, now);
	while (ended < calls && bad == 0) {
		now += 1000;
		bad += server_turn(burst);
		now += 1000;
		do {
			n = crpc_copyrpc_poll(client.ctx, now, done, burst);
			for (i = 0; i < n; i++) {
				bad += done[i].status != 0 || done[i].len != LEN;
				if (issued++ < calls)
					bad += crpc_copyrpc_call(client.ep[done[i].cookie], now,
							       request, LEN, LEN,
							       done[i].cookie) != 0;
			}
			ended += n;
		} while (n == burst);
		crpc_copyrpc_flush(client.ctx, now);
	}
	printf("messages %u\n", ended);
	return bad;
}

int
main(int argc, char **argv)
{
	bool mlx5 = argc > 1 && strncmp(argv[1], "mlx5_", 5) == 0;
	size_t i;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		if (argc < 2) {
			printf("%s\n", cases[i].name);
			continue;
		}
		if (strcmp(argv[1] + (mlx5 ? 5 : 0), cases[i].name) != 0)
			continue;
		if (side_open(&client, i, mlx5) != 0 || side_open(&server, i, mlx5) != 0 ||
				join(cases[i].eps) != 0) {
			fprintf(stderr, "cannot set up: %s\n", crpc_log_last());
			return 77;
		}
		return run(cases[i].active, cases[i].depth, (uint16_t)cases[i].burst,
				       cases[i].calls) != 0;
	}
	return argc < 2 ? 0 : 1;
}
