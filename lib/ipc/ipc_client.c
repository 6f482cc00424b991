/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's datapath: call and poll, and noticing that the server is gone. */
#include <errno.h>
#include <time.h>

#include "crpc_log.h"
#include "ipc_client.h"

/* Put one request into the promised slot, and promise the next. There is room. */
static inline void
put(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie, bool small)
{
	uint32_t slot = c->next_slot, next = slot;
	struct ipc_slot *s = c->next;

	c->calls[slot].cookie = cookie;
	c->calls[slot].busy = 1;
	c->open++;
	/* There are more slots than depth, so this ends: at most depth of them are busy. */
	do
		next = (next + 1) & c->req_mask;
	while (crpc_unlikely(c->calls[next].busy != 0));
	if (small)
		ipc_copy_small(s->data, buf, len);
	else
		memcpy(s->data, buf, len);
	/* R1 pairs with A1 in recv_peer(): the message, and our reads of earlier responses. */
	crpc_store_release(&s->word, ipc_word((uint32_t)c->req_seq, len, next));
	c->req_seq++;
	c->next_slot = next;
	c->next = ipc_slot_at(c->req, next, c->req_slot);
}

static crpc_noinline int
call_otherwise(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie)
{
	if (c->status != 0)
		return c->status;
	if (len > c->lay.req_max)
		return -EMSGSIZE;
	if (c->open >= c->room) {
		c->stats.again++;
		return -EAGAIN;
	}
	put(c, buf, len, cookie, false);
	return 0;
}

int
crpc_ipc_client_call(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie)
{
	IPC_OWNER_CHECK(c);
	if (crpc_unlikely(c->open >= c->room || len > c->small_max))
		return call_otherwise(c, buf, len, cookie);
	put(c, buf, len, cookie, true);
	return 0;
}

/* ---- noticing that the server is gone ---- */

static uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
give_up(struct crpc_ipc_client *c, int32_t status, const char *why)
{
	crpc_err("%s: client %u: %s; %u calls fail; close it and connect anew",
			crpc_shm_path(c->seg), c->id, why, c->open);
	c->status = status;
	c->room = 0;
}

static void
check_server(struct crpc_ipc_client *c)
{
	uint64_t now = monotonic_ns();

	c->empty = 0;
	c->stats.polls += CRPC_IPC_CHECK_POLLS;
	c->stats.beats = crpc_load_relaxed(c->beat);
	/* A5 pairs with R5 in __crpc_ipc_drop(). */
	if (crpc_load_acquire(&c->ctl->verdict) != 0) {
		give_up(c, -EPROTO, "the server dropped it for breaking the protocol");
		return;
	}
	if (crpc_load_acquire(&crpc_shm_header(c->seg)->state) == CRPC_SHM_CLOSED) {
		give_up(c, -ECONNRESET, "the server closed the segment");
		return;
	}
	if (now - c->probed_ns < c->probe_ns)
		return;
	c->probed_ns = now;
	c->stats.probes++;
	/* A stopped server keeps its lock: it is late, not dead. */
	if (!crpc_shm_owner_alive(c->seg))
		give_up(c, -ECONNRESET, "the server died");
}

/* Complete what is open with the final error. */
static uint16_t
fail_open(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint16_t got = 0;

	for (; got < n && c->open != 0 && c->fail_slot <= c->req_mask; c->fail_slot++) {
		if (c->calls[c->fail_slot].busy == 0)
			continue;
		c->calls[c->fail_slot].busy = 0;
		c->open--;
		done[got++] = (struct crpc_done){
				.cookie = c->calls[c->fail_slot].cookie, .status = c->status};
	}
	c->stats.completed += got; /* beside those that were answered */
	c->stats.failed += got;
	return got;
}

/* A poll that found no response. */
static crpc_noinline uint16_t
poll_empty(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	if (c->status == 0)
		check_server(c);
	if (c->status == 0)
		return 0;
	/* Answers written before the server died come first; it writes no more now. */
	if (c->status == -ECONNRESET && c->open != 0 &&
			ipc_word_seq(crpc_load_acquire(&c->head->word)) == (uint32_t)c->resp_seq)
		return 0;
	return fail_open(c, done, n);
}

/* A response that answers no open call, or has an impossible size. */
static crpc_noinline uint16_t
poll_bad(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n, uint32_t got)
{
	if (c->status != -EPROTO)
		give_up(c, -EPROTO, "the server answered what was not asked");
	return (uint16_t)(got + fail_open(c, done + got, (uint16_t)(n - got)));
}

/* ---- poll ---- */

/* A response without bytes: the status that the server gave. */
static crpc_noinline bool
complete_failed(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	if (size <= IPC_SIZE_STATUS || size > IPC_SIZE_STATUS + IPC_ERRNO_MAX)
		return false;
	done->data = NULL;
	done->len = 0;
	done->status = -(int32_t)(size - IPC_SIZE_STATUS);
	c->stats.failed++;
	return true;
}

uint16_t
crpc_ipc_client_poll(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint32_t slot, size, got = 0;
	struct ipc_call *call;
	uint64_t word;

	IPC_OWNER_CHECK(c);
	while (got < n) {
		/* A2 pairs with R2 in respond(). Copied once; then only the copy is used. */
		word = crpc_load_acquire(&c->head->word);
		if (ipc_word_seq(word) != (uint32_t)c->resp_seq)
			break;
		slot = ipc_word_slot(word);
		size = ipc_word_size(word);
		if (crpc_unlikely(slot > c->req_mask || c->calls[slot].busy == 0))
			return poll_bad(c, done, n, got);
		call = &c->calls[slot];
		done[got].cookie = call->cookie;
		done[got].data = c->head->data;
		done[got].len = size;
		done[got].status = 0;
		if (crpc_unlikely(size > c->resp_max) && !complete_failed(c, size, &done[got]))
			return poll_bad(c, done, n, got);
		call->busy = 0;
		c->open--;
		got++;
		c->resp_seq++;
		c->head = ipc_slot_at(c->resp, (uint32_t)c->resp_seq & c->resp_mask, c->resp_slot);
	}
	if (got == 0 && crpc_unlikely(++c->empty >= CRPC_IPC_CHECK_POLLS || c->status != 0))
		return poll_empty(c, done, n);
	return (uint16_t)got;
}

void
crpc_ipc_client_flush(struct crpc_ipc_client *c)
{
	(void)c;
}

/* ---- getters ---- */

int
crpc_ipc_client_status(const struct crpc_ipc_client *c)
{
	return c->status;
}

uint32_t
crpc_ipc_client_depth(const struct crpc_ipc_client *c)
{
	return c->lay.depth;
}

uint32_t
crpc_ipc_client_open(const struct crpc_ipc_client *c)
{
	return c->open;
}

uint32_t
crpc_ipc_client_req_max(const struct crpc_ipc_client *c)
{
	return c->lay.req_max;
}

uint32_t
crpc_ipc_client_resp_max(const struct crpc_ipc_client *c)
{
	return c->lay.resp_max;
}

uint32_t
crpc_ipc_client_id(const struct crpc_ipc_client *c)
{
	return c->id;
}

void
crpc_ipc_client_stats(const struct crpc_ipc_client *c, struct crpc_ipc_client_stats *stats)
{
	*stats = c->stats;
	stats->calls = c->req_seq - 1;
	stats->completed += c->resp_seq - 1;
}
