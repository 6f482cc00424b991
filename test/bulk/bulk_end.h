/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_END_H
#define BULK_END_H

/**
 * @file
 * One end of a connection over a device and its driver, in a test or a count that does not step the
 * device by hand (for that, see bulk_rig.h).
 */

#include "crpc_bulk.h"
#include "crpc_log.h"

struct bulk_end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
};

/* The device of this name (NULL: the first), and its context. False: the log says why not. */
static inline bool
end_device(struct bulk_end *e, const char *device, const struct crpc_copyrpc_conf *conf)
{
	const struct crpc_rdma_conf rdma = {.device = device};
	struct crpc_copyrpc_conf net = *conf;

	net.dev = e->dev = crpc_rdma_open(&rdma);
	e->ctx = e->dev != NULL ? crpc_copyrpc_create(&net) : NULL;
	return e->ctx != NULL;
}

/* The bulk object, with a connection. */
static inline bool
end_bulk(struct bulk_end *e, const struct crpc_bulk_conf *conf, uint32_t rails)
{
	struct crpc_bulk_conf bulk = *conf;

	bulk.port[0] = (struct crpc_bulk_port){.ctx = e->ctx, .dev = e->dev};
	e->b = crpc_bulk_create(&bulk);
	e->conn = e->b != NULL ? crpc_bulk_conn_create(e->b, rails, 1) : NULL;
	return e->conn != NULL;
}

static inline void
end_close(struct bulk_end *e)
{
	crpc_bulk_free(e->b);
	crpc_copyrpc_free(e->ctx);
	crpc_rdma_close(e->dev);
}

/* Two ends of this process. */
static inline bool
ends_connect(struct bulk_end end[2])
{
	uint8_t addr[2][CRPC_BULK_ADDR_LEN];

	crpc_bulk_conn_addr(end[0].conn, addr[0]);
	crpc_bulk_conn_addr(end[1].conn, addr[1]);
	return crpc_bulk_conn_connect(end[0].conn, addr[1]) == 0 &&
		crpc_bulk_conn_connect(end[1].conn, addr[0]) == 0;
}

#endif
