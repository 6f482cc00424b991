/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream of a hostile peer over TCP: messages that are right but for some fields, raw bytes,
 * and chunks that are too short or too long, cut anywhere, while we send and receive.
 *
 * Whatever it writes: the auditor finds nothing, every request ends once and in time, and its
 * buffer, which is freed then, is not touched any more.
 *
 * Input: a byte of modes, then steps of 16 bytes; one that writes raw bytes is followed by them.
 */
#include <stdlib.h>
#include <string.h>

#include "bulk_check.h"
#include "fuzz.h"
#include "tcp_hand.h"

#define CHUNK (32u << 10)
#define LEN   (2 * CHUNK)
#define STEPS 64u
/* Longer than all deadlines, one after another. */
#define LAST_TURNS 3000u

enum what { RAW, OFFER, DATA, CONSUMED, END, ACCEPT, TAKEN, RECEIVE, SEND, CANCEL, TURN, WHATS };

struct step {
	uint8_t what, slot, flags, count;
	uint32_t len, index, more;
};
_Static_assert(sizeof(struct step) == 16, "an input's");

static struct hand h;
static struct {
	uint64_t handle;
	uint8_t *buf;
} reqs[2 * HAND_REQUESTS];
static uint64_t serial;

static void
start(const struct step *s)
{
	uint32_t i = 0, len = s->len % (LEN + 1);
	int rc;

	while (i < 2 * HAND_REQUESTS && reqs[i].buf != NULL)
		i++;
	if (i == 2 * HAND_REQUESTS)
		return;
	reqs[i].buf = calloc(1, len + 1);
	fuzz_check(reqs[i].buf != NULL);
	if (s->what % WHATS == RECEIVE)
		rc = crpc_bulk_irecv(h.conn, h.now, s->flags % 2, reqs[i].buf, len,
			s->flags & (CRPC_BULK_MANUAL | CRPC_BULK_UP_TO), 0, &reqs[i].handle);
	else
		rc = crpc_bulk_isend(h.conn, h.now, 0, reqs[i].buf, len, s->flags & CRPC_BULK_CRC,
			0, &reqs[i].handle);
	if (rc == 0)
		return;
	free(reqs[i].buf);
	reqs[i].buf = NULL;
}

static void
turns(uint32_t n)
{
	struct crpc_bulk_result result;
	uint8_t heard[4096];

	for (; n != 0; n--) {
		h.now += 20000;
		crpc_bulk_progress(h.b, h.now);
		while (recv(h.fd, heard, sizeof(heard), MSG_DONTWAIT) > 0)
			;
		for (uint32_t i = 0; i < 2 * HAND_REQUESTS; i++) {
			if (reqs[i].buf == NULL ||
				crpc_bulk_test(h.b, reqs[i].handle, &result) != 0)
				continue;
			fuzz_check(result.status <= 0 && result.status >= -4095);
			free(reqs[i].buf);
			reqs[i].buf = NULL;
		}
	}
}

/* A message of this type, with the step's fields. */
static void
say(const struct step *s)
{
	static uint8_t chunk[CHUNK + 64];
	uint32_t what = s->what % WHATS, n = s->count % CRPC_BULK_PIECES_MAX + 1, len, left;
	uint32_t slot = s->slot & 15, of = (s->slot >> 4) % HAND_REQUESTS;
	uint64_t id = (s->flags & 0x80 ? serial : s->more % 8) << 16 | of;
	union bulk_wire m = {0};

	if (what == OFFER) {
		m.offer = (struct bulk_wire_offer){.tag = s->flags % 2,
			.len = s->len % (LEN + 1),
			.flags = (s->flags & 0x17u) | CRPC_BULK_EAGER};
		m.head = bulk_wire_head(BULK_OFFER, sizeof(m.offer), ++serial << 16 | of);
	} else if (what == DATA) {
		left = (uint32_t)crpc_min(s->len % (LEN + 1), CHUNK);
		m.data = (struct bulk_wire_data){
			.index = s->index % 2, .len = left, .slot = slot, .npieces = n};
		m.head = bulk_wire_head(
			BULK_DATA, (uint32_t)offsetof(struct bulk_wire_data, piece) + 8 * n, id);
		for (uint32_t i = 0; i < n; i++) {
			len = i + 1 == n ? left : (uint32_t)crpc_min(left, CHUNK / 8);
			m.data.piece[i] = (struct bulk_wire_piece){
				.line = (slot % HAND_SLOTS * CHUNK + i * (CHUNK / 8)) / 64,
				.len = len};
			left -= len;
		}
	} else if (what == CONSUMED) {
		m.consumed = (struct bulk_wire_consumed){.count = 1, .slot = {s->index}};
		m.head = bulk_wire_head(BULK_CONSUMED, 24, 0);
	} else if (what == ACCEPT) {
		m.accept.path = 1;
		m.head = bulk_wire_head(BULK_ACCEPT, sizeof(m.accept), id);
	} else if (what == END) {
		m.end.status = -(int32_t)(s->len % 4096);
		m.head = bulk_wire_head(
			s->flags & 1 ? BULK_S_END : BULK_R_END, sizeof(m.end), id);
	} else {
		m.head = bulk_wire_head(BULK_TAKEN, sizeof(m.head), s->len % 64);
	}
	hand_write(&h, &m, m.head.len);
	if (what == DATA)
		hand_write(&h, chunk, s->flags & 0x40 ? s->more % sizeof(chunk) : m.data.len);
}

static void
step(const struct step *s, struct fuzz_input *in)
{
	uint32_t what = s->what % WHATS;
	uint8_t raw[64];

	if (what == RAW)
		hand_write(&h, raw, (uint32_t)fuzz_take_some(in, raw, s->len % sizeof(raw) + 1));
	else if (what == RECEIVE || what == SEND)
		start(s);
	else if (what == CANCEL)
		crpc_bulk_cancel(h.b, h.now, reqs[s->slot % (2 * HAND_REQUESTS)].handle);
	else if (what != TURN)
		say(s);
	turns(s->count % 4);
	fuzz_check(bulk_check(h.b, false) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct crpc_bulk_conf conf = {
		.chunk = CHUNK, .tx_chunks = 4, .timeout_ns = 10000000, .confirm_ns = 5000000};
	struct fuzz_input in = {data, size};
	struct step s;
	uint8_t modes;
	uint32_t i;

	if (!fuzz_take(&in, &modes, 1))
		return 0;
	serial = 0;
	fuzz_check(hand_open(&h, &conf, 1));
	fuzz_check((modes & 1 ? hand_meet(&h) : hand_meet_listening(&h)) == 0);
	for (i = 0; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++)
		step(&s, &in);
	for (i = 0; i < LAST_TURNS; i++) {
		if (h.conn->nfree[0] == HAND_REQUESTS && h.conn->nfree[1] == HAND_REQUESTS)
			break;
		turns(1);
	}
	fuzz_check(i < LAST_TURNS && bulk_check(h.b, false) == 0);
	hand_close(&h);
	return 0;
}
