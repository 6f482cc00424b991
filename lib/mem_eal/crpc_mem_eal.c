/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "crpc_mem_eal.h"
#include "crpc_tel_put.h"
#include "mem_source.h"

static void *
eal_alloc(const char *name, size_t size, size_t align, int node)
{
	int socket = node < 0 ? SOCKET_ID_ANY : node;

	return rte_zmalloc_socket(name, size, (unsigned int)align, socket);
}

static struct crpc_mem_place
eal_here(void)
{
	unsigned int lcore = rte_lcore_id();

	/* No node: a thread that is no lcore, or one that may run on several. */
	return (struct crpc_mem_place){
		.node = (int)rte_socket_id(), .lcore = lcore == LCORE_ID_ANY ? -1 : (int)lcore};
}

static const struct mem_source eal = {.alloc = eal_alloc, .free = rte_free, .here = eal_here};

/* Pages of an EAL without hugepages have no node. */
static const struct mem_source eal_no_huge = {.here = eal_here};

struct list {
	struct rte_tel_data *d;
	uint32_t n;
};

/* By numbers: DPDK 22.11 leaves dictionaries in arrays out. */
static void
put_part(const struct crpc_mem_part *part, void *arg)
{
	struct rte_tel_data *one = rte_tel_data_alloc();
	struct list *list = arg;
	char key[16];

	if (one == NULL)
		return;
	rte_tel_data_start_dict(one);
	rte_tel_data_add_dict_string(one, "part", part->name);
	crpc_tel_add_dict_uint(one, "count", part->count);
	crpc_tel_add_dict_uint(one, "bytes", part->bytes);
	crpc_tel_add_dict_uint(one, "page_size", part->page_size);
	crpc_tel_add_dict_uint(one, "thp_bytes", part->thp_bytes);
	rte_tel_data_add_dict_int(one, "node", part->node);
	rte_tel_data_add_dict_int(one, "lcore", part->lcore);
	snprintf(key, sizeof(key), "%u", list->n++);
	if (rte_tel_data_add_dict_container(list->d, key, one, 0) != 0)
		rte_tel_data_free(one);
}

static int
tel_mem(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct list list = {.d = d};

	rte_tel_data_start_dict(d);
	return crpc_mem_walk(put_part, &list);
}

void
crpc_mem_eal_start(void)
{
	rte_telemetry_register_cmd("/crpc/mem", tel_mem,
		"Memory of the datapath: part, bytes, page size, node, lcore. No parameters.");
	__crpc_mem_source_set(rte_eal_has_hugepages() != 0 ? &eal : &eal_no_huge);
}

void
crpc_mem_eal_stop(void)
{
	__crpc_mem_source_set(NULL);
}
