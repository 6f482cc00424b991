/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPC_COPY_H
#define RPC_COPY_H

/** @file Copying a payload. Inside of the RPC layers. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "crpc_util.h"

/** Longest payload that is copied without a function call. */
#define RPC_COPY_SHORT_MAX 64u

/** Whether rpc_copy_short() takes a payload: 8 to RPC_COPY_SHORT_MAX bytes. */
static inline bool
rpc_copy_is_short(uint32_t len)
{
	return len - 8u <= RPC_COPY_SHORT_MAX - 8u;
}

/** 8 to 15 bytes, in two moves that may overlap. */
static inline void
rpc_copy_8(uint8_t *to, const uint8_t *from, uint32_t len)
{
	uint64_t head, tail;

	memcpy(&head, from, 8);
	memcpy(&tail, from + len - 8, 8);
	memcpy(to, &head, 8);
	memcpy(to + len - 8, &tail, 8);
}

/** 16 to 64 bytes, in two or four. */
static inline void
rpc_copy_16(uint8_t *to, const uint8_t *from, uint32_t len)
{
	struct rpc_16 {
		uint64_t word[2];
	} head, head2, tail, tail2;

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
}

/** rpc_copy() of a payload that is short: a function that copies no other has no state to save. */
static inline void
rpc_copy_short(void *dst, const void *src, uint32_t len)
{
	if (len < 16)
		rpc_copy_8(dst, src, len);
	else
		rpc_copy_16(dst, src, len);
}

/** 0 to 7 bytes. */
static inline void
rpc_copy_0(uint8_t *to, const uint8_t *from, uint32_t len)
{
	uint32_t head4, tail4;
	uint16_t head2;
	uint8_t tail1;

	if (len >= 4) {
		memcpy(&head4, from, 4);
		memcpy(&tail4, from + len - 4, 4);
		memcpy(to, &head4, 4);
		memcpy(to + len - 4, &tail4, 4);
	} else if (len >= 2) {
		memcpy(&head2, from, 2);
		tail1 = from[len - 1];
		memcpy(to, &head2, 2);
		to[len - 1] = tail1;
	} else if (len == 1) {
		*to = *from;
	}
}

/** rpc_copy() of a payload of 0 to RPC_COPY_SHORT_MAX bytes, without a call: as above. */
static inline void
rpc_copy_small(void *dst, const void *src, uint32_t len)
{
	if (crpc_likely(len >= 16))
		rpc_copy_16(dst, src, len);
	else if (len >= 8)
		rpc_copy_8(dst, src, len);
	else
		rpc_copy_0(dst, src, len);
}

/** Copy @p len bytes, which may overlap: a reply may lie in its request. Most are short. */
static inline void
rpc_copy(void *dst, const void *src, uint32_t len)
{
	if (len - 16u <= RPC_COPY_SHORT_MAX - 16u)
		rpc_copy_16(dst, src, len);
	else if (len - 8u <= 15u - 8u)
		rpc_copy_8(dst, src, len);
	else if (len != 0 && dst != src)
		memmove(dst, src, len);
}

#endif
