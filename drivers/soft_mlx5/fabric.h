/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_FABRIC_H
#define SOFT_MLX5_FABRIC_H

/**
 * @file
 * What cards, kernels and fabrics may do otherwise than the usual one, each of which a program
 * should be ready for. SOFT_MLX5_FABRIC turns it on, words with commas between:
 *
 *     roce             ports are Ethernet, and their GIDs 0 and 2 are of RoCE v1
 *     grh              InfiniBand whose packets need a global route, as virtual functions have it
 *     mtu=1024/4096    the active MTU of each device, the last one also of those that follow
 *     verbs=500        commands about queue pairs take so many microseconds
 *     pkeys            the first P_Key is one of a limited member, who reaches full ones only
 *     unordered        the bytes of a write may appear in any order, and the device says so
 *     flush=signalled  of what is flushed, only what asked for a completion gives one
 *
 * It is read once.
 */

#include <stdbool.h>
#include <stdint.h>

#include "port.h"

struct sm_fabric {
	bool roce;
	bool grh;
	bool pkeys;
	bool unordered;
	bool flush_signalled;
	uint8_t mtu[SM_DEVICES_MAX]; /**< enum ibv_mtu; 0: as it is without. */
	uint32_t verbs_us;
};

const struct sm_fabric *sm_fabric(void);

#endif
