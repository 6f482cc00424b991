/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays to another host on a device and its driver: every type and conversion on every path, fused
 * operations, both ways at once on two threads, places that are taken, requests that lie, what is
 * announced and never sent, and a peer that is killed in the middle. Any RDMA device will do; the
 * tests start it on the software one, and on paper, where there are no threads and no processes.
 * Without a device it is skipped.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>

#include "test.h"
#include "bulk_check.h"
#include "child.h"
#include "crpc_atomic.h"
#include "tensor_bulk_end.h"

static struct end end[2]; /* 0 calls, 1 owns. */
static uint64_t seed = 4711;

static void
make(const struct crpc_bulk_conf *conf, bool both_own)
{
	struct end_addr addr[2];

	for (int i = 0; i < 2; i++) {
		end_open(&end[i], conf, i == 1 || both_own);
		end_addr(&end[i], &addr[i]);
	}
	for (int i = 0; i < 2; i++)
		end_connect(&end[i], &addr[!i]);
}

static void
unmake(void)
{
	end_close(&end[0]);
	end_close(&end[1]);
}

static void
turn(void)
{
	crpc_tensor_bulk_progress(end[0].net, crpc_clock_ns());
	crpc_tensor_bulk_progress(end[1].net, crpc_clock_ns());
}

/* Until n calls of end 0 have ended. */
static void
calls_end(struct crpc_tensor_bulk_done *done, uint32_t n)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t have = 0;

	while (have < n) {
		if (crpc_clock_ns() > until)
			fail_msg("%u of %u calls ended: %s", have, n, crpc_log_last());
		turn();
		have += crpc_tensor_bulk_poll(end[0].net, done + have, n - have);
	}
}

static void
call_ok(const struct crpc_tensor_bulk_put *put, uint32_t n, const struct crpc_tensor_batch *b)
{
	struct crpc_tensor_bulk_done done;

	assert_int_equal(crpc_tensor_bulk_call(end[0].net, crpc_clock_ns(), put, n, b, 9), 0);
	calls_end(&done, 1);
	if (done.status != 0)
		fail_msg("status %d: %s", done.status, crpc_log_last());
	assert_int_equal(done.cookie, 9);
	assert_int_equal(done.nops, b == NULL ? 0 : crpc_tensor_batch_ops(b));
	for (uint32_t i = 0; i < done.nops; i++)
		if (done.op[i] != 0)
			fail_msg("operation %u: %d", i, done.op[i]);
}

/* ---- what it is for ---- */

/* Pairs of types; the first four are converted. */
static const uint32_t pair[][2] = {{CRPC_TENSOR_BF16, CRPC_TENSOR_F32},
		{CRPC_TENSOR_F16, CRPC_TENSOR_F32}, {CRPC_TENSOR_F32, CRPC_TENSOR_BF16},
		{CRPC_TENSOR_F32, CRPC_TENSOR_F16}, {CRPC_TENSOR_F32, CRPC_TENSOR_F32},
		{CRPC_TENSOR_BF16, CRPC_TENSOR_BF16}, {CRPC_TENSOR_U8, CRPC_TENSOR_U8},
		{CRPC_TENSOR_I16, CRPC_TENSOR_I16}, {CRPC_TENSOR_U32, CRPC_TENSOR_U32},
		{CRPC_TENSOR_F64, CRPC_TENSOR_F64}};

static uint8_t data[ELEMS_MAX * 8] crpc_aligned(64);

/* One array, with the check of its content by the owner, and by us, bytes beside it included. */
static void
array_arrives(uint32_t from, uint32_t to, uint64_t elems, uint32_t content)
{
	uint64_t offset = 64 * (1 + content % 100), in = elems * crpc_tensor_dtype_size(from);
	uint64_t out = elems * crpc_tensor_dtype_size(to), i;
	struct crpc_tensor_bulk_put put = {.data = data, .dtype = from,
			.dst = array_at(to, elems, offset)};
	static struct crpc_tensor_batch b;

	array_fill(data, in, content);
	memset(end[1].block, 0xee, BLOCK);
	crpc_tensor_batch_init(&b, 0);
	batch_one(&b, check_of(from, to), &put.dst, content);
	call_ok(&put, 1, &b);
	if (from == to)
		assert_memory_equal(end[1].block + offset, data, in);
	for (i = 0; i < 64; i++) {
		assert_int_equal(end[1].block[offset - 1 - i], 0xee);
		assert_int_equal(end[1].block[offset + out + i], 0xee);
	}
}

/* From nothing to many chunks, eager and rendezvous, off by one around a chunk. */
TEST(every_type_arrives_on_every_path)
{
	static const struct crpc_bulk_conf confs[] = {{.chunk = 16384, .slots = 4},
			{.chunk = 65536, .rendezvous_min = 30000},
			{.rendezvous_min = UINT64_MAX}};
	static const uint64_t elems[] = {0, 1, 7, 4096, 8191, 16385, 100003, ELEMS_MAX};
	uint32_t c, p, n, content = 0;

	for (c = 0; c < CRPC_DIM(confs); c++) {
		make(&confs[c], false);
		for (p = 0; p < CRPC_DIM(pair); p++)
			for (n = 0; n < CRPC_DIM(elems); n++)
				array_arrives(pair[p][0], pair[p][1], elems[n], ++content);
		assert_int_equal(crpc_tensor_bulk_stats(end[1].net)->served, CRPC_DIM(pair) * n);
		assert_int_equal(crpc_tensor_bulk_stats(end[1].net)->refused, 0);
		unmake();
	}
}

static void
batch_axpy(struct crpc_tensor_batch *b, const struct crpc_tensor *x, const struct crpc_tensor *y,
		double value)
{
	struct crpc_tensor_args args = {.nin = 1, .nout = 1, .value = value};

	args.arg[0] = crpc_tensor_batch_array(b, x);
	args.arg[1] = crpc_tensor_batch_array(b, y);
	assert_true(crpc_tensor_batch_op(b, TEST_OP_AXPY, &args) >= 0);
}

/*
 * Three arrays, one of them half as wide on the wire, and a chain of operations each of which needs
 * what the one before made. A failing one in the middle: the others run, or are canceled on
 * request.
 */
TEST(operations_are_fused)
{
	enum { N = 50000 };
	static float x[N], y[N];
	static uint16_t h[N];
	const struct crpc_tensor tx = array_at(CRPC_TENSOR_F32, N, 0);
	const struct crpc_tensor ty = array_at(CRPC_TENSOR_F32, N, sizeof(x));
	const struct crpc_tensor th = array_at(CRPC_TENSOR_F32, N, 2 * sizeof(x));
	const struct crpc_tensor_bulk_put put[] = {{x, CRPC_TENSOR_F32, tx},
			{y, CRPC_TENSOR_F32, ty}, {h, CRPC_TENSOR_BF16, th}};
	const float *got = (const float *)(const void *)(end[0].block);
	static struct crpc_tensor_batch b;
	struct crpc_tensor_bulk_done done;

	for (uint32_t i = 0; i < N; i++) {
		x[i] = (float)(i % 512);
		y[i] = (float)(i % 100);
		h[i] = (uint16_t)(0x3f80 + i % 4 * 0x80); /* 1, 2, 4, 8 */
	}
	for (uint32_t stop = 0; stop < 2; stop++) {
		make(&(struct crpc_bulk_conf){.slots = 0}, false);
		got = (const float *)(const void *)(end[1].block + sizeof(x));
		crpc_tensor_batch_init(&b, stop ? CRPC_TENSOR_BATCH_STOP : 0);
		batch_one(&b, TEST_OP_SCALE, &ty, 3);
		batch_axpy(&b, &tx, &ty, 2);
		batch_one(&b, 999, &ty, 0);
		batch_axpy(&b, &th, &ty, -1);
		assert_int_equal(
			crpc_tensor_bulk_call(end[0].net, crpc_clock_ns(), put, 3, &b, 1), 0);
		calls_end(&done, 1);
		assert_int_equal(done.status, 0);
		assert_int_equal(done.nops, 4);
		assert_int_equal(done.op[0], 0);
		assert_int_equal(done.op[1], 0);
		assert_int_equal(done.op[2], -ENOSYS);
		assert_int_equal(done.op[3], stop ? -ECANCELED : 0);
		for (uint32_t i = 0; i < N; i++)
			assert_true(got[i] == 3 * y[i] + 2 * x[i] -
					(stop ? 0 : (float)(1u << i % 4)));
		/* Operations alone, on what is there. */
		crpc_tensor_batch_init(&b, 0);
		batch_one(&b, TEST_OP_SCALE, &tx, 2);
		call_ok(NULL, 0, &b);
		assert_true(*(float *)(void *)(end[1].block + 4) == 2 * x[1]);
		assert_int_equal(
			crpc_tensor_bulk_stats(end[1].net)->bytes_received, N * (4 + 4 + 2));
		unmake();
	}
}

/* ---- both ways at once, on two threads ---- */

#define CALLS      300
#define SLOTS      12 /* Calls in mind: more than there are places. */
#define SLOT_BYTES (BLOCK / SLOTS / 4096 * 4096)
#define SLOT_ELEMS (SLOT_BYTES / 3 / 4)

/* One of a thread's calls: three arrays at most, each in a third of the slot. */
struct work {
	bool open;
	uint32_t n;
	struct crpc_tensor_bulk_put put[3];
	uint8_t *data[3];
	struct crpc_tensor_batch b;
};

struct side {
	struct end *e;
	int index;
	uint64_t rng;
	uint32_t begun, ended, again;
	struct work work[SLOTS];
	const char *why;
	_Atomic uint32_t *over;
};

static void
work_make(struct side *s, uint32_t slot)
{
	struct work *w = &s->work[slot];

	w->n = rnd_below(&s->rng, 4);
	crpc_tensor_batch_init(&w->b, 0);
	for (uint32_t i = 0; i < w->n; i++) {
		/* 8 bytes each do not fit */
		const uint32_t *p = pair[rnd_below(&s->rng, CRPC_DIM(pair) - 1)];

		uint64_t elems = rnd_below(&s->rng, 8) == 0 ? rnd_below(&s->rng, SLOT_ELEMS)
						   : rnd_below(&s->rng, 3000);
		uint32_t content = rnd_below(&s->rng, 1000000);

		array_fill(w->data[i], elems * crpc_tensor_dtype_size(p[0]), content);
		w->put[i] = (struct crpc_tensor_bulk_put){.data = w->data[i],
			.dtype = p[0],
			.dst = array_at(
				p[1], elems, slot * SLOT_BYTES + i * (SLOT_BYTES / 3 / 64 * 64))};
		batch_one(&w->b, check_of(p[0], p[1]), &w->put[i].dst, content);
	}
}

static void
side_begin(struct side *s)
{
	int rc;

	for (uint32_t i = 0; i < SLOTS && s->begun < CALLS; i++) {
		struct work *w = &s->work[i];

		if (w->open)
			continue;
		work_make(s, i);
		rc = crpc_tensor_bulk_call(s->e->net, crpc_clock_ns(), w->put, w->n, &w->b, i);
		if (rc == -EAGAIN) {
			s->again++;
			return;
		}
		if (rc != 0) {
			s->why = "a call was refused";
			return;
		}
		w->open = true;
		s->begun++;
	}
}

static void
side_end(struct side *s)
{
	struct crpc_tensor_bulk_done done[4];
	uint32_t i, k, n = crpc_tensor_bulk_poll(s->e->net, done, 4);

	for (i = 0; i < n; i++) {
		if (done[i].cookie >= SLOTS || !s->work[done[i].cookie].open) {
			s->why = "a call ended twice";
			return;
		}
		s->work[done[i].cookie].open = false;
		s->ended++;
		if (done[i].status != 0)
			s->why = "a call failed";
		for (k = 0; k < done[i].nops; k++)
			if (done[i].op[k] != 0)
				s->why = "what arrived is not what was sent";
	}
}

static void *
side_run(void *arg)
{
	struct side *s = arg;
	uint64_t until = crpc_clock_ns() + WAIT_NS;

	while (s->why == NULL && s->ended < CALLS) {
		side_begin(s);
		crpc_tensor_bulk_progress(s->e->net, crpc_clock_ns());
		side_end(s);
		if (crpc_clock_ns() > until)
			s->why = "no end in time";
	}
	/* The peer still has calls to be served. */
	crpc_store_release(&s->over[s->index], 1); /* R1 */
	while (crpc_load_acquire(&s->over[!s->index]) == 0) { /* A1 pairs with R1 */
		crpc_tensor_bulk_progress(s->e->net, crpc_clock_ns());
		sched_yield();
	}
	return NULL;
}

TEST(both_ways_at_once)
{
	static struct side side[2];
	_Atomic uint32_t over[2] = {0, 0};
	pthread_t thread[2];

	if (device_on_paper())
		skip();
	make(&(struct crpc_bulk_conf){.chunk = 16384, .slots = 8, .rendezvous_min = 100000}, true);
	memset(side, 0, sizeof(side));
	for (uint32_t i = 0; i < 2; i++) {
		side[i].e = &end[i];
		side[i].index = (int)i;
		side[i].rng = 77 + i;
		side[i].over = over;
		for (uint32_t k = 0; k < SLOTS; k++)
			for (uint32_t m = 0; m < 3; m++)
				side[i].work[k].data[m] =
					aligned_alloc(64, SLOT_ELEMS / 16 * 64 + 64);
	}
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, side_run, &side[i]), 0);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < 2; i++) {
		if (side[i].why != NULL)
			fail_msg("side %u, after %u calls: %s", i, side[i].ended, side[i].why);
		assert_true(side[i].again > 0);
		assert_int_equal(crpc_tensor_bulk_stats(end[i].net)->served, CALLS);
		for (uint32_t k = 0; k < SLOTS; k++)
			for (uint32_t m = 0; m < 3; m++)
				free(side[i].work[k].data[m]);
	}
	unmake();
}

/* ---- what goes wrong ---- */

/* Bytes of a head with one array, as doc/protocol/tensor.md has them. */
#define ARRAYS_AT 16u
#define BATCH_AT  (ARRAYS_AT + 176u)

static uint32_t
head_make(uint8_t *msg, uint64_t serial, const struct crpc_tensor *dst,
		const struct crpc_tensor_batch *b)
{
	const uint64_t len = dst->length;

	memset(msg, 0, BATCH_AT);
	memcpy(msg, "TNET\1\1", 6);
	memcpy(msg + 8, &serial, 8);
	memcpy(msg + 16, &len, 8);
	memcpy(msg + 24, &dst->dtype, sizeof(dst->dtype));
	memcpy(msg + 32, dst, sizeof(*dst));
	if (b == NULL)
		return BATCH_AT;
	memcpy(msg + BATCH_AT, b->bytes, b->len);
	return BATCH_AT + b->len;
}

/* End 0 without its tensor_bulk: answers to heads that we wrote ourselves, by cookie. */
static uint32_t
raw_turn(int32_t *status, uint32_t room)
{
	struct crpc_done done[16];
	struct crpc_req req[16];
	uint64_t now = crpc_clock_ns();
	struct end *e = &end[0];
	uint16_t i, n, k = 0;

	n = crpc_copyrpc_poll(e->ctx, now, done, 16);
	n = crpc_bulk_take_done(e->b, now, done, n);
	for (i = 0; i < n; i++, k++)
		if (done[i].cookie < room)
			status[done[i].cookie] = done[i].status;
	n = crpc_copyrpc_recv(e->ctx, now, req, 16);
	assert_int_equal(crpc_bulk_take_req(e->b, 0, now, req, n), 0);
	crpc_bulk_progress(e->b, now);
	crpc_copyrpc_flush(e->ctx, now);
	crpc_tensor_bulk_progress(end[1].net, crpc_clock_ns());
	return k;
}

static void
raw_end(int32_t *status, uint32_t n)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t have = 0;

	while (have < n) {
		have += raw_turn(status, n);
		if (crpc_clock_ns() > until)
			fail_msg("%u of %u heads were answered", have, n);
	}
}

/*
 * More calls than there are places are refused there, and those whose arrays never come give their
 * places back in time. Here a call too many is not taken.
 */
TEST(places_are_taken_and_come_back)
{
	enum { RAW = CRPC_TENSOR_BULK_CALLS + 1 };
	struct crpc_bulk_conf conf = {.timeout_ns = 200000000};
	struct crpc_tensor dst = array_at(CRPC_TENSOR_U8, 1000, 64);
	struct crpc_tensor_bulk_put put = {data, CRPC_TENSOR_U8, dst};
	struct crpc_tensor_bulk_done done[CRPC_TENSOR_BULK_CALLS];
	int32_t status[RAW];
	uint8_t msg[BATCH_AT];
	uint32_t i;

	make(&conf, false);
	for (i = 0; i < RAW; i++) {
		assert_int_equal(head_make(msg, 1000 + i, &dst, NULL), BATCH_AT);
		assert_int_equal(crpc_copyrpc_call(end[0].ep, crpc_clock_ns(), msg, sizeof(msg), 0,
						i), 0);
	}
	raw_end(status, RAW);
	for (i = 0; i < RAW; i++)
		assert_int_equal(status[i], i < CRPC_TENSOR_BULK_CALLS ? -ETIMEDOUT : -ENOBUFS);
	assert_int_equal(crpc_tensor_bulk_stats(end[1].net)->refused, RAW);
	for (i = 0; i < CRPC_TENSOR_BULK_CALLS; i++)
		assert_int_equal(
			crpc_tensor_bulk_call(end[0].net, crpc_clock_ns(), &put, 1, NULL, i), 0);
	assert_int_equal(crpc_tensor_bulk_call(end[0].net, crpc_clock_ns(), &put, 1, NULL, i),
			-EAGAIN);
	calls_end(done, CRPC_TENSOR_BULK_CALLS);
	for (i = 0; i < CRPC_TENSOR_BULK_CALLS; i++)
		assert_int_equal(done[i].status, 0);
	assert_int_equal(crpc_tensor_bulk_stats(end[1].net)->served, CRPC_TENSOR_BULK_CALLS);
	unmake();
}

/* An owner that does nothing: calls end by their deadline, and their arrays are ours again. */
TEST(calls_to_a_silent_owner_end)
{
	struct crpc_bulk_conf conf = {.timeout_ns = 300000000, .confirm_ns = 100000000};
	struct crpc_tensor_bulk_put put = {
		data, CRPC_TENSOR_U8, array_at(CRPC_TENSOR_U8, 500000, 0)};
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_tensor_bulk_done done[2];
	uint32_t have = 0, i;

	make(&conf, false);
	for (i = 0; i < 2; i++)
		assert_int_equal(
			crpc_tensor_bulk_call(end[0].net, crpc_clock_ns(), &put, 1, NULL, i), 0);
	while (have < 2) {
		crpc_tensor_bulk_progress(end[0].net, crpc_clock_ns());
		have += crpc_tensor_bulk_poll(end[0].net, done + have, 2 - have);
		assert_true(crpc_clock_ns() < until);
	}
	for (i = 0; i < 2; i++)
		if (done[i].status != -ETIMEDOUT && done[i].status != -ECONNRESET)
			fail_msg("call %u ended with %d", i, done[i].status);
	unmake();
}

static uint32_t
head_spoil(uint8_t *msg, uint32_t len)
{
	static const uint64_t edge[] = {0, 1, 255, 256, BLOCK, UINT32_MAX, INT64_MAX, UINT64_MAX};
	uint64_t v = edge[rnd_below(&seed, CRPC_DIM(edge))] + rnd_below(&seed, 3) - 1;
	uint32_t i, steps = 1 + rnd_below(&seed, 3), size;

	for (i = 0; i < steps; i++) {
		size = 1u << rnd_below(&seed, 4);
		if (rnd_below(&seed, 4) == 0)
			len = rnd_below(&seed, len) + 1;
		else if (len > size)
			memcpy(msg + rnd_below(&seed, len - size), &v, size);
	}
	return len;
}

/* Heads of random faults: each is answered, nothing beside the block changes, and calls go on. */
TEST(heads_that_lie_are_refused)
{
	enum { TRIES = 400, ROUND = 8 };
	struct crpc_bulk_conf conf = {.timeout_ns = 2000000, .confirm_ns = 200000000};
	struct crpc_tensor dst = array_at(CRPC_TENSOR_U8, 4096, BLOCK - 4096);
	struct crpc_tensor f = array_at(CRPC_TENSOR_F32, 16, 128);
	static uint8_t msg[BATCH_AT + CRPC_TENSOR_BATCH_BYTES_MAX] crpc_aligned(8);
	static struct crpc_tensor_batch b;
	int32_t status[ROUND];

	make(&conf, false);
	crpc_tensor_batch_init(&b, 0);
	batch_one(&b, TEST_OP_SCALE, &f, 2);
	for (uint32_t i = 0; i < TRIES; i += ROUND) {
		for (uint32_t k = 0; k < ROUND; k++) {
			uint32_t len = head_make(msg, 5000 + i + k, &dst, &b);

			len = head_spoil(msg, len);
			assert_int_equal(crpc_copyrpc_call(end[0].ep, crpc_clock_ns(), msg, len,
							256, k), 0);
		}
		raw_end(status, ROUND);
		for (uint32_t k = 0; k < ROUND; k++)
			assert_true(status[k] <= 0 && status[k] >= -4095);
		end_guards(&end[1]);
	}
	assert_int_equal(crpc_tensor_bulk_stats(end[1].net)->served +
			crpc_tensor_bulk_stats(end[1].net)->refused, TRIES);
	assert_true(crpc_tensor_bulk_stats(end[1].net)->refused > TRIES / 2);
	unmake();
	make(&(struct crpc_bulk_conf){.slots = 0}, false);
	array_arrives(CRPC_TENSOR_BF16, CRPC_TENSOR_F32, 1000, 3);
	unmake();
}

/* ---- a peer that is killed ---- */

static void
exchange(int fd, struct end *e)
{
	struct end_addr mine, theirs;
	char ready = 1;

	end_addr(e, &mine);
	assert_int_equal(write(fd, &mine, sizeof(mine)), sizeof(mine));
	assert_int_equal(recv(fd, &theirs, sizeof(theirs), MSG_WAITALL), sizeof(theirs));
	end_connect(e, &theirs);
	assert_int_equal(write(fd, &ready, 1), 1);
	assert_int_equal(read(fd, &ready, 1), 1);
}

/* The other process: calls without end, or owns, until it is killed. */
static void
peer_process(int fd, const struct crpc_bulk_conf *conf, bool owner)
{
	struct crpc_tensor_bulk_put put = {data, CRPC_TENSOR_F32,
			array_at(CRPC_TENSOR_F32, 250000, 4096)};
	struct crpc_tensor_bulk_done done[8];
	struct end e;

	end_open(&e, conf, owner);
	exchange(fd, &e);
	for (;;) {
		while (!owner &&
			crpc_tensor_bulk_call(e.net, crpc_clock_ns(), &put, 1, NULL, 0) == 0)
			;
		crpc_tensor_bulk_progress(e.net, crpc_clock_ns());
		crpc_tensor_bulk_poll(e.net, done, 8);
	}
}

static pid_t
peer_start(const struct crpc_bulk_conf *conf, bool owner, int *fd)
{
	int pair_fd[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_fd), 0);
	pid = fork_mortal();
	if (pid == 0) {
		close(pair_fd[0]);
		peer_process(pair_fd[1], conf, owner);
	}
	close(pair_fd[1]);
	*fd = pair_fd[0];
	return pid;
}

static void
peer_kill(pid_t pid, int fd)
{
	child_kill(pid);
	close(fd);
}

/* Make broken connections fit for the next peer. */
static void
end_reset(struct end *e)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;

	crpc_bulk_conn_shutdown(e->conn);
	crpc_copyrpc_ep_shutdown(e->ep);
	while (crpc_bulk_conn_reset(e->conn) != 0 || crpc_copyrpc_ep_reset(e->ep) != 0) {
		crpc_tensor_bulk_progress(e->net, crpc_clock_ns());
		if (crpc_clock_ns() > until)
			fail_msg("no reset: %s", crpc_log_last());
	}
}

/*
 * The caller dies while its arrays are on their way: its places come back, and the next one is
 * served.
 */
TEST(owner_outlives_killed_callers)
{
	const struct crpc_bulk_conf conf = {.chunk = 16384, .timeout_ns = 2000000000,
			.confirm_ns = 500000000};
	const struct crpc_tensor_bulk_stats *stats;
	uint64_t until, served;
	struct end *e = &end[1];
	int fd;

	if (device_on_paper())
		skip();
	for (uint32_t round = 0; round < 3; round++) {
		pid_t pid = peer_start(&conf, false, &fd);

		if (round == 0)
			end_open(e, &conf, true);
		exchange(fd, e);
		stats = crpc_tensor_bulk_stats(e->net);
		served = stats->served;
		until = crpc_clock_ns() + WAIT_NS;
		while (stats->served < served + 3 + round) {
			crpc_tensor_bulk_progress(e->net, crpc_clock_ns());
			assert_true(crpc_clock_ns() < until);
		}
		peer_kill(pid, fd);
		/* By then the calls in all places have failed. */
		end_reset(e);
		end_guards(e);
		assert_int_equal(bulk_check(e->b, true), 0);
	}
	assert_int_equal(stats->refused <= 3 * CRPC_TENSOR_BULK_CALLS, 1);
	end_close(e);
}

/* The owner dies: each call ends once, with an error, and its arrays are ours again. */
TEST(calls_to_a_killed_owner_end)
{
	const struct crpc_bulk_conf conf = {.chunk = 16384, .timeout_ns = 2000000000,
			.confirm_ns = 500000000};
	struct crpc_tensor_bulk_put put = {data, CRPC_TENSOR_F32,
			array_at(CRPC_TENSOR_F32, 250000, 4096)};
	uint32_t open = 0, ended = 0, failed = 0, i, k;
	struct crpc_tensor_bulk_done done[8];
	struct end *e = &end[0];
	uint64_t until;
	bool killed = false;
	pid_t pid;
	int fd, rc;

	if (device_on_paper())
		skip();
	pid = peer_start(&conf, true, &fd);
	end_open(e, &conf, false);
	exchange(fd, e);
	until = crpc_clock_ns() + WAIT_NS;
	while (!killed || open != 0) {
		rc = killed ? -EAGAIN : 0;
		while (rc == 0) {
			rc = crpc_tensor_bulk_call(e->net, crpc_clock_ns(), &put, 1, NULL, 0);
			open += rc == 0;
		}
		assert_int_equal(rc, -EAGAIN);
		crpc_tensor_bulk_progress(e->net, crpc_clock_ns());
		k = crpc_tensor_bulk_poll(e->net, done, 8);
		for (i = 0; i < k; i++) {
			failed += done[i].status != 0;
			if (done[i].status != 0 && done[i].status != -ECONNRESET &&
					done[i].status != -ETIMEDOUT)
				fail_msg("a call ended with %d", done[i].status);
		}
		open -= k;
		ended += k;
		if (!killed && ended >= 5) {
			assert_int_equal(failed, 0);
			peer_kill(pid, fd);
			killed = true;
		}
		assert_true(crpc_clock_ns() < until);
	}
	assert_true(failed >= 1);
	end_close(e);
}

int
main(void)
{
	crpc_clock_init();
	if (device_missing())
		return 77;
	return test_run(NULL, NULL);
}
