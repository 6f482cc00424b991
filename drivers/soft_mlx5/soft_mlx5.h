/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_H
#define SOFT_MLX5_H

/**
 * @file
 * The symbols that the software ConnectX offers to programs that know of it.
 *
 * A program never links them: it looks a name up once with dlsym(RTLD_DEFAULT) when it opened a
 * device. Where the program runs on a real card the symbols are not there.
 */

#include <stdint.h>

struct ibv_context;

extern const char soft_mlx5_version[]; /**< As soft-mlx5 --version prints it. */

/**
 * Drive the software NIC behind a verbs context from the calling thread, a bounded amount.
 *
 * Call it after ringing a doorbell and whenever a poll emptied the completion queue. Contexts share
 * nothing, so lcores with contexts of their own never meet here.
 *
 * @param context
 *   What ibv_open_device() gave.
 * @return
 *   How much was done; 0: nothing to do, another thread is at it, or not one of ours.
 */
uint32_t soft_mlx5_progress(struct ibv_context *context);

#define SOFT_MLX5_PROGRESS_SYMBOL "soft_mlx5_progress"

/**
 * What a card would have done for the same work.
 *
 * Everything counts from the creation of the queue pair or the context on. PCIe bytes follow from
 * the transfers by the usual arithmetic: TLPs with a payload of 256 bytes, read requests of 512
 * bytes, 24 bytes of framing and header with a write or a read request, 20 with a completion.
 * Bytes on the wire are those of InfiniBand packets of the path's MTU, with LRH, BTH, extended
 * headers, GRH if the path has one, ICRC and VCRC. Work that a program polls for in its own memory
 * costs a card nothing and is not here; nor is what a card prefetches in vain.
 *
 * Large payloads that are copied straight from their source (SOFT_MLX5_DIRECT) count to the byte as
 * those that go through the rings: what a card does with them is the same.
 *
 * The software sees registers when it is driven: doorbells that were overwritten before that count
 * as one. A program that drives after each doorbell has them exactly.
 */
struct soft_mlx5_ledger {
	uint64_t doorbells;        /**< Those with BlueFlame included. */
	uint64_t blueflame;        /**< Doorbells that brought their WQE. */
	uint64_t blueflame_blocks; /**< 64-byte blocks that they brought. */
	uint64_t wqe_blocks;       /**< 64-byte blocks of send WQEs that were fetched. */
	uint64_t recv_wqes;        /**< Receive WQEs that were used. */
	uint64_t cqes;
	uint64_t dma_reads;        /**< Of memory, by the card: WQEs, payload. */
	uint64_t dma_read_bytes;
	uint64_t dma_writes;       /**< Of memory, by the card: payload, CQEs. */
	uint64_t dma_write_bytes;
	uint64_t pcie_to_host;     /**< Bytes over PCIe, TLPs with all their framing. */
	uint64_t pcie_to_card;
	uint64_t tx_packets;
	uint64_t tx_bytes;         /**< On the wire, headers included. */
	uint64_t rx_packets;
	uint64_t rx_bytes;
};

/**
 * Read the ledger of a context or of one of its queue pairs.
 *
 * @param context
 *   What ibv_open_device() gave.
 * @param qpn
 *   Of a queue pair of this context; 0: of the context, queue pairs that are gone included.
 * @param ledger
 *   Filled.
 * @param size
 *   Of *ledger as the program knows it; more than that is not written.
 * @return
 *   0, ENOENT (no such queue pair) or EINVAL (not a context of ours).
 */
int soft_mlx5_ledger(struct ibv_context *context, uint32_t qpn, struct soft_mlx5_ledger *ledger,
	uint64_t size);

#define SOFT_MLX5_LEDGER_SYMBOL "soft_mlx5_ledger"

/**
 * Let something happen to the port of a context, as soft-mlx5 port does to those of a net.
 *
 * @param context
 *   What ibv_open_device() gave.
 * @param text
 *   "down", "up", "lid=N", "fatal".
 * @return
 *   0, EINVAL (the text, or not a context of ours), ENOMEM.
 */
int soft_mlx5_port(struct ibv_context *context, const char *text);

#define SOFT_MLX5_PORT_SYMBOL "soft_mlx5_port"

#endif
