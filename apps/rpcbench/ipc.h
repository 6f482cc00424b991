/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_H
#define IPC_H

/**
 * @file
 * Layer ipc: ipc.c reads options and plans groups, group.c measures one, ipc_out.c prints it,
 * targets.c is the table of what has to be reached.
 */

#include "app_opt.h"
#include "app_out.h"
#include "app_perf.h"
#include "lane.h"
#include "rpb.h"

/** What the user asked for. */
struct ipc_opt {
	struct app_list transports;
	struct app_list modes;
	struct app_list clients;
	struct app_list depths;
	struct app_list sizes;
	uint64_t burst;
	uint64_t connected; /**< 0: not asked for. */
	uint64_t active;
	double seconds; /**< 0: one slice. */
	uint64_t slice_ms;
	uint64_t repeat;
	const char *json;
	unsigned int preset;
	bool check;
	bool percentiles;
	bool counters;
};

/** Conditions of the whole run. */
struct ipc_run {
	const struct ipc_opt *opt;
	struct rpb *rpb;
	FILE *json;
	double line_ns; /**< At the begin. */
	double line_rate;
	uint32_t lanes; /**< Opened so far: for their names. */
	uint32_t failed; /**< Lanes that could not be measured, or answered wrongly. */
};

/** A lane in a group. */
struct ipc_lane {
	struct lane_conf conf;
	const struct lane_ops *ops;
	struct lane_client *client; /**< NULL: not open. */
	struct app_series value;    /**< ns in LANE_SYNC, else Mops/s. */
	struct app_series cost;     /**< The server's ns per call, where it counts them. */
	struct app_series empty;    /**< The server's ns per poll that finds nothing. */
	struct crpc_hist *hist;     /**< --percentiles: ticks of each call, by APP_STATES. */
	uint64_t counter[APP_COUNTERS]; /**< --counters: of the client's lcore. */
	uint64_t counted;               /**< Calls meanwhile. */
};

/** Lanes that are interleaved, and so compared. */
struct ipc_group {
	struct ipc_run *run;
	struct ipc_lane lane[LANE_MAX];
	uint32_t n;
	bool clocked; /**< The server counts its turns. */
	struct app_trial trial;
};

/* ---- group.c ---- */

/** Add a lane unless this build lacks it, which is said once: true if it was added. */
bool ipc_group_add(struct ipc_group *g, const struct lane_conf *conf);

/** Open, measure in slices, close. Lanes that fail are reported and left out. 0, or -EIO. */
int ipc_group_measure(struct ipc_group *g);

/** Free what the figures took. */
void ipc_group_fini(struct ipc_group *g);

/** Percentiles of the calls in the group's state: false if there are none. */
bool ipc_lane_hist(const struct ipc_group *g, const struct ipc_lane *l, struct crpc_hist *hist);

/** Median and spread in the group's state. */
void ipc_lane_figure(
	const struct ipc_group *g, const struct app_series *s, struct app_figure *figure);

/* ---- ipc_out.c ---- */

/** The machine, before all else. */
void ipc_out_limits(const struct ipc_run *run);

/** A table, and lines of JSON: 0 or -EIO. */
int ipc_out_group(const struct ipc_group *g);

/** "1 client", "8 of 1024 clients". */
void ipc_out_clients(const struct lane_conf *c, char *buf, size_t len);

/* ---- targets.c ---- */

/** Measure the table of targets and print a verdict per line: 0 or -EIO. */
int ipc_targets(struct ipc_run *run);

#endif
