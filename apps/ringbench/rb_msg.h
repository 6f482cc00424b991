/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RB_MSG_H
#define RB_MSG_H
/* What a message holds: every word is written by its sender and read by its receiver. */
#include <stdbool.h>
#include <stdint.h>

#include "crpc_util.h"

crpc_inline void
rb_msg_fill(void *msg, uint32_t esize, uint64_t seq)
{
	uint64_t *w = msg;

	for (uint32_t i = 0; i < esize / 8; i++)
		w[i] = seq + i;
}

/* Read all of it; with check, how many words are not what fill() wrote for seq. */
crpc_inline uint64_t
rb_msg_use(const void *msg, uint32_t esize, uint64_t seq, bool check)
{
	const uint64_t *w = msg;
	uint64_t sum = 0, bad = 0;

	for (uint32_t i = 0; i < esize / 8; i++) {
		if (check)
			bad += w[i] != seq + i;
		sum += w[i];
	}
	__asm__ __volatile__("" : : "r"(sum));
	return bad;
}

#endif
