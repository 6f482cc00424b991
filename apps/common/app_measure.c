/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app_measure.h"
#include "crpc_clock.h"

#define PING_WARM   200u
#define PING_BATCH 200u
#define PING_BATCHES 20u
#define PING_ALL (PING_WARM + PING_BATCH * PING_BATCHES)
#define LINE_STEP    32u

const char *const app_state_names[APP_STATES] = {"near", "far", "mixed"};

/* ---- the court ---- */

void
app_court_reset(struct app_court *c)
{
	crpc_store_release(&c->ball, 0);
}

static bool
late(uint64_t begin_ns)
{
	return crpc_clock_ns() - begin_ns > (uint64_t)APP_COURT_LATE_NS;
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double
app_median(double *v, uint32_t n)
{
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* The median batch: one in which something else had a core does not count. */
double
app_court_ping(struct app_court *c)
{
	uint64_t now, then = 0, t0 = crpc_clock_ns();
	double batch[PING_BATCHES];
	uint32_t n = 0;

	for (uint64_t i = 0; i < PING_ALL; i++) {
		if (i == PING_WARM)
			then = crpc_clock_ns();
		crpc_store_release(&c->ball, 2 * i + 1); /* R40 */
		while (crpc_load_acquire(&c->ball) != 2 * i + 2) /* A41 pairs with R41 */
			if (late(t0))
				return APP_COURT_LATE_NS;
		if (i < PING_WARM || (i + 1 - PING_WARM) % PING_BATCH != 0)
			continue;
		now = crpc_clock_ns();
		batch[n++] = (double)(now - then) / PING_BATCH;
		then = now;
	}
	return app_median(batch, n);
}

void
app_court_pong(struct app_court *c)
{
	uint64_t t0 = crpc_clock_ns();

	for (uint64_t i = 0; i < PING_ALL; i++) {
		while (crpc_load_acquire(&c->ball) != 2 * i + 1) /* A40 pairs with R40 */
			if (late(t0))
				return;
		crpc_store_release(&c->ball, 2 * i + 2); /* R41 */
	}
}

static void *
pong(void *arg)
{
	app_court_pong(arg);
	return NULL;
}

double
app_measure_line_ns(void)
{
	int rc = EINVAL, mine = sched_getcpu(), cpus = (int)sysconf(_SC_NPROCESSORS_CONF);
	static struct app_court court;
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t set;
	double ns = 0;

	crpc_clock_init();
	app_court_reset(&court);
	for (int cpu = 0; cpu < cpus && cpu < CPU_SETSIZE && rc != 0; cpu++) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		pthread_attr_init(&attr);
		if (cpu != mine && pthread_attr_setaffinity_np(&attr, sizeof(set), &set) == 0)
			rc = pthread_create(&thread, &attr, pong, &court);
		pthread_attr_destroy(&attr);
	}
	if (rc == 0) {
		ns = app_court_ping(&court);
		pthread_join(thread, NULL);
	}
	return ns;
}

void
app_lines_begin(struct app_lines *l, uint64_t ns)
{
	for (uint32_t i = 0; i < APP_LINES_MAX; i++)
		crpc_store_relaxed(&l->line[i].generation, 0);
	crpc_store_relaxed(&l->freed, 0);
	crpc_store_release(&l->end_ns, crpc_clock_ns() + ns);
}

/* Write the next lines. */
static void
lines_write(struct app_lines *l, uint64_t at, uint32_t mask)
{
	for (uint32_t i = 0; i < LINE_STEP; i++, at++) {
		for (uint32_t w = 0; w < CRPC_DIM(l->line[0].word); w++)
			l->line[at & mask].word[w] = at;
		crpc_store_release(&l->line[at & mask].generation, at + 1); /* R42 */
	}
}

/* Read the lines that are there, a step at most. Returns their number. */
static uint32_t
lines_read(struct app_lines *l, uint64_t at, uint32_t mask, uint64_t *sum)
{
	uint32_t i;

	for (i = 0; i < LINE_STEP; i++, at++) {
		/* A42 pairs with R42 */
		if (crpc_load_acquire(&l->line[at & mask].generation) != at + 1)
			break;
		for (uint32_t w = 0; w < CRPC_DIM(l->line[0].word); w++)
			*sum += l->line[at & mask].word[w];
	}
	return i;
}

void
app_lines_move(struct app_lines *to, struct app_lines *from, uint32_t lines)
{
	uint64_t end = crpc_load_acquire(&(to != NULL ? to : from)->end_ns);
	uint64_t written = 0, freed = 0, read = 0, published = 0, sum = 0;

	while (crpc_clock_ns() < end) {
		if (to != NULL && written + LINE_STEP - freed > lines) {
			freed = crpc_load_acquire(&to->freed); /* A43 pairs with R43 */
		} else if (to != NULL) {
			lines_write(to, written, lines - 1);
			written += LINE_STEP;
		}
		if (from == NULL)
			continue;
		read += lines_read(from, read, lines - 1, &sum);
		if (read - published >= lines / 4) {
			crpc_store_release(&from->freed, read); /* R43 */
			published = read;
		}
	}
	if (from != NULL)
		crpc_store_release(&from->freed, read);
	__asm__ __volatile__("" : : "r"(sum));
}

/* ---- slices ---- */

enum app_state
app_state_of(double before_ns, double after_ns)
{
	bool far[2] = {before_ns >= APP_LINE_NEAR_NS, after_ns >= APP_LINE_NEAR_NS};

	if (before_ns >= APP_COURT_LATE_NS || after_ns >= APP_COURT_LATE_NS)
		return APP_STATE_MIXED;
	return far[0] != far[1] ? APP_STATE_MIXED : far[0] ? APP_STATE_FAR : APP_STATE_NEAR;
}

int
app_series_add(struct app_series *s, const struct app_slice *slice)
{
	uint32_t size = s->size == 0 ? 64 : 2 * s->size;
	struct app_slice *more;

	if (s->n == s->size) {
		more = realloc(s->slice, size * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		s->slice = more;
		s->size = size;
	}
	s->slice[s->n++] = *slice;
	return 0;
}

void
app_series_fini(struct app_series *s)
{
	free(s->slice);
	*s = (struct app_series){0};
}

static bool
counts(const struct app_slice *slice, enum app_state state)
{
	return state == APP_STATE_MIXED ||
	       app_state_of(slice->line_ns[0], slice->line_ns[1]) == state;
}

enum app_state
app_series_state(const struct app_series *s, uint32_t n, uint32_t count[APP_STATES])
{
	uint32_t least[APP_STATES] = {UINT32_MAX, UINT32_MAX, UINT32_MAX}, mine[APP_STATES];

	memset(count, 0, APP_STATES * sizeof(*count));
	for (uint32_t i = 0; i < n; i++) {
		if (s[i].n == 0)
			continue;
		memset(mine, 0, sizeof(mine));
		for (uint32_t k = 0; k < s[i].n; k++)
			mine[app_state_of(s[i].slice[k].line_ns[0], s[i].slice[k].line_ns[1])]++;
		for (uint32_t k = 0; k < APP_STATES; k++) {
			count[k] += mine[k];
			least[k] = (uint32_t)crpc_min(least[k], mine[k]);
		}
	}
	if (least[APP_STATE_NEAR] == 0 && least[APP_STATE_FAR] == 0)
		return APP_STATE_MIXED;
	return least[APP_STATE_NEAR] >= least[APP_STATE_FAR] ? APP_STATE_NEAR : APP_STATE_FAR;
}

struct app_figure
app_figure_of(double *v, uint32_t n)
{
	double median = app_median(v, n);

	return n == 0 ? (struct app_figure){0} : (struct app_figure){median, v[0], v[n - 1], n};
}

/* Median and spread of the slices' values, or of the ping-pongs around them. */
static struct app_figure
figure_of(const struct app_series *s, enum app_state state, bool line)
{
	double *v = calloc((size_t)s->n + 1, sizeof(*v));
	struct app_figure figure;
	uint32_t n = 0;

	for (uint32_t i = 0; v != NULL && i < s->n; i++)
		if (counts(&s->slice[i], state))
			v[n++] = line ? (s->slice[i].line_ns[0] + s->slice[i].line_ns[1]) / 2
				      : s->slice[i].value;
	figure = app_figure_of(v, n);
	free(v);
	return figure;
}

struct app_figure
app_series_figure(const struct app_series *s, enum app_state state)
{
	return figure_of(s, state, false);
}

double
app_series_median(const struct app_series *s, enum app_state state)
{
	return figure_of(s, state, false).median;
}

double
app_series_ratio(const struct app_series *a, const struct app_series *b, enum app_state state)
{
	uint32_t n = 0, most = (uint32_t)crpc_min(a->n, b->n);
	double *q = calloc((size_t)most + 1, sizeof(*q)), median;

	for (uint32_t i = 0; q != NULL && i < most; i++)
		if (counts(&a->slice[i], state) && counts(&b->slice[i], state) &&
			b->slice[i].value > 0)
			q[n++] = a->slice[i].value / b->slice[i].value;
	median = app_median(q, n);
	free(q);
	return median;
}

double
app_series_line_ns(const struct app_series *s, enum app_state state)
{
	return figure_of(s, state, true).median;
}

uint32_t
app_series_disturbed(const struct app_series *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		n += (double)s->slice[i].away_ns * 100.0 > APP_AWAY_PCT_NOISY * s->slice[i].ns;
	return n;
}

void
app_trial_begin(struct app_trial *t)
{
	app_env_steal(&t->before);
}

void
app_trial_end(struct app_trial *t, const struct app_series *s, uint32_t n)
{
	uint32_t slices = 0, disturbed = 0;
	double away_ns = 0, ns = 0;

	t->steal_pct = app_env_steal_pct(&t->before);
	t->state = app_series_state(s, n, t->count);
	for (uint32_t i = 0; i < n; i++) {
		if (s[i].sleeps)
			continue;
		slices += s[i].n;
		disturbed += app_series_disturbed(&s[i]);
		for (uint32_t k = 0; k < s[i].n; k++) {
			away_ns += (double)s[i].slice[k].away_ns;
			ns += s[i].slice[k].ns;
		}
	}
	t->away_pct = ns > 0 ? 100 * away_ns / ns : 0;
	t->noisy = t->steal_pct > APP_STEAL_PCT_NOISY || t->state == APP_STATE_MIXED ||
		disturbed * 4 > slices;
}

uint64_t
app_measure_away_ns(void)
{
	unsigned long long ran, waited;
	struct rusage u;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	int n = f != NULL ? fscanf(f, "%llu %llu", &ran, &waited) : 0;

	if (f != NULL)
		fclose(f);
	if (n == 2)
		return waited;
	return getrusage(RUSAGE_THREAD, &u) == 0 ? (uint64_t)u.ru_nivcsw * 1000000 : 0;
}
