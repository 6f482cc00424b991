/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "crpc_idle.h"
#include "priv.h"

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
/* Messages for which an acknowledgement may wait while they keep coming. */
#define ACK_HOLD 16u
/*
 * Beyond so many peers those that were silent for so many passes are polled in turn, a few a pass.
 */
#define PEERS_HOT 8u
#define PEER_QUIET 1000u
#define PEERS_COLD 2u
/* enum ibv_mtu */
#define MTU_4096 5u
/* Calls that find the lock taken before the core is offered to its holder. */
#define BUSY_YIELD 64u

void
sm_lock(struct sm_nic *nic)
{
	uint32_t tries = 0;

	atomic_fetch_add_explicit(&nic->waiters, 1, memory_order_relaxed);
	/* L1 pairs with L0 in sm_unlock(). */
	while (crpc_exchange_acq_rel(&nic->lock, 1) != 0) {
		/* Sleep in the end: the holder may be a thread of lower priority on this core. */
		if (++tries < 100)
			crpc_pause();
		else if (tries < 200)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	atomic_fetch_sub_explicit(&nic->waiters, 1, memory_order_relaxed);
}

int
sm_lock_live(struct sm_nic *nic)
{
	sm_lock(nic);
	if (!nic->orphan)
		return 0;
	sm_unlock(nic);
	return EIO;
}

void
sm_nic_flush(struct sm_nic *nic)
{
	if (nic->udp != NULL)
		sm_udp_send(nic);
	if (nic->pcap != NULL)
		sm_pcap_pass(nic);
}

void
sm_unlock(struct sm_nic *nic)
{
	/* L0: everything done under the lock; pairs with L1 and L2. */
	crpc_store_release(&nic->lock, 0);
}

static void
event_nobody(void *user)
{
}

static void
async_nobody(void *user, enum sm_async_type type)
{
}

static void
wires_close(struct sm_nic *nic)
{
	if (nic->wire != NULL)
		sm_wire_close(nic->wire);
	sm_udp_close(nic->udp);
	sm_pcap_close(nic->pcap, false);
	sm_fault_free(nic->fault);
}

/* The net, which gives us a slot whatever the wire is, and what the packets go through. */
static int
wires_open(struct sm_nic *nic, const struct sm_nic_attr *attr)
{
	int rc = sm_wire_open(attr->net, &nic->wire, &nic->slot);

	if (rc != 0)
		return rc;
	rc = sm_fault_create(attr->faults, nic->slot, &nic->fault);
	if (rc == 0 && attr->udp_addr != 0)
		rc = sm_udp_open(attr->udp_addr, nic->slot, &nic->udp);
	if (rc == 0)
		rc = sm_pcap_open(attr->pcap, attr->pcap_epoch_ns, &nic->pcap);
	if (rc != 0) {
		wires_close(nic);
		return rc;
	}
	nic->addr = attr->udp_addr;
	nic->paced = nic->udp != NULL;
	nic->watched = nic->udp != NULL || nic->pcap != NULL;
	nic->lossy = nic->fault != NULL || nic->udp != NULL;
	nic->direct_min = nic->lossy || nic->watched ? 0 : attr->direct;
	nic->direct_kernel = attr->direct_kernel;
	nic->mtu = attr->mtu != 0 ? attr->mtu : MTU_4096;
	nic->device = attr->device;
	nic->devices = attr->devices != 0 ? attr->devices : 1;
	nic->dct_conns = attr->dct_conns != 0 ? attr->dct_conns : SM_DCT_CONNS;
	/* Another host cannot tell us from who had our address and numbers before, but by this. */
	if (nic->udp != NULL && getrandom(&nic->dc_lives, sizeof(nic->dc_lives), 0) < 0)
		nic->dc_lives = (uint32_t)getpid() << 16;
	return 0;
}

int
sm_nic_create(const struct sm_nic_attr *attr, struct sm_nic **nicp)
{
	struct sm_nic *nic;
	int rc;

	if (attr->net == NULL)
		return EINVAL;
	nic = calloc(1, sizeof(*nic));
	if (nic == NULL)
		return ENOMEM;
	nic->qps = calloc(SM_QPS_MAX, sizeof(struct sm_qp *));
	rc = nic->qps == NULL ? ENOMEM : wires_open(nic, attr);
	if (rc == 0 && nic->fault != NULL)
		sm_fault_begin(nic);
	if (rc != 0) {
		free(nic->qps);
		free(nic);
		return rc;
	}
	TAILQ_INIT(&nic->active);
	TAILQ_INIT(&nic->answers);
	TAILQ_INIT(&nic->waiting);
	TAILQ_INIT(&nic->failed);
	TAILQ_INIT(&nic->peers);
	TAILQ_INIT(&nic->hot);
	TAILQ_INIT(&nic->cold);
	TAILQ_INIT(&nic->mws);
	TAILQ_INIT(&nic->mrs);
	TAILQ_INIT(&nic->cqs);
	TAILQ_INIT(&nic->srqs);
	TAILQ_INIT(&nic->pds);
	nic->comp_event = attr->comp_event != NULL ? attr->comp_event : event_nobody;
	nic->async_event = attr->async_event != NULL ? attr->async_event : async_nobody;
	nic->qpn_base = nic->slot << 16;
	memcpy(nic->gid, attr->gid, sizeof(nic->gid));
	nic->rings = sm_wire_rings(nic->wire);
	nic->next_cqn = nic->next_srqn = nic->next_pdn = 1;
	/* Other hosts do not see our generation: a net that is made anew begins elsewhere, too. */
	nic->next_qp = sm_qp_number_first(sm_wire_gen(nic->wire, nic->slot) +
		(nic->udp != NULL ? (uint32_t)getpid() : 0));
	*nicp = nic;
	return 0;
}

static void
conns_free(struct sm_qp *conn)
{
	while (conn != NULL) {
		struct sm_qp *next = LIST_NEXT(conn, conn_link);

		free(conn);
		conn = next;
	}
}

/* Objects that the program left. Their memory may be gone: none of it is touched. */
static void
objects_free(struct sm_nic *nic)
{
	struct sm_cq *cq;
	struct sm_srq *srq;
	struct sm_pd *pd;

	for (uint32_t i = 0; i < SM_QPS_MAX; i++)
		if (nic->qps[i] != NULL) {
			conns_free(nic->qps[i]->conns.lh_first);
			free(nic->qps[i]->swr);
			free(nic->qps[i]);
		}
	conns_free(nic->spare_conns.lh_first);
	sm_mws_free(nic);
	sm_mrs_free(nic);
	while ((cq = TAILQ_FIRST(&nic->cqs)) != NULL) {
		TAILQ_REMOVE(&nic->cqs, cq, link);
		free(cq);
	}
	while ((srq = TAILQ_FIRST(&nic->srqs)) != NULL) {
		TAILQ_REMOVE(&nic->srqs, srq, link);
		free(srq);
	}
	while ((pd = TAILQ_FIRST(&nic->pds)) != NULL) {
		TAILQ_REMOVE(&nic->pds, pd, link);
		free(pd);
	}
}

void
sm_nic_free(struct sm_nic *nic)
{
	struct sm_peer *p;
	struct sm_qp *qp;

	if (nic->orphan) /* See sm_nic_fork_child(). */
		return;
	/* What was received is acknowledged, or the other side would see a failure. */
	TAILQ_FOREACH(qp, &nic->answers, answer_link)
		sm_resp_settle(nic, qp);
	sm_nic_flush(nic);
	while ((p = TAILQ_FIRST(&nic->peers)) != NULL)
		sm_peer_free(nic, p);
	wires_close(nic);
	objects_free(nic);
	for (uint32_t i = 0; i < nic->nuars; i++)
		free(nic->uars[i]);
	free(nic->uars);
	free(nic->keys);
	free(nic->qps);
	free(nic);
}

uint32_t
sm_nic_slot(const struct sm_nic *nic)
{
	return nic->slot;
}

void
sm_nic_fork_child(struct sm_nic *nic)
{
	/*
	 * The thread that held the lock, if one did, does not exist here, and what it was changing
	 * stays half changed: no list is walked and no object freed. What is dropped was made with
	 * the nic.
	 */
	crpc_store_relaxed(&nic->lock, 0);
	crpc_store_relaxed(&nic->waiters, 0);
	if (nic->orphan)
		return;
	nic->orphan = nic->stopped = true;
	sm_direct_fork_child();
	sm_wire_fork_child(nic->wire);
	sm_udp_close(nic->udp);
	sm_pcap_close(nic->pcap, true);
	nic->wire = NULL;
	nic->udp = NULL;
	nic->pcap = NULL;
}

void
sm_nic_vanish(struct sm_nic *nic)
{
	struct sm_qp *qp;

	if (sm_lock_live(nic) != 0)
		return;
	nic->vanished = nic->stopped = true;
	TAILQ_FOREACH(qp, &nic->answers, answer_link)
		qp->answering = false;
	TAILQ_INIT(&nic->answers);
	sm_wire_vanish(nic->wire);
	sm_unlock(nic);
}

/* The register's second word as we leave it, which is the second one of no WQE. */
#define UAR_NO_BLUEFLAME UINT64_MAX

static inline _Atomic uint64_t *
uar_reg(const struct sm_uar *u, uint32_t i)
{
	return (_Atomic uint64_t *)(void *)(u->page + UAR_BF + i * UAR_BF_STEP);
}

int
sm_uar_add(struct sm_nic *nic, uint32_t page_id, void *page)
{
	struct sm_uar **uars, *u = calloc(1, sizeof(*u));
	int rc = 0;

	if (u == NULL)
		return ENOMEM;
	u->id = page_id;
	u->page = page;
	for (uint32_t i = 0; i < SM_BF_REGS; i++)
		crpc_store_relaxed(uar_reg(u, i) + 1, UAR_NO_BLUEFLAME);
	TAILQ_INIT(&u->qps);
	if (sm_lock_live(nic) != 0) {
		free(u);
		return EIO;
	}
	for (uint32_t i = 0; i < nic->nuars; i++)
		if (nic->uars[i]->id == page_id)
			rc = EEXIST;
	uars = rc == 0 ? realloc(nic->uars, (nic->nuars + 1) * sizeof(struct sm_uar *)) : NULL;
	if (uars != NULL) {
		uars[nic->nuars++] = u;
		nic->uars = uars;
	}
	sm_unlock(nic);
	if (uars != NULL)
		return 0;
	free(u);
	return rc != 0 ? rc : ENOMEM;
}

int
sm_uar_del(struct sm_nic *nic, uint32_t page_id)
{
	int rc = ENOENT;

	if (sm_lock_live(nic) != 0)
		return EIO;
	for (uint32_t i = 0; i < nic->nuars; i++) {
		if (nic->uars[i]->id != page_id)
			continue;
		rc = nic->uars[i]->nqps != 0 ? EBUSY : 0;
		if (rc == 0) {
			free(nic->uars[i]);
			nic->uars[i] = nic->uars[--nic->nuars];
		}
		break;
	}
	sm_unlock(nic);
	return rc;
}

int
sm_pd_create(struct sm_nic *nic, struct sm_pd **pd, uint32_t *pdn)
{
	struct sm_pd *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return ENOMEM;
	if (sm_lock_live(nic) != 0) {
		free(p);
		return EIO;
	}
	p->pdn = nic->next_pdn++ & 0xffffff;
	TAILQ_INSERT_TAIL(&nic->pds, p, link);
	*pdn = p->pdn;
	*pd = p;
	sm_unlock(nic);
	return 0;
}

int
sm_pd_destroy(struct sm_nic *nic, struct sm_pd *pd)
{
	if (sm_lock_live(nic) != 0)
		return EIO;
	if (pd->users != 0) {
		sm_unlock(nic);
		return EBUSY;
	}
	TAILQ_REMOVE(&nic->pds, pd, link);
	sm_unlock(nic);
	free(pd);
	return 0;
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

/*
 * A doorbell is a change of its register, so that a poll writes nothing: its value holds the index
 * of a WQE and a queue pair, which do not come again before they were served. Where they could,
 * after RESET, sm_uar_forget() clears the registers.
 */
static inline uint32_t
uar_poll(struct sm_nic *nic, struct sm_uar *u)
{
	uint64_t changed;
	uint32_t n = 0;

	changed = (crpc_load_relaxed(uar_reg(u, 0)) ^ u->seen[0]) |
		(crpc_load_relaxed(uar_reg(u, 1)) ^ u->seen[1]) |
		(crpc_load_relaxed(uar_reg(u, 2)) ^ u->seen[2]) |
		(crpc_load_relaxed(uar_reg(u, 3)) ^ u->seen[3]);
	if (crpc_likely(changed == 0 && u->rung == 0 && u->sweep == NULL))
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

static uint32_t
doorbells(struct sm_nic *nic)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nic->nuars; i++) {
		struct sm_uar *u = nic->uars[i];
		_Atomic uint64_t *arm = (_Atomic uint64_t *)(void *)(u->page + UAR_CQ_ARM);
		struct sm_cq *cq;

		if (u->nqps != 0)
			n += uar_poll(nic, u);
		if (crpc_likely(crpc_load_relaxed(arm) == 0))
			continue;
		crpc_exchange_acq_rel(arm, 0);
		n++;
		/* Which queue was armed stands in the doorbell records alone. */
		TAILQ_FOREACH(cq, &nic->cqs, link)
			sm_cq_arm_check(nic, cq);
	}
	return n;
}

static void
send_pass(struct sm_nic *nic)
{
	struct sm_qp *last, *qp = NULL;

	if (crpc_likely(TAILQ_EMPTY(&nic->active)))
		return;
	last = TAILQ_LAST(&nic->active, sm_qp_list);
	/* Once round: who is not done goes to the end. */
	while (qp != last && (qp = TAILQ_FIRST(&nic->active)) != NULL) {
		bool more;

		TAILQ_REMOVE(&nic->active, qp, active_link);
		qp->active = false;
		more = sm_sq_serve(nic, qp);
		if (more && !qp->active) {
			qp->active = true;
			TAILQ_INSERT_TAIL(&nic->active, qp, active_link);
		}
	}
}

static uint32_t
receive_pass(struct sm_nic *nic)
{
	uint32_t n = 0, rings = crpc_load_acquire(nic->rings); /* R1 pairs with R0. */
	struct sm_peer *p, *next;

	if (crpc_unlikely(rings != nic->rings_seen)) {
		nic->rings_seen = rings;
		sm_peer_discover(nic);
	}
	if (crpc_unlikely(nic->udp != NULL))
		n += sm_udp_receive(nic);
	for (p = TAILQ_FIRST(&nic->hot); p != NULL; p = next) {
		next = TAILQ_NEXT(p, poll_link);
		n += sm_peer_poll(nic, p);
		if (crpc_unlikely(p->quiet > PEER_QUIET && nic->nhot > PEERS_HOT))
			sm_peer_polled(nic, p, SM_POLLED_COLD);
	}
	for (uint32_t i = 0; i < PEERS_COLD && i < nic->ncold; i++) {
		uint32_t got;

		p = TAILQ_FIRST(&nic->cold);
		got = sm_peer_poll(nic, p);
		n += got;
		if (p->polled != SM_POLLED_NEVER)
			sm_peer_polled(nic, p, got != 0 ? SM_POLLED_HOT : SM_POLLED_COLD);
	}
	return n;
}

/* In a stream an acknowledgement waits one pass for the next message, and so on, to ACK_HOLD. */
static bool
answer_held(struct sm_qp *qp)
{
	if (qp->unacked == qp->held || qp->unacked >= ACK_HOLD || !qp->peer->was_busy ||
		qp->peer->self || qp->nak != 0 || qp->ans_head != qp->ans_tail)
		return false;
	qp->held = qp->unacked;
	return true;
}

static void
answer_pass(struct sm_nic *nic)
{
	struct sm_qp *qp, *next;

	for (qp = TAILQ_FIRST(&nic->answers); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, answer_link);
		if (answer_held(qp) || !sm_resp_serve(nic, qp))
			continue;
		TAILQ_REMOVE(&nic->answers, qp, answer_link);
		qp->answering = false;
	}
}

static void
timer_pass(struct sm_nic *nic, uint32_t work)
{
	struct sm_qp *qp, *next;

	for (qp = TAILQ_FIRST(&nic->waiting); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, wait_link);
		sm_sq_timer(nic, qp);
	}
	if (crpc_likely(nic->now < nic->alive_at))
		return;
	if (crpc_unlikely(nic->lossy)) {
		if (nic->fault != NULL)
			sm_fault_pass(nic, work); /* In each pass, as the timers. */
		sm_retry_timers(nic);
		if (nic->now < nic->check_at)
			return;
		nic->check_at = nic->now + SM_ALIVE_NS;
	} else {
		nic->alive_at = nic->now + SM_ALIVE_NS;
	}
	sm_peer_check(nic);
}

/* Work posted to a queue pair in error is completed whether it is announced or not. */
static uint32_t
failed_pass(struct sm_nic *nic)
{
	struct sm_qp *qp;
	uint32_t n = 0;

	TAILQ_FOREACH(qp, &nic->failed, failed_link)
		n += sm_qp_flush(nic, qp);
	return n;
}

static void
event_pass(struct sm_nic *nic)
{
	struct sm_cq *cq;

	while ((cq = nic->touched) != NULL) {
		nic->touched = cq->next_touched;
		cq->touched = false;
		sm_cq_arm_check(nic, cq);
	}
}

/*
 * Another thread has the lock or is to have it. It does not keep it for long, unless it waits for
 * our core: then nothing moves before we leave it.
 */
static crpc_noinline uint32_t
progress_busy(struct sm_nic *nic)
{
	uint32_t n = crpc_load_relaxed(&nic->busy) + 1;

	crpc_store_relaxed(&nic->busy, n);
	if (n % BUSY_YIELD == 0)
		sched_yield();
	else
		crpc_pause();
	return 0;
}

static crpc_noinline bool
stands_still(struct sm_nic *nic, uint64_t now)
{
	return nic->orphan || nic->vanished || sm_fault_stops(nic->fault, now);
}

uint32_t
sm_nic_progress(struct sm_nic *nic, uint64_t now_ns)
{
	uint32_t work;

	/* L2 pairs with L0 in sm_unlock(). */
	if (crpc_unlikely(crpc_load_relaxed(&nic->waiters) != 0 ||
			  crpc_exchange_acq_rel(&nic->lock, 1) != 0))
		return progress_busy(nic);
	if (crpc_unlikely(nic->stopped) && stands_still(nic, now_ns)) {
		sm_unlock(nic);
		return 0;
	}
	nic->now = crpc_max(nic->now, now_ns);
	nic->work = 0;
	send_pass(nic);
	work = doorbells(nic) + receive_pass(nic);
	answer_pass(nic);
	timer_pass(nic, work);
	work += failed_pass(nic) + nic->work;
	if (crpc_unlikely(nic->watched))
		sm_nic_flush(nic);
	event_pass(nic);
	sm_unlock(nic);
	return work;
}

static bool
uar_quiet(const struct sm_uar *u)
{
	if (crpc_load_relaxed((_Atomic uint64_t *)(void *)(u->page + UAR_CQ_ARM)) != 0)
		return false;
	for (uint32_t i = 0; i < SM_BF_REGS; i++)
		if (crpc_load_relaxed(uar_reg(u, i)) != u->seen[i])
			return false;
	return u->rung == 0 && u->sweep == NULL;
}

bool
sm_nic_idle(struct sm_nic *nic)
{
	struct sm_peer *p;
	uint32_t head;
	bool idle;

	sm_lock(nic);
	idle = nic->orphan ||
		(TAILQ_EMPTY(&nic->active) && TAILQ_EMPTY(&nic->answers) &&
			nic->rings_seen == crpc_load_acquire(nic->rings));
	for (uint32_t i = 0; idle && !nic->orphan && i < nic->nuars; i++)
		idle = uar_quiet(nic->uars[i]);
	TAILQ_FOREACH(p, &nic->peers, link) {
		struct sm_rx *rx = p->rx.ring != NULL ? &p->rx : &p->out;

		if (idle && !nic->orphan && !p->dead && rx->ring != NULL &&
			(p->nlate != 0 || sm_rx_peek(rx, &head) != NULL))
			idle = false;
	}
	sm_unlock(nic);
	return idle;
}
