/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "crpc_idle.h"
#include "cq.h"
#include "fault.h"
#include "pcap.h"
#include "wire_udp.h"

/* Messages for which an acknowledgement may wait while they keep coming. */
#define ACK_HOLD 16u
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

void
sm_nic_flush(struct sm_nic *nic)
{
	if (crpc_unlikely(nic->udp != NULL))
		sm_udp_send(nic);
	if (crpc_unlikely(nic->pcap != NULL))
		sm_pcap_flush(nic->pcap);
}

void
sm_unlock(struct sm_nic *nic)
{
	/* L0: everything done under the lock; pairs with L1 and L2. */
	crpc_store_release(&nic->lock, 0);
}

/* The net, which gives us a slot whatever the wire is, and what the packets go through. */
static int
wires_open(struct sm_nic *nic, const struct sm_nic_attr *attr)
{
	int rc = sm_wire_open(attr->net, &nic->wire, &nic->slot);

	if (rc == 0 && attr->udp_addr != 0)
		rc = sm_udp_open(attr->udp_addr, nic->slot, &nic->udp);
	nic->lossy = nic->udp != NULL;
	if (rc == 0 && attr->faults != NULL && attr->faults[0] != '\0')
		rc = sm_nic_faults(nic, attr->faults);
	if (rc == 0) /* Last: what else is wrong leaves no file. */
		rc = sm_pcap_open(attr->pcap, attr->pcap_epoch_ns, &nic->pcap);
	if (rc != 0)
		return rc;
	if (nic->udp != NULL || nic->pcap != NULL)
		nic->attr.direct = 0;
	nic->qpn_base = nic->slot << 16;
	nic->rings = sm_wire_rings(nic->wire);
	/* Other hosts do not see our generation: a net that is made again begins elsewhere, too. */
	nic->next_qp = sm_qp_number_first(
		sm_wire_gen(nic->wire, nic->slot) + (nic->udp != NULL ? (uint32_t)getpid() : 0));
	/* By this alone another host distinguishes us from who had our address and numbers. */
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
	nic->attr = *attr;
	nic->attr.mtu = attr->mtu != 0 ? attr->mtu : IBV_MTU_4096;
	nic->attr.pkeys = attr->pkeys != 0 ? attr->pkeys : 1;
	nic->attr.lid = attr->lid != 0 ? attr->lid : SM_LID;
	nic->attr.ethernet |= attr->udp_addr != 0;
	nic->attr.devices = attr->devices != 0 ? attr->devices : 1;
	nic->attr.dct_conns = attr->dct_conns != 0 ? attr->dct_conns : SM_DCT_CONNS;
	TAILQ_INIT(&nic->peers);
	for (uint32_t i = 0; i < SM_TURNS; i++)
		TAILQ_INIT(&nic->turn[i]);
	for (uint32_t i = 0; i < SM_OBJ_KINDS; i++) {
		TAILQ_INIT(&nic->objs[i]);
		nic->next_number[i] = 1;
	}
	rc = wires_open(nic, attr);
	if (rc != 0)
		sm_nic_free(nic);
	else
		*nicp = nic;
	return rc;
}

static void
conns_free(struct sm_qp *conn)
{
	while (conn != NULL) {
		struct sm_qp *next = LIST_NEXT(conn, dc.link);

		free(conn);
		conn = next;
	}
}

/* Objects that the program left. Their memory may be gone: none of it is touched. */
static void
objects_free(struct sm_nic *nic)
{
	struct sm_obj *obj;

	TAILQ_FOREACH (obj, &nic->objs[SM_OBJ_QP], link) {
		conns_free(((struct sm_qp *)obj)->dc.conns.lh_first);
		free(((struct sm_qp *)obj)->req.swr);
	}
	for (uint32_t i = 0; i < SM_OBJ_KINDS; i++)
		while ((obj = TAILQ_FIRST(&nic->objs[i])) != NULL) {
			TAILQ_REMOVE(&nic->objs[i], obj, link);
			free(obj);
		}
}

void
sm_nic_free(struct sm_nic *nic)
{
	struct sm_peer *p;
	struct sm_qp *qp;

	/* What was received is acknowledged, or the other side would see a failure. */
	TAILQ_FOREACH (qp, &nic->turn[SM_TURN_ANSWER], turn_link[SM_TURN_ANSWER])
		sm_resp_settle(nic, qp);
	sm_nic_flush(nic);
	while ((p = TAILQ_FIRST(&nic->peers)) != NULL)
		sm_peer_free(nic, p);
	if (nic->wire != NULL)
		sm_wire_close(nic->wire);
	sm_udp_close(nic->udp);
	sm_pcap_close(nic->pcap, false);
	free(nic->fault);
	objects_free(nic);
	free(nic->keys);
	free(nic);
}

void
sm_nic_lid(struct sm_nic *nic, uint16_t first)
{
	SM_LOCKED(nic);
	nic->attr.lid = first;
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
	sm_direct_fork_child();
	sm_wire_fork_child(nic->wire);
	sm_udp_close(nic->udp);
	sm_pcap_close(nic->pcap, true);
}

void
sm_nic_vanish(struct sm_nic *nic)
{
	struct sm_qp *qp;

	SM_LOCKED(nic);
	nic->vanished = true;
	while ((qp = TAILQ_FIRST(&nic->turn[SM_TURN_ANSWER])) != NULL)
		sm_turn_del(nic, qp, SM_TURN_ANSWER);
	sm_wire_vanish(nic->wire);
}

static bool
has_key(enum sm_obj_kind kind)
{
	return kind == SM_OBJ_MR || kind == SM_OBJ_MW;
}

void *
sm_obj_new(struct sm_nic *nic, enum sm_obj_kind kind, size_t size, struct sm_pd *pd)
{
	struct sm_obj *obj = calloc(1, size);

	if (obj == NULL)
		return NULL;
	if (has_key(kind) && sm_key_alloc(nic, &obj->key) != 0) {
		free(obj);
		return NULL;
	}
	obj->kind = (uint8_t)kind;
	obj->number = nic->next_number[kind]++ & 0xffffff;
	obj->pd = pd;
	if (pd != NULL)
		pd->obj.users++;
	TAILQ_INSERT_TAIL(&nic->objs[kind], obj, link);
	return obj;
}

void
sm_obj_free(struct sm_nic *nic, struct sm_obj *obj)
{
	if (obj->pd != NULL)
		obj->pd->obj.users--;
	TAILQ_REMOVE(&nic->objs[obj->kind], obj, link);
	if (obj->kind == SM_OBJ_MR)
		sm_direct_withdraw_key(nic, obj->key);
	if (has_key((enum sm_obj_kind)obj->kind))
		sm_key_free(nic, obj->key);
	if (obj->kind == SM_OBJ_CQ)
		sm_cq_forget(nic, (struct sm_cq *)obj);
	if (obj->kind == SM_OBJ_QP)
		sm_qp_forget(nic, (struct sm_qp *)obj);
	free(obj);
}

int
sm_destroy(struct sm_nic *nic, void *made)
{
	struct sm_obj *obj = made;

	SM_LOCKED(nic);
	if (obj->users != 0 || (obj->kind == SM_OBJ_MR && sm_mw_bound_to(nic, obj->key)))
		return EBUSY;
	sm_obj_free(nic, obj);
	return 0;
}

int
sm_pd_create(struct sm_nic *nic, struct sm_pd **pd, uint32_t *pdn)
{
	struct sm_pd *p;

	SM_LOCKED(nic);
	p = sm_obj_new(nic, SM_OBJ_PD, sizeof(*p), NULL);
	if (p == NULL)
		return ENOMEM;
	*pdn = p->obj.number;
	*pd = p;
	return 0;
}

int
sm_ah_create(struct sm_nic *nic, struct sm_pd *pd, void **ah)
{
	SM_LOCKED(nic);
	*ah = sm_obj_new(nic, SM_OBJ_AH, sizeof(struct sm_obj), pd);
	return *ah != NULL ? 0 : ENOMEM;
}

static void
send_pass(struct sm_nic *nic)
{
	struct sm_qp_list *list = &nic->turn[SM_TURN_SEND];
	struct sm_qp *last, *qp = NULL;

	if (crpc_likely(TAILQ_EMPTY(list)))
		return;
	last = TAILQ_LAST(list, sm_qp_list);
	/* Once round: who is not done goes to the end. */
	while (qp != last && (qp = TAILQ_FIRST(list)) != NULL) {
		sm_turn_del(nic, qp, SM_TURN_SEND);
		if (sm_sq_serve(nic, qp))
			sm_turn_add(nic, qp, SM_TURN_SEND);
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
	SM_FOREACH_SAFE (p, &nic->peers, link, next)
		if (sm_peer_is_heard(p))
			n += sm_peer_poll(nic, p);
	return n;
}

/* In a stream an acknowledgement waits one pass for the next message, and so on, to ACK_HOLD. */
static bool
answer_held(struct sm_qp *qp)
{
	if (qp->resp.unacked == qp->resp.held || qp->resp.unacked >= ACK_HOLD ||
		!qp->peer->was_busy || qp->peer->self || qp->resp.nak != 0 ||
		qp->resp.ans_head != qp->resp.ans_tail)
		return false;
	qp->resp.held = qp->resp.unacked;
	return true;
}

static void
answer_pass(struct sm_nic *nic)
{
	struct sm_qp *qp, *next;

	SM_FOREACH_SAFE (qp, &nic->turn[SM_TURN_ANSWER], turn_link[SM_TURN_ANSWER], next)
		if (!answer_held(qp) && sm_resp_serve(nic, qp))
			sm_turn_del(nic, qp, SM_TURN_ANSWER);
}

static void
timer_pass(struct sm_nic *nic, uint32_t work)
{
	struct sm_qp *qp, *next;

	SM_FOREACH_SAFE (qp, &nic->turn[SM_TURN_WAIT], turn_link[SM_TURN_WAIT], next)
		sm_sq_timer(nic, qp);
	if (crpc_unlikely(nic->fault != NULL))
		sm_fault_pass(nic, work);
	if (crpc_unlikely(nic->lossy))
		sm_retry_timers(nic);
	if (crpc_likely(nic->now < nic->check_at))
		return;
	nic->check_at = nic->now + SM_ALIVE_NS;
	sm_peer_check(nic);
}

/* Work posted to a queue pair in error is completed whether it is announced or not. */
static uint32_t
failed_pass(struct sm_nic *nic)
{
	struct sm_qp *qp;
	uint32_t n = 0;

	TAILQ_FOREACH (qp, &nic->turn[SM_TURN_FLUSH], turn_link[SM_TURN_FLUSH])
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

void
sm_nic_helped(struct sm_nic *nic, bool helped)
{
	crpc_store_relaxed(&nic->helped, helped);
}

uint32_t
sm_nic_progress(struct sm_nic *nic, uint64_t now_ns)
{
	uint32_t work;

	/* L2 pairs with L0 in sm_unlock(). */
	if (crpc_unlikely(crpc_load_relaxed(&nic->waiters) != 0 ||
		    crpc_exchange_acq_rel(&nic->lock, 1) != 0))
		return progress_busy(nic);
	if (crpc_unlikely(nic->vanished ||
		    (nic->fault != NULL && sm_fault_stops(nic->fault, now_ns)))) {
		sm_unlock(nic);
		return 0;
	}
	nic->now = crpc_max(nic->now, now_ns);
	nic->work = 0;
	send_pass(nic);
	work = sm_uars_poll(nic) + receive_pass(nic);
	answer_pass(nic);
	timer_pass(nic, work);
	work += failed_pass(nic) + nic->work;
	sm_nic_flush(nic);
	event_pass(nic);
	sm_unlock(nic);
	return work;
}

bool
sm_nic_idle(struct sm_nic *nic)
{
	struct sm_peer *p;
	uint32_t head;

	SM_LOCKED(nic);
	TAILQ_FOREACH (p, &nic->peers, link) {
		struct sm_rx *rx = p->rx.ring != NULL ? &p->rx : &p->out;

		if (!p->dead && rx->ring != NULL &&
			(p->nlate != 0 || sm_rx_peek(rx, &head) != NULL))
			return false;
	}
	return TAILQ_EMPTY(&nic->turn[SM_TURN_SEND]) && TAILQ_EMPTY(&nic->turn[SM_TURN_ANSWER]) &&
		nic->rings_seen == crpc_load_acquire(nic->rings) && sm_uars_quiet(nic);
}
