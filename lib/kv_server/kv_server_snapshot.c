/* SPDX-License-Identifier: BSD-3-Clause */
/* The snapshots of a server: one of each daemon's store (kv_snapshot.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "crpc_log.h"
#include "kv_server.h"

static struct kv_snapshot
snapshot_of(const struct crpc_kv_server *s, const char *path, uint32_t daemon)
{
	return (struct kv_snapshot){
		.path = path,
		.owner = s->first + daemon,
		.owners = s->owners,
		.key_size = s->conf.key_size,
	};
}

int
crpc_kv_server_snapshot_claim(struct crpc_kv_server *s, const char *path)
{
	struct kv_snapshot *snap;
	int rc = 0;

	if (strlen(path) >= sizeof(s->snapshot))
		return crpc_fail(-ENAMETOOLONG, "snapshot %s: at most %zu bytes", path,
			sizeof(s->snapshot) - 1);
	for (uint32_t i = 0; i < s->conf.daemons && rc == 0; i++) {
		snap = &s->part[i].snapshot;
		if (snap->fresh == NULL) {
			snprintf(s->snapshot, sizeof(s->snapshot), "%s", path);
			*snap = snapshot_of(s, s->snapshot, i);
		}
		rc = __crpc_kv_snapshot_claim(snap);
	}
	return rc;
}

int64_t
crpc_kv_server_snapshot_copy(struct crpc_kv_server *s, uint32_t daemon, uint32_t places)
{
	return __crpc_kv_snapshot_copy(&s->part[daemon].snapshot, s->part[daemon].d->store, places);
}

int
crpc_kv_server_snapshot_write(struct crpc_kv_server *s, uint32_t daemon)
{
	return __crpc_kv_snapshot_write(&s->part[daemon].snapshot);
}

int
crpc_kv_server_snapshot_commit(struct crpc_kv_server *s)
{
	int rc = 0, one;

	for (uint32_t i = 0; i < s->conf.daemons; i++) {
		one = __crpc_kv_snapshot_commit(&s->part[i].snapshot);
		rc = rc == 0 ? one : rc;
	}
	return rc;
}

int64_t
crpc_kv_server_restore(struct crpc_kv_server *s, const char *path, uint32_t *missing)
{
	struct kv_snapshot snap;
	int64_t rc, keys = 0;

	*missing = 0;
	for (uint32_t i = 0; i < s->conf.daemons; i++) {
		snap = snapshot_of(s, path, i);
		rc = __crpc_kv_snapshot_read(&snap, s->part[i].d->store);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		*missing += rc == -ENOENT;
		keys += rc == -ENOENT ? 0 : rc;
	}
	__crpc_kv_server_hand_over(s);
	return keys;
}
