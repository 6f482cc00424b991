/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays to another host on devices on paper, stepped by hand: fused operations on what arrives,
 * conversion on the way, many calls at once, requests that lie, and a connection that breaks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bulk_rig.h"
#include "crpc_tensor_convert.h"
#include "crpc_tensor_bulk.h"

#define BLOCK  (1u << 20)
#define ELEMS  20000u
#define TURNS  2000000

static struct rig rig;
static struct crpc_copyrpc_ep *ep[2];
static struct crpc_tensor_bulk *net[2];
static uint8_t *block;
static struct crpc_tensor_runner *runner;

static void
connect_eps(void)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	int side;

	for (side = 0; side < 2; side++) {
		ep[side] = crpc_copyrpc_ep_create(rig.ctx[side][0], 5);
		assert_non_null(ep[side]);
		crpc_copyrpc_ep_addr(ep[side], addr[side]);
	}
	for (side = 0; side < 2; side++)
		assert_int_equal(crpc_copyrpc_ep_connect(ep[side], addr[!side]), 0);
}

static int
setup(void **state)
{
	const struct crpc_bulk_conf conf = {.chunk = 16384, .slots = 4, .shared = true,
			.timeout_ns = 20000000, .confirm_ns = 5000000};
	const struct crpc_tensor_runner_conf run = {0};
	int side;

	rig_init(&rig, &conf, &conf, 1, 1, 11);
	connect_eps();
	block = aligned_alloc(CRPC_CACHE_LINE, BLOCK);
	runner = crpc_tensor_runner_create(&run);
	assert_true(block != NULL && runner != NULL);
	memset(block, 0, BLOCK);
	for (side = 0; side < 2; side++) {
		const struct crpc_tensor_bulk_conf c = {.ctx = rig.ctx[side][0], .ep = ep[side],
				.bulk = rig.b[side], .conn = rig.conn[side],
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
	rig_fini(&rig);
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

	assert_int_equal(crpc_tensor_init(&t, dtype, 1, &elems, 0, offset), 0);
	return t;
}

static void
fill(float *f, uint32_t n, float first)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		f[i] = first + (float)(i % 1000);
}

/* Two arrays and two operations in one request: y = 3 * y, then y = 2 * x + y. */
static void
fused_operations_run_on_what_arrived(void **state)
{
	struct crpc_tensor_bulk_put put[2] = {
		{.dtype = CRPC_TENSOR_F32}, {.dtype = CRPC_TENSOR_F32}};
	static float x[ELEMS], y[ELEMS];
	struct crpc_tensor_bulk_done done;
	static struct crpc_tensor_batch b;
	const float *got = (const float *)(const void *)(block + ELEMS * sizeof(float));
	uint32_t i;
	int ix, iy;

	fill(x, ELEMS, 1);
	fill(y, ELEMS, 5);
	put[0].data = x;
	put[0].dst = array(CRPC_TENSOR_F32, ELEMS, 0);
	put[1].data = y;
	put[1].dst = array(CRPC_TENSOR_F32, ELEMS, sizeof(x));
	crpc_tensor_batch_init(&b, 0);
	ix = crpc_tensor_batch_array(&b, &put[0].dst);
	iy = crpc_tensor_batch_array(&b, &put[1].dst);
	crpc_tensor_batch_op(&b, CRPC_TENSOR_OP_SCALE,
			&(struct crpc_tensor_args){.nout = 1, .arg = {iy}, .value = 3});
	crpc_tensor_batch_op(&b, CRPC_TENSOR_OP_AXPY,
		&(struct crpc_tensor_args){.nin = 1, .nout = 1, .arg = {ix, iy}, .value = 2});
	crpc_tensor_batch_op(&b, 999, &(struct crpc_tensor_args){.nout = 1, .arg = {iy}});
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, put, 2, &b, 77), 0);
	calls_end(&done, 1);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.cookie, 77);
	assert_int_equal(done.nops, 3);
	assert_int_equal(done.op[0], 0);
	assert_int_equal(done.op[1], 0);
	assert_int_equal(done.op[2], -ENOSYS);
	assert_memory_equal(block, x, sizeof(x));
	for (i = 0; i < ELEMS; i++)
		assert_true(got[i] == 2 * x[i] + 3 * y[i]);
	/* Operations alone, on what is there. */
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, NULL, 0, &b, 78), 0);
	calls_end(&done, 1);
	assert_int_equal(done.op[1], 0);
	for (i = 0; i < ELEMS; i++)
		assert_true(got[i] == 2 * x[i] + 3 * (2 * x[i] + 3 * y[i]));
	assert_int_equal(crpc_tensor_bulk_stats(net[1])->served, 2);
}

/* Each pair of types that the engine converts, widening with half the bytes on the wire. */
static void
types_are_converted_on_the_way(void **state)
{
	static const uint32_t type[][2] = {{CRPC_TENSOR_F32, CRPC_TENSOR_BF16},
			{CRPC_TENSOR_BF16, CRPC_TENSOR_F32}, {CRPC_TENSOR_F32, CRPC_TENSOR_F16},
			{CRPC_TENSOR_F16, CRPC_TENSOR_F32}};
	struct crpc_tensor_bulk_put put;
	struct crpc_tensor_bulk_done done;
	static float f[ELEMS], want_f[ELEMS];
	static uint16_t h[ELEMS];
	uint64_t before;
	uint32_t i;

	fill(f, ELEMS, -500);
	for (i = 0; i < CRPC_DIM(type); i++) {
		bool narrows = type[i][0] == CRPC_TENSOR_F32, brain = i < 2;

		(brain ? crpc_tensor_f32_to_bf16 : crpc_tensor_f32_to_f16)(h, f, ELEMS);
		(brain ? crpc_tensor_bf16_to_f32 : crpc_tensor_f16_to_f32)(want_f, h, ELEMS);
		put = (struct crpc_tensor_bulk_put){.data = narrows ? (const void *)f : h,
				.dtype = type[i][0],
				.dst = array((enum crpc_tensor_dtype)type[i][1], ELEMS, 4096)};
		memset(block, 0xee, BLOCK);
		before = crpc_tensor_bulk_stats(net[1])->bytes_received;
		assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, i), 0);
		calls_end(&done, 1);
		assert_int_equal(done.status, 0);
		assert_int_equal(crpc_tensor_bulk_stats(net[1])->bytes_received - before,
				ELEMS * (narrows ? 4 : 2));
		if (narrows)
			assert_memory_equal(block + 4096, h, sizeof(h));
		else
			assert_memory_equal(block + 4096, want_f, sizeof(want_f));
		assert_int_equal(block[4095], 0xee);
		assert_int_equal(block[4096 + ELEMS * (narrows ? 2 : 4)], 0xee);
	}
	put.dtype = CRPC_TENSOR_I32;
	assert_int_equal(
		crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), -EOPNOTSUPP);
}

/* As many calls as there are places, of many arrays: the pool is smaller, all of them end. */
static void
many_calls_end(void **state)
{
	struct crpc_tensor_bulk_put put[CRPC_TENSOR_BULK_ARRAYS_MAX];
	struct crpc_tensor_bulk_done done[64];
	static uint16_t data[64 * 3][1000];
	uint32_t i, k, open = 0, ended = 0;
	int rc;

	for (i = 0; i < 64 * 3; i++)
		for (k = 0; k < 1000; k++)
			data[i][k] = (uint16_t)(i * 1000 + k);
	for (i = 0, k = 0; ended < 64 && i < TURNS; i++) {
		rc = 0;
		while (open < 64 && rc == 0) {
			for (k = 0; k < 3; k++) {
				put[k] = (struct crpc_tensor_bulk_put){.data = data[open * 3 + k],
						.dtype = CRPC_TENSOR_U16,
						.dst = array(CRPC_TENSOR_U16, 1000,
								(open * 3 + k) * 2048)};
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

/* The request byte by byte: test/golden/tensor_bulk_v1.txt (CRPC_GOLDEN_WRITE=1 writes it anew). */
static void
golden(const uint8_t *bytes, uint32_t len)
{
	static const char path[] = CRPC_GOLDEN_DIR "/tensor_bulk_v1.txt";
	bool writes = getenv("CRPC_GOLDEN_WRITE") != NULL;
	FILE *f = fopen(path, writes ? "w" : "r");
	unsigned int v;
	uint32_t i;

	if (f == NULL)
		fail_msg("%s: %s", path, strerror(errno));
	for (i = 0; i < len; i++) {
		if (writes)
			fprintf(f, "%02x%c", bytes[i], i % 16 == 15 || i == len - 1 ? '\n' : ' ');
		else if (fscanf(f, "%2x", &v) != 1 || v != bytes[i])
			fail_msg("byte %u is %02x, expected otherwise", i, bytes[i]);
	}
	if (!writes && fscanf(f, "%2x", &v) == 1)
		fail_msg("%s has more than %u bytes", path, len);
	fclose(f);
}

static void
request_has_these_bytes(void **state)
{
	static uint16_t data[300];
	struct crpc_tensor_bulk_put put = {.data = data,
			.dtype = CRPC_TENSOR_BF16,
			.dst = array(CRPC_TENSOR_F32, 300, 4096)};
	static struct crpc_tensor_batch b;
	struct crpc_copyrpc *ctx = rig.ctx[1][0];
	struct crpc_done done[4];
	struct crpc_req req;
	bool seen = false;
	uint32_t i;
	int x;

	crpc_tensor_batch_init(&b, 0);
	x = crpc_tensor_batch_array(&b, &put.dst);
	crpc_tensor_batch_op(&b, CRPC_TENSOR_OP_SCALE,
			&(struct crpc_tensor_args){.nout = 1, .arg = {x}, .value = 0.5});
	/* Not number 0: that of the second call is written. */
	for (i = 0; i < 2; i++)
		assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, &b, 0), 0);
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
static void
destinations_are_checked(void **state)
{
	static uint16_t data[1000];
	struct crpc_tensor_bulk_put put = {.data = data, .dtype = CRPC_TENSOR_U16};
	struct crpc_tensor_bulk_done done;
	uint32_t i;

	memset(block, 0x33, BLOCK);
	put.dst = array(CRPC_TENSOR_U16, 1000, BLOCK - 1998);
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), 0);
	calls_end(&done, 1);
	assert_int_equal(done.status, -ERANGE);
	put.dst.segment = 1;
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), 0);
	calls_end(&done, 1);
	assert_int_equal(done.status, -ENOENT);
	put.dst = array(CRPC_TENSOR_U16, 1000, 0);
	assert_int_equal(crpc_tensor_slice(&put.dst, &put.dst, 0, 0, 500, 2), 0);
	assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, 0), -EINVAL);
	for (i = 0; i < BLOCK; i++)
		assert_int_equal(block[i], 0x33);
	assert_int_equal(crpc_tensor_bulk_stats(net[1])->refused, 2);
}

/* Requests of random bytes, and good ones with a byte changed: each ends, none writes. */
static void
requests_that_lie_are_refused(void **state)
{
	static crpc_aligned(8) uint8_t msg[16 + 176 + 40];
	struct crpc_tensor dst = array(CRPC_TENSOR_U8, 1000, 64);
	const uint64_t len = 1000;
	struct crpc_tensor_bulk_done none;
	const uint32_t type = CRPC_TENSOR_U8;
	uint32_t i, k, tries = 0;

	for (i = 0; i < 16 + 176; i++) {
		memset(msg, 0, sizeof(msg));
		memcpy(msg, "TNET\1\1", 6);
		msg[13] = 1; /* a serial that nobody uses */
		memcpy(msg + 16, &len, 8);
		memcpy(msg + 24, &type, 4);
		memcpy(msg + 32, &dst, sizeof(dst));
		msg[i] ^= (uint8_t)(1 + crpc_paper_rnd(&rig.w) % 255);
		/* Cookies beyond ours: the answers concern nobody. */
		if (crpc_copyrpc_call(ep[0], rig.w.now_ns, msg, i % 3 == 0 ? 16 + 176 : 16 + i, 0,
				    1000) == 0)
			tries++;
		for (k = 0; k < 200; k++)
			turn(k);
	}
	assert_true(tries > 100);
	for (k = 0; k < 60000; k++)
		turn(k);
	assert_int_equal(crpc_tensor_bulk_poll(net[0], &none, 1), 0);
	assert_int_equal(crpc_tensor_bulk_stats(net[1])->served, 0);
	/* Those that announced what never came have ended too: there is room for a call. */
	fused_operations_run_on_what_arrived(state);
}

/* An array is announced and its connection goes: the call ends, here and there. */
static void
broken_connection_ends_calls(void **state)
{
	static float data[ELEMS];
	struct crpc_tensor_bulk_put put = {.data = data, .dtype = CRPC_TENSOR_F32,
			.dst = array(CRPC_TENSOR_F32, ELEMS, 0)};
	struct crpc_tensor_bulk_done done[3];
	uint32_t i;

	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_tensor_bulk_call(net[0], rig.w.now_ns, &put, 1, NULL, i), 0);
	for (i = 0; i < 3; i++)
		turn(i);
	crpc_bulk_conn_shutdown(rig.conn[0]);
	calls_end(done, 3);
	for (i = 0; i < 3; i++)
		if (done[i].status != -ECONNRESET && done[i].status != -ETIMEDOUT)
			fail_msg("call %u ended with %d", i, done[i].status);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			fused_operations_run_on_what_arrived, setup, teardown),
		cmocka_unit_test_setup_teardown(types_are_converted_on_the_way, setup, teardown),
		cmocka_unit_test_setup_teardown(request_has_these_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(many_calls_end, setup, teardown),
		cmocka_unit_test_setup_teardown(destinations_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(requests_that_lie_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(broken_connection_ends_calls, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
