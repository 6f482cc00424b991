/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: memory, queue pair, address, connection, and how one breaks. Control path.
 */
#include <inttypes.h>

#include "copyrpc_large.h"
#include "copyrpc_modes.h"
#include "crpc_conf.h"
#include "crpc_mem.h"

/* Where rings start: the device has pages in its tables, too. */
#define PAGE 4096u
#define SLAB ((size_t)2 << 20)
#define SMALL (16u << 10)

struct ep_memory {
	struct crpc_copyrpc_ep ep;
	struct conn conn;
	struct large large;
};

/* Newest request batches whose time of sending is remembered. */
static uint32_t
batch_times(const struct crpc_copyrpc_conf *conf)
{
	return (uint32_t)crpc_min(conf->max_inflight, BATCH_TIMES_MAX);
}

/* Gets and puts that are open at most. */
static uint32_t
onesided_max(const struct crpc_copyrpc_conf *conf)
{
	return (uint32_t)crpc_min(conf->sq_depth, ONESIDED_MAX);
}

/*
 * Small endpoints share slabs of SLAB bytes: thousands of them need neither pages nor mappings of
 * their own. A larger one is alone. All is zero at first.
 *
 *     | endpoint 0                                                  | endpoint 1 ...
 *     | struct ep_memory | calls | requests | times | gets and puts | what the peer writes | ours |
 *       0                  at[0]   at[1]      at[2]   at[3]           at[4]                  at[5]
 */
enum { AT_CALLS, AT_REQS, AT_TIMES, AT_ONESIDED, AT_RX, AT_TX, ATS };

struct layout {
	size_t at[ATS];
	size_t half; /* Two rings, the words behind them, and two areas of large messages. */
	size_t size;
	uint32_t per_slab;
};

static struct layout
layout_of(const struct crpc_copyrpc_conf *conf)
{
	size_t page = conf->ring_size < PAGE ? CRPC_CACHE_GUARD : PAGE;
	size_t half = crpc_align_up(
		WIRE_AREAS(conf->ring_size) + 2 * wire_area(conf->max_large), page);
	struct layout l = {.half = half};

	l.at[AT_CALLS] = crpc_align_up(sizeof(struct ep_memory), CRPC_CACHE_LINE);
	/* As many as a response can name. */
	l.at[AT_REQS] = l.at[AT_CALLS] +
		crpc_align_up(crpc_pow2_ceil(conf->max_inflight + 1) * sizeof(struct call_slot),
			CRPC_CACHE_LINE);
	l.at[AT_TIMES] = l.at[AT_REQS] +
		conf->ring_size / WIRE_STRIDE_MIN * sizeof(struct req_entry);
	l.at[AT_ONESIDED] = l.at[AT_TIMES] + batch_times(conf) * sizeof(uint64_t);
	l.at[AT_RX] = crpc_align_up(
		l.at[AT_ONESIDED] + onesided_max(conf) * sizeof(struct crpc_done), page);
	l.at[AT_TX] = l.at[AT_RX] + half;
	l.size = l.at[AT_TX] + half;
	l.per_slab = l.size > SMALL ? 1 : (uint32_t)crpc_min(SLAB / l.size, conf->max_eps);
	return l;
}

/* Another endpoint that lies in the slab of @p id; NULL: there is none. */
static struct crpc_copyrpc_ep *
slab_mate(const struct crpc_copyrpc *ctx, const struct layout *l, uint32_t id)
{
	uint32_t first = id - id % l->per_slab, end = first + l->per_slab;

	for (uint32_t i = first; i < end && i < CRPC_COPYRPC_EPS_MAX; i++)
		if (i != id && ctx->eps[i] != NULL)
			return ctx->eps[i];
	return NULL;
}

static uint8_t *
ep_memory(struct crpc_copyrpc_ep *ep)
{
	return (uint8_t *)crpc_container_of(ep, struct ep_memory, ep);
}

/* Zeros for endpoint @p id; NULL: no memory. */
static uint8_t *
memory_take(const struct crpc_copyrpc *ctx, const struct layout *l, uint32_t id)
{
	struct crpc_copyrpc_ep *mate = slab_mate(ctx, l, id);
	uint8_t *slab;

	if (mate != NULL)
		return ep_memory(mate) + ((ptrdiff_t)id - mate->id) * (ptrdiff_t)l->size;
	slab = crpc_mem_alloc("copyrpc_endpoints", l->per_slab * l->size, PAGE, NULL);
	return slab == NULL ? NULL : slab + id % l->per_slab * l->size;
}

static void
memory_give(const struct crpc_copyrpc *ctx, struct crpc_copyrpc_ep *ep)
{
	struct layout l = layout_of(&ctx->conf);
	uint32_t id = ep->id;

	if (slab_mate(ctx, &l, id) != NULL)
		memset(ep_memory(ep), 0, l.size);
	else
		crpc_mem_free(ep_memory(ep) - id % l.per_slab * l.size);
}

/* Registered apart: the peer may write what is its, never ours. */
static int
rings_init(struct crpc_copyrpc_ep *ep)
{
	struct conn *conn = ep->conn;
	struct crpc_rdma *dev = ep->ctx->dev;
	struct layout l = layout_of(&ep->ctx->conf);
	uint8_t *mem = ep_memory(ep) + l.at[AT_RX];
	int rc;

	rc = crpc_rdma_mr_reg(dev, mem, l.half, &conn->rx_mr);
	if (rc != 0)
		return rc;
	rc = crpc_rdma_mr_reg(dev, mem + l.half, l.half, &conn->tx_mr);
	if (rc != 0) {
		crpc_rdma_mr_dereg(dev, &conn->rx_mr);
		return rc;
	}
	for (uint32_t lane = 0; lane < WIRE_LANES; lane++) {
		ep->rx[lane] = mem + (size_t)lane * ep->ring_size;
		ep->tx[lane].stage = ep->tx[lane].next = ep->rx[lane] + l.half;
	}
	mem += (size_t)WIRE_LANES * ep->ring_size;
	conn->rx_words = (_Atomic uint64_t *)(void *)mem;
	conn->tx_words = (_Atomic uint64_t *)(void *)(mem + l.half);
	return 0;
}

/* A table without requests. What stands as token leads to another entry: none is found by it. */
static void
reqs_init(struct req_entry *reqs, uint32_t n)
{
	memset(reqs, 0, n * sizeof(*reqs));
	for (uint64_t i = 0; i < n; i++)
		reqs[i].token = ~(i << TOKEN_EP_BITS);
}

/* The slot of a call is freed without a response. */
static void
call_drop(struct rpc_calls *calls, struct rpc_call *call)
{
	struct crpc_copyrpc_ep *ep = crpc_container_of(calls, struct crpc_copyrpc_ep, calls);
	struct call_slot *slot = (struct call_slot *)call;

	ep->resv.left += slot_worst(ep, slot);
	if (slot->areas != 0)
		__crpc_copyrpc_large_end(ep, slot, false, NULL);
}

static void
tables_init(struct crpc_copyrpc_ep *ep, const struct layout *l)
{
	const struct crpc_copyrpc_conf *conf = &ep->ctx->conf;
	uint8_t *mem = ep_memory(ep);

	ep->slots = (struct call_slot *)(void *)(mem + l->at[AT_CALLS]);
	ep->reqs = (struct req_entry *)(void *)(mem + l->at[AT_REQS]);
	ep->batch_ns = (uint64_t *)(void *)(mem + l->at[AT_TIMES]);
	ep->batch_mask = batch_times(conf) - 1;
	ep->conn->onesided.op = (struct crpc_done *)(void *)(mem + l->at[AT_ONESIDED]);
	ep->conn->onesided.max = onesided_max(conf);
	ep->req_mask = conf->ring_size / WIRE_STRIDE_MIN - 1;
	reqs_init(ep->reqs, ep->req_mask + 1);
	__crpc_calls_init(&ep->calls, ep->slots, conf->max_inflight, sizeof(*ep->slots), 1);
	ep->calls.drop = call_drop;
}

uint64_t
crpc_copyrpc_ep_memory(const struct crpc_copyrpc_ep *ep)
{
	return layout_of(&ep->ctx->conf).size;
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
		.transport = ep->conn->conf.transport,
	};

	return crpc_rdma_qp_create(ctx->dev, &conf);
}

struct crpc_copyrpc_ep *
crpc_copyrpc_ep_create(struct crpc_copyrpc *ctx, uint32_t user_id)
{
	return crpc_copyrpc_ep_create_as(ctx, user_id, &(struct crpc_copyrpc_ep_conf){0});
}

/* No reply is expected or open. */
static void
rooms_init(struct crpc_copyrpc_ep *ep)
{
	ep->conn->peer_resv = ep->resv =
		(struct room){.left = ep->ring_size, .size = ep->ring_size};
	ep->last_worst = UINT32_MAX;
}

/* The bare endpoint, in the first place that is free; NULL with errno. */
static struct crpc_copyrpc_ep *
ep_alloc(struct crpc_copyrpc *ctx, uint32_t user_id, const struct crpc_copyrpc_ep_conf *conf)
{
	struct layout l = layout_of(&ctx->conf);
	struct crpc_copyrpc_ep *ep;
	struct ep_memory *mem;
	uint32_t id = 0;

	while (id < ctx->conf.max_eps && ctx->eps[id] != NULL)
		id++;
	if (id == ctx->conf.max_eps)
		return crpc_null(crpc_fail(-ENOSPC,
			"no endpoint left for peer %u: all %u of conf.max_eps are taken", user_id,
			ctx->conf.max_eps));
	mem = (struct ep_memory *)(void *)memory_take(ctx, &l, id);
	if (mem == NULL)
		return NULL;
	ep = &mem->ep;
	ep->ctx = ctx;
	ep->conn = &mem->conn;
	ep->err = -ENOTCONN;
	ep->ring_size = ctx->conf.ring_size;
	ep->id = id;
	ep->user_id = user_id;
	ep->conn->conf = *conf;
	ep->conn->in_memory = conf->arrival == CRPC_COPYRPC_MEMORY;
	ep->trailer = ep->conn->in_memory ? sizeof(struct wire_seal) : 0;
	ep->large = ctx->conf.max_large != 0 ? &mem->large : NULL;
	ep->given_matters = ep->large != NULL || ep->conn->in_memory;
	rooms_init(ep);
	tables_init(ep, &l);
	ep->conn->epoch = ++ctx->epoch;
	ep->req_head = ep->req_next = ep->req_tail = ctx->serial[id];
	return ep;
}

/* Free an endpoint that nothing leads to, and that may be made in part only. */
static void
ep_destroy(struct crpc_copyrpc_ep *ep)
{
	if (ep->rx[WIRE_REQ] != NULL) {
		crpc_rdma_mr_dereg(ep->ctx->dev, &ep->conn->tx_mr);
		crpc_rdma_mr_dereg(ep->ctx->dev, &ep->conn->rx_mr);
	}
	memory_give(ep->ctx, ep);
}

struct crpc_copyrpc_ep *
crpc_copyrpc_ep_create_as(
	struct crpc_copyrpc *ctx, uint32_t user_id, const struct crpc_copyrpc_ep_conf *conf)
{
	struct crpc_copyrpc_ep *ep;
	int rc;

	if (crpc_conf_range("flow", conf->flow, 0, CRPC_COPYRPC_FLOW_NOTIFY) ||
		crpc_conf_range("arrival", conf->arrival, 0, CRPC_COPYRPC_MEMORY) ||
		crpc_conf_range("transport", conf->transport, 0, CRPC_RDMA_DC))
		return crpc_null(-EINVAL);
	ep = ep_alloc(ctx, user_id, conf);
	if (ep == NULL)
		return NULL;
	rc = rings_init(ep);
	if (rc == 0) {
		ep->conn->qp = qp_make(ep);
		rc = ep->conn->qp != NULL ? 0 : -errno;
	}
	if (rc != 0) {
		ep_destroy(ep);
		return crpc_null(rc);
	}
	ctx->eps[ep->id] = ep;
	ctx->neps++;
	return ep;
}

static void
memory_remove(struct crpc_copyrpc_ep *ep)
{
	if (ep->ctx->memory_at == ep)
		ep->ctx->memory_at = TAILQ_NEXT(ep, memory);
	ep_list_del(ep, memory);
}

/* Nothing of the context leads to this epoch of an endpoint any more. Its queue pair is gone. */
static void
ep_detach(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	ep_list_del(ep, dirty);
	ep_list_del(ep, ready);
	ep_list_del(ep, broken);
	ep_list_del(ep, held);
	memory_remove(ep);
	ctx->calls[ep->id] = NULL;
	/* completions of the old queue pair that we hold must not meet the next one */
	for (uint16_t i = ctx->cqe_i; i < ctx->cqe_n; i++)
		if (ctx->cqe[i].qp_id == ep->id)
			ctx->cqe[i].qp_id = UINT32_MAX;
	if (ctx->cur == ep)
		ctx->cur = NULL;
}

void
crpc_copyrpc_ep_free(struct crpc_copyrpc_ep *ep)
{
	struct crpc_copyrpc *ctx;

	if (ep == NULL)
		return;
	ctx = ep->ctx;
	crpc_rdma_qp_free(ep->conn->qp);
	ep_detach(ep);
	ctx->serial[ep->id] = ep->req_tail;
	ctx->eps[ep->id] = NULL;
	ctx->neps--;
	ep_destroy(ep);
}

int
crpc_copyrpc_ep_reset(struct crpc_copyrpc_ep *ep)
{
	struct conn *conn = ep->conn;
	struct crpc_rdma_qp *qp;

	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	if (ep->err == -ENOTCONN)
		return 0;
	if (ep->err == 0)
		return -EISCONN;
	if (ep->broken.tqe_prev != NULL || ep->hold != 0)
		return -EBUSY;
	/* first the old one goes: then no device reads or writes our rings any more */
	if (crpc_rdma_qp_drain(conn->qp) != 0)
		return -EBUSY;
	crpc_rdma_qp_free(conn->qp);
	conn->qp = NULL;
	ep_detach(ep);
	ep->req_head = ep->req_tail; /* tokens of the old epoch name nothing */
	ep->req_next = ep->req_tail;
	reqs_init(ep->reqs, ep->req_mask + 1);
	/* no data of the old epoch is taken for a batch of the next */
	if (conn->in_memory)
		memset(ep->rx[WIRE_REQ], 0, (size_t)WIRE_LANES * ep->ring_size);
	conn->reading = false;
	conn->want_read = false;
	rooms_init(ep);
	qp = qp_make(ep);
	if (qp == NULL)
		return -errno;
	conn->qp = qp;
	conn->epoch = ++ep->ctx->epoch;
	ep->err = -ENOTCONN;
	return 0;
}

static uint16_t
ep_wire_flags(const struct crpc_copyrpc_ep *ep)
{
	return (uint16_t)(ep->conn->conf.flow | (ep->conn->in_memory ? WIRE_FLAG_MEMORY : 0));
}

void
crpc_copyrpc_ep_addr(const struct crpc_copyrpc_ep *ep, uint8_t addr[CRPC_COPYRPC_ADDR_LEN])
{
	const struct conn *conn = ep->conn;
	struct wire_addr wire = {
		.magic = WIRE_ADDR_MAGIC,
		.version = WIRE_VERSION,
		.flags = ep_wire_flags(ep),
		.ring_size = ep->ring_size,
		.max_msg = ep->ctx->conf.max_msg,
		.epoch = conn->epoch,
		.rkey = conn->rx_mr.rkey,
		.raddr = (uint64_t)(uintptr_t)ep->rx[WIRE_REQ],
		.pos = ep->ctx->conf.initial_pos,
		.large_max = ep->ctx->conf.max_large,
	};

	if (ep->large != NULL) {
		wire.large_rkey = wire.rkey;
		wire.large_raddr = wire.raddr + WIRE_AREAS(ep->ring_size);
	}
	if (conn->qp != NULL) /* there is none of a broken endpoint, or after a reset that failed */
		crpc_rdma_qp_addr(conn->qp, wire.qp);
	memcpy(addr, &wire, sizeof(wire));
}

/* What the peer's address says, checked. */
static int
addr_check(const struct crpc_copyrpc_ep *ep, const struct wire_addr *wire)
{
	uint32_t flags = ep_wire_flags(ep), ring = ep->ring_size;
	const struct crpc_field fields[] = {
		{"magic", wire->magic, WIRE_ADDR_MAGIC, WIRE_ADDR_MAGIC},
		{"version", wire->version, WIRE_VERSION, WIRE_VERSION},
		{"flags of flow and arrival", wire->flags, flags, flags},
		{"ring_size", wire->ring_size, ring, ring},
		{"max_msg", wire->max_msg, 1, CRPC_COPYRPC_MSG_MAX(ring)},
		{"position within a unit", wire->pos % WIRE_UNIT, 0, 0},
		{"large_max", wire->large_max, 0, CRPC_COPYRPC_LARGE_MAX}};

	return crpc_address_check(ep->user_id, fields, CRPC_DIM(fields));
}

int
crpc_copyrpc_ep_connect(struct crpc_copyrpc_ep *ep, const uint8_t peer[CRPC_COPYRPC_ADDR_LEN])
{
	struct conn *conn = ep->conn;
	uint64_t ours = ep->ctx->conf.initial_pos;
	struct wire_addr wire;
	int rc;

	if (ep->err != -ENOTCONN)
		return ep->err == 0 ? -EISCONN : ep->err;
	memcpy(&wire, peer, sizeof(wire));
	rc = addr_check(ep, &wire);
	if (rc != 0)
		return rc;
	rc = crpc_rdma_qp_connect(conn->qp, wire.qp);
	if (rc != 0)
		return rc;
	if (conn->in_memory && crpc_rdma_qp_in_order(conn->qp) == 0)
		return crpc_fail(-EOPNOTSUPP,
			"connect: the device does not say that writes appear in order, which "
			"arrival in memory needs: use CRPC_COPYRPC_IMM");
	conn->rkey = wire.rkey;
	conn->peer_epoch = wire.epoch;
	ep->max_msg = (uint32_t)crpc_min(wire.max_msg, ep->ctx->conf.max_msg);
	for (uint32_t lane = 0; lane < WIRE_LANES; lane++) {
		ep->tx[lane].raddr = wire.raddr + (uint64_t)lane * ep->ring_size;
		ep->tx[lane].sent = ours;
		ep->tx[lane].lap = ours & ~(uint64_t)(ep->ring_size - 1);
		ep->tx[lane].next = lane_at(ep, &ep->tx[lane], ours);
		conn->rx_pos[lane] = wire.pos;
	}
	ep->batch = ep->batch_sent = (uint32_t)(ours / WIRE_UNIT);
	ep->flush_seq = ep->done_seq = ep->req_seq = (uint32_t)(ours / WIRE_UNIT);
	__crpc_copyrpc_large_connect(ep, &wire);
	conn->words_raddr = wire.raddr + (uint64_t)WIRE_LANES * ep->ring_size;
	crpc_store_relaxed(&conn->rx_words[WIRE_WORD_RELEASED / 8], wire.pos);
	crpc_store_relaxed(&conn->rx_words[WIRE_WORD_REPORTED / 8], ours);
	if (conn->in_memory)
		ep_list_add(ep, memory);
	conn->peer_released = ours;
	conn->released = wire.pos;
	conn->cleared = wire.pos;
	conn->reported = wire.pos;
	conn->heard_ns = 0;
	ep->ctx->calls[ep->id] = &ep->calls;
	ep->err = 0;
	return 0;
}

void
__crpc_copyrpc_break(struct crpc_copyrpc_ep *ep, int err)
{
	struct crpc_copyrpc *ctx = ep->ctx;

	ep->err = err;
	ctx->stats.ep_errors++;
	memory_remove(ep);
	for (uint32_t lane = 0; lane < WIRE_LANES; lane++) {
		ep->tx[lane].npend = 0;
		ep->tx[lane].limit = NULL;
	}
	if (ep->large != NULL)
		memset(ep->large->tx, 0, sizeof(ep->large->tx));
	if (ctx->cur == ep)
		ctx->cur = NULL;
	ep->conn->alive = 0;
	ctx->calls[ep->id] = NULL;
	ep_list_add(ep, broken);
}

uint16_t
__crpc_copyrpc_broken_take(struct crpc_copyrpc *ctx, struct crpc_done *done, uint16_t n)
{
	struct crpc_copyrpc_ep *ep, *last = TAILQ_LAST(&ctx->broken, ep_list);
	uint16_t k = 0;

	/* each has its turn */
	while (k < n && (ep = TAILQ_FIRST(&ctx->broken)) != NULL) {
		ep_list_del(ep, broken);
		k += __crpc_calls_drop(&ep->calls, -ECONNRESET, &ctx->stats.rpc, done + k, n - k);
		k += __crpc_copyrpc_onesided_fail(ep, done + k, n - k);
		if (ep->calls.open != 0 || ep->conn->onesided.open != 0)
			ep_list_add(ep, broken);
		if (ep == last)
			break;
	}
	return k;
}

bool
__crpc_copyrpc_lie(struct crpc_copyrpc_ep *ep, const char *rule, uint64_t expected, uint64_t found)
{
	crpc_err("endpoint %u (peer %u): the peer broke the protocol: %s: expected %" PRIu64
		 " (0x%" PRIx64 "), found %" PRIu64 " (0x%" PRIx64
		 "); the endpoint is closed, its calls end with -ECONNRESET",
		ep->id, ep->user_id, rule, expected, expected, found, found);
	__crpc_copyrpc_break(ep, -EPROTO);
	return false;
}

void
crpc_copyrpc_ep_shutdown(struct crpc_copyrpc_ep *ep)
{
	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	if (ep->err == 0 || ep->err == -ENOTCONN)
		__crpc_copyrpc_break(ep, -ECONNRESET);
}

int
crpc_copyrpc_ep_status(const struct crpc_copyrpc_ep *ep)
{
	return ep->err;
}

uint32_t
crpc_copyrpc_cancel(struct crpc_copyrpc_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&ep->ctx->owner, "copyrpc context");
	/* those of a broken endpoint end with its error anyway */
	return ep->err != 0 ? 0 : __crpc_calls_cancel(&ep->calls, &ep->ctx->sweep, cookie);
}
