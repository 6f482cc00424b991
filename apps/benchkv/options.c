/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_fail.h"
#include "app_keys.h"
#include "app_opt.h"
#include "client.h"
#include "crpc_copyrpc.h"
#include "options.h"

/* Memory that the clients' histories may take together, bytes. */
#define VERIFY_BYTES_MAX (UINT64_C(4) << 30)

static const char *const dists[] = {"uniform", "zipf", "latest", NULL};
static const char *const ycsbs[] = {"none", "a", "b", "c", "d", "e", "f", NULL};
const char *const kv_flush_names[] = {"clocked", "immediate", "deferred", "hold", "compare", NULL};
static const char *const idles[] = {"auto", "poll", "yield", NULL};
static const char *const routes[] = {"daemon", "client", NULL};
static const char *const delegates[] = {"none", "flux", NULL};
const char *const kv_backend_names[KV_BACKENDS + 1] = {
	"copyrpc", "delegation", "direct", "ucx", "erpc", NULL};
static const char *const insights[] = {"on", "off", "ab", NULL};
static const char *const presets[] = {"none", "seed000", "seed001", "paper", NULL};

_Static_assert(
	CRPC_COPYRPC_CLOCKED == 0 && CRPC_COPYRPC_IMMEDIATE == 1 && CRPC_COPYRPC_DEFERRED == 2 &&
		CRPC_COPYRPC_HOLD == 3,
	"names of flush policies are in this order");
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
	.passes = 2,
	.seed = 1,
	.history_ops = 1000000,
	.history_keys = KV_KEYS_MAX,
};

/* The two-rank run that the design is compared with: see README.md. */
static void
apply_seed001(struct kv_options *o)
{
	o->clients = 16;
	o->qd = 1;
	o->keys = 1024;
	o->key_size = 8;
	o->value_size = 8;
	o->read_ratio = 0.5;
	o->dist = APP_DIST_UNIFORM;
}

/* What the two were measured with that seed001 deepened: see README.md. */
static void
apply_preset(struct kv_options *o, const char *name)
{
	apply_seed001(o);
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
	size_t i;

	for (i = 0; i < CRPC_DIM(mixes); i++) {
		if (strcmp(name, mixes[i].name) != 0)
			continue;
		o->read_ratio = mixes[i].read_ratio;
		o->dist = mixes[i].dist;
		o->rmw = mixes[i].rmw;
		o->scan = mixes[i].scan;
		o->skew = 0.99;
	}
}

#define OPTS_MAX 64

/* Both programs. */
static size_t
table_load(struct kv_options *o, struct app_opt *t)
{
	const struct app_opt load[] = {
		{"clients", APP_OPT_UINT, "N",
			"clients of each rank; a closed loop without --rate", &o->clients, 0,
			KV_CLIENTS_MAX, NULL},
		{"qd", APP_OPT_UINT, "N", "calls that each client keeps open", &o->qd, 1, KV_QD_MAX,
			NULL},
		{"read-ratio", APP_OPT_REAL, "R", "part of the operations that read",
			&o->read_ratio, 0, 1, NULL},
		{"delete-ratio", APP_OPT_REAL, "R", "part that deletes; the rest writes",
			&o->delete_ratio, 0, 1, NULL},
		{"dist", APP_OPT_CHOICE, "uniform|zipf|latest", "which keys are drawn", &o->dist, 0,
			0, dists},
		{"scan", APP_OPT_UINT, "N",
			"reads are scans: gets of 1 to N keys in a row, each an operation; 0: not",
			&o->scan, 0, KV_SCAN_MAX, NULL},
		{"rmw", APP_OPT_FLAG, NULL, "writes read their key first", &o->rmw, 0, 0, NULL},
		{"cas", APP_OPT_FLAG, NULL,
			"as --rmw, and a write fails if its key was written meanwhile", &o->cas, 0,
			0, NULL},
		{"ttl-ms", APP_OPT_UINT, "MS", "life of every value that is written; 0: it stays",
			&o->ttl_ms, 0, KV_TTL_MAX_MS, NULL},
		{"ycsb", APP_OPT_CHOICE, "a|b|c|d|e|f",
			"ratios and keys of a YCSB workload; other options override it", &o->ycsb,
			0, 0, ycsbs},
		{"rate", APP_OPT_REAL, "OPS",
			"open loop: operations per second of a rank's clients, Poisson; 0: closed",
			&o->rate, 0, 1e9, NULL},
		{"skew", APP_OPT_REAL, "S", "exponent of zipf and latest", &o->skew, 0.01, 5, NULL},
		{"seconds", APP_OPT_REAL, "T", "measured time", &o->seconds, 0.1, 86400, NULL},
		{"warmup", APP_OPT_REAL, "T", "time before it, not counted", &o->warmup, 0, 3600,
			NULL},
		{"cooldown", APP_OPT_REAL, "T", "time of load after it, not counted", &o->cooldown,
			0, 3600, NULL},
		{"seed", APP_OPT_UINT, "N", "of all random draws", &o->seed, 0, 9e15, NULL},
		{"verify", APP_OPT_FLAG, NULL, "prove every answer", &o->verify, 0, 0, NULL},
		{"counters", APP_OPT_FLAG, NULL,
			"the CPU's counters per operation, where it has any", &o->counters, 0, 0,
			NULL},
		{"json", APP_OPT_STRING, "FILE", "append the results as JSON lines", &o->json, 0, 0,
			NULL},
		{"hgrm", APP_OPT_STRING, "FILE",
			"write the latency distribution (HdrHistogram text)", &o->hgrm, 0, 0, NULL},
		{"idle", APP_OPT_CHOICE, "auto|poll|yield", "what a loop without work does",
			&o->idle, 0, 0, idles},
		{"quiet", APP_OPT_FLAG, NULL, "no progress lines", &o->quiet, 0, 0, NULL},
	};

	memcpy(t, load, sizeof(load));
	return CRPC_DIM(load);
}

/* The daemon's: where it runs, what becomes of a run. */
static size_t
table_run(struct kv_options *o, struct app_opt *t)
{
	const struct app_opt run[] = {
		{"history", APP_OPT_STRING, "PATH",
			"write every call and answer to PATH.RANK.LCORE, for crpc-lincheck",
			&o->history, 0, 0, NULL},
		{"history-ops", APP_OPT_UINT, "N", "room for so many per lcore, 64 bytes each",
			&o->history_ops, 1, 1u << 30, NULL},
		{"history-keys", APP_OPT_UINT, "N", "only those of the first N keys",
			&o->history_keys, 1, KV_KEYS_MAX, NULL},
		{"snapshot", APP_OPT_STRING, "PATH",
			"write the stores to PATH.OWNER when the run has ended", &o->snapshot, 0, 0,
			NULL},
		{"restore", APP_OPT_STRING, "PATH", "begin with the stores of such a snapshot",
			&o->restore, 0, 0, NULL},
		{"numa-isolate", APP_OPT_FLAG, NULL,
			"clients on other NUMA nodes than the NIC and the daemons",
			&o->numa_isolate, 0, 0, NULL},
		{"ranks", APP_OPT_UINT, "N", "refuse to run with another number; 0: any", &o->ranks,
			0, 1024, NULL},
		{"insight", APP_OPT_CHOICE, "on|off|ab",
			"times of phases, histograms and telemetry; ab: in turn, and what they cost",
			&o->insight, 0, 0, insights},
		{"sweep", APP_OPT_STRING, "AXES",
			"a run for each value of an option, as clients=1,2,4/backend=copyrpc,ucx",
			&o->sweep, 0, 0, NULL},
		{"passes", APP_OPT_UINT, "N", "over the sweep, rising and falling in turn",
			&o->passes, 1, 100, NULL},
		{"plot", APP_OPT_STRING, "FOLDER", "draw the results there (gnuplot); needs --json",
			&o->plot, 0, 0, NULL},
	};

	memcpy(t, run, sizeof(run));
	return CRPC_DIM(run);
}

/* The daemon's: what is served, and how. */
static size_t
table_daemon(struct kv_options *o, struct app_opt *t)
{
	const struct app_opt daemon[] = {
		{"preset", APP_OPT_CHOICE, "seed000|seed001|paper",
			"1024 keys per rank, half reads, uniform, 8-byte values, and seed001: 16 "
			"clients, QD 1; seed000: 2 daemons, 8 clients, QD 4; paper: 46 clients, QD 1, "
			"backend delegation, hold of 10 us; other options override it",
			&o->preset, 0, 0, presets},
		{"backend", APP_OPT_CHOICE, "copyrpc|delegation|direct|ucx|erpc",
			"how requests reach the stores (README.md)", &o->backend, 0, 0,
			kv_backend_names},
		{"daemons", APP_OPT_UINT, "N",
			"daemons of each rank, each with its part of the keys and clients",
			&o->daemons, 1, KV_DAEMONS_MAX, NULL},
		{"route", APP_OPT_CHOICE, "daemon|client",
			"who passes a request to the right daemon of a rank", &o->route, 0, 0,
			routes},
		{"delegate", APP_OPT_CHOICE, "none|flux",
			"requests of other ranks: none, to the owner; flux, to one daemon of the "
			"rank that passes them on",
			&o->delegate, 0, 0, delegates},
		{"keys", APP_OPT_UINT, "N", "keys of each rank, spread over all by hash", &o->keys,
			1, KV_KEYS_MAX, NULL},
		{"capacity", APP_OPT_UINT, "N",
			"keys of each rank that fit at most; 0: all of --keys, half more with "
			"--serve, or what --memory-limit gives",
			&o->capacity, 0, KV_KEYS_MAX, NULL},
		{"memory-limit", APP_OPT_UINT, "MIB", "that the stores of a rank may take",
			&o->memory_mib, 0, 1u << 20, NULL},
		{"empty", APP_OPT_FLAG, NULL, "begin without keys, as a service does", &o->empty, 0,
			0, NULL},
		{"key-size", APP_OPT_UINT, "BYTES", "length of every key", &o->key_size, KV_KEY_MIN,
			KV_KEY_MAX, NULL},
		{"key-sizes", APP_OPT_STRING, "SIZES",
			"a range as 8-64, or a mix of sizes and weights as 8:9,64:1",
			&o->key_sizes_text, 0, 0, NULL},
		{"value-size", APP_OPT_UINT, "BYTES", "length of every value", &o->value_size,
			KV_VALUE_MIN, KV_VALUE_MAX, NULL},
		{"value-sizes", APP_OPT_STRING, "SIZES",
			"a range as 8-1024, or a mix of sizes and weights as 8:9,1024:1",
			&o->value_sizes, 0, 0, NULL},
		{"device", APP_OPT_STRING, "NAME", "RDMA device; without it the first that fits",
			&o->device, 0, 0, NULL},
		{"ucx-tls", APP_OPT_STRING, "LIST",
			"backend ucx: its transports, for instance posix,self or rc_v,self",
			&o->ucx_tls, 0, 0, NULL},
		{"flush", APP_OPT_CHOICE, "clocked|immediate|deferred|hold|compare",
			"when messages to other ranks leave; compare: the first three in turn",
			&o->flush, 0, 0, kv_flush_names},
		{"hold-us", APP_OPT_REAL, "T",
			"flush hold: how long answers wait for company; 0: it adapts itself",
			&o->hold_us, 0, 10000, NULL},
		{"colocate", APP_OPT_FLAG, NULL,
			"clients on their daemon's lcore (always so without more lcores than daemons)",
			&o->colocate, 0, 0, NULL},
		{"serve", APP_OPT_UINT, "N",
			"each daemon also serves up to N clients of other processes", &o->serve, 0,
			KV_CLIENTS_MAX, NULL},
		{"name", APP_OPT_STRING, "NAME", "name of the segment that clients attach to",
			&o->name, 0, 0, NULL},
	};

	memcpy(t, daemon, sizeof(daemon));
	return CRPC_DIM(daemon) + table_run(o, t + CRPC_DIM(daemon));
}

static size_t
table_client(struct kv_options *o, struct app_opt *t)
{
	const struct app_opt client[] = {
		{"attach", APP_OPT_STRING, "NAME", "segment of the daemon (its --name)", &o->name,
			0, 0, NULL},
	};

	memcpy(t, client, sizeof(client));
	return CRPC_DIM(client);
}

static size_t
table(struct kv_options *o, enum kv_program program, struct app_opt *t)
{
	size_t n = program == KV_PROGRAM_DAEMON ? table_daemon(o, t) : table_client(o, t);

	return n + table_load(o, t + n);
}

static int
check(const struct kv_options *o, enum kv_program program)
{
	if (o->read_ratio + o->delete_ratio > 1)
		return app_fail_once(
			"--read-ratio %g and --delete-ratio %g are more than all; make "
			"their sum at most 1",
			o->read_ratio, o->delete_ratio);
	if (o->history != NULL &&
		(o->ttl_ms != 0 || o->restore != NULL || o->serve != 0 || o->empty))
		return app_fail_once(
			"--history knows all that happens to a key only without --ttl-ms, --restore, "
			"--empty and --serve; leave one of them out");
	if ((o->value_sizes != NULL || o->key_sizes_text != NULL) && o->serve != 0)
		return app_fail_once(
			"%s: clients of other processes know one size only; give %s, or leave "
			"--serve out",
			o->value_sizes != NULL ? "--value-sizes" : "--key-sizes",
			o->value_sizes != NULL ? "--value-size" : "--key-size");
	if (o->numa_isolate && o->colocate)
		return app_fail_once(
			"--numa-isolate parts clients from daemons, --colocate puts them "
			"together; leave one out");
	if (o->flush == KV_FLUSH_COMPARE &&
		(o->insight == KV_INSIGHT_AB || o->backend != KV_BACKEND_COPYRPC))
		return app_fail_once(
			"--flush compare: slices differ by the policy of the daemons, so "
			"only with --backend copyrpc and without --insight ab");
	if (o->plot != NULL && o->json == NULL)
		return app_fail_once("--plot draws what --json writes; give --json FILE too");
	if (o->sweep != NULL &&
		(o->hgrm != NULL || o->serve != 0 || o->history != NULL || o->snapshot != NULL))
		return app_fail_once("--sweep makes many runs: --hgrm, --serve, --history and "
				     "--snapshot do not go with it");
	if (program == KV_PROGRAM_CLIENT && o->name == NULL)
		return app_fail_once(
			"no daemon was named; give --attach NAME, the name that benchkv "
			"--serve prints");
	if (program == KV_PROGRAM_CLIENT && o->clients == 0)
		return app_fail_once(
			"--clients 0: a client process needs one; give 1 to %d", KV_CLIENTS_MAX);
	if (program == KV_PROGRAM_DAEMON && o->clients == 0 && o->serve == 0)
		return app_fail_once(
			"--clients 0 without --serve: there would be no load; give --clients "
			"1 to %d, or --serve N and start benchkv-client",
			KV_CLIENTS_MAX);
	return 0;
}

/* A distribution of sizes, or without one all have *size, which is that of the largest after. */
static int
sizes_read(const char *option, const char *text, uint32_t min, uint32_t max, uint64_t *size,
	struct kv_sizes *sizes)
{
	sizes->min = sizes->max = (uint32_t)*size;
	if (text != NULL && kv_sizes_parse(sizes, text, min, max) != 0)
		return app_fail_once("%s '%s': give a range as %u-%u, or a mix of sizes and "
				     "weights as %u:9,%u:1, of %u to %u bytes",
			option, text, min, (uint32_t)crpc_min(max, 1024u), min,
			(uint32_t)crpc_min(max, 1024u), min, max);
	*size = sizes->max;
	return 0;
}

int
kv_options_parse(struct kv_options *o, enum kv_program program, int argc, char *const *argv)
{
	struct app_opt t[OPTS_MAX];
	const char *preset, *ycsb;
	int rc;

	*o = defaults;
	preset = program == KV_PROGRAM_DAEMON ? app_opt_find("preset", argc, argv) : NULL;
	if (preset != NULL)
		apply_preset(o, preset);
	ycsb = app_opt_find("ycsb", argc, argv);
	if (ycsb != NULL)
		apply_ycsb(o, ycsb);
	rc = app_opt_parse(t, table(o, program, t), argc, argv);
	if (rc != 0)
		return rc;
	o->rmw |= o->cas;
	if (sizes_read("--value-sizes", o->value_sizes, KV_VALUE_MIN, KV_VALUE_MAX,
		    &o->value_size, &o->sizes) != 0 ||
		sizes_read("--key-sizes", o->key_sizes_text, KV_KEY_MIN, KV_KEY_MAX, &o->key_size,
			&o->key_sizes) != 0)
		return APP_EXIT_USAGE;
	return check(o, program);
}

int
kv_options_check_ranks(const struct kv_options *o, uint32_t ranks)
{
	uint64_t keys = o->keys * ranks, writers;

	writers = 1 + ranks * (o->clients + o->serve * o->daemons);

	if (o->ranks != 0 && o->ranks != ranks)
		return app_fail_once(
			"--ranks %u was asked for, but %u %s started; start it with mpirun "
			"-n %u or srun -n %u",
			(unsigned int)o->ranks, ranks, ranks == 1 ? "was" : "were",
			(unsigned int)o->ranks, (unsigned int)o->ranks);
	if (ranks * o->daemons > KV_OWNERS_MAX)
		return app_fail_once("--daemons %u on %u ranks are more than %u in all; give fewer",
			(unsigned int)o->daemons, ranks, KV_OWNERS_MAX);
	if (keys > KV_KEYS_MAX)
		return app_fail_once(
			"--keys %llu on %u ranks is more than %u keys in all; give fewer",
			(unsigned long long)o->keys, ranks, KV_KEYS_MAX);
	if (writers > KV_WRITERS_MAX)
		return app_fail_once(
			"%u ranks with --clients %u and --serve %u are more than %u writers; "
			"give fewer",
			ranks, (unsigned int)o->clients, (unsigned int)o->serve, KV_WRITERS_MAX);
	if (o->verify && keys * o->clients * sizeof(struct kv_seen) > VERIFY_BYTES_MAX)
		return app_fail_once(
			"--verify of %llu keys by %u clients takes %llu MiB per rank, more than "
			"%llu; give fewer --keys or --clients",
			(unsigned long long)keys, (unsigned int)o->clients,
			(unsigned long long)(keys * o->clients * sizeof(struct kv_seen) >> 20),
			(unsigned long long)(VERIFY_BYTES_MAX >> 20));
	return 0;
}

void
kv_options_help(enum kv_program program)
{
	struct kv_options o = defaults;
	struct app_opt t[OPTS_MAX];
	size_t n = table(&o, program, t);

	if (program == KV_PROGRAM_DAEMON)
		printf("usage: benchkv [EAL options] -- [options]\n"
		       "       mpirun -n 2 benchkv [EAL options] -- [options]\n\n"
		       "A key-value service on poll-mode daemons, and the clients that load it.\n\n");
	else
		printf("usage: benchkv-client --attach NAME [options]\n\n"
		       "Clients in a process of their own, for a daemon started with --serve.\n\n");
	app_opt_help(t, n, stdout);
}
