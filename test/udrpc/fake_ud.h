/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAKE_UD_H
#define FAKE_UD_H

/**
 * @file
 * Devices of lib/rdma with datagrams only, for tests, joined by a bad network and stepped by hand.
 *
 * A posted datagram waits in its send queue. fake_step() chooses at random: a send queue, whose
 * oldest datagram's bytes are read only then, as a NIC does; or the network, from which one packet
 * arrives, gets lost, arrives and stays to arrive again, or arrives shorter or longer than it was.
 * Buffers of arrived packets are freed at the poll after the one that gave them, so that a
 * sanitizer finds who reads on. All chance comes from the world's seed.
 */

#include "crpc_rdma.h"

#define FAKE_DEVS   8
#define FAKE_FLIGHT 8192
#define FAKE_CQ     8192

struct fake_dev;

/** One packet on its way. */
struct fake_packet {
	struct fake_dev *to;
	uint32_t len;
	uint8_t *data;
};

/** Devices that reach each other. Chances are of 10000. */
struct fake_world {
	uint64_t rng;
	uint64_t now_ns; /**< The test's clock; nothing here reads it. */
	uint32_t lose, twice, reorder, resize;
	uint32_t slow_sq;  /**< Chance that a send queue that was chosen does nothing. */
	bool autorun;      /**< An empty poll carries everything out (no step() needed). */
	struct fake_dev *devs[FAKE_DEVS];
	struct fake_packet flight[FAKE_FLIGHT]; /**< Oldest first. */
	uint32_t nflight;
	uint64_t lost, doubled, resized, delivered;
	/** Sees each packet as it is read from the send queue; may be NULL. */
	void (*tap)(struct fake_world *w, const uint8_t *data, uint32_t len);
	void *tap_arg;
};

/** The next random number. */
uint64_t fake_rnd(struct fake_world *w);

/** A device in that world. Closed by crpc_rdma_close(). */
struct crpc_rdma *fake_open(struct fake_world *w, uint32_t inline_max, uint32_t mtu);

/** Do one thing somewhere. Returns false if there was nothing to do. */
bool fake_step(struct fake_world *w);

/** Step until nothing is left to do. */
void fake_run(struct fake_world *w);

/** Put bytes before a device's datagram queue, as if somebody had sent them. */
void fake_forge(struct crpc_rdma *dev, const void *data, uint32_t len);

/** The process behind a device is gone: it sends and receives nothing any more. */
void fake_kill(struct crpc_rdma *dev);

/** Break a device's datagram queue. */
void fake_fail(struct crpc_rdma *dev);

/** Post takes at most so many datagrams from now on; UINT32_MAX: no limit of its own. */
void fake_post_limit(struct crpc_rdma *dev, uint32_t datagrams);

/** Forget what is in the network. */
void fake_world_fini(struct fake_world *w);

#endif
