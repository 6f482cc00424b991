/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owns a segment until it is ended: `shm_owner DIR NAME file|memfd [USERS]`. Says "ready", with
 * that many more locks held, as an RPC server's clients would hold them. For tests of tools.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_log.h"
#include "crpc_shm.h"

int
main(int argc, char **argv)
{
	struct crpc_shm_conf conf = {
			.size = 8192, .kind = CRPC_SHM_KIND('T', 'E', 'S', 'T'), .kind_version = 2};
	struct crpc_shm *seg;
	int i, users = argc == 5 ? atoi(argv[4]) : 0;

	if (argc < 4)
		return 2;
	conf.dir = argv[1];
	conf.name = argv[2];
	conf.memfd = strcmp(argv[3], "memfd") == 0;
	seg = crpc_shm_create(&conf);
	if (seg == NULL) {
		fprintf(stderr, "%s\n", crpc_log_last());
		return 1;
	}
	crpc_shm_ready(seg);
	for (i = 1; i <= users; i++)
		if (crpc_shm_lock_take(seg, (uint32_t)i) == NULL)
			return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		crpc_shm_serve(seg);
		usleep(1000);
	}
}
