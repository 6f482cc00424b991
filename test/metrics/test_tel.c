/* SPDX-License-Identifier: BSD-3-Clause */
/* The mailbox by which telemetry asks an owner, without telemetry. */
#include "test.h"
#include "crpc_tel.h"
#include "crpc_util.h"

#define QUESTIONS 200

struct box {
	struct crpc_tel_box box;
	uint64_t told[2];
};

struct owner {
	struct box *box;
	uint64_t count[2];
	_Atomic uint32_t attention;
	_Atomic bool stop;
};

static struct crpc_tel kind = CRPC_TEL_INIT;

/* Counts all the time, and answers what it is asked. */
static void *
owner_run(void *arg)
{
	struct owner *o = arg;
	struct box *b = o->box;

	while (!crpc_load_acquire(&o->stop)) {
		o->count[0]++;
		if (crpc_exchange_acq_rel(&o->attention, 0) != 0 && crpc_tel_asked(&b->box) &&
			crpc_tel_begin(&b->box)) {
			b->told[0] = o->count[0] + b->box.want;
			b->told[1] = o->count[1] + b->box.want;
			crpc_tel_end(&b->box);
		}
		o->count[1]++;
	}
	return NULL;
}

/* Proves that an answer is of one moment, of this question, and newer than the last one. */
TEST(an_answer_is_whole)
{
	static struct owner o;
	uint64_t last = 0;
	pthread_t thread;

	o.box = (struct box *)crpc_tel_create(&kind, &o.attention, sizeof(*o.box));
	assert_non_null(o.box);
	assert_int_equal(pthread_create(&thread, NULL, owner_run, &o), 0);
	for (uint32_t i = 0; i < QUESTIONS; i++) {
		const struct box *b = (struct box *)crpc_tel_ask(&kind, o.box->box.id, i);

		if (b == NULL) /* A loaded machine: the owner had no turn. */
			continue;
		assert_int_equal(b->told[0], b->told[1] + 1);
		assert_true(b->told[0] - i > last);
		last = b->told[0] - i;
		crpc_tel_done(&kind);
	}
	assert_true(last > 0);
	crpc_store_release(&o.stop, true); /* pairs with the owner's acquire */
	pthread_join(thread, NULL);
	crpc_tel_free(&o.box->box);
}

/* Proves that a question to an owner that stands still ends, and leaves nothing behind. */
TEST(a_question_is_given_up)
{
	struct crpc_tel_box *a = crpc_tel_create(&kind, NULL, sizeof(*a));
	struct crpc_tel_box *b = crpc_tel_create(&kind, NULL, sizeof(*b));
	uint32_t freed;

	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(b->id, a->id + 1);
	assert_null(crpc_tel_ask(&kind, b->id, 0));
	assert_false(crpc_tel_asked(b));
	assert_false(crpc_tel_begin(b));
	freed = a->id;
	crpc_tel_free(a);
	assert_null(crpc_tel_ask(&kind, freed, 0));
	crpc_tel_free(b);
	assert_null(kind.boxes);
}

/* Proves what is a number, and where the next one begins. */
TEST(numbers_are_taken)
{
	static const struct {
		const char *text;
		int base;
		bool good;
		uint32_t value;
		const char *rest;
	} cases[] = {
		{"7", 10, true, 7, NULL},
		{"7,8", 10, true, 7, "8"},
		{"7,", 10, true, 7, ""},
		{"0x1f", 0, true, 31, NULL},
		{"4294967295", 10, true, UINT32_MAX, NULL},
		{"4294967296", 10, false, 0, NULL},
		{"99999999999999999999", 10, false, 0, NULL},
		{"0x1f", 10, false, 0, NULL},
		{"", 10, false, 0, NULL},
		{"-1", 10, false, 0, NULL},
		{" 1", 10, false, 0, NULL},
		{"1 ", 10, false, 0, NULL},
		{NULL, 10, false, 0, NULL},
	};
	uint32_t value;

	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		const char *at = cases[i].text;

		assert_int_equal(crpc_tel_number(&at, cases[i].base, &value), cases[i].good);
		if (!cases[i].good) {
			assert_ptr_equal(at, cases[i].text);
			continue;
		}
		assert_int_equal(value, cases[i].value);
		if (cases[i].rest == NULL)
			assert_null(at);
		else
			assert_string_equal(at, cases[i].rest);
	}
}

TEST_MAIN(NULL, NULL)
