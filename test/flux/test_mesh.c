/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mesh over each backend: notifications, requests and responses between threads at full window,
 * deadlines, peers that leave, replies that find a full receiver.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crpc_atomic.h"
#include "crpc_log.h"
#include "crpc_mesh.h"

#define NODES      3u
#define CALLS      4000u
#define NOTIFY_BIT (UINT64_C(1) << 63)

/*
 * rte_ring 22.11 hands messages of one producer over through another's release of the shared tail,
 * a chain that the thread sanitizer does not follow, and RTS reads a half of an atomic word
 * plainly. Those are excused; everything else is checked.
 */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *
__tsan_default_suppressions(void)
{
	return "race:__rte_ring_enqueue_elems\nrace:__rte_ring_dequeue_elems\n"
	       "race:__rte_ring_rts_head_wait\n";
}

static struct crpc_mesh *
mesh_of(enum crpc_mesh_backend b, uint32_t nodes, uint32_t window, uint64_t deadline_ns)
{
	struct crpc_mesh_attr a = {.backend = b,
		.flux = {.nodes = nodes,
			.variant = CRPC_FLUX_FASTFORWARD,
			.window = window,
			.msg_size = 16,
			.deadline_ns = deadline_ns}};
	struct crpc_mesh *mesh = crpc_mesh_create(&a);

	assert_non_null(mesh);
	return mesh;
}

/* A node, with its endpoints and the time of its last poll, which its calls are made at. */
struct member {
	struct crpc_mesh_node *node;
	struct crpc_mesh_ep *ep[4];
	uint64_t now;
};

static struct member *
join(struct crpc_mesh *mesh, uint32_t id)
{
	struct crpc_mesh_node *node = crpc_mesh_join(mesh, id);
	struct member *m;

	if (node == NULL)
		return NULL;
	m = calloc(1, sizeof(*m));
	m->node = node;
	return m;
}

static void
leave(struct member *m)
{
	crpc_mesh_leave(m->node);
	free(m);
}

static int
connect_to(struct member *m, uint32_t peer)
{
	return crpc_mesh_connect(m->node, peer, &m->ep[peer]);
}

static int
call(struct member *m, uint32_t to, const void *buf, uint32_t len, uint64_t cookie)
{
	return crpc_mesh_call(m->ep[to], m->now, buf, len, 16, cookie);
}

static int
notify(struct member *m, uint32_t to, const void *buf, uint32_t len)
{
	return crpc_mesh_notify(m->ep[to], m->now, buf, len);
}

static uint16_t
poll(struct member *m, uint64_t now, struct crpc_done *done, uint16_t n)
{
	m->now = now;
	return crpc_mesh_poll(m->node, now, done, n);
}

static void
bad_arguments_are_named(void **state)
{
	struct crpc_mesh_attr a = {.backend = CRPC_MESH_BACKENDS, .flux = {.nodes = 2}};
	struct crpc_mesh *mesh;
	int b;

	assert_null(crpc_mesh_create(&a));
	assert_non_null(strstr(crpc_log_last(), "backend 4 is unknown"));
	a.flux.nodes = 0;
	for (b = 0; b < CRPC_MESH_BACKENDS; b++) {
		a.backend = (enum crpc_mesh_backend)b;
		assert_null(crpc_mesh_create(&a));
		assert_int_equal(errno, EINVAL);
	}
	mesh = mesh_of(CRPC_MESH_RTE_RING, 2, 4, 0);
	assert_null(join(mesh, 5));
	assert_int_equal(errno, EINVAL);
	crpc_mesh_free(mesh);
}

/* Held requests, out-of-order replies, double replies, deadlines, leaving: in one thread. */
static void
one_thread(void **state)
{
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, 3, 4, 1000);
	struct member *x, *y;
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint64_t msg[2] = {0};
	int i;

	x = join(mesh, 0);
	y = join(mesh, 1);
	assert_null(join(mesh, 1));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(connect_to(x, 2), -ENOTCONN);
	assert_int_equal(connect_to(x, 1), 0);
	for (i = 0; i < 4; i++) {
		msg[0] = (uint64_t)i;
		assert_int_equal(call(x, 1, msg, 16, (uint64_t)i), 0);
	}
	assert_int_equal(call(x, 1, msg, 16, 9), -EAGAIN);
	assert_int_equal(call(x, 1, msg, 17, 9), -EMSGSIZE);
	crpc_mesh_flush(x->node, 0);
	assert_int_equal(crpc_mesh_recv(y->node, 0, req, 8), 4);
	for (i = 3; i >= 1; i--) {
		assert_int_equal(crpc_mesh_reply(y->node, 0, req[i].token, req[i].data, 16), 0);
		assert_int_equal(
			crpc_mesh_reply(y->node, 0, req[i].token, req[i].data, 16), -ENOENT);
	}
	crpc_mesh_flush(y->node, 0);
	for (i = 3; i >= 1;) {
		assert_int_equal(poll(x, 10, done, 1), 1);
		assert_int_equal(done[0].cookie, i);
		assert_int_equal(*(const uint64_t *)done[0].data, i--);
	}
	/* Request 0 is late: the caller hears of it once, the answer is dropped. */
	assert_int_equal(poll(x, 2000, done, 8), 1);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_int_equal(done[0].cookie, 0);
	assert_int_equal(crpc_mesh_pending(x->node), 1);
	assert_int_equal(crpc_mesh_reply(y->node, 0, req[0].token, msg, 16), 0);
	crpc_mesh_flush(y->node, 0);
	assert_int_equal(poll(x, 2001, done, 8), 0);
	assert_int_equal(crpc_mesh_pending(x->node), 0);
	/* A peer that leaves with a call open; it joins again as somebody new. */
	assert_int_equal(call(x, 1, msg, 16, 77), 0);
	crpc_mesh_flush(x->node, 0);
	leave(y);
	y = join(mesh, 1);
	assert_int_equal(poll(x, 2002, done, 8), 1);
	assert_int_equal(done[0].status, -ECONNRESET);
	assert_int_equal(crpc_mesh_recv(y->node, 0, req, 8), 0);
	assert_int_equal(crpc_mesh_pending(x->node), 0);
	leave(x);
	leave(y);
	crpc_mesh_free(mesh);
}

/* Notifications fill a receiver; replies to its node wait and arrive, none is lost. */
static void
reply_to_a_full_receiver(void **state)
{
	struct crpc_mesh *mesh = mesh_of(CRPC_MESH_RTE_RING, 2, 4, 0);
	struct member *x = join(mesh, 0), *y = join(mesh, 1);
	struct crpc_done done[8];
	struct crpc_req req[64];
	uint64_t msg[2] = {1, 2};
	uint32_t notes = 0, got = 0, n, i, turn;

	assert_int_equal(connect_to(x, 1), 0);
	assert_int_equal(connect_to(y, 0), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(call(x, 1, msg, 16, i), 0);
	assert_int_equal(crpc_mesh_recv(y->node, 0, req, 8), 4);
	while (notify(y, 0, msg, 16) == 0)
		notes++;
	assert_int_equal(notify(y, 0, msg, 16), -EAGAIN);
	for (i = 0; i < 4; i++)
		assert_int_equal(crpc_mesh_reply(y->node, 0, req[i].token, msg, 16), 0);
	for (turn = 0; turn < 10; turn++) {
		crpc_mesh_flush(y->node, 0);
		got += poll(x, 0, done, 8);
		n = crpc_mesh_recv(x->node, 0, req, 64);
		notes -= n;
		for (i = 0; i < n; i++)
			assert_int_equal(crpc_mesh_release(x->node, 0, req[i].token), 0);
	}
	assert_int_equal(got, 4);
	assert_int_equal(notes, 0);
	leave(x);
	leave(y);
	crpc_mesh_free(mesh);
}

/* ---- for each backend: nodes that come and go, full polls ---- */

static void
send_word(struct member *node, uint32_t to, uint64_t word, bool one_way)
{
	uint64_t msg[2] = {word, ~word};

	assert_int_equal(one_way ? notify(node, to, msg, 16) : call(node, to, msg, 16, word), 0);
}

/* What a node sent before it left is received, and before what its successor sends. */
static void
messages_sent_before_leave_arrive(void **state)
{
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, 2, 4, 0);
	struct member *x, *y = join(mesh, 1);
	struct crpc_req req;
	uint64_t word = 0;
	uint32_t life, i;

	for (life = 0; life < 3; life++) {
		x = join(mesh, 0);
		assert_int_equal(connect_to(x, 1), 0);
		for (i = 0; i < 4; i++)
			send_word(x, 1, word++, i != 2);
		leave(x);
	}
	for (i = 0; i < word; i++) {
		assert_int_equal(crpc_mesh_recv(y->node, 0, &req, 1), 1);
		assert_int_equal(*(const uint64_t *)req.data, i);
		crpc_mesh_release(y->node, 0, req.token);
	}
	assert_int_equal(crpc_mesh_recv(y->node, 0, &req, 1), 0);
	leave(y);
	crpc_mesh_free(mesh);
}

/* An answer to a call of a node that left does not reach its successor, not the 256th either. */
static void
answers_do_not_reach_a_successor(void **state)
{
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, 2, 4, 0);
	struct member *x = join(mesh, 0), *y = join(mesh, 1);
	struct crpc_req old, req;
	struct crpc_done done[4];
	uint32_t life;

	assert_int_equal(connect_to(x, 1), 0);
	send_word(x, 1, 1, false);
	crpc_mesh_flush(x->node, 0);
	assert_int_equal(crpc_mesh_recv(y->node, 0, &old, 1), 1);
	for (life = 0; life < 256; life++) {
		leave(x);
		x = join(mesh, 0);
	}
	assert_int_equal(connect_to(x, 1), 0);
	send_word(x, 1, 2, false);
	crpc_mesh_flush(x->node, 0);
	assert_int_equal(crpc_mesh_recv(y->node, 0, &req, 1), 1);
	assert_int_equal(*(const uint64_t *)old.data, 1);
	assert_int_equal(
		crpc_mesh_reply(y->node, 0, old.token, "old old old old", 16), -ECONNRESET);
	assert_int_equal(crpc_mesh_reply(y->node, 0, old.token, "old old old old", 16), -ENOENT);
	crpc_mesh_flush(y->node, 0);
	assert_int_equal(poll(x, 1, done, 4), 0);
	assert_int_equal(crpc_mesh_reply(y->node, 0, req.token, "new new new new", 16), 0);
	crpc_mesh_flush(y->node, 0);
	assert_int_equal(poll(x, 2, done, 4), 1);
	assert_memory_equal(done[0].data, "new new new new", 16);
	leave(x);
	leave(y);
	crpc_mesh_free(mesh);
}

/*
 * Answers of one peer fill each poll. Another does not answer, a third leaves: calls to them end in
 * time all the same. The first call's time counts from the first poll.
 */
static void
full_polls_do_not_delay_failures(void **state)
{
	enum { DEADLINE = 100000 };
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, 4, 16, DEADLINE);
	uint64_t now, t0 = UINT64_C(1) << 60, cookie = 3, timed_out = 0, reset = 0, msg[2] = {0};
	struct member *node[4];
	struct crpc_done done[1];
	struct crpc_req req[16];
	uint32_t i, n;

	for (i = 0; i < 4; i++)
		node[i] = join(mesh, i);
	for (i = 1; i < 4; i++)
		assert_int_equal(connect_to(node[0], i), 0);
	node[0]->now = t0;
	send_word(node[0], 2, 1, false);
	send_word(node[0], 3, 2, false);
	for (now = t0; now < t0 + 3 * DEADLINE; now += 100) {
		while (call(node[0], 1, msg, 16, cookie) == 0)
			cookie++;
		crpc_mesh_flush(node[0]->node, 0);
		while ((n = crpc_mesh_recv(node[1]->node, 0, req, 16)) != 0)
			for (i = 0; i < n; i++)
				assert_int_equal(
					crpc_mesh_reply(node[1]->node, 0, req[i].token, msg, 16),
					0);
		crpc_mesh_flush(node[1]->node, 0);
		if (now - t0 >= 1000 && node[3] != NULL) {
			leave(node[3]);
			node[3] = NULL;
		}
		assert_int_equal(poll(node[0], now, done, 1), 1);
		if (done[0].status == -ETIMEDOUT) {
			assert_int_equal(done[0].cookie, 1);
			timed_out = now - t0;
		} else if (done[0].status == -ECONNRESET) {
			assert_int_equal(done[0].cookie, 2);
			reset = now - t0;
		} else {
			assert_int_equal(done[0].status, 0);
		}
	}
	assert_in_range(reset, 1000, 2000);
	assert_in_range(timed_out, DEADLINE, 3 * DEADLINE / 2);
	for (i = 0; i < 3; i++)
		leave(node[i]);
	crpc_mesh_free(mesh);
}

/* However large the array, poll and recv hand out at most CRPC_BURST_MAX. */
static void
bursts_are_bounded(void **state)
{
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, 2, 256, 0);
	struct member *x = join(mesh, 0), *y = join(mesh, 1);
	struct crpc_done done[256];
	struct crpc_req req[256];
	uint32_t got, n, i;

	assert_int_equal(connect_to(x, 1), 0);
	for (i = 0; i < 256; i++)
		send_word(x, 1, i, false);
	crpc_mesh_flush(x->node, 0);
	for (got = 0; got < 256; got += n) {
		n = crpc_mesh_recv(y->node, 0, req, 256);
		assert_in_range(n, 1, CRPC_BURST_MAX);
		for (i = 0; i < n; i++)
			assert_int_equal(
				crpc_mesh_reply(y->node, 0, req[i].token, req[i].data, 16), 0);
		crpc_mesh_flush(y->node, 0);
	}
	for (got = 0; got < 256; got += n) {
		n = poll(x, 1, done, 256);
		assert_in_range(n, 1, CRPC_BURST_MAX);
	}
	leave(x);
	leave(y);
	crpc_mesh_free(mesh);
}

/* A full receiver that is not emptied delays no reply to another node, nor does one that left. */
static void
a_full_receiver_delays_no_other(void **state)
{
	struct crpc_mesh *mesh = mesh_of(CRPC_MESH_RTE_RING, 3, 4, 0);
	struct member *x, *y = join(mesh, 1), *z = join(mesh, 2);
	uint64_t msg[2] = {1, 2};
	struct crpc_req req[64];
	struct crpc_done done;
	uint32_t leaves, i, n;

	for (leaves = 0; leaves < 2; leaves++) {
		x = join(mesh, 0);
		assert_int_equal(connect_to(x, 1), 0);
		assert_int_equal(connect_to(z, 1), 0);
		assert_int_equal(connect_to(y, 0), 0);
		assert_int_equal(connect_to(y, 2), 0);
		send_word(x, 1, 1, false);
		send_word(z, 1, 2, false);
		assert_int_equal(crpc_mesh_recv(y->node, 0, req, 64), 2);
		for (i = 0; i <= 2; i += 2)
			while (notify(y, i, msg, 16) == 0)
				;
		assert_int_equal(crpc_mesh_reply(y->node, 0, req[0].token, msg, 16), 0);
		assert_int_equal(crpc_mesh_reply(y->node, 0, req[1].token, msg, 16), 0);
		if (leaves)
			leave(x);
		while ((n = crpc_mesh_recv(z->node, 0, req, 64)) != 0)
			for (i = 0; i < n; i++)
				assert_int_equal(crpc_mesh_release(z->node, 0, req[i].token), 0);
		crpc_mesh_flush(y->node, 0);
		assert_int_equal(poll(z, 1, &done, 1), 1);
		assert_int_equal(done.cookie, 2);
		assert_int_equal(done.status, 0);
		if (!leaves)
			leave(x);
	}
	leave(y);
	leave(z);
	crpc_mesh_free(mesh);
}

struct worker {
	struct crpc_mesh *mesh;
	uint32_t id;
	uint32_t bad;
	_Atomic uint32_t *joined;
	_Atomic uint32_t *finished;
};

static void *
worker_run(void *arg)
{
	struct worker *w = arg;
	struct member *node = join(w->mesh, w->id);
	uint64_t sent[NODES] = {0}, notes[NODES] = {0}, done = 0, heard = 0, now = 0, msg[2];
	struct crpc_done fin[32];
	struct crpc_req req[32];
	bool told = false;
	uint32_t i, n, k;

	crpc_fetch_add_relaxed(w->joined, 1);
	while (crpc_load_acquire(w->joined) < NODES)
		sched_yield();
	for (i = 0; i < NODES; i++)
		if (i != w->id && connect_to(node, i) != 0)
			w->bad++;
	while (crpc_load_acquire(w->finished) < NODES) {
		for (i = 0; i < NODES; i++) {
			msg[0] = sent[i];
			msg[1] = ~sent[i];
			if (i != w->id && sent[i] < CALLS)
				sent[i] += call(node, i, msg, 16, sent[i]) == 0;
			msg[0] = notes[i] | NOTIFY_BIT;
			if (i != w->id && notes[i] < CALLS)
				notes[i] += notify(node, i, msg, 16) == 0;
		}
		n = crpc_mesh_recv(node->node, 0, req, 32);
		for (i = 0; i < n; i++) {
			memcpy(msg, req[i].data, 16);
			if (msg[0] & NOTIFY_BIT) {
				heard++;
				k = crpc_mesh_release(node->node, 0, req[i].token) != 0;
			} else {
				k = msg[1] != ~msg[0] ||
					crpc_mesh_reply(node->node, 0, req[i].token, msg, 16) != 0;
			}
			w->bad += k;
		}
		k = poll(node, now++, fin, 32);
		for (i = 0; i < k; i++)
			if (fin[i].status != 0 || *(const uint64_t *)fin[i].data != fin[i].cookie)
				w->bad++;
		done += k;
		if (!told && done == CALLS * (NODES - 1) && heard == CALLS * (NODES - 1)) {
			told = true;
			crpc_fetch_add_relaxed(w->finished, 1);
		}
		if (n + k == 0)
			sched_yield();
	}
	leave(node);
	return NULL;
}

static void
threads(void **state)
{
	enum crpc_mesh_backend b = (enum crpc_mesh_backend)(intptr_t)*state;
	struct crpc_mesh *mesh = mesh_of(b, NODES, 16, 0);
	_Atomic uint32_t joined = 0, finished = 0;
	struct worker w[NODES];
	pthread_t th[NODES];
	uint32_t i;

	for (i = 0; i < NODES; i++) {
		w[i] = (struct worker){
			.mesh = mesh, .id = i, .joined = &joined, .finished = &finished};
		assert_int_equal(pthread_create(&th[i], NULL, worker_run, &w[i]), 0);
	}
	for (i = 0; i < NODES; i++) {
		pthread_join(th[i], NULL);
		assert_int_equal(w[i].bad, 0);
	}
	crpc_mesh_free(mesh);
}

#define FOR_BACKEND(f, b)                                                                          \
	{                                                                                          \
		.name = #f " " #b, .test_func = f, .initial_state = (void *)(intptr_t)(b)          \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_arguments_are_named),
		FOR_BACKEND(one_thread, CRPC_MESH_FLUX),
		FOR_BACKEND(one_thread, CRPC_MESH_RTE_RING),
		FOR_BACKEND(one_thread, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(one_thread, CRPC_MESH_RTE_RING_HTS),
		cmocka_unit_test(reply_to_a_full_receiver),
		cmocka_unit_test(a_full_receiver_delays_no_other),
		FOR_BACKEND(messages_sent_before_leave_arrive, CRPC_MESH_FLUX),
		FOR_BACKEND(messages_sent_before_leave_arrive, CRPC_MESH_RTE_RING),
		FOR_BACKEND(messages_sent_before_leave_arrive, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(messages_sent_before_leave_arrive, CRPC_MESH_RTE_RING_HTS),
		FOR_BACKEND(answers_do_not_reach_a_successor, CRPC_MESH_FLUX),
		FOR_BACKEND(answers_do_not_reach_a_successor, CRPC_MESH_RTE_RING),
		FOR_BACKEND(answers_do_not_reach_a_successor, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(answers_do_not_reach_a_successor, CRPC_MESH_RTE_RING_HTS),
		FOR_BACKEND(full_polls_do_not_delay_failures, CRPC_MESH_FLUX),
		FOR_BACKEND(full_polls_do_not_delay_failures, CRPC_MESH_RTE_RING),
		FOR_BACKEND(full_polls_do_not_delay_failures, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(full_polls_do_not_delay_failures, CRPC_MESH_RTE_RING_HTS),
		FOR_BACKEND(bursts_are_bounded, CRPC_MESH_FLUX),
		FOR_BACKEND(bursts_are_bounded, CRPC_MESH_RTE_RING),
		FOR_BACKEND(bursts_are_bounded, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(bursts_are_bounded, CRPC_MESH_RTE_RING_HTS),
		FOR_BACKEND(threads, CRPC_MESH_FLUX),
		FOR_BACKEND(threads, CRPC_MESH_RTE_RING),
		FOR_BACKEND(threads, CRPC_MESH_RTE_RING_RTS),
		FOR_BACKEND(threads, CRPC_MESH_RTE_RING_HTS),
	};

	return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
