/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RPC over datagrams: the verbs of copyrpc, on one queue for all peers. Both ends are in one
 * process here.
 *
 *     cc udrpc_echo.c $(pkg-config --cflags --libs crpc_udrpc crpc_drivers) \
 *         -o udrpc_echo && crpc-soft-mlx5 ./udrpc_echo
 */
#include <stdlib.h>

#include <crpc_clock.h>
#include <crpc_udrpc.h>

#include "counters.h"

struct end {
	struct crpc_rdma *dev;
	struct crpc_udrpc *ctx;
	struct crpc_udrpc_ep *ep;
	uint8_t addr[CRPC_UDRPC_ADDR_LEN];
};

static int
open_end(struct end *e)
{
	struct crpc_rdma_conf dev_conf = {.device = getenv("DEVICE")};
	struct crpc_udrpc_conf conf = {.max_eps = 1};

	e->dev = crpc_rdma_open(&dev_conf);
	if (e->dev == NULL)
		return -1;
	conf.dev = e->dev;
	e->ctx = crpc_udrpc_create(&conf);
	if (e->ctx == NULL)
		return -1;
	e->ep = crpc_udrpc_ep_create(e->ctx, 0);
	if (e->ep == NULL)
		return -1;
	crpc_udrpc_ep_addr(e->ep, e->addr);
	return 0;
}

/* One turn of the server: poll drives the NIC, then requests are answered. */
static void
serve(struct end *e)
{
	uint64_t now = crpc_clock_ns();
	struct crpc_done none;
	struct crpc_req req[8];
	uint16_t i, n;

	crpc_udrpc_poll(e->ctx, now, &none, 1);
	n = crpc_udrpc_recv(e->ctx, now, req, 8);
	for (i = 0; i < n; i++)
		crpc_udrpc_reply(e->ctx, now, req[i].token, req[i].data, req[i].len);
	crpc_udrpc_flush(e->ctx, now);
}

int
main(void)
{
	static char text[10000]; /* Three packets there and three back. */
	static struct end end[2];
	struct end *client = &end[0], *server = &end[1];
	struct crpc_done done;
	int i, rc;

	crpc_clock_init();
	if (open_end(client) != 0 || open_end(server) != 0)
		return fail("open");
	if (crpc_udrpc_ep_connect(client->ep, server->addr) != 0 ||
		crpc_udrpc_ep_connect(server->ep, client->addr) != 0)
		return fail("connect");
	memset(text, 'x', sizeof(text));
	if (crpc_udrpc_call(client->ep, crpc_clock_ns(), text, sizeof(text), sizeof(text), 42) != 0)
		return fail("call");
	while (crpc_udrpc_poll(client->ctx, crpc_clock_ns(), &done, 1) == 0)
		serve(server);
	printf("cookie %d: status %d, %u bytes\n", (int)done.cookie, (int)done.status, done.len);
	rc = done.status != 0 || memcmp(done.data, text, sizeof(text)) != 0;
	for (i = 0; i < 2; i++) {
		crpc_udrpc_free(end[i].ctx);
		crpc_rdma_close(end[i].dev);
	}
	return rc;
}
