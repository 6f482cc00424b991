/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of an arena, against test/golden/arena_v1.txt: fresh, and after one block of each kind
 * was cut and one was given. A change of the layout is a new version, never an accident. Pids are
 * zeroed in the copy. A mismatch prints what was found.
 */
#include "arena_test.h"

#include "golden.h"
#include "shm_arena.h"

#define DATA (4 * 65536u)

static void
print_line(FILE *f, uint64_t off, const uint8_t *p)
{
	fprintf(f, "%06llx:", (unsigned long long)off);
	for (uint32_t k = 0; k < 16; k++)
		fprintf(f, " %02x", p[k]);
	fprintf(f, "\n");
}

/* Lines of 16 bytes that are not all zero. */
static void
print_bytes(FILE *f, const char *what, uint64_t off, uint64_t len)
{
	static const uint8_t zero[16];
	const uint8_t *p = test_arena->base + off;

	fprintf(f, "%s\n", what);
	for (uint64_t i = 0; i < len; i += 16)
		if (memcmp(p + i, zero, 16) != 0)
			print_line(f, off + i, p + i);
}

static void
print_classes(FILE *f)
{
	fprintf(f, "classes: size units blocks first\n");
	for (uint32_t i = 0; i < test_arena->l.h.classes; i++) {
		const struct arena_class *ci = &test_arena->l.cls[i];

		fprintf(f, "%u: %u %u %u %u\n", i, ci->size, ci->units, ci->blocks, ci->first);
	}
}

/* All but the memory of blocks, and the words at the start of units. */
static void
print_parts(FILE *f, const char *when)
{
	const struct arena_header *h = &test_arena->l.h;

	fprintf(f, "%s\n", when);
	print_bytes(f, "header", 0, sizeof(*h));
	print_bytes(f, "members", h->member_off, h->unit_off - h->member_off);
	print_bytes(f, "units", h->unit_off, h->units * sizeof(arena_word));
	print_bytes(f, "words", h->word_off, h->hint_off - h->word_off);
	print_bytes(f, "hints", h->hint_off, h->data_off - h->hint_off);
}

static char *
describe(void)
{
	const struct crpc_arena_conf conf = {.max_members = 3, .max_block = 128 * KIB};
	struct crpc_arena_cache *c1, *c2;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	uint64_t ref[4];

	assert_non_null(f);
	test_arena_make(DATA, &conf);
	print_classes(f);
	print_parts(f, "fresh: 3 members, 4 units, blocks to 128 KiB");
	c1 = test_join(0, 64 * KIB);
	c2 = test_join(0, 64 * KIB);
	assert_non_null(crpc_arena_alloc(c1, 2000, &ref[0]));
	assert_non_null(crpc_arena_alloc(c1, 5000, &ref[1]));
	assert_non_null(crpc_arena_alloc(c2, 100 * KIB, &ref[2]));
	assert_non_null(crpc_arena_alloc(c2, 2000, &ref[3]));
	assert_int_equal(crpc_arena_give(c1, ref[1], 2), 0);
	assert_int_equal(crpc_arena_free(c2, ref[2]), 0);
	crpc_store_relaxed(&test_arena->member[1].pid, 0);
	crpc_store_relaxed(&test_arena->member[2].pid, 0);
	print_parts(f, "two members; 2000 B by 1 and 2, 5000 B given by 1 to 2, 100 KiB freed");
	print_bytes(f, "words of unit 0", test_arena->data_off, test_arena->l.cls[0].first);
	fprintf(f, "refs: %#llx %#llx %#llx %#llx\n", (unsigned long long)ref[0],
			(unsigned long long)ref[1], (unsigned long long)ref[2],
			(unsigned long long)ref[3]);
	fclose(f);
	crpc_arena_leave(c1);
	crpc_arena_leave(c2);
	test_arena_empty();
	test_arena_remove();
	return text;
}

TEST(layout_version_1_has_these_bytes)
{
	golden_text(GOLDEN_FILE, describe());
}

TEST_MAIN(make_dir, remove_dir)
