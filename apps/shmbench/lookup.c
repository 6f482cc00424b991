/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which segment is a pointer in, and where in it? Asked of 1, 10, 100 segments and so on, by asking
 * each (linear), by binary search (tree), and by a shift and one access (arithmetic).
 *
 * Throughput has many look-ups under way at once. "arithmetic_chained" less "chain_alone" is what
 * one takes from its pointer to its reference: each look-up begins when the one before is known.
 */
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_keys.h"
#include "crpc_log.h"
#include "crpc_shm.h"
#include "crpc_xlate.h"
#include "shmbench.h"

#define POINTERS 4096u /* with their answers they fit the caches next to the tables */
#define POINTS   8

struct point {
	struct crpc_xlate *x;
	uint32_t segments;
	const void *ptr[POINTERS];
	uint64_t ref[POINTERS];
};

typedef uint64_t (*run_fn)(const struct point *p, uint64_t n);

/* Look-ups that do not wait for each other. */
#define RUN(method, look_up) \
	static uint64_t run_##method(const struct point *p, uint64_t n) \
	{ \
		uint64_t sum = 0; \
\
		for (uint64_t i = 0; i < n; i++) \
			sum += (uint64_t)look_up; \
		return sum; \
	}

RUN(linear, crpc_xlate_ref_linear(p->x, p->ptr[i % POINTERS], 8))
RUN(tree, crpc_xlate_ref_tree(p->x, p->ptr[i % POINTERS], 8))
RUN(arithmetic, crpc_xlate_ref(p->x, p->ptr[i % POINTERS], 8))
RUN(to_pointer, crpc_xlate_ptr(p->x, p->ref[i % POINTERS], 8))

/* The next pointer's place in the array hangs on this one's reference, of which bit 63 is 0. */
static uint64_t
run_chained(const struct point *p, uint64_t n)
{
	uint64_t at = 0, ref, sum = 0;

	for (uint64_t i = 0; i < n; i++) {
		ref = crpc_xlate_ref(p->x, p->ptr[at % POINTERS], 8);
		at += 1 + (ref >> 63);
		sum += ref;
	}
	return sum;
}

/* What that loop costs without a look-up: to be subtracted. */
static uint64_t
run_chain_alone(const struct point *p, uint64_t n)
{
	uint64_t at = 0, ptr, sum = 0;

	for (uint64_t i = 0; i < n; i++) {
		ptr = (uintptr_t)p->ptr[at % POINTERS];
		at += 1 + (ptr >> 63);
		sum += ptr;
	}
	return sum;
}

static const struct {
	const char *name;
	run_fn run;
} methods[] = {
	{"linear", run_linear},
	{"tree", run_tree},
	{"arithmetic", run_arithmetic},
	{"arithmetic_chained", run_chained},
	{"chain_alone", run_chain_alone},
	{"to_pointer", run_to_pointer},
};

/* What a run of n must add up to. */
static uint64_t
expected(const struct point *p, run_fn run, uint64_t n)
{
	bool pointers = run == run_to_pointer || run == run_chain_alone;
	uint64_t sum = 0, all = 0;

	for (uint64_t i = 0; i < POINTERS; i++) {
		sum += pointers ? (uintptr_t)p->ptr[i] : p->ref[i];
		if (i + 1 == n % POINTERS)
			all = sum;
	}
	return all + n / POINTERS * sum;
}

/* The numbers of segments that are looked at: powers of ten below the last, and the last. */
static uint32_t
plan(uint32_t most, uint32_t *count)
{
	uint32_t n = 0;

	for (uint32_t k = 1; k < most && n + 1 < POINTS; k *= 10)
		count[n++] = k;
	count[n++] = most;
	return n;
}

/* The tables, each with its segments. They share memory that is never accessed. */
static int
points_open(struct point *p, uint32_t n, uint64_t size)
{
	struct crpc_shm *seg = sb_segment(size, false, false);
	int rc = 0;

	if (seg == NULL)
		return app_fail("%s; give a smaller --size", crpc_log_last());
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		p[i].x = crpc_xlate_create(p[i].segments, size);
		if (p[i].x == NULL)
			rc = app_fail(
				"%s; give fewer --segments or a smaller --size", crpc_log_last());
		for (uint32_t id = 1; id <= p[i].segments && rc == 0; id++)
			if (crpc_xlate_map(p[i].x, id, seg) == NULL)
				rc = app_fail("%s; give fewer --segments", crpc_log_last());
	}
	crpc_shm_free(seg);
	return rc;
}

/* Random bytes of random segments. -EBADMSG if a look-up does not find one. */
static int
pointers_draw(struct point *p, uint64_t size, uint64_t seed)
{
	uint64_t rng = seed, id, off;

	for (uint32_t i = 0; i < POINTERS; i++) {
		id = 1 + crpc_random(&rng) % p->segments;
		off = crpc_random(&rng) % (size - 7);
		p->ref[i] = id << CRPC_XLATE_OFF_BITS | off;
		p->ptr[i] = crpc_xlate_ptr(p->x, p->ref[i], 8);
		if (p->ptr[i] == NULL || crpc_xlate_ref(p->x, p->ptr[i], 8) != p->ref[i] ||
			crpc_xlate_ref_tree(p->x, p->ptr[i], 8) != p->ref[i] ||
			crpc_xlate_ref_linear(p->x, p->ptr[i], 8) != p->ref[i])
			return -EBADMSG;
	}
	return 0;
}

static int
point_run(const struct point *p, const struct sb_opt *o, struct app_out *out, uint64_t size)
{
	static struct sb_point point;
	uint64_t n = crpc_max(o->count / o->repeat, 1), begin, sum;
	uint32_t i;

	sb_point_begin(&point, o, size, p->segments);
	for (i = 0; i < CRPC_DIM(methods); i++)
		sb_point_add(&point, methods[i].name, NULL);
	for (uint64_t round = 0; round < o->repeat; round++)
		for (uint32_t k = 0; k < CRPC_DIM(methods) && app_stopped() == 0; k++) {
			i = (uint32_t)(k + round) % CRPC_DIM(methods);
			methods[i].run(p, crpc_min(n, POINTERS)); /* warm */
			begin = crpc_clock_ticks();
			sum = methods[i].run(p, n);
			begin = crpc_clock_ticks() - begin;
			sb_series_put(&point.series[i],
				(double)crpc_clock_ticks_to_ns(begin) / (double)n);
			if (sum != expected(p, methods[i].run, n)) {
				app_fail("%s over %u segments: wrong references", methods[i].name,
					p->segments);
				return APP_EXIT_RUN;
			}
		}
	return sb_point_end(&point, out);
}

int
sb_lookup(const struct sb_opt *o, struct app_out *out)
{
	struct point *p = calloc(POINTS, sizeof(*p));
	uint64_t size = o->segment_size;
	uint32_t count[POINTS], n = plan((uint32_t)o->segments, count);
	int rc = 0;

	if (p == NULL)
		return app_fail("no memory for %u pointers", POINTS * POINTERS);
	for (uint32_t i = 0; i < n; i++)
		p[i].segments = count[i];
	rc = points_open(p, n, size);
	for (uint32_t i = 0; i < n && rc == 0 && app_stopped() == 0; i++) {
		if (pointers_draw(&p[i], size, o->seed) != 0) {
			app_fail("%u segments: the look-ups disagree", p[i].segments);
			rc = APP_EXIT_RUN;
		} else {
			rc = point_run(&p[i], o, out, size);
		}
	}
	for (uint32_t i = 0; i < n; i++)
		crpc_xlate_free(p[i].x);
	free(p);
	return rc;
}
