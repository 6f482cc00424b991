/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_MR_H
#define SOFT_MLX5_ENGINE_MR_H

/**
 * @file
 * Domains, keys and the only way from a key to memory; the segments of WQEs, which name memory so.
 */

#include "bytes.h"
#include "context.h"
#include "prm.h"

struct sm_qp;

struct sm_pd {
	struct sm_obj obj; /**< Its users: regions, windows and queues in it. */
};

/** What a key stands for; in a table by key >> 8. */
struct sm_mkey {
	struct sm_region region; /**< Of a key that is free: len is the index of the next one. */
	struct sm_pd *pd; /**< NULL: free. Of a window: see window.c. */
	uint32_t key;
};

/** A key that is free: its index, with the next variant. 0 or ENOMEM. */
int sm_key_alloc(struct sm_nic *nic, uint32_t *index);
void sm_key_free(struct sm_nic *nic, uint32_t index);

/** Where @p va lies in what a key stands for; NULL: outside. */
static inline void *
sm_key_at(const struct sm_mkey *k, uint64_t va, uint64_t len)
{
	const struct sm_region *r = &k->region;

	if (crpc_unlikely(va < r->iova || len > r->len || va - r->iova > r->len - len))
		return NULL;
	return (uint8_t *)(uintptr_t)r->start + (va - r->iova);
}

/* ---- window.c ---- */

/** As sm_mem(), where a key is none of a region of the domain. */
void *sm_mem_window(const struct sm_nic *nic, const struct sm_pd *pd, const struct sm_mkey *k,
	uint32_t key, uint64_t va, uint64_t len, uint32_t access);
/** Whether a window is bound to the region with the key of that index. */
bool sm_mw_bound_to(const struct sm_nic *nic, uint32_t index);
/** A UMR WQE for the window @p key, by the @p units of 16 bytes behind ctrl: 0 or a syndrome. */
uint32_t sm_mw_umr(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key, const uint8_t *umr,
	uint32_t units);
/** What a SEND WITH INVALIDATE asks for; false: that is no key of a bound window of type 2. */
bool sm_mw_invalidate(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key);

/**
 * The only way from a key to memory.
 *
 * @return
 *   Where @p va lies, or NULL: no such key, another domain, outside, not allowed.
 */
static inline void *
sm_mem(const struct sm_nic *nic, const struct sm_pd *pd, uint32_t key, uint64_t va, uint64_t len,
	uint32_t access)
{
	const struct sm_mkey *k;

	if (crpc_unlikely(key >> 8 >= nic->nkeys))
		return NULL;
	k = &nic->keys[key >> 8];
	if (crpc_unlikely(k->pd != pd || k->key != key || (k->region.access & access) != access))
		return sm_mem_window(nic, pd, k, key, va, len, access);
	return sm_key_at(k, va, len);
}

/* ---- segments ---- */

/** A position in the segments of a WQE. */
struct sm_cursor {
	const uint8_t *seg;  /**< The segment at hand. */
	const uint8_t *wrap; /**< Where the queue ends ... */
	const uint8_t *base; /**< ... and goes on. */
	uint32_t left;       /**< 16-byte units from seg to the end of the WQE. */
	uint32_t off;        /**< Bytes of the segment already used. */
};

/** Bytes of all segments from @p cur on; UINT64_MAX: an inline segment runs out of its WQE. */
uint64_t sm_cursor_total(const struct sm_cursor *cur);
/** Go @p n bytes on; false: there are not so many. */
bool sm_cursor_skip(struct sm_cursor *cur, uint32_t n);
/**
 * Copy @p n bytes out of the memory that a send WQE's segments name, or, with @p g, name that
 * memory in it; 0 or a syndrome.
 */
uint32_t sm_gather(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, uint8_t *dst,
	uint32_t n, struct sm_grant *g);
/**
 * Copy @p n bytes, of @p src or, with @p pull, those that it refers to, into the segments' memory;
 * 0 or a syndrome (LOCAL_LENGTH: does not fit).
 */
uint32_t sm_scatter(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd,
	struct sm_cursor *cur, const uint8_t *src, uint32_t n, struct sm_pull *pull);

#endif
