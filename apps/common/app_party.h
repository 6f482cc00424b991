/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_PARTY_H
#define APP_PARTY_H

/**
 * @file
 * The two sides of a measurement: where each runs, and how they stay in step.
 *
 *     one lcore    this process runs both sides, in turn
 *     lcores       side 0 is the calling thread, side 1 the second lcore
 *     processes    side 0 is this process, side 1 a second one of it
 *     ranks        side 0 is rank 0, side 1 is rank 1, on this host or on another one
 *
 * Two processes or ranks run the same program with the same options, each its side of the same
 * steps. After each step they exchange what they saw and decide by what both know, so that neither
 * waits for a step that the peer does not make. What is printed is the same on both: that of side 1
 * goes nowhere.
 *
 *     app_party_start(&party, &args, device)     EAL, cores or ranks
 *     app_party_run(&party, &bench)              measures, then ends the party; bench.run() calls
 *         app_party_both(&party, fn, arg)        fn(arg, side) for the sides of this process
 *         app_party_barrier(&party), app_party_swap(&party, ...)
 *
 * Threads: side 1 on a second lcore calls app_party_barrier(), _over() and _look(); all else is for
 * the thread that started the party.
 */

#include "app_boot.h"
#include "app_eal.h"
#include "app_out.h"
#include "app_process.h"

#define APP_SIDES 2

struct crpc_shm;

/** Where side 1 runs. */
enum app_place { APP_PLACE_SAME, APP_PLACE_LCORE, APP_PLACE_PROCESS, APP_PLACE_RANK };

/** The sides. */
struct app_party {
	/** Set it before the start: lcores that a process takes, if the user chose none; 0: two. */
	int lcores_max;
	enum app_place place;
	int side;    /**< Of two ranks: ours; else 0, and side 1 is ours too. */
	bool shared; /**< The other rank is on our core, too. */
	bool one_host;
	bool stop;        /**< The run ends early, as both sides know: interrupted, or lost. */
	bool lost;        /**< The peer is. */
	long id;          /**< Processes: the same in both, unique on this host. */
	char ip[16];      /**< Ours, by which the peer reaches us. */
	char lcores[160]; /**< Of both sides, as text. */
	double port_gbps; /**< Two hosts: rate of the device's port, GB/s; 0: unknown. */
	struct app_out out;
	uint32_t failed; /**< Lanes that could not be measured, or were wrong. */
	struct app_boot boot;
	struct app_flag *flag;       /**< Of each side. */
	struct app_court *court;     /**< NULL: no ping-pong. */
	struct app_process *process; /**< NULL: there is no second one. */
	/* For app_party.c. */
	struct app_flag own_flag[APP_SIDES];
	struct app_court own_court;
	uint64_t looked_ns;       /* Whether the second process lives. */
	uint64_t gone_ns;         /* When the other rank was seen to have ended. */
	struct crpc_shm *segment; /* With the ranks' court. */
	int sock;                 /* To the peer, if the sides are apart. */
	unsigned int second;      /* Lcore. */
	double line_ns;
	_Atomic uint32_t arrived, phase;
};

/** What one side does: 0 or -errno. */
typedef int (*app_side_fn)(void *arg, int side);

/**
 * Start the EAL, find the other side, catch signals (app_stop.h).
 *
 * @param device
 *   RDMA device that the lanes of two ranks use; NULL: the first one.
 * @return
 *   0, or an exit code after a line.
 */
int app_party_start(struct app_party *p, const struct app_args *args, const char *device);

/**
 * The same with a second process on the second lcore, which runs no EAL. The caller calls it before
 * anything that a second process must not have.
 */
int app_party_start_process(struct app_party *p, const struct app_args *args);

/** What a benchmark does between the start of its sides and their end. */
struct app_bench {
	const char *name, *json; /**< json: file for results; NULL: none. */
	/** What may fail in one rank alone: 0, or an exit code after a line. May be NULL. */
	int (*prepare)(void *arg);
	/** Measure: 0, -errno, or an exit code. */
	int (*run)(void *arg);
	void *arg;
};

/**
 * Prepare on both sides, print the machine, where the sides are and how far apart, measure, close
 * the results, report an interruption, end the EAL, leave the other process or rank: the exit code.
 */
int app_party_run(struct app_party *p, const struct app_bench *b);

/** True if a signal came, or the peer is lost: finish, print what is known. */
bool app_party_stopped(const struct app_party *p);

/** True if the sides share no memory of this program. */
static inline bool
app_party_apart(const struct app_party *p)
{
	return p->place >= APP_PLACE_PROCESS;
}

/** True if this process plays the side. */
static inline bool
app_party_plays(const struct app_party *p, int side)
{
	return !app_party_apart(p) || p->side == side;
}

/** True if the sides run side by side. */
static inline bool
app_party_two(const struct app_party *p)
{
	return p->place != APP_PLACE_SAME;
}

/**
 * Run fn for both sides: on two lcores at once, one after the other on one, or for ours alone. The
 * first error of those here.
 */
int app_party_both(struct app_party *p, app_side_fn fn, void *arg);

/** Wait for the other side, which does the same: 0 or -errno. Not where this thread is both. */
int app_party_barrier(struct app_party *p);

/**
 * Exchange len bytes with the other process or rank, which does the same. Without one: 0, and
 * nothing is done.
 *
 * @return
 *   0, or -errno: the peer is lost, which ends the run.
 */
int app_party_swap(struct app_party *p, const void *mine, void *theirs, size_t len);

/** The larger of both sides' numbers; alone its own. */
double app_party_max(struct app_party *p, double mine);

/** Before a slice. */
void app_party_begin(struct app_party *p, int side);

/** This side's part of a slice is over: rc is 0, or -errno and it failed. 0 or -errno. */
int app_party_over(struct app_party *p, int side, int rc);

/** How far the peer of a side is: 0, 1 (over), -EIO (it failed), or -errno (it is lost). */
int app_party_look(struct app_party *p, int side);

/** A step before a slice failed: app_party_look() of the peer says so. */
void app_party_fail(struct app_party *p, int side);

/** Round trip of a line between the sides, ns; 0 where they do not play. */
double app_party_line_ns(struct app_party *p);

#endif
