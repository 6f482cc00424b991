/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's datapath: recv and reply. Who may be a client is ipc_server_admit.c. */
#include <errno.h>

#include "ipc_server.h"

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

/*
 * None of p's requests is open, and `word` of the lone slot has the number of the next. Other flags
 * than a request's: it is an answer of ours, or nobody's.
 */
static inline uint32_t
recv_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t word, struct crpc_req *req)
{
	uint64_t *t = &p->tokens[s->lone_slot], token;
	uint32_t size = (uint32_t)(word >> 32); /* and the flags above it */

	if (crpc_unlikely(size > s->req_lone_max))
		return ipc_word_slot(word) != 0 ? 0 : drop_lone(s, p, size);
	token = (*t & ~(IPC_TOKEN_FREE | IPC_TOKEN_DEAD)) + IPC_TOKEN_STEP;
	*t = token;
	req->token = token;
	req->data = ipc_lone(s, p)->data;
	req->len = size;
	req->peer = ipc_token_client(token);
	p->lone_seq = (uint32_t)p->req_seq++;
	p->open = 1;
	p->watch = p->head; /* while it is open, nothing comes there */
	return 1;
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
		crpc_ipc_server_fail(s, token, -(int32_t)look.status);
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
 * that no load waits for the one before. stride is a constant where it is instantiated for speed.
 */
static inline uint32_t
recv_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n,
		uint32_t stride)
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
		head = ipc_slot_at(base, slot, stride);
	}
	p->head = head;
	p->head_slot = (uint16_t)slot;
	p->req_seq += got;
	p->open = (uint16_t)(p->open + got);
	return got;
}

/* Functions of their own: there are registers enough for these loops alone. */
static crpc_noinline uint32_t
recv_lines(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	return recv_plain(s, p, req, n, CRPC_CACHE_LINE);
}

static crpc_noinline uint32_t
recv_slots(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	return recv_plain(s, p, req, n, s->lay.req_slot);
}

/* Take what client p has sent, up to n. */
static uint32_t
recv_many(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t room = (uint32_t)(p->limit - p->open), got = 0, k;
	uint64_t word;

	n = n < room ? n : room;
	for (;;) {
		if (s->lay.req_slot == CRPC_CACHE_LINE)
			got += recv_lines(s, p, req + got, n - got);
		else
			got += recv_slots(s, p, req + got, n - got);
		if (got == n)
			break;
		word = crpc_load_acquire(&p->head->word); /* A1 */
		if (crpc_likely(ipc_word_seq(word) != (uint32_t)p->req_seq))
			break;
		k = recv_closer(s, p, word, req + got);
		if (k == 0)
			break;
		got += k;
	}
	return got;
}

/* Most visits end here: recv_many() looks again, with the order that it needs. */
static inline bool
ring_has_one(const struct ipc_peer *p)
{
	return ipc_word_seq(crpc_load_relaxed(&p->head->word)) == (uint32_t)p->req_seq;
}

/*
 * Take what client p has sent through the ring, where `word` of the head has the number of the
 * next: up to n, which is at least 1, as is the room that it has. There is often one plain request
 * and no more: that one is taken here.
 */
static inline uint32_t
recv_ring(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t word, struct crpc_req *req,
		uint32_t n)
{
	uint32_t slot = p->head_slot, next = ipc_opaque((slot + 1) & s->req_mask), k;
	uint64_t token;

	if (crpc_unlikely(ipc_word_slot(word) != next || ipc_word_size(word) > s->lay.req_max ||
			    (p->tokens[next] & IPC_TOKEN_FREE) == 0)) {
		k = recv_many(s, p, req, n);
		p->watch = p->head;
		return k;
	}
	token = open_request(p, slot);
	req->token = token;
	req->data = p->head->data;
	req->len = ipc_word_size(word);
	req->peer = ipc_token_client(token);
	p->req_seq++;
	p->head_slot = (uint16_t)next;
	p->head = ipc_slot_at(p->req, next, s->lay.req_slot);
	k = 1;
	if (n > 1 && p->open < p->limit && ring_has_one(p))
		k += recv_many(s, p, req + 1, n - 1);
	p->watch = p->head;
	return k;
}

/* Requests that were made while one in the lone slot was open are in the ring. */
static inline uint32_t
recv_lone_and_more(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t word,
		struct crpc_req *req, uint32_t n)
{
	uint32_t k = recv_lone(s, p, word, req);

	if (crpc_likely(!ring_has_one(p)) || n <= k || p->open >= p->limit)
		return k;
	k += recv_many(s, p, req + k, n - k);
	p->watch = p->head;
	return k;
}

/*
 * Nothing is where client p's next request is looked for first: look in the other place.
 */
static inline uint32_t
recv_elsewhere(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	bool ring = p->watch != p->head;
	uint64_t word;

	if (!ring && p->open != 0)
		return 0;
	/* A1, as below */
	word = crpc_load_acquire(ring ? &p->head->word : &ipc_lone(s, p)->word);
	if (crpc_likely(ipc_word_seq(word) != (uint32_t)p->req_seq) || p->open >= p->limit)
		return 0;
	return ring ? recv_ring(s, p, word, req, n) : recv_lone_and_more(s, p, word, req, n);
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

/* A visit at which there is not just a plain request at the head. */
static crpc_noinline uint32_t
visit_head(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t room = n < QUANTUM ? n : QUANTUM;
	uint64_t word = crpc_load_acquire(&p->head->word); /* A1 pairs with R1 in ipc_send(). */

	if (ipc_word_seq(word) != (uint32_t)p->req_seq || p->open >= p->limit)
		return recv_elsewhere(s, p, req, room);
	return recv_ring(s, p, word, req, room);
}

/* A visit to the lone slot. */
static inline uint32_t
visit_lone(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	/* A1 pairs with R1 in ipc_send_lone() */
	uint64_t word = crpc_load_acquire(&p->watch->word);
	uint32_t room = n < QUANTUM ? n : QUANTUM;

	if (ipc_word_seq(word) != (uint32_t)p->req_seq || p->open >= p->limit)
		return recv_elsewhere(s, p, req, room);
	return recv_lone_and_more(s, p, word, req, room);
}

enum found {
	FOUND_NOTHING,
	FOUND_PLAIN,
	FOUND_OTHER,
};

/*
 * Most visits find one plain request at the head, and that is all: as recv_ring(). Where it finds
 * anything else nothing was done.
 */
static inline enum found
visit_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req)
{
	struct ipc_slot *head = p->head;
	uint64_t word = crpc_load_acquire(&head->word); /* A1 pairs with R1 in ipc_send(). */
	uint32_t slot, next, size;
	uint64_t token;

	if (ipc_word_seq(word) != (uint32_t)p->req_seq)
		return FOUND_NOTHING;
	slot = p->head_slot;
	next = ipc_opaque((slot + 1) & s->req_mask);
	size = (uint32_t)(word >> 32) ^ next << 16; /* if next is what stands above it */
	if (size > s->lay.req_max || p->open >= p->limit ||
			(p->tokens[next] & IPC_TOKEN_FREE) == 0)
		return FOUND_OTHER;
	token = open_request(p, slot);
	req->token = token;
	req->data = head->data;
	req->len = size;
	req->peer = ipc_token_client(token);
	head = ipc_slot_at(p->req, next, s->lay.req_slot);
	p->req_seq++;
	p->head_slot = (uint16_t)next;
	p->head = head;
	p->watch = head;
	p->idle = 0;
	return FOUND_PLAIN;
}

/* And there are more. */
static crpc_noinline uint32_t
visit_rest(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	uint32_t k = recv_many(s, p, req, n < QUANTUM ? n : QUANTUM - 1);

	p->watch = p->head;
	return k;
}

static crpc_noinline uint16_t
recv_all(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n)
{
	uint32_t left, pos, got = 0, k;
	struct ipc_peer *p;
	enum found found;

	s->stats.recvs++;
	/* A6 in __crpc_ipc_answer_bell() is the acquire: here is only whether to go there. */
	if (crpc_unlikely((crpc_load_relaxed(&s->bell->summary) | s->rung) != 0))
		__crpc_ipc_answer_bell(s);
	pos = s->scan;
	for (left = s->n_active; left != 0 && got < n; left--) {
		if (pos >= s->n_active)
			pos = 0;
		p = s->active[pos++];
		/* Past the end stands somebody who left, or nobody: a hint needs no more. */
		crpc_prefetch(s->active[pos + IPC_PREFETCH - 1]->watch);
		if (p->watch != p->head) {
			k = visit_lone(s, p, req + got, n - got);
		} else {
			found = visit_plain(s, p, req + got);
			if (found == FOUND_PLAIN) {
				got++;
				if (crpc_unlikely(p->open < p->limit && got < n && ring_has_one(p)))
					got += visit_rest(s, p, req + got, n - got);
				continue;
			}
			/* While one is open, the next does not come in the lone slot. */
			if (crpc_likely(found == FOUND_NOTHING && p->open != 0))
				k = 0;
			else
				k = visit_head(s, p, req + got, n - got);
		}
		got += k;
		if (k != 0)
			p->idle = 0;
		else if (crpc_unlikely(count_idle(s, p)))
			pos--;
	}
	s->scan = pos;
	s->stats.requests += got;
	return (uint16_t)got;
}

/*
 * As recv_all(), when one client is awake that makes one call at a time, and there is its call or
 * nothing. Anything else is left to that, and nothing is done before it is known. *n is set.
 */
static inline bool
recv_only_lone(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t *n)
{
	struct ipc_peer *p = s->active[0];
	struct ipc_slot *lone = p->watch;
	uint32_t seq = (uint32_t)p->req_seq, ahead;
	uint64_t word;

	if (s->n_active != 1 || lone == p->head || *n == 0 ||
			(crpc_load_relaxed(&s->bell->summary) | s->rung) != 0)
		return false;
	word = crpc_load_acquire(&lone->word); /* A1 pairs with R1 in put_lone(). */
	ahead = ipc_word_seq(crpc_load_relaxed(&p->head->word));
	if (ipc_word_seq(word) != seq) {
		if (ahead == seq || p->idle + 1u >= s->sleep_visits)
			return false;
		p->idle++;
		*n = 0;
	} else {
		if (crpc_unlikely(ahead == seq + 1 || word >> 32 > s->req_lone_max))
			return false;
		*n = (uint16_t)recv_lone(s, p, word, req);
		p->idle = 0;
		s->stats.requests++;
	}
	s->stats.recvs++;
	return true;
}

uint16_t
crpc_ipc_server_recv(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n)
{
	IPC_OWNER_CHECK(s);
	if (recv_only_lone(s, req, &n))
		return n;
	return recv_all(s, req, (uint16_t)crpc_min(n, CRPC_BURST_MAX));
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

/*
 * Write the next response of client p, whose request `token` is open. Its ring is the client's to
 * lose: see ipc_layout.h for its size.
 */
static inline void
respond(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
		uint32_t len, uint32_t size, bool small)
{
	struct ipc_slot *r = ipc_resp_slot(s, p);

	if (small)
		ipc_copy_small(r->data, buf, len);
	else if (len != 0)
		memcpy(r->data, buf, len);
	ipc_publish(p, token, size, r);
}

/* Short bytes that may overlap. */
static crpc_noinline void
copy_within(void *dst, const void *src, uint32_t len)
{
	uint8_t copy[CRPC_IPC_SMALL];

	ipc_copy_small(copy, src, len);
	ipc_copy_small(dst, copy, len);
}

/*
 * Answer a request of the lone slot with what has no room there: through the ring, and the slot is
 * left without a word.
 */
static void
respond_lone_long(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
		uint32_t len)
{
	crpc_store_relaxed(
			&ipc_lone(s, p)->word, ipc_word(p->lone_seq - 1, 0, IPC_SLOT_REPLY));
	CRPC_CRASH_POINT("ipc.reply_lone.3");
	respond(s, p, token, buf, len, len, false);
}

/* Answer in the lone slot, over the request. What buf holds may lie in it too. */
static void
respond_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
		uint32_t len, uint32_t size)
{
	struct ipc_slot *lone = ipc_lone(s, p);

	copy_within(lone->data, buf, len);
	ipc_publish_lone(s, p, token, size, lone);
}

/*
 * Answer an open request of the lone slot with an answer that has room there, and lies where it
 * belongs or apart from it. False: nothing was done.
 */
static inline bool
reply_lone(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
		uint32_t len)
{
	struct ipc_slot *lone = ipc_lone(s, p);
	uint8_t *data = lone->data;

	if (len > s->reply_lone_max)
		return false;
	if (buf != data) {
		if (crpc_unlikely((uintptr_t)buf - (uintptr_t)data < CRPC_IPC_SMALL))
			return false;
		ipc_copy_small(data, buf, len);
	}
	ipc_publish_lone(s, p, token, len, lone);
	return true;
}

/*
 * The end of a one-way request, whatever the answer, only gives its slot back. A block that is
 * still there is freed, after the answer that may lie in it. The table of tokens keeps no flags.
 */
static void
respond_flagged(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, const void *buf,
		uint32_t len, uint32_t size)
{
	uint64_t plain = token & ~IPC_TOKEN_FLAGS;

	if ((token & CRPC_IPC_TOKEN_ONEWAY) != 0)
		respond(s, p, plain, NULL, 0, 0, true);
	else
		respond(s, p, plain, buf, len, size, false);
	if ((token & CRPC_IPC_TOKEN_BLOCK) != 0)
		__crpc_ipc_block_end(s, p, ipc_token_slot(token));
}

void
__crpc_ipc_respond_ref(struct crpc_ipc_server *s, struct ipc_peer *p, uint64_t token, uint64_t ref,
		const void *buf, uint32_t len)
{
	struct ipc_slot *r = ipc_resp_slot(s, p);
	uint32_t slot = ipc_token_slot(token);

	memcpy(r->data, &ref, sizeof(ref));
	if (len != 0)
		memcpy(r->data + IPC_REF_LEN, buf, len);
	if (slot == s->req_mask + 1)
		crpc_store_relaxed(&ipc_lone(s, p)->word,
				ipc_word(p->lone_seq - 1, 0, IPC_SLOT_REPLY));
	p->tokens[slot] = (token & ~IPC_TOKEN_FLAGS) | IPC_TOKEN_FREE;
	p->open--;
	CRPC_CRASH_POINT("ipc.reply_ref.2");
	crpc_store_release(&r->word, ipc_word((uint32_t)p->resp_seq, len + IPC_REF_LEN,
						     slot | IPC_SLOT_BLOCK)); /* R2 */
	CRPC_CRASH_POINT("ipc.reply_ref.3");
	p->resp_seq++;
}

/* Everything but a short answer to a plain request. */
static crpc_noinline int
respond_otherwise(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len,
		uint32_t size)
{
	struct ipc_peer *p;

	if (len > s->lay.resp_max)
		return -EMSGSIZE;
	p = ipc_find_peer(s, token);
	if (p == NULL)
		return __crpc_ipc_refuse_token(s, token);
	if ((token & IPC_TOKEN_FLAGS) != 0)
		respond_flagged(s, p, token, buf, len, size);
	else if (ipc_is_lone(s, token) && len > s->reply_lone_max)
		respond_lone_long(s, p, token, buf, len);
	else if (ipc_is_lone(s, token))
		respond_lone(s, p, token, buf, len, size);
	else
		respond(s, p, token, buf, len, size, false);
	return 0;
}

int
crpc_ipc_server_reply(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len)
{
	struct ipc_peer *p = ipc_find_peer(s, token);

	IPC_OWNER_CHECK(s);
	/* The lone slot's tokens have no flags. */
	if (p != NULL && ipc_is_lone(s, token) && reply_lone(s, p, token, buf, len))
		return 0;
	if (crpc_unlikely(p == NULL || ipc_is_lone(s, token) || len > s->small_max ||
			    (token & IPC_TOKEN_FLAGS) != 0))
		return respond_otherwise(s, token, buf, len, len);
	respond(s, p, token, buf, len, len, true);
	return 0;
}

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

	/*
	 * Whose a token is stands in it, and in p's table stand p's; none of the lone slot's does.
	 */
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
 * the next response, as one run: see ipc_layout.h. size is a constant where it is instantiated for
 * speed. False: that cannot be done with these answers.
 */
static inline bool
put_run(struct ipc_peer *p, uint32_t mask, const uint8_t *msgs, uint32_t k, uint32_t size)
{
	uint32_t place = (uint32_t)p->resp_seq & mask, from = ipc_run_data(k, size), i;
	uint32_t line = (from + CRPC_CACHE_LINE - 1) / CRPC_CACHE_LINE;
	struct ipc_slot *head = ipc_slot_at(p->resp, place, CRPC_CACHE_LINE);
	uint8_t *to = (uint8_t *)head + from;

	for (i = 0; i < k; i++, to += ipc_run_stride(size), msgs += size)
		ipc_copy_small(to, msgs, size);
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
		done = len == IPC_RUN_SIZE ? put_run(p, s->resp_mask, msgs, k, IPC_RUN_SIZE)
					   : put_run(p, s->resp_mask, msgs, k, len);
	return crpc_likely(done) ? k : reopen_plain(s, p, req, k);
}

uint16_t
crpc_ipc_server_reply_burst(struct crpc_ipc_server *s, const struct crpc_req *req,
		const void *msgs, uint32_t len, uint16_t n)
{
	const uint8_t *m = msgs;
	uint32_t done = 0, run;

	IPC_OWNER_CHECK(s);
	while (done < n) {
		run = reply_some(s, req + done, m + (size_t)done * len, len, n - done);
		if (run == 0) {
			if (crpc_ipc_server_reply(
					    s, req[done].token, m + (size_t)done * len, len) != 0)
				break;
			run = 1;
		}
		done += run;
	}
	return (uint16_t)done;
}

int
crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t token)
{
	IPC_OWNER_CHECK(s);
	return respond_otherwise(s, token, NULL, 0, 0);
}

int
crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t token, int32_t status)
{
	IPC_OWNER_CHECK(s);
	if (status >= 0 || status < -IPC_ERRNO_MAX)
		return -EINVAL;
	return respond_otherwise(s, token, NULL, 0, IPC_SIZE_STATUS + (uint32_t)-status);
}
