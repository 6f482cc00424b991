/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_fail.h"
#include "backend.h"
#include "crpc_log.h"
#include "net.h"

#define EXCHANGE_MS 30000
#define KEY_LEN     64

static const struct kv_backend kv_copyrpc = {.name = "copyrpc", .passes = true, .ipc = true};

#ifndef KV_HAVE_UCX
const struct kv_backend kv_backend_ucx = {.name = "ucx", .package = "libucx-dev"};
#endif

static const struct kv_backend *const backends[] = {
	&kv_copyrpc,
	&kv_backend_delegation,
	&kv_backend_direct,
	&kv_backend_ucx,
	&kv_backend_erpc,
};

_Static_assert(CRPC_DIM(backends) == KV_BACKENDS, "in the order of kv_backend_names");

const struct kv_backend *
kv_backend(unsigned int number)
{
	return backends[number];
}

/* What each rank publishes about its links. */
struct links {
	uint32_t links;
	uint32_t calls; /* That one of them has open at most. */
};

static int
exchange_links(struct kv_wire *w, struct links *mine)
{
	struct links *theirs;
	uint32_t r;
	size_t len;
	void *buf;
	int rc = app_boot_put(w->boot, "kv.links", mine, sizeof(*mine));

	if (rc == 0)
		rc = app_boot_fence(w->boot, EXCHANGE_MS);
	for (r = 0; r < w->boot->size && rc == 0; r++) {
		w->rank_links[r] = mine->links;
		if (r == w->boot->rank) {
			w->first_link = w->links_all;
			w->links_all += mine->links;
			continue;
		}
		rc = app_boot_get(w->boot, r, "kv.links", &buf, &len, EXCHANGE_MS);
		if (rc != 0)
			break;
		theirs = buf;
		if (len != sizeof(*theirs) || theirs->links > KV_SEATS_MAX) {
			rc = -EPROTO;
		} else {
			w->rank_links[r] = theirs->links;
			w->links_all += theirs->links;
			mine->calls = (uint32_t)crpc_max(mine->calls, theirs->calls);
		}
		free(buf);
	}
	return rc;
}

static struct kv_end *
open_end(struct kv_wire *w, struct kv_end_conf *conf, uint32_t self, bool server, int *rc)
{
	struct kv_end *end;

	conf->server = server;
	conf->self = self;
	conf->rank = w->boot->rank;
	conf->owners = w->backend->passes ? w->daemons : w->boot->size * w->daemons;
	conf->peers = !server ? conf->owners : w->backend->passes ? w->links : w->links_all;
	crpc_log_clear();
	end = w->backend->open(conf, rc);
	if (end != NULL)
		end->backend = w->backend;
	else if (*rc < 0)
		*rc = app_fail("cannot make the %s of backend %s: %s (%s); give fewer --clients "
			       "or --daemons",
			server ? "ports" : "links", w->backend->name, strerror(-*rc),
			crpc_log_last());
	return end;
}

int
kv_backend_open(struct kv_wire *w, struct app_boot *boot, const struct kv_end_conf *base,
	const struct kv_place *place, uint32_t seats)
{
	struct kv_end_conf conf = *base;
	struct links mine = {0};
	uint32_t i, clients, n = 0;
	int rc;

	conf.timeout_ns = kv_net_timeout_ns(boot);
	w->backend = kv_backend(conf.opt->backend);
	w->boot = boot;
	w->daemons = (uint32_t)conf.opt->daemons;
	w->seats = seats;
	for (i = 0; i < seats; i++) {
		clients = place[i].client_to - place[i].client_from;
		mine.links += clients != 0;
		mine.calls = (uint32_t)crpc_max(mine.calls, clients * conf.opt->qd);
	}
	w->links = mine.links;
	rc = exchange_links(w, &mine);
	if (rc != 0)
		return app_fail("the ranks could not exchange how many lcores have clients: "
				"%s; start again with the same version on all",
			strerror(-rc));
	conf.calls = mine.calls;
	for (i = 0; i < w->daemons && rc == 0; i++)
		w->port[i] = open_end(w, &conf,
			(w->backend->passes ? 0 : boot->rank * w->daemons) + i, true, &rc);
	for (i = 0; i < seats && rc == 0; i++) {
		if (place[i].client_to == place[i].client_from)
			continue;
		conf.beside = place[i].daemon_to - place[i].daemon_from == 1
			? w->port[place[i].daemon_from]
			: NULL;
		w->link[i] = open_end(
			w, &conf, (w->backend->passes ? 0 : w->first_link) + n++, false, &rc);
	}
	return rc;
}

/* Where an end's address stands in the exchange: those of a rank are numbered by kind. */
static void
address_key(char *key, bool port, uint32_t number)
{
	snprintf(key, KEY_LEN, "kv.%s.%u", port ? "port" : "link", number);
}

static int
publish(struct kv_wire *w, struct kv_end *end, bool port, uint32_t number, uint8_t *buf)
{
	size_t len = w->backend->address(end, buf, KV_ADDRESS_MAX);
	char key[KEY_LEN];

	if (len == 0)
		return -ENOSPC;
	address_key(key, port, number);
	return app_boot_put(w->boot, key, buf, len);
}

/* The link with this number of our rank. */
static struct kv_end *
link_at(struct kv_wire *w, uint32_t number)
{
	uint32_t i, n = 0;

	for (i = 0; i < w->seats; i++)
		if (w->link[i] != NULL && n++ == number)
			return w->link[i];
	return NULL;
}

/* Connect an end to one of the other kind, of any rank. */
static int
connect_one(struct kv_wire *w, struct kv_end *end, uint32_t peer, bool port, uint32_t rank,
	uint32_t number, uint8_t *scratch)
{
	char key[KEY_LEN];
	struct kv_end *ours;
	void *buf = NULL;
	size_t len;
	int rc;

	if (rank == w->boot->rank) {
		ours = port ? w->port[number] : link_at(w, number);
		len = w->backend->address(ours, scratch, KV_ADDRESS_MAX);
		return len == 0 ? -ENOSPC : w->backend->connect(end, peer, scratch, len);
	}
	address_key(key, port, number);
	rc = app_boot_get(w->boot, rank, key, &buf, &len, EXCHANGE_MS);
	if (rc == 0)
		rc = w->backend->connect(end, peer, buf, len);
	free(buf);
	return rc;
}

/* Connect an end to all of the other kind that it reaches. */
static int
connect_end(struct kv_wire *w, struct kv_end *end, bool port, uint8_t *scratch)
{
	uint32_t r, i, n, peer = 0;
	int rc = 0;

	for (r = 0; r < w->boot->size; r++) {
		if (w->backend->passes && r != w->boot->rank)
			continue;
		n = port ? w->rank_links[r] : w->daemons;
		for (i = 0; i < n && rc == 0; i++)
			rc = connect_one(w, end, peer++, !port, r, i, scratch);
	}
	return rc;
}

static int
publish_all(struct kv_wire *w, uint8_t *buf)
{
	uint32_t i, n = 0;
	int rc = 0;

	if (w->backend->passes)
		return 0;
	for (i = 0; i < w->daemons && rc == 0; i++)
		rc = publish(w, w->port[i], true, i, buf);
	for (i = 0; i < w->seats && rc == 0; i++)
		if (w->link[i] != NULL)
			rc = publish(w, w->link[i], false, n++, buf);
	return rc;
}

int
kv_backend_connect(struct kv_wire *w)
{
	uint8_t *buf = malloc(KV_ADDRESS_MAX);
	int rc = buf == NULL ? -ENOMEM : publish_all(w, buf);
	uint32_t i;

	crpc_log_clear();
	if (rc == 0)
		rc = app_boot_fence(w->boot, EXCHANGE_MS);
	for (i = 0; i < w->daemons && rc == 0; i++)
		rc = connect_end(w, w->port[i], true, buf);
	for (i = 0; i < w->seats && rc == 0; i++)
		if (w->link[i] != NULL)
			rc = connect_end(w, w->link[i], false, buf);
	free(buf);
	if (rc == 0)
		return 0;
	return app_fail("backend %s could not connect: %s (%s); all ranks need the same version "
			"and options, and a network between them",
		w->backend->name, strerror(-rc), crpc_log_last());
}

void
kv_backend_close(struct kv_wire *w)
{
	uint32_t i;

	for (i = 0; i < w->seats; i++)
		if (w->link[i] != NULL)
			w->backend->close(w->link[i]);
	for (i = 0; i < w->daemons; i++)
		if (w->port[i] != NULL)
			w->backend->close(w->port[i]);
	*w = (struct kv_wire){0};
}
