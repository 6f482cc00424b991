/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_PCAP_H
#define SOFT_MLX5_ENGINE_PCAP_H

/**
 * @file
 * Captures of either wire; see pcap.c.
 */

#include "context.h"
#include "roce.h"

/** Begin, or go on with, a capture; no @p path: none. */
int sm_pcap_open(const char *path, uint64_t epoch_ns, struct sm_pcap **pcap);
/** @p drop: what is not written yet belongs to somebody else. */
void sm_pcap_close(struct sm_pcap *pcap, bool drop);
void sm_pcap_packet(
	struct sm_pcap *pcap, uint64_t now, uint32_t src, uint32_t dst, const struct sm_roce *p);
/** A packet of a ring that is about to be handled, in pieces of the path's MTU. */
void sm_pcap_ring(struct sm_nic *nic, const struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload);
/** What was captured goes to the file. */
void sm_pcap_flush(struct sm_pcap *pcap);
/** The transport of a packet of our queue pair @p qpn, and its MTU. */
enum sm_roce_transport sm_roce_of(
	const struct sm_nic *nic, uint32_t qpn, const struct sm_hdr *h, uint32_t *mtu_shift);

#endif
