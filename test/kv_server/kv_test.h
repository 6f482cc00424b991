/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of stores have in common. */
#ifndef KV_TEST_H
#define KV_TEST_H

#include "kv_snapshot.h"

/* Both steps. @return keys written. */
static inline int64_t
snapshot_write(struct kv_snapshot *snap, struct kv_store *s)
{
	int64_t keys = __crpc_kv_snapshot_copy(snap, s, UINT32_MAX);
	int rc = keys < 0 ? 0 : __crpc_kv_snapshot_commit(snap);

	return rc != 0 ? rc : keys;
}

#endif
