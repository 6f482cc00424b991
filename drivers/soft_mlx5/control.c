/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "say.h"
#include "uverbs.h"

#define QUESTION_MAX 512
#define NAMES_TRIED  8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t users;    /* Open contexts. */
static int listener = -1; /* The thread's; it closes it. */

/* ---- answers ---- */

static void
stat_all(struct uv_ctx *const *list, uint32_t n, FILE *out)
{
	fprintf(out, "ok\n[");
	for (uint32_t i = 0; i < n; i++) {
		fprintf(out, "%s{\"device\":%d,\"net\":\"%s\",\"progress\":\"%s\",\"calls\":%u,",
			i == 0 ? "" : ",\n", list[i]->device, list[i]->net, sm_progress_name(),
			crpc_load_relaxed(&list[i]->calls));
		sm_nic_stat(uv_nic(list[i]), out);
		fprintf(out, "}");
	}
	fprintf(out, "]\n");
}

/* Contexts that are not meant get timers: a peer of theirs may lose packets. */
static int
faults_set(struct uv_ctx *const *list, uint32_t n, const char *text)
{
	int err = 0;

	for (uint32_t i = 0; i < n && err == 0; i++)
		err = sm_nic_faults(uv_nic(list[i]), strcmp(text, "off") == 0 ? "" : text);
	return err != 0 ? err : uv_timers();
}

/* A change of those contexts of the list that are meant. */
static void
change(struct uv_ctx *const *list, uint32_t n, const char *which, const char *text,
	int (*fn)(struct uv_ctx *const *list, uint32_t n, const char *text), FILE *out)
{
	bool all = strcmp(which, "*") == 0;
	uint32_t slot = (uint32_t)strtoul(which, NULL, 0), num = 0;
	struct uv_ctx *named[SM_SLOTS];
	int err;

	for (uint32_t i = 0; i < n; i++)
		if (all || sm_nic_slot(uv_nic(list[i])) == slot)
			named[num++] = list[i];
	err = fn(named, num, text);
	if (err != 0)
		fprintf(out, "error: '%s': %s\n", text, strerror(err));
	else
		fprintf(out, "ok\n%u\n", num);
}

static void
answer(char *line, FILE *out)
{
	struct uv_ctx *list[SM_SLOTS];
	char *save = NULL;
	const char *verb = strtok_r(line, " \n", &save), *net = strtok_r(NULL, " \n", &save);
	const char *which = strtok_r(NULL, " \n", &save), *text = strtok_r(NULL, " \n", &save);
	uint32_t all, n = 0;

	if (verb == NULL || net == NULL) {
		fprintf(out, "error: ask stat NET, or faults or port NET CONTEXT TEXT\n");
		return;
	}
	pthread_mutex_lock(&sm_drive_lock); /* Contexts of the list stay. */
	all = uv_contexts(list);
	for (uint32_t i = 0; i < all; i++)
		if (strcmp(net, "*") == 0 || strcmp(list[i]->net, net) == 0)
			list[n++] = list[i];
	if (strcmp(verb, "stat") == 0)
		stat_all(list, n, out);
	else if (strcmp(verb, "faults") == 0 && text != NULL)
		change(list, n, which, text, faults_set, out);
	else if (strcmp(verb, "port") == 0 && text != NULL)
		change(list, n, which, text, uv_port_change, out);
	else
		fprintf(out,
			"error: '%s' is not stat, or faults or port with a context and a text\n",
			verb);
	pthread_mutex_unlock(&sm_drive_lock);
}

/* ---- the thread ---- */

void
sm_control_serve(int fd)
{
	struct timeval limit = {.tv_sec = 1};
	char line[QUESTION_MAX], *text = NULL;
	FILE *in = fdopen(fd, "r"), *out = NULL;
	size_t len = 0;

	if (in == NULL) {
		close(fd);
		return;
	}
	/* Who asks and then sleeps must not keep others waiting. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (fgets(line, sizeof(line), in) != NULL && strchr(line, '\n') != NULL)
		out = open_memstream(&text, &len);
	if (out != NULL) {
		answer(line, out);
		if (fclose(out) == 0) /* Who went, or does not read, gets none of it: its loss. */
			(void)send(fd, text, len, MSG_NOSIGNAL);
	}
	free(text);
	fclose(in);
}

static void *
serve_all(void *arg)
{
	int own = (int)(intptr_t)arg, fd;

	for (;;) {
		fd = sm_fd_hide(accept4(own, NULL, NULL, SOCK_CLOEXEC));
		if (fd < 0 && errno == EINVAL)
			break; /* Shut down by sm_control_close(), which no longer knows it. */
		if (fd < 0) { /* No descriptor is left: who asks waits until there is one. */
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
			continue;
		}
		if (sm_is_own_user(fd))
			sm_control_serve(fd);
		else
			close(fd);
	}
	close(own);
	return NULL;
}

/* ---- the socket ---- */

/*
 * An abstract name goes with the process, however it ends. The one before is in use until the
 * thread has closed it, and another user may have taken one.
 */
static int
socket_listen(void)
{
	static uint32_t serial;
	int fd = sm_fd_hide(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), rc = -1, err;
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const size_t at = offsetof(struct sockaddr_un, sun_path) + 1;
	socklen_t len;

	for (int i = 0; i < NAMES_TRIED && fd >= 0 && rc != 0; i++) {
		len = (socklen_t)snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			"soft_mlx5.%u.ctl.%d.%u", (unsigned int)geteuid(), (int)getpid(), serial++);
		rc = bind(fd, (const struct sockaddr *)&name, (socklen_t)at + len);
	}
	if (fd < 0 || (rc == 0 && listen(fd, 16) == 0))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

static void
socket_make(void)
{
	int fd = socket_listen();

	if (fd < 0)
		sm_complain("no control socket: %s; soft-mlx5 stat and faults do not see this "
			    "process",
			strerror(errno));
	else if (sm_thread_start(serve_all, (void *)(intptr_t)fd, "soft_mlx5_ctl") == 0)
		listener = fd;
	else
		close(fd);
}

static bool
is_wanted(void)
{
	const char *env = getenv("SOFT_MLX5_CONTROL");

	return sm_progress_mode() != SM_PROGRESS_STEP && (env == NULL || strcmp(env, "off") != 0);
}

void
sm_control_open(void)
{
	pthread_mutex_lock(&lock);
	if (users++ == 0 && is_wanted())
		socket_make();
	pthread_mutex_unlock(&lock);
}

void
sm_control_close(void)
{
	pthread_mutex_lock(&lock);
	if (--users == 0 && listener >= 0) {
		shutdown(listener, SHUT_RDWR); /* accept() fails, the thread closes it and ends. */
		listener = -1;
	}
	pthread_mutex_unlock(&lock);
}

void
sm_control_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	if (listener >= 0)
		close(listener);
	listener = -1;
	users = 0;
}
