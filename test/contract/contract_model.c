/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of a star: what may happen to each call, request and completion, and what must. */
#include <errno.h>
#include <stdlib.h>

#include "contract.h"

/* Turns after which what does not happen never does. Each lasts STEP_NS. */
#define TURNS 20000u
/* A turn while a peer's silence is to be noticed. */
#define SILENT_STEP_NS (20 * STEP_NS)

static struct star star;

/* Byte i of a message: its first four are its number. */
static uint8_t
content(uint32_t id, bool reply, uint32_t i)
{
	return i < 4 ? (uint8_t)(id >> 8 * i) : (uint8_t)(id * 37 + reply * 101 + i * 7 + (i >> 8));
}

void
star_fill(uint8_t *buf, uint32_t id, bool reply, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		buf[i] = content(id, reply, i);
}

static bool
intact(const uint8_t *data, uint32_t id, bool reply, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (data[i] != content(id, reply, i))
			return false;
	return true;
}

void
star_audit(struct star *s)
{
	for (uint32_t i = 0; i < s->nheld; i++) {
		const struct record *r = &s->rec[s->held[i]];

		expect(s, intact(r->data, s->held[i], false, r->len));
	}
	for (uint32_t c = 0; c < CLIENTS; c++)
		for (uint32_t i = 0; i < s->client[c].ndone; i++) {
			const struct crpc_done *d = &s->client[c].done[i];

			expect(s, intact(d->data, (uint32_t)d->cookie, true, d->len));
		}
}

struct star *
star_open(const struct contract_layer *layer, uint64_t seed, uint32_t window, uint64_t timeout_ns,
	bool near_end)
{
	struct star *s = &star;

	memset(s, 0, offsetof(struct star, rec));
	s->layer = layer;
	s->window = window;
	s->timeout_ns = timeout_ns != 0 ? timeout_ns : UINT64_C(3600000000000);
	s->near_end = near_end && layer->counters_near_end;
	s->now = UINT64_C(1000000000);
	s->seed = seed;
	s->rng = seed * 2 + 1;
	layer->open(s);
	for (uint32_t c = 0; c < CLIENTS; c++)
		s->client[c].here = true;
	s->lives = CLIENTS;
	return s;
}

void
star_pass(struct star *s, uint64_t ns)
{
	s->now += ns;
	s->layer->flush(s);
	if (!s->server_gone)
		s->layer->drive(s);
}

/* ---- clients ---- */

static uint32_t
made(struct star *s, uint32_t c, uint32_t len, uint32_t resp_max, bool oneway, int rc)
{
	uint32_t id = s->nids + 1;

	if (rc == -EAGAIN)
		return 0;
	expect(s, rc == 0);
	s->nids = id;
	s->rec[id] = (struct record){.client = (uint8_t)c,
		.life = s->client[c].life,
		.oneway = oneway,
		.len = (uint16_t)len,
		.resp_max = (uint16_t)resp_max,
		.made_ns = s->now};
	s->client[c].open += !oneway;
	return id;
}

uint32_t
star_call(struct star *s, uint32_t c, uint32_t len, uint32_t resp_max)
{
	uint8_t buf[MSG_MAX];
	int rc;

	star_audit(s);
	expect(s, s->nids + 1 < IDS_MAX && len >= 4);
	star_fill(buf, s->nids + 1, false, len);
	rc = s->layer->call(s, c, buf, len, resp_max, s->nids + 1);
	memset(buf, 0xee, sizeof(buf)); /* It belongs to the caller again. */
	return made(s, c, len, resp_max, false, rc);
}

uint32_t
star_notify(struct star *s, uint32_t c, uint32_t len)
{
	uint8_t buf[MSG_MAX];
	int rc;

	star_audit(s);
	expect(s, s->nids + 1 < IDS_MAX && len >= 4);
	star_fill(buf, s->nids + 1, false, len);
	rc = s->layer->notify(s, c, buf, len);
	memset(buf, 0xee, sizeof(buf));
	return made(s, c, len, 0, true, rc);
}

void
star_cancel(struct star *s, uint32_t c, uint32_t id)
{
	struct record *r = &s->rec[id];
	bool open = id != 0 && r->client == c && r->life == s->client[c].life && !r->oneway &&
		!r->done && !r->canceled;

	uint32_t found;

	if (s->layer->cancel == NULL)
		return;
	star_audit(s);
	found = s->layer->cancel(s, c, id);
	expect(s, found == (open ? 1 : 0) || (found == 0 && s->now - r->made_ns >= s->timeout_ns));
	r->canceled |= found != 0;
}

/* Whether a call may complete like this. */
static void
completed(struct star *s, uint32_t c, const struct crpc_done *d)
{
	struct record *r = &s->rec[d->cookie];

	expect(s, d->cookie != 0 && d->cookie <= s->nids);
	expect(s, r->client == c && r->life == s->client[c].life && !r->oneway);
	expect(s, !r->done); /* it completes once */
	r->done = true;
	s->client[c].open--;
	if (d->status == 0) {
		expect(s, r->answer == REPLIED || r->answer == RELEASED);
		expect(s, d->len == r->reply_len);
		expect(s, intact(d->data, (uint32_t)d->cookie, true, d->len));
	} else {
		expect(s, d->data == NULL && d->len == 0);
		expect(s,
			(r->answer == FAILED && d->status == r->status) ||
				(d->status == -ECANCELED && r->canceled) ||
				(d->status == -ECONNRESET && s->server_gone) ||
				(d->status == -ETIMEDOUT && s->now - r->made_ns >= s->timeout_ns));
	}
	r->status = d->status;
}

uint16_t
star_poll(struct star *s, uint32_t c, uint16_t n)
{
	struct crpc_done done[2 * CRPC_BURST_MAX];
	uint16_t k, i;

	star_audit(s);
	s->client[c].ndone = 0;
	k = s->layer->poll(s, c, done, n);
	expect(s, k <= n && k <= CRPC_BURST_MAX);
	for (i = 0; i < k; i++)
		completed(s, c, &done[i]);
	memcpy(s->client[c].done, done, k * sizeof(done[0]));
	s->client[c].ndone = k;
	return k;
}

void
star_poll_some(struct star *s, uint32_t c)
{
	for (uint32_t turns = 0; star_poll(s, c, CRPC_BURST_MAX) == 0; turns++) {
		expect(s, turns < TURNS);
		star_pass(s, STEP_NS);
	}
}

void
star_drain(struct star *s, uint32_t c, uint16_t room)
{
	for (uint32_t turns = 0; s->client[c].open != 0; turns++) {
		expect(s, turns < TURNS);
		star_pass(s, s->server_gone ? SILENT_STEP_NS : STEP_NS);
		star_poll(s, c, room);
	}
}

/* ---- server ---- */

uint16_t
star_recv(struct star *s, uint16_t n)
{
	struct crpc_req req[2 * CRPC_BURST_MAX];
	struct record *r;
	uint32_t id, c;
	uint16_t k, i;

	star_audit(s);
	k = s->layer->recv(s, req, n);
	expect(s, k <= n && k <= CRPC_BURST_MAX);
	for (i = 0; i < k; i++) {
		expect(s, req[i].len >= 4);
		memcpy(&id, req[i].data, 4);
		expect(s, id != 0 && id <= s->nids);
		r = &s->rec[id];
		expect(s, !r->given); /* it is executed once */
		expect(s, req[i].len == r->len && intact(req[i].data, id, false, r->len));
		r->given = r->held = true;
		r->token = req[i].token;
		r->data = req[i].data;
		expect(s, s->nheld < CRPC_DIM(s->held));
		s->held[s->nheld++] = id;
		c = r->client;
		if (r->life != s->client[c].life || !s->client[c].here)
			continue;
		if (!s->client[c].peer_known)
			s->client[c].peer = req[i].peer;
		s->client[c].peer_known = true;
		expect(s, s->client[c].peer == req[i].peer);
	}
	return k;
}

void
star_hold(struct star *s, uint32_t n)
{
	for (uint32_t turns = 0; s->nheld < n; turns++) {
		expect(s, turns < TURNS);
		star_pass(s, STEP_NS);
		star_recv(s, (uint16_t)crpc_min(n - s->nheld, CRPC_BURST_MAX));
	}
}

/* What ending a request returns, and what that makes of it. */
static void
ended(struct star *s, uint32_t id, enum answer answer, int32_t status, uint32_t len, int rc)
{
	struct record *r = &s->rec[id];
	bool left = r->life != s->client[r->client].life || !s->client[r->client].here;
	uint32_t i;

	if (!r->held) {
		expect(s, rc == -ENOENT);
		return;
	}
	if (r->oneway && answer != RELEASED) {
		expect(s, rc == -EOPNOTSUPP);
		return;
	}
	/* The death of a caller may not be known yet. */
	expect(s, left ? rc == -ECONNRESET || (rc == 0 && s->client[r->client].killed) : rc == 0);
	r->held = false;
	r->answer = (uint8_t)answer;
	r->status = status;
	r->reply_len = (uint16_t)len;
	for (i = 0; s->held[i] != id; i++)
		;
	s->held[i] = s->held[--s->nheld];
}

void
star_reply(struct star *s, uint32_t id, uint32_t len)
{
	uint8_t buf[MSG_MAX];

	star_audit(s);
	star_fill(buf, id, true, len);
	ended(s, id, REPLIED, 0, len, s->layer->reply(s, s->rec[id].token, buf, len));
	memset(buf, 0xee, sizeof(buf));
}

void
star_fail(struct star *s, uint32_t id, int32_t status)
{
	if (s->layer->fail_with == NULL) {
		star_reply(s, id, 0);
		return;
	}
	star_audit(s);
	ended(s, id, FAILED, status, 0, s->layer->fail_with(s, s->rec[id].token, status));
}

void
star_release(struct star *s, uint32_t id)
{
	star_audit(s);
	ended(s, id, RELEASED, 0, 0, s->layer->release(s, s->rec[id].token));
}

void
star_reply_all(struct star *s)
{
	for (uint32_t i = s->nheld; i-- != 0;) {
		uint32_t id = s->held[i];

		if (s->rec[id].oneway)
			star_release(s, id);
		else
			star_reply(s, id, s->rec[id].resp_max);
	}
}

/* ---- those that come and go ---- */

/*
 * Clients poll meanwhile: a layer may probe whether they are alive. And the server receives: what a
 * client sent before it left may be read first.
 */
static void
wait_gone(struct star *s, uint32_t c)
{
	for (uint32_t turns = 0; !s->layer->gone(s, c); turns++) {
		expect(s, turns < TURNS);
		star_pass(s, SILENT_STEP_NS);
		star_recv(s, CRPC_BURST_MAX);
		for (uint32_t other = 0; other < CLIENTS; other++)
			if (s->client[other].here)
				star_poll(s, other, CRPC_BURST_MAX);
	}
}

static void
gone(struct star *s, uint32_t c, bool killed)
{
	star_audit(s);
	s->client[c].here = false;
	s->client[c].killed = killed;
	s->client[c].ndone = 0;
	s->client[c].open = 0;
}

void
star_leave(struct star *s, uint32_t c)
{
	gone(s, c, false);
	s->layer->leave(s, c);
	wait_gone(s, c);
	star_audit(s);
}

void
star_call_and_die(struct star *s, uint32_t c, uint32_t len)
{
	uint32_t i, first = s->nids + 1;

	s->client[c].life++;
	s->lives++;
	s->layer->call_and_die(s, c, first, len);
	for (i = 0; i < WINDOW; i++)
		made(s, c, len, MSG_MAX, false, 0);
	gone(s, c, true);
}

void
star_join(struct star *s, uint32_t c)
{
	s->layer->join(s, c);
	s->client[c].here = true;
	s->client[c].killed = false;
	s->client[c].peer_known = false;
	s->client[c].life++;
	s->lives++;
	star_audit(s);
}

void
star_server_leave(struct star *s, bool in_good_order)
{
	star_audit(s);
	s->nheld = 0; /* What it borrowed ends with it. */
	s->server_gone = true;
	if (in_good_order)
		s->layer->server_leave(s);
	else
		s->layer->server_kill(s);
}

void
star_settle(struct star *s, uint32_t turns)
{
	for (; turns != 0; turns--) {
		star_pass(s, STEP_NS);
		if (!s->server_gone) {
			star_recv(s, CRPC_BURST_MAX);
			star_reply_all(s);
		}
		for (uint32_t c = 0; c < CLIENTS; c++)
			if (s->client[c].here)
				star_poll(s, c, CRPC_BURST_MAX);
	}
}

static int
token_compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* No two requests had the same token. */
static void
tokens_differ(struct star *s)
{
	static uint64_t tokens[IDS_MAX];
	uint32_t id, n = 0;

	for (id = 1; id <= s->nids; id++)
		if (s->rec[id].given)
			tokens[n++] = s->rec[id].token;
	qsort(tokens, n, sizeof(tokens[0]), token_compare);
	while (n > 1 && tokens[n - 1] != tokens[n - 2])
		n--;
	expect(s, n <= 1);
}

/* Every call has completed, every notification of those that are here was given. */
static void
rest(struct star *s)
{
	star_settle(s, 400);
	for (uint32_t c = 0; c < CLIENTS; c++)
		if (s->client[c].here)
			star_drain(s, c, CRPC_BURST_MAX);
	for (uint32_t id = 1; id <= s->nids; id++) {
		const struct record *r = &s->rec[id];

		if (!s->client[r->client].here || r->life != s->client[r->client].life)
			continue;
		expect(s, r->oneway || r->done);
		expect(s, !r->oneway || r->given || s->server_gone);
	}
}

/* What every layer counts is what the model saw. */
static void
counts_check(struct star *s, uint32_t c)
{
	const struct crpc_rpc_counts *n = s->layer->counts(s, c);
	uint64_t calls = 0, notifies = 0, timeouts = 0, cancels = 0;

	for (uint32_t id = 1; id <= s->nids; id++) {
		const struct record *r = &s->rec[id];

		if (r->client != c || r->life != s->client[c].life)
			continue;
		calls += !r->oneway;
		notifies += r->oneway;
		timeouts += r->done && r->status == -ETIMEDOUT && r->answer != FAILED;
		cancels += r->done && r->status == -ECANCELED && r->answer != FAILED;
	}
	expect(s, n->calls == calls);
	expect(s, n->notifies == notifies);
	expect(s, n->completions == calls);
	expect(s, n->timeouts >= timeouts);
	expect(s, n->cancels >= cancels);
	expect(s, s->troubled || n->malformed == 0);
}

void
star_close(struct star *s)
{
	rest(s);
	tokens_differ(s);
	for (uint32_t c = 0; c < CLIENTS; c++)
		if (s->client[c].here && s->layer->counts != NULL)
			counts_check(s, c);
	s->layer->close(s);
}
