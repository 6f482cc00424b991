/* SPDX-License-Identifier: BSD-3-Clause */

#include <rte_launch.h>
#include <rte_lcore.h>

#include "crpc_clock.h"
#include "loops.h"

#define WATCH_NS UINT64_C(1000000)
/* A loop that does not come to the end of a turn in this time runs on. */
#define PAUSE_NS UINT64_C(10000000000)

/* A worker lcore by its number; without any the main one. */
static unsigned int
worker(uint32_t number)
{
	unsigned int id;

	RTE_LCORE_FOREACH_WORKER(id)
		if (number-- == 0)
			return id;
	return rte_get_main_lcore();
}

unsigned int
kvd_loops_lcore(uint32_t daemon, uint32_t daemons)
{
	uint32_t loops = (uint32_t)crpc_min(rte_lcore_count() - 1, daemons);

	return worker(loops == 0 ? 0 : daemon % loops);
}

static inline uint64_t
loop_turn(struct kvd_loop *l, uint64_t now)
{
	uint32_t work = 0;

	for (uint32_t i = 0; i < l->daemons; i++)
		work += crpc_kv_daemon_turn(l->daemon[i], now);
	crpc_idle_turn(&l->idle, work);
	if (work != 0)
		crpc_store_relaxed(&l->busy_ns, now);
	now = crpc_clock_ns();
	if (crpc_likely(now < l->watch_ns))
		return now;
	for (uint32_t i = 0; i < l->daemons; i++)
		crpc_kv_daemon_watch(l->daemon[i], now);
	l->watch_ns = now + WATCH_NS;
	return now;
}

static int
loop_main(void *arg)
{
	struct kvd_loop *l = arg;
	uint64_t now = crpc_clock_ns();
	uint32_t word;

	while (crpc_load_relaxed(&l->end) == 0) {
		now = loop_turn(l, now);
		word = crpc_load_relaxed(&l->word);
		if (crpc_likely(word % 2 == 0))
			continue;
		crpc_store_release(&l->stands, word);       /* R1 */
		while (crpc_load_acquire(&l->word) == word) /* A0 pairs with R0 */
			sched_yield();
	}
	crpc_store_release(&l->end, 2); /* R2 */
	return 0;
}

void
kvd_loops_start(struct kvd_loops *l, struct crpc_kv_server *s, uint32_t daemons,
	enum crpc_idle_policy policy)
{
	uint32_t workers = rte_lcore_count() - 1;
	struct crpc_kv_daemon *d;
	struct kvd_loop *loop;

	*l = (struct kvd_loops){
		.n = (uint32_t)crpc_max(crpc_min(workers, daemons), 1), .on_main = workers == 0};
	for (uint32_t i = 0; i < l->n; i++)
		l->loop[i] = (struct kvd_loop){.lcore = worker(i), .idle.policy = policy};
	for (uint32_t i = 0; i < daemons; i++) {
		loop = &l->loop[i % l->n];
		d = crpc_kv_server_daemon(s, i);
		for (uint32_t k = 0; k < loop->daemons; k++)
			crpc_kv_daemon_join(d, loop->daemon[k]);
		loop->daemon[loop->daemons++] = d;
	}
	for (uint32_t i = 0; i < l->n && !l->on_main; i++)
		rte_eal_remote_launch(loop_main, &l->loop[i], l->loop[i].lcore);
	/* Before their first turn crpc_kv_server_connect() takes the endpoints for ours. */
	for (uint32_t i = 0; i < l->n; i++)
		if (kvd_loop_pause(l, i) == 0)
			kvd_loop_resume(l, i);
}

void
kvd_loops_turn(struct kvd_loops *l)
{
	uint64_t now;

	if (!l->on_main || crpc_load_relaxed(&l->loop->end) != 0)
		return;
	now = crpc_clock_ns();
	for (uint64_t end = now + WATCH_NS; now < end;)
		now = loop_turn(l->loop, now);
}

int
kvd_loop_pause(struct kvd_loops *l, uint32_t i)
{
	struct kvd_loop *loop = &l->loop[i];
	uint64_t end = crpc_clock_ns() + PAUSE_NS;
	uint32_t word = crpc_load_relaxed(&loop->word) + 1;

	if (l->on_main)
		return 0;
	crpc_store_relaxed(&loop->word, word);
	while (crpc_load_acquire(&loop->stands) != word) { /* A1 pairs with R1 */
		if (crpc_clock_ns() > end) {
			kvd_loop_resume(l, i);
			return -ETIMEDOUT;
		}
		crpc_nap(50000);
	}
	return 0;
}

void
kvd_loop_resume(struct kvd_loops *l, uint32_t i)
{
	struct kvd_loop *loop = &l->loop[i];

	if (!l->on_main)
		crpc_store_release(&loop->word, crpc_load_relaxed(&loop->word) + 1); /* R0 */
}

void
kvd_loops_stop(struct kvd_loops *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		crpc_store_relaxed(&l->loop[i].end, 1);
	for (uint32_t i = 0; i < l->n && !l->on_main; i++) {
		rte_eal_wait_lcore(l->loop[i].lcore);
		/* A2 pairs with R2: the thread sanitizer does not see that of the line above. */
		(void)crpc_load_acquire(&l->loop[i].end);
	}
	l->on_main = true;
}
