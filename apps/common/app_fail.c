/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "crpc_clock.h"

static const char *fail_name = "copyrpc";
static char fail_text[1024];
static bool fail_hold;
static bool fail_silent; /* Another rank says why we fail. */
static bool fail_speaker; /* We say what rank 0 cannot say any more. */

static void
nap_at_exit(void)
{
	if (fail_silent)
		crpc_nap(300000000);
}

void
app_fail_name(const char *name)
{
	fail_name = name;
	atexit(nap_at_exit);
}

void
app_fail_hold(bool hold)
{
	fail_hold = hold;
	if (hold)
		fail_text[0] = '\0';
}

const char *
app_fail_held(void)
{
	return fail_text;
}

/* One write of one line: the lines of several ranks must not mix. */
crpc_printf(1, 0) static void
say(const char *fmt, va_list ap)
{
	char text[sizeof(fail_text)], line[sizeof(fail_text) + 128];
	int n;

	vsnprintf(text, sizeof(text), fmt, ap);
	for (char *p = text; *p != '\0'; p++)
		if (*p == '\n' || *p == '\r')
			*p = ' ';
	n = snprintf(line, sizeof(line), "%.64s: %s\n", fail_name, text);
	fflush(stdout);
	fwrite(line, 1, (size_t)n, stderr);
	fflush(stderr);
}

void
app_fail_let_speak(void)
{
	fail_silent = true;
}

crpc_printf(1, 0) static void
say_or_hold(const char *fmt, va_list ap)
{
	if (!fail_hold)
		say(fmt, ap);
	else if (fail_text[0] == '\0')
		vsnprintf(fail_text, sizeof(fail_text), fmt, ap);
}

int
app_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_or_hold(fmt, ap);
	va_end(ap);
	return APP_EXIT_USAGE;
}

void
app_fail_speak(void)
{
	fail_speaker = true;
}

int
app_fail_once(const char *fmt, ...)
{
	const char *rank = getenv("PMIX_RANK");
	va_list ap;

	if (!fail_hold && !fail_speaker && rank != NULL && strcmp(rank, "0") != 0) {
		app_fail_let_speak();
		return APP_EXIT_USAGE;
	}
	va_start(ap, fmt);
	say_or_hold(fmt, ap);
	va_end(ap);
	return APP_EXIT_USAGE;
}

void
app_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}
