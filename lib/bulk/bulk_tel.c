/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry and the dump, from the same tables. crpc_tel.h says how the owner answers,
 * crpc_tel_rpc.h what the commands are: its contexts are objects here, its endpoints connections.
 */
#include "bulk_conn.h"
#include "crpc_tel_rpc.h"

/* What is reported of an object. */
struct tel_stats {
	struct crpc_bulk_stats counters;
	uint64_t memory_bounce, memory_other;
};

struct tel_rail {
	const char *state;
	uint64_t life, bytes_under_way, megabytes_per_s, bytes_of_all_connections;
};

/* One connection. */
struct tel_conn {
	struct crpc_tel_rpc_ep base;
	uint64_t peer, sends_open, receives_open, receives_not_matched;
	uint64_t window_chunks, window_chunks_max, window_bytes, window_bytes_max;
	uint64_t chunks_to_go_again;
	uint64_t peer_slots, peer_slots_free, peer_units, peer_units_free;
	uint64_t slots[SLOT_CONSUMED + 1];
	uint64_t rails, rail_of_messages;
	const char *blocked_by;
	struct tel_rail rail[CRPC_BULK_RAILS_MAX];
};

#define COUNTER(name) CRPC_TEL_COUNTER(struct crpc_bulk_stats, name)
#define FIELD(stage, field)                                                                        \
	{                                                                                          \
#stage "_" #field, offsetof(struct crpc_bulk_stats, stage.field)                   \
	}
#define STAGE(stage) FIELD(stage, n), FIELD(stage, sum_ns), FIELD(stage, max_ns)

static const struct crpc_tel_counter counters[] = {COUNTER(sends), COUNTER(recvs), COUNTER(ended),
	COUNTER(failed), COUNTER(again), COUNTER(chunks_sent), COUNTER(chunks_received),
	COUNTER(bytes_sent), COUNTER(bytes_received), COUNTER(pieces), COUNTER(chunks_dropped),
	COUNTER(messages), COUNTER(early_consumed), COUNTER(conn_errors), COUNTER(rails_broken),
	COUNTER(rails_back), COUNTER(chunks_again), COUNTER(messages_again),
	COUNTER(blocked_window), COUNTER(blocked_slots), COUNTER(blocked_queue),
	COUNTER(occupancy_sum), STAGE(post), STAGE(wire), STAGE(unpack), STAGE(consume),
	CRPC_TEL_COUNTER(struct tel_stats, memory_bounce),
	CRPC_TEL_COUNTER(struct tel_stats, memory_other)};

#define CONN(name) CRPC_TEL_COUNTER(struct tel_conn, name)
#define SLOTS(name, state)                                                                         \
	{                                                                                          \
		name, offsetof(struct tel_conn, slots[state])                                      \
	}

static const struct crpc_tel_counter fields[] = {CONN(peer), CONN(sends_open), CONN(receives_open),
	CONN(receives_not_matched), CONN(window_chunks), CONN(window_chunks_max),
	CONN(window_bytes), CONN(window_bytes_max), CONN(chunks_to_go_again), CONN(peer_slots),
	CONN(peer_slots_free), CONN(peer_units), CONN(peer_units_free),
	SLOTS("slots_free", SLOT_FREE), SLOTS("slots_arrived", SLOT_ARRIVED),
	SLOTS("slots_unpacking", SLOT_UNPACKING), SLOTS("slots_not_consumed", SLOT_UNPACKED),
	SLOTS("slots_to_report", SLOT_CONSUMED), CONN(rails), CONN(rail_of_messages)};

#define RAIL(name) CRPC_TEL_COUNTER(struct tel_rail, name)

static const struct crpc_tel_counter rail_fields[] = {
	RAIL(life), RAIL(bytes_under_way), RAIL(megabytes_per_s), RAIL(bytes_of_all_connections)};

/* What is not a number of the connection. */
static void
conn_put(struct rte_tel_data *d, const void *ep)
{
	const struct tel_conn *conn = ep;
	char key[RTE_TEL_MAX_STRING_LEN];

	rte_tel_data_add_dict_string(d, "blocked_by", conn->blocked_by);
	for (uint32_t i = 0; i < conn->rails; i++) {
		snprintf(key, sizeof(key), "rail%u_state", i);
		rte_tel_data_add_dict_string(d, key, conn->rail[i].state);
		for (uint32_t k = 0; k < CRPC_DIM(rail_fields); k++) {
			snprintf(key, sizeof(key), "rail%u_%s", i, rail_fields[k].name);
			crpc_tel_add_dict_uint(
				d, key, crpc_tel_value(&conn->rail[i], &rail_fields[k]));
		}
	}
}

/* What the next chunk waits for, now. */
static const char *
blocked_by(const struct crpc_bulk_conn *conn)
{
	const struct bulk_reqs *lists[] = {&conn->sends, &conn->recvs};
	const struct bulk_req *req;
	enum bulk_wait wait;

	if (conn->err != 0)
		return "connection";
	if (conn->nclosing != 0)
		return "rail";
	if (conn->tx.unfinished != NULL)
		return "queue";
	for (uint32_t i = 0; i < CRPC_DIM(lists); i++) {
		TAILQ_FOREACH(req, lists[i], link)
		{
			wait = __crpc_bulk_waits_for(req);
			if (wait >= WAIT_SLOTS)
				return wait == WAIT_SLOTS ? "slots" : "window";
		}
	}
	return "nothing";
}

static uint32_t
reqs_count(const struct bulk_reqs *list)
{
	const struct bulk_req *req;
	uint32_t n = 0;

	TAILQ_FOREACH(req, list, link)
	n++;
	return n;
}

static void
rail_fill(struct tel_rail *out, const struct crpc_bulk_conn *conn, uint32_t i)
{
	static const char *const states[] = {"up", "closing", "down", "coming"};
	struct crpc_bulk_rail rail;

	crpc_bulk_rail_get(conn, i, &rail);
	*out = (struct tel_rail){.state = states[rail.state],
		.life = rail.life,
		.bytes_under_way = rail.under_way,
		.megabytes_per_s = (uint64_t)(rail.rate * 1e3),
		.bytes_of_all_connections = conn->b->stats.rail_bytes[i]};
}

static bool
conn_fill(void *to, const void *of, uint32_t i)
{
	const struct crpc_bulk *b = of;
	const struct crpc_bulk_conf *conf = &b->conf;
	const struct crpc_bulk_conn *conn = b->conn[i];
	struct tel_conn *out = to;
	const struct bulk_tx *tx;
	bool connected;

	if (conn == NULL)
		return false;
	tx = &conn->tx;
	connected = conn->err != -ENOTCONN;
	*out = (struct tel_conn){.base = {.id = conn->index, .status = conn->err},
		.peer = conn->user_id,
		.sends_open = reqs_count(&conn->sends),
		.receives_open = reqs_count(&conn->recvs),
		.receives_not_matched = reqs_count(&conn->posted),
		.window_chunks = connected ? conf->tx_chunks - tx->nop_free : 0,
		.window_chunks_max = conf->tx_chunks,
		.window_bytes = tx->bytes,
		.window_bytes_max = conf->tx_bytes,
		.chunks_to_go_again = tx->nagain,
		.peer_slots = tx->nslots,
		.peer_slots_free = tx->nslot_free,
		.peer_units = tx->units.n,
		.peer_units_free = tx->units.n - tx->units.used,
		.rails = conn->nrails,
		.rail_of_messages = conn->lead,
		.blocked_by = blocked_by(conn)};
	for (uint32_t k = 0; k < conf->slots; k++)
		out->slots[conn->rx.slot[k].state]++;
	for (uint32_t k = 0; k < conn->nrails; k++)
		rail_fill(&out->rail[k], conn, k);
	return true;
}

static struct crpc_tel_rpc tel_rpc = {.library = "bulk",
	.endpoint = "connection",
	.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct tel_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.ep_size = sizeof(struct tel_conn),
	.fields = fields,
	.num_fields = CRPC_DIM(fields),
	.ep_fill = conn_fill,
	.ep_more = conn_put};

int
__crpc_bulk_tel_open(struct crpc_bulk *b)
{
	return crpc_tel_rpc_open(&b->tel, b->conf.max_conns);
}

crpc_noinline void
__crpc_bulk_tel_answer(struct crpc_bulk *b)
{
	struct tel_stats stats = {.counters = b->stats};

	crpc_bulk_memory(b, &stats.memory_bounce, &stats.memory_other);
	crpc_tel_rpc_answer(b->tel, b, &stats, b->conns);
}

/* ---- the dump ---- */

static void
reqs_dump(const struct bulk_reqs *list, FILE *out)
{
	static const char *const states[] = {"free", "posted", "active", "transmitting", "done"};
	const struct bulk_req *req;

	TAILQ_FOREACH(req, list, link)
	fprintf(out,
		"  %s 0x%" PRIx64 " tag 0x%" PRIx64 " %s path %u, %" PRIu64 " bytes, chunk %u: "
		"posted %u, landed %u of %u; ops %u, jobs %u%s%s%s, status %d\n",
		req->recv ? "receive" : "send", req->handle, req->tag, states[req->state],
		req->path, req->len, req->chunk, req->next, req->landed, req->nchunks, req->ops,
		req->jobs, req->stopping ? ", stopping" : "", req->end_sent ? ", end sent" : "",
		req->end_got ? ", end received" : "", req->status);
}

/* The states of rails as bulk_rail.h has them: finer than what users see. */
static void
rail_dump(const struct crpc_bulk_conn *conn, uint32_t i, FILE *out)
{
	static const char *const states[] = {
		"up", "breaking", "leaving", "down", "meeting", "joining"};
	const struct bulk_rail *rail = &conn->rail[i];

	fprintf(out,
		"  rail %u: %s%s%s%s, life %u, status %d, %" PRIu64 " bytes under way, "
		"%.3f GB/s, messages %" PRIu64 ", taken %" PRIu64 "\n",
		i, states[rail->state], rail->sent ? ", sent" : "",
		rail->received ? ", received" : "",
		rail->down.life != 0 && rail->down.via == NONE ? ", RAIL_DOWN due" : "", rail->life,
		crpc_copyrpc_ep_status(rail->ep), rail->under_way, rail->rate, rail->nsent,
		rail->ntaken);
}

static void
conn_dump(const struct crpc_bulk_conn *conn, const struct tel_conn *view, FILE *out)
{
	crpc_tel_rpc_dump(view, out);
	fprintf(out, "  blocked by %s%s\n", view->blocked_by, conn->breaking ? ", breaking" : "");
	for (uint32_t i = 0; i < conn->nrails; i++)
		rail_dump(conn, i, out);
	reqs_dump(&conn->sends, out);
	reqs_dump(&conn->posted, out);
	reqs_dump(&conn->recvs, out);
}

int
crpc_bulk_dump(const struct crpc_bulk *b, FILE *out)
{
	struct tel_conn view;

	fprintf(out, "bulk: %u ended requests wait; engine %s, %u jobs\n", b->ndone,
		crpc_unpack_engine(b->engine)->name, crpc_unpack_open_jobs(b->engine));
	for (uint32_t i = 0; i < b->conns; i++)
		if (conn_fill(&view, b, i))
			conn_dump(b->conn[i], &view, out);
	return ferror(out) ? -EIO : 0;
}
