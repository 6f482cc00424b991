/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: memory, queue pair, address, connection, and how one breaks. Control path.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "copyrpc_pvt.h"

/* Rings start on a page; large ones on a huge page's boundary, so that the kernel may use one. */
#define PAGE      4096u
#define HUGE_PAGE (2u << 20)

/* Two rings and the words behind them. */
static size_t
half_size(uint32_t ring_size)
{
	return (size_t)ring_size * WIRE_LANES + WIRE_WORDS;
}

/* Memory for four rings, touched so that no page is missing on the datapath. */
static void *
rings_alloc(uint32_t ring_size)
{
	size_t bytes = 2 * half_size(ring_size);
	size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
	void *mem = aligned_alloc(page, crpc_align_up(bytes, page));

	if (mem == NULL)
		return NULL;
	if (bytes >= HUGE_PAGE)
		madvise(mem, bytes, MADV_HUGEPAGE); /* a hint: small pages work too */
	memset(mem, 0, bytes);
	return mem;
}

/* Rings and their registrations: the peer may write the first half, never the second. */
static int
rings_init(struct crpc_copyrpc_ep *ep)
{
	size_t half = half_size(ep->ring_size), rings = half - WIRE_WORDS;
	uint8_t *mem = rings_alloc(ep->ring_size);
	int rc;

	if (mem == NULL)
		return -ENOMEM;
	rc = crpc_rdma_mr_reg(ep->ctx->dev, mem, half, &ep->rx_mr);
	if (rc != 0)
		goto err_mem;
	rc = crpc_rdma_mr_reg(ep->ctx->dev, mem + half, half, &ep->tx_mr);
	if (rc != 0)
		goto err_rx;
	ep->mem = mem;
	ep->rx_words = (_Atomic uint64_t *)(void *)(mem + rings);
	ep->tx_words = (_Atomic uint64_t *)(void *)(mem + half + rings);
	ep->rx[WIRE_REQ] = mem;
	ep->rx[WIRE_RESP] = mem + ep->ring_size;
	ep->tx[WIRE_REQ].stage = mem + half;
	ep->tx[WIRE_RESP].stage = mem + half + ep->ring_size;
	ep->tx[WIRE_REQ].next = ep->tx[WIRE_REQ].stage;
	ep->tx[WIRE_RESP].next = ep->tx[WIRE_RESP].stage;
	ep->stage_lkey = ep->tx_mr.lkey;
	return 0;
err_rx:
	crpc_rdma_mr_dereg(ep->ctx->dev, &ep->rx_mr);
err_mem:
	free(mem);
	return rc;
}

static void
rings_fini(struct crpc_copyrpc_ep *ep)
{
	crpc_rdma_mr_dereg(ep->ctx->dev, &ep->tx_mr);
	crpc_rdma_mr_dereg(ep->ctx->dev, &ep->rx_mr);
	free(ep->mem);
}

/* A table without requests. What stands as token leads to another entry: nobody can give it. */
static void
reqs_init(struct req_entry *reqs, uint32_t n)
{
	uint64_t i;

	memset(reqs, 0, n * sizeof(*reqs));
	for (i = 0; i < n; i++)
		reqs[i].token = ~(i << TOKEN_EP_BITS);
}

/* Call slots on their free list, and the table of requests. */
static int
tables_init(struct crpc_copyrpc_ep *ep)
{
	uint32_t slots = ep->ctx->slot_mask + 1, reqs = ep->ring_size / WIRE_STRIDE_MIN, i;
	uint32_t usable = ep->ctx->conf.max_inflight;

	ep->slots = aligned_alloc(CRPC_CACHE_LINE,
			crpc_align_up(slots * sizeof(*ep->slots), CRPC_CACHE_LINE));
	ep->reqs = aligned_alloc(CRPC_CACHE_LINE, reqs * sizeof(*ep->reqs));
	if (ep->slots == NULL || ep->reqs == NULL) {
		free(ep->slots);
		free(ep->reqs);
		return -ENOMEM;
	}
	reqs_init(ep->reqs, reqs);
	memset(ep->slots, 0, slots * sizeof(*ep->slots));
	for (i = 0; i < slots; i++) {
		ep->slots[i].id = i + slots;
		ep->slots[i].call_ns = SLOT_FREE;
		ep->slots[i].next = i < usable ? &ep->slots[i + 1] : NULL;
	}
	ep->req_mask = reqs - 1;
	ep->id_step = slots;
	ep->free = &ep->slots[1];
	return 0;
}

uint64_t
crpc_copyrpc_ep_memory(const struct crpc_copyrpc_ep *ep)
{
	return sizeof(*ep) + 2 * half_size(ep->ring_size) +
	       (ep->ctx->slot_mask + 1) * sizeof(*ep->slots) +
	       (ep->req_mask + 1) * sizeof(*ep->reqs) + 4 * wire_area(ep->ctx->conf.max_large);
}

int
__crpc_copyrpc_nobody_init(struct crpc_copyrpc *ctx)
{
	struct crpc_copyrpc_ep *ep = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up(sizeof(*ep), CRPC_CACHE_LINE));
	struct req_entry *reqs = malloc(2 * sizeof(*reqs));
	uint32_t i;

	if (ep == NULL || reqs == NULL) {
		free(ep);
		free(reqs);
		return -ENOMEM;
	}
	memset(ep, 0, sizeof(*ep));
	reqs_init(reqs, 2);
	ep->reqs = reqs;
	ep->req_mask = 1;
	ctx->nobody = ep;
	for (i = 0; i < CRPC_COPYRPC_EPS_MAX; i++)
		ctx->by_token[i] = ep;
	return 0;
}

static struct crpc_rdma_qp *
qp_make(const struct crpc_copyrpc_ep *ep)
{
	const struct crpc_copyrpc *ctx = ep->ctx;
	struct crpc_rdma_qp_conf conf = {
			.id = ep->id,
			.sq_depth = ctx->conf.sq_depth,
			.rq_depth = ctx->conf.rq_depth,
			.inline_max = ctx->inline_max,
			.transport = ep->transport,
	};

	return crpc_rdma_qp_create(ctx->dev, &conf);
}

/* How the peer is told and asked; a bad value is said once. */
static int
mode_check(const struct crpc_copyrpc_ep_conf *conf)
{
	if (conf->flow <= CRPC_COPYRPC_FLOW_NOTIFY && conf->arrival <= CRPC_COPYRPC_MEMORY &&
			conf->transport <= CRPC_RDMA_DC)
		return 0;
	crpc_err("endpoint: flow is %u, expected at most %u; arrival is %u, expected at most %u; "
		 "transport is %u, expected at most %u",
			conf->flow, CRPC_COPYRPC_FLOW_NOTIFY, conf->arrival, CRPC_COPYRPC_MEMORY,
			conf->transport, CRPC_RDMA_DC);
	return -EINVAL;
}

/* No reply is waited for or owed. From the start: an endpoint may break before it is connected. */
static void
rooms_init(struct crpc_copyrpc_ep *ep)
{
	room_reset(&ep->resv, ep->ring_size);
	room_reset(&ep->owed, ep->ring_size);
}

struct crpc_copyrpc_ep *
crpc_copyrpc_ep_create(struct crpc_copyrpc *ctx, uint32_t user_id)
{
	return crpc_copyrpc_ep_create_as(ctx, user_id, &(struct crpc_copyrpc_ep_conf){0});
}

/* The bare endpoint, in the first place that is free; NULL with errno. */
static struct crpc_copyrpc_ep *
ep_alloc(struct crpc_copyrpc *ctx, uint32_t user_id, const struct crpc_copyrpc_ep_conf *conf)
{
	struct crpc_copyrpc_ep *ep;
	uint32_t id = 0;

	while (id < ctx->conf.max_eps && ctx->eps[id] != NULL)
		id++;
	if (id == ctx->conf.max_eps) {
		crpc_err("no endpoint left for peer %u: all %u of conf.max_eps are taken", user_id,
				ctx->conf.max_eps);
		errno = ENOSPC;
		return NULL;
	}
	ep = aligned_alloc(CRPC_CACHE_LINE, crpc_align_up(sizeof(*ep), CRPC_CACHE_LINE));
	if (ep == NULL)
		return NULL;
	*ep = (struct crpc_copyrpc_ep){
			.ctx = ctx,
			.err = -ENOTCONN,
			.ring_size = ctx->conf.ring_size,
			.id = (uint16_t)id,
			.user_id = user_id,
			.flow = (uint8_t)conf->flow,
			.transport = (uint8_t)conf->transport,
			.memory = conf->arrival == CRPC_COPYRPC_MEMORY,
			.trailer = conf->arrival == CRPC_COPYRPC_MEMORY ? sizeof(struct wire_seal)
									: 0,
			.epoch = ++ctx->epoch,
			.req_head = ctx->serial[id],
			.req_next = ctx->serial[id],
			.req_tail = ctx->serial[id],
	};
	rooms_init(ep);
	return ep;
}

struct crpc_copyrpc_ep *
crpc_copyrpc_ep_create_as(
	struct crpc_copyrpc *ctx, uint32_t user_id, const struct crpc_copyrpc_ep_conf *conf)
{
	struct crpc_copyrpc_ep *ep;
	int rc;

	if (mode_check(conf) != 0) {
		errno = EINVAL;
		return NULL;
	}
	ep = ep_alloc(ctx, user_id, conf);
	if (ep == NULL)
		return NULL;
	rc = rings_init(ep);
	if (rc != 0)
		goto err_ep;
	rc = __crpc_copyrpc_large_init(ep);
	if (rc != 0)
		goto err_rings;
	rc = tables_init(ep);
	if (rc != 0)
		goto err_large;
	ep->qp = qp_make(ep);
	if (ep->qp == NULL) {
		rc = -errno;
		goto err_tables;
	}
	ctx->eps[ep->id] = ep;
	ctx->by_token[ep->id] = ep;
	ctx->neps++;
	return ep;
err_tables:
	free(ep->slots);
	free(ep->reqs);
err_large:
	__crpc_copyrpc_large_fini(ep);
err_rings:
	rings_fini(ep);
err_ep:
	free(ep);
	errno = -rc;
	return NULL;
}

/* The lists are linked forwards only; taking one out of the middle is control path. */
static void
list_remove(struct crpc_copyrpc *ctx, struct ep_list *list, size_t next_at, uint16_t id)
{
	uint16_t *link = &list->head, prev = NIL, i;
	uint32_t left;

	for (left = list->n; left != 0; left--) {
		i = *link;
		if (i == id) {
			*link = *(uint16_t *)((char *)ctx->eps[i] + next_at);
			if (list->tail == id)
				list->tail = prev;
			list->n--;
			return;
		}
		prev = i;
		link = (uint16_t *)((char *)ctx->eps[i] + next_at);
	}
}

void
__crpc_copyrpc_hold_drop(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint16_t i;

	for (i = 0; i < ctx->nheld; i++) {
		if (ctx->held[i] != ep->id)
			continue;
		ctx->held[i] = ctx->held[--ctx->nheld];
		room_sub(&ep->resv, ep->hold);
		ep->hold = 0;
		return;
	}
}

static void
memory_remove(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint32_t i = 0;

	while (ctx->memory[i] != ep->id)
		i++;
	ctx->memory[i] = ctx->memory[--ctx->nmemory];
	ctx->memory_at = 0;
}

/* Nothing of the context leads to this endpoint's old life any more. Its queue pair is gone. */
static void
ep_detach(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;
	uint16_t i;

	if (ep->flags & EP_DIRTY)
		list_remove(ctx, &ctx->dirty, offsetof(struct crpc_copyrpc_ep, dirty_next), ep->id);
	if (ep->flags & EP_READY)
		list_remove(ctx, &ctx->ready, offsetof(struct crpc_copyrpc_ep, ready_next), ep->id);
	if (ep->flags & EP_BROKEN)
		list_remove(ctx, &ctx->broken, offsetof(struct crpc_copyrpc_ep, broken_next),
				ep->id);
	if (ep->flags & EP_MEMORY)
		memory_remove(ep);
	ep->flags = 0;
	/* completions of the old queue pair that we hold must not meet the next one */
	for (i = ctx->cqe_i; i < ctx->cqe_n; i++) {
		if (ctx->cqe[i].qp_id == ep->id)
			ctx->cqe[i].qp_id = UINT32_MAX;
	}
	if (ctx->cur == ep)
		ctx->cur = NULL;
	__crpc_copyrpc_hold_drop(ep);
}

void
crpc_copyrpc_ep_free(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx;

	if (ep == NULL)
		return;
	ctx = ep->ctx;
	crpc_rdma_qp_free(ep->qp);
	ep_detach(ep);
	ep_count_calls(ep);
	ctx->serial[ep->id] = ep->req_tail;
	ctx->eps[ep->id] = NULL;
	ctx->by_token[ep->id] = ctx->nobody;
	ctx->neps--;
	rings_fini(ep);
	__crpc_copyrpc_large_fini(ep);
	free(ep->slots);
	free(ep->reqs);
	free(ep);
}

int
crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep)
{
	struct crpc_rdma_qp *qp;

	copyrpc_owner_check(ep->ctx);
	if (ep->err == -ENOTCONN)
		return 0;
	if (ep->err == 0)
		return -EISCONN;
	if (ep_open(ep) != 0 || (ep->flags & EP_BROKEN) || (ep->hold | ep->large.held) != 0)
		return -EBUSY;
	/* first the old one goes: then nobody reads or writes our rings any more */
	if (crpc_rdma_qp_drain(ep->qp) != 0)
		return -EBUSY;
	crpc_rdma_qp_free(ep->qp);
	ep->qp = NULL;
	ep_detach(ep);
	ep->req_head = ep->req_tail; /* tokens of the old life name nothing */
	ep->req_next = ep->req_tail;
	reqs_init(ep->reqs, ep->req_mask + 1);
	if (ep->memory) /* no data of the old life is taken for a batch of the next */
		memset(ep->rx[WIRE_REQ], 0, (size_t)WIRE_LANES * ep->ring_size);
	memset(ep->large.tx, 0, sizeof(ep->large.tx));
	ep->large.taken = 0;
	ep->large.served = 0;
	ep->large.held = 0;
	ep->large.arrived = 0; /* of a batch that lied */
	ep->reading = false;
	ep->want_read = false;
	rooms_init(ep);
	qp = qp_make(ep);
	if (qp == NULL)
		return -errno;
	ep->qp = qp;
	ep->epoch = ++ep->ctx->epoch;
	ep->err = -ENOTCONN;
	return 0;
}

static uint16_t
ep_wire_flags(const struct crpc_copyrpc_ep *ep)
{
	return (uint16_t)(ep->flow | (ep->memory ? WIRE_FLAG_MEMORY : 0));
}

void
crpc_copyrpc_ep_addr(const struct crpc_copyrpc_ep *ep, uint8_t addr[CRPC_COPYRPC_ADDR_LEN])
{
	struct wire_addr wire = {
			.magic = WIRE_ADDR_MAGIC,
			.version = WIRE_VERSION,
			.flags = ep_wire_flags(ep),
			.ring_size = ep->ring_size,
			.max_msg = ep->ctx->conf.max_msg,
			.epoch = ep->epoch,
			.rkey = ep->rx_mr.rkey,
			.raddr = (uint64_t)(uintptr_t)ep->rx[WIRE_REQ],
			.pos = ep->ctx->conf.initial_pos,
			.large_max = ep->ctx->conf.max_large,
			.large_rkey = ep->large.rx_mr.rkey,
			.large_raddr = (uint64_t)(uintptr_t)ep->large.mem,
	};

	if (ep->qp != NULL) /* there is none of a broken endpoint, or after a reset that failed */
		crpc_rdma_qp_addr(ep->qp, wire.qp);
	memcpy(addr, &wire, sizeof(wire));
}

/* What the peer's address says, checked. */
static int
addr_check(const struct crpc_copyrpc_ep *ep, const struct wire_addr *wire)
{
	if (wire->magic != WIRE_ADDR_MAGIC || wire->version != WIRE_VERSION) {
		crpc_err("peer %u: not an endpoint address of this version: expected magic 0x%x "
			 "version %u, found 0x%x, %u; run the same release at both ends",
				ep->user_id, WIRE_ADDR_MAGIC, WIRE_VERSION, wire->magic,
				wire->version);
		return -EPROTO;
	}
	if (wire->flags != ep_wire_flags(ep)) {
		crpc_err(
			"peer %u: flow or arrival differs: expected flags 0x%x, found 0x%x; create "
			"both endpoints alike",
			ep->user_id, ep_wire_flags(ep), wire->flags);
		return -EPROTO;
	}
	if (wire->ring_size != ep->ring_size) {
		crpc_err("peer %u: ring_size differs: ours %u, theirs %u; configure both alike",
				ep->user_id, ep->ring_size, wire->ring_size);
		return -EPROTO;
	}
	if (wire->max_msg == 0 || wire->max_msg > CRPC_COPYRPC_MSG_MAX(ep->ring_size) ||
			wire->pos % WIRE_UNIT != 0 || wire->large_max > CRPC_COPYRPC_LARGE_MAX) {
		crpc_err("peer %u: address out of range: max_msg %u, position %" PRIu64
			 ", large_max %u",
				ep->user_id, wire->max_msg, wire->pos, wire->large_max);
		return -EPROTO;
	}
	return 0;
}

int
crpc_copyrpc_ep_connect(struct crpc_copyrpc_ep *ep, const uint8_t peer[CRPC_COPYRPC_ADDR_LEN])
{
	uint64_t ours = ep->ctx->conf.initial_pos;
	struct wire_addr wire;
	uint32_t lane;
	int rc;

	if (ep->err != -ENOTCONN)
		return ep->err == 0 ? -EISCONN : ep->err;
	memcpy(&wire, peer, sizeof(wire));
	rc = addr_check(ep, &wire);
	if (rc != 0)
		return rc;
	rc = crpc_rdma_qp_connect(ep->qp, wire.qp);
	if (rc != 0)
		return rc;
	ep->rkey = wire.rkey;
	ep->peer_epoch = wire.epoch;
	ep->max_msg = (uint32_t)crpc_min(wire.max_msg, ep->ctx->conf.max_msg);
	for (lane = 0; lane < WIRE_LANES; lane++) {
		ep->tx[lane].raddr = wire.raddr + (uint64_t)lane * ep->ring_size;
		ep->tx[lane].sent = ours;
		ep->tx[lane].lap = ours & ~(uint64_t)(ep->ring_size - 1);
		ep->tx[lane].next = ep->tx[lane].stage + (ours & (ep->ring_size - 1));
		ep->rx_pos[lane] = wire.pos;
	}
	kind_forget(ep);
	ep->kind.batch = ep->batch_sent = initial_count(&ep->ctx->conf);
	ep->flush_seq = ep->done_seq = ep->req_seq = initial_count(&ep->ctx->conf);
	ep->large.max = (uint32_t)crpc_min(wire.large_max, ep->ctx->conf.max_large);
	if (ep->large.max <= ep->max_msg)
		ep->large.max = 0;
	ep->large.rkey = wire.large_rkey;
	ep->large.raddr[WIRE_REQ] = wire.large_raddr;
	ep->large.raddr[WIRE_RESP] = wire.large_raddr + wire_area(wire.large_max);
	ep->words_raddr = wire.raddr + (uint64_t)WIRE_LANES * ep->ring_size;
	crpc_store_relaxed(&ep->rx_words[WIRE_WORD_RELEASED / 8], wire.pos);
	crpc_store_relaxed(&ep->rx_words[WIRE_WORD_TOLD / 8], ours);
	if (ep->memory) {
		ep->ctx->memory[ep->ctx->nmemory++] = ep->id;
		ep->flags |= EP_MEMORY;
	}
	ep->peer_released = ours;
	ep->released = wire.pos;
	ep->cleared = wire.pos;
	ep->told = wire.pos;
	ep->heard_ns = 0;
	ep->err = 0;
	return 0;
}

void
__crpc_copyrpc_ep_broken(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	ep->flags |= EP_BROKEN;
	ep->broken_next = NIL;
	if (ctx->broken.n++ == 0)
		ctx->broken.head = ep->id;
	else
		ctx->eps[ctx->broken.tail]->broken_next = ep->id;
	ctx->broken.tail = ep->id;
}

void
__crpc_copyrpc_ep_break(struct crpc_copyrpc_ep *ep, int err)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	ep->err = err;
	ctx->stats.ep_errors++;
	ep_count_calls(ep);
	if (ep->flags & EP_MEMORY) {
		memory_remove(ep);
		ep->flags &= ~EP_MEMORY;
	}
	ep->tx[WIRE_REQ].npend = 0;
	ep->tx[WIRE_REQ].limit = NULL; /* the fast path of call() looks at this alone */
	ep->tx[WIRE_RESP].npend = 0;
	ep->tx[WIRE_RESP].limit = NULL;
	ep->large.tx[WIRE_REQ].len = 0;
	ep->large.tx[WIRE_RESP].len = 0;
	if (ctx->cur == ep)
		ctx->cur = NULL;
	ep->fail_at = 0;
	ep->flags &= ~EP_ALIVE_MASK;
	__crpc_copyrpc_ep_broken(ep);
}

void
__crpc_copyrpc_ep_lie(
	struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found)
{
	crpc_err("endpoint %u (peer %u): the peer broke the protocol: %s: expected %" PRIu64
		 " (0x%" PRIx64 "), found %" PRIu64 " (0x%" PRIx64
		 "); the endpoint is closed, its calls end with -ECONNRESET",
			ep->id, ep->user_id, rule, expected, expected, found, found);
	__crpc_copyrpc_ep_break(ep, -EPROTO);
}

void
crpc_copyrpc_ep_shutdown(struct crpc_copyrpc_ep *ep)
{
	copyrpc_owner_check(ep->ctx);
	if (ep->err == 0 || ep->err == -ENOTCONN)
		__crpc_copyrpc_ep_break(ep, -ECONNRESET);
}

int
crpc_copyrpc_ep_status(const struct crpc_copyrpc_ep *ep)
{
	return ep->err;
}

uint32_t
crpc_copyrpc_ep_open_calls(const struct crpc_copyrpc_ep *ep)
{
	return ep_open(ep);
}
