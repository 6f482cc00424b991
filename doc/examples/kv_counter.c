/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts in a key of a key-value service, so that no count is lost whoever else counts there:
 *
 *     kvd --no-huge -- --name kv --keys 1000 --value-size 64 &
 *     cc -o kv_counter kv_counter.c $(pkg-config --cflags --libs crpc_kv)
 *     ./kv_counter kv 1000 & ./kv_counter kv 1000 & wait
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <crpc_kv.h>
#include <crpc_log.h>

/* Read, add one, write if no other client did meanwhile. Returns the new count, or -errno. */
static int64_t
add_one(struct crpc_kv *kv, const void *key)
{
	struct crpc_kv_how how = {.if_version = true};
	struct crpc_kv_done done;
	uint64_t count;
	int rc;

	do {
		rc = crpc_kv_get(kv, key, 0);
		rc = rc != 0 ? rc : crpc_kv_wait(kv, &done);
		if (rc != 0 && rc != -ENOENT)
			return rc;
		how.version = rc == 0 ? done.version : 0;
		count = 0;
		if (rc == 0)
			memcpy(&count, done.value, sizeof(count));
		count++;
		rc = crpc_kv_put(kv, key, &count, sizeof(count), &how, 0);
		rc = rc != 0 ? rc : crpc_kv_wait(kv, &done);
	} while (rc == -ESTALE || rc == -ENOENT);
	return rc != 0 ? rc : (int64_t)count;
}

int
main(int argc, char **argv)
{
	struct crpc_kv_conf conf = {.name = argc > 1 ? argv[1] : "kv", .connect_ms = 3000};
	uint32_t i, times = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
	struct crpc_kv *kv = crpc_kv_connect(&conf);
	char key[CRPC_KV_KEY_MAX] = "counter";
	int64_t count = 0;

	if (kv == NULL) {
		fprintf(stderr, "no service '%s': %s (%s)\n", conf.name, strerror(errno),
			crpc_log_last());
		return 1;
	}
	for (i = 0; i < times && count >= 0; i++)
		count = add_one(kv, key);
	crpc_kv_close(kv);
	if (count < 0) {
		fprintf(stderr, "counting failed: %s\n", strerror((int)-count));
		return 1;
	}
	printf("%" PRId64 "\n", count);
	return 0;
}
