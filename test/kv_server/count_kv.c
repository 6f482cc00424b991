/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of benchkv for callgrind: count_kv names its cases, count_kv CASE runs one and prints
 * how many operations it made, or turns where there is no work. Daemons and clients take turns on
 * one thread, as on one lcore; what callgrind counts is in counted_turns() alone. Ranks reach each
 * other by a NIC on paper, whose own work is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>

#include "app_load.h"
#include "crpc_kv_server.h"

#define RANKS   2
#define DAEMONS 2
#define CLIENTS 16 /* of each rank */
#define KEYS    1024
#define TURNS   4000
#define TURN_NS 2000ull
#define BLOB    65536

struct kv_case {
	const char *name;
	uint32_t ranks, daemons, value_size, depth, route; /* Connections of a client. */
	bool verify;
	double gap_ns;
	bool joined; /* Daemons on one lcore. */
	bool idle;   /* No operations: turns of a daemon are counted. */
};

static const struct kv_case cases[] = {
	{"kv_local", 1, 1, 8, 1, 1, false, 0},
	{"kv_local_depth_4", 1, 1, 8, 4, 1, false, 0},
	{"kv_local_verify", 1, 1, 8, 1, 1, true, 0},
	{"kv_local_open_loop", 1, 1, 8, 1, 1, false, 1000},
	{"kv_two_daemons", 1, 2, 8, 1, 1, false, 0},
	{"kv_two_daemons_one_lcore", 1, 2, 8, 1, 1, false, 0, true},
	{"kv_two_daemons_1000B", 1, 2, 1000, 1, 1, false, 0},
	{"kv_two_daemons_route_client", 1, 2, 8, 1, 2, false, 0},
	{"kv_two_ranks", 2, 1, 8, 1, 1, false, 0},
	{"kv_two_ranks_verify", 2, 1, 8, 1, 1, true, 0},
	{"kv_two_ranks_depth_4", 2, 1, 8, 4, 1, false, 0},
	{"kv_idle", 1, 1, 8, 1, 1, false, 0, .idle = true},
	{"kv_idle_two_ranks", 2, 1, 8, 1, 1, false, 0, .idle = true},
};

struct rank {
	struct crpc_kv_server *server;
	struct app_load_conf conf;
	struct app_load load;
};

struct rig {
	const struct kv_case *c;
	struct rank rank[RANKS];
};

static crpc_noinline uint64_t
counted_turns(struct rig *r, uint64_t now)
{
	uint64_t before = r->rank[0].load.served + r->rank[1].load.served;
	uint32_t i, k, d;

	for (i = 0; i < TURNS; i++) {
		for (k = 0; k < r->c->ranks; k++) {
			for (d = 0; d < r->c->daemons; d++)
				crpc_kv_daemon_turn(
					crpc_kv_server_daemon(r->rank[k].server, d), now);
			if (!r->c->idle)
				app_load_turn(&r->rank[k].load, now);
		}
		now += TURN_NS;
	}
	return r->c->idle ? (uint64_t)TURNS * r->c->ranks
			  : r->rank[0].load.served + r->rank[1].load.served - before;
}

static void
must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "count_kv: %s failed\n", what);
		exit(1);
	}
}

static void
open_server(struct rig *r, uint32_t rank)
{
	uint8_t key[8], value[CRPC_KV_VALUE_INLINE];
	struct crpc_kv_server_conf conf = {
		.rank = rank,
		.ranks = r->c->ranks,
		.daemons = r->c->daemons,
		.value_max = r->c->value_size,
		.capacity = KEYS,
		.clients = CLIENTS,
		.depth = r->c->depth,
		.plain = true,
		.device = "paper",
	};
	char name[48];
	uint32_t i;

	snprintf(name, sizeof(name), "kvcount.%d", getpid());
	conf.name = name;
	r->rank[rank].server = crpc_kv_server_create(&conf);
	must(r->rank[rank].server != NULL, "the server");
	if (r->c->joined)
		crpc_kv_daemon_join(crpc_kv_server_daemon(r->rank[rank].server, 0),
			crpc_kv_server_daemon(r->rank[rank].server, 1));
	for (i = 0; i < KEYS; i++) {
		kv_key_write(key, 8, i);
		app_value_fill(value, r->c->value_size, app_word(i, 0, 1));
		if (crpc_kv_server_owns(r->rank[rank].server, key, 8))
			must(crpc_kv_server_load(
				     r->rank[rank].server, key, 8, value, r->c->value_size) == 0,
				"load");
	}
}

/* Give the addresses of one rank to the other. */
static void
introduce(struct rig *r, uint32_t from, uint32_t to)
{
	static uint8_t blob[BLOB];
	int64_t len = crpc_kv_server_address(r->rank[from].server, to, blob, sizeof(blob));

	must(len > 0 && crpc_kv_server_connect(r->rank[to].server, from, blob, (size_t)len) == 0,
		"connecting ranks");
	crpc_kv_daemon_watch(crpc_kv_server_daemon(r->rank[to].server, 0), 1000);
	must(crpc_kv_server_peer(r->rank[to].server, from) == CRPC_KV_PEER_UP, "a rank");
}

static void
open_clients(struct rig *r, uint32_t rank)
{
	struct crpc_ipc_client_conf conf[DAEMONS] = {0};
	struct crpc_kv_parts parts[DAEMONS];
	struct rank *k = &r->rank[rank];
	uint32_t i, home;

	k->conf = (struct app_load_conf){.owners = r->c->ranks * r->c->daemons,
		.first = rank * r->c->daemons,
		.daemons = r->c->daemons,
		.key_size = 8,
		.value_size = r->c->value_size,
		.sizes = {.min = r->c->value_size, .max = r->c->value_size},
		.depth = r->c->depth,
		.writers = RANKS * CLIENTS + 1,
		.seed = 1,
		.verify = r->c->verify,
		.gap_ns = r->c->gap_ns};
	app_load_ratios(&k->conf, 0.5, 0.5);
	must(app_keys_init(&k->conf.keys, APP_DIST_UNIFORM, KEYS, 0, 1) == 0, "keys");
	must(app_load_init(&k->load, &k->conf, CLIENTS) == 0, "clients");
	for (i = 0; i < r->c->daemons; i++) {
		crpc_kv_daemon_parts(crpc_kv_server_daemon(k->server, i), &parts[i]);
		conf[i].server = parts[i].ipc;
	}
	for (i = 0; i < CLIENTS; i++) {
		home = i * r->c->daemons / CLIENTS;
		must(app_load_join(&k->load, i, r->c->route > 1 ? conf : &conf[home], r->c->route,
			     k->conf.first + home, 1 + rank * CLIENTS + i) == 0,
			"connecting");
		/* A server admits a few at a time. */
		crpc_ipc_server_reap(parts[0].ipc);
		crpc_ipc_server_reap(parts[r->c->daemons - 1].ipc);
	}
}

static int
run(const struct kv_case *c)
{
	static struct rig r;
	uint64_t ops;
	uint32_t i;

	r.c = c;
	for (i = 0; i < c->ranks; i++)
		open_server(&r, i);
	for (i = 0; i < c->ranks && c->ranks > 1; i++)
		introduce(&r, i, 1 - i);
	for (i = 0; i < c->ranks; i++)
		open_clients(&r, i);
	ops = counted_turns(&r, 1000);
	must(r.rank[0].load.client[0].verify.faults[APP_FAULT_STALE] == 0 && ops >= TURNS,
		"the run");
	printf("%s %llu\n", c->name, (unsigned long long)ops);
	for (i = 0; i < c->ranks; i++) {
		app_load_fini(&r.rank[i].load);
		app_keys_fini(&r.rank[i].conf.keys);
	}
	for (i = 0; i < c->ranks; i++)
		crpc_kv_server_free(r.rank[i].server);
	return 0;
}

int
main(int argc, char **argv)
{
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"32"}, (char[]){"--no-telemetry"},
		(char[]){"--file-prefix=crpc_count_kv"}, (char[]){"--log-level=4"}};
	size_t i;
	int rc = 1;

	if (argc == 1) {
		for (i = 0; i < CRPC_DIM(cases); i++)
			printf("%s\n", cases[i].name);
		return 0;
	}
	if (rte_eal_init((int)CRPC_DIM(eal), eal) < 0)
		return 1;
	for (i = 0; i < CRPC_DIM(cases); i++)
		if (strcmp(cases[i].name, argv[1]) == 0)
			rc = run(&cases[i]);
	rte_eal_cleanup();
	return rc;
}
