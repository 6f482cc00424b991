/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no call between processes is lost or read half written, though the server stops looking at
 * a quiet client and neither a call nor a poll has a fence: see "Sleep" in ipc_layout.h.
 * Method: weak.h. The server dozes at the first visit that finds nothing; time stands still, and
 * nothing calls reap(), which would find a lost call in the end.
 */
#include <stdlib.h>
#include <unistd.h>

#include "crpc_log.h"
#include "ipc_client.h"
#include "ipc_run.h"
#include "ipc_server.h"

#define DEPTH IPC_RUN_MIN
#define NOW   1u

static char dir[] = "/tmp/weak_ipc.XXXXXX";
static struct crpc_ipc_server *server;
static struct crpc_ipc_client *client;
static uint32_t calls;
static enum {
	FLUSH,
	LOOK,    /* each poll announces, in place of a flush */
	NOTHING, /* the call finds that the server sleeps, and rings */
} announce;

static void
make(bool lone, bool asleep)
{
	const struct crpc_ipc_server_conf sconf = {.name = "weak",
		.dir = dir,
		.max_clients = 1,
		.depth = DEPTH,
		.req_max = CRPC_IPC_SMALL,
		.resp_max = CRPC_IPC_SMALL};
	struct crpc_ipc_client_conf cconf = {.name = "weak", .dir = dir};
	struct crpc_req req;

	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	server = crpc_ipc_server_create(&sconf);
	cconf.server = server;
	client = server != NULL ? crpc_ipc_client_connect(&cconf) : NULL;
	if (client == NULL)
		abort();
	server->sleep_visits = asleep ? 1 : 2;
	server->awake_min = 0;
	crpc_ipc_server_recv(server, NOW, &req, 1); /* admits it */
	if (!asleep)
		server->active[0]->idle = 0;
	server->sleep_visits = 1;
	if (!lone)
		client->lone_want = client->lone_end = 0;
	weak_memory(server, sizeof(*server));
	weak_memory(server->peers, sizeof(*server->peers));
	weak_memory(server->tokens, 2 * server->lay.req_slots * sizeof(*server->tokens));
	weak_memory(client, sizeof(*client));
	weak_memory(client->call - 1, (server->lay.req_slots + 2) * sizeof(*client->call));
	weak_memory(crpc_shm_header(server->seg), crpc_shm_size(server->seg));
	calls = 1 + weak_deep;
	announce = FLUSH;
}

static void
ring_setup(void)
{
	make(false, false);
}

static void
two_setup(void)
{
	make(false, false);
	calls = 2;
}

/* The server sees all calls at once, and is in the second lap: there are no runs in the first. */
static void
run_setup(void)
{
	struct crpc_req req;
	struct crpc_done done;

	make(false, true);
	for (uint64_t i = 0; i <= server->resp_mask; i++)
		if (crpc_ipc_client_call(client, NOW, &i, sizeof(i), CRPC_IPC_SMALL, i) != 0 ||
			crpc_ipc_server_recv(server, NOW, &req, 1) != 1 ||
			crpc_ipc_server_reply(server, NOW, req.token, &i, sizeof(i)) != 0 ||
			crpc_ipc_client_poll(client, NOW, &done, 1) != 1)
			abort();
	crpc_ipc_server_recv(server, NOW, &req, 1);
	calls = IPC_RUN_MIN;
	announce = NOTHING;
}

static void
ring_asleep_setup(void)
{
	make(false, true);
}

static void
lone_setup(void)
{
	make(true, false);
}

static void
look_setup(void)
{
	make(true, false);
	announce = LOOK;
}

static void
wait_for(uint64_t want)
{
	struct crpc_done done;

	if (announce == FLUSH)
		crpc_ipc_client_flush(client, NOW);
	for (;;) {
		if (announce == LOOK)
			client->countdown = 1;
		if (crpc_ipc_client_poll(client, NOW, &done, 1) == 1)
			break;
		weak_wait();
	}
	weak_check(done.status == 0 && done.cookie == want && done.len == sizeof(want) &&
			*(const uint64_t *)done.data == want + 100,
		"an answer is wrong");
}

static void
send_one(uint64_t v)
{
	weak_check(crpc_ipc_client_call(client, NOW, &v, sizeof(v), CRPC_IPC_SMALL, v) == 0,
		"a call finds no room");
}

static void
call_each(void)
{
	for (uint64_t i = 1; i <= calls; i++) {
		send_one(i);
		wait_for(i);
	}
}

/* All calls are open at once; four are answered by a run. */
static void
call_burst(void)
{
	const uint64_t v[] = {1, 2, 3, 4};

	weak_check(crpc_ipc_client_call_burst(client, NOW, v, sizeof(v[0]), CRPC_IPC_SMALL, v,
			   (uint16_t)calls) == calls,
		"a burst of calls finds no room");
	for (uint64_t i = 1; i <= calls; i++)
		wait_for(i);
}

static void
serve(void)
{
	uint64_t got = 0, v[DEPTH];
	struct crpc_req req[DEPTH];
	uint16_t n, i;

	while (got < calls) {
		n = crpc_ipc_server_recv(server, NOW, req, DEPTH);
		for (i = 0; i < n; i++) {
			v[i] = *(const uint64_t *)req[i].data;
			weak_check(
				req[i].len == sizeof(v[i]) && v[i] == ++got, "a request is wrong");
			v[i] += 100;
		}
		if (n == 0)
			weak_wait();
		else if (n == 1)
			crpc_ipc_server_reply(server, NOW, req[0].token, v, sizeof(v[0]));
		else
			crpc_ipc_server_reply_burst(server, NOW, req, v, sizeof(v[0]), n);
	}
}

int
main(int argc, char **argv)
{
	static const struct weak_scenario scenarios[] = {
		{"ring", ring_setup, {call_each, serve}, NULL},
		{"ring_asleep", ring_asleep_setup, {call_each, serve}, NULL},
		{"burst", two_setup, {call_burst, serve}, NULL},
		{"run", run_setup, {call_burst, serve}, NULL},
		{"lone", lone_setup, {call_each, serve}, NULL},
		{"look_around", look_setup, {call_each, serve}, NULL},
		{NULL, NULL, {NULL}, NULL},
	};
	static const char bell[] = "the other three updates of the bell order it";
	static const char total[] = "only the total order of C3, C4, S1 and S2 counts";
	static const char place[] = "not in a scenario: to connect and close takes kernel locks";
	static const char gone[] = "not in a scenario: a server that ends, or drops its client";
	static const char other[] =
		"not in a scenario: rare forms, of the same shape as plain ones";
	static const struct weak_spare spares[] = {
		/* Each one is implied by the others of the bell, and a place is read behind an
		 * acquire of its own. */
		{"__crpc_ipc_ring_bell", WEAK_ACQUIRE | WEAK_RELEASE, bell},
		{"take_bell", WEAK_ACQUIRE | WEAK_RELEASE, bell},
		{"__crpc_ipc_announce", WEAK_ACQUIRE | WEAK_RELEASE, total},
		{"__crpc_ipc_doze", WEAK_ACQUIRE | WEAK_RELEASE, total},
		{"ipc_ring_has_answer", WEAK_ACQUIRE,
			"it is only asked whether an answer is there"},
		{"look_at", WEAK_ACQUIRE, place},
		{"claim_place", WEAK_ACQUIRE | WEAK_RELEASE, place},
		{"leave_place", WEAK_ACQUIRE | WEAK_RELEASE, place},
		{"retire_if_gone", WEAK_RELEASE, place},
		{"check_server", WEAK_ACQUIRE, gone},
		{"__crpc_ipc_drop", WEAK_RELEASE, gone},
		{"respond_ref", WEAK_RELEASE, other},
		{"__crpc_ipc_recv_closer", WEAK_ACQUIRE, other},
		{NULL, 0, NULL},
	};
	int rc;

	if (mkdtemp(dir) == NULL)
		return 1;
	rc = weak_main(argc, argv, "lib/ipc/", scenarios, spares);
	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	rmdir(dir);
	return rc;
}
