/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load without a clock, a process or a network: a service in memory answers over a link, in
 * invented time and out of order. The same seed gives the same requests at the same times, the same
 * answers and the same counts, bit for bit, in every mode; another seed gives others. Every answer
 * is checked meanwhile, and none is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app_load.h"

#define KEYS      256
#define OWNERS    4
#define CLIENTS   3
#define DEPTH     8
#define VALUE_MAX 100
#define STEP_NS   100
#define STEPS     4000
#define LOG_MAX   (8u << 20)

struct answer {
	uint64_t at, cookie;
	uint32_t len;
	uint8_t msg[sizeof(struct kv_resp_hdr) + VALUE_MAX];
};

/* The service, and all that went over the link. */
struct service {
	uint64_t rng, version;
	struct {
		uint64_t version;
		uint32_t len; /* 0: absent. */
		uint8_t value[VALUE_MAX];
	} key[KEYS];
	struct answer open[CLIENTS * DEPTH], given[CLIENTS * DEPTH];
	uint32_t n;
	uint8_t *log;
	size_t used;
};

static void
note(struct service *s, const void *bytes, size_t len)
{
	assert_true(s->used + len <= LOG_MAX);
	memcpy(s->log + s->used, bytes, len);
	s->used += len;
}

static uint32_t
answer(struct service *s, const struct kv_req *req, uint8_t *msg)
{
	uint8_t *value = msg + sizeof(struct kv_resp_hdr);
	enum kv_status status = CRPC_KV_OK;
	uint64_t id;
	uint32_t len = 0;

	memcpy(&id, req->key, sizeof(id));
	assert_true(id < KEYS);
	if ((req->flags & CRPC_KV_EXPECT) != 0 && req->extras.expect != s->key[id].version &&
		s->key[id].len != 0)
		status = CRPC_KV_MISMATCH;
	else if ((req->flags & CRPC_KV_EXPECT) != 0 && req->extras.expect != 0 &&
		s->key[id].len == 0)
		status = CRPC_KV_NOT_FOUND;
	else if (req->op == CRPC_KV_PUT) {
		s->key[id].version = ++s->version;
		s->key[id].len = req->value_len;
		memcpy(s->key[id].value, req->value, req->value_len);
	} else if (s->key[id].len == 0)
		status = CRPC_KV_NOT_FOUND;
	else if (req->op == CRPC_KV_DELETE) {
		s->key[id].version = ++s->version;
		s->key[id].len = 0;
	}
	if (status == CRPC_KV_MISMATCH || (req->op == CRPC_KV_GET && status == CRPC_KV_OK))
		len = s->key[id].len;
	memcpy(value, s->key[id].value, len);
	kv_resp_write(msg, status, req->op, len, s->key[id].version);
	return (uint32_t)sizeof(struct kv_resp_hdr) + len;
}

static int
service_call(void *link, uint64_t now, uint32_t to, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct service *s = link;
	uint64_t draw = crpc_random(&s->rng);
	const uint64_t head[] = {now, to, cookie};
	struct kv_req req = {0};
	struct answer *a;

	if (draw % 32 == 0)
		return -EAGAIN;
	assert_int_equal(kv_req_read(msg, len, &req), 0);
	assert_int_equal(to, kv_owner(kv_hash(req.key, req.key_len), OWNERS));
	note(s, head, sizeof(head));
	note(s, msg, len);
	if (draw % 128 == 1)
		return -EHOSTUNREACH;
	assert_true(s->n < CLIENTS * DEPTH);
	a = &s->open[s->n++];
	a->at = now + STEP_NS * (1 + (draw >> 32) % 20);
	a->cookie = cookie;
	a->len = answer(s, &req, a->msg);
	assert_true(a->len <= resp_max);
	return 0;
}

static uint32_t
service_poll(void *link, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct service *s = link;
	uint32_t i, k = 0;

	for (i = 0; i < s->n && k < n;) {
		if (s->open[i].at > now) {
			i++;
			continue;
		}
		s->given[k] = s->open[i];
		s->open[i] = s->open[--s->n];
		done[k] = (struct crpc_done){.cookie = s->given[k].cookie,
			.data = s->given[k].msg,
			.len = s->given[k].len};
		note(s, s->given[k].msg, s->given[k].len);
		k++;
	}
	return k;
}

static void
service_flush(void *link, uint64_t now)
{
}

static const struct app_load_ops ops = {
	.call = service_call, .poll = service_poll, .flush = service_flush};

/* What a run gives. */
struct outcome {
	struct service *s;
	struct app_load_counts counts;
};

static struct outcome
run(struct app_load_conf conf, uint64_t seed)
{
	struct app_load *load =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*load), CRPC_CACHE_GUARD));
	struct outcome o = {.s = calloc(1, sizeof(*o.s))};
	uint64_t now = 1;
	uint32_t i, f;

	assert_true(load != NULL && o.s != NULL);
	memset(load, 0, sizeof(*load));
	o.s->log = malloc(LOG_MAX);
	assert_non_null(o.s->log);
	conf.owners = OWNERS;
	conf.daemons = 2;
	conf.key_size = 8;
	conf.value_size = conf.sizes.max;
	conf.depth = DEPTH;
	conf.writers = CLIENTS + 1;
	conf.seed = seed;
	conf.verify = conf.may_miss = true;
	assert_int_equal(app_keys_init(&conf.keys, conf.latest ? APP_DIST_LATEST : APP_DIST_ZIPF,
				 KEYS, 0.99, seed),
		0);
	load->ops = &ops;
	load->link = o.s;
	assert_int_equal(app_load_init(load, &conf, CLIENTS), 0);
	for (i = 0; i < CLIENTS; i++)
		assert_int_equal(app_load_join(load, i, NULL, 0, 0, 1 + i), 0);
	for (i = 0; i < STEPS || app_load_open(load) != 0; i++, now += STEP_NS) {
		if (i == STEPS / 8)
			app_load_measure(load, now);
		if (i == STEPS)
			app_load_stop(load, now);
		app_load_turn(load, now);
		assert_true(i < 2 * STEPS);
	}
	app_load_audit(load);
	for (i = 0; i < CLIENTS; i++)
		for (f = 0; f < APP_FAULTS; f++)
			if (load->client[i].verify.faults[f] != 0)
				fail_msg("seed %llu: %s", (unsigned long long)seed,
					app_fault_name(f));
	o.counts = load->counts;
	app_load_fini(load);
	app_keys_fini(&conf.keys);
	free(load);
	return o;
}

static void
outcome_free(struct outcome *o)
{
	free(o->s->log);
	free(o->s);
}

#define HALF (UINT64_C(1) << 31)
#define ALL  (UINT64_C(1) << 32)

static void
a_seed_gives_the_same_requests_and_results(void **state)
{
	static const struct app_load_conf modes[] = {
		{.read_below = HALF, .delete_from = ALL, .sizes = {8, 8}},
		{.read_below = HALF, .delete_from = ALL - HALF / 4, .sizes = {8, VALUE_MAX}},
		{.read_below = HALF, .delete_from = ALL, .sizes = {8, 8}, .gap_ns = 1000},
		{.read_below = HALF, .delete_from = ALL, .sizes = {8, 8}, .latest = true},
		{.read_below = HALF, .delete_from = ALL, .sizes = {8, 8}, .scan = 20},
		{.read_below = HALF,
			.delete_from = ALL - HALF / 4,
			.sizes = {8, VALUE_MAX},
			.rmw = true,
			.cas = true},
	};
	struct outcome a, b, other;
	size_t i;

	for (i = 0; i < CRPC_DIM(modes); i++) {
		a = run(modes[i], 1 + i);
		b = run(modes[i], 1 + i);
		other = run(modes[i], 100 + i);
		assert_true(app_load_counts_ops(&a.counts) > 500 && a.counts.failed > 0);
		assert_int_equal(a.s->used, b.s->used);
		assert_memory_equal(a.s->log, b.s->log, a.s->used);
		assert_memory_equal(&a.counts, &b.counts, sizeof(a.counts));
		assert_true(a.s->used != other.s->used ||
			memcmp(a.s->log, other.s->log, a.s->used) != 0);
		if (modes[i].cas)
			assert_true(a.counts.conflicts > 0);
		if (modes[i].scan != 0)
			assert_true(a.counts.scans > 0);
		outcome_free(&a);
		outcome_free(&b);
		outcome_free(&other);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_seed_gives_the_same_requests_and_results),
	};

	return cmocka_run_group_tests_name("app_load_replay", tests, NULL, NULL);
}
