/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Members: joining, leaving, and what the dead leave behind.
 *
 * A place is taken and given up, and a dead member's place reclaimed, by the process that holds the
 * kernel lock of its number; `used` only says whether there is something to reclaim. So a process
 * that dies in the middle of any of this leaves a place that is used and not locked, and the next
 * reclaimer starts over: a sweep that is done twice does nothing the second time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_log.h"
#include "shm_arena.h"

#define CACHE_MIN (UINT64_C(256) << 10)
#define CACHE_MAX (UINT64_C(8) << 20)
/* We change a block in transit twice at most, others too: its giver leaves, it is taken. */
#define SWEEP_TRIES 6

/* ---- sweeping ---- */

static bool
in_set(const uint64_t *set, uint32_t id)
{
	return id <= CRPC_ARENA_MEMBERS_MAX && (set[id / 64] >> id % 64 & 1) != 0;
}

/*
 * Whose blocks and units are to be freed: those of the set, and of free places, which
 * hold some only if a process wrote a wrong state of its place.
 */
static bool
is_gone(const struct crpc_arena *a, const uint64_t *set, uint32_t owner)
{
	return in_set(set, owner) || !arena_place_used(a, owner);
}

/*
 * Whether what is given to a place now will be taken or swept there: its member has not begun to
 * leave.
 *
 * A sweep asks this again behind its swap of a block in transit,
 * by a read-modify-write: if that of one who leaves (R8) was first, this finds the place left (A8),
 * and if not, that one's sweep finds the block.
 */
static bool
place_stays(struct crpc_arena *a, uint32_t id)
{
	return id - 1 < a->l.h.max_members &&
		crpc_fetch_add_acq_rel(&a->member[id].used, 0) == ARENA_PLACE_USED;
}

/*
 * What becomes of a block whose word is @p w; @p w itself: nothing. All blocks of the members in
 * the set become free; but of one that leaves, what it gave away stays with its receivers.
 */
static uint64_t
word_swept(struct crpc_arena *a, uint64_t w, const uint64_t *set, bool leaves)
{
	uint64_t free_now = word_gen(w + WORD_GEN_ONE) | WORD_FREE;
	uint32_t owner = word_owner(w), to = word_arg(w);

	switch (word_state(w)) {
	case BLOCK_CACHED:
	case BLOCK_ALLOCATED:
		return is_gone(a, set, owner) ? free_now : w;
	case BLOCK_TRANSIT:
		/* Given to a place, or by one, that is given up: it will not be taken. */
		if (!arena_place_used(a, owner) || !place_stays(a, to) || in_set(set, to))
			return free_now;
		if (!in_set(set, owner))
			return w;
		if (leaves)
			return word_gen(w) | word_make(BLOCK_TRANSIT, to, to);
		return free_now;
	default:
		return w;
	}
}

/* A span under the broom. */
struct broom {
	struct crpc_arena *a;
	const uint64_t *set;
	bool leaves;
	uint32_t unit;
	uint64_t head;
	struct crpc_arena_reclaimed *found;
};

/* Returns true if the block is free now. */
static bool
sweep_block(const struct broom *b, arena_word *word)
{
	uint64_t w = arena_peek(word), to;

	for (uint32_t i = 0; i < SWEEP_TRIES; i++) {
		to = word_swept(b->a, w, b->set, b->leaves);
		if (to == w || !arena_same_span(b->a, b->unit, b->head))
			break;
		CRPC_CRASH_POINT("arena.sweep.1");
		if (arena_cas(word, &w, to)) {
			b->found->blocks += word_state(to) == BLOCK_FREE;
			w = to;
		}
	}
	return (uint32_t)w == WORD_FREE;
}

static void
sweep_span(const struct broom *b, const struct arena_class *ci)
{
	arena_word *word = arena_words(b->a, ci, b->unit);
	bool any = false;

	for (uint32_t i = 0; i < ci->blocks; i++)
		any |= sweep_block(b, &word[i]);
	/* Of blocks that were free already the hint may have died with a member, too. */
	if (any)
		arena_hint_set(b->a, word_arg(b->head), b->unit);
}

/* A unit in the hands of a dead member: the tail of a published span, or free. */
static void
sweep_claim(struct crpc_arena *a, uint32_t u, uint64_t w, struct crpc_arena_reclaimed *found)
{
	uint32_t d = word_arg(w);
	const struct arena_class *ci = NULL;
	uint64_t to = word_gen(w) | word_make(UNIT_FREE, 0, 0);

	if (d != 0 && d <= u)
		ci = arena_span(a, u - d, crpc_load_acquire(&a->unit[u - d]));
	if (ci != NULL && ci->units > d)
		to = word_gen(w) | word_make(UNIT_TAIL, 0, d);
	if (crpc_cas_acq_rel(&a->unit[u], &w, to))
		found->units++;
}

/* Free what the members of the set hold in unit u and, if a span starts there, in its blocks. */
static void
sweep_unit(struct crpc_arena *a, uint32_t u, const uint64_t *set, bool leaves,
	struct crpc_arena_reclaimed *found)
{
	/* A1 pairs with R1. */
	uint64_t w = crpc_load_acquire(&a->unit[u]);
	const struct arena_class *ci = arena_span(a, u, w);
	const struct broom b = {
		.a = a, .set = set, .leaves = leaves, .unit = u, .head = w, .found = found};

	if (ci != NULL)
		sweep_span(&b, ci);
	else if (word_state(w) == UNIT_CLAIM && is_gone(a, set, word_owner(w)))
		sweep_claim(a, u, w, found);
}

/* ---- reclaim ---- */

/* Hold the lock of a member that is dead. 0, or -errno, said. */
static int
probe(struct crpc_arena *a, uint32_t id)
{
	struct arena_pass *p = &a->pass;
	struct crpc_shm_lock *lock;
	int rc;

	if (crpc_load_acquire(&a->member[id].used) == 0)
		return 0;
	rc = crpc_shm_lock_held(a->seg, a->lock_base + id);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	lock = crpc_shm_lock_take(a->seg, a->lock_base + id);
	if (lock == NULL)
		return errno == EAGAIN ? 0 : -errno;
	if (crpc_load_acquire(&a->member[id].used) == 0) {
		crpc_shm_lock_drop(lock);
		return 0;
	}
	p->lock[id] = lock;
	p->set[id / 64] |= UINT64_C(1) << id % 64;
	p->dead++;
	return 0;
}

/* Forget the pass. Its dead members, if they still are, wait for the next one. */
static void
pass_reset(struct arena_pass *p)
{
	memset(p->set, 0, sizeof(p->set));
	p->dead = 0;
	p->member = 0;
}

static void
pass_end(struct crpc_arena *a, bool done, struct crpc_arena_reclaimed *found)
{
	struct arena_pass *p = &a->pass;

	for (uint32_t id = 1; id <= a->l.h.max_members; id++) {
		if (p->lock[id] == NULL)
			continue;
		if (done) {
			/* R6: nothing is in this member's name. */
			crpc_store_release(&a->member[id].used, 0);
			found->members++;
		}
		crpc_shm_lock_drop(p->lock[id]);
		p->lock[id] = NULL;
	}
	pass_reset(p);
}

/* The parent's locks are not this child's, and what is mapped at their address may be anything. */
static void
pass_after_fork(struct crpc_arena *a)
{
	struct arena_pass *p = &a->pass;

	if (p->member == 0 || p->pid == getpid())
		return;
	memset((void *)p->lock, 0, (a->l.h.max_members + 1) * sizeof(struct crpc_shm_lock *));
	pass_reset(p);
}

void
__crpc_arena_pass_drop(struct crpc_arena *a)
{
	struct crpc_arena_reclaimed none = {0};

	pass_after_fork(a);
	pass_end(a, false, &none);
}

static int
pass_go_on(struct crpc_arena *a, uint32_t budget, struct crpc_arena_reclaimed *found)
{
	uint64_t left = budget == 0 ? UINT64_MAX : budget;
	struct arena_pass *p = &a->pass;
	int rc;

	pass_after_fork(a);
	if (p->member == 0) {
		p->pid = getpid();
		p->member = 1;
		p->unit = 0;
	}
	for (; p->member <= a->l.h.max_members; p->member++) {
		if (left-- == 0)
			return 1;
		rc = probe(a, p->member);
		if (rc != 0) {
			pass_end(a, false, found);
			return rc;
		}
	}
	for (; p->dead != 0 && p->unit < a->units; p->unit++) {
		if (left-- == 0)
			return 1;
		sweep_unit(a, p->unit, p->set, false, found);
	}
	pass_end(a, true, found);
	return 0;
}

int
crpc_arena_reclaim(struct crpc_arena *a, uint32_t budget, struct crpc_arena_reclaimed *found)
{
	struct crpc_arena_reclaimed mine = {0};
	int rc;

	pthread_mutex_lock(&a->mutex);
	rc = pass_go_on(a, budget, found == NULL ? &mine : found);
	pthread_mutex_unlock(&a->mutex);
	return rc;
}

/* ---- join and leave ---- */

/* Take a free place. Its number, 0 if there is none, or -errno, said. */
static int
take_place(struct crpc_arena *a, struct crpc_shm_lock **lock)
{
	for (uint32_t id = 1; id <= a->l.h.max_members; id++) {
		if (crpc_load_acquire(&a->member[id].used) != 0)
			continue;
		*lock = crpc_shm_lock_take(a->seg, a->lock_base + id);
		if (*lock == NULL && errno != EAGAIN)
			return -errno;
		if (*lock == NULL)
			continue;
		/* A6 pairs with R6. */
		if (crpc_load_acquire(&a->member[id].used) == 0) {
			crpc_store_relaxed(&a->member[id].pid, (uint32_t)getpid());
			crpc_store_release(&a->member[id].used, ARENA_PLACE_USED);
			return (int)id;
		}
		crpc_shm_lock_drop(*lock);
	}
	return 0;
}

static int
take_place_or_reclaim(struct crpc_arena *a, struct crpc_shm_lock **lock)
{
	struct crpc_arena_reclaimed found = {0};
	int id = take_place(a, lock), rc;
	bool begun = a->pass.member != 0;

	if (id != 0)
		return id;
	rc = pass_go_on(a, 0, &found);
	/* That was the rest of a pass, which may have looked at the dead while they lived. */
	if (rc == 0 && begun)
		rc = pass_go_on(a, 0, &found);
	if (rc != 0)
		return rc;
	id = take_place(a, lock);
	if (id != 0)
		return id;
	return crpc_fail(-EUSERS,
		"%s: arena's %u places are all taken by living members; expected one to be "
		"free; format it with more members",
		crpc_shm_path(a->seg), a->l.h.max_members);
}

static uint64_t
default_cache(const struct crpc_arena *a)
{
	uint64_t share = a->data_len / 8 / a->l.h.max_members;

	share = crpc_max(share, crpc_min(CACHE_MIN, a->data_len / 8));
	return crpc_min(share, CACHE_MAX);
}

/* Each bin has room for what fill puts there at a time. */
static void
make_bins(struct crpc_arena_cache *c)
{
	const struct arena_layout *l = &c->a->l;

	for (uint32_t cls = 0; cls < l->h.classes; cls++) {
		c->bin[cls].e = c->entry[cls];
		c->bin[cls].size = l->cls[cls].size;
		c->bin[cls].max =
			(uint32_t)crpc_min(c->cache_bytes / 2 / l->cls[cls].size, ARENA_BIN_MAX);
	}
}

struct crpc_arena_cache *
crpc_arena_join(struct crpc_arena *a, const struct crpc_arena_join_conf *conf)
{
	static const struct crpc_arena_join_conf none;
	struct crpc_arena_cache *c = calloc(1, sizeof(*c));
	int id;

	if (c == NULL)
		return NULL;
	if (conf == NULL)
		conf = &none;
	c->a = a;
	c->base = a->base;
	c->limit = conf->limit == 0 ? UINT64_MAX / 2 : conf->limit;
	c->cache_bytes = conf->cache_bytes == 0 ? default_cache(a) : conf->cache_bytes;
	make_bins(c);
	pthread_mutex_lock(&a->mutex);
	id = take_place_or_reclaim(a, &c->lock);
	pthread_mutex_unlock(&a->mutex);
	if (id < 0) {
		free(c);
		return crpc_null(id);
	}
	c->id = (uint32_t)id;
	c->word_cached = word_make(BLOCK_CACHED, c->id, 0);
	c->word_alloc = word_make(BLOCK_ALLOCATED, c->id, 0);
	return c;
}

void
crpc_arena_leave(struct crpc_arena_cache *c)
{
	uint64_t set[CRPC_DIM(((struct arena_pass *)0)->set)] = {0};
	struct crpc_arena_reclaimed found = {0};
	struct crpc_arena *a;

	if (c == NULL)
		return;
	a = c->a;
	set[c->id / 64] = UINT64_C(1) << c->id % 64;
	/* R8, A8: what is given to it from here on does not become its own. */
	crpc_exchange_acq_rel(&a->member[c->id].used, ARENA_PLACE_LEFT);
	for (uint32_t u = 0; u < a->units; u++)
		sweep_unit(a, u, set, true, &found);
	CRPC_CRASH_POINT("arena.leave.3");
	/* R6: nothing is in this member's name. */
	crpc_store_release(&a->member[c->id].used, 0);
	crpc_shm_lock_drop(c->lock);
	free(c);
}
