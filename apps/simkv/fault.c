/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"
#include "sim.h"

const char *const sim_fault_names[] = {"crash", "pause", "slow", "break", NULL};

/* ---- what was asked for ---- */

static bool
fault_read(struct sim_fault *f, const char *text, uint32_t hosts)
{
	unsigned int host, number = 0;
	double at, length = 0;
	char kind[8];
	int end = 0;

	*f = (struct sim_fault){0};
	if (sscanf(text, "%7[a-z]:%u@%lf+%lf%n", kind, &host, &at, &length, &end) != 4 &&
		sscanf(text, "%7[a-z]:%u.%u@%lf%n", kind, &host, &number, &at, &end) != 4)
		return false;
	while (f->kind < SIM_FAULT_KINDS && strcmp(kind, sim_fault_names[f->kind]) != 0)
		f->kind++;
	if (!(at >= 0 && at <= 1e9 && length >= 0 && length <= 1e9))
		return false;
	f->host = host;
	f->number = number;
	f->at = (uint64_t)(at * 1e3);
	f->length = (uint64_t)(length * 1e3);
	return f->kind != SIM_FAULT_KINDS && (f->kind == SIM_BREAK) == (f->length == 0) &&
		host < hosts && hosts > 1 && (text[end] == '\0' || text[end] == ',');
}

int
sim_faults_read(struct sim_faults *f, const char *text, uint32_t hosts)
{
	*f = (struct sim_faults){0};
	for (; text != NULL; text = strchr(text, ',')) {
		text += *text == ',';
		if (f->n == SIM_FAULTS_MAX)
			return app_fail("--fault: more than %u; give fewer", SIM_FAULTS_MAX);
		if (!fault_read(&f->v[f->n++], text, hosts))
			return app_fail(
				"--fault %s: expected crash, pause or slow as KIND:HOST@US+US, or "
				"break:HOST.NUMBER@US, with HOST below %u",
				text, hosts);
	}
	return 0;
}

uint64_t
sim_faults_end(const struct sim_faults *f)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < f->n; i++)
		end = crpc_max(end, f->v[i].at + f->v[i].length);
	return end;
}

/* ---- faults ---- */

static void
crash_end(struct sim_world *w, struct sim_fault *f, uint64_t now)
{
	struct sim_host *h = &w->host[f->host];

	if (sim_host_start(h) != 0) {
		w->rc = APP_EXIT_USAGE;
		return;
	}
	h->dead = false;
	h->free = crpc_max(h->free, now * 1000);
	for (uint32_t i = 0; i < w->hosts; i++) {
		crpc_kv_server_here(h->server, i, true);
		h->other[i].reconnect = true;
	}
	w->restart[w->restarts++] =
		(struct sim_restart){.host = f->host, .died = h->died, .back = now};
	sim_wake(&h->turn, now);
}

/* Its n-th connection that there is. */
static void
break_one(struct sim_host *h, uint32_t number)
{
	for (uint32_t i = 0, n = number % h->world->hosts; i < h->world->hosts; i++)
		if (crpc_paper_fail(h->parts.device, (n + i) % h->world->hosts, -EIO) == 0)
			return;
}

static void
fault_begin(struct sim_world *w, struct sim_fault *f, uint64_t now)
{
	struct sim_host *h = &w->host[f->host];

	f->begun = true;
	f->over = h->dead; /* One that is not there has no other faults. */
	if (f->over)
		return;
	if (f->kind == SIM_CRASH)
		sim_host_crash(h, now);
	else if (f->kind == SIM_PAUSE)
		h->paused = crpc_max(h->paused, now + f->length);
	else if (f->kind == SIM_SLOW_DOWN)
		h->slow = crpc_max(h->slow, now + f->length);
	else
		break_one(h, f->number);
}

/* Those to which it was connected have noticed that it stood still for so long. */
static void
pause_end(struct sim_world *w, const struct sim_fault *f)
{
	struct sim_host *o;

	if (f->length < 4 * w->opt->timeout_ns || w->host[f->host].dead ||
		w->host[f->host].died >= f->at + SIM_BEGIN_NS)
		return;
	for (uint32_t i = 0; i < w->hosts; i++) {
		o = &w->host[i];
		if (i != f->host && !o->dead && o->paused + f->length < f->at + SIM_BEGIN_NS &&
			o->slow + f->length < f->at + SIM_BEGIN_NS &&
			crpc_kv_server_peer(o->server, f->host) == CRPC_KV_PEER_UP)
			w->unnoticed++;
	}
}

static void
fault_end(struct sim_world *w, struct sim_fault *f, uint64_t now)
{
	f->over = true;
	if (f->kind == SIM_CRASH)
		crash_end(w, f, now);
	else if (f->kind == SIM_PAUSE)
		pause_end(w, f);
}

/* ---- the control threads ---- */

static bool
is_here(const struct sim_host *h, uint64_t now)
{
	return !h->dead && h->paused <= now;
}

/* Whether the end of another host, or of its earlier process, is known by now. */
static bool
has_gone(const struct sim_host *h, const struct sim_host *other, uint64_t now)
{
	const struct sim_other *o = &h->other[sim_rank(other)];

	return other->dead ? now >= other->died + h->world->opt->notice_ns
			   : o->epoch != other->epoch;
}

/* What one of them does about the other. @return whether it waits to be connected. */
static bool
look(struct sim_host *h, struct sim_host *other, bool lost, uint64_t now)
{
	uint32_t rank = sim_rank(other);
	bool gone = has_gone(h, other, now);
	enum crpc_kv_peer state = crpc_kv_server_peer(h->server, rank);

	crpc_kv_server_here(h->server, rank, !gone || !other->dead);
	if (state == CRPC_KV_PEER_UP && (lost || gone)) {
		crpc_kv_server_lose(h->server, rank, "its connection ended");
		sim_watch(h, now);
		state = CRPC_KV_PEER_LOST;
	}
	if (state == CRPC_KV_PEER_LOST) {
		h->other[rank].reconnect = true;
		crpc_kv_server_renew(h->server, rank);
		sim_watch(h, now);
	}
	return crpc_kv_server_peer(h->server, rank) == CRPC_KV_PEER_NEW &&
		(h->other[rank].reconnect || other->other[sim_rank(h)].reconnect);
}

static bool
has_lost(const struct sim_host *h, uint32_t rank)
{
	return !h->dead && crpc_kv_server_peer(h->server, rank) == CRPC_KV_PEER_LOST;
}

static void
pair_look(struct sim_host *a, struct sim_host *b, uint64_t now)
{
	uint32_t rank_a = sim_rank(a), rank_b = sim_rank(b);
	bool lost_a = has_lost(b, rank_a), lost_b = has_lost(a, rank_b);
	bool wait_a = is_here(a, now) && look(a, b, lost_a, now);
	bool wait_b = is_here(b, now) && look(b, a, lost_b, now);

	if (!wait_a || !wait_b || b->dead || a->dead || sim_connect(a, b, now) != 0)
		return;
	a->other[rank_b] = (struct sim_other){.epoch = b->epoch};
	b->other[rank_a] = (struct sim_other){.epoch = a->epoch};
}

void
sim_fault_turn(struct sim_world *w, uint64_t now)
{
	struct sim_fault *f;

	w->look_ns = now + SIM_CONTROL_NS;
	for (uint32_t i = 0; i < w->faults.n; i++) {
		f = &w->faults.v[i];
		if (!f->begun && f->at + SIM_BEGIN_NS <= now)
			fault_begin(w, f, now);
		if (f->begun && !f->over && f->at + f->length + SIM_BEGIN_NS <= now)
			fault_end(w, f, now);
	}
	for (uint32_t i = 0; i < w->hosts; i++)
		for (uint32_t k = i + 1; k < w->hosts && w->rc == 0; k++)
			pair_look(&w->host[i], &w->host[k], now);
}
