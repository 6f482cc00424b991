/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_hash_crc.h>

#include "app_fail.h"
#include "crpc_log.h"
#include "snapshot.h"

#define SNAPSHOT_MAGIC   UINT64_C(0x5453564b43505243) /* "CRPCKVST" */
#define SNAPSHOT_VERSION 1u
/* Of a store whose keys have different sizes. */
#define SNAPSHOT_VERSION_SIZES 2u

/* Head of the file; the items follow it, and the checksum of all of it is the end. */
struct head {
	uint64_t magic;
	uint32_t version;
	uint32_t key_size;
	uint32_t owner;
	uint32_t owners;
	uint64_t items;
	uint64_t newest; /* version that was given out */
	uint64_t bytes;  /* of the whole file */
	uint32_t key_min; /* 0: all keys have key_size */
	uint32_t key_mix; /* 0 likewise; else a hash of which keys have which size */
	uint32_t zero[2];
};
_Static_assert(sizeof(struct head) == 64, "file format");

/* Head of an item; the key and the value follow. */
struct item {
	uint64_t version;
	uint32_t len;
	uint32_t ttl_ms;
};
_Static_assert(sizeof(struct item) == 16, "file format");

/* A file that is summed up as it is read or written. */
struct stream {
	FILE *file;
	uint32_t crc;
	bool bad;
};

/* A client can still write to a large value: what is summed up is what is written, a copy. */
static void
put(struct stream *st, const void *data, size_t len)
{
	const uint8_t *from = data;
	uint8_t copy[4096];
	size_t n;

	for (; len != 0; from += n, len -= n) {
		n = crpc_min(len, sizeof(copy));
		memcpy(copy, from, n);
		st->bad |= fwrite(copy, 1, n, st->file) != n;
		st->crc = rte_hash_crc(copy, (uint32_t)n, st->crc);
	}
}

static void
get(struct stream *st, void *data, size_t len)
{
	if (fread(data, 1, len, st->file) != len) {
		st->bad = true;
		return;
	}
	st->crc = rte_hash_crc(data, (uint32_t)len, st->crc);
}

static void
name_of(const struct kv_snapshot *snap, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s.%u", snap->path, snap->owner);
}

/* Beside its place. */
static void
fresh_name(const struct kv_snapshot *snap, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s.%u.new", snap->path, snap->owner);
}

/* Whether the name is still that of the open file. */
static bool
is_named(int fd, const char *path)
{
	struct stat file, name;

	return fstat(fd, &file) == 0 && stat(path, &name) == 0 && file.st_dev == name.st_dev &&
		file.st_ino == name.st_ino;
}

/*
 * Open and lock the file that is, or was, written. The lock ends with the last process that has it.
 * @return a descriptor, -EBUSY: another process writes it, -EAGAIN: one will, or another -errno.
 */
static int
fresh_lock(const char *fresh, int flags)
{
	struct stat st = {0};
	int fd, rc, tries;

	for (tries = 0; tries < 10; tries++) {
		/* Others' links are not followed, and no other user can read or lock it. */
		fd = open(fresh, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			rc = errno != EWOULDBLOCK ? -errno : -EAGAIN;
			if (rc == -EAGAIN && fstat(fd, &st) == 0 && st.st_size != 0)
				rc = -EBUSY;
			close(fd);
			return rc;
		}
		/* Its owner may have renamed or removed it before we had the lock. */
		if (is_named(fd, fresh))
			break;
		close(fd);
	}
	if (tries == 10)
		return -EAGAIN;
	if (fstat(fd, &st) == 0 && st.st_size != 0)
		app_note("%s: a run was killed while it wrote this snapshot; the unfinished file "
			 "of %lld bytes is removed, the snapshot before it is used",
			fresh, (long long)st.st_size);
	return fd;
}

int
kv_snapshot_claim(struct kv_snapshot *snap)
{
	char fresh[PATH_MAX], path[PATH_MAX];
	int fd, rc = 0;

	name_of(snap, path);
	fresh_name(snap, fresh);
	fd = fresh_lock(fresh, O_CREAT);
	if (fd == -EBUSY || fd == -EAGAIN) {
		crpc_err("snapshot %s: another run has it and is alive; wait for its end or give "
			 "another path",
			path);
		return -EBUSY;
	}
	if (fd < 0 || ftruncate(fd, 0) != 0)
		rc = fd < 0 ? fd : -errno;
	snap->fresh = rc == 0 ? fdopen(fd, "wbe") : NULL;
	if (snap->fresh != NULL)
		return 0;
	rc = rc == 0 ? -errno : rc;
	crpc_err("snapshot %s: %s cannot be made: %s", path, fresh, strerror(-rc));
	if (fd >= 0)
		close(fd);
	return rc;
}

void
kv_snapshot_release(struct kv_snapshot *snap)
{
	char fresh[PATH_MAX];

	if (snap->fresh == NULL)
		return;
	fresh_name(snap, fresh);
	if (is_named(fileno(snap->fresh), fresh))
		unlink(fresh);
	fclose(snap->fresh);
	snap->fresh = NULL;
}

static void
items_put(struct stream *st, const struct kv_store *s)
{
	uint32_t key_bytes = kv_store_key_bytes(s);
	struct kv_item it;
	struct item head;
	uint32_t at = 0;

	while (kv_store_each(s, &at, &it)) {
		head = (struct item){.version = it.version, .len = it.len, .ttl_ms = it.ttl_ms};
		put(st, &head, sizeof(head));
		put(st, it.key, key_bytes);
		put(st, it.value, it.len);
	}
}

/* Both sums that the head needs. */
static void
measure(const struct kv_store *s, struct head *head)
{
	struct kv_item it;
	uint32_t at = 0;

	head->bytes = sizeof(*head) + sizeof(uint32_t);
	while (kv_store_each(s, &at, &it)) {
		head->items++;
		head->bytes += sizeof(struct item) + kv_store_key_bytes(s) + it.len;
	}
}

/* Write all, make it lasting, and only then let it take the place of what was there. */
static int
file_write(const struct kv_snapshot *snap, const struct kv_store *s, struct head *head,
	const char *path)
{
	struct stream st = {.file = snap->fresh, .crc = UINT32_MAX};
	char fresh[PATH_MAX];
	uint32_t crc;

	fresh_name(snap, fresh);
	if (!is_named(fileno(st.file), fresh)) /* It was removed, or is another run's. */
		return -ENOENT;
	errno = 0;
	rewind(st.file);
	if (ftruncate(fileno(st.file), 0) != 0)
		return -errno;
	put(&st, head, sizeof(*head));
	items_put(&st, s);
	crc = st.crc;
	put(&st, &crc, sizeof(crc));
	if (st.bad || fflush(st.file) != 0 || fsync(fileno(st.file)) != 0 ||
		rename(fresh, path) != 0)
		return errno != 0 ? -errno : -EIO;
	return 0;
}

/* A file's new name lasts when its folder does. */
static int
folder_sync(const char *path)
{
	char copy[PATH_MAX];
	int fd, rc = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Some file systems have nothing to sync there, and say so. */
	if (fsync(fd) != 0 && errno != EINVAL)
		rc = -errno;
	close(fd);
	return rc;
}

static uint32_t
version_of(const struct kv_snapshot *snap)
{
	return snap->key_min == 0 ? SNAPSHOT_VERSION : SNAPSHOT_VERSION_SIZES;
}

int64_t
kv_snapshot_write(const struct kv_snapshot *snap, const struct kv_store *s)
{
	struct head head = {.magic = SNAPSHOT_MAGIC,
		.version = version_of(snap),
		.key_size = snap->key_size,
		.key_min = snap->key_min,
		.key_mix = snap->key_mix,
		.owner = snap->owner,
		.owners = snap->owners,
		.newest = kv_store_version(s)};
	char path[PATH_MAX];
	int rc;

	name_of(snap, path);
	measure(s, &head);
	/* A child that wrote it and was killed after has given it its name: no byte may change. */
	rc = is_named(fileno(snap->fresh), path) ? 0 : file_write(snap, s, &head, path);
	if (rc != 0) {
		crpc_err("snapshot %s: cannot be written: %s; what was there before is unchanged",
			path, strerror(-rc));
		return rc;
	}
	rc = folder_sync(path);
	if (rc != 0) {
		crpc_err("snapshot %s: is written, but its folder cannot be synced: %s; it may be "
			 "missing after a power failure, so write it again",
			path, strerror(-rc));
		return rc;
	}
	return (int64_t)head.items;
}

/* The head: of this version, of this store, and of a file of this length. */
static int
head_check(const struct kv_snapshot *snap, const struct head *head, uint64_t bytes,
	const char *path)
{
	if (head->magic != SNAPSHOT_MAGIC) {
		crpc_err("snapshot %s: this is none", path);
		return -EBADMSG;
	}
	if (head->version != version_of(snap)) {
		crpc_err("snapshot %s: expected version %u, found %u; 2 is that of keys of "
			 "different sizes (--key-sizes)",
			path, version_of(snap), head->version);
		return -EPROTO;
	}
	if (head->bytes != bytes) {
		crpc_err("snapshot %s: expected %" PRIu64 " bytes, found %" PRIu64
			 ": was it cut short?",
			path, head->bytes, bytes);
		return -EBADMSG;
	}
	if (head->key_size != snap->key_size || head->key_min != snap->key_min ||
		head->key_mix != snap->key_mix || head->owner != snap->owner ||
		head->owners != snap->owners) {
		crpc_err("snapshot %s: expected keys of %u bytes (at least %u, mix %08x) and "
			 "daemon %u of %u, found %u (%u, %08x), %u of %u; start with the sizes and "
			 "numbers of the run that wrote it",
			path, snap->key_size, snap->key_min, snap->key_mix, snap->owner,
			snap->owners, head->key_size, head->key_min, head->key_mix, head->owner,
			head->owners);
		return -EXDEV;
	}
	return 0;
}

/* Sum up the whole file. */
static bool
is_whole(FILE *file, uint64_t bytes)
{
	struct stream st = {.file = file, .crc = UINT32_MAX};
	uint64_t left = bytes - sizeof(uint32_t);
	uint8_t buf[4096];
	uint32_t crc;

	rewind(file);
	for (; left != 0 && !st.bad; left -= crpc_min(left, sizeof(buf)))
		get(&st, buf, crpc_min(left, sizeof(buf)));
	return !st.bad && fread(&crc, 1, sizeof(crc), file) == sizeof(crc) && crc == st.crc;
}

/* The items of a file that is whole; their lengths are checked all the same. */
static int
items_get(struct stream *st, struct kv_store *s, const struct head *head, const char *path,
	uint8_t *value)
{
	uint8_t key[KV_KEY_STORED_MAX];
	struct kv_item it = {.key = key, .value = value};
	struct item item;
	uint64_t i;
	int rc;

	for (i = 0; i < head->items; i++) {
		get(st, &item, sizeof(item));
		if (st->bad || item.len > KV_VALUE_MAX) {
			crpc_err("snapshot %s: item %" PRIu64 " is not in order", path, i);
			return -EBADMSG;
		}
		get(st, key, kv_store_key_bytes(s));
		get(st, value, item.len);
		it.len = item.len;
		it.ttl_ms = item.ttl_ms;
		it.version = item.version;
		rc = st->bad ? -EBADMSG : kv_store_restore(s, &it);
		if (rc != 0) {
			crpc_err("snapshot %s: item %" PRIu64 " of %" PRIu64
				 ", with a value of %u bytes, does not fit: more --keys or a larger "
				 "--value-size is needed",
				path, i, head->items, item.len);
			return rc == -EINVAL ? -ENOSPC : rc;
		}
	}
	kv_store_version_raise(s, head->newest);
	return 0;
}

static int64_t
file_read(const struct kv_snapshot *snap, struct kv_store *s, FILE *file, const char *path)
{
	struct stream st = {.file = file};
	struct head head;
	uint8_t *value;
	long bytes;
	int rc;

	if (fseek(file, 0, SEEK_END) != 0)
		return -EIO;
	bytes = ftell(file);
	rewind(file);
	get(&st, &head, sizeof(head));
	if (st.bad || bytes < (long)(sizeof(head) + sizeof(uint32_t))) {
		crpc_err("snapshot %s: %ld bytes are none", path, bytes);
		return -EBADMSG;
	}
	rc = head_check(snap, &head, (uint64_t)bytes, path);
	if (rc != 0)
		return rc;
	if (!is_whole(file, (uint64_t)bytes)) {
		crpc_err("snapshot %s: its checksum is wrong: it was changed", path);
		return -EBADMSG;
	}
	if (fseek(file, sizeof(head), SEEK_SET) != 0)
		return -EIO;
	value = malloc(KV_VALUE_MAX);
	rc = value == NULL ? -ENOMEM : items_get(&st, s, &head, path, value);
	free(value);
	return rc == 0 ? (int64_t)head.items : rc;
}

int64_t
kv_snapshot_read(const struct kv_snapshot *snap, struct kv_store *s)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	FILE *file;
	int64_t rc;
	int fd;

	name_of(snap, path);
	fresh_name(snap, fresh);
	fd = fresh_lock(fresh, 0);
	if (fd == -EBUSY) {
		crpc_err("snapshot %s: a run writes a newer one now; wait for its end", path);
		return -EBUSY;
	}
	if (fd >= 0) {
		unlink(fresh);
		close(fd);
	}
	file = fopen(path, "rbe");
	if (file == NULL) {
		rc = -errno;
		crpc_err("snapshot %s: cannot be opened: %s", path, strerror(errno));
		return rc;
	}
	rc = file_read(snap, s, file, path);
	fclose(file);
	return rc;
}
