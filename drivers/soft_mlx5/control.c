/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
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
#include "sysfs.h"
#include "uverbs.h"

#define QUESTION_MAX 512
#define PREFIX       "ctl."

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t users;    /* Open contexts. */
static int listener = -1; /* The thread's; it closes it. */
static struct sockaddr_un address;

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

/* A line of at most QUESTION_MAX bytes; false: it did not come. */
static bool
question_read(int fd, char line[QUESTION_MAX])
{
	size_t used = 0;
	ssize_t n;

	while (used < QUESTION_MAX - 1) {
		n = recv(fd, line + used, QUESTION_MAX - 1 - used, 0);
		if (n <= 0)
			return false;
		used += (size_t)n;
		line[used] = '\0';
		if (memchr(line, '\n', used) != NULL)
			return true;
	}
	return false;
}

void
sm_control_serve(int fd)
{
	struct timeval limit = {.tv_sec = 1};
	char line[QUESTION_MAX], *text = NULL;
	size_t len = 0;
	FILE *out;

	/* Who asks and then sleeps must not keep others waiting. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!question_read(fd, line))
		return;
	out = open_memstream(&text, &len);
	if (out == NULL)
		return;
	answer(line, out);
	if (fclose(out) == 0) /* Who went, or does not read, gets none of it: its loss. */
		(void)send(fd, text, len, MSG_NOSIGNAL);
	free(text);
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
		sm_control_serve(fd);
		close(fd);
	}
	close(own);
	return NULL;
}

/* ---- the socket ---- */

/* The folder that is the user's alone: the device tree lies in it. */
static bool
folder(char *dir, size_t size)
{
	const char *root = sm_sysfs_root();

	return root != NULL &&
		snprintf(dir, size, "%.*s", (int)(strrchr(root, '/') - root), root) < (int)size;
}

/* False, with errno, if the name is too long for a socket. */
static bool
name_make(struct sockaddr_un *a, const char *dir, const char *file)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", dir, file);
	errno = ENAMETOOLONG;
	return n > 0 && (size_t)n < sizeof(a->sun_path);
}

/* Sockets without a listener: their processes ended without closing the device. */
static void
sweep(const char *dir)
{
	struct sockaddr_un a;
	struct dirent *e;
	DIR *d = opendir(dir);
	int fd;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, PREFIX, sizeof(PREFIX) - 1) != 0 ||
				!name_make(&a, dir, e->d_name))
			continue;
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			break;
		if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 &&
				errno == ECONNREFUSED)
			unlink(a.sun_path);
		close(fd);
	}
	closedir(d);
}

static int
listen_at(const struct sockaddr_un *a)
{
	int fd = sm_fd_hide(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), err;

	if (fd < 0)
		return -1;
	(void)fchmod(fd, 0600); /* Linux makes the file with these. */
	unlink(a->sun_path); /* Of a dead process with our number. */
	if (bind(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 && listen(fd, 16) == 0)
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

static void
socket_make(void)
{
	char dir[PATH_MAX], file[32];
	int fd;

	snprintf(file, sizeof(file), PREFIX "%d", (int)getpid());
	if (!folder(dir, sizeof(dir)))
		return;
	sweep(dir);
	fd = name_make(&address, dir, file) ? listen_at(&address) : -1;
	if (fd < 0) {
		sm_complain("no control socket %s/%s: %s; soft-mlx5 stat and faults do not see "
			    "this process", dir, file, strerror(errno));
		return;
	}
	if (sm_thread_start(serve_all, (void *)(intptr_t)fd, "soft_mlx5_ctl") != 0) {
		unlink(address.sun_path);
		close(fd);
		return;
	}
	listener = fd;
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
		unlink(address.sun_path);
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
