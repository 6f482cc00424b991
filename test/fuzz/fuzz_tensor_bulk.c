/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of lib/tensor_bulk that anybody may have written, with and without the arrays that they
 * announce, and answers that are none. Whatever the bytes are: a request gets one answer, nothing
 * beside the block is written, its place comes back; and a call of ours ends once, with statuses
 * that are some.
 *
 * Input: a byte of flags, then the request or the answer.
 */
#include <string.h>

#include "cmocka.h"

#include "bulk_rig.h"
#include "crpc_tensor_bulk.h"

#define BLOCK_LEN 4096u
#define MSG_MAX   4096u
#define HEAD      16u
#define ARRAY     176u
#define OPS       3u
/* Each way, 20 us apart: longer than every deadline of the rig. */
#define TURNS   2000u
#define STEP_NS 20000u

enum {
	MEND = 1,   /* Heads and descriptors are made right first. */
	SENDS = 2,  /* The arrays that it announces are sent, as long as they are not long. */
	ANSWER = 4, /* The bytes are an answer to a call of ours. */
	REJECT = 8, /* The first four are the status of one without data. */
};

static crpc_aligned(CRPC_CACHE_LINE) uint8_t memory[BLOCK_LEN + 2 * CRPC_CACHE_LINE];
static uint8_t *const block = memory + CRPC_CACHE_LINE;
static struct crpc_copyrpc_ep *ep[2];
static struct crpc_tensor_bulk *net;
static struct crpc_tensor_runner *runner;

/* Side 1 owns a block, or side 0 calls; its peer is played by us. */
static void
begin(int side)
{
	const struct crpc_bulk_conf conf = {.chunk = 4096,
		.slots = 2,
		.requests = 10,
		.shared = true,
		.timeout_ns = 2000000,
		.confirm_ns = 1000000};
	const struct crpc_tensor_runner_conf run = {.elems_max = BLOCK_LEN};
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_tensor_bulk_conf c = {0};

	rig_init(&conf, &conf, 1, 1, 5);
	for (int i = 0; i < 2; i++) {
		ep[i] = crpc_copyrpc_ep_create(rig.ctx[i][0], 5);
		fuzz_check(ep[i] != NULL);
		crpc_copyrpc_ep_addr(ep[i], addr[i]);
	}
	for (int i = 0; i < 2; i++)
		fuzz_check(crpc_copyrpc_ep_connect(ep[i], addr[!i]) == 0);
	runner = crpc_tensor_runner_create(&run);
	fuzz_check(runner != NULL);
	memset(memory, 0x5b, sizeof(memory));
	c.ctx = rig.ctx[side][0];
	c.ep = ep[side];
	c.bulk = rig.b[side];
	c.conn = rig.conn[side];
	c.block = side == 1 ? block : NULL;
	c.block_len = side == 1 ? BLOCK_LEN : 0;
	c.runner = side == 1 ? runner : NULL;
	net = crpc_tensor_bulk_create(&c);
	fuzz_check(net != NULL);
}

static void
finish(void)
{
	for (uint32_t i = 0; i < CRPC_CACHE_LINE; i++)
		fuzz_check(memory[i] == 0x5b && block[BLOCK_LEN + i] == 0x5b);
	crpc_tensor_bulk_free(net);
	rig_fini();
	crpc_tensor_runner_free(runner);
}

/* The side that we play: gives requests to answer, and ends of calls. */
static uint16_t
play(int side, struct crpc_done *done, uint16_t *ndone, struct crpc_req *req, uint16_t max)
{
	struct crpc_bulk_result result[16];
	struct crpc_copyrpc *ctx = rig.ctx[side][0];
	uint16_t n;

	*ndone = crpc_copyrpc_poll(ctx, rig.w.now_ns, done, max);
	*ndone = crpc_bulk_take_done(rig.b[side], rig.w.now_ns, done, *ndone);
	n = crpc_copyrpc_recv(ctx, rig.w.now_ns, req, max);
	n = crpc_bulk_take_req(rig.b[side], 0, rig.w.now_ns, req, n);
	rig_progress(side);
	crpc_bulk_test_burst(rig.b[side], result, 16);
	crpc_copyrpc_flush(ctx, rig.w.now_ns);
	return n;
}

static void
step(void)
{
	rig.w.now_ns += STEP_NS;
	crpc_paper_run(&rig.w);
}

/* So that what is behind the first checks is reached. */
static size_t
mend(uint8_t *msg, size_t size)
{
	uint32_t i, n = msg[5] % 4;
	struct crpc_tensor t;

	memcpy(msg, "TNET\1", 5);
	msg[5] = (uint8_t)n;
	msg[6] = msg[7] = msg[15] = 0;
	for (i = 0; i < n; i++) {
		memcpy(&t, msg + HEAD + i * ARRAY + 16, sizeof(t));
		t.magic = CRPC_TENSOR_MAGIC;
		t.version = CRPC_TENSOR_VERSION;
		t.zero = 0;
		t.zero2 = t.segment = 0;
		memcpy(msg + HEAD + i * ARRAY + 16, &t, sizeof(t));
		memset(msg + HEAD + i * ARRAY + 12, 0, 4);
	}
	return crpc_max(size, (size_t)HEAD + n * ARRAY);
}

/* What the request says that it sends: as far as it says it in words that we know. */
static void
send_arrays(const uint8_t *msg, size_t size)
{
	static const uint8_t data[2 * BLOCK_LEN];
	uint64_t serial, len, req;

	if (size < HEAD)
		return;
	memcpy(&serial, msg + 8, sizeof(serial));
	for (uint32_t i = 0; i < msg[5] && HEAD + (i + 1) * ARRAY <= size; i++) {
		memcpy(&len, msg + HEAD + i * ARRAY, sizeof(len));
		if (len <= sizeof(data))
			crpc_bulk_isend(
				rig.conn[0], rig.w.now_ns, serial << 8 | i, data, len, 0, i, &req);
	}
}

static void
try_request(uint8_t flags, uint8_t *msg, size_t size)
{
	const struct crpc_tensor_bulk_stats *stats;
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint16_t i, n;
	uint32_t turns, answers = 0;

	begin(1);
	if (flags & MEND)
		size = mend(msg, size);
	fuzz_check(crpc_copyrpc_call(ep[0], rig.w.now_ns, msg, (uint32_t)size, 256, 9) == 0);
	if (flags & SENDS)
		send_arrays(msg, size);
	for (turns = 0; turns < TURNS && answers == 0; turns++) {
		step();
		fuzz_check(play(0, done, &n, req, 8) == 0);
		for (i = 0; i < n; i++) {
			fuzz_check(done[i].cookie == 9);
			fuzz_check(done[i].status <= 0 && done[i].status >= -4095);
			answers++;
		}
		step();
		crpc_tensor_bulk_progress(net, rig.w.now_ns);
	}
	fuzz_check(answers == 1);
	stats = crpc_tensor_bulk_stats(net);
	fuzz_check(stats->served + stats->refused == 1);
	fuzz_check(stats->bytes_received <= 8 * 2 * BLOCK_LEN);
	fuzz_check(bulk_check(rig.b[1], false) == 0);
	finish();
}

static void
try_answer(uint8_t flags, const uint8_t *data, size_t size)
{
	static const uint8_t array[64];
	const uint64_t elems = sizeof(array);
	struct crpc_tensor_bulk_put put = {.data = array, .dtype = CRPC_TENSOR_U8};
	static struct crpc_tensor_batch b;
	struct crpc_tensor_bulk_done end[2];
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint32_t turns, ends = 0, i;
	int32_t status = -EIO;
	uint16_t n, k;

	begin(0);
	fuzz_check(crpc_tensor_init(&put.dst, CRPC_TENSOR_U8, 1, &elems, 0, 0) == 0);
	crpc_tensor_batch_init(&b, 0);
	for (i = 0; i < OPS; i++)
		crpc_tensor_batch_op(&b, CRPC_TENSOR_OP_NONE, &(struct crpc_tensor_args){0});
	fuzz_check(crpc_tensor_bulk_call(net, rig.w.now_ns, &put, 1, &b, 7) == 0);
	if (size >= sizeof(status))
		memcpy(&status, data, sizeof(status));
	status = status < 0 && status >= -4095 ? status : -EIO;
	for (turns = 0; turns < TURNS && ends == 0; turns++) {
		step();
		crpc_tensor_bulk_progress(net, rig.w.now_ns);
		ends += crpc_tensor_bulk_poll(net, end, 2);
		step();
		n = play(1, done, &k, req, 8);
		while (n-- != 0)
			if (flags & REJECT ||
				crpc_copyrpc_reply(rig.ctx[1][0], rig.w.now_ns, req[n].token, data,
					(uint32_t)size) != 0)
				crpc_copyrpc_fail(
					rig.ctx[1][0], rig.w.now_ns, req[n].token, status);
	}
	fuzz_check(ends == 1 && end[0].cookie == 7);
	fuzz_check(end[0].status <= 0 && end[0].status >= -4095);
	fuzz_check(end[0].nops == (end[0].status == 0 ? OPS : 0));
	for (i = 0; i < end[0].nops; i++)
		fuzz_check(end[0].op[i] <= 0 && end[0].op[i] >= -4095);
	finish();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	crpc_aligned(8) uint8_t msg[MSG_MAX] = {0};

	if (size == 0)
		return 0;
	size = crpc_min(size - 1, sizeof(msg));
	memcpy(msg, data + 1, size);
	if (data[0] & ANSWER)
		try_answer(data[0], msg, size);
	else
		try_request(data[0], msg, crpc_max(size, (size_t)1));
	return 0;
}
