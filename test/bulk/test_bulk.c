/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk transfer on two paper devices: every path and size, the pool, tags, lengths, chunks that the
 * user consumes, checksums, conversion, rails, memory. Content is compared in each.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"
#include "bulk_rig.h"
#include "crpc_tensor_convert.h"

#define CHUNK 4096u

static const struct crpc_bulk_conf small = {.chunk = CHUNK, .slots = 8, .tx_chunks = 6};

/* Send len bytes, receive them: both end with success by this path, and the bytes are right. */
static void
transfer(uint64_t len, uint32_t send_flags, uint32_t recv_flags, uint8_t path)
{
	struct job j;

	job_start(&j, len, send_flags, recv_flags);
	job_ends(&j, 0);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(j.result[side].cookie, side ? 22 : 11);
		assert_int_equal(j.result[side].len, len);
		assert_int_equal(j.result[side].path, path);
		assert_int_equal(j.result[side].recv, side);
	}
	job_quiet(&j);
}

/* Every path moves every size, sizes around the borders of units and chunks included. */
TEST(every_path_moves_every_size)
{
	static const uint64_t lens[] = {0, 1, 511, 512, 513, CHUNK - 1, CHUNK, CHUNK + 1,
		3 * CHUNK + 77, 8 * CHUNK, 100 * CHUNK + 1};

	rig_init(&small, &small, 1, 1, 3);
	for (uint32_t p = 0; p < 3; p++) {
		for (uint32_t i = 0; i < CRPC_DIM(lens); i++) {
			for (uint32_t crc = 0; crc < 2; crc++)
				transfer(lens[i], rig_path(p) | (crc ? CRPC_BULK_CRC : 0), 0,
					(uint8_t)rig_path(p));
		}
	}
	rig_rest();
}

/* Turns of slots (24 bits) and of chunks that the device moves (30 bits in a cookie) wrap. */
TEST(turns_wrap)
{
	for (uint32_t rails = 1; rails <= 2; rails++) {
		rig_init(&small, &small, rails, 1, 30 + rails);
		for (uint32_t i = 0; i < 12; i++) {
			rig.conn[i / 6]->tx.op[i % 6].turn = (i % 2 ? 1u << 30 : 0) - 3;
			rig.conn[i / 6]->tx.slot[i % 8].turn = 0xfffffd;
		}
		for (uint32_t i = 0; i < 3; i++)
			transfer(100 * CHUNK, rig_path(i), 0, rig_path(i));
		assert_true(rig.conn[0]->tx.slot[0].turn < 100);
		rig_rest();
	}
}

/* The paths that both allow are used; with nothing said the length decides. */
TEST(path_is_what_both_allow)
{
	struct crpc_bulk_conf conf = small;
	uint8_t src[100] = {1}, dst[100];
	uint64_t send, recv;

	if (rig_over_tcp())
		skip();
	conf.rendezvous_min = 20000;
	rig_init(&conf, &conf, 1, 1, 4);
	transfer(19999, 0, 0, CRPC_BULK_EAGER);
	transfer(20000, 0, 0, CRPC_BULK_WRITE);
	transfer(20000, 0, CRPC_BULK_EAGER, CRPC_BULK_EAGER);
	transfer(20000, 0, CRPC_BULK_UNREGISTERED, CRPC_BULK_EAGER);
	transfer(20000, CRPC_BULK_READ | CRPC_BULK_EAGER, 0, CRPC_BULK_READ);
	transfer(20000, CRPC_BULK_READ | CRPC_BULK_WRITE, 0, CRPC_BULK_WRITE);
	send = rig_send(0, 1, src, 100, CRPC_BULK_WRITE);
	recv = rig_recv(1, 1, dst, 100, CRPC_BULK_EAGER);
	rig_ends(send, recv, -EOPNOTSUPP);
	rig_rest();
}

/* The first classic error: the 17th request of a pool of 16 is refused, and taken after one ended;
 * sends and receives have pools of their own. */
TEST(seventeenth_request_is_refused)
{
	static uint8_t src[17][64], dst[17][64];
	struct crpc_bulk_result result[2];
	uint64_t send[17], recv[17];
	uint32_t i, free_sends, free_recvs;

	rig_init(&small, &small, 1, 1, 5);
	for (i = 0; i < 16; i++) {
		buf_fill(src[i], 64, i);
		send[i] = rig_send(0, i, src[i], 64, 0);
	}
	assert_int_equal(
		crpc_bulk_isend(rig.conn[0], rig.w.now_ns, 16, src[16], 64, 0, 16, &send[16]),
		-EAGAIN);
	assert_int_equal(rig_stats(0)->again, 1);
	for (i = 0; i < 16; i++)
		recv[i] = rig_recv(0, i, dst[i], 64, 0);
	assert_int_equal(
		crpc_bulk_irecv(rig.conn[0], rig.w.now_ns, 16, dst[16], 64, 0, 0, &recv[16]),
		-EAGAIN);
	crpc_bulk_pool(rig.conn[0], &free_sends, &free_recvs);
	assert_int_equal(free_sends, 0);
	assert_int_equal(free_recvs, 0);
	/* an end alone frees nothing: the slot is free when test() has given it */
	assert_ok(crpc_bulk_cancel(rig.b[0], rig.w.now_ns, recv[3]));
	assert_int_equal(
		crpc_bulk_irecv(rig.conn[0], rig.w.now_ns, 16, dst[16], 64, 0, 0, &recv[16]),
		-EAGAIN);
	assert_ok(crpc_bulk_test(rig.b[0], recv[3], result));
	assert_int_equal(result[0].status, -ECANCELED);
	recv[16] = rig_recv(0, 16, dst[16], 64, 0);
	assert_int_equal(crpc_bulk_test(rig.b[0], recv[3], result), -ENOENT);
	recv[3] = recv[16];
	for (i = 0; i < 16; i++) {
		assert_ok(crpc_bulk_cancel(rig.b[0], rig.w.now_ns, recv[i]));
		assert_ok(crpc_bulk_test(rig.b[0], recv[i], result));
	}
	/* all offers are there before the receives, which come backwards */
	rig_turns(200);
	for (i = 16; i-- != 0;)
		recv[i] = rig_recv(1, i, dst[i], 64, 0);
	for (i = 0; i < 16; i++) {
		rig_ends(send[i], recv[i], 0);
		assert_memory_equal(dst[i], src[i], 64);
	}
	rig_rest();
}

/* The second: consumed before the engine has reported done is refused, the memory stays the
 * chunk's, and the sender gets no slot; after done it works, once. */
TEST(early_consumed_is_refused)
{
	struct crpc_bulk_conf conf = small;
	struct crpc_bulk_chunk chunk[8], first;
	uint32_t i, n;
	struct job j;

	conf.engine = crpc_unpack_create("test", NULL);
	rig_init(&small, &conf, 1, 1, 6);
	tool.mode = TOOL_HOLDS;
	job_start(&j, 20 * CHUNK, CRPC_BULK_EAGER, CRPC_BULK_MANUAL);
	rig_turns(3000);
	/* all 8 slots are taken, and no more came */
	n = crpc_bulk_chunks(rig.b[1], chunk, 8);
	assert_int_equal(n, 8);
	assert_int_equal(rig_stats(0)->chunks_sent, 8);
	first = chunk[0];
	for (i = 0; i < 8; i++) {
		assert_int_equal(rig_consumed(chunk[i].token), -EBUSY);
		assert_memory_equal(
			chunk[i].piece[0].data, j.src + chunk[i].off, chunk[i].piece[0].len);
	}
	rig_turns(3000);
	assert_int_equal(rig_stats(0)->chunks_sent, 8);
	assert_int_equal(rig_stats(1)->early_consumed, 8);
	tool.mode = TOOL_GOES;
	rig_turns(20);
	assert_int_equal(rig_stats(0)->chunks_sent, 8);
	for (i = 0; i < 8; i++)
		assert_ok(rig_consumed(chunk[i].token));
	assert_int_equal(rig_consumed(first.token), -ENOENT);
	while (rig_state(1, j.recv) != CRPC_BULK_DONE) {
		rig_turns(2);
		n = crpc_bulk_chunks(rig.b[1], chunk, 8);
		for (i = 0; i < n; i++) {
			assert_int_equal(chunk[i].req, j.recv);
			while (rig_consumed(chunk[i].token) == -EBUSY)
				rig_turns(2);
		}
	}
	job_ends(&j, 0);
	job_quiet(&j);
	rig_fini();
	crpc_unpack_free(conf.engine);
}

/* The third: messages of one tag match in their order, their chunks do not mix, whatever the wire
 * and the other tags do. */
TEST(equal_tags_match_in_order)
{
	static uint8_t src[12][5 * CHUNK], dst[12][5 * CHUNK];
	uint64_t send[12], recv[12];

	for (uint32_t seed = 1; seed <= 20; seed++) {
		rig_init(&small, &small, 1 + seed % 3, 1, seed);
		for (uint32_t i = 0; i < 12; i++)
			buf_fill(src[i], sizeof(src[i]), 100 * seed + i);
		memset(dst, 0, sizeof(dst));
		for (uint32_t i = 0; i < 12; i++) {
			if (rig_rnd(2))
				rig_turns(rig_rnd(20));
			send[i] = rig_send(0, i % 4 ? 7 : 8, src[i], sizeof(src[i]), rig_path(i));
			if (rig_rnd(2))
				rig_turns(rig_rnd(20));
			recv[i] = rig_recv(1, i % 4 ? 7 : 8, dst[i], sizeof(dst[i]), 0);
		}
		for (uint32_t i = 0; i < 12; i++) {
			rig_ends(send[i], recv[i], 0);
			if (memcmp(src[i], dst[i], sizeof(src[i])) != 0)
				fail_msg("seed %u, message %u", seed, i);
		}
		rig_rest();
	}
}

/* The fourth: an engine's state is made once, for however many chunks and messages. */
TEST(state_is_made_once)
{
	uint64_t before = crpc_unpack_states_made();

	rig_init(&small, &small, 1, 1, 8);
	for (uint32_t i = 0; i < 20; i++)
		transfer(50 * CHUNK, CRPC_BULK_EAGER, 0, CRPC_BULK_EAGER);
	assert_int_equal(crpc_unpack_states_made() - before, 2);
	assert_int_equal(rig_stats(1)->chunks_received, 1000);
	assert_int_equal(rig_stats(1)->unpack.n, 1000);
}

/* Lengths that differ end both requests with -EMSGSIZE, and not a byte moves. */
TEST(lengths_that_differ_are_refused)
{
	struct crpc_bulk_result result[2];
	uint8_t src[1000], *dst = buf_make(1000);

	rig_init(&small, &small, 1, 1, 9);
	memset(src, 1, sizeof(src));
	for (uint32_t i = 0; i < 6; i++) {
		uint64_t send = rig_send(0, 1, src, i % 2 ? 1000 : 998, rig_path(i / 2));
		uint64_t recv = rig_recv(1, 1, dst, 999, i % 2 ? CRPC_BULK_UP_TO : 0);

		rig_ends(send, recv, -EMSGSIZE);
		assert_int_equal(dst[0], 0xa5);
		buf_guards(dst, 1000);
		/* shorter is fine if it was said */
		send = rig_send(0, 1, src, 700, rig_path(i / 2));
		recv = rig_recv(1, 1, dst, 999, CRPC_BULK_UP_TO);
		rig_end(send, recv, result);
		assert_true(result[0].status == 0 && result[1].status == 0);
		assert_int_equal(result[1].len, 700);
		assert_memory_equal(src, dst, 700);
		assert_int_equal(dst[700], 0xa5);
		memset(dst, 0xa5, 1000);
	}
	rig_rest();
	rig_fini();
	buf_free(dst);
}

/* Memory of len bytes that is the same `part` bytes over and over. */
static uint8_t *
folded_map(uint64_t len, uint64_t part)
{
	int fd = memfd_create("test_bulk", MFD_CLOEXEC);
	uint8_t *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(fd >= 0 && p != MAP_FAILED && ftruncate(fd, (off_t)part) == 0);
	for (uint64_t at = 0; at < len; at += part)
		assert_ptr_equal(
			mmap(p + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
			p + at);
	close(fd);
	return p;
}

/*
 * The longest message there may be, whose length has more than 32 bits, by each path. Shorter under
 * the thread sanitizer, which keeps four bytes for each byte of addresses, folded or not.
 */
TEST(longest_message_arrives)
{
	static const struct crpc_bulk_conf conf = {.chunk = 1u << 20, .slots = 2, .tx_chunks = 2};
#ifdef __SANITIZE_THREAD__
	const uint64_t len = UINT64_C(64) << 20, part = conf.chunk;
#else
	const uint64_t len = CRPC_BULK_LEN_MAX, part = conf.chunk;
#endif
	uint8_t *src = folded_map(len, part), *dst = folded_map(len, part);
	struct crpc_bulk_result result[2];
	uint64_t send, recv;

	rig_init(&conf, &conf, 1, 1, 77);
	for (uint32_t i = 0; i < (rig.tcp ? 1 : 3); i++) {
		buf_fill(src, part, i + 1);
		crpc_bulk_stats_reset(rig.b[0]);
		crpc_bulk_stats_reset(rig.b[1]);
		send = rig_send(0, i, src, len, rig_path(i));
		recv = rig_recv(1, i, dst, len, 0);
		rig_end(send, recv, result);
		assert_true(result[0].status == 0 && result[1].status == 0);
		assert_true(result[0].len == len && result[1].len == len);
		assert_true(rig_stats(0)->bytes_sent == len);
		assert_true(rig_stats(1)->bytes_received == len);
		assert_memory_equal(src, dst, part);
	}
	rig_fini();
	munmap(src, len);
	munmap(dst, len);
}

/* Arguments that can not be right are refused at once. */
TEST(bad_arguments_are_refused)
{
	struct crpc_bulk_conf bad = small;
	uint64_t req = 0;
	uint8_t buf[16];

	rig_init(&small, &small, 1, 1, 10);
	assert_int_equal(crpc_bulk_isend(rig.conn[0], 0, 1, NULL, 1, 0, 0, &req), -EINVAL);
	assert_int_equal(
		crpc_bulk_isend(rig.conn[0], 0, 1, buf, 16, CRPC_BULK_MANUAL, 0, &req), -EINVAL);
	assert_int_equal(crpc_bulk_isend(rig.conn[0], 0, 1, buf, CRPC_BULK_LEN_MAX + 1, 0, 0, &req),
		-EMSGSIZE);
	assert_int_equal(crpc_bulk_irecv(rig.conn[0], 0, 1, buf, 16,
				 CRPC_BULK_WRITE | CRPC_BULK_MANUAL, 0, &req),
		-EINVAL);
	assert_int_equal(crpc_bulk_irecv(rig.conn[0], 0, 1, buf, 16,
				 CRPC_BULK_CONVERT(CRPC_UNPACK_OPS), 0, &req),
		-EINVAL);
	assert_int_equal(crpc_bulk_irecv(rig.conn[0], 0, 1, buf, 15,
				 CRPC_BULK_CONVERT(CRPC_UNPACK_BF16_TO_F32), 0, &req),
		-EINVAL);
	assert_int_equal(crpc_bulk_cancel(rig.b[0], 0, 12345), -ENOENT);
	assert_int_equal(rig_state(0, 12345), CRPC_BULK_FREE);
	assert_int_equal(crpc_bulk_consumed(rig.b[0], 0, 1 << 18), -ENOENT);
	bad.port[0] = rig.conf[0].port[0];
	bad.chunk = 5000;
	assert_null(crpc_bulk_create(&bad));
	assert_int_equal(errno, EINVAL);
	bad.chunk = CHUNK;
	bad.port[0].dev = NULL;
	bad.port[0].tcp[0] = rig.tcp ? 'x' : 0;
	assert_null(crpc_bulk_create(&bad));
	assert_null(crpc_bulk_conn_create(rig.b[0], CRPC_BULK_RAILS_MAX + 1, 0));
	rig_check(true);
}

/* Floats are narrowed and widened on the way, with the same bits as by the library. */
TEST(floats_convert_on_the_way)
{
	static float src[5000], back[5000];
	static uint16_t half[5000], expected[5000];
	struct crpc_bulk_result result[2];
	uint64_t send, recv;

	for (uint32_t i = 0; i < 5000; i++)
		src[i] = (float)i * 1.00123f - 2000.0f;
	rig_init(&small, &small, 1, 1, 11);
	send = rig_send(0, 1, src, sizeof(src), CRPC_BULK_CRC | CRPC_BULK_EAGER);
	recv = rig_recv(1, 1, half, sizeof(src), CRPC_BULK_CONVERT(CRPC_UNPACK_F32_TO_BF16));
	rig_end(send, recv, result);
	assert_int_equal(result[1].status, 0);
	crpc_tensor_f32_to_bf16(expected, src, 5000);
	assert_memory_equal(half, expected, sizeof(half));
	send = rig_send(0, 2, half, sizeof(half), CRPC_BULK_EAGER);
	recv = rig_recv(1, 2, back, sizeof(half), CRPC_BULK_CONVERT(CRPC_UNPACK_BF16_TO_F32));
	rig_end(send, recv, result);
	assert_int_equal(result[1].status, 0);
	for (uint32_t i = 0; i < 5000; i++)
		assert_true(back[i] == crpc_tensor_of_bf16(expected[i]));
	rig_rest();
}

/* Several rails and devices carry the chunks, the faster one more of them. */
TEST(rails_share_the_chunks)
{
	const struct crpc_bulk_stats *stats;

	for (uint32_t rails = 2; rails <= 4; rails++) {
		rig_init(&small, &small, rails, RIG_PORTS, rails);
		for (uint32_t i = 0; i < 3; i++)
			transfer(300 * CHUNK, rig_path(i) | CRPC_BULK_CRC, 0, rig_path(i));
		stats = rig_stats(0);
		for (uint32_t i = 0; i < rails; i++)
			assert_true(stats->rail_bytes[i] > 10 * CHUNK);
		/* what is known of them decides; fewer chunks than it takes for a probe */
		crpc_bulk_stats_reset(rig.b[0]);
		rig.conn[0]->rail[0].rate = 100;
		for (uint32_t i = 1; i < rails; i++)
			rig.conn[0]->rail[i].rate = 0.0001;
		rig.conn[0]->tx.posts = 0;
		transfer(50 * CHUNK, CRPC_BULK_EAGER, 0, CRPC_BULK_EAGER);
		assert_int_equal(stats->rail_bytes[0], 50 * CHUNK);
	}
}

/* Windows hold at every moment, and requests of both directions end together. */
TEST(windows_hold_in_both_directions)
{
	struct crpc_bulk_conf conf = {.chunk = CHUNK, .slots = 5, .tx_chunks = 3};
	uint64_t len = 200 * CHUNK + 5, ended = 0;
	struct crpc_bulk_result result[4];
	uint8_t *src[2], *dst[2];

	rig_init(&conf, &small, 2, 1, 12);
	for (int side = 0; side < 2; side++) {
		src[side] = buf_make(len);
		dst[side] = buf_make(len);
		buf_fill(src[side], len, 50 + (uint64_t)side);
		rig_send(side, 1, src[side], len, rig_path((uint64_t)!side));
		rig_recv(side, 1, dst[side], len, 0);
	}
	for (uint32_t i = 0; i < 1000000 && ended < 4; i++) {
		rig_turn(i & 1);
		rig_check(false);
		assert_true(rig.conn[0]->rail[0].under_way + rig.conn[0]->rail[1].under_way <=
			3 * CHUNK);
		assert_true(rig.conn[1]->rail[0].under_way + rig.conn[1]->rail[1].under_way <=
			6 * CHUNK);
		for (uint32_t n = crpc_bulk_test_burst(rig.b[i & 1], result, 4); n > 0; ended++)
			assert_int_equal(result[--n].status, 0);
	}
	assert_int_equal(ended, 4);
	for (int side = 0; side < 2; side++) {
		assert_memory_equal(dst[side], src[!side], len);
		buf_guards(dst[side], len);
	}
	for (int side = 0; side < 2; side++) {
		buf_free(src[side]);
		buf_free(dst[side]);
	}
	rig_rest();
}

/* States as the diagram says, and their times in order. */
TEST(states_follow_each_other)
{
	struct crpc_bulk_result result[2];
	uint8_t src[3 * CHUNK], dst[3 * CHUNK];
	uint64_t send, recv;

	rig_init(&small, &small, 1, 1, 14);
	send = rig_send(0, 1, src, sizeof(src), CRPC_BULK_EAGER);
	rig_turns(100);
	assert_int_equal(rig_state(0, send), CRPC_BULK_POSTED);
	assert_int_equal(crpc_bulk_test(rig.b[0], send, result), -EAGAIN);
	recv = rig_recv(1, 1, dst, sizeof(dst), 0);
	assert_int_equal(rig_state(1, recv), CRPC_BULK_ACTIVE);
	for (uint32_t i = 0; i < 1000 && rig_state(1, recv) != CRPC_BULK_TRANSMITTING;
		i++)
		rig_turn(i & 1);
	assert_int_equal(rig_state(0, send), CRPC_BULK_TRANSMITTING);
	rig_end(send, recv, result);
	assert_int_equal(rig_state(0, send), CRPC_BULK_FREE);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(
			result[i].posted_ns != 0 && result[i].posted_ns <= result[i].matched_ns);
		assert_true(result[i].matched_ns <= result[i].first_ns);
		assert_true(result[i].first_ns < result[i].done_ns);
	}
}

int
main(void)
{
	crpc_unpack_register(&tool_ops);
	return test_run(NULL, rig_close);
}
