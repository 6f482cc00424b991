/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TENSOR_BATCH_H
#define CRPC_TENSOR_BATCH_H

/**
 * @file
 * Several operations on arrays in one message: built by one side, checked and run by the other.
 *
 *     asks                                         does
 *     crpc_tensor_batch_init(&b, 0)                r = crpc_tensor_runner_create(&conf)
 *     x = crpc_tensor_batch_array(&b, &tx)         crpc_tensor_runner_add(r, 256, 2, 1, fn, ctx)
 *     y, z in the same way
 *     crpc_tensor_batch_op(&b, 256,
 *             &(struct crpc_tensor_args){.nin = 2, .nout = 1, .arg = {x, y, z}})
 *             -- b.bytes, b.len, by any way -->    n = crpc_tensor_runner_run(r, bytes, len,
 *             <-- one status per operation --                block, size, peer, status)
 *
 * Only descriptors travel. The arrays lie in segment 0, which is one block of memory that the
 * asking side hands over with the message (lib/tensor_ipc does it through an arena), or in a
 * segment from 1 on, which the doing side offers to all for reading.
 *
 * Operations run in order, each on the arrays that it names; later ones may use what earlier ones
 * made. One that is refused or fails gets its status, and the others run, unless the batch was
 * started with CRPC_TENSOR_BATCH_STOP: then they end with -ECANCELED.
 *
 * Trust. The message is copied once. Every array of an operation is checked before its code is
 * called: an output may not overlap itself, nor any other array of the operation, and lies in
 * segment 0. So code that stays within the descriptors it is given stays within the block. What the
 * arrays hold is another matter: the other side may change it at any time.
 *
 * Ownership: the runner keeps nothing of a message or block once run() has returned.
 *
 * Threads: a runner belongs to one thread; a batch is a plain value. run() allocates nothing.
 *
 * Bytes and golden examples: doc/protocol/tensor.md.
 */

#include "crpc_tensor.h"

CRPC_BEGIN_DECLS

/** "TBAT" in memory, on a little-endian machine. */
#define CRPC_TENSOR_BATCH_MAGIC UINT32_C(0x54414254)
/** Version of the message. */
#define CRPC_TENSOR_BATCH_VERSION 1
/** Flag: the first operation that fails cancels those behind it. */
#define CRPC_TENSOR_BATCH_STOP 1u

/** Operations: what they do is the user's, crpc_tensor_runner_add(), but for one. */
enum crpc_tensor_op_code {
	CRPC_TENSOR_OP_NONE = 1, /**< Any arrays: they are checked, and nothing is done. */
	CRPC_TENSOR_OP_USER = 256,
};

/** First bytes of a message; the arrays follow, then the operations. */
struct crpc_tensor_batch_head {
	uint32_t magic;   /**< CRPC_TENSOR_BATCH_MAGIC. */
	uint8_t version;  /**< CRPC_TENSOR_BATCH_VERSION. */
	uint8_t flags;    /**< CRPC_TENSOR_BATCH_STOP, or 0. */
	uint8_t ntensors; /**< struct crpc_tensor that follow. */
	uint8_t nops;     /**< struct crpc_tensor_op behind them. */
	uint64_t zero;    /**< 0. */
};

/** One operation in a message. */
struct crpc_tensor_op {
	uint16_t code; /**< enum crpc_tensor_op_code, or a user's. */
	uint8_t nin;   /**< Arrays that are read. */
	uint8_t nout;  /**< Arrays that are written. */
	/** Which, by their number in the message: inputs, then outputs; 0 behind them. */
	uint8_t arg[CRPC_TENSOR_OP_ARGS_MAX];
	double value; /**< What the operation makes of it. */
};

_Static_assert(sizeof(struct crpc_tensor_batch_head) == 16, "format version 1");
_Static_assert(sizeof(struct crpc_tensor_op) == 16, "format version 1");
_Static_assert(CRPC_TENSOR_BATCH_TENSORS_MAX <= UINT8_MAX, "counted in a byte");
_Static_assert(CRPC_TENSOR_BATCH_OPS_MAX <= UINT8_MAX, "counted in a byte");

/** Bytes of a message. */
#define CRPC_TENSOR_BATCH_BYTES(ntensors, nops)                                                    \
	(sizeof(struct crpc_tensor_batch_head) + (ntensors) * sizeof(struct crpc_tensor) +         \
		(nops) * sizeof(struct crpc_tensor_op))
/** Bytes of the longest. */
#define CRPC_TENSOR_BATCH_BYTES_MAX                                                                \
	CRPC_TENSOR_BATCH_BYTES(CRPC_TENSOR_BATCH_TENSORS_MAX, CRPC_TENSOR_BATCH_OPS_MAX)

/* ---- asking ---- */

/** A message that is being built. */
struct crpc_tensor_batch {
	uint32_t len; /**< Bytes of the message so far. */
	crpc_aligned(8) uint8_t bytes[CRPC_TENSOR_BATCH_BYTES_MAX]; /**< The message. */
};

/** The arrays of an operation, by what crpc_tensor_batch_array() gave. */
struct crpc_tensor_args {
	uint8_t nin, nout;
	int arg[CRPC_TENSOR_OP_ARGS_MAX]; /**< Inputs, then outputs. */
	double value;
};

/** Start an empty batch. @p flags is 0 or CRPC_TENSOR_BATCH_STOP. */
void crpc_tensor_batch_init(struct crpc_tensor_batch *b, uint32_t flags);

/**
 * Name an array to the operations of the batch.
 *
 * @return
 *   Its number, or -ENOSPC: CRPC_TENSOR_BATCH_TENSORS_MAX are in.
 */
int crpc_tensor_batch_array(struct crpc_tensor_batch *b, const struct crpc_tensor *t);

/**
 * Append an operation.
 *
 * @return
 *   Its number, which is that of its status; -EINVAL: code 0, too many arrays, or one that is not
 *   in the batch; -ENOSPC: CRPC_TENSOR_BATCH_OPS_MAX are in.
 */
int crpc_tensor_batch_op(
	struct crpc_tensor_batch *b, uint32_t code, const struct crpc_tensor_args *args);

/** Operations in the batch. */
uint32_t crpc_tensor_batch_ops(const struct crpc_tensor_batch *b);

/**
 * Read the statuses of a batch's operations out of the answer of who ran it.
 *
 * @param data, len
 *   The answer; may be changing. Read once.
 * @param status
 *   Room for @p n: 0, or a negative errno as of crpc_tensor_runner_run().
 * @param n
 *   Operations of the batch: crpc_tensor_batch_ops().
 * @return
 *   0, whatever the statuses are; or -EPROTO: another number of statuses, or one that is none.
 */
int crpc_tensor_batch_statuses(const void *data, uint32_t len, int32_t *status, uint32_t n);

/* ---- doing ---- */

/** What an operation's code is given. All of it is checked, and private to this process. */
struct crpc_tensor_call {
	uint32_t code;
	uint32_t peer; /**< The client, as the caller of run() numbers them. */
	uint32_t nin, nout;
	const struct crpc_tensor *t[CRPC_TENSOR_OP_ARGS_MAX]; /**< Inputs, then outputs. */
	void *ptr[CRPC_TENSOR_OP_ARGS_MAX]; /**< First element of each; of inputs, read only. */
	double value;
};

/**
 * The code of an operation. It may call anything but the runner's own functions.
 *
 * @return
 *   The operation's status: 0, or -1 to -4095, an errno.
 */
typedef int (*crpc_tensor_op_fn)(void *ctx, const struct crpc_tensor_call *call);

/** What crpc_tensor_runner_create() makes. Zero it, then set what is wanted. */
struct crpc_tensor_runner_conf {
	/** Segments from 1 on, for reading; its entry 0 is ignored. Stays the caller's. */
	const struct crpc_tensor_space *offered;
	/**
	 * Elements of an array, repeated ones counted as often as they appear, which bounds the
	 * work of an operation; 0: 2^30.
	 */
	uint64_t elems_max;
};

struct crpc_tensor_runner;

/**
 * Create a runner, which has CRPC_TENSOR_OP_NONE.
 *
 * @return
 *   The runner, or NULL with errno: EINVAL (more than CRPC_TENSOR_SEGMENTS_MAX segments), ENOMEM.
 */
struct crpc_tensor_runner *crpc_tensor_runner_create(const struct crpc_tensor_runner_conf *conf);

/** Free it. NULL is fine. */
void crpc_tensor_runner_free(struct crpc_tensor_runner *r);

/**
 * Teach it an operation.
 *
 * @param r
 *   The runner.
 * @param code
 *   From CRPC_TENSOR_OP_USER on, below CRPC_TENSOR_OP_USER + CRPC_TENSOR_BATCH_OPS_MAX.
 * @param nin, nout
 *   The arrays that it takes; an operation with others is refused.
 * @param fn, ctx
 *   Its code, and what that is called with.
 * @return
 *   0; -EINVAL: code, or more than CRPC_TENSOR_OP_ARGS_MAX arrays; -EEXIST: the code is taken.
 */
int crpc_tensor_runner_add(struct crpc_tensor_runner *r, uint32_t code, uint32_t nin, uint32_t nout,
	crpc_tensor_op_fn fn, void *ctx);

/**
 * Check a message and run its operations.
 *
 * @param r
 *   The runner.
 * @param bytes, len
 *   The message; may be changing. Read once.
 * @param block, size
 *   Segment 0, aligned to CRPC_CACHE_LINE; NULL: there is none.
 * @param peer
 *   Handed to the operations.
 * @param status
 *   Room for CRPC_TENSOR_BATCH_OPS_MAX. Per operation: 0; what its code gave; -ENOSYS (unknown
 *   code), -EINVAL (number of arrays), -EACCES (output outside of segment 0), -E2BIG (elems_max),
 *   -ENOTUNIQ (an output overlaps itself or another array), -ECANCELED, or an error of
 *   crpc_tensor_check(). The newest cause is in crpc_log_last().
 * @return
 *   Number of operations; or -EPROTO: no batch, and nothing was run.
 */
int crpc_tensor_runner_run(struct crpc_tensor_runner *r, const void *bytes, uint32_t len,
	void *block, uint64_t size, uint32_t peer, int32_t *status);

CRPC_END_DECLS

#endif
