/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "crpc_log.h"

#define LINE_MAX_LEN 512

static crpc_log_sink log_sink;
static enum crpc_log_level log_level;
static _Thread_local char log_last[LINE_MAX_LEN];

void
crpc_log_set_sink(crpc_log_sink sink, enum crpc_log_level level)
{
	log_sink = sink;
	log_level = level;
}

const char *
crpc_log_last(void)
{
	return log_last;
}

void
crpc_log_clear(void)
{
	log_last[0] = '\0';
}

void
crpc_log(enum crpc_log_level level, const char *type, const char *fmt, ...)
{
	char text[LINE_MAX_LEN - 64];
	va_list ap;

	if (level != CRPC_LOG_ERR && (log_sink == NULL || level > log_level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (level == CRPC_LOG_ERR)
		snprintf(log_last, sizeof(log_last), "%.60s: %s", type, text);
	if (log_sink != NULL && level <= log_level)
		log_sink(level, type, text);
}
