/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls and answers lie in a list by time. Going through it, each call that the value allows is
 * taken out, with its answer, and the search starts again at the front; at an answer whose call
 * is still there, the last one taken is put back. A list of that kind makes both steps short.
 */
#include <stdlib.h>
#include <string.h>

#include "wgl.h"

/*
 * Operations without an answer that do the same as others of their kind, whoever asked: all
 * deletes, and all puts of a value that no get returned. Each is taken after those that were called
 * before it, as an order with a later one in its place is one with it, too.
 */
enum alike {
	ALIKE_NONE,
	ALIKE_DELETES,
	ALIKE_PUTS,
	ALIKES,
};

/* A call or an answer. */
struct event {
	struct event *prev, *next;
	struct event *answer; /* of a call; NULL: none came */
	size_t op;
	uint64_t time;
	size_t turn;   /* of a call of a kind: how many were called before it */
	uint8_t alike; /* enum alike */
	bool is_call;
};

/* A configuration; the second word of an empty place is 0. */
struct place {
	uint64_t hash[2];
};

/* Those seen before: open addressing, at most half full. */
struct memo {
	struct place *place;
	uint64_t size, used;
};

/* The single copy of a key. */
struct copy {
	uint64_t value;
	uint64_t kept; /* by the last snapshot */
};

/* A call that was taken, and the copy before it. */
struct step {
	struct event *call;
	struct copy copy;
};

struct search {
	const struct app_history_op *op;
	struct event *event; /* [0] is the head of the list */
	struct step *step;
	size_t depth, answered; /* calls taken; those of them that have an answer */
	struct copy copy;
	uint64_t hash[2];
	size_t alike[ALIKES]; /* taken */
	struct memo memo;
};

/* A number that belongs to i; another one for each salt. Finalizer of MurmurHash3, A. Appleby. */
static uint64_t
mix(uint64_t i, uint64_t salt)
{
	uint64_t z = i + (salt + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 33)) * UINT64_C(0xff51afd7ed558ccd);
	z = (z ^ (z >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
	return z ^ (z >> 33);
}

/* Where a configuration is, or would be. */
static struct place *
memo_find(const struct memo *memo, struct place what)
{
	uint64_t at = what.hash[0] & (memo->size - 1);

	while (memo->place[at].hash[1] != 0 &&
		memcmp(&memo->place[at], &what, sizeof(what)) != 0)
		at = (at + 1) & (memo->size - 1);
	return &memo->place[at];
}

static bool
memo_grow(struct memo *memo)
{
	struct memo more = {.size = memo->size != 0 ? 2 * memo->size : 64, .used = memo->used};

	more.place = calloc(more.size, sizeof(*more.place));
	if (more.place == NULL)
		return false;
	for (uint64_t i = 0; i < memo->size; i++)
		if (memo->place[i].hash[1] != 0)
			*memo_find(&more, memo->place[i]) = memo->place[i];
	free(memo->place);
	*memo = more;
	return true;
}

/* 1: it is new, and remembered now; 0: seen before; -1: no memory. */
static int
memo_add(struct memo *memo, struct place what)
{
	struct place *at;

	if (2 * memo->used >= memo->size && !memo_grow(memo))
		return -1;
	at = memo_find(memo, what);
	if (at->hash[1] != 0)
		return 0;
	*at = what;
	memo->used++;
	return 1;
}

/* Whether a single copy would have given this answer; sets the next copy. */
static bool
apply(const struct app_history_op *op, const struct copy *copy, struct copy *next)
{
	uint64_t value = copy->value;

	*next = *copy;
	switch (op->kind) {
	case APP_HISTORY_SNAPSHOT:
		next->kept = value;
		return true;
	case APP_HISTORY_RESTART:
		next->value = copy->kept;
		return true;
	case APP_HISTORY_PUT:
		next->value = op->value;
		return true;
	case APP_HISTORY_GET:
		return !hist_done(op) || op->found == value;
	case APP_HISTORY_DEL:
		next->value = HIST_NONE;
		return !hist_done(op) || hist_ok(op) == (value != HIST_NONE);
	default:
		if (value == op->expected)
			next->value = op->value;
		return !hist_done(op) ||
			(hist_ok(op) ? value == op->expected
				     : value != op->expected && value == op->found);
	}
}

static void
take_out(struct event *e)
{
	e->prev->next = e->next;
	if (e->next != NULL)
		e->next->prev = e->prev;
}

static void
put_back(struct event *e)
{
	e->prev->next = e;
	if (e->next != NULL)
		e->next->prev = e;
}

/* The operations taken, one more, and the copy then. */
static struct place
configuration(const struct search *s, size_t with, const struct copy *copy)
{
	return (struct place){{
		(s->hash[0] ^ mix(with, 0)) + mix(copy->value, 2) + mix(copy->kept, 4),
		((s->hash[1] ^ mix(with, 1)) + mix(copy->value, 3) + mix(copy->kept, 5)) | 1}};
}

static void
toggle(struct search *s, size_t op)
{
	s->hash[0] ^= mix(op, 0);
	s->hash[1] ^= mix(op, 1);
}

static void
take(struct search *s, struct event *call, const struct copy *next)
{
	s->step[s->depth++] = (struct step){.call = call, .copy = s->copy};
	s->answered += call->answer != NULL;
	s->alike[call->alike]++;
	s->copy = *next;
	toggle(s, call->op);
	take_out(call);
	if (call->answer != NULL)
		take_out(call->answer);
}

/* Undo the last one. Returns where the search goes on. */
static struct event *
give_back(struct search *s)
{
	struct event *call = s->step[--s->depth].call;

	s->answered -= call->answer != NULL;
	s->alike[call->alike]--;
	s->copy = s->step[s->depth].copy;
	toggle(s, call->op);
	if (call->answer != NULL)
		put_back(call->answer);
	put_back(call);
	return call->next;
}

static void
note_stuck(struct search *s, const struct event *answer, struct wgl_report *report)
{
	if (s->depth < report->taken)
		return;
	report->taken = s->depth;
	report->stuck = answer->op;
	report->value = s->copy.value;
}

/* Whether this call can be the next one; the copy that it leaves. */
static bool
may_be_next(const struct search *s, const struct event *call, struct copy *next)
{
	if (!apply(&s->op[call->op], &s->copy, next))
		return false;
	if (call->answer == NULL && next->value == s->copy.value && next->kept == s->copy.kept)
		return false; /* It enables no other operation. */
	return call->alike == ALIKE_NONE || call->turn == s->alike[call->alike];
}

static enum wgl_verdict
search(struct search *s, size_t answers, uint64_t max, struct wgl_report *report)
{
	struct event *e = s->event[0].next;
	struct copy next;
	int fresh;

	while (s->answered != answers) {
		if (e != NULL && e->is_call) {
			if (may_be_next(s, e, &next)) {
				fresh = memo_add(&s->memo, configuration(s, e->op, &next));
				if (fresh < 0)
					return WGL_NOMEM;
				if (s->memo.used > max)
					return WGL_UNDECIDED;
				if (fresh == 1) {
					take(s, e, &next);
					e = s->event[0].next;
					continue;
				}
			}
			e = e->next;
			continue;
		}
		if (e != NULL)
			note_stuck(s, e, report);
		if (s->depth == 0)
			return WGL_NO;
		e = give_back(s);
	}
	return WGL_YES;
}

/* By time; at the same time calls are first: operations that touch may go either way. */
static int
by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	if (x->is_call != y->is_call)
		return x->is_call ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static int
by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The values that operations have found or must have found. */
struct seen {
	uint64_t *value; /* sorted */
	size_t n;
	bool any; /* a delete has found one, and does not say which */
};

static void
values_seen(const struct app_history_op *op, size_t n, struct seen *seen)
{
	uint64_t *value = seen->value;
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		seen->any |= op[i].kind == APP_HISTORY_DEL && hist_ok(&op[i]);
		if (op[i].kind == APP_HISTORY_CAS)
			value[k++] = op[i].expected;
		if (hist_done(&op[i]) &&
			(op[i].kind == APP_HISTORY_GET ||
				(op[i].kind == APP_HISTORY_CAS && !hist_ok(&op[i]))))
			value[k++] = op[i].found;
	}
	qsort(value, k, sizeof(*value), by_value);
	seen->n = k;
}

static bool
is_seen(const struct seen *seen, uint64_t value)
{
	return bsearch(&value, seen->value, seen->n, sizeof(value), by_value) != NULL;
}

/*
 * Can an operation without an answer help to explain the others? Not if it writes nothing, or what
 * no get returned: an order with it is one without it, too. A lost peer leaves thousands of them,
 * each of which would double the orders to try.
 */
static bool
may_matter(const struct app_history_op *op, const struct seen *seen)
{
	if (hist_done(op) || op->kind == APP_HISTORY_DEL || op->kind >= APP_HISTORY_SNAPSHOT)
		return true;
	if (op->kind == APP_HISTORY_GET)
		return false;
	return seen->any || is_seen(seen, op->value);
}

/* Which of the operations without an answer are alike, in the order of their calls. */
static void
turns_give(struct search *s, const struct seen *seen, struct event *event, size_t n)
{
	size_t turn[ALIKES] = {0}, i;

	for (i = 0; i < n; i++) {
		const struct app_history_op *op = &s->op[event[i].op];

		if (!event[i].is_call || hist_done(op))
			continue;
		if (op->kind == APP_HISTORY_DEL)
			event[i].alike = ALIKE_DELETES;
		else if (op->kind == APP_HISTORY_PUT && !is_seen(seen, op->value))
			event[i].alike = ALIKE_PUTS;
		event[i].turn = turn[event[i].alike]++;
	}
}

/* The list of all calls and answers. Returns how many answers, or SIZE_MAX without memory. */
static size_t
events_make(struct search *s, const struct app_history_op *op, size_t n)
{
	struct event **call = calloc(n, sizeof(*call));
	struct seen seen = {.value = calloc(2 * n, sizeof(*seen.value))};
	size_t i, k = 1, answers = 0;

	if (call == NULL || seen.value == NULL) {
		free(call);
		free(seen.value);
		return SIZE_MAX;
	}
	values_seen(op, n, &seen);
	for (i = 0; i < n; i++) {
		if (!may_matter(&op[i], &seen))
			continue;
		s->event[k++] = (struct event){.op = i, .time = op[i].call, .is_call = true};
		if (hist_done(&op[i])) {
			s->event[k++] = (struct event){.op = i, .time = op[i].ret};
			answers++;
		}
	}
	qsort(s->event + 1, k - 1, sizeof(*s->event), by_time);
	turns_give(s, &seen, s->event + 1, k - 1);
	for (i = 1; i < k; i++) {
		s->event[i].prev = &s->event[i - 1];
		s->event[i - 1].next = &s->event[i];
		if (s->event[i].is_call)
			call[s->event[i].op] = &s->event[i];
		else
			call[s->event[i].op]->answer = &s->event[i];
	}
	free(call);
	free(seen.value);
	return answers;
}

enum wgl_verdict
wgl_check(const struct app_history_op *op, size_t n, uint64_t max, struct wgl_report *report)
{
	struct search s = {.op = op, .copy = {HIST_NONE, HIST_NONE}};
	enum wgl_verdict verdict = WGL_NOMEM;
	size_t answers;

	*report = (struct wgl_report){0};
	s.event = calloc(2 * n + 1, sizeof(*s.event));
	s.step = calloc(n + 1, sizeof(*s.step));
	if (s.event != NULL && s.step != NULL) {
		answers = events_make(&s, op, n);
		if (answers != SIZE_MAX)
			verdict = search(&s, answers, max, report);
	}
	report->configurations = s.memo.used;
	free(s.memo.place);
	free(s.event);
	free(s.step);
	return verdict;
}
