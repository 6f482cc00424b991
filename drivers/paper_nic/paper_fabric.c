/* SPDX-License-Identifier: BSD-3-Clause */
/* What moves: requests by post, steps and polls, in this order, and the faults on the way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "paper.h"

#define WQE_BLOCK        64u
#define BLUEFLAME_BLOCKS 4u
#define SYNDROME_FLUSH   5u
#define SYNDROME_CAUSE   0x15u
#define MSG_MAX          (1u << 30) /* bytes of a request, as a card has it */

uint64_t
crpc_paper_rnd(struct crpc_paper *net)
{
	return crpc_random(&net->rng);
}

static bool
chance(struct crpc_paper *net, uint32_t of_10000)
{
	return of_10000 != 0 && crpc_paper_rnd(net) % CRPC_PAPER_CHANCE < of_10000;
}

struct crpc_paper_queue *
__crpc_paper_find(const struct crpc_paper *net, const struct paper_target *to)
{
	struct crpc_paper_queue *q = to->index < net->nqueues ? net->queues[to->index] : NULL;

	return q != NULL && q->self.key == to->key ? q : NULL;
}

void
__crpc_paper_deactivate(struct crpc_paper_queue *q)
{
	struct crpc_paper_queue *last = q->net->active[--q->net->nactive];

	q->net->active[q->at] = last;
	last->at = q->at;
}

/* ---- completions ---- */

static void
cq_push(struct crpc_paper_queue *q, struct paper_cqe cqe)
{
	struct crpc_paper_dev *dev = q->dev;

	if (q->drained)
		return;
	cqe.queue = q;
	cqe.cqe.qp_id = q->qp.id;
	/* there is room: cq_reserved counts all requests and receives, and a queue breaks once */
	dev->cq[dev->tail++ & dev->cq_mask] = cqe;
	if (dev->on_cqe != NULL)
		dev->on_cqe(dev->on_cqe_arg, dev->net->now_ns,
			cqe.cqe.type == CRPC_RDMA_CQE_RECV);
}

void
__crpc_paper_purge(struct crpc_paper_queue *q)
{
	struct crpc_paper_dev *dev = q->dev;
	struct crpc_paper_packet *packet, *next;
	uint32_t to = dev->head;

	for (uint32_t from = dev->head; from != dev->tail; from++) {
		if (dev->cq[from & dev->cq_mask].queue == q)
			free(dev->cq[from & dev->cq_mask].packet);
		else
			dev->cq[to++ & dev->cq_mask] = dev->cq[from & dev->cq_mask];
	}
	dev->tail = to;
	for (packet = TAILQ_FIRST(&dev->given); packet != NULL; packet = next) {
		next = TAILQ_NEXT(packet, link);
		if (packet->queue != q)
			continue;
		TAILQ_REMOVE(&dev->given, packet, link);
		free(packet);
	}
}

/* Break a queue. The cause is its oldest request that is not acknowledged (oldest), or something
 * that is not in the queue. */
static void
queue_break(struct crpc_paper_queue *q, int status, bool oldest, uint32_t wr_id, const char *why)
{
	uint32_t i = q->acked + oldest;
	struct paper_cqe cqe = {.send = oldest,
		.retired = i,
		.cqe = {.type = CRPC_RDMA_CQE_ERROR,
			.status = (int16_t)status,
			.syndrome = SYNDROME_CAUSE,
			.wr_id = wr_id}};

	if (q->broken)
		return;
	crpc_err("%s: queue 0x%x: request %u: %s", q->dev->name, q->qp.id, wr_id, why);
	q->broken = true;
	cq_push(q, cqe);
	cqe.send = true;
	cqe.cqe.status = -ECANCELED;
	cqe.cqe.syndrome = SYNDROME_FLUSH;
	while (i != q->posted) {
		cqe.cqe.wr_id = q->sq[i & q->sq_mask].wr.wr_id;
		cqe.retired = ++i;
		cq_push(q, cqe);
	}
	if (q->acked != q->posted)
		__crpc_paper_deactivate(q);
	q->acked = q->done = q->posted;
}

/* ---- moving bytes ---- */

/* Bytes `from` to `to` of a request move between its elements and raddr, lowest address first. */
static void
bytes_move(const struct crpc_rdma_wr *wr, uint8_t *remote, uint32_t from, uint32_t to)
{
	const struct crpc_rdma_sge *sge = wr->sge;
	uint32_t at = 0, lo, hi;
	uint8_t *local;

	for (; at < to; at += sge++->len) {
		lo = (uint32_t)crpc_max(from, at);
		hi = (uint32_t)crpc_min(to, at + sge->len);
		local = (uint8_t *)(uintptr_t)sge->addr + (lo - at);
		if (lo < hi && wr->op == CRPC_RDMA_READ)
			memmove(local, remote + lo, hi - lo);
		else if (lo < hi)
			memmove(remote + lo, local, hi - lo);
	}
}

static bool
region_has(const struct crpc_paper_dev *dev, uint32_t key, uint64_t addr, uint64_t len)
{
	const struct paper_mr *mr;

	if (key % PAPER_MRS_MAX >= dev->nmrs)
		return false;
	mr = &dev->mrs[key % PAPER_MRS_MAX];
	return mr->key == key && mr->len >= len && addr >= mr->addr &&
		addr - mr->addr <= mr->len - len;
}

static bool
local_ok(const struct crpc_paper_queue *q, const struct crpc_rdma_wr *wr)
{
	for (uint32_t i = 0; i < wr->num_sge && !(wr->flags & CRPC_RDMA_WR_INLINE); i++) {
		if (wr->sge[i].len != 0 &&
			!region_has(q->dev, wr->sge[i].lkey, (uintptr_t)wr->sge[i].addr,
				wr->sge[i].len))
			return false;
	}
	return true;
}

/* ---- post ---- */

/* Put a request into a slot. False: it cannot be built. */
static bool
slot_fill(struct crpc_paper_queue *q, struct paper_slot *slot, const struct crpc_rdma_wr *wr)
{
	bool inlined = (wr->flags & CRPC_RDMA_WR_INLINE) != 0;
	uint8_t *bytes = q->inlined + (size_t)(slot - q->sq) * q->inline_max;
	uint64_t len = 0;

	if (wr->num_sge > CRPC_RDMA_SGE_MAX || wr->op > CRPC_RDMA_SEND_IMM ||
		(wr->op == CRPC_RDMA_SEND_IMM) != (q->kind == CRPC_RDMA_UD))
		return false;
	for (uint32_t i = 0; i < wr->num_sge; i++)
		len += wr->sge[i].len;
	if (len > (q->kind == CRPC_RDMA_UD ? q->dev->conf.mtu : MSG_MAX) ||
		(inlined && (wr->op == CRPC_RDMA_READ || len > q->inline_max)))
		return false;
	slot->wr = *wr;
	slot->len = (uint32_t)len;
	slot->moved = 0;
	if (inlined) {
		bytes_move(wr, bytes, 0, slot->len);
		slot->wr.sge[0] = (struct crpc_rdma_sge){.addr = bytes, .len = slot->len};
	}
	return true;
}

/* 64-byte blocks of the WQE that a card would fetch. */
static uint32_t
wqe_blocks(const struct crpc_paper_queue *q, const struct paper_slot *slot)
{
	/* control and remote address, with that of a dynamic peer; or control and peer's address */
	uint32_t bytes = q->kind == CRPC_RDMA_RC ? 32 : q->kind == CRPC_RDMA_DC ? 80 : 64;

	if (!(slot->wr.flags & CRPC_RDMA_WR_INLINE))
		bytes += 16u * slot->wr.num_sge;
	else if (slot->len != 0)
		bytes += (uint32_t)crpc_align_up(4 + slot->len, 16);
	return (bytes + WQE_BLOCK - 1) / WQE_BLOCK;
}

/* Take a request into the send queue. False: not now, or it cannot be built, which breaks it. */
static bool
queue_take(struct crpc_paper_queue *q, const struct crpc_rdma_wr *wr, const struct paper_target *to)
{
	struct paper_slot *slot = &q->sq[q->posted & q->sq_mask];
	struct crpc_paper_counts *counts = &q->dev->counts;
	bool signalled = (wr->flags & CRPC_RDMA_WR_SIGNAL) != 0;
	struct crpc_paper *net = q->net;

	if (q->broken || q->drained || !(q->connected || q->kind == CRPC_RDMA_UD) ||
		q->posted - q->freed == q->sq_depth || q->dev->post_limit == 0 ||
		chance(net, net->refuse))
		return false;
	if (to == NULL || !slot_fill(q, slot, wr)) {
		queue_break(q, -EINVAL, false, wr->wr_id, "it cannot be built");
		return false;
	}
	slot->to = *to;
	slot->due_ns = net->now_ns;
	if (net->delay_ns != 0)
		slot->due_ns += crpc_paper_rnd(net) % (net->delay_ns + 1);
	slot->completes = signalled || ++q->unsignalled >= q->signal_every;
	if (slot->completes)
		q->unsignalled = 0;
	if (q->posted++ == q->acked) {
		q->at = net->nactive++;
		net->active[q->at] = q;
	}
	q->dev->post_limit -= q->dev->post_limit != UINT32_MAX;
	q->dev->base.stats.wqes++;
	q->dev->base.stats.wqebbs += wqe_blocks(q, slot);
	counts->writes += wr->op == CRPC_RDMA_WRITE;
	counts->write_imms += wr->op == CRPC_RDMA_WRITE_IMM;
	counts->reads += wr->op == CRPC_RDMA_READ;
	counts->inlined += (wr->flags & CRPC_RDMA_WR_INLINE) != 0;
	counts->signalled += signalled;
	return true;
}

/* Ring the doorbell for n requests, if there are any. */
static uint16_t
doorbell(struct crpc_paper_queue *q, uint16_t n)
{
	const struct paper_slot *slot = &q->sq[(q->posted - 1) & q->sq_mask];
	struct crpc_paper_dev *dev = q->dev;
	bool blueflame = n == 1 && wqe_blocks(q, slot) <= BLUEFLAME_BLOCKS;

	dev->base.stats.doorbells += n != 0;
	dev->base.stats.blueflame += blueflame;
	if (n != 0 && q->net->time != NULL)
		__crpc_paper_time_post(q, n, blueflame);
	dev->counts.post_max = crpc_max(dev->counts.post_max, n);
	return n;
}

static uint16_t
paper_post(struct crpc_rdma_qp *base, const struct crpc_rdma_wr *wr, uint16_t n)
{
	struct crpc_paper_queue *q = crpc_container_of(base, struct crpc_paper_queue, qp);
	const struct paper_target *to = &q->peer;
	const struct paper_ah *ah;
	uint16_t i;

	for (i = 0; i < n; i++) {
		if (q->kind == CRPC_RDMA_UD) {
			ah = (const struct paper_ah *)wr[i].ah;
			to = ah == NULL ? NULL : &ah->to;
		}
		if (!queue_take(q, &wr[i], to))
			break;
	}
	return doorbell(q, i);
}

/* ---- steps: datagrams ---- */

/* A datagram with the first bytes of another one, if there is one, and others behind them. */
static struct crpc_paper_packet *
packet_new(const struct paper_target *to, uint32_t len, const struct crpc_paper_packet *other)
{
	struct crpc_paper_packet *packet;

	/* Of the exact length, so that a sanitizer finds who reads on. */
	if (posix_memalign((void **)&packet, 64, sizeof(*packet) + len) != 0)
		return NULL;
	packet->to = *to;
	packet->len = len;
	packet->imm = other == NULL ? 0 : other->imm;
	if (other != NULL) {
		memset(packet->data, 0x5a, len);
		memcpy(packet->data, other->data, crpc_min(len, other->len));
	}
	return packet;
}

/* Into a receive buffer. False: there is none, or no queue. */
static bool
packet_arrive(struct crpc_paper *net, struct crpc_paper_packet *packet)
{
	struct crpc_paper_queue *q = packet == NULL ? NULL : __crpc_paper_find(net, &packet->to);
	struct paper_cqe cqe = {.packet = packet, .cqe = {.type = CRPC_RDMA_CQE_DGRAM}};

	if (q == NULL || q->broken || q->dev->dead || q->receives == 0) {
		net->dropped++;
		free(packet);
		return false;
	}
	cqe.cqe.imm = packet->imm;
	cqe.cqe.byte_len = packet->len;
	cqe.cqe.data = packet->data;
	packet->queue = q;
	q->receives--;
	net->delivered++;
	cq_push(q, cqe);
	return true;
}

/* One datagram leaves the network, or stays and leaves a copy. */
void
__crpc_paper_flight(struct crpc_paper *net)
{
	uint64_t i = chance(net, net->reorder) ? crpc_paper_rnd(net) % net->nflight : 0;
	struct crpc_paper_packet *packet = TAILQ_FIRST(&net->flight), *copy;

	while (i-- != 0)
		packet = TAILQ_NEXT(packet, link);
	if (chance(net, net->duplicate)) {
		net->duplicated++;
		packet_arrive(net, packet_new(&packet->to, packet->len, packet));
		return;
	}
	TAILQ_REMOVE(&net->flight, packet, link);
	net->nflight--;
	if (chance(net, net->drop)) {
		free(packet);
		packet = NULL;
	} else if (chance(net, net->corrupt)) {
		copy = packet_new(
			&packet->to, (uint32_t)(crpc_paper_rnd(net) % (PAPER_MTU_MAX + 1)), packet);
		net->corrupted++;
		free(packet);
		packet = copy;
	}
	packet_arrive(net, packet);
}

/* ---- steps: requests ---- */

void
__crpc_paper_ack(struct crpc_paper_queue *q)
{
	const struct paper_slot *slot = &q->sq[q->acked++ & q->sq_mask];

	if (slot->completes)
		cq_push(q,
			(struct paper_cqe){.send = true,
				.retired = q->acked,
				.hidden = !(slot->wr.flags & CRPC_RDMA_WR_SIGNAL),
				.cqe = {.type = CRPC_RDMA_CQE_SEND, .wr_id = slot->wr.wr_id}});
	if (q->acked == q->posted)
		__crpc_paper_deactivate(q);
}

/* Put a datagram into the network; without memory it is lost there. */
static void
dgram_run(struct crpc_paper_queue *q, const struct paper_slot *slot)
{
	struct crpc_paper_packet *packet = packet_new(&slot->to, slot->len, NULL);
	struct crpc_paper *net = q->net;

	q->done++;
	/* it is not acknowledged: it is over when it has left */
	if (!net->hold_acks)
		__crpc_paper_ack(q);
	if (packet == NULL) {
		net->dropped++;
		return;
	}
	bytes_move(&slot->wr, packet->data, 0, slot->len);
	packet->imm = slot->wr.imm;
	if (net->hook != NULL)
		net->hook(net, packet->data, slot->len, &packet->imm, &packet->len);
	packet->len = (uint32_t)crpc_min(packet->len, slot->len);
	TAILQ_INSERT_TAIL(&net->flight, packet, link);
	net->nflight++;
}

/* Carry out what was checked; of a WRITE maybe only a part. */
static void
request_carry(struct crpc_paper_queue *q, struct paper_slot *slot, struct crpc_paper_queue *peer)
{
	struct paper_cqe cqe = {
		.cqe = {.type = CRPC_RDMA_CQE_RECV, .imm = slot->wr.imm, .byte_len = slot->len}};
	uint8_t *remote = (uint8_t *)(uintptr_t)slot->wr.raddr;
	uint32_t left = slot->len - slot->moved, part = left;

	if (slot->wr.op != CRPC_RDMA_READ && left > 1 && chance(q->net, q->net->tear))
		part = (uint32_t)(crpc_paper_rnd(q->net) % left);
	bytes_move(&slot->wr, remote, slot->moved, slot->moved + part);
	slot->moved += part;
	if (part != left)
		return;
	if (slot->wr.op != CRPC_RDMA_READ && q->net->hook != NULL)
		q->net->hook(q->net, remote, slot->len, &cqe.cqe.imm, &cqe.cqe.byte_len);
	q->done++;
	if (slot->wr.op == CRPC_RDMA_WRITE_IMM) {
		peer->receives--;
		cq_push(peer, cqe);
	}
}

/* One that is refused: those before it were acknowledged by that. */
static void
request_refuse(struct crpc_paper_queue *q, uint32_t wr_id, const char *why)
{
	while (q->acked != q->done)
		__crpc_paper_ack(q);
	queue_break(q, -EACCES, true, wr_id, why);
}

bool
__crpc_paper_lost(const struct crpc_paper_queue *q, const struct crpc_paper_queue *peer)
{
	return peer == NULL || peer->broken || peer->drained || peer->dev->dead ||
		(peer->kind == CRPC_RDMA_RC && peer->connected &&
			(peer->peer.index != q->self.index || peer->peer.key != q->self.key));
}

/* The oldest request that is not carried out. False: it has to wait. */
bool
__crpc_paper_run(struct crpc_paper_queue *q)
{
	struct paper_slot *slot = &q->sq[q->done & q->sq_mask];
	const struct crpc_rdma_wr *wr = &slot->wr;
	struct crpc_paper_queue *peer = __crpc_paper_find(q->net, &slot->to);
	bool imm = wr->op == CRPC_RDMA_WRITE_IMM;

	if (slot->due_ns > q->net->now_ns)
		return false;
	if (wr->op != CRPC_RDMA_SEND_IMM && __crpc_paper_lost(q, peer)) {
		queue_break(q, -ECONNRESET, true, q->sq[q->acked & q->sq_mask].wr.wr_id,
			"the peer is gone");
		return true;
	}
	if (wr->op != CRPC_RDMA_SEND_IMM &&
		((!peer->connected && (imm || q->kind == CRPC_RDMA_RC)) ||
			(imm && peer->receives == 0)))
		return false;
	if (!local_ok(q, wr))
		request_refuse(q, wr->wr_id, "local access error: key or bounds");
	else if (wr->op == CRPC_RDMA_SEND_IMM)
		dgram_run(q, slot);
	else if (slot->len != 0 &&
		!region_has(peer->dev, wr->rkey ^ PAPER_RKEY, wr->raddr, slot->len))
		request_refuse(q, wr->wr_id, "remote access error: key or bounds");
	else
		request_carry(q, slot, peer);
	return true;
}

/* False: nothing of this queue can move. */
static bool
queue_step(struct crpc_paper_queue *q)
{
	struct crpc_paper *net = q->net;
	bool run = q->done != q->posted, ack = q->acked != q->done && !net->hold_acks;

	if (q->dev->dead || (!run && !ack))
		return false;
	if (chance(net, net->stall))
		return true;
	if (chance(net, net->fail)) {
		queue_break(q, -EIO, false, 0, "broken by chance");
		return true;
	}
	if (run && !(ack && !net->autorun && crpc_paper_rnd(net) % 2) && __crpc_paper_run(q))
		return true;
	if (ack)
		__crpc_paper_ack(q);
	return ack;
}

/* Each queue with something to do and each datagram in the network has the same chance. */
bool
crpc_paper_step(struct crpc_paper *net)
{
	uint64_t n = net->nactive + net->nflight, start;

	if (net->frozen || n == 0 || net->time != NULL)
		return false;
	start = net->autorun ? 0 : crpc_paper_rnd(net) % n;
	for (uint32_t i = 0; i < net->nactive && start < net->nactive; i++) {
		if (queue_step(net->active[(start + i) % net->nactive]))
			return true;
	}
	if (net->nflight == 0)
		return false;
	__crpc_paper_flight(net);
	return true;
}

void
crpc_paper_run(struct crpc_paper *net)
{
	while (crpc_paper_step(net))
		;
}

/* ---- poll ---- */

/* Account for a completion that is polled. False: it is none of the user's. */
static bool
cqe_take(struct crpc_paper_dev *dev, struct paper_cqe *e)
{
	struct crpc_paper_queue *q = e->queue;

	dev->base.stats.send_cqes += e->cqe.type == CRPC_RDMA_CQE_SEND;
	dev->base.stats.error_cqes += e->cqe.type == CRPC_RDMA_CQE_ERROR;
	if (e->send) {
		q->freed = e->retired;
		if (e->hidden)
			return false;
		e->cqe.wrs = e->retired - q->shown;
		q->shown = e->retired;
	} else if (e->packet != NULL) {
		dev->base.stats.recv_cqes++;
		TAILQ_INSERT_TAIL(&dev->given, e->packet, link);
	} else if (e->cqe.type == CRPC_RDMA_CQE_RECV) {
		dev->base.stats.recv_cqes++;
		dev->base.stats.recv_posted++;
		q->receives++;
	}
	return true;
}

static uint16_t
paper_poll(struct crpc_rdma *base, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;
	struct crpc_paper_packet *packet;
	struct paper_cqe *e;
	uint16_t k = 0;

	/* buffers of the last poll are receives again */
	while ((packet = TAILQ_FIRST(&dev->given)) != NULL) {
		TAILQ_REMOVE(&dev->given, packet, link);
		packet->queue->receives++;
		dev->base.stats.recv_posted++;
		free(packet);
	}
	if (dev->net->autorun)
		crpc_paper_run(dev->net);
	while (k < n && dev->head != dev->tail) {
		e = &dev->cq[dev->head++ & dev->cq_mask];
		if (cqe_take(dev, e))
			cqe[k++] = e->cqe;
	}
	if (dev->head == dev->tail) /* What was used stays in the CPU's cache. */
		dev->head = dev->tail = 0;
	dev->base.stats.polls++;
	dev->base.stats.empty_polls += k == 0;
	return k;
}

const struct crpc_rdma_fp __crpc_paper_fp = {.post = paper_post, .poll = paper_poll};

/* ---- faults and forgeries by call ---- */

static struct crpc_paper_queue *
queue_of(const struct crpc_rdma *base, uint32_t id)
{
	const struct crpc_paper *net = ((const struct crpc_paper_dev *)base)->net;
	struct crpc_paper_queue *q;

	for (uint32_t i = 0; i < net->nqueues; i++) {
		q = net->queues[i];
		if (q != NULL && q->qp.dev == base && q->qp.id == id)
			return q;
	}
	return NULL;
}

int
crpc_paper_fail(struct crpc_rdma *dev, uint32_t id, int16_t status)
{
	struct crpc_paper_queue *q = queue_of(dev, id);

	if (q == NULL)
		return -ENOENT;
	queue_break(q, status, false, 0, "broken by call");
	return 0;
}

int
crpc_paper_forge(struct crpc_rdma *dev, uint32_t id, uint32_t imm, const void *data, uint32_t len)
{
	struct crpc_paper_queue *q = queue_of(dev, id);
	struct crpc_paper_packet *packet;

	if (q == NULL)
		return -ENOENT;
	if (q->receives == 0)
		return -EAGAIN;
	if (q->kind != CRPC_RDMA_UD) {
		q->receives--;
		cq_push(q,
			(struct paper_cqe){
				.cqe = {.type = CRPC_RDMA_CQE_RECV, .imm = imm, .byte_len = len}});
		return 0;
	}
	packet = packet_new(&q->self, len, NULL);
	if (packet == NULL)
		return -ENOMEM;
	packet->imm = imm;
	if (len != 0)
		memcpy(packet->data, data, len);
	packet_arrive(q->net, packet);
	return 0;
}
