/* SPDX-License-Identifier: BSD-3-Clause */
/* What is rare in the server's datapath: requests that are not plain, tokens that are not open. */
#include <errno.h>

#include "ipc_server.h"

/* What to do with a request at which more than its word was looked at. */
enum verdict {
	TAKE_IT,
	FAIL_IT, /* by .status */
	DROP_CLIENT,
};

struct closer_look {
	enum verdict verdict;
	uint32_t next;   /* the slot that it names */
	uint32_t skip;   /* bytes in front of its message */
	uint32_t status; /* errno */
	struct ipc_breach breach;
};

/*
 * The word of a request has flags, a size above req_max, or names another slot than the next in
 * order.
 */
static crpc_noinline struct closer_look
look_closer(struct crpc_ipc_server *s, struct ipc_peer *p, const struct ipc_slot *head,
	uint64_t word, uint32_t slot)
{
	uint32_t size = ipc_word_size(word), field = ipc_word_slot(word);
	struct closer_look look = {.next = field & IPC_SLOT_MASK};
	uint64_t ref;

	if (size > s->lay.req_max) {
		look.breach = (struct ipc_breach){"request size", s->lay.req_max, size};
	} else if (look.next > s->req_mask || look.next == slot) {
		look.breach = (struct ipc_breach){"next slot", s->req_mask, look.next};
	} else if ((field & IPC_SLOT_BLOCK) != 0 && (s->arena == NULL || size < IPC_REF_LEN)) {
		look.breach = (struct ipc_breach){"request with a block, of size", 0, size};
	} else {
		if ((field & IPC_SLOT_ONEWAY) != 0)
			p->tokens[slot] |= CRPC_IPC_TOKEN_ONEWAY;
		if ((field & IPC_SLOT_BLOCK) == 0)
			return look;
		memcpy(&ref, head->data, sizeof(ref));
		look.skip = IPC_REF_LEN;
		look.status = (uint32_t)__crpc_ipc_block_in(s, p, slot, ref);
		if (look.status != 0)
			look.verdict = FAIL_IT;
		return look;
	}
	look.verdict = DROP_CLIENT;
	return look;
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
	struct ipc_slot *head = p->head;
	uint32_t slot = p->head_slot;
	struct closer_look look = look_closer(s, p, head, word, slot);
	struct ipc_breach open_slot = {"next slot's open requests", 0, 1};
	uint64_t token;

	if (look.verdict != DROP_CLIENT && (p->tokens[look.next] & IPC_TOKEN_FREE) == 0) {
		__crpc_ipc_block_end(s, p, slot);
		look.verdict = DROP_CLIENT;
		look.breach = open_slot;
	}
	if (look.verdict == DROP_CLIENT) {
		__crpc_ipc_drop(s, p, &look.breach);
		return false;
	}
	token = ipc_open_request(p, slot);
	p->req_seq++;
	p->head_slot = (uint16_t)look.next;
	p->head = ipc_slot_at(p->req, look.next, s->lay.req_slot);
	if (look.verdict == FAIL_IT) {
		if (crpc_ipc_server_fail(s, 0, token, -(int32_t)look.status) != 0)
			crpc_ipc_server_release(s, 0, token); /* it is one-way */
		return false;
	}
	req->token = token;
	req->data = head->data + look.skip;
	req->len = ipc_word_size(word) - look.skip;
	req->peer = p->id;
	return true;
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
