/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's datapath: recv and reply. Who may be a client is ipc_server_admit.c. */
#include <errno.h>

#include "ipc_server.h"
#include "rpc_copy.h"

/* Requests of one client before the next one's turn. */
#define QUANTUM 32

/* ---- recv ---- */

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

static crpc_noinline uint32_t
drop_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t size)
{
	__crpc_ipc_drop(s, p,
			&(struct ipc_breach){"size of a lone request", s->req_lone_max, size});
	return 0;
}

/* Open the request in p's slot: its token. */
static inline uint64_t
open_request(struct ipc_peer *p, uint32_t slot)
{
	uint64_t token = (p->tokens[slot] & ~(IPC_TOKEN_FREE | IPC_TOKEN_DEAD)) + IPC_TOKEN_STEP;

	p->tokens[slot] = token;
	p->open++;
	return token;
}

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
		return ipc_word_slot(word) != 0 ? 0 : drop_lone(s, p, size);
	req->token = open_request(p, s->lone_slot);
	req->data = lone->data;
	req->len = size;
	req->peer = p->id;
	p->lone_seq = (uint32_t)p->req_seq++;
	return 1;
}

/*
 * Take the request at the head, which is not a plain one: see look_closer(). Returns 1, or 0: it
 * was failed, or its client dropped.
 */
static crpc_noinline uint32_t
recv_closer(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t word, struct crpc_req *req)
{
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
		return 0;
	}
	token = open_request(p, slot);
	p->req_seq++;
	p->head_slot = (uint16_t)look.next;
	p->head = ipc_slot_at(p->req, look.next, s->lay.req_slot);
	if (look.verdict == FAIL_IT) {
		if (crpc_ipc_server_fail(s, 0, token, -(int32_t)look.status) != 0)
			crpc_ipc_server_release(s, 0, token); /* it is one-way */
		return 0;
	}
	req->token = token;
	req->data = head->data + look.skip;
	req->len = ipc_word_size(word) - look.skip;
	req->peer = p->id;
	return 1;
}

/*
 * Take the plain requests that client p has sent, up to n. The word is copied once, and only the
 * copy is used; an open slot can never be named again, so a request that is being served is never
 * taken twice. The next slot is taken to be the next in order until the word says otherwise, so
 * that no load waits for the one before.
 */
static inline uint32_t
recv_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t seq = (uint32_t)p->req_seq, slot = p->head_slot, got, next;
	const uint32_t mask = s->req_mask, req_max = s->lay.req_max;
	uint64_t *const tokens = p->tokens, token, size;
	struct ipc_slot *head = p->head;
	uint8_t *const base = p->req;

	for (got = 0; got < n; got++, seq++, req++) {
		next = (slot + 1) & mask;
		/* A1 pairs with R1 in put(). */
		size = ipc_word_differs(
				crpc_load_acquire(&head->word), ipc_word(seq, 0, next));
		if (size > req_max || (tokens[next] & IPC_TOKEN_FREE) == 0)
			break;
		token = (tokens[slot] & ~(IPC_TOKEN_FREE | IPC_TOKEN_DEAD)) + IPC_TOKEN_STEP;
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

/* Take what client p has sent, up to n. */
static inline uint32_t
recv_peer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t got = 0, k = 1;
	uint64_t word;

	if (p->open >= p->limit)
		return 0;
	n = crpc_min(n, (uint32_t)(p->limit - p->open));
	if (p->open == 0)
		got = recv_lone(s, p, req);
	while (k != 0) {
		got += recv_plain(s, p, req + got, n - got);
		word = crpc_load_acquire(&p->head->word); /* A1 */
		if (crpc_likely(ipc_word_seq(word) != (uint32_t)p->req_seq) || got == n)
			break;
		k = recv_closer(s, p, word, req + got);
		got += k;
	}
	return got;
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
	uint32_t left, pos = s->scan, got = 0, k;
	const struct ipc_peer *ahead;
	struct ipc_peer *p;

	crpc_owner_check(&s->owner, "ipc server");
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	s->stats.recvs++;
	/* A6 in __crpc_ipc_answer_bell() is the acquire: here is only whether to go there. */
	if (crpc_unlikely((crpc_load_relaxed(&s->bell->summary) | s->rung) != 0))
		__crpc_ipc_answer_bell(s);
	for (left = s->n_active; left != 0 && got < n; left--) {
		if (pos >= s->n_active)
			pos = 0;
		p = s->active[pos++];
		/* Past the end stands one that left, or none: a hint needs no more. */
		ahead = s->active[pos + IPC_PREFETCH - 1];
		crpc_prefetch(ahead->head);
		crpc_prefetch(ipc_lone(s, ahead));
		k = recv_peer(s, p, req + got, crpc_min(n - got, QUANTUM));
		got += k;
		if (k != 0)
			p->idle = 0;
		else if (crpc_unlikely(count_idle(s, p)))
			pos--;
	}
	s->scan = pos;
	s->stats.rpc.requests += got;
	return (uint16_t)got;
}

/* ---- reply ---- */

crpc_noinline int
__crpc_ipc_refuse_token(struct crpc_ipc_server *s, uint64_t token)
{
	uint32_t id = (uint32_t)(token >> IPC_TOKEN_ID_SHIFT) - 1, slot = ipc_token_slot(token);
	struct ipc_peer *p;
	uint64_t *t;

	s->stats.stale++;
	if (id >= s->lay.max_clients || slot > s->lay.req_slots)
		return -ENOENT;
	p = &s->peers[id];
	t = &p->tokens[slot];
	if (*t != ((token & ~IPC_TOKEN_FLAGS) | IPC_TOKEN_FREE | IPC_TOKEN_DEAD))
		return -ENOENT;
	*t &= ~IPC_TOKEN_DEAD;
	p->dead--;
	__crpc_ipc_block_end(s, p, slot);
	return -ECONNRESET;
}

/* The answer to the request in the lone slot goes through the ring: no word is left there. */
static void
leave_lone(const struct crpc_ipc_server *s, const struct ipc_peer *p)
{
	crpc_store_relaxed(
			&ipc_lone(s, p)->word, ipc_word(p->lone_seq - 1, 0, IPC_SLOT_REPLY));
	CRPC_CRASH_POINT("ipc.reply_lone.3");
}

/*
 * End an open request with len bytes, or with a status and none: over the request if it is in the
 * lone slot and the answer has room there, else as the next response of the ring. Its ring is the
 * client's to lose: see ipc_layout.h for its size.
 */
static inline void
respond(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
	uint32_t len, uint32_t size)
{
	struct ipc_slot *lone = ipc_lone(s, p), *r;
	uint64_t at = (uintptr_t)buf - (uintptr_t)lone->data;

	if (ipc_is_lone(s, token) && len <= s->reply_lone_max) {
		if (crpc_unlikely(at - 1 < CRPC_IPC_SMALL))
			memmove(lone->data, buf, len); /* what it holds lies in the request */
		else if (at != 0)
			rpc_copy(lone->data, buf, len);
		ipc_publish_lone(s, p, token, size, lone);
		return;
	}
	r = ipc_resp_slot(s, p);
	rpc_copy(r->data, buf, len);
	if (crpc_unlikely(ipc_is_lone(s, token)))
		leave_lone(s, p);
	ipc_publish(p, token, size, r);
}

void
__crpc_ipc_respond_ref(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, uint64_t ref,
		const void *buf, uint32_t len)
{
	struct ipc_slot *r = ipc_resp_slot(s, p);
	uint32_t slot = ipc_token_slot(token);

	memcpy(r->data, &ref, sizeof(ref));
	rpc_copy(r->data + IPC_REF_LEN, buf, len);
	if (ipc_is_lone(s, token))
		leave_lone(s, p);
	p->tokens[slot] = (token & ~IPC_TOKEN_FLAGS) | IPC_TOKEN_FREE;
	p->open--;
	CRPC_CRASH_POINT("ipc.reply_ref.2");
	crpc_store_release(&r->word, ipc_word((uint32_t)p->resp_seq, len + IPC_REF_LEN,
						     slot | IPC_SLOT_BLOCK)); /* R2 */
	CRPC_CRASH_POINT("ipc.reply_ref.3");
	p->resp_seq++;
}

/* As crpc_ipc_server_reply(); answers is false for release(), which ends one-way requests too. */
static inline int
end_request(struct crpc_ipc_server *s, uint64_t token, bool answers, const void *buf, uint32_t len,
	uint32_t size)
{
	struct ipc_peer *p = ipc_find_peer(s, token);

	crpc_owner_check(&s->owner, "ipc server");
	if (crpc_unlikely(p == NULL))
		return __crpc_ipc_refuse_token(s, token);
	if (crpc_unlikely(len > s->lay.resp_max))
		return -EMSGSIZE;
	if (crpc_unlikely((token & IPC_TOKEN_FLAGS) != 0)) {
		if (answers && (token & CRPC_IPC_TOKEN_ONEWAY) != 0)
			return -EOPNOTSUPP;
		respond(s, p, token & ~IPC_TOKEN_FLAGS, buf, len, size);
		__crpc_ipc_block_end(s, p, ipc_token_slot(token)); /* in which buf may lie */
		return 0;
	}
	respond(s, p, token, buf, len, size);
	return 0;
}

int
crpc_ipc_server_reply(
	struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	return end_request(s, token, true, buf, len, len);
}

int
crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token)
{
	return end_request(s, token, false, NULL, 0, 0);
}

int
crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, int32_t status)
{
	if (status >= 0 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	return end_request(s, token, true, NULL, 0, IPC_SIZE_STATUS + (uint32_t)-status);
}

/* ---- runs of answers ---- */

/*
 * End the requests, from the first on, that are open plain ones of client p, and list their slots.
 * Returns how many.
 */
static inline uint32_t
end_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, const struct crpc_req *req,
		uint16_t *slots, uint32_t n)
{
	const uint64_t odd = IPC_TOKEN_FREE | IPC_TOKEN_FLAGS;
	uint64_t *const tokens = p->tokens, token;
	const uint32_t mask = s->req_mask;
	uint32_t i, slot;

	/* Whose a token is stands in it, and in p's table stand p's; none of the lone slot's. */
	for (i = 0; i < n; i++) {
		token = req[i].token;
		slot = (uint32_t)token & mask;
		if (tokens[slot] != token || (token & odd) != 0)
			break;
		tokens[slot] = token | IPC_TOKEN_FREE;
		slots[i] = (uint16_t)slot;
	}
	p->open = (uint16_t)(p->open - i);
	return i;
}

/* Undo the end of k requests: they are not answered by a run. */
static crpc_noinline uint32_t
reopen_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, const struct crpc_req *req,
		uint32_t k)
{
	uint32_t i;

	for (i = 0; i < k; i++)
		p->tokens[(uint32_t)req[i].token & s->req_mask] = req[i].token;
	p->open = (uint16_t)(p->open + k);
	return 0;
}

/* True if the start of a line, from number `line` of k on, could be taken for a word some day. */
static inline bool
looks_like_word(const struct ipc_slot *head, uint32_t place, uint32_t line, uint32_t k,
		uint32_t mask)
{
	uint32_t word;

	for (; line < k; line++) {
		memcpy(&word, (const uint8_t *)head + line * CRPC_CACHE_LINE, sizeof(word));
		if (((word ^ (place + line)) & mask) == 0)
			return true;
	}
	return false;
}

/*
 * Publish the answers of k requests of client p that were ended, whose slots stand at the place of
 * the next response, as one run: see ipc_layout.h. False: that cannot be done with these
 * answers.
 */
static inline bool
put_run(struct ipc_peer *p, uint32_t mask, const uint8_t *msgs, uint32_t k, uint32_t size)
{
	uint32_t place = (uint32_t)p->resp_seq & mask, from = ipc_run_data(k, size), i;
	uint32_t line = (from + CRPC_CACHE_LINE - 1) / CRPC_CACHE_LINE;
	struct ipc_slot *head = ipc_slot_at(p->resp, place, CRPC_CACHE_LINE);
	uint8_t *to = (uint8_t *)head + from;

	for (i = 0; i < k; i++, to += ipc_run_stride(size), msgs += size)
		rpc_copy(to, msgs, size);
	if (crpc_unlikely(looks_like_word(head, place, line, k, mask))) {
		for (i = line; i < k; i++)
			ipc_spoil(ipc_slot_at(p->resp, place + i, CRPC_CACHE_LINE), place + i);
		return false;
	}
	CRPC_CRASH_POINT("ipc.run.1");
	/* R2, as in ipc_publish() */
	crpc_store_release(&head->word, ipc_word((uint32_t)p->resp_seq, size, IPC_SLOT_RUN | k));
	CRPC_CRASH_POINT("ipc.run.2");
	p->resp_seq += k;
	return true;
}

/* Answer as many as one run takes; 0: the first has to be answered alone. */
static inline uint32_t
reply_some(struct crpc_ipc_server *s, const struct crpc_req *req, const uint8_t *msgs,
		uint32_t len, uint32_t n)
{
	uint32_t id = (uint32_t)(req->token >> IPC_TOKEN_ID_SHIFT) - 1, place, k;
	struct ipc_slot *head;
	bool done = false;
	struct ipc_peer *p;

	if (crpc_unlikely(id >= s->lay.max_clients || len >= s->run_end))
		return 0;
	p = &s->peers[id];
	place = (uint32_t)p->resp_seq & s->resp_mask;
	k = s->resp_mask + 1 - place; /* to the end of the ring */
	k = k < IPC_RUN_MAX ? k : IPC_RUN_MAX;
	k = k < n ? k : n;
	if (k < IPC_RUN_MIN || (p->resp_seq & (IPC_RUN_EPOCH - 1)) <= s->resp_mask)
		return 0;
	head = ipc_slot_at(p->resp, place, CRPC_CACHE_LINE);
	k = end_plain(s, p, req, (uint16_t *)(void *)head->data, k);
	if (k >= IPC_RUN_MIN)
		done = put_run(p, s->resp_mask, msgs, k, len);
	return crpc_likely(done) ? k : reopen_plain(s, p, req, k);
}

uint16_t
crpc_ipc_server_reply_burst(struct crpc_ipc_server *s, uint64_t now_ns, const struct crpc_req *req,
	const void *msgs, uint32_t len, uint16_t n)
{
	const uint8_t *m = msgs;
	uint32_t done = 0, run;

	crpc_owner_check(&s->owner, "ipc server");
	while (done < n) {
		run = reply_some(s, req + done, m + (size_t)done * len, len, n - done);
		if (run == 0) {
			if (crpc_ipc_server_reply(
				    s, now_ns, req[done].token, m + (size_t)done * len, len) != 0)
				break;
			run = 1;
		}
		done += run;
	}
	return (uint16_t)done;
}
