/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A large tagged message: 16 MiB, in chunks, once through bounce memory of the receiver (eager) and
 * once written straight into its buffer (rendezvous). Both ends are in one process here.
 *
 *     cc bulk_send.c $(pkg-config --cflags --libs crpc_bulk crpc_drivers) \
 *         -o bulk_send && crpc-soft-mlx5 ./bulk_send
 */
#include <stdlib.h>

#include <crpc_bulk.h>
#include <crpc_clock.h>

#include "counters.h"

enum { LEN = 16 << 20 };

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_bulk *bulk;
	struct crpc_bulk_conn *conn;
	uint8_t addr[CRPC_BULK_ADDR_LEN];
};

static int
open_end(struct end *e)
{
	struct crpc_rdma_conf dev_conf = {.device = getenv("DEVICE")};
	struct crpc_copyrpc_conf ctx_conf = {.max_eps = 1, .ring_size = 16384};
	struct crpc_bulk_conf conf = {.max_conns = 1};

	e->dev = crpc_rdma_open(&dev_conf);
	if (e->dev == NULL)
		return -1;
	ctx_conf.dev = e->dev;
	e->ctx = crpc_copyrpc_create(&ctx_conf);
	if (e->ctx == NULL)
		return -1;
	conf.port[0] = (struct crpc_bulk_port){.ctx = e->ctx, .dev = e->dev};
	e->bulk = crpc_bulk_create(&conf);
	if (e->bulk == NULL)
		return -1;
	e->conn = crpc_bulk_conn_create(e->bulk, 1, 0);
	if (e->conn == NULL)
		return -1;
	crpc_bulk_conn_addr(e->conn, e->addr);
	return 0;
}

/* Move a message over one path; its two requests end with the same verdict. */
static int
move(struct end *sender, struct end *receiver, uint32_t path, const char *from, char *to)
{
	struct crpc_bulk_result sent, received;
	uint64_t req[2], now = crpc_clock_ns();
	uint16_t ended = 0;

	if (crpc_bulk_irecv(receiver->conn, now, 7, to, LEN, 0, 1, &req[0]) != 0 ||
		crpc_bulk_isend(sender->conn, now, 7, from, LEN, path, 2, &req[1]) != 0)
		return fail("post");
	while (ended < 2) {
		now = crpc_clock_ns();
		crpc_bulk_progress(sender->bulk, now);
		crpc_bulk_progress(receiver->bulk, now);
		ended += crpc_bulk_test_burst(sender->bulk, &sent, 1);
		ended += crpc_bulk_test_burst(receiver->bulk, &received, 1);
	}
	printf("%s: status %d and %d, %d MiB\n", path == CRPC_BULK_EAGER ? "eager" : "written",
		(int)sent.status, (int)received.status, (int)(received.len >> 20));
	return sent.status != 0 || received.status != 0 || memcmp(from, to, LEN) != 0;
}

int
main(void)
{
	static const uint32_t paths[] = {CRPC_BULK_EAGER, CRPC_BULK_WRITE};
	static struct end end[2];
	static char from[LEN], to[LEN];
	int i, rc = 0;

	crpc_clock_init();
	if (open_end(&end[0]) != 0 || open_end(&end[1]) != 0)
		return fail("open");
	if (crpc_bulk_conn_connect(end[0].conn, end[1].addr) != 0 ||
		crpc_bulk_conn_connect(end[1].conn, end[0].addr) != 0)
		return fail("connect");
	for (i = 0; i < 2; i++) {
		memset(from, 'a' + i, LEN);
		rc |= move(&end[0], &end[1], paths[i], from, to);
	}
	for (i = 0; i < 2; i++) {
		crpc_bulk_free(end[i].bulk);
		crpc_copyrpc_free(end[i].ctx);
		crpc_rdma_close(end[i].dev);
	}
	return rc;
}
