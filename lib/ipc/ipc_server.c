/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's datapath: recv and reply. What happens rarely in them is ipc_server_other.c, who may
 * be a client ipc_server_admit.c.
 */
#include <errno.h>

#include "ipc_server.h"
#include "rpc_copy.h"

/* Requests of one client before the next one's turn. */
#define QUANTUM 32

/* ---- recv ---- */

/*
 * None of p's requests is open: the next may be in the lone slot. A word with other flags than a
 * request's is an answer of ours, or has no meaning.
 */
static inline uint32_t
recv_lone(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req)
{
	struct ipc_slot *lone = ipc_lone(s, p);
	uint64_t word = crpc_load_acquire(&lone->word); /* A1 pairs with R1 in ipc_send_lone(). */
	uint32_t size = (uint32_t)(word >> 32); /* and the flags above it */

	if (ipc_word_seq(word) != (uint32_t)p->req_seq)
		return 0;
	if (crpc_unlikely(size > s->req_lone_max))
		return ipc_word_slot(word) != 0 ? 0 : __crpc_ipc_drop_lone(s, p, size);
	req->token = ipc_open_request(p, s->lone_slot);
	req->data = lone->data;
	req->len = size;
	req->peer = p->id;
	p->lone_seq = (uint32_t)p->req_seq++;
	return 1;
}

/* True if a request is at the head of p's ring. */
static inline bool
has_next(const struct ipc_peer *p)
{
	return ipc_word_seq(crpc_load_relaxed(&p->head->word)) == (uint32_t)p->req_seq;
}

/*
 * Take the requests at the head, up to n, that are plain ones: of bytes, and the next will be in
 * the slot that is next in order. A word is copied once, and only the copy is used; an open slot
 * can never be named again, so a request that is being served is never taken twice. The loop works
 * on copies of p's state, since the compiler has to assume that a store to a request changes it:
 * bursts of 32 take 25 % fewer instructions. Returns how many.
 */
crpc_inline uint32_t
recv_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t seq = (uint32_t)p->req_seq, slot = p->head_slot, got, next;
	const uint32_t mask = s->req_mask, req_max = s->lay.req_max;
	uint64_t *const tokens = p->tokens, token, size;
	struct ipc_slot *head = p->head;
	uint8_t *const base = p->req;

	for (got = 0; got < n; got++, seq++, req++) {
		next = (slot + 1) & mask;
		/* A1 pairs with R1 in ipc_send(). */
		size = ipc_word_differs(crpc_load_acquire(&head->word), ipc_word(seq, 0, next));
		if (size > req_max || (tokens[next] & IPC_TOKEN_FREE) == 0)
			break;
		token = (tokens[slot] + IPC_TOKEN_STEP) & ~(IPC_TOKEN_FREE | IPC_TOKEN_DEAD);
		tokens[slot] = token;
		req->token = token;
		req->data = head->data;
		req->len = (uint32_t)size;
		req->peer = ipc_token_client(token);
		slot = next;
		head = ipc_slot_at(base, slot, s->lay.req_slot);
	}
	p->head = head;
	p->head_slot = (uint16_t)slot;
	p->req_seq += got;
	p->open = (uint16_t)(p->open + got);
	return got;
}

/* There is more in p's ring, or what is no plain request: take up to n. */
static crpc_noinline uint32_t
recv_more(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint64_t n)
{
	uint32_t got = 0, most;

	if (p->open >= p->limit)
		return 0;
	most = (uint32_t)crpc_min(crpc_min(n, QUANTUM), (uint64_t)(p->limit - p->open));
	while (got < most) {
		got += recv_plain(s, p, req + got, most - got);
		if (got == most || !has_next(p) || !__crpc_ipc_recv_closer(s, p, req + got))
			break;
		got++;
	}
	return got;
}

/*
 * Take what client p has sent: a request in the lone slot, or the first of its ring; mostly that is
 * all. There is room for one at req, and no more than to end.
 */
static inline uint32_t
recv_peer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req,
	const struct crpc_req *end)
{
	uint32_t got = 0;

	if (p->open == 0 && crpc_likely(p->limit != 0))
		got = recv_lone(s, p, req);
	else if (p->open >= p->limit)
		return 0;
	if (got == 0) {
		/* The limit is 0 if the client was dropped just now. */
		if (!has_next(p) || p->limit == 0)
			return 0;
		got = recv_plain(s, p, req, 1);
	}
	if (crpc_likely(!has_next(p)))
		return got;
	return got + recv_more(s, p, req + got, (uint64_t)(end - req) - got);
}

/* A visit found nothing. True: the client left the list. */
static inline bool
count_idle(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	if (crpc_likely(++p->idle < s->sleep_visits) && crpc_likely(p->limit != 0))
		return false;
	if (p->limit != 0)
		return __crpc_ipc_doze(s, p);
	__crpc_ipc_deactivate(s, p);
	return true;
}

uint16_t
crpc_ipc_server_recv(struct crpc_ipc_server *s, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	const struct crpc_req *const first = req, *const end = req + crpc_min(n, CRPC_BURST_MAX);
	uint32_t pos = s->scan, got;
	const struct ipc_peer *ahead;
	struct ipc_peer *p;

	crpc_owner_check(&s->owner, "ipc server");
	s->stats.recvs++;
	/* A6 in __crpc_ipc_answer_bell() is the acquire: here is only whether to go there. */
	if (crpc_unlikely((crpc_load_relaxed(&s->bell->summary) | s->rung) != 0))
		__crpc_ipc_answer_bell(s);
	for (uint32_t left = s->n_active; left != 0 && req != end; left--) {
		if (pos >= s->n_active)
			pos = 0;
		p = s->active[pos++];
		/* Past the end stands one that left, or none: a hint needs no more. */
		ahead = s->active[pos + IPC_PREFETCH - 1];
		crpc_prefetch(ahead->head);
		crpc_prefetch(ipc_lone(s, ahead));
		got = recv_peer(s, p, req, end);
		req += got;
		if (got != 0)
			p->idle = 0;
		else if (crpc_unlikely(count_idle(s, p)))
			pos--;
	}
	s->scan = pos;
	s->stats.rpc.requests += (uint64_t)(req - first);
	return (uint16_t)(req - first);
}

/* ---- reply ---- */

/* Send the answer to an open request, of up to reply_short bytes or a status, from buf. */
static inline void
respond_short(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
	uint32_t len, uint32_t size)
{
	struct ipc_slot *r;

	p->tokens[token & s->token_mask] = token | IPC_TOKEN_FREE;
	if (ipc_is_lone(s, token)) {
		r = ipc_lone(s, p);
		rpc_copy_small(r->data, buf, len);
		ipc_publish_lone(s, p, size, r);
	} else {
		r = ipc_resp_slot(s, p);
		rpc_copy_small(r->data, buf, len);
		ipc_publish(p, ipc_token_slot(token), size, r);
	}
}

/* And of more bytes, or with a block, whose reference comes first: through the ring. */
static void
respond_long(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, uint64_t ref,
	const void *buf, uint32_t len)
{
	struct ipc_slot *r = ipc_resp_slot(s, p);
	uint32_t skip = ref != 0 ? IPC_REF_LEN : 0;

	if (ref != 0)
		memcpy(r->data, &ref, sizeof(ref));
	rpc_copy(r->data + skip, buf, len);
	if (ipc_is_lone(s, token))
		ipc_leave_lone(s, p);
	p->tokens[token & s->token_mask] = token | IPC_TOKEN_FREE;
	ipc_publish(p, ipc_token_slot(token) | (ref != 0 ? IPC_SLOT_BLOCK : 0), len + skip, r);
}

/* Any end of a request. size is that in the word: len, or a status. */
static crpc_noinline int
end_request(struct crpc_ipc_server *s, uint64_t token, uint64_t ref, const void *buf, uint32_t len,
	uint32_t size, bool oneway_too)
{
	struct ipc_peer *p = ipc_find_peer(s, token);
	uint64_t plain = token & ~IPC_TOKEN_FLAGS; /* as it is in the table from now on */
	int rc = 0;

	if (p == NULL)
		return __crpc_ipc_refuse_token(s, token, oneway_too);
	if ((token & CRPC_IPC_TOKEN_ONEWAY) != 0 && !oneway_too)
		return -EOPNOTSUPP;
	if (len > ipc_allowed(s, p, token) || len > s->lay.resp_max)
		return -EMSGSIZE;
	if (ref != 0)
		rc = __crpc_ipc_block_out(s, p, token, ref);
	if (rc != 0)
		return rc;
	if (ref == 0 && len <= s->reply_short)
		respond_short(s, p, plain, buf, len, size);
	else
		respond_long(s, p, plain, ref, buf, len);
	if ((token & CRPC_IPC_TOKEN_BLOCK) != 0)
		__crpc_ipc_block_end(s, p, ipc_token_slot(token)); /* in which buf may lie */
	return 0;
}

int
crpc_ipc_server_reply(
	struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	struct ipc_peer *p = ipc_find_peer(s, token);

	crpc_owner_check(&s->owner, "ipc server");
	if (crpc_unlikely(p == NULL || len > s->reply_short || (token & IPC_TOKEN_FLAGS) != 0 ||
		    len > ipc_allowed(s, p, token)))
		return end_request(s, token, 0, buf, len, len, false);
	respond_short(s, p, token, buf, len, len);
	return 0;
}

int
crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token)
{
	crpc_owner_check(&s->owner, "ipc server");
	return end_request(s, token, 0, NULL, 0, 0, true);
}

int
crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, int32_t status)
{
	crpc_owner_check(&s->owner, "ipc server");
	if (status >= 0 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	return end_request(s, token, 0, NULL, 0, IPC_SIZE_STATUS + (uint32_t)-status, false);
}

int
crpc_ipc_server_reply_ref(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, uint64_t ref,
	const void *buf, uint32_t len)
{
	crpc_owner_check(&s->owner, "ipc server");
	if (s->arena == NULL)
		return -ENOTSUP;
	if (s->lay.resp_max < IPC_REF_LEN || len > s->lay.resp_max - IPC_REF_LEN)
		return -EMSGSIZE;
	return ref == 0 ? -EINVAL : end_request(s, token, ref, buf, len, len, false);
}
