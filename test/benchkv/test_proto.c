/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages: the bytes are those of the golden file, what was written is read back, every wrong
 * length is refused whatever the head says, and keys spread evenly over ranks.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app_keys.h"
#include "crpc_kv_proto.h"

/* The bytes of one line of the golden file. */
static uint32_t
golden(const char *name, uint8_t *out, uint32_t max)
{
	char line[512], *p;
	unsigned int byte;
	uint32_t n = 0;
	FILE *f = fopen(GOLDEN, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ' ')
			continue;
		for (p = line + strlen(name); *p != '\n' && *p != '\0' && n < max;) {
			if (*p == ' ') {
				p++;
				continue;
			}
			assert_int_equal(sscanf(p, "%2x", &byte), 1);
			out[n++] = (uint8_t)byte;
			p += 2;
		}
	}
	fclose(f);
	assert_true(n > 0);
	return n;
}

static void
same(const char *name, const void *msg, uint32_t len)
{
	uint8_t want[256];

	assert_int_equal(golden(name, want, sizeof(want)), len);
	assert_memory_equal(msg, want, len);
}

static void
bytes_are_golden(void **state)
{
	const uint64_t key = UINT64_C(0x0102030405060708), value = UINT64_C(0x1112131415161718);
	const uint64_t version = UINT64_C(0x2122232425262728);
	uint8_t msg[128];
	uint32_t len;

	len = kv_req_write(msg, CRPC_KV_GET, 8, 0);
	memcpy(msg + 8, &key, 8);
	same("get", msg, len);
	len = kv_req_write(msg, CRPC_KV_PUT, 8, 8);
	memcpy(msg + 8, &key, 8);
	memcpy(msg + 16, &value, 8);
	same("put", msg, len);
	len = kv_req_write(msg, CRPC_KV_DELETE, 16, 0);
	kv_key_write(msg + 8, 16, 5);
	same("delete", msg, len);
	same("info", msg, kv_req_write(msg, CRPC_KV_INFO, 0, 0));
	same("stop", msg, kv_req_write(msg, CRPC_KV_STOP, 0, 0));
	kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_GET, 8, version);
	memcpy(msg + 16, &value, 8);
	same("got", msg, 24);
	kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_PUT, 0, version);
	same("wrote", msg, 16);
	kv_resp_write(msg, CRPC_KV_NOT_FOUND, CRPC_KV_GET, 0, version);
	same("missed", msg, 16);
	kv_resp_write(msg, CRPC_KV_BAD_REQUEST, CRPC_KV_PUT, 0, 0);
	same("refused", msg, 16);
	len = kv_req_write_with(msg, CRPC_KV_PUT, 8, 8, CRPC_KV_EXPECT, version, 0);
	memcpy(msg + 8, &key, 8);
	memcpy(msg + 24, &value, 8);
	same("put_if", msg, len);
	len = kv_req_write_with(msg, CRPC_KV_PUT, 8, 8, CRPC_KV_EXPECT | CRPC_KV_TTL, 0, 60000);
	memcpy(msg + 8, &key, 8);
	memcpy(msg + 32, &value, 8);
	same("put_new_for_a_minute", msg, len);
	len = kv_req_write_with(msg, CRPC_KV_DELETE, 8, 0, CRPC_KV_EXPECT, version, 0);
	memcpy(msg + 8, &key, 8);
	same("delete_if", msg, len);
	kv_resp_write(msg, CRPC_KV_MISMATCH, CRPC_KV_PUT, 8, version);
	memcpy(msg + 16, &value, 8);
	same("mismatched", msg, 24);
}

/* The same of the walks. */
static void
walks_are_golden(void **state)
{
	const struct kv_scan_item item = {
		.version = UINT64_C(0x2122232425262728), .value_len = 8, .ttl_ms = 60000};
	const uint64_t key = UINT64_C(0x0102030405060708);
	const uint64_t words[] = {item.version, UINT64_C(0x1112131415161718)};
	uint8_t msg[64];

	same("scan", msg, kv_walk_write(msg, CRPC_KV_SCAN, 3, 120, 5));
	same("stats", msg, kv_walk_write(msg, CRPC_KV_STATS, 3, 120, 0));
	kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_SCAN, sizeof(item) + 8, 6);
	memcpy(msg + 16, &item, sizeof(item));
	memcpy(msg + 32, &key, 8);
	same("scanned", msg, 40);
	kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_STATS, sizeof(words), 2);
	memcpy(msg + 16, words, sizeof(words));
	same("counted", msg, 32);
}

/* A walk is read as it was written, with room for an answer that is one; nothing else is a walk. */
static void
only_walks_are_read_as_walks(void **state)
{
	uint8_t msg[sizeof(struct kv_req_hdr) + sizeof(struct kv_walk) + 8] = {0};
	uint32_t len = kv_walk_write(msg, CRPC_KV_SCAN, 3, 120, 5), op, l;
	struct kv_walk walk;

	for (l = 0; l <= sizeof(msg); l++)
		assert_int_equal(crpc_kv_walk_read(msg, l, &walk), l == len ? CRPC_KV_SCAN : 0);
	assert_int_equal(crpc_kv_walk_read(msg, len, &walk), CRPC_KV_SCAN);
	assert_int_equal(walk.owner, 3);
	assert_int_equal(walk.room, 120);
	assert_int_equal(walk.cursor, 5);
	for (op = 0; op < 256; op++) {
		msg[0] = (uint8_t)op;
		assert_int_equal(crpc_kv_walk_read(msg, len, &walk),
			op == CRPC_KV_SCAN || op == CRPC_KV_STATS ? op : 0);
	}
	/* As many bytes, as a key and a value. */
	kv_req_write(msg, CRPC_KV_SCAN, 8, 8);
	assert_int_equal(crpc_kv_walk_read(msg, len, &walk), 0);
	kv_walk_write(msg, CRPC_KV_STATS, 3, UINT32_MAX, 0);
	assert_int_equal(crpc_kv_walk_read(msg, len, &walk), CRPC_KV_STATS);
	assert_int_equal(walk.room, CRPC_KV_RESP_MAX);
	kv_walk_write(msg, CRPC_KV_STATS, 3, sizeof(struct kv_resp_hdr) - 1, 0);
	assert_int_equal(crpc_kv_walk_read(msg, len, &walk), 0);
}

/* No two counters have one name, and none has none. */
static void
counters_have_names(void **state)
{
	uint32_t i, k;

	for (i = 0; i < CRPC_KV_STATS_N; i++)
		for (k = 0; k < i; k++)
			assert_string_not_equal(crpc_kv_stat_name((enum kv_stat)i),
				crpc_kv_stat_name((enum kv_stat)k));
}

/* Extras are read as they were written, and only where the operation has a use for them. */
static void
extras_are_checked(void **state)
{
	static const struct {
		enum kv_op op;
		uint32_t flags;
		uint64_t ttl_ms;
		int rc;
	} cases[] = {
		{CRPC_KV_PUT, CRPC_KV_EXPECT, 0, 0},
		{CRPC_KV_PUT, CRPC_KV_TTL, 1, 0},
		{CRPC_KV_PUT, CRPC_KV_TTL, CRPC_KV_TTL_MAX_MS, 0},
		{CRPC_KV_PUT, CRPC_KV_EXPECT | CRPC_KV_TTL, 5, 0},
		{CRPC_KV_DELETE, CRPC_KV_EXPECT, 0, 0},
		{CRPC_KV_PUT, CRPC_KV_TTL, 0, -EBADMSG},
		{CRPC_KV_PUT, CRPC_KV_TTL, CRPC_KV_TTL_MAX_MS + 1u, -EBADMSG},
		{CRPC_KV_GET, CRPC_KV_EXPECT, 0, -EBADMSG},
		{CRPC_KV_GET, CRPC_KV_TTL, 1, -EBADMSG},
		{CRPC_KV_DELETE, CRPC_KV_TTL, 1, -EBADMSG},
		{CRPC_KV_PUT, 4, 0, -EBADMSG},
	};
	uint8_t msg[CRPC_KV_REQ_MAX + 16] = {0};
	uint32_t i, l, len, value;
	struct kv_req req;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		value = cases[i].op == CRPC_KV_PUT ? 24 : 0;
		len = kv_req_write_with(
			msg, cases[i].op, 8, value, cases[i].flags, 77, cases[i].ttl_ms);
		assert_int_equal(kv_req_read(msg, len, &req), cases[i].rc);
		for (l = 0; l < sizeof(msg); l++)
			if (l != len)
				assert_int_equal(kv_req_read(msg, l, &req), -EBADMSG);
		if (cases[i].rc != 0)
			continue;
		assert_int_equal(kv_req_read(msg, len, &req), 0);
		assert_int_equal(req.flags, cases[i].flags);
		assert_int_equal(req.extras.expect, cases[i].flags & CRPC_KV_EXPECT ? 77 : 0);
		assert_int_equal(req.extras.ttl_ms, cases[i].ttl_ms);
		assert_ptr_equal(req.value, msg + len - value);
	}
}

/* 8-byte keys and values fit the one cache line of an ipc message. */
static void
small_messages_fit_a_line(void **state)
{
	assert_true(sizeof(struct kv_req_hdr) + 8 + 8 <= 56);
	assert_true(sizeof(struct kv_resp_hdr) + 8 <= 56);
}

static void
every_wrong_length_is_refused(void **state)
{
	uint8_t msg[CRPC_KV_REQ_MAX + 16] = {0};
	const uint8_t *value;
	struct kv_resp_hdr hdr;
	struct kv_req req;
	uint32_t len, l;

	len = kv_req_write(msg, CRPC_KV_PUT, 8, 100);
	assert_int_equal(kv_req_read(msg, len, &req), 0);
	assert_int_equal(req.op, CRPC_KV_PUT);
	assert_int_equal(req.key_len, 8);
	assert_int_equal(req.value_len, 100);
	assert_ptr_equal(req.key, msg + 8);
	assert_ptr_equal(req.value, msg + 16);
	for (l = 0; l < sizeof(msg); l++)
		if (l != len)
			assert_int_equal(kv_req_read(msg, l, &req), -EBADMSG);
	kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_GET, 100, 1);
	assert_int_equal(kv_resp_read(msg, 116, &hdr, &value), 0);
	assert_ptr_equal(value, msg + 16);
	for (l = 0; l < sizeof(msg); l++)
		if (l != 116)
			assert_int_equal(kv_resp_read(msg, l, &hdr, &value), -EBADMSG);
}

/* Whatever bytes a peer sends: what is accepted lies within the message. */
static void
random_heads_never_reach_outside(void **state)
{
	uint64_t rng = 4711;
	uint8_t msg[64];
	struct kv_req req;
	uint32_t i, len, accepted = 0;

	for (i = 0; i < 1000000; i++) {
		uint64_t head =
			crpc_random(&rng) & crpc_random(&rng) & UINT64_C(0x0000003f003f00ff);

		memcpy(msg, &head, 8);
		len = (uint32_t)(crpc_random(&rng) % sizeof(msg));
		if (kv_req_read(msg, len, &req) != 0)
			continue;
		accepted++;
		assert_true(req.value + req.value_len == msg + len);
	}
	assert_true(accepted > 100);
	memset(msg, 0xff, sizeof(msg));
	assert_int_equal(kv_req_read(msg, sizeof(msg), &req), -EBADMSG);
}

/*
 * 32 ranks get their share of a million keys, for every key size, within six standard deviations.
 */
static void
owners_are_spread_evenly(void **state)
{
	static const uint32_t sizes[] = {8, 9, 15, 16, 33, 64};
	const double want = 1e6 / 32;
	uint8_t key[CRPC_KV_KEY_MAX];
	uint32_t count[32], i, rank;
	size_t s;

	for (s = 0; s < CRPC_DIM(sizes); s++) {
		memset(count, 0, sizeof(count));
		for (i = 0; i < 1000000; i++) {
			kv_key_write(key, sizes[s], i);
			rank = kv_owner(kv_hash(key, sizes[s]), 32);
			assert_true(rank < 32);
			count[rank]++;
		}
		for (rank = 0; rank < 32; rank++)
			assert_true(fabs(count[rank] - want) < 6 * sqrt(want));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_golden),
		cmocka_unit_test(walks_are_golden),
		cmocka_unit_test(only_walks_are_read_as_walks),
		cmocka_unit_test(counters_have_names),
		cmocka_unit_test(extras_are_checked),
		cmocka_unit_test(small_messages_fit_a_line),
		cmocka_unit_test(every_wrong_length_is_refused),
		cmocka_unit_test(random_heads_never_reach_outside),
		cmocka_unit_test(owners_are_spread_evenly),
	};

	return cmocka_run_group_tests_name("benchkv_proto", tests, NULL, NULL);
}
