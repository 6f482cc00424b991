/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names, paths, and the file of a segment: created, taken over from a dead owner, removed, and
 * described to tools.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_crash.h"
#include "crpc_log.h"
#include "shm_private.h"

#define PREFIX "crpc."
/* Rounds in which creators of one name may get into each other's way before one gives up. */
#define CREATE_ROUNDS 16
/* Between two looks at a leftover that another process removes. */
#define BUSY_NS 1000000

/* ---- names and paths ---- */

static bool
name_ok(const char *name)
{
	static const char ok[] =
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = name == NULL ? 0 : strnlen(name, CRPC_SHM_NAME_MAX);

	return len != 0 && len != CRPC_SHM_NAME_MAX && strspn(name, ok) == len;
}

bool
__crpc_shm_huge_dir(char *dir)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	struct mntent mnt, *m;
	bool found = false;
	char buf[1024];

	while (f != NULL && !found && (m = getmntent_r(f, &mnt, buf, sizeof(buf))) != NULL) {
		found = strcmp(m->mnt_type, "hugetlbfs") == 0 &&
			strlen(m->mnt_dir) < CRPC_SHM_PATH_MAX;
		if (found)
			snprintf(dir, CRPC_SHM_PATH_MAX, "%s", m->mnt_dir);
	}
	if (f != NULL)
		endmntent(f);
	return found;
}

int
__crpc_shm_path(char *path, const char *dir, const char *name)
{
	int n;

	if (!name_ok(name))
		return crpc_fail(-EINVAL,
			"segment name '%.60s': expected 1 to %d of [A-Za-z0-9._-]",
			name == NULL ? "(none)" : name, CRPC_SHM_NAME_MAX - 1);
	n = snprintf(path, CRPC_SHM_PATH_MAX, "%s/" PREFIX "%s", dir, name);
	if (n > 0 && n < CRPC_SHM_PATH_MAX)
		return 0;
	return crpc_fail(-EINVAL,
		"segment path '%s/" PREFIX "%s' has %d bytes; expected at most %d", dir, name, n,
		CRPC_SHM_PATH_MAX - 1);
}

void
__crpc_shm_sock_path(char *sock, const char *path)
{
	snprintf(sock, SHM_SOCK_MAX, "%s" SHM_SOCK_SUFFIX, path);
}

static bool
at_path(const char *path, dev_t dev, ino_t ino)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

bool
__crpc_shm_at_path(const struct crpc_shm *seg)
{
	return at_path(seg->path, seg->dev, seg->ino);
}

int
__crpc_shm_file_reopen(const struct crpc_shm *seg, int flags)
{
	int fd = open(seg->path, flags | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? -ECONNREFUSED : -errno;
	if (fstat(fd, &st) == 0 && st.st_dev == seg->dev && st.st_ino == seg->ino)
		return fd;
	close(fd);
	return -ECONNREFUSED;
}

/* ---- creation and removal ---- */

/* Whether the file may be removed: empty, cut off before its magic, or a segment. Fills *d. */
static bool
is_ours(int fd, const struct stat *st, struct shm_door *d)
{
	memset(d, 0, sizeof(*d));
	if (!S_ISREG(st->st_mode))
		return false;
	if (st->st_size < (off_t)sizeof(d->hdr))
		return st->st_size == 0;
	/* hugetlbfs cannot be read by pread() on all kernels; a file of ours is all it can be. */
	return pread(fd, d, sizeof(*d), 0) < (ssize_t)sizeof(d->hdr) ||
		d->hdr.magic == CRPC_SHM_MAGIC || d->hdr.magic == 0;
}

static int
no_lock(const char *path, int rc)
{
	return crpc_fail(rc,
		"%s: cannot lock it: %s; the file system must have open file description "
		"locks",
		path, strerror(-rc));
}

/*
 * Lock a leftover for its removal. No process becomes its owner meanwhile, and none that asks takes
 * the remover for one: attach() would find a living owner and a ready header. And there is one
 * remover, so that a second cannot remove what comes to stand in its place. 0 or -errno; -EBUSY is
 * not logged.
 */
static int
lock_leftover(const char *path, int fd)
{
	int rc = __crpc_shm_fd_lock(fd, SHM_REMOVE_BYTE, F_WRLCK);

	if (rc == -EAGAIN)
		return -EBUSY;
	if (rc == 0)
		rc = __crpc_shm_fd_lock(fd, SHM_OWNER_BYTE, F_RDLCK);
	if (rc == -EAGAIN)
		return crpc_fail(-EADDRINUSE,
			"%s: belongs to a living process; stop it or use another name", path);
	return rc == 0 ? 0 : no_lock(path, rc);
}

/* Remove the file, and before it a door's socket: both are of the dead owner whose byte we bar. */
static int
unlink_leftover(const char *path, const struct shm_door *d)
{
	char sock[SHM_SOCK_MAX];
	int rc = 0;

	CRPC_CRASH_POINT("shm.remove.1");
	if (d->hdr.kind == SHM_DOOR_KIND && __crpc_shm_sock_there(path)) {
		__crpc_shm_sock_path(sock, path);
		rc = unlink(sock) == 0 || errno == ENOENT ? 0 : -errno;
		CRPC_CRASH_POINT("shm.remove.2");
	}
	if (rc == 0 && unlink(path) != 0)
		rc = -errno;
	CRPC_CRASH_POINT("shm.remove.3");
	if (rc == 0)
		return 0;
	return __crpc_shm_failed(path, "cannot remove a dead owner's segment", rc);
}

/* Remove what a dead owner left at path. 0: the path is free, or another process was faster. */
static int
remove_leftover(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = -errno;
	struct shm_door d;
	struct stat st;

	if (fd < 0 && rc == -ENOENT)
		return 0;
	if (fd < 0)
		return crpc_fail(rc == -ELOOP || rc == -EISDIR ? -EEXIST : rc,
			"%s: exists, and cannot be opened: %s; remove it or use another "
			"name",
			path, strerror(-rc));
	if (fstat(fd, &st) != 0 || !is_ours(fd, &st, &d))
		rc = crpc_fail(-EEXIST,
			"%s: is no segment of this project; remove it or use another name", path);
	else
		rc = lock_leftover(path, fd);
	if (rc == 0 && at_path(path, st.st_dev, st.st_ino))
		rc = unlink_leftover(path, &d);
	close(fd);
	return rc;
}

int
__crpc_shm_file_create(const char *path, mode_t mode, gid_t gid)
{
	int fd, rc;
	struct stat st;

	/* Others come in below, when the file belongs to their group. */
	for (int round = 0; round < CREATE_ROUNDS; round++) {
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode & S_IRWXU);
		if (fd < 0 && errno != EEXIST)
			return __crpc_shm_failed(path, "cannot create it", -errno);
		if (fd < 0) {
			rc = remove_leftover(path);
			if (rc == -EBUSY)
				crpc_nap(BUSY_NS);
			else if (rc != 0)
				return rc;
			continue;
		}
		CRPC_CRASH_POINT("shm.create.1");
		/*
		 * Between open and lock another creator may take the file for a leftover and remove
		 * it; then this one has no name.
		 */
		rc = __crpc_shm_fd_lock(fd, SHM_OWNER_BYTE, F_WRLCK);
		if (rc == 0 && fstat(fd, &st) == 0 && at_path(path, st.st_dev, st.st_ino)) {
			CRPC_CRASH_POINT("shm.create.2");
			if (gid == 0 || gid == (gid_t)-1 || fchown(fd, (uid_t)-1, gid) == 0) {
				/* Whatever the umask: mode is who may attach. */
				fchmod(fd, mode);
				return fd;
			}
			rc = -errno;
			unlink(path);
			close(fd);
			return __crpc_shm_failed(path, "cannot give it to its group", rc);
		}
		if (rc != 0 && rc != -EAGAIN)
			unlink(path);
		close(fd);
		if (rc != 0 && rc != -EAGAIN)
			return no_lock(path, rc);
	}
	return crpc_fail(
		-EADDRINUSE, "%s: others keep creating it; expected one owner of the name", path);
}

int
crpc_shm_remove(const char *dir, const char *name)
{
	char path[CRPC_SHM_PATH_MAX];
	int fd, rc = __crpc_shm_path(path, dir, name);

	if (rc == 0)
		rc = remove_leftover(path);
	if (rc != 0 || !__crpc_shm_sock_there(path))
		return rc;
	/* A socket without a door: no other process takes the name while we hold it. */
	fd = __crpc_shm_file_create(path, 0600, 0);
	if (fd < 0)
		return fd;
	rc = __crpc_shm_sock_take(path, NULL);
	unlink(path);
	close(fd);
	return rc;
}

/* ---- what tools see ---- */

/* The segment's name in the name of its file, or of its socket if the door itself is gone. */
static int
name_of(const char *dir, const char *file, struct crpc_shm_info *info, struct stat *st)
{
	size_t len = strlen(file), cut = 0, n;
	char path[SHM_SOCK_MAX], *name;

	if (strncmp(file, PREFIX, strlen(PREFIX)) != 0)
		return -EINVAL;
	n = (size_t)snprintf(path, sizeof(path), "%s/" PREFIX "%s", dir, file + strlen(PREFIX));
	if (n >= sizeof(path))
		return -EINVAL;
	if (lstat(path, st) != 0)
		return -errno;
	if (S_ISSOCK(st->st_mode))
		cut = strlen(SHM_SOCK_SUFFIX);
	if (len < strlen(PREFIX) + cut || (!S_ISREG(st->st_mode) && cut == 0) ||
		(cut != 0 && strcmp(file + len - cut, SHM_SOCK_SUFFIX) != 0))
		return -EINVAL;
	path[n - cut] = '\0';
	name = path + n - len + strlen(PREFIX);
	if (!name_ok(name) || n - cut >= sizeof(info->path))
		return -EINVAL;
	memcpy(info->name, name, strlen(name));
	memcpy(info->path, path, n - cut);
	/* A socket with its door is described by the door. */
	return cut != 0 && access(info->path, F_OK) == 0 ? -EINVAL : 0;
}

/* What the header says, which may be anything. */
static void
read_header(const struct shm_door *d, struct crpc_shm_info *info)
{
	const struct crpc_shm_header *h = &d->hdr;
	uint32_t state = crpc_load_relaxed(&h->state);

	if (h->magic == 0 && state == CRPC_SHM_INIT)
		info->state = CRPC_SHM_INIT;
	if (h->magic != CRPC_SHM_MAGIC || h->version != CRPC_SHM_VERSION || state > CRPC_SHM_CLOSED)
		return;
	info->state = state;
	info->kind = h->kind;
	info->kind_version = h->kind_version;
	info->owner_pid = h->owner_pid;
	info->owner_start = h->owner_start;
	info->incarnation = h->incarnation;
	if (h->kind == SHM_DOOR_KIND) {
		info->medium = CRPC_SHM_MEMFD;
		info->kind = d->kind;
		info->kind_version = d->kind_version;
		info->size = d->size;
	}
}

static void
read_file(int fd, const struct stat *st, struct crpc_shm_info *info)
{
	struct shm_door d;
	struct statfs fs;
	int rc;

	info->ours = is_ours(fd, st, &d);
	if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
		info->medium = CRPC_SHM_HUGE;
	if (st->st_size >= (off_t)sizeof(d.hdr))
		read_header(&d, info);
	rc = shm_fd_owned(fd);
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
		/* without its door nothing shows whether its owner lives */
		i.ours = true;
		i.medium = CRPC_SHM_MEMFD;
		*info = i;
		return 0;
	}
	fd = open(i.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	i.size = (uint64_t)st.st_size;
	if (fd < 0 && __crpc_shm_sock_there(i.path))
		i.medium = CRPC_SHM_MEMFD;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		read_file(fd, &st, &i);
	if (fd >= 0)
		close(fd);
	*info = i;
	return 0;
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
			crpc_shm_inspect(where, e->d_name, &info) == 0 && info.living != 1 &&
			info.uid == geteuid() && crpc_shm_remove(where, info.name) == 0)
			n++;
	closedir(d);
	return n;
}
