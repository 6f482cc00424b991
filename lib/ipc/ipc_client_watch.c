/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's look around: deadlines that passed, a server that sleeps on us, or is gone. */
#include <errno.h>
#include <time.h>

#include "crpc_log.h"
#include "ipc_client_watch.h"

uint64_t
__crpc_ipc_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- a server that sleeps on us ---- */

void
__crpc_ipc_ring_bell(struct ipc_bell *bell, uint32_t id)
{
	/* R6 pairs with A6 in take_bell(): what we did, then our bit, then its summary. */
	CRPC_CRASH_POINT("ipc.ring.1");
	crpc_fetch_or_acq_rel(&bell->word[id / 64], UINT64_C(1) << id % 64);
	CRPC_CRASH_POINT("ipc.ring.2");
	crpc_fetch_or_acq_rel(&bell->summary, UINT64_C(1) << id / 64);
	CRPC_CRASH_POINT("ipc.ring.3");
}

crpc_noinline void
__crpc_ipc_ring(struct crpc_ipc_client *c, uint32_t sleep)
{
	c->sleep_seen = sleep;
	if ((sleep & 1) == 0)
		return;
	c->stats.rings++;
	__crpc_ipc_ring_bell(c->bell, c->id);
}

void
__crpc_ipc_announce(struct crpc_ipc_client *c)
{
	uint32_t sleep;

	if (c->announced == (uint32_t)c->req_seq)
		return;
	c->announced = (uint32_t)c->req_seq;
	CRPC_CRASH_POINT("ipc.announce.1");
	crpc_exchange_seq_cst(&c->ctl->announced, c->announced - 1); /* C3 */
	CRPC_CRASH_POINT("ipc.announce.2");
	sleep = crpc_load_seq_cst(c->sleep);                         /* C4 */
	if (sleep != c->sleep_seen)
		__crpc_ipc_ring(c, sleep); /* C5 */
}

/* ---- sequence numbers that come round ---- */

void
__crpc_ipc_age_slots(struct crpc_ipc_client *c)
{
	uint32_t slot;

	c->aged = (uint32_t)c->req_seq;
	for (slot = 0; slot <= c->req_mask; slot++)
		c->calls[slot].state |= IPC_CALL_OLD;
	/* This one is promised already. */
	c->calls[c->next_slot].state = 0;
	ipc_spoil(c->next, (uint32_t)c->req_seq);
}

/* ---- a server that is gone ---- */

static void
give_up(struct crpc_ipc_client *c, int32_t status, const char *why)
{
	crpc_err("%s: client %u: %s; %u calls fail; close it and connect anew",
			crpc_shm_path(c->seg), c->id, why, crpc_ipc_client_open(c));
	c->status = status;
	c->room = 0;
	c->lone_end = 0;
	c->countdown = 1;
}

void
__crpc_ipc_bad_answer(struct crpc_ipc_client *c)
{
	if (c->status != -EPROTO)
		give_up(c, -EPROTO, "the server answered what was not asked");
}

static void
check_server(struct crpc_ipc_client *c, uint64_t now)
{
	c->stats.polls += CRPC_IPC_CHECK_POLLS;
	c->stats.beats = crpc_load_relaxed(c->beat);
	/* A5 pairs with R5 in __crpc_ipc_drop(). */
	if (crpc_load_acquire(&c->ctl->verdict) != 0) {
		give_up(c, -EPROTO, "the server dropped it for breaking the protocol");
		return;
	}
	if (crpc_load_acquire(&crpc_shm_header(c->seg)->state) == CRPC_SHM_CLOSED) {
		give_up(c, -ECONNRESET, "the server closed the segment");
		return;
	}
	if (now - c->probed_ns < c->probe_ns)
		return;
	c->probed_ns = now;
	c->stats.probes++;
	/* A stopped server keeps its lock: it is late, not dead. */
	if (!crpc_shm_owner_alive(c->seg))
		give_up(c, -ECONNRESET, "the server died");
}

/* True if a call waits for its completion in this state. */
static bool
is_waiting(uint64_t state)
{
	return (state & (IPC_CALL_OPEN | IPC_CALL_ONEWAY | IPC_CALL_EXPIRED)) == IPC_CALL_OPEN;
}

/* Complete what is open with the final error. */
static uint32_t
fail_open(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint32_t got = 0;

	/* Answers written before the server died come first; it writes no more now. */
	if (c->status == -ECONNRESET && c->open != 0 && __crpc_ipc_has_answer(c))
		return 0;
	c->aside &= IPC_ASIDE_HELD;
	for (; got < n && c->fail_slot <= c->req_mask + 1; c->fail_slot++) {
		if (is_waiting(c->calls[c->fail_slot].state))
			done[got++] = (struct crpc_done){.cookie = c->calls[c->fail_slot].cookie,
					.status = c->status};
		if (c->calls[c->fail_slot].state == 0)
			continue;
		if ((c->calls[c->fail_slot].state & IPC_CALL_BLOCK) != 0)
			__crpc_ipc_block_back(c, c->fail_slot);
		c->oneway -= (c->calls[c->fail_slot].state & IPC_CALL_ONEWAY) != 0;
		c->expired -= (c->calls[c->fail_slot].state & IPC_CALL_EXPIRED) != 0;
		c->open -= (c->calls[c->fail_slot].state & IPC_CALL_OPEN) != 0;
		c->calls[c->fail_slot].state = 0;
	}
	c->stats.completed += got; /* beside those that were answered */
	c->stats.failed += got;
	return got;
}

/* ---- deadlines ---- */

uint32_t
__crpc_ipc_expire(struct crpc_ipc_client *c, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct ipc_call *call;
	uint32_t slot, got = 0;
	bool more = false;

	for (slot = 0; slot <= c->req_mask + 1; slot++) {
		call = &c->calls[slot];
		if (!is_waiting(call->state))
			continue;
		if ((call->state & IPC_CALL_STAMPED) == 0) {
			if (c->call_timeout_us == 0 || now == 0)
				continue;
			call->state |= IPC_CALL_STAMPED;
			if (call == c->lone_call)
				c->aside |= IPC_ASIDE_ODD;
			c->deadline[slot] = ipc_deadline(now, c->call_timeout_us);
		}
		if (c->deadline[slot] > c->due_ns)
			continue;
		more = got == n;
		if (more)
			continue;
		call->state |= IPC_CALL_EXPIRED;
		c->expired++;
		done[got++] = (struct crpc_done){.cookie = call->cookie, .status = -ETIMEDOUT};
	}
	if (more)
		c->aside |= IPC_ASIDE_DUE;
	else
		c->aside &= ~(uint32_t)IPC_ASIDE_DUE;
	c->stats.timeouts += got;
	c->stats.failed += got;
	c->stats.completed += got;
	return got;
}

/*
 * A call whose answer waits to be polled is not late. So calls that are overdue while there are
 * answers end when as many were taken as can wait: their own would have been among them.
 */
static uint32_t
look_at_deadlines(struct crpc_ipc_client *c, uint64_t now, struct crpc_done *done, uint32_t n)
{
	uint64_t taken = c->resp_seq + c->lone_done;
	bool waiting = __crpc_ipc_has_answer(c);

	if (!waiting || taken >= c->mark_taken) {
		c->due_ns = waiting ? c->mark_ns : now;
		c->mark_ns = now;
		c->mark_taken = taken + c->lay.depth;
	}
	return __crpc_ipc_expire(c, now, done, n);
}

static uint32_t
look_around(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	bool check = ++c->looks == CRPC_IPC_CHECK_POLLS / IPC_LOOK_POLLS;
	uint64_t now;

	c->countdown = IPC_LOOK_POLLS;
	if (c->status == 0) {
		__crpc_ipc_announce(c);
		c->lone_end = c->lone_want;
		if ((uint32_t)c->req_seq - c->aged >= IPC_AGE_CALLS)
			__crpc_ipc_age_slots(c);
		if (!check && !c->deadlines)
			return 0;
		now = __crpc_ipc_now_ns();
		if (check) {
			c->looks = 0;
			check_server(c, now);
		}
		if (c->status == 0)
			return c->deadlines ? look_at_deadlines(c, now, done, n) : 0;
	}
	c->countdown = 1;
	return fail_open(c, done, n);
}

crpc_noinline uint16_t
__crpc_ipc_look_around(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n, uint16_t got)
{
	return (uint16_t)(got + look_around(c, done + got, (uint32_t)(n - got)));
}
