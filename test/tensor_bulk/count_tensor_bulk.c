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
#include "bulk_end.h"
#include "count.h"
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
	struct crpc_copyrpc_ep *ep;
	struct crpc_tensor_runner *runner;
	struct crpc_tensor_bulk *net;
};

static struct bulk_end end[2];
static struct side side[2];
static uint64_t now = 1000;
static crpc_aligned(64) uint8_t block[BYTES], data[BYTES];

static bool
side_open(struct side *s, struct bulk_end *e, bool tensor)
{
	const struct crpc_tensor_runner_conf run = {0};
	const struct crpc_copyrpc_conf rpc = {.ring_size = 65536};
	const struct crpc_bulk_conf bulk = {.rendezvous_min = UINT64_MAX, .shared = tensor};
	struct crpc_tensor_bulk_conf conf = {.block = block, .block_len = sizeof(block)};

	if (!end_device(e, "paper", &rpc) || !end_bulk(e, &bulk, 1))
		return false;
	conf.ctx = e->ctx;
	conf.bulk = e->b;
	conf.conn = e->conn;
	conf.ep = s->ep = crpc_copyrpc_ep_create(e->ctx, 1);
	conf.runner = s->runner = crpc_tensor_runner_create(&run);
	if (conf.ep == NULL || conf.runner == NULL)
		return false;
	s->net = crpc_tensor_bulk_create(&conf);
	return s->net != NULL;
}

static bool
join(void)
{
	uint8_t ep[2][CRPC_COPYRPC_ADDR_LEN];

	crpc_copyrpc_ep_addr(side[0].ep, ep[0]);
	crpc_copyrpc_ep_addr(side[1].ep, ep[1]);
	return crpc_copyrpc_ep_connect(side[0].ep, ep[1]) == 0 &&
		crpc_copyrpc_ep_connect(side[1].ep, ep[0]) == 0 && ends_connect(end);
}

/* ---- what is counted ---- */

static crpc_noinline int
counted_bulk_post(uint64_t tag)
{
	uint64_t req;
	int rc = crpc_bulk_irecv(end[1].conn, now, tag, block, BYTES, 0, 0, &req);

	return rc != 0 ? rc : crpc_bulk_isend(end[0].conn, now, tag, data, BYTES, 0, 0, &req);
}

static crpc_noinline uint32_t
counted_bulk_turn(struct bulk_end *e)
{
	struct crpc_bulk_result result[4];

	crpc_bulk_progress(e->b, now);
	return crpc_bulk_test_burst(e->b, result, 4);
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
		ended += counted_bulk_turn(&end[i & 1]);
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
	int rc = crpc_tensor_init(&put.dst, CRPC_TENSOR_F32, 1, &elems, 0, 0);

	batch_make(&b, &put.dst, cases[which].separate ? 1 : cases[which].ops);
	if (rc == 0)
		rc = request(&put, 1, &b);
	for (uint32_t i = 1; cases[which].separate && i < cases[which].ops && rc == 0; i++)
		rc = request(NULL, 0, &b);
	return rc;
}

static int
run(size_t which)
{
	uint32_t i;
	int rc = 0;

	if (!side_open(&side[0], &end[0], cases[which].ops != 0) ||
		!side_open(&side[1], &end[1], cases[which].ops != 0) || !join()) {
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
	return run(count_case(argc, argv, cases, sizeof(cases[0]), CRPC_DIM(cases)));
}
