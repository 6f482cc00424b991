/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon and clients that are not benchkv's: one that changes a request after it was sent, and
 * more connections than there are writer ids. The daemon's turns and the clients take turns on one
 * thread.
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
#include "daemon.h"

#define KEY     16
#define WRITERS 20

struct rig {
	struct kv_daemon *d;
	struct kv_fate fate;
	const char *name;
};

static void
rig_open(struct rig *r)
{
	static uint32_t number;
	static char name[48];
	struct kv_store_conf store = {
		.key_size = KEY, .value_max = 8, .capacity = 100, .socket = SOCKET_ID_ANY};
	struct crpc_ipc_server_conf ipc = {.max_clients = 8, .depth = 4, .req_max = 128,
		.resp_max = 128};
	struct kv_daemon *d =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*d), CRPC_CACHE_GUARD));

	assert_non_null(d);
	memset(d, 0, sizeof(*d));
	snprintf(name, sizeof(name), "test_daemon.%d.%u", (int)getpid(), number++);
	store.name = ipc.name = name;
	d->daemons = d->owners = 1;
	d->key_min = d->key_size = KEY;
	d->value_size = 8;
	d->info.writer = d->writer_first = 1;
	d->writer_end = 1 + WRITERS;
	d->fate = &r->fate;
	assert_non_null(d->store = kv_store_create(&store));
	kv_batch_init(&d->batch, d->store);
	assert_non_null(d->ipc = crpc_ipc_server_create(&ipc));
	r->d = d;
	r->name = name;
}

static void
rig_close(struct rig *r)
{
	crpc_ipc_server_free(r->d->ipc);
	kv_store_free(r->d->store);
	free(r->d);
}

static struct crpc_ipc_client *
connected(struct rig *r)
{
	struct crpc_ipc_client_conf conf = {.server = r->d->ipc, .colocated = true};
	struct crpc_ipc_client *c = crpc_ipc_client_connect(&conf);
	uint32_t i;

	assert_non_null(c);
	for (i = 0; i < 8; i++)
		kv_daemon_watch(r->d, crpc_clock_ns(), false);
	return c;
}

/* Turns until a call that was sent completes. */
static struct crpc_done
answer(struct rig *r, struct crpc_ipc_client *c)
{
	struct crpc_done done;
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		kv_daemon_turn(r->d, crpc_clock_ns());
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
	for (n = 0; crpc_clock_ns() < end && kv_store_count(r.d->store) <= 2; n++) {
		msg = crpc_ipc_client_call_reserve(
			c, sizeof(struct kv_req_hdr) + KEY + 8, crpc_ipc_client_resp_max(c));
		if (msg == NULL) {
			fail_msg("no room for a request");
			break;
		}
		len = kv_req_write(msg, KV_PUT, KEY, 8);
		memset(msg + sizeof(struct kv_req_hdr), 0, KEY + 8);
		msg[sizeof(struct kv_req_hdr)] = 1;
		crpc_store_relaxed(at, (uint64_t *)(void *)(msg + sizeof(struct kv_req_hdr)));
		crpc_ipc_client_call_commit(c, crpc_clock_ns(), msg, len, n);
		assert_int_equal(answer(&r, c).status, 0);
		crpc_store_relaxed(at, (uint64_t *)NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_in_range(kv_store_count(r.d->store), 1, 2);
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

	assert_int_equal(crpc_ipc_client_call(c, crpc_clock_ns(), msg,
				 kv_req_write(msg, KV_INFO, 0, 0), crpc_ipc_client_resp_max(c), 0),
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

int
main(void)
{
	char *argv[] = {(char[]){"test_daemon"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_daemon"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_that_changes_is_stored_once),
		cmocka_unit_test(writer_ids_do_not_run_out),
	};
	int rc;

	crpc_clock_init();
	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	rc = cmocka_run_group_tests_name("benchkv_daemon", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
