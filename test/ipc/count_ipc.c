/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of ipc for callgrind to count: 6400 calls of 32 bytes, server and clients in one
 * thread, turn by turn. A case counts one side; only counted_*() is collected, and
 * test/golden/instructions.py divides by the calls.
 */
#include <unistd.h>

#include "count.h"
#include "crpc_ipc.h"
#include "crpc_log.h"
#include "crpc_util.h"

#define CALLS 6400u
#define SIZE  32u
#define BURST 32u

struct msg {
	uint64_t w[SIZE / 8];
};

static struct crpc_ipc_server *server;
static struct crpc_ipc_client *client[CRPC_IPC_CLIENTS_MAX];
static struct msg msgs[BURST];
static uint64_t cookies[BURST];
static uint64_t bad;

/* The case that runs. */
static uint32_t connected, active, depth;

/* ---- one side's turn each ---- */

static void
call_burst(void)
{
	for (uint32_t i = 0; i < active; i++)
		bad += crpc_ipc_client_call_burst(
			       client[i], 0, msgs, SIZE, SIZE, cookies, (uint16_t)depth) != depth;
}

static void
call_single(void)
{
	for (uint32_t i = 0; i < active; i++)
		for (uint32_t k = 0; k < depth; k++)
			bad += crpc_ipc_client_call(client[i], 0, &msgs[k], SIZE, SIZE, k) != 0;
}

static void
poll_burst(void)
{
	struct crpc_done done[BURST];

	for (uint32_t i = 0; i < active; i++)
		bad += crpc_ipc_client_poll(client[i], 0, done, BURST) != depth;
}

static void
serve_burst(void)
{
	struct crpc_req req[BURST];
	uint32_t left = active * depth;

	while (left > 0) {
		uint16_t n = crpc_ipc_server_recv(server, 0, req, BURST);

		bad += crpc_ipc_server_reply_burst(server, 0, req, msgs, SIZE, n) != n;
		left -= n;
	}
}

static void
serve_single(void)
{
	struct crpc_req req[BURST];
	uint32_t left = active * depth;

	while (left > 0) {
		uint16_t n = crpc_ipc_server_recv(server, 0, req, BURST);

		for (uint16_t i = 0; i < n; i++)
			bad += crpc_ipc_server_reply(server, 0, req[i].token, &msgs[i], SIZE) != 0;
		left -= n;
	}
}

/* The same under names that are collected. */
#define COUNTED(fn)                                                                                \
	void counted_##fn(void);                                                                   \
	crpc_noinline void counted_##fn(void)                                                      \
	{                                                                                          \
		fn();                                                                              \
	}

COUNTED(call_burst)
COUNTED(call_single)
COUNTED(poll_burst)
COUNTED(serve_burst)
COUNTED(serve_single)

static const struct {
	const char *name;
	void (*call)(void), (*serve)(void), (*poll)(void);
	uint32_t connected, active, depth;
} cases[] = {
	{"client_burst_32", counted_call_burst, serve_burst, counted_poll_burst, 1, 1, 32},
	{"server_burst_32", call_burst, counted_serve_burst, poll_burst, 1, 1, 32},
	{"client_single_32", counted_call_single, serve_single, counted_poll_burst, 1, 1, 32},
	{"server_single_32", call_single, counted_serve_single, poll_burst, 1, 1, 32},
	{"client_single_1", counted_call_single, serve_single, counted_poll_burst, 1, 1, 1},
	{"server_single_1", call_single, counted_serve_single, poll_burst, 1, 1, 1},
	{"client_16_of_16_depth_4", counted_call_burst, serve_burst, counted_poll_burst, 16, 16, 4},
	{"server_16_of_16_depth_4", call_burst, counted_serve_burst, poll_burst, 16, 16, 4},
	{"server_8_of_8", call_single, counted_serve_single, poll_burst, 8, 8, 1},
	{"server_8_of_1024", call_single, counted_serve_single, poll_burst, 1024, 8, 1},
};

static int
set_up(void)
{
	char name[40];
	struct crpc_ipc_server_conf conf = {.name = name, .max_clients = connected, .depth = depth};
	struct crpc_ipc_client_conf cc = {.name = name};
	struct crpc_req req;
	uint32_t i;

	snprintf(name, sizeof(name), "count_ipc.%d", (int)getpid());
	server = crpc_ipc_server_create(&conf);
	cc.server = server;
	for (i = 0; i < connected && server != NULL; i++) {
		client[i] = crpc_ipc_client_connect(&cc);
		if (client[i] == NULL)
			break;
	}
	if (i < connected) {
		fprintf(stderr, "count_ipc: %s\n", crpc_log_last());
		return 1;
	}
	/* All are admitted, and the quiet ones are asleep; those that will call wake up. */
	for (i = 0; i < 1024; i++)
		crpc_ipc_server_recv(server, 0, &req, 1);
	call_single();
	serve_single();
	poll_burst();
	return 0;
}

int
main(int argc, char **argv)
{
	size_t k = count_case(argc, argv, cases, sizeof(cases[0]), CRPC_DIM(cases));
	uint32_t i, turns;

	connected = cases[k].connected;
	active = cases[k].active;
	depth = cases[k].depth;
	if (set_up() != 0)
		return 1;
	turns = CALLS / (active * depth);
	for (i = 0; i < turns; i++) {
		cases[k].call();
		cases[k].serve();
		cases[k].poll();
	}
	for (i = 0; i < connected; i++)
		crpc_ipc_client_close(client[i]);
	crpc_ipc_server_free(server);
	printf("messages %u\n", turns * active * depth);
	return bad != 0;
}
