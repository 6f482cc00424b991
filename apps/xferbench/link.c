/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two ranks exchange: calls of copyrpc over a connection of their own. Both give and
 * take in the same order, so neither is ever more than one ahead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_boot.h"
#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_idle.h"
#include "crpc_log.h"
#include "xb.h"

#define MEET_MS   20000
#define BURST     4
/* Longer than the other rank may be busy with a slice, or with proving a gigabyte. */
#define WAIT_NS   UINT64_C(150000000000)
#define RING_SIZE 65536
#define LINGER_NS UINT64_C(100000000)

struct xb_link {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_idle idle;
	struct app_boot *boot; /* Knows whether the other rank lives. */
	uint32_t other;
	uint64_t gone_ns; /* When it was seen dead; 0: it was not. */
	bool called; /* A call of ours is open. */
	bool heard; /* The other rank's lies in `in`. */
	uint32_t len;
	uint8_t in[XB_SWAP_MAX] crpc_aligned(8);
};

static void
link_free(struct xb_link *k)
{
	crpc_copyrpc_free(k->ctx);
	crpc_rdma_close(k->dev);
	free(k);
}

static int
link_make(struct xb_link *k, const char *device)
{
	const struct crpc_rdma_conf rdma = {.device = device, .gid_index = -1};
	struct crpc_copyrpc_conf conf = {.timeout_ns = WAIT_NS, .flush = CRPC_COPYRPC_IMMEDIATE,
			.ring_size = RING_SIZE};

	k->dev = crpc_rdma_open(&rdma);
	if (k->dev == NULL)
		return app_fail("two ranks need an RDMA device: %s; usertools/soft-mlx5 starts a "
				"program on a software device",
			crpc_log_last());
	conf.dev = k->dev;
	k->ctx = crpc_copyrpc_create(&conf);
	if (k->ctx != NULL)
		k->ep = crpc_copyrpc_ep_create(k->ctx, 0);
	return k->ep != NULL ? 0 : app_fail("%s", crpc_log_last());
}

static int
link_meet(struct xb_link *k, struct app_boot *boot)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN];
	void *theirs = NULL;
	size_t len = 0;
	int rc;

	crpc_copyrpc_ep_addr(k->ep, addr);
	rc = app_boot_put(boot, "xb.link", addr, sizeof(addr));
	if (rc == 0)
		rc = app_boot_fence(boot, MEET_MS);
	if (rc == 0)
		rc = app_boot_get(boot, 1 - boot->rank, "xb.link", &theirs, &len, MEET_MS);
	if (rc == 0)
		rc = len == sizeof(addr) ? crpc_copyrpc_ep_connect(k->ep, theirs) : -EPROTO;
	free(theirs);
	if (rc == 0)
		rc = app_boot_fence(boot, MEET_MS);
	return rc == 0 ? 0 : app_fail("the other rank: %s; start both again", strerror(-rc));
}

int
xb_link_open(struct xb_team *t, struct app_boot *boot, const char *device)
{
	struct xb_link *k = calloc(1, sizeof(*k));
	int rc;

	app_fail_hold(true);
	rc = k == NULL ? app_fail("no memory") : link_make(k, device);
	rc = app_boot_agree(boot, "xb.device", rc);
	if (rc == 0)
		rc = link_meet(k, boot);
	if (rc != 0) {
		if (k != NULL)
			link_free(k);
		return rc;
	}
	/* Nothing is measured while ranks wait for each other. */
	k->idle.policy = CRPC_IDLE_YIELD;
	k->boot = boot;
	k->other = 1 - boot->rank;
	t->link = k;
	t->side = (int)boot->rank;
	return 0;
}

/* Our answer to the other rank's last call has to leave before the device is closed. */
static void
link_linger(struct xb_link *k)
{
	uint64_t until = crpc_clock_ns() + LINGER_NS;
	int rc = 0;

	while (rc == 0 && crpc_clock_ns() < until) {
		xb_link_poll(k, &rc);
		xb_link_idle(k);
	}
}

void
xb_link_close(struct xb_team *t)
{
	if (t->link != NULL) {
		link_linger(t->link);
		link_free(t->link);
	}
	t->link = NULL;
}

int
xb_link_tell(struct xb_link *k, const void *mine, size_t len)
{
	int rc = crpc_copyrpc_call(k->ep, crpc_clock_ns(), mine, (uint32_t)len, 0, 0);

	k->called = rc == 0;
	return rc;
}

/*
 * Whether we wait for a rank that has died. The device does not report it: what we sent was
 * acknowledged before it died. What it sent itself is on its way for a moment.
 */
static bool
link_deserted(struct xb_link *k, uint64_t now)
{
	app_boot_look(k->boot, now);
	if ((k->heard && !k->called) || !app_boot_gone(k->boot, k->other))
		return false;
	if (k->gone_ns == 0)
		k->gone_ns = now;
	return now - k->gone_ns > LINGER_NS;
}

const void *
xb_link_poll(struct xb_link *k, int *rc)
{
	uint64_t now = crpc_clock_ns();
	struct crpc_done done[BURST];
	struct crpc_req req;
	uint16_t i, n = crpc_copyrpc_poll(k->ctx, now, done, BURST);

	for (i = 0; i < n; i++) {
		k->called = false;
		if (done[i].status != 0)
			*rc = done[i].status;
	}
	/* What comes next waits in the ring until this one is taken. */
	if (!k->heard && crpc_copyrpc_recv(k->ctx, now, &req, 1) == 1) {
		k->heard = req.len <= sizeof(k->in);
		k->len = req.len;
		if (k->heard)
			memcpy(k->in, req.data, req.len);
		else
			*rc = -EPROTO;
		crpc_copyrpc_reply(k->ctx, now, req.token, NULL, 0);
	}
	if (crpc_copyrpc_ep_status(k->ep) != 0 || link_deserted(k, now))
		*rc = -ECONNRESET;
	return k->heard ? k->in : NULL;
}

int
xb_link_take(struct xb_link *k, void *theirs, size_t len)
{
	int rc = 0;

	xb_link_poll(k, &rc);
	if (rc != 0)
		return rc;
	if (!k->heard || k->called)
		return -EAGAIN;
	k->heard = false;
	if (k->len != len)
		return -EPROTO;
	memcpy(theirs, k->in, len);
	return 0;
}

void
xb_link_idle(struct xb_link *k)
{
	crpc_idle_turn(&k->idle, 0);
}

/* The kernel has it as text: "100 Gb/sec (4X EDR)". */
double
xb_link_line(const struct xb_link *k)
{
	struct crpc_rdma_info info;
	char path[160];
	double gbit = 0;
	FILE *f;

	crpc_rdma_info_get(k->dev, &info);
	snprintf(
		path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/rate", info.name, info.port);
	f = fopen(path, "r");
	if (f == NULL)
		return 0;
	if (fscanf(f, "%lf Gb/sec", &gbit) != 1)
		gbit = 0;
	fclose(f);
	return gbit / 8;
}
