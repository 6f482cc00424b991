/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring whose replies overwrite their requests: order, window, wrap, what an end holds back,
 * words that the peer could not have written, the lone layout, and both layouts between two
 * threads. Every payload is verified; a reply is its request with every bit turned, so that a
 * request that was never answered is no reply.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <inttypes.h>
#include <stdint.h>
#include <time.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_spsc_duplex.h"
#include "spsc_ring.h"

#define ESIZE 24u

struct pair {
	void *mem;
	size_t len;
	struct crpc_spsc_duplex_client c;
	struct crpc_spsc_duplex_server s;
	uint64_t asked, read, served; /* calls so far */
};

static void
pair_make(struct pair *p, const struct crpc_spsc_attr *a)
{
	memset(p, 0, sizeof(*p));
	p->len = (size_t)crpc_spsc_memsize(a);
	p->mem = aligned_alloc(CRPC_CACHE_GUARD, p->len);
	memset(p->mem, 0xa5, p->len);
	assert_int_equal(crpc_spsc_init(p->mem, p->len, a), 0);
	assert_int_equal(crpc_spsc_duplex_client_attach(&p->c, p->mem, p->len), 0);
	assert_int_equal(crpc_spsc_duplex_server_attach(&p->s, p->mem, p->len), 0);
}

static void
pair_free(struct pair *p)
{
	free(p->mem);
}

static void
turn(void *msg, uint32_t esize)
{
	uint64_t *w = msg;

	for (uint32_t i = 0; i < esize / 8; i++)
		w[i] = ~w[i];
}

/* Ask up to n times; how often there was room. */
static uint32_t
ask(struct pair *p, uint32_t esize, uint32_t n)
{
	uint32_t i, run, done = 0;
	void *first;

	while (done < n && (run = crpc_spsc_duplex_reserve(&p->c, esize, n - done, &first)) != 0) {
		for (i = 0; i < run; i++)
			msg_fill((char *)first + (size_t)i * esize, esize, p->asked++);
		crpc_spsc_duplex_commit(&p->c, run);
		done += run;
	}
	return done;
}

/* Serve up to n requests, each of which must be the next one asked; how many there were. */
static uint32_t
serve(struct pair *p, uint32_t esize, uint32_t n, uint32_t *bad)
{
	void *first;
	uint32_t run = crpc_spsc_duplex_recv(&p->s, esize, n, &first);

	for (uint32_t i = 0; i < run; i++) {
		*bad += !msg_good((char *)first + (size_t)i * esize, esize, p->served++);
		turn((char *)first + (size_t)i * esize, esize);
	}
	crpc_spsc_duplex_answer(&p->s, run);
	return run;
}

/* Read up to n replies, each of which must be that of the next call; how many there were. */
static uint32_t
read_some(struct pair *p, uint32_t esize, uint32_t n, uint32_t *bad)
{
	void *first;
	uint32_t run = crpc_spsc_duplex_poll(&p->c, esize, n, &first);

	for (uint32_t i = 0; i < run; i++) {
		turn((char *)first + (size_t)i * esize, esize);
		*bad += !msg_good((char *)first + (size_t)i * esize, esize, p->read++);
	}
	crpc_spsc_duplex_release(&p->c);
	return run;
}

TEST(wrong_attributes_are_refused)
{
	struct crpc_spsc_attr good = {.variant = CRPC_SPSC_DUPLEX, .depth = 8, .esize = 32}, a;
	struct crpc_spsc_duplex_client c;
	size_t len = (size_t)crpc_spsc_memsize(&good);
	char *mem = aligned_alloc(CRPC_CACHE_GUARD, len);

	a = (struct crpc_spsc_attr){.variant = CRPC_SPSC_DUPLEX, .depth = 12, .esize = 32};
	assert_int_equal(crpc_spsc_memsize(&a), -EINVAL);
	assert_non_null(strstr(crpc_log_last(), "12"));
	a = (struct crpc_spsc_attr){.variant = CRPC_SPSC_DUPLEX, .depth = 8, .esize = 260};
	assert_int_equal(crpc_spsc_memsize(&a), -EINVAL);
	a = (struct crpc_spsc_attr){
		.variant = CRPC_SPSC_DUPLEX, .depth = 8, .esize = 32, .lazy = 9};
	assert_int_equal(crpc_spsc_init(mem, len, &a), -EINVAL);
	assert_int_equal(crpc_spsc_init(mem, len - 1, &good), -ENOSPC);
	assert_int_equal(crpc_spsc_init(mem + 8, len, &good), -EINVAL);
	memset(mem, 0, len);
	assert_int_equal(crpc_spsc_duplex_client_attach(&c, mem, len), -EINVAL); /* no ring */
	assert_int_equal(crpc_spsc_init(mem, len, &good), 0);
	assert_int_equal(crpc_spsc_duplex_client_attach(&c, mem, len - CRPC_CACHE_GUARD), -ENOSPC);
	free(mem);
}

TEST(window_is_the_depth_and_replies_come_in_order)
{
	struct crpc_spsc_attr a = {
		.variant = CRPC_SPSC_DUPLEX, .depth = 8, .esize = ESIZE, .start = UINT32_MAX - 3};
	uint32_t bad = 0, round;
	struct pair p;

	pair_make(&p, &a);
	for (round = 0; round < 50; round++) { /* positions pass 2^32 in the first */
		assert_int_equal(ask(&p, ESIZE, 11), 8);
		assert_int_equal(ask(&p, ESIZE, 1), 0);
		while (serve(&p, ESIZE, 3, &bad) != 0)
			;
		/* A slot is the reply's until it was read and released. */
		assert_int_equal(ask(&p, ESIZE, 1), 0);
		while (read_some(&p, ESIZE, 5, &bad) != 0)
			;
		assert_int_equal(bad, 0);
		assert_int_equal(p.read, p.asked);
	}
	pair_free(&p);
}

TEST(what_is_held_back_goes_out_with_the_next_empty_poll)
{
	struct crpc_spsc_attr a = {
		.variant = CRPC_SPSC_DUPLEX, .depth = 16, .esize = ESIZE, .lazy = 4};
	uint32_t bad = 0;
	struct pair p;

	pair_make(&p, &a);
	assert_int_equal(ask(&p, ESIZE, 3), 3);
	assert_int_equal(serve(&p, ESIZE, 16, &bad), 0); /* held back */
	assert_int_equal(read_some(&p, ESIZE, 16, &bad), 0);
	assert_int_equal(serve(&p, ESIZE, 16, &bad), 3); /* the empty poll published them */
	assert_int_equal(read_some(&p, ESIZE, 16, &bad), 0);
	assert_int_equal(serve(&p, ESIZE, 16, &bad), 0); /* publishes the replies */
	assert_int_equal(read_some(&p, ESIZE, 16, &bad), 3);
	assert_int_equal(ask(&p, ESIZE, 4), 4);
	assert_int_equal(serve(&p, ESIZE, 16, &bad), 4); /* four go at once, both ways */
	assert_int_equal(read_some(&p, ESIZE, 16, &bad), 4);
	assert_int_equal(ask(&p, ESIZE, 1), 1);
	crpc_spsc_duplex_flush(&p.c);
	assert_int_equal(serve(&p, ESIZE, 16, &bad), 1);
	crpc_spsc_duplex_flush_answers(&p.s);
	assert_int_equal(read_some(&p, ESIZE, 16, &bad), 1);
	assert_int_equal(bad, 0);
	pair_free(&p);
}

/* Whatever stands in the two words, an end stays within its ring and within what it published. */
TEST(impossible_words_mean_nothing)
{
	struct crpc_spsc_attr a = {.variant = CRPC_SPSC_DUPLEX, .depth = 8, .esize = ESIZE};
	uint32_t bad = 0, i, wrong[] = {9, 100, 1u << 31, UINT32_MAX};
	_Atomic uint32_t *head, *done;
	struct pair p;

	pair_make(&p, &a);
	head = p.c.head;
	done = p.s.done;
	for (i = 0; i < CRPC_DIM(wrong); i++) {
		crpc_store_relaxed(head, wrong[i]);
		assert_int_equal(serve(&p, ESIZE, 8, &bad), 0);
		crpc_store_relaxed(done, wrong[i]);
		assert_int_equal(read_some(&p, ESIZE, 8, &bad), 0);
	}
	crpc_store_relaxed(done, 1); /* a reply to nothing */
	assert_int_equal(read_some(&p, ESIZE, 8, &bad), 0);
	crpc_store_relaxed(head, 0);
	crpc_store_relaxed(done, 0);
	assert_int_equal(ask(&p, ESIZE, 2), 2);
	crpc_store_relaxed(done, 3); /* one more than was asked */
	assert_int_equal(read_some(&p, ESIZE, 8, &bad), 0);
	crpc_store_relaxed(done, 0);
	assert_int_equal(serve(&p, ESIZE, 8, &bad), 2);
	crpc_store_relaxed(head, 1); /* back behind what was taken */
	assert_int_equal(serve(&p, ESIZE, 8, &bad), 0);
	crpc_store_relaxed(head, 2);
	assert_int_equal(read_some(&p, ESIZE, 8, &bad), 2);
	assert_int_equal(bad, 0);
	pair_free(&p);
}

static bool
lone_ask(struct pair *p, uint32_t esize)
{
	void *msg = crpc_spsc_lone_reserve(&p->c, esize);

	if (msg == NULL)
		return false;
	msg_fill(msg, esize, p->asked++);
	crpc_spsc_lone_commit(&p->c, esize);
	return true;
}

static bool
lone_serve(struct pair *p, uint32_t esize, uint32_t *bad)
{
	void *msg = crpc_spsc_lone_recv(&p->s, esize);

	if (msg == NULL)
		return false;
	*bad += !msg_good(msg, esize, p->served++);
	turn(msg, esize);
	crpc_spsc_lone_answer(&p->s);
	return true;
}

static bool
lone_read(struct pair *p, uint32_t esize, uint32_t *bad)
{
	void *msg = crpc_spsc_lone_poll(&p->c, esize);

	if (msg == NULL)
		return false;
	turn(msg, esize);
	*bad += !msg_good(msg, esize, p->read++);
	return true;
}

TEST(lone_calls_share_the_first_line)
{
	struct crpc_spsc_attr a = {.variant = CRPC_SPSC_DUPLEX_LONE, .depth = 4, .esize = 32};
	uint32_t bad = 0, i;
	struct pair p;
	void *first;

	pair_make(&p, &a);
	first = crpc_spsc_lone_reserve(&p.c, 32);
	for (i = 0; i < 20; i++) {
		assert_ptr_equal(crpc_spsc_lone_reserve(&p.c, 32), first);
		assert_true(lone_ask(&p, 32));
		assert_false(lone_read(&p, 32, &bad)); /* a request is no reply */
		assert_true(lone_serve(&p, 32, &bad));
		assert_false(lone_serve(&p, 32, &bad)); /* nor a reply a request */
		assert_true(lone_read(&p, 32, &bad));
	}
	assert_int_equal(bad, 0);
	pair_free(&p);
}

/*
 * Random numbers of open calls: the ring goes round, and goes back to its start when it is empty.
 */
TEST(lone_calls_may_be_many)
{
	struct crpc_spsc_attr a = {.variant = CRPC_SPSC_DUPLEX_LONE, .depth = 4, .esize = 72};
	uint64_t seed = rnd_seed(), s = seed;
	uint32_t bad = 0, i;
	struct pair p;

	pair_make(&p, &a);
	for (i = 0; i < 20000; i++)
		switch (rnd(&s) % 3) {
		case 0:
			bad += lone_ask(&p, 72) ? p.asked - p.read > 4 : p.asked - p.read != 4;
			break;
		case 1:
			lone_serve(&p, 72, &bad);
			break;
		default:
			lone_read(&p, 72, &bad);
		}
	while (lone_serve(&p, 72, &bad) || lone_read(&p, 72, &bad))
		;
	if (bad != 0 || p.read != p.asked || p.served != p.asked)
		print_message("seed %" PRIu64 "\n", seed);
	assert_int_equal(bad, 0);
	assert_int_equal(p.read, p.asked);
	assert_int_equal(p.served, p.asked);
	assert_true(p.asked > 1000);
	pair_free(&p);
}

/* ---- two threads ---- */

#define CALLS 40000u

struct stress {
	struct pair p;
	bool lone;
	uint32_t esize;
	uint64_t seed;
	uint32_t bad;
};

static void *
server_main(void *arg)
{
	struct stress *t = arg;
	uint64_t s = t->seed * 3 + 1;

	while (t->p.served < CALLS) {
		if (t->lone ? lone_serve(&t->p, t->esize, &t->bad)
			    : serve(&t->p, t->esize, (uint32_t)(rnd(&s) % 37) + 1, &t->bad) != 0)
			continue;
		sched_yield();
	}
	crpc_spsc_duplex_flush_answers(&t->p.s);
	return NULL;
}

static void
between_threads(bool lone, uint32_t esize, uint32_t depth, uint32_t lazy)
{
	struct crpc_spsc_attr a = {.variant = lone ? CRPC_SPSC_DUPLEX_LONE : CRPC_SPSC_DUPLEX,
		.depth = depth,
		.esize = esize,
		.lazy = lazy,
		.start = UINT32_MAX - CALLS / 2};
	struct stress t = {.lone = lone, .esize = esize, .seed = rnd_seed()};
	uint64_t s = t.seed;
	uint32_t bad = 0, n;
	pthread_t server;

	pair_make(&t.p, &a);
	assert_int_equal(pthread_create(&server, NULL, server_main, &t), 0);
	while (t.p.read < CALLS) {
		n = (uint32_t)(rnd(&s) % 37) + 1;
		n = n < CALLS - t.p.asked ? n : (uint32_t)(CALLS - t.p.asked);
		if (lone)
			for (; n > 0 && lone_ask(&t.p, esize); n--)
				;
		else
			ask(&t.p, esize, n);
		if (lone ? !lone_read(&t.p, esize, &bad)
			 : read_some(&t.p, esize, (uint32_t)(rnd(&s) % 37) + 1, &bad) == 0)
			sched_yield();
	}
	pthread_join(server, NULL);
	if (bad + t.bad != 0)
		print_message("seed %" PRIu64 " lone %d esize %u depth %u lazy %u\n", t.seed, lone,
			esize, depth, lazy);
	assert_int_equal(bad + t.bad, 0);
	pair_free(&t.p);
}

TEST(threads_agree_on_every_byte)
{
	between_threads(false, 32, 256, 32);
	between_threads(false, 8, 64, 1);
	between_threads(false, 24, 4, 4);
	between_threads(false, 200, 32, 7);
	between_threads(true, 32, 16, 0);
	between_threads(true, 120, 2, 0);
}

TEST_MAIN(NULL, NULL)
