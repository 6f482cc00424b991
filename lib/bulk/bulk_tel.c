/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telemetry: crpc_tel.h says how the owner answers, crpc_tel_rpc.h what the commands are: its
 * contexts are objects here, its endpoints connections.
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
	uint32_t rails;
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
	COUNTER(bytes_sent), COUNTER(bytes_received), COUNTER(bytes_zero_copy), COUNTER(pieces),
	COUNTER(chunks_dropped), COUNTER(messages), COUNTER(early_consumed), COUNTER(conn_errors),
	COUNTER(rails_broken), COUNTER(rails_back), COUNTER(chunks_again), COUNTER(messages_again),
	COUNTER(blocked_window), COUNTER(blocked_slots), COUNTER(blocked_queue),
	COUNTER(occupancy_sum), STAGE(post), STAGE(wire), STAGE(unpack), STAGE(consume),
	CRPC_TEL_COUNTER(struct tel_stats, memory_bounce),
	CRPC_TEL_COUNTER(struct tel_stats, memory_other)};

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
	static const char *const states[] = {
		"up", "closing", "closing", "down", "coming", "coming"};
	const struct bulk_rail *rail = &conn->rail[i];

	*out = (struct tel_rail){.state = conn->err == 0 ? states[rail->state] : "down",
		.life = rail->life,
		.bytes_under_way = rail->under_way,
		.megabytes_per_s = (uint64_t)(rail->rate * 1e3),
		.bytes_of_all_connections = conn->b->stats.rail_bytes[i]};
}

static uint32_t
slots_count(const struct crpc_bulk_conn *conn, enum rx_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < conn->b->conf.slots; i++)
		n += conn->rx.slot[i].state == state;
	return n;
}

static void
conn_report(struct tel_conn *out, const struct crpc_bulk_conn *conn)
{
	const struct bulk_tx *tx = &conn->tx;
	uint32_t max = conn->b->conf.tx_chunks;
	const struct crpc_tel_rpc_field fields[] = {{"peer", conn->user_id},
		{"sends_open", reqs_count(&conn->sends)},
		{"receives_open", reqs_count(&conn->recvs)},
		{"receives_not_matched", reqs_count(&conn->posted)},
		{"window_chunks", conn->err != -ENOTCONN ? max - tx->nop_free : 0},
		{"window_chunks_max", max}, {"chunks_to_go_again", tx->nagain},
		{"peer_slots", tx->nslots}, {"peer_slots_free", tx->nslot_free},
		{"peer_units", tx->units.n}, {"peer_units_free", tx->units.n - tx->units.used},
		{"slots_free", slots_count(conn, SLOT_FREE)},
		{"slots_arrived", slots_count(conn, SLOT_ARRIVED)},
		{"slots_unpacking", slots_count(conn, SLOT_UNPACKING)},
		{"slots_not_consumed", slots_count(conn, SLOT_UNPACKED)},
		{"slots_to_report", slots_count(conn, SLOT_CONSUMED)}, {"rails", conn->nrails},
		{"rail_of_messages", conn->lead}};

	crpc_tel_rpc_fill(&out->base, conn->index, conn->err, fields, CRPC_DIM(fields));
	out->rails = conn->nrails;
	out->blocked_by = blocked_by(conn);
	for (uint32_t k = 0; k < conn->nrails; k++)
		rail_fill(&out->rail[k], conn, k);
}

static bool
conn_fill(void *to, void *of, uint32_t i)
{
	const struct crpc_bulk *b = of;

	if (b->conn[i] != NULL)
		conn_report(to, b->conn[i]);
	return b->conn[i] != NULL;
}

static struct crpc_tel_rpc tel_rpc = {.library = "bulk",
	.endpoint = "connection",
	.contexts = CRPC_TEL_INIT,
	.stats_size = sizeof(struct tel_stats),
	.counters = counters,
	.num_counters = CRPC_DIM(counters),
	.ep_size = sizeof(struct tel_conn),
	.ep_fill = conn_fill,
	.ep_more = conn_put};

int
__crpc_bulk_tel_open(struct crpc_bulk *b)
{
	return crpc_tel_rpc_open(&b->tel, NULL, b->conf.max_conns);
}

crpc_noinline void
__crpc_bulk_tel_answer(struct crpc_bulk *b)
{
	struct tel_stats stats = {.counters = b->stats};

	crpc_bulk_memory(b, &stats.memory_bounce, &stats.memory_other);
	crpc_tel_rpc_answer(b->tel, b, &stats, b->conns);
}
