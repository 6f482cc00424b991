/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A key-value service in a program of one's own, and a client in a process of its own:
 *
 *     cc -o kv_server kv_server.c $(pkg-config --cflags --libs crpc_kv_server) && ./kv_server
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_kv.h>
#include <crpc_kv_server.h>
#include <crpc_log.h>
#include <rte_eal.h>

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

/* Any process of this user; it needs no DPDK. */
static int
client_main(const char *name)
{
	struct crpc_kv_conf conf = {.name = name, .connect_ms = 5000};
	struct crpc_kv *kv = crpc_kv_connect(&conf);
	struct crpc_kv_done done;

	if (kv == NULL)
		return fail("connect");
	if (crpc_kv_put(kv, "greeting", "a value", 8, NULL, 0) != 0 ||
		crpc_kv_wait(kv, &done) != 0 || crpc_kv_get(kv, "greeting", 0) != 0 ||
		crpc_kv_wait(kv, &done) != 0)
		return fail("put and get");
	printf("%s\n", (const char *)done.value);
	crpc_kv_close(kv);
	return 0;
}

/* The poll loop of a daemon, until a process has ended. */
static int
serve(struct crpc_kv_daemon *daemon, pid_t until)
{
	uint64_t now, watch_ns = 0;
	int status = 0;

	for (;;) {
		now = crpc_clock_ns();
		crpc_kv_daemon_turn(daemon, now);
		if (now < watch_ns)
			continue;
		crpc_kv_daemon_watch(daemon, now); /* each millisecond */
		watch_ns = now + 1000000;
		if (waitpid(until, &status, WNOHANG) != 0)
			return status;
	}
}

int
main(void)
{
	static char *eal[] = {"kv_server", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"--log-level=error", "-m64"};
	struct crpc_kv_server_conf conf = {.capacity = 1000, .clients = 4, .depth = 8};
	struct crpc_kv_server *server;
	char name[32];
	pid_t client;
	int status;

	snprintf(name, sizeof(name), "kv_server.%d", (int)getpid());
	client = fork();
	if (client == 0)
		return client_main(name);
	conf.name = name;
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), eal) < 0)
		return 1;
	crpc_clock_init();
	server = crpc_kv_server_create(&conf);
	if (server == NULL)
		return fail("create");
	status = serve(crpc_kv_server_daemon(server, 0), client);
	crpc_kv_server_free(server);
	rte_eal_cleanup();
	return status != 0;
}
