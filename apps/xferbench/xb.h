/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XB_H
#define XB_H

/**
 * @file
 * xferbench: how fast large messages move, and what bounds them.
 *
 *     xferbench [EAL arguments --] [options]
 *
 *     main.c      the two sides, buffers, every case of the command line
 *     options.c   what is measured: every combination of the lists is a case
 *     lane*.c     what moves messages: lib/bulk, memcpy, UCX, ZeroMQ; arrays: lib/tensor_bulk
 *     unpack.c    how an engine of lib/bulk gets its chunks, if not as it wants them
 *     group.c     lanes that are compared, and the content of their messages
 *     out.c       rows of results
 *
 * A lane has two sides (app_lane.h). A slice moves a fixed number of messages, so both know when it
 * is over.
 */

#include <errno.h>
#include <stdio.h>

#include "app_lane.h"
#include "app_opt.h"
#include "app_out.h"
#include "crpc_util.h"

#define XB_DEPTH_MAX 16
/** Memory of all buffers at most. */
#define XB_MEMORY_MAX (UINT64_C(8) << 30)

enum xb_path { XB_EAGER, XB_WRITE, XB_READ, XB_PATHS };
enum xb_engine { XB_CPU, XB_DMADEV, XB_GPUDEV, XB_ENGINES };
/** How chunks get to the engine: as lib/bulk does it, or otherwise, for comparison. */
enum xb_unpack {
	XB_BATCHED, /**< A job for each, started together once per turn. */
	XB_LIST,    /**< In fragments, which are one job that is started at once. */
	XB_EACH_PIECE, /**< In fragments, each a job that is started at once. */
	XB_SYNC,    /**< A job for each that is waited for. */
	XB_REMADE,  /**< An engine for each. */
	XB_UNPACKS
};
enum xb_transport {
	XB_BULK,
	XB_BULK_TCP,
	XB_MEMCPY,
	XB_MEMCPY_TWO,
	XB_UCX,
	XB_ZMQ,
	XB_PLAIN, /**< Those before move bytes, the others arrays with operations on them. */
	XB_TENSOR = XB_PLAIN,
	XB_TENSOR_BF16,
	XB_TRANSPORTS,
};
enum xb_stage { XB_POST, XB_WIRE, XB_UNPACK, XB_CONSUME, XB_STAGES };

extern const char *const xb_path_names[XB_PATHS + 1];
extern const char *const xb_engine_names[XB_ENGINES + 1];
extern const char *const xb_unpack_names[XB_UNPACKS + 1];

/** Buffers of a side: depth messages of size bytes each. */
struct xb_mem {
	uint8_t *send, *recv;
};

/** The command line. */
struct xb_opt {
	struct app_list sizes, chunks, windows, rails, engines, unpacks, paths, directions;
	struct app_list transports;
	struct app_length length;
	uint64_t depth, ops;
	bool verify;
	unsigned int preset;
	const char *json, *ucx_tls, *dma, *gpu, *device;
};

enum xb_preset { XB_NONE, XB_ARRAYS };

/* ---- lanes ---- */

/** Bytes of an address at most. */
#define XB_ADDR_MAX 4096

/** What a lane on lib/bulk counts. */
enum xb_count {
	XB_CHUNKS,
	XB_BLOCKED_WINDOW,
	XB_BLOCKED_SLOTS,
	XB_BLOCKED_QUEUE,
	XB_OCCUPANCY,
	XB_ZERO_COPY, /**< Bytes. */
	XB_COUNTS,
};

/** What a side has seen in a slice. */
struct xb_report {
	struct app_report base;
	struct { /**< Times of a stage. */
		uint64_t n, ns;
	} stage[XB_STAGES];
	uint64_t count[XB_COUNTS];
	uint64_t memory; /**< Beyond the user's buffers. */
};

/** What a side has to do in a slice, and what it has done since the lane was opened. */
struct xb_flow {
	uint64_t to_send, to_recv;
	uint64_t sent, received; /**< Posted so far: places, and tags. */
	uint32_t sends, recvs;   /**< Open. */
};

/** One case of one transport. What the caller sets comes first. */
struct app_case {
	uint32_t transport; /**< enum xb_transport. */
	uint32_t path;      /**< enum xb_path. */
	uint32_t engine;    /**< enum xb_engine. */
	uint32_t unpack;    /**< enum xb_unpack. */
	uint64_t size;
	uint32_t chunk, window, rails;
	uint32_t depth; /**< Messages open at a time in one direction. */
	uint32_t both;  /**< Both directions at once. */
	uint32_t ops;   /**< Arrays: operations on each. */
	bool separate;  /**< Each but the first is a request of its own, after the one before. */
	const struct xb_opt *opt;
	const struct xb_mem *mem; /**< One per side. */
	/* a slice */
	uint64_t messages;
	bool prove; /**< What arrives must be in its place in recv, even if that costs a copy. */
	struct xb_flow flow[APP_SIDES];
	struct xb_report report[APP_SIDES];
};

/** A transport. Functions with a side run on that side's lcore. */
struct xb_way {
	struct app_way base;
	/** Go on: 0, 1 (this side's part is done; it may be called again), -errno. */
	int (*turn)(struct app_lane *l, int side);
	/**
	 * A message as it was sent is at p: make it what has to be there. NULL: it is that.
	 */
	void (*expect)(const struct app_lane *l, uint8_t *p);
	/** Counters since the last call go to l->c->report[side]. May be NULL. */
	void (*report)(struct app_lane *l, int side);
};

/** Series of a lane. */
enum xb_series {
	XB_RATE,  /**< GB/s, both directions together. */
	XB_EACH,  /**< us per message of one direction: with one open, its latency. */
	XB_STAGE, /**< The first stage. */
};

/** One lane of a group. */
struct xb_lane {
	struct app_lane base;
	struct app_case c;
	uint64_t usual; /**< Messages of a slice that counts. */
	uint64_t count[XB_COUNTS]; /**< Sums over slices, of both sides. */
	uint64_t memory; /**< Beyond the user's buffers, of the side that has most. */
};

/** By enum xb_transport. */
extern const struct app_way *const xb_ways[XB_TRANSPORTS];

struct crpc_bulk_conf;

/** What lanes on lib/bulk have at a side. */
struct xb_wire {
	struct crpc_rdma *dev;
	struct crpc_copyrpc *ctx;
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
};

/** Open the device and a context with rings of that size: 0 or -errno. */
int xb_wire_open(struct app_lane *l, struct xb_wire *w, uint32_t ring_size);
/** Make the connection; conf has what is not the same for all lanes. 0 or -errno. */
int xb_wire_bulk(struct app_lane *l, struct xb_wire *w, struct crpc_bulk_conf *conf);
/** Memory that it takes beyond the user's buffers. */
uint64_t xb_wire_memory(const struct xb_wire *w);
void xb_wire_close(struct xb_wire *w);

/** Chunks that a sender has under way at most; the other slots of the receiver are for what is
 *  consumed but not reported yet. */
static inline uint32_t
xb_tx_chunks(const struct app_case *c)
{
	return crpc_max(c->window * 3 / 4, 1u);
}

/** Operations on a message at most, and its bytes where they are counted. */
#define XB_OPS_MAX  8
#define XB_OPS_SIZE (64u << 10)
/** Messages of lib/bulk. */
static inline bool
xb_bulk(uint32_t transport)
{
	return transport == XB_BULK || transport == XB_BULK_TCP;
}
/** A copy by the CPU alone. */
static inline bool
xb_copies(uint32_t transport)
{
	return transport == XB_MEMCPY || transport == XB_MEMCPY_TWO;
}
/** The place of a message. */
static inline uint8_t *
xb_place(const struct app_case *c, uint8_t *mem, uint64_t message)
{
	return mem + message % c->depth * c->size;
}

/** Begin to send or receive message number tag at p: 0, -EAGAIN, -errno. */
typedef int (*xb_post_fn)(struct app_lane *l, int side, bool recv, uint64_t tag, uint8_t *p);

/** Keep depth messages open in one direction: 0 or -errno. */
crpc_inline int
xb_post(struct app_lane *l, int side, bool recv, xb_post_fn post)
{
	struct app_case *c = l->c;
	struct xb_flow *f = &c->flow[side];
	uint64_t *todo = recv ? &f->to_recv : &f->to_send, *tag = recv ? &f->received : &f->sent;
	uint32_t *open = recv ? &f->recvs : &f->sends;
	uint8_t *mem;
	int rc;

	while (*todo != 0 && *open < c->depth) {
		++*open;
		mem = recv ? c->mem[side].recv : c->mem[side].send;
		rc = post(l, side, recv, *tag, xb_place(c, mem, *tag));
		if (rc != 0) {
			--*open;
			return rc == -EAGAIN ? 0 : rc;
		}
		++*tag;
		--*todo;
	}
	return 0;
}

/** A turn of a way that posts messages, whose progress() counts what has ended. */
crpc_inline int
xb_turn(struct app_lane *l, int side, xb_post_fn post,
	int (*progress)(struct app_lane *l, struct xb_flow *f, int side))
{
	struct xb_flow *f = &l->c->flow[side];
	int rc = xb_post(l, side, true, post);

	if (rc == 0)
		rc = xb_post(l, side, false, post);
	if (rc == 0)
		rc = progress(l, f, side);
	return rc != 0 ? rc : f->to_send + f->to_recv + f->sends + f->recvs == 0;
}

/* ---- group.c ---- */

/** What a run has. */
struct xb_run {
	const struct xb_opt *opt;
	struct app_party *party;
	struct xb_mem mem[APP_SIDES];
	uint64_t mem_len; /**< Of all. */
};

/** A group, without lanes. */
struct app_group xb_group(struct xb_run *run);
/** Add a lane; NULL if its transport is not built, or there is none between two hosts. */
struct xb_lane *xb_group_add(struct xb_run *run, struct app_group *g, const struct app_case *c);
/** Measure and print, free the lanes: 0 or -EIO. */
int xb_group_run(struct app_group *g);
/** The first lane of a transport, with figures; or NULL. */
const struct app_lane *xb_group_find(const struct app_group *g, enum xb_transport t);
/** A pattern that depends on where and which message. */
void xb_fill(uint8_t *p, uint64_t len, uint64_t seed);
/** 0, or the place of the first byte that differs, plus 1. */
uint64_t xb_compare(const uint8_t *p, uint64_t len, uint64_t seed);

/* ---- out.c ---- */

/** Which stage bounds a lane of lib/bulk, in words. */
const char *xb_bound(const struct app_lane *l);
/** Complete the row of a lane. */
void xb_row(const struct app_group *g, const struct app_lane *l, json_t *row);

/* ---- unpack.c ---- */

struct crpc_unpack;

/** Before threads start. */
void xb_unpack_register(void);
/** An engine, used that way; arg as in struct crpc_unpack_conf. NULL with errno. */
struct crpc_unpack *xb_unpack_create(enum xb_unpack how, enum xb_engine engine, const char *arg);

/* ---- options.c ---- */

/** 0, or an exit code after one line. */
int xb_options_parse(struct xb_opt *o, int argc, char **argv);
void xb_options_help(int argc, char *const *argv);
/** Bytes that the largest case needs in each buffer. */
uint64_t xb_options_memory(const struct xb_opt *o);
/** The default case. */
struct app_case xb_options_case(const struct xb_opt *o);

#endif
