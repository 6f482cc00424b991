/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: create, join, connect, leave, and what looks at a node from outside its datapath. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "flux_priv.h"

#define WINDOW_DEFAULT 256u
#define MSG_SIZE_DEFAULT 32u
/* Messages held back at most before a ring publishes by itself, so that the peer starts early. */
#define LAZY 32u

static void *
heap_alloc(size_t len, void *arg)
{
	return aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(len, CRPC_CACHE_GUARD));
}

static void
heap_release(void *mem, void *arg)
{
	free(mem);
}

static int
attr_check(const struct crpc_flux_attr *a)
{
	if (a->nodes < 2 || a->nodes > CRPC_FLUX_NODES_MAX) {
		crpc_err("flux with %u nodes: 2 to %u are possible", a->nodes, CRPC_FLUX_NODES_MAX);
		return -EINVAL;
	}
	if (!crpc_is_pow2(a->window) || a->window > CRPC_FLUX_WINDOW_MAX) {
		crpc_err("flux window %u is not a power of two from 1 to %u", a->window,
			CRPC_FLUX_WINDOW_MAX);
		return -EINVAL;
	}
	if (a->msg_size < 1 || a->msg_size > CRPC_FLUX_MSG_MAX) {
		crpc_err("flux message size %u is outside 1 to %u bytes", a->msg_size,
			CRPC_FLUX_MSG_MAX);
		return -EINVAL;
	}
	if ((unsigned int)a->variant >= CRPC_SPSC_VARIANTS) {
		crpc_err("ring variant %u is unknown: 0 to %u exist", (unsigned int)a->variant,
			CRPC_SPSC_VARIANTS - 1);
		return -EINVAL;
	}
	if ((a->alloc == NULL) != (a->release == NULL)) {
		crpc_err("flux alloc and release come together or not at all");
		return -EINVAL;
	}
	return 0;
}

struct crpc_flux *
crpc_flux_create(const struct crpc_flux_attr *attr)
{
	struct crpc_flux_attr a = *attr;
	struct crpc_flux *flux;

	if (a.window == 0)
		a.window = WINDOW_DEFAULT;
	if (a.msg_size == 0)
		a.msg_size = MSG_SIZE_DEFAULT;
	if (attr_check(&a) != 0) {
		errno = EINVAL;
		return NULL;
	}
	if (a.alloc == NULL) {
		a.alloc = heap_alloc;
		a.release = heap_release;
	}
	flux = calloc(1, sizeof(*flux));
	if (flux == NULL) {
		crpc_err("no memory for a flux (%zu bytes)", sizeof(*flux));
		errno = ENOMEM;
		return NULL;
	}
	flux->attr = a;
	pthread_mutex_init(&flux->lock, NULL);
	return flux;
}

void
crpc_flux_free(struct crpc_flux *flux)
{
	if (flux == NULL)
		return;
	pthread_mutex_destroy(&flux->lock);
	free(flux);
}

struct crpc_flux_node *
crpc_flux_join(struct crpc_flux *flux, uint32_t id)
{
	struct crpc_flux_node *node;

	if (id >= flux->attr.nodes) {
		crpc_err("no node %u: this flux has 0 to %u", id, flux->attr.nodes - 1);
		errno = EINVAL;
		return NULL;
	}
	node = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up(sizeof(*node), CRPC_CACHE_GUARD));
	if (node == NULL) {
		crpc_err("no memory for node %u (%zu bytes)", id, sizeof(*node));
		errno = ENOMEM;
		return NULL;
	}
	memset(node, 0, sizeof(*node));
	node->flux = flux;
	node->id = id;
	pthread_mutex_lock(&flux->lock);
	if (flux->node[id] != NULL) {
		pthread_mutex_unlock(&flux->lock);
		free(node);
		crpc_err("node %u has joined already", id);
		errno = EBUSY;
		return NULL;
	}
	flux->node[id] = node;
	pthread_mutex_unlock(&flux->lock);
	return node;
}

/*
 * Both rings of a channel. A ring holds two windows: at most a window of messages is not yet read,
 * and a reader tells at least every quarter of the ring, half a window, how far it is. So neither
 * ring is ever full.
 */
static int
chan_rings(struct flux_chan *ch, char *req_mem, char *resp_mem, size_t len,
	const struct crpc_spsc_attr *ra)
{
	int rc;

	rc = crpc_spsc_init(req_mem, len, ra);
	if (rc == 0)
		rc = crpc_spsc_init(resp_mem, len, ra);
	if (rc == 0)
		rc = crpc_spsc_prod_attach(&ch->req_p, req_mem, len);
	if (rc == 0)
		rc = crpc_spsc_cons_attach(&ch->req_c, req_mem, len);
	if (rc == 0)
		rc = crpc_spsc_prod_attach(&ch->resp_p, resp_mem, len);
	if (rc == 0)
		rc = crpc_spsc_cons_attach(&ch->resp_c, resp_mem, len);
	return rc;
}

/* One piece of memory: the channel, its two rings, the caller's tables, the server's tables. */
static struct flux_chan *
chan_create(struct crpc_flux *flux, uint32_t caller, uint32_t server)
{
	const struct crpc_flux_attr *a = &flux->attr;
	struct crpc_spsc_attr ra = {.variant = a->variant,
		.depth = 2 * a->window,
		.esize = FLUX_ESIZE,
		.lazy = a->window < LAZY ? a->window : LAZY};
	uint32_t stride = (uint32_t)crpc_align_up(a->msg_size, 8), i;
	uint32_t nslots = SLOTS_PER_WINDOW * a->window;
	size_t ring, slots, tracks, frees, backs, held, bufs, len, off;
	struct flux_chan *ch;
	char *mem;

	ra.caller_credit =
		a->variant == CRPC_SPSC_ONESIDED || a->variant == CRPC_SPSC_ONESIDED_ALIGNED;
	ring = (size_t)crpc_spsc_memsize(&ra);
	slots = crpc_align_up(nslots * sizeof(struct flux_slot), CRPC_CACHE_GUARD);
	tracks = crpc_align_up(nslots * sizeof(struct flux_track), CRPC_CACHE_GUARD);
	frees = crpc_align_up(nslots * sizeof(uint16_t), CRPC_CACHE_GUARD);
	backs = crpc_align_up(a->window * sizeof(uint16_t), CRPC_CACHE_GUARD);
	held = crpc_align_up(nslots * sizeof(*ch->held), CRPC_CACHE_GUARD);
	bufs = crpc_align_up((size_t)nslots * stride, CRPC_CACHE_GUARD);
	off = crpc_align_up(sizeof(*ch), CRPC_CACHE_GUARD);
	len = off + 2 * ring + slots + tracks + frees + backs + held + bufs;
	mem = a->alloc(len, a->arg);
	if (mem == NULL) {
		crpc_err("no memory for the channel %u>%u (%zu bytes)", caller, server, len);
		return NULL;
	}
	memset(mem, 0, len);
	ch = (struct flux_chan *)(void *)mem;
	ch->caller = caller;
	ch->server = server;
	ch->window = a->window;
	ch->msg_size = a->msg_size;
	ch->flux = flux;
	ch->len = len;
	crpc_store_relaxed(&ch->refs, 2);
	ch->nslots = nslots;
	ch->stride = stride;
	ch->hints = crpc_spsc_cpu_hints();
	ch->slot = (struct flux_slot *)(void *)(mem + off + 2 * ring);
	ch->track = (struct flux_track *)(void *)((char *)ch->slot + slots);
	ch->tracks = a->deadline_ns != 0 || ra.caller_credit;
	ch->free = (uint16_t *)(void *)((char *)ch->track + tracks);
	ch->back = (uint16_t *)(void *)((char *)ch->free + frees);
	ch->held = (uint64_t *)(void *)((char *)ch->back + backs);
	ch->buf = (char *)ch->held + held;
	for (i = 0; i < nslots; i++) {
		ch->slot[i].id = ID_CLOSED | flux->next_id | i;
		ch->free[i] = (uint16_t)(nslots - 1 - i);
	}
	ch->nfree = ch->nstamped = nslots;
	ch->token_hi = (uint64_t)caller << ID_BITS;
	if (chan_rings(ch, mem + off, mem + off + ring, ring, &ra) != 0) {
		a->release(mem, a->arg);
		return NULL;
	}
	return ch;
}

/* Under the lock: a channel that both have left goes. */
static void
chan_put_locked(struct flux_chan *ch)
{
	struct crpc_flux *flux = ch->flux;
	uint32_t refs = crpc_load_relaxed(&ch->refs) - 1;

	crpc_store_relaxed(&ch->refs, refs);
	if (refs != 0)
		return;
	flux->memory -= ch->len;
	flux->attr.release(ch, flux->attr.arg);
}

/* Under the lock: the caller lets go of a channel. Its next one starts with higher ids. */
static void
chan_put_caller(struct flux_chan *ch)
{
	uint64_t id;
	uint32_t i;

	for (i = 0; i < ch->nslots; i++) {
		id = ch->slot[i].id & ID_MASK & ~(uint64_t)ID_SLOT_MASK;
		if (id > ch->flux->next_id)
			ch->flux->next_id = id;
	}
	chan_put_locked(ch);
}

void
__crpc_flux_chan_put(struct flux_chan *ch)
{
	struct crpc_flux *flux = ch->flux;

	pthread_mutex_lock(&flux->lock);
	chan_put_locked(ch);
	pthread_mutex_unlock(&flux->lock);
}

int
crpc_flux_connect(struct crpc_flux_node *node, uint32_t peer)
{
	struct crpc_flux *flux = node->flux;
	struct crpc_flux_node *other;
	struct flux_chan *ch;
	int rc = 0;

	if (peer >= flux->attr.nodes || peer == node->id) {
		crpc_err("node %u cannot connect to %u: peers are 0 to %u without itself", node->id,
			peer, flux->attr.nodes - 1);
		return -EINVAL;
	}
	ch = node->by_peer[peer];
	if (ch != NULL) /* A23 pairs with R20 */
		return crpc_load_acquire(&ch->server_gone) != 0 ? -EBUSY : 0;
	pthread_mutex_lock(&flux->lock);
	other = flux->node[peer];
	if (other == NULL) {
		rc = -ENOTCONN;
		goto unlock;
	}
	ch = chan_create(flux, node->id, peer);
	if (ch == NULL) {
		rc = -ENOMEM;
		goto unlock;
	}
	flux->memory += ch->len;
	ch->next = crpc_load_relaxed(&other->inbox);
	/* R22: the channel before the pointer to it. Pairs with A24. */
	while (!crpc_cas_acq_rel(&other->inbox, &ch->next, ch))
		;
	node->by_peer[peer] = ch;
	node->out[node->nout++] = ch;
unlock:
	pthread_mutex_unlock(&flux->lock);
	return rc;
}

/* Take the inbox, whose newest is first, and append it to what arrives. */
static void
inbox_append(struct crpc_flux_node *node)
{
	/* A24 pairs with R22. */
	struct flux_chan *ch = crpc_exchange_acq_rel(&node->inbox, NULL), *next, *oldest = NULL;
	struct flux_chan **at = &node->arriving;

	for (; ch != NULL; ch = next) {
		next = ch->next;
		ch->next = oldest;
		oldest = ch;
	}
	while (*at != NULL)
		at = &(*at)->next;
	*at = oldest;
}

void
__crpc_flux_inbox_take(struct crpc_flux_node *node)
{
	struct flux_chan **at = &node->arriving, *ch, *old;

	inbox_append(node);
	while ((ch = *at) != NULL) {
		/* The earlier channel of a caller that left and joined again is received first. */
		old = node->from[ch->caller];
		if (old != NULL && !flux_is_drained(old)) {
			at = &ch->next;
			continue;
		}
		if (old != NULL)
			__crpc_flux_in_drop(node, old);
		*at = ch->next;
		ch->index = node->nin;
		node->in[node->nin++] = ch;
		node->from[ch->caller] = ch;
	}
}

void
__crpc_flux_in_drop(struct crpc_flux_node *node, struct flux_chan *ch)
{
	struct flux_chan *last = node->in[--node->nin];
	uint32_t i;

	node->in[ch->index] = last;
	last->index = ch->index;
	node->from[ch->caller] = NULL;
	for (i = 0; i < ch->nslots; i++)
		ch->nheld += ch->held[i] != 0;
	if (ch->nheld == 0) {
		__crpc_flux_chan_put(ch);
		return;
	}
	ch->next = node->departed;
	node->departed = ch;
}

void
__crpc_flux_out_drop(struct crpc_flux_node *node, uint32_t i)
{
	struct flux_chan *ch = node->out[i];

	node->by_peer[ch->server] = NULL;
	node->out[i] = node->out[--node->nout];
	if (node->next_out >= node->nout)
		node->next_out = 0;
	pthread_mutex_lock(&node->flux->lock);
	chan_put_caller(ch);
	pthread_mutex_unlock(&node->flux->lock);
}

/* Under the lock: the server lets go of the channels of a list. */
static void
leave_list(struct flux_chan *ch)
{
	struct flux_chan *next;

	for (; ch != NULL; ch = next) {
		next = ch->next;
		/* R20: all that the server wrote before its leaving. Pairs with A20, A21, A23. */
		crpc_store_release(&ch->server_gone, 1);
		chan_put_locked(ch);
	}
}

void
crpc_flux_leave(struct crpc_flux_node *node)
{
	struct crpc_flux *flux = node->flux;
	uint32_t i;

	crpc_flux_flush(node);
	pthread_mutex_lock(&flux->lock);
	flux->node[node->id] = NULL;
	/* No caller can push any more: connect finds the node under this lock. */
	leave_list(crpc_exchange_acq_rel(&node->inbox, NULL));
	leave_list(node->arriving);
	leave_list(node->departed);
	for (i = 0; i < node->nin; i++) {
		crpc_store_release(&node->in[i]->server_gone, 1); /* R20 */
		chan_put_locked(node->in[i]);
	}
	for (i = 0; i < node->nout; i++) {
		/* R21: all that the caller wrote before its leaving. Pairs with A22. */
		crpc_store_release(&node->out[i]->caller_gone, 1);
		chan_put_caller(node->out[i]);
	}
	pthread_mutex_unlock(&flux->lock);
	free(node);
}

uint32_t
crpc_flux_pending(const struct crpc_flux_node *node, uint32_t peer)
{
	uint32_t i, n = 0;

	for (i = 0; i < node->nout; i++)
		if (peer == UINT32_MAX || node->out[i]->server == peer)
			n += flux_open(node->out[i]);
	return n;
}

const struct crpc_flux_stats *
crpc_flux_node_stats(const struct crpc_flux_node *node)
{
	return &node->stats;
}

size_t
crpc_flux_memory(struct crpc_flux *flux)
{
	size_t len;

	pthread_mutex_lock(&flux->lock);
	len = flux->memory;
	pthread_mutex_unlock(&flux->lock);
	return len;
}

static int crpc_printf(2, 3)
say(FILE *out, const char *fmt, ...)
{
	va_list ap;

	if (out != NULL) {
		va_start(ap, fmt);
		vfprintf(out, fmt, ap);
		va_end(ap);
	}
	return 1;
}

int
crpc_flux_check(const struct crpc_flux_node *node, FILE *out)
{
	const struct flux_chan *ch;
	uint32_t i, k, n_free, n_late;
	int bad = 0;

	for (i = 0; i < node->nout; i++) {
		ch = node->out[i];
		for (k = n_free = n_late = 0; k < ch->nslots; k++) {
			n_free += (ch->slot[k].id & ID_CLOSED) != 0 &&
				ch->track[k].state == SLOT_NONE;
			n_late += ch->track[k].state == SLOT_LATE;
			if ((ch->slot[k].id & ID_SLOT_MASK) != k)
				bad += say(out, "%u>%u slot %u has id 0x%" PRIx64 "\n", ch->caller,
					ch->server, k, ch->slot[k].id);
		}
		if (n_free != ch->nfree + ch->nback || n_late != ch->nlate)
			bad += say(out, "%u>%u free %u, late %u; counted %u, %u\n", ch->caller,
				ch->server, ch->nfree + ch->nback, ch->nlate, n_free, n_late);
		if (node->by_peer[ch->server] != ch)
			bad += say(out, "channel to %u is listed twice\n", ch->server);
	}
	if (node->stats.malformed != 0)
		bad += say(out, "%" PRIu64 " malformed messages\n", node->stats.malformed);
	return bad;
}
