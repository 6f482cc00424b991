/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: call, poll, recv, reply. Nothing here allocates, locks or waits. */
#include <errno.h>

#include "flux_priv.h"

/* ---- calls ---- */

static inline uint64_t
msg_of(uint64_t id, uint32_t len)
{
	return id << MSG_LEN_BITS | len;
}

/*
 * A run of calls into their slots and into the ring's messages at m; len is a constant where it
 * can.
 */
crpc_inline void
queue_run(struct flux_chan *ch, uint64_t *m, const char *msgs, uint32_t len,
	const uint64_t *cookies, uint32_t run, enum slot_state state)
{
	/* Copies, since the stores below could be to the channel for all the compiler knows. */
	const uint32_t stride = ch->stride, pos = ch->req_p.next;
	const uint16_t *const top = ch->free + ch->nfree - 1;
	struct flux_slot *const slot = ch->slot;
	char *const buf = ch->buf;
	struct flux_slot *s;
	uint32_t i, k;
	uint64_t id;

	for (i = 0; i < run; i++) {
		k = *(top - i);
		s = &slot[k];
		id = (s->id + ID_STEP) & ID_MASK;
		if (crpc_unlikely(id < ID_STEP))
			id += ID_STEP; /* 0 means none */
		s->id = state == SLOT_NONE ? id : id | ID_CLOSED;
		s->cookie = cookies[i];
		m[i] = msg_of(id, len);
		flux_copy(buf + (size_t)k * stride, msgs + (size_t)i * len, len);
	}
	for (i = 0; i < run && (ch->tracks || state != SLOT_NONE); i++)
		ch->track[*(top - i)] = (struct flux_track){.pos = pos + i, .state = state};
	ch->nfree -= run;
}

static uint32_t
queue_calls(struct crpc_flux_node *node, struct flux_chan *ch, const char *msgs, uint32_t len,
	const uint64_t *cookies, uint32_t n, enum slot_state state)
{
	uint32_t room = ch->window - flux_open(ch), done = 0, run;
	void *first;

	n = n < room ? n : room;
	while (done < n) {
		run = flux_reserve(&ch->req_p, n - done, &first);
		if (run == 0)
			break;
		if (len == 32 && state == SLOT_NONE)
			queue_run(ch, first, msgs, 32, cookies + done, run, SLOT_NONE);
		else
			queue_run(ch, first, msgs, len, cookies + done, run, state);
		flux_commit(&ch->req_p, run);
		msgs += (size_t)run * len;
		done += run;
	}
	node->stats.calls += done;
	return done;
}

/* The channel to call on, or why not. */
static int
chan_to(struct crpc_flux_node *node, uint32_t peer, uint32_t len, struct flux_chan **ch)
{
	*ch = peer < CRPC_FLUX_NODES_MAX ? node->by_peer[peer] : NULL;
	/* A20 pairs with R20. */
	if (crpc_unlikely(*ch == NULL || crpc_load_acquire(&(*ch)->server_gone) != 0))
		return -ENOTCONN;
	if (crpc_unlikely(len > (*ch)->msg_size))
		return -EMSGSIZE;
	return 0;
}

uint32_t
crpc_flux_call_burst(struct crpc_flux_node *node, uint32_t peer, const void *msgs, uint32_t len,
	const uint64_t *cookies, uint32_t n)
{
	struct flux_chan *ch;
	uint32_t done;

	if (chan_to(node, peer, len, &ch) != 0)
		return 0;
	done = queue_calls(node, ch, msgs, len, cookies, n, SLOT_NONE);
	node->stats.again += n - done;
	return done;
}

static int
call_one(struct crpc_flux_node *node, uint32_t peer, const void *buf, uint32_t len,
	uint64_t cookie, enum slot_state state)
{
	struct flux_chan *ch;
	int rc = chan_to(node, peer, len, &ch);

	if (crpc_unlikely(rc != 0))
		return rc;
	if (queue_calls(node, ch, buf, len, &cookie, 1, state) == 1)
		return 0;
	node->stats.again++;
	return ch->nlate == ch->window ? -EHOSTDOWN : -EAGAIN;
}

int
crpc_flux_call(
	struct crpc_flux_node *node, uint32_t peer, const void *buf, uint32_t len, uint64_t cookie)
{
	return call_one(node, peer, buf, len, cookie, SLOT_NONE);
}

int
crpc_flux_notify(struct crpc_flux_node *node, uint32_t peer, const void *buf, uint32_t len)
{
	return call_one(node, peer, buf, len, 0, SLOT_ONEWAY);
}

/* ---- completions ---- */

/* onesided: an answer proves that its request, and all before it, left the ring. */
static void
credit_requests(struct crpc_spsc_prod *p, uint32_t pos)
{
	int32_t more = (int32_t)(pos + 1 - (p->limit - p->depth));

	if (more > 0)
		crpc_spsc_onesided_credit(p, (uint32_t)more);
}

/* An answer to something else than an open call: a late one, a release, or garbage. */
static crpc_noinline void
take_odd(struct crpc_flux_node *node, struct flux_chan *ch, uint64_t id, uint32_t len)
{
	uint32_t at = id & ID_SLOT_MASK;
	struct flux_track *t = &ch->track[at];

	if (at >= ch->nslots || ch->slot[at].id != (id | ID_CLOSED) || t->state == SLOT_NONE ||
		len > ch->msg_size) {
		node->stats.malformed++;
		return;
	}
	ch->nlate -= t->state == SLOT_LATE;
	node->stats.late += t->state == SLOT_LATE;
	t->state = SLOT_NONE;
	ch->free[ch->nfree++] = (uint16_t)at;
	ch->nstamped = ch->nfree;
	if (flux_is_onesided(&ch->req_p))
		credit_requests(&ch->req_p, t->pos);
}

/* The answers of one run; how many of them complete a call. */
static inline uint32_t
take_run(struct crpc_flux_node *node, struct flux_chan *ch, const uint64_t *at, uint32_t run,
	struct crpc_done *done)
{
	const uint32_t mask = ch->nslots - 1, max = ch->msg_size, hints = ch->hints;
	const bool one = flux_is_onesided(&ch->req_p);
	struct flux_slot *const slot = ch->slot;
	const size_t stride = ch->stride;
	uint16_t *back = ch->back + ch->nback;
	char *const buf = ch->buf, *data;
	struct crpc_done *d = done;
	struct flux_slot *s;
	uint32_t i, k, len;
	uint64_t id;

	for (i = 0; i < run; i++) {
		id = at[i] >> MSG_LEN_BITS;
		len = at[i] & MSG_LEN_MASK;
		k = id & mask;
		s = &slot[k];
		if (crpc_unlikely(s->id != id || len > max)) {
			take_odd(node, ch, id, len);
			continue;
		}
		s->id = id | ID_CLOSED;
		*back++ = (uint16_t)k;
		if (one)
			credit_requests(&ch->req_p, ch->track[k].pos);
		data = buf + k * stride;
		/* To write: the next call will take this slot first. */
		__crpc_spsc_prefetchw(hints, data);
		d->cookie = s->cookie;
		d->data = data;
		d->len = len;
		d->status = 0;
		d++;
	}
	ch->nback += (uint32_t)(d - done);
	return (uint32_t)(d - done);
}

/* Take up to n answers from one channel. */
static uint32_t
take_answers(
	struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_done *done, uint32_t n)
{
	uint32_t got = 0, taken = 0, run;
	void *first;

	for (; taken < n && (run = flux_peek(&ch->resp_c, n - taken, &first)) != 0; taken += run)
		got += take_run(node, ch, first, run, done + got);
	flux_ring_release(&ch->resp_c);
	return got;
}

/*
 * A poll begins: the time of the calls made since the last one counts from now on, and the slots
 * whose answers that one gave out are free: the last is the hottest.
 */
static inline void
begin_poll(struct flux_chan *ch, uint64_t now, bool timed)
{
	uint32_t i, nfree = ch->nfree, nback = ch->nback;

	for (i = nfree; timed && i < ch->nstamped; i++)
		ch->track[ch->free[i]].since_ns = now;
	for (i = 0; i < nback; i++)
		ch->free[nfree + i] = ch->back[i];
	ch->nfree = ch->nstamped = nfree + nback;
	ch->nback = 0;
}

/* Complete the calls of one channel that were made `limit` before `now`, or earlier. */
static uint32_t
fail_calls(struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_done *done, uint32_t n,
	int status, uint64_t now, uint64_t limit)
{
	struct flux_slot *s;
	struct flux_track *t;
	uint32_t i, got = 0;

	for (i = 0; i < ch->nslots && got < n; i++) {
		s = &ch->slot[i];
		t = &ch->track[i];
		if ((s->id & ID_CLOSED) != 0 && t->state != SLOT_ONEWAY)
			continue;
		if (limit != 0 && (now < t->since_ns || now - t->since_ns < limit))
			continue;
		if ((s->id & ID_CLOSED) == 0) {
			done[got++] = (struct crpc_done){.cookie = s->cookie, .status = status};
			node->stats.timeouts += status == -ETIMEDOUT;
			node->stats.resets += status == -ECONNRESET;
		}
		s->id |= ID_CLOSED;
		t->state = SLOT_LATE;
		ch->nlate++;
	}
	return got;
}

/*
 * The time at which calls are judged by their deadlines, or 0: not yet. A call whose answer waits
 * in the ring is not late. So calls that are overdue while there are answers are judged when a
 * window of those was taken: their own would have been among them.
 */
static uint64_t
judge(struct flux_chan *ch, uint64_t now)
{
	if (crpc_spsc_count(&ch->resp_c) == 0)
		return now;
	if (ch->judge_ns == 0) {
		ch->judge_ns = now;
		ch->judge_pos = ch->resp_c.next + ch->window;
	}
	return (int32_t)(ch->resp_c.next - ch->judge_pos) >= 0 ? ch->judge_ns : 0;
}

/* Deadlines, looked at a few times in each, and servers that left. */
static crpc_noinline uint32_t
fail_some(struct crpc_flux_node *node, struct crpc_done *done, uint32_t n)
{
	const uint64_t limit = node->flux->attr.deadline_ns;
	uint32_t i, got = 0;
	struct flux_chan *ch;
	uint64_t at;

	for (i = 0; i < node->nout && got < n; i++) {
		ch = node->out[i];
		/* A21 pairs with R20: all answers that the server gave are in the ring. */
		if (crpc_load_acquire(&ch->server_gone) != 0) {
			if (crpc_spsc_count(&ch->resp_c) != 0)
				continue;
			got += fail_calls(node, ch, done + got, n - got, -ECONNRESET, 0, 0);
			if (ch->nlate + ch->nfree == ch->nslots)
				__crpc_flux_out_drop(node, i--);
		} else if (limit != 0 && node->now_ns >= ch->next_scan_ns &&
			(at = judge(ch, node->now_ns)) != 0) {
			got += fail_calls(node, ch, done + got, n - got, -ETIMEDOUT, at, limit);
			if (got == n) /* there may be more: continue at the next poll */
				break;
			ch->judge_ns = 0;
			ch->next_scan_ns = node->now_ns + limit / 4;
		}
	}
	return got;
}

uint32_t
crpc_flux_poll(struct crpc_flux_node *node, struct crpc_done *done, uint32_t n, uint64_t now_ns)
{
	const bool timed = node->flux->attr.deadline_ns != 0;
	uint32_t got = 0, i, k, turn, share;
	struct flux_chan *ch;
	bool attend = false;

	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	node->now_ns = now_ns;
	for (i = 0; i < node->nout; i++) {
		ch = node->out[i];
		begin_poll(ch, now_ns, timed);
		attend |= crpc_load_relaxed(&ch->server_gone) != 0 ||
			(timed && now_ns >= ch->next_scan_ns);
	}
	crpc_flux_flush(node);
	/* Before the answers, which may take all the room at every poll, and after them. */
	if (crpc_unlikely(attend))
		got = fail_some(node, done, n);
	/* Two turns: an equal share each, then what is left to whoever has more. */
	share = node->nout != 0 && n / node->nout > 0 ? n / node->nout : 1;
	for (turn = 0; turn < 2 && got < n; turn++, share = n)
		for (k = 0, i = node->next_out; k < node->nout && got < n; k++) {
			i = i < node->nout ? i : 0;
			got += take_answers(node, node->out[i++], done + got,
				share < n - got ? share : n - got);
		}
	node->next_out = node->next_out + 1 < node->nout ? node->next_out + 1 : 0;
	if (crpc_unlikely(attend))
		got += fail_some(node, done + got, n - got);
	node->stats.done += got;
	return got;
}

/* ---- requests ---- */

/* The requests of one run, which stay where they lie. How many are good. */
static inline uint32_t
hold_run(struct crpc_flux_node *node, struct flux_chan *ch, const uint64_t *at, uint32_t run,
	struct crpc_req *req)
{
	const uint32_t nslots = ch->nslots, max = ch->msg_size, peer = ch->caller;
	const uint32_t hints = ch->hints;
	const uint64_t token_hi = ch->token_hi;
	uint64_t *const held = ch->held;
	const size_t stride = ch->stride;
	char *const buf = ch->buf, *data;
	struct crpc_req *r = req;
	uint32_t i, k, len;
	uint64_t id;

	for (i = 0; i < run; i++) {
		id = at[i] >> MSG_LEN_BITS;
		len = at[i] & MSG_LEN_MASK;
		k = id & ID_SLOT_MASK;
		if (crpc_unlikely(k >= nslots || len > max || id == 0 || held[k] != 0)) {
			node->stats.malformed++;
			continue;
		}
		held[k] = id;
		data = buf + k * stride;
		/* To write: the answer will overwrite it. */
		__crpc_spsc_prefetchw(hints, data);
		r->token = token_hi | id;
		r->data = data;
		r->len = len;
		r->peer = peer;
		r++;
	}
	return (uint32_t)(r - req);
}

/* Take up to n requests from one channel. */
static uint32_t
take_requests(struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_req *req, uint32_t n)
{
	uint32_t got = 0, run, more;
	void *first;

	while (got < n && (run = flux_peek(&ch->req_c, n - got, &first)) != 0) {
		ch->taken += run;
		got += hold_run(node, ch, first, run, req + got);
	}
	flux_ring_release(&ch->req_c);
	if (flux_is_onesided(&ch->resp_p)) {
		/* So many requests came that all answers but a window of them were read. */
		more = ch->taken - ch->window - (ch->resp_p.limit - ch->resp_p.depth);
		if ((int32_t)more > 0)
			crpc_spsc_onesided_credit(&ch->resp_p, more);
	}
	return got;
}

uint32_t
crpc_flux_recv(struct crpc_flux_node *node, struct crpc_req *req, uint32_t n)
{
	uint32_t got = 0, i, k, turn, share;
	struct flux_chan *ch;

	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	crpc_flux_flush(node);
	if (crpc_unlikely(crpc_load_relaxed(&node->inbox) != NULL || node->arriving != NULL))
		__crpc_flux_inbox_take(node);
	if (node->nin == 0)
		return 0;
	share = n / node->nin > 0 ? n / node->nin : 1;
	for (turn = 0; turn < 2 && got < n; turn++, share = n)
		for (k = 0, i = node->next_in; k < node->nin && got < n;) {
			i = i < node->nin ? i : 0;
			ch = node->in[i];
			if (flux_is_drained(ch)) {
				__crpc_flux_in_drop(node, ch);
				continue;
			}
			got += take_requests(
				node, ch, req + got, share < n - got ? share : n - got);
			i++;
			k++;
		}
	node->next_in = node->next_in + 1 < node->nin ? node->next_in + 1 : 0;
	node->stats.requests += got;
	return got;
}

/* The channel that a token came through, or NULL: its caller left. */
static inline struct flux_chan *
chan_of(const struct crpc_flux_node *node, uint64_t token)
{
	return node->from[token >> ID_BITS];
}

static inline bool
holds(const struct flux_chan *ch, uint64_t id)
{
	uint32_t at = id & ID_SLOT_MASK;

	return at < ch->nslots && id != 0 && ch->held[at] == id;
}

/* No live channel holds the request. One of a caller that left may: this ends it. */
static crpc_noinline int
end_departed(struct crpc_flux_node *node, uint64_t token)
{
	struct flux_chan **at = &node->departed, *ch;
	uint64_t id = token & ID_MASK;

	while ((ch = *at) != NULL && !(ch->token_hi == (token & ~ID_MASK) && holds(ch, id)))
		at = &ch->next;
	if (ch == NULL)
		return -ENOENT;
	ch->held[id & ID_SLOT_MASK] = 0;
	if (--ch->nheld == 0) {
		*at = ch->next;
		__crpc_flux_chan_put(ch);
	}
	return -ENOENT;
}

int
crpc_flux_reply(struct crpc_flux_node *node, uint64_t token, const void *buf, uint32_t len)
{
	struct flux_chan *ch = chan_of(node, token);
	uint64_t id = token & ID_MASK;
	void *first;

	if (crpc_unlikely(ch == NULL || !holds(ch, id)))
		return end_departed(node, token);
	if (crpc_unlikely(len > ch->msg_size))
		return -EMSGSIZE;
	/* There is room for every answer (chan_rings()), unless the caller corrupted the ring. */
	if (crpc_unlikely(flux_reserve(&ch->resp_p, 1, &first) == 0))
		return -ENOENT;
	*(uint64_t *)first = msg_of(id, len);
	flux_copy(flux_payload(ch, id & ID_SLOT_MASK), buf, len);
	flux_commit(&ch->resp_p, 1);
	ch->held[id & ID_SLOT_MASK] = 0;
	node->stats.replies++;
	return 0;
}

/*
 * Answer requests from the first on, as far as they are of one channel and one stretch of its ring
 * goes. No msgs: in place.
 */
static inline uint32_t
answer_run(struct flux_chan *ch, const struct crpc_req *req, const char *msgs, uint32_t len,
		uint32_t n)
{
	const uint32_t nslots = ch->nslots;
	const uint64_t token_hi = ch->token_hi;
	uint64_t *const held = ch->held;
	uint32_t i, at, run;
	uint64_t token, id, *m;
	void *first;

	run = flux_reserve(&ch->resp_p, n, &first);
	for (i = 0, m = first; i < run; i++, m++) {
		token = req[i].token;
		id = token ^ token_hi;
		at = id & ID_SLOT_MASK;
		if (crpc_unlikely(at >= nslots || id == 0 || held[at] != id))
			break;
		held[at] = 0;
		*m = msg_of(id, len);
		if (msgs != NULL)
			flux_copy(flux_payload(ch, at), msgs + (size_t)i * len, len);
	}
	if (i != 0)
		flux_commit(&ch->resp_p, i);
	return i;
}

uint32_t
crpc_flux_reply_burst(struct crpc_flux_node *node, const struct crpc_req *req, const void *msgs,
	uint32_t len, uint32_t n)
{
	const char *msg = msgs;
	uint32_t done = 0, got;
	struct flux_chan *ch;

	while (done < n) {
		ch = chan_of(node, req[done].token);
		if (crpc_unlikely(ch == NULL)) {
			end_departed(node, req[done].token);
			break;
		}
		if (crpc_unlikely(len > ch->msg_size))
			break;
		got = msg != NULL
			? answer_run(ch, req + done, msg + (size_t)done * len, len, n - done)
			: answer_run(ch, req + done, NULL, len, n - done);
		if (crpc_unlikely(got == 0)) {
			end_departed(node, req[done].token);
			break;
		}
		done += got;
	}
	node->stats.replies += done;
	return done;
}

int
crpc_flux_release(struct crpc_flux_node *node, uint64_t token)
{
	return crpc_flux_reply(node, token, NULL, 0);
}

void
crpc_flux_flush(struct crpc_flux_node *node)
{
	uint32_t i;

	for (i = 0; i < node->nout; i++)
		crpc_spsc_flush(&node->out[i]->req_p);
	for (i = 0; i < node->nin; i++)
		crpc_spsc_flush(&node->in[i]->resp_p);
}
