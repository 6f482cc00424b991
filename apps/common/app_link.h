/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_LINK_H
#define APP_LINK_H

/**
 * @file
 * Messages between two ranks, by notifications of copyrpc over a connection of their own.
 *
 * Both send and receive in the same order, so neither is ever more than one message ahead.
 * Threads: one.
 */

#include "app_boot.h"

/** Bytes of a message at most. */
#define APP_LINK_MAX 8192

struct app_link;

/**
 * Connect to the other rank, which does the same.
 *
 * @param device
 *   RDMA device; NULL: the first one.
 * @return
 *   0, or an exit code after a line.
 */
int app_link_open(struct app_link **link, struct app_boot *boot, const char *device);

/** NULL is fine. */
void app_link_close(struct app_link *k);

/** Begin to send a message: 0 or -errno. */
int app_link_send(struct app_link *k, const void *msg, size_t len);

/**
 * Receive the next message, once what was sent has arrived.
 *
 * @return
 *   0; -EAGAIN: call again; -EPROTO: it has another length; -ECONNRESET and others: the peer is
 *   lost.
 */
int app_link_recv(struct app_link *k, void *msg, size_t len);

/** Between calls of app_link_recv() that give -EAGAIN. */
void app_link_idle(struct app_link *k);

/** Rate of the device's port, GB/s; 0: unknown. */
double app_link_port_gbps(const struct app_link *k);

#endif
