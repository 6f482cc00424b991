/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/spsc in one thread, step by step: each variant against a model queue under
 * random calls (seed printed on failure), exact fit, wrap at 2^32, publication, windows, bad
 * attributes, and words that only a hostile peer would write.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_spsc_block.h"
#include "crpc_spsc_inline.h"
#include "crpc_spsc_onesided.h"
#include "spsc_ring.h"

#define MSG_MAX CRPC_SPSC_ESIZE_MAX

static bool
is_fastforward(enum crpc_spsc_variant v)
{
	return v == CRPC_SPSC_FASTFORWARD || v == CRPC_SPSC_FASTFORWARD_ALIGNED;
}

/* Each wrong attribute is refused, and the text names the value and the range. */
TEST(bad_attributes_are_named)
{
	static const struct {
		struct crpc_spsc_attr a;
		const char *said;
	} bad[] = {
		{{.variant = (enum crpc_spsc_variant)9, .depth = 8, .esize = 8}, "variant 9"},
		{{.depth = 12, .esize = 8}, "depth 12 is not a power of two from 2 to 1048576"},
		{{.depth = 1, .esize = 8}, "depth 1 "},
		{{.depth = 1u << 21, .esize = 8}, "depth 2097152 "},
		{{.depth = 8, .esize = 4}, "size 4 is not a multiple of 8 from 8 to 256"},
		{{.depth = 8, .esize = 264}, "size 264 "},
		{{.depth = 8, .esize = 12}, "size 12 "},
		{{.depth = 8, .esize = 8, .lazy = 9}, "lazy 9 is above the ring depth 8"},
		{{.depth = 8, .esize = 8, .caller_credit = true}, "caller credit is for onesided"},
	};

	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		assert_int_equal(crpc_spsc_memsize(&bad[i].a), -EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].said));
	}
}

/* Memory that is short, askew, or no ring is refused by each end. */
TEST(bad_memory_is_refused)
{
	struct crpc_spsc_attr a = {.depth = 8, .esize = 32};
	struct crpc_spsc_hdr *h;
	struct ring r;

	assert_int_equal(ring_make(&r, &a), 0);
	assert_int_equal(crpc_spsc_init(r.mem, r.len - 1, &a), -ENOSPC);
	assert_int_equal(crpc_spsc_init((char *)r.mem + 64, r.len, &a), -EINVAL);
	assert_int_equal(crpc_spsc_prod_attach(&r.p, r.mem, r.len - 1), -ENOSPC);
	assert_int_equal(crpc_spsc_cons_attach(&r.c, r.mem, 128), -ENOSPC);
	h = r.mem;
	h->depth = 1u << 19; /* would lead far outside */
	assert_int_equal(crpc_spsc_cons_attach(&r.c, r.mem, r.len), -ENOSPC);
	h->depth = 7;
	assert_int_equal(crpc_spsc_cons_attach(&r.c, r.mem, r.len), -EINVAL);
	h->depth = 8;
	h->variant = 77;
	assert_int_equal(crpc_spsc_prod_attach(&r.p, r.mem, r.len), -EINVAL);
	h->variant = 0;
	h->version++;
	assert_int_equal(crpc_spsc_prod_attach(&r.p, r.mem, r.len), -EINVAL);
	assert_non_null(strstr(crpc_log_last(), "version 2"));
	free(r.mem);
}

/* One random producer step; returns messages enqueued. */
static uint32_t
step_produce(struct ring *r, uint64_t *s, uint64_t seq)
{
	uint64_t buf[40 * MSG_MAX / 8];
	uint32_t esize = r->p.esize, n = (uint32_t)(rnd(s) % 40) + 1, i, got;
	void *first;

	switch (rnd(s) % 3) {
	case 0:
		for (i = 0; i < n; i++)
			msg_fill((char *)buf + (size_t)i * esize, esize, seq + i);
		return ring_put(&r->p, buf, n);
	case 1:
		msg_fill(buf, esize, seq);
		return put_one(&r->p, buf) == 0;
	default:
		got = ring_reserve(&r->p, n, &first);
		assert_true(got <= n);
		if (got > 1 && rnd(s) % 4 == 0)
			got--; /* reserve more than is committed */
		for (i = 0; i < got; i++)
			msg_fill((char *)first + (size_t)i * r->p.esize, esize, seq + i);
		ring_commit(&r->p, got);
		return got;
	}
}

/* One random consumer step; returns messages dequeued, each verified. */
static uint32_t
step_consume(struct ring *r, uint64_t *s, uint64_t seq)
{
	uint64_t buf[40 * MSG_MAX / 8];
	uint32_t esize = r->c.esize, n = (uint32_t)(rnd(s) % 40) + 1, i, got = 0, run, runs;
	void *first;

	switch (rnd(s) % 3) {
	case 0:
		got = ring_get(&r->c, buf, n);
		for (i = 0; i < got; i++)
			assert_true(msg_good((char *)buf + (size_t)i * esize, esize, seq + i));
		return got;
	case 1:
		got = get_one(&r->c, buf) == 0;
		assert_true(got == 0 || msg_good(buf, esize, seq));
		return got;
	default:
		for (runs = (uint32_t)(rnd(s) % 3) + 1; runs > 0; runs--) {
			run = ring_peek(&r->c, n, &first);
			for (i = 0; i < run; i++)
				assert_true(msg_good((char *)first + (size_t)i * r->c.esize, esize,
					seq + got + i));
			got += run;
		}
		ring_release(&r->c);
		return got;
	}
}

/* Random calls on one ring against two counters. */
static void
model_run(const struct crpc_spsc_attr *a, uint64_t seed)
{
	uint32_t most = a->depth + (is_fastforward(a->variant) ? 2 * CRPC_SPSC_PACKED : 0), step, n;
	uint64_t in = 0, out = 0, s = seed;
	struct ring r;

	assert_int_equal(ring_make(&r, a), 0);
	for (step = 0; step < 600; step++) {
		/* Lean to one side for a while, so that full and empty are both reached often. */
		if (rnd(&s) % 8 < (step / 16 % 2 != 0 ? 2u : 6u)) {
			in += step_produce(&r, &s, in);
			assert_true(in - out <= most);
		} else {
			n = step_consume(&r, &s, out);
			if (a->caller_credit)
				crpc_spsc_onesided_credit(&r.p, n);
			out += n;
			assert_true(out <= in);
		}
		if (rnd(&s) % 4 == 0)
			ring_flush(&r.p);
	}
	ring_flush(&r.p);
	for (step = 0; out < in && step < 10000; step++) {
		n = step_consume(&r, &s, out);
		if (a->caller_credit)
			crpc_spsc_onesided_credit(&r.p, n);
		out += n;
	}
	assert_int_equal(in, out);
	assert_true(in > a->depth);
	ring_free(&r);
}

/* Every variant, size, depth and laziness behaves as a queue, wherever its positions start. */
TEST(behaves_as_a_queue)
{
	static const uint32_t sizes[] = {8, 16, 24, 32, 40, 48, 64, 128, 256};
	static const uint32_t depths[] = {2, 4, 8, 64, 128};
	static const uint32_t starts[] = {0, UINT32_MAX - 5, UINT32_MAX - 200};
	struct crpc_spsc_attr a = {0};
	uint64_t seed = rnd_seed();

	for (uint32_t v = 0; v < CRPC_SPSC_VARIANTS; v++)
		for (uint32_t i = 0; i < CRPC_DIM(sizes); i++)
			for (uint32_t j = 0; j < CRPC_DIM(depths); j++)
				for (uint32_t k = 0; k < 4 * CRPC_DIM(starts); k++) {
					a.variant = v;
					a.esize = sizes[i];
					a.depth = depths[j];
					a.start = starts[k / 4];
					a.lazy = k % 2 != 0 ? depths[j] : 1;
					a.caller_credit =
						k / 2 % 2 != 0 && crpc_spsc_is_onesided(v);
					model_run(&a, ++seed);
				}
}

/* Exactly depth messages fit, wherever the oldest lies; fastforward has up to two blocks more. */
TEST(exact_fit)
{
	struct crpc_spsc_attr a = {.depth = 16, .esize = 16, .start = UINT32_MAX - 20};
	uint64_t msg[2], seq = 0, out = 0;
	uint32_t v, shift, n, i;
	struct ring r;

	for (v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		a.variant = v;
		assert_int_equal(ring_make(&r, &a), 0);
		seq = out = 0;
		for (shift = 0; shift < 40; shift++) {
			for (n = 0;; n++, seq++) {
				msg_fill(msg, 16, seq);
				if (put_one(&r.p, msg) != 0)
					break;
			}
			assert_in_range(n, 16, is_fastforward(v) ? 16 + 2 * CRPC_SPSC_PACKED : 16);
			for (i = 0; get_one(&r.c, msg) == 0; i++)
				assert_true(msg_good(msg, 16, out++));
			assert_int_equal(i, n);
			/* Move the oldest by one, for the next round. */
			msg_fill(msg, 16, seq++);
			assert_int_equal(put_one(&r.p, msg), 0);
			assert_int_equal(get_one(&r.c, msg), 0);
			out++;
			assert_int_equal(get_one(&r.c, msg), -EAGAIN);
		}
		ring_free(&r);
	}
}

/* Nothing is stuck: held back until flush, at once without laziness, by itself when full. */
TEST(publication_never_sticks)
{
	struct crpc_spsc_attr a = {.depth = 64, .esize = 32};
	uint64_t msg[4] = {0};
	struct ring r;
	uint32_t v, n;

	for (v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		a.variant = v;
		a.lazy = 0;
		assert_int_equal(ring_make(&r, &a), 0);
		assert_int_equal(put_one(&r.p, msg), 0);
		assert_int_equal(get_one(&r.c, msg), 0);
		ring_free(&r);

		a.lazy = 64;
		assert_int_equal(ring_make(&r, &a), 0);
		assert_int_equal(put_one(&r.p, msg), 0);
		ring_flush(&r.p);
		ring_flush(&r.p); /* twice is once */
		assert_int_equal(get_one(&r.c, msg), 0);
		for (n = 0; put_one(&r.p, msg) == 0; n++)
			;
		for (; get_one(&r.c, msg) == 0; n--)
			;
		assert_int_equal(n, 0);
		ring_free(&r);
	}
}

/*
 * A slot's old flag is not taken for a new message ("sentinel written after data"): after each lap,
 * with nothing new enqueued, the consumer sees nothing, at every fill of the last block.
 */
TEST(no_stale_flag_after_wrap)
{
	struct crpc_spsc_attr a = {.depth = 8, .esize = 8, .lazy = 8};
	uint64_t msg, seq, got;
	struct ring r;

	for (uint32_t v = 0; v < CRPC_SPSC_VARIANTS; v++)
		for (uint32_t burst = 1; burst <= 8; burst++) {
			a.variant = v;
			a.start = UINT32_MAX - burst;
			assert_int_equal(ring_make(&r, &a), 0);
			for (seq = 0; seq < 200; seq += burst) {
				for (uint32_t i = 0; i < burst; i++) {
					msg_fill(&msg, 8, seq + i);
					assert_int_equal(put_one(&r.p, &msg), 0);
				}
				ring_flush(&r.p);
				for (got = 0; get_one(&r.c, &msg) == 0; got++)
					assert_true(msg_good(&msg, 8, seq + got));
				assert_int_equal(got, burst);
			}
			ring_free(&r);
		}
}

/* onesided with caller credit works over memory that the consumer cannot write. */
TEST(onesided_consumer_never_writes)
{
	struct crpc_spsc_attr a = {.depth = 8, .esize = 32, .caller_credit = true};
	struct crpc_spsc_prod p;
	struct crpc_spsc_cons c;
	uint64_t msg[4], seq = 0, out = 0;
	size_t len;
	void *rw, *ro;
	int fd;

	for (uint32_t v = CRPC_SPSC_ONESIDED; v <= CRPC_SPSC_ONESIDED_ALIGNED; v++) {
		a.variant = v;
		len = (size_t)crpc_spsc_memsize(&a);
		fd = memfd_create("ring", 0);
		assert_int_equal(ftruncate(fd, (off_t)len), 0);
		rw = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ro = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
		assert_int_equal(crpc_spsc_init(rw, len, &a), 0);
		assert_int_equal(crpc_spsc_prod_attach(&p, rw, len), 0);
		assert_int_equal(crpc_spsc_cons_attach(&c, ro, len), 0);
		for (seq = out = 0; seq < 300;) {
			/* The window is the end, though the consumer has read everything. */
			for (uint32_t i = 0; i < 8; i++) {
				msg_fill(msg, 32, seq++);
				assert_int_equal(put_one(&p, msg), 0);
			}
			assert_int_equal(put_one(&p, msg), -EAGAIN);
			while (get_one(&c, msg) == 0)
				assert_true(msg_good(msg, 32, out++));
			assert_int_equal(put_one(&p, msg), -EAGAIN);
			crpc_spsc_onesided_credit(&p, 1000); /* bounded to what is open */
		}
		assert_int_equal(out, seq);
		munmap(rw, len);
		munmap(ro, len);
		close(fd);
	}
}

/* Words that no honest end writes make a ring look full or empty. */
TEST(hostile_words_are_bounded)
{
	static const uint32_t bad[] = {100, UINT32_MAX, 0x80000000, 65};
	struct crpc_spsc_attr a = {.depth = 64, .esize = 8};
	uint64_t msg = 0, buf[64];
	_Atomic uint32_t *head, *tail;
	_Atomic uint64_t *flag;
	struct ring r;

	assert_int_equal(ring_make(&r, &a), 0);
	head = (_Atomic uint32_t *)(void *)((char *)r.mem + CRPC_SPSC_HEAD_OFFSET);
	tail = (_Atomic uint32_t *)(void *)((char *)r.mem + CRPC_SPSC_TAIL_OFFSET);
	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		crpc_store_relaxed(head, bad[i]);
		assert_int_equal(ring_get(&r.c, buf, 64), 0);
	}
	crpc_store_relaxed(head, 0);
	for (size_t i = 0; i < 64; i++)
		assert_int_equal(put_one(&r.p, &msg), 0);
	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		crpc_store_relaxed(tail, bad[i]);
		assert_int_equal(put_one(&r.p, &msg), -EAGAIN);
	}
	free(r.mem);

	a.variant = CRPC_SPSC_FASTFORWARD_ALIGNED;
	assert_int_equal(ring_make(&r, &a), 0);
	flag = __crpc_spsc_flag(r.c.pos);
	crpc_store_relaxed(flag, 7); /* seven messages in a block for one */
	assert_int_equal(ring_get(&r.c, buf, 64), 0);
	free(r.mem);

	a.variant = CRPC_SPSC_ONESIDED;
	assert_int_equal(ring_make(&r, &a), 0);
	crpc_store_relaxed(__crpc_spsc_flag(r.c.pos), UINT64_C(5) << 3 | 7); /* a lap to come */
	assert_int_equal(ring_get(&r.c, buf, 64), 0);
	free(r.mem);
}

/* A peek may hold a whole ring; the flags it has not given back are not read again. */
TEST(peek_of_a_whole_ring_ends)
{
	struct crpc_spsc_attr a = {.depth = 16, .esize = 8};
	uint64_t msg = 0;
	uint32_t v, n, run;
	struct ring r;
	void *first;

	for (v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		a.variant = v;
		assert_int_equal(ring_make(&r, &a), 0);
		while (put_one(&r.p, &msg) == 0)
			;
		for (n = 0; (run = ring_peek(&r.c, 64, &first)) != 0; n += run)
			assert_true(n <= 16 + 2 * CRPC_SPSC_PACKED);
		assert_true(n >= 16);
		ring_release(&r.c);
		while (get_one(&r.c, &msg) == 0)
			;
		ring_free(&r);
	}
}

/* The inline calls of each variant, one message at a time. */
TEST(inline_singles)
{
	static const enum crpc_spsc_variant variants[] = {CRPC_SPSC_LAMPORT, CRPC_SPSC_FASTFORWARD,
		CRPC_SPSC_FASTFORWARD_ALIGNED, CRPC_SPSC_ONESIDED, CRPC_SPSC_ONESIDED_ALIGNED};
	struct crpc_spsc_attr a = {.depth = 8, .esize = 24, .start = UINT32_MAX - 3};
	uint64_t msg[3], seq, out;
	struct ring r;

	for (uint32_t i = 0; i < CRPC_DIM(variants); i++) {
		a.variant = variants[i];
		assert_int_equal(ring_make(&r, &a), 0);
		for (seq = out = 0; seq < 100; seq++) {
			msg_fill(msg, 24, seq);
			assert_int_equal(
				spsc_enqueue_burst(&r.p, a.variant, 24, msg, 1), 1);
			if (seq % 5 != 4)
				continue;
			for (; out <= seq; out++) {
				assert_int_equal(
					spsc_dequeue_burst(&r.c, a.variant, 24, msg, 1),
					1);
				assert_true(msg_good(msg, 24, out));
			}
			assert_int_equal(
				spsc_dequeue_burst(&r.c, a.variant, 24, msg, 1), 0);
		}
		ring_free(&r);
	}
}

TEST_MAIN(NULL, NULL)
