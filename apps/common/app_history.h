/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_HISTORY_H
#define APP_HISTORY_H

/**
 * @file
 * A history of a key-value store in memory, and in its binary form, as benchkv --history writes it
 * and usertools/crpc-lincheck reads it; doc/protocol/history.md is the specification.
 *
 * The file is mapped while it is written: an operation stands in it from its call on, so that a
 * process that is killed leaves all that it asked. All words are little endian.
 */

#include <stdint.h>

#define APP_HISTORY_MAGIC   UINT64_C(0x5453494843505243) /* "CRPCHIST" */
#define APP_HISTORY_VERSION 1u

/** What was asked. */
enum app_history_kind {
	APP_HISTORY_PUT,
	APP_HISTORY_GET,
	APP_HISTORY_DEL,
	APP_HISTORY_CAS,
	APP_HISTORY_SNAPSHOT, /**< The value at one moment is kept for the next restart. */
	APP_HISTORY_RESTART,  /**< The value is the one that was kept last. */
	APP_HISTORY_KINDS,
};

/** What came of it. */
enum app_history_state {
	APP_HISTORY_OPEN,    /**< No answer came: it may have had its effect, or not. */
	APP_HISTORY_OK,      /**< Done; a get found something. */
	APP_HISTORY_NONE,    /**< A delete or a get found nothing. */
	APP_HISTORY_FAILED,  /**< A compare-and-swap found something else. */
	APP_HISTORY_REFUSED, /**< It had no effect: no room, or no daemon to ask. */
};

/** Head of a file. */
struct app_history_head {
	uint64_t magic;
	uint32_t version;
	uint32_t op_size; /**< Bytes of an operation. */
	uint64_t ops;     /**< That follow. */
	uint64_t lost;    /**< That had no room. */
	uint64_t zero[4];
};

/** One operation. */
struct app_history_op {
	uint64_t key;
	uint64_t call;     /**< ns of a clock that all clients share. */
	uint64_t ret;      /**< When the answer was there; of one that is open nothing. */
	uint64_t value;    /**< PUT, CAS: to write. */
	uint64_t expected; /**< CAS; 0: no value. */
	uint64_t found;    /**< GET, failed CAS; 0: no value. */
	uint32_t client;
	uint8_t kind;      /**< enum app_history_kind. */
	uint8_t state;     /**< enum app_history_state. */
	uint8_t every_key; /**< SNAPSHOT, RESTART: 1: of every key. */
	uint8_t zero;
	uint64_t line; /**< 0; of one that was read, where it stood. */
};

_Static_assert(sizeof(struct app_history_head) == 64, "file format");
_Static_assert(sizeof(struct app_history_op) == 64, "file format");

#endif
