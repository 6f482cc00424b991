/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <time.h>

#include <rte_launch.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "run.h"

#define WATCH_NS    1000000
#define SLICE_NS    100000000
#define PROGRESS_NS 1000000000
/* Calls end within 1.75 s, whatever happened to the peer. */
#define DRAIN_NS UINT64_C(2500000000)
/* How long the ranks may differ in coming to the end. */
#define LINGER_NS UINT64_C(5000000000)
/* When a launcher ends a run it kills soon after: results first. */
#define LINGER_INTERRUPTED_NS 300000000
#define LINGER_LOST_NS        500000000

_Atomic int kv_run_signal;

static void
on_signal(int sig)
{
	crpc_store_relaxed(&kv_run_signal, sig);
}

void
kv_run_catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
}

/* Bring a client loop to the phase of the run. @return true if it has nothing more to do. */
static bool
worker_follow(struct kv_worker *w, uint64_t now)
{
	int phase = crpc_load_acquire(&w->run->phase); /* A1 pairs with R1 */

	if (crpc_unlikely((int)w->loop.phase != phase)) {
		if (phase == KV_MEASURE)
			kv_loop_measure(&w->loop, now);
		else
			kv_loop_stop(&w->loop, now);
	}
	return w->loop.phase == KV_STOPPED &&
		(kv_loop_open(&w->loop) == 0 || crpc_load_relaxed(&w->run->quit) != 0);
}

/* Clients on a lcore of their own. */
static int
worker_main(void *arg)
{
	struct kv_worker *w = arg;
	uint64_t now;

	do {
		now = crpc_clock_ns();
		crpc_idle_turn(&w->idle, kv_loop_turn(&w->loop, now));
	} while (!worker_follow(w, now));
	crpc_store_release(&w->drained, 1); /* R2 */
	return 0;
}

static uint64_t
served(const struct kv_run *run)
{
	uint64_t sum = 0;
	uint32_t i;

	if (run->workers == 0)
		return run->daemon->stats.local + run->daemon->stats.remote;
	for (i = 0; i < run->workers; i++)
		sum += crpc_load_relaxed(&run->worker[i].loop.served_pub);
	return sum;
}

static uint64_t
thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
begin_measure(struct kv_run *run, uint64_t now)
{
	struct kv_net *net = run->daemon->net;

	run->window_from = now;
	/* As long as was asked, also if we come late to its begin. */
	run->stop_at = now + (uint64_t)(run->opt->seconds * 1e9);
	run->cpu_begin = thread_cpu_ns();
	run->slice_at = now + SLICE_NS;
	run->slice_ops = served(run);
	if (net != NULL) {
		crpc_copyrpc_stats_reset(net->ctx);
		crpc_rdma_stats_get(net->dev, &run->rdma_begin);
		run->waited_begin = net->waited;
	}
	crpc_store_release(&run->phase, KV_MEASURE); /* R1 */
}

static void
end_measure(struct kv_run *run, uint64_t now)
{
	struct kv_net *net = run->daemon->net;
	const struct crpc_copyrpc_stats *c;
	struct crpc_rdma_stats r;

	run->window_to = now;
	run->away_pct = 100.0 -
		100.0 * (double)(thread_cpu_ns() - run->cpu_begin) /
			(double)(now - run->window_from + 1);
	run->deadline = now + DRAIN_NS;
	crpc_store_release(&run->phase, KV_STOPPED); /* R1 */
	if (net == NULL)
		return;
	c = crpc_copyrpc_stats(net->ctx);
	crpc_rdma_stats_get(net->dev, &r);
	run->net = (struct kv_net_counts){
		.calls = c->calls,
		.messages = c->messages_sent,
		.batches = c->batches_sent,
		.updates = c->updates_sent,
		.bytes = c->bytes_sent,
		.doorbells = r.doorbells - run->rdma_begin.doorbells,
		.wqes = r.wqes - run->rdma_begin.wqes,
		.wqebbs = r.wqebbs - run->rdma_begin.wqebbs,
		.send_cqes = r.send_cqes - run->rdma_begin.send_cqes,
		.recv_cqes = r.recv_cqes - run->rdma_begin.recv_cqes,
		.waited = net->waited - run->waited_begin,
		.queue = c->queue,
		.wire = c->wire,
		.peer = c->peer,
	};
}

static void
take_slice(struct kv_run *run, uint64_t now)
{
	uint64_t ops = served(run);

	if (now < run->slice_at || run->slices == run->slices_max)
		return;
	run->slice[run->slices++] =
		(double)(ops - run->slice_ops) * 1e9 / (double)(now - run->slice_at + SLICE_NS);
	run->slice_ops = ops;
	run->slice_at = now + SLICE_NS;
}

static void
progress(struct kv_run *run, uint64_t now)
{
	uint64_t ops;

	if (now < run->progress_at)
		return;
	ops = served(run);
	if (run->boot->rank == 0 && !run->opt->quiet)
		fprintf(stderr, "benchkv: %4.0f s left, rank 0: %.3f M ops/s%s\n",
			now < run->stop_at ? (double)(run->stop_at - now) / 1e9 : 0.0,
			(double)(ops - run->progress_ops) * 1e3 /
				(double)(now - run->progress_at + PROGRESS_NS),
			now < run->measure_at ? " (warm-up)" : "");
	run->progress_ops = ops;
	run->progress_at = now + PROGRESS_NS;
}

/* A signal of ours stops the other ranks too; theirs stops us. */
static bool
must_stop(struct kv_run *run, uint64_t now)
{
	int sig = crpc_load_relaxed(&kv_run_signal);

	if (sig == 0 && !run->daemon->stop)
		return false;
	if (!run->interrupted && sig != 0 && run->daemon->net != NULL)
		kv_net_tell_stop(run->daemon->net, now);
	run->interrupted = true;
	return true;
}

static bool
all_drained(const struct kv_run *run)
{
	uint32_t i;

	for (i = 0; i < run->workers; i++)
		if (crpc_load_acquire(&run->worker[i].drained) == 0) /* A2 pairs with R2 */
			return false;
	return true;
}

enum run_step {
	STEP_RUN,
	STEP_DRAIN,
	STEP_LINGER,
	STEP_END,
};

static enum run_step
step_run(struct kv_run *run, uint64_t now)
{
	bool stop = must_stop(run, now);

	if (run->window_from == 0 && (stop || now >= run->measure_at))
		begin_measure(run, now);
	if (run->window_from == 0) {
		progress(run, now);
		return STEP_RUN;
	}
	take_slice(run, now);
	progress(run, now);
	if (!stop && now < run->stop_at)
		return STEP_RUN;
	end_measure(run, now);
	return STEP_DRAIN;
}

static enum run_step
step_drain(struct kv_run *run, uint64_t now)
{
	const struct kv_net *net = run->daemon->net;

	if (!all_drained(run) && now < run->deadline)
		return STEP_DRAIN;
	crpc_store_relaxed(&run->quit, 1);
	run->lost_at_end = net == NULL ? 0 : net->lost;
	if (net == NULL)
		return STEP_END;
	run->deadline = now +
		(run->lost_at_end != 0             ? LINGER_LOST_NS
				: run->interrupted ? LINGER_INTERRUPTED_NS
						   : LINGER_NS);
	if (run->lost_at_end == 0 && app_boot_fence_start(run->boot) != 0)
		return STEP_END;
	return STEP_LINGER;
}

static enum run_step
step_linger(struct kv_run *run, uint64_t now)
{
	if (run->lost_at_end == 0 && app_boot_fence_done(run->boot) != -EAGAIN)
		return STEP_END;
	if (now < run->deadline)
		return STEP_LINGER;
	if (run->lost_at_end == 0 && !run->interrupted) {
		app_note("rank %u: the other ranks did not come to the end of the run within %d s",
			run->boot->rank, (int)(LINGER_NS / 1000000000));
		run->lost_at_end = 1;
	}
	return STEP_END;
}

static enum run_step
step(struct kv_run *run, enum run_step at, uint64_t now)
{
	kv_daemon_watch(run->daemon, now, at < STEP_LINGER);
	switch (at) {
	case STEP_RUN:
		return step_run(run, now);
	case STEP_DRAIN:
		return step_drain(run, now);
	default:
		return step_linger(run, now);
	}
}

static void
loop(struct kv_run *run)
{
	struct kv_worker *mine = run->colocated ? &run->worker[0] : NULL;
	uint64_t now = crpc_clock_ns(), watch_at = now + WATCH_NS;
	enum run_step at = STEP_RUN;
	uint32_t work;

	run->measure_at = now + (uint64_t)(run->opt->warmup * 1e9);
	run->stop_at = run->measure_at + (uint64_t)(run->opt->seconds * 1e9);
	run->progress_at = now + PROGRESS_NS;
	while (at != STEP_END) {
		work = kv_daemon_turn(run->daemon, now);
		if (mine != NULL) {
			now = crpc_clock_ns();
			work += kv_loop_turn(&mine->loop, now);
			if (worker_follow(mine, now))
				crpc_store_relaxed(&mine->drained, 1);
		}
		crpc_idle_turn(&run->idle, work);
		now = crpc_clock_ns();
		if (crpc_unlikely(now >= watch_at)) {
			at = step(run, at, now);
			watch_at = now + WATCH_NS;
		}
	}
}

int
kv_run_loop(struct kv_run *run)
{
	uint32_t i, first = run->colocated ? 1 : 0;

	run->slices_max = (uint64_t)(run->opt->seconds * 1e9 / SLICE_NS) + 1;
	run->slice = calloc(run->slices_max, sizeof(*run->slice));
	if (run->slice == NULL)
		return -ENOMEM;
	for (i = first; i < run->workers; i++)
		rte_eal_remote_launch(worker_main, &run->worker[i], run->worker[i].lcore);
	loop(run);
	for (i = first; i < run->workers; i++)
		rte_eal_wait_lcore(run->worker[i].lcore);
	for (i = 0; i < run->workers; i++)
		kv_loop_audit(&run->worker[i].loop);
	return 0;
}
