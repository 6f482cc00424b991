/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_ZMQ_H
#define APP_ZMQ_H

/**
 * @file
 * Sockets of ZeroMQ: by ipc with a name, or by tcp.
 */

#include <stddef.h>

/** What ZeroMQ opens and maps for a side; it aborts where it cannot. */
#define APP_ZMQ_FILES 16
#define APP_ZMQ_MIB   64

/**
 * A socket that queues without bound and leaves nothing behind.
 *
 * @param wait_ms
 *   A receive ends with EAGAIN after this; -1: never.
 * @return
 *   NULL: it cannot be made, also for want of a context.
 */
void *app_zmq_socket(void *context, int type, int wait_ms);

/** Close sockets, end their context. NULLs are fine. */
void app_zmq_end(void *context, void *a, void *b);

/**
 * Bind a socket.
 *
 * @param name
 *   Unique on this host, for ipc; NULL: a free port of tcp.
 * @param ip
 *   Ours, by which the peer reaches us by tcp.
 * @param addr
 *   For zmq_connect() of the peer.
 * @return
 *   0, or -EIO: app_zmq_why().
 */
int app_zmq_bind(void *sock, const char *name, const char *ip, char *addr, size_t len);

/** Why the last call of ZeroMQ failed. */
const char *app_zmq_why(void);

#endif
