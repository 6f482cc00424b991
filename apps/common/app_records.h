/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_RECORDS_H
#define APP_RECORDS_H

/**
 * @file
 * The operations of the clients of one lcore, their times and results: --history.
 *
 * The file's pages are the memory, taken before the run. Where there are more operations than fit
 * the history can not be checked, and says so: later answers could depend on those left out. Only
 * whole keys can be left out.
 *
 * Belongs to one thread.
 */

#include "app_history.h"
#include "crpc_kv_proto.h"

struct app_records {
	struct app_history_head *head;
	struct app_history_op *op;
	uint64_t max;
	uint32_t keys; /**< Those below this are recorded. */
	int fd;
	uint64_t (*now_ns)(void);
};

/** In place of an operation's number: its key is not recorded, or there is no room. */
#define APP_NO_RECORD UINT64_MAX
#define APP_NO_ROOM   (UINT64_MAX - 1)

/**
 * Make the file.
 *
 * @param path
 *   Its name; what is there is replaced.
 * @param max
 *   Operations that fit.
 * @param keys
 *   Keys below this are recorded.
 * @param now_ns
 *   The clock of all times in it, one for all files of a history.
 * @return
 *   0, -EBUSY (a run that is alive writes it) or another -errno.
 */
int app_records_open(struct app_records *r, const char *path, uint64_t max, uint32_t keys,
	uint64_t (*now_ns)(void));

/** Let it go. @return operations that had no room. */
uint64_t app_records_close(struct app_records *r);

/**
 * A call is about to be made: now, by the clock that all processes share.
 *
 * @return
 *   Its number, for its answer.
 */
uint64_t app_records_call(struct app_records *r, const struct app_history_op *op);

/** It was not made after all; no other was noted since. */
void app_records_undo(struct app_records *r, uint64_t number);

/** Its answer is there; @p hdr NULL: it had no effect, its owner was lost before it was asked. */
void app_records_answer(
	struct app_records *r, uint64_t number, const struct kv_resp_hdr *hdr, uint64_t found);

#endif
