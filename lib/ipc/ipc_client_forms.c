/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's other forms of call: with a deadline of its own, one-way, many, and waiting. */
#include <errno.h>
#include <sched.h>

#include "crpc_clock.h"
#include "ipc_client_slow.h"
#include "rpc_copy.h"

/* Polls that a synchronous call spins before it gives the core away at each. */
#define SYNC_SPINS 4096

int
crpc_ipc_client_call_timed(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie, uint64_t timeout_us)
{
	uint64_t timeout_ns = ipc_timeout_ns(timeout_us);

	__crpc_sweep_expect(&c->sweep, now_ns, timeout_ns);
	return __crpc_ipc_call_until(
		c, rpc_deadline(now_ns, timeout_ns), buf, len, resp_max, cookie);
}

int
crpc_ipc_client_notify(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len)
{
	struct ipc_call *call = c->next_call;

	crpc_owner_check(&c->owner, "ipc client");
	if (!ipc_has_room(c, len))
		return __crpc_ipc_prepare(c, call, len, 0);
	rpc_copy(c->next->data, buf, len);
	/* Its place comes back as that of a call that has ended. */
	call->rpc.deadline_ns = RPC_ENDED;
	c->calls.ended++;
	ipc_send(c, len, IPC_CALL_OPEN | IPC_CALL_ONEWAY, IPC_SLOT_ONEWAY);
	ipc_ring_if_asleep(c);
	c->oneway++;
	c->stats.rpc.notifies++;
	return 0;
}

/*
 * As ipc_send() of n requests; there is room. The loop works on copies of the counts, since the
 * compiler has to assume that a store to a slot changes them: bursts are 25 % faster.
 */
static inline void
put_burst(struct crpc_ipc_client *c, const uint8_t *m, uint32_t len, uint32_t resp_max,
	const uint64_t *cookies, uint32_t n, uint64_t deadline_ns)
{
	struct ipc_call *const all = c->call, *call = c->next_call, *after;
	uint32_t seq = (uint32_t)c->req_seq, next = c->next_slot;
	const uint32_t mask = c->req_mask, stride = c->req_slot;
	uint8_t *const req = c->req;
	struct ipc_slot *s = c->next;

	c->calls.open += n;
	for (uint32_t i = 0; i < n; i++, seq++, m += len, call = after) {
		next = (next + 1) & mask;
		after = &all[next];
		call->rpc.cookie = cookies[i];
		call->rpc.deadline_ns = deadline_ns;
		call->state = IPC_CALL_OPEN;
		if (crpc_unlikely(call->resp_max != resp_max))
			__crpc_ipc_allow(c, call, resp_max);
		if (crpc_unlikely(after->state != 0)) {
			next = __crpc_ipc_step_over(c, next, seq + 1);
			after = &all[next];
		}
		rpc_copy(s->data, m, len);
		crpc_store_release(&s->word, ipc_word(seq, len, next)); /* C1, R1 */
		s = ipc_slot_at(req, next, stride);
	}
	c->next = s;
	c->next_slot = next;
	c->next_call = call;
	c->req_seq += n;
}

uint16_t
crpc_ipc_client_call_burst(struct crpc_ipc_client *c, uint64_t now_ns, const void *msgs,
	uint32_t len, uint32_t resp_max, const uint64_t *cookies, uint16_t n)
{
	uint64_t deadline_ns = rpc_deadline(now_ns, c->timeout_ns);
	const uint8_t *m = msgs;
	uint32_t room;

	if (n == 1)
		return __crpc_ipc_call_until(c, deadline_ns, m, len, resp_max, cookies[0]) == 0;
	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(len > c->req_max || resp_max > c->resp_max))
		return 0;
	room = c->room - crpc_min(c->room, rpc_calls_in_use(&c->calls));
	if (crpc_unlikely(n > room)) {
		c->stats.rpc.again++;
		n = (uint16_t)room;
	}
	put_burst(c, m, len, resp_max, cookies, n, deadline_ns);
	ipc_ring_if_asleep(c);
	return n;
}

int
crpc_ipc_client_call_sync(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len,
	void *resp, uint32_t cap, uint64_t timeout_us)
{
	uint64_t start_ns = crpc_clock_monotonic_ns() - now_ns;
	struct crpc_done done;
	uint32_t spins = 0;
	int rc;

	if (crpc_ipc_client_open(c) != 0)
		return -EBUSY;
	rc = timeout_us == 0
		? crpc_ipc_client_call(c, now_ns, buf, len, c->resp_max, 0)
		: crpc_ipc_client_call_timed(c, now_ns, buf, len, c->resp_max, 0, timeout_us);
	if (rc != 0)
		return rc;
	while (crpc_ipc_client_poll(c, crpc_clock_monotonic_ns() - start_ns, &done, 1) == 0)
		if (++spins >= SYNC_SPINS)
			sched_yield();
	if (done.status != 0)
		return done.status;
	if (done.len > cap)
		return -EMSGSIZE;
	if (done.len != 0)
		memcpy(resp, done.data, done.len);
	return (int)done.len;
}
