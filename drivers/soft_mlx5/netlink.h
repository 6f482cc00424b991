/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_NETLINK_H
#define SOFT_MLX5_NETLINK_H

/**
 * @file
 * NETLINK_RDMA, by which rdma(8) and libibverbs ask a kernel for devices and ports.
 *
 * Its sockets are of NETLINK_USERSOCK, a protocol without a kernel's side: what a program sends to
 * the kernel is refused, and only then looked at here. The answer comes through the socket, from
 * one of ours, so that bind(), poll(), recvmsg() and the like are native. Unlike a kernel's, such a
 * socket also takes what other processes of the network namespace send to it.
 */

#include <sys/types.h>

/**
 * Answer what a socket sent and was refused for. @p len, or -1 and errno: ECONNREFUSED if it is no
 * request of NETLINK_RDMA, or why the answer cannot be sent.
 */
ssize_t sm_netlink_send(int fd, const void *buf, size_t len);

#endif
