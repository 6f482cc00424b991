/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app_cores.h"
#include "app_fail.h"
#include "app_lcore.h"
#include "app_opt.h"
#include "app_stop.h"

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
	struct lcore_card card;
	char host[sizeof(card.host)] = "";

	if (app_boot_take(boot, rank, key, &card, sizeof(card), LCORE_TIMEOUT_MS) != 0)
		return -EIO;
	gethostname(host, sizeof(host) - 1);
	*set = card.set;
	return strncmp(card.host, host, sizeof(host)) != 0;
}

/* The part'th of `parts` equal runs of cores, the best first, each of at most max. */
static void
cores_slice(const struct app_cores *cores, uint32_t part, uint32_t parts, uint32_t max,
	cpu_set_t *out)
{
	uint32_t len = (uint32_t)crpc_min(max, crpc_max(cores->n / parts, 1));

	CPU_ZERO(out);
	for (uint32_t i = 0; i < len; i++)
		CPU_SET(cores->cpu[(part * len + i) % cores->n], out);
}

int
app_lcore_choose(struct app_boot *boot, const char *device, uint32_t max, cpu_set_t *set)
{
	bool nic = device != NULL || boot->size > 1;
	struct app_cores cores;
	uint32_t before = 0, sharers = 1;
	cpu_set_t mine, theirs;
	int rc;

	if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
		return -EIO;
	rc = cards_publish(boot, "crpc.affinity", &mine);
	if (rc != 0)
		return rc;
	for (uint32_t rank = 0; rank < boot->size; rank++) {
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
	app_cores_order("/sys", &mine, nic ? app_cores_device_node("/sys", device) : -1, &cores);
	cores_slice(&cores, before, sharers, max, set);
	return 0;
}

int
app_lcore_shared(struct app_boot *boot, const cpu_set_t *set, bool *shared)
{
	cpu_set_t theirs, both;
	int rc;

	*shared = false;
	rc = cards_publish(boot, "crpc.lcores", set);
	for (uint32_t rank = 0; rc >= 0 && rank < boot->size; rank++) {
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

int
app_lcore_start(struct app_boot *boot, const struct app_args *args, const char *device,
	uint32_t max, cpu_set_t *set, bool *shared)
{
	int rc = app_boot_watch(boot);

	if (rc == 0)
		rc = app_lcore_choose(boot, device, max, set);
	if (rc != 0)
		return app_fail_once("the ranks did not all come to the start: %s; one has died, "
				     "or its host is too busy: start again",
			strerror(-rc));
	if (!boot->watched && boot->rank == 0)
		app_note("rank %u cannot be watched from here, for want of a TCP connection to "
			 "its host: if it dies, that is found when it does not answer",
			boot->unwatched);
	app_fail_hold(true);
	rc = app_eal_start(args, set);
	app_stop_catch();
	rc = app_boot_agree(boot, "eal", rc);
	if (rc != 0)
		return rc;
	app_eal_lcores(max, set);
	if (app_lcore_shared(boot, set, shared) != 0)
		return app_fail_once("the ranks could not exchange their lcores; start again");
	return 0;
}

enum crpc_idle_policy
app_lcore_idle(unsigned int choice, bool crowded, const cpu_set_t *set, bool served)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (choice == APP_IDLE_POLL)
		return CRPC_IDLE_POLL;
	return choice == APP_IDLE_YIELD || crowded || (served && CPU_COUNT(set) >= online)
		? CRPC_IDLE_YIELD
		: CRPC_IDLE_POLL;
}

void
app_lcore_text(const cpu_set_t *set, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, set) && used < len)
			used += (size_t)snprintf(
				buf + used, len - used, "%s%d", used == 0 ? "" : ",", cpu);
}
