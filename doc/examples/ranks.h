/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that play two hosts, and what each needs to call the other. On real hosts a
 * launcher starts the ranks and exchanges their addresses (PMIx, MPI, a socket, a file); here that
 * is fork() and a pair of sockets.
 */
#ifndef RANKS_H
#define RANKS_H

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_copyrpc.h>

struct rank {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
};

/* A device, a context on it, and one endpoint. Each lcore has its own. */
static inline int
rank_open(struct rank *r, const struct crpc_copyrpc_conf *how)
{
	struct crpc_rdma_conf dev_conf = {.device = getenv("DEVICE")};
	struct crpc_copyrpc_conf conf = *how;

	r->dev = crpc_rdma_open(&dev_conf); /* NULL: the first device there is. */
	if (r->dev == NULL)
		return -1;
	conf.dev = r->dev;
	r->ctx = crpc_copyrpc_create(&conf);
	if (r->ctx == NULL)
		return -1;
	r->ep = crpc_copyrpc_ep_create(r->ctx, 0);
	return r->ep == NULL ? -1 : 0;
}

/* Exchange addresses, connect, and wait until the peer has connected too. */
static inline int
rank_connect(struct rank *r, int sock)
{
	uint8_t mine[CRPC_COPYRPC_ADDR_LEN], peer[CRPC_COPYRPC_ADDR_LEN];

	crpc_copyrpc_ep_addr(r->ep, mine);
	if (send(sock, mine, sizeof(mine), 0) != sizeof(mine) ||
		recv(sock, peer, sizeof(peer), 0) != sizeof(peer))
		return -1;
	if (crpc_copyrpc_ep_connect(r->ep, peer) != 0)
		return -1;
	return send(sock, "", 1, 0) == 1 && recv(sock, peer, 1, 0) == 1 ? 0 : -1;
}

static inline void
rank_close(struct rank *r)
{
	crpc_copyrpc_free(r->ctx);
	crpc_rdma_close(r->dev);
}

#endif
