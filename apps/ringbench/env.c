/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: who it is, what it did meanwhile, what a line costs between two of its lcores. */
#include <string.h>
#include <sys/resource.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "crpc_clock.h"
#include "crpc_idle.h"
#include "rb.h"
#include "rb_commit.h"

#define PING_WARM 200u
#define PING_ROUNDS 4000u
#define PING_LIMIT_NS UINT64_C(100000000)
#define LINES 1024u
#define LINE_STEP 32u
#define LINE_NS UINT64_C(20000000)

const char *const rb_state_names[3] = {"near", "far", "mixed"};

const char *
rb_env_commit(void)
{
	return RB_COMMIT;
}

void
rb_env_cpu(char *buf, size_t len)
{
	char line[256], *at;
	FILE *f = fopen("/proc/cpuinfo", "r");

	snprintf(buf, len, "unknown");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		at = strchr(line, ':');
		if (strncmp(line, "model name", 10) != 0 || at == NULL)
			continue;
		at[strcspn(at, "\n")] = '\0';
		snprintf(buf, len, "%s", at + 2);
		break;
	}
	if (f != NULL)
		fclose(f);
}

void
rb_env_steal(struct rb_steal *s)
{
	unsigned long long v[8] = {0};
	FILE *f = fopen("/proc/stat", "r");
	int i;

	memset(s, 0, sizeof(*s));
	if (f == NULL)
		return;
	if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		    &v[4], &v[5], &v[6], &v[7]) == 8) {
		for (i = 0; i < 8; i++)
			s->total += v[i];
		s->steal = v[7];
	}
	fclose(f);
}

double
rb_env_steal_pct(const struct rb_steal *a, const struct rb_steal *b)
{
	uint64_t total = b->total - a->total;

	return total == 0 ? 0.0 : 100.0 * (double)(b->steal - a->steal) / (double)total;
}

uint64_t
rb_env_switches(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) == 0 ? (uint64_t)u.ru_nivcsw : 0;
}

/* Shortest ping-pong of this run. */
static double nearest_ns = RB_NEAR_NS;

unsigned int
rb_env_state(const double line_ns[2])
{
	double near_ns = nearest_ns * RB_NEAR_SPREAD;
	bool far0, far1;

	near_ns = near_ns < RB_NEAR_NS ? near_ns : RB_NEAR_NS;
	far0 = line_ns[0] >= near_ns;
	far1 = line_ns[1] >= near_ns;

	return far0 != far1 ? 2 : far0;
}

static crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint64_t ball;
static crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint64_t ack;
static crpc_aligned(CRPC_CACHE_GUARD) uint64_t court[LINES][CRPC_CACHE_LINE / 8];
static crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t over;

static int
pong(void *arg)
{
	uint64_t i, t0 = crpc_clock_ns();

	for (i = 0; i < PING_WARM + PING_ROUNDS; i++) {
		/* A40: pairs with the store in rb_env_line_ns. */
		while (crpc_load_acquire(&ball) != 2 * i + 1)
			if (crpc_clock_ns() - t0 > PING_LIMIT_NS)
				return 0;
		crpc_store_release(&ball, 2 * i + 2);
	}
	return 0;
}

double
rb_env_line_ns(unsigned int lcore)
{
	uint64_t i, begin = 0, t0 = crpc_clock_ns();

	crpc_store_release(&ball, 0);
	rte_eal_remote_launch(pong, NULL, lcore);
	for (i = 0; i < PING_WARM + PING_ROUNDS; i++) {
		if (i == PING_WARM)
			begin = crpc_clock_ns();
		crpc_store_release(&ball, 2 * i + 1);
		while (crpc_load_acquire(&ball) != 2 * i + 2)
			if (crpc_clock_ns() - t0 > PING_LIMIT_NS) { /* something else has a core */
				rte_eal_wait_lcore(lcore);
				return (double)PING_LIMIT_NS;
			}
	}
	begin = crpc_clock_ns() - begin;
	rte_eal_wait_lcore(lcore);
	if ((double)begin / PING_ROUNDS < nearest_ns)
		nearest_ns = (double)begin / PING_ROUNDS;
	return (double)begin / PING_ROUNDS;
}

/* Reads each line once, and tells how far it is every quarter of the court. */
static int
line_reader(void *arg)
{
	uint64_t at = 0, ready, sum = 0, w;

	while (crpc_load_relaxed(&over) == 0) {
		ready = crpc_load_acquire(&ball);
		for (; at < ready; at++) {
			for (w = 0; w < CRPC_CACHE_LINE / 8; w++)
				sum += court[at % LINES][w];
			if (at % (LINES / 4) == LINES / 4 - 1)
				crpc_store_release(&ack, at + 1);
		}
	}
	__asm__ __volatile__("" : : "r"(sum));
	return 0;
}

double
rb_env_line_rate(unsigned int lcore)
{
	uint64_t at = 0, seen = 0, t0, ns, w, i;

	crpc_store_release(&ball, 0);
	crpc_store_release(&ack, 0);
	crpc_store_release(&over, 0);
	rte_eal_remote_launch(line_reader, NULL, lcore);
	t0 = crpc_clock_ns();
	do {
		while (at + LINE_STEP - seen > LINES) {
			seen = crpc_load_acquire(&ack);
			if (crpc_clock_ns() - t0 > LINE_NS)
				break;
		}
		if (at + LINE_STEP - seen > LINES)
			break;
		for (i = 0; i < LINE_STEP; i++, at++)
			for (w = 0; w < CRPC_CACHE_LINE / 8; w++)
				court[at % LINES][w] = at;
		crpc_store_release(&ball, at);
		ns = crpc_clock_ns() - t0;
	} while (ns < LINE_NS);
	ns = crpc_clock_ns() - t0;
	crpc_store_release(&over, 1);
	rte_eal_wait_lcore(lcore);
	return (double)crpc_load_acquire(&ack) * 1e3 / (double)ns;
}
