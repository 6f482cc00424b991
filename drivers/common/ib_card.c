/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a NIC in software offers beyond verbs: that its user drives it, and what a card would have
 * done. Both are functions that are looked up by name; on a card they are missing.
 */
#include <dlfcn.h>
#include <errno.h>

#include "crpc_ib.h"
#include "soft_mlx5.h"

crpc_ib_progress
crpc_ib_progress_find(void)
{
	crpc_ib_progress progress;

	/* ISO C has no conversion from an object pointer to a function pointer; POSIX dlsym()
	 * does. */
	*(void **)&progress = dlsym(RTLD_DEFAULT, SOFT_MLX5_PROGRESS_SYMBOL);
	return progress;
}

int
crpc_ib_card_get(const struct crpc_rdma *dev, struct crpc_rdma_card *card)
{
	struct soft_mlx5_ledger ledger = {0};
	__typeof__(&soft_mlx5_ledger) get;

	*(void **)&get = dlsym(RTLD_DEFAULT, SOFT_MLX5_LEDGER_SYMBOL);
	if (get == NULL || get(crpc_ib_of(dev)->context, 0, &ledger, sizeof(ledger)) != 0)
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
