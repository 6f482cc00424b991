/* SPDX-License-Identifier: BSD-3-Clause */

#include "app_fail.h"
#include "app_opt.h"
#include "crpc_copyrpc.h"
#include "options.h"

/* Memory that the clients' histories may take together, bytes. */
#define VERIFY_BYTES_MAX (UINT64_C(4) << 30)

const char *const kv_dist_names[] = {"uniform", "zipf", "latest", NULL};
static const char *const ycsbs[] = {"none", "a", "b", "c", "d", "e", "f", NULL};
static const char *const routes[] = {"daemon", "client", NULL};
static const char *const delegates[] = {"none", "flux", NULL};
const char *const kv_backend_names[KV_BACKENDS + 1] = {
	"copyrpc", "delegation", "direct", "ucx", "erpc", NULL};
static const char *const insights[] = {"on", "off", NULL};
static const char *const presets[] = {"none", "seed000", "seed001", "paper", NULL};

_Static_assert(CRPC_COPYRPC_CLOCKED == 0 && CRPC_COPYRPC_IMMEDIATE == 1 &&
		CRPC_COPYRPC_DEFERRED == 2 && CRPC_COPYRPC_HOLD == 3 && CRPC_RDMA_RC == 0 &&
		CRPC_RDMA_DC == 1 && CRPC_COPYRPC_FLOW_WINDOW == 0 && CRPC_COPYRPC_FLOW_READ == 1 &&
		CRPC_COPYRPC_FLOW_NOTIFY == 2,
	"names of copyrpc's modes are in this order");
_Static_assert(APP_DIST_UNIFORM == 0 && APP_DIST_ZIPF == 1 && APP_DIST_LATEST == 2,
	"names of distributions likewise");

static const struct kv_options defaults = {
	.daemons = 1,
	.clients = 1,
	.qd = 1,
	.keys = 1024,
	.key_size = 8,
	.value_size = 8,
	.read_ratio = 0.5,
	.skew = 0.99,
	.seconds = 10,
	.warmup = 1,
	.repeat = APP_REPEAT_DEFAULT,
	.seed = 1,
	.history_ops = 1000000,
	.history_keys = APP_KEYS_MAX,
};

/*
 * seed001: the two-rank run that the design is compared with, and what else the two were measured
 * with; the rest is as in the defaults. See README.md.
 */
static void
apply_preset(struct kv_options *o, const char *name)
{
	o->clients = 16;
	if (strcmp(name, "seed000") == 0) {
		o->daemons = 2;
		o->clients = 8;
		o->qd = 4;
	} else if (strcmp(name, "paper") == 0) {
		o->clients = 46;
		o->backend = KV_BACKEND_DELEGATION;
		o->flush = CRPC_COPYRPC_HOLD;
		o->hold_us = 10;
	}
}

/* The core workloads of YCSB (Cooper et al., SoCC 2010); E with what a hash has for scans. */
static void
apply_ycsb(struct kv_options *o, const char *name)
{
	static const struct {
		const char *name;
		double read_ratio;
		enum app_dist dist;
		bool rmw;
		uint32_t scan;
	} mixes[] = {
		{"a", 0.5, APP_DIST_ZIPF, false, 0},
		{"b", 0.95, APP_DIST_ZIPF, false, 0},
		{"c", 1, APP_DIST_ZIPF, false, 0},
		{"d", 0.95, APP_DIST_LATEST, false, 0},
		{"e", 0.95, APP_DIST_ZIPF, false, 100},
		{"f", 0.5, APP_DIST_ZIPF, true, 0},
	};

	for (size_t i = 0; i < CRPC_DIM(mixes); i++) {
		if (strcmp(name, mixes[i].name) != 0)
			continue;
		o->read_ratio = mixes[i].read_ratio;
		o->dist = mixes[i].dist;
		o->rmw = mixes[i].rmw;
		o->scan = mixes[i].scan;
	}
}

/* What is parsed into; the caller gets a copy. */
static struct kv_options opt;

/* benchkv-client has those up to --quiet, benchkv those from --clients on. */
static const struct app_opt options[] = {
	APP_OPT("attach", "NAME", &opt.name, "segment of the daemon (its --name)"),
	APP_TRUST_UID(&opt.trust_uid),

	APP_CLIENTS(&opt.clients, "of each rank; a closed loop without --rate", 1,
		APP_LOAD_CLIENTS_MAX),
	APP_DEPTH(&opt.qd, "each client", APP_LOAD_DEPTH_MAX),
	APP_OPT("read-ratio", "R", &opt.read_ratio, "part of the operations that read", 0, 1),
	APP_OPT("delete-ratio", "R", &opt.delete_ratio, "part that deletes; the rest writes", 0, 1),
	APP_CHOICE("dist", &opt.dist, "which keys are drawn", kv_dist_names),
	APP_OPT("skew", "X", &opt.skew, "exponent of zipf and latest", 0.01, 5),
	APP_OPT("scan", "N", &opt.scan,
		"reads are scans: gets of 1 to N keys in a row, each an operation; 0: not", 0,
		APP_LOAD_SCAN_MAX),
	APP_FLAG("rmw", &opt.rmw, "writes read their key first"),
	APP_FLAG("cas", &opt.cas, "as --rmw, and a write fails if its key was written meanwhile"),
	APP_OPT("ttl-ms", "MS", &opt.ttl_ms, "life of every value that is written; 0: it stays", 0,
		CRPC_KV_TTL_MAX_MS),
	APP_CHOICE("ycsb", &opt.ycsb,
		"ratios and keys of a YCSB workload; other options override it", ycsbs),
	APP_OPT("rate", "OPS", &opt.rate,
		"open loop: operations per second of a rank's clients, Poisson; 0: closed", 0, 1e9),
	APP_SECONDS(&opt.seconds, " time"),
	APP_OPT("warmup", "S", &opt.warmup, "time before it, not counted", 0, 3600),
	APP_OPT("cooldown", "S", &opt.cooldown, "time of load after it, not counted", 0, 3600),
	APP_SEED(&opt.seed),
	APP_VERIFY(&opt.verify, "every answer"),
	APP_CPU_COUNTERS(&opt.counters, "operation"),
	APP_JSON(&opt.json),
	APP_OPT("hgrm", "FILE", &opt.hgrm, "write the latency distribution (HdrHistogram text)"),
	APP_OPT("history", "PATH", &opt.history,
		"write every call and answer to PATH, of benchkv PATH.RANK.LCORE, for "
		"crpc-lincheck"),
	APP_OPT("history-ops", "N", &opt.history_ops, "room for so many per file, 64 bytes each",
		1, 1 << 30),
	APP_CHOICE("idle", &opt.idle, "what a loop without work does", app_idle_names),
	APP_FLAG("quiet", &opt.quiet, "no progress lines"),

	APP_PRESET(&opt.preset,
		"1024 keys per rank, half reads, uniform, 8-byte values, and seed001: 16 "
		"clients, depth 1; seed000: 2 daemons, 8 clients, depth 4; paper: 46 "
		"clients, depth 1, backend delegation, hold of 10 us; other options "
		"override it",
		presets),
	APP_BACKEND(&opt.backend, " to the stores", kv_backend_names),
	APP_OPT("daemons", "N", &opt.daemons,
		"daemons of each rank, each with its part of the keys and clients", 1,
		CRPC_KV_DAEMONS_MAX),
	APP_CHOICE(
		"route", &opt.route, "what passes a request to the right daemon of a rank", routes),
	APP_CHOICE("delegate", &opt.delegate,
		"requests of other ranks: none, to the owner; flux, to one daemon of the "
		"rank that passes them on",
		delegates),
	APP_OPT("keys", "N", &opt.keys, "keys of each rank, spread over all by hash", 1,
		APP_KEYS_MAX),
	APP_OPT("key-size", "BYTES", &opt.key_size, "bytes of a key", CRPC_KV_KEY_MIN,
		CRPC_KV_KEY_MAX),
	APP_OPT("value-size", "BYTES", &opt.value_sizes,
		"bytes of a value, 8 to 1M: one size, a range as 8-1K, or a mix of sizes "
		"and weights as 8:9,1K:1 (default 8)"),
	APP_DEVICE(&opt.device),
	APP_UCX_TLS(&opt.ucx_tls),
	APP_TRANSPORT(&opt.transport, "requests to other ranks", app_transport_names),
	APP_FLOW(&opt.flow),
	APP_FLUSH(&opt.flush, " for other ranks"),
	APP_OPT("hold-us", "US", &opt.hold_us,
		"flush hold: how long answers wait for company; 0: it adapts itself", 0, 10000),
	APP_FLAG("colocate", &opt.colocate,
		"clients on their daemon's lcore (always so without more lcores than "
		"daemons)"),
	APP_OPT("name", "NAME", &opt.name, "name of the segments, in place of benchkv.PID"),

	APP_OPT("history-keys", "N", &opt.history_keys, "history: only of the first N keys", 1,
		APP_KEYS_MAX),
	APP_CHOICE("insight", &opt.insight, "times of phases, histograms and telemetry", insights),
	APP_OPT("sweep", "AXES", &opt.sweep,
		"a run for each value of an option, as clients=1,2,4/backend=copyrpc,ucx"),
	APP_REPEAT(&opt.repeat, "points of the sweep, rising and falling in turn"),
};

static const struct app_opt *
options_of(enum kv_program program, size_t *n)
{
	size_t first = 0, last = 0;

	while (options[first].dest != &opt.clients)
		first++;
	while (options[last].dest != &opt.quiet)
		last++;
	*n = program == KV_PROGRAM_CLIENT ? last + 1 : CRPC_DIM(options) - first;
	return program == KV_PROGRAM_CLIENT ? options : options + first;
}

static int
check(const struct kv_options *o, enum kv_program program)
{
	if (o->read_ratio + o->delete_ratio > 1)
		return app_fail_once(
			"--read-ratio %g and --delete-ratio %g are more than all; make "
			"their sum at most 1",
			o->read_ratio, o->delete_ratio);
	if (o->history != NULL && o->ttl_ms != 0)
		return app_fail_once("--history knows all that happens to a key only without "
				     "--ttl-ms; leave one of them out");
	if ((o->transport != CRPC_RDMA_RC || o->flow != CRPC_COPYRPC_FLOW_WINDOW) &&
		o->backend != KV_BACKEND_COPYRPC && o->backend != KV_BACKEND_DELEGATION)
		return app_fail_once(
			"--transport and --flow are those of daemons that pass requests "
			"on; expected --backend copyrpc or delegation, found %s",
			kv_backend_names[o->backend]);
	if (o->sweep != NULL && (o->hgrm != NULL || o->history != NULL))
		return app_fail_once("--sweep makes many runs: --hgrm and --history do not go with "
				     "it");
	if (program == KV_PROGRAM_CLIENT && o->name == NULL)
		return app_fail_once("no service was named; give --attach NAME, kvd's --name");
	return 0;
}

/* Values of one size, or of a distribution, of which the text remains. */
static int
sizes_read(struct kv_options *o)
{
	o->sizes.min = o->sizes.max = (uint32_t)o->value_size;
	if (o->value_sizes != NULL &&
		app_sizes_parse(
			&o->sizes, o->value_sizes, CRPC_KV_VALUE_MIN, CRPC_KV_VALUE_MAX) != 0)
		return app_fail_once("--value-size '%s': give a size, a range as 8-64, or a mix of "
				     "sizes and weights as 8:9,64:1, of %u to %u bytes",
			o->value_sizes, CRPC_KV_VALUE_MIN, CRPC_KV_VALUE_MAX);
	if (app_sizes_fixed(&o->sizes))
		o->value_sizes = NULL;
	o->value_size = o->sizes.max;
	return 0;
}

int
kv_options_parse(struct kv_options *o, enum kv_program program, int argc, char *const *argv)
{
	const char *preset, *ycsb;
	const struct app_opt *t;
	size_t n;
	int rc;

	opt = defaults;
	preset = program == KV_PROGRAM_DAEMON ? app_opt_find("preset", argc, argv) : NULL;
	if (preset != NULL)
		apply_preset(&opt, preset);
	ycsb = app_opt_find("ycsb", argc, argv);
	if (ycsb != NULL)
		apply_ycsb(&opt, ycsb);
	t = options_of(program, &n);
	rc = app_opt_parse(t, n, argc, argv);
	if (rc != 0)
		return rc;
	*o = opt;
	o->rmw |= o->cas;
	rc = sizes_read(o);
	return rc != 0 ? rc : check(o, program);
}

int
kv_options_check_ranks(const struct kv_options *o, uint32_t ranks)
{
	uint64_t keys = o->keys * ranks, writers = 1 + ranks * o->clients;

	if (ranks * o->daemons > CRPC_KV_OWNERS_MAX)
		return app_fail_once("--daemons %u on %u ranks are more than %u in all; give fewer",
			(unsigned int)o->daemons, ranks, CRPC_KV_OWNERS_MAX);
	if (keys > APP_KEYS_MAX)
		return app_fail_once(
			"--keys %llu on %u ranks is more than %u keys in all; give fewer",
			(unsigned long long)o->keys, ranks, APP_KEYS_MAX);
	if (writers > APP_WRITERS_MAX)
		return app_fail_once(
			"%u ranks with --clients %u are more than %u writers; give fewer", ranks,
			(unsigned int)o->clients, APP_WRITERS_MAX);
	if (o->verify && keys * o->clients * sizeof(struct app_seen) > VERIFY_BYTES_MAX)
		return app_fail_once(
			"--verify of %llu keys by %u clients takes %llu MiB per rank, more than "
			"%llu; give fewer --keys or --clients",
			(unsigned long long)keys, (unsigned int)o->clients,
			(unsigned long long)(keys * o->clients * sizeof(struct app_seen) >> 20),
			(unsigned long long)(VERIFY_BYTES_MAX >> 20));
	return 0;
}

int
kv_options_load(const struct kv_options *o, struct app_load_conf *conf, uint32_t keys)
{
	conf->depth = (uint32_t)o->qd;
	conf->seed = o->seed;
	conf->gap_ns = o->rate > 0 ? (double)o->clients * 1e9 / o->rate : 0;
	conf->latest = o->dist == APP_DIST_LATEST;
	conf->scan = (uint32_t)o->scan;
	conf->rmw = o->rmw;
	conf->cas = o->cas;
	conf->ttl_ms = o->ttl_ms;
	conf->verify = o->verify;
	app_load_ratios(conf, o->read_ratio, 1 - o->read_ratio - o->delete_ratio);
	return app_keys_init(&conf->keys, (enum app_dist)o->dist, keys, o->skew, o->seed);
}

void
kv_options_help(enum kv_program program)
{
	const struct app_opt *t;
	size_t n;

	opt = defaults;
	t = options_of(program, &n);
	if (program == KV_PROGRAM_DAEMON)
		printf("usage: benchkv [EAL options] -- [options]\n"
		       "       mpirun -n 2 benchkv [EAL options] -- [options]\n\n"
		       "A key-value service on poll-mode daemons, and the clients that load it.\n\n");
	else
		printf("usage: benchkv-client --attach NAME [options]\n\n"
		       "Clients in a process of their own, for a service: kvd.\n\n");
	app_opt_help(t, n, stdout);
}
