/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutorial, step 1: two threads own half of the counters each, and add to all of them. A counter
 * has one owner, so it needs no lock: the other thread asks the owner.
 *
 *     cc flux_counters.c -o flux_counters $(pkg-config --cflags --libs crpc_flux)
 *     ./flux_counters
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <crpc_clock.h>
#include <crpc_flux.h>

#include "counters.h"

static struct crpc_flux *flux;
static atomic_uint joined, finished;
static uint64_t counters[2][COUNTERS]; /* Row i belongs to thread i. */

/* Execute what has arrived. */
static void
serve(struct crpc_flux_node *node, uint64_t now, uint64_t *mine)
{
	struct crpc_req req[32];
	uint64_t value;
	uint16_t i, n = crpc_flux_recv(node, now, req, 32);
	int rc;

	for (i = 0; i < n; i++) {
		rc = counters_apply(mine, &req[i], &value);
		if (rc == 0)
			crpc_flux_reply(node, now, req[i].token, &value, sizeof(value));
		else
			crpc_flux_fail(node, now, req[i].token, rc);
	}
}

/* One node: call, poll, serve, in turn, until both nodes have all their replies. */
static void
run(struct crpc_flux_node *node, struct crpc_flux_ep *peer, uint64_t *mine)
{
	uint32_t made = 0, ended = 0;
	struct crpc_done done[32];
	uint16_t i, n;

	while (atomic_load(&finished) < 2) {
		uint64_t now = crpc_clock_ns(); /* Read once per turn and passed down. */
		struct add add = {.counter = made % COUNTERS, .amount = 1};

		/* -EAGAIN is back-pressure: nothing was taken, the next turn tries again. */
		if (made < ADDS &&
			crpc_flux_call(peer, now, &add, sizeof(add), sizeof(uint64_t), made) == 0) {
			mine[made++ % COUNTERS]++; /* Its own counters need no call. */
		}
		n = crpc_flux_poll(node, now, done, 32);
		for (i = 0; i < n; i++) {
			if (done[i].status != 0)
				abort();
		}
		ended += n;
		if (n != 0 && ended == ADDS)
			atomic_fetch_add(&finished, 1);
		serve(node, now, mine);
	}
}

static void *
node_main(void *arg)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	struct crpc_flux_node *node = crpc_flux_join(flux, id);
	struct crpc_flux_ep *peer;

	if (node == NULL)
		abort();
	/* A node can connect once its peer has joined, and leave once it is not called any more. */
	atomic_fetch_add(&joined, 1);
	while (atomic_load(&joined) < 2)
		sched_yield();
	if (crpc_flux_connect(node, 1 - id, &peer) != 0)
		abort();
	run(node, peer, counters[id]);
	crpc_flux_leave(node);
	return NULL;
}

int
main(void)
{
	struct crpc_flux_attr attr = {.nodes = 2};
	uint64_t sum = 0;
	pthread_t thread;
	uint32_t i;

	crpc_clock_init();
	flux = crpc_flux_create(&attr);
	if (flux == NULL)
		return fail("flux");
	if (pthread_create(&thread, NULL, node_main, (void *)1) != 0)
		return 1;
	node_main((void *)0);
	pthread_join(thread, NULL);
	crpc_flux_free(flux);
	for (i = 0; i < COUNTERS; i++)
		sum += counters[0][i] + counters[1][i];
	printf("two threads added %d each, and to the other's counters as often: sum %d\n", ADDS,
		(int)sum);
	return sum != 4 * ADDS;
}
