/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <rte_hash_crc.h>

#include "bulk_wire.h"

uint32_t
__crpc_bulk_crc(uint32_t crc, const void *data, uint64_t len)
{
	const uint8_t *p = data;
	uint64_t word;

	for (crc = ~crc; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, p, sizeof(word)); /* rte_hash_crc() wants it aligned */
		crc = rte_hash_crc_8byte(word, crc);
	}
	for (; len != 0; p++, len--)
		crc = rte_hash_crc_1byte(*p, crc);
	return ~crc;
}
