/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a program without an EAL: what it is, and that the report agrees with the kernel. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numaif.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_mem.h"

#define MIB ((size_t)1 << 20)

struct found {
	const char *name;
	struct crpc_mem_part part;
	uint32_t rows;
};

static void
take(const struct crpc_mem_part *part, void *arg)
{
	struct found *f = arg;

	if (strcmp(part->name, f->name) != 0)
		return;
	f->part = *part;
	f->rows++;
}

/* The row of a part; there is one. */
static struct crpc_mem_part
report(const char *name)
{
	struct found f = {.name = name};

	assert_ok(crpc_mem_walk(take, &f));
	assert_int_equal(f.rows, 1);
	return f.part;
}

static bool
is_zero(const char *mem, size_t len)
{
	return mem[0] == 0 && memcmp(mem, mem + 1, len - 1) == 0;
}

/* A number of a file of /proc, behind the word; 0: there is none. */
static uint64_t
number_in(const char *path, const char *from, const char *word)
{
	FILE *f = fopen(path, "re");
	uint64_t v = 0;
	char line[4096];
	const char *at;

	while (f != NULL && v == 0 && fgets(line, sizeof(line), f) != NULL) {
		at = strncmp(line, from, strlen(from)) == 0 ? strstr(line, word) : NULL;
		if (at != NULL)
			v = strtoull(at + strlen(word), NULL, 10);
	}
	if (f != NULL)
		fclose(f);
	return v;
}

TEST(memory_is_zero_and_aligned_whatever_its_size)
{
	static const size_t sizes[] = {1, 100, 4096, 5000, MIB - 1, MIB, 3 * MIB, 5 * MIB + 7};
	char *mem;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t align = 1; align <= 2 * MIB; align *= 8) {
			mem = crpc_mem_alloc("test_size", sizes[i], align, NULL);
			assert_or_log(mem != NULL);
			assert_int_equal((uintptr_t)mem % align, 0);
			assert_true(sizes[i] == 1 ? mem[0] == 0 : is_zero(mem, sizes[i]));
			memset(mem, 0xa5, sizes[i]);
			crpc_mem_free(mem);
		}
}

/* Allocates, keeps, checks and frees; *arg: whether some memory was another's. */
static void *
allocate_often(void *arg)
{
	const size_t len = 2 * MIB;
	bool *broken = arg;
	uint64_t *mem;

	for (uint64_t i = 1; i < 3000 && !*broken; i++) {
		mem = crpc_mem_alloc("test_threads", len, 4096, NULL);
		if (mem == NULL) {
			*broken = true;
			break;
		}
		for (size_t k = 0; k < len / 8; k += 512)
			*broken |= mem[k] != 0;
		for (size_t k = 0; k < len / 8; k += 512)
			mem[k] = (uintptr_t)mem + i;
		sched_yield();
		for (size_t k = 0; k < len / 8; k += 512)
			*broken |= mem[k] != (uintptr_t)mem + i;
		crpc_mem_free(mem);
	}
	return NULL;
}

/* While one looks for hugepages, or gives back what was too much, others map memory, too. */
TEST(threads_do_not_take_each_others_memory)
{
	bool broken[4] = {false};
	pthread_t thread[4];

	for (size_t i = 0; i < 4; i++)
		assert_ok(pthread_create(&thread[i], NULL, allocate_often, &broken[i]));
	for (size_t i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (size_t i = 0; i < 4; i++)
		assert_false(broken[i]);
}

TEST(the_report_agrees_with_numa_maps)
{
	/* With a mapping of its own each. */
	static const size_t sizes[] = {65536, 700000, 4 * MIB};
	struct crpc_mem_part part;
	char from[32], word[32];
	uint64_t kib;
	void *mem;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		mem = crpc_mem_alloc("test_maps", sizes[i], 64, NULL);
		assert_or_log(mem != NULL);
		part = report("test_maps");
		assert_int_equal(part.count, 1);
		assert_int_equal(part.bytes, sizes[i]);
		assert_int_equal(part.lcore, -1);
		snprintf(from, sizeof(from), "%" PRIxPTR " ", (uintptr_t)mem & -(uintptr_t)4096);
		kib = number_in("/proc/self/numa_maps", from, "kernelpagesize_kB=");
		if (kib != 0) { /* the kernel has nodes */
			assert_int_equal(part.page_size, kib << 10);
			snprintf(word, sizeof(word), " N%d=", part.node);
			assert_true(number_in("/proc/self/numa_maps", from, word) > 0);
		}
		crpc_mem_free(mem);
	}
}

/* All transparent hugepages of the process, before and after. */
TEST(the_report_tells_transparent_hugepages_from_others)
{
	static const char rollup[] = "/proc/self/smaps_rollup", word[] = "AnonHugePages:";
	uint64_t before = number_in(rollup, word, word), after;
	struct crpc_mem_part part;
	void *mem = crpc_mem_alloc("test_thp", 8 * MIB, 64, NULL);

	assert_or_log(mem != NULL);
	after = number_in(rollup, word, word);
	part = report("test_thp");
	if (part.page_size > 4096)
		assert_int_equal(part.thp_bytes, 0);
	else
		assert_int_equal(part.thp_bytes, (after - before) << 10);
	crpc_mem_free(mem);
}

/* Hugepages of the kernel are taken exactly where there are enough. */
TEST(hugepages_are_taken_where_there_are_some)
{
	static const char free_pages[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
	uint64_t before = number_in(free_pages, "", "");
	struct crpc_mem_part part;
	void *mem = crpc_mem_alloc("test_huge", 3 * MIB, 64, &(struct crpc_mem_place){-1, 4});

	assert_or_log(mem != NULL);
	part = report("test_huge");
	assert_int_equal(part.page_size, before >= 2 ? 2 * MIB : (uint64_t)sysconf(_SC_PAGESIZE));
	assert_int_equal(part.lcore, 4);
	if (before >= 2)
		assert_int_equal(number_in(free_pages, "", ""), before - 2);
	crpc_mem_free(mem);
	assert_int_equal(number_in(free_pages, "", ""), before);
}

/* A kernel without NUMA, or an emulator, has no such call. */
static bool
nodes_are_known(void)
{
	return get_mempolicy(NULL, NULL, 0, NULL, 0) == 0 || errno != ENOSYS;
}

TEST(memory_lies_on_the_node_that_is_wanted)
{
	/* Where there are hugepages, the large one lies on them, and has a row of its own. */
	static const char *const names[] = {"test_node", "test_node_large"};
	struct crpc_mem_place at = {.node = 0, .lcore = 7};
	void *mem[2];

	for (; at.node < 2; at.node++) {
		if (at.node == 1 && access("/sys/devices/system/node/node1", F_OK) != 0)
			break;
		mem[0] = crpc_mem_alloc(names[0], 5000, 64, &at);
		crpc_mem_here_set(&at);
		mem[1] = crpc_mem_alloc(names[1], 6 * MIB, 64, NULL);
		crpc_mem_here_set(NULL);
		assert_or_log(mem[0] != NULL && mem[1] != NULL);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(report(names[i]).node, nodes_are_known() ? at.node : -1);
			assert_int_equal(report(names[i]).lcore, 7);
			crpc_mem_free(mem[i]);
		}
	}
}

TEST(allocations_that_are_alike_are_one_row)
{
	const struct crpc_mem_place at = {.node = 0, .lcore = -1};
	void *mem[100];

	for (int i = 0; i < 100; i++)
		assert_non_null(mem[i] = crpc_mem_alloc("test_rows", 1000, 64, &at));
	assert_int_equal(report("test_rows").count, 100);
	assert_int_equal(report("test_rows").bytes, 100000);
	for (int i = 0; i < 100; i++)
		crpc_mem_free(mem[(i * 37) % 100]);
	assert_ok(crpc_mem_walk(take, &(struct found){.name = "test_rows"}));
}

TEST(what_cannot_be_given_is_refused_with_the_reason)
{
	assert_null(crpc_mem_alloc("test_much", PTRDIFF_MAX / 4, 64, NULL));
	assert_int_equal(errno, ENOMEM);
	assert_non_null(strstr(crpc_log_last(), "test_much: no memory for"));
	/* More than the host has, which the kernel would promise. */
	assert_null(crpc_mem_alloc("test_more", (size_t)1 << 44, 64, NULL));
	assert_int_equal(errno, ENOMEM);
	assert_null(crpc_mem_alloc("test_none", 0, 64, NULL));
	assert_int_equal(errno, EINVAL);
	assert_non_null(strstr(crpc_log_last(), "test_none: 0 bytes"));
	assert_null(crpc_mem_alloc("test_odd", 64, 48, NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(crpc_mem_alloc("test_odd", 64, 4 * MIB, NULL));
	assert_int_equal(errno, EINVAL);
}

/* The kernel allows a process 65,530 mappings; rings and tables may be more. */
TEST(small_memory_shares_mappings)
{
	static void *mem[1000];
	char line[512];
	int before = 0, after = 0;
	FILE *f;

	f = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), f) != NULL)
		before++;
	fclose(f);
	for (size_t i = 0; i < CRPC_DIM(mem); i++) {
		mem[i] = crpc_mem_alloc("test_small", 8192, 64, NULL);
		assert_non_null(mem[i]);
	}
	f = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), f) != NULL)
		after++;
	fclose(f);
	for (size_t i = 0; i < CRPC_DIM(mem); i++)
		crpc_mem_free(mem[i]);
	assert_in_range(after, 1, before + 100);
}

TEST(memory_that_is_no_part_is_left_alone)
{
	char *mem = crpc_mem_alloc("test_alone", 4096, 64, NULL);

	crpc_mem_free(NULL);
	crpc_mem_free(mem + 64);
	assert_non_null(strstr(crpc_log_last(), "is no memory of crpc_mem_alloc()"));
	mem[0] = 1; /* It is still there. */
	crpc_mem_free(mem);
}

TEST(a_page_behind_large_memory_stops_who_writes_too_far)
{
	volatile char *mem = crpc_mem_alloc("test_guard", 65536, 4096, NULL);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		mem[65535] = 1;
		mem[65536] = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	crpc_mem_free((void *)(uintptr_t)mem);
}

static void *
churn(void *arg)
{
	char *mem[8] = {NULL};

	for (uint32_t i = 0; i < 2000; i++) {
		crpc_mem_free(mem[i % 8]);
		mem[i % 8] = crpc_mem_alloc("test_churn", 64 + i, 64, NULL);
		if (mem[i % 8] == NULL)
			return arg;
		mem[i % 8][63 + i] = 1;
	}
	for (uint32_t i = 0; i < 8; i++)
		crpc_mem_free(mem[i]);
	return NULL;
}

TEST(threads_allocate_and_free_while_one_reports)
{
	struct found f = {.name = "test_churn"};
	pthread_t thread[4];
	void *failed;

	for (int i = 0; i < 4; i++)
		assert_ok(pthread_create(&thread[i], NULL, churn, &f));
	for (int i = 0; i < 20; i++)
		assert_ok(crpc_mem_walk(take, &f));
	for (int i = 0; i < 4; i++) {
		assert_ok(pthread_join(thread[i], &failed));
		assert_null(failed);
	}
	f.rows = 0;
	assert_ok(crpc_mem_walk(take, &f));
	assert_int_equal(f.rows, 0);
}

TEST_MAIN(NULL, NULL)
