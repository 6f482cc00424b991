/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "crpc_log.h"
#include "priv.h"

/*
 * A key is index << 8 | variant. Freed indexes are chained; a reused one gets the next variant, so
 * that a key kept too long fails. Index 0 would make key 0 look valid, index 1 holds
 * MLX5_INVALID_LKEY.
 */
#define KEY_FIRST 2u
_Static_assert(MLX5_INVALID_LKEY >> 8 == 1, "index 1 stays free");

struct sm_mr {
	uint32_t index;
	TAILQ_ENTRY(sm_mr) link;
};

_Static_assert(IBV_ACCESS_LOCAL_WRITE == SM_ACCESS_LOCAL_WRITE, "verbs");
_Static_assert(IBV_ACCESS_REMOTE_WRITE == SM_ACCESS_REMOTE_WRITE, "verbs");
_Static_assert(IBV_ACCESS_REMOTE_READ == SM_ACCESS_REMOTE_READ, "verbs");
_Static_assert(IBV_ACCESS_REMOTE_ATOMIC == SM_ACCESS_REMOTE_ATOMIC, "verbs");
_Static_assert(sizeof(struct mlx5_wqe_data_seg) == 16, "segments are walked in units of 16 bytes");

static int
keys_grow(struct sm_nic *nic)
{
	uint32_t n = nic->nkeys == 0 ? 64 : nic->nkeys * 2;
	struct sm_mkey *keys;

	if (n > SM_KEYS_MAX)
		return ENOMEM;
	keys = realloc(nic->keys, n * sizeof(*keys));
	if (keys == NULL)
		return ENOMEM;
	memset(keys + nic->nkeys, 0, (n - nic->nkeys) * sizeof(*keys));
	for (uint32_t i = n; i-- > crpc_max(nic->nkeys, KEY_FIRST);) {
		keys[i].len = nic->free_key;
		nic->free_key = i;
	}
	nic->keys = keys;
	nic->nkeys = n;
	return 0;
}

int
sm_key_alloc(struct sm_nic *nic, uint32_t *index)
{
	int rc = nic->free_key == 0 ? keys_grow(nic) : 0;
	struct sm_mkey *k;

	if (rc != 0)
		return rc;
	*index = nic->free_key;
	k = &nic->keys[*index];
	nic->free_key = (uint32_t)k->len;
	k->key = *index << 8 | ((k->key + 1) & 0xff);
	return 0;
}

void
sm_key_free(struct sm_nic *nic, uint32_t index)
{
	nic->keys[index].pd = NULL;
	nic->keys[index].len = nic->free_key;
	nic->free_key = index;
}

static int
region_check(uint64_t start, uint64_t len, uint64_t iova, uint32_t access)
{
	if (start + len < start || iova + len < iova)
		return EINVAL;
	if ((access & (SM_ACCESS_REMOTE_WRITE | SM_ACCESS_REMOTE_ATOMIC)) != 0 &&
		(access & SM_ACCESS_LOCAL_WRITE) == 0)
		return EINVAL;
	if ((access & IBV_ACCESS_ON_DEMAND) != 0) {
		crpc_err("regions on demand are not supported (access 0x%x)", access);
		return EOPNOTSUPP;
	}
	return 0;
}

int
sm_mr_create(struct sm_nic *nic, struct sm_pd *pd, uint64_t start, uint64_t len, uint64_t iova,
	uint32_t access, struct sm_mr **mr, uint32_t *lkey, uint32_t *rkey)
{
	struct sm_mr *m;
	struct sm_mkey *k;
	int rc = region_check(start, len, iova, access);

	if (rc != 0)
		return rc;
	m = malloc(sizeof(*m));
	if (m == NULL)
		return ENOMEM;
	sm_lock(nic);
	rc = nic->orphan ? EIO : sm_key_alloc(nic, &m->index);
	if (rc != 0) {
		sm_unlock(nic);
		free(m);
		return rc;
	}
	k = &nic->keys[m->index];
	k->pd = pd;
	k->base = (uint8_t *)(uintptr_t)start;
	k->len = len;
	k->iova = iova;
	k->access = access;
	pd->users++;
	TAILQ_INSERT_TAIL(&nic->mrs, m, link);
	*lkey = *rkey = k->key;
	*mr = m;
	sm_unlock(nic);
	return 0;
}

int
sm_mr_rereg(struct sm_nic *nic, struct sm_mr *mr, uint32_t flags, struct sm_pd *pd, uint64_t start,
	uint64_t len, uint64_t iova, uint32_t access, uint32_t *lkey, uint32_t *rkey)
{
	struct sm_mkey *k;
	int rc = 0;

	if ((flags & ~(uint32_t)7) != 0 || flags == 0)
		return EINVAL;
	sm_lock(nic);
	k = &nic->keys[mr->index];
	if ((flags & 1) == 0) {
		start = (uintptr_t)k->base;
		len = k->len;
		iova = k->iova;
	}
	if ((flags & 4) == 0)
		access = k->access;
	rc = nic->orphan                               ? EIO
		: sm_mw_bound_to(nic, mr->index) ? EBUSY
						 : region_check(start, len, iova, access);
	if (rc == 0) {
		sm_direct_withdraw_key(nic, mr->index);
		if ((flags & 2) != 0) {
			k->pd->users--;
			k->pd = pd;
			pd->users++;
		}
		k->base = (uint8_t *)(uintptr_t)start;
		k->len = len;
		k->iova = iova;
		k->access = access;
		*lkey = *rkey = k->key;
	}
	sm_unlock(nic);
	return rc;
}

int
sm_mr_destroy(struct sm_nic *nic, struct sm_mr *mr)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	if (sm_mw_bound_to(nic, mr->index)) {
		sm_unlock(nic);
		return EBUSY;
	}
	sm_direct_withdraw_key(nic, mr->index);
	nic->keys[mr->index].pd->users--;
	TAILQ_REMOVE(&nic->mrs, mr, link);
	sm_key_free(nic, mr->index);
	sm_unlock(nic);
	free(mr);
	return 0;
}

void
sm_mrs_free(struct sm_nic *nic)
{
	struct sm_mr *mr;

	while ((mr = TAILQ_FIRST(&nic->mrs)) != NULL) {
		TAILQ_REMOVE(&nic->mrs, mr, link);
		free(mr);
	}
}

/* Step to the next segment, over @units of 16 bytes. */
static inline void
cursor_next(struct sm_cursor *c, uint32_t units)
{
	c->left -= units;
	c->off = 0;
	c->seg += 16 * (size_t)units;
	if (c->seg >= c->wrap)
		c->seg = c->base + (c->seg - c->wrap);
}

static inline uint32_t
inline_units(uint32_t len)
{
	return (4 + len + 15) / 16;
}

uint64_t
sm_cursor_total(const struct sm_cursor *cur)
{
	struct sm_cursor c = *cur;
	uint64_t total = 0;

	while (c.left != 0) {
		uint32_t count = sm_be32(c.seg), units = 1;

		if ((count & MLX5_INLINE_SEG) != 0) {
			count &= 0x3ff;
			units = inline_units(count);
			if (units > c.left)
				return UINT64_MAX;
		}
		total += count;
		cursor_next(&c, units);
	}
	return total;
}

bool
sm_cursor_skip(struct sm_cursor *c, uint32_t n)
{
	while (n != 0) {
		uint32_t count, units = 1, part;

		if (c->left == 0)
			return false;
		count = sm_be32(c->seg);
		if ((count & MLX5_INLINE_SEG) != 0) {
			count &= 0x3ff;
			units = inline_units(count);
			if (units > c->left)
				return false;
		}
		part = (uint32_t)crpc_min(n, count - c->off);
		n -= part;
		c->off += part;
		if (c->off == count)
			cursor_next(c, units);
	}
	return true;
}

/* Inline data may go round the end of the queue at any byte. */
static void
inline_copy(const struct sm_cursor *c, uint8_t *dst, uint32_t n)
{
	const uint8_t *src = c->seg + 4 + c->off;
	size_t first;

	if (src >= c->wrap)
		src = c->base + (src - c->wrap);
	first = (size_t)(c->wrap - src);
	if (crpc_likely(n <= first)) {
		memcpy(dst, src, n);
		return;
	}
	memcpy(dst, src, first);
	memcpy(dst + first, c->base, n - first);
}

uint32_t
sm_gather(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, uint8_t *dst, uint32_t n)
{
	while (n != 0) {
		uint32_t count, units = 1, part;

		if (crpc_unlikely(cur->left == 0)) /* The WQE changed since it was measured. */
			return SM_SYND_LOCAL_QP_OP;
		count = sm_be32(cur->seg);
		if ((count & MLX5_INLINE_SEG) != 0) {
			count &= 0x3ff;
			units = inline_units(count);
			if (units > cur->left || cur->off > count)
				return SM_SYND_LOCAL_QP_OP;
			part = (uint32_t)crpc_min(n, count - cur->off);
			inline_copy(cur, dst, part);
		} else if (count != 0) {
			const void *src;

			if (crpc_unlikely(cur->off > count))
				return SM_SYND_LOCAL_QP_OP;
			part = (uint32_t)crpc_min(n, count - cur->off);
			src = sm_mem(nic, qp->pd, sm_be32(cur->seg + 4),
				sm_be64(cur->seg + 8) + cur->off, part, 0);
			if (crpc_unlikely(src == NULL))
				return SM_SYND_LOCAL_PROT;
			sm_count_read(&qp->n, part);
			memcpy(dst, src, part);
		} else {
			part = 0;
		}
		dst += part;
		n -= part;
		cur->off += part;
		if (cur->off == count)
			cursor_next(cur, units);
	}
	return 0;
}

bool
sm_gather_refs(const struct sm_nic *nic, const struct sm_qp *qp, struct sm_cursor *cur,
	struct sm_grant *g)
{
	uint32_t n = g->len;

	while (n != 0) {
		uint32_t count = cur->left != 0 ? sm_be32(cur->seg) : MLX5_INLINE_SEG, part;
		const void *src;

		if ((count & MLX5_INLINE_SEG) != 0 || cur->off > count)
			return false;
		part = (uint32_t)crpc_min(n, count - cur->off);
		if (part != 0) {
			src = sm_mem(nic, qp->pd, sm_be32(cur->seg + 4),
				sm_be64(cur->seg + 8) + cur->off, part, 0);
			if (src == NULL || g->nseg == SM_GRANT_SEGS)
				return false;
			g->key[g->nseg] = sm_be32(cur->seg + 4) >> 8;
			g->seg[g->nseg++] = (struct sm_seg){(uintptr_t)src, part};
		}
		n -= part;
		cur->off += part;
		if (cur->off == count)
			cursor_next(cur, 1);
	}
	return true;
}

/*
 * The next place for @n bytes, and how many of them it takes, maybe 0: then the next one. 0 or a
 * syndrome.
 */
static inline __attribute__((always_inline)) uint32_t
scatter_next(const struct sm_nic *nic, const struct sm_pd *pd, struct sm_cursor *cur, uint32_t n,
	void **dst, uint32_t *part)
{
	uint32_t count, lkey;

	*part = 0;
	if (cur->left == 0)
		return SM_SYND_LOCAL_LENGTH;
	count = sm_be32(cur->seg);
	lkey = sm_be32(cur->seg + 4);
	if (count == 0) {
		if (lkey == MLX5_INVALID_LKEY) /* Ends a list that is not full. */
			return SM_SYND_LOCAL_LENGTH;
		cursor_next(cur, 1);
		return 0;
	}
	if (crpc_unlikely(cur->off > count))
		return SM_SYND_LOCAL_LENGTH;
	*part = (uint32_t)crpc_min(n, count - cur->off);
	*dst = sm_mem(nic, pd, lkey, sm_be64(cur->seg + 8) + cur->off, *part,
		SM_ACCESS_LOCAL_WRITE);
	if (crpc_unlikely(*dst == NULL))
		return SM_SYND_LOCAL_PROT;
	cur->off += *part;
	if (cur->off == count)
		cursor_next(cur, 1);
	return 0;
}

uint32_t
sm_scatter(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd, struct sm_cursor *cur,
	const uint8_t *src, uint32_t n)
{
	uint32_t part;
	void *dst;

	for (; n != 0; n -= part, src += part) {
		uint32_t synd = scatter_next(nic, pd, cur, n, &dst, &part);

		if (crpc_unlikely(synd != 0))
			return synd;
		if (crpc_unlikely(part == 0))
			continue;
		sm_count_write(&qp->n, part);
		sm_copy(dst, src, part);
	}
	return 0;
}

uint32_t
sm_scatter_pull(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd,
	struct sm_cursor *cur, struct sm_pull *pull, uint32_t at)
{
	struct iovec to[SM_PULL_PLACES];
	uint32_t n = pull->ref.len, k = 0, part, synd;
	void *dst;

	while (n != 0) {
		synd = scatter_next(nic, pd, cur, n, &dst, &part);
		if (synd != 0)
			return synd;
		if (part == 0)
			continue;
		sm_count_writes(&qp->n, at, part);
		to[k++] = (struct iovec){dst, part};
		at += part;
		n -= part;
		if (k < SM_PULL_PLACES && n != 0)
			continue;
		if (!sm_pull_to(pull, to, k))
			return 0;
		k = 0;
	}
	return 0;
}
