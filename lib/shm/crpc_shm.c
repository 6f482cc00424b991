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
#include <unistd.h>

#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "shm_private.h"

/* Between two tries to attach. */
#define RETRY_NS 1000000

/* ---- of both sides ---- */

int
__crpc_shm_failed(const char *path, const char *what, int rc)
{
	return crpc_fail(rc, "%s: %s: %s", path, what, strerror(-rc));
}

bool
__crpc_shm_wrong(const char *path, const char *field, uint64_t expected, uint64_t found)
{
	if (found == expected)
		return false;
	return crpc_fail(true,
		"%s: %s is 0x%" PRIx64 ", expected 0x%" PRIx64
		"; is it damaged, another program's, or another version's?",
		path, field, found, expected);
}

int
__crpc_shm_page_size(struct crpc_shm *seg, bool huge)
{
	struct statfs fs;

	if (fstatfs(seg->fd, &fs) != 0)
		return __crpc_shm_failed(seg->path, "fstatfs", -errno);
	if (fs.f_type == HUGETLBFS_MAGIC)
		seg->page_size = (uint64_t)fs.f_bsize;
	else if (huge)
		return crpc_fail(
			-ENOTSUP, "%s: huge pages wanted, and this is no hugetlbfs", seg->path);
	else
		seg->page_size = (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

int
__crpc_shm_map(struct crpc_shm *seg)
{
	void *p = mmap(NULL, seg->size, PROT_READ | PROT_WRITE, MAP_SHARED, seg->fd, 0);
	int rc = -errno;

	if (p == MAP_FAILED)
		return crpc_fail(rc, "%s: cannot map %" PRIu64 " bytes: %s", seg->path, seg->size,
			strerror(-rc));
	seg->hdr = p;
	return 0;
}

/* ---- attach ---- */

/*
 * Read by pread(), not through a mapping: before the state is READY the file may still lack pages,
 * and the copy cannot change under the checks.
 */
static int
check_header(const struct crpc_shm *seg, uint32_t kind, uint32_t kind_version)
{
	struct crpc_shm_header h;
	uint32_t state;

	if (pread(seg->fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return crpc_fail(
			-EIO, "%s: cannot read its header: %s", seg->path, strerror(errno));
	state = crpc_load_relaxed(&h.state);
	if (h.magic == 0 && state == CRPC_SHM_INIT)
		return -EAGAIN;
	if (__crpc_shm_wrong(seg->path, "magic", CRPC_SHM_MAGIC, h.magic) ||
		__crpc_shm_wrong(seg->path, "segment version", CRPC_SHM_VERSION, h.version) ||
		__crpc_shm_wrong(seg->path, "header size", sizeof(h), h.header_size))
		return -EPROTO;
	/* A door without its socket is one that opens or closes right now. */
	if (state == CRPC_SHM_INIT || h.kind == SHM_DOOR_KIND)
		return -EAGAIN;
	if (state == CRPC_SHM_CLOSED)
		return -ECONNREFUSED;
	if (__crpc_shm_wrong(seg->path, "state", CRPC_SHM_READY, state) ||
		__crpc_shm_wrong(seg->path, "total size", seg->size, h.total_size) ||
		__crpc_shm_wrong(seg->path, "kind", kind, h.kind) ||
		__crpc_shm_wrong(seg->path, "layout version", kind_version, h.kind_version))
		return -EPROTO;
	return 0;
}

static int
attach_fd(struct crpc_shm *seg, uint32_t kind, uint32_t kind_version)
{
	int owned = shm_fd_owned(seg->fd), rc;
	struct stat st;

	if (owned < 0)
		return __crpc_shm_failed(seg->path, "cannot ask for its owner's lock", owned);
	if (fstat(seg->fd, &st) != 0)
		return __crpc_shm_failed(seg->path, "fstat", -errno);
	if (__crpc_shm_wrong(seg->path, "file type", S_IFREG, st.st_mode & S_IFMT))
		return -EPROTO;
	if (st.st_size == 0) /* its creator has not come further than open(), or is dead */
		return owned == 1 ? -EAGAIN : -ECONNREFUSED;
	if (crpc_outside(seg->path, "file size", (uint64_t)st.st_size,
		    sizeof(struct crpc_shm_header), SHM_SIZE_LIMIT))
		return -EPROTO;
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
		rc = __crpc_shm_page_size(seg, false);
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

/* The file at seg->path. Descriptor, or -errno: -ENOENT is not logged. */
static int
open_file(const struct crpc_shm *seg)
{
	int fd = open(seg->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = -errno;

	if (fd >= 0 || rc == -ENOENT)
		return fd >= 0 ? fd : rc;
	if (rc == -EACCES)
		return crpc_fail(rc,
			"%s: permission denied; run as its owner, or let the owner choose "
			"a wider mode",
			seg->path);
	return __crpc_shm_failed(seg->path, "cannot open it", rc);
}

/* One try in one directory: through the socket beside the path, or by the path itself. */
static int
attach_in(struct crpc_shm *seg, const char *dir, const char *name, uint32_t kind,
	uint32_t kind_version, uint64_t wait_ms)
{
	int rc = __crpc_shm_path(seg->path, dir, name);
	uid_t uid = 0;

	if (rc != 0)
		return rc;
	seg->memfd = __crpc_shm_door_find(seg->path, &uid);
	rc = seg->memfd ? __crpc_shm_door_fetch(seg, uid, wait_ms) : open_file(seg);
	if (rc < 0)
		return rc;
	seg->fd = rc;
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
	int rc = attach_in(seg, first, name, kind, kind_version, wait_ms);
	char huge[CRPC_SHM_PATH_MAX];

	if (rc == -ENOENT && dir == NULL && __crpc_shm_huge_dir(huge))
		return attach_in(seg, huge, name, kind, kind_version, wait_ms);
	return rc;
}

/* Errors that waiting may cure are logged when the wait is over. */
static void
log_refusal(int rc, const char *dir, const char *name)
{
	const char *why = NULL;

	if (rc == -ENOENT)
		why = "no such segment; start its owner first, or check name and directory";
	else if (rc == -ECONNREFUSED)
		why = "its owner is dead or closed it; start the owner again";
	else if (rc == -EAGAIN)
		why = "its owner has not made it ready yet; try again";
	if (why != NULL)
		crpc_err("%s/crpc.%s: %s", dir == NULL ? SHM_DEFAULT_DIR : dir, name, why);
}

struct crpc_shm *
crpc_shm_attach(const char *dir, const char *name, uint32_t kind, uint32_t kind_version,
		uint32_t timeout_ms)
{
	uint64_t now = shm_now_ms(), end = now + timeout_ms;
	struct crpc_shm *seg = calloc(1, sizeof(*seg));
	int rc;

	if (seg == NULL)
		return NULL;
	seg->listen_fd = -1;
	for (;;) {
		rc = attach_once(seg, dir, name, kind, kind_version, end - now);
		now = shm_now_ms();
		if ((rc != -ENOENT && rc != -ECONNREFUSED && rc != -EAGAIN) || now >= end)
			break;
		crpc_nap(RETRY_NS);
	}
	if (rc == 0) {
		crpc_store_relaxed(&seg->refs, 1);
		return seg;
	}
	log_refusal(rc, dir, name);
	free(seg);
	return crpc_null(rc);
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
	/* R2 and A2, both here: every user's last access comes before the unmap. */
	if (seg == NULL || crpc_fetch_add_acq_rel(&seg->refs, UINT32_MAX) != 1)
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
	/* If the kernel gives an error, the owner is not declared dead. */
	return shm_fd_owned(seg->fd) != 0;
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
