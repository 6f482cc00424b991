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
	if ((uintptr_t)mem % CRPC_CACHE_GUARD != 0)
		return crpc_fail(-EINVAL, "ring memory %p is not aligned to %u bytes", mem,
			CRPC_CACHE_GUARD);
	if (len < need)
		return crpc_fail(-ENOSPC, "ring memory has %zu bytes, %zu are needed", len, need);
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

struct crpc_spsc_hdr;

/* The header of a ring in @p mem: copied once, then checked. 0, or as crpc_spsc_prod_attach(). */
int __crpc_spsc_hdr_read(struct crpc_spsc_hdr *h, const void *mem, size_t len);

#endif
