/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
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

static struct lcore_card cards[APP_RANKS_MAX];

/* Fetch the cards of all ranks under a key. */
static int
cards_exchange(struct app_boot *boot, const char *key, const cpu_set_t *set)
{
	struct lcore_card mine = {.set = *set};

	gethostname(mine.host, sizeof(mine.host) - 1);
	return app_boot_exchange(boot, key, &mine, sizeof(mine), cards, LCORE_TIMEOUT_MS);
}

/* Of a rank on another host its cores are no concern of ours. */
static bool
is_here(const struct app_boot *boot, uint32_t rank)
{
	return strncmp(cards[rank].host, cards[boot->rank].host, sizeof(cards[rank].host)) == 0;
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
	uint32_t before = 0, sharers = 0;
	cpu_set_t mine;
	int rc;

	if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
		return -EIO;
	rc = cards_exchange(boot, "crpc.affinity", &mine);
	if (rc != 0)
		return rc;
	for (uint32_t rank = 0; rank < boot->size; rank++)
		if (is_here(boot, rank) && CPU_EQUAL(&mine, &cards[rank].set)) {
			sharers++;
			before += rank < boot->rank;
		}
	app_cores_order("/sys", &mine, nic ? app_cores_device_node("/sys", device) : -1, &cores);
	cores_slice(&cores, before, sharers, max, set);
	return 0;
}

int
app_lcore_shared(struct app_boot *boot, const cpu_set_t *set, bool *shared)
{
	int rc = cards_exchange(boot, "crpc.lcores", set);
	cpu_set_t both;

	*shared = false;
	for (uint32_t rank = 0; rc == 0 && rank < boot->size; rank++) {
		CPU_AND(&both, set, &cards[rank].set);
		*shared |= rank != boot->rank && is_here(boot, rank) && CPU_COUNT(&both) != 0;
	}
	return rc;
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
