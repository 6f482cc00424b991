/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_STORE_PLACE_H
#define KV_STORE_PLACE_H

/**
 * @file
 * Where a key stands in a store's table. For store.c alone.
 *
 * Clients know kv_hash(), so one of them can find any number of keys with the same value, and the
 * look-ups of all others would walk past them. Places follow from a secret of the store instead.
 */

#include <string.h>
#include <sys/random.h>

#include "crpc_util.h"

static inline uint32_t
kv_place_secret(void)
{
	uint32_t secret = 0;

	/* Without random bytes it is a table as good, but for hostile clients. */
	(void)!getrandom(&secret, sizeof(secret), GRND_NONBLOCK);
	return secret;
}

/** The place of a key of 8 bytes or more; for the table itself secret is its init_val. */
static inline uint32_t
kv_place_of(const void *key, uint32_t len, uint32_t secret)
{
	uint64_t h = 0, w, odd = secret * UINT64_C(0x9e3779b97f4a7c15) | 1;
	const uint8_t *p = key;

	for (; len > 8; p += 8, len -= 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * odd;
		h ^= h >> 32;
	}
	/* The last 8 bytes, which may overlap the word before, as in kv_hash(). */
	memcpy(&w, p + len - 8, 8);
	h = (h ^ w) * odd;
	h ^= h >> 32;
	return (uint32_t)((h * UINT64_C(0xd6e8feb86659fd93)) >> 32);
}

#endif
