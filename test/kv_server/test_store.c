/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store: against a plain array as its model, over random bursts of gets, puts and deletes, at
 * all key and value sizes; versions only grow; a burst that deletes or inserts a key still serves
 * its later requests right; bad requests are refused and change nothing; the last free place can be
 * filled.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>

#include "app_keys.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "kv_test.h"
#include "kv_store_quick.h"
#include "app_verify.h"

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
	uint8_t msg[KV_BATCH_MAX][CRPC_KV_REQ_MAX];
	uint32_t id[KV_BATCH_MAX];
	uint64_t word[KV_BATCH_MAX];
	uint32_t seq;
};

static struct rig *
rig_new(uint32_t key_size, uint32_t value_size, uint32_t capacity)
{
	static uint32_t number;
	char name[16];
	struct crpc_kv_server_conf conf = {
		.capacity = capacity, .key_size = key_size, .value_max = value_size};
	struct rig *r = aligned_alloc(64, crpc_align_up(sizeof(*r), 64));

	assert_non_null(r);
	snprintf(name, sizeof(name), "test.%u", number++);
	memset(r, 0, sizeof(*r));
	r->store = __crpc_kv_store_create(&conf, name, SOCKET_ID_ANY, NULL);
	assert_non_null(r->store);
	r->key_size = key_size;
	r->value_size = value_size;
	r->rng = key_size * 4099 + value_size;
	return r;
}

static void
rig_free(struct rig *r)
{
	__crpc_kv_store_free(r->store);
	free(r);
}

static void
add(struct rig *r, enum kv_op op, uint32_t id)
{
	uint32_t i = r->batch.n, len = op == CRPC_KV_PUT ? r->value_size : 0;
	uint8_t *key = r->msg[i] + sizeof(struct kv_req_hdr);
	uint32_t size = r->key_size;
	struct kv_req req;

	len = kv_req_write(r->msg[i], op, size, len);
	kv_key_write(key, size, id);
	r->id[i] = id;
	r->word[i] = app_word(id, 1, (uint32_t)crpc_random(&r->rng));
	if (op == CRPC_KV_PUT)
		app_value_fill(key + size, r->value_size, r->word[i]);
	assert_int_equal(kv_req_read(r->msg[i], len, &req), 0);
	assert_int_equal(kv_batch_add(&r->batch, &req, kv_batch_key(&r->batch, &req)), i);
}

/* One request against the model. */
static void
compare(struct rig *r, uint32_t i, const struct kv_served *s)
{
	struct model *m = &r->model;
	uint32_t id = r->id[i];
	uint64_t word;

	assert_int_equal(s->op, r->batch.req[i].op);
	if (s->op == CRPC_KV_PUT) {
		assert_int_equal(s->status, CRPC_KV_OK);
		assert_int_equal(s->version, ++m->newest);
		m->version[id] = s->version;
		m->word[id] = r->word[i];
		return;
	}
	assert_int_equal(s->status, m->version[id] == 0 ? CRPC_KV_NOT_FOUND : CRPC_KV_OK);
	if (s->op == CRPC_KV_DELETE && s->status == CRPC_KV_OK)
		m->newest++;
	if (s->status == CRPC_KV_NOT_FOUND || s->op == CRPC_KV_DELETE) {
		assert_int_equal(s->version, m->newest);
		assert_int_equal(s->value_len, 0);
		m->version[id] = 0;
		return;
	}
	assert_int_equal(s->version, m->version[id]);
	assert_int_equal(s->value_len, r->value_size);
	assert_true(app_value_whole(s->value, s->value_len, &word));
	assert_int_equal(word, m->word[id]);
}

static void
serve(struct rig *r)
{
	struct kv_served served;
	uint32_t i;

	__crpc_kv_store_lookup(r->store, &r->batch);
	for (i = 0; i < r->batch.n; i++) {
		__crpc_kv_store_exec(r->store, &r->batch, i, &served);
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
			for (n = 1 + (uint32_t)(crpc_random(&r->rng) % KV_BATCH_MAX); n > 0; n--)
				add(r, CRPC_KV_GET + (uint32_t)(crpc_random(&r->rng) % 3),
					(uint32_t)(crpc_random(&r->rng) %
						(round < 1500 ? KEYS : 8)));
			serve(r);
		}
		for (present = 0, i = 0; i < KEYS; i++)
			present += r->model.version[i] != 0;
		assert_int_equal(__crpc_kv_store_count(r->store), present);
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
		add(r, CRPC_KV_PUT, i);
		serve(r);
		add(r, CRPC_KV_GET, i);
		add(r, CRPC_KV_DELETE, i);
		add(r, CRPC_KV_PUT, i + 1);
		add(r, CRPC_KV_GET, i);
		add(r, CRPC_KV_GET, i + 1);
		add(r, CRPC_KV_PUT, i);
		add(r, CRPC_KV_GET, i);
		add(r, CRPC_KV_DELETE, i + 1);
		add(r, CRPC_KV_GET, i + 1);
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
			assert_int_equal(
				__crpc_kv_store_load(r->store, key, value, 8), 0);
		}
		assert_int_equal(__crpc_kv_store_count(r->store), capacities[c]);
		rig_free(r);
	}
}

/* The key of 8 bytes number @p i whose kv_hash() is 0: the hash is undone step by step. */
static uint64_t
key_of_hash_0(uint32_t i)
{
	uint64_t h = (uint64_t)i * UINT64_C(0xb3c2edf96a8bf34b); /* any low half will do */
	const uint64_t mul[] = {UINT64_C(0xc4ceb9fe1a85ec53), UINT64_C(0xff51afd7ed558ccd)};
	uint64_t inv;
	int k, n;

	h >>= 32;
	for (k = 0; k < 2; k++) {
		for (inv = mul[k], n = 0; n < 5; n++) /* Newton, mod 2^64 */
			inv *= 2 - mul[k] * inv;
		h *= inv;
		if (k == 0)
			h ^= h >> 33;
	}
	return h ^ 8;
}

/* The shortest of some runs of 64 gets of the key, ns. */
static uint64_t
gets_ns(struct rig *r, uint64_t key)
{
	uint64_t best = UINT64_MAX, start;
	struct kv_served served;
	struct kv_req req;
	uint32_t i, len, run;

	len = kv_req_write(r->msg[0], CRPC_KV_GET, 8, 0);
	memcpy(r->msg[0] + sizeof(struct kv_req_hdr), &key, 8);
	assert_int_equal(kv_req_read(r->msg[0], len, &req), 0);
	for (run = 0; run < 20; run++) {
		start = crpc_clock_ns();
		for (i = 0; i < KV_BATCH_MAX; i++)
			kv_batch_add(&r->batch, &req, kv_batch_key(&r->batch, &req));
		__crpc_kv_store_lookup(r->store, &r->batch);
		for (i = 0; i < KV_BATCH_MAX; i++)
			__crpc_kv_store_exec(r->store, &r->batch, i, &served);
		kv_batch_reset(&r->batch);
		best = crpc_min(best, crpc_clock_ns() - start);
	}
	return best;
}

/*
 * One client puts many keys that have the same kv_hash(): gets that have to pass them cost what
 * they cost before, with a table in front of the hash (small stores) and without.
 */
static void
keys_of_one_hash_slow_no_get_down(void **state)
{
	static const uint32_t capacities[] = {10000, 40000};
	uint64_t before, after, key;
	uint8_t value[8] = {0};
	struct rig *r;
	uint32_t i;
	size_t c;

	crpc_clock_init();
	for (c = 0; c < CRPC_DIM(capacities); c++) {
		r = rig_new(8, 8, capacities[c]);
		before = gets_ns(r, key_of_hash_0(0));
		for (i = 1; i <= 4000; i++) {
			key = key_of_hash_0(i);
			assert_int_equal(kv_hash8(key), 0);
			assert_int_equal(__crpc_kv_store_load(r->store, &key, value, 8), 0);
		}
		after = gets_ns(r, key_of_hash_0(0));
		print_message("capacity %u: %llu ns before, %llu ns after\n", capacities[c],
			(unsigned long long)before, (unsigned long long)after);
		assert_true(after < 10 * before);
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
	} while (__crpc_kv_store_load(r->store, key, value, 8) == 0 && ++n < 10000);
	assert_true(n >= 64 && n < 10000);
	add(r, CRPC_KV_PUT, n);
	__crpc_kv_store_lookup(r->store, &r->batch);
	__crpc_kv_store_exec(r->store, &r->batch, 0, &served);
	assert_int_equal(served.status, CRPC_KV_NO_SPACE);
	kv_batch_reset(&r->batch);
	for (i = 0; i < n; i++) {
		add(r, CRPC_KV_GET, i);
		__crpc_kv_store_lookup(r->store, &r->batch);
		__crpc_kv_store_exec(r->store, &r->batch, 0, &served);
		assert_int_equal(served.status, CRPC_KV_OK);
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

	add(r, CRPC_KV_PUT, 1);
	serve(r);
	add(r, CRPC_KV_PUT, 1);
	r->batch.req[0].value_len = 65;
	add(r, CRPC_KV_PUT, 1);
	r->batch.req[1].value_len = 7;
	add(r, CRPC_KV_GET, 1);
	r->batch.req[2].value_len = 8;
	add(r, CRPC_KV_DELETE, 1);
	r->batch.req[3].value_len = 8;
	add(r, CRPC_KV_GET, 1);
	r->batch.req[4].op = 77;
	__crpc_kv_store_lookup(r->store, &r->batch);
	for (i = 0; i < 5; i++) {
		__crpc_kv_store_exec(r->store, &r->batch, i, &served);
		assert_int_equal(served.status, CRPC_KV_BAD_REQUEST);
	}
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_REFUSED], 5);
	kv_batch_reset(&r->batch);
	add(r, CRPC_KV_GET, 1);
	serve(r);
	rig_free(r);
}

/* One request with extras, alone. */
static struct kv_served
one(struct rig *r, enum kv_op op, uint32_t id, uint32_t flags, uint64_t expect, uint64_t ttl_ms)
{
	uint32_t value = op == CRPC_KV_PUT ? r->value_size : 0, len;
	struct kv_served served;
	struct kv_req req;

	len = kv_req_write_with(r->msg[0], op, r->key_size, value, flags, expect, ttl_ms);
	kv_key_write(r->msg[0] + sizeof(struct kv_req_hdr), r->key_size, id);
	app_value_fill(r->msg[0] + len - value, r->value_size, app_word(id, 1, ++r->seq));
	assert_int_equal(kv_req_read(r->msg[0], len, &req), 0);
	kv_batch_reset(&r->batch);
	kv_batch_add(&r->batch, &req, kv_batch_key(&r->batch, &req));
	__crpc_kv_store_lookup(r->store, &r->batch);
	__crpc_kv_store_exec(r->store, &r->batch, 0, &served);
	kv_batch_reset(&r->batch);
	return served;
}

static void
puts_and_deletes_depend_on_the_version(void **state)
{
	struct rig *r = rig_new(8, 64, KEYS);
	struct kv_served s;
	uint64_t version, word;

	/* 0: only if it is not there */
	s = one(r, CRPC_KV_PUT, 1, CRPC_KV_EXPECT, 5, 0);
	assert_int_equal(s.status, CRPC_KV_NOT_FOUND);
	s = one(r, CRPC_KV_PUT, 1, CRPC_KV_EXPECT, 0, 0);
	assert_int_equal(s.status, CRPC_KV_OK);
	version = s.version;
	s = one(r, CRPC_KV_PUT, 1, CRPC_KV_EXPECT, 0, 0);
	assert_int_equal(s.status, CRPC_KV_MISMATCH);
	assert_int_equal(s.version, version);
	assert_int_equal(s.value_len, 64);
	assert_true(app_value_whole(s.value, 64, &word));
	assert_int_equal(app_word_seq(word), 2);
	/* the version that it has */
	s = one(r, CRPC_KV_PUT, 1, CRPC_KV_EXPECT, version, 0);
	assert_int_equal(s.status, CRPC_KV_OK);
	assert_true(s.version > version);
	s = one(r, CRPC_KV_DELETE, 1, CRPC_KV_EXPECT, version, 0);
	assert_int_equal(s.status, CRPC_KV_MISMATCH);
	s = one(r, CRPC_KV_DELETE, 1, CRPC_KV_EXPECT, s.version, 0);
	assert_int_equal(s.status, CRPC_KV_OK);
	assert_int_equal(one(r, CRPC_KV_GET, 1, 0, 0, 0).status, CRPC_KV_NOT_FOUND);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_MISMATCHES], 3);
	rig_free(r);
}

#define MS UINT64_C(1000000)

static void
values_end_when_their_time_has_come(void **state)
{
	struct rig *r = rig_new(8, 8, KEYS);
	uint64_t now = 77 * MS, version;
	uint32_t i;

	__crpc_kv_store_tick(r->store, now);
	version = one(r, CRPC_KV_PUT, 1, CRPC_KV_TTL, 0, 10).version;
	one(r, CRPC_KV_PUT, 2, CRPC_KV_TTL, 0, 10);
	one(r, CRPC_KV_PUT, 2, 0, 0, 0); /* for good now */
	one(r, CRPC_KV_PUT, 3, 0, 0, 0);
	one(r, CRPC_KV_PUT, 3, CRPC_KV_TTL, 0, 20); /* no more */
	__crpc_kv_store_tick(r->store, now += 9 * MS);
	assert_int_equal(one(r, CRPC_KV_GET, 1, 0, 0, 0).status, CRPC_KV_OK);
	/* at its end it is gone, for each operation, before anything took it out */
	__crpc_kv_store_tick(r->store, now += MS);
	assert_int_equal(one(r, CRPC_KV_GET, 1, 0, 0, 0).status, CRPC_KV_NOT_FOUND);
	assert_true(one(r, CRPC_KV_GET, 1, 0, 0, 0).version > version);
	assert_int_equal(one(r, CRPC_KV_GET, 2, 0, 0, 0).status, CRPC_KV_OK);
	assert_int_equal(
		one(r, CRPC_KV_PUT, 1, CRPC_KV_EXPECT, version, 0).status, CRPC_KV_NOT_FOUND);
	__crpc_kv_store_tick(r->store, now += 10 * MS);
	assert_int_equal(one(r, CRPC_KV_DELETE, 3, 0, 0, 0).status, CRPC_KV_NOT_FOUND);
	/* what nobody asks for is taken out too */
	for (i = 10; i < 110; i++)
		one(r, CRPC_KV_PUT, i, CRPC_KV_TTL, 0, 1 + i % 7);
	assert_int_equal(__crpc_kv_store_count(r->store), 101);
	for (i = 0; i < 20; i++)
		__crpc_kv_store_tick(r->store, now += MS);
	assert_int_equal(__crpc_kv_store_count(r->store), 1);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_EXPIRED], 102);
	rig_free(r);
}

/*
 * A full store whose keys' lives have ended takes new ones without a tick, however many it has; no
 * put looks further than it may, so a few are refused where no key has ended. Keys that live stay.
 */
static void
ended_keys_make_room(void **state)
{
	uint32_t i, n = 2000, fresh = n, refused;
	struct rig *r = rig_new(16, 8, n);

	__crpc_kv_store_tick(r->store, MS);
	for (i = 0; i < n; i++)
		assert_int_equal(
			one(r, CRPC_KV_PUT, i, i % 4 != 0 ? CRPC_KV_TTL : 0, 0, 10).status,
			CRPC_KV_OK);
	assert_int_equal(one(r, CRPC_KV_PUT, fresh, 0, 0, 0).status, CRPC_KV_NO_SPACE);
	__crpc_kv_store_tick(r->store, 12 * MS);
	for (refused = 0; refused < 10;) {
		if (one(r, CRPC_KV_PUT, fresh, 0, 0, 0).status == CRPC_KV_OK)
			fresh++;
		else
			refused++;
		/* The first ones to find only spare places are the last of the first
		 * round. */
		assert_true(refused == 0 || fresh > n + n / 2);
	}
	assert_int_equal(fresh, n + n / 4 * 3);
	assert_int_equal(__crpc_kv_store_count(r->store), n);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_EXPIRED], n / 4 * 3);
	for (i = 0; i < fresh; i++)
		assert_int_equal(one(r, CRPC_KV_GET, i, 0, 0, 0).status,
			i < n && i % 4 != 0 ? CRPC_KV_NOT_FOUND : CRPC_KV_OK);
	rig_free(r);
}

static void
capacity_is_a_limit(void **state)
{
	struct rig *r = rig_new(8, 8, 50);
	uint32_t i;

	for (i = 0; i < 50; i++)
		assert_int_equal(one(r, CRPC_KV_PUT, i, 0, 0, 0).status, CRPC_KV_OK);
	assert_int_equal(one(r, CRPC_KV_PUT, 50, 0, 0, 0).status, CRPC_KV_NO_SPACE);
	assert_int_equal(one(r, CRPC_KV_PUT, 7, 0, 0, 0).status, CRPC_KV_OK);
	assert_int_equal(one(r, CRPC_KV_DELETE, 7, 0, 0, 0).status, CRPC_KV_OK);
	assert_int_equal(one(r, CRPC_KV_PUT, 50, 0, 0, 0).status, CRPC_KV_OK);
	rig_free(r);
}

/* Syncs of a folder; what they give. */
static uint32_t folder_syncs;
static int folder_errno;

/* In place of libc's. */
int
fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	if (S_ISDIR(st.st_mode)) {
		folder_syncs++;
		errno = folder_errno;
		return folder_errno != 0 ? -1 : 0;
	}
	return fdatasync(fd);
}

static int64_t
save(struct kv_snapshot *snap, struct kv_store *s)
{
	int64_t rc;

	assert_int_equal(__crpc_kv_snapshot_claim(snap), 0);
	rc = snapshot_write(snap, s);
	__crpc_kv_snapshot_release(snap);
	return rc;
}

/* The new name is in the folder, which is synced after; a failure of that is told. */
static void
a_snapshot_outlasts_a_power_failure(void **state)
{
	char folder[] = "/tmp/test_store.XXXXXX", path[64], file[72];
	struct kv_snapshot snap = {.path = path, .owner = 1, .owners = 2, .key_size = 8};
	struct rig *r = rig_new(8, 8, KEYS);

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/snap", folder);
	snprintf(file, sizeof(file), "%s.1", path);
	one(r, CRPC_KV_PUT, 1, 0, 0, 0);
	folder_syncs = 0;
	assert_int_equal(save(&snap, r->store), 1);
	assert_int_equal(folder_syncs, 1);
	folder_errno = EINVAL; /* A file system that has nothing to sync. */
	assert_int_equal(save(&snap, r->store), 1);
	folder_errno = EIO;
	assert_int_equal(save(&snap, r->store), -EIO);
	folder_errno = 0;
	assert_int_equal(folder_syncs, 3);
	assert_int_equal(access(file, R_OK), 0);
	unlink(file);
	rmdir(folder);
	rig_free(r);
}

/*
 * Of two runs with one path the second is refused, and what the first writes is whole; what a run
 * left that is gone is taken over.
 */
static void
one_run_at_a_time_has_a_snapshots_path(void **state)
{
	char folder[] = "/tmp/test_store.XXXXXX", path[64], file[72], fresh[80];
	struct kv_snapshot a = {.path = path, .owners = 1, .key_size = 8}, b = a;
	struct rig *r = rig_new(8, 8, KEYS), *empty = rig_new(8, 8, KEYS);
	FILE *left;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/snap", folder);
	snprintf(file, sizeof(file), "%s.0", path);
	snprintf(fresh, sizeof(fresh), "%s.new", file);
	one(r, CRPC_KV_PUT, 1, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&a), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&b), -EBUSY);
	__crpc_kv_snapshot_release(&b);
	assert_int_equal(__crpc_kv_snapshot_read(&a, empty->store), -ENOENT);
	assert_int_equal(snapshot_write(&a, r->store), 1);
	/* It is written and has its name: the path is its run's until that ends. */
	assert_int_equal(__crpc_kv_snapshot_claim(&b), -EBUSY);
	assert_int_equal(access(fresh, F_OK), -1);
	__crpc_kv_snapshot_release(&a);
	assert_int_equal(__crpc_kv_snapshot_claim(&b), 0);
	assert_int_equal(access(fresh, F_OK), 0);
	__crpc_kv_snapshot_release(&b);
	assert_int_equal(access(fresh, F_OK), -1);
	/* A run that continues claims it again for the next one. */
	assert_int_equal(__crpc_kv_snapshot_claim(&a), 0);
	one(r, CRPC_KV_PUT, 2, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_copy(&a, r->store, UINT32_MAX), 2);
	assert_int_equal(__crpc_kv_snapshot_claim(&a), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&b), -EBUSY);
	assert_int_equal(__crpc_kv_snapshot_commit(&a), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&a), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&b), -EBUSY);
	__crpc_kv_snapshot_release(&a);

	left = fopen(fresh, "wb");
	assert_int_equal(fwrite("left", 1, 4, left), 4);
	fclose(left);
	assert_int_equal(__crpc_kv_snapshot_read(&a, empty->store), 2);
	assert_int_equal(access(fresh, F_OK), -1);
	unlink(file);
	rmdir(folder);
	rig_free(r);
	rig_free(empty);
}

/*
 * Another user of a common folder: a link in the snapshot's place leads to no other file, and what
 * is written can be read, and locked, by its owner alone.
 */
static void
a_snapshot_is_its_owners_alone(void **state)
{
	char folder[] = "/tmp/test_store.XXXXXX", path[64], file[72], fresh[80], mine[72];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct rig *r = rig_new(8, 8, KEYS);
	mode_t mask = umask(0);
	struct stat st;
	FILE *f;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/snap", folder);
	snprintf(file, sizeof(file), "%s.0", path);
	snprintf(fresh, sizeof(fresh), "%s.new", file);
	snprintf(mine, sizeof(mine), "%s/mine", folder);
	f = fopen(mine, "wb");
	assert_int_equal(fwrite("mine", 1, 4, f), 4);
	fclose(f);
	assert_int_equal(symlink(mine, fresh), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), -ELOOP);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, r->store), -ENOENT);
	assert_int_equal(stat(mine, &st), 0);
	assert_int_equal(st.st_size, 4);
	unlink(fresh);
	assert_int_equal(link(mine, fresh), 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	assert_int_equal(stat(mine, &st), 0);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(stat(fresh, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(snapshot_write(&snap, r->store), 0);
	__crpc_kv_snapshot_release(&snap);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* A pipe in its place lets no thread wait. */
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_true(__crpc_kv_snapshot_read(&snap, r->store) < 0);
	assert_int_equal(save(&snap, r->store), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	umask(mask);
	unlink(file);
	unlink(mine);
	rmdir(folder);
	rig_free(r);
}

/*
 * A writer is killed after its file got its name, and its parent, which completes the work, writes
 * it too: the file stays as it is.
 */
static void
a_killed_writers_file_stays(void **state)
{
	char folder[] = "/tmp/test_store.XXXXXX", path[64], file[72];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct rig *r = rig_new(8, 8, KEYS), *back = rig_new(8, 8, KEYS);
	struct stat before, after;
	int status;
	pid_t pid;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/snap", folder);
	snprintf(file, sizeof(file), "%s.0", path);
	one(r, CRPC_KV_PUT, 1, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (snapshot_write(&snap, r->store) == 1)
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(stat(file, &before), 0);
	assert_int_equal(snapshot_write(&snap, r->store), 1);
	assert_int_equal(stat(file, &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_memory_equal(&after.st_mtim, &before.st_mtim, sizeof(before.st_mtim));
	__crpc_kv_snapshot_release(&snap);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, back->store), 1);
	unlink(file);
	rmdir(folder);
	rig_free(r);
	rig_free(back);
}

/* What a snapshot has of a store, the next store has: values, versions, what is left of lives. */
static void
a_snapshot_brings_a_store_back(void **state)
{
	char path[] = "/tmp/test_store.XXXXXX", file[64];
	struct rig *a = rig_new(16, 100, KEYS), *b;
	struct kv_snapshot snap = {.path = path, .owner = 0, .owners = 1, .key_size = 16};
	struct kv_served was, is;
	uint8_t copy[100];
	uint32_t i;

	assert_true(close(mkstemp(path)) == 0);
	__crpc_kv_store_tick(a->store, MS);
	for (i = 0; i < 100; i++)
		one(a, CRPC_KV_PUT, i, i % 3 == 0 ? CRPC_KV_TTL : 0, 0, i % 2 != 0 ? 5 : 1000);
	one(a, CRPC_KV_DELETE, 4, 0, 0, 0);
	__crpc_kv_store_tick(a->store, 11 * MS); /* some have ended and are still in */
	for (i = 1; i <= 2; i++) { /* Each file's generation is above that of the one before. */
		assert_int_equal(save(&snap, a->store), 100 - 1 - 17);
		assert_int_equal(snap.generation, i);
	}
	b = rig_new(16, 100, KEYS);
	__crpc_kv_store_tick(b->store, 500 * MS);
	snap.generation = 0;
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), 100 - 1 - 17);
	assert_int_equal(snap.generation, 2);
	for (i = 0; i < 110; i++) {
		was = one(a, CRPC_KV_GET, i, 0, 0, 0);
		if (was.status == CRPC_KV_OK)
			memcpy(copy, was.value, 100);
		is = one(b, CRPC_KV_GET, i, 0, 0, 0);
		assert_int_equal(is.status, was.status);
		if (is.status != CRPC_KV_OK)
			continue;
		assert_int_equal(is.version, was.version);
		assert_memory_equal(is.value, copy, 100);
	}
	/* versions go on where they were, and lives end when they would have */
	assert_true(
		one(b, CRPC_KV_PUT, 1, 0, 0, 0).version > __crpc_kv_store_version(a->store) - 20);
	__crpc_kv_store_tick(b->store, (500 + 991) * MS);
	assert_int_equal(one(b, CRPC_KV_GET, 6, 0, 0, 0).status, CRPC_KV_NOT_FOUND);
	assert_int_equal(one(b, CRPC_KV_GET, 7, 0, 0, 0).status, CRPC_KV_OK);
	snprintf(file, sizeof(file), "%s.3", path);
	unlink(file);
	unlink(path);
	rig_free(a);
	rig_free(b);
}

/* Keys that are there all the time are in it, with what they had before it began or later. */
static void
a_snapshot_is_copied_while_keys_change(void **state)
{
	char path[] = "/tmp/test_store.XXXXXX", file[64];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct rig *a = rig_new(8, 8, KEYS), *b = rig_new(8, 8, KEYS);
	uint64_t newest = 0, oldest;
	int64_t keys;
	uint32_t i;

	assert_true(close(mkstemp(path)) == 0);
	snprintf(file, sizeof(file), "%s.0", path);
	for (i = 0; i < 3 * KEYS / 4; i++)
		one(a, CRPC_KV_PUT, i, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	/* Nothing of a copy that was broken off is in the next one. */
	assert_int_equal(__crpc_kv_snapshot_copy(&snap, a->store, KEYS / 4), -EAGAIN);
	oldest = one(a, CRPC_KV_PUT, 0, 0, 0, 0).version;
	for (i = 1; i < KEYS / 2; i++)
		one(a, CRPC_KV_PUT, i, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	for (i = 0; (keys = __crpc_kv_snapshot_copy(&snap, a->store, 3)) == -EAGAIN; i++) {
		assert_int_equal(__crpc_kv_snapshot_commit(&snap), -ENOENT);
		newest = one(a, CRPC_KV_PUT, i % (KEYS / 2), 0, 0, 0).version;
		/* Deleted and put again: its new place is not in it, or it would be there twice. */
		one(a, CRPC_KV_DELETE, KEYS / 2 + i % (KEYS / 4), 0, 0, 0);
		one(a, CRPC_KV_PUT, KEYS / 2 + i % (KEYS / 4), 0, 0, 0);
	}
	assert_in_range(i, KEYS / 6, KEYS);
	assert_in_range(keys, KEYS / 2, 3 * KEYS / 4);
	assert_int_equal(__crpc_kv_snapshot_commit(&snap), 0);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), keys);
	for (i = 0; i < KEYS / 2; i++) {
		assert_int_equal(one(b, CRPC_KV_GET, i, 0, 0, 0).status, CRPC_KV_OK);
		assert_true(one(b, CRPC_KV_GET, i, 0, 0, 0).version >= oldest);
	}
	assert_true(one(b, CRPC_KV_PUT, 0, 0, 0, 0).version > newest);
	unlink(file);
	unlink(path);
	__crpc_kv_snapshot_release(&snap);
	rig_free(a);
	rig_free(b);
}

/* While a loop stands nothing is asked of the disk: write() does that before and after. */
static void
a_copy_leaves_the_file_alone(void **state)
{
	char path[] = "/tmp/test_store.XXXXXX", file[64], fresh[72];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct rig *a = rig_new(8, 8, KEYS);
	struct stat before, after;
	int64_t keys = -EAGAIN;
	uint32_t i;

	assert_true(close(mkstemp(path)) == 0);
	snprintf(file, sizeof(file), "%s.0", path);
	snprintf(fresh, sizeof(fresh), "%s.new", file);
	for (i = 0; i < KEYS / 2; i++)
		one(a, CRPC_KV_PUT, i, 0, 0, 0);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	while (keys == -EAGAIN) {
		assert_int_equal(__crpc_kv_snapshot_write(&snap), 0);
		assert_int_equal(stat(fresh, &before), 0);
		keys = __crpc_kv_snapshot_copy(&snap, a->store, KEYS / 4);
		assert_int_equal(stat(fresh, &after), 0);
		assert_int_equal(before.st_size, after.st_size);
	}
	assert_int_equal(keys, KEYS / 2);
	assert_true(before.st_size > KEYS / 4 * 16);
	assert_int_equal(__crpc_kv_snapshot_write(&snap), 0);
	assert_int_equal(__crpc_kv_snapshot_write(&snap), 0);
	assert_int_equal(stat(fresh, &after), 0);
	assert_int_equal(after.st_size, 64 + KEYS / 2 * (16 + 8 + 8));
	assert_int_equal(__crpc_kv_snapshot_commit(&snap), 0);
	unlink(file);
	unlink(path);
	__crpc_kv_snapshot_release(&snap);
	rig_free(a);
}

/* Each byte of a snapshot counts: one that is changed, missing or too many is found. */
static void
a_bad_snapshot_is_refused(void **state)
{
	char path[] = "/tmp/test_store.XXXXXX", file[64];
	struct kv_snapshot snap = {.path = path, .owner = 0, .owners = 1, .key_size = 8}, other;
	struct rig *a = rig_new(8, 8, KEYS), *b;
	uint8_t bytes[4096], bad[4096];
	size_t n, i;
	uint32_t crc;
	FILE *f;

	assert_true(close(mkstemp(path)) == 0);
	snprintf(file, sizeof(file), "%s.0", path);
	for (i = 0; i < 10; i++)
		one(a, CRPC_KV_PUT, (uint32_t)i, 0, 0, 0);
	assert_int_equal(save(&snap, a->store), 10);
	f = fopen(file, "rb");
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	b = rig_new(8, 8, KEYS);
	for (i = 0; i < 2 * n; i++) {
		memcpy(bad, bytes, n);
		bad[i % n] ^= i < n ? 1 : 0x80;
		f = fopen(file, "wb");
		assert_int_equal(fwrite(bad, 1, n, f), n);
		fclose(f);
		assert_true(__crpc_kv_snapshot_read(&snap, b->store) < 0);
		assert_int_equal(__crpc_kv_store_count(b->store), 0);
	}
	for (i = 0; i < n; i++) {
		f = fopen(file, "wb");
		assert_int_equal(fwrite(bytes, 1, i, f), i);
		fclose(f);
		assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), -EBADMSG);
	}
	f = fopen(file, "wb");
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
	other = snap;
	other.key_size = 9;
	assert_int_equal(__crpc_kv_snapshot_read(&other, b->store), -EXDEV);
	other = snap;
	other.owners = 2;
	assert_int_equal(__crpc_kv_snapshot_read(&other, b->store), -EXDEV);
	rig_free(b);
	/* The first item without a value, under a right checksum. */
	b = rig_new(8, 8, KEYS);
	memcpy(bad, bytes, n);
	memset(bad + 64 + 8, 0, sizeof(uint32_t));
	crc = rte_hash_crc(bad, (uint32_t)(n - sizeof(crc)), UINT32_MAX);
	memcpy(bad + n - sizeof(crc), &crc, sizeof(crc));
	f = fopen(file, "wb");
	assert_int_equal(fwrite(bad, 1, n, f), n);
	fclose(f);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), -EBADMSG);
	assert_int_equal(__crpc_kv_store_count(b->store), 0);
	f = fopen(file, "wb");
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
	rig_free(b);
	b = rig_new(8, 8, 9);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), -ENOSPC);
	assert_non_null(strstr(crpc_log_last(), "conf.capacity"));
	snap.path = "/nowhere/at/all";
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), -ENOENT);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), -ENOENT);
	unlink(file);
	unlink(path);
	rig_free(a);
	rig_free(b);
}

static void
a_store_without_memory_is_refused(void **state)
{
	struct crpc_kv_server_conf conf = {.capacity = 1u << 28, /* 1.3 TiB */
		.key_size = 8,
		.value_max = CRPC_KV_VALUE_INLINE};

	assert_null(__crpc_kv_store_create(&conf, "bad", 0, NULL));
	assert_int_equal(errno, ENOMEM);
	__crpc_kv_store_free(NULL);
}

/* Serve a message without a batch, if that can be; the answer lies over it. @return its length. */
static uint32_t
serve_over(struct rig *r, const struct kv_req *req, uint8_t msg[CRPC_KV_RESP_MAX])
{
	uint32_t len = 8 + req->key_len + req->value_len;
	struct kv_slot *slot;
	struct kv_quick q;

	memcpy(msg, r->msg[0], len);
	assert_false(kv_quick_read(&q, msg, len - 1));
	assert_false(kv_quick_read(&q, msg, len + 1));
	if (!kv_quick_read(&q, msg, len))
		return 0;
	assert_int_equal(kv_hash8(q.key), kv_hash(&q.key, 8));
	slot = kv_quick_find(r->store, q.key, kv_hash8(q.key));
	if (slot == NULL)
		return 0;
	len = kv_quick_serve(r->store, slot, &q, msg);
	assert_true(len != 0);
	return len;
}

/* Serve requests without a batch as far as the store does that. @return how many it did. */
static uint32_t
serve_quickly(struct rig *r)
{
	uint8_t msg[CRPC_KV_RESP_MAX];
	struct kv_served served;
	struct kv_resp_hdr hdr;
	uint32_t len, n = 0;

	while (r->batch.n != 0) {
		/* One by one: what is not quick is served before the next. */
		len = serve_over(r, &r->batch.req[0], msg);
		/* Whatever key stood in its place of the table last. */
		if (r->batch.req[0].op != CRPC_KV_DELETE && r->model.version[r->id[0]] != 0)
			assert_int_not_equal(len, 0);
		if (len == 0) {
			__crpc_kv_store_lookup(r->store, &r->batch);
			__crpc_kv_store_exec(r->store, &r->batch, 0, &served);
		} else {
			n++;
			memcpy(&hdr, msg, sizeof(hdr));
			assert_int_equal(len, sizeof(hdr) + hdr.value_len);
			served = (struct kv_served){.status = hdr.status,
				.op = hdr.op,
				.value_len = hdr.value_len,
				.version = hdr.version,
				.value = msg + sizeof(hdr)};
		}
		compare(r, 0, &served);
		kv_batch_reset(&r->batch);
	}
	return n;
}

/*
 * What is served without a batch matches the model as what is served with one, deletes between; and
 * every key that is there is served so.
 */
static void
quick_ones_match_the_model(void **state)
{
	static const uint32_t sizes[] = {8, 100};
	static const enum kv_op ops[] = {CRPC_KV_GET, CRPC_KV_PUT, CRPC_KV_GET, CRPC_KV_PUT,
		CRPC_KV_GET, CRPC_KV_GET, CRPC_KV_DELETE};
	uint32_t i, k, quick = 0;
	struct rig *r;

	for (k = 0; k < CRPC_DIM(sizes); k++) {
		r = rig_new(8, sizes[k], KEYS);
		for (i = 0; i < 200000; i++) {
			add(r, ops[crpc_random(&r->rng) % CRPC_DIM(ops)],
				(uint32_t)crpc_random(&r->rng) % KEYS);
			quick += serve_quickly(r);
		}
		rig_free(r);
	}
	assert_true(quick > 100000);
}

/* Write a snapshot that was changed, under a right checksum. */
static void
forge(const char *file, uint8_t *bytes, size_t n)
{
	uint32_t crc = rte_hash_crc(bytes, (uint32_t)(n - sizeof(crc)), UINT32_MAX);
	FILE *f = fopen(file, "wb");

	memcpy(bytes + n - sizeof(crc), &crc, sizeof(crc));
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
}

/* A file whose bytes are whole and say what no store can have. */
static int64_t
forged(int which, struct rig **b)
{
	char path[] = "/tmp/test_store.XXXXXX", file[64];
	struct kv_snapshot snap = {.path = path, .owner = 0, .owners = 2, .key_size = 8};
	struct rig *a = rig_new(8, 8, KEYS);
	static const uint64_t zero, most = UINT64_MAX, few = 1;
	uint8_t bytes[4096];
	uint64_t key;
	int64_t rc;
	size_t n;
	FILE *f;

	assert_true(close(mkstemp(path)) == 0);
	snprintf(file, sizeof(file), "%s.0", path);
	for (key = 0; key < 8; key++)
		if (kv_owner(kv_hash(&key, 8), 2) == 0)
			one(a, CRPC_KV_PUT, (uint32_t)key, 0, 0, 0);
	rc = save(&snap, a->store);
	assert_true(rc > 1);
	f = fopen(file, "rb");
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	if (which == 0) /* an item with version 0 */
		memcpy(bytes + 64, &zero, 8);
	else if (which == 1) /* an item above the newest */
		memcpy(bytes + 64, &most, 8);
	else if (which == 2) /* newest: the next one wraps */
		memcpy(bytes + 32, &most, 8);
	else if (which == 3) /* bytes behind the last item */
		memcpy(bytes + 24, &few, 8);
	else if (which == 4) { /* another owner's key */
		for (key = 0; kv_owner(kv_hash(&key, 8), 2) == 0; key++)
			;
		memcpy(bytes + 64 + 16, &key, 8);
	}
	forge(file, bytes, n);
	*b = rig_new(8, 8, KEYS);
	rc = __crpc_kv_snapshot_read(&snap, (*b)->store);
	unlink(file);
	unlink(path);
	rig_free(a);
	return rc;
}

static void
a_restored_key_has_a_version(void **state)
{
	struct kv_served s;
	struct rig *b;
	uint64_t key = 0;
	int64_t rc = forged(0, &b);

	while (kv_owner(kv_hash(&key, 8), 2) != 0)
		key++;
	if (rc >= 0) {
		s = one(b, CRPC_KV_GET, (uint32_t)key, 0, 0, 0);
		print_message("get: status %u, version %llu\n", s.status,
			(unsigned long long)s.version);
		s = one(b, CRPC_KV_PUT, (uint32_t)key, CRPC_KV_EXPECT, 0, 0);
		print_message("put if absent of a key that is there: status %u\n", s.status);
	}
	rig_free(b);
	assert_int_equal(rc, -EBADMSG);
}

static void
restored_versions_do_not_wrap(void **state)
{
	struct kv_served s;
	struct rig *b;
	int64_t rc[2];
	int i;

	for (i = 0; i < 2; i++) {
		rc[i] = forged(1 + i, &b);
		s = one(b, CRPC_KV_PUT, 100, 0, 0, 0);
		print_message("read %lld; the next put: version %llu\n", (long long)rc[i],
			(unsigned long long)s.version);
		rig_free(b);
	}
	assert_int_equal(rc[0], -EBADMSG);
	assert_int_equal(rc[1], -EBADMSG);
}

static void
a_snapshot_ends_with_its_last_item(void **state)
{
	struct rig *b;
	int64_t rc = forged(3, &b);

	print_message("read %lld\n", (long long)rc);
	rig_free(b);
	assert_int_equal(rc, -EBADMSG);
}

static void
a_snapshot_has_its_owners_keys(void **state)
{
	struct rig *b;
	int64_t rc = forged(4, &b);

	print_message("read %lld\n", (long long)rc);
	rig_free(b);
	assert_true(rc < 0);
}

int
main(void)
{
	char *argv[] = {(char[]){"test_store"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_store"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_bursts_match_a_model),
		cmocka_unit_test(quick_ones_match_the_model),
		cmocka_unit_test(a_burst_that_moves_keys_serves_on),
		cmocka_unit_test(every_key_of_the_capacity_fits),
		cmocka_unit_test(keys_of_one_hash_slow_no_get_down),
		cmocka_unit_test(a_full_store_refuses_and_keeps_what_it_has),
		cmocka_unit_test(bad_requests_change_nothing),
		cmocka_unit_test(puts_and_deletes_depend_on_the_version),
		cmocka_unit_test(values_end_when_their_time_has_come),
		cmocka_unit_test(ended_keys_make_room),
		cmocka_unit_test(capacity_is_a_limit),
		cmocka_unit_test(a_snapshot_outlasts_a_power_failure),
		cmocka_unit_test(one_run_at_a_time_has_a_snapshots_path),
		cmocka_unit_test(a_snapshot_is_its_owners_alone),
		cmocka_unit_test(a_killed_writers_file_stays),
		cmocka_unit_test(a_snapshot_brings_a_store_back),
		cmocka_unit_test(a_snapshot_is_copied_while_keys_change),
		cmocka_unit_test(a_copy_leaves_the_file_alone),
		cmocka_unit_test(a_bad_snapshot_is_refused),
		cmocka_unit_test(a_restored_key_has_a_version),
		cmocka_unit_test(restored_versions_do_not_wrap),
		cmocka_unit_test(a_snapshot_ends_with_its_last_item),
		cmocka_unit_test(a_snapshot_has_its_owners_keys),
		cmocka_unit_test(a_store_without_memory_is_refused),
	};
	int rc;

	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	rc = cmocka_run_group_tests_name("benchkv_store", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
