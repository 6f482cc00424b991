/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses that a peer gives us through whatever the application exchanges them by: that of an
 * endpoint of copyrpc, and that of a queue pair of the mlx5 driver within. The first is refused, or
 * the endpoint then calls, polls and answers without leaving its own memory, whatever the address
 * said. The second is refused, or says the same after it was written again.
 *
 * Input: a byte that says how, the address, then a byte of what to do per turn; or a byte with bit
 * 7 and the address of a queue pair.
 */
#include <string.h>

#include "copyrpc_conn.h"
#include "crpc_ib.h"
#include "crpc_paper_nic.h"
#include "fuzz.h"

enum {
	TRUE_HEAD = 1, /* Magic and version. */
	TRUE_MODES = 2,
	TRUE_RING = 4,
	TRUE_MEMORY = 8, /* Keys and addresses. */
};

/* The parts of an address set right that the input asks for, so that the others are reached. */
static void
mend(uint8_t how, struct wire_addr *addr, const struct wire_addr *good)
{
	if (how & TRUE_HEAD) {
		addr->magic = good->magic;
		addr->version = good->version;
	}
	if (how & TRUE_MODES)
		addr->flags = good->flags;
	if (how & TRUE_RING)
		addr->ring_size = good->ring_size;
	memcpy(addr->qp, good->qp, sizeof(addr->qp)); /* The device's, which is no target. */
	if (how & TRUE_MEMORY) {
		addr->rkey = good->rkey;
		addr->raddr = good->raddr;
		addr->large_rkey = good->large_rkey;
		addr->large_raddr = good->large_raddr;
	}
}

static void
turn(struct crpc_paper *w, struct crpc_copyrpc *ctx, struct crpc_copyrpc_ep *ep, uint8_t what)
{
	static const uint8_t bytes[4096];
	struct crpc_done done[4];
	struct crpc_req req[4];
	uint16_t n;

	w->now_ns += 1 + (what & 3) * UINT64_C(100000);
	if (what & 4)
		(void)crpc_copyrpc_call(ep, w->now_ns, bytes, what * 13u, what * 3u, 1);
	if (what & 8)
		(void)crpc_copyrpc_notify(ep, w->now_ns, bytes, what);
	crpc_copyrpc_flush(ctx, w->now_ns);
	if (what & 16)
		crpc_paper_run(w);
	(void)crpc_copyrpc_poll(ctx, w->now_ns, done, 4);
	n = crpc_copyrpc_recv(ctx, w->now_ns, req, 4);
	while (n-- != 0)
		(void)crpc_copyrpc_reply(ctx, w->now_ns, req[n].token, bytes, what);
	fuzz_check(crpc_copyrpc_check(ctx, false) == 0);
}

static void
device_address(const uint8_t bytes[CRPC_RDMA_ADDR_LEN])
{
	static const uint8_t kinds[] = {CRPC_IB_RC, CRPC_IB_DC, CRPC_IB_UD};
	uint8_t again[CRPC_RDMA_ADDR_LEN], twice[CRPC_RDMA_ADDR_LEN];
	struct crpc_ib_addr a, b;
	uint32_t i, taken = 0;

	for (i = 0; i < CRPC_DIM(kinds); i++) {
		if (crpc_ib_addr_decode(bytes, kinds[i], &a) != 0)
			continue;
		taken++;
		fuzz_check(a.kind == kinds[i] && a.qpn <= CRPC_IB_QPN_MASK && a.psn <= 0xffffff);
		crpc_ib_addr_encode(&a, again);
		fuzz_check(crpc_ib_addr_decode(again, kinds[i], &b) == 0);
		crpc_ib_addr_encode(&b, twice);
		fuzz_check(memcmp(again, twice, sizeof(again)) == 0);
	}
	fuzz_check(taken <= 1);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct crpc_copyrpc_conf conf = {
		.max_eps = 1, .ring_size = 4096, .max_large = 6000, .sq_depth = 8, .rq_depth = 8};
	struct crpc_copyrpc *ctx[2];
	struct crpc_copyrpc_ep *ep[2];
	struct crpc_paper w = {.rng = 1, .now_ns = 1000000};
	struct wire_addr addr, good;
	struct crpc_rdma *dev[2];

	if (size > CRPC_RDMA_ADDR_LEN && (data[0] & 128) != 0)
		device_address(data + 1);
	if (size < 1 + sizeof(addr) || (data[0] & 128) != 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		dev[i] = crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 60});
		conf.dev = dev[i];
		ctx[i] = crpc_copyrpc_create(&conf);
		fuzz_check(dev[i] != NULL && ctx[i] != NULL);
		ep[i] = crpc_copyrpc_ep_create(ctx[i], 7);
		fuzz_check(ep[i] != NULL);
	}
	memcpy(&addr, data + 1, sizeof(addr));
	crpc_copyrpc_ep_addr(ep[1], (uint8_t *)&good);
	mend(data[0], &addr, &good);
	crpc_copyrpc_ep_addr(ep[0], (uint8_t *)&good);
	if (crpc_copyrpc_ep_connect(ep[0], (const uint8_t *)&addr) == 0) {
		fuzz_check(crpc_copyrpc_ep_connect(ep[1], (const uint8_t *)&good) == 0);
		for (size -= 1 + sizeof(addr), data += 1 + sizeof(addr); size != 0;
			size--, data++) {
			turn(&w, ctx[0], ep[0], *data);
			turn(&w, ctx[1], ep[1], (uint8_t)(*data >> 2));
		}
	}
	for (int i = 0; i < 2; i++)
		crpc_copyrpc_free(ctx[i]);
	for (int i = 0; i < 2; i++)
		crpc_rdma_close(dev[i]);
	return 0;
}
