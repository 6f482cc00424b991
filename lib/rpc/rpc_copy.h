/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPC_COPY_H
#define RPC_COPY_H

/** @file Copying a payload. Inside of the RPC layers. */

#include <stdint.h>
#include <string.h>

#include "crpc_util.h"

/**
 * Copy @p len bytes, which may overlap: a reply may lie in its request. Most payloads are short:
 * those of 8 to 64 bytes take two or four moves that may overlap, and no call.
 */
static inline void
rpc_copy(void *dst, const void *src, uint32_t len)
{
	struct rpc_16 {
		uint64_t word[2];
	} head, head2, tail, tail2;
	const uint8_t *from = src;
	uint8_t *to = dst;
	uint64_t a, b;

	if (len - 16u <= 64u - 16u) {
		memcpy(&head, from, 16);
		memcpy(&tail, from + len - 16, 16);
		if (len > 32) {
			memcpy(&head2, from + 16, 16);
			memcpy(&tail2, from + len - 32, 16);
			memcpy(to + 16, &head2, 16);
			memcpy(to + len - 32, &tail2, 16);
		}
		memcpy(to, &head, 16);
		memcpy(to + len - 16, &tail, 16);
	} else if (len - 8u <= 15u - 8u) {
		memcpy(&a, from, 8);
		memcpy(&b, from + len - 8, 8);
		memcpy(to, &a, 8);
		memcpy(to + len - 8, &b, 8);
	} else if (len != 0 && dst != src) {
		memmove(to, from, len);
	}
}

#endif
