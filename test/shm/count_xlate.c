/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: 6400 look-ups over a table of 1, 100 or 1000
 * segments. Only counted_*() is collected; test/golden/instructions.py divides. The arithmetic ones
 * must not depend on the number of segments.
 */
#include <unistd.h>

#include "count.h"
#include "crpc_log.h"
#include "crpc_shm.h"
#include "crpc_xlate.h"

#define LOOKUPS 6400u

static struct crpc_xlate *x;
static const void *ptr[LOOKUPS];
static uint64_t ref[LOOKUPS], sum;

#define COUNTED(name, value)                                                                       \
	void counted_##name(void);                                                                 \
	crpc_noinline void counted_##name(void)                                                    \
	{                                                                                          \
		uint32_t i;                                                                        \
                                                                                                   \
		for (i = 0; i < LOOKUPS; i++)                                                      \
			sum += (value);                                                            \
	}

COUNTED(arithmetic, crpc_xlate_ref(x, ptr[i], 8))
COUNTED(to_pointer, (uintptr_t)crpc_xlate_ptr(x, ref[i], 8))
COUNTED(tree, crpc_xlate_ref_tree(x, ptr[i], 8))
COUNTED(linear, crpc_xlate_ref_linear(x, ptr[i], 8))

static const struct {
	const char *name;
	uint32_t segments;
	void (*run)(void);
} cases[] = {
		{"arithmetic_1", 1, counted_arithmetic},
		{"arithmetic_100", 100, counted_arithmetic},
		{"arithmetic_1000", 1000, counted_arithmetic},
		{"to_pointer_1", 1, counted_to_pointer},
		{"to_pointer_100", 100, counted_to_pointer},
		{"to_pointer_1000", 1000, counted_to_pointer},
		{"tree_1", 1, counted_tree},
		{"tree_100", 100, counted_tree},
		{"tree_1000", 1000, counted_tree},
		{"linear_1", 1, counted_linear},
		{"linear_100", 100, counted_linear},
};

/* The same memory under every number: what is counted does not touch it. */
static int
open_table(uint32_t segments)
{
	char name[CRPC_SHM_NAME_MAX];
	struct crpc_shm_conf conf = {.name = name, .memfd = true, .size = 1 << 20};
	struct crpc_shm *seg;
	uint32_t id, i;

	snprintf(name, sizeof(name), "count_xlate.%d", (int)getpid());
	x = crpc_xlate_create(segments, 1 << 20);
	seg = crpc_shm_create(&conf);
	if (x == NULL || seg == NULL)
		return -1;
	for (id = 1; id <= segments; id++)
		if (crpc_xlate_map(x, id, seg) == NULL)
			return -1;
	for (i = 0; i < LOOKUPS; i++) {
		/* Multiplied by odd numbers they come in no order, and the same each time. */
		id = 1 + (uint32_t)((i * UINT64_C(2654435761)) >> 8) % segments;
		ref[i] = (uint64_t)id << CRPC_XLATE_OFF_BITS | (i * 40503u) % ((1 << 20) - 8);
		ptr[i] = crpc_xlate_ptr(x, ref[i], 8);
	}
	crpc_shm_free(seg);
	return 0;
}

int
main(int argc, char **argv)
{
	size_t i = count_case(argc, argv, cases, sizeof(cases[0]), CRPC_DIM(cases));

	if (open_table(cases[i].segments) != 0) {
		fprintf(stderr, "%s\n", crpc_log_last());
		return 1;
	}
	cases[i].run();
	printf("%s %u\n", cases[i].name, LOOKUPS);
	crpc_xlate_free(x);
	return sum == 0; /* no look-up found anything */
}
