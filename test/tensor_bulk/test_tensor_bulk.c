/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays to another host on devices on paper, stepped by hand in random order: many calls at once,
 * the bytes of a request, destinations, and a connection that breaks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "bulk_rig.h"
#include "crpc_tensor_bulk.h"
#include "golden.h"

#define BLOCK (1u << 20)
#define ELEMS 20000u
#define TURNS 2000000

static struct crpc_copyrpc_ep *ep[2];
static struct crpc_tensor_bulk *net[2];
static uint8_t *block;
static struct crpc_tensor_runner *runner;

static void
connect_eps(void)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];

	for (int side = 0; side < 2; side++) {
		ep[side] = crpc_copyrpc_ep_create(rig.ctx[side][0], 5);
		assert_non_null(ep[side]);
		crpc_copyrpc_ep_addr(ep[side], addr[side]);
	}
	for (int side = 0; side < 2; side++)
		assert_ok(crpc_copyrpc_ep_connect(ep[side], addr[!side]));
}

static int
setup(void **state)
{
	const struct crpc_bulk_conf conf = {.chunk = 16384,
		.slots = 4,
		.shared = true,
		.timeout_ns = 20000000,
		.confirm_ns = 5000000};
	const struct crpc_tensor_runner_conf run = {0};

	rig_init(&conf, &conf, 1, 1, 11);
	connect_eps();
	block = aligned_alloc(CRPC_CACHE_LINE, BLOCK);
	runner = crpc_tensor_runner_create(&run);
	assert_true(block != NULL && runner != NULL);
	memset(block, 0, BLOCK);
	for (int side = 0; side < 2; side++) {
		const struct crpc_tensor_bulk_conf c = {.ctx = rig.ctx[side][0],
			.ep = ep[side],
			.bulk = rig.b[side],
			.conn = rig.conn[side],
			.block = side == 1 ? block : NULL,
			.block_len = side == 1 ? BLOCK : 0,
			.runner = side == 1 ? runner : NULL};

		net[side] = crpc_tensor_bulk_create(&c);
		assert_non_null(net[side]);
	}
	return 0;
}

static int
teardown(void **state)
{
	crpc_tensor_bulk_free(net[0]);
	crpc_tensor_bulk_free(net[1]);
	rig_fini();
	crpc_tensor_runner_free(runner);
	free(block);
	return 0;
}

static void
turn(uint32_t i)
{
	uint64_t n = crpc_paper_rnd(&rig.w) % 16;

	rig.w.now_ns += 1000;
	while (n-- != 0 && crpc_paper_step(&rig.w))
		;
	crpc_tensor_bulk_progress(net[i & 1], rig.w.now_ns);
}

/* Until n of our calls have ended. */
static void
calls_end(struct crpc_tensor_bulk_done *done, uint32_t n)
{
	uint32_t i, have = 0;

	for (i = 0; i < TURNS && have < n; i++) {
		turn(i);
		have += crpc_tensor_bulk_poll(net[0], done + have, n - have);
	}
	if (have < n)
		fail_msg("%u of %u calls ended: %s", have, n, crpc_log_last());
}

static struct crpc_tensor
array(enum crpc_tensor_dtype dtype, uint64_t elems, uint64_t offset)
{
	struct crpc_tensor t;

	assert_ok(crpc_tensor_init(&t, dtype, 1, &elems, 0, offset));
	return t;
}

/* As many calls as there are places, of many arrays: the pool is smaller, all of them end. */
TEST_FIXTURE(many_calls_end, setup, teardown)
{
	struct crpc_tensor_bulk_put put[CRPC_TENSOR_BULK_ARRAYS_MAX];
	struct crpc_tensor_bulk_done done[64];
	static uint16_t data[64 * 3][1000];
	uint32_t i, k, open = 0, ended = 0;

	for (i = 0; i < 64 * 3; i++)
		for (k = 0; k < 1000; k++)
			data[i][k] = (uint16_t)(i * 1000 + k);
	for (i = 0, k = 0; ended < 64 && i < TURNS; i++) {
		int rc = 0;

		while (open < 64 && rc == 0) {
			for (k = 0; k < 3; k++) {
				put[k] = (struct crpc_tensor_bulk_put){.data = data[open * 3 + k],
					.dtype = CRPC_TENSOR_U16,
					.dst = array(CRPC_TENSOR_U16, 1000, (open * 3 + k) * 2048)};
			}
			rc = crpc_tensor_bulk_call(net[0], rig.w.now_ns, put, 3, NULL, open);
			open += rc == 0;
		}
		assert_true(rc == 0 || rc == -EAGAIN);
		turn(i);
		ended += crpc_tensor_bulk_poll(net[0], done + ended, 64 - ended);
	}
	assert_int_equal(ended, 64);
	for (i = 0; i < 64; i++)
		assert_int_equal(done[i].status, 0);
	for (i = 0; i < 64 * 3; i++)
		assert_memory_equal(block + i * 2048, data[i], 2000);
}

/* The request byte by byte: test/golden/tensor_bulk_v1.txt. */
static void
golden(const uint8_t *bytes, uint32_t len)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	for (uint32_t i = 0; i < len; i++)
		fprintf(f, "%02x%c", bytes[i], i % 16 == 15 || i == len - 1 ? '\n' : ' ');
	fclose(f);
	golden_text(CRPC_GOLDEN_DIR "/tensor_bulk_v1.txt", text);
}

TEST_FIXTURE(request_has_these_bytes, setup, teardown)
{
	static uint16_t data[300];
	struct crpc_tensor_bulk_put put = {
		.data = data, .dtype = CRPC_TENSOR_BF16, .dst = array(CRPC_TENSOR_F32, 300, 4096)};
	static struct crpc_tensor_batch b;
	struct crpc_copyrpc *ctx = rig.ctx[1][0];
	struct crpc_done done[4];
	struct crpc_req req;
	bool seen = false;
	uint32_t i;
	int x;

	crpc_tensor_batch_init(&b, 0);
	x = crpc_tensor_batch_array(&b, &put.dst);
	crpc_tensor_batch_op(&b, 3, /* whatever it is */
		&(struct crpc_tensor_args){.nout = 1, .arg = {x}, .value = 0.5});
	/* Not number 0: that of the second call is written. */
	for (i = 0; i < 2; i++)
		assert_ok(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, &b, 0));
	for (i = 0, x = 0; i < 1000 && !seen; i++) {
		rig.w.now_ns += 1000;
		crpc_tensor_bulk_progress(net[0], rig.w.now_ns);
		crpc_paper_run(&rig.w);
		crpc_copyrpc_poll(ctx, rig.w.now_ns, done, 4);
		while (!seen && crpc_copyrpc_recv(ctx, rig.w.now_ns, &req, 1) == 1) {
			seen = req.peer == 5 && ++x == 2;
			if (seen)
				golden(req.data, req.len);
			crpc_copyrpc_fail(ctx, rig.w.now_ns, req.token, -EIO);
		}
	}
	assert_true(seen);
}

/* ---- what goes wrong ---- */

/*
 * Destinations that the block does not hold, or that have gaps: refused there, nothing is written.
 */
TEST_FIXTURE(destinations_are_checked, setup, teardown)
{
	static uint16_t data[1000];
	struct crpc_tensor_bulk_put put = {.data = data, .dtype = CRPC_TENSOR_U16};
	struct crpc_tensor_bulk_done done;

	memset(block, 0x33, BLOCK);
	put.dst = array(CRPC_TENSOR_U16, 1000, BLOCK - 1998);
	assert_ok(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0));
	calls_end(&done, 1);
	assert_int_equal(done.status, -ERANGE);
	put.dst.segment = 1;
	assert_ok(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0));
	calls_end(&done, 1);
	assert_int_equal(done.status, -ENOENT);
	put.dst = array(CRPC_TENSOR_U16, 1000, 0);
	assert_ok(crpc_tensor_slice(&put.dst, &put.dst, 0, 0, 500, 2));
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), -EINVAL);
	put.dst = array(CRPC_TENSOR_U16, 1000, 0);
	put.dtype = CRPC_TENSOR_I32; /* no conversion */
	assert_int_equal(
		crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), -EOPNOTSUPP);
	for (uint32_t i = 0; i < BLOCK; i++)
		assert_int_equal(block[i], 0x33);
	assert_int_equal(crpc_tensor_bulk_stats(net[1])->refused, 2);
}

/* An array is announced and its connection goes: the call ends, here and there. */
TEST_FIXTURE(broken_connection_ends_calls, setup, teardown)
{
	static float data[ELEMS];
	struct crpc_tensor_bulk_put put = {
		.data = data, .dtype = CRPC_TENSOR_F32, .dst = array(CRPC_TENSOR_F32, ELEMS, 0)};
	struct crpc_tensor_bulk_done done[3];

	for (uint32_t i = 0; i < 3; i++)
		assert_ok(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, i));
	for (uint32_t i = 0; i < 3; i++)
		turn(i);
	crpc_bulk_conn_shutdown(rig.conn[0]);
	calls_end(done, 3);
	for (uint32_t i = 0; i < 3; i++)
		if (done[i].status != -ECONNRESET && done[i].status != -ETIMEDOUT)
			fail_msg("call %u ended with %d", i, done[i].status);
}

TEST_MAIN(NULL, rig_close)
