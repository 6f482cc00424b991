/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: calls of 32 bytes there and back, client and
 * server in one thread. Only the functions of lib/udrpc that a program calls are collected, with
 * all they call but the NIC; test/golden/instructions.py divides.
 *
 *     count_udrpc                 names the cases
 *     count_udrpc CASE            runs one, over a device that only copies
 *     count_udrpc mlx5_CASE       the same over the first RDMA device
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy_ud.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"

#define LEN       32u
#define EPS       1000u
#define BURST_MAX 64

static const struct {
	const char *name;
	uint32_t eps, active, depth, calls;
} cases[] = {
	{"calls_8x256", 8, 8, 256, 20000},
	{"calls_1x32", 1, 1, 32, 10000},
	{"calls_1x1", 1, 1, 1, 3000},
	{"eps_8_active_8", 8, 8, 4, 8000},
	{"eps_1000_active_8", EPS, 8, 4, 8000},
};

struct side {
	struct crpc_rdma *dev;
	struct crpc_udrpc *ctx;
	struct crpc_udrpc_ep *ep[EPS];
};

static struct side client, server;

static int
side_open(struct side *s, size_t which, bool mlx5)
{
	uint32_t eps = cases[which].eps, i;
	struct crpc_rdma_conf rdma = {.gid_index = -1, .cq_depth = 16384};
	struct crpc_udrpc_conf conf = {.max_eps = eps,
		.slots = cases[which].depth,
		.credits = cases[which].depth,
		.max_msg = 64,
		.sq_depth = 2048,
		.rq_depth = 4096,
		.seed = 1};

	s->dev = mlx5 ? crpc_rdma_open(&rdma) : copy_ud_open();
	conf.dev = s->dev;
	s->ctx = s->dev == NULL ? NULL : crpc_udrpc_create(&conf);
	if (s->ctx == NULL)
		return -1;
	for (i = 0; i < eps; i++) {
		s->ep[i] = crpc_udrpc_ep_create(s->ctx, i);
		if (s->ep[i] == NULL)
			return -1;
	}
	return 0;
}

static int
join(uint32_t eps)
{
	uint8_t addr[2][CRPC_UDRPC_ADDR_LEN];
	uint32_t i;

	for (i = 0; i < eps; i++) {
		crpc_udrpc_ep_addr(client.ep[i], addr[0]);
		crpc_udrpc_ep_addr(server.ep[i], addr[1]);
		if (crpc_udrpc_ep_connect(client.ep[i], addr[1]) != 0 ||
			crpc_udrpc_ep_connect(server.ep[i], addr[0]) != 0)
			return -1;
	}
	return 0;
}

static const uint8_t request[LEN];
static uint64_t now = 1000;

static uint32_t
server_turn(void)
{
	static const uint8_t reply[LEN];
	struct crpc_done done[BURST_MAX];
	struct crpc_req req[BURST_MAX];
	uint32_t bad = 0;
	uint16_t n, i;

	crpc_udrpc_poll(server.ctx, now, done, BURST_MAX);
	n = crpc_udrpc_recv(server.ctx, req, BURST_MAX);
	for (i = 0; i < n; i++)
		bad += crpc_udrpc_reply(server.ctx, now, req[i].token, reply, LEN) != 0;
	crpc_udrpc_flush(server.ctx, now);
	return bad;
}

static uint32_t
run(uint32_t active, uint32_t depth, uint32_t calls)
{
	struct crpc_done done[BURST_MAX];
	uint32_t bad = 0, issued = 0, ended = 0, i, k;
	uint16_t n;

	for (i = 0; i < active; i++)
		for (k = 0; k < depth; k++, issued++)
			bad += crpc_udrpc_call(client.ep[i], now, request, LEN, LEN, i) != 0;
	crpc_udrpc_flush(client.ctx, now);
	while (ended < calls && bad == 0) {
		now += 100;
		bad += server_turn();
		now += 100;
		n = crpc_udrpc_poll(client.ctx, now, done, BURST_MAX);
		for (i = 0; i < n; i++) {
			bad += done[i].status != 0 || done[i].len != LEN;
			if (issued++ < calls)
				bad += crpc_udrpc_call(client.ep[done[i].cookie], now, request, LEN,
					       LEN, done[i].cookie) != 0;
		}
		ended += n;
		crpc_udrpc_flush(client.ctx, now);
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
		return run(cases[i].active, cases[i].depth, cases[i].calls) != 0;
	}
	return argc < 2 ? 0 : 1;
}
