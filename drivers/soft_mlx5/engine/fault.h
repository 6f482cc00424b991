/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_FAULT_H
#define SOFT_MLX5_ENGINE_FAULT_H

/**
 * @file
 * A bad network, on request; see fault.c.
 */

#include "context.h"

/** True if send WQEs may fail by faults: none may take the short way. */
bool sm_fault_local(const struct sm_fault *fault);
/** True: the send WQE that @p qp begins fails, as if its memory were not registered. */
bool sm_fault_prot(struct sm_fault *fault, const struct sm_qp *qp);
/** True: the card does nothing now, being dead or busy with a slow DMA. */
bool sm_fault_stops(const struct sm_fault *fault, uint64_t now);
void sm_fault_pass(struct sm_nic *nic, uint32_t work);
/** What is on and what happened, as members of a JSON object. */
void sm_fault_print(const struct sm_fault *fault, FILE *out);
/** What becomes of a packet from a peer. */
void sm_fault_packet(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload);
/** Deliver the packets that were held long enough. */
void sm_fault_release(struct sm_nic *nic);
/** The peer goes, and its late packets with it. */
void sm_fault_forget(struct sm_nic *nic, const struct sm_peer *p);

#endif
