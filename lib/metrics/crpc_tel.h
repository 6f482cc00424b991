/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TEL_H
#define CRPC_TEL_H

/**
 * @file
 * How telemetry reads an object that belongs to another thread: its thread asks, and the owner
 * answers at its next poll by copying what was asked for. The datapath pays one load per poll for
 * it, and no counter is ever read while it is written.
 *
 *     telemetry's thread                          the owner's thread
 *     crpc_tel_ask()   want, state = asked  R1 -> poll: crpc_tel_asked(box)?
 *          |                                        crpc_tel_begin(box)  A0, state = answering
 *          | waits, bounded                         copies into what is behind the box
 *          v                                        crpc_tel_end(box)    R0, state = idle
 *     reads the answer                  A1 <-
 *     crpc_tel_done()
 *
 * A kind is a library's static struct crpc_tel, and its objects have a mailbox each, which begins
 * with a struct crpc_tel_box. They are numbered from 0 in the order in which they were opened, and
 * commands name them so.
 *
 * Threads: create, asked, begin, end and free are the owner's. ask and done are for handlers of
 * telemetry's commands, and so is crpc_tel_put.h, which writes what is common in answers. A kind's
 * lock is held while a question is open and its answer is read, so one question of a kind is asked
 * at a time, and free waits for it: at most for as long as a handler waits for an owner, some 200
 * ms.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "crpc_atomic.h"

CRPC_BEGIN_DECLS

/** An object's mailbox; the library's own struct begins with it. */
struct crpc_tel_box {
	_Atomic uint32_t state; /**< 0: nothing is asked. */
	uint32_t id;            /**< The object's number in commands. */
	/** What the question is about; the owner's between begin and end. */
	uint32_t want;
	/**
	 * NULL: the owner's poll looks at the box. Else a word of the owner's that a poll takes
	 * down with an acquire before it looks at the box: a question sets it to 1.
	 */
	_Atomic uint32_t *attention;
	struct crpc_tel *tel;
	struct crpc_tel_box *next;
};

/** All objects of a kind; static, made by CRPC_TEL_INIT. */
struct crpc_tel {
	pthread_mutex_t lock; /**< Of what follows; a handler holds it while it reads an answer. */
	struct crpc_tel_box *boxes; /**< The newest first. */
	uint32_t next_id;
};

#define CRPC_TEL_INIT                                                                              \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER                                                  \
	}

/**
 * Number an object, and make its mailbox of @p size bytes, cleared but for what struct crpc_tel_box
 * has; telemetry may ask from here on. NULL: no memory.
 */
struct crpc_tel_box *crpc_tel_create(
	struct crpc_tel *tel, _Atomic uint32_t *attention, size_t size);

/** Take an object out, and free its mailbox, which no handler touches any more. NULL is allowed. */
void crpc_tel_free(struct crpc_tel_box *box);

/** Is something asked? A hint for the poll, without ordering, that crpc_tel_begin() confirms. */
static inline bool
crpc_tel_asked(const struct crpc_tel_box *box)
{
	return crpc_load_relaxed(&box->state) != 0;
}

/** Begin an answer. @return false: there is no question (it was given up); write nothing. */
bool crpc_tel_begin(struct crpc_tel_box *box);

/** The answer is complete. */
void crpc_tel_end(struct crpc_tel_box *box);

/**
 * Ask the owner of object number @p id, and wait for its answer.
 *
 * @param tel
 *   The objects of one library.
 * @param id
 *   Which of them.
 * @param want
 *   What the question is about, for the box; the library's affair.
 * @return
 *   The box, answered, to be handed back by crpc_tel_done(). NULL: no such object, or its owner did
 *   not poll in time.
 */
struct crpc_tel_box *crpc_tel_ask(struct crpc_tel *tel, uint32_t id, uint32_t want);

/** The answer has been read. */
void crpc_tel_done(struct crpc_tel *tel);

/**
 * Take a number off a command's parameters, which are apart by commas.
 *
 * @param at
 *   Where it begins; moved behind the comma that follows, or to NULL at the end.
 * @param base
 *   As strtoul() takes it. A sign or a space is no number.
 * @param value
 *   The number; set only if there is one.
 * @return
 *   false: there is no number of 32 bits.
 */
bool crpc_tel_number(const char **at, int base, uint32_t *value);

CRPC_END_DECLS

#endif
