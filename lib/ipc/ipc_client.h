/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_CLIENT_H
#define IPC_CLIENT_H

/** @file The client's private memory. */

#include "crpc_ipc.h"
#include "ipc_layout.h"

/** A request slot, as its client sees it. */
struct ipc_call {
	uint64_t cookie;
	uint64_t busy; /**< Not 0 from call() until poll() returned it. */
};

struct crpc_ipc_client {
	/* First line: call(). */
	struct ipc_slot *next; /**< Where the next request goes: promised to the server. */
	uint8_t *req;
	struct ipc_call *calls; /**< Per request slot. */
	uint64_t req_seq;       /**< Of the next request; its low half travels. */
	uint32_t next_slot;     /**< Index of next. */
	uint32_t open;          /**< Calls not yet returned by poll(). */
	uint32_t room;          /**< depth, or 0 once status is set: at that many open, no more. */
	uint32_t small_max;     /**< Bytes that the short way of call() takes. */
	uint32_t req_mask;
	uint32_t req_slot; /**< Bytes of a request slot. */
	int32_t status;    /**< 0, or the final error. */
	uint32_t empty;    /**< Empty polls since the last look at the server. */
	/* Second line: poll(). */
	struct ipc_slot *head; /**< Where the next response will be. */
	uint8_t *resp;
	uint64_t resp_seq;
	uint32_t resp_mask;
	uint32_t resp_slot;
	uint32_t resp_max;
	uint32_t fail_slot;    /**< Where failing the open calls goes on. */
	struct ipc_header lay; /**< Private copy, checked. */
	/* slow path */
	uint32_t id;
	uint32_t gen;
	uint64_t probe_ns;
	uint64_t probed_ns; /**< When the kernel was last asked. */
	struct ipc_ctl *ctl;
	_Atomic uint64_t *beat;
	_Atomic uint32_t *bell;
	const void *owner; /**< Debug: the thread. */
	struct crpc_shm *seg;
	struct crpc_shm_lock *lock;
	struct crpc_ipc_client_stats stats;
};

/** Tell that somebody came or went. */
void __crpc_ipc_ring_bell(_Atomic uint32_t *bell);

#endif
