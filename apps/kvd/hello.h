/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_HELLO_H
#define KVD_HELLO_H

/**
 * @file
 * The first message of a connection between two ranks; doc/guides/kvd.md has the exchange. It is
 * 128 bytes, little endian, and in every version begins with magic and version.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVD_HELLO_MAGIC   UINT64_C(0x44564b4350524301) /* "\1CRPCKVD" */
#define KVD_HELLO_VERSION 1u
#define KVD_SECRET_MIN    16
#define KVD_SECRET_MAX    64

struct kvd_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t rank;
	uint64_t version_begin; /**< Its first version, which rises at each start. */
	/** What all ranks must have the same. */
	uint32_t ranks, daemons, key_size, value_size;
	uint64_t keys;
	uint64_t refusal; /**< 1: the hello that it answers is refused. */
	uint64_t instance; /**< Another number for each process; 0: it has none, it is older. */
	uint8_t secret[KVD_SECRET_MAX]; /**< Zeros: a refusal, or the cluster has none. */
};
_Static_assert(sizeof(struct kvd_hello) == 128, "wire format");
_Static_assert(offsetof(struct kvd_hello, version) == 8, "wire format");
_Static_assert(offsetof(struct kvd_hello, ranks) == 24, "wire format");
_Static_assert(offsetof(struct kvd_hello, secret) == 64, "wire format");

/** What a hello is. */
enum kvd_hello_is {
	KVD_HELLO_GOOD,
	KVD_HELLO_STRANGE, /**< No hello, or one without our secret. */
	KVD_HELLO_OTHER,   /**< Of a rank that has another version, or other sizes. */
};

/**
 * Check what came from a connection.
 *
 * @param mine
 *   Our own.
 * @param theirs
 *   A copy of what was received.
 * @param from, to
 *   Ranks that may say it: from to to - 1.
 * @param why
 *   256 bytes: the cause, if it is not good.
 */
enum kvd_hello_is kvd_hello_check(const struct kvd_hello *mine, const struct kvd_hello *theirs,
	uint32_t from, uint32_t to, char why[256]);

/** Read a secret. @return 0, or APP_EXIT_USAGE after one line on stderr. */
int kvd_secret_read(const char *path, uint8_t secret[KVD_SECRET_MAX]);

#endif
