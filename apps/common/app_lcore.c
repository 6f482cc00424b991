/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app_lcore.h"

#define LCORE_TIMEOUT_MS 20000

/* What each rank publishes. */
struct lcore_card {
	char host[64];
	cpu_set_t set;
};

/* Publish our card under a key and wait until everybody has. */
static int
cards_publish(struct app_boot *boot, const char *key, const cpu_set_t *set)
{
	struct lcore_card card = {.set = *set};

	gethostname(card.host, sizeof(card.host) - 1);
	if (app_boot_put(boot, key, &card, sizeof(card)) != 0 ||
		app_boot_fence(boot, LCORE_TIMEOUT_MS) != 0)
		return -EIO;
	return 0;
}

/* The card of a rank; 1 if it is on another host, where its cores are no concern of ours. */
static int
card_get(struct app_boot *boot, uint32_t rank, const char *key, cpu_set_t *set)
{
	struct lcore_card *card;
	char host[64] = "";
	void *buf;
	size_t len;
	int rc;

	if (app_boot_get(boot, rank, key, &buf, &len, LCORE_TIMEOUT_MS) != 0)
		return -EIO;
	card = buf;
	gethostname(host, sizeof(host) - 1);
	if (len != sizeof(*card)) {
		rc = -EIO;
	} else if (strncmp(card->host, host, sizeof(host)) != 0) {
		rc = 1;
	} else {
		*set = card->set;
		rc = 0;
	}
	free(buf);
	return rc;
}

/* The part'th of `parts` equal runs of cores in the set, at most max of them. */
static void
set_slice(const cpu_set_t *set, uint32_t part, uint32_t parts, uint32_t max, cpu_set_t *out)
{
	uint32_t count = (uint32_t)CPU_COUNT(set), first, last, seen = 0;
	int cpu;

	if (count >= parts) {
		first = part * count / parts;
		last = (part + 1) * count / parts;
	} else {
		first = part % count;
		last = first + 1;
	}
	last = (uint32_t)crpc_min(last, (uint64_t)first + max);
	CPU_ZERO(out);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, set))
			continue;
		if (seen >= first && seen < last)
			CPU_SET(cpu, out);
		seen++;
	}
}

int
app_lcore_choose(struct app_boot *boot, uint32_t max, cpu_set_t *set)
{
	uint32_t rank, before = 0, sharers = 1;
	cpu_set_t mine, theirs;
	int rc;

	if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
		return -EIO;
	if (boot->size > 1) {
		rc = cards_publish(boot, "crpc.affinity", &mine);
		if (rc != 0)
			return rc;
	}
	for (rank = 0; rank < boot->size; rank++) {
		if (rank == boot->rank)
			continue;
		rc = card_get(boot, rank, "crpc.affinity", &theirs);
		if (rc < 0)
			return rc;
		if (rc == 0 && CPU_EQUAL(&mine, &theirs)) {
			sharers++;
			before += rank < boot->rank;
		}
	}
	set_slice(&mine, before, sharers, max, set);
	return 0;
}

int
app_lcore_shared(struct app_boot *boot, const cpu_set_t *set, bool *shared)
{
	cpu_set_t theirs, both;
	uint32_t rank;
	int rc;

	*shared = false;
	if (boot->size == 1)
		return 0;
	rc = cards_publish(boot, "crpc.lcores", set);
	for (rank = 0; rc >= 0 && rank < boot->size; rank++) {
		if (rank == boot->rank)
			continue;
		rc = card_get(boot, rank, "crpc.lcores", &theirs);
		if (rc != 0)
			continue;
		CPU_AND(&both, set, &theirs);
		if (CPU_COUNT(&both) != 0)
			*shared = true;
	}
	return rc < 0 ? rc : 0;
}

void
app_lcore_text(const cpu_set_t *set, char *buf, size_t len)
{
	size_t used = 0;
	int cpu;

	buf[0] = '\0';
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, set) && used < len)
			used += (size_t)snprintf(
				buf + used, len - used, "%s%d", used == 0 ? "" : ",", cpu);
}
