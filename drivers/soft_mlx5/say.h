/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_SAY_H
#define SOFT_MLX5_SAY_H

/**
 * @file
 * What the library says on stderr, which belongs to the program it was preloaded into: each thing
 * that it refuses is named once, and with SOFT_MLX5_TRACE=1 every command is shown.
 *
 * Any thread; errno is kept.
 */

#include "crpc_util.h"

/** What a line is about. */
enum sm_say {
	SM_SAY_TRACE,
	SM_SAY_REFUSED,
	SM_SAY_BROKEN,
};

/** Print a line: of a trace, or once per text. @p err, which is returned, belongs to a refusal. */
int sm_say(enum sm_say how, int err, const char *fmt, ...) crpc_printf(3, 4);

/** Name something that is refused; the errno value that the caller gets: return sm_refuse(...). */
#define sm_refuse(err, ...) sm_say(SM_SAY_REFUSED, err, __VA_ARGS__)
/** Say why the library cannot work at all. */
#define sm_complain(...) ((void)sm_say(SM_SAY_BROKEN, 0, __VA_ARGS__))
/** One line of the trace; use it only if sm_tracing(). */
#define sm_trace(...) ((void)sm_say(SM_SAY_TRACE, 0, __VA_ARGS__))

/** FNV-1a: the hash of a text behind others, which begins with SM_HASH_FIRST. */
#define SM_HASH_FIRST UINT64_C(0xcbf29ce484222325)
uint64_t sm_hash(uint64_t hash, const char *text);

/** True with SOFT_MLX5_TRACE=1. */
bool sm_tracing(void);

#endif
