/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon and clients that are not benchkv's: one that changes a request after it was sent, more
 * connections than there are writer ids, and scans while keys come and go. The daemon's turns and
 * the clients take turns on one thread.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>

#include "crpc_clock.h"
#include "ipc_inline.h"
#include "kv_daemon.h"

#define KEY     16
#define WRITERS 20

struct rig {
	struct crpc_kv_daemon *d;
	struct kv_fate fate;
	const char *name;
};

static void
rig_open(struct rig *r)
{
	static uint32_t number;
	static char name[48];
	struct crpc_kv_server_conf store = {.key_size = KEY, .value_max = 8, .capacity = 100};
	struct crpc_ipc_server_conf ipc = {
		.max_clients = 8, .depth = 4, .req_max = 128, .resp_max = 128};
	struct crpc_kv_daemon *d =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*d), CRPC_CACHE_GUARD));

	assert_non_null(d);
	memset(d, 0, sizeof(*d));
	snprintf(name, sizeof(name), "test_daemon.%d.%u", (int)getpid(), number++);
	ipc.name = name;
	d->daemons = d->owners = 1;
	d->key_size = KEY;
	d->value_size = 8;
	d->info.writer = d->writer_first = 1;
	d->writer_end = 1 + WRITERS;
	d->fate = &r->fate;
	assert_non_null(d->store = __crpc_kv_store_create(&store, name, SOCKET_ID_ANY, NULL));
	assert_non_null(d->ipc = crpc_ipc_server_create(&ipc));
	r->d = d;
	r->name = name;
}

static void
rig_close(struct rig *r)
{
	crpc_ipc_server_free(r->d->ipc);
	__crpc_kv_store_free(r->d->store);
	free(r->d);
}

static struct crpc_ipc_client *
connected(struct rig *r)
{
	struct crpc_ipc_client_conf conf = {.server = r->d->ipc};
	struct crpc_ipc_client *c = crpc_ipc_client_connect(&conf);
	uint32_t i;

	assert_non_null(c);
	for (i = 0; i < 8; i++)
		crpc_kv_daemon_watch(r->d, crpc_clock_ns());
	return c;
}

/* Turns until a call that was sent completes. */
static struct crpc_done
answer(struct rig *r, struct crpc_ipc_client *c)
{
	struct crpc_done done;
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		crpc_kv_daemon_turn(r->d, crpc_clock_ns());
		if (crpc_ipc_client_poll(c, crpc_clock_ns(), &done, 1) == 1)
			return done;
	}
	fail_msg("no answer");
	return done;
}

/* In a process of its own, as clients are: changes the word at *at between 1 and 2. @return it. */
static pid_t
flip(uint64_t *_Atomic *at)
{
	pid_t pid = fork();
	uint64_t i, *word;

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	alarm(60); /* Whatever happens to the test, it ends. */
	for (i = 0;; i++) {
		word = crpc_load_relaxed(at);
		if (word != NULL)
			__atomic_store_n(word, 1 + (i & 1), __ATOMIC_RELAXED);
	}
}

/*
 * Of a key that changes while it is looked at, one look counts: no key is stored twice. The client
 * writes to its slots, where the daemon reads them, for two seconds.
 */
static void
a_key_that_changes_is_stored_once(void **state)
{
	uint64_t *_Atomic *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct crpc_ipc_call_room room;
	struct crpc_ipc_client *c;
	struct rig r;
	uint64_t end;
	uint8_t *msg;
	uint32_t len, n;
	pid_t pid;

	assert_true(at != MAP_FAILED);
	rig_open(&r);
	c = connected(&r);
	pid = flip(at);
	end = crpc_clock_ns() + UINT64_C(2000000000);
	for (n = 0; crpc_clock_ns() < end && __crpc_kv_store_count(r.d->store) <= 2; n++) {
		assert_int_equal(
			crpc_ipc_client_call_reserve(c, sizeof(struct kv_req_hdr) + KEY + 8,
				crpc_ipc_client_resp_max(c), &room),
			0);
		msg = room.slot->data;
		len = kv_req_write(msg, CRPC_KV_PUT, KEY, 8);
		memset(msg + sizeof(struct kv_req_hdr), 0, KEY + 8);
		msg[sizeof(struct kv_req_hdr)] = 1;
		crpc_store_relaxed(at, (uint64_t *)(void *)(msg + sizeof(struct kv_req_hdr)));
		crpc_ipc_client_call_commit(c, crpc_clock_ns(), &room, len, n);
		assert_int_equal(answer(&r, c).status, 0);
		crpc_store_relaxed(at, (uint64_t *)NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_in_range(__crpc_kv_store_count(r.d->store), 1, 2);
	crpc_ipc_client_close(c);
	rig_close(&r);
	munmap(at, sizeof(*at));
}

static uint32_t
writer_of(struct rig *r, struct crpc_ipc_client *c)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	struct kv_resp_hdr hdr = {0};
	struct crpc_done done;
	struct kv_info info;
	const uint8_t *value = NULL;

	assert_int_equal(
		crpc_ipc_client_call(c, crpc_clock_ns(), msg, kv_req_write(msg, CRPC_KV_INFO, 0, 0),
			crpc_ipc_client_resp_max(c), 0),
		0);
	done = answer(r, c);
	assert_int_equal(done.status, 0);
	assert_int_equal(kv_resp_read(done.data, done.len, &hdr, &value), 0);
	assert_int_equal(hdr.value_len, sizeof(info));
	memcpy(&info, value, sizeof(info));
	return info.writer;
}

/* However many clients came and went, one that comes gets an id that no other has now. */
static void
writer_ids_do_not_run_out(void **state)
{
	struct crpc_ipc_client *stays, *c;
	uint32_t i, id, kept;
	struct rig r;

	rig_open(&r);
	stays = connected(&r);
	kept = writer_of(&r, stays);
	assert_in_range(kept, 1, WRITERS);
	for (i = 0; i < 10 * WRITERS; i++) {
		c = connected(&r);
		id = writer_of(&r, c);
		assert_in_range(id, 1, WRITERS);
		assert_int_not_equal(id, kept);
		crpc_ipc_client_close(c);
	}
	crpc_ipc_client_close(stays);
	rig_close(&r);
}

/* Send what stands in msg. @return the answer's status; its value, and their cursor, are set. */
static uint32_t
asked(struct rig *r, struct crpc_ipc_client *c, const uint8_t *msg, uint32_t len,
	const uint8_t **value, struct kv_resp_hdr *hdr)
{
	struct crpc_done done;

	assert_int_equal(
		crpc_ipc_client_call(c, crpc_clock_ns(), msg, len, crpc_ipc_client_resp_max(c), 0),
		0);
	done = answer(r, c);
	assert_int_equal(done.status, 0);
	assert_int_equal(kv_resp_read(done.data, done.len, hdr, value), 0);
	return hdr->status;
}

static uint32_t
walked(struct rig *r, struct crpc_ipc_client *c, enum kv_op op, uint32_t owner, uint32_t room,
	uint64_t cursor, const uint8_t **value, struct kv_resp_hdr *hdr)
{
	uint8_t msg[64];

	return asked(r, c, msg, kv_walk_write(msg, op, owner, room, cursor), value, hdr);
}

/* Put a key or take it out. */
static void
change(struct rig *r, struct crpc_ipc_client *c, enum kv_op op, uint64_t id)
{
	uint8_t msg[64] = {0};
	uint32_t len = kv_req_write(msg, op, KEY, op == CRPC_KV_PUT ? 8 : 0), status;
	const uint8_t *value;
	struct kv_resp_hdr hdr;

	kv_key_write(msg + sizeof(struct kv_req_hdr), KEY, id);
	status = asked(r, c, msg, len, &value, &hdr);
	assert_true(status == CRPC_KV_OK || (op == CRPC_KV_DELETE && status == CRPC_KV_NOT_FOUND));
}

#define STAY    40
#define CHANGE  60 /* more keys, so the store becomes full and empty */
#define ITEM_AT (sizeof(struct kv_scan_item) + KEY)

/* Scan once, with some changes between two answers. */
static void
scan(struct rig *r, struct crpc_ipc_client *c, uint64_t *rng, uint32_t given[STAY + CHANGE])
{
	const uint32_t room_min = sizeof(struct kv_resp_hdr) + ITEM_AT;
	struct kv_resp_hdr hdr = {0};
	struct kv_scan_item item;
	uint8_t key[KEY];
	const uint8_t *value;
	uint32_t n, room, steps = 0;
	uint64_t id;

	do {
		for (n = crpc_random(rng) % 8; n != 0; n--)
			change(r, c, crpc_random(rng) % 2 != 0 ? CRPC_KV_PUT : CRPC_KV_DELETE,
				STAY + crpc_random(rng) % CHANGE);
		room = room_min + crpc_random(rng) % (128 - room_min + 1);
		assert_int_equal(
			walked(r, c, CRPC_KV_SCAN, 0, room, hdr.version, &value, &hdr), CRPC_KV_OK);
		assert_in_range(hdr.value_len, 0, room - sizeof(hdr));
		assert_int_equal(hdr.value_len % ITEM_AT, 0);
		for (n = 0; n < hdr.value_len; n += ITEM_AT, value += ITEM_AT) {
			memcpy(&item, value, sizeof(item));
			memcpy(&id, value + sizeof(item), sizeof(id));
			assert_in_range(id, 0, STAY + CHANGE - 1);
			kv_key_write(key, KEY, id);
			assert_memory_equal(value + sizeof(item), key, KEY);
			assert_int_equal(item.value_len, 8);
			assert_true(item.version != 0 &&
				item.version <= __crpc_kv_store_version(r->d->store));
			given[id]++;
		}
		assert_true(hdr.version == 0 || hdr.version <= CRPC_KV_SCAN_PLACES);
		assert_true(++steps < 1000);
	} while (hdr.version != 0);
}

/*
 * Keys that stay are given exactly once by every scan, whatever room its answers have and whatever
 * comes, goes and takes places of others meanwhile; at rest all keys are.
 */
static void
a_scan_gives_what_stays_once(void **state)
{
	uint64_t rng = crpc_clock_ticks(), id;
	struct crpc_ipc_client *c;
	uint32_t given[STAY + CHANGE], round, total = 0;
	struct rig r;

	print_message("seed %llu\n", (unsigned long long)rng);
	rig_open(&r);
	c = connected(&r);
	for (id = 0; id < STAY; id++)
		change(&r, c, CRPC_KV_PUT, id);
	for (round = 0; round < 500; round++) {
		memset(given, 0, sizeof(given));
		scan(&r, c, &rng, given);
		for (id = 0; id < STAY; id++)
			assert_int_equal(given[id], 1);
		for (; id < STAY + CHANGE; id++)
			total += given[id];
	}
	assert_true(total > 500); /* Others were given, too. */
	crpc_ipc_client_close(c);
	rig_close(&r);
}

/* Counters come in as many answers as there is room for; other walks are refused. */
static void
counters_come_whole_and_in_parts(void **state)
{
	uint64_t word[CRPC_KV_STATS_N];
	struct kv_resp_hdr hdr = {0};
	struct crpc_ipc_client *c;
	const uint8_t *value;
	struct rig r;
	uint32_t room, n, i;

	rig_open(&r);
	c = connected(&r);
	for (i = 0; i < 5; i++)
		change(&r, c, CRPC_KV_PUT, i);
	change(&r, c, CRPC_KV_DELETE, 0);
	change(&r, c, CRPC_KV_DELETE, 0);
	for (room = sizeof(hdr) + 8; room <= 128; room += 4) {
		for (n = 0, hdr.version = 0; n == 0 || hdr.version != 0; n += hdr.value_len / 8) {
			assert_int_equal(
				walked(&r, c, CRPC_KV_STATS, 0, room, n, &value, &hdr), CRPC_KV_OK);
			assert_int_equal(hdr.value_len,
				crpc_min((room - sizeof(hdr)) / 8, CRPC_KV_STATS_N - n) * 8);
			memcpy(word + n, value, hdr.value_len);
		}
		assert_int_equal(n, CRPC_KV_STATS_N);
		assert_int_equal(word[CRPC_KV_STAT_KEYS], 4);
		assert_int_equal(word[CRPC_KV_STAT_CAPACITY], 100);
		assert_int_equal(word[CRPC_KV_STAT_PUTS], 5);
		assert_int_equal(word[CRPC_KV_STAT_DELETES], 2);
		assert_int_equal(word[CRPC_KV_STAT_MISSES], 1);
		assert_int_equal(word[CRPC_KV_STAT_CLIENTS], 1);
		assert_int_equal(word[CRPC_KV_STAT_BAD], 0);
		assert_int_equal(word[CRPC_KV_STAT_VERSION], __crpc_kv_store_version(r.d->store));
	}
	for (i = 0; i < 2; i++) {
		assert_int_equal(walked(&r, c, CRPC_KV_SCAN + i, 1, 128, 0, &value, &hdr),
			CRPC_KV_BAD_REQUEST);
		assert_int_equal(walked(&r, c, CRPC_KV_SCAN + i, UINT32_MAX, 128, 0, &value, &hdr),
			CRPC_KV_BAD_REQUEST);
		assert_int_equal(walked(&r, c, CRPC_KV_SCAN + i, 0, sizeof(hdr), 0, &value, &hdr),
			CRPC_KV_BAD_REQUEST);
		assert_int_equal(walked(&r, c, CRPC_KV_SCAN + i, 0, 128, UINT64_MAX, &value, &hdr),
			CRPC_KV_OK);
		assert_int_equal(hdr.value_len, 0);
		assert_int_equal(hdr.version, 0);
	}
	crpc_ipc_client_close(c);
	rig_close(&r);
}

/* A one-way message of any op, and its client leaves: its place is free again. */
static void
one_way_messages_do_not_keep_a_place(void **state)
{
	static const enum kv_op ops[] = {CRPC_KV_GET, CRPC_KV_PUT, CRPC_KV_INFO, CRPC_KV_STATS};
	struct crpc_ipc_server_stats stats;
	struct crpc_ipc_client *c, *all[8];
	uint8_t msg[64] = {0};
	uint32_t i, n, len;
	struct rig r;

	rig_open(&r);
	for (i = 0; i < CRPC_DIM(ops); i++) {
		c = connected(&r);
		len = ops[i] == CRPC_KV_STATS
			? kv_walk_write(msg, ops[i], 0, 100, 0)
			: kv_req_write(msg, ops[i], ops[i] == CRPC_KV_INFO ? 0 : KEY,
				  ops[i] == CRPC_KV_PUT ? 8 : 0);
		if (ops[i] != CRPC_KV_STATS)
			kv_key_write(msg + sizeof(struct kv_req_hdr), KEY, i);
		assert_int_equal(crpc_ipc_client_notify(c, crpc_clock_ns(), msg, len), 0);
		for (n = 0; n < 10; n++)
			crpc_kv_daemon_turn(r.d, crpc_clock_ns());
		crpc_ipc_client_close(c);
		for (n = 0; n < 100; n++) {
			crpc_kv_daemon_turn(r.d, crpc_clock_ns());
			crpc_kv_daemon_watch(r.d, crpc_clock_ns());
		}
		crpc_ipc_server_stats(r.d->ipc, &stats);
		print_message("op %u: clients %u, connects %llu, closes %llu\n", ops[i],
			stats.clients, (unsigned long long)stats.connects,
			(unsigned long long)stats.closes);
	}
	/* There are 8 places, and no client is connected. */
	for (i = 0; i < CRPC_DIM(all); i++) {
		struct crpc_ipc_client_conf conf = {.server = r.d->ipc};

		all[i] = crpc_ipc_client_connect(&conf);
		if (all[i] == NULL)
			fail_msg("place %u of %zu: %s", i, CRPC_DIM(all), strerror(errno));
		for (n = 0; n < 8; n++)
			crpc_kv_daemon_watch(r.d, crpc_clock_ns());
	}
	for (i = 0; i < CRPC_DIM(all); i++)
		crpc_ipc_client_close(all[i]);
	rig_close(&r);
}

/* What a request of a few bytes may cost the loop. */
static void
an_info_costs_little(void **state)
{
	struct crpc_ipc_server_conf ipc = {.name = "test_daemon.info", .max_clients = 1024,
		.depth = 4, .req_max = 128, .resp_max = 128};
	struct crpc_ipc_client_conf conf = {0};
	static struct crpc_ipc_client *c[1024];
	uint64_t begin, least = UINT64_MAX;
	uint8_t msg[8];
	uint32_t i, n;
	struct rig r;

	rig_open(&r);
	crpc_ipc_server_free(r.d->ipc);
	assert_non_null(r.d->ipc = crpc_ipc_server_create(&ipc));
	conf.server = r.d->ipc;
	r.d->writer_end = r.d->writer_first + 512; /* 65535 of 128 owners */
	for (i = 0; i < 1024; i++) {
		c[i] = crpc_ipc_client_connect(&conf);
		if (c[i] == NULL)
			fail_msg("%u: %s", i, strerror(errno));
		for (n = 0; n < 70; n++)
			crpc_ipc_server_reap(r.d->ipc);
		kv_req_write(msg, CRPC_KV_INFO, 0, 0);
		assert_int_equal(
			crpc_ipc_client_call(c[i], crpc_clock_ns(), msg, 8, 128, 0), 0);
		begin = crpc_clock_ns();
		answer(&r, c[i]);
		if (i >= 512) /* All writer ids are held. The fastest: nothing delays it. */
			least = crpc_min(least, crpc_clock_ns() - begin);
	}
	print_message("fastest INFO: %llu ns\n", (unsigned long long)least);
	assert_in_range(least, 0, 100000);
	rig_close(&r);
}

int
main(void)
{
	char *argv[] = {(char[]){"test_daemon"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_daemon"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_that_changes_is_stored_once),
		cmocka_unit_test(writer_ids_do_not_run_out),
		cmocka_unit_test(a_scan_gives_what_stays_once),
		cmocka_unit_test(counters_come_whole_and_in_parts),
		cmocka_unit_test(one_way_messages_do_not_keep_a_place),
		cmocka_unit_test(an_info_costs_little),
	};
	int rc;

	crpc_clock_init();
	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	rc = cmocka_run_group_tests_name("benchkv_daemon", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
