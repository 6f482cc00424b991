/* SPDX-License-Identifier: BSD-3-Clause */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "real.h"

struct sm_file *_Atomic sm_file_table[SM_FD_MAX];
_Atomic uint32_t sm_file_count;

struct sm_files sm_files = LIST_HEAD_INITIALIZER(sm_files);
pthread_mutex_t sm_files_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. The caller calls release afterwards, without it. */
static void
unlink_file(struct sm_file *file)
{
	LIST_REMOVE(file, link);
	if (crpc_load_relaxed(&sm_file_table[file->fd]) == file)
		crpc_store_release(&sm_file_table[file->fd], NULL); /* R1 */
	crpc_fetch_add_relaxed(&sm_file_count, -1u);
}

static bool
shows(const struct sm_file *file, int fd, const struct stat *st)
{
	return st->st_ino == file->ino && st->st_dev == file->dev &&
		(file->is_shown_by == NULL || file->is_shown_by(file, fd));
}

/* A descriptor of this process that still shows the inode, or -1. */
static int
other_fd(const struct sm_file *file)
{
	struct dirent *e;
	struct stat st;
	int fd, found = -1;
	DIR *dir;

	dir = opendir("/proc/self/fd");
	if (dir == NULL)
		return -1;
	while (found < 0 && (e = readdir(dir)) != NULL) {
		fd = atoi(e->d_name);
		if (e->d_name[0] == '.' || (unsigned int)fd >= SM_FD_MAX)
			continue;
		if (sm_real_fstat(fd, &st) == 0 && shows(file, fd, &st))
			found = fd;
	}
	closedir(dir);
	return found;
}

/* The number of a file was closed; under the lock. True if nothing shows the file any more and the
 * caller must release it; else it lives on under the number of a duplicate. */
static bool
lost_number(struct sm_file *file)
{
	int fd = other_fd(file);

	if (fd < 0) {
		unlink_file(file);
		return true;
	}
	crpc_store_release(&sm_file_table[file->fd], NULL); /* R1 */
	file->fd = fd;
	crpc_store_release(&sm_file_table[fd], file); /* R1 */
	return false;
}

/* A thread that is cancelled at a close() in it would leave locks behind. */
static void
release(struct sm_file *file)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	file->release(file);
	pthread_setcancelstate(state, NULL);
}

int
sm_file_add(struct sm_file *file, int fd)
{
	struct sm_file *stale;
	struct stat st;

	if (sm_real_fstat(fd, &st) != 0)
		return errno;
	if ((unsigned int)fd >= SM_FD_MAX)
		return EMFILE;
	file->fd = fd;
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	file->pid = getpid();

	pthread_mutex_lock(&sm_files_lock);
	/* A number that was free for the kernel: whoever is registered there was closed unseen. */
	stale = crpc_load_relaxed(&sm_file_table[fd]);
	if (stale != NULL && !lost_number(stale))
		stale = NULL;
	LIST_INSERT_HEAD(&sm_files, file, link);
	crpc_fetch_add_relaxed(&sm_file_count, 1u);
	crpc_store_release(&sm_file_table[fd], file); /* R1 */
	pthread_mutex_unlock(&sm_files_lock);
	if (stale != NULL)
		release(stale);
	return 0;
}

struct sm_file *
sm_file_by_stat(int fd, const struct stat *st)
{
	struct sm_file *file;

	if (crpc_load_relaxed(&sm_file_count) == 0)
		return NULL;
	pthread_mutex_lock(&sm_files_lock);
	LIST_FOREACH (file, &sm_files, link)
		if (shows(file, fd, st))
			break;
	pthread_mutex_unlock(&sm_files_lock);
	return file;
}

struct sm_file *
sm_file_find(int fd)
{
	int saved = errno;
	struct stat st;

	if (fd < 0 || crpc_load_relaxed(&sm_file_count) == 0)
		return NULL;
	if (sm_real_fstat(fd, &st) != 0) {
		errno = saved;
		return NULL;
	}
	return sm_file_by_stat(fd, &st);
}

void
sm_file_closed(int fd)
{
	int saved = errno;
	struct sm_file *file;

	pthread_mutex_lock(&sm_files_lock);
	file = sm_file_at(fd);
	if (file != NULL && (file->pid != getpid() || !lost_number(file)))
		file = NULL;
	pthread_mutex_unlock(&sm_files_lock);
	if (file != NULL)
		release(file);
	errno = saved;
}

bool
sm_is_own_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

void
sm_files_fork_child(void)
{
	struct sm_file *file;

	LIST_FOREACH (file, &sm_files, link)
		file->pid = getpid();
	pthread_mutex_init(&sm_files_lock, NULL);
}
