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

/**
 * Name something that is refused, once per text.
 *
 * @param err
 *   The errno value that the caller gets; returned, so that `return sm_refuse(...)` reads well.
 */
int sm_refuse(int err, const char *fmt, ...) crpc_printf(2, 3);

/** Say why the library cannot work at all, once per text. */
void sm_complain(const char *fmt, ...) crpc_printf(1, 2);

/** True with SOFT_MLX5_TRACE=1. */
bool sm_tracing(void);

/** One line of the trace; call it only if sm_tracing(). */
void sm_trace(const char *fmt, ...) crpc_printf(1, 2);

#endif
