/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_WIRE_H
#define BULK_WIRE_H

/**
 * @file
 * The bytes of doc/protocol/bulk_wire.md, version 3. All little endian. Control messages are
 * one-way requests of lib/copyrpc.
 */

#include "crpc_util.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are written as they are");

#define BULK_WIRE_MAGIC      0x4b42u     /* "BK" */
#define BULK_WIRE_ADDR_MAGIC 0x4b4c5542u /* "BULK" */
#define BULK_WIRE_VERSION    3u

enum bulk_wire_type {
	BULK_OFFER = 1,  /**< Sender: there is a message. */
	BULK_ACCEPT,     /**< Receiver: it is matched, and moves like this. */
	BULK_DATA,       /**< Sender: a chunk lies in bounce memory. */
	BULK_CONSUMED,   /**< Receiver: slots are free again. */
	BULK_S_END,      /**< Sender: it has nothing more under way for this message. */
	BULK_R_END,      /**< Receiver: the verdict. */
	BULK_RAIL_DOWN,  /**< Both: our queue pair of a rail is gone. */
	BULK_RAIL_ADDR,  /**< Both: the address of a new one in its place. */
	BULK_RAIL_READY, /**< Both: it is connected. */
	BULK_S_MOVES,    /**< Sender: chunks have moved since the last such. */
	BULK_R_MOVES,    /**< Receiver: the same. */

	/* Of rails over TCP only; a head and nothing else. */
	BULK_HELLO = 64, /**< First of the end that connects; id: the key of the other's address. */
	BULK_TAKEN,      /**< Both; id: control messages of this life that were taken. */
};

struct bulk_wire_head {
	uint16_t magic;
	uint8_t version;
	uint8_t type;
	uint32_t len; /**< Of the message, head included. */
	uint64_t id;  /**< The transfer: serial << 16 | slot at the sender; CONSUMED and
	               those of rails: 0. */
};

struct bulk_wire_offer {
	struct bulk_wire_head head;
	uint64_t tag;
	uint64_t len;
	uint64_t raddr; /**< Of the message, if it may be read; else 0. */
	uint32_t flags; /**< CRPC_BULK_EAGER, WRITE, READ, CRC. */
	uint32_t reserved;
	uint32_t rkey[CRPC_BULK_PORTS_MAX];
};

struct bulk_wire_accept {
	struct bulk_wire_head head;
	uint32_t path; /**< One of those offered. */
	uint32_t reserved;
	uint64_t raddr; /**< Where to write, if it is written; else 0. */
	uint32_t rkey[CRPC_BULK_PORTS_MAX];
};

struct bulk_wire_piece {
	uint32_t line; /**< Offset in bounce memory / 64. */
	uint32_t len;
};

struct bulk_wire_data {
	struct bulk_wire_head head;
	uint32_t index;
	uint32_t len;
	uint32_t slot; /**< turn << 8 | slot. */
	uint32_t crc;  /**< Of the chunk, if the offer said CRC; else 0. */
	uint32_t npieces;
	uint32_t reserved;
	struct bulk_wire_piece piece[CRPC_BULK_PIECES_MAX]; /**< Only npieces are sent. */
};

#define BULK_CONSUMED_MAX 16u

struct bulk_wire_consumed {
	struct bulk_wire_head head;
	uint32_t count;
	uint32_t slot[BULK_CONSUMED_MAX]; /**< As in DATA; only count are sent. */
};

struct bulk_wire_end {
	struct bulk_wire_head head;
	int32_t status; /**< 0 or -1 to -4095. */
	uint32_t crc;   /**< S_END with status 0 of a written or read message with CRC. */
};

/** RAIL_DOWN and RAIL_READY. */
struct bulk_wire_rail {
	struct bulk_wire_head head;
	uint32_t rail;
	uint32_t life;  /**< Its queue pairs are counted, from 1. */
	uint64_t taken; /**< RAIL_DOWN: control messages that were taken from it; else 0. */
};

struct bulk_wire_rail_addr {
	struct bulk_wire_head head;
	uint32_t rail;
	uint32_t life;
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
};

#define BULK_WIRE_TCP_MAGIC   0x50435442u /* "BTCP" */
#define BULK_WIRE_TCP_VERSION 1u

/** The address of a rail over TCP. */
struct bulk_wire_tcp {
	uint32_t magic;
	uint16_t version, port;
	uint64_t key;  /**< Random. The end with the smaller one connects. */
	uint8_t ip[4]; /**< In network order. */
	uint8_t zero[CRPC_COPYRPC_ADDR_LEN - 20];
};

/** In front of the rails' own addresses. */
struct bulk_wire_addr {
	uint32_t magic;
	uint16_t version;
	uint8_t rails;
	uint8_t nports;
	uint32_t requests;
	uint32_t chunk;
	uint32_t slots;
	uint32_t reserved;
	uint64_t bounce;
	uint32_t rkey[CRPC_BULK_PORTS_MAX];
	uint8_t zero[128 - 48];
};

_Static_assert(sizeof(struct bulk_wire_head) == 16, "version 3");
_Static_assert(sizeof(struct bulk_wire_offer) == 64, "version 3");
_Static_assert(sizeof(struct bulk_wire_accept) == 48, "version 3");
_Static_assert(sizeof(struct bulk_wire_data) == 40 + 8 * CRPC_BULK_PIECES_MAX, "version 3");
_Static_assert(sizeof(struct bulk_wire_end) == 24, "version 3");
_Static_assert(sizeof(struct bulk_wire_rail) == 32, "version 3");
_Static_assert(sizeof(struct bulk_wire_rail_addr) == 24 + CRPC_COPYRPC_ADDR_LEN, "version 3");
_Static_assert(sizeof(struct bulk_wire_addr) == 128, "version 3");
_Static_assert(sizeof(struct bulk_wire_tcp) == CRPC_COPYRPC_ADDR_LEN, "version 1");
_Static_assert(offsetof(struct bulk_wire_data, piece) == 40, "version 3");
_Static_assert(offsetof(struct bulk_wire_consumed, slot) == 20, "version 3");

/** Any control message. */
union bulk_wire {
	struct bulk_wire_head head;
	struct bulk_wire_offer offer;
	struct bulk_wire_accept accept;
	struct bulk_wire_data data;
	struct bulk_wire_consumed consumed;
	struct bulk_wire_end end;
	struct bulk_wire_rail rail;
	struct bulk_wire_rail_addr rail_addr;
};

/** The CRC-32C of more bytes; of the first ones @p crc is 0. bulk_crc.c */
uint32_t __crpc_bulk_crc(uint32_t crc, const void *data, uint64_t len);

static inline struct bulk_wire_head
bulk_wire_head(uint8_t type, uint32_t len, uint64_t id)
{
	return (struct bulk_wire_head){.magic = BULK_WIRE_MAGIC,
		.version = BULK_WIRE_VERSION,
		.type = type,
		.len = len,
		.id = id};
}

#endif
