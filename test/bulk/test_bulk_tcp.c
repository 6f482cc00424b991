/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over TCP whose peer is the test, by hand: fragments, pages that the kernel maps, the bytes
 * on the wire, strangers, a peer that stalls or lies. What both ends do is in test_bulk.c and
 * test_bulk_rails.c, which run over TCP too.
 */
#include <stdlib.h>

#include "test.h"
#include "bulk_check.h"
#include "crpc_log.h"
#include "golden.h"
#include "rnd.h"
#include "tcp_hand.h"

#define CHUNK (512u << 10)
#define ID    (UINT64_C(1) << 16)

static const struct crpc_bulk_conf conf = {
	.chunk = CHUNK, .tx_chunks = 4, .timeout_ns = 50000000, .confirm_ns = 1000000};

static struct hand h;

static int
close_hand(void **state)
{
	hand_close(&h);
	memset(&h, 0, sizeof(h));
	return 0;
}

static void
open_hand(void)
{
	assert_or_log(hand_open(&h, &conf, 1));
	assert_ok(hand_meet(&h));
}

/* ---- fragments, without a socket ---- */

/* Pieces of any size at any address, adjacent ones or not, end in one message. */
TEST(fragments_of_any_size_are_gathered)
{
	static uint8_t from[1 << 19], want[1 << 19], to[1 << 19];
	struct crpc_unpack *u = crpc_unpack_create("cpu", NULL);
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
	struct bulk_req req = {.buf = to};
	uint64_t rng = 4711, job;
	struct rx_slot slot;

	assert_non_null(u);
	for (uint32_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 + (i >> 9));
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t all = 0, n = 1 + rnd_below(&rng, CRPC_UNPACK_DESCS_MAX);
		const uint8_t *at = from;
		uint32_t len = 0, merged = 0;

		memset(&slot, 0, sizeof(slot));
		slot.req = &req;
		for (uint32_t i = 0; i < n; i++) {
			bool adjacent = i != 0 && rnd_below(&rng, 3) == 0;

			/* far from the end, so that those behind each other stay inside */
			at = adjacent ? at + len : from + rnd_below(&rng, 1 << 17);
			len = 1 + rnd_below(&rng, 4097);
			merged += adjacent;
			memcpy(want + all, at, len);
			rx_frag_add(&slot, at, len);
			all += len;
		}
		assert_true(slot.nfrags <= n - merged);
		memset(to, 0, sizeof(to));
		n = __crpc_bulk_slot_descs(&slot, desc);
		assert_int_equal(n, slot.nfrags);
		assert_ok(crpc_unpack_submit(u, desc, n, &job));
		assert_ok(crpc_unpack_done(u, job));
		assert_memory_equal(to, want, all);
		assert_int_equal(to[all], 0);
	}
	crpc_unpack_free(u);
}

/* ---- a sender by hand ---- */

static void
offer(uint64_t id, uint64_t len, uint32_t flags)
{
	struct bulk_wire_offer msg = {
		.head = bulk_wire_head(BULK_OFFER, sizeof(msg), id), .len = len, .flags = flags};

	hand_write(&h, &msg, sizeof(msg));
	hand_turns(&h, 2);
}

/* DATA of chunk 0 in one piece; the chunk is to follow. */
static struct bulk_wire_data
data_of(uint64_t id, uint32_t slot, uint32_t len)
{
	struct bulk_wire_data msg = {.len = len, .slot = slot, .npieces = 1};

	msg.head = bulk_wire_head(BULK_DATA, offsetof(struct bulk_wire_data, piece) + 8, id);
	msg.piece[0] = (struct bulk_wire_piece){.line = slot * CHUNK / 64, .len = len};
	return msg;
}

static void
s_end(uint64_t id)
{
	struct bulk_wire_end msg = {.head = bulk_wire_head(BULK_S_END, sizeof(msg), id)};

	hand_write(&h, &msg, sizeof(msg));
}

static int32_t
end_of(uint64_t req)
{
	struct crpc_bulk_result result;

	for (uint32_t i = 0; i < 200000; i++) {
		hand_turns(&h, 1);
		if (crpc_bulk_test(h.b, req, &result) == 0)
			return result.status;
	}
	fail_msg("no end");
	return 0;
}

static uint64_t
receive(void *to, uint64_t len, uint32_t flags)
{
	uint64_t req = 0;

	assert_ok(crpc_bulk_irecv(h.conn, h.now, 0, to, len, flags, 0, &req));
	return req;
}

/* A message of one chunk, at most @p cut bytes of it in one call, without a copy by the kernel. */
static void
send_pages(uint64_t serial, const uint8_t *from, uint32_t len, uint32_t cut)
{
	struct bulk_wire_data data = data_of(serial << 16, serial % HAND_SLOTS, len);
	ssize_t n;

	data.slot |= (uint32_t)serial << 8;
	offer(serial << 16, len, CRPC_BULK_EAGER);
	hand_write(&h, &data, data.head.len);
	for (uint32_t sent = 0; sent < len; sent += n > 0 ? (uint32_t)n : 0) {
		n = send(h.fd, from + sent, crpc_min(len - sent, cut),
			MSG_ZEROCOPY | MSG_DONTWAIT);
		hand_turns(&h, 1);
	}
	s_end(serial << 16);
}

/*
 * A sender whose bytes the kernel does not copy, as a card that splits headers from pages does: on
 * the loopback device its chunks arrive in whole pages. Most of each is mapped, what is between is
 * copied, and the content is right; chunks that are converted or given to the user are copied.
 */
TEST_FIXTURE(pages_are_mapped_where_the_kernel_can, NULL, close_hand)
{
	static const struct {
		uint32_t len, cut, flags;
		bool maps, copies; /* For certain. */
	} cases[] = {{CHUNK, CHUNK, 0, true, false}, {CHUNK - 411, CHUNK, 0, true, true},
		/* more than 64 fragments of two pages or 99 bytes */
		{CHUNK, 8192 + 99, 0, true, true}, {4096, CHUNK, 0, false, false},
		{4095, CHUNK, 0, false, true}, {1, CHUNK, 0, false, true},
		{CHUNK, CHUNK, CRPC_BULK_CONVERT(CRPC_UNPACK_F32_TO_BF16), false, true},
		{CHUNK, 4096, 0, true, false}};
	uint8_t *from = aligned_alloc(4096, CHUNK), *to = aligned_alloc(4096, CHUNK);
	const struct crpc_bulk_stats *stats;
	uint64_t req, mapped;
	int on = 1;

	open_hand();
	stats = crpc_bulk_stats(h.b);
	if (h.conn->rx.map == NULL ||
		setsockopt(h.fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		skip();
	for (uint32_t i = 0; i < CRPC_DIM(cases); i++) {
		mapped = stats->bytes_zero_copy;
		for (uint32_t k = 0; k < CHUNK; k++)
			from[k] = (uint8_t)(k * 7 + (k >> 8) + i);
		memset(to, 0, CHUNK);
		req = receive(to, cases[i].len, cases[i].flags);
		send_pages(i + 1, from, cases[i].len, cases[i].cut);
		assert_int_equal(end_of(req), 0);
		if (cases[i].flags == 0)
			assert_memory_equal(to, from, cases[i].len);
		mapped = stats->bytes_zero_copy - mapped;
		if (cases[i].maps ? mapped == 0 : cases[i].len != 4096 && mapped != 0)
			fail_msg("case %u: %llu bytes were mapped", i, (unsigned long long)mapped);
		if (cases[i].copies)
			assert_true(mapped < cases[i].len);
		assert_ok(bulk_check(h.b, false));
	}
	free(from);
	free(to);
}

/* A chunk that comes byte by byte, with its DATA and what follows, ends as any other. */
TEST_FIXTURE(stream_may_be_cut_anywhere, NULL, close_hand)
{
	static uint8_t stream[5000], to[4096 + 700];
	struct bulk_wire_data data = data_of(ID, 1, sizeof(to));
	uint32_t n = data.head.len;
	uint64_t req;

	open_hand();
	req = receive(to, sizeof(to), 0);
	offer(ID, sizeof(to), CRPC_BULK_EAGER);
	memcpy(stream, &data, n);
	for (uint32_t i = 0; i < sizeof(to); i++)
		stream[n + i] = (uint8_t)(i * 13 + (i >> 8));
	for (uint32_t i = 0; i < n + sizeof(to); i++) {
		hand_write(&h, stream + i, 1);
		hand_turns(&h, i % 3);
	}
	s_end(ID);
	assert_int_equal(end_of(req), 0);
	assert_memory_equal(to, stream + n, sizeof(to));
}

/* ---- who connects ---- */

/* A connection that sends nothing, something else or another key is not taken for the peer's. */
TEST_FIXTURE(strangers_are_not_the_peer, NULL, close_hand)
{
	const struct bulk_wire_tcp at = {
		.magic = BULK_WIRE_TCP_MAGIC, .version = BULK_WIRE_TCP_VERSION, .port = 1};
	struct bulk_wire_tcp bad = at;
	uint8_t to[16], byte;
	int stranger[3];
	uint64_t req;

	assert_or_log(hand_open(&h, &conf, 1));
	bad.version++;
	assert_int_equal(hand_meet_at(&h, &bad), -EPROTO);
	bad = at;
	bad.key = h.self.key;
	assert_int_equal(hand_meet_at(&h, &bad), -EPROTO);
	assert_ok(hand_meet_at(&h, &at));
	for (uint32_t i = 0; i < 3; i++)
		stranger[i] = hand_socket(&h);
	h.fd = stranger[1];
	hand_write(&h, "GET / HTTP/1.1\r\n\r\n", 18);
	h.fd = stranger[2];
	hand_say(&h, BULK_HELLO, h.self.key + 1);
	hand_turns(&h, 10);
	assert_ok(h.conn->err);
	assert_int_equal(recv(stranger[2], &byte, 1, MSG_DONTWAIT), 0);
	h.fd = hand_socket(&h);
	hand_say(&h, BULK_HELLO, h.self.key);
	hand_turns(&h, 10);
	req = receive(to, 0, 0);
	offer(ID, 0, CRPC_BULK_EAGER);
	s_end(ID);
	assert_int_equal(end_of(req), 0);
	/* it does not listen any more */
	assert_int_equal(hand_socket(&h), -1);
	for (uint32_t i = 0; i < 3; i++)
		close(stranger[i]);
}

/* A rail that returns does so at the same host: its new address comes from a peer that may lie. */
TEST_FIXTURE(rail_returns_at_the_same_host_only, NULL, close_hand)
{
	struct bulk_wire_tcp at = {.magic = BULK_WIRE_TCP_MAGIC,
		.version = BULK_WIRE_TCP_VERSION,
		.port = 1,
		.ip = {127, 0, 0, 2}};
	struct crpc_copyrpc_ep *ep;

	open_hand();
	ep = h.conn->rail[0].ep;
	h.b->link->shutdown(ep);
	assert_ok(h.b->link->reset(ep));
	h.conn->rail[0].state = RAIL_MEETING;
	assert_int_equal(h.b->link->connect(ep, (uint8_t *)&at), -EPROTO);
	at.ip[3] = 1;
	assert_ok(h.b->link->connect(ep, (uint8_t *)&at));
	h.conn->rail[0].state = RAIL_UP;
}

/* Only the eager path is there: others are refused here, and not accepted of the peer. */
TEST_FIXTURE(other_paths_are_refused, NULL, close_hand)
{
	uint64_t req;
	uint8_t buf[64];

	open_hand();
	assert_int_equal(crpc_bulk_isend(h.conn, h.now, 1, buf, 64, CRPC_BULK_WRITE, 0, &req),
		-EOPNOTSUPP);
	assert_int_equal(
		crpc_bulk_irecv(h.conn, h.now, 1, buf, 64, CRPC_BULK_READ, 0, &req), -EOPNOTSUPP);
	req = receive(buf, 64, 0);
	offer(ID, 64, CRPC_BULK_WRITE | CRPC_BULK_READ);
	s_end(ID);
	assert_int_equal(end_of(req), -EOPNOTSUPP);
	assert_ok(h.conn->err);
}

/* ---- a peer that stalls, goes or lies ---- */

/* It stops within a chunk: another connection is not held up, and its own requests end in time. */
TEST_FIXTURE(stalled_peer_does_not_hold_up_others, NULL, close_hand)
{
	struct crpc_bulk_conn *pair[2];
	static uint8_t src[300000], dst[300000], to[CHUNK];
	uint8_t addr[2][CRPC_BULK_ADDR_LEN];
	struct bulk_wire_data data = data_of(ID, 0, CHUNK);
	uint64_t stalled, sent, received;

	open_hand();
	stalled = receive(to, CHUNK, 0);
	offer(ID, CHUNK, CRPC_BULK_EAGER);
	hand_write(&h, &data, data.head.len);
	hand_write(&h, src, CHUNK / 2);
	hand_turns(&h, 10);
	for (int i = 0; i < 2; i++) {
		pair[i] = crpc_bulk_conn_create(h.b, 1, 8);
		assert_or_log(pair[i] != NULL);
		crpc_bulk_conn_addr(pair[i], addr[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_ok(crpc_bulk_conn_connect(pair[i], addr[!i]));
	memset(src, 3, sizeof(src));
	assert_ok(crpc_bulk_irecv(pair[1], h.now, 2, dst, sizeof(dst), 0, 0, &received));
	assert_ok(crpc_bulk_isend(pair[0], h.now, 2, src, sizeof(src), 0, 0, &sent));
	assert_int_equal(end_of(received), 0);
	assert_int_equal(end_of(sent), 0);
	assert_memory_equal(src, dst, sizeof(src));
	assert_int_equal(end_of(stalled), -ETIMEDOUT);
	assert_ok(bulk_check(h.b, false));
}

/* It goes: within a message, within a chunk, or between two. */
TEST_FIXTURE(lost_connection_ends_requests, NULL, close_hand)
{
	struct bulk_wire_data data = data_of(ID, 0, CHUNK);
	static uint8_t to[CHUNK];
	uint64_t req;

	for (uint32_t i = 0; i < 3; i++) {
		open_hand();
		req = receive(to, CHUNK, 0);
		offer(ID, CHUNK, CRPC_BULK_EAGER);
		hand_write(&h, &data, i == 0 ? 7 : i == 1 ? data.head.len : 0);
		if (i == 1)
			hand_write(&h, to, 10000);
		hand_turns(&h, 5);
		shutdown(h.fd, SHUT_RDWR);
		assert_int_equal(end_of(req), -ECONNRESET);
		assert_ok(bulk_check(h.b, true));
		if (i < 2)
			close_hand(NULL);
	}
}

/* What a hostile peer says, behind an offer that was accepted: heads, then DATA. */
#define HEAD_LIES 7u
#define LIES      14u

static void
lie_head(uint32_t which)
{
	struct bulk_wire_head head = bulk_wire_head(BULK_S_MOVES, sizeof(head), ID);

	if (which == 0)
		head.len = 15;
	else if (which == 1)
		head.len = UINT32_MAX;
	else if (which == 2)
		head.magic++;
	else if (which == 3)
		head.version++;
	else if (which == 4)
		head.type = BULK_HELLO;
	else
		head.type = BULK_TAKEN;
	if (which == 5)
		head.id = 2; /* one was sent */
	if (which == 6) {
		hand_say(&h, BULK_TAKEN, 1);
		head.id = 0;
	}
	hand_write(&h, &head, sizeof(head));
}

static void
lie_data(uint32_t which)
{
	struct bulk_wire_data data = data_of(ID, 0, 100);

	if (which == 7)
		data.slot = HAND_SLOTS;
	else if (which == 8)
		data.piece[0].line = HAND_SLOTS * CHUNK / 64;
	else if (which == 9)
		data.piece[0].line++;
	else if (which == 10)
		data.piece[0].len = data.len = UINT32_MAX;
	else if (which == 11)
		data.head.id = ID * 9;
	else if (which == 12)
		data.index = 1;
	hand_write(&h, &data, data.head.len);
	hand_write(&h, data.piece, sizeof(data.piece));
	hand_write(&h, data.piece, 100 - sizeof(data.piece));
	/* the slot is the first chunk's, which the receiver keeps */
	if (which == 13)
		hand_write(&h, &data, data.head.len);
}

TEST_FIXTURE(lies_break_the_connection, NULL, close_hand)
{
	static uint8_t to[100];
	uint64_t req;

	for (uint32_t i = 0; i < LIES; i++) {
		open_hand();
		req = receive(to, sizeof(to), CRPC_BULK_MANUAL);
		offer(ID, sizeof(to), CRPC_BULK_EAGER);
		if (i < HEAD_LIES)
			lie_head(i);
		else
			lie_data(i);
		for (uint32_t k = 0; k < 100 && h.conn->err == 0; k++)
			hand_turns(&h, 1);
		if (h.conn->err != -EPROTO)
			fail_msg("lie %u: %d", i, h.conn->err);
		assert_int_equal(end_of(req), -EPROTO);
		assert_ok(bulk_check(h.b, true));
		if (i + 1 < LIES)
			close_hand(NULL);
	}
}

/* ---- the bytes ---- */

/* The next message of the object, and the chunk behind it. */
static void
golden_next(FILE *out, const char *what)
{
	uint8_t msg[sizeof(union bulk_wire) + 100];
	struct bulk_wire_head *head = (void *)msg;
	uint32_t len;

	assert_int_equal(hand_read(&h, msg, sizeof(*head)), sizeof(*head));
	len = head->len - (uint32_t)sizeof(*head) + (head->type == BULK_DATA ? 100 : 0);
	assert_int_equal(hand_read(&h, head + 1, len), len);
	golden_bytes(out, what, 0, msg, sizeof(*head) + len);
}

TEST_FIXTURE(bytes_are_as_written_down, NULL, close_hand)
{
	struct bulk_wire_accept accept = {.path = CRPC_BULK_EAGER};
	uint8_t buf[100];
	char *text = NULL;
	uint64_t req;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)i;
	assert_or_log(hand_open(&h, &conf, 1));
	h.self.port = 0x1234;
	h.self.key = 0x1122334455667788;
	golden_bytes(out, "address of a rail; port 0x1234, key 0x1122334455667788", 0, &h.self,
		sizeof(h.self));
	assert_ok(hand_meet_listening(&h));
	assert_ok(crpc_bulk_isend(h.conn, h.now, 5, buf, sizeof(buf), 0, 0, &req));
	golden_next(out, "hello, to the key of all ones");
	golden_next(out, "offer of 100 bytes");
	accept.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), ID);
	hand_write(&h, &accept, sizeof(accept));
	golden_next(out, "one message was taken");
	golden_next(out, "chunk 0, whose bytes follow");
	golden_next(out, "end of the sender");
	fclose(out);
	golden_text(CRPC_GOLDEN_DIR "/bulk_tcp_v1.txt", text);
}

TEST_MAIN(NULL, NULL)
