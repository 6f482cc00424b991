/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry: crpc_tel.h describes how the owner answers, crpc_tel_rpc.h what the commands are: an
 * endpoint is a queue pair here, its number the QPN. A question shares the word by which a poll
 * detects that there is something to do first, so a poll pays nothing for it.
 */
#include "crpc_tel_rpc.h"
#include "mlx5_copyrpc.h"

/* The numbers of the device that a question is answered with, and what it is. */
struct tel_dev {
	struct crpc_rdma_stats stats;
	struct crpc_rdma_info info;
	uint64_t port, lid, mtu, inline_max;
	uint64_t queue_pairs, regions, addresses;
	uint64_t cq_entries, cq_depth, cq_set_aside, cq_read;
};

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_rdma_stats, name)

static const struct crpc_tel_counter counters[] = {
	COUNTER(doorbells),
	COUNTER(blueflame),
	COUNTER(wqes),
	COUNTER(wqebbs),
	COUNTER(send_cqes),
	COUNTER(recv_cqes),
	COUNTER(error_cqes),
	COUNTER(recv_posted),
	COUNTER(polls),
	COUNTER(empty_polls),
};

_Static_assert(sizeof(struct crpc_rdma_stats) == CRPC_DIM(counters) * sizeof(uint64_t),
	"every counter is reported");

#define NUMBER(name) CRPC_TEL_COUNTER(struct tel_dev, name)

static const struct crpc_tel_counter info_numbers[] = {NUMBER(port), NUMBER(lid), NUMBER(mtu),
	NUMBER(inline_max), NUMBER(queue_pairs), NUMBER(regions), NUMBER(addresses),
	NUMBER(cq_entries), NUMBER(cq_depth), NUMBER(cq_set_aside), NUMBER(cq_read)};

/* One queue pair, as its owner sees it. */
struct tel_queue {
	struct crpc_tel_rpc_ep base;
	const char *kind, *state;
	char newest[RTE_TEL_MAX_STRING_LEN]; /* Only of the one that is asked for. */
};

/* Queue pairs that were not reported yet, and the question, which is about a QPN. */
struct walk {
	const struct crpc_ib_qp *next;
	const struct crpc_tel_box *box;
};

static uint32_t
dci_resets(const struct crpc_mlx5_qp *qp)
{
	return ((const struct crpc_mlx5_dci *)(const void *)qp)->resets;
}

static void
queue_report(const struct crpc_mlx5_qp *qp, struct tel_queue *out)
{
	static const char *const kinds[] = {"RC", "UD", "DC", "DC initiator"};
	static const char *const states[] = {"idle", "ready", "error", "retired", "draining"};
	const struct crpc_mlx5_sq *sq = &qp->own;
	const struct crpc_tel_rpc_field fields[] = {{"id", qp->ib.base.id}, {"depth", qp->ib.depth},
		{"posted", qp->ib.posted}, {"retired", qp->ib.retired},
		{"reported", qp->ib.reported},
		{"unsignalled", sq->buf != NULL ? sq->unsignalled : qp->ib.unsignalled},
		{"blocks", sq->buf != NULL ? sq->bb_mask + 1 : 0},
		{"blocks_outstanding", sq->pi - sq->ci}, {"signals", sq->signals},
		{"resets", qp->ib.kind == CRPC_IB_DCI ? dci_resets(qp) : 0},
		{"initiator",
			qp->ib.kind == CRPC_IB_DC && qp->sq != sq ? qp->sq->qpn_shl8 >> 8 : 0},
		{"recv_posted", qp->rq.posted},
		{"buffers_held", qp->rq.ud != NULL ? qp->rq.ud->held : 0}};

	crpc_tel_rpc_fill(&out->base, qp->ib.qpn, 0, fields, CRPC_DIM(fields));
	out->kind = kinds[qp->ib.kind];
	out->state = states[qp->ib.state];
}

static bool
queue_fill(void *to, void *of, uint32_t i)
{
	struct walk *walk = of;
	const struct crpc_ib_qp *ib = walk->next;
	struct tel_queue *out = to;

	if (ib == NULL)
		return false;
	walk->next = ib->next;
	queue_report(crpc_mlx5_qp(ib), out);
	if (ib->qpn == walk->box->want)
		crpc_mlx5_newest_text(crpc_mlx5_qp(ib), out->newest, sizeof(out->newest));
	return true;
}

static void
queue_more(struct rte_tel_data *d, const void *of)
{
	const struct tel_queue *q = of;

	rte_tel_data_add_dict_string(d, "kind", q->kind);
	rte_tel_data_add_dict_string(d, "state", q->state);
	rte_tel_data_add_dict_string(d, "newest", q->newest);
}

static struct crpc_tel_rpc tel_rpc = {.library = "mlx5_copyrpc",
	.endpoint = "queue",
	.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct tel_dev),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.ep_size = sizeof(struct tel_queue),
	.ep_fill = queue_fill,
	.ep_more = queue_more};

int
crpc_mlx5_tel_open(struct crpc_mlx5_dev *dev)
{
	return crpc_tel_rpc_open(&dev->tel, &dev->ib.attention, CRPC_RDMA_QPS_MAX);
}

void
crpc_mlx5_queue_dump(const struct crpc_mlx5_qp *qp, FILE *out)
{
	struct tel_queue q;

	queue_report(qp, &q);
	crpc_mlx5_newest_text(qp, q.newest, sizeof(q.newest));
	fprintf(out, "qp 0x%x %s: %s;", qp->ib.qpn, q.kind, q.state);
	for (uint32_t i = 0; i < q.base.num_fields; i++)
		fprintf(out, " %s %" PRIu64, q.base.field[i].name, q.base.field[i].value);
	fprintf(out, "\n  newest: %s\n", q.newest);
}

crpc_noinline void
crpc_mlx5_tel_answer(struct crpc_mlx5_dev *dev)
{
	struct walk walk = {.next = dev->ib.qps, .box = dev->tel};
	struct tel_dev tel = {.stats = dev->ib.base.stats,
		.regions = dev->ib.num_mrs,
		.addresses = dev->ib.num_ahs,
		.cq_entries = dev->cq.mask + 1,
		.cq_depth = dev->ib.cq_depth,
		.cq_set_aside = dev->ib.cq_used,
		.cq_read = dev->cq.ci};

	crpc_rdma_info_get(&dev->ib.base, &tel.info);
	tel.port = tel.info.port;
	tel.lid = tel.info.lid;
	tel.mtu = tel.info.mtu;
	tel.inline_max = tel.info.inline_max;
	for (const struct crpc_ib_qp *qp = dev->ib.qps; qp != NULL; qp = qp->next)
		tel.queue_pairs++;
	crpc_tel_rpc_answer(dev->tel, &walk, &tel, CRPC_RDMA_QPS_MAX);
}

static int
tel_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct crpc_tel_rpc_box *b = crpc_tel_rpc_ask(params, &params);
	const struct tel_dev *dev;

	if (b == NULL)
		return -EINVAL;
	dev = crpc_tel_rpc_stats_of(b);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "name", dev->info.name);
	rte_tel_data_add_dict_string(d, "link",
		dev->info.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	crpc_tel_put_counters(d, info_numbers, CRPC_DIM(info_numbers), dev);
	crpc_tel_done(&tel_rpc.contexts);
	return 0;
}

__attribute__((constructor)) static void
tel_register(void)
{
	crpc_tel_rpc_command(
		"info", "", tel_info, "What a device is, and what it holds. Parameters: device");
}
