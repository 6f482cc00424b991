/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timed loops of stream, rpc and latency.
 *
 * One body for every transport and size: transport, size and check are constants where the
 * functions are instantiated at the end, so each becomes a loop without a test or a call in it. A
 * transport fills, reads and echoes in its best way: in place where it can, through a buffer of its
 * caller where it cannot. Every word of a message is written by its sender and read by its
 * receiver.
 */
#include <errno.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_ring_peek_zc.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_spsc_inline.h"
#include "crpc_spsc_onesided.h"
#include "rb.h"
#include "rb_cxx.h"
#include "rb_msg.h"

#ifdef RB_HAVE_CK
#include <ck_ring.h>
#define CK_OF(size)                                                                                \
	struct ck_msg_##size {                                                                     \
		uint64_t w[(size) / 8];                                                            \
	};                                                                                         \
	CK_RING_PROTOTYPE(m##size, ck_msg_##size)
CK_OF(8)
CK_OF(16)
CK_OF(32)
CK_OF(64)
CK_OF(128)
CK_OF(256)
#endif

#define INLINE    crpc_inline
#define BURST_MAX 64u
#define WORDS_MAX (CRPC_SPSC_ESIZE_MAX / 8)

/* Beside enum rb_transport: the layouts of ours that latency uses. */
enum kind {
	K_LAMPORT = CRPC_SPSC_LAMPORT,
	K_FF = CRPC_SPSC_FASTFORWARD,
	K_FF_ALIGNED = CRPC_SPSC_FASTFORWARD_ALIGNED,
	K_ONE = CRPC_SPSC_ONESIDED,
	K_ONE_ALIGNED = CRPC_SPSC_ONESIDED_ALIGNED,
	K_RTE,
	K_RTE_ZC,
	K_CK,
};

/* One lcore's side of a slice. */
struct end {
	struct crpc_spsc_prod p;
	struct crpc_spsc_cons c;
	void *out; /* rings of others */
	void *in;
	uint32_t burst;
	uint32_t inflight;
	uint32_t esize; /* where it is no constant */
	uint64_t tx_seq;
	uint64_t rx_seq;
	uint64_t sum;
	uint64_t bad;
	struct rb_slice *s;
};

INLINE bool
kind_ours(enum kind k)
{
	return k <= K_ONE_ALIGNED;
}

INLINE void
use(struct end *e, const void *msg, uint32_t esize, bool check)
{
	e->bad += rb_msg_use(msg, esize, e->rx_seq, check);
	e->rx_seq += check;
}

/* ---- ours ---- */

INLINE uint32_t
ours_tx(struct end *e, enum crpc_spsc_variant v, uint32_t esize, uint32_t n)
{
	uint32_t done = 0, run;
	void *first;

	if (__builtin_constant_p(n) && n == 1) {
		if (crpc_spsc_inline_reserve(&e->p, v, esize, 1, &first) == 0)
			return 0;
		rb_msg_fill(first, esize, e->tx_seq);
		crpc_spsc_inline_commit(&e->p, v, esize, 1);
		return 1;
	}
	do {
		run = crpc_spsc_inline_reserve(&e->p, v, esize, n - done, &first);
		for (uint32_t i = 0; i < run; i++)
			rb_msg_fill((char *)first + (size_t)i * esize, esize, e->tx_seq + done + i);
		crpc_spsc_inline_commit(&e->p, v, esize, run);
		done += run;
	} while (v != CRPC_SPSC_LAMPORT && run != 0 && done < n);
	return done;
}

INLINE uint32_t
ours_rx(struct end *e, enum crpc_spsc_variant v, uint32_t esize, uint32_t n, bool check)
{
	uint32_t done = 0, run;
	void *first;

	if (__builtin_constant_p(n) && n == 1) {
		if (crpc_spsc_inline_peek(&e->c, v, esize, 1, &first) == 0)
			return 0;
		use(e, first, esize, check);
		crpc_spsc_inline_release(&e->c, v, esize);
		return 1;
	}
	do {
		run = crpc_spsc_inline_peek(&e->c, v, esize, n - done, &first);
		for (uint32_t i = 0; i < run; i++)
			use(e, (char *)first + (size_t)i * esize, esize, check);
		done += run;
	} while (v != CRPC_SPSC_LAMPORT && run != 0 && done < n);
	crpc_spsc_inline_release(&e->c, v, esize);
	return done;
}

INLINE uint32_t
ours_echo(struct end *e, enum crpc_spsc_variant v, uint32_t esize, uint32_t n)
{
	uint32_t got, put = 0, run;
	void *from, *to;

	if (__builtin_constant_p(n) && n == 1) {
		if (crpc_spsc_inline_peek(&e->c, v, esize, 1, &from) == 0)
			return 0;
		while (crpc_spsc_inline_reserve(&e->p, v, esize, 1, &to) == 0)
			if (crpc_load_relaxed(&e->s->stop))
				return 0;
		memcpy(to, from, esize);
		crpc_spsc_inline_commit(&e->p, v, esize, 1);
		crpc_spsc_inline_release(&e->c, v, esize);
		return 1;
	}
	got = crpc_spsc_inline_peek(&e->c, v, esize, n, &from);
	while (put < got) {
		run = crpc_spsc_inline_reserve(&e->p, v, esize, got - put, &to);
		for (uint32_t i = 0; i < run; i++)
			memcpy((char *)to + (size_t)i * esize,
				(char *)from + (size_t)(put + i) * esize, esize);
		crpc_spsc_inline_commit(&e->p, v, esize, run);
		put += run;
		if (run == 0 && crpc_load_relaxed(&e->s->stop))
			return 0;
	}
	crpc_spsc_inline_release(&e->c, v, esize);
	return got;
}

/* ---- others: a buffer of the caller ---- */

#ifdef RB_HAVE_CK
#define CK_CASE(size)                                                                              \
	case size: {                                                                               \
		struct ck_msg_##size *m = buf;                                                     \
		struct ck_ring *r = (struct ck_ring *)ring;                                        \
		struct ck_msg_##size *slots = (struct ck_msg_##size *)(void *)(r + 2);             \
		for (i = 0; i < n; i++)                                                            \
			if (!(out ? CK_RING_ENQUEUE_SPSC(m##size, r, slots, &m[i])                 \
				  : CK_RING_DEQUEUE_SPSC(m##size, r, slots, &m[i])))               \
				break;                                                             \
		return i;                                                                          \
	}

INLINE uint32_t
ck_move(void *ring, void *buf, uint32_t esize, uint32_t n, bool out)
{
	uint32_t i = 0;

	switch (esize) {
		CK_CASE(8)
		CK_CASE(16)
		CK_CASE(32)
		CK_CASE(64)
		CK_CASE(128)
		CK_CASE(256)
	}
	return i;
}
#else
INLINE uint32_t
ck_move(void *ring, void *buf, uint32_t esize, uint32_t n, bool out)
{
	return 0;
}
#endif

INLINE uint32_t
others_put(struct end *e, enum kind k, uint32_t esize, void *buf, uint32_t n)
{
	if (k == K_CK)
		return ck_move(e->out, buf, esize, n, true);
	return rte_ring_sp_enqueue_burst_elem(e->out, buf, esize, n, NULL);
}

INLINE uint32_t
others_get(struct end *e, enum kind k, uint32_t esize, void *buf, uint32_t n)
{
	if (k == K_CK)
		return ck_move(e->in, buf, esize, n, false);
	return rte_ring_sc_dequeue_burst_elem(e->in, buf, esize, n, NULL);
}

INLINE uint32_t
others_tx(struct end *e, enum kind k, uint32_t esize, uint32_t n)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];

	for (uint32_t i = 0; i < n; i++)
		rb_msg_fill((char *)buf + (size_t)i * esize, esize, e->tx_seq + i);
	return others_put(e, k, esize, buf, n);
}

INLINE uint32_t
others_rx(struct end *e, enum kind k, uint32_t esize, uint32_t n, bool check)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];

	n = others_get(e, k, esize, buf, n);
	for (uint32_t i = 0; i < n; i++)
		use(e, (char *)buf + (size_t)i * esize, esize, check);
	return n;
}

INLINE uint32_t
others_echo(struct end *e, enum kind k, uint32_t esize, uint32_t n)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];
	uint32_t put = 0, m;

	n = others_get(e, k, esize, buf, n);
	while (put < n) {
		m = others_put(e, k, esize, (char *)buf + (size_t)put * esize, n - put);
		put += m;
		if (m == 0 && crpc_load_relaxed(&e->s->stop))
			return 0;
	}
	return n;
}

/* ---- rte_ring in place ---- */

/* The i-th message of a zero-copy stretch, which may wrap. */
INLINE void *
zc_at(const struct rte_ring_zc_data *z, uint32_t i, uint32_t esize)
{
	return i < z->n1 ? (char *)z->ptr1 + (size_t)i * esize
			 : (char *)z->ptr2 + (size_t)(i - z->n1) * esize;
}

INLINE uint32_t
zc_tx(struct end *e, uint32_t esize, uint32_t n)
{
	struct rte_ring_zc_data z;

	n = rte_ring_enqueue_zc_burst_elem_start(e->out, esize, n, &z, NULL);
	for (uint32_t i = 0; i < n; i++)
		rb_msg_fill(zc_at(&z, i, esize), esize, e->tx_seq + i);
	if (n != 0)
		rte_ring_enqueue_zc_elem_finish(e->out, n);
	return n;
}

INLINE uint32_t
zc_rx(struct end *e, uint32_t esize, uint32_t n, bool check)
{
	struct rte_ring_zc_data z;

	n = rte_ring_dequeue_zc_burst_elem_start(e->in, esize, n, &z, NULL);
	for (uint32_t i = 0; i < n; i++)
		use(e, zc_at(&z, i, esize), esize, check);
	if (n != 0)
		rte_ring_dequeue_zc_elem_finish(e->in, n);
	return n;
}

INLINE uint32_t
zc_echo(struct end *e, uint32_t esize, uint32_t n)
{
	struct rte_ring_zc_data z, y;
	uint32_t put = 0, m;

	n = rte_ring_dequeue_zc_burst_elem_start(e->in, esize, n, &z, NULL);
	while (put < n) {
		m = rte_ring_enqueue_zc_burst_elem_start(e->out, esize, n - put, &y, NULL);
		for (uint32_t i = 0; i < m; i++)
			memcpy(zc_at(&y, i, esize), zc_at(&z, put + i, esize), esize);
		if (m != 0)
			rte_ring_enqueue_zc_elem_finish(e->out, m);
		else if (crpc_load_relaxed(&e->s->stop))
			break;
		put += m;
	}
	if (n != 0)
		rte_ring_dequeue_zc_elem_finish(e->in, n);
	return n;
}

/* ---- the loops ---- */

INLINE uint32_t
tx(struct end *e, enum kind k, uint32_t esize, uint32_t n)
{
	n = kind_ours(k)        ? ours_tx(e, (enum crpc_spsc_variant)k, esize, n)
		: k == K_RTE_ZC ? zc_tx(e, esize, n)
				: others_tx(e, k, esize, n);
	e->tx_seq += n;
	return n;
}

INLINE uint32_t
rx(struct end *e, enum kind k, uint32_t esize, uint32_t n, bool check)
{
	if (kind_ours(k))
		return ours_rx(e, (enum crpc_spsc_variant)k, esize, n, check);
	return k == K_RTE_ZC ? zc_rx(e, esize, n, check) : others_rx(e, k, esize, n, check);
}

INLINE uint32_t
echo(struct end *e, enum kind k, uint32_t esize, uint32_t n)
{
	if (kind_ours(k))
		return ours_echo(e, (enum crpc_spsc_variant)k, esize, n);
	return k == K_RTE_ZC ? zc_echo(e, esize, n) : others_echo(e, k, esize, n);
}

/* Set by the first lcore when the time is over; the clock is looked at every 64 turns. */
INLINE bool
over(struct end *e, uint64_t end, uint32_t *turn)
{
	return (++*turn & 63) == 0 && crpc_clock_ticks() >= end;
}

INLINE void
client(struct end *e, enum kind k, uint32_t esize, uint32_t burst, bool check, uint64_t end)
{
	uint32_t out = 0, n, turn = 0, inflight = e->inflight;
	uint64_t done = 0;

	do {
		while (out < inflight) {
			n = burst == 1
				? tx(e, k, esize, 1)
				: tx(e, k, esize, inflight - out < burst ? inflight - out : burst);
			if (n == 0)
				break;
			out += n;
		}
		n = rx(e, k, esize, burst, check);
		if (n == 0 && kind_ours(k))
			crpc_spsc_inline_flush(&e->p, (enum crpc_spsc_variant)k);
		for (; n != 0; n = rx(e, k, esize, burst, check)) {
			out -= n;
			done += n;
			if (k == K_ONE || k == K_ONE_ALIGNED)
				crpc_spsc_onesided_credit(&e->p, n);
		}
	} while (!over(e, end, &turn));
	crpc_store_relaxed(&e->s->done, done);
}

INLINE void
server(struct end *e, enum kind k, uint32_t esize, uint32_t burst)
{
	uint32_t n;

	while (crpc_load_relaxed(&e->s->stop) == 0) {
		for (uint32_t i = 0; i < 256; i += n) {
			n = echo(e, k, esize, burst);
			if (n == 0)
				break;
			/* The client's window protects the answers it has not read. */
			if (k == K_ONE || k == K_ONE_ALIGNED)
				crpc_spsc_onesided_credit(&e->p, n);
		}
		if (kind_ours(k))
			crpc_spsc_inline_flush(&e->p, (enum crpc_spsc_variant)k);
	}
}

INLINE void
producer(struct end *e, enum kind k, uint32_t esize, uint32_t burst, uint64_t end)
{
	uint32_t turn = 0;

	do
		tx(e, k, esize, burst);
	while (!over(e, end, &turn));
}

INLINE void
consumer(struct end *e, enum kind k, uint32_t esize, uint32_t burst, bool check)
{
	uint64_t done = 0;

	while (crpc_load_relaxed(&e->s->stop) == 0)
		done += rx(e, k, esize, burst, check);
	crpc_store_relaxed(&e->s->done, done);
}

/* ---- instances ---- */

struct loops {
	void (*client)(struct end *e, uint64_t end);
	void (*server)(struct end *e);
	void (*producer)(struct end *e, uint64_t end);
	void (*consumer)(struct end *e);
};

/* A burst of one is a constant too: the loops in it go, and with them what they keep in memory. */
#define EACH_BURST(body, e, kind, size, ...)                                                       \
	do {                                                                                       \
		if ((e)->burst == 1) {                                                             \
			enum { burst = 1 };                                                        \
			struct end local = *(e);                                                   \
			body(&local, kind, size, __VA_ARGS__);                                     \
			*(e) = local;                                                              \
		} else {                                                                           \
			uint32_t burst = (e)->burst;                                               \
			body(e, kind, size, __VA_ARGS__);                                          \
		}                                                                                  \
	} while (0)
#define SIZE_OR(size) ((size) != 0 ? (size) : e->esize)
/* size 0: read it at run time, and check. */
#define LOOPS(kind, size)                                                                          \
	static void client_##kind##_##size(struct end *e, uint64_t end)                            \
	{                                                                                          \
		EACH_BURST(client, e, kind, SIZE_OR(size), burst, (size) == 0, end);               \
	}                                                                                          \
	static void server_##kind##_##size(struct end *e)                                          \
	{                                                                                          \
		EACH_BURST(server, e, kind, SIZE_OR(size), burst);                                 \
	}                                                                                          \
	static void producer_##kind##_##size(struct end *e, uint64_t end)                          \
	{                                                                                          \
		EACH_BURST(producer, e, kind, SIZE_OR(size), burst, end);                          \
	}                                                                                          \
	static void consumer_##kind##_##size(struct end *e)                                        \
	{                                                                                          \
		EACH_BURST(consumer, e, kind, SIZE_OR(size), burst, (size) == 0);                  \
	}
#define LOOPS_OF_KIND(kind)                                                                        \
	LOOPS(kind, 0)                                                                             \
	LOOPS(kind, 8)                                                                             \
	LOOPS(kind, 16) LOOPS(kind, 32) LOOPS(kind, 64) LOOPS(kind, 128) LOOPS(kind, 256)
#define ENTRY(kind, size)                                                                          \
	{                                                                                          \
		client_##kind##_##size, server_##kind##_##size, producer_##kind##_##size,          \
			consumer_##kind##_##size                                                   \
	}
#define ENTRIES(kind)                                                                              \
	[kind] = {ENTRY(kind, 0), ENTRY(kind, 8), ENTRY(kind, 16), ENTRY(kind, 32),                \
		ENTRY(kind, 64), ENTRY(kind, 128), ENTRY(kind, 256)}

LOOPS_OF_KIND(K_LAMPORT)
LOOPS_OF_KIND(K_FF)
LOOPS_OF_KIND(K_FF_ALIGNED)
LOOPS_OF_KIND(K_ONE)
LOOPS_OF_KIND(K_ONE_ALIGNED)
LOOPS_OF_KIND(K_RTE)
LOOPS_OF_KIND(K_RTE_ZC)
LOOPS_OF_KIND(K_CK)

static const struct loops loops[][7] = {
	ENTRIES(K_LAMPORT),
	ENTRIES(K_FF),
	ENTRIES(K_FF_ALIGNED),
	ENTRIES(K_ONE),
	ENTRIES(K_ONE_ALIGNED),
	ENTRIES(K_RTE),
	ENTRIES(K_RTE_ZC),
	ENTRIES(K_CK),
};

/* ---- open, close, run ---- */

static enum kind
kind_of(const struct app_case *c)
{
	bool lone = c->pattern == RB_LATENCY;

	switch (c->transport) {
	case RB_FASTFORWARD:
		return lone ? K_FF_ALIGNED : K_FF;
	case RB_ONESIDED:
		return lone ? K_ONE_ALIGNED : K_ONE;
	case RB_LAMPORT:
		return K_LAMPORT;
	case RB_RTE_RING_ZC:
		return K_RTE_ZC;
	case RB_CK_RING:
		return K_CK;
	default:
		return K_RTE;
	}
}

static bool
is_cxx(enum rb_transport t)
{
	return t == RB_BOOST || t == RB_MOODYCAMEL || t == RB_ATOMIC_QUEUE;
}

bool
rb_transport_usable(enum rb_transport t, enum rb_pattern p, uint32_t size, const char **why)
{
	bool nodes = p == RB_FLUX || p == RB_MESH;

	*why = NULL;
	if (t == RB_RTE_RING_RTS || t == RB_RTE_RING_HTS) {
		if (p != RB_MESH)
			*why = "is for many producers: mesh only";
	} else if (nodes && t > RB_DUPLEX && !(p == RB_MESH && t == RB_RTE_RING)) {
		*why = "carries no flux or mesh";
	} else if (nodes && size > CRPC_FLUX_MSG_MAX) {
		*why = "carries at most 248 bytes in flux and mesh";
	} else if (t == RB_DUPLEX && p == RB_STREAM) {
		*why = "answers every message: rpc and latency only";
	} else if (t == RB_CK_RING) {
#ifndef RB_HAVE_CK
		*why = "is not built: libck-dev was not there";
#endif
	} else if (is_cxx(t) && !rb_cxx_has((int)t)) {
		*why = "is not built: a C++ compiler or its Debian package was not there";
	}
	return *why == NULL;
}

static void *
ring_open(struct rb_slice *s)
{
	const struct app_case *c = &s->c;
	enum kind k = kind_of(c);
	struct crpc_spsc_attr a = {.variant = kind_ours(k) ? (enum crpc_spsc_variant)k : 0,
		.depth = c->depth,
		.esize = c->size,
		.lazy = rb_lazy(c->depth)};
	void *mem;

	a.caller_credit = (k == K_ONE || k == K_ONE_ALIGNED) && c->pattern != RB_STREAM;
	s->len = kind_ours(k) ? (size_t)crpc_spsc_memsize(&a)
		: k == K_CK   ? 4096 + (size_t)c->depth * c->size
			      : (size_t)rte_ring_get_memsize_elem(c->size, c->depth);
	mem = rte_zmalloc(NULL, s->len, 4096);
	if (mem == NULL) {
		crpc_err("no memory for a ring of %zu bytes; give the EAL more: -m", s->len);
		return NULL;
	}
	if (kind_ours(k))
		crpc_spsc_init(mem, s->len, &a);
#ifdef RB_HAVE_CK
	else if (k == K_CK)
		ck_ring_init(mem, c->depth);
#endif
	else
		rte_ring_init(mem, "ringbench", c->depth, RING_F_SP_ENQ | RING_F_SC_DEQ);
	return mem;
}

int
rb_ring_open(struct rb_slice *s)
{
	if (s->c.transport == RB_DUPLEX)
		return rb_duplex_open(s);
	if (is_cxx(s->c.transport)) {
		s->to = rb_cxx_open((int)s->c.transport, s->c.size, s->c.depth);
		s->back = rb_cxx_open((int)s->c.transport, s->c.size, s->c.depth);
	} else {
		s->to = ring_open(s);
		s->back = ring_open(s);
	}
	if (s->to != NULL && s->back != NULL)
		return 0;
	rb_ring_close(s);
	return -ENOMEM;
}

void
rb_ring_close(struct rb_slice *s)
{
	if (is_cxx(s->c.transport)) {
		rb_cxx_close((int)s->c.transport, s->c.size, s->to);
		rb_cxx_close((int)s->c.transport, s->c.size, s->back);
	} else {
		rte_free(s->to);
		rte_free(s->back);
	}
	s->to = s->back = NULL;
}

static const struct loops *
end_open(struct end *e, struct rb_slice *s, bool first)
{
	const struct app_case *c = &s->c;
	enum kind k = kind_of(c);

	*e = (struct end){.out = first ? s->to : s->back,
		.in = first ? s->back : s->to,
		.burst = c->burst,
		.inflight = c->inflight,
		.esize = c->size,
		.s = s};
	if (kind_ours(k)) {
		crpc_spsc_prod_attach(&e->p, e->out, s->len);
		crpc_spsc_cons_attach(&e->c, e->in, s->len);
	}
	return &loops[k][c->check ? 0 : crpc_log2(c->size) - 2];
}

static void
cxx_run(struct rb_slice *s, bool first)
{
	struct rb_cxx_run run = {.size = s->c.size,
		.burst = s->c.burst,
		.inflight = s->c.inflight,
		.stream = s->c.pattern == RB_STREAM,
		.check = s->c.check,
		.end_ticks = first ? crpc_clock_ticks() + s->c.ticks : 0,
		.stop = (const uint32_t *)(uintptr_t)&s->stop};

	rb_cxx_loop((int)s->c.transport, first, s->to, s->back, &run);
	crpc_fetch_add_relaxed(&s->done, run.done);
	crpc_fetch_add_relaxed(&s->bad, run.bad);
}

void
rb_ring_run(struct rb_slice *s, int side)
{
	uint64_t end = crpc_clock_ticks() + s->c.ticks;
	bool stream = s->c.pattern == RB_STREAM;
	const struct loops *l;
	struct end e;

	if (s->c.transport == RB_DUPLEX) {
		rb_duplex_run(s, side);
		return;
	}
	if (is_cxx(s->c.transport)) {
		cxx_run(s, side == 0);
		return;
	}
	l = end_open(&e, s, side == 0);
	if (side == 0)
		(stream ? l->producer : l->client)(&e, end);
	else
		(stream ? l->consumer : l->server)(&e);
	crpc_fetch_add_relaxed(&s->bad, e.bad);
}
