/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IPC_CLIENT_SLOW_H
#define IPC_CLIENT_SLOW_H

/** @file What the client's files share beside call and poll. */

#include "ipc_client.h"
#include "ipc_layout.h"

/** Polls between two looks around; every few of them it looks at the server too. */
#define IPC_LOOK_POLLS 64
/** Calls after which a word in a slot is old; far fewer than sequence numbers. */
#define IPC_AGE_CALLS (UINT32_C(1) << 30)

_Static_assert(CRPC_IPC_CHECK_POLLS % IPC_LOOK_POLLS == 0, "every so many looks");

/** A block that came with a completion of the last poll. */
struct ipc_held {
	const void *data; /**< Of that completion: no other has the same. */
	struct crpc_ipc_block block;
};

/** Ring for the client in place @p id: it came, went, or called while asleep. */
void __crpc_ipc_ring_bell(struct ipc_bell *bell, uint32_t id);

/** @p call is made next, and allows replies of up to @p resp_max bytes, at most c->resp_max. */
void __crpc_ipc_allow(struct crpc_ipc_client *c, struct ipc_call *call, uint32_t resp_max);

/** RPC_NEVER / 1000 us and more are no timeout. */
static inline uint64_t
ipc_timeout_ns(uint64_t us)
{
	return us > RPC_NEVER / 1000 ? 0 : us * 1000;
}

/** Take the words in all slots for old: once in IPC_AGE_CALLS, and at first. */
void __crpc_ipc_age_slots(struct crpc_ipc_client *c);

/** True if the next poll finds an answer. */
bool __crpc_ipc_has_answer(const struct crpc_ipc_client *c);

/**
 * Take over the block whose reference done->data starts with, and go past that.
 *
 * @param wanted
 *   False: its call has ended; it is freed.
 * @return
 *   False if it was not given to this client.
 */
bool __crpc_ipc_block_answer(struct crpc_ipc_client *c, struct crpc_done *done, bool wanted);

/** The call in this slot, which gave a block, has ended: if the server did not take it, free it. */
void __crpc_ipc_block_back(struct crpc_ipc_client *c, uint32_t slot);

/** Free the blocks of the last poll that were not taken. */
void __crpc_ipc_free_held(struct crpc_ipc_client *c);

#endif
