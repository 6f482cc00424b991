/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reflected polynomial 0x1edc6f41, that is 0x82f63b78 with the low bit first.
 *
 * The instruction takes 8 bytes with a latency of 3 cycles, one per cycle: so three streams run
 * side by side over blocks of three times LANE bytes, and their checksums are joined by shifting:
 * that of the first by 2 LANE zero bytes, of the second by LANE. A shift by a fixed number of zeros
 * is linear, hence a table lookup per byte of the checksum.
 */
#include "crpc_crc32c.h"

#include <string.h>

#include "crpc_atomic.h"
#include "crpc_util.h"

#define POLY 0x82f63b78u
#define LANE 4096u

/* Of each byte. */
static uint32_t table[256];
/* Shift by LANE zero bytes, of each byte of a checksum. */
static uint32_t shift[4][256];

static uint32_t
byte_of(uint32_t crc)
{
	for (uint32_t i = 0; i < 8; i++)
		crc = crc >> 1 ^ (crc & 1 ? POLY : 0);
	return crc;
}

/* Before main, so that no thread finds them half made. */
__attribute__((constructor)) static void
tables_init(void)
{
	uint32_t crc;

	for (uint32_t i = 0; i < 256; i++)
		table[i] = byte_of(i);
	for (uint32_t k = 0; k < 4; k++) {
		for (uint32_t i = 0; i < 8; i++) { /* single bits, the rest is their sum */
			crc = UINT32_C(1) << (8 * k + i);
			for (uint32_t n = 0; n < LANE; n++)
				crc = crc >> 8 ^ table[crc & 0xff];
			shift[k][1u << i] = crc;
		}
		for (uint32_t i = 1; i < 256; i++)
			shift[k][i] = shift[k][i & (i - 1)] ^ shift[k][i & -i];
	}
}

/* Of the inverted checksum, as all below. */
static uint32_t
run_table(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len != 0; p++, len--)
		crc = crc >> 8 ^ table[(crc ^ *p) & 0xff];
	return crc;
}

#if defined(__x86_64__)

static inline uint32_t
shifted(uint32_t crc)
{
	return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^
	       shift[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static inline uint64_t
step(uint64_t crc, const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return __builtin_ia32_crc32di(crc, v);
}

__attribute__((target("sse4.2"))) static uint32_t
run_cpu(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t a = crc, b, c;
	size_t i;

	for (; len >= 3 * LANE; p += 3 * LANE, len -= 3 * LANE) {
		for (b = 0, c = 0, i = 0; i < LANE; i += 8) {
			a = step(a, p + i);
			b = step(b, p + LANE + i);
			c = step(c, p + 2 * LANE + i);
		}
		a = shifted(shifted((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
	}
	for (; len >= 8; p += 8, len -= 8)
		a = step(a, p);
	return run_table((uint32_t)a, p, len);
}

static bool
usable(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

#include <arm_acle.h>

static uint32_t
run_cpu(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&v, p, 8);
		crc = __crc32cd(crc, v);
	}
	return run_table(crc, p, len);
}

static bool
usable(void)
{
	return true;
}

#else

#define run_cpu run_table

static bool
usable(void)
{
	return false;
}

#endif

/* 0: not looked yet; threads that meet here find the same, so relaxed is enough. */
static bool
use_cpu(void)
{
	static _Atomic uint32_t chosen;
	uint32_t c = crpc_load_relaxed(&chosen);

	if (crpc_unlikely(c == 0)) {
		c = usable() ? 2 : 1;
		crpc_store_relaxed(&chosen, c);
	}
	return c == 2;
}

uint32_t
crpc_crc32c(uint32_t crc, const void *data, size_t len)
{
	if (crpc_likely(use_cpu()))
		return ~run_cpu(~crc, data, len);
	return ~run_table(~crc, data, len);
}

uint32_t
crpc_crc32c_table(uint32_t crc, const void *data, size_t len)
{
	return ~run_table(~crc, data, len);
}
