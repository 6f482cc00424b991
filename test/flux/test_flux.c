/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/flux: in one thread under a clock of the test (random calls and replies against a model, seed
 * printed; windows, deadlines, join and leave, fairness), and between threads (everybody calls
 * everybody at full window).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "crpc_atomic.h"
#include "crpc_flux.h"
#include "crpc_log.h"
#include "rnd.h"

#define NODES_MAX 6
#define HELD_MAX 512

/* What a request from one node to another carries, and what comes back. */
struct payload {
	uint64_t from;
	uint64_t seq;
	uint64_t mix;
	uint64_t one_way;
};

static struct payload
payload_make(uint32_t from, uint64_t seq)
{
	return (struct payload){from, seq, (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + from, 0};
}

static bool
payload_good(const struct payload *p)
{
	return p->mix == (p->seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + p->from;
}

static struct crpc_flux *
flux_of(uint32_t nodes, enum crpc_spsc_variant v, uint32_t window, uint64_t deadline_ns)
{
	struct crpc_flux_attr a = {.nodes = nodes,
		.variant = v,
		.window = window,
		.msg_size = sizeof(struct payload),
		.deadline_ns = deadline_ns};
	struct crpc_flux *flux = crpc_flux_create(&a);

	assert_non_null(flux);
	return flux;
}

static void
join_all(struct crpc_flux *flux, struct crpc_flux_node **node, uint32_t n)
{
	uint32_t i, k;

	for (i = 0; i < n; i++) {
		node[i] = crpc_flux_join(flux, i);
		assert_non_null(node[i]);
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			if (i != k)
				assert_int_equal(crpc_flux_connect(node[i], k), 0);
}

/* Wrong sizes and ids are refused with the value and the range. */
static void
bad_arguments_are_named(void **state)
{
	static const struct {
		struct crpc_flux_attr a;
		const char *said;
	} bad[] = {
		{{.nodes = 1}, "1 nodes: 2 to 256"},
		{{.nodes = 257}, "257 nodes"},
		{{.nodes = 2, .window = 3}, "window 3 is not a power of two from 1 to 4096"},
		{{.nodes = 2, .window = 8192}, "window 8192"},
		{{.nodes = 2, .msg_size = 249}, "size 249 is outside 1 to 248"},
		{{.nodes = 2, .variant = (enum crpc_spsc_variant)7}, "variant 7"},
	};
	struct crpc_flux_node *n;
	struct crpc_flux *flux;
	size_t i;

	for (i = 0; i < CRPC_DIM(bad); i++) {
		assert_null(crpc_flux_create(&bad[i].a));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].said));
	}
	flux = flux_of(2, CRPC_SPSC_LAMPORT, 4, 0);
	assert_null(crpc_flux_join(flux, 2));
	assert_int_equal(errno, EINVAL);
	n = crpc_flux_join(flux, 0);
	assert_null(crpc_flux_join(flux, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(crpc_flux_connect(n, 0), -EINVAL);
	assert_int_equal(crpc_flux_connect(n, 9), -EINVAL);
	assert_int_equal(crpc_flux_connect(n, 1), -ENOTCONN);
	assert_int_equal(crpc_flux_call(n, 1, "x", 1, 0), -ENOTCONN);
	assert_int_equal(crpc_flux_call(n, 77, "x", 1, 0), -ENOTCONN);
	crpc_flux_leave(n);
	crpc_flux_free(flux);
}

/* One node of the random model. */
struct sim {
	struct crpc_flux_node *node;
	uint64_t sent[NODES_MAX];    /* calls made, per peer */
	uint64_t seen[NODES_MAX];    /* requests that arrived, per caller: in order */
	uint8_t *open;		     /* by cookie: 1 while the call is open */
	uint64_t cookies;
	uint64_t done;
	uint64_t held[HELD_MAX];     /* tokens not yet answered */
	const struct payload *data[HELD_MAX];
	uint64_t copy[HELD_MAX];     /* seq of data[], to see that it stays */
	uint32_t nheld;
};

static void
sim_call(struct sim *s, uint32_t me, uint32_t nodes, uint32_t window, uint64_t *seed)
{
	uint32_t to = (uint32_t)(rnd(seed) % nodes), n = (uint32_t)(rnd(seed) % 9) + 1, i, got;
	struct payload p[9];
	uint64_t cookie[9];
	int rc;

	if (to == me)
		return;
	for (i = 0; i < n; i++) {
		p[i] = payload_make(me, s->sent[to] + i);
		cookie[i] = s->cookies + i;
	}
	if (rnd(seed) % 6 == 0) {
		p[0].one_way = 1;
		rc = crpc_flux_notify(s->node, to, p, sizeof(*p));
		assert_true(rc == 0 || rc == -EAGAIN);
		s->sent[to] += rc == 0;
		return;
	}
	got = crpc_flux_call_burst(s->node, to, p, sizeof(*p), cookie, n);
	for (i = 0; i < got; i++)
		s->open[s->cookies + i] = 1;
	assert_true(got == n || crpc_flux_pending(s->node, to) == window);
	s->sent[to] += got;
	s->cookies += got;
}

static void
sim_recv(struct sim *s, uint64_t *seed)
{
	struct crpc_req req[16];
	uint32_t n = (uint32_t)(rnd(seed) % 16) + 1, i;
	const struct payload *p;

	if (s->nheld + n > HELD_MAX)
		return;
	n = crpc_flux_recv(s->node, req, n);
	for (i = 0; i < n; i++) {
		p = req[i].data;
		assert_int_equal(req[i].len, sizeof(*p));
		assert_true(payload_good(p));
		assert_int_equal(p->from, req[i].peer);
		assert_int_equal(p->seq, s->seen[req[i].peer]++);
		s->held[s->nheld] = req[i].token;
		s->data[s->nheld] = p;
		s->copy[s->nheld++] = p->seq;
	}
}

/* Answer some of what is held, in random order; the bytes must be what they were. */
static void
sim_reply(struct sim *s, uint64_t *seed)
{
	uint32_t n = (uint32_t)(rnd(seed) % 12), k;
	uint64_t token;

	for (; n > 0 && s->nheld > 0; n--) {
		k = (uint32_t)(rnd(seed) % s->nheld);
		assert_int_equal(s->data[k]->seq, s->copy[k]);
		token = s->held[k];
		if (s->data[k]->one_way)
			assert_int_equal(crpc_flux_release(s->node, token), 0);
		else
			assert_int_equal(
				crpc_flux_reply(s->node, token, s->data[k], sizeof(**s->data)), 0);
		assert_int_equal(crpc_flux_reply(s->node, token, "", 0), -ENOENT);
		s->nheld--;
		s->held[k] = s->held[s->nheld];
		s->data[k] = s->data[s->nheld];
		s->copy[k] = s->copy[s->nheld];
	}
}

static void
sim_poll(struct sim *s, uint32_t me, uint64_t *seed, uint64_t now)
{
	struct crpc_done done[20];
	uint32_t n = crpc_flux_poll(s->node, done, (uint32_t)(rnd(seed) % 20) + 1, now), i;
	const struct payload *p;

	for (i = 0; i < n; i++) {
		assert_int_equal(done[i].status, 0);
		assert_true(done[i].cookie < s->cookies);
		assert_int_equal(s->open[done[i].cookie], 1); /* exactly once */
		s->open[done[i].cookie] = 0;
		p = done[i].data;
		assert_true(payload_good(p));
		assert_int_equal(p->from, me);
		s->done++;
	}
}

static void
sim_run(enum crpc_spsc_variant v, uint32_t nodes, uint32_t window, uint64_t seed)
{
	struct crpc_flux *flux = flux_of(nodes, v, window, 0);
	struct crpc_flux_node *node[NODES_MAX];
	struct sim *sim = calloc(nodes, sizeof(*sim));
	uint32_t step, i;
	bool busy = true;

	join_all(flux, node, nodes);
	for (i = 0; i < nodes; i++) {
		sim[i].node = node[i];
		sim[i].open = calloc(40000, 1);
	}
	for (step = 0; busy && step < 100000; step++) {
		i = (uint32_t)(rnd(&seed) % nodes);
		switch (rnd(&seed) % 4) {
		case 0:
			if (step < 4000)
				sim_call(&sim[i], i, nodes, window, &seed);
			break;
		case 1:
			sim_recv(&sim[i], &seed);
			break;
		case 2:
			sim_reply(&sim[i], &seed);
			break;
		default:
			sim_poll(&sim[i], i, &seed, step);
		}
		for (busy = step < 4000, i = 0; i < nodes; i++)
			busy |= crpc_flux_pending(node[i], UINT32_MAX) != 0;
	}
	for (i = 0; i < nodes; i++) {
		assert_int_equal(crpc_flux_pending(node[i], UINT32_MAX), 0);
		assert_int_equal(sim[i].done, sim[i].cookies);
		assert_true(sim[i].done > 0);
		assert_int_equal(crpc_flux_check(node[i], stderr), 0);
		free(sim[i].open);
	}
	for (i = 0; i < nodes; i++)
		crpc_flux_leave(node[i]);
	assert_int_equal(crpc_flux_memory(flux), 0);
	crpc_flux_free(flux);
	free(sim);
}

static void
random_orders(void **state)
{
	static const uint32_t windows[] = {1, 2, 4, 32, 64};
	uint64_t seed = (uint64_t)time(NULL) << 16;
	uint32_t v, i;

	print_message("seed 0x%llx\n", (unsigned long long)seed);
	for (v = 0; v < CRPC_SPSC_VARIANTS; v++)
		for (i = 0; i < 2 * CRPC_DIM(windows); i++)
			sim_run(v, i % 2 != 0 ? 5 : 2, windows[i / 2], ++seed);
}

/*
 * A request that is held for long does not stand in the way of others, and its bytes and token
 * survive many reuses of every other slot ("slot reused while older call pending").
 */
static void
held_request_survives(void **state)
{
	struct crpc_flux_node *node[2];
	struct crpc_done done[4];
	struct crpc_req old, req;
	struct payload p;
	struct crpc_flux *flux;
	uint32_t v, i;

	for (v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		flux = flux_of(2, v, 4, 0);
		join_all(flux, node, 2);
		p = payload_make(0, 7);
		assert_int_equal(crpc_flux_call(node[0], 1, &p, sizeof(p), 7), 0);
		crpc_flux_flush(node[0]);
		assert_int_equal(crpc_flux_recv(node[1], &old, 1), 1);
		for (i = 100; i < 400; i++) {
			p = payload_make(0, i);
			assert_int_equal(crpc_flux_call(node[0], 1, &p, sizeof(p), i), 0);
			crpc_flux_flush(node[0]);
			assert_int_equal(crpc_flux_recv(node[1], &req, 1), 1);
			assert_true(req.token != old.token);
			assert_int_equal(
				crpc_flux_reply(node[1], req.token, req.data, req.len), 0);
			crpc_flux_flush(node[1]);
			assert_int_equal(crpc_flux_poll(node[0], done, 4, i), 1);
			assert_int_equal(done[0].cookie, i);
		}
		assert_int_equal(((const struct payload *)old.data)->seq, 7);
		assert_int_equal(crpc_flux_reply(node[1], old.token, old.data, old.len), 0);
		crpc_flux_flush(node[1]);
		assert_int_equal(crpc_flux_poll(node[0], done, 4, i), 1);
		assert_int_equal(done[0].cookie, 7);
		crpc_flux_leave(node[0]);
		crpc_flux_leave(node[1]);
		crpc_flux_free(flux);
	}
}

/* A peer that stops: its calls end after the deadline, others go on, a late answer is dropped. */
static void
stopped_peer_times_out(void **state)
{
	struct crpc_flux *flux = flux_of(3, CRPC_SPSC_FASTFORWARD, 2, 1000);
	struct crpc_flux_node *node[3];
	struct crpc_done done[8];
	struct crpc_req req[4];

	join_all(flux, node, 3);
	assert_int_equal(crpc_flux_poll(node[0], done, 8, 5000), 0);
	assert_int_equal(crpc_flux_call(node[0], 1, "a", 1, 1), 0);
	assert_int_equal(crpc_flux_call(node[0], 1, "b", 1, 2), 0);
	assert_int_equal(crpc_flux_call(node[0], 1, "c", 1, 3), -EAGAIN);
	assert_int_equal(crpc_flux_call(node[0], 2, "d", 1, 4), 0);
	assert_int_equal(crpc_flux_poll(node[0], done, 8, 5900), 0);
	assert_int_equal(crpc_flux_recv(node[2], req, 4), 1);
	assert_int_equal(crpc_flux_reply(node[2], req[0].token, "D", 1), 0);
	crpc_flux_flush(node[2]);
	assert_int_equal(crpc_flux_poll(node[0], done, 8, 5901), 1);
	assert_int_equal(done[0].cookie, 4);
	/* One at a time, as the caller's array is short. */
	assert_int_equal(crpc_flux_poll(node[0], done, 1, 6400), 1);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_null(done[0].data);
	assert_int_equal(crpc_flux_poll(node[0], done, 8, 6401), 1);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_int_equal(crpc_flux_poll(node[0], done, 8, 9000), 0);
	assert_int_equal(crpc_flux_call(node[0], 1, "e", 1, 5), -EHOSTDOWN);
	/* It wakes: both answers are late, the window is whole again. */
	assert_int_equal(crpc_flux_recv(node[1], req, 4), 2);
	assert_int_equal(crpc_flux_reply(node[1], req[0].token, "A", 1), 0);
	assert_int_equal(crpc_flux_reply(node[1], req[1].token, "B", 1), 0);
	crpc_flux_flush(node[1]);
	while (crpc_flux_pending(node[0], 1) != 0)
		assert_int_equal(crpc_flux_poll(node[0], done, 8, 9001), 0);
	assert_int_equal(crpc_flux_node_stats(node[0])->late, 2);
	assert_int_equal(crpc_flux_call(node[0], 1, "e", 1, 5), 0);
	assert_int_equal(crpc_flux_check(node[0], stderr), 0);
	crpc_flux_leave(node[0]);
	crpc_flux_leave(node[1]);
	crpc_flux_leave(node[2]);
	crpc_flux_free(flux);
}

/* Leaving ends peers' calls, also those in the inbox; the id joins again with new channels. */
static void
leave_and_join_again(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_SPSC_LAMPORT, 8, 0);
	struct crpc_flux_node *a = crpc_flux_join(flux, 0), *b;
	struct crpc_done done[8];
	struct crpc_req req[8], stale;
	size_t memory;
	int round;

	for (round = 0; round < 20; round++) {
		b = crpc_flux_join(flux, 1);
		assert_non_null(b);
		assert_int_equal(crpc_flux_connect(a, 1), 0);
		assert_int_equal(crpc_flux_connect(a, 1), 0);
		assert_int_equal(crpc_flux_call(a, 1, "x", 1, 1), 0);
		assert_int_equal(crpc_flux_call(a, 1, "y", 1, 2), 0);
		crpc_flux_flush(a);
		if (round % 2 != 0) {
			assert_int_equal(crpc_flux_recv(b, req, 8), 2);
			assert_int_equal(crpc_flux_reply(b, req[1].token, "Y", 1), 0);
		}
		crpc_flux_leave(b);
		assert_int_equal(crpc_flux_call(a, 1, "z", 1, 3), -ENOTCONN);
		assert_int_equal(crpc_flux_connect(a, 1), -EBUSY);
		if (round % 2 != 0) {
			assert_int_equal(crpc_flux_poll(a, done, 8, 0), 2);
			assert_int_equal(done[0].cookie, 2);
			assert_int_equal(done[0].status, 0);
			assert_memory_equal(done[0].data, "Y", 1);
			assert_int_equal(done[1].status, -ECONNRESET);
			assert_int_equal(crpc_flux_poll(a, done, 8, 0), 0);
		} else {
			assert_int_equal(crpc_flux_poll(a, done, 8, 0), 2);
			assert_int_equal(done[0].status, -ECONNRESET);
			assert_int_equal(done[1].status, -ECONNRESET);
		}
		assert_int_equal(crpc_flux_memory(flux), 0);
		assert_int_equal(crpc_flux_connect(a, 1), -ENOTCONN);
	}
	/* A caller that leaves: its requests can no longer be answered. */
	b = crpc_flux_join(flux, 1);
	for (round = 0; round < 300; round++) {
		assert_int_equal(crpc_flux_connect(a, 1), 0);
		assert_int_equal(crpc_flux_call(a, 1, "x", 1, 1), 0);
		crpc_flux_flush(a);
		assert_int_equal(crpc_flux_recv(b, req, 8), 1);
		if (round > 0)
			assert_int_equal(crpc_flux_reply(b, stale.token, "", 0), -ENOENT);
		stale = req[0];
		memory = crpc_flux_memory(flux);
		crpc_flux_leave(a);
		a = crpc_flux_join(flux, 0);
	}
	assert_int_equal(crpc_flux_recv(b, req, 8), 0);
	assert_true(memory > 0);
	assert_int_equal(crpc_flux_memory(flux), 0);
	crpc_flux_leave(a);
	crpc_flux_leave(b);
	crpc_flux_free(flux);
}

/* Memory is that of connected pairs. */
static void
memory_grows_with_used_pairs(void **state)
{
	struct crpc_flux *flux = flux_of(6, CRPC_SPSC_LAMPORT, 64, 0);
	struct crpc_flux_node *node[6];
	size_t one;
	uint32_t i;

	for (i = 0; i < 6; i++)
		node[i] = crpc_flux_join(flux, i);
	assert_int_equal(crpc_flux_memory(flux), 0);
	assert_int_equal(crpc_flux_connect(node[0], 1), 0);
	one = crpc_flux_memory(flux);
	assert_int_equal(crpc_flux_connect(node[4], 2), 0);
	assert_int_equal(crpc_flux_memory(flux), 2 * one);
	for (i = 0; i < 6; i++)
		crpc_flux_leave(node[i]);
	crpc_flux_free(flux);
}

/* Three callers with full windows: each gets a third of every recv, none waits for another. */
static void
recv_is_fair(void **state)
{
	struct crpc_flux *flux = flux_of(4, CRPC_SPSC_LAMPORT, 64, 0);
	struct crpc_flux_node *node[4];
	struct crpc_req req[12];
	uint32_t count[4] = {0}, i, k, n;

	join_all(flux, node, 4);
	for (i = 1; i < 4; i++) {
		for (k = 0; k < 64; k++)
			assert_int_equal(crpc_flux_call(node[i], 0, "x", 1, k), 0);
		crpc_flux_flush(node[i]);
	}
	for (k = 0; k < 8; k++) {
		n = crpc_flux_recv(node[0], req, 12);
		assert_int_equal(n, 12);
		for (i = 0; i < n; i++)
			count[req[i].peer]++;
		for (i = 1; i < 4; i++)
			assert_in_range(count[i], (k + 1) * 12 / 3 - 4, (k + 1) * 12 / 3 + 4);
	}
	for (i = 0; i < 4; i++)
		crpc_flux_leave(node[i]);
	crpc_flux_free(flux);
}

/* A token that is made up, or of another node, names nothing. */
static void
made_up_tokens_are_refused(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_SPSC_LAMPORT, 8, 0);
	struct crpc_flux_node *node[2];
	uint64_t seed = 99;
	struct crpc_req req;
	int i;

	join_all(flux, node, 2);
	assert_int_equal(crpc_flux_call(node[0], 1, "x", 1, 0), 0);
	crpc_flux_flush(node[0]);
	assert_int_equal(crpc_flux_recv(node[1], &req, 1), 1);
	for (i = 0; i < 100000; i++)
		assert_int_equal(crpc_flux_reply(node[1], rnd(&seed), "", 0), -ENOENT);
	assert_int_equal(crpc_flux_reply(node[0], req.token, "", 0), -ENOENT);
	assert_int_equal(crpc_flux_reply(node[1], req.token, "", 33), -EMSGSIZE);
	assert_int_equal(crpc_flux_reply(node[1], req.token, "", 0), 0);
	crpc_flux_leave(node[0]);
	crpc_flux_leave(node[1]);
	crpc_flux_free(flux);
}

/* ---- threads ---- */

#define CALLS 3000u
#define PER_THREAD 2u
#define THREADS 3u

struct worker {
	struct crpc_flux *flux;
	uint32_t first;
	uint32_t nodes;
	uint32_t bad;
	_Atomic uint32_t *joined;
	_Atomic uint32_t *finished;
};

/* A turn of one node: calls to everybody at full window, answers to everybody. */
static uint32_t
turn(struct worker *w, struct crpc_flux_node *node, uint32_t me, uint64_t *sent, uint64_t *done,
	uint64_t now)
{
	struct crpc_done fin[32];
	struct crpc_req req[32];
	const struct payload *p;
	struct payload q;
	uint32_t to, i, n, work = 0;

	for (to = 0; to < w->nodes; to++)
		while (to != me && sent[to] < CALLS) {
			q = payload_make(me, sent[to]);
			if (crpc_flux_call(node, to, &q, sizeof(q), sent[to]) != 0)
				break;
			sent[to]++;
		}
	n = crpc_flux_recv(node, req, 32);
	for (i = 0; i < n; i++) {
		if (!payload_good(req[i].data))
			w->bad++;
		if (crpc_flux_reply(node, req[i].token, req[i].data, req[i].len) != 0)
			w->bad++;
	}
	work += n;
	n = crpc_flux_poll(node, fin, 32, now);
	for (i = 0; i < n; i++) {
		p = fin[i].data;
		if (fin[i].status != 0 || !payload_good(p) || p->from != me ||
			p->seq != fin[i].cookie)
			w->bad++;
		(*done)++;
	}
	return work + n;
}

static void *
worker_run(void *arg)
{
	struct worker *w = arg;
	struct crpc_flux_node *node[PER_THREAD];
	uint64_t sent[PER_THREAD][NODES_MAX] = {{0}}, done[PER_THREAD] = {0}, now = 0;
	uint32_t i, k, work, fin = 0;

	for (i = 0; i < PER_THREAD; i++)
		node[i] = crpc_flux_join(w->flux, w->first + i);
	crpc_fetch_add_relaxed(w->joined, PER_THREAD);
	while (crpc_load_acquire(w->joined) < w->nodes)
		sched_yield();
	for (i = 0; i < PER_THREAD; i++)
		for (k = 0; k < w->nodes; k++)
			if (k != w->first + i && crpc_flux_connect(node[i], k) != 0)
				w->bad++;
	while (crpc_load_acquire(w->finished) < w->nodes) {
		for (work = 0, i = 0; i < PER_THREAD; i++)
			work += turn(w, node[i], w->first + i, sent[i], &done[i], now++);
		for (i = 0; i < PER_THREAD; i++)
			if (done[i] == (uint64_t)CALLS * (w->nodes - 1) && !(fin & 1u << i)) {
				fin |= 1u << i;
				crpc_fetch_add_relaxed(w->finished, 1);
			}
		if (work == 0)
			sched_yield();
	}
	for (i = 0; i < PER_THREAD; i++) {
		if (crpc_flux_check(node[i], stderr) != 0)
			w->bad++;
		crpc_flux_leave(node[i]);
	}
	return NULL;
}

/* No deadlock, no loss when everybody calls everybody at full window, two nodes per thread. */
static void
all_to_all_at_full_window(void **state)
{
	_Atomic uint32_t joined, finished;
	struct worker w[THREADS];
	pthread_t th[THREADS];
	struct crpc_flux *flux;
	uint32_t v, i;

	for (v = 0; v < CRPC_SPSC_VARIANTS; v++) {
		flux = flux_of(THREADS * PER_THREAD, v, v % 2 != 0 ? 4 : 32, 0);
		joined = finished = 0;
		for (i = 0; i < THREADS; i++) {
			w[i] = (struct worker){.flux = flux, .first = i * PER_THREAD,
				.nodes = THREADS * PER_THREAD, .joined = &joined,
				.finished = &finished};
			assert_int_equal(pthread_create(&th[i], NULL, worker_run, &w[i]), 0);
		}
		for (i = 0; i < THREADS; i++) {
			pthread_join(th[i], NULL);
			assert_int_equal(w[i].bad, 0);
		}
		crpc_flux_free(flux);
	}
}

struct churner {
	struct crpc_flux *flux;
	_Atomic uint32_t stop;
	uint32_t bad;
};

/* Joins, answers a while, leaves in the middle of things, again and again. */
static void *
churn(void *arg)
{
	struct churner *c = arg;
	struct crpc_flux_node *node;
	struct crpc_req req[8];
	uint32_t round = 0, n, i, k;

	while (crpc_load_acquire(&c->stop) == 0) {
		node = crpc_flux_join(c->flux, 1);
		for (k = 0; k < 50 + round % 50; k++) {
			n = crpc_flux_recv(node, req, 8);
			for (i = 0; i < n; i++)
				if (crpc_flux_reply(node, req[i].token, req[i].data, req[i].len) !=
						0)
					c->bad++;
			if (n == 0)
				sched_yield();
		}
		round++;
		crpc_flux_leave(node);
	}
	return NULL;
}

/* Every accepted call completes exactly once though the peer keeps leaving and joining. */
static void
churn_loses_no_call(void **state)
{
	struct churner c = {.flux = flux_of(2, CRPC_SPSC_FASTFORWARD, 16, 0)};
	struct crpc_flux_node *node = crpc_flux_join(c.flux, 0);
	uint64_t called = 0, ok = 0, reset = 0, now = 0;
	struct crpc_done done[16];
	uint32_t n, i;
	pthread_t th;

	assert_int_equal(pthread_create(&th, NULL, churn, &c), 0);
	while (now < 60000 || crpc_flux_pending(node, UINT32_MAX) != 0) {
		if (now == 60000)
			crpc_store_release(&c.stop, 1);
		if (now < 60000) {
			crpc_flux_connect(node, 1);
			called += crpc_flux_call(node, 1, "x", 1, called) == 0;
		}
		n = crpc_flux_poll(node, done, 16, now++);
		for (i = 0; i < n; i++) {
			ok += done[i].status == 0;
			reset += done[i].status == -ECONNRESET;
		}
		if (n == 0)
			sched_yield();
	}
	crpc_store_release(&c.stop, 1);
	pthread_join(th, NULL);
	assert_int_equal(ok + reset, called);
	assert_true(ok > 0);
	assert_int_equal(c.bad, 0);
	assert_int_equal(crpc_flux_check(node, stderr), 0);
	crpc_flux_leave(node);
	crpc_flux_free(c.flux);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_arguments_are_named),
		cmocka_unit_test(random_orders),
		cmocka_unit_test(held_request_survives),
		cmocka_unit_test(stopped_peer_times_out),
		cmocka_unit_test(leave_and_join_again),
		cmocka_unit_test(memory_grows_with_used_pairs),
		cmocka_unit_test(recv_is_fair),
		cmocka_unit_test(made_up_tokens_are_refused),
		cmocka_unit_test(all_to_all_at_full_window),
		cmocka_unit_test(churn_loses_no_call),
	};

	return cmocka_run_group_tests_name("flux", tests, NULL, NULL);
}
