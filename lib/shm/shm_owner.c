/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner's side of a segment: create, ready, free. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_crash.h"
#include "crpc_file.h"
#include "crpc_log.h"
#include "shm_private.h"

/* Field 22 of /proc/self/stat; 0 where there is no /proc. The name in field 2 may hold anything. */
static uint64_t
own_start_time(void)
{
	FILE *f = fopen("/proc/self/stat", "re");
	char text[1024], *p;
	size_t n;

	if (f == NULL)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')');
	for (size_t field = 2; p != NULL && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p == NULL ? 0 : strtoull(p, NULL, 10);
}

/* The file's path, in the directory that is named or in the default one. */
static int
conf_path(const struct crpc_shm_conf *conf, char *path)
{
	char huge[CRPC_SHM_PATH_MAX];
	const char *dir = conf->dir;
	int rc;

	if (dir == NULL && conf->huge && !conf->memfd)
		dir = __crpc_shm_huge_dir(huge) ? huge : NULL;
	else if (dir == NULL)
		dir = SHM_DEFAULT_DIR;
	if (dir == NULL)
		return crpc_fail(-ENOENT,
			"huge pages wanted and no hugetlbfs is mounted; mount one (mount -t "
			"hugetlbfs none DIR) or do without");
	rc = __crpc_shm_path(path, dir, conf->name);
	if (rc == 0 &&
		crpc_outside(path, "size of the segment", conf->size,
			sizeof(struct crpc_shm_header), SHM_SIZE_LIMIT))
		rc = -EINVAL;
	return rc;
}

/* Bytes that the file's file system can still give. True if they are the machine's memory. */
static bool
room(int fd, uint64_t *left)
{
	struct statfs fs = {0};
	uint64_t available;

	fstatfs(fd, &fs);
	*left = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (fs.f_type != TMPFS_MAGIC)
		return false;
	/* Of the machine, without those that it would have to write out first. */
	available = __crpc_meminfo("MemAvailable:") << 10;
	*left = fs.f_blocks == 0 ? available : crpc_min(*left, available);
	return true;
}

static int
no_room(const struct crpc_shm *seg, int rc)
{
	uint64_t left;

	room(seg->fd, &left);
	return crpc_fail(rc,
		"%s: cannot reserve %" PRIu64 " bytes, %" PRIu64
		" are free there: %s; make room, enlarge the file system or use fewer "
		"clients, depth or bytes per message",
		seg->path, seg->size, left, strerror(-rc));
}

/* Take every page now: a page that is missing at the first use would be a SIGBUS. */
static int
reserve(const struct crpc_shm *seg)
{
	int rc;

	do
		rc = -posix_fallocate(seg->fd, 0, (off_t)seg->size);
	while (rc == -EINTR);
	return rc == 0 ? 0 : no_room(seg, rc);
}

static void
fill_header(struct crpc_shm *seg, const struct crpc_shm_conf *conf)
{
	struct crpc_shm_header *h = seg->hdr;

	h->version = CRPC_SHM_VERSION;
	h->header_size = sizeof(*h);
	h->total_size = seg->size;
	h->kind = conf->kind;
	h->kind_version = conf->kind_version;
	h->owner_pid = (uint32_t)getpid();
	h->owner_uid = (uint32_t)geteuid();
	h->owner_start = own_start_time();
	if (getrandom(&h->incarnation, sizeof(h->incarnation), 0) != sizeof(h->incarnation))
		h->incarnation = (uint64_t)seg->ino;
	h->page_size = (uint32_t)seg->page_size;
	memcpy(h->name, conf->name, strlen(conf->name)); /* checked: it fits with its zero */
	CRPC_CRASH_POINT("shm.create.5");
	h->magic = CRPC_SHM_MAGIC;
}

/* From an open, locked, empty file to a mapped segment. */
static int
build(struct crpc_shm *seg, const struct crpc_shm_conf *conf)
{
	int rc = __crpc_shm_page_size(seg, conf->huge);
	uint64_t left;

	if (rc != 0)
		return rc;
	seg->size = crpc_align_up(conf->size, seg->page_size);
	/* Where memory has no limit but the machine's, taking too much would end processes. */
	if (room(seg->fd, &left) && seg->size > left)
		return no_room(seg, -ENOSPC);
	if (ftruncate(seg->fd, (off_t)seg->size) != 0)
		return __crpc_shm_failed(seg->path, "cannot set its size", -errno);
	CRPC_CRASH_POINT("shm.create.3");
	rc = __crpc_shm_map(seg);
	if (rc == 0)
		rc = reserve(seg);
	if (rc != 0)
		return rc;
	CRPC_CRASH_POINT("shm.create.4");
	if (conf->prefault)
		madvise(seg->hdr, seg->size, MADV_POPULATE_WRITE);
	fill_header(seg, conf);
	CRPC_CRASH_POINT("shm.create.6");
	return 0;
}

/* Keep the caller's list: it may be gone when a process connects. */
static int
copy_allow(struct crpc_shm *seg, const struct crpc_shm_allow *allow)
{
	if (allow == NULL)
		return 0;
	if (!seg->memfd || allow->uid_count > CRPC_SHM_ALLOW_MAX ||
		allow->gid_count > CRPC_SHM_ALLOW_MAX)
		return crpc_fail(-EINVAL,
			"%s: list of %u users and %u groups; expected at most %d of each, "
			"and a memfd",
			seg->path, allow->uid_count, allow->gid_count, CRPC_SHM_ALLOW_MAX);
	if (allow->uid_count != 0)
		memcpy(seg->uids, allow->uids, allow->uid_count * sizeof(seg->uids[0]));
	if (allow->gid_count != 0)
		memcpy(seg->gids, allow->gids, allow->gid_count * sizeof(seg->gids[0]));
	seg->allow =
		(struct crpc_shm_allow){seg->uids, seg->gids, allow->uid_count, allow->gid_count};
	return 0;
}

/* Hand the lock of *fd to a mapping; *fd is -1 then. */
static int
hold(const struct crpc_shm *seg, int *fd, struct crpc_shm_lock **lock)
{
	*lock = __crpc_shm_lock_hold(seg, *fd);
	if (*lock == NULL)
		return -errno;
	*fd = -1;
	return 0;
}

/*
 * From a locked file at the path, and for a memfd locked memory, to a segment. The memory is mapped
 * through a second description, which also asks about locks: it may outlive the owner's lock or be
 * inherited by a child, and it holds none.
 */
static int
create_locked(struct crpc_shm *seg, const struct crpc_shm_conf *conf, int *name_fd, int *data_fd)
{
	struct stat st = {0};
	int rc = fstat(*name_fd, &st) == 0 ? 0 : -errno;

	seg->dev = st.st_dev;
	seg->ino = st.st_ino;
	if (rc == 0)
		rc = seg->memfd ? __crpc_shm_fd_reopen(*data_fd)
				: __crpc_shm_file_reopen(seg, O_RDWR);
	if (rc < 0)
		return __crpc_shm_failed(seg->path, "cannot open it again", rc);
	seg->fd = rc;
	rc = build(seg, conf);
	if (rc == 0 && seg->memfd)
		rc = __crpc_shm_door_open(seg, *name_fd);
	if (rc == 0 && seg->memfd)
		rc = hold(seg, data_fd, &seg->owner);
	CRPC_CRASH_POINT("shm.create.7");
	if (rc == 0)
		rc = hold(seg, name_fd, seg->memfd ? &seg->name : &seg->owner);
	CRPC_CRASH_POINT("shm.create.8");
	return rc;
}

struct crpc_shm *
crpc_shm_create(const struct crpc_shm_conf *conf)
{
	struct crpc_shm *seg = calloc(1, sizeof(*seg));
	int name_fd, data_fd = -1, rc;

	if (seg == NULL)
		return NULL;
	*seg = (struct crpc_shm){.fd = -1,
		.listen_fd = -1,
		.refs = 1,
		.memfd = conf->memfd,
		.uid = geteuid(),
		.pid = getpid()};
	rc = conf_path(conf, seg->path);
	if (rc == 0)
		rc = copy_allow(seg, conf->allow);
	if (rc != 0)
		goto err;
	name_fd = rc = __crpc_shm_file_create(seg->path,
		conf->mode == 0 || conf->memfd ? 0600 : conf->mode, conf->memfd ? 0 : conf->gid);
	if (rc < 0)
		goto err;
	if (conf->memfd)
		data_fd = rc = __crpc_shm_memfd(conf->name, conf->huge);
	if (rc >= 0)
		rc = create_locked(seg, conf, &name_fd, &data_fd);
	if (rc == 0)
		return seg;

	/* The file is removed while it is still locked. */
	__crpc_shm_door_close(seg);
	unlink(seg->path);
	if (seg->hdr != NULL)
		munmap(seg->hdr, seg->size);
	if (seg->fd >= 0)
		close(seg->fd);
	crpc_shm_lock_drop(seg->owner);
	if (name_fd >= 0)
		close(name_fd);
	if (data_fd >= 0)
		close(data_fd);
err:
	free(seg);
	return crpc_null(rc);
}

void
crpc_shm_ready(struct crpc_shm *seg)
{
	/* R0 pairs with A0 in attach_fd(): the header and the owner's layout before the state. */
	crpc_store_release(&seg->hdr->state, CRPC_SHM_READY);
	CRPC_CRASH_POINT("shm.ready.1");
	if (seg->memfd)
		__crpc_shm_door_state(seg, CRPC_SHM_READY);
}

void
crpc_shm_hide(struct crpc_shm *seg)
{
	__crpc_shm_door_close(seg);
	CRPC_CRASH_POINT("shm.free.4");
	/* Removed while still locked: a successor's file cannot be the one at this path. */
	if (__crpc_shm_at_path(seg) && unlink(seg->path) != 0)
		__crpc_shm_failed(seg->path, "cannot remove it", -errno);
}

void
crpc_shm_free(struct crpc_shm *seg)
{
	bool ours;

	if (seg == NULL)
		return;
	/* A forked child gives up what it inherited; the segment is its parent's. */
	ours = seg->pid == getpid();
	if (ours) {
		/* R1 pairs with A1 in crpc_shm_owner_alive(): all that the owner wrote. */
		crpc_store_release(&seg->hdr->state, CRPC_SHM_CLOSED);
		CRPC_CRASH_POINT("shm.free.2");
		crpc_shm_hide(seg);
	} else if (seg->listen_fd >= 0) {
		close(seg->listen_fd);
	}
	CRPC_CRASH_POINT("shm.free.5");
	crpc_shm_lock_drop(seg->name);
	CRPC_CRASH_POINT("shm.free.6");
	crpc_shm_lock_drop(seg->owner);
	CRPC_CRASH_POINT("shm.free.7");
	seg->name = seg->owner = NULL;
	crpc_shm_detach(seg);
}
