/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <time.h>

#include "app_fail.h"
#include "app_kv.h"
#include "crpc_log.h"

#define EXCHANGE_MS 30000
#define KEY_LEN     32

/* Publish the addresses of our endpoints to each rank. */
static int
publish(struct app_boot *boot, struct crpc_kv_server *s)
{
	size_t max = crpc_kv_server_address_max(s);
	uint8_t *blob = malloc(max);
	int64_t rc = blob == NULL ? -ENOMEM : 0;
	char key[KEY_LEN];

	for (uint32_t peer = 0; peer < boot->size && rc >= 0; peer++) {
		if (peer == boot->rank)
			continue;
		rc = crpc_kv_server_address(s, peer, blob, max);
		snprintf(key, sizeof(key), "kv.addr.%u", peer);
		if (rc >= 0)
			rc = app_boot_put(boot, key, blob, (size_t)rc);
	}
	free(blob);
	return (int)rc;
}

static int
connect_to(struct app_boot *boot, struct crpc_kv_server *s, uint32_t peer)
{
	char key[KEY_LEN];
	void *blob;
	size_t len;
	int rc;

	snprintf(key, sizeof(key), "kv.addr.%u", boot->rank);
	rc = app_boot_get(boot, peer, key, &blob, &len, EXCHANGE_MS);
	if (rc != 0)
		return rc;
	rc = crpc_kv_server_connect(s, peer, blob, len);
	free(blob);
	if (rc == 0 && crpc_kv_server_peer(s, peer) != CRPC_KV_PEER_UP)
		rc = -ECONNREFUSED;
	return rc;
}

int
app_kv_connect(struct app_boot *boot, struct crpc_kv_server *s)
{
	uint32_t i;
	int rc;

	if (boot->size == 1)
		return 0;
	crpc_log_clear();
	rc = publish(boot, s);
	if (rc == 0)
		rc = app_boot_fence(boot, EXCHANGE_MS);
	if (rc != 0)
		return app_fail("the ranks could not exchange addresses: %s (%s); start again",
			strerror(-rc), crpc_log_last());
	for (i = 0; i < boot->size && rc == 0; i++)
		if (i != boot->rank)
			rc = connect_to(boot, s, i);
	if (rc == 0)
		return 0;
	return app_fail("cannot connect to rank %u: %s (%s); all ranks need the same version and "
			"options, and a network between them",
		i - 1, strerror(-rc), crpc_log_last());
}

uint64_t
app_kv_version(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}
