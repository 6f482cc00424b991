/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments as seen from outside: what a directory's entry is, and the removal of what nobody owns.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "shm_private.h"

#define PREFIX "crpc."

/* The segment's name in the name of its file, or of its socket if the door itself is gone. */
static int
name_of(const char *dir, const char *file, struct crpc_shm_info *info, struct stat *st)
{
	size_t len = strlen(file), cut = 0;
	char path[CRPC_SHM_PATH_MAX + 8];
	int n;

	if (strncmp(file, PREFIX, strlen(PREFIX)) != 0)
		return -EINVAL;
	n = snprintf(path, sizeof(path), "%s/%s", dir, file);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -EINVAL;
	if (lstat(path, st) != 0)
		return -errno;
	if (S_ISSOCK(st->st_mode)) {
		cut = strlen(SHM_SOCK_SUFFIX);
		if (len <= cut || strcmp(file + len - cut, SHM_SOCK_SUFFIX) != 0)
			return -EINVAL;
	} else if (!S_ISREG(st->st_mode)) {
		return -EINVAL;
	}
	len -= strlen(PREFIX) + cut;
	if (len >= sizeof(info->name) || (size_t)n - cut >= sizeof(info->path))
		return -EINVAL;
	memcpy(info->name, file + strlen(PREFIX), len);
	memcpy(info->path, path, (size_t)n - cut);
	if (!__crpc_shm_name_ok(info->name))
		return -EINVAL;
	/* A socket with its door is told by the door. */
	if (cut != 0 && access(info->path, F_OK) == 0)
		return -EINVAL;
	return 0;
}

/* What the header says, which may be anything. */
static void
read_header(int fd, struct crpc_shm_info *info)
{
	struct shm_door door;
	ssize_t len = pread(fd, &door, sizeof(door), 0);
	const struct crpc_shm_header *h = &door.hdr;

	info->state = CRPC_SHM_BROKEN;
	if (len < (ssize_t)sizeof(*h))
		return;
	if (h->magic == 0 && crpc_load_relaxed(&h->state) == CRPC_SHM_INIT)
		info->state = CRPC_SHM_INIT;
	if (h->magic != CRPC_SHM_MAGIC || h->version != CRPC_SHM_VERSION ||
			crpc_load_relaxed(&h->state) > CRPC_SHM_CLOSED)
		return;
	info->state = crpc_load_relaxed(&h->state);
	info->kind = h->kind;
	info->kind_version = h->kind_version;
	info->owner_pid = h->owner_pid;
	info->owner_start = h->owner_start;
	info->incarnation = h->incarnation;
	if (h->kind == SHM_DOOR_KIND && len == (ssize_t)sizeof(door)) {
		info->medium = CRPC_SHM_MEMFD;
		info->kind = door.kind;
		info->kind_version = door.kind_version;
		info->size = door.size;
	}
}

static void
read_file(int fd, const struct stat *st, struct crpc_shm_info *info)
{
	struct crpc_shm_header h;
	struct statfs fs;
	int rc;

	info->ours = __crpc_shm_is_ours(fd, st, &h);
	info->size = (uint64_t)st->st_size;
	if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
		info->medium = CRPC_SHM_HUGE;
	read_header(fd, info);
	rc = __crpc_shm_fd_locked(fd, SHM_OWNER_BYTE);
	info->living = rc < 0 ? -1 : rc;
	/* The locks of a memfd are on its memory, which only its owner hands out. */
	if (info->medium != CRPC_SHM_MEMFD) {
		rc = __crpc_shm_fd_locks(fd, SHM_OWNER_BYTE + 1, CRPC_SHM_USERS_LAST);
		info->users = rc < 0 ? -1 : rc;
	}
}

int
crpc_shm_inspect(const char *dir, const char *file, struct crpc_shm_info *info)
{
	struct crpc_shm_info i = {.living = -1, .users = -1, .state = CRPC_SHM_BROKEN};
	struct stat st;
	int fd, rc = name_of(dir, file, &i, &st);

	if (rc != 0)
		return rc;
	i.uid = st.st_uid;
	if (S_ISSOCK(st.st_mode)) {
		i.ours = true;
		/* without its door nothing tells whether anybody lives */
		i.medium = CRPC_SHM_MEMFD;
		*info = i;
		return 0;
	}
	fd = open(i.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	i.size = (uint64_t)st.st_size;
	if (fd < 0 && __crpc_shm_door_there(i.path))
		i.medium = CRPC_SHM_MEMFD;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		read_file(fd, &st, &i);
	if (fd >= 0)
		close(fd);
	*info = i;
	return 0;
}

int
crpc_shm_remove(const char *dir, const char *name)
{
	char path[CRPC_SHM_PATH_MAX];
	int fd, rc = __crpc_shm_name_check(name);

	if (rc == 0)
		rc = __crpc_shm_path(path, sizeof(path), dir, name);
	if (rc == 0)
		rc = __crpc_shm_leftover_remove(path);
	if (rc != 0 || !__crpc_shm_door_there(path))
		return rc;
	/* A socket without a door: nobody else takes the name while we hold it. */
	fd = __crpc_shm_file_create(path, 0600);
	if (fd < 0)
		return fd;
	rc = __crpc_shm_sock_remove(path);
	unlink(path);
	close(fd);
	return rc;
}

int
crpc_shm_sweep(const char *dir, const char *prefix)
{
	const char *where = dir == NULL ? SHM_DEFAULT_DIR : dir;
	DIR *d = opendir(where);
	struct crpc_shm_info info;
	struct dirent *e;
	int n = 0;

	if (d == NULL)
		return -errno;
	while ((e = readdir(d)) != NULL)
		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 &&
			strncmp(e->d_name + strlen(PREFIX), prefix, strlen(prefix)) == 0 &&
			crpc_shm_inspect(where, e->d_name, &info) == 0 &&
			info.living != 1 && info.uid == geteuid() &&
			crpc_shm_remove(where, info.name) == 0)
			n++;
	closedir(d);
	return n;
}
