/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random scenarios through the whole stack: copyrpc, its mlx5 driver and rdma-core, on software
 * cards that are stepped by hand (soft_mlx5_step.h). Two or three contexts of one process, several
 * connections between them; random calls, one-way sends, replies, sizes, flow, arrival and flush
 * modes, short queues; a network that loses, doubles, delays and corrupts; queue pairs that fail in
 * any state, completion queues that overrun, cards that vanish, and connections that come back
 * under a new epoch.
 *
 * What must hold, whatever happens:
 *
 * - each accepted call completes exactly once, with the right data or an error that something
 *   explains;
 * - a request is executed at most once, unchanged, in its life, small ones in order;
 * - where nothing broke, every call and one-way send arrives;
 * - at any time the auditor finds each context in order, and at rest no credit is missing.
 *
 * Everything comes from a seed. The last line of a failure names it:
 *
 *     step_scenario [--seed N] [--from N] [--seeds N] [--seconds N] [--file FILE] [--verbose]
 *
 * --seed runs one, --seeds that many from --from on (default 1), --seconds as many as fit, --file
 * those that a file lists. Must be started in step mode (soft-mlx5 --progress step).
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"
#include "crpc_util.h"
#include "soft_mlx5_step.h"

#define NODES     3
#define LINKS     4
#define IDS       8192
#define HELD      256
#define TURNS     700
#define MSG_ROOM  (64u << 10)
#define REQ_HEAD  8u
#define SOON_NS   UINT64_C(100000)
#define SILENT_NS UINT64_C(10000000)
#define LONG_NS   (UINT64_C(1) << 60)
#define REST_TURN 400000
#define OPS       64u  /* Gets and puts open at most, of one side of a link. */
#define OP_BYTES  1024u
#define OP_COOKIE (UINT64_C(1) << 32)

/* What a seed may do besides calling. */
enum trouble {
	LOSSES = 1,  /* Faults of the network, and slow cards. */
	BREAKS = 2,  /* Queue pairs fail, endpoints are shut down. */
	DEATHS = 4,  /* Cards vanish, or lose their completion queue. */
	REFUSALS = 8, /* Requests are refused, WQEs fail. */
};

/* A call or one-way send, by id. */
struct record {
	bool open, oneway, large, cancelled;
	uint8_t link, side;
	uint32_t life;
	uint32_t len, resp_max;
	uint32_t executed;
};

/* Gets and puts of one side of a link: its own copies, and the piece of the peer's memory. */
struct onesided {
	uint64_t posted, done;
	uint32_t life;
	uint64_t newest; /* The put that the peer's piece holds; 0: not known. */
	struct {
		bool put;
		uint32_t len;
		uint64_t want; /* Of a get: the put that it must see; 0: any. */
	} op[OPS];
	uint8_t ours[OPS][OP_BYTES];
	uint8_t theirs[OP_BYTES]; /* Lies in the peer's region. */
};

struct held {
	uint64_t token;
	const uint8_t *data;
	uint32_t id, life;
	bool dead; /* Of an earlier life, or of a context that is gone. */
};

struct node {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	uint32_t number;
	bool gone; /* It vanished; ctx is there to be freed. */
	bool sick; /* Its completion queue overran: nothing arrives any more. */
	struct crpc_rdma_mr mr; /* All of scene.one. */
	uint32_t nheld;
	struct held held[HELD];
	struct crpc_done done[CRPC_BURST_MAX];
};

struct link {
	int node[2];
	struct crpc_copyrpc_ep *ep[2];
	uint32_t newest[2]; /* Id of the newest small request that arrived at side i. */
	uint32_t life;
	bool broken; /* In this life; told by an endpoint, or done by us. */
};

struct scene {
	uint64_t seed, rng, now;
	uint32_t troubles;
	bool onesided; /* Gets and puts, too. */
	bool timeouts; /* Calls have deadlines that they may miss. */
	uint32_t nnodes, nlinks;
	struct node node[NODES];
	struct link link[LINKS];
	struct crpc_copyrpc_conf conf[NODES];
	struct crpc_copyrpc_ep_conf mode[LINKS];
	uint32_t nids;
	struct record id[IDS];
	struct onesided one[LINKS][2];
};

static struct soft_mlx5_step step;
static struct scene scene;
static bool verbose;
static const char *program;

/* What all seeds together have met. */
static struct {
	uint64_t calls, good, reset, late, cancelled, rejected, oneway, large, lives, restarts;
	uint64_t sq_full, wraps, lost, passes, puts, gets, sick;
} met;

/* ---- failure ---- */

static void crpc_printf(2, 3)
fail_at(int line, const char *fmt, ...)
{
	va_list ap;
	uint32_t i;

	fprintf(stderr, "seed %" PRIu64 ", line %d: ", scene.seed, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nlog: %s\n", crpc_log_last());
	for (i = 0; verbose && i < scene.nnodes; i++)
		if (scene.node[i].ctx != NULL)
			crpc_copyrpc_dump(scene.node[i].ctx, stderr);
	fprintf(stderr, "run it again: soft-mlx5 --progress step -- %s --seed %" PRIu64
		" --verbose\n", program, scene.seed);
	exit(1);
}

#define fail(...) fail_at(__LINE__, __VA_ARGS__)
#define check(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail("not so: %s", #what);                                                 \
	} while (0)

#define say(...)                                                                                   \
	do {                                                                                       \
		if (verbose) {                                                                     \
			printf("%12" PRIu64 " ", scene.now);                                       \
			printf(__VA_ARGS__);                                                       \
		}                                                                                  \
	} while (0)

/* ---- randomness and bytes ---- */

static uint64_t
mix(uint64_t z)
{
	/* SplitMix64 (Steele, Lea, Flood 2014). */
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint32_t
rnd(uint32_t below)
{
	scene.rng += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(mix(scene.rng) % below);
}

static bool
one_in(uint32_t n)
{
	return rnd(n) == 0;
}

/* The bytes that belong to a key, from the @p off-th on. */
static void
bytes_make(uint8_t *p, uint32_t len, uint64_t key)
{
	uint64_t x = mix(key + scene.seed * 31);
	uint32_t i;

	for (i = 0; i < len; i++) {
		p[i] = (uint8_t)(x >> 24);
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
	}
}

static bool
bytes_are(const uint8_t *p, uint32_t len, uint64_t key)
{
	static uint8_t want[MSG_ROOM];

	bytes_make(want, len, key);
	return memcmp(p, want, len) == 0;
}

/* What a server does with a request, known at both ends. */
static bool
is_rejected(uint32_t id)
{
	return mix(id * 3 + scene.seed) % 13 == 0;
}

static bool
is_released(uint32_t id)
{
	return mix(id * 5 + scene.seed) % 17 == 0;
}

static uint32_t
reply_len(uint32_t id, uint32_t resp_max)
{
	uint64_t h = mix(id * 7 + scene.seed);

	return h % 5 == 0 ? resp_max : (uint32_t)((h >> 8) % (resp_max + 1));
}

/* ---- contexts and connections ---- */

static void
node_open(struct node *n)
{
	struct crpc_rdma_conf rdma = {.gid_index = 0};
	uint32_t i = (uint32_t)(n - scene.node);

	n->dev = crpc_rdma_open(&rdma);
	if (n->dev == NULL)
		fail("open of a device");
	n->number = step.last();
	scene.conf[i].dev = n->dev;
	n->ctx = crpc_copyrpc_create(&scene.conf[i]);
	if (n->ctx == NULL)
		fail("create of a context");
	if (crpc_rdma_mr_reg(n->dev, scene.one, sizeof(scene.one), &n->mr) != 0)
		fail("region of a context");
	n->gone = n->sick = false;
}

static void
node_close(struct node *n)
{
	const struct crpc_copyrpc_stats *stats;
	uint32_t i;

	stats = crpc_copyrpc_stats(n->ctx);
	met.sq_full += stats->sq_full;
	met.wraps += stats->wraps;
	met.lost += stats->peers_lost;
	crpc_copyrpc_free(n->ctx);
	crpc_rdma_mr_dereg(n->dev, &n->mr);
	crpc_rdma_close(n->dev);
	n->ctx = NULL;
	for (i = 0; i < n->nheld; i++)
		n->held[i].dead = true;
	n->nheld = 0;
}

static void
link_make_end(struct link *l, int side)
{
	uint32_t i = (uint32_t)(l - scene.link);

	l->ep[side] = crpc_copyrpc_ep_create_as(
		scene.node[l->node[side]].ctx, i * 2 + (uint32_t)side, &scene.mode[i]);
	if (l->ep[side] == NULL)
		fail("create of an endpoint");
}

static void
link_connect(struct link *l)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	int side;

	for (side = 0; side < 2; side++)
		crpc_copyrpc_ep_addr(l->ep[side], addr[side]);
	for (side = 0; side < 2; side++)
		if (crpc_copyrpc_ep_connect(l->ep[side], addr[!side]) != 0)
			fail("connect of link %d", (int)(l - scene.link));
	l->life++;
	l->broken = false;
	l->newest[0] = l->newest[1] = 0;
	for (side = 0; side < 2; side++) {
		struct onesided *o = &scene.one[l - scene.link][side];

		check(o->posted == o->done);
		o->life = l->life;
		o->newest = 0;
	}
	met.lives++;
	say("link %d lives, life %u\n", (int)(l - scene.link), l->life);
}

/* Note what the endpoints say. */
static void
link_look(struct link *l)
{
	int side, status;

	for (side = 0; side < 2; side++) {
		if (scene.node[l->node[side]].gone) {
			l->broken = true;
			continue;
		}
		status = crpc_copyrpc_ep_status(l->ep[side]);
		if (status == 0)
			continue;
		if (status != -ECONNRESET && status != -ENOTCONN) /* The new end of a new card. */
			fail("link %d: status %d", (int)(l - scene.link), status);
		if (!l->broken)
			say("link %d broke at side %d: %s\n", (int)(l - scene.link), side,
				crpc_log_last());
		l->broken = true;
	}
}

/* Requests held of a life that has ended: their tokens name nothing any more. */
static void
held_end(struct link *l, int side)
{
	struct node *n = &scene.node[l->node[side]];
	uint32_t i;

	for (i = 0; i < n->nheld; i++)
		if (scene.id[n->held[i].id].link == l - scene.link &&
				scene.id[n->held[i].id].side != side)
			n->held[i].dead = true;
}

/* Bring a broken connection on: shut down what works, reset when all calls have ended, connect. */
static void
link_mend(struct link *l)
{
	int side, rc;

	for (side = 0; side < 2; side++)
		if (scene.node[l->node[side]].gone)
			return; /* First the card comes back. */
	for (side = 0; side < 2; side++)
		crpc_copyrpc_ep_shutdown(l->ep[side]);
	for (side = 0; side < 2; side++)
		if (crpc_copyrpc_ep_open_calls(l->ep[side]) != 0)
			return;
	for (side = 0; side < 2; side++) {
		rc = crpc_copyrpc_ep_reset(l->ep[side]);
		if (rc == -EBUSY)
			return;
		if (rc != 0)
			fail("reset of link %d: %d", (int)(l - scene.link), rc);
		held_end(l, side);
	}
	link_connect(l);
}

/* A card that vanished is replaced, as by a process that is started again. */
static void
node_restart(struct node *n)
{
	struct link *l;
	uint32_t i;
	int side;

	say("card %d is replaced\n", (int)(n - scene.node));
	node_close(n);
	for (i = 1; i <= scene.nids; i++) { /* Its own calls end with it. */
		struct record *r = &scene.id[i];

		if (r->open && scene.link[r->link].node[r->side] == n - scene.node)
			r->open = false;
	}
	for (i = 0; i < scene.nlinks; i++)
		for (side = 0; side < 2; side++)
			if (scene.link[i].node[side] == n - scene.node)
				scene.one[i][side].done = scene.one[i][side].posted;
	node_open(n);
	met.restarts++;
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		for (side = 0; side < 2; side++)
			if (l->node[side] == n - scene.node)
				link_make_end(l, side);
	}
}

/* ---- what a side does ---- */

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

static void
do_call(void)
{
	struct link *l = &scene.link[rnd(scene.nlinks)];
	const struct crpc_copyrpc_conf *conf = &scene.conf[0];
	int side = (int)rnd(2), rc;
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
		rc = crpc_copyrpc_send(l->ep[side], scene.now, buf, r->len);
	} else if (!r->large && r->resp_max <= conf->max_msg && one_in(3)) {
		rc = crpc_copyrpc_call_reserve(l->ep[side], r->len, r->resp_max, &data);
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

/* Write a piece of the peer's memory, or read back what the newest write must have left there. */
static void
do_onesided(void)
{
	struct link *l = &scene.link[rnd(scene.nlinks)];
	int side = (int)rnd(2), rc;
	struct onesided *o = &scene.one[l - scene.link][side];
	struct node *n = &scene.node[l->node[side]], *peer = &scene.node[l->node[!side]];
	uint32_t i = (uint32_t)(o->posted % OPS), len = 1 + rnd(OP_BYTES);
	uint64_t number = o->posted + 1;
	uint64_t cookie = OP_COOKIE | (uint64_t)(l - scene.link) << 16 | (uint64_t)side << 8;
	bool put = one_in(2);

	if (n->gone || o->posted - o->done == OPS)
		return;
	o->op[i].put = put;
	o->op[i].len = put ? OP_BYTES : len;
	o->op[i].want = o->newest;
	if (put) {
		bytes_make(o->ours[i], OP_BYTES, number << 20 | cookie);
		rc = crpc_copyrpc_put(l->ep[side], &n->mr, o->ours[i], OP_BYTES,
			(uintptr_t)o->theirs, peer->mr.rkey, cookie);
	} else {
		rc = crpc_copyrpc_get(l->ep[side], &n->mr, o->ours[i], len, (uintptr_t)o->theirs,
			peer->mr.rkey, cookie);
	}
	link_look(l);
	if (rc == -EAGAIN || (rc != 0 && l->broken))
		return;
	if (rc != 0)
		fail("a %s on link %d: %d", put ? "put" : "get", (int)(l - scene.link), rc);
	o->posted++;
	if (put)
		o->newest = number;
	met.puts += put;
	met.gets += !put;
}

static void
onesided_take(const struct crpc_done *d)
{
	uint32_t link = (uint32_t)(d->cookie >> 16) & 0xff, side = (uint32_t)(d->cookie >> 8) & 1;
	struct onesided *o;
	uint64_t put;
	uint32_t i;

	check(link < scene.nlinks);
	o = &scene.one[link][side];
	check(o->done != o->posted);
	i = (uint32_t)(o->done++ % OPS);
	if (d->status != 0) {
		link_look(&scene.link[link]);
		check(d->status == -ECONNRESET && scene.link[link].broken);
		return;
	}
	check(d->data == o->ours[i] && d->len == o->op[i].len);
	if (o->op[i].put || o->op[i].want == 0)
		return;
	/* Writes that were posted after a read may be done before it, none before it after it. */
	for (put = o->op[i].want; put <= o->newest; put++)
		if (bytes_are(o->ours[i], d->len, put << 20 | d->cookie))
			return;
	fail("a get of %u bytes on link %u sees none of put %" PRIu64 " to %" PRIu64, d->len, link,
		o->op[i].want, o->newest);
}

static void
done_good(const struct record *r, uint32_t id, const struct crpc_done *d)
{
	met.good++;
	if (r->executed != 1)
		fail("call %u answered, executed %u times", id, r->executed);
	check(!is_rejected(id) && !is_released(id));
	if (d->len != reply_len(id, r->resp_max))
		fail("reply to %u has %u bytes, not %u", id, d->len,
			reply_len(id, r->resp_max));
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
	switch (d->status) {
	case 0:
		done_good(r, id, d);
		break;
	case -EUCLEAN:
		met.rejected++;
		check(is_rejected(id) && r->executed == 1);
		break;
	case -ECANCELED:
		met.cancelled++;
		check(r->cancelled || (is_released(id) && r->executed == 1));
		break;
	case -ECONNRESET:
		met.reset++;
		check(l->broken || r->life != l->life);
		break;
	case -ETIMEDOUT:
		met.late++;
		check(scene.timeouts);
		break;
	default:
		fail("call %u ends with %d", id, d->status);
	}
	if (d->status != -ECONNRESET && r->life != l->life)
		fail("call %u of life %u ends with %d in life %u", id, r->life, d->status, l->life);
}

static void
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

static void
do_recv(struct node *n)
{
	struct crpc_req req[CRPC_BURST_MAX];
	uint32_t room;
	uint16_t i, got;

	room = rnd(CRPC_BURST_MAX);
	got = crpc_copyrpc_recv(n->ctx, req, (uint16_t)crpc_min(room, HELD - n->nheld));
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
		return crpc_copyrpc_reject(n->ctx, scene.now, h->token, -EUCLEAN);
	len = reply_len(h->id, r->resp_max);
	if (one_in(16)) { /* More than was reserved is refused, and nothing is lost by it. */
		rc = crpc_copyrpc_reply(n->ctx, scene.now, h->token, buf, r->resp_max + 1);
		if (rc != -EMSGSIZE && rc != -ECONNRESET)
			fail("a reply to %u beyond %u bytes: %d", h->id, r->resp_max, rc);
		if (rc == -ECONNRESET)
			return rc;
	}
	if (len <= scene.conf[0].max_msg && one_in(2)) {
		rc = crpc_copyrpc_reply_reserve(n->ctx, h->token, len, &data);
		if (rc == 0) {
			bytes_make(data, len, h->id * 2 + 1);
			crpc_copyrpc_reply_commit(n->ctx, scene.now);
		}
		return rc;
	}
	bytes_make(buf, len, h->id * 2 + 1);
	return crpc_copyrpc_reply(n->ctx, scene.now, h->token, buf, len);
}

static void
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

static void
do_cancel(void)
{
	uint32_t id = scene.nids == 0 ? 0 : 1 + rnd(scene.nids);
	struct record *r = &scene.id[id];
	struct link *l = &scene.link[r->link];

	if (id == 0 || !r->open || scene.node[l->node[r->side]].gone)
		return;
	r->cancelled = true;
	crpc_copyrpc_cancel(l->ep[r->side], id);
}

/* ---- trouble ---- */

static void
network_worsen(void)
{
	static const char *const kinds[] = {
		"drop", "corrupt", "dup", "delay", "reorder", "rnr"};
	char text[256];
	size_t len = 0;
	uint32_t i;

	text[0] = '\0';
	for (i = 0; i < CRPC_DIM(kinds); i++)
		if (one_in(2))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s=0.0%02u",
				len == 0 ? "" : ",", kinds[i], 1 + rnd(30));
	if (one_in(4))
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%sslow=%u",
			len == 0 ? "" : ",", 1 + rnd(2000));
	i = one_in(3) ? scene.node[rnd(scene.nnodes)].number : SOFT_MLX5_STEP_ALL;
	say("faults of %u: %s\n", i, text);
	if (step.faults(i, text) == EINVAL)
		fail("faults '%s'", text);
}

static void
refuse_some(void)
{
	static const char *const kinds[] = {"inval", "access", "op", "prot", "badresp"};
	char text[64] = "";
	uint32_t i = scene.node[rnd(scene.nnodes)].number;
	const char *kind = kinds[rnd(CRPC_DIM(kinds))];

	if (one_in(2))
		snprintf(text, sizeof(text), "%s=0.0%02u", kind, 1 + rnd(50));
	say("faults of %u: %s\n", i, text);
	if (step.faults(i, text) == EINVAL)
		fail("faults '%s'", text);
}

static void
node_kill(struct node *n)
{
	uint32_t how = rnd(3);

	if (n->gone || n->sick)
		return;
	say("card %d %s\n", (int)(n - scene.node), how == 0 ? "is dead"
		: how == 1 ? "vanishes" : "loses its completion queue");
	/* A card that stands still, a process that was killed, a queue that overran: they are
	 * replaced later. The program on the last one goes on until then. */
	if (how == 0)
		check(step.faults(n->number, "dead=1") == 0);
	else if (how == 1)
		check(step.vanish(n->number) == 0);
	else
		check(step.faults(n->number, "cqfull=1") == 0);
	n->gone = how < 2;
	n->sick = how == 2;
	met.sick += n->sick;
}

static void
do_trouble(void)
{
	struct node *n = &scene.node[rnd(scene.nnodes)];
	struct link *l = &scene.link[rnd(scene.nlinks)];
	int side = (int)rnd(2);

	if ((scene.troubles & LOSSES) != 0 && one_in(4))
		network_worsen();
	if ((scene.troubles & REFUSALS) != 0 && one_in(8))
		refuse_some();
	if ((scene.troubles & BREAKS) != 0 && one_in(14)) {
		say("a queue pair of card %d fails\n", (int)(n - scene.node));
		(void)step.break_qp(n->number, rnd(LINKS));
	}
	if ((scene.troubles & BREAKS) != 0 && one_in(30) && !scene.node[l->node[side]].gone) {
		say("link %d is shut down at side %d\n", (int)(l - scene.link), side);
		crpc_copyrpc_ep_shutdown(l->ep[side]);
		l->broken = true;
	}
	if ((scene.troubles & DEATHS) != 0 && one_in(30))
		node_kill(n);
}

static void
do_mend(bool all)
{
	uint32_t i;

	for (i = 0; i < scene.nnodes; i++)
		if ((scene.node[i].gone || scene.node[i].sick) && (all || one_in(3)))
			node_restart(&scene.node[i]);
	for (i = 0; i < scene.nlinks; i++) {
		link_look(&scene.link[i]);
		if (scene.link[i].broken && (all || one_in(3)))
			link_mend(&scene.link[i]);
	}
}

/* ---- a scenario ---- */

static void
do_steps(uint32_t n)
{
	while (n-- != 0) {
		scene.now += rnd(1500);
		met.passes += step.step(scene.now, NULL) == 0; /* Or all have vanished. */
	}
}

static void
audit(bool at_rest)
{
	uint32_t i;

	for (i = 0; i < scene.nnodes; i++)
		if (!scene.node[i].gone && crpc_copyrpc_check(scene.node[i].ctx, at_rest) != 0)
			fail("the auditor finds fault with context %u", i);
}

static void
turn(bool calls)
{
	struct node *n = &scene.node[rnd(scene.nnodes)];
	uint32_t k = rnd(16);

	scene.now += rnd(1000);
	switch (rnd(calls ? 13 : 8)) {
	case 0:
		if (!n->gone)
			crpc_copyrpc_flush(n->ctx, scene.now);
		break;
	case 1:
	case 2:
		if (!n->gone)
			do_poll(n);
		break;
	case 3:
		if (!n->gone)
			do_recv(n);
		break;
	case 4:
		for (; k != 0 && !n->gone; k--)
			do_answer(n);
		break;
	case 5:
	case 6:
	case 7:
		do_steps(k);
		break;
	case 8:
		if (scene.troubles != 0)
			do_trouble();
		break;
	case 9:
		if (one_in(2))
			do_mend(false);
		if (one_in(8))
			do_cancel();
		if (scene.troubles != 0 && one_in(8))
			scene.now += rnd(30000000);
		break;
	case 10:
		for (; k != 0 && scene.onesided; k--)
			do_onesided();
		break;
	default:
		for (; k != 0; k--)
			do_call();
		break;
	}
}

/* Nothing is open, held or under way. */
static bool
is_over(void)
{
	uint32_t i;

	for (i = 0; i < scene.nlinks; i++)
		if (scene.link[i].broken || scene.one[i][0].done != scene.one[i][0].posted ||
				scene.one[i][1].done != scene.one[i][1].posted)
			return false;
	for (i = 0; i < scene.nnodes; i++)
		if (scene.node[i].nheld != 0)
			return false;
	for (i = 1; i <= scene.nids; i++) {
		const struct record *r = &scene.id[i];
		const struct link *l = &scene.link[r->link];

		if (r->open || (r->oneway && r->executed == 0 && r->life == l->life && !l->broken))
			return false;
	}
	return true;
}

/* Go on without new calls until everything has ended. */
static void
come_to_rest(void)
{
	uint32_t i, t;

	if (scene.troubles != 0)
		(void)step.faults(SOFT_MLX5_STEP_ALL, "");
	for (t = 0; t < REST_TURN; t++) {
		turn(false);
		if (t % 16 != 0)
			continue;
		do_mend(true);
		if (step.idle() == 1)
			scene.now += 100000 + rnd(1000000);
		if (is_over())
			break;
	}
	for (i = 1; i <= scene.nids; i++)
		if (scene.id[i].open)
			fail("call %u of life %u on link %u (life %u, broken %d) does not end", i,
				scene.id[i].life, scene.id[i].link,
				scene.link[scene.id[i].link].life,
				scene.link[scene.id[i].link].broken);
	if (!is_over())
		fail("a one-way request does not arrive, or something stays held");
}

/* Both ends' positions say the same, once the last window updates have arrived. */
static void
credits_match(void)
{
	struct crpc_copyrpc_positions pos[2];
	struct link *l;
	uint32_t i, t;
	bool ok = false;
	int side;

	for (t = 0; t < 2000 && !ok; t++) {
		scene.now += 50000;
		for (i = 0; i < scene.nnodes; i++) {
			do_poll(&scene.node[i]);
			do_recv(&scene.node[i]); /* What a caller gave up is to be served. */
			while (scene.node[i].nheld != 0)
				do_answer(&scene.node[i]);
		}
		check(step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL) == 0);
		ok = t % 8 == 7;
		for (i = 0; ok && i < scene.nnodes; i++)
			ok = crpc_copyrpc_check(scene.node[i].ctx, true) == 0;
	}
	audit(true);
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		link_look(l);
		if (l->broken)
			fail("link %u broke at rest", i);
		for (side = 0; side < 2; side++)
			crpc_copyrpc_ep_positions(l->ep[side], &pos[side]);
		if (crpc_copyrpc_positions_match(&pos[0], &pos[1], scene.mode[i].flow) != 0)
			fail("link %u: the ends' positions differ", i);
	}
}

static void
conf_make(void)
{
	uint32_t i, ring = 4096u << (one_in(3) ? rnd(3) : 0);
	struct crpc_copyrpc_conf conf = {.max_eps = LINKS * 2, .ring_size = ring};

	/* One draw in a statement: a seed must mean the same to every compiler. */
	conf.max_msg = one_in(2) ? CRPC_COPYRPC_MSG_MAX(ring) : 16 + rnd(300);
	conf.max_large = one_in(3) ? ring + rnd(MSG_ROOM - 64 - ring) : 0;
	conf.timeout_ns = scene.timeouts ? SOON_NS << rnd(12) : LONG_NS;
	/* Longer than the turns that a context may have to wait for. */
	conf.peer_timeout_ns = scene.timeouts && one_in(2) ? SILENT_NS << rnd(4) : 0;
	for (i = 0; i < scene.nnodes; i++) {
		scene.conf[i] = conf;
		scene.conf[i].max_inflight = 1u << rnd(8);
		scene.conf[i].flush = (enum crpc_copyrpc_flush_policy)rnd(4);
		scene.conf[i].max_outstanding = 1 + rnd(3);
		scene.conf[i].batch_max = one_in(2) ? ring : 512;
		scene.conf[i].sq_depth = one_in(2) ? 8 : 64;
		scene.conf[i].rq_depth = 1 + rnd(16);
		scene.conf[i].age_ns = 1000 + rnd(50000);
	}
	for (i = 0; i < scene.nlinks; i++) {
		scene.mode[i].flow = (enum crpc_copyrpc_flow)rnd(3);
		scene.mode[i].arrival = (enum crpc_copyrpc_arrival)rnd(2);
	}
}

static void
scene_open(uint64_t seed)
{
	struct link *l;
	uint32_t i;

	memset(&scene, 0, sizeof(scene));
	scene.seed = seed;
	scene.rng = mix(seed);
	scene.now = 1000000;
	scene.troubles = one_in(4) ? 0 : rnd(16);
	scene.onesided = one_in(2);
	scene.timeouts = (scene.troubles & DEATHS) != 0 || one_in(8);
	scene.nnodes = 2 + one_in(3);
	scene.nlinks = 1 + rnd(LINKS);
	conf_make();
	say("seed %" PRIu64 ": %u contexts, %u links, troubles %u\n", seed, scene.nnodes,
		scene.nlinks, scene.troubles);
	if (step.start(seed) != 0)
		fail("start of step mode");
	for (i = 0; i < scene.nnodes; i++)
		node_open(&scene.node[i]);
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		l->node[0] = (int)rnd(scene.nnodes);
		l->node[1] = one_in(8) ? l->node[0]
				       : (l->node[0] + 1 + (int)rnd(scene.nnodes - 1)) %
				(int)scene.nnodes;
		link_make_end(l, 0);
		link_make_end(l, 1);
		link_connect(l);
	}
	if (scene.troubles != 0)
		check(step.faults(SOFT_MLX5_STEP_ALL, "") == 0);
}

/*
 * What was lost last is sent again after a timeout of the card, 67 ms, in which a context with a
 * shorter patience may take its peer for dead: let that happen before credits are compared.
 */
static void
let_timers_end(void)
{
	uint32_t i, t;

	for (t = 0; t < 300; t++) {
		scene.now += 1000000;
		for (i = 0; i < scene.nnodes; i++)
			do_poll(&scene.node[i]);
		check(step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL) == 0);
		do_mend(true);
	}
}

static void
run_one(uint64_t seed)
{
	uint32_t i;

	scene_open(seed);
	for (i = 0; i < TURNS; i++) {
		turn(true);
		if (i % 64 == 0)
			audit(false);
	}
	come_to_rest();
	if ((scene.troubles & LOSSES) != 0)
		let_timers_end();
	for (i = 0; i < 8; i++) /* It still works. */
		do_call();
	come_to_rest();
	credits_match();
	for (i = 0; i < scene.nnodes; i++)
		node_close(&scene.node[i]);
}

/* ---- which seeds ---- */

static void
run_file(const char *name)
{
	FILE *f = fopen(name, "r");
	uint64_t seed;
	char line[256];

	if (f == NULL) {
		fprintf(stderr, "%s: %s\n", name, strerror(errno));
		exit(2);
	}
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%" SCNu64, &seed) == 1)
			run_one(seed);
	fclose(f);
}

/* All together must have met everything, or they test less than they say. */
static void
check_met(uint64_t seeds)
{
	printf("%" PRIu64 " seeds: %" PRIu64 " calls (%" PRIu64 " good, %" PRIu64 " reset, %" PRIu64
	       " late, %" PRIu64 " cancelled, %" PRIu64 " rejected, %" PRIu64 " large), %" PRIu64
	       " one-way, %" PRIu64 " lives, %" PRIu64 " cards replaced, sq full %" PRIu64
	       ", wraps %" PRIu64 ", peers lost %" PRIu64 ", puts %" PRIu64 ", gets %" PRIu64
	       ", queues lost %" PRIu64 ", passes %" PRIu64 "\n",
		seeds, met.calls, met.good, met.reset, met.late, met.cancelled, met.rejected,
		met.large, met.oneway, met.lives, met.restarts, met.sq_full, met.wraps,
		met.lost, met.puts, met.gets, met.sick, met.passes);
	if (seeds < 100)
		return;
	if (met.good == 0 || met.reset == 0 || met.late == 0 || met.cancelled == 0 ||
			met.rejected == 0 || met.large == 0 || met.oneway == 0 ||
			met.restarts == 0 || met.sick == 0 || met.puts == 0 || met.gets == 0 ||
			met.sq_full == 0 || met.wraps == 0 ||
			met.lost == 0) {
		fprintf(stderr, "some of these never happened\n");
		exit(1);
	}
}

static void
log_sink(enum crpc_log_level level, const char *type, const char *line)
{
	if (verbose)
		printf("%12" PRIu64 " %s: %s\n", scene.now, type, line);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'b'},
		{"seeds", required_argument, NULL, 's'},
		{"seconds", required_argument, NULL, 't'},
		{"file", required_argument, NULL, 'f'},
		{"verbose", no_argument, NULL, 'v'},
		{0},
	};
	uint64_t from = 1, seeds = 0, seconds = 0, one = 0, n = 0, until;
	const char *file = NULL;
	int c;

	program = argv[0];
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'n')
			one = strtoull(optarg, NULL, 0);
		else if (c == 'b')
			from = strtoull(optarg, NULL, 0);
		else if (c == 's')
			seeds = strtoull(optarg, NULL, 0);
		else if (c == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (c == 'f')
			file = optarg;
		else if (c == 'v')
			verbose = true;
		else
			return 2;
	}
	crpc_clock_init();
	crpc_log_set_sink(log_sink, CRPC_LOG_INFO);
	if (soft_mlx5_step_find(&step) != 0 || step.start(0) != 0) {
		fprintf(stderr, "start it by: soft-mlx5 --progress step -- %s\n", argv[0]);
		return 77;
	}
	if (one != 0) {
		run_one(one);
		return 0;
	}
	if (file != NULL)
		run_file(file);
	until = crpc_clock_ns() + seconds * UINT64_C(1000000000);
	while (n < seeds || (seconds != 0 && crpc_clock_ns() < until))
		run_one(from + n++);
	check_met(n);
	return 0;
}
