/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_hash_crc.h>

#include "crpc_file.h"
#include "crpc_log.h"
#include "kv_snapshot.h"

#define SNAPSHOT_MAGIC   UINT64_C(0x5453564b43505243) /* "CRPCKVST" */
#define SNAPSHOT_VERSION 1u

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
	uint64_t zero;
	uint64_t generation;
};
_Static_assert(sizeof(struct head) == 64, "file format");

/* Head of an item; the key and the value follow. */
struct item {
	uint64_t version;
	uint32_t len;
	uint32_t ttl_ms;
};
_Static_assert(sizeof(struct item) == 16, "file format");

/* A file with a newer version is refused: further versions would come near their wrap. */
#define VERSION_MAX (UINT64_MAX >> 1)

/* Bytes that copy() leaves in memory for write(). */
#define BUFFER_BYTES (2u << 20)

/* Its place, and beside it. */
static void
names_make(struct kv_snapshot *snap)
{
	snprintf(snap->name, sizeof(snap->name), "%s.%u", snap->path, snap->owner);
	snprintf(snap->fresh_name, sizeof(snap->fresh_name), "%s.%u.new", snap->path, snap->owner);
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
	struct stat st;
	int fd, rc;

	for (int tries = 0; tries < 10; tries++) {
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
		if (is_named(fd, fresh)) {
			if (__crpc_file_is_private(fd))
				return fd;
			unlink(fresh); /* Another user's, or it has another name, too. */
		}
		close(fd);
	}
	return -EAGAIN;
}

/* Whether a run that is alive wrote the file: its lock stays when the file is renamed. */
static bool
is_in_use(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool in_use = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;

	if (fd >= 0)
		close(fd);
	return in_use;
}

int
__crpc_kv_snapshot_claim(struct kv_snapshot *snap)
{
	const char *fresh = snap->fresh_name;
	int fd, rc = 0;

	names_make(snap);
	/* What was copied before a failure is too old for the next one, but may be committed. */
	snap->begun = false;
	snap->claimed = true;
	if (snap->fresh != NULL && is_named(fileno(snap->fresh), fresh))
		return 0;
	fd = fresh_lock(fresh, O_CREAT);
	if (fd >= 0 && snap->fresh == NULL && is_in_use(snap->name)) {
		unlink(fresh);
		close(fd);
		fd = -EAGAIN;
	}
	if (fd == -EBUSY || fd == -EAGAIN)
		return crpc_fail(fd == -EBUSY ? -EINPROGRESS : -EBUSY,
			"snapshot %s: another run has it and is alive; wait for its end or give "
			"another path",
			snap->name);
	snap->copied = false;
	/* The lock of the file before ends only now, when the new one has one. */
	__crpc_kv_snapshot_release(snap);
	if (fd < 0 || ftruncate(fd, 0) != 0)
		rc = fd < 0 ? fd : -errno;
	snap->fresh = rc == 0 ? fdopen(fd, "wbe") : NULL;
	if (snap->fresh != NULL) {
		snap->buffer = malloc(BUFFER_BYTES);
		if (snap->buffer != NULL) /* Without it copy() waits for the disk. */
			setvbuf(snap->fresh, snap->buffer, _IOFBF, BUFFER_BYTES);
		return 0;
	}
	rc = rc == 0 ? -errno : rc;
	crpc_err("snapshot %s: %s cannot be made: %s", snap->name, fresh, strerror(-rc));
	if (fd >= 0)
		close(fd);
	return rc;
}

void
__crpc_kv_snapshot_release(struct kv_snapshot *snap)
{
	if (snap->fresh == NULL)
		return;
	if (is_named(fileno(snap->fresh), snap->fresh_name))
		unlink(snap->fresh_name);
	fclose(snap->fresh);
	free(snap->buffer);
	snap->fresh = NULL;
}

/* Sum up the first bytes of a file. A forked child may: it takes no lock. */
static bool
file_sum(int fd, uint64_t bytes, uint32_t *crc)
{
	uint8_t buf[16384];
	uint64_t at = 0;
	ssize_t n;

	for (*crc = UINT32_MAX; at < bytes; at += (uint64_t)n) {
		n = pread(fd, buf, crpc_min(bytes - at, sizeof(buf)), (off_t)at);
		if (n <= 0)
			return false;
		*crc = rte_hash_crc(buf, (uint32_t)n, *crc);
	}
	return true;
}

/* An empty file with room for the head. */
static int
file_begin(struct kv_snapshot *snap)
{
	static const struct head none;

	if (!is_named(fileno(snap->fresh),
		    snap->fresh_name)) /* It was removed, or is another run's. */
		return -ENOENT;
	__fpurge(snap->fresh); /* What a full disk did not take. */
	rewind(snap->fresh);
	snap->at = 0;
	snap->items = 0;
	snap->bytes = sizeof(none) + sizeof(uint32_t);
	if (ftruncate(fileno(snap->fresh), 0) != 0 ||
		fwrite(&none, sizeof(none), 1, snap->fresh) != 1)
		return -errno;
	return 0;
}

/* @return 1: there are more places, 0, or -errno. */
static int
items_put(struct kv_snapshot *snap, const struct kv_store *s, uint32_t places)
{
	struct kv_item it;
	struct item head;
	int found = 0;
	bool young;

	errno = EIO;
	for (; places != 0 && found >= 0; places--) {
		found = __crpc_kv_store_slot(s, snap->at, &it);
		young = __crpc_kv_store_young(s, snap->at++);
		if (found <= 0 || young)
			continue;
		head = (struct item){.version = it.version, .len = it.len, .ttl_ms = it.ttl_ms};
		if (fwrite(&head, sizeof(head), 1, snap->fresh) != 1 ||
			fwrite(it.key, snap->key_size, 1, snap->fresh) != 1 ||
			(it.len != 0 && fwrite(it.value, it.len, 1, snap->fresh) != 1))
			return -errno;
		snap->items++;
		snap->bytes += sizeof(head) + snap->key_size + it.len;
	}
	return found >= 0;
}

/* For reading; NULL and errno. A pipe does not make it wait. */
static FILE *
file_open(const char *path)
{
	int fd = __crpc_file_open(path);

	if (fd < 0)
		errno = -fd;
	return fd < 0 ? NULL : fdopen(fd, "rb");
}

/* Of the file that is there; 0: there is none. Files of before there were generations have 1. */
static uint64_t
generation_of(const char *path)
{
	FILE *file = file_open(path);
	struct head head = {0};

	if (file == NULL)
		return 0;
	if (fread(&head, sizeof(head), 1, file) != 1 || head.magic != SNAPSHOT_MAGIC)
		head.generation = 0;
	fclose(file);
	return crpc_min(crpc_max(head.generation, 1u), UINT64_MAX - 1);
}

static int
fail_write(const struct kv_snapshot *snap, int rc)
{
	return crpc_fail(rc,
		"snapshot %s.%u: cannot be written: %s; what was there before is unchanged",
		snap->path, snap->owner, strerror(-rc));
}

static int
begin(struct kv_snapshot *snap)
{
	/* A child wrote it, gave it its name and was killed after: no byte may change. */
	snap->copied = is_named(fileno(snap->fresh), snap->name);
	snap->generation = generation_of(snap->name) + !snap->copied;
	snap->begun = true;
	snap->claimed = false;
	return snap->copied ? 0 : file_begin(snap);
}

int
__crpc_kv_snapshot_write(struct kv_snapshot *snap)
{
	int rc = 0;

	if (snap->fresh == NULL)
		return fail_write(snap, -ENOENT);
	if (!snap->begun && (!snap->copied || snap->claimed))
		rc = begin(snap);
	else if (fflush(snap->fresh) != 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	snap->begun = snap->copied = false;
	return fail_write(snap, rc);
}

int64_t
__crpc_kv_snapshot_copy(struct kv_snapshot *snap, struct kv_store *s, uint32_t places)
{
	int rc = 0;

	if (snap->fresh == NULL)
		return fail_write(snap, -ENOENT);
	if (!snap->begun)
		rc = begin(snap);
	if (rc == 0 && !snap->copied && snap->at == 0)
		__crpc_kv_store_copying(s, true);
	if (rc == 0 && !snap->copied)
		rc = items_put(snap, s, places);
	if (rc > 0)
		return -EAGAIN;
	__crpc_kv_store_copying(s, false);
	snap->begun = false;
	if (rc != 0)
		return fail_write(snap, rc);
	if (snap->copied)
		return __crpc_kv_store_count(s);
	snap->newest = __crpc_kv_store_version(s);
	snap->copied = true;
	return (int64_t)snap->items;
}

/* What was not known before, and the sum of what is in the file, which clients cannot change. */
static int
file_end(const struct kv_snapshot *snap)
{
	const struct head head = {.magic = SNAPSHOT_MAGIC,
		.version = SNAPSHOT_VERSION,
		.key_size = snap->key_size,
		.owner = snap->owner,
		.owners = snap->owners,
		.items = snap->items,
		.newest = snap->newest,
		.bytes = snap->bytes,
		.generation = snap->generation};
	int fd = fileno(snap->fresh);
	off_t end = (off_t)(snap->bytes - sizeof(uint32_t));
	uint32_t crc;

	errno = EIO;
	if (fflush(snap->fresh) != 0 ||
		pwrite(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
		!file_sum(fd, (uint64_t)end, &crc) ||
		pwrite(fd, &crc, sizeof(crc), end) != (ssize_t)sizeof(crc) || fsync(fd) != 0)
		return -errno;
	return 0;
}

/* Make it lasting, and only then let it take the place of what was there. */
int
__crpc_kv_snapshot_commit(struct kv_snapshot *snap)
{
	const char *path = snap->name, *fresh = snap->fresh_name;
	int rc = 0;

	if (snap->fresh == NULL || !snap->copied)
		return fail_write(snap, -ENOENT);
	if (!is_named(fileno(snap->fresh), path)) {
		rc = file_end(snap);
		/* Meanwhile another run may have claimed the name. */
		if (rc == 0 && !is_named(fileno(snap->fresh), fresh))
			rc = -ENOENT;
		if (rc == 0 && rename(fresh, path) != 0)
			rc = -errno;
		if (rc != 0)
			return fail_write(snap, rc);
	}
	rc = __crpc_folder_sync(path);
	if (rc == 0)
		return 0;
	return crpc_fail(rc,
		"snapshot %s: is written, but its folder cannot be synced: %s; it may be "
		"missing after a power failure, so write it again",
		path, strerror(-rc));
}

/* The head: of this version, of this store, and of a file of this length. */
static int
head_check(const struct kv_snapshot *snap, const struct head *head, uint64_t bytes)
{
	const char *path = snap->name;

	if (head->magic != SNAPSHOT_MAGIC)
		return crpc_fail(-EBADMSG, "snapshot %s: this is none", path);
	if (head->version != SNAPSHOT_VERSION)
		return crpc_fail(-EPROTO, "snapshot %s: expected version %u, found %u", path,
			SNAPSHOT_VERSION, head->version);
	if (head->bytes != bytes)
		return crpc_fail(-EBADMSG,
			"snapshot %s: expected %" PRIu64 " bytes, found %" PRIu64
			": was it cut short?",
			path, head->bytes, bytes);
	if (head->newest > VERSION_MAX)
		return crpc_fail(-EBADMSG,
			"snapshot %s: expected a newest version of at most %" PRIu64
			", found %" PRIu64,
			path, VERSION_MAX, head->newest);
	if (head->key_size != snap->key_size || head->owner != snap->owner ||
		head->owners != snap->owners)
		return crpc_fail(-EXDEV,
			"snapshot %s: expected keys of %u bytes and daemon %u of %u, found %u, %u "
			"of %u; start with the sizes and numbers of the run that wrote it",
			path, snap->key_size, snap->owner, snap->owners, head->key_size,
			head->owner, head->owners);
	return 0;
}

static bool
is_whole(int fd, uint64_t bytes)
{
	uint32_t sum, crc;

	bytes -= sizeof(crc);
	return file_sum(fd, bytes, &sum) &&
		pread(fd, &crc, sizeof(crc), (off_t)bytes) == (ssize_t)sizeof(crc) && crc == sum;
}

static bool
is_of_owner(const struct head *head, const struct kv_item *it)
{
	return it->version != 0 && it->version <= head->newest &&
		kv_owner(kv_hash(it->key, head->key_size), head->owners) == head->owner;
}

/* The items of a file that is whole; what they say is checked all the same. */
static int
items_get(FILE *file, struct kv_store *s, const struct head *head, const char *path, uint8_t *value)
{
	uint8_t key[CRPC_KV_KEY_MAX];
	struct kv_item it = {.key = key, .value = value};
	struct item item;
	int rc;

	for (uint64_t i = 0; i < head->items; i++) {
		if (fread(&item, sizeof(item), 1, file) != 1 || item.len < CRPC_KV_VALUE_MIN ||
			item.len > CRPC_KV_VALUE_MAX || fread(key, head->key_size, 1, file) != 1 ||
			fread(value, item.len, 1, file) != 1)
			return crpc_fail(-EBADMSG,
				"snapshot %s: item %" PRIu64 " of %" PRIu64 " is not in order",
				path, i, head->items);
		it.len = item.len;
		it.ttl_ms = item.ttl_ms;
		it.version = item.version;
		rc = is_of_owner(head, &it) ? __crpc_kv_store_restore(s, &it) : -EINVAL;
		if (rc == -EINVAL)
			return crpc_fail(-EBADMSG,
				"snapshot %s: item %" PRIu64 " of %" PRIu64
				": expected a well-formed key of daemon %u that is there once, "
				"and a version from 1 to %" PRIu64 "; found version %" PRIu64,
				path, i, head->items, head->owner, head->newest, it.version);
		if (rc != 0)
			return crpc_fail(-ENOSPC,
				"snapshot %s: item %" PRIu64 " of %" PRIu64
				", with a value of %u bytes, does not fit: a larger conf.capacity "
				"or conf.value_max is needed",
				path, i, head->items, item.len);
	}
	if (ftell(file) + (long)sizeof(uint32_t) != (long)head->bytes)
		return crpc_fail(-EBADMSG, "snapshot %s: more follows its %" PRIu64 " items", path,
			head->items);
	__crpc_kv_store_version_raise(s, head->newest);
	return 0;
}

static int64_t
file_read(struct kv_snapshot *snap, struct kv_store *s, FILE *file)
{
	const char *path = snap->name;
	struct head head;
	struct stat st;
	uint64_t bytes;
	uint8_t *value;
	int rc;

	if (fstat(fileno(file), &st) != 0)
		return -errno;
	bytes = (uint64_t)st.st_size;
	if (fread(&head, sizeof(head), 1, file) != 1 || bytes < sizeof(head) + sizeof(uint32_t))
		return crpc_fail(
			-EBADMSG, "snapshot %s: %" PRIu64 " bytes are none", path, bytes);
	rc = head_check(snap, &head, bytes);
	if (rc != 0)
		return rc;
	/* Read beside the stream, which continues behind the head. */
	if (!is_whole(fileno(file), bytes))
		return crpc_fail(
			-EBADMSG, "snapshot %s: its checksum is wrong: it was changed", path);
	snap->generation = crpc_max(head.generation, 1u);
	value = malloc(CRPC_KV_VALUE_MAX);
	rc = value == NULL ? -ENOMEM : items_get(file, s, &head, path, value);
	free(value);
	return rc == 0 ? (int64_t)head.items : rc;
}

int64_t
__crpc_kv_snapshot_read(struct kv_snapshot *snap, struct kv_store *s)
{
	const char *path = snap->name;
	FILE *file;
	int64_t rc;
	int fd;

	names_make(snap);
	fd = fresh_lock(snap->fresh_name, 0);
	if (fd == -EBUSY)
		return crpc_fail(-EBUSY,
			"snapshot %s: a run writes a newer one now; wait for its end", path);
	if (fd >= 0) {
		unlink(snap->fresh_name);
		close(fd);
	}
	file = file_open(path);
	if (file == NULL) {
		rc = -errno;
		if (rc != -ENOENT) /* Whether one must be there is the caller's to know. */
			crpc_err("snapshot %s: cannot be opened: %s; expected a regular file "
				 "of this user or of root that no other can write",
				path, strerror(-(int)rc));
		return rc;
	}
	rc = file_read(snap, s, file);
	fclose(file);
	return rc;
}
