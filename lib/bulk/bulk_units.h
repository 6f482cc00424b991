/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_UNITS_H
#define BULK_UNITS_H

/**
 * @file
 * Bounce memory, which is divided into units of chunk / CRPC_BULK_PIECES_MAX bytes. The receiver
 * owns the memory; the sender chooses units for each chunk, and keeps the same account.
 */

#include "bulk_wire.h"

#define UNITS_MAX (CRPC_BULK_SLOTS_MAX * CRPC_BULK_PIECES_MAX)

struct units {
	uint32_t size; /**< Bytes of a unit. */
	uint32_t n;
	uint32_t used;
	uint64_t bits[UNITS_MAX / 64]; /**< Set: in use. */
};

static inline void
units_init(struct units *units, uint32_t chunk, uint32_t slots)
{
	*units = (struct units){
		.size = chunk / CRPC_BULK_PIECES_MAX, .n = slots * CRPC_BULK_PIECES_MAX};
}

/** Units of @p len bytes. */
static inline uint32_t
units_of(const struct units *units, uint32_t len)
{
	return (len + units->size - 1) / units->size;
}

/** Mark the units of a piece as in use, or as free. False: one was so already. */
static inline bool
units_mark(struct units *units, const struct bulk_wire_piece *piece, bool used)
{
	uint32_t u = (uint32_t)((uint64_t)piece->line * 64 / units->size);
	uint32_t n = units_of(units, piece->len), end = u + n;

	for (; u < end; u++) {
		if ((units->bits[u / 64] >> u % 64 & 1) == used)
			return false;
		units->bits[u / 64] ^= UINT64_C(1) << u % 64;
	}
	units->used += used ? n : -n;
	return true;
}

/** Give the units of a chunk back. */
static inline void
units_give(struct units *units, const struct bulk_wire_piece *piece, uint32_t npieces)
{
	while (npieces-- != 0)
		units_mark(units, &piece[npieces], false);
}

/**
 * Take free units for @p len bytes; there are enough. Adjacent units form one piece. The lowest
 * ones are taken first: they were used most recently, and the receiver's caches may still have
 * them.
 *
 * @return
 *   Pieces, at most CRPC_BULK_PIECES_MAX.
 */
static inline uint32_t
units_take(struct units *units, uint32_t len, struct bulk_wire_piece *piece)
{
	uint32_t u, word = 0, last = UINT32_MAX, part, npieces = 0;

	for (; len != 0; len -= part) {
		while (units->bits[word] == UINT64_MAX)
			word++;
		u = word * 64 + (uint32_t)__builtin_ctzll(~units->bits[word]);
		part = (uint32_t)crpc_min(len, units->size);
		if (npieces == 0 || u != last + 1)
			piece[npieces++] = (struct bulk_wire_piece){
				.line = (uint32_t)((uint64_t)u * units->size / 64)};
		piece[npieces - 1].len += part;
		units->bits[word] |= units->bits[word] + 1;
		units->used++;
		last = u;
	}
	return npieces;
}

#endif
