/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timed loops of stream, rpc and latency.
 *
 * One body for every transport and size: transport, size and check are constants where the
 * functions are instantiated at the end, so each becomes a loop without a test or a call in it. A
 * transport fills, reads and echoes in its best way: in place where it can, through a buffer of its
 * caller where it cannot. Every word of a message is written by its sender and read by its
 * receiver.
 *
 * On the ring whose replies overwrite their requests a reply is the request with each word raised
 * by one, so that a check distinguishes it from an untouched request.
 */
#include <errno.h>

#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_ring_peek_zc.h>

#include "app_msg.h"
#include "crpc_clock.h"
#include "crpc_mem.h"
#include "crpc_spsc_duplex.h"
#include "crpc_spsc_inline.h"
#include "crpc_spsc_onesided.h"
#include "rb.h"

#define INLINE    crpc_inline
#define BURST_MAX 64u
#define WORDS_MAX (CRPC_SPSC_ESIZE_MAX / 8)

/* Layouts of ours, of which latency has its own, and how rte_ring is called. */
enum kind {
	K_LAMPORT = CRPC_SPSC_LAMPORT,
	K_FF = CRPC_SPSC_FASTFORWARD,
	K_FF_ALIGNED = CRPC_SPSC_FASTFORWARD_ALIGNED,
	K_ONE = CRPC_SPSC_ONESIDED,
	K_ONE_ALIGNED = CRPC_SPSC_ONESIDED_ALIGNED,
	K_DUPLEX = CRPC_SPSC_DUPLEX,
	K_LONE = CRPC_SPSC_DUPLEX_LONE,
	K_RTE,
	K_RTE_ZC,
};

/* One lcore's side of a slice. */
struct end {
	struct crpc_spsc_prod p;
	struct crpc_spsc_cons c;
	struct crpc_spsc_duplex_client client;
	struct crpc_spsc_duplex_server server;
	struct rte_ring *out, *in;
	uint32_t burst;
	uint32_t inflight;
	uint32_t esize; /* where it is no constant */
	uint64_t tx_seq;
	uint64_t rx_seq;
	uint64_t bad;
	bool first, stream;
	struct rb_slice *s;
};

/* One-way rings of ours. */
INLINE bool
kind_ours(enum kind k)
{
	return k <= K_ONE_ALIGNED;
}

INLINE bool
kind_duplex(enum kind k)
{
	return k == K_DUPLEX || k == K_LONE;
}

INLINE bool
kind_onesided(enum kind k)
{
	return k == K_ONE || k == K_ONE_ALIGNED;
}

/* For one message at a time, there and back. */
INLINE bool
kind_lone(enum kind k)
{
	return k == K_FF_ALIGNED || k == K_ONE_ALIGNED || k == K_LONE;
}

INLINE void *
nth(void *first, uint32_t i, uint32_t esize)
{
	return (char *)first + (size_t)i * esize;
}

INLINE void
use(struct end *e, const void *msg, uint32_t esize, bool check)
{
	e->bad += app_msg_read(msg, esize, check, e->rx_seq);
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
		app_msg_fill(first, esize, e->tx_seq);
		crpc_spsc_inline_commit(&e->p, v, esize, 1);
		return 1;
	}
	do {
		run = crpc_spsc_inline_reserve(&e->p, v, esize, n - done, &first);
		for (uint32_t i = 0; i < run; i++)
			app_msg_fill(nth(first, i, esize), esize, e->tx_seq + done + i);
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
			use(e, nth(first, i, esize), esize, check);
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
			memcpy(nth(to, i, esize), nth(from, put + i, esize), esize);
		crpc_spsc_inline_commit(&e->p, v, esize, run);
		put += run;
		if (run == 0 && crpc_load_relaxed(&e->s->stop))
			return 0;
	}
	crpc_spsc_inline_release(&e->c, v, esize);
	return got;
}

/* ---- ours, whose replies overwrite their requests ---- */

INLINE uint32_t
duplex_tx(struct end *e, uint32_t esize, uint32_t n)
{
	void *first;

	n = crpc_spsc_duplex_reserve(&e->client, esize, n, &first);
	for (uint32_t i = 0; i < n; i++)
		app_msg_fill(nth(first, i, esize), esize, e->tx_seq + i);
	crpc_spsc_duplex_commit(&e->client, n);
	return n;
}

INLINE uint32_t
duplex_rx(struct end *e, uint32_t esize, uint32_t n, bool check)
{
	void *first;

	n = crpc_spsc_duplex_poll(&e->client, esize, n, &first);
	for (uint32_t i = 0; i < n; i++)
		use(e, nth(first, i, esize), esize, check);
	if (n != 0)
		crpc_spsc_duplex_release(&e->client);
	return n;
}

INLINE uint32_t
duplex_echo(struct end *e, uint32_t esize, uint32_t n)
{
	void *first;

	n = crpc_spsc_duplex_recv(&e->server, esize, n, &first);
	for (uint32_t i = 0; i < n; i++)
		app_msg_raise(nth(first, i, esize), esize);
	if (n != 0)
		crpc_spsc_duplex_answer(&e->server, n);
	return n;
}

INLINE uint32_t
lone_tx(struct end *e, uint32_t esize)
{
	app_msg_fill(crpc_spsc_lone_reserve(&e->client, esize), esize, e->tx_seq);
	crpc_spsc_lone_commit(&e->client, esize);
	return 1;
}

INLINE uint32_t
lone_rx(struct end *e, uint32_t esize, bool check)
{
	void *msg = crpc_spsc_lone_poll(&e->client, esize);

	if (msg != NULL)
		use(e, msg, esize, check);
	return msg != NULL;
}

INLINE uint32_t
lone_echo(struct end *e, uint32_t esize)
{
	void *msg = crpc_spsc_lone_recv(&e->server, esize);

	if (msg == NULL)
		return 0;
	app_msg_raise(msg, esize);
	crpc_spsc_lone_answer(&e->server);
	return 1;
}

/* ---- rte_ring through a buffer of the caller ---- */

INLINE uint32_t
rte_tx(struct end *e, uint32_t esize, uint32_t n)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];

	for (uint32_t i = 0; i < n; i++)
		app_msg_fill(nth(buf, i, esize), esize, e->tx_seq + i);
	return rte_ring_sp_enqueue_burst_elem(e->out, buf, esize, n, NULL);
}

INLINE uint32_t
rte_rx(struct end *e, uint32_t esize, uint32_t n, bool check)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];

	n = rte_ring_sc_dequeue_burst_elem(e->in, buf, esize, n, NULL);
	for (uint32_t i = 0; i < n; i++)
		use(e, nth(buf, i, esize), esize, check);
	return n;
}

INLINE uint32_t
rte_echo(struct end *e, uint32_t esize, uint32_t n)
{
	uint64_t buf[BURST_MAX * WORDS_MAX];
	uint32_t put = 0, m;

	n = rte_ring_sc_dequeue_burst_elem(e->in, buf, esize, n, NULL);
	while (put < n) {
		m = rte_ring_sp_enqueue_burst_elem(
			e->out, nth(buf, put, esize), esize, n - put, NULL);
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
	return i < z->n1 ? nth(z->ptr1, i, esize) : nth(z->ptr2, i - z->n1, esize);
}

INLINE uint32_t
zc_tx(struct end *e, uint32_t esize, uint32_t n)
{
	struct rte_ring_zc_data z;

	n = rte_ring_enqueue_zc_burst_elem_start(e->out, esize, n, &z, NULL);
	for (uint32_t i = 0; i < n; i++)
		app_msg_fill(zc_at(&z, i, esize), esize, e->tx_seq + i);
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
		: k == K_DUPLEX ? duplex_tx(e, esize, n)
		: k == K_LONE   ? lone_tx(e, esize)
		: k == K_RTE_ZC ? zc_tx(e, esize, n)
				: rte_tx(e, esize, n);
	e->tx_seq += n;
	return n;
}

INLINE uint32_t
rx(struct end *e, enum kind k, uint32_t esize, uint32_t n, bool check)
{
	return kind_ours(k)     ? ours_rx(e, (enum crpc_spsc_variant)k, esize, n, check)
		: k == K_DUPLEX ? duplex_rx(e, esize, n, check)
		: k == K_LONE   ? lone_rx(e, esize, check)
		: k == K_RTE_ZC ? zc_rx(e, esize, n, check)
				: rte_rx(e, esize, n, check);
}

INLINE uint32_t
echo(struct end *e, enum kind k, uint32_t esize, uint32_t n)
{
	return kind_ours(k)     ? ours_echo(e, (enum crpc_spsc_variant)k, esize, n)
		: k == K_DUPLEX ? duplex_echo(e, esize, n)
		: k == K_LONE   ? lone_echo(e, esize)
		: k == K_RTE_ZC ? zc_echo(e, esize, n)
				: rte_echo(e, esize, n);
}

/* The clock is looked at rarely: every few microseconds, also where a turn is one empty poll. */
INLINE bool
over(enum kind k, uint64_t end, uint32_t *turn)
{
	return (++*turn & (kind_lone(k) ? 1023 : 63)) == 0 && crpc_clock_ticks() >= end;
}

/* Each has its end by value: nothing else has its address, so it lies in registers. */

INLINE uint64_t
client(struct end local, enum kind k, uint32_t esize, uint32_t burst, bool check, uint64_t end)
{
	struct end *e = &local;
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
			if (kind_onesided(k))
				crpc_spsc_onesided_credit(&e->p, n);
		}
	} while (!over(k, end, &turn));
	crpc_store_relaxed(&e->s->done, done);
	return e->bad;
}

INLINE void
server(struct end local, enum kind k, uint32_t esize, uint32_t burst)
{
	struct end *e = &local;
	uint32_t n;

	while (crpc_load_relaxed(&e->s->stop) == 0) {
		for (uint32_t i = 0; i < 256; i += n) {
			n = echo(e, k, esize, burst);
			if (n == 0)
				break;
			/* The client's window protects the answers it has not read. */
			if (kind_onesided(k))
				crpc_spsc_onesided_credit(&e->p, n);
		}
		if (kind_ours(k))
			crpc_spsc_inline_flush(&e->p, (enum crpc_spsc_variant)k);
	}
}

INLINE void
producer(struct end local, enum kind k, uint32_t esize, uint32_t burst, uint64_t end)
{
	struct end *e = &local;
	uint32_t turn = 0;

	do
		tx(e, k, esize, burst);
	while (!over(k, end, &turn));
}

INLINE uint64_t
consumer(struct end local, enum kind k, uint32_t esize, uint32_t burst, bool check)
{
	struct end *e = &local;
	uint64_t done = 0;

	while (crpc_load_relaxed(&e->s->stop) == 0)
		done += rx(e, k, esize, burst, check);
	crpc_store_relaxed(&e->s->done, done);
	return e->bad;
}

/* ---- instances ---- */

INLINE void
run_burst(struct end *e, enum kind k, uint32_t esize, uint32_t burst, bool check, uint64_t end)
{
	bool stream = e->stream && !kind_lone(k);

	if (stream && e->first)
		producer(*e, k, esize, burst, end);
	else if (stream)
		e->bad = consumer(*e, k, esize, burst, check);
	else if (e->first)
		e->bad = client(*e, k, esize, burst, check, end);
	else
		server(*e, k, esize, burst);
}

/* A burst of one is a constant too: the loops in it go, and with them what they keep in memory. */
INLINE void
run(struct end *e, enum kind k, uint32_t esize, bool check, uint64_t end)
{
	if (kind_lone(k) || e->burst == 1)
		run_burst(e, k, esize, 1, check, end);
	else
		run_burst(e, k, esize, e->burst, check, end);
}

/* Size 0: it is read at run time, and messages are checked. */
#define EACH_SIZE(WHAT, kind)                                                                      \
	WHAT(kind, 0)                                                                              \
	WHAT(kind, 8) WHAT(kind, 16) WHAT(kind, 32) WHAT(kind, 64) WHAT(kind, 128) WHAT(kind, 256)
#define EACH_KIND(WHAT)                                                                            \
	WHAT(K_LAMPORT)                                                                            \
	WHAT(K_FF)                                                                                 \
	WHAT(K_FF_ALIGNED)                                                                         \
	WHAT(K_ONE) WHAT(K_ONE_ALIGNED) WHAT(K_DUPLEX) WHAT(K_LONE) WHAT(K_RTE) WHAT(K_RTE_ZC)
#define RUN(kind, size)                                                                            \
	static crpc_noinline void run_##kind##_##size(struct end *e, uint64_t end)                 \
	{                                                                                          \
		run(e, kind, (size) != 0 ? (size) : e->esize, (size) == 0, end);                   \
	}
#define RUNS(kind)        EACH_SIZE(RUN, kind)
#define ENTRY(kind, size) run_##kind##_##size,
#define ENTRIES(kind)     [kind] = {EACH_SIZE(ENTRY, kind)},

EACH_KIND(RUNS)
static void (*const runs[][7])(struct end *e, uint64_t end) = {EACH_KIND(ENTRIES)};

/* ---- open, close, run ---- */

static enum kind
kind_of(const struct app_case *c)
{
	static const enum kind kinds[RB_TRANSPORTS][2] = {
		[RB_FASTFORWARD] = {K_FF, K_FF_ALIGNED},
		[RB_LAMPORT] = {K_LAMPORT, K_LAMPORT},
		[RB_ONESIDED] = {K_ONE, K_ONE_ALIGNED},
		[RB_DUPLEX] = {K_DUPLEX, K_LONE},
		[RB_RTE_RING] = {K_RTE, K_RTE},
		[RB_RTE_RING_ZC] = {K_RTE_ZC, K_RTE_ZC},
	};

	return kinds[c->transport][c->pattern == RB_LATENCY];
}

const char *
rb_transport_lacks(enum rb_transport t, enum rb_pattern p, uint32_t size)
{
	bool nodes = p == RB_FLUX || p == RB_MESH;

	if (t == RB_RTE_RING_RTS || t == RB_RTE_RING_HTS)
		return p != RB_MESH ? "is for many producers: mesh only" : NULL;
	if (nodes && t > RB_DUPLEX && !(p == RB_MESH && t == RB_RTE_RING))
		return "carries no flux or mesh";
	if (nodes && size > CRPC_FLUX_MSG_MAX)
		return "carries at most 248 bytes in flux and mesh";
	if (t == RB_DUPLEX && p == RB_STREAM)
		return "answers every message: rpc and latency only";
	return NULL;
}

static void *
ring_open(struct rb_slice *s)
{
	const struct app_case *c = &s->c;
	enum kind k = kind_of(c);
	bool ours = k < K_RTE;
	const struct crpc_spsc_attr a = {.variant = ours ? (enum crpc_spsc_variant)k : 0,
		.depth = c->depth,
		.esize = c->size,
		.lazy = rb_lazy(c->depth),
		.caller_credit = kind_onesided(k) && c->pattern != RB_STREAM};
	void *mem;

	s->len = ours ? (size_t)crpc_spsc_memsize(&a)
		      : (size_t)rte_ring_get_memsize_elem(c->size, c->depth);
	mem = crpc_mem_alloc("ring", s->len, 4096, NULL);
	if (mem != NULL && ours)
		crpc_spsc_init(mem, s->len, &a);
	else if (mem != NULL)
		rte_ring_init(mem, "ringbench", c->depth, RING_F_SP_ENQ | RING_F_SC_DEQ);
	return mem;
}

int
rb_ring_open(struct rb_slice *s)
{
	s->to = ring_open(s);
	if (kind_duplex(kind_of(&s->c)))
		return s->to != NULL ? 0 : -ENOMEM;
	s->back = ring_open(s);
	if (s->to != NULL && s->back != NULL)
		return 0;
	rb_ring_close(s);
	return -ENOMEM;
}

void
rb_ring_close(struct rb_slice *s)
{
	crpc_mem_free(s->to);
	crpc_mem_free(s->back);
	s->to = s->back = NULL;
}

void
rb_ring_run(struct rb_slice *s, int side)
{
	const struct app_case *c = &s->c;
	void *out = side == 0 ? s->to : s->back, *in = side == 0 ? s->back : s->to;
	uint64_t end = crpc_clock_ticks() + c->ticks;
	enum kind k = kind_of(c);
	struct end e = {.out = out,
		.in = in,
		.burst = c->burst,
		.inflight = c->inflight,
		.esize = c->size,
		.rx_seq = kind_duplex(k),
		.first = side == 0,
		.stream = c->pattern == RB_STREAM,
		.s = s};

	int rc = 0;

	if (kind_duplex(k) && side == 0)
		rc = crpc_spsc_duplex_client_attach(&e.client, s->to, s->len);
	else if (kind_duplex(k))
		rc = crpc_spsc_duplex_server_attach(&e.server, s->to, s->len);
	if (kind_ours(k))
		rc = crpc_spsc_prod_attach(&e.p, out, s->len) |
			crpc_spsc_cons_attach(&e.c, in, s->len);
	if (rc != 0) {
		crpc_fetch_add_relaxed(&s->bad, 1);
		return;
	}
	runs[k][c->check ? 0 : crpc_log2(c->size) - 2](&e, end);
	crpc_fetch_add_relaxed(&s->bad, e.bad);
}
