/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios of udrpc on the same cards: datagrams that get lost, doubled and late, cards
 * that vanish, queue pairs that fail, sessions that end at one side and begin anew. What must hold
 * is what must hold of copyrpc's calls (step_scenario.c).
 */
#include <errno.h>

#include "crpc_udrpc.h"
#include "step_rig.h"

#define MSG_MAX   6000u
#define CALLS     2000u
#define REST_TURN 200000

struct request {
	uint64_t token;
	const uint8_t *data;
	uint32_t id, life;
};

/* A context; the card is that of scene.node of the same number. */
struct host {
	struct crpc_udrpc *ctx;
	struct crpc_udrpc_conf conf;
	bool gone;   /* Its card is dead, or the datagram queue: all ends. */
	uint32_t nheld;
	struct request held[HELD];
};

struct session {
	int node[2];
	struct crpc_udrpc_ep *ep[2];
	uint32_t life;
	bool broken, lost; /* In this life; lost: an end gave the other one up. */
};

static struct {
	struct host host[NODES];
	struct session session[LINKS];
} ud;

static struct crpc_rdma *
dev_of(const struct host *h)
{
	return scene.node[h - ud.host].dev;
}

static void
host_open(struct host *h)
{
	struct crpc_rdma_conf rdma = {.gid_index = 0};
	struct node *n = &scene.node[h - ud.host];

	n->dev = crpc_rdma_open(&rdma);
	if (n->dev == NULL)
		fail("open of a device");
	n->number = step.last();
	h->conf.dev = n->dev;
	h->conf.seed = scene.rng | 1;
	h->ctx = crpc_udrpc_create(&h->conf);
	if (h->ctx == NULL)
		fail("create of a context");
	h->gone = false;
	h->nheld = 0;
}

static void
host_close(struct host *h)
{
	const struct crpc_udrpc_stats *stats = crpc_udrpc_stats(h->ctx);

	met.repeated += stats->repeated;
	scene.waits = true;
	crpc_udrpc_free(h->ctx);
	scene.waits = false;
	crpc_rdma_close(dev_of(h));
	h->ctx = NULL;
}

static void
session_look(struct session *s)
{
	int side, status;

	for (side = 0; side < 2; side++) {
		if (ud.host[s->node[side]].gone || s->ep[side] == NULL) {
			s->broken = true;
			continue;
		}
		status = crpc_udrpc_ep_status(s->ep[side]);
		if (status == 0)
			continue;
		if (status == -ENOTCONN || status == -ECONNRESET || status == -ETIMEDOUT) {
			met.lost += !s->lost && status == -ETIMEDOUT;
			s->lost |= status == -ETIMEDOUT;
			s->broken = true;
			continue;
		}
		fail("session %d: status %d", (int)(s - ud.session), status);
	}
}

/* Endpoints that were freed may keep their place until what they sent has left. */
static bool
session_make_end(struct session *s, int side)
{
	uint32_t id = (uint32_t)(s - ud.session) * 2 + (uint32_t)side;

	if (s->ep[side] == NULL)
		s->ep[side] = crpc_udrpc_ep_create(ud.host[s->node[side]].ctx, id);
	if (s->ep[side] == NULL && errno == EIO)
		ud.host[s->node[side]].gone = true;
	else if (s->ep[side] == NULL && errno != ENOSPC)
		fail("create of an endpoint");
	return s->ep[side] != NULL;
}

static void
session_connect(struct session *s)
{
	uint8_t addr[2][CRPC_UDRPC_ADDR_LEN];
	int side;

	for (side = 0; side < 2; side++)
		crpc_udrpc_ep_addr(s->ep[side], addr[side]);
	for (side = 0; side < 2; side++)
		if (crpc_udrpc_ep_connect(s->ep[side], addr[!side]) != 0)
			fail("connect of session %d", (int)(s - ud.session));
	s->life++;
	s->broken = s->lost = false;
	met.lives++;
	say("session %d lives, life %u\n", (int)(s - ud.session), s->life);
}

/* End what is left of a broken session, and make another in its place when all calls have ended. */
static void
session_mend(struct session *s)
{
	int side;

	for (side = 0; side < 2; side++)
		if (ud.host[s->node[side]].gone)
			return;
	for (side = 0; side < 2; side++)
		if (s->ep[side] != NULL)
			crpc_udrpc_ep_shutdown(s->ep[side]);
	for (side = 0; side < 2; side++)
		if (s->ep[side] != NULL && crpc_udrpc_ep_open_calls(s->ep[side]) != 0)
			return;
	for (side = 0; side < 2; side++) {
		crpc_udrpc_ep_free(s->ep[side]);
		s->ep[side] = NULL;
	}
	if (!session_make_end(s, 0) || !session_make_end(s, 1))
		return;
	session_connect(s);
}

/* A host whose card or queue is gone is replaced, as by a process that is started again. */
static void
host_restart(struct host *h)
{
	uint32_t i;
	int side;

	say("host %d is replaced\n", (int)(h - ud.host));
	host_close(h);
	for (i = 1; i <= scene.nids; i++) { /* Its own calls end with it. */
		struct record *r = &scene.id[i];

		if (r->open && ud.session[r->link].node[r->side] == h - ud.host)
			r->open = false;
	}
	for (i = 0; i < scene.nlinks; i++)
		for (side = 0; side < 2; side++)
			if (ud.session[i].node[side] == h - ud.host) {
				ud.session[i].ep[side] = NULL;
				ud.session[i].broken = true;
			}
	host_open(h);
	met.restarts++;
}

static void
mend(bool all)
{
	uint32_t i;

	for (i = 0; i < scene.nnodes; i++)
		if (ud.host[i].gone && (all || one_in(10))) /* Some are given up before. */
			host_restart(&ud.host[i]);
	for (i = 0; i < scene.nlinks; i++) {
		session_look(&ud.session[i]);
		if (ud.session[i].broken && (all || one_in(3)))
			session_mend(&ud.session[i]);
	}
}

/* ---- calls ---- */

static void
call_make(void)
{
	struct session *s = &ud.session[rnd(scene.nlinks)];
	uint32_t id = scene.nids + 1, max = ud.host[0].conf.max_msg;
	struct record *r = &scene.id[id];
	static uint8_t buf[MSG_MAX];
	int side = (int)rnd(2), rc;

	if (id > CALLS || ud.host[s->node[side]].gone || s->ep[side] == NULL)
		return;
	*r = (struct record){.link = (uint8_t)(s - ud.session), .side = (uint8_t)side,
		.life = s->life};
	r->len = (uint32_t)crpc_max(sizeof(id), rnd(one_in(6) ? max + 1 : crpc_min(200u, max)));
	r->resp_max = rnd(one_in(6) ? max + 1 : crpc_min(200u, max));
	r->large = r->len > 4096 || r->resp_max > 4096;
	bytes_make(buf, r->len, id * 2);
	memcpy(buf, &id, sizeof(id));
	rc = crpc_udrpc_call(s->ep[side], scene.now, buf, r->len, r->resp_max, id);
	if (rc == -EAGAIN)
		return;
	session_look(s);
	if (rc != 0 && s->broken)
		return;
	if (rc != 0)
		fail("call %u of %u bytes on session %u: %d", id, r->len, r->link, rc);
	scene.nids++;
	r->open = true;
	met.calls++;
	met.large += r->large;
}

static void
answer_good(const struct record *r, uint32_t id, const struct crpc_done *d)
{
	met.good++;
	if (r->executed != 1)
		fail("call %u answered, executed %u times", id, r->executed);
	check(!is_rejected(id) || is_released(id));
	check(d->len == (is_released(id) ? 0 : reply_len(id, r->resp_max)));
	if (!bytes_are(d->data, d->len, id * 2 + 1))
		fail("reply to %u, %u bytes, is not what was sent", id, d->len);
}

static void
done_take(const struct crpc_done *d)
{
	uint32_t id = (uint32_t)d->cookie;
	struct record *r = &scene.id[id];
	struct session *s = &ud.session[r->link];

	check(id != 0 && id <= scene.nids);
	if (!r->open)
		fail("call %u completes twice, or was never made (status %d)", id, d->status);
	r->open = false;
	session_look(s);
	if (d->status == 0)
		answer_good(r, id, d);
	else
		done_bad(r, id, d->status, s->broken, scene.timeouts || s->broken);
	check(r->life == s->life);
}

static void
host_poll(struct host *h)
{
	struct crpc_done done[CRPC_BURST_MAX];
	uint16_t room = (uint16_t)(1 + rnd(CRPC_BURST_MAX)), i, got;

	got = crpc_udrpc_poll(h->ctx, scene.now, done, room);
	check(got <= room);
	for (i = 0; i < got; i++)
		done_take(&done[i]);
}

static void
host_recv(struct host *h)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t room = (uint16_t)crpc_min(rnd(CRPC_BURST_MAX), HELD - h->nheld);
	uint16_t i, got = crpc_udrpc_recv(h->ctx, scene.now, req, room);
	struct session *s;
	struct record *r;
	uint32_t id;

	check(got <= room);
	for (i = 0; i < got; i++) {
		s = &ud.session[req[i].peer / 2];
		check(req[i].peer / 2 < scene.nlinks && req[i].len >= sizeof(id));
		memcpy(&id, req[i].data, sizeof(id));
		check(id != 0 && id <= scene.nids);
		r = &scene.id[id];
		if (++r->executed != 1)
			fail("request %u is given %u times", id, r->executed);
		check(r->life == s->life && &ud.session[r->link] == s);
		check(r->side != (req[i].peer & 1) && r->len == req[i].len);
		h->held[h->nheld++] = (struct request){.token = req[i].token,
			.data = req[i].data, .id = id, .life = s->life};
	}
}

static int
reply_make(struct host *h, const struct request *q)
{
	const struct record *r = &scene.id[q->id];
	static uint8_t buf[MSG_MAX + 1];
	uint32_t len = reply_len(q->id, r->resp_max);
	int rc;

	if (is_released(q->id))
		return crpc_udrpc_release(h->ctx, scene.now, q->token);
	if (is_rejected(q->id))
		return crpc_udrpc_fail(h->ctx, scene.now, q->token, -EUCLEAN);
	if (one_in(16)) { /* More than was reserved is refused, and nothing is lost by it. */
		rc = crpc_udrpc_reply(h->ctx, scene.now, q->token, buf, r->resp_max + 1);
		if (rc != -EMSGSIZE)
			return rc != 0 ? rc : -EINVAL;
	}
	bytes_make(buf, len, q->id * 2 + 1);
	return crpc_udrpc_reply(h->ctx, scene.now, q->token, buf, len);
}

/* The request is what was sent, however long it was held. */
static void
request_unchanged(const struct request *q)
{
	const struct record *r = &scene.id[q->id];
	static uint8_t want[MSG_MAX];

	bytes_make(want, r->len, q->id * 2);
	memcpy(want, &q->id, sizeof(q->id));
	if (memcmp(q->data, want, r->len) != 0)
		fail("request %u, %u bytes, is not what was sent", q->id, r->len);
}

static void
host_answer(struct host *h)
{
	struct request *q;
	struct session *s;
	int rc;

	if (h->nheld == 0)
		return;
	q = &h->held[rnd(h->nheld)];
	s = &ud.session[scene.id[q->id].link];
	session_look(s);
	if (q->life != s->life) {
		rc = crpc_udrpc_release(h->ctx, scene.now, q->token);
		if (rc != -ENOENT)
			fail("a token of an earlier life: %d, not ENOENT", rc);
	} else {
		if (!s->broken)
			request_unchanged(q);
		rc = reply_make(h, q);
		session_look(s);
		if (rc != 0 && !s->broken)
			fail("the answer to %u: %d", q->id, rc);
	}
	*q = h->held[--h->nheld];
}

static void
call_cancel(void)
{
	uint32_t id = scene.nids == 0 ? 0 : 1 + rnd(scene.nids);
	struct record *r = &scene.id[id];
	struct session *s = &ud.session[r->link];

	if (id == 0 || !r->open || ud.host[s->node[r->side]].gone)
		return;
	r->cancelled = true;
	/* It may have ended, and not been given yet. */
	crpc_udrpc_cancel(s->ep[r->side], scene.now, id);
}

/* ---- a scenario ---- */

static void
trouble_make(void)
{
	uint32_t i = rnd(scene.nnodes);
	struct session *s = &ud.session[rnd(scene.nlinks)];
	int side = (int)rnd(2);

	if ((scene.troubles & LOSSES) != 0 && one_in(4))
		network_worsen();
	if ((scene.troubles & BREAKS) != 0 && one_in(30)) {
		say("the queue pair of host %u fails\n", i);
		(void)step.break_qp(scene.node[i].number, 0);
	}
	if ((scene.troubles & BREAKS) != 0 && one_in(14) && s->ep[side] != NULL &&
			!ud.host[s->node[side]].gone) {
		say("session %d is ended at side %d\n", (int)(s - ud.session), side);
		crpc_udrpc_ep_shutdown(s->ep[side]);
		s->broken = true;
	}
	if ((scene.troubles & DEATHS) != 0 && one_in(30) && !ud.host[i].gone) {
		say("host %u vanishes\n", i);
		if (one_in(2))
			check(step.faults(scene.node[i].number, "dead=1") == 0);
		else
			check(step.vanish(scene.node[i].number) == 0);
		ud.host[i].gone = true;
	}
}

static void
ud_turn(bool calls)
{
	struct host *h = &ud.host[rnd(scene.nnodes)];
	uint32_t k = rnd(16), what = rnd(calls ? 12 : 8);

	scene.now += rnd(1000);
	if (h->gone && what < 5)
		return;
	switch (what) {
	case 0:
		crpc_udrpc_flush(h->ctx, scene.now);
		break;
	case 1:
	case 2:
		host_poll(h);
		break;
	case 3:
		host_recv(h);
		break;
	case 4:
		for (; k != 0; k--)
			host_answer(h);
		break;
	case 5:
	case 6:
	case 7:
		do_steps(k);
		break;
	case 8:
		if (scene.troubles != 0)
			trouble_make();
		break;
	case 9:
		if (one_in(2))
			mend(false);
		if (one_in(8))
			call_cancel();
		if (scene.troubles != 0 && one_in(4))
			scene.now += rnd(10000000);
		break;
	default:
		for (; k != 0; k--)
			call_make();
		break;
	}
}

static bool
ud_is_over(void)
{
	uint32_t i;

	for (i = 0; i < scene.nlinks; i++)
		if (ud.session[i].broken)
			return false;
	for (i = 0; i < scene.nnodes; i++)
		if (ud.host[i].nheld != 0 || crpc_udrpc_check(ud.host[i].ctx, true) != 0)
			return false;
	for (i = 1; i <= scene.nids; i++)
		if (scene.id[i].open)
			return false;
	return true;
}

/* Go on without new calls until every call has ended and all credits are home. */
static void
ud_rest(void)
{
	uint32_t t;

	if (scene.troubles != 0)
		(void)step.faults(SOFT_MLX5_STEP_ALL, "");
	for (t = 0; t < REST_TURN; t++) {
		ud_turn(false);
		if (t % 16 != 0)
			continue;
		mend(true);
		if (step.idle() == 1)
			scene.now += 100000 + rnd(1000000);
		if (t % 256 == 0 && ud_is_over())
			return;
	}
	for (t = 1; t <= scene.nids; t++)
		if (scene.id[t].open)
			fail("call %u of life %u does not end", t, scene.id[t].life);
	fail("credits do not come home, or a session does not come back");
}

static void
ud_open(uint64_t seed)
{
	struct crpc_udrpc_conf conf = {.max_eps = LINKS * 4};
	struct session *s;
	uint32_t i;

	memset(&ud, 0, sizeof(ud));
	scene_begin(seed, KIND_UD);
	scene.troubles = one_in(4) ? 0 : rnd(8);
	scene.timeouts = one_in(4);
	scene.nnodes = 2 + one_in(3);
	scene.nlinks = 1 + rnd(LINKS);
	conf.slots = 1 + rnd(8);
	conf.credits = 1 + rnd(32);
	conf.max_msg = one_in(2) ? MSG_MAX : 64 + rnd(MSG_MAX - 64);
	conf.pkt_max = one_in(2) ? 0 : CRPC_UDRPC_PKT_MIN + rnd(800);
	conf.sq_depth = 8u << rnd(5);
	conf.rq_depth = one_in(2) ? 0 : 8 + rnd(56);
	conf.retries = (scene.troubles & DEATHS) != 0 ? 3 + rnd(10) : 1000;
	conf.rto_ns = 200000u << rnd(4);
	conf.timeout_ns = scene.timeouts ? UINT64_C(1000000) << rnd(6) : UINT64_C(1) << 60;
	conf.no_congestion_control = one_in(3);
	for (i = 0; i < scene.nnodes; i++) {
		ud.host[i].conf = conf;
		host_open(&ud.host[i]);
	}
	for (i = 0; i < scene.nlinks; i++) {
		s = &ud.session[i];
		s->node[0] = (int)rnd(scene.nnodes);
		s->node[1] = (s->node[0] + 1 + (int)rnd(scene.nnodes - 1)) % (int)scene.nnodes;
		check(session_make_end(s, 0) && session_make_end(s, 1));
		session_connect(s);
	}
	if (scene.troubles != 0)
		check(step.faults(SOFT_MLX5_STEP_ALL, "") == 0);
}

void
udrpc_run(uint64_t seed)
{
	uint32_t i, k;

	ud_open(seed);
	for (i = 0; i < TURNS; i++) {
		ud_turn(true);
		for (k = 0; i % 64 == 0 && k < scene.nnodes; k++)
			if (!ud.host[k].gone)
				check(crpc_udrpc_check(ud.host[k].ctx, false) == 0);
	}
	ud_rest();
	for (i = 0; i < 8; i++) /* It still works. */
		call_make();
	ud_rest();
	for (i = 0; i < scene.nnodes; i++)
		host_close(&ud.host[i]);
}
