/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls, one-way sends and replies, and what must hold of each of them. */
#include "step_rig.h"

#define REQ_HEAD 8u

static uint32_t
size_rnd(const struct crpc_copyrpc_conf *conf, bool large)
{
	uint32_t max = large ? conf->max_large : conf->max_msg;

	switch (rnd(8)) {
	case 0:
		return rnd(max + 1);
	case 1:
		return max - rnd((uint32_t)crpc_min(17, max + 1));
	default:
		return rnd((uint32_t)crpc_min(100, max + 1));
	}
}

void
call_on(struct link *l, int side)
{
	const struct crpc_copyrpc_conf *conf = &scene.conf[0];
	int rc;
	static uint8_t buf[MSG_ROOM];
	struct record *r = &scene.id[scene.nids + 1];
	bool large = conf->max_large != 0 && one_in(12);
	uint32_t id = scene.nids + 1;
	void *data;

	if (id == IDS || scene.node[l->node[side]].gone)
		return;
	*r = (struct record){.link = (uint8_t)(l - scene.link), .side = (uint8_t)side,
		.life = l->life};
	r->len = (uint32_t)crpc_max(REQ_HEAD, size_rnd(conf, large));
	r->large = r->len > conf->max_msg;
	r->resp_max = size_rnd(conf, conf->max_large != 0 && one_in(12));
	r->oneway = one_in(6) && !r->large;
	bytes_make(buf, r->len, id * 2);
	memcpy(buf, &id, sizeof(id));
	if (r->oneway) {
		rc = crpc_copyrpc_notify(l->ep[side], scene.now, buf, r->len);
	} else if (!r->large && r->resp_max <= conf->max_msg && one_in(3)) {
		rc = crpc_copyrpc_call_reserve(l->ep[side], scene.now, r->len, r->resp_max, &data);
		if (rc == 0) {
			memcpy(data, buf, r->len);
			crpc_copyrpc_call_commit(l->ep[side], scene.now, id);
		}
	} else {
		rc = crpc_copyrpc_call(l->ep[side], scene.now, buf, r->len, r->resp_max, id);
	}
	link_look(l);
	if (rc == -EAGAIN)
		return;
	if ((rc == -ECONNRESET || rc == -ENOTCONN) && l->broken)
		return;
	if (rc != 0)
		fail("call %u of %u bytes on link %u: %d", id, r->len, r->link, rc);
	scene.nids++;
	r->open = !r->oneway;
	met.calls += !r->oneway;
	met.oneway += r->oneway;
	met.large += r->large;
}

void
do_call(void)
{
	struct link *l = &scene.link[rnd(scene.nlinks)];
	int side = (int)rnd(2);

	call_on(l, side);
}

static void
done_good(const struct record *r, uint32_t id, const struct crpc_done *d)
{
	uint32_t len;

	met.good++;
	if (r->executed != 1)
		fail("call %u answered, executed %u times", id, r->executed);
	check(is_released(id) || !is_rejected(id));
	len = is_released(id) ? 0 : reply_len(id, r->resp_max);
	if (d->len != len)
		fail("reply to %u has %u bytes, not %u", id, d->len, len);
	if (!bytes_are(d->data, d->len, id * 2 + 1))
		fail("reply to %u, %u bytes, is not what was sent", id, d->len);
}

static void
done_take(struct node *n, const struct crpc_done *d)
{
	uint32_t id = (uint32_t)d->cookie;
	struct record *r;
	struct link *l;

	if (d->cookie >= OP_COOKIE) {
		onesided_take(d);
		return;
	}
	check(d->cookie != 0 && d->cookie <= scene.nids);
	r = &scene.id[id];
	l = &scene.link[r->link];
	if (!r->open)
		fail("call %u completes twice, or was never made (status %d)", id, d->status);
	r->open = false;
	check(l->node[r->side] == n - scene.node);
	link_look(l);
	if (d->status == 0)
		done_good(r, id, d);
	else
		done_bad(r, id, d->status, l->broken || r->life != l->life, scene.timeouts);
	if (d->status != -ECONNRESET && r->life != l->life)
		fail("call %u of life %u ends with %d in life %u", id, r->life, d->status, l->life);
}

void
do_poll(struct node *n)
{
	uint16_t room = (uint16_t)(1 + rnd(CRPC_BURST_MAX)), i, got;

	got = crpc_copyrpc_poll(n->ctx, scene.now, n->done, room);
	check(got <= room);
	for (i = 0; i < got; i++)
		done_take(n, &n->done[i]);
}

static void
req_take(struct node *n, const struct crpc_req *req)
{
	struct held *h = &n->held[n->nheld++];
	uint32_t id, side = (uint32_t)req->peer & 1;
	struct link *l = &scene.link[req->peer / 2];
	struct record *r;
	uint8_t start[REQ_HEAD];

	check(req->peer / 2 < scene.nlinks && l->node[side] == n - scene.node);
	check(req->len >= REQ_HEAD);
	memcpy(&id, req->data, sizeof(id));
	check(id != 0 && id <= scene.nids);
	r = &scene.id[id];
	bytes_make(start, REQ_HEAD, id * 2);
	*h = (struct held){.token = req->token, .data = req->data, .id = id, .life = l->life};
	if (++r->executed != 1)
		fail("request %u is given %u times", id, r->executed);
	if (r->life != l->life)
		fail("request %u of life %u is given in life %u", id, r->life, l->life);
	check(&scene.link[r->link] == l && r->side != side && req->len == r->len);
	check(memcmp((const uint8_t *)req->data + 4, start + 4, REQ_HEAD - 4) == 0);
	if (r->large)
		return;
	if (id < l->newest[side])
		fail("request %u is given after %u", id, l->newest[side]);
	l->newest[side] = id;
}

void
do_recv(struct node *n)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint32_t room;
	uint16_t i, got;

	room = rnd(CRPC_BURST_MAX);
	got = crpc_copyrpc_recv(n->ctx, scene.now, req, (uint16_t)crpc_min(room, HELD - n->nheld));
	for (i = 0; i < got; i++)
		req_take(n, &req[i]);
}

/* The request is what was sent, however long it was held. */
static void
held_unchanged(const struct held *h)
{
	static uint8_t want[MSG_ROOM];
	const struct record *r = &scene.id[h->id];

	bytes_make(want, r->len, h->id * 2);
	memcpy(want, &h->id, sizeof(h->id));
	if (memcmp(h->data, want, r->len) != 0)
		fail("request %u, %u bytes, is not what was sent", h->id, r->len);
}

static int
answer(struct node *n, const struct held *h)
{
	const struct record *r = &scene.id[h->id];
	static uint8_t buf[MSG_ROOM];
	uint32_t len;
	void *data;
	int rc;

	if (r->oneway || is_released(h->id))
		return crpc_copyrpc_release(n->ctx, scene.now, h->token);
	if (is_rejected(h->id))
		return crpc_copyrpc_fail(n->ctx, scene.now, h->token, -EUCLEAN);
	len = reply_len(h->id, r->resp_max);
	if (one_in(16)) { /* More than was reserved is refused, and nothing is lost by it. */
		rc = crpc_copyrpc_reply(n->ctx, scene.now, h->token, buf, r->resp_max + 1);
		if (rc != -EMSGSIZE && rc != -ECONNRESET)
			fail("a reply to %u beyond %u bytes: %d", h->id, r->resp_max, rc);
		if (rc == -ECONNRESET)
			return rc;
	}
	if (len <= scene.conf[0].max_msg && one_in(2)) {
		rc = crpc_copyrpc_reply_reserve(n->ctx, scene.now, h->token, len, &data);
		if (rc == 0) {
			bytes_make(data, len, h->id * 2 + 1);
			crpc_copyrpc_reply_commit(n->ctx, scene.now);
		}
		return rc;
	}
	bytes_make(buf, len, h->id * 2 + 1);
	return crpc_copyrpc_reply(n->ctx, scene.now, h->token, buf, len);
}

void
do_answer(struct node *n)
{
	struct held *h;
	int rc;

	if (n->nheld == 0)
		return;
	h = &n->held[rnd(n->nheld)];
	if (h->dead) {
		rc = crpc_copyrpc_release(n->ctx, scene.now, h->token);
		if (rc != -ENOENT)
			fail("a token of an earlier life: %d, not ENOENT", rc);
	} else {
		struct link *l = &scene.link[scene.id[h->id].link];

		link_look(l);
		if (!l->broken)
			held_unchanged(h);
		rc = answer(n, h);
		link_look(l);
		if (rc != 0 && !l->broken)
			fail("the answer to %u: %d", h->id, rc);
		if (rc != 0 && rc != -ECONNRESET && rc != -ENOENT)
			fail("the answer to %u on a broken link: %d", h->id, rc);
	}
	*h = n->held[--n->nheld];
}

void
do_cancel(void)
{
	uint32_t id = scene.nids == 0 ? 0 : 1 + rnd(scene.nids);
	struct record *r = &scene.id[id];
	struct link *l = &scene.link[r->link];

	if (id == 0 || !r->open || scene.node[l->node[r->side]].gone)
		return;
	r->cancelled = true;
	crpc_copyrpc_cancel(l->ep[r->side], scene.now, id);
}
