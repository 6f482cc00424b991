/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_KV_SERVER_H
#define CRPC_KV_SERVER_H

/**
 * @file
 * The key-value service of one process, a rank: daemons, each a poll loop with its part of the
 * keys, between clients of this host (ipc), the other daemons of the rank (flux) and other ranks
 * (copyrpc).
 *
 *     control thread                                  thread of each daemon
 *     s = crpc_kv_server_create(&conf)
 *     crpc_kv_server_load(s, key, ...)                (optional: keys that exist from the start)
 *     for each other rank r:
 *         crpc_kv_server_address(s, r, blob, ...)  -> to r, by any means
 *         crpc_kv_server_connect(s, r, blob, len)  <- from r
 *                                                     d = crpc_kv_server_daemon(s, i)
 *     now and then:                                   forever:
 *         crpc_kv_server_peer(s, r)                       crpc_kv_daemon_turn(d, now)
 *         crpc_kv_server_wanted(s): connect it too
 *         crpc_kv_server_renew(s, r)                      each ms: crpc_kv_daemon_watch(d, now)
 *         a snapshot, see crpc_kv_server_snapshot_claim()
 *     crpc_kv_server_free(s)                          (their loops have ended)
 *
 * Threads: a daemon belongs to the thread that calls its turn() and watch(), one daemon or several
 * on one thread; before its first turn it belongs to the control thread. All other functions belong
 * to the control thread. What it asks of a daemon is done in that daemon's next watch(), so the
 * answer comes a millisecond later; a program without threads calls watch() itself in between.
 *
 * Nothing here prints, sleeps or starts a thread, and only what crpc_kv_daemon_insight() turns off
 * reads a clock, so that turns can be made in virtual time. Errors are negative errno;
 * those of create(), connect() and the functions of snapshots have their cause in crpc_log_last().
 */

#include <sys/types.h>

#include "crpc_copyrpc.h"
#include "crpc_kv_blocks.h"
#include "crpc_kv_proto.h"
#include "crpc_rpc.h"

CRPC_BEGIN_DECLS

struct crpc_mem_place;

/** Ranks at most. */
#define CRPC_KV_RANKS_MAX 1024
/** With more ranks than this, few calls are open to each of them: rings and queues are small. */
#define CRPC_KV_RANKS_FEW 64
/** Calls that a client may have open, if nothing else is asked for. */
#define CRPC_KV_DEPTH 64
/** The same where values are above CRPC_KV_VALUE_INLINE: there is room for all of them at once. */
#define CRPC_KV_DEPTH_LARGE 8
/** Deadline of a call to another rank, unless another is asked for. */
#define CRPC_KV_TIMEOUT_NS UINT64_C(1200000000)
/** Buckets of the histogram of requests per turn: bucket i counts 2^i to 2^(i+1)-1. */
#define CRPC_KV_TAKEN_BUCKETS 7
/** One turn in this many is timed; a power of two. */
#define CRPC_KV_PHASE_SAMPLE 64
/** Buckets of times: crpc_hist_log_index() with CRPC_KV_TIME_BITS; the last has all above. */
#define CRPC_KV_TIME_BUCKETS 64
#define CRPC_KV_TIME_BITS 2

struct crpc_kv_front;

/** What a server is. Zero it, then set what is wanted; all ranks have the same but for `rank`. */
struct crpc_kv_server_conf {
	uint32_t rank, ranks; /**< Which of how many; ranks 0 is taken as 1. */
	uint32_t daemons;     /**< 1 to CRPC_KV_DAEMONS_MAX; 0: 1. */
	uint32_t key_size;    /**< Bytes of a key, CRPC_KV_KEY_MIN..CRPC_KV_KEY_MAX; 0: 8. */
	uint32_t value_max; /**< Bytes of a value, CRPC_KV_VALUE_MIN to CRPC_KV_VALUE_MAX; 0: 8. */
	uint32_t capacity;  /**< Keys that each daemon's store takes. */
	uint64_t
		/** Of values above CRPC_KV_VALUE_INLINE, each daemon; 0: for capacity. */
		block_bytes;

	const char
		*name; /**< Of the segments: NAME, or NAME.RANK[.DAEMON] where there are several. */
	uint32_t clients; /**< Connections of each daemon at most; 0: no segments, see `front`. */
	uint32_t depth;   /**< Calls that one client may have open; 0: CRPC_KV_DEPTH. */
	uint32_t calls;   /**< That a daemon's clients have open at most; 0: clients x depth. */
	bool plain;       /**< No request has extras: there is no room for them. */
	uint64_t client_block_bytes; /**< Of blocks in one client's open requests; 0: any. */
	mode_t mode;                 /**< Who may connect; 0: 0600, the same user. */
	gid_t gid; /**< Group of the segments, for mode 0660; 0 or (gid_t)-1: the process's. */
	bool huge; /**< Segments on hugepages if the daemon's node has them: crpc_ipc.h. */

	const char *device; /**< RDMA device; NULL: the first that fits. Not used with one rank. */
	struct crpc_copyrpc_ep_conf link; /**< Transport, flow and arrival of the endpoints. */
	enum crpc_copyrpc_flush_policy flush;
	uint32_t ring_size; /**< Of the endpoints: crpc_copyrpc_conf; 0: for `calls` and `ranks`. */
	uint64_t hold_ns;
	uint64_t initial_pos; /**< Likewise; for tests. */
	uint64_t timeout_ns; /**< Deadline of calls to other ranks; 0: CRPC_KV_TIMEOUT_NS. */
	/** Endpoints to a rank are made when its address is asked for first, by watch(); requests
	 *  for a rank that is NEW and here wait: crpc_kv_server_here(), _wanted(). */
	bool on_use;
	bool by_number; /**< Endpoints to one daemon of each rank only, which passes on by flux. */
	/** Requests come by this, not by ipc: crpc_kv_server_front(). NULL: by ipc. */
	const struct crpc_kv_front *front;
	/** Where each daemon runs, and its memory is to lie; NULL: anywhere. */
	const struct crpc_mem_place *place;

	uint32_t keys; /**< Of all ranks, if clients are to know by CRPC_KV_INFO; 0. */
	/** Writer ids that CRPC_KV_INFO gives out, divided over all owners; 0, 0: none. */
	uint32_t writer_first, writer_end;
};

/** State of another rank, as doc/design/kv_service.md draws it. */
enum crpc_kv_peer {
	CRPC_KV_PEER_NEW, /**< Not connected, or made new after it was lost. */
	CRPC_KV_PEER_UP,
	CRPC_KV_PEER_LOST, /**< crpc_kv_server_peer_why() has the reason. */
};

/** Phases of a daemon's turn, in their order. */
enum crpc_kv_phase {
	CRPC_KV_TURN_NET_POLL, /**< Answers of other ranks. */
	CRPC_KV_TURN_NET_RECV, /**< Their requests. */
	CRPC_KV_TURN_MATES,    /**< The rank's other daemons. */
	CRPC_KV_TURN_CLIENTS,
	CRPC_KV_TURN_SEND, /**< Backlogs and batches leave. */
	CRPC_KV_TURN_PHASES,
};

/** Counters of a daemon since its creation. */
struct crpc_kv_stats {
	uint64_t stat[CRPC_KV_STATS_N]; /**< As enum kv_stat numbers them. */
	uint64_t turns, busy;           /**< Turns of the loop; of these: with work. */
	uint64_t relayed; /**< Requests of other ranks that were passed to another daemon. */
	uint64_t timed;   /**< Turns, one in CRPC_KV_PHASE_SAMPLE, whose phases were timed. */
	uint64_t phase_ns[CRPC_KV_TURN_PHASES]; /**< In those. */
	uint64_t busy_ns; /**< Of those that had work. Over the sum of phase_ns: utilisation. */
	/** Of those, by the time of each phase, and of all of them. */
	uint64_t phase_time[CRPC_KV_TURN_PHASES + 1][CRPC_KV_TIME_BUCKETS];
	/** Turns by the requests of clients that they took. */
	uint64_t taken[CRPC_KV_TAKEN_BUCKETS];
	uint64_t waited; /**< Requests that waited for room. */
};

/**
 * Where a daemon's requests come from instead of ipc: another transport, whose end each function is
 * given. Ownership of bytes is that of crpc_rpc.h: a request is readable until its reply.
 */
struct crpc_kv_front {
	/** Clients ask this daemon also for keys of other owners; else those are refused. */
	bool passes;
	uint32_t (*recv)(void *end, uint64_t now_ns, struct crpc_req *req, uint32_t n);
	/** @return 0, -EMSGSIZE (it is still open), or the caller has gone. */
	int (*reply)(void *end, uint64_t now_ns, uint64_t token, const void *msg, uint32_t len);
	/** End a request with an error. */
	void (*fail)(void *end, uint64_t now_ns, uint64_t token, int status);
	void (*flush)(void *end, uint64_t now_ns); /**< End of a turn. */
	void (*watch)(void *end, uint64_t now_ns); /**< Every millisecond or two. */
};

struct crpc_kv_server;
struct crpc_kv_daemon;

/**
 * Make a server: stores without keys, segments that clients may connect to, endpoints.
 *
 * @return
 *   The server, or NULL with errno: EINVAL, ENOMEM, EADDRINUSE (a living process has that name),
 *   ENOSPC (/dev/shm), ENODEV (no such RDMA device), EACCES.
 */
struct crpc_kv_server *crpc_kv_server_create(const struct crpc_kv_server_conf *conf);

/** End it, after its daemons' loops. Clients' open calls end with -ECONNRESET. NULL is fine. */
void crpc_kv_server_free(struct crpc_kv_server *s);

/** One of its daemons, 0 to conf.daemons - 1. */
struct crpc_kv_daemon *crpc_kv_server_daemon(struct crpc_kv_server *s, uint32_t daemon);

/**
 * Give versions from here on; before any is given. A program that may be killed stores an epoch
 * and begins at epoch << 40, so that no version repeats.
 */
void crpc_kv_server_version_begin(struct crpc_kv_server *s, uint64_t version);

/** Bytes of EAL memory that each daemon's store takes, roughly. */
uint64_t crpc_kv_server_store_bytes(const struct crpc_kv_server_conf *conf);

/**
 * Give a daemon its end of conf.front; before its first turn.
 *
 * @param s, daemon
 *   The server, and which of its daemons.
 * @param end
 *   What the functions of the front get.
 * @param first, peers
 *   Requests of these peers are of clients of this rank, all others of other ranks.
 */
void crpc_kv_server_front(
	struct crpc_kv_server *s, uint32_t daemon, void *end, uint32_t first, uint32_t peers);

/** Whether a key is one of this rank's. */
bool crpc_kv_server_owns(const struct crpc_kv_server *s, const void *key, uint32_t key_len);

/**
 * Put a key before the first turn.
 *
 * @return
 *   0; -EXDEV: it is another rank's; -ENOSPC: the store is full; -EINVAL: key_len or len.
 */
int crpc_kv_server_load(struct crpc_kv_server *s, const void *key, uint32_t key_len,
	const void *value, uint32_t len);

/**
 * The bytes that rank @p peer needs to reach us.
 *
 * @return
 *   Their number, above 0; -EAGAIN: it is LOST until a renew() is complete, or its endpoints are
 *   being made for their first use; -ENOSPC: max is too small (a buffer of
 *   crpc_kv_server_address_max() is never); -EINVAL: no other rank.
 */
int64_t crpc_kv_server_address(struct crpc_kv_server *s, uint32_t peer, void *buf, size_t max);

/** Bytes of such an address at most. */
size_t crpc_kv_server_address_max(const struct crpc_kv_server *s);

/**
 * Connect to rank @p peer, whose crpc_kv_server_address() for us gave these bytes.
 *
 * @return
 *   0: crpc_kv_server_peer() says CRPC_KV_PEER_UP when it is done, or LOST; at once, if no daemon
 *   has had a turn. -EPROTO: another version, number of daemons or size. -EINVAL: not
 *   CRPC_KV_PEER_NEW. -ENOMEM.
 */
int crpc_kv_server_connect(struct crpc_kv_server *s, uint32_t peer, const void *buf, size_t len);

/**
 * With `on_use`: whether a rank is there, so that requests for it wait while it is NEW. One that is
 * not, as all are at first, is refused with -EHOSTUNREACH at once, and so are those that wait.
 */
void crpc_kv_server_here(struct crpc_kv_server *s, uint32_t peer, bool here);

/**
 * With `on_use`: who is to be connected. Exchange addresses with it, as above; its side does the
 * same, whether it has requests or not. A request that waits longer than `timeout_ns` ends with
 * -EHOSTUNREACH.
 *
 * @return
 *   A rank for which requests have begun to wait; `ranks`: there is none now.
 */
uint32_t crpc_kv_server_wanted(struct crpc_kv_server *s);

/**
 * State of a rank, below conf.ranks; our own is UP. Operations on keys of one that is not UP end
 * with -EHOSTUNREACH, at once; those that were under way when it was lost, and may have taken
 * place, with -EHOSTDOWN or -ETIMEDOUT.
 */
enum crpc_kv_peer crpc_kv_server_peer(const struct crpc_kv_server *s, uint32_t peer);

/** Why a rank is LOST: a text that stays, as "its connection broke"; else NULL. Any thread. */
const char *crpc_kv_server_peer_why(const struct crpc_kv_server *s, uint32_t peer);

/**
 * A rank is known to be dead, from elsewhere: its operations end. Any thread.
 *
 * @param s, peer
 *   The server, and which rank; not our own.
 * @param why
 *   A text that stays.
 */
void crpc_kv_server_lose(struct crpc_kv_server *s, uint32_t peer, const char *why);

/** Ranks that were lost so far; any thread. */
uint32_t crpc_kv_server_lost(const struct crpc_kv_server *s);

/**
 * A lost rank comes again. It stays LOST until each daemon has given every endpoint to it a fresh
 * queue pair and epoch, which takes as long as the retries of what was under way; then it is NEW.
 * Nothing of the earlier connection can reach the next one. If a daemon cannot, that is logged once
 * as an error and tried again each second.
 *
 * @return
 *   0, also if it is under way. -EINVAL: it is not CRPC_KV_PEER_LOST.
 */
int crpc_kv_server_renew(struct crpc_kv_server *s, uint32_t peer);

/** Ask all other ranks to stop, as a run of several ranks ends as one; crpc_kv_server_stopped(). */
void crpc_kv_server_stop(struct crpc_kv_server *s);

/** Whether another rank asked for it. Any thread. */
bool crpc_kv_server_stopped(const struct crpc_kv_server *s);

/** Do not look for dead peers any more: all are about to leave. */
void crpc_kv_server_leave(struct crpc_kv_server *s);

/**
 * All daemons have made their last turn: clients' open calls end with -ECONNRESET, other ranks are
 * no longer heard. The keys stay, for a last snapshot.
 */
void crpc_kv_server_close(struct crpc_kv_server *s);

/**
 * Two daemons of a server will be run by one thread: each serves plain requests for the other's
 * keys at once, instead of passing them on. Before their first turn.
 */
void crpc_kv_daemon_join(struct crpc_kv_daemon *d, struct crpc_kv_daemon *mate);

/**
 * A snapshot is a file for each daemon, PATH.OWNER; doc/protocol/benchkv_snapshot.md.
 *
 *     crpc_kv_server_snapshot_claim(s, path)     PATH.OWNER.new is made and locked
 *     for each daemon:
 *         crpc_kv_server_snapshot_write(s, d)    the file is begun, or gets what was copied
 *         crpc_kv_server_snapshot_copy(s, d, n)  while its loop stands or has ended: its keys as
 *                                                they are; -EAGAIN: let the loop run, and repeat
 *         crpc_kv_server_snapshot_write(s, d)
 *     crpc_kv_server_snapshot_commit(s)          made lasting, renamed to PATH.OWNER
 *
 * So there is either the old file or the new one, whole, and each key in it is as it was at one
 * moment between the first and the last copy() of its daemon. write() and commit() wait for the
 * disk, copy() does not if the keys of one call take less than 2 MiB; without write() it does.
 * commit() after write() can be left to a forked child, as can all where no loop runs. Each file's
 * generation is one more than that of the file before it.
 *
 * @return
 *   0, or -errno with the cause in crpc_log_last(): -EBUSY (a process that lives has it), -ENOENT
 *   (no such folder), -EACCES, -ENAMETOOLONG. A claim that is held already is kept.
 */
int crpc_kv_server_snapshot_claim(struct crpc_kv_server *s, const char *path);

/**
 * Copy keys of a daemon for the file that was claimed.
 *
 * @param s, daemon
 *   The server, and which of its daemons; it makes no turn meanwhile.
 * @param places
 *   Look at so many of the store's places, each of which may have a key; UINT32_MAX: all.
 * @return
 *   Keys that were written; -EAGAIN: there are more places; -ENOENT (it is not claimed), -ENOSPC,
 *   -EIO: the next call begins again.
 */
int64_t crpc_kv_server_snapshot_copy(struct crpc_kv_server *s, uint32_t daemon, uint32_t places);

/** Wait for the disk in the place of copy(). @return 0, or as copy(): the next one begins again. */
int crpc_kv_server_snapshot_write(struct crpc_kv_server *s, uint32_t daemon);

/** @return 0, or -errno: of one daemon's file, the first that failed; all others are committed. */
int crpc_kv_server_snapshot_commit(struct crpc_kv_server *s);

/**
 * Fill empty stores with a snapshot; before the first turn.
 *
 * @param s, path
 *   The server, and what was given to claim().
 * @param missing
 *   How many daemons have no file; they begin without keys.
 * @return
 *   Keys that were read, or -errno: -EBADMSG (cut short, changed, or none at all), -EPROTO (another
 *   version), -EXDEV (of other sizes of keys, or numbers of daemons), -ENOSPC (more keys, or larger
 *   values, than the store takes), -EBUSY (a process writes a newer one now), -EIO, -ENOMEM.
 */
int64_t crpc_kv_server_restore(struct crpc_kv_server *s, const char *path, uint32_t *missing);

/** Calls open on one endpoint: those of clients, and the service's own. */
static inline uint32_t
crpc_kv_inflight(uint32_t calls)
{
	return (uint32_t)crpc_min(calls + 4, CRPC_COPYRPC_INFLIGHT_MAX);
}

/**
 * Bytes of a ring for so many calls with messages of up to @p msg bytes, if they go to a few ranks;
 * of many, each has a part of them.
 */
static inline uint32_t
crpc_kv_ring_size(uint32_t calls, uint32_t msg, uint32_t ranks)
{
	/* What is larger does not go through the ring. */
	uint64_t bytes = crpc_min(msg, CRPC_KV_REQ_MAX) + 64;
	uint64_t want = crpc_pow2_ceil(crpc_max(calls, 64u) * bytes * 2);

	if (ranks > CRPC_KV_RANKS_FEW)
		return (uint32_t)crpc_min(
			crpc_max(crpc_pow2_ceil(crpc_max(calls * 8 / ranks, 8u) * bytes), 1024),
			4u * 1024 * 1024);
	return (uint32_t)crpc_min(crpc_max(want, 64u * 1024), 4u * 1024 * 1024);
}

/** One turn of a daemon's loop. @return how many things were done; 0: idle. */
uint32_t crpc_kv_daemon_turn(struct crpc_kv_daemon *d, uint64_t now_ns);

/** What may cost a system call; every millisecond or two, by the thread of turn(). */
void crpc_kv_daemon_watch(struct crpc_kv_daemon *d, uint64_t now_ns);

/** Copy the counters; the thread of turn(). */
void crpc_kv_daemon_stats(const struct crpc_kv_daemon *d, struct crpc_kv_stats *stats);

/** What a daemon consists of. */
struct crpc_kv_parts {
	struct crpc_ipc_server *ipc; /**< For clients of this process; NULL: there is a front. */
	const char *segment;         /**< By which those of others find it. */
	/** For values above CRPC_KV_VALUE_INLINE; .cache is NULL if there are none. */
	const struct crpc_kv_blocks *blocks;
	struct crpc_copyrpc *copyrpc; /**< To other ranks, and the device; NULL: there are none. */
	struct crpc_rdma *device;
	uint32_t endpoints;
	void *memory; /**< Where the store's values lie. */
};

/** What a daemon consists of, to be looked at by the thread of turn(). */
void crpc_kv_daemon_parts(const struct crpc_kv_daemon *d, struct crpc_kv_parts *parts);

/** Measure phases, round trips and requests per turn, or not, from now on; the thread of turn(). */
void crpc_kv_daemon_insight(struct crpc_kv_daemon *d, bool on);

/**
 * Let a command of telemetry report what the daemons of a server published in their last watch().
 * Of several servers in a process, daemons with the same number publish in the same place.
 *
 * @param command
 *   Its name, for the first server; it takes the number of a daemon, else it is of all.
 * @param rank, daemons
 *   The server's rank, and how many daemons it has.
 * @return
 *   0, or -errno of rte_telemetry_register_cmd().
 */
int crpc_kv_tel_start(const char *command, uint32_t rank, uint32_t daemons);

/** A counter of all daemons of this process, likewise. */
uint64_t crpc_kv_tel_sum(enum kv_stat stat);

/** A phase in one word. */
static inline const char *
crpc_kv_phase_name(uint32_t phase)
{
	static const char *const names[CRPC_KV_TURN_PHASES] = {
		"net_poll", "net_recv", "daemons", "clients", "send"};

	return phase < CRPC_KV_TURN_PHASES ? names[phase] : "unknown";
}

CRPC_END_DECLS

#endif
