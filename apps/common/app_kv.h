/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_KV_H
#define APP_KV_H

/**
 * @file
 * The key-value servers of the ranks of one launcher: how they find each other, and their versions.
 */

#include "app_boot.h"
#include "crpc_kv_server.h"

/** Deadline of a call to another rank where every rank is watched, so that only one hangs. */
#define APP_KV_PATIENCE_NS UINT64_C(4000000000)

/**
 * Exchange addresses and connect to all other ranks; all ranks call it, before their daemons' first
 * turn.
 *
 * @return
 *   0, or APP_EXIT_USAGE after app_fail().
 */
int app_kv_connect(struct app_boot *boot, struct crpc_kv_server *s);

/**
 * What versions begin with if nothing is stored: the time, in ns. Above all that earlier runs gave
 * out, also one that was killed, as no store gives out one per ns.
 */
uint64_t app_kv_version(void);

#endif
