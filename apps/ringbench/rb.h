/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RB_H
#define RB_H

/*
 * ringbench: what its files share. main.c plans and runs, opt.c reads options, env.c prints
 * what a line costs, loops.c holds the timed loops of the rings, nodes.c those of flux and
 * mesh, out.c sums up.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app_measure.h"
#include "app_opt.h"
#include "app_perf.h"
#include "crpc_atomic.h"
#include "crpc_util.h"
#include "rb_transport.h"

#define RB_LCORES_MAX 16

enum rb_pattern { RB_STREAM, RB_RPC, RB_LATENCY, RB_FLUX, RB_MESH, RB_PATTERNS };

extern const char *const rb_transport_names[RB_TRANSPORTS + 1];
extern const char *const rb_pattern_names[RB_PATTERNS + 1];

/* False where this build, or this pattern, lacks the transport; why says which. */
bool rb_transport_usable(enum rb_transport t, enum rb_pattern p, uint32_t size, const char **why);

struct rb_opt {
	struct app_list transports, patterns, sizes, bursts;
	uint64_t inflight;
	uint64_t depth;
	uint64_t nodes;
	uint64_t repeat;
	double seconds;
	const char *json;
	bool check;
	bool counters;
};

void rb_opt_help(int argc, char *const *argv);

/* 0, or an exit code after one line on stderr. */
int rb_opt_parse(const struct rb_opt **o, int argc, char **argv);

/* One timed slice of one transport. */
struct rb_case {
	enum rb_pattern pattern;
	enum rb_transport transport;
	uint32_t size;
	uint32_t burst;
	uint32_t inflight;
	uint32_t depth;
	uint32_t nodes;
	uint32_t nlcores;
	bool check;
	bool counters;
	uint64_t ticks; /* length */
};

/* What a slice gave. */
struct rb_result {
	uint64_t messages; /* received; rpc, flux, mesh: requests answered; latency: round trips */
	uint64_t ns;
	uint64_t bad; /* payloads that were wrong */
	uint64_t away_ns; /* that something else had the lcores' cores */
	double line_ns[2]; /* ping-pong before and after */
	uint64_t counter[2][APP_COUNTERS]; /* first lcore, second lcore */
	bool counted;
};

/* A started slice as its lcores see it. */
struct rb_slice {
	struct rb_case c;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t ready;
	crpc_aligned(CRPC_CACHE_GUARD) _Atomic uint32_t stop;
	crpc_aligned(CRPC_CACHE_GUARD) void *to;   /* ring to the second lcore */
	void *back;				    /* and back */
	size_t len;
	struct crpc_flux *flux;
	struct crpc_mesh *mesh;
	struct rb_result r;
	_Atomic uint64_t done;
	_Atomic uint64_t bad;
	_Atomic uint64_t away_ns;
};

/* Messages that our rings hold back at most: the peer starts before a window is full. */
static inline uint32_t
rb_lazy(uint32_t depth)
{
	return depth / 4 < 64 ? depth / 4 : 64;
}

/* loops.c, cxx.cc: the two ends of stream, rpc and latency. */
int rb_ring_open(struct rb_slice *s);
void rb_ring_close(struct rb_slice *s);
void rb_ring_first(struct rb_slice *s);	 /* producer, client */
void rb_ring_second(struct rb_slice *s); /* consumer, server */

/* duplex.c: the same for the ring whose replies overwrite their requests. */
int rb_duplex_open(struct rb_slice *s);
void rb_duplex_first(struct rb_slice *s);
void rb_duplex_second(struct rb_slice *s);

/* nodes.c: flux and mesh; one call per lcore. */
int rb_nodes_open(struct rb_slice *s);
void rb_nodes_close(struct rb_slice *s);
void rb_nodes_run(struct rb_slice *s, uint32_t lcore_index);

/*
 * env.c: what the machine moves between two lcores at most. How far the reader lags decides from
 * which cache lines come, so a rate is measured with several numbers of lines in flight.
 */
enum rb_ways { RB_ONE_WAY, RB_BOTH_WAYS, RB_WAYS };
#define RB_LAGS 5
extern const uint32_t rb_lags[RB_LAGS]; /* lines in flight */

struct rb_limits {
	double line_ns;                /* line ping-pong, round trip */
	double rate[RB_WAYS][RB_LAGS]; /* million lines per second, both directions together */
	uint32_t best[RB_WAYS];        /* lag of the highest rate */
};

/* Between the main lcore, which calls, and another. */
double rb_env_line_ns(unsigned int lcore);
double rb_env_line_rate(unsigned int lcore, enum rb_ways ways, uint32_t lines, uint64_t ns);
void rb_env_limits(unsigned int lcore, struct rb_limits *limits);

/* out.c */
struct rb_out;
struct rb_out *rb_out_open(const struct rb_opt *o, const char *lcores);
void rb_out_limits(struct rb_out *out, const struct rb_limits *limits);
/* A slice of the machine's own line rate, beside which the transports of a case stand. */
void rb_out_line(struct rb_out *out, const struct app_slice *slice);
void rb_out_slice(struct rb_out *out, const struct rb_case *c, const struct rb_result *r);
/* Ends the trial: table and JSON of one pattern, size and burst; forgets its slices. 0 or -EIO. */
int rb_out_case(struct rb_out *out, const struct rb_case *c, struct app_trial *trial);
void rb_out_close(struct rb_out *out);

#endif
