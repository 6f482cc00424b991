/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: 6400 times allocate and free, from the cache, or
 * give and take, or with a cache too small for the block. Only counted_*() is collected;
 * test/golden/instructions.py divides.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "crpc_arena.h"
#include "crpc_log.h"

#define PAIRS 6400u
#define DEPTH 32u /* blocks held at once by the burst cases */

static struct crpc_arena_cache *c1, *c2;
static uint64_t bad;

/* Allocate and free the same size again and again: the block stays in the cache. */
static inline void
pairs(uint64_t size)
{
	uint64_t ref;

	for (uint32_t i = 0; i < PAIRS; i++) {
		bad += crpc_arena_alloc(c1, size, &ref) == NULL;
		bad += crpc_arena_free(c1, ref) != 0;
	}
}

#define COUNTED(name, statement)                                                                   \
	void counted_##name(void);                                                                 \
	crpc_noinline void counted_##name(void)                                                    \
	{                                                                                          \
		statement;                                                                         \
	}

/* More at once than half a cache: so it is filled and flushed, too. */
static inline void
bursts(uint64_t size)
{
	uint64_t ref[3 * DEPTH];

	for (uint32_t i = 0; i < PAIRS; i += CRPC_DIM(ref)) {
		for (uint32_t k = 0; k < CRPC_DIM(ref); k++)
			bad += crpc_arena_alloc(c1, size, &ref[k]) == NULL;
		for (uint32_t k = 0; k < CRPC_DIM(ref); k++)
			bad += crpc_arena_free(c1, ref[k]) != 0;
	}
}

/* Across and back. */
static inline void
hands(void)
{
	uint64_t ref;

	bad += crpc_arena_alloc(c1, 4096, &ref) == NULL;
	for (uint32_t i = 0; i < PAIRS / 2; i++) {
		bad += crpc_arena_give(c1, ref, 2) != 0;
		bad += crpc_arena_take(c2, ref, 1, NULL, NULL) != 0;
		bad += crpc_arena_give(c2, ref, 1) != 0;
		bad += crpc_arena_take(c1, ref, 2, NULL, NULL) != 0;
	}
	bad += crpc_arena_free(c1, ref) != 0;
}

COUNTED(pair_64, pairs(64))
COUNTED(pair_4k, pairs(4096))
COUNTED(pair_64k, pairs(65536))
COUNTED(pair_1m, pairs(1u << 20))
COUNTED(pair_8m_uncached, pairs(8u << 20))
COUNTED(burst_64, bursts(64))
COUNTED(burst_4k, bursts(4096))
COUNTED(give_take, hands())

static const struct {
	const char *name;
	void (*fn)(void);
} cases[] = {
		{"arena_pair_64", counted_pair_64},
		{"arena_pair_4k", counted_pair_4k},
		{"arena_pair_64k", counted_pair_64k},
		{"arena_pair_1m", counted_pair_1m},
		{"arena_pair_8m_uncached", counted_pair_8m_uncached},
		{"arena_burst_64", counted_burst_64},
		{"arena_burst_4k", counted_burst_4k},
		{"arena_give_take", counted_give_take},
};

static int
run(const char *name)
{
	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		if (strcmp(name, cases[i].name) != 0)
			continue;
		cases[i].fn();
		printf("%s %u\n", name, PAIRS);
		return 0;
	}
	fprintf(stderr, "count_arena: no case '%s'\n", name);
	return 2;
}

int
main(int argc, char **argv)
{
	const struct crpc_arena_join_conf small = {.cache_bytes = 4 << 20};
	struct crpc_shm_conf conf = {.kind = 1, .kind_version = 1, .prefault = true};
	struct crpc_shm *seg;
	struct crpc_arena *a;
	uint64_t len = crpc_arena_size(NULL, 64 << 20);
	char name[CRPC_SHM_NAME_MAX];
	int rc = 0;

	if (argc < 2) {
		for (uint32_t i = 0; i < CRPC_DIM(cases); i++)
			printf("%s\n", cases[i].name);
		return 0;
	}
	snprintf(name, sizeof(name), "count_arena.%d", getpid());
	conf.name = name;
	conf.size = len + 4096;
	seg = crpc_shm_create(&conf);
	if (seg == NULL || crpc_arena_format(seg, 4096, len, NULL) != 0)
		goto err;
	a = crpc_arena_attach(seg, 4096);
	c1 = a == NULL ? NULL : crpc_arena_join(a, &small);
	c2 = c1 == NULL ? NULL : crpc_arena_join(a, &small);
	if (c2 == NULL)
		goto err;
	rc = run(argv[1]);
	if (bad != 0) {
		fprintf(stderr, "%" PRIu64 " calls failed\n", bad);
		rc = 1;
	}
	crpc_arena_leave(c1);
	crpc_arena_leave(c2);
	crpc_arena_detach(a);
	crpc_shm_free(seg);
	return rc;

err:
	fprintf(stderr, "count_arena: %s\n", crpc_log_last());
	crpc_shm_free(seg);
	return 1;
}
