/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What anybody can send to a context's datagram queue: packets that lie in any field, to both sides
 * of sessions in the middle of calls. In between we call, receive, answer, let time pass and audit.
 *
 * Input: steps, each with up to 255 bytes of data. A step delivers one packet: as it is, or with
 * the parts of its head set right that the step says, so that what is behind them is reached.
 */
#include "cmocka.h"

#include "pair.h"

#define MTU   256u
#define PIECE (MTU - WIRE_HEAD)

enum {
	TRUE_HEAD = 1,
	TRUE_SESSION = 2,
	TRUE_REQ = 4, /* the number that a piece, or an answer, of now has */
	TRUE_SIZE = 8,
	CALL_BEFORE = 16,
	SERVE = 32,
	TO_CLIENT = 64,
	TIME = 128,
};

/* Fields of a step; the packet follows. */
struct step {
	uint8_t how;
	uint8_t len;
	uint8_t call;
	uint8_t reply;
};

/* The packet of a step, mended as it says. Returns its bytes. */
static uint32_t
packet_make(const struct step *s, int to, uint8_t *out)
{
	struct crpc_udrpc_ep *ep = p.ep[to][0];
	uint32_t bytes = s->len, slot;
	struct wire_pkt h;

	memcpy(&h, out, sizeof(h));
	if (s->how & TRUE_HEAD) {
		h.magic = WIRE_MAGIC;
		h.kind = WIRE_KIND((enum wire_type)(h.kind % WIRE_TYPES));
	}
	if (s->how & TRUE_SESSION) {
		h.session = ep->id;
		h.token = ep->token;
		h.slot %= 2;
	}
	slot = h.slot % 2;
	if (s->how & TRUE_REQ) {
		h.req = to == 0 ? call_at(ep, slot)->req : ep->serves[slot].req + (h.req & 1);
		h.pkt %= 4;
	}
	if (s->how & TRUE_SIZE) {
		h.len %= 1000;
		h.arg = h.arg % 1001 != 1000 ? h.arg % 1001 : WIRE_ONEWAY;
		bytes = WIRE_HEAD;
		if (h.pkt < wire_pkts(h.len, PIECE) && (h.kind & 15) <= WIRE_RESP)
			bytes += wire_piece(h.len, PIECE, h.pkt);
	}
	memcpy(out, &h, sizeof(h));
	return bytes;
}

/* One side's turn of its loop. */
static void
turn(int side, const struct step *s)
{
	static const uint8_t bytes[1000];
	struct crpc_done done[4];
	struct crpc_req req[4];

	crpc_udrpc_poll(p.ctx[side], p.w.now_ns, done, (uint16_t)(1 + s->call % 4));
	if (s->how & SERVE) {
		uint16_t n = pair_recv(side, req, 4);

		while (n-- != 0)
			if (pair_reply(side, req[n].token, bytes, s->reply * 3u) == -EOPNOTSUPP)
				pair_release(side, req[n].token);
	}
	pair_flush(side);
	fuzz_check(crpc_udrpc_check(p.ctx[side], false) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 1,
		.slots = 2,
		.credits = 3,
		.max_msg = 1000,
		.sq_depth = 16,
		.rq_depth = 16,
		.retries = 3};
	static const uint8_t bytes[1000];
	struct fuzz_input in = {data, size};
	uint8_t packet[MTU + WIRE_HEAD];
	struct step step;

	pair_init(&conf, 1, 1, 64, MTU);
	while (fuzz_take(&in, &step, sizeof(step))) {
		int to = step.how & TO_CLIENT ? 0 : 1;

		if (step.how & CALL_BEFORE)
			(void)(step.call % 8 == 0 ? pair_notify(0, bytes, step.call * 3u)
						  : pair_call(0, bytes, step.call * 3u, 999, 1));
		memset(packet, 0, sizeof(packet));
		(void)fuzz_take_some(&in, packet, step.len);
		crpc_paper_forge(p.dev[to], 0, 0, packet, packet_make(&step, to, packet));
		p.w.now_ns += step.how & TIME ? 6000000 : 1000;
		turn(0, &step);
		turn(1, &step);
		if (step.how & SERVE)
			crpc_paper_run(&p.w);
	}
	pair_fini();
	return 0;
}
