/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches over ipc: the block goes to the server and comes back with the results, whatever its
 * operations give; a call that fails as a whole costs its block and leaks none; a block is in one
 * process at a time; a server's answer is checked; and all that between two processes too.
 */
#include <stdint.h>

#include "test.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "arena_check.h"
#include "crpc_clock.h"
#include "crpc_tensor_ipc.h"
#include "tensor_ops.h"

#define KIND      CRPC_SHM_KIND('T', 'E', 'S', 'T')
#define ARENA_OFF 4096
#define DATA      (4u << 20)
#define N         1000u
#define ARRAYS    4
#define OPS       6
#define WAIT_S    60

static char dir[64];
static struct crpc_shm *seg;
static struct crpc_arena *arena;
static struct crpc_arena_cache *cache, *server_cache; /* memberships of the two sides */
static struct crpc_ipc_server *server;
static struct crpc_ipc_client *client;
static struct crpc_tensor_runner *runner;
static struct crpc_tensor_batch batch;
static float offered_bytes[16] crpc_aligned(64);
static const struct crpc_tensor_segment offered_segments[] = {
		{NULL, 0}, {offered_bytes, sizeof(offered_bytes)}};
static const struct crpc_tensor_space offered = {offered_segments, 2};

/* ---- set up ---- */

static void
make_arena(void)
{
	const uint64_t size = crpc_arena_size(NULL, DATA);
	const struct crpc_shm_conf conf = {.name = "arena",
			.dir = dir,
			.size = ARENA_OFF + size,
			.kind = KIND,
			.kind_version = 1};

	assert_non_null(seg = crpc_shm_create(&conf));
	assert_int_equal(crpc_arena_format(seg, ARENA_OFF, size, NULL), 0);
	crpc_shm_ready(seg);
	assert_non_null(arena = crpc_arena_attach(seg, ARENA_OFF));
}

static struct crpc_ipc_server *
make_server(uint32_t ops, struct crpc_arena_cache *a)
{
	const struct crpc_ipc_server_conf conf = {.name = "t",
			.dir = dir,
			.max_clients = 2,
			.depth = 4,
			.req_max = (uint32_t)CRPC_TENSOR_IPC_REQ_MAX(ARRAYS, OPS),
			.resp_max = (uint32_t)CRPC_TENSOR_IPC_RESP_MAX(ops),
			.arena = a};

	return crpc_ipc_server_create(&conf);
}

static struct crpc_tensor_runner *
make_runner(void)
{
	const struct crpc_tensor_runner_conf conf = {.offered = &offered};

	struct crpc_tensor_runner *r = crpc_tensor_runner_create(&conf);

	if (r == NULL || !test_ops_add(r))
		return NULL;
	return r;
}

static struct crpc_ipc_client *
make_client(struct crpc_arena_cache *a)
{
	const struct crpc_ipc_client_conf conf = {
			.name = "t", .dir = dir, .timeout_ms = WAIT_S * 1000, .arena = a};

	return crpc_ipc_client_connect(&conf);
}

static int
set_up_ops(uint32_t ops)
{
	strcpy(dir, "/dev/shm/test_tensor_ipc.XXXXXX");
	assert_non_null(mkdtemp(dir));
	make_arena();
	assert_non_null(cache = crpc_arena_join(arena, NULL));
	assert_non_null(server_cache = crpc_arena_join(arena, NULL));
	assert_non_null(server = make_server(ops, server_cache));
	assert_non_null(runner = make_runner());
	assert_non_null(client = make_client(cache));
	crpc_tensor_batch_init(&batch, 0);
	return 0;
}

static int
set_up(void **state)
{
	return set_up_ops(OPS);
}

static int
set_up_small(void **state)
{
	return set_up_ops(1);
}

/* All blocks are free by then. */
static int
tear_down(void **state)
{
	struct arena_report report = {0};

	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	crpc_tensor_runner_free(runner);
	assert_int_equal(arena_check(arena, &report), 0);
	assert_int_equal(report.blocks_allocated, 0);
	assert_int_equal(report.blocks_transit, 0);
	crpc_arena_leave(cache);
	crpc_arena_leave(server_cache);
	crpc_arena_detach(arena);
	crpc_shm_free(seg);
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

/* ---- helpers ---- */

static int
vector(enum crpc_tensor_dtype dtype, uint32_t segment, uint64_t offset, uint64_t n)
{
	struct crpc_tensor t;

	assert_int_equal(crpc_tensor_init(&t, dtype, 1, &n, segment, offset), 0);
	return crpc_tensor_batch_array(&batch, &t);
}

static void
op(uint32_t code, uint8_t nin, uint8_t nout, int a, int b, double value)
{
	const struct crpc_tensor_args args = {
			.nin = nin, .nout = nout, .arg = {a, b}, .value = value};

	assert_true(crpc_tensor_batch_op(&batch, code, &args) >= 0);
}

static float *
make_block(uint64_t *ref)
{
	float *x = crpc_arena_alloc(cache, 3 * N * sizeof(float), ref);

	assert_non_null(x);
	for (uint32_t i = 0; i < N; i++) {
		x[i] = (float)(i % 200);
		x[N + i] = 1;
		x[2 * N + i] = -1;
	}
	return x;
}

/* The server's turn, then the client's: one call is answered. */
static void
turn(int served, struct crpc_done *done)
{
	struct crpc_req req;

	assert_int_equal(crpc_ipc_server_recv(server, crpc_clock_ns(), &req, 1), 1);
	assert_int_equal(crpc_tensor_ipc_serve(server, crpc_clock_ns(), &req, runner), served);
	assert_int_equal(crpc_ipc_client_poll(client, crpc_clock_ns(), done, 1), 1);
}

/* ---- tests ---- */

/* bf16(x) widened, then y = 3 x + y, in the client's own block. */
TEST_FIXTURE(a_block_goes_and_comes_back_with_the_results, set_up, tear_down)
{
	struct crpc_ipc_block block = {0};
	struct crpc_done done;
	int32_t status[3];
	uint64_t ref;
	float *x = make_block(&ref);
	int tx = vector(CRPC_TENSOR_F32, 0, 0, N), th = vector(CRPC_TENSOR_BF16, 0, 8 * N, N);
	int ty = vector(CRPC_TENSOR_F32, 0, 4 * N, N);

	op(TEST_OP_COPY, 1, 1, tx, th, 0);
	op(TEST_OP_COPY, 1, 1, th, tx, 0);
	op(TEST_OP_AXPY, 1, 1, tx, ty, 3);
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 77), 0);
	assert_int_equal(crpc_arena_free(cache, ref), -EPERM); /* it is under way */
	turn(3, &done);
	assert_int_equal(done.cookie, 77);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 3), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(status[i], 0);
	assert_int_equal(crpc_ipc_client_take(client, &done, &block), 0);
	assert_ptr_equal(block.data, x);
	for (uint32_t i = 0; i < N; i++)
		assert_true(x[N + i] == 3 * (float)(i % 200) + 1);
	assert_int_equal(crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1), 0);
	assert_int_equal(crpc_arena_free(cache, block.ref), 0);
}

TEST_FIXTURE(bad_operations_cost_themselves_only, set_up, tear_down)
{
	struct crpc_done done;
	int32_t status[OPS];
	uint64_t ref;
	float *x = make_block(&ref);
	int tx = vector(CRPC_TENSOR_F32, 0, 0, N), ty = vector(CRPC_TENSOR_F32, 0, 4 * N, N);
	int far = vector(CRPC_TENSOR_F32, 0, 1u << 30, N),
	    other = vector(CRPC_TENSOR_F32, 1, 0, 16);

	op(TEST_OP_COPY, 1, 1, tx, far, 0);
	op(TEST_OP_COPY, 1, 1, tx, tx, 0);
	op(TEST_OP_SCALE, 0, 1, other, 0, 2);
	op(CRPC_TENSOR_OP_USER, 0, 0, 0, 0, 0);
	op(TEST_OP_SCALE, 0, 1, ty, 0, 2);
	op(CRPC_TENSOR_OP_NONE, 1, 0, other, 0, 0);
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 0), 0);
	turn(OPS, &done);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, OPS), 0);
	assert_int_equal(status[0], -ERANGE);
	assert_int_equal(status[1], -ENOTUNIQ);
	assert_int_equal(status[2], -EACCES);
	assert_int_equal(status[3], -ENOSYS);
	assert_int_equal(status[4], 0);
	assert_int_equal(status[5], 0);
	assert_true(x[N] == 2);
	assert_int_equal(
		crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1), 0); /* frees the block */
}

TEST_FIXTURE(a_call_without_a_block_reads_what_is_offered, set_up, tear_down)
{
	struct crpc_done done;
	int32_t status[2];
	int own = vector(CRPC_TENSOR_F32, 0, 0, 4), other = vector(CRPC_TENSOR_F32, 1, 0, 16);

	op(CRPC_TENSOR_OP_NONE, 1, 0, own, 0, 0);
	op(CRPC_TENSOR_OP_NONE, 1, 0, other, 0, 0);
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, 0, 0), 0);
	turn(2, &done);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), 0);
	assert_int_equal(status[0], -ENOENT);
	assert_int_equal(status[1], 0);
}

/* The call fails, and its block is freed: tear_down() looks. */
TEST_FIXTURE(what_is_no_batch_fails_as_a_whole, set_up, tear_down)
{
	struct crpc_done done;
	uint64_t ref;
	int32_t status[1];

	make_block(&ref);
	vector(CRPC_TENSOR_F32, 0, 0, N);
	batch.bytes[4] = 99;
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 5), 0);
	turn(-EPROTO, &done);
	assert_int_equal(done.cookie, 5);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 0), -EPROTO);
	assert_int_equal(crpc_ipc_client_call(client, crpc_clock_ns(), "x", 1, 0, 6), 0);
	turn(-EPROTO, &done);
	assert_int_equal(done.status, -EPROTO);
}

/* Refused at the call: the block stays the client's. */
TEST_FIXTURE(statuses_that_would_not_fit_are_refused_early, set_up_small, tear_down)
{
	uint64_t ref;

	make_block(&ref);
	op(CRPC_TENSOR_OP_NONE, 0, 0, 0, 0, 0);
	op(CRPC_TENSOR_OP_NONE, 0, 0, 0, 0, 0);
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 0), -EMSGSIZE);
	assert_int_equal(crpc_arena_free(cache, ref), 0);
}

TEST_FIXTURE(a_block_that_is_not_ours_is_not_sent, set_up, tear_down)
{
	struct crpc_arena_cache *second = crpc_arena_join(arena, NULL);
	uint64_t ref = 0;

	assert_non_null(second);
	assert_non_null(crpc_arena_alloc(second, 64, &ref));
	op(CRPC_TENSOR_OP_NONE, 0, 0, 0, 0, 0);
	assert_int_equal(crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 0), -EINVAL);
	assert_int_equal(
		crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref + 8, 0), -EINVAL);
	crpc_arena_leave(second);
}

TEST(the_servers_answer_is_checked)
{
	static const int32_t good[] = {0, -ENOENT}, high[] = {0, 1}, low[] = {-4096, 0};
	struct crpc_done done = {.data = good, .len = sizeof(good)};
	int32_t status[2];

	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), 0);
	assert_int_equal(status[1], -ENOENT);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 1), -EPROTO);
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 3), -EPROTO);
	done.data = high;
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), -EPROTO);
	done.data = low;
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), -EPROTO);
	done.len = 7;
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), -EPROTO);
	done.status = -ECONNRESET;
	assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), -ECONNRESET);
}

/* A server in another process. Never returns. */
static void
serve_forever(void)
{
	struct crpc_arena_cache *member;
	struct crpc_arena *a;
	struct crpc_shm *s = crpc_shm_attach(dir, "arena", KIND, 1, WAIT_S * 1000);
	struct crpc_tensor_runner *r = make_runner();
	struct crpc_ipc_server *srv;
	struct crpc_req req[4];

	if (s == NULL || r == NULL || (a = crpc_arena_attach(s, ARENA_OFF)) == NULL)
		_exit(2);
	member = crpc_arena_join(a, NULL);
	srv = member == NULL ? NULL : make_server(OPS, member);
	while (srv != NULL) {
		uint16_t n = crpc_ipc_server_recv(srv, crpc_clock_ns(), req, 4);

		for (uint16_t i = 0; i < n; i++)
			crpc_tensor_ipc_serve(srv, crpc_clock_ns(), &req[i], r);
		if (n == 0) {
			crpc_ipc_server_reap(srv);
			sched_yield();
		}
	}
	_exit(3);
}

static struct crpc_done
wait_done(void)
{
	struct crpc_done done = {0};
	time_t end = time(NULL) + WAIT_S;

	while (crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1) == 0) {
		if (time(NULL) > end)
			fail_msg("no answer in %d s", WAIT_S);
		sched_yield();
	}
	return done;
}

/* Many calls to another process; then it is killed, and the open one ends. */
TEST_FIXTURE(between_processes, set_up, tear_down)
{
	struct crpc_ipc_block block = {0};
	struct crpc_done done;
	int32_t status[2];
	uint64_t ref;
	float *x;
	pid_t pid;
	int tx, ty;

	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	server = NULL;
	pid = fork_mortal();
	if (pid == 0)
		serve_forever();
	assert_non_null(client = make_client(cache));
	x = make_block(&ref);
	tx = vector(CRPC_TENSOR_F32, 0, 0, N);
	ty = vector(CRPC_TENSOR_F32, 0, 4 * N, N);
	op(TEST_OP_AXPY, 1, 1, tx, ty, 1);
	op(TEST_OP_SCALE, 0, 1, tx, 0, 1);
	for (uint32_t round = 0; round < 1000; round++) {
		assert_int_equal(
			crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, round), 0);
		done = wait_done();
		assert_int_equal(done.cookie, round);
		assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), 0);
		assert_int_equal(status[0], 0);
		assert_int_equal(crpc_ipc_client_take(client, &done, &block), 0);
		assert_ptr_equal(block.data, x);
		ref = block.ref;
		assert_true(x[N + 7] == (float)(7 * (round + 1) + 1));
	}
	child_kill(pid);
	if (crpc_tensor_ipc_call(client, crpc_clock_ns(), &batch, ref, 1) == 0) {
		done = wait_done();
		assert_int_equal(crpc_tensor_ipc_status(&done, status, 2), -ECONNRESET);
	} else {
		assert_int_equal(crpc_arena_free(cache, ref), 0);
	}
	crpc_ipc_client_close(client);
	client = NULL;
	assert_true(crpc_arena_reclaim(arena, 0, NULL) >= 0);
	/* and takes the dead one's place */
	assert_non_null(server = make_server(OPS, server_cache));
}

int
main(void)
{
	crpc_clock_init();
	return test_run(NULL, NULL);
}
