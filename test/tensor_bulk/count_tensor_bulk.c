/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: arrays of 4 KiB, one at a time, both ends in one
 * thread over a NIC on paper. Only counted_*() are collected, with all they call but the
 * device; test/golden/instructions.py divides by the messages. The case bulk moves the same bytes
 * by lib/bulk alone.
 *
 *     count_tensor_bulk              names the cases
 *     count_tensor_bulk CASE         runs one
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_bulk.h"
#include "crpc_log.h"
#include "crpc_tensor_bulk.h"

#define BYTES    4096u
#define ELEMS    (BYTES / sizeof(float))
#define MESSAGES 2000u
#define TURNS    1000u

static const struct {
	const char *name;
	uint32_t ops; /* 0: lib/bulk alone. */
	bool separate, half;
} cases[] = {
		{"bulk", 0, false, false},
		{"tensor_1", 1, false, false},
		{"tensor_bf16_1", 1, false, true},
		{"tensor_8_fused", 8, false, false},
		{"tensor_8_separate", 8, true, false},
};

struct side {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	struct crpc_tensor_runner *runner;
	struct crpc_tensor_bulk *net;
};

static struct side side[2];
static uint64_t now = 1000;
static crpc_aligned(64) uint8_t block[BYTES], data[BYTES];

static int
side_open(struct side *s, bool tensor)
{
	const struct crpc_tensor_runner_conf run = {0};
	struct crpc_copyrpc_conf rpc = {.ring_size = 65536};
	struct crpc_bulk_conf bulk = {.rendezvous_min = UINT64_MAX, .shared = tensor};
	struct crpc_tensor_bulk_conf conf = {0};

	s->dev = rpc.dev = crpc_rdma_open(&(struct crpc_rdma_conf){.device = "paper"});
	s->ctx = s->dev == NULL ? NULL : crpc_copyrpc_create(&rpc);
	bulk.port[0] = (struct crpc_bulk_port){.ctx = s->ctx, .dev = s->dev};
	s->ep = s->ctx == NULL ? NULL : crpc_copyrpc_ep_create(s->ctx, 1);
	s->b = s->ep == NULL ? NULL : crpc_bulk_create(&bulk);
	s->conn = s->b == NULL ? NULL : crpc_bulk_conn_create(s->b, 1, 1);
	s->runner = crpc_tensor_runner_create(&run);
	if (s->conn == NULL || s->runner == NULL)
		return -1;
	conf.ctx = s->ctx;
	conf.ep = s->ep;
	conf.bulk = s->b;
	conf.conn = s->conn;
	conf.block = block;
	conf.block_len = sizeof(block);
	conf.runner = s->runner;
	s->net = crpc_tensor_bulk_create(&conf);
	return s->net == NULL ? -1 : 0;
}

static int
join(void)
{
	uint8_t ep[2][CRPC_COPYRPC_ADDR_LEN], conn[2][CRPC_BULK_ADDR_LEN];
	int i;

	for (i = 0; i < 2; i++) {
		crpc_copyrpc_ep_addr(side[i].ep, ep[i]);
		crpc_bulk_conn_addr(side[i].conn, conn[i]);
	}
	for (i = 0; i < 2; i++)
		if (crpc_copyrpc_ep_connect(side[i].ep, ep[!i]) != 0 ||
				crpc_bulk_conn_connect(side[i].conn, conn[!i]) != 0)
			return -1;
	return 0;
}

/* ---- what is counted ---- */

static crpc_noinline int
counted_bulk_post(uint64_t tag)
{
	uint64_t req;
	int rc = crpc_bulk_irecv(side[1].conn, now, tag, block, BYTES, 0, 0, &req);

	return rc != 0 ? rc : crpc_bulk_isend(side[0].conn, now, tag, data, BYTES, 0, 0, &req);
}

static crpc_noinline uint32_t
counted_bulk_turn(struct side *s)
{
	struct crpc_bulk_result result[4];

	crpc_bulk_progress(s->b, now);
	return crpc_bulk_test_burst(s->b, result, 4);
}

static crpc_noinline int
counted_call(const struct crpc_tensor_bulk_put *put, uint32_t nput,
		const struct crpc_tensor_batch *b)
{
	return crpc_tensor_bulk_call(side[0].net, now, put, nput, b, 0);
}

static crpc_noinline uint32_t
counted_turn(struct side *s, struct crpc_tensor_bulk_done *done)
{
	crpc_tensor_bulk_progress(s->net, now);
	return crpc_tensor_bulk_poll(s->net, done, 1);
}

/* ---- one message ---- */

static int
bulk_message(uint64_t tag)
{
	uint32_t ended = 0, i;

	if (counted_bulk_post(tag) != 0)
		return -1;
	for (i = 0; i < TURNS && ended < 2; i++) {
		now += 1000;
		ended += counted_bulk_turn(&side[i & 1]);
	}
	return ended == 2 ? 0 : -1;
}

static int
request(const struct crpc_tensor_bulk_put *put, uint32_t nput, const struct crpc_tensor_batch *b)
{
	struct crpc_tensor_bulk_done done;
	uint32_t ended = 0, i;

	if (counted_call(put, nput, b) != 0)
		return -1;
	for (i = 0; i < TURNS && ended == 0; i++) {
		now += 1000;
		ended = counted_turn(&side[i & 1], &done);
	}
	return ended == 1 ? done.status : -1;
}

/* Operations from first to last, on the array. */
static void
batch_make(struct crpc_tensor_batch *b, const struct crpc_tensor *t, uint32_t n)
{
	struct crpc_tensor_args args = {.nin = 1};

	crpc_tensor_batch_init(b, 0);
	args.arg[0] = crpc_tensor_batch_array(b, t);
	while (n-- != 0)
		crpc_tensor_batch_op(b, CRPC_TENSOR_OP_NONE, &args);
}

static int
tensor_message(size_t which)
{
	const uint64_t elems = ELEMS;
	struct crpc_tensor_bulk_put put = {.data = data,
			.dtype = cases[which].half ? CRPC_TENSOR_BF16 : CRPC_TENSOR_F32};
	static struct crpc_tensor_batch b;
	uint32_t i;
	int rc = crpc_tensor_init(&put.dst, CRPC_TENSOR_F32, 1, &elems, 0, 0);

	batch_make(&b, &put.dst, cases[which].separate ? 1 : cases[which].ops);
	if (rc == 0)
		rc = request(&put, 1, &b);
	for (i = 1; cases[which].separate && i < cases[which].ops && rc == 0; i++)
		rc = request(NULL, 0, &b);
	return rc;
}

static int
run(size_t which)
{
	uint32_t i;
	int rc = 0;

	if (side_open(&side[0], cases[which].ops != 0) != 0 ||
			side_open(&side[1], cases[which].ops != 0) != 0 || join() != 0) {
		fprintf(stderr, "cannot set up: %s\n", crpc_log_last());
		return 1;
	}
	for (i = 0; i < MESSAGES && rc == 0; i++)
		rc = cases[which].ops == 0 ? bulk_message(i) : tensor_message(which);
	if (rc != 0)
		fprintf(stderr, "message %u: %d: %s\n", i, rc, crpc_log_last());
	printf("messages %u\n", i);
	return rc != 0;
}

int
main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < CRPC_DIM(cases); i++) {
		if (argc < 2)
			printf("%s\n", cases[i].name);
		else if (strcmp(argv[1], cases[i].name) == 0)
			return run(i);
	}
	return argc < 2 ? 0 : 1;
}
