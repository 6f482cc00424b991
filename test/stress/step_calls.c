/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls, one-way sends and replies, and what must hold of each of them. */
#include <errno.h>

#include "step_rig.h"

void
call_on(struct link *l, int side)
{
	uint32_t id = scene.nids + 1;
	struct record *r = &scene.id[id];
	static uint8_t buf[MSG_ROOM];
	int rc;

	if (id > scene.protocol->ids_max || scene.node[l->node[side]].gone || l->ep[side] == NULL)
		return;
	*r = (struct record){.link = (uint8_t)(l - scene.link), .side = (uint8_t)side,
		.life = l->life};
	scene.protocol->sizes_make(r);
	bytes_make(buf, r->len, id * 2);
	memcpy(buf, &id, sizeof(id));
	rc = scene.protocol->call(l->ep[side], r, buf, id);
	link_look(l);
	if (rc == -EAGAIN || ((rc == -ECONNRESET || rc == -ENOTCONN) && l->broken))
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
		done_bad(r, id, d->status, l->broken || r->life != l->life,
			scene.timeouts || (scene.kind == KIND_UD && l->broken));
	/* A context of udrpc may give a session up before its calls have timed out. */
	if (r->life != l->life && (d->status != -ECONNRESET || scene.kind == KIND_UD))
		fail("call %u of life %u ends with %d in life %u", id, r->life, d->status, l->life);
}

void
do_poll(struct node *n)
{
	uint16_t room = (uint16_t)(1 + rnd(CRPC_BURST_MAX)), i, got;

	got = scene.protocol->poll(n->ctx, scene.now, n->done, room);
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
	if (r->large || scene.kind == KIND_UD)
		return;
	if (id < l->newest[side])
		fail("request %u is given after %u", id, l->newest[side]);
	l->newest[side] = id;
}

void
do_recv(struct node *n)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t i, got;
	uint32_t room = rnd(CRPC_BURST_MAX);

	room = (uint32_t)crpc_min(room, HELD - n->nheld);
	got = scene.protocol->recv(n->ctx, scene.now, req, (uint16_t)room);
	check(got <= room);
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
	int rc;

	if (r->oneway || is_released(h->id))
		return scene.protocol->release(n->ctx, scene.now, h->token);
	if (is_rejected(h->id))
		return scene.protocol->fail_with(n->ctx, scene.now, h->token, -EUCLEAN);
	len = reply_len(h->id, r->resp_max);
	if (one_in(16)) { /* More than was reserved is refused, and nothing is lost by it. */
		rc = scene.protocol->reply(n->ctx, scene.now, h->token, buf, r->resp_max + 1);
		if (rc != -EMSGSIZE)
			return rc != 0 ? rc : -EINVAL;
	}
	bytes_make(buf, len, h->id * 2 + 1);
	if (scene.protocol->reply_make != NULL)
		return scene.protocol->reply_make(n->ctx, h->token, buf, len);
	return scene.protocol->reply(n->ctx, scene.now, h->token, buf, len);
}

void
do_answer(struct node *n)
{
	struct held *h;
	struct link *l;
	int rc;

	if (n->nheld == 0)
		return;
	h = &n->held[rnd(n->nheld)];
	l = &scene.link[scene.id[h->id].link];
	link_look(l);
	if (h->life != l->life) {
		rc = scene.protocol->release(n->ctx, scene.now, h->token);
		if (rc != -ENOENT)
			fail("a token of an earlier life: %d, not ENOENT", rc);
	} else {
		if (!l->broken)
			held_unchanged(h);
		rc = answer(n, h);
		link_look(l);
		if (rc != 0 && (!l->broken || (rc != -ECONNRESET && rc != -ENOENT)))
			fail("the answer to %u, link %s: %d", h->id, l->broken ? "broken" : "whole",
				rc);
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
	/* It may have ended, and not been given yet. */
	scene.protocol->cancel(l->ep[r->side], scene.now, id);
}
