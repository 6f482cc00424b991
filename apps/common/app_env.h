/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_ENV_H
#define APP_ENV_H

/**
 * @file
 * The conditions a figure was measured under: CPU, commit, stolen time, distance of two cores.
 *
 * A virtual core that the host takes away shows in /proc/stat as steal; a run with more than
 * APP_STEAL_PCT_NOISY per cent of it gives no verdict. Virtual cores can also move apart: the same
 * two may share a cache now and not a second later, and every figure between two cores then
 * changes by a factor. A short line ping-pong before and after a run shows which it was.
 */

#include "crpc_util.h"

/** Stolen time above which a run is called noisy, per cent. */
#define APP_STEAL_PCT_NOISY 1.0
/** Time that a polling thread did not have its core above which a run is called noisy, per cent. */
#define APP_AWAY_PCT_NOISY 3.0
/** Round trip of a line between two cores, below which they are near, ns. */
#define APP_LINE_NEAR_NS 250.0

/** CPU time of the machine since boot, in ticks of the kernel. */
struct app_steal {
	uint64_t steal; /**< Taken away by the host. */
	uint64_t total;
};

/** The commit that this program was built from. */
const char *app_env_commit(void);

/** Copy the CPU's model name; "unknown" if the kernel does not say. */
void app_env_cpu(char *buf, size_t len);

/** Largest resident size of this process so far, KiB; 0 if unknown. */
uint64_t app_env_rss_kib(void);

/** Read the counters of /proc/stat. Zeros if it cannot be read. */
void app_env_steal(struct app_steal *now);

/** Stolen part of the time since a reading, per cent. */
double app_env_steal_pct(const struct app_steal *begin);

/** Waits that app_env_pause() sorts by. */
#define APP_PAUSES 12

/** They, in us; a turn of a loop is shorter than the first. */
extern const double app_pause_us[APP_PAUSES];

/**
 * A polling thread stood still: an interrupt, another thread, the host.
 *
 * @param over
 *   Sums, of us: at over[i] / time of all moments the thread's next turn was further away than
 *   app_pause_us[i]. Whatever a request does, it waits that long with that probability at each
 *   thread that it needs; behind it the queue that has formed meanwhile.
 * @param ns
 *   How long.
 */
void app_env_pause(double over[APP_PAUSES], uint64_t ns);

/**
 * The longest of app_pause_us that is exceeded in @p part of all cases or more.
 *
 * @return
 *   us; 0 if not even the first one is.
 */
double app_env_pause_floor(const double over[APP_PAUSES], double part);

/**
 * Answer `-h`, `--help` and `--version`, wherever they stand. The first call of main(), so that
 * help() finds the defaults in the options.
 *
 * @param name
 *   The program.
 * @param argc, argv
 *   Arguments of main().
 * @param help
 *   Prints the program's help.
 * @return
 *   True if there was one: the program ends with 0.
 */
bool app_env_answer(const char *name, int argc, char *const *argv,
	void (*help)(int argc, char *const *argv));

#endif
