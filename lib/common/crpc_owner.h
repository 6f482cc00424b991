/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_OWNER_H
#define CRPC_OWNER_H

/**
 * @file
 * Builds with -Ddebug_checks=true: an object belongs to the thread that used it first.
 */

#include "crpc_config.h"

CRPC_BEGIN_DECLS

/** The thread that owns an object; zeroed: none yet. */
struct crpc_owner {
	const void *thread;
};

#ifdef CRPC_DEBUG
void crpc_owner_check(struct crpc_owner *owner, const char *object);
#else
/**
 * Log an error and trap if another thread than the owner uses an object.
 *
 * @param owner
 *   The object's owner; the first check sets it.
 * @param object
 *   What the object is, for the message.
 */
static inline void
crpc_owner_check(struct crpc_owner *owner, const char *object)
{
	(void)owner;
	(void)object;
}
#endif

CRPC_END_DECLS

#endif
