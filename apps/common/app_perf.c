/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's counters of one thread, through perf_event_open(2). */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "app_perf.h"

const char *const app_counter_names[APP_COUNTERS] = {
	"instructions", "cycles", "l1d_misses", "llc_misses", "hitm"};

#define CACHE(id) ((id) | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static const struct {
	uint32_t type;
	uint64_t config;
} events[APP_COUNTERS] = {
	{PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
	{PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
	{PERF_TYPE_HW_CACHE, CACHE(PERF_COUNT_HW_CACHE_L1D)},
	{PERF_TYPE_HW_CACHE, CACHE(PERF_COUNT_HW_CACHE_LL)},
	/* MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM of Intel's server cores since Skylake. */
	{PERF_TYPE_RAW, 0x04d2},
};

/* The raw event means what its name says on an Intel CPU only. */
static bool
is_intel(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;

	return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
#else
	return false;
#endif
}

int
app_perf_open(struct app_perf *p)
{
	struct perf_event_attr a;
	int err = 0, got = 0;

	for (int i = 0; i < APP_COUNTERS; i++) {
		memset(&a, 0, sizeof(a));
		a.size = sizeof(a);
		a.type = events[i].type;
		a.config = events[i].config;
		a.exclude_kernel = 1;
		a.exclude_hv = 1;
		p->fd[i] = -1;
		if (events[i].type == PERF_TYPE_RAW && !is_intel())
			continue;
		p->fd[i] = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
		if (p->fd[i] < 0)
			err = errno;
		else
			got++;
	}
	return got > 0 ? 0 : -err;
}

void
app_perf_read(const struct app_perf *p, uint64_t *value)
{
	for (int i = 0; i < APP_COUNTERS; i++)
		if (p->fd[i] < 0 || read(p->fd[i], &value[i], sizeof(*value)) != sizeof(*value))
			value[i] = 0;
}

void
app_perf_close(struct app_perf *p)
{
	for (int i = 0; i < APP_COUNTERS; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
}
