/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TENSOR_H
#define TENSOR_H

/**
 * @file
 * Layer tensor: one array of f32 goes from the first process to the second, in several ways.
 *
 *     tensor.c        options, rounds of slices
 *     tensor_pass.c   one slice: passes, stage by stage
 *     tensor_ours.c, tensor_zmq.c   the ways
 *     tensor_out.c    table and JSON
 *
 * A pass, with the counter that both cores read:
 *
 *     first process                                second process
 *     writes the array                             waits
 *     begin
 *       ... makes a message of it ...
 *     serialized
 *       ... hands it over ...
 *     sent                                         received    all of it is in this process
 *                                                    ... makes an array of f32 of it ...
 *                                                  done
 *                                                    ... reads every element ...
 *                                                  read
 *                                                  compares every element
 *     takes the answer      <-- these times --
 */

#include <stdio.h>

#include "app_opt.h"
#include "app_out.h"
#include "crpc_clock.h"
#include "rpb.h"

/** Bytes of an array. */
#define TENSOR_SIZE_MAX (256u << 20)
/** Time that both sides have to meet, and for one pass. */
#define TENSOR_MEET_MS 20000

/** The ways, in the order of the table. */
enum tensor_way_id {
	TENSOR_F32,
	TENSOR_F32_COPIED,
	TENSOR_BF16,
	TENSOR_RAW_IPC,
	TENSOR_RAW_TCP,
	TENSOR_BIN_IPC,
	TENSOR_BIN_TCP,
	TENSOR_ELEMS_IPC,
	TENSOR_ELEMS_TCP,
	TENSOR_WAYS,
};

/** Stages of a pass. READ comes after the others and is not in TOTAL. */
enum tensor_stage {
	TENSOR_SERIALIZE,
	TENSOR_SEND,
	TENSOR_RECEIVE,
	TENSOR_DESERIALIZE,
	TENSOR_TOTAL,
	TENSOR_READ,
	TENSOR_STAGES,
};

extern const char *const tensor_stage_names[TENSOR_STAGES];

/** What one slice passes. */
struct tensor_conf {
	enum tensor_way_id way;
	uint32_t elems;
	char name[40]; /**< Unique on this host, for addresses. */
};

/** What the second process reports of a pass; ticks of the counter. */
struct tensor_answer {
	uint64_t received;
	uint64_t done;
	uint64_t read;
	uint64_t wrong; /**< Elements that are not what was written. */
};

/** A pass as the first process knows it in the end. */
struct tensor_pass {
	uint64_t begin;
	uint64_t serialized;
	uint64_t sent;
	struct tensor_answer answer;
};

/** Second process: who uses the arrays. */
struct tensor_user {
	uint32_t elems;
	uint32_t seq; /**< Of the array that comes next. */
	struct tensor_answer answer;
};

/** The array is there: note done, read it, note read, compare it. */
void tensor_use(struct tensor_user *u, const float *x);

/** A way to pass an array. Functions that fail have said why: tensor_why(), rpb_pair_fail(). */
struct tensor_way {
	const char *name;
	const char *package; /**< Debian packages that it needs; NULL: none. */
	bool built;
	bool sleeps; /**< Waits in the kernel, so its threads lose their cores all the time. */

	/* First process. */
	void *(*open)(struct rpb_pair *p, const struct tensor_conf *c);
	/** Where the array is written before a pass. */
	float *(*array)(void *client);
	/** Pass it and wait for the answer: 0 or -errno. */
	int (*pass)(void *client, struct tensor_pass *t);
	void (*close)(void *client);

	/* Second process. */
	void *(*serve_open)(struct rpb_pair *p, const struct tensor_conf *c);
	/**
	 * Wait a moment for an array: set received, hand it to tensor_use(), send the answer.
	 * 0 or -errno.
	 */
	int (*serve)(void *server, struct tensor_user *u);
	void (*serve_close)(void *server);
};

extern const struct tensor_way tensor_f32, tensor_f32_copied, tensor_bf16, tensor_raw_ipc,
	tensor_raw_tcp, tensor_bin_ipc, tensor_bin_tcp, tensor_elems_ipc, tensor_elems_tcp;

/** All of them. */
extern const struct tensor_way *const tensor_ways[TENSOR_WAYS];

/** First process: remember why a function fails; returns rc. */
int tensor_why(int rc, const char *fmt, ...) crpc_printf(2, 3);

/** The last tensor_why(). */
const char *tensor_why_text(void);

/** What the user asked for. */
struct tensor_opt {
	struct app_list transports;
	uint64_t size;
	uint64_t slice_ms;
	uint64_t repeat;
	const char *json;
};

/** A run and its figures, us. */
struct tensor_run {
	const struct tensor_opt *opt;
	struct rpb *rpb;
	FILE *json;
	struct app_series series[TENSOR_WAYS][TENSOR_STAGES];
	struct app_series copy; /**< GB/s read and written by memcpy() of arrays of that size. */
	bool lost[TENSOR_WAYS]; /**< Failed: left out. */
	uint32_t failed;
	struct app_trial trial;
};

/**
 * One slice of one way: medians of its passes, us.
 *
 * @return
 *   0, or -errno after tensor_why().
 */
int tensor_slice(struct tensor_run *run, enum tensor_way_id way, double us[TENSOR_STAGES],
	uint64_t *away_ns);

/** Table and JSON: 0 or -EIO. */
int tensor_out(const struct tensor_run *run);

#endif
