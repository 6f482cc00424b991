/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include <rte_launch.h>

#include "app_fail.h"
#include "app_stop.h"
#include "crpc_clock.h"
#include "run.h"

#define WATCH_NS    1000000
#define PAUSE_NS 20000
#define SLICE_NS    100000000
#define PROGRESS_NS 1000000000
/* How long the calls that are open may take to end. */
#define DRAIN_NS (KV_LONGEST_NS + UINT64_C(1500000000))
/* How long the ranks may differ in coming to the end. */
#define LINGER_NS (DRAIN_NS + UINT64_C(1500000000))
/* When a launcher ends a run it kills soon after: results first. */
#define LINGER_INTERRUPTED_NS 300000000
#define LINGER_LOST_NS        500000000

/* All that daemon number i of the seat, or its link where there is none, has counted. */
static struct kv_window
counted(const struct kv_seat *s, uint32_t i)
{
	const void *end = i < s->daemons ? s->port[i] : s->load.link;
	struct crpc_kv_parts parts;
	struct kv_window w = {0};

	if (i < s->daemons) {
		crpc_kv_daemon_stats(s->daemon[i], &w.stats);
		w.net.waited = w.stats.waited;
		crpc_kv_daemon_parts(s->daemon[i], &parts);
		if (parts.copyrpc != NULL)
			app_net_count(parts.copyrpc, parts.device, &w.net);
	}
	if (end != NULL && s->run->backend->counts != NULL)
		s->run->backend->counts(end, &w.net);
	return w;
}

static void
window_end(const struct kv_seat *s, uint32_t i, struct kv_window *w)
{
	struct kv_window begin = *w;

	*w = counted(s, i);
	app_words_add(w, &begin, sizeof(begin), -1);
}

static void
seat_measure(struct kv_seat *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->daemons; i++)
		s->window[i] = counted(s, i);
	s->link = counted(s, s->daemons);
	s->away_begin = app_measure_away_ns();
	if (s->run->opt->counters) {
		s->perf_rc = app_perf_open(&s->perf);
		if (s->perf_rc == 0)
			app_perf_read(&s->perf, s->counter_begin);
	}
	/* These are system calls: the window begins behind them. */
	now = s->turn_at = crpc_clock_ns();
	app_load_measure(&s->load, now);
	s->measure_from = now;
	s->phase = APP_LOAD_MEASURE;
}

static void
seat_counters(struct kv_seat *s)
{
	if (!s->run->opt->counters || s->perf_rc != 0)
		return;
	app_perf_read(&s->perf, s->counter);
	app_perf_close(&s->perf);
	for (uint32_t i = 0; i < APP_COUNTERS; i++)
		s->counter[i] -= s->counter_begin[i];
}

static void
seat_freeze(struct kv_seat *s, uint64_t now)
{
	if (s->phase == APP_LOAD_WARMUP)
		seat_measure(s, now);
	for (uint32_t i = 0; i < s->daemons; i++)
		window_end(s, i, &s->window[i]);
	window_end(s, s->daemons, &s->link);
	app_load_freeze(&s->load, now);
	seat_counters(s);
	for (uint32_t i = 0; i < APP_PAUSES; i++)
		s->pause_over[i] *= 1e3 / (double)(now - s->measure_from + 1);
	s->away_pct = 100.0 * (double)(app_measure_away_ns() - s->away_begin) /
		(double)(now - s->measure_from + 1);
	crpc_store_release(&s->frozen, 1); /* R2 */
}

/* The run's phase may have gone on by more than one. */
static void
seat_enter(struct kv_seat *s, enum app_load_phase phase, uint64_t now)
{
	if (phase == APP_LOAD_MEASURE) {
		seat_measure(s, now);
		return;
	}
	if (s->phase < APP_LOAD_COOLDOWN)
		seat_freeze(s, now);
	if (phase == APP_LOAD_STOPPED)
		app_load_stop(&s->load, now);
	s->phase = phase;
}

/* Bring a seat to the phase of the run. @return true if its clients have nothing more to do. */
static bool
seat_follow(struct kv_seat *s, uint64_t now)
{
	int phase = crpc_load_acquire(&s->run->phase); /* A1 pairs with R1 */

	if (crpc_unlikely((int)s->phase != phase))
		seat_enter(s, (enum app_load_phase)phase, now);
	return s->phase == APP_LOAD_STOPPED &&
		(app_load_open(&s->load) == 0 || crpc_load_relaxed(&s->run->quit) != 0);
}

/* One turn of all that sits here. */
static inline uint32_t
seat_turn(struct kv_seat *s, uint64_t now)
{
	uint32_t work = 0;

	for (uint32_t i = 0; i < s->daemons; i++) {
		if (i != 0)
			now = crpc_clock_ns();
		work += crpc_kv_daemon_turn(s->daemon[i], now);
	}
	if (s->load.n == 0)
		return work;
	if (s->daemons != 0)
		now = crpc_clock_ns();
	return work + app_load_turn(&s->load, now);
}

/* A turn ends. One that was longer than any work makes it was none of ours. */
static inline void
seat_pause(struct kv_seat *s, uint64_t now)
{
	if (crpc_unlikely(now - s->turn_at > PAUSE_NS) && s->phase == APP_LOAD_MEASURE)
		app_env_pause(s->pause_over, now - s->turn_at);
	s->turn_at = now;
}

/* By a link that reaches all ranks: the run was interrupted here. */
static void
seat_send_stop(struct kv_seat *s, uint64_t now)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t len = kv_req_write(msg, CRPC_KV_STOP, 0, 0);

	s->stop_sent = true;
	for (uint32_t i = 0; i < s->load.conf->owners; i++)
		s->load.ops->call(
			s->load.link, now, i, msg, len, sizeof(struct kv_resp_hdr), KV_COOKIE_NONE);
}

static void
seat_watch(struct kv_seat *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->daemons; i++)
		crpc_kv_daemon_watch(s->daemon[i], now);
	if (s->load.link == NULL)
		return;
	if (crpc_load_relaxed(&s->run->leaving) == 0)
		s->run->backend->front.watch(s->load.link, now);
	if (crpc_load_relaxed(&s->run->send_stop) != 0 && !s->stop_sent && !s->load.ops->passes)
		seat_send_stop(s, now);
}

/* A turn, and what follows from it. @return true: a millisecond has passed. */
static inline bool
seat_step(struct kv_seat *s, uint64_t *now, uint64_t *watch_at)
{
	crpc_idle_turn(&s->idle, seat_turn(s, *now));
	*now = crpc_clock_ns();
	seat_pause(s, *now);
	if (seat_follow(s, *now))
		crpc_store_release(&s->drained, 1); /* R3 */
	if (crpc_likely(*now < *watch_at))
		return false;
	seat_watch(s, *now);
	*watch_at = *now + WATCH_NS;
	return true;
}

/* A lcore other than the main one. Daemons go on until the run ends: others may need their keys. */
static int
seat_main(void *arg)
{
	struct kv_seat *s = arg;
	uint64_t now = crpc_clock_ns(), watch_at = now;

	do
		seat_step(s, &now, &watch_at);
	while (crpc_load_relaxed(&s->drained) == 0 ||
		/* A4 pairs with R4. */
		(s->daemons != 0 && crpc_load_acquire(&s->run->end) == 0));
	crpc_store_release(&s->left, 1); /* R5 */
	return 0;
}

/* What the daemons, the links or we have found, once. */
static void
report_lost(struct kv_run *run)
{
	const char *why;

	for (uint32_t i = 0; i < run->boot->size && run->lost != crpc_kv_server_lost(run->service);
		i++) {
		why = crpc_kv_server_peer_why(run->service, i);
		if (run->reported[i] || why == NULL)
			continue;
		run->reported[i] = true;
		run->lost++;
		app_note("rank %u: lost rank %u (%s); operations on its keys fail from now on, all "
			 "others go on",
			run->boot->rank, i, why);
	}
}

/*
 * Other ranks that have died. Not once ranks may leave without harm: the first lost one, or a
 * signal, makes them leave when they like.
 */
static void
watch_ranks(struct kv_run *run, uint64_t now)
{
	app_boot_look(run->boot, now);
	for (uint32_t i = 0; i < run->boot->size && !run->interrupted &&
		(crpc_load_relaxed(&run->leaving) == 0 || run->lost_at_end == 0);
		i++)
		if (i != run->boot->rank && app_boot_gone(run->boot, i))
			crpc_kv_server_lose(run->service, i, "its process has ended");
	report_lost(run);
}

/* What the clients of this rank got answered. */
static uint64_t
served(const struct kv_run *run)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < run->seats; i++)
		sum += crpc_load_relaxed(&run->seat[i].load.served_pub);
	return sum;
}

static void
begin_measure(struct kv_run *run, uint64_t now)
{
	run->window_from = now;
	/* As long as was asked, also if we come late to its begin. */
	run->stop_at = now + (uint64_t)(run->opt->seconds * 1e9);
	run->slice_at = now + SLICE_NS;
	run->slice_ops = served(run);
	crpc_store_release(&run->phase, APP_LOAD_MEASURE); /* R1 */
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
	int sig = app_stopped();

	if (sig == 0 && !crpc_kv_server_stopped(run->service))
		return false;
	if (!run->interrupted && sig != 0) {
		crpc_kv_server_stop(run->service);
		crpc_store_relaxed(&run->send_stop, 1);
	}
	run->interrupted = true;
	return true;
}

static bool
all_drained(const struct kv_run *run)
{
	for (uint32_t i = 0; i < run->seats; i++)
		if (crpc_load_acquire(&run->seat[i].frozen) == 0 || /* A2 pairs with R2 */
			crpc_load_acquire(&run->seat[i].drained) == 0) /* A3 pairs with R3 */
			return false;
	return true;
}

enum run_step {
	STEP_RUN,
	STEP_COOL,
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
	run->cool_until = now + (uint64_t)(run->opt->cooldown * 1e9);
	crpc_store_release(&run->phase, APP_LOAD_COOLDOWN); /* R1 */
	return STEP_COOL;
}

/* The load goes on, but nothing counts: other ranks may not be at their end yet. */
static enum run_step
step_cool(struct kv_run *run, uint64_t now)
{
	if (!must_stop(run, now) && now < run->cool_until)
		return STEP_COOL;
	run->deadline = now + DRAIN_NS;
	crpc_store_release(&run->phase, APP_LOAD_STOPPED); /* R1 */
	return STEP_DRAIN;
}

static enum run_step
step_drain(struct kv_run *run, uint64_t now)
{
	if (!all_drained(run) && now < run->deadline)
		return STEP_DRAIN;
	crpc_store_relaxed(&run->quit, 1);
	run->lost_at_end = crpc_kv_server_lost(run->service);
	if (run->boot->size == 1)
		return STEP_END;
	crpc_store_relaxed(&run->leaving, 1);
	crpc_kv_server_leave(run->service);
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
	if (run->lost_at_end == 0) { /* It will never come. */
		run->lost_at_end = crpc_kv_server_lost(run->service);
		if (run->lost_at_end != 0)
			return STEP_END;
	}
	if (now < run->deadline)
		return STEP_LINGER;
	if (run->lost_at_end == 0 && !run->interrupted) {
		app_note("rank %u: the other ranks did not come to the end of the run within %d s",
			run->boot->rank, (int)(LINGER_NS / 1000000000));
		run->lost_at_end = 1;
	}
	return STEP_END;
}

/* The main lcore. */
static void
loop(struct kv_run *run)
{
	static enum run_step (*const step[])(struct kv_run *, uint64_t) = {[STEP_RUN] = step_run,
		[STEP_COOL] = step_cool,
		[STEP_DRAIN] = step_drain,
		[STEP_LINGER] = step_linger};
	uint64_t now = crpc_clock_ns(), watch_at = now + WATCH_NS;
	enum run_step at = STEP_RUN;

	run->measure_at = now + (uint64_t)(run->opt->warmup * 1e9);
	run->stop_at = run->measure_at + (uint64_t)(run->opt->seconds * 1e9);
	run->progress_at = now + PROGRESS_NS;
	while (at != STEP_END) {
		if (crpc_likely(!seat_step(&run->seat[0], &now, &watch_at)))
			continue;
		watch_ranks(run, now);
		at = step[at](run, now);
	}
	crpc_store_release(&run->end, 1); /* R4 */
}

int
kv_run_loop(struct kv_run *run)
{
	run->slices_max = (uint64_t)(run->opt->seconds * 1e9 / SLICE_NS) + 1;
	run->slice = calloc(run->slices_max, sizeof(*run->slice));
	if (run->slice == NULL)
		return -ENOMEM;
	for (uint32_t i = 1; i < run->seats; i++)
		rte_eal_remote_launch(seat_main, &run->seat[i], run->seat[i].lcore);
	loop(run);
	/* What the seats wrote is the main thread's again. */
	for (uint32_t i = 1; i < run->seats; i++) {
		rte_eal_wait_lcore(run->seat[i].lcore);
		/* A5 pairs with R5. The lcore has come back: there is nothing to wait for. */
		if (crpc_load_acquire(&run->seat[i].left) == 0)
			app_note("lcore %u did not end its loop", run->seat[i].lcore);
	}
	report_lost(run);
	for (uint32_t i = 0; i < run->seats; i++)
		app_load_audit(&run->seat[i].load);
	return 0;
}
