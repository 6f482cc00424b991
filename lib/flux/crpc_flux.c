/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: create, join, connect, leave, and what looks at a node from outside its datapath. */
#include <errno.h>
#include <stdlib.h>

#include "crpc_conf.h"
#include "flux_life.h"

#define WINDOW_DEFAULT   256u
#define MSG_SIZE_DEFAULT 32u

/* Put the defaults in, and check each field. */
static int
attr_complete(struct crpc_flux_attr *a)
{
	if (crpc_conf_range("nodes", a->nodes, 2, CRPC_FLUX_NODES_MAX) ||
		CRPC_CONF(a, window, WINDOW_DEFAULT, 1, CRPC_FLUX_WINDOW_MAX) ||
		CRPC_CONF(a, msg_size, MSG_SIZE_DEFAULT, 1, CRPC_FLUX_MSG_MAX) ||
		crpc_conf_range("variant", a->variant, 0, CRPC_FLUX_VARIANTS - 1))
		return -EINVAL;
	if (!crpc_is_pow2(a->window))
		return crpc_fail(-EINVAL, "flux window %u is not a power of two", a->window);
	return 0;
}

struct crpc_flux *
crpc_flux_create(const struct crpc_flux_attr *attr)
{
	struct crpc_flux_attr a = *attr;
	struct crpc_flux *flux;

	if (attr_complete(&a) != 0)
		return crpc_null(-EINVAL);
	flux = calloc(1, sizeof(*flux));
	if (flux == NULL)
		return crpc_null(
			crpc_fail(-ENOMEM, "no memory for a flux (%zu bytes)", sizeof(*flux)));
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
	for (uint32_t i = 0; i < flux->attr.nodes; i++)
		crpc_mem_free(flux->receiver[i]);
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
		crpc_mem_free(ch);
	}
}

/* Take the id, under the lock. 0, -EBUSY or -ENOMEM. */
static int
id_take(struct crpc_flux *flux, struct crpc_flux_node *node)
{
	if (flux->node[node->id] != NULL)
		return -EBUSY;
	if (flux_is_mesh(&flux->attr) && flux->receiver[node->id] == NULL) {
		flux->receiver[node->id] = __crpc_flux_receiver_create(&flux->attr);
		if (flux->receiver[node->id] == NULL)
			return -ENOMEM;
	}
	flux->node[node->id] = node;
	node->recvs = flux->recvs;
	free_dead(flux);
	return 0;
}

struct crpc_flux_node *
crpc_flux_join(struct crpc_flux *flux, uint32_t id)
{
	struct crpc_flux_node *node;
	int rc;

	if (id >= flux->attr.nodes)
		return crpc_null(crpc_fail(
			-EINVAL, "no node %u: this flux has 0 to %u", id, flux->attr.nodes - 1));
	node = crpc_mem_alloc("flux_node", sizeof(*node), CRPC_CACHE_GUARD, NULL);
	if (node == NULL)
		return NULL;
	node->flux = flux;
	node->id = id;
	node->at = crpc_mem_here();
	__crpc_sweep_init(&node->sweep, node->calls, flux->attr.nodes, &node->stats.rpc,
		flux->attr.deadline_ns);
	for (uint32_t i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		node->ep[i].node = node;
	pthread_mutex_lock(&flux->lock);
	rc = id_take(flux, node);
	pthread_mutex_unlock(&flux->lock);
	if (rc == 0)
		return node;
	crpc_mem_free(node);
	return crpc_null(crpc_fail(rc, "node %u cannot join: %s", id,
		rc == -EBUSY ? "it has joined already" : "no memory"));
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

/*
 * One piece of memory, where the server is: the channel, the caller's table, the server's, entries,
 * payloads, rings.
 */
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
	size_t len = 0;

	for (size_t i = 0; i < CRPC_DIM(sizes); i++)
		len += crpc_align_up(sizes[i], CRPC_CACHE_GUARD);
	mem = crpc_mem_alloc("flux_channel", len, CRPC_CACHE_GUARD, &flux->node[server]->at);
	if (mem == NULL)
		return NULL;
	part[0] = mem;
	for (size_t i = 1; i < CRPC_DIM(sizes); i++)
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
	ch->serial = ++flux->serial;
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
		crpc_mem_free(ch);
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

void
__crpc_flux_inbox_append(struct crpc_flux_node *node)
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

	__crpc_flux_inbox_append(node);
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

	/* A22 pairs with R21: all that the caller sent is published. */
	if (crpc_load_acquire(&ch->caller_gone) == 0 || flux_look(&ch->arrived, 1) != 0)
		return false;
	last = node->in[--node->nin];
	node->in[ch->index] = last;
	last->index = ch->index;
	node->from[ch->caller] = NULL;
	for (uint32_t i = 1; i <= ch->nslots; i++)
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

	node->owner = (struct crpc_owner){NULL};
	crpc_flux_flush(node, 0);
	pthread_mutex_lock(&flux->lock);
	flux->node[node->id] = NULL;
	/* No caller can push any more, connect holds this lock. A24 pairs with R22. */
	leave_list(crpc_exchange_acq_rel(&node->inbox, NULL));
	leave_list(node->arriving);
	leave_list(node->departed);
	for (uint32_t i = 0; i < node->nin; i++) {
		crpc_store_release(&node->in[i]->server_gone, 1); /* R20 */
		__crpc_flux_chan_put(node->in[i]);
	}
	if ((int64_t)(node->recvs - flux->recvs) > 0)
		flux->recvs = node->recvs;
	for (uint32_t i = 0; i < node->nout; i++) {
		/* R21: all that the caller wrote before its leaving. Pairs with A22. */
		crpc_store_release(&node->out[i]->caller_gone, 1);
		__crpc_flux_chan_put(node->out[i]);
	}
	free_dead(flux);
	pthread_mutex_unlock(&flux->lock);
	crpc_mem_free(node);
}

const struct crpc_flux_stats *
crpc_flux_node_stats(const struct crpc_flux_node *node)
{
	return &node->stats;
}
