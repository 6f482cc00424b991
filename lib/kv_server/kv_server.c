/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <numa.h>

#include "crpc_log.h"
#include "crpc_mem.h"
#include "kv_server.h"
#include "kv_store_size.h"

/* Threads of this process that join the arena of a daemon, beside its clients. */
#define MEMBERS_OWN 144

/* ---- sizes ---- */

static int
sizes_check(const struct crpc_kv_server_conf *c)
{
	/* Larger values are in an arena that is shared by way of ipc. */
	uint32_t max = c->front != NULL ? CRPC_KV_VALUE_INLINE : CRPC_KV_VALUE_MAX;

	if (c->key_size < CRPC_KV_KEY_MIN || c->key_size > CRPC_KV_KEY_MAX ||
		c->value_max < CRPC_KV_VALUE_MIN || c->value_max > max || c->capacity == 0)
		return crpc_fail(-EINVAL,
			"server: expected keys of %u to %u bytes, values of %u to %u and a "
			"capacity, found keys of %u bytes, values of %u, capacity %u",
			CRPC_KV_KEY_MIN, CRPC_KV_KEY_MAX, CRPC_KV_VALUE_MIN, max, c->key_size,
			c->value_max, c->capacity);
	return 0;
}

static int
conf_fill(struct crpc_kv_server_conf *c, const struct crpc_kv_server_conf *conf)
{
	*c = *conf;
	c->ranks = (uint32_t)crpc_max(c->ranks, 1u);
	c->daemons = (uint32_t)crpc_max(c->daemons, 1u);
	c->key_size = c->key_size == 0 ? 8 : c->key_size;
	c->value_max = c->value_max == 0 ? 8 : c->value_max;
	if (c->depth == 0)
		c->depth = kv_is_large(c) ? CRPC_KV_DEPTH_LARGE : CRPC_KV_DEPTH;
	if (c->calls == 0)
		c->calls = c->clients * c->depth;
	if (c->ranks > CRPC_KV_RANKS_MAX || c->rank >= c->ranks ||
		c->daemons > CRPC_KV_DAEMONS_MAX || c->ranks > CRPC_KV_OWNERS_MAX / c->daemons)
		return crpc_fail(-EINVAL,
			"server: expected rank below ranks, at most %u ranks, %u daemons of each "
			"and %u of all, found rank %u of %u with %u daemons",
			CRPC_KV_RANKS_MAX, CRPC_KV_DAEMONS_MAX, CRPC_KV_OWNERS_MAX, c->rank,
			c->ranks, c->daemons);
	if (c->calls == 0 || (c->clients == 0) != (c->front != NULL) ||
		(c->clients != 0 && c->name == NULL) || c->writer_end < c->writer_first)
		return crpc_fail(-EINVAL,
			"server: expected a name and clients, or a front and calls, found "
			"%u clients, %u calls, writer ids %u to %u",
			c->clients, c->calls, c->writer_first, c->writer_end);
	return sizes_check(c);
}

uint64_t
crpc_kv_server_store_bytes(const struct crpc_kv_server_conf *conf)
{
	return kv_size_bytes(conf);
}

/* ---- making one ---- */

/* From now on memory that this thread touches first comes from the daemon's node, if it can. */
static void
near(const struct crpc_kv_server_conf *c, uint32_t i)
{
	if (c->place == NULL)
		return;
	crpc_mem_here_set(i == c->daemons ? NULL : &c->place[i]);
	if (numa_available() < 0 || numa_max_node() == 0)
		return;
	if (i == c->daemons)
		numa_set_localalloc();
	else if (c->place[i].node >= 0 && c->place[i].node <= numa_max_node())
		numa_set_preferred(c->place[i].node);
}

static void
segment_name(const struct crpc_kv_server_conf *c, uint32_t i, char *buf, size_t len)
{
	if (c->ranks == 1 && c->daemons == 1)
		snprintf(buf, len, "%s", c->name);
	else if (c->daemons == 1)
		snprintf(buf, len, "%s.%u", c->name, c->rank);
	else
		snprintf(buf, len, "%s.%u.%u", c->name, c->rank, i);
}

/*
 * The arena of a daemon's large values: all that the store may have, what travels, and a quarter
 * more, as blocks of many sizes do not fill it evenly. Clients can hold, of each call that may be
 * open, the block of the request, that of the answer, and the one before in its place until the
 * next poll; and each makes one more than it can send.
 */
static int
open_blocks(struct crpc_kv_server *s, struct kv_part *p)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	/* Classes of blocks are at most a quarter apart. */
	uint64_t msg = kv_req_max(c) + CRPC_KV_EXTRAS_MAX;
	uint64_t block = crpc_align_up(msg + msg / 4, 1u << 16), bytes;
	uint64_t stored = (uint64_t)c->capacity * (c->value_max + c->value_max / 2);
	int rc;

	if (c->block_bytes != 0)
		stored = crpc_min(stored, c->block_bytes);
	bytes = stored + stored / 4 +
		((uint64_t)c->clients * (3 * (uint64_t)c->depth + 1) + 4) * block;
	rc = crpc_kv_blocks_create(
		&p->d->blocks, p->segment, bytes, block, c->clients + MEMBERS_OWN, c->mode, c->gid);
	return rc == 0 ? 0
		       : crpc_fail(rc,
				 "segment %s: %llu MiB for values cannot be made in /dev/shm: %s; "
				 "give fewer keys, clients or a memory limit, or free space there",
				 p->segment, (unsigned long long)(bytes >> 20), strerror(-rc));
}

static int
open_segment(struct crpc_kv_server *s, struct kv_part *p)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	uint64_t room =
		c->plain ? sizeof(struct kv_resp_hdr) + sizeof(struct kv_info) : CRPC_KV_RESP_ROOM;
	struct crpc_ipc_server_conf ipc = {
		.name = p->segment,
		.max_clients = c->clients,
		.depth = c->depth,
		.req_max = (uint32_t)crpc_min(kv_req_max(c), CRPC_KV_REQ_MAX),
		.resp_max = (uint32_t)crpc_max(crpc_min(kv_resp_max(c), CRPC_KV_RESP_MAX), room),
		.mode = c->mode,
		.gid = c->gid,
		.huge = c->huge,
		.client_block_bytes = c->client_block_bytes,
	};
	int rc = 0;

	if (c->front != NULL)
		return 0;
	if (kv_is_large(c))
		rc = open_blocks(s, p);
	ipc.arena = p->d->blocks.cache;
	if (rc != 0)
		return rc;
	p->d->ipc = crpc_ipc_server_create(&ipc);
	return p->d->ipc == NULL ? -errno : 0;
}

/* A service that was killed may have had more ranks and daemons: what it left goes. */
static void
sweep_segments(const struct crpc_kv_server_conf *c)
{
	char prefix[64];

	if ((size_t)snprintf(prefix, sizeof(prefix), "%s.", c->name) < sizeof(prefix))
		crpc_shm_sweep(NULL, prefix);
}

static int
open_store(struct crpc_kv_server *s, uint32_t i)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	struct crpc_kv_daemon *d = s->part[i].d;
	char name[32];

	snprintf(name, sizeof(name), "kv.%p.%u", (void *)s, i);
	if (c->place != NULL && c->place[i].node >= 0)
		d->store = __crpc_kv_store_create(c, name, c->place[i].node, d->blocks.cache);
	if (d->store == NULL)
		d->store = __crpc_kv_store_create(c, name, SOCKET_ID_ANY, d->blocks.cache);
	if (d->store == NULL)
		return crpc_fail(-errno,
			"store: %u keys take about %llu MiB of EAL memory, which it did not get; "
			"give more with -m, or fewer keys",
			c->capacity, (unsigned long long)(kv_size_bytes(c) >> 20) + 1);
	return 0;
}

static int
open_net(struct crpc_kv_server *s, uint32_t i)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	struct kv_part *p = &s->part[i];
	int rc;

	if (c->ranks == 1 || (c->front != NULL && !c->front->passes))
		return 0;
	rc = __crpc_kv_net_open(&p->net, c, i, &s->fate);
	p->d->net = &p->net;
	if (rc == 0 || p->net.dev == NULL)
		return rc;
	return crpc_fail(rc,
		"%s: endpoints to %u ranks cannot be made: %s (%s); start fewer ranks, daemons or "
		"clients, or raise the memlock limit",
		p->net.device, c->ranks - 1, strerror(-rc), crpc_log_last());
}

/* The flux between the daemons. What other ranks may send us counts too if we pass it on. */
static int
open_hops(struct crpc_kv_server *s)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	uint32_t calls = c->calls * (c->by_number ? c->ranks : 1);
	uint32_t msg_max = (uint32_t)crpc_max(kv_req_max(c), kv_resp_max(c));
	struct crpc_flux_attr attr = __crpc_kv_hop_flux_attr(c->daemons, calls, msg_max);
	int rc = 0;

	if (c->daemons == 1 || (c->front != NULL && !c->front->passes))
		return 0;
	s->flux = crpc_flux_create(&attr);
	if (s->flux == NULL)
		return -errno;
	for (uint32_t i = 0; i < c->daemons && rc == 0; i++) {
		near(c, i);
		rc = __crpc_kv_hop_open(&s->part[i].hop, s->flux, i, c->daemons, calls, msg_max);
		s->part[i].d->hop = &s->part[i].hop;
	}
	for (uint32_t i = 0; i < c->daemons && rc == 0; i++) {
		near(c, i);
		rc = __crpc_kv_hop_connect(&s->part[i].hop, i);
	}
	return rc;
}

static int
create_daemon(struct crpc_kv_server *s, uint32_t i)
{
	const struct crpc_kv_server_conf *c = &s->conf;
	uint32_t writers = (c->writer_end - c->writer_first) / s->owners;
	struct crpc_kv_daemon *d = crpc_mem_alloc("kv_daemon", sizeof(*d), CRPC_CACHE_GUARD, NULL);

	if (d == NULL)
		return -errno;
	s->part[i].d = d;
	*d = (struct crpc_kv_daemon){
		.front = c->front,
		.self = s->first + i,
		.first = s->first,
		.daemons = c->daemons,
		.owners = s->owners,
		.relay = c->by_number && c->daemons > 1,
		.key_size = c->key_size,
		.value_size = c->value_max,
		.fate = &s->fate,
		.segment = s->part[i].segment,
		.writer_first = c->writer_first + (s->first + i) * writers,
	};
	d->writer_end = d->writer_first + writers;
	d->info = (struct kv_info){
		.ranks = c->ranks,
		.rank = c->rank,
		.daemons = c->daemons,
		.daemon = i,
		.keys = c->keys,
		.key_size = c->key_size,
		.value_size = c->value_max,
		.writer = d->writer_first,
		.writers = c->writer_first + s->owners * writers,
	};
	return 0;
}

static int
open_all(struct crpc_kv_server *s)
{
	int rc = 0;

	/* Names first: who finds one taken has lost no time. */
	for (uint32_t i = 0; i < s->conf.daemons && rc == 0; i++) {
		near(&s->conf, i);
		rc = create_daemon(s, i);
		if (rc == 0 && s->conf.front == NULL)
			segment_name(&s->conf, i, s->part[i].segment, sizeof(s->part[i].segment));
		if (rc == 0)
			rc = open_segment(s, &s->part[i]);
	}
	if (rc == 0 && s->conf.front == NULL)
		sweep_segments(&s->conf);
	for (uint32_t i = 0; i < s->conf.daemons && rc == 0; i++) {
		near(&s->conf, i);
		rc = open_net(s, i);
		if (rc == 0)
			rc = open_store(s, i);
	}
	if (rc == 0)
		rc = open_hops(s);
	near(&s->conf, s->conf.daemons);
	return rc;
}

void
__crpc_kv_server_hand_over(struct crpc_kv_server *s)
{
	for (uint32_t i = 0; i < s->conf.daemons && kv_is_large(&s->conf); i++)
		if (s->part[i].d != NULL && s->part[i].d->blocks.cache != NULL)
			crpc_arena_hand_over(s->part[i].d->blocks.cache);
}

struct crpc_kv_server *
crpc_kv_server_create(const struct crpc_kv_server_conf *conf)
{
	struct crpc_kv_server_conf c;
	struct crpc_kv_server *s;
	int rc = conf_fill(&c, conf);

	if (rc != 0)
		return crpc_null(rc);
	s = calloc(1, sizeof(*s) + c.daemons * sizeof(s->part[0]));
	if (s == NULL)
		return NULL;
	s->conf = c;
	s->owners = c.ranks * c.daemons;
	s->first = c.rank * c.daemons;
	s->fate.other = calloc(c.ranks, sizeof(*s->fate.other));
	for (uint32_t i = 0; i < c.ranks && s->fate.other != NULL; i++)
		s->fate.other[i].made = !c.on_use;
	rc = s->fate.other == NULL ? -ENOMEM : open_all(s);
	if (rc != 0) {
		crpc_kv_server_free(s);
		return crpc_null(rc);
	}
	__crpc_kv_server_hand_over(s);
	/* The caller's texts and arrays. */
	s->conf.name = s->conf.device = NULL;
	s->conf.place = NULL;
	return s;
}

void
crpc_kv_server_close(struct crpc_kv_server *s)
{
	struct kv_part *p;

	__crpc_kv_server_hand_over(s);
	for (uint32_t i = 0; i < s->conf.daemons; i++) {
		p = &s->part[i];
		if (p->d == NULL)
			continue;
		crpc_ipc_server_free(p->d->ipc);
		p->d->ipc = NULL;
		__crpc_kv_hop_close(&p->hop);
		__crpc_kv_net_close(&p->net);
	}
}

void
crpc_kv_server_free(struct crpc_kv_server *s)
{
	struct kv_part *p;

	if (s == NULL)
		return;
	crpc_kv_server_close(s);
	for (uint32_t i = 0; i < s->conf.daemons; i++) {
		p = &s->part[i];
		if (p->d == NULL)
			continue;
		__crpc_kv_store_free(p->d->store);
		crpc_kv_blocks_close(&p->d->blocks);
		__crpc_kv_snapshot_release(&p->snapshot);
		crpc_mem_free(p->d);
	}
	crpc_flux_free(s->flux);
	for (uint32_t i = 0; i < s->conf.ranks && s->fate.other != NULL; i++)
		free(s->fate.other[i].addresses);
	free(s->fate.other);
	free(s);
}

/* ---- keys ---- */

struct crpc_kv_daemon *
crpc_kv_server_daemon(struct crpc_kv_server *s, uint32_t daemon)
{
	return s->part[daemon].d;
}

void
crpc_kv_server_front(
	struct crpc_kv_server *s, uint32_t daemon, void *end, uint32_t first, uint32_t peers)
{
	struct crpc_kv_daemon *d = s->part[daemon].d;

	d->end = end;
	d->link_first = first;
	d->links = peers;
}

void
crpc_kv_server_version_begin(struct crpc_kv_server *s, uint64_t version)
{
	for (uint32_t i = 0; i < s->conf.daemons; i++)
		__crpc_kv_store_version_raise(s->part[i].d->store, version);
}

/* The number of its owner among our daemons, or one that is too large. */
static uint32_t
mate_of(const struct crpc_kv_server *s, const void *key, uint32_t key_len)
{
	return kv_owner(kv_hash(key, key_len), s->owners) - s->first;
}

bool
crpc_kv_server_owns(const struct crpc_kv_server *s, const void *key, uint32_t key_len)
{
	return key_len == s->conf.key_size && mate_of(s, key, key_len) < s->conf.daemons;
}

int
crpc_kv_server_load(struct crpc_kv_server *s, const void *key, uint32_t key_len, const void *value,
	uint32_t len)
{
	uint32_t mate;
	int rc;

	if (key_len != s->conf.key_size || len < CRPC_KV_VALUE_MIN || len > s->conf.value_max)
		return -EINVAL;
	mate = mate_of(s, key, key_len);
	if (mate >= s->conf.daemons)
		return -EXDEV;
	rc = __crpc_kv_store_load(s->part[mate].d->store, key, value, len);
	__crpc_kv_server_hand_over(s);
	return rc;
}

/* ---- other ranks ---- */

/* What two ranks must agree on. The addresses follow: of each daemon, to the peer's daemons. */
struct address_head {
	uint32_t magic, version;
	uint32_t rank, ranks, daemons;
	uint32_t endpoints; /* Of each daemon. */
	uint32_t by_number, lanes;
	uint32_t key_size, zero, value_max, plain;
};
_Static_assert(sizeof(struct address_head) == 48, "wire format");

#define ADDRESS_MAGIC   0x4156524bu /* "KRVA" */
#define ADDRESS_VERSION 1u

static struct address_head
address_head(const struct crpc_kv_server *s, uint32_t rank)
{
	const struct kv_net *net = &s->part[0].net;

	return (struct address_head){
		.magic = ADDRESS_MAGIC,
		.version = ADDRESS_VERSION,
		.rank = rank,
		.ranks = s->conf.ranks,
		.daemons = s->conf.daemons,
		.endpoints = kv_net_endpoints(net),
		.by_number = s->conf.by_number,
		.lanes = net->lanes,
		.key_size = s->conf.key_size,
		.value_max = s->conf.value_max,
		.plain = s->conf.plain,
	};
}

/* Whether there are endpoints to this rank. */
static bool
is_peer(const struct crpc_kv_server *s, uint32_t peer)
{
	return s->part[0].d->net != NULL && peer < s->conf.ranks && peer != s->conf.rank;
}

/* Whether all daemons have taken the step that they were asked for last. */
static bool
all_seen(const struct crpc_kv_server *s, uint32_t peer)
{
	uint32_t want = crpc_load_relaxed(&s->fate.other[peer].want);

	for (uint32_t i = 0; i < s->conf.daemons; i++) /* A2 pairs with R2 */
		if (crpc_load_acquire(&kv_net_first(&s->part[i].net, peer)->seen) != want)
			return false;
	return true;
}

/* The step that all daemons shall take: even, to make endpoints fresh; odd, to connect them. */
static void
step(struct crpc_kv_server *s, uint32_t peer, uint32_t want)
{
	s->fate.other[peer].renewing = want % 2 == 0;
	crpc_store_release(&s->fate.other[peer].want, want); /* R1 */
	/* Before the loops run, the endpoints are ours. */
	for (uint32_t i = 0; i < s->conf.daemons && crpc_load_relaxed(&s->fate.started) == 0; i++)
		__crpc_kv_net_attend(&s->part[i].net, 0);
}

size_t
crpc_kv_server_address_max(const struct crpc_kv_server *s)
{
	const struct kv_net *net = &s->part[0].net;

	if (s->part[0].d->net == NULL)
		return 0;
	return sizeof(struct address_head) +
		(size_t)s->conf.daemons * kv_net_endpoints(net) * CRPC_COPYRPC_ADDR_LEN;
}

int64_t
crpc_kv_server_address(struct crpc_kv_server *s, uint32_t peer, void *buf, size_t max)
{
	size_t bytes = crpc_kv_server_address_max(s);
	struct address_head head;
	struct kv_other *o;
	uint8_t *at = buf;

	if (!is_peer(s, peer))
		return -EINVAL;
	o = &s->fate.other[peer];
	if (!o->made && crpc_load_relaxed(&o->want) == 0)
		step(s, peer, 2);
	o->made = o->made || all_seen(s, peer);
	if (crpc_kv_server_peer(s, peer) == CRPC_KV_PEER_LOST || !o->made)
		return -EAGAIN;
	if (max < bytes)
		return -ENOSPC;
	head = address_head(s, s->conf.rank);
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	for (uint32_t i = 0; i < s->conf.daemons; i++, at += head.endpoints * CRPC_COPYRPC_ADDR_LEN)
		__crpc_kv_net_address(&s->part[i].net, peer, at);
	return (int64_t)bytes;
}

static int
address_check(const struct crpc_kv_server *s, uint32_t peer, const void *buf, size_t len)
{
	struct address_head want = address_head(s, peer), found = {0};

	memcpy(&found, buf, crpc_min(len, sizeof(found)));
	if (len != crpc_kv_server_address_max(s) || memcmp(&want, &found, sizeof(want)) != 0)
		return crpc_fail(-EPROTO,
			"addresses of rank %u: expected %zu bytes, version %u, rank %u of %u with "
			"%u daemons, keys of %u and values of %u bytes, found %zu bytes, version "
			"%u, rank %u of %u with %u daemons, keys of %u and values of %u bytes; "
			"start all ranks with the same program and options",
			peer, crpc_kv_server_address_max(s), want.version, peer, want.ranks,
			want.daemons, want.key_size, want.value_max, len, found.version, found.rank,
			found.ranks, found.daemons, found.key_size, found.value_max);
	return 0;
}

int
crpc_kv_server_connect(struct crpc_kv_server *s, uint32_t peer, const void *buf, size_t len)
{
	size_t head = sizeof(struct address_head);
	struct kv_other *o;
	uint32_t want;
	int rc;

	if (!is_peer(s, peer) || crpc_kv_server_peer(s, peer) != CRPC_KV_PEER_NEW)
		return -EINVAL;
	o = &s->fate.other[peer];
	want = crpc_load_relaxed(&o->want);
	if (want % 2 != 0) /* It is connected to already. */
		return -EINVAL;
	rc = address_check(s, peer, buf, len);
	if (rc != 0)
		return rc;
	free(o->addresses);
	o->addresses = malloc(len - head);
	if (o->addresses == NULL)
		return -ENOMEM;
	memcpy(o->addresses, (const uint8_t *)buf + head, len - head);
	step(s, peer, want + 1);
	return 0;
}

void
crpc_kv_server_here(struct crpc_kv_server *s, uint32_t peer, bool here)
{
	crpc_store_relaxed(&s->fate.other[peer].here, here && s->conf.on_use);
}

uint32_t
crpc_kv_server_wanted(struct crpc_kv_server *s)
{
	struct kv_other *o = s->fate.other;
	uint32_t r = s->conf.ranks;

	if (crpc_load_relaxed(&s->fate.asked) == 0 ||
		crpc_exchange_acq_rel(&s->fate.asked, 0) == 0) /* A3 */
		return r;
	for (r = 0; r < s->conf.ranks; r++) {
		if (crpc_load_relaxed(&o[r].asked) == 0)
			continue;
		crpc_store_relaxed(&o[r].asked, 0);
		if (crpc_load_relaxed(&o[r].want) % 2 == 0 && crpc_load_relaxed(&o[r].why) == NULL)
			break;
	}
	/* The next time those behind it are looked at. */
	if (r != s->conf.ranks)
		crpc_store_relaxed(&s->fate.asked, 1);
	return r;
}

enum crpc_kv_peer
crpc_kv_server_peer(const struct crpc_kv_server *s, uint32_t peer)
{
	struct kv_other *o = &s->fate.other[peer];

	if (peer == s->conf.rank)
		return CRPC_KV_PEER_UP;
	if (o->renewing && all_seen(s, peer)) {
		o->renewing = false;
		crpc_store_release(&o->why, (const char *)NULL);
	}
	if (crpc_load_relaxed(&o->why) != NULL)
		return CRPC_KV_PEER_LOST;
	return crpc_load_relaxed(&o->want) % 2 != 0 && all_seen(s, peer) ? CRPC_KV_PEER_UP
									 : CRPC_KV_PEER_NEW;
}

const char *
crpc_kv_server_peer_why(const struct crpc_kv_server *s, uint32_t peer)
{
	return crpc_load_relaxed(&s->fate.other[peer].why);
}

void
crpc_kv_server_lose(struct crpc_kv_server *s, uint32_t peer, const char *why)
{
	if (peer != s->conf.rank)
		__crpc_kv_fate_lose(&s->fate, peer, why);
}

uint32_t
crpc_kv_server_lost(const struct crpc_kv_server *s)
{
	return crpc_load_acquire(&s->fate.lost);
}

int
crpc_kv_server_renew(struct crpc_kv_server *s, uint32_t peer)
{
	struct kv_other *o;

	if (!is_peer(s, peer) || crpc_kv_server_peer(s, peer) != CRPC_KV_PEER_LOST)
		return -EINVAL;
	o = &s->fate.other[peer];
	if (o->renewing)
		return 0;
	step(s, peer, (crpc_load_relaxed(&o->want) | 1) + 1);
	return 0;
}

void
crpc_kv_server_stop(struct crpc_kv_server *s)
{
	crpc_store_relaxed(&s->fate.ask_stop, 1);
}

bool
crpc_kv_server_stopped(const struct crpc_kv_server *s)
{
	return crpc_load_relaxed(&s->fate.stop) != 0;
}

void
crpc_kv_server_leave(struct crpc_kv_server *s)
{
	crpc_store_relaxed(&s->fate.leave, 1);
}
