/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which cores are taken, on machines made of files: two nodes of two cores with two
 * threads each, numbered as Linux does; a container that may use some; a machine without nodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app_cores.h"
#include "test.h"

#define CPUS 8

static char sys_root[] = "/tmp/app_cores.XXXXXX";

/* A file below the root, with the folders on its way. */
static void
put(const char *text, const char *folder, int id, const char *name)
{
	char path[256], *at;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s%d/%s", sys_root, folder, id, name);
	for (at = path + strlen(sys_root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
		*at = '\0';
		mkdir(path, 0700);
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* Core c of node c / 2 has the threads c and c + 4. */
static int
make_machine(void **state)
{
	char siblings[16];

	assert_non_null(mkdtemp(sys_root));
	for (int cpu = 0; cpu < CPUS; cpu++) {
		snprintf(siblings, sizeof(siblings), "%d,%d\n", cpu % 4, cpu % 4 + 4);
		put(siblings, "devices/system/cpu/cpu", cpu, "topology/thread_siblings_list");
		put("", "devices/system/cpu/cpu", cpu, cpu % 4 < 2 ? "node0" : "node1");
	}
	put("1\n", "class/infiniband/mlx5_", 0, "device/numa_node");
	put("0\n", "class/infiniband/mlx5_", 1, "device/numa_node");
	put("-1\n", "class/infiniband/rxe", 0, "device/numa_node");
	return 0;
}

static int
remove_machine(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", sys_root);
	return system(command);
}

static void
expect_order(const char *sys, unsigned int cpus, int node, const char *want)
{
	struct app_cores cores;
	char found[64] = "";
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPUS; cpu++)
		if ((cpus >> cpu & 1) != 0)
			CPU_SET(cpu, &set);
	app_cores_order(sys, &set, node, &cores);
	for (uint32_t i = 0; i < cores.n; i++)
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%u ", cores.cpu[i]);
	assert_string_equal(found, want);
}

TEST(the_node_comes_first_and_then_whole_cores)
{
	expect_order(sys_root, 0xff, 0, "0 1 4 5 2 3 6 7 ");
	expect_order(sys_root, 0xff, 1, "2 3 6 7 0 1 4 5 ");
	expect_order(sys_root, 0xff, -1, "0 1 2 3 4 5 6 7 ");
}

/* A second thread is as good as a first if its core has no other in the set. */
TEST(only_cores_of_the_set_count)
{
	expect_order(sys_root, 0xf0, -1, "4 5 6 7 ");
	expect_order(sys_root, 0x13, -1, "0 1 4 ");
	expect_order(sys_root, 0x32, 1, "1 4 5 ");
}

TEST(a_machine_without_nodes_has_an_order)
{
	expect_order("/nowhere", 0x0f, 0, "0 1 2 3 ");
}

TEST(devices_and_cores_have_a_node)
{
	assert_int_equal(app_cores_device_node(sys_root, "mlx5_1,x"), 0);
	assert_int_equal(app_cores_device_node(sys_root, "mlx5_0"), 1);
	assert_int_equal(app_cores_device_node(sys_root, NULL), 1);
	assert_int_equal(app_cores_device_node(sys_root, "rxe0"), -1);
	assert_int_equal(app_cores_device_node(sys_root, "none"), -1);
	assert_int_equal(app_cores_device_node("/nowhere", NULL), -1);
	assert_int_equal(app_cores_node(sys_root, 7), 1);
	assert_int_equal(app_cores_node(sys_root, 9), -1);
}

TEST_MAIN(make_machine, remove_machine)
