/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_EPOCH_H
#define KVD_EPOCH_H

/**
 * @file
 * The epoch of a rank, in the file PATH.RANK.epoch: a number that rises at every start and is on
 * disk before the first version is given out. Versions begin at epoch << KVD_EPOCH_BITS, so that
 * none is given twice, however the process before ended. It is above the time too, in units of
 * 2^40 ns, so that no version is given twice that a process without epochs gave by the time.
 *
 * A store cannot give 2^40 versions in KVD_EPOCH_NS, and after each such time the file's number
 * rises too. So the number of the next start is above all versions that this one gave.
 */

#include <stdint.h>

#define KVD_EPOCH_BITS 40
#define KVD_EPOCH_MAX  ((UINT64_C(1) << 23) - 1)
#define KVD_EPOCH_NS   (UINT64_C(900) * 1000000000)

/**
 * Read the file, add one, and make that lasting.
 *
 * @param epoch
 *   In: the number that it is above too, as the file may have been removed; 0 at the start. Out:
 *   the new number.
 * @param why
 *   256 bytes, for the cause of an error.
 * @return
 *   0 or -errno; -EBADMSG: the file has no such number.
 */
int kvd_epoch_raise(const char *path, uint32_t rank, uint64_t *epoch, char why[256]);

/** Whether a rank has an epoch: whether it has run before. */
int kvd_epoch_exists(const char *path, uint32_t rank);

#endif
