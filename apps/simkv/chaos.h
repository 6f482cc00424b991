/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_CHAOS_H
#define SIM_CHAOS_H

/**
 * @file
 * --chaos: clusters, loads and faults drawn by a seed, and what must hold of each run:
 *
 *     always       each call ends, once, and within a bounded time; every answer is right
 *                  (app_verify.h); each key is linearizable, and empty after its host was
 *                  restarted (usertools/lincheck)
 *     a pause      of four deadlines or more is noticed by all that were connected
 *     afterwards   no operation fails, each host is served, and when all have ended each context
 *                  is sound and at rest: crpc_copyrpc_check()
 */

#include "app_out.h"
#include "options.h"

/** Hosts of a seed at most, and keys of each. */
#define SIM_CHAOS_HOSTS_MAX 80
#define SIM_CHAOS_KEYS_MAX  1024

/**
 * Run the seeds from o->chaos on, o->seeds of them, until one finds something.
 *
 * @return
 *   0; APP_EXIT_RUN: a seed was found, and printed; APP_EXIT_USAGE after one line.
 */
int sim_chaos(struct app_out *out, const struct sim_options *o);

#endif
