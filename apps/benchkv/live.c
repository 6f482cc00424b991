/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include <rte_telemetry.h>

#include "crpc_kv_server.h"
#include "live.h"
#include "place.h"
#include "result.h"

/* Static: telemetry's thread lives as long as the process, and may look at any time. */
static struct kv_live_load load[KV_SEATS_MAX];

static const char *const load_names[KV_LOAD_WORDS] = {
	[KV_LOAD_OPS] = "client_ops",
	[KV_LOAD_FAILED] = "client_failed",
	[KV_LOAD_LAT_NS] = "client_lat_ns",
	[KV_LOAD_OPEN_NS] = "client_open_ns",
	[KV_LOAD_CALLS] = "client_calls",
};

void
kv_live_load(uint32_t seat, const struct app_load *from, uint64_t now, bool carry)
{
	const struct app_load_counts *c = &from->counts;
	uint64_t word[KV_LOAD_WORDS], calls = (uint64_t)from->n * from->conf->depth;
	struct kv_live_load *l = &load[seat];

	if (l->from == 0)
		l->from = now;
	/* What is counted ends with the window. */
	if (from->phase >= APP_LOAD_COOLDOWN)
		now = from->measure_from + c->window_ns;
	word[KV_LOAD_OPS] = app_load_counts_ops(c);
	word[KV_LOAD_FAILED] = c->failed;
	word[KV_LOAD_LAT_NS] = c->lat_sum;
	word[KV_LOAD_CALLS] = from->conf->gap_ns > 0 ? 0 : calls;
	word[KV_LOAD_OPEN_NS] = word[KV_LOAD_CALLS] * (now - l->from);
	for (uint32_t i = 0; i < KV_LOAD_WORDS; i++) {
		if (!carry)
			crpc_store_relaxed(&l->word[i], l->before[i] + word[i]);
		else if (i != KV_LOAD_CALLS) /* A gauge. */
			l->before[i] += word[i];
	}
	if (carry)
		l->from = now;
}

/* The rank's own clients; they do not distinguish the daemons of operations. */
static void
add_load(struct rte_tel_data *d)
{
	uint64_t word[KV_LOAD_WORDS] = {0};
	char text[64] = "-";
	double little;

	for (uint32_t i = 0; i < KV_SEATS_MAX; i++)
		for (uint32_t k = 0; k < KV_LOAD_WORDS; k++)
			word[k] += crpc_load_relaxed(&load[i].word[k]);
	for (uint32_t i = 0; i < KV_LOAD_WORDS; i++)
		rte_tel_data_add_dict_u64(d, load_names[i], word[i]);
	if (word[KV_LOAD_OPEN_NS] != 0) {
		little = (double)word[KV_LOAD_LAT_NS] / (double)word[KV_LOAD_OPEN_NS];
		snprintf(text, sizeof(text), "%.4f: %s", little,
			kv_little_holds(little, 0) ? "holds" : "does NOT hold");
	}
	rte_tel_data_add_dict_string(d, "little", text);
}

static int
handle_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	int rc = crpc_kv_tel_stats(params, d);

	if (rc == 1)
		add_load(d);
	return rc < 0 ? rc : 0;
}

int
kv_live_start(uint32_t rank, uint32_t daemons)
{
	static bool registered;

	for (uint32_t i = 0; i < KV_SEATS_MAX; i++) { /* Another run of a sweep has other seats. */
		for (uint32_t k = 0; k < KV_LOAD_WORDS; k++)
			crpc_store_relaxed(&load[i].word[k], 0);
		memset(load[i].before, 0, sizeof(load[i].before));
		load[i].from = 0;
	}
	crpc_kv_tel_start(rank, daemons);
	if (registered) /* The next run of a sweep. */
		return 0;
	registered = true;
	return rte_telemetry_register_cmd("/crpc/benchkv/stats", handle_stats,
		"Counters of this rank's daemons. Parameters: [daemon]");
}
