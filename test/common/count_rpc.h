/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COUNT_RPC_H
#define COUNT_RPC_H

/**
 * @file
 * A fixed amount of work for callgrind to count: calls of 32 bytes there and back, client and
 * server in one thread. Only the functions of the library that a program calls are collected, with
 * all they call but the NIC; test/golden/instructions.py divides.
 *
 *     count_LIB                 names the cases
 *     count_LIB CASE            runs one, over a NIC on paper; prints the ns per call, too
 *     count_LIB mlx5_CASE       the same over the first RDMA device
 *
 * count_copyrpc.c and count_udrpc.c include it, once with each protocol. PROTOCOL, defined before,
 * is the prefix of the protocol's functions, and the name of its context; behind stand the cases,
 * and context_make().
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_rdma.h"
#include "crpc_util.h"

#define COUNT_PASTE(a, b) a##_##b
#define COUNT_NAME(a, b)  COUNT_PASTE(a, b)
#define API(name)         COUNT_NAME(PROTOCOL, name)

#define LEN       32u
#define EPS       1000u
#define BURST_MAX 256
#define CASES_MAX 8
#define ADDR_LEN  256 /* Room for an address of either. */

struct count_case {
	const char *name;
	uint32_t eps, active, depth, burst, ring_size, calls;
};

/** The last is without a name. */
static const struct count_case cases[CASES_MAX];

/** How a program with this library goes on. */
struct count_how {
	uint64_t step_ns; /**< Between the turns of the two sides. */
	bool drain;       /**< A turn takes all that is there; else one burst. */
	uint32_t cq_depth;
};
static const struct count_how how;

struct side {
	struct crpc_rdma *dev;
	struct PROTOCOL *ctx;
	struct API(ep) *ep[EPS];
};

/** Make the context on s->dev: s->ctx is NULL if that fails. */
static void context_make(struct side *s, const struct count_case *c);

static struct side client, server;

static int
side_open(struct side *s, const struct count_case *c, bool mlx5)
{
	const struct crpc_rdma_conf rdma = {
		.device = mlx5 ? NULL : "paper", .cq_depth = how.cq_depth};

	s->dev = crpc_rdma_open(&rdma);
	if (s->dev == NULL)
		return -1;
	context_make(s, c);
	if (s->ctx == NULL)
		return -1;
	for (uint32_t i = 0; i < c->eps; i++) {
		s->ep[i] = API(ep_create)(s->ctx, i);
		if (s->ep[i] == NULL)
			return -1;
	}
	return 0;
}

static int
join(uint32_t eps)
{
	uint8_t addr[2][ADDR_LEN];

	for (uint32_t i = 0; i < eps; i++) {
		API(ep_addr)(client.ep[i], addr[0]);
		API(ep_addr)(server.ep[i], addr[1]);
		if (API(ep_connect)(client.ep[i], addr[1]) != 0 ||
			API(ep_connect)(server.ep[i], addr[0]) != 0)
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

	API(poll)(server.ctx, now, done, burst);
	do {
		n = API(recv)(server.ctx, now, req, burst);
		for (i = 0; i < n; i++)
			bad += API(reply)(server.ctx, now, req[i].token, reply, LEN) != 0;
	} while (how.drain && n != 0);
	API(flush)(server.ctx, now);
	return bad;
}

static uint32_t
run(const struct count_case *c)
{
	struct crpc_done done[BURST_MAX];
	uint32_t bad = 0, issued = 0, ended = 0, i, k;
	uint64_t start = crpc_clock_ns();
	uint16_t n;

	for (i = 0; i < c->active; i++)
		for (k = 0; k < c->depth; k++, issued++)
			bad += API(call)(client.ep[i], now, request, LEN, LEN, i) != 0;
	API(flush)(client.ctx, now);
	while (ended < c->calls && bad == 0) {
		now += how.step_ns;
		bad += server_turn((uint16_t)c->burst);
		now += how.step_ns;
		do {
			n = API(poll)(client.ctx, now, done, (uint16_t)c->burst);
			for (i = 0; i < n; i++) {
				bad += done[i].status != 0 || done[i].len != LEN;
				if (issued++ < c->calls)
					bad += API(call)(client.ep[done[i].cookie], now, request,
						       LEN, LEN, done[i].cookie) != 0;
			}
			ended += n;
		} while (how.drain && n == c->burst);
		API(flush)(client.ctx, now);
	}
	printf("messages %u , %.1f ns each\n", ended, (double)(crpc_clock_ns() - start) / ended);
	return bad;
}

int
main(int argc, char **argv)
{
	bool mlx5 = argc > 1 && strncmp(argv[1], "mlx5_", 5) == 0;
	const struct count_case *c;

	crpc_clock_init();
	for (c = cases; c->name != NULL; c++) {
		if (argc < 2) {
			printf("%s\n", c->name);
			continue;
		}
		if (strcmp(argv[1] + (mlx5 ? 5 : 0), c->name) != 0)
			continue;
		if (side_open(&client, c, mlx5) != 0 || side_open(&server, c, mlx5) != 0 ||
			join(c->eps) != 0) {
			fprintf(stderr, "cannot set up: %s\n", crpc_log_last());
			return 77;
		}
		return run(c) != 0;
	}
	return argc < 2 ? 0 : 1;
}

#endif
