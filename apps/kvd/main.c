/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvd: a rank of the key-value service, until it is stopped. The main thread does the control work;
 * the daemons have lcores of their own (loops.h).
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "app_cores.h"
#include "app_driver.h"
#include "app_kv.h"
#include "app_lcore.h"
#include "app_stop.h"
#include "cluster.h"
#include "config.h"
#include "control.h"
#include "crpc_clock.h"
#include "crpc_mem.h"
#include "epoch.h"
#include "event.h"
#include "saver.h"

/* Between two turns of the control thread, ms. */
#define TURN_MS 10
/* Ready without the ranks that have not come by then. */
#define RANKS_NS UINT64_C(10000000000)
/* Open calls may take so long at the end. A loop that did nothing for this time has none. */
#define DRAIN_NS UINT64_C(3000000000)
#define QUIET_NS UINT64_C(30000000)
/* Places, and bytes of values, that are copied for a snapshot while a loop stands. */
#define SLICE       1024u
#define SLICE_BYTES (1u << 20)
/* Numbers for clients that verify what they read: benchkv-client has 16 bits for them. */
#define WRITERS (1u << 16)

struct kvd {
	struct kvd_config conf;
	struct app_args args;
	struct app_boot boot;
	struct kvd_hosts hosts;
	struct kvd_hello hello; /* Who we are: rank, ranks, epoch. */
	cpu_set_t cores;
	bool shared;
	struct crpc_kv_server *server;
	struct kvd_cluster *cluster; /* NULL: alone, or started by a launcher. */
	struct kvd_loops loops;
	struct kvd_saver saver;
	uint64_t epoch;    /* In its file. */
	uint64_t epoch_ns; /* When that rises again. */
	uint64_t ready_by_ns;
	uint32_t up; /* Ranks, that were reported. */
	bool ready;
};

/* Which rank of how many we are. */
static int
identify(struct kvd *k)
{
	struct kvd_config *c = &k->conf;
	struct kvd_hello *h = &k->hello;
	uint64_t rank = k->boot.rank;
	int rc = 0;

	*h = (struct kvd_hello){.magic = KVD_HELLO_MAGIC,
		.version = KVD_HELLO_VERSION,
		.ranks = k->boot.size,
		.daemons = (uint32_t)c->daemons,
		.key_size = (uint32_t)c->key_size,
		.value_size = (uint32_t)c->value_size,
		.keys = c->keys,
		.instance = app_kv_version() ^ (uint64_t)getpid() << 40};
	if (c->hosts != NULL) {
		rc = kvd_hosts_read(&k->hosts, c->hosts);
		rank = c->rank;
		h->ranks = k->hosts.n;
		if (rc == 0 && rank == KVD_RANK_FIND)
			rc = kvd_hosts_find(&k->hosts, c->hosts, &rank);
		if (rc == 0 && rank >= h->ranks)
			rc = app_fail_once("--rank %" PRIu64 ": expected one of the %u ranks of %s",
				rank, h->ranks, c->hosts);
		if (rc == 0 && c->secret_file != NULL)
			rc = kvd_secret_read(c->secret_file, h->secret);
	}
	h->rank = (uint32_t)rank;
	if (rc == 0 && h->ranks * c->daemons > CRPC_KV_OWNERS_MAX)
		rc = app_fail_once("--daemons %" PRIu64 " of %u ranks: expected at most %d in all",
			c->daemons, h->ranks, CRPC_KV_OWNERS_MAX);
	return rc;
}

/* Versions that were not given before: by the time, or by a stored epoch that is above it, too. */
static int
begin_epoch(struct kvd *k)
{
	const struct kvd_config *c = &k->conf;
	uint64_t version = app_kv_version();
	char why[256];

	if (c->snapshot != NULL) {
		if (!kvd_epoch_exists(c->snapshot, k->hello.rank) && k->saver.keys != 0 &&
			c->restore_missing == 0)
			return app_fail("--snapshot %s: expected %s.%u.epoch beside it, found "
					"none: versions may repeat; write a number there above "
					"earlier epochs, or give --restore-missing allow",
				c->snapshot, c->snapshot, k->hello.rank);
		k->epoch = version >> KVD_EPOCH_BITS;
		if (kvd_epoch_raise(c->snapshot, k->hello.rank, &k->epoch, why) != 0)
			return app_fail("--snapshot: epoch file %s", why);
		version = k->epoch << KVD_EPOCH_BITS;
		k->epoch_ns = crpc_clock_ns() + KVD_EPOCH_NS;
	}
	k->hello.version_begin = version;
	crpc_kv_server_version_begin(k->server, version);
	return 0;
}

/* Keys are spread by hash: a daemon has as many as its part, give or take. */
static uint32_t
capacity(const struct kvd_config *c)
{
	double part = (double)c->keys / (double)c->daemons;

	return (uint32_t)(part + 6 * sqrt(part) + 16);
}

static int
open_server(struct kvd *k)
{
	const struct kvd_config *c = &k->conf;
	struct crpc_mem_place place[CRPC_KV_DAEMONS_MAX];
	unsigned int lcore;
	struct crpc_kv_server_conf conf = {
		.rank = k->hello.rank,
		.ranks = k->hello.ranks,
		.daemons = k->hello.daemons,
		.key_size = k->hello.key_size,
		.value_max = k->hello.value_size,
		.capacity = capacity(c),
		.block_bytes = (c->memory_limit + c->daemons - 1) / c->daemons,
		.name = c->name,
		.clients = (uint32_t)c->clients,
		.depth = (uint32_t)c->depth,
		.client_block_bytes = c->client_memory,
		.mode = c->mode,
		.gid = c->gid,
		.huge = true,
		.device = c->device,
		.on_use = c->connect == APP_CONNECT_USE,
		.timeout_ns = APP_KV_PATIENCE_NS, /* One that died is known before. */
		.place = place,
		.keys = (uint32_t)crpc_min(c->keys * k->hello.ranks, UINT32_MAX),
		.writer_first = 1,
		.writer_end = WRITERS,
	};
	int rc;

	for (uint32_t i = 0; i < conf.daemons; i++) {
		lcore = kvd_loops_lcore(i, conf.daemons);
		place[i] = (struct crpc_mem_place){
			.node = app_cores_node("/sys", app_eal_core_of(lcore)),
			.lcore = (int)lcore};
	}
	if (conf.ranks == 1 ? app_driver_check(c->device, NULL) != 0 : app_driver_choose() != 0)
		return APP_EXIT_USAGE;
	k->server = crpc_kv_server_create(&conf);
	if (k->server == NULL)
		return app_fail("the service '%s' cannot be made: %s (%s)", c->name,
			strerror(errno), crpc_log_last());
	k->saver = (struct kvd_saver){.path = c->snapshot,
		.server = k->server,
		.loops = &k->loops,
		.places = (uint32_t)crpc_max(crpc_min(SLICE_BYTES / c->value_size, SLICE), 1),
		.every_ns = c->snapshot_s * 1000000000};
	rc = kvd_saver_start(&k->saver, c->restore_missing != 0);
	if (rc == 0)
		rc = begin_epoch(k);
	if (rc == 0 && k->hosts.n > 1) {
		k->cluster = kvd_cluster_create(
			&k->hosts, &k->hello, k->server, c->connect == APP_CONNECT_USE);
		rc = k->cluster == NULL ? APP_EXIT_USAGE : 0;
	}
	return rc;
}

/* All that can fail has not: from here on there are events. */
static void
begin_events(struct kvd *k)
{
	uint32_t daemons = k->hello.daemons, lcores = rte_lcore_count();

	kvd_event_level(k->conf.log_level);
	if (lcores == 1)
		kvd_event(CRPC_LOG_WARNING,
			"there is one lcore: daemons and control work take turns on it; give "
			"%u with -l before the --",
			daemons + 1);
	else if (lcores < daemons + 1)
		kvd_event(CRPC_LOG_WARNING,
			"%u daemons take turns on %u lcores; give %u with -l before the --",
			daemons, lcores - 1, daemons + 1);
	if (k->saver.path != NULL)
		kvd_event(CRPC_LOG_NOTICE,
			"begins with %" PRIu64 " keys of %s; %u files are missing", k->saver.keys,
			k->saver.path, k->saver.missing);
	if (kvd_health_start(k->hello.rank, daemons) != 0)
		kvd_event(CRPC_LOG_WARNING, "telemetry refused the commands /crpc/kvd");
	crpc_store_relaxed(&kvd_health.rank, k->hello.rank);
	crpc_store_relaxed(&kvd_health.ranks, k->hello.ranks);
	crpc_store_relaxed(&kvd_health.epoch, k->hello.version_begin >> KVD_EPOCH_BITS);
}

static uint32_t
ranks_up(const struct kvd *k)
{
	uint32_t up = 1;

	for (uint32_t i = 0; i < k->hello.ranks; i++)
		if (i != k->hello.rank)
			up += k->conf.connect == APP_CONNECT_USE
				? kvd_cluster_met(k->cluster, i)
				: crpc_kv_server_peer(k->server, i) == CRPC_KV_PEER_UP;
	return up;
}

static void
publish(struct kvd *k, uint32_t up)
{
	if (up != k->up)
		kvd_notify("STATUS=%u of %u ranks are up", up, k->hello.ranks);
	k->up = up;
	crpc_store_relaxed(&kvd_health.ranks_up, up);
}

/* Ready once all ranks are up, or some have not come in time. */
static void
become_ready(struct kvd *k, uint64_t now)
{
	int rc;

	if (k->ready || (k->up != k->hello.ranks && now < k->ready_by_ns))
		return;
	k->ready = true;
	crpc_store_relaxed(&kvd_health.state, KVD_SERVING);
	kvd_event(CRPC_LOG_NOTICE, "rank %u of %u serves '%s' (epoch %" PRIu64 "), %u ranks up",
		k->hello.rank, k->hello.ranks, k->conf.name,
		k->hello.version_begin >> KVD_EPOCH_BITS, k->up);
	app_eal_mem_report();
	rc = kvd_ready(k->conf.ready_file);
	if (rc != 0)
		kvd_event(CRPC_LOG_ERR, "--ready-file %s: %s", k->conf.ready_file, strerror(-rc));
}

static void
raise_epoch(struct kvd *k, uint64_t now)
{
	char why[256];

	if (k->epoch_ns == 0 || now < k->epoch_ns)
		return;
	k->epoch_ns = now + KVD_EPOCH_NS;
	if (kvd_epoch_raise(k->conf.snapshot, k->hello.rank, &k->epoch, why) != 0)
		kvd_event(CRPC_LOG_ERR, "epoch file %s", why);
}

/* The ranks of a launcher: addresses are exchanged once (app_kv.h); one that died stays lost. */
static void
launched_look(struct app_boot *boot, struct crpc_kv_server *s, uint64_t now_ns)
{
	app_boot_look(boot, now_ns);
	for (uint32_t r = 0; r < boot->size; r++) {
		if (r == boot->rank || boot->lost[r] != 0)
			continue;
		if (app_boot_gone(boot, r))
			crpc_kv_server_lose(s, r, "its process has ended");
		if (crpc_kv_server_peer(s, r) != CRPC_KV_PEER_LOST)
			continue;
		app_boot_lose(boot, r);
		kvd_event(CRPC_LOG_WARNING, "lost rank %u: %s; operations on its keys fail", r,
			crpc_kv_server_peer_why(s, r));
	}
}

/* One turn of the control work, which sleeps unless the daemons need this thread. */
static void
control_turn(struct kvd *k)
{
	int wait_ms = k->loops.on_main || k->saver.copying ? 0 : TURN_MS;
	uint64_t now;

	kvd_loops_turn(&k->loops);
	kvd_event_turn();
	now = crpc_clock_ns();
	if (k->cluster != NULL)
		kvd_cluster_turn(k->cluster, now, wait_ms);
	else
		poll(NULL, 0, wait_ms);
	if (k->boot.size > 1)
		launched_look(&k->boot, k->server, now);
	publish(k, ranks_up(k));
}

static void
serve(struct kvd *k)
{
	uint64_t now = crpc_clock_ns();

	k->ready_by_ns = now + RANKS_NS;
	while (app_stopped() == 0) {
		control_turn(k);
		now = crpc_clock_ns();
		become_ready(k, now);
		kvd_saver_turn(&k->saver, now);
		raise_epoch(k, now);
	}
}

static bool
is_quiet(const struct kvd *k, uint64_t now)
{
	/* Loops have clocks of their own: one may be ahead of now. */
	for (uint32_t i = 0; i < k->loops.n; i++)
		if (now < crpc_load_relaxed(&k->loops.loop[i].busy_ns) + QUIET_NS)
			return false;
	return true;
}

static void
admit_no_more(struct kvd *k)
{
	struct kvd_loops *l = &k->loops;
	struct crpc_kv_parts parts;

	for (uint32_t i = 0; i < l->n; i++) {
		if (kvd_loop_pause(l, i) != 0)
			continue; /* Hidden when it is freed. */
		for (uint32_t d = 0; d < l->loop[i].daemons; d++) {
			crpc_kv_daemon_parts(l->loop[i].daemon[d], &parts);
			crpc_ipc_server_hide(parts.ipc);
		}
		kvd_loop_resume(l, i);
	}
}

/* No new clients; open calls end. */
static void
drain(struct kvd *k)
{
	uint64_t now = crpc_clock_ns(), end = now + DRAIN_NS;

	crpc_store_relaxed(&kvd_health.state, KVD_DRAINING);
	kvd_event(CRPC_LOG_NOTICE, "is stopped by signal %d; open calls end", app_stopped());
	kvd_notify("STOPPING=1\nSTATUS=open calls end");
	if (k->conf.ready_file != NULL && k->ready)
		unlink(k->conf.ready_file);
	admit_no_more(k);
	crpc_kv_server_leave(k->server);
	for (; now < end && !is_quiet(k, now); now = crpc_clock_ns())
		control_turn(k);
}

static int
run(struct kvd *k)
{
	int rc = identify(k);

	if (rc == 0)
		rc = app_lcore_start(&k->boot, &k->args, k->conf.device, k->hello.daemons + 1,
			&k->cores, &k->shared);
	if (rc != 0)
		return rc;
	kvd_hangup_catch();
	app_fail_hold(true);
	rc = app_boot_agree(&k->boot, "kvd.open", open_server(k));
	if (rc == 0) {
		if (k->conf.ready_file != NULL)
			unlink(k->conf.ready_file); /* Of one that was killed: the name is ours. */
		app_fail_hold(true);
		rc = app_boot_agree(&k->boot, "kvd.connect", app_kv_connect(&k->boot, k->server));
	}
	if (rc != 0)
		return rc;
	begin_events(k);
	kvd_loops_start(&k->loops, k->server, k->hello.daemons,
		app_lcore_idle(k->conf.idle, k->shared, &k->cores, true));
	serve(k);
	drain(k);
	kvd_loops_stop(&k->loops);
	kvd_event_turn();
	/* No client and no rank waits until the disk is done. */
	kvd_cluster_free(k->cluster);
	k->cluster = NULL;
	crpc_kv_server_close(k->server);
	return kvd_saver_end(&k->saver) == 0 ? 0 : APP_EXIT_RUN;
}

int
main(int argc, char **argv)
{
	static struct kvd k;
	int rc;

	app_fail_name("kvd");
	if (app_args_answer("kvd", argc, argv, kvd_config_help))
		return APP_EXIT_OK;
	app_args_split(&k.args, argc, argv, false);
	/* With a list of hosts no launcher starts the ranks, even if this is a task of one. */
	if (app_opt_find("hosts", k.args.argc, k.args.argv) != NULL)
		app_fail_speak();
	rc = kvd_config_parse(&k.conf, k.args.argc, k.args.argv);
	crpc_clock_init();
	k.boot = (struct app_boot){.size = 1, .local_size = 1};
	if (rc == 0 && k.conf.hosts == NULL)
		rc = app_boot_open(&k.boot);
	if (rc == 0) {
		rc = run(&k);
		kvd_cluster_free(k.cluster);
		crpc_kv_server_free(k.server);
		app_eal_stop();
		app_boot_close(&k.boot);
	}
	kvd_config_fini(&k.conf);
	return rc;
}
