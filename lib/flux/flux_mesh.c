/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flux: one rte_ring per node, a mesh, to compare it with looking at each channel. Payloads and
 * entries lie in the channel, as in the default, but a reader is not to look for them there: its
 * receiver, a ring of many producers, has a token for each entry that waits.
 *
 *     caller 1 -- entries, word --> channel 1>0        node 0: take tokens, and count the entries
 *              \- tokens ------\                       of their channels as known
 *     caller 2 -- tokens -------> receiver of node 0
 *
 * A receiver has room for the windows of all peers. It can be full only with tokens of earlier
 * incarnations: then the writer's next flush publishes the rest. Of a writer that left the word
 * counts, not the tokens: all that it wrote is covered by that.
 */
/* rte_ring with the ordering on its accesses, not by fences: the thread sanitizer follows it. */
#ifndef RTE_USE_C11_MEM_MODEL
#define RTE_USE_C11_MEM_MODEL 1
#endif
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "flux_life.h"

#define BURST 32u

/* One entry more: of the requests of the channel from a node, or of the replies of that to it. */
struct token {
	uint64_t serial; /* the channel's */
	uint32_t peer;
	uint32_t is_reply;
};

/* One way of a channel. */
struct mesh_way {
	struct flux_ring ring;
	struct rte_ring *to;
	struct crpc_flux_node *reader;
	const _Atomic uint32_t *gone; /* the writer left */
	struct token token;
};

struct rte_ring *
__crpc_flux_receiver_create(const struct crpc_flux_attr *attr)
{
	static const unsigned int flags[CRPC_FLUX_VARIANTS] = {
		[CRPC_FLUX_RTE_RING] = RING_F_SC_DEQ,
		[CRPC_FLUX_RTE_RING_RTS] = RING_F_MP_RTS_ENQ | RING_F_SC_DEQ,
		[CRPC_FLUX_RTE_RING_HTS] = RING_F_MP_HTS_ENQ | RING_F_SC_DEQ,
	};
	uint32_t count = (uint32_t)crpc_pow2_ceil(2ull * attr->window * attr->nodes);
	ssize_t len = rte_ring_get_memsize_elem(sizeof(struct token), count);
	struct rte_ring *r;

	if (len < 0)
		return NULL;
	r = crpc_mem_alloc("flux_receiver", (size_t)len, CRPC_CACHE_GUARD, NULL);
	if (r == NULL || rte_ring_init(r, "crpc_flux", count, flags[attr->variant]) == 0)
		return r;
	crpc_mem_free(r);
	return NULL;
}

static void
publish(struct flux_order *o)
{
	const struct mesh_way *way = (const struct mesh_way *)(const void *)o->ring;
	struct token token[BURST];
	uint32_t n, sent;

	/* R25 pairs with A25: entries and payloads, before their tokens. */
	crpc_store_release(o->word, o->next);
	for (uint32_t i = 0; i < BURST; i++)
		token[i] = way->token;
	do {
		n = (uint32_t)crpc_min(o->next - o->known, BURST);
		sent = rte_ring_enqueue_burst_elem(way->to, token, sizeof(token[0]), n, NULL);
		o->known += sent;
	} while (sent == BURST);
}

/* The order that a token counts for; NULL: that of an incarnation that has ended. */
static struct flux_order *
order_of(struct crpc_flux_node *node, const struct token *token)
{
	struct flux_chan *ch = token->is_reply ? node->ep[token->peer].ch : node->from[token->peer];

	if (!token->is_reply && (ch == NULL || ch->serial != token->serial)) {
		__crpc_flux_inbox_append(node);
		for (ch = node->arriving; ch != NULL && ch->serial != token->serial;)
			ch = ch->next;
	}
	if (ch == NULL || ch->serial != token->serial)
		return NULL;
	return token->is_reply ? &ch->replies : &ch->arrived;
}

/* Take the tokens that wait; bounded by the ring's size. */
static void
tokens_take(struct crpc_flux_node *node, struct rte_ring *r)
{
	uint32_t rounds = rte_ring_get_size(r) / BURST + 1;
	struct token token[BURST];
	const struct mesh_way *way;
	struct flux_order *o;

	for (uint32_t n = BURST; n == BURST && rounds != 0; rounds--) {
		n = rte_ring_dequeue_burst_elem(r, token, sizeof(token[0]), BURST, NULL);
		for (uint32_t i = 0; i < n; i++) {
			o = order_of(node, &token[i]);
			if (o == NULL)
				continue;
			way = (const struct mesh_way *)(const void *)o->ring;
			if (crpc_load_relaxed(way->gone) != 0)
				continue;
			(void)crpc_load_acquire(o->word); /* A25 */
			o->known++;
		}
	}
}

static void
look(struct flux_order *o)
{
	const struct mesh_way *way = (const struct mesh_way *)(const void *)o->ring;

	tokens_take(way->reader, way->to);
	/* A22 and A21 pair with R21 and R20: the word has its last value. */
	if (crpc_load_acquire(way->gone) != 0)
		o->known = crpc_load_acquire(o->word);
}

size_t
__crpc_flux_mesh_len(void)
{
	return 2 * sizeof(struct mesh_way);
}

void
__crpc_flux_mesh_init(struct flux_chan *ch, void *mem)
{
	struct crpc_flux *flux = ch->flux;
	struct mesh_way *to_server = mem, *to_caller = to_server + 1;

	*to_server = (struct mesh_way){.ring = {publish, look},
		.to = flux->receiver[ch->server],
		.reader = flux->node[ch->server],
		.gone = &ch->caller_gone,
		.token = {.serial = ch->serial, .peer = ch->caller}};
	*to_caller = (struct mesh_way){.ring = {publish, look},
		.to = flux->receiver[ch->caller],
		.reader = flux->node[ch->caller],
		.gone = &ch->server_gone,
		.token = {.serial = ch->serial, .peer = ch->server, .is_reply = 1}};
	ch->requests.ring = ch->arrived.ring = &to_server->ring;
	ch->answers.ring = ch->replies.ring = &to_caller->ring;
}
