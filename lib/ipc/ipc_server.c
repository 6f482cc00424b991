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
static inline uint16_t
recv_peer(struct crpc_ipc_server *s, struct ipc_peer *p, struct crpc_req *req, uint16_t n)
{
	uint32_t size, next;
	uint64_t word, token;
	uint16_t got = 0;

	while (got < n && p->open < p->limit) {
		/* A1 pairs with R1 in crpc_ipc_client_call(). */
		word = crpc_load_acquire(&p->head->word);
		if (ipc_word_seq(word) != p->req_seq)
			break;
		size = ipc_word_size(word);
		next = ipc_word_slot(word);
		if (crpc_unlikely(size > s->lay.req_max)) {
			__crpc_ipc_drop(s, p, "request size", s->lay.req_max, size);
			break;
		}
		token = (++s->serial << IPC_TOKEN_SERIAL_SHIFT | p->id << IPC_TOKEN_SLOT_BITS |
			 (p->head_slot + 1)) & ~IPC_TOKEN_DEAD;
		p->tokens[p->head_slot] = token;
		p->open++;
		p->req_seq++;
		req[got].token = token;
		req[got].data = p->head->data;
		req[got].len = size;
		req[got].peer = p->id;
		got++;
		if (crpc_unlikely(next >= s->lay.req_slots || (int64_t)p->tokens[next] > 0)) {
			__crpc_ipc_drop(s, p, "next slot (of so many, not in use)",
					s->lay.req_slots, next);
			break;
		}
		p->head_slot = next;
		p->head = ipc_slot_at(p->req, next, s->lay.req_slot);
	}
	return got;
}

uint16_t
crpc_ipc_server_recv(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n)
{
	uint32_t left, pos, i;
	struct ipc_peer *p;
	uint16_t got = 0;

	s->stats.recvs++;
	/* A6 pairs with R6 in ring_bell(): the claim before the ring. */
	if (crpc_unlikely(crpc_load_acquire(s->bell) != s->bell_seen || s->admit_left != 0))
		__crpc_ipc_admit(s);
	pos = s->scan;
	for (left = s->n_active; left != 0 && got < n; left--) {
		if (pos >= s->n_active)
			pos = 0;
		p = s->active[pos++];
		i = pos + IPC_PREFETCH - 1;
		crpc_prefetch(s->active[i < s->n_active ? i : 0]->head);
		if (p->open >= p->limit)
			continue;
		got += recv_peer(s, p, req + got, (uint16_t)crpc_min(n - got, QUANTUM));
	}
	s->scan = pos;
	s->stats.requests += got;
	return got;
}

static inline uint32_t
token_id(uint64_t token)
{
	return (uint32_t)(token >> IPC_TOKEN_SLOT_BITS) & ((1 << IPC_TOKEN_ID_BITS) - 1);
}

/* Wraps to a number above every slot's where the field is 0, which no token has. */
static inline uint32_t
token_slot(uint64_t token)
{
	return ((uint32_t)token & ((1 << IPC_TOKEN_SLOT_BITS) - 1)) - 1;
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

/* The client of an open token, or NULL. */
static inline struct ipc_peer *
token_peer(struct crpc_ipc_server *s, uint64_t token, uint32_t *slot)
{
	uint32_t id = token_id(token);

	*slot = token_slot(token);
	if (crpc_unlikely(id >= s->lay.max_clients || *slot >= s->lay.req_slots))
		return NULL;
	if (crpc_unlikely(s->peers[id].tokens[*slot] != token || (int64_t)token <= 0))
		return NULL;
	return &s->peers[id];
}

/* Write the next response of p. Its ring is the client's to lose: see ipc_layout.h for its size. */
static inline int
respond(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len, uint32_t size)
{
	uint32_t slot;
	struct ipc_peer *p = token_peer(s, token, &slot);
	struct ipc_slot *r;

	if (crpc_unlikely(p == NULL))
		return refuse_token(s, token);
	r = ipc_slot_at(p->resp, p->resp_seq & (s->lay.resp_slots - 1), s->lay.resp_slot);
	ipc_copy(r->data, buf, len);
	p->tokens[slot] = 0;
	p->open--;
	/* R2 pairs with A2 in crpc_ipc_client_poll(): the answer, and our reads of the request. */
	crpc_store_release(&r->word, ipc_word(p->resp_seq, size, slot));
	p->resp_seq++;
	s->stats.replies++;
	return 0;
}

int
crpc_ipc_server_reply(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len)
{
	if (crpc_unlikely(len > s->lay.resp_max))
		return -EMSGSIZE;
	return respond(s, token, buf, len, len);
}

int
crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t token)
{
	return respond(s, token, NULL, 0, 0);
}

int
crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t token, int32_t status)
{
	if (status >= 0 || status < -IPC_ERRNO_MAX)
		return -EINVAL;
	return respond(s, token, NULL, 0, IPC_SIZE_STATUS + (uint32_t)-status);
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
	for (i = 0; i < s->n_active; i++)
		stats->open += s->active[i]->open;
}

const char *
crpc_ipc_server_path(const struct crpc_ipc_server *s)
{
	return crpc_shm_path(s->seg);
}
