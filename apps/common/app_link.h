/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LINK_H
#define APP_LINK_H

/**
 * @file
 * Bytes between two processes, by a socket: between two ranks a TCP connection, whose address and
 * secret they exchange through PMIx.
 *
 * Threads: one.
 */

#include <sys/types.h>

#include "app_boot.h"

/**
 * Connect to the other rank, which does the same.
 *
 * @return
 *   A descriptor, which the caller closes, or -errno.
 */
int app_link_open(struct app_boot *boot);

/**
 * What app_link_open() waits by: the next caller at a listener that shows the secret. Whoever does
 * not is refused.
 *
 * @return
 *   A descriptor, or -errno: -ETIMEDOUT, -EINTR (app_stop.h), -ECONNRESET (the other rank is gone).
 */
int __app_link_accept(struct app_boot *boot, int listener, uint64_t secret);

/** Send bytes; waits for room. @return 0 or -errno: the peer is lost. */
int app_link_send(int fd, const void *msg, size_t len);

/** Receive what is there. @return bytes, 0: nothing yet; -errno: the peer is lost. */
ssize_t app_link_recv(int fd, void *buf, size_t len);

#endif
