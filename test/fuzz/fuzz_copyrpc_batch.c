/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer can write into our rings and announce: a batch that lies in any field of its head,
 * its messages, its seal or its immediate, in every mode. In between we call, receive, answer and
 * audit.
 *
 * Input: a byte of modes (flow in bits 1-0, arrival in memory in bit 2), then steps, each with up
 * to 64 bytes of data. A step delivers one batch: as it is, or with a head, and a seal, that are
 * right so that the messages behind it are reached.
 */
#include "cmocka.h"

#include "pair.h"

#define RING  4096u
#define DATA  64u
#define LARGE 9000u

enum {
	TRUE_HEAD = 1,
	RESPONSE = 2,
	TRUE_IMM = 4,
	CALL_BEFORE = 8,
	LARGE_REPLY = 16, /* that call allows one */
	TRUE_SEAL = 32,
};

/* Fields of a step; the data of the batch follows. */
struct step {
	uint32_t imm;
	uint8_t how;
	uint8_t count;
	uint16_t len;
};

/* Put what the step says where its batch would lie, and announce it. */
static void
deliver(const struct step *s, const uint8_t *data, size_t avail)
{
	struct crpc_copyrpc_ep *ep = p.ep[1][0];
	enum wire_lane lane = s->how & RESPONSE ? WIRE_RESP : WIRE_REQ;
	uint32_t len = (s->len % (RING / WIRE_UNIT) + 1) * WIRE_UNIT;
	uint64_t pos = wire_batch_pos(ep->conn->rx_pos[lane], len, RING);
	uint8_t *at = ep->rx[lane] + (pos & (RING - 1));
	const struct wire_batch head = {.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.lane = (uint8_t)lane,
		.epoch = ep->conn->epoch,
		.len = len,
		.count = s->count,
		.pos = pos,
		.released = ep->conn->peer_released};
	const struct wire_seal seal = {.pos = pos, .len = len, .epoch = ep->conn->epoch};
	uint32_t skip = s->how & TRUE_HEAD && len > WIRE_HEAD ? WIRE_HEAD : 0;

	if (skip != 0)
		memcpy(at, &head, sizeof(head));
	memcpy(at + skip, data, crpc_min(avail, len - skip));
	if (s->how & TRUE_SEAL)
		memcpy(at + len - sizeof(seal), &seal, sizeof(seal));
	if (ep->conn->conf.arrival != CRPC_COPYRPC_MEMORY || !(s->how & TRUE_SEAL))
		crpc_paper_forge(p.dev[1], 0,
			s->how & TRUE_IMM ? wire_imm((enum wire_imm)lane, len) : s->imm, NULL, len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct crpc_copyrpc_conf conf = {.max_eps = 1,
		.ring_size = RING,
		.max_msg = 512,
		.max_inflight = 8,
		.max_large = LARGE,
		.sq_depth = 16};
	struct crpc_copyrpc_ep_conf mode = {0};
	struct fuzz_input in = {data, size};
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct step step;
	uint8_t modes;
	uint16_t n;

	if (!fuzz_take(&in, &modes, 1))
		return 0;
	mode.flow = (enum crpc_copyrpc_flow)(modes % 4 % 3);
	mode.arrival = (enum crpc_copyrpc_arrival)(modes / 4 % 2);
	pair_init3(&conf, &conf, 1, 42, mode);
	p.w.frozen = true;
	while (fuzz_take(&in, &step, sizeof(step))) {
		if (step.how & CALL_BEFORE) {
			pair_call(1, "x", 1, step.how & LARGE_REPLY ? LARGE : step.count, 1);
			pair_flush(1);
		}
		deliver(&step, in.p, in.left);
		fuzz_skip(&in, DATA);
		crpc_copyrpc_poll(p.ctx[1], ++p.w.now_ns, done, 4);
		n = pair_recv(1, req, step.count % 5);
		while (n-- != 0)
			pair_reply(1, req[n].token, req[n].data,
				(uint32_t)crpc_min(req[n].len, step.count));
		fuzz_check(crpc_copyrpc_check(p.ctx[1], false) == 0);
	}
	pair_fini();
	return 0;
}
