/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTRACT_H
#define CONTRACT_H

/**
 * @file
 * The test of lib/rpc/crpc_rpc.h, written once for every layer: one server object and some client
 * objects, driven by one thread that owns the clock.
 *
 *     test_contract.c     the clauses, each a test named by a sentence, and random schedules
 *     contract_model.c    what every call, request and completion must be; checked at each step
 *     layer_*.c           struct contract_layer: a layer's verbs, and how its objects come and go
 *
 * A test uses the verbs of the model, which has the bytes of every message by its number: each verb
 * first checks that all data that is borrowed now is unchanged.
 */

#include <string.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_rpc.h"
#include "crpc_util.h"
#include "rnd.h"

#define CLIENTS   3u
#define WINDOW    16u  /* Calls open per client, */
#define WIDE      128u /* or, for full bursts, so many. */
#define MSG_MAX   600u
#define IDS_MAX   200000u
#define STEP_NS   1000u
#define LIVES_MAX 60u /* Of all clients together. */

struct star;

/** A layer. Functions that may be NULL are those that a layer cannot have. */
struct contract_layer {
	const char *name;
	bool counters_near_end; /**< star.near_end works. */
	bool is_slow;           /**< A quarter of the schedules will do. */
	uint32_t msg_max;       /**< Bytes of a request or reply, at most MSG_MAX. */

	/** Make the server and all clients, connected. */
	void (*open)(struct star *s);
	/** Free what is left of them. */
	void (*close)(struct star *s);

	int (*call)(struct star *s, uint32_t c, const void *buf, uint32_t len, uint32_t resp_max,
		uint64_t cookie);
	int (*notify)(struct star *s, uint32_t c, const void *buf, uint32_t len);
	uint32_t (*cancel)(struct star *s, uint32_t c, uint64_t cookie); /**< May be NULL. */
	uint16_t (*poll)(struct star *s, uint32_t c, struct crpc_done *done, uint16_t n);
	uint16_t (*recv)(struct star *s, struct crpc_req *req, uint16_t n);
	int (*reply)(struct star *s, uint64_t token, const void *buf, uint32_t len);
	int (*fail_with)(struct star *s, uint64_t token, int32_t status); /**< May be NULL. */
	int (*release)(struct star *s, uint64_t token);
	/** Send what is queued anywhere, and have it arrive where the layer can. */
	void (*flush)(struct star *s);
	/** What a server's loop does beside recv(). */
	void (*drive)(struct star *s);

	/** The client leaves in good order. */
	void (*leave)(struct star *s, uint32_t c);
	/** A client joins in its place, makes WINDOW calls of len bytes, numbered from first, and
	 *  dies: its memory and its device are silent then. May be NULL. */
	void (*call_and_die)(struct star *s, uint32_t c, uint32_t first, uint32_t len);
	/** Whether the server has noticed either. */
	bool (*gone)(struct star *s, uint32_t c);
	/** It is there again, as another object. */
	void (*join)(struct star *s, uint32_t c);
	/** The server leaves in good order. */
	void (*server_leave)(struct star *s);
	/** It dies. May be NULL. */
	void (*server_kill)(struct star *s);
	/** Lose, double and reorder what is sent, or not. May be NULL. */
	void (*trouble)(struct star *s, bool on);

	/** What every layer counts, of a client. May be NULL. */
	const struct crpc_rpc_counts *(*counts)(struct star *s, uint32_t c);
};

/** Those that this program tests; the last is NULL. */
extern const struct contract_layer *const contract_layers[];

/** What happened to a request at the server. */
enum answer {
	NOT_YET,
	REPLIED,
	FAILED,
	RELEASED,
};

/** A call or a notification. Its number is its cookie and makes its bytes. */
struct record {
	uint8_t client;
	uint8_t answer; /**< enum answer. */
	bool oneway, canceled, given, held, done;
	uint16_t life; /**< Of the client. */
	uint16_t len, resp_max, reply_len;
	int32_t status; /**< Of the answer; once done, of the completion. */
	uint64_t made_ns;
	uint64_t token;
	const uint8_t *data;
};

struct star {
	const struct contract_layer *layer;
	uint32_t window;
	uint64_t timeout_ns;
	bool near_end;
	uint64_t now;
	uint64_t seed, rng;

	/* The model. */
	bool server_gone;
	bool troubled; /**< The network was bad at some time. */
	uint32_t nids, nheld, lives;
	struct {
		bool here, killed;
		uint16_t life;
		uint32_t open; /**< Calls without completion. */
		uint32_t peer;
		bool peer_known;
		uint16_t ndone; /**< Of its last poll. */
		struct crpc_done done[CRPC_BURST_MAX];
	} client[CLIENTS];
	uint32_t held[LIVES_MAX * WINDOW * 2]; /**< Numbers of the requests that the server has. */
	struct record rec[IDS_MAX];
};

#define expect(s, cond)                                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail_msg("%s, SEED=%llu, message %u: not so: %s (%s:%d; log: %s)",         \
				(s)->layer->name, (unsigned long long)(s)->seed, (s)->nids, #cond, \
				__FILE__, __LINE__, crpc_log_last());                              \
	} while (0)

/** Make a star; call it before anything else. timeout_ns 0: one that never passes. */
struct star *star_open(const struct contract_layer *layer, uint64_t seed, uint32_t window,
	uint64_t timeout_ns, bool near_end);
/** Answer and poll what is open, check that nothing is left, and free all. */
void star_close(struct star *s);

/** All borrowed data is unchanged. */
void star_audit(struct star *s);
/** Time passes, and what was sent arrives. */
void star_pass(struct star *s, uint64_t ns);

/** Make a call; its number, or 0: -EAGAIN. */
uint32_t star_call(struct star *s, uint32_t c, uint32_t len, uint32_t resp_max);
uint32_t star_notify(struct star *s, uint32_t c, uint32_t len);
void star_cancel(struct star *s, uint32_t c, uint32_t id);
/** One poll and its checks. Returns completions. */
uint16_t star_poll(struct star *s, uint32_t c, uint16_t n);
/** One recv and its checks. Returns requests. */
uint16_t star_recv(struct star *s, uint16_t n);
/** End the request of this number, with its checks. A layer that cannot fail it replies. */
void star_reply(struct star *s, uint32_t id, uint32_t len);
void star_fail(struct star *s, uint32_t id, int32_t status);
void star_release(struct star *s, uint32_t id);
/** The client leaves, and the server notices. */
void star_leave(struct star *s, uint32_t c);
/** A client that has left joins, makes WINDOW calls and dies; the server may not have noticed. */
void star_call_and_die(struct star *s, uint32_t c, uint32_t len);
void star_join(struct star *s, uint32_t c);
void star_server_leave(struct star *s, bool in_good_order);

/** Poll until something completes. */
void star_poll_some(struct star *s, uint32_t c);
/** So many turns in which all is received, answered and polled. */
void star_settle(struct star *s, uint32_t turns);
/** Receive until the server holds so many requests. */
void star_hold(struct star *s, uint32_t n);
/** Poll until the client has no call open. Completions at most room at a time. */
void star_drain(struct star *s, uint32_t c, uint16_t room);
/** Reply to all requests that are held, with their whole room. */
void star_reply_all(struct star *s);

/** The bytes of a message. */
void star_fill(uint8_t *buf, uint32_t id, bool reply, uint32_t len);

#endif
