/* SPDX-License-Identifier: BSD-3-Clause */
/* The checksum of a chunk. */
#include <string.h>

#include "test.h"
#include "bulk_wire.h"
#include "rnd.h"

static uint64_t seed = 88172645463325252u;

/* The values of RFC 3720, appendix B.4, and the one that everybody quotes. */
TEST(crc_has_the_known_values)
{
	uint8_t buf[32];

	assert_int_equal(__crpc_bulk_crc(0, "123456789", 9), 0xe3069283);
	memset(buf, 0, 32);
	assert_int_equal(__crpc_bulk_crc(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, 32);
	assert_int_equal(__crpc_bulk_crc(0, buf, 32), 0x62a8ab43);
	for (uint32_t i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	assert_int_equal(__crpc_bulk_crc(0, buf, 32), 0x46dd794e);
	assert_int_equal(__crpc_bulk_crc(7, buf, 0), 7);
}

/* Bit by bit, as the definition says. */
static uint32_t
model(const uint8_t *p, uint32_t len)
{
	uint32_t crc = UINT32_MAX;

	for (; len != 0; p++, len--) {
		crc ^= *p;
		for (uint32_t i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* It is right for every length and place, in one piece or in two. */
TEST(crc_is_that_of_the_model)
{
	static uint8_t buf[70000];

	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)rnd_below(&seed, 256);
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t len = i < 1000 ? i : rnd_below(&seed, 60000);
		uint32_t at = rnd_below(&seed, 64);
		uint32_t cut = rnd_below(&seed, len + 1);
		uint32_t crc = model(buf + at, len);

		assert_int_equal(__crpc_bulk_crc(0, buf + at, len), crc);
		assert_int_equal(__crpc_bulk_crc(__crpc_bulk_crc(0, buf + at, cut), buf + at + cut,
					 len - cut),
			crc);
	}
}

TEST_MAIN(NULL, NULL)
