/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "fault.h"
#include "pcap.h"
#include "qp.h"

/* Packets that are read from one peer in one pass. */
#define POLL_PACKETS 64u
/* NAKs that wait for room; a peer that makes more and reads none has itself to blame. */
#define LATE_MAX 65536u

/* Checks for life after which a silent peer of another host loses its dynamic connections: 30 s. */
#define SILENT_CHECKS 1500u
/* Those after which a peer of another host without queue pairs and packets is forgotten. */
#define PEER_CHECKS 50u
/* Peers over UDP; who is not known and comes beyond that is not heard. Of those that came by
 * themselves, a host can have SM_SLOTS. */
#define PEERS_MAX 4096u
#define GUESTS_MAX 2048u

static int
peer_tx_open(struct sm_nic *nic, struct sm_peer *p)
{
	uint64_t cookie;
	int rc;

	if (p->tx.ring != NULL || p->dead)
		return 0;
	cookie = sm_direct_open(nic, p);
	if (p->self || nic->udp != NULL) {
		p->tx.ring = sm_wire_ring_local(cookie);
		if (p->tx.ring == NULL)
			return ENOMEM;
		p->out.ring = p->tx.ring;
	}
	if (p->self) {
		p->rx.ring = p->tx.ring;
		sm_direct_attach(nic, p);
	} else if (nic->udp == NULL) {
		rc = p->rx.ring == NULL ? sm_wire_room_keep(nic->wire, p->slot) : 0;
		if (rc == 0)
			rc = sm_wire_ring_create(nic->wire, p->slot, p->gen, cookie, &p->tx.ring);
		if (rc != 0) {
			sm_wire_room_drop(nic->wire, p->slot);
			sm_direct_close(nic, p);
			return rc;
		}
	}
	p->tx.limit = SM_RING_BYTES;
	return 0;
}

/* True for who holds a slot; over UDP for whom packets could reach. */
static bool
is_alive(const struct sm_nic *nic, uint32_t slot, uint32_t gen)
{
	if (nic->udp == NULL)
		return sm_wire_alive(nic->wire, slot, gen);
	return slot < SM_SLOTS && gen >> 24 != 0 && gen >> 28 < 14; /* No multicast. */
}

/* The multiplier is 2^32 / golden ratio: hosts spread; slots of one are neighbours. */
static struct sm_peer_bucket *
bucket_of(struct sm_nic *nic, uint32_t slot, uint32_t gen)
{
	return &nic->by_name[((gen * 0x9e3779b1u >> 16) + slot) % SM_PEER_BUCKETS];
}

struct sm_peer *
sm_peer_find(struct sm_nic *nic, uint32_t slot, uint32_t gen)
{
	struct sm_peer *p;

	LIST_FOREACH(p, bucket_of(nic, slot, gen), name_link)
		if (p->slot == slot && p->gen == gen)
			break;
	return p;
}

/*
 * Find or make the peer of a (slot, generation), with or without a ring to it; NULL: no memory.
 * Over UDP the place of the generation has the host's address. A guest is one that came by itself.
 */
static struct sm_peer *
peer_make(struct sm_nic *nic, uint32_t slot, uint32_t gen, bool guest)
{
	struct sm_peer *p = sm_peer_find(nic, slot, gen);

	if (p == NULL) {
		if (nic->udp != NULL &&
			(nic->npeers == PEERS_MAX || (guest && nic->nguests == GUESTS_MAX)))
			return NULL;
		p = calloc(1, sizeof(*p));
		if (p == NULL)
			return NULL;
		p->guest = guest;
		nic->npeers++;
		nic->nguests += guest;
		p->slot = slot;
		p->gen = gen;
		p->self = slot == nic->slot && (nic->udp == NULL || gen == nic->attr.udp_addr);
		p->dead = !p->self && !is_alive(nic, slot, gen);
		TAILQ_INIT(&p->qps);
		TAILQ_INSERT_TAIL(&nic->peers, p, link);
		LIST_INSERT_HEAD(bucket_of(nic, slot, gen), p, name_link);
	}
	return p;
}

/* The same, with a ring to it. */
static int
peer_of(struct sm_nic *nic, uint32_t slot, uint32_t gen, bool guest, struct sm_peer **peer)
{
	struct sm_peer *p = peer_make(nic, slot, gen, guest);
	int rc;

	if (p == NULL)
		return ENOMEM;
	rc = peer_tx_open(nic, p);
	if (rc != 0) {
		if (TAILQ_EMPTY(&p->qps) && p->rx.ring == NULL)
			sm_peer_free(nic, p);
		return rc;
	}
	*peer = p;
	return 0;
}

/* The address in an IPv4-mapped GID; 0: it is none. */
static uint32_t
gid_addr(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, mapped, sizeof(mapped)) == 0 ? sm_be32(gid + 12) : 0;
}

/* The LID is of one of the host's devices. */
static bool
is_lid_here(const struct sm_nic *nic, uint32_t lid)
{
	return lid - nic->attr.lid < nic->attr.devices;
}

/* The GID is like @own, and of one of the host's devices. */
static bool
is_gid_like(const struct sm_nic *nic, const uint8_t own[16], const uint8_t gid[16])
{
	uint64_t base = sm_be64(own + 8) - nic->attr.device;

	return memcmp(gid, own, 8) == 0 && sm_be64(gid + 8) - base < nic->attr.devices;
}

/* The GID is of one of the host's devices. */
static bool
is_gid_here(const struct sm_nic *nic, const uint8_t gid[16])
{
	return is_gid_like(nic, nic->attr.gid, gid) ||
		(nic->attr.ethernet && is_gid_like(nic, nic->attr.gid_ipv4, gid));
}

int
sm_peer_get(struct sm_nic *nic, const struct ib_uverbs_modify_qp *m, struct sm_peer **peer)
{
	uint32_t slot = m->dest_qp_num >> 16 & (SM_SLOTS - 1);
	const struct ib_uverbs_qp_dest *d = &m->dest;
	bool v2 = d->is_global && sm_gid_kind(nic, d->sgid_index) == 0;

	if (nic->udp != NULL)
		return peer_of(nic, slot, v2 ? gid_addr(d->dgid) : 0, false, peer);
	/* At another address than the host's there is no context. */
	if (d->is_global ? nic->attr.ethernet && !is_gid_here(nic, d->dgid)
			 : d->dlid != 0 && !is_lid_here(nic, d->dlid))
		return peer_of(nic, SM_SLOTS, 0, false, peer);
	return peer_of(nic, slot, sm_wire_gen(nic->wire, slot), false, peer);
}

int
sm_peer_av(struct sm_nic *nic, const struct sm_av *av, struct sm_peer **peer)
{
	uint32_t slot = av->qpn >> 16 & (SM_SLOTS - 1), gen;
	bool global = (av->grh & SM_GRH_PRESENT) != 0;
	struct sm_peer *p;
	int rc;

	*peer = NULL;
	if (nic->udp != NULL) {
		if (global && av->kind == 0)
			*peer = sm_peer_from(nic, slot, gid_addr(av->dgid), false);
		return 0;
	}
	if (global ? !is_gid_here(nic, av->dgid)
		   : nic->attr.grh_required || !is_lid_here(nic, av->dlid))
		return 0;
	gen = sm_wire_gen(nic->wire, slot);
	if (gen == 0)
		return 0;
	rc = peer_of(nic, slot, gen, false, &p);
	if (rc == 0 && !p->dead)
		*peer = p;
	return rc;
}

struct sm_peer *
sm_peer_from(struct sm_nic *nic, uint32_t slot, uint32_t addr, bool guest)
{
	struct sm_peer *p;

	return slot < SM_SLOTS && peer_of(nic, slot, addr, guest, &p) == 0 && !p->dead ? p : NULL;
}

void
sm_peer_free(struct sm_nic *nic, struct sm_peer *p)
{
	sm_fault_forget(nic, p);
	sm_direct_close(nic, p);
	TAILQ_REMOVE(&nic->peers, p, link);
	LIST_REMOVE(p, name_link);
	nic->npeers--;
	nic->nguests -= p->guest;
	if (p->rx.ring != NULL && p->rx.ring != p->tx.ring)
		sm_wire_ring_free(p->rx.ring);
	if (p->tx.ring != NULL) {
		sm_wire_ring_free(p->tx.ring);
		sm_wire_room_drop(nic->wire, p->slot);
	}
	free(p->late);
	free(p);
}

void
sm_peer_join(struct sm_peer *peer, struct sm_qp *qp)
{
	qp->peer = peer;
	TAILQ_INSERT_TAIL(&peer->qps, qp, peer_link);
}

void
sm_peer_leave(struct sm_nic *nic, struct sm_qp *qp)
{
	if (qp->peer != &nic->nowhere)
		TAILQ_REMOVE(&qp->peer->qps, qp, peer_link);
	qp->peer = &nic->nowhere;
}

void
sm_peer_discover(struct sm_nic *nic)
{
	struct sm_ring *ring;
	uint32_t src, gen;

	/* Over UDP the net only gives slots, and peers are named otherwise. */
	while (nic->udp == NULL && (ring = sm_wire_ring_take(nic->wire, &src, &gen)) != NULL) {
		struct sm_peer *p = peer_make(nic, src, gen, true);

		if (p == NULL || p->rx.ring != NULL) {
			sm_wire_ring_free(ring);
			continue;
		}
		p->rx.ring = ring;
		sm_direct_attach(nic, p);
		(void)peer_tx_open(nic, p); /* Else later again: it is not heard before. */
	}
}

static crpc_noinline void
peer_dead(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_qp *qp, *next;

	p->dead = true;
	SM_FOREACH_SAFE (qp, &p->qps, peer_link, next)
		if (qp->dc.dct != NULL)
			sm_dct_conn_free(nic, qp);
		else
			sm_sq_peer_dead(nic, qp);
}

static bool
packet_sane(const struct sm_rx *rx, uint32_t head)
{
	uint32_t len = head & 0xffff;
	uint32_t left = SM_RING_BYTES - (uint32_t)(rx->pos & (SM_RING_BYTES - 1));

	return len <= SM_FRAG && sm_pkt_bytes(len) <= left;
}

/* Packets that are neither requests nor answers with bytes; false: it is another peer's turn. */
static crpc_noinline bool
packet_other(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h, const uint8_t *payload)
{
	switch (sm_pkt_kind(h->head)->group) {
	case SM_PKTS_DATAGRAM:
		sm_datagram_receive(nic, h, payload);
		return true;
	case SM_PKTS_CONTROL:
		sm_dct_control(nic, p, h);
		return true;
	case SM_PKTS_REF:
		if (!sm_direct_packet(nic, p, h, payload))
			break;
		if (p->rx.run < SM_DIRECT_PIECE)
			return true;
		p->rx.run = 0;
		return false;
	default:
		break;
	}
	peer_dead(nic, p); /* It wrote a bad packet. */
	return false;
}

bool
sm_peer_packet(
	struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h, const uint8_t *payload)
{
	uint8_t group = sm_pkt_kind(h->head)->group;

	if (crpc_likely(group == SM_PKTS_REQUEST))
		sm_resp_request(nic, p, h, payload, NULL);
	else if (crpc_likely(group == SM_PKTS_ANSWER))
		sm_sq_answer(nic, p, h, payload, NULL);
	else
		return packet_other(nic, p, h, payload);
	return true;
}

void
sm_peer_late(struct sm_peer *p)
{
	uint32_t i = 0;

	if (p->nlate == 0)
		return;
	while (i < p->nlate && sm_tx_send(&p->tx, 0, &p->late[i], SM_PKT_NAK))
		i++;
	p->nlate -= i;
	memmove(p->late, p->late + i, p->nlate * sizeof(*p->late));
}

uint32_t
sm_peer_poll(struct sm_nic *nic, struct sm_peer *p)
{
	bool faults = nic->fault != NULL, more = true;
	struct sm_rx *rx = &p->rx;
	struct sm_pkt *pkt;
	struct sm_hdr h;
	uint32_t n, head;

	if (crpc_unlikely(p->nlate != 0 && !p->dead))
		sm_peer_late(p);
	for (n = 0; n < POLL_PACKETS && more && rx->ring != NULL; n++) {
		pkt = sm_rx_peek(rx, &head);
		if (pkt == NULL)
			break;
		if (crpc_unlikely(!packet_sane(rx, head))) {
			peer_dead(nic, p);
			break;
		}
		/* The next line is on its way from the other core while this packet is handled. */
		crpc_prefetch(sm_ring_at(rx->ring, rx->pos + sm_pkt_bytes(head & 0xffff)));
		sm_pkt_get(pkt, head, &h);
		if (crpc_unlikely(nic->pcap != NULL && sm_pkt_kind(head)->group > SM_PKTS_BAD &&
			    sm_pkt_kind(head)->group < SM_PKTS_REF))
			sm_pcap_ring(nic, p, &h, (const uint8_t *)pkt + sizeof(*pkt));
		/* References that were sent before the faults began are spared. */
		if (crpc_unlikely(faults) && sm_pkt_kind(head)->group != SM_PKTS_REF)
			sm_fault_packet(nic, p, &h, (const uint8_t *)pkt + sizeof(*pkt));
		else
			more = sm_peer_packet(nic, p, &h, (const uint8_t *)pkt + sizeof(*pkt));
		sm_rx_done(rx, head & 0xffff);
	}
	if (crpc_unlikely(n != 0 && p->tx.reclaimed != p->tx.refs))
		sm_direct_reclaim(&p->tx);
	p->was_busy = p->busy;
	p->busy = n != 0;
	p->heard |= p->busy;
	return n;
}

void
sm_peer_nak(struct sm_peer *p, const struct sm_hdr *h, enum sm_nak why)
{
	struct sm_hdr nak = {
		.dst = (h->src & SM_PSN_MASK) | (h->dst & ~SM_PSN_MASK),
		.src = (h->dst & SM_PSN_MASK) | (h->src & (SM_SRC_KIND & ~SM_SRC_LIMITED)),
		.psn = h->psn,
		.imm = why,
	};

	if (p->dead || p->tx.ring == NULL)
		return;
	if (p->nlate == p->late_room) {
		uint32_t n = p->late_room == 0 ? 64 : p->late_room * 2;
		struct sm_hdr *late = n > LATE_MAX ? NULL : realloc(p->late, n * sizeof(*late));

		if (late == NULL)
			return;
		p->late = late;
		p->late_room = n;
	}
	p->late[p->nlate++] = nak;
	sm_peer_late(p);
}

/* A peer of another host, of no more use. */
static bool
is_forgettable(const struct sm_peer *p)
{
	return TAILQ_EMPTY(&p->qps) && p->nlate == 0 && p->checks > PEER_CHECKS &&
		(p->tx.ring == NULL || p->out.pos == p->tx.pos);
}

void
sm_peer_check(struct sm_nic *nic)
{
	struct sm_peer *p, *next;

	sm_peer_discover(nic); /* Rings for which there was no memory at first. */
	SM_FOREACH_SAFE (p, &nic->peers, link, next) {
		if (p->self)
			continue;
		if (p->rx.ring != NULL)
			(void)peer_tx_open(nic, p);
		p->checks = p->heard ? 0 : p->checks + 1;
		if (nic->udp != NULL && p->checks == SILENT_CHECKS)
			sm_dct_silent(nic, p);
		if (nic->udp != NULL && is_forgettable(p)) {
			sm_peer_free(nic, p);
			continue;
		}
		if (!p->dead && !p->heard && !is_alive(nic, p->slot, p->gen)) {
			/* What it sent before it died still counts. */
			while (!p->dead && sm_peer_poll(nic, p) != 0)
				;
			peer_dead(nic, p);
		}
		p->heard = false;
		if (p->dead && TAILQ_EMPTY(&p->qps))
			sm_peer_free(nic, p);
	}
}
