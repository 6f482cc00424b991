/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_TEST_H
#define IPC_TEST_H

/** @file What the tests of lib/ipc share: a directory, servers, clients, random bytes. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "crpc_ipc.h"
#include "crpc_log.h"
#include "rnd.h"

static char test_dir[64];
static uint64_t rng_state;

static inline uint64_t
rng(void)
{
	return rnd(&rng_state);
}

/** The seed is printed, and IPC_TEST_SEED repeats a run. */
static inline void
rng_init(void)
{
	const char *s = getenv("IPC_TEST_SEED");

	rng_state = s != NULL ? strtoull(s, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
	printf("seed 0x%llx (IPC_TEST_SEED repeats it)\n", (unsigned long long)rng_state);
	fflush(stdout);
}

static inline uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
now_ms(void)
{
	return now_ns() / 1000000;
}

/** As fork(), but the child dies with its parent: a test that fails leaves no process behind. */
static inline pid_t
fork_mortal(void)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before */
		_exit(5);
	return 0;
}

static inline struct crpc_ipc_server *
new_server(uint32_t clients, uint32_t depth, uint32_t req_max, uint32_t resp_max)
{
	struct crpc_ipc_server_conf conf = {.name = "t",
			.dir = test_dir,
			.max_clients = clients,
			.depth = depth,
			.req_max = req_max,
			.resp_max = resp_max};

	return crpc_ipc_server_create(&conf);
}

static inline struct crpc_ipc_client *
new_client(const struct crpc_ipc_server *s)
{
	struct crpc_ipc_client_conf conf = {.name = "t", .dir = test_dir, .server = s};

	return crpc_ipc_client_connect(&conf);
}

/* One that never uses the lone slot. */
static inline struct crpc_ipc_client *
new_colocated_client(const struct crpc_ipc_server *s)
{
	struct crpc_ipc_client_conf conf = {.server = s, .colocated = true};

	return crpc_ipc_client_connect(&conf);
}

/** Call, now, and allow any reply. */
static inline int
call(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie)
{
	return crpc_ipc_client_call(c, now_ns(), buf, len, crpc_ipc_client_resp_max(c), cookie);
}

static inline uint16_t
call_burst(struct crpc_ipc_client *c, const void *msgs, uint32_t len, const uint64_t *cookies,
	uint16_t n)
{
	return crpc_ipc_client_call_burst(
		c, now_ns(), msgs, len, crpc_ipc_client_resp_max(c), cookies, n);
}

static inline int
call_timed(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie,
	uint64_t timeout_us)
{
	return crpc_ipc_client_call_timed(
		c, now_ns(), buf, len, crpc_ipc_client_resp_max(c), cookie, timeout_us);
}

static inline int
call_ref(struct crpc_ipc_client *c, uint64_t ref, const void *buf, uint32_t len, uint64_t cookie)
{
	return crpc_ipc_client_call_ref(
		c, now_ns(), ref, buf, len, crpc_ipc_client_resp_max(c), cookie);
}

/** End a request with @p len bytes of @p buf, or, of a notification, without. */
static inline int
answer(struct crpc_ipc_server *s, const struct crpc_req *req, const void *buf, uint32_t len)
{
	if (crpc_ipc_token_oneway(req->token))
		return crpc_ipc_server_release(s, now_ns(), req->token);
	return crpc_ipc_server_reply(s, now_ns(), req->token, buf, len);
}

static inline int
make_dir(void **state)
{
	strcpy(test_dir, "/dev/shm/test_ipc.XXXXXX");
	return mkdtemp(test_dir) == NULL;
}

static inline int
remove_dir(void **state)
{
	return rmdir(test_dir); /* fails if a test left a file behind */
}

#endif
