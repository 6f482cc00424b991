/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The smallest whole use of RPC between processes: a server that echoes, a client that calls it.
 * Both run here in one process, turn by turn; nothing changes when they are two.
 *
 *     cc ipc_echo.c $(pkg-config --cflags --libs crpc_ipc) -o ipc_echo && ./ipc_echo
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_ipc.h>
#include <crpc_log.h>

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

int
main(void)
{
	static const char text[] = "hello";
	struct crpc_ipc_server_conf server_conf = {0};
	struct crpc_ipc_client_conf client_conf = {0};
	struct crpc_ipc_server *server;
	struct crpc_ipc_client *client;
	struct crpc_req req;
	struct crpc_done done;
	char name[40];
	int rc, answers = 0;

	crpc_clock_init();
	snprintf(name, sizeof(name), "ipc_echo_%d", (int)getpid());
	server_conf.name = name;
	server = crpc_ipc_server_create(&server_conf);
	if (server == NULL)
		return fail("server");
	client_conf.name = name;
	client = crpc_ipc_client_connect(&client_conf);
	if (client == NULL)
		return fail("client");

	rc = crpc_ipc_client_call(client, crpc_clock_ns(), text, sizeof(text), sizeof(text), 42);
	if (rc != 0)
		return fail("call");
	while (answers == 0) {
		/* The server's turn: a request stays readable until its reply. */
		crpc_ipc_server_reap(server);
		if (crpc_ipc_server_recv(server, crpc_clock_ns(), &req, 1) == 1)
			crpc_ipc_server_reply(
				server, crpc_clock_ns(), req.token, req.data, req.len);
		/* The client's turn: a completion stays readable until the next poll. */
		answers = crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1);
	}
	if (done.status == 0)
		printf("cookie %llu: %.*s\n", (unsigned long long)done.cookie, (int)done.len,
			(const char *)done.data);
	rc = done.status != 0 || done.len != sizeof(text) ||
		memcmp(done.data, text, sizeof(text)) != 0;
	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	return rc;
}
