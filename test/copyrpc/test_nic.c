/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copyrpc on a device and its driver: two contexts of one process, in every mode, with large
 * messages, gets and puts, a queue pair that breaks and a connection that is made again. Any RDMA
 * device will do; the tests start it on the software one. Without a device it is skipped.
 *
 *     test_copyrpc_nic [dc]       over reliable or dynamic connections
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_log.h"
#include "device.h"

#define LARGE   (1u << 20)
#define WAIT_NS UINT64_C(20000000000)

struct end {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
};

static struct end end[2];
static enum crpc_rdma_transport transport; /* Of every endpoint. */

static void
connect_ends(void)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];

	for (int i = 0; i < 2; i++)
		crpc_copyrpc_ep_addr(end[i].ep, addr[i]);
	for (int i = 0; i < 2; i++)
		assert_or_log(crpc_copyrpc_ep_connect(end[i].ep, addr[!i]) == 0);
}

static void
make(const struct crpc_copyrpc_ep_conf *mode)
{
	struct crpc_rdma_conf rdma = {.device = getenv("DEVICE")};
	struct crpc_copyrpc_conf conf = {
		.ring_size = 16384, .max_large = LARGE, .timeout_ns = WAIT_NS};
	struct crpc_copyrpc_ep_conf ep_conf = *mode;

	ep_conf.transport = transport;

	for (int i = 0; i < 2; i++) {
		end[i].dev = crpc_rdma_open(&rdma);
		assert_or_log(end[i].dev != NULL);
		conf.dev = end[i].dev;
		end[i].ctx = crpc_copyrpc_create(&conf);
		assert_non_null(end[i].ctx);
		end[i].ep = crpc_copyrpc_ep_create_as(end[i].ctx, (uint32_t)i, &ep_conf);
		assert_non_null(end[i].ep);
	}
	connect_ends();
}

static void
unmake(void)
{
	for (int i = 0; i < 2; i++) {
		crpc_copyrpc_free(end[i].ctx);
		crpc_rdma_close(end[i].dev);
	}
}

/* A turn of both ends, the server echoes. Returns completions of the client. */
static uint16_t
turn(struct crpc_done *done, uint16_t n)
{
	uint64_t now = crpc_clock_ns();
	struct crpc_done none[4];
	struct crpc_req req[16];
	uint16_t k;

	assert_int_equal(crpc_copyrpc_poll(end[1].ctx, now, none, 4), 0);
	k = crpc_copyrpc_recv(end[1].ctx, now, req, 16);
	while (k-- != 0) {
		int rc = crpc_copyrpc_reply(end[1].ctx, now, req[k].token, req[k].data, req[k].len);

		if (rc != 0 && crpc_copyrpc_ep_status(end[1].ep) == 0)
			fail_msg("reply: %d", rc);
	}
	crpc_copyrpc_flush(end[1].ctx, now);
	return crpc_copyrpc_poll(end[0].ctx, now, done, n);
}

/* Calls of many sizes, several open at a time, all echoed. */
static void
echo(uint32_t calls, uint32_t len_max)
{
	static uint8_t buf[LARGE];
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t made = 0, ended = 0, len, i;
	struct crpc_done done[16];
	uint16_t n;

	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * 31 + (i >> 8));
	while (ended < calls) {
		assert_true(crpc_clock_ns() < until);
		len = (uint32_t)((uint64_t)made * 7919 % (len_max + 1));
		if (made < calls &&
			crpc_copyrpc_call(end[0].ep, crpc_clock_ns(), buf, len, len, len) == 0)
			made++;
		n = turn(done, 16);
		for (i = 0; i < n; i++) {
			assert_int_equal(done[i].status, 0);
			assert_int_equal(done[i].len, done[i].cookie);
			assert_memory_equal(done[i].data, buf, done[i].len);
		}
		ended += n;
	}
}

/* Nothing is open and nothing has leaked: both ends' positions say the same. */
static void
at_rest(void)
{
	struct crpc_copyrpc_positions pos[2];
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_done done[4];

	do {
		assert_int_equal(turn(done, 4), 0);
		if (crpc_copyrpc_check(end[0].ctx, true) == 0 &&
			crpc_copyrpc_check(end[1].ctx, true) == 0)
			break;
	} while (crpc_clock_ns() < until);
	for (int i = 0; i < 2; i++)
		crpc_copyrpc_ep_positions(end[i].ep, &pos[i]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pos[i].requests_sent, pos[!i].requests_arrived);
		assert_int_equal(pos[i].responses_sent, pos[!i].responses_arrived);
		assert_int_equal(pos[i].reply_room_reserved_by_peer, 0);
	}
}

TEST(every_mode_echoes_every_size)
{
	for (uint32_t flow = CRPC_COPYRPC_FLOW_WINDOW; flow <= CRPC_COPYRPC_FLOW_NOTIFY; flow++) {
		for (uint32_t arrival = CRPC_COPYRPC_IMM; arrival <= CRPC_COPYRPC_MEMORY;
			arrival++) {
			struct crpc_copyrpc_ep_conf mode =
				(struct crpc_copyrpc_ep_conf){.flow = flow, .arrival = arrival};

			make(&mode);
			echo(2000, 300);
			echo(300, 4096);
			echo(10, LARGE);
			at_rest();
			unmake();
		}
	}
}

/* Memory of the peer, read and written beside calls; a wrong key breaks, and both connect again. */
TEST(broken_connection_is_made_again)
{
	static uint8_t ours[8192], theirs[8192];
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_rdma_mr mr[2];
	struct crpc_done done[16];
	char *text;
	size_t len;
	FILE *out;

	make(&(struct crpc_copyrpc_ep_conf){0});
	assert_int_equal(crpc_rdma_mr_reg(end[0].dev, ours, sizeof(ours), &mr[0]), 0);
	assert_int_equal(crpc_rdma_mr_reg(end[1].dev, theirs, sizeof(theirs), &mr[1]), 0);
	for (uint32_t round = 1; round <= 3; round++) {
		memset(ours, (int)round, sizeof(ours));
		assert_int_equal(crpc_copyrpc_put(end[0].ep, crpc_clock_ns(), &mr[0], ours, 5000,
					 (uintptr_t)theirs + 100, mr[1].rkey, 1),
			0);
		assert_int_equal(crpc_copyrpc_get(end[0].ep, crpc_clock_ns(), &mr[0], ours + 6000,
					 2000, (uintptr_t)theirs + 100, mr[1].rkey, 2),
			0);
		for (uint32_t got = 0; got < 2 && crpc_clock_ns() < until; got++) {
			while (turn(done, 1) == 0)
				assert_true(crpc_clock_ns() < until);
			assert_int_equal(done[0].status, 0);
			assert_int_equal(done[0].cookie, got + 1);
		}
		assert_memory_equal(theirs + 100, ours, 5000);
		echo(100, 200);
		for (uint32_t i = 0; i < 5; i++)
			assert_int_equal(
				crpc_copyrpc_call(end[0].ep, crpc_clock_ns(), "x", 1, 1, 9), 0);
		assert_int_equal(crpc_copyrpc_put(end[0].ep, crpc_clock_ns(), &mr[0], ours, 1,
					 (uintptr_t)theirs, mr[1].rkey + 0x100, 9),
			0);
		for (uint32_t got = 0; got < 6; got += turn(done, 16))
			assert_true(crpc_clock_ns() < until);
		assert_int_not_equal(crpc_copyrpc_ep_status(end[0].ep), 0);
		turn(done, 16);
		crpc_copyrpc_ep_shutdown(end[1].ep);
		turn(done, 16);
		assert_int_equal(crpc_copyrpc_ep_reset(end[0].ep), 0);
		assert_int_equal(crpc_copyrpc_ep_reset(end[1].ep), 0);
		connect_ends();
	}
	echo(500, 300);
	at_rest();
	out = open_memstream(&text, &len);
	crpc_rdma_dump(end[0].dev, out);
	fclose(out);
	assert_non_null(strstr(text, "cq: "));
	assert_non_null(strstr(text, transport == CRPC_RDMA_DC ? "DC: ready;" : "RC: ready;"));
	assert_non_null(strstr(text, " posted "));
	free(text);
	crpc_rdma_mr_dereg(end[0].dev, &mr[0]);
	crpc_rdma_mr_dereg(end[1].dev, &mr[1]);
	unmake();
}

/* More endpoints than initiators, all busy at once: their batches share send queues, and each call
 * still ends once, with its own reply. */
TEST(many_endpoints_share_initiators)
{
	enum { EPS = 32, CALLS = 20000 };
	struct crpc_rdma_conf rdma = {
		.device = getenv("DEVICE"), .cq_depth = 16384, .dcis = 3};
	struct crpc_copyrpc_conf conf = {.ring_size = 16384, .max_eps = EPS, .timeout_ns = WAIT_NS};
	const struct crpc_copyrpc_ep_conf dc = {.transport = CRPC_RDMA_DC};
	uint32_t made = 0, ended = 0, opened[EPS] = {0}, next[EPS] = {0}, i, k, word;
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	struct crpc_copyrpc_ep *ep[2][EPS];
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	struct crpc_done done[16];

	if (transport != CRPC_RDMA_DC)
		skip();
	for (i = 0; i < 2; i++) {
		end[i].dev = crpc_rdma_open(&rdma);
		conf.dev = end[i].dev;
		end[i].ctx = crpc_copyrpc_create(&conf);
		assert_non_null(end[i].ctx);
	}
	for (k = 0; k < EPS; k++) {
		for (i = 0; i < 2; i++) {
			ep[i][k] = crpc_copyrpc_ep_create_as(end[i].ctx, k, &dc);
			assert_non_null(ep[i][k]);
			crpc_copyrpc_ep_addr(ep[i][k], addr[i]);
		}
		for (i = 0; i < 2; i++)
			assert_int_equal(crpc_copyrpc_ep_connect(ep[i][k], addr[!i]), 0);
	}
	end[1].ep = ep[1][0];
	while (ended < CALLS) {
		assert_true(crpc_clock_ns() < until);
		for (k = made % 7; k < EPS && made < CALLS; k += 3) {
			word = k << 24 | opened[k];
			if (crpc_copyrpc_call(ep[0][k], crpc_clock_ns(), &word, sizeof(word),
				    sizeof(word), word) != 0)
				continue;
			made++;
			opened[k]++;
		}
		i = turn(done, 16);
		ended += i;
		while (i-- != 0) {
			assert_int_equal(done[i].status, 0);
			memcpy(&word, done[i].data, sizeof(word));
			assert_int_equal(done[i].cookie, word);
			next[word >> 24]++;
		}
	}
	assert_memory_equal(opened, next, sizeof(next));
	unmake();
}

int
main(int argc, char **argv)
{
	crpc_clock_init();
	if (device_missing())
		return 77;
	if (argc > 1 && strcmp(argv[1], "dc") == 0)
		transport = CRPC_RDMA_DC;
	return test_run(NULL, NULL);
}
