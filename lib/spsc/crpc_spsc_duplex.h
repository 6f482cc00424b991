/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_DUPLEX_H
#define CRPC_SPSC_DUPLEX_H

/**
 * @file
 * A ring for requests and their replies: the reply overwrites its request.
 *
 *     slots   | a | a | A | A | R | R | r |   |    r: request, unpublished    R: request
 *                       ^       ^       ^   ^        A: reply                   a: reply, read
 *                       read    done    head next
 *
 *     The client writes at next and reads at read; head (client) and done (server) are the only
 *     shared words. Room needs none: the client knows which replies it has read.
 *
 * Two rings, one each way, move every line four times per round: the server fetches the request's
 * line to read it, the client fetches it back to write the next, and the same again for the
 * replies. Here it moves twice: the server fetches it once, to read and to write, the client
 * fetches it back once, to read and to write. Both ends fetch for ownership, several lines ahead.
 * The price: replies leave in the order of the requests, and a reply is at most as long as a
 * message.
 *
 * The I/O rings of Xen share slots this way (P. Barham et al., "Xen and the art of virtualization",
 * SOSP 2003); the cached index and one release store per burst are those of crpc_spsc_lamport.h.
 *
 *     client thread                                server thread
 *     n = crpc_spsc_duplex_reserve(&c, 32, k, &m)
 *     ... writes n requests at m ...
 *     crpc_spsc_duplex_commit(&c, n)
 *     crpc_spsc_duplex_flush(&c)             -->   n = crpc_spsc_duplex_recv(&s, 32, k, &m)
 *                                                  ... reads n requests at m, and
 *                                                      writes n replies there
 *                                                  crpc_spsc_duplex_answer(&s, n)
 *     n = crpc_spsc_duplex_poll(&c, 32, k, &m) <-- crpc_spsc_duplex_flush_answers(&s)
 *     ... reads n replies at m ...
 *     crpc_spsc_duplex_release(&c)
 *
 * Nothing gets stuck: poll() and recv() that find nothing publish what their end holds back.
 *
 * The lone layout (crpc_spsc_lone_*) is for one message at a time: a sequence word and the message
 * share a line, and whenever no call is open the next one takes the first slot again. A round trip
 * is then one line there and back, which is what two cores can do at best.
 *
 * Threads, memory and hostile words: as in crpc_spsc_base.h, with crpc_spsc_memsize() and _init(),
 * and CRPC_SPSC_DUPLEX or CRPC_SPSC_DUPLEX_LONE as the variant. Depth is the window of open calls.
 * `esize` of every call is the ring's own: pass a constant.
 */

#include "crpc_spsc_base.h"

CRPC_BEGIN_DECLS

/** Lines that an end fetches ahead of those it was given. */
#define CRPC_SPSC_DUPLEX_AHEAD 16u

/** The end that calls. Private to its thread. */
struct crpc_spsc_duplex_client {
	char *slots;
	_Atomic uint32_t *head;
	const _Atomic uint32_t *done;
	uint32_t depth;
	uint32_t next;      /* position of the next request */
	uint32_t published; /* position up to which the server may see */
	uint32_t read;      /* position of the next reply to read */
	uint32_t freed;     /* everything before it is no longer read */
	uint32_t limit;     /* position up to which replies are there, as far as known */
	uint32_t fetched;   /* position up to which lines were asked for */
	uint32_t lazy;
	uint32_t esize;
	/* lone */
	uint64_t sent;
	uint64_t got;
	char *end;
	char *at;     /* slot of the next request */
	char *oldest; /* slot of the oldest open one */
};

/** The end that answers. Private to its thread. */
struct crpc_spsc_duplex_server {
	char *slots;
	const _Atomic uint32_t *head;
	_Atomic uint32_t *done;
	uint32_t depth;
	uint32_t next;      /* position of the next request to take */
	uint32_t answered;  /* position up to which replies are written */
	uint32_t published; /* position up to which the client may see them */
	uint32_t limit;     /* position up to which requests are there, as far as known */
	uint32_t fetched;
	uint32_t lazy;
	uint32_t esize;
	/* lone */
	uint64_t taken;
	char *end;
	char *at;   /* where the next request is, unless it is in the first slot */
	char *open; /* the request that was taken last */
};

/** Attach the end that calls, as crpc_spsc_prod_attach(): 0, -EINVAL or -ENOSPC. */
int crpc_spsc_duplex_client_attach(struct crpc_spsc_duplex_client *c, void *mem, size_t len);

/** Attach the end that answers, likewise. */
int crpc_spsc_duplex_server_attach(struct crpc_spsc_duplex_server *s, void *mem, size_t len);

/*
 * Ask for the lines of the messages from *fetched to AHEAD lines behind @p next, as far as @p
 * limit. One by one, that is done once per line.
 */
crpc_inline void
__crpc_spsc_duplex_fetch(const char *slots, uint32_t mask, uint32_t esize, uint32_t next, bool one,
	uint32_t limit, uint32_t *fetched)
{
	uint32_t step = esize < CRPC_CACHE_LINE ? CRPC_CACHE_LINE / esize : 1, at = *fetched;
	uint32_t to = next + CRPC_SPSC_DUPLEX_AHEAD * step;

	/* step is 8, 4, 2 or 1: a size is a multiple of 8 */
	if (one && (next & (step - 1)) != 0)
		return;
	if ((int32_t)(limit - to) < 0)
		to = limit;
	for (; (int32_t)(to - at) > 0; at += step)
		for (uint32_t i = 0; i < esize; i += CRPC_CACHE_LINE)
			__crpc_spsc_prefetchw(slots + (size_t)(at & mask) * esize + i);
	*fetched = at;
}

/*
 * Give out up to @p want of the n messages that wait at position *at, in one stretch, and ask for
 * the lines behind them.
 */
crpc_inline uint32_t
__crpc_spsc_duplex_take(const char *slots, uint32_t depth, uint32_t esize, uint32_t want,
	uint32_t n, uint32_t *at, uint32_t *fetched)
{
	uint32_t i = *at & (depth - 1), limit = *at + n;
	bool single = crpc_constant(want) && want == 1;

	if (single) {
		n = 1;
	} else {
		n = n < want ? n : want;
		n = n < depth - i ? n : depth - i;
	}
	*at += n;
	__crpc_spsc_duplex_fetch(slots, depth - 1, esize, *at, single, limit, fetched);
	return n;
}

/** Publish the requests that were written. Client. */
crpc_inline void
crpc_spsc_duplex_flush(struct crpc_spsc_duplex_client *c)
{
	if (c->published == c->next)
		return;
	/* R6: the requests before the head that covers them. Pairs with A6. */
	crpc_store_release(c->head, c->next);
	c->published = c->next;
}

/**
 * Room for up to @p want requests, in place. Client.
 *
 * @param c
 *   The client's end.
 * @param esize
 *   Bytes of a message.
 * @param want
 *   Requests wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes.
 * @return
 *   How many, up to the end of the memory; 0: `depth` calls are open. Write them, then commit.
 */
crpc_inline uint32_t
crpc_spsc_duplex_reserve(
	struct crpc_spsc_duplex_client *c, uint32_t esize, uint32_t want, void **first)
{
	uint32_t i = c->next & (c->depth - 1), n = c->depth - (c->next - c->freed);

	*first = c->slots + (size_t)i * esize;
	if (crpc_constant(want) && want == 1)
		return n != 0;
	n = n < want ? n : want;
	return n < c->depth - i ? n : c->depth - i;
}

/** Send @p n requests that were written where reserve said. Client. */
crpc_inline void
crpc_spsc_duplex_commit(struct crpc_spsc_duplex_client *c, uint32_t n)
{
	c->next += n;
	if (crpc_unlikely(c->next - c->published >= c->lazy))
		crpc_spsc_duplex_flush(c);
}

/* No reply is known: look at the done word. */
crpc_inline uint32_t
__crpc_spsc_duplex_look_done(struct crpc_spsc_duplex_client *c)
{
	/* A7: the replies before the word that covers them. Pairs with R7. */
	uint32_t done = crpc_load_acquire(c->done);

	/* More replies than published requests were never written by a server. */
	if (crpc_likely(done - c->read <= c->published - c->read))
		c->limit = done;
	if (c->limit == c->read)
		crpc_spsc_duplex_flush(c);
	return c->limit - c->read;
}

/**
 * Up to @p want replies, in the order of the requests. Client.
 *
 * @param c
 *   The client's end.
 * @param esize
 *   Bytes of a message.
 * @param want
 *   Replies wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes. Readable until release.
 * @return
 *   How many; fewer than want does not mean that there are no more, 0 does.
 */
crpc_inline uint32_t
crpc_spsc_duplex_poll(
	struct crpc_spsc_duplex_client *c, uint32_t esize, uint32_t want, void **first)
{
	uint32_t n = c->limit - c->read;

	*first = c->slots + (size_t)(c->read & (c->depth - 1)) * esize;
	if (crpc_unlikely(n == 0)) {
		n = __crpc_spsc_duplex_look_done(c);
		if (n == 0)
			return 0;
	}
	return __crpc_spsc_duplex_take(c->slots, c->depth, esize, want, n, &c->read, &c->fetched);
}

/** Give back the slots of all replies that were polled. Client. */
crpc_inline void
crpc_spsc_duplex_release(struct crpc_spsc_duplex_client *c)
{
	c->freed = c->read;
}

/** Publish the replies that were answered. Server. */
crpc_inline void
crpc_spsc_duplex_flush_answers(struct crpc_spsc_duplex_server *s)
{
	if (s->published == s->answered)
		return;
	/* R7: the replies before the word that covers them. Pairs with A7. */
	crpc_store_release(s->done, s->answered);
	s->published = s->answered;
}

/* No request is known: look at the head word. */
crpc_inline uint32_t
__crpc_spsc_duplex_look_head(struct crpc_spsc_duplex_server *s)
{
	/* A6: the requests before the head that covers them. Pairs with R6. */
	uint32_t head = crpc_load_acquire(s->head);

	/* Beyond the window, or behind what was taken: never written by a client. */
	if (crpc_likely(head - s->published <= s->depth && head - s->next <= s->depth))
		s->limit = head;
	if (s->limit == s->next)
		crpc_spsc_duplex_flush_answers(s);
	return s->limit - s->next;
}

/**
 * Up to @p want requests, where they lie. Server.
 *
 * @param s
 *   The server's end.
 * @param esize
 *   Bytes of a message.
 * @param want
 *   Requests wished for.
 * @param first
 *   Set to the first; the others follow at @p esize bytes. Each is the server's to read and to
 *   overwrite with its reply until it is answered.
 * @return
 *   How many; fewer than want does not mean that there are no more, 0 does.
 */
crpc_inline uint32_t
crpc_spsc_duplex_recv(
	struct crpc_spsc_duplex_server *s, uint32_t esize, uint32_t want, void **first)
{
	uint32_t n = s->limit - s->next;

	*first = s->slots + (size_t)(s->next & (s->depth - 1)) * esize;
	if (crpc_unlikely(n == 0)) {
		n = __crpc_spsc_duplex_look_head(s);
		if (n == 0)
			return 0;
	}
	return __crpc_spsc_duplex_take(s->slots, s->depth, esize, want, n, &s->next, &s->fetched);
}

/** The @p n oldest requests that recv gave now hold their replies. Server. */
crpc_inline void
crpc_spsc_duplex_answer(struct crpc_spsc_duplex_server *s, uint32_t n)
{
	s->answered += n;
	if (crpc_unlikely(s->answered - s->published >= s->lazy))
		crpc_spsc_duplex_flush_answers(s);
}

/* ---- the lone layout ---- */

/** Bytes from one slot to the next: the sequence word and the message, on lines of their own. */
crpc_inline uint32_t
crpc_spsc_lone_stride(uint32_t esize)
{
	return (uint32_t)crpc_align_up(CRPC_SPSC_FLAG_LEN + (uint64_t)esize, CRPC_CACHE_LINE);
}

crpc_inline _Atomic uint64_t *
__crpc_spsc_lone_word(char *slot)
{
	return (_Atomic uint64_t *)(void *)slot;
}

crpc_inline char *
__crpc_spsc_lone_next(char *at, char *slots, const char *end, uint32_t esize)
{
	at += crpc_spsc_lone_stride(esize);
	return at == end ? slots : at;
}

/** Room for one request, or NULL: `depth` calls are open. Gives the last reply back. Client. */
crpc_inline void *
crpc_spsc_lone_reserve(struct crpc_spsc_duplex_client *c, uint32_t esize)
{
	if (c->sent - c->got == c->depth)
		return NULL;
	/* Nothing is open, so every slot is free: the line of the last call is the nearest. */
	if (c->sent == c->got)
		c->at = c->oldest = c->slots;
	return c->at + CRPC_SPSC_FLAG_LEN;
}

/** Send the request that was written where reserve said. Client. */
crpc_inline void
crpc_spsc_lone_commit(struct crpc_spsc_duplex_client *c, uint32_t esize)
{
	/* R8: the message before the word that says which it is. Pairs with A8. */
	crpc_store_release(__crpc_spsc_lone_word(c->at), 2 * c->sent + 1);
	c->sent++;
	c->at = __crpc_spsc_lone_next(c->at, c->slots, c->end, esize);
}

/** The reply of the oldest open call, readable until the next reserve, or NULL. Client. */
crpc_inline void *
crpc_spsc_lone_poll(struct crpc_spsc_duplex_client *c, uint32_t esize)
{
	char *slot = c->oldest;

	/* A9: the reply before the word that says which it is. Pairs with R9. */
	if (c->sent == c->got || crpc_load_acquire(__crpc_spsc_lone_word(slot)) != 2 * c->got + 2)
		return NULL;
	c->got++;
	c->oldest = __crpc_spsc_lone_next(slot, c->slots, c->end, esize);
	return slot + CRPC_SPSC_FLAG_LEN;
}

/** The next request, to be read, overwritten and answered, or NULL. Server. */
crpc_inline void *
crpc_spsc_lone_recv(struct crpc_spsc_duplex_server *s, uint32_t esize)
{
	uint64_t want = 2 * s->taken + 1;
	char *slot = s->at;

	/* A8: the message before the word that says which it is. Pairs with R8. */
	if (crpc_load_acquire(__crpc_spsc_lone_word(slot)) != want) {
		slot = s->slots;
		if (crpc_load_acquire(__crpc_spsc_lone_word(slot)) != want)
			return NULL;
	}
	s->taken++;
	s->open = slot;
	s->at = __crpc_spsc_lone_next(slot, s->slots, s->end, esize);
	return slot + CRPC_SPSC_FLAG_LEN;
}

/** The request that recv gave last now holds its reply: send it, before the next recv. Server. */
crpc_inline void
crpc_spsc_lone_answer(struct crpc_spsc_duplex_server *s)
{
	/* R9: the reply before the word that says which it is. Pairs with A9. */
	crpc_store_release(__crpc_spsc_lone_word(s->open), 2 * s->taken);
}

CRPC_END_DECLS

#endif
