/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_PAPER_NIC_H
#define CRPC_PAPER_NIC_H

/**
 * @file
 * A NIC on paper: a driver of lib/rdma whose devices exist in the memory of one process. It needs
 * no hardware, no kernel, no EAL and no thread. Connected queue pairs (RC and DC) and datagrams
 * (UD) behave as crpc_rdma.h says; what happens between two devices is under control of the
 * program: one step at a time, in a random order that a seed repeats, with faults on request.
 *
 *          device              fabric (struct crpc_paper)             device
 *     +--------------+                                           +--------------+
 *     | send queue   |--- WRITE, READ: at once, on a step ------>| regions      |
 *     |   post()     |--- WRITE WITH IMMEDIATE: takes a receive->| receives     |
 *     |              |--- datagram --> [ in flight ] ----------->| receives     |
 *     | completions  |<-- acknowledgement, on a later step       | completions  |
 *     +--------------+                                           +--------------+
 *
 * Order of calls:
 *
 *     struct crpc_paper net = {.rng = seed};           yours; zeroed but for the seed
 *     dev = crpc_paper_open(&net, &conf)               as many as wanted; they reach each other
 *     ...                                              everything of crpc_rdma.h
 *     crpc_rdma_post(qp, wr, n)                        nothing has moved yet
 *     net.drop = 100;                                  faults, changed at any time between calls
 *     while (crpc_paper_step(&net)) ...                one thing happens, somewhere
 *     crpc_rdma_poll(dev, cqe, n)                      what has happened so far
 *     crpc_rdma_close(dev)                             the last one frees what the fabric has
 *
 * Without a fabric of its own a program names a device "paper" or "paper" and a number:
 * crpc_rdma_open() gives one of a fabric of the process, which carries everything out at each poll
 * (autorun). crpc_rdma_open() without a name never takes a device on paper.
 *
 * A step does one of these:
 *   - it carries out the oldest request of a send queue. Its payload is read only now. Of a WRITE
 *     the bytes appear in increasing address order; whole, or in pieces (tear);
 *   - it acknowledges one request that was carried out: its completion, if it has one, is written
 *     (a datagram needs none: it is over when it has left);
 *   - it takes a datagram out of the network: it arrives, or what the faults make of it.
 * Requests of a queue are carried out and acknowledged in order, completions are polled in the
 * order in which they were written; nothing else is ordered.
 *
 * What is checked: keys (an lkey is no rkey, and one of a region that was deregistered is none),
 * bounds, the limits of the device, and who is connected to whom. An RC queue pair holds requests
 * back until its peer is connected, to it; a DC one writes and reads as soon as the peer exists,
 * immediates wait. A request with an immediate waits while the peer has no receive posted.
 *
 * In virtual time: with net.time set before the first device is opened, there are no steps. Each
 * request takes the time that a card of these properties would need, and what becomes of it happens
 * in the order of time:
 *
 *     struct crpc_paper net = {.rng = seed, .time = &profile};
 *     crpc_paper_name(&net)                            crpc_rdma_open("paper7") is on it too
 *     crpc_paper_on_cqe(dev, wake, host)
 *     for each host, the one whose clock is earliest first:
 *         while (crpc_paper_next(&net) <= host's clock)
 *             crpc_paper_advance(&net, crpc_paper_next(&net));
 *         net.clock_arg = host;                        net.clock() gives its clock now
 *         ... its turn: polls, posts ...
 *
 * Threads: a fabric, its devices and all that came from them belong to one thread.
 *
 * Errors: those of crpc_rdma.h, each logged once. In particular
 *   open:        EINVAL (a port other than 1), ENOMEM
 *   mr_reg:      -ENOMEM (65536 regions)
 *   qp_create, ud_create: EINVAL (inline_max above the device's), ENOSPC (cq_depth; 4096 queues
 *                of a device, 2^22 of a fabric), ENOMEM
 *   qp_connect:  -EPROTO (not an address of this transport), -EISCONN, -EHOSTUNREACH (of another
 *                fabric), -EIO (the queue pair is broken)
 *   ah_create:   EPROTO, EHOSTUNREACH, ENOMEM
 *   completions: -EACCES (key or bounds, here or at the peer), -ECONNRESET (the peer is gone,
 *                broken, connected to another one, or killed), -EINVAL (post got what cannot be
 *                built), -ECANCELED (flushed), and what crpc_paper_fail() was given
 */

#include <sys/queue.h>

#include "crpc_rdma.h"

CRPC_BEGIN_DECLS

/** Chances are given in parts of this. */
#define CRPC_PAPER_CHANCE 10000u

/**
 * The time that a card needs: each stage has a latency (all that pass are on their way together) or
 * an occupancy (one after the other, in the order of arrival). In ps; what is 0 takes no time.
 *
 *     post  mmio, or mmio + fetch; then of each request
 *           queue's server: qp, doorbell, dc_switch    device's server: wqe, cache_miss
 *           read (unless inline), send, port's server: packet, wire      -> propagation
 *     peer  port's server: wire    device's: recv, cache_miss    queue's: recv_queue
 *           completion queue's: recv_cq    write: it is there
 *     then  ack: its completion
 *
 * The device here is the card: crpc_paper_conf.name.
 */
struct crpc_paper_time {
	uint64_t mmio;       /**< Latency of a store of the CPU to the card. */
	uint64_t fetch;      /**< Latency of fetching WQEs that did not come with it. */
	uint64_t qp;         /**< Occupancy of a queue, or initiator of DC, by a request. */
	uint64_t doorbell;   /**< The same by a doorbell. */
	uint64_t wqe;        /**< Occupancy of the device by a request to send. */
	uint64_t dc_switch;  /**< Occupancy of an initiator of DC by another target than before. */
	uint64_t cache;      /**< Queues whose state the device keeps; 0: all. Not a time. */
	uint64_t cache_miss; /**< Occupancy of the device by fetching the state of another. */
	uint64_t read;       /**< Latency of reading memory of the host. */
	uint64_t send;       /**< Latency of all else until the first bit is on the wire. */
	uint64_t packet;     /**< Occupancy of the port by a packet, beside its bytes. */
	uint64_t wire;       /**< Occupancy of the port by 1024 bytes. */
	uint64_t mtu;        /**< Bytes of a packet at most; 0: 4096. Not a time. */
	uint64_t propagation; /**< Latency from port to port. */
	uint64_t recv;       /**< Occupancy of the device by a message that takes a receive. */
	uint64_t recv_queue; /**< Occupancy of its queue by it. */
	uint64_t recv_cq;    /**< Occupancy of the completion queue, one of each open, by it. */
	uint64_t land;       /**< Occupancy of the device by any other that arrives. */
	uint64_t write; /**< Latency until what arrived is seen by the CPU, and its completion. */
	uint64_t ack;   /**< Latency from there to the sender's completion. */
	uint64_t retry; /**< Time after which a request without a receive comes again. */
	uint64_t lost;  /**< Time after which a peer that is gone breaks the queue. */
};

/** A fabric: devices that reach each other. */
struct crpc_paper {
	/* What the owner sets, at any time between two calls. */
	uint64_t rng;    /**< State of the random numbers; any seed. */
	uint64_t now_ns; /**< The fabric's clock. Only delay_ns looks at it. */
	/** Devices of fabrics with different numbers cannot be connected. */
	uint8_t number;
	bool autorun;   /**< Each poll carries everything out first, and in order. */
	bool frozen;    /**< Nothing moves: crpc_paper_step() does nothing. */
	bool hold_acks; /**< Requests are carried out, but not acknowledged. */
	/** A request stays in its send queue at least for a time that is chosen for it from 0 to
	 *  this, by now_ns. */
	uint64_t delay_ns;
	/* Chances, of CRPC_PAPER_CHANCE. Of datagrams: */
	uint32_t drop;
	uint32_t duplicate; /**< It arrives, and stays in the network. */
	uint32_t reorder;   /**< A step takes any of the datagrams, not the oldest one. */
	uint32_t corrupt;   /**< It arrives with another length, 0 to 4096. For bits, see hook. */
	/* Of queues that a step has chosen: */
	uint32_t stall; /**< It does nothing. */
	uint32_t tear;  /**< Of a WRITE, only some of the bytes that are left. */
	uint32_t fail;  /**< It breaks, with -EIO. */
	/* Of requests given to post: */
	uint32_t refuse; /**< Not taken: post is short. */
	/**
	 * Sees, and may change, what is carried out; may be NULL. The payload of a WRITE lies in
	 * the peer's memory already; that of a datagram is on its way, and may be made shorter. The
	 * immediate and byte_len are what the completion of the peer will say.
	 */
	void (*hook)(struct crpc_paper *net, uint8_t *data, uint32_t len, uint32_t *imm,
		uint32_t *byte_len);
	void *hook_arg; /**< The owner's. */
	/** What a card needs, for virtual time; NULL: steps. Fixed while devices are open. */
	const struct crpc_paper_time *time;
	/** Virtual time: the clock of the host that posts, ns, from now_ns on; NULL: now_ns. */
	uint64_t (*clock)(void *clock_arg);
	void *clock_arg; /**< The owner's. */

	/* Datagrams so far, to be read: what arrived, and what the faults did. */
	uint64_t delivered, dropped, duplicated, corrupted;

	/* The driver's. */
	struct crpc_paper_queue **queues; /* By the number in their addresses; NULL: free. */
	struct crpc_paper_queue **active; /* Those with requests that are not acknowledged. */
	TAILQ_HEAD(crpc_paper_packets, crpc_paper_packet) flight; /**< Datagrams, oldest first. */
	LIST_HEAD(crpc_paper_cards, paper_card) cards; /**< In virtual time. */
	struct paper_event *event; /* A heap, the next one first. */
	uint32_t nevents, max_events, last_event;
	uint32_t nqueues, max_queues, free_queue, ndevs, last_key;
	/* What is under way, to be read: queues with requests that are not acknowledged, and
	 * datagrams in the network. */
	uint32_t nactive, nflight;
};

/** What a device is. Zero fields take the default. */
struct crpc_paper_conf {
	/** Default "paper". In virtual time devices of one name are opens of one card, which they
	 *  share as the processes of a host do; without a name each has its own. */
	const char *name;
	uint32_t inline_max;   /**< Default: none. */
	uint32_t mtu;          /**< Largest datagram; default, and at most, 4096. */
	uint32_t cq_depth;     /**< Default 8192. */
	uint32_t dcis;         /**< Virtual time: initiators of DC; default 4. */
};

/**
 * Requests posted since open, and what they met in virtual time; beside them there are
 * crpc_rdma_stats_get()'s counters.
 */
struct crpc_paper_counts {
	uint64_t writes, write_imms, reads;
	uint64_t inlined;
	uint64_t signalled; /**< Whose completion the user asked for. */
	uint64_t post_max;  /**< Most in one post. */
	uint64_t cache_misses, dc_switches, retries;
	uint64_t queues, mr_bytes; /**< That there are now. */
};

/**
 * Open a device.
 *
 * @param net
 *   The fabric. Must stay where it is until its last device is closed.
 * @param conf
 *   Limits of the device.
 * @return
 *   The device, for crpc_rdma.h and crpc_rdma_close(), or NULL with errno ENOMEM.
 */
struct crpc_rdma *crpc_paper_open(struct crpc_paper *net, const struct crpc_paper_conf *conf);

/** The next random number of the fabric, for tests that want one seed for all. */
uint64_t crpc_paper_rnd(struct crpc_paper *net);

/**
 * Do one thing somewhere.
 *
 * @return
 *   False if nothing can move: all is done, or waits for a receive, for a connection, for now_ns,
 *   or for the owner (frozen, hold_acks, a device that was killed).
 */
bool crpc_paper_step(struct crpc_paper *net);

/** Step until nothing can move. With certain faults (stall, duplicate: CRPC_PAPER_CHANCE) never. */
void crpc_paper_run(struct crpc_paper *net);

/**
 * Devices that are opened by name belong to this fabric from now on; NULL: to the process's own.
 * They take conf.dcis and all else from crpc_rdma_open().
 */
void crpc_paper_name(struct crpc_paper *net);

/** In virtual time: when the next thing happens, ns; UINT64_MAX: nothing is under way. */
uint64_t crpc_paper_next(const struct crpc_paper *net);

/** Let happen, in order, all that happens up to this time, which becomes now_ns. */
void crpc_paper_advance(struct crpc_paper *net, uint64_t now_ns);

/**
 * Call a function for each completion of a device, when it is written.
 *
 * @param dev
 *   The device.
 * @param fn
 *   The function; it gets the time and whether a message came, and must not call the fabric.
 *   NULL: none.
 * @param arg
 *   Its own.
 */
void crpc_paper_on_cqe(struct crpc_rdma *dev,
	void (*fn)(void *arg, uint64_t now_ns, bool received), void *arg);

/** Let posts of a device take so many requests from now on; UINT32_MAX: no limit of its own. */
void crpc_paper_post_limit(struct crpc_rdma *dev, uint32_t requests);

/**
 * Break a queue pair, or a datagram queue: it completes with an error; its peers notice when they
 * send.
 *
 * @param dev
 *   The device.
 * @param id
 *   conf.id of the queue; of several the one made first.
 * @param status
 *   -errno of its CRPC_RDMA_CQE_ERROR.
 * @return
 *   0, -ENOENT (no such queue).
 */
int crpc_paper_fail(struct crpc_rdma *dev, uint32_t id, int16_t status);

/** Stop a device, as if its host had died: nothing leaves it, nothing arrives, for good. */
void crpc_paper_kill(struct crpc_rdma *dev);

/**
 * Deliver what no device sent: to a queue pair the announcement of a WRITE WITH IMMEDIATE of so
 * many bytes, which lie there already; to a datagram queue a datagram.
 *
 * @param dev
 *   The device.
 * @param id
 *   As crpc_paper_fail().
 * @param imm
 *   The immediate.
 * @param data
 *   Of a datagram: its payload.
 * @param len
 *   Bytes.
 * @return
 *   0, -ENOENT (no such queue), -EAGAIN (it has no receive posted), -ENOMEM.
 */
int crpc_paper_forge(
	struct crpc_rdma *dev, uint32_t id, uint32_t imm, const void *data, uint32_t len);

/** The counters of a device; valid until it is closed. */
const struct crpc_paper_counts *crpc_paper_counts(const struct crpc_rdma *dev);

CRPC_END_DECLS

#endif
