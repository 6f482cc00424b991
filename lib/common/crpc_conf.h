/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CONF_H
#define CRPC_CONF_H

/**
 * @file
 * How a library completes and checks the struct that it is configured by: defaults, for what is 0,
 * and ranges. The first wrong value is logged, in one line and by the same words in every library,
 * and so is a number in memory of a peer.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "crpc_log.h"

/** Give a field its default where it is 0. */
#define CRPC_CONF_DEFAULT(field, value)                                                            \
	do {                                                                                       \
		if ((field) == 0)                                                                  \
			(field) = (value);                                                         \
	} while (0)

/** CRPC_CONF_DEFAULT() and crpc_conf_range() of a field of @p conf. */
#define CRPC_CONF(conf, field, value, min, max)                                                    \
	((conf)->field != 0 ? 0 : ((conf)->field = (value)),                                       \
		crpc_conf_range(#field, (conf)->field, (min), (max)))

/** Is field @p name, whose value is @p value, in its range? As crpc_outside(). */
#define crpc_conf_range(name, value, min, max) crpc_outside("conf", name, value, min, max)

/** Is @p found out of its range? @return 0: it is within; -EINVAL, after a line. */
#define crpc_outside(object, what, found, min, max)                                                \
	__crpc_outside(CRPC_LOG_TYPE, (object), (what), (found), (min), (max))

static inline int
__crpc_outside(const char *type, const char *object, const char *what, uint64_t found, uint64_t min,
	uint64_t max)
{
	if (found >= min && found <= max)
		return 0;
	crpc_log(CRPC_LOG_ERR, type, "%s: %s is %llu; expected %llu to %llu", object, what,
		(unsigned long long)found, (unsigned long long)min, (unsigned long long)max);
	return -EINVAL;
}

/** A number that a peer wrote, and its range. */
struct crpc_field {
	const char *name;
	uint64_t found, min, max;
};

/** Are the @p n fields of the address of @p peer in their ranges? @return 0; -EPROTO, logged. */
#define crpc_address_check(peer, fields, n) __crpc_address_check(CRPC_LOG_TYPE, peer, fields, n)

static inline int
__crpc_address_check(const char *type, uint32_t peer, const struct crpc_field *field, size_t n)
{
	char object[40];

	snprintf(object, sizeof(object), "address of peer %u", peer);
	for (; n != 0; n--, field++)
		if (__crpc_outside(type, object, field->name, field->found, field->min, field->max))
			return -EPROTO;
	return 0;
}

#endif
