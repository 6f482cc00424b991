/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_MSG_H
#define APP_MSG_H

/**
 * @file
 * What a message of a benchmark holds: word i is its first one plus i. Every word is written by its
 * sender and read by its receiver. Sizes are whole words of 8 bytes. For timed loops: where the
 * size is a constant, no loop is left.
 */

#include <string.h>

#include "crpc_util.h"

/** Write a message. */
crpc_inline void
app_msg_fill(void *msg, uint32_t size, uint64_t word)
{
	uint64_t *w = msg;

	for (uint32_t i = 0; i < size / 8; i++)
		w[i] = word + i;
}

/** A word of a message, which may lie at any address. */
crpc_inline uint64_t
app_msg_load(const void *msg, uint32_t i)
{
	uint64_t v;

	memcpy(&v, (const uint8_t *)msg + (size_t)i * sizeof(v), sizeof(v));
	return v;
}

/** Read a message: 1 if it is wrong, which only `check` can find. */
crpc_inline uint64_t
app_msg_read(const void *msg, uint32_t size, bool check, uint64_t word)
{
	uint64_t sum = 0, bad = 0, v;

	for (uint32_t i = 0; i < size / 8; i++) {
		v = app_msg_load(msg, i);
		sum += v;
		if (check)
			bad |= v ^ (word + i);
	}
	__asm__ __volatile__("" : : "r"(sum));
	return bad != 0;
}

/** Answer a message in its place: read and write every word. */
crpc_inline void
app_msg_raise(void *msg, uint32_t size)
{
	uint64_t *w = msg;

	for (uint32_t i = 0; i < size / 8; i++)
		w[i]++;
}

#endif
