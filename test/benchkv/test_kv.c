/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/kv against a service that lies: each call completes, and what a completion shows is within
 * the sizes that the service gave when the client connected, for which callers have room; and
 * against one that another user put in its place.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_ipc.h"
#include "crpc_kv.h"
#include "crpc_shm.h"

#define VALUE_SIZE 64u
#define NOBODY     65534

static struct crpc_ipc_server *server;
static uint32_t value_size = VALUE_SIZE;
static uint32_t daemons = 1;
static _Atomic bool stop;
static char name[40];

/* How a walk is answered: so many bytes, the cursor that comes next, and a status. */
static struct {
	uint32_t len, status;
	uint64_t next;
	uint32_t places; /* Not 0: as a store of so many, where each seventh has a key. */
} walked;
static struct kv_walk asked; /* by the newest walk */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* of who has these two */

static void
answer_walks(uint32_t status, uint32_t len, uint64_t next, uint32_t places)
{
	pthread_mutex_lock(&turn);
	walked.status = status;
	walked.len = len;
	walked.next = next;
	walked.places = places;
	pthread_mutex_unlock(&turn);
}

static struct kv_walk
newest_walk(void)
{
	struct kv_walk walk;

	pthread_mutex_lock(&turn);
	walk = asked;
	pthread_mutex_unlock(&turn);
	return walk;
}

/* The next key of such a store, with the place behind it as its version. */
static void
walk_places(void)
{
	uint64_t end = (asked.cursor / CRPC_KV_SCAN_PLACES + 1) * CRPC_KV_SCAN_PLACES, at;

	for (at = asked.cursor; at < end && at < walked.places && at % 7 != 0; at++)
		;
	walked.status = CRPC_KV_OK;
	walked.len = at < end && at < walked.places ? 24 : 0;
	walked.next = walked.len != 0 ? at + 1 : end < walked.places ? end : 0;
}

/* Answers INFO as it should, and a get of a key with a value of as many bytes as the key says. */
static void
answer(const struct crpc_req *req)
{
	const struct kv_info info = {.ranks = 1,
		.daemons = daemons,
		.keys = 1,
		.key_size = 8,
		.value_size = value_size,
		.writers = 1};
	static uint8_t msg[CRPC_KV_RESP_MAX];
	struct kv_req get;
	uint64_t bytes;

	assert_int_equal(kv_req_read(req->data, req->len, &get), 0);
	if (get.op == CRPC_KV_INFO) {
		kv_resp_write(msg, CRPC_KV_OK, CRPC_KV_INFO, sizeof(info), 0);
		memcpy(msg + sizeof(struct kv_resp_hdr), &info, sizeof(info));
		crpc_ipc_server_reply(server, crpc_clock_ns(), req->token, msg,
			sizeof(struct kv_resp_hdr) + sizeof(info));
		return;
	}
	if (crpc_kv_walk_read(req->data, req->len, &asked) != 0) {
		if (walked.places != 0)
			walk_places();
		kv_resp_write(msg, walked.status, get.op, walked.len, walked.next);
		memset(msg + sizeof(struct kv_resp_hdr), 7, walked.len);
		if (walked.len != 0 && walked.places != 0)
			memcpy(msg + sizeof(struct kv_resp_hdr), &walked.next, 8);
		crpc_ipc_server_reply(server, crpc_clock_ns(), req->token, msg,
			(uint32_t)sizeof(struct kv_resp_hdr) + walked.len);
		return;
	}
	memcpy(&bytes, get.key, 8);
	kv_resp_write(msg, bytes % 2 != 0 ? CRPC_KV_OK : CRPC_KV_MISMATCH, get.op, bytes, 7);
	crpc_ipc_server_reply(server, crpc_clock_ns(), req->token, msg,
		(uint32_t)sizeof(struct kv_resp_hdr) + (uint32_t)bytes);
}

static void *
serve(void *arg)
{
	struct crpc_req req[8];
	uint16_t i, n;

	while (!crpc_load_relaxed(&stop)) {
		n = crpc_ipc_server_recv(server, crpc_clock_ns(), req, 8);
		pthread_mutex_lock(&turn);
		for (i = 0; i < n; i++)
			answer(&req[i]);
		pthread_mutex_unlock(&turn);
		crpc_ipc_server_reap(server);
		sched_yield();
	}
	return arg;
}

static void
values_longer_than_the_service_said_are_refused(void **state)
{
	const struct crpc_kv_conf conf = {.name = name, .connect_ms = 5000};
	struct crpc_ipc_server_conf sc = {
		.name = name, .req_max = CRPC_KV_REQ_MAX, .resp_max = CRPC_KV_RESP_MAX};
	struct crpc_kv_done done;
	struct crpc_kv *kv;
	pthread_t thread;
	uint64_t bytes;
	int rc;

	snprintf(name, sizeof(name), "test_kv.%d", (int)getpid());
	assert_non_null(server = crpc_ipc_server_create(&sc));
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_non_null(kv = crpc_kv_connect(&conf));
	assert_int_equal(crpc_kv_info(kv)->value_size, VALUE_SIZE);
	for (bytes = VALUE_SIZE - 8; bytes < VALUE_SIZE + 9; bytes++) {
		assert_int_equal(crpc_kv_get(kv, &bytes, bytes), 0);
		rc = crpc_kv_wait(kv, &done);
		assert_int_equal(done.cookie, bytes);
		assert_int_equal(rc, done.status);
		if (bytes > VALUE_SIZE) {
			assert_int_equal(done.status, -EPROTO);
			assert_null(done.value);
			assert_int_equal(done.len, 0);
		} else {
			assert_int_equal(done.status, bytes % 2 != 0 ? 0 : -ESTALE);
			assert_int_equal(done.len, bytes);
		}
	}
	crpc_kv_close(kv);
	crpc_store_relaxed(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	crpc_ipc_server_free(server);
}

/* One step of a scan that is answered like this. */
static int
scan(struct crpc_kv *kv, struct crpc_kv_scan *at, uint32_t status, uint32_t len, uint64_t next)
{
	struct crpc_kv_item item[1] = {0};
	uint64_t seven = UINT64_C(0x0707070707070707);
	int i, n;

	answer_walks(status, len, next, 0);
	n = crpc_kv_scan(kv, at, item, 1);
	for (i = 0; i < n; i++) {
		assert_int_equal(item[i].version, seven);
		assert_int_equal(item[i].value_len, (uint32_t)seven);
		assert_int_equal(item[i].ttl_ms, (uint32_t)seven);
		assert_memory_equal(item[i].key, &seven, 8);
	}
	return n;
}

/* However many keys each step takes, and so however many requests are open, each comes once. */
static void
parts_of_a_scan_are_whole(struct crpc_kv *kv)
{
	static const uint32_t places[] = {1, 7, 8, 255, 256, 257, 5000, 5120};
	static uint8_t given[5120];
	struct crpc_kv_item item[64];
	uint64_t rng = 4711;
	uint32_t i, k, owner, all;
	int n;

	for (i = 0; i < 4 * CRPC_DIM(places); i++) {
		struct crpc_kv_scan at = {0};

		all = places[i % CRPC_DIM(places)];
		answer_walks(CRPC_KV_OK, 0, 0, all);
		for (owner = 0; owner < 2; owner++) {
			memset(given, 0, sizeof(given));
			while (at.owner == owner) {
				n = crpc_kv_scan(kv, &at, item,
					(uint16_t)(1 + crpc_random(&rng) % (i < 16 ? 64 : 3)));
				assert_in_range(n, 0, 64);
				for (k = 0; k < (uint32_t)n; k++)
					given[item[k].version - 1]++;
			}
			for (k = 0; k < all; k++)
				assert_int_equal(given[k], k % 7 == 0);
		}
		assert_int_equal(at.owner, 2);
	}
	answer_walks(CRPC_KV_OK, 0, 0, 0);
}

/*
 * A scan moves on by what is answered, owner after owner, and by nothing else: a cursor that does
 * not rise, items that are cut, and more of them than there is room for are refused. Counters that
 * the service does not have are 0, and those that the client does not know are left.
 */
static void
walks_of_a_service_that_lies_end(void **state)
{
	const struct crpc_kv_conf conf = {.name = name, .connect_ms = 5000};
	struct crpc_ipc_server_conf sc = {
		.name = name, .req_max = CRPC_KV_REQ_MAX, .resp_max = CRPC_KV_RESP_MAX};
	struct crpc_kv_scan at = {0};
	uint64_t stat[CRPC_KV_STATS_N], key = 1;
	struct crpc_kv_done done;
	struct crpc_kv *kv;
	pthread_t thread;

	snprintf(name, sizeof(name), "test_kv.walk.%d", (int)getpid());
	value_size = VALUE_SIZE;
	daemons = 2;
	crpc_store_relaxed(&stop, false);
	assert_non_null(server = crpc_ipc_server_create(&sc));
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_non_null(kv = crpc_kv_connect(&conf));
	assert_int_equal(crpc_kv_owners(kv), 2);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 24, 5), 1);
	assert_int_equal(newest_walk().room, sizeof(struct kv_resp_hdr) + 24);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 24, 5), -EPROTO);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 24, 4), -EPROTO);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 48, 6), -EPROTO);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 23, 6), -EPROTO);
	assert_int_equal(scan(kv, &at, CRPC_KV_NO_SPACE, 0, 6), -EPROTO);
	assert_int_equal(scan(kv, &at, CRPC_KV_BAD_REQUEST, 0, 6), -EOPNOTSUPP);
	assert_int_equal(at.next, 5);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 0, 6), 0);
	assert_int_equal(newest_walk().cursor, 5);
	assert_int_equal(newest_walk().owner, 0);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 24, 0), 1);
	assert_int_equal(at.owner, 1);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 0, 0), 0);
	assert_int_equal(newest_walk().owner, 1);
	assert_int_equal(newest_walk().cursor, 0);
	assert_int_equal(at.owner, 2);
	assert_int_equal(scan(kv, &at, CRPC_KV_OK, 24, 1), 0);

	answer_walks(CRPC_KV_OK, 16, 0, 0);
	assert_int_equal(crpc_kv_stats(kv, 1, stat), 0);
	assert_int_equal(stat[1], UINT64_C(0x0707070707070707));
	assert_int_equal(stat[2], 0);
	answer_walks(CRPC_KV_OK, CRPC_KV_STATS_N * 8, CRPC_KV_STATS_N, 0);
	assert_int_equal(crpc_kv_stats(kv, 1, stat), 0);
	answer_walks(CRPC_KV_OK, 0, CRPC_KV_STATS_N, 0);
	assert_int_equal(crpc_kv_stats(kv, 1, stat), -EPROTO);
	assert_int_equal(crpc_kv_stats(kv, 2, stat), -EINVAL);

	parts_of_a_scan_are_whole(kv);
	assert_int_equal(crpc_kv_get(kv, &key, 0), 0);
	assert_int_equal(crpc_kv_stats(kv, 1, stat), -EBUSY);
	crpc_kv_wait(kv, &done);
	crpc_kv_close(kv);
	crpc_store_relaxed(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	crpc_ipc_server_free(server);
	daemons = 1;
}

/* Connect as a user that is not root. @return 0 or an errno. */
static int
connect_as_nobody(uid_t trust_uid)
{
	const struct crpc_kv_conf conf = {.name = name, .connect_ms = 5000, .trust_uid = trust_uid};
	struct crpc_kv *kv;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setuid(NOBODY) != 0)
			_exit(EPERM);
		kv = crpc_kv_connect(&conf);
		status = kv == NULL ? errno : 0;
		crpc_kv_close(kv);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/*
 * Anybody can take a name that is free, and let all attach: a client does not talk to a service
 * that is another user's, so no keys and values go there, unless it trusts that user.
 */
static void
a_service_of_another_user_is_refused(void **state)
{
	struct crpc_ipc_server_conf sc = {.name = name,
		.req_max = CRPC_KV_REQ_MAX,
		.resp_max = CRPC_KV_RESP_MAX,
		.mode = 0666};
	char path[64];
	pthread_t thread;

	if (geteuid() != 0)
		skip();
	snprintf(name, sizeof(name), "test_kv.owner.%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/crpc.%s", name);
	crpc_store_relaxed(&stop, false);
	assert_non_null(server = crpc_ipc_server_create(&sc));
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_int_equal(connect_as_nobody(0), 0); /* root's */
	assert_int_equal(chown(path, NOBODY, NOBODY), 0);
	assert_int_equal(connect_as_nobody(0), 0);
	assert_int_equal(chown(path, 1, 1), 0);
	assert_int_equal(connect_as_nobody(0), EACCES);
	assert_int_equal(connect_as_nobody(2), EACCES);
	assert_int_equal(connect_as_nobody(1), 0);
	crpc_store_relaxed(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	crpc_ipc_server_free(server);
}

/* The segment of large values is there and not ready, as while a service begins again. */
static void
a_service_that_begins_again_refuses_the_connection(void **state)
{
	const struct crpc_kv_conf conf = {.name = name, .connect_ms = 50};
	struct crpc_ipc_server_conf sc = {
		.name = name, .req_max = CRPC_KV_REQ_MAX, .resp_max = CRPC_KV_RESP_MAX};
	char text[CRPC_SHM_NAME_MAX];
	struct crpc_shm_conf shm = {.name = text,
		.size = 8192,
		.kind = CRPC_SHM_KIND('K', 'V', 'B', 'L'),
		.kind_version = 1};
	struct crpc_shm *values;
	pthread_t thread;

	value_size = CRPC_KV_VALUE_MAX;
	snprintf(name, sizeof(name), "test_kv.again.%d", (int)getpid());
	snprintf(text, sizeof(text), "%s.values", name);
	crpc_store_relaxed(&stop, false);
	assert_non_null(server = crpc_ipc_server_create(&sc));
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_non_null(values = crpc_shm_create(&shm));
	assert_null(crpc_kv_connect(&conf));
	assert_int_equal(errno, ECONNREFUSED);
	crpc_shm_free(values);
	crpc_store_relaxed(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	crpc_ipc_server_free(server);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_longer_than_the_service_said_are_refused),
		cmocka_unit_test(walks_of_a_service_that_lies_end),
		cmocka_unit_test(a_service_of_another_user_is_refused),
		cmocka_unit_test(a_service_that_begins_again_refuses_the_connection),
	};

	crpc_clock_init();
	return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
