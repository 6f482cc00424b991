/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "app_driver.h"
#include "app_link.h"
#include "crpc_clock.h"
#include "crpc_copyrpc.h"
#include "crpc_file.h"
#include "crpc_idle.h"

#define MEET_MS   20000
/* Longer than the other rank may be busy with a slice, or with proving a gigabyte. */
#define WAIT_NS   UINT64_C(150000000000)
#define RING_SIZE 65536
#define LINGER_NS UINT64_C(100000000)

struct app_link {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_copyrpc_ep *ep;
	struct crpc_idle idle;
	struct app_boot *boot; /* Knows whether the other rank lives. */
	uint32_t other;
	uint64_t gone_ns; /* When it was seen dead; 0: it was not. */
	bool heard; /* The other rank's lies in `in`. */
	uint32_t len;
	uint8_t in[APP_LINK_MAX] crpc_aligned(8);
};

static void
link_free(struct app_link *k)
{
	if (k == NULL)
		return;
	crpc_copyrpc_free(k->ctx);
	crpc_rdma_close(k->dev);
	free(k);
}

static int
link_make(struct app_link *k, const char *device)
{
	const struct crpc_rdma_conf rdma = {.device = device};
	struct crpc_copyrpc_conf conf = {.peer_timeout_ns = WAIT_NS,
		.flush = CRPC_COPYRPC_IMMEDIATE,
		.ring_size = RING_SIZE};

	if (app_driver_choose() != 0)
		return APP_EXIT_USAGE;
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
link_meet(struct app_link *k, struct app_boot *boot)
{
	uint8_t addr[CRPC_COPYRPC_ADDR_LEN], all[2][sizeof(addr)];
	int rc;

	crpc_copyrpc_ep_addr(k->ep, addr);
	rc = app_boot_exchange(boot, "app.link", addr, sizeof(addr), all, MEET_MS);
	if (rc == 0)
		rc = crpc_copyrpc_ep_connect(k->ep, all[1 - boot->rank]);
	if (rc == 0)
		rc = app_boot_fence(boot, MEET_MS);
	return rc == 0 ? 0 : app_fail("the other rank: %s; start both again", strerror(-rc));
}

int
app_link_open(struct app_link **link, struct app_boot *boot, const char *device)
{
	struct app_link *k = calloc(1, sizeof(*k));
	int rc;

	app_fail_hold(true);
	rc = k == NULL ? app_fail("no memory") : link_make(k, device);
	rc = app_boot_agree(boot, "app.device", rc);
	if (rc == 0)
		rc = link_meet(k, boot);
	if (rc != 0) {
		link_free(k);
		return rc;
	}
	/* Nothing is measured while ranks wait for each other. */
	k->idle.policy = CRPC_IDLE_YIELD;
	k->boot = boot;
	k->other = 1 - boot->rank;
	*link = k;
	return 0;
}

/*
 * Whether we wait for a rank that has died. The device does not report it: what we sent was
 * acknowledged before it died. What it sent itself is on its way for a moment.
 */
static bool
link_deserted(struct app_link *k, uint64_t now)
{
	app_boot_look(k->boot, now);
	if (k->heard || !app_boot_gone(k->boot, k->other))
		return false;
	if (k->gone_ns == 0)
		k->gone_ns = now;
	return now - k->gone_ns > LINGER_NS;
}

static void
link_poll(struct app_link *k, int *rc)
{
	uint64_t now = crpc_clock_ns();
	struct crpc_done none;
	struct crpc_req req;

	crpc_copyrpc_poll(k->ctx, now, &none, 1);
	/* What comes next waits in the ring until this one is taken. */
	if (!k->heard && crpc_copyrpc_recv(k->ctx, now, &req, 1) == 1) {
		k->heard = req.len <= sizeof(k->in);
		k->len = req.len;
		if (k->heard)
			memcpy(k->in, req.data, req.len);
		else
			*rc = -EPROTO;
		crpc_copyrpc_release(k->ctx, now, req.token);
	}
	if (crpc_copyrpc_ep_status(k->ep) != 0 || link_deserted(k, now))
		*rc = -ECONNRESET;
}

/* Our last message has to arrive before the device is closed. */
static void
link_linger(struct app_link *k)
{
	uint64_t until = crpc_clock_ns() + LINGER_NS;
	int rc = 0;

	while (rc == 0 && crpc_clock_ns() < until) {
		link_poll(k, &rc);
		app_link_idle(k);
	}
}

void
app_link_close(struct app_link *k)
{
	if (k == NULL)
		return;
	link_linger(k);
	link_free(k);
}

int
app_link_send(struct app_link *k, const void *msg, size_t len)
{
	return crpc_copyrpc_notify(k->ep, crpc_clock_ns(), msg, (uint32_t)len);
}

int
app_link_recv(struct app_link *k, void *msg, size_t len)
{
	int rc = 0;

	link_poll(k, &rc);
	if (rc != 0)
		return rc;
	if (!k->heard)
		return -EAGAIN;
	k->heard = false;
	if (k->len != len)
		return -EPROTO;
	memcpy(msg, k->in, len);
	return 0;
}

void
app_link_idle(struct app_link *k)
{
	crpc_idle_turn(&k->idle, 0);
}

/* The kernel has it as text, "100 Gb/sec (4X EDR)"; all but the first SDR have whole ones. */
double
app_link_port_gbps(const struct app_link *k)
{
	struct crpc_rdma_info info;
	char path[160];
	int64_t gbit;

	crpc_rdma_info_get(k->dev, &info);
	snprintf(
		path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/rate", info.name, info.port);
	gbit = __crpc_file_number(path);
	return gbit > 0 ? (double)gbit / 8 : 0;
}
