/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_WIRE_H
#define SOFT_MLX5_WIRE_H

/**
 * @file
 * The wire between the contexts of one host: who is on it, and rings of packets.
 *
 *     /dev/shm/soft_mlx5.<uid>.<net>/         0700
 *         net                                 who holds which slot; rings that await their reader
 *         r.<src>.<gen>.<dst>.<gen>           a ring; unlinked as soon as its reader has mapped it
 *
 * A slot belongs to whoever holds the kernel's lock on its byte of the file `net`: the kernel drops
 * it when the process dies. A slot has a generation, and a ring is made for two (slot, generation)
 * pairs, so nothing of a dead owner reaches the next one. doc/protocol/soft_mlx5_wire.md has the
 * format.
 *
 * A ring has one writer and one reader. A packet is a header of 32 bytes and its payload, rounded
 * up to whole cache lines. The word `head` of a packet is its valid flag: it is written last, and
 * the word in the place of the next packet is cleared before, so a packet of 32 payload bytes moves
 * one cache line and there is no index to share but the reader's position, published seldom.
 */

#include "crpc_atomic.h"
#include "crpc_util.h"
#include "nic.h"

#define SM_WIRE_MAGIC UINT64_C(0x35786c6d74666f73) /* "softmlx5" */
#define SM_WIRE_VERSION 6u
#define SM_RING_BYTES (256u << 10)
/** Payload bytes of one packet, a multiple of every MTU; longer messages go in several. */
#define SM_FRAG 8192u
/** Ring bytes that requests leave to acknowledgements and responses. */
#define SM_RING_RESERVE (SM_RING_BYTES / 8)

enum sm_pkt_type {
	SM_PKT_NONE, /**< Nothing written here yet. */
	SM_PKT_PAD,  /**< The next packet is at the start of the ring. */
	SM_PKT_SEND,
	SM_PKT_WRITE,
	SM_PKT_READ,
	SM_PKT_CMP_SWAP,
	SM_PKT_FETCH_ADD,
	SM_PKT_ACK,
	SM_PKT_NAK,
	SM_PKT_READ_RESP,
	SM_PKT_ATOMIC_RESP,
	SM_PKT_DATAGRAM,
	SM_PKT_CONNECT,    /**< What follows is for a DCT: begin to receive at psn. */
	SM_PKT_DISCONNECT, /**< Everything was acknowledged, nothing follows. */
	SM_PKT_SEND_REF,   /**< As without _REF, and the payload says where the bytes are. */
	SM_PKT_WRITE_REF,
	SM_PKT_READ_RESP_REF,
	SM_PKT_TYPES,
};

/** What packets are for. */
enum sm_pkt_group {
	SM_PKTS_BAD, /**< Nothing that a ring's reader takes. */
	SM_PKTS_REQUEST,
	SM_PKTS_ANSWER,
	SM_PKTS_DATAGRAM,
	SM_PKTS_CONTROL,
	SM_PKTS_REF,
};

/** What a type of packet is. */
struct sm_pkt_kind {
	uint8_t group;
	bool data;     /**< Its payload is a part of a message, in packets of the path's MTU. */
	uint8_t plain; /**< With _REF: the type without; ... */
	uint8_t ref;   /**< ... and the other way round. */
};

static const struct sm_pkt_kind sm_pkt_kinds[SM_PKT_TYPES] = {
	[SM_PKT_SEND] = {SM_PKTS_REQUEST, true, .ref = SM_PKT_SEND_REF},
	[SM_PKT_WRITE] = {SM_PKTS_REQUEST, true, .ref = SM_PKT_WRITE_REF},
	[SM_PKT_READ] = {SM_PKTS_REQUEST},
	[SM_PKT_CMP_SWAP] = {SM_PKTS_REQUEST},
	[SM_PKT_FETCH_ADD] = {SM_PKTS_REQUEST},
	[SM_PKT_ACK] = {SM_PKTS_ANSWER},
	[SM_PKT_NAK] = {SM_PKTS_ANSWER},
	[SM_PKT_READ_RESP] = {SM_PKTS_ANSWER, true, .ref = SM_PKT_READ_RESP_REF},
	[SM_PKT_ATOMIC_RESP] = {SM_PKTS_ANSWER},
	[SM_PKT_DATAGRAM] = {SM_PKTS_DATAGRAM},
	[SM_PKT_CONNECT] = {SM_PKTS_CONTROL},
	[SM_PKT_DISCONNECT] = {SM_PKTS_CONTROL},
	[SM_PKT_SEND_REF] = {SM_PKTS_REF, .plain = SM_PKT_SEND},
	[SM_PKT_WRITE_REF] = {SM_PKTS_REF, .plain = SM_PKT_WRITE},
	[SM_PKT_READ_RESP_REF] = {SM_PKTS_REF, .plain = SM_PKT_READ_RESP},
};

enum sm_pkt_flag {
	SM_PKT_FIRST = 1,
	SM_PKT_LAST = 2,
	SM_PKT_IMM = 4,
	SM_PKT_INV = 8,
	SM_PKT_SE = 16,
};

/** Why a request was refused; in `imm` of a NAK. */
enum sm_nak {
	SM_NAK_RNR = 1, /**< No receive WQE; `rkey` holds the timer code. */
	/** No such queue pair here, or not the expected number: try again later. */
	SM_NAK_LOST,
	SM_NAK_INVALID,
	SM_NAK_ACCESS,
	SM_NAK_OP,
	SM_NAK_RECONNECT, /**< The DCT has no such connection: connect again. */
	SM_NAK_SEQUENCE,  /**< Something before it is missing: again from psn on. */
	SM_NAK_STALE,     /**< What it refers to could not be read: again from psn on. */
	SM_NAK_COOKIE,    /**< UDP: connect again with the word in raddr, for we do not know you. */
};

/** A packet's header as it is used: a copy, which its writer cannot change any more. */
struct sm_hdr {
	uint32_t head; /**< payload bytes | type << 16 | flags << 24. */
	uint32_t dst;  /**< QPN of the receiver | epoch << 24. */
	uint32_t src;  /**< QPN of the sender | SM_SRC_KIND. */
	uint32_t psn;  /**< Number of its first packet of the path's MTU, 24 bits. */
	/**
	 * CONNECT: the key of the DCT. DATAGRAM: see SM_GRH_PRESENT. READ_RESP: bytes before. ACK,
	 * NAK: messages completed.
	 */
	uint64_t raddr;
	uint32_t rkey; /**< DATAGRAM: Q_Key. */
	/**
	 * SEND and WRITE, LAST: immediate or key, big endian as in the WQE; READ, and WRITE that is
	 * FIRST and not LAST: the bytes of all. READ_RESP, ATOMIC_RESP: messages completed.
	 */
	uint32_t imm;
};

/** In src: a packet of RoCE v1, which a queue pair of v2 does not know, nor the other way round. */
#define SM_SRC_ROCE_V1 (1u << 24)
/** In src: of the second partition of the port. */
#define SM_SRC_PKEY (2u << 24)
/** In src: of a limited member, which another one, such as all of that partition, does not know. */
#define SM_SRC_LIMITED (4u << 24)
#define SM_SRC_KIND (7u << 24)

/** The type of a packet, as its head says. */
static inline uint32_t
sm_pkt_type(uint32_t head)
{
	return head >> 16 & 0xff;
}

static inline const struct sm_pkt_kind *
sm_pkt_kind(uint32_t head)
{
	uint32_t type = sm_pkt_type(head);

	return &sm_pkt_kinds[crpc_likely(type < SM_PKT_TYPES) ? type : SM_PKT_NONE];
}

/** A datagram's raddr: what the receiver's GRH is made of. */
#define SM_GRH_PRESENT (UINT64_C(1) << 63)
/** Over UDP: the sender's IPv4 address in the lower half, and nothing else. */
#define SM_GRH_IPV4 (UINT64_C(1) << 62)
#define SM_GRH_HOPS(w) ((uint8_t)((w) >> 32))
#define SM_GRH_DEVICE_SHIFT 40 /**< Which of the host's devices sent it. */
#define SM_GRH_DEVICE(w) ((uint8_t)((w) >> SM_GRH_DEVICE_SHIFT))
#define SM_GRH_CLASS_FLOW(w) ((uint32_t)(w)) /**< Traffic class << 20 | flow label. */
#define SM_GRH_BYTES 40u

/**
 * The same in the ring, native endian: a ring never leaves its host. All fields are atomic, so that
 * each is read exactly once and by its own width: a wide load over narrow stores that are still in
 * the store buffer (our own ring) stalls.
 */
struct sm_pkt {
	_Atomic uint32_t head; /**< 0: not there yet. */
	_Atomic uint32_t dst;
	_Atomic uint32_t src;
	_Atomic uint32_t psn;
	_Atomic uint64_t raddr;
	_Atomic uint32_t rkey;
	_Atomic uint32_t imm;
};
_Static_assert(sizeof(struct sm_pkt) == 32, "half a line, so that 32 payload bytes fill it");

/** A ring in shared memory. */
struct sm_ring {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;
	uint32_t id[4];     /**< Slot and generation of the writer, of the reader. */
	uint64_t cookie;    /**< By which the reader finds the writer's grants; 0: it has none. */
	uint8_t guard0[CRPC_CACHE_GUARD - 40];
	_Atomic uint64_t taken; /**< Bytes that the reader is done with. Written by the reader. */
	_Atomic uint64_t pulled; /**< References that it is done with. */
	_Atomic uint32_t direct; /**< 1: the reader takes references; direct.h. */
	uint8_t guard1[CRPC_CACHE_GUARD - 20];
	uint8_t data[SM_RING_BYTES];
};
_Static_assert(offsetof(struct sm_ring, cookie) == 32 && offsetof(struct sm_ring, taken) == 128 &&
		offsetof(struct sm_ring, direct) == 144 && offsetof(struct sm_ring, data) == 256,
	"the format of the wire");

/** The writer's view. */
struct sm_tx {
	struct sm_ring *ring;
	uint64_t pos;
	uint64_t limit; /**< Writing up to here overwrites nothing unread. */
	struct sm_grants *grants; /**< NULL: no references. */
	uint64_t refs;      /**< References written ... */
	uint64_t reclaimed; /**< ... and known to be done with. */
	uint32_t open_bytes; /**< Of those between. */
};

/** The reader's view. */
struct sm_rx {
	struct sm_ring *ring;
	uint64_t pos;
	uint64_t published; /**< What `taken` of the ring says. */
	uint64_t pulled; /**< References that we are done with. */
	/** Of a writer in this process; NULL: in another one, or none. */
	struct sm_grants *grants;
	uint32_t run; /**< Bytes copied since the last poll ended for their number. */
};

static inline void
sm_pkt_get(struct sm_pkt *p, uint32_t head, struct sm_hdr *h)
{
	h->head = head;
	h->dst = crpc_load_relaxed(&p->dst);
	h->src = crpc_load_relaxed(&p->src);
	h->psn = crpc_load_relaxed(&p->psn);
	h->raddr = crpc_load_relaxed(&p->raddr);
	h->rkey = crpc_load_relaxed(&p->rkey);
	h->imm = crpc_load_relaxed(&p->imm);
}

struct sm_pkt_room {
	struct sm_pkt *pkt;
	uint8_t *payload;
	uint32_t bytes;
};

static inline uint32_t
sm_pkt_bytes(uint32_t len)
{
	return (uint32_t)crpc_align_up(sizeof(struct sm_pkt) + len, CRPC_CACHE_LINE);
}

static inline struct sm_pkt *
sm_ring_at(struct sm_ring *ring, uint64_t pos)
{
	return (struct sm_pkt *)(void *)(ring->data + (pos & (SM_RING_BYTES - 1)));
}

/** Find room for a packet of @p len payload bytes and leave @p keep bytes free behind it. */
static inline bool
sm_tx_room(struct sm_tx *tx, uint32_t len, uint32_t keep, struct sm_pkt_room *room)
{
	uint32_t bytes = sm_pkt_bytes(len);
	uint32_t left = SM_RING_BYTES - (uint32_t)(tx->pos & (SM_RING_BYTES - 1));
	/* One line always fits: positions are multiples of a line. */
	uint32_t pad = bytes > CRPC_CACHE_LINE && bytes > left ? left : 0;
	uint64_t end = tx->pos + pad + bytes + CRPC_CACHE_LINE + keep;

	if (crpc_unlikely(end > tx->limit)) {
		/* T1 pairs with T0 in sm_rx_done(). */
		tx->limit = crpc_load_acquire(&tx->ring->taken) + SM_RING_BYTES;
		if (end > tx->limit)
			return false;
	}
	if (crpc_unlikely(pad != 0)) {
		struct sm_pkt *p = sm_ring_at(tx->ring, tx->pos);

		tx->pos += pad;
		crpc_store_relaxed(&sm_ring_at(tx->ring, tx->pos)->head, 0);
		crpc_store_release(&p->head, (uint32_t)SM_PKT_PAD << 16);
	}
	room->pkt = sm_ring_at(tx->ring, tx->pos);
	room->payload = (uint8_t *)room->pkt + sizeof(struct sm_pkt);
	room->bytes = bytes;
	return true;
}

/** Hand the packet in @p room, with @p len bytes of payload, to the reader. */
static inline void
sm_tx_commit(struct sm_tx *tx, const struct sm_pkt_room *room, const struct sm_hdr *h,
	uint32_t len, enum sm_pkt_type type, uint32_t flags)
{
	struct sm_pkt *p = room->pkt;

	crpc_store_relaxed(&p->dst, h->dst);
	crpc_store_relaxed(&p->src, h->src);
	crpc_store_relaxed(&p->psn, h->psn);
	crpc_store_relaxed(&p->raddr, h->raddr);
	crpc_store_relaxed(&p->rkey, h->rkey);
	crpc_store_relaxed(&p->imm, h->imm);
	tx->pos += room->bytes;
	crpc_store_relaxed(&sm_ring_at(tx->ring, tx->pos)->head, 0);
	/*
	 * P0: the packet and the cleared word behind it are seen by who sees head; pairs with P1.
	 */
	crpc_store_release(&p->head, len | (uint32_t)type << 16 | flags << 24);
}

/** A packet without payload; false: no room. */
static inline bool
sm_tx_send(struct sm_tx *tx, uint32_t keep, const struct sm_hdr *h, enum sm_pkt_type type)
{
	struct sm_pkt_room room;

	if (!sm_tx_room(tx, 0, keep, &room))
		return false;
	sm_tx_commit(tx, &room, h, 0, type, 0);
	return true;
}

/** The next packet, or NULL. */
static inline struct sm_pkt *
sm_rx_peek(struct sm_rx *rx, uint32_t *head)
{
	struct sm_pkt *p = sm_ring_at(rx->ring, rx->pos);

	/* P1 pairs with P0 in sm_tx_commit(). */
	*head = crpc_load_acquire(&p->head);
	if (*head == 0)
		return NULL;
	if (crpc_unlikely(sm_pkt_type(*head) == SM_PKT_PAD)) {
		rx->pos = (rx->pos | (SM_RING_BYTES - 1)) + 1;
		p = sm_ring_at(rx->ring, rx->pos);
		*head = crpc_load_acquire(&p->head);
		if (*head == 0 || sm_pkt_type(*head) == SM_PKT_PAD)
			return NULL;
	}
	return p;
}

/** The packet of @p len payload bytes at the reader's position was used. */
static inline void
sm_rx_done(struct sm_rx *rx, uint32_t len)
{
	rx->pos += sm_pkt_bytes(len);
	if (crpc_unlikely(rx->pos - rx->published >= SM_RING_BYTES / 8)) {
		rx->published = rx->pos;
		/* T0: reads of the packets come before; pairs with T1 in sm_tx_room(). */
		crpc_store_release(&rx->ring->taken, rx->pos);
	}
}

struct sm_wire;

/** Attach to net @p name; errors as sm_nic_create(). */
int sm_wire_open(const char *name, struct sm_wire **wire, uint32_t *slot);
void sm_wire_close(struct sm_wire *wire);
/** Leave as a process leaves that is killed; only sm_wire_close() may follow. */
void sm_wire_vanish(struct sm_wire *wire);
/** In a forked child: drop the mapping and the descriptor, let the parent's slot be. */
void sm_wire_fork_child(struct sm_wire *wire);
/** Who holds @p slot now; 0: free (the word may lag behind a death). */
uint32_t sm_wire_gen(struct sm_wire *wire, uint32_t slot);
/** True if generation @p gen of @p slot is held by a living process. A system call. */
bool sm_wire_alive(struct sm_wire *wire, uint32_t slot, uint32_t gen);
/** A ring of this process to itself, or NULL. Pages never written to stay without memory. */
struct sm_ring *sm_wire_ring_local(uint64_t cookie);
/** Make the ring from us to (dst, gen) and notify its reader. */
int sm_wire_ring_create(
	struct sm_wire *wire, uint32_t dst, uint32_t gen, uint64_t cookie, struct sm_ring **ring);
/**
 * Keep the address space that the ring from @p slot will need, so that who connects to it learns at
 * once that there is none. ENOMEM.
 */
int sm_wire_room_keep(struct sm_wire *wire, uint32_t slot);
void sm_wire_room_drop(struct sm_wire *wire, uint32_t slot);
/** A number that changes when somebody made a ring to us; R1 pairs with R0, its release. */
const _Atomic uint32_t *sm_wire_rings(struct sm_wire *wire);
/** Take the next ring made to us: its sender in @p src and @p gen. NULL: no more. */
struct sm_ring *sm_wire_ring_take(struct sm_wire *wire, uint32_t *src, uint32_t *gen);
void sm_wire_ring_free(struct sm_ring *ring);

#endif
