/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's look around: a server that sleeps on us, or is gone. */
#include <errno.h>

#include "crpc_log.h"
#include "ipc_client_slow.h"

/* ---- a server that sleeps on us ---- */

void
__crpc_ipc_ring_bell(struct ipc_bell *bell, uint32_t id)
{
	/* R6 pairs with A6 in take_bell(): what we did, then our bit, then its summary. */
	crpc_fetch_or_acq_rel(&bell->word[id / 64], UINT64_C(1) << id % 64);
	crpc_fetch_or_acq_rel(&bell->summary, UINT64_C(1) << id / 64);
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
	crpc_exchange_seq_cst(&c->ctl->announced, c->announced - 1); /* C3 */
	sleep = crpc_load_seq_cst(c->sleep);                         /* C4 */
	if (sleep != c->sleep_seen)
		__crpc_ipc_ring(c, sleep); /* C5 */
}

void
crpc_ipc_client_flush(struct crpc_ipc_client *c, uint64_t now_ns)
{
	crpc_owner_check(&c->owner, "ipc client");
	__crpc_ipc_announce(c);
}

/* ---- sequence numbers that come round ---- */

void
__crpc_ipc_age_slots(struct crpc_ipc_client *c)
{
	c->aged = (uint32_t)c->req_seq;
	for (uint32_t slot = 0; slot <= c->req_mask; slot++)
		c->call[slot].state |= IPC_CALL_OLD;
	/* This one is promised already. */
	c->call[c->next_slot].state = 0;
	ipc_spoil(c->next, (uint32_t)c->req_seq);
}

/* ---- a server that is gone ---- */

static void
disconnect(struct crpc_ipc_client *c, int32_t status, const char *why)
{
	crpc_err("%s: client %u: %s; %u calls fail; close it and connect again",
		crpc_shm_path(c->seg), c->id, why, crpc_ipc_client_open(c));
	c->status = status;
	c->room = 0;
	c->lone_end = 0;
	c->countdown = 1;
}

void
__crpc_ipc_bad_answer(struct crpc_ipc_client *c)
{
	c->stats.rpc.malformed++;
	if (c->status != -EPROTO)
		disconnect(c, -EPROTO, "the server answered what was not asked");
}

static void
check_server(struct crpc_ipc_client *c, uint64_t now)
{
	/* A5 pairs with R5 in __crpc_ipc_drop(). */
	if (crpc_load_acquire(&c->ctl->verdict) != 0) {
		disconnect(c, -EPROTO, "the server dropped it for breaking the protocol");
		return;
	}
	/* Pairs with R1 in crpc_shm_free(): all that the server wrote, its last answers too. */
	if (crpc_load_acquire(&crpc_shm_header(c->seg)->state) == CRPC_SHM_CLOSED) {
		disconnect(c, -ECONNRESET, "the server closed the segment");
		return;
	}
	if (now - c->probed_ns < c->probe_ns)
		return;
	c->probed_ns = now;
	c->stats.probes++;
	/* A stopped server keeps its lock: it is late, not dead. */
	if (!crpc_shm_owner_alive(c->seg))
		disconnect(c, -ECONNRESET, "the server died");
}

/* Complete what is open with the final error. */
static uint32_t
fail_open(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	/* Answers written before the server died come first; it writes no more now. */
	if (c->status == -ECONNRESET && rpc_calls_in_use(&c->calls) != 0 &&
		__crpc_ipc_has_answer(c))
		return 0;
	c->aside &= IPC_ASIDE_HELD;
	return __crpc_calls_drop(&c->calls, -ECONNRESET, &c->stats.rpc, done, (uint16_t)n);
}

crpc_noinline uint16_t
__crpc_ipc_look_around(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done,
	uint16_t n, uint16_t got)
{
	bool check = ++c->looks == CRPC_IPC_CHECK_POLLS / IPC_LOOK_POLLS;

	c->countdown = IPC_LOOK_POLLS;
	if (c->status == 0) {
		__crpc_ipc_announce(c);
		c->lone_end = c->lone_want;
		if ((uint32_t)c->req_seq - c->aged >= IPC_AGE_CALLS)
			__crpc_ipc_age_slots(c);
		if (check) {
			c->looks = 0;
			check_server(c, now_ns);
		}
		if (c->status == 0)
			return got;
	}
	c->countdown = 1;
	return (uint16_t)(got + fail_open(c, done + got, (uint32_t)(n - got)));
}
