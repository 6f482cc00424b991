/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutorial, step 2: the counters live in one process, and two other processes add to them through
 * shared memory.
 *
 *     cc ipc_counters.c $(pkg-config --cflags --libs crpc_ipc) -o ipc_counters && ./ipc_counters
 */
#include <sys/wait.h>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_ipc.h>

#include "counters.h"

enum { CLIENTS = 2 };

/* One turn of the server's loop. */
static void
serve(struct crpc_ipc_server *server, uint64_t *counters)
{
	uint64_t value, now = crpc_clock_ns();
	struct crpc_req req[32];
	uint16_t i, n = crpc_ipc_server_recv(server, now, req, 32);
	int rc;

	for (i = 0; i < n; i++) {
		rc = counters_apply(counters, &req[i], &value);
		if (rc == 0)
			crpc_ipc_server_reply(server, now, req[i].token, &value, sizeof(value));
		else
			crpc_ipc_server_fail(server, now, req[i].token, rc);
	}
	/* Finds clients that were killed and frees what they had; a real loop calls it every few
	 * milliseconds, not in every turn. */
	crpc_ipc_server_reap(server);
}

/* Make calls while there is room, and take completions; several calls are open at a time. */
static int
add_all(struct crpc_ipc_client *client)
{
	uint32_t made = 0, ended = 0;
	struct crpc_done done[32];
	uint16_t i, n;

	while (ended < ADDS) {
		uint64_t now = crpc_clock_ns();
		struct add add = {.counter = made % COUNTERS, .amount = 1};

		if (made < ADDS &&
			crpc_ipc_client_call(
				client, now, &add, sizeof(add), sizeof(uint64_t), made) == 0)
			made++;
		n = crpc_ipc_client_poll(client, now, done, 32);
		for (i = 0; i < n; i++) {
			if (done[i].status != 0)
				return fail("call"); /* -ECONNRESET if the server has died. */
		}
		ended += n;
	}
	return 0;
}

static int
client_main(const char *name)
{
	struct crpc_ipc_client_conf conf = {.name = name};
	struct crpc_ipc_client *client = crpc_ipc_client_connect(&conf);
	int rc;

	if (client == NULL)
		return fail("client");
	rc = add_all(client);
	crpc_ipc_client_close(client);
	return rc;
}

int
main(void)
{
	uint64_t counters[COUNTERS] = {0}, sum = 0;
	struct crpc_ipc_server_conf conf = {0};
	struct crpc_ipc_server *server;
	int i, left, status, failed = 0;
	char name[40];

	crpc_clock_init();
	/* Clients find the server by this name, in /dev/shm. */
	snprintf(name, sizeof(name), "ipc_counters_%d", (int)getpid());
	conf.name = name;
	server = crpc_ipc_server_create(&conf);
	if (server == NULL)
		return fail("server");
	for (left = 0; left < CLIENTS; left++) {
		if (fork() == 0)
			_exit(client_main(name));
	}
	while (left > 0) {
		serve(server, counters);
		if (waitpid(-1, &status, WNOHANG) > 0) {
			failed |= status;
			left--;
		}
	}
	crpc_ipc_server_free(server);
	for (i = 0; i < COUNTERS; i++)
		sum += counters[i];
	printf("%d processes added %d each: sum %d\n", CLIENTS, ADDS, (int)sum);
	return failed || sum != CLIENTS * ADDS;
}
