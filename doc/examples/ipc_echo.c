/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The smallest complete use of RPC between processes: a server that echoes, and a client in a
 * process of its own.
 *
 *     cc ipc_echo.c $(pkg-config --cflags --libs crpc_ipc) -o ipc_echo && ./ipc_echo
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_ipc.h>
#include <crpc_log.h>

/* The server's loop calls this: a request stays readable until its reply. */
static void
serve(struct crpc_ipc_server *server)
{
	struct crpc_req req[32];
	uint16_t i, n = crpc_ipc_server_recv(server, crpc_clock_ns(), req, 32);

	for (i = 0; i < n; i++)
		crpc_ipc_server_reply(
			server, crpc_clock_ns(), req[i].token, req[i].data, req[i].len);
}

/* The client: a completion stays readable until the next poll. */
static int
ask(struct crpc_ipc_client *client, const char *text, uint32_t len)
{
	struct crpc_done done;

	crpc_ipc_client_call(client, crpc_clock_ns(), text, len, len, 42);
	while (crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1) == 0)
		continue;
	printf("cookie %d: %.*s\n", (int)done.cookie, (int)done.len, (const char *)done.data);
	return done.status;
}

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

static int
client_main(const char *name)
{
	struct crpc_ipc_client *client;
	int rc;

	client = crpc_ipc_client_connect(&(struct crpc_ipc_client_conf){.name = name});
	if (client == NULL)
		return fail("client");
	rc = ask(client, "hello", 5);
	crpc_ipc_client_close(client);
	return rc != 0;
}

int
main(void)
{
	struct crpc_ipc_server *server;
	int status = 1;
	char name[40];
	pid_t pid;

	crpc_clock_init();
	snprintf(name, sizeof(name), "ipc_echo_%d", (int)getpid());
	server = crpc_ipc_server_create(&(struct crpc_ipc_server_conf){.name = name});
	if (server == NULL)
		return fail("server");
	pid = fork();
	if (pid == 0)
		_exit(client_main(name) | fflush(stdout));
	while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0)
		serve(server);
	crpc_ipc_server_free(server);
	return status != 0;
}
