/* SPDX-License-Identifier: BSD-3-Clause */
/* benchkv-client: a program without DPDK. */
#include "app_env.h"
#include "app_fail.h"
#include "client.h"
#include "options.h"

static void
help(int argc, char *const *argv)
{
	kv_options_help(KV_PROGRAM_CLIENT);
}

int
main(int argc, char **argv)
{
	app_fail_name("benchkv-client");
	if (app_env_answer("benchkv-client", argc, argv, help))
		return APP_EXIT_OK;
	return kv_client(argc - 1, argv + 1);
}
