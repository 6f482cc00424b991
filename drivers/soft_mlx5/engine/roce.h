/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ROCE_H
#define SOFT_MLX5_ROCE_H

/**
 * @file
 * RoCEv2: what goes over the wire between hosts, and into captures, as the InfiniBand specification
 * (volume 1, chapter 9, and annex A17) has it.
 *
 *     IPv4, UDP 4791 | BTH | RETH, AtomicETH, AETH, DETH, ImmDt, ... | payload, padding | ICRC
 *
 *     packet of a ring -- sm_roce_piece() --> struct sm_roce -- sm_roce_put() --> bytes
 *     bytes -- sm_roce_get() --> struct sm_roce -- sm_roce_hdr() --> packet as of a ring
 *
 * Pure functions on the caller's memory; what comes in is hostile until sm_roce_get() took it.
 */

#include "wire.h"

#define SM_ROCE_PORT 4791u
#define SM_ROCE_ICRC 4u
/** The opcode of a request for a connection to a DCT; word[0] is the sender's cookie. */
#define SM_ROCE_OP_CONNECT (SM_ROCE_DC | 0x18u)
/** From BTH to ICRC: the longest headers are BTH, our DCETH, and those of an atomic. */
#define SM_ROCE_HEADERS 60u
#define SM_ROCE_BYTES (SM_ROCE_HEADERS + SM_MTU_BYTES + SM_ROCE_ICRC)

/** The upper bits of an opcode. */
enum sm_roce_transport {
	SM_ROCE_RC = 0x00,
	SM_ROCE_UC = 0x20,
	SM_ROCE_UD = 0x60,
	/** Of the manufacturer's own, of which the public knows nothing: our own form. */
	SM_ROCE_DC = 0xc0,
};

/** A packet in native words. What its opcode has no place for is not looked at. */
struct sm_roce {
	/**
	 * BTH, DETH, DCETH: dst, src, psn. RETH, AtomicETH: raddr, rkey. DETH: the Q_Key as rkey.
	 * ImmDt, IETH: imm. Or all of them as in a ring, see sm_roce_hdr().
	 */
	struct sm_hdr h;
	uint8_t opcode;
	bool solicited;
	bool ack_req;
	uint32_t syndrome; /**< AETH: one byte. */
	uint32_t dma_len;
	uint32_t msn;     /**< AETH. */
	uint64_t key;     /**< DCETH: of the DCT. */
	uint32_t life;    /**< DCETH: of the DCI. */
	uint32_t age;     /**< DCETH: one byte, seconds without an acknowledgement. */
	uint64_t word[2]; /**< AtomicETH: swap or add, compare; AtomicAckETH; a cookie. */
	const uint8_t *payload;
	uint32_t len;
};

/** What the ICRC covers besides the packet. Native words. */
struct sm_roce_path {
	uint32_t src, dst; /**< IPv4. */
	uint16_t sport, dport;
};

/** Before the first use of sm_roce_icrc(). */
void sm_roce_init(void);
/** Piece @p i of the packet of a ring, which is one message or a part of it; false: no more. */
bool sm_roce_piece(const struct sm_hdr *h, const uint8_t *payload, uint32_t mtu_shift,
	enum sm_roce_transport transport, uint32_t i, struct sm_roce *p);
/** Write what @p p says, without the ICRC, to SM_ROCE_BYTES at @p to; its bytes, 0: it is none. */
uint32_t sm_roce_put(const struct sm_roce *p, uint8_t *to);
/** Read @p n bytes, without the ICRC; false: no packet. The payload stays where it is. */
bool sm_roce_get(const uint8_t *from, uint32_t n, struct sm_roce *p);
/** Make p->h as of a ring, with the payload at p->payload; false: nothing that a ring carries. */
bool sm_roce_hdr(struct sm_roce *p);
/** The headers of IPv4 and UDP before @p n bytes, ICRC included. */
#define SM_ROCE_IP_UDP 28u
void sm_roce_ip_udp(const struct sm_roce_path *path, uint32_t n, uint8_t to[SM_ROCE_IP_UDP]);
/** The ICRC of @p n bytes behind these headers, as the four bytes that follow them. */
void sm_roce_icrc(const uint8_t ip_udp[SM_ROCE_IP_UDP], const uint8_t *packet, uint32_t n,
	uint8_t icrc[SM_ROCE_ICRC]);

#endif
