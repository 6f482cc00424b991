/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object, and the turn that drives everything.
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include "bulk_conn.h"
#include "crpc_conf.h"

/* Polls of one context in one turn. */
#define POLLS 4

static int
conf_check(struct crpc_bulk_conf *conf)
{
	const struct crpc_bulk_port *port;
	struct in_addr ip;

	CRPC_CONF_DEFAULT(conf->rendezvous_min, 256u << 10);
	CRPC_CONF_DEFAULT(conf->timeout_ns, UINT64_C(30000000000));
	CRPC_CONF_DEFAULT(conf->confirm_ns, UINT64_C(1000000000));
	CRPC_CONF_DEFAULT(conf->rail_retry_ns, UINT64_C(1000000000));
	if (CRPC_CONF(conf, nports, 1, 1, CRPC_BULK_PORTS_MAX) ||
		CRPC_CONF(conf, max_conns, 16, 1, CRPC_BULK_CONNS_MAX) ||
		CRPC_CONF(conf, requests, 16, 1, CRPC_BULK_REQUESTS_MAX) ||
		CRPC_CONF(conf, chunk, 512u << 10, CRPC_BULK_CHUNK_MIN, CRPC_BULK_CHUNK_MAX) ||
		CRPC_CONF(conf, slots, 16, 1, CRPC_BULK_SLOTS_MAX) ||
		CRPC_CONF(conf, tx_chunks, 12, 1, CRPC_BULK_SLOTS_MAX))
		return -EINVAL;
	if (!crpc_is_pow2(conf->chunk))
		return crpc_fail(-EINVAL, "conf.chunk is %u, expected a power of two", conf->chunk);
	for (uint32_t i = 0; i < conf->nports; i++) {
		port = &conf->port[i];
		if (conf->port[0].tcp[0] == 0 &&
			(port->ctx == NULL || port->dev == NULL || port->tcp[0] != 0))
			return crpc_fail(-EINVAL,
				"conf.port[%u] of %u, expected a context and a device, as port 0",
				i, conf->nports);
		if (conf->port[0].tcp[0] != 0 &&
			(memchr(port->tcp, 0, sizeof(port->tcp)) == NULL ||
				inet_pton(AF_INET, port->tcp, &ip) != 1 ||
				ip.s_addr == INADDR_ANY))
			return crpc_fail(-EINVAL,
				"conf.port[%u].tcp of %u, expected the IPv4 address of an "
				"interface of this host",
				i, conf->nports);
	}
	return 0;
}

struct crpc_bulk *
crpc_bulk_create(const struct crpc_bulk_conf *conf)
{
	struct crpc_bulk *b = calloc(1, sizeof(*b));
	struct crpc_mrcache_conf cache = {0};
	struct crpc_unpack_conf unpack = {0};

	if (b == NULL)
		return NULL;
	b->conf = *conf;
	TAILQ_INIT(&b->done);
	TAILQ_INIT(&b->chunks);
	if (conf_check(&b->conf) != 0) {
		free(b);
		return crpc_null(-EINVAL);
	}
	b->link = conf->port[0].tcp[0] != 0 ? &__crpc_bulk_tcp : &__crpc_bulk_rdma;
	b->ndevs = b->link->has_payload ? 0 : b->conf.nports;
	unpack.max_jobs = CRPC_BULK_SLOTS_MAX;
	b->engine = conf->engine != NULL ? conf->engine : crpc_unpack_create("cpu", &unpack);
	if (b->engine == NULL)
		goto err;
	for (uint32_t i = 0; i < b->ndevs; i++) {
		cache.dev = conf->port[i].dev;
		cache.watch = conf->watch_memory;
		b->cache[i] = conf->port[i].cache != NULL ? conf->port[i].cache
							  : crpc_mrcache_create(&cache);
		if (b->cache[i] == NULL)
			goto err;
	}
	if (__crpc_bulk_tel_open(b) != 0)
		goto err;
	return b;
err:
	crpc_bulk_free(b);
	return crpc_null(-ENOMEM);
}

void
crpc_bulk_free(struct crpc_bulk *b)
{
	if (b == NULL)
		return;
	crpc_tel_free(b->tel);
	for (uint32_t i = 0; i < b->conns; i++)
		crpc_bulk_conn_free(b->conn[i]);
	for (uint32_t i = 0; i < b->ndevs; i++)
		if (b->conf.port[i].cache == NULL)
			crpc_mrcache_free(b->cache[i]);
	if (b->conf.engine == NULL)
		crpc_unpack_free(b->engine);
	free(b);
}

/* ---- completions and messages of the contexts ---- */

uint16_t
crpc_bulk_take_done(struct crpc_bulk *b, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct crpc_bulk_conn *conn;
	uint16_t left = 0;
	uint64_t cookie;
	uint32_t index;

	b->now = now_ns;
	for (uint16_t i = 0; i < n; i++) {
		cookie = done[i].cookie;
		if (cookie >> 48 != CRPC_BULK_COOKIE) {
			done[left++] = done[i];
			continue;
		}
		index = (uint32_t)(cookie >> 38 & 0x3ff);
		conn = b->conn[index];
		if (conn == NULL)
			continue;
		/* an endpoint that broke is found by its status */
		if (done[i].status == 0)
			__crpc_bulk_op_take(conn, (uint32_t)(cookie >> 30 & 0xff),
				(uint32_t)cookie & TURN_MASK);
	}
	return left;
}

/* Messages; those of DATA and CONSUMED have exactly the bytes of their entries. */
static const struct {
	uint32_t min, max; /* bytes */
	bool (*take)(struct crpc_bulk_conn *conn, const union bulk_wire *msg);
} messages[] = {
#define FIXED(type) sizeof(struct type), sizeof(struct type)
	[BULK_OFFER] = {FIXED(bulk_wire_offer), __crpc_bulk_offer_take},
	[BULK_ACCEPT] = {FIXED(bulk_wire_accept), __crpc_bulk_accept_take},
	[BULK_DATA] = {offsetof(struct bulk_wire_data, piece) + 1, sizeof(struct bulk_wire_data),
		__crpc_bulk_data_take},
	[BULK_CONSUMED] = {offsetof(struct bulk_wire_consumed, slot) + 1,
		sizeof(struct bulk_wire_consumed), __crpc_bulk_consumed_take},
	[BULK_S_END] = {FIXED(bulk_wire_end), __crpc_bulk_s_end_take},
	[BULK_R_END] = {FIXED(bulk_wire_end), __crpc_bulk_r_end_take},
	[BULK_RAIL_DOWN] = {FIXED(bulk_wire_rail), __crpc_bulk_rail_take},
	[BULK_RAIL_ADDR] = {FIXED(bulk_wire_rail_addr), __crpc_bulk_rail_take},
	[BULK_RAIL_READY] = {FIXED(bulk_wire_rail), __crpc_bulk_rail_take},
	[BULK_S_MOVES] = {FIXED(bulk_wire_head), __crpc_bulk_moves_take},
	[BULK_R_MOVES] = {FIXED(bulk_wire_head), __crpc_bulk_moves_take},
};

/* Copied from where the peer can write. */
void
__crpc_bulk_msg_take(
	struct crpc_bulk_conn *conn, struct bulk_rail *rail, const void *data, uint32_t len)
{
	union bulk_wire msg;
	uint8_t type;

	if (!rail_takes(rail))
		return;
	rail->ntaken++;
	memset(&msg, 0, sizeof(msg));
	memcpy(&msg, data, crpc_min(len, sizeof(msg)));
	type = msg.head.type;
	if (len < sizeof(msg.head) || len > sizeof(msg) || msg.head.len != len)
		__crpc_bulk_proto(conn, "the length of a message", 0, len, msg.head.len);
	else if (msg.head.magic != BULK_WIRE_MAGIC || msg.head.version != BULK_WIRE_VERSION)
		__crpc_bulk_proto(conn, "magic and version", msg.head.id,
			(uint32_t)msg.head.magic << 8 | msg.head.version,
			BULK_WIRE_MAGIC << 8 | BULK_WIRE_VERSION);
	else if (type == 0 || type >= CRPC_DIM(messages) || len < messages[type].min ||
		len > messages[type].max)
		__crpc_bulk_proto(conn, "the type of a message, or its length", msg.head.id,
			(uint64_t)type << 32 | len, 0);
	else
		messages[type].take(conn, &msg);
}

uint16_t
crpc_bulk_take_req(
	struct crpc_bulk *b, uint32_t port, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	struct crpc_copyrpc *ctx = b->conf.port[port].ctx;
	struct crpc_bulk_conn *conn;
	uint16_t left = 0;

	b->now = now_ns;
	for (uint16_t i = 0; i < n; i++) {
		if (req[i].peer >> 16 != CRPC_BULK_USER_ID) {
			req[left++] = req[i];
			continue;
		}
		conn = b->conn[req[i].peer >> 3 & 0x3ff];
		if (conn != NULL && conn->err == 0)
			__crpc_bulk_msg_take(
				conn, &conn->rail[req[i].peer & 7], req[i].data, req[i].len);
		/* a call, which bulk has none of, completes without data at its caller */
		crpc_copyrpc_release(ctx, now_ns, req[i].token);
	}
	return left;
}

static void
port_poll(struct crpc_bulk *b, uint32_t port)
{
	struct crpc_copyrpc *ctx = b->conf.port[port].ctx;
	struct crpc_done done[CRPC_BURST_MAX];
	struct crpc_req req[CRPC_BURST_MAX];
	uint16_t n, m, k;

	for (uint16_t i = 0; i < POLLS; i++) {
		n = crpc_copyrpc_poll(ctx, b->now, done, CRPC_BURST_MAX);
		crpc_bulk_take_done(b, b->now, done, n);
		m = crpc_copyrpc_recv(ctx, b->now, req, CRPC_BURST_MAX);
		k = crpc_bulk_take_req(b, port, b->now, req, m);
		while (k-- != 0)
			crpc_copyrpc_release(ctx, b->now, req[k].token);
		if (n < CRPC_BURST_MAX && m < CRPC_BURST_MAX)
			break;
	}
}

static void
conn_turn(struct crpc_bulk_conn *conn)
{
	if (conn->err == 0)
		__crpc_bulk_rails_turn(conn);
	if (conn->breaking) {
		__crpc_bulk_conn_break_on(conn);
		return;
	}
	if (conn->err != 0)
		return;
	__crpc_bulk_unpack_turn(conn);
	__crpc_bulk_recvs_turn(conn);
	__crpc_bulk_sends_turn(conn);
	__crpc_bulk_chunks_post(conn);
	__crpc_bulk_sweep(conn);
	if (conn->b->link->has_payload)
		__crpc_bulk_tcp_turn(conn);
}

uint32_t
crpc_bulk_progress(struct crpc_bulk *b, uint64_t now_ns)
{
	b->now = now_ns;
	for (uint32_t i = 0; i < b->ndevs && !b->conf.shared; i++)
		port_poll(b, i);
	for (uint32_t i = 0; i < b->ndevs; i++)
		crpc_mrcache_progress(b->cache[i]);
	for (uint32_t i = 0; i < b->conns; i++)
		if (b->conn[i] != NULL)
			conn_turn(b->conn[i]);
	crpc_unpack_kick(b->engine);
	if (b->stopping && crpc_unpack_stop(b->engine) == 0) {
		b->stopping = false;
		crpc_err("the engine %s did not come to an end in %llu ns: its jobs failed",
			crpc_unpack_engine(b->engine)->name,
			(unsigned long long)b->conf.confirm_ns);
		__crpc_bulk_jobs_fail(b);
	}
	for (uint32_t i = 0; i < b->ndevs; i++)
		crpc_copyrpc_flush(b->conf.port[i].ctx, now_ns);
	if (crpc_unlikely(crpc_tel_asked(b->tel)))
		__crpc_bulk_tel_answer(b);
	return b->ndone;
}

/* ---- looking at it ---- */

const struct crpc_bulk_stats *
crpc_bulk_stats(const struct crpc_bulk *b)
{
	return &b->stats;
}

void
crpc_bulk_stats_reset(struct crpc_bulk *b)
{
	memset(&b->stats, 0, sizeof(b->stats));
}

void
crpc_bulk_memory(const struct crpc_bulk *b, uint64_t *bounce, uint64_t *other)
{
	const struct crpc_bulk_conn *conn;

	*bounce = 0;
	*other = sizeof(*b);
	for (uint32_t i = 0; i < b->conns; i++) {
		conn = b->conn[i];
		if (conn == NULL)
			continue;
		*bounce += (uint64_t)b->conf.slots * b->conf.chunk;
		*other += conn->bytes;
	}
}
