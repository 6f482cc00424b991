/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_ENGINE_DIRECT_H
#define SOFT_MLX5_ENGINE_DIRECT_H

/**
 * @file
 * Large payloads go straight from their source where both ends are in one process: a packet of the
 * ring names the memory, and whoever receives it copies, once.
 *
 *     who sends (sm_tx)                                   who receives (sm_rx)
 *     sm_direct_begin() -> a grant, to be filled
 *     sm_direct_put()
 *           SEND_REF, WRITE_REF, READ_RESP_REF -------->  sm_direct_packet(): sm_pull_to()
 *           `pulled` of the ring  <---------------------  one reference more is done with
 *     sm_direct_withdraw...(): the memory is the program's again
 *
 * The reader finds out when it maps the ring whether its writer is in this process, and says so in
 * the ring's word `direct`. If not, the bytes go through the ring as short ones do.
 *
 * A grant is the right to read the memory that one packet names. It lies in the sender's memory:
 *
 *          put                    claimed while bytes are copied
 *     FREE ----> OFFERED <------------------------------------------> CLAIMED
 *       ^           |
 *       +-----------+  withdrawn; or put again, the reader being done with it
 *
 * Nothing is copied after the grant was withdrawn: a claim and a withdrawal exclude each other, and
 * who withdraws waits for the copy under way, of SM_DIRECT_PIECE at most.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "crpc_atomic.h"
#include "wire.h"

struct sm_nic;
struct sm_peer;
struct sm_qp;

/** What one packet refers to at most, which bounds a pass of the receiver, too. */
#define SM_DIRECT_PIECE (256u << 10)
/** What the references in one ring come to at most: a short message waits behind so much. */
#define SM_DIRECT_AHEAD (1u << 20)
/** References in one ring. */
#define SM_GRANTS 64u
/** Pieces of memory of one reference. */
#define SM_GRANT_SEGS 16u

/** A piece of memory of the sender. */
struct sm_seg {
	uint64_t addr;
	uint64_t len;
};

/** The payload of a packet that refers; the pieces of memory are in the grant. */
struct sm_ref {
	uint64_t state; /**< What the grant's state is while it is valid; never 0. */
	uint64_t len;   /**< Bytes in all. */
};

struct sm_grant {
	_Atomic uint64_t state; /**< 0: free; number << 1; with bit 0: claimed. */
	const struct sm_qp *qp; /**< Whose packet it was. */
	uint32_t len;
	uint32_t nseg;
	uint32_t key[SM_GRANT_SEGS]; /**< Indexes of the regions' keys. */
	struct sm_seg seg[SM_GRANT_SEGS];
};

/** The grants of one ring, which its reader shares. */
struct sm_grants {
	uint64_t cookie; /**< Of this process and ring alone; the first number. */
	uint32_t users;	 /**< Under the lock of the list. */
	LIST_ENTRY(sm_grants) link;
	struct sm_grant grant[SM_GRANTS];
};

/** Destinations are remembered by pieces of so many bytes. */
#define SM_TRAIL_SHIFT 18
#define SM_TRAIL 1024u
/** What is overwritten after so many bytes is no more in a cache that is worth it. */
#define SM_FAR_BYTES (4u << 20)

/** Where a context copied to, lately: whether a destination may lie in the caches. */
struct sm_trail {
	uint64_t copied;  /**< Bytes in all. */
	uint64_t end;     /**< Behind the newest destination ... */
	uint64_t run;     /**< ... and how many bytes lie before it in one piece. */
	struct {
		uint64_t place; /**< Of 1 << SM_TRAIL_SHIFT bytes. */
		uint64_t when;  /**< By copied. */
	} at[SM_TRAIL];
};

/** What a context did so, for people. */
struct sm_direct_count {
	uint64_t sent, sent_bytes;
	uint64_t received_bytes;
	uint64_t withdrawn; /**< References that were invalid when they came. */
};

/** A reference under way at its receiver. */
struct sm_pull {
	struct sm_nic *nic;
	struct sm_peer *peer;
	struct sm_ref ref;
	uint32_t at;      /**< Where they begin in their message. */
	uint32_t pos;     /**< Bytes copied. */
	uint8_t syndrome; /**< Not 0: failed, as a READ completes then. */
};

/** Make ready to send references in a ring that is about to be made, if any are: its cookie. */
uint64_t sm_direct_open(struct sm_nic *nic, struct sm_peer *p);
/** The ring of a peer was mapped, or is our own: find out whether its writer is in this process. */
void sm_direct_attach(struct sm_nic *nic, struct sm_peer *p);
/** The peer goes. */
void sm_direct_close(struct sm_nic *nic, struct sm_peer *p);
/** No references from now on, neither sent nor asked for: faults, captures. */
void sm_direct_off(struct sm_nic *nic);
/** In a forked child: what is shared is the parent's. */
void sm_direct_fork_child(void);

/**
 * A grant for the next piece of @p left bytes of a message of @p qp, to be filled (len, nseg, seg,
 * key) and put.
 *
 * @return
 *   NULL: the bytes go through the ring, unless @p full: again in the next pass.
 */
struct sm_grant *sm_direct_begin(struct sm_nic *nic, struct sm_qp *qp, uint32_t left, bool *full);
/** Make it valid and write the packet's payload, a struct sm_ref. */
void sm_direct_put(struct sm_nic *nic, struct sm_qp *qp, struct sm_grant *g, void *payload);

/** A queue pair leaves its connection: what it sent is not read any more. */
void sm_direct_withdraw(struct sm_nic *nic, const struct sm_qp *qp);
/** The same of a region, by the index of its key. */
void sm_direct_withdraw_key(struct sm_nic *nic, uint32_t index);

/** Forget the references that the reader of our ring is done with; false: it says nonsense. */
bool sm_direct_reclaim(struct sm_tx *tx);
/** A packet that refers; false: it is malformed. */
bool sm_direct_packet(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload);
/** Copy the next @p n bytes of a reference to @p dst; false: failed, see `syndrome`. */
bool sm_pull_to(struct sm_pull *pull, void *dst, uint32_t n);

#endif
