/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's memory, its threads and the search; weak.h says what they mean. Not instrumented. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "weak_private.h"

#define STACK_LEN   65536
#define WORDS_MAX   128
#define VALUES_MAX  64
#define CHOICES_MAX 4096
#define STEPS_MAX   20000
#define REGIONS_MAX 16

/* What a thread may no longer overlook: per word the oldest value it sees, per thread a time. */
struct view {
	uint8_t seen[WORDS_MAX];
	uint8_t clock[WEAK_THREADS];
};

struct value {
	uint64_t v;
	struct view view; /* of a release; else of this word alone */
};

/* A word with all values of this execution. */
struct word {
	volatile void *p;
	size_t size;
	unsigned int users, writers; /* threads, over all executions */
	unsigned int run;            /* the execution that the rest is of */
	uint8_t n;
	uint8_t sc; /* the newest value that a seq_cst access saw */
	struct value value[VALUES_MAX];
};

/* The last plain accesses to a byte, and the last atomic store: thread + 1, and its time. */
struct cell {
	unsigned int run;
	uint8_t writer, wrote, storer, stored;
	uint8_t read[WEAK_THREADS];
};

struct region {
	uint8_t *p;
	size_t len;
	uint8_t *image;
	struct cell *cell;
};

enum thread_state {
	DONE,
	READY,
	WAITS,
	WAITS_AGAIN, /* since all stores became visible */
};

struct thread {
	enum thread_state state;
	bool arrived; /* at an access to a shared word, which is its next step */
	bool woken;   /* by the visibility of all stores, and no store has come since */
	uint64_t history;
	struct view view;
	uint8_t floor[WORDS_MAX]; /* nothing older is visible any more */
	ucontext_t context;
	uint8_t *stack;
};

static struct {
	const struct weak_scenario *scenario;
	const struct weak_fault *fault;
	bool running, trace;
	bool whole; /* no thread was left before its end */
	bool anew;  /* the search starts again */
	char what[256];
	ucontext_t context;
	struct thread thread[WEAK_THREADS];
	unsigned int bit; /* of the scenario */
	unsigned int self, run, steps;
	/* The choices of this execution: those before `at` are made. */
	struct {
		uint8_t pick, of;
	} choice[CHOICES_MAX];
	unsigned int choices, at;
	uint64_t *visited; /* a hash set of states; 0 is empty */
	size_t visited_max, visited_n;
} m;

static struct word words[WORDS_MAX];
static unsigned int nwords;
static struct region regions[REGIONS_MAX];
static unsigned int nregions;

/* ---- the end of an execution ---- */

/* Leave the threads for the search. */
static void
stop(void)
{
	m.whole = false;
	setcontext(&m.context);
	abort();
}

__attribute__((format(printf, 1, 2))) static void
fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.what, sizeof(m.what), fmt, ap);
	va_end(ap);
	if (m.running)
		stop();
}

static void
need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "weak: %s\n", what);
	exit(2);
}

/* ---- choices and states ---- */

static uint64_t
mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
	h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 29;
}

static unsigned int
choose(unsigned int n)
{
	if (n == 1)
		return 0;
	if (m.at == m.choices) {
		need(m.choices < CHOICES_MAX, "CHOICES_MAX is too low");
		m.choice[m.choices].pick = 0;
		m.choice[m.choices++].of = (uint8_t)n;
	}
	return m.choice[m.at++].pick;
}

/* The next choices to try; false: all were. */
static bool
next_choices(void)
{
	while (m.choices > 0 && m.choice[m.choices - 1].pick + 1 == m.choice[m.choices - 1].of)
		m.choices--;
	if (m.choices == 0)
		return false;
	m.choice[m.choices - 1].pick++;
	return true;
}

static bool visit(uint64_t state);

static void
visited_grow(void)
{
	uint64_t *old = m.visited;
	size_t max = m.visited_max, i;

	m.visited_max = max != 0 ? 2 * max : 1 << 16;
	m.visited = calloc(m.visited_max, sizeof(*m.visited));
	need(m.visited != NULL, "no memory");
	m.visited_n = 0;
	for (i = 0; i < max; i++)
		if (old[i] != 0)
			visit(old[i]);
	free(old);
}

/* Whether the state is new; then it is kept. */
static bool
visit(uint64_t state)
{
	size_t i;

	if (2 * (m.visited_n + 1) > m.visited_max)
		visited_grow();
	state |= 1;
	for (i = state >> 20 & (m.visited_max - 1); m.visited[i] != 0;
		i = (i + 1) & (m.visited_max - 1))
		if (m.visited[i] == state)
			return false;
	m.visited[i] = state;
	m.visited_n++;
	return true;
}

static uint64_t
state_now(void)
{
	uint64_t h = 0;
	unsigned int i;

	for (i = 0; i < WEAK_THREADS; i++)
		h = mix(h,
			mix(m.thread[i].history,
				m.thread[i].state * 4u + m.thread[i].woken * 2u +
					m.thread[i].arrived));
	return h;
}

/* ---- threads ---- */

static void
go_to(unsigned int next)
{
	struct thread *from = &m.thread[m.self];

	if (next == m.self)
		return;
	m.self = next;
	swapcontext(&from->context, &m.thread[next].context);
}

/* Every thread that has not ended waits: let all see everything, or fail. */
static void
wake_all(void)
{
	unsigned int i, w, n = 0;
	struct thread *t;

	for (i = 0; i < WEAK_THREADS; i++) {
		t = &m.thread[i];
		if (t->state != WAITS)
			continue;
		n++;
		t->state = READY;
		t->woken = true;
		for (w = 0; w < nwords; w++) {
			if (words[w].run == m.run)
				t->floor[w] = (uint8_t)(words[w].n - 1);
			t->history = mix(t->history, t->floor[w]);
		}
	}
	if (n == 0)
		fail("deadlock: every thread waits, and none will store");
}

/* Another thread's turn, perhaps; from one that goes on, waits or has ended. */
static void
schedule(void)
{
	unsigned int ready[WEAK_THREADS], n, i, waits;

	if (++m.steps > STEPS_MAX)
		fail("no end after %u steps", m.steps);
	if (!m.trace && m.at == m.choices && !visit(state_now()))
		stop();
	do {
		n = waits = 0;
		/* This thread first. */
		for (i = 0; i < WEAK_THREADS; i++) {
			unsigned int t = (m.self + i) % WEAK_THREADS;

			if (m.thread[t].state == READY)
				ready[n++] = t;
			waits += m.thread[t].state > READY;
		}
		if (n == 0 && waits != 0)
			wake_all();
	} while (n == 0 && waits != 0);
	if (n == 0) { /* the end */
		setcontext(&m.context);
		abort();
	}
	go_to(ready[choose(n)]);
}

static void
thread_main(void)
{
	m.scenario->thread[m.self]();
	m.thread[m.self].state = DONE;
	schedule();
}

void
weak_wait(void)
{
	struct thread *t = &m.thread[m.self];

	t->state = t->woken ? WAITS_AGAIN : WAITS;
	t->history = mix(t->history, 'w');
	schedule();
}

void
weak_check(bool good, const char *what)
{
	if (!good)
		fail("%s", what);
}

/* ---- plain accesses ---- */

void
weak_memory(void *p, size_t len)
{
	struct region *r = &regions[nregions];

	need(nregions < REGIONS_MAX, "REGIONS_MAX is too low");
	*r = (struct region){p, len, malloc(len), calloc(len, sizeof(struct cell))};
	need(r->image != NULL && r->cell != NULL, "no memory");
	nregions++;
}

static void
race(const char *what, const void *p)
{
	fail("data race: %s at %p of thread %u", what, p, m.self);
}

/* What has become of a byte until now. */
static struct cell *
cell_of(const uint8_t *p)
{
	struct cell *c;
	unsigned int i;

	for (i = 0; i < nregions; i++)
		if ((size_t)(p - regions[i].p) < regions[i].len) {
			c = &regions[i].cell[p - regions[i].p];
			if (c->run != m.run)
				*c = (struct cell){.run = m.run};
			return c;
		}
	return NULL;
}

/* Whether this thread knows of what thread `who` - 1 did at that time. */
static bool
knows(uint8_t who, uint8_t when)
{
	return who == 0 || who - 1u == m.self || m.thread[m.self].view.clock[who - 1] >= when;
}

/* An access by this thread: plain or atomic, a load or a store. */
static void
touch(const volatile void *p, size_t len, bool atomic, bool store)
{
	const uint8_t *at = (const uint8_t *)(uintptr_t)p, *end = at + len;
	uint8_t now = m.thread[m.self].view.clock[m.self], i;
	struct cell *c;

	if (!m.running)
		return;
	for (; at < end; at++) {
		c = cell_of(at);
		if (c == NULL)
			return;
		if (!knows(c->writer, c->wrote))
			race("an access after a plain store", at);
		if (!atomic && !knows(c->storer, c->stored))
			race("a plain access after an atomic store", at);
		for (i = 0; store && i < WEAK_THREADS; i++)
			if (c->read[i] != 0 && !knows((uint8_t)(i + 1), c->read[i]))
				race("a store after a plain load", at);
		if (!store && !atomic)
			c->read[m.self] = now;
		if (store && atomic)
			c->storer = (uint8_t)(m.self + 1), c->stored = now;
		if (store && !atomic)
			c->writer = (uint8_t)(m.self + 1), c->wrote = now;
	}
}

void
weak_plain(const void *p, size_t len, bool store)
{
	touch(p, len, false, store);
}

/* ---- atomic accesses ---- */

static uint64_t
load_as(const volatile void *p, size_t size)
{
	uint64_t v = 0;

	memcpy(&v, (const void *)(uintptr_t)p, size);
	return v;
}

static bool
is_shared(const struct word *w)
{
	return w->writers != 0 && (w->users & (w->users - 1)) != 0;
}

static struct word *
word_of(const volatile void *p, size_t size)
{
	unsigned int i;

	for (i = 0; i < nwords; i++)
		if (words[i].p == p)
			break;
	need(i < WORDS_MAX, "WORDS_MAX is too low");
	need(i == nwords || words[i].size == size, "a word is accessed in two sizes");
	words[i].p = (volatile void *)(uintptr_t)p;
	words[i].size = size;
	nwords += i == nwords;
	return &words[i];
}

/*
 * The word of an access, after the turn of others. Words that one thread alone touches, or that
 * none stores to, need no turn: the first time that this changes, the search starts anew.
 */
static struct word *
arrive(const volatile void *p, size_t size, bool store)
{
	struct word *w = word_of(p, size);
	bool was = is_shared(w);

	w->users |= 1u << m.self;
	w->writers |= (unsigned int)store << m.self;
	if (is_shared(w) != was) {
		m.anew = true;
		stop();
	}
	if (was) {
		m.thread[m.self].arrived = true;
		schedule();
		m.thread[m.self].arrived = false;
	}
	if (w->run != m.run) {
		w->run = m.run;
		w->n = 1;
		w->sc = 0;
		w->value[0] = (struct value){.v = load_as(p, size)};
	}
	need(load_as(p, size) == w->value[w->n - 1].v, "a plain store to an atomic word");
	touch(p, size, true, store);
	return w;
}

static void
step(const struct weak_site *site, const struct word *w, const char *what, unsigned int at)
{
	struct thread *t = &m.thread[m.self];

	t->history = mix(t->history, (uint64_t)(w - words) << 16 | (uint64_t)what[0] << 8 | at);
	if (m.trace)
		printf("  thread %u  %-8s word %td value %u = 0x%" PRIx64 "  %s:%d %s\n", m.self,
			what, w - words, at, w->value[at].v, site->file, site->line, site->func);
}

static void
join(struct view *to, const struct view *from)
{
	unsigned int i;

	for (i = 0; i < nwords; i++)
		if (to->seen[i] < from->seen[i])
			to->seen[i] = from->seen[i];
	for (i = 0; i < WEAK_THREADS; i++)
		if (to->clock[i] < from->clock[i])
			to->clock[i] = from->clock[i];
}

/* The oldest value that this thread may read. */
static unsigned int
oldest(const struct word *w, unsigned int orders)
{
	const struct thread *t = &m.thread[m.self];
	unsigned int low = t->view.seen[w - words];

	if (low < t->floor[w - words])
		low = t->floor[w - words];
	return (orders & WEAK_SEQ_CST) != 0 && low < w->sc ? w->sc : low;
}

static void
read_value(struct word *w, unsigned int at, unsigned int orders)
{
	struct view *view = &m.thread[m.self].view;

	if (view->seen[w - words] < at)
		view->seen[w - words] = (uint8_t)at;
	if ((orders & WEAK_ACQUIRE) != 0)
		join(view, &w->value[at].view);
	if ((orders & WEAK_SEQ_CST) != 0 && w->sc < at)
		w->sc = (uint8_t)at;
}

/* Store; an update passes on the view of the value that it read. */
static void
write_value(struct word *w, uint64_t v, unsigned int orders, bool update)
{
	struct thread *t = &m.thread[m.self];
	struct value *new = &w->value[w->n];
	unsigned int i;

	need(w->n < VALUES_MAX, "VALUES_MAX is too low");
	*new = (struct value){.v = v};
	t->view.seen[w - words] = w->n;
	new->view.seen[w - words] = w->n;
	if ((orders & WEAK_RELEASE) != 0)
		new->view = t->view;
	if (update)
		join(&new->view, &w->value[w->n - 1].view);
	if ((orders & WEAK_SEQ_CST) != 0)
		w->sc = w->n;
	need(++t->view.clock[m.self] != 0, "an execution is too long");
	memcpy((void *)(uintptr_t)w->p, &v, w->size);
	w->n++;
	for (i = 0; i < WEAK_THREADS; i++)
		if (i != m.self) {
			m.thread[i].woken = false;
			if (m.thread[i].state > READY)
				m.thread[i].state = READY;
		}
}

static unsigned int
orders_of(struct weak_site *s)
{
	s->ran |= m.bit;
	return m.fault != NULL && weak_same_site(s, m.fault->site) ? s->orders & ~m.fault->removed
								   : s->orders;
}

void
weak_load(struct weak_site *site, const volatile void *p, void *v, size_t size)
{
	unsigned int orders, at;
	struct word *w;

	if (!m.running) {
		memcpy(v, (const void *)(uintptr_t)p, size);
		return;
	}
	orders = orders_of(site);
	w = arrive(p, size, false);
	at = w->n - 1u;
	at -= choose(w->n - oldest(w, orders));
	step(site, w, "load", at);
	read_value(w, at, orders);
	memcpy(v, &w->value[at].v, size);
}

void
weak_store(struct weak_site *site, volatile void *p, const void *v, size_t size)
{
	struct word *w;

	if (!m.running) {
		memcpy((void *)(uintptr_t)p, v, size);
		return;
	}
	w = arrive(p, size, true);
	write_value(w, load_as(v, size), orders_of(site), false);
	step(site, w, "store", w->n - 1u);
}

static uint64_t
updated(enum weak_op op, uint64_t old, uint64_t v)
{
	switch (op) {
	case WEAK_ADD:
		return old + v;
	case WEAK_OR:
		return old | v;
	case WEAK_AND:
		return old & v;
	default:
		return v;
	}
}

void
weak_rmw(struct weak_site *site, volatile void *p, void *v, size_t size, enum weak_op op)
{
	uint64_t old = load_as(p, size), new = load_as(v, size);
	struct word *w = NULL;

	if (m.running) {
		w = arrive(p, size, true);
		old = w->value[w->n - 1].v;
		read_value(w, w->n - 1u, orders_of(site));
	}
	memcpy(v, &old, size);
	new = updated(op, old, new);
	if (!m.running) {
		memcpy((void *)(uintptr_t)p, &new, size);
		return;
	}
	write_value(w, new, orders_of(site), true);
	step(site, w, "update", w->n - 1u);
}

/* A failing one is a load with acquire of any visible value that differs. */
bool
weak_cas(struct weak_site *site, volatile void *p, void *expected, const void *v, size_t size)
{
	uint64_t want = load_as(expected, size);
	unsigned int orders, at[VALUES_MAX], n = 0, i;
	struct word *w;

	if (!m.running) {
		if (load_as(p, size) != want) {
			memcpy(expected, (const void *)(uintptr_t)p, size);
			return false;
		}
		memcpy((void *)(uintptr_t)p, v, size);
		return true;
	}
	orders = orders_of(site);
	w = arrive(p, size, true);
	for (i = w->n; i-- > oldest(w, orders);)
		if (i == w->n - 1u || w->value[i].v != want)
			at[n++] = i;
	i = at[choose(n)];
	read_value(w, i, orders);
	if (w->value[i].v != want) {
		memcpy(expected, &w->value[i].v, size);
		step(site, w, "differs", i);
		return false;
	}
	write_value(w, load_as(v, size), orders, true);
	step(site, w, "swap", w->n - 1u);
	return true;
}

/* ---- the search ---- */

static void
start(void)
{
	unsigned int i;

	m.run++;
	m.steps = m.at = m.self = 0;
	m.what[0] = '\0';
	for (i = 0; i < nregions; i++)
		memcpy(regions[i].p, regions[i].image, regions[i].len);
	for (i = 0; i < WEAK_THREADS; i++) {
		struct thread *t = &m.thread[i];

		t->state = m.scenario->thread[i] != NULL ? READY : DONE;
		t->woken = t->arrived = false;
		t->history = i;
		memset(&t->view, 0, sizeof(t->view));
		memset(t->floor, 0, sizeof(t->floor));
		t->view.clock[i] = 1;
		if (t->stack == NULL)
			t->stack = malloc(STACK_LEN);
		need(t->stack != NULL, "no memory");
		getcontext(&t->context);
		t->context.uc_stack.ss_sp = t->stack;
		t->context.uc_stack.ss_size = STACK_LEN;
		makecontext(&t->context, thread_main, 0);
	}
}

/* One execution with the choices as they are; false: it failed. */
static bool
execute(void)
{
	start();
	m.running = m.whole = true;
	swapcontext(&m.context, &m.thread[0].context);
	m.running = false;
	if (m.whole && m.scenario->end != NULL)
		m.scenario->end();
	return m.what[0] == '\0';
}

void
weak_setup(const struct weak_scenario *s, unsigned int bit)
{
	unsigned int i;

	/* The last scenario's objects are whole again, so that setup can free them. */
	for (i = 0; i < nregions; i++) {
		memcpy(regions[i].p, regions[i].image, regions[i].len);
		free(regions[i].image);
		free(regions[i].cell);
	}
	nregions = 0;
	nwords = 0;
	memset(words, 0, sizeof(words));
	m.scenario = s;
	m.bit = bit;
	s->setup();
	for (i = 0; i < nregions; i++)
		memcpy(regions[i].image, regions[i].p, regions[i].len);
}

bool
weak_explore(const struct weak_fault *fault, struct weak_result *r)
{
	bool good;

	m.fault = fault;
	m.anew = true;
	r->executions = 0;
	do {
		if (m.anew) {
			m.anew = false;
			m.choices = 0;
			free(m.visited);
			m.visited = NULL;
			m.visited_max = 0;
			visited_grow();
		}
		good = execute();
		r->executions++;
	} while (good && (m.anew || next_choices()));
	r->states = m.visited_n;
	snprintf(r->what, sizeof(r->what), "%s", m.what);
	return good;
}

void
weak_replay(void)
{
	m.trace = true;
	execute();
	m.trace = false;
	printf("  %s\n", m.what);
}
