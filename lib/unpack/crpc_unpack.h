/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_UNPACK_H
#define CRPC_UNPACK_H

/**
 * @file
 * Unpack engines: who moves what arrived in bounce buffers to where it belongs.
 *
 *     bounce memory        [ a ][ b ]      [ c ]           pieces of a chunk, scattered
 *                            |    \          /
 *     submit(desc[3]) ------>|     \        /              one job; returns at once
 *     done(job): -EAGAIN     v      v      v
 *     done(job): 0         [ a ][   b   ][ c ]             the user's buffer
 *
 * An engine has a name and is registered once; crpc_unpack_create() makes its state (threads,
 * queues, streams), which then serves any number of jobs: state is never made per chunk.
 *
 *     crpc_unpack_register(&engine)               at start; "cpu" is always there
 *     u = crpc_unpack_create("cpu", &conf)
 *     crpc_unpack_attach(u, mem, len)             memory that descriptors will name; see there
 *     loop:
 *             crpc_unpack_submit(u, desc, n, &job)     0, or -EAGAIN: later
 *             crpc_unpack_kick(u)                      once per turn, behind the submits
 *             crpc_unpack_done(u, job)                 0, -EAGAIN, or why it failed
 *     crpc_unpack_free(u)
 *
 * Ownership: desc[] is free again when submit() returns. What the descriptors name (source and
 * destination) belongs to the engine from a successful submit() until done() has returned something
 * else than -EAGAIN, also if that is an error; then the engine touches none of it any more.
 * crpc_unpack_stop() is the way to get all of it back from an engine that does not come to an end.
 *
 * Conversion: a descriptor may narrow or widen floats on the way (enum crpc_unpack_op). len counts
 * source bytes; crpc_unpack_out_len() gives those written. Source and destination are aligned to
 * their elements, and len is whole elements.
 *
 * Threads: a state belongs to the one thread that uses it. Registration is done before threads
 * start.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** What happens to the bytes on the way. */
enum crpc_unpack_op {
	CRPC_UNPACK_COPY,
	CRPC_UNPACK_F32_TO_BF16,
	CRPC_UNPACK_BF16_TO_F32,
	CRPC_UNPACK_F32_TO_F16,
	CRPC_UNPACK_F16_TO_F32,
	CRPC_UNPACK_OPS,
};

/** One piece. */
struct crpc_unpack_desc {
	const void *src;
	void *dst;
	uint32_t len; /**< Bytes of the source; 0 is allowed. */
	uint32_t op;  /**< enum crpc_unpack_op. */
};

/** Jobs of a state that are open at most. */
#define CRPC_UNPACK_JOBS_MAX (1u << 16)

/** How to make a state. Zero fields take the default. */
struct crpc_unpack_conf {
	/** Jobs that are open at a time at most; default 64, at most CRPC_UNPACK_JOBS_MAX. */
	uint32_t max_jobs;
	/** Jobs from this many written bytes on go around the caches, if the engine is the CPU;
	 *  default CRPC_UNPACK_STREAM_BYTES. UINT64_MAX: never. */
	uint64_t stream_bytes;
	/** The engine's own argument: a device's name, a number; see its header. */
	const char *arg;
};

/** Written bytes from which on the cpu engine's stores go around the caches. */
#define CRPC_UNPACK_STREAM_BYTES (UINT64_C(256) << 10)

/** crpc_unpack_ops.flags: the engine can convert (enum crpc_unpack_op above COPY). */
#define CRPC_UNPACK_CAN_CONVERT 0x1u
/** It writes memory that the CPU can not read, so checksums are taken from the bounce memory. */
#define CRPC_UNPACK_DEVICE_MEMORY 0x2u

/** An engine: constant, one per kind. Arguments were checked by crpc_unpack_*(). */
struct crpc_unpack_ops {
	const char *name;
	uint32_t flags;
	/** Make the state. 0 sets it; -ENODEV, -ENOMEM, -EINVAL, logged. */
	int (*create)(const struct crpc_unpack_conf *conf, void **state);
	/** Every job was done or stopped before. */
	void (*free)(void *state);
	/** Start one job of n descriptors, 1 to CRPC_UNPACK_DESCS_MAX. 0 sets *job, a number
	 *  of the engine's choice that is unique among open jobs. -EAGAIN: no room now, nothing
	 *  was taken. Other errors: this job can not be done, nothing was taken. Must not wait. */
	int (*submit)(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job);
	/** Hand submitted jobs to the device, if submit() does not. May be NULL. */
	void (*kick)(void *state);
	/** Ask about an open job, without waiting. -EAGAIN: not yet. 0: the bytes are there; any
	 *  other: it failed (-EIO, ...). After anything but -EAGAIN the number names nothing. NULL:
	 *  every job is over when submit returns; stop is NULL then, too. */
	int (*done)(void *state, uint64_t job);
	/** Give up all open jobs. 0: none of their memory is touched any more, and all their
	 *  numbers name nothing. -EAGAIN: not yet, ask again. Must come to 0 in bounded time. */
	int (*stop)(void *state);
	/** Make memory usable for the device, and forget it. NULL, both: any memory is. detach() of
	 *  what is not attached does nothing. */
	int (*attach)(void *state, void *mem, uint64_t len);
	void (*detach)(void *state, void *mem);
	/** Descriptors that a job can always have; 0: CRPC_UNPACK_DESCS_MAX. */
	uint32_t descs;
};

/** A state of an engine. */
struct crpc_unpack;

/**
 * Add an engine. Before threads start.
 *
 * @param ops
 *   Constant; it must stay.
 * @return
 *   0, -EEXIST (another of that name), -ENOSPC (CRPC_UNPACK_ENGINES_MAX), -EINVAL (a slot is
 *   missing).
 */
int crpc_unpack_register(const struct crpc_unpack_ops *ops);

/** The engine of that name, or NULL. */
const struct crpc_unpack_ops *crpc_unpack_find(const char *name);

/**
 * Make a state, once; not for a datapath: it may take milliseconds.
 *
 * @param name
 *   "cpu", or of a registered engine; NULL: "cpu".
 * @param conf
 *   NULL: all zero.
 * @return
 *   The state, or NULL with errno: ENOENT (no such engine; the log lists those there are), EINVAL,
 *   ENOMEM, ENODEV.
 */
struct crpc_unpack *crpc_unpack_create(const char *name, const struct crpc_unpack_conf *conf);

/** Free a state; open jobs are stopped first. NULL is allowed. */
void crpc_unpack_free(struct crpc_unpack *u);

/**
 * Announce memory that descriptors will name, source or destination, to an engine whose device must
 * know it before. Not for a datapath: it may lock pages. lib/bulk does it for its bounce memory,
 * the user for destinations; with an engine that takes any memory (cpu, dmadev) it does nothing.
 *
 * @return
 *   0. -EEXIST: part of it is attached. -ENOSPC: too many regions. -ENOMEM: the device can not
 *   reach it (the log says why). -EINVAL: len is 0, or goes past the end of addresses.
 */
int crpc_unpack_attach(struct crpc_unpack *u, void *mem, uint64_t len);

/** Take back what was attached at mem; no open job may name it. Before it is freed or unmapped. */
void crpc_unpack_detach(struct crpc_unpack *u, void *mem);

/**
 * Start a job. Returns at once; the work may have been done in it (cpu), or is still to come.
 *
 * @param u
 *   The state.
 * @param desc
 *   The pieces, which do not overlap in the destination; free again on return.
 * @param n
 *   1 to CRPC_UNPACK_DESCS_MAX.
 * @param job
 *   Set on success.
 * @return
 *   0. -EAGAIN: max_jobs are open or the engine is full; ask done(), then retry. -EINVAL: n, an op,
 *   or a len that is not whole elements. -EOPNOTSUPP: a conversion that the engine can not do.
 *   -EFAULT: memory that the engine must know, but was not attached. Others: the engine's.
 */
int crpc_unpack_submit(
	struct crpc_unpack *u, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job);

/** Hand what was submitted to the engine's device. Once per turn is enough. */
void crpc_unpack_kick(struct crpc_unpack *u);

/**
 * Ask about a job, until it has ended.
 *
 * @return
 *   -EAGAIN: not yet. 0: done. Others: it failed; nothing is touched any more.
 */
int crpc_unpack_done(struct crpc_unpack *u, uint64_t job);

/**
 * Give up all open jobs of a state.
 *
 * @return
 *   0: none is open and none of their memory is touched any more. -EAGAIN: ask again.
 */
int crpc_unpack_stop(struct crpc_unpack *u);

/** The engine behind a state. */
const struct crpc_unpack_ops *crpc_unpack_engine(const struct crpc_unpack *u);

/** Jobs that are open. */
uint32_t crpc_unpack_open_jobs(const struct crpc_unpack *u);

/** States made of any engine since the program began: it must not grow with the chunks. */
uint64_t crpc_unpack_states_made(void);

/** Bytes of one element before (src) or behind an op; 1 of a copy. */
static inline uint32_t
crpc_unpack_elem(uint32_t op, bool src)
{
	bool narrows = op == CRPC_UNPACK_F32_TO_BF16 || op == CRPC_UNPACK_F32_TO_F16;

	if (op == CRPC_UNPACK_COPY)
		return 1;
	return narrows == src ? 4 : 2;
}

/** Bytes that an op writes for len source bytes. */
static inline uint64_t
crpc_unpack_out_len(uint32_t op, uint64_t len)
{
	return len / crpc_unpack_elem(op, true) * crpc_unpack_elem(op, false);
}

CRPC_END_DECLS

#endif
