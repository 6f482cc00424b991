/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>
#include <stdlib.h>

#include "crpc_clock.h"
#include "crpc_ipc.h"
#include "crpc_kv.h"
#include "crpc_kv_blocks.h"
#include "crpc_log.h"

#define DEFAULT_TIMEOUT_US 2000000

struct crpc_kv {
	struct crpc_ipc_client *ipc;
	struct crpc_kv_blocks
		blocks; /* of values above CRPC_KV_VALUE_INLINE, if the service has them */
	struct kv_info info;
	uid_t trust_uid;
	uint8_t msg[CRPC_KV_REQ_MAX];
	uint8_t answer[CRPC_KV_RESP_MAX]; /* of a walk */
};

/* The answer to the first question: sizes that this library can work with. */
static int
info_take(struct kv_info *info, const uint8_t *answer, uint32_t len)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	if (kv_resp_read(answer, len, &hdr, &value) != 0 || hdr.status != CRPC_KV_OK ||
		hdr.value_len != sizeof(*info))
		return crpc_fail(-EPROTO, "what answers is no key-value service of this version");
	memcpy(info, value, sizeof(*info));
	if (info->key_size < CRPC_KV_KEY_MIN || info->key_size > CRPC_KV_KEY_MAX ||
		info->value_size < CRPC_KV_VALUE_MIN || info->value_size > CRPC_KV_VALUE_MAX)
		return crpc_fail(-EPROTO,
			"the service says that keys have %u bytes, expected %u to %u, and values "
			"up to %u, expected %u to %u",
			info->key_size, CRPC_KV_KEY_MIN, CRPC_KV_KEY_MAX, info->value_size,
			CRPC_KV_VALUE_MIN, CRPC_KV_VALUE_MAX);
	if (info->daemons - 1 >= CRPC_KV_DAEMONS_MAX ||
		info->ranks - 1 >= CRPC_KV_OWNERS_MAX / info->daemons ||
		info->daemon >= info->daemons || info->rank >= info->ranks)
		return crpc_fail(-EPROTO,
			"the service says that it is daemon %u of %u of rank %u of %u, expected 1 to "
			"%u daemons of each rank and %u of all",
			info->daemon, info->daemons, info->rank, info->ranks, CRPC_KV_DAEMONS_MAX,
			CRPC_KV_OWNERS_MAX);
	return 0;
}

int
crpc_kv_info_ask(
	struct crpc_ipc_client *c, uid_t trust_uid, uint64_t timeout_us, struct kv_info *info)
{
	uint8_t msg[sizeof(struct kv_resp_hdr) + sizeof(*info)];
	uint32_t len = kv_req_write(msg, CRPC_KV_INFO, 0, 0);
	int rc = crpc_kv_owner_check(crpc_ipc_client_owner_uid(c), trust_uid);

	if (rc == 0)
		rc = crpc_ipc_client_call_sync(
			c, crpc_clock_ns(), msg, len, msg, sizeof(msg), timeout_us);
	return rc < 0 ? rc : info_take(info, msg, (uint32_t)rc);
}

static int
info_ask(struct crpc_kv *kv)
{
	return crpc_kv_info_ask(kv->ipc, kv->trust_uid, 0, &kv->info);
}

/* Connect; and again with the blocks of large values, once the service is known to have them. */
static int
connect_all(struct crpc_kv *kv, struct crpc_ipc_client_conf *conf)
{
	int rc;

	kv->ipc = crpc_ipc_client_connect(conf);
	rc = kv->ipc == NULL ? -errno : info_ask(kv);
	if (rc != 0 || kv->info.value_size <= CRPC_KV_VALUE_INLINE)
		return rc;
	crpc_ipc_client_close(kv->ipc);
	kv->ipc = NULL;
	rc = crpc_kv_blocks_attach(
		&kv->blocks, conf->dir, conf->name, conf->timeout_ms, kv->trust_uid);
	if (rc != 0) /* A service that begins again now is not there yet. */
		return rc == -EAGAIN ? -ECONNREFUSED : rc;
	conf->arena = kv->blocks.cache;
	kv->ipc = crpc_ipc_client_connect(conf);
	return kv->ipc == NULL ? -errno : info_ask(kv); /* for a writer id of this connection */
}

struct crpc_kv *
crpc_kv_connect(const struct crpc_kv_conf *conf)
{
	struct crpc_ipc_client_conf ipc = {
		.name = conf->name,
		.dir = conf->dir,
		.timeout_ms = conf->connect_ms,
		.call_timeout_us = conf->call_timeout_us,
	};
	struct crpc_kv *kv = calloc(1, sizeof(*kv));
	int rc;

	if (kv == NULL)
		return NULL;
	kv->trust_uid = conf->trust_uid;
	crpc_clock_init();
	if (ipc.call_timeout_us == 0)
		ipc.call_timeout_us = DEFAULT_TIMEOUT_US;
	rc = connect_all(kv, &ipc);
	if (rc == 0)
		return kv;
	crpc_kv_close(kv);
	return crpc_null(rc);
}

void
crpc_kv_close(struct crpc_kv *kv)
{
	if (kv == NULL)
		return;
	crpc_ipc_client_close(kv->ipc);
	crpc_kv_blocks_close(&kv->blocks);
	free(kv);
}

const struct kv_info *
crpc_kv_info(const struct crpc_kv *kv)
{
	return &kv->info;
}

uint32_t
crpc_kv_owners(const struct crpc_kv *kv)
{
	return kv->info.ranks * kv->info.daemons;
}

uint32_t
crpc_kv_depth(const struct crpc_kv *kv)
{
	return crpc_ipc_client_depth(kv->ipc);
}

/* Send a request that stands in a block. */
static int
send_block(struct crpc_kv *kv, uint64_t ref, uint64_t len, uint64_t cookie)
{
	int rc = crpc_ipc_client_call_ref(kv->ipc, crpc_clock_ns(), ref, &len, sizeof(len),
		crpc_ipc_client_resp_max(kv->ipc), cookie);

	if (rc != 0)
		crpc_arena_free(kv->blocks.cache, ref);
	return rc;
}

/* Write a request and send it. */
static int
ask(struct crpc_kv *kv, enum kv_op op, const void *key, const void *value, uint32_t value_len,
	const struct crpc_kv_how *how, uint64_t cookie)
{
	static const struct crpc_kv_how plain;
	uint8_t *msg = kv->msg;
	uint32_t flags, len;
	uint64_t ref = 0;

	how = how != NULL ? how : &plain;
	if (how->ttl_ms > CRPC_KV_TTL_MAX_MS)
		return -EINVAL;
	flags = (how->if_version ? CRPC_KV_EXPECT : 0) | (how->ttl_ms != 0 ? CRPC_KV_TTL : 0);
	if (value_len > CRPC_KV_VALUE_INLINE)
		msg = crpc_arena_alloc(kv->blocks.cache,
			sizeof(struct kv_req_hdr) + kv->info.key_size + CRPC_KV_EXTRAS_MAX +
				value_len,
			&ref);
	if (msg == NULL)
		return crpc_ipc_client_open(kv->ipc) != 0 ? -EAGAIN : -ENOSPC;
	len = kv_req_write_with(
		msg, op, kv->info.key_size, value_len, flags, how->version, how->ttl_ms);
	memcpy(msg + sizeof(struct kv_req_hdr), key, kv->info.key_size);
	if (value_len != 0)
		memcpy(msg + len - value_len, value, value_len);
	if (ref != 0)
		return send_block(kv, ref, len, cookie);
	return crpc_ipc_client_call(
		kv->ipc, crpc_clock_ns(), kv->msg, len, crpc_ipc_client_resp_max(kv->ipc), cookie);
}

int
crpc_kv_get(struct crpc_kv *kv, const void *key, uint64_t cookie)
{
	return ask(kv, CRPC_KV_GET, key, NULL, 0, NULL, cookie);
}

int
crpc_kv_put(struct crpc_kv *kv, const void *key, const void *value, uint32_t len,
	const struct crpc_kv_how *how, uint64_t cookie)
{
	if (len < CRPC_KV_VALUE_MIN || len > kv->info.value_size)
		return -EINVAL;
	return ask(kv, CRPC_KV_PUT, key, value, len, how, cookie);
}

int
crpc_kv_delete(struct crpc_kv *kv, const void *key, const struct crpc_kv_how *how, uint64_t cookie)
{
	if (how != NULL && how->ttl_ms != 0)
		return -EINVAL;
	return ask(kv, CRPC_KV_DELETE, key, NULL, 0, how, cookie);
}

static int32_t
status_of(uint8_t status)
{
	static const int32_t errnos[] = {
		[CRPC_KV_NOT_FOUND] = -ENOENT,
		[CRPC_KV_BAD_REQUEST] = -EINVAL,
		[CRPC_KV_NO_SPACE] = -ENOSPC,
		[CRPC_KV_MISMATCH] = -ESTALE,
	};

	return status < CRPC_DIM(errnos) ? errnos[status] : -EPROTO;
}

static void
done_take(const struct crpc_kv *kv, struct crpc_kv_done *to, const struct crpc_done *from)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	*to = (struct crpc_kv_done){.cookie = from->cookie, .status = from->status};
	if (from->status != 0)
		return;
	/* Callers have room for the values that the service has, and no more. */
	if (kv_resp_read(from->data, from->len, &hdr, &value) != 0 ||
		hdr.value_len > kv->info.value_size) {
		to->status = -EPROTO;
		return;
	}
	to->status = status_of(hdr.status);
	to->version = hdr.version;
	to->len = hdr.value_len;
	to->value = hdr.value_len != 0 ? value : NULL;
}

uint16_t
crpc_kv_poll(struct crpc_kv *kv, struct crpc_kv_done *done, uint16_t n)
{
	struct crpc_done ipc[CRPC_BURST_MAX];
	uint16_t k = crpc_ipc_client_poll(
		kv->ipc, crpc_clock_ns(), ipc, (uint16_t)crpc_min(n, CRPC_BURST_MAX));

	if (kv->blocks.cache != NULL)
		crpc_kv_blocks_answers(kv->ipc, ipc, k);
	for (uint16_t i = 0; i < k; i++)
		done_take(kv, &done[i], &ipc[i]);
	return k;
}

int
crpc_kv_wait(struct crpc_kv *kv, struct crpc_kv_done *done)
{
	while (crpc_kv_poll(kv, done, 1) == 0) {
		if (crpc_ipc_client_open(kv->ipc) == 0)
			return -EINVAL;
		sched_yield();
	}
	return done->status;
}

/*
 * One step of a walk: ask an owner for n units, and take the answer apart. A cursor only rises, so
 * every walk ends. @return how many units, or -errno.
 */
static int
walk_step(struct crpc_kv *kv, enum kv_op op, uint32_t owner, uint32_t unit, uint64_t n,
	uint64_t *cursor, const uint8_t **value)
{
	uint32_t room = (uint32_t)crpc_min(
		sizeof(struct kv_resp_hdr) + n * unit, crpc_ipc_client_resp_max(kv->ipc));
	uint32_t len = kv_walk_write(kv->msg, op, owner, room, *cursor);
	struct kv_resp_hdr hdr;
	int rc;

	rc = crpc_ipc_client_call_sync(
		kv->ipc, crpc_clock_ns(), kv->msg, len, kv->answer, sizeof(kv->answer), 0);
	if (rc < 0)
		return rc;
	if (kv_resp_read(kv->answer, (uint32_t)rc, &hdr, value) != 0)
		return -EPROTO;
	if (hdr.status == CRPC_KV_BAD_REQUEST)
		return -EOPNOTSUPP;
	if (hdr.status != CRPC_KV_OK || hdr.value_len % unit != 0 || (uint32_t)rc > room ||
		(hdr.version != 0 && hdr.version <= *cursor))
		return -EPROTO;
	*cursor = hdr.version;
	return (int)(hdr.value_len / unit);
}

int
crpc_kv_scan(struct crpc_kv *kv, struct crpc_kv_scan *at, struct crpc_kv_item *item, uint16_t n)
{
	uint32_t unit = (uint32_t)sizeof(struct kv_scan_item) + kv->info.key_size;
	uint64_t next = at->next;
	struct kv_scan_item wire;
	const uint8_t *from;
	int k;

	if (n == 0 || at->owner >= crpc_kv_owners(kv))
		return 0;
	k = walk_step(kv, CRPC_KV_SCAN, at->owner, unit, n, &next, &from);
	if (k < 0)
		return k;
	for (int i = 0; i < k; i++, from += unit) {
		memcpy(&wire, from, sizeof(wire));
		item[i] = (struct crpc_kv_item){
			.key = from + sizeof(wire),
			.version = wire.version,
			.value_len = wire.value_len,
			.ttl_ms = wire.ttl_ms,
		};
	}
	*at = (struct crpc_kv_scan){.owner = at->owner + (next == 0), .next = next};
	return k;
}

int
crpc_kv_stats(struct crpc_kv *kv, uint32_t owner, uint64_t stat[CRPC_KV_STATS_N])
{
	const uint8_t *value;
	uint64_t cursor = 0;
	uint32_t at = 0;
	int k;

	if (owner >= crpc_kv_owners(kv))
		return -EINVAL;
	memset(stat, 0, CRPC_KV_STATS_N * sizeof(stat[0]));
	do {
		k = walk_step(kv, CRPC_KV_STATS, owner, sizeof(stat[0]), CRPC_KV_STATS_N - at,
			&cursor, &value);
		if (k <= 0)
			return k < 0 ? k : -EPROTO;
		memcpy(stat + at, value, (size_t)k * sizeof(stat[0]));
		at += (uint32_t)k;
	} while (cursor != 0 && at < CRPC_KV_STATS_N);
	return 0;
}
