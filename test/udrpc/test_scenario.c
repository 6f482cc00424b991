/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios over a bad network: sizes, slots, credits, sizes of queues, the chances of loss,
 * doubling, reordering and resizing, and who does what when all come from one seed. Both sides call
 * each other. Every call completes once, with the right bytes; no request is given twice; at the
 * end all credits are home. A seed that failed is printed; CRPC_SEED=n repeats one, CRPC_SEEDS=n
 * runs so many.
 *
 * Some scenarios kill a side: then every call of its peer still ends, once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

#define SEEDS     1000u
#define CALLS     60u
#define MSG_MAX   20000u
#define STEPS_MAX 3000000u
#define RTO       100000u

/* Seeds that once found an error, and one that did not. */
static const uint64_t past[] = {1};

static uint64_t first_seed = 1, last_seed = SEEDS;

/* One call, known by its cookie, which is also the first bytes of its request. */
struct record {
	uint32_t len, reply_len;
	uint8_t times_given, times_done;
};

struct scene {
	struct pair p;
	uint64_t seed;
	uint32_t eps, calls, msg_max;
	bool killed;
	struct record rec[2][CALLS];
	uint32_t made[2], done[2];
	struct {
		uint64_t token;
		uint32_t id;
		bool used;
	} held[2][CALLS];
	uint8_t buf[MSG_MAX];
};

#define require(s, cond)                                                                           \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail_msg("seed %llu: %s; %s", (unsigned long long)(s)->seed, #cond,        \
				crpc_log_last());                                                  \
	} while (0)

static uint32_t
pick(struct scene *s, uint32_t n)
{
	return (uint32_t)(crpc_paper_rnd(&s->p.w) % n);
}

/* Mostly small, sometimes up to the largest. */
static uint32_t
pick_len(struct scene *s)
{
	switch (pick(s, 4)) {
	case 0:
		return pick(s, s->msg_max + 1);
	case 1:
		return pick(s, (uint32_t)crpc_min(s->msg_max, 2500) + 1);
	default:
		return pick(s, 65);
	}
}

/* Byte i of what side says in call id. */
static uint8_t
content(uint32_t side, uint32_t id, uint32_t i)
{
	return (uint8_t)(side * 101 + id * 37 + i * 7 + (i >> 8) * 3);
}

static void
fill(struct scene *s, uint32_t side, uint32_t id, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		s->buf[i] = content(side, id, i);
	if (len >= 4)
		memcpy(s->buf, &id, 4);
}

static bool
same(uint32_t side, uint32_t id, const uint8_t *data, uint32_t len)
{
	uint32_t i, found;

	if (len >= 4) {
		memcpy(&found, data, 4);
		if (found != id)
			return false;
	}
	for (i = len >= 4 ? 4 : 0; i < len; i++) {
		if (data[i] != content(side, id, i))
			return false;
	}
	return true;
}

static void
do_call(struct scene *s, uint32_t side)
{
	uint32_t id = s->made[side];
	struct record *r = &s->rec[side][id];
	struct crpc_udrpc_ep *ep = s->p.ep[side][pick(s, s->eps)];
	int rc;

	if (id == s->calls)
		return;
	/* a request holds its number */
	r->len = (uint32_t)crpc_max(4, pick_len(s));
	r->reply_len = pick_len(s);
	fill(s, side, id, r->len);
	rc = crpc_udrpc_call(ep, s->p.w.now_ns, s->buf, r->len,
		r->reply_len + pick(s, s->msg_max - r->reply_len + 1), id);
	if (rc == 0)
		s->made[side]++;
	else
		require(s, rc == -EAGAIN || s->killed);
}

static void
do_poll(struct scene *s, uint32_t side)
{
	struct crpc_done done[8];
	struct record *r;
	uint16_t n, i;

	n = crpc_udrpc_poll(s->p.ctx[side], s->p.w.now_ns, done, (uint16_t)(1 + pick(s, 8)));
	for (i = 0; i < n; i++) {
		require(s, done[i].cookie < s->made[side]);
		r = &s->rec[side][done[i].cookie];
		require(s, r->times_done++ == 0);
		s->done[side]++;
		if (s->killed && done[i].status != 0) {
			require(s, done[i].status == -ETIMEDOUT || done[i].status == -ECONNRESET);
			continue;
		}
		require(s, done[i].status == 0);
		require(s, done[i].len == r->reply_len);
		require(s, same(!side + 2, (uint32_t)done[i].cookie, done[i].data, done[i].len));
	}
}

static void
do_recv(struct scene *s, uint32_t side)
{
	struct crpc_req req[4];
	uint16_t n, i;
	uint32_t id;

	n = crpc_udrpc_recv(s->p.ctx[side], s->p.w.now_ns, req, (uint16_t)(1 + pick(s, 4)));
	for (i = 0; i < n; i++) {
		require(s, req[i].len >= 4);
		memcpy(&id, req[i].data, 4);
		require(s, id < s->made[!side]);
		require(s, s->rec[!side][id].times_given++ == 0);
		require(s, s->rec[!side][id].len == req[i].len);
		require(s, same(!side, id, req[i].data, req[i].len));
		s->held[side][id].token = req[i].token;
		s->held[side][id].id = id;
		s->held[side][id].used = true;
	}
}

/* Answer requests that are held, in any order. */
static void
do_reply(struct scene *s, uint32_t side)
{
	uint32_t start = pick(s, CALLS), i, id, len;

	for (i = 0; i < CALLS; i++) {
		id = (start + i) % CALLS;
		if (!s->held[side][id].used)
			continue;
		len = s->rec[!side][id].reply_len;
		fill(s, side + 2, id, len);
		require(s, crpc_udrpc_reply(s->p.ctx[side], s->p.w.now_ns,
				   s->held[side][id].token, s->buf, len) == 0 ||
				   s->killed);
		s->held[side][id].used = false;
		return;
	}
}

static void
act(struct scene *s, uint32_t side)
{
	switch (pick(s, 6)) {
	case 0:
		do_call(s, side);
		break;
	case 1:
		do_recv(s, side);
		break;
	case 2:
		do_reply(s, side);
		break;
	case 3:
		crpc_udrpc_flush(s->p.ctx[side], s->p.w.now_ns);
		break;
	default:
		do_poll(s, side);
		break;
	}
}

static void
audit(struct scene *s, bool at_rest)
{
	uint32_t side;

	for (side = 0; side < 2; side++) {
		if (s->p.ctx[side] != NULL)
			require(s, crpc_udrpc_check(s->p.ctx[side], at_rest) == 0);
	}
}

static void
scene_init(struct scene *s, uint64_t seed)
{
	static const uint32_t inlines[] = {0, 64, 188}, mtus[] = {256, 1024, 4096};
	struct crpc_udrpc_conf conf = {.rto_ns = RTO, .retries = 2000, .timeout_ns = 1ull << 50};
	struct crpc_paper w = {.rng = seed * 7919 + 1};
	uint32_t inl, mtu, i;

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	for (i = 0; i < 8; i++)
		crpc_paper_rnd(&w);
	s->eps = 1 + (uint32_t)crpc_paper_rnd(&w) % 4;
	s->calls = 1 + (uint32_t)crpc_paper_rnd(&w) % CALLS;
	s->msg_max = conf.max_msg = 64 + (uint32_t)crpc_paper_rnd(&w) % (MSG_MAX - 64);
	conf.max_eps = s->eps;
	conf.slots = 1 + (uint32_t)crpc_paper_rnd(&w) % 10;
	conf.credits = 1 + (uint32_t)crpc_paper_rnd(&w) % 40;
	conf.sq_depth = 8 + (uint32_t)crpc_paper_rnd(&w) % 200;
	conf.rq_depth = 2 + (uint32_t)crpc_paper_rnd(&w) % 300;
	conf.no_congestion_control = crpc_paper_rnd(&w) % 2;
	conf.t_low_ns = 1 + crpc_paper_rnd(&w) % 50000;
	conf.t_high_ns = conf.t_low_ns + crpc_paper_rnd(&w) % 200000;
	conf.link_bytes_per_s = 100000000 + crpc_paper_rnd(&w) % 12000000000;
	inl = inlines[crpc_paper_rnd(&w) % 3];
	mtu = mtus[crpc_paper_rnd(&w) % 3];
	pair_init(&s->p, &conf, s->eps, seed, inl, mtu);
	s->p.w.rng = w.rng;
	s->p.w.drop = 100 + (uint32_t)crpc_paper_rnd(&w) % 1901; /* 1 % to 20 % */
	s->p.w.duplicate = (uint32_t)crpc_paper_rnd(&w) % 1000;
	s->p.w.reorder = (uint32_t)crpc_paper_rnd(&w) % 3000;
	s->p.w.corrupt = (uint32_t)crpc_paper_rnd(&w) % 200;
	s->p.w.stall = crpc_paper_rnd(&w) % 3 == 0 ? 9000 : 0;
}

static void
scene_run(struct scene *s)
{
	uint32_t steps, side;

	for (steps = 0; s->done[0] != s->calls || s->done[1] != s->calls; steps++) {
		require(s, steps < STEPS_MAX);
		side = pick(s, 2);
		if (pick(s, 2))
			act(s, side);
		else
			crpc_paper_step(&s->p.w);
		if (pick(s, 8) == 0)
			s->p.w.now_ns += pick(s, pick(s, 50) == 0 ? RTO : 2000);
		if (steps % 64 == 0)
			audit(s, false);
	}
}

/* With a good network and some time everything comes home. */
static void
scene_rest(struct scene *s)
{
	struct crpc_paper *w = &s->p.w;
	struct crpc_done done[8];
	uint32_t i, side;

	w->drop = w->duplicate = w->reorder = w->corrupt = w->stall = 0;
	for (i = 0; i < 100; i++) {
		w->now_ns += RTO;
		for (side = 0; side < 2; side++) {
			crpc_paper_run(w);
			require(s, crpc_udrpc_poll(s->p.ctx[side], w->now_ns, done, 8) == 0);
			crpc_udrpc_flush(s->p.ctx[side], w->now_ns);
		}
	}
	audit(s, true);
	for (side = 0; side < 2; side++) {
		for (i = 0; i < s->calls; i++)
			require(s, s->rec[side][i].times_given == 1 &&
					   s->rec[side][i].times_done == 1);
	}
}

static struct scene scene;

static void
every_call_completes_once_with_its_bytes(void **state)
{
	uint64_t seed;
	size_t i;

	for (i = 0; i < CRPC_DIM(past); i++) {
		scene_init(&scene, past[i]);
		scene_run(&scene);
		scene_rest(&scene);
		pair_fini(&scene.p);
	}
	for (seed = first_seed; seed <= last_seed; seed++) {
		scene_init(&scene, seed);
		scene_run(&scene);
		scene_rest(&scene);
		pair_fini(&scene.p);
	}
}

/*
 * One side dies at any time; each call of its peer ends, and its slots and credits are free.
 */
static void
the_calls_to_a_dead_peer_end(void **state)
{
	struct scene *s = &scene;
	uint64_t seed;
	uint32_t steps, k;

	for (seed = first_seed; seed <= first_seed + (last_seed - first_seed) / 4; seed++) {
		scene_init(s, seed);
		s->p.ctx[0]->conf.retries = 20;
		k = pick(s, 3000);
		for (steps = 0; steps < k; steps++) {
			if (pick(s, 2))
				act(s, pick(s, 2));
			else
				crpc_paper_step(&s->p.w);
			s->p.w.now_ns += pick(s, 500);
		}
		s->killed = true;
		crpc_paper_kill(s->p.dev[1]);
		crpc_udrpc_free(s->p.ctx[1]);
		crpc_rdma_close(s->p.dev[1]);
		s->p.ctx[1] = NULL;
		for (steps = 0; s->done[0] != s->made[0]; steps++) {
			require(s, steps < STEPS_MAX);
			do_poll(s, 0);
			do_recv(s, 0);
			do_reply(s, 0);
			crpc_paper_step(&s->p.w);
			s->p.w.now_ns += pick(s, RTO);
			audit(s, false);
		}
		pair_fini(&s->p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_completes_once_with_its_bytes),
		cmocka_unit_test(the_calls_to_a_dead_peer_end),
	};

	if (getenv("CRPC_SEEDS") != NULL)
		last_seed = strtoull(getenv("CRPC_SEEDS"), NULL, 10);
	if (getenv("CRPC_SEED") != NULL)
		first_seed = last_seed = strtoull(getenv("CRPC_SEED"), NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
