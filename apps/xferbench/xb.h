/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XB_H
#define XB_H

/**
 * @file
 * xferbench: how fast large messages move, and what bounds them.
 *
 *     xferbench [EAL arguments --] [options]
 *
 *     main.c      the EAL, the two lcores, signals
 *     options.c   what is measured: every combination of the lists is a case
 *     team.c      two lcores side by side, or one that plays both ends
 *     lane*.c     what moves messages: lib/bulk, memcpy, UCX, ZeroMQ
 *     group.c     lanes that are compared, slice by slice in turn
 *     targets.c   what has to be reached; tune.c: which chunk and window are best, and why
 *     out.c       a table for people, a line of JSON for each figure
 *
 * A lane has two sides; each belongs to one lcore. A slice moves a fixed number of messages, so
 * both sides know when it is over. With one lcore the sides take turns on it.
 */

#include <stdio.h>

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
enum xb_transport { XB_BULK, XB_MEMCPY, XB_MEMCPY_TWO, XB_UCX, XB_ZMQ, XB_TRANSPORTS };
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
};

/** Buffers of a side: depth messages of size bytes each. */
struct xb_mem {
	uint8_t *send, *recv;
};

/** The command line. */
struct xb_opt {
	struct app_list sizes, chunks, windows, rails, engines, paths, directions, transports;
	uint64_t depth, repeat, slice_ms;
	bool verify, tune, help;
	unsigned int preset;
	const char *json, *ucx_tls, *dma, *gpu, *device;
};

enum xb_preset { XB_NONE, XB_TARGETS };

/* ---- team.c ---- */

/** The lcores. */
struct xb_team {
	unsigned int second; /**< Lcore, or UINT_MAX: there is one. */
	struct app_court court;
	double line_ns; /**< Of the last game. */
	_Atomic uint32_t arrived, phase;
};

/** What one side does: 0 or -errno. */
typedef int (*xb_side_fn)(void *arg, int side);

/** True with two lcores. */
bool xb_team_two(const struct xb_team *t);
/**
 * Run fn for both sides: on two lcores at once, or one after the other. The first error of both.
 */
int xb_team_both(struct xb_team *t, xb_side_fn fn, void *arg);
/** Wait for the other lcore, which does the same. */
void xb_team_barrier(struct xb_team *t);
/** Round trip of a line between the lcores, ns; 0 with one lcore. */
double xb_team_line_ns(struct xb_team *t);

/* ---- lanes ---- */

struct xb_lane;

/** A transport. Functions with a side run on that side's lcore. */
struct xb_lane_ops {
	const char *package; /**< That it needs. */
	bool built;
	bool sleeps; /**< It gives its core away. */
	/** Make both ends' shared parts; before anything else, on the first lcore. May be NULL. */
	int (*make)(struct xb_lane *l);
	int (*open)(struct xb_lane *l, int side);
	/** Both are open. May be NULL. */
	int (*meet)(struct xb_lane *l, int side);
	/** Begin a slice: l->messages each way. */
	int (*start)(struct xb_lane *l, int side);
	/** Go on: 0, 1 (this side's part is done; it may be called again), -errno. */
	int (*turn)(struct xb_lane *l, int side);
	void (*close)(struct xb_lane *l, int side);
	void (*unmake)(struct xb_lane *l); /**< May be NULL. */
};

/** Sums over slices, of both sides. */
struct xb_counts {
	uint64_t chunks, blocked_window, blocked_slots, blocked_queue, occupancy;
	double stage_us[XB_STAGES]; /**< Mean per chunk; below 0: there is no such stage. */
};

/** One lane of a group. */
struct xb_lane {
	struct xb_point point;
	const struct xb_lane_ops *ops;
	const struct xb_opt *opt;
	struct xb_team *team;
	const struct xb_mem *mem; /**< One per side. */
	char name[32];            /**< Of the transport, as results call it. */
	void *state[XB_SIDES], *shared;
	char why[256]; /**< What went wrong; the first cause. */
	bool open;
	/* a slice */
	uint64_t messages;
	bool prove; /**< What arrives must be in its place in recv, even if that costs a copy. */
	uint64_t begin_ns[XB_SIDES], end_ns[XB_SIDES], away_ns[XB_SIDES];
	_Atomic uint32_t over[XB_SIDES], failed;
	/* results */
	struct app_series rate; /**< GB/s, both directions together. */
	struct app_series stage[XB_STAGES];
	struct xb_counts counts;
	uint64_t memory; /**< Beyond the user's buffers, of the side that has most. */
	const char *engine;
};

extern const struct xb_lane_ops *const xb_lane_ops[XB_TRANSPORTS];

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
/** Counters of the slice that ended, of lib/bulk: into the series of stages. */
void xb_bulk_stats(struct xb_lane *l, double stage_us[XB_STAGES]);
/** Forget what was counted. */
void xb_bulk_stats_reset(struct xb_lane *l);

/* ---- group.c ---- */

/** What a run has. */
struct xb_run {
	const struct xb_opt *opt;
	struct xb_team *team;
	struct xb_mem mem[XB_SIDES];
	uint64_t mem_len; /**< Of each of the four. */
	FILE *json;
	const char *lcores;
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
/** True after SIGINT or SIGTERM. */
bool xb_interrupted(void);

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

/* ---- targets.c, tune.c ---- */

int xb_targets(struct xb_run *run);
int xb_tune(struct xb_run *run);

/* ---- options.c ---- */

/** 0, or an exit code after one line. */
int xb_options_parse(struct xb_opt *o, int argc, char **argv);
void xb_options_help(void);
/** Bytes that the largest case needs in each buffer. */
uint64_t xb_options_memory(const struct xb_opt *o);
/** The default case. */
struct xb_point xb_options_point(const struct xb_opt *o);

#endif
