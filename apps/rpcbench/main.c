/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include <rte_lcore.h>

#include "app_eal.h"
#include "app_fail.h"
#include "app_lcore.h"
#include "app_opt.h"
#include "crpc_clock.h"
#include "crpc_shm.h"
#include "rpb.h"

static const struct rpb_layer *const layers[] = {
	&rpb_layer_ipc,
	&rpb_layer_tensor,
	&rpb_layer_net,
	&rpb_layer_raw,
};

static _Atomic int interrupted;

/* The second signal finds the default action: it ends the program at once. */
static void
on_signal(int sig)
{
	crpc_store_relaxed(&interrupted, 1);
}

bool
rpb_interrupted(void)
{
	return crpc_load_relaxed(&interrupted) != 0;
}

static const struct rpb_layer *
layer_find(const char *name)
{
	size_t i;

	for (i = 0; i < CRPC_DIM(layers); i++)
		if (strcmp(layers[i]->name, name) == 0)
			return layers[i];
	return NULL;
}

/* Of the layer that is named, or of all. */
static void
help(int argc, char *const *argv)
{
	const struct rpb_layer *layer = NULL;
	size_t i;
	int k;

	for (k = 1; k < argc && layer == NULL; k++)
		layer = layer_find(argv[k]);
	if (layer != NULL) {
		layer->help(stdout);
		return;
	}

	printf("usage: rpcbench [EAL arguments] -- LAYER [options]\n\n"
	       "What a call costs, layer by layer, beside what people use instead.\n\n");
	for (i = 0; i < CRPC_DIM(layers); i++)
		printf("  %-8s %s\n", layers[i]->name, layers[i]->what);
	printf("\nLAYER --help lists the options of a layer. Without hugepages give the EAL "
	       "--no-huge;\n-l 0,1 chooses the two lcores.\n");
}

/* Divide the command line; a layer may come first, without EAL arguments. */
static void
args_split(struct app_args *args, int argc, char **argv)
{
	app_args_split(args, argc, argv);
	if (args->argc == 0 && argc > 1 && layer_find(argv[1]) != NULL)
		*args = (struct app_args){
			.eal_argc = 1, .eal_argv = argv, .argc = argc - 1, .argv = argv + 1};
}

static int
layer_refused(const char *name)
{
	char list[128] = "";
	size_t used = 0, i;

	for (i = 0; i < CRPC_DIM(layers) && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
			i == 0 ? "" : ", ", layers[i]->name);
	if (name == NULL)
		return app_fail(
			"no layer was given; give one of: %s; behind the -- if there are EAL "
			"arguments",
			list);
	return app_fail("layer '%s' is unknown; give one of: %s", name, list);
}

static int
lcores_find(struct rpb *rpb, bool two)
{
	unsigned int second = rte_get_next_lcore(-1U, 1, 0);

	rpb->cpu[0] = app_eal_core_of(rte_get_main_lcore());
	rpb->cpu[1] = second == RTE_MAX_LCORE ? rpb->cpu[0] : app_eal_core_of(second);
	if (second == RTE_MAX_LCORE && !two) {
		snprintf(rpb->lcores, sizeof(rpb->lcores), "%d", rpb->cpu[0]);
		return 0;
	}
	if (rpb->cpu[0] == rpb->cpu[1])
		return app_fail(
			"one core (%d) was found and two lcores are needed; give two before "
			"the --: -l 0,1",
			rpb->cpu[0]);
	snprintf(rpb->lcores, sizeof(rpb->lcores), "%d,%d", rpb->cpu[0], rpb->cpu[1]);
	return 0;
}

static void
signals(void)
{
	struct sigaction on = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	struct sigaction off = {.sa_handler = SIG_IGN};

	sigaction(SIGINT, &on, NULL);
	sigaction(SIGTERM, &on, NULL);
	sigaction(SIGPIPE, &off, NULL);
}

/* The two cores of this rank, of those that it may use. */
static int
ranks_open(struct rpb *rpb, cpu_set_t *set)
{
	int rc = app_boot_open(&rpb->boot);

	if (rc != 0)
		return rc;
	if (rpb->boot.size > 2)
		rc = app_fail_once("%u ranks; give one, or two", rpb->boot.size);
	else if (rpb->boot.size == 2 &&
		(app_boot_watch(&rpb->boot) != 0 || app_lcore_choose(&rpb->boot, 1, set) != 0))
		rc = app_fail_once("the ranks could not exchange their cores");
	if (rc != 0)
		app_boot_close(&rpb->boot);
	return rc;
}

static int
layer_run_ranks(const struct rpb_layer *layer, const struct app_args *args)
{
	struct rpb rpb = {0};
	cpu_set_t set;
	int rc;

	app_eal_cores_default(2, &set);
	rc = ranks_open(&rpb, &set);
	if (rc != 0)
		return rc;
	rc = app_eal_start(args, &set);
	if (rc != 0)
		goto end_ranks;
	signals();
	rc = lcores_find(&rpb, false);
	app_eal_lcores(2, &set);
	if (rc == 0 && app_lcore_shared(&rpb.boot, &set, &rpb.shared) != 0)
		rc = app_fail_once("the ranks could not exchange their lcores");
	if (rc == 0)
		rc = layer->run(&rpb);
	app_eal_stop();
end_ranks:
	app_boot_close(&rpb.boot);
	return rc;
}

static int
layer_run(const struct rpb_layer *layer, const struct app_args *args)
{
	struct rpb rpb = {.boot = {.size = 1}};
	cpu_set_t set;
	int rc;

	if (layer->ranks)
		return layer_run_ranks(layer, args);
	if (layer->pair) {
		crpc_shm_sweep(NULL, "rpcbench."); /* Of runs that were killed. */
		rpb.pair = rpb_pair_start();
		if (rpb.pair == NULL)
			return app_fail("no second process: %s", strerror(errno));
	}
	app_eal_cores_default(2, &set);
	rc = app_eal_start(args, &set);
	if (rc != 0)
		goto end_pair;
	signals();
	rc = lcores_find(&rpb, true);
	if (rc == 0 && rpb.pair != NULL && rpb_pair_pin(rpb.pair, rpb.cpu[1]) != 0)
		rc = app_fail("the second process: %s", rpb_pair_why(rpb.pair));
	if (rc == 0)
		rc = layer->run(&rpb);
	app_eal_stop();
end_pair:
	rpb_pair_end(rpb.pair);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct rpb_layer *layer;
	struct app_args args;
	int rc;

	app_fail_name("rpcbench");
	if (app_args_answer("rpcbench", argc, argv, help))
		return APP_EXIT_OK;
	args_split(&args, argc, argv);
	layer = args.argc == 0 ? NULL : layer_find(args.argv[0]);
	if (layer == NULL)
		return layer_refused(args.argc == 0 ? NULL : args.argv[0]);
	rc = layer->parse(args.argc - 1, args.argv + 1);
	if (rc != 0)
		return rc;
	crpc_clock_init();
	return layer_run(layer, &args);
}
