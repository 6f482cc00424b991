/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's datapath: call and poll. What a poll does now and then is ipc_client_watch.c. */
#include <errno.h>

#include "crpc_arena.h"
#include "ipc_client.h"
#include "rpc_copy.h"

/* ---- call ---- */

crpc_noinline uint32_t
__crpc_ipc_step_over(struct crpc_ipc_client *c, uint32_t slot, uint32_t seq)
{
	struct ipc_call *call = &c->call[slot];

	for (; (call->state & IPC_CALL_OPEN) != 0; call = &c->call[slot]) {
		call->state |= IPC_CALL_OLD;
		slot = (slot + 1) & c->req_mask;
	}
	if (call->state == IPC_CALL_OLD) {
		call->state = 0;
		CRPC_CRASH_POINT("ipc.promise.1");
		ipc_spoil(ipc_slot_at(c->req, slot, c->req_slot), seq);
	}
	return slot;
}

crpc_noinline void
__crpc_ipc_allow(struct crpc_ipc_client *c, struct ipc_call *call, uint32_t resp_max)
{
	call->resp_max = resp_max;
	if (call == c->lone_call)
		c->lone_resp_max = (uint32_t)crpc_min(resp_max, CRPC_IPC_SMALL);
	/* C1 and R1 of the request, which follows, are its release. */
	crpc_store_relaxed(&c->allow[call - c->call], (uint16_t)resp_max);
}

crpc_noinline int
__crpc_ipc_prepare(
	struct crpc_ipc_client *c, struct ipc_call *call, uint32_t len, uint32_t resp_max)
{
	if (c->status != 0)
		return c->status;
	if (len > c->req_max || resp_max > c->resp_max)
		return -EMSGSIZE;
	if (ipc_in_use(c) >= c->room) {
		c->stats.rpc.again++;
		return -EAGAIN;
	}
	__crpc_ipc_allow(c, call, resp_max);
	return 0;
}

/* Any call: prepare it, and try again. */
static crpc_noinline int
call_other(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct ipc_call *call = ipc_goes_alone(c, len) ? c->lone_call : c->next_call;
	int rc = __crpc_ipc_prepare(c, call, len, resp_max);

	return rc != 0 ? rc : __crpc_ipc_call_until(c, deadline_ns, buf, len, resp_max, cookie);
}

static inline int
call_in_ring(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie, bool is_short)
{
	struct ipc_call *call = c->next_call;

	if (!ipc_has_room(c, len) || crpc_unlikely(call->resp_max != resp_max))
		return call_other(c, deadline_ns, buf, len, resp_max, cookie);
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
		return call_other(c, deadline_ns, buf, len, resp_max, cookie);
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

/* A response without bytes: the status that the server gave. Or with, up to `most`. */
static bool
read_status(uint32_t size, uint32_t most, struct crpc_done *done)
{
	if (size <= most)
		return true;
	if (size <= IPC_SIZE_STATUS || size > IPC_SIZE_STATUS + CRPC_ERRNO_MAX)
		return false;
	*done = (struct crpc_done){.status = -(int32_t)(size - IPC_SIZE_STATUS)};
	return true;
}

crpc_noinline int
__crpc_ipc_take_other(struct crpc_ipc_client *c, uint32_t field, uint32_t size, const void *data,
	struct crpc_done *done)
{
	struct crpc_done answer = {.data = data, .len = size};
	bool block = (field & IPC_SLOT_BLOCK) != 0, open, got;
	uint32_t slot = field & ~IPC_SLOT_BLOCK, most;
	struct ipc_call *call;

	if (slot > c->req_mask + 1)
		return -1;
	call = &c->call[slot];
	open = call->rpc.deadline_ns < RPC_CANCELED;
	/* A reference is not counted in what a call allows. */
	most = call->resp_max + (block ? IPC_REF_LEN : 0);
	if ((call->state & IPC_CALL_OPEN) == 0 || !read_status(size, most, &answer))
		return -1;
	if (block &&
		(c->arena == NULL || answer.data == NULL || size < IPC_REF_LEN ||
			!__crpc_ipc_block_answer(c, &answer, open)))
		return -1;
	if ((call->state & IPC_CALL_BLOCK) != 0 && answer.status != 0)
		__crpc_ipc_block_back(c, slot);
	if (slot > c->req_mask) {
		c->aside &= IPC_ASIDE_HELD;
		/* Its answer had no room there: the next calls save the detour. */
		if (data != c->lone_data)
			c->lone_end = 0;
	}
	c->stats.failed += open && answer.status != 0;
	if ((call->state & IPC_CALL_ONEWAY) != 0) {
		c->oneway--;
		c->stats.rpc.late--;
	}
	got = rpc_calls_complete(
		&c->calls, &call->rpc, answer.data, answer.len, answer.status, &c->stats.rpc, done);
	call->rpc.deadline_ns = RPC_FREE;
	call->state &= IPC_CALL_OLD;
	return got;
}

/* An answer in the lone slot that ipc_poll_lone() does not take: as ipc_take_any(). */
static int
poll_lone_other(struct crpc_ipc_client *c, struct crpc_done *done)
{
	uint64_t size = ipc_lone_size(c);

	if (size > c->lone_resp_max && size < IPC_SIZE_STATUS)
		return -1;
	memcpy(c->lone_data, c->lone->data, CRPC_IPC_SMALL);
	return __crpc_ipc_take_other(c, c->req_mask + 1, (uint32_t)size, c->lone_data, done);
}

/* Blocks of the last poll are freed, and a call is in the lone slot or not. */
static crpc_noinline uint32_t
poll_aside(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	int rc;

	if (c->n_held != 0)
		__crpc_ipc_free_held(c);
	if ((c->aside & IPC_ASIDE_LONE) == 0 || n == 0)
		return 0;
	rc = ipc_poll_lone(c, done);
	if (rc < 0)
		rc = poll_lone_other(c, done);
	if (rc >= 0)
		return (uint32_t)rc;
	__crpc_ipc_bad_answer(c);
	return 0;
}

/* Take answers, up to n. Returns how many completions. */
static inline uint32_t
poll_answers(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint32_t slot, got = 0;
	uint64_t word;
	int rc;

	if (crpc_unlikely(c->aside != 0))
		got = poll_aside(c, done, n);
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

bool
__crpc_ipc_has_answer(const struct crpc_ipc_client *c)
{
	return ipc_ring_has_answer(c) ||
		((c->aside & IPC_ASIDE_LONE) != 0 && ipc_lone_size(c) <= IPC_SIZE_MAX);
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

void
crpc_ipc_client_flush(struct crpc_ipc_client *c, uint64_t now_ns)
{
	crpc_owner_check(&c->owner, "ipc client");
	__crpc_ipc_announce(c);
}
