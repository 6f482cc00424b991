/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_EAL_H
#define APP_EAL_H

/**
 * @file
 * Starting DPDK's EAL for a program that may meet any machine.
 *
 * A program's arguments are EAL arguments, then `--`, then its own. What the user left out is
 * filled in so that several ranks fit one small host: the rank's cores, no shared configuration
 * files (so that nothing is left behind), no PCI scan (the NIC is opened through verbs), 64 MiB
 * where --no-huge is given. What the EAL prints while it starts is held back; if it fails, the
 * cause is printed in one line.
 */

#include <sched.h>

#include "crpc_util.h"

/** A command line, divided at `--`. */
struct app_args {
	int eal_argc;
	char **eal_argv; /**< [0] is the program. */
	int argc;        /**< The program's own. */
	char **argv;
};

/**
 * Divide a command line. Without `--` all arguments are the EAL's, or with @p own the program's.
 *
 * @return
 *   Whether there is a `--`.
 */
bool app_args_split(struct app_args *args, int argc, char **argv, bool own);

/**
 * As app_env_answer(), for a program with an EAL: its help ends with how to see the EAL's, which
 * `--eal-help` prints.
 */
bool app_args_answer(
	const char *name, int argc, char **argv, void (*help)(int argc, char *const *argv));

/** True if the user chose cores (-l, -c, --lcores, -s). */
bool app_eal_has_lcores(const struct app_args *args);

/**
 * Start the EAL.
 *
 * @param args
 *   The command line.
 * @param set
 *   Cores to use unless the user chose.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int app_eal_start(const struct app_args *args, const cpu_set_t *set);

/** End the EAL, if it was started: before anything that may hang at a launcher's end. */
void app_eal_stop(void);

/** With --mem-report, once: print where the memory lies that the datapath has now. */
void app_eal_mem_report(void);

/** The first core of an lcore. */
int app_eal_core_of(unsigned int lcore);

/** Cores of the EAL's enabled lcores, at most @p max of them, the main one first. */
void app_eal_lcores(uint32_t max, cpu_set_t *set);

#endif
