/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The far end: opened, connected and stepped on this lcore, on the second one, or in the other
 * rank, which is asked by calls of copyrpc over a connection of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "app_fail.h"
#include "crpc_idle.h"
#include "crpc_log.h"
#include "net.h"

#define LINK_NS    UINT64_C(60000000000)
#define MEET_MS    20000
/* Turns of a served end between two looks at the link. */
#define LINK_EVERY 64
#define TURNS      8

enum net_op { OP_OPEN, OP_CONNECT, OP_START, OP_STOP, OP_CLOSE, OP_QUIT };

/* What the near side asks for, and the answer to it. */
struct net_msg {
	uint32_t op; /* enum net_op */
	int32_t rc;
	uint32_t index;
	uint32_t endpoint;
	uint64_t away_ns;
	struct net_conf conf;
	struct net_ledger ledger;
	uint8_t addr[NET_ADDR_LEN];
	char why[224];
};

struct net_link {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_idle idle;
};

/* ---- what is done where the far end lives ---- */

static struct net_end *served[NET_LANES_MAX];

static void
far_connect(struct net_end *e, struct net_msg *m)
{
	uint8_t theirs[NET_ADDR_LEN];

	memcpy(theirs, m->addr, sizeof(theirs));
	e->ops->addr(e, m->endpoint, m->addr);
	m->rc = e->ops->connect(e, m->endpoint, theirs);
	snprintf(m->why, sizeof(m->why), "%s", e->why);
}

/* Another rank may be of another build. */
static bool
conf_is_good(const struct net_conf *c)
{
	return c->transport < NET_ALL && net_ops[c->transport]->built && c->endpoints >= 1 &&
	       c->endpoints <= NET_ENDPOINTS_MAX && c->active <= c->endpoints && c->depth >= 1 &&
	       c->depth <= NET_DEPTH_MAX && c->size >= 8 && c->size <= NET_BULK;
}

static void
far_open(struct net_end **e, struct net_msg *m)
{
	if (conf_is_good(&m->conf))
		*e = net_end_open(&m->conf, true, m->why, sizeof(m->why));
	else
		snprintf(m->why, sizeof(m->why), "asked for what this build has not");
	m->rc = *e == NULL ? -EIO : 0;
}

static void
far_do(struct net_msg *m)
{
	struct net_end **e = &served[m->index % NET_LANES_MAX];

	m->rc = 0;
	m->why[0] = '\0';
	if (m->op == OP_OPEN && *e == NULL) {
		far_open(e, m);
	} else if (*e == NULL || (m->op == OP_CONNECT && m->endpoint >= (*e)->conf.endpoints)) {
		m->rc = -ENOENT;
	} else if (m->op == OP_CONNECT) {
		far_connect(*e, m);
	} else if (m->op == OP_STOP) {
		(*e)->ops->ledger(*e, &m->ledger);
		m->rc = (*e)->broken ? -EIO : 0;
		snprintf(m->why, sizeof(m->why), "%s", (*e)->why);
	} else if (m->op == OP_CLOSE) {
		net_end_close(*e);
		*e = NULL;
	}
}

/* ---- the other rank ---- */

static void
link_close(struct net_link *l)
{
	if (l == NULL)
		return;
	crpc_copyrpc_free(l->ctx);
	crpc_rdma_close(l->dev);
	free(l);
}

static int
link_make(struct net_link *l)
{
	struct crpc_rdma_conf rdma = {.device = net_device(), .gid_index = -1};
	struct crpc_copyrpc_conf conf = {.timeout_ns = LINK_NS, .flush = CRPC_COPYRPC_IMMEDIATE};

	l->dev = crpc_rdma_open(&rdma);
	if (l->dev == NULL)
		return app_fail("%s", crpc_log_last());
	conf.dev = l->dev;
	l->ctx = crpc_copyrpc_create(&conf);
	if (l->ctx != NULL)
		l->ep = crpc_copyrpc_ep_create(l->ctx, 0);
	return l->ep != NULL ? 0 : app_fail("%s", crpc_log_last());
}

static int
link_meet(struct net_link *l, struct app_boot *boot)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
	void *theirs = NULL;
	size_t len = 0;
	int rc;

	crpc_copyrpc_ep_addr(l->ep, addr);
	rc = app_boot_put(boot, "net.link", addr, sizeof(addr));
	if (rc == 0)
		rc = app_boot_get(boot, 1 - boot->rank, "net.link", &theirs, &len, MEET_MS);
	if (rc == 0)
		rc = len == sizeof(addr) ? crpc_copyrpc_ep_connect(l->ep, theirs) : -EPROTO;
	free(theirs);
	if (rc == 0)
		rc = app_boot_fence(boot, MEET_MS);
	return rc == 0 ? 0 : app_fail("the other rank: %s; start both again", strerror(-rc));
}

static int
link_open(struct net_link **link, struct rpb *rpb)
{
	struct net_link *l = calloc(1, sizeof(*l));
	int rc;

	if (l == NULL)
		return app_fail("out of memory");
	rc = link_make(l);
	if (rc == 0)
		rc = link_meet(l, &rpb->boot);
	l->idle.policy = rpb->shared ? CRPC_IDLE_YIELD : CRPC_IDLE_POLL;
	if (rc != 0)
		link_close(l);
	else
		*link = l;
	return rc;
}

/* Ask the other rank: 0, or -errno with far->why. */
static int
link_ask(struct net_far *far, struct net_msg *m)
{
	struct net_link *l = far->link;
	struct crpc_done done;
	uint64_t now = crpc_clock_ns();
	int rc = crpc_copyrpc_call(l->ep, now, m, sizeof(*m), sizeof(*m), 0);
	uint16_t n = 0;

	while (rc == 0 && n == 0) {
		now = crpc_clock_ns();
		n = crpc_copyrpc_poll(l->ctx, now, &done, 1);
		crpc_idle_turn(&l->idle, n);
	}
	if (rc == 0)
		rc = done.status != 0 ? done.status : done.len == sizeof(*m) ? 0 : -EPROTO;
	if (rc == 0) {
		memcpy(m, done.data, sizeof(*m));
		m->why[sizeof(m->why) - 1] = '\0';
		rc = m->rc;
		snprintf(far->why, sizeof(far->why), "%s", m->why);
	} else {
		snprintf(far->why, sizeof(far->why), "the other rank is lost: %s", strerror(-rc));
	}
	return rc;
}

/* One request of the near side: returns the end that is served from now on, or NULL. */
static struct net_end *
link_serve(struct net_link *l, struct net_end *now_served, bool *quit)
{
	static uint64_t away;
	struct crpc_done done;
	struct crpc_req req;
	struct net_msg m;
	uint64_t now = crpc_clock_ns();

	crpc_copyrpc_poll(l->ctx, now, &done, 1);
	if (crpc_copyrpc_recv(l->ctx, now, &req, 1) == 0)
		return now_served;
	if (req.len != sizeof(m)) {
		crpc_copyrpc_fail(l->ctx, now, req.token, -EPROTO);
		return now_served;
	}
	memcpy(&m, req.data, sizeof(m));
	far_do(&m);
	if (m.op == OP_START && m.rc == 0) {
		away = app_measure_away_ns();
		now_served = served[m.index % NET_LANES_MAX];
	} else {
		m.away_ns = app_measure_away_ns() - away;
		now_served = NULL;
	}
	*quit = m.op == OP_QUIT;
	crpc_copyrpc_reply(l->ctx, crpc_clock_ns(), req.token, &m, sizeof(m));
	return now_served;
}

/* Our own answer to the last request has to leave before the device is closed. */
static void
link_linger(struct net_link *l)
{
	uint64_t end = crpc_clock_ns() + 100000000;
	struct crpc_done done;

	while (crpc_clock_ns() < end) {
		crpc_copyrpc_poll(l->ctx, crpc_clock_ns(), &done, 1);
		crpc_idle_turn(&l->idle, 0);
	}
}

int
net_far_serve(struct rpb *rpb)
{
	struct net_end *e = NULL;
	struct net_link *l;
	bool quit = false;
	uint32_t i, n;
	int rc = link_open(&l, rpb);

	if (rc != 0)
		return rc;
	/* The device does not report a peer to which nothing is open, so its process is watched. */
	while (!quit && !rpb_interrupted() && crpc_copyrpc_ep_status(l->ep) == 0 &&
		!app_boot_gone(&rpb->boot, 0)) {
		app_boot_look(&rpb->boot, crpc_clock_ns());
		e = link_serve(l, e, &quit);
		for (i = n = 0; e != NULL && i < LINK_EVERY; i++)
			n += e->ops->step(e, crpc_clock_ns(), true);
		crpc_idle_turn(&l->idle, n);
	}
	if (quit)
		link_linger(l);
	for (i = 0; i < NET_LANES_MAX; i++)
		net_end_close(served[i]);
	link_close(l);
	return quit || rpb_interrupted() ? APP_EXIT_OK
					 : app_fail("rank 0 is lost before it was done");
}

/* ---- the second lcore ---- */

static unsigned int
worker(void)
{
	return rte_get_next_lcore(-1U, 1, 0);
}

static int
worker_main(void *arg)
{
	struct net_far *far = arg;

	crpc_load_acquire(&far->posted); /* A62 pairs with R62 */
	far->work(far, far->arg);
	crpc_store_release(&far->done, 1); /* R63 */
	return 0;
}

/* Have the second lcore do something: 0 or -EBUSY. */
static int
worker_start(struct net_far *far, void (*work)(struct net_far *far, void *arg), void *arg)
{
	far->work = work;
	far->arg = arg;
	crpc_store_release(&far->posted, 1); /* R62 */
	return rte_eal_remote_launch(worker_main, far, worker()) == 0 ? 0 : -EBUSY;
}

static void
worker_wait(struct net_far *far)
{
	rte_eal_wait_lcore(worker());
	crpc_load_acquire(&far->done); /* A63 pairs with R63 */
}

static void
worker_serve(struct net_far *far, void *arg)
{
	struct net_end *e = far->end;
	uint64_t before = app_measure_away_ns();
	uint32_t i;

	crpc_store_release(&far->ready, 1); /* R60 */
	while (crpc_load_acquire(&far->stop) == 0) /* A61 pairs with R61 */
		for (i = 0; i < TURNS; i++)
			e->ops->step(e, crpc_clock_ns(), true);
	far->away_ns = app_measure_away_ns() - before;
}

static void
worker_pong(struct net_far *far, void *arg)
{
	app_court_pong(arg);
}

static void
worker_do(struct net_far *far, void *arg)
{
	far_do(arg);
}

double
net_far_line_ns(struct net_far *far)
{
	double ns;

	if (far->place != NET_LCORE)
		return 0;
	app_court_reset(far->court);
	if (worker_start(far, worker_pong, far->court) != 0)
		return APP_COURT_LATE_NS;
	ns = app_court_ping(far->court);
	worker_wait(far);
	return ns;
}

/* ---- the near side's view ---- */

int
net_far_open(struct net_far *far, struct rpb *rpb)
{
	*far = (struct net_far){
		.rpb = rpb, .place = worker() == RTE_MAX_LCORE ? NET_SAME : NET_LCORE};
	if (rpb->boot.size == 2) {
		far->place = NET_RANK;
		return link_open(&far->link, rpb);
	}
	far->court = aligned_alloc(CRPC_CACHE_GUARD, sizeof(*far->court));
	if (far->court == NULL)
		return app_fail("out of memory");
	memset(far->court, 0, sizeof(*far->court));
	return 0;
}

void
net_far_close(struct net_far *far)
{
	struct net_msg m = {.op = OP_QUIT};

	if (far->link != NULL)
		link_ask(far, &m);
	link_close(far->link);
	free(far->court);
}

/* Where the far end lives, because all that it has belongs to one thread. */
static int
far_ask(struct net_far *far, struct net_msg *m)
{
	if (far->place == NET_RANK)
		return link_ask(far, m);
	if (far->place == NET_SAME)
		far_do(m);
	else if (worker_start(far, worker_do, m) == 0)
		worker_wait(far);
	else
		m->rc = -EBUSY;
	snprintf(far->why, sizeof(far->why), "%s", m->why);
	return m->rc;
}

int
net_far_end_open(struct net_far *far, const struct net_conf *conf)
{
	struct net_msg m = {.op = OP_OPEN, .index = conf->index, .conf = *conf};

	return far_ask(far, &m);
}

void
net_far_end_close(struct net_far *far, uint32_t index)
{
	struct net_msg m = {.op = OP_CLOSE, .index = index};

	far_ask(far, &m);
}

int
net_far_connect(struct net_far *far, uint32_t index, uint32_t endpoint,
	const uint8_t ours[NET_ADDR_LEN], uint8_t theirs[NET_ADDR_LEN])
{
	struct net_msg m = {.op = OP_CONNECT, .index = index, .endpoint = endpoint};
	int rc;

	memcpy(m.addr, ours, sizeof(m.addr));
	rc = far_ask(far, &m);
	memcpy(theirs, m.addr, sizeof(m.addr));
	return rc;
}

int
net_far_start(struct net_far *far, uint32_t index)
{
	struct net_msg m = {.op = OP_START, .index = index};

	far->end = served[index];
	far->index = index;
	if (far->place == NET_RANK)
		return link_ask(far, &m);
	if (far->place == NET_SAME)
		return 0;
	crpc_store_relaxed(&far->ready, 0);
	crpc_store_relaxed(&far->stop, 0);
	if (worker_start(far, worker_serve, NULL) != 0)
		return -EBUSY;
	while (crpc_load_acquire(&far->ready) == 0) /* A60 pairs with R60 */
		crpc_pause();
	return 0;
}

int
net_far_stop(struct net_far *far, struct net_ledger *ledger)
{
	struct net_msg m = {.op = OP_STOP, .index = far->index};
	int rc;

	if (far->place == NET_LCORE) {
		crpc_store_release(&far->stop, 1); /* R61 */
		worker_wait(far);
	}
	rc = far_ask(far, &m);
	*ledger = m.ledger;
	if (far->place == NET_RANK)
		far->away_ns = m.away_ns;
	return rc;
}
