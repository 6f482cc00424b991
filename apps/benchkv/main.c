/* SPDX-License-Identifier: BSD-3-Clause */

#include "app_fail.h"
#include "app_lcore.h"
#include "app_opt.h"
#include "app_out.h"
#include "app_stop.h"
#include "crpc_clock.h"
#include "map.h"
#include "report.h"

/* How long the reporter waits for the figures of a rank. */
#define GATHER_MS             3000
#define GATHER_INTERRUPTED_MS 300
#define FENCE_MS              30000

/* What main keeps beside the rank. */
struct kv_main {
	struct app_args args;
	struct kv_rank rank;
	struct kv_conditions cond;
	double line_ns;
	FILE *json;
	struct kv_sweep sweep;
	uint32_t run_number;
};

/* What is done once, however many runs follow: lcores, files, the EAL. */
static int
start(struct kv_main *m)
{
	struct kv_rank *r = &m->rank;
	int rc = app_lcore_start(&r->boot, &m->args, r->opt.device,
		(uint32_t)(r->opt.daemons + r->opt.clients), &r->cores, &r->shared);

	if (rc != 0)
		return rc;
	app_lcore_text(&r->cores, r->lcores, sizeof(r->lcores));
	app_fail_hold(true);
	/* Any rank may have to write them, if those before it are lost. */
	rc = app_json_check("json", r->opt.json);
	if (rc == 0)
		rc = app_json_check("hgrm", r->opt.hgrm);
	return app_boot_agree(&r->boot, "kv.files", rc);
}

/* Up to the point where all ranks know that all can run. */
static int
open_run(struct kv_main *m)
{
	struct kv_rank *r = &m->rank;
	int rc;

	app_fail_hold(true);
	rc = app_boot_agree(&r->boot, "kv.open", kv_rank_open(r));
	if (rc != 0)
		return rc;
	app_fail_hold(true);
	rc = kv_rank_connect(r);
	return app_boot_agree(&r->boot, "kv.connect", rc);
}

/* The rank that reports: the lowest that is not lost. */
static uint32_t
reporter(const struct kv_rank *r)
{
	uint32_t i;

	for (i = 0; i < r->boot.rank; i++)
		if (crpc_kv_server_peer_why(r->service, i) == NULL)
			break;
	return i;
}

static uint32_t
gather_ms(const struct kv_rank *r)
{
	return r->run.interrupted ? GATHER_INTERRUPTED_MS : GATHER_MS;
}

static int
report_rank(struct kv_main *m, struct kv_result *total, const struct kv_result *res)
{
	char label[160];
	size_t used = strlen(total->lcores);
	int rc;

	kv_result_add(total, res);
	snprintf(total->lcores + used, sizeof(total->lcores) - used, "%s%s", used == 0 ? "" : " | ",
		res->lcores);
	snprintf(total->device, sizeof(total->device), "%s", res->device);
	snprintf(total->driver, sizeof(total->driver), "%s", res->driver);
	snprintf(label, sizeof(label), "rank %u (lcores %s)", res->rank, res->lcores);
	if (m->cond.point != NULL) /* Of a sweep only the totals are printed. */
		return 0;
	rc = kv_report(
		m->json, &m->cond, &m->rank.opt, "rank", app_opt_verbose ? label : NULL, res);
	for (uint32_t i = 0; i < res->daemons && res->daemons > 1; i++)
		rc |= kv_report_daemon(m->json, &m->cond, res, i);
	return rc;
}

static int
report_total(struct kv_main *m, const struct kv_result *total)
{
	char label[96];
	int rc;

	if (m->cond.point != NULL) {
		kv_sweep_note(
			&m->sweep, m->run_number, total, kv_result_noisy(total, m->cond.state));
		return kv_report(m->json, &m->cond, &m->rank.opt, "total", NULL, total);
	}
	snprintf(label, sizeof(label), "total of %u rank%s%s%s", total->ranks,
		total->ranks == 1 ? "" : "s",
		total->ranks == m->rank.boot.size ? "" : " (the others gave no results)",
		total->interrupted ? ", interrupted: results so far" : "");
	rc = kv_report(m->json, &m->cond, &m->rank.opt, "total", label, total);
	if (m->rank.opt.hgrm != NULL && kv_report_hgrm(m->rank.opt.hgrm, total) != 0)
		rc = -EIO;
	if (kv_result_distrusted(total, m->cond.state))
		rc = -EBADMSG;
	return rc;
}

/* Gather all figures and print them. */
static int
report(struct kv_main *m, const struct kv_result *mine)
{
	static struct kv_result total, other;
	struct kv_rank *r = &m->rank;
	const struct kv_result *res;
	int rc = 0;

	memset(&total, 0, sizeof(total));
	if (r->opt.json != NULL && m->json == NULL)
		m->json = app_json_open("json", r->opt.json);
	m->cond.state = app_state_of(m->line_ns, app_measure_line_ns());
	for (uint32_t i = 0; i < r->boot.size; i++) {
		res = i == r->boot.rank ? mine : &other;
		if (res == mine ||
			(app_boot_take(&r->boot, i, "kv.result", &other, sizeof(other),
				 gather_ms(r)) == 0 &&
				kv_result_take(&other))) {
			rc |= report_rank(m, &total, res);
			continue;
		}
		/* Not what was asked for, unless somebody stopped the run. */
		printf("rank %u gave no results\n", i);
		rc |= r->run.interrupted ? 0 : -ENODATA;
	}
	return rc | report_total(m, &total);
}

/* Lost ranks are not waited for. */
static void
lose_ranks(struct kv_rank *r)
{
	for (uint32_t i = 0; i < r->boot.size; i++)
		if (crpc_kv_server_peer_why(r->service, i) != NULL)
			app_boot_lose(&r->boot, i);
}

/* Gather the results of all ranks, and report them. */
static int
conclude(struct kv_main *m, struct kv_result *res)
{
	struct kv_rank *r = &m->rank;
	int rc = 0;

	if (kv_rank_history_end(r) != 0)
		rc = APP_EXIT_RUN;
	app_boot_put(&r->boot, "kv.result", res, sizeof(*res));
	/* Slurm delivers the new value of a key at a fence only, and a lost rank reaches none. */
	if (res->lost_peers == 0)
		app_boot_fence(&r->boot, gather_ms(r));
	if (reporter(r) == r->boot.rank && report(m, res) != 0)
		rc = APP_EXIT_RUN;
	if (kv_result_faults(res) != 0 || res->lost_peers != 0 || res->counts.failed != 0)
		rc = APP_EXIT_RUN;
	/*
	 * Who leaves early with an error makes the launcher end the others: let them finish first.
	 */
	if (res->lost_peers == 0 && !r->run.interrupted)
		app_boot_fence(&r->boot, GATHER_MS);
	return rc;
}

static int
measure(struct kv_main *m)
{
	static struct kv_result res;
	struct kv_rank *r = &m->rank;
	struct app_steal before;

	/* The other ranks sleep at the fence meanwhile. */
	m->line_ns = r->boot.rank == 0 ? app_measure_line_ns() : 0;
	kv_rank_result(r, &res);
	if (r->boot.rank == 0 && m->run_number == 0) {
		kv_report_head(&r->opt, &m->cond, &res, r->boot.size);
		kv_map_print(r, stdout);
		app_eal_mem_report();
	}
	if (app_boot_fence(&r->boot, FENCE_MS) != 0)
		return app_fail_once("the ranks did not all come to the start; start again");
	app_env_steal(&before);
	if (kv_run_loop(&r->run) != 0)
		return app_fail(
			"no memory for %g s of results; give fewer --seconds", r->opt.seconds);
	lose_ranks(r);
	kv_rank_result(r, &res);
	res.steal_pct = app_env_steal_pct(&before);
	return conclude(m, &res);
}

static int
run(struct kv_main *m)
{
	struct kv_rank *r = &m->rank;
	int rc;

	m->cond.backend = r->boot.size > 1 || r->opt.backend != KV_BACKEND_COPYRPC
		? kv_backend_names[r->opt.backend]
		: "none";
	rc = open_run(m);
	if (rc == 0)
		rc = measure(m);
	kv_rank_close(r);
	return rc;
}

/*
 * The ranks agree whether they can continue with the next run of a sweep: none of them was
 * interrupted, or lost one.
 */
static bool
may_go_on(struct kv_main *m, bool mine)
{
	struct app_boot *boot = &m->rank.boot;
	bool all[APP_RANKS_MAX];

	if (app_boot_exchange(boot, "kv.next", &mine, sizeof(mine), all,
		    mine ? FENCE_MS : GATHER_INTERRUPTED_MS) != 0)
		return false;
	for (uint32_t i = 0; i < boot->size; i++)
		mine &= all[i];
	return mine;
}

static int
run_sweep(struct kv_main *m)
{
	struct kv_rank *r = &m->rank;
	struct app_sweep_point p;
	bool go_on = true;
	int rc = 0, one;

	m->cond.point = &p;
	for (; m->run_number < m->sweep.plan.runs && go_on; m->run_number++) {
		app_sweep_point(&m->sweep.plan, m->run_number, &p);
		r->boot.round = m->run_number + 1;
		one = kv_sweep_options(&p, m->args.argc, m->args.argv, &r->opt);
		r->opt.quiet = true;
		if (one == 0)
			one = run(m);
		rc = one != 0 ? one : rc;
		go_on = may_go_on(m, one != APP_EXIT_USAGE && app_stopped() == 0 && !r->disturbed);
	}
	if (r->boot.rank == 0) {
		kv_sweep_table(&m->sweep);
		if (m->run_number < m->sweep.plan.runs)
			printf("interrupted after %u of %u runs\n", m->run_number,
				m->sweep.plan.runs);
	}
	return rc;
}

static int
run_all(struct kv_main *m)
{
	int rc = 0;

	if (m->rank.opt.sweep != NULL)
		rc = kv_sweep_parse(&m->sweep, m->rank.opt.sweep, (uint32_t)m->rank.opt.repeat,
			m->args.argc, m->args.argv, m->rank.boot.size, &m->rank.opt);
	else
		rc = kv_options_check_ranks(&m->rank.opt, m->rank.boot.size);
	if (rc == 0)
		rc = start(m);
	if (rc != 0)
		return rc;
	rc = m->rank.opt.sweep != NULL ? run_sweep(m) : run(m);
	if (m->json != NULL && fclose(m->json) != 0)
		rc = APP_EXIT_RUN;
	m->json = NULL;
	return rc;
}

static void
help(int argc, char *const *argv)
{
	kv_options_help(KV_PROGRAM_DAEMON);
}

int
main(int argc, char **argv)
{
	static struct kv_main m = {.cond = {.app = "benchkv", .backend = "none"}};
	struct kv_rank *r = &m.rank;
	int rc;

	app_fail_name("benchkv");
	if (app_args_answer("benchkv", argc, argv, help))
		return APP_EXIT_OK;
	app_args_split(&m.args, argc, argv, false);
	rc = kv_options_parse(&r->opt, KV_PROGRAM_DAEMON, m.args.argc, m.args.argv);
	if (rc != 0)
		return rc;
	crpc_clock_init();
	rc = app_boot_open(&r->boot);
	if (rc != 0)
		return rc;
	rc = run_all(&m);
	kv_sweep_fini(&m.sweep);
	app_eal_stop();
	app_boot_close(&r->boot);
	return rc;
}
