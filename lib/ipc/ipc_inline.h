/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_INLINE_H
#define IPC_INLINE_H

/**
 * @file
 * Forms of call, poll and reply that are part of the caller, for loops of this project that drive
 * many clients, or answer them, one message each at a time: benchkv gains 10 % with two lcores and
 * 20 % with one. A message is written where it travels instead of being copied there.
 *
 * They mix with the functions of crpc_ipc.h, whose rules hold here too. A reserve changes nothing,
 * so one that is not committed needs no end; but nothing else may be done with the same object
 * between the two. Not installed: the structs that this includes are no interface.
 */

#include "ipc_client.h"
#include "ipc_server.h"

/* ---- client ---- */

/** Where a request goes, to write it there instead of having it copied. */
struct crpc_ipc_call_room {
	struct ipc_call *call;
	struct ipc_slot *slot; /**< The request is written to slot->data. */
};

/**
 * Room for the next request.
 *
 * @param c, resp_max
 *   As crpc_ipc_client_call().
 * @param len
 *   Bytes that will be written there at most, 0 to req_max.
 * @param room
 *   Where. Nothing has changed yet: a reserve without a commit needs no end, and any call in
 *   between takes the room.
 * @return
 *   As crpc_ipc_client_call().
 */
crpc_inline int
crpc_ipc_client_call_reserve(
	struct crpc_ipc_client *c, uint32_t len, uint32_t resp_max, struct crpc_ipc_call_room *room)
{
	bool alone = ipc_goes_alone(c, len);

	room->call = alone ? c->lone_call : c->next_call;
	room->slot = alone ? c->lone : c->next;
	/* lone_end is 0 where there is no room. */
	if (crpc_likely((alone || ipc_has_room(c, len)) && room->call->resp_max == resp_max))
		return 0;
	return __crpc_ipc_prepare(c, room->call, len, resp_max);
}

/**
 * Send what was written there.
 *
 * @param c, now_ns, cookie
 *   As crpc_ipc_client_call().
 * @param room
 *   What the reserve gave.
 * @param len
 *   Bytes of the request, at most those of the reserve.
 */
crpc_inline void
crpc_ipc_client_call_commit(struct crpc_ipc_client *c, uint64_t now_ns,
	const struct crpc_ipc_call_room *room, uint32_t len, uint64_t cookie)
{
	crpc_owner_check(&c->owner, "ipc client");
	rpc_calls_open(&c->calls, &room->call->rpc, cookie, rpc_deadline(now_ns, c->timeout_ns));
	if (room->slot == c->lone)
		ipc_send_lone(c, len);
	else
		ipc_send(c, len, IPC_CALL_OPEN, 0);
	ipc_ring_if_asleep(c);
}

/** crpc_ipc_client_poll_plain(), when a call is in the lone slot. */
crpc_inline int
ipc_poll_plain_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	uint64_t size = ipc_lone_size(c);

	if (crpc_unlikely(size > c->lone_resp_max))
		return size > IPC_SIZE_MAX && !ipc_ring_has_answer(c) ? 0 : -1;
	if (crpc_unlikely(!ipc_is_plain(c->lone_call)))
		return -1;
	c->aside = 0;
	ipc_take(c, c->lone_call, (uint32_t)size, c->lone->data, done);
	return 1;
}

/** The same of the ring. */
crpc_inline int
ipc_poll_plain_ring(struct crpc_ipc_client *c, struct crpc_done *done)
{
	/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
	uint64_t word = crpc_load_acquire(&c->head->word);
	uint32_t slot = ipc_word_slot(word), size = ipc_word_size(word);

	if (ipc_word_seq(word) != (uint32_t)c->resp_seq)
		return 0;
	if (crpc_unlikely(slot > c->req_mask || size > c->call[slot].resp_max ||
		    !ipc_is_plain(&c->call[slot])))
		return -1;
	ipc_take(c, &c->call[slot], size, c->head->data, done);
	ipc_step_head(c, 1);
	return 1;
}

/**
 * Take one completion, if it is an answer that came plainly.
 *
 * @param c, now_ns
 *   As crpc_ipc_client_poll().
 * @param done
 *   Filled. Its data is where the server wrote it, and may write again: it is read once, before the
 *   next call or poll.
 * @return
 *   1, or 0: none is there; or -1: nothing was done, crpc_ipc_client_poll() has to look.
 */
crpc_inline int
crpc_ipc_client_poll_plain(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done)
{
	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(c->countdown == 1 || now_ns >= c->sweep.next_ns))
		return -1;
	c->countdown--;
	if (c->aside == IPC_ASIDE_LONE)
		return ipc_poll_plain_lone(c, done);
	return crpc_likely(c->aside == 0) ? ipc_poll_plain_ring(c, done) : -1;
}

/* ---- server ---- */

/** Where an answer goes, to write it there instead of having it copied. */
struct crpc_ipc_reply_room {
	struct ipc_peer *peer;
	uint64_t *token;       /**< Of the request, in its client's table. */
	struct ipc_slot *slot; /**< The answer is written to slot->data. */
	bool lone;
};

/**
 * Room for the answer to a request. It may lie over the request: read that first.
 *
 * @param s
 *   The server.
 * @param token
 *   Of a request that recv() gave.
 * @param len
 *   Bytes that will be written there at most, 0 to resp_max.
 * @param room
 *   Where.
 * @return
 *   False where crpc_ipc_server_reply() would fail, for a request with a block, and where an answer
 *   of that length would not lie there. reply() takes it then, or returns why not.
 */
crpc_inline bool
crpc_ipc_server_reply_reserve(
	struct crpc_ipc_server *s, uint64_t token, uint32_t len, struct crpc_ipc_reply_room *room)
{
	struct ipc_peer *p = &s->peers[ipc_token_client(token)];

	room->peer = p;
	room->token = &p->tokens[token & s->token_mask];
	if (crpc_unlikely(*room->token != token || (token & IPC_TOKEN_FLAGS) != 0 ||
		    len > ipc_allowed(s, p, token)))
		return false;
	room->lone = ipc_is_lone(s, token);
	room->slot = room->lone ? ipc_lone(s, p) : ipc_resp_slot(s, p);
	return crpc_likely(len <= (room->lone ? s->reply_short : s->lay.resp_max));
}

/**
 * Answer with what was written there.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param token
 *   Of the request.
 * @param room
 *   What the last reserve gave, for that token; no request has ended since.
 * @param len
 *   Bytes of the answer, at most those of the reserve.
 */
crpc_inline void
crpc_ipc_server_reply_commit(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token,
	const struct crpc_ipc_reply_room *room, uint32_t len)
{
	crpc_owner_check(&s->owner, "ipc server");
	*room->token = token | IPC_TOKEN_FREE;
	if (room->lone)
		ipc_publish_lone(s, room->peer, len, room->slot);
	else
		ipc_publish(room->peer, ipc_token_slot(token), len, room->slot);
}

#endif
