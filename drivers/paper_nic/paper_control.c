/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, regions, queues and addresses: what is made and freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "paper.h"

#define LINK_ETHERNET 2
#define DEFAULT_CQ    8192u
#define NAMED_INLINE  256u
#define SIGNAL_EVERY  64u
#define QUEUES_FIRST  64u /* Room of a fabric at first; it doubles. */

/*
 * An address does not leave the process; its words are in the CPU's order:
 *
 *      0  magic "PAPR"
 *      1  bits 0-7 version, 8-15 number of the fabric, 16-23 kind of the queue
 *      2  number of the queue
 *     10  its key
 */
#define ADDR_MAGIC   0x52504150u
#define ADDR_VERSION 1u

enum {
	ADDR_KIND = 1,
	ADDR_INDEX = 2,
	ADDR_KEY = 10,
	ADDR_WORDS = CRPC_RDMA_ADDR_LEN / 4,
};

static const struct crpc_rdma_ops paper_ops;
/* Of devices that are opened by name. */
static struct crpc_paper own_net = {.autorun = true};
static struct crpc_paper *named_net = &own_net;

void
crpc_paper_name(struct crpc_paper *net)
{
	named_net = net == NULL ? &own_net : net;
}

/* ---- devices ---- */

struct crpc_rdma *
crpc_paper_open(struct crpc_paper *net, const struct crpc_paper_conf *conf)
{
	uint32_t cq_depth = conf->cq_depth == 0 ? DEFAULT_CQ : conf->cq_depth;
	/* one more per queue, for an error that is none of a request */
	size_t cqes = crpc_pow2_ceil((uint64_t)cq_depth + CRPC_RDMA_QPS_MAX);
	struct crpc_paper_dev *dev = calloc(1, sizeof(*dev) + cqes * sizeof(dev->cq[0]));

	if (dev == NULL)
		return crpc_null(crpc_fail(-ENOMEM, "open: no memory for a device on paper"));
	if (net->ndevs++ == 0)
		TAILQ_INIT(&net->flight);
	TAILQ_INIT(&dev->given);
	dev->base = (struct crpc_rdma){.fp = __crpc_paper_fp, .ops = &paper_ops};
	dev->net = net;
	dev->conf = *conf;
	dev->conf.cq_depth = cq_depth;
	if (conf->mtu == 0 || conf->mtu > PAPER_MTU_MAX)
		dev->conf.mtu = PAPER_MTU_MAX;
	dev->post_limit = UINT32_MAX;
	dev->cq = (struct paper_cqe *)(dev + 1);
	dev->cq_mask = (uint32_t)cqes - 1;
	snprintf(dev->name, sizeof(dev->name), "%s", conf->name == NULL ? "paper" : conf->name);
	if (net->time == NULL || __crpc_paper_time_open(dev) == 0)
		return &dev->base;
	dev->base.ops->close(&dev->base);
	return crpc_null(crpc_fail(-ENOMEM, "open: no memory for a device on paper"));
}

/* Devices "paper", "paper0" ... of one fabric of the process. */
static struct crpc_rdma *
paper_open(const struct crpc_rdma_conf *conf)
{
	const struct crpc_paper_conf paper = {.name = conf->device,
		.inline_max = NAMED_INLINE,
		.cq_depth = conf->cq_depth,
		.dcis = conf->dcis};

	if (conf->device == NULL || strncmp(conf->device, "paper", 5) != 0 ||
		conf->device[5 + strspn(conf->device + 5, "0123456789")] != '\0')
		return crpc_null(-ENODEV);
	if (conf->port != 1)
		return crpc_null(crpc_fail(-EINVAL, "open: port %u of %s: it has port 1 only",
			conf->port, conf->device));
	return crpc_paper_open(named_net, &paper);
}

static void
paper_list(char *buf, size_t len)
{
	snprintf(buf, len, "paper");
}

static void
paper_close(struct crpc_rdma *base)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;
	struct crpc_paper *net = dev->net;
	struct crpc_paper_packet *packet;

	if (dev->counts.queues != 0)
		crpc_err("close: %u queues of %s are not freed", (uint32_t)dev->counts.queues,
			dev->name);
	__crpc_paper_time_close(dev);
	free(dev->mrs);
	free(dev);
	if (--net->ndevs != 0)
		return;
	while ((packet = TAILQ_FIRST(&net->flight)) != NULL) {
		TAILQ_REMOVE(&net->flight, packet, link);
		free(packet);
	}
	free(net->queues);
	free(net->active);
	net->queues = net->active = NULL;
	net->nqueues = net->max_queues = net->free_queue = net->nflight = 0;
}

void
crpc_paper_on_cqe(struct crpc_rdma *base, void (*fn)(void *arg, uint64_t now_ns, bool received),
	void *arg)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;

	dev->on_cqe = fn;
	dev->on_cqe_arg = arg;
}

static void
paper_info_get(const struct crpc_rdma *base, struct crpc_rdma_info *info)
{
	const struct crpc_paper_dev *dev = (const struct crpc_paper_dev *)base;

	memcpy(info->name, dev->name, sizeof(info->name));
	info->inline_max = info->inline_max_dc = info->inline_max_ud = dev->conf.inline_max;
	info->sge_max = CRPC_RDMA_SGE_MAX;
	info->port = 1;
	info->link_layer = LINK_ETHERNET;
	info->mtu = dev->conf.mtu;
}

const struct crpc_paper_counts *
crpc_paper_counts(const struct crpc_rdma *dev)
{
	return &((const struct crpc_paper_dev *)dev)->counts;
}

void
crpc_paper_kill(struct crpc_rdma *dev)
{
	((struct crpc_paper_dev *)dev)->dead = true;
}

void
crpc_paper_post_limit(struct crpc_rdma *dev, uint32_t requests)
{
	((struct crpc_paper_dev *)dev)->post_limit = requests;
}

static void
paper_dump(const struct crpc_rdma *base, FILE *out)
{
	static const char *const kinds[] = {"RC", "DC", "UD"};
	const struct crpc_paper_dev *dev = (const struct crpc_paper_dev *)base;
	const struct crpc_paper_queue *q;
	const char *state;

	fprintf(out, "%s%s: cq: %u of %u not polled; in the network: %u datagrams\n", dev->name,
		dev->dead ? " (killed)" : "", dev->tail - dev->head, dev->conf.cq_depth,
		dev->net->nflight);
	for (uint32_t i = 0; i < dev->net->nqueues; i++) {
		q = dev->net->queues[i];
		if (q == NULL || q->dev != dev)
			continue;
		state = q->drained ? "drained" : "ready";
		state = q->broken ? "broken" : state;
		fprintf(out,
			"  0x%x %s: %s; posted %u, carried out %u, acknowledged %u, retired %u, "
			"receives %u of %u\n",
			q->qp.id, kinds[q->kind], state, q->posted, q->done, q->acked, q->freed,
			q->receives, q->rq_depth);
	}
}

/* ---- regions ---- */

static int
paper_mr_reg(struct crpc_rdma *base, void *addr, uint64_t len, uint32_t flags,
	struct crpc_rdma_mr *mr)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;
	struct paper_mr *mrs = dev->mrs;
	uint32_t i, key;

	for (i = dev->free_mr; i < dev->nmrs && dev->mrs[i].len != 0; i++)
		;
	/* A power of two of them: the table is full, and doubles. */
	if (i == dev->nmrs && i < PAPER_MRS_MAX && (i & (i - 1)) == 0)
		mrs = realloc(mrs, crpc_max(2 * (size_t)i, 1u) * sizeof(*mrs));
	if (i == PAPER_MRS_MAX || mrs == NULL)
		return crpc_fail(-ENOMEM, "mr_reg: %s has %u regions, which is all", dev->name, i);
	/* the number, and above it one that is not repeated soon */
	key = (i + PAPER_MRS_MAX * ++dev->last_mr_key) & ~PAPER_RKEY;
	dev->mrs = mrs;
	dev->free_mr = i + 1;
	dev->nmrs += i == dev->nmrs;
	dev->counts.mr_bytes += len;
	dev->mrs[i] = (struct paper_mr){.addr = (uintptr_t)addr, .len = len, .key = key};
	*mr = (struct crpc_rdma_mr){
		.addr = addr, .len = len, .lkey = key, .rkey = key ^ PAPER_RKEY, .priv = dev};
	return 0;
}

static void
paper_mr_dereg(struct crpc_rdma *base, struct crpc_rdma_mr *mr)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;
	uint32_t i = mr->lkey % PAPER_MRS_MAX;

	dev->counts.mr_bytes -= dev->mrs[i].len;
	dev->mrs[i].len = 0;
	dev->free_mr = (uint32_t)crpc_min(dev->free_mr, i);
}

/* ---- queues ---- */

/* Room for another queue. @return 0, ENOSPC or ENOMEM. */
static int
queues_grow(struct crpc_paper *net)
{
	uint32_t max = net->max_queues == 0 ? QUEUES_FIRST : 2 * net->max_queues;
	struct crpc_paper_queue **queues, **active;

	if (max > PAPER_QUEUES_MAX)
		return ENOSPC;
	queues = realloc(net->queues, max * sizeof(*queues));
	if (queues != NULL)
		net->queues = queues;
	active = realloc(net->active, max * sizeof(*active));
	if (active != NULL)
		net->active = active;
	if (queues == NULL || active == NULL)
		return ENOMEM;
	net->max_queues = max;
	return 0;
}

static struct crpc_rdma_qp *
paper_qp_create(struct crpc_rdma *base, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_paper_dev *dev = (struct crpc_paper_dev *)base;
	struct crpc_paper *net = dev->net;
	uint32_t cqes = conf->sq_depth + conf->rq_depth, i;
	size_t slots = crpc_pow2_ceil(conf->sq_depth);
	struct crpc_paper_queue *q = NULL;

	for (i = net->free_queue; i < net->nqueues && net->queues[i] != NULL; i++)
		;
	errno = conf->inline_max > dev->conf.inline_max ? EINVAL
		: cqes > dev->conf.cq_depth - dev->cq_reserved ||
			dev->counts.queues == CRPC_RDMA_QPS_MAX
		? ENOSPC
		: i == net->max_queues ? queues_grow(net)
				       : 0;
	if (errno == 0)
		q = calloc(1, sizeof(*q) + slots * (sizeof(q->sq[0]) + conf->inline_max));
	if (q == NULL) {
		crpc_err("queue 0x%x of %s: %s: inline_max %u of %u, completions %u of %u left",
			conf->id, dev->name, strerror(errno), conf->inline_max,
			dev->conf.inline_max, cqes, dev->conf.cq_depth - dev->cq_reserved);
		return NULL;
	}
	q->qp = (struct crpc_rdma_qp){.dev = base, .id = conf->id};
	q->dev = dev;
	q->net = net;
	q->kind = conf->transport;
	q->self = (struct paper_target){.index = i, .key = ++net->last_key};
	q->sq_depth = conf->sq_depth;
	q->sq_mask = (uint32_t)slots - 1;
	q->rq_depth = q->receives = conf->rq_depth;
	q->inline_max = conf->inline_max;
	q->inlined = (uint8_t *)&q->sq[slots];
	q->signal_every = (uint32_t)crpc_min(SIGNAL_EVERY, q->sq_depth / 4);
	net->queues[i] = q;
	net->free_queue = i + 1;
	net->nqueues += i == net->nqueues;
	dev->base.stats.recv_posted += conf->rq_depth;
	dev->cq_reserved += cqes;
	dev->counts.queues++;
	return &q->qp;
}

static void
paper_qp_free(struct crpc_rdma_qp *qp)
{
	struct crpc_paper_queue *q = crpc_container_of(qp, struct crpc_paper_queue, qp);

	if (q->acked != q->posted)
		__crpc_paper_deactivate(q);
	__crpc_paper_purge(q);
	q->net->queues[q->self.index] = NULL;
	q->net->free_queue = (uint32_t)crpc_min(q->net->free_queue, q->self.index);
	q->dev->cq_reserved -= q->sq_depth + q->rq_depth;
	q->dev->counts.queues--;
	free(q);
}

/* Of a DC queue pair: its requests are carried out to their end, without completions. */
static int
paper_qp_drain(struct crpc_rdma_qp *qp)
{
	struct crpc_paper_queue *q = crpc_container_of(qp, struct crpc_paper_queue, qp);

	if (q->kind != CRPC_RDMA_DC)
		return 0;
	if (!q->drained)
		__crpc_paper_purge(q);
	q->drained = true;
	return q->done != q->posted ? -EAGAIN : 0;
}

/* ---- addresses ---- */

static void
paper_qp_addr(const struct crpc_rdma_qp *qp, uint8_t out[CRPC_RDMA_ADDR_LEN])
{
	const struct crpc_paper_queue *q = (const struct crpc_paper_queue *)qp;
	const uint32_t addr[ADDR_WORDS] = {ADDR_MAGIC,
		[ADDR_KIND] = ADDR_VERSION | (uint32_t)q->net->number << 8 | q->kind << 16,
		[ADDR_INDEX] = q->self.index, [ADDR_KEY] = q->self.key};

	memcpy(out, addr, sizeof(addr));
}

/* 0, -EPROTO or -EHOSTUNREACH. */
static int
addr_get(const struct crpc_paper_queue *q, const uint8_t in[CRPC_RDMA_ADDR_LEN],
	struct paper_target *to)
{
	uint32_t addr[ADDR_WORDS], kind = ADDR_VERSION | q->kind << 16, number;

	memcpy(addr, in, sizeof(addr));
	number = addr[ADDR_KIND] >> 8 & 0xff;
	if (addr[0] != ADDR_MAGIC || (addr[ADDR_KIND] ^ number << 8) != kind)
		return crpc_fail(-EPROTO,
			"queue 0x%x: these bytes are no address of its transport on paper",
			q->qp.id);
	if (number != q->net->number)
		return crpc_fail(-EHOSTUNREACH,
			"queue 0x%x: the peer is on fabric %u, this is %u", q->qp.id, number,
			q->net->number);
	*to = (struct paper_target){.index = addr[ADDR_INDEX], .key = addr[ADDR_KEY]};
	return 0;
}

static int
paper_qp_connect(struct crpc_rdma_qp *qp, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_paper_queue *q = crpc_container_of(qp, struct crpc_paper_queue, qp);
	int rc;

	if (q->kind == CRPC_RDMA_UD)
		return crpc_fail(-EIO, "queue 0x%x: connect: it is of datagrams", q->qp.id);
	if (q->connected || q->broken)
		return crpc_fail(q->broken ? -EIO : -EISCONN, "queue 0x%x: connect: it is %s",
			q->qp.id, q->broken ? "broken" : "connected");
	rc = addr_get(q, addr, &q->peer);
	q->connected = rc == 0;
	return rc;
}

static struct crpc_rdma_ah *
paper_ah_create(struct crpc_rdma_qp *ud, const uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	struct paper_ah *ah = calloc(1, sizeof(*ah));
	int rc = -ENOMEM;

	if (ah != NULL)
		rc = addr_get((const struct crpc_paper_queue *)ud, addr, &ah->to);
	if (rc != 0) {
		free(ah);
		return crpc_null(rc);
	}
	ah->base.dev = ud->dev;
	return &ah->base;
}

static void
paper_ah_free(struct crpc_rdma_ah *ah)
{
	free(ah);
}

static const struct crpc_rdma_ops paper_ops = {
	.name = "paper_nic",
	.open = paper_open,
	.close = paper_close,
	.info_get = paper_info_get,
	.mr_reg = paper_mr_reg,
	.mr_dereg = paper_mr_dereg,
	.qp_create = paper_qp_create,
	.qp_free = paper_qp_free,
	.qp_drain = paper_qp_drain,
	.qp_addr = paper_qp_addr,
	.qp_connect = paper_qp_connect,
	.ah_create = paper_ah_create,
	.ah_free = paper_ah_free,
	.list = paper_list,
	.dump = paper_dump,
};

CRPC_RDMA_DRIVER(paper, paper_ops)
