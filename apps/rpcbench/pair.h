/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/**
 * @file
 * A second process, for the other side of a measurement.
 *
 *     p = rpb_pair_start()                       before the EAL and before any thread
 *     rpb_pair_pin(p, cpu)
 *     rpb_pair_run(p, serve, &arg, sizeof(arg))  serve(p, arg) begins in the second process
 *     while (!rpb_pair_ready(p)) ...             serve() said so with rpb_pair_set_ready()
 *     ... timed work; both talk through what they opened, not through the pair ...
 *     rpb_pair_stop(p)                           serve() sees rpb_pair_stopped() and returns
 *     rc = rpb_pair_join(p, 1000)                what it returned
 *     rpb_pair_end(p)
 *
 * It is a fork without exec: the same program at the same addresses, so a function is named by its
 * pointer, and what was allocated before the fork is there. Between functions it sleeps in a read.
 * It ends when the first process ends, however that ended, and calls rpb_pair_on_quit() first.
 *
 * Each side has a blob to show the other (an address to connect to), and file descriptors can be
 * sent to the second process.
 *
 * Threads: one on each side.
 */

#include "app_measure.h"
#include "crpc_atomic.h"
#include "crpc_util.h"

/** Bytes of a function's argument and of a blob at most. */
#define RPB_PAIR_ARG_MAX  4096
#define RPB_PAIR_BLOB_MAX 8192
/** Descriptors in one message. */
#define RPB_PAIR_FDS_MAX 4

struct rpb_pair;

/** Runs in the second process; its return value comes back through rpb_pair_join(). */
typedef int (*rpb_pair_fn)(struct rpb_pair *p, void *arg);

/** What the process that shows a blob is. */
enum rpb_side { RPB_FIRST, RPB_SECOND };

/** Start the second process: NULL with errno. */
struct rpb_pair *rpb_pair_start(void);

/** End it and wait until it is gone. NULL is fine. */
void rpb_pair_end(struct rpb_pair *p);

/** Pin it to a core: 0 or -errno. */
int rpb_pair_pin(struct rpb_pair *p, int cpu);

/**
 * Begin fn(p, copy of arg) in the second process. Ready, stop and both blobs are cleared. 0, or
 * -ECHILD: it is gone.
 */
int rpb_pair_run(struct rpb_pair *p, rpb_pair_fn fn, const void *arg, size_t len);

/**
 * Wait until the function has returned.
 *
 * @return
 *   What it returned; or -ETIMEDOUT; or -ECHILD: the process is gone. rpb_pair_why() has the cause.
 */
int rpb_pair_join(struct rpb_pair *p, uint32_t timeout_ms);

/** What the second process said about its error, or how it ended. */
const char *rpb_pair_why(const struct rpb_pair *p);

/** In the second process: report why the function fails; returns rc. */
int rpb_pair_fail(struct rpb_pair *p, int rc, const char *fmt, ...) crpc_printf(3, 4);

/** In the second process: called before it ends, to remove what it made. */
void rpb_pair_on_quit(void (*fn)(void));

/** Show bytes to the other side, once per rpb_pair_run(): 0 or -EMSGSIZE. */
int rpb_pair_show(struct rpb_pair *p, enum rpb_side me, const void *buf, size_t len);

/** Wait for what the other side shows: its length, -EMSGSIZE, -ETIMEDOUT or -ECHILD. */
int rpb_pair_see(
	struct rpb_pair *p, enum rpb_side me, void *buf, size_t len, uint32_t timeout_ms);

/** Send descriptors to the second process, which is in rpb_pair_take_fds(): 0 or -errno. */
int rpb_pair_give_fds(struct rpb_pair *p, const int *fd, uint32_t n);

/** In the second process: wait for descriptors: 0 or -errno. */
int rpb_pair_take_fds(struct rpb_pair *p, int *fd, uint32_t n);

/** False if the second process is gone. A system call. */
bool rpb_pair_alive(struct rpb_pair *p);

/**
 * Line ping-pong with the second process, round trip in ns; 0 if one of the two cores was busy with
 * something else, below 0 if the process is gone.
 */
double rpb_pair_line_ns(struct rpb_pair *p);

/** Lines per second that the second process can read from this one, in millions. */
double rpb_pair_line_rate(struct rpb_pair *p);

/** The flags that both sides poll, each on lines of its own. */
struct rpb_flags {
	_Atomic uint32_t ready crpc_aligned(CRPC_CACHE_GUARD);
	_Atomic uint32_t stop crpc_aligned(CRPC_CACHE_GUARD);
};

/** At the head of the pair's shared memory, so that a timed loop sees them without a call. */
static inline struct rpb_flags *
rpb_pair_flags(struct rpb_pair *p)
{
	return (struct rpb_flags *)(void *)p;
}

static inline void
rpb_pair_set_ready(struct rpb_pair *p)
{
	crpc_store_release(&rpb_pair_flags(p)->ready, 1); /* R50 */
}

static inline bool
rpb_pair_ready(struct rpb_pair *p)
{
	return crpc_load_acquire(&rpb_pair_flags(p)->ready) != 0; /* A50 pairs with R50 */
}

static inline void
rpb_pair_stop(struct rpb_pair *p)
{
	crpc_store_release(&rpb_pair_flags(p)->stop, 1); /* R51 */
}

static inline bool
rpb_pair_stopped(struct rpb_pair *p)
{
	return crpc_load_acquire(&rpb_pair_flags(p)->stop) != 0; /* A51 pairs with R51 */
}

#endif
