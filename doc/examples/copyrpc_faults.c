/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutorial, step 4: what a caller sees of a server that does not answer and of one that is killed,
 * and how it continues with the next server.
 *
 *     cc copyrpc_faults.c $(pkg-config --cflags --libs crpc_copyrpc crpc_drivers) \
 *         -o copyrpc_faults && crpc-soft-mlx5 ./copyrpc_faults
 */
#include <signal.h>
#include <sys/wait.h>

#include "counters.h"
#include "ranks.h"

/* A call without a reply ends after 2 s. A peer that has been silent for a while is probed; after
 * 1 s without an answer it counts as lost. */
static const struct crpc_copyrpc_conf conf = {
	.max_eps = 1, .timeout_ns = 2000000000, .peer_timeout_ns = 1000000000};

/* A server with a bug: it never ends a request that counters_apply() refuses. */
static int
server_main(int sock)
{
	uint64_t counters[COUNTERS] = {0}, value;
	struct crpc_done done[4];
	struct crpc_req req[8];
	struct rank r;

	if (rank_open(&r, &conf) != 0 || rank_connect(&r, sock) != 0)
		return fail("server");
	while (crpc_copyrpc_ep_status(r.ep) == 0) { /* Until it is killed, or the client leaves. */
		uint64_t now = crpc_clock_ns();
		uint16_t i, n;

		crpc_copyrpc_poll(r.ctx, now, done, 4);
		n = crpc_copyrpc_recv(r.ctx, now, req, 8);
		for (i = 0; i < n; i++) {
			if (counters_apply(counters, &req[i], &value) == 0)
				crpc_copyrpc_reply(r.ctx, now, req[i].token, &value, sizeof(value));
		}
		crpc_copyrpc_flush(r.ctx, now);
	}
	rank_close(&r);
	return 0;
}

static pid_t
start_server(int *sock)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		_exit(server_main(pair[1]));
	}
	close(pair[1]);
	*sock = pair[0];
	return pid;
}

/* One call, to its end: every call that is accepted has one. */
static int
add(struct rank *r, uint32_t counter)
{
	struct add add = {.counter = counter, .amount = 1};
	struct crpc_done done;
	int rc = crpc_copyrpc_call(
		r->ep, crpc_clock_ns(), &add, sizeof(add), sizeof(uint64_t), counter);

	while (rc == 0 && crpc_copyrpc_poll(r->ctx, crpc_clock_ns(), &done, 1) == 0)
		continue;
	if (rc == 0)
		rc = done.status;
	printf("add to counter %u: %s\n", counter, rc == 0 ? "done" : strerror(-rc));
	return rc;
}

/* Make the broken endpoint fit for a new connection, once the old one has ended (-EBUSY). */
static int
reset(struct rank *r)
{
	struct crpc_done done;
	int rc;

	while ((rc = crpc_copyrpc_ep_reset(r->ep)) == -EBUSY)
		crpc_copyrpc_poll(r->ctx, crpc_clock_ns(), &done, 1);
	return rc;
}

int
main(void)
{
	pid_t server[2];
	struct rank r;
	int sock[2], i;

	crpc_clock_init();
	for (i = 0; i < 2; i++) { /* The second one waits for its client. */
		server[i] = start_server(&sock[i]);
		if (server[i] < 0)
			return 1;
	}
	if (rank_open(&r, &conf) != 0 || rank_connect(&r, sock[0]) != 0)
		return fail("client");
	if (add(&r, 1) != 0 || add(&r, COUNTERS) != -ETIMEDOUT)
		return fail("deadline");
	kill(server[0], SIGKILL);
	if (add(&r, 2) != -ECONNRESET || add(&r, 2) != -ECONNRESET)
		return fail("killed server");
	if (reset(&r) != 0 || rank_connect(&r, sock[1]) != 0 || add(&r, 2) != 0)
		return fail("second server");
	rank_close(&r);
	for (i = 0; i < 2; i++)
		waitpid(server[i], NULL, 0);
	return 0;
}
