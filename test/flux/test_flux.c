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
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "crpc_atomic.h"
#include "crpc_flux.h"
#include "crpc_log.h"
#include "rnd.h"

#define NODES_MAX 6
#define HELD_MAX  512

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

/* A node, with its endpoints and the time of its last poll, which its calls are made at. */
struct member {
	struct crpc_flux_node *node;
	struct crpc_flux_ep *ep[NODES_MAX];
	uint64_t now;
};

static struct member *
join(struct crpc_flux *flux, uint32_t id)
{
	struct crpc_flux_node *node = crpc_flux_join(flux, id);
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
	crpc_flux_leave(m->node);
	free(m);
}

static int
connect_to(struct member *m, uint32_t peer)
{
	struct crpc_flux_ep *ep = NULL;
	int rc = crpc_flux_connect(m->node, peer, &ep);

	assert_int_equal(ep != NULL, rc == 0);
	if (rc == 0 && peer < NODES_MAX) {
		assert_true(m->ep[peer] == NULL || m->ep[peer] == ep);
		m->ep[peer] = ep;
	}
	return rc;
}

static int
call(struct member *m, uint32_t to, const void *buf, uint32_t len, uint64_t cookie)
{
	return crpc_flux_call(m->ep[to], m->now, buf, len, sizeof(struct payload), cookie);
}

static uint16_t
call_burst(struct member *m, uint32_t to, const void *msgs, uint32_t len, const uint64_t *cookies,
	uint16_t n)
{
	return crpc_flux_call_burst(
		m->ep[to], m->now, msgs, len, sizeof(struct payload), cookies, n);
}

static int
notify(struct member *m, uint32_t to, const void *buf, uint32_t len)
{
	return crpc_flux_notify(m->ep[to], m->now, buf, len);
}

static uint16_t
poll(struct member *m, uint64_t now, struct crpc_done *done, uint16_t n)
{
	m->now = now;
	return crpc_flux_poll(m->node, now, done, n);
}

static struct crpc_flux *
flux_of(uint32_t nodes, enum crpc_flux_variant v, uint32_t window, uint64_t deadline_ns)
{
	struct crpc_flux_attr a = {.nodes = nodes,
		.variant = v,
		.window = window,
		.msg_size = sizeof(struct payload),
		.deadline_ns = deadline_ns,
		.start = 0u - 40};
	struct crpc_flux *flux = crpc_flux_create(&a);

	assert_non_null(flux);
	return flux;
}

static void
join_all(struct crpc_flux *flux, struct member **node, uint32_t n)
{
	uint32_t i, k;

	for (i = 0; i < n; i++) {
		node[i] = join(flux, i);
		assert_non_null(node[i]);
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			if (i != k)
				assert_int_equal(connect_to(node[i], k), 0);
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
		{{.nodes = 2, .variant = (enum crpc_flux_variant)7}, "variant 7"},
	};
	struct member *n;
	struct crpc_flux *flux;
	size_t i;

	for (i = 0; i < CRPC_DIM(bad); i++) {
		assert_null(crpc_flux_create(&bad[i].a));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].said));
	}
	flux = flux_of(2, CRPC_FLUX_LAMPORT, 4, 0);
	assert_null(join(flux, 2));
	assert_int_equal(errno, EINVAL);
	n = join(flux, 0);
	assert_null(join(flux, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(connect_to(n, 0), -EINVAL);
	assert_int_equal(connect_to(n, 9), -EINVAL);
	assert_int_equal(connect_to(n, 1), -ENOTCONN);
	leave(n);
	crpc_flux_free(flux);
}

/* One node of the random model. */
struct sim {
	struct member *node;
	uint64_t sent[NODES_MAX]; /* calls made, per peer */
	uint64_t seen[NODES_MAX]; /* requests that arrived, per caller: in order */
	uint8_t *open;            /* by cookie: 1 while the call is open */
	uint64_t cookies;
	uint64_t done;
	uint64_t held[HELD_MAX]; /* tokens not yet answered */
	const struct payload *data[HELD_MAX];
	uint64_t copy[HELD_MAX]; /* seq of data[], to see that it stays */
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
		rc = notify(s->node, to, p, sizeof(*p));
		assert_true(rc == 0 || rc == -EAGAIN);
		s->sent[to] += rc == 0;
		return;
	}
	got = call_burst(s->node, to, p, sizeof(*p), cookie, n);
	for (i = 0; i < got; i++)
		s->open[s->cookies + i] = 1;
	assert_true(got == n || call(s->node, to, p, sizeof(*p), 0) == -EAGAIN);
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
	n = crpc_flux_recv(s->node->node, 0, req, n);
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
			assert_int_equal(crpc_flux_release(s->node->node, 0, token), 0);
		else
			assert_int_equal(crpc_flux_reply(s->node->node, 0, token, s->data[k],
						 sizeof(**s->data)),
				0);
		assert_int_equal(crpc_flux_reply(s->node->node, 0, token, "", 0), -ENOENT);
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
	uint32_t n = poll(s->node, now, done, (uint32_t)(rnd(seed) % 20) + 1), i;
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
sim_run(enum crpc_flux_variant v, uint32_t nodes, uint32_t window, uint64_t seed)
{
	struct crpc_flux *flux = flux_of(nodes, v, window, 0);
	struct member *node[NODES_MAX];
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
			busy |= crpc_flux_pending(node[i]->node, UINT32_MAX) != 0;
	}
	for (i = 0; i < nodes; i++) {
		assert_int_equal(crpc_flux_pending(node[i]->node, UINT32_MAX), 0);
		assert_int_equal(sim[i].done, sim[i].cookies);
		assert_true(sim[i].done > 0);
		assert_int_equal(crpc_flux_check(node[i]->node, stderr), 0);
		free(sim[i].open);
	}
	for (i = 0; i < nodes; i++)
		leave(node[i]);
	assert_int_equal(crpc_flux_memory(flux), 0);
	crpc_flux_free(flux);
	free(sim);
}

static void
random_orders(void **state)
{
	static const uint32_t windows[] = {1, 2, 4, 32, 64};
	uint64_t seed = rnd_seed();
	uint32_t v, i;

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++)
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
	struct member *node[2];
	struct crpc_done done[4];
	struct crpc_req old, req;
	struct payload p;
	struct crpc_flux *flux;
	uint32_t v, i;

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++) {
		flux = flux_of(2, v, 4, 0);
		join_all(flux, node, 2);
		p = payload_make(0, 7);
		assert_int_equal(call(node[0], 1, &p, sizeof(p), 7), 0);
		crpc_flux_flush(node[0]->node, 0);
		assert_int_equal(crpc_flux_recv(node[1]->node, 0, &old, 1), 1);
		for (i = 100; i < 400; i++) {
			p = payload_make(0, i);
			assert_int_equal(call(node[0], 1, &p, sizeof(p), i), 0);
			crpc_flux_flush(node[0]->node, 0);
			assert_int_equal(crpc_flux_recv(node[1]->node, 0, &req, 1), 1);
			assert_true(req.token != old.token);
			assert_int_equal(
				crpc_flux_reply(node[1]->node, 0, req.token, req.data, req.len), 0);
			crpc_flux_flush(node[1]->node, 0);
			assert_int_equal(poll(node[0], i, done, 4), 1);
			assert_int_equal(done[0].cookie, i);
		}
		assert_int_equal(((const struct payload *)old.data)->seq, 7);
		assert_int_equal(
			crpc_flux_reply(node[1]->node, 0, old.token, old.data, old.len), 0);
		crpc_flux_flush(node[1]->node, 0);
		assert_int_equal(poll(node[0], i, done, 4), 1);
		assert_int_equal(done[0].cookie, 7);
		leave(node[0]);
		leave(node[1]);
		crpc_flux_free(flux);
	}
}

/* A peer that stops: its calls end after the deadline, others go on, a late answer is dropped. */
static void
stopped_peer_times_out(void **state)
{
	struct crpc_flux *flux = flux_of(3, CRPC_FLUX_FASTFORWARD, 2, 1000);
	struct member *node[3];
	struct crpc_done done[8];
	struct crpc_req req[4];

	join_all(flux, node, 3);
	assert_int_equal(poll(node[0], 5900, done, 8), 0);
	assert_int_equal(call(node[0], 1, "a", 1, 1), 0);
	assert_int_equal(call(node[0], 1, "b", 1, 2), 0);
	assert_int_equal(call(node[0], 1, "c", 1, 3), -EAGAIN);
	assert_int_equal(call(node[0], 2, "d", 1, 4), 0);
	assert_int_equal(poll(node[0], 5900, done, 8), 0);
	assert_int_equal(crpc_flux_recv(node[2]->node, 0, req, 4), 1);
	assert_int_equal(crpc_flux_reply(node[2]->node, 0, req[0].token, "D", 1), 0);
	crpc_flux_flush(node[2]->node, 0);
	assert_int_equal(poll(node[0], 5901, done, 8), 1);
	assert_int_equal(done[0].cookie, 4);
	/* One at a time, as the caller's array is short. */
	assert_int_equal(poll(node[0], 6899, done, 1), 0);
	assert_int_equal(poll(node[0], 7200, done, 1), 1);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_null(done[0].data);
	assert_int_equal(poll(node[0], 7201, done, 8), 1);
	assert_int_equal(done[0].status, -ETIMEDOUT);
	assert_int_equal(poll(node[0], 9000, done, 8), 0);
	assert_int_equal(call(node[0], 1, "e", 1, 5), -EAGAIN);
	/* It wakes: both answers are late, the window is whole again. */
	assert_int_equal(crpc_flux_recv(node[1]->node, 0, req, 4), 2);
	assert_int_equal(crpc_flux_reply(node[1]->node, 0, req[0].token, "A", 1), 0);
	assert_int_equal(crpc_flux_reply(node[1]->node, 0, req[1].token, "B", 1), 0);
	crpc_flux_flush(node[1]->node, 0);
	while (crpc_flux_pending(node[0]->node, 1) != 0)
		assert_int_equal(poll(node[0], 9001, done, 8), 0);
	assert_int_equal(crpc_flux_node_stats(node[0]->node)->rpc.late, 2);
	assert_int_equal(call(node[0], 1, "e", 1, 5), 0);
	assert_int_equal(crpc_flux_check(node[0]->node, stderr), 0);
	leave(node[0]);
	leave(node[1]);
	leave(node[2]);
	crpc_flux_free(flux);
}

/* Leaving ends peers' calls, also those in the inbox; the id joins again with new channels. */
static void
leave_and_join_again(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_FLUX_LAMPORT, 8, 0);
	struct member *a = join(flux, 0), *b;
	struct crpc_done done[8];
	struct crpc_req req[8], stale;
	size_t memory;
	int round;

	for (round = 0; round < 20; round++) {
		b = join(flux, 1);
		assert_non_null(b);
		assert_int_equal(connect_to(a, 1), 0);
		assert_int_equal(connect_to(a, 1), 0);
		assert_int_equal(call(a, 1, "x", 1, 1), 0);
		assert_int_equal(call(a, 1, "y", 1, 2), 0);
		crpc_flux_flush(a->node, 0);
		if (round % 2 != 0) {
			assert_int_equal(crpc_flux_recv(b->node, 0, req, 8), 2);
			assert_int_equal(crpc_flux_reply(b->node, 0, req[1].token, "Y", 1), 0);
		}
		leave(b);
		assert_int_equal(call(a, 1, "z", 1, 3), -ECONNRESET);
		assert_int_equal(connect_to(a, 1), -EBUSY);
		if (round % 2 != 0) {
			assert_int_equal(poll(a, 0, done, 8), 2);
			assert_int_equal(done[0].cookie, 2);
			assert_int_equal(done[0].status, 0);
			assert_memory_equal(done[0].data, "Y", 1);
			assert_int_equal(done[1].status, -ECONNRESET);
			assert_int_equal(poll(a, 0, done, 8), 0);
		} else {
			assert_int_equal(poll(a, 0, done, 8), 2);
			assert_int_equal(done[0].status, -ECONNRESET);
			assert_int_equal(done[1].status, -ECONNRESET);
		}
		assert_int_equal(crpc_flux_memory(flux), 0);
		assert_int_equal(connect_to(a, 1), -ENOTCONN);
	}
	/* A caller that leaves: its requests can no longer be answered. */
	b = join(flux, 1);
	for (round = 0; round < 300; round++) {
		assert_int_equal(connect_to(a, 1), 0);
		assert_int_equal(call(a, 1, "x", 1, 1), 0);
		crpc_flux_flush(a->node, 0);
		assert_int_equal(crpc_flux_recv(b->node, 0, req, 8), 1);
		if (round > 0)
			assert_int_equal(
				crpc_flux_reply(b->node, 0, stale.token, "", 0), -ECONNRESET);
		stale = req[0];
		memory = crpc_flux_memory(flux);
		leave(a);
		a = join(flux, 0);
	}
	assert_int_equal(crpc_flux_recv(b->node, 0, req, 8), 0);
	assert_true(memory > 0);
	assert_true(crpc_flux_memory(flux) > 0); /* of the last request */
	assert_int_equal(crpc_flux_release(b->node, 0, stale.token), -ECONNRESET);
	assert_int_equal(crpc_flux_release(b->node, 0, stale.token), -ENOENT);
	assert_int_equal(crpc_flux_memory(flux), 0);
	leave(a);
	leave(b);
	crpc_flux_free(flux);
}

/* Memory is that of connected pairs. */
static void
memory_grows_with_used_pairs(void **state)
{
	struct crpc_flux *flux = flux_of(6, CRPC_FLUX_LAMPORT, 64, 0);
	struct member *node[6];
	size_t one;
	uint32_t i;

	for (i = 0; i < 6; i++)
		node[i] = join(flux, i);
	assert_int_equal(crpc_flux_memory(flux), 0);
	assert_int_equal(connect_to(node[0], 1), 0);
	one = crpc_flux_memory(flux);
	assert_int_equal(connect_to(node[4], 2), 0);
	assert_int_equal(crpc_flux_memory(flux), 2 * one);
	for (i = 0; i < 6; i++)
		leave(node[i]);
	crpc_flux_free(flux);
}

/* Three callers with full windows: each gets a third of every recv, none waits for another. */
static void
recv_is_fair(void **state)
{
	struct crpc_flux *flux = flux_of(4, CRPC_FLUX_LAMPORT, 64, 0);
	struct member *node[4];
	struct crpc_req req[12];
	uint32_t count[4] = {0}, i, k, n;

	join_all(flux, node, 4);
	for (i = 1; i < 4; i++) {
		for (k = 0; k < 64; k++)
			assert_int_equal(call(node[i], 0, "x", 1, k), 0);
		crpc_flux_flush(node[i]->node, 0);
	}
	for (k = 0; k < 8; k++) {
		n = crpc_flux_recv(node[0]->node, 0, req, 12);
		assert_int_equal(n, 12);
		for (i = 0; i < n; i++)
			count[req[i].peer]++;
		for (i = 1; i < 4; i++)
			assert_in_range(count[i], (k + 1) * 12 / 3 - 4, (k + 1) * 12 / 3 + 4);
	}
	for (i = 0; i < 4; i++)
		leave(node[i]);
	crpc_flux_free(flux);
}

/* A token that is made up, or of another node, names nothing. */
static void
made_up_tokens_are_refused(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_FLUX_LAMPORT, 8, 0);
	struct member *node[2];
	uint64_t seed = 99;
	struct crpc_req req;
	int i;

	join_all(flux, node, 2);
	assert_int_equal(call(node[0], 1, "x", 1, 0), 0);
	crpc_flux_flush(node[0]->node, 0);
	assert_int_equal(crpc_flux_recv(node[1]->node, 0, &req, 1), 1);
	for (i = 0; i < 100000; i++)
		assert_int_equal(crpc_flux_reply(node[1]->node, 0, rnd(&seed), "", 0), -ENOENT);
	assert_int_equal(crpc_flux_reply(node[0]->node, 0, req.token, "", 0), -ENOENT);
	assert_int_equal(crpc_flux_reply(node[1]->node, 0, req.token, "", 33), -EMSGSIZE);
	assert_int_equal(crpc_flux_reply(node[1]->node, 0, req.token, "", 0), 0);
	leave(node[0]);
	leave(node[1]);
	crpc_flux_free(flux);
}

/* ---- leaving and joining again ---- */

/* Memory of channels that is overwritten when flux releases it, and freed at the end. */
struct heap {
	void *mem[8];
	size_t len[8];
	uint32_t n;
	uint32_t released;
};

static void *
heap_alloc(size_t len, void *arg)
{
	struct heap *h = arg;

	assert_true(h->n < CRPC_DIM(h->mem));
	h->len[h->n] = len;
	h->mem[h->n] = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(len, CRPC_CACHE_GUARD));
	return h->mem[h->n++];
}

static void
heap_release(void *mem, void *arg)
{
	struct heap *h = arg;
	uint32_t i;

	for (i = 0; i < h->n; i++)
		if (h->mem[i] == mem)
			memset(mem, 0xdd, h->len[i]);
	h->released++;
}

static struct payload
payload_of(const struct crpc_req *req)
{
	struct payload p;

	memcpy(&p, req->data, sizeof(p));
	return p;
}

static void
send_seq(struct member *node, uint32_t to, uint64_t seq, bool one_way)
{
	struct payload p = payload_make(0, seq);

	assert_int_equal(
		one_way ? notify(node, to, &p, sizeof(p)) : call(node, to, &p, sizeof(p), seq), 0);
}

/*
 * The bytes of a request that a server holds stay until the server ends it, though its caller has
 * left, joined again and calls through another channel.
 */
static void
held_request_outlives_its_caller(void **state)
{
	struct crpc_flux_attr attr = {.nodes = 2,
		.window = 4,
		.msg_size = sizeof(struct payload),
		.alloc = heap_alloc,
		.release = heap_release};
	struct member *a, *b;
	struct crpc_req held[2], req[4];
	struct crpc_flux *flux;
	uint32_t v, i, round;

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++) {
		struct heap heap = {.n = 0};

		attr.variant = (enum crpc_flux_variant)v;
		attr.arg = &heap;
		flux = crpc_flux_create(&attr);
		b = join(flux, 1);
		for (round = 0; round < 2; round++) {
			a = join(flux, 0);
			assert_int_equal(connect_to(a, 1), 0);
			send_seq(a, 1, round, false);
			crpc_flux_flush(a->node, 0);
			assert_int_equal(crpc_flux_recv(b->node, 0, &held[round], 1), 1);
			leave(a);
			assert_int_equal(crpc_flux_recv(b->node, 0, req, 4), 0);
			assert_int_equal(crpc_flux_recv(b->node, 0, req, 4), 0);
		}
		a = join(flux, 0);
		assert_int_equal(connect_to(a, 1), 0);
		send_seq(a, 1, 7, false);
		crpc_flux_flush(a->node, 0);
		assert_int_equal(crpc_flux_recv(b->node, 0, req, 4), 1);
		assert_int_equal(payload_of(req).seq, 7);
		for (i = 0; i < 2; i++) {
			assert_int_equal(heap.released, i);
			assert_true(payload_good(held[i].data));
			assert_int_equal(payload_of(&held[i]).seq, i);
			assert_int_equal(
				crpc_flux_reply(b->node, 0, held[i].token, "", 0), -ECONNRESET);
			assert_int_equal(
				crpc_flux_reply(b->node, 0, held[i].token, "", 0), -ENOENT);
			/* The datapath frees no channel. */
			assert_int_equal(heap.released, i);
			assert_true(crpc_flux_memory(flux) > 0);
			assert_int_equal(heap.released, i + 1);
		}
		assert_int_equal(crpc_flux_reply(b->node, 0, req[0].token, "", 0), 0);
		leave(a);
		leave(b);
		assert_int_equal(heap.released, 3);
		crpc_flux_free(flux);
		for (i = 0; i < heap.n; i++)
			free(heap.mem[i]);
	}
}

/* A caller that leaves, joins and connects before its peer receives is heard, however often. */
static void
reconnect_before_recv_keeps_the_live_channel(void **state)
{
	struct member *a, *b, *c;
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct crpc_flux *flux;
	uint32_t times, known, i;

	for (times = 1; times < 5; times++)
		for (known = 0; known < 2; known++) {
			flux = flux_of(3, CRPC_FLUX_LAMPORT, 4, 0);
			a = join(flux, 0);
			b = join(flux, 1);
			c = join(flux, 2);
			assert_int_equal(connect_to(c, 1), 0);
			assert_int_equal(connect_to(a, 1), 0);
			if (known)
				assert_int_equal(crpc_flux_recv(b->node, 0, req, 4), 0);
			for (i = 0; i < times; i++) {
				leave(a);
				a = join(flux, 0);
				assert_int_equal(connect_to(a, 1), 0);
			}
			send_seq(a, 1, 5, false);
			send_seq(c, 1, 6, false);
			crpc_flux_flush(a->node, 0);
			crpc_flux_flush(c->node, 0);
			assert_int_equal(crpc_flux_recv(b->node, 0, req, 4), 2);
			for (i = 0; i < 2; i++)
				assert_int_equal(crpc_flux_release(b->node, 0, req[i].token), 0);
			crpc_flux_flush(b->node, 0);
			assert_int_equal(poll(a, 0, done, 4), 1);
			assert_int_equal(done[0].cookie, 5);
			assert_int_equal(poll(c, 0, done, 4), 1);
			assert_int_equal(done[0].cookie, 6);
			leave(a);
			leave(b);
			leave(c);
			assert_int_equal(crpc_flux_memory(flux), 0);
			crpc_flux_free(flux);
		}
}

/* What a node sent before it left is received, and before what its successor sends. */
static void
messages_sent_before_leave_arrive(void **state)
{
	struct member *a, *b;
	struct crpc_flux *flux;
	struct crpc_req req;
	uint64_t sent, got;
	uint32_t v, i;

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++) {
		flux = flux_of(2, (enum crpc_flux_variant)v, 4, 0);
		b = join(flux, 1);
		for (sent = 0; sent < 12;) {
			a = join(flux, 0);
			assert_int_equal(connect_to(a, 1), 0);
			for (i = 0; i < 4; i++)
				send_seq(a, 1, sent++, i != 1);
			leave(a);
		}
		for (got = 0; got < sent; got++) {
			assert_int_equal(crpc_flux_recv(b->node, 0, &req, 1), 1);
			assert_int_equal(payload_of(&req).seq, got);
			assert_int_equal(crpc_flux_release(b->node, 0, req.token), -ECONNRESET);
		}
		assert_int_equal(crpc_flux_recv(b->node, 0, &req, 1), 0);
		assert_int_equal(crpc_flux_memory(flux), 0);
		leave(b);
		crpc_flux_free(flux);
	}
}

/*
 * A token is never given out twice: not after half a million uses of its slot, nor in a thousand
 * lives of its caller.
 */
static void
tokens_do_not_repeat(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_FLUX_LAMPORT, 1, 0);
	struct member *a = join(flux, 0), *b = join(flux, 1);
	struct crpc_req first = {0}, req;
	struct crpc_done done;
	uint32_t i;

	for (i = 0; i < 530000; i++) {
		if (i >= 529000) {
			leave(a);
			assert_int_equal(crpc_flux_recv(b->node, 0, &req, 1), 0);
			a = join(flux, 0);
		}
		connect_to(a, 1);
		if (call(a, 1, "x", 1, i) != 0)
			fail();
		crpc_flux_flush(a->node, 0);
		if (crpc_flux_recv(b->node, 0, &req, 1) != 1)
			fail();
		if (i == 0)
			first = req;
		else if (req.token == first.token)
			fail();
		if (crpc_flux_reply(b->node, 0, req.token, "y", 1) != 0)
			fail();
		crpc_flux_flush(b->node, 0);
		if (poll(a, i, &done, 1) != 1 || done.cookie != i)
			fail();
		poll(a, i, &done, 1); /* the next call takes the same slot */
	}
	leave(a);
	leave(b);
	crpc_flux_free(flux);
}

/* ---- deadlines ---- */

/* Answer all requests but those to hold on to: `held` of them, the first. */
static void
answer_all_but(struct member *node, struct crpc_req *held, uint32_t *nheld, uint32_t hold)
{
	struct crpc_req req[32];
	uint32_t n, i;

	while ((n = crpc_flux_recv(node->node, 0, req, 32)) != 0)
		for (i = 0; i < n; i++)
			if (*nheld < hold)
				held[(*nheld)++] = req[i];
			else
				assert_int_equal(crpc_flux_reply(node->node, 0, req[i].token,
							 req[i].data, 1),
					0);
	crpc_flux_flush(node->node, 0);
}

/*
 * Answers of one peer fill each poll, of whatever size. Another peer does not answer, a third
 * leaves: calls to them end in time all the same, and no call that is answered times out.
 */
static void
full_polls_do_not_delay_failures(void **state)
{
	static const uint32_t sizes[] = {1, 2, 4, 32};
	enum { DEADLINE = 100000 };
	uint64_t now, timed_out, reset, cookie;
	struct member *node[4];
	struct crpc_done done[32];
	struct crpc_req held[1] = {{0}};
	struct crpc_flux *flux;
	uint32_t s, i, n, nheld, v;

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++)
		for (s = 0; s < CRPC_DIM(sizes); s++) {
			flux = flux_of(4, (enum crpc_flux_variant)v, 64, DEADLINE);
			join_all(flux, node, 4);
			nheld = 0;
			timed_out = reset = 0;
			assert_int_equal(call(node[0], 2, "t", 1, 1), 0);
			assert_int_equal(call(node[0], 3, "r", 1, 2), 0);
			cookie = 3;
			for (now = 10; now < 3 * DEADLINE; now += 100) {
				while (call(node[0], 1, "x", 1, cookie) == 0)
					cookie++;
				crpc_flux_flush(node[0]->node, 0);
				answer_all_but(node[1], NULL, &nheld, 0);
				answer_all_but(node[2], held, &nheld, 1);
				if (now >= 1000 && node[3] != NULL) {
					leave(node[3]);
					node[3] = NULL;
				}
				n = poll(node[0], now, done, sizes[s]);
				assert_int_equal(n, sizes[s]);
				for (i = 0; i < n; i++) {
					if (done[i].status == -ETIMEDOUT) {
						assert_int_equal(done[i].cookie, 1);
						timed_out = now;
					} else if (done[i].status == -ECONNRESET) {
						assert_int_equal(done[i].cookie, 2);
						reset = now;
					} else {
						assert_int_equal(done[i].status, 0);
					}
				}
			}
			assert_in_range(reset, 1000, 2000);
			assert_in_range(timed_out, DEADLINE, 3 * DEADLINE / 2);
			assert_int_equal(
				crpc_flux_reply(node[2]->node, 0, held[0].token, "", 0), 0);
			for (i = 0; i < 3; i++)
				leave(node[i]);
			crpc_flux_free(flux);
		}
}

/* A call's time begins when it is made: not at the poll before, nor at 0. */
static void
idle_time_does_not_count(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_FLUX_LAMPORT, 4, 1000);
	uint64_t now = UINT64_C(1) << 60, start;
	struct member *node[2];
	struct crpc_done done[4];
	uint32_t round;

	join_all(flux, node, 2);
	for (round = 0; round < 4; round++) {
		start = node[0]->now = now += 50000;
		assert_int_equal(call(node[0], 1, "x", 1, round), 0);
		while (poll(node[0], now, done, 4) == 0)
			now += 100;
		assert_int_equal(done[0].status, -ETIMEDOUT);
		assert_int_equal(done[0].cookie, round);
		assert_in_range(now - start, 1000, 1500);
	}
	leave(node[0]);
	leave(node[1]);
	crpc_flux_free(flux);
}

/* A reply that waits behind the ends of notifications is delivered, though its time is over. */
static void
reply_behind_ends_of_notifications_is_delivered(void **state)
{
	struct crpc_flux *flux = flux_of(2, CRPC_FLUX_DUPLEX, 256, 1000);
	struct crpc_req req[CRPC_BURST_MAX];
	struct crpc_done done[4];
	struct member *node[2];
	uint32_t i, k, n, got = 0;

	join_all(flux, node, 2);
	node[0]->now = 1;
	for (i = 0; i < 200; i++)
		assert_int_equal(notify(node[0], 1, "n", 1), 0);
	assert_int_equal(call(node[0], 1, "c", 1, 7), 0);
	for (i = 0; i < 201; i += n) {
		crpc_flux_flush(node[0]->node, 1);
		n = crpc_flux_recv(node[1]->node, 1, req, CRPC_BURST_MAX);
		for (k = 0; k < n; k++)
			assert_int_equal(crpc_flux_release(node[1]->node, 1, req[k].token), 0);
	}
	crpc_flux_flush(node[1]->node, 1);
	for (i = 0; i < 400 && got == 0; i++)
		got = poll(node[0], 5000 + i, done, 1);
	assert_int_equal(got, 1);
	assert_int_equal(done[0].cookie, 7);
	assert_int_equal(done[0].status, 0);
	leave(node[0]);
	leave(node[1]);
	crpc_flux_free(flux);
}

/* More peers than room: each has its turn, and no reply that waits is late. */
static void
replies_of_many_peers_are_delivered_in_turns(void **state)
{
	struct crpc_flux *flux = flux_of(5, CRPC_FLUX_DUPLEX, 4, 1000);
	struct crpc_req req[4];
	struct crpc_done done[2];
	struct member *node[5];
	uint32_t i, k, turn, n;
	uint64_t now = 5000;

	join_all(flux, node, 5);
	node[0]->now = 1;
	for (i = 1; i < 5; i++)
		assert_int_equal(call(node[0], i, "c", 1, i), 0);
	for (turn = 0; turn < 20; turn++, now += 10) {
		crpc_flux_flush(node[0]->node, now);
		for (i = 1; i < 5; i++) {
			n = crpc_flux_recv(node[i]->node, now, req, 4);
			for (k = 0; k < n; k++)
				crpc_flux_reply(node[i]->node, now, req[k].token, "r", 1);
			crpc_flux_flush(node[i]->node, now);
		}
		n = poll(node[0], now, done, 2);
		for (k = 0; k < n; k++) {
			assert_int_equal(done[k].status, 0);
			assert_int_equal(
				call(node[0], (uint32_t)done[k].cookie, "c", 1, done[k].cookie), 0);
		}
	}
	for (i = 0; i < 5; i++)
		leave(node[i]);
	crpc_flux_free(flux);
}

/* ---- threads ---- */

#define CALLS      3000u
#define PER_THREAD 2u
#define THREADS    3u

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
turn(struct worker *w, struct member *node, uint32_t me, uint64_t *sent, uint64_t *done,
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
			if (call(node, to, &q, sizeof(q), sent[to]) != 0)
				break;
			sent[to]++;
		}
	n = crpc_flux_recv(node->node, 0, req, 32);
	for (i = 0; i < n; i++) {
		if (!payload_good(req[i].data))
			w->bad++;
		if (crpc_flux_reply(node->node, 0, req[i].token, req[i].data, req[i].len) != 0)
			w->bad++;
	}
	work += n;
	n = poll(node, now, fin, 32);
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
	struct member *node[PER_THREAD];
	uint64_t sent[PER_THREAD][NODES_MAX] = {{0}}, done[PER_THREAD] = {0}, now = 0;
	uint32_t i, k, work, fin = 0;

	for (i = 0; i < PER_THREAD; i++)
		node[i] = join(w->flux, w->first + i);
	crpc_fetch_add_relaxed(w->joined, PER_THREAD);
	while (crpc_load_acquire(w->joined) < w->nodes)
		sched_yield();
	for (i = 0; i < PER_THREAD; i++)
		for (k = 0; k < w->nodes; k++)
			if (k != w->first + i && connect_to(node[i], k) != 0)
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
		if (crpc_flux_check(node[i]->node, stderr) != 0)
			w->bad++;
		leave(node[i]);
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

	for (v = 0; v < CRPC_FLUX_VARIANTS; v++) {
		flux = flux_of(THREADS * PER_THREAD, v, v % 2 != 0 ? 4 : 32, 0);
		joined = finished = 0;
		for (i = 0; i < THREADS; i++) {
			w[i] = (struct worker){.flux = flux,
				.first = i * PER_THREAD,
				.nodes = THREADS * PER_THREAD,
				.joined = &joined,
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
	struct member *node;
	struct crpc_req req[8];
	uint32_t round = 0, n, i, k;

	while (crpc_load_acquire(&c->stop) == 0) {
		node = join(c->flux, 1);
		for (k = 0; k < 50 + round % 50; k++) {
			n = crpc_flux_recv(node->node, 0, req, 8);
			for (i = 0; i < n; i++)
				if (crpc_flux_reply(node->node, 0, req[i].token, req[i].data,
					    req[i].len) != 0)
					c->bad++;
			if (n == 0)
				sched_yield();
		}
		round++;
		leave(node);
	}
	return NULL;
}

/* Every accepted call completes exactly once though the peer keeps leaving and joining. */
static void
churn_loses_no_call(void **state)
{
	struct churner c = {.flux = flux_of(2, CRPC_FLUX_FASTFORWARD, 16, 0)};
	struct member *node = join(c.flux, 0);
	uint64_t called = 0, ok = 0, reset = 0, now = 0;
	struct crpc_done done[16];
	uint32_t n, i;
	pthread_t th;

	assert_int_equal(pthread_create(&th, NULL, churn, &c), 0);
	while (now < 60000 || crpc_flux_pending(node->node, UINT32_MAX) != 0) {
		if (now == 60000)
			crpc_store_release(&c.stop, 1);
		if (now < 60000) {
			connect_to(node, 1);
			if (node->ep[1] != NULL)
				called += call(node, 1, "x", 1, called) == 0;
		}
		n = poll(node, now++, done, 16);
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
	assert_int_equal(crpc_flux_check(node->node, stderr), 0);
	leave(node);
	crpc_flux_free(c.flux);
}

#define LIVES 2000u

/* Joins, sends a few messages and leaves, again and again. */
static void *
come_and_go(void *arg)
{
	struct churner *c = arg;
	struct member *node;
	struct crpc_done done[4];
	uint64_t seq = 0;
	uint32_t round, i;
	struct payload p;

	for (round = 0; round < LIVES; round++) {
		node = join(c->flux, 0);
		c->bad += connect_to(node, 1) != 0;
		for (i = 0; i < round % 7; i++) {
			p = payload_make(0, seq++);
			while (notify(node, 1, &p, sizeof(p)) != 0) {
				poll(node, 0, done, 4);
				sched_yield();
			}
		}
		leave(node);
	}
	crpc_store_release(&c->stop, 1);
	return (void *)(uintptr_t)seq;
}

/* Nothing is lost, repeated or out of order of what a node sends that keeps leaving and joining. */
static void
churn_loses_no_message(void **state)
{
	struct churner c = {.flux = flux_of(2, CRPC_FLUX_FASTFORWARD, 4, 0)};
	struct member *node = join(c.flux, 1);
	struct crpc_req req[3], held = {0};
	uint64_t heard = 0, held_seq = 0;
	uint32_t n, i, idle = 0;
	struct payload p;
	pthread_t th;
	void *sent;

	assert_int_equal(pthread_create(&th, NULL, come_and_go, &c), 0);
	while (idle < 10) {
		idle = crpc_load_acquire(&c.stop) != 0 ? idle + 1 : 0;
		n = crpc_flux_recv(node->node, 0, req, 3);
		for (i = 0; i < n; i++) {
			p = payload_of(&req[i]);
			assert_true(payload_good(&p));
			assert_int_equal(p.seq, heard++);
			if (heard % 16 != 1) {
				crpc_flux_release(node->node, 0, req[i].token);
				continue;
			}
			/* One is held for some lives of its sender. */
			if (held.data != NULL) {
				assert_int_equal(payload_of(&held).seq, held_seq);
				crpc_flux_release(node->node, 0, held.token);
			}
			held = req[i];
			held_seq = p.seq;
		}
		if (n != 0)
			idle = 0;
		else
			sched_yield();
	}
	pthread_join(th, &sent);
	assert_int_equal(heard, (uint64_t)(uintptr_t)sent);
	assert_int_equal(c.bad, 0);
	crpc_flux_release(node->node, 0, held.token);
	assert_int_equal(crpc_flux_memory(c.flux), 0);
	leave(node);
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
		cmocka_unit_test(held_request_outlives_its_caller),
		cmocka_unit_test(reconnect_before_recv_keeps_the_live_channel),
		cmocka_unit_test(messages_sent_before_leave_arrive),
		cmocka_unit_test(tokens_do_not_repeat),
		cmocka_unit_test(full_polls_do_not_delay_failures),
		cmocka_unit_test(idle_time_does_not_count),
		cmocka_unit_test(reply_behind_ends_of_notifications_is_delivered),
		cmocka_unit_test(replies_of_many_peers_are_delivered_in_turns),
		cmocka_unit_test(all_to_all_at_full_window),
		cmocka_unit_test(churn_loses_no_call),
		cmocka_unit_test(churn_loses_no_message),
	};

	return cmocka_run_group_tests_name("flux", tests, NULL, NULL);
}
