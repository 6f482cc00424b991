/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_shm.h"
#include "rpb.h"

static const struct rpb_layer *const layers[] = {
	&rpb_layer_ipc,
	&rpb_layer_tensor,
	&rpb_layer_net,
	&rpb_layer_raw,
};

const char *rpb_transports[APP_LIST_MAX + 1];

static const struct rpb_layer *
layer_find(const char *name)
{
	for (size_t i = 0; i < CRPC_DIM(layers); i++)
		if (strcmp(layers[i]->name, name) == 0)
			return layers[i];
	return NULL;
}

static void
layer_help(const struct rpb_layer *layer)
{
	app_ways_names(rpb_transports, layer->ways, layer->nways);
	printf("usage: rpcbench [EAL arguments] -- %s [options]\n\n%s\n", layer->name,
		layer->about);
	app_opt_help(layer->opts, layer->nopts, stdout);
	if (layer->notes != NULL)
		printf("\n%s", layer->notes);
	app_ways_help(layer->ways, layer->nways, stdout);
}

/* Of the layer that is named, or of all. */
static void
help(int argc, char *const *argv)
{
	const struct rpb_layer *layer = NULL;

	for (int k = 1; k < argc && layer == NULL; k++)
		layer = layer_find(argv[k]);
	if (layer != NULL) {
		layer_help(layer);
		return;
	}

	printf("usage: rpcbench [EAL arguments] -- LAYER [options]\n\n"
	       "What a call costs, layer by layer, beside what people use instead.\n\n");
	for (size_t i = 0; i < CRPC_DIM(layers); i++)
		printf("  %-8s %s\n", layers[i]->name, layers[i]->what);
	printf("\nLAYER --help lists the options of a layer. Without hugepages give the EAL "
	       "--no-huge;\n-l 0,1 chooses the two lcores.\n");
}

static int
layer_refused(const char *name)
{
	char list[128] = "";
	size_t used = 0;

	for (size_t i = 0; i < CRPC_DIM(layers) && used < sizeof(list); i++)
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
layer_parse(const struct rpb_layer *layer, int argc, char **argv)
{
	struct rpb_opt *o = layer->opt;
	int rc;

	app_ways_names(rpb_transports, layer->ways, layer->nways);
	rc = app_opt_parse(layer->opts, layer->nopts, argc, argv);
	if (rc == 0 && layer->check != NULL)
		rc = layer->check();
	if (rc == 0)
		rc = app_ways_choose(&o->transports, layer->ways, layer->nways);
	return rc != 0 ? rc : app_json_check("json", o->json);
}

static int
layer_run(const struct rpb_layer *layer, const struct app_args *args)
{
	static struct app_party party;
	struct rpb_run run = {.layer = layer, .opt = layer->opt, .party = &party};
	int rc;

	crpc_shm_sweep(NULL, "rpcbench."); /* Of runs that were killed. */
	rc = layer->device ? app_party_start(&party, args, layer->opt->device)
			   : app_party_start_process(&party, args);
	if (rc != 0)
		return rc;
	party.out.common = json_pack("{s:s}", "layer", layer->name);
	rc = app_party_run(&party,
		&(struct app_bench){
			"rpcbench", run.opt->json, layer->prepare, layer->run, &run});
	crpc_shm_sweep(NULL, "rpcbench."); /* Of a second process that was killed. */
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
	/* A layer may come first, without EAL arguments. */
	app_args_split(&args, argc, argv, argc > 1 && layer_find(argv[1]) != NULL);
	layer = args.argc == 0 ? NULL : layer_find(args.argv[0]);
	if (layer == NULL)
		return layer_refused(args.argc == 0 ? NULL : args.argv[0]);
	rc = layer_parse(layer, args.argc - 1, args.argv + 1);
	if (rc != 0)
		return rc;
	crpc_clock_init();
	return layer_run(layer, &args);
}
