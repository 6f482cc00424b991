/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SPSC_PRIVATE_H
#define SPSC_PRIVATE_H

/* What the set-up of all rings shares. */

#include <errno.h>
#include <stdint.h>

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

struct crpc_spsc_hdr;

/*
 * The header of a ring in @p mem, copied once, then checked; and where its messages end. 0, or as
 * crpc_spsc_prod_attach().
 */
int __crpc_spsc_hdr_read(struct crpc_spsc_hdr *h, char *mem, size_t len, char **end);

#endif
