/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's datapath: recv and reply. Who may be a client is ipc_server_admit.c. */
#include <errno.h>

#include "ipc_server.h"

/* Requests of one client before the next one's turn. */
#define QUANTUM 32

/*
 * Take what client p has sent. The word is copied once; size and next slot are checked in the copy;
 * an open slot can never be named again, so a request that is being served is never taken twice.
 */
static inline uint32_t
recv_peer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint32_t n)
{
	struct ipc_slot *head = p->head;
	uint32_t size, next, got = 0;
	uint64_t word, token;

	do {
		/* A1 pairs with R1 in put(). */
		word = crpc_load_acquire(&head->word);
		if (ipc_word_seq(word) != (uint32_t)p->req_seq)
			break;
		size = ipc_word_size(word);
		next = ipc_word_slot(word);
		if (crpc_unlikely(size > s->lay.req_max)) {
			__crpc_ipc_drop(s, p, "request size", s->lay.req_max, size);
			break;
		}
		s->serial = (s->serial + IPC_TOKEN_SERIAL_STEP) & ~IPC_TOKEN_DEAD;
		token = s->serial | p->token_base | p->head_slot;
		p->tokens[p->head_slot] = token;
		p->open++;
		p->req_seq++;
		req[got].token = token;
		req[got].data = head->data;
		req[got].len = size;
		req[got].peer = p->id;
		got++;
		if (crpc_unlikely(next >= s->lay.req_slots || (int64_t)p->tokens[next] > 0)) {
			__crpc_ipc_drop(s, p, "next slot (one not in use, of)",
					s->lay.req_slots - 1, next);
			break;
		}
		p->head_slot = next;
		head = ipc_slot_at(p->req, next, s->lay.req_slot);
	} while (got < n && p->open < p->limit);
	p->head = head;
	return got;
}

uint16_t
crpc_ipc_server_recv(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n)
{
	uint32_t left, pos, ahead, room, got = 0;
	struct ipc_peer *p;

	IPC_OWNER_CHECK(s);
	s->stats.recvs++;
	/* A6 pairs with R6 in __crpc_ipc_ring_bell(): the claim before the ring. */
	if (crpc_unlikely(crpc_load_acquire(s->bell) != s->bell_seen || s->admit_left != 0))
		__crpc_ipc_admit(s);
	pos = s->scan;
	for (left = s->n_active; left != 0 && got < n; left--) {
		if (pos >= s->n_active)
			pos = 0;
		p = s->active[pos++];
		/* Past the end stands somebody who left, or nobody: a hint needs no more. */
		ahead = pos + IPC_PREFETCH - 1;
		crpc_prefetch(s->active[ahead]->head);
		if (p->open >= p->limit)
			continue;
		room = n - got;
		got += recv_peer(s, p, req + got, room < QUANTUM ? room : QUANTUM);
	}
	s->scan = pos;
	s->stats.requests += got;
	return (uint16_t)got;
}

/* Wraps to a number above every client's where the field is 0, which no token has. */
static inline uint32_t
token_id(uint64_t token)
{
	return ((uint32_t)(token >> IPC_TOKEN_SLOT_BITS) & ((1 << IPC_TOKEN_ID_BITS) - 1)) - 1;
}

static inline uint32_t
token_slot(uint64_t token)
{
	return (uint32_t)token & ((1 << IPC_TOKEN_SLOT_BITS) - 1);
}

/* Say which way a token is wrong, and use a dead one up. */
static crpc_noinline int
refuse_token(struct crpc_ipc_server *s, uint64_t token)
{
	uint32_t id = token_id(token), slot = token_slot(token);
	uint64_t *t;

	s->stats.stale++;
	if (id >= s->lay.max_clients || slot >= s->lay.req_slots || (token & IPC_TOKEN_DEAD) != 0)
		return -ENOENT;
	t = &s->peers[id].tokens[slot];
	if (*t != (token | IPC_TOKEN_DEAD))
		return -ENOENT;
	*t = 0;
	return -ECONNRESET;
}

/*
 * Write the next response of the client that token names. Its ring is the client's to lose: see
 * ipc_layout.h for its size.
 */
static inline int
respond(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len, uint32_t size,
		bool small)
{
	uint32_t id = token_id(token), slot = token_slot(token);
	struct ipc_peer *p = &s->peers[id];
	struct ipc_slot *r;

	IPC_OWNER_CHECK(s);
	if (crpc_unlikely(id >= s->lay.max_clients || slot >= s->lay.req_slots ||
			    p->tokens[slot] != token || (int64_t)token <= 0))
		return refuse_token(s, token);
	r = ipc_slot_at(p->resp, (uint32_t)p->resp_seq & (s->lay.resp_slots - 1), s->lay.resp_slot);
	if (small)
		ipc_copy_small(r->data, buf, len);
	else
		memcpy(r->data, buf, len);
	p->tokens[slot] = 0;
	p->open--;
	/* R2 pairs with A2 in crpc_ipc_client_poll(): the answer, and our reads of the request. */
	crpc_store_release(&r->word, ipc_word((uint32_t)p->resp_seq, size, slot));
	p->resp_seq++;
	return 0;
}

static crpc_noinline int
reply_large(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len)
{
	if (len > s->lay.resp_max)
		return -EMSGSIZE;
	return respond(s, token, buf, len, len, false);
}

int
crpc_ipc_server_reply(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len)
{
	if (crpc_unlikely(len > s->small_max))
		return reply_large(s, token, buf, len);
	return respond(s, token, buf, len, len, true);
}

int
crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t token)
{
	return respond(s, token, NULL, 0, 0, true);
}

int
crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t token, int32_t status)
{
	if (status >= 0 || status < -IPC_ERRNO_MAX)
		return -EINVAL;
	return respond(s, token, NULL, 0, IPC_SIZE_STATUS + (uint32_t)-status, true);
}

void
crpc_ipc_server_flush(struct crpc_ipc_server *s)
{
	(void)s;
}

void
crpc_ipc_server_stats(const struct crpc_ipc_server *s, struct crpc_ipc_server_stats *stats)
{
	uint32_t i;

	*stats = s->stats;
	stats->clients = s->n_active;
	stats->open = 0;
	for (i = 0; i < s->n_active; i++) {
		stats->open += s->active[i]->open;
		stats->replies += s->active[i]->resp_seq - 1;
	}
}

const char *
crpc_ipc_server_path(const struct crpc_ipc_server *s)
{
	return crpc_shm_path(s->seg);
}
