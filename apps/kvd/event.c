/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "app_fail.h"
#include "event.h"

static enum crpc_log_level wanted = CRPC_LOG_NOTICE;

static void
sink(enum crpc_log_level level, const char *type, const char *line)
{
	(void)level;
	app_note("%s: %s", type, line);
}

void
kvd_event_level(unsigned int level)
{
	wanted = CRPC_LOG_ERR + level;
	crpc_log_set_sink(sink, wanted);
}

void
kvd_event(enum crpc_log_level level, const char *fmt, ...)
{
	char text[768];
	va_list ap;

	if (level > wanted)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	app_note("%s", text);
}
