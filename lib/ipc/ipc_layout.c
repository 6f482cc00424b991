/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>

#include "crpc_conf.h"
#include "ipc_layout.h"

/* Regions start on a page, so that a client's first touch and the server's do not share one. */
#define REGION_ALIGN 4096

int
__crpc_ipc_layout(struct ipc_header *h, const char *name)
{
	if (crpc_outside(name, "max_clients", h->max_clients, 1, CRPC_IPC_CLIENTS_MAX) ||
		crpc_outside(name, "depth", h->depth, 1, CRPC_IPC_DEPTH_MAX) ||
		crpc_outside(name, "req_max", h->req_max, 1, CRPC_IPC_MSG_MAX) ||
		crpc_outside(name, "resp_max", h->resp_max, 1, CRPC_IPC_MSG_MAX))
		return -EINVAL;
	h->req_slots = (uint32_t)crpc_pow2_ceil(h->depth + 1);
	h->resp_slots = (uint32_t)crpc_pow2_ceil(2 * h->depth);
	h->req_slot = (uint32_t)crpc_align_up(8 + h->req_max, CRPC_CACHE_LINE);
	h->resp_slot = (uint32_t)crpc_align_up(8 + h->resp_max, CRPC_CACHE_LINE);
	/*
	 * The guard keeps two clients' lines apart, and shifts each client's slots to other sets of
	 * the cache than its neighbour's.
	 */
	h->lone_off = crpc_align_up((uint64_t)h->req_slots * h->req_slot, CRPC_CACHE_GUARD);
	h->allow_off = h->lone_off + CRPC_CACHE_GUARD;
	h->req_stride = crpc_align_up(h->allow_off + 2 * (h->req_slots + 1), CRPC_CACHE_GUARD) +
		CRPC_CACHE_GUARD;
	h->resp_stride = crpc_align_up((uint64_t)h->resp_slots * h->resp_slot, CRPC_CACHE_GUARD) +
			 CRPC_CACHE_GUARD;
	h->req_off = crpc_align_up(IPC_CTL_OFF + (uint64_t)h->max_clients * sizeof(struct ipc_ctl),
			REGION_ALIGN);
	h->resp_off = crpc_align_up(h->req_off + h->max_clients * h->req_stride, REGION_ALIGN);
	h->total_size = h->resp_off + h->max_clients * h->resp_stride;
	memset(h->reserved, 0, sizeof(h->reserved));
	return 0;
}

int
__crpc_ipc_layout_read(struct ipc_header *h, const struct crpc_shm *seg)
{
	struct ipc_header *shared = crpc_shm_ptr(seg, IPC_HEADER_OFF, sizeof(*shared));
	struct ipc_header want;

	if (shared == NULL)
		return crpc_fail(-EPROTO, "%s: has %" PRIu64 " bytes; expected at least %zu",
			crpc_shm_path(seg), crpc_shm_size(seg), IPC_CTL_OFF);
	memcpy(h, shared, sizeof(*h));
	want = *h;
	if (__crpc_ipc_layout(&want, crpc_shm_path(seg)) != 0)
		return -EPROTO;
	if (memcmp(h, &want, sizeof(*h)) != 0)
		return crpc_fail(-EPROTO,
			"%s: layout of clients %u, depth %u, request %u, response %u bytes: "
			"expected size %" PRIu64 ", requests at %" PRIu64 ", responses at %" PRIu64
			", found %" PRIu64 ", %" PRIu64 ", %" PRIu64,
			crpc_shm_path(seg), h->max_clients, h->depth, h->req_max, h->resp_max,
			want.total_size, want.req_off, want.resp_off, h->total_size, h->req_off,
			h->resp_off);
	if (h->total_size > crpc_shm_size(seg))
		return crpc_fail(-EPROTO, "%s: has %" PRIu64 " bytes; expected at least %" PRIu64,
			crpc_shm_path(seg), crpc_shm_size(seg), h->total_size);
	return 0;
}
