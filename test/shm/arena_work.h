/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ARENA_WORK_H
#define ARENA_WORK_H

/**
 * @file
 * Random work of one member among others: it allocates, frees, gives and takes, and marks each
 * block it holds. A mark that changed shows that two had the block at once.
 */

#include "arena_test.h"

#define WORK_HELD    48u
#define WORK_MEMBERS 16u

/** Refs on their way, one per receiver. In memory that all members share. */
struct work_mail {
	_Atomic uint64_t box[WORK_MEMBERS + 1];
};

struct work {
	struct crpc_arena_cache *c;
	struct work_mail *mail;
	uint64_t rng;
	uint64_t max_size;
	uint64_t ref[WORK_HELD];
	uint32_t n;
};

/** The first and the last word of a block say its ref. */
static inline void
work_mark(uint64_t ref)
{
	uint64_t size, *p = crpc_arena_view(test_arena, ref, &size);

	p[0] = ref;
	p[size / 8 - 1] = ~ref;
}

static inline bool
work_marked(uint64_t ref)
{
	uint64_t size, *p = crpc_arena_view(test_arena, ref, &size);

	return p != NULL && p[0] == ref && p[size / 8 - 1] == ~ref;
}

static inline int
work_alloc(struct work *w)
{
	uint64_t size = 1 + (rnd(&w->rng) & (w->max_size - 1)) / (UINT64_C(1) << rnd(&w->rng) % 14);
	uint64_t ref;

	if (w->n == WORK_HELD)
		return 0;
	if (crpc_arena_alloc(w->c, size, &ref) == NULL)
		return errno == ENOMEM || errno == EDQUOT ? 0 : -errno;
	work_mark(ref);
	w->ref[w->n++] = ref;
	return 0;
}

static inline uint64_t
work_pick(struct work *w)
{
	uint32_t i = (uint32_t)(rnd(&w->rng) % w->n);
	uint64_t ref = w->ref[i];

	w->ref[i] = w->ref[--w->n];
	return ref;
}

static inline int
work_free(struct work *w)
{
	uint64_t ref;

	if (w->n == 0)
		return 0;
	ref = work_pick(w);
	if (!work_marked(ref))
		return -EFAULT;
	return crpc_arena_free(w->c, ref);
}

static inline int
work_give(struct work *w)
{
	uint32_t to = 1 + (uint32_t)(rnd(&w->rng) % WORK_MEMBERS);
	uint64_t ref, none = 0;
	int rc;

	if (w->n == 0 || crpc_load_relaxed(&w->mail->box[to]) != 0)
		return 0;
	ref = work_pick(w);
	if (!work_marked(ref))
		return -EFAULT;
	rc = crpc_arena_give(w->c, ref, to);
	if (rc != 0)
		return rc;
	if (crpc_cas_acq_rel(&w->mail->box[to], &none, ref))
		return 0;
	/* Its box was filled meanwhile. Somebody may have reclaimed it, if that place is empty. */
	rc = crpc_arena_revoke(w->c, ref);
	if (rc == -ESTALE)
		return 0;
	if (rc == 0)
		w->ref[w->n++] = ref;
	return rc;
}

static inline int
work_take(struct work *w)
{
	_Atomic uint64_t *box = &w->mail->box[crpc_arena_member(w->c)];
	uint64_t ref;
	int rc;

	if (w->n == WORK_HELD || crpc_load_relaxed(box) == 0)
		return 0;
	ref = crpc_exchange_acq_rel(box, 0);
	if (ref == 0)
		return 0;
	rc = crpc_arena_take(w->c, ref, 0, NULL, NULL);
	/* Its giver died, or it was meant for somebody who had this place before. */
	if (rc == -ESTALE || rc == -EINVAL || rc == -EPERM || rc == -EDQUOT)
		return 0;
	if (rc != 0)
		return rc;
	w->ref[w->n++] = ref;
	return work_marked(ref) ? 0 : -EFAULT;
}

/** One step. 0, or what is wrong. */
static inline int
work_step(struct work *w)
{
	uint64_t what = rnd(&w->rng) % 16;

	if (what < 6)
		return work_alloc(w);
	if (what < 10)
		return work_free(w);
	if (what < 12)
		return work_give(w);
	if (what < 15)
		return work_take(w);
	if (rnd(&w->rng) % 64 == 0)
		crpc_arena_flush(w->c);
	return 0;
}

#endif
