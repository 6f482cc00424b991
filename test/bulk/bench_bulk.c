/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Not a test: two threads, one core each, move messages through the device that is there, and a
 * memcpy() of the same size runs in between. Prints one line per case: median of GB/s, its share of
 * the memcpy's, and the time per chunk beside copying.
 *
 *     usertools/soft-mlx5 --progress inline -- build/test/bulk/bench_bulk [MiB [rounds [one]]]
 *
 * With "one", one thread drives both ends and CPU time is counted: what all the work costs
 * together, also on a machine that has other things to do.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crpc_bulk.h"
#include "crpc_clock.h"
#include "crpc_log.h"

#define ROUNDS_MAX 64

struct side {
	int index;
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	uint8_t addr[CRPC_BULK_ADDR_LEN];
	uint8_t *buf;
};

struct point {
	const char *name;
	uint32_t flags, slots, tx_chunks, chunk, rails;
};

static const struct point points[] = {
		{"rendezvous, write", CRPC_BULK_WRITE, 16, 12, 512u << 10, 1},
		{"rendezvous, read", CRPC_BULK_READ, 16, 12, 512u << 10, 1},
		{"eager, cpu unpack", CRPC_BULK_EAGER, 16, 12, 512u << 10, 1},
		{"eager, chunk 128 KiB", CRPC_BULK_EAGER, 16, 12, 128u << 10, 1},
		{"eager, window 1", CRPC_BULK_EAGER, 1, 1, 512u << 10, 1},
		{"rendezvous, window 1", CRPC_BULK_WRITE, 16, 1, 512u << 10, 1},
		{"eager, chunk 4 KiB", CRPC_BULK_EAGER, 64, 48, 4096, 1},
		{"rendezvous, chunk 4 KiB", CRPC_BULK_WRITE, 64, 48, 4096, 1},
};

static struct side side[2];
static pthread_barrier_t barrier;
static uint64_t len = 64u << 20;
static uint32_t rounds = 9;
static double rate[2][ROUNDS_MAX];

static void
pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void
die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	exit(1);
}

static void
side_open(struct side *s, const struct point *p)
{
	struct crpc_rdma_conf rdma = {.gid_index = -1};
	struct crpc_copyrpc_conf conf = {.ring_size = 65536};
	struct crpc_bulk_conf bulk = {.chunk = p->chunk,
			.slots = p->slots,
			.tx_chunks = p->tx_chunks,
			.clock_ns = crpc_clock_ns};

	s->dev = crpc_rdma_open(&rdma);
	if (s->dev == NULL)
		die("device");
	conf.dev = s->dev;
	s->ctx = crpc_copyrpc_create(&conf);
	bulk.port[0] = (struct crpc_bulk_port){.ctx = s->ctx, .dev = s->dev};
	s->b = crpc_bulk_create(&bulk);
	s->conn = s->b != NULL ? crpc_bulk_conn_create(s->b, p->rails, 0) : NULL;
	if (s->conn == NULL)
		die("connection");
	crpc_bulk_conn_addr(s->conn, s->addr);
}

static void
side_close(struct side *s)
{
	crpc_bulk_free(s->b);
	crpc_copyrpc_free(s->ctx);
	crpc_rdma_close(s->dev);
}

static void
one(struct side *s, const struct point *p, uint32_t round)
{
	uint64_t now = crpc_clock_ns(), start = now, req;
	struct crpc_bulk_result result;
	int rc;

	rc = s->index == 0 ? crpc_bulk_isend(s->conn, now, 1, s->buf, len, p->flags, 0, &req)
			   : crpc_bulk_irecv(s->conn, now, 1, s->buf, len, 0, 0, &req);
	if (rc != 0)
		die("request");
	while (crpc_bulk_test(s->b, req, &result) != 0) {
		now = crpc_clock_ns();
		crpc_bulk_progress(s->b, now);
	}
	if (result.status != 0)
		die("transfer");
	rate[0][round] = (double)len / (double)(crpc_clock_ns() - start);
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
report(const struct point *p)
{
	const struct crpc_bulk_stats *tx = crpc_bulk_stats(side[0].b);
	const struct crpc_bulk_stats *rx = crpc_bulk_stats(side[1].b);
	double share[ROUNDS_MAX];
	uint64_t chunks = tx->chunks_sent != 0 ? tx->chunks_sent : rx->chunks_received;
	uint32_t i;

	for (i = 0; i < rounds; i++)
		share[i] = rate[0][i] / rate[1][i];
	qsort(rate[0], rounds, sizeof(double), by_value);
	qsort(rate[1], rounds, sizeof(double), by_value);
	qsort(share, rounds, sizeof(double), by_value);
	printf("%-24s %6.2f GB/s  memcpy %6.2f  share %.2f (%.2f..%.2f)  us/chunk: all %.1f, post "
	       "%.2f, wire %.1f, unpack %.1f, consume %.2f; window %.1f; blocked: window %llu, slots "
	       "%llu, queue %llu\n", p->name, rate[0][rounds / 2], rate[1][rounds / 2],
			share[rounds / 2], share[0], share[rounds - 1],
			(double)p->chunk / rate[0][rounds / 2] / 1e3,
			(double)tx->post.sum_ns / 1e3 / (double)(chunks + !chunks),
			(double)tx->wire.sum_ns / 1e3 / (double)(tx->wire.n + !tx->wire.n),
			(double)rx->unpack.sum_ns / 1e3 / (double)(rx->unpack.n + !rx->unpack.n),
			(double)rx->consume.sum_ns / 1e3 / (double)(rx->consume.n + !rx->consume.n),
			(double)tx->occupancy_sum / (double)(chunks + !chunks),
			(unsigned long long)tx->blocked_window,
			(unsigned long long)tx->blocked_slots,
			(unsigned long long)tx->blocked_queue);
	fflush(stdout);
}

static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Both ends by this thread. */
static void
one_thread(const struct point *p, uint32_t round)
{
	uint64_t start = cpu_ns(), req[2];
	struct crpc_bulk_result result;
	bool ended[2] = {false, false};
	int i;

	if (crpc_bulk_isend(
		    side[0].conn, crpc_clock_ns(), 1, side[0].buf, len, p->flags, 0, &req[0]) ||
		crpc_bulk_irecv(side[1].conn, crpc_clock_ns(), 1, side[1].buf, len, 0, 0, &req[1]))
		die("request");
	for (i = 0; !ended[0] || !ended[1]; i = !i) {
		crpc_bulk_progress(side[i].b, crpc_clock_ns());
		if (!ended[i])
			ended[i] = crpc_bulk_test(side[i].b, req[i], &result) == 0;
	}
	if (result.status != 0 || memcmp(side[0].buf, side[1].buf, 4096) != 0)
		die("transfer");
	rate[0][round] = (double)len / (double)(cpu_ns() - start);
	start = cpu_ns();
	memcpy(side[1].buf + len, side[1].buf + 2 * len, len);
	rate[1][round] = (double)len / (double)(cpu_ns() - start);
}

static void
run_one(void)
{
	uint32_t i, r;

	for (i = 0; i < CRPC_DIM(points); i++) {
		side_open(&side[0], &points[i]);
		side_open(&side[1], &points[i]);
		if (crpc_bulk_conn_connect(side[0].conn, side[1].addr) != 0 ||
				crpc_bulk_conn_connect(side[1].conn, side[0].addr) != 0)
			die("connect");
		one_thread(&points[i], 0);
		crpc_bulk_stats_reset(side[0].b);
		crpc_bulk_stats_reset(side[1].b);
		for (r = 0; r < rounds; r++)
			one_thread(&points[i], r);
		report(&points[i]);
		side_close(&side[0]);
		side_close(&side[1]);
	}
}

static void *
run(void *arg)
{
	struct side *s = arg;
	uint64_t until;
	uint32_t i, r;

	pin(s->index);
	for (i = 0; i < CRPC_DIM(points); i++) {
		side_open(s, &points[i]);
		pthread_barrier_wait(&barrier);
		if (crpc_bulk_conn_connect(s->conn, side[!s->index].addr) != 0)
			die("connect");
		pthread_barrier_wait(&barrier);
		for (r = 0; r <= rounds; r++) {
			pthread_barrier_wait(&barrier);
			one(s, &points[i], r == 0 ? 0 : r - 1);
			if (r == 0)
				crpc_bulk_stats_reset(s->b);
			/* the last words of both */
			until = crpc_clock_ns() + 200000;
			while (crpc_clock_ns() < until)
				crpc_bulk_progress(s->b, crpc_clock_ns());
			pthread_barrier_wait(&barrier);
			if (s->index == 0) {
				pthread_barrier_wait(&barrier);
				continue;
			}
			/* alone, with other memory than the transfer's */
			until = crpc_clock_ns();
			memcpy(s->buf + len, s->buf + 2 * len, len);
			rate[1][r == 0 ? 0 : r - 1] =
				(double)len / (double)(crpc_clock_ns() - until);
			pthread_barrier_wait(&barrier);
		}
		pthread_barrier_wait(&barrier);
		if (s->index == 1)
			report(&points[i]);
		pthread_barrier_wait(&barrier);
		side_close(s);
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	pthread_t thread[2];
	uint32_t i;

	if (argc > 1)
		len = strtoull(argv[1], NULL, 0) << 20;
	if (argc > 2)
		rounds = (uint32_t)crpc_min(strtoul(argv[2], NULL, 0), ROUNDS_MAX);
	crpc_clock_init();
	pthread_barrier_init(&barrier, NULL, 2);
	for (i = 0; i < 2; i++) {
		side[i].index = (int)i;
		side[i].buf = aligned_alloc(1u << 21, 3 * len);
		if (side[i].buf == NULL || rounds == 0)
			return 1;
		memset(side[i].buf, (int)i + 1, 3 * len);
	}
	if (argc > 3) {
		run_one();
		return 0;
	}
	for (i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, run, &side[i]);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
