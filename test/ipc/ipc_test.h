/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_TEST_H
#define IPC_TEST_H

/** @file What the tests of lib/ipc share: a directory, servers, clients, verbs, random bytes. */

#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test.h"
#include "child.h"
#include "crpc_ipc.h"
#include "crpc_log.h"
#include "ipc_client.h"
#include "rnd.h"

static char test_dir[64];
static uint64_t rng_state;

static inline uint64_t
rng(void)
{
	return rnd(&rng_state);
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
new_ring_client(const struct crpc_ipc_server *s)
{
	struct crpc_ipc_client *c = new_client(s);

	if (c != NULL)
		c->lone_want = c->lone_end = 0;
	return c;
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

static inline uint16_t
take(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n)
{
	return crpc_ipc_server_recv(s, now_ns(), req, n);
}

static inline int
reply(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len)
{
	return crpc_ipc_server_reply(s, now_ns(), token, buf, len);
}

static inline int
reply_ref(struct crpc_ipc_server *s, uint64_t token, uint64_t ref, const void *buf, uint32_t len)
{
	return crpc_ipc_server_reply_ref(s, now_ns(), token, ref, buf, len);
}

static inline uint16_t
reply_burst(struct crpc_ipc_server *s, const struct crpc_req *req, const void *msgs, uint32_t len,
	uint16_t n)
{
	return crpc_ipc_server_reply_burst(s, now_ns(), req, msgs, len, n);
}

static inline int
release(struct crpc_ipc_server *s, uint64_t token)
{
	return crpc_ipc_server_release(s, now_ns(), token);
}

/** End a request with @p len bytes of @p buf, or, of a notification, without. */
static inline int
answer(struct crpc_ipc_server *s, const struct crpc_req *req, const void *buf, uint32_t len)
{
	if (crpc_ipc_token_oneway(req->token))
		return release(s, req->token);
	return reply(s, req->token, buf, len);
}

static inline uint16_t
poll_done(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	return crpc_ipc_client_poll(c, now_ns(), done, n);
}

/** Receive what is there, and echo it. Returns requests. */
static inline uint32_t
serve(struct crpc_ipc_server *s)
{
	struct crpc_req req[64];
	uint16_t n = take(s, req, 64), i;

	for (i = 0; i < n; i++)
		reply(s, req[i].token, req[i].data, req[i].len);
	return n;
}

/* A server and a client that end with the test. */
static struct crpc_ipc_server *kept_server;
static struct crpc_ipc_client *kept_client;

static inline struct crpc_ipc_server *
keep_server(struct crpc_ipc_server *s)
{
	assert_non_null(s);
	return kept_server = s;
}

static inline struct crpc_ipc_client *
keep(struct crpc_ipc_client *c)
{
	assert_non_null(c);
	return kept_client = c;
}

static inline int
kept_end(void **state)
{
	crpc_ipc_client_close(kept_client);
	crpc_ipc_server_free(kept_server);
	kept_client = NULL;
	kept_server = NULL;
	return 0;
}

#undef TEST
#define TEST(name) TEST_FIXTURE(name, NULL, kept_end)

static inline int
make_dir(void **state)
{
	rng_state = rnd_seed();
	strcpy(test_dir, "/dev/shm/test_ipc.XXXXXX");
	return mkdtemp(test_dir) == NULL;
}

static inline int
remove_dir(void **state)
{
	return rmdir(test_dir); /* fails if a test left a file behind */
}

#endif
