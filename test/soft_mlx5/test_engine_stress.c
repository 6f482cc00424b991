/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random work on several queue pairs against a model of memory: every byte, every immediate, every
 * completion, in order. Stepped by a seeded scheduler, between two contexts and within one; with a
 * thread per context; with a thread that drives both contexts while another one posts and polls.
 *
 *     test_engine_stress [seed]
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "test.h"
#include "crpc_atomic.h"
#include "engine/qp.h"
#include "engine_rig.h"
#include "rnd.h"

#define PAIRS 4u
#define OPS 3000u          /* Per queue pair. */
#define SRC (256u << 10)   /* Random bytes that are never written; READs and data come from here. */
#define WINDOW (128u << 10) /* Per queue pair: WRITEs land here. */
#define RECV_N 16u
#define RECV_BYTES 20000u
#define LAND_N 32u /* Places where READs put what they brought. */
#define LAND_BYTES 20000u
#define SEND_DEPTH 24u

struct expect {
	uint8_t op;
	uint32_t imm, len, from; /* Bytes at SRC + from. */
	uint32_t land;
	uint64_t old; /* What the fetch-and-add brings. */
	bool signaled;
};

/* One direction of one pair: we post on `q`, the peer receives. */
struct flow {
	struct rig_qp q;
	struct rig_host *own, *far;
	struct flow *peer;
	uint64_t rnd;
	uint8_t *window; /* In far memory. */
	uint8_t *model;  /* What the window must hold in the end. */
	uint64_t *counter; /* In far memory; only this flow adds. */
	uint64_t added;
	uint8_t *land, *recv; /* In own memory. */
	uint32_t posted, done, received, recv_posted;
	struct expect sent[64];
	struct expect want[OPS];  /* What the peer must receive. */
	_Atomic uint32_t wants;   /* Their number; released before the doorbell. */
};

static uint32_t
some_len(uint64_t *s)
{
	switch (rnd(s) % 8) {
	case 0:
		return 0;
	case 1:
		return (uint32_t)(rnd(s) % LAND_BYTES);
	case 2:
		return 8192 + (uint32_t)(rnd(s) % 3) - 1;
	default:
		return (uint32_t)(rnd(s) % 200);
	}
}

/* Gather @len bytes of our SRC from @from, in pieces. */
static void
add_data(struct rig_wqe *w, struct flow *f, uint32_t from, uint32_t len)
{
	for (uint32_t i = 0; i < 4 && len != 0; i++) {
		uint32_t part = i == 3 ? len : (uint32_t)(rnd(&f->rnd) % (len + 1));

		if (part <= 60 && rnd(&f->rnd) % 2 == 0)
			rig_wqe_inline(w, f->own->mem + from, part);
		else
			rig_wqe_data(w, f->own->mem + from, part, f->own->key);
		from += part;
		len -= part;
	}
}

static void
flow_post(struct flow *f)
{
	static const uint8_t ops[] = {MLX5_OPCODE_NOP, MLX5_OPCODE_RDMA_WRITE,
		MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM,
		MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA};
	struct expect *e = &f->sent[f->posted % 64];
	uint32_t at = (uint32_t)(rnd(&f->rnd) % (WINDOW - LAND_BYTES));
	struct rig_wqe w;

	*e = (struct expect){
		.op = ops[rnd(&f->rnd) % sizeof(ops)],
		.imm = (uint32_t)rnd(&f->rnd),
		.len = some_len(&f->rnd),
		.from = (uint32_t)(rnd(&f->rnd) % (SRC - LAND_BYTES)),
		.land = f->posted % LAND_N,
		.signaled = true, /* So that the scheduler's accounts are exact. */
	};
	rig_wqe(&w, e->op, MLX5_WQE_CTRL_CQ_UPDATE, e->imm);
	switch (e->op) {
	case MLX5_OPCODE_NOP:
		break;
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		rig_wqe_raddr(&w, f->window + at, f->far->key);
		add_data(&w, f, e->from, e->len);
		memcpy(f->model + at, f->own->mem + e->from, e->len);
		break;
	case MLX5_OPCODE_RDMA_READ:
		rig_wqe_raddr(&w, f->far->mem + e->from, f->far->key);
		rig_wqe_data(&w, f->land + e->land * LAND_BYTES, e->len / 3, f->own->key);
		rig_wqe_data(&w, f->land + e->land * LAND_BYTES + e->len / 3, e->len - e->len / 3,
			f->own->key);
		break;
	case MLX5_OPCODE_ATOMIC_FA:
		e->len = 8;
		e->old = f->added;
		f->added += e->imm;
		rig_wqe_raddr(&w, f->counter, f->far->key);
		rig_wqe_atomic(&w, e->imm, 0);
		rig_wqe_data(&w, f->land + e->land * LAND_BYTES, 8, f->own->key);
		break;
	default:
		add_data(&w, f, e->from, e->len);
		break;
	}
	if (e->op == MLX5_OPCODE_RDMA_WRITE_IMM || e->op == MLX5_OPCODE_SEND ||
		e->op == MLX5_OPCODE_SEND_IMM) {
		uint32_t n = crpc_load_relaxed(&f->wants);

		f->want[n] = *e;
		crpc_store_release(&f->wants, n + 1);
	}
	f->posted++;
	rig_queue(&f->q, &w);
	if (rnd(&f->rnd) % 4 != 0 || f->posted == OPS)
		rig_ring(&f->q);
}

static bool
flow_completed(struct flow *f)
{
	struct mlx5_cqe64 *c = rig_poll(&f->q.scq);
	const struct expect *e = &f->sent[f->done % 64];
	uint8_t *land = f->land + e->land * LAND_BYTES;

	if (c == NULL)
		return false;
	assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
	assert_int_equal(be32toh(c->sop_drop_qpn) >> 24, e->op);
	if (e->op == MLX5_OPCODE_RDMA_READ)
		assert_memory_equal(land, f->far->mem + e->from, e->len);
	if (e->op == MLX5_OPCODE_ATOMIC_FA)
		assert_memory_equal(land, &e->old, 8);
	f->done++;
	return true;
}

/* What came to us from the peer's flow. */
static bool
flow_received(struct flow *f)
{
	struct mlx5_cqe64 *c = rig_poll(&f->q.rcq);
	const struct expect *e = &f->peer->want[f->received];
	const uint8_t *buf = f->recv + f->received % RECV_N * RECV_BYTES;

	if (c == NULL)
		return false;
	assert_in_range(f->received, 0, crpc_load_acquire(&f->peer->wants) - 1);
	assert_int_equal(c->op_own >> 4,
		e->op == MLX5_OPCODE_SEND         ? MLX5_CQE_RESP_SEND
			: e->op == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM
							: MLX5_CQE_RESP_WR_IMM);
	assert_int_equal(be32toh(c->byte_cnt), e->len);
	assert_int_equal(be16toh(c->wqe_counter), f->received & 0xffff);
	if (e->op != MLX5_OPCODE_SEND)
		assert_int_equal(be32toh(c->imm_inval_pkey), e->imm);
	if (e->op != MLX5_OPCODE_RDMA_WRITE_IMM)
		assert_memory_equal(buf, f->far->mem + e->from, e->len);
	f->received++;
	return true;
}

static void
flow_recv_post(struct flow *f)
{
	rig_recv(&f->q, f->recv + f->recv_posted % RECV_N * RECV_BYTES, RECV_BYTES, f->own->key);
	f->recv_posted++;
}

/* A random thing that this side's program could do now. */
static void
flow_step(struct flow *f)
{
	uint64_t r = rnd(&f->rnd);

	if (r % 4 == 0 && f->recv_posted - f->received < RECV_N)
		flow_recv_post(f);
	if (r % 3 == 0 && f->posted < OPS && f->posted - f->done < SEND_DEPTH)
		flow_post(f);
	while (flow_completed(f))
		;
	while (flow_received(f))
		;
}

static struct rig_host host[2];
static struct flow flow[2][PAIRS];

/* Memory of a host: SRC, then for each pair its window, counter, landing places and receives. */
#define PAIR_BYTES (WINDOW + 64 + LAND_N * LAND_BYTES + RECV_N * RECV_BYTES)

static void
flow_open(struct flow *f, uint32_t side, uint32_t pair, uint64_t seed)
{
	struct rig_qp_conf conf = {.sq_nbb = 256, .rq_nwqe = RECV_N};
	uint8_t *own = host[side].mem + SRC + pair * PAIR_BYTES;
	uint8_t *far = host[1 - side].mem + SRC + pair * PAIR_BYTES;

	memset(f, 0, sizeof(*f));
	f->own = &host[side];
	f->far = &host[1 - side];
	f->peer = &flow[1 - side][pair];
	f->rnd = seed + side * 1000 + pair;
	f->window = far;
	f->counter = (void *)(far + WINDOW);
	f->land = own + WINDOW + 64;
	f->recv = f->land + LAND_N * LAND_BYTES;
	f->model = calloc(1, WINDOW);
	rig_qp_open(f->own, &f->q, &conf);
}

/* The other side is one more user of the same context: all goes through its ring to itself. */
static void
host_share(struct rig_host *h, const struct rig_host *with)
{
	*h = *with;
	h->mem = aligned_alloc(4096, crpc_align_up(h->bytes, 4096));
	assert_non_null(h->mem);
	memset(h->mem, 0, h->bytes);
	h->mr = rig_mr_open(h, h->pd, h->mem, h->bytes, 15, &h->key);
}

static void
open_all(uint64_t seed, bool share)
{
	const char *net = rig_net();
	struct ib_uverbs_modify_qp m;

	print_message("seed %lu\n", (unsigned long)seed);
	for (uint32_t i = 0; i < 2; i++) {
		if (i == 1 && share)
			host_share(&host[1], &host[0]);
		else
			rig_host_open(&host[i], net, SRC + PAIRS * PAIR_BYTES);
		for (uint32_t k = 0; k < SRC; k++)
			host[i].mem[k] = (uint8_t)rnd(&seed);
	}
	for (uint32_t p = 0; p < PAIRS; p++) {
		flow_open(&flow[0][p], 0, p, seed);
		flow_open(&flow[1][p], 1, p, seed);
		rig_connect(&flow[0][p].q, &flow[1][p].q);
		for (uint32_t i = 0; i < 2; i++) { /* Receives come late: wait for them for ever. */
			rig_set_state(&flow[i][p].q, IBV_QPS_RESET);
			rig_init_mod(&m);
			sm_qp_modify(host[i].nic, flow[i][p].q.qp, &m);
			rig_rtr_mod(&m, flow[1 - i][p].q.qpn);
			sm_qp_modify(host[i].nic, flow[i][p].q.qp, &m);
			rig_rts_mod(&m);
			m.rnr_retry = 7;
			assert_int_equal(sm_qp_modify(host[i].nic, flow[i][p].q.qp, &m), 0);
		}
	}
}

static bool
side_done(uint32_t side)
{
	for (uint32_t p = 0; p < PAIRS; p++) {
		const struct flow *f = &flow[side][p];

		if (f->done < OPS)
			return false;
	}
	return true;
}

static void
close_all(void)
{
	for (uint32_t p = 0; p < PAIRS; p++) /* A receive may have come after the last look. */
		for (uint32_t i = 0; i < 2; i++)
			while (flow_received(&flow[i][p]))
				;
	for (uint32_t p = 0; p < PAIRS; p++)
		for (uint32_t i = 0; i < 2; i++) {
			struct flow *f = &flow[i][p];

			assert_int_equal(f->received, crpc_load_acquire(&f->peer->wants));
			assert_memory_equal(f->window, f->model, WINDOW);
			assert_int_equal(*f->counter, f->added);
		}
	for (uint32_t p = 0; p < PAIRS; p++)
		for (uint32_t i = 0; i < 2; i++) {
			rig_qp_close(&flow[i][p].q);
			free(flow[i][p].model);
		}
	if (host[0].nic == host[1].nic) {
		assert_int_equal(sm_destroy(host[1].nic, host[1].mr), 0);
		free(host[1].mem);
	} else {
		rig_host_close(&host[1]);
	}
	rig_host_close(&host[0]);
}

static uint64_t test_seed;

static void
steps(bool share)
{
	uint64_t s = test_seed;

	open_all(test_seed, share);
	while (!side_done(0) || !side_done(1)) {
		uint64_t r = rnd(&s);

		if (r % 3 == 0)
			sm_nic_progress(host[r >> 8 & 1].nic, rig_now += r >> 32 & 0xfff);
		else
			flow_step(&flow[r >> 8 & 1][r >> 16 & (PAIRS - 1)]);
		assert_true(rig_now < UINT64_C(3000000000000));
	}
	close_all();
}

TEST(stepped)
{
	steps(false);
}

TEST(stepped_alone)
{
	steps(true);
}

static uint64_t
real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static _Atomic uint32_t finished;
static _Atomic uint32_t stop;

/* The program of one side, driving its own nic. */
static void *
side_run(void *arg)
{
	uint32_t side = (uint32_t)(uintptr_t)arg;
	bool counted = false;

	for (uint32_t i = 0; crpc_load_acquire(&finished) < 2; i++) {
		if (sm_nic_progress(host[side].nic, real_ns()) == 0)
			sched_yield();
		flow_step(&flow[side][i % PAIRS]);
		if (!counted && side_done(side)) {
			counted = true;
			atomic_fetch_add(&finished, 1);
		}
	}
	return NULL;
}

TEST(two_threads)
{
	pthread_t t[2];

	if (rig_udp) /* The clock is the real one here, and the rig's timeouts a millisecond. */
		skip();
	open_all(test_seed + 1, false);
	atomic_store(&finished, 0);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, side_run, (void *)i), 0);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	close_all();
}

static void *
drive_run(void *arg)
{
	while (crpc_load_acquire(&stop) == 0) {
		uint32_t n = sm_nic_progress(host[0].nic, real_ns());

		if (n + sm_nic_progress(host[1].nic, real_ns()) == 0)
			sched_yield();
	}
	return NULL;
}

TEST(helper_thread)
{
	uint64_t s = test_seed;
	pthread_t t;

	if (rig_udp) /* The clock is the real one here, and the rig's timeouts a millisecond. */
		skip();
	open_all(test_seed + 2, false);
	atomic_store(&stop, 0);
	assert_int_equal(pthread_create(&t, NULL, drive_run, NULL), 0);
	while (!side_done(0) || !side_done(1)) {
		uint64_t r = rnd(&s);

		if (r % 16 == 0)
			sched_yield();
		flow_step(&flow[r >> 8 & 1][r >> 16 & (PAIRS - 1)]);
	}
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	close_all();
}

static _Atomic uint32_t held;
static uint64_t holder_ns, poller_ns;

static uint64_t
own_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Works under the lock, as a helper does, and loses the core in between. */
static void *
hold_run(void *arg)
{
	uint64_t start;

	sm_lock(host[0].nic);
	crpc_store_release(&held, 1);
	start = own_cpu_ns();
	while (own_cpu_ns() - start < 60000000)
		;
	holder_ns = own_cpu_ns() - start;
	sm_unlock(host[0].nic);
	crpc_store_release(&held, 2);
	return NULL;
}

static void *
poll_run(void *arg)
{
	uint64_t start;

	while (crpc_load_acquire(&held) == 0)
		sched_yield();
	start = own_cpu_ns();
	while (crpc_load_acquire(&held) == 1)
		sm_nic_progress(host[0].nic, 1);
	poller_ns = own_cpu_ns() - start;
	return NULL;
}

/*
 * Who polls while a thread that holds the lock waits for the same core leaves it the core: else
 * nothing would move for time slices on end.
 */
TEST(lock_holder_gets_the_core)
{
	void *(*const run[2])(void *) = {hold_run, poll_run};
	cpu_set_t old, one;
	pthread_t t[2];
	int cpu = sched_getcpu();

	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	rig_host_open(&host[0], rig_net(), 4096);
	atomic_store(&held, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, run[i], NULL), 0);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	rig_host_close(&host[0]);
	assert_int_equal(sched_setaffinity(0, sizeof(old), &old), 0);
	print_message("holder %lu us, poller %lu us of the core\n",
		(unsigned long)holder_ns / 1000, (unsigned long)poller_ns / 1000);
	assert_true(poller_ns < holder_ns / 4);
}

int
main(int argc, char **argv)
{
	test_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : rnd_seed();
	return test_run(NULL, NULL);
}
