/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a block has one holder at a time, who sees what the last one wrote, though no lock guards
 * it: by hand from member to member, and through the free blocks of a span that may be taken apart.
 * Method: weak.h. The arena has one unit, so both members are after the same memory.
 */
#include <stdlib.h>
#include <unistd.h>

#include "crpc_log.h"
#include "shm_arena.h"
#include "weak.h"

#define OFF   UINT64_C(4096)
#define WHOLE UINT64_C(65536) /* a unit */
#define HALF  UINT64_C(32768)

static char dir[] = "/tmp/weak_arena.XXXXXX";
static struct crpc_shm *seg;
static struct crpc_arena *arena;
static struct crpc_arena_cache *member[2];
static uint64_t given;
static uint64_t *given_at;
static uint32_t rounds;

static void
unmake(void)
{
	crpc_arena_leave(member[0]);
	crpc_arena_leave(member[1]);
	crpc_arena_detach(arena);
	crpc_shm_free(seg);
}

static void
make(uint64_t cache_bytes)
{
	const struct crpc_arena_conf conf = {.max_members = 2, .max_block = WHOLE};
	const struct crpc_arena_join_conf join = {.cache_bytes = cache_bytes};
	uint64_t len = crpc_arena_size(&conf, WHOLE);
	const struct crpc_shm_conf shm = {.name = "weak",
		.dir = dir,
		.size = OFF + len,
		.kind = CRPC_SHM_KIND('W', 'E', 'A', 'K'),
		.kind_version = 1};
	unsigned int i;

	if (seg != NULL)
		unmake();
	seg = crpc_shm_create(&shm);
	if (seg == NULL || crpc_arena_format(seg, OFF, len, &conf) != 0)
		abort();
	crpc_shm_ready(seg);
	arena = crpc_arena_attach(seg, OFF);
	for (i = 0; i < 2; i++) {
		member[i] = crpc_arena_join(arena, &join);
		if (member[i] == NULL)
			abort();
		/* Entries are written before they are read. */
		weak_memory(member[i], offsetof(struct crpc_arena_cache, entry));
	}
	weak_memory(arena->base, arena->data_off + WHOLE);
	rounds = 1 + weak_deep;
}

/* Use a block, all of it for the purpose: nobody else does. */
static void
use(uint64_t *p, uint64_t v)
{
	*p = v;
	weak_check(*p == v, "a block has two holders");
}

/* ---- from hand to hand, and back by free ---- */

static void
hand_setup(void)
{
	make(0);
	given_at = crpc_arena_alloc(member[0], WHOLE, &given);
	if (given_at == NULL)
		abort();
}

static uint64_t *
alloc(unsigned int who, uint64_t size, uint64_t *ref)
{
	uint64_t *p;

	while ((p = crpc_arena_alloc(member[who], size, ref)) == NULL)
		weak_wait();
	return p;
}

static void
giver(void)
{
	uint64_t ref, *p;

	*given_at = 1;
	weak_check(crpc_arena_give(member[0], given, member[1]->id) == 0, "give fails");
	p = alloc(0, WHOLE, &ref);
	weak_check(p == given_at && *p == 2, "a block lost what its last holder wrote");
	use(p, 3);
}

static void
taker(void)
{
	void *p;

	while (crpc_arena_take(member[1], given, member[0]->id, &p, NULL) != 0)
		weak_wait();
	weak_check(p == given_at && *(uint64_t *)p == 1, "a block lost what its giver wrote");
	use(p, 2);
	weak_check(crpc_arena_free(member[1], given) == 0, "free fails");
}

/* ---- both want the unit ---- */

static void
take_turns(unsigned int who)
{
	uint64_t ref, *p;
	uint32_t i;

	for (i = 0; i < rounds; i++) {
		p = alloc(who, WHOLE, &ref);
		use(p, who + 1);
		weak_check(crpc_arena_free(member[who], ref) == 0, "free fails");
	}
}

static void
turns_setup(void)
{
	make(0);
}

static void
first_turns(void)
{
	take_turns(0);
}

static void
second_turns(void)
{
	take_turns(1);
}

/* ---- a span of one class is taken apart for the other, while its member is after it, too ---- */

static uint64_t old_size, new_size;

static void
apart_make(uint64_t from, uint64_t to)
{
	make(0);
	old_size = from;
	new_size = to;
	given_at = crpc_arena_alloc(member[0], from, &given);
	if (given_at == NULL)
		abort();
}

static void
halve_setup(void)
{
	apart_make(WHOLE, HALF);
}

static void
join_setup(void)
{
	apart_make(HALF, WHOLE);
}

static void
old_holder(void)
{
	use(given_at, 1);
	weak_check(crpc_arena_free(member[0], given) == 0, "free fails");
}

/* It takes the span apart itself, if it is not late. */
static void
old_holder_again(void)
{
	uint64_t ref, *p;

	old_holder();
	p = crpc_arena_alloc(member[0], new_size, &ref);
	if (p != NULL)
		use(p, 2);
}

static void
new_holder_tries(void)
{
	uint64_t ref, *p = crpc_arena_alloc(member[1], new_size, &ref);

	if (p != NULL)
		use(p, 3);
}

static void
new_holder(void)
{
	uint64_t ref;

	use(alloc(1, new_size, &ref), 3);
}

int
main(int argc, char **argv)
{
	static const struct weak_scenario scenarios[] = {
		{"hand", hand_setup, {giver, taker}, NULL},
		{"turns", turns_setup, {first_turns, second_turns}, NULL},
		{"halve", halve_setup, {old_holder, new_holder}, NULL},
		{"both_halve", halve_setup, {old_holder_again, new_holder_tries}, NULL},
		{"join", join_setup, {old_holder, new_holder}, NULL},
		{NULL, NULL, {NULL}, NULL},
	};
	static const char twin[] = "the load before a swap and the swap acquire the same value";
	static const char swap[] = "the swap that follows reads the newest word";
	static const char unused[] = "no member acquires it, but a sweep: not in a scenario";
	static const char hint[] = "a bit is only a hint: what it leads to is acquired by itself";
	static const char life[] = "not in a scenario: to join and leave takes kernel locks";
	static const struct weak_spare spares[] = {
		{"take_between", WEAK_ACQUIRE, twin},
		{"look", WEAK_ACQUIRE, twin},
		{"claim_block", WEAK_ACQUIRE, twin},
		{"take_between", WEAK_RELEASE, unused},
		{"claim_block", WEAK_RELEASE, unused},
		{"claim_units", WEAK_RELEASE, unused},
		{"locate", WEAK_ACQUIRE, swap},
		{"search_all", WEAK_ACQUIRE, swap},
		{"claim_all", WEAK_ACQUIRE | WEAK_RELEASE, swap},
		{"take_apart", WEAK_RELEASE, "release_units() follows, and none acquires a claim"},
		{"publish_span", WEAK_RELEASE,
			"not in a scenario: a unit cut twice while a member sees its first span"},
		{"claim_from", WEAK_ACQUIRE, swap, WEAK_ACQUIRE},
		{"claim_from", WEAK_RELEASE, hint},
		{"arena_hint_set", WEAK_ACQUIRE, hint},
		{"header_read", WEAK_ACQUIRE, life},
		{"crpc_arena_format", WEAK_RELEASE, life},
		{"crpc_arena_leave", WEAK_ACQUIRE | WEAK_RELEASE, life},
		{"take_place", WEAK_ACQUIRE | WEAK_RELEASE, life},
		{"pass_end", WEAK_RELEASE, life},
		{"probe", WEAK_ACQUIRE, life},
		{"sweep_unit", WEAK_ACQUIRE, life},
		{"sweep_claim", WEAK_ACQUIRE | WEAK_RELEASE, life},
		{"sweep_block", WEAK_ACQUIRE | WEAK_RELEASE, life},
		{"place_stays", WEAK_ACQUIRE | WEAK_RELEASE, life},
		{"arena_place_used", WEAK_ACQUIRE, life},
		{NULL, 0, NULL},
	};
	int rc;

	if (mkdtemp(dir) == NULL)
		return 1;
	rc = weak_main(argc, argv, "arena", scenarios, spares);
	if (seg != NULL)
		unmake();
	rmdir(dir);
	return rc;
}
