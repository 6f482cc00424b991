/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_STORE_SIZE_H
#define KV_STORE_SIZE_H

/**
 * @file
 * How large a store and its parts are that is made like this.
 */

#include "kv_store_quick.h"

/** Larger stores do without a table in front: it would not stay in a cache. */
#define KV_NEAR_MAX (1u << 16)

/**
 * Slots, with spare ones: a cuckoo table filled to the last place walks long chains. With the
 * extendable flag it takes every key all the same.
 */
static inline uint32_t
kv_size_entries(uint32_t capacity)
{
	return (uint32_t)crpc_min((uint64_t)capacity + capacity / 4 + 64, RTE_HASH_ENTRIES_MAX);
}

/** Bytes of a slot. */
static inline uint32_t
kv_size_slot(uint32_t value_max)
{
	uint32_t size =
		(uint32_t)sizeof(struct kv_slot) + crpc_min(value_max, CRPC_KV_VALUE_INLINE);

	return size <= 32 ? 32 : (uint32_t)crpc_align_up(size, CRPC_CACHE_LINE);
}

/** Entries of the table in front of the hash; 0: there is none. */
static inline uint32_t
kv_size_near(const struct crpc_kv_server_conf *conf)
{
	uint64_t n = crpc_pow2_ceil((uint64_t)kv_size_entries(conf->capacity) * 4);

	return conf->key_size == 8 && n <= KV_NEAR_MAX ? (uint32_t)n : 0;
}

/** Bytes of EAL memory that a store of this size takes, roughly. */
static inline uint64_t
kv_size_bytes(const struct crpc_kv_server_conf *conf)
{
	uint64_t entries = kv_size_entries(conf->capacity);

	/*
	 * A key slot has 8 bytes beside the key; a bucket entry takes 8 and the ring of free slots
	 * 4.
	 */
	return kv_size_near(conf) * sizeof(struct kv_near) +
		entries *
			(kv_size_slot(conf->value_max) +
				crpc_align_up(conf->key_size + 8, 16)) +
		crpc_pow2_ceil(entries) * 12 * 2;
}

#endif
