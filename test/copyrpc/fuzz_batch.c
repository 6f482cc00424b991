/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer target: what a peer can write into our rings and announce. Built with clang only:
 *
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false \
 *             -Dc_args=-fsanitize=fuzzer-no-link
 *     ninja -C build-fuzz test/copyrpc/fuzz_copyrpc
 *     build-fuzz/test/copyrpc/fuzz_copyrpc -max_total_time=60 -max_len=2048
 *
 * The input is a list of steps. Each delivers one WRITE WITH IMMEDIATE: as it is, or with a head
 * that is right so that the messages behind it are reached. In between we call, receive, answer and
 * audit.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define assert_int_equal(a, b)                                                                     \
	do {                                                                                       \
		if ((a) != (b))                                                                    \
			abort();                                                                   \
	} while (0)
#define assert_non_null(p) assert_int_equal((p) == NULL, 0)
#define fail_msg(...)      abort()

#include "pair.h"

#define RING 4096u

/* Fields of a step; the data of the batch follows. */
struct step {
	uint32_t imm;
	uint8_t how; /* bit 0: true head, 1: response lane, 2: true immediate, 3: call before,
			4: that allows a large reply */
	uint8_t count;
	uint16_t len;
};

/* Put what the step says where its batch would lie, and announce it. */
static void
deliver(struct pair *p, const struct step *s, const uint8_t *data, size_t avail)
{
	struct crpc_copyrpc_ep *ep = p->ep[1][0];
	enum wire_lane lane = s->how & 2 ? WIRE_RESP : WIRE_REQ;
	uint32_t len = (s->len % (RING / WIRE_UNIT) + 1) * WIRE_UNIT;
	uint64_t pos = wire_batch_pos(ep->rx_pos[lane], len, RING);
	uint8_t *at = ep->rx[lane] + (pos & (RING - 1));
	const struct wire_batch head = {.magic = WIRE_MAGIC,
			.version = WIRE_VERSION,
			.lane = (uint8_t)lane,
			.epoch = ep->epoch,
			.len = len,
			.count = s->count,
			.pos = pos,
			.released = ep->peer_released};
	bool truth = s->how & 1 && len > WIRE_HEAD;
	uint32_t skip = truth ? WIRE_HEAD : 0;

	if (truth)
		memcpy(at, &head, sizeof(head));
	memcpy(at + skip, data, crpc_min(avail, len - skip));
	fake_forge(fake_qp_find(p->dev[1], 0),
			s->how & 4 ? wire_imm((enum wire_imm)lane, len) : s->imm, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct crpc_copyrpc_conf conf = {.ring_size = RING,
		.max_msg = 512,
		.max_inflight = 8,
		.max_large = 9000,
		.sq_depth = 16};
	struct crpc_done done[4];
	struct crpc_req req[4];
	struct step step;
	struct pair p;
	uint16_t n;

	pair_init(&p, &conf);
	p.w.frozen = true;
	while (size >= sizeof(step)) {
		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		if (step.how & 8) {
			crpc_copyrpc_call(p.ep[1][0], p.w.now_ns, "x", 1,
					step.how & 16 ? 9000 : step.count, 1);
			crpc_copyrpc_flush(p.ctx[1], p.w.now_ns);
		}
		deliver(&p, &step, data, size);
		data += crpc_min(size, 64);
		size -= crpc_min(size, 64);
		crpc_copyrpc_poll(p.ctx[1], ++p.w.now_ns, done, 4);
		n = crpc_copyrpc_recv(p.ctx[1], req, step.count % 5);
		while (n-- != 0)
			crpc_copyrpc_reply(p.ctx[1], p.w.now_ns, req[n].token, req[n].data,
					(uint32_t)crpc_min(req[n].len, step.count));
		assert_int_equal(crpc_copyrpc_check(p.ctx[1], false), 0);
	}
	pair_fini(&p);
	return 0;
}
