/* SPDX-License-Identifier: BSD-3-Clause */
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app_cores.h"
#include "crpc_file.h"

#define NODES 64

int
app_cores_node(const char *sys, int cpu)
{
	char path[256];

	for (int node = 0; node < NODES; node++) {
		snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%d/node%d", sys, cpu, node);
		if (access(path, F_OK) == 0)
			return node;
	}
	return -1;
}

int
app_cores_device_node(const char *sys, const char *device)
{
	const char *name = device != NULL ? device : "*";
	char path[512];
	glob_t found;
	int node = -1;

	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/device/numa_node", sys,
		(int)strcspn(name, ","), name);
	if (glob(path, 0, NULL, &found) == 0)
		node = (int)__crpc_file_number(found.gl_pathv[0]);
	globfree(&found);
	return node;
}

/* 0: take it first. */
static uint32_t
rank_of(const char *sys, int cpu, int node, const cpu_set_t *taken)
{
	char path[256];
	int sibling, at = node < 0 ? node : app_cores_node(sys, cpu);

	/* The first of the core's threads: a later one is worse if that is in the set. */
	snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		sys, cpu);
	sibling = (int)__crpc_file_number(path);
	return 2 * (at != node) +
		(sibling >= 0 && sibling < CPU_SETSIZE && sibling != cpu &&
			CPU_ISSET(sibling, taken));
}

void
app_cores_order(const char *sys, const cpu_set_t *set, int node, struct app_cores *cores)
{
	uint8_t rank[CPU_SETSIZE];

	cores->n = 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		rank[cpu] = CPU_ISSET(cpu, set) ? (uint8_t)rank_of(sys, cpu, node, set) : UINT8_MAX;
	for (uint8_t r = 0; r < 4; r++)
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (rank[cpu] == r)
				cores->cpu[cores->n++] = (uint16_t)cpu;
}
