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
	struct crpc_kv_blocks blocks; /* of values above KV_VALUE_INLINE, if the service has them */
	struct kv_info info;
	uint8_t msg[KV_REQ_MAX];
};

/* The answer to the first question: sizes that this library can work with. */
static int
info_take(struct crpc_kv *kv, const uint8_t *answer, uint32_t len)
{
	struct kv_resp_hdr hdr;
	const uint8_t *value;

	if (kv_resp_read(answer, len, &hdr, &value) != 0 || hdr.status != KV_OK ||
		hdr.value_len != sizeof(kv->info)) {
		crpc_err("what answers is no key-value service of this version");
		return -EPROTO;
	}
	memcpy(&kv->info, value, sizeof(kv->info));
	if (kv->info.key_size < KV_KEY_MIN || kv->info.key_size > KV_KEY_MAX ||
		kv->info.value_size < KV_VALUE_MIN || kv->info.value_size > KV_VALUE_MAX) {
		crpc_err("the service says that keys have %u bytes, expected %u to %u, and values "
			 "up to %u, expected %u to %u",
			kv->info.key_size, KV_KEY_MIN, KV_KEY_MAX, kv->info.value_size,
			KV_VALUE_MIN, KV_VALUE_MAX);
		return -EPROTO;
	}
	return 0;
}

static int
info_ask(struct crpc_kv *kv)
{
	uint8_t answer[sizeof(struct kv_resp_hdr) + sizeof(struct kv_info)];
	uint32_t len = kv_req_write(kv->msg, KV_INFO, 0, 0);
	int rc = crpc_kv_owner_check(crpc_ipc_client_owner_uid(kv->ipc));

	if (rc == 0)
		rc = crpc_ipc_client_call_sync(
			kv->ipc, crpc_clock_ns(), kv->msg, len, answer, sizeof(answer), 0);
	return rc < 0 ? rc : info_take(kv, answer, (uint32_t)rc);
}

/* Connect; and again with the blocks of large values, once the service is known to have them. */
static int
connect_all(struct crpc_kv *kv, struct crpc_ipc_client_conf *conf)
{
	int rc;

	kv->ipc = crpc_ipc_client_connect(conf);
	rc = kv->ipc == NULL ? -errno : info_ask(kv);
	if (rc != 0 || kv->info.value_size <= KV_VALUE_INLINE)
		return rc;
	crpc_ipc_client_close(kv->ipc);
	kv->ipc = NULL;
	rc = crpc_kv_blocks_attach(&kv->blocks, conf->dir, conf->name, conf->timeout_ms);
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
	crpc_clock_init();
	if (ipc.call_timeout_us == 0)
		ipc.call_timeout_us = DEFAULT_TIMEOUT_US;
	rc = connect_all(kv, &ipc);
	if (rc == 0)
		return kv;
	crpc_kv_close(kv);
	errno = -rc;
	return NULL;
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
	if (how->ttl_ms > KV_TTL_MAX_MS)
		return -EINVAL;
	flags = (how->if_version ? KV_EXPECT : 0) | (how->ttl_ms != 0 ? KV_TTL : 0);
	if (value_len > KV_VALUE_INLINE)
		msg = crpc_arena_alloc(kv->blocks.cache,
			sizeof(struct kv_req_hdr) + kv->info.key_size + KV_EXTRAS_MAX + value_len,
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
	return ask(kv, KV_GET, key, NULL, 0, NULL, cookie);
}

int
crpc_kv_put(struct crpc_kv *kv, const void *key, const void *value, uint32_t len,
	const struct crpc_kv_how *how, uint64_t cookie)
{
	if (len < KV_VALUE_MIN || len > kv->info.value_size)
		return -EINVAL;
	return ask(kv, KV_PUT, key, value, len, how, cookie);
}

int
crpc_kv_delete(struct crpc_kv *kv, const void *key, const struct crpc_kv_how *how, uint64_t cookie)
{
	if (how != NULL && how->ttl_ms != 0)
		return -EINVAL;
	return ask(kv, KV_DELETE, key, NULL, 0, how, cookie);
}

static int32_t
status_of(uint8_t status)
{
	switch (status) {
	case KV_OK:
		return 0;
	case KV_NOT_FOUND:
		return -ENOENT;
	case KV_MISMATCH:
		return -ESTALE;
	case KV_NO_SPACE:
		return -ENOSPC;
	case KV_BAD_REQUEST:
		return -EINVAL;
	default:
		return -EPROTO;
	}
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
	uint16_t i, k;

	k = crpc_ipc_client_poll(
		kv->ipc, crpc_clock_ns(), ipc, (uint16_t)crpc_min(n, CRPC_BURST_MAX));
	if (kv->blocks.cache != NULL)
		crpc_kv_blocks_answers(kv->ipc, ipc, k);
	for (i = 0; i < k; i++)
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
