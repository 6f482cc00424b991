/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "crpc_clock.h"
#include "crpc_tel.h"

/* How long a handler waits for the owner's next poll. */
#define WAIT_MS 200
#define POLL_NS 1000000

/* States of a question. */
enum {
	TEL_IDLE,
	TEL_ASKED,
	TEL_ANSWERING,
};

struct crpc_tel_box *
crpc_tel_create(struct crpc_tel *tel, _Atomic uint32_t *attention, size_t size)
{
	struct crpc_tel_box *box = calloc(1, size);

	if (box == NULL)
		return NULL;
	box->attention = attention;
	box->tel = tel;
	pthread_mutex_lock(&tel->lock);
	box->id = tel->next_id++;
	box->next = tel->boxes;
	tel->boxes = box;
	pthread_mutex_unlock(&tel->lock);
	return box;
}

void
crpc_tel_free(struct crpc_tel_box *box)
{
	struct crpc_tel_box **at;

	if (box == NULL)
		return;
	/* A handler that waits for us holds the lock, and gives up soon. */
	pthread_mutex_lock(&box->tel->lock);
	for (at = &box->tel->boxes; *at != box;)
		at = &(*at)->next;
	*at = box->next;
	pthread_mutex_unlock(&box->tel->lock);
	free(box);
}

bool
crpc_tel_begin(struct crpc_tel_box *box)
{
	uint32_t expected = TEL_ASKED;

	/* A0: acquire, pairs with the handler's question R1: it has done with the last answer. */
	return crpc_cas_acq_rel(&box->state, &expected, TEL_ANSWERING);
}

void
crpc_tel_end(struct crpc_tel_box *box)
{
	/* R0: release, pairs with the handler's A1: the answer is complete. */
	crpc_store_release(&box->state, TEL_IDLE);
}

/* Have the owner of this box answer; the lock is held. False: it did not poll in time. */
static bool
wait_answer(struct crpc_tel_box *box, uint32_t want)
{
	uint32_t expected = TEL_ASKED;

	box->want = want;
	/* R1: release, pairs with the owner's A0. */
	crpc_store_release(&box->state, TEL_ASKED);
	/*
	 * R2: release, pairs with the acquire by which the owner takes the word down: it sees R1.
	 */
	if (box->attention != NULL)
		crpc_store_release(box->attention, 1);
	for (uint32_t waited = 0; waited < WAIT_MS; waited++) {
		/* A1: acquire, pairs with the owner's R0. */
		if (crpc_load_acquire(&box->state) == TEL_IDLE)
			return true;
		crpc_nap(POLL_NS);
	}
	if (crpc_cas_acq_rel(&box->state, &expected, TEL_IDLE))
		return false;
	while (crpc_load_acquire(&box->state) != TEL_IDLE) /* A1 */
		crpc_nap(POLL_NS);
	return true;
}

struct crpc_tel_box *
crpc_tel_ask(struct crpc_tel *tel, uint32_t id, uint32_t want)
{
	struct crpc_tel_box *box;

	pthread_mutex_lock(&tel->lock);
	for (box = tel->boxes; box != NULL && box->id != id;)
		box = box->next;
	if (box != NULL && wait_answer(box, want))
		return box;
	pthread_mutex_unlock(&tel->lock);
	return NULL;
}

void
crpc_tel_done(struct crpc_tel *tel)
{
	pthread_mutex_unlock(&tel->lock);
}

bool
crpc_tel_number(const char **at, int base, uint32_t *value)
{
	unsigned long v;
	char *end;

	if (*at == NULL || **at < '0' || **at > '9')
		return false;
	v = strtoul(*at, &end, base);
	if ((*end != '\0' && *end != ',') || v > UINT32_MAX)
		return false;
	*value = (uint32_t)v;
	*at = *end == ',' ? end + 1 : NULL;
	return true;
}
