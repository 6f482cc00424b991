/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XB_ZMQ_H
#define XB_ZMQ_H

/**
 * @file
 * What the lanes over ZeroMQ share: how two sides find each other over tcp, on one host by its
 * loopback, on two by the first address of the peer that answers.
 */

#include "xb.h"

/** A socket that queues without bound and leaves nothing behind; NULL: it cannot be made. */
void *xb_zmq_socket(void *context, int type);
/** Bind a socket to a free port; l->addr[side] is its address. 0, or -EIO. */
int xb_zmq_bind(struct xb_lane *l, int side, void *sock);
/** Connect a socket to where the other side's is: 0, or -EIO, -EHOSTUNREACH. */
int xb_zmq_connect(struct xb_lane *l, int side, void *sock);

#endif
