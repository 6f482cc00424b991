/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <numa.h>
#include <numaif.h>
#include <rte_lcore.h>

#include "map.h"

#define MAP_TIMEOUT_MS 3000

/* Text that grows until the buffer is full. */
struct text {
	char *buf;
	size_t len, used;
};

static void say(struct text *t, const char *fmt, ...) crpc_printf(2, 3);

static void
say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (t->used >= t->len)
		return;
	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->used, t->len - t->used, fmt, ap);
	va_end(ap);
	t->used += n > 0 ? (size_t)n : 0;
}

unsigned int
kv_map_cpu(unsigned int lcore)
{
	rte_cpuset_t set = rte_lcore_cpuset(lcore);
	unsigned int cpu;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			return cpu;
	return lcore;
}

unsigned int
kv_map_node(unsigned int lcore)
{
	int node = numa_available() < 0 ? -1 : numa_node_of_cpu((int)kv_map_cpu(lcore));

	return node < 0 ? 0 : (unsigned int)node;
}

void
kv_map_near(unsigned int lcore)
{
	int node = (int)kv_map_node(lcore);

	if (numa_available() >= 0 && numa_max_node() > 0 && node <= numa_max_node())
		numa_set_preferred(node);
}

void
kv_map_near_end(void)
{
	if (numa_available() >= 0 && numa_max_node() > 0)
		numa_set_localalloc();
}

/* The NUMA node of the page at p; below 0: not known. */
static int
node_of(void *p)
{
	long page = sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)p & ~((uintptr_t)page - 1));
	int node = -1;

	if (numa_available() < 0 || numa_move_pages(0, 1, &at, NULL, &node, 0) != 0)
		return -1;
	return node;
}

int
kv_map_device_node(const char *device)
{
	char path[128];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", device);
	f = device == NULL || device[0] == '\0' ? NULL : fopen(path, "r");
	if (f == NULL)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

static uint32_t
apart(struct text *t, const struct kv_rank *r, uint32_t daemon, const char *what, int node)
{
	unsigned int lcore = kv_rank_lcore(r, daemon);
	int poller = (int)kv_map_node(lcore);

	if (node < 0 || node == poller)
		return 0;
	say(t,
		"  warning: rank %u: %s of daemon %u is on NUMA node %d, its lcore %u on node %d; "
		"give it a lcore of node %d (-l)%s\n",
		r->boot.rank, what, daemon, node, lcore, poller, node,
		what[0] == 'N' ? "" : " or more memory there");
	return 1;
}

static void
say_daemon(struct text *t, const struct kv_rank *r, uint32_t i)
{
	const struct kv_daemon *d = r->daemon[i];
	uint32_t clients = r->run.clients;

	say(t, "  daemon %u: %u keys (%.1f %%), %u clients", i, d->keys,
		100.0 * (double)d->keys / (double)(r->opt.keys * r->boot.size),
		kv_home_first(i + 1, clients, r->daemons) - kv_home_first(i, clients, r->daemons));
	if (d->net != NULL)
		say(t, ", %u queue pair%s on %s", d->net->peers, d->net->peers == 1 ? "" : "s",
			d->net->device);
	say(t, ";");
}

uint32_t
kv_map_write(const struct kv_rank *r, char *buf, size_t len)
{
	struct text t = {.buf = buf, .len = len};
	const struct kv_place *place;
	int nic = kv_map_device_node(r->device);
	uint32_t i, k, warnings = 0;

	buf[0] = '\0';
	for (i = 0; i < r->seats; i++) {
		place = &r->place[i];
		say(&t, "  rank %u  lcore %u (core %u, node %u)", r->boot.rank, r->lcore[i],
			kv_map_cpu(r->lcore[i]), kv_map_node(r->lcore[i]));
		for (k = place->daemon_from; k < place->daemon_to; k++)
			say_daemon(&t, r, k);
		if (place->client_to > place->client_from)
			say(&t, "  runs clients %u to %u", place->client_from,
				place->client_to - 1);
		say(&t, "\n");
	}
	for (i = 0; i < r->daemons; i++) {
		warnings += apart(&t, r, i, "NIC", nic);
		warnings += apart(&t, r, i, "store", node_of(kv_store_memory(r->daemon[i]->store)));
		warnings += apart(&t, r, i, "memory", node_of(r->daemon[i]));
	}
	return warnings;
}

int
kv_map_publish(struct kv_rank *r)
{
	char *buf = calloc(1, KV_MAP_MAX);
	int rc = buf == NULL ? -ENOMEM : 0;

	if (rc == 0) {
		kv_map_write(r, buf, KV_MAP_MAX);
		rc = app_boot_put(&r->boot, "kv.map", buf, strlen(buf) + 1);
	}
	free(buf);
	return rc;
}

void
kv_map_print(struct kv_rank *r, FILE *out)
{
	char *mine = malloc(KV_MAP_MAX);
	void *buf;
	size_t len;
	uint32_t i;

	if (mine == NULL)
		return;
	kv_map_write(r, mine, KV_MAP_MAX);
	fputs(mine, out);
	free(mine);
	for (i = 0; i < r->boot.size; i++) {
		if (i == r->boot.rank ||
			app_boot_get(&r->boot, i, "kv.map", &buf, &len, MAP_TIMEOUT_MS) != 0)
			continue;
		fprintf(out, "%.*s", (int)crpc_min(len, KV_MAP_MAX), (const char *)buf);
		free(buf);
	}
	fflush(out);
}
