/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values in blocks: a store keeps the very block that a put came in, gives every block back when
 * its value goes, counts them, and refuses what does not fit without losing what is there.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>

#include "app_keys.h"
#include "crpc_kv_blocks.h"
#include "kv_test.h"
#include "kv_store.h"
#include "app_verify.h"

#define KEYS  40
#define MIB   (1u << 20)
#define BYTES (64u << 20)

struct rig {
	struct crpc_kv_blocks blocks;
	struct kv_store *store;
	struct kv_batch batch;
	struct kv_served served;
	uint8_t *value;
	uint64_t rng;
};

static struct rig *
rig_new_keys(uint64_t limit, uint32_t keys)
{
	static uint32_t number;
	struct rig *r = aligned_alloc(64, crpc_align_up(sizeof(*r), 64));
	struct crpc_kv_server_conf conf = {
		.capacity = keys, .key_size = 8, .value_max = MIB, .block_bytes = limit};
	char name[40];

	assert_non_null(r);
	memset(r, 0, sizeof(*r));
	assert_non_null(r->value = malloc(MIB));
	snprintf(name, sizeof(name), "test_large.%d.%u", (int)getpid(), number++);
	assert_int_equal(crpc_kv_blocks_create(&r->blocks, name, BYTES, 2 * MIB, 8, 0, 0), 0);
	r->store = __crpc_kv_store_create(&conf, name, SOCKET_ID_ANY, r->blocks.cache);
	assert_non_null(r->store);
	r->rng = 42;
	return r;
}

static struct rig *
rig_new(uint64_t limit)
{
	return rig_new_keys(limit, KEYS);
}

/* All that the store held is back: nothing is allocated when it is empty. */
static void
assert_held(const struct rig *r, uint64_t bytes)
{
	struct crpc_arena_cache_stats st;

	crpc_arena_cache_stats(r->blocks.cache, &st);
	assert_int_equal(st.held - st.cached, bytes);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_BLOCK_BYTES], bytes);
}

static void
rig_free(struct rig *r)
{
	__crpc_kv_store_free(r->store);
	crpc_kv_blocks_close(&r->blocks);
	free(r->value);
	free(r);
}

/* One request, in a block if it is given one. @return true if the block was kept. */
static bool
ask(struct rig *r, enum kv_op op, uint64_t id, const void *value, uint32_t len,
	const struct crpc_ipc_block *block)
{
	uint8_t key[8];
	struct kv_req req = {
		.op = (uint8_t)op, .key_len = 8, .value_len = len, .key = key, .value = value};

	kv_key_write(key, 8, id);
	kv_batch_reset(&r->batch);
	kv_batch_add(&r->batch, &req, kv_batch_key(&r->batch, &req));
	__crpc_kv_store_lookup(r->store, &r->batch);
	if (block != NULL)
		return __crpc_kv_store_exec_block(r->store, &r->batch, 0, &r->served, block);
	__crpc_kv_store_exec(r->store, &r->batch, 0, &r->served);
	return false;
}

static void
put(struct rig *r, uint32_t id, uint32_t len, uint32_t seq)
{
	app_value_fill(r->value, len, app_word(id, 1, seq));
	ask(r, CRPC_KV_PUT, id, r->value, len, NULL);
}

static void
assert_value(struct rig *r, uint32_t id, uint32_t len, uint32_t seq)
{
	uint64_t word;

	ask(r, CRPC_KV_GET, id, NULL, 0, NULL);
	assert_int_equal(r->served.status, CRPC_KV_OK);
	assert_int_equal(r->served.value_len, len);
	assert_true(app_value_whole(r->served.value, len, &word));
	assert_int_equal(word, app_word(id, 1, seq));
}

static void
random_sizes_match_a_model(void **state)
{
	static const uint32_t sizes[] = {8, 100, 4096, 4097, 5000, 65536, 100000, MIB - 1, MIB};
	uint32_t len[KEYS] = {0}, seq[KEYS] = {0}, i, id;
	struct rig *r = rig_new(0);

	for (i = 1; i < 3000; i++) {
		id = (uint32_t)crpc_random(&r->rng) % KEYS;
		switch (crpc_random(&r->rng) % 3) {
		case 0:
			put(r, id, sizes[crpc_random(&r->rng) % CRPC_DIM(sizes)], i);
			assert_int_equal(r->served.status, CRPC_KV_OK);
			len[id] = r->batch.req[0].value_len;
			seq[id] = i;
			break;
		case 1:
			ask(r, CRPC_KV_DELETE, id, NULL, 0, NULL);
			assert_int_equal(
				r->served.status, len[id] == 0 ? CRPC_KV_NOT_FOUND : CRPC_KV_OK);
			len[id] = 0;
			break;
		default:
			if (len[id] != 0)
				assert_value(r, id, len[id], seq[id]);
		}
	}
	for (id = 0; id < KEYS; id++)
		ask(r, CRPC_KV_DELETE, id, NULL, 0, NULL);
	assert_held(r, 0);
	rig_free(r);
}

/*
 * Zero copy: the value is read where the put wrote it. Not so from a block that is far too large.
 */
static void
the_block_of_a_put_is_kept(void **state)
{
	struct rig *r = rig_new(0);
	struct crpc_ipc_block block;
	uint8_t *msg;

	block.data = msg = crpc_arena_alloc(r->blocks.cache, 32 + 10000, &block.ref);
	block.size = crpc_arena_block_size(r->blocks.arena, 32 + 10000);
	app_value_fill(msg + 32, 10000, app_word(1, 1, 7));
	assert_true(ask(r, CRPC_KV_PUT, 1, msg + 32, 10000, &block));
	assert_value(r, 1, 10000, 7);
	assert_ptr_equal(r->served.value, msg + 32);
	assert_held(r, block.size);
	put(r, 1, 100, 8); /* a small one takes its place */
	assert_held(r, 0);

	block.data = msg = crpc_arena_alloc(r->blocks.cache, MIB, &block.ref);
	block.size = crpc_arena_block_size(r->blocks.arena, MIB);
	app_value_fill(msg + 32, 10000, app_word(1, 1, 9));
	assert_false(ask(r, CRPC_KV_PUT, 1, msg + 32, 10000, &block));
	assert_int_equal(crpc_arena_free(r->blocks.cache, block.ref), 0);
	assert_value(r, 1, 10000, 9);
	assert_held(r, crpc_arena_block_size(r->blocks.arena, 10000));
	rig_free(r);
}

static void
the_limit_refuses_and_nothing_is_lost(void **state)
{
	struct rig *r = rig_new(4 * MIB);
	struct crpc_ipc_block block;
	uint32_t id, n = 0;
	uint8_t *msg;

	for (id = 0; id < 8; id++) {
		put(r, id, MIB, 1);
		n += r->served.status == CRPC_KV_OK;
		assert_int_equal(r->served.status, id < 4 ? CRPC_KV_OK : CRPC_KV_NO_SPACE);
	}
	assert_int_equal(__crpc_kv_store_count(r->store), 4);
	assert_held(r, 4 * MIB);
	put(r, 2, MIB, 2); /* what is there can be replaced */
	assert_int_equal(r->served.status, CRPC_KV_OK);
	block.data = msg = crpc_arena_alloc(r->blocks.cache, MIB + 32, &block.ref);
	block.size = crpc_arena_block_size(r->blocks.arena, MIB + 32);
	app_value_fill(msg + 32, MIB, app_word(3, 1, 3));
	assert_false(ask(r, CRPC_KV_PUT, 3, msg + 32, MIB, &block)); /* but by nothing larger */
	assert_int_equal(r->served.status, CRPC_KV_NO_SPACE);
	assert_int_equal(crpc_arena_free(r->blocks.cache, block.ref), 0);
	for (id = 0; id < 4; id++)
		assert_value(r, id, MIB, id == 2 ? 2 : 1);
	put(r, 9, 100, 1);
	assert_int_equal(r->served.status, CRPC_KV_OK); /* small ones need no block */
	ask(r, CRPC_KV_DELETE, 0, NULL, 0, NULL);
	put(r, 8, MIB, 1);
	assert_int_equal(r->served.status, CRPC_KV_OK);
	assert_int_equal(n, 4);
	rig_free(r);
}

/* Without a limit the arena is one: alloc fails, the key is not there, all others are. */
static void
a_full_arena_refuses_and_nothing_is_lost(void **state)
{
	struct rig *r = rig_new(0);
	uint64_t ref, held;
	uint32_t id;

	for (id = 0; id < 8; id++)
		put(r, id, MIB, 1);
	while (crpc_arena_alloc(r->blocks.cache, 2 * MIB, &ref) != NULL)
		;
	while (crpc_arena_alloc(r->blocks.cache, MIB, &ref) != NULL)
		;
	held = __crpc_kv_store_stats(r->store)[CRPC_KV_STAT_BLOCK_BYTES];
	put(r, 20, MIB, 1);
	assert_int_equal(r->served.status, CRPC_KV_NO_SPACE);
	put(r, 3, MIB, 2);
	assert_int_equal(r->served.status, CRPC_KV_NO_SPACE);
	assert_int_equal(__crpc_kv_store_count(r->store), 8);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_BLOCK_BYTES], held);
	for (id = 0; id < 8; id++)
		assert_value(r, id, MIB, 1);
	rig_free(r);
}

static void
lives_end_and_snapshots_restore(void **state)
{
	struct rig *a = rig_new(0), *b = rig_new(0);
	char path[] = "/tmp/test_large.XXXXXX", file[64];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct kv_item item = {.len = 50000, .ttl_ms = 5, .version = 99};
	uint8_t key[8];
	uint32_t id;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	for (id = 0; id < 10; id++)
		put(a, id, 4000 + 20000 * id, id);
	assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
	assert_int_equal(snapshot_write(&snap, a->store), 10);
	__crpc_kv_snapshot_release(&snap);
	assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), 10);
	for (id = 0; id < 10; id++)
		assert_value(b, id, 4000 + 20000 * id, id);
	assert_held(b, __crpc_kv_store_stats(a->store)[CRPC_KV_STAT_BLOCK_BYTES]);
	snprintf(file, sizeof(file), "%s.0", path);
	unlink(file);
	unlink(path);

	for (id = 0; id < 10; id++)
		ask(b, CRPC_KV_DELETE, id, NULL, 0, NULL);
	__crpc_kv_store_tick(b->store, 1000000000);
	kv_key_write(key, 8, 7);
	item.key = key;
	item.value = a->value;
	assert_int_equal(__crpc_kv_store_restore(b->store, &item), 0);
	for (id = 1; id < 100 && __crpc_kv_store_count(b->store) != 0; id++)
		__crpc_kv_store_tick(b->store, 1000000000 + id * UINT64_C(1000000));
	assert_true(id > 5);
	assert_held(b, 0);
	rig_free(a);
	rig_free(b);
}

/* In a process of its own, as clients are: writes all over a value. @return it. */
static pid_t
scribble(uint8_t *value)
{
	pid_t pid = fork();
	uint32_t i;

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	alarm(60); /* Whatever happens to the test, it ends. */
	for (i = 0;; i++)
		__atomic_store_n(&value[i % MIB], (uint8_t)(i + (i >> 20)), __ATOMIC_RELAXED);
}

/* Who sent a value still has its block: a snapshot that is taken while it writes there is whole. */
static void
a_snapshot_of_values_that_change_can_be_read(void **state)
{
	struct rig *a = rig_new(0), *b = rig_new(0);
	char path[] = "/tmp/test_large.XXXXXX", file[64];
	struct kv_snapshot snap = {.path = path, .owners = 1, .key_size = 8};
	struct kv_item item;
	uint32_t i, at = 0;
	pid_t pid;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	snprintf(file, sizeof(file), "%s.0", path);
	put(a, 1, MIB, 1);
	while (__crpc_kv_store_slot(a->store, at++, &item) == 0)
		;
	pid = scribble((uint8_t *)(uintptr_t)item.value);
	for (i = 0; i < 20; i++) {
		assert_int_equal(__crpc_kv_snapshot_claim(&snap), 0);
		assert_int_equal(snapshot_write(&snap, a->store), 1);
		__crpc_kv_snapshot_release(&snap);
		assert_int_equal(__crpc_kv_snapshot_read(&snap, b->store), 1);
		ask(b, CRPC_KV_DELETE, 1, NULL, 0, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(file);
	unlink(path);
	rig_free(a);
	rig_free(b);
}

/* Blocks whose values' lives have ended make room at once, not when a tick comes to them. */
static void
ended_blocks_make_room(void **state)
{
	struct rig *r = rig_new_keys(4 * MIB, 1000);
	struct kv_item item = {.len = MIB, .ttl_ms = 5};
	uint8_t key[8];
	uint32_t id;

	__crpc_kv_store_tick(r->store, 1000000000);
	for (id = 0; id < 600; id++) /* in the first slots, which a tick looks at first */
		put(r, id, 8, 1);
	for (; id < 604; id++) {
		kv_key_write(key, 8, id);
		item.key = key;
		item.value = r->value;
		assert_int_equal(__crpc_kv_store_restore(r->store, &item), 0);
	}
	put(r, 700, MIB, 1);
	assert_int_equal(r->served.status, CRPC_KV_NO_SPACE);
	__crpc_kv_store_tick(r->store, 1010000000);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_EXPIRED], 0);
	put(r, 700, MIB, 2);
	assert_int_equal(r->served.status, CRPC_KV_OK);
	assert_int_equal(__crpc_kv_store_stats(r->store)[CRPC_KV_STAT_EXPIRED], 1);
	assert_value(r, 700, MIB, 2);
	assert_held(r, 4 * MIB);
	put(r, 3, MIB, 3); /* also for a key that is there */
	assert_int_equal(r->served.status, CRPC_KV_OK);
	assert_int_equal(__crpc_kv_store_count(r->store), 600 + 1 + 2);
	for (id = 0; id < 600; id++)
		assert_value(r, id, id == 3 ? MIB : 8, id == 3 ? 3 : 1);
	rig_free(r);
}

/* What stands beside a block's ref is what another process wrote. */
static void
lengths_beside_blocks_are_checked(void **state)
{
	uint8_t data[64], beside[16] = {0};
	struct crpc_ipc_block block = {.ref = 1, .data = data, .size = sizeof(data)};
	static const struct {
		uint64_t bytes;
		uint32_t len;
		bool good;
	} cases[] = {{0, 8, true}, {64, 8, true}, {65, 8, false}, {64, 7, false}, {64, 16, false},
		{UINT64_C(1) << 32, 8, false}, {UINT64_MAX, 8, false}, {64, 0, false}};
	const void *at;
	uint32_t i, len;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		memcpy(beside, &cases[i].bytes, 8);
		at = beside;
		len = cases[i].len;
		assert_int_equal(crpc_kv_block_read(&block, &at, &len), cases[i].good);
		assert_true(!cases[i].good || (at == data && len == cases[i].bytes));
	}
}

/* A key that could not be loaded is not there. */
static void
a_load_without_room_leaves_no_key(void **state)
{
	struct rig *r = rig_new(MIB);
	uint8_t key[8];
	uint32_t id;

	for (id = 0; id < 2; id++) {
		kv_key_write(key, 8, id);
		assert_int_equal(__crpc_kv_store_load(r->store, key, r->value, MIB),
			id == 0 ? 0 : -ENOSPC);
	}
	ask(r, CRPC_KV_GET, 1, NULL, 0, NULL);
	print_message("keys %u; get: status %u, %llu bytes, version %llu\n",
		__crpc_kv_store_count(r->store), r->served.status,
		(unsigned long long)r->served.value_len, (unsigned long long)r->served.version);
	assert_int_equal(r->served.status, CRPC_KV_NOT_FOUND);
	assert_int_equal(__crpc_kv_store_count(r->store), 1);
	rig_free(r);
}

int
main(void)
{
	char *argv[] = {(char[]){"test_large"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_large"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_sizes_match_a_model),
		cmocka_unit_test(the_block_of_a_put_is_kept),
		cmocka_unit_test(a_load_without_room_leaves_no_key),
		cmocka_unit_test(the_limit_refuses_and_nothing_is_lost),
		cmocka_unit_test(a_full_arena_refuses_and_nothing_is_lost),
		cmocka_unit_test(lives_end_and_snapshots_restore),
		cmocka_unit_test(a_snapshot_of_values_that_change_can_be_read),
		cmocka_unit_test(ended_blocks_make_room),
		cmocka_unit_test(lengths_beside_blocks_are_checked),
	};
	int rc;

	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	rc = cmocka_run_group_tests_name("benchkv_large", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
