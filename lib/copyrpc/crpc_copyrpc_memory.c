/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrival modes: an immediate announces a batch, the default, or the ring's memory is looked at.
 * Then a batch ends with a seal, and what was used is cleared before the peer may write there
 * again.
 */
#include "copyrpc_modes.h"
#include "crpc_dma.h"

/* Bytes of the shortest batch with a seal. */
#define MEMORY_BATCH_MIN (WIRE_HEAD + WIRE_STRIDE_MIN + (uint32_t)sizeof(struct wire_seal))

void
__crpc_copyrpc_memory_clear(
	const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t from, uint64_t to)
{
	uint32_t off = (uint32_t)from & (ep->ring_size - 1);
	uint64_t first = crpc_min(to - from, ep->ring_size - off);

	memset(ep->rx[lane] + off, 0, first);
	memset(ep->rx[lane], 0, to - from - first);
}

/*
 * Whether a whole batch lies at a position: the head is that of this position and epoch, and behind
 * the length it gives is the seal of the same. Anything else may still be on its way, so it is no
 * lie yet. Nor is it looked for where the peer may not write yet: what lies there is what the user
 * reads, and the rest of the ring is zero, so no data is taken for a batch. Returns the length, or
 * 0.
 */
static uint32_t
memory_peek(const struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t pos)
{
	const struct conn *conn = ep->conn;
	uint32_t off = (uint32_t)pos & (ep->ring_size - 1);
	uint64_t free = lane == WIRE_REQ ? conn->released : conn->cleared;
	const uint8_t *seal;
	struct wire_batch head;
	uint64_t word;

	if (pos - free > ep->ring_size - MEMORY_BATCH_MIN)
		return 0;
	head = wire_batch_load(ep->rx[lane] + off);
	if (head.magic != WIRE_MAGIC || head.pos != pos || head.epoch != conn->epoch ||
		head.len % WIRE_UNIT != 0 || head.len > ep->ring_size - off ||
		head.len < MEMORY_BATCH_MIN)
		return 0;
	seal = ep->rx[lane] + off + head.len - sizeof(struct wire_seal);
	if (wire_word(seal) != pos)
		return 0;
	/* acquire: pairs with the device, which writes a batch in order and its seal last */
	word = crpc_load_acquire((const _Atomic uint64_t *)(const void *)(seal + 8));
	if (word != ((uint64_t)conn->epoch << 32 | head.len))
		return 0;
	crpc_dma_rmb();
	return head.len;
}

/* The next batch of a lane lies behind the one before, or at the start of the ring. */
static bool
memory_lane(struct crpc_copyrpc_ep *ep, enum wire_lane lane, uint64_t now_ns)
{
	uint64_t pos = ep->conn->rx_pos[lane];
	uint32_t tail = ep->ring_size - ((uint32_t)pos & (ep->ring_size - 1)), len = 0;

	if (tail >= MEMORY_BATCH_MIN)
		len = memory_peek(ep, lane, pos);
	if (len == 0 && tail != ep->ring_size)
		len = memory_peek(ep, lane, pos + tail);
	if (len == 0)
		return false;
	__crpc_copyrpc_batch_take(ep, lane, len, len, now_ns);
	return true;
}

/* Request batches of one endpoint in a row: then others have their turns. */
#define MEMORY_TURN 4

/*
 * An endpoint that had responses is looked at again in this round, after the others: a poll that
 * gives less than a burst leaves no reply in memory. Those of an endpoint are one ring of bytes at
 * most, as what was given is cleared with the next poll only.
 */
void
__crpc_copyrpc_memory_look(struct crpc_copyrpc *ctx, uint64_t now_ns)
{
	struct crpc_copyrpc_ep *ep = ctx->memory_at;
	_Atomic uint64_t *reported = &ep->conn->rx_words[WIRE_WORD_REPORTED / 8];

	/* acquire: pairs with the device, which writes the position when the room is free */
	if (!__crpc_copyrpc_word_take(ep, crpc_load_acquire(reported)))
		return;
	for (uint32_t i = 0; i < MEMORY_TURN && ep->err == 0; i++)
		if (!memory_lane(ep, WIRE_REQ, now_ns))
			break;
	if (ep->err != 0)
		return;
	ctx->memory_at = TAILQ_NEXT(ep, memory);
	if (!memory_lane(ep, WIRE_RESP, now_ns) || ep->err != 0)
		return;
	ep_list_del(ep, memory);
	ep_list_add(ep, memory);
	if (ctx->memory_at == NULL)
		ctx->memory_at = ep;
}

void
__crpc_copyrpc_memory_batch(
	const struct crpc_copyrpc_ep *ep, const struct pending *batch, struct crpc_rdma_wr *wr)
{
	/* by it a receiver that looks at its memory finds the batch whole */
	const struct wire_seal seal = {
		.pos = batch->pos, .len = batch->len, .epoch = ep->conn->peer_epoch};
	uint8_t *at = (uint8_t *)(uintptr_t)wr->sge[0].addr;

	memcpy(at + batch->len - sizeof(seal), &seal, sizeof(seal));
	wr->op = CRPC_RDMA_WRITE;
}

void
__crpc_copyrpc_memory_update(const struct crpc_copyrpc_ep *ep, struct crpc_rdma_wr *wr)
{
	const struct conn *conn = ep->conn;
	_Atomic uint64_t *word = &conn->tx_words[WIRE_WORD_REPORTED / 8];

	crpc_store_relaxed(word, conn->released);
	wr->op = CRPC_RDMA_WRITE;
	wr->flags = ep->ctx->inline_max >= sizeof(*word) ? CRPC_RDMA_WR_INLINE : 0;
	wr->num_sge = 1;
	wr->raddr = conn->words_raddr + WIRE_WORD_REPORTED;
	wr->sge[0].addr = (const void *)(uintptr_t)word;
	wr->sge[0].len = sizeof(*word);
	wr->sge[0].lkey = conn->tx_mr.lkey;
}

void
__crpc_copyrpc_memory_given(struct crpc_copyrpc_ep *ep)
{
	uint64_t given = ep->conn->rx_pos[WIRE_RESP];

	if (ep->ctx->cur == ep)
		given -= ep->ctx->cur_end + ep->trailer - ep->ctx->cur_off;
	__crpc_copyrpc_memory_clear(ep, WIRE_RESP, ep->conn->cleared, given);
	ep->conn->cleared = given;
}
