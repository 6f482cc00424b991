/* SPDX-License-Identifier: BSD-3-Clause */

#include "app_fail.h"
#include "app_opt.h"
#include "app_stop.h"
#include "crpc_clock.h"
#include "crpc_idle.h"
#include "crpc_kv.h"
#include "crpc_log.h"
#include "report.h"

/*
 * benchkv-client: clients of a service that runs already. They need neither DPDK nor a device: what
 * they must know of the run they ask the daemon for.
 */

#define CONNECT_MS 2000
/* A daemon that has died is reported at once; this is for one that gets no core. */
#define ANSWER_US 10000000
/* Longer than a daemon waits for another rank. */
#define DRAIN_NS UINT64_C(6500000000)

/* Ask for the run's figures; each question gives a writer id of its own. */
static int
ask_info(struct crpc_ipc_client *c, const struct kv_options *o, struct kv_info *info)
{
	int rc = crpc_kv_info_ask(c, (uid_t)o->trust_uid, ANSWER_US, info);

	return rc == 0 && info->writer == 0 ? -EUSERS : rc;
}

static int
fill_conf(struct app_load_conf *conf, const struct kv_options *o, const struct kv_info *info)
{
	*conf = (struct app_load_conf){
		.owners = info->ranks * info->daemons,
		.first = info->rank * info->daemons,
		.daemons = info->daemons,
		.key_size = info->key_size,
		.value_size = info->value_size,
		.sizes = {.min = info->value_size, .max = info->value_size},
		.writers = info->writers,
		.may_miss = true,
		.may_refuse = true,
	};
	if (info->keys == 0 || info->keys > APP_KEYS_MAX)
		return -EPROTO;
	return kv_options_load(o, conf, info->keys);
}

/* One writer id per client, consecutive: each asks for itself before it works. */
static int
join(struct app_load *load, struct app_load_conf *conf, const struct kv_options *o)
{
	struct crpc_ipc_client_conf to = {.name = o->name, .timeout_ms = CONNECT_MS};
	struct kv_info info = {0};
	struct crpc_ipc_client *c;
	uint32_t depth;
	int rc;

	crpc_log_clear();
	c = crpc_ipc_client_connect(&to);
	if (c == NULL)
		return app_fail("cannot attach to daemon '%s': %s (%s); start kvd --name %s, of "
				"the same version",
			o->name, strerror(errno), crpc_log_last(), o->name);
	rc = ask_info(c, o, &info);
	depth = crpc_ipc_client_depth(c);
	crpc_ipc_client_close(c);
	if (rc == 0)
		rc = fill_conf(conf, o, &info);
	if (conf->depth > depth) {
		app_note(
			"daemon '%s' admits %u open calls of a client: --depth %u is reduced to that",
			o->name, depth, conf->depth);
		conf->depth = depth;
	}
	if (rc != 0)
		return app_fail(
			"daemon '%s' did not report its options: %s (%s); it may have ended, or "
			"have no place left (its --clients)",
			o->name, strerror(-rc), crpc_log_last());
	rc = app_load_init(load, conf, (uint32_t)o->clients);
	if (rc == 0 && info.value_size > CRPC_KV_VALUE_INLINE)
		rc = crpc_kv_blocks_attach(
			&load->blocks[0], NULL, o->name, CONNECT_MS, (uid_t)o->trust_uid);
	to.arena = load->blocks[0].cache;
	for (uint32_t i = 0; rc == 0 && i < load->n; i++) {
		rc = app_load_join(load, i, &to, 1, conf->first + info.daemon, info.writer);
		if (rc == 0)
			rc = ask_info(load->client[i].ipc[0], o, &info);
		load->client[i].verify.writer = info.writer;
		load->client[i].verify.restored = info.generation != 0;
	}
	if (rc != 0)
		return app_fail("cannot connect %u clients to daemon '%s': %s (%s); give fewer "
				"--clients, or kvd a larger --clients",
			(unsigned int)o->clients, o->name, strerror(-rc), crpc_log_last());
	return 0;
}

/* @return true if the daemon has gone. */
static bool
work_loop(struct app_load *load, const struct kv_options *o)
{
	struct crpc_idle idle = {
		.policy = o->idle == APP_IDLE_POLL ? CRPC_IDLE_POLL : CRPC_IDLE_YIELD};
	uint64_t now = crpc_clock_ns(), measure_at = now + (uint64_t)(o->warmup * 1e9);
	uint64_t stop_at = measure_at + (uint64_t)(o->seconds * 1e9);
	uint64_t cool_until = stop_at + (uint64_t)(o->cooldown * 1e9), end = cool_until + DRAIN_NS;
	bool dead = false;

	while (now < end && !(load->phase == APP_LOAD_STOPPED && app_load_open(load) == 0)) {
		crpc_idle_turn(&idle, app_load_turn(load, now));
		now = crpc_clock_ns();
		if (load->phase == APP_LOAD_WARMUP && now >= measure_at)
			app_load_measure(load, now);
		if (load->phase == APP_LOAD_MEASURE && now >= stop_at)
			app_load_freeze(load, now);
		dead = load->dead != 0;
		if (load->phase != APP_LOAD_STOPPED &&
			(dead || app_stopped() != 0 || now >= cool_until)) {
			app_load_stop(load, now);
			end = now + DRAIN_NS;
		}
	}
	app_load_audit(load);
	return dead;
}

/* The daemon's options go into the results, not the defaults of this process. */
static struct kv_options
as_daemon(const struct kv_options *asked, const struct app_load_conf *conf)
{
	struct kv_options o = *asked;

	o.keys = conf->keys.n / (conf->owners / conf->daemons); /* of each rank */
	o.key_size = conf->key_size;
	o.value_size = conf->value_size;
	o.qd = conf->depth;
	return o;
}

static int
report(const struct kv_options *asked, const struct app_load *load, struct kv_result *res)
{
	struct kv_options daemon = as_daemon(asked, load->conf), *o = &daemon;
	struct kv_conditions cond = {
		.app = "benchkv-client", .backend = "ipc", .state = APP_STATE_MIXED};
	FILE *json = NULL;
	int rc = 0;

	res->size = sizeof(*res);
	res->ranks = 1;
	res->qd = (uint32_t)o->qd;
	res->rank = load->conf->first / load->conf->daemons;
	res->interrupted = app_stopped() != 0;
	res->rss_kib = app_env_rss_kib();
	snprintf(res->lcores, sizeof(res->lcores), "any");
	kv_result_add_load(res, load);
	if (o->json != NULL) {
		json = app_json_open("json", o->json);
		rc |= json == NULL;
	}
	rc |= kv_report(json, &cond, o, "rank", "client process", res) != 0;
	if (json != NULL)
		fclose(json);
	if (o->hgrm != NULL)
		rc |= kv_report_hgrm(o->hgrm, res);
	return rc;
}

/* --history: with the times of all processes that write one, on one clock. */
static int
record(struct app_load *load, struct app_records *records, const struct kv_options *o)
{
	int rc;

	if (o->history == NULL)
		return 0;
	rc = app_records_open(records, o->history, o->history_ops, APP_KEYS_MAX,
		crpc_clock_monotonic_ns);
	if (rc != 0)
		return app_fail("--history: cannot make %s: %s; give another FILE, or fewer "
				"--history-ops",
			o->history, strerror(-rc));
	app_load_record(load, records);
	return 0;
}

static int
run(const struct kv_options *o)
{
	static struct app_records records;
	static struct app_load load;
	static struct app_load_conf conf;
	static struct kv_result res;
	struct app_steal begin;
	int rc = join(&load, &conf, o);

	if (rc == 0)
		rc = record(&load, &records, o);
	if (rc == 0) {
		app_env_steal(&begin);
		if (work_loop(&load, o)) {
			app_note(
				"the daemon '%s' has ended; these are the results so far", o->name);
			rc = APP_EXIT_RUN;
		}
		res.steal_pct = app_env_steal_pct(&begin);
		if (report(o, &load, &res) != 0 || kv_result_faults(&res) != 0 ||
			res.counts.failed != 0)
			rc = APP_EXIT_RUN;
		if (app_records_close(&records) != 0) {
			app_fail("--history: not all operations had room; give more "
				 "--history-ops, or a --rate");
			rc = APP_EXIT_RUN;
		}
	}
	app_load_fini(&load);
	app_keys_fini(&conf.keys);
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
	struct kv_options o;
	int rc;

	app_fail_name("benchkv-client");
	if (app_env_answer("benchkv-client", argc, argv, help))
		return APP_EXIT_OK;
	rc = kv_options_parse(&o, KV_PROGRAM_CLIENT, argc - 1, argv + 1);
	if (rc != 0)
		return rc;
	app_stop_catch();
	crpc_clock_init();
	rc = app_json_check("json", o.json);
	if (rc == 0)
		rc = app_json_check("hgrm", o.hgrm);
	return rc != 0 ? rc : run(&o);
}
