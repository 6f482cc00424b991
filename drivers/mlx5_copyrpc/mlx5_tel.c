/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry: crpc_tel.h describes how the owner answers. A question shares the word by which a poll
 * detects that there is something to do first, so a poll pays nothing for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_tel_put.h"
#include "mlx5_copyrpc.h"

/* Characters of a queue's newest WQE: what a string of telemetry holds. */
#define TEXT_LEN RTE_TEL_MAX_STRING_LEN

/* The numbers of a queue pair: their names, and where its owner finds them. */
#define QUEUE_NUMBERS(X, qp, sq)                                                                   \
	X(id, qp->ib.base.id)                                                                      \
	X(depth, qp->ib.depth)                                                                     \
	X(posted, qp->ib.posted)                                                                   \
	X(retired, qp->ib.retired)                                                                 \
	X(reported, qp->ib.reported)                                                               \
	X(unsignalled, sq->buf != NULL ? sq->unsignalled : qp->ib.unsignalled)                     \
	X(blocks, sq->buf != NULL ? sq->bb_mask + 1 : 0)                                           \
	X(blocks_outstanding, sq->pi - sq->ci)                                                     \
	X(signals, sq->signals)                                                                    \
	X(resets, qp->ib.kind == CRPC_IB_DCI ? dci_resets(qp) : 0)                                 \
	X(initiator, qp->ib.kind == CRPC_IB_DC && qp->sq != sq ? qp->sq->qpn_shl8 >> 8 : 0)        \
	X(recv_posted, qp->rq.posted)                                                              \
	X(buffers_held, qp->rq.ud != NULL ? qp->rq.ud->held : 0)

/* One queue pair, as its owner sees it. */
struct tel_queue {
	bool found;
	const char *kind, *state;
#define NUMBER(name, value) uint64_t name;
	QUEUE_NUMBERS(NUMBER, , )
#undef NUMBER
	char newest[TEXT_LEN];
};

static const struct crpc_tel_counter queue_numbers[] = {
#define NUMBER(name, value) CRPC_TEL_COUNTER(struct tel_queue, name),
	QUEUE_NUMBERS(NUMBER, , )
#undef NUMBER
};

/* One device's mailbox. */
struct crpc_mlx5_tel {
	struct crpc_tel_box box; /* Its want: QPN of the queue to describe. */
	struct crpc_rdma_stats stats;
	struct crpc_rdma_info info;
	uint32_t cq_ci, cq_entries, cq_used, cq_depth, mrs, ahs;
	struct tel_queue queue;
	uint32_t num;
	uint32_t qpn[CRPC_RDMA_QPS_MAX];
};

static struct crpc_tel devices = CRPC_TEL_INIT;

int
crpc_mlx5_tel_open(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_tel *tel = calloc(1, sizeof(*tel));

	if (tel == NULL)
		return -ENOMEM;
	tel->box.attention = &dev->dp.ib.attention;
	dev->dp.tel = &tel->box;
	crpc_tel_open(&devices, dev->dp.tel);
	return 0;
}

void
crpc_mlx5_tel_close(struct crpc_mlx5_dev_ctl *dev)
{
	crpc_tel_close(dev->dp.tel);
	free(dev->dp.tel);
}

/* ---- the owner's side ---- */

static uint32_t
dci_resets(const struct crpc_mlx5_qp *qp)
{
	return ((const struct crpc_mlx5_dci *)(const void *)qp)->resets;
}

static void
queue_fill(const struct crpc_mlx5_qp *qp, struct tel_queue *out)
{
	static const char *const kinds[] = {"RC", "UD", "DC", "DC initiator"};
	static const char *const states[] = {"idle", "ready", "error", "retired", "draining"};
	const struct crpc_mlx5_sq *sq = &qp->own;

	out->found = true;
	out->kind = kinds[qp->ib.kind];
	out->state = states[qp->ib.state];
#define NUMBER(name, value) out->name = value;
	QUEUE_NUMBERS(NUMBER, qp, sq)
#undef NUMBER
	crpc_mlx5_newest_text(qp, out->newest, sizeof(out->newest));
}

void
crpc_mlx5_queue_dump(const struct crpc_mlx5_qp *qp, FILE *out)
{
	struct tel_queue q;

	queue_fill(qp, &q);
	fprintf(out, "qp 0x%x %s: %s;", qp->ib.qpn, q.kind, q.state);
	for (size_t i = 0; i < CRPC_DIM(queue_numbers); i++)
		fprintf(out, " %s %" PRIu64, queue_numbers[i].name,
			crpc_tel_value(&q, &queue_numbers[i]));
	fprintf(out, "\n  newest: %s\n", q.newest);
}

crpc_noinline void
crpc_mlx5_tel_answer(struct crpc_mlx5_dev *dp)
{
	struct crpc_mlx5_tel *tel = (struct crpc_mlx5_tel *)dp->tel;

	if (!crpc_tel_begin(dp->tel))
		return;
	tel->stats = dp->ib.base.stats;
	crpc_rdma_info_get(&dp->ib.base, &tel->info);
	tel->cq_ci = dp->cq.ci;
	tel->cq_entries = dp->cq.mask + 1;
	tel->cq_used = dp->ib.cq_used;
	tel->cq_depth = dp->ib.cq_depth;
	tel->mrs = dp->ib.num_mrs;
	tel->ahs = dp->ib.num_ahs;
	tel->num = 0;
	tel->queue.found = false;
	for (const struct crpc_ib_qp *qp = dp->ib.qps; qp != NULL && tel->num < CRPC_RDMA_QPS_MAX;
		qp = qp->next) {
		tel->qpn[tel->num++] = qp->qpn;
		if (qp->qpn == tel->box.want)
			queue_fill(&crpc_mlx5_qp_of(qp)->dp, &tel->queue);
	}
	crpc_tel_end(dp->tel);
}

/* ---- the handlers' side ---- */

/* Each writes a part of a device's answer; false: there is nothing of that. */

static bool
info_put(struct rte_tel_data *d, const struct crpc_mlx5_tel *tel)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "name", tel->info.name);
	crpc_tel_add_dict_uint(d, "port", tel->info.port);
	rte_tel_data_add_dict_string(d, "link",
		tel->info.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	crpc_tel_add_dict_uint(d, "lid", tel->info.lid);
	crpc_tel_add_dict_uint(d, "mtu", tel->info.mtu);
	crpc_tel_add_dict_uint(d, "inline_max", tel->info.inline_max);
	crpc_tel_add_dict_uint(d, "queue_pairs", tel->num);
	crpc_tel_add_dict_uint(d, "regions", tel->mrs);
	crpc_tel_add_dict_uint(d, "addresses", tel->ahs);
	crpc_tel_add_dict_uint(d, "cq_entries", tel->cq_entries);
	crpc_tel_add_dict_uint(d, "cq_depth", tel->cq_depth);
	crpc_tel_add_dict_uint(d, "cq_set_aside", tel->cq_used);
	crpc_tel_add_dict_uint(d, "cq_read", tel->cq_ci);
	return true;
}

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

static bool
stats_put(struct rte_tel_data *d, const struct crpc_mlx5_tel *tel)
{
	rte_tel_data_start_dict(d);
	crpc_tel_put_counters(d, counters, CRPC_DIM(counters), &tel->stats);
	return true;
}

static bool
queues_put(struct rte_tel_data *d, const struct crpc_mlx5_tel *tel)
{
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	/* An array of telemetry holds so many, the newest queues first. */
	for (uint32_t i = 0; i < tel->num && i < RTE_TEL_MAX_ARRAY_ENTRIES; i++)
		rte_tel_data_add_array_int(d, (int)tel->qpn[i]);
	return true;
}

static bool
queue_put(struct rte_tel_data *d, const struct crpc_mlx5_tel *tel)
{
	const struct tel_queue *q = &tel->queue;

	if (!q->found)
		return false;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "kind", q->kind);
	rte_tel_data_add_dict_string(d, "state", q->state);
	crpc_tel_put_counters(d, queue_numbers, CRPC_DIM(queue_numbers), q);
	rte_tel_data_add_dict_string(d, "newest", q->newest);
	return true;
}

static const struct command {
	const char *name;
	bool (*put)(struct rte_tel_data *d, const struct crpc_mlx5_tel *tel);
	const char *help;
} commands[] = {
	{"/crpc/mlx5_copyrpc/info", info_put,
		"What a device is, and what it holds. Parameters: device"},
	{"/crpc/mlx5_copyrpc/stats", stats_put, "Counters. Parameters: device"},
	{"/crpc/mlx5_copyrpc/queues", queues_put, "QPNs of the queue pairs. Parameters: device"},
	{"/crpc/mlx5_copyrpc/queue", queue_put,
		"State of one, and its newest WQE. Parameters: device,QPN"},
};

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	crpc_tel_put_list(&devices, d);
	return 0;
}

/* All that ask a device. An error: no such device, or its owner does not poll. */
static int
tel_ask(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct command *command = commands;
	const struct crpc_mlx5_tel *tel;
	uint32_t id, want = 0;
	bool found;

	while (strcmp(command->name, cmd) != 0)
		command++;
	if (!crpc_tel_number(&params, 0, &id) ||
		(command->put == queue_put && !crpc_tel_number(&params, 0, &want)))
		return -EINVAL;
	tel = (const struct crpc_mlx5_tel *)crpc_tel_ask(&devices, id, want);
	if (tel == NULL)
		return -EINVAL;
	found = command->put(d, tel);
	crpc_tel_done(&devices);
	return found ? 0 : -EINVAL;
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd(
		"/crpc/mlx5_copyrpc/list", tel_list, "Numbers of the open devices. No parameters");
	for (size_t i = 0; i < CRPC_DIM(commands); i++)
		rte_telemetry_register_cmd(commands[i].name, tel_ask, commands[i].help);
}
