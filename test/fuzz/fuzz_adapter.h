/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_ADAPTER_H
#define FUZZ_ADAPTER_H

/**
 * @file
 * A queue pair of soft_mlx5 of each type, ready and with receives, for targets that send packets:
 *
 *     adapter_host(&a, net, bytes)        a context and its memory; the sanitizer watches its ends
 *     adapter_open(&a, far, addr)         connected to the queue pair @p far, over UDP of @p addr
 *     adapter_reads(&a, type, n)          open, so that responses meet a requester that waits
 *     adapter_close(&a)
 */

#include <unistd.h>

#include "cmocka.h"
#include "engine/qp.h"
#include "engine_rig.h"

#define RECEIVES 64u
#define DC_KEY   UINT64_C(0x77)
#define QKEY     5u

enum { RC, UC, UD, DCT, DCI, TYPES };

struct adapter {
	struct rig_host host;
	struct rig_qp qp[TYPES]; /* But for DCT. */
	struct rig_dct dct;
};

static inline void
adapter_host(struct adapter *a, const char *net, uint32_t bytes)
{
	rig_now = 1;
	rig_psn = 0;
	rig_mtu = IBV_MTU_256;
	rig_host_open(&a->host, net, bytes);
}

static inline struct rig_qp *
adapter_qp(struct adapter *a, uint32_t type)
{
	return type == DCT ? &a->dct.qp : &a->qp[type];
}

static inline void
adapter_open(struct adapter *a, uint32_t far, uint32_t addr)
{
	static const enum sm_qp_type types[TYPES] = {SM_RC, SM_UC, SM_UD, SM_DCT, SM_DCI};

	for (uint32_t i = 0; i < TYPES; i++) {
		struct rig_qp_conf conf = {
			.type = types[i], .rq_nwqe = RECEIVES, .rq_shift = 4, .ncqe = 1024};

		if (i == DCT)
			continue;
		rig_qp_open(&a->host, &a->qp[i], &conf);
		for (uint32_t k = 1; k < RECEIVES && i != DCI; k++)
			rig_recv(&a->qp[i], a->host.mem, a->host.bytes, a->host.key);
	}
	rig_addr_set(far >> 16, addr);
	rig_to_rts(&a->qp[RC], far);
	rig_to_rts(&a->qp[UC], far);
	rig_ready(&a->qp[UD], QKEY);
	rig_ready(&a->qp[DCI], 0);
	rig_dct_open(&a->host, &a->dct, DC_KEY);
	while (a->dct.posted + 1 < RECEIVES)
		rig_dct_recv(&a->dct, a->host.mem, a->host.bytes);
}

static inline void
adapter_reads(struct adapter *a, uint32_t type, uint32_t n)
{
	while (n-- != 0)
		rig_rdma(&a->qp[type], MLX5_OPCODE_RDMA_READ, 0, NULL, 0, a->host.mem, 1000);
	sm_nic_progress(a->host.nic, rig_now);
}

static inline void
adapter_close(struct adapter *a)
{
	for (uint32_t i = 0; i < TYPES; i++)
		if (i != DCT)
			rig_qp_close(&a->qp[i]);
	rig_dct_close(&a->dct);
	rig_host_close(&a->host);
}

#endif
