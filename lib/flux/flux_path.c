/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flux: call, poll, recv, reply. Nothing here allocates, locks or waits.
 *
 * The ring under a channel is the duplex ring of crpc_spsc_duplex.h, whose replies overwrite their
 * requests, made free of order:
 *
 *     slots     |  1  |  2  |  3  |  4  | ...  payloads: a request, then its reply, in one place
 *     requests  | 1 len | 3 len | 4 len | ...  an order: entries of 4 bytes, written by the caller
 *     replies   | 4 len | 1 len | ...          the same, written by the server
 *     head, done                               how far each order is written
 *
 * A reply can be given at any time: its entry goes to the order of replies when it is given, so a
 * poll finds it without looking at slots that are still open, and a slow call delays no other. No
 * order can overflow: it has an entry for each call of the window, and a call is in the window
 * until its reply is read. So the server never waits for room, and neither side publishes what it
 * read.
 *
 * A channel has two windows of slots, used first in, first out: while replies come in the order of
 * the requests, slots are used in the order of their addresses, and a slot whose reply was given
 * out by the last poll is not used again before the next, since a window of others is free before
 * it.
 *
 * Lines that a call of 32 bytes moves, in bursts of 32 (a line has 64 bytes):
 *
 *     payload        0.5 to the server, 0.5 back, each with its ownership
 *     entries        0.0625 each way
 *     head, done     0.03 each way
 *
 * 1.19 in all, compared with 1.06 of the duplex ring, which has no entries, and 2.1 of two one-way
 * rings that carry the messages. test/golden has the instructions: about 120 more than those of
 * duplex, for the call table, the tokens, and what recv and poll give out. They bound the rate
 * where lines are near: call 37, recv 31, reply 25, poll 44, flush 4.
 */
#include <errno.h>

#include "crpc_spsc_base.h"
#include "flux_priv.h"
#include "rpc_copy.h"

/* Slots whose payloads are fetched ahead of those that are given out. */
#define AHEAD 32u

/*
 * How far ahead of a payload that is given out one is fetched, to write it: the reply overwrites
 * its request, the next request the reply. Slots follow each other while replies come in order.
 * What is not published yet is the peer's to write: then a payload is fetched when it is given out.
 */
static inline uint32_t
ahead(const struct flux_chan *ch, const struct flux_order *o, uint32_t n)
{
	return o->known - o->next >= n + AHEAD ? AHEAD * ch->stride : 0;
}

/* ---- calls ---- */

/* Whether @p ep can carry such a call now; if not, *room is 0. */
static inline int
check(const struct crpc_flux_ep *ep, uint32_t len, uint32_t resp_max, uint32_t *room)
{
	const struct flux_chan *ch = ep->ch;

	crpc_owner_check(&ep->node->owner, "flux node");
	*room = 0;
	/* A20 pairs with R20. */
	if (crpc_unlikely(ch == NULL || crpc_load_acquire(&ch->server_gone) != 0))
		return -ECONNRESET;
	if (crpc_unlikely(len > ch->msg_size || resp_max > ch->msg_size))
		return -EMSGSIZE;
	*room = ch->window - rpc_calls_in_use(&ch->calls);
	return crpc_likely(*room != 0) ? 0 : -EAGAIN;
}

/*
 * Put requests into free slots, of which there are more than n. Here and below: what a loop needs
 * is copied first, because a store to a payload could change it for all the compiler knows.
 */
static inline void
send(struct flux_chan *ch, uint32_t room, const char *msgs, uint32_t len, const uint64_t *cookies,
	uint64_t deadline_ns, uint32_t n)
{
	struct flux_order *o = &ch->requests;
	const uint32_t mask = o->mask, stride = ch->stride;
	uint32_t *const entries = o->entry;
	char *const buf = ch->buf;
	struct rpc_calls calls = ch->calls;
	struct rpc_call *call;
	uint32_t slot, pos = o->next, value = room << FLUX_ROOM_SHIFT | len << FLUX_SLOT_BITS;

	for (uint32_t i = 0; i < n; i++, msgs += len) {
		call = rpc_calls_take(&calls, cookies[i], deadline_ns);
		slot = rpc_call_index(&calls, call->id);
		rpc_copy(buf + (size_t)slot * stride, msgs, len);
		entries[pos++ & mask] = value | slot;
	}
	ch->calls = calls;
	o->next = pos;
	if (o->next - o->known >= ch->lazy)
		flux_publish(o);
}

uint16_t
crpc_flux_call_burst(struct crpc_flux_ep *ep, uint64_t now_ns, const void *msgs, uint32_t len,
	uint32_t resp_max, const uint64_t *cookies, uint16_t n)
{
	struct crpc_rpc_counts *counts = &ep->node->stats.rpc;
	uint32_t room, k;
	int rc = check(ep, len, resp_max, &room);

	if (crpc_unlikely(rc != 0 && rc != -EAGAIN))
		return 0;
	k = room < n ? room : n;
	send(ep->ch, resp_max + 1, msgs, len, cookies, rpc_deadline(now_ns, ep->ch->deadline_ns),
		k);
	counts->calls += k;
	counts->again += n - k;
	return (uint16_t)k;
}

int
crpc_flux_call(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	uint32_t room;

	if (crpc_likely(crpc_flux_call_burst(ep, now_ns, buf, len, resp_max, &cookie, 1) == 1))
		return 0;
	return check(ep, len, resp_max, &room);
}

int
crpc_flux_notify(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	static const uint64_t no_cookie;
	uint32_t room;
	int rc = check(ep, len, 0, &room);

	ep->node->stats.rpc.again += rc == -EAGAIN;
	if (crpc_unlikely(rc != 0))
		return rc;
	/* A call that has ended before its reply: nothing completes it. */
	send(ep->ch, 0, buf, len, &no_cookie, RPC_ENDED, 1);
	ep->ch->calls.open--;
	ep->ch->calls.ended++;
	ep->node->stats.rpc.notifies++;
	return 0;
}

/* ---- completions ---- */

/*
 * Complete calls from up to n replies that are published. Stops before an entry that is not the
 * reply to an open call.
 */
static uint32_t
complete(struct flux_chan *ch, struct crpc_rpc_counts *counts, struct crpc_done *done, uint32_t n)
{
	struct flux_order *o = &ch->replies;
	const uint32_t *const entries = o->entry, mask = o->mask, pos = o->next;
	const uint32_t stride = ch->stride, fetch = ahead(ch, o, n);
	char *const buf = ch->buf, *data;
	struct rpc_calls calls = ch->calls;
	uint32_t i, entry, slot;
	struct rpc_call *call;

	for (i = 0; i < n; i++) {
		entry = entries[(pos + i) & mask];
		slot = entry & FLUX_SLOT_MASK;
		call = (struct rpc_call *)(void *)calls.slot + slot;
		if (crpc_unlikely(entry >= FLUX_FLAG || call->deadline_ns >= RPC_CANCELED))
			break;
		data = buf + (size_t)slot * stride;
		__crpc_spsc_prefetchw(data + fetch);
		rpc_calls_reply(&calls, call, data, FLUX_LEN(entry), 0, counts, &done[i]);
	}
	ch->calls = calls;
	o->next += i;
	return i;
}

/*
 * Complete up to n calls from the replies of one channel. Fewer: it has no more. Ends of
 * notifications and late replies fill nothing; a window bounds them.
 */
static inline uint16_t
take_replies(struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_done *done, uint32_t n)
{
	struct flux_order *o = &ch->replies;
	uint32_t got = 0, run, k;

	while (got < n && (run = flux_look(o, n - got)) != 0) {
		run = run < n - got ? run : n - got;
		k = complete(ch, &node->stats.rpc, done + got, run);
		got += k;
		if (crpc_unlikely(k < run))
			got += __crpc_flux_take_other(node, ch, done + got);
	}
	node->sweep.taken += got;
	return (uint16_t)got;
}

uint16_t
crpc_flux_poll(struct crpc_flux_node *node, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint32_t i, k, share, gone = 0, next = 0;
	uint16_t got;

	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	crpc_flux_flush(node, now_ns);
	for (i = 0; i < node->nout; i++)
		gone |= crpc_load_relaxed(&node->out[i]->server_gone);
	/* Before the replies, which may take all the room in every poll, and after them. */
	got = rpc_sweep_turn(&node->sweep, now_ns, false, done, n);
	if (crpc_unlikely(gone))
		got += __crpc_flux_reset(node, true, done + got, (uint16_t)(n - got));
	/* Two turns: an equal share each, then what is left to peers that have more. */
	share = node->nout != 0 && n / node->nout > 0 ? n / node->nout : 1;
	for (uint32_t turn = 0; turn < 2 && got < n; turn++, share = n) {
		for (k = 0, i = node->next_out; k < node->nout && got < n; k++) {
			i = i < node->nout ? i : 0;
			got += take_replies(node, node->out[i++], done + got,
				(uint32_t)crpc_min(share, n - got));
		}
		if (turn == 0) /* the next poll begins with a peer that had no turn in this one */
			next = k < node->nout ? i : i + 1;
	}
	node->next_out = next < node->nout ? next : 0;
	got += rpc_sweep_turn(&node->sweep, now_ns, got < n, done + got, (uint16_t)(n - got));
	if (crpc_unlikely(gone))
		got += __crpc_flux_reset(node, false, done + got, (uint16_t)(n - got));
	node->stats.rpc.completions += got;
	return got;
}

/* ---- requests ---- */

/* Take up to n requests from one channel: they stay where they lie. Fewer: it has no more. */
static inline uint16_t
take_requests(struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_req *req, uint32_t n)
{
	struct flux_order *o = &ch->arrived;
	const uint32_t *const entries = o->entry, mask = o->mask;
	const uint32_t stride = ch->stride, peer = ch->caller;
	const uint64_t tokens = node->recvs | peer << FLUX_CALLER_SHIFT;
	uint64_t *const held = ch->held;
	uint8_t *const room = ch->room;
	char *const buf = ch->buf, *data;
	uint32_t i, pos, entry, slot, fetch;

	i = flux_look(o, n);
	n = i < n ? i : n;
	pos = o->next;
	fetch = ahead(ch, o, n);
	for (i = 0; i < n; i++) {
		entry = entries[(pos + i) & mask];
		slot = entry & FLUX_SLOT_MASK;
		data = buf + (size_t)slot * stride;
		__crpc_spsc_prefetchw(data + fetch);
		held[slot] = tokens | slot;
		room[slot] = (uint8_t)FLUX_ROOM(entry);
		req[i] = (struct crpc_req){tokens | slot, data, FLUX_LEN(entry), peer};
	}
	o->next = pos + n;
	return (uint16_t)n;
}

uint16_t
crpc_flux_recv(struct crpc_flux_node *node, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	uint32_t i, k, share, next = 0;
	struct flux_chan *ch;
	uint16_t got = 0;

	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	crpc_flux_flush(node, now_ns);
	if (crpc_unlikely(crpc_load_relaxed(&node->inbox) != NULL || node->arriving != NULL))
		__crpc_flux_inbox_take(node);
	if (node->nin == 0)
		return 0;
	share = n / node->nin > 0 ? n / node->nin : 1;
	for (uint32_t turn = 0; turn < 2 && got < n; turn++, share = n) {
		for (k = 0, i = node->next_in; k < node->nin && got < n;) {
			i = i < node->nin ? i : 0;
			ch = node->in[i];
			if (crpc_unlikely(crpc_load_relaxed(&ch->caller_gone) != 0) &&
				__crpc_flux_in_drop(node, ch))
				continue;
			got += take_requests(
				node, ch, req + got, (uint32_t)crpc_min(share, n - got));
			i++;
			k++;
		}
		if (turn == 0)
			next = k < node->nin ? i : i + 1;
	}
	node->next_in = next < node->nin ? next : 0;
	node->recvs += (uint64_t)(got != 0) << FLUX_RECV_SHIFT;
	node->stats.rpc.requests += got;
	return got;
}

/*
 * Reply to requests from the first on, as far as they are open calls of one channel. msgs NULL:
 * each reply lies where its request lay.
 */
static inline uint32_t
reply_run(struct crpc_flux_node *node, const struct crpc_req *req, const char *msgs, uint32_t len,
	uint32_t n)
{
	struct flux_chan *ch = flux_chan_of(node, req->token);
	uint32_t i, slot, pos, mask, held_mask;
	struct flux_order *o;

	crpc_owner_check(&node->owner, "flux node");
	if (crpc_unlikely(ch == NULL || crpc_load_relaxed(&ch->caller_gone) != 0))
		return 0;
	o = &ch->answers;
	pos = o->next;
	mask = o->mask;
	held_mask = ch->held_mask;
	for (i = 0; i < n; i++) {
		slot = (uint32_t)req[i].token & held_mask;
		if (crpc_unlikely(ch->held[slot] != req[i].token || len >= ch->room[slot]))
			break;
		ch->held[slot] = 0;
		if (msgs != NULL)
			rpc_copy(ch->buf + (size_t)slot * ch->stride, msgs + (size_t)i * len, len);
		o->entry[(pos + i) & mask] = len << FLUX_SLOT_BITS | slot;
	}
	o->next = pos + i;
	if (o->next - o->known >= ch->lazy)
		flux_publish(o);
	node->stats.rpc.replies += i;
	return i;
}

uint16_t
crpc_flux_reply_burst(struct crpc_flux_node *node, uint64_t now_ns, const struct crpc_req *req,
	const void *msgs, uint32_t len, uint16_t n)
{
	const char *msg = msgs;
	uint32_t done, got;

	for (done = 0; done < n; done += got) {
		got = msg == NULL
			? reply_run(node, req + done, NULL, len, n - done)
			: reply_run(node, req + done, msg + (size_t)done * len, len, n - done);
		if (crpc_unlikely(got == 0)) {
			__crpc_flux_end(node, req[done].token, len << FLUX_SLOT_BITS, len, false);
			break;
		}
	}
	return (uint16_t)done;
}

int
crpc_flux_reply(
	struct crpc_flux_node *node, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	const struct crpc_req req = {.token = token};

	if (crpc_likely(reply_run(node, &req, buf, len, 1) == 1))
		return 0;
	return __crpc_flux_end(node, token, len << FLUX_SLOT_BITS, len, false);
}

void
crpc_flux_flush(struct crpc_flux_node *node, uint64_t now_ns)
{
	crpc_owner_check(&node->owner, "flux node");
	for (uint32_t i = 0; i < node->nout; i++)
		flux_publish(&node->out[i]->requests);
	for (uint32_t i = 0; i < node->nin; i++)
		flux_publish(&node->in[i]->answers);
}
