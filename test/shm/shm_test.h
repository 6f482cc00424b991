/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHM_TEST_H
#define SHM_TEST_H

/**
 * @file
 * What the tests of lib/shm share: a directory, segments, children that are killed. Include it
 * first.
 */

#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "test.h"
#include "child.h"
#include "crpc_atomic.h"
#include "crpc_log.h"
#include "crpc_shm.h"
#include "rnd.h"

#define KIND         CRPC_SHM_KIND('T', 'E', 'S', 'T')
#define KIND_VERSION 3
#define OTHER_UID       65534

static char dir[160];
static uint64_t seed; /* of rnd() */

static inline int
make_dir(void **state)
{
	const char *env = getenv("SEED");

	seed = env != NULL ? strtoull(env, NULL, 0) : UINT64_C(0x9e3779b97f4a7c15);
	print_message("seed %#llx (SEED=... is another)\n", (unsigned long long)seed);
	snprintf(dir, sizeof(dir), "/dev/shm/crpc_test.XXXXXX");
	return mkdtemp(dir) == NULL;
}

/* Fails if a test left a file behind. */
static inline int
remove_dir(void **state)
{
	return rmdir(dir);
}

/* The path of a file in the directory, until the next call. */
static inline const char *
path_of(const char *file)
{
	static char path[CRPC_SHM_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return path;
}

static inline bool
exists(const char *file)
{
	return access(path_of(file), F_OK) == 0;
}

/* A socket at the address of the segment's, which may be reached by no long path. */
static inline int
sock_open(const char *name, struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(addr->sun_path, sizeof(addr->sun_path), "%.80s/crpc.%s.sock", dir, name);
	return fd;
}

/* Connected to the segment's socket, or -1. */
static inline int
sock_connect(const char *name)
{
	struct sockaddr_un addr;
	int fd = sock_open(name, &addr);

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Neither a file nor a socket is left of segment "a". */
static inline bool
a_is_gone(void)
{
	return !exists("crpc.a") && !exists("crpc.a.sock");
}

static inline struct crpc_shm_conf
conf_of(const char *name, uint64_t size, bool memfd)
{
	return (struct crpc_shm_conf){.name = name,
			.dir = dir,
			.size = size,
			.kind = KIND,
			.kind_version = KIND_VERSION,
			.memfd = memfd};
}

static inline struct crpc_shm *
create_as(const char *name, uint64_t size, bool memfd)
{
	struct crpc_shm_conf conf = conf_of(name, size, memfd);

	return crpc_shm_create(&conf);
}

static inline struct crpc_shm *
attach(const char *name)
{
	return crpc_shm_attach(dir, name, KIND, KIND_VERSION, 0);
}

/* The segment is not there, or is not right, for this reason. */
#define assert_fails(call, error)                                                                  \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, error);                                                    \
	} while (0)

/* The newest error's text has that part. */
#define assert_logged(part) assert_non_null(strstr(crpc_log_last(), part))

/* ---- an owner in a process of its own ---- */

#define SIZE 10000

static struct crpc_shm_conf owner_conf; /* of the next owner; see start_owner() */
static struct crpc_shm *owned;          /* in its process */

static inline void
own(void)
{
	need((owned = crpc_shm_create(&owner_conf)) != NULL);
	crpc_shm_ready(owned);
	*(uint32_t *)crpc_shm_ptr(owned, 4096, 4) = 77;
}

static inline void
serve(void)
{
	crpc_shm_serve(owned);
}

/* Start an owner of segment "a". */
static inline pid_t
start_owner(bool memfd)
{
	owner_conf = conf_of("a", SIZE, memfd);
	return child_start(own, serve);
}

#endif
