/* SPDX-License-Identifier: BSD-3-Clause */
/* What is rare in the client's datapath: calls to be prepared, and answers that are not plain. */
#include <errno.h>

#include "ipc_client_slow.h"

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
	if (rpc_calls_in_use(&c->calls) >= c->room) {
		c->stats.rpc.again++;
		return -EAGAIN;
	}
	__crpc_ipc_allow(c, call, resp_max);
	return 0;
}

crpc_noinline int
__crpc_ipc_call_other(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	struct ipc_call *call = ipc_goes_alone(c, len) ? c->lone_call : c->next_call;
	int rc = __crpc_ipc_prepare(c, call, len, resp_max);

	return rc != 0 ? rc : __crpc_ipc_call_until(c, deadline_ns, buf, len, resp_max, cookie);
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
	/* A reference is not counted in what a call allows, but in what a response has room for. */
	most = (uint32_t)crpc_min(call->resp_max + (block ? IPC_REF_LEN : 0), c->resp_max);
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

/* An answer in the lone slot that ipc_take_lone() does not take: as ipc_take_any(). */
static int
take_lone_other(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	if (size > c->lone_resp_max && size < IPC_SIZE_STATUS)
		return -1;
	memcpy(c->lone_data, c->lone->data, CRPC_IPC_SMALL);
	return __crpc_ipc_take_other(c, c->req_mask + 1, size, c->lone_data, done);
}

crpc_noinline uint32_t
__crpc_ipc_poll_aside(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint64_t size;
	int rc;

	if (c->n_held != 0)
		__crpc_ipc_free_held(c);
	if ((c->aside & IPC_ASIDE_LONE) == 0 || n == 0)
		return 0;
	size = ipc_lone_size(c);
	rc = ipc_take_lone(c, size, done);
	if (rc < 0)
		rc = take_lone_other(c, (uint32_t)size, done);
	if (rc >= 0)
		return (uint32_t)rc;
	__crpc_ipc_bad_answer(c);
	return 0;
}

bool
__crpc_ipc_has_answer(const struct crpc_ipc_client *c)
{
	return ipc_ring_has_answer(c) ||
		((c->aside & IPC_ASIDE_LONE) != 0 && ipc_lone_size(c) <= IPC_SIZE_MAX);
}
