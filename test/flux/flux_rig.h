/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLUX_RIG_H
#define FLUX_RIG_H

/* Nodes over every ring of flux. */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "crpc_atomic.h"
#include "crpc_flux.h"
#include "mem_source.h"
#include "rnd.h"

#define NODES_MAX 6u

struct transport {
	const char *name;
	enum crpc_flux_variant variant;
};

static const struct transport transports[] = {
	{"duplex", CRPC_FLUX_DUPLEX},
	{"lamport", CRPC_FLUX_LAMPORT},
	{"fastforward", CRPC_FLUX_FASTFORWARD},
	{"fastforward aligned", CRPC_FLUX_FASTFORWARD_ALIGNED},
	{"onesided", CRPC_FLUX_ONESIDED},
	{"onesided aligned", CRPC_FLUX_ONESIDED_ALIGNED},
	{"rte_ring", CRPC_FLUX_RTE_RING},
	{"rte_ring RTS", CRPC_FLUX_RTE_RING_RTS},
	{"rte_ring HTS", CRPC_FLUX_RTE_RING_HTS},
};

/* What a message carries. */
struct payload {
	uint64_t from;
	uint64_t seq;
	uint64_t mix;
	uint64_t one_way;
};

static inline struct payload
payload_make(uint32_t from, uint64_t seq)
{
	return (struct payload){from, seq, (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + from, 0};
}

/* The payload that lies at data; from UINT64_MAX: it is not whole. */
static inline struct payload
payload_of(const void *data)
{
	struct payload p;

	memcpy(&p, data, sizeof(p));
	if (p.mix != (p.seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + p.from)
		p.from = UINT64_MAX;
	return p;
}

/* A node, with its endpoints and the time of its last poll, at which its calls are made. */
struct member {
	struct crpc_flux_node *node;
	struct crpc_flux_ep *ep[NODES_MAX];
	uint64_t now;
};

/* Its calls that have not completed. */
static inline uint64_t
pending(const struct member *m)
{
	const struct crpc_rpc_counts *counts = &crpc_flux_node_stats(m->node)->rpc;

	return counts->calls - counts->completions;
}

static inline struct crpc_flux *
flux_of(const struct transport *t, uint32_t nodes, uint32_t window, uint64_t deadline_ns)
{
	const struct crpc_flux_attr a = {.nodes = nodes,
		.variant = t->variant,
		.window = window,
		.msg_size = sizeof(struct payload),
		.deadline_ns = deadline_ns,
		.start = 0u - 40};
	struct crpc_flux *flux = crpc_flux_create(&a);

	assert_non_null(flux);
	return flux;
}

static inline struct member *
join(struct crpc_flux *flux, uint32_t id)
{
	struct crpc_flux_node *node = crpc_flux_join(flux, id);
	struct member *m;

	if (node == NULL)
		return NULL;
	m = calloc(1, sizeof(*m));
	m->node = node;
	return m;
}

/* Members that have left are NULL. */
static inline void
leave(struct member **m, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (m[i] == NULL)
			continue;
		crpc_flux_leave(m[i]->node);
		free(m[i]);
		m[i] = NULL;
	}
}

static inline int
connect_to(struct member *m, uint32_t peer)
{
	struct crpc_flux_ep *ep = NULL;
	int rc = crpc_flux_connect(m->node, peer, &ep);

	assert_int_equal(ep != NULL, rc == 0);
	if (rc == 0 && peer < NODES_MAX)
		m->ep[peer] = ep;
	return rc;
}

static inline void
join_all(struct crpc_flux *flux, struct member **node, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		node[i] = join(flux, i);
		assert_non_null(node[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n; k++)
			if (i != k)
				assert_int_equal(connect_to(node[i], k), 0);
}

/* A node again, after it left. */
static inline void
rejoin(struct crpc_flux *flux, struct member **m, uint32_t id, uint32_t peer)
{
	leave(m, 1);
	*m = join(flux, id);
	assert_non_null(*m);
	assert_int_equal(connect_to(*m, peer), 0);
}

static inline int
call(struct member *m, uint32_t to, uint32_t from, uint64_t seq)
{
	struct payload p = payload_make(from, seq);

	return crpc_flux_call(m->ep[to], m->now, &p, sizeof(p), sizeof(p), seq);
}

static inline int
notify(struct member *m, uint32_t to, uint32_t from, uint64_t seq)
{
	struct payload p = payload_make(from, seq);

	p.one_way = 1;
	return crpc_flux_notify(m->ep[to], m->now, &p, sizeof(p));
}

static inline uint16_t
poll(struct member *m, uint64_t now, struct crpc_done *done, uint16_t n)
{
	m->now = now;
	return crpc_flux_poll(m->node, now, done, n);
}

/* Receive, which begins with what the peers have sent. */
static inline uint16_t
recv_from(struct member *m, struct member *peer, struct crpc_req *req, uint16_t n)
{
	if (peer != NULL)
		crpc_flux_flush(peer->node, peer->now);
	return crpc_flux_recv(m->node, m->now, req, n);
}

/* Answer with the request's bytes. */
static inline int
echo(struct member *m, const struct crpc_req *req)
{
	int rc = crpc_flux_reply(m->node, m->now, req->token, req->data, req->len);

	crpc_flux_flush(m->node, m->now);
	return rc;
}

static inline int
release(struct member *m, const struct crpc_req *req)
{
	return crpc_flux_release(m->node, m->now, req->token);
}

/* End all requests that wait; all are answered but notifications. Returns their number. */
static inline uint32_t
serve(struct member *m, struct member *peer)
{
	struct crpc_req req[32];
	uint32_t n, i, all = 0;

	for (; (n = recv_from(m, peer, req, 32)) != 0; all += n)
		for (i = 0; i < n; i++)
			assert_int_equal(payload_of(req[i].data).one_way ? release(m, &req[i])
									 : echo(m, &req[i]),
				0);
	return all;
}

static void
add_channel(const struct crpc_mem_part *part, void *arg)
{
	*(uint64_t *)arg += strcmp(part->name, "flux_channel") == 0 ? part->bytes : 0;
}

/* Bytes of all channels. */
static inline uint64_t
channel_bytes(void)
{
	uint64_t bytes = 0;

	assert_int_equal(crpc_mem_walk(add_channel, &bytes), 0);
	return bytes;
}

/* Nothing remains of a channel once all have left. */
static inline void
rig_end(const struct transport *t, struct crpc_flux *flux, struct member **m, uint32_t n)
{
	leave(m, n);
	assert_int_equal(channel_bytes(), 0);
	crpc_flux_free(flux);
}

/* All tests of the program over every transport, which is the state of each. */
#define RIG_MAIN                                                                                   \
	int main(void)                                                                             \
	{                                                                                          \
		int failed = 0;                                                                    \
                                                                                                   \
		for (size_t i = 0; i < CRPC_DIM(transports); i++)                                  \
			failed += test_run_with(transports[i].name, &transports[i]);               \
		return failed;                                                                     \
	}

#endif
