/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stdlib.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_json.h"
#include "app_opt.h"
#include "crpc_clock.h"
#include "crpc_idle.h"
#include "crpc_log.h"
#include "report.h"

/*
 * Clients in a process of their own. It needs neither DPDK nor a device: what it must know of the
 * run it asks the daemon for.
 */

#define CONNECT_MS 2000
/* A daemon that has died is reported at once; this is for one that gets no core. */
#define ANSWER_NS UINT64_C(10000000000)
/* Longer than a daemon waits for another rank. */
#define DRAIN_NS UINT64_C(6500000000)

static _Atomic int stop_signal;

static void
on_signal(int sig)
{
	crpc_store_relaxed(&stop_signal, sig);
}

/* Ask for the run's figures; each question gives a writer id of its own. */
static int
ask_info(struct crpc_ipc_client *c, struct kv_info *info)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint64_t deadline = crpc_clock_ns() + ANSWER_NS;
	struct kv_resp_hdr hdr;
	struct crpc_done done;
	const uint8_t *value;
	int rc;

	rc = crpc_kv_owner_check(crpc_ipc_client_owner_uid(c));
	if (rc == 0)
		rc = crpc_ipc_client_call(c, crpc_clock_ns(), msg, kv_req_write(msg, KV_INFO, 0, 0),
			sizeof(hdr) + sizeof(*info), 0);
	if (rc != 0)
		return rc;
	while (crpc_ipc_client_poll(c, crpc_clock_ns(), &done, 1) == 0) {
		if (crpc_clock_ns() > deadline)
			return -ETIMEDOUT;
		sched_yield();
	}
	if (done.status != 0)
		return done.status;
	if (kv_resp_read(done.data, done.len, &hdr, &value) != 0)
		return -EPROTO;
	if (hdr.status != KV_OK || hdr.value_len != sizeof(*info))
		return -EPROTO;
	memcpy(info, value, sizeof(*info));
	return info->writer == 0 ? -EUSERS : 0;
}

static int
fill_work(struct kv_work *work, const struct kv_options *o, const struct kv_info *info)
{
	*work = (struct kv_work){
		.rank = info->rank,
		.owners = info->ranks * info->daemons,
		.first = info->rank * info->daemons,
		.daemons = info->daemons,
		.key_size = info->key_size,
		.key_sizes = {.min = info->key_size, .max = info->key_size},
		.value_size = info->value_size,
		.sizes = {.min = info->value_size, .max = info->value_size},
		.qd = (uint32_t)o->qd,
		.writers = info->writers,
		.seed = o->seed,
		.gap_ns = o->rate > 0 ? (double)o->clients * 1e9 / o->rate : 0,
		.latest = o->dist == APP_DIST_LATEST,
		.scan = (uint32_t)o->scan,
		.rmw = o->rmw,
		.cas = o->cas,
		.ttl_ms = o->ttl_ms,
		.verify = o->verify,
		.may_miss = true,
		.may_refuse = true,
	};
	if (info->ranks == 0 || info->ranks > KV_OWNERS_MAX || info->rank >= info->ranks ||
		info->daemons == 0 || info->daemons > KV_DAEMONS_MAX ||
		info->daemon >= info->daemons || info->keys == 0 ||
		info->keys > KV_KEYS_MAX || info->key_size < KV_KEY_MIN ||
		info->key_size > KV_KEY_MAX || info->value_size < KV_VALUE_MIN ||
		info->value_size > KV_VALUE_MAX)
		return -EPROTO;
	kv_work_ratios(work, o->read_ratio, 1 - o->read_ratio - o->delete_ratio);
	return app_keys_init(&work->keys, (enum app_dist)o->dist, info->keys, o->skew, o->seed);
}

/* One writer id per client, consecutive: each asks for itself before it works. */
static int
join(struct kv_loop *loop, struct kv_work *work, const struct kv_options *o)
{
	struct crpc_ipc_client_conf conf = {.name = o->name, .timeout_ms = CONNECT_MS};
	struct kv_info info = {0};
	struct crpc_ipc_client *c;
	uint32_t i, depth;
	int rc;

	crpc_log_clear();
	c = crpc_ipc_client_connect(&conf);
	if (c == NULL)
		return app_fail("cannot attach to daemon '%s': %s (%s); start benchkv with --serve "
				"--name %s, of the same version",
			o->name, strerror(errno), crpc_log_last(), o->name);
	rc = ask_info(c, &info);
	depth = crpc_ipc_client_depth(c);
	crpc_ipc_client_close(c);
	if (rc == 0)
		rc = fill_work(work, o, &info);
	if (work->qd > depth) {
		app_note("daemon '%s' admits %u open calls of a client: --qd %u is reduced to that",
			o->name, depth, work->qd);
		work->qd = depth;
	}
	if (rc != 0)
		return app_fail(
			"daemon '%s' did not report its options: %s (%s); it may have ended, or "
			"have no place left (its --serve)",
			o->name, strerror(-rc), crpc_log_last());
	rc = kv_loop_init(loop, work, (uint32_t)o->clients);
	if (rc == 0 && info.value_size > KV_VALUE_INLINE)
		rc = crpc_kv_blocks_attach(&loop->blocks[0], NULL, o->name, CONNECT_MS);
	conf.arena = loop->blocks[0].cache;
	for (i = 0; rc == 0 && i < loop->n; i++) {
		rc = kv_loop_join(
			loop, i, &conf, 1, work->first + info.daemon, info.writer);
		if (rc == 0)
			rc = ask_info(loop->client[i].ipc[0], &info);
		loop->client[i].history.writer = info.writer;
		loop->client[i].history.restored = info.generation != 0;
	}
	if (rc != 0)
		return app_fail("cannot connect %u clients to daemon '%s': %s (%s); give fewer "
				"--clients, or the daemon a larger --serve",
			(unsigned int)o->clients, o->name, strerror(-rc), crpc_log_last());
	return 0;
}

/* @return true if the daemon has gone. */
static bool
work_loop(struct kv_loop *loop, const struct kv_options *o, uint64_t *yields)
{
	struct crpc_idle idle = {
		.policy = o->idle == KV_IDLE_POLL ? CRPC_IDLE_POLL : CRPC_IDLE_YIELD};
	uint64_t now = crpc_clock_ns(), measure_at = now + (uint64_t)(o->warmup * 1e9);
	uint64_t stop_at = measure_at + (uint64_t)(o->seconds * 1e9);
	uint64_t cool_until = stop_at + (uint64_t)(o->cooldown * 1e9), end = cool_until + DRAIN_NS;
	bool dead = false;

	while (now < end && !(loop->phase == KV_STOPPED && kv_loop_open(loop) == 0)) {
		crpc_idle_turn(&idle, kv_loop_turn(loop, now));
		now = crpc_clock_ns();
		if (loop->phase == KV_WARMUP && now >= measure_at)
			kv_loop_measure(loop, now);
		if (loop->phase == KV_MEASURE && now >= stop_at)
			kv_loop_freeze(loop, now);
		dead = loop->dead != 0;
		if (loop->phase != KV_STOPPED &&
			(dead || crpc_load_relaxed(&stop_signal) != 0 || now >= cool_until)) {
			kv_loop_stop(loop, now);
			end = now + DRAIN_NS;
		}
	}
	*yields = idle.yields;
	kv_loop_audit(loop);
	return dead;
}

/* The daemon's options go into the results, not the defaults of this process. */
static struct kv_options
as_daemon(const struct kv_options *asked, const struct kv_work *work)
{
	struct kv_options o = *asked;

	o.keys = work->keys.n / (work->owners / work->daemons); /* of each rank */
	o.key_size = work->key_size;
	o.value_size = work->value_size;
	o.qd = work->qd;
	return o;
}

static int
report(const struct kv_options *asked, const struct kv_loop *loop, struct kv_result *res)
{
	struct kv_options daemon = as_daemon(asked, loop->work), *o = &daemon;
	struct kv_conditions cond = {.app = "benchkv-client", .backend = "ipc", .state = "mixed"};
	FILE *json;
	int rc = 0;

	res->size = sizeof(*res);
	res->ranks = 1;
	res->qd = (uint32_t)o->qd;
	res->rank = loop->work->rank;
	res->interrupted = crpc_load_relaxed(&stop_signal) != 0;
	res->rss_kib = app_env_rss_kib();
	snprintf(res->lcores, sizeof(res->lcores), "any");
	kv_result_add_loop(res, loop);
	kv_report_block(stdout, "client process", res, o->verify);
	if (o->json != NULL) {
		json = app_json_open("json", o->json);
		rc |= json == NULL || kv_report_json(json, &cond, o, "rank", res) != 0;
		if (json != NULL)
			fclose(json);
	}
	if (o->hgrm != NULL)
		rc |= kv_report_hgrm(o->hgrm, res);
	return rc;
}

static int
run(const struct kv_options *o)
{
	static struct kv_loop loop;
	static struct kv_work work;
	static struct kv_result res;
	struct app_steal begin, end;
	int rc = join(&loop, &work, o);

	if (rc == 0) {
		app_env_steal(&begin);
		if (work_loop(&loop, o, &res.yields)) {
			app_note(
				"the daemon '%s' has ended; these are the results so far", o->name);
			rc = APP_EXIT_RUN;
		}
		app_env_steal(&end);
		res.steal_pct = app_env_steal_pct(&begin, &end);
		if (report(o, &loop, &res) != 0 || kv_result_faults(&res) != 0 ||
			res.counts.failed != 0)
			rc = APP_EXIT_RUN;
	}
	kv_loop_fini(&loop);
	app_keys_fini(&work.keys);
	return rc;
}

static void
help(int argc, char *const *argv)
{
	kv_options_help(KV_PROGRAM_CLIENT);
}

int
main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct kv_options o;
	int rc = 0;

	app_fail_name("benchkv-client");
	if (app_env_answer("benchkv-client", argc, argv, help))
		return APP_EXIT_OK;
	rc = kv_options_parse(&o, KV_PROGRAM_CLIENT, argc - 1, argv + 1);
	if (rc != 0)
		return rc;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	crpc_clock_init();
	if (o.json != NULL)
		rc = app_json_check("json", o.json);
	if (rc == 0 && o.hgrm != NULL)
		rc = app_json_check("hgrm", o.hgrm);
	return rc != 0 ? rc : run(&o);
}
