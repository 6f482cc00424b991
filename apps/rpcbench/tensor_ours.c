/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ours: lib/tensor_ipc. The array stays where it is, in a block of an arena; a batch with its
 * description goes to the server with the block, and the server checks it and uses the array in
 * place. bf16: the sender writes half the bytes into the block, the receiver widens them into
 * memory of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_arena.h"
#include "crpc_idle.h"
#include "crpc_log.h"
#include "crpc_shm.h"
#include "crpc_tensor_convert.h"
#include "crpc_tensor_ipc.h"
#include "tensor.h"

#define KIND      CRPC_SHM_KIND('R', 'P', 'B', 'T')
#define ARENA_OFF 4096
/* The server's report of a pass lies before the arena: it is no part of the call. */
#define TIMES_OFF 2048
/* Of the arena, beside the block: what a member may cache. */
#define SPARE (4u << 20)
/* Operations of the server: use an array of f32 in place; make one of bf16. */
#define OP_USE   CRPC_TENSOR_OP_USER
#define OP_WIDEN (CRPC_TENSOR_OP_USER + 1)
/* Longer than a run: the client does not check whether the server lives. This program does. */
#define PROBE_MS 3600000
/* Empty polls between two looks at the clock. */
#define WAIT_POLLS 4096

static uint64_t
block_bytes(const struct tensor_conf *c)
{
	return c->elems * (c->way == TENSOR_BF16 ? sizeof(uint16_t) : sizeof(float));
}

/* ---- first process ---- */

struct ours_sender {
	enum tensor_way_id way;
	uint64_t elems;
	float *x;  /* memory of this process, unless the array is written where it is passed */
	struct crpc_shm *seg;
	struct crpc_arena *arena;
	struct crpc_arena_cache *cache;
	void *block;
	uint64_t ref;
	struct crpc_ipc_client *c;
	struct crpc_tensor_batch batch;
};

static void
sender_close(void *client)
{
	struct ours_sender *s = client;

	crpc_ipc_client_close(s->c);
	crpc_arena_leave(s->cache);
	crpc_arena_detach(s->arena);
	crpc_shm_detach(s->seg);
	free(s->x);
	free(s);
}

/* The arena of the second process, and a block of it: 0, or -EIO with the cause logged. */
static int
block_take(struct ours_sender *s, const struct tensor_conf *c)
{
	s->seg = crpc_shm_attach(NULL, c->name, KIND, 1, TENSOR_MEET_MS);
	s->arena = s->seg == NULL ? NULL : crpc_arena_attach(s->seg, ARENA_OFF);
	s->cache = s->arena == NULL ? NULL : crpc_arena_join(s->arena, NULL);
	s->block = s->cache == NULL ? NULL : crpc_arena_alloc(s->cache, block_bytes(c), &s->ref);
	if (s->block == NULL)
		return -EIO;
	memset(s->block, 0, block_bytes(c));
	return 0;
}

static void *
sender_open(struct rpb_pair *p, const struct tensor_conf *c)
{
	char name[sizeof(c->name) + 8];
	struct crpc_ipc_client_conf ipc = {
		.name = name, .timeout_ms = TENSOR_MEET_MS, .probe_ms = PROBE_MS};
	struct ours_sender *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		tensor_why(-ENOMEM, "no memory");
		return NULL;
	}
	snprintf(name, sizeof(name), "%s.ipc", c->name);
	s->way = c->way;
	s->elems = c->elems;
	s->x = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up(c->elems * sizeof(float), CRPC_CACHE_LINE));
	if (s->x != NULL && block_take(s, c) == 0) {
		ipc.arena = s->cache;
		s->c = crpc_ipc_client_connect(&ipc);
	}
	if (s->c != NULL)
		return s;
	tensor_why(-EIO, "%s", crpc_log_last());
	sender_close(s);
	return NULL;
}

static float *
sender_array(void *client)
{
	struct ours_sender *s = client;

	return s->way == TENSOR_F32 ? s->block : s->x;
}

/* The message: the array in place or brought into the block, its description, one operation. */
static int
serialize(struct ours_sender *s)
{
	struct crpc_tensor_args args = {.nin = 1};
	bool half = s->way == TENSOR_BF16;
	struct crpc_tensor t;
	int rc;

	if (s->way == TENSOR_F32_COPIED)
		memcpy(s->block, s->x, s->elems * sizeof(float));
	else if (half)
		crpc_tensor_f32_to_bf16(s->block, s->x, s->elems);
	rc = crpc_tensor_init(&t, half ? CRPC_TENSOR_BF16 : CRPC_TENSOR_F32, 1, &s->elems, 0, 0);
	if (rc != 0)
		return rc;
	crpc_tensor_batch_init(&s->batch, 0);
	args.arg[0] = crpc_tensor_batch_array(&s->batch, &t);
	rc = crpc_tensor_batch_op(&s->batch, half ? OP_WIDEN : OP_USE, &args);
	return rc < 0 ? rc : 0;
}

/* Poll until the answer is there, and with it the block. */
static int
sender_wait(struct ours_sender *s, struct tensor_answer *a)
{
	uint64_t end = crpc_clock_ns() + TENSOR_MEET_MS * UINT64_C(1000000);
	struct crpc_ipc_block block;
	struct crpc_done done;
	uint32_t polls = 0;
	int32_t status = 0;
	int rc;

	while (crpc_ipc_client_poll(s->c, crpc_clock_ns(), &done, 1) == 0) {
		crpc_pause();
		if (++polls % WAIT_POLLS == 0 && crpc_clock_ns() > end)
			return tensor_why(-ETIMEDOUT, "no answer in %d s", TENSOR_MEET_MS / 1000);
	}
	rc = crpc_tensor_ipc_status(&done, &status, 1);
	if (rc == 0)
		rc = crpc_ipc_client_take(s->c, &done, &block);
	if (rc != 0)
		return tensor_why(rc, "a pass: %s", strerror(-rc));
	s->ref = block.ref;
	if (status != 0)
		return tensor_why(status, "the server: %s", strerror(-status));
	memcpy(a, crpc_shm_ptr(s->seg, TIMES_OFF, sizeof(*a)), sizeof(*a));
	return 0;
}

static int
sender_pass(void *client, struct tensor_pass *t)
{
	struct ours_sender *s = client;
	int rc;

	t->begin = crpc_clock_ticks();
	rc = serialize(s);
	t->serialized = crpc_clock_ticks();
	if (rc == 0)
		rc = crpc_tensor_ipc_call(s->c, crpc_clock_ns(), &s->batch, s->ref, 0);
	t->sent = crpc_clock_ticks();
	return rc != 0 ? tensor_why(rc, "%s", crpc_log_last()) : sender_wait(s, &t->answer);
}

/* ---- second process ---- */

struct ours_receiver {
	struct crpc_ipc_server *s;
	struct crpc_tensor_runner *runner;
	struct crpc_shm *seg;
	struct crpc_arena *arena;
	struct crpc_arena_cache *cache;
	float *x; /* where bf16 is widened to */
	struct tensor_user *user;
};

/* The array must be what was agreed on: what comes behind takes it as such. */
static bool
agreed(const struct ours_receiver *r, const struct crpc_tensor *t, uint32_t dtype)
{
	return t->dtype == dtype && crpc_tensor_elems(t) == r->user->elems &&
	       crpc_tensor_is_contiguous(t);
}

static int
use(struct ours_receiver *r, const float *x)
{
	struct tensor_answer *times = crpc_shm_ptr(r->seg, TIMES_OFF, sizeof(*times));

	tensor_use(r->user, x);
	*times = r->user->answer;
	return 0;
}

static int
op_use(void *ctx, const struct crpc_tensor_call *call)
{
	return agreed(ctx, call->t[0], CRPC_TENSOR_F32) ? use(ctx, call->ptr[0]) : -EINVAL;
}

static int
op_widen(void *ctx, const struct crpc_tensor_call *call)
{
	struct ours_receiver *r = ctx;

	if (!agreed(r, call->t[0], CRPC_TENSOR_BF16))
		return -EINVAL;
	crpc_tensor_bf16_to_f32(r->x, call->ptr[0], r->user->elems);
	return use(r, r->x);
}

static void
receiver_close(void *server)
{
	struct ours_receiver *r = server;

	crpc_tensor_runner_free(r->runner);
	crpc_ipc_server_free(r->s);
	crpc_arena_leave(r->cache);
	crpc_arena_detach(r->arena);
	crpc_shm_free(r->seg);
	free(r->x);
	free(r);
}

/* Until the client is there: it is admitted by reap(), which is no part of a pass. */
static int
wait_client(struct rpb_pair *p, struct crpc_ipc_server *s)
{
	uint64_t end = crpc_clock_ns() + TENSOR_MEET_MS * UINT64_C(1000000);
	struct crpc_ipc_server_stats st;

	do {
		crpc_ipc_server_reap(s);
		crpc_ipc_server_stats(s, &st);
		if (st.clients == 1)
			return 0;
	} while (!rpb_pair_stopped(p) && crpc_clock_ns() < end);
	return rpb_pair_fail(p, -ETIMEDOUT, "the client did not connect");
}

/* A segment with an arena that holds the block: 0, or -EIO with the cause logged. */
static int
arena_make(struct ours_receiver *r, const struct tensor_conf *c)
{
	const struct crpc_arena_conf conf = {.max_members = 4,
		.max_block = crpc_max(crpc_pow2_ceil(block_bytes(c)), SPARE)};
	uint64_t size = crpc_arena_size(&conf, conf.max_block + SPARE);
	const struct crpc_shm_conf shm = {
		.name = c->name, .size = ARENA_OFF + size, .kind = KIND, .kind_version = 1};

	r->seg = crpc_shm_create(&shm);
	if (r->seg == NULL || crpc_arena_format(r->seg, ARENA_OFF, size, &conf) != 0)
		return -EIO;
	crpc_shm_ready(r->seg);
	r->arena = crpc_arena_attach(r->seg, ARENA_OFF);
	r->cache = r->arena == NULL ? NULL : crpc_arena_join(r->arena, NULL);
	return r->cache == NULL ? -EIO : 0;
}

static void *
receiver_open(struct rpb_pair *p, const struct tensor_conf *c)
{
	const struct crpc_tensor_runner_conf runner = {.elems_max = TENSOR_SIZE_MAX};
	char name[sizeof(c->name) + 8];
	struct crpc_ipc_server_conf ipc = {.name = name,
		.max_clients = 1,
		.depth = 1,
		.req_max = CRPC_TENSOR_IPC_REQ_MAX(1, 1),
		.resp_max = CRPC_TENSOR_IPC_RESP_MAX(1)};
	struct ours_receiver *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		rpb_pair_fail(p, -ENOMEM, "no memory");
		return NULL;
	}
	snprintf(name, sizeof(name), "%s.ipc", c->name);
	r->x = aligned_alloc(CRPC_CACHE_LINE,
		crpc_align_up(c->elems * sizeof(float), CRPC_CACHE_LINE));
	r->runner = crpc_tensor_runner_create(&runner);
	if (r->x == NULL || r->runner == NULL || arena_make(r, c) != 0 ||
		crpc_tensor_runner_add(r->runner, OP_USE, 1, 0, op_use, r) != 0 ||
		crpc_tensor_runner_add(r->runner, OP_WIDEN, 1, 0, op_widen, r) != 0)
		goto err_said;
	ipc.arena = r->cache;
	r->s = crpc_ipc_server_create(&ipc);
	if (r->s == NULL)
		goto err_said;
	if (wait_client(p, r->s) == 0)
		return r;
	receiver_close(r);
	return NULL;

err_said:
	rpb_pair_fail(p, -EIO, "%s", crpc_log_last());
	receiver_close(r);
	return NULL;
}

static int
receiver_serve(void *server, struct tensor_user *u)
{
	struct ours_receiver *r = server;
	struct crpc_req req;
	int n;

	if (crpc_ipc_server_recv(r->s, crpc_clock_ns(), &req, 1) == 0) {
		crpc_pause();
		return 0;
	}
	u->answer.received = crpc_clock_ticks();
	r->user = u;
	n = crpc_tensor_ipc_serve(r->s, crpc_clock_ns(), &req, r->runner);
	return n < 0 ? n : 0;
}

#define OUR_WAY(way, text)                                                                         \
	const struct tensor_way way = {                                                            \
		.name = text,                                                                      \
		.built = true,                                                                     \
		.open = sender_open,                                                               \
		.array = sender_array,                                                             \
		.pass = sender_pass,                                                               \
		.close = sender_close,                                                             \
		.serve_open = receiver_open,                                                       \
		.serve = receiver_serve,                                                           \
		.serve_close = receiver_close,                                                     \
	}

OUR_WAY(tensor_f32, "tensor_f32");
OUR_WAY(tensor_f32_copied, "tensor_f32_copied");
OUR_WAY(tensor_bf16, "tensor_bf16");
