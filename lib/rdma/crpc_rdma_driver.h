/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_RDMA_DRIVER_H
#define CRPC_RDMA_DRIVER_H

/**
 * @file
 * For drivers of lib/rdma: the control operations and how to register.
 *
 * A driver is found by its constructor (CRPC_RDMA_DRIVER), so a program links it whole.
 * crpc_rdma_open() tries the drivers in turn; the first whose open() takes the device gets it.
 */

#include "crpc_rdma.h"

CRPC_BEGIN_DECLS

/**
 * The operations of one driver; every slot but qp_drain, qp_in_order, list, dump, card_get and the
 * two of datagrams is set. Arguments were checked by lib/rdma, and zero fields of the
 * configurations have their defaults.
 */
struct crpc_rdma_ops {
	const char *name;
	/** It takes what others may take better: it is asked after those without. */
	bool is_last;
	/** Open conf->device (NULL: the first that fits). Sets fp and ops. NULL with errno: ENODEV,
	 *  without a log line, if there is no such device; ENOTSUP if there is but it is not this
	 *  driver's; then the next driver is tried. Any other error ends the search. */
	struct crpc_rdma *(*open)(const struct crpc_rdma_conf *conf);
	void (*close)(struct crpc_rdma *dev);
	void (*info_get)(const struct crpc_rdma *dev, struct crpc_rdma_info *info);
	int (*mr_reg)(struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags,
		struct crpc_rdma_mr *mr);
	void (*mr_dereg)(struct crpc_rdma *dev, struct crpc_rdma_mr *mr);
	struct crpc_rdma_qp *(*qp_create)(
		struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf);
	void (*qp_free)(struct crpc_rdma_qp *qp);
	/** 0 or -EAGAIN. May be NULL: qp_free stops the device by itself, and at once. */
	int (*qp_drain)(struct crpc_rdma_qp *qp);
	void (*qp_addr)(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN]);
	int (*qp_connect)(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
	/** See crpc_rdma_qp_in_order(). May be NULL: writes are in order. */
	int (*qp_in_order)(struct crpc_rdma_qp *qp);
	/** Datagrams: both, or none. */
	struct crpc_rdma_ah *(*ah_create)(
		struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN]);
	void (*ah_free)(struct crpc_rdma_ah *ah);
	/** Write the names of the devices that are there, with blanks between them, for the error
	 *  text of an open that found none. May be NULL. */
	void (*list)(char *buf, size_t len);
	/** 0 or -EOPNOTSUPP. May be NULL. */
	int (*card_get)(const struct crpc_rdma *dev, struct crpc_rdma_card *card);
	/** Write the state of all queues. May be NULL. */
	void (*dump)(const struct crpc_rdma *dev, FILE *out);
};

/** One registered driver. */
struct crpc_rdma_driver {
	const struct crpc_rdma_ops *ops;
	struct crpc_rdma_driver *next;
};

/** Add a driver; called by CRPC_RDMA_DRIVER before main. */
void crpc_rdma_driver_register(struct crpc_rdma_driver *driver);

/** Register @p driver_ops (a const struct crpc_rdma_ops) at program start. */
#define CRPC_RDMA_DRIVER(id, driver_ops)                                                           \
	static struct crpc_rdma_driver crpc_rdma_driver_##id = {.ops = &(driver_ops)};             \
	__attribute__((constructor)) static void crpc_rdma_driver_init_##id(void)                  \
	{                                                                                          \
		crpc_rdma_driver_register(&crpc_rdma_driver_##id);                                 \
	}

CRPC_END_DECLS

#endif
