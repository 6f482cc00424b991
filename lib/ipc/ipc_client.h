/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_CLIENT_H
#define IPC_CLIENT_H

/** @file The client's private memory. */

#include "crpc_ipc.h"
#include "crpc_owner.h"
#include "ipc_slot.h"
#include "rpc_calls.h"

CRPC_BEGIN_DECLS

/**
 * What a request slot is to its client.
 *
 *     0 --call()--> OPEN --poll()--> 0
 *
 * A call that ended early stays OPEN until its late answer: the server may still read its request.
 *
 * BLOCK beside OPEN: the call gave the block in `refs`, which is freed if the server never took it.
 *
 * OLD beside any of them: its word may be of long ago, so that its sequence number may come round:
 * it is spoilt before the slot is promised. Calls that go past an open slot make it so, and all
 * slots are from time to time, since calls in the lone slot go past all of them.
 */
enum ipc_call_state {
	IPC_CALL_OPEN = 1,
	IPC_CALL_ONEWAY = 2, /**< Its answer only gives the slot back. */
	IPC_CALL_OLD = 4,
	IPC_CALL_BLOCK = 8,
};

/** What a poll has to do beside looking at the ring. */
enum ipc_aside {
	IPC_ASIDE_LONE = 1, /**< A call is in the lone slot. */
	IPC_ASIDE_HELD = 2, /**< There are blocks in `held`. */
};

/** A request slot, as its client sees it. Slots are used in order, not by the table's free list. */
struct ipc_call {
	struct rpc_call rpc;
	uint32_t state;    /**< enum ipc_call_state. */
	uint32_t resp_max; /**< Bytes of a reply that it allows: as in `allow`. */
};

struct crpc_ipc_client {
	/* First line: call(). */
	struct ipc_slot *next;   /**< Where the next request goes: promised to the server. */
	uint8_t *req;
	struct ipc_call *call;      /**< Per request slot, and for the lone one. */
	struct ipc_call *next_call; /**< Of next. */
	_Atomic uint32_t *sleep; /**< The server's word: odd while it does not look here. */
	uint64_t req_seq;        /**< Of the next request; its low half travels. */
	uint32_t next_slot;      /**< Index of next. */
	uint32_t room;           /**< depth, or 0 once status is set: at that many open, no more. */
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
	uint32_t req_max;
	uint32_t lone_resp_max; /**< Bytes of an answer there: of a line, that its call allows. */
	uint32_t resp_mask;
	/* Third line: poll() and call(), too, and bursts. */
	uint32_t countdown; /**< Polls until the next that looks around. */
	uint32_t run_at;    /**< Answers taken from the run at the head. */
	uint32_t req_slot;  /**< Bytes of a request slot. */
	uint32_t resp_slot;
	uint64_t timeout_ns;    /**< Of each call. */
	struct rpc_calls calls; /**< The calls. */
	struct rpc_sweep sweep;
	/* The answer that came there, until the next poll. */
	uint8_t lone_data[CRPC_CACHE_LINE] crpc_aligned(CRPC_CACHE_LINE);
	/* slow path */
	int32_t status;        /**< 0, or the final error. */
	uint32_t looks;        /**< Times that it looked around since the server was looked at. */
	uint32_t announced;    /**< Low half of req_seq when last announced. */
	uint32_t lone_want;    /**< lone_end, but for a while after an answer too long for it. */
	uint32_t aged;         /**< Low half of req_seq when free slots were last taken for old. */
	uint32_t oneway;       /**< Places of one-way messages. */
	uint32_t n_held;       /**< Blocks in `held`. */
	uint64_t req_region, resp_region; /**< Bytes at req and resp. */
	uint32_t depth;
	uint32_t resp_max; /**< Bytes of any reply. */
	/** In shared memory, per request slot and for the lone one: resp_max of its call. */
	_Atomic uint16_t *allow;
	uint32_t id;
	uint32_t gen;
	struct rpc_calls *table;
	uint64_t probe_ns;
	uint64_t probed_ns; /**< When the kernel was last asked. */
	struct ipc_ctl *ctl;
	struct ipc_bell *bell;
	struct crpc_arena_cache *arena; /**< NULL: no blocks. */
	uint32_t server_member;         /**< The server's number there; 0: it takes none. */
	struct ipc_held *held;          /**< depth of them. */
	uint64_t *refs;                 /**< Per request slot: the block of its call. */
	struct crpc_owner owner;
	struct crpc_shm *seg;
	struct crpc_shm_lock *lock;
	struct crpc_ipc_client_stats stats;
};

_Static_assert(offsetof(struct crpc_ipc_client, head) == CRPC_CACHE_LINE, "the lines of a call");
_Static_assert(offsetof(struct crpc_ipc_client, countdown) == 2 * CRPC_CACHE_LINE, "likewise");
_Static_assert(offsetof(struct crpc_ipc_client, sweep.next_ns) < 4 * CRPC_CACHE_LINE, "likewise");

/* ---- for call ---- */

/** Whether a request of @p len bytes can be taken now. */
static inline bool
ipc_has_room(const struct crpc_ipc_client *c, uint32_t len)
{
	return crpc_likely(rpc_calls_in_use(&c->calls) < c->room && len <= c->req_max);
}

/**
 * A request cannot be taken as things are.
 *
 * @param call
 *   Of the slot where it goes.
 * @return
 *   Why; or 0: now it can. The slot's last call allowed other replies.
 */
int __crpc_ipc_prepare(
	struct crpc_ipc_client *c, struct ipc_call *call, uint32_t len, uint32_t resp_max);

/**
 * The slot after the one in use, for number @p seq, is taken, or old: the next that is free. There
 * are more slots than depth, so there is one.
 */
uint32_t __crpc_ipc_step_over(struct crpc_ipc_client *c, uint32_t slot, uint32_t seq);

/**
 * Send the request that stands in the promised slot, and promise the next. There is room, and the
 * call of that slot is open.
 */
static inline void
ipc_send(struct crpc_ipc_client *c, uint32_t len, uint32_t state, uint32_t flags)
{
	uint32_t next = (c->next_slot + 1) & c->req_mask;
	struct ipc_call *after = &c->call[next];

	c->next_call->state = state;
	if (crpc_unlikely(after->state != 0)) {
		next = __crpc_ipc_step_over(c, next, (uint32_t)c->req_seq + 1);
		after = &c->call[next];
	}
	/* C1, and R1 pairs with A1 in recv_plain(): the message, and our reads of responses. */
	crpc_store_release(&c->next->word, ipc_word((uint32_t)c->req_seq, len, next | flags));
	c->req_seq++;
	c->next_slot = next;
	c->next_call = after;
	c->next = ipc_slot_at(c->req, next, c->req_slot);
}

/** The server's word `sleep` has a value that was not acted on yet: if it is odd, ring. */
void __crpc_ipc_ring(struct crpc_ipc_client *c, uint32_t sleep);

/** C2 */
static inline void
ipc_ring_if_asleep(struct crpc_ipc_client *c)
{
	uint32_t sleep = crpc_load_relaxed(c->sleep);

	if (crpc_unlikely(sleep != c->sleep_seen))
		__crpc_ipc_ring(c, sleep);
}

/** As __crpc_ipc_call_until(), of a call that cannot be taken as things are. */
int __crpc_ipc_call_other(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie);

/** As crpc_ipc_client_call(), with the deadline in place of the time. */
int __crpc_ipc_call_until(struct crpc_ipc_client *c, uint64_t deadline_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie);

/* ---- for poll ---- */

/** Whether the answer to this call, if it is bytes, may be taken without a closer look. */
static inline bool
ipc_is_plain(const struct ipc_call *call)
{
	return call->rpc.deadline_ns < RPC_CANCELED;
}

/** Complete a plain call with an answer's bytes. */
static inline void
ipc_take(struct crpc_ipc_client *c, struct ipc_call *call, uint32_t size, const void *data,
	struct crpc_done *done)
{
	rpc_calls_fill(&c->calls, &call->rpc, data, size, 0, done);
	call->rpc.deadline_ns = RPC_FREE;
	call->state &= IPC_CALL_OLD;
}

/**
 * The answer to a call that is not plain, or that failed, or that comes with a block.
 *
 * @return
 *   1: *done is set; 0: it only gave a slot back; -1: it answers no open call, or has an impossible
 *   size.
 */
int __crpc_ipc_take_other(struct crpc_ipc_client *c, uint32_t field, uint32_t size,
	const void *data, struct crpc_done *done);

/** As __crpc_ipc_take_other(), for any answer. */
static inline int
ipc_take_any(struct crpc_ipc_client *c, uint32_t slot, uint32_t size, const void *data,
	struct crpc_done *done)
{
	struct ipc_call *call = &c->call[slot];

	if (crpc_unlikely(slot > c->req_mask || size > call->resp_max || !ipc_is_plain(call)))
		return __crpc_ipc_take_other(c, slot, size, data, done);
	ipc_take(c, call, size, data, done);
	return 1;
}

/** All k answers at the head are taken. */
static inline void
ipc_step_head(struct crpc_ipc_client *c, uint32_t k)
{
	c->resp_seq += k;
	c->head = ipc_slot_at(c->resp, (uint32_t)c->resp_seq & c->resp_mask, c->resp_slot);
}

static inline bool
ipc_ring_has_answer(const struct crpc_ipc_client *c)
{
	/* A2 pairs with R2 in ipc_publish(), though only whether it is there is asked here. */
	return ipc_word_seq(crpc_load_acquire(&c->head->word)) == (uint32_t)c->resp_seq;
}

/** As ipc_take_any() of what is not in the ring. Blocks of the last poll are freed. */
uint32_t __crpc_ipc_poll_aside(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n);

/** As ipc_take_any() of up to n answers of the run whose word is at the head: see ipc_run.h. */
int __crpc_ipc_poll_run(
	struct crpc_ipc_client *c, uint64_t word, struct crpc_done *done, uint32_t n);

/* ---- the lone slot: see ipc_slot.h ---- */

/** A request goes there if it has room and no place is in use. */
static inline bool
ipc_goes_alone(const struct crpc_ipc_client *c, uint32_t len)
{
	return len < c->lone_end && rpc_calls_in_use(&c->calls) == 0;
}

/** The call that is open is the only one, and there. */
static inline bool
ipc_is_alone(const struct crpc_ipc_client *c)
{
	return c->aside == IPC_ASIDE_LONE && rpc_calls_in_use(&c->calls) == 1;
}

/** Send the request that stands there, whose call is open. */
static inline void
ipc_send_lone(struct crpc_ipc_client *c, uint32_t len)
{
	/* C1, and R1 pairs with A1 in recv_lone(). */
	crpc_store_release(&c->lone->word, ipc_word((uint32_t)c->req_seq, len, 0));
	c->lone_call->state = IPC_CALL_OPEN;
	c->lone_seq = (uint32_t)c->req_seq;
	c->req_seq++;
	c->aside |= IPC_ASIDE_LONE;
}

/** The size in its word, or what is above IPC_SIZE_MAX: the word is not yet that of the answer. */
static inline uint64_t
ipc_lone_size(const struct crpc_ipc_client *c)
{
	/* A2 pairs with R2 in ipc_publish_lone(). */
	uint64_t word = crpc_load_acquire(&c->lone->word);

	return ipc_word_differs(word, ipc_word(c->lone_seq, 0, IPC_SLOT_REPLY));
}

/**
 * Take a plain answer that is there. Its bytes are copied, since the next call may go to the same
 * slot before the next poll.
 *
 * @param size
 *   What ipc_lone_size() returned: the server may change the word at any time.
 * @return
 *   1; 0: there is none; -1: there is another one.
 */
static inline int
ipc_take_lone(struct crpc_ipc_client *c, uint64_t size, struct crpc_done *done)
{
	if (size > c->lone_resp_max || crpc_unlikely(!ipc_is_plain(c->lone_call)))
		return size > IPC_SIZE_MAX ? 0 : -1;
	/* What is behind the answer comes along: that takes fewer moves and questions. */
	memcpy(c->lone_data, c->lone->data, 32);
	if (crpc_unlikely(size > 32))
		memcpy(c->lone_data + 32, c->lone->data + 32, CRPC_IPC_SMALL - 32);
	c->aside &= IPC_ASIDE_HELD;
	ipc_take(c, c->lone_call, (uint32_t)size, c->lone_data, done);
	return 1;
}

/** As ipc_take_lone(), of the size that is there now. */
static inline int
ipc_poll_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	return ipc_take_lone(c, ipc_lone_size(c), done);
}

/* ---- beside the datapath ---- */

/** Make sure that the server looks at all that was published: steps C3 to C5. */
void __crpc_ipc_announce(struct crpc_ipc_client *c);

/**
 * A poll is the last of IPC_LOOK_POLLS, or status is set. It has @p got of up to @p n completions;
 * returns with how many it ends.
 */
uint16_t __crpc_ipc_look_around(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done,
	uint16_t n, uint16_t got);

/** The server answered what was not asked: the next poll fails the open calls. */
void __crpc_ipc_bad_answer(struct crpc_ipc_client *c);

CRPC_END_DECLS

#endif
