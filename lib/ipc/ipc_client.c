/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's datapath: call and poll. What happens rarely in them is ipc_client_other.c, what a
 * poll does now and then ipc_client_watch.c.
 */

#include "ipc_client.h"
#include "rpc_copy.h"

/* ---- call ---- */

static inline int
call_in_ring(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie, bool is_short)
{
	struct ipc_call *call = c->next_call;

	if (!ipc_has_room(c, len) || crpc_unlikely(call->resp_max != resp_max))
		return __crpc_ipc_call_other(c, deadline_ns, buf, len, resp_max, cookie);
	if (is_short)
		rpc_copy_small(c->next->data, buf, len);
	else
		rpc_copy(c->next->data, buf, len);
	rpc_calls_open(&c->calls, &call->rpc, cookie, deadline_ns);
	ipc_send(c, len, IPC_CALL_OPEN, 0);
	ipc_ring_if_asleep(c);
	return 0;
}

static crpc_noinline int
call_long(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	return call_in_ring(c, deadline_ns, buf, len, resp_max, cookie, false);
}

/* A function of its own without a call in it, as is the lone way: neither saves registers. */
static crpc_noinline int
call_short(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	if (crpc_unlikely(len > RPC_COPY_SHORT_MAX))
		return call_long(c, deadline_ns, buf, len, resp_max, cookie);
	return call_in_ring(c, deadline_ns, buf, len, resp_max, cookie, true);
}

int
__crpc_ipc_call_until(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	crpc_owner_check(&c->owner, "ipc client");
	if (!ipc_goes_alone(c, len))
		return call_short(c, deadline_ns, buf, len, resp_max, cookie);
	if (crpc_unlikely(c->lone_call->resp_max != resp_max))
		return __crpc_ipc_call_other(c, deadline_ns, buf, len, resp_max, cookie);
	rpc_copy_small(c->lone->data, buf, len);
	rpc_calls_open(&c->calls, &c->lone_call->rpc, cookie, deadline_ns);
	ipc_send_lone(c, len);
	ipc_ring_if_asleep(c);
	return 0;
}

int
crpc_ipc_client_call(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	return __crpc_ipc_call_until(
		c, rpc_deadline(now_ns, c->timeout_ns), buf, len, resp_max, cookie);
}

/* ---- poll ---- */

/* Take answers, up to n. Returns how many completions. */
static inline uint32_t
poll_answers(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint32_t slot, got = 0;
	uint64_t word;
	int rc;

	if (crpc_unlikely(c->aside != 0))
		got = __crpc_ipc_poll_aside(c, done, n);
	while (got < n) {
		/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
		word = crpc_load_acquire(&c->head->word);
		if (ipc_word_seq(word) != (uint32_t)c->resp_seq)
			break;
		slot = ipc_word_slot(word);
		if ((slot & IPC_SLOT_RUN) != 0) {
			rc = __crpc_ipc_poll_run(c, word, &done[got], n - got);
		} else {
			rc = ipc_take_any(c, slot, ipc_word_size(word), c->head->data, &done[got]);
			ipc_step_head(c, 1);
		}
		if (crpc_unlikely(rc < 0)) {
			__crpc_ipc_bad_answer(c);
			break;
		}
		got += (uint32_t)rc;
	}
	return got;
}

/* poll_answers(), when calls may be due or are canceled: see rpc_calls.h. */
static crpc_noinline uint32_t
poll_and_sweep(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint32_t n)
{
	uint32_t k = rpc_sweep_turn(&c->sweep, now_ns, false, done, (uint16_t)n);
	uint32_t got = poll_answers(c, done + k, n - k);

	c->sweep.taken += got;
	k += got;
	return k + rpc_sweep_turn(&c->sweep, now_ns, k < n, done + k, (uint16_t)(n - k));
}

/* A poll ends; now and then it looks at more than answers. */
static inline uint16_t
poll_end(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint32_t n,
	uint32_t got)
{
	if (crpc_unlikely(--c->countdown == 0))
		return __crpc_ipc_look_around(c, now_ns, done, (uint16_t)n, (uint16_t)got);
	return (uint16_t)got;
}

/* Any poll. */
static crpc_noinline uint16_t
poll_all(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint32_t n)
{
	uint32_t got;

	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	if (crpc_unlikely(now_ns >= c->sweep.next_ns))
		got = poll_and_sweep(c, now_ns, done, n);
	else
		got = poll_answers(c, done, n);
	return poll_end(c, now_ns, done, n, got);
}

uint16_t
crpc_ipc_client_poll(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	crpc_owner_check(&c->owner, "ipc client");
	/* The answer to the only call is in the lone slot: this saves 30 instructions. */
	if (ipc_is_alone(c) && now_ns < c->sweep.next_ns && n != 0 && ipc_poll_lone(c, done) > 0)
		return poll_end(c, now_ns, done, n, 1);
	return poll_all(c, now_ns, done, n);
}

uint32_t
crpc_ipc_client_cancel(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&c->owner, "ipc client");
	return __crpc_calls_cancel(&c->calls, &c->sweep, cookie);
}
