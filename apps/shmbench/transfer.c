/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies from one half of a memory to its other half: of a segment, of private memory with pages of
 * the same size, and of private memory with the largest pages that the kernel gives. The three take
 * turns slice by slice, with every way to copy.
 */
#include <string.h>
#include <sys/mman.h>

#include "app_fail.h"
#include "crpc_file.h"
#include "crpc_log.h"
#include "crpc_shm.h"
#include "shmbench.h"

#define SLICE_NS 20000000u
#define WARM_NS  2000000u
#define PLACES   3
/* Of the segment, so that its halves lie in pages as those of private memory do. */
#define HEAD 4096u

struct place {
	const char *name;
	uint8_t *from;
	uint8_t *to;
	void *mapped;
	uint64_t len;
};

struct transfer {
	struct place place[PLACES];
	struct crpc_shm *seg;
	struct sb_point point;
	uint64_t wrong;
	uint8_t round;
};

/* Two of each place: where the machine has not that much, asking would end other processes. */
static int
check_memory(uint64_t size)
{
	uint64_t kib = __crpc_meminfo("MemAvailable:");

	if (2 * PLACES * size <= kib * 1024)
		return 0;
	return app_fail("--size of %lu MiB needs %lu MiB of memory, %llu are available; "
			"give a smaller one",
		(unsigned long)(size >> 20), (unsigned long)(2 * PLACES * size >> 20),
		(unsigned long long)kib / 1024);
}

/* Of pages of `huge` bytes, if that is not 0. */
static int
private_open(struct place *p, uint64_t size, int advice, uint64_t huge)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge != 0 ? MAP_HUGETLB : 0);

	p->len = 2 * size;
	if (huge != 0) /* whole pages, or munmap() refuses */
		p->len = crpc_align_up(p->len, huge);
	p->mapped = mmap(NULL, p->len, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p->mapped == MAP_FAILED) {
		p->mapped = NULL;
		return app_fail("cannot map %lu bytes of private memory: %s; give a smaller "
				"--size",
			(unsigned long)p->len, strerror(errno));
	}
	/* A kernel without huge pages refuses, and gives small ones. */
	madvise(p->mapped, p->len, advice);
	memset(p->mapped, 1, p->len);
	p->from = p->mapped;
	p->to = p->from + size;
	return 0;
}

static int
segment_open(struct transfer *t, uint64_t size, bool huge)
{
	t->seg = sb_segment(HEAD + 2 * size, true, huge);
	if (t->seg == NULL)
		return app_fail("%s; give a smaller --size%s", crpc_log_last(),
			huge ? ", or leave --huge out" : "");
	t->place[0].from = crpc_shm_ptr(t->seg, HEAD, 2 * size);
	t->place[0].to = t->place[0].from + size;
	memset(t->place[0].from, 1, 2 * size);
	return 0;
}

static void
transfer_close(struct transfer *t)
{
	crpc_shm_free(t->seg);
	for (int i = 1; i < PLACES; i++)
		if (t->place[i].mapped != NULL)
			munmap(t->place[i].mapped, t->place[i].len);
}

static int
transfer_open(struct transfer *t, const struct sb_opt *o, uint64_t size)
{
	int rc;

	memset(t, 0, sizeof(*t));
	t->place[0].name = "segment";
	t->place[1].name = "private";
	t->place[2].name = "private_thp";
	rc = check_memory(size);
	if (rc == 0)
		rc = segment_open(t, size, o->huge);
	if (rc == 0)
		rc = private_open(&t->place[1], size, MADV_NOHUGEPAGE,
			o->huge ? crpc_shm_header(t->seg)->page_size : 0);
	if (rc == 0)
		rc = private_open(&t->place[2], size, MADV_HUGEPAGE, 0);
	return rc;
}

/* GB/s of one slice; at most `limit` copies. */
static double
slice(const struct sb_copy *c, const struct place *p, uint64_t size, uint64_t limit, uint64_t ns)
{
	uint64_t n = 0, begin = crpc_clock_ticks(), took;

	do {
		c->copy(p->to, p->from, size);
		n++;
		took = crpc_clock_ticks_to_ns(crpc_clock_ticks() - begin);
	} while (n < limit && took < ns);
	return took == 0 ? 0 : (double)(n * size) / (double)took;
}

/* Untimed: what is copied next is not what lies there. */
static void
prepare(struct transfer *t, const struct place *p, uint64_t size)
{
	t->round++;
	memset(p->from, t->round, size);
	p->from[size / 2] = (uint8_t)~t->round;
	memset(p->to, (uint8_t)(t->round + 1), size);
}

/* One round: every way, every place, one slice each. */
static void
round_run(struct transfer *t, const struct sb_opt *o, uint32_t round)
{
	struct sb_point *point = &t->point;
	uint32_t i;

	for (uint32_t k = 0; k < point->nseries && app_stopped() == 0; k++) {
		/* Each round begins with another, so that none always follows the same. */
		i = (k + round) % point->nseries;
		const struct sb_copy *c = &sb_copies[i / PLACES];
		const struct place *p = &t->place[i % PLACES];

		if (o->verify)
			prepare(t, p, point->size);
		slice(c, p, point->size, o->count, WARM_NS);
		sb_series_put(&point->series[i], slice(c, p, point->size, o->count, SLICE_NS));
		if (o->verify)
			t->wrong += memcmp(p->from, p->to, point->size) != 0;
	}
}

static int
size_run(struct transfer *t, const struct sb_opt *o, struct app_out *out, uint64_t size)
{
	struct sb_point *point = &t->point;
	struct sb_series *s;

	sb_point_begin(point, o, size, 1);
	point->page_size = crpc_shm_header(t->seg)->page_size;
	for (const struct sb_copy *c = sb_copies;
		c->name != NULL && (c == sb_copies || !o->use_memcpy); c++)
		for (uint32_t i = 0; i < PLACES; i++) {
			s = sb_point_add(point, c->name, t->place[i].name);
			s->other = i == 0 ? s + 1 : NULL; /* The private one. */
			s->ratio = "ratio_private";
		}
	for (uint32_t round = 0; round < o->repeat && app_stopped() == 0; round++)
		round_run(t, o, round);
	return sb_point_end(point, out);
}

int
sb_transfer(const struct sb_opt *o, struct app_out *out)
{
	static struct transfer t;
	int rc = transfer_open(&t, o, app_list_max(&o->sizes));

	for (uint32_t i = 0; rc == 0 && i < o->sizes.n && app_stopped() == 0; i++)
		rc = size_run(&t, o, out, o->sizes.v[i]);
	if (rc == 0 && o->verify)
		printf("verified: %lu wrong\n", (unsigned long)t.wrong);
	if (rc == 0 && t.wrong != 0) {
		app_fail("%lu slices left wrong data", (unsigned long)t.wrong);
		rc = APP_EXIT_RUN;
	}
	transfer_close(&t);
	return rc;
}
