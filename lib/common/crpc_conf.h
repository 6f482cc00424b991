/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CONF_H
#define CRPC_CONF_H

/**
 * @file
 * How a library completes and checks the struct that it is configured by: first defaults, for what
 * is 0, then ranges. The first wrong value is logged, in one line and by the same words in every
 * library.
 */

#include <errno.h>
#include <stdint.h>

#include "crpc_log.h"

/** Give a field its default where it is 0. */
#define CRPC_CONF_DEFAULT(field, value)                                                            \
	do {                                                                                       \
		if ((field) == 0)                                                                  \
			(field) = (value);                                                         \
	} while (0)

/** Is field @p name, whose value is @p value, in its range? @return 0; -EINVAL, after a line. */
#define crpc_conf_range(name, value, min, max)                                                     \
	__crpc_conf_range(CRPC_LOG_TYPE, (name), (value), (min), (max))

static inline int
__crpc_conf_range(const char *type, const char *name, uint64_t value, uint64_t min, uint64_t max)
{
	if (value >= min && value <= max)
		return 0;
	crpc_log(CRPC_LOG_ERR, type, "conf.%s: expected %llu to %llu, found %llu", name,
		(unsigned long long)min, (unsigned long long)max, (unsigned long long)value);
	return -EINVAL;
}

#endif
