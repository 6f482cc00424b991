/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every syndrome that a ConnectX gives, in a table: what is done, what the sender's and the
 * receiver's queues then say, in which state the queue pairs are, and which asynchronous events
 * were raised. A syndrome that no row raises, or an event, fails the test: the table is complete.
 */
#include <endian.h>
#include <errno.h>

#include "test.h"
#include "crpc_util.h"
#include "engine_rig.h"

#define BYTES (1u << 20)
#define QKEY  0x11111111u
#define WRAP  UINT32_MAX /* The last addresses there are. */

static struct rig_host a, b;
static struct rig_qp qa, qb;
static struct rig_srq srq;
static struct sm_mw *mw;

#define NONE 0xff

/* A key of a host: that of its memory, or one that does not serve. */
enum key {
	KEY_GOOD,
	KEY_VARIANT, /* Of the same index. */
	KEY_NEXT,    /* Of an index that is free. */
	KEY_BEYOND,  /* Of an index that there is not. */
	KEY_ZERO,
	KEY_INVALID,
	KEY_EARLIER, /* With the variant before the first one. */
	KEY_OTHER_PD,
	KEY_NO_RIGHTS,
	KEYS,
};

static uint32_t key_of[2][KEYS];
static struct sm_mr *mrs[2][2];
static struct sm_pd *other_pd[2];

/* One operation of the sender with one segment, and the receive that it meets. */
struct work {
	uint8_t op;
	uint32_t len;
	uint32_t off;  /* Of the segment in the sender's memory. */
	enum key lkey; /* Of the sender. */
	int32_t at;    /* In the receiver's memory, for WRITE, READ and atomics. */
	enum key rkey; /* Of the receiver. */
	bool recv;     /* One is posted, ... */
	uint32_t room; /* ... with so many bytes, by ... */
	enum key recv_key;
};

/* One way to go wrong. */
struct row {
	const char *name;
	void (*cause)(void); /* NULL, or done before the work. */
	struct work work;
	const char *faults[2]; /* Of a and b, while it happens. */
	uint8_t send;          /* Syndrome at the sender; 0: success; NONE: nothing completes. */
	uint8_t recv;          /* At the receiver: likewise. */
	enum ibv_qp_state state[2];
	int event[2]; /* -1: none. */
	enum sm_qp_type type; /* 0: RC. */
	uint32_t ncqe_b;      /* 0: enough. */
	uint32_t times;       /* 0: the work is done once. */
	uint32_t denied;      /* Access flags that qb does not have. */
	bool with_srq;        /* Of qb. */
};

/* ---- causes ---- */

static void
work_do(const struct work *k, enum sm_qp_type type)
{
	struct rig_wqe w;

	if (k->recv)
		rig_recv(&qb, b.mem, k->room, key_of[1][k->recv_key]);
	rig_wqe(&w, k->op, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	if (type == SM_UD)
		rig_wqe_av(&w, QKEY, qb.qpn, SM_LID, NULL);
	if (k->op == MLX5_OPCODE_SEND_INVAL)
		((struct mlx5_wqe_ctrl_seg *)(void *)w.b)->imm = htobe32(key_of[1][k->rkey]);
	else if (k->op != MLX5_OPCODE_SEND)
		rig_wqe_raddr(&w, b.mem + k->at, key_of[1][k->rkey]);
	if (k->op == MLX5_OPCODE_ATOMIC_FA)
		rig_wqe_atomic(&w, 1, 0);
	rig_wqe_data(&w, k->off == WRAP ? (void *)(UINTPTR_MAX - 3) : a.mem + k->off, k->len,
		key_of[0][k->lkey]);
	rig_post(&qa, &w);
}

static void
send_too_long_for_anyone(void)
{
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	rig_wqe_data(&w, a.mem, 1u << 30, a.key);
	rig_wqe_data(&w, a.mem, 1, a.key);
	rig_post(&qa, &w);
}

static void
peer_in_reset(void)
{
	rig_set_state(&qb, IBV_QPS_RESET);
}

static void
to_error_with_work(void)
{
	struct rig_wqe w;

	rig_recv(&qa, a.mem, 8, a.key);
	rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	rig_wqe_data(&w, a.mem, 8, a.key);
	rig_queue(&qa, &w);
	rig_set_state(&qa, IBV_QPS_ERR);
	rig_ring(&qa);
}

static void
receiver_to_error(void)
{
	if (qb.rq_nwqe != 0)
		rig_recv(&qb, b.mem, 8, b.key);
	rig_set_state(&qb, IBV_QPS_ERR);
}

static void
card_fails(void)
{
	assert_int_equal(sm_nic_break(a.nic, 0), 0);
}

/* The region does not allow windows. */
static void
bind_where_none_may(void)
{
	struct rig_wqe w;
	uint32_t key;

	assert_int_equal(sm_mw_create(a.nic, a.pd, 1, &mw, &key), 0);
	rig_wqe(&w, MLX5_OPCODE_UMR, MLX5_WQE_CTRL_CQ_UPDATE, key);
	w.b[w.len] = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
	w.len += 48 + 64;
	rig_wqe_data(&w, a.mem, 0, a.key);
	rig_post(&qa, &w);
}

/* The receiver's queue is one of shared receives, and goes below its limit. */
static void
below_the_limit(void)
{
	assert_int_equal(sm_srq_limit(b.nic, srq.srq, 2), 0);
	rig_srq_recv(&srq, 0, 1, b.mem, 64, b.key);
	rig_srq_recv(&srq, 1, 2, b.mem, 64, b.key);
}

#define RTS       IBV_QPS_RTS
#define ERR       IBV_QPS_ERR
#define SEND      MLX5_OPCODE_SEND
#define WRITE     MLX5_OPCODE_RDMA_WRITE
#define WRITE_IMM MLX5_OPCODE_RDMA_WRITE_IMM
#define READ      MLX5_OPCODE_RDMA_READ
#define ATOMIC    MLX5_OPCODE_ATOMIC_FA
#define DO(...)   .work = {__VA_ARGS__}
/* What then is: syndromes of the sender and the receiver, their states, and their events. */
#define GIVES(s, r, state_a, state_b, event_a, event_b)                                            \
	.send = (s), .recv = (r), .state = {state_a, state_b}, .event = {event_a, event_b}
#define GOOD DO(WRITE_IMM, 64, .recv = true)

static const struct row rows[] = {
	{"nothing wrong", GOOD, GIVES(0, 0, RTS, RTS, -1, -1)},
	{"a message beyond 1 GiB", send_too_long_for_anyone, GIVES(0x01, NONE, ERR, RTS, -1, -1)},
	{"an atomic of 16 bytes", DO(ATOMIC, 16), GIVES(0x01, NONE, ERR, RTS, -1, -1)},
	{"a datagram beyond the MTU", DO(SEND, SM_MTU_BYTES + 1),
		GIVES(0x01, NONE, ERR, RTS, -1, -1), .type = SM_UD},
	{"an opcode that is none", DO(0x1f, 8), GIVES(0x02, NONE, ERR, RTS, -1, -1)},
	{"a READ on UC", DO(READ, 8), GIVES(0x02, NONE, ERR, RTS, -1, -1), .type = SM_UC},
	{"a SEND from unregistered memory", DO(SEND, 8, .lkey = KEY_VARIANT),
		GIVES(0x04, NONE, ERR, RTS, -1, -1)},
	{"a SEND from behind the region", DO(SEND, 9, .off = BYTES - 8),
		GIVES(0x04, NONE, ERR, RTS, -1, -1)},
	{"a SEND from an address that wraps", DO(SEND, 8, .off = WRAP),
		GIVES(0x04, NONE, ERR, RTS, -1, -1)},
	{"a READ into memory that may not be written", DO(READ, 8, .lkey = KEY_NO_RIGHTS),
		GIVES(0x04, NONE, ERR, RTS, -1, -1)},
	{"a WQE that the card refuses", GOOD, .faults = {"prot=1"},
		GIVES(0x04, NONE, ERR, RTS, -1, -1)},
	{"ERR with work on both queues", to_error_with_work, GIVES(0x05, NONE, ERR, RTS, -1, -1)},
	{"ERR with a receive posted", receiver_to_error, GIVES(NONE, 0x05, RTS, ERR, -1, -1)},
	{"a window on a region without that right", bind_where_none_may,
		GIVES(0x06, NONE, ERR, RTS, -1, -1)},
	{"a response that is none", DO(READ, 8), .faults = {"badresp=1"},
		GIVES(0x10, NONE, ERR, RTS, -1, -1)},
	{"a receive that is too short", DO(SEND, 64, .recv = true, .room = 63),
		GIVES(0x12, 0x01, ERR, ERR, -1, IBV_EVENT_QP_REQ_ERR)},
	{"a receive that is too short for a later packet",
		DO(SEND, 20000, .recv = true, .room = 19999),
		GIVES(0x12, 0x01, ERR, ERR, -1, IBV_EVENT_QP_REQ_ERR)},
	{"an atomic at an odd address", DO(ATOMIC, 8, .at = 4),
		GIVES(0x12, NONE, ERR, ERR, -1, IBV_EVENT_QP_REQ_ERR)},
	{"a request that the card refuses", GOOD, .faults = {NULL, "inval=1"},
		GIVES(0x12, 0x05, ERR, ERR, -1, IBV_EVENT_QP_REQ_ERR)},
	{"a SEND_INV of a key that is no window's",
		DO(MLX5_OPCODE_SEND_INVAL, 1, .recv = true, .room = 64),
		GIVES(0x13, 0x02, ERR, ERR, -1, IBV_EVENT_QP_ACCESS_ERR)},
	{"a WRITE_IMM with a wrong key", DO(WRITE_IMM, 64, .rkey = KEY_VARIANT, .recv = true),
		GIVES(0x13, 0x11, ERR, ERR, -1, IBV_EVENT_QP_ACCESS_ERR)},
	{"a WRITE that the queue pair does not allow", DO(WRITE, 8), .denied = 2,
		GIVES(0x13, NONE, ERR, ERR, -1, IBV_EVENT_QP_ACCESS_ERR)},
	{"a READ that the queue pair does not allow", DO(READ, 8), .denied = 4,
		GIVES(0x13, NONE, ERR, ERR, -1, IBV_EVENT_QP_ACCESS_ERR)},
	{"an atomic that the queue pair does not allow", DO(ATOMIC, 8), .denied = 8,
		GIVES(0x13, NONE, ERR, ERR, -1, IBV_EVENT_QP_ACCESS_ERR)},
	{"a receive into unregistered memory",
		DO(SEND, 64, .recv = true, .room = 64, .recv_key = KEY_VARIANT),
		GIVES(0x14, 0x04, ERR, ERR, -1, -1)},
	{"a receiver that fails", GOOD, .faults = {NULL, "op=1"},
		GIVES(0x14, 0x05, ERR, ERR, -1, -1)},
	{"the receiver's completion queue overruns", GOOD, .times = 5, .ncqe_b = 4,
		GIVES(0, 0, ERR, ERR, -1, IBV_EVENT_CQ_ERR)},
	{"the peer is in RESET", peer_in_reset, DO(SEND, 8),
		GIVES(0x15, NONE, ERR, IBV_QPS_RESET, -1, -1)},
	{"nothing arrives", GOOD, .faults = {"", "drop=1"}, GIVES(0x15, NONE, ERR, RTS, -1, -1)},
	{"no receive is posted", DO(SEND, 8), GIVES(0x16, NONE, ERR, RTS, -1, -1)},
	{"no receive is ever seen", GOOD, .faults = {"", "rnr=1"},
		GIVES(0x16, NONE, ERR, RTS, -1, -1)},
	{"an error inside the card", card_fails,
		GIVES(NONE, NONE, ERR, RTS, IBV_EVENT_QP_FATAL, -1)},
	{"shared receives run low", below_the_limit, DO(SEND, 8), .with_srq = true,
		GIVES(0, 0, RTS, RTS, -1, IBV_EVENT_SRQ_LIMIT_REACHED)},
	{"ERR with shared receives", receiver_to_error, .with_srq = true,
		GIVES(NONE, NONE, RTS, ERR, -1, IBV_EVENT_QP_LAST_WQE_REACHED)},
};

/* ---- the bench ---- */

/* Keys of a host that do not serve, and regions of some of them. */
static void
keys_open(struct rig_host *h, uint32_t side)
{
	uint32_t *k = key_of[side], pdn;

	assert_int_equal(sm_pd_create(h->nic, &other_pd[side], &pdn), 0);
	mrs[side][0] = rig_mr_open(h, other_pd[side], h->mem, 64, 15, &k[KEY_OTHER_PD]);
	mrs[side][1] = rig_mr_open(h, h->pd, h->mem, 64, 0, &k[KEY_NO_RIGHTS]);
	k[KEY_GOOD] = h->key;
	k[KEY_VARIANT] = h->key + 1;
	k[KEY_NEXT] = h->key + 0x1000;
	k[KEY_BEYOND] = 0xffffff00;
	k[KEY_INVALID] = 0x100;
	k[KEY_EARLIER] = h->key & ~0xffu;
}

static void
keys_close(struct rig_host *h, uint32_t side)
{
	assert_int_equal(sm_destroy(h->nic, other_pd[side]), EBUSY);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(sm_destroy(h->nic, mrs[side][i]), 0);
	assert_int_equal(sm_destroy(h->nic, other_pd[side]), 0);
}

static void
open_all(const struct row *r)
{
	struct rig_qp_conf conf = {.type = r->type}, conf_b = {.type = r->type, .ncqe = r->ncqe_b};
	struct ib_uverbs_modify_qp m = {
		.attr_mask = IBV_QP_ACCESS_FLAGS, .qp_access_flags = 14 & ~r->denied};
	struct rig_host *host[2] = {&a, &b};
	const char *net = rig_net();

	for (uint32_t i = 0; i < 2; i++) {
		rig_host_open(host[i], net, BYTES);
		keys_open(host[i], i);
	}
	if (r->with_srq) {
		rig_srq_open(&b, &srq, 8, 5);
		conf_b.srq = &srq;
	}
	rig_qp_open(&a, &qa, &conf);
	rig_qp_open(&b, &qb, &conf_b);
	if (r->type == SM_UD) {
		rig_ready(&qa, QKEY);
		rig_ready(&qb, QKEY);
	} else {
		rig_connect(&qa, &qb);
	}
	if (r->denied != 0)
		assert_int_equal(sm_qp_modify(b.nic, qb.qp, &m), 0);
	for (uint32_t i = 0; i < 2; i++)
		if (r->faults[0] != NULL || r->faults[1] != NULL)
			assert_int_equal(sm_nic_faults(host[i]->nic,
						 r->faults[i] != NULL ? r->faults[i] : ""),
				0);
}

static void
close_all(const struct row *r)
{
	rig_link_close(&qa, &qb);
	if (mw != NULL)
		assert_int_equal(sm_destroy(a.nic, mw), 0);
	mw = NULL;
	if (r->with_srq)
		rig_srq_close(&b, &srq);
	keys_close(&a, 0);
	keys_close(&b, 1);
	rig_host_close(&a);
	rig_host_close(&b);
}

/* The first thing that a queue says: 0, a syndrome, or NONE. */
static uint8_t
first_of(struct rig_cq *cq)
{
	const struct mlx5_cqe64 *c = rig_poll(cq);
	uint8_t op;

	if (c == NULL)
		return NONE;
	op = c->op_own >> 4;
	return op == MLX5_CQE_REQ_ERR || op == MLX5_CQE_RESP_ERR ? RIG_SYND(c) : 0;
}

static void
settle(void)
{
	/* Timers end, too: retries, RNR, a peer that is silent. */
	for (int i = 0; i < 400; i++) {
		rig_run(&a, &b);
		rig_now += 1000000;
	}
}

static void
expect(const struct row *r, const char *what, int found, int expected)
{
	if (found != expected)
		fail_msg("%s: %s is 0x%x, expected 0x%x", r->name, what, (unsigned int)found,
			(unsigned int)expected);
}

static void
run_row(const struct row *r, uint32_t *syndromes, uint32_t *events)
{
	const struct rig_host *host[2] = {&a, &b};
	uint8_t send, recv;

	open_all(r);
	if (r->cause != NULL)
		r->cause();
	for (uint32_t i = 0; r->work.op != 0 && i < crpc_max(r->times, 1); i++)
		work_do(&r->work, r->type);
	settle();
	send = first_of(&qa.scq);
	recv = first_of(&qb.rcq);
	expect(r, "the sender's syndrome", send, r->send);
	expect(r, "the receiver's syndrome", recv, r->recv);
	expect(r, "the sender's state", (int)rig_state(&qa), (int)r->state[0]);
	expect(r, "the receiver's state", (int)rig_state(&qb), (int)r->state[1]);
	for (int side = 0; side < 2; side++)
		for (int type = 0; type < 32; type++)
			expect(r, "an event", host[side]->async[type] != 0,
				type == r->event[side]);
	*syndromes |= send < 32 ? 1u << send : 0;
	*syndromes |= recv < 32 ? 1u << recv : 0;
	for (int side = 0; side < 2; side++)
		*events |= r->event[side] >= 0 ? 1u << r->event[side] : 0;
	close_all(r);
}

TEST(every_cause_has_its_syndromes)
{
	static const uint8_t all[] = {0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14,
		0x15, 0x16};
	static const uint8_t all_events[] = {IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL,
		IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED,
		IBV_EVENT_SRQ_LIMIT_REACHED};
	uint32_t syndromes = 0, events = 0;

	for (uint32_t i = 0; i < CRPC_DIM(rows); i++)
		run_row(&rows[i], &syndromes, &events);
	for (uint32_t i = 0; i < sizeof(all); i++)
		if ((syndromes & 1u << all[i]) == 0)
			fail_msg("no row raises syndrome 0x%x", all[i]);
	for (uint32_t i = 0; i < sizeof(all_events); i++)
		if ((events & 1u << all_events[i]) == 0)
			fail_msg("no row raises event %u", all_events[i]);
}

/* A key that does not serve fails the sender alone. */
TEST(every_bad_key_of_the_sender_is_refused)
{
	struct row r = {"a SEND by a key that does not serve", DO(SEND, 8),
		GIVES(0x04, NONE, ERR, RTS, -1, -1)};
	uint32_t syndromes = 0, events = 0;

	for (r.work.lkey = KEY_VARIANT; r.work.lkey < KEY_NO_RIGHTS; r.work.lkey++)
		run_row(&r, &syndromes, &events);
}

/* Each operation by a key that does not serve, or beside its region, fails both sides. */
TEST(every_bad_key_of_the_receiver_is_refused)
{
	static const uint8_t ops[] = {WRITE, READ, WRITE_IMM};
	static const struct {
		enum key key;
		int32_t at;
		uint32_t len;
	} bad[] = {
		{KEY_VARIANT, 0, 8}, {KEY_OTHER_PD, 0, 8}, {KEY_NO_RIGHTS, 0, 8},
		{KEY_GOOD, BYTES - 7, 8}, {KEY_GOOD, -1, 8},
		{KEY_GOOD, BYTES - 7, 9000}, /* In its second packet. */
	};
	uint32_t syndromes = 0, events = 0;

	for (uint32_t i = 0; i < CRPC_DIM(ops) * CRPC_DIM(bad); i++) {
		uint8_t op = ops[i % CRPC_DIM(ops)];
		uint32_t k = i / CRPC_DIM(ops);
		/* Its receive: used up by a WRITE_IMM of one packet, else flushed. */
		struct row r = {"an operation by a bad key",
			DO(op, bad[k].len, .at = bad[k].at, .rkey = bad[k].key, .recv = true),
			GIVES(0x13, op == WRITE_IMM && bad[k].len < 9000 ? 0x11 : 0x05, ERR, ERR,
				-1, IBV_EVENT_QP_ACCESS_ERR)};

		run_row(&r, &syndromes, &events);
	}
}

TEST_MAIN(NULL, NULL)
