/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TENSOR_BULK_END_H
#define TENSOR_BULK_END_H

/**
 * @file
 * One end of lib/tensor_bulk on a device, with a block between guards, and arrays whose content is
 * known by a seed: the owner proves what arrived by operations of its own. Include it after
 * cmocka.h.
 */

#include <stdlib.h>
#include <string.h>

#include "crpc_bulk.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_tensor_convert.h"
#include "crpc_tensor_bulk.h"
#include "device.h"
#include "rnd.h"
#include "tensor_ops.h"

#define BLOCK   (UINT64_C(8) << 20)
#define GUARD   4096u
#define WAIT_NS UINT64_C(60000000000)
/* Elements of the longest array. */
#define ELEMS_MAX 300000u
/* The user_id of endpoints for heads. */
#define PEER 5

/* Operations of every end: the array is the seed's, in its own type or converted from another. */
enum {
	OP_SAME = CRPC_TENSOR_OP_USER,
	OP_FROM_BF16,
	OP_FROM_F16,
	OP_TO_BF16,
	OP_TO_F16,
	OPS_END,
};

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	struct crpc_tensor_runner *runner;
	struct crpc_tensor_bulk *net;
	uint8_t *memory, *block; /* NULL: it offers none. */
	void *want, *wire; /* Of the operations. */
};

/* What a peer must know. */
struct end_addr {
	uint8_t ep[CRPC_COPYRPC_ADDR_LEN];
	uint8_t conn[CRPC_BULK_ADDR_LEN];
};

/* Byte i of an array; as floats they are of every kind, NaNs included. */
static inline uint8_t
byte_of(uint64_t i, uint32_t seed)
{
	uint64_t x = (i / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
			seed * UINT64_C(0xd6e8feb86659fd93);

	return (uint8_t)(x >> i % 8 * 8);
}

static inline void
array_fill(void *p, uint64_t len, uint32_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = byte_of(i, seed);
}

/* What must be there when the seed's array was sent in another type. */
static inline void
array_convert(void *want, const void *wire, uint64_t elems, uint32_t code)
{
	if (code == OP_FROM_BF16)
		crpc_tensor_bf16_to_f32(want, wire, elems);
	else if (code == OP_FROM_F16)
		crpc_tensor_f16_to_f32(want, wire, elems);
	else if (code == OP_TO_BF16)
		crpc_tensor_f32_to_bf16(want, wire, elems);
	else
		crpc_tensor_f32_to_f16(want, wire, elems);
}

/* By the owner's thread: 0, or -EBADMSG. The value is the seed. */
static int
op_check(void *arg, const struct crpc_tensor_call *call)
{
	struct end *e = arg;
	const struct crpc_tensor *t = call->t[0];
	uint64_t elems = crpc_tensor_elems(t);
	uint32_t size = crpc_tensor_dtype_size(t->dtype);

	if (elems > ELEMS_MAX || !crpc_tensor_is_contiguous(t))
		return -EINVAL;
	if (call->code == OP_SAME) {
		array_fill(e->want, elems * size, (uint32_t)call->value);
	} else {
		array_fill(e->wire, elems * (size == 4 ? 2 : 4), (uint32_t)call->value);
		array_convert(e->want, e->wire, elems, call->code);
	}
	return memcmp(call->ptr[0], e->want, elems * size) == 0 ? 0 : -EBADMSG;
}

static inline void
end_runner(struct end *e)
{
	const struct crpc_tensor_runner_conf conf = {0};

	e->want = aligned_alloc(64, ELEMS_MAX * 8);
	e->wire = aligned_alloc(64, ELEMS_MAX * 8);
	e->runner = crpc_tensor_runner_create(&conf);
	assert_true(e->want != NULL && e->wire != NULL && e->runner != NULL);
	assert_true(test_ops_add(e->runner));
	for (uint32_t code = OP_SAME; code < OPS_END; code++)
		assert_int_equal(crpc_tensor_runner_add(e->runner, code, 1, 0, op_check, e), 0);
}

/* The connections' objects; the peer's have to be connected. */
static inline void
end_net(struct end *e)
{
	struct crpc_tensor_bulk_conf conf = {.ctx = e->ctx, .bulk = e->b, .runner = e->runner,
			.block = e->block, .block_len = e->block != NULL ? BLOCK : 0};

	e->ep = crpc_copyrpc_ep_create(e->ctx, PEER);
	e->conn = crpc_bulk_conn_create(e->b, 1, 1);
	assert_or_log(e->ep != NULL && e->conn != NULL);
	conf.ep = e->ep;
	conf.conn = e->conn;
	e->net = crpc_tensor_bulk_create(&conf);
	assert_non_null(e->net);
}

static inline void
end_open(struct end *e, const struct crpc_bulk_conf *bulk, bool owner)
{
	const struct crpc_rdma_conf rdma = {.device = getenv("DEVICE")};
	struct crpc_copyrpc_conf rpc = {.ring_size = 65536, .timeout_ns = UINT64_C(20000000000),
			.peer_timeout_ns = UINT64_C(3000000000)};
	struct crpc_bulk_conf conf = *bulk;

	memset(e, 0, sizeof(*e));
	e->dev = crpc_rdma_open(&rdma);
	assert_or_log(e->dev != NULL);
	rpc.dev = e->dev;
	e->ctx = crpc_copyrpc_create(&rpc);
	assert_non_null(e->ctx);
	conf.port[0] = (struct crpc_bulk_port){.ctx = e->ctx, .dev = e->dev};
	conf.shared = true;
	e->b = crpc_bulk_create(&conf);
	assert_or_log(e->b != NULL);
	if (owner) {
		e->memory = aligned_alloc(GUARD, BLOCK + 2 * GUARD);
		assert_non_null(e->memory);
		memset(e->memory, 0xee, BLOCK + 2 * GUARD);
		e->block = e->memory + GUARD;
		end_runner(e);
	}
	end_net(e);
}

static inline void
end_addr(struct end *e, struct end_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	crpc_copyrpc_ep_addr(e->ep, addr->ep);
	crpc_bulk_conn_addr(e->conn, addr->conn);
}

static inline void
end_connect(struct end *e, const struct end_addr *peer)
{
	assert_or_log(crpc_copyrpc_ep_connect(e->ep, peer->ep) == 0 &&
		crpc_bulk_conn_connect(e->conn, peer->conn) == 0);
}

/* Nothing was written beside the block. */
static inline void
end_guards(const struct end *e)
{
	for (uint32_t i = 0; e->memory != NULL && i < GUARD; i++) {
		assert_int_equal(e->memory[i], 0xee);
		assert_int_equal(e->block[BLOCK + i], 0xee);
	}
}

static inline void
end_close(struct end *e)
{
	end_guards(e);
	crpc_tensor_bulk_free(e->net);
	crpc_bulk_free(e->b);
	crpc_copyrpc_free(e->ctx);
	crpc_rdma_close(e->dev);
	crpc_tensor_runner_free(e->runner);
	free(e->memory);
	free(e->want);
	free(e->wire);
}

static inline struct crpc_tensor
array_at(uint32_t dtype, uint64_t elems, uint64_t offset)
{
	struct crpc_tensor t;

	assert_int_equal(crpc_tensor_init(&t, (enum crpc_tensor_dtype)dtype, 1, &elems, 0, offset),
			0);
	return t;
}

/* Append an operation on one array. */
static inline void
batch_one(struct crpc_tensor_batch *b, uint32_t code, const struct crpc_tensor *t, double value)
{
	int x = crpc_tensor_batch_array(b, t);
	bool out = code == TEST_OP_SCALE;

	assert_true(x >= 0);
	assert_true(crpc_tensor_batch_op(b, code,
			&(struct crpc_tensor_args){.nin = !out, .nout = out, .arg = {x},
					.value = value}) >= 0);
}

/* The check that belongs to an array that goes as `from` and arrives as `to`. */
static inline uint32_t
check_of(uint32_t from, uint32_t to)
{
	if (from == to)
		return OP_SAME;
	if (to == CRPC_TENSOR_F32)
		return from == CRPC_TENSOR_BF16 ? OP_FROM_BF16 : OP_FROM_F16;
	return to == CRPC_TENSOR_BF16 ? OP_TO_BF16 : OP_TO_F16;
}

#endif
