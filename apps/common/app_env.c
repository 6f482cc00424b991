/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app_commit.h"
#include "app_env.h"
#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_idle.h"

#define LINE_ROUNDS 64
#define LINE_NS     3000000

const char *
app_env_commit(void)
{
	return APP_COMMIT;
}

/* The text behind "name : " in a file of such lines. */
static bool
proc_field(const char *path, const char *name, char *buf, size_t len)
{
	char line[512];
	bool found = false;
	FILE *f = fopen(path, "r");
	char *p;

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		p = strchr(line, ':');
		if (p == NULL)
			continue;
		p += 1 + strspn(p + 1, " \t");
		p[strcspn(p, "\n")] = '\0';
		snprintf(buf, len, "%s", p);
		found = true;
	}
	fclose(f);
	return found;
}

void
app_env_cpu(char *buf, size_t len)
{
	if (!proc_field("/proc/cpuinfo", "model name", buf, len))
		snprintf(buf, len, "unknown");
}

uint64_t
app_env_rss_kib(void)
{
	char text[64];
	unsigned long long kib;

	if (!proc_field("/proc/self/status", "VmHWM", text, sizeof(text)) ||
		sscanf(text, "%llu", &kib) != 1)
		return 0;
	return kib;
}

void
app_env_steal(struct app_steal *now)
{
	/* user nice system idle iowait irq softirq steal */
	unsigned long long v[8] = {0};
	FILE *f = fopen("/proc/stat", "r");
	int i, n;

	*now = (struct app_steal){0};
	if (f == NULL)
		return;
	n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		&v[4], &v[5], &v[6], &v[7]);
	fclose(f);
	if (n != 8)
		return;
	for (i = 0; i < 8; i++)
		now->total += v[i];
	now->steal = v[7];
}

double
app_env_steal_pct(const struct app_steal *begin, const struct app_steal *end)
{
	if (end->total <= begin->total)
		return 0;
	return 100.0 * (double)(end->steal - begin->steal) / (double)(end->total - begin->total);
}

struct line_pingpong {
	_Atomic uint64_t ping crpc_aligned(CRPC_CACHE_GUARD);
	_Atomic uint64_t pong crpc_aligned(CRPC_CACHE_GUARD);
	_Atomic int state crpc_aligned(
		CRPC_CACHE_GUARD); /* 0 starting, 1 ready, 2 no core, 3 stop. */
	int self_cpu;
};

/* Pin the calling thread to any online core but one. */
static bool
pin_elsewhere(int not_cpu)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);
	cpu_set_t set;
	int cpu;

	for (cpu = 0; cpu < n && cpu < CPU_SETSIZE; cpu++) {
		if (cpu == not_cpu)
			continue;
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) == 0)
			return true;
	}
	return false;
}

static void *
line_echo(void *arg)
{
	struct line_pingpong *pp = arg;
	uint64_t seen = 0, v;

	if (!pin_elsewhere(pp->self_cpu)) {
		crpc_store_release(&pp->state, 2); /* R1 */
		return NULL;
	}
	crpc_store_release(&pp->state, 1);           /* R1 */
	while (crpc_load_acquire(&pp->state) != 3) { /* A2 pairs with R2 */
		v = crpc_load_acquire(&pp->ping);    /* A3 pairs with R3 */
		if (v == seen)
			continue;
		seen = v;
		crpc_store_release(&pp->pong, v); /* R4 */
	}
	return NULL;
}

/* One timed batch of round trips; false if the other side did not answer in time. */
static bool
line_batch(struct line_pingpong *pp, uint64_t *seq, uint64_t deadline)
{
	uint32_t i, spins;

	for (i = 0; i < LINE_ROUNDS; i++) {
		crpc_store_release(&pp->ping, ++*seq); /* R3 */
		spins = 0;
		while (crpc_load_acquire(&pp->pong) != *seq) /* A4 pairs with R4 */
			if ((++spins & 1023) == 0 && crpc_clock_ns() > deadline)
				return false;
	}
	return true;
}

double
app_env_line_ns(void)
{
	struct line_pingpong pp = {.self_cpu = sched_getcpu()};
	uint64_t seq = 0, start, took, best = UINT64_MAX, deadline;
	pthread_t thread;
	int state;

	crpc_clock_init();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || pthread_create(&thread, NULL, line_echo, &pp) != 0)
		return -1;
	while ((state = crpc_load_acquire(&pp.state)) == 0) /* A1 pairs with R1 */
		sched_yield();
	deadline = crpc_clock_ns() + LINE_NS;
	while (state == 1 && (start = crpc_clock_ns()) < deadline) {
		if (!line_batch(&pp, &seq, deadline + LINE_NS))
			break;
		took = crpc_clock_ns() - start;
		best = crpc_min(best, took);
	}
	crpc_store_release(&pp.state, 3); /* R2 */
	pthread_join(thread, NULL);
	if (state == 2)
		return -1;
	return best == UINT64_MAX ? 0 : (double)best / LINE_ROUNDS;
}

const char *
app_env_state(double before_ns, double after_ns)
{
	if (before_ns < 0 || after_ns < 0)
		return "near";
	if (before_ns == 0 || after_ns == 0)
		return "mixed";
	if ((before_ns < APP_LINE_NEAR_NS) != (after_ns < APP_LINE_NEAR_NS))
		return "mixed";
	return before_ns < APP_LINE_NEAR_NS ? "near" : "far";
}

const double app_pause_us[APP_PAUSES] = {
	20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10000};

void
app_env_pause(double over[APP_PAUSES], uint64_t ns)
{
	double us = (double)ns / 1e3;
	uint32_t i;

	for (i = 0; i < APP_PAUSES && us > app_pause_us[i]; i++)
		over[i] += us - app_pause_us[i];
}

double
app_env_pause_floor(const double over[APP_PAUSES], double part)
{
	uint32_t i;

	for (i = 0; i < APP_PAUSES && over[i] >= part; i++)
		;
	return i == 0 ? 0 : app_pause_us[i - 1];
}

bool
app_env_answer(const char *name, int argc, char *const *argv,
	void (*help)(int argc, char *const *argv))
{
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--version") == 0) {
			printf("%s %s (%s)\n", name, CRPC_VERSION, app_env_commit());
			return true;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			help(argc, argv);
			printf("\n%s --version prints the version.\n", name);
			return true;
		}
	}
	return false;
}
