/* SPDX-License-Identifier: BSD-3-Clause */
#include "kv_hop.h"

/* Calls that flux keeps open per mate; beyond, requests wait in the queue. */
#define WINDOW_MIN 64
#define WINDOW_MAX 1024

/* What flux carries where messages are larger than its own: the record, and the bytes in it. */
struct by_address {
	struct kv_record *rec;
	uint64_t len;
};

struct crpc_flux_attr
__crpc_kv_hop_flux_attr(uint32_t daemons, uint32_t calls, uint32_t msg_max)
{
	uint64_t window = crpc_max(crpc_pow2_ceil(crpc_max(calls, 1)), WINDOW_MIN);

	return (struct crpc_flux_attr){
		.nodes = daemons,
		.window = (uint32_t)crpc_min(window, WINDOW_MAX),
		.msg_size = msg_max <= CRPC_FLUX_MSG_MAX ? msg_max
							 : (uint32_t)sizeof(struct by_address),
		.deadline_ns = KV_HOP_TIMEOUT_NS,
	};
}

static struct kv_record *
record_at(const struct kv_hop *hop, uint64_t i)
{
	return (struct kv_record *)(void *)(hop->wait.pool + i * hop->wait.place);
}

static uint64_t
record_index(const struct kv_hop *hop, const struct kv_record *rec)
{
	return (uint64_t)((const uint8_t *)rec - hop->wait.pool) / hop->wait.place;
}

int
__crpc_kv_hop_open(struct kv_hop *hop, struct crpc_flux *flux, uint32_t daemon, uint32_t daemons,
	uint32_t calls, uint32_t msg_max)
{
	int rc;

	*hop = (struct kv_hop){
		.under_way = &hop->open,
		.daemons = daemons,
		.msg_max = msg_max,
		.by_address = msg_max > CRPC_FLUX_MSG_MAX,
	};
	STAILQ_INIT(&hop->borrowed);
	rc = __crpc_kv_wait_init(&hop->wait, calls, msg_max, daemons);
	if (rc != 0)
		return rc;
	hop->node = crpc_flux_join(flux, daemon);
	return hop->node == NULL ? -errno : 0;
}

int
__crpc_kv_hop_connect(struct kv_hop *hop, uint32_t daemon)
{
	int rc = 0;

	for (uint32_t i = 0; i < hop->daemons && rc == 0; i++)
		if (i != daemon)
			rc = crpc_flux_connect(hop->node, i, &hop->ep[i]);
	return rc;
}

void
__crpc_kv_hop_close(struct kv_hop *hop)
{
	if (hop->node != NULL)
		crpc_flux_leave(hop->node);
	__crpc_kv_wait_free(&hop->wait);
	*hop = (struct kv_hop){0};
}

/* None is free: those that timed out and were let go since can be used again. */
static crpc_noinline void
take_back(struct kv_hop *hop)
{
	struct kv_queue all = STAILQ_HEAD_INITIALIZER(all);
	struct kv_record *rec;

	STAILQ_CONCAT(&all, &hop->borrowed);
	while ((rec = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		/* A1 pairs with R1: the owner is through with the bytes. */
		if (crpc_load_acquire(&rec->borrowed) != 0)
			STAILQ_INSERT_TAIL(&hop->borrowed, rec, link);
		else
			kv_wait_put(&hop->wait, rec);
	}
}

static int
send(struct kv_hop *hop, uint64_t now, uint32_t mate, struct kv_record *rec, const void *msg)
{
	struct by_address ref = {.rec = rec, .len = rec->len};
	uint64_t cookie = record_index(hop, rec);

	if (!hop->by_address)
		return crpc_flux_call(hop->ep[mate], now, msg, rec->len, hop->msg_max, cookie);
	return crpc_flux_call(hop->ep[mate], now, &ref, sizeof(ref), sizeof(ref), cookie);
}

int
__crpc_kv_hop_call(struct kv_hop *hop, uint64_t now, uint32_t mate, const void *msg, uint32_t len,
	enum kv_origin origin, uint64_t token)
{
	struct kv_record *rec;
	int rc = -EAGAIN;

	if (crpc_unlikely(len > hop->msg_max))
		return -EMSGSIZE;
	if (crpc_unlikely(STAILQ_EMPTY(&hop->wait.free)))
		take_back(hop);
	rec = kv_wait_take(&hop->wait);
	if (crpc_unlikely(rec == NULL))
		return -ENOBUFS;
	rec->token = token;
	rec->origin = (uint8_t)origin;
	rec->len = len;
	if (hop->by_address) {
		memcpy(rec + 1, msg, len);
		crpc_store_relaxed(&rec->borrowed, 1);
	}
	if (crpc_likely(STAILQ_EMPTY(&hop->wait.queue[mate])))
		rc = send(hop, now, mate, rec, msg);
	if (crpc_unlikely(rc != 0 && rc != -EAGAIN)) {
		kv_wait_put(&hop->wait, rec);
		return rc;
	}
	(*hop->under_way)++;
	if (crpc_likely(rc == 0))
		return 0;
	if (!hop->by_address)
		memcpy(rec + 1, msg, len);
	__crpc_kv_wait_add(&hop->wait, mate, rec, now);
	return 0;
}

int
__crpc_kv_hop_send(void *of, uint32_t mate, struct kv_record *rec, uint64_t now)
{
	struct kv_hop *hop = of;
	int rc = send(hop, now, mate, rec, rec + 1);

	*hop->under_way -= rc != 0 && rc != -EAGAIN;
	return rc;
}

uint32_t
__crpc_kv_hop_recv(struct kv_hop *hop, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct by_address ref;

	n = crpc_flux_recv(hop->node, now, req, (uint16_t)n);
	for (uint32_t i = 0; hop->by_address && i < n; i++) {
		memcpy(&ref, req[i].data, sizeof(ref));
		req[i].data = ref.rec + 1;
		req[i].len = (uint32_t)ref.len;
	}
	return n;
}

void
__crpc_kv_hop_answer(struct kv_hop *hop, uint64_t now, const struct crpc_req *req, uint32_t len)
{
	struct by_address ref;
	struct kv_record *rec;

	if (!hop->by_address) {
		crpc_flux_reply(hop->node, now, req->token, hop->msg, len);
		return;
	}
	rec = (struct kv_record *)(uintptr_t)req->data - 1;
	ref = (struct by_address){.rec = rec, .len = len};
	/* R1: the bytes before the word that gives them back. Flux orders those of the answer. */
	crpc_store_release(&rec->borrowed, 0);
	crpc_flux_reply(hop->node, now, req->token, &ref, sizeof(ref));
}

/* The record of an answer is free again, unless its owner may still write it. */
static void
record_put(struct kv_hop *hop, struct kv_record *rec, bool borrowed)
{
	(*hop->under_way)--;
	STAILQ_INSERT_HEAD(borrowed ? &hop->borrowed : &hop->wait.free, rec, link);
}

uint32_t
__crpc_kv_hop_poll(struct kv_hop *hop, uint64_t now, struct kv_answered *answer, uint32_t n)
{
	struct crpc_done done[CRPC_BURST_MAX];
	struct by_address ref;
	struct kv_record *rec;

	n = crpc_flux_poll(hop->node, now, done, (uint16_t)crpc_min(n, CRPC_BURST_MAX));
	for (uint32_t i = 0; i < n; i++) {
		rec = record_at(hop, done[i].cookie);
		answer[i] = (struct kv_answered){
			.data = done[i].data,
			.len = done[i].len,
			.status = done[i].status,
			.origin = (enum kv_origin)rec->origin,
			.token = rec->token,
		};
		if (hop->by_address && done[i].status == 0) {
			memcpy(&ref, done[i].data, sizeof(ref));
			answer[i].data = rec + 1;
			answer[i].len = (uint32_t)ref.len;
		}
		record_put(hop, rec, hop->by_address && done[i].status != 0);
	}
	return n;
}
