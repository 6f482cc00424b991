/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XB_H
#define XB_H

/**
 * @file
 * xferbench: how fast large messages move, and what bounds them.
 *
 *     xferbench [EAL arguments --] [options]
 *
 *     main.c      the EAL, the two lcores or ranks, signals
 *     options.c   what is measured: every combination of the lists is a case
 *     team.c      two lcores side by side, one that plays both ends, or two ranks
 *     link.c      what two ranks exchange; court.c: where those of one host play
 *     lane*.c     what moves messages: lib/bulk, memcpy, UCX, ZeroMQ; arrays: lib/tensor_bulk,
 *                 msgpack
 *     group.c     lanes that are compared, slice by slice in turn
 *     targets.c   what has to be reached; tune.c: which chunk and window are best, and why;
 *                 arrays.c: what arrays with operations cost beside their bytes alone
 *     out.c       a table for people, a line of JSON for each figure
 *
 * A lane has two sides; each belongs to one lcore. A slice moves a fixed number of messages, so
 * both sides know when it is over. With one lcore the sides take turns on it.
 *
 * Two ranks run the same program with the same options, each its side of the same slices. After
 * each they exchange what they saw, and decide everything by what both know, which is the
 * same at both. So only rank 0 prints results.
 *
 *     rank 0: side 0                                    rank 1: side 1
 *     open, meet         <-- addresses, outcomes -->    open, meet
 *     barrier            <------------------------->    barrier
 *     slice, linger      <-- over, or why not ----->    slice, linger
 *     xb_report          <------------------------->    xb_report
 */

#include <stdio.h>

#include "app_boot.h"
#include "app_opt.h"
#include "app_out.h"
#include "crpc_atomic.h"
#include "crpc_util.h"

#define XB_SIDES     2
#define XB_LANES_MAX 24
#define XB_DEPTH_MAX 16
/** Memory of all buffers at most. */
#define XB_MEMORY_MAX (UINT64_C(8) << 30)

enum xb_path { XB_EAGER, XB_WRITE, XB_READ, XB_PATHS };
enum xb_engine { XB_CPU, XB_DMADEV, XB_GPUDEV, XB_ENGINES };
enum xb_transport {
	XB_BULK,
	XB_MEMCPY,
	XB_MEMCPY_TWO,
	XB_UCX,
	XB_ZMQ,
	XB_PLAIN, /**< Those before move bytes, the others arrays with operations on them. */
	XB_TENSOR = XB_PLAIN,
	XB_TENSOR_BF16,
	XB_MSGPACK,
	XB_TRANSPORTS,
};
enum xb_stage { XB_POST, XB_WIRE, XB_UNPACK, XB_CONSUME, XB_STAGES };

extern const char *const xb_path_names[XB_PATHS + 1];
extern const char *const xb_engine_names[XB_ENGINES + 1];
extern const char *const xb_transport_names[XB_TRANSPORTS + 1];
extern const char *const xb_stage_names[XB_STAGES];

/** One case of one transport. */
struct xb_point {
	enum xb_transport transport;
	enum xb_path path;
	enum xb_engine engine;
	uint64_t size;
	uint32_t chunk, window, rails;
	uint32_t depth; /**< Messages open at a time in one direction. */
	bool both;      /**< Both directions at once. */
	uint32_t ops;   /**< Arrays: operations on each. */
	bool separate;  /**< Each but the first is a request of its own, after the one before. */
};

/** Buffers of a side: depth messages of size bytes each. */
struct xb_mem {
	uint8_t *send, *recv;
};

/** The command line. */
struct xb_opt {
	struct app_list sizes, chunks, windows, rails, engines, paths, directions, transports;
	uint64_t depth, repeat, slice_ms, ops;
	bool verify, tune;
	unsigned int preset;
	const char *json, *ucx_tls, *dma, *gpu, *device;
};

enum xb_preset { XB_NONE, XB_TARGETS, XB_ARRAYS };

/* ---- team.c ---- */

struct xb_link;
struct crpc_shm;

/** The lcores, or the ranks. */
struct xb_team {
	unsigned int second; /**< Lcore, or UINT_MAX: there is one. */
	struct app_court court; /**< Of two lcores. */
	double line_ns; /**< Of the last game. */
	_Atomic uint32_t arrived, phase;
	/* Two ranks: */
	struct xb_link *link; /**< To the peer; NULL: there is none. */
	int side;             /**< Ours. */
	bool shared;          /**< The other rank is on our core, too. */
	bool one_host;
	struct crpc_shm *segment; /**< With the ranks' court; NULL: they do not play. */
	bool stop;            /**< Either has been interrupted, or the other is lost: both know. */
};

/** What one side does: 0 or -errno. */
typedef int (*xb_side_fn)(void *arg, int side);

/** True if the sides run side by side: on two lcores, or in two ranks. */
bool xb_team_two(const struct xb_team *t);
/** True if this process plays the side. */
static inline bool
xb_team_plays(const struct xb_team *t, int side)
{
	return t->link == NULL || t->side == side;
}
/**
 * Run fn for both sides: on two lcores at once, one after the other, or for ours alone. The first
 * error of those here.
 */
int xb_team_both(struct xb_team *t, xb_side_fn fn, void *arg);
/** Wait for the other lcore or rank, which does the same: 0, or -errno. */
int xb_team_barrier(struct xb_team *t);
/**
 * Two ranks: exchange len bytes with the peer; both do it, in the same order.
 *
 * @return
 *   0, or -errno: the other rank is lost, which ends the run.
 */
int xb_team_swap(struct xb_team *t, const void *mine, void *theirs, size_t len);
/** The link failed with rc: say so, end the run. Returns rc. */
int xb_team_lost(struct xb_team *t, int rc);
/** The larger of both ranks' numbers; alone its own. */
double xb_team_max(struct xb_team *t, double mine);
/** Whether there is a ping-pong. */
bool xb_team_plays_line(const struct xb_team *t);
/** Round trip of a line between the lcores, or ranks of one host, ns; 0 with one lcore. */
double xb_team_line_ns(struct xb_team *t);

/* ---- link.c ---- */

/** Bytes that ranks swap at most. */
#define XB_SWAP_MAX 8192

/** Connect to the other rank; 0, or an exit code after a line that is held for app_boot_agree(). */
int xb_link_open(struct xb_team *t, struct app_boot *boot, const char *device);
void xb_link_close(struct xb_team *t);
/** Make the court of two ranks of one host, or none. */
void xb_court_open(struct xb_team *t);
void xb_court_close(struct xb_team *t);
/** The ranks' ping-pong, the same for both; 0 without a court. */
double xb_court_line_ns(struct xb_team *t);
/** Begin to give len bytes: 0, or -errno. */
int xb_link_tell(struct xb_link *k, const void *mine, size_t len);
/** Drive it. What the other rank gave, if that is here, else NULL; *rc is set if it is lost. */
const void *xb_link_poll(struct xb_link *k, int *rc);
/** Take what was given: 0, -EAGAIN (go on polling), -errno. */
int xb_link_take(struct xb_link *k, void *theirs, size_t len);
/** Rate of the device's port, GB/s; 0: unknown. */
double xb_link_line(const struct xb_link *k);
/** Between polls that find nothing. */
void xb_link_idle(struct xb_link *k);

/* ---- lanes ---- */

struct xb_lane;

/** Bytes of an address at most. */
#define XB_ADDR_MAX 4096

/** What the other side needs to find this one. */
struct xb_addr {
	uint32_t len;
	uint8_t bytes[XB_ADDR_MAX];
};

/** Times of a stage. */
struct xb_sum {
	uint64_t n, ns;
};

/** What a side has seen in a slice. */
struct xb_report {
	int32_t rc;
	uint32_t stop; /**< It was interrupted. */
	uint64_t ns, away_ns;
	struct xb_sum stage[XB_STAGES];
	uint64_t chunks, blocked_window, blocked_slots, blocked_queue, occupancy;
	uint64_t memory; /**< Beyond the user's buffers. */
	char engine[16];
	char why[256];
};

/** A transport. Functions with a side run on that side's lcore. */
struct xb_lane_ops {
	const char *package; /**< That it needs. */
	bool built;
	bool sleeps; /**< It gives its core away. */
	/** Its library aborts where a side cannot have that many files, and MiB; 0: it does not. */
	uint32_t files, mib;
	/** Sets l->addr[side], if there is a meet(). */
	int (*open)(struct xb_lane *l, int side);
	/** Both are open, and l->addr[!side] is the other's. May be NULL. */
	int (*meet)(struct xb_lane *l, int side);
	/** Begin a slice: l->messages each way. */
	int (*start)(struct xb_lane *l, int side);
	/** Go on: 0, 1 (this side's part is done; it may be called again), -errno. */
	int (*turn)(struct xb_lane *l, int side);
	/**
	 * A message as it was sent is at p: make it what has to be there. NULL: it is that.
	 */
	void (*expect)(const struct xb_lane *l, uint8_t *p);
	/** Counters since the last call go to l->report[side]. May be NULL. */
	void (*report)(struct xb_lane *l, int side);
	void (*close)(struct xb_lane *l, int side);
};

/** Sums over slices, of both sides. */
struct xb_counts {
	uint64_t chunks, blocked_window, blocked_slots, blocked_queue, occupancy;
};

/** One lane of a group. */
struct xb_lane {
	struct xb_point point;
	const struct xb_lane_ops *ops;
	const struct xb_opt *opt;
	struct xb_team *team;
	const struct xb_mem *mem; /**< One per side. */
	char name[32];            /**< Of the transport, as results call it. */
	void *state[XB_SIDES];
	struct xb_addr addr[XB_SIDES];
	char why[256]; /**< What went wrong; the first cause. */
	bool open;
	/* a slice */
	uint64_t messages;
	bool prove; /**< What arrives must be in its place in recv, even if that costs a copy. */
	uint64_t begin_ns[XB_SIDES], end_ns[XB_SIDES];
	struct xb_report report[XB_SIDES];
	_Atomic uint32_t over[XB_SIDES], failed;
	/* results */
	struct app_series rate; /**< GB/s, both directions together. */
	struct app_series each; /**< us per message of one direction: with one open, its latency. */
	struct app_series stage[XB_STAGES];
	struct xb_counts counts;
	uint64_t memory; /**< Beyond the user's buffers, of the side that has most. */
	char engine[16]; /**< Of the receiving side. */
};

extern const struct xb_lane_ops *const xb_lane_ops[XB_TRANSPORTS];

/** Chunks that a sender has under way at most; the other slots of the receiver are for what is
 *  consumed but not reported yet. */
static inline uint32_t
xb_tx_chunks(const struct xb_point *p)
{
	return crpc_max(p->window * 3 / 4, 1u);
}

/** Keep why, unless there is a cause already. Returns rc. */
int xb_lane_fail(struct xb_lane *l, int rc, const char *fmt, ...) crpc_printf(3, 4);
/** What a side sends and receives in a slice. */
static inline uint64_t
xb_sends(const struct xb_lane *l, int side)
{
	return side == 0 || l->point.both ? l->messages : 0;
}
static inline uint64_t
xb_recvs(const struct xb_lane *l, int side)
{
	return side == 1 || l->point.both ? l->messages : 0;
}
/** Elements that an operation on an array fills: operation i those from i * XB_OP_ELEMS on. */
#define XB_OP_ELEMS 32
/** Operations on a message at most. */
#define XB_OPS_MAX 8
static inline double
xb_op_value(uint32_t i)
{
	return (double)i + 1.5;
}
/** What the operations make of a message. */
void xb_ops_expect(const struct xb_lane *l, uint8_t *p);
/** A copy by the CPU alone. */
static inline bool
xb_copies(enum xb_transport t)
{
	return t == XB_MEMCPY || t == XB_MEMCPY_TWO;
}
/** The place of a message. */
static inline uint8_t *
xb_place(const struct xb_lane *l, uint8_t *mem, uint64_t message)
{
	return mem + message % l->point.depth * l->point.size;
}
/* ---- group.c ---- */

/** What a run has. */
struct xb_run {
	const struct xb_opt *opt;
	struct xb_team *team;
	struct xb_mem mem[XB_SIDES];
	uint64_t mem_len; /**< Of each of the four. */
	FILE *json;
	const char *lcores;
	/** Two ranks on two hosts: rate of the device's port, GB/s; 0: unknown. */
	double line_gbps;
	uint32_t failed;
};

struct xb_group {
	struct xb_run *run;
	struct xb_lane lane[XB_LANES_MAX];
	uint32_t n;
	struct app_trial trial;
};

/** Add a lane; says so if its transport is not built. */
bool xb_group_add(struct xb_group *g, const struct xb_point *p);
/** Measure all lanes; 0, or -errno if nothing can be measured. Lanes that fail are left out. */
int xb_group_measure(struct xb_group *g);
void xb_group_fini(struct xb_group *g);
/** Median and spread of a series in the group's state. */
void xb_figure(const struct xb_group *g, const struct app_series *s, struct app_figure *f);
/** Median of the ratios of slices that stand beside each other, in the group's state; 0: none. */
double xb_ratio(const struct xb_group *g, const struct app_series *a, const struct app_series *b);
/** The first lane of a transport, with figures; or NULL. */
const struct xb_lane *xb_group_find(const struct xb_group *g, enum xb_transport t);
/** A pattern that depends on where and which message. */
void xb_fill(uint8_t *p, uint64_t len, uint64_t seed);
/** 0, or the place of the first byte that differs, plus 1. */
uint64_t xb_compare(const uint8_t *p, uint64_t len, uint64_t seed);
/** True after SIGINT or SIGTERM; of two ranks: of either, as soon as both know. */
bool xb_interrupted(void);
/** True after a signal to this process. */
bool xb_signaled(void);

/* ---- out.c ---- */

/** Which stage bounds a lane of lib/bulk, in words. */
const char *xb_bound(const struct xb_lane *l, char *buf, size_t len);
/** Print a group and append its lines of JSON: 0, or -EIO. */
int xb_out_group(const struct xb_group *g);
void xb_out_head(const struct xb_run *run);
/** A figure against its bound, as a line and one of JSON. */
int xb_out_target(const struct xb_group *g, const struct app_target *t);
/** A line of JSON for what the tuner chose: a "chunk" or a "window", that of a lane. */
int xb_out_tuned(
	const struct xb_group *g, const char *name, const struct xb_lane *l, const char *why);

/* ---- targets.c, tune.c, arrays.c ---- */

int xb_targets(struct xb_run *run);
int xb_tune(struct xb_run *run);
int xb_arrays(struct xb_run *run);

/* ---- options.c ---- */

/** 0, or an exit code after one line. */
int xb_options_parse(struct xb_opt *o, int argc, char **argv);
void xb_options_help(int argc, char *const *argv);
/** Bytes that the largest case needs in each buffer. */
uint64_t xb_options_memory(const struct xb_opt *o);
/** The default case. */
struct xb_point xb_options_point(const struct xb_opt *o);

#endif
