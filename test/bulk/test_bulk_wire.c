/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control messages byte by byte against test/golden/bulk_v3.txt (`CRPC_GOLDEN_WRITE=1` writes
 * it again, after a change of version). They are taken from the wire: one end is a bulk object, its
 * peer is this test, by hand. Addresses and keys, which differ from run to run, are zeroed.
 */
#include <stdio.h>

#include "test.h"
#include "bulk_rig.h"

#define CHUNK 4096u

static FILE *out, *in;

/* One line with a name, then the bytes, 16 in a line. */
static void
golden(const char *name, const uint8_t *bytes, uint32_t len)
{
	char line[128];
	unsigned int v;

	if (out != NULL) {
		fprintf(out, "%s\n", name);
		for (uint32_t i = 0; i < len; i++)
			fprintf(out, "%02x%c", bytes[i], i % 16 == 15 || i == len - 1 ? '\n' : ' ');
		return;
	}
	do {
		if (fgets(line, sizeof(line), in) == NULL)
			fail_msg("%s: the file ends before it", name);
	} while (line[0] == '\n');
	line[strcspn(line, "\n")] = 0;
	assert_string_equal(line, name);
	for (uint32_t i = 0; i < len; i++) {
		if (fscanf(in, "%2x", &v) != 1 || v != bytes[i])
			fail_msg("%s: byte %u is %02x, expected %02x", name, i, bytes[i], v);
	}
}

/* The next message that `side` has sent arrives at its peer, which is this test. */
static union bulk_wire
next(int side, const char *name)
{
	union bulk_wire msg = {0};
	uint32_t i, len;

	for (i = 0; i < 100; i++) {
		rig.w.now_ns += 1000;
		rig_progress(side);
		len = rig_hear(!side, &msg);
		if (len == 0)
			continue;
		if (msg.head.type == BULK_OFFER) {
			assert_int_not_equal(msg.offer.raddr, 0);
			msg.offer.raddr = 0;
			memset(msg.offer.rkey, 0, sizeof(msg.offer.rkey));
		} else if (msg.head.type == BULK_ACCEPT) {
			assert_int_equal(msg.accept.raddr != 0, msg.accept.path == CRPC_BULK_WRITE);
			msg.accept.raddr = 0;
			memset(msg.accept.rkey, 0, sizeof(msg.accept.rkey));
		}
		if (msg.head.type == BULK_RAIL_ADDR)
			memset(msg.rail_addr.addr, 0, sizeof(msg.rail_addr.addr));
		golden(name, (const uint8_t *)&msg, len);
		return msg;
	}
	fail_msg("%s did not come", name);
	return msg;
}

static void
sender_says(void)
{
	static uint8_t buf[5000];
	struct bulk_wire_accept accept;
	struct bulk_wire_end end;
	union bulk_wire msg;
	uint64_t req;

	buf_fill(buf, sizeof(buf), 1);
	req = rig_send(0, 0x1122334455667788, buf, sizeof(buf),
		CRPC_BULK_EAGER | CRPC_BULK_READ | CRPC_BULK_CRC);
	msg = next(0, "offer of 5,000 bytes, eager or read, with checksum");
	memset(&accept, 0, sizeof(accept));
	accept.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), msg.head.id);
	accept.path = CRPC_BULK_EAGER;
	rig_say(1, &accept, sizeof(accept));
	next(0, "chunk 0 of 2, in one piece");
	next(0, "chunk 1 of 2");
	next(0, "end of the sender, success");
	memset(&end, 0, sizeof(end));
	end.head = bulk_wire_head(BULK_R_END, sizeof(end), msg.head.id);
	rig_say(1, &end, sizeof(end));
	rig_progress(0);
	assert_int_equal(rig_state(0, req), CRPC_BULK_DONE);
}

static void
receiver_says(void)
{
	static uint8_t buf[5000];
	struct crpc_bulk_chunk chunk;
	struct bulk_wire_offer offer;
	struct bulk_wire_data data;
	struct bulk_wire_end end;
	uint64_t id = 7 << 16 | 3;

	for (uint32_t i = 0; i < 2; i++) {
		rig_recv(1, i, buf, 100, i ? 0 : CRPC_BULK_MANUAL);
		memset(&offer, 0, sizeof(offer));
		offer.head = bulk_wire_head(BULK_OFFER, sizeof(offer), id + i);
		offer.tag = i;
		offer.len = 100;
		offer.flags = i ? CRPC_BULK_WRITE : CRPC_BULK_EAGER;
		rig_say(0, &offer, sizeof(offer));
	}
	rig_progress(1);
	next(1, "accept, eager");
	next(1, "accept, written");
	memset(&data, 0, sizeof(data));
	data.head = bulk_wire_head(BULK_DATA, 48, id);
	data.len = 100;
	data.slot = 0x123402;
	data.npieces = 1;
	data.piece[0] = (struct bulk_wire_piece){.line = 64, .len = 100};
	rig_say(0, &data, 48);
	for (uint32_t i = 0; i < 4; i++)
		rig_progress(1);
	assert_int_equal(crpc_bulk_chunks(rig.b[1], &chunk, 1), 1);
	assert_ok(rig_consumed(chunk.token));
	next(1, "one slot consumed");
	memset(&end, 0, sizeof(end));
	end.head = bulk_wire_head(BULK_S_END, sizeof(end), id);
	end.status = -ECANCELED;
	rig_say(0, &end, sizeof(end));
	next(1, "verdict of the receiver: canceled");
}

/* A rail breaks at 0, and comes back. */
static void
rail_says(const struct crpc_bulk_conf *conf)
{
	struct bulk_wire_rail_addr addr;
	struct bulk_wire_rail down;

	rig_init(conf, conf, 2, 1, 2);
	rig_rail_fail(0, 1);
	next(0, "rail 1 is down");
	memset(&down, 0, sizeof(down));
	down.head = bulk_wire_head(BULK_RAIL_DOWN, sizeof(down), 0);
	down.rail = 1;
	down.life = 1;
	rig_say(1, &down, sizeof(down));
	next(0, "its new address");
	memset(&addr, 0, sizeof(addr));
	addr.head = bulk_wire_head(BULK_RAIL_ADDR, sizeof(addr), 0);
	addr.rail = 1;
	addr.life = 2;
	crpc_copyrpc_ep_addr(rig.conn[1]->rail[1].ep, addr.addr);
	rig_say(1, &addr, sizeof(addr));
	next(0, "it is connected");
}

/* A sender whose second chunk waits for a slot, then a receiver that reads and waits for S_END. */
static void
progress_says(const struct crpc_bulk_conf *from)
{
	static uint8_t buf[5000];
	struct crpc_bulk_conf conf = *from;
	struct bulk_wire_accept accept;
	struct bulk_wire_offer offer;
	union bulk_wire msg;

	conf.slots = 1;
	conf.confirm_ns = 10000;
	rig_init(&conf, &conf, 1, 1, 3);
	rig_send(0, 1, buf, sizeof(buf), CRPC_BULK_EAGER | CRPC_BULK_READ);
	msg = next(0, "offer of 5,000 bytes, eager or read");
	memset(&accept, 0, sizeof(accept));
	accept.head = bulk_wire_head(BULK_ACCEPT, sizeof(accept), msg.head.id);
	accept.path = CRPC_BULK_EAGER;
	rig_say(1, &accept, sizeof(accept));
	next(0, "its first chunk");
	next(0, "progress at the sender");
	rig_recv(1, 2, buf, CHUNK, CRPC_BULK_READ);
	memset(&offer, 0, sizeof(offer));
	offer.head = bulk_wire_head(BULK_OFFER, sizeof(offer), 9 << 16 | 1);
	offer.tag = 2;
	offer.len = CHUNK;
	offer.flags = CRPC_BULK_READ;
	offer.raddr = (uintptr_t)rig.conn[0]->rx.bounce;
	offer.rkey[0] = rig.conn[0]->rx.mr[0].rkey;
	rig_say(0, &offer, sizeof(offer));
	rig_progress(1);
	next(1, "accept, read");
	next(1, "progress at the receiver");
}

TEST(messages_are_as_written_down)
{
	const struct crpc_bulk_conf conf = {
		.chunk = CHUNK, .slots = 8, .tx_chunks = 6, .rail_retry_ns = 1000};
	uint8_t addr[CRPC_BULK_ADDR_LEN] __attribute__((aligned(8)));
	struct bulk_wire_addr *head = (void *)addr;
	const char *path = CRPC_GOLDEN_DIR "/bulk_v3.txt";

	if (getenv("CRPC_GOLDEN_WRITE") != NULL)
		out = fopen(path, "w");
	else
		in = fopen(path, "r");
	if (out == NULL && in == NULL)
		fail_msg("%s can not be opened", path);
	rig_init(&conf, &conf, 1, 1, 1);
	crpc_bulk_conn_addr(rig.conn[0], addr);
	assert_int_equal(head->bounce, (uintptr_t)rig.conn[0]->rx.bounce);
	head->bounce = 0;
	memset(head->rkey, 0, sizeof(head->rkey));
	golden("address, without that of its rail", addr, sizeof(*head));
	sender_says();
	receiver_says();
	rig_fini();
	rail_says(&conf);
	progress_says(&conf);
	fclose(out != NULL ? out : in);
}

TEST_MAIN(NULL, rig_close)
