/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "qp.h"

/*
 * A key is index << 8 | variant. Freed indexes are chained; a reused one gets the next variant, so
 * that a key kept too long fails. Index 0 would make key 0 look valid, index 1 holds
 * MLX5_INVALID_LKEY.
 */
#define KEY_FIRST 2u
#define KEYS_MAX  (1u << 20)
_Static_assert(MLX5_INVALID_LKEY >> 8 == 1, "index 1 stays free");

struct sm_mr {
	struct sm_obj obj;
};

_Static_assert(sizeof(struct mlx5_wqe_data_seg) == 16, "segments are walked in units of 16 bytes");

static int
keys_grow(struct sm_nic *nic)
{
	uint32_t n = nic->nkeys == 0 ? 64 : nic->nkeys * 2;
	struct sm_mkey *keys;

	if (n > KEYS_MAX)
		return ENOMEM;
	keys = realloc(nic->keys, n * sizeof(*keys));
	if (keys == NULL)
		return ENOMEM;
	memset(keys + nic->nkeys, 0, (n - nic->nkeys) * sizeof(*keys));
	for (uint32_t i = n; i-- > crpc_max(nic->nkeys, KEY_FIRST);) {
		keys[i].region.len = nic->free_key;
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
	nic->free_key = (uint32_t)k->region.len;
	k->key = *index << 8 | ((k->key + 1) & 0xff);
	return 0;
}

void
sm_key_free(struct sm_nic *nic, uint32_t index)
{
	nic->keys[index].pd = NULL;
	nic->keys[index].region.len = nic->free_key;
	nic->free_key = index;
}

static bool
region_ok(const struct sm_region *r)
{
	bool writes = (r->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;

	return r->start + r->len >= r->start && r->iova + r->len >= r->iova &&
		(!writes || (r->access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

int
sm_mr_create(struct sm_nic *nic, struct sm_pd *pd, const struct sm_region *region,
	struct sm_mr **mr, uint32_t *key)
{
	struct sm_mr *m;
	struct sm_mkey *k;

	if (!region_ok(region))
		return EINVAL;
	SM_LOCKED(nic);
	m = sm_obj_new(nic, SM_OBJ_MR, sizeof(*m), pd);
	if (m == NULL)
		return ENOMEM;
	k = &nic->keys[m->obj.key];
	k->pd = pd;
	k->region = *region;
	*key = k->key;
	*mr = m;
	return 0;
}

struct sm_region
sm_mr_region(const struct sm_nic *nic, const struct sm_mr *mr)
{
	return nic->keys[mr->obj.key].region;
}

int
sm_mr_rereg(struct sm_nic *nic, struct sm_mr *mr, struct sm_pd *pd, const struct sm_region *region,
	uint32_t *key)
{
	struct sm_mkey *k;

	if (!region_ok(region))
		return EINVAL;
	SM_LOCKED(nic);
	if (sm_mw_bound_to(nic, mr->obj.key))
		return EBUSY;
	k = &nic->keys[mr->obj.key];
	sm_direct_withdraw_key(nic, mr->obj.key);
	if (pd != NULL) {
		mr->obj.pd->obj.users--;
		mr->obj.pd = k->pd = pd;
		pd->obj.users++;
	}
	k->region = *region;
	*key = k->key;
	return 0;
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

/* A segment of a send WQE: in memory, or with its bytes behind its first word. */
struct seg {
	bool in_wqe;
	uint32_t bytes;
	uint32_t units;
};

/* The segment at hand; false: there is none, or the WQE is malformed, or changed meanwhile. */
static inline bool
seg_read(const struct sm_cursor *c, struct seg *s)
{
	uint32_t word;

	if (crpc_unlikely(c->left == 0))
		return false;
	word = sm_be32(c->seg);
	s->in_wqe = (word & MLX5_INLINE_SEG) != 0;
	s->bytes = s->in_wqe ? word & 0x3ff : word;
	s->units = s->in_wqe ? (4 + s->bytes + 15) / 16 : 1;
	return s->units <= c->left && c->off <= s->bytes;
}

/* Use @n bytes, or what the segment has of them, after which the next one is at hand. */
static inline uint32_t
seg_use(struct sm_cursor *c, const struct seg *s, uint32_t n)
{
	uint32_t part = (uint32_t)crpc_min(n, s->bytes - c->off);

	c->off += part;
	if (c->off == s->bytes)
		cursor_next(c, s->units);
	return part;
}

uint64_t
sm_cursor_total(const struct sm_cursor *cur)
{
	struct sm_cursor c = *cur;
	uint64_t total = 0;
	struct seg s;

	for (; c.left != 0; cursor_next(&c, s.units)) {
		if (!seg_read(&c, &s))
			return UINT64_MAX;
		total += s.bytes;
	}
	return total;
}

bool
sm_cursor_skip(struct sm_cursor *c, uint32_t n)
{
	struct seg s;

	for (; n != 0; n -= seg_use(c, &s, n))
		if (!seg_read(c, &s))
			return false;
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

/* Memory of the segment at hand from the cursor on; NULL: not to be had. */
static inline const void *
seg_mem(const struct sm_nic *nic, const struct sm_qp *qp, const struct sm_cursor *c, uint32_t n)
{
	return sm_mem(nic, qp->made.pd, sm_be32(c->seg + 4), sm_be64(c->seg + 8) + c->off, n, 0);
}

uint32_t
sm_gather(struct sm_nic *nic, struct sm_qp *qp, struct sm_cursor *cur, uint8_t *dst, uint32_t n,
	struct sm_grant *g)
{
	struct seg s;
	uint32_t part;

	for (; n != 0; n -= part) {
		const void *src = NULL;

		if (crpc_unlikely(!seg_read(cur, &s))) /* It changed since it was measured. */
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		part = (uint32_t)crpc_min(n, s.bytes - cur->off);
		if (crpc_unlikely(part == 0)) { /* Nothing to copy, and no key to check. */
			cursor_next(cur, s.units);
			continue;
		}
		if (!s.in_wqe) {
			src = seg_mem(nic, qp, cur, part);
			if (crpc_unlikely(src == NULL))
				return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		}
		if (crpc_unlikely(g != NULL)) {
			if (s.in_wqe || g->nseg == SM_GRANT_SEGS)
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			g->key[g->nseg] = sm_be32(cur->seg + 4) >> 8;
			g->seg[g->nseg++] = (struct sm_seg){(uintptr_t)src, part};
		} else if (s.in_wqe) {
			inline_copy(cur, dst, part);
			dst += part;
		} else {
			sm_count_read(&qp->n, part);
			memcpy(dst, src, part);
			dst += part;
		}
		seg_use(cur, &s, part);
	}
	return 0;
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
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	count = sm_be32(cur->seg);
	lkey = sm_be32(cur->seg + 4);
	if (count == 0) {
		if (lkey == MLX5_INVALID_LKEY) /* Ends a list that is not full. */
			return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
		cursor_next(cur, 1);
		return 0;
	}
	if (crpc_unlikely(cur->off > count))
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	*part = (uint32_t)crpc_min(n, count - cur->off);
	*dst = sm_mem(
		nic, pd, lkey, sm_be64(cur->seg + 8) + cur->off, *part, IBV_ACCESS_LOCAL_WRITE);
	if (crpc_unlikely(*dst == NULL))
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	cur->off += *part;
	if (cur->off == count)
		cursor_next(cur, 1);
	return 0;
}

/*
 * From the helper's thread: a program that ends may unmap memory of a receive before it deregisters
 * it, which a card does not notice. False: it is gone.
 */
static bool
copy_checked(void *dst, const void *src, size_t n)
{
	const struct iovec from = {(void *)(uintptr_t)src, n}, to = {dst, n};

	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)n)
		return true;
	if (errno == EFAULT)
		return false;
	sm_copy(dst, src, n); /* Who may not ask is as trusting as the program's own threads. */
	return true;
}

uint32_t
sm_scatter(struct sm_nic *nic, struct sm_qp *qp, const struct sm_pd *pd, struct sm_cursor *cur,
	const uint8_t *src, uint32_t n, struct sm_pull *pull)
{
	uint32_t part;
	void *dst;

	for (; n != 0; n -= part) {
		uint32_t synd = scatter_next(nic, pd, cur, n, &dst, &part);

		if (crpc_unlikely(synd != 0))
			return synd;
		if (crpc_unlikely(part == 0))
			continue;
		if (crpc_unlikely(pull != NULL)) {
			sm_count_parts(&qp->n, pull->at + pull->pos, part, sm_count_write);
			if (!sm_pull_to(pull, dst, part))
				return pull->syndrome;
			continue;
		}
		sm_count_write(&qp->n, part);
		if (crpc_likely(!crpc_load_relaxed(&nic->helped)))
			sm_copy(dst, src, part);
		else if (!copy_checked(dst, src, part))
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		src += part;
	}
	return 0;
}
