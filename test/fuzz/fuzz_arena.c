/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two honest members work in an arena, in which the input also writes words wherever it likes:
 * every call returns, what it gives lies in the arena's units, and nothing is written outside of
 * the arena.
 *
 * Input: steps of 12 bytes, struct step.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "arena_check.h"
#include "fuzz.h"
#include "shm_arena.h"

#define UNITS  6u
#define MARGIN 8192u
#define HELD   32u
#define STEPS  256u

struct step {
	uint8_t what;
	uint8_t member; /* bit 0: who; bits 1-7: to or from whom */
	uint16_t at;    /* which ref, or where to write */
	uint64_t value; /* size, ref or word */
} __attribute__((packed));

enum {
	ALLOC,
	FREE,
	FREE_ANY, /* a ref that the input makes up */
	GIVE,
	TAKE,
	TAKE_ANY,
	REVOKE,
	VIEW,
	FLUSH,
	RECLAIM,
	CHECK,
	LEAVE,
	WRITE_META, /* a word before the units */
	WRITE_UNIT, /* a word of the units: state words of small blocks */
	WRITE_TWO,  /* a unit's word, as a word of the input's bits would hardly ever be one */
	WHATS
};

static const struct crpc_arena_conf conf = {.max_members = 4, .max_block = 3 * 65536};
static struct crpc_shm *seg;
static struct crpc_arena *arena;
static struct crpc_arena_cache *cache[2];
static uint64_t arena_len, held[HELD];
static uint32_t held_next;

static void
clean_up(void)
{
	crpc_shm_free(seg);
}

static void
set_up(void)
{
	char name[CRPC_SHM_NAME_MAX];
	struct crpc_shm_conf c = {.name = name, .kind = 1, .kind_version = 1};

	snprintf(name, sizeof(name), "fuzz_arena.%d", getpid());
	arena_len = crpc_arena_size(&conf, UNITS * 65536);
	c.size = 2 * MARGIN + arena_len;
	seg = crpc_shm_create(&c);
	fuzz_check(seg != NULL);
	atexit(clean_up);
}

/* As if nothing had been there before. */
static void
lay_out(void)
{
	uint8_t *p = crpc_shm_ptr(seg, MARGIN / 2, MARGIN / 2 + arena_len + MARGIN);

	memset(p, 0x5a, MARGIN / 2);
	memset(p + MARGIN / 2, 0, arena_len);
	memset(p + MARGIN / 2 + arena_len, 0x5a, MARGIN);
	fuzz_check(crpc_arena_format(seg, MARGIN, arena_len, &conf) == 0);
	arena = crpc_arena_attach(seg, MARGIN);
	fuzz_check(arena != NULL);
	memset(held, 0, sizeof(held));
	held_next = 0;
}

static void
join(uint32_t k)
{
	const struct crpc_arena_join_conf c = {.cache_bytes = k == 0 ? 16384 : 1024,
			.limit = k == 0 ? 0 : 200000};

	cache[k] = crpc_arena_join(arena, &c);
	fuzz_check(cache[k] != NULL || errno == EUSERS);
}

static void
margins_are_whole(void)
{
	const uint8_t *p = crpc_shm_ptr(seg, 0, crpc_shm_size(seg));

	for (uint32_t i = 0; i < MARGIN / 2; i++)
		fuzz_check(p[MARGIN / 2 + i] == 0x5a);
	for (uint32_t i = 0; i < MARGIN; i++)
		fuzz_check(p[MARGIN + arena_len + i] == 0x5a);
}

/* A block is in the units; use all of it. */
static void
use(uint8_t *p, uint64_t size)
{
	uint64_t off = (uint64_t)(p - (arena->base + arena->data_off));

	fuzz_check(off < arena->data_len && size <= arena->data_len - off && size != 0);
	memset(p, (int)size, size);
}

static void
write_word(uint64_t from, uint64_t len, uint16_t at, uint64_t value)
{
	crpc_store_relaxed((arena_word *)(void *)(arena->base + from) + at % (len / 8), value);
}

static void
alloc(struct crpc_arena_cache *c, const struct step *s)
{
	/* Sizes of all classes are as likely. */
	uint64_t size = s->value % (UINT64_C(1) << (s->at % 18 + 1)), ref;
	uint8_t *p = crpc_arena_alloc(c, size, &ref);

	if (p == NULL)
		return;
	use(p, crpc_arena_block_size(arena, size));
	held[held_next++ % HELD] = ref;
}

static void
take(struct crpc_arena_cache *c, uint64_t ref, uint32_t from)
{
	uint64_t size;
	void *p;

	if (crpc_arena_take(c, ref, from, &p, &size) == 0)
		use(p, size);
}

static void
work(struct crpc_arena_cache *c, const struct step *s)
{
	uint64_t ref = held[s->at % HELD], size;
	uint32_t other = s->member >> 1;
	uint8_t *p;

	switch (s->what % WHATS) {
	case ALLOC:
		alloc(c, s);
		break;
	case FREE:
		crpc_arena_free(c, ref);
		break;
	case FREE_ANY:
		crpc_arena_free(c, s->value);
		break;
	case GIVE:
		crpc_arena_give(c, ref, other);
		break;
	case TAKE:
		take(c, ref, other % 3);
		break;
	case TAKE_ANY:
		take(c, s->value, 0);
		break;
	case REVOKE:
		crpc_arena_revoke(c, ref);
		break;
	case VIEW:
		p = crpc_arena_view(arena, s->at % 2 != 0 ? ref : s->value, &size);
		if (p != NULL)
			use(p, size);
		break;
	default:
		crpc_arena_flush(c);
		break;
	}
}

static void
damage(const struct step *s)
{
	switch (s->what % WHATS) {
	case WRITE_META:
		write_word(0, arena->data_off, s->at, s->value);
		break;
	case WRITE_UNIT:
		write_word(arena->data_off, arena->data_len, s->at, s->value);
		break;
	default:
		write_word(arena->l.h.unit_off, UNITS * 8, s->at,
				s->value << 32 | word_make(s->at >> 12, s->member >> 5,
								 (uint32_t)(s->value >> 32) % 64));
		break;
	}
}

static void
one_step(const struct step *s)
{
	uint32_t k = s->member & 1, what = s->what % WHATS;
	struct arena_report r;
	int rc;

	if (what >= WRITE_META) {
		damage(s);
	} else if (what == RECLAIM) {
		rc = crpc_arena_reclaim(arena, s->at % 16, NULL);
		fuzz_check(rc == 0 || rc == 1);
	} else if (what == CHECK) {
		rc = arena_check(arena, &r);
		fuzz_check((rc == 0) == (r.errors == 0));
	} else if (what == LEAVE) {
		crpc_arena_leave(cache[k]);
		join(k);
	} else if (cache[k] != NULL) {
		work(cache[k], s);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct step s;

	if (seg == NULL)
		set_up();
	lay_out();
	join(0);
	join(1);
	for (uint32_t i = 0; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++)
		one_step(&s);
	for (uint32_t k = 0; k < 2; k++)
		crpc_arena_leave(cache[k]);
	crpc_arena_detach(arena);
	margins_are_whole();
	return 0;
}
