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
	if (crpc_unlikely(ipc_refuse(c, len, resp_max) != 0))
		return NULL;
	return ipc_goes_alone(c, len) ? c->lone->data : c->next->data;
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
	crpc_owner_check(&c->owner, "ipc client");
	ipc_send_call(c, len, msg == c->lone->data, cookie, rpc_deadline(now_ns, c->timeout_ns));
}

/** crpc_ipc_client_poll_plain(), when a call is in the lone slot. */
crpc_inline int
ipc_poll_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	uint64_t size = ipc_lone_size(c);

	if (crpc_unlikely(c->aside != IPC_ASIDE_LONE || ipc_in_use(c) != 1))
		return -1;
	if (size <= c->lone_resp_max && crpc_likely(ipc_is_plain(c->lone_call))) {
		ipc_take_lone(c, (uint32_t)size, done);
		return 1;
	}
	return size <= IPC_SIZE_MAX || ipc_ring_has_answer(c) ? -1 : 0;
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
	if (crpc_unlikely(c->countdown == 1 || c->sweep.active || now_ns >= c->sweep.next_ns))
		return -1;
	if (c->aside != 0) {
		rc = ipc_poll_lone(c, done);
	} else {
		/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
		word = crpc_load_acquire(&c->head->word);
		slot = ipc_word_slot(word);
		size = ipc_word_size(word);
		if (ipc_word_seq(word) != (uint32_t)c->resp_seq) {
			rc = 0;
		} else if (crpc_unlikely(slot > c->req_mask || size > c->resp_max ||
				   !ipc_is_plain(&c->call[slot]))) {
			return -1;
		} else {
			ipc_take(c, &c->call[slot], size, c->head->data, done);
			ipc_step_head(c, 1);
		}
	}
	if (crpc_likely(rc >= 0)) {
		c->countdown--;
		c->sweep.taken += (uint32_t)rc;
	}
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

	if (crpc_unlikely(p == NULL || len > s->lay.resp_max || (token & IPC_TOKEN_FLAGS) != 0))
		return NULL;
	if (!ipc_is_lone(s, token))
		return ipc_resp_slot(s, p)->data;
	return len <= s->reply_lone_max ? ipc_lone(s, p)->data : NULL;
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
	struct ipc_peer *p = &s->peers[(token >> IPC_TOKEN_ID_SHIFT) - 1];

	crpc_owner_check(&s->owner, "ipc server");
	if (ipc_is_lone(s, token))
		ipc_publish_lone(s, p, token, len, ipc_lone(s, p));
	else
		ipc_publish(p, token, len, ipc_resp_slot(s, p));
}

#endif
