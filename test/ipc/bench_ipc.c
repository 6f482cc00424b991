/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many nanoseconds of ipc one small call costs. Prints, asserts nothing about time.
 *
 *     bench_ipc [--clients N] [--depth N] [--size BYTES] [--ms N] [--only colocated|cross]
 *
 * colocated: server and clients in one thread, as in a daemon that drives its own clients. One call
 * is call + recv + reply + poll. cross: the server in this thread and all clients in another.
 */
#include <getopt.h>
#include <pthread.h>
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

struct bench {
	uint32_t clients, depth, size, ms;
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c[MAX_CLIENTS];
	_Atomic uint32_t stop;
	uint64_t calls;
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
	uint32_t i;

	snprintf(name, sizeof(name), "bench.%d", (int)getpid());
	b->s = crpc_ipc_server_create(&conf);
	if (b->s == NULL)
		die("server");
	cc.server = b->s;
	for (i = 0; i < b->clients; i++) {
		b->c[i] = crpc_ipc_client_connect(&cc);
		if (b->c[i] == NULL)
			die("client");
	}
	crpc_ipc_server_reap(b->s);
}

static void
close_all(struct bench *b)
{
	uint32_t i;

	for (i = 0; i < b->clients; i++)
		crpc_ipc_client_close(b->c[i]);
	crpc_ipc_server_free(b->s);
}

static uint32_t
serve(struct bench *b)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n = crpc_ipc_server_recv(b->s, req, CRPC_BURST_MAX), i;

	for (i = 0; i < n; i++)
		crpc_ipc_server_reply(b->s, req[i].token, req[i].data, req[i].len);
	return n;
}

static uint64_t
drive(struct bench *b, const void *msg)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint64_t finished = 0;
	uint32_t i;

	for (i = 0; i < b->clients; i++) {
		finished += crpc_ipc_client_poll(b->c[i], done, CRPC_BURST_MAX);
		while (crpc_ipc_client_open(b->c[i]) < b->depth)
			crpc_ipc_client_call(b->c[i], msg, b->size, i);
	}
	return finished;
}

static void
colocated(struct bench *b)
{
	uint8_t msg[CRPC_IPC_MSG_MAX] = {0};
	uint64_t t0 = now_ns(), t1, n = 0, turns;

	do {
		for (turns = 0; turns < 1000; turns++) {
			n += drive(b, msg);
			serve(b);
		}
		t1 = now_ns();
	} while (t1 - t0 < b->ms * UINT64_C(1000000));
	printf("colocated clients %u depth %u size %u: %.1f ns per call, %.2f M calls/s\n",
			b->clients, b->depth, b->size, (double)(t1 - t0) / (double)n,
			(double)n * 1e3 / (double)(t1 - t0));
}

static void *
client_thread(void *arg)
{
	uint8_t msg[CRPC_IPC_MSG_MAX] = {0};
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct bench *b = arg;
	uint64_t n;

	while (crpc_load_acquire(&b->stop) == 0) {
		n = drive(b, msg);
		b->calls += n;
		crpc_idle_turn(&idle, (uint32_t)n);
	}
	return NULL;
}

static void
cross(struct bench *b)
{
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	uint64_t t0 = now_ns(), t1;
	uint32_t turns;
	pthread_t t;

	if (pthread_create(&t, NULL, client_thread, b) != 0)
		die("thread");
	do {
		for (turns = 0; turns < 1000; turns++)
			crpc_idle_turn(&idle, serve(b));
		t1 = now_ns();
	} while (t1 - t0 < b->ms * UINT64_C(1000000));
	crpc_store_release(&b->stop, 1);
	pthread_join(t, NULL);
	printf("cross     clients %u depth %u size %u: %.1f ns per call, %.2f M calls/s\n",
			b->clients, b->depth, b->size, (double)(t1 - t0) / (double)b->calls,
			(double)b->calls * 1e3 / (double)(t1 - t0));
}

int
main(int argc, char **argv)
{
	static const struct option opts[] = {{"clients", 1, NULL, 'c'}, {"depth", 1, NULL, 'd'},
			{"size", 1, NULL, 's'}, {"ms", 1, NULL, 'm'}, {"only", 1, NULL, 'o'},
			{NULL, 0, NULL, 0}};
	struct bench b = {.clients = 16, .depth = 1, .size = 32, .ms = 200};
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
		else if (o == 'm')
			b.ms = v;
		else if (o == 'o')
			only = optarg;
		else
			return 2;
	}
	if (b.clients == 0 || b.clients > MAX_CLIENTS || b.size > CRPC_IPC_MSG_MAX) {
		fprintf(stderr, "bench_ipc: clients 1 to %d, size to %d\n", MAX_CLIENTS,
				CRPC_IPC_MSG_MAX);
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
