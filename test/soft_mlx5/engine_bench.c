/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast the engine moves 32-byte inline WRITE_IMMs, without rdma-core: what a direct-verbs
 * program does (build the WQE, doorbell record, UAR, poll CQEs by owner bit, drive the NIC).
 *
 *     engine_bench loop [batch]      two queue pairs of one context, one thread
 *     engine_bench proc [batch]      two processes, one core each
 *     engine_bench idle              an empty progress pass
 *     engine_bench count [batch]     COUNT messages between two contexts, one thread: for
 *                                    callgrind, whose figure for sm_nic_progress() is to be
 *                                    divided by COUNT
 */
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "engine_rig.h"

#define SIGNAL_EVERY 16u
#define SQ_NBB 256u
#define RQ_N 128u
#define COUNT 100000u

struct shared {
	_Atomic uint32_t qpn[2];
	_Atomic uint32_t ready;
	_Atomic uint32_t stop;
	uint64_t addr;
	uint32_t key;
};

static uint64_t sent, completed, received;

static void
post_one(struct rig_qp *q, uint64_t raddr, uint32_t rkey)
{
	uint8_t *p = q->sq + (size_t)(q->sq_pi & (q->sq_nbb - 1)) * 64;
	uint32_t *w = (void *)p;
	bool signaled = sent % SIGNAL_EVERY == SIGNAL_EVERY - 1;

	w[0] = htobe32((uint32_t)q->sq_pi << 8 | MLX5_OPCODE_RDMA_WRITE_IMM);
	w[1] = htobe32(q->qpn << 8 | 5);
	w[2] = htobe32(signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
	w[3] = (uint32_t)sent;
	*(uint64_t *)(void *)(p + 16) = htobe64(raddr);
	w[6] = htobe32(rkey);
	w[7] = 0;
	w[8] = htobe32(MLX5_INLINE_SEG | 32);
	/* 36 bytes of inline segment go into the next block. */
	memset(p + 36, (int)sent, 28);
	p = q->sq + (size_t)((q->sq_pi + 1) & (q->sq_nbb - 1)) * 64;
	*(uint32_t *)(void *)p = (uint32_t)sent;
	q->last = q->sq_pi;
	q->sq_pi += 2;
	sent++;
}

static inline bool
cq_next(struct rig_cq *c, uint8_t *op)
{
	uint8_t *slot = c->buf + (size_t)(c->ci & (c->ncqe - 1)) * 64;
	uint8_t own = crpc_load_acquire((_Atomic uint8_t *)slot + 63);

	if (own >> 4 == MLX5_CQE_INVALID || (own & 1) != ((c->ci / c->ncqe) & 1))
		return false;
	*op = own >> 4;
	c->ci++;
	return true;
}

static uint32_t
poll_send(struct rig_qp *q)
{
	uint32_t n = 0;
	uint8_t op;

	for (; n < 32 && cq_next(&q->scq, &op); n++) {
		if (op != MLX5_CQE_REQ) {
			fprintf(stderr, "send error\n");
			exit(1);
		}
		completed += SIGNAL_EVERY;
	}
	if (n != 0)
		crpc_store_release(
			(_Atomic uint32_t *)&q->scq.dbrec[0], htobe32(q->scq.ci & 0xffffff));
	return n;
}

static uint32_t
poll_recv(struct rig_qp *q)
{
	uint32_t n = 0;
	uint8_t op;

	for (; n < 32 && cq_next(&q->rcq, &op); n++)
		if (op != MLX5_CQE_RESP_WR_IMM) {
			fprintf(stderr, "receive error\n");
			exit(1);
		}
	if (n == 0)
		return 0;
	received += n;
	q->rq_pi = (uint16_t)(q->rq_pi + n);
	crpc_store_release((_Atomic uint32_t *)&q->dbrec[0], htobe32(q->rq_pi));
	crpc_store_release((_Atomic uint32_t *)&q->rcq.dbrec[0], htobe32(q->rcq.ci & 0xffffff));
	return n;
}

static const struct rig_qp_conf conf = {.sq_nbb = SQ_NBB, .rq_nwqe = RQ_N, .ncqe = 256};
static struct rig_host g, h;
static struct rig_qp x, y;

static void
fill_rq(struct rig_qp *q)
{
	for (uint32_t i = 0; i < RQ_N; i++)
		rig_recv(q, NULL, 0, 0);
}

/* Post a batch of @q if there is room for it. */
static bool
post_batch(struct rig_qp *q, uint32_t batch, uint64_t raddr, uint32_t rkey)
{
	if (sent - completed >= SQ_NBB / 2 - batch)
		return false;
	for (uint32_t i = 0; i < batch; i++)
		post_one(q, raddr, rkey);
	rig_ring(q);
	return true;
}

/* The best of many short slices: on a shared host most of them are disturbed. */
#define SLICE_NS 2000000u
#define SLICES 200u

struct slices {
	uint64_t at, ops, begin;
	double best; /* ns per op. */
	uint32_t n;
};

/* Account @ops in all so far; true: enough slices. */
static bool
slice(struct slices *s, uint64_t ops)
{
	uint64_t now = crpc_clock_ns();

	if (s->begin == 0)
		s->begin = s->at = now;
	if (now - s->at < SLICE_NS)
		return false;
	if (ops != s->ops) {
		double ns = (double)(now - s->at) / (double)(ops - s->ops);

		if (s->n == 0 || ns < s->best)
			s->best = ns;
		s->n++;
	}
	s->at = now;
	s->ops = ops;
	return now - s->begin > (uint64_t)SLICE_NS * SLICES;
}

static void
report(const char *what, uint32_t batch, const struct slices *s)
{
	double mean = (double)(s->at - s->begin) / (double)s->ops;

	printf("%s batch %u: best %.2f Mops/s, %.1f ns/op; mean %.2f Mops/s, %.1f ns/op\n", what,
		batch, 1e3 / s->best, s->best, 1e3 / mean, mean);
}

static void
run_loop(uint32_t batch)
{
	struct slices t = {0};

	rig_host_open(&h, rig_net(), 1 << 20);
	rig_link_open(&h, &x, &h, &y, &conf);
	fill_rq(&y);
	while (!slice(&t, received)) {
		for (uint32_t k = 0; k < 64; k++) {
			post_batch(&x, batch, (uintptr_t)h.mem, h.key);
			sm_nic_progress(h.nic, crpc_clock_ns());
			poll_recv(&y);
			poll_send(&x);
		}
	}
	report("loop", batch, &t);
	rig_link_close(&x, &y);
	rig_host_close(&h);
}

static void
run_count(uint32_t batch)
{
	rig_pair_open(&x, &h, &y, &g, 1 << 20, &conf);
	rig_connect(&x, &y);
	fill_rq(&y);
	while (received < COUNT) {
		if (sent < COUNT)
			post_batch(&x, batch, (uintptr_t)g.mem, g.key);
		sm_nic_progress(h.nic, 1000);
		sm_nic_progress(g.nic, 1000);
		poll_recv(&y);
		poll_send(&x);
	}
	printf("count batch %u: %u messages\n", batch, (uint32_t)received);
	rig_pair_close(&x, &y);
}

static void
pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void
side(struct shared *s, const char *net, int me, uint32_t batch)
{
	uint64_t passes = 0, posts = 0;
	struct slices t = {0};

	pin(me);
	rig_host_open(&h, net, 1 << 20);
	rig_qp_open(&h, &x, &conf);
	if (me == 1) {
		s->addr = (uintptr_t)h.mem;
		s->key = h.key;
	}
	atomic_store(&s->qpn[me], x.qpn);
	while (atomic_load(&s->qpn[1 - me]) == 0)
		sched_yield();
	rig_to_rts(&x, atomic_load(&s->qpn[1 - me]));
	if (me == 1)
		fill_rq(&x);
	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->ready) != 2)
		sched_yield();
	if (me == 0) {
		while (!slice(&t, completed))
			for (uint32_t k = 0; k < 64; k++) {
				posts += post_batch(&x, batch, s->addr, s->key);
				if (poll_send(&x) == 0) {
					sm_nic_progress(h.nic, crpc_clock_ns());
					passes++;
				}
			}
		report("proc", batch, &t);
		printf("posts per pass %.2f\n", (double)posts / (double)passes);
		atomic_store(&s->stop, 1);
	} else {
		while (atomic_load_explicit(&s->stop, memory_order_relaxed) == 0)
			for (uint32_t k = 0; k < 64; k++)
				if (poll_recv(&x) == 0) {
					sm_nic_progress(h.nic, crpc_clock_ns());
					passes++;
				}
		printf("received per pass %.2f\n", (double)received / (double)passes);
	}
	fflush(stdout);
	rig_qp_close(&x);
	rig_host_close(&h);
	_exit(0);
}

static void
run_proc(uint32_t batch)
{
	struct shared *s =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *net = rig_net();

	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			side(s, net, i, batch);
	wait(NULL);
	wait(NULL);
}

static void
run_idle(void)
{
	struct slices t = {0};
	uint64_t n = 0;

	rig_pair_open(&x, &h, &y, &g, 1 << 20, &conf);
	rig_connect(&x, &y);
	rig_run(&h, &g);
	while (!slice(&t, n))
		for (uint32_t i = 0; i < 100; i++, n++)
			sm_nic_progress(h.nic, 1000);
	report("idle", 1, &t);
	rig_pair_close(&x, &y);
}

int
main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "loop";
	uint32_t batch = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;

	crpc_clock_init();
	if (batch == 0 || batch > 256)
		return 2;
	if (strcmp(what, "loop") == 0)
		run_loop(batch);
	else if (strcmp(what, "proc") == 0)
		run_proc(batch);
	else if (strcmp(what, "idle") == 0)
		run_idle();
	else if (strcmp(what, "count") == 0)
		run_count(batch);
	else
		return 2;
	return 0;
}
