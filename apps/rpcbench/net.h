/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NET_H
#define NET_H

/**
 * @file
 * Layers net and raw: calls, and single operations, between two ends that each have a device
 * context of their own.
 *
 * What is compared: net_copyrpc.c and net_udrpc.c (net_calls.h is in both), net_raw.c (work
 * requests of lib/rdma), net_verbs.c (what lib/rdma has not). net.c has all else.
 */

#include "lane.h"

extern const struct lane_way net_copyrpc_rc, net_copyrpc_dc, net_udrpc;
extern const struct lane_way net_poll, net_write_imm, net_write_imm_lat, net_write, net_read;
extern const struct lane_way net_send, net_send_bf, net_send_lat, net_ud_send, net_ud_lat;

/** The device that all ends of this process open. */
const char *net_device(void);

/** What a device of lib/rdma did. */
void net_ledger_of(const struct crpc_rdma *dev, struct lane_ledger *ledger);

/** Where the other side's endpoints are; NULL after app_lane_fail(): it has others. */
const uint8_t *net_peer(struct app_lane *l, int side);

/** A single operation, whose functions begin with @p family. */
#define NET_WAY(way, family, text, what, turn)                                                     \
	const struct lane_way way = {                                                              \
		.base = APP_WAY(text, family##_open, family##_meet, family##_close),               \
		.unit = what,                                                                      \
		.step = turn,                                                                      \
		.ledger = messages_ledger,                                                         \
	}

#endif
