/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringbench: what a message between two lcores costs, beside rte_ring and other queues, and beside
 * what the machine can do at all.
 *
 * For each pattern, size and burst: `repeat` rounds; in a round every transport gets its slices in
 * turn, a line ping-pong before and after each. Slices are compared only with slices of the same
 * state.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "app_eal.h"
#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "rb.h"

#define SLICE_NS 60e6
#define CHECK_NS 10e6
#define LINE_NS  5000000u

static volatile sig_atomic_t interrupted;
static unsigned int lcore_id[RB_LCORES_MAX];
static uint32_t lcore_count;
static bool counters_reported;
static struct rb_limits limits;

static void
on_signal(int sig)
{
	interrupted = 1;
}

/* One lcore's part of a slice, between two readings of what can disturb or explain it. */
static void
part_run(struct rb_slice *s, uint32_t index)
{
	uint64_t before = app_measure_away_ns();
	bool counted = false;
	struct app_perf perf;
	int rc;

	if (s->c.counters && index < 2) {
		rc = app_perf_open(&perf);
		counted = rc == 0;
		if (rc != 0 && index == 0 && !counters_reported) {
			counters_reported = true;
			printf("counters: this machine has none for us (%s)\n", strerror(-rc));
		}
	}
	if (s->c.pattern >= RB_FLUX)
		rb_nodes_run(s, index);
	else if (index == 0)
		rb_ring_first(s);
	else
		rb_ring_second(s);
	if (counted) {
		app_perf_read(&perf, s->r.counter[index]);
		app_perf_close(&perf);
		if (index == 0)
			s->r.counted = true;
	}
	crpc_fetch_add_relaxed(&s->away_ns, app_measure_away_ns() - before);
}

struct part {
	struct rb_slice *s;
	uint32_t index;
};

static int
part_main(void *arg)
{
	struct part *p = arg;

	if (p->s->c.pattern < RB_FLUX)
		crpc_fetch_add_relaxed(&p->s->ready, 1);
	part_run(p->s, p->index);
	return 0;
}

/* Lcores that a pattern uses. */
static uint32_t
lcores_of(const struct rb_case *c)
{
	uint32_t n = c->pattern >= RB_FLUX ? c->nodes : 2;

	return n < lcore_count ? n : lcore_count;
}

/* Run one slice; line[1] is the ping-pong after it, and the one before the next. */
static int
slice_run(struct rb_slice *s, double *line)
{
	bool nodes = s->c.pattern >= RB_FLUX;
	struct part part[RB_LCORES_MAX];
	uint64_t t0;
	uint32_t i;
	int rc;

	s->c.nlcores = lcores_of(&s->c);
	rc = nodes ? rb_nodes_open(s) : rb_ring_open(s);
	if (rc != 0)
		return rc;
	for (i = 1; i < s->c.nlcores; i++) {
		part[i] = (struct part){s, i};
		rte_eal_remote_launch(part_main, &part[i], lcore_id[i]);
	}
	while (!nodes && crpc_load_acquire(&s->ready) == 0)
		;
	t0 = crpc_clock_ns();
	part_run(s, 0);
	s->r.ns = crpc_clock_ns() - t0;
	crpc_store_relaxed(&s->stop, 1);
	rte_eal_mp_wait_lcore();
	if (nodes)
		rb_nodes_close(s);
	else
		rb_ring_close(s);
	s->r.messages = crpc_load_relaxed(&s->done);
	s->r.bad = crpc_load_relaxed(&s->bad);
	s->r.away_ns = crpc_load_relaxed(&s->away_ns);
	s->r.line_ns[0] = line[0];
	line[0] = s->r.line_ns[1] = rb_env_line_ns(lcore_id[1]);
	return 0;
}

static uint64_t
ticks_of(double ns)
{
	return (uint64_t)(ns * 4294967296.0 / (double)crpc_clock.mult);
}

/* One slice of a transport, or its untimed check. */
static int
transport_run(struct rb_case *c, bool check, double ns, double *line, struct rb_out *out)
{
	struct rb_slice *s = rte_zmalloc(NULL, sizeof(*s), 128);
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->c = *c;
	s->c.check = check;
	s->c.counters = c->counters && !check;
	s->c.ticks = ticks_of(ns);
	rc = slice_run(s, line);
	if (rc != 0) {
		app_note("%s: %s", rb_transport_names[c->transport],
			crpc_log_last()[0] != '\0' ? crpc_log_last() : strerror(-rc));
	} else if (s->r.bad != 0) {
		app_note("%s, %s, %u bytes, burst %u: %lu wrong of %lu messages",
			rb_transport_names[c->transport], rb_pattern_names[c->pattern], c->size,
			c->burst, (unsigned long)s->r.bad, (unsigned long)s->r.messages);
		rc = -EBADMSG;
	} else if (!check &&
			s->r.messages != 0) { /* none: something else had a core all the time */
		rb_out_slice(out, c, &s->r);
	}
	rte_free(s);
	return rc;
}

/* A slice of the machine's line rate, in the direction or directions of the pattern. */
static void
line_run(const struct rb_case *c, double *line, struct rb_out *out)
{
	enum rb_ways ways = c->pattern == RB_STREAM ? RB_ONE_WAY : RB_BOTH_WAYS;
	struct app_slice s = {.line_ns = {line[0]}, .ns = LINE_NS};
	uint64_t before = app_measure_away_ns();

	s.value = rb_env_line_rate(lcore_id[1], ways, rb_lags[limits.best[ways]], LINE_NS);
	s.away_ns = app_measure_away_ns() - before;
	line[0] = s.line_ns[1] = rb_env_line_ns(lcore_id[1]);
	if (s.value > 0) /* else something else had a core all the time */
		rb_out_line(out, &s);
}

/* All rounds of one pattern, size and burst. */
static int
case_run(const struct rb_opt *o, struct rb_case *c, struct rb_out *out)
{
	uint32_t slices = (uint32_t)(o->seconds * 1e9 / SLICE_NS + 0.5), round, i, k;
	double line = rb_env_line_ns(lcore_id[1]), ns = SLICE_NS;
	struct app_trial trial;
	const char *why;
	int rc = 0;

	if (slices == 0) {
		slices = 1;
		ns = o->seconds * 1e9;
	}
	app_trial_begin(&trial);
	for (round = 0; round < o->repeat && rc == 0 && !interrupted; round++)
		for (k = 0; k < slices && rc == 0 && !interrupted; k++) {
			line_run(c, &line, out);
			for (i = 0; i < o->transports.n && rc == 0; i++) {
				c->transport = (enum rb_transport)o->transports.v[i];
				if (!rb_transport_usable(c->transport, c->pattern, c->size, &why)) {
					if (round == 0 && k == 0)
						printf("%s %s\n", rb_transport_names[c->transport],
							why);
					continue;
				}
				if (o->check && round == 0 && k == 0)
					rc = transport_run(
						c, true, ns < CHECK_NS ? ns : CHECK_NS, &line, out);
				if (rc == 0)
					rc = transport_run(c, false, ns, &line, out);
			}
		}
	if (rc == 0)
		rc = rb_out_case(out, c, &trial);
	return rc;
}

static int
all_run(const struct rb_opt *o, struct rb_out *out)
{
	struct rb_case c = {.depth = (uint32_t)o->depth, .counters = o->counters};
	uint32_t p, m, b;
	int rc = 0;

	c.nodes = o->nodes != 0 ? (uint32_t)o->nodes : lcore_count;
	for (p = 0; p < o->patterns.n; p++)
		for (m = 0; m < o->sizes.n; m++)
			for (b = 0; b < o->bursts.n && rc == 0 && !interrupted; b++) {
				bool one = o->patterns.v[p] == RB_LATENCY;

				c.pattern = (enum rb_pattern)o->patterns.v[p];
				c.size = (uint32_t)o->sizes.v[m];
				c.burst = one ? 1 : (uint32_t)o->bursts.v[b];
				c.inflight = one ? 1 : (uint32_t)o->inflight;
				if (!one || b == 0)
					rc = case_run(o, &c, out);
			}
	return rc;
}

static void
lcores_find(char *text, size_t len)
{
	unsigned int id;
	size_t at = 0;

	lcore_id[lcore_count++] = rte_get_main_lcore();
	RTE_LCORE_FOREACH_WORKER(id)
		if (lcore_count < RB_LCORES_MAX)
			lcore_id[lcore_count++] = id;
	for (id = 0; id < lcore_count && at < len; id++)
		at += (size_t)snprintf(
			text + at, len - at, "%s%u", id == 0 ? "" : ",", lcore_id[id]);
}

int
main(int argc, char **argv)
{
	const struct rb_opt *o;
	char lcores[64] = "";
	struct app_args args;
	struct rb_out *out;
	cpu_set_t set;
	int rc;

	app_fail_name("ringbench");
	if (app_args_answer("ringbench", argc, argv, rb_opt_help))
		return APP_EXIT_OK;
	app_args_split(&args, argc, argv);
	rc = rb_opt_parse(&o, args.argc, args.argv);
	if (rc != 0)
		return rc;
	app_eal_cores_default(RB_LCORES_MAX, &set);
	rc = app_eal_start(&args, &set);
	if (rc != 0)
		return rc;
	lcores_find(lcores, sizeof(lcores));
	if (lcore_count < 2) {
		rc = app_fail("one lcore (%s); two are needed: -l 0,1", lcores);
		goto cleanup;
	}
	crpc_clock_init();
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	out = rb_out_open(o, lcores);
	if (out == NULL) {
		rc = APP_EXIT_USAGE;
		goto cleanup;
	}
	rb_env_limits(lcore_id[1], &limits);
	rb_out_limits(out, &limits);
	rc = all_run(o, out) == 0 ? APP_EXIT_OK : APP_EXIT_RUN;
	rb_out_close(out);
cleanup:
	app_eal_stop();
	return rc;
}
