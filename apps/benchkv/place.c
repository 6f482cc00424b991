/* SPDX-License-Identifier: BSD-3-Clause */
#include "place.h"

_Static_assert(CRPC_KV_DAEMONS_MAX < KV_SEATS_MAX, "a lcore for clients beside all daemons");

/* Where the i-th of n equal parts of count begins. */
static uint32_t
part(uint32_t i, uint32_t n, uint32_t count)
{
	return (uint32_t)((uint64_t)i * count / n);
}

uint32_t
kv_home_first(uint32_t daemon, uint32_t clients, uint32_t daemons)
{
	return (uint32_t)(((uint64_t)daemon * clients + daemons - 1) / daemons);
}

uint32_t
kv_place(struct kv_place *place, uint32_t lcores, uint32_t daemons, uint32_t clients,
	bool colocate)
{
	uint32_t seats = (uint32_t)crpc_min(lcores, daemons), loops = 0;

	if (clients != 0 && lcores > daemons && !colocate)
		loops = (uint32_t)crpc_min(crpc_min(lcores, KV_SEATS_MAX) - daemons, clients);
	for (uint32_t i = 0; i < seats; i++) {
		place[i] = (struct kv_place){
			.daemon_from = part(i, seats, daemons),
			.daemon_to = part(i + 1, seats, daemons),
		};
		if (loops != 0 || clients == 0)
			continue;
		place[i].client_from = kv_home_first(place[i].daemon_from, clients, daemons);
		place[i].client_to = kv_home_first(place[i].daemon_to, clients, daemons);
	}
	for (uint32_t i = 0; i < loops; i++)
		place[seats + i] = (struct kv_place){
			.client_from = part(i, loops, clients),
			.client_to = part(i + 1, loops, clients),
		};
	return seats + loops;
}

void
kv_place_order(unsigned int *lcore, const int *node, uint32_t n, int nic)
{
	uint32_t near = 1, far = 0;
	unsigned int last[KV_SEATS_MAX];

	for (uint32_t i = 1; i < n; i++) {
		if (node[i] == (nic < 0 ? node[0] : nic))
			lcore[near++] = lcore[i];
		else
			last[far++] = lcore[i];
	}
	memcpy(lcore + near, last, far * sizeof(last[0]));
}
