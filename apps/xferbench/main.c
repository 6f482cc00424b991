/* SPDX-License-Identifier: BSD-3-Clause */
/* xferbench: the EAL, the lcores or ranks, signals, and every case of the command line. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "app_eal.h"
#include "app_fail.h"
#include "app_json.h"
#include "app_lcore.h"
#include "crpc_clock.h"
#include "crpc_rdma.h"
#include "crpc_unpack_dmadev.h"
#include "crpc_unpack_gpudev.h"
#include "xb.h"

#define HUGE (UINT64_C(2) << 20)

static struct xb_team team;
static _Atomic int interrupted;

/* The second signal finds the default action: it ends the program at once. */
static void
on_signal(int sig)
{
	crpc_store_relaxed(&interrupted, 1);
}

bool
xb_signaled(void)
{
	return crpc_load_relaxed(&interrupted) != 0;
}

bool
xb_interrupted(void)
{
	return team.link != NULL ? team.stop : xb_signaled();
}

static void
signals(void)
{
	struct sigaction on = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &on, NULL);
	sigaction(SIGTERM, &on, NULL);
}

/* ---- memory ---- */

/* Touched, so that no slice pays for pages; in large ones where the kernel gives them. */
static uint8_t *
buffer(uint64_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, len, MADV_HUGEPAGE);
	memset(p, 1, len);
	return p;
}

static void
memory_free(struct xb_run *run)
{
	int side;

	for (side = 0; side < XB_SIDES; side++) {
		/* Ranks have their own under both numbers. */
		if (run->team->link != NULL && side != 0)
			break;
		if (run->mem[side].send != NULL)
			munmap(run->mem[side].send, run->mem_len);
		if (run->mem[side].recv != NULL)
			munmap(run->mem[side].recv, run->mem_len);
	}
}

static int
memory_make(struct xb_run *run)
{
	bool both = false;
	uint32_t i;
	int side;

	run->mem_len = crpc_align_up(xb_options_memory(run->opt), HUGE);
	for (i = 0; i < run->opt->directions.n; i++)
		both |= run->opt->directions.v[i] != 0;
	/* A rank's copies are from its own memory to its own. */
	both |= run->team->link != NULL;
	for (side = 0; side < XB_SIDES; side++) {
		if (side == 1 && run->team->link != NULL) {
			run->mem[1] = run->mem[0];
			break;
		}
		if (side == 0 || both)
			run->mem[side].send = buffer(run->mem_len);
		if (side == 1 || both)
			run->mem[side].recv = buffer(run->mem_len);
	}
	if (run->mem[0].send == NULL || run->mem[1].recv == NULL ||
		(both && (run->mem[1].send == NULL || run->mem[0].recv == NULL)))
		return app_fail("no memory for buffers of %lu MiB each; give a smaller --size",
			(unsigned long)(run->mem_len >> 20));
	return 0;
}

/* ---- cases ---- */

/* Ours by every path, and the others, side by side. */
static int
run_case(struct xb_run *run, const struct xb_point *point)
{
	const struct xb_opt *o = run->opt;
	struct xb_group *g = calloc(1, sizeof(*g));
	struct xb_point p = *point;
	uint32_t i, k;
	int rc;

	if (g == NULL)
		return -ENOMEM;
	g->run = run;
	for (i = 0; i < o->transports.n; i++) {
		p.transport = (enum xb_transport)o->transports.v[i];
		/* A memcpy has no path, and ZeroMQ but one. */
		for (k = 0; k < o->paths.n; k++) {
			p.path = (enum xb_path)o->paths.v[k];
			if (k == 0 || p.transport == XB_BULK || p.transport == XB_UCX ||
				p.transport == XB_TENSOR)
				xb_group_add(g, &p);
		}
	}
	rc = xb_group_measure(g);
	if (rc == 0)
		rc = xb_out_group(g);
	xb_group_fini(g);
	free(g);
	return rc;
}

static int
run_shapes(struct xb_run *run, struct xb_point *p)
{
	const struct xb_opt *o = run->opt;
	uint32_t c, w, r, e;
	int rc = 0;

	for (c = 0; c < o->chunks.n; c++)
		for (w = 0; w < o->windows.n; w++)
			for (r = 0; r < o->rails.n; r++)
				for (e = 0; e < o->engines.n; e++) {
					p->chunk = (uint32_t)o->chunks.v[c];
					p->window = (uint32_t)o->windows.v[w];
					p->rails = (uint32_t)o->rails.v[r];
					p->engine = (enum xb_engine)o->engines.v[e];
					if (rc == 0 && !xb_interrupted())
						rc = run_case(run, p);
				}
	return rc;
}

static int
run_all(struct xb_run *run)
{
	const struct xb_opt *o = run->opt;
	struct xb_point p = xb_options_point(o);
	uint32_t s, d;
	int rc = 0;

	for (s = 0; s < o->sizes.n; s++)
		for (d = 0; d < o->directions.n && rc == 0; d++) {
			p.size = o->sizes.v[s];
			p.both = o->directions.v[d] != 0;
			rc = run_shapes(run, &p);
		}
	return rc;
}

/* What may fail in one rank alone. */
static int
run_prepare(struct xb_run *run)
{
	if (run->opt->json != NULL && xb_team_plays(run->team, 0)) {
		run->json = app_json_open("json", run->opt->json);
		if (run->json == NULL)
			return APP_EXIT_USAGE;
	}
	return memory_make(run);
}

static int
run_cases(struct xb_run *run)
{
	const struct xb_opt *o = run->opt;
	int rc;

	xb_out_head(run);
	rc = o->preset == XB_TARGETS ? xb_targets(run)
		: o->preset == XB_ARRAYS ? xb_arrays(run)
		: o->tune                ? xb_tune(run)
					 : run_all(run);
	if (rc != 0)
		app_note("%s",
			rc == -EIO ? "a result could not be written to --json" : strerror(-rc));
	return rc != 0 || run->failed != 0 ? APP_EXIT_RUN : APP_EXIT_OK;
}

static int
run(const struct xb_opt *o, struct app_boot *boot, const char *lcores, double line_gbps)
{
	struct xb_run run = {.opt = o, .team = &team, .lcores = lcores, .line_gbps = line_gbps};
	int rc;

	app_fail_hold(true);
	rc = app_boot_agree(boot, "xb.prepare", run_prepare(&run));
	if (rc == 0)
		rc = run_cases(&run);
	memory_free(&run);
	if (run.json != NULL)
		fclose(run.json);
	if (xb_interrupted() && xb_team_plays(&team, 0))
		app_note("interrupted: results so far");
	return rc;
}

/* ---- start ---- */

static void
team_lcores(char *lcores, size_t len)
{
	unsigned int second = rte_get_next_lcore(-1U, 1, 0);
	int cpu = app_eal_core_of(rte_get_main_lcore());

	snprintf(lcores, len, "%d", cpu);
	if (second == RTE_MAX_LCORE || app_eal_core_of(second) == cpu)
		return;
	team.second = second;
	snprintf(lcores, len, "%d,%d", cpu, app_eal_core_of(second));
}

/* What a rank publishes about itself. */
struct card {
	char host[64];
	char commit[64];
	int32_t cpu;
};

/* If the other rank is dead this one has to say it. */
static int
ranks_fail(const struct app_boot *boot, const char *why)
{
	return app_boot_gone(boot, 1 - boot->rank) ? app_fail("%s", why) : app_fail_once("%s", why);
}

/* Each rank one side, on its first lcore: 0, or an exit code. */
static int
team_ranks(struct app_boot *boot, const struct xb_opt *o, char *lcores, size_t len)
{
	struct card card[XB_SIDES];
	int me = (int)boot->rank, rc;
	cpu_set_t set;

	app_eal_lcores(1, &set);
	if (app_lcore_shared(boot, &set, &team.shared) != 0)
		return ranks_fail(boot, "the ranks could not exchange their lcores");
	team.one_host = boot->local_size == 2;
	rc = xb_link_open(&team, boot, o->device);
	if (rc != 0)
		return rc;
	memset(card, 0, sizeof(card));
	gethostname(card[me].host, sizeof(card[me].host) - 1);
	card[me].cpu = app_eal_core_of(rte_get_main_lcore());
	snprintf(card[me].commit, sizeof(card[me].commit), "%s", app_env_commit());
	if (xb_team_swap(&team, &card[me], &card[!me], sizeof(card[0])) != 0)
		return APP_EXIT_RUN;
	/* The exchanged structures are those of one build. */
	if (memcmp(card[0].commit, card[1].commit, sizeof(card[0].commit)) != 0)
		return app_fail_once("the ranks are of different builds, %.63s and %.63s; start "
				     "the same one on both hosts",
			card[0].commit, card[1].commit);
	xb_court_open(&team);
	if (team.one_host)
		snprintf(lcores, len, "%d,%d", card[0].cpu, card[1].cpu);
	else
		snprintf(lcores, len, "%.63s:%d,%.63s:%d", card[0].host, card[0].cpu, card[1].host,
			card[1].cpu);
	/* All that is printed but causes of failures is the same in both. */
	if (me != 0 && freopen("/dev/null", "w", stdout) == NULL)
		return app_fail("/dev/null: %s", strerror(errno));
	return 0;
}

/* The other rank, and the cores of this one, of those that it may use. */
static int
cores_choose(struct app_boot *boot, cpu_set_t *set)
{
	if (boot->size > XB_SIDES)
		return app_fail_once("%u ranks; give one, or two", boot->size);
	if (app_boot_watch(boot) != 0)
		return ranks_fail(
			boot, "the other rank did not come to the start; start both again");
	app_eal_cores_default(XB_SIDES, set);
	if (boot->size == XB_SIDES && app_lcore_choose(boot, 1, set) != 0)
		return ranks_fail(boot, "the ranks could not exchange their cores");
	return 0;
}

/* With the EAL, and with the other rank if there is one. */
static int
run_started(struct app_boot *boot, const struct xb_opt *o)
{
	char lcores[160];
	double line = 0;
	int rc = 0;

	signals();
	crpc_clock_init();
	team.second = UINT_MAX;
	if (boot->size == 1)
		team_lcores(lcores, sizeof(lcores));
	else
		rc = team_ranks(boot, o, lcores, sizeof(lcores));
	if (rc == 0 && team.link != NULL && !team.one_host)
		line = xb_team_max(&team, xb_link_line(team.link));
	if (rc == 0)
		rc = run(o, boot, lcores, line);
	xb_court_close(&team);
	xb_link_close(&team);
	return rc;
}

static int
run_ranks(struct app_args *args, const struct xb_opt *o)
{
	struct app_boot boot;
	cpu_set_t set;
	int rc = app_boot_open(&boot);

	if (rc != 0)
		return rc;
	rc = cores_choose(&boot, &set);
	if (rc != 0)
		goto end_boot;
	app_fail_hold(true);
	rc = app_eal_start(args, &set);
	rc = app_boot_agree(&boot, "xb.eal", rc);
	if (rc != 0)
		goto end_boot;
	rc = run_started(&boot, o);
	app_eal_stop();
end_boot:
	app_boot_close(&boot);
	return rc;
}

int
main(int argc, char **argv)
{
	static struct xb_opt o;
	struct app_args args = {
		.eal_argc = 1, .eal_argv = argv, .argc = argc - 1, .argv = argv + 1};
	int rc, i;

	app_fail_name("xferbench");
	if (app_args_answer("xferbench", argc, argv, xb_options_help))
		return APP_EXIT_OK;
	for (i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			app_args_split(&args, argc, argv);
	crpc_unpack_dmadev_register();
#ifdef XB_HAVE_GPUDEV
	crpc_unpack_gpudev_register();
#endif
	rc = xb_options_parse(&o, args.argc, args.argv);
	if (rc != 0)
		return rc;
	return run_ranks(&args, &o);
}
