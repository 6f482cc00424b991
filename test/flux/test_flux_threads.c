/* SPDX-License-Identifier: BSD-3-Clause */
/* flux between threads, over every transport: full windows, nodes that come and go. */
#include "flux_rig.h"

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

/* ---- everybody calls everybody ---- */

#define CALLS      500u
#define PER_THREAD 2u
#define THREADS    3u
#define NODES      (PER_THREAD * THREADS)

struct worker {
	struct crpc_flux *flux;
	uint32_t first;
	uint32_t bad;
	_Atomic uint32_t *joined;
	_Atomic uint32_t *finished;
};

/* One node of a worker. */
struct work {
	struct member *m;
	uint32_t id;
	bool finished;
	uint64_t sent[NODES];  /* calls, per peer */
	uint64_t notes[NODES]; /* notifications, per peer */
	uint64_t done, heard;
};

/* A turn of one node: calls and notifications to all at full window, replies to all. */
static uint32_t
turn(struct worker *w, struct work *k, uint64_t now)
{
	struct crpc_done done[32];
	struct crpc_req req[32];
	uint32_t to, i, n, all;
	struct payload p;

	for (to = 0; to < NODES; to++) {
		while (to != k->id && k->sent[to] < CALLS &&
			call(k->m, to, k->id, k->sent[to]) == 0)
			k->sent[to]++;
		if (to != k->id && k->notes[to] < CALLS)
			k->notes[to] += notify(k->m, to, k->id, k->notes[to]) == 0;
	}
	all = n = recv_from(k->m, NULL, req, 32);
	for (i = 0; i < n; i++) {
		p = payload_of(req[i].data);
		k->heard += p.one_way;
		w->bad += p.from != req[i].peer;
		w->bad += (p.one_way ? release : echo)(k->m, &req[i]) != 0;
	}
	n = poll(k->m, now, done, 32);
	for (i = 0; i < n; i++) {
		p = done[i].status == 0 ? payload_of(done[i].data) : payload_make(UINT32_MAX, 0);
		w->bad += p.from != k->id || p.seq != done[i].cookie;
	}
	k->done += n;
	return all + n;
}

static void *
worker_run(void *arg)
{
	struct worker *w = arg;
	struct work work[PER_THREAD] = {0}, *k;
	uint32_t i, busy;
	uint64_t now = 0;

	for (k = work; k < work + PER_THREAD; k++) {
		k->id = w->first + (uint32_t)(k - work);
		k->m = join(w->flux, k->id);
	}
	crpc_fetch_add_relaxed(w->joined, PER_THREAD);
	while (crpc_load_acquire(w->joined) < NODES)
		sched_yield();
	for (k = work; k < work + PER_THREAD; k++)
		for (i = 0; i < NODES; i++)
			w->bad += i != k->id && connect_to(k->m, i) != 0;
	while (crpc_load_acquire(w->finished) < NODES) {
		for (busy = 0, k = work; k < work + PER_THREAD; k++) {
			busy += turn(w, k, now++);
			if (!k->finished && k->done == CALLS * (NODES - 1) &&
				k->heard == CALLS * (NODES - 1)) {
				k->finished = true;
				crpc_fetch_add_relaxed(w->finished, 1);
			}
		}
		if (busy == 0)
			sched_yield();
	}
	for (k = work; k < work + PER_THREAD; k++)
		leave(&k->m, 1);
	return NULL;
}

/* No deadlock and no loss, two nodes per thread. */
TEST(all_to_all_at_full_window)
{
	struct crpc_flux *flux = flux_of(*state, NODES, 16, 0);
	_Atomic uint32_t joined = 0, finished = 0;
	struct worker w[THREADS];
	pthread_t th[THREADS];

	for (uint32_t i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.flux = flux,
			.first = i * PER_THREAD,
			.joined = &joined,
			.finished = &finished};
		assert_int_equal(pthread_create(&th[i], NULL, worker_run, &w[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(th[i], NULL);
		assert_int_equal(w[i].bad, 0);
	}
	rig_end(*state, flux, NULL, 0);
}

/* ---- nodes that come and go ---- */

#define POLLS 10000u

struct churner {
	struct crpc_flux *flux;
	uint32_t id;
	_Atomic uint32_t stop;
	uint32_t bad;
	uint64_t count;
};

/* Joins, answers a while, leaves in the middle of things, again and again. */
static void *
answer_and_leave(void *arg)
{
	struct churner *c = arg;
	struct crpc_req req[8];

	for (uint32_t round = 0; crpc_load_acquire(&c->stop) == 0; round++) {
		struct member *m = join(c->flux, c->id);

		for (uint32_t k = 0; k < 50 + round % 50; k++) {
			uint32_t n = recv_from(m, NULL, req, 8);

			for (uint32_t i = 0; i < n; i++)
				c->count += echo(m, &req[i]) == 0;
			if (n == 0)
				sched_yield();
		}
		leave(&m, 1);
	}
	return NULL;
}

/*
 * Every accepted call completes exactly once though both servers keep leaving and joining, and with
 * its reply if there was one.
 */
TEST(churn_loses_no_call_and_no_reply)
{
	struct crpc_flux *flux = flux_of(*state, 3, 16, 0);
	struct churner c[2] = {{.flux = flux, .id = 1}, {.flux = flux, .id = 2}};
	uint64_t called = 0, ok = 0, reset = 0, now;
	struct member *m = join(flux, 0);
	struct crpc_done done[16];
	uint32_t n, i;
	pthread_t th[2];

	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&th[i], NULL, answer_and_leave, &c[i]), 0);
	for (now = 0; now <= POLLS || pending(m) != 0; now++) {
		for (i = 1; i < 3 && now < POLLS; i++)
			if (connect_to(m, i) == 0 || m->ep[i] != NULL)
				called += call(m, i, 0, called) == 0;
		for (i = 0; i < 2 && now == POLLS; i++)
			crpc_store_release(&c[i].stop, 1);
		n = poll(m, now, done, 16);
		for (i = 0; i < n; i++) {
			ok += done[i].status == 0;
			reset += done[i].status == -ECONNRESET;
		}
		if (n == 0)
			sched_yield();
	}
	for (i = 0; i < 2; i++)
		pthread_join(th[i], NULL);
	assert_int_equal(ok + reset, called);
	assert_int_equal(ok, c[0].count + c[1].count);
	assert_true(ok > 0);
	rig_end(*state, flux, &m, 1);
}

/* Joins, sends a few messages and leaves, again and again. */
static void *
send_and_leave(void *arg)
{
	struct churner *c = arg;
	struct crpc_done done[4];

	for (uint32_t round = 0; round < 500; round++) {
		struct member *m = join(c->flux, c->id);

		c->bad += connect_to(m, 1) != 0;
		for (uint32_t i = 0; i < round % 7; i++, c->count++)
			while (notify(m, 1, 0, c->count) != 0) {
				poll(m, 0, done, 4);
				sched_yield();
			}
		leave(&m, 1);
	}
	crpc_store_release(&c->stop, 1);
	return NULL;
}

/* Nothing is lost, repeated or out of order of what a node sends that keeps leaving and joining. */
TEST(churn_loses_no_message)
{
	struct crpc_flux *flux = flux_of(*state, 2, 4, 0);
	struct churner c = {.flux = flux, .id = 0};
	struct crpc_req req[3], held = {0};
	struct member *m = join(flux, 1);
	uint64_t heard = 0, held_seq = 0;
	uint32_t n, i, idle = 0;
	pthread_t th;

	assert_int_equal(pthread_create(&th, NULL, send_and_leave, &c), 0);
	while (idle < 10) {
		idle = crpc_load_acquire(&c.stop) != 0 ? idle + 1 : 0;
		n = recv_from(m, NULL, req, 3);
		for (i = 0; i < n; i++) {
			struct payload p = payload_of(req[i].data);

			assert_int_equal(p.from, 0);
			assert_int_equal(p.seq, heard++);
			if (heard % 16 != 1) {
				release(m, &req[i]);
				continue;
			}
			/* One is held for some incarnations of its sender. */
			if (held.data != NULL) {
				assert_int_equal(payload_of(held.data).seq, held_seq);
				release(m, &held);
			}
			held = req[i];
			held_seq = p.seq;
		}
		if (n != 0)
			idle = 0;
		else
			sched_yield();
	}
	pthread_join(th, NULL);
	assert_int_equal(heard, c.count);
	assert_int_equal(c.bad, 0);
	release(m, &held);
	rig_end(*state, flux, &m, 1);
}

RIG_MAIN
