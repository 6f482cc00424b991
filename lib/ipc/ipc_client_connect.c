/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's slow path: find the server, claim a place, leave it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "crpc_log.h"
#include "ipc_client.h"
#include "ipc_server.h"

#define DEFAULT_PROBE_MS 10
/* Between two tries to connect. */
#define RETRY_NS 1000000
/* Rings that may collide with others' before this one is left to the server's next reap. */
#define RING_TRIES 64

void
__crpc_ipc_ring_bell(_Atomic uint32_t *bell)
{
	uint32_t v = crpc_load_relaxed(bell), i;

	/* R6 pairs with A6 in recv() and __crpc_ipc_admit(): the claim before the ring. */
	for (i = 0; i < RING_TRIES && !crpc_cas_acq_rel(bell, &v, v + 1); i++)
		;
}

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

static uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int
claim_any(struct crpc_ipc_client *c)
{
	uint32_t id;
	int rc = -EAGAIN;

	for (id = 0; id < c->lay.max_clients && rc == -EAGAIN; id++)
		rc = claim_place(c, id);
	return rc;
}

/* Claim a place, waiting until end_ns for one to become free while the server lives. */
static int
claim_wait(struct crpc_ipc_client *c, uint64_t end_ns)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	int rc;

	for (;;) {
		rc = claim_any(c);
		if (rc != -EAGAIN)
			return rc;
		if (!crpc_shm_owner_alive(c->seg))
			return -ECONNREFUSED;
		if (now_ns() >= end_ns)
			break;
		nanosleep(&pause, NULL);
	}
	crpc_err("%s: all %u places are taken; close a client, or start the server with more",
			crpc_shm_path(c->seg), c->lay.max_clients);
	return -EUSERS;
}

/* Map this client's pages now: its first calls do not fault. A hint, so it may fail. */
static void
prefault(uint8_t *p, uint64_t len)
{
#ifdef MADV_POPULATE_WRITE
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t skip = (uintptr_t)p & (page - 1);

	madvise(p - skip, len + skip, MADV_POPULATE_WRITE);
#else
	(void)p;
	(void)len;
#endif
}

static int
place_init(struct crpc_ipc_client *c)
{
	c->calls = calloc(c->lay.req_slots, sizeof(*c->calls));
	if (c->calls == NULL)
		return -ENOMEM;
	c->req = crpc_shm_ptr(
			c->seg, c->lay.req_off + c->id * c->lay.req_stride, c->lay.req_stride);
	c->resp = crpc_shm_ptr(
			c->seg, c->lay.resp_off + c->id * c->lay.resp_stride, c->lay.resp_stride);
	c->next = ipc_slot_at(c->req, 0, c->lay.req_slot);
	c->head = ipc_slot_at(c->resp, 1 & (c->lay.resp_slots - 1), c->lay.resp_slot);
	c->req_seq = 1;
	c->resp_seq = 1;
	c->room = c->lay.depth;
	c->small_max = (uint32_t)crpc_min(c->lay.req_max, IPC_COPY_SMALL);
	c->req_slot = c->lay.req_slot;
	c->resp_slot = c->lay.resp_slot;
	c->resp_max = c->lay.resp_max;
	c->req_mask = c->lay.req_slots - 1;
	c->resp_mask = c->lay.resp_slots - 1;
	prefault(c->req, c->lay.req_stride);
	prefault(c->resp, c->lay.resp_stride);
	return 0;
}

static void
leave_place(struct crpc_ipc_client *c)
{
	uint64_t claim = IPC_CLAIM(c->gen, IPC_OPEN);

	crpc_cas_acq_rel(&c->ctl->claim, &claim, IPC_CLAIM(c->gen, IPC_CLOSED));
	crpc_shm_lock_drop(c->lock);
	/* After the lock: who looks because of the ring finds the place free to take back. */
	__crpc_ipc_ring_bell(c->bell);
}

/* From an attached segment to a place in it. */
static int
join(struct crpc_ipc_client *c, uint64_t end_ns)
{
	int rc = __crpc_ipc_layout_read(&c->lay, c->seg);

	if (rc == 0)
		rc = claim_wait(c, end_ns);
	if (rc != 0)
		return rc;
	c->beat = crpc_shm_ptr(c->seg, IPC_SERVER_OFF, sizeof(*c->beat));
	c->bell = crpc_shm_ptr(c->seg, IPC_BELL_OFF, sizeof(*c->bell));
	rc = place_init(c);
	if (rc != 0)
		leave_place(c);
	else
		__crpc_ipc_ring_bell(c->bell);
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
		now = now_ns();
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

struct crpc_ipc_client *
crpc_ipc_client_connect(const struct crpc_ipc_client_conf *conf)
{
	struct crpc_ipc_client *c =
			aligned_alloc(CRPC_CACHE_LINE, crpc_align_up(sizeof(*c), CRPC_CACHE_LINE));
	int rc;

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->probe_ns = (uint64_t)(conf->probe_ms == 0 ? DEFAULT_PROBE_MS : conf->probe_ms) * 1000000;
	rc = attach_and_join(c, conf, now_ns() + (uint64_t)conf->timeout_ms * 1000000);
	if (rc == 0)
		return c;
	free(c);
	errno = -rc;
	return NULL;
}

void
crpc_ipc_client_close(struct crpc_ipc_client *c)
{
	if (c == NULL)
		return;
	leave_place(c);
	crpc_shm_detach(c->seg);
	free(c->calls);
	free(c);
}
