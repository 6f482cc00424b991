/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many nanoseconds of ipc one small call costs. Prints, asserts nothing about time.
 *
 *     bench_ipc [--clients N] [--depth N] [--size BYTES] [--ms N] [--burst N]
 *               [--only colocated|cross]
 *
 * colocated: server and clients in one thread, as in a daemon that drives its own clients. One call
 * is call + recv + reply + poll. cross: the server in this thread and all clients in another.
 */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_idle.h"
#include "crpc_ipc.h"
#include "crpc_log.h"

#define MAX_CLIENTS 64
#define MAX_SIZE    2048
/* Cross: the rate is taken slice by slice, and the best and the median are reported. */
#define SLICES 40

struct bench {
	uint32_t clients, depth, size, ms;
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c[MAX_CLIENTS];
	_Atomic uint32_t stop;
	uint32_t burst; /**< Free places of a client before it calls. */
	_Atomic uint64_t calls;
	uint64_t cookies[CRPC_BURST_MAX];
	uint8_t msgs[CRPC_BURST_MAX * MAX_SIZE];
};

static uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
die(const char *what)
{
	fprintf(stderr, "bench_ipc: %s: %s\n", what, crpc_log_last());
	exit(2);
}

static void
open_all(struct bench *b)
{
	char name[32];
	struct crpc_ipc_server_conf conf = {.name = name,
			.max_clients = b->clients,
			.depth = b->depth,
			.req_max = b->size,
			.resp_max = b->size};
	struct crpc_ipc_client_conf cc = {.name = name};

	snprintf(name, sizeof(name), "bench.%d", (int)getpid());
	b->s = crpc_ipc_server_create(&conf);
	if (b->s == NULL)
		die("server");
	cc.server = b->s;
	for (uint32_t i = 0; i < b->clients; i++) {
		b->c[i] = crpc_ipc_client_connect(&cc);
		if (b->c[i] == NULL)
			die("client");
	}
	crpc_ipc_server_reap(b->s);
}

static void
close_all(struct bench *b)
{
	for (uint32_t i = 0; i < b->clients; i++)
		crpc_ipc_client_close(b->c[i]);
	crpc_ipc_server_free(b->s);
}

static uint32_t
serve(struct bench *b)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n = crpc_ipc_server_recv(b->s, 0, req, CRPC_BURST_MAX);

	crpc_ipc_server_reply_burst(b->s, 0, req, b->msgs, b->size, n);
	return n;
}

static uint64_t
drive(struct bench *b)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint64_t finished = 0;
	uint32_t i, n;

	for (i = 0; i < b->clients; i++) {
		finished += crpc_ipc_client_poll(b->c[i], 0, done, CRPC_BURST_MAX);
		n = b->depth - crpc_ipc_client_open(b->c[i]);
		if (n >= b->burst)
			crpc_ipc_client_call_burst(b->c[i], 0, b->msgs, b->size, b->size,
				b->cookies, (uint16_t)crpc_min(n, CRPC_BURST_MAX));
	}
	return finished;
}

static void
colocated(struct bench *b)
{
	uint64_t t0 = now_ns(), t1, n = 0, turns;

	do {
		for (turns = 0; turns < 1000; turns++) {
			n += drive(b);
			serve(b);
		}
		t1 = now_ns();
	} while (t1 - t0 < b->ms * UINT64_C(1000000));
	printf("colocated clients %u depth %u size %u: %.1f ns per call, %.2f M calls/s\n",
			b->clients, b->depth, b->size, (double)(t1 - t0) / (double)n,
			(double)n * 1e3 / (double)(t1 - t0));
}

static void pin(uint32_t core);

static void *
client_thread(void *arg)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_POLL};
	struct bench *b = arg;

	pin(1);
	while (crpc_load_acquire(&b->stop) == 0) {
		uint64_t n = drive(b);

		crpc_store_relaxed(&b->calls, crpc_load_relaxed(&b->calls) + n);
		crpc_idle_turn(&idle, (uint32_t)n);
	}
	return NULL;
}

/* The server on the first core, the clients on the second, if there are two. */
static void
pin(uint32_t core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
cross(struct bench *b)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_POLL};
	uint64_t t0, t1, n0, slice_ns = b->ms * UINT64_C(1000000) / SLICES;
	double rate[SLICES];
	pthread_t t;

	if (pthread_create(&t, NULL, client_thread, b) != 0)
		die("thread");
	pin(0);
	for (uint32_t i = 0; i < SLICES; i++) {
		t0 = now_ns();
		n0 = crpc_load_relaxed(&b->calls);
		do {
			for (uint32_t turns = 0; turns < 1000; turns++)
				crpc_idle_turn(&idle, serve(b));
			t1 = now_ns();
		} while (t1 - t0 < slice_ns);
		rate[i] = (double)(crpc_load_relaxed(&b->calls) - n0) * 1e3 / (double)(t1 - t0);
	}
	crpc_store_release(&b->stop, 1);
	pthread_join(t, NULL);
	qsort(rate, SLICES, sizeof(rate[0]), by_value);
	printf("cross     clients %u depth %u size %u: median %.2f best %.2f M calls/s (%.1f ns)\n",
			b->clients, b->depth, b->size, rate[SLICES / 2], rate[SLICES - 1],
			1e3 / rate[SLICES - 1]);
}

int
main(int argc, char **argv)
{
	static const struct option opts[] = {{"clients", 1, NULL, 'c'}, {"depth", 1, NULL, 'd'},
			{"size", 1, NULL, 's'}, {"ms", 1, NULL, 'm'}, {"only", 1, NULL, 'o'},
			{"burst", 1, NULL, 'b'}, {NULL, 0, NULL, 0}};
	static struct bench b = {.clients = 16, .depth = 1, .size = 32, .ms = 200,
			.burst = 1};
	const char *only = "";
	int o;

	while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		uint32_t v = optarg == NULL ? 0 : (uint32_t)strtoul(optarg, NULL, 10);

		if (o == 'c')
			b.clients = v;
		else if (o == 'd')
			b.depth = v;
		else if (o == 's')
			b.size = v;
		else if (o == 'b')
			b.burst = v;
		else if (o == 'm')
			b.ms = v;
		else if (o == 'o')
			only = optarg;
		else
			return 2;
	}
	if (b.clients == 0 || b.clients > MAX_CLIENTS || b.size > MAX_SIZE ||
			b.burst > b.depth) {
		fprintf(stderr, "bench_ipc: clients 1 to %d, size to %d\n", MAX_CLIENTS,
				MAX_SIZE);
		return 2;
	}
	open_all(&b);
	if (strcmp(only, "cross") != 0)
		colocated(&b);
	if (strcmp(only, "colocated") != 0)
		cross(&b);
	close_all(&b);
	return 0;
}
