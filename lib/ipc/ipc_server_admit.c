/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's slow path: create and free, who comes, who leaves, who died, who lied. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crpc_arena.h"
#include "crpc_log.h"
#include "crpc_mem.h"
#include "ipc_run.h"
#include "ipc_server.h"

#define DEFAULT_CLIENTS 64
#define DEFAULT_DEPTH   32

/* Places that one recv() looks at after the bell rang: ringing all day costs only this. */
#define BELL_BURST 32

/* ---- create and free ---- */

static void
peer_init(struct crpc_ipc_server *s, uint32_t id)
{
	struct ipc_peer *p = &s->peers[id];

	p->id = id;
	p->active_pos = IPC_NOT_ACTIVE;
	p->tokens = s->tokens + (uint64_t)id * 2 * s->lay.req_slots;
	for (uint32_t i = 0; i < 2 * s->lay.req_slots; i++)
		p->tokens[i] = IPC_TOKEN_FREE | (uint64_t)(id + 1) << IPC_TOKEN_ID_SHIFT | i;
	p->req = crpc_shm_ptr(s->seg, s->lay.req_off + id * s->lay.req_stride, s->lay.req_stride);
	p->resp = crpc_shm_ptr(
			s->seg, s->lay.resp_off + id * s->lay.resp_stride, s->lay.resp_stride);
	p->ctl = crpc_shm_ptr(s->seg, IPC_CTL_OFF + id * sizeof(*p->ctl), sizeof(*p->ctl));
	p->allow = (const _Atomic uint16_t *)(const void *)(p->req + s->lay.allow_off);
	p->head = (struct ipc_slot *)(void *)p->req;
	if (s->blocks != NULL) {
		p->blocks = s->blocks + (size_t)id * s->lay.req_slots;
		p->given = s->given + (size_t)id * s->lay.resp_slots;
	}
	crpc_store_relaxed(&ipc_lone(s, p)->word, ipc_word(0, 0, IPC_SLOT_REPLY));
}

/*
 * On hugepages, if the node has as many, and the mode can be said as a list. NULL: not there. Free
 * pages may be promised to others already, so that it fails all the same.
 */
static struct crpc_shm *
segment_huge(struct crpc_shm_conf shm)
{
	gid_t gid = shm.gid == 0 || shm.gid == (gid_t)-1 ? getegid() : shm.gid;
	const struct crpc_shm_allow group = {.gids = &gid, .gid_count = 1};

	if ((shm.mode & S_IRWXO) != 0 || crpc_mem_huge_free(crpc_mem_here().node) < shm.size)
		return crpc_null(-ENOSPC);
	if (!shm.memfd && (shm.mode & 0060) == 0060)
		shm.allow = &group;
	shm.huge = true;
	shm.memfd = true;
	return crpc_shm_create(&shm);
}

static int
segment_create(struct crpc_ipc_server *s, const struct crpc_ipc_server_conf *conf)
{
	struct crpc_shm_conf shm = {
		.name = conf->name,
		.dir = conf->dir,
		.size = s->lay.total_size,
		.kind = IPC_KIND,
		.kind_version = IPC_VERSION,
		.mode = conf->mode,
		.gid = conf->gid,
		.memfd = conf->memfd,
		.allow = conf->allow,
		.prefault = true,
	};
	struct ipc_server_line *line;

	if (conf->huge)
		s->seg = segment_huge(shm);
	/* Without hugepages, unless it is the name that cannot be had. */
	if (!conf->huge ||
		(s->seg == NULL && errno != EADDRINUSE && errno != EEXIST && errno != EACCES))
		s->seg = crpc_shm_create(&shm);
	if (s->seg == NULL)
		return -errno;
	if (crpc_mem_note("ipc_segment", crpc_shm_ptr(s->seg, 0, 1), s->lay.total_size) != 0) {
		crpc_shm_free(s->seg);
		return crpc_fail(-ENOMEM, "%s: no memory", conf->name);
	}
	memcpy(crpc_shm_ptr(s->seg, IPC_HEADER_OFF, sizeof(s->lay)), &s->lay, sizeof(s->lay));
	line = crpc_shm_ptr(s->seg, IPC_SERVER_OFF, sizeof(*line));
	line->member = s->arena == NULL ? 0 : crpc_arena_member(s->arena);
	s->beat = &line->beat;
	s->bell = crpc_shm_ptr(s->seg, IPC_BELL_OFF, sizeof(*s->bell));
	return 0;
}

/* The private tables of all clients. */
static int
tables_make(struct crpc_ipc_server *s)
{
	size_t clients = s->lay.max_clients;

	s->tokens = calloc(clients * 2 * s->lay.req_slots, sizeof(*s->tokens));
	s->peers = aligned_alloc(CRPC_CACHE_LINE, clients * sizeof(*s->peers));
	if (s->tokens == NULL || s->peers == NULL)
		return -ENOMEM;
	memset(s->peers, 0, clients * sizeof(*s->peers));
	if (s->arena == NULL)
		return 0;
	s->blocks = calloc(clients * s->lay.req_slots, sizeof(*s->blocks));
	s->given = calloc(clients * s->lay.resp_slots, sizeof(*s->given));
	return s->blocks != NULL && s->given != NULL ? 0 : -ENOMEM;
}

static void
tables_free(struct crpc_ipc_server *s)
{
	free(s->given);
	free(s->blocks);
	free(s->peers);
	free(s->tokens);
	free(s);
}

struct crpc_ipc_server *
crpc_ipc_server_create(const struct crpc_ipc_server_conf *conf)
{
	struct crpc_ipc_server *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return NULL;
	s->lay.max_clients = conf->max_clients != 0 ? conf->max_clients : DEFAULT_CLIENTS;
	s->lay.depth = conf->depth != 0 ? conf->depth : DEFAULT_DEPTH;
	s->lay.req_max = conf->req_max != 0 ? conf->req_max : CRPC_IPC_SMALL;
	s->lay.resp_max = conf->resp_max != 0 ? conf->resp_max : CRPC_IPC_SMALL;
	s->arena = conf->arena;
	s->client_block_bytes = conf->client_block_bytes;
	rc = __crpc_ipc_layout(&s->lay, conf->name == NULL ? "(no name)" : conf->name);
	if (rc == 0)
		rc = tables_make(s);
	if (rc == 0)
		rc = segment_create(s, conf);
	if (rc != 0) {
		tables_free(s);
		return crpc_null(rc);
	}
	s->req_lone_max = (uint32_t)crpc_min(s->lay.req_max, CRPC_IPC_SMALL);
	s->reply_short = (uint32_t)crpc_min(s->lay.resp_max, CRPC_IPC_SMALL);
	s->token_mask = 2 * s->lay.req_slots - 1;
	s->lone_slot = s->lay.req_slots;
	s->lone_off = (uint32_t)s->lay.lone_off;
	if (s->lay.resp_slot == CRPC_CACHE_LINE)
		s->run_end = 1 + (uint32_t)crpc_min(s->lay.resp_max, IPC_RUN_SIZE);
	s->req_mask = s->lay.req_slots - 1;
	s->resp_mask = s->lay.resp_slots - 1;
	s->sleep_visits = IPC_SLEEP_VISITS;
	s->awake_min = IPC_AWAKE_MIN;
	for (uint32_t i = 0; i < s->lay.max_clients; i++)
		peer_init(s, i);
	for (uint32_t i = 0; i < CRPC_DIM(s->active); i++)
		s->active[i] = &s->peers[0];
	crpc_shm_ready(s->seg);
	return s;
}

void
crpc_ipc_server_free(struct crpc_ipc_server *s)
{
	if (s == NULL)
		return;
	/* What was given stays: its clients may still poll. */
	for (uint32_t i = 0; i < s->lay.max_clients; i++)
		for (uint32_t slot = 0; slot < s->lay.req_slots; slot++)
			__crpc_ipc_block_end(s, &s->peers[i], slot);
	crpc_mem_free(crpc_shm_ptr(s->seg, 0, 1));
	crpc_shm_free(s->seg);
	tables_free(s);
}

/* ---- who comes, and who sleeps ---- */

static void
activate(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	p->idle = 0;
	if (p->active_pos != IPC_NOT_ACTIVE)
		return;
	p->active_pos = s->n_active;
	s->active[s->n_active++] = p;
}

void
__crpc_ipc_deactivate(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	struct ipc_peer *last;

	if (p->active_pos == IPC_NOT_ACTIVE)
		return;
	last = s->active[--s->n_active];
	s->active[p->active_pos] = last;
	last->active_pos = p->active_pos;
	p->active_pos = IPC_NOT_ACTIVE;
}

static void
admit_peer(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t gen)
{
	p->gen = gen;
	p->head_slot = 0;
	p->head = (struct ipc_slot *)(void *)p->req;
	p->req_seq = 1;
	p->resp_seq = 1;
	p->open = 0;
	p->limit = (uint16_t)s->lay.depth;
	p->member = p->ctl->member;
	/* A lie: no reclaim would free what is in transit to ourselves. */
	if (s->arena != NULL && p->member == crpc_arena_member(s->arena))
		p->member = 0;
	p->sleep = 0;
	p->state = IPC_PEER_SERVED;
	activate(s, p);
	s->stats.connects++;
}

/* True if p's next request is there. */
static bool
has_mail(const struct crpc_ipc_server *s, const struct ipc_peer *p)
{
	uint64_t lone = crpc_load_relaxed(&ipc_lone(s, p)->word);

	return ipc_word_seq(crpc_load_relaxed(&p->head->word)) == (uint32_t)p->req_seq ||
	       (ipc_word_seq(lone) == (uint32_t)p->req_seq && ipc_word_slot(lone) == 0);
}

static void
wake(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	s->stats.wakes++;
	crpc_store_relaxed(&p->ctl->sleep, ++p->sleep);
	activate(s, p);
}

crpc_noinline bool
__crpc_ipc_doze(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint32_t announced;

	p->idle = 0;
	/* Who waits for an answer is there, and will call again. */
	if (s->n_active <= s->awake_min || p->open != 0)
		return false;
	crpc_exchange_seq_cst(&p->ctl->sleep, ++p->sleep); /* S1 */
	announced = crpc_load_seq_cst(&p->ctl->announced); /* S2 */
	if ((int32_t)(announced - (uint32_t)(p->req_seq - 1)) > 0 || has_mail(s, p)) {
		crpc_store_relaxed(&p->ctl->sleep, ++p->sleep); /* S3 */
		return false;
	}
	s->stats.sleeps++;
	__crpc_ipc_deactivate(s, p);
	return true;
}

static void retire_if_gone(struct crpc_ipc_server *s, struct ipc_peer *p);

/* It closed, and one-way messages that it sent before are still to be read. */
static bool
is_leaving(const struct crpc_ipc_server *s, const struct ipc_peer *p, uint32_t life)
{
	return life == IPC_LEAVING && p->state == IPC_PEER_SERVED && has_mail(s, p);
}

/*
 * Admit who claimed the place, wake who sleeps in it and has called, and take it back from who
 * closed it or left nonsense in it.
 */
static void
look_at(struct crpc_ipc_server *s, struct ipc_peer *p, bool rang)
{
	/* A4 pairs with R4 in claim_place(): what the client did to its place before. */
	uint64_t claim = crpc_load_acquire(&p->ctl->claim);
	uint32_t life = (uint32_t)claim;

	if (p->state == IPC_PEER_ABSENT && (life == IPC_OPEN || life == IPC_LEAVING))
		admit_peer(s, p, (uint32_t)(claim >> 32));
	else if ((p->sleep & 1) != 0 && (rang || has_mail(s, p)))
		wake(s, p);
	if (p->state == IPC_PEER_ABSENT && life == IPC_FREE)
		return;
	if (!is_leaving(s, p, life) && !(life == IPC_OPEN && rang))
		retire_if_gone(s, p);
}

/* Move what rang into rung and rung_word, which only we write. */
static void
take_bell(struct crpc_ipc_server *s)
{
	uint32_t words = (s->lay.max_clients + 63) / 64;
	/*
	 * A6 pairs with R6 in __crpc_ipc_ring_bell(): the bits, and what their clients did before.
	 */
	uint64_t summary = crpc_exchange_acq_rel(&s->bell->summary, 0), bits;

	for (uint32_t w = 0; w < words; w++) {
		if ((summary >> w & 1) == 0)
			continue;
		bits = crpc_exchange_acq_rel(&s->bell->word[w], 0); /* A6 */
		if (w == words - 1 && s->lay.max_clients % 64 != 0)
			bits &= (UINT64_C(1) << s->lay.max_clients % 64) - 1;
		s->rung_word[w] |= bits;
		s->rung |= (uint64_t)(bits != 0) << w;
	}
}

crpc_noinline void
__crpc_ipc_answer_bell(struct crpc_ipc_server *s)
{
	uint32_t w, bit;

	if (crpc_load_relaxed(&s->bell->summary) != 0)
		take_bell(s);
	for (uint32_t n = 0; n < BELL_BURST && s->rung != 0; n++) {
		w = (uint32_t)__builtin_ctzll(s->rung);
		bit = (uint32_t)__builtin_ctzll(s->rung_word[w]);
		s->rung_word[w] &= s->rung_word[w] - 1;
		if (s->rung_word[w] == 0)
			s->rung &= s->rung - 1;
		look_at(s, &s->peers[w * 64 + bit], true);
	}
}

/* ---- who leaves ---- */

/* Its open tokens go stale; the first use of each returns that the client is gone. */
static void
kill_tokens(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint64_t *token = p->tokens, *const end = token + s->lay.req_slots + 1;

	for (; token != end; token++) {
		if ((*token & IPC_TOKEN_FREE) == 0) {
			*token |= IPC_TOKEN_FREE | IPC_TOKEN_DEAD;
			p->dead++;
		} else if ((*token & IPC_TOKEN_DEAD) == 0) {
			/* It may have those of a request that was not opened. */
			*token &= ~IPC_TOKEN_FLAGS;
		}
	}
	s->stats.lost_calls += p->open;
	s->stats.rpc.replies += p->resp_seq - 1; /* the living ones' are added by stats() */
	p->resp_seq = 1;
	p->open = 0;
	p->limit = 0;
}

/* As new for the next client: no word of an old one can look like a word of its own. */
static void
wipe(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	for (uint32_t i = 0; i < s->lay.req_slots; i++)
		crpc_store_relaxed(&ipc_slot_at(p->req, i, s->lay.req_slot)->word, 0);
	for (uint32_t i = 0; i < s->lay.resp_slots; i++)
		crpc_store_relaxed(&ipc_slot_at(p->resp, i, s->lay.resp_slot)->word, 0);
	crpc_store_relaxed(&ipc_lone(s, p)->word, ipc_word(0, 0, IPC_SLOT_REPLY));
	crpc_store_relaxed(&p->ctl->verdict, 0);
	crpc_store_relaxed(&p->ctl->sleep, 0);
	crpc_store_relaxed(&p->ctl->announced, 0);
}

static void
note_leave(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint32_t life = (uint32_t)crpc_load_relaxed(&p->ctl->claim);

	if (life == IPC_CLOSED || life == IPC_LEAVING) {
		s->stats.closes++;
	} else {
		s->stats.deaths++;
		/* Its blocks come back by a pass of our own, behind the rest of an earlier one. */
		s->reclaims = 2;
	}
	kill_tokens(s, p);
	__crpc_ipc_given_end(s, p);
	__crpc_ipc_deactivate(s, p);
	p->sleep = 0;
	p->state = IPC_PEER_LEFT;
}

/*
 * Free a place whose lock is free and none of whose requests is held. A client takes the lock
 * before it claims and gives it up after it closed, so no client has a claimed place without a
 * lock; and none claims it until it is FREE.
 */
static void
retire_if_gone(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	if (crpc_shm_lock_held(s->seg, IPC_LOCK_BYTE(p->id)) != 0)
		return;
	if (p->state == IPC_PEER_SERVED || p->state == IPC_PEER_DROPPED)
		note_leave(s, p);
	if (p->dead != 0)
		return;
	p->state = IPC_PEER_ABSENT;
	wipe(s, p);
	p->gen++;
	/* R3 pairs with A3 in claim_place(): wiped, before it can be taken. */
	crpc_store_release(&p->ctl->claim, IPC_CLAIM(p->gen, IPC_FREE));
	s->freed++;
}

/*
 * Give the blocks of the dead back, some at a time. The clients' locks do not show all of them: one
 * may have closed and died later, or its other lock may drop a moment behind; so now and then they
 * are looked for anyway.
 */
static void
reclaim(struct crpc_ipc_server *s)
{
	if (s->arena == NULL)
		return;
	if (s->reclaims == 0 && s->stats.reaps % IPC_RECLAIM_REAPS == 0)
		s->reclaims = 1;
	if (s->reclaims != 0 &&
			crpc_arena_reclaim(crpc_arena_of(s->arena), IPC_RECLAIM_BURST, NULL) <= 0)
		s->reclaims--;
}

uint32_t
crpc_ipc_server_reap(struct crpc_ipc_server *s)
{
	uint32_t n = (uint32_t)crpc_min(s->lay.max_clients, CRPC_IPC_REAP_BURST), freed;
	struct ipc_peer *p;

	crpc_owner_check(&s->owner, "ipc server");
	s->stats.reaps++;
	crpc_store_relaxed(s->beat, s->stats.reaps);
	crpc_shm_serve(s->seg);
	__crpc_ipc_answer_bell(s);
	for (; n != 0; n--) {
		p = &s->peers[s->reap_pos];
		s->reap_pos = s->reap_pos + 1 == s->lay.max_clients ? 0 : s->reap_pos + 1;
		look_at(s, p, false);
	}
	reclaim(s);
	freed = s->freed;
	s->freed = 0;
	return freed;
}

/* ---- who lied ---- */

crpc_noinline void
__crpc_ipc_drop(struct crpc_ipc_server *s, struct ipc_peer *p, const struct ipc_breach *breach)
{
	crpc_err("%s: client %u dropped: %s is %u, expected at most %u", crpc_shm_path(s->seg),
			p->id, breach->what, breach->found, breach->expected);
	kill_tokens(s, p);
	p->state = IPC_PEER_DROPPED;
	s->stats.rpc.malformed++;
	/* R5 pairs with A5 in check_server(). */
	crpc_store_release(&p->ctl->verdict, EPROTO);
}

/* ---- getters ---- */

uint64_t
crpc_ipc_server_requests(const struct crpc_ipc_server *s, uint32_t peer)
{
	if (peer >= s->lay.max_clients || s->peers[peer].state == IPC_PEER_ABSENT)
		return 0;
	return s->peers[peer].req_seq - 1;
}

void
crpc_ipc_server_hide(struct crpc_ipc_server *s)
{
	crpc_shm_hide(s->seg);
}

void
crpc_ipc_server_stats(const struct crpc_ipc_server *s, struct crpc_ipc_server_stats *stats)
{
	const struct ipc_peer *p;

	*stats = s->stats;
	stats->awake = s->n_active;
	for (uint32_t i = 0; i < s->lay.max_clients; i++) {
		p = &s->peers[i];
		if (p->state == IPC_PEER_ABSENT || p->state == IPC_PEER_LEFT)
			continue;
		stats->clients++;
		stats->open += p->open;
		stats->rpc.replies += p->resp_seq - 1;
	}
}
