/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_fail.h"
#include "crpc_log.h"
#include "net.h"

/* Bytes of an address key in the exchange. */
#define NET_KEY_LEN 64

static uint32_t
cq_depth(uint32_t eps, uint32_t sq_depth, uint32_t rq_depth)
{
	return (uint32_t)crpc_pow2_ceil((uint64_t)eps * (sq_depth + rq_depth));
}

/* A ring that holds what the clients of this rank can have open, without waste at small sizes. */
uint32_t
kv_net_ring_size(const struct kv_net_conf *conf)
{
	/* What is larger does not go through the ring. */
	uint64_t msg = crpc_min(crpc_max(conf->req_max, conf->resp_max), KV_REQ_MAX) + 64;
	uint64_t want = crpc_pow2_ceil(crpc_max(conf->max_inflight, 64) * msg * 2);

	return (uint32_t)crpc_min(crpc_max(want, 64 * 1024), 4 * 1024 * 1024);
}

int
kv_net_open_device(
	const struct kv_net_conf *conf, uint32_t eps, struct crpc_rdma **dev, char name[64])
{
	struct crpc_rdma_conf rdma = {
		.device = conf->device,
		.gid_index = -1,
		.cq_depth = cq_depth(eps == 0 ? 1 : eps, 64, 128),
	};
	struct crpc_rdma_info info;

	crpc_log_clear();
	*dev = crpc_rdma_open(&rdma);
	if (*dev == NULL)
		return app_fail(
			"cannot use RDMA device %s: %s (%s); give an active mlx5 device with "
			"--device, or start under usertools/soft-mlx5, the software one",
			conf->device == NULL ? "(any)" : conf->device, strerror(errno),
			crpc_log_last());
	crpc_rdma_info_get(*dev, &info);
	memcpy(name, info.name, 64);
	return 0;
}

/* One place for each call that can be open: a backlog cannot overflow. */
static int
pool_init(struct kv_net *net, const struct kv_net_conf *conf)
{
	size_t place = crpc_align_up(sizeof(struct kv_waiting) + conf->req_max, 16);
	struct kv_waiting *w;
	uint32_t i;

	net->pool = calloc(conf->max_inflight, place);
	if (net->pool == NULL)
		return -ENOMEM;
	for (i = 0; i < conf->max_inflight; i++) {
		w = (struct kv_waiting *)(net->pool + i * place);
		w->next = net->pool_free;
		net->pool_free = w;
	}
	return 0;
}

/* Whom we have endpoints to, and through which of them each owner is reached. */
static void
choose_peers(struct kv_net *net, bool by_number)
{
	uint32_t r, d, k, to = by_number ? 1 : net->daemons;
	struct kv_peer *first, *p;

	for (r = 0; r < net->ranks; r++) {
		if (r == net->rank)
			continue;
		first = &net->peer[net->peers];
		for (k = 0; k < to * net->lanes; k++) {
			p = &net->peer[net->peers++];
			p->rank = r;
			p->daemon = by_number ? net->daemon : k / net->lanes;
			p->lane = k % net->lanes;
			p->last = &p->first;
		}
		for (d = 0; d < net->daemons; d++)
			net->by_owner[r * net->daemons + d] =
				by_number ? first : first + d * net->lanes;
	}
}

static int
open_endpoints(struct kv_net *net, const struct kv_net_conf *conf)
{
	struct crpc_copyrpc_conf c = {
		.dev = net->dev,
		.max_eps = net->peers,
		.ring_size = kv_net_ring_size(conf),
		.max_inflight = kv_net_inflight(conf->max_inflight),
		.flush = conf->flush,
		.hold_ns = conf->hold_ns,
		.timeout_ns = net->timeout_ns,
		.max_large =
			conf->large ? (uint32_t)crpc_max(conf->req_max, conf->resp_max) : 0,
	};
	uint32_t i;

	net->ctx = crpc_copyrpc_create(&c);
	if (net->ctx == NULL)
		return -errno;
	for (i = 0; i < net->peers; i++) {
		net->peer[i].ep = crpc_copyrpc_ep_create(net->ctx, i);
		if (net->peer[i].ep == NULL)
			return -errno;
	}
	return 0;
}

int
kv_net_open(struct kv_net *net, const struct app_boot *boot, const struct kv_net_conf *conf)
{
	uint32_t owners = boot->size * conf->daemons, lanes = conf->large ? KV_NET_LANES : 1;
	uint32_t eps = (boot->size - 1) * (conf->by_number ? 1 : conf->daemons) * lanes;
	int rc;

	*net = (struct kv_net){
		.rank = boot->rank,
		.ranks = boot->size,
		.daemon = conf->daemon,
		.daemons = conf->daemons,
		.lanes = lanes,
		.fate = conf->fate,
		.req_max = conf->req_max,
		.timeout_ns = kv_net_timeout_ns(boot),
	};
	rc = kv_net_open_device(conf, eps, &net->dev, net->device);
	if (rc != 0 || boot->size == 1)
		return rc;
	net->peer = calloc(eps, sizeof(*net->peer));
	net->by_owner = calloc(owners, sizeof(*net->by_owner));
	rc = net->peer == NULL || net->by_owner == NULL ? -ENOMEM : pool_init(net, conf);
	if (rc == 0) {
		choose_peers(net, conf->by_number);
		rc = open_endpoints(net, conf);
	}
	if (rc != 0)
		return app_fail("cannot make %u endpoints to %u ranks on %s: %s (%s); start fewer "
				"ranks, daemons or clients, or raise the memlock limit",
			eps, net->ranks - 1, net->device, strerror(-rc), crpc_log_last());
	return 0;
}

/* Name of the address that daemon `from` of a rank publishes for daemon `to` of rank `rank`. */
static void
address_key(char *key, uint32_t from, uint32_t rank, uint32_t to, uint32_t lane)
{
	snprintf(key, NET_KEY_LEN, "kv.addr.%u.%u.%u.%u", from, rank, to, lane);
}

int
kv_net_publish(struct kv_net *net, struct app_boot *boot)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
	char key[NET_KEY_LEN];
	struct kv_peer *p;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < net->peers && rc == 0; i++) {
		p = &net->peer[i];
		crpc_copyrpc_ep_addr(p->ep, addr);
		address_key(key, net->daemon, p->rank, p->daemon, p->lane);
		rc = app_boot_put(boot, key, addr, sizeof(addr));
	}
	return rc;
}

static int
connect_one(struct kv_net *net, struct app_boot *boot, struct kv_peer *p)
{
	char key[NET_KEY_LEN];
	void *addr;
	size_t len;
	int rc;

	address_key(key, p->daemon, net->rank, net->daemon, p->lane);
	rc = app_boot_get(boot, p->rank, key, &addr, &len, KV_NET_EXCHANGE_MS);
	if (rc != 0)
		return rc;
	rc = len == CRPC_COPYRPC_ADDR_LEN ? crpc_copyrpc_ep_connect(p->ep, addr) : -EPROTO;
	free(addr);
	return rc;
}

int
kv_net_connect(struct kv_net *net, struct app_boot *boot)
{
	struct kv_peer *p;
	uint32_t i;
	int rc;

	for (i = 0; i < net->peers; i++) {
		p = &net->peer[i];
		rc = connect_one(net, boot, p);
		if (rc != 0)
			return app_fail("cannot connect daemon %u to daemon %u of rank %u over %s: "
					"%s (%s); all ranks need the same version and options, and "
					"a network between them",
				net->daemon, p->daemon, p->rank, net->device, strerror(-rc),
				crpc_log_last());
	}
	return 0;
}

void
kv_net_close(struct kv_net *net)
{
	crpc_copyrpc_free(net->ctx);
	crpc_rdma_close(net->dev);
	free(net->peer);
	free(net->by_owner);
	free(net->pool);
	*net = (struct kv_net){0};
}

static void
backlog_push(struct kv_net *net, struct kv_peer *p, struct kv_waiting *w)
{
	w->next = NULL;
	*p->last = w;
	p->last = &w->next;
	net->waiting++;
}

static struct kv_waiting *
backlog_pop(struct kv_net *net, struct kv_peer *p)
{
	struct kv_waiting *w = p->first;

	p->first = w->next;
	if (p->first == NULL)
		p->last = &p->first;
	net->waiting--;
	return w;
}

static void
pool_put(struct kv_net *net, struct kv_waiting *w)
{
	w->next = net->pool_free;
	net->pool_free = w;
}

static crpc_noinline int
call_later(struct kv_net *net, struct kv_peer *p, const void *msg, uint32_t len, uint32_t resp_max,
	uint64_t token)
{
	struct kv_waiting *w = net->pool_free;

	if (w == NULL)
		return -ENOBUFS;
	net->pool_free = w->next;
	w->token = token;
	w->len = len;
	w->resp_max = resp_max;
	memcpy(w + 1, msg, len);
	backlog_push(net, p, w);
	net->waited++;
	return 0;
}

/* A daemon's first endpoint has no room: one of its others may. */
static crpc_noinline int
call_other(struct kv_net *net, const struct kv_peer *first, uint64_t now, const void *msg,
	uint32_t len, uint32_t resp_max, uint64_t token)
{
	uint32_t k;
	int rc = -EAGAIN;

	for (k = 1; k < net->lanes && rc == -EAGAIN; k++)
		rc = crpc_copyrpc_call(first[k].ep, now, msg, len, resp_max, token);
	return rc;
}

int
kv_net_call(struct kv_net *net, uint64_t now, uint32_t owner, const void *msg, uint32_t len,
	uint32_t resp_max, uint64_t token)
{
	struct kv_peer *p = net->by_owner[owner];
	int rc;

	if (crpc_unlikely(p->lost))
		return -EHOSTUNREACH;
	if (crpc_unlikely(len > net->req_max)) /* A client's block may be larger. */
		return -EMSGSIZE;
	if (crpc_unlikely(p->first != NULL))
		return call_later(net, p, msg, len, resp_max, token);
	rc = crpc_copyrpc_call(p->ep, now, msg, len, resp_max, token);
	if (crpc_likely(rc == 0))
		return 0;
	if (rc == -EAGAIN && net->lanes > 1)
		rc = call_other(net, p, now, msg, len, resp_max, token);
	if (rc == 0)
		return 0;
	if (rc == -EAGAIN)
		return call_later(net, p, msg, len, resp_max, token);
	return rc == -ECONNRESET || rc == -EPROTO ? -EHOSTUNREACH : rc;
}

uint32_t
kv_net_drain(struct kv_net *net, uint64_t now)
{
	struct kv_waiting *w;
	struct kv_peer *p;
	uint32_t i, sent = 0;
	int rc;

	for (i = 0; i < net->peers && net->waiting != 0; i++) {
		p = &net->peer[i];
		while (p->first != NULL && !p->lost && sent < CRPC_BURST_MAX) {
			w = p->first;
			rc = crpc_copyrpc_call(p->ep, now, w + 1, w->len, w->resp_max, w->token);
			if (rc == -EAGAIN)
				rc = call_other(
					net, p, now, w + 1, w->len, w->resp_max, w->token);
			/*
			 * An endpoint that broke keeps the request until watch() declares the peer
			 * lost.
			 */
			if (rc != 0)
				break;
			pool_put(net, backlog_pop(net, p));
			sent++;
		}
	}
	return sent;
}

bool
kv_net_pop_lost(struct kv_net *net, uint64_t *token)
{
	struct kv_waiting *w;
	uint32_t i;

	for (i = 0; i < net->peers && net->waiting != 0; i++) {
		if (!net->peer[i].lost || net->peer[i].first == NULL)
			continue;
		w = backlog_pop(net, &net->peer[i]);
		*token = w->token;
		pool_put(net, w);
		return true;
	}
	return false;
}

void
kv_fate_lose(struct kv_fate *fate, uint32_t self, uint32_t rank, const char *why)
{
	if (crpc_exchange_acq_rel(&fate->gone[rank], 1) != 0)
		return;
	crpc_fetch_add_acq_rel(&fate->lost, 1);
	app_note("rank %u: lost rank %u (%s); operations on its keys fail from now on, all "
		 "others go on",
		self, rank, why);
}

static void
lose(struct kv_net *net, uint32_t rank, const char *why)
{
	uint32_t i;

	kv_fate_lose(net->fate, net->rank, rank, why);
	for (i = 0; i < net->peers; i++) {
		if (net->peer[i].rank != rank || net->peer[i].lost)
			continue;
		net->peer[i].lost = true;
		crpc_copyrpc_ep_shutdown(net->peer[i].ep);
	}
}

void
kv_net_own_done(struct kv_net *net, const struct crpc_done *done)
{
	uint64_t id = done->cookie - KV_NET_COOKIE_OWN;
	char why[64];

	if (id >= net->peers) /* the answer to a stop: ignored */
		return;
	net->peer[id].ping_open = false;
	if (done->status != -ETIMEDOUT)
		return;
	snprintf(why, sizeof(why), "it did not answer for %.1f s", (double)net->timeout_ns / 1e9);
	lose(net, net->peer[id].rank, why);
}

static void
ping(struct kv_net *net, uint64_t now, uint32_t i)
{
	struct kv_peer *p = &net->peer[i];
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t len = kv_req_write(msg, KV_PING, 0, 0);

	if (p->ping_open || now - p->ping_ns < KV_NET_PING_NS)
		return;
	if (crpc_copyrpc_call(p->ep, now, msg, len, sizeof(struct kv_resp_hdr),
		    KV_NET_COOKIE_OWN + i) != 0)
		return;
	p->ping_open = true;
	p->ping_ns = now;
}

void
kv_net_watch(struct kv_net *net, uint64_t now, bool ask)
{
	struct kv_peer *p;
	uint32_t i;
	int rc;

	for (i = 0; ask && i < net->peers; i++) {
		p = &net->peer[i];
		if (p->lost)
			continue;
		rc = crpc_copyrpc_ep_status(p->ep);
		if (kv_fate_gone(net->fate, p->rank))
			lose(net, p->rank, "already reported");
		else if (rc != 0)
			lose(net, p->rank,
				rc == -EPROTO ? "it broke the protocol" : "its connection broke");
		else
			ping(net, now, i);
	}
}

void
kv_net_send_stop(struct kv_net *net, uint64_t now)
{
	uint8_t msg[sizeof(struct kv_req_hdr)];
	uint32_t len = kv_req_write(msg, KV_STOP, 0, 0), i;

	for (i = 0; i < net->peers; i++)
		if (!net->peer[i].lost)
			crpc_copyrpc_call(net->peer[i].ep, now, msg, len,
				sizeof(struct kv_resp_hdr),
				KV_NET_COOKIE_OWN + KV_NET_PEERS_MAX + i);
}

void
kv_net_count(const struct crpc_copyrpc *ctx, struct crpc_rdma *dev,
	const struct crpc_rdma_stats *begin, struct kv_net_counts *counts)
{
	const struct crpc_copyrpc_stats *c = crpc_copyrpc_stats(ctx);
	struct crpc_rdma_stats r;
	uint32_t i;

	crpc_rdma_stats_get(dev, &r);
	counts->calls += c->rpc.calls;
	counts->messages += c->messages_sent;
	counts->batches += c->batches_sent;
	counts->updates += c->updates_sent;
	counts->bytes += c->bytes_sent;
	counts->doorbells += r.doorbells - begin->doorbells;
	counts->wqes += r.wqes - begin->wqes;
	counts->wqebbs += r.wqebbs - begin->wqebbs;
	counts->send_cqes += r.send_cqes - begin->send_cqes;
	counts->recv_cqes += r.recv_cqes - begin->recv_cqes;
	counts->again += c->again_window + c->again_reply + c->again_inflight;
	for (i = 0; i < KV_BATCH_BUCKETS; i++)
		counts->batch_size[i] += c->batch_size[i];
	crpc_hist_merge(&counts->queue, &c->queue);
	crpc_hist_merge(&counts->wire, &c->wire);
	crpc_hist_merge(&counts->peer, &c->peer);
}
