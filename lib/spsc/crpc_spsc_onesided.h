/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SPSC_ONESIDED_H
#define CRPC_SPSC_ONESIDED_H

/**
 * @file
 * The one-sided ring: each block carries its generation, and the consumer writes nothing to it.
 *
 *     lap 4:  | 4:7 a b c d e f g | 4:3 h i j . . . . | 3:7 . . . . . . . |
 *               ^ consumer reads    ^ producer writes   ^ last lap's: not there yet
 *
 * So memory that the consumer may only read is enough, and no line goes back to the producer to be
 * cleared. What protects unread messages is the window: the producer has at most depth messages
 * that it does not know to be read. It learns that from crpc_spsc_onesided_credit()
 * (attr.caller_credit), for instance because a reply to a request implies that the request and
 * everything before it was read; or by the tail word, which the consumer writes once per quarter of
 * the depth. A ring is created with a window no larger than it can hold; it cannot be overwritten.
 *
 * Its calls are those of crpc_spsc_inline.h, and what is here. crpc_spsc_block.h
 * has the layout.
 */

#include "crpc_spsc_base.h"

/**
 * Credit: the consumer has read the @p n oldest messages that are outstanding.
 *
 * @param p
 *   The producer's end of a ring with attr.caller_credit.
 * @param n
 *   Messages; more than are outstanding is bounded to those.
 */
crpc_inline void
crpc_spsc_onesided_credit(struct crpc_spsc_prod *p, uint32_t n)
{
	uint32_t open = p->next - (p->limit - p->depth);

	p->limit += n < open ? n : open;
}

#endif
