/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/spsc between two threads: one body, run for every variant, size, depth, burst and laziness,
 * with a slow producer, a slow consumer, and positions that pass 2^32; a stream one way, and
 * requests with replies over two rings, where onesided gets its credit from the replies. Every
 * payload is verified. The thread sanitizer sees every ordering here.
 */
#include <pthread.h>
#include <sched.h>

#include "test.h"

#include "crpc_spsc_onesided.h"
#include "spsc_ring.h"

#define MESSAGES 6000u
#define BURST_MAX 37u

struct stress {
	struct crpc_spsc_attr attr;
	uint32_t burst;
	uint32_t slow; /* 0: none, 1: the producer, 2: the consumer */
	bool in_place;
	struct ring to;
	struct ring back;
	_Atomic uint32_t bad;
};

/* A slow side does some work of its own between its bursts. */
static void
dawdle(bool slow)
{
	for (unsigned int i = 0; slow && i < 200; i++)
		__asm__ __volatile__("" ::: "memory");
}

/* Send up to n messages from seq on, in the way the case says. */
static uint32_t
send_some(struct stress *t, struct crpc_spsc_prod *p, uint64_t seq, uint32_t n)
{
	uint64_t buf[BURST_MAX * CRPC_SPSC_ESIZE_MAX / 8];
	uint32_t i, esize = t->attr.esize;
	char *at = (char *)buf;
	void *first;

	if (t->in_place) {
		n = ring_reserve(p, n, &first);
		at = first;
	}
	for (i = 0; i < n; i++)
		msg_fill(at + (size_t)i * esize, esize, seq + i);
	if (!t->in_place)
		return ring_put(p, buf, n);
	ring_commit(p, n);
	return n;
}

/* Take and verify up to n messages. */
static uint32_t
take_some(struct stress *t, struct crpc_spsc_cons *c, uint64_t seq, uint32_t n)
{
	uint64_t buf[BURST_MAX * CRPC_SPSC_ESIZE_MAX / 8];
	uint32_t i, esize = t->attr.esize;
	const char *at = (const char *)buf;
	void *first;

	if (t->in_place) {
		n = ring_peek(c, n, &first);
		at = first;
	} else {
		n = ring_get(c, buf, n);
	}
	for (i = 0; i < n; i++)
		if (!msg_good(at + (size_t)i * esize, esize, seq + i))
			t->bad++;
	if (t->in_place)
		ring_release(c);
	return n;
}

static uint32_t
left_of(const struct stress *t, uint64_t done)
{
	return MESSAGES - done < t->burst ? (uint32_t)(MESSAGES - done) : t->burst;
}

static void *
stream_producer(void *arg)
{
	struct stress *t = arg;
	uint64_t sent = 0;

	while (sent < MESSAGES) {
		uint32_t n = send_some(t, &t->to.p, sent, left_of(t, sent));

		sent += n;
		if (n == 0) {
			sched_yield();
		} else if (rnd(&(uint64_t){sent + 1}) % 8 == 0) {
			ring_flush(&t->to.p);
		}
		dawdle(t->slow == 1);
	}
	ring_flush(&t->to.p);
	return NULL;
}

static void
stream(struct stress *t)
{
	uint64_t got = 0;
	pthread_t th;

	assert_int_equal(ring_make(&t->to, &t->attr), 0);
	assert_int_equal(pthread_create(&th, NULL, stream_producer, t), 0);
	while (got < MESSAGES) {
		uint32_t n = take_some(t, &t->to.c, got, t->burst);

		got += n;
		if (n == 0)
			sched_yield();
		dawdle(t->slow == 2);
	}
	pthread_join(th, NULL);
	assert_int_equal(t->bad, 0);
	ring_free(&t->to);
}

/* Answers every request with a message of the same number. */
static void *
rpc_server(void *arg)
{
	struct stress *t = arg;
	uint64_t got = 0, sent = 0;

	while (sent < MESSAGES) {
		uint32_t n = got < MESSAGES ? take_some(t, &t->to.c, got, t->burst) : 0;

		got += n;
		/* A new request says that the client has read all replies but a window of them. */
		if (t->attr.caller_credit)
			crpc_spsc_onesided_credit(&t->back.p, n);
		if (got > sent) {
			n = (uint32_t)(got - sent < BURST_MAX ? got - sent : BURST_MAX);
			sent += send_some(t, &t->back.p, sent, n);
			ring_flush(&t->back.p);
		} else {
			sched_yield();
		}
		dawdle(t->slow == 2);
	}
	return NULL;
}

static void
rpc(struct stress *t)
{
	uint64_t sent = 0, got = 0;
	uint32_t n, room, window = t->attr.depth;
	pthread_t th;

	assert_int_equal(ring_make(&t->to, &t->attr), 0);
	assert_int_equal(ring_make(&t->back, &t->attr), 0);
	assert_int_equal(pthread_create(&th, NULL, rpc_server, t), 0);
	while (got < MESSAGES) {
		room = window - (uint32_t)(sent - got);
		n = left_of(t, sent);
		n = n < room ? n : room;
		if (n > 0)
			sent += send_some(t, &t->to.p, sent, n);
		ring_flush(&t->to.p);
		n = take_some(t, &t->back.c, got, t->burst);
		got += n;
		if (t->attr.caller_credit)
			crpc_spsc_onesided_credit(&t->to.p, n);
		if (n == 0)
			sched_yield();
		dawdle(t->slow == 1);
	}
	pthread_join(th, NULL);
	if (t->attr.caller_credit)
		crpc_spsc_onesided_credit(&t->back.p, window);
	assert_int_equal(t->bad, 0);
	ring_free(&t->to);
	ring_free(&t->back);
}

/* The cases: sizes, depths and bursts that do not divide each other, and who is slow. */
static void
for_each_case(enum crpc_spsc_variant v, void (*body)(struct stress *t), bool caller_credit)
{
	static const uint32_t size_depth_burst[][3] = {
		{8, 2, 1}, {8, 64, 7}, {16, 8, 3}, {32, 8, 8}, {32, 64, 37}, {40, 32, 5},
		{64, 16, 11}, {128, 4, 3}, {256, 8, 7}, {32, 1024, 32},
	};

	for (size_t i = 0; i < CRPC_DIM(size_depth_burst); i++)
		for (uint32_t k = 0; k < 6; k++) {
			struct stress t = (struct stress){0};

			t.attr.variant = v;
			t.attr.esize = size_depth_burst[i][0];
			t.attr.depth = size_depth_burst[i][1];
			t.burst = size_depth_burst[i][2];
			t.attr.lazy = k % 2 != 0 ? t.attr.depth : 1;
			t.attr.start = UINT32_MAX - 1000 * (k + 1);
			t.attr.caller_credit = caller_credit;
			t.slow = k % 3;
			t.in_place = k >= 3;
			body(&t);
		}
}

static void
stress_of(void **state)
{
	enum crpc_spsc_variant v = (enum crpc_spsc_variant)(intptr_t)*state;

	for_each_case(v, stream, false);
	for_each_case(v, rpc, false);
	if (v == CRPC_SPSC_ONESIDED || v == CRPC_SPSC_ONESIDED_ALIGNED)
		for_each_case(v, rpc, true);
}

int
main(void)
{
	static const char *const names[CRPC_SPSC_VARIANTS] = {
		"lamport", "fastforward", "fastforward_aligned", "onesided", "onesided_aligned"};
	struct CMUnitTest tests[CRPC_SPSC_VARIANTS] = {0};

	for (int v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		tests[v].name = names[v];
		tests[v].test_func = stress_of;
		tests[v].initial_state = (void *)(intptr_t)v;
	}
	return cmocka_run_group_tests_name("spsc stress", tests, NULL, NULL);
}
