/* SPDX-License-Identifier: BSD-3-Clause */

/* Doorbells: the registers of UAR pages, which programs write and never clear. */
#include <errno.h>

#include "cq.h"

/* Registers of a UAR page: two BlueFlame pairs, and where completion queues are armed. */
#define UAR_CQ_ARM 0x20u
#define UAR_BF 0x800u
#define UAR_BF_STEP 0x100u
/*
 * All queue pairs of a page are looked at when it is quiet, or after this many doorbells; a few a
 * pass, so that a thousand idle ones cost a busy one little.
 */
#define UAR_SWEEP_RUNG 16u
#define UAR_SWEEP_STEP 2u
/** Doorbell registers of a UAR page. */
#define SM_BF_REGS 4u

struct sm_uar {
	struct sm_obj obj; /**< Its users: queue pairs that ring there. */
	uint8_t *page;
	/** What each register held last: another value is a doorbell. */
	uint64_t seen[SM_BF_REGS];
	uint32_t rung;  /**< Doorbells since a look at all QPs began. */
	struct sm_qp *sweep; /**< Where that look goes on; NULL: none is under way. */
	TAILQ_HEAD(, sm_qp) qps;
};

/* The register's second word as we leave it, which is the second one of no WQE. */
#define UAR_NO_BLUEFLAME UINT64_MAX

static inline _Atomic uint64_t *
uar_reg(const struct sm_uar *u, uint32_t i)
{
	return (_Atomic uint64_t *)(void *)(u->page + UAR_BF + i * UAR_BF_STEP);
}

static struct sm_uar *
uar_find(const struct sm_nic *nic, uint32_t id)
{
	struct sm_obj *obj;

	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_UAR], link)
		if (obj->number == id)
			break;
	return (struct sm_uar *)obj;
}

int
sm_uar_add(struct sm_nic *nic, uint32_t page_id, void *page, struct sm_uar **uar)
{
	struct sm_uar *u;

	SM_LOCKED(nic);
	u = sm_obj_new(nic, SM_OBJ_UAR, sizeof(*u), NULL);
	if (u == NULL)
		return ENOMEM;
	u->obj.number = page_id;
	u->page = page;
	for (uint32_t i = 0; i < SM_BF_REGS; i++)
		crpc_store_relaxed(uar_reg(u, i) + 1, UAR_NO_BLUEFLAME);
	TAILQ_INIT(&u->qps);
	*uar = u;
	return 0;
}

bool
sm_uar_join(struct sm_nic *nic, struct sm_qp *qp, uint32_t id)
{
	qp->uar = uar_find(nic, id);
	if (qp->uar == NULL)
		return false;
	TAILQ_INSERT_TAIL(&qp->uar->qps, qp, uar_link);
	qp->uar->obj.users++;
	sm_uar_forget(qp->uar);
	return true;
}

void
sm_uar_leave(struct sm_qp *qp)
{
	struct sm_uar *u = qp->uar;

	if (u == NULL)
		return;
	if (u->sweep == qp)
		u->sweep = TAILQ_NEXT(qp, uar_link);
	TAILQ_REMOVE(&u->qps, qp, uar_link);
	u->obj.users--;
}

/* All queue pairs of a page, in turn: a doorbell can overwrite another one in the same register. */
static void
uar_sweep(struct sm_nic *nic, struct sm_uar *u)
{
	struct sm_qp *qp;

	if (u->sweep == NULL) {
		u->rung = 0;
		u->sweep = TAILQ_FIRST(&u->qps);
	}
	for (uint32_t i = 0; i < UAR_SWEEP_STEP && u->sweep != NULL; i++) {
		qp = u->sweep;
		u->sweep = TAILQ_NEXT(qp, uar_link);
		sm_sq_ring(nic, qp);
	}
}

/* A doorbell that is more than the first word of its WQE is the WQE. */
static inline void
doorbell_count(struct sm_uar *u, uint32_t i, uint32_t qpn_ds, struct sm_qp *qp)
{
	_Atomic uint64_t *second = uar_reg(u, i) + 1;

	qp->n.doorbells++;
	if (crpc_load_relaxed(second) == UAR_NO_BLUEFLAME)
		return;
	crpc_store_relaxed(second, UAR_NO_BLUEFLAME);
	qp->n.blueflame++;
	qp->n.blueflame_blocks += ((qpn_ds & 0x3f) + 3) / 4;
}

/* Not 0: a doorbell was rung. */
static inline uint64_t
uar_changed(const struct sm_uar *u)
{
	return (crpc_load_relaxed(uar_reg(u, 0)) ^ u->seen[0]) |
		(crpc_load_relaxed(uar_reg(u, 1)) ^ u->seen[1]) |
		(crpc_load_relaxed(uar_reg(u, 2)) ^ u->seen[2]) |
		(crpc_load_relaxed(uar_reg(u, 3)) ^ u->seen[3]);
}

/*
 * A doorbell is a change of its register, so that a poll writes nothing: its value holds the index
 * of a WQE and a queue pair, which do not come again before they were served. Where they could,
 * after RESET, sm_uar_forget() clears the registers.
 */
static inline uint32_t
uar_poll(struct sm_nic *nic, struct sm_uar *u)
{
	uint32_t n = 0;

	if (crpc_likely(uar_changed(u) == 0 && u->rung == 0 && u->sweep == NULL))
		return 0;
	for (uint32_t i = 0; i < SM_BF_REGS; i++) {
		/* The doorbell record was written before. */
		uint64_t v = crpc_load_acquire(uar_reg(u, i));
		struct sm_qp *qp;
		uint32_t word;

		if (v == u->seen[i])
			continue;
		u->seen[i] = v;
		n++;
		/* The ctrl segment's second word: qpn << 8 | ds. */
		word = sm_be32((const uint8_t *)&v + 4);
		qp = sm_qp_find(nic, word >> 8);
		if (qp == NULL || qp->uar != u)
			continue;
		doorbell_count(u, i, word, qp);
		sm_sq_ring(nic, qp);
	}
	u->rung += n;
	if (u->sweep != NULL || (u->rung != 0 && (n == 0 || u->rung >= UAR_SWEEP_RUNG)))
		uar_sweep(nic, u);
	return n;
}

void
sm_uar_forget(struct sm_uar *u)
{
	for (uint32_t i = 0; i < SM_BF_REGS; i++) {
		if (crpc_exchange_acq_rel(uar_reg(u, i), 0) != u->seen[i])
			u->rung++;
		u->seen[i] = 0;
	}
}

uint32_t
sm_uars_poll(struct sm_nic *nic)
{
	struct sm_obj *obj, *cq;
	uint32_t n = 0;

	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_UAR], link) {
		struct sm_uar *u = (struct sm_uar *)obj;
		_Atomic uint64_t *arm = (_Atomic uint64_t *)(void *)(u->page + UAR_CQ_ARM);

		if (u->obj.users != 0)
			n += uar_poll(nic, u);
		if (crpc_likely(crpc_load_relaxed(arm) == 0))
			continue;
		crpc_exchange_acq_rel(arm, 0);
		n++;
		/* Which queue was armed stands in the doorbell records alone. */
		TAILQ_FOREACH(cq, &nic->objs[SM_OBJ_CQ], link)
			sm_cq_arm_check(nic, (struct sm_cq *)cq);
	}
	return n;
}

static bool
uar_quiet(const struct sm_uar *u)
{
	return crpc_load_relaxed((_Atomic uint64_t *)(void *)(u->page + UAR_CQ_ARM)) == 0 &&
		uar_changed(u) == 0 && u->rung == 0 && u->sweep == NULL;
}

bool
sm_uars_quiet(const struct sm_nic *nic)
{
	const struct sm_obj *obj;

	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_UAR], link)
		if (!uar_quiet((const struct sm_uar *)obj))
			return false;
	return true;
}
