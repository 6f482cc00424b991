/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDRPC_WIRE_H
#define UDRPC_WIRE_H

/**
 * @file
 * The bytes of doc/protocol/udrpc_wire.md: one packet is one datagram, a head of 28 bytes and a
 * piece of a message. 28, so that a call of 32 bytes is a datagram of 60, which with control,
 * address and inline head is a WQE of two 64-byte blocks.
 */

#include <stdint.h>

#include "crpc_util.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little endian");

#define WIRE_MAGIC      0xd5u
#define WIRE_VERSION    2u
#define WIRE_ADDR_MAGIC 0x50524455u /* "UDRP" */
#define WIRE_ONEWAY     UINT32_MAX  /* wire_pkt.arg of a notification */

/** Who sends what; C: client, S: server. */
enum wire_type {
	WIRE_REQ,  /**< C: a piece of a request. */
	WIRE_RESP, /**< S: a piece of a response; returns a credit. */
	WIRE_CR,   /**< S: returns the credit of a request's packet that gets no response. */
	WIRE_RFR,  /**< C: asks for a piece of a response behind the first. */
	WIRE_NOP,  /**< Means nothing; its sender wants its own completion. */
	WIRE_BYE,  /**< The session has ended. */
	WIRE_TYPES,
};

/** Of a packet of this type: wire_pkt.kind. */
#define WIRE_KIND(type) (uint8_t)(WIRE_VERSION << 4 | (unsigned int)(type))

/** Head of a packet. */
struct wire_pkt {
	uint8_t magic;
	uint8_t kind; /**< Version in bits 7-4, enum wire_type in bits 3-0. */
	uint16_t slot;
	uint32_t session; /**< The receiver's number of the session, */
	uint32_t token;   /**< and of its life. */
	uint32_t req;     /**< Number of the request in its slot, from 1. */
	uint16_t pkt;     /**< Number of the piece, from 0. */
	uint16_t status;  /**< RESP: 0 or an errno. */
	uint32_t len;     /**< REQ, RESP: bytes of the whole message. */
	uint32_t arg;     /**< REQ: largest response or WIRE_ONEWAY. RESP: ns in the server. */
};
_Static_assert(sizeof(struct wire_pkt) == 28, "no padding");

#define WIRE_HEAD ((uint32_t)sizeof(struct wire_pkt))

/** Address of a session. */
struct wire_addr {
	uint32_t magic;
	uint16_t version;
	uint16_t flags; /**< 0. */
	uint32_t session;
	uint32_t token;
	uint32_t slots;   /**< The smaller one of both ends counts; */
	uint32_t max_msg; /**< this one too, */
	uint32_t pkt_max; /**< and this one: bytes of a datagram. */
	uint8_t zero[36];
	uint8_t ud[CRPC_RDMA_ADDR_LEN];
};
_Static_assert(sizeof(struct wire_addr) == CRPC_UDRPC_ADDR_LEN, "no padding");

/** Packets of a message of @p len bytes in pieces of @p piece; an empty one has one, too. */
static inline uint32_t
wire_pkts(uint32_t len, uint32_t piece)
{
	return crpc_likely(len <= piece) ? 1 : (len + piece - 1) / piece;
}

/** Bytes of piece @p pkt, which is below wire_pkts(). */
static inline uint32_t
wire_piece(uint32_t len, uint32_t piece, uint32_t pkt)
{
	uint32_t at = pkt * piece;

	return len - at < piece ? len - at : piece;
}

#endif
