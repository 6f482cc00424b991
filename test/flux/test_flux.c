/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flux and mesh in one thread under a clock of the test: random calls and replies against a model,
 * windows, deadlines, join and leave, fairness. Most tests run over every transport.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crpc_log.h"
#include "flux_rig.h"

#define HELD_MAX 512

/* Wrong sizes and ids are refused with the value and the range. */
static void
bad_arguments_are_named(void **state)
{
	static const struct {
		struct crpc_mesh_attr a;
		const char *text;
	} bad[] = {
		{{.flux = {.nodes = 1}}, "1 nodes: 2 to 256"},
		{{.flux = {.nodes = 257}}, "257 nodes"},
		{{.flux = {.nodes = 2, .window = 3}},
			"window 3 is not a power of two from 1 to 4096"},
		{{.flux = {.nodes = 2, .window = 8192}}, "window 8192"},
		{{.flux = {.nodes = 2, .msg_size = 249}}, "size 249 is outside 1 to 248"},
		{{.flux = {.nodes = 2, .variant = (enum crpc_flux_variant)7}}, "variant 7"},
		{{.backend = CRPC_MESH_BACKENDS, .flux = {.nodes = 2}}, "backend 4 is unknown"},
	};
	const struct transport *t = *state;
	struct crpc_mesh *mesh = mesh_of(t, 2, 4, 0);
	struct member *m = join(mesh, 0);
	struct crpc_mesh_attr a;
	size_t i;

	for (i = 0; i < CRPC_DIM(bad); i++) {
		a = bad[i].a;
		a.backend = a.backend == 0 ? t->backend : a.backend;
		assert_null(crpc_mesh_create(&a));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].text));
	}
	assert_null(join(mesh, 2));
	assert_int_equal(errno, EINVAL);
	assert_null(join(mesh, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(connect_to(m, 0), -EINVAL);
	assert_int_equal(connect_to(m, 9), -EINVAL);
	assert_int_equal(connect_to(m, 1), -ENOTCONN);
	rig_end(t, mesh, &m, 1);
}

/* ---- random schedules ---- */

/* One node of the random model. */
struct sim {
	struct member *node;
	uint64_t sent[NODES_MAX]; /* messages sent, per peer */
	uint64_t seen[NODES_MAX]; /* requests that arrived, per caller: in order */
	uint8_t *open;            /* by cookie: 1 while the call is open */
	uint64_t cookies;
	uint64_t done;
	struct crpc_req held[HELD_MAX]; /* not yet answered */
	struct payload copy[HELD_MAX];
	uint32_t nheld;
};

static void
sim_call(struct sim *s, uint32_t me, uint32_t nodes, uint64_t *seed)
{
	uint32_t to = rnd_below(seed, nodes), n = rnd_below(seed, 9) + 1, i, got;
	struct payload p[9];
	uint64_t cookie[9];
	int rc;

	if (to == me)
		return;
	if (rnd_below(seed, 6) == 0) {
		rc = notify(s->node, to, me, s->sent[to]);
		assert_true(rc == 0 || rc == -EAGAIN);
		s->sent[to] += rc == 0;
		return;
	}
	for (i = 0; i < n; i++) {
		p[i] = payload_make(me, s->sent[to] + i);
		cookie[i] = s->cookies + i;
	}
	got = crpc_mesh_call_burst(
		s->node->ep[to], s->node->now, p, sizeof(*p), sizeof(*p), cookie, n);
	assert_true(got == n || call(s->node, to, me, 0) == -EAGAIN);
	memset(s->open + s->cookies, 1, got);
	s->sent[to] += got;
	s->cookies += got;
}

static void
sim_recv(struct sim *s, uint64_t *seed)
{
	uint32_t n = rnd_below(seed, 16) + 1;
	struct crpc_req *req = &s->held[s->nheld];
	struct payload p;

	if (s->nheld + n > HELD_MAX)
		return;
	for (n = recv_from(s->node, NULL, req, n); n > 0; n--, req++) {
		p = payload_of(req->data);
		assert_int_equal(req->len, sizeof(p));
		assert_int_equal(p.from, req->peer);
		assert_int_equal(p.seq, s->seen[req->peer]++);
		s->copy[s->nheld++] = p;
	}
}

/* Answer some of what is held, in random order; the bytes must be what they were. */
static void
sim_reply(struct sim *s, uint64_t *seed)
{
	uint32_t n = rnd_below(seed, 12), k;
	struct crpc_req req;

	for (; n > 0 && s->nheld > 0; n--) {
		k = rnd_below(seed, s->nheld);
		req = s->held[k];
		assert_memory_equal(req.data, &s->copy[k], sizeof(s->copy[k]));
		if (s->copy[k].one_way)
			assert_int_equal(echo(s->node, &req), -EOPNOTSUPP);
		assert_int_equal(
			s->copy[k].one_way ? release(s->node, &req) : echo(s->node, &req), 0);
		assert_int_equal(echo(s->node, &req), -ENOENT);
		s->held[k] = s->held[--s->nheld];
		s->copy[k] = s->copy[s->nheld];
	}
}

static void
sim_poll(struct sim *s, uint32_t me, uint64_t *seed, uint64_t now)
{
	struct crpc_done done[20];
	uint32_t n = poll(s->node, now, done, rnd_below(seed, 20) + 1), i;

	for (i = 0; i < n; i++) {
		assert_int_equal(done[i].status, 0);
		assert_true(done[i].cookie < s->cookies);
		assert_int_equal(s->open[done[i].cookie], 1); /* exactly once */
		s->open[done[i].cookie] = 0;
		assert_int_equal(payload_of(done[i].data).from, me);
		s->done++;
	}
}

static void
sim_run(const struct transport *t, uint32_t nodes, uint32_t window, uint64_t seed)
{
	struct crpc_mesh *mesh = mesh_of(t, nodes, window, 0);
	struct sim *sim = calloc(nodes, sizeof(*sim));
	struct member *node[NODES_MAX];
	uint32_t step, i;
	bool busy = true;

	join_all(mesh, node, nodes);
	for (i = 0; i < nodes; i++) {
		sim[i].node = node[i];
		sim[i].open = calloc(40000, 1);
	}
	for (step = 0; busy && step < 100000; step++) {
		i = rnd_below(&seed, nodes);
		switch (rnd_below(&seed, 4)) {
		case 0:
			if (step < 4000)
				sim_call(&sim[i], i, nodes, &seed);
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
			busy |= crpc_mesh_pending(node[i]->node) != 0;
	}
	for (i = 0; i < nodes; i++) {
		assert_int_equal(crpc_mesh_pending(node[i]->node), 0);
		assert_int_equal(sim[i].done, sim[i].cookies);
		assert_true(sim[i].done > 0);
		free(sim[i].open);
	}
	rig_end(t, mesh, node, nodes);
	free(sim);
}

static void
random_orders(void **state)
{
	static const uint32_t windows[] = {1, 2, 4, 32, 64};
	uint64_t seed = rnd_seed();
	uint32_t i;

	for (i = 0; i < 2 * CRPC_DIM(windows); i++)
		sim_run(*state, i % 2 != 0 ? 5 : 2, windows[i / 2], ++seed);
}

/* ---- windows and tokens ---- */

/*
 * A request that is held for long does not stand in the way of others, and its bytes and token
 * survive many reuses of every other slot ("slot reused while older call pending").
 */
static void
held_request_survives(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 4, 0);
	struct crpc_req old, req;
	struct crpc_done done[4];
	struct member *node[2];
	uint32_t i;

	join_all(mesh, node, 2);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	assert_int_equal(recv_from(node[1], node[0], &old, 1), 1);
	for (i = 100; i < 400; i++) {
		assert_int_equal(call(node[0], 1, 0, i), 0);
		assert_int_equal(recv_from(node[1], node[0], &req, 1), 1);
		assert_true(req.token != old.token);
		assert_int_equal(echo(node[1], &req), 0);
		assert_int_equal(poll(node[0], i, done, 4), 1);
		assert_int_equal(done[0].cookie, i);
	}
	assert_int_equal(payload_of(old.data).seq, 7);
	assert_int_equal(echo(node[1], &old), 0);
	assert_int_equal(poll(node[0], i, done, 4), 1);
	assert_int_equal(done[0].cookie, 7);
	rig_end(*state, mesh, node, 2);
}

/* Notifications are not pending calls: nothing completes them. */
static void
pending_counts_calls(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 4, 0);
	struct member *node[2];
	struct crpc_done done;

	join_all(mesh, node, 2);
	assert_int_equal(notify(node[0], 1, 0, 0), 0);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 0);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 1);
	assert_int_equal(serve(node[1], node[0]), 2);
	assert_int_equal(poll(node[0], 0, &done, 1), 1);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 0);
	assert_int_equal(notify(node[0], 1, 0, 2), 0);
	leave(&node[1], 1);
	assert_int_equal(poll(node[0], 0, &done, 1), 0);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 0);
	rig_end(*state, mesh, node, 2);
}

/* Memory is that of connected pairs. */
static void
memory_grows_with_used_pairs(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 6, 64, 0);
	struct member *node[6];
	size_t one;
	uint32_t i;

	for (i = 0; i < 6; i++)
		node[i] = join(mesh, i);
	assert_int_equal(crpc_flux_memory(mesh->flux), 0);
	assert_int_equal(connect_to(node[0], 1), 0);
	one = crpc_flux_memory(mesh->flux);
	assert_int_equal(connect_to(node[4], 2), 0);
	assert_int_equal(crpc_flux_memory(mesh->flux), 2 * one);
	rig_end(*state, mesh, node, 6);
}

/* Three callers with full windows: each gets a third of every recv, none waits for another. */
static void
recv_is_fair(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 4, 64, 0);
	struct member *node[4];
	struct crpc_req req[12];
	uint32_t count[4] = {0}, i, k;

	join_all(mesh, node, 4);
	for (i = 1; i < 4; i++) {
		for (k = 0; k < 64; k++)
			assert_int_equal(call(node[i], 0, i, k), 0);
		crpc_mesh_flush(node[i]->node, 0);
	}
	for (k = 0; k < 8; k++) {
		assert_int_equal(recv_from(node[0], NULL, req, 12), 12);
		for (i = 0; i < 12; i++)
			count[req[i].peer]++;
		for (i = 1; i < 4; i++)
			assert_in_range(count[i], (k + 1) * 12 / 3 - 4, (k + 1) * 12 / 3 + 4);
	}
	rig_end(*state, mesh, node, 4);
}

/* However large the array, poll and recv give out at most CRPC_BURST_MAX. */
static void
bursts_are_bounded(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 256, 0);
	struct crpc_done done[256];
	struct crpc_req req[256];
	struct member *node[2];
	uint32_t got, n, i;

	join_all(mesh, node, 2);
	for (i = 0; i < 256; i++)
		assert_int_equal(call(node[0], 1, 0, i), 0);
	for (got = 0; got < 256; got += n) {
		n = recv_from(node[1], node[0], req, 256);
		assert_in_range(n, 1, CRPC_BURST_MAX);
		for (i = 0; i < n; i++)
			assert_int_equal(echo(node[1], &req[i]), 0);
	}
	for (got = 0; got < 256; got += n) {
		n = poll(node[0], 1, done, 256);
		assert_in_range(n, 1, CRPC_BURST_MAX);
	}
	rig_end(*state, mesh, node, 2);
}

/* A token that is made up, or of another node, names nothing. */
static void
made_up_tokens_are_refused(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 8, 0);
	struct member *node[2];
	uint64_t seed = 99;
	struct crpc_req req, bad = {.data = "", .len = 0};
	uint32_t i;

	join_all(mesh, node, 2);
	assert_int_equal(call(node[0], 1, 0, 0), 0);
	assert_int_equal(recv_from(node[1], node[0], &req, 1), 1);
	for (i = 0; i < 100000; i++) {
		bad.token = rnd(&seed);
		assert_int_equal(echo(node[1], &bad), -ENOENT);
	}
	/* Near the true one, and near 0, where no call and no slot is. */
	for (i = 0; i < 64; i++) {
		bad.token = req.token ^ UINT64_C(1) << i;
		assert_int_equal(echo(node[1], &bad), -ENOENT);
		bad.token = UINT64_C(1) << i;
		assert_int_equal(bad.token == req.token || echo(node[1], &bad) == -ENOENT, 1);
	}
	for (bad.token = 0; bad.token < 40; bad.token++)
		assert_int_equal(bad.token == req.token || echo(node[1], &bad) == -ENOENT, 1);
	assert_int_equal(echo(node[0], &req), -ENOENT);
	req.len = 33;
	assert_int_equal(echo(node[1], &req), -EMSGSIZE);
	req.len = 0;
	assert_int_equal(echo(node[1], &req), 0);
	rig_end(*state, mesh, node, 2);
}

/*
 * A token is never given out twice: not after half a million uses of its slot, nor in a thousand
 * incarnations of its caller.
 */
static void
tokens_do_not_repeat(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 1, 0);
	struct crpc_req first = {0}, req;
	struct member *node[2];
	struct crpc_done done;
	uint32_t i;

	join_all(mesh, node, 2);
	for (i = 0; i < 530000; i++) {
		if (i >= 529000)
			rejoin(mesh, &node[0], 0, 1);
		if (call(node[0], 1, 0, i) != 0 || recv_from(node[1], node[0], &req, 1) != 1)
			fail();
		if (i == 0)
			first = req;
		else if (req.token == first.token)
			fail();
		if (echo(node[1], &req) != 0 || poll(node[0], i, &done, 1) != 1 || done.cookie != i)
			fail();
		poll(node[0], i, &done, 1); /* the next call takes the same slot */
	}
	rig_end(*state, mesh, node, 2);
}

/* ---- leaving and joining again ---- */

/* Calls to a peer that left end, its replies are given out first; the id joins again. */
static void
leave_and_join_again(void **state)
{
	const struct transport *t = *state;
	struct crpc_mesh *mesh = mesh_of(t, 2, 8, 0);
	struct crpc_req req[8], stale = {0};
	struct crpc_done done[8];
	struct member *node[2];
	uint32_t round;
	uint16_t got;

	node[0] = join(mesh, 0);
	for (round = 0; round < 20; round++) {
		node[1] = join(mesh, 1);
		assert_int_equal(connect_to(node[0], 1), 0);
		assert_int_equal(connect_to(node[0], 1), 0);
		assert_int_equal(recv_from(node[1], node[0], req, 8), 0);
		assert_int_equal(call(node[0], 1, 0, 1), 0);
		assert_int_equal(call(node[0], 1, 0, 2), 0);
		crpc_mesh_flush(node[0]->node, 0);
		if (round % 2 != 0) {
			assert_int_equal(recv_from(node[1], NULL, req, 8), 2);
			assert_int_equal(echo(node[1], &req[1]), 0);
		}
		leave(&node[1], 1);
		assert_int_equal(call(node[0], 1, 0, 3), -ECONNRESET);
		assert_int_equal(connect_to(node[0], 1), is_flux(t) ? -EBUSY : -ENOTCONN);
		got = poll(node[0], 0, done, 8);
		if (round % 2 != 0)
			assert_int_equal(payload_of(done[0].data).seq, 2);
		got += poll(node[0], 0, done + got, (uint16_t)(8 - got));
		assert_int_equal(got, 2);
		assert_int_equal(done[0].status, round % 2 != 0 ? 0 : -ECONNRESET);
		assert_int_equal(done[1].status, -ECONNRESET);
		assert_int_equal(poll(node[0], 0, done, 8), 0);
		assert_int_equal(crpc_mesh_pending(node[0]->node), 0);
		assert_int_equal(crpc_flux_memory(mesh->flux), 0);
		assert_int_equal(connect_to(node[0], 1), -ENOTCONN);
	}
	node[1] = join(mesh, 1);
	assert_int_equal(connect_to(node[0], 1), 0);
	/* A caller that leaves: its requests can no longer be answered. */
	for (round = 0; round < 300; round++) {
		assert_int_equal(call(node[0], 1, 0, 1), 0);
		assert_int_equal(recv_from(node[1], node[0], req, 8), 1);
		if (round > 0)
			assert_int_equal(echo(node[1], &stale), -ECONNRESET);
		stale = req[0];
		rejoin(mesh, &node[0], 0, 1);
	}
	assert_int_equal(recv_from(node[1], NULL, req, 8), 0);
	assert_int_equal(release(node[1], &stale), -ECONNRESET);
	assert_int_equal(release(node[1], &stale), -ENOENT);
	rig_end(t, mesh, node, 2);
}

/* A caller that leaves, joins and connects before its peer receives is served, however often. */
static void
reconnect_before_recv_keeps_the_live_channel(void **state)
{
	struct member *node[3];
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct crpc_mesh *mesh;
	uint32_t times, known, i;

	for (times = 1; times < 5; times++)
		for (known = 0; known < 2; known++) {
			mesh = mesh_of(*state, 3, 4, 0);
			join_all(mesh, node, 3);
			if (known)
				assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
			for (i = 0; i < times; i++)
				rejoin(mesh, &node[0], 0, 1);
			assert_int_equal(call(node[0], 1, 0, 5), 0);
			assert_int_equal(call(node[2], 1, 2, 6), 0);
			crpc_mesh_flush(node[2]->node, 0);
			assert_int_equal(serve(node[1], node[0]), 2);
			for (i = 0; i < 4; i += 2) {
				assert_int_equal(poll(node[i], 0, done, 4), 1);
				assert_int_equal(done[0].cookie, 5 + i / 2);
			}
			rig_end(*state, mesh, node, 3);
		}
}

/* What a node sent before it left is received, and before what its successor sends. */
static void
messages_sent_before_leave_arrive(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 4, 0);
	struct member *node[2] = {NULL, join(mesh, 1)};
	struct crpc_req req;
	uint64_t sent, got;

	for (sent = 0; sent < 12; sent++) {
		if (node[0] == NULL)
			rejoin(mesh, &node[0], 0, 1);
		assert_int_equal((sent % 4 == 1 ? call : notify)(node[0], 1, 0, sent), 0);
		if (sent % 4 == 3)
			leave(node, 1);
	}
	for (got = 0; got < sent; got++) {
		assert_int_equal(recv_from(node[1], NULL, &req, 1), 1);
		assert_int_equal(payload_of(req.data).seq, got);
		release(node[1], &req);
		assert_int_equal(release(node[1], &req), -ENOENT);
	}
	assert_int_equal(recv_from(node[1], NULL, &req, 1), 0);
	assert_int_equal(crpc_flux_memory(mesh->flux), 0);
	rig_end(*state, mesh, node, 2);
}

/* A reply to a node that left does not reach its successor, not the 256th either. */
static void
replies_do_not_reach_a_successor(void **state)
{
	struct crpc_mesh *mesh;
	struct crpc_req old, req;
	struct member *node[2];
	struct crpc_done done[4];
	uint32_t i, known;

	for (known = 0; known < 2; known++) {
		mesh = mesh_of(*state, 2, 4, 0);
		join_all(mesh, node, 2);
		assert_int_equal(call(node[0], 1, 0, 1), 0);
		crpc_mesh_flush(node[0]->node, 0);
		if (known)
			assert_int_equal(recv_from(node[1], NULL, &old, 1), 1);
		for (i = 0; i < 256; i++)
			rejoin(mesh, &node[0], 0, 1);
		assert_int_equal(call(node[0], 1, 0, 2), 0);
		if (!known)
			assert_int_equal(recv_from(node[1], node[0], &old, 1), 1);
		assert_int_equal(payload_of(old.data).seq, 1);
		assert_int_equal(echo(node[1], &old), -ECONNRESET);
		assert_int_equal(echo(node[1], &old), -ENOENT);
		assert_int_equal(poll(node[0], 1, done, 4), 0);
		assert_int_equal(recv_from(node[1], node[0], &req, 1), 1);
		assert_int_equal(echo(node[1], &req), 0);
		assert_int_equal(poll(node[0], 2, done, 4), 1);
		assert_int_equal(payload_of(done[0].data).seq, 2);
		rig_end(*state, mesh, node, 2);
	}
}

/* ---- memory of channels ---- */

/* Memory that is overwritten when flux releases it, and freed at the end. */
struct heap {
	void *mem[8];
	size_t len[8];
	uint32_t n;
	uint32_t released;
	struct member *use; /* is polled within alloc, while flux holds its lock */
};

static void *
heap_alloc(size_t len, void *arg)
{
	struct heap *h = arg;
	struct crpc_done done;
	struct crpc_req req;

	if (h->use != NULL) {
		recv_from(h->use, NULL, &req, 1);
		poll(h->use, 0, &done, 1);
	}
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

static struct crpc_mesh *
mesh_on(const struct transport *t, struct heap *heap)
{
	const struct crpc_mesh_attr a = {.backend = t->backend,
		.flux = {.nodes = 3,
			.variant = t->variant,
			.window = 4,
			.alloc = heap_alloc,
			.release = heap_release,
			.arg = heap}};

	memset(heap, 0, sizeof(*heap));
	return crpc_mesh_create(&a);
}

/*
 * The bytes of a request that a server holds stay until the server ends it, though its caller has
 * left, joined again and calls through another channel.
 */
static void
held_request_outlives_its_caller(void **state)
{
	struct crpc_req held[2], req[4];
	struct member *node[2];
	struct crpc_mesh *mesh;
	struct heap heap;
	uint32_t i;

	mesh = mesh_on(*state, &heap);
	node[0] = NULL;
	node[1] = join(mesh, 1);
	for (i = 0; i < 2; i++) {
		rejoin(mesh, &node[0], 0, 1);
		assert_int_equal(call(node[0], 1, 0, i), 0);
		assert_int_equal(recv_from(node[1], node[0], &held[i], 1), 1);
		leave(node, 1);
		assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
		assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
	}
	rejoin(mesh, &node[0], 0, 1);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	assert_int_equal(recv_from(node[1], node[0], req, 4), 1);
	assert_int_equal(payload_of(req[0].data).seq, 7);
	for (i = 0; i < 2; i++) {
		assert_int_equal(heap.released, i);
		assert_int_equal(payload_of(held[i].data).seq, i);
		assert_int_equal(payload_of(held[i].data).from, 0);
		assert_int_equal(echo(node[1], &held[i]), -ECONNRESET);
		assert_int_equal(echo(node[1], &held[i]), -ENOENT);
		assert_int_equal(heap.released, i); /* not on the datapath */
		assert_true(crpc_flux_memory(mesh->flux) > 0);
		assert_int_equal(heap.released, i + 1);
	}
	assert_int_equal(echo(node[1], &req[0]), 0);
	rig_end(*state, mesh, node, 2);
	assert_int_equal(heap.released, 3);
	for (i = 0; i < heap.n; i++)
		free(heap.mem[i]);
}

/* recv and poll take no lock, not even for channels of peers that left. */
static void
datapath_takes_no_lock(void **state)
{
	struct member *node[3];
	struct crpc_mesh *mesh;
	struct heap heap;
	uint32_t i;

	alarm(30); /* a lock that is held would be waited for */
	mesh = mesh_on(*state, &heap);
	join_all(mesh, node, 2);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	assert_int_equal(call(node[1], 0, 1, 1), 0);
	serve(node[1], node[0]);
	leave(node, 1);
	heap.use = node[1];
	node[0] = join(mesh, 0);
	node[2] = join(mesh, 2);
	assert_int_equal(connect_to(node[0], 2), 0);
	assert_int_equal(heap.released, 0);
	heap.use = NULL;
	rig_end(*state, mesh, node, 3);
	assert_int_equal(heap.released, 3);
	for (i = 0; i < heap.n; i++)
		free(heap.mem[i]);
	alarm(0);
}

/* ---- deadlines ---- */

/* A peer that stops: its calls end after the deadline, others go on, a late reply is dropped. */
static void
stopped_peer_times_out(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 3, 2, 1000);
	struct crpc_done done[8];
	struct member *node[3];

	join_all(mesh, node, 3);
	assert_int_equal(poll(node[0], 5900, done, 8), 0);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	assert_int_equal(call(node[0], 1, 0, 2), 0);
	assert_int_equal(call(node[0], 1, 0, 3), -EAGAIN);
	assert_int_equal(call(node[0], 2, 0, 4), 0);
	assert_int_equal(poll(node[0], 5900, done, 8), 0);
	assert_int_equal(serve(node[2], node[0]), 1);
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
	assert_int_equal(call(node[0], 1, 0, 5), -EAGAIN);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 2);
	/* It resumes: both replies are late, the window is whole again. */
	assert_int_equal(serve(node[1], node[0]), 2);
	assert_int_equal(poll(node[0], 9001, done, 8), 0);
	assert_int_equal(crpc_mesh_pending(node[0]->node), 0);
	assert_int_equal(call(node[0], 1, 0, 5), 0);
	assert_int_equal(call(node[0], 1, 0, 6), 0);
	rig_end(*state, mesh, node, 3);
}

/*
 * Replies of one peer fill each poll, of whatever size. Another peer does not answer, a third
 * leaves: calls to them end in time all the same, and no call that is answered times out.
 */
static void
full_polls_do_not_delay_failures(void **state)
{
	static const uint32_t sizes[] = {1, 2, 4, 32};
	enum { DEADLINE = 100000 };
	uint64_t now, t0 = UINT64_C(1) << 60, timed_out, reset, cookie;
	struct crpc_done done[32];
	struct member *node[4];
	struct crpc_mesh *mesh;
	uint32_t s, i;

	for (s = 0; s < CRPC_DIM(sizes); s++) {
		mesh = mesh_of(*state, 4, 64, DEADLINE);
		join_all(mesh, node, 4);
		timed_out = reset = 0;
		node[0]->now = t0;
		assert_int_equal(call(node[0], 2, 0, 1), 0);
		assert_int_equal(call(node[0], 3, 0, 2), 0);
		cookie = 3;
		for (now = 10; now < 3 * DEADLINE; now += 100) {
			while (call(node[0], 1, 0, cookie) == 0)
				cookie++;
			serve(node[1], node[0]);
			if (now >= 1000)
				leave(&node[3], 1);
			assert_int_equal(poll(node[0], t0 + now, done, sizes[s]), sizes[s]);
			for (i = 0; i < sizes[s]; i++) {
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
		rig_end(*state, mesh, node, 4);
	}
}

/* A call's time begins when it is made: not at the poll before, nor at 0. */
static void
idle_time_does_not_count(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 4, 1000);
	uint64_t now = UINT64_C(1) << 60, start;
	struct member *node[2];
	struct crpc_done done[4];
	uint32_t round;

	join_all(mesh, node, 2);
	for (round = 0; round < 4; round++) {
		start = node[0]->now = now += 50000;
		assert_int_equal(call(node[0], 1, 0, round), 0);
		while (poll(node[0], now, done, 4) == 0)
			now += 100;
		assert_int_equal(done[0].status, -ETIMEDOUT);
		assert_int_equal(done[0].cookie, round);
		assert_in_range(now - start, 1000, 1500);
	}
	rig_end(*state, mesh, node, 2);
}

/* A reply that waits behind the ends of notifications is delivered, though its time is over. */
static void
reply_behind_ends_of_notifications_is_delivered(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 256, 1000);
	struct crpc_done done[4];
	struct member *node[2];
	uint32_t i, got = 0;

	join_all(mesh, node, 2);
	node[0]->now = 1;
	for (i = 0; i < 200; i++)
		assert_int_equal(notify(node[0], 1, 0, i), 0);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	assert_int_equal(serve(node[1], node[0]), 201);
	for (i = 0; i < 400 && got == 0; i++)
		got = poll(node[0], 5000 + i, done, 1);
	assert_int_equal(got, 1);
	assert_int_equal(done[0].cookie, 7);
	assert_int_equal(done[0].status, 0);
	rig_end(*state, mesh, node, 2);
}

/* More peers than room: each has its turn, and no reply that waits is late. */
static void
replies_of_many_peers_are_delivered_in_turns(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 5, 4, 1000);
	struct crpc_done done[2];
	struct member *node[5];
	uint64_t now = 5000;
	uint32_t i, turn, n;

	join_all(mesh, node, 5);
	node[0]->now = 1;
	for (i = 1; i < 5; i++)
		assert_int_equal(call(node[0], i, 0, i), 0);
	for (turn = 0; turn < 20; turn++, now += 10) {
		for (i = 1; i < 5; i++)
			serve(node[i], node[0]);
		n = poll(node[0], now, done, 2);
		for (i = 0; i < n; i++) {
			assert_int_equal(done[i].status, 0);
			assert_int_equal(
				call(node[0], (uint32_t)done[i].cookie, 0, done[i].cookie), 0);
		}
	}
	rig_end(*state, mesh, node, 5);
}

/* ---- receivers of rte_ring ---- */

/* Notify until the peer's receiver is full: how many it took. */
static uint32_t
fill(struct member *m, uint32_t to)
{
	uint32_t n;

	for (n = 0; notify(m, to, 0, n) == 0; n++)
		;
	assert_int_equal(notify(m, to, 0, n), -EAGAIN);
	return n;
}

/*
 * Replies that find a full receiver wait and arrive, none is lost. They delay no reply to another
 * node, and if their caller leaves, they go.
 */
static void
replies_to_a_full_receiver_arrive(void **state)
{
	struct crpc_mesh *mesh;
	struct member *node[3];
	struct crpc_req req[8];
	struct crpc_done done[8];
	uint32_t leaves, i, notes;

	for (leaves = 0; leaves < 2; leaves++) {
		mesh = mesh_of(*state, 3, 4, 0);
		join_all(mesh, node, 3);
		for (i = 0; i < 4; i++)
			assert_int_equal(call(node[0], 1, 0, i), 0);
		assert_int_equal(call(node[2], 1, 2, 9), 0);
		assert_int_equal(recv_from(node[1], NULL, req, 8), 5);
		notes = fill(node[1], 0);
		fill(node[1], 2);
		for (i = 0; i < 5; i++)
			assert_int_equal(echo(node[1], &req[i]), 0);
		serve(node[2], NULL);
		if (leaves)
			leave(node, 1);
		crpc_mesh_flush(node[1]->node, 0);
		assert_int_equal(poll(node[2], 1, done, 8), 1);
		assert_int_equal(done[0].cookie, 9);
		if (!leaves) {
			assert_int_equal(serve(node[0], NULL), notes);
			crpc_mesh_flush(node[1]->node, 0);
			assert_int_equal(poll(node[0], 1, done, 8), 4);
		}
		rig_end(*state, mesh, node, 3);
	}
}

/* Calls that are refused do not bring a slot round whose reply the last poll gave out. */
static void
refused_calls_move_no_slot(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 3, 4, 0);
	struct crpc_req req[64];
	struct crpc_done done;
	struct member *node[3];
	uint32_t refused, i, n;

	join_all(mesh, node, 3);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	serve(node[1], node[0]);
	assert_int_equal(poll(node[0], 0, &done, 1), 1);
	for (refused = 1; refused < 8; refused++) { /* the slot of the reply would be the next */
		fill(node[2], 1);
		assert_int_equal(call(node[0], 1, 0, 9), -EAGAIN);
		serve(node[1], NULL);
	}
	for (i = 0; i < 4; i++)
		assert_int_equal(call(node[0], 1, 0, 10 + i), 0);
	n = recv_from(node[1], NULL, req, 64);
	for (i = 0; i < n; i++)
		assert_int_equal(echo(node[1], &req[i]), 0);
	recv_from(node[0], NULL, req, 1); /* takes the replies from the ring */
	assert_int_equal(payload_of(done.data).seq, 1);
	rig_end(*state, mesh, node, 3);
}

/* A reply that waits behind requests is delivered, though its server has left. */
static void
reply_behind_requests_is_not_a_reset(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 3, 4, 0);
	struct crpc_done done[4];
	struct member *node[3];
	uint32_t i;

	join_all(mesh, node, 3);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	for (i = 0; i < 44; i++) { /* as many as the node keeps, and some that stay in the ring */
		assert_int_equal(notify(node[2], 0, 2, i), 0);
		if (i % 8 == 7)
			poll(node[0], 0, done, 4);
	}
	serve(node[1], NULL);
	leave(&node[1], 1);
	assert_int_equal(poll(node[0], 0, done, 4), 0);
	assert_int_equal(serve(node[0], NULL), 44);
	assert_int_equal(poll(node[0], 0, done, 4), 1);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(payload_of(done[0].data).seq, 7);
	rig_end(*state, mesh, node, 3);
}

#ifdef CRPC_DEBUG
static void *
use_node(void *m)
{
	struct crpc_done done;

	poll(m, 0, &done, 1);
	return NULL;
}

/* A debug build stops the second thread that uses a node. */
static void
second_thread_is_stopped(void **state)
{
	struct crpc_mesh *mesh = mesh_of(*state, 2, 4, 0);
	struct member *node[2];
	pthread_t th;
	int status;
	pid_t pid;

	join_all(mesh, node, 2);
	use_node(node[0]);
	pid = fork();
	if (pid == 0) {
		signal(SIGILL, SIG_DFL); /* the test library's handler continues with the tests */
		signal(SIGTRAP, SIG_DFL);
		pthread_create(&th, NULL, use_node, node[0]);
		pthread_join(th, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	rig_end(*state, mesh, node, 2);
}
#endif

int
main(void)
{
	static const struct rig_test tests[] = {
		RIG_TEST(bad_arguments_are_named, ALL),
		RIG_TEST(random_orders, ALL),
		RIG_TEST(held_request_survives, ALL),
		RIG_TEST(pending_counts_calls, ALL),
		RIG_TEST(memory_grows_with_used_pairs, FLUX),
		RIG_TEST(recv_is_fair, FLUX),
		RIG_TEST(bursts_are_bounded, ALL),
		RIG_TEST(made_up_tokens_are_refused, ALL),
		RIG_TEST(tokens_do_not_repeat, ALL),
		RIG_TEST(leave_and_join_again, ALL),
		RIG_TEST(reconnect_before_recv_keeps_the_live_channel, ALL),
		RIG_TEST(messages_sent_before_leave_arrive, ALL),
		RIG_TEST(replies_do_not_reach_a_successor, ALL),
		RIG_TEST(held_request_outlives_its_caller, FLUX),
		RIG_TEST(datapath_takes_no_lock, FLUX),
		RIG_TEST(stopped_peer_times_out, ALL),
		RIG_TEST(full_polls_do_not_delay_failures, ALL),
		RIG_TEST(idle_time_does_not_count, ALL),
		RIG_TEST(reply_behind_ends_of_notifications_is_delivered, ALL),
		RIG_TEST(replies_of_many_peers_are_delivered_in_turns, ALL),
		RIG_TEST(replies_to_a_full_receiver_arrive, RTE),
		RIG_TEST(refused_calls_move_no_slot, RTE),
		RIG_TEST(reply_behind_requests_is_not_a_reset, RTE),
#ifdef CRPC_DEBUG
		RIG_TEST(second_thread_is_stopped, ALL),
#endif
	};

	return rig_run("flux", tests, CRPC_DIM(tests));
}
