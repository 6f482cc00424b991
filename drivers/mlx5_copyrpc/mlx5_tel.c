/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry. A device belongs to one thread and telemetry has another one: so the handler asks, and
 * the owner answers at its next poll by copying what was asked for. It shares the word by which a
 * poll learns that there is something to do first, so a poll pays nothing for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crpc_compat.h"
#include "mlx5_copyrpc.h"

/* How long a handler waits for the owner's next poll. */
#define WAIT_MS 200
/* Characters of a queue's newest WQE that are told: what a string of telemetry holds. */
#define TEXT_LEN RTE_TEL_MAX_STRING_LEN

/* States of a question. */
enum {
	TEL_IDLE,
	TEL_ASKED,
	TEL_ANSWERING,
};

/* What the owner knows of one queue pair. */
struct tel_queue {
	bool found;
	const char *kind, *state;
	uint32_t id, posted, retired, reported, depth, unsignalled, blocks, blocks_outstanding;
	uint32_t recv_posted, buffers_held, initiator, signals, resets;
	char newest[TEXT_LEN];
};

/* One device's mailbox. */
struct crpc_mlx5_tel {
	_Atomic uint32_t state;
	uint32_t id;
	struct crpc_mlx5_dev_ctl *dev;
	struct crpc_mlx5_tel *next;
	uint32_t want; /* Question: QPN of the queue to describe. */
	/* The answer. */
	struct crpc_rdma_stats stats;
	struct crpc_rdma_info info;
	uint32_t cq_ci, cq_entries, cq_used, cq_depth, mrs, ahs;
	struct tel_queue queue;
	uint32_t num;
	uint32_t qpn[CRPC_RDMA_QPS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* boxes, next_id; held by handlers */
static struct crpc_mlx5_tel *boxes;
static uint32_t next_id;

int
crpc_mlx5_tel_open(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_tel *tel = calloc(1, sizeof(*tel));

	if (tel == NULL)
		return -ENOMEM;
	tel->dev = dev;
	dev->dp.tel = tel;
	pthread_mutex_lock(&lock);
	tel->id = next_id++;
	tel->next = boxes;
	boxes = tel;
	pthread_mutex_unlock(&lock);
	return 0;
}

void
crpc_mlx5_tel_close(struct crpc_mlx5_dev_ctl *dev)
{
	struct crpc_mlx5_tel **at = &boxes;

	/* A handler that waits for us holds the lock, and gives up soon. */
	pthread_mutex_lock(&lock);
	while (*at != dev->dp.tel)
		at = &(*at)->next;
	*at = dev->dp.tel->next;
	pthread_mutex_unlock(&lock);
	free(dev->dp.tel);
}

/* ---- the owner's side ---- */

static void
queue_fill(const struct crpc_mlx5_qp *qp, struct tel_queue *out)
{
	const struct crpc_mlx5_dci *dci = (const struct crpc_mlx5_dci *)(const void *)qp;
	const struct crpc_mlx5_dc *dc = (const struct crpc_mlx5_dc *)(const void *)qp;
	const struct crpc_mlx5_sq *sq = &qp->sq;

	*out = (struct tel_queue){
		.found = true,
		.kind = crpc_mlx5_kind_name(qp),
		.state = crpc_mlx5_state_name(qp),
		.id = qp->base.id,
		.posted = sq->posted,
		.retired = sq->retired,
		.reported = sq->reported,
		.depth = sq->depth,
		.unsignalled = sq->unsignalled,
		.blocks = sq->buf != NULL ? sq->bb_mask + 1 : 0,
		.recv_posted = qp->rq.posted,
		.buffers_held = qp->rq.ud != NULL ? qp->rq.ud->held : 0,
	};
	if (qp->kind == CRPC_MLX5_DC && dc->dci != NULL)
		out->initiator = dc->dci->qp.dp.qpn;
	if (qp->kind == CRPC_MLX5_DCI) {
		out->unsignalled = dci->unsignalled;
		out->blocks_outstanding = sq->pi - dci->ci;
		out->signals = dci->signals;
		out->resets = dci->resets;
	}
	crpc_mlx5_newest_text(qp, out->newest, sizeof(out->newest));
}

crpc_noinline void
crpc_mlx5_tel_answer(struct crpc_mlx5_dev *dp)
{
	struct crpc_mlx5_tel *tel = dp->tel;
	const struct crpc_mlx5_dev_ctl *dev = tel->dev;
	const struct crpc_mlx5_qp_ctl *qp;
	uint32_t expected = TEL_ASKED;

	/* A0: acquire, pairs with the handler's question R1: it has done with the last answer. */
	if (!crpc_cas_acq_rel(&tel->state, &expected, TEL_ANSWERING))
		return;
	tel->stats = dp->stats;
	crpc_rdma_info_get(&dp->base, &tel->info);
	tel->cq_ci = dp->cq.ci;
	tel->cq_entries = dp->cq.mask + 1;
	tel->cq_used = dev->cq_used;
	tel->cq_depth = dev->cq_depth;
	tel->mrs = dev->num_mrs;
	tel->ahs = dev->num_ahs;
	tel->num = 0;
	tel->queue.found = false;
	for (qp = dev->qps; qp != NULL && tel->num < CRPC_RDMA_QPS_MAX; qp = qp->next) {
		tel->qpn[tel->num++] = qp->dp.qpn;
		if (qp->dp.qpn == tel->want)
			queue_fill(&qp->dp, &tel->queue);
	}
	/* R0: release, pairs with the handler's A1: the answer is complete. */
	crpc_store_release(&tel->state, TEL_IDLE);
}

/* ---- the handlers' side ---- */

/* Have the owner of this box fill it; the lock is held. False: it did not poll in time. */
static bool
ask(struct crpc_mlx5_tel *tel, uint32_t want)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint32_t expected = TEL_ASKED, waited;

	tel->want = want;
	/* R1: release, pairs with the owner's A0. */
	crpc_store_release(&tel->state, TEL_ASKED);
	/* R2: release, pairs with attend()'s exchange: whoever takes the word down sees R1. */
	crpc_store_release(&tel->dev->dp.attention, 1);
	for (waited = 0; waited < WAIT_MS; waited++) {
		/* A1: acquire, pairs with the owner's R0. */
		if (crpc_load_acquire(&tel->state) == TEL_IDLE)
			return true;
		nanosleep(&pause, NULL);
	}
	if (crpc_cas_acq_rel(&tel->state, &expected, TEL_IDLE))
		return false;
	while (crpc_load_acquire(&tel->state) != TEL_IDLE) /* A1 */
		nanosleep(&pause, NULL);
	return true;
}

/* A number at *at, and past it and the comma behind it; false: there is none. */
static bool
number_take(const char **at, uint32_t *value)
{
	unsigned long v;
	char *end;

	if (*at == NULL || **at < '0' || **at > '9')
		return false;
	v = strtoul(*at, &end, 0);
	if ((*end != '\0' && *end != ',') || v > UINT32_MAX)
		return false;
	*value = (uint32_t)v;
	*at = *end == ',' ? end + 1 : NULL;
	return true;
}

/*
 * The box that the parameters name, filled. NULL: no such device, or its owner does not poll. The
 * lock is held on return in any case.
 */
static struct crpc_mlx5_tel *
box_get(const char *params, bool with_queue)
{
	struct crpc_mlx5_tel *tel;
	uint32_t id, want = 0;

	pthread_mutex_lock(&lock);
	if (!number_take(&params, &id) || (with_queue && !number_take(&params, &want)))
		return NULL;
	for (tel = boxes; tel != NULL; tel = tel->next) {
		if (tel->id == id)
			return ask(tel, want) ? tel : NULL;
	}
	return NULL;
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct crpc_mlx5_tel *tel;

	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	pthread_mutex_lock(&lock);
	for (tel = boxes; tel != NULL; tel = tel->next)
		rte_tel_data_add_array_int(d, (int)tel->id);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
tel_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct crpc_mlx5_tel *tel = box_get(params, false);

	if (tel != NULL) {
		rte_tel_data_start_dict(d);
		rte_tel_data_add_dict_string(d, "name", tel->info.name);
		crpc_tel_add_dict_uint(d, "port", tel->info.port);
		rte_tel_data_add_dict_string(d, "link",
			tel->info.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
									: "InfiniBand");
		crpc_tel_add_dict_uint(d, "lid", tel->info.lid);
		crpc_tel_add_dict_uint(d, "mtu", tel->info.mtu);
		crpc_tel_add_dict_uint(d, "inline_max", tel->info.inline_max);
		rte_tel_data_add_dict_int(d, "cqe_compression", tel->info.cqe_compression);
		crpc_tel_add_dict_uint(d, "queue_pairs", tel->num);
		crpc_tel_add_dict_uint(d, "regions", tel->mrs);
		crpc_tel_add_dict_uint(d, "addresses", tel->ahs);
		crpc_tel_add_dict_uint(d, "cq_entries", tel->cq_entries);
		crpc_tel_add_dict_uint(d, "cq_depth", tel->cq_depth);
		crpc_tel_add_dict_uint(d, "cq_set_aside", tel->cq_used);
		crpc_tel_add_dict_uint(d, "cq_read", tel->cq_ci);
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
}

#define COUNTER(name)                                                                              \
	{                                                                                          \
#name, offsetof(struct crpc_rdma_stats, name)                                      \
	}

static const struct {
	const char *name;
	size_t at;
} counters[] = {
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
	"every counter is told");

static int
tel_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct crpc_mlx5_tel *tel = box_get(params, false);
	uint64_t value;
	size_t i;

	if (tel != NULL) {
		rte_tel_data_start_dict(d);
		for (i = 0; i < CRPC_DIM(counters); i++) {
			memcpy(&value, (const char *)&tel->stats + counters[i].at, sizeof(value));
			crpc_tel_add_dict_uint(d, counters[i].name, value);
		}
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
}

static int
tel_queues(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct crpc_mlx5_tel *tel = box_get(params, false);
	uint32_t i;

	if (tel != NULL) {
		rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
		/* An array of telemetry holds so many, the newest queues first. */
		for (i = 0; i < tel->num && i < RTE_TEL_MAX_ARRAY_ENTRIES; i++)
			rte_tel_data_add_array_int(d, (int)tel->qpn[i]);
	}
	pthread_mutex_unlock(&lock);
	return tel != NULL ? 0 : -EINVAL;
}

static void
queue_put(struct rte_tel_data *d, const struct tel_queue *q)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "kind", q->kind);
	rte_tel_data_add_dict_string(d, "state", q->state);
	crpc_tel_add_dict_uint(d, "id", q->id);
	crpc_tel_add_dict_uint(d, "depth", q->depth);
	crpc_tel_add_dict_uint(d, "posted", q->posted);
	crpc_tel_add_dict_uint(d, "retired", q->retired);
	crpc_tel_add_dict_uint(d, "reported", q->reported);
	crpc_tel_add_dict_uint(d, "unsignalled", q->unsignalled);
	crpc_tel_add_dict_uint(d, "blocks", q->blocks);
	crpc_tel_add_dict_uint(d, "blocks_outstanding", q->blocks_outstanding);
	crpc_tel_add_dict_uint(d, "signals", q->signals);
	crpc_tel_add_dict_uint(d, "resets", q->resets);
	crpc_tel_add_dict_uint(d, "initiator", q->initiator);
	crpc_tel_add_dict_uint(d, "recv_posted", q->recv_posted);
	crpc_tel_add_dict_uint(d, "buffers_held", q->buffers_held);
	rte_tel_data_add_dict_string(d, "newest", q->newest);
}

static int
tel_queue(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct crpc_mlx5_tel *tel = box_get(params, true);
	bool found = tel != NULL && tel->queue.found;

	if (found)
		queue_put(d, &tel->queue);
	pthread_mutex_unlock(&lock);
	return found ? 0 : -EINVAL;
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd(
		"/crpc/mlx5_copyrpc/list", tel_list, "Numbers of the open devices. No parameters");
	rte_telemetry_register_cmd("/crpc/mlx5_copyrpc/info", tel_info,
		"What a device is, and what it holds. Parameters: device");
	rte_telemetry_register_cmd(
		"/crpc/mlx5_copyrpc/stats", tel_stats, "Counters. Parameters: device");
	rte_telemetry_register_cmd("/crpc/mlx5_copyrpc/queues", tel_queues,
		"QPNs of the queue pairs. Parameters: device");
	rte_telemetry_register_cmd("/crpc/mlx5_copyrpc/queue", tel_queue,
		"State of one, and its newest WQE. Parameters: device,QPN");
}
