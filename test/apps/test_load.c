/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load, under a clock of its own and with a server that does what the test says: an open loop
 * is a Poisson process whose latencies count from the due time, also while nobody answers; a closed
 * loop keeps its calls open; read-modify-write is one operation of two calls; latest follows the
 * puts; a scan asks for keys in a row; the cool-down counts nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_load.h"
#include "crpc_clock.h"

#define SEED    20260103
#define KEYS    64
#define STEP_NS 100

/* One client, its server, and what the server was asked. */
struct rig {
	struct crpc_ipc_server *ipc;
	struct app_load_conf conf;
	struct app_load load;
	uint64_t now, version;
	uint64_t asked[4];     /* By enum kv_op. */
	uint64_t age[KEYS];    /* Gets by the puts since their key was put. */
	uint64_t put_at[KEYS]; /* Number of the put that was the key's last. */
	uint64_t pairs;        /* Puts of the key that was read just before. */
	uint64_t last_get;
};

static struct rig *
rig_open(struct app_load_conf conf, enum app_dist dist, uint32_t qd)
{
	struct crpc_ipc_client_conf client = {0};
	struct crpc_ipc_server_conf server = {.max_clients = 1, .depth = qd};
	struct rig *rig =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*rig), CRPC_CACHE_GUARD));
	char name[40];

	assert_non_null(rig);
	memset(rig, 0, sizeof(*rig));
	snprintf(name, sizeof(name), "kvtest.%d", getpid());
	server.name = name;
	rig->ipc = crpc_ipc_server_create(&server);
	assert_non_null(rig->ipc);
	client.server = rig->ipc;
	conf.owners = conf.daemons = 1;
	conf.key_size = conf.value_size = conf.sizes.min = conf.sizes.max = 8;
	conf.depth = qd;
	conf.writers = 2;
	conf.seed = SEED;
	rig->conf = conf;
	assert_int_equal(app_keys_init(&rig->conf.keys, dist, KEYS, 0.99, SEED), 0);
	assert_int_equal(app_load_init(&rig->load, &rig->conf, 1), 0);
	assert_int_equal(app_load_join(&rig->load, 0, &client, 1, 0, 1), 0);
	crpc_ipc_server_reap(rig->ipc);
	rig->now = 1000;
	return rig;
}

static void
rig_close(struct rig *rig)
{
	app_load_fini(&rig->load);
	app_keys_fini(&rig->conf.keys);
	crpc_ipc_server_free(rig->ipc);
	free(rig);
}

static void
note(struct rig *rig, const struct kv_req *req)
{
	uint64_t key;

	memcpy(&key, req->key, 8);
	assert_true(key < KEYS);
	rig->asked[req->op]++;
	if (req->op == CRPC_KV_PUT) {
		rig->pairs += key == rig->last_get;
		rig->put_at[key] = rig->asked[CRPC_KV_PUT];
		return;
	}
	rig->last_get = key;
	rig->age[(rig->asked[CRPC_KV_PUT] - rig->put_at[key]) % KEYS]++;
}

/* Answer all that is asked. */
static void
serve(struct rig *rig)
{
	struct crpc_req r[APP_LOAD_DEPTH_MAX];
	uint32_t i, n = crpc_ipc_server_recv(rig->ipc, crpc_clock_ns(), r, APP_LOAD_DEPTH_MAX), len;
	uint8_t msg[32] = {0};
	struct kv_req req = {0};

	for (i = 0; i < n; i++) {
		assert_int_equal(kv_req_read(r[i].data, r[i].len, &req), 0);
		note(rig, &req);
		len = req.op == CRPC_KV_GET ? 8 : 0;
		kv_resp_write(msg, CRPC_KV_OK, req.op, len, ++rig->version);
		assert_int_equal(
			crpc_ipc_server_reply(rig->ipc, crpc_clock_ns(), r[i].token, msg, 16 + len),
			0);
	}
}

/* Let time pass, the server answering or not. */
static void
pass(struct rig *rig, uint64_t ns, bool answer)
{
	uint64_t end = rig->now + ns;

	for (; rig->now < end; rig->now += STEP_NS) {
		app_load_turn(&rig->load, rig->now);
		if (answer)
			serve(rig);
	}
}

/* A link that takes every other call, or refuses for good what is asked of owner 1. */
struct fake_link {
	struct rig *rig;
	bool busy, turn;
	bool lost; /* Owner 1 refuses gets too. */
	uint64_t taken, refused;
	uint64_t last, breaks; /* The last key that was asked for; how often it was not the next. */
	uint32_t n;
	uint64_t cookie[APP_LOAD_DEPTH_MAX];
	uint8_t msg[APP_LOAD_DEPTH_MAX][32];
};

static int
fake_call(void *end, uint64_t now, uint32_t to, const void *msg, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct fake_link *f = end;
	struct kv_req req = {0};
	uint64_t key;

	assert_int_equal(kv_req_read(msg, len, &req), 0);
	f->turn = !f->turn;
	if (f->busy && f->turn)
		return -EAGAIN;
	if (!f->busy && (req.op == CRPC_KV_PUT || f->lost) && to == 1) {
		f->refused++;
		return -EHOSTUNREACH;
	}
	memcpy(&key, req.key, sizeof(key));
	f->breaks += key != (f->last + 1) % KEYS;
	f->last = key;
	assert_true(f->n < APP_LOAD_DEPTH_MAX);
	kv_resp_write(
		f->msg[f->n], CRPC_KV_OK, req.op, req.op == CRPC_KV_GET ? 8 : 0, ++f->rig->version);
	f->cookie[f->n++] = cookie;
	f->taken++;
	return 0;
}

static uint32_t
fake_poll(void *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct fake_link *f = end;
	uint32_t i;

	for (i = 0; i < f->n; i++)
		done[i] = (struct crpc_done){.cookie = f->cookie[i],
			.data = f->msg[i],
			.len = f->msg[i][1] == CRPC_KV_GET ? 24 : 16};
	f->n = 0;
	return i;
}

static void
fake_flush(void *end, uint64_t now)
{
}

static const struct app_load_ops fake = {.call = fake_call, .poll = fake_poll, .flush = fake_flush};

/* A link that is busy makes calls late, not fewer: none that was due is forgotten. */
static void
open_loop_forgets_nothing(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.gap_ns = 2000, .read_below = 1ull << 32, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 8);
	struct fake_link link = {.rig = rig, .busy = true};

	rig->load.link = &link;
	rig->load.ops = &fake;
	pass(rig, 10000000, false); /* 5000 are due, with a deviation of 71 */
	assert_in_range(link.taken, 4600, 5400);
	rig_close(rig);
}

/* An owner is lost between a read and its write: operations on the keys of others go on. */
static void
rmw_ends_where_the_owner_is_lost(void **state)
{
	struct rig *rig = rig_open((struct app_load_conf){.rmw = true, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 4);
	struct fake_link link = {.rig = rig};
	uint64_t taken;

	rig->conf.owners = 2;
	rig->load.link = &link;
	rig->load.ops = &fake;
	pass(rig, 20000, false);
	taken = link.taken;
	assert_true(link.refused > 0);
	pass(rig, 200000, false);
	assert_true(link.taken > taken + 1000);
	assert_int_equal(rig->load.counts.failed, link.refused);
	assert_int_equal(rig->load.counts.failed_of[APP_LOAD_LOST], link.refused);
	assert_true(link.refused < link.taken);
	rig_close(rig);
}

/* A scan leaves no key out where the link is busy, and ends also where an owner is lost. */
static void
scans_go_on(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.scan = 100, .read_below = 1ull << 32, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 4);
	struct fake_link link = {.rig = rig, .busy = true};
	uint64_t taken, scans;

	rig->load.link = &link;
	rig->load.ops = &fake;
	pass(rig, 2000000, false);
	assert_true(link.taken > 10000);
	assert_true(rig->load.counts.scans > 100);
	/* Each scan begins somewhere; the last one may not have ended. */
	assert_true(link.breaks <= rig->load.counts.scans + 1);
	link.busy = false;
	link.lost = true;
	rig->conf.owners = 2;
	taken = link.taken;
	scans = rig->load.counts.scans;
	pass(rig, 2000000, false);
	assert_true(link.refused > 1000 && link.taken > taken + 1000);
	assert_true(rig->load.counts.scans > scans + 100);
	assert_int_equal(rig->load.counts.failed, link.refused);
	rig_close(rig);
}

/*
 * YCSB E: 95 % of the draws begin a scan, of 1 to 100 keys that follow each other, each length as
 * often as the others, from a key that zipf drew; the rest are puts, of all keys in turn.
 */
static void
scans_ask_for_keys_in_a_row(void **state)
{
	struct rig *rig = rig_open((struct app_load_conf){.scan = 100,
					   .read_below = (uint64_t)(0.95 * 4294967296.0),
					   .delete_from = 1ull << 32},
		APP_DIST_ZIPF, 1);
	uint32_t left, len, most = 0, seen[101] = {0}, starts[KEYS] = {0};
	struct app_load_client *c = &rig->load.client[0];
	uint64_t gets, puts, key, put_key = 0, scans = 0, sum = 0;

	app_load_measure(&rig->load, rig->now);
	while (scans < 20000) {
		left = c->scan_left;
		key = rig->last_get;
		gets = rig->asked[CRPC_KV_GET];
		puts = rig->asked[CRPC_KV_PUT];
		pass(rig, STEP_NS, true);
		assert_int_equal(
			rig->asked[CRPC_KV_GET] + rig->asked[CRPC_KV_PUT], gets + puts + 1);
		if (left > 1) {
			assert_int_equal(rig->asked[CRPC_KV_GET], gets + 1);
			assert_int_equal(rig->last_get, (key + 1) % KEYS);
			assert_int_equal(c->scan_left, left - 1);
		} else if (rig->asked[CRPC_KV_GET] != gets) {
			len = c->scan_left;
			assert_in_range(len, 1, 100);
			seen[len]++;
			starts[rig->last_get]++;
			sum += len;
			scans++;
		} else {
			put_key = (put_key + 1) % KEYS;
			assert_int_equal(rig->put_at[put_key], puts + 1);
		}
	}
	/* The last scan has only begun. */
	assert_in_range(rig->load.counts.scans, scans - 1, scans);
	/* 200 of each length, 50.5 in the mean: within six standard deviations. */
	for (len = 1; len <= 100; len++)
		assert_in_range(seen[len], 115, 285);
	assert_in_range(sum, (uint64_t)(scans * 49.27), (uint64_t)(scans * 51.73));
	/* 5 % of all draws: 1053 puts beside so many scans, with a deviation of 33. */
	assert_in_range(rig->asked[CRPC_KV_PUT], 853, 1253);
	/* The key that zipf likes best: 20.7 %. */
	for (len = 0; len < KEYS; len++)
		most = crpc_max(most, starts[len]);
	assert_in_range(most, 3600, 4700);
	rig_close(rig);
}

/* 10 ms at a call per 2 us: their number and its variance per 100 us are those of Poisson. */
static void
open_loop_is_poisson(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.gap_ns = 2000, .read_below = 1ull << 31, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 32);
	double sum = 0, squares = 0, n, mean;
	uint64_t before;
	int i, bins = 400;

	for (i = 0; i < bins; i++) {
		before = rig->load.client[0].sent;
		pass(rig, 100000, true);
		n = (double)(rig->load.client[0].sent - before);
		sum += n;
		squares += n * n;
	}
	mean = sum / bins;
	/* 50 per bin, 20000 in all: within six standard deviations. */
	assert_true(mean > 50 - 6 * 0.354 && mean < 50 + 6 * 0.354);
	/* The variance is the mean; that of 400 bins has a deviation of 7 %. */
	mean = (squares / bins - mean * mean) / mean;
	if (mean < 0.55 || mean > 1.5)
		fail_msg("seed %d: variance over mean is %f", SEED, mean);
	rig_close(rig);
}

/* Nobody answers for 1 ms: the calls that were due then count with the time that they waited. */
static void
open_loop_counts_the_wait(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.gap_ns = 10000, .read_below = 1ull << 32, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 2);
	const struct crpc_hist *h = &rig->load.counts.lat[CRPC_KV_LOCAL];

	pass(rig, 1000000, true);
	app_load_measure(&rig->load, rig->now);
	pass(rig, 1000000, true);
	assert_true(crpc_hist_quantile(h, 1) < 50000);
	pass(rig, 1000000, false);
	pass(rig, 1000000, true);
	app_load_freeze(&rig->load, rig->now);
	/* 300 calls were due; a third of them waited up to 1 ms, evenly, although only 2 were open.
	 */
	assert_true(h->count > 200 && h->count < 400);
	assert_true(h->max > 900000 && h->max < 1100000);
	assert_true(crpc_hist_quantile(h, 0.83) > 300000 && crpc_hist_quantile(h, 0.83) < 700000);
	assert_true(rig->load.counts.lag_ns < 10000);
	rig_close(rig);
}

/* It cannot keep up at all: it says how far it is behind. */
static void
open_loop_tells_its_lag(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.gap_ns = 1000, .read_below = 1ull << 32, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 2);

	pass(rig, 1000000, false);
	app_load_stop(&rig->load, rig->now);
	assert_true(rig->load.counts.lag_ns > 980000);
	assert_int_equal(rig->load.client[0].sent, 2);
	rig_close(rig);
}

static void
closed_loop_keeps_calls_open(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){.read_below = 1ull << 31, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 8);
	int i;

	assert_true(rig->load.plain);
	for (i = 0; i < 1000; i++) {
		app_load_turn(&rig->load, rig->now += STEP_NS);
		assert_int_equal(app_load_open(&rig->load), 8);
		serve(rig);
	}
	assert_int_equal(rig->asked[CRPC_KV_GET] + rig->asked[CRPC_KV_PUT], 8000);
	assert_true(rig->asked[CRPC_KV_GET] > 3700 && rig->asked[CRPC_KV_GET] < 4300);
	rig_close(rig);
}

/* Every put follows a get of its key; the two are one operation, and its time is that of both. */
static void
rmw_reads_then_writes(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){
			.rmw = true, .read_below = 1ull << 31, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 1);
	const struct app_load_counts *c = &rig->load.counts;

	app_load_measure(&rig->load, rig->now);
	pass(rig, 1000 * STEP_NS, true);
	app_load_stop(&rig->load, rig->now);
	assert_true(rig->asked[CRPC_KV_PUT] > 200);
	assert_int_equal(rig->pairs, rig->asked[CRPC_KV_PUT]);
	assert_int_equal(
		rig->load.client[0].sent, rig->asked[CRPC_KV_GET] + rig->asked[CRPC_KV_PUT]);
	/* Calls less those that are the second half, less what is open. */
	assert_in_range(
		c->ops[CRPC_KV_LOCAL], rig->asked[CRPC_KV_GET] - 2, rig->asked[CRPC_KV_GET]);
	assert_int_equal(c->lat[CRPC_KV_LOCAL].min, STEP_NS);
	assert_int_equal(c->lat[CRPC_KV_LOCAL].max, 2 * STEP_NS);
	rig_close(rig);
}

/* Puts take the keys in turn; gets want the newest most: about 1/i^0.99 of them the i-th. */
static void
latest_follows_the_puts(void **state)
{
	struct rig *rig = rig_open((struct app_load_conf){.latest = true,
					   .read_below = (uint64_t)(0.95 * 4294967296.0),
					   .delete_from = 1ull << 32},
		APP_DIST_LATEST, 1);
	uint64_t gets;

	pass(rig, 20000 * STEP_NS, true);
	assert_true(rig->asked[CRPC_KV_PUT] > 800 && rig->asked[CRPC_KV_PUT] < 1200);
	memset(rig->age, 0, sizeof(rig->age));
	gets = rig->asked[CRPC_KV_GET];
	pass(rig, 40000 * STEP_NS, true);
	gets = rig->asked[CRPC_KV_GET] - gets;
	/* The sum of 1/i^0.99 up to 64 is 4.83: 20.7 % the newest, 10.4 % the one before. */
	assert_true((double)rig->age[0] / (double)gets > 0.19);
	assert_true((double)rig->age[0] / (double)gets < 0.225);
	assert_true((double)rig->age[1] / (double)gets > 0.09);
	assert_true((double)rig->age[1] / (double)gets < 0.12);
	assert_true(rig->age[0] > 8 * rig->age[40]);
	rig_close(rig);
}

static void
cooldown_counts_nothing(void **state)
{
	struct rig *rig = rig_open(
		(struct app_load_conf){.read_below = 1ull << 31, .delete_from = 1ull << 32},
		APP_DIST_UNIFORM, 4);
	const struct app_load_counts *c = &rig->load.counts;
	uint64_t ops, asked;

	pass(rig, 100 * STEP_NS, true);
	app_load_measure(&rig->load, rig->now);
	pass(rig, 100 * STEP_NS, true);
	app_load_freeze(&rig->load, rig->now);
	ops = c->ops[CRPC_KV_LOCAL];
	asked = rig->asked[CRPC_KV_GET];
	assert_int_equal(ops, 400);
	assert_int_equal(c->window_ns, 100 * STEP_NS);
	pass(rig, 100 * STEP_NS, true);
	assert_int_equal(c->ops[CRPC_KV_LOCAL], ops);
	assert_true(rig->asked[CRPC_KV_GET] > asked);
	app_load_stop(&rig->load, rig->now);
	assert_int_equal(c->window_ns, 100 * STEP_NS);
	pass(rig, 10 * STEP_NS, true);
	assert_int_equal(app_load_open(&rig->load), 0);
	rig_close(rig);
}

/*
 * Clients draw for themselves: no two of them have a stretch of the same draws, as they would if
 * one began some steps behind another in the same stream.
 */
static void
clients_draw_streams_of_their_own(void **state)
{
	static struct app_load load;
	static const uint64_t seeds[] = {0, 1, 2, SEED};
	struct app_load_conf conf = {.depth = 1, .key_size = 8, .value_size = 8, .writers = 40};
	uint64_t first[32], rng;
	uint32_t i, k, other, same = 0;
	size_t s;

	conf.sizes.min = conf.sizes.max = 8;
	for (s = 0; s < CRPC_DIM(seeds); s++) {
		conf.seed = seeds[s];
		assert_int_equal(app_load_init(&load, &conf, CRPC_DIM(first)), 0);
		for (i = 0; i < CRPC_DIM(first); i++) {
			assert_int_equal(app_load_join(&load, i, NULL, 0, 0, 1 + i), 0);
			rng = load.client[i].rng;
			first[i] = crpc_random(&rng);
		}
		for (i = 0; i < CRPC_DIM(first); i++) {
			rng = load.client[i].rng;
			for (k = 0; k < 1000; k++) {
				uint64_t draw = crpc_random(&rng);

				for (other = 0; other < CRPC_DIM(first); other++)
					same += other != i && draw == first[other];
			}
		}
		app_load_fini(&load);
		memset(&load, 0, sizeof(load));
	}
	assert_int_equal(same, 0);
}

/* A second run with the path of one that is alive would pull the file from under it. */
static void
a_history_has_one_run_at_a_time(void **state)
{
	const struct app_history_op op = {.key = 1, .kind = APP_HISTORY_GET};
	char path[] = "/tmp/test_load.XXXXXX";
	struct app_records first, second;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(app_records_open(&first, path, 10, 5, crpc_clock_ns), 0);
	assert_int_equal(app_records_call(&first, &op), 0);
	assert_int_equal(app_records_open(&second, path, 10, 5, crpc_clock_ns), -EBUSY);
	assert_int_equal(first.head->ops, 1);
	assert_int_equal(app_records_close(&first), 0);
	assert_int_equal(app_records_open(&second, path, 10, 5, crpc_clock_ns), 0);
	assert_int_equal(second.head->ops, 0);
	assert_int_equal(app_records_close(&second), 0);
	unlink(path);
}

/* A call that is refused is made again, and is not to be missed before it was sent. */
static void
a_full_history_lacks_what_was_sent(void **state)
{
	const struct app_history_op op = {.key = 1, .kind = APP_HISTORY_GET};
	char path[] = "/tmp/test_load.XXXXXX";
	struct app_records records;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(app_records_open(&records, path, 1, 5, crpc_clock_ns), 0);
	assert_int_equal(app_records_call(&records, &op), 0);
	for (int i = 0; i < 3; i++)
		app_records_undo(&records, app_records_call(&records, &op));
	assert_int_equal(records.head->lost, 0);
	assert_true(app_records_call(&records, &op) >= APP_NO_ROOM);
	assert_int_equal(app_records_close(&records), 1);
	unlink(path);
}

/* A link in its place leads to no other file; what is written can be read by its owner alone. */
static void
a_history_is_its_owners_alone(void **state)
{
	char folder[] = "/tmp/test_load.XXXXXX", path[64], mine[64];
	struct app_records records;
	mode_t mask = umask(0);
	struct stat st;
	FILE *f;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/history", folder);
	snprintf(mine, sizeof(mine), "%s/mine", folder);
	f = fopen(mine, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite("mine", 1, 4, f), 4);
	fclose(f);
	assert_int_equal(symlink(mine, path), 0);
	assert_int_equal(app_records_open(&records, path, 10, 5, crpc_clock_ns), -ELOOP);
	assert_int_equal(stat(mine, &st), 0);
	assert_int_equal(st.st_size, 4);
	unlink(path);
	assert_int_equal(app_records_open(&records, path, 10, 5, crpc_clock_ns), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(app_records_close(&records), 0);
	umask(mask);
	unlink(path);
	unlink(mine);
	rmdir(folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clients_draw_streams_of_their_own),
		cmocka_unit_test(open_loop_is_poisson),
		cmocka_unit_test(open_loop_forgets_nothing),
		cmocka_unit_test(rmw_ends_where_the_owner_is_lost),
		cmocka_unit_test(open_loop_counts_the_wait),
		cmocka_unit_test(open_loop_tells_its_lag),
		cmocka_unit_test(closed_loop_keeps_calls_open),
		cmocka_unit_test(rmw_reads_then_writes),
		cmocka_unit_test(latest_follows_the_puts),
		cmocka_unit_test(scans_ask_for_keys_in_a_row),
		cmocka_unit_test(scans_go_on),
		cmocka_unit_test(cooldown_counts_nothing),
		cmocka_unit_test(a_history_has_one_run_at_a_time),
		cmocka_unit_test(a_full_history_lacks_what_was_sent),
		cmocka_unit_test(a_history_is_its_owners_alone),
	};

	return cmocka_run_group_tests_name("app_load", tests, NULL, NULL);
}
