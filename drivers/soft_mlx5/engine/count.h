/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_COUNT_H
#define SOFT_MLX5_ENGINE_COUNT_H

/**
 * @file
 * What a queue pair counts while it works; ledger.c makes the figures of soft_mlx5.h of it.
 *
 * A message costs a few additions on each side: to the messages of its kind, and to the bytes.
 * What depends on how it is cut (packets of the path's MTU, TLPs) is one for a short message and is
 * counted apart, out of the way, for longer ones.
 */

#include <stdint.h>

#include "crpc_util.h"

/** Payload of a TLP, and what one read request asks for, at most. */
#define SM_TLP_PAYLOAD 256u
#define SM_TLP_READ 512u
/** LRH, BTH, ICRC and VCRC of each packet; the GRH, if the path has one. */
#define SM_WIRE_BASE 26u
#define SM_WIRE_GRH 40u

/** Kinds of messages. The first four are the low bits of the send opcodes 8 to 11. */
enum sm_kind {
	SM_KIND_WRITE,
	SM_KIND_WRITE_IMM,
	SM_KIND_SEND,
	SM_KIND_SEND_IMM,
	SM_KIND_READ,
	SM_KIND_ATOMIC,
	SM_KIND_READ_RESP,
	SM_KIND_ATOMIC_RESP,
	SM_KIND_ACK, /**< And NAK. */
	SM_KIND_DATAGRAM,
	SM_KIND_DATAGRAM_IMM,
	SM_KIND_CONTROL, /**< CONNECT, DISCONNECT. */
	SM_KINDS,
};

struct sm_way {
	uint64_t kind[SM_KINDS];
	uint64_t payload;
	uint64_t packets; /**< In addition to one for each message. */
	uint64_t grhs;    /**< Of datagrams. */
};

struct sm_count {
	struct sm_way tx, rx;
	/** Payload read and written by DMA. */
	uint64_t reads, read_bytes;
	uint64_t writes, write_bytes;
	uint64_t wqe_blocks, wqe_reads;
	uint64_t cqes[2]; /**< Of the send queue, of the receive queue. */
	uint64_t doorbells, blueflame, blueflame_blocks;
	/** In addition to one for each transfer. */
	uint64_t read_tlps, read_requests, write_tlps;
};

#define SM_COUNT_WORDS (sizeof(struct sm_count) / sizeof(uint64_t))

/** How many more than one pieces of 1 << @p shift bytes hold @p len. */
static inline uint32_t
sm_count_more(uint32_t len, uint32_t shift)
{
	return len == 0 ? 0 : (len - 1) >> shift;
}

/** The card read @p len bytes of payload. */
static inline void
sm_count_read(struct sm_count *n, uint32_t len)
{
	n->reads++;
	n->read_bytes += len;
	if (crpc_unlikely(len > SM_TLP_PAYLOAD)) {
		n->read_tlps += sm_count_more(len, 8);
		n->read_requests += sm_count_more(len, 9);
	}
}

/** The card wrote @p len bytes of payload. */
static inline void
sm_count_write(struct sm_count *n, uint32_t len)
{
	n->writes++;
	n->write_bytes += len;
	if (crpc_unlikely(len > SM_TLP_PAYLOAD))
		n->write_tlps += sm_count_more(len, 8);
}

/*
 * A piece that was copied in one go counts as the packets of a ring would that bring so much: of
 * 1 << SM_COUNT_FRAG bytes, whose bounds are those of the message.
 */
#define SM_COUNT_FRAG 13u

/** sm_count_read() or sm_count_write() of a long piece, @p at bytes behind its message's begin. */
static inline void
sm_count_parts(struct sm_count *n, uint32_t at, uint32_t len,
	void (*count)(struct sm_count *n, uint32_t len))
{
	while (len != 0) {
		uint32_t room = (1u << SM_COUNT_FRAG) - (at & ((1u << SM_COUNT_FRAG) - 1));
		uint32_t part = len < room ? len : room;

		count(n, part);
		at += part;
		len -= part;
	}
}

/** A piece of a message, with the message's @p kind if it is the one that counts it. */
static inline void
sm_count_piece(struct sm_way *w, uint32_t len, enum sm_kind kind, bool counts, uint32_t mtu_shift)
{
	w->payload += len;
	w->packets += sm_count_more(len, mtu_shift);
	if (counts)
		w->kind[kind]++;
	else
		w->packets++;
}

/** Add counters, of which there are @p n in either structure. */
static inline void
sm_count_add(void *sum, const void *more, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		((uint64_t *)sum)[i] += ((const uint64_t *)more)[i];
}

#endif
