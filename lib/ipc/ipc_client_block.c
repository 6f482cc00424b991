/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of blocks that travel with requests and answers. */
#include <errno.h>

#include "crpc_arena.h"
#include "ipc_client_slow.h"
#include "rpc_copy.h"

int
crpc_ipc_client_call_ref(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t ref, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	struct ipc_call *call = c->next_call;
	int rc;

	crpc_owner_check(&c->owner, "ipc client");
	if (c->arena == NULL || c->server_member == 0)
		return -ENOTSUP;
	len = (uint32_t)crpc_min(
		(uint64_t)len + IPC_REF_LEN, UINT32_MAX); /* too long is too long */
	if (!ipc_has_room(c, len) || call->resp_max != resp_max) {
		rc = __crpc_ipc_prepare(c, call, len, resp_max);
		if (rc != 0)
			return rc;
	}
	if (crpc_arena_give(c->arena, ref, c->server_member) != 0)
		return -EINVAL;
	memcpy(c->next->data, &ref, sizeof(ref));
	rpc_copy(c->next->data + IPC_REF_LEN, buf, len - IPC_REF_LEN);
	c->refs[c->next_slot] = ref;
	rpc_calls_open(&c->calls, &call->rpc, cookie, rpc_deadline(now_ns, c->timeout_ns));
	ipc_send(c, len, IPC_CALL_OPEN | IPC_CALL_BLOCK, IPC_SLOT_BLOCK);
	ipc_ring_if_asleep(c);
	return 0;
}

bool
__crpc_ipc_block_answer(struct crpc_ipc_client *c, struct crpc_done *done, bool wanted)
{
	struct crpc_ipc_block block;
	uint64_t ref;
	int rc;

	memcpy(&ref, done->data, sizeof(ref)); /* once */
	rc = crpc_arena_take(c->arena, ref, c->server_member, &block.data, &block.size);
	if (rc == -EDQUOT) {
		crpc_arena_drop(c->arena, ref, c->server_member, crpc_arena_member(c->arena));
		done->data = NULL;
		done->len = 0;
		done->status = -EDQUOT;
		return true;
	}
	if (rc != 0)
		return false;
	block.ref = ref;
	if (!wanted) {
		crpc_arena_free(c->arena, ref);
		return true;
	}
	done->data = (const uint8_t *)done->data + IPC_REF_LEN;
	done->len -= IPC_REF_LEN;
	/* No more than depth calls complete in one poll. */
	c->aside |= IPC_ASIDE_HELD;
	c->held[c->n_held++] = (struct ipc_held){.data = done->data, .block = block};
	return true;
}

void
__crpc_ipc_block_back(struct crpc_ipc_client *c, uint32_t slot)
{
	crpc_arena_drop(c->arena, c->refs[slot], crpc_arena_member(c->arena), c->server_member);
}

crpc_noinline void
__crpc_ipc_free_held(struct crpc_ipc_client *c)
{
	for (uint32_t i = 0; i < c->n_held; i++)
		if (c->held[i].block.ref != 0)
			crpc_arena_free(c->arena, c->held[i].block.ref);
	c->n_held = 0;
	c->aside &= ~(uint32_t)IPC_ASIDE_HELD;
}

static struct ipc_held *
find_held(const struct crpc_ipc_client *c, const struct crpc_done *done)
{
	for (uint32_t i = 0; i < c->n_held; i++)
		if (c->held[i].data == done->data && c->held[i].block.ref != 0)
			return &c->held[i];
	return NULL;
}

int
crpc_ipc_client_block(const struct crpc_ipc_client *c, const struct crpc_done *done,
		struct crpc_ipc_block *block)
{
	const struct ipc_held *h = find_held(c, done);

	if (h == NULL)
		return -ENODATA;
	*block = h->block;
	return 0;
}

int
crpc_ipc_client_take(struct crpc_ipc_client *c, const struct crpc_done *done,
		struct crpc_ipc_block *block)
{
	struct ipc_held *h;

	crpc_owner_check(&c->owner, "ipc client");
	h = find_held(c, done);
	if (h == NULL)
		return -ENODATA;
	*block = h->block;
	h->block.ref = 0;
	return 0;
}
