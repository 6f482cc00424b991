/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_BOOT_H
#define APP_BOOT_H

/**
 * @file
 * Who the ranks of a run are, and the exchange of small blobs between them, through PMIx.
 *
 *     app_boot_open(&boot)              rank and size; alone it is rank 0 of 1
 *     app_boot_watch(&boot)             from now on a rank that dies is noticed
 *     app_boot_put(&boot, "addr", blob, len)
 *     app_boot_get(&boot, peer, "addr", &blob, &len, 2000)      waits until the peer has put it
 *     app_boot_fence(&boot, 10000)      everybody is here
 *     every millisecond or so: app_boot_look(&boot, now); app_boot_gone(&boot, peer)
 *     ...
 *     app_boot_close(&boot)
 *
 * mpirun and srun --mpi=pmix start PMIx; a program started by neither runs alone. Every wait has a
 * limit, because a rank that died answers nothing, and ends at once where it is known that a rank
 * died (app_watch.h). A poll loop that must not block uses the fence_start/fence_done pair and
 * keeps polling between.
 *
 * Threads: one. PMIx has a thread of its own, which sleeps when nothing is exchanged.
 */

#include "crpc_util.h"

/** Ranks of one run at most. */
#define APP_RANKS_MAX 1024

/** State of the exchange. */
struct app_boot {
	uint32_t rank;
	uint32_t size;
	uint32_t local_size; /**< Ranks of this host. */
	char job[64];  /**< Same text on all ranks of a run, unique on this host. */
	/**
	 * What is put belongs to a round: raise it, on all ranks, to use the same keys again. A new
	 * value takes the place of the old one, since a launcher never forgets a key and handles
	 * all of them at each exchange.
	 */
	uint32_t round;
	bool launched; /**< PMIx is there; else this is the only rank. */
	bool watched;  /**< Every other rank is watched: its death will be known. */
	uint32_t unwatched; /**< If not: one of those that are not. */
	void *fence;   /**< The fence in progress. */
	struct app_watch *watch;     /**< Of the other ranks; NULL: not yet. */
	uint8_t lost[APP_RANKS_MAX]; /**< Nothing more is expected of this rank. */
};

/**
 * Find out who we are.
 *
 * @return
 *   0; or APP_EXIT_USAGE after one line on stderr: a launcher without PMIx, or too many ranks.
 */
int app_boot_open(struct app_boot *boot);

/** Leave. Nothing of the run waits for it. */
void app_boot_close(struct app_boot *boot);

/**
 * Watch the other ranks from now on; all ranks call it. One that cannot be watched is no error:
 * boot->watched says so, and boot->unwatched names one.
 *
 * @return
 *   0, -ETIMEDOUT, -EHOSTDOWN (a rank is lost), -EIO, -ENOMEM.
 */
int app_boot_watch(struct app_boot *boot);

/** Look after the other ranks, if it is time; every millisecond or so. */
void app_boot_look(struct app_boot *boot, uint64_t now_ns);

/** Whether a rank is known to have died, or was given to app_boot_lose(). */
bool app_boot_gone(const struct app_boot *boot, uint32_t rank);

/** We know better that a rank is lost: no wait is for it any more. */
void app_boot_lose(struct app_boot *boot, uint32_t rank);

/**
 * Publish a blob under a key; visible to the others after this returns.
 *
 * @return
 *   0 or -EIO.
 */
int app_boot_put(struct app_boot *boot, const char *key, const void *buf, size_t len);

/**
 * Fetch what a rank publishes; waits, asleep, until it has done so.
 *
 * @param buf
 *   Set to memory that the caller frees.
 * @param timeout_ms
 *   Limit of the wait.
 * @return
 *   0; -ETIMEDOUT: it has not published it in time; -EHOSTDOWN: nor will it, it is lost; -ENOMEM.
 */
int app_boot_get(struct app_boot *boot, uint32_t rank, const char *key, void **buf, size_t *len,
	uint32_t timeout_ms);

/** The same, copied to @p buf. @return also -EPROTO: the blob is not of @p len bytes. */
int app_boot_take(struct app_boot *boot, uint32_t rank, const char *key, void *buf, size_t len,
	uint32_t timeout_ms);

/** Begin a fence over all ranks: 0 or -EIO. */
int app_boot_fence_start(struct app_boot *boot);

/**
 * 0 when everybody is at the fence, -EAGAIN before, -EIO if it failed. A rank that dies never
 * comes: app_boot_gone().
 */
int app_boot_fence_done(struct app_boot *boot);

/**
 * Wait, asleep, until every rank is here.
 *
 * @return
 *   0; -ETIMEDOUT; -EHOSTDOWN: a rank is lost and will not come; -EIO.
 */
int app_boot_fence(struct app_boot *boot, uint32_t timeout_ms);

/**
 * Publish a blob under a key and fetch those of all ranks; all ranks call it.
 *
 * @param all
 *   Set to the blobs of @p len bytes each, in the order of the ranks.
 * @return
 *   0, or a negative errno as the calls above.
 */
int app_boot_exchange(struct app_boot *boot, const char *key, const void *mine, size_t len,
	void *all, uint32_t timeout_ms);

/**
 * After a step that every rank makes with app_fail_hold(true): learn whether all of them succeeded.
 * If not, the first that failed says its line, and all get the same answer.
 *
 * @param step
 *   Name of the step, the same on all ranks, once per run.
 * @param rc
 *   Our own outcome: 0 or an exit code.
 * @return
 *   0, or an exit code.
 */
int app_boot_agree(struct app_boot *boot, const char *step, int rc);

#endif
