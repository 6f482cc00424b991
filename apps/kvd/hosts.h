/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVD_HOSTS_H
#define KVD_HOSTS_H

/**
 * @file
 * The ranks of a cluster as a file: a line HOST[:PORT] for each, rank 0 first; [ADDRESS]:PORT for
 * IPv6. Empty lines and what follows a # do not count. All ranks have the same file.
 */

#include <netdb.h>

#include "crpc_kv_server.h"

#define KVD_PORT 4950

struct kvd_host {
	char name[254];
	char port[6];
};

struct kvd_hosts {
	uint32_t n;
	struct kvd_host host[CRPC_KV_RANKS_MAX];
};

/** Read a file. @return 0, or APP_EXIT_USAGE after one line on stderr. */
int kvd_hosts_read(struct kvd_hosts *h, const char *path);

/**
 * The rank whose line is an address of this host.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line: there is none, or several.
 */
int kvd_hosts_find(const struct kvd_hosts *h, const char *path, uint64_t *rank);

/** Addresses of a line, for getaddrinfo(); listen: to wait there. NULL: none now. */
struct addrinfo *kvd_host_addresses(const struct kvd_host *host, int listen);

/** Whether two struct sockaddr are of one host, whatever their ports; b may be NULL: no. */
bool kvd_host_same(const void *a, const void *b);

/** Whether this struct sockaddr is of the host itself. */
bool kvd_host_loopback(const void *a);

#endif
