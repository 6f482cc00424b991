/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_fail.h"
#include "backend.h"
#include "crpc_log.h"

#define EXCHANGE_MS 30000
#define KEY_LEN     64

static const struct app_backend kv_copyrpc = {
	.name = "copyrpc", .front = {.passes = true}, .ipc = true};

#ifndef KV_HAVE_UCX
const struct app_backend kv_backend_ucx = {.name = "ucx", .package = "libucx-dev"};
#endif

static const struct app_backend *const backends[] = {
	&kv_copyrpc,
	&kv_backend_delegation,
	&app_direct,
	&kv_backend_ucx,
	&app_erpc,
};

_Static_assert(CRPC_DIM(backends) == KV_BACKENDS, "in the order of kv_backend_names");

const struct app_backend *
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
	static struct links all[APP_RANKS_MAX];
	int rc = app_boot_exchange(w->boot, "kv.links", mine, sizeof(*mine), all, EXCHANGE_MS);

	for (uint32_t r = 0; r < w->boot->size && rc == 0; r++) {
		if (r == w->boot->rank)
			w->first_link = w->links_all;
		if (all[r].links > KV_SEATS_MAX)
			rc = -EPROTO;
		w->rank_links[r] = all[r].links;
		w->links_all += all[r].links;
		mine->calls = (uint32_t)crpc_max(mine->calls, all[r].calls);
	}
	return rc;
}

static void *
open_end(struct kv_wire *w, struct app_end_conf *conf, uint32_t self, bool server, int *rc)
{
	void *end;

	conf->server = server;
	conf->self = self;
	conf->rank = w->boot->rank;
	conf->owners = w->backend->front.passes ? w->daemons : w->boot->size * w->daemons;
	conf->peers = !server ? conf->owners : w->backend->front.passes ? w->links : w->links_all;
	crpc_log_clear();
	end = w->backend->open(conf, rc);
	if (end == NULL && *rc < 0)
		*rc = app_fail("cannot make the %s of backend %s: %s (%s); give fewer --clients "
			       "or --daemons",
			server ? "ports" : "links", w->backend->name, strerror(-*rc),
			crpc_log_last());
	return end;
}

int
kv_backend_open(struct kv_wire *w, struct app_boot *boot, const struct app_end_conf *base,
	const struct kv_place *place, uint32_t seats)
{
	struct app_end_conf conf = *base;
	struct links mine = {0};
	uint32_t clients, n = 0;
	int rc;

	conf.timeout_ns = kv_timeout_ns(boot);
	w->boot = boot;
	w->daemons = conf.daemons;
	w->seats = seats;
	for (uint32_t i = 0; i < seats; i++) {
		clients = place[i].client_to - place[i].client_from;
		mine.links += clients != 0;
		mine.calls = (uint32_t)crpc_max(mine.calls, clients * conf.depth);
	}
	w->links = mine.links;
	rc = exchange_links(w, &mine);
	if (rc != 0)
		return app_fail("the ranks could not exchange how many lcores have clients: "
				"%s; start again with the same version on all",
			strerror(-rc));
	conf.calls = mine.calls;
	for (uint32_t i = 0; i < w->daemons && rc == 0; i++)
		w->port[i] = open_end(w, &conf,
			(w->backend->front.passes ? 0 : boot->rank * w->daemons) + i, true, &rc);
	for (uint32_t i = 0; i < seats && rc == 0; i++) {
		if (place[i].client_to == place[i].client_from)
			continue;
		conf.beside = place[i].daemon_to - place[i].daemon_from == 1
			? w->port[place[i].daemon_from]
			: NULL;
		w->link[i] = open_end(
			w, &conf, (w->backend->front.passes ? 0 : w->first_link) + n++, false, &rc);
	}
	return rc;
}

/* Where an end's address stands in the exchange: those of a rank are numbered by kind. */
static void
address_key(char *key, bool port, uint32_t number)
{
	snprintf(key, KEY_LEN, "kv.%s.%u", port ? "port" : "link", number);
}

/* Our port or link with this number; NULL: there is none. */
static void *
end_at(const struct kv_wire *w, bool port, uint32_t number)
{
	if (port)
		return number < w->daemons ? w->port[number] : NULL;
	for (uint32_t i = 0; i < w->seats; i++)
		if (w->link[i] != NULL && number-- == 0)
			return w->link[i];
	return NULL;
}

static int
publish(struct kv_wire *w, bool port, uint8_t *buf)
{
	char key[KEY_LEN];
	size_t len;
	void *end;
	int rc = 0;

	for (uint32_t n = 0; (end = end_at(w, port, n)) != NULL && rc == 0; n++) {
		len = w->backend->address(end, buf, KV_ADDRESS_MAX);
		address_key(key, port, n);
		rc = len == 0 ? -ENOSPC : app_boot_put(w->boot, key, buf, len);
	}
	return rc;
}

/* Connect an end to one of the other kind, of any rank. */
static int
connect_one(struct kv_wire *w, void *end, uint32_t peer, bool port, uint32_t rank, uint32_t number,
	uint8_t *scratch)
{
	char key[KEY_LEN];
	void *buf = NULL;
	size_t len;
	int rc;

	if (rank == w->boot->rank) {
		len = w->backend->address(end_at(w, port, number), scratch, KV_ADDRESS_MAX);
		return len == 0 ? -ENOSPC : w->backend->connect(end, peer, scratch, len);
	}
	address_key(key, port, number);
	rc = app_boot_get(w->boot, rank, key, &buf, &len, EXCHANGE_MS);
	if (rc == 0)
		rc = w->backend->connect(end, peer, buf, len);
	free(buf);
	return rc;
}

/* Connect our ports, or our links, to all ends of the other kind that they reach. */
static int
connect_ends(struct kv_wire *w, bool port, uint8_t *scratch)
{
	uint32_t others, peer;
	void *end;
	int rc = 0;

	for (uint32_t n = 0; (end = end_at(w, port, n)) != NULL; n++)
		for (uint32_t r = peer = 0; r < w->boot->size; r++) {
			if (w->backend->front.passes && r != w->boot->rank)
				continue;
			others = port ? w->rank_links[r] : w->daemons;
			for (uint32_t i = 0; i < others && rc == 0; i++)
				rc = connect_one(w, end, peer++, !port, r, i, scratch);
		}
	return rc;
}

int
kv_backend_connect(struct kv_wire *w)
{
	uint8_t *buf = malloc(KV_ADDRESS_MAX);
	int rc = buf == NULL ? -ENOMEM : 0;

	if (rc == 0 && !w->backend->front.passes)
		rc = publish(w, true, buf);
	if (rc == 0 && !w->backend->front.passes)
		rc = publish(w, false, buf);
	crpc_log_clear();
	if (rc == 0)
		rc = app_boot_fence(w->boot, EXCHANGE_MS);
	if (rc == 0)
		rc = connect_ends(w, true, buf);
	if (rc == 0)
		rc = connect_ends(w, false, buf);
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
	for (uint32_t i = 0; i < w->seats; i++)
		if (w->link[i] != NULL)
			w->backend->close(w->link[i]);
	for (uint32_t i = 0; i < w->daemons; i++)
		if (w->port[i] != NULL)
			w->backend->close(w->port[i]);
	*w = (struct kv_wire){0};
}
