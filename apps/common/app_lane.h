/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LANE_H
#define APP_LANE_H

/**
 * @file
 * Lanes: ways between the two sides of a party, opened side by side and measured slice by slice in
 * turn, with a line ping-pong before and after each slice.
 *
 *     side 0                                                side 1
 *     open, meet           <-- addresses, outcomes -->      open, meet
 *     start, barrier       <------------------------->      start, barrier
 *     turn, turn, ...                                       turn, turn, ...
 *     over, or failed      <------------------------->      over, or failed
 *     turn, until both are over
 *     report               <------------------------->      report
 *
 * A lane is of a way, which is what is compared (open, meet, close), and of a kind, which is how it
 * is measured (all else). A kind of lane begins with struct app_lane, and its reports with struct
 * app_report. A lane that fails is reported, with the first cause that either side had, and left
 * out.
 */

#include "app_opt.h"
#include "app_party.h"
#include "app_perf.h"

/** Lanes of a group at most. */
#define APP_LANES_MAX 24
/** Series of a lane at most. */
#define APP_SERIES_MAX 8

/** What a side saw of a slice. */
struct app_report {
	uint64_t ns, away_ns; /**< Of all of it, unless its turns have set them. */
	uint32_t stop; /**< It was interrupted. */
};

/** What the other side needs to find this one. */
struct app_addr {
	uint32_t len;
	uint8_t *bytes; /**< Of addr_max bytes. */
};

struct app_group;
struct app_lane;

/** What a lane is of, and what its way needs to know of it: each program defines its own. */
struct app_case;

/** A function of a way for each side; it runs where that side is. */
typedef int (*app_way_fn)(struct app_lane *l, int side);

/** A way to carry calls or messages. */
struct app_way {
	const char *name;
	const char *package; /**< Debian packages that it needs; NULL: none. */
	bool built;
	bool sleeps; /**< It waits in the kernel, so its threads lose their cores all the time. */
	/** Its library aborts where a side cannot have so many files, and MiB; 0: it does not. */
	uint32_t files, mib;
	app_way_fn open[APP_SIDES]; /**< May be NULL. */
	/** Both are open, and l->addr[!side] is the peer's. May be NULL. */
	app_way_fn meet[APP_SIDES];
	/** Not of a side without state. */
	void (*close[APP_SIDES])(struct app_lane *l, int side);
};

/** One that is built; one, two: the functions of either side. */
#define APP_WAY_SIDES(text, open_one, open_two, meet_one, meet_two, close_one, close_two, ...)     \
	{                                                                                          \
		.name = text, .built = true, .open = {open_one, open_two},                         \
		.meet = {meet_one, meet_two}, .close = {close_one, close_two}, __VA_ARGS__         \
	}
/** One whose sides are alike. */
#define APP_WAY(text, open, meet, close, ...)                                                      \
	APP_WAY_SIDES(text, open, open, meet, meet, close, close, __VA_ARGS__)

/** How lanes of a kind are measured. */
struct app_lane_ops {
	/** Begin a slice. May be NULL. */
	int (*start)(struct app_lane *l, int side);
	/** Go on: 0, 1 (this side's part is done; it may be called again), -errno. */
	int (*turn)(struct app_lane *l, int side);
	/** The slice is over: complete l->report[side]. May be NULL. */
	void (*report)(struct app_lane *l, int side);
	/** The lane is open: what comes before the slices that count; 0 or -errno. May be NULL. */
	int (*begin)(struct app_lane *l);
	/** A slice that counts: 0 or -errno. NULL: app_lane_slice(). */
	int (*slice)(struct app_lane *l);
	/**
	 * What it gave: app_lane_keep(). False: something else had a core all the time and it gave
	 * nothing, so it is repeated.
	 */
	bool (*keep)(struct app_lane *l);
	/** Slices of a round that do not count; 0 or -errno. May be NULL. */
	int (*more)(struct app_lane *l);
	/** Add to the row of a lane what it is, and its figures. NULL: it has no row. */
	void (*row)(const struct app_group *g, const struct app_lane *l, json_t *row);
};

/** One lane. What the caller sets comes first. */
struct app_lane {
	struct app_case *c;
	struct app_report *report[APP_SIDES]; /**< report_len bytes each. */
	size_t report_len;
	uint32_t addr_max;
	uint32_t files, mib; /**< As of its way, of which they are. */
	bool whole;          /**< A turn does all: none follows the one that gave 1. */
	bool counts;         /**< The CPU counts what the sides' turns do. */
	bool brief;          /**< Open for a round only: there is no memory for all at once. */
	char name[32];       /**< Of the way, in results. */
	char text[128];      /**< Which lane, and which case. */
	/** What its slices gave; the first one decides what is compared. */
	struct app_series series[APP_SERIES_MAX];
	const struct app_way *way;
	const struct app_lane_ops *ops;
	struct app_party *party;
	struct app_addr addr[APP_SIDES];
	void *state[APP_SIDES];
	bool open, ready; /**< `ready`: takes part in the rounds. */
	_Atomic uint32_t failed;
	char why[256];                                   /**< The first cause. */
	uint64_t begin_ns[APP_SIDES], end_ns[APP_SIDES]; /**< Of the last slice. */
	double line_ns[2];                               /**< Ping-pong before and after it. */
	uint64_t counter[APP_SIDES][APP_COUNTERS]; /**< Of this process's sides, all slices. */
};

/** Lanes that are measured in turn, and so compared. What the caller sets comes first. */
struct app_group {
	struct app_party *party;
	const struct app_lane_ops *ops;
	uint64_t rounds;
	const char *what;     /**< Of the progress line. */
	struct app_lane *lane[APP_LANES_MAX];
	uint32_t n;
	struct app_trial trial;
};

/** Keep the cause, unless there is one already. Returns rc. */
int app_lane_fail(struct app_lane *l, int rc, const char *fmt, ...) crpc_printf(3, 4);

/** Zeroed memory for l->state[side]; NULL after app_lane_fail(). */
void *app_lane_state(struct app_lane *l, int side, size_t size);

/** Both sides go on, or neither: the first error of both, with its cause. Alone: rc. */
int app_lane_agree(struct app_lane *l, int rc);

/** One slice by both sides, with their reports: 0 or -errno. */
int app_lane_slice(struct app_lane *l);

/** Time that the last slice took from the first begin to the last end, ns. */
double app_lane_ns(const struct app_lane *l);

/** Append the last slice, of that length and with that value, to a series of the lane. */
void app_lane_keep(struct app_lane *l, uint32_t series, double value, double ns);

/**
 * Add a lane.
 *
 * @param size
 *   Bytes of its kind of lane.
 * @return
 *   NULL: this build lacks the way, which is reported once; or there is no room or no memory.
 */
struct app_lane *app_group_add(struct app_group *g, const struct app_way *way, size_t size);

/** Open all lanes, measure all rounds, close. Those that fail are reported and left out. */
void app_group_measure(struct app_group *g);

/** Measure, then print and append a row for each lane that has figures: 0 or -EIO. */
int app_group_run(struct app_group *g);

/** Free the lanes. */
void app_group_fini(struct app_group *g);

/**
 * Refuse ways that were chosen and are not in this build; without a choice take all that are.
 *
 * @param list
 *   Indexes of ways.
 * @return
 *   0, or APP_EXIT_USAGE after a line.
 */
int app_ways_choose(struct app_list *list, const struct app_way *const *ways, uint32_t n);

/** Names of n ways for an option, behind the last one NULL. */
void app_ways_names(const char **names, const struct app_way *const *ways, uint32_t n);

/** The end of a help: which ways are not in this build. */
void app_ways_help(const struct app_way *const *ways, uint32_t n, FILE *out);

#endif
