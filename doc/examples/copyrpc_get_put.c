/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Write and read memory of the peer without its program's help: put and get. Both ends are in one
 * process here; the peer of a real program sends address and rkey of its region in a message.
 *
 *     cc copyrpc_get_put.c $(pkg-config --cflags --libs crpc_copyrpc crpc_drivers) \
 *         -o copyrpc_get_put && crpc-soft-mlx5 ./copyrpc_get_put
 */
#include <stdlib.h>

#include <crpc_clock.h>
#include <crpc_copyrpc.h>

#include "counters.h"

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_rdma_mr mr; /* What the peer may read and write. */
	char memory[4096];
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
};

static int
open_end(struct end *e)
{
	struct crpc_rdma_conf dev_conf = {.device = getenv("DEVICE")};
	struct crpc_copyrpc_conf conf = {.max_eps = 1};

	e->dev = crpc_rdma_open(&dev_conf);
	if (e->dev == NULL || crpc_rdma_mr_reg(e->dev, e->memory, sizeof(e->memory), &e->mr) != 0)
		return -1;
	conf.dev = e->dev;
	e->ctx = crpc_copyrpc_create(&conf);
	if (e->ctx == NULL)
		return -1;
	e->ep = crpc_copyrpc_ep_create(e->ctx, 0);
	if (e->ep == NULL)
		return -1;
	crpc_copyrpc_ep_addr(e->ep, e->addr);
	return 0;
}

/* Both ends poll until ours has a completion. */
static int
wait_for(struct end *ours, struct end *peers)
{
	struct crpc_done done, none;

	while (crpc_copyrpc_poll(ours->ctx, crpc_clock_ns(), &done, 1) == 0)
		crpc_copyrpc_poll(peers->ctx, crpc_clock_ns(), &none, 1);
	return done.status;
}

int
main(void)
{
	static struct end end[2];
	struct end *ours = &end[0], *peers = &end[1];
	uint64_t raddr = (uintptr_t)peers->memory;
	int i;

	crpc_clock_init();
	if (open_end(ours) != 0 || open_end(peers) != 0)
		return fail("open");
	if (crpc_copyrpc_ep_connect(ours->ep, peers->addr) != 0 ||
		crpc_copyrpc_ep_connect(peers->ep, ours->addr) != 0)
		return fail("connect");
	/* Local memory lies in a registered region too: text at 0, what comes back at 2048. */
	strcpy(ours->memory, "written by the peer");
	if (crpc_copyrpc_put(ours->ep, crpc_clock_ns(), &ours->mr, ours->memory, 20, raddr + 100,
		    peers->mr.rkey, 1) != 0 ||
		wait_for(ours, peers) != 0)
		return fail("put");
	if (crpc_copyrpc_get(ours->ep, crpc_clock_ns(), &ours->mr, ours->memory + 2048, 20,
		    raddr + 100, peers->mr.rkey, 2) != 0 ||
		wait_for(ours, peers) != 0)
		return fail("get");
	printf("put: %s; get: %s\n", peers->memory + 100, ours->memory + 2048);
	for (i = 0; i < 2; i++) {
		crpc_copyrpc_free(end[i].ctx);
		crpc_rdma_mr_dereg(end[i].dev, &end[i].mr);
		crpc_rdma_close(end[i].dev);
	}
	return strcmp(ours->memory, ours->memory + 2048) != 0;
}
