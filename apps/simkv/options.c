/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_fail.h"
#include "app_json.h"
#include "app_opt.h"
#include "crpc_copyrpc.h"
#include "crpc_kv_server.h"
#include "sim.h"

const char *const sim_presets[] = {"none", "seed001", "paper", NULL};
const char *const sim_backends[] = {"copyrpc", "delegation", "direct", "erpc", NULL};
const char *const sim_transports[] = {"rc", "dc", "ud", NULL};

static const struct sim_options defaults = {
	.hosts = 2,
	.clients = 16,
	.depth = 1,
	.keys = 1024,
	.seed = 1,
	.read_ratio = 0.5,
	.warmup_ms = 0.5,
	.virtual_ms = 5,
	.watch_ns = SIM_WATCH_NS,
	.seeds = 1,
	.nic = "cx7",
	.cpu = "seed001",
};

static struct sim_options opt;

static const struct app_opt options[] = {
	APP_PRESET(&opt.preset,
		"a published run: seed001, 2 hosts over DC; paper, 46 clients over RC, delegation "
		"with a hold of 10 us; other options override it",
		sim_presets),
	APP_OPT("hosts", "N", &opt.hosts, "hosts, each with a daemon, a card and clients", 1,
		CRPC_KV_RANKS_MAX),
	APP_CLIENTS(&opt.clients, "of each host", 1, APP_LOAD_CLIENTS_MAX),
	APP_FLAG("colocate", &opt.colocate,
		"clients on their daemon's core, in turns; without it each has one of its own"),
	APP_DEPTH(&opt.depth, "each client", APP_LOAD_DEPTH_MAX),
	APP_OPT("keys", "N", &opt.keys, "keys of each host, spread over all by hash", 1, 1 << 20),
	APP_OPT("read-ratio", "R", &opt.read_ratio, "part of the operations that read", 0, 1),
	APP_BACKEND(&opt.backend, " to the stores", sim_backends),
	APP_TRANSPORT(
		&opt.transport, "requests to other hosts, with erpc always ud", sim_transports),
	APP_FLOW(&opt.flow),
	APP_FLUSH(&opt.flush, " for other hosts"),
	APP_OPT("hold-us", "US", &opt.hold_us,
		"flush hold: how long answers wait for company; 0: it adapts itself", 0, 10000),
	APP_CONNECT(&opt.connect),
	APP_OPT("ring", "BYTES", &opt.ring,
		"ring of a connection, a power of two; without it by the calls that can be open",
		CRPC_COPYRPC_RING_MIN, 1 << 22, .pow2 = true),
	APP_OPT("nic", "NAME", &opt.nic, "profile of the card, or a path (default cx7)"),
	APP_OPT("cpu", "NAME", &opt.cpu, "profile of the CPU, or a path (default seed001)"),
	APP_OPT("set", "LIST", &opt.set,
		"numbers in the place of those of the profiles, as recv_ns=570,hop_ns=80"),
	APP_OPT("warmup-ms", "MS", &opt.warmup_ms, "virtual time before it, not counted", 0, 1e6),
	APP_OPT("virtual-ms", "MS", &opt.virtual_ms, "virtual time that is measured", 0.001, 1e6),
	APP_SEED(&opt.seed),
	APP_OPT("fault", "LIST", &opt.fault,
		"what happens to hosts, and when, in us: crash:2@500+300, pause:0@800+100, "
		"slow:1@200+1000 (ten times), break:0.1@600 (a queue pair)"),
	APP_OPT("chaos", "N", &opt.chaos,
		"draw hosts, load, options and faults by seed N, and prove that all clients saw one "
		"copy of each key",
		1, 9e15),
	APP_OPT("draws", "N", &opt.seeds, "chaos: so many seeds, from N on", 1, 1e9),
	APP_VERIFY(&opt.verify, "every answer"),
	APP_OPT("sweep", "AXES", &opt.sweep,
		"a run for each value of an option, as clients=1,2,4/flush=clocked,hold"),
	APP_JSON(&opt.json),
};

static void
apply_preset(struct sim_options *o, const char *name, const char *backend)
{
	if (strcmp(name, "seed001") == 0) {
		o->flush = CRPC_COPYRPC_DEFERRED;
		o->transport = CRPC_RDMA_DC;
	} else if (strcmp(name, "paper") == 0) {
		o->clients = 46;
		o->backend = SIM_BACKEND_DELEGATION;
		/* A call of direct or erpc has no company to wait for. */
		if (backend != NULL &&
			(strcmp(backend, "direct") == 0 || strcmp(backend, "erpc") == 0))
			return;
		o->flush = CRPC_COPYRPC_HOLD;
		o->hold_us = 10;
	}
}

void
sim_options_help(int argc, char *const *argv)
{
	opt = defaults;
	printf("usage: simkv [options]\n\n"
	       "The key-value service on many hosts of one process, in virtual time: the\n"
	       "daemons, copyrpc and the load are those of benchkv, the cards are modelled.\n\n");
	app_opt_help(options, CRPC_DIM(options), stdout);
}

static int
check(struct sim_options *o)
{
	if (o->keys * o->hosts > APP_KEYS_MAX)
		return app_fail("--keys %llu on %llu hosts are more than %u in all; give fewer",
			(unsigned long long)o->keys, (unsigned long long)o->hosts, APP_KEYS_MAX);
	if (o->clients * o->hosts >= APP_WRITERS_MAX)
		return app_fail("--clients %llu on %llu hosts are more than %u in all; give fewer",
			(unsigned long long)o->clients, (unsigned long long)o->hosts,
			APP_WRITERS_MAX - 1);
	if (sim_faults_read(&o->faults, o->fault, (uint32_t)o->hosts) != 0)
		return APP_EXIT_USAGE;
	if (sim_own(o) &&
		(o->fault != NULL || o->chaos != 0 || o->connect != APP_CONNECT_START ||
			o->flow != CRPC_COPYRPC_FLOW_WINDOW ||
			(o->transport != CRPC_RDMA_RC &&
				!(o->backend == SIM_BACKEND_ERPC && o->transport == CRPC_RDMA_UD))))
		return app_fail("--backend %s: its endpoints are of %s, and are connected once; "
				"leave out --fault, --chaos, --connect, --transport and --flow",
			sim_backends[o->backend],
			o->backend == SIM_BACKEND_ERPC ? "UD" : "RC with windows");
	if (o->backend == SIM_BACKEND_ERPC)
		o->transport = CRPC_RDMA_UD;
	else if (o->transport == CRPC_RDMA_UD)
		return app_fail("--transport ud is that of --backend erpc; give it, or rc or dc");
	if (o->chaos != 0 ? o->fault != NULL || o->sweep != NULL : o->seeds != 1)
		return app_fail_once("--%s; give %s",
			o->chaos == 0              ? "draws is of no use without --chaos N"
				: o->fault != NULL ? "fault: --chaos draws its faults"
						   : "sweep: --chaos draws its options",
			o->chaos == 0 ? "it too" : "one of them");
	return app_json_check("json", o->json);
}

int
sim_options_parse(struct sim_options *o, int argc, char *const *argv)
{
	const char *preset = app_opt_find("preset", argc, argv);
	int rc;

	opt = defaults;
	if (preset != NULL)
		apply_preset(&opt, preset, app_opt_find("backend", argc, argv));
	rc = app_opt_parse(options, CRPC_DIM(options), argc, argv);
	if (rc == 0)
		rc = check(&opt);
	if (rc == 0)
		rc = sim_model_read(&opt.model, opt.nic, opt.cpu, opt.set);
	if (rc == 0 && opt.backend != SIM_BACKEND_COPYRPC &&
		(opt.colocate || opt.model.cpu.recv != 0))
		rc = app_fail(
			"--backend %s has clients on cores of their own and a card apart; "
			"leave out --colocate, and give a --cpu without cpu_recv_ns",
			sim_backends[opt.backend]);
	*o = opt;
	return rc;
}
