/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_fail.h"
#include "app_stop.h"
#include "control.h"
#include "crpc_clock.h"
#include "event.h"
#include "saver.h"

/* How long a start waits for the process of a run that died, which still writes its snapshot. */
#define WRITER_NS UINT64_C(120000000000)
/* Keys are copied for so long, then it is the turn of the other control work. */
#define COPY_NS UINT64_C(5000000)
/* Descriptors that other threads may open between the look at them and a fork. */
#define FILES_MORE 64

static int
claim(struct kvd_saver *v)
{
	uint64_t end = crpc_clock_ns() + WRITER_NS;
	int rc = crpc_kv_server_snapshot_claim(v->server, v->path);

	if (rc == -EINPROGRESS)
		app_note("--snapshot %s: another process writes it; waits for its end", v->path);
	while (rc == -EINPROGRESS && crpc_clock_ns() < end && app_stopped() == 0) {
		crpc_nap(100000000);
		rc = crpc_kv_server_snapshot_claim(v->server, v->path);
	}
	return rc;
}

int
kvd_saver_start(struct kvd_saver *v, bool may_miss)
{
	int64_t keys;

	if (v->path == NULL)
		return 0;
	if (claim(v) != 0)
		return app_fail("--snapshot: %s", crpc_log_last());
	keys = crpc_kv_server_restore(v->server, v->path, &v->missing);
	if (keys < 0)
		return app_fail("--snapshot: %s", crpc_log_last());
	if (v->missing != 0 && keys != 0 && !may_miss)
		return app_fail("--snapshot %s: expected a file of each daemon, found none of %u; "
				"put them there, or give --restore-missing allow to begin without "
				"their keys",
			v->path, v->missing);
	v->keys = (uint64_t)keys;
	v->next_ns = v->every_ns == 0 ? 0 : crpc_clock_ns() + v->every_ns;
	return 0;
}

static int
start(struct kvd_saver *v, uint64_t now)
{
	v->begin_ns = now;
	v->keys = v->stood_ns = 0;
	v->loop = v->daemon = 0;
	return crpc_kv_server_snapshot_claim(v->server, v->path);
}

/*
 * Some keys of a daemon, while its loop stands. What waits for the disk is done while it runs.
 *
 * @return 1: there are more, 0: all daemons are copied, or -errno.
 */
static int
slice(struct kvd_saver *v)
{
	const struct kvd_loop *l = &v->loops->loop[v->loop];
	uint32_t daemon = v->loop + v->daemon * v->loops->n;
	int rc = crpc_kv_server_snapshot_write(v->server, daemon);
	uint64_t begin = crpc_clock_ns();
	int64_t keys;

	if (rc == 0)
		rc = kvd_loop_pause(v->loops, v->loop);
	if (rc != 0)
		return rc;
	keys = crpc_kv_server_snapshot_copy(v->server, daemon, v->places);
	v->stood_ns = crpc_max(v->stood_ns, crpc_clock_ns() - begin);
	kvd_loop_resume(v->loops, v->loop);
	kvd_loops_turn(v->loops);
	if (keys < 0)
		return keys == -EAGAIN ? 1 : (int)keys;
	v->keys += (uint64_t)keys;
	v->daemon = (v->daemon + 1) % l->daemons;
	v->loop += v->daemon == 0;
	rc = crpc_kv_server_snapshot_write(v->server, daemon);
	return rc != 0 ? rc : v->loop != v->loops->n;
}

static void
failed(const char *why)
{
	crpc_store_relaxed(
		&kvd_health.snapshots_failed, crpc_load_relaxed(&kvd_health.snapshots_failed) + 1);
	kvd_event(CRPC_LOG_ERR,
		"the snapshot was not written: %s; daemons that failed keep the one before", why);
}

static void
written(struct kvd_saver *v)
{
	crpc_store_relaxed(&kvd_health.snapshots, crpc_load_relaxed(&kvd_health.snapshots) + 1);
	crpc_store_relaxed(&kvd_health.snapshot_keys, v->keys);
	crpc_store_relaxed(&kvd_health.snapshot_time, (uint64_t)time(NULL));
	kvd_event(CRPC_LOG_NOTICE,
		"snapshot of %" PRIu64 " keys written in %.0f ms; loops stood at most %.1f ms",
		v->keys, (double)(crpc_clock_ns() - v->begin_ns) / 1e6, (double)v->stood_ns / 1e6);
}

/* Above all descriptors that are open now. */
static int
files_end(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;
	int end = 0;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		end = crpc_max(end, atoi(e->d_name) + 1);
	if (dir != NULL)
		closedir(dir);
	return end;
}

/* However long the disk takes: sockets and devices end with the parent, not with its child. */
static void
keep_files_only(int end)
{
	struct stat st;

	for (int fd = STDERR_FILENO + 1; fd < end; fd++)
		if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
			close(fd);
}

/*
 * All is copied: let a child do what waits for the disk. Another thread may have held any lock when
 * it was forked, so it allocates nothing and uses no stream but those of the snapshot.
 */
static int
writer_start(struct kvd_saver *v)
{
	int end = files_end() + FILES_MORE;

	v->writer = fork();
	if (v->writer == 0) {
		setsid(); /* A launcher kills the group of the rank. */
		crpc_log_set_sink(NULL, CRPC_LOG_ERR);
		keep_files_only(end);
		_exit(-crpc_kv_server_snapshot_commit(v->server) & 0xff);
	}
	if (v->writer > 0)
		return 0;
	v->writer = 0;
	return -errno;
}

/* So much that the other control work need not wait long. */
static void
copy_some(struct kvd_saver *v)
{
	uint64_t end = crpc_clock_ns() + COPY_NS;
	int rc;

	do
		rc = slice(v);
	while (rc > 0 && crpc_clock_ns() < end);
	v->copying = rc > 0;
	if (rc == 0)
		rc = writer_start(v);
	if (rc < 0)
		failed(strerror(-rc));
}

/* @return true: there is no child any more. */
static bool
writer_wait(struct kvd_saver *v, int options)
{
	char why[64];
	int status;
	pid_t pid = waitpid(v->writer, &status, options);

	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	v->writer = 0;
	if (pid > 0 && WIFSIGNALED(status)) {
		snprintf(why, sizeof(why), "its process was ended by signal %d", WTERMSIG(status));
		failed(why);
	} else if (pid < 0 || WEXITSTATUS(status) != 0) {
		failed(strerror(pid < 0 ? errno : WEXITSTATUS(status)));
	} else {
		written(v);
	}
	return true;
}

void
kvd_saver_turn(struct kvd_saver *v, uint64_t now_ns)
{
	bool due = v->next_ns != 0 && now_ns >= v->next_ns;

	int rc;

	if (v->path == NULL || (v->writer != 0 && !writer_wait(v, WNOHANG)))
		return;
	if (v->copying) {
		copy_some(v);
		return;
	}
	if (!due && crpc_load_relaxed(&kvd_hangup) == 0)
		return;
	crpc_store_relaxed(&kvd_hangup, 0);
	if (due)
		v->next_ns = now_ns + v->every_ns;
	rc = start(v, now_ns);
	v->copying = rc == 0;
	if (rc != 0)
		failed(strerror(-rc));
}

int
kvd_saver_end(struct kvd_saver *v)
{
	uint64_t now = crpc_clock_ns();
	bool more;
	int rc;

	if (v->path == NULL)
		return 0;
	/* However long the disk takes: the last snapshot comes after the one that it writes. */
	while (v->writer != 0 && !writer_wait(v, WNOHANG))
		crpc_nap(1000000);
	v->copying = false;
	rc = start(v, now);
	for (more = rc == 0; more; more = rc > 0)
		rc = slice(v);
	if (rc == 0)
		rc = crpc_kv_server_snapshot_commit(v->server);
	if (rc != 0)
		failed(strerror(-rc));
	else
		written(v);
	return rc;
}
