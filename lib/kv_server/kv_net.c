/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "crpc_log.h"
#include "kv_net.h"

/* Before the second try, and doubled until it is about a second. */
#define RETRY_NS        UINT64_C(1000000)
#define RETRY_SHIFT_MAX 10u
/* As many take 15 s: longer than any device needs. */
#define TRIES 24u

/* What an endpoint has room for. */
struct sizes {
	uint32_t ring, calls, sq, rq;
};

static struct sizes
sizes_of(const struct crpc_kv_server_conf *c)
{
	uint32_t msg = (uint32_t)crpc_max(kv_req_max(c), kv_resp_max(c));
	struct sizes s = {.ring = crpc_kv_ring_size(c->calls, msg, c->ranks),
		.calls = crpc_kv_inflight(c->calls),
		.sq = 64,
		.rq = 128};

	if (c->ring_size != 0)
		s.ring = c->ring_size;
	if (c->ranks > CRPC_KV_RANKS_FEW) {
		s.calls = (uint32_t)crpc_min(s.calls, s.ring / 128);
		s.sq = 16;
		s.rq = 16;
	}
	return s;
}

static int
open_device(struct kv_net *net, const struct crpc_kv_server_conf *c, const struct sizes *size,
	uint32_t eps)
{
	struct crpc_rdma_conf conf = {
		.device = c->device,
		.cq_depth = (uint32_t)crpc_pow2_ceil(eps * (uint64_t)(size->sq + size->rq)),
	};
	struct crpc_rdma_info info;

	net->dev = crpc_rdma_open(&conf);
	if (net->dev == NULL)
		return -errno;
	crpc_rdma_info_get(net->dev, &info);
	snprintf(net->device, sizeof(net->device), "%s", info.name);
	return 0;
}

/* Whom we have endpoints to, and through which of them each owner is reached. */
static void
choose_peers(struct kv_net *net)
{
	bool by_number = net->by_number;
	uint32_t to = by_number ? 1 : net->daemons;
	struct kv_peer *first, *p;

	for (uint32_t r = 0; r < net->ranks; r++) {
		if (r == net->rank)
			continue;
		first = &net->peer[net->peers];
		for (uint32_t k = 0; k < to * net->lanes; k++) {
			p = &net->peer[net->peers++];
			p->rank = r;
			p->daemon = by_number ? net->daemon : k / net->lanes;
			p->lane = k % net->lanes;
			p->down = true;
		}
		for (uint32_t d = 0; d < net->daemons; d++)
			net->by_owner[r * net->daemons + d] =
				by_number ? first : first + d * net->lanes;
	}
}

/* Those of n peers that have none yet. */
static int
make_endpoints(struct kv_net *net, struct kv_peer *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (p[i].ep == NULL)
			p[i].ep = crpc_copyrpc_ep_create_as(
				net->ctx, (uint32_t)(p - net->peer) + i, &net->link);
		if (p[i].ep == NULL)
			return -errno;
	}
	return 0;
}

static int
open_endpoints(struct kv_net *net, const struct crpc_kv_server_conf *conf, const struct sizes *size)
{
	uint32_t msg = (uint32_t)crpc_max(kv_req_max(conf), kv_resp_max(conf));
	struct crpc_copyrpc_conf c = {
		.dev = net->dev,
		.max_eps = net->peers,
		.ring_size = size->ring,
		.max_inflight = size->calls,
		.sq_depth = size->sq,
		.rq_depth = size->rq,
		.flush = conf->flush,
		.hold_ns = conf->hold_ns,
		.initial_pos = conf->initial_pos,
		.timeout_ns = net->timeout_ns,
		.peer_timeout_ns = net->timeout_ns,
		.max_large = kv_is_large(conf) ? msg : 0,
	};

	net->ctx = crpc_copyrpc_create(&c);
	if (net->ctx == NULL)
		return -errno;
	return conf->on_use ? 0 : make_endpoints(net, net->peer, net->peers);
}

int
__crpc_kv_net_open(struct kv_net *net, const struct crpc_kv_server_conf *c, uint32_t daemon,
	struct kv_fate *fate)
{
	uint32_t owners = c->ranks * c->daemons, lanes = kv_is_large(c) ? KV_NET_LANES : 1;
	uint32_t eps = (c->ranks - 1) * (c->by_number ? 1 : c->daemons) * lanes;
	struct sizes size = sizes_of(c);
	int rc;

	*net = (struct kv_net){
		.rank = c->rank,
		.ranks = c->ranks,
		.daemon = daemon,
		.daemons = c->daemons,
		.lanes = lanes,
		.by_number = c->by_number,
		.link = c->link,
		.fate = fate,
		.req_max = kv_req_max(c),
		.timeout_ns = c->timeout_ns != 0 ? c->timeout_ns : CRPC_KV_TIMEOUT_NS,
	};
	snprintf(net->silence, sizeof(net->silence), "it did not answer for %.1f s",
		(double)net->timeout_ns / 1e9);
	rc = open_device(net, c, &size, eps);
	if (rc != 0)
		return rc;
	net->peer = calloc(eps, sizeof(*net->peer));
	net->by_owner = calloc(owners, sizeof(*net->by_owner));
	rc = net->peer == NULL || net->by_owner == NULL
		? -ENOMEM
		: __crpc_kv_wait_init(&net->wait, c->calls, net->req_max, eps);
	if (rc != 0)
		return rc;
	choose_peers(net);
	return open_endpoints(net, c, &size);
}

void
__crpc_kv_net_address(const struct kv_net *net, uint32_t rank, uint8_t *buf)
{
	const struct kv_peer *p = kv_net_first(net, rank);

	for (uint32_t i = 0; i < kv_net_endpoints(net); i++)
		crpc_copyrpc_ep_addr(p[i].ep, buf + i * CRPC_COPYRPC_ADDR_LEN);
}

void
__crpc_kv_net_close(struct kv_net *net)
{
	crpc_copyrpc_free(net->ctx);
	crpc_rdma_close(net->dev);
	free(net->peer);
	free(net->by_owner);
	__crpc_kv_wait_free(&net->wait);
	*net = (struct kv_net){0};
}

/* Requests that wait for a daemon whose first endpoint this is. */
static struct kv_queue *
backlog(const struct kv_net *net, const struct kv_peer *p)
{
	return &net->wait.queue[p - net->peer];
}

static crpc_noinline int
call_later(struct kv_net *net, struct kv_peer *p, uint64_t now, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t token)
{
	struct kv_record *rec = kv_wait_take(&net->wait);

	if (rec == NULL)
		return -ENOBUFS;
	rec->token = token;
	rec->len = len;
	rec->resp_max = resp_max;
	memcpy(rec + 1, msg, len);
	__crpc_kv_wait_add(&net->wait, (uint32_t)(p - net->peer), rec, now);
	return 0;
}

static bool
is_lost(const struct kv_net *net, const struct kv_peer *p)
{
	const struct kv_other *o = &net->fate->other[p->rank];

	return p->down && (crpc_load_relaxed(&o->here) == 0 || crpc_load_relaxed(&o->why) != NULL);
}

/* A rank that is not connected: with on_use, the control thread learns that it is to be. */
static crpc_noinline int
call_down(struct kv_net *net, struct kv_peer *p, uint64_t now, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t token)
{
	if (is_lost(net, p))
		return -EHOSTUNREACH;
	if (len > net->req_max)
		return -EMSGSIZE;
	crpc_store_relaxed(&net->fate->other[p->rank].asked, 1);
	crpc_store_release(&net->fate->asked, 1); /* R3 */
	return call_later(net, p, now, msg, len, resp_max, token);
}

/* A daemon's first endpoint has no room: one of its others may. */
static crpc_noinline int
call_other(struct kv_net *net, const struct kv_peer *first, uint64_t now, const void *msg,
	uint32_t len, uint32_t resp_max, uint64_t token)
{
	int rc = -EAGAIN;

	for (uint32_t k = 1; k < net->lanes && rc == -EAGAIN; k++)
		rc = crpc_copyrpc_call(first[k].ep, now, msg, len, resp_max, token);
	return rc;
}

int
__crpc_kv_net_call(struct kv_net *net, uint64_t now, uint32_t owner, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t token)
{
	struct kv_peer *p = net->by_owner[owner];
	int rc;

	if (crpc_unlikely(p->down))
		return call_down(net, p, now, msg, len, resp_max, token);
	if (crpc_unlikely(len > net->req_max)) /* A client's block may be larger. */
		return -EMSGSIZE;
	if (crpc_unlikely(net->wait.waiting != 0) && !STAILQ_EMPTY(backlog(net, p)))
		return call_later(net, p, now, msg, len, resp_max, token);
	rc = crpc_copyrpc_call(p->ep, now, msg, len, resp_max, token);
	if (crpc_likely(rc == 0))
		return 0;
	if (rc == -EAGAIN && net->lanes > 1)
		rc = call_other(net, p, now, msg, len, resp_max, token);
	if (rc == 0)
		return 0;
	if (rc == -EAGAIN)
		return call_later(net, p, now, msg, len, resp_max, token);
	return rc == -EMSGSIZE ? rc : -EHOSTUNREACH;
}

int
__crpc_kv_net_send(void *of, uint32_t peer, struct kv_record *rec, uint64_t now)
{
	struct kv_net *net = of;
	struct kv_peer *p = &net->peer[peer];
	int rc = -EAGAIN;

	if (!p->down)
		rc = crpc_copyrpc_call(p->ep, now, rec + 1, rec->len, rec->resp_max, rec->token);
	if (!p->down && rc == -EAGAIN)
		rc = call_other(net, p, now, rec + 1, rec->len, rec->resp_max, rec->token);
	if (rc == 0) {
		kv_wait_put(&net->wait, rec);
		return 0;
	}
	/* An endpoint that broke keeps the request until watch() declares the peer lost. */
	return is_lost(net, p) || now - rec->since_ns >= net->timeout_ns ? -EHOSTUNREACH : -EAGAIN;
}

void
__crpc_kv_fate_lose(struct kv_fate *fate, uint32_t rank, const char *why)
{
	const char *none = NULL;

	if (crpc_cas_acq_rel(&fate->other[rank].why, &none, why))
		crpc_fetch_add_acq_rel(&fate->lost, 1);
}

static void
lose(struct kv_net *net, uint32_t rank, const char *why)
{
	struct kv_peer *p = kv_net_first(net, rank);

	__crpc_kv_fate_lose(net->fate, rank, why);
	for (uint32_t i = 0; i < kv_net_endpoints(net); i++) {
		p[i].down = true;
		if (p[i].ep != NULL)
			crpc_copyrpc_ep_shutdown(p[i].ep);
	}
}

/* @param addresses: what the rank's daemons wrote for ours, in their order. */
static int
connect_rank(struct kv_net *net, struct kv_peer *p, const uint8_t *addresses)
{
	uint32_t at, eps = kv_net_endpoints(net);
	int rc = make_endpoints(net, p, eps);

	for (uint32_t i = 0; i < eps && rc == 0; i++) {
		at = p[i].daemon * eps + p[i].lane;
		at += net->by_number ? 0 : net->daemon * net->lanes;
		rc = crpc_copyrpc_ep_connect(p[i].ep, addresses + at * CRPC_COPYRPC_ADDR_LEN);
	}
	for (uint32_t i = 0; i < eps && rc == 0; i++)
		p[i].down = false;
	return rc;
}

static int
reset(struct kv_net *net, struct kv_peer *p)
{
	/* Requests that wait for their first use stay. */
	if (p->ep == NULL)
		return make_endpoints(net, p, 1);
	return is_lost(net, p) && !STAILQ_EMPTY(backlog(net, p)) ? -EBUSY
								 : crpc_copyrpc_ep_reset(p->ep);
}

/*
 * A reset that is not possible is tried again later and later. Some tries are normal: the device
 * may need seconds for what was under way.
 */
static bool
reset_retry(struct kv_net *net, struct kv_peer *p, uint64_t now)
{
	uint32_t before = p->tries;
	int rc = 0;

	if (now < p->retry_ns)
		return false;
	/* Not 0: the device, or a poll(), is not through with what there was. */
	for (uint32_t i = 0; i < kv_net_endpoints(net) && rc == 0; i++)
		rc = reset(net, &p[i]);
	p->tries = rc == 0 ? 0 : rc == -EBUSY ? before + 1 : (uint32_t)crpc_max(before + 1, TRIES);
	p->retry_ns = rc == 0 ? 0 : now + (RETRY_NS << crpc_min(before, RETRY_SHIFT_MAX));
	if (before < TRIES && p->tries >= TRIES)
		crpc_err(
			"rank %u: daemon %u cannot make its endpoints fresh: %s; it is tried again "
			"each second, until then the rank is lost",
			p->rank, net->daemon, strerror(-rc));
	return rc == 0;
}

static void
attend(struct kv_net *net, uint32_t rank, uint64_t now)
{
	struct kv_other *o = &net->fate->other[rank];
	struct kv_peer *p = kv_net_first(net, rank);
	uint32_t want = crpc_load_acquire(&o->want); /* A1 */

	if (crpc_likely(want == crpc_load_relaxed(&p->seen)))
		return;
	if (want % 2 == 0 && !p->down)
		lose(net, rank, "it comes again");
	if (want % 2 == 0 && !reset_retry(net, p, now))
		return;
	if (want % 2 != 0 && connect_rank(net, p, o->addresses) != 0)
		lose(net, rank, "its endpoints cannot be connected to");
	crpc_store_release(&p->seen, want); /* R2 */
}

void
__crpc_kv_net_attend(struct kv_net *net, uint64_t now)
{
	for (uint32_t i = 0; i < net->ranks; i++)
		if (i != net->rank)
			attend(net, i, now);
}

void
__crpc_kv_net_watch(struct kv_net *net, uint64_t now)
{
	struct kv_peer *p;
	int rc;

	if (crpc_load_relaxed(&net->fate->leave) != 0)
		return;
	for (uint32_t i = 0; i < net->peers; i++) {
		p = &net->peer[i];
		if (p->down)
			continue;
		rc = crpc_copyrpc_ep_status(p->ep);
		if (crpc_load_relaxed(&net->fate->other[p->rank].why) != NULL)
			lose(net, p->rank, "it is known to be lost");
		else if (rc != 0)
			lose(net, p->rank,
				rc == -EPROTO              ? "it broke the protocol"
					: rc == -ETIMEDOUT ? net->silence
							   : "its connection broke");
	}
	__crpc_kv_net_attend(net, now);
}

void
__crpc_kv_net_send_stop(struct kv_net *net, uint64_t now)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t len = kv_req_write(msg, CRPC_KV_STOP, 0, 0);

	for (uint32_t i = 0; i < net->peers; i++)
		if (!net->peer[i].down)
			crpc_copyrpc_call(net->peer[i].ep, now, msg, len,
				sizeof(struct kv_resp_hdr), KV_NET_COOKIE_OWN);
}
