/* SPDX-License-Identifier: BSD-3-Clause */
/* What the card did: only a software NIC counts it, in a function that is looked up by name. */
#include <dlfcn.h>
#include <errno.h>

#include "mlx5_copyrpc.h"

#define LEDGER_SYMBOL "soft_mlx5_ledger"

/* The ledger of the software NIC; it writes as many bytes as it is given. */
struct ledger {
	uint64_t doorbells;
	uint64_t blueflame;
	uint64_t blueflame_blocks;
	uint64_t wqe_blocks;
	uint64_t recv_wqes;
	uint64_t cqes;
	uint64_t dma_reads;
	uint64_t dma_read_bytes;
	uint64_t dma_writes;
	uint64_t dma_write_bytes;
	uint64_t pcie_to_host;
	uint64_t pcie_to_card;
	uint64_t tx_packets;
	uint64_t tx_bytes;
};

typedef int (*ledger_get)(
	struct ibv_context *context, uint32_t qpn, struct ledger *ledger, uint64_t size);

int
crpc_mlx5_card_get(const struct crpc_rdma *base, struct crpc_rdma_card *card)
{
	/* base is its first member */
	const struct crpc_mlx5_dev *dev = (const struct crpc_mlx5_dev *)(const void *)base;
	struct ledger ledger = {0};
	ledger_get get;

	*(void **)&get = dlsym(RTLD_DEFAULT, LEDGER_SYMBOL);
	if (get == NULL || get(dev->context, 0, &ledger, sizeof(ledger)) != 0)
		return -EOPNOTSUPP;
	*card = (struct crpc_rdma_card){
		.doorbells = ledger.doorbells,
		.wqebbs = ledger.wqe_blocks + ledger.blueflame_blocks,
		.cqes = ledger.cqes,
		.pcie_bytes = ledger.pcie_to_host + ledger.pcie_to_card,
		.packets = ledger.tx_packets,
		.wire_bytes = ledger.tx_bytes,
	};
	return 0;
}
