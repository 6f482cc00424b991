/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory windows: a key of its own to a part of a region, given and taken by work requests.
 *
 * A window's key lies in the table of keys beside those of regions. Where a region has its domain
 * the window has itself, tagged, so that the comparison by which a region's key is checked fails
 * and leads to sm_mem_window(), and no local access ever fits a window.
 *
 *     sm_mw_create -> free --UMR--> bound --UMR of length 0, LOCAL_INV, SEND_WITH_INV--> free
 *                             |        |
 *                             +- type 1: bound again, with the next key
 */
#include <errno.h>

#include "qp.h"

#define ACCESS_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define TAG ((uintptr_t)1)

/* Of struct mlx5_wqe_umr_ctrl_seg, mlx5_wqe_mkey_context_seg and the KLM behind them. */
#define UMR_MKEY_AT 48u
#define UMR_KLM_AT (UMR_MKEY_AT + 64u)
#define AT(member, at) (offsetof(struct mlx5_wqe_mkey_context_seg, member) == (at))
_Static_assert(sizeof(struct mlx5_wqe_umr_ctrl_seg) == UMR_MKEY_AT, "PRM");
_Static_assert(sizeof(struct mlx5_wqe_mkey_context_seg) == 64 && AT(access_flags, 2) &&
		AT(qpn_mkey, 4) && AT(start_addr, 16) && AT(len, 24),
	"PRM");

struct sm_mw {
	struct sm_obj obj;
	uint32_t parent; /* Index of the region's key, while it is bound ... */
	uint32_t qpn;    /* ... and the queue pair that bound it: type 2 is for it alone. */
	uint8_t type;
	bool bound;
};

/* The window whose key this is, or NULL. */
static struct sm_mw *
mw_of(const struct sm_mkey *k)
{
	uintptr_t p = (uintptr_t)k->pd;

	return (p & TAG) != 0 ? (struct sm_mw *)(p - TAG) : NULL;
}

int
sm_mw_create(struct sm_nic *nic, struct sm_pd *pd, uint8_t type, struct sm_mw **mwp, uint32_t *rkey)
{
	struct sm_mw *mw;
	struct sm_mkey *k;

	if (type != 1 && type != 2)
		return EINVAL;
	SM_LOCKED(nic);
	mw = sm_obj_new(nic, SM_OBJ_MW, sizeof(*mw), pd);
	if (mw == NULL)
		return ENOMEM;
	mw->type = type;
	k = &nic->keys[mw->obj.key];
	*k = (struct sm_mkey){.pd = (struct sm_pd *)((uintptr_t)mw | TAG), .key = k->key};
	*rkey = k->key;
	*mwp = mw;
	return 0;
}

bool
sm_mw_bound_to(const struct sm_nic *nic, uint32_t index)
{
	const struct sm_obj *obj;
	const struct sm_mw *mw;

	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_MW], link) {
		mw = (const struct sm_mw *)obj;
		if (mw->bound && mw->parent == index)
			return true;
	}
	return false;
}

crpc_noinline void *
sm_mem_window(const struct sm_nic *nic, const struct sm_pd *pd, const struct sm_mkey *k,
	uint32_t key, uint64_t va, uint64_t len, uint32_t access)
{
	const struct sm_mw *mw = mw_of(k);

	if (mw == NULL || !mw->bound || mw->obj.pd != pd || k->key != key ||
		(access & ACCESS_REMOTE) == 0 || (k->region.access & access) != access ||
		(mw->type == 2 && nic->serving->qpn != mw->qpn))
		return NULL;
	return sm_key_at(k, va, len);
}

/* A window of the domain by any of its keys, or NULL. */
static struct sm_mw *
mw_find(const struct sm_nic *nic, const struct sm_pd *pd, uint32_t key)
{
	struct sm_mw *mw = key >> 8 < nic->nkeys ? mw_of(&nic->keys[key >> 8]) : NULL;

	return mw != NULL && mw->obj.pd == pd ? mw : NULL;
}

static uint32_t
access_of(uint8_t flags)
{
	return (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
		(flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE
									 : 0) |
		(flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ
									: 0);
}

/* The memory of a bind, if its region allows it; NULL. */
static void *
parent_of(const struct sm_nic *nic, const struct sm_mw *mw, uint32_t lkey, uint64_t addr,
	uint64_t len, uint32_t access)
{
	const struct sm_mkey *p = lkey >> 8 < nic->nkeys ? &nic->keys[lkey >> 8] : NULL;

	if (p == NULL || p->pd != mw->obj.pd || p->key != lkey ||
		(p->region.access & IBV_ACCESS_MW_BIND) == 0)
		return NULL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
		(p->region.access & IBV_ACCESS_LOCAL_WRITE) == 0)
		return NULL;
	return sm_key_at(p, addr, len);
}

static uint32_t
bind(struct sm_nic *nic, struct sm_mw *mw, uint32_t qpn, const uint8_t *umr, uint32_t units)
{
	const uint8_t *mkey = umr + UMR_MKEY_AT, *klm = umr + UMR_KLM_AT;
	uint32_t variant = sm_be32(mkey + 4) & 0xff, access = access_of(mkey[2]);
	uint64_t addr = sm_be64(mkey + 16), len = sm_be64(mkey + 24);
	struct sm_mkey *k = &nic->keys[mw->obj.key];
	void *base;

	if (units * 16 < UMR_KLM_AT + 16 || (umr[0] & MLX5_WQE_UMR_CTRL_FLAG_INLINE) == 0)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (mw->type == 2 && mw->bound)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	base = parent_of(nic, mw, sm_be32(klm + 4), addr, len, access);
	if (base == NULL)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	k->region = (struct sm_region){(uintptr_t)base, len, addr, access};
	k->key = mw->obj.key << 8 | variant;
	mw->parent = sm_be32(klm + 4) >> 8;
	mw->qpn = qpn;
	mw->bound = true;
	return 0;
}

uint32_t
sm_mw_umr(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key, const uint8_t *umr,
	uint32_t units)
{
	struct sm_mw *mw = mw_find(nic, qp->made.pd, key);

	if (units * 16 < UMR_KLM_AT)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (mw == NULL)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	if ((umr[UMR_MKEY_AT] & MLX5_WQE_MKEY_CONTEXT_FREE) == 0)
		return bind(nic, mw, qp->qpn, umr, units);
	if (mw->type == 1) /* Bound to nothing, with the next key. */
		nic->keys[mw->obj.key].key =
			mw->obj.key << 8 | (sm_be32(umr + UMR_MKEY_AT + 4) & 0xff);
	else if (!mw->bound || nic->keys[mw->obj.key].key != key || mw->qpn != qp->qpn)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	mw->bound = false;
	return 0;
}

bool
sm_mw_invalidate(struct sm_nic *nic, const struct sm_qp *qp, uint32_t key)
{
	struct sm_mw *mw = mw_find(nic, qp->made.pd, key);

	if (mw == NULL || mw->type != 2 || !mw->bound || mw->qpn != qp->qpn ||
		nic->keys[mw->obj.key].key != key)
		return false;
	mw->bound = false;
	return true;
}
