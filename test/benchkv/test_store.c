/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store: against a plain array as its model, over random bursts of gets, puts and deletes, at
 * all key and value sizes; versions only grow; a burst that deletes or inserts a key still serves
 * its later requests right; bad requests are refused and change nothing; the last free place can be
 * filled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <rte_eal.h>
#include <rte_lcore.h>

#include "app_keys.h"
#include "store.h"
#include "verify.h"

#define KEYS 200

struct model {
	uint64_t version[KEYS]; /* 0: absent. */
	uint64_t word[KEYS];
	uint64_t newest;
};

struct rig {
	struct kv_store *store;
	uint32_t key_size, value_size;
	struct model model;
	uint64_t rng;
	struct kv_batch batch;
	uint8_t msg[KV_BATCH_MAX][KV_REQ_MAX];
	uint32_t id[KV_BATCH_MAX];
	uint64_t word[KV_BATCH_MAX];
};

static struct rig *
rig_new(uint32_t key_size, uint32_t value_size, uint32_t capacity)
{
	struct kv_store_conf conf = {
		.name = "test",
		.capacity = capacity,
		.key_size = key_size,
		.value_max = value_size,
		.socket = SOCKET_ID_ANY,
	};
	struct rig *r = aligned_alloc(64, crpc_align_up(sizeof(*r), 64));

	assert_non_null(r);
	memset(r, 0, sizeof(*r));
	r->store = kv_store_create(&conf);
	assert_non_null(r->store);
	r->key_size = key_size;
	r->value_size = value_size;
	r->rng = key_size * 4099 + value_size;
	return r;
}

static void
rig_free(struct rig *r)
{
	kv_store_free(r->store);
	free(r);
}

static void
add(struct rig *r, enum kv_op op, uint32_t id)
{
	uint32_t i = r->batch.n, len = op == KV_PUT ? r->value_size : 0;
	uint8_t *key = r->msg[i] + sizeof(struct kv_req_hdr);
	struct kv_req req;

	len = kv_req_write(r->msg[i], op, r->key_size, len);
	kv_key_write(key, r->key_size, id);
	r->id[i] = id;
	r->word[i] = kv_word(id, 1, (uint32_t)app_rng(&r->rng));
	if (op == KV_PUT)
		kv_value_fill(key + r->key_size, r->value_size, r->word[i]);
	assert_int_equal(kv_req_read(r->msg[i], len, &req), 0);
	assert_int_equal(kv_batch_add(&r->batch, &req, kv_hash(key, r->key_size)), i);
}

/* One request against the model. */
static void
compare(struct rig *r, uint32_t i, const struct kv_served *s)
{
	struct model *m = &r->model;
	uint32_t id = r->id[i];
	uint64_t word;

	assert_int_equal(s->op, r->batch.req[i].op);
	if (s->op == KV_PUT) {
		assert_int_equal(s->status, KV_OK);
		assert_int_equal(s->version, ++m->newest);
		m->version[id] = s->version;
		m->word[id] = r->word[i];
		return;
	}
	assert_int_equal(s->status, m->version[id] == 0 ? KV_NOT_FOUND : KV_OK);
	if (s->op == KV_DELETE && s->status == KV_OK)
		m->newest++;
	if (s->status == KV_NOT_FOUND || s->op == KV_DELETE) {
		assert_int_equal(s->version, m->newest);
		assert_int_equal(s->value_len, 0);
		m->version[id] = 0;
		return;
	}
	assert_int_equal(s->version, m->version[id]);
	assert_int_equal(s->value_len, r->value_size);
	assert_true(kv_value_whole(s->value, s->value_len, &word));
	assert_int_equal(word, m->word[id]);
}

static void
serve(struct rig *r)
{
	struct kv_served served;
	uint32_t i;

	kv_store_lookup(r->store, &r->batch);
	for (i = 0; i < r->batch.n; i++) {
		kv_store_exec(r->store, &r->batch, i, &served);
		compare(r, i, &served);
	}
	kv_batch_reset(&r->batch);
}

static void
random_bursts_match_a_model(void **state)
{
	static const uint32_t sizes[][2] = {
		{8, 8}, {8, 4096}, {9, 9}, {16, 8}, {33, 100}, {64, 4096}};
	uint32_t n, present, i;
	struct rig *r;
	size_t s;
	int round;

	for (s = 0; s < CRPC_DIM(sizes); s++) {
		r = rig_new(sizes[s][0], sizes[s][1], KEYS);
		for (round = 0; round < 3000; round++) {
			for (n = 1 + (uint32_t)(app_rng(&r->rng) % KV_BATCH_MAX); n > 0; n--)
				add(r, KV_GET + (uint32_t)(app_rng(&r->rng) % 3),
					(uint32_t)(app_rng(&r->rng) % (round < 1500 ? KEYS : 8)));
			serve(r);
		}
		for (present = 0, i = 0; i < KEYS; i++)
			present += r->model.version[i] != 0;
		assert_int_equal(kv_store_count(r->store), present);
		rig_free(r);
	}
}

/*
 * Within one burst: delete A, put B (which may take A's place), get A, get B. The place found by
 * the lookup for A belongs to B by then.
 */
static void
a_burst_that_moves_keys_serves_on(void **state)
{
	struct rig *r = rig_new(8, 8, KEYS);
	uint32_t i;

	for (i = 0; i < KEYS; i += 2) {
		add(r, KV_PUT, i);
		serve(r);
		add(r, KV_GET, i);
		add(r, KV_DELETE, i);
		add(r, KV_PUT, i + 1);
		add(r, KV_GET, i);
		add(r, KV_GET, i + 1);
		add(r, KV_PUT, i);
		add(r, KV_GET, i);
		add(r, KV_DELETE, i + 1);
		add(r, KV_GET, i + 1);
		serve(r);
	}
	rig_free(r);
}

static void
every_key_of_the_capacity_fits(void **state)
{
	static const uint32_t capacities[] = {1, 7, 8, 1024, 1040, 2048, 5000};
	uint8_t key[8], value[8] = {0};
	struct rig *r;
	uint32_t i;
	size_t c;

	for (c = 0; c < CRPC_DIM(capacities); c++) {
		r = rig_new(8, 8, capacities[c]);
		for (i = 0; i < capacities[c]; i++) {
			kv_key_write(key, 8, i);
			assert_int_equal(kv_store_load(r->store, key, value, 8), 0);
		}
		assert_int_equal(kv_store_count(r->store), capacities[c]);
		rig_free(r);
	}
}

static void
a_full_store_refuses_and_keeps_what_it_has(void **state)
{
	struct rig *r = rig_new(8, 8, 64);
	uint8_t key[8], value[8] = {0};
	struct kv_served served;
	uint32_t i, n = 0;

	do {
		kv_key_write(key, 8, n);
	} while (kv_store_load(r->store, key, value, 8) == 0 && ++n < 10000);
	assert_true(n >= 64 && n < 10000);
	add(r, KV_PUT, n);
	kv_store_lookup(r->store, &r->batch);
	kv_store_exec(r->store, &r->batch, 0, &served);
	assert_int_equal(served.status, KV_NO_SPACE);
	kv_batch_reset(&r->batch);
	for (i = 0; i < n; i++) {
		add(r, KV_GET, i);
		kv_store_lookup(r->store, &r->batch);
		kv_store_exec(r->store, &r->batch, 0, &served);
		assert_int_equal(served.status, KV_OK);
		assert_int_equal(served.version, i + 1);
		kv_batch_reset(&r->batch);
	}
	rig_free(r);
}

/* A value of another size, a get with a value, an unknown operation. */
static void
bad_requests_change_nothing(void **state)
{
	struct rig *r = rig_new(8, 64, KEYS);
	struct kv_served served;
	uint32_t i;

	add(r, KV_PUT, 1);
	serve(r);
	add(r, KV_PUT, 1);
	r->batch.req[0].value_len = 65;
	add(r, KV_PUT, 1);
	r->batch.req[1].value_len = 7;
	add(r, KV_GET, 1);
	r->batch.req[2].value_len = 8;
	add(r, KV_DELETE, 1);
	r->batch.req[3].value_len = 8;
	add(r, KV_GET, 1);
	r->batch.req[4].op = 77;
	kv_store_lookup(r->store, &r->batch);
	for (i = 0; i < 5; i++) {
		kv_store_exec(r->store, &r->batch, i, &served);
		assert_int_equal(served.status, KV_BAD_REQUEST);
	}
	assert_int_equal(kv_store_stats(r->store)->refused, 5);
	kv_batch_reset(&r->batch);
	add(r, KV_GET, 1);
	serve(r);
	rig_free(r);
}

static void
sizes_out_of_range_are_refused(void **state)
{
	struct kv_store_conf conf = {.name = "bad", .capacity = 1, .key_size = 7, .value_max = 8};

	assert_null(kv_store_create(&conf));
	assert_int_equal(errno, EINVAL);
	conf.key_size = 8;
	conf.value_max = KV_VALUE_MAX + 1;
	assert_null(kv_store_create(&conf));
	assert_int_equal(errno, EINVAL);
	conf.value_max = KV_VALUE_MAX;
	conf.capacity = 1u << 20;
	assert_null(kv_store_create(&conf));
	assert_int_equal(errno, ENOMEM);
	kv_store_free(NULL);
}

int
main(void)
{
	char *argv[] = {(char[]){"test_store"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_store"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_bursts_match_a_model),
		cmocka_unit_test(a_burst_that_moves_keys_serves_on),
		cmocka_unit_test(every_key_of_the_capacity_fits),
		cmocka_unit_test(a_full_store_refuses_and_keeps_what_it_has),
		cmocka_unit_test(bad_requests_change_nothing),
		cmocka_unit_test(sizes_out_of_range_are_refused),
	};
	int rc;

	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	rc = cmocka_run_group_tests_name("benchkv_store", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
