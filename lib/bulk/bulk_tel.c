/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: crpc_tel.h says how the owner answers. */
#include <stdlib.h>

#include "bulk_conn.h"
#include "crpc_tel_put.h"

/* What the owner answers about one connection: numbers, one word and the rails. */
struct tel_conn {
	bool found;
	int32_t status;
	uint32_t nrails;
	const char *blocked;
	struct tel_number {
		const char *name;
		uint64_t value;
	} number[24]; /* the last ones are empty */
	struct crpc_bulk_rail rail[CRPC_BULK_RAILS_MAX];
};

/* One object's mailbox; a question wants the connection of this index. */
struct bulk_tel {
	struct crpc_tel_box box;
	struct crpc_bulk_stats stats;
	uint64_t bounce, other;
	struct tel_conn conn;
	uint32_t nconns;
	uint16_t conns[CRPC_BULK_CONNS_MAX];
};

static struct crpc_tel objects = CRPC_TEL_INIT;

int
__crpc_bulk_tel_open(struct crpc_bulk *b)
{
	struct bulk_tel *tel = calloc(1, sizeof(*tel));

	if (tel == NULL)
		return -ENOMEM;
	b->tel = &tel->box;
	crpc_tel_open(&objects, b->tel);
	return 0;
}

void
__crpc_bulk_tel_close(struct crpc_bulk *b)
{
	if (b->tel == NULL)
		return;
	crpc_tel_close(&objects, b->tel);
	free((struct bulk_tel *)b->tel);
}

/* ---- the owner ---- */

/* What the next chunk waits for, now. */
static const char *
blocked_by(const struct crpc_bulk_conn *conn)
{
	const struct bulk_tx *tx = &conn->tx;
	const struct bulk_req *req;

	if (conn->err != 0)
		return "connection";
	if (conn->nclosing != 0)
		return "rail";
	if (conn->tx.unfinished != NULL)
		return "queue";
	if (conn->tx.nop_free == 0)
		return "window";
	TAILQ_FOREACH(req, &conn->sends, link)
	{
		if (req->path == CRPC_BULK_EAGER && req->next != req->nchunks && !req->stopping)
			return tx->nslot_free == 0 || tx->units.used == tx->units.n ? "slots"
										    : "nothing";
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
conn_put(const struct crpc_bulk_conn *conn, struct tel_conn *out)
{
	const struct crpc_bulk_conf *conf = &conn->b->conf;
	const struct bulk_tx *tx = &conn->tx;
	bool connected = conn->err != -ENOTCONN;
	uint32_t i, rx[SLOT_CONSUMED + 1] = {0};

	for (i = 0; i < conf->slots; i++)
		rx[conn->rx.slot[i].state]++;
	*out = (struct tel_conn){.found = true,
		.status = conn->err,
		.nrails = conn->nrails,
		.blocked = blocked_by(conn),
		.number = {{"peer", conn->user_id}, {"sends_open", reqs_count(&conn->sends)},
			{"receives_open", reqs_count(&conn->recvs)},
			{"receives_not_matched", reqs_count(&conn->posted)},
			{"window_chunks", connected ? conf->tx_chunks - tx->nop_free : 0},
			{"window_chunks_max", conf->tx_chunks}, {"window_bytes", tx->bytes},
			{"window_bytes_max", conf->tx_bytes}, {"chunks_to_go_again", tx->nagain},
			{"peer_slots", tx->nslots}, {"peer_slots_free", tx->nslot_free},
			{"peer_units", tx->units.n},
			{"peer_units_free", tx->units.n - tx->units.used},
			{"slots_free", rx[SLOT_FREE] + rx[SLOT_CONSUMED]},
			{"slots_arrived", rx[SLOT_ARRIVED]},
			{"slots_unpacking", rx[SLOT_UNPACKING]},
			{"slots_not_consumed", rx[SLOT_UNPACKED]},
			{"slots_to_be_told", rx[SLOT_CONSUMED]}, {"rails", conn->nrails},
			{"rail_of_messages", conn->lead}}};
	for (i = 0; i < conn->nrails; i++)
		crpc_bulk_rail_get(conn, i, &out->rail[i]);
}

crpc_noinline void
__crpc_bulk_tel_answer(struct crpc_bulk *b)
{
	struct bulk_tel *tel = (struct bulk_tel *)b->tel;
	uint32_t i;

	if (!crpc_tel_begin(b->tel))
		return;
	tel->stats = b->stats;
	crpc_bulk_memory(b, &tel->bounce, &tel->other);
	tel->nconns = 0;
	tel->conn.found = false;
	for (i = 0; i < b->conns; i++) {
		if (b->conn[i] == NULL)
			continue;
		tel->conns[tel->nconns++] = (uint16_t)i;
		if (i == tel->box.want)
			conn_put(b->conn[i], &tel->conn);
	}
	crpc_tel_end(b->tel);
}

/* ---- telemetry's thread ---- */

/*
 * The answer of the object that the parameters name; *rest is behind the first comma. NULL: no such
 * object, or its owner does not call progress().
 */
static struct bulk_tel *
ask(const char *params, const char **rest, bool conn)
{
	uint32_t id, want = UINT32_MAX;

	*rest = params;
	if (!crpc_tel_number(rest, 10, &id))
		return NULL;
	if (conn && (!crpc_tel_number(rest, 10, &want) || *rest != NULL))
		return NULL;
	return (struct bulk_tel *)crpc_tel_ask(&objects, id, want);
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	crpc_tel_put_list(&objects, d);
	return 0;
}

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
	COUNTER(occupancy_sum), STAGE(post), STAGE(wire), STAGE(unpack), STAGE(consume)};

static int
tel_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct bulk_tel *tel;
	const char *rest;

	tel = ask(params, &rest, false);
	if (tel == NULL)
		return -EINVAL;
	rte_tel_data_start_dict(d);
	crpc_tel_put_counters(d, counters, CRPC_DIM(counters), &tel->stats);
	crpc_tel_add_dict_uint(d, "memory_bounce", tel->bounce);
	crpc_tel_add_dict_uint(d, "memory_other", tel->other);
	crpc_tel_done(&objects);
	return 0;
}

static int
tel_connections(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct bulk_tel *tel;
	const char *rest;
	uint32_t i;

	tel = ask(params, &rest, false);
	if (tel == NULL)
		return -EINVAL;
	rte_tel_data_start_array(d, RTE_TEL_INT_VAL);
	for (i = 0; i < tel->nconns; i++)
		rte_tel_data_add_array_int(d, tel->conns[i]);
	crpc_tel_done(&objects);
	return 0;
}

static void
rail_put(struct rte_tel_data *d, uint32_t i, const struct crpc_bulk_rail *rail, uint64_t bytes)
{
	static const char *const states[] = {"up", "closing", "down", "coming"};
	const struct tel_number numbers[] = {{"life", rail->life},
		{"bytes_under_way", rail->under_way},
		{"megabytes_per_s", (uint64_t)(rail->rate * 1e3)},
		{"bytes_of_all_connections", bytes}};
	char key[RTE_TEL_MAX_STRING_LEN];
	uint32_t k;

	snprintf(key, sizeof(key), "rail%u_state", i);
	rte_tel_data_add_dict_string(d, key, states[rail->state]);
	for (k = 0; k < CRPC_DIM(numbers); k++) {
		snprintf(key, sizeof(key), "rail%u_%s", i, numbers[k].name);
		crpc_tel_add_dict_uint(d, key, numbers[k].value);
	}
}

static void
connection_put(struct rte_tel_data *d, const struct bulk_tel *tel)
{
	const struct tel_conn *conn = &tel->conn;
	const struct tel_number *number;
	uint32_t i;

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "status", conn->status);
	for (number = conn->number; number->name != NULL; number++)
		crpc_tel_add_dict_uint(d, number->name, number->value);
	rte_tel_data_add_dict_string(d, "blocked_by", conn->blocked);
	for (i = 0; i < conn->nrails; i++)
		rail_put(d, i, &conn->rail[i], tel->stats.rail_bytes[i]);
}

static int
tel_connection(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct bulk_tel *tel;
	const char *rest;
	bool found;

	tel = ask(params, &rest, true);
	if (tel == NULL)
		return -EINVAL;
	found = tel->conn.found;
	if (found)
		connection_put(d, tel);
	crpc_tel_done(&objects);
	return found ? 0 : -EINVAL;
}

__attribute__((constructor)) static void
tel_register(void)
{
	rte_telemetry_register_cmd(
		"/crpc/bulk/list", tel_list, "Numbers of the objects. No parameters");
	rte_telemetry_register_cmd("/crpc/bulk/stats", tel_stats,
		"Counters, blocked turns, times of stages, memory. Parameters: object");
	rte_telemetry_register_cmd("/crpc/bulk/connections", tel_connections,
		"Numbers of the connections. Parameters: object");
	rte_telemetry_register_cmd("/crpc/bulk/connection", tel_connection,
		"Windows, slots, rails. Parameters: object,connection");
}
