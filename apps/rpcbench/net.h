/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NET_H
#define NET_H

/**
 * @file
 * Layers net and raw: calls, and single operations, between two ends that each have a device
 * context of their own.
 *
 *     near end: clients                         far end: server
 *     net_group.c opens, connects, measures --> net_far.c: on the same lcore, on the second one,
 *         step() turn by turn in slices             or in another rank; step() turn by turn
 *
 * What is compared is a lane: net_copyrpc.c and net_udrpc.c (net_calls.h is in both), net_raw.c
 * (work requests of lib/rdma), net_verbs.c (what lib/rdma has not). net.c reads options and plans
 * groups, net_out.c prints a group, net_targets.c is the table of what has to be reached.
 *
 * An end belongs to one thread, which opens, connects, steps and closes it.
 */

#include "app_opt.h"
#include "app_out.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "rpb.h"

/** Lanes of a group. */
#define NET_LANES_MAX 12
/** Limits of what a lane is asked for. */
#define NET_ENDPOINTS_MAX 2048
#define NET_DEPTH_MAX     1024
#define NET_SIZE_MAX      16384
/** Bytes of a bulk transfer. */
#define NET_BULK (1u << 20)
/** Bytes of an endpoint's address. */
#define NET_ADDR_LEN CRPC_COPYRPC_ADDR_LEN

/** What is compared; the index into net_ops[]. */
enum net_transport {
	NET_COPYRPC_RC,
	NET_COPYRPC_DC,
	NET_UDRPC,
	NET_TRANSPORTS, /**< Those before are calls of layer net, the rest is layer raw. */
	NET_WRITE_IMM = NET_TRANSPORTS,
	NET_WRITE_IMM_LAT,
	NET_WRITE,
	NET_READ,
	NET_SEND,
	NET_SEND_BF,
	NET_SEND_LAT,
	NET_UD_SEND,
	NET_UD_LAT,
	NET_WRITE_RELAXED,
	NET_READ_RELAXED,
	NET_ALL,
};

/** What a lane's figure is. */
enum net_unit {
	NET_RATE,    /**< Millions per second. */
	NET_LATENCY, /**< ns each: one at a time. */
	NET_BYTES,   /**< GB/s, one at a time. */
};

/** What a lane is; passed to the far end as it is. */
struct net_conf {
	uint32_t transport; /**< enum net_transport. */
	uint32_t index;     /**< Of the lane in its group. */
	uint32_t endpoints;
	uint32_t active; /**< Of those, calling; the first ones. */
	uint32_t depth;  /**< Open calls of each. */
	uint32_t size;   /**< Bytes of a request and of its answer. */
	uint32_t ring_size; /**< copyrpc; 0: as large as the depth needs. */
	uint32_t flush;     /**< enum crpc_copyrpc_flush_policy. */
	uint32_t flow;      /**< enum crpc_copyrpc_flow. */
	uint32_t arrival;   /**< enum crpc_copyrpc_arrival. */
	bool oneway;        /**< Requests without an answer. */
	bool check;         /**< Compare answers. */
};

/** What an end's device did; all since it was opened. */
struct net_ledger {
	uint64_t doorbells;
	uint64_t wqebbs;
	uint64_t cqes;
	uint64_t pcie_bytes; /**< This and the next only where `card`. */
	uint64_t packets;
	uint64_t reads;   /**< RDMA READs for flow control. */
	uint64_t repeated; /**< udrpc: packets. */
	uint64_t batches; /**< Writes that carried messages, */
	uint64_t messages; /**< and these. */
	bool card;
};

struct net_ops;

/** One end of a lane. */
struct net_end {
	struct net_conf conf;
	const struct net_ops *ops;
	bool server;
	void *priv;
	uint64_t open;   /**< Client: without an end yet. */
	uint64_t bad;    /**< Answers that were wrong. */
	bool broken;
	char why[224];   /**< The cause. */
};

/** A kind of lane. */
struct net_ops {
	const char *name;
	enum net_unit unit;
	bool built;
	/** Make the end with its endpoints: 0, or -errno after net_why(). */
	int (*open)(struct net_end *e);
	void (*close)(struct net_end *e);
	void (*addr)(const struct net_end *e, uint32_t endpoint, uint8_t addr[NET_ADDR_LEN]);
	int (*connect)(struct net_end *e, uint32_t endpoint, const uint8_t addr[NET_ADDR_LEN]);
	/**
	 * One turn of the loop. The client makes new calls only if `more`.
	 *
	 * @return
	 *   Client: calls that ended; server: those that it served.
	 */
	uint32_t (*step)(struct net_end *e, uint64_t now_ns, bool more);
	void (*ledger)(const struct net_end *e, struct net_ledger *ledger);
};

/**
 * Choose the device that all ends of this process open.
 *
 * @param name
 *   NULL: the first that fits.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int net_device_choose(const char *name);

/** Its name. */
const char *net_device(void);

/** By enum net_transport. */
extern const struct net_ops *const net_ops[NET_ALL];

/** What the user asked for. */
struct net_opt {
	struct app_list transports;
	struct app_list endpoints;
	struct app_list depths;
	struct app_list sizes;
	struct app_list flushes;
	struct app_list flows;
	struct app_list arrivals;
	uint64_t active;
	uint64_t ring;
	uint64_t slice_ms;
	uint64_t repeat;
	const char *json;
	const char *device;
	unsigned int preset;
	bool oneway;
	bool check;
};

/** Where the far end lives. */
enum net_place {
	NET_SAME,  /**< On the same lcore, in turn with the near one. */
	NET_LCORE, /**< On the second lcore. */
	NET_RANK,  /**< In the other rank. */
};

struct net_link; /**< To the other rank. */

/** The way to the far end. */
struct net_far {
	struct rpb *rpb;
	enum net_place place;
	struct app_court *court;
	struct net_link *link;
	struct net_end *end; /**< Served now; NET_SAME, NET_LCORE. */
	uint32_t index;      /**< Its lane. */
	_Atomic uint32_t ready, stop;
	/* What the second lcore is to do, and has done: net_far.c. */
	void (*work)(struct net_far *far, void *arg);
	void *arg;
	_Atomic uint32_t posted, done;
	uint64_t away_ns; /**< Of the served slice. */
	char why[224];
};

/** Conditions of the whole run. */
struct net_run {
	const struct net_opt *opt;
	const char *layer;
	struct net_far far;
	FILE *json;
	uint32_t failed;
};

/** A lane in a group. */
struct net_lane {
	struct net_conf conf;
	const struct net_ops *ops;
	struct net_end *end; /**< Near; NULL: not open. */
	struct app_series value;
	struct net_ledger near_at, far_at; /**< Since the devices were opened. */
	struct net_ledger near, far; /**< Of the slices, from rest to rest, together, */
	uint64_t calls;              /**< which had so many calls. */
};

/** Lanes that are interleaved, and so compared. */
struct net_group {
	struct net_run *run;
	struct net_lane lane[NET_LANES_MAX];
	uint32_t n;
	struct app_trial trial;
};

/* ---- net_group.c ---- */

/** Add a lane: false if this build lacks it, which is said once. */
bool net_group_add(struct net_group *g, const struct net_conf *conf);
/** Open, measure in slices, close. Lanes that fail are reported and left out. 0 or -EIO. */
int net_group_measure(struct net_group *g);
void net_group_fini(struct net_group *g);
/** Median and spread in the group's state. */
void net_lane_figure(const struct net_group *g, const struct net_lane *l, struct app_figure *f);

/* ---- net_far.c ---- */

/** 0 or an exit code, after a line. */
int net_far_open(struct net_far *far, struct rpb *rpb);
void net_far_close(struct net_far *far);
/** The other rank's whole life: serve what rank 0 asks for. An exit code. */
int net_far_serve(struct rpb *rpb);
/** Open or close a lane's far end; 0 or -errno, with far->why. */
int net_far_end_open(struct net_far *far, const struct net_conf *conf);
void net_far_end_close(struct net_far *far, uint32_t index);
/** Exchange the addresses of one endpoint, connect the far one. */
int net_far_connect(struct net_far *far, uint32_t index, uint32_t endpoint,
	const uint8_t ours[NET_ADDR_LEN], uint8_t theirs[NET_ADDR_LEN]);
/** The far end steps from now on; waits until it does. */
int net_far_start(struct net_far *far, uint32_t index);
/** It stops; waits until it has. Gives what its device did so far. */
int net_far_stop(struct net_far *far, struct net_ledger *ledger);
/** Ping-pong between the two lcores, ns; 0 where there is none between them. */
double net_far_line_ns(struct net_far *far);

/** NET_SAME: the far end's turn. */
static inline void
net_far_turn(struct net_far *far, uint64_t now_ns)
{
	if (far->place == NET_SAME)
		far->end->ops->step(far->end, now_ns, true);
}

/* ---- net_end.c ---- */

/** Make an end; NULL with *why. */
struct net_end *net_end_open(const struct net_conf *conf, bool server, char *why, size_t len);
void net_end_close(struct net_end *e);
/** Say why an operation of a lane fails. */
void net_why(struct net_end *e, const char *fmt, ...) crpc_printf(2, 3);
/** The same, while it was measured. */
void net_break(struct net_end *e, const char *fmt, ...) crpc_printf(2, 3);
/** What a device of lib/rdma did. */
void net_ledger_of(const struct crpc_rdma *dev, struct net_ledger *ledger);
/** Add b - a to sum. */
void net_ledger_add(
	struct net_ledger *sum, const struct net_ledger *a, const struct net_ledger *b);

/* ---- net_copyrpc.c ---- */

/** The part of the first endpoint's request ring at the far end that is in use. */
double net_copyrpc_ring_part(const struct net_end *e);

/* ---- net_out.c ---- */

/** "rc", "8 x 256": what distinguishes a lane from others. */
void net_out_case(const struct net_conf *c, char *buf, size_t len);
void net_out_limits(struct net_run *run);
/** A table, and lines of JSON: 0 or -EIO. */
int net_out_group(const struct net_group *g);

/* ---- net_targets.c ---- */

int net_targets(struct net_run *run);

#endif
