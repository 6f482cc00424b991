/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bulk object whose peer is hostile: its address, and control messages in any order and with any
 * field, while we send, receive, cancel and consume, and rails break and come back. The peer is
 * played by hand over endpoints of lib/copyrpc, which carry its messages as they would come.
 *
 * Whatever it says: the auditor finds nothing, every request ends once and in time, and its buffer,
 * which is freed then, is not touched any more.
 *
 * Input: a byte of modes, the address's head if it is the input's, then steps of 16 bytes; one that
 * speaks is followed by the message. A step says which fields of it are set right.
 */
#include <string.h>

#include "cmocka.h"

#include "bulk_rig.h"

#define CHUNK    4096u
#define SLOTS    4u
#define REQUESTS 4u
#define LEN      (3 * CHUNK)
#define STEPS    64u
#define STEP_NS  20000u
/* Longer than all deadlines, one after another. */
#define LAST_TURNS 1200u
#define KEPT       4u
#define RAILS      2u

enum mode {
	TWO_RAILS = 1,
	OWN_ADDRESS = 2, /* The peer's sizes are the input's. */
	LATE_ENGINE = 4,
	HOLDING_ENGINE = 8,
};

enum what {
	SAY,
	SAY_TRUE, /* All fields but those of the transfer's choice. */
	RECEIVE,
	SEND,
	TURN,
	TURN_DEAF, /* The peer does not listen. */
	CANCEL,
	CONSUME,
	BREAK,  /* A rail, */
	REJOIN, /* and the peer's endpoint of it is made again. */
	WHATS,
};

enum how {
	TRUE_HEAD = 1, /* Magic, version, length. */
	TRUE_ID = 2,
	TRUE_PLACE = 4, /* Slots, pieces, lengths, memory, lives. */
	AS_CALL = 8,    /* A call, which bulk has none of. */
	TRUE_ALL = TRUE_HEAD | TRUE_ID | TRUE_PLACE,
};

struct step {
	uint8_t what, how, type, rail, slot, tag, flags, count;
	uint32_t len, index;
};
_Static_assert(sizeof(struct step) == 16, "an input's");

/* What the peer has, and what it heard. */
struct peer {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep[RAILS];
	struct crpc_rdma_mr mr;
	uint8_t *memory;
	uint64_t serial;
	uint64_t offered[KEPT], heard[KEPT], offered_len[KEPT];
	uint32_t noffered, nheard, nslots;
	uint32_t slot[KEPT];
	uint8_t addr[RAILS][CRPC_COPYRPC_ADDR_LEN];
	bool has_addr[RAILS];
};

struct open {
	uint64_t handle;
	uint8_t *buf;
};

static struct crpc_paper w;
static struct crpc_rdma *dev;
static struct crpc_copyrpc *ctx;
static struct crpc_bulk *b;
static struct crpc_bulk_conn *conn;
static struct crpc_unpack *engine;
static struct peer p;
static struct open open_reqs[2 * REQUESTS];
static uint32_t rails;

/* ---- begin and end ---- */

static void
peer_address(const uint8_t *head, uint8_t addr[CRPC_BULK_ADDR_LEN])
{
	struct bulk_wire_addr a = {.nports = 1, .requests = REQUESTS, .chunk = CHUNK,
		.slots = SLOTS};

	if (head != NULL)
		memcpy(&a, head, sizeof(a));
	a.magic = BULK_WIRE_ADDR_MAGIC;
	a.version = BULK_WIRE_VERSION;
	a.rails = (uint8_t)rails;
	if (head == NULL || a.bounce % 2 == 0) {
		a.bounce = (uintptr_t)p.memory;
		a.rkey[0] = a.rkey[1] = p.mr.rkey;
	}
	memset(addr, 0, CRPC_BULK_ADDR_LEN);
	memcpy(addr, &a, sizeof(a));
	for (uint32_t i = 0; i < rails; i++)
		crpc_copyrpc_ep_addr(p.ep[i], addr + sizeof(a) + i * CRPC_COPYRPC_ADDR_LEN);
}

/* False: the address was refused. */
static bool
meet(const uint8_t *head)
{
	uint8_t addr[CRPC_BULK_ADDR_LEN], ours[CRPC_BULK_ADDR_LEN];
	int rc;

	peer_address(head, addr);
	crpc_bulk_conn_addr(conn, ours);
	for (uint32_t i = 0; i < rails; i++)
		fuzz_check(crpc_copyrpc_ep_connect(p.ep[i], ours + sizeof(struct bulk_wire_addr) +
						   i * CRPC_COPYRPC_ADDR_LEN) == 0);
	rc = crpc_bulk_conn_connect(conn, addr);
	fuzz_check(rc == 0 || (head != NULL && rc == -EPROTO));
	return rc == 0;
}

static void
begin(uint8_t modes)
{
	struct crpc_copyrpc_conf net = {.ring_size = 8192, .max_eps = RAILS, .sq_depth = 16,
		.rq_depth = 32};
	struct crpc_bulk_conf conf = {.chunk = CHUNK, .slots = SLOTS, .requests = REQUESTS,
		.tx_chunks = 3, .rendezvous_min = CHUNK, .timeout_ns = 2000000,
		.confirm_ns = 1000000, .rail_retry_ns = 100000};
	struct crpc_unpack_conf unpack = {.max_jobs = SLOTS};

	memset(&w, 0, sizeof(w));
	memset(&p, 0, sizeof(p));
	memset(open_reqs, 0, sizeof(open_reqs));
	w.rng = 11;
	w.now_ns = 1000000;
	rails = modes & TWO_RAILS ? 2 : 1;
	net.dev = dev = crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 256});
	ctx = crpc_copyrpc_create(&net);
	net.dev = p.dev = crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 256});
	p.ctx = crpc_copyrpc_create(&net);
	p.memory = calloc(SLOTS, CHUNK);
	fuzz_check(p.memory != NULL &&
		crpc_rdma_mr_reg(p.dev, p.memory, SLOTS * CHUNK, &p.mr) == 0);
	for (uint32_t i = 0; i < rails; i++)
		fuzz_check((p.ep[i] = crpc_copyrpc_ep_create(p.ctx, i)) != NULL);
	engine = NULL;
	if (modes & (LATE_ENGINE | HOLDING_ENGINE))
		engine = crpc_unpack_create("test", &unpack);
	tool.mode = modes & HOLDING_ENGINE ? TOOL_HOLDS : TOOL_GOES;
	conf.engine = engine;
	conf.port[0].ctx = ctx;
	conf.port[0].dev = dev;
	b = crpc_bulk_create(&conf);
	fuzz_check(b != NULL);
	conn = crpc_bulk_conn_create(b, rails, 7);
	fuzz_check(conn != NULL);
}

static void
finish(void)
{
	crpc_bulk_free(b);
	crpc_unpack_free(engine);
	crpc_copyrpc_free(ctx);
	crpc_copyrpc_free(p.ctx);
	crpc_rdma_mr_dereg(p.dev, &p.mr);
	crpc_rdma_close(dev);
	crpc_rdma_close(p.dev);
	free(p.memory);
	for (uint32_t i = 0; i < 2 * REQUESTS; i++)
		free(open_reqs[i].buf);
}

/* ---- what the peer hears and says ---- */

static void
hear(const struct crpc_req *req)
{
	union bulk_wire msg = {0};

	fuzz_check(req->len >= sizeof(msg.head) && req->len <= sizeof(msg));
	memcpy(&msg, req->data, req->len);
	fuzz_check(msg.head.magic == BULK_WIRE_MAGIC && msg.head.len == req->len);
	if (msg.head.type == BULK_OFFER)
		p.heard[p.nheard++ % KEPT] = msg.head.id;
	if (msg.head.type == BULK_DATA)
		p.slot[p.nslots++ % KEPT] = msg.data.slot;
	if (msg.head.type == BULK_RAIL_ADDR) {
		fuzz_check(msg.rail_addr.rail < rails);
		memcpy(p.addr[msg.rail_addr.rail], msg.rail_addr.addr, CRPC_COPYRPC_ADDR_LEN);
		p.has_addr[msg.rail_addr.rail] = true;
	}
}

static void
listen(void)
{
	struct crpc_done done[16];
	struct crpc_req req[16];
	uint16_t n;

	crpc_copyrpc_poll(p.ctx, w.now_ns, done, 16);
	n = crpc_copyrpc_recv(p.ctx, w.now_ns, req, 16);
	while (n-- != 0) {
		hear(&req[n]);
		crpc_copyrpc_release(p.ctx, w.now_ns, req[n].token);
	}
	crpc_copyrpc_flush(p.ctx, w.now_ns);
}

static uint32_t
true_len(const struct step *s, union bulk_wire *msg)
{
	switch (msg->head.type) {
	case BULK_OFFER:
		return sizeof(msg->offer);
	case BULK_ACCEPT:
		return sizeof(msg->accept);
	case BULK_DATA:
		msg->data.npieces = s->count % CRPC_BULK_PIECES_MAX + 1;
		return (uint32_t)offsetof(struct bulk_wire_data, piece) + 8 * msg->data.npieces;
	case BULK_CONSUMED:
		msg->consumed.count = s->count % BULK_CONSUMED_MAX + 1;
		return (uint32_t)offsetof(struct bulk_wire_consumed, slot) +
		       4 * msg->consumed.count;
	case BULK_RAIL_ADDR:
		return sizeof(msg->rail_addr);
	case BULK_S_END:
	case BULK_R_END:
		return sizeof(msg->end);
	case BULK_S_MOVES:
	case BULK_R_MOVES:
		return sizeof(msg->head);
	default:
		return sizeof(msg->rail);
	}
}

static uint64_t
true_id(const struct step *s, const union bulk_wire *msg)
{
	if (msg->head.type == BULK_OFFER)
		return ++p.serial << 16 | s->slot % REQUESTS;
	if (msg->head.type == BULK_DATA || msg->head.type == BULK_S_END ||
			msg->head.type == BULK_S_MOVES)
		return p.offered[s->slot % KEPT];
	return p.heard[s->slot % KEPT];
}

/* A chunk of an offer, in a place of bounce memory of its own, cut as the step says. */
static void
true_data(const struct step *s, struct bulk_wire_data *data)
{
	uint64_t len = p.offered_len[s->slot % KEPT], off = (uint64_t)(s->index % 4) * CHUNK;
	uint32_t slot = s->len % SLOTS, unit = CHUNK / CRPC_BULK_PIECES_MAX, i, part, left;

	left = off < len ? (uint32_t)crpc_min(len - off, CHUNK) : 0;
	data->index = s->index % 4;
	data->len = left;
	data->slot = (s->index & ~0xffu) | slot;
	for (i = 0; i < crpc_min(data->npieces, CRPC_BULK_PIECES_MAX); i++) {
		part = i + 1 == data->npieces ? left : (uint32_t)crpc_min(left, unit);
		data->piece[i].line = (slot * CHUNK + i * unit) / 64;
		data->piece[i].len = part;
		left -= part;
	}
}

static void
true_place(const struct step *s, union bulk_wire *msg)
{
	uint32_t rail = s->rail % rails, i;

	switch (msg->head.type) {
	case BULK_OFFER:
		msg->offer.tag = s->tag % 4;
		msg->offer.len = s->len % (LEN + 1);
		msg->offer.flags = s->flags & (PATHS | CRPC_BULK_CRC);
		msg->offer.raddr = (uintptr_t)p.memory;
		msg->offer.rkey[0] = p.mr.rkey;
		break;
	case BULK_ACCEPT:
		msg->accept.path = 1u << s->flags % 3;
		msg->accept.raddr = (uintptr_t)p.memory;
		msg->accept.rkey[0] = p.mr.rkey;
		break;
	case BULK_DATA:
		true_data(s, &msg->data);
		break;
	case BULK_CONSUMED:
		for (i = 0; i < msg->consumed.count % (BULK_CONSUMED_MAX + 1); i++)
			msg->consumed.slot[i] = p.slot[(s->slot + i) % KEPT];
		break;
	case BULK_S_END:
	case BULK_R_END:
		msg->end.status = -(int32_t)(s->len % 4096);
		break;
	case BULK_S_MOVES:
	case BULK_R_MOVES:
		break;
	default:
		msg->rail.rail = rail;
		msg->rail.life = conn->rail[rail].life + s->count % 2;
		if (msg->head.type == BULK_RAIL_ADDR)
			crpc_copyrpc_ep_addr(p.ep[rail], msg->rail_addr.addr);
		else
			msg->rail.taken = conn->rail[rail].nknown + s->tag % 4;
	}
}

static void
say(const struct step *s, const uint8_t *data, size_t size)
{
	uint8_t how = s->what % WHATS == SAY_TRUE ? s->how | TRUE_ALL : s->how;
	struct crpc_copyrpc_ep *ep = p.ep[s->rail / 2 % rails];
	uint32_t len = (uint32_t)size;
	union {
		union bulk_wire msg;
		uint8_t bytes[sizeof(union bulk_wire) + 16];
	} m = {0};

	if (size != 0)
		memcpy(m.bytes, data, size);
	if (how & TRUE_HEAD) {
		m.msg.head = bulk_wire_head(s->type % BULK_R_MOVES + 1, 0, m.msg.head.id);
		len = m.msg.head.len = true_len(s, &m.msg);
	}
	if (how & TRUE_ID)
		m.msg.head.id = true_id(s, &m.msg);
	if (how & TRUE_PLACE)
		true_place(s, &m.msg);
	if (m.msg.head.type == BULK_OFFER) {
		p.offered_len[p.noffered % KEPT] = m.msg.offer.len;
		p.offered[p.noffered++ % KEPT] = m.msg.head.id;
	}
	if (how & AS_CALL)
		crpc_copyrpc_call(ep, w.now_ns, &m, len, 16, 1);
	else
		crpc_copyrpc_notify(ep, w.now_ns, &m, len);
	crpc_copyrpc_flush(p.ctx, w.now_ns);
	crpc_paper_run(&w);
}

static void
rejoin(uint32_t rail)
{
	crpc_copyrpc_ep_shutdown(p.ep[rail]);
	if (crpc_copyrpc_ep_reset(p.ep[rail]) == 0 && p.has_addr[rail])
		crpc_copyrpc_ep_connect(p.ep[rail], p.addr[rail]);
}

/* ---- what we do ---- */

static struct open *
open_find(uint64_t handle)
{
	for (uint32_t i = 0; i < 2 * REQUESTS; i++)
		if (open_reqs[i].handle == handle)
			return &open_reqs[i];
	return NULL;
}

static void
start(const struct step *s, bool recv)
{
	static const uint32_t wants[] = {0, CRPC_BULK_MANUAL, CRPC_BULK_UNREGISTERED,
		CRPC_BULK_CONVERT(CRPC_UNPACK_BF16_TO_F32)};
	uint32_t len = s->len % (LEN + 1), flags = s->flags & PATHS, op;
	struct open *o = open_find(0);
	int rc;

	if (o == NULL)
		return;
	op = recv && engine == NULL && (len % 2) == 0 ? wants[s->count % 4] : wants[s->count % 3];
	o->buf = calloc(1, 2 * (size_t)len + 1);
	fuzz_check(o->buf != NULL);
	if (recv)
		rc = crpc_bulk_irecv(conn, w.now_ns, s->tag % 4, o->buf, len,
			flags | op | (s->flags & CRPC_BULK_UP_TO), 0, &o->handle);
	else
		rc = crpc_bulk_isend(conn, w.now_ns, s->tag % 4, o->buf, len,
			flags | (s->flags & CRPC_BULK_CRC), 0, &o->handle);
	if (rc == 0)
		return;
	free(o->buf);
	*o = (struct open){0};
}

static void
ends_take(void)
{
	struct crpc_bulk_result result[4];
	uint16_t n;

	while ((n = crpc_bulk_test_burst(b, result, 4)) != 0) {
		while (n-- != 0) {
			struct open *o = open_find(result[n].req);

			fuzz_check(o != NULL && result[n].req != 0);
			fuzz_check(result[n].status <= 0 && result[n].status >= -4095);
			free(o->buf);
			*o = (struct open){0};
		}
	}
}

static void
turn(bool deaf)
{
	w.now_ns += STEP_NS;
	crpc_paper_run(&w);
	crpc_bulk_progress(b, w.now_ns);
	crpc_paper_run(&w);
	ends_take();
	if (!deaf)
		listen();
}

static void
consume(void)
{
	struct crpc_bulk_chunk chunk[4];
	uint16_t n = crpc_bulk_chunks(b, chunk, 4);

	while (n-- != 0) {
		for (uint32_t i = 0; i < chunk[n].npieces; i++)
			fuzz_check(((const uint8_t *)chunk[n].piece[i].data)
					   [chunk[n].piece[i].len - 1] == 0);
		crpc_bulk_consumed(b, w.now_ns, chunk[n].token);
	}
}

static void
step(const struct step *s, struct fuzz_input *in)
{
	uint8_t said[sizeof(union bulk_wire) + 16];
	size_t size;

	switch (s->what % WHATS) {
	case SAY:
		size = fuzz_take_some(in, said, s->len % sizeof(said) + 1);
		if (size != 0)
			say(s, said, size);
		break;
	case SAY_TRUE:
		say(s, NULL, 0);
		break;
	case RECEIVE:
	case SEND:
		start(s, s->what % WHATS == RECEIVE);
		break;
	case CANCEL:
		crpc_bulk_cancel(b, w.now_ns, open_reqs[s->slot % (2 * REQUESTS)].handle);
		break;
	case CONSUME:
		consume();
		break;
	case BREAK:
		(void)crpc_paper_fail(dev, s->rail % rails, -ECONNRESET);
		break;
	case REJOIN:
		rejoin(s->rail % rails);
		break;
	default:
		turn(s->what % WHATS == TURN_DEAF);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool known;
	struct fuzz_input in = {data, size};
	const uint8_t *head = NULL;
	struct step s;
	uint8_t modes;
	uint32_t i;

	if (!known)
		fuzz_check(crpc_unpack_register(&tool_ops) == 0);
	known = true;
	if (!fuzz_take(&in, &modes, 1))
		return 0;
	begin(modes);
	if ((modes & OWN_ADDRESS) && in.left >= sizeof(struct bulk_wire_addr)) {
		head = in.p;
		fuzz_skip(&in, sizeof(struct bulk_wire_addr));
	}
	for (i = meet(head) ? 0 : STEPS; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++) {
		step(&s, &in);
		if (s.count % 4 != 0)
			turn(false);
		fuzz_check(bulk_check(b, false) == 0);
	}
	for (i = 0; i < LAST_TURNS && (conn->nfree[0] != REQUESTS ||
					      conn->nfree[1] != REQUESTS); i++)
		turn(false);
	fuzz_check(i < LAST_TURNS && bulk_check(b, false) == 0);
	for (i = 0; i < 2 * REQUESTS; i++)
		fuzz_check(open_reqs[i].handle == 0);
	finish();
	return 0;
}
