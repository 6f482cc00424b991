/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_IPC_INLINE_H
#define CRPC_IPC_INLINE_H

/**
 * @file
 * The way that most calls of crpc_ipc.h go, as part of the caller: for loops that drive many
 * clients, or answer them, one message each at a time. What a call and its prologue cost is saved,
 * and a message is written where it travels instead of being copied there.
 *
 *     client
 *     msg = crpc_ipc_client_reserve(c, max)           write the request there
 *     crpc_ipc_client_commit(c, msg, len, cookie)
 *     rc = crpc_ipc_client_poll_plain(c, &done)       below 0: crpc_ipc_client_poll()
 *
 *     server
 *     room = crpc_ipc_server_reply_reserve(s, token, max)     write the answer to room.msg
 *     crpc_ipc_server_reply_commit(s, &room, token, len)
 *
 * They may be mixed with the functions of crpc_ipc.h, whose rules hold here too: threads,
 * ownership, trust. A reserve changes nothing, so one that is not committed needs no end; but
 * nothing else may be done with the same object between the two.
 *
 * The structs that this includes are no interface: programs are compiled anew with each version of
 * the library.
 */

#include "crpc_ipc.h"
#include "ipc_client.h"
#include "ipc_server.h"

/* ---- client ---- */

/**
 * Where the next request goes.
 *
 * @param c
 *   The client.
 * @param max
 *   Bytes that will be written there at most.
 * @return
 *   NULL: not now, or not this way; crpc_ipc_client_call() takes it, or says why not.
 */
crpc_inline void *
crpc_ipc_client_reserve(const struct crpc_ipc_client *c, uint32_t max)
{
	if (crpc_unlikely(c->open >= c->room || max > c->small_max))
		return NULL;
	return max >= c->lone_end || c->open != 0 ? c->next->data : c->lone->data;
}

/**
 * Send what was written there.
 *
 * @param c
 *   The client.
 * @param msg
 *   What reserve gave.
 * @param len
 *   Bytes of the request, 0 to the max of the reserve.
 * @param cookie
 *   Comes back with the completion.
 */
crpc_inline void
crpc_ipc_client_commit(struct crpc_ipc_client *c, const void *msg, uint32_t len, uint64_t cookie)
{
	IPC_OWNER_CHECK(c);
	if (msg == c->next->data)
		ipc_send(c, len, cookie, IPC_CALL_OPEN, 0);
	else
		ipc_send_lone(c, len, cookie, IPC_CALL_OPEN);
	ipc_ring_if_asleep(c);
}

/** crpc_ipc_client_poll_plain(), when a call is in the lone slot. */
crpc_inline int
ipc_poll_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	uint64_t size;

	if (crpc_unlikely(c->aside != IPC_ASIDE_LONE || c->open != 1 || c->countdown == 1))
		return -1;
	size = ipc_lone_size(c);
	if (size <= c->lone_resp_max) {
		c->countdown--;
		ipc_take_lone(c, (uint32_t)size, done);
		return 1;
	}
	if (size <= IPC_SIZE_MAX || ipc_ring_has_answer(c))
		return -1;
	c->countdown--;
	return 0;
}

/**
 * Take one completion, if it is an answer that came plainly.
 *
 * @return
 *   1, or 0: none is there; or -1: nothing was done, crpc_ipc_client_poll() has to look.
 */
crpc_inline int
crpc_ipc_client_poll_plain(struct crpc_ipc_client *c, struct crpc_done *done)
{
	struct ipc_call *call;
	uint32_t slot, size;
	uint64_t word;

	IPC_OWNER_CHECK(c);
	if (c->aside != 0)
		return ipc_poll_lone(c, done);
	/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
	word = crpc_load_acquire(&c->head->word);
	slot = ipc_word_slot(word);
	size = ipc_word_size(word);
	if (crpc_unlikely(c->countdown == 1))
		return -1;
	if (ipc_word_seq(word) != (uint32_t)c->resp_seq) {
		c->countdown--;
		return 0;
	}
	if (crpc_unlikely(slot > c->req_mask || size > c->resp_max))
		return -1;
	call = &c->calls[slot];
	if (crpc_unlikely(call->state != IPC_CALL_OPEN))
		return -1;
	c->countdown--;
	ipc_take(c, call, size, c->head->data, done);
	ipc_step_head(c, 1);
	return 1;
}

/* ---- server ---- */

/** Where an answer goes. */
struct crpc_ipc_room {
	uint8_t *msg; /**< NULL: nowhere. */
	struct ipc_peer *peer;
	bool lone;
};

/**
 * Where the answer to a request goes. It may lie over the request: read all of that first.
 *
 * @param s
 *   The server.
 * @param token
 *   Of the request.
 * @param max
 *   Bytes that will be written there at most.
 * @return
 *   .msg is NULL: not this way; crpc_ipc_server_reply() takes it, or says why not.
 */
crpc_inline struct crpc_ipc_room
crpc_ipc_server_reply_reserve(const struct crpc_ipc_server *s, uint64_t token, uint32_t max)
{
	struct crpc_ipc_room room = {.peer = ipc_find_peer(s, token)};

	if (crpc_unlikely(room.peer == NULL || max > s->small_max ||
			    (token & IPC_TOKEN_FLAGS) != 0))
		return room;
	room.lone = ipc_is_lone(s, token);
	if (!room.lone)
		room.msg = ipc_resp_slot(s, room.peer)->data;
	else if (max <= s->reply_lone_max)
		room.msg = ipc_lone(s, room.peer)->data;
	return room;
}

/**
 * Answer with what was written there.
 *
 * @param s
 *   The server.
 * @param room
 *   What reserve gave.
 * @param token
 *   Of the request.
 * @param len
 *   Bytes of the answer, 0 to the max of the reserve.
 */
crpc_inline void
crpc_ipc_server_reply_commit(struct crpc_ipc_server *s, const struct crpc_ipc_room *room,
		uint64_t token, uint32_t len)
{
	struct ipc_slot *slot = crpc_container_of(room->msg, struct ipc_slot, data);

	IPC_OWNER_CHECK(s);
	if (room->lone)
		ipc_publish_lone(s, room->peer, token, len, slot);
	else
		ipc_publish(room->peer, token, len, slot);
}

#endif
