/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of a DCI: WQEs of six streams to two targets, good ones and ones that fail here, at the
 * peer or halfway, posted together. A WQE that fails puts its stream in error, the rest of that
 * stream is flushed, and each good WQE of the other streams is done exactly once, also where
 * packets get lost.
 *
 *     test_engine_stream [seed]
 */
#include <errno.h>
#include <stdio.h>

#include "test.h"
#include "crpc_util.h"

#include "engine_rig.h"
#include "rnd.h"

#define DC_KEY   UINT64_C(0x5742ea3500000001)
#define STREAMS  6u
#define LIMIT    4u
#define BATCH    16u
#define BATCHES  300u
#define LEN_LONG 9000u
#define BAD "drop=0.01,corrupt=0.01,dup=0.02,delay=0.02,reorder=0.02,rnr=0.02"

/* What a WQE is, and with which syndrome it fails if its stream is good. */
enum kind { SEND, ADD, READ, BAD_RKEY, BAD_LKEY, BAD_KEY, HALFWAY, BAD_READ, KINDS };
static const uint8_t synd_of[KINDS] = {
	[BAD_RKEY] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
	[BAD_LKEY] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
	[BAD_KEY] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
	[HALFWAY] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
	[BAD_READ] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
};

static struct rig_host a, b;
static struct rig_qp dci;
static struct rig_dct dct[2];
static uint64_t rnd_state;
static bool bad[STREAMS];
static uint32_t nbad;
static uint64_t added;            /* What the good ADDs make of the word at b. */
static uint32_t sent[2], came[2]; /* Good SENDs to each target. */

static void
open_all(const char *faults)
{
	static char text[128];
	const char *net = rig_net();
	struct rig_qp_conf conf = {.type = SM_DCI, .bad_streams = LIMIT};

	if (faults != NULL) {
		snprintf(text, sizeof(text), "seed=%u,%s", (uint32_t)rnd_state, faults);
		rig_faults = text;
	}
	rig_retry = rig_rnr_retry = 7;
	rig_host_open(&a, net, 1 << 20);
	rig_host_open(&b, net, 1 << 20);
	for (uint32_t t = 0; t < 2; t++) {
		rig_dct_open(&b, &dct[t], DC_KEY);
		while (dct[t].posted < 48)
			rig_dct_recv(&dct[t], b.mem + 65536, 2 * LEN_LONG);
	}
	rig_qp_open(&a, &dci, &conf);
	rig_ready(&dci, 0);
	memset(bad, 0, sizeof(bad));
	memset(sent, 0, sizeof(sent));
	memset(came, 0, sizeof(came));
	nbad = 0;
	added = 0;
}

static void
close_all(void)
{
	rig_qp_close(&dci);
	rig_dct_close(&dct[0]);
	rig_dct_close(&dct[1]);
	rig_host_close(&a);
	rig_host_close(&b);
	rig_faults = NULL;
}

static void
queue(enum kind kind, uint32_t stream, uint32_t t)
{
	bool read = kind == READ || kind == BAD_READ;
	uint8_t op = kind == ADD ? MLX5_OPCODE_ATOMIC_FA
		: read           ? MLX5_OPCODE_RDMA_READ
		: kind == BAD_RKEY ? MLX5_OPCODE_RDMA_WRITE
				   : MLX5_OPCODE_SEND_IMM;
	uint32_t len = kind == ADD ? 8 : rnd(&rnd_state) % 4 != 0 ? 100 : LEN_LONG;
	struct rig_wqe w;

	rig_wqe(&w, op, MLX5_WQE_CTRL_CQ_UPDATE, t << 16 | sent[t]);
	w.b[offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id) + 1] = (uint8_t)stream;
	rig_wqe_av(&w, kind == BAD_KEY ? DC_KEY + 1 : DC_KEY, dct[t].qp.qpn, SM_LID, rig_gid);
	if (op != MLX5_OPCODE_SEND_IMM)
		rig_wqe_raddr(&w, b.mem, kind == BAD_RKEY ? b.key + 256 : b.key);
	if (kind == ADD)
		rig_wqe_atomic(&w, 1, 0);
	if (kind == HALFWAY)
		rig_wqe_data(&w, a.mem, 8192, a.key);
	rig_wqe_data(&w, a.mem + 65536, len,
		kind == BAD_LKEY || kind == BAD_READ || kind == HALFWAY ? a.key + 256 : a.key);
	rig_queue(&dci, &w);
}

/* With what the WQE completes, and what it does until then. */
static uint8_t
model(enum kind kind, uint32_t stream, uint32_t t)
{
	if (nbad == LIMIT || bad[stream])
		return MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
	bad[stream] = synd_of[kind] != 0;
	nbad += bad[stream];
	if (kind == SEND)
		sent[t]++;
	added += kind == ADD;
	return synd_of[kind];
}

/* What arrived: of each target in order, none twice, none left out. */
static void
drain(void)
{
	struct mlx5_cqe64 *c;

	for (uint32_t t = 0; t < 2; t++)
		while ((c = rig_poll(&dct[t].qp.rcq)) != NULL) {
			if (c->op_own >> 4 == MLX5_CQE_RESP_SEND_IMM)
				assert_int_equal(be32toh(c->imm_inval_pkey), t << 16 | came[t]++);
			rig_dct_recv(&dct[t], b.mem + 65536, 2 * LEN_LONG);
		}
}

static void
batch(void)
{
	uint8_t expect[BATCH];
	bool over[STREAMS] = {false}; /* What follows a READ may have been done before it failed. */
	struct mlx5_cqe64 *c;
	uint32_t nover = 0;

	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t r = (uint32_t)rnd(&rnd_state), stream = r % STREAMS, t = r >> 8 & 1;
		enum kind kind = (r >> 16) % 8 != 0 ? (r >> 20) % 3 : (r >> 20) % KINDS;

		while (over[stream])
			stream = (stream + 1) % STREAMS;
		if (kind == BAD_READ && (nover == STREAMS - 1 || nbad + 1 >= LIMIT))
			kind = READ;
		/* If a CONNECT with the wrong key is lost, there is the one with the right key. */
		if (kind == BAD_KEY && rig_faults != NULL)
			kind = BAD_RKEY;
		over[stream] = kind == BAD_READ;
		nover += over[stream];
		queue(kind, stream, t);
		expect[i] = model(kind, stream, t);
	}
	rig_ring(&dci);
	for (uint32_t i = 0; i < BATCH; i++) {
		c = rig_expect(&a, &b, &dci.scq);
		assert_int_equal(c->op_own >> 4, expect[i] != 0 ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ);
		if (expect[i] != 0)
			assert_int_equal(RIG_SYND(c), expect[i]);
		drain();
	}
	assert_int_equal(rig_state(&dci), nbad == LIMIT ? IBV_QPS_ERR : IBV_QPS_RTS);
	assert_int_equal(came[0], sent[0]);
	assert_int_equal(came[1], sent[1]);
	assert_int_equal(*(uint64_t *)(void *)b.mem, added);
}

static void
recover(void)
{
	uint32_t stream = (uint32_t)rnd(&rnd_state) % STREAMS;
	int expect = nbad != LIMIT && bad[stream] ? 0 : EINVAL;

	assert_int_equal(sm_dci_stream_reset(a.nic, dci.qp, stream), expect);
	if (nbad != LIMIT) {
		nbad -= bad[stream];
		bad[stream] = false;
		return;
	}
	rig_set_state(&dci, IBV_QPS_RESET);
	rig_ready(&dci, 0);
	memset(bad, 0, sizeof(bad));
	nbad = 0;
}

static void
run(const char *faults)
{
	open_all(faults);
	for (uint32_t i = 0; i < BATCHES; i++) {
		batch();
		recover();
	}
	assert_true(sent[0] > BATCHES && sent[1] > BATCHES && added > BATCHES);
	close_all();
}

static void
test_streams_fail_alone(void **state)
{
	run(NULL);
}

static void
test_streams_fail_alone_on_a_bad_network(void **state)
{
	run(BAD);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_fail_alone),
		cmocka_unit_test(test_streams_fail_alone_on_a_bad_network),
	};

	rnd_state = argc > 1 ? strtoull(argv[1], NULL, 0) : rnd_seed();
	printf("seed %llu\n", (unsigned long long)rnd_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
