/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large payloads past the rings: every byte where it belongs and none beside it, and no memory read
 * that is the program's again.
 *
 *     test_engine_direct [seed]
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "test.h"
#include "crpc_atomic.h"
#include "engine/qp.h"
#include "engine_rig.h"
#include "rnd.h"

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
#define FROM 16384u
#define MEM (8u << 20)
#define GUARD 64u
#define DST (4u << 20) /* Where things land in either memory. */

static uint64_t seed;
static struct rig_host a, b;
static struct rig_qp qa, qb;

static void
fill(uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)rnd(&seed);
}

static void
pair_connect(void)
{
	/* Room for a receive WQE of four segments. */
	struct rig_qp_conf conf = {.rq_shift = 6};

	rig_link_open(&a, &qa, &b, &qb, &conf);
	rig_run(&a, &b); /* Rings are mapped, and say how. */
}

static int
pair_open(void **state)
{
	const char *net = rig_net();

	rig_direct = FROM;
	rig_host_open(&a, net, MEM);
	rig_host_open(&b, net, MEM);
	fill(a.mem, DST);
	pair_connect();
	return 0;
}

static int
pair_close(void **state)
{
	rig_pair_close(&qa, &qb);
	rig_direct = 0;
	return 0;
}

/* No reference of @h is open: none would be read any more. */
static void
nothing_open(struct rig_host *h)
{
	struct sm_peer *p;

	TAILQ_FOREACH(p, &h->nic->peers, link)
		for (uint32_t i = 0; p->tx.grants != NULL && i < SM_GRANTS; i++)
			if (crpc_load_acquire(&p->tx.grants->grant[i].state) != 0)
				assert_true(p->tx.ring->pulled == p->tx.refs);
}

static void
write_wqe(struct rig_wqe *w, uint8_t op, uint8_t *dst, uint32_t rkey)
{
	rig_wqe(w, op, SIGNALED, 0x1234);
	if (op != MLX5_OPCODE_SEND && op != MLX5_OPCODE_SEND_IMM)
		rig_wqe_raddr(w, dst, rkey);
}

/* @len bytes from @src in @n segments of random lengths. */
static void
add_segs(struct rig_wqe *w, const uint8_t *src, uint32_t len, uint32_t n, uint32_t key)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t part = i == n - 1 ? len : (uint32_t)(rnd(&seed) % (len + 1));

		rig_wqe_data(w, src, part, key);
		src += part;
		len -= part;
	}
}

static void
guards_set(uint8_t *dst, uint32_t len)
{
	memset(dst - GUARD, 0x5a, len + 2 * GUARD);
}

static void
guards_check(const uint8_t *dst, uint32_t len)
{
	for (uint32_t i = 0; i < GUARD; i++)
		assert_true(dst[-1 - (int)i] == 0x5a && dst[len + i] == 0x5a);
}

/* One message of @op with @len bytes in @segs segments, checked to the byte. */
static void
one(uint8_t op, uint32_t len, uint32_t segs)
{
	struct rig_host *dst_host = op == MLX5_OPCODE_RDMA_READ ? &a : &b;
	struct rig_host *src_host = op == MLX5_OPCODE_RDMA_READ ? &b : &a;
	uint8_t *src = src_host->mem + rnd(&seed) % 4096,
		*dst = dst_host->mem + DST + GUARD + rnd(&seed) % 128;
	struct mlx5_cqe64 *c;
	struct rig_wqe w;

	memmove(src, a.mem + 4096, len < 4096 ? len : 4096); /* Some other bytes each time. */
	guards_set(dst, len);
	if (op == MLX5_OPCODE_SEND_IMM)
		rig_recv(&qb, dst, len, b.key);
	else if (op == MLX5_OPCODE_RDMA_WRITE_IMM)
		rig_recv(&qb, NULL, 0, 0);
	write_wqe(&w, op, op == MLX5_OPCODE_RDMA_READ ? src : dst, b.key);
	add_segs(&w, op == MLX5_OPCODE_RDMA_READ ? dst : src, len, segs, a.key);
	rig_post(&qa, &w);
	c = rig_expect(&a, &b, &qa.scq);
	assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
	assert_memory_equal(dst, src, len);
	guards_check(dst, len);
	if (op == MLX5_OPCODE_SEND_IMM || op == MLX5_OPCODE_RDMA_WRITE_IMM) {
		c = rig_poll(&qb.rcq);
		assert_non_null(c);
		assert_int_equal(be32toh(c->byte_cnt), len);
		assert_int_equal(be32toh(c->imm_inval_pkey), 0x1234);
	}
	nothing_open(src_host);
}

static const uint8_t all_ops[] = {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
	MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_RDMA_READ};

/* Around every bound of a length, in one piece of memory and in several, at odd addresses. */
TEST_FIXTURE(edges, pair_open, pair_close)
{
	static const uint32_t lens[] = {1, FROM - 1, FROM, FROM + 1, SM_DIRECT_PIECE - 1,
		SM_DIRECT_PIECE, SM_DIRECT_PIECE + 1, SM_DIRECT_PIECE + FROM - 1,
		SM_DIRECT_PIECE + FROM, 5 * SM_DIRECT_PIECE + 4097};
	static const uint32_t segs[] = {1, 2, 4, 20};

	print_message("seed %llu\n", (unsigned long long)seed);
	for (uint32_t o = 0; o < sizeof(all_ops); o++)
		for (uint32_t i = 0; i < CRPC_DIM(lens); i++)
			for (uint32_t s = 0; s < CRPC_DIM(segs); s++) {
				uint64_t was =
					b.nic->direct.received_bytes + a.nic->direct.received_bytes;

				one(all_ops[o], lens[i], segs[s]);
				was = b.nic->direct.received_bytes +
					a.nic->direct.received_bytes - was;
				if (lens[i] < FROM)
					assert_int_equal(was, 0);
				else if (segs[s] == 1) /* A short rest goes through the ring. */
					assert_in_range(was, lens[i] - FROM + 1, lens[i]);
			}
}

/* A receive of many segments, more than one copy fills. */
TEST_FIXTURE(many_places, pair_open, pair_close)
{
	enum { N = 40, LEN = 9000 };
	struct rig_qp_conf conf = {.rq_shift = 10, .rq_nwqe = 4};
	struct mlx5_wqe_data_seg *d;

	rig_link_close(&qa, &qb);
	rig_qp_open(&a, &qa, NULL);
	rig_qp_open(&b, &qb, &conf);
	rig_connect(&qa, &qb);
	d = (void *)qb.rq;
	for (uint32_t i = 0; i < N; i++)
		d[i] = (struct mlx5_wqe_data_seg){htobe32(LEN), htobe32(b.key),
			htobe64((uintptr_t)b.mem + (uint64_t)(N - 1 - i) * LEN)};
	d[N] = (struct mlx5_wqe_data_seg){0, htobe32(MLX5_INVALID_LKEY), 0};
	crpc_store_release((_Atomic uint32_t *)&qb.dbrec[0], htobe32(1));
	rig_send(&qa, MLX5_OPCODE_SEND, 0, a.mem, N * LEN);
	assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	for (uint32_t i = 0; i < N; i++)
		assert_memory_equal(
			b.mem + (size_t)(N - 1 - i) * LEN, a.mem + (size_t)i * LEN, LEN);
	assert_true(b.nic->direct.received_bytes > 0);
}

/* Both queue pairs in one context. */
TEST_FIXTURE(alone, pair_open, pair_close)
{
	struct rig_qp x, y;

	rig_link_open(&a, &x, &a, &y, NULL);
	rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE, 0, a.mem + DST, a.key, a.mem + 3, 3u << 20);
	assert_int_equal(rig_expect(&a, NULL, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	assert_memory_equal(a.mem + DST, a.mem + 3, 3u << 20);
	assert_int_equal(a.nic->direct.received_bytes, 3u << 20);
	rig_link_close(&x, &y);
}

/* A pass copies a bounded amount, and a short message of another queue pair overtakes. */
TEST_FIXTURE(bounded_pass, pair_open, pair_close)
{
	struct rig_qp x, y;
	uint64_t was;

	rig_link_open(&a, &x, &b, &y, NULL);
	for (uint32_t i = 0; i < 16; i++)
		rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + DST, b.key, a.mem, 2u << 20);
	sm_nic_progress(a.nic, rig_now);
	rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 8);
	for (uint32_t i = 0; rig_poll(&x.scq) == NULL; i++) {
		sm_nic_progress(a.nic, rig_now);
		was = b.nic->direct.received_bytes;
		sm_nic_progress(b.nic, rig_now);
		assert_true(b.nic->direct.received_bytes - was < 2 * SM_DIRECT_PIECE);
		assert_true(i < 16); /* Not behind 32 MiB. */
	}
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_link_close(&x, &y);
}

/* What a card would have done is the same on either way. */
TEST_FIXTURE(same_ledger, pair_open, pair_close)
{
	static const uint32_t lens[] = {FROM, 100000, SM_DIRECT_PIECE + 5, 1u << 20};
	struct soft_mlx5_ledger l[2][2];

	for (uint32_t way = 0; way < 2; way++) {
		uint64_t s = seed;

		for (uint32_t o = 0; o < sizeof(all_ops); o++)
			for (uint32_t i = 0; i < CRPC_DIM(lens); i++)
				one(all_ops[o], lens[i], 1 + i % 3);
		rig_run(&a, &b);
		assert_int_equal(sm_nic_ledger(a.nic, 0, &l[way][0]), 0);
		assert_int_equal(sm_nic_ledger(b.nic, 0, &l[way][1]), 0);
		assert_int_equal(a.nic->direct.sent == 0, way == 1);
		pair_close(state);
		pair_open(state);
		if (way == 0)
			sm_direct_off(a.nic), sm_direct_off(b.nic);
		seed = s;
	}
	assert_memory_equal(l[0], l[1], sizeof(l[0]));
}

/* Refused by key or by bounds: the requester learns it, and nothing is copied. */
TEST_FIXTURE(refused, pair_open, pair_close)
{
	for (uint32_t i = 0; i < 3; i++) {
		bool read = i == 2;

		memset(b.mem, 7, 4u << 20);
		rig_rdma(&qa, read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE, 0,
			i == 1 ? b.mem + MEM - FROM : b.mem, i == 1 ? b.key : b.key + 1, a.mem,
			4u << 20);
		assert_int_equal(RIG_SYND(rig_expect(&a, &b, &qa.scq)),
			MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
		for (uint32_t k = 0; k < 4u << 20; k++)
			if (b.mem[k] != 7)
				fail_msg("byte %u was written", k);
		assert_int_equal(b.nic->direct.received_bytes, 0);
		rig_run(&a, &b);
		nothing_open(&a);
		rig_link_close(&qa, &qb);
		pair_connect();
	}
}

/* Memory of its own, so that it can go. */
static uint8_t *
source(struct rig_host *h, uint32_t len, struct sm_mr **mr, uint32_t *key)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	memset(p, 0x33, len);
	*mr = rig_mr_open(h, h->pd, p, len, 15, key);
	return p;
}

/*
 * The source's region goes between post and copy, and its memory with it: of a WRITE, before which
 * another one comes from memory that is not concerned, and of what a READ asks for.
 */
TEST_FIXTURE(source_gone, pair_open, pair_close)
{
	enum { LEN = 1 << 20 };

	for (uint32_t read = 0; read < 2; read++) {
		struct rig_host *own = read ? &b : &a; /* Of the source. */
		struct sm_mr *mr;
		struct rig_wqe w;
		uint32_t key;
		uint8_t *p = source(own, LEN, &mr, &key);

		if (read) {
			rig_rdma(&qa, MLX5_OPCODE_RDMA_READ, 0, p, key, a.mem + DST, LEN);
			sm_nic_progress(a.nic, rig_now);
		} else {
			rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + DST, b.key, a.mem,
				SM_DIRECT_PIECE);
			rig_wqe_rdma(&w, MLX5_OPCODE_RDMA_WRITE, b.mem, b.key, p, LEN, key);
			rig_post(&qa, &w);
		}
		for (uint32_t i = 0; i < 4; i++)
			sm_nic_progress(own->nic, rig_now);
		assert_true(own->nic->direct.sent > 1);
		assert_int_equal(sm_destroy(own->nic, mr), 0);
		munmap(p, LEN);
		if (!read) {
			assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
			assert_memory_equal(b.mem + DST, a.mem, SM_DIRECT_PIECE);
		}
		assert_int_equal(RIG_SYND(rig_expect(&a, &b, &qa.scq)),
			read ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
			     : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
		assert_int_equal(b.nic->direct.withdrawn, read ? 0 : 1);
		pair_close(state);
		pair_open(state);
	}
}

/* Faults begin while references are under way: they arrive, and what follows goes by the ring. */
TEST_FIXTURE(faults_begin, pair_open, pair_close)
{
	uint64_t sent;

	for (uint32_t i = 0; i < 4; i++)
		rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, b.mem + DST, b.key, a.mem, 1u << 20);
	sm_nic_progress(a.nic, rig_now);
	sent = a.nic->direct.sent;
	assert_true(sent != 0);
	assert_int_equal(sm_nic_faults(b.nic, "seed=5,dup=0.05,reorder=0.05"), 0);
	assert_int_equal(sm_nic_faults(a.nic, ""), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	assert_memory_equal(b.mem + DST, a.mem, 1u << 20);
	assert_int_equal(a.nic->direct.sent, sent);
}

/* ---- threads ---- */

static _Atomic uint32_t stop;

static void *
drive(void *arg)
{
	struct rig_host *h = arg;

	while (crpc_load_acquire(&stop) == 0)
		if (sm_nic_progress(h->nic, 1) == 0)
			sched_yield();
	return NULL;
}

/* Copies of every kind move each byte and none beside it. */
TEST(copies)
{
	enum { N = 3000, MOST = 300000 };
	static void (*const copy[])(void *dst, const void *src, uint32_t n) = {
		sm_copy, sm_copy_any, sm_copy_far};
	uint8_t *src = malloc(MOST + 64), *dst = malloc(MOST + 64 + 2 * GUARD);

	fill(src, MOST + 64);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t len = (uint32_t)(rnd(&seed) % (i % 16 == 0 ? MOST : 700));
		uint8_t *to = dst + GUARD + rnd(&seed) % 64, *from = src + rnd(&seed) % 64;

		guards_set(to, len);
		copy[i % CRPC_DIM(copy)](to, from, len);
		assert_memory_equal(to, from, len);
		guards_check(to, len);
	}
	free(src);
	free(dst);
}

/* The three ways in which a queue pair's memory becomes the program's again at once. */
static void
leave(struct rig_qp *q, uint32_t how)
{
	if (how == 0)
		rig_set_state(q, IBV_QPS_ERR);
	else if (how == 1)
		rig_set_state(q, IBV_QPS_RESET);
	else
		rig_qp_close(q);
}

/*
 * A queue pair goes, in each way, while a thread copies from its memory; then the memory goes. A
 * byte read too late is a crash. WRITEs, and READs, whose source is the peer's.
 */
TEST_FIXTURE(gone_in_the_middle, pair_open, pair_close)
{
	enum { LEN = 1 << 20, ROUNDS = 48 };
	pthread_t thread;
	struct timespec ts;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		bool read = round % 2 == 1;
		struct rig_host *own = read ? &b : &a; /* Of the source. */
		struct sm_mr *mr;
		struct rig_wqe w;
		uint32_t key, how = round / 2 % 3;
		uint8_t *p = source(own, LEN, &mr, &key);

		rig_wqe_rdma(&w, read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE,
			read ? p : b.mem, read ? key : b.key, read ? a.mem : p, LEN,
			read ? a.key : key);
		crpc_store_release(&stop, 0);
		assert_int_equal(pthread_create(&thread, NULL, drive, read ? &a : &b), 0);
		rig_post(&qa, &w);
		ts = (struct timespec){.tv_nsec = (long)(rnd(&seed) % 200000)};
		for (uint32_t i = 0, n = (uint32_t)(rnd(&seed) % 20); i < n; i++)
			sm_nic_progress(own->nic, 1);
		nanosleep(&ts, NULL);
		leave(read ? &qb : &qa, how);
		memset(p, 0x77, LEN);
		munmap(p, LEN);
		assert_int_equal(sm_destroy(own->nic, mr), 0);
		for (uint32_t i = 0; i < 20; i++)
			sm_nic_progress(own->nic, 1);
		crpc_store_release(&stop, 1);
		pthread_join(thread, NULL);
		for (uint32_t i = 0; i < 20; i++) /* It finds what is left. */
			sm_nic_progress(read ? a.nic : b.nic, 1);
		if (how != 2)
			rig_qp_close(read ? &qb : &qa);
		rig_qp_close(read ? &qa : &qb);
		pair_connect();
	}
	print_message("%llu references withdrawn in time\n", (unsigned long long)
		(a.nic->direct.withdrawn + b.nic->direct.withdrawn));
}

/* A stream with a thread on each side: bytes are seen as their doorbells order them. */
TEST_FIXTURE(two_threads, pair_open, pair_close)
{
	enum { LEN = 256 << 10, N = 200 };
	pthread_t thread;

	crpc_store_release(&stop, 0);
	assert_int_equal(pthread_create(&thread, NULL, drive, &b), 0);
	for (uint32_t i = 0; i < N; i++) {
		uint8_t *src = a.mem + (i % 4) * LEN;

		if (i >= 4) /* Its buffer was used. */
			assert_int_equal(rig_expect(&a, NULL, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		memset(src, (int)i, LEN);
		rig_recv(&qb, NULL, 0, 0);
		rig_rdma(
			&qa, MLX5_OPCODE_RDMA_WRITE_IMM, i, b.mem + (i % 8) * LEN, b.key, src, LEN);
		for (struct mlx5_cqe64 *c; (c = rig_poll(&qb.rcq)) != NULL;) {
			uint32_t k = be32toh(c->imm_inval_pkey);

			assert_true(b.mem[(k % 8) * LEN] == (uint8_t)k &&
				b.mem[(k % 8) * LEN + LEN - 1] == (uint8_t)k);
		}
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_expect(&a, NULL, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	crpc_store_release(&stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(b.nic->direct.received_bytes, (uint64_t)N * LEN);
}

/* ---- hostile peers ---- */

/* References that the engine would not write, from a writer without grants: the peer is cut off. */
TEST(hostile_references)
{
	const char *net = rig_net();
	struct sm_pkt_room room;
	struct sm_wire *wire;
	struct rig_host h;
	uint32_t slot;

	print_message("seed %llu\n", (unsigned long long)seed);
	rig_direct = FROM;
	rig_host_open(&h, net, MEM);
	for (uint32_t round = 0; round < 200; round++) {
		struct sm_tx tx = {.limit = SM_RING_BYTES};
		struct rig_qp q;

		assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
		rig_qp_open(&h, &q, NULL);
		assert_int_equal(sm_wire_ring_create(wire, q.qpn >> 16,
			sm_wire_gen(wire, q.qpn >> 16), rnd(&seed) | 1, &tx.ring), 0);
		rig_to_rts(&q, slot << 16 | 0x2345);
		rig_recv(&q, h.mem, MEM / 2, h.key);
		for (uint32_t i = 0; i < 8; i++) {
			struct sm_hdr hdr = {.dst = q.qpn, .src = slot << 16 | 0x2345,
				.psn = 0xfffff0, .raddr = (uintptr_t)h.mem, .rkey = h.key};
			struct sm_ref ref = {.state = rnd(&seed), .len = rnd(&seed) % 70000};
			uint32_t bytes = i % 2 == 0 ? (uint32_t)sizeof(ref)
						    : (uint32_t)(rnd(&seed) % sizeof(ref));

			hdr.imm = (uint32_t)ref.len;
			if (!sm_tx_room(&tx, bytes, 0, &room))
				break;
			memcpy(room.payload, &ref, bytes);
			sm_tx_commit(&tx, &room, &hdr, bytes,
				(enum sm_pkt_type)(SM_PKT_SEND_REF + rnd(&seed) % 3),
				(uint32_t)rnd(&seed) % 8);
			sm_nic_progress(h.nic, rig_now += 1000);
			assert_null(rig_poll(&q.rcq));
		}
		sm_nic_progress(h.nic, rig_now += 1000);
		rig_qp_close(&q);
		sm_wire_ring_free(tx.ring);
		sm_wire_close(wire);
		sm_nic_progress(h.nic, rig_now += 100000000);
	}
	assert_int_equal(h.nic->direct.received_bytes, 0);
	rig_host_close(&h);
	rig_direct = 0;
}

int
main(int argc, char **argv)
{
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) | 1 : rnd_seed() | 1;
	return test_run(NULL, NULL);
}
