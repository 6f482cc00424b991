/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_BULK_H
#define CRPC_BULK_H

/**
 * @file
 * Bulk transfer between nodes: tagged messages of up to 4 GiB, cut into chunks, over endpoints of
 * lib/copyrpc, with two windows and an unpack engine.
 *
 *     sender                                                   receiver
 *     isend(tag, buf) -- OFFER tag, len ---------------------> matched with irecv(tag, buf)
 *                     <------------------- ACCEPT path ------  or kept until there is one
 *
 *     eager:          == chunk, by WRITE ====================> bounce memory (slots x chunk)
 *                     -- DATA id, index, pieces -------------> submit() -> engine -> buf
 *                                                              done(), then consumed()
 *                     <------------------- CONSUMED slot ----  the slot is the sender's again
 *
 *     write:          == chunk, by WRITE ====================> buf
 *     read:           <================== chunk, by READ =====
 *
 *                     -- S_END: nothing more is sent --------> the receiver judges
 *                     <------------- R_END: the verdict ------ both requests end with it
 *     test(req)                                                test(req)
 *
 * Paths. Eager needs nothing of the receiver's buffer: chunks land in bounce memory that was
 * registered once and an unpack engine (crpc_unpack.h) moves them, converting floats if wanted.
 * Rendezvous (write, read) needs both buffers registered, by the cache (crpc_mrcache.h), and copies
 * nothing. Sender and receiver each say which paths they allow; with nothing said, messages below
 * rendezvous_min are eager and others written.
 *
 * Order of calls:
 *
 *     b = crpc_bulk_create(&conf)                       contexts of lib/copyrpc, one per device
 *     conn = crpc_bulk_conn_create(b, rails, peer_number)
 *     crpc_bulk_conn_addr(conn, addr)    ---- exchanged by the application ---->  peer
 *     crpc_bulk_conn_connect(conn, peer_addr)           then a barrier
 *     crpc_bulk_irecv(conn, now, tag, buf, len, 0, cookie, &req)
 *     crpc_bulk_isend(conn, now, tag, buf, len, 0, cookie, &req)
 *     every turn of the loop:
 *             now = crpc_clock_ns()
 *             crpc_bulk_progress(b, now)                drives everything
 *             n = crpc_bulk_test_burst(b, result, 64)   requests that ended
 *
 * Nothing moves but in progress(), and nothing else waits, so it must be called all the time at
 * both ends.
 *
 * Requests. Each direction of a connection has a fixed pool (conf.requests); when all are taken,
 * isend() or irecv() gives -EAGAIN. A request's handle is a number that is never used again.
 *
 *     FREE --isend, irecv--> POSTED --matched--> ACTIVE --first chunk--> TRANSMITTING --> DONE
 *       ^                       |                   |                        |              |
 *       |                       +----- an error, cancel, a deadline ---------+------------->|
 *       +------------------------------- test(), test_burst() ------------------------------+
 *
 * Every accepted request ends, with success or an errno, in bounded time: timeout_ns without
 * progress ends it with -ETIMEDOUT. Progress is a match, a chunk of its own that moves, at either
 * end, or of others as long as it waits for the window or slots that they fill; so a large message
 * on a slow wire does not time out, nor one behind it. The peer reports chunks that move only
 * there: one that lies keeps a request open until cancel(). If a peer does not confirm an end
 * within confirm_ns, after cancel() too, the connection breaks. (To notice a lost peer sooner, set
 * peer_timeout_ns of the contexts.) Both ends of a transfer get the same verdict, unless the
 * connection broke in between.
 *
 * Tags. Messages of equal tags match in the order in which they were posted, at both ends. Data can
 * not be mixed up whatever the tags: chunks carry the transfer's id, which is unique, and their
 * index. Lengths must be equal, or with CRPC_BULK_UP_TO the message at most the receiver's length;
 * else both requests end with -EMSGSIZE and no byte is moved.
 *
 * Windows. A sender has at most tx_chunks chunks of all its transfers of a
 * connection on their way, and at most as many chunks and bytes unconsumed as the receiver has
 * slots and bounce memory. Bounce memory is given in units of chunk / 8, so a chunk may lie in up
 * to 8 pieces, and a small message takes one unit.
 *
 * consumed. A slot goes back to the sender only when its chunk was unpacked: the engine has
 * reported done, and then consumed() was called. Without CRPC_BULK_MANUAL the library does it. With
 * it, each arrived chunk of the message is given by crpc_bulk_chunks(), and the user calls
 * crpc_bulk_consumed(); -EBUSY while the engine has not reported done, because then the next chunk
 * would overwrite what is being read. A hostile peer can write a chunk's memory at any time.
 *
 * Ownership: buf of isend() may be read, and buf of irecv() read and written, from the call until
 * test() or test_burst() has given the request's end, whatever that is; not a byte is touched after
 * it. To keep this promise a request that is canceled, or that timed out, ends only when the peer
 * has confirmed that it stopped, the device has completed what it was given and the engine has
 * reported done; if the peer does not confirm, the connection is broken, which destroys its queue
 * pairs. (A hostile peer that received a key can use it as long as the region is registered: give
 * such a peer the eager path, see crpc_mrcache.h.)
 *
 * Rails. A connection has one or more endpoints; those of one index are a pair, and rail i lies on
 * port i % nports at each end. Each chunk goes to the rail on which it is expected to be done
 * first, by the rate measured there and what is under way.
 *
 * If a rail breaks the others take over: when both ends have destroyed its queue pair and reported
 * it, what was under way on it is sent again over the others; until then no request that it had
 * chunks of ends. The connection breaks with its last rail, or if the peer does not report within
 * confirm_ns (which must be longer than the device itself retries). After rail_retry_ns the rail is
 * connected again, by messages over the others; one that does not carry a chunk then is tried again
 * after twice the time, up to 64 times.
 *
 * TCP. For hosts without RDMA, rails can be TCP connections (crpc_bulk_port.tcp). Calls, windows,
 * statuses, and rails that break are the same. Only the eager path is there: where only others are
 * allowed, isend() and irecv() give -EOPNOTSUPP.
 *
 *     sender                                                   receiver
 *     -- DATA, then the chunk's bytes ------> the kernel's pages are mapped where it can,
 *                                             the rest is copied to bounce memory
 *                                             submit(list of fragments) -> engine -> buf
 *     <------------------- TAKEN n, CONSUMED
 *
 * The kernel maps pages (TCP_ZEROCOPY_RECEIVE) whose payload fills them: with a card that splits
 * headers from payload and a maximum segment size of whole pages. They are used for chunks of at
 * least 32 KiB that are neither converted nor given by crpc_bulk_chunks(), and by engines whose
 * attach is NULL. A page stays mapped, at most slots x chunk bytes per connection, until its place
 * is used again. bytes_zero_copy counts. The stream is not encrypted, and a peer is known by a
 * random key in its address only: use networks that you trust.
 *
 * Threads: a bulk object, its connections, contexts and engine belong to one thread (lcore). Time
 * comes in as nanoseconds of any monotonic clock. isend(), and irecv() or progress() when a message
 * that is written or read is matched, register memory that the cache does not have yet, which is a
 * system call; nothing else allocates or makes one but create, free, connect, and the end or the
 * return of a connection or rail that broke. Over TCP, progress() makes system calls on every rail:
 * one if nothing happens, else some for each message; none waits.
 *
 * Hostile peers: every control message is copied once and checked; what the protocol forbids (a
 * descriptor beyond the bounce memory, a piece that is taken, a chunk twice, an id that never was)
 * breaks the connection with -EPROTO, and the log says what was expected and found.
 *
 * A program with an EAL also has telemetry: /crpc/bulk/list, stats, connections, connection. The
 * handlers ask, and progress() answers.
 *
 * The bytes on the wire are in doc/protocol/bulk_wire.md.
 *
 * Sources: chunks, slots, bounce memory and the rule of consumed are those of GPUDirect-TCPX (the
 * public plugin for NCCL); the spraying by measured rate follows TENT of Mooncake.
 */

#include <stdbool.h>
#include <stdint.h>

#include "crpc_copyrpc.h"
#include "crpc_mrcache.h"
#include "crpc_unpack.h"

CRPC_BEGIN_DECLS

struct crpc_bulk;      /**< The object: contexts, connections, an engine. */
struct crpc_bulk_conn; /**< One connection to one peer. */

/** How a message moves; bits, for what is allowed. */
#define CRPC_BULK_EAGER 0x1u
#define CRPC_BULK_WRITE 0x2u
#define CRPC_BULK_READ  0x4u
/** isend: a CRC-32C of the message goes with it and is checked where it arrives. */
#define CRPC_BULK_CRC 0x10u
/** irecv: chunks are given by crpc_bulk_chunks() and consumed by the user. Implies EAGER. */
#define CRPC_BULK_MANUAL 0x20u
/** irecv: a shorter message than len is fine too. */
#define CRPC_BULK_UP_TO 0x40u
/** irecv: buf is not memory that the device can write. Implies EAGER. */
#define CRPC_BULK_UNREGISTERED 0x80u
/** irecv: convert on the way, enum crpc_unpack_op. Implies EAGER. len counts wire bytes, and buf
 *  has room for crpc_unpack_out_len(op, len). */
#define CRPC_BULK_CONVERT(op) ((uint32_t)(op) << 8)

/** One device with its context. */
struct crpc_bulk_port {
	/** With room for its rails in max_eps. Each takes five times ring_size, of which 16 KiB are
	 *  enough; beyond 4 rails 4 KiB keep all of them below 1 MiB. With several rails messages
	 *  are kept until the peer reports them, so its update_ns must be short (20 us, as the
	 *  default), or chunks wait for these reports. */
	struct crpc_copyrpc *ctx;
	struct crpc_rdma *dev;    /**< The device of ctx. */
	/** Of that device; NULL: one of its own. A shared one must outlive the bulk object. */
	struct crpc_mrcache *cache;
	/** Without ctx and dev, and then so of all ports: an IPv4 address of this host, as text,
	 *  that the peer reaches; the rails of this port are TCP connections. */
	char tcp[16];
};

/** How to make a bulk object. Zero fields take the default. */
struct crpc_bulk_conf {
	struct crpc_bulk_port port[CRPC_BULK_PORTS_MAX];
	uint32_t nports;    /**< Default 1. */
	uint32_t max_conns; /**< Default 16, at most CRPC_BULK_CONNS_MAX. */
	/** Sends, and receives, open per connection; default 16, at most CRPC_BULK_REQUESTS_MAX. */
	uint32_t requests;
	/**
	 * Bytes of a chunk; a power of two from CRPC_BULK_CHUNK_MIN to CRPC_BULK_CHUNK_MAX; default
	 * 512 KiB. Eager transfers use the smaller one of both ends.
	 */
	uint32_t chunk;
	/** Bounce slots per connection for what arrives: slots x chunk bytes; default 16, at most
	 *  CRPC_BULK_SLOTS_MAX. */
	uint32_t slots;
	/** Chunks of ours on their way, per connection; default 12, at most CRPC_BULK_SLOTS_MAX. */
	uint32_t tx_chunks;
	uint64_t rendezvous_min; /**< Default 256 KiB; UINT64_MAX: always eager. */
	uint64_t timeout_ns;     /**< Default 30 s; UINT64_MAX: never. */
	uint64_t confirm_ns; /**< Default 1 s: for the peer, or the engine, to stop. */
	/** How long a rail that broke is left alone; default 1 s; UINT64_MAX: for ever. */
	uint64_t rail_retry_ns;
	/** The engine for what arrives, of all connections, and used for nothing else; it must
	 *  outlive the bulk object. NULL: one of the cpu kind of its own. */
	struct crpc_unpack *engine;
	/** Read for the times of stages; NULL: they are those of the turns, as exact as these. */
	uint64_t (*clock_ns)(void);
	/** Caches of its own learn from the kernel what is unmapped, if it allows that; see
	 *  crpc_mrcache.h. */
	bool watch_memory;
	/** The contexts are used for other things too: progress() does not poll them, and the user
	 *  gives what concerns bulk to crpc_bulk_take_done() and crpc_bulk_take_req(). */
	bool shared;
};

/** How a request ended. */
struct crpc_bulk_result {
	uint64_t req;
	uint64_t cookie;
	uint64_t tag;
	uint64_t len;   /**< Bytes of the message, on the wire; 0 if it was never matched. */
	struct crpc_bulk_conn *conn;
	/**
	 * 0. -EMSGSIZE: the lengths differ. -EBADMSG: the checksum differs. -ECANCELED: by either
	 * end. -ETIMEDOUT: no progress for timeout_ns, or the peer did not confirm an end in time.
	 * -ECONNRESET: the connection broke or was shut down. -EPROTO: it broke for what the peer
	 * sent. -EOPNOTSUPP: no path that both allow, or a conversion that the engine lacks. -EIO
	 * and others: the engine's, or of registering memory (-ENOMEM, -ENOSPC) at the receiver.
	 */
	int32_t status;
	uint8_t path;   /**< CRPC_BULK_EAGER, WRITE or READ; 0: none was chosen. */
	bool recv;
	uint64_t posted_ns, matched_ns, first_ns, done_ns; /**< Entry to each state; 0: never. */
};

/** One chunk that has arrived, of a message received with CRPC_BULK_MANUAL. */
struct crpc_bulk_chunk {
	uint64_t token; /**< For crpc_bulk_consumed(). */
	uint64_t req;
	uint64_t off; /**< In the message. */
	uint32_t len;
	uint32_t index;
	uint32_t npieces;
	/** Where it lies in bounce memory, readable until consumed() or the request's end. */
	struct {
		const void *data;
		uint32_t len;
	} piece[CRPC_BULK_PIECES_MAX];
};

/** Times of one stage. */
struct crpc_bulk_stage {
	uint64_t n;
	uint64_t sum_ns;
	uint64_t max_ns;
};

/** Counters since create or crpc_bulk_stats_reset(). */
struct crpc_bulk_stats {
	uint64_t sends, recvs;     /**< Accepted. */
	uint64_t ended, failed;    /**< Ended; of these, not with 0. */
	uint64_t again;            /**< -EAGAIN: the pool was empty. */
	uint64_t chunks_sent, chunks_received;
	uint64_t bytes_sent, bytes_received; /**< Of chunks that are complete, each path. */
	uint64_t bytes_zero_copy; /**< TCP: arrived, and were mapped instead of copied. */
	uint64_t pieces;           /**< Pieces that eager chunks were cut into, at the sender. */
	uint64_t chunks_dropped;   /**< Arrived for a request that had ended. */
	uint64_t messages;         /**< Control messages sent. */
	uint64_t early_consumed;   /**< consumed() refused with -EBUSY. */
	uint64_t conn_errors;      /**< Connections that broke. */
	uint64_t rails_broken;     /**< Rails that broke without their connection. */
	uint64_t rails_back;       /**< Rails that came back. */
	uint64_t chunks_again;     /**< Chunks posted again after their rail broke. */
	uint64_t messages_again;   /**< Control messages sent again for that. */
	uint64_t rail_bytes[CRPC_BULK_RAILS_MAX];
	/**
	 * Why a turn that had chunks left to send stopped: the sender's window, the receiver's
	 * slots or bytes, the device's queue. What bounds a transfer is the largest one.
	 */
	uint64_t blocked_window, blocked_slots, blocked_queue;
	/** Chunks on their way, summed up when one more is posted; / chunks_sent: the mean. */
	uint64_t occupancy_sum;
	/** Per chunk: handing it to the device; from there to its completion (eager: to the
	 *  update that it was consumed); submit() to done(); done() to consumed(). */
	struct crpc_bulk_stage post, wire, unpack, consume;
};

/**
 * Make a bulk object.
 *
 * @param conf
 *   Copied.
 * @return
 *   The object, or NULL with errno: EINVAL (a size out of range; the log names it), ENOMEM.
 */
struct crpc_bulk *crpc_bulk_create(const struct crpc_bulk_conf *conf);

/** Free an object and its connections (crpc_bulk_conn_free()). NULL is allowed. */
void crpc_bulk_free(struct crpc_bulk *b);

/**
 * Make a connection: its endpoints, its pool, its bounce memory.
 *
 * @param b
 *   The object.
 * @param rails
 *   Endpoints, 1 to CRPC_BULK_RAILS_MAX; the same at both ends.
 * @param user_id
 *   Your number of the peer.
 * @return
 *   The connection, or NULL with errno: EINVAL, ENOSPC (max_conns, or of the contexts), ENOMEM,
 *   EIO (over TCP: no socket can listen on the port's address; the log says why).
 */
struct crpc_bulk_conn *crpc_bulk_conn_create(struct crpc_bulk *b, uint32_t rails, uint32_t user_id);

/**
 * Free a connection, in whatever state. Its queue pairs are destroyed and the engine's open jobs
 * are waited for first, then nothing touches the buffers of its requests, which get no end.
 * NULL is allowed.
 */
void crpc_bulk_conn_free(struct crpc_bulk_conn *conn);

/** The address that the peer needs, as bytes for the wire (little endian, versioned). */
void crpc_bulk_conn_addr(struct crpc_bulk_conn *conn, uint8_t addr[CRPC_BULK_ADDR_LEN]);

/**
 * Connect to a peer's connection, once. Both have to before the first isend(): a barrier.
 *
 * @param conn
 *   A fresh connection, or one after crpc_bulk_conn_reset().
 * @param peer
 *   What crpc_bulk_conn_addr() gave at the peer. Untrusted: checked before use; over TCP any
 *   host and port that it names is connected to, so take it from whom you trust in that.
 * @return
 *   0, -EPROTO (no address, another version, other rails, sizes out of range), -EISCONN, -EIO.
 */
int crpc_bulk_conn_connect(struct crpc_bulk_conn *conn, const uint8_t peer[CRPC_BULK_ADDR_LEN]);

/**
 * End a connection: its requests end with -ECONNRESET in the turns that follow. The peer notices by
 * its own queue pairs, or by peer_timeout_ns of its context.
 */
void crpc_bulk_conn_shutdown(struct crpc_bulk_conn *conn);

/**
 * Make a broken connection fit for a new one: exchange addresses and connect again.
 *
 * @return
 *   0. -EISCONN: it works. -EBUSY: its requests have not all ended and been given by test() yet.
 *   -ENOMEM, -ENOSPC, -EINVAL: as crpc_copyrpc_ep_reset(); it may be tried again.
 */
int crpc_bulk_conn_reset(struct crpc_bulk_conn *conn);

/**
 * Send a message.
 *
 * @param conn
 *   A connection.
 * @param now_ns
 *   The time.
 * @param tag
 *   Anything.
 * @param buf
 *   The message; must stay until the request has ended.
 * @param len
 *   Bytes, 0 to CRPC_BULK_LEN_MAX.
 * @param flags
 *   CRPC_BULK_EAGER, WRITE, READ: what is allowed; none of them: by rendezvous_min. And
 *   CRPC_BULK_CRC.
 * @param cookie
 *   Comes back in the result.
 * @param req
 *   Set on success: the request's handle.
 * @return
 *   0: it will end exactly once. -EAGAIN: the pool is empty, nothing was taken. -EINVAL, -EMSGSIZE.
 *   -EOPNOTSUPP: over TCP, EAGER is not allowed.
 *   -ENOTCONN: not connected yet; -ECONNRESET, -EPROTO, -ETIMEDOUT: why the connection broke. As
 *   crpc_mrcache_get() if buf cannot be registered.
 */
int crpc_bulk_isend(struct crpc_bulk_conn *conn, uint64_t now_ns, uint64_t tag, const void *buf,
		uint64_t len, uint32_t flags, uint64_t cookie, uint64_t *req);

/**
 * Receive a message.
 *
 * @param conn
 *   A connection.
 * @param now_ns
 *   The time.
 * @param tag
 *   That of the sender.
 * @param buf
 *   Filled; meaningful if the request ended with 0.
 * @param len
 *   The sender's, or with CRPC_BULK_UP_TO at least that.
 * @param flags
 *   CRPC_BULK_EAGER, WRITE, READ: what is allowed; none of them: all. And CRPC_BULK_MANUAL, UP_TO,
 *   UNREGISTERED, CONVERT().
 * @param cookie
 *   Comes back in the result.
 * @param req
 *   Set on success: the request's handle.
 * @return
 *   As crpc_bulk_isend(), and -EOPNOTSUPP: the engine can not convert. Memory is registered when
 *   the message is matched; failing then ends both requests.
 */
int crpc_bulk_irecv(struct crpc_bulk_conn *conn, uint64_t now_ns, uint64_t tag, void *buf,
		uint64_t len, uint32_t flags, uint64_t cookie, uint64_t *req);

/**
 * Ask about one request.
 *
 * @return
 *   0: it has ended, *result is set and its slot is free again. -EAGAIN: not yet. -ENOENT: no such
 *   request, or its end was given before.
 */
int crpc_bulk_test(struct crpc_bulk *b, uint64_t req, struct crpc_bulk_result *result);

/**
 * Take requests that have ended, in the order of their ends.
 *
 * @return
 *   How many; 0 is normal.
 */
uint16_t crpc_bulk_test_burst(struct crpc_bulk *b, struct crpc_bulk_result *result, uint16_t n);

/**
 * Give up a request. It ends with -ECANCELED, at the peer too if it was matched, when nothing
 * touches its buffer any more; or otherwise if its end was on the way.
 *
 * @return
 *   0, -ENOENT, -EALREADY (it is ending).
 */
int crpc_bulk_cancel(struct crpc_bulk *b, uint64_t now_ns, uint64_t req);

/**
 * Take chunks that have arrived for requests with CRPC_BULK_MANUAL. Each is given once.
 *
 * @return
 *   How many; 0 is normal.
 */
uint16_t crpc_bulk_chunks(struct crpc_bulk *b, struct crpc_bulk_chunk *chunk, uint16_t n);

/**
 * Return a chunk's slot to the sender.
 *
 * @return
 *   0. -EBUSY: the engine has not reported done; nothing happened, call it again. -ENOENT: not
 *   open: consumed before, or its request has ended.
 */
int crpc_bulk_consumed(struct crpc_bulk *b, uint64_t now_ns, uint64_t token);

/**
 * Drive everything: polls the contexts (unless conf.shared), matches, sends, unpacks, returns
 * slots, ends what is overdue.
 *
 * @return
 *   Requests that have ended and wait for test().
 */
uint32_t crpc_bulk_progress(struct crpc_bulk *b, uint64_t now_ns);

/**
 * conf.shared: take what is bulk's out of what crpc_copyrpc_poll() gave, of any of its contexts,
 * before a connection is freed.
 *
 * @return
 *   How many are left, at the front of done[].
 */
uint16_t crpc_bulk_take_done(
	struct crpc_bulk *b, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/**
 * conf.shared: take what is bulk's out of what crpc_copyrpc_recv() gave.
 *
 * @param b
 *   The object.
 * @param port
 *   Which of conf.port[] the context is.
 * @param now_ns
 *   The time.
 * @param req
 *   Requests, given before their connection is reset or freed, and soon: a rail that breaks and
 *   comes back in between, which takes rail_retry_ns, must not find old ones. Those of bulk's
 *   endpoints are ended by it.
 * @param n
 *   Their number.
 * @return
 *   How many are left, at the front of req[].
 */
uint16_t crpc_bulk_take_req(struct crpc_bulk *b, uint32_t port, uint64_t now_ns,
		struct crpc_req *req, uint16_t n);

/** Upper 16 bits of the cookies that bulk uses in its contexts; others' must differ. */
#define CRPC_BULK_COOKIE 0xb17cu
/** Upper 16 bits of the user_id of bulk's endpoints; others' must differ. */
#define CRPC_BULK_USER_ID 0xb17cu

/** The counters, live. */
const struct crpc_bulk_stats *crpc_bulk_stats(const struct crpc_bulk *b);

/** Zero the counters. */
void crpc_bulk_stats_reset(struct crpc_bulk *b);

/** Bytes of memory that the object and its connections have: bounce memory, and all else with the
 *  endpoints of the rails. What the contexts, caches, devices and the engine have is theirs. */
void crpc_bulk_memory(const struct crpc_bulk *b, uint64_t *bounce, uint64_t *other);

/** Requests of a connection that are free: sends and receives. */
void crpc_bulk_pool(const struct crpc_bulk_conn *conn, uint32_t *sends, uint32_t *recvs);

CRPC_END_DECLS

#endif
