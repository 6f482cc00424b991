/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAKE_RDMA_H
#define FAKE_RDMA_H

/**
 * @file
 * A device of lib/rdma for tests: queue pairs of one process joined by memory, stepped by hand.
 *
 * Posted WRs wait in order in their queue pair. fake_step() takes one queue pair at random and
 * either carries out its oldest WR (the payload is read only now, as a NIC does) or acknowledges
 * one that was carried out; so delays and interleavings come from the world's seed. Keys and bounds
 * are checked; a receive that is not posted holds the sender up (RNR). Nothing is random outside
 * fake_step() and fake_rnd().
 */

#include "crpc_rdma.h"

#define FAKE_QPS 64
#define FAKE_MRS 512
#define FAKE_CQ  8192

struct fake_dev;
struct fake_qp;

/** Devices that reach each other. */
struct fake_world {
	uint64_t rng;
	uint64_t now_ns; /**< The test's clock; nothing here reads it. */
	bool autorun;    /**< An empty poll carries everything out (no step() needed). */
	bool frozen;     /**< fake_step() does nothing: the wire is cut. */
	bool hold_acks;  /**< Writes are carried out, their completions wait. */
	bool undrained;  /**< crpc_rdma_qp_drain() gives -EAGAIN, as of a shared send queue. */
	struct fake_qp *qps[FAKE_QPS];
	uint32_t nqps;
	/** May change what arrives: the memory written, the immediate, the bytes reported. */
	void (*mutate)(struct fake_world *w, uint8_t *dst, uint32_t len, uint32_t *imm,
			uint32_t *byte_len);
	void *mutate_arg;
};

/** The next random number. */
uint64_t fake_rnd(struct fake_world *w);

/** A device in that world. Closed by crpc_rdma_close(). */
struct crpc_rdma *fake_open(struct fake_world *w, uint32_t inline_max);

/** Do one thing somewhere. Returns false if there was nothing to do. */
bool fake_step(struct fake_world *w);

/** Step until nothing is left to do. */
void fake_run(struct fake_world *w);

/** The queue pair with this id of a device. */
struct fake_qp *fake_qp_find(struct crpc_rdma *dev, uint32_t id);

/** Post takes at most so many WRs from now on; UINT32_MAX: no limit of its own. */
void fake_post_limit(struct crpc_rdma *dev, uint32_t wrs);

/** Break a queue pair: it completes with an error; the peer notices when it sends. */
void fake_qp_fail(struct fake_qp *qp);

/** Announce a forged WRITE WITH IMMEDIATE to the owner of a queue pair; its data lies there. */
void fake_forge(struct fake_qp *qp, uint32_t imm, uint32_t byte_len);

/** WRs of every kind posted since open; asked: those whose completion was asked for. */
struct fake_counts {
	uint64_t writes, write_imms, reads, posts, inlined, wrs_max, asked;
};
const struct fake_counts *fake_counts(const struct crpc_rdma *dev);

#endif
