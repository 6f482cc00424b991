/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_DC_H
#define SOFT_MLX5_ENGINE_DC_H

/**
 * @file
 * Dynamic connections: what a DCI, a DCT and a connection of a DCT have besides; see dc.c.
 */

#include "context.h"
#include "requester.h"

struct sm_dc {
	uint64_t key;      /**< DCT: its own. DCI: that of the target. */
	uint32_t life;     /**< DCI: another after each RESET; connection: the DCI's. */
	bool connected;    /**< DCI: CONNECT was sent to dest_qpn at peer. */
	bool forgot;       /**< DCT: it dropped a connection that was silent. */
	uint32_t nconns;   /**< DCT. */
	uint32_t nbad;     /**< DCI: streams in error. */
	uint16_t bad[1u << SM_DCI_STREAMS_LOG];
	uint64_t at;       /**< DCI: when all was acknowledged; connection: when it was heard. */
	struct sm_qp *dct; /**< Connection: whose it is. NULL: this is a queue pair. */
	LIST_HEAD(, sm_qp) conns; /**< DCT: its connections, the last one used first. */
	LIST_ENTRY(sm_qp) link;
};

/** Be connected to the target of the WQE at hand of a DCI. */
enum sm_step sm_dci_connect(struct sm_nic *nic, struct sm_qp *qp);
/** A WQE of a DCI failed: its stream is in error. False: the queue pair is. */
bool sm_dci_stream_fail(struct sm_qp *qp, const struct sm_swr *w);
/** Leave the target, with a DISCONNECT if it is still there. */
void sm_dci_leave(struct sm_nic *nic, struct sm_qp *qp);
/** CONNECT or DISCONNECT. */
void sm_dct_control(struct sm_nic *nic, struct sm_peer *peer, const struct sm_hdr *h);
/**
 * Whether a request that says of which life its DCI is may go on to its connection, or has none
 * yet. If not it was answered, or comes late.
 */
bool sm_dct_knows(struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer,
	const struct sm_hdr *h, uint32_t life);
/** The connection that a request to @p dct belongs to; NULL: none, and it was refused. */
struct sm_qp *sm_dct_conn(
	struct sm_nic *nic, struct sm_qp *dct, struct sm_peer *peer, const struct sm_hdr *h);
/** A peer was not heard for so long that what it was connected to may be forgotten. */
void sm_dct_silent(struct sm_nic *nic, struct sm_peer *peer);
void sm_dct_drop(struct sm_nic *nic, struct sm_qp *dct);
void sm_dct_conn_free(struct sm_nic *nic, struct sm_qp *conn);

#endif
