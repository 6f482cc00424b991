/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every syndrome that a ConnectX gives, in a table: what is done, what the sender's and the
 * receiver's queues then say, in which state the queue pairs are, and which asynchronous events
 * were raised. A syndrome that no row raises, or an event, fails the test: the table is complete.
 */
#include <endian.h>

#include "engine_rig.h"

static struct rig_host a, b;
static struct rig_qp qa, qb;
static struct rig_srq srq;
static struct sm_mw *mw;

#define NONE 0xff

/* One way to go wrong. */
struct row {
	const char *name;
	void (*cause)(void);
	const char *faults[2]; /* Of a and b, while it happens. */
	uint8_t send;          /* Syndrome at the sender; 0: success; NONE: nothing completes. */
	uint8_t recv;          /* At the receiver: likewise. */
	enum sm_qp_state state[2];
	int event[2]; /* -1: none. */
	enum sm_qp_type type; /* 0: RC. */
	uint32_t ncqe_b;      /* 0: enough. */
	bool with_srq;        /* Of qb. */
};

/* ---- causes ---- */

static void
post(struct rig_wqe *w)
{
	rig_post(&qa, w);
}

static void
begin(struct rig_wqe *w, uint8_t op)
{
	rig_wqe(w, op, MLX5_WQE_CTRL_CQ_UPDATE, 0);
}

static void
write_imm(uint32_t rkey)
{
	struct rig_wqe w;

	rig_recv(&qb, NULL, 0, 0);
	begin(&w, MLX5_OPCODE_RDMA_WRITE_IMM);
	rig_wqe_raddr(&w, b.mem, rkey);
	rig_wqe_data(&w, a.mem, 64, a.key);
	post(&w);
}

static void
good(void)
{
	write_imm(b.key);
}

static void
send_len(uint32_t len, uint32_t room, uint32_t lkey)
{
	struct rig_wqe w;

	rig_recv(&qb, b.mem, room, lkey);
	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, len, a.key);
	post(&w);
}

static void
send_too_long_for_anyone(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, 1u << 30, a.key);
	rig_wqe_data(&w, a.mem, 1, a.key);
	post(&w);
}

static void
atomic(const void *raddr, uint32_t len)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_ATOMIC_FA);
	rig_wqe_raddr(&w, raddr, b.key);
	rig_wqe_atomic(&w, 1, 0);
	rig_wqe_data(&w, a.mem, len, a.key);
	post(&w);
}

static void
atomic_of_16_bytes(void)
{
	atomic(b.mem, 16);
}

static void
atomic_at_odd_address(void)
{
	atomic(b.mem + 4, 8);
}

static void
datagram_beyond_mtu(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_av(&w, 0x11111111, qb.qpn, SM_LID, NULL);
	rig_wqe_data(&w, a.mem, SM_MTU_BYTES + 1, a.key);
	post(&w);
}

static void
no_opcode(void)
{
	struct rig_wqe w;

	begin(&w, 0x1f);
	post(&w);
}

static void
read_on_uc(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_RDMA_READ);
	rig_wqe_raddr(&w, b.mem, b.key);
	rig_wqe_data(&w, a.mem, 8, a.key);
	post(&w);
}

static void
send_unregistered(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, 8, a.key + 1);
	post(&w);
}

static void
read_some(void)
{
	read_on_uc();
}

static void
receive_too_short(void)
{
	send_len(64, 63, b.key);
}

static void
receive_unregistered(void)
{
	send_len(64, 64, b.key + 1);
}

static void
write_imm_with_wrong_key(void)
{
	write_imm(b.key + 1);
}

static void
read_with_wrong_key(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_RDMA_READ);
	rig_wqe_raddr(&w, b.mem, b.key + 1);
	rig_wqe_data(&w, a.mem, 8, a.key);
	post(&w);
}

static void
nothing_posted_there(void)
{
	struct rig_wqe w;

	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, 8, a.key);
	post(&w);
}

static void
peer_in_reset(void)
{
	rig_set_state(&qb, SM_QPS_RESET);
	nothing_posted_there();
}

static void
to_error_with_work(void)
{
	struct rig_wqe w;

	rig_recv(&qa, a.mem, 8, a.key);
	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, 8, a.key);
	rig_queue(&qa, &w);
	rig_set_state(&qa, SM_QPS_ERR);
	rig_ring(&qa);
}

static void
receiver_to_error(void)
{
	rig_recv(&qb, b.mem, 8, b.key);
	rig_set_state(&qb, SM_QPS_ERR);
}

static void
overrun_there(void)
{
	for (int i = 0; i < 5; i++)
		good();
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
	post(&w);
}

/* The receiver's queue is one of shared receives, and goes below its limit. */
static void
below_the_limit(void)
{
	struct rig_wqe w;

	assert_int_equal(sm_srq_limit(b.nic, srq.srq, 2), 0);
	rig_srq_recv(&srq, 0, 1, b.mem, 64, b.key);
	rig_srq_recv(&srq, 1, 2, b.mem, 64, b.key);
	begin(&w, MLX5_OPCODE_SEND);
	rig_wqe_data(&w, a.mem, 8, a.key);
	post(&w);
}

static void
receiver_with_srq_to_error(void)
{
	rig_set_state(&qb, SM_QPS_ERR);
}

#define RTS SM_QPS_RTS
#define ERR SM_QPS_ERR

static const struct row rows[] = {
	{"nothing wrong", good, {0}, 0, 0, {RTS, RTS}, {-1, -1}},
	{"a message beyond 1 GiB", send_too_long_for_anyone, {0}, 0x01, NONE, {ERR, RTS}, {-1, -1}},
	{"an atomic of 16 bytes", atomic_of_16_bytes, {0}, 0x01, NONE, {ERR, RTS}, {-1, -1}},
	{"a datagram beyond the MTU", datagram_beyond_mtu, {0}, 0x01, NONE, {ERR, RTS}, {-1, -1},
		.type = SM_QPT_UD},
	{"an opcode that is none", no_opcode, {0}, 0x02, NONE, {ERR, RTS}, {-1, -1}},
	{"a READ on UC", read_on_uc, {0}, 0x02, NONE, {ERR, RTS}, {-1, -1}, .type = SM_QPT_UC},
	{"a SEND from unregistered memory", send_unregistered, {0}, 0x04, NONE, {ERR, RTS},
		{-1, -1}},
	{"a WQE that the card refuses", good, {"prot=1"}, 0x04, NONE, {ERR, RTS}, {-1, -1}},
	{"ERR with work on both queues", to_error_with_work, {0}, 0x05, NONE, {ERR, RTS}, {-1, -1}},
	{"ERR with a receive posted", receiver_to_error, {0}, NONE, 0x05, {RTS, ERR}, {-1, -1}},
	{"a window on a region without that right", bind_where_none_may, {0}, 0x06, NONE,
		{ERR, RTS}, {-1, -1}},
	{"a response that is none", read_some, {"badresp=1"}, 0x10, NONE, {ERR, RTS}, {-1, -1}},
	{"WRITE_IMM with a wrong key", write_imm_with_wrong_key, {0}, 0x13, 0x11, {ERR, ERR},
		{-1, SM_EVENT_QP_ACCESS_ERR}},
	{"READ with a wrong key", read_with_wrong_key, {0}, 0x13, NONE, {ERR, ERR},
		{-1, SM_EVENT_QP_ACCESS_ERR}},
	{"a receive that is too short", receive_too_short, {0}, 0x12, 0x01, {ERR, ERR},
		{-1, SM_EVENT_QP_REQ_ERR}},
	{"an atomic at an odd address", atomic_at_odd_address, {0}, 0x12, NONE, {ERR, ERR},
		{-1, SM_EVENT_QP_REQ_ERR}},
	{"a request that the card refuses", good, {NULL, "inval=1"}, 0x12, 0x05, {ERR, ERR},
		{-1, SM_EVENT_QP_REQ_ERR}},
	{"a receive into unregistered memory", receive_unregistered, {0}, 0x14, 0x04, {ERR, ERR},
		{-1, -1}},
	{"a receiver that fails", good, {NULL, "op=1"}, 0x14, 0x05, {ERR, ERR}, {-1, -1}},
	{"the receiver's completion queue overruns", overrun_there, {0}, 0, 0, {ERR, ERR},
		{-1, SM_EVENT_CQ_ERR}, .ncqe_b = 4},
	{"the peer is in RESET", peer_in_reset, {0}, 0x15, NONE, {ERR, SM_QPS_RESET}, {-1, -1}},
	{"nothing arrives", good, {"", "drop=1"}, 0x15, NONE, {ERR, RTS}, {-1, -1}},
	{"no receive is posted", nothing_posted_there, {0}, 0x16, NONE, {ERR, RTS}, {-1, -1}},
	{"no receive is ever seen", good, {"", "rnr=1"}, 0x16, NONE, {ERR, RTS}, {-1, -1}},
	{"an error inside the card", card_fails, {0}, NONE, NONE, {ERR, RTS},
		{SM_EVENT_QP_FATAL, -1}},
	{"shared receives run low", below_the_limit, {0}, 0, 0, {RTS, RTS},
		{-1, SM_EVENT_SRQ_LIMIT_REACHED}, .with_srq = true},
	{"ERR with shared receives", receiver_with_srq_to_error, {0}, NONE, NONE, {RTS, ERR},
		{-1, SM_EVENT_QP_LAST_WQE_REACHED}, .with_srq = true},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- the bench ---- */

static void
open_all(const struct row *r)
{
	struct rig_qp_conf conf = {.type = r->type}, conf_b = {.type = r->type, .ncqe = r->ncqe_b};
	const char *net = rig_net();

	rig_host_open(&a, net, 1 << 20);
	rig_host_open(&b, net, 1 << 20);
	if (r->with_srq) {
		rig_srq_open(&b, &srq, 8, 5);
		conf_b.srq = &srq;
	}
	rig_qp_open(&a, &qa, &conf);
	rig_qp_open(&b, &qb, &conf_b);
	if (r->type == SM_QPT_UD) {
		rig_ready(&qa, 0x11111111);
		rig_ready(&qb, 0x11111111);
	} else {
		rig_connect(&qa, &qb);
	}
	if (r->faults[0] != NULL || r->faults[1] != NULL) {
		assert_int_equal(
			sm_nic_faults(a.nic, r->faults[0] != NULL ? r->faults[0] : ""), 0);
		assert_int_equal(
			sm_nic_faults(b.nic, r->faults[1] != NULL ? r->faults[1] : ""), 0);
	}
}

static void
close_all(const struct row *r)
{
	rig_link_close(&qa, &qb);
	if (mw != NULL)
		assert_int_equal(sm_mw_destroy(a.nic, mw), 0);
	mw = NULL;
	if (r->with_srq)
		rig_srq_close(&b, &srq);
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
	r->cause();
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

static void
every_cause_has_its_syndromes(void **state)
{
	static const uint8_t all[] = {0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14,
		0x15, 0x16};
	static const uint8_t all_events[] = {SM_EVENT_CQ_ERR, SM_EVENT_QP_FATAL,
		SM_EVENT_QP_REQ_ERR, SM_EVENT_QP_ACCESS_ERR, SM_EVENT_QP_LAST_WQE_REACHED,
		SM_EVENT_SRQ_LIMIT_REACHED};
	uint32_t syndromes = 0, events = 0;

	for (uint32_t i = 0; i < ROWS; i++)
		run_row(&rows[i], &syndromes, &events);
	for (uint32_t i = 0; i < sizeof(all); i++)
		if ((syndromes & 1u << all[i]) == 0)
			fail_msg("no row raises syndrome 0x%x", all[i]);
	for (uint32_t i = 0; i < sizeof(all_events); i++)
		if ((events & 1u << all_events[i]) == 0)
			fail_msg("no row raises event %u", all_events[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_cause_has_its_syndromes)};

	return cmocka_run_group_tests_name("soft_mlx5 syndromes", tests, NULL, NULL);
}
