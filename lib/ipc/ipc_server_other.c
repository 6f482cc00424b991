/* SPDX-License-Identifier: BSD-3-Clause */
/* What is rare in the server's datapath: requests that are not plain, tokens that are not open. */
#include <errno.h>

#include "ipc_server.h"

/*
 * The word of a request has flags, a size above req_max, or names another slot than the next in
 * order: does it break the protocol?
 */
static struct ipc_breach
word_check(const struct crpc_ipc_server *s, const struct ipc_peer *p, uint64_t word)
{
	uint32_t size = ipc_word_size(word), field = ipc_word_slot(word);
	uint32_t next = field & IPC_SLOT_MASK;

	if (size > s->lay.req_max)
		return (struct ipc_breach){"request size", s->lay.req_max, size};
	if (next > s->req_mask || next == p->head_slot)
		return (struct ipc_breach){"next slot", s->req_mask, next};
	if ((field & IPC_SLOT_BLOCK) != 0 && (s->arena == NULL || size < IPC_REF_LEN))
		return (struct ipc_breach){"request with a block, of size", 0, size};
	if ((p->tokens[next] & IPC_TOKEN_FREE) == 0)
		return (struct ipc_breach){"next slot's open requests", 0, 1};
	return (struct ipc_breach){NULL, 0, 0};
}

crpc_noinline uint32_t
__crpc_ipc_drop_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t size)
{
	__crpc_ipc_drop(
		s, p, &(struct ipc_breach){"size of a lone request", s->req_lone_max, size});
	return 0;
}

crpc_noinline bool
__crpc_ipc_recv_closer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req)
{
	uint64_t word = crpc_load_acquire(&p->head->word); /* A1 */
	uint32_t field = ipc_word_slot(word), slot = p->head_slot, skip = 0;
	const struct ipc_breach breach = word_check(s, p, word);
	struct ipc_slot *head = p->head;
	uint64_t ref;
	int rc = 0;

	if (breach.what != NULL) {
		__crpc_ipc_drop(s, p, &breach);
		return false;
	}
	if ((field & IPC_SLOT_ONEWAY) != 0)
		p->tokens[slot] |= CRPC_IPC_TOKEN_ONEWAY;
	if ((field & IPC_SLOT_BLOCK) != 0) {
		memcpy(&ref, head->data, sizeof(ref));
		skip = IPC_REF_LEN;
		rc = __crpc_ipc_block_in(s, p, slot, ref);
	}
	req->token = ipc_open_request(p, slot);
	req->data = head->data + skip;
	req->len = ipc_word_size(word) - skip;
	req->peer = p->id;
	p->req_seq++;
	p->head_slot = (uint16_t)(field & IPC_SLOT_MASK);
	p->head = ipc_slot_at(p->req, p->head_slot, s->lay.req_slot);
	if (rc != 0 && crpc_ipc_server_fail(s, 0, req->token, -rc) != 0)
		crpc_ipc_server_release(s, 0, req->token); /* it is one-way */
	return rc == 0;
}

crpc_noinline int
__crpc_ipc_refuse_token(struct crpc_ipc_server *s, uint64_t token, bool oneway_too)
{
	uint32_t id = (uint32_t)(token >> IPC_TOKEN_ID_SHIFT) - 1, slot = ipc_token_slot(token);
	const uint64_t dead = token | IPC_TOKEN_FREE | IPC_TOKEN_DEAD;
	struct ipc_peer *p;

	if (id >= s->lay.max_clients || slot > s->lay.req_slots ||
		s->peers[id].tokens[slot] != dead) {
		s->stats.stale++;
		return -ENOENT;
	}
	if ((token & CRPC_IPC_TOKEN_ONEWAY) != 0 && !oneway_too)
		return -EOPNOTSUPP;
	p = &s->peers[id];
	p->tokens[slot] = dead & ~(IPC_TOKEN_DEAD | IPC_TOKEN_FLAGS);
	p->dead--;
	__crpc_ipc_block_end(s, p, slot);
	s->stats.stale++;
	s->stats.rpc.replies++;
	return -ECONNRESET;
}
