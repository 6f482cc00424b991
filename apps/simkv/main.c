/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * simkv: the key-value service on many hosts of one process, in virtual time.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_stop.h"
#include "crpc_log.h"
#include "report.h"

#define VALUES_MAX 32
#define STORE_MIB  64 /* For all else that the EAL has. */

/* One axis: the option with its dashes, and its values. */
struct sweep {
	char *text, *option;
	char *value[VALUES_MAX];
	uint32_t n;
};

/* Only rte_hash needs an EAL: memory without hugepages, no devices, no threads. */
static int
eal_start(uint64_t hosts, uint64_t keys)
{
	const struct crpc_kv_server_conf conf = {.key_size = CRPC_KV_KEY_MIN,
		.value_max = CRPC_KV_VALUE_MIN,
		.capacity = (uint32_t)(keys + keys / 2 + 256)};
	char text[192], *argv[16], *save = NULL;
	int cpu = sched_getcpu(), n = 0;

	snprintf(text, sizeof(text),
		"simkv --no-huge --no-shconf --no-telemetry --no-pci --log-level *:error -l %d "
		"-m %llu",
		cpu < 0 ? 0 : cpu,
		(unsigned long long)(STORE_MIB +
			(hosts * (crpc_kv_server_store_bytes(&conf) + (64 << 10)) >> 20)));
	for (char *t = strtok_r(text, " ", &save); t != NULL; t = strtok_r(NULL, " ", &save))
		argv[n++] = t;
	argv[n] = NULL;
	if (rte_eal_init(n, argv) < 0)
		return app_fail("the EAL does not start with %s MiB; give fewer --hosts or --keys",
			argv[n - 1]);
	return 0;
}

static int
sweep_parse(struct sweep *s, const char *spec)
{
	char *save = NULL, *values;

	s->text = strdup(spec);
	values = s->text == NULL ? NULL : strchr(s->text, '=');
	if (values != NULL && values != s->text)
		*values++ = '\0';
	else
		values = NULL;
	for (char *v = values == NULL ? NULL : strtok_r(values, ",", &save);
		v != NULL && s->n < VALUES_MAX; v = strtok_r(NULL, ",", &save))
		s->value[s->n++] = v;
	if (s->n == 0 || asprintf(&s->option, "--%s", s->text) < 0)
		return app_fail(
			"--sweep '%.200s': give OPTION=VALUE,VALUE..., as clients=1,2,4", spec);
	return 0;
}

/* The options of a point: the command line, and the axis behind it. */
static int
point_options(struct sim_options *o, const struct sweep *s, uint32_t i, int argc, char **argv)
{
	char **all = calloc((size_t)argc + 2, sizeof(*all));
	int rc;

	if (all == NULL)
		return app_fail("no memory for the options");
	memcpy(all, argv, (size_t)argc * sizeof(*all));
	if (s->n != 0) {
		all[argc] = s->option;
		all[argc + 1] = s->value[i];
	}
	rc = sim_options_parse(o, argc + (s->n != 0 ? 2 : 0), all);
	free(all);
	return rc;
}

/* All points are parsed before the first one runs; the largest decides what the EAL needs. */
static int
points_check(const struct sweep *s, int argc, char **argv, uint64_t *hosts, uint64_t *keys)
{
	struct sim_options o;
	int rc = 0;

	for (uint32_t i = 0; i < crpc_max(s->n, 1) && rc == 0; i++) {
		rc = point_options(&o, s, i, argc, argv);
		*hosts = crpc_max(*hosts, o.hosts);
		*keys = crpc_max(*keys, o.keys);
	}
	return rc;
}

static int
run_all(struct app_out *out, const struct sweep *s, int argc, char **argv)
{
	static struct sim_result r;
	const struct app_trial trial = {0};
	json_t *rows = json_array();
	struct sim_options o;
	int rc = 0;

	for (uint32_t i = 0; i < crpc_max(s->n, 1) && rc == 0 && app_stopped() == 0; i++) {
		app_out_progress("simkv", i, crpc_max(s->n, 1));
		rc = point_options(&o, s, i, argc, argv);
		if (rc == 0)
			rc = sim_run(&o, &r);
		if (rc != APP_EXIT_USAGE && app_stopped() == 0)
			json_array_append_new(rows,
				sim_report_row(out, &o, &r, s->n != 0 ? s->option + 2 : NULL,
					s->value[i]));
	}
	if (app_out_rows(out, "virtual time", &trial, rows) != 0 && rc == 0)
		rc = APP_EXIT_RUN;
	return rc;
}

int
main(int argc, char **argv)
{
	struct app_out out = {0};
	struct sweep sweep = {0};
	struct sim_options o;
	uint64_t hosts = 1, keys = 1;
	int rc;

	app_fail_name("simkv");
	if (app_env_answer("simkv", argc, argv, sim_options_help))
		return APP_EXIT_OK;
	rc = sim_options_parse(&o, argc - 1, argv + 1);
	if (rc == 0 && o.sweep != NULL)
		rc = sweep_parse(&sweep, o.sweep);
	if (rc == 0)
		rc = points_check(&sweep, argc - 1, argv + 1, &hosts, &keys);
	if (rc == 0)
		rc = eal_start(hosts, keys);
	if (rc == 0) {
		app_stop_catch();
		rc = app_out_open(&out, "simkv", "lcores", "virtual", o.json);
		if (rc == 0)
			rc = run_all(&out, &sweep, argc - 1, argv + 1);
		app_out_close(&out, app_stopped() != 0);
		rte_eal_cleanup();
	}
	free(sweep.text);
	free(sweep.option);
	return rc;
}
