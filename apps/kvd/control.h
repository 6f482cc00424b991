/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_CONTROL_H
#define KVD_CONTROL_H

/**
 * @file
 * kvd towards its operator: readiness, health, requests for snapshots.
 */

#include "crpc_atomic.h"
#include "crpc_util.h"

/** What kvd does. */
enum kvd_state {
	KVD_STARTING,
	KVD_SERVING,
	KVD_DRAINING,
};

/** Figures of telemetry's /crpc/kvd/health; the control thread writes them. */
struct kvd_health {
	_Atomic uint32_t state; /**< enum kvd_state */
	_Atomic uint32_t rank, ranks, ranks_up;
	_Atomic uint64_t epoch;
	_Atomic uint64_t snapshots, snapshot_keys, snapshot_time; /**< The last: seconds of 1970. */
	_Atomic uint64_t snapshots_failed;
};

extern struct kvd_health kvd_health;

/** SIGHUP: a snapshot is wanted; the control thread takes it. */
extern _Atomic int kvd_hangup;

void kvd_hangup_catch(void);

/** Register the commands of telemetry: health, and counters of daemons. @return 0 or -errno. */
int kvd_health_start(uint32_t rank, uint32_t daemons);

/**
 * Ready: make the file, if there is to be one, and notify systemd.
 *
 * @return
 *   0 or -errno of the file.
 */
int kvd_ready(const char *file);

/** Notify systemd, if it wants that: "STATUS=..." and the like. */
void kvd_notify(const char *fmt, ...) crpc_printf(1, 2);

#endif
