/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of benchkv for callgrind: count_kv names its cases, count_kv CASE runs one and prints
 * how many operations it made. Daemons and clients take turns on one thread, as on one lcore; what
 * callgrind counts is in counted_turns() alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_lcore.h>

#include "client.h"
#include "daemon.h"
#include "place.h"

#define CLIENTS 16
#define KEYS    1024
#define TURNS   2000
#define TURN_NS 2000ull

struct kv_case {
	const char *name;
	uint32_t daemons, value_size, route; /* Connections of a client. */
	bool verify;
	double gap_ns;
	bool apart; /* As clients on another lcore than their daemon. */
};

/* 16 clients with one call open each. */
static const struct kv_case cases[] = {
	{"kv_local", 1, 8, 1, false, 0},
	{"kv_local_apart", 1, 8, 1, false, 0, true},
	{"kv_local_verify", 1, 8, 1, true, 0},
	{"kv_local_open_loop", 1, 8, 1, false, 1000},
	{"kv_two_daemons", 2, 8, 1, false, 0},
	{"kv_two_daemons_1000B", 2, 1000, 1, false, 0},
	{"kv_two_daemons_route_client", 2, 8, 2, false, 0},
};

struct rig {
	const struct kv_case *c;
	struct kv_daemon *daemon[2];
	struct kv_hop hop[2];
	struct crpc_flux *flux;
	struct kv_fate fate;
	struct kv_work work;
	struct kv_loop loop;
};

static inline uint64_t
turns(struct rig *r, uint64_t now)
{
	uint64_t before = r->loop.served;
	uint32_t i, d;

	for (i = 0; i < TURNS; i++) {
		for (d = 0; d < r->c->daemons; d++)
			kv_daemon_turn(r->daemon[d], now);
		kv_loop_turn(&r->loop, now);
		now += TURN_NS;
	}
	return r->loop.served - before;
}

static crpc_noinline uint64_t
counted_turns(struct rig *r, uint64_t now)
{
	return turns(r, now);
}

/* Until every key was asked for: the first time takes the long way, and whole bursts with it. */
static crpc_noinline void
turns_before(struct rig *r, uint64_t now)
{
	turns(r, now);
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
open_daemon(struct rig *r, uint32_t i)
{
	uint32_t msg = 16 + 8 + r->c->value_size;
	struct kv_store_conf store = {.key_size = 8, .value_max = r->c->value_size,
		.capacity = KEYS, .socket = SOCKET_ID_ANY};
	struct crpc_ipc_server_conf ipc = {.max_clients = CLIENTS, .depth = 1, .req_max = msg,
		.resp_max = msg};
	struct kv_hop_conf hop = {.flux = r->flux, .daemon = i, .daemons = r->c->daemons,
		.calls = CLIENTS, .msg_max = msg};
	struct kv_daemon *d =
		aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*d), CRPC_CACHE_GUARD));
	char name[48];

	must(d != NULL, "memory");
	memset(d, 0, sizeof(*d));
	r->daemon[i] = d;
	snprintf(name, sizeof(name), "kvcount.%d.%u", getpid(), i);
	store.name = ipc.name = name;
	d->self = i;
	d->daemons = d->owners = r->c->daemons;
	d->key_min = d->key_size = 8;
	d->value_size = r->c->value_size;
	d->fate = &r->fate;
	d->store = kv_store_create(&store);
	d->ipc = crpc_ipc_server_create(&ipc);
	must(d->store != NULL && d->ipc != NULL, "store or segment");
	if (r->c->daemons == 1)
		return;
	d->hop = &r->hop[i];
	must(kv_hop_open(d->hop, &hop) == 0, "flux");
}

static void
open_daemons(struct rig *r)
{
	struct crpc_flux_attr attr =
		kv_hop_flux_attr(r->c->daemons, CLIENTS, 16 + 8 + r->c->value_size);
	uint8_t key[8], value[KV_VALUE_INLINE];
	uint32_t i, owner;

	if (r->c->daemons > 1)
		r->flux = crpc_flux_create(&attr);
	for (i = 0; i < r->c->daemons; i++)
		open_daemon(r, i);
	for (i = 0; i < r->c->daemons && r->c->daemons > 1; i++)
		must(kv_hop_connect(&r->hop[i], i) == 0, "flux");
	for (i = 0; i < KEYS; i++) {
		kv_key_write(key, 8, i);
		kv_value_fill(value, r->c->value_size, kv_word(i, 0, 1));
		owner = kv_owner(kv_hash(key, 8), r->c->daemons);
		must(kv_store_load(r->daemon[owner]->store, key, 8, value, r->c->value_size) == 0,
			"load");
	}
}

static void
open_clients(struct rig *r)
{
	struct crpc_ipc_client_conf conf[2] = {0};
	uint32_t i, home;

	r->work = (struct kv_work){.owners = r->c->daemons,
		.daemons = r->c->daemons,
		.key_size = 8,
		.key_sizes = {.min = 8, .max = 8},
		.value_size = r->c->value_size,
		.sizes = {.min = r->c->value_size, .max = r->c->value_size},
		.qd = 1,
		.writers = CLIENTS + 1,
		.seed = 1,
		.verify = r->c->verify,
		.gap_ns = r->c->gap_ns};
	kv_work_ratios(&r->work, 0.5, 0.5);
	must(app_keys_init(&r->work.keys, APP_DIST_UNIFORM, KEYS, 0, 1) == 0, "keys");
	must(kv_loop_init(&r->loop, &r->work, CLIENTS) == 0, "clients");
	for (i = 0; i < r->c->daemons; i++)
		conf[i] = (struct crpc_ipc_client_conf){
			.server = r->daemon[i]->ipc, .colocated = !r->c->apart};
	for (i = 0; i < CLIENTS; i++) {
		home = kv_home(i, CLIENTS, r->c->daemons);
		must(kv_loop_join(&r->loop, i, r->c->route > 1 ? conf : &conf[home], r->c->route,
			     home, i + 1) == 0,
			"connecting");
		/* A server admits a few at a time. */
		crpc_ipc_server_reap(r->daemon[0]->ipc);
		crpc_ipc_server_reap(r->daemon[r->c->daemons - 1]->ipc);
	}
}

static int
run(const struct kv_case *c)
{
	static struct rig r;
	uint64_t ops;
	uint32_t i;

	r.c = c;
	open_daemons(&r);
	open_clients(&r);
	turns_before(&r, 1000);
	ops = counted_turns(&r, 1000 + TURNS * TURN_NS);
	must(r.loop.client[0].history.faults[KV_FAULT_STALE] == 0 && ops > TURNS, "the run");
	printf("%s %llu\n", c->name, (unsigned long long)ops);
	kv_loop_fini(&r.loop);
	app_keys_fini(&r.work.keys);
	for (i = 0; i < c->daemons; i++) {
		crpc_ipc_server_free(r.daemon[i]->ipc);
		kv_store_free(r.daemon[i]->store);
		kv_hop_close(&r.hop[i]);
		free(r.daemon[i]);
	}
	crpc_flux_free(r.flux);
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
