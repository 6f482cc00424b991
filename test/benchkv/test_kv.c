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
static _Atomic bool stop;
static char name[40];

/* Answers INFO as it should, and a get of a key with a value of as many bytes as the key says. */
static void
answer(const struct crpc_req *req)
{
	const struct kv_info info = {.ranks = 1,
		.daemons = 1,
		.keys = 1,
		.key_size = 8,
		.value_size = value_size,
		.writers = 1};
	static uint8_t msg[KV_RESP_MAX];
	struct kv_req get;
	uint64_t bytes;

	assert_int_equal(kv_req_read(req->data, req->len, &get), 0);
	if (get.op == KV_INFO) {
		kv_resp_write(msg, KV_OK, KV_INFO, sizeof(info), 0);
		memcpy(msg + sizeof(struct kv_resp_hdr), &info, sizeof(info));
		crpc_ipc_server_reply(server, crpc_clock_ns(), req->token, msg,
			sizeof(struct kv_resp_hdr) + sizeof(info));
		return;
	}
	memcpy(&bytes, get.key, 8);
	kv_resp_write(msg, bytes % 2 != 0 ? KV_OK : KV_MISMATCH, get.op, bytes, 7);
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
		for (i = 0; i < n; i++)
			answer(&req[i]);
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
		.name = name, .req_max = KV_REQ_MAX, .resp_max = KV_RESP_MAX};
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

/* Connect as a user that is not root. @return 0 or an errno. */
static int
connect_as_nobody(void)
{
	const struct crpc_kv_conf conf = {.name = name, .connect_ms = 5000};
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
 * that is another user's, so no keys and values go there.
 */
static void
a_service_of_another_user_is_refused(void **state)
{
	struct crpc_ipc_server_conf sc = {
		.name = name, .req_max = KV_REQ_MAX, .resp_max = KV_RESP_MAX, .mode = 0666};
	char path[64];
	pthread_t thread;

	if (geteuid() != 0)
		skip();
	snprintf(name, sizeof(name), "test_kv.owner.%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/crpc.%s", name);
	crpc_store_relaxed(&stop, false);
	assert_non_null(server = crpc_ipc_server_create(&sc));
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_int_equal(connect_as_nobody(), 0); /* root's */
	assert_int_equal(chown(path, NOBODY, NOBODY), 0);
	assert_int_equal(connect_as_nobody(), 0);
	assert_int_equal(chown(path, 1, 1), 0);
	assert_int_equal(connect_as_nobody(), EACCES);
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
		.name = name, .req_max = KV_REQ_MAX, .resp_max = KV_RESP_MAX};
	char text[CRPC_SHM_NAME_MAX];
	struct crpc_shm_conf shm = {.name = text,
		.size = 8192,
		.kind = CRPC_SHM_KIND('K', 'V', 'B', 'L'),
		.kind_version = 1};
	struct crpc_shm *values;
	pthread_t thread;

	value_size = KV_VALUE_MAX;
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
		cmocka_unit_test(a_service_of_another_user_is_refused),
		cmocka_unit_test(a_service_that_begins_again_refuses_the_connection),
	};

	crpc_clock_init();
	return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
