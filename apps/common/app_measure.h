/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_MEASURE_H
#define APP_MEASURE_H

/**
 * @file
 * Measuring on a machine whose two cores move apart without notice.
 *
 * A figure is the median of short slices. A line ping-pong stands before and after each: below
 * APP_LINE_NEAR_NS the cores are near, else far; a slice between one of each is mixed. What is
 * compared alternates slice by slice, and only slices of one state are compared.
 *
 *     app_trial_begin(&trial)
 *     for each round, for each subject
 *             run a slice; app_series_add(&series[i], &slice)
 *     app_trial_end(&trial, series, n)               which state, and whether it was quiet
 *     app_series_figure(&series[i], trial.state)
 *
 * The court is where two cores play the ping-pong: in memory that both reach, threads of one
 * process or not. Sources: none; the ping-pong is what every such probe does.
 */

#include "app_env.h"
#include "crpc_atomic.h"

/** Stands for "no answer in time" in place of a round trip, ns. */
#define APP_COURT_LATE_NS 100e6

/** Memory of a ping-pong; zero it, or app_court_reset(). */
struct app_court {
	_Atomic uint64_t ball crpc_aligned(CRPC_CACHE_GUARD);
};

/** As before the first game. No game is in progress. */
void app_court_reset(struct app_court *c);

/**
 * Play one game with app_court_pong() on another core; either may come first.
 *
 * @return
 *   Round trip of one line, ns, the median of batches; APP_COURT_LATE_NS if the other side did not
 *   answer in time.
 */
double app_court_ping(struct app_court *c);

/** The other side of app_court_ping(). Returns after the game, or when it took too long. */
void app_court_pong(struct app_court *c);

/**
 * Play one game with a thread on another core, about 1 ms; nothing else of this run works then.
 *
 * @return
 *   As app_court_ping(); 0 if there is no other core: a single core is near to itself.
 */
double app_measure_line_ns(void);

/** Lines of a conveyor, at most; a power of two, as any number of them. */
#define APP_LINES_MAX 16384
/** How long a rate of lines is measured. */
#define APP_LINES_NS 20000000u

/**
 * Lines that one core writes and another one reads, each with a generation in its first word, as a
 * ring of one-line messages moves them. How many are in flight decides from which cache they come.
 */
struct app_lines {
	_Atomic uint64_t end_ns; /**< crpc_clock_ns() at which both sides stop. */
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint64_t freed; /**< Lines read. */
	struct {
		crpc_aligned(CRPC_CACHE_LINE) _Atomic uint64_t generation;
		uint64_t word[CRPC_CACHE_LINE / 8 - 1];
	} line[APP_LINES_MAX];
};

/** Before both sides call app_lines_move(), for @p ns. */
void app_lines_begin(struct app_lines *l, uint64_t ns);

/**
 * One side: write lines to @p to and read those of @p from, either of which may be NULL, with at
 * most @p lines in flight. The other side calls it with the two exchanged. The lines that were read
 * are in `freed` afterwards.
 */
void app_lines_move(struct app_lines *to, struct app_lines *from, uint32_t lines);

/** State of the two cores during a slice. */
enum app_state { APP_STATE_NEAR, APP_STATE_FAR, APP_STATE_MIXED, APP_STATES };

/** "near", "far", "mixed". */
extern const char *const app_state_names[APP_STATES];

/**
 * State between two ping-pongs; mixed also where one got no answer in time, which shows nothing.
 */
enum app_state app_state_of(double before_ns, double after_ns);

/** What one slice gave. */
struct app_slice {
	double value;
	double line_ns[2]; /**< Ping-pong before and after. */
	double ns;         /**< Its length. */
	uint64_t away_ns;  /**< Time that its threads waited for their cores, together. */
};

/** Slices of one subject, in order. */
struct app_series {
	struct app_slice *slice;
	uint32_t n; /**< Set to 0, it forgets the slices and keeps their memory. */
	uint32_t size;
	/** Its threads give their cores away by design: that they were away means nothing. */
	bool sleeps;
};

/** Median and spread. */
struct app_figure {
	double median, min, max;
	uint32_t n; /**< Slices in it; the rest is 0 without any. */
};

/** Append a slice: 0 or -ENOMEM. */
int app_series_add(struct app_series *s, const struct app_slice *slice);

/** Free the memory. */
void app_series_fini(struct app_series *s);

/** The middle of some, which are put in order; 0 if there is none. */
double app_median(double *v, uint32_t n);

/** Median and range of some values, which are put in order; all 0 if there is none. */
struct app_figure app_figure_of(double *v, uint32_t n);

/**
 * The state that the series are compared in: that of which the one with fewest slices has most.
 * Series without any slice do not count.
 *
 * @param count
 *   Filled: slices per state, of all series.
 * @return
 *   The state; APP_STATE_MIXED if no state has a slice of every series.
 */
enum app_state app_series_state(const struct app_series *s, uint32_t n, uint32_t count[APP_STATES]);

/** Median and spread of the slices in a state; APP_STATE_MIXED: of all slices. */
struct app_figure app_series_figure(const struct app_series *s, enum app_state state);

/** The median alone; 0 without any slice. */
double app_series_median(const struct app_series *s, enum app_state state);

/**
 * Median of the quotients a / b of slices that stand beside each other, both in a state, so that
 * what changed from round to round cancels; 0 without any.
 */
double app_series_ratio(
	const struct app_series *a, const struct app_series *b, enum app_state state);

/** Median ping-pong around the slices in a state, ns; APP_STATE_MIXED: of all; 0 without any. */
double app_series_line_ns(const struct app_series *s, enum app_state state);

/** Slices of which something else had a core for more than APP_AWAY_PCT_NOISY of the time. */
uint32_t app_series_disturbed(const struct app_series *s);

/** Series that are measured side by side, and what that allows to say of them. */
struct app_trial {
	struct app_steal before;
	double steal_pct;           /**< Time that the host took. */
	double away_pct;            /**< Time that something else had the cores of the threads. */
	enum app_state state;       /**< What the figures are of. */
	uint32_t count[APP_STATES]; /**< Slices in each. */
	bool noisy;                 /**< No verdict. */
};

/** The slices follow. */
void app_trial_begin(struct app_trial *t);

/**
 * The slices are there: app_series_state() of them, and whether they allow a verdict. Slices of
 * series whose peers sleep by design do not count as disturbed.
 */
void app_trial_end(struct app_trial *t, const struct app_series *s, uint32_t n);

/** Time that the calling thread waited for a core so far. */
uint64_t app_measure_away_ns(void);

#endif
