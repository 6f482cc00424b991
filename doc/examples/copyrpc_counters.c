/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutorial, step 3: two hosts own half of the counters each, and call each other through RDMA. The
 * two ranks are processes of one host here, and the NIC may be the software one:
 *
 *     cc copyrpc_counters.c $(pkg-config --cflags --libs crpc_copyrpc crpc_drivers) \
 *         -o copyrpc_counters && crpc-soft-mlx5 ./copyrpc_counters
 */
#include <sys/wait.h>

#include "counters.h"
#include "ranks.h"

/* Execute what has arrived. */
static void
serve(struct rank *r, uint64_t now, uint64_t *mine)
{
	struct crpc_req req[32];
	uint64_t value;
	uint16_t i, n = crpc_copyrpc_recv(r->ctx, now, req, 32);
	int rc;

	for (i = 0; i < n; i++) {
		rc = counters_apply(mine, &req[i], &value);
		if (rc == 0)
			crpc_copyrpc_reply(r->ctx, now, req[i].token, &value, sizeof(value));
		else
			crpc_copyrpc_fail(r->ctx, now, req[i].token, rc);
	}
}

/* Call the peer and serve it, until both ranks have all their replies. A rank that has finished
 * still serves; a byte on the socket says that its peer has finished too. */
static int
run(struct rank *r, int sock, uint64_t *mine)
{
	uint32_t made = 0, ended = 0;
	struct crpc_done done[32];
	uint16_t i, n;
	char end;

	for (;;) {
		uint64_t now = crpc_clock_ns();
		struct add add = {.counter = made % COUNTERS, .amount = 1};

		if (made < ADDS &&
			crpc_copyrpc_call(r->ep, now, &add, sizeof(add), sizeof(uint64_t), made) ==
				0)
			made++;
		n = crpc_copyrpc_poll(r->ctx, now, done, 32);
		for (i = 0; i < n; i++) {
			if (done[i].status != 0)
				return fail("call");
		}
		ended += n;
		serve(r, now, mine);
		/* Calls and replies of this turn go out together. */
		crpc_copyrpc_flush(r->ctx, now);
		if (n != 0 && ended == ADDS)
			send(sock, "", 1, 0);
		if (ended == ADDS && recv(sock, &end, 1, MSG_DONTWAIT) >= 0)
			return 0;
	}
}

static int
rank_main(uint32_t id, int sock)
{
	struct crpc_copyrpc_conf conf = {.max_eps = 1};
	uint64_t mine[COUNTERS] = {0}, sum = 0;
	struct rank r;
	uint32_t i;
	int rc;

	if (rank_open(&r, &conf) != 0)
		return fail("open");
	if (rank_connect(&r, sock) != 0)
		return fail("connect");
	rc = run(&r, sock, mine);
	rank_close(&r);
	for (i = 0; i < COUNTERS; i++)
		sum += mine[i];
	printf("rank %u: its peer added %d, sum %d\n", id, ADDS, (int)sum);
	fflush(stdout);
	return rc != 0 || sum != ADDS;
}

int
main(void)
{
	int sock[2], rc, status = 1;
	pid_t pid;

	crpc_clock_init();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) != 0)
		return 1;
	pid = fork(); /* Before the device is opened: each rank opens its own. */
	if (pid == 0) {
		close(sock[0]);
		_exit(rank_main(1, sock[1]));
	}
	close(sock[1]);
	rc = rank_main(0, sock[0]);
	close(sock[0]);
	waitpid(pid, &status, 0);
	return rc != 0 || status != 0;
}
