/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the daemons of a rank: every request comes back once, to whom it belongs, with the bytes
 * that its owner gave, whether messages travel in flux's ring or by address; beyond the window they
 * wait; a daemon that stops or leaves fails its calls and nothing else; a record that the other may
 * still write is not used again. The last test does it with two threads.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app_keys.h"
#include "kv_hop.h"

#define SEED  20260102
#define CALLS 300
#define SMALL 64
#define LARGE 4096

struct rig {
	struct crpc_flux *flux;
	uint64_t now; /* of the last poll */
	struct kv_hop hop[3];
	uint32_t daemons, msg_max;
	uint64_t rng;
};

static struct rig *
rig_open(uint32_t daemons, uint32_t msg_max)
{
	struct crpc_flux_attr attr = __crpc_kv_hop_flux_attr(daemons, CALLS, msg_max);
	struct rig *rig = aligned_alloc(64, crpc_align_up(sizeof(*rig), 64));
	uint32_t i;

	assert_non_null(rig);
	*rig = (struct rig){.daemons = daemons, .msg_max = msg_max, .rng = SEED};
	rig->flux = crpc_flux_create(&attr);
	assert_non_null(rig->flux);
	for (i = 0; i < daemons; i++)
		assert_int_equal(
			__crpc_kv_hop_open(&rig->hop[i], rig->flux, i, daemons, CALLS, msg_max), 0);
	for (i = 0; i < daemons; i++)
		assert_int_equal(__crpc_kv_hop_connect(&rig->hop[i], i), 0);
	return rig;
}

static void
rig_close(struct rig *rig)
{
	uint32_t i;

	for (i = 0; i < rig->daemons; i++)
		__crpc_kv_hop_close(&rig->hop[i]);
	crpc_flux_free(rig->flux);
	free(rig);
}

static void
drain(struct kv_hop *hop, uint64_t now)
{
	__crpc_kv_wait_drain(&hop->wait, now, __crpc_kv_hop_send, hop);
}

/* A message that tells its own content: length and bytes follow from a token. */
static uint32_t
fill(uint8_t *msg, uint64_t token, uint32_t max)
{
	uint32_t len = 8 + (uint32_t)(token * 7919 % (max - 7));

	memset(msg, (int)(token & 0xff), len);
	memcpy(msg, &token, 8);
	return len;
}

static bool
is_filled(const void *msg, uint32_t len, uint64_t token, uint32_t max)
{
	static _Thread_local uint8_t want[LARGE];

	return len == fill(want, token, max) && memcmp(msg, want, len) == 0;
}

static int
call(struct rig *rig, uint32_t from, uint32_t to, uint64_t token)
{
	static uint8_t msg[LARGE];
	uint32_t len = fill(msg, token, rig->msg_max);

	return __crpc_kv_hop_call(&rig->hop[from], rig->now, to, msg, len,
		token % 3 == 0 ? KV_FROM_RANK : KV_FROM_CLIENT, token);
}

/* Serve all that waits at a daemon, the last first; the answer to a request is that of token + 1.
 */
static uint32_t
serve(struct rig *rig, uint32_t at)
{
	struct crpc_req req[CRPC_BURST_MAX];
	struct kv_hop *hop = &rig->hop[at];
	uint32_t n = __crpc_kv_hop_recv(hop, 1, req, CRPC_BURST_MAX), i;
	uint64_t token;

	for (i = n; i-- > 0;) {
		memcpy(&token, req[i].data, 8);
		if (!is_filled(req[i].data, req[i].len, token, rig->msg_max))
			fail_msg("seed %d: a request of %u bytes is damaged", SEED, req[i].len);
		__crpc_kv_hop_answer(hop, 1, &req[i],
			fill(kv_hop_answer_at(hop, &req[i]), token + 1, rig->msg_max));
	}
	crpc_flux_flush(hop->node, 1);
	return n;
}

/* Take the answers of a daemon, marking each token as seen. */
static uint32_t
collect(struct rig *rig, uint32_t at, uint64_t now, uint8_t *seen, uint64_t base, int status)
{
	struct kv_answered a[CRPC_BURST_MAX];
	uint32_t n = __crpc_kv_hop_poll(&rig->hop[at], now, a, CRPC_BURST_MAX), i;

	rig->now = now;
	for (i = 0; i < n; i++) {
		assert_true(a[i].token >= base && a[i].token < base + CALLS);
		assert_int_equal(a[i].status, status);
		assert_int_equal(a[i].origin, a[i].token % 3 == 0 ? KV_FROM_RANK : KV_FROM_CLIENT);
		if (status == 0)
			assert_true(is_filled(a[i].data, a[i].len, a[i].token + 1, rig->msg_max));
		assert_int_equal(seen[a[i].token - base]++, 0);
	}
	return n;
}

/* All records go out, more than the window: the rest waits, one more is refused; twice over. */
static void
go_and_return(uint32_t msg_max)
{
	struct rig *rig = rig_open(2, msg_max);
	uint32_t round, i, got, turns;
	uint8_t seen[CALLS];

	rig->hop[0].wait.waited = 0;
	for (round = 0; round < 2; round++) {
		memset(seen, 0, sizeof(seen));
		for (i = 0; i < CALLS; i++)
			assert_int_equal(call(rig, 0, 1, 1000 + i), 0);
		assert_int_equal(call(rig, 0, 1, 999), -ENOBUFS);
		for (got = 0, turns = 0; got < CALLS && turns < 1000; turns++) {
			drain(&rig->hop[0], rig->now);
			crpc_flux_flush(rig->hop[0].node, 1);
			serve(rig, 1);
			got += collect(rig, 0, 1, seen, 1000, 0);
		}
		assert_int_equal(got, CALLS);
		assert_int_equal(rig->hop[0].wait.waiting, 0);
	}
	rig_close(rig);
}

static void
answers_come_back(void **state)
{
	go_and_return(SMALL);
	go_and_return(CRPC_FLUX_MSG_MAX);
}

static void
answers_come_back_by_address(void **state)
{
	go_and_return(CRPC_FLUX_MSG_MAX + 1);
	go_and_return(LARGE);
}

/* More open than a window of 64: the others wait in order and none overtakes. */
static void
waiting_keeps_order(void **state)
{
	struct crpc_flux_attr attr = __crpc_kv_hop_flux_attr(2, 1, SMALL);
	struct rig rig = {.daemons = 2, .msg_max = SMALL};
	struct crpc_req req[CRPC_BURST_MAX];
	uint64_t token, next = 1000;
	uint8_t seen[CALLS] = {0};
	uint32_t i, k, n;

	assert_int_equal(attr.window, 64);
	rig.flux = crpc_flux_create(&attr);
	for (i = 0; i < 2; i++)
		assert_int_equal(__crpc_kv_hop_open(&rig.hop[i], rig.flux, i, 2, CALLS, SMALL), 0);
	assert_int_equal(__crpc_kv_hop_connect(&rig.hop[0], 0), 0);
	for (i = 0; i < CALLS; i++)
		assert_int_equal(call(&rig, 0, 1, 1000 + i), 0);
	assert_int_equal(rig.hop[0].wait.waiting, CALLS - 64);
	assert_int_equal(rig.hop[0].wait.waited, CALLS - 64);
	for (i = 0; i < 1000 && next < 1000 + CALLS; i++) {
		crpc_flux_flush(rig.hop[0].node, 1);
		n = __crpc_kv_hop_recv(&rig.hop[1], 1, req, CRPC_BURST_MAX);
		for (k = 0; k < n; k++) {
			memcpy(&token, req[k].data, 8);
			assert_int_equal(token, next++);
			__crpc_kv_hop_answer(&rig.hop[1], 1, &req[k],
				fill(kv_hop_answer_at(&rig.hop[1], &req[k]), token + 1, SMALL));
		}
		crpc_flux_flush(rig.hop[1].node, 1);
		collect(&rig, 0, 1, seen, 1000, 0);
		drain(&rig.hop[0], 1);
	}
	assert_int_equal(next, 1000 + CALLS);
	__crpc_kv_hop_close(&rig.hop[0]);
	__crpc_kv_hop_close(&rig.hop[1]);
	crpc_flux_free(rig.flux);
}

/*
 * The other daemon stops: calls end with -ETIMEDOUT. Their records, which it holds the address of,
 * stay lent until it lets them go, late; then all can be used again.
 */
static void
stopped_daemon_times_out(uint32_t msg_max)
{
	struct rig *rig = rig_open(2, msg_max);
	uint64_t now = 1, late = KV_HOP_TIMEOUT_NS * 3;
	uint32_t i, got = 0, open = 20;
	uint8_t seen[CALLS] = {0};

	collect(rig, 0, now, seen, 0, 0);
	for (i = 0; i < open; i++)
		assert_int_equal(call(rig, 0, 1, i), 0);
	crpc_flux_flush(rig->hop[0].node, 1);
	for (i = 0; i < 10; i++)
		got += collect(rig, 0, late + i * KV_HOP_TIMEOUT_NS, seen, 0, -ETIMEDOUT);
	assert_int_equal(got, open);
	/* What it was not lent can go on: here, all but these. */
	now = late + 20 * KV_HOP_TIMEOUT_NS;
	memset(seen, 0, sizeof(seen));
	assert_int_equal(collect(rig, 0, now, seen, 5000, 0), 0);
	for (i = 0; call(rig, 0, 1, 5000 + i) == 0; i++)
		assert_true(i < CALLS);
	assert_int_equal(i, msg_max > CRPC_FLUX_MSG_MAX ? CALLS - open : CALLS);
	for (got = 0, i = 0; i < 1000; i++) {
		drain(&rig->hop[0], rig->now);
		crpc_flux_flush(rig->hop[0].node, 1);
		serve(rig, 1);
		got += collect(rig, 0, now, seen, 5000, 0);
	}
	assert_int_equal(got, msg_max > CRPC_FLUX_MSG_MAX ? CALLS - open : CALLS);
	/* It let go of all of them: every record is there again. */
	for (i = 0; i < CALLS; i++)
		assert_int_equal(call(rig, 0, 1, 9000 + i), 0);
	rig_close(rig);
}

static void
stopped_daemon_times_out_both_ways(void **state)
{
	stopped_daemon_times_out(SMALL);
	stopped_daemon_times_out(LARGE);
}

/* A daemon leaves: its open and waiting calls fail, those to the third go on. */
static void
leaving_fails_its_calls_only(void **state)
{
	struct rig *rig = rig_open(3, SMALL);
	uint8_t seen[CALLS] = {0}, other[CALLS] = {0};
	const struct kv_record *lost;
	uint32_t i, failed = 0;

	for (i = 0; i < 100; i++)
		assert_int_equal(call(rig, 0, 1, i), 0);
	__crpc_kv_hop_close(&rig->hop[1]);
	for (i = 0; i < 10; i++)
		failed += collect(rig, 0, 1, seen, 0, -ECONNRESET);
	drain(&rig->hop[0], 1);
	while ((lost = kv_wait_failed(&rig->hop[0].wait)) != NULL) {
		assert_int_equal(lost->status, -ECONNRESET);
		failed++;
	}
	assert_int_equal(failed, 100);
	assert_int_equal(call(rig, 0, 1, 7), -ECONNRESET);
	for (i = 0; i < 50; i++)
		assert_int_equal(call(rig, 0, 2, i), 0);
	crpc_flux_flush(rig->hop[0].node, 1);
	assert_int_equal(serve(rig, 2), 50);
	assert_int_equal(collect(rig, 0, 1, other, 0, 0), 50);
	assert_int_equal(call(rig, 0, 2, 1), 0);
	rig_close(rig);
}

static void
too_long_is_refused(void **state)
{
	static uint8_t msg[LARGE];
	struct rig *rig = rig_open(2, SMALL);

	assert_int_equal(__crpc_kv_hop_call(&rig->hop[0], 1, 1, msg, SMALL + 1, KV_FROM_CLIENT, 1),
		-EMSGSIZE);
	assert_int_equal(__crpc_kv_hop_call(&rig->hop[0], 1, 1, msg, SMALL, KV_FROM_CLIENT, 1), 0);
	rig_close(rig);
}

/* ---- two threads ---- */

#define OPS 30000

struct side {
	struct rig *rig;
	uint32_t at;
	uint32_t damaged, done;
	_Atomic int *left; /* Sides that still wait for answers. */
};

static uint32_t
side_serve(struct side *s)
{
	struct kv_hop *hop = &s->rig->hop[s->at];
	struct crpc_req req[16];
	uint32_t n = __crpc_kv_hop_recv(hop, 1, req, 16), i;
	uint64_t token;

	for (i = 0; i < n; i++) {
		memcpy(&token, req[i].data, 8);
		s->damaged += !is_filled(req[i].data, req[i].len, token, s->rig->msg_max);
		__crpc_kv_hop_answer(hop, 1, &req[i],
			fill(kv_hop_answer_at(hop, &req[i]), token + 1, s->rig->msg_max));
	}
	return n;
}

/* One daemon's loop: calls, answers, serves, until both have all their answers. */
static void *
side_main(void *arg)
{
	struct side *s = arg;
	struct kv_hop *hop = &s->rig->hop[s->at];
	uint64_t next = s->at * UINT64_C(1000000), end = next + OPS;
	struct kv_answered a[16];
	uint8_t msg[LARGE];
	bool open = true;
	uint32_t i, n;

	while (crpc_load_acquire(s->left) != 0) {
		for (i = 0; i < 16 && next < end; i++, next++)
			if (__crpc_kv_hop_call(hop, 1, 1 - s->at, msg,
				    fill(msg, next, s->rig->msg_max), KV_FROM_CLIENT, next) != 0)
				break;
		drain(hop, 1);
		n = __crpc_kv_hop_poll(hop, 1, a, 16);
		for (i = 0; i < n; i++)
			s->damaged += a[i].status != 0 ||
				!is_filled(a[i].data, a[i].len, a[i].token + 1, s->rig->msg_max);
		s->done += n;
		n += side_serve(s);
		crpc_flux_flush(hop->node, 1);
		if (open && s->done == OPS) {
			open = false;
			crpc_fetch_add_acq_rel(s->left, -1);
		}
		if (n == 0)
			sched_yield();
	}
	return NULL;
}

static void
two_threads(uint32_t msg_max)
{
	struct rig *rig = rig_open(2, msg_max);
	_Atomic int left = 2;
	struct side side[2] = {
		{.rig = rig, .at = 0, .left = &left}, {.rig = rig, .at = 1, .left = &left}};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, side_main, &side[1]), 0);
	side_main(&side[0]);
	pthread_join(thread, NULL);
	assert_int_equal(side[0].done, OPS);
	assert_int_equal(side[1].done, OPS);
	assert_int_equal(side[0].damaged + side[1].damaged, 0);
	rig_close(rig);
}

static void
two_threads_call_each_other(void **state)
{
	two_threads(SMALL);
	two_threads(1000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_come_back),
		cmocka_unit_test(answers_come_back_by_address),
		cmocka_unit_test(waiting_keeps_order),
		cmocka_unit_test(stopped_daemon_times_out_both_ways),
		cmocka_unit_test(leaving_fails_its_calls_only),
		cmocka_unit_test(too_long_is_refused),
		cmocka_unit_test(two_threads_call_each_other),
	};

	return cmocka_run_group_tests_name("benchkv_hop", tests, NULL, NULL);
}
