/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_MLX5_DOORBELL_H
#define CRPC_MLX5_DOORBELL_H

/**
 * @file
 * Announces new send WQEs to the device.
 *
 * PRM, "Posting a Work Request to a Work Queue": write the WQE, write the doorbell record, write
 * the doorbell register. The register takes the first 8 bytes of the newest WQE, or, as BlueFlame,
 * a whole WQE, which spares the device reading it from memory. A register has two halves that are
 * written in turn, so that a write never meets the one before it on its way.
 */

#include "crpc_dma.h"
#include "mlx5_copyrpc.h"

/** 16 bytes that one store instruction writes (movaps, str q). */
typedef uint64_t crpc_mlx5_wide __attribute__((vector_size(16)));

/**
 * Copies one block to write-combining memory with wide stores in ascending order. Byte or
 * overlapping stores, as a memcpy may use, would leave the buffer half full: the device would then
 * get fragments and not a BlueFlame block. Stores that bypass the cache are not needed: the
 * register is not cached.
 */
static inline void
crpc_mlx5_bf_block(uint8_t *dst, const uint8_t *src)
{
	volatile crpc_mlx5_wide *d = (volatile crpc_mlx5_wide *)(void *)dst;
	const crpc_mlx5_wide *s = (const crpc_mlx5_wide *)(const void *)src;

	for (uint32_t i = 0; i < CRPC_MLX5_BB / sizeof(*d); i++)
		d[i] = s[i];
}

/**
 * Ring for everything posted so far.
 *
 * @param sq
 *   The queue; pi counts the new WQEs already.
 * @param wqe
 *   The newest WQE's first block.
 * @param bb
 *   Its blocks if it is the only new one, so that it may go through the register; else 0.
 * @return
 *   True if it went by BlueFlame.
 */
static inline bool
crpc_mlx5_ring(struct crpc_mlx5_sq *sq, const uint8_t *wqe, uint32_t bb)
{
	struct crpc_mlx5_bf *bf = sq->bf;
	uint8_t *reg = bf->reg + bf->offset;
	bool blueflame = bb != 0 && bb * CRPC_MLX5_BB <= bf->size;

	/* Without it the device could see the record first and fetch a WQE that is half written. */
	crpc_dma_wmb();
	/* Release: a NIC in software loads the record with acquire before it reads the WQEs. */
	crpc_store_release(sq->dbrec, htobe32(sq->pi & CRPC_MLX5_WQE_CTR_MASK));
	/* Without it the register, which is write-combining and so outside the order of stores,
	 * could be written before the record: the device would find an old record and sleep on
	 * this WQE. */
	crpc_dma_doorbell_wmb();
	if (blueflame) {
		for (uint32_t i = 0; i < bb; i++) {
			crpc_mlx5_bf_block(reg + i * CRPC_MLX5_BB, wqe);
			wqe += CRPC_MLX5_BB;
			if (crpc_unlikely(wqe == sq->end))
				wqe = sq->buf;
		}
	} else {
		crpc_mmio_write64(reg, *(const uint64_t *)(const void *)wqe);
	}
	/* Without it the write may stay in the core's buffer until something evicts it, and the
	 * next write of the same half could be merged into it. */
	crpc_dma_wc_flush();
	bf->offset ^= bf->size;
	return blueflame;
}

#endif
