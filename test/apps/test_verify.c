/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification: a right history passes, and each kind of wrong answer is caught and named: torn at
 * every byte and size, foreign, stale, forked, invented, missing, malformed. A check that cannot
 * fail proves nothing, so every fault here is made on purpose.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "app_verify.h"
#include "rnd.h"

#define KEYS    16
#define WRITERS 4
#define ME      2

struct rig {
	struct app_verify h;
	uint8_t value[CRPC_KV_VALUE_INLINE];
};

static void
rig_init(struct rig *r, uint32_t value_size, bool may_miss)
{
	assert_int_equal(app_verify_init(&r->h, KEYS, value_size, ME, WRITERS, may_miss), 0);
}

/* The answer to a get that found what (writer, seq) wrote to `of`. */
static struct app_answer
got(struct rig *r, uint32_t key, uint32_t of, uint32_t writer, uint32_t seq, uint64_t version)
{
	app_value_fill(r->value, r->h.value_size, app_word(of, writer, seq));
	return (struct app_answer){
		.key = key,
		.op = CRPC_KV_GET,
		.floor = app_verify_floor(&r->h, key),
		.hdr = {.status = CRPC_KV_OK,
			.op = CRPC_KV_GET,
			.value_len = r->h.value_size,
			.version = version},
		.value = r->value,
	};
}

static struct app_answer
put_done(struct rig *r, uint32_t key, uint64_t word, uint64_t floor, uint64_t version)
{
	return (struct app_answer){
		.key = key,
		.op = CRPC_KV_PUT,
		.floor = floor,
		.word = word,
		.hdr = {.status = CRPC_KV_OK, .op = CRPC_KV_PUT, .version = version},
	};
}

static struct app_answer
answered(struct rig *r, uint32_t key, enum kv_op op, enum kv_status status, uint64_t version)
{
	return (struct app_answer){
		.key = key,
		.op = (uint8_t)op,
		.floor = app_verify_floor(&r->h, key),
		.hdr = {.status = (uint8_t)status, .op = (uint8_t)op, .version = version},
	};
}

static void
expect(struct rig *r, struct app_answer a, enum app_fault fault)
{
	uint64_t before = r->h.faults[fault];

	assert_string_equal(app_fault_name(app_verify_check(&r->h, &a)), app_fault_name(fault));
	assert_int_equal(r->h.faults[fault], before + (fault != APP_FAULT_NONE));
}

static void
right_history_passes(void **state)
{
	struct rig r;
	uint64_t word, floor;

	rig_init(&r, 8, true);
	expect(&r, got(&r, 3, 3, 0, 1, 10), APP_FAULT_NONE);
	expect(&r, got(&r, 3, 3, 0, 1, 10), APP_FAULT_NONE);
	expect(&r, got(&r, 3, 3, 1, 77, 12), APP_FAULT_NONE);
	floor = app_verify_floor(&r.h, 3);
	word = app_verify_put_if(&r.h, 3, true);
	expect(&r, put_done(&r, 3, word, floor, 15), APP_FAULT_NONE);
	expect(&r, got(&r, 3, 3, ME, 1, 15), APP_FAULT_NONE);
	expect(&r, answered(&r, 3, CRPC_KV_DELETE, CRPC_KV_OK, 16), APP_FAULT_NONE);
	expect(&r, answered(&r, 3, CRPC_KV_GET, CRPC_KV_NOT_FOUND, 16), APP_FAULT_NONE);
	expect(&r, answered(&r, 3, CRPC_KV_DELETE, CRPC_KV_NOT_FOUND, 20), APP_FAULT_NONE);
	expect(&r, got(&r, 3, 3, 1, 78, 21), APP_FAULT_NONE);
	app_verify_fini(&r.h);
}

/*
 * "No space" says nothing about a key, but only a put gets it, and only where a store may be full.
 */
static void
a_full_store_may_refuse_a_put(void **state)
{
	struct rig r;

	rig_init(&r, 8, false);
	expect(&r, got(&r, 3, 3, 0, 1, 10), APP_FAULT_NONE);
	expect(&r, answered(&r, 3, CRPC_KV_PUT, CRPC_KV_NO_SPACE, 0), APP_FAULT_STATUS);
	r.h.may_refuse = true;
	expect(&r, answered(&r, 3, CRPC_KV_PUT, CRPC_KV_NO_SPACE, 0), APP_FAULT_NONE);
	expect(&r, answered(&r, 3, CRPC_KV_GET, CRPC_KV_NO_SPACE, 0), APP_FAULT_STATUS);
	expect(&r, got(&r, 3, 3, 0, 1, 10), APP_FAULT_NONE);
	expect(&r, got(&r, 3, 3, 1, 77, 9), APP_FAULT_STALE);
	app_verify_fini(&r.h);
}

/* Two calls open at once may complete in either order: only what completed before counts. */
static void
reordered_completions_pass(void **state)
{
	struct rig r;
	struct app_answer slow;

	rig_init(&r, 8, false);
	expect(&r, got(&r, 1, 1, 0, 1, 5), APP_FAULT_NONE);
	slow = got(&r, 1, 1, 1, 3, 6);
	expect(&r, got(&r, 1, 1, 1, 4, 7), APP_FAULT_NONE);
	app_value_fill(r.value, 8, app_word(1, 1, 3));
	expect(&r, slow, APP_FAULT_NONE);
	assert_int_equal(app_verify_floor(&r.h, 1), 7);
	app_verify_fini(&r.h);
}

/* Bytes of another write from any byte on, or one flipped bit, at sizes with and without a tail. */
static void
torn_value_is_caught_at_every_byte(void **state)
{
	static const uint32_t sizes[] = {9, 12, 15, 16, 17, 24, 64, 100, 1024, 4096};
	uint8_t other[CRPC_KV_VALUE_INLINE];
	struct app_answer a;
	struct rig r;
	size_t s;
	uint32_t cut;

	for (s = 0; s < CRPC_DIM(sizes); s++) {
		rig_init(&r, sizes[s], false);
		app_value_fill(other, sizes[s], app_word(5, 1, 9));
		for (cut = 8; cut < sizes[s]; cut++) {
			a = got(&r, 5, 5, 1, 8, 100);
			if (memcmp(r.value + cut, other + cut, sizes[s] - cut) == 0)
				r.value[cut] ^= 1;
			else
				memcpy(r.value + cut, other + cut, sizes[s] - cut);
			expect(&r, a, APP_FAULT_TORN);
			a = got(&r, 5, 5, 1, 8, 100);
			r.value[cut] ^= (uint8_t)(1u << (cut & 7));
			expect(&r, a, APP_FAULT_TORN);
		}
		expect(&r, got(&r, 5, 5, 1, 8, 100), APP_FAULT_NONE);
		app_verify_fini(&r.h);
	}
}

static void
foreign_value_is_caught(void **state)
{
	struct rig r;
	uint32_t of;

	rig_init(&r, 8, false);
	for (of = 0; of < KEYS; of++)
		expect(&r, got(&r, 5, of, 1, 1, 3), of == 5 ? APP_FAULT_NONE : APP_FAULT_FOREIGN);
	app_verify_fini(&r.h);
}

static void
stale_answers_are_caught(void **state)
{
	struct rig r;
	uint64_t word, floor;

	rig_init(&r, 8, true);
	expect(&r, got(&r, 2, 2, 1, 5, 50), APP_FAULT_NONE);
	expect(&r, got(&r, 2, 2, 1, 4, 49), APP_FAULT_STALE);
	expect(&r, answered(&r, 2, CRPC_KV_GET, CRPC_KV_NOT_FOUND, 48), APP_FAULT_STALE);
	floor = app_verify_floor(&r.h, 2);
	word = app_verify_put_if(&r.h, 2, true);
	expect(&r, put_done(&r, 2, word, floor, 49), APP_FAULT_STALE);
	/* Deleted at 60: what was there at 60 or before may not come back. */
	expect(&r, answered(&r, 2, CRPC_KV_DELETE, CRPC_KV_OK, 60), APP_FAULT_NONE);
	expect(&r, got(&r, 2, 2, 1, 5, 50), APP_FAULT_STALE);
	expect(&r, got(&r, 2, 2, 1, 6, 60), APP_FAULT_STALE);
	expect(&r, got(&r, 2, 2, 1, 7, 61), APP_FAULT_NONE);
	app_verify_fini(&r.h);
}

static void
forked_versions_are_caught(void **state)
{
	struct rig r;
	uint64_t word, floor;

	rig_init(&r, 8, true);
	expect(&r, got(&r, 2, 2, 1, 5, 50), APP_FAULT_NONE);
	expect(&r, got(&r, 2, 2, 1, 6, 50), APP_FAULT_FORKED);
	expect(&r, got(&r, 2, 2, 3, 5, 50), APP_FAULT_FORKED);
	floor = app_verify_floor(&r.h, 2);
	word = app_verify_put_if(&r.h, 2, true);
	expect(&r, put_done(&r, 2, word, floor, 50), APP_FAULT_FORKED);
	expect(&r, answered(&r, 2, CRPC_KV_DELETE, CRPC_KV_OK, 50), APP_FAULT_FORKED);
	app_verify_fini(&r.h);
}

static void
invented_and_unknown_writers_are_caught(void **state)
{
	struct rig r;

	rig_init(&r, 8, false);
	expect(&r, got(&r, 2, 2, ME, 1, 50), APP_FAULT_INVENTED);
	app_verify_put_if(&r.h, 2, true);
	expect(&r, got(&r, 2, 2, ME, 1, 50), APP_FAULT_NONE);
	expect(&r, got(&r, 2, 2, ME, 2, 51), APP_FAULT_INVENTED);
	expect(&r, got(&r, 2, 2, WRITERS, 1, 52), APP_FAULT_WRITER);
	app_verify_fini(&r.h);
}

/* Sequence numbers have 24 bits: after 2^24 puts they start again without false alarms. */
static void
sequence_wraps(void **state)
{
	struct rig r;
	uint64_t word;

	rig_init(&r, 8, false);
	r.h.seq = (1u << APP_WORD_SEQ_BITS) - 1;
	word = app_verify_put_if(&r.h, 1, true);
	assert_int_equal(app_word_seq(word), 0);
	expect(&r, got(&r, 1, 1, ME, (1u << APP_WORD_SEQ_BITS) - 1, 5), APP_FAULT_NONE);
	expect(&r, got(&r, 1, 1, ME, 0, 6), APP_FAULT_NONE);
	expect(&r, got(&r, 1, 1, ME, 1, 7), APP_FAULT_INVENTED);
	app_verify_fini(&r.h);
}

static void
wrong_shapes_are_caught(void **state)
{
	struct app_answer a;
	struct rig r;

	rig_init(&r, 16, false);
	a = got(&r, 1, 1, 0, 1, 5);
	a.hdr.value_len = 8;
	expect(&r, a, APP_FAULT_LENGTH);
	a = got(&r, 1, 1, 0, 1, 5);
	a.hdr.op = CRPC_KV_PUT;
	expect(&r, a, APP_FAULT_MALFORMED);
	expect(&r, answered(&r, 1, CRPC_KV_GET, CRPC_KV_NOT_FOUND, 5), APP_FAULT_MISSING);
	expect(&r, answered(&r, 1, CRPC_KV_PUT, CRPC_KV_NOT_FOUND, 5), APP_FAULT_STATUS);
	expect(&r, answered(&r, 1, CRPC_KV_GET, CRPC_KV_BAD_REQUEST, 5), APP_FAULT_STATUS);
	expect(&r, answered(&r, 1, CRPC_KV_PUT, CRPC_KV_NO_SPACE, 5), APP_FAULT_STATUS);
	a = answered(&r, 1, CRPC_KV_PUT, CRPC_KV_OK, 5);
	a.hdr.value_len = 16;
	expect(&r, a, APP_FAULT_LENGTH);
	app_verify_fini(&r.h);
}

/* What the short check lets pass passes the long one, and both remember the same. */
static void
the_short_check_is_the_long_one(void **state)
{
	uint64_t rng = rnd_seed();
	uint32_t i, passed = 0;
	struct app_answer a;
	struct rig r, other;

	rig_init(&r, 8, false);
	rig_init(&other, 8, false);
	for (i = 0; i < 100000; i++) {
		r.h.seq = other.h.seq = i / 1000;
		a = got(&r, (uint32_t)rnd_below(&rng, KEYS), (uint32_t)rnd_below(&rng, KEYS),
			(uint32_t)rnd_below(&rng, WRITERS + 1),
			r.h.seq + (uint32_t)rnd_below(&rng, 3) - 1,
			i / 100 + rnd_below(&rng, 9));
		a.word = app_word(a.key, ME, r.h.seq);
		if (rnd_below(&rng, 4) != 0)
			app_value_fill(r.value, 8, app_word(a.key, rnd(&rng) % WRITERS, i / 1000));
		if (rnd_below(&rng, 2) != 0)
			a.op = a.hdr.op = CRPC_KV_PUT;
		a.hdr.value_len = a.op == CRPC_KV_GET || rnd_below(&rng, 9) == 0 ? 8 : 0;
		if (app_verify_word(&r.h, a.key, a.op, a.floor, &a.word, a.hdr, a.value)) {
			assert_int_equal(app_verify_check(&other.h, &a), APP_FAULT_NONE);
			passed++;
		} else {
			assert_int_equal(
				app_verify_check(&r.h, &a), app_verify_check(&other.h, &a));
		}
		assert_memory_equal(r.h.seen, other.h.seen, KEYS * sizeof(*r.h.seen));
	}
	assert_in_range(passed, 10000, 90000);
	app_verify_fini(&r.h);
	app_verify_fini(&other.h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_history_passes),
		cmocka_unit_test(a_full_store_may_refuse_a_put),
		cmocka_unit_test(reordered_completions_pass),
		cmocka_unit_test(torn_value_is_caught_at_every_byte),
		cmocka_unit_test(foreign_value_is_caught),
		cmocka_unit_test(stale_answers_are_caught),
		cmocka_unit_test(forked_versions_are_caught),
		cmocka_unit_test(invented_and_unknown_writers_are_caught),
		cmocka_unit_test(sequence_wraps),
		cmocka_unit_test(wrong_shapes_are_caught),
		cmocka_unit_test(the_short_check_is_the_long_one),
	};

	return cmocka_run_group_tests_name("benchkv_verify", tests, NULL, NULL);
}
