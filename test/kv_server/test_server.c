/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two servers of one process, each a rank, whose loops take turns on one thread: what becomes of
 * operations while a rank is new, up, lost and made new, and which addresses are refused. On the
 * device that there is, the software ConnectX in the tests of this tree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>

#include "crpc_clock.h"
#include "crpc_kv_server.h"
#include "crpc_log.h"
#include "crpc_shm.h"

#define RANKS   2
#define DAEMONS 2
#define KEYS    256
#define BLOB    65536
/* Nothing here takes that long but what hangs. */
#define LIMIT_NS UINT64_C(20000000000)

struct rig {
	struct crpc_kv_server *s[RANKS];
	struct crpc_ipc_client *c[RANKS]; /* At daemon 0 of each. */
	uint32_t number;
	uint64_t watch_ns;
};

static uint32_t rig_clients = 4, rig_depth = 8, rig_daemons = DAEMONS;
static bool rig_on_use;
static int reset_fails;
static uint32_t resets, errors;

int __real_crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep);
int __wrap_crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep);

/* A device that has no queue pair left. */
int
__wrap_crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep)
{
	resets++;
	return reset_fails != 0 ? reset_fails : __real_crpc_copyrpc_ep_reset(ep);
}

static void
count_errors(enum crpc_log_level level, const char *type, const char *line)
{
	(void)level;
	(void)type;
	errors += strstr(line, "rank 1: daemon 0 cannot make its endpoints fresh: Cannot") != NULL;
}

static struct crpc_kv_server *
server_new(struct rig *r, uint32_t rank, uint32_t value_max)
{
	char name[40];
	struct crpc_kv_server_conf conf = {
		.rank = rank,
		.ranks = RANKS,
		.daemons = rig_daemons,
		.value_max = value_max,
		.capacity = 2 * KEYS,
		.name = name,
		.clients = rig_clients,
		.depth = rig_depth,
		.timeout_ns = 200000000,
		.on_use = rig_on_use,
	};
	struct crpc_kv_server *s;

	snprintf(name, sizeof(name), "test_server.%d.%u", (int)getpid(), r->number++);
	s = crpc_kv_server_create(&conf);
	assert_non_null(s);
	return s;
}

/* A rank, and a client of it. */
static void
rank_start(struct rig *r, uint32_t rank)
{
	struct crpc_ipc_client_conf conf = {0};
	struct crpc_kv_parts parts;

	r->s[rank] = server_new(r, rank, 8);
	crpc_kv_daemon_parts(crpc_kv_server_daemon(r->s[rank], 0), &parts);
	conf.server = parts.ipc;
	r->c[rank] = crpc_ipc_client_connect(&conf);
	assert_non_null(r->c[rank]);
}

static void
rank_end(struct rig *r, uint32_t rank)
{
	crpc_ipc_client_close(r->c[rank]);
	crpc_kv_server_free(r->s[rank]);
	r->s[rank] = NULL;
}

static void
step_rank(struct rig *r, uint32_t rank, bool watch)
{
	uint32_t i;

	for (i = 0; i < rig_daemons; i++) {
		crpc_kv_daemon_turn(crpc_kv_server_daemon(r->s[rank], i), crpc_clock_ns());
		if (watch)
			crpc_kv_daemon_watch(crpc_kv_server_daemon(r->s[rank], i), crpc_clock_ns());
	}
}

static void
step(struct rig *r)
{
	uint64_t now = crpc_clock_ns();
	bool watch = now - r->watch_ns > 1000000;
	uint32_t i;

	r->watch_ns = watch ? now : r->watch_ns;
	for (i = 0; i < RANKS; i++)
		if (r->s[i] != NULL)
			step_rank(r, i, watch);
}

static uint64_t
key_of(const struct crpc_kv_server *s, uint64_t from)
{
	while (!crpc_kv_server_owns(s, &from, sizeof(from)))
		from++;
	return from;
}

static void
call(struct rig *r, uint32_t rank, enum kv_op op, uint64_t key, uint64_t value)
{
	uint8_t msg[24];
	uint32_t len = kv_req_write(msg, op, 8, op == CRPC_KV_PUT ? 8 : 0);

	memcpy(msg + 8, &key, 8);
	memcpy(msg + 16, &value, 8);
	assert_int_equal(crpc_ipc_client_call(r->c[rank], crpc_clock_ns(), msg, len,
				 crpc_ipc_client_resp_max(r->c[rank]), key),
		0);
}

/* Step until the call ends. @return its status, or -1000 - status of the answer. */
static int
ended(struct rig *r, uint32_t rank)
{
	uint64_t end = crpc_clock_ns() + LIMIT_NS;
	struct kv_resp_hdr hdr = {0};
	const uint8_t *value;
	struct crpc_done done;

	while (crpc_ipc_client_poll(r->c[rank], crpc_clock_ns(), &done, 1) == 0) {
		if (crpc_clock_ns() > end)
			fail_msg("no answer");
		step(r);
	}
	if (done.status != 0)
		return done.status;
	assert_int_equal(kv_resp_read(done.data, done.len, &hdr, &value), 0);
	return -1000 - hdr.status;
}

#define ANSWER(status) (-1000 - (status))

static int
op(struct rig *r, uint32_t rank, enum kv_op what, uint64_t key)
{
	call(r, rank, what, key, key * 7);
	return ended(r, rank);
}

static void
until(struct rig *r, uint32_t rank, enum crpc_kv_peer state)
{
	uint64_t end = crpc_clock_ns() + LIMIT_NS;

	while (crpc_kv_server_peer(r->s[rank], 1 - rank) != state) {
		if (crpc_clock_ns() > end)
			fail_msg("rank %u: state %d instead of %d", rank,
				crpc_kv_server_peer(r->s[rank], 1 - rank), state);
		step(r);
	}
}

/* Give the addresses of one rank to the other. */
static int
introduce(struct rig *r, uint32_t from, uint32_t to)
{
	static uint8_t blob[BLOB];
	int64_t len = crpc_kv_server_address(r->s[from], to, blob, sizeof(blob));

	assert_true(len > 0);
	return crpc_kv_server_connect(r->s[to], from, blob, (size_t)len);
}

static void
connect_both(struct rig *r)
{
	assert_int_equal(introduce(r, 0, 1), 0);
	/* An address stays what it is until there is a connection. */
	assert_int_equal(introduce(r, 1, 0), 0);
	until(r, 0, CRPC_KV_PEER_UP);
	until(r, 1, CRPC_KV_PEER_UP);
}

static struct rig *
rig_open(void)
{
	static struct rig r;
	uint32_t i;

	r = (struct rig){.number = r.number};
	for (i = 0; i < RANKS; i++)
		rank_start(&r, i);
	return &r;
}

static void
rig_close(struct rig *r)
{
	rank_end(r, 0);
	rank_end(r, 1);
}

/* Every key can be had at every rank once they are connected, and before only a rank's own. */
static void
keys_of_a_rank_that_is_not_up_are_refused_at_once(void **state)
{
	struct rig *r = rig_open();
	uint64_t near = key_of(r->s[0], 1), far = key_of(r->s[1], 1), key;

	assert_int_equal(crpc_kv_server_peer(r->s[0], 0), CRPC_KV_PEER_UP);
	assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_NEW);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, near), ANSWER(CRPC_KV_OK));
	assert_int_equal(op(r, 0, CRPC_KV_PUT, far), -EHOSTUNREACH);
	connect_both(r);
	for (key = 0; key < KEYS; key++)
		assert_int_equal(op(r, key % 2, CRPC_KV_PUT, key), ANSWER(CRPC_KV_OK));
	for (key = 0; key < KEYS; key++)
		assert_int_equal(op(r, 1 - key % 2, CRPC_KV_GET, key), ANSWER(CRPC_KV_OK));
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, "", 0), -EINVAL);
	assert_int_equal(crpc_kv_server_renew(r->s[0], 1), -EINVAL);
	assert_null(crpc_kv_server_peer_why(r->s[0], 1));
	rig_close(r);
}

/*
 * A rank that was started again has another process's endpoints and no keys. What was under way to
 * the first one ends with an error, and reaches the second one never.
 */
static void
a_rank_that_comes_again_is_served_again(void **state)
{
	struct rig *r = rig_open();
	uint64_t far = key_of(r->s[1], 1), lost, round;
	static uint8_t blob[BLOB];

	connect_both(r);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, far), ANSWER(CRPC_KV_OK));
	for (round = 0; round < 3; round++) {
		lost = key_of(r->s[1], far + 1);
		call(r, 0, CRPC_KV_PUT, lost, round);
		step_rank(r, 0, false); /* It has left, and is not served. */
		rank_end(r, 1);
		crpc_kv_server_lose(r->s[0], 1, "its process has ended");
		assert_int_equal(ended(r, 0), -EHOSTDOWN);
		assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_LOST);
		assert_string_equal(crpc_kv_server_peer_why(r->s[0], 1), "its process has ended");
		assert_int_equal(op(r, 0, CRPC_KV_GET, far), -EHOSTUNREACH);
		assert_int_equal(crpc_kv_server_lost(r->s[0]), round + 1);

		rank_start(r, 1);
		assert_int_equal(crpc_kv_server_renew(r->s[0], 1), 0);
		assert_int_equal(crpc_kv_server_renew(r->s[0], 1), 0);
		assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_LOST);
		assert_int_equal(crpc_kv_server_address(r->s[0], 1, blob, sizeof(blob)), -EAGAIN);
		until(r, 0, CRPC_KV_PEER_NEW);
		assert_int_equal(op(r, 0, CRPC_KV_GET, far), -EHOSTUNREACH);
		connect_both(r);
		assert_int_equal(op(r, 0, CRPC_KV_GET, far), ANSWER(CRPC_KV_NOT_FOUND));
		assert_int_equal(op(r, 0, CRPC_KV_GET, lost), ANSWER(CRPC_KV_NOT_FOUND));
		assert_int_equal(op(r, 1, CRPC_KV_PUT, key_of(r->s[0], 1)), ANSWER(CRPC_KV_OK));
		assert_int_equal(op(r, 0, CRPC_KV_PUT, far), ANSWER(CRPC_KV_OK));
	}
	rig_close(r);
}

/* Step until a request of a rank waits for the other one, then connect the two. */
static void
connect_wanted(struct rig *r, uint32_t rank)
{
	uint64_t end = crpc_clock_ns() + LIMIT_NS;
	static uint8_t blob[BLOB];
	int64_t len = -EAGAIN;
	uint32_t i;

	while (crpc_kv_server_wanted(r->s[rank]) != 1 - rank) {
		assert_true(crpc_clock_ns() < end);
		step(r);
	}
	assert_int_equal(crpc_kv_server_wanted(r->s[rank]), RANKS);
	for (i = 0; i < RANKS; len = i++ == 0 ? -EAGAIN : len)
		while (len == -EAGAIN && crpc_clock_ns() < end) {
			step(r);
			len = crpc_kv_server_address(r->s[i], 1 - i, blob, sizeof(blob));
		}
	assert_true(len > 0);
	connect_both(r);
	assert_int_equal(crpc_kv_server_wanted(r->s[rank]), RANKS);
}

/* With on_use there are no endpoints before a request needs them, and it waits for them. */
static void
requests_wait_until_their_rank_is_connected(void **state)
{
	uint64_t near, far;
	struct rig *r;

	rig_on_use = true;
	r = rig_open();
	near = key_of(r->s[0], 1);
	far = key_of(r->s[1], 1);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, near), ANSWER(CRPC_KV_OK));
	assert_int_equal(crpc_kv_server_wanted(r->s[0]), RANKS);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, far), -EHOSTUNREACH); /* It is not here. */
	assert_int_equal(crpc_kv_server_wanted(r->s[0]), RANKS);
	crpc_kv_server_here(r->s[0], 1, true);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, far), -EHOSTUNREACH); /* Nobody connects them. */
	call(r, 0, CRPC_KV_PUT, far, 7);
	step_rank(r, 0, true);
	crpc_kv_server_here(r->s[0], 1, false);
	assert_int_equal(ended(r, 0), -EHOSTUNREACH); /* It has gone meanwhile. */
	crpc_kv_server_here(r->s[0], 1, true);
	call(r, 0, CRPC_KV_PUT, far, 7);
	connect_wanted(r, 0);
	assert_int_equal(ended(r, 0), ANSWER(CRPC_KV_OK));
	assert_int_equal(op(r, 1, CRPC_KV_GET, near), ANSWER(CRPC_KV_OK));
	/* The other one comes again, and asks first. */
	rank_end(r, 1);
	crpc_kv_server_lose(r->s[0], 1, "its process has ended");
	step_rank(r, 0, true);
	assert_int_equal(op(r, 0, CRPC_KV_GET, far), -EHOSTUNREACH);
	rank_start(r, 1);
	assert_int_equal(crpc_kv_server_renew(r->s[0], 1), 0);
	until(r, 0, CRPC_KV_PEER_NEW);
	crpc_kv_server_here(r->s[1], 0, true);
	call(r, 1, CRPC_KV_GET, near, 0);
	connect_wanted(r, 1);
	assert_int_equal(ended(r, 1), ANSWER(CRPC_KV_OK));
	assert_int_equal(op(r, 0, CRPC_KV_GET, far), ANSWER(CRPC_KV_NOT_FOUND));
	rig_close(r);
	rig_on_use = false;
}

/* What the device does not give is asked for later and later, and logged once. */
static void
a_link_that_cannot_be_reset_is_reported_once(void **state)
{
	struct rig *r = rig_open();
	struct crpc_kv_daemon *d = crpc_kv_server_daemon(r->s[0], 0);
	uint64_t now = crpc_clock_ns();
	uint32_t i;

	connect_both(r);
	crpc_log_set_sink(count_errors, CRPC_LOG_ERR);
	errors = resets = 0;
	reset_fails = -ENOMEM;
	crpc_kv_server_lose(r->s[0], 1, "its process has ended");
	assert_int_equal(crpc_kv_server_renew(r->s[0], 1), 0);
	for (i = 0; i < 20000; i++) { /* 20 s */
		now += 1000000;
		crpc_kv_daemon_watch(d, now);
	}
	assert_int_equal(errors, 1);
	assert_in_range(resets, 10, 40);
	assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_LOST);
	reset_fails = 0;
	for (i = 0; i < 2000; i++) {
		now += 1000000;
		crpc_kv_daemon_watch(d, now);
	}
	assert_int_equal(errors, 1);
	crpc_log_set_sink(NULL, CRPC_LOG_ERR);
	rig_close(r);
}

/* Both ranks live, and lose each other: what one had sent is not served after they meet again. */
static void
nothing_of_the_earlier_connection_is_served(void **state)
{
	struct rig *r = rig_open();
	uint64_t far = key_of(r->s[1], 1), near = key_of(r->s[0], 1);
	uint32_t i;

	connect_both(r);
	call(r, 0, CRPC_KV_PUT, far, 1);
	step_rank(r, 0, false);
	call(r, 1, CRPC_KV_PUT, near, 1);
	for (i = 0; i < RANKS; i++)
		crpc_kv_server_lose(r->s[i], 1 - i, "the network between them");
	for (i = 0; i < RANKS; i++) /* Not a turn before they know. */
		crpc_kv_daemon_watch(crpc_kv_server_daemon(r->s[1], i), crpc_clock_ns());
	assert_int_equal(ended(r, 0), -EHOSTDOWN);
	assert_int_equal(ended(r, 1), -EHOSTUNREACH);
	for (i = 0; i < RANKS; i++)
		assert_int_equal(crpc_kv_server_renew(r->s[i], 1 - i), 0);
	for (i = 0; i < RANKS; i++)
		until(r, i, CRPC_KV_PEER_NEW);
	connect_both(r);
	assert_int_equal(op(r, 0, CRPC_KV_GET, far), ANSWER(CRPC_KV_NOT_FOUND));
	assert_int_equal(op(r, 1, CRPC_KV_GET, near), ANSWER(CRPC_KV_NOT_FOUND));
	rig_close(r);
}

/* A rank that answers nothing is lost when the deadline has passed, with the reason. */
static void
a_rank_that_hangs_is_lost(void **state)
{
	struct rig *r = rig_open();
	struct crpc_kv_server *hangs = r->s[1];

	connect_both(r);
	r->s[1] = NULL;
	until(r, 0, CRPC_KV_PEER_LOST);
	assert_string_equal(crpc_kv_server_peer_why(r->s[0], 1), "it did not answer for 0.2 s");
	r->s[1] = hangs;
	rig_close(r);
}

/* Each byte of the head, the length, and what a rank of other sizes gives. */
static void
addresses_of_another_size_or_version_are_refused(void **state)
{
	struct rig *r = rig_open();
	struct crpc_kv_server *other = server_new(r, 1, 16);
	/* doc/protocol/benchkv_kv.md */
	static const uint32_t head[12] = {0x4156524b, 1, 1, RANKS, DAEMONS, DAEMONS, 0, 1, 8, 0, 8};
	static uint8_t blob[BLOB], bad[BLOB];
	int64_t len = crpc_kv_server_address(r->s[1], 0, blob, sizeof(blob));
	uint32_t i;

	assert_int_equal(len, crpc_kv_server_address_max(r->s[1]));
	assert_memory_equal(blob, head, sizeof(head));
	assert_int_equal(len, sizeof(head) + DAEMONS * DAEMONS * CRPC_COPYRPC_ADDR_LEN);
	assert_int_equal(crpc_kv_server_address(r->s[1], 0, bad, (size_t)len - 1), -ENOSPC);
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, blob, (size_t)len - 1), -EPROTO);
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, blob, (size_t)len + 1), -EPROTO);
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, blob, 0), -EPROTO);
	for (i = 0; i < sizeof(head); i++) {
		memcpy(bad, blob, (size_t)len);
		bad[i] ^= 1;
		assert_int_equal(crpc_kv_server_connect(r->s[0], 1, bad, (size_t)len), -EPROTO);
	}
	assert_int_equal(crpc_kv_server_address(other, 0, bad, sizeof(bad)), len);
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, bad, (size_t)len), -EPROTO);
	assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_NEW);
	/* What only an endpoint can refuse loses the rank, which can be tried again. */
	memcpy(bad, blob, (size_t)len);
	memset(bad + sizeof(head), 0, (size_t)len - sizeof(head));
	assert_int_equal(crpc_kv_server_connect(r->s[0], 1, bad, (size_t)len), 0);
	assert_int_equal(crpc_kv_server_peer(r->s[0], 1), CRPC_KV_PEER_LOST);
	assert_int_equal(crpc_kv_server_renew(r->s[0], 1), 0);
	until(r, 0, CRPC_KV_PEER_NEW);
	connect_both(r);
	assert_int_equal(op(r, 0, CRPC_KV_PUT, key_of(r->s[1], 1)), ANSWER(CRPC_KV_OK));
	crpc_kv_server_free(other);
	rig_close(r);
}

/* What cannot be is refused before there is a segment, with the reason. */
static void
sizes_that_cannot_be_are_refused(void **state)
{
	static const struct crpc_kv_front front;
	static const struct crpc_kv_server_conf bad[] = {
		{.capacity = 0},
		{.capacity = 8, .key_size = CRPC_KV_KEY_MIN - 1},
		{.capacity = 8, .key_size = CRPC_KV_KEY_MAX + 1},
		{.capacity = 8, .value_max = CRPC_KV_VALUE_MIN - 1},
		{.capacity = 8, .value_max = CRPC_KV_VALUE_MAX + 1},
		/* Larger values need the arena that clients of ipc share. */
		{.capacity = 8, .value_max = CRPC_KV_VALUE_INLINE + 1, .calls = 1, .front = &front},
	};
	struct crpc_kv_server_conf conf;
	uint32_t i;

	for (i = 0; i < CRPC_DIM(bad); i++) {
		conf = bad[i];
		conf.name = "test_server.sizes";
		conf.clients = conf.front == NULL;
		assert_null(crpc_kv_server_create(&conf));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), "server: expected keys of"));
	}
}

/* Clients of the group may connect to all segments, and to those of large values. */
static void
segments_are_the_groups(void **state)
{
	static const char *const suffix[] = {"", ".values"};
	struct crpc_kv_server_conf conf = {.name = "test_server.group",
		.value_max = 2 * CRPC_KV_VALUE_INLINE,
		.capacity = 8,
		.clients = 1,
		.mode = 0660,
		.gid = geteuid() == 0 ? 1 : getegid()};
	struct crpc_kv_server *s = crpc_kv_server_create(&conf);
	char path[96];
	struct stat st;
	uint32_t i;

	assert_non_null(s);
	for (i = 0; i < CRPC_DIM(suffix); i++) {
		snprintf(path, sizeof(path), "/dev/shm/crpc.%s%s", conf.name, suffix[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_gid, conf.gid);
		assert_int_equal(st.st_mode & 0777, 0660);
	}
	crpc_kv_server_free(s);
}

/* Each daemon's keys come back from its file, however often written; a missing one is counted. */
static void
snapshots_bring_a_server_back(void **state)
{
	struct rig *r = rig_open();
	char path[] = "/tmp/test_server.XXXXXX", file[64];
	struct crpc_kv_server *back = server_new(r, 0, 8);
	uint64_t key, mine = 0;
	uint32_t i, missing;
	int64_t keys;

	assert_true(close(mkstemp(path)) == 0);
	for (key = 0; key < KEYS; key++) {
		bool owns = crpc_kv_server_owns(r->s[0], &key, 8);

		mine += owns;
		assert_int_equal(crpc_kv_server_load(r->s[0], &key, 8, &key, 8), owns ? 0 : -EXDEV);
	}
	assert_int_equal(crpc_kv_server_load(r->s[0], &key, 7, &key, 8), -EINVAL);
	assert_false(crpc_kv_server_owns(r->s[0], &key, 7));
	assert_int_equal(crpc_kv_server_load(r->s[0], &key, 8, &key, 9), -EINVAL);
	assert_int_equal(crpc_kv_server_load(r->s[0], &key, 8, &key, 0), -EINVAL);
	assert_int_equal(crpc_kv_server_snapshot_copy(r->s[0], 0, UINT32_MAX), -ENOENT);
	/* A key more in each round: only the last files have all of them. */
	for (uint32_t round = 0; round < 3; round++) {
		while (crpc_kv_server_load(r->s[0], &key, 8, &key, 8) != 0)
			key++;
		key++;
		mine++;
		assert_int_equal(crpc_kv_server_snapshot_claim(r->s[0], path), 0);
		assert_int_equal(crpc_kv_server_snapshot_commit(r->s[0]), -ENOENT);
		for (i = 0, keys = 0; i < DAEMONS; i++)
			keys += crpc_kv_server_snapshot_copy(r->s[0], i, UINT32_MAX);
		assert_int_equal(keys, mine);
		assert_int_equal(crpc_kv_server_snapshot_commit(r->s[0]), 0);
	}
	assert_int_equal(crpc_kv_server_restore(back, path, &missing), mine);
	assert_int_equal(missing, 0);
	crpc_kv_server_free(back);

	snprintf(file, sizeof(file), "%s.1", path);
	unlink(file);
	back = server_new(r, 0, 8);
	keys = crpc_kv_server_restore(back, path, &missing);
	assert_in_range(keys, 1, mine - 1);
	assert_int_equal(missing, 1);
	crpc_kv_server_free(back);
	snprintf(file, sizeof(file), "%s.0", path);
	unlink(file);
	unlink(path);
	rig_close(r);
}

static struct crpc_ipc_client *
client_new(struct rig *r, uint32_t rank)
{
	struct crpc_ipc_client_conf conf = {0};
	struct crpc_ipc_client *c;
	struct crpc_kv_parts parts;

	crpc_kv_daemon_parts(crpc_kv_server_daemon(r->s[rank], 0), &parts);
	conf.server = parts.ipc;
	c = crpc_ipc_client_connect(&conf);
	assert_non_null(c);
	return c;
}

/* The next key of the other rank's daemon 0. */
static uint64_t
far_key(uint64_t from)
{
	while (kv_owner(kv_hash(&from, 8), RANKS * rig_daemons) != rig_daemons)
		from++;
	return from;
}

static void
step_for(struct rig *r, uint64_t ns)
{
	uint64_t end = crpc_clock_ns() + ns;

	while (crpc_clock_ns() < end)
		step(r);
}

/*
 * The clients have as many calls open to a rank that hangs as an endpoint can have: it is lost all
 * the same, and each of their calls ends.
 */
static void
a_rank_that_hangs_with_all_calls_open_is_lost(void **state)
{
	static struct crpc_ipc_client *c[20];
	struct crpc_kv_server *hangs;
	struct crpc_done done[64];
	uint64_t key = 1, end, lost_ns = 0, begin;
	uint32_t i, k, sent = 0, taken = 0, n;
	uint8_t msg[24];
	struct rig *r;

	rig_clients = 24;
	rig_depth = 256;
	rig_daemons = 1;
	r = rig_open();
	connect_both(r);
	for (i = 0; i < CRPC_DIM(c); i++)
		c[i] = client_new(r, 0);
	step_for(r, 130000000); /* The ping of this 0.1 s is answered, */
	hangs = r->s[1];
	r->s[1] = NULL; /* and it hangs. */
	begin = crpc_clock_ns();
	for (k = 0; k < 256; k++) {
		for (i = 0; i < CRPC_DIM(c); i++) {
			kv_req_write(msg, CRPC_KV_PUT, 8, 8);
			key = far_key(key + 1);
			memcpy(msg + 8, &key, 8);
			if (crpc_ipc_client_call(c[i], crpc_clock_ns(), msg, 24, 24, key) == 0)
				sent++;
		}
		step(r);
	}
	print_message("%u calls in %llu ms\n", sent,
		(unsigned long long)(crpc_clock_ns() - begin) / 1000000);
	for (end = crpc_clock_ns() + 8000000000; crpc_clock_ns() < end;) {
		step(r);
		for (i = 0; i < CRPC_DIM(c); i++) {
			n = crpc_ipc_client_poll(c[i], crpc_clock_ns(), done, 64);
			taken += n;
		}
		if (lost_ns == 0 && crpc_kv_server_peer(r->s[0], 1) == CRPC_KV_PEER_LOST)
			lost_ns = crpc_clock_ns() - begin;
		if (lost_ns != 0 && taken == sent)
			break;
	}
	print_message("8 s later: %u of %u calls have ended, lost after %llu ms (0: not)\n", taken,
		sent, (unsigned long long)lost_ns / 1000000);
	if (lost_ns == 0)
		crpc_kv_server_lose(r->s[0], 1, "the test ends");
	step_for(r, 10000000);
	r->s[1] = hangs;
	for (i = 0; i < CRPC_DIM(c); i++)
		crpc_ipc_client_close(c[i]);
	rig_close(r);
	rig_clients = 4;
	rig_depth = 8;
	rig_daemons = DAEMONS;
	assert_true(lost_ns != 0);
	assert_int_equal(taken, sent);
}

/* In the place of rank 1's daemons: lives, and keeps all requests. */
static void
step_liar(struct rig *r)
{
	struct crpc_done done[64];
	struct crpc_req req[64];
	struct crpc_kv_parts parts;
	uint32_t d;

	for (d = 0; d < rig_daemons; d++) {
		crpc_kv_daemon_parts(crpc_kv_server_daemon(r->s[1], d), &parts);
		crpc_copyrpc_poll(parts.copyrpc, crpc_clock_ns(), done, 64);
		crpc_copyrpc_recv(parts.copyrpc, crpc_clock_ns(), req, 64);
		crpc_copyrpc_flush(parts.copyrpc, crpc_clock_ns());
	}
}

/* A rank lives and answers nothing: each call ends, and our own keys are served. */
static void
a_rank_that_lives_and_answers_nothing_costs_nobody_else(void **state)
{
	struct rig *r = rig_open();
	struct crpc_done done[64];
	uint64_t now, watch = 0, begin, last = 0, key = 1, near;
	uint32_t sent = 0, ended_n = 0, again = 0, n;
	uint8_t msg[24];
	int rc = 0;

	connect_both(r);
	near = key_of(r->s[0], 1);
	begin = last = crpc_clock_ns();
	while (crpc_clock_ns() - begin < 10000000000) {
		now = crpc_clock_ns();
		step_rank(r, 0, now - watch > 1000000);
		watch = now - watch > 1000000 ? now : watch;
		step_liar(r);
		kv_req_write(msg, CRPC_KV_PUT, 8, 8);
		key = far_key(key + 1);
		memcpy(msg + 8, &key, 8);
		rc = crpc_ipc_client_call(r->c[0], now, msg, 24, 24, key);
		sent += rc == 0;
		n = crpc_ipc_client_poll(r->c[0], now, done, 64);
		ended_n += n;
		last = n != 0 ? now : last;
		if (now - last > 3000000000)
			break;
	}
	print_message("%u calls sent, %u ended, nothing for %llu ms; state %d\n", sent, ended_n,
		(unsigned long long)(crpc_clock_ns() - last) / 1000000,
		crpc_kv_server_peer(r->s[0], 1));
	/* A key of ours. */
	kv_req_write(msg, CRPC_KV_PUT, 8, 8);
	memcpy(msg + 8, &near, 8);
	for (begin = crpc_clock_ns(); rc != 0 && crpc_clock_ns() - begin < 1000000000;) {
		rc = crpc_ipc_client_call(r->c[0], crpc_clock_ns(), msg, 24, 24, near);
		crpc_ipc_client_poll(r->c[0], crpc_clock_ns(), done, 64);
		step_rank(r, 0, true);
		step_liar(r);
		again += rc == -EAGAIN;
	}
	print_message("a call for a key of this rank: %d, %u times -EAGAIN\n", rc, again);
	now = crpc_clock_ns() - last;
	rig_close(r);
	assert_int_equal(rc, 0);
	assert_true(now < 3000000000);
}

/* In whatever order three daemons of one thread are joined, they find each other's requests. */
static void
daemons_can_be_joined_in_any_order(void **state)
{
	static const uint8_t orders[][6] = {{0, 1, 0, 2, 1, 2}, {0, 1, 2, 1, 0, 2}};
	struct crpc_ipc_client_conf conf = {0};
	struct crpc_kv_server_conf sc = {.daemons = 3, .capacity = 100, .clients = 2, .depth = 8};
	struct crpc_kv_parts parts;
	struct crpc_kv_server *s;
	struct crpc_ipc_client *c;
	struct crpc_done done;
	uint32_t i, k, from, to, bad = 0;
	uint8_t msg[24];
	uint64_t key, end;
	char name[40];

	for (i = 0; i < CRPC_DIM(orders); i++) {
		snprintf(name, sizeof(name), "test_server.join.%d.%u", (int)getpid(), i);
		sc.name = name;
		s = crpc_kv_server_create(&sc);
		assert_non_null(s);
		for (k = 0; k < 6; k += 2)
			crpc_kv_daemon_join(crpc_kv_server_daemon(s, orders[i][k]),
				crpc_kv_server_daemon(s, orders[i][k + 1]));
		for (from = 0; from < 3; from++) {
			crpc_kv_daemon_parts(crpc_kv_server_daemon(s, from), &parts);
			conf.server = parts.ipc;
			conf.call_timeout_us = 500000;
			c = crpc_ipc_client_connect(&conf);
			assert_non_null(c);
			for (to = 0; to < 3; to++) {
				key = from * 1000 + 1;
				while (kv_owner(kv_hash(&key, 8), 3) != to)
					key++;
				/* A get of no key: not by the short way. */
				kv_req_write(msg, CRPC_KV_GET, 8, 0);
				memcpy(msg + 8, &key, 8);
				assert_int_equal(
					crpc_ipc_client_call(c, crpc_clock_ns(), msg, 16, 24, 0),
					0);
				end = crpc_clock_ns() + 1000000000;
				done.status = -1;
				while (crpc_ipc_client_poll(c, crpc_clock_ns(), &done, 1) == 0 &&
					crpc_clock_ns() < end)
					for (k = 0; k < 3; k++) {
						crpc_kv_daemon_turn(crpc_kv_server_daemon(s, k),
							crpc_clock_ns());
						crpc_kv_daemon_watch(crpc_kv_server_daemon(s, k),
							crpc_clock_ns());
					}
				if (done.status != 0)
					print_message("order %u: daemon %u to %u: status %d\n", i,
						from, to, done.status);
				bad += done.status != 0;
			}
			crpc_ipc_client_close(c);
		}
		crpc_kv_server_free(s);
	}
	assert_int_equal(bad, 0);
}

/* A process that makes a segment of this name and dies. */
static void
leave_segment(const char *name)
{
	struct crpc_shm_conf conf = {.name = name, .size = 4096};
	pid_t pid = fork();

	if (pid == 0)
		_exit(crpc_shm_create(&conf) == NULL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * Of a service that was killed everything goes when one of that name starts, also what the new one
 * has no daemons for. Another name, and what lives, stays.
 */
static void
segments_of_a_killed_service_go(void **state)
{
	static const char *const left[] = {".0.1", ".0.1.values", ".1.0"};
	struct crpc_kv_server_conf sc = {.capacity = 100, .clients = 2, .depth = 8};
	struct crpc_shm_conf living = {.size = 4096};
	char name[40], one[64], path[80];
	struct crpc_kv_server *s;
	struct crpc_shm *seg;
	uint32_t i;

	snprintf(name, sizeof(name), "test_server.killed.%d", (int)getpid());
	for (i = 0; i < CRPC_DIM(left); i++) {
		snprintf(one, sizeof(one), "%s%s", name, left[i]);
		leave_segment(one);
	}
	snprintf(one, sizeof(one), "%sother.0", name);
	leave_segment(one);
	snprintf(path, sizeof(path), "%s.0.2", name);
	living.name = path;
	assert_non_null(seg = crpc_shm_create(&living));
	sc.name = name;
	assert_non_null(s = crpc_kv_server_create(&sc));
	for (i = 0; i < CRPC_DIM(left); i++) {
		snprintf(path, sizeof(path), "/dev/shm/crpc.%s%s", name, left[i]);
		assert_int_equal(access(path, F_OK), -1);
	}
	assert_int_equal(access(crpc_shm_path(seg), F_OK), 0);
	snprintf(path, sizeof(path), "/dev/shm/crpc.%s", one);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(crpc_shm_remove("/dev/shm", one), 0);
	crpc_kv_server_free(s);
	crpc_shm_free(seg);
}

int
main(void)
{
	char *argv[] = {(char[]){"test_server"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=lib.*:3"}, (char[]){"--file-prefix=crpc_test_server"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_of_a_rank_that_is_not_up_are_refused_at_once),
		cmocka_unit_test(a_rank_that_comes_again_is_served_again),
		cmocka_unit_test(requests_wait_until_their_rank_is_connected),
		cmocka_unit_test(a_link_that_cannot_be_reset_is_reported_once),
		cmocka_unit_test(nothing_of_the_earlier_connection_is_served),
		cmocka_unit_test(a_rank_that_hangs_is_lost),
		cmocka_unit_test(addresses_of_another_size_or_version_are_refused),
		cmocka_unit_test(sizes_that_cannot_be_are_refused),
		cmocka_unit_test(segments_are_the_groups),
		cmocka_unit_test(snapshots_bring_a_server_back),
		cmocka_unit_test(a_rank_that_hangs_with_all_calls_open_is_lost),
		cmocka_unit_test(a_rank_that_lives_and_answers_nothing_costs_nobody_else),
		cmocka_unit_test(daemons_can_be_joined_in_any_order),
		cmocka_unit_test(segments_of_a_killed_service_go),
	};
	struct crpc_rdma_conf device = {0};
	struct crpc_rdma *dev;
	int rc;

	crpc_clock_init();
	if (rte_eal_init((int)CRPC_DIM(argv), argv) < 0)
		return 1;
	dev = crpc_rdma_open(&device);
	if (dev == NULL) {
		fprintf(stderr, "test_server: no RDMA device; skipped\n");
		return 77;
	}
	crpc_rdma_close(dev);
	rc = cmocka_run_group_tests_name("kv_server", tests, NULL, NULL);
	rte_eal_cleanup();
	return rc;
}
