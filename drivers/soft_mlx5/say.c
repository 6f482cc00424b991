/* SPDX-License-Identifier: BSD-3-Clause */
#include "say.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_atomic.h"

#define SAID_MAX     64
#define LINE_MAX_LEN 256

/* Hashes of the texts said so far. With more than SAID_MAX different ones the rest stays unsaid: a
 * program that asks for so many things has had enough lines. */
static uint64_t said[SAID_MAX];
static uint32_t nsaid;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t
text_hash(const char *s)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; *s != '\0'; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
	return h;
}

static bool
first_time(const char *text)
{
	uint64_t h = text_hash(text);
	bool first = false;
	uint32_t i;

	pthread_mutex_lock(&said_lock);
	for (i = 0; i < nsaid && said[i] != h; i++)
		;
	if (i == nsaid && nsaid < SAID_MAX) {
		said[nsaid++] = h;
		first = true;
	}
	pthread_mutex_unlock(&said_lock);
	return first;
}

/* One write(2), so that lines of several processes do not mix. */
static void
put_line(const char *text, const char *tail)
{
	char line[LINE_MAX_LEN + 64];
	int n;

	n = snprintf(line, sizeof(line), "soft_mlx5: %s%s\n", text, tail);
	if (n > 0 && write(STDERR_FILENO, line, crpc_min((uint64_t)n, sizeof(line) - 1)) < 0)
		return; /* There is no stderr. */
}

static const char *
err_name(int err)
{
	const char *name;

	if (err == EOPNOTSUPP)
		return "ENOTSUP"; /* one number, two names; this is the one users search for */
	name = strerrorname_np(err);
	return name != NULL ? name : "?";
}

/* Once for each text, or @always. */
static crpc_printf(3, 0) void
say(bool always, const char *tail, const char *fmt, va_list ap)
{
	char text[LINE_MAX_LEN];
	int saved = errno;

	vsnprintf(text, sizeof(text), fmt, ap);
	if (always || first_time(text))
		put_line(text, tail);
	errno = saved;
}

int
sm_refuse(int err, const char *fmt, ...)
{
	char tail[64];
	va_list ap;

	snprintf(tail, sizeof(tail), " is not supported (%s)", err_name(err));
	va_start(ap, fmt);
	say(false, tail, fmt, ap);
	va_end(ap);
	return err;
}

void
sm_complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(false, "", fmt, ap);
	va_end(ap);
}

bool
sm_tracing(void)
{
	static _Atomic int state; /* 0: not looked yet, 1: off, 2: on */
	const char *env;

	if (crpc_load_relaxed(&state) == 0) {
		env = getenv("SOFT_MLX5_TRACE");
		crpc_store_relaxed(&state, env != NULL && strcmp(env, "1") == 0 ? 2 : 1);
	}
	return crpc_load_relaxed(&state) == 2;
}

void
sm_trace(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(true, "", fmt, ap);
	va_end(ap);
}
