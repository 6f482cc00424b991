/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "crpc_atomic.h"

/* The linker's names for the two ends of the section. */
extern struct crpc_crash_point *const __start_crpc_crash[] __attribute__((weak));
extern struct crpc_crash_point *const __stop_crpc_crash[] __attribute__((weak));

/* Which point; NULL is any. */
static const char *armed_name;
/* Passes of it that are left; 0 is none. */
static _Atomic uint32_t armed_left;
static _Atomic uint32_t passes;
/* Where to call what; NULL: nothing to call. */
static const char *call_name;
static void (*_Atomic call_fn)(void);

static void
arm(const char *name, uint32_t nth)
{
	armed_name = name;
	crpc_store_relaxed(&passes, 0);
	crpc_store_relaxed(&armed_left, nth);
}

void
crpc_crash_arm(const char *name, uint32_t nth)
{
	arm(name, name == NULL ? 0 : nth);
}

void
crpc_crash_arm_nth(uint32_t nth)
{
	arm(NULL, nth);
}

void
crpc_crash_call(const char *name, void (*fn)(void))
{
	call_name = name;
	crpc_store_relaxed(&call_fn, fn);
}

/* If something is to be called here. */
static void
call_here(const struct crpc_crash_point *point)
{
	void (*fn)(void) = crpc_load_relaxed(&call_fn);

	if (fn == NULL || strcmp(call_name, point->name) != 0)
		return;
	crpc_store_relaxed(&call_fn, NULL);
	fn();
}

void
crpc_crash_here(struct crpc_crash_point *point)
{
	crpc_fetch_add_relaxed(&point->passes, 1);
	crpc_fetch_add_relaxed(&passes, 1);
	call_here(point);
	if (crpc_load_relaxed(&armed_left) == 0)
		return;
	if (armed_name != NULL && strcmp(armed_name, point->name) != 0)
		return;
	if (crpc_fetch_add_relaxed(&armed_left, UINT32_MAX) == 1)
		kill(getpid(), SIGKILL);
}

uint32_t
crpc_crash_points(struct crpc_crash_point *const **points)
{
	*points = __start_crpc_crash;
	return (uint32_t)(__stop_crpc_crash - __start_crpc_crash);
}

uint32_t
crpc_crash_passes(const char *name)
{
	struct crpc_crash_point *const *p;
	uint32_t n = crpc_crash_points(&p), sum = 0;

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(p[i]->name, name) == 0)
			sum += crpc_load_relaxed(&p[i]->passes);
	return sum;
}
