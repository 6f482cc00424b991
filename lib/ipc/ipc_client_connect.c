/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's slow path: find the server, claim a place, leave it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crpc_arena.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "ipc_client_slow.h"
#include "ipc_server.h"

#define DEFAULT_PROBE_MS 10
/* Between two tries to connect. */
#define RETRY_NS 1000000

/*
 * Claim place id. 0, or -EAGAIN if it is taken, or another -errno. The kernel lock comes first: a
 * place that is claimed and not locked is the mark of a dead client.
 */
static int
claim_place(struct crpc_ipc_client *c, uint32_t id)
{
	struct ipc_ctl *ctl = crpc_shm_ptr(c->seg, IPC_CTL_OFF + id * sizeof(*ctl), sizeof(*ctl));
	uint64_t claim = crpc_load_relaxed(&ctl->claim);
	int rc;

	if ((uint32_t)claim != IPC_FREE)
		return -EAGAIN;
	c->lock = crpc_shm_lock_take(c->seg, IPC_LOCK_BYTE(id));
	if (c->lock == NULL)
		return -errno;
	/* A3 pairs with R3 in retire_if_gone(): its slots are wiped. */
	claim = crpc_load_acquire(&ctl->claim);
	if ((uint32_t)claim != IPC_FREE) {
		rc = -EAGAIN;
		goto err_lock;
	}
	ctl->pid = (uint32_t)getpid();
	ctl->member = c->arena == NULL ? 0 : crpc_arena_member(c->arena);
	/* R4 pairs with A4 in look_at(). */
	if (!crpc_cas_acq_rel(&ctl->claim, &claim, IPC_CLAIM(claim >> 32, IPC_OPEN))) {
		rc = -EAGAIN;
		goto err_lock;
	}
	c->ctl = ctl;
	c->id = id;
	c->gen = (uint32_t)(claim >> 32);
	return 0;

err_lock:
	crpc_shm_lock_drop(c->lock);
	c->lock = NULL;
	return rc;
}

static int
claim_any(struct crpc_ipc_client *c, uint32_t max_clients)
{
	int rc = -EAGAIN;

	for (uint32_t id = 0; id < max_clients && rc == -EAGAIN; id++)
		rc = claim_place(c, id);
	return rc;
}

/* Claim a place, waiting until end_ns for one to become free while the server lives. */
static int
claim_wait(struct crpc_ipc_client *c, uint32_t max_clients, uint64_t end_ns)
{
	int rc;

	for (;;) {
		rc = claim_any(c, max_clients);
		if (rc != -EAGAIN)
			return rc;
		if (!crpc_shm_owner_alive(c->seg))
			return -ECONNREFUSED;
		if (crpc_clock_monotonic_ns() >= end_ns)
			break;
		crpc_nap(RETRY_NS);
	}
	return crpc_fail(-EUSERS,
		"%s: all %u places are taken; close a client, or start the server with more",
		crpc_shm_path(c->seg), max_clients);
}

/* Map this client's pages now: its first calls do not fault. A hint, so it may fail. */
static void
prefault(uint8_t *p, uint64_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t skip = (uintptr_t)p & (page - 1);

	madvise(p - skip, len + skip, MADV_POPULATE_WRITE);
}

/* A call has ended without an answer. */
static void
drop_call(struct rpc_calls *calls, struct rpc_call *rpc)
{
	struct crpc_ipc_client *c = crpc_container_of(calls, struct crpc_ipc_client, calls);
	struct ipc_call *call = crpc_container_of(rpc, struct ipc_call, rpc);

	if ((call->state & IPC_CALL_BLOCK) != 0)
		__crpc_ipc_block_back(c, (uint32_t)(call - c->call));
	c->oneway -= (call->state & IPC_CALL_ONEWAY) != 0;
	call->state = 0;
}

static int
place_init(struct crpc_ipc_client *c, const struct ipc_header *lay)
{
	struct ipc_call *calls = calloc(lay->req_slots + 2, sizeof(*calls));

	if (calls == NULL)
		return -ENOMEM;
	c->call = calls + 1; /* entry 0 of a call table is not used */
	c->next_call = c->call;
	__crpc_calls_init(&c->calls, calls, lay->req_slots + 1, sizeof(*calls), 0);
	c->calls.drop = drop_call;
	c->table = &c->calls;
	__crpc_sweep_init(&c->sweep, &c->table, 1, &c->stats.rpc, c->timeout_ns);
	if (c->arena != NULL) {
		c->held = calloc(lay->depth, sizeof(*c->held));
		c->refs = calloc(lay->req_slots, sizeof(*c->refs));
	}
	if (c->arena != NULL && (c->held == NULL || c->refs == NULL))
		return -ENOMEM;
	c->req_region = lay->req_stride;
	c->resp_region = lay->resp_stride;
	c->req = crpc_shm_ptr(c->seg, lay->req_off + c->id * c->req_region, c->req_region);
	c->resp = crpc_shm_ptr(c->seg, lay->resp_off + c->id * c->resp_region, c->resp_region);
	c->next = ipc_slot_at(c->req, 0, lay->req_slot);
	c->head = ipc_slot_at(c->resp, 1 & (lay->resp_slots - 1), lay->resp_slot);
	c->lone = (struct ipc_slot *)(void *)(c->req + lay->lone_off);
	c->lone_call = &c->call[lay->req_slots];
	c->allow = (_Atomic uint16_t *)(void *)(c->req + lay->allow_off);
	for (uint32_t slot = 0; slot <= lay->req_slots; slot++)
		__crpc_ipc_allow(c, &c->call[slot], 0);
	c->lone_want = 1 + (uint32_t)crpc_min(lay->req_max, CRPC_IPC_SMALL);
	c->lone_end = c->lone_want;
	c->req_seq = 1;
	c->resp_seq = 1;
	c->depth = lay->depth;
	c->room = lay->depth;
	c->req_max = lay->req_max;
	c->req_slot = lay->req_slot;
	c->resp_slot = lay->resp_slot;
	c->resp_max = lay->resp_max;
	c->req_mask = lay->req_slots - 1;
	c->resp_mask = lay->resp_slots - 1;
	c->sleep = &c->ctl->sleep;
	__crpc_ipc_age_slots(c);
	c->announced = 1; /* nothing was sent */
	c->countdown = IPC_LOOK_POLLS;
	prefault(c->req, c->req_region);
	prefault(c->resp, c->resp_region);
	return 0;
}

static void
leave_place(struct crpc_ipc_client *c)
{
	uint64_t claim = IPC_CLAIM(c->gen, IPC_OPEN);
	enum ipc_claim end = c->oneway != 0 ? IPC_LEAVING : IPC_CLOSED;

	crpc_cas_acq_rel(&c->ctl->claim, &claim, IPC_CLAIM(c->gen, end));
	crpc_shm_lock_drop(c->lock);
	/* After the lock: who looks because of the ring finds the place free to take back. */
	__crpc_ipc_ring_bell(c->bell, c->id);
}

/* From an attached segment to a place in it. */
static int
join(struct crpc_ipc_client *c, uint64_t end_ns)
{
	struct ipc_server_line *line;
	struct ipc_header lay; /* a private copy, checked */
	int rc = __crpc_ipc_layout_read(&lay, c->seg);

	if (rc == 0)
		rc = claim_wait(c, lay.max_clients, end_ns);
	if (rc != 0)
		return rc;
	line = crpc_shm_ptr(c->seg, IPC_SERVER_OFF, sizeof(*line));
	c->server_member = line->member;
	c->bell = crpc_shm_ptr(c->seg, IPC_BELL_OFF, sizeof(*c->bell));
	rc = place_init(c, &lay);
	if (rc != 0)
		leave_place(c);
	else
		__crpc_ipc_ring_bell(c->bell, c->id);
	return rc;
}

/* A server that restarts between attach and join refuses the old segment: then try the new one. */
static int
attach_and_join(struct crpc_ipc_client *c, const struct crpc_ipc_client_conf *conf, uint64_t end_ns)
{
	uint64_t now;
	uint32_t left_ms;
	int rc;

	do {
		now = crpc_clock_monotonic_ns();
		left_ms = now < end_ns ? (uint32_t)((end_ns - now) / 1000000) : 0;
		if (conf->server != NULL)
			c->seg = crpc_shm_ref(conf->server->seg);
		else
			c->seg = crpc_shm_attach(
					conf->dir, conf->name, IPC_KIND, IPC_VERSION, left_ms);
		if (c->seg == NULL)
			return errno == EAGAIN ? -ECONNREFUSED : -errno;
		rc = join(c, end_ns);
		if (rc == 0)
			return 0;
		crpc_shm_detach(c->seg);
	} while (rc == -ECONNREFUSED && conf->server == NULL && left_ms != 0);
	return rc;
}

static void
client_free(struct crpc_ipc_client *c)
{
	free(c->refs);
	free(c->held);
	if (c->call != NULL)
		free(c->call - 1);
	free(c);
}

struct crpc_ipc_client *
crpc_ipc_client_connect(const struct crpc_ipc_client_conf *conf)
{
	struct crpc_ipc_client *c =
			aligned_alloc(CRPC_CACHE_LINE, crpc_align_up(sizeof(*c), CRPC_CACHE_LINE));
	int rc;

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->timeout_ns = ipc_timeout_ns(conf->call_timeout_us);
	c->arena = conf->arena;
	c->probe_ns = (uint64_t)(conf->probe_ms == 0 ? DEFAULT_PROBE_MS : conf->probe_ms) * 1000000;
	rc = attach_and_join(
		c, conf, crpc_clock_monotonic_ns() + (uint64_t)conf->timeout_ms * 1000000);
	if (rc == 0)
		return c;
	client_free(c);
	return crpc_null(rc);
}

void
crpc_ipc_client_close(struct crpc_ipc_client *c)
{
	if (c == NULL)
		return;
	__crpc_ipc_free_held(c);
	leave_place(c);
	for (uint32_t slot = 0; slot <= c->req_mask; slot++)
		if ((c->call[slot].state & IPC_CALL_BLOCK) != 0)
			__crpc_ipc_block_back(c, slot);
	crpc_shm_detach(c->seg);
	client_free(c);
}

/* ---- getters ---- */

int
crpc_ipc_client_status(const struct crpc_ipc_client *c)
{
	return c->status;
}

uint32_t
crpc_ipc_client_depth(const struct crpc_ipc_client *c)
{
	return c->depth;
}

uint32_t
crpc_ipc_client_open(const struct crpc_ipc_client *c)
{
	return c->calls.open;
}

uint32_t
crpc_ipc_client_resp_max(const struct crpc_ipc_client *c)
{
	return c->resp_max;
}

uid_t
crpc_ipc_client_owner_uid(const struct crpc_ipc_client *c)
{
	return crpc_shm_owner_uid(c->seg);
}

void
crpc_ipc_client_stats(const struct crpc_ipc_client *c, struct crpc_ipc_client_stats *stats)
{
	*stats = c->stats;
	stats->rpc.calls = c->req_seq - 1 - c->stats.rpc.notifies;
	stats->rpc.completions = stats->rpc.calls - c->calls.open;
	stats->failed += stats->rpc.timeouts + stats->rpc.cancels + stats->rpc.resets;
}
