/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's side of blocks that travel with requests and answers. */
#include <errno.h>

#include "crpc_arena.h"
#include "ipc_server.h"

int
__crpc_ipc_block_in(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t slot, uint64_t ref)
{
	struct crpc_ipc_block *b = &p->blocks[slot];
	uint64_t size;
	void *data;
	int rc;

	s->stats.bad_blocks++; /* until it is found good */
	if (p->member == 0)
		return EFAULT;
	rc = crpc_arena_take(s->arena, ref, p->member, &data, &size);
	if (rc == -EDQUOT) {
		crpc_arena_drop(s->arena, ref, p->member, crpc_arena_member(s->arena));
		return ENOBUFS;
	}
	if (rc != 0)
		return EFAULT;
	if (s->client_block_bytes != 0 &&
		size > s->client_block_bytes - crpc_min(p->block_bytes, s->client_block_bytes)) {
		crpc_arena_free(s->arena, ref);
		return ENOBUFS;
	}
	*b = (struct crpc_ipc_block){.ref = ref, .data = data, .size = size};
	p->tokens[slot] |= CRPC_IPC_TOKEN_BLOCK;
	p->block_bytes += size;
	s->stats.bad_blocks--;
	s->stats.blocks++;
	return 0;
}

/* The request's block is no longer the request's. */
static void
forget(struct ipc_peer *p, struct crpc_ipc_block *b)
{
	p->block_bytes -= b->size;
	*b = (struct crpc_ipc_block){0};
}

void
__crpc_ipc_block_end(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t slot)
{
	struct crpc_ipc_block *b;

	if (p->blocks == NULL || slot > s->req_mask)
		return;
	b = &p->blocks[slot];
	if (b->ref == 0)
		return;
	crpc_arena_free(s->arena, b->ref);
	forget(p, b);
}

/*
 * Forget what another connection of the same member was given too: it may be in transit there, and
 * is freed with that one.
 */
static void
forget_given_to(const struct crpc_ipc_server *s, struct ipc_peer *p, const struct ipc_peer *other)
{
	for (uint32_t i = 0; i < s->lay.resp_slots; i++)
		for (uint32_t k = 0; k < s->lay.resp_slots && p->given[i] != 0; k++)
			if (p->given[i] == other->given[k])
				p->given[i] = 0;
}

void
__crpc_ipc_given_end(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint32_t me;

	if (s->arena == NULL)
		return;
	for (uint32_t i = 0; i < s->lay.max_clients; i++)
		if (i != p->id && s->peers[i].member == p->member &&
				s->peers[i].state != IPC_PEER_ABSENT)
			forget_given_to(s, p, &s->peers[i]);
	me = crpc_arena_member(s->arena);
	for (uint32_t i = 0; i < s->lay.resp_slots; i++) {
		if (p->given[i] != 0)
			crpc_arena_drop(s->arena, p->given[i], me, p->member);
		p->given[i] = 0;
	}
}

/* The block of an open request. 0, or what crpc_ipc_server_block() returns. */
static int
find_block(const struct crpc_ipc_server *s, uint64_t token, struct ipc_peer **p,
		struct crpc_ipc_block **b)
{
	*p = ipc_find_peer(s, token);
	if (*p == NULL)
		return -ENOENT;
	if ((token & CRPC_IPC_TOKEN_BLOCK) == 0)
		return -ENODATA;
	*b = &(*p)->blocks[ipc_token_slot(token)];
	return (*b)->ref == 0 ? -ENODATA : 0;
}

int
crpc_ipc_server_block(const struct crpc_ipc_server *s, uint64_t token, struct crpc_ipc_block *block)
{
	struct crpc_ipc_block *b;
	struct ipc_peer *p;
	int rc = find_block(s, token, &p, &b);

	if (rc == 0)
		*block = *b;
	return rc;
}

int
crpc_ipc_server_take(struct crpc_ipc_server *s, uint64_t token, struct crpc_ipc_block *block)
{
	struct crpc_ipc_block *b;
	struct ipc_peer *p;
	int rc;

	crpc_owner_check(&s->owner, "ipc server");
	rc = find_block(s, token, &p, &b);
	if (rc != 0)
		return rc;
	*block = *b;
	forget(p, b);
	return 0;
}

int
__crpc_ipc_block_out(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, uint64_t ref)
{
	struct crpc_ipc_block *b;

	if (p->member == 0)
		return -ENOTSUP;
	if (crpc_arena_give(s->arena, ref, p->member) != 0)
		return -EINVAL;
	/* It may be the request's own, which is then not freed with it. */
	if (find_block(s, token, &p, &b) == 0 && b->ref == ref)
		forget(p, b);
	p->given[p->resp_seq & s->resp_mask] = ref;
	return 0;
}
