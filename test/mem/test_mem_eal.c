/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a program with an EAL that has no hugepages, and telemetry's list of it. */
#include <rte_lcore.h>

#include "test.h"
#include "crpc_mem_eal.h"
#include "tel_ask.h"

/* The row of a part, or NULL. */
static json_t *
row(json_t *rows, const char *name)
{
	const char *key;
	json_t *one;

	json_object_foreach (rows, key, one) {
		if (strcmp(json_string_value(json_object_get(one, "part")), name) == 0)
			return one;
	}
	return NULL;
}

TEST(a_lcore_has_memory_that_telemetry_lists)
{
	void *mem = crpc_mem_alloc("test_lcore", 5000, 64, NULL);
	json_t *rows, *one;

	assert_non_null(mem);
	rows = ask("/crpc/mem", "");
	one = row(rows, "test_lcore");
	assert_non_null(one);
	assert_int_equal(number(one, "count"), 1);
	assert_int_equal(number(one, "bytes"), 5000);
	assert_int_equal(number(one, "page_size"), sysconf(_SC_PAGESIZE));
	assert_int_equal(number(one, "thp_bytes"), 0);
	assert_int_equal(number(one, "lcore"), rte_lcore_id());
	json_decref(rows);
	crpc_mem_free(mem);
	rows = ask("/crpc/mem", "");
	assert_null(row(rows, "test_lcore"));
	json_decref(rows);
}

TEST(without_the_eal_no_lcore_uses_memory)
{
	assert_int_equal(crpc_mem_here().lcore, rte_lcore_id());
	crpc_mem_eal_stop();
	assert_int_equal(crpc_mem_here().lcore, -1);
	crpc_mem_eal_start();
}

static int
start(void **state)
{
	crpc_mem_eal_start();
	tel_connect();
	return 0;
}

int
main(int argc, char **argv)
{
	return tel_run(argv[0], start, NULL);
}
