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

/**
 * Where the next request goes, to write it there instead of having it copied.
 *
 * @param c, resp_max
 *   As crpc_ipc_client_call().
 * @param len
 *   Bytes that will be written there at most, 0 to req_max.
 * @return
 *   Room for them; NULL where call() would fail. Nothing has changed yet: a reserve without a
 *   commit needs no end, and any call in between takes the room.
 */
crpc_inline void *
crpc_ipc_client_call_reserve(struct crpc_ipc_client *c, uint32_t len, uint32_t resp_max)
{
	struct ipc_call *call = c->next_call;
	struct ipc_slot *slot = c->next;

	if (crpc_unlikely(ipc_goes_alone(c, len))) {
		call = c->lone_call;
		slot = c->lone;
	}
	if ((!ipc_has_room(c, len) || crpc_unlikely(call->resp_max != resp_max)) &&
		__crpc_ipc_prepare(c, call, len, resp_max) != 0)
		return NULL;
	return slot->data;
}

/**
 * Send what was written there.
 *
 * @param c, now_ns, cookie
 *   As crpc_ipc_client_call().
 * @param msg
 *   What the reserve gave.
 * @param len
 *   Bytes of the request, at most those of the reserve.
 */
crpc_inline void
crpc_ipc_client_call_commit(
	struct crpc_ipc_client *c, uint64_t now_ns, const void *msg, uint32_t len, uint64_t cookie)
{
	uint64_t deadline_ns = rpc_deadline(now_ns, c->timeout_ns);
	struct ipc_call *call = c->next_call;

	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(msg == c->lone->data)) {
		rpc_calls_open(&c->calls, &c->lone_call->rpc, cookie, deadline_ns);
		ipc_send_lone(c, len);
	} else {
		rpc_calls_open(&c->calls, &call->rpc, cookie, deadline_ns);
		ipc_send(c, len, IPC_CALL_OPEN, 0);
	}
	ipc_ring_if_asleep(c);
}

/** crpc_ipc_client_poll_plain(), when a call is in the lone slot. */
crpc_inline int
ipc_poll_plain_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	int rc = crpc_likely(ipc_is_alone(c)) ? ipc_poll_lone(c, done) : -1;

	return rc == 0 && ipc_ring_has_answer(c) ? -1 : rc;
}

/**
 * Take one completion, if it is an answer that came plainly.
 *
 * @param c, now_ns
 *   As crpc_ipc_client_poll().
 * @return
 *   1, or 0: none is there; or -1: nothing was done, crpc_ipc_client_poll() has to look.
 */
crpc_inline int
crpc_ipc_client_poll_plain(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done)
{
	uint32_t slot, size;
	uint64_t word;
	int rc = 1;

	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(c->countdown == 1 || now_ns >= c->sweep.next_ns))
		return -1;
	if (c->aside != 0) {
		rc = ipc_poll_plain_lone(c, done);
	} else {
		/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
		word = crpc_load_acquire(&c->head->word);
		slot = ipc_word_slot(word);
		size = ipc_word_size(word);
		if (ipc_word_seq(word) != (uint32_t)c->resp_seq) {
			rc = 0;
		} else if (crpc_unlikely(slot > c->req_mask || size > c->call[slot].resp_max ||
				   !ipc_is_plain(&c->call[slot]))) {
			return -1;
		} else {
			ipc_take(c, &c->call[slot], size, c->head->data, done);
			ipc_step_head(c, 1);
		}
	}
	if (crpc_likely(rc >= 0))
		c->countdown--;
	return rc;
}

/* ---- server ---- */

/**
 * Where the answer to a request goes, to write it there instead of having it copied. It may lie
 * over the request: read that first.
 *
 * @param s
 *   The server.
 * @param token
 *   Of the request.
 * @param len
 *   Bytes that will be written there at most, 0 to resp_max.
 * @return
 *   Room for them; NULL where crpc_ipc_server_reply() would fail, for a request with a block, and
 *   where an answer of that length would not lie there. reply() takes it then, or returns why not.
 */
crpc_inline void *
crpc_ipc_server_reply_reserve(struct crpc_ipc_server *s, uint64_t token, uint32_t len)
{
	const struct ipc_peer *p = ipc_find_peer(s, token);

	if (crpc_unlikely(p == NULL || (token & IPC_TOKEN_FLAGS) != 0 ||
		    len > ipc_allowed(s, p, token) || len > s->lay.resp_max))
		return NULL;
	if (!ipc_is_lone(s, token))
		return ipc_resp_slot(s, p)->data;
	return len <= s->reply_short ? ipc_lone(s, p)->data : NULL;
}

/**
 * Answer with what was written there.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param token
 *   Of the request: the last reserve gave room for it, and no request has ended since.
 * @param len
 *   Bytes of the answer, at most those of the reserve.
 */
crpc_inline void
crpc_ipc_server_reply_commit(
	struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, uint32_t len)
{
	struct ipc_peer *p = &s->peers[(uint32_t)(token >> IPC_TOKEN_ID_SHIFT) - 1];

	crpc_owner_check(&s->owner, "ipc server");
	if (ipc_is_lone(s, token))
		ipc_publish_lone(s, p, token, len, ipc_lone(s, p));
	else
		ipc_publish(p, token, len, ipc_resp_slot(s, p));
}

#endif
