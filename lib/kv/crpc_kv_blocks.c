/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "crpc_kv_blocks.h"
#include "crpc_log.h"

#define BLOCKS_KIND    CRPC_SHM_KIND('K', 'V', 'B', 'L')
#define BLOCKS_VERSION 1u
/* Where in the segment the arena lies. */
#define BLOCKS_OFF     4096
/* Of a segment's name. */
#define NAME_LEN       48

static int
name_of(char name[NAME_LEN], const char *of)
{
	if (snprintf(name, NAME_LEN, "%s.values", of) < NAME_LEN)
		return 0;
	return crpc_fail(-EINVAL,
		"the name '%s' is too long for a segment of values beside it: give one of at most "
		"%d characters",
		of, NAME_LEN - 8);
}

static int
arena_join(struct crpc_kv_blocks *b, struct crpc_shm *seg)
{
	b->arena = crpc_arena_attach(seg, BLOCKS_OFF);
	if (b->arena == NULL)
		return -errno;
	b->cache = crpc_arena_join(b->arena, NULL);
	return b->cache == NULL ? -errno : 0;
}

int
crpc_kv_blocks_create(struct crpc_kv_blocks *b, const char *name, uint64_t bytes, uint64_t block,
	uint32_t members, mode_t mode, gid_t gid)
{
	struct crpc_arena_conf conf = {.max_members = members, .max_block = block};
	uint64_t len = crpc_arena_size(&conf, bytes);
	char values[NAME_LEN];
	struct crpc_shm_conf shm = {
		.name = values,
		.size = BLOCKS_OFF + len,
		.kind = BLOCKS_KIND,
		.kind_version = BLOCKS_VERSION,
		.mode = mode,
		.gid = gid,
	};
	int rc = name_of(values, name);

	*b = (struct crpc_kv_blocks){0};
	if (rc != 0)
		return rc;
	if (len == 0)
		return crpc_fail(-ENOSPC, "no arena has %llu bytes", (unsigned long long)bytes);
	b->owned = crpc_shm_create(&shm);
	if (b->owned == NULL)
		return -errno;
	rc = crpc_arena_format(b->owned, BLOCKS_OFF, len, &conf);
	if (rc == 0) {
		crpc_shm_ready(b->owned);
		rc = arena_join(b, b->owned);
	}
	if (rc != 0)
		crpc_kv_blocks_close(b);
	return rc;
}

int
crpc_kv_blocks_join(struct crpc_kv_blocks *b, const struct crpc_kv_blocks *of)
{
	*b = (struct crpc_kv_blocks){.arena = of->arena, .shared = true};
	b->cache = crpc_arena_join(of->arena, NULL);
	return b->cache == NULL ? -errno : 0;
}

int
crpc_kv_owner_check(uid_t owner, uid_t trust_uid)
{
	uid_t us = geteuid();

	if (owner == us || owner == 0 || us == 0 || owner == trust_uid)
		return 0;
	return crpc_fail(-EACCES,
		"the service's memory belongs to user %u; expected that of user %u, of root, or of "
		"conf.trust_uid, found %u: trust that user, or give the name of another service",
		(unsigned int)owner, (unsigned int)us, (unsigned int)trust_uid);
}

int
crpc_kv_blocks_attach(struct crpc_kv_blocks *b, const char *dir, const char *name,
	uint32_t timeout_ms, uid_t trust_uid)
{
	char values[NAME_LEN];
	int rc = name_of(values, name);

	*b = (struct crpc_kv_blocks){0};
	if (rc != 0)
		return rc;
	b->attached = crpc_shm_attach(dir, values, BLOCKS_KIND, BLOCKS_VERSION, timeout_ms);
	rc = b->attached == NULL ? -errno
				 : crpc_kv_owner_check(crpc_shm_owner_uid(b->attached), trust_uid);
	if (rc == 0)
		rc = arena_join(b, b->attached);
	if (rc != 0)
		crpc_kv_blocks_close(b);
	return rc;
}

void
crpc_kv_blocks_close(struct crpc_kv_blocks *b)
{
	crpc_arena_leave(b->cache);
	if (!b->shared)
		crpc_arena_detach(b->arena);
	crpc_shm_detach(b->attached);
	crpc_shm_free(b->owned);
	*b = (struct crpc_kv_blocks){0};
}

void
crpc_kv_blocks_answers(const struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	struct crpc_ipc_block block;

	for (uint32_t i = 0; i < n; i++) {
		if (done[i].status != 0 || crpc_ipc_client_block(c, &done[i], &block) != 0)
			continue;
		if (!crpc_kv_block_read(&block, &done[i].data, &done[i].len))
			done[i].len = 0;
	}
}
