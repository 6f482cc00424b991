/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CRC32C_H
#define CRPC_CRC32C_H

/**
 * @file
 * CRC-32C (Castagnoli, the one of iSCSI, RFC 3720), with the CPU's instruction where there is one.
 *
 *     crc = crpc_crc32c(0, a, len_a);
 *     crc = crpc_crc32c(crc, b, len_b);      the same as of a and b in one piece
 *
 * Any thread. "123456789" gives 0xe3069283.
 */

#include <stddef.h>
#include <stdint.h>

#include "crpc_config.h"

CRPC_BEGIN_DECLS

/** The checksum of what crc stands for, followed by len bytes at data; crc is 0 at the start. */
uint32_t crpc_crc32c(uint32_t crc, const void *data, size_t len);

CRPC_END_DECLS

#endif
