/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtual time. What a sender's card does is known when its host rings the doorbell, as no other
 * host uses that side: the servers of the device are passed then, in the order of posting. What a
 * receiver's card does depends on all senders, so each message comes there as an event:
 *
 *     doorbell --> LAND at the peer's port, [LEAVE of a datagram, whose bytes are read then]
 *     LAND     --> CARRY: it is carried out, its completion is written
 *     CARRY    --> ACK: that of the sender
 *
 * Requests of a queue are carried out in order: an event lets those before it go first, and one
 * that has to wait for a receive is looked at again after time->retry.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "paper.h"

#define PS          1000u /* of a ns */
#define KIB         1024u
#define DEFAULT_MTU 4096u
#define DCI_KEY     0x80000000u /* Initiators and targets share the cache. */
#define DCI_BITS    6u
/* Bytes of a packet beside its payload: Ethernet, IP, UDP, BTH, RETH, immediate, two checksums. */
#define HEAD_BYTES 78u

_Static_assert(CRPC_RDMA_DCIS_MAX <= 1 << DCI_BITS, "each initiator has a key");

enum paper_event_kind {
	LEAVE, /* A datagram leaves. */
	LAND,
	CARRY,
	ACK,
	ARRIVE, /* A datagram, after its LAND. */
};

struct paper_event {
	uint64_t at;  /* ps */
	uint64_t tie; /* Of several at once: drawn, then in order. */
	struct paper_target q;
	uint32_t pos; /* The request's, in its queue. */
	uint32_t kind;
	struct crpc_paper_packet *packet;
};

/* ---- the heap ---- */

static bool
is_before(const struct paper_event *a, const struct paper_event *b)
{
	return a->at != b->at ? a->at < b->at : a->tie < b->tie;
}

static bool
events_grow(struct crpc_paper *net)
{
	uint32_t max = net->max_events == 0 ? 1024 : 2 * net->max_events;
	struct paper_event *more = realloc(net->event, max * sizeof(*more));

	if (more == NULL)
		return false;
	net->event = more;
	net->max_events = max;
	return true;
}

static void
event_add(struct crpc_paper *net, struct paper_event e)
{
	uint32_t i = net->nevents, up;

	if (i == net->max_events && !events_grow(net)) {
		crpc_err("no memory for %u events: one is lost", i);
		return;
	}
	e.tie = crpc_paper_rnd(net) << 32 | ++net->last_event;
	for (net->nevents++; i != 0; i = up) {
		up = (i - 1) / 2;
		if (!is_before(&e, &net->event[up]))
			break;
		net->event[i] = net->event[up];
	}
	net->event[i] = e;
}

/* The same, for request number pos of a queue. */
static void
event_of(struct crpc_paper_queue *q, uint64_t at, uint32_t pos, enum paper_event_kind kind)
{
	event_add(q->net, (struct paper_event){.at = at, .q = q->self, .pos = pos, .kind = kind});
}

static struct paper_event
event_pop(struct crpc_paper *net)
{
	struct paper_event top = net->event[0], last = net->event[--net->nevents];
	uint32_t i = 0, down;

	while ((down = 2 * i + 1) < net->nevents) {
		down += down + 1 < net->nevents &&
			is_before(&net->event[down + 1], &net->event[down]);
		if (!is_before(&net->event[down], &last))
			break;
		net->event[i] = net->event[down];
		i = down;
	}
	net->event[i] = last;
	return top;
}

uint64_t
crpc_paper_next(const struct crpc_paper *net)
{
	return net->nevents == 0 ? UINT64_MAX : (net->event[0].at + PS - 1) / PS;
}

/* ---- servers ---- */

/* Pass a server: when it is done with it. */
static uint64_t
pass(uint64_t *free, uint64_t at, uint64_t occupancy)
{
	*free = crpc_max(*free, at) + occupancy;
	return *free;
}

/* How long the bytes of a message take on a port. */
static uint64_t
wire_time(const struct crpc_paper_time *t, uint64_t len)
{
	uint64_t mtu = t->mtu == 0 ? DEFAULT_MTU : t->mtu;
	uint64_t packets = len == 0 ? 1 : (len + mtu - 1) / mtu;

	return packets * t->packet + (len + packets * HEAD_BYTES) * t->wire / KIB;
}

/* A card with an empty cache, which no device has yet. */
static struct paper_card *
card_new(struct crpc_paper *net, const char *name)
{
	uint64_t n = net->time->cache;
	uint32_t buckets = (uint32_t)crpc_pow2_ceil(2 * n);
	struct paper_card *card = calloc(1, sizeof(*card));

	if (card == NULL)
		return NULL;
	snprintf(card->name, sizeof(card->name), "%s", name);
	TAILQ_INIT(&card->used);
	LIST_INSERT_HEAD(&net->cards, card, link);
	if (n == 0)
		return card;
	card->cached = calloc(n, sizeof(*card->cached));
	card->bucket = calloc(buckets, sizeof(*card->bucket));
	card->bucket_mask = buckets - 1;
	return card;
}

int
__crpc_paper_time_open(struct crpc_paper_dev *dev)
{
	struct crpc_paper *net = dev->net;
	struct paper_card *card = NULL;

	if (dev->conf.dcis == 0 || dev->conf.dcis > CRPC_RDMA_DCIS_MAX)
		dev->conf.dcis = 4;
	if (dev->conf.name != NULL)
		LIST_FOREACH (card, &net->cards, link)
			if (strcmp(card->name, dev->name) == 0)
				break;
	if (card == NULL)
		card = card_new(net, dev->conf.name == NULL ? "" : dev->name);
	dev->card = card;
	if (card == NULL)
		return -ENOMEM;
	card->devs++;
	dev->dci_key = DCI_KEY | card->serial++ << DCI_BITS;
	return net->time->cache != 0 && (card->cached == NULL || card->bucket == NULL) ? -ENOMEM
										       : 0;
}

void
__crpc_paper_time_close(struct crpc_paper_dev *dev)
{
	struct crpc_paper *net = dev->net;
	struct paper_card *card = dev->card;

	if (card != NULL && --card->devs == 0) {
		LIST_REMOVE(card, link);
		free(card->cached);
		free(card->bucket);
		free(card);
	}
	if (net->ndevs != 1)
		return;
	while (net->nevents != 0)
		free(event_pop(net).packet);
	free(net->event);
	net->event = NULL;
	net->max_events = 0;
}

/* The device needs the state of a queue: what it takes to have it. */
static uint64_t
cache_look(struct crpc_paper_dev *dev, uint32_t key)
{
	const struct crpc_paper_time *t = dev->net->time;
	struct paper_card *s = dev->card;
	struct paper_chain *bucket;
	struct paper_cached *c;
	bool hit;

	if (t->cache == 0)
		return 0;
	bucket = &s->bucket[(key * 0x9e3779b1u >> 7) & s->bucket_mask];
	LIST_FOREACH (c, bucket, chain)
		if (c->key == key)
			break;
	hit = c != NULL;
	if (!hit && s->ncached < t->cache) {
		c = &s->cached[s->ncached++];
	} else {
		if (!hit) { /* In the place of the one that was not used for longest. */
			c = TAILQ_LAST(&s->used, paper_used);
			LIST_REMOVE(c, chain);
		}
		TAILQ_REMOVE(&s->used, c, used);
	}
	TAILQ_INSERT_HEAD(&s->used, c, used);
	if (hit)
		return 0;
	c->key = key;
	LIST_INSERT_HEAD(bucket, c, chain);
	dev->counts.cache_misses++;
	return t->cache_miss;
}

/* ---- the sender ---- */

/* A DC queue keeps to its initiator while it has something outstanding; else the next free one. */
static struct paper_dci *
dci_of(struct crpc_paper_queue *q, uint32_t pos)
{
	struct paper_dci *dci = q->dev->dci;

	for (uint32_t i = 0; i < q->dev->conf.dcis && pos == q->acked; i++) {
		if (dci[i].free < dci[q->dci].free)
			q->dci = i;
	}
	return &dci[q->dci];
}

/* The server of the queue, or of its initiator. */
static uint64_t
queue_pass(struct crpc_paper_queue *q, const struct paper_slot *slot, uint32_t pos, uint64_t at,
	uint64_t occupancy)
{
	const struct crpc_paper_time *t = q->net->time;
	struct paper_dci *dci;

	if (q->kind != CRPC_RDMA_DC)
		return pass(&q->free, at, occupancy);
	dci = dci_of(q, pos);
	if (dci->to.key != slot->to.key) {
		dci->to = slot->to;
		occupancy += t->dc_switch;
		q->dev->counts.dc_switches++;
	}
	return pass(&dci->free, at, occupancy);
}

/* One request, whose queue it occupies so long, from there to the peer's port. */
static void
slot_send(struct crpc_paper_queue *q, uint32_t pos, uint64_t at, uint64_t occupancy)
{
	struct paper_slot *slot = &q->sq[pos & q->sq_mask];
	const struct crpc_paper_time *t = q->net->time;
	bool reads = slot->wr.op == CRPC_RDMA_READ;
	struct crpc_paper_dev *dev = q->dev;
	uint64_t miss;

	at += (slot->due_ns - q->net->now_ns) * PS;
	at = queue_pass(q, slot, pos, at, occupancy);
	miss = cache_look(
		dev, q->kind == CRPC_RDMA_DC ? dev->dci_key | q->dci : q->self.index);
	at = pass(&dev->card->wqe, at, t->wqe + miss);
	if (slot->len != 0 && !reads && !(slot->wr.flags & CRPC_RDMA_WR_INLINE))
		at += t->read;
	at = pass(&dev->card->tx, at + t->send, wire_time(t, reads ? 0 : slot->len));
	slot->lands = slot->acked = UINT64_MAX;
	if (slot->wr.op == CRPC_RDMA_SEND_IMM)
		event_of(q, at, pos, LEAVE);
	else
		event_of(q, at + t->propagation, pos, LAND);
}

void
__crpc_paper_time_post(struct crpc_paper_queue *q, uint32_t n, bool blueflame)
{
	struct crpc_paper *net = q->net;
	const struct crpc_paper_time *t = net->time;
	uint64_t now = net->clock == NULL ? net->now_ns : net->clock(net->clock_arg), at;

	at = crpc_max(now, net->now_ns) * PS + t->mmio;
	if (!blueflame)
		at += t->fetch;
	for (uint32_t pos = q->posted - n; pos != q->posted; pos++)
		slot_send(q, pos, at, t->qp + (pos == q->posted - n ? t->doorbell : 0));
}

/* ---- the receiver ---- */

/* A message of that length is at the port of a queue's device: when it is in memory. */
static uint64_t
land(struct crpc_paper_queue *q, uint64_t at, uint32_t len, bool receives)
{
	struct crpc_paper_dev *dev = q->dev;
	const struct crpc_paper_time *t = dev->net->time;
	uint64_t wire = wire_time(t, len);

	/* its last bit comes now, so the port is busy from its first one on */
	at = pass(&dev->card->rx, at - wire, wire);
	at = pass(&dev->card->recv, at,
		(receives ? t->recv : t->land) + cache_look(dev, q->self.index));
	at = pass(&q->recv, at, receives ? t->recv_queue : 0);
	return pass(&dev->recv_cq, at, receives ? t->recv_cq : 0) + t->write;
}

static void
slot_land(struct crpc_paper_queue *q, const struct paper_event *e)
{
	struct paper_slot *slot = &q->sq[e->pos & q->sq_mask];
	struct crpc_paper_queue *peer = __crpc_paper_find(q->net, &slot->to);
	const struct crpc_paper_time *t = q->net->time;
	bool reads = slot->wr.op == CRPC_RDMA_READ;
	uint64_t carried = e->at, back;

	if (peer != NULL) {
		carried = land(
			peer, e->at, reads ? 0 : slot->len, slot->wr.op == CRPC_RDMA_WRITE_IMM);
		back = carried;
		if (reads) {
			back = pass(&peer->dev->card->tx, back + t->read, wire_time(t, slot->len));
			back = land(q, back + t->propagation, slot->len, false);
		}
		slot->acked = back + t->ack;
	}
	slot->lands = carried;
	event_of(q, carried, e->pos, CARRY);
}

/* Again, after a while. */
static void
carry_again(struct crpc_paper_queue *q, uint64_t at)
{
	q->dev->counts.retries++;
	event_of(q, at + crpc_max(q->net->time->retry, PS), q->done, CARRY);
}

/* The sender notices only after its retries that the peer is gone. */
static bool
waits_for_lost(struct crpc_paper_queue *q, const struct paper_slot *slot, uint64_t at)
{
	if (!__crpc_paper_lost(q, __crpc_paper_find(q->net, &slot->to))) {
		q->gone = 0;
		return false;
	}
	if (q->gone == 0)
		q->gone = at;
	return at - q->gone < q->net->time->lost;
}

/*
 * Carry out all requests whose time has come, in order. One that has to wait is tried again; its
 * own event has seen to that already if this is one of those behind it.
 */
static void
queue_carry(struct crpc_paper_queue *q, const struct paper_event *e)
{
	struct paper_slot *slot;
	uint64_t at = e->at;
	uint32_t pos;

	while (q->done != q->posted) {
		pos = q->done;
		slot = &q->sq[pos & q->sq_mask];
		if (slot->lands > at)
			return;
		if (waits_for_lost(q, slot, at) || !__crpc_paper_run(q)) {
			if ((int32_t)(e->pos - pos) <= 0)
				carry_again(q, at);
			return;
		}
		if (!slot->completes || q->broken)
			continue;
		event_of(q, crpc_max(slot->acked, at), pos, ACK);
	}
}

/* ---- datagrams ---- */

/* Its bytes are read, and it is over for the sender. */
static void
dgram_leave(struct crpc_paper_queue *q, const struct paper_event *e)
{
	struct crpc_paper *net = q->net;
	uint32_t flight = net->nflight;
	struct crpc_paper_packet *packet;

	__crpc_paper_run(q);
	if (net->nflight == flight) /* no memory, or it was refused */
		return;
	packet = TAILQ_FIRST(&net->flight);
	TAILQ_REMOVE(&net->flight, packet, link);
	net->nflight = 0;
	event_add(net,
		(struct paper_event){.at = e->at + net->time->propagation,
			.q = packet->to,
			.kind = LAND,
			.packet = packet});
}

static void
dgram_land(struct crpc_paper *net, struct paper_event e)
{
	struct crpc_paper_queue *q = __crpc_paper_find(net, &e.q);

	if (q != NULL)
		e.at = land(q, e.at, e.packet->len, true);
	e.kind = ARRIVE;
	event_add(net, e);
}

/* One that is to arrive twice is in the network again at once. */
static void
dgram_arrive(struct crpc_paper *net, struct crpc_paper_packet *packet)
{
	TAILQ_INSERT_TAIL(&net->flight, packet, link);
	net->nflight = 1;
	while (net->nflight != 0)
		__crpc_paper_flight(net);
}

/* ---- events ---- */

static void
queue_event(struct crpc_paper_queue *q, const struct paper_event *e)
{
	/* a queue that broke, or whose host is dead, has nothing under way any more */
	if (q->dev->dead || (e->kind != ACK && (int32_t)(e->pos - q->done) < 0))
		return;
	switch (e->kind) {
	case LEAVE:
		dgram_leave(q, e);
		break;
	case LAND:
		slot_land(q, e);
		break;
	case CARRY:
		queue_carry(q, e);
		break;
	default:
		while ((int32_t)(e->pos - q->acked) >= 0 && q->acked != q->done)
			__crpc_paper_ack(q);
	}
}

void
crpc_paper_advance(struct crpc_paper *net, uint64_t now_ns)
{
	struct crpc_paper_queue *q;
	struct paper_event e;

	while (net->nevents != 0 && crpc_paper_next(net) <= now_ns) {
		e = event_pop(net);
		net->now_ns = crpc_max(net->now_ns, (e.at + PS - 1) / PS);
		if (e.packet != NULL && e.kind == LAND) {
			dgram_land(net, e);
		} else if (e.packet != NULL) {
			dgram_arrive(net, e.packet);
		} else {
			q = __crpc_paper_find(net, &e.q);
			if (q != NULL)
				queue_event(q, &e);
		}
	}
	net->now_ns = crpc_max(net->now_ns, now_ns);
}
