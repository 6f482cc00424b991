/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RPC_CALLS_H
#define RPC_CALLS_H

/**
 * @file
 * The open calls of a client: a table per connection, and the sweep that ends calls whose deadline
 * passed or that were canceled. Inside of the RPC layers.
 *
 *     FREE --take()--> open --reply: end()--> FREE
 *                      open --deadline, cancel--> ENDED --late reply: end()--> FREE
 *
 * A call that ended early keeps its slot: the peer may still hold the request, and its answer must
 * not be taken for that of a later call. The slot is free again when the late answer arrives or the
 * connection ends.
 *
 * A slot is the first member of the layer's own slot, so that a layer keeps what it needs of a call
 * beside it. Ids are never 0: the low bits are the slot, from 1 on, the bits above count its uses.
 * They wrap safely, because a slot is used again only after the answer to its previous call.
 *
 * Deadlines cost a call one store: nothing is queued. Every eighth of the shortest timeout a sweep
 * walks over the tables, a bounded number of slots in each poll:
 *
 *     poll:  k = rpc_sweep_turn(&sweep, now, false, done, n);       after full bursts
 *            k += the replies that wait;  sweep.taken += their number
 *            k += rpc_sweep_turn(&sweep, now, k < n, done + k, n - k);
 *
 * A call whose reply waits to be taken is not late. `drained` says that no reply waits. While
 * bursts stay full, a sweep judges by the time at which it began, and only once so many replies
 * were taken that those of all calls that were open then would have been among them.
 */

#include <stdbool.h>

#include "crpc_rpc.h"
#include "crpc_util.h"

CRPC_BEGIN_DECLS

/** In rpc_call.deadline_ns: the call has none; and what is not an open call. */
#define RPC_NEVER    (UINT64_MAX - 3)
#define RPC_CANCELED (UINT64_MAX - 2) /**< Open; the sweep completes it. */
#define RPC_ENDED    (UINT64_MAX - 1) /**< Completed before its reply. */
#define RPC_FREE     UINT64_MAX

/** Slots that one poll looks at for deadlines, at most. */
#define RPC_SWEEP_SLOTS 256u

/** The part of a call that every layer has. */
struct rpc_call {
	union {
		uint64_t cookie;
		struct rpc_call *next; /**< FREE. */
	};
	uint64_t deadline_ns; /**< Or RPC_*. */
	uint32_t id;          /**< Of this use; of the next one while FREE. */
};

struct rpc_calls;

/** The slot of a call is freed without a reply: give back what the call holds. */
typedef void (*rpc_call_drop_t)(struct rpc_calls *calls, struct rpc_call *call);

/** The calls of one connection. */
struct rpc_calls {
	uint8_t *slot;         /**< The layer's slots, each starting with a struct rpc_call. */
	struct rpc_call *free; /**< The slot that is taken next. */
	/**
	 * Where a freed slot is appended, so that the slots that were freed first are taken first.
	 * NULL: the most recently freed one, the hottest, is. Set by a layer that never takes all.
	 */
	struct rpc_call *last;
	uint32_t stride; /**< Bytes of a slot. */
	uint32_t mask;   /**< Of the slot in an id. */
	uint32_t size;
	uint32_t open;        /**< Calls without completion. */
	uint32_t ended;       /**< Slots that wait for a late reply. */
	uint32_t drop_at;     /**< Where __crpc_calls_drop() continues. */
	rpc_call_drop_t drop; /**< NULL: calls hold nothing. */
};

/** Ends calls by time. One per object that is polled. */
struct rpc_sweep {
	struct rpc_calls **table; /**< The layer's; NULL entries are skipped. */
	uint32_t ntables;
	struct crpc_rpc_counts *counts; /**< The layer's. */
	bool active;
	/**
	 * Calls were canceled since a walk began. They are completed before replies are taken, and
	 * delay these and deadlines only by a table: their slots wait for late replies.
	 */
	bool canceled;
	uint64_t period_ns;   /**< 0: no call has a deadline. */
	uint64_t next_ns;     /**< When the next sweep begins; 0 while one is active. */
	/** Calls that a reply completed. Counted by the layer, if only while a sweep is active. */
	uint64_t taken;
	uint64_t judge_ns;    /**< When the active sweep began. */
	uint64_t judge_taken; /**< Value of taken from which on judge_ns counts. */
	uint64_t seen;        /**< rpc_sweep_saw(): entries since the active sweep began. */
	uint64_t limit_ns;    /**< Deadlines up to here have passed; 0: cancels only. */
	uint32_t at_table, at_slot;
};

static inline struct rpc_call *
rpc_call_at(const struct rpc_calls *calls, uint32_t index)
{
	return (struct rpc_call *)(void *)(calls->slot + (size_t)index * calls->stride);
}

static inline uint32_t
rpc_call_index(const struct rpc_calls *calls, uint32_t id)
{
	return id & calls->mask;
}

/** Slots that are not free. */
static inline uint32_t
rpc_calls_in_use(const struct rpc_calls *calls)
{
	return calls->open + calls->ended;
}

/** Whether a call waits for its completion. */
static inline bool
rpc_call_is_open(const struct rpc_call *call)
{
	return call->deadline_ns < RPC_ENDED;
}

/**
 * Make a table.
 *
 * @param mem
 *   (size + 1) * stride bytes, zeroed: slot 0 is never used.
 * @param stride
 *   Bytes of the layer's slot.
 * @param first_use
 *   Where the count of uses starts in every id.
 */
void __crpc_calls_init(
	struct rpc_calls *calls, void *mem, uint32_t size, uint32_t stride, uint32_t first_use);

/** Open a call in a slot that the layer chose among the free ones; then it chooses all of them. */
static inline void
rpc_calls_open(
	struct rpc_calls *calls, struct rpc_call *call, uint64_t cookie, uint64_t deadline_ns)
{
	calls->open++;
	call->cookie = cookie;
	call->deadline_ns = deadline_ns;
}

/** Take a slot of a table that has a free one. */
static inline struct rpc_call *
rpc_calls_take_first(struct rpc_calls *calls, uint64_t cookie, uint64_t deadline_ns)
{
	struct rpc_call *call = calls->free;

	calls->free = call->next;
	rpc_calls_open(calls, call, cookie, deadline_ns);
	return call;
}

/** Take a slot; NULL: all are in use. */
static inline struct rpc_call *
rpc_calls_take(struct rpc_calls *calls, uint64_t cookie, uint64_t deadline_ns)
{
	return crpc_likely(calls->free != NULL) ? rpc_calls_take_first(calls, cookie, deadline_ns)
						: NULL;
}

/** The call with an id that a peer sent, open or ENDED; NULL: there is none. */
static inline struct rpc_call *
rpc_calls_find(const struct rpc_calls *calls, uint32_t id)
{
	uint32_t index = rpc_call_index(calls, id);
	struct rpc_call *call;

	if (crpc_unlikely(index > calls->size))
		return NULL;
	call = rpc_call_at(calls, index);
	return crpc_likely(call->id == id && call->deadline_ns != RPC_FREE) ? call : NULL;
}

/** rpc_calls_free() of a table without rpc_calls.last. */
static inline void
rpc_calls_free_first(struct rpc_calls *calls, struct rpc_call *call)
{
	call->deadline_ns = RPC_FREE;
	call->id += calls->mask + 1;
	call->next = calls->free;
	calls->free = call;
}

/** The slot of a call that is not open any more can be taken again. */
static inline void
rpc_calls_free(struct rpc_calls *calls, struct rpc_call *call)
{
	if (calls->last == NULL) {
		rpc_calls_free_first(calls, call);
		return;
	}
	call->deadline_ns = RPC_FREE;
	call->id += calls->mask + 1;
	calls->last->next = call;
	calls->last = call;
}

/** The reply to a call that was canceled or has ended. As rpc_calls_complete(). */
bool __crpc_calls_late(struct rpc_calls *calls, struct rpc_call *call,
	struct crpc_rpc_counts *counts, struct crpc_done *done);

/** The reply to a call that is open and not canceled has come; the layer frees its slot. */
static inline void
rpc_calls_fill(struct rpc_calls *calls, const struct rpc_call *call, const void *data, uint32_t len,
	int32_t status, struct crpc_done *done)
{
	done->cookie = call->cookie;
	done->data = data;
	done->len = len;
	done->status = status;
	calls->open--;
}

/**
 * The reply to a call has come; the layer frees its slot.
 *
 * @param call
 *   Open, or ENDED.
 * @param status
 *   0, or what the server gave to fail(), with no data.
 * @return
 *   Whether *done was filled; false: the call had ended before.
 */
static inline bool
rpc_calls_complete(struct rpc_calls *calls, struct rpc_call *call, const void *data, uint32_t len,
	int32_t status, struct crpc_rpc_counts *counts, struct crpc_done *done)
{
	if (crpc_unlikely(call->deadline_ns >= RPC_CANCELED))
		return __crpc_calls_late(calls, call, counts, done);
	rpc_calls_fill(calls, call, data, len, status, done);
	return true;
}

/** rpc_calls_complete(), and free the slot. */
static inline bool
rpc_calls_reply(struct rpc_calls *calls, struct rpc_call *call, const void *data, uint32_t len,
	int32_t status, struct crpc_rpc_counts *counts, struct crpc_done *done)
{
	bool filled = rpc_calls_complete(calls, call, data, len, status, counts, done);

	rpc_calls_free(calls, call);
	return filled;
}

/**
 * Complete every call of a connection that has ended, at most @p n at a time, and free the slots.
 *
 * @param status
 *   Of the completions: -ECONNRESET. Canceled calls have -ECANCELED.
 * @return
 *   Completions filled. All slots are free when calls->open and calls->ended are 0.
 */
uint16_t __crpc_calls_drop(struct rpc_calls *calls, int32_t status, struct crpc_rpc_counts *counts,
	struct crpc_done *done, uint16_t n);

/** Have the sweep complete the open calls with this cookie. Returns their number. */
uint32_t __crpc_calls_cancel(struct rpc_calls *calls, struct rpc_sweep *sweep, uint64_t cookie);

/** The deadline of a call made now. 0: none. Calls with deadlines set how often the sweep runs. */
static inline uint64_t
rpc_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	return timeout_ns == 0 || timeout_ns >= RPC_NEVER - now_ns ? RPC_NEVER
								   : now_ns + timeout_ns;
}

/** Make a sweep of tables whose calls have this timeout, or none if it is 0. */
void __crpc_sweep_init(struct rpc_sweep *sweep, struct rpc_calls **table, uint32_t ntables,
	struct crpc_rpc_counts *counts, uint64_t timeout_ns);

/** From now on there are calls with this timeout. */
void __crpc_sweep_expect(struct rpc_sweep *sweep, uint64_t now_ns, uint64_t timeout_ns);

/**
 * Entries were taken of a queue that all replies come through. Among as many as it holds, and as
 * the layer has taken but not yet handled, were all replies that waited when the sweep began,
 * whatever completes in between.
 */
static inline void
rpc_sweep_saw(struct rpc_sweep *sweep, uint32_t entries, uint64_t queue)
{
	if (crpc_likely(!sweep->active))
		return;
	sweep->seen += entries;
	if (sweep->seen > queue && (int64_t)(sweep->taken - sweep->judge_taken) < 0)
		sweep->taken = sweep->judge_taken;
}

uint16_t __crpc_sweep_run(
	struct rpc_sweep *sweep, uint64_t now_ns, bool drained, struct crpc_done *done, uint16_t n);

/**
 * Complete calls whose deadline passed and calls that were canceled.
 *
 * @param drained
 *   No reply waits to be taken.
 * @return
 *   Completions filled: each has status -ETIMEDOUT or -ECANCELED.
 */
static inline uint16_t
rpc_sweep_turn(
	struct rpc_sweep *sweep, uint64_t now_ns, bool drained, struct crpc_done *done, uint16_t n)
{
	if (crpc_likely(now_ns < sweep->next_ns))
		return 0;
	return __crpc_sweep_run(sweep, now_ns, drained, done, n);
}

CRPC_END_DECLS

#endif
