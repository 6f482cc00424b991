/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include <numaif.h>
#include <rte_lcore.h>

#include "app_cores.h"
#include "app_eal.h"
#include "map.h"

#define MAP_TIMEOUT_MS 3000

unsigned int
kv_map_node(unsigned int lcore)
{
	int node = app_cores_node("/sys", app_eal_core_of(lcore));

	return node < 0 ? 0 : (unsigned int)node;
}

/* The NUMA node of the page at p; below 0: not known. */
static int
node_of(void *p)
{
	int node;

	return get_mempolicy(&node, NULL, 0, p, MPOL_F_NODE | MPOL_F_ADDR) == 0 ? node : -1;
}

int
kv_map_device_node(const char *device)
{
	return device == NULL || device[0] == '\0' ? -1 : app_cores_device_node("/sys", device);
}

static void
apart(FILE *t, const struct kv_rank *r, uint32_t daemon, const char *what, int node)
{
	unsigned int lcore = kv_rank_lcore(r, daemon);
	int poller = (int)kv_map_node(lcore);

	if (node < 0 || node == poller)
		return;
	fprintf(t,
		"  warning: rank %u: %s of daemon %u is on NUMA node %d, its lcore %u on node %d; "
		"give it a lcore of node %d (-l)%s\n",
		r->boot.rank, what, daemon, node, lcore, poller, node,
		what[0] == 'N' ? "" : " or more memory there");
}

static void
write_daemon(FILE *t, const struct kv_rank *r, uint32_t i)
{
	uint32_t clients = (uint32_t)r->opt.clients;
	struct crpc_kv_parts parts;

	fprintf(t, "  daemon %u: %u keys (%.1f %%), %u clients", i, r->keys[i],
		100.0 * (double)r->keys[i] / (double)(r->opt.keys * r->boot.size),
		kv_home_first(i + 1, clients, r->daemons) - kv_home_first(i, clients, r->daemons));
	crpc_kv_daemon_parts(r->daemon[i], &parts);
	if (parts.endpoints != 0)
		fprintf(t, ", %u queue pair%s on %s", parts.endpoints,
			parts.endpoints == 1 ? "" : "s", r->device);
	fprintf(t, ";");
}

/* One rank's part. */
static void
write_part(FILE *t, const struct kv_rank *r)
{
	const struct kv_place *place;
	int nic = kv_map_device_node(r->device);
	struct crpc_kv_parts parts;

	for (uint32_t i = 0; i < r->seats; i++) {
		place = &r->place[i];
		fprintf(t, "  rank %u  lcore %u (core %d, node %u)", r->boot.rank, r->lcore[i],
			app_eal_core_of(r->lcore[i]), kv_map_node(r->lcore[i]));
		for (uint32_t k = place->daemon_from; k < place->daemon_to; k++)
			write_daemon(t, r, k);
		if (place->client_to > place->client_from)
			fprintf(t, "  runs clients %u to %u", place->client_from,
				place->client_to - 1);
		fprintf(t, "\n");
	}
	for (uint32_t i = 0; i < r->daemons; i++) {
		crpc_kv_daemon_parts(r->daemon[i], &parts);
		apart(t, r, i, "NIC", nic);
		apart(t, r, i, "store", node_of(parts.memory));
		apart(t, r, i, "memory", node_of(r->daemon[i]));
	}
}

int
kv_map_publish(struct kv_rank *r)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int rc = -ENOMEM;

	if (f == NULL)
		return rc;
	write_part(f, r);
	if (fclose(f) == 0)
		rc = app_boot_put(&r->boot, "kv.map", text, len);
	free(text);
	return rc;
}

void
kv_map_print(struct kv_rank *r, FILE *out)
{
	void *buf;
	size_t len;

	write_part(out, r);
	for (uint32_t i = 0; i < r->boot.size; i++) {
		if (i == r->boot.rank ||
			app_boot_get(&r->boot, i, "kv.map", &buf, &len, MAP_TIMEOUT_MS) != 0)
			continue;
		fprintf(out, "%.*s", (int)len, (const char *)buf);
		free(buf);
	}
	fflush(out);
}
