/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's slow path: create and free, who comes, who leaves, who died, who lied. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "crpc_log.h"
#include "ipc_server.h"

#define DEFAULT_CLIENTS 64
#define DEFAULT_DEPTH   32

/* Places that one recv() looks at after the bell rang: ringing all day costs only this. */
#define ADMIT_BURST 32

/* ---- create and free ---- */

static uint32_t
or_default(uint32_t v, uint32_t dflt)
{
	return v == 0 ? dflt : v;
}

static void
peer_init(struct crpc_ipc_server *s, uint32_t id)
{
	struct ipc_peer *p = &s->peers[id];

	p->id = id;
	p->token_base = (id + 1) << IPC_TOKEN_SLOT_BITS;
	p->tokens = s->tokens + (uint64_t)id * s->lay.req_slots;
	p->req = crpc_shm_ptr(s->seg, s->lay.req_off + id * s->lay.req_stride, s->lay.req_stride);
	p->resp = crpc_shm_ptr(
			s->seg, s->lay.resp_off + id * s->lay.resp_stride, s->lay.resp_stride);
	p->ctl = crpc_shm_ptr(s->seg, IPC_CTL_OFF + id * sizeof(*p->ctl), sizeof(*p->ctl));
	p->head = (struct ipc_slot *)(void *)p->req;
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
			.huge = conf->huge,
			.prefault = true,
			.numa_bind = conf->numa_bind,
			.numa_node = conf->numa_node,
	};

	s->seg = crpc_shm_create(&shm);
	if (s->seg == NULL)
		return -errno;
	memcpy(crpc_shm_ptr(s->seg, IPC_HEADER_OFF, sizeof(s->lay)), &s->lay, sizeof(s->lay));
	s->beat = crpc_shm_ptr(s->seg, IPC_SERVER_OFF, sizeof(*s->beat));
	s->bell = crpc_shm_ptr(s->seg, IPC_BELL_OFF, sizeof(*s->bell));
	return 0;
}

struct crpc_ipc_server *
crpc_ipc_server_create(const struct crpc_ipc_server_conf *conf)
{
	struct crpc_ipc_server *s = calloc(1, sizeof(*s));
	uint32_t i;
	int rc;

	if (s == NULL)
		return NULL;
	s->lay.max_clients = or_default(conf->max_clients, DEFAULT_CLIENTS);
	s->lay.depth = or_default(conf->depth, DEFAULT_DEPTH);
	s->lay.req_max = or_default(conf->req_max, CRPC_IPC_SMALL);
	s->lay.resp_max = or_default(conf->resp_max, CRPC_IPC_SMALL);
	rc = __crpc_ipc_layout(&s->lay, conf->name == NULL ? "(no name)" : conf->name);
	if (rc != 0)
		goto err_server;
	rc = -ENOMEM;
	s->tokens = calloc((size_t)s->lay.max_clients * s->lay.req_slots, sizeof(*s->tokens));
	if (s->tokens == NULL)
		goto err_server;
	s->peers = aligned_alloc(CRPC_CACHE_LINE, s->lay.max_clients * sizeof(*s->peers));
	if (s->peers == NULL)
		goto err_tokens;
	memset(s->peers, 0, s->lay.max_clients * sizeof(*s->peers));
	rc = segment_create(s, conf);
	if (rc != 0)
		goto err_peers;
	s->small_max = (uint32_t)crpc_min(s->lay.resp_max, IPC_COPY_SMALL);
	for (i = 0; i < s->lay.max_clients; i++)
		peer_init(s, i);
	for (i = 0; i < CRPC_DIM(s->active); i++)
		s->active[i] = &s->peers[0];
	crpc_shm_ready(s->seg);
	return s;

err_peers:
	free(s->peers);
err_tokens:
	free(s->tokens);
err_server:
	free(s);
	errno = -rc;
	return NULL;
}

void
crpc_ipc_server_free(struct crpc_ipc_server *s)
{
	if (s == NULL)
		return;
	crpc_shm_free(s->seg);
	free(s->peers);
	free(s->tokens);
	free(s);
}

/* ---- who comes ---- */

static void
admit_peer(struct crpc_ipc_server *s, struct ipc_peer *p, uint32_t gen)
{
	p->gen = gen;
	p->head_slot = 0;
	p->head = (struct ipc_slot *)(void *)p->req;
	p->req_seq = 1;
	p->resp_seq = 1;
	p->open = 0;
	p->limit = s->lay.depth;
	p->state = IPC_PEER_SERVED;
	p->active_pos = s->n_active;
	s->active[s->n_active++] = p;
	s->stats.connects++;
}

static void retire_if_gone(struct crpc_ipc_server *s, struct ipc_peer *p);

/* Admit who claimed the place, and take it back from who closed it or left nonsense in it. */
static void
look_at(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	/* A4 pairs with R4 in claim_place(): what the client did to its place before. */
	uint64_t claim = crpc_load_acquire(&p->ctl->claim);

	if ((uint32_t)claim == IPC_FREE)
		return;
	if ((uint32_t)claim != IPC_OPEN)
		retire_if_gone(s, p);
	else if (p->state == IPC_PEER_ABSENT)
		admit_peer(s, p, (uint32_t)(claim >> 32));
}

crpc_noinline void
__crpc_ipc_admit(struct crpc_ipc_server *s)
{
	uint32_t bell = crpc_load_acquire(s->bell), n; /* A6, as in recv() */

	if (bell != s->bell_seen) {
		s->bell_seen = bell;
		s->admit_left = s->lay.max_clients;
	}
	for (n = 0; n < ADMIT_BURST && s->admit_left != 0; n++, s->admit_left--) {
		look_at(s, &s->peers[s->admit_pos]);
		s->admit_pos = s->admit_pos + 1 == s->lay.max_clients ? 0 : s->admit_pos + 1;
	}
}

/* ---- who leaves ---- */

/* Its open tokens go stale; the first use of each is told that the client is gone. */
static void
kill_tokens(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint32_t i;

	for (i = 0; i < s->lay.req_slots; i++)
		if ((int64_t)p->tokens[i] > 0)
			p->tokens[i] |= IPC_TOKEN_DEAD;
	s->stats.lost_calls += p->open;
	s->stats.replies += p->resp_seq - 1; /* the living ones' are added by stats() */
	p->resp_seq = 1;
	p->open = 0;
	p->limit = 0;
}

/* As new for the next client: no word of an old one can look like a word of its own. */
static void
wipe(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint32_t i;

	for (i = 0; i < s->lay.req_slots; i++)
		crpc_store_relaxed(&ipc_slot_at(p->req, i, s->lay.req_slot)->word, 0);
	for (i = 0; i < s->lay.resp_slots; i++)
		crpc_store_relaxed(&ipc_slot_at(p->resp, i, s->lay.resp_slot)->word, 0);
	crpc_store_relaxed(&p->ctl->verdict, 0);
}

/*
 * Free a place whose lock is free. A client takes the lock before it claims and gives it up after
 * it closed, so a claimed place without a lock is nobody's; and nobody claims it until it is FREE.
 */
static void
retire_if_gone(struct crpc_ipc_server *s, struct ipc_peer *p)
{
	uint64_t claim = crpc_load_relaxed(&p->ctl->claim);
	struct ipc_peer *last;

	if (crpc_shm_lock_held(s->seg, IPC_LOCK_BYTE(p->id)) != 0)
		return;
	if (p->state != IPC_PEER_ABSENT) {
		if ((uint32_t)claim == IPC_CLOSED)
			s->stats.closes++;
		else
			s->stats.deaths++;
		kill_tokens(s, p);
		last = s->active[--s->n_active];
		s->active[p->active_pos] = last;
		last->active_pos = p->active_pos;
		p->state = IPC_PEER_ABSENT;
	}
	wipe(s, p);
	p->gen++;
	/* R3 pairs with A3 in claim_place(): wiped, before it can be taken. */
	crpc_store_release(&p->ctl->claim, IPC_CLAIM(p->gen, IPC_FREE));
	s->freed++;
}

uint32_t
crpc_ipc_server_reap(struct crpc_ipc_server *s)
{
	uint32_t n = (uint32_t)crpc_min(s->lay.max_clients, CRPC_IPC_REAP_BURST), freed;
	struct ipc_peer *p;

	IPC_OWNER_CHECK(s);
	s->stats.reaps++;
	crpc_store_relaxed(s->beat, s->stats.reaps);
	__crpc_ipc_admit(s);
	for (; n != 0; n--) {
		p = &s->peers[s->reap_pos];
		s->reap_pos = s->reap_pos + 1 == s->lay.max_clients ? 0 : s->reap_pos + 1;
		look_at(s, p);
		if (p->state != IPC_PEER_ABSENT)
			retire_if_gone(s, p);
	}
	freed = s->freed;
	s->freed = 0;
	return freed;
}

/* ---- who lied ---- */

crpc_noinline void
__crpc_ipc_drop(struct crpc_ipc_server *s, struct ipc_peer *p, const char *what, uint32_t expected,
		uint32_t found)
{
	crpc_err("%s: client %u dropped: %s is %u, expected at most %u", crpc_shm_path(s->seg),
			p->id, what, found, expected);
	kill_tokens(s, p);
	p->state = IPC_PEER_DROPPED;
	s->stats.kicks++;
	/* R5 pairs with A5 in check_server(). */
	crpc_store_release(&p->ctl->verdict, EPROTO);
}

/* ---- for people ---- */

void
crpc_ipc_server_dump(const struct crpc_ipc_server *s, FILE *out)
{
	static const char *const names[] = {"absent", "served", "dropped"};
	struct crpc_ipc_server_stats st;
	const struct ipc_peer *p;
	uint32_t i;

	crpc_ipc_server_stats(s, &st);
	fprintf(out, "%s: %u of %u clients, depth %u, request %u and response %u bytes\n",
			crpc_shm_path(s->seg), st.clients, s->lay.max_clients, s->lay.depth,
			s->lay.req_max, s->lay.resp_max);
	fprintf(out,
			"  recvs %" PRIu64 ", requests %" PRIu64 ", replies %" PRIu64
			", open %u, stale tokens %" PRIu64 "\n",
			st.recvs, st.requests, st.replies, st.open, st.stale);
	fprintf(out,
			"  connects %" PRIu64 ", closes %" PRIu64 ", deaths %" PRIu64
			", lost calls %" PRIu64 ", dropped %" PRIu64 ", reaps %" PRIu64 "\n",
			st.connects, st.closes, st.deaths, st.lost_calls, st.kicks, st.reaps);
	for (i = 0; i < s->n_active; i++) {
		p = s->active[i];
		fprintf(out,
				"  client %u: %s, pid %u, generation %u, requests %" PRIu64
				", responses %" PRIu64 ", open %u\n",
				p->id, names[p->state], p->ctl->pid, p->gen, p->req_seq - 1,
				p->resp_seq - 1, p->open);
	}
}
