/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends direct and erpc: each client has a core, a context and a completion queue of its own,
 * and endpoints to the daemons of all hosts. What its turn costs is what those have counted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_stop.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "sim.h"

/* Of one end. */
#define ADDR_MAX crpc_max(CRPC_COPYRPC_ADDR_LEN, CRPC_UDRPC_ADDR_LEN)

static const struct app_backend *
backend(const struct sim_world *w)
{
	return w->opt->backend == SIM_BACKEND_ERPC ? &app_erpc : &app_direct;
}

const struct crpc_kv_front *
sim_own_front(const struct sim_world *w)
{
	return &backend(w)->front;
}

/* ---- turns of a client ---- */

/* A call is the client's own work too: it took an answer, and drew the next operation. */
static uint64_t
cost(const struct sim_client *k, const struct sim_counts *c)
{
	return sim_cost(k->host, &k->before, c) +
		(c->remote - k->before.remote) * k->host->world->opt->model.cpu.client;
}

static uint64_t
client_clock(void *arg)
{
	const struct sim_client *k = arg;
	struct sim_counts c = {0};

	sim_count_net(&c, &k->parts);
	return (k->free + cost(k, &c)) / SIM_PS;
}

void
sim_client_turn(struct sim_client *k)
{
	struct sim_world *w = k->host->world;
	struct sim_counts c = {0};
	bool busy;

	sim_turn_begin(w, &k->free, k->turn.at);
	k->before = c;
	sim_count_net(&k->before, &k->parts);
	w->net.clock = client_clock;
	w->net.clock_arg = k;
	app_load_turn(k->load, k->free / SIM_PS);
	w->net.clock = sim_host_clock;
	sim_count_net(&c, &k->parts);
	busy = memcmp(&c, &k->before, sizeof(c)) != 0;
	k->free += crpc_max(cost(k, &c), SIM_PS);
	k->before = c;
	k->turn.at = sim_ns(k->free) + (busy ? 0 : SIM_IDLE_NS);
}

static void
wake_client(void *client, uint64_t now_ns, bool received)
{
	struct sim_client *k = client;

	sim_wake(&k->turn, crpc_max(now_ns, sim_ns(k->free)));
}

/* ---- making and connecting ---- */

static void *
end_open(struct sim_host *h, bool server, uint32_t self, int *rc)
{
	const struct sim_world *w = h->world;
	const struct sim_options *o = w->opt;
	uint32_t links = w->hosts * (uint32_t)o->clients, rank = sim_rank(h);
	const struct app_end_conf conf = {
		.device = h->card,
		.flush = (enum crpc_copyrpc_flush_policy)o->flush,
		.hold_ns = (uint64_t)(o->hold_us * 1e3),
		.daemons = 1,
		.depth = (uint32_t)o->depth,
		.seed = o->seed,
		.service = h->server,
		.timeout_ns = CRPC_KV_TIMEOUT_NS,
		.server = server,
		.self = self,
		.rank = rank,
		.owners = w->hosts,
		.peers = server ? links : w->hosts,
		.calls = (uint32_t)o->depth,
		.req_max = w->req_max,
		.resp_max = w->resp_max,
		.ring_size = o->ring != 0
			? (uint32_t)o->ring
			: crpc_kv_ring_size((uint32_t)o->depth, w->req_max, links),
	};
	void *end = backend(w)->open(&conf, rc);

	if (end == NULL && *rc < 0)
		*rc = app_fail("host %u of %u: no ends for %u clients: %s (%s); give fewer", rank,
			w->hosts, links, strerror(-*rc), crpc_log_last());
	return end;
}

int
sim_own_open(struct sim_host *h)
{
	uint32_t clients = (uint32_t)h->world->opt->clients, first = sim_rank(h) * clients;
	struct sim_client *k;
	int rc = 0;

	h->client = calloc(clients, sizeof(*h->client));
	if (h->client == NULL)
		return app_fail("no memory for %u clients; give fewer", clients);
	h->port = end_open(h, true, sim_rank(h), &rc);
	for (uint32_t i = 0; i < clients && rc == 0; i++) {
		k = &h->client[i];
		k->host = h;
		k->turn = (struct sim_actor){.host = h, .client = k};
		k->load = &h->load[i];
		k->link = h->load[i].link = end_open(h, false, first + i, &rc);
		h->load[i].ops = &backend(h->world)->load;
		if (rc != 0)
			break;
		k->parts = backend(h->world)->parts(k->link);
		crpc_paper_on_cqe(k->parts.device, wake_client, k);
	}
	if (rc != 0)
		return rc;
	crpc_kv_server_front(h->server, 0, h->port, first, clients);
	/* What the daemon has to count and to look at is in its front. */
	h->parts = backend(h->world)->parts(h->port);
	return 0;
}

void
sim_own_close(struct sim_host *h)
{
	for (uint32_t i = 0; h->client != NULL && i < h->world->opt->clients; i++)
		if (h->client[i].link != NULL)
			backend(h->world)->close(h->client[i].link);
	if (h->port != NULL)
		backend(h->world)->close(h->port);
	free(h->client);
}

/* All links of a host, to the port of another one whose address this is. */
static int
port_connect(
	struct sim_host *h, struct sim_host *to, const uint8_t *addr, size_t len, uint8_t *mine)
{
	uint32_t clients = (uint32_t)h->world->opt->clients;
	const struct app_backend *b = backend(h->world);
	int rc = 0;

	for (uint32_t i = 0; i < clients && rc == 0; i++) {
		rc = b->connect(h->client[i].link, sim_rank(to), addr, len);
		if (rc == 0)
			rc = b->connect(to->port, sim_rank(h) * clients + i, mine,
				b->address(h->client[i].link, mine, SIZE_MAX));
		h->world->connections++;
	}
	return rc;
}

int
sim_own_connect(struct sim_world *w)
{
	size_t ends = w->hosts * (size_t)w->opt->clients, len;
	/* The address of a port and behind it that of a link. */
	uint8_t *addr = malloc((ends + w->hosts) * ADDR_MAX);
	int rc = addr == NULL ? -ENOMEM : 0;

	for (uint32_t to = 0; to < w->hosts && rc == 0 && app_stopped() == 0; to++) {
		len = backend(w)->address(w->host[to].port, addr, SIZE_MAX);
		for (uint32_t i = 0; i < w->hosts && rc == 0; i++)
			rc = port_connect(&w->host[i], &w->host[to], addr, len, addr + len);
	}
	free(addr);
	return rc;
}
