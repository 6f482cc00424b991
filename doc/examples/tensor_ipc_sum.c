/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays in another process, several operations in one call: the client lays two arrays into a
 * block, the server adds one to the other, and sums the result up, in place.
 * Both run here in one process, turn by turn, as two members of the arena; nothing changes when
 * they are two. With a name it is the server alone, of that name; tensor_numpy.py is a client.
 *
 *     cc tensor_ipc_sum.c $(pkg-config --cflags --libs crpc_tensor_ipc) -o sum && ./sum
 *     ./sum NAME &
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <crpc_arena.h>
#include <crpc_clock.h>
#include <crpc_log.h>
#include <crpc_shm.h>
#include <crpc_tensor_ipc.h>

#define N 1000u

enum {
	OP_ADD = CRPC_TENSOR_OP_USER,
	OP_SUM,
};

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

/* ---- server ---- */

/* What an operation is given has been checked, but for what it means to us. */
static int
is_floats(const struct crpc_tensor *t, uint64_t n)
{
	return t->dtype == CRPC_TENSOR_F32 && crpc_tensor_is_contiguous(t) &&
		crpc_tensor_elems(t) == n;
}

static int
op_add(void *ctx, const struct crpc_tensor_call *call)
{
	const float *x = call->ptr[0];
	float *y = call->ptr[1], value = (float)call->value;
	uint64_t i, n = crpc_tensor_elems(call->t[0]);

	(void)ctx;
	if (!is_floats(call->t[0], n) || !is_floats(call->t[1], n))
		return -EINVAL;
	for (i = 0; i < n; i++)
		y[i] += value * x[i];
	return 0;
}

static int
op_sum(void *ctx, const struct crpc_tensor_call *call)
{
	const float *x = call->ptr[0];
	uint64_t i, n = crpc_tensor_elems(call->t[0]);
	float sum = 0;

	(void)ctx;
	if (!is_floats(call->t[0], n) || !is_floats(call->t[1], 1))
		return -EINVAL;
	for (i = 0; i < n; i++)
		sum += x[i];
	memcpy(call->ptr[1], &sum, sizeof(sum));
	return 0;
}

static void
serve(struct crpc_ipc_server *server, struct crpc_tensor_runner *runner)
{
	struct crpc_req req;

	crpc_ipc_server_reap(server);
	if (crpc_ipc_server_recv(server, crpc_clock_ns(), &req, 1) == 1)
		crpc_tensor_ipc_serve(server, crpc_clock_ns(), &req, runner);
}

/* ---- client ---- */

/* y = 2 * x + y, and the sum of y: two operations, one message. */
static int
ask(struct crpc_tensor_batch *b)
{
	static const uint64_t n = N;
	struct crpc_tensor x, y, sum;
	int ix, iy, is;

	if (crpc_tensor_init(&x, CRPC_TENSOR_F32, 1, &n, 0, 0) != 0 ||
		crpc_tensor_init(&y, CRPC_TENSOR_F32, 1, &n, 0, 4 * N) != 0 ||
		crpc_tensor_init(&sum, CRPC_TENSOR_F32, 0, NULL, 0, 8 * N) != 0)
		return -1;
	crpc_tensor_batch_init(b, CRPC_TENSOR_BATCH_STOP);
	ix = crpc_tensor_batch_array(b, &x);
	iy = crpc_tensor_batch_array(b, &y);
	is = crpc_tensor_batch_array(b, &sum);
	crpc_tensor_batch_op(b, OP_ADD,
		&(struct crpc_tensor_args){.nin = 1, .nout = 1, .arg = {ix, iy}, .value = 2});
	return crpc_tensor_batch_op(b, OP_SUM,
		&(struct crpc_tensor_args){.nin = 1, .nout = 1, .arg = {iy, is}});
}

static int
call(struct crpc_ipc_client *client, struct crpc_arena_cache *member,
	struct crpc_ipc_server *server, struct crpc_tensor_runner *runner)
{
	static struct crpc_tensor_batch b;
	struct crpc_ipc_block block;
	struct crpc_done done;
	int32_t status[2];
	uint64_t ref;
	uint32_t i;
	float sum, *p = crpc_arena_alloc(member, 8 * N + sizeof(float), &ref);

	if (p == NULL)
		return fail("block");
	for (i = 0; i < N; i++) {
		p[i] = 3;
		p[N + i] = 1;
	}
	if (ask(&b) < 0 || crpc_tensor_ipc_call(client, crpc_clock_ns(), &b, ref, 1) != 0)
		return fail("call");
	while (crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1) == 0)
		serve(server, runner);
	if (crpc_tensor_ipc_status(&done, status, 2) != 0 ||
		crpc_ipc_client_block(client, &done, &block) != 0)
		return fail("answer");
	for (i = 0; i < 2; i++)
		printf("operation %u: %s\n", i, status[i] == 0 ? "done" : strerror(-status[i]));
	memcpy(&sum, (char *)block.data + 8 * N, sizeof(sum));
	printf("the sum of 2 * 3 + 1, %u times: %g\n", N, (double)sum);
	/* The next poll would free the block; to keep it: crpc_ipc_client_take(). */
	return sum != 7 * N;
}

/* ---- both ---- */

/* A segment that is all arena. */
static struct crpc_arena *
make_arena(struct crpc_shm **seg, const char *name)
{
	struct crpc_shm_conf conf = {.name = name};
	uint64_t len = crpc_arena_size(NULL, 64 << 20);

	conf.size = 4096 + len;
	*seg = crpc_shm_create(&conf);
	if (*seg == NULL || crpc_arena_format(*seg, 4096, len, NULL) != 0)
		return NULL;
	crpc_shm_ready(*seg);
	return crpc_arena_attach(*seg, 4096); /* others: crpc_shm_attach() first */
}

static _Atomic int stopped;

static void
stop(int sig)
{
	(void)sig;
	stopped = 1;
}

int
main(int argc, char **argv)
{
	char name[40], arena_name[48];
	struct crpc_ipc_server_conf server_conf = {.name = name,
		.req_max = CRPC_TENSOR_IPC_REQ_MAX(4, 4),
		.resp_max = CRPC_TENSOR_IPC_RESP_MAX(4)};
	struct crpc_ipc_client_conf client_conf = {.name = name};
	struct crpc_tensor_runner_conf runner_conf = {0};
	struct crpc_tensor_runner *runner;
	struct crpc_ipc_server *server;
	struct crpc_ipc_client *client;
	struct crpc_arena *arena;
	struct crpc_shm *seg;
	int rc = 0;

	crpc_clock_init();
	snprintf(name, sizeof(name), "tensor_ipc_sum_%d", (int)getpid());
	if (argc > 1)
		snprintf(name, sizeof(name), "%s", argv[1]);
	snprintf(arena_name, sizeof(arena_name), "%s.arena", name);
	arena = make_arena(&seg, arena_name);
	if (arena == NULL)
		return fail("arena");
	server_conf.arena = crpc_arena_join(arena, NULL);
	client_conf.arena = crpc_arena_join(arena, NULL);
	if (server_conf.arena == NULL || client_conf.arena == NULL)
		return fail("member");
	server = crpc_ipc_server_create(&server_conf);
	runner = crpc_tensor_runner_create(&runner_conf);
	if (server == NULL || runner == NULL ||
		crpc_tensor_runner_add(runner, OP_ADD, 1, 1, op_add, NULL) != 0 ||
		crpc_tensor_runner_add(runner, OP_SUM, 1, 1, op_sum, NULL) != 0)
		return fail("server");
	signal(SIGTERM, stop);
	for (; argc > 1 && !stopped; sched_yield())
		serve(server, runner);
	if (argc == 1) {
		client = crpc_ipc_client_connect(&client_conf);
		if (client == NULL)
			return fail("client");
		rc = call(client, client_conf.arena, server, runner);
		crpc_ipc_client_close(client);
	}
	crpc_ipc_server_free(server);
	crpc_tensor_runner_free(runner);
	crpc_arena_leave(client_conf.arena);
	crpc_arena_leave(server_conf.arena);
	crpc_arena_detach(arena);
	crpc_shm_free(seg);
	return rc;
}
