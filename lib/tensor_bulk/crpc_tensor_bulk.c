/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our calls have a place each from call() to poll(), the peer's one from their head to their
 * answer. Tags of bulk are made of the call's number, so data finds its call whatever comes first.
 */
#include "crpc_tensor_bulk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"

/* "TNET" in memory, on a little-endian machine. */
#define NET_MAGIC   UINT32_C(0x54454e54)
#define NET_VERSION 1
#define BURST       32
/* Cookies of bulk: whose it is, which place, which array. */
#define COOKIE_RECV (UINT64_C(1) << 32)

struct net_head {
	uint32_t magic;
	uint8_t version;
	uint8_t narrays;
	uint16_t zero;
	uint64_t serial; /* Of the call; tags are made of it. */
};

struct net_array {
	uint64_t len;   /* Bytes on the wire. */
	uint32_t dtype; /* Of these. */
	uint32_t zero;
	struct crpc_tensor dst;
};

_Static_assert(sizeof(struct net_head) == 16, "format version 1");
_Static_assert(sizeof(struct net_array) == 176, "format version 1");

#define HEAD_BYTES(narrays) (sizeof(struct net_head) + (narrays) * sizeof(struct net_array))
#define BYTES_MAX           (HEAD_BYTES(CRPC_TENSOR_BULK_ARRAYS_MAX) + CRPC_TENSOR_BATCH_BYTES_MAX)

/* One of ours. */
struct net_call {
	bool answered;
	uint32_t sent;  /* Arrays. */
	uint32_t sends; /* Of these: not ended. */
	uint64_t req[CRPC_TENSOR_BULK_ARRAYS_MAX];
	struct crpc_tensor_bulk_done done;
};

/* One of the peer's. */
struct net_job {
	uint64_t token;
	int32_t status;
	uint32_t posted; /* Arrays that a receive was posted for. */
	uint32_t open;   /* Of these: not ended. */
	uint32_t batch_len;
	uint64_t req[CRPC_TENSOR_BULK_ARRAYS_MAX];
	uint32_t op[CRPC_TENSOR_BULK_ARRAYS_MAX];
	struct net_head head;
	struct net_array array[CRPC_TENSOR_BULK_ARRAYS_MAX];
	crpc_aligned(8) uint8_t batch[CRPC_TENSOR_BATCH_BYTES_MAX];
};

struct crpc_tensor_bulk {
	struct crpc_tensor_bulk_conf conf;
	struct crpc_tensor_segment segment;
	struct crpc_tensor_space space;
	uint64_t serial;
	struct crpc_tensor_bulk_stats stats;
	uint32_t calls, jobs; /* Bit i: call[i], job[i] is in use. */
	struct net_call call[CRPC_TENSOR_BULK_CALLS];
	struct net_job job[CRPC_TENSOR_BULK_CALLS];
	crpc_aligned(8) uint8_t msg[BYTES_MAX];
};

struct crpc_tensor_bulk *
crpc_tensor_bulk_create(const struct crpc_tensor_bulk_conf *conf)
{
	struct crpc_tensor_bulk *n;

	if (conf->ctx == NULL || conf->ep == NULL || conf->bulk == NULL || conf->conn == NULL ||
		(uintptr_t)conf->block % CRPC_CACHE_LINE != 0)
		return crpc_null(crpc_fail(-EINVAL,
			"tensor_bulk: ctx, ep, bulk or conn is NULL, or the block is not aligned to "
			"%d",
			CRPC_CACHE_LINE));
	n = calloc(1, sizeof(*n));
	if (n == NULL)
		return NULL;
	n->conf = *conf;
	n->segment = (struct crpc_tensor_segment){.base = conf->block, .size = conf->block_len};
	n->space = (struct crpc_tensor_space){.segment = &n->segment, .count = 1};
	return n;
}

void
crpc_tensor_bulk_free(struct crpc_tensor_bulk *n)
{
	free(n);
}

/* ---- both sides ---- */

static uint64_t
tag_of(uint64_t serial, uint32_t array)
{
	return serial << 8 | array;
}

/* What makes `to` of `from`: enum crpc_unpack_op, or -EOPNOTSUPP. */
static int
op_between(uint32_t from, uint32_t to)
{
	static const uint8_t ops[][2] = {[CRPC_UNPACK_F32_TO_BF16] = {CRPC_TENSOR_F32,
						 CRPC_TENSOR_BF16},
		[CRPC_UNPACK_BF16_TO_F32] = {CRPC_TENSOR_BF16, CRPC_TENSOR_F32},
		[CRPC_UNPACK_F32_TO_F16] = {CRPC_TENSOR_F32, CRPC_TENSOR_F16},
		[CRPC_UNPACK_F16_TO_F32] = {CRPC_TENSOR_F16, CRPC_TENSOR_F32}};

	if (from == to)
		return CRPC_UNPACK_COPY;
	for (uint32_t op = 0; op < CRPC_DIM(ops); op++)
		if (ops[op][0] == from && ops[op][1] == to && from != 0)
			return (int)op;
	return -EOPNOTSUPP;
}

/* ---- our calls ---- */

static int
array_put(struct net_array *a, const struct crpc_tensor_bulk_put *put)
{
	uint32_t size = crpc_tensor_dtype_size(put->dtype);
	int op = op_between(put->dtype, put->dst.dtype);

	if (op < 0)
		return op;
	if (size == 0 || !crpc_tensor_is_contiguous(&put->dst) ||
		(put->data == NULL && put->dst.length != 0))
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	a->len = crpc_tensor_elems(&put->dst) * size;
	a->dtype = put->dtype;
	a->dst = put->dst;
	return a->len <= CRPC_BULK_LEN_MAX ? 0 : -EMSGSIZE;
}

/* Build the head in n->msg: its bytes, or -errno. */
static int
head_build(struct crpc_tensor_bulk *n, const struct crpc_tensor_bulk_put *put, uint32_t nput,
	const struct crpc_tensor_batch *b)
{
	const struct net_head head = {.magic = NET_MAGIC,
		.version = NET_VERSION,
		.narrays = (uint8_t)nput,
		.serial = n->serial};
	struct net_array array;
	uint32_t len = HEAD_BYTES(nput);
	int rc;

	memcpy(n->msg, &head, sizeof(head));
	for (uint32_t i = 0; i < nput; i++) {
		rc = array_put(&array, &put[i]);
		if (rc != 0)
			return rc;
		memcpy(n->msg + HEAD_BYTES(i), &array, sizeof(array));
	}
	if (b != NULL) {
		memcpy(n->msg + len, b->bytes, b->len);
		len += b->len;
	}
	return (int)len;
}

/* The head has gone: its data follows. What can not be sent ends the call at the peer, in time. */
static void
call_send(struct crpc_tensor_bulk *n, uint64_t now_ns, struct net_call *call,
	const struct crpc_tensor_bulk_put *put, uint32_t nput)
{
	uint64_t bytes;
	int rc = 0;

	for (uint32_t i = 0; i < nput && rc == 0; i++) {
		bytes = crpc_tensor_elems(&put[i].dst) * crpc_tensor_dtype_size(put[i].dtype);
		rc = crpc_bulk_isend(n->conf.conn, now_ns, tag_of(n->serial, i), put[i].data, bytes,
			0, (uint64_t)(call - n->call), &call->req[i]);
		call->sent += rc == 0;
	}
	call->sends = call->sent;
	if (rc != 0)
		crpc_err("tensor_bulk: array %u of call %llu can not be sent: error %d", call->sent,
			(unsigned long long)n->serial, rc);
}

int
crpc_tensor_bulk_call(struct crpc_tensor_bulk *n, uint64_t now_ns,
	const struct crpc_tensor_bulk_put *put, uint32_t nput, const struct crpc_tensor_batch *b,
	uint64_t cookie)
{
	uint32_t nops = b != NULL ? crpc_tensor_batch_ops(b) : 0, sends, recvs;
	uint32_t at = (uint32_t)__builtin_ctz(~n->calls);
	struct net_call *call = n->call + at;
	int len, rc;

	if (nput > CRPC_TENSOR_BULK_ARRAYS_MAX)
		return -EINVAL;
	crpc_bulk_pool(n->conf.conn, &sends, &recvs);
	if (at == CRPC_TENSOR_BULK_CALLS || sends < nput)
		return -EAGAIN;
	len = head_build(n, put, nput, b);
	if (len < 0)
		return len;
	rc = crpc_copyrpc_call(n->conf.ep, now_ns, n->msg, (uint32_t)len,
		nops * (uint32_t)sizeof(int32_t), at);
	if (rc != 0)
		return rc;
	n->calls |= 1u << at;
	*call = (struct net_call){0};
	call->done.cookie = cookie;
	call->done.nops = nops;
	call_send(n, now_ns, call, put, nput);
	n->serial++;
	n->stats.calls++;
	return 0;
}

/* An answer, or the end of a call without one. */
static void
call_take(struct crpc_tensor_bulk *n, uint64_t now_ns, const struct crpc_done *done)
{
	struct net_call *call;
	struct crpc_tensor_bulk_done *d;

	if (done->cookie >= CRPC_TENSOR_BULK_CALLS || (n->calls >> done->cookie & 1) == 0)
		return;
	call = &n->call[done->cookie];
	call->answered = true;
	d = &call->done;
	d->status = done->status;
	if (d->status == 0)
		d->status = crpc_tensor_batch_statuses(done->data, done->len, d->op, d->nops);
	if (d->status != 0)
		d->nops = 0;
	/* What is still on its way is not needed any more. */
	for (uint32_t i = 0; d->status != 0 && i < call->sent; i++)
		crpc_bulk_cancel(n->conf.bulk, now_ns, call->req[i]);
}

uint32_t
crpc_tensor_bulk_poll(struct crpc_tensor_bulk *n, struct crpc_tensor_bulk_done *done, uint32_t max)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < CRPC_TENSOR_BULK_CALLS && k < max; i++) {
		if ((n->calls >> i & 1) == 0 || !n->call[i].answered || n->call[i].sends != 0)
			continue;
		done[k++] = n->call[i].done;
		n->calls &= ~(1u << i);
	}
	return k;
}

/* ---- the peer's calls ---- */

/* An array that was announced: 0, or why it is refused. */
static int
array_check(struct crpc_tensor_bulk *n, struct net_job *job, uint32_t i)
{
	struct net_array *a = &job->array[i];
	struct crpc_tensor dst;
	int op, rc = crpc_tensor_take(&dst, &a->dst, &n->space, CRPC_TENSOR_WRITE);

	if (rc != 0)
		return rc;
	a->dst = dst;
	op = op_between(a->dtype, dst.dtype);
	if (op < 0)
		return op;
	job->op[i] = (uint32_t)op;
	if (a->zero != 0 || !crpc_tensor_is_contiguous(&dst) || a->len > CRPC_BULK_LEN_MAX ||
		a->len != crpc_tensor_elems(&dst) * crpc_tensor_dtype_size(a->dtype))
		return crpc_fail(-EPROTO,
			"tensor_bulk: array %u of %llu bytes: expected %llu without gaps", i,
			(unsigned long long)a->len,
			(unsigned long long)(crpc_tensor_elems(&dst) *
				crpc_tensor_dtype_size(a->dtype)));
	return 0;
}

/* Copy a request once and check the copy. */
static int
job_read(struct crpc_tensor_bulk *n, struct net_job *job, const struct crpc_req *req)
{
	const uint8_t *bytes = req->data;
	uint32_t len;
	int rc = 0;

	if (req->len < sizeof(job->head))
		return -EPROTO;
	memcpy(&job->head, bytes, sizeof(job->head));
	if (job->head.magic != NET_MAGIC || job->head.version != NET_VERSION ||
		job->head.zero != 0 || job->head.narrays > CRPC_TENSOR_BULK_ARRAYS_MAX ||
		job->head.serial >> 56 != 0)
		return -EPROTO;
	len = (uint32_t)HEAD_BYTES(job->head.narrays);
	if (req->len < len || req->len - len > sizeof(job->batch))
		return -EPROTO;
	memcpy(job->array, bytes + sizeof(job->head), len - sizeof(job->head));
	job->batch_len = req->len - len;
	memcpy(job->batch, bytes + len, job->batch_len);
	if (job->batch_len != 0 && n->conf.runner == NULL)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < job->head.narrays && rc == 0; i++)
		rc = array_check(n, job, i);
	return rc;
}

/* One that wants no answer is ended too. */
static void
request_refuse(struct crpc_tensor_bulk *n, uint64_t now_ns, uint64_t token, int rc)
{
	n->stats.refused++;
	if (crpc_copyrpc_fail(n->conf.ctx, now_ns, token, rc) != 0)
		crpc_copyrpc_release(n->conf.ctx, now_ns, token);
}

static void
job_take(struct crpc_tensor_bulk *n, uint64_t now_ns, const struct crpc_req *req)
{
	uint32_t at = (uint32_t)__builtin_ctz(~n->jobs);
	struct net_job *job = n->job + at;
	int rc = -ENOBUFS;

	if (at < CRPC_TENSOR_BULK_CALLS) {
		job->status = 0;
		job->posted = job->open = 0;
		job->token = req->token;
		rc = job_read(n, job, req);
	}
	if (rc == 0) {
		n->jobs |= 1u << at;
		return;
	}
	crpc_err("tensor_bulk: a request of %u bytes is refused: error %d", req->len, rc);
	request_refuse(n, now_ns, req->token, rc);
}

static void
job_fail(struct crpc_tensor_bulk *n, uint64_t now_ns, struct net_job *job, int status)
{
	if (job->status != 0)
		return;
	job->status = status;
	for (uint32_t i = 0; i < job->posted; i++)
		crpc_bulk_cancel(n->conf.bulk, now_ns, job->req[i]);
}

/* Post receives as far as the pool allows. */
static void
job_post(struct crpc_tensor_bulk *n, uint64_t now_ns, struct net_job *job)
{
	struct net_array *a;
	uint32_t i;
	int rc;

	while (job->status == 0 && job->posted < job->head.narrays) {
		i = job->posted;
		a = &job->array[i];
		rc = crpc_bulk_irecv(n->conf.conn, now_ns, tag_of(job->head.serial, i),
			crpc_tensor_ptr(&a->dst, &n->space), a->len, CRPC_BULK_CONVERT(job->op[i]),
			COOKIE_RECV | (uint64_t)(job - n->job), &job->req[i]);
		if (rc == -EAGAIN)
			return;
		if (rc != 0) {
			job_fail(n, now_ns, job, rc);
			return;
		}
		job->posted++;
		job->open++;
	}
}

/* All arrays have ended: run and answer. */
static void
job_end(struct crpc_tensor_bulk *n, uint64_t now_ns, struct net_job *job)
{
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];
	int nops = 0, rc = job->status;

	if (rc == 0 && job->batch_len != 0) {
		nops = crpc_tensor_runner_run(n->conf.runner, job->batch, job->batch_len,
			n->conf.block, n->conf.block_len, 0, status);
		rc = nops < 0 ? nops : 0;
	}
	if (rc == 0)
		rc = crpc_copyrpc_reply(n->conf.ctx, now_ns, job->token, status,
			(uint32_t)nops * (uint32_t)sizeof(status[0]));
	if (rc != 0)
		request_refuse(n, now_ns, job->token, rc);
	n->stats.served += rc == 0;
	n->jobs &= ~(1u << (job - n->job));
}

static void
jobs_turn(struct crpc_tensor_bulk *n, uint64_t now_ns)
{
	struct net_job *job;

	for (uint32_t i = 0; i < CRPC_TENSOR_BULK_CALLS; i++) {
		job = &n->job[i];
		if ((n->jobs >> i & 1) == 0)
			continue;
		job_post(n, now_ns, job);
		if (job->open == 0 && (job->status != 0 || job->posted == job->head.narrays))
			job_end(n, now_ns, job);
	}
}

/* ---- the loop ---- */

static void
result_take(struct crpc_tensor_bulk *n, uint64_t now_ns, const struct crpc_bulk_result *r)
{
	uint32_t place = (uint32_t)r->cookie;
	struct net_job *job;

	if (place >= CRPC_TENSOR_BULK_CALLS)
		return;
	if ((r->cookie & COOKIE_RECV) == 0) {
		n->call[place].sends--;
		return;
	}
	job = &n->job[place];
	job->open--;
	if (r->status != 0) {
		job_fail(n, now_ns, job, r->status);
		return;
	}
	n->stats.arrays_received++;
	n->stats.bytes_received += r->len;
}

static void
calls_turn(struct crpc_tensor_bulk *n, uint64_t now_ns)
{
	struct crpc_done done[BURST];
	struct crpc_req req[BURST];
	uint16_t k = crpc_copyrpc_poll(n->conf.ctx, now_ns, done, BURST);

	k = crpc_bulk_take_done(n->conf.bulk, now_ns, done, k);
	for (uint16_t i = 0; i < k; i++)
		call_take(n, now_ns, &done[i]);
	k = crpc_copyrpc_recv(n->conf.ctx, now_ns, req, BURST);
	k = crpc_bulk_take_req(n->conf.bulk, 0, now_ns, req, k);
	for (uint16_t i = 0; i < k; i++)
		job_take(n, now_ns, &req[i]);
}

void
crpc_tensor_bulk_progress(struct crpc_tensor_bulk *n, uint64_t now_ns)
{
	struct crpc_bulk_result result[BURST];
	uint16_t k;

	calls_turn(n, now_ns);
	jobs_turn(n, now_ns);
	crpc_bulk_progress(n->conf.bulk, now_ns);
	k = crpc_bulk_test_burst(n->conf.bulk, result, BURST);
	for (uint16_t i = 0; i < k; i++)
		result_take(n, now_ns, &result[i]);
	if (k != 0)
		jobs_turn(n, now_ns);
	crpc_copyrpc_flush(n->conf.ctx, now_ns);
}

const struct crpc_tensor_bulk_stats *
crpc_tensor_bulk_stats(const struct crpc_tensor_bulk *n)
{
	return &n->stats;
}
