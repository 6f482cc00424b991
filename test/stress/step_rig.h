/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STEP_RIG_H
#define STEP_RIG_H

/*
 * What the parts of step_scenario share: the scene, its randomness, the way to fail.
 *
 *     step_main.c      which seeds of which kind
 *     step_scenario.c  a scenario: its turns, its rest
 *     step_nodes.c     contexts and connections
 *     step_calls.c     calls, one-way sends, replies, and what must hold of them
 *     step_onesided.c  gets and puts
 *     step_faults.c    what goes wrong on purpose
 *     step_copyrpc.c   what only copyrpc has
 *     step_udrpc.c     what only udrpc has
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_rdma.h"
#include "crpc_rpc.h"
#include "crpc_util.h"
#include "soft_mlx5_step.h"

#define NODES    3
#define LINKS    4
#define IDS      8192
#define HELD     256
#define TURNS    700
#define MSG_ROOM (64u << 10)
#define REQ_HEAD  8u /* Least bytes of a request: its id, and some to compare. */
#define OPS      64u /* Gets and puts open at most, of one side of a link. */
#define OP_BYTES 1024u
#define OP_COOKIE (UINT64_C(1) << 32)

/* What the connections of a scenario are. */
enum kind {
	KIND_RC,
	KIND_DC, /* Most of them dynamic, the rest as above. */
	KIND_UD, /* udrpc over datagrams. */
	KINDS,
};

/* What a seed may do besides calling. */
enum trouble {
	LOSSES = 1,  /* Faults of the network, and slow cards. */
	BREAKS = 2,  /* Queue pairs fail, endpoints are shut down. */
	DEATHS = 4,  /* Cards vanish, or lose their completion queue. */
	REFUSALS = 8, /* Requests are refused, WQEs fail. */
};

/* A call or one-way send, by id. */
struct record {
	bool open, oneway, large, cancelled;
	uint8_t link, side;
	uint32_t life;
	uint32_t len, resp_max;
	uint32_t executed;
};

/* Gets and puts of one side of a link: its own copies, and the piece of the peer's memory. */
struct onesided {
	uint64_t posted, done;
	uint32_t life;
	uint64_t newest; /* The put that the peer's piece holds; 0: not known. */
	struct {
		bool put;
		uint32_t len;
		uint64_t want; /* Of a get: the put that it must see; 0: any. */
	} op[OPS];
	uint8_t ours[OPS][OP_BYTES];
	uint8_t theirs[OP_BYTES]; /* Lies in the peer's region. */
};

struct held {
	uint64_t token;
	const uint8_t *data;
	uint32_t id, life;
};

struct node {
	struct crpc_rdma *dev;
	void *ctx;
	uint32_t number;
	bool gone; /* It vanished; ctx is there to be freed. */
	bool sick; /* Its completion queue overran: nothing arrives any more. */
	struct crpc_rdma_mr mr; /* All of scene.one. */
	uint32_t nheld;
	struct held held[HELD];
	struct crpc_done done[CRPC_BURST_MAX];
};

struct link {
	int node[2];
	void *ep[2];        /* NULL: that end is still to be made. */
	uint32_t newest[2]; /* Id of the newest small request that arrived at side i. */
	uint32_t life;
	bool dynamic; /* Its queue pairs are. */
	bool broken;  /* In this life; an endpoint says so, or we did it. */
};

/* A protocol: the verbs that all have, and what only one of them does. */
struct protocol {
	uint32_t ids_max;
	/* Draw how all contexts and connections of the scenario are. */
	void (*conf_make)(void);
	/* Make the context of a node, whose device is open; end it. */
	void (*ctx_make)(struct node *n);
	void (*ctx_end)(struct node *n);
	/* Make one end of a connection. False: not now. */
	bool (*end_make)(struct link *l, int side);
	/* Make both ends fit to be connected again, all calls having ended. False: not now. */
	bool (*ends_renew)(struct link *l);
	/* Draw the lengths of a call. */
	void (*sizes_make)(struct record *r);
	/* Make a call, or a one-way send, in one of the ways that there are. */
	int (*call)(void *ep, const struct record *r, const uint8_t *buf, uint32_t id);
	/* The same of a reply; NULL: there is one way. */
	int (*reply_make)(void *ctx, uint64_t token, const uint8_t *buf, uint32_t len);
	/* The ends' positions say the same; NULL: they have none. */
	bool (*ends_match)(const struct link *l);

	uint32_t (*cancel)(void *ep, uint64_t now, uint64_t cookie);
	uint16_t (*poll)(void *ctx, uint64_t now, struct crpc_done *done, uint16_t n);
	uint16_t (*recv)(void *ctx, uint64_t now, struct crpc_req *req, uint16_t n);
	int (*reply)(void *ctx, uint64_t now, uint64_t token, const void *buf, uint32_t len);
	int (*fail_with)(void *ctx, uint64_t now, uint64_t token, int32_t status);
	int (*release)(void *ctx, uint64_t now, uint64_t token);
	void (*flush)(void *ctx, uint64_t now);
	int (*audit)(const void *ctx, bool at_rest);
	void (*addr)(const void *ep, uint8_t *addr);
	int (*connect)(void *ep, const uint8_t *addr);
	void (*shutdown)(void *ep);
	int (*status)(const void *ep);
};

/* The verbs of a protocol with objects of no type, and the part of a struct protocol with them. */
#define VERBS_MAKE(p)                                                                              \
	static uint32_t p##_cancel(void *ep, uint64_t now, uint64_t cookie)                        \
	{                                                                                          \
		return crpc_##p##_cancel(ep, now, cookie);                                         \
	}                                                                                          \
	static uint16_t p##_poll(void *ctx, uint64_t now, struct crpc_done *done, uint16_t n)      \
	{                                                                                          \
		return crpc_##p##_poll(ctx, now, done, n);                                         \
	}                                                                                          \
	static uint16_t p##_recv(void *ctx, uint64_t now, struct crpc_req *req, uint16_t n)        \
	{                                                                                          \
		return crpc_##p##_recv(ctx, now, req, n);                                          \
	}                                                                                          \
	static int p##_reply(                                                                      \
		void *ctx, uint64_t now, uint64_t token, const void *buf, uint32_t len)            \
	{                                                                                          \
		return crpc_##p##_reply(ctx, now, token, buf, len);                                \
	}                                                                                          \
	static int p##_fail_with(void *ctx, uint64_t now, uint64_t token, int32_t status)          \
	{                                                                                          \
		return crpc_##p##_fail(ctx, now, token, status);                                   \
	}                                                                                          \
	static int p##_release(void *ctx, uint64_t now, uint64_t token)                            \
	{                                                                                          \
		return crpc_##p##_release(ctx, now, token);                                        \
	}                                                                                          \
	static void p##_flush(void *ctx, uint64_t now)                                             \
	{                                                                                          \
		crpc_##p##_flush(ctx, now);                                                        \
	}                                                                                          \
	static int p##_audit(const void *ctx, bool at_rest)                                        \
	{                                                                                          \
		return crpc_##p##_check(ctx, at_rest);                                             \
	}                                                                                          \
	static void p##_addr(const void *ep, uint8_t *addr)                                        \
	{                                                                                          \
		crpc_##p##_ep_addr(ep, addr);                                                      \
	}                                                                                          \
	static int p##_connect(void *ep, const uint8_t *addr)                                      \
	{                                                                                          \
		return crpc_##p##_ep_connect(ep, addr);                                            \
	}                                                                                          \
	static void p##_shutdown(void *ep)                                                         \
	{                                                                                          \
		crpc_##p##_ep_shutdown(ep);                                                        \
	}                                                                                          \
	static int p##_status(const void *ep)                                                      \
	{                                                                                          \
		return crpc_##p##_ep_status(ep);                                                   \
	}
#define VERBS(p)                                                                                   \
	.cancel = p##_cancel, .poll = p##_poll, .recv = p##_recv, .reply = p##_reply,              \
	.fail_with = p##_fail_with, .release = p##_release, .flush = p##_flush,                    \
	.audit = p##_audit, .addr = p##_addr, .connect = p##_connect, .shutdown = p##_shutdown,    \
	.status = p##_status

struct scene {
	uint64_t seed, rng, now;
	enum kind kind;
	const struct protocol *protocol;
	uint32_t troubles;
	uint32_t dcis; /* Initiators of a card. */
	bool onesided; /* Gets and puts, too. */
	bool timeouts; /* Calls have deadlines that they may miss. */
	bool waits; /* Inside the end of a context: time goes on meanwhile. */
	uint32_t nnodes, nlinks;
	struct node node[NODES];
	struct link link[LINKS];
	uint32_t nids;
	struct record id[IDS];
	struct onesided one[LINKS][2];
};

/* What all seeds together have met. */
struct met {
	uint64_t calls, good, reset, late, cancelled, rejected, oneway, large, lives, restarts;
	uint64_t sq_full, wraps, lost, passes, puts, gets, sick, dynamic, busy, repeated;
};

extern struct soft_mlx5_step step;
extern struct scene scene;
extern struct met met;
extern bool verbose;
extern const char *program;

/* ---- step_rig.c ---- */

/* Begin a scenario: everything of the last one is forgotten. */
void scene_begin(uint64_t seed, enum kind kind);
void crpc_printf(2, 3) fail_at(int line, const char *fmt, ...) __attribute__((noreturn));

#define fail(...) fail_at(__LINE__, __VA_ARGS__)
#define check(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail("not so: %s", #what);                                                 \
	} while (0)
#define say(...)                                                                                   \
	do {                                                                                       \
		if (verbose) {                                                                     \
			printf("%12" PRIu64 " ", scene.now);                                       \
			printf(__VA_ARGS__);                                                       \
		}                                                                                  \
	} while (0)

uint64_t mix(uint64_t z);
uint32_t rnd(uint32_t below);
bool one_in(uint32_t n);
/* The bytes that belong to a key. */
void bytes_make(uint8_t *p, uint32_t len, uint64_t key);
bool bytes_are(const uint8_t *p, uint32_t len, uint64_t key);
/* What a server does with a request, known at both ends. */
bool is_rejected(uint32_t id);
bool is_released(uint32_t id);
uint32_t reply_len(uint32_t id, uint32_t resp_max);
/* A call ended with an error: the errors that may be; broken, late: whether these two may. */
void done_bad(const struct record *r, uint32_t id, int status, bool broken, bool late);
/* Let the cards work, up to n passes. */
void do_steps(uint32_t n);

/* ---- step_nodes.c ---- */

void node_open(struct node *n);
void node_close(struct node *n);
/* A card that vanished is replaced, as by a process that is started again. */
void node_restart(struct node *n);
void link_connect(struct link *l);
/* Note what the endpoints say. */
void link_look(struct link *l);
/* Bring on what is broken: each at some time, or all that can be. */
void do_mend(bool all);

/* ---- step_calls.c ---- */

void do_call(void);
void call_on(struct link *l, int side);
void do_poll(struct node *n);
void do_recv(struct node *n);
void do_answer(struct node *n);
void do_cancel(void);

/* ---- step_onesided.c ---- */

/* Write a piece of the peer's memory, or read back what the newest write must have left there. */
void do_onesided(void);
void onesided_take(const struct crpc_done *d);

/* ---- step_faults.c ---- */

void network_worsen(void);
void do_trouble(void);

/* ---- step_scenario.c ---- */

void scenario_run(uint64_t seed, enum kind kind);

/* ---- the protocols ---- */

extern const struct protocol copyrpc_protocol, udrpc_protocol;

#endif
