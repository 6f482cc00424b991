/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * simkv: the key-value service on many hosts of one process, in virtual time.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "app_eal.h"
#include "app_env.h"
#include "app_fail.h"
#include "app_stop.h"
#include "chaos.h"
#include "report.h"

#define STORE_MIB 64 /* For all else that the EAL has. */

/* Only rte_hash needs an EAL: memory without hugepages, no devices, no threads. */
static int
eal_start(uint64_t hosts, uint64_t keys)
{
	const struct crpc_kv_server_conf conf = {.key_size = CRPC_KV_KEY_MIN,
		.value_max = CRPC_KV_VALUE_MIN,
		.capacity = (uint32_t)(keys + keys / 2 + 256)};
	char name[] = "simkv", huge[] = "--no-huge", tel[] = "--no-telemetry", m[] = "-m", mib[24];
	char *argv[] = {name, huge, tel, m, mib, NULL};
	const struct app_args args = {.eal_argc = CRPC_DIM(argv) - 1, .eal_argv = argv};
	int cpu = sched_getcpu(), rc;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu < 0 ? 0 : cpu, &set);
	snprintf(mib, sizeof(mib), "%llu",
		(unsigned long long)(STORE_MIB +
			(hosts * (crpc_kv_server_store_bytes(&conf) + (64 << 10)) >> 20)));
	app_fail_hold(true);
	rc = app_eal_start(&args, &set);
	app_fail_hold(false);
	return rc == 0 ? 0
		       : app_fail("%s; %s MiB are asked for: give fewer --hosts or --keys",
				 app_fail_held(), mib);
}

static int
point_options(struct sim_options *o, const struct app_sweep_point *p, int argc, char *const *argv)
{
	char **args = app_sweep_args(p, &argc, argv);
	int rc = args == NULL ? APP_EXIT_USAGE : sim_options_parse(o, argc, args);

	free(args);
	return rc;
}

/* All points are parsed before the first one runs; the largest decides what the EAL needs. */
static int
points_check(const struct app_sweep *s, int argc, char **argv, uint64_t *hosts, uint64_t *keys)
{
	struct app_sweep_point p;
	struct sim_options o;
	int rc = 0;

	for (uint32_t i = 0; i < s->runs && rc == 0; i++) {
		app_sweep_point(s, i, &p);
		rc = point_options(&o, &p, argc, argv);
		*hosts = crpc_max(*hosts, o.hosts);
		*keys = crpc_max(*keys, o.keys);
	}
	return rc;
}

static int
run_all(struct app_out *out, const struct app_sweep *s, int argc, char **argv)
{
	static struct sim_result r;
	const struct app_trial trial = {0};
	json_t *rows = json_array();
	struct app_sweep_point p;
	struct sim_options o;
	int rc = 0;

	for (uint32_t i = 0; i < s->runs && rc == 0 && app_stopped() == 0; i++) {
		app_out_progress("simkv", i, s->runs);
		app_sweep_point(s, i, &p);
		rc = point_options(&o, &p, argc, argv);
		if (rc == 0)
			rc = sim_run(&o, &r);
		if (rc != APP_EXIT_USAGE && app_stopped() == 0)
			json_array_append_new(rows, sim_report_row(out, &o, &r, &p));
	}
	if (app_out_rows(out, "virtual time", &trial, rows) != 0 && rc == 0)
		rc = APP_EXIT_RUN;
	return rc;
}

int
main(int argc, char **argv)
{
	struct app_out out = {0};
	struct app_sweep sweep = {0};
	struct sim_options o;
	uint64_t hosts = 1, keys = 1;
	int rc;

	app_fail_name("simkv");
	if (app_env_answer("simkv", argc, argv, sim_options_help))
		return APP_EXIT_OK;
	rc = sim_options_parse(&o, argc - 1, argv + 1);
	if (rc == 0)
		rc = app_sweep_parse(&sweep, o.sweep, 1);
	if (rc == 0)
		rc = points_check(&sweep, argc - 1, argv + 1, &hosts, &keys);
	if (rc == 0)
		rc = eal_start(o.chaos != 0 ? SIM_CHAOS_HOSTS_MAX : hosts,
			o.chaos != 0 ? SIM_CHAOS_KEYS_MAX : keys);
	if (rc == 0) {
		app_stop_catch();
		rc = app_out_open(&out, "simkv", "lcores", "virtual", o.json);
		if (rc == 0)
			rc = o.chaos != 0 ? sim_chaos(&out, &o)
					  : run_all(&out, &sweep, argc - 1, argv + 1);
		app_out_close(&out, app_stopped() != 0);
	}
	app_eal_stop();
	app_sweep_fini(&sweep);
	return rc;
}
