/* SPDX-License-Identifier: BSD-3-Clause */
/* A segment of another process: attach, detach; and what both sides ask of one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_log.h"
#include "shm_private.h"

/* Between two tries to attach. */
#define RETRY_NS 1000000

/* ---- of both sides ---- */

/* Page size of the file's file system, and whether it is what the caller asked for. */
int
__crpc_shm_check_fs(struct crpc_shm *seg, int fd, bool huge)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0) {
		crpc_err("%s: fstatfs: %s", seg->path, strerror(errno));
		return -errno;
	}
	if (fs.f_type == HUGETLBFS_MAGIC) {
		seg->page_size = (uint64_t)fs.f_bsize;
	} else if (huge) {
		crpc_err("%s: huge pages wanted, and this is no hugetlbfs", seg->path);
		return -ENOTSUP;
	} else {
		seg->page_size = (uint64_t)sysconf(_SC_PAGESIZE);
	}
	return 0;
}

int
__crpc_shm_map(struct crpc_shm *seg)
{
	void *p = mmap(NULL, seg->size, PROT_READ | PROT_WRITE, MAP_SHARED, seg->fd, 0);

	if (p == MAP_FAILED) {
		crpc_err("%s: cannot map %" PRIu64 " bytes: %s", seg->path, seg->size,
				strerror(errno));
		return -errno;
	}
	seg->hdr = p;
	return 0;
}

/* ---- attach ---- */

int
__crpc_shm_wrong(const struct crpc_shm *seg, const char *field, uint64_t expected, uint64_t found)
{
	crpc_err("%s: %s is 0x%" PRIx64 ", expected 0x%" PRIx64 "; is it another program's, or "
		 "another version's?",
			seg->path, field, found, expected);
	return -EPROTO;
}

/*
 * Read by pread(), not through a mapping: before the state is READY the file may still lack pages,
 * and the copy cannot change under the checks.
 */
static int
check_header(const struct crpc_shm *seg, uint32_t kind, uint32_t kind_version)
{
	struct crpc_shm_header h;
	uint32_t state;

	if (pread(seg->fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h)) {
		crpc_err("%s: cannot read its header: %s", seg->path, strerror(errno));
		return -EIO;
	}
	state = crpc_load_relaxed(&h.state);
	if (h.magic == 0 && state == CRPC_SHM_INIT)
		return -EAGAIN;
	if (h.magic != CRPC_SHM_MAGIC)
		return __crpc_shm_wrong(seg, "magic", CRPC_SHM_MAGIC, h.magic);
	if (h.version != CRPC_SHM_VERSION)
		return __crpc_shm_wrong(seg, "segment version", CRPC_SHM_VERSION, h.version);
	if (h.header_size != sizeof(h))
		return __crpc_shm_wrong(seg, "header size", sizeof(h), h.header_size);
	/* A door without its socket is one that opens or closes right now. */
	if (state == CRPC_SHM_INIT || h.kind == SHM_DOOR_KIND)
		return -EAGAIN;
	if (state == CRPC_SHM_CLOSED)
		return -ECONNREFUSED;
	if (state != CRPC_SHM_READY)
		return __crpc_shm_wrong(seg, "state", CRPC_SHM_READY, state);
	if (h.total_size != seg->size)
		return __crpc_shm_wrong(seg, "total size", seg->size, h.total_size);
	if (h.kind != kind)
		return __crpc_shm_wrong(seg, "kind", kind, h.kind);
	if (h.kind_version != kind_version)
		return __crpc_shm_wrong(seg, "layout version", kind_version, h.kind_version);
	return 0;
}

static int
attach_fd(struct crpc_shm *seg, uint32_t kind, uint32_t kind_version)
{
	int owned = __crpc_shm_fd_locked(seg->fd, SHM_OWNER_BYTE);
	struct stat st;
	int rc;

	if (owned < 0) {
		crpc_err("%s: cannot ask for its owner's lock: %s", seg->path, strerror(-owned));
		return owned;
	}
	if (fstat(seg->fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return __crpc_shm_wrong(seg, "file type", S_IFREG, st.st_mode & S_IFMT);
	if (st.st_size == 0) /* its creator has not come further than open(), or is dead */
		return owned == 1 ? -EAGAIN : -ECONNREFUSED;
	if (st.st_size < (off_t)sizeof(struct crpc_shm_header) ||
		(uint64_t)st.st_size > SHM_SIZE_LIMIT)
		return __crpc_shm_wrong(seg, "file size", sizeof(struct crpc_shm_header),
				(uint64_t)st.st_size);
	seg->size = (uint64_t)st.st_size;
	if (!seg->memfd) {
		seg->dev = st.st_dev;
		seg->ino = st.st_ino;
		seg->uid = st.st_uid;
	}
	rc = check_header(seg, kind, kind_version);
	if ((rc == 0 || rc == -EAGAIN) && owned == 0)
		return -ECONNREFUSED;
	if (rc == 0)
		rc = __crpc_shm_check_fs(seg, seg->fd, false);
	if (rc == 0)
		rc = __crpc_shm_map(seg);
	if (rc != 0)
		return rc;
	/* A0 pairs with R0 in crpc_shm_ready(). */
	if (crpc_load_acquire(&seg->hdr->state) == CRPC_SHM_READY)
		return 0;
	munmap(seg->hdr, seg->size);
	return -ECONNREFUSED;
}

static int
attach_path(struct crpc_shm *seg, uint32_t kind, uint32_t kind_version)
{
	int rc;

	seg->fd = open(seg->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (seg->fd < 0) {
		rc = -errno;
		if (rc == -EACCES)
			crpc_err("%s: permission denied; run as its owner, or let the owner choose "
				 "a "
				 "wider mode",
					seg->path);
		else if (rc != -ENOENT)
			crpc_err("%s: cannot open it: %s", seg->path, strerror(errno));
		return rc;
	}
	rc = attach_fd(seg, kind, kind_version);
	if (rc != 0)
		close(seg->fd);
	return rc;
}

/* Through the socket beside the path. */
static int
attach_door(struct crpc_shm *seg, uid_t uid, uint32_t kind, uint32_t kind_version, uint64_t wait_ms)
{
	int rc = __crpc_shm_door_fetch(seg, uid, wait_ms);

	if (rc != 0)
		return rc;
	seg->memfd = true;
	rc = attach_fd(seg, kind, kind_version);
	if (rc != 0)
		close(seg->fd);
	return rc;
}

/* One try in the named directory, or in those that create() uses by default. */
static int
attach_once(struct crpc_shm *seg, const char *dir, const char *name, uint32_t kind,
		uint32_t kind_version, uint64_t wait_ms)
{
	const char *first = dir == NULL ? SHM_DEFAULT_DIR : dir;
	char huge[CRPC_SHM_PATH_MAX];
	int rc = __crpc_shm_path(seg->path, sizeof(seg->path), first, name);
	uid_t uid = 0;

	if (rc != 0)
		return rc;
	seg->memfd = false;
	if (__crpc_shm_door_find(seg->path, &uid) == 1)
		return attach_door(seg, uid, kind, kind_version, wait_ms);
	rc = attach_path(seg, kind, kind_version);
	if (rc != -ENOENT || dir != NULL || __crpc_shm_huge_dir(huge, sizeof(huge)) != 0)
		return rc;
	rc = __crpc_shm_path(seg->path, sizeof(seg->path), huge, name);
	return rc != 0 ? rc : attach_path(seg, kind, kind_version);
}

/* Errors that waiting may cure are said when the wait is over. */
static void
say_refusal(int rc, const char *dir, const char *name)
{
	const char *first = dir == NULL ? SHM_DEFAULT_DIR : dir;

	if (rc == -ENOENT)
		crpc_err("%s/crpc.%s: no such segment; start its owner first, or check name and "
			 "directory",
				first, name);
	else if (rc == -ECONNREFUSED)
		crpc_err("%s/crpc.%s: its owner is dead or closed it; start the owner again", first,
				name);
	else if (rc == -EAGAIN)
		crpc_err("%s/crpc.%s: its owner has not made it ready yet; try again", first, name);
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct crpc_shm *
crpc_shm_attach(const char *dir, const char *name, uint32_t kind, uint32_t kind_version,
		uint32_t timeout_ms)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	uint64_t now = now_ms(), end = now + timeout_ms;
	struct crpc_shm *seg = calloc(1, sizeof(*seg));
	int rc;

	if (seg == NULL)
		return NULL;
	seg->listen_fd = -1;
	rc = __crpc_shm_name_check(name);
	if (rc != 0)
		goto err;
	for (;;) {
		rc = attach_once(seg, dir, name, kind, kind_version, end - now);
		now = now_ms();
		if ((rc != -ENOENT && rc != -ECONNREFUSED && rc != -EAGAIN) || now >= end)
			break;
		nanosleep(&pause, NULL);
	}
	if (rc != 0) {
		say_refusal(rc, dir, name);
		goto err;
	}
	crpc_store_relaxed(&seg->refs, 1);
	return seg;

err:
	free(seg);
	errno = -rc;
	return NULL;
}

struct crpc_shm *
crpc_shm_ref(struct crpc_shm *seg)
{
	crpc_fetch_add_relaxed(&seg->refs, 1);
	return seg;
}

void
crpc_shm_detach(struct crpc_shm *seg)
{
	uint32_t refs;

	if (seg == NULL)
		return;
	/* R2 and A2, both here: every user's last access comes before the unmap. */
	refs = crpc_load_relaxed(&seg->refs);
	while (!crpc_cas_acq_rel(&seg->refs, &refs, refs - 1))
		;
	if (refs != 1)
		return;
	munmap(seg->hdr, seg->size);
	close(seg->fd);
	free(seg);
}

/* ---- use ---- */

bool
crpc_shm_owner_alive(const struct crpc_shm *seg)
{
	/* A1 pairs with R1 in crpc_shm_free(). */
	if (crpc_load_acquire(&seg->hdr->state) == CRPC_SHM_CLOSED)
		return false;
	/* Where the kernel cannot tell, nobody is declared dead. */
	return __crpc_shm_fd_locked(seg->fd, SHM_OWNER_BYTE) != 0;
}

uid_t
crpc_shm_owner_uid(const struct crpc_shm *seg)
{
	return seg->uid;
}

struct crpc_shm_header *
crpc_shm_header(const struct crpc_shm *seg)
{
	return seg->hdr;
}

uint64_t
crpc_shm_size(const struct crpc_shm *seg)
{
	return seg->size;
}

const char *
crpc_shm_path(const struct crpc_shm *seg)
{
	return seg->path;
}

void *
crpc_shm_ptr(const struct crpc_shm *seg, uint64_t off, uint64_t len)
{
	if (off > seg->size || len > seg->size - off)
		return NULL;
	return (uint8_t *)seg->hdr + off;
}

int
crpc_shm_off(const struct crpc_shm *seg, const void *ptr, uint64_t len, uint64_t *off)
{
	uint64_t o = (uint64_t)((uintptr_t)ptr - (uintptr_t)seg->hdr);

	if (o > seg->size || len > seg->size - o)
		return -ERANGE;
	*off = o;
	return 0;
}
