/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: create, join, connect, leave, and what looks at a node from outside its datapath. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "flux_life.h"

#define WINDOW_DEFAULT   256u
#define MSG_SIZE_DEFAULT 32u

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
	if (a->nodes < 2 || a->nodes > CRPC_FLUX_NODES_MAX)
		return crpc_fail(-EINVAL, "flux with %u nodes: 2 to %u are possible", a->nodes,
			CRPC_FLUX_NODES_MAX);
	if (!crpc_is_pow2(a->window) || a->window > CRPC_FLUX_WINDOW_MAX)
		return crpc_fail(-EINVAL, "flux window %u is not a power of two from 1 to %u",
			a->window, CRPC_FLUX_WINDOW_MAX);
	if (a->msg_size < 1 || a->msg_size > CRPC_FLUX_MSG_MAX)
		return crpc_fail(-EINVAL, "flux message size %u is outside 1 to %u bytes",
			a->msg_size, CRPC_FLUX_MSG_MAX);
	if ((unsigned int)a->variant >= CRPC_FLUX_VARIANTS)
		return crpc_fail(-EINVAL, "flux variant %u is unknown: 0 to %u exist",
			(unsigned int)a->variant, CRPC_FLUX_VARIANTS - 1);
	if ((a->alloc == NULL) != (a->release == NULL))
		return crpc_fail(-EINVAL, "flux alloc and release come together or not at all");
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
	flux->recvs = (uint64_t)a.start << 32;
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

void
__crpc_flux_chan_put(struct flux_chan *ch)
{
	struct crpc_flux *flux = ch->flux;

	/* R26, A26: all that the first side did is done when the second one leaves. */
	if (crpc_fetch_add_acq_rel(&ch->left, 1) == 0)
		return;
	ch->next = crpc_load_relaxed(&flux->dead);
	/* R27: both sides' uses before the pointer. Pairs with A27. */
	while (!crpc_cas_acq_rel(&flux->dead, &ch->next, ch))
		;
}

/* Under the lock. */
static void
free_dead(struct crpc_flux *flux)
{
	/* A27 pairs with R27. */
	struct flux_chan *ch = crpc_exchange_acq_rel(&flux->dead, NULL), *next;

	for (; ch != NULL; ch = next) {
		next = ch->next;
		flux->memory -= ch->len;
		flux->attr.release(ch, flux->attr.arg);
	}
}

struct crpc_flux_node *
crpc_flux_join(struct crpc_flux *flux, uint32_t id)
{
	struct crpc_flux_node *node;
	uint32_t i;

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
	node->sweep = (struct rpc_sweep){
		.table = node->calls, .ntables = flux->attr.nodes, .counts = &node->stats.rpc};
	__crpc_sweep_expect(&node->sweep, 0, flux->attr.deadline_ns);
	for (i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		node->ep[i].node = node;
	pthread_mutex_lock(&flux->lock);
	if (flux->node[id] != NULL) {
		pthread_mutex_unlock(&flux->lock);
		free(node);
		crpc_err("node %u has joined already", id);
		errno = EBUSY;
		return NULL;
	}
	flux->node[id] = node;
	node->recvs = flux->recvs;
	free_dead(flux);
	pthread_mutex_unlock(&flux->lock);
	return node;
}

/* The two ends of each order, whose entries lie in the same memory unless rings carry them. */
static void
chan_orders(struct flux_chan *ch, uint32_t *entries, uint32_t start)
{
	struct flux_order o = {.mask = ch->nslots - 1, .next = start, .known = start};

	o.entry = entries;
	o.word = &ch->head;
	ch->requests = ch->arrived = o;
	o.entry = entries + ch->nslots;
	o.word = &ch->done;
	ch->answers = ch->replies = o;
	crpc_store_relaxed(&ch->head, start);
	crpc_store_relaxed(&ch->done, start);
}

/* One piece of memory: the channel, the caller's table, the server's, entries, payloads, rings. */
static struct flux_chan *
chan_create(struct crpc_flux *flux, uint32_t caller, uint32_t server)
{
	const struct crpc_flux_attr *a = &flux->attr;
	uint32_t nslots = FLUX_SLOTS_PER_WINDOW * a->window;
	uint32_t stride = (uint32_t)crpc_align_up(a->msg_size, 8);
	const size_t sizes[] = {sizeof(struct flux_chan), (nslots + 1) * sizeof(struct rpc_call),
		2 * nslots * sizeof(uint64_t), nslots + 1, 2 * (size_t)nslots * sizeof(uint32_t),
		(size_t)nslots * stride + crpc_align_up(stride, CRPC_CACHE_LINE),
		__crpc_flux_rings_len(a)};
	char *part[CRPC_DIM(sizes)], *mem;
	struct flux_chan *ch;
	size_t len = 0, i;

	for (i = 0; i < CRPC_DIM(sizes); i++)
		len += crpc_align_up(sizes[i], CRPC_CACHE_GUARD);
	mem = a->alloc(len, a->arg);
	if (mem == NULL) {
		crpc_err("no memory for the channel %u>%u (%zu bytes)", caller, server, len);
		return NULL;
	}
	memset(mem, 0, len);
	part[0] = mem;
	for (i = 1; i < CRPC_DIM(sizes); i++)
		part[i] = part[i - 1] + crpc_align_up(sizes[i - 1], CRPC_CACHE_GUARD);
	ch = (struct flux_chan *)(void *)mem;
	ch->caller = caller;
	ch->server = server;
	ch->window = a->window;
	ch->nslots = nslots;
	ch->msg_size = a->msg_size;
	ch->stride = stride;
	ch->lazy = a->window < FLUX_LAZY ? a->window : FLUX_LAZY;
	ch->deadline_ns = a->deadline_ns;
	ch->flux = flux;
	ch->len = len;
	__crpc_calls_init(&ch->calls, part[1], nslots, sizeof(struct rpc_call), a->start);
	ch->calls.last = rpc_call_at(&ch->calls, nslots);
	ch->held = (uint64_t *)(void *)part[2];
	ch->held_mask = 2 * nslots - 1;
	ch->held[0] = 1; /* a made-up token without a slot differs from this, and others from 0 */
	ch->room = (uint8_t *)part[3];
	chan_orders(ch, (uint32_t *)(void *)part[4], a->start);
	/* Slot 1 begins a line. */
	ch->buf = part[5] + crpc_align_up(stride, CRPC_CACHE_LINE) - stride;
	if (__crpc_flux_rings_init(ch, a, part[6]) != 0) {
		a->release(mem, a->arg);
		return NULL;
	}
	return ch;
}

int
crpc_flux_connect(struct crpc_flux_node *node, uint32_t peer, struct crpc_flux_ep **ep)
{
	struct crpc_flux *flux = node->flux;
	struct crpc_flux_node *other;
	struct flux_chan *ch;
	int rc = 0;

	if (peer >= flux->attr.nodes || peer == node->id)
		return crpc_fail(-EINVAL,
			"node %u cannot connect to %u: peers are 0 to %u without itself", node->id,
			peer, flux->attr.nodes - 1);
	ch = node->ep[peer].ch;
	if (ch != NULL) { /* A23 pairs with R20 */
		if (crpc_load_acquire(&ch->server_gone) != 0)
			return -EBUSY;
		*ep = &node->ep[peer];
		return 0;
	}
	pthread_mutex_lock(&flux->lock);
	other = flux->node[peer];
	if (other == NULL) {
		rc = -ENOTCONN;
		goto unlock;
	}
	free_dead(flux);
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
	node->ep[peer].ch = ch;
	node->calls[peer] = &ch->calls;
	node->out[node->nout++] = ch;
	*ep = &node->ep[peer];
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
		if (old != NULL && !__crpc_flux_in_drop(node, old)) {
			at = &ch->next;
			continue;
		}
		*at = ch->next;
		ch->index = node->nin;
		node->in[node->nin++] = ch;
		node->from[ch->caller] = ch;
	}
}

bool
__crpc_flux_in_drop(struct crpc_flux_node *node, struct flux_chan *ch)
{
	struct flux_chan *last;
	uint32_t i;

	/* A22 pairs with R21: all that the caller sent is published. */
	if (crpc_load_acquire(&ch->caller_gone) == 0 || flux_look(&ch->arrived, 1) != 0)
		return false;
	last = node->in[--node->nin];
	node->in[ch->index] = last;
	last->index = ch->index;
	node->from[ch->caller] = NULL;
	for (i = 1; i <= ch->nslots; i++)
		ch->nheld += ch->held[i] != 0;
	if (ch->nheld == 0) {
		__crpc_flux_chan_put(ch);
		return true;
	}
	ch->next = node->departed;
	node->departed = ch;
	return true;
}

void
__crpc_flux_out_drop(struct crpc_flux_node *node, uint32_t i)
{
	struct flux_chan *ch = node->out[i];

	node->ep[ch->server].ch = NULL;
	node->calls[ch->server] = NULL;
	node->out[i] = node->out[--node->nout];
	if (node->next_out >= node->nout)
		node->next_out = 0;
	__crpc_flux_chan_put(ch);
}

/* The server leaves the channels of a list. */
static void
leave_list(struct flux_chan *ch)
{
	struct flux_chan *next;

	for (; ch != NULL; ch = next) {
		next = ch->next;
		/* R20: all that the server wrote before its leaving. Pairs with A20, A21, A23. */
		crpc_store_release(&ch->server_gone, 1);
		__crpc_flux_chan_put(ch);
	}
}

void
crpc_flux_leave(struct crpc_flux_node *node)
{
	struct crpc_flux *flux = node->flux;
	uint32_t i;

	node->owner = (struct crpc_owner){NULL};
	crpc_flux_flush(node, 0);
	pthread_mutex_lock(&flux->lock);
	flux->node[node->id] = NULL;
	/* No caller can push any more, connect holds this lock. A24 pairs with R22. */
	leave_list(crpc_exchange_acq_rel(&node->inbox, NULL));
	leave_list(node->arriving);
	leave_list(node->departed);
	for (i = 0; i < node->nin; i++) {
		crpc_store_release(&node->in[i]->server_gone, 1); /* R20 */
		__crpc_flux_chan_put(node->in[i]);
	}
	if ((int64_t)(node->recvs - flux->recvs) > 0)
		flux->recvs = node->recvs;
	for (i = 0; i < node->nout; i++) {
		/* R21: all that the caller wrote before its leaving. Pairs with A22. */
		crpc_store_release(&node->out[i]->caller_gone, 1);
		__crpc_flux_chan_put(node->out[i]);
	}
	free_dead(flux);
	pthread_mutex_unlock(&flux->lock);
	free(node);
}

uint32_t
crpc_flux_pending(const struct crpc_flux_node *node, uint32_t peer)
{
	uint32_t i, n = 0;

	for (i = 0; i < node->nout; i++)
		if (peer == UINT32_MAX || node->out[i]->server == peer)
			n += flux_in_use(node->out[i]) - node->out[i]->notes;
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
	free_dead(flux);
	len = flux->memory;
	pthread_mutex_unlock(&flux->lock);
	return len;
}

static int crpc_printf(2, 3)
report(FILE *out, const char *fmt, ...)
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
	const struct rpc_call *call;
	const struct flux_chan *ch;
	uint32_t i, k, open, ended;
	int bad = 0;

	for (i = 0; i < node->nout; i++) {
		ch = node->out[i];
		for (k = 1, open = ended = 0; k <= ch->nslots; k++) {
			call = rpc_call_at(&ch->calls, k);
			open += rpc_call_is_open(call);
			ended += call->deadline_ns == RPC_ENDED;
			if (rpc_call_index(&ch->calls, call->id) != k)
				bad += report(out, "%u>%u slot %u has id 0x%x\n", ch->caller,
					ch->server, k, call->id);
		}
		if (open != ch->calls.open || ended != ch->calls.ended || ch->notes > ended)
			bad += report(out, "%u>%u open %u, ended %u; counted %u, %u, notes %u\n",
				ch->caller, ch->server, open, ended, ch->calls.open,
				ch->calls.ended, ch->notes);
		if (node->ep[ch->server].ch != ch)
			bad += report(out, "channel to %u is listed twice\n", ch->server);
	}
	return bad;
}
