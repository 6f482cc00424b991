/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a key-value daemon and its clients are sent, and the files a daemon is started from. A
 * request or a response is taken apart within its bytes or refused, and what was taken apart says
 * what its bytes say. A snapshot fills a store with items of allowed sizes, or is refused.
 *
 * Input: a byte that says which, then the message, or the file behind its head's constants.
 */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_hash_crc.h>

#include "crpc_kv_proto.h"
#include "fuzz.h"
#include "fuzz_dir.h"
#include "kv_snapshot.h"

#define MAGIC    UINT64_C(0x5453564b43505243)
#define KEY_SIZE 16u
#define ITEMS    64u

enum {
	REQUEST,
	RESPONSE,
	SNAPSHOT,     /* With a head, a length and a checksum that are right. */
	SNAPSHOT_AS_IT_IS,
	KINDS,
};

static void
request(const uint8_t *data, size_t size)
{
	uint8_t again[CRPC_KV_REQ_MAX - CRPC_KV_VALUE_INLINE + CRPC_KV_VALUE_MAX];
	struct kv_req req = {0};
	struct kv_walk walk;
	uint32_t len;

	if (crpc_kv_walk_read(data, (uint32_t)size, &walk) != 0)
		fuzz_check(size == sizeof(struct kv_req_hdr) + sizeof(walk) &&
			walk.room >= sizeof(struct kv_resp_hdr) && walk.room <= CRPC_KV_RESP_MAX);
	if (kv_req_read(data, (uint32_t)size, &req) != 0)
		return;
	fuzz_check(req.key_len <= CRPC_KV_KEY_MAX && req.value_len <= CRPC_KV_VALUE_MAX);
	fuzz_check(req.key >= data && req.key + req.key_len <= data + size);
	fuzz_check(req.value >= data && req.value + req.value_len == data + size);
	if ((req.flags & CRPC_KV_TTL) != 0)
		fuzz_check(req.extras.ttl_ms != 0 && req.extras.ttl_ms <= CRPC_KV_TTL_MAX_MS);
	if (req.key_len >= CRPC_KV_KEY_MIN)
		(void)kv_hash(req.key, req.key_len);
	len = kv_req_write_with(again, (enum kv_op)req.op, req.key_len, req.value_len, req.flags,
		req.flags != 0 ? req.extras.expect : 0, req.flags != 0 ? req.extras.ttl_ms : 0);
	fuzz_check(len == size);
	memcpy(again + sizeof(struct kv_req_hdr), req.key, req.key_len);
	memcpy(again + len - req.value_len, req.value, req.value_len);
	fuzz_check(memcmp(again, data, size) == 0);
}

static void
response(const uint8_t *data, size_t size)
{
	const uint8_t *value = NULL;
	struct kv_resp_hdr hdr;

	if (kv_resp_read(data, (uint32_t)size, &hdr, &value) != 0)
		return;
	fuzz_check(hdr.value_len <= CRPC_KV_VALUE_MAX);
	fuzz_check(value == data + sizeof(hdr) && value + hdr.value_len == data + size);
}

/* ---- a store that only counts ---- */

static uint32_t items;
static uint64_t newest;

int
__crpc_kv_store_restore(struct kv_store *s, const struct kv_item *item)
{
	const uint8_t *value = item->value, *key = item->key;
	uint32_t i, sum = 0;

	(void)s;
	fuzz_check(item->len <= CRPC_KV_VALUE_MAX);
	for (i = 0; i < item->len; i++)
		sum += value[i];
	for (i = 0; i < KEY_SIZE; i++)
		sum += key[i];
	if (items == ITEMS || sum == 1)
		return -ENOSPC;
	items++;
	return 0;
}

void
__crpc_kv_store_copying(struct kv_store *s, bool copying)
{
	(void)s;
	(void)copying;
}

bool
__crpc_kv_store_young(const struct kv_store *s, uint32_t at)
{
	(void)s;
	(void)at;
	return false;
}

int
__crpc_kv_store_slot(const struct kv_store *s, uint32_t at, struct kv_item *item)
{
	(void)s, (void)at, (void)item;
	return -ENOENT;
}

uint32_t
__crpc_kv_store_count(const struct kv_store *s)
{
	(void)s;
	return items;
}

uint64_t
__crpc_kv_store_version(const struct kv_store *s)
{
	(void)s;
	return newest;
}

void
__crpc_kv_store_version_raise(struct kv_store *s, uint64_t version)
{
	(void)s;
	newest = version;
}

/* ---- snapshots ---- */

struct head {
	uint64_t magic;
	uint32_t version, key_size, owner, owners;
	uint64_t items, newest, bytes, zero[2];
};

/* The head's constants and the checksum, so that the items behind them are reached. */
static size_t
mend(uint8_t *file, size_t size)
{
	struct head head;
	uint32_t crc;

	if (size < sizeof(head))
		return size;
	memcpy(&head, file, sizeof(head));
	head.magic = MAGIC;
	head.version = 1;
	head.key_size = KEY_SIZE;
	head.owner = 1;
	head.owners = 2;
	head.bytes = size + sizeof(crc);
	memcpy(file, &head, sizeof(head));
	crc = rte_hash_crc(file, (uint32_t)size, UINT32_MAX);
	memcpy(file + size, &crc, sizeof(crc));
	return size + sizeof(crc);
}

static void
snapshot(uint8_t *file, size_t size)
{
	struct kv_snapshot snap = {.owner = 1, .owners = 2, .key_size = KEY_SIZE};
	char path[PATH_MAX], name[PATH_MAX];
	int64_t rc;
	FILE *f;

	if (dir[0] == '\0') {
		fuzz_dir_make("fuzz_kv.");
		umask(022); /* A file that others can write is refused. */
	}
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(name, sizeof(name), "%s/s.1", dir);
	f = fopen(name, "wb");
	fuzz_check(f != NULL && fwrite(file, 1, size, f) == size && fclose(f) == 0);
	snap.path = path;
	items = 0;
	rc = __crpc_kv_snapshot_read(&snap, NULL);
	fuzz_check(rc == items || rc == -EBADMSG || rc == -EPROTO || rc == -EXDEV ||
		rc == -ENOSPC);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[(1u << 16) + 64];

	if (size == 0 || size > 1u << 16)
		return 0;
	memcpy(file, data + 1, size - 1);
	switch (data[0] % KINDS) {
	case REQUEST:
		request(data + 1, size - 1);
		break;
	case RESPONSE:
		response(data + 1, size - 1);
		break;
	case SNAPSHOT:
		snapshot(file, mend(file, size - 1));
		break;
	default:
		snapshot(file, size - 1);
	}
	return 0;
}
