/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kv_large NAME CHECK: a client of a service with values of up to 1 MiB, through lib/kv.
 *
 *     sizes     put and get of sizes around every limit; compare-and-swap, time to live, delete
 *     full      an empty service with a --memory-limit: puts of new keys until there is no space;
 *               what is there stays whole, and what is deleted makes room
 *     writers   connects until the writer ids have begun again; of a service of small values
 *     beyond    puts to another rank's keys, larger than the service takes, behind some that wait
 *     hostile   blocks whose lengths lie, and requests that change after they were sent, for a
 *               while: the service answers or refuses each, and serves on
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_keys.h"
#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_kv.h"
#include "crpc_kv_blocks.h"
#include "crpc_log.h"
#include "app_verify.h"

#define MUST(x) must((x), #x, __LINE__)

static void
must(bool good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "kv_large: line %d: %s: not so (%s)\n", line, what, crpc_log_last());
	exit(1);
}

static uint8_t value[CRPC_KV_VALUE_MAX];

static int
put(struct crpc_kv *kv, uint64_t id, uint32_t len, uint32_t seq, const struct crpc_kv_how *how)
{
	struct crpc_kv_done done;
	uint8_t key[8];
	int rc;

	kv_key_write(key, 8, id);
	app_value_fill(value, len, app_word((uint32_t)id, 1, seq));
	rc = crpc_kv_put(kv, key, value, len, how, id);
	return rc != 0 ? rc : crpc_kv_wait(kv, &done);
}

static int
take_out(struct crpc_kv *kv, uint64_t id)
{
	struct crpc_kv_done done;
	uint8_t key[8];
	int rc;

	kv_key_write(key, 8, id);
	rc = crpc_kv_delete(kv, key, NULL, id);
	return rc != 0 ? rc : crpc_kv_wait(kv, &done);
}

/* @return the version. */
static uint64_t
must_have(struct crpc_kv *kv, uint64_t id, uint32_t len, uint32_t seq)
{
	struct crpc_kv_done done;
	uint8_t key[8];
	uint64_t word;

	kv_key_write(key, 8, id);
	MUST(crpc_kv_get(kv, key, id) == 0);
	MUST(crpc_kv_wait(kv, &done) == 0);
	MUST(done.cookie == id && done.len == len);
	MUST(app_value_whole(done.value, len, &word) && word == app_word((uint32_t)id, 1, seq));
	return done.version;
}

static void
sizes(struct crpc_kv *kv)
{
	static const uint32_t len[] = {8, 4095, 4096, 4097, 65535, 65536, 524289,
		CRPC_KV_VALUE_MAX - 1, CRPC_KV_VALUE_MAX, 9, CRPC_KV_VALUE_MAX};
	struct crpc_kv_how how = {.if_version = true};
	struct crpc_kv_done done;
	uint64_t id, version;
	uint8_t key[8];
	uint32_t i;

	MUST(crpc_kv_info(kv)->value_size == CRPC_KV_VALUE_MAX);
	for (i = 0; i < CRPC_DIM(len); i++) {
		for (id = 0; id < 4; id++)
			MUST(put(kv, id, len[i], i, NULL) == 0);
		for (id = 0; id < 4; id++)
			version = must_have(kv, id, len[i], i);
	}
	how.version = version;
	MUST(put(kv, 3, 700000, 99, &how) == 0);
	MUST(put(kv, 3, 600000, 98, &how) == -ESTALE);
	must_have(kv, 3, 700000, 99);
	/* what a mismatch tells is the value that is there, in a block too */
	kv_key_write(key, 8, 3);
	MUST(crpc_kv_put(kv, key, value, 5000, &how, 0) == 0);
	MUST(crpc_kv_wait(kv, &done) == -ESTALE && done.len == 700000);
	how = (struct crpc_kv_how){.ttl_ms = 30};
	MUST(put(kv, 2, 100000, 97, &how) == 0);
	kv_key_write(key, 8, 2);
	do {
		MUST(crpc_kv_get(kv, key, 0) == 0);
	} while (crpc_kv_wait(kv, &done) == 0);
	MUST(done.status == -ENOENT);
	MUST(crpc_kv_put(kv, key, value, CRPC_KV_VALUE_MAX + 1, NULL, 0) == -EINVAL);
	for (id = 0; id < 4; id++)
		MUST(take_out(kv, id) == (id == 2 ? -ENOENT : 0));
}

static void
full(struct crpc_kv *kv)
{
	uint32_t n = 0, i;
	int rc;

	while ((rc = put(kv, n, CRPC_KV_VALUE_MAX, 1, NULL)) == 0)
		MUST(++n < 1000);
	MUST(rc == -ENOSPC);
	MUST(n >= 4);
	for (i = 0; i < 50; i++)
		MUST(put(kv, 1000 + i, CRPC_KV_VALUE_MAX, 1, NULL) == -ENOSPC);
	for (i = 0; i < n; i++)
		must_have(kv, i, CRPC_KV_VALUE_MAX, 1);
	MUST(put(kv, 0, CRPC_KV_VALUE_MAX, 2, NULL) == 0);
	MUST(take_out(kv, 1) == 0);
	MUST(put(kv, 2000, CRPC_KV_VALUE_MAX, 3, NULL) == 0);
	must_have(kv, 2000, CRPC_KV_VALUE_MAX, 3);
	must_have(kv, 0, CRPC_KV_VALUE_MAX, 2);
	printf("%u values of 1 MiB\n", n);
}

/* Each question gives an id of its own, and there are fewer than 2^16. */
static void
writers(struct crpc_kv *kv, const char *name)
{
	struct crpc_ipc_client_conf conf = {.name = name, .timeout_ms = 3000};
	uint8_t answer[sizeof(struct kv_resp_hdr) + sizeof(struct kv_info)];
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t len = kv_req_write(msg, CRPC_KV_INFO, 0, 0), i;
	struct crpc_ipc_client *c;
	struct kv_info info;

	MUST((c = crpc_ipc_client_connect(&conf)) != NULL);
	for (i = 0; i < APP_WRITERS_MAX; i++) {
		MUST(crpc_ipc_client_call_sync(c, crpc_clock_ns(), msg, len, answer, sizeof(answer),
			     0) == sizeof(answer));
		memcpy(&info, answer + sizeof(struct kv_resp_hdr), sizeof(info));
		MUST(info.writer != 0 && info.writer != crpc_kv_info(kv)->writer);
	}
	MUST(info.generation != 0);
	crpc_ipc_client_close(c);
}

/* A number, from *id on, of a key that the daemon passes on to another rank. */
static uint64_t
far_key(const struct kv_info *info, uint64_t *id)
{
	uint32_t owners = info->ranks * info->daemons;
	uint8_t key[8];

	do
		kv_key_write(key, 8, (*id)++);
	while (kv_owner(kv_hash(key, 8), owners) / info->daemons == info->rank);
	return *id - 1;
}

/* A put of a value in a block, by ipc itself: lib/kv would refuse one that is too large. */
static int
put_block(struct crpc_ipc_client *c, struct crpc_kv_blocks *b, uint64_t id, uint32_t size)
{
	uint64_t ref, len = sizeof(struct kv_req_hdr) + 8 + size;
	uint8_t *msg = crpc_arena_alloc(b->cache, len, &ref);

	MUST(msg != NULL);
	kv_req_write(msg, CRPC_KV_PUT, 8, size);
	kv_key_write(msg + 8, 8, id);
	memset(msg + 16, 0xff, size);
	return crpc_ipc_client_call_ref(
		c, crpc_clock_ns(), ref, &len, sizeof(len), sizeof(struct kv_resp_hdr), size);
}

static void
beyond(struct crpc_kv *kv, const char *name)
{
	struct crpc_ipc_client_conf conf = {.name = name, .call_timeout_us = 5000000};
	const struct kv_info *info = crpc_kv_info(kv);
	uint32_t size = info->value_size, more = size + size / 5, i, n;
	struct crpc_kv_blocks blocks;
	struct crpc_ipc_client *c;
	struct kv_resp_hdr hdr;
	struct crpc_done done;
	const uint8_t *rest;
	uint64_t id = 0;

	MUST(crpc_kv_blocks_attach(&blocks, NULL, name, 3000, 0) == 0);
	conf.arena = blocks.cache;
	MUST((c = crpc_ipc_client_connect(&conf)) != NULL);
	for (n = 0; n < 200; n++) {
		for (i = 0; i < 8; i++)
			MUST(put_block(c, &blocks, far_key(info, &id), i < 6 ? size : more) == 0);
		for (i = 0; i < 8;) {
			if (crpc_ipc_client_poll(c, crpc_clock_ns(), &done, 1) == 0)
				continue;
			i++;
			MUST(done.cookie == size || done.cookie == more);
			if (done.cookie == more && done.status == -EMSGSIZE)
				continue;
			if (done.status != 0)
				fprintf(stderr, "status %d\n", done.status);
			MUST(done.status == 0);
			MUST(kv_resp_read(done.data, done.len, &hdr, &rest) == 0);
			MUST(hdr.status ==
				(done.cookie == size ? CRPC_KV_OK : CRPC_KV_BAD_REQUEST));
		}
		id %= 30;
	}
	crpc_ipc_client_close(c);
	crpc_kv_blocks_close(&blocks);
}

/* Who writes to a block that is the daemon's already. */
struct scribbler {
	_Atomic uintptr_t at;
	_Atomic uint32_t stop;
};

static void *
scribble(void *arg)
{
	static const uint32_t lens[] = {8, 5000, 100000, CRPC_KV_VALUE_MAX, UINT32_MAX, 0};
	struct scribbler *s = arg;
	uint8_t *msg;
	uint32_t i;

	for (i = 0; crpc_load_relaxed(&s->stop) == 0; i++) {
		/* pairs with the release of hostile() */
		msg = (uint8_t *)crpc_load_acquire(&s->at);
		if (msg == NULL)
			continue;
		__atomic_store_n((uint32_t *)(void *)(msg + 4), lens[i % CRPC_DIM(lens)],
			__ATOMIC_RELAXED);
		__atomic_store_n((uint64_t *)(void *)(msg + 8), i % 7, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void
one_lie(struct crpc_ipc_client *c, struct crpc_kv_blocks *b, struct scribbler *s, uint64_t *rng)
{
	uint64_t draw = crpc_random(rng), ref, len;
	uint32_t size = (uint32_t)(draw % 200000), told;
	struct crpc_done done;
	uint8_t *msg;

	msg = crpc_arena_alloc(b->cache, size + 32, &ref);
	if (msg == NULL)
		return;
	told = draw >> 32 & 1 ? size : (uint32_t)crpc_random(rng);
	kv_req_write(msg, draw >> 33 & 1 ? CRPC_KV_PUT : CRPC_KV_GET, 8, told);
	kv_key_write(msg + 8, 8, 100 + draw % 4);
	len = draw >> 34 & 1 ? size + 16 : crpc_random(rng) >> (draw >> 40 & 63);
	crpc_store_release(&s->at, (uintptr_t)(draw >> 35 & 1 ? msg : NULL));
	if (crpc_ipc_client_call_ref(c, crpc_clock_ns(), ref, &len, draw >> 36 & 7 ? 8 : 4, 0, 0) !=
		0)
		crpc_arena_free(b->cache, ref);
	else
		while (crpc_ipc_client_poll(c, crpc_clock_ns(), &done, 1) == 0)
			;
	crpc_store_release(&s->at, (uintptr_t)NULL);
}

static void
hostile(struct crpc_kv *kv, const char *name)
{
	struct crpc_ipc_client_conf conf = {.name = name, .call_timeout_us = 2000000};
	struct crpc_kv_blocks blocks;
	struct crpc_ipc_client *c;
	struct scribbler s = {0};
	uint64_t rng = 4711, end;
	pthread_t thread;
	uint32_t n = 0;

	MUST(crpc_kv_blocks_attach(&blocks, NULL, name, 3000, 0) == 0);
	conf.arena = blocks.cache;
	MUST((c = crpc_ipc_client_connect(&conf)) != NULL);
	MUST(pthread_create(&thread, NULL, scribble, &s) == 0);
	MUST(put(kv, 50, 300000, 5, NULL) == 0);
	for (end = crpc_clock_ns() + 1500000000; crpc_clock_ns() < end; n++)
		one_lie(c, &blocks, &s, &rng);
	crpc_store_relaxed(&s.stop, 1);
	pthread_join(thread, NULL);
	MUST(crpc_ipc_client_status(c) == 0);
	must_have(kv, 50, 300000, 5);
	crpc_ipc_client_close(c);
	crpc_kv_blocks_close(&blocks);
	printf("%u lies\n", n);
}

int
main(int argc, char **argv)
{
	struct crpc_kv_conf conf = {.connect_ms = 3000};
	struct crpc_kv *kv;

	if (argc != 3)
		return 2;
	crpc_clock_init();
	conf.name = argv[1];
	MUST((kv = crpc_kv_connect(&conf)) != NULL);
	if (strcmp(argv[2], "sizes") == 0)
		sizes(kv);
	else if (strcmp(argv[2], "full") == 0)
		full(kv);
	else if (strcmp(argv[2], "writers") == 0)
		writers(kv, argv[1]);
	else if (strcmp(argv[2], "beyond") == 0)
		beyond(kv, argv[1]);
	else if (strcmp(argv[2], "hostile") == 0)
		hostile(kv, argv[1]);
	else
		return 2;
	crpc_kv_close(kv);
	return 0;
}
