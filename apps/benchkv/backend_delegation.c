/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * delegation: all clients of a daemon write into one ring, which the daemon drains; its answers go
 * back by a ring for each lcore with clients. What other ranks own the daemon passes on by copyrpc.
 *
 *     clients of lcore 0 --\                         /--> ring of lcore 0
 *     clients of lcore 1 ----> one ring --> daemon -----> ring of lcore 1
 *
 * One place to look at instead of one per client, for one word that all clients fight for, and a
 * client that is interrupted between taking a place and filling it holds up all others. This is how
 * the original's delegation works, whose hold of answers is --flush hold (--hold-us).
 *
 * Requests that recv() gave stay readable until the next recv(): the daemon serves them, or copies
 * them to where they go, in the same turn.
 */
#include <stdlib.h>

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "backend.h"
#include "crpc_kv_proto.h"
#include "crpc_mem.h"

/* One element of either ring. The message follows. */
struct element {
	uint64_t cookie;
	uint32_t link;
	int32_t status; /* Of an answer. */
	uint32_t len;
	uint32_t zero;
};

/* A port or a link. */
struct delegation {
	bool server;
	uint32_t self, peers;
	uint32_t req_size, resp_size; /* Of an element. */
	struct rte_ring *ring;        /* Port: what clients ask. */
	uint8_t *taken;               /* Elements of the last recv() or poll(). */
	struct element *one;          /* The one that is written. */
	struct delegation *port[CRPC_KV_DAEMONS_MAX]; /* Link: whom it asks. */
	/* Link: answers of each port. Port: where those for each link go. */
	struct rte_ring *answers[];
};

static uint32_t
element_size(uint32_t msg_max)
{
	return (uint32_t)crpc_align_up(sizeof(struct element) + msg_max, 16);
}

static struct rte_ring *
ring_new(uint32_t esize, uint64_t count, unsigned int flags)
{
	uint32_t size = (uint32_t)crpc_pow2_ceil(count + 1);
	ssize_t bytes = rte_ring_get_memsize_elem(esize, size);
	struct rte_ring *r =
		bytes < 0 ? NULL : crpc_mem_alloc("kv_ring", (size_t)bytes, CRPC_CACHE_GUARD, NULL);

	if (r != NULL && rte_ring_init(r, "kv_ring", size, flags) != 0) {
		crpc_mem_free(r);
		r = NULL;
	}
	return r;
}

static void
delegation_close(void *end)
{
	struct delegation *d = end;

	crpc_mem_free(d->ring);
	for (uint32_t i = 0; i < d->peers && !d->server; i++)
		crpc_mem_free(d->answers[i]);
	free(d->taken);
	free(d->one);
	free(d);
}

static int
make_rings(struct delegation *d, const struct app_end_conf *conf)
{
	/* Every call that can be open has a place: neither ring is ever full. */
	if (d->server) {
		d->ring = ring_new(d->req_size, (uint64_t)conf->calls * d->peers, RING_F_SC_DEQ);
		return d->ring == NULL ? -ENOMEM : 0;
	}
	for (uint32_t i = 0; i < d->peers; i++) {
		d->answers[i] = ring_new(
			d->resp_size, conf->calls, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (d->answers[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static void *
delegation_open(const struct app_end_conf *conf, int *rc)
{
	struct delegation *d = calloc(1, sizeof(*d) + conf->peers * sizeof(d->answers[0]));
	uint32_t most;

	*rc = -ENOMEM;
	if (d == NULL)
		return NULL;
	d->server = conf->server;
	d->self = conf->self;
	d->peers = conf->peers;
	d->req_size = element_size(conf->req_max);
	d->resp_size = element_size(conf->resp_max);
	most = (uint32_t)crpc_max(d->req_size, d->resp_size);
	d->taken = calloc(CRPC_BURST_MAX, most);
	d->one = calloc(1, most);
	if (d->taken != NULL && d->one != NULL)
		*rc = make_rings(d, conf);
	if (*rc == 0)
		return d;
	delegation_close(d);
	return NULL;
}

/* Both ends are in this process. */
static size_t
delegation_address(void *end, void *buf, size_t max)
{
	memcpy(buf, &end, sizeof(end));
	return sizeof(end);
}

static int
delegation_connect(void *end, uint32_t peer, const void *addr, size_t len)
{
	struct delegation *d = end, *other;

	memcpy(&other, addr, sizeof(other));
	if (d->server)
		d->answers[peer] = other->answers[d->self];
	else
		d->port[peer] = other;
	return 0;
}

static int
delegation_call(void *end, uint64_t now, uint32_t to, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct delegation *d = end;

	d->one->cookie = cookie;
	d->one->link = d->self;
	d->one->len = len;
	if (len == 24)
		memcpy(d->one + 1, msg, 24);
	else
		memcpy(d->one + 1, msg, len);
	return rte_ring_mp_enqueue_elem(d->port[to]->ring, d->one, d->req_size) == 0 ? 0 : -EAGAIN;
}

static const struct element *
taken_at(const struct delegation *d, uint32_t i, uint32_t size)
{
	return (const struct element *)(const void *)(d->taken + (size_t)i * size);
}

/* Answers of one port at a time: what was taken stays where it is until the next poll. */
static uint32_t
delegation_poll(void *end, uint64_t now, struct crpc_done *done, uint32_t n)
{
	struct delegation *d = end;
	const struct element *e;
	uint32_t at = 0;

	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	for (uint32_t p = 0; p < d->peers && at < n; p++)
		at += rte_ring_sc_dequeue_burst_elem(d->answers[p],
			d->taken + (size_t)at * d->resp_size, d->resp_size, n - at, NULL);
	for (uint32_t i = 0; i < at; i++) {
		e = taken_at(d, i, d->resp_size);
		done[i] = (struct crpc_done){.cookie = e->cookie, .status = e->status};
		if (e->status == 0) {
			done[i].data = e + 1;
			done[i].len = e->len;
		}
	}
	return at;
}

static uint32_t
delegation_recv(void *end, uint64_t now, struct crpc_req *req, uint32_t n)
{
	struct delegation *d = end;
	const struct element *e;

	n = rte_ring_sc_dequeue_burst_elem(
		d->ring, d->taken, d->req_size, (uint32_t)crpc_min(n, CRPC_BURST_MAX), NULL);
	for (uint32_t i = 0; i < n; i++) {
		e = taken_at(d, i, d->req_size);
		req[i] = (struct crpc_req){
			.token = (uint64_t)e->link << 32 | (uint32_t)e->cookie,
			.data = e + 1,
			.len = e->len,
			.peer = e->link,
		};
	}
	return n;
}

static void
send_answer(struct delegation *d, uint64_t token, int status, const void *msg, uint32_t len)
{
	d->one->cookie = (uint32_t)token;
	d->one->status = status;
	d->one->len = len;
	if (len == 24)
		memcpy(d->one + 1, msg, 24);
	else if (len != 0)
		memcpy(d->one + 1, msg, len);
	rte_ring_sp_enqueue_elem(d->answers[token >> 32], d->one, d->resp_size);
}

static int
delegation_reply(void *end, uint64_t now, uint64_t token, const void *msg, uint32_t len)
{
	struct delegation *d = end;

	if (crpc_unlikely(len > d->resp_size - sizeof(struct element)))
		return -EMSGSIZE;
	send_answer(d, token, 0, msg, len);
	return 0;
}

static void
delegation_fail(void *end, uint64_t now, uint64_t token, int status)
{
	send_answer(end, token, status, NULL, 0);
}

const struct app_backend kv_backend_delegation = {
	.name = "delegation",
	.open = delegation_open,
	.address = delegation_address,
	.connect = delegation_connect,
	.close = delegation_close,
	.load = {.passes = true,
		.call = delegation_call,
		.poll = delegation_poll,
		.flush = app_end_nothing},
	.front = {.passes = true,
		.recv = delegation_recv,
		.reply = delegation_reply,
		.fail = delegation_fail,
		.flush = app_end_nothing,
		.watch = app_end_nothing},
};
