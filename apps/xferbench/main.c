/* SPDX-License-Identifier: BSD-3-Clause */
/* xferbench: the EAL, the lcores, signals, and every case of the command line. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_lcore.h>

#include "app_eal.h"
#include "app_fail.h"
#include "app_json.h"
#include "crpc_clock.h"
#include "crpc_unpack_dmadev.h"
#include "crpc_unpack_gpudev.h"
#include "xb.h"

#define HUGE (UINT64_C(2) << 20)

static _Atomic int interrupted;

/* The second signal finds the default action: it ends the program at once. */
static void
on_signal(int sig)
{
	crpc_store_relaxed(&interrupted, 1);
}

bool
xb_interrupted(void)
{
	return crpc_load_relaxed(&interrupted) != 0;
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
	for (side = 0; side < XB_SIDES; side++) {
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
			if (k == 0 || p.transport == XB_BULK || p.transport == XB_UCX)
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

static int
run(const struct xb_opt *o, struct xb_team *team, const char *lcores)
{
	struct xb_run run = {.opt = o, .team = team, .lcores = lcores};
	int rc;

	if (o->json != NULL) {
		run.json = app_json_open("json", o->json);
		if (run.json == NULL)
			return APP_EXIT_USAGE;
	}
	rc = memory_make(&run);
	if (rc == 0) {
		xb_out_head(&run);
		rc = o->preset == XB_TARGETS ? xb_targets(&run)
			: o->tune            ? xb_tune(&run)
					     : run_all(&run);
		if (rc != 0)
			app_note("%s", rc == -EIO ? "a result could not be written to --json"
						  : strerror(-rc));
		rc = rc != 0 || run.failed != 0 ? APP_EXIT_RUN : APP_EXIT_OK;
	}
	memory_free(&run);
	if (run.json != NULL)
		fclose(run.json);
	if (xb_interrupted())
		app_note("interrupted: results so far");
	return rc;
}

/* ---- start ---- */

static void
team_make(struct xb_team *team, char *lcores, size_t len)
{
	unsigned int second = rte_get_next_lcore(-1U, 1, 0);
	int cpu = app_eal_core_of(rte_get_main_lcore());

	memset(team, 0, sizeof(*team));
	team->second = UINT_MAX;
	snprintf(lcores, len, "%d", cpu);
	if (second == RTE_MAX_LCORE || app_eal_core_of(second) == cpu)
		return;
	team->second = second;
	snprintf(lcores, len, "%d,%d", cpu, app_eal_core_of(second));
}

int
main(int argc, char **argv)
{
	static struct xb_team team;
	static struct xb_opt o;
	struct app_args args = {
		.eal_argc = 1, .eal_argv = argv, .argc = argc - 1, .argv = argv + 1};
	char lcores[32];
	cpu_set_t set;
	int rc, i;

	app_fail_name("xferbench");
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
	if (o.help) {
		xb_options_help();
		return APP_EXIT_OK;
	}
	app_eal_cores_default(XB_SIDES, &set);
	rc = app_eal_start(&args, &set);
	if (rc != 0)
		return rc;
	signals();
	crpc_clock_init();
	team_make(&team, lcores, sizeof(lcores));
	rc = run(&o, &team, lcores);
	app_eal_stop();
	return rc;
}
