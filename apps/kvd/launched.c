/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a launcher: addresses are exchanged once (app_kv.h). */
#include "cluster.h"
#include "event.h"

void
kvd_cluster_look(struct app_boot *boot, struct crpc_kv_server *s, uint64_t now_ns)
{
	app_boot_look(boot, now_ns);
	for (uint32_t r = 0; r < boot->size; r++) {
		if (r == boot->rank || boot->lost[r] != 0)
			continue;
		if (app_boot_gone(boot, r))
			crpc_kv_server_lose(s, r, "its process has ended");
		if (crpc_kv_server_peer(s, r) != CRPC_KV_PEER_LOST)
			continue;
		app_boot_lose(boot, r);
		kvd_event(CRPC_LOG_WARNING, "lost rank %u: %s; operations on its keys fail", r,
			crpc_kv_server_peer_why(s, r));
	}
}
