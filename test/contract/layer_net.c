/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layers between hosts: compiled once with each protocol. PROTOCOL is the prefix of its
 * functions and the name of its context, PROTOCOL_NAME its name. Each client is a host of its own;
 * the server makes a new endpoint for one that joins again, and keeps the one before, whose
 * requests may still be open.
 *
 * On NICs on paper, or, if the program was started on the software ConnectX in step mode, on such
 * cards and the driver that DRIVER names. Their clock runs faster than the protocol's: what a card
 * sends again after a timeout is not silence.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "crpc_paper_nic.h"
#include "soft_mlx5_step.h"

#ifdef IS_UDRPC
#include "udrpc_audit.h"
#define ADDR_LEN CRPC_UDRPC_ADDR_LEN
#else
#include "copyrpc_conn.h"
#include "crpc_copyrpc.h"
#define ADDR_LEN CRPC_COPYRPC_ADDR_LEN
/* Counts of bytes go past 2^32 or 2^64, their units past 2^30, those of batches past 2^31. */
static const uint64_t near_ends[] = {
	UINT64_C(1) << 32, UINT64_C(1) << 34, UINT64_C(1) << 35, UINT64_C(1) << 63, 0};
#endif

#define NET_PASTE(a, b) a##_##b
#define NET_NAME(a, b)  NET_PASTE(a, b)
#define API(name)       NET_NAME(PROTOCOL, name)
#define EP              API(ep)
#define CONF            API(conf)

/* Silence after which a peer is dead. */
#define SILENCE_NS 5000000u
/* Of a card's pass, and the passes that wait for its timers. */
#define CARD_NS     20000000u
#define CARD_PASSES 4u

static struct net {
	struct crpc_paper paper;
	bool on_cards;
	bool closing; /* A context that ends waits for its NIC: each look moves it. */
	struct soft_mlx5_step step;
	uint64_t card_ns;
	struct host {
		struct crpc_rdma *dev;
		uint32_t card;
		struct PROTOCOL *ctx;
		struct EP *ep;
	} client[CLIENTS], server;
	struct EP *ep[CLIENTS]; /* The server's. */
	uint32_t neps;
} net;

/* ---- the NICs ---- */

/* DRIVER=both: the server's is another one than the clients'. */
static const char *
driver_of(const struct host *h)
{
	const char *driver = getenv("DRIVER");

	if (driver == NULL || strcmp(driver, "both") != 0)
		return driver;
	return h == &net.server ? "mlx5" : "verbs";
}

static void
nic_open(struct host *h)
{
	const struct crpc_paper_conf paper = {.inline_max = 64};
	const struct crpc_rdma_conf card = {.cq_depth = 8192};

	assert_int_equal(crpc_rdma_driver_choose(net.on_cards ? driver_of(h) : NULL), 0);
	h->dev = net.on_cards ? crpc_rdma_open(&card) : crpc_paper_open(&net.paper, &paper);
	if (net.on_cards)
		h->card = net.step.last();
}

static void
nic_kill(struct host *h)
{
	if (net.on_cards)
		assert_int_equal(net.step.vanish(h->card), 0);
	else
		crpc_paper_kill(h->dev);
}

static void
cards_pass(void)
{
	net.card_ns += CARD_NS;
	(void)net.step.pass(SOFT_MLX5_STEP_ALL, net.card_ns, NULL); /* Or all are dead. */
}

/* All that was sent arrives. */
static void
nics_run(struct star *s)
{
	if (!net.on_cards) {
		crpc_paper_run(&net.paper);
		return;
	}
	for (uint32_t i = 0; i < (s->troubled ? CARD_PASSES : 0) || net.step.idle() == 0; i++)
		cards_pass();
}

/* What the driver calls while it waits, in the place of the software NIC's own. */
struct ibv_context;
uint32_t soft_mlx5_progress(struct ibv_context *context);

__attribute__((visibility("default"))) uint32_t
soft_mlx5_progress(struct ibv_context *context)
{
	(void)context;
	if (net.closing)
		cards_pass();
	return net.closing;
}

static void
nics_trouble(struct star *s, bool on)
{
	char faults[100];

	if (net.on_cards) {
		snprintf(faults, sizeof(faults),
			"seed=%llu,drop=0.05,dup=0.05,reorder=0.2,corrupt=0.01",
			(unsigned long long)s->seed);
		assert_int_equal(net.step.faults(SOFT_MLX5_STEP_ALL, on ? faults : ""), 0);
	}
	net.paper.drop = net.paper.duplicate = on ? 500 : 0;
	net.paper.reorder = net.paper.stall = net.paper.tear = on ? 2000 : 0;
	net.paper.corrupt = net.paper.refuse = on ? 100 : 0;
}

/* ---- hosts ---- */

/* Named clauses have the defaults, which seed 1 means; of random schedules each seed means other
 * modes and sizes of queues. */
static void
conf_vary(uint64_t seed, struct CONF *conf)
{
	if (seed <= 3)
		return;
	conf->sq_depth = 8u << seed % 5;
#ifdef IS_UDRPC
	conf->credits = 1 + seed * 7 % CRPC_UDRPC_CREDITS_MAX;
	conf->rq_depth = 256 + seed % 300;
	conf->pkt_max = CRPC_UDRPC_PKT_MIN + seed % 3 * 100;
	conf->no_congestion_control = seed % 3 == 0;
	conf->t_low_ns = 1 + seed * 7919 % 50000;
	conf->t_high_ns = conf->t_low_ns + seed * 104729 % 200000;
	conf->link_bytes_per_s = UINT64_C(100000000) << seed % 7;
#else
	conf->flush = (enum crpc_copyrpc_flush_policy)(seed / 6 % 4);
	/* A card that finds no receive tries again until its peer polls. */
	conf->rq_depth = net.on_cards ? 0 : 1 + seed % 8;
	if (conf->ring_size == 16384)
		conf->ring_size >>= seed % 3;
	conf->max_outstanding = 1 + seed % 3;
	conf->batch_max = seed % 2 ? 0 : 512;
	conf->age_ns = 1000 + seed * 7919 % 50000;
#endif
}

static struct EP *
ep_make(struct star *s, struct host *h, uint32_t peer)
{
#ifdef IS_UDRPC
	return API(ep_create)(h->ctx, peer);
#else
	const struct crpc_copyrpc_ep_conf mode = {
		.flow = s->seed <= 3 ? 0 : (enum crpc_copyrpc_flow)(s->seed % 3),
		.arrival = s->seed <= 3 ? 0 : (enum crpc_copyrpc_arrival)(s->seed / 3 % 2)};

	return crpc_copyrpc_ep_create_as(h->ctx, peer, &mode);
#endif
}

static void
host_open(struct star *s, struct host *h, uint32_t eps)
{
	struct CONF conf = {.max_eps = eps, .max_msg = MSG_MAX, .timeout_ns = s->timeout_ns};

	nic_open(h);
#ifdef IS_UDRPC
	conf.pkt_max = 256;
	conf.slots = s->window;
	/* A window of the largest requests goes without a poll. */
	conf.credits = (uint32_t)crpc_min(4 * s->window, CRPC_UDRPC_CREDITS_MAX);
	conf.rto_ns = SILENCE_NS / 100;
	conf.retries = 100;
	conf.seed = s->seed * 100 + net.neps + 1;
#else
	/*
	 * Not much more than a window of the largest: what is reused too early shows. A request
	 * that is held keeps the room of those behind it, which must do until its deadline.
	 */
	conf.ring_size = s->window == WIDE || s->timeout_ns < UINT32_MAX ? 65536 : 16384;
	conf.max_inflight = s->window;
	conf.peer_timeout_ns = SILENCE_NS;
	conf.update_ns = STEP_NS;
	if (s->near_end)
		conf.initial_pos = near_ends[s->lives % CRPC_DIM(near_ends)] - 4096;
#endif
	conf_vary(s->seed, &conf);
	conf.dev = h->dev;
	h->ctx = API(create)(&conf);
	assert_or_log(h->dev != NULL && h->ctx != NULL);
}

/* Nothing is due at either end, and nothing was lost on the way, unless a peer has left. */
static void
host_rests(struct star *s, struct host *h)
{
	if (h->ctx != NULL)
		expect(s, API(check)(h->ctx, s->lives == CLIENTS && !s->server_gone) == 0);
}

static void
host_close(struct host *h)
{
	if (h->ctx == NULL)
		return;
	net.closing = net.paper.autorun = true; /* What it sends last leaves. */
	API(free)(h->ctx);
	crpc_rdma_close(h->dev);
	net.closing = net.paper.autorun = false;
	*h = (struct host){0};
}

/* Both ends of a session count the requests of each slot. */
static void
near_end(struct EP *ep)
{

#ifdef IS_UDRPC

	if (ep->ctx->next_token == 1)
		ep->ctx->next_token = (UINT64_C(1) << 41) - 100;
	for (uint32_t i = 0; i < ep->slots; i++) {
		call_at(ep, i)->req = UINT32_MAX - 20;
		ep->serves[i].req = UINT32_MAX - 20;
	}
#else
	for (uint32_t i = 1; i <= ep->calls.size; i++) /* Eight calls before the end of the ids. */
		ep->slots[i].call.id -= 8 * (ep->calls.mask + 1);
#endif
}

static void
net_join(struct star *s, uint32_t c)
{
	uint8_t addr[2][ADDR_LEN];
	struct host *h = &net.client[c];

	host_close(h);
	host_open(s, h, 1);
	h->ep = ep_make(s, h, 0);
	net.ep[c] = ep_make(s, &net.server, 10 * net.neps++ + c);
	assert_or_log(h->ep != NULL && net.ep[c] != NULL);
	API(ep_addr)(h->ep, addr[0]);
	API(ep_addr)(net.ep[c], addr[1]);
	assert_int_equal(API(ep_connect)(h->ep, addr[1]), 0);
	assert_int_equal(API(ep_connect)(net.ep[c], addr[0]), 0);
	if (s->near_end) {
		near_end(h->ep);
		near_end(net.ep[c]);
	}
}

static void
net_open(struct star *s)
{
	net = (struct net){.paper = {.rng = s->rng}};
	net.on_cards = soft_mlx5_step_find(&net.step) == 0;
	if (net.on_cards)
		assert_int_equal(net.step.start(s->seed), 0);
	host_open(s, &net.server, LIVES_MAX);
	for (uint32_t c = 0; c < CLIENTS; c++)
		net_join(s, c);
}

static void
net_close(struct star *s)
{
	host_rests(s, &net.server);
	for (uint32_t c = 0; c < CLIENTS; c++)
		host_rests(s, &net.client[c]);
	host_close(&net.server);
	for (uint32_t c = 0; c < CLIENTS; c++)
		host_close(&net.client[c]);
}

static int
net_call(struct star *s, uint32_t c, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	return API(call)(net.client[c].ep, s->now, buf, len, resp_max, cookie);
}

static int
net_notify(struct star *s, uint32_t c, const void *buf, uint32_t len)
{
	return API(notify)(net.client[c].ep, s->now, buf, len);
}

static uint32_t
net_cancel(struct star *s, uint32_t c, uint64_t cookie)
{
	return API(cancel)(net.client[c].ep, s->now, cookie);
}

static uint16_t
net_poll(struct star *s, uint32_t c, struct crpc_done *done, uint16_t n)
{
	return API(poll)(net.client[c].ctx, s->now, done, n);
}

static void
net_drive(struct star *s)
{
	struct crpc_done done[4];

	assert_int_equal(API(poll)(net.server.ctx, s->now, done, 4), 0);
	API(flush)(net.server.ctx, s->now);
}

static uint16_t
net_recv(struct star *s, struct crpc_req *req, uint16_t n)
{
	struct crpc_done done[CRPC_BURST_MAX];

	assert_int_equal(API(poll)(net.server.ctx, s->now, done, CRPC_BURST_MAX), 0);
	expect(s, API(check)(net.server.ctx, false) == 0);
	return API(recv)(net.server.ctx, s->now, req, n);
}

static int
net_reply(struct star *s, uint64_t token, const void *buf, uint32_t len)
{
	return API(reply)(net.server.ctx, s->now, token, buf, len);
}

static int
net_fail(struct star *s, uint64_t token, int32_t status)
{
	return API(fail)(net.server.ctx, s->now, token, status);
}

static int
net_release(struct star *s, uint64_t token)
{
	return API(release)(net.server.ctx, s->now, token);
}

static void
net_flush(struct star *s)
{
	if (net.server.ctx != NULL)
		API(flush)(net.server.ctx, s->now);
	for (uint32_t c = 0; c < CLIENTS; c++)
		if (net.client[c].ctx != NULL)
			API(flush)(net.client[c].ctx, s->now);
	nics_run(s);
}

static void
net_leave(struct star *s, uint32_t c)
{
	host_close(&net.client[c]);
}

static void
net_call_and_die(struct star *s, uint32_t c, uint32_t first, uint32_t len)
{
	uint8_t buf[MSG_MAX];

	net_join(s, c);
	for (uint32_t i = 0; i < WINDOW; i++) {
		star_fill(buf, first + i, false, len);
		assert_int_equal(net_call(s, c, buf, len, MSG_MAX, first + i), 0);
	}
	net_flush(s);
	nic_kill(&net.client[c]);
}

static bool
net_gone(struct star *s, uint32_t c)
{
	return API(ep_status)(net.ep[c]) != 0;
}

static void
net_server_leave(struct star *s)
{
	host_close(&net.server);
}

static void
net_server_kill(struct star *s)
{
	nic_kill(&net.server);
	host_close(&net.server);
}

static const struct crpc_rpc_counts *
net_counts(struct star *s, uint32_t c)
{
	return &API(stats)(net.client[c].ctx)->rpc;
}

static const struct contract_layer layer = {
	.name = PROTOCOL_NAME,
	.msg_max = MSG_MAX,
	.counters_near_end = true,
	.open = net_open,
	.close = net_close,
	.call = net_call,
	.notify = net_notify,
	.cancel = net_cancel,
	.poll = net_poll,
	.recv = net_recv,
	.reply = net_reply,
	.fail_with = net_fail,
	.release = net_release,
	.flush = net_flush,
	.drive = net_drive,
	.leave = net_leave,
	.call_and_die = net_call_and_die,
	.gone = net_gone,
	.join = net_join,
	.server_leave = net_server_leave,
	.server_kill = net_server_kill,
	.trouble = nics_trouble,
	.counts = net_counts,
};

const struct contract_layer *const contract_layers[] = {&layer, NULL};
