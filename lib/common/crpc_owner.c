/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_owner.h"

#include "crpc_log.h"

#ifdef CRPC_DEBUG
/* The address of a thread-local object identifies the thread without a system call. */
static _Thread_local char thread_mark;

void
crpc_owner_check(struct crpc_owner *owner, const char *object)
{
	if (owner->thread == NULL)
		owner->thread = &thread_mark;
	if (owner->thread == &thread_mark)
		return;
	crpc_err("%s %p: used by a second thread; it belongs to the thread that used it first",
		object, (void *)owner);
	__builtin_trap();
}
#endif
