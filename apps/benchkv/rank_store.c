/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores of a rank: their sizes, what they begin with, and what is kept of them. */
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_hash_crc.h>

#include "app_fail.h"
#include "crpc_log.h"
#include "map.h"
#include "rank.h"

/* How long ranks may differ in reading their snapshots. */
#define RESTORED_MS 30000

/* Write a key. @return its length, which follows from its number. */
static uint32_t
key_write(const struct kv_rank *r, void *key, uint32_t id)
{
	uint32_t len = kv_sizes_of(&r->opt.key_sizes, id);

	kv_key_write(key, len, id);
	return len;
}

/* The daemon of ours that owns a key; NULL: another rank's. */
static struct kv_daemon *
owner_of(const struct kv_rank *r, const void *key, uint32_t key_len)
{
	uint32_t owner = kv_owner(kv_hash(key, key_len), kv_rank_owners(r));
	uint32_t mate = owner - r->boot.rank * r->daemons;

	return mate < r->daemons ? r->daemon[mate] : NULL;
}

/* Every key exists from the start: written by writer 0. */
static int
load_stores(struct kv_rank *r)
{
	uint8_t key[KV_KEY_MAX], *value = malloc(r->opt.value_size);
	uint32_t id, len, key_len;
	struct kv_daemon *d;
	int rc = value == NULL ? -ENOMEM : 0;

	for (id = 0; id < kv_rank_keys(r) && rc == 0; id++) {
		key_len = key_write(r, key, id);
		d = owner_of(r, key, key_len);
		if (d == NULL)
			continue;
		len = kv_sizes_of(&r->opt.sizes, kv_word(id, 0, 1));
		kv_value_fill(value, len, kv_word(id, 0, 1));
		rc = kv_store_load(d->store, key, key_len, value, len);
	}
	free(value);
	return rc;
}

/* Chooses the size of each key; 0: all have one. */
static uint32_t
key_mix(const struct kv_rank *r)
{
	uint32_t crc = 0, id, len;

	for (id = 0; id < 1024 && kv_rank_key_min(r) != 0; id++) {
		len = kv_sizes_of(&r->opt.key_sizes, id);
		crc = rte_hash_crc_4byte(len, crc);
	}
	return crc;
}

static struct kv_snapshot
snapshot_of(const struct kv_rank *r, const char *path, uint32_t daemon)
{
	return (struct kv_snapshot){
		.path = path,
		.owner = r->boot.rank * r->daemons + daemon,
		.owners = kv_rank_owners(r),
		.key_size = (uint32_t)r->opt.key_size,
		.key_min = kv_rank_key_min(r),
		.key_mix = key_mix(r),
	};
}

/* What an earlier run ended with. */
static int
restore_stores(struct kv_rank *r)
{
	struct kv_snapshot snap;
	int64_t rc;
	uint32_t i;

	r->unrestored = 0;
	for (i = 0; i < r->daemons; i++) {
		snap = snapshot_of(r, r->opt.restore, i);
		rc = kv_snapshot_read(&snap, r->daemon[i]->store);
		if (rc == -ENOENT)
			r->unrestored |= UINT32_C(1) << i;
		else if (rc < 0)
			return app_fail("--restore: %s", crpc_log_last());
	}
	return 0;
}

/* Whether any rank has restored something. */
static bool
any_restored(struct kv_rank *r)
{
	uint8_t some = r->unrestored != (UINT32_C(1) << (r->daemons - 1) << 1) - 1;
	uint32_t i;
	size_t len;
	void *buf;

	if (app_boot_put(&r->boot, "kv.restored", &some, sizeof(some)) != 0)
		return some != 0;
	for (i = 0; i < r->boot.size && some == 0; i++) {
		if (i == r->boot.rank ||
			app_boot_get(&r->boot, i, "kv.restored", &buf, &len, RESTORED_MS) != 0)
			continue;
		some = len == sizeof(some) ? *(uint8_t *)buf : 0;
		free(buf);
	}
	return some != 0;
}

int
kv_rank_restored(struct kv_rank *r)
{
	uint32_t i;

	if (r->opt.restore == NULL)
		return 0;
	if (!any_restored(r))
		return app_fail("--restore: expected %s.N of at least one daemon N below %u, found "
				"none; give the --snapshot path of an earlier run",
			r->opt.restore, kv_rank_owners(r));
	for (i = 0; i < r->daemons; i++)
		if (r->unrestored & UINT32_C(1) << i)
			app_note("--restore: %s.%u is missing: this daemon begins without keys; "
				 "what it had is lost",
				r->opt.restore, r->boot.rank * r->daemons + i);
	return 0;
}

/* Before anything else is done for it: a path that cannot be written ends no long run. */
static int
claim_snapshots(struct kv_rank *r)
{
	uint32_t i;

	for (i = 0; i < r->daemons && r->opt.snapshot != NULL; i++) {
		r->snapshot[i] = snapshot_of(r, r->opt.snapshot, i);
		if (kv_snapshot_claim(&r->snapshot[i]) != 0)
			return app_fail("--snapshot: %s", crpc_log_last());
	}
	return 0;
}

static int
write_snapshots(const struct kv_rank *r)
{
	const struct kv_snapshot *snap;
	int64_t keys;
	uint32_t i;

	for (i = 0; i < r->daemons; i++) {
		snap = &r->snapshot[i];
		keys = kv_snapshot_write(snap, r->daemon[i]->store);
		if (keys < 0) {
			app_fail("--snapshot: %s", crpc_log_last());
			return APP_EXIT_RUN;
		}
		if (!r->opt.quiet)
			printf("snapshot %s.%u: %lld keys\n", snap->path, snap->owner,
				(long long)keys);
		fflush(stdout);
	}
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
		if (!patient && crpc_load_relaxed(&kv_run_signal) != 0) {
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

/* On the lcore's NUMA node if the EAL has memory there, else anywhere: see the map. */
static struct kv_store *
create_store(struct kv_store_conf *conf, unsigned int lcore)
{
	struct kv_store *s;

	conf->socket = (int)kv_map_node(lcore);
	s = kv_store_create(conf);
	if (s != NULL || conf->socket == SOCKET_ID_ANY)
		return s;
	conf->socket = SOCKET_ID_ANY;
	return kv_store_create(conf);
}

/*
 * Keys that a daemon's store takes: what it begins with; half more for clients of other processes,
 * who may bring new keys; what was asked for; or as many as the memory allows.
 */
static int
choose_capacity(const struct kv_rank *r, const struct kv_daemon *d, struct kv_store_conf *conf)
{
	uint64_t keys = crpc_max(d->keys, 1), limit = (r->opt.memory_mib << 20) / r->daemons;
	uint64_t asked = r->opt.capacity / r->daemons;
	uint32_t step;

	if (r->opt.serve != 0)
		keys += keys / 2;
	conf->capacity = (uint32_t)crpc_max(r->opt.empty && asked != 0 ? 1 : keys, asked);
	if (limit == 0)
		return 0;
	if (kv_store_bytes(conf) > limit)
		return app_fail(
			"--memory-limit %llu: the stores of %u daemons with %u keys each take "
			"about %llu MiB; give more, or fewer --keys",
			(unsigned long long)r->opt.memory_mib, r->daemons, conf->capacity,
			(unsigned long long)(kv_store_bytes(conf) * r->daemons >> 20) + 1);
	if (kv_rank_large(r)) {
		conf->block_bytes = crpc_max(limit - kv_store_bytes(conf), 1u);
		return 0;
	}
	for (step = 1u << 30; step != 0 && asked == 0; step /= 2) {
		conf->capacity += step;
		if (conf->capacity > KV_KEYS_MAX || kv_store_bytes(conf) > limit)
			conf->capacity -= step;
	}
	return 0;
}

/*
 * Blocks that clients of this daemon can hold at once: of each call that may be open its request's,
 * its answer's if it names a version that the key does not have, and the one before in its place,
 * which a client has until its next poll. And each client makes one more than it can send.
 */
static uint64_t
large_blocks(const struct kv_rank *r)
{
	return r->opt.clients * (3 * r->opt.qd + 1) + r->opt.serve * (3 * kv_rank_depth(r) + 1);
}

/*
 * The arena of a daemon's large values: all that the store may have, what travels, and a quarter
 * more, as blocks of many sizes do not fill it evenly. As with segments: the first free number,
 * unless the user gave a name.
 */
static int
open_blocks(struct kv_rank *r, uint32_t i, struct kv_store_conf *conf)
{
	/* Classes of blocks are at most a quarter apart. */
	uint64_t msg = kv_rank_req_max(r) + KV_EXTRAS_MAX;
	uint64_t block = crpc_align_up(msg + msg / 4, 1u << 16), bytes;
	uint64_t stored = (uint64_t)conf->capacity * (r->opt.value_size + r->opt.value_size / 2);
	uint32_t at, attempts = r->opt.name == NULL ? KV_SEGMENT_ATTEMPTS : 1;
	struct kv_daemon *d = r->daemon[i];
	char name[256];
	int rc = -1;

	if (conf->block_bytes != 0)
		stored = crpc_min(stored, conf->block_bytes);
	bytes = stored + stored / 4 + (large_blocks(r) + 4) * block;
	for (at = 0; at < attempts && rc != 0; at++) {
		kv_rank_segment_name(r, at, i, name, sizeof(name));
		crpc_log_clear();
		rc = crpc_kv_blocks_create(&d->blocks, name, bytes, block,
			(uint32_t)(r->opt.serve + r->seats + 16));
		if (rc != 0 && rc != -EADDRINUSE && rc != -EACCES)
			break;
	}
	conf->arena = d->blocks.cache;
	if (rc == 0)
		return 0;
	return app_fail("cannot make a segment of %llu MiB for values in /dev/shm: %s (%s); give "
			"fewer --keys, a --memory-limit, a smaller --serve, or free space there",
		(unsigned long long)(bytes >> 20), strerror(-rc), crpc_log_last());
}

/*
 * Versions begin with the time, in ns: above all that earlier runs gave out, also one that was
 * killed, as no store gives out one per ns.
 */
static uint64_t
version_begin(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

int
kv_rank_open_stores(struct kv_rank *r)
{
	uint8_t key[KV_KEY_MAX];
	struct kv_store_conf conf = {
		.key_size = (uint32_t)r->opt.key_size,
		.key_min = kv_rank_key_min(r),
		.value_max = (uint32_t)r->opt.value_size,
	};
	uint64_t bytes = 0;
	struct kv_daemon *d;
	char name[32];
	uint32_t id, i;

	if (claim_snapshots(r) != 0)
		return APP_EXIT_USAGE;
	for (id = 0; id < kv_rank_keys(r); id++) {
		d = owner_of(r, key, key_write(r, key, id));
		if (d != NULL)
			d->keys++;
	}
	conf.name = name;
	for (i = 0; i < r->daemons; i++) {
		d = r->daemon[i];
		snprintf(name, sizeof(name), "kv.%u", i);
		if (choose_capacity(r, d, &conf) != 0)
			return APP_EXIT_USAGE;
		bytes += kv_store_bytes(&conf);
		if (kv_rank_large(r) && open_blocks(r, i, &conf) != 0)
			return APP_EXIT_USAGE;
		d->store = create_store(&conf, kv_rank_lcore(r, i));
		if (d->store == NULL)
			break;
		kv_store_version_raise(d->store, version_begin());
		kv_batch_init(&d->batch, d->store);
	}
	if (i == r->daemons && r->opt.restore != NULL)
		return restore_stores(r);
	if (i == r->daemons && (r->opt.empty || load_stores(r) == 0))
		return 0;
	if (i == r->daemons && kv_rank_large(r))
		return app_fail("the values of %u keys do not fit --memory-limit %llu; give more, "
				"fewer --keys, or --empty",
			conf.capacity, (unsigned long long)r->opt.memory_mib);
	return app_fail(
		"the store of %u keys takes about %llu MiB of EAL memory and did not get "
		"it; give more with -m MIB before the --, or fewer --keys",
		conf.capacity, (unsigned long long)(bytes >> 20) + 1);
}
