/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SPSC_PRIVATE_H
#define SPSC_PRIVATE_H

/* What the set-up and the checks of all rings share. */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "crpc_config.h"
#include "crpc_log.h"
#include "crpc_util.h"

static inline int
spsc_mem_check(const void *mem, size_t len, size_t need)
{
	if ((uintptr_t)mem % CRPC_CACHE_GUARD != 0) {
		crpc_err("ring memory %p is not aligned to %u bytes", mem, CRPC_CACHE_GUARD);
		return -EINVAL;
	}
	if (len < need) {
		crpc_err("ring memory has %zu bytes, %zu are needed", len, need);
		return -ENOSPC;
	}
	return 0;
}

/* Say one violation. */
static inline unsigned int crpc_printf(2, 3)
spsc_say(FILE *out, const char *fmt, ...)
{
	va_list ap;

	if (out != NULL) {
		va_start(ap, fmt);
		vfprintf(out, fmt, ap);
		va_end(ap);
	}
	return 1;
}

#endif
