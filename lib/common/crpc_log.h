/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_LOG_H
#define CRPC_LOG_H

/**
 * @file
 * How libraries report what went wrong without printing.
 *
 * The function that finds an error reports it once, with `crpc_err()`: object, expected, found,
 * what to do. The text goes to the sink if the program set one (EAL programs pass it to rte_log)
 * and stays readable as crpc_log_last() on that thread, so that a program with neither can still
 * show it to its user. Callers only pass the error code on. Nothing here is for a datapath.
 *
 * Each library is compiled with CRPC_LOG_TYPE, its name in the log: "crpc.ipc", "crpc.copyrpc".
 */

#include <errno.h>
#include <stdarg.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

#ifndef CRPC_LOG_TYPE
#define CRPC_LOG_TYPE "crpc"
#endif

/** Levels, with the numbers of rte_log and syslog. */
enum crpc_log_level {
	CRPC_LOG_ERR = 4,
	CRPC_LOG_WARNING = 5,
	CRPC_LOG_NOTICE = 6,
	CRPC_LOG_INFO = 7,
	CRPC_LOG_DEBUG = 8,
};

/** Takes one line without newline. May be called from any thread that calls a library. */
typedef void (*crpc_log_sink)(enum crpc_log_level level, const char *type, const char *line);

/**
 * Set where lines go; NULL, the default, is nowhere. Call it before threads start.
 *
 * @param sink
 *   The function, or NULL.
 * @param level
 *   The highest level it wants.
 */
void crpc_log_set_sink(crpc_log_sink sink, enum crpc_log_level level);

/**
 * The newest error text of this thread.
 *
 * @return
 *   "type: text", or "" if there was none. Valid until this thread's next error.
 */
const char *crpc_log_last(void);

/** Forget this thread's newest error text. */
void crpc_log_clear(void);

/** Say a line. Use the macros below. */
void crpc_log(enum crpc_log_level level, const char *type, const char *fmt, ...) crpc_printf(3, 4);

#define crpc_err(...) crpc_log(CRPC_LOG_ERR, CRPC_LOG_TYPE, __VA_ARGS__)
/** Log an error and give its code: return crpc_fail(-EINVAL, "..."). */
#define crpc_fail(rc, ...) (crpc_err(__VA_ARGS__), (rc))
/** What a function that returns a pointer returns for an error: NULL, and the code in errno. */
static inline void *
crpc_null(int rc)
{
	errno = -rc;
	return NULL;
}

#define crpc_warn(...) crpc_log(CRPC_LOG_WARNING, CRPC_LOG_TYPE, __VA_ARGS__)
#define crpc_notice(...) crpc_log(CRPC_LOG_NOTICE, CRPC_LOG_TYPE, __VA_ARGS__)
#define crpc_info(...) crpc_log(CRPC_LOG_INFO, CRPC_LOG_TYPE, __VA_ARGS__)

CRPC_END_DECLS

#endif
