/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ours: lib/tensor_ipc. The array stays where it is, in a block of an arena; a batch with its
 * description goes to the server with the block, and the server checks it and uses the array in
 * place. bf16: the sender writes half the bytes into the block, the receiver widens them into
 * memory of its own.
 */
#include <stdlib.h>

#include "crpc_arena.h"
#include "crpc_clock.h"
#include "crpc_idle.h"
#include "crpc_log.h"
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
block_bytes(const struct tensor_lane *l)
{
	return l->elems * (tensor_way(l)->form == TENSOR_BF16 ? sizeof(uint16_t) : sizeof(float));
}

/* ---- side 0 ---- */

struct ours_sender {
	enum tensor_form form;
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
sender_close(struct app_lane *l, int side)
{
	struct ours_sender *s = l->state[0];

	crpc_ipc_client_close(s->c);
	crpc_arena_leave(s->cache);
	crpc_arena_detach(s->arena);
	crpc_shm_detach(s->seg);
	free(s->x);
	free(s);
}

static int
sender_open(struct app_lane *base, int side)
{
	struct ours_sender *s = app_lane_state(base, 0, sizeof(*s));
	struct tensor_lane *l = (struct tensor_lane *)base;

	if (s == NULL)
		return -ENOMEM;
	s->form = tensor_way(l)->form;
	s->elems = l->elems;
	s->x = l->array = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up(l->elems * sizeof(float), CRPC_CACHE_LINE));
	return s->x != NULL ? 0 : tensor_fail(l, -ENOMEM, "no memory");
}

/* The arena of side 1, a block of it, and the server. */
static int
sender_meet(struct app_lane *base, int side)
{
	struct tensor_lane *l = (struct tensor_lane *)base;
	struct ours_sender *s = base->state[0];
	char name[sizeof(l->name) + 8];
	struct crpc_ipc_client_conf ipc = {
		.name = name, .timeout_ms = RPB_MEET_MS, .probe_ms = PROBE_MS};

	snprintf(name, sizeof(name), "%s.ipc", l->name);
	s->seg = crpc_shm_attach(NULL, l->name, KIND, 1, RPB_MEET_MS);
	s->arena = s->seg == NULL ? NULL : crpc_arena_attach(s->seg, ARENA_OFF);
	s->cache = s->arena == NULL ? NULL : crpc_arena_join(s->arena, NULL);
	s->block = s->cache == NULL ? NULL : crpc_arena_alloc(s->cache, block_bytes(l), &s->ref);
	if (s->block != NULL) {
		memset(s->block, 0, block_bytes(l));
		ipc.arena = s->cache;
		s->c = crpc_ipc_client_connect(&ipc);
		if (s->form == TENSOR_IN_PLACE)
			l->array = s->block;
	}
	return s->c != NULL ? 0 : tensor_fail(l, -EIO, "%s", crpc_log_last());
}

/* The message: the array in place or brought into the block, its description, one operation. */
static int
serialize(struct ours_sender *s)
{
	struct crpc_tensor_args args = {.nin = 1};
	bool half = s->form == TENSOR_BF16;
	struct crpc_tensor t;
	int rc;

	if (s->form == TENSOR_COPIED)
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
sender_wait(struct tensor_lane *l, struct ours_sender *s, struct tensor_answer *a)
{
	uint64_t end = crpc_clock_ns() + RPB_MEET_MS * UINT64_C(1000000);
	struct crpc_ipc_block block;
	struct crpc_done done;
	uint32_t polls = 0;
	int32_t status = 0;
	int rc;

	while (crpc_ipc_client_poll(s->c, crpc_clock_ns(), &done, 1) == 0) {
		crpc_pause();
		if (++polls % WAIT_POLLS != 0)
			continue;
		if (app_party_look(l->base.party, 0) != 0)
			return -ECONNRESET;
		if (crpc_clock_ns() > end)
			return tensor_fail(
				l, -ETIMEDOUT, "no answer in %d s", RPB_MEET_MS / 1000);
	}
	rc = crpc_tensor_ipc_status(&done, &status, 1);
	if (rc == 0)
		rc = crpc_ipc_client_take(s->c, &done, &block);
	if (rc != 0)
		return tensor_fail(l, rc, "a pass: %s", strerror(-rc));
	s->ref = block.ref;
	if (status != 0)
		return tensor_fail(l, status, "the server: %s", strerror(-status));
	memcpy(a, crpc_shm_ptr(s->seg, TIMES_OFF, sizeof(*a)), sizeof(*a));
	return 0;
}

static int
sender_pass(struct tensor_lane *l, struct tensor_pass *t)
{
	struct ours_sender *s = l->base.state[0];
	int rc;

	t->begin = crpc_clock_ticks();
	rc = serialize(s);
	t->serialized = crpc_clock_ticks();
	if (rc == 0)
		rc = crpc_tensor_ipc_call(s->c, crpc_clock_ns(), &s->batch, s->ref, 0);
	t->sent = crpc_clock_ticks();
	return rc != 0 ? tensor_fail(l, rc, "%s", crpc_log_last()) : sender_wait(l, s, &t->answer);
}

/* ---- side 1 ---- */

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
receiver_close(struct app_lane *l, int side)
{
	struct ours_receiver *r = l->state[1];

	crpc_tensor_runner_free(r->runner);
	crpc_ipc_server_free(r->s);
	crpc_arena_leave(r->cache);
	crpc_arena_detach(r->arena);
	crpc_shm_free(r->seg);
	free(r->x);
	free(r);
}

/* A segment with an arena that holds the block: 0, or -EIO with the cause logged. */
static int
arena_make(struct ours_receiver *r, const struct tensor_lane *l)
{
	const struct crpc_arena_conf conf = {
		.max_members = 4, .max_block = crpc_max(crpc_pow2_ceil(block_bytes(l)), SPARE)};
	uint64_t size = crpc_arena_size(&conf, conf.max_block + SPARE);
	const struct crpc_shm_conf shm = {
		.name = l->name, .size = ARENA_OFF + size, .kind = KIND, .kind_version = 1};

	r->seg = crpc_shm_create(&shm);
	if (r->seg == NULL || crpc_arena_format(r->seg, ARENA_OFF, size, &conf) != 0)
		return -EIO;
	crpc_shm_ready(r->seg);
	r->arena = crpc_arena_attach(r->seg, ARENA_OFF);
	r->cache = r->arena == NULL ? NULL : crpc_arena_join(r->arena, NULL);
	return r->cache == NULL ? -EIO : 0;
}

static int
receiver_open(struct app_lane *base, int side)
{
	struct tensor_lane *l = (struct tensor_lane *)base;
	const struct crpc_tensor_runner_conf runner = {.elems_max = TENSOR_SIZE_MAX};
	char name[sizeof(l->name) + 8];
	struct crpc_ipc_server_conf ipc = {.name = name,
		.max_clients = 1,
		.depth = 1,
		.req_max = CRPC_TENSOR_IPC_REQ_MAX(1, 1),
		.resp_max = CRPC_TENSOR_IPC_RESP_MAX(1)};
	struct ours_receiver *r = app_lane_state(base, 1, sizeof(*r));

	if (r == NULL)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s.ipc", l->name);
	r->user = &l->user;
	r->x = aligned_alloc(
		CRPC_CACHE_LINE, crpc_align_up(l->elems * sizeof(float), CRPC_CACHE_LINE));
	r->runner = crpc_tensor_runner_create(&runner);
	if (r->x != NULL && r->runner != NULL && arena_make(r, l) == 0 &&
		crpc_tensor_runner_add(r->runner, OP_USE, 1, 0, op_use, r) == 0 &&
		crpc_tensor_runner_add(r->runner, OP_WIDEN, 1, 0, op_widen, r) == 0) {
		ipc.arena = r->cache;
		r->s = crpc_ipc_server_create(&ipc);
	}
	return r->s != NULL ? 0 : tensor_fail(l, -EIO, "%s", crpc_log_last());
}

/* Until the client is there: it is admitted by reap(), which is no part of a pass. */
static int
receiver_meet(struct app_lane *l, int side)
{
	return rpb_admit(l, ((struct ours_receiver *)l->state[1])->s, 1);
}

static int
receiver_serve(struct tensor_lane *l)
{
	struct ours_receiver *r = l->base.state[1];
	struct crpc_req req;
	int n;

	if (crpc_ipc_server_recv(r->s, crpc_clock_ns(), &req, 1) == 0) {
		crpc_pause();
		return 0;
	}
	l->user.answer.received = crpc_clock_ticks();
	n = crpc_tensor_ipc_serve(r->s, crpc_clock_ns(), &req, r->runner);
	return n < 0 ? n : 0;
}

#define OUR_WAY(way, text, what)                                                                   \
	const struct tensor_way way = {                                                            \
		.base = APP_WAY_SIDES(text, sender_open, receiver_open, sender_meet,               \
			receiver_meet, sender_close, receiver_close),                              \
		.form = what,                                                                      \
		.pass = sender_pass,                                                               \
		.serve = receiver_serve,                                                           \
	}

OUR_WAY(tensor_f32, "tensor_f32", TENSOR_IN_PLACE);
OUR_WAY(tensor_f32_copied, "tensor_f32_copied", TENSOR_COPIED);
OUR_WAY(tensor_bf16, "tensor_bf16", TENSOR_BF16);
