/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RB_H
#define RB_H

/*
 * ringbench: what its files share. main.c reads options, plans and runs, env.c prints what a line
 * costs, lane.c measures and makes rows, loops.c holds the timed loops of the rings, nodes.c
 * those of flux and mesh.
 */

#include "app_lane.h"

#define RB_LCORES_MAX 16
extern unsigned int rb_lcore[RB_LCORES_MAX]; /* sides 0 and 1, and more of flux and mesh */
extern uint32_t rb_lcores;

/* What carries the messages. */
enum rb_transport {
	RB_FASTFORWARD,
	RB_LAMPORT,
	RB_ONESIDED,
	RB_DUPLEX,
	RB_RTE_RING,
	RB_RTE_RING_ZC,
	RB_RTE_RING_RTS, /* mesh only */
	RB_RTE_RING_HTS, /* mesh only */
	RB_TRANSPORTS,
};

enum rb_pattern { RB_STREAM, RB_RPC, RB_LATENCY, RB_FLUX, RB_MESH, RB_PATTERNS };

extern const char *const rb_transport_names[RB_TRANSPORTS + 1];
extern const char *const rb_pattern_names[RB_PATTERNS + 1];

/* Why a pattern does without the transport; NULL: it has it. */
const char *rb_transport_lacks(enum rb_transport t, enum rb_pattern p, uint32_t size);

struct rb_opt {
	struct app_list transports, patterns, sizes, bursts;
	uint64_t depth; /* open calls */
	uint64_t slots; /* of a ring */
	uint64_t nodes;
	uint64_t repeat;
	double seconds;
	const char *json;
	bool verify;
	bool counters;
};

/* What is measured. */
struct app_case {
	uint32_t pattern;   /* enum rb_pattern */
	uint32_t transport; /* enum rb_transport */
	uint32_t size;
	uint32_t burst;
	uint32_t inflight;
	uint32_t depth;
	uint32_t nodes;
	uint32_t nlcores;
	bool check;
	uint64_t ticks; /* length of a slice */
};

/* A slice as its lcores see it. */
struct rb_slice {
	struct app_case c;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t ready; /* nodes: that have joined */
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t stop;
	crpc_aligned(CRPC_CACHE_GUARD) void *to; /* ring to the second lcore */
	void *back;                              /* and back */
	size_t len;
	struct crpc_flux *flux;
	_Atomic uint64_t done;    /* received; rpc, flux, mesh: answered; latency: round trips */
	_Atomic uint64_t bad;     /* payloads that were wrong */
	_Atomic uint32_t more;    /* third lcore and more, that have begun */
	_Atomic uint64_t away_ns; /* of these */
};

/* Messages that our rings hold back at most: the peer starts before a window is full. */
static inline uint32_t
rb_lazy(uint32_t depth)
{
	return depth / 4 < 64 ? depth / 4 : 64;
}

/* loops.c: stream, rpc and latency. Side 0 is producer or client. */
int rb_ring_open(struct rb_slice *s);
void rb_ring_close(struct rb_slice *s);
void rb_ring_run(struct rb_slice *s, int side);

/* nodes.c: flux and mesh; one call per lcore. */
int rb_nodes_open(struct rb_slice *s);
void rb_nodes_close(struct rb_slice *s);
void rb_nodes_run(struct rb_slice *s, uint32_t lcore_index);

/*
 * env.c: what the machine moves between two lcores at most. How far the reader lags decides from
 * which cache lines come, so a rate is measured with several numbers of lines in flight.
 */
enum rb_ways { RB_ONE_WAY, RB_BOTH_WAYS, RB_WAYS };

/* Find and print the rates. */
void rb_env_limits(struct app_party *p);
/* Million lines per second, both directions together, with the best number of lines in flight. */
double rb_env_line_rate(struct app_party *p, enum rb_ways ways, uint64_t ns);

/* lane.c: all transports of a case side by side; 0 or -EIO. */
int rb_case_run(const struct rb_opt *o, const struct app_case *c, struct app_party *p);

#endif
