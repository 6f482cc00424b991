/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_CLIENT_H
#define IPC_CLIENT_H

/** @file The client's private memory. */

#include "crpc_ipc.h"
#include "crpc_util.h"
#include "ipc_layout.h"

CRPC_BEGIN_DECLS

/**
 * What a request slot is to its client.
 *
 *     0 --call()--> OPEN --poll()--> 0
 *     OPEN --deadline--> OPEN | EXPIRED --late answer--> 0
 *
 * BLOCK beside OPEN: the call gave the block in `refs`, which is freed if the server never took it.
 *
 * OLD beside any of them: its word may be of long ago, so that its sequence number may come round:
 * it is spoilt before the slot is promised. Calls that go past an open slot make it so, and all
 * slots are from time to time, since calls in the lone slot go past all of them.
 */
enum ipc_call_state {
	IPC_CALL_OPEN = 1,
	IPC_CALL_ONEWAY = 2,  /**< Its answer only gives the slot back. */
	IPC_CALL_STAMPED = 4, /**< Its entry in `deadline` counts. */
	IPC_CALL_EXPIRED = 8, /**< Its completion was given. */
	IPC_CALL_OLD = 16,
	IPC_CALL_BLOCK = 32,
};

/** What a poll has to do beside looking at the ring. */
enum ipc_aside {
	IPC_ASIDE_LONE = 1, /**< A call is in the lone slot. */
	IPC_ASIDE_ODD = 2,  /**< Its state is not just OPEN. */
	IPC_ASIDE_HELD = 4, /**< There are blocks in `held`. */
	IPC_ASIDE_DUE = 8,  /**< Calls are overdue, and the last poll had no room for them. */
};

/** What stays when the lone slot's call is complete. */
#define IPC_ASIDE_STAY (IPC_ASIDE_HELD | IPC_ASIDE_DUE)

/** A block that came with a completion of the last poll. */
struct ipc_held {
	const void *data; /**< Of that completion: no other has the same. */
	struct crpc_ipc_block block;
};

/** A request slot, as its client sees it. */
struct ipc_call {
	uint64_t cookie;
	uint64_t state; /**< enum ipc_call_state. */
};

struct crpc_ipc_client {
	/* First line: call(). */
	struct ipc_slot *next;   /**< Where the next request goes: promised to the server. */
	uint8_t *req;
	struct ipc_call *calls;  /**< Per request slot, and for the lone one. */
	_Atomic uint32_t *sleep; /**< The server's word: odd while it does not look here. */
	uint64_t req_seq;        /**< Of the next request; its low half travels. */
	uint32_t next_slot;      /**< Index of next. */
	uint32_t open;           /**< Places in use. */
	uint32_t room;           /**< depth, or 0 once status is set: at that many open, no more. */
	uint32_t small_max;      /**< Bytes that the short way of call() takes. */
	uint32_t req_mask;
	uint32_t sleep_seen; /**< Value of *sleep last acted on. */
	/* Second line: poll(), and the call that is alone. */
	struct ipc_slot *head; /**< Where the next response will be. */
	uint8_t *resp;
	uint64_t resp_seq;
	struct ipc_slot *lone;
	struct ipc_call *lone_call; /**< Its entry in calls. */
	uint32_t lone_seq;  /**< Of the call in the lone slot. */
	uint32_t aside;     /**< enum ipc_aside. */
	uint32_t lone_end;  /**< Requests below so many bytes may go there; 0: none for now. */
	uint32_t resp_max;
	uint32_t lone_resp_max; /**< Bytes of an answer there. */
	uint32_t resp_mask;
	/* Third line: poll(), too, and bursts. */
	uint32_t countdown; /**< Polls until the next that looks around. */
	uint32_t run_at;    /**< Answers taken from the run at the head. */
	uint32_t req_slot;  /**< Bytes of a request slot. */
	uint32_t resp_slot;
	uint64_t lone_done; /**< Answers that came in the lone slot. */
	/* Fourth line: the answer that came there, until the next poll. */
	uint8_t lone_data[CRPC_CACHE_LINE] crpc_aligned(CRPC_CACHE_LINE);
	/* slow path */
	int32_t status;        /**< 0, or the final error. */
	uint32_t looks;        /**< Times that it looked around since the server was looked at. */
	uint32_t fail_slot;    /**< Where failing the open calls goes on. */
	uint32_t announced;    /**< Low half of req_seq when last announced. */
	uint32_t lone_want;    /**< lone_end, but for a while after an answer too long for it. */
	uint32_t aged;         /**< Low half of req_seq when free slots were last taken for old. */
	uint32_t oneway;       /**< Places of one-way messages. */
	uint32_t expired;      /**< Places of calls that timed out. */
	uint32_t n_held;       /**< Blocks in `held`. */
	bool deadlines;        /**< Some call has one. */
	bool colocated;        /**< With its server, in one thread. */
	struct ipc_header lay; /**< Private copy, checked. */
	uint32_t id;
	uint32_t gen;
	uint64_t *deadline; /**< Per request slot: CLOCK_MONOTONIC ns; UINT64_MAX: never. */
	uint64_t call_timeout_us;
	uint64_t due_ns;     /**< Calls that were overdue then have no answer. */
	uint64_t mark_ns;    /**< The next due_ns, */
	uint64_t mark_taken; /**< once so many answers were taken. */
	uint64_t swallowed; /**< Answers that were no completions. */
	uint64_t probe_ns;
	uint64_t probed_ns; /**< When the kernel was last asked. */
	struct ipc_ctl *ctl;
	_Atomic uint64_t *beat;
	struct ipc_bell *bell;
	struct crpc_arena_cache *arena; /**< NULL: no blocks. */
	uint32_t server_member;         /**< The server's number there; 0: it takes none. */
	struct ipc_held *held;          /**< depth of them. */
	uint64_t *refs;                 /**< Per request slot: the block of its call. */
	const void *owner; /**< Debug: the thread. */
	struct crpc_shm *seg;
	struct crpc_shm_lock *lock;
	struct crpc_ipc_client_stats stats;
};

_Static_assert(offsetof(struct crpc_ipc_client, head) == CRPC_CACHE_LINE, "a line for call()");
_Static_assert(
	offsetof(struct crpc_ipc_client, countdown) == 2 * CRPC_CACHE_LINE, "one for poll()");

/**
 * The slot after the one in use is taken, or old: the next that is free. There are more slots than
 * depth, so there is one.
 */
uint32_t __crpc_ipc_step_over(struct crpc_ipc_client *c, uint32_t slot);

/** The server's word `sleep` has a value that was not acted on yet: if it is odd, ring. */
void __crpc_ipc_ring(struct crpc_ipc_client *c, uint32_t sleep);

/** Ring for the client in place @p id: it came, went, or called while asleep. */
void __crpc_ipc_ring_bell(struct ipc_bell *bell, uint32_t id);

/** CLOCK_MONOTONIC. */
uint64_t __crpc_ipc_now_ns(void);

/** Send the request that stands in the promised slot, and promise the next. There is room. */
static inline void
ipc_send(struct crpc_ipc_client *c, uint32_t len, uint64_t cookie, uint64_t state, uint32_t flags)
{
	uint32_t slot = c->next_slot, next = (slot + 1) & c->req_mask;

	c->calls[slot].cookie = cookie;
	c->calls[slot].state = state;
	c->open++;
	if (crpc_unlikely(c->calls[next].state != 0))
		next = __crpc_ipc_step_over(c, next);
	CRPC_CRASH_POINT("ipc.call.1");
	/* C1, and R1 pairs with A1 in recv_plain(): the message, and our reads of responses. */
	crpc_store_release(&c->next->word, ipc_word((uint32_t)c->req_seq, len, next | flags));
	CRPC_CRASH_POINT("ipc.call.2");
	c->req_seq++;
	c->next_slot = next;
	c->next = ipc_slot_at(c->req, next, c->req_slot);
}

/** Send the request that stands in the lone slot. No place is in use. */
static inline void
ipc_send_lone(struct crpc_ipc_client *c, uint32_t len, uint64_t cookie, uint64_t state)
{
	struct ipc_call *call = c->lone_call;

	CRPC_CRASH_POINT("ipc.lone.1");
	/* C1, and R1 pairs with A1 in recv_lone(). */
	crpc_store_release(&c->lone->word, ipc_word((uint32_t)c->req_seq, len, 0));
	CRPC_CRASH_POINT("ipc.lone.2");
	call->cookie = cookie;
	call->state = state;
	c->lone_seq = (uint32_t)c->req_seq;
	c->req_seq++;
	c->aside |= IPC_ASIDE_LONE;
	c->open = 1;
}

/** C2 */
static inline void
ipc_ring_if_asleep(struct crpc_ipc_client *c)
{
	uint32_t sleep = crpc_load_relaxed(c->sleep);

	if (crpc_unlikely(sleep != c->sleep_seen))
		__crpc_ipc_ring(c, sleep);
}

/** Complete a call that is just open with a plain answer. */
static inline void
ipc_take(struct crpc_ipc_client *c, struct ipc_call *call, uint32_t size, const void *data,
		struct crpc_done *done)
{
	call->state = 0;
	c->open--;
	done->cookie = call->cookie;
	done->data = data;
	done->len = size;
	done->status = 0;
}

/**
 * The size in the lone slot's word, or what is above IPC_SIZE_MAX: the word is not yet that of the
 * answer.
 */
static inline uint64_t
ipc_lone_size(const struct crpc_ipc_client *c)
{
	/* A2 pairs with R2 in ipc_publish_lone(). */
	uint64_t word = crpc_load_acquire(&c->lone->word);

	return ipc_word_differs(word, ipc_word(c->lone_seq, 0, IPC_SLOT_REPLY));
}

/**
 * Complete the call that was alone with its plain answer. Its bytes are copied,
 * since the next call may go to the same slot before the next poll.
 */
static inline void
ipc_take_lone(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	struct ipc_call *call = c->lone_call;

	/* What is behind the answer comes along: that takes fewer moves and questions. */
	memcpy(c->lone_data, c->lone->data, 32);
	if (crpc_unlikely(size > 32))
		memcpy(c->lone_data + 32, c->lone->data + 32, CRPC_IPC_SMALL - 32);
	c->lone_done++;
	done->cookie = call->cookie;
	done->data = c->lone_data;
	done->len = size;
	done->status = 0;
	call->state = 0;
	c->aside &= IPC_ASIDE_STAY;
	c->open--;
}

static inline bool
ipc_ring_has_answer(const struct crpc_ipc_client *c)
{
	return ipc_word_seq(crpc_load_acquire(&c->head->word)) == (uint32_t)c->resp_seq;
}

/** All k answers at the head are taken. */
static inline void
ipc_step_head(struct crpc_ipc_client *c, uint32_t k)
{
	c->resp_seq += k;
	c->head = ipc_slot_at(c->resp, (uint32_t)c->resp_seq & c->resp_mask, c->resp_slot);
}

CRPC_END_DECLS

#endif
