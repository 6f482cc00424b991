/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/udrpc on a device and its driver: two contexts of one process, small and large messages, many
 * calls in flight, both directions. Any RDMA device will do; the tests start it on the software
 * one, once with a good network and once with a bad one. Skipped without a device.
 */
#include <errno.h>
#include <string.h>

#include "test.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_udrpc.h"
#include "device.h"
#include "udrpc_audit.h"

#define LARGE   (1u << 20)
#define SLOTS   8u
#define WAIT_NS UINT64_C(60000000000)

struct end {
	struct crpc_rdma *dev;
	struct crpc_udrpc *ctx;
	struct crpc_udrpc_ep *ep;
	uint32_t made, ended;
};

static struct end end[2];
static uint8_t bytes[LARGE];

static void
make(void)
{
	struct crpc_rdma_conf rdma = {
		.device = getenv("DEVICE"), .cq_depth = 4096};
	struct crpc_udrpc_conf conf = {.max_eps = 2,
		.slots = SLOTS,
		.max_msg = LARGE,
		.retries = 1000,
		.timeout_ns = WAIT_NS};
	uint8_t addr[2][CRPC_UDRPC_ADDR_LEN];

	memset(end, 0, sizeof(end));
	for (int i = 0; i < 2; i++) {
		end[i].dev = crpc_rdma_open(&rdma);
		assert_or_log(end[i].dev != NULL);
		conf.dev = end[i].dev;
		end[i].ctx = crpc_udrpc_create(&conf);
		assert_or_log(end[i].ctx != NULL);
		end[i].ep = crpc_udrpc_ep_create(end[i].ctx, (uint32_t)i);
		assert_non_null(end[i].ep);
		crpc_udrpc_ep_addr(end[i].ep, addr[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_or_log(crpc_udrpc_ep_connect(end[i].ep, addr[!i]) == 0);
}

static void
unmake(int i)
{
	crpc_udrpc_free(end[i].ctx);
	crpc_rdma_close(end[i].dev);
	end[i].ctx = NULL;
}

/* One end's turn: it checks what was answered and echoes what it was asked. */
static void
turn(int i, uint32_t calls, uint32_t len_max)
{
	uint64_t now = crpc_clock_ns();
	struct crpc_done done[32];
	struct crpc_req req[32];
	uint16_t n = crpc_udrpc_poll(end[i].ctx, now, done, 32);

	end[i].ended += n;
	while (n-- != 0) {
		assert_int_equal(done[n].status, 0);
		assert_int_equal(done[n].len, done[n].cookie);
		assert_memory_equal(done[n].data, bytes, done[n].len);
	}
	n = crpc_udrpc_recv(end[i].ctx, now, req, 32);
	while (n-- != 0)
		assert_int_equal(
			crpc_udrpc_reply(end[i].ctx, now, req[n].token, req[n].data, req[n].len),
			0);
	while (end[i].made < calls) {
		uint32_t len = (uint32_t)((uint64_t)end[i].made * 7919 % (len_max + 1));

		if (crpc_udrpc_call(end[i].ep, now, bytes, len, len, len) != 0)
			break;
		end[i].made++;
	}
	crpc_udrpc_flush(end[i].ctx, now);
}

/* Both ends call each other, and at the end nothing is out. */
static void
echo(uint32_t calls, uint32_t len_max)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;

	for (int i = 0; i < 2; i++)
		end[i].made = end[i].ended = 0;
	while (end[0].ended < calls || end[1].ended < calls) {
		assert_true(crpc_clock_ns() < until);
		turn(0, calls, len_max);
		turn(1, calls, len_max);
	}
	while (crpc_udrpc_check(end[0].ctx, true) != 0 || crpc_udrpc_check(end[1].ctx, true) != 0) {
		if (crpc_clock_ns() > until)
			fail_msg("%s", crpc_log_last());
		turn(0, 0, 0);
		turn(1, 0, 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(crpc_udrpc_stats(end[i].ctx)->rpc.requests,
			crpc_udrpc_stats(end[!i].ctx)->rpc.completions);
}

TEST(messages_of_every_size_are_echoed)
{
	make();
	echo(5000, 150);
	echo(500, 20000);
	echo(20, LARGE);
	unmake(0);
	unmake(1);
}

TEST(counters_begin_again)
{
	const struct crpc_udrpc_stats *s;

	make();
	echo(100, 150);
	for (int i = 0; i < 2; i++) {
		s = crpc_udrpc_stats(end[i].ctx);
		assert_int_equal(s->rpc.calls, 100);
		crpc_udrpc_stats_reset(end[i].ctx);
		assert_int_equal(s->packets_sent + s->wire.count + s->peer.count, 0);
	}
	echo(20, 150);
	for (int i = 0; i < 2; i++) {
		s = crpc_udrpc_stats(end[i].ctx);
		assert_int_equal(s->rpc.calls, 20);
		assert_int_equal(s->wire.count, 20);
	}
	unmake(0);
	unmake(1);
}

int
main(void)
{
	crpc_clock_init();
	if (device_missing())
		return 77;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 8));
	return test_run(NULL, NULL);
}
