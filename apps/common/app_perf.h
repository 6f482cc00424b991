/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_PERF_H
#define APP_PERF_H

/**
 * @file
 * The CPU's counters of the calling thread, user space only, where the machine lends them.
 *
 *     rc = app_perf_open(&perf)          -errno: none; say so once and go on without
 *     ... the work ...
 *     app_perf_read(&perf, value)        0 stands for a counter that this CPU lacks
 *     app_perf_close(&perf)
 *
 * Virtual machines often have none. HITM, loads that hit a line modified elsewhere, is counted on
 * Intel's server cores.
 */

#include <stdint.h>

/** instructions, cycles, l1d_misses, llc_misses, hitm. */
#define APP_COUNTERS 5

extern const char *const app_counter_names[APP_COUNTERS];

/** Open counters. */
struct app_perf {
	int fd[APP_COUNTERS];
};

/** Start counting what this thread does: 0, or -errno where the machine offers no counter. */
int app_perf_open(struct app_perf *p);

/** What was counted so far, APP_COUNTERS values. */
void app_perf_read(const struct app_perf *p, uint64_t *value);

/** Stop. */
void app_perf_close(struct app_perf *p);

#endif
