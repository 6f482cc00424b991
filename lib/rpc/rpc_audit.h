/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPC_AUDIT_H
#define RPC_AUDIT_H

/**
 * @file
 * How the layers audit themselves: what is counted again must be what is kept.
 */

#include <inttypes.h>

#include "crpc_log.h"

/** What must be, and what is. */
struct rpc_rule {
	const char *name; /**< NULL: the end of an array. */
	uint64_t expected, found;
};

/** Whether all hold. If not, a line has the endpoint, the first that does not, and both values. */
static inline bool
rpc_rules_hold(uint32_t id, uint32_t peer, const struct rpc_rule *rule)
{
	for (; rule->name != NULL; rule++)
		if (rule->expected != rule->found)
			return crpc_fail(false,
				"audit: endpoint %u (peer %u): %s: expected %" PRIu64
				", found %" PRIu64,
				id, peer, rule->name, rule->expected, rule->found);
	return true;
}

#endif
