/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_DMA_H
#define CRPC_DMA_H

/**
 * @file
 * Barriers between a core and a device, named by purpose.
 *
 * Memory that a device reads or writes by DMA is coherent; only the order of accesses needs care.
 * A doorbell takes these steps, and each barrier says what breaks without it:
 *
 *     write the WQE
 *     crpc_dma_wmb()         the device must not see the record before the WQE it announces
 *     write the doorbell record (memory)
 *     crpc_dma_doorbell_wmb()  the register write must not pass the record: the device would read
 *                            an old record and sleep on the new WQE
 *     write the doorbell register (MMIO, or write-combining BlueFlame)
 *     crpc_dma_wc_flush()    drains the write-combining buffer: without it the doorbell may sit
 *                            in the core until something else evicts it
 *
 * A completion takes one: crpc_dma_rmb() between reading the owner bit and the rest of the CQE (or
 * the data the CQE announces).
 *
 * On x86 stores are seen in order and loads are executed in order, so the first and the last are
 * compiler barriers; write-combining memory is outside that order and needs sfence.
 */

#include <stdint.h>

#if defined(__x86_64__)
#define crpc_dma_wmb() __asm__ __volatile__("" ::: "memory")
#define crpc_dma_rmb() __asm__ __volatile__("" ::: "memory")
#define crpc_dma_doorbell_wmb() __asm__ __volatile__("sfence" ::: "memory")
#define crpc_dma_wc_flush() __asm__ __volatile__("sfence" ::: "memory")
#elif defined(__aarch64__)
#define crpc_dma_wmb() __asm__ __volatile__("dmb oshst" ::: "memory")
#define crpc_dma_rmb() __asm__ __volatile__("dmb oshld" ::: "memory")
#define crpc_dma_doorbell_wmb() __asm__ __volatile__("dmb oshst" ::: "memory")
#define crpc_dma_wc_flush() __asm__ __volatile__("dsb st" ::: "memory")
#else
#error "no DMA barriers are written for this architecture: add them in lib/common/crpc_dma.h"
#endif

/** Write one 64-bit device register. The value is stored as it is: swap it first if need be. */
static inline void
crpc_mmio_write64(void *reg, uint64_t v)
{
	*(volatile uint64_t *)reg = v;
}

#endif
