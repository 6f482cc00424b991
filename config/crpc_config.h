/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_CONFIG_H
#define CRPC_CONFIG_H

/*
 * Around declarations of functions: C++ programs can call them, and shared libraries export them.
 * What is declared elsewhere is hidden (-fvisibility=hidden).
 */
#ifdef __cplusplus
#define _Static_assert static_assert
#define CRPC_BEGIN_DECLS                                                                           \
	_Pragma("GCC visibility push(default)")                                                    \
	extern "C" {
#define CRPC_END_DECLS                                                                             \
	}                                                                                          \
	_Pragma("GCC visibility pop")
#else
#define CRPC_BEGIN_DECLS _Pragma("GCC visibility push(default)")
#define CRPC_END_DECLS   _Pragma("GCC visibility pop")
#endif

/**
 * @file
 * Every compile-time limit of the project, and how the limits relate.
 *
 * Run-time sizes (ring bytes, depths, clients) are arguments of the create calls; what stands here
 * bounds them, so that each queue, loop and table has a limit that can be read in one place.
 */

/** Bytes of a cache line. */
#define CRPC_CACHE_LINE 64
/** Bytes between two objects written by different cores: adjacent-line prefetch couples pairs. */
#define CRPC_CACHE_GUARD 128

/* ---- RPC in general ---- */

/** Requests or completions that one recv or poll call returns at most. */
#define CRPC_BURST_MAX 64

/* ---- lib/spsc ---- */

/** Messages that a ring holds; a power of two. */
#define CRPC_SPSC_DEPTH_MIN 2
#define CRPC_SPSC_DEPTH_MAX (1u << 20)
/** Bytes of a message; a multiple of 8. */
#define CRPC_SPSC_ESIZE_MIN 8
#define CRPC_SPSC_ESIZE_MAX 256

/* ---- lib/flux ---- */

/** Nodes of one flux. */
#define CRPC_FLUX_NODES_MAX 256
/** Calls that one node may have open to one peer. */
#define CRPC_FLUX_WINDOW_MAX 4096
/** Bytes of one request or response: a ring's message less its header. */
#define CRPC_FLUX_MSG_MAX (CRPC_SPSC_ESIZE_MAX - 8)

/* ---- lib/shm ---- */

/** Members (threads of all processes) of one arena. */
#define CRPC_ARENA_MEMBERS_MAX 4095
/** Bytes of the largest block of an arena. */
#define CRPC_ARENA_BLOCK_MAX (1u << 30)
/** Segments of one translation table. */
#define CRPC_XLATE_SEGS_MAX 4096
/** Bits of the offset in a reference to a byte of a segment; the segment's number is above. */
#define CRPC_XLATE_OFF_BITS 40
/** Bytes of address space that one translation table may reserve. */
#define CRPC_XLATE_WINDOW_MAX (UINT64_C(1) << 45)

/* ---- lib/ipc ---- */

/** Clients of one server. */
#define CRPC_IPC_CLIENTS_MAX 1024
/** Calls that one client may have open. */
#define CRPC_IPC_DEPTH_MAX 256
/** Bytes of one request or response. */
#define CRPC_IPC_MSG_MAX 16384

/* ---- lib/rdma ---- */

/** Queue pairs of one device context. */
#define CRPC_RDMA_QPS_MAX 4096
/** DC initiators of a device. */
#define CRPC_RDMA_DCIS_MAX 64
/** Completions that a device's queue may be asked to hold. */
#define CRPC_RDMA_CQ_DEPTH_MAX (1u << 22)
/** Work requests that one send or receive queue may be asked to hold. */
#define CRPC_RDMA_QUEUE_DEPTH_MAX 32768u
/** Gather elements of one work request. */
#define CRPC_RDMA_SGE_MAX 4
/** Bytes of a queue pair's address as ranks exchange it. */
#define CRPC_RDMA_ADDR_LEN 64

/* ---- lib/copyrpc ---- */

/** Endpoints of one context. */
#define CRPC_COPYRPC_EPS_MAX 4096
/** Calls that one endpoint may have open. */
#define CRPC_COPYRPC_INFLIGHT_MAX 4096
/** Bytes of the largest request or reply that goes in fragments. */
#define CRPC_COPYRPC_LARGE_MAX (16u << 20)
/** Bytes of one get or put. */
#define CRPC_COPYRPC_ONESIDED_LEN_MAX (1u << 30)
/** Bytes of an endpoint's address as ranks exchange it. */
#define CRPC_COPYRPC_ADDR_LEN 160
/** Smallest and largest ring of one lane, bytes; both powers of two. */
#define CRPC_COPYRPC_RING_MIN 1024
#define CRPC_COPYRPC_RING_MAX (1u << 30)

/* ---- lib/udrpc ---- */

/** Sessions of one context. */
#define CRPC_UDRPC_EPS_MAX (1u << 15)
/** Calls that one session may have open. */
#define CRPC_UDRPC_SLOTS_MAX 256
/** Packets that one session may have unanswered. */
#define CRPC_UDRPC_CREDITS_MAX 256
/** Bytes of the largest request or reply. */
#define CRPC_UDRPC_MSG_MAX (8u << 20)
/** Bytes of the smallest datagram that a session may be limited to. */
#define CRPC_UDRPC_PKT_MIN 256
/** Bytes of a session's address as ranks exchange it. */
#define CRPC_UDRPC_ADDR_LEN 128

/* ---- lib/bulk ---- */

/** Devices, with their contexts, that one bulk object may use. */
#define CRPC_BULK_PORTS_MAX 4
/** Endpoints of one connection. */
#define CRPC_BULK_RAILS_MAX 8
/** Connections of one bulk object. */
#define CRPC_BULK_CONNS_MAX 1024
/** Sends, and receives, that one connection may have open. */
#define CRPC_BULK_REQUESTS_MAX 256
/** Chunks of one connection that may be on their way or not consumed. */
#define CRPC_BULK_SLOTS_MAX 256
/** Bytes of a chunk; a power of two. */
#define CRPC_BULK_CHUNK_MIN 4096u
#define CRPC_BULK_CHUNK_MAX (16u << 20)
/** Pieces that a chunk is cut into at most, in bounce memory. */
#define CRPC_BULK_PIECES_MAX 8
/** Bytes of one message. */
#define CRPC_BULK_LEN_MAX (UINT64_C(4) << 30)
/** Bytes of a connection's address as ranks exchange it. */
#define CRPC_BULK_ADDR_LEN (128 + CRPC_BULK_RAILS_MAX * CRPC_COPYRPC_ADDR_LEN)
/** Unpack engines of a program, and descriptors of one job. */
#define CRPC_UNPACK_ENGINES_MAX 16
#define CRPC_UNPACK_DESCS_MAX 64
/** Of the engine gpudev: launches under way, and regions of memory that it knows. */
#define CRPC_GPUDEV_WAVES 32
#define CRPC_GPUDEV_REGIONS_MAX 1024
/** Regions of one registration cache. */
#define CRPC_MRCACHE_REGIONS_MAX 4096

/* ---- lib/tensor, lib/tensor_ipc ---- */

/** Dimensions of an array. */
#define CRPC_TENSOR_RANK_MAX 8
/** Elements of an array, those that a stride of 0 repeats counted as often as they appear. */
#define CRPC_TENSOR_ELEMS_MAX (UINT64_C(1) << 40)
/** Segments that a descriptor can name. */
#define CRPC_TENSOR_SEGMENTS_MAX 64
/** Arrays and operations of one batch. */
#define CRPC_TENSOR_BATCH_TENSORS_MAX 64
#define CRPC_TENSOR_BATCH_OPS_MAX 64
/** Arrays of one operation, outputs included. */
#define CRPC_TENSOR_OP_ARGS_MAX 4

_Static_assert(CRPC_CACHE_GUARD % CRPC_CACHE_LINE == 0, "a guard is whole lines");
_Static_assert((CRPC_SPSC_DEPTH_MAX & (CRPC_SPSC_DEPTH_MAX - 1)) == 0, "a power of two");
_Static_assert(2 * CRPC_FLUX_WINDOW_MAX <= CRPC_SPSC_DEPTH_MAX, "a ring holds two windows");
_Static_assert((CRPC_COPYRPC_RING_MIN & (CRPC_COPYRPC_RING_MIN - 1)) == 0, "a power of two");
_Static_assert((CRPC_COPYRPC_RING_MAX & (CRPC_COPYRPC_RING_MAX - 1)) == 0, "a power of two");
_Static_assert(CRPC_COPYRPC_ADDR_LEN > CRPC_RDMA_ADDR_LEN, "an endpoint's address holds a QP's");
_Static_assert(CRPC_UDRPC_ADDR_LEN > CRPC_RDMA_ADDR_LEN, "a session's address holds a queue's");
_Static_assert(CRPC_UDRPC_MSG_MAX / (CRPC_UDRPC_PKT_MIN - 28) < 65535, "pieces have 16 bits");
_Static_assert(CRPC_BULK_CHUNK_MIN % (64 * CRPC_BULK_PIECES_MAX) == 0, "pieces are whole lines");
_Static_assert(CRPC_BULK_PIECES_MAX <= CRPC_UNPACK_DESCS_MAX, "a chunk is one job");

#endif
