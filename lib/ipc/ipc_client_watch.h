/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_CLIENT_WATCH_H
#define IPC_CLIENT_WATCH_H

/**
 * @file What a client does beside its datapath, now and then: deadlines, sleep, the server's end.
 */

#include "ipc_client.h"

/** Polls between two looks around; every few of them it looks at the server too. */
#define IPC_LOOK_POLLS 64
/** Calls after which a word in a slot is old; far fewer than sequence numbers. */
#define IPC_AGE_CALLS (UINT32_C(1) << 30)
/** Polls that a synchronous call spins before it gives the core away at each. */
#define IPC_SYNC_SPINS 4096

_Static_assert(CRPC_IPC_CHECK_POLLS % IPC_LOOK_POLLS == 0, "every so many looks");

/** Make sure that the server looks at all that was published: steps C3 to C5. */
void __crpc_ipc_announce(struct crpc_ipc_client *c);

/**
 * A poll is the last of IPC_LOOK_POLLS, or status is set. It has @p got of up to @p n completions;
 * returns with how many it ends.
 */
uint16_t __crpc_ipc_look_around(
		struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n, uint16_t got);

/** The time @p us after @p now_ns; UINT64_MAX, which never comes, where that is out of range. */
static inline uint64_t
ipc_deadline(uint64_t now_ns, uint64_t us)
{
	return us > (UINT64_MAX - now_ns) / 1000 ? UINT64_MAX : now_ns + us * 1000;
}

/**
 * End the calls that were overdue at due_ns, and start the clock of those that have none yet:
 * their time counts from @p now, which is after they were made; 0: not now.
 *
 * @return
 *   Completions, up to @p n. If there are more, IPC_ASIDE_DUE is set.
 */
uint32_t __crpc_ipc_expire(
		struct crpc_ipc_client *c, uint64_t now, struct crpc_done *done, uint32_t n);

/** Take the words in all slots for old: once in IPC_AGE_CALLS, and at first. */
void __crpc_ipc_age_slots(struct crpc_ipc_client *c);

/** True if the next poll finds an answer. */
bool __crpc_ipc_has_answer(const struct crpc_ipc_client *c);

/**
 * Take over the block whose reference done->data starts with, and go past that.
 *
 * @param wanted
 *   False: nobody waits for it any more; it is freed.
 * @return
 *   False if it was not given to this client.
 */
bool __crpc_ipc_block_answer(struct crpc_ipc_client *c, struct crpc_done *done, bool wanted);

/** The call in this slot, which gave a block, has ended: if the server did not take it, free it. */
void __crpc_ipc_block_back(struct crpc_ipc_client *c, uint32_t slot);

/** Free the blocks of the last poll that nobody took. */
void __crpc_ipc_free_held(struct crpc_ipc_client *c);

/** The server answered what was not asked: the next poll fails the open calls. */
void __crpc_ipc_bad_answer(struct crpc_ipc_client *c);

#endif
