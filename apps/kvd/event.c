/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app_fail.h"
#include "crpc_atomic.h"
#include "event.h"

static enum crpc_log_level wanted = CRPC_LOG_NOTICE;
static pthread_t control;

/*
 * Lines of the loops: none waits for a terminal, a pipe or another loop, whatever its clients make
 * it log. What finds no room, or the lock taken, is counted.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[8192]; /* Each with its zero. */
static size_t kept_len;
static _Atomic uint64_t dropped;

static void
keep(const char *type, const char *line)
{
	size_t room;
	int len = -1;

	if (pthread_mutex_trylock(&lock) == 0) {
		room = sizeof(kept) - kept_len;
		len = snprintf(kept + kept_len, room, "%s: %s", type, line);
		if (len < 0 || (size_t)len >= room)
			len = -1;
		else
			kept_len += (size_t)len + 1;
		pthread_mutex_unlock(&lock);
	}
	if (len < 0)
		crpc_fetch_add_relaxed(&dropped, 1);
}

/* The reader of the lines may have stopped: the control thread must not stop with it. */
static bool
has_room(void)
{
	struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&err, 1, 0) != 0;
}

static void
write_line(const char *type, const char *line)
{
	if (!has_room())
		crpc_fetch_add_relaxed(&dropped, 1);
	else if (*type != '\0')
		app_note("%s: %s", type, line);
	else
		app_note("%s", line);
}

static void
sink(enum crpc_log_level level, const char *type, const char *line)
{
	if (pthread_equal(pthread_self(), control))
		write_line(type, line);
	else
		keep(type, line);
}

void
kvd_event_turn(void)
{
	char text[sizeof(kept)];
	uint64_t lost;
	size_t len;

	pthread_mutex_lock(&lock);
	len = kept_len;
	memcpy(text, kept, len);
	kept_len = 0;
	pthread_mutex_unlock(&lock);
	for (size_t at = 0; at < len; at += strlen(text + at) + 1)
		write_line("", text + at);
	lost = crpc_load_relaxed(&dropped);
	if (lost == 0 || !has_room())
		return;
	crpc_fetch_add_relaxed(&dropped, -lost);
	snprintf(text, sizeof(text), "%" PRIu64 " lines more, which found no room", lost);
	write_line("", text);
}

void
kvd_event_level(unsigned int level)
{
	control = pthread_self();
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
	write_line("", text);
}
