/* SPDX-License-Identifier: BSD-3-Clause */
/* flux and mesh: every node calls every other at full window and answers whatever arrives. */
#include <errno.h>

#include "app_msg.h"
#include "crpc_clock.h"
#include "crpc_flux.h"
#include "rb.h"

#define BURST_MAX 128u
#define NODES_MAX 64u

static const enum crpc_flux_variant variants[RB_TRANSPORTS] = {
	[RB_FASTFORWARD] = CRPC_FLUX_FASTFORWARD,
	[RB_LAMPORT] = CRPC_FLUX_LAMPORT,
	[RB_ONESIDED] = CRPC_FLUX_ONESIDED,
	[RB_DUPLEX] = CRPC_FLUX_DUPLEX,
	[RB_RTE_RING] = CRPC_FLUX_RTE_RING,
	[RB_RTE_RING_RTS] = CRPC_FLUX_RTE_RING_RTS,
	[RB_RTE_RING_HTS] = CRPC_FLUX_RTE_RING_HTS,
};

int
rb_nodes_open(struct rb_slice *s)
{
	const struct crpc_flux_attr a = {.nodes = s->c.nodes,
		.variant = variants[s->c.transport],
		.window = (uint32_t)crpc_pow2_ceil(s->c.inflight),
		.msg_size = s->c.size};

	s->flux = crpc_flux_create(&a);
	return s->flux != NULL ? 0 : -errno;
}

void
rb_nodes_close(struct rb_slice *s)
{
	crpc_flux_free(s->flux);
	s->flux = NULL;
}

/* One node and its own counts. */
struct node {
	struct crpc_flux_node *flux;
	struct crpc_flux_ep *ep[NODES_MAX];
	uint32_t id;
	uint32_t open[NODES_MAX];
	uint64_t seq;
	uint64_t done;
	uint64_t bad;
};

/* A completion's peer travels in its cookie, beside the number of the call. */
#define COOKIE(seq, peer) ((seq) << 8 | (peer))

static void
node_calls(struct node *n, const struct app_case *c)
{
	uint64_t msg[BURST_MAX * 32], cookie[BURST_MAX];
	uint32_t k, i, room;

	for (uint32_t peer = 0; peer < c->nodes; peer++) {
		while (peer != n->id && (room = c->inflight - n->open[peer]) > 0) {
			k = room < c->burst ? room : c->burst;
			for (i = 0; i < k; i++) {
				app_msg_fill(msg + (size_t)i * (c->size / 8), c->size, n->seq + i);
				cookie[i] = COOKIE(n->seq + i, peer);
			}
			i = crpc_flux_call_burst(
				n->ep[peer], 1, msg, c->size, c->size, cookie, (uint16_t)k);
			n->seq += i;
			n->open[peer] += i;
			if (i < k)
				break;
		}
	}
}

/* Reads every word of a request and writes every word of its answer: the word, raised by one. */
static void
node_answers(struct node *n, const struct app_case *c)
{
	struct crpc_req req[BURST_MAX];
	uint32_t k = crpc_flux_recv(n->flux, 1, req, BURST_MAX);

	for (uint32_t i = 0; i < k; i++)
		app_msg_raise((void *)(uintptr_t)req[i].data, c->size);
	n->bad += crpc_flux_reply_burst(n->flux, 1, req, NULL, c->size, (uint16_t)k) != k;
}

static void
node_polls(struct node *n, const struct app_case *c)
{
	struct crpc_done done[BURST_MAX];
	uint32_t k = crpc_flux_poll(n->flux, 1, done, BURST_MAX);

	for (uint32_t i = 0; i < k; i++) {
		n->open[done[i].cookie & 0xff]--;
		if (done[i].status != 0) {
			n->bad++;
			continue;
		}
		n->bad += app_msg_read(
			done[i].data, c->size, c->check, (done[i].cookie >> 8) + 1);
	}
	n->done += k;
}

void
rb_nodes_run(struct rb_slice *s, uint32_t lcore_index)
{
	const struct app_case *c = &s->c;
	struct node node[NODES_MAX];
	uint32_t n = 0, turn = 0;
	uint64_t end;

	for (uint32_t i = lcore_index; i < c->nodes; i += c->nlcores) {
		node[n++] = (struct node){.id = i, .flux = crpc_flux_join(s->flux, i)};
		crpc_fetch_add_relaxed(&s->ready, 1);
	}
	while (crpc_load_acquire(&s->ready) < c->nodes)
		;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < c->nodes; k++)
			if (k != node[i].id)
				node[i].bad +=
					crpc_flux_connect(node[i].flux, k, &node[i].ep[k]) != 0;
	end = crpc_clock_ticks() + c->ticks;
	while (crpc_load_relaxed(&s->stop) == 0) {
		for (uint32_t i = 0; i < n; i++) {
			node_calls(&node[i], c);
			node_answers(&node[i], c);
			node_polls(&node[i], c);
		}
		if (lcore_index == 0 && (++turn & 15) == 0 && crpc_clock_ticks() >= end)
			crpc_store_relaxed(&s->stop, 1);
	}
	/* No node leaves while another still polls: that would complete its calls with an error. */
	crpc_fetch_add_relaxed(&s->ready, 1);
	while (crpc_load_acquire(&s->ready) < c->nodes + c->nlcores)
		;
	for (uint32_t i = 0; i < n; i++) {
		crpc_fetch_add_relaxed(&s->done, node[i].done);
		crpc_fetch_add_relaxed(&s->bad, node[i].bad);
		crpc_flux_leave(node[i].flux);
	}
}
