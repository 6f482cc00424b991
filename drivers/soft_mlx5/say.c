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
#define LINE_MAX_LEN 512

/* Hashes of the texts said so far. With more than SAID_MAX different ones the rest stays unsaid: a
 * program that asks for so many things has had enough lines. */
static uint64_t said[SAID_MAX];
static uint32_t nsaid;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t
sm_hash(uint64_t h, const char *text)
{
	for (; *text != '\0'; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return h;
}

static bool
first_time(const char *text)
{
	uint64_t h = sm_hash(SM_HASH_FIRST, text);
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

int
sm_say(enum sm_say how, int err, const char *fmt, ...)
{
	char text[LINE_MAX_LEN], tail[64] = "";
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (how == SM_SAY_REFUSED)
		snprintf(tail, sizeof(tail), " is not supported (%s)", err_name(err));
	if (how == SM_SAY_TRACE || first_time(text))
		put_line(text, tail);
	errno = saved;
	return err;
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
