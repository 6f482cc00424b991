/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores of a rank: their sizes, what they begin with, and what is kept of them. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_fail.h"
#include "app_kv.h"
#include "app_stop.h"
#include "crpc_log.h"
#include "map.h"
#include "rank.h"

/* How long ranks may differ in reading their snapshots. */
#define RESTORED_MS 30000

/* The number of a daemon among all owners, as the name of its file ends. */
static uint32_t
owner_of(const struct kv_rank *r, uint32_t daemon)
{
	return r->boot.rank * r->daemons + daemon;
}

/* Every key exists from the start: written by writer 0. */
static int
load_stores(struct kv_rank *r)
{
	uint8_t key[CRPC_KV_KEY_MAX], *value = malloc(r->opt.value_size);
	uint32_t len, key_len = (uint32_t)r->opt.key_size;
	int rc = value == NULL ? -ENOMEM : 0;

	for (uint32_t id = 0; id < kv_rank_keys(r) && rc == 0; id++) {
		kv_key_write(key, key_len, id);
		if (!crpc_kv_server_owns(r->service, key, key_len))
			continue;
		len = app_sizes_of(&r->opt.sizes, app_word(id, 0, 1));
		app_value_fill(value, len, app_word(id, 0, 1));
		rc = crpc_kv_server_load(r->service, key, key_len, value, len);
	}
	free(value);
	return rc;
}

static void
note_removed(const struct kv_rank *r, const char *path)
{
	struct crpc_kv_snapshot_info info;

	for (uint32_t i = 0; i < r->daemons; i++) {
		crpc_kv_server_snapshot_info(r->service, i, &info);
		if (info.removed != 0)
			app_note("%s.%u.new: a run was killed while it wrote this snapshot; the "
				 "unfinished file of %llu bytes is removed, the snapshot before it "
				 "is used",
				path, owner_of(r, i), (unsigned long long)info.removed);
	}
}

/* What an earlier run ended with. */
static int
restore_stores(struct kv_rank *r)
{
	struct crpc_kv_snapshot_info info;
	uint32_t missing;
	int64_t rc = crpc_kv_server_restore(r->service, r->opt.restore, &missing);

	if (rc < 0)
		return app_fail("--restore: %s", crpc_log_last());
	note_removed(r, r->opt.restore);
	r->unrestored = 0;
	for (uint32_t i = 0; i < r->daemons; i++) {
		crpc_kv_server_snapshot_info(r->service, i, &info);
		r->unrestored |= (uint32_t)(info.generation == 0) << i;
	}
	return 0;
}

/* Whether any rank has restored something. */
static bool
any_restored(struct kv_rank *r)
{
	uint8_t some = r->unrestored != (UINT32_C(1) << (r->daemons - 1) << 1) - 1;

	if (app_boot_put(&r->boot, "kv.restored", &some, sizeof(some)) != 0)
		return some != 0;
	for (uint32_t i = 0; i < r->boot.size && some == 0; i++)
		if (i != r->boot.rank &&
			app_boot_take(
				&r->boot, i, "kv.restored", &some, sizeof(some), RESTORED_MS) != 0)
			some = 0;
	return some != 0;
}

int
kv_rank_restored(struct kv_rank *r)
{
	if (r->opt.restore == NULL)
		return 0;
	if (!any_restored(r))
		return app_fail("--restore: expected %s.N of at least one daemon N below %u, found "
				"none; give the --snapshot path of an earlier run",
			r->opt.restore, kv_rank_owners(r));
	for (uint32_t i = 0; i < r->daemons; i++)
		if (r->unrestored & UINT32_C(1) << i)
			app_note("--restore: %s.%u is missing: this daemon begins without keys; "
				 "what it had is lost",
				r->opt.restore, owner_of(r, i));
	return 0;
}

static int
write_snapshots(const struct kv_rank *r)
{
	int64_t keys[CRPC_KV_DAEMONS_MAX], rc = 0;

	for (uint32_t i = 0; i < r->daemons && rc >= 0; i++)
		rc = keys[i] = crpc_kv_server_snapshot_copy(r->service, i, UINT32_MAX);
	if (rc >= 0)
		rc = crpc_kv_server_snapshot_commit(r->service);
	if (rc < 0) {
		app_fail("--snapshot: %s", crpc_log_last());
		return APP_EXIT_RUN;
	}
	for (uint32_t i = 0; i < r->daemons && !r->opt.quiet; i++)
		printf("snapshot %s.%u: %lld keys\n", r->opt.snapshot, owner_of(r, i),
			(long long)keys[i]);
	fflush(stdout);
	return 0;
}

void
kv_rank_snapshot_start(struct kv_rank *r)
{
	if (r->opt.snapshot == NULL)
		return;
	fflush(NULL);
	r->writer = fork();
	if (r->writer != 0)
		return;
	setsid(); /* A launcher kills the group of the rank. */
	_exit(write_snapshots(r));
}

int
kv_rank_snapshot_wait(struct kv_rank *r, bool patient)
{
	int status = 0;
	pid_t pid;

	while (r->writer > 0) {
		if (!patient && app_stopped() != 0) {
			app_note("rank %u: interrupted: the snapshot is completed by process %d, "
				 "also if this one is killed",
				r->boot.rank, (int)r->writer);
			return 0;
		}
		pid = waitpid(r->writer, &status, 0);
		if (pid == r->writer || errno != EINTR)
			break;
	}
	pid = r->writer;
	r->writer = 0;
	/* No process, or memory that a device has and children do not: by ourselves, then. */
	if (pid < 0 || WIFSIGNALED(status))
		return write_snapshots(r);
	return WEXITSTATUS(status);
}

/*
 * Keys that a daemon's store takes: what it begins with; half more for clients of other processes,
 * who may bring new keys; what was asked for; or as many as the memory allows.
 */
int
kv_rank_capacity(struct kv_rank *r)
{
	uint64_t keys = 1, limit = (r->opt.memory_limit + r->daemons - 1) / r->daemons;
	uint64_t asked = r->opt.capacity / r->daemons;
	struct crpc_kv_server_conf *conf = &r->conf;
	uint8_t key[CRPC_KV_KEY_MAX];
	uint32_t mate;

	memset(r->keys, 0, sizeof(r->keys));
	for (uint32_t id = 0; id < kv_rank_keys(r); id++) {
		kv_key_write(key, conf->key_size, id);
		mate = kv_owner(kv_hash(key, conf->key_size), kv_rank_owners(r)) - owner_of(r, 0);
		if (mate < r->daemons)
			keys = crpc_max(++r->keys[mate], keys);
	}
	if (r->opt.serve != 0)
		keys += keys / 2;
	conf->capacity = (uint32_t)crpc_max(r->opt.empty && asked != 0 ? 1 : keys, asked);
	if (limit == 0)
		return 0;
	if (crpc_kv_server_store_bytes(conf) > limit)
		return app_fail(
			"--memory-limit %lluM: the stores of %u daemons with %u keys each take "
			"about %llu MiB; give more, or fewer --keys",
			(unsigned long long)r->opt.memory_limit >> 20, r->daemons, conf->capacity,
			(unsigned long long)(crpc_kv_server_store_bytes(conf) * r->daemons >> 20) +
				1);
	if (kv_rank_large(r)) {
		conf->block_bytes = crpc_max(limit - crpc_kv_server_store_bytes(conf), 1u);
		return 0;
	}
	for (uint32_t step = 1u << 30; step != 0 && asked == 0; step /= 2) {
		conf->capacity += step;
		if (conf->capacity > APP_KEYS_MAX || crpc_kv_server_store_bytes(conf) > limit)
			conf->capacity -= step;
	}
	return 0;
}

int
kv_rank_fill(struct kv_rank *r)
{
	int rc;

	/* A path that cannot be written ends no long run. */
	if (r->opt.snapshot != NULL) {
		if (crpc_kv_server_snapshot_claim(r->service, r->opt.snapshot) != 0)
			return app_fail("--snapshot: %s", crpc_log_last());
		note_removed(r, r->opt.snapshot);
	}
	crpc_kv_server_version_begin(r->service, app_kv_version());
	if (r->opt.restore != NULL)
		return restore_stores(r);
	rc = r->opt.empty ? 0 : load_stores(r);
	if (rc == 0)
		return 0;
	return app_fail("the values of %u keys do not fit --memory-limit %lluM: %s; give more, "
			"fewer --keys, or --empty",
		r->conf.capacity, (unsigned long long)r->opt.memory_limit >> 20, strerror(-rc));
}
