/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_WIRE_UDP_H
#define SOFT_MLX5_ENGINE_WIRE_UDP_H

/**
 * @file
 * The wire between hosts; see wire_udp.c.
 */

#include "context.h"

struct sm_roce_path;

/** ENOMEM, or why the port of @p slot of @p addr cannot be had. */
int sm_udp_open(uint32_t addr, uint32_t slot, struct sm_udp **udp);
void sm_udp_close(struct sm_udp *udp);
/** Read what came, a bounded amount; number of packets. */
uint32_t sm_udp_receive(struct sm_nic *nic);
/** Handle what came in a datagram, from BTH to ICRC. */
void sm_udp_packet(
	struct sm_nic *nic, const struct sm_roce_path *path, const uint8_t *bytes, uint32_t n);
/** Send what lies in the rings. */
void sm_udp_send(struct sm_nic *nic);
/** The word by which a context of another host shows that our packets reach it. */
uint64_t sm_udp_cookie(const struct sm_nic *nic, uint32_t addr, uint32_t slot);

#endif
