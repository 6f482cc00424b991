/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_IPC_H
#define CRPC_IPC_H

/**
 * @file
 * RPC between processes over one shared-memory segment. Neither side needs EAL.
 *
 *     client thread (one object each)             server thread
 *                                                 s = crpc_ipc_server_create(&conf)
 *     c = crpc_ipc_client_connect(&conf)
 *     crpc_ipc_client_call(c, now, buf, len, resp_max, cookie)
 *            -- one line, written once -->        n = crpc_ipc_server_recv(s, now, req, 32)
 *                                                 crpc_ipc_server_reply(s, now, token, buf, len)
 *     n = crpc_ipc_client_poll(c, now, done, 32)
 *            <-- one line, written once --        crpc_ipc_server_reap(s)      every few ms
 *     crpc_ipc_client_close(c)                    crpc_ipc_server_free(s)
 *
 * A message of up to CRPC_IPC_SMALL bytes travels in one cache line with its header; call() and
 * reply() publish at once. The _burst forms do the same for many messages of one size, for less.
 *
 * Replies come in any order, now or later. Each call holds one of the client's `depth` places until
 * poll() has returned it; a place never serves two open calls, and a slow call does not hold the
 * others up.
 *
 * Time is an argument, the time of any clock that does not go back.
 *
 * Forms of a call: call() is asynchronous; call_sync() polls until its answer is there; notify() is
 * one-way: nothing completes, and its place comes back when the server has released it and the
 * client polls; call_timed() has a deadline of its own; call_ref() carries, beside its bytes, one
 * block of an arena that both sides joined (`arena` in both confs), of any size and not copied.
 *
 * Deadlines. A call that is not answered in `call_timeout_us` (the client's conf) or in its own
 * timeout completes with -ETIMEDOUT, once and for all; its place comes back when the late answer
 * arrives, because until then the server may still read it. So does a call that was canceled.
 * Deadlines are looked at every eighth of the shortest timeout: one may pass late by that, never
 * early. A call whose answer waits to be polled does not time out; so while polls return full
 * bursts a deadline may pass late by `depth` answers more.
 *
 * Ownership. Request bytes are the server's to read until reply, release or fail of their token,
 * also if the client leaves or dies. They change before that only if the client lies: a server that
 * must not see this copies them. Bytes of a completion stay until the next poll() of the same
 * client. buf is the caller's again on return of call and reply.
 *
 * A block belongs to one process at a time:
 *
 *     client: alloc, fill --call_ref()--> the call --recv()--> the request
 *     the request --end of it: freed; or server_take(): the server's; or reply_ref(): the answer
 *     the answer --poll()--> the completion --next poll(): freed; or client_take(): the client's
 *
 * So who ignores blocks leaks none. What a dead process held goes back to the arena by reap(). A
 * client that closes frees the blocks of calls that the server has not read; those of answers that
 * it has not polled are freed by the reap() that notices.
 *
 * Idle clients. recv() looks at the clients that call; one that has been quiet for a while is put
 * to sleep and rings a doorbell with its next call, so a thousand silent clients cost nothing. That
 * is invisible but for one rule: after notify() or call(), poll() or flush() now and then.
 *
 * Death. A client that died, or was killed, is found by reap() within
 * ceil(max_clients / CRPC_IPC_REAP_BURST) calls of it; its tokens go stale, and its place is free
 * again once the server has ended all its requests. A server that died is found by poll(): at the
 * latest after CRPC_IPC_CHECK_POLLS empty polls and `probe_ms`, each open call completes with
 * -ECONNRESET. Both ask a kernel lock that drops with its process, so a stopped process (SIGSTOP,
 * debugger) is slow but not dead, and containers need to share the directory only. After
 * -ECONNRESET close the client and connect again.
 *
 * Trust. All processes that may open the segment can write all of it. Whatever a client writes, the
 * server stays inside its slots, does a bounded amount of work, and drops a client that broke the
 * protocol (its calls end with -ECONNRESET, further ones fail with -EPROTO). The same holds for a
 * client and a lying server.
 *
 * Threads: a server object and a client object belong to one thread each. They may be the same
 * thread: a daemon may drive many clients on its own lcore (`server` in the client's conf shares
 * the mapping).
 *
 * Sources: one line per message is the idea of FastForward (Giacomoni et al., PPoPP 2008).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "crpc_config.h"
#include "crpc_rpc.h"

CRPC_BEGIN_DECLS

/** Bytes that travel in one cache line together with their header. */
#define CRPC_IPC_SMALL (CRPC_CACHE_LINE - 8)
/** Clients whose life one crpc_ipc_server_reap() asks the kernel about, at most. */
#define CRPC_IPC_REAP_BURST 16
/** Polls between two looks at the server's state. */
#define CRPC_IPC_CHECK_POLLS 256

struct crpc_arena_cache;
struct crpc_shm_allow;

/** A block of an arena, as it came with a request or a completion. */
struct crpc_ipc_block {
	uint64_t ref;  /**< Names it to the arena and to the other side; 0: none. */
	void *data;    /**< Where this process has it. */
	uint64_t size; /**< Its bytes. */
};

/* ---- server ---- */

/** What crpc_ipc_server_create() makes. Zero it, then set what is wanted. */
struct crpc_ipc_server_conf {
	const char *name;     /**< Of the segment: 1 to 47 of [A-Za-z0-9._-]. */
	const char *dir;      /**< NULL: /dev/shm, or with `huge` the first hugetlbfs mount. */
	uint32_t max_clients; /**< 1 to CRPC_IPC_CLIENTS_MAX; 0: 64. */
	uint32_t depth;       /**< Open calls per client, 1 to CRPC_IPC_DEPTH_MAX; 0: 32. */
	uint32_t req_max;     /**< Bytes of a request, to CRPC_IPC_MSG_MAX; 0: CRPC_IPC_SMALL. */
	uint32_t resp_max;    /**< Bytes of a response, likewise. */
	mode_t mode;          /**< Who may connect; 0: 0600, the same user. Not with memfd. */
	gid_t gid;            /**< The segment's group; 0 or (gid_t)-1: the process's. */
	/**
	 * On hugepages, if this thread's node has enough of them free. The segment is a memfd then,
	 * as that needs no mount and no privilege; its list says what the mode does. Not for a mode
	 * that lets everyone connect.
	 */
	bool huge;
	/**
	 * Memory without a name, which no process can truncate. Clients get it over a Unix socket
	 * in dir, which reap() answers, if the kernel says that they are whom `allow` lists.
	 */
	bool memfd;
	/** memfd: who may connect beside the same user and root. Otherwise NULL: the mode says. */
	const struct crpc_shm_allow *allow;
	/** The server thread's membership of the arena of the blocks; NULL: calls carry none. */
	struct crpc_arena_cache *arena;
	/** Bytes of blocks in one client's open requests; a call beyond fails, -ENOBUFS. 0: any. */
	uint64_t client_block_bytes;
};

/** Counters since create. */
struct crpc_ipc_server_stats {
	struct crpc_rpc_counts rpc; /**< requests, replies, malformed; the others are 0. */
	uint64_t recvs;             /**< crpc_ipc_server_recv() calls. */
	uint64_t stale;      /**< Tokens refused: unknown, used before, or of a client that died. */
	uint64_t reaps;      /**< crpc_ipc_server_reap() calls. */
	uint64_t connects;   /**< Clients admitted. */
	uint64_t closes;     /**< Clients that closed. */
	uint64_t deaths;     /**< Clients that died connected. */
	uint64_t lost_calls; /**< Open requests of clients that died or closed. */
	uint64_t sleeps;     /**< Times a quiet client was put to sleep. */
	uint64_t wakes;      /**< Times one rang. */
	uint64_t blocks;     /**< Blocks received. */
	uint64_t bad_blocks; /**< Blocks refused: not the client's, or too many bytes. */
	uint32_t clients;    /**< Clients now. */
	uint32_t awake;      /**< Clients that recv() looks at now. */
	uint32_t open;       /**< Requests that wait for a reply now. */
};

struct crpc_ipc_server;

/* Flags of a token, beside its client. */
#define CRPC_IPC_TOKEN_ONEWAY (UINT64_C(1) << 10)
#define CRPC_IPC_TOKEN_BLOCK  (UINT64_C(1) << 11)

/**
 * Create the segment and serve it. A dead server's leftover of the same name is replaced.
 *
 * @return
 *   The server, or NULL with errno: EINVAL (a size is out of range), EADDRINUSE (a living server
 *   has that name), ENOSPC, ENOMEM, or another of crpc_shm_create(); the cause is in
 *   crpc_log_last().
 */
struct crpc_ipc_server *crpc_ipc_server_create(const struct crpc_ipc_server_conf *conf);

/** End it: clients' open calls complete with -ECONNRESET. The segment is removed. NULL is fine. */
void crpc_ipc_server_free(struct crpc_ipc_server *s);

/**
 * Take up to @p n requests, round robin over the clients, in order of call for each.
 *
 * Never blocks; looks at each client at most once.
 *
 * @param s
 *   The server.
 * @param now_ns
 *   Time of a clock that does not go back, the same in all calls for this server.
 * @param req
 *   Filled from the front. `peer` is the client's id, below max_clients and reused after a client
 *   left.
 * @param n
 *   Room in it; at most CRPC_BURST_MAX are given out.
 * @return
 *   How many.
 */
uint16_t crpc_ipc_server_recv(
	struct crpc_ipc_server *s, uint64_t now_ns, struct crpc_req *req, uint16_t n);

/**
 * Answer a request, now or later and in any order.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param token
 *   Of the request. It is used up if the return value is 0.
 * @param buf
 *   The answer; may lie in the request.
 * @param len
 *   Its bytes, 0 to what the call allows.
 * @return
 *   0, or
 *   -EMSGSIZE: longer than the call's resp_max; nothing was sent and the request is still open:
 *   end it otherwise, say by crpc_ipc_server_fail().
 *   -ECONNRESET: the client died, closed, or was dropped. The request ends, the token is used up.
 *   -ENOENT: no such open request: the token is used up, or never was one.
 *   -EOPNOTSUPP: the request is one-way and stays open, though its client may have gone: release
 *   it.
 */
int crpc_ipc_server_reply(
	struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len);

/**
 * Answer many requests with answers of one size: reply() of each, for less.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param req
 *   The requests, as recv() gave them or any others.
 * @param msgs
 *   The answers, side by side; may not lie in the requests.
 * @param len
 *   Bytes of each, 0 to what its call allows.
 * @param n
 *   Their number.
 * @return
 *   How many were answered, from the first on; a short count ends at one that reply() refuses.
 */
uint16_t crpc_ipc_server_reply_burst(struct crpc_ipc_server *s, uint64_t now_ns,
	const struct crpc_req *req, const void *msgs, uint32_t len, uint16_t n);

/** True for a request of notify(): release() is its only end. */
static inline bool
crpc_ipc_token_oneway(uint64_t token)
{
	return (token & CRPC_IPC_TOKEN_ONEWAY) != 0;
}

/** True for a request that came with a block. */
static inline bool
crpc_ipc_token_block(uint64_t token)
{
	return (token & CRPC_IPC_TOKEN_BLOCK) != 0;
}

/**
 * The block that came with a request. It is freed when the request ends.
 *
 * @return
 *   0 with *block set, -ENODATA: it has none (any more), or -ENOENT: no such open request.
 */
int crpc_ipc_server_block(
		const struct crpc_ipc_server *s, uint64_t token, struct crpc_ipc_block *block);

/**
 * Take the block out of a request: the caller's from now on, to keep, free or send.
 *
 * @return
 *   As crpc_ipc_server_block().
 */
int crpc_ipc_server_take(struct crpc_ipc_server *s, uint64_t token, struct crpc_ipc_block *block);

/**
 * Answer with a block beside the bytes.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param token
 *   Of the request.
 * @param ref
 *   A block of the caller, or the one that came with the request. The client's, if the return value
 *   is 0.
 * @param buf, len
 *   Bytes beside it, 0 to what the call allows, and 8 less than the server's resp_max.
 * @return
 *   As crpc_ipc_server_reply(), or -ENOTSUP (no arena), -EINVAL (not a block of the caller). On
 *   any error the block stays the caller's.
 */
int crpc_ipc_server_reply_ref(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token,
	uint64_t ref, const void *buf, uint32_t len);

/**
 * End a request without an answer: a call completes with status 0 and no bytes.
 *
 * @return
 *   0, -ECONNRESET or -ENOENT, as crpc_ipc_server_reply().
 */
int crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token);

/**
 * Fail a request: its call completes with @p status.
 *
 * @param s, now_ns
 *   As crpc_ipc_server_recv().
 * @param token
 *   Of the request.
 * @param status
 *   -1 to -4095, an errno.
 * @return
 *   As crpc_ipc_server_reply(), or -EINVAL for another status: the request is still open.
 */
int crpc_ipc_server_fail(
	struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, int32_t status);

/**
 * Look after the clients' lives; call it every few milliseconds from the server's loop.
 *
 * Makes up to CRPC_IPC_REAP_BURST system calls of below a microsecond each; with an arena, after a
 * death and once in 1,024 reaps, it looks at up to 64 places or units of that too, until what the
 * dead held is back. Admits who connected, takes back the places of those who closed or died, and
 * beats the heart that tools watch.
 *
 * @return
 *   How many places came back since the previous reap().
 */
uint32_t crpc_ipc_server_reap(struct crpc_ipc_server *s);

/**
 * Let no other client find the segment; those that have it stay. Between two turns of the server's
 * thread, if another one calls it.
 */
void crpc_ipc_server_hide(struct crpc_ipc_server *s);

/** The counters. */
void crpc_ipc_server_stats(const struct crpc_ipc_server *s, struct crpc_ipc_server_stats *stats);

/** Requests received from the client with this id since it connected; 0: there is none. */
uint64_t crpc_ipc_server_requests(const struct crpc_ipc_server *s, uint32_t peer);

/* ---- client ---- */

/** Whom crpc_ipc_client_connect() connects to. Zero it, then set what is wanted. */
struct crpc_ipc_client_conf {
	const char *name;    /**< The server's. */
	const char *dir;     /**< The server's; NULL: /dev/shm, then the mounted hugetlbfs. */
	uint32_t timeout_ms; /**< Wait so long for the server to come up or a place to be free. */
	uint32_t probe_ms;   /**< Between two questions to the kernel for the server; 0: 10. */
	uint64_t call_timeout_us; /**< Deadline of each call; 0: none. */
	/** This thread's membership of the server's arena; NULL: calls carry no blocks. */
	struct crpc_arena_cache *arena;
	/** A server of this process, which saves a second mapping; NULL: attach by name. */
	const struct crpc_ipc_server *server;
};

/** Counters since connect. */
struct crpc_ipc_client_stats {
	struct crpc_rpc_counts rpc; /**< requests and replies are 0. */
	uint64_t failed;            /**< Completions with a status other than 0. */
	uint64_t rings;             /**< Times it woke the server's interest in it. */
	uint64_t probes;            /**< Questions to the kernel. */
};

struct crpc_ipc_client;

/**
 * Connect to a server.
 *
 * @return
 *   The client, or NULL with errno: EINVAL, ENOENT (no server of that name), ECONNREFUSED (its
 *   segment is a leftover), EACCES (the segment's mode or the server's list), EUSERS (all
 *   max_clients places are taken), EPROTO (another version or layout: both are said), ETIMEDOUT (a
 *   memfd's server lives and does not reap), ENOMEM. The cause is in crpc_log_last().
 *   ENOENT, ECONNREFUSED and EUSERS come after timeout_ms; the thread sleeps meanwhile.
 */
struct crpc_ipc_client *crpc_ipc_client_connect(const struct crpc_ipc_client_conf *conf);

/** Disconnect. Open calls are forgotten. NULL is fine. */
void crpc_ipc_client_close(struct crpc_ipc_client *c);

/**
 * Send one request.
 *
 * @param c
 *   The client.
 * @param now_ns
 *   Time of a clock that does not go back, the same in all calls for this client.
 * @param buf
 *   The request; the caller's again on return.
 * @param len
 *   Its bytes, 0 to req_max.
 * @param resp_max
 *   Bytes of the longest answer that the caller takes, 0 to the server's resp_max; of those beside
 *   a block. Best the same in successive calls: another one is stored where the server reads it.
 * @param cookie
 *   Comes back with the completion.
 * @return
 *   0: it completes exactly once, through poll().
 *   -EAGAIN: `depth` calls are open; nothing was taken. Poll, then call again.
 *   -EMSGSIZE: longer than req_max, or resp_max is above the server's.
 *   -ECONNRESET: the server died or closed. Final for this object.
 *   -EPROTO: server and client disagree on the protocol. Final for this object.
 */
int crpc_ipc_client_call(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie);

/**
 * Send many requests of one size: call() of each, for less.
 *
 * @param c, now_ns, resp_max
 *   As crpc_ipc_client_call().
 * @param msgs
 *   The requests, side by side.
 * @param len
 *   Bytes of each, 0 to req_max.
 * @param cookies
 *   One for each.
 * @param n
 *   Their number.
 * @return
 *   How many were taken, from the first on: fewer than n is back-pressure. 0 also where call()
 *   would return another error.
 */
uint16_t crpc_ipc_client_call_burst(struct crpc_ipc_client *c, uint64_t now_ns, const void *msgs,
	uint32_t len, uint32_t resp_max, const uint64_t *cookies, uint16_t n);

/**
 * Send one request with a deadline of its own.
 *
 * @param c, now_ns, buf, len, resp_max, cookie
 *   As crpc_ipc_client_call().
 * @param timeout_us
 *   From now, in place of the client's call_timeout_us; 0: none. One beyond the range of the clock
 *   never comes.
 * @return
 *   As crpc_ipc_client_call().
 */
int crpc_ipc_client_call_timed(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie, uint64_t timeout_us);

/**
 * Send one message that wants no answer: the server releases it, nothing completes.
 *
 * @return
 *   As crpc_ipc_client_call(). 0 says that it was published, not that it will be read: a server
 *   that dies before loses it. One that is published before close() is still read.
 */
int crpc_ipc_client_notify(
	struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len);

/**
 * Send one request with a block beside its bytes.
 *
 * @param c, now_ns, resp_max
 *   As crpc_ipc_client_call().
 * @param ref
 *   A block of the caller. The call's, if the return value is 0: the server frees it, keeps it, or
 *   sends it with its answer.
 * @param buf, len
 *   Bytes beside it, 0 to req_max - 8.
 * @param cookie
 *   Comes back with the completion, whose status may be -EFAULT (not a block that the client owns)
 *   or -ENOBUFS (too many bytes of blocks in its open requests, or the server's membership is at
 *   its limit) beside those of any other.
 * @return
 *   As crpc_ipc_client_call(), or -ENOTSUP (no arena), or -EINVAL (not a block of the caller). On
 *   any error the block stays the caller's.
 */
int crpc_ipc_client_call_ref(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t ref,
	const void *buf, uint32_t len, uint32_t resp_max, uint64_t cookie);

/**
 * Send one request and poll until it is answered. Spins, then yields the core at every empty poll.
 *
 * @param c
 *   The client, with no calls open.
 * @param now_ns
 *   The time. While it waits, it adds what has passed since by CLOCK_MONOTONIC.
 * @param buf, len
 *   The request.
 * @param resp
 *   Takes the answer; may be buf.
 * @param cap
 *   Room in it.
 * @param timeout_us
 *   0: the client's call_timeout_us; with that 0 too it waits as long as the server lives.
 * @return
 *   Bytes of the answer, or the status of the completion (-ETIMEDOUT, -ECONNRESET, ...), or an
 *   error of crpc_ipc_client_call(), or -EBUSY (calls are open), or -EMSGSIZE also where the answer
 *   is longer than cap.
 */
int crpc_ipc_client_call_sync(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf,
	uint32_t len, void *resp, uint32_t cap, uint64_t timeout_us);

/**
 * Take up to @p n completions, in order of reply; but a call that was made while no other was open
 * may come before others.
 *
 * Gives the bytes of the previous poll's completions back. Never blocks. It looks at the server
 * once in CRPC_IPC_CHECK_POLLS polls, and once in probe_ms makes a system call of below a
 * microsecond for that.
 *
 * @param c, now_ns
 *   As crpc_ipc_client_call().
 * @param done
 *   Filled from the front. Status: 0, -ETIMEDOUT (the deadline passed; the request may be served
 *   yet), -ECANCELED (likewise), -ECONNRESET (the server died, closed, or broke the protocol, or
 *   dropped this client: the request may have been served or not), -EDQUOT (the answer came with a
 *   block that `arena`'s limit has no room for; it is freed), or what the server gave
 *   crpc_ipc_server_fail().
 * @param n
 *   Room in it; at most CRPC_BURST_MAX are given out.
 * @return
 *   How many.
 */
uint16_t crpc_ipc_client_poll(
	struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint16_t n);

/**
 * Complete the open calls of a cookie with -ECANCELED, in the next polls. The server is not
 * notified: it serves the request, and its answer gives the place back.
 *
 * @param c
 *   The client.
 * @param now_ns
 *   The time.
 * @param cookie
 *   As given to call().
 * @return
 *   Their number.
 */
uint32_t crpc_ipc_client_cancel(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t cookie);

/**
 * The block that came with a completion of the last poll(). It is freed by the next.
 *
 * @return
 *   0 with *block set, or -ENODATA: it has none (any more).
 */
int crpc_ipc_client_block(const struct crpc_ipc_client *c, const struct crpc_done *done,
		struct crpc_ipc_block *block);

/** Take it: the caller's from now on. As crpc_ipc_client_block(). */
int crpc_ipc_client_take(struct crpc_ipc_client *c, const struct crpc_done *done,
		struct crpc_ipc_block *block);

/** Make sure that a server that sleeps on this client is rung: for who calls and does not poll. */
void crpc_ipc_client_flush(struct crpc_ipc_client *c, uint64_t now_ns);

/** 0 while connected, else the final error that call() gives. */
int crpc_ipc_client_status(const struct crpc_ipc_client *c);

/** Calls that may be open at a time. */
uint32_t crpc_ipc_client_depth(const struct crpc_ipc_client *c);

/** Calls that are open, without one-way messages and calls that timed out. */
uint32_t crpc_ipc_client_open(const struct crpc_ipc_client *c);

/** Bytes of a response at most. */
uint32_t crpc_ipc_client_resp_max(const struct crpc_ipc_client *c);

/**
 * The user whose server it is, as the kernel says. Anybody can take a name that is free: a client
 * of which other users are no business checks this before its first call.
 */
uid_t crpc_ipc_client_owner_uid(const struct crpc_ipc_client *c);

/** The counters. */
void crpc_ipc_client_stats(const struct crpc_ipc_client *c, struct crpc_ipc_client_stats *stats);

CRPC_END_DECLS

#endif
