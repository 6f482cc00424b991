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
 *     crpc_ipc_client_call(c, buf, len, cookie)
 *            -- one line, written once -->        n = crpc_ipc_server_recv(s, req, 32)
 *                                                 crpc_ipc_server_reply(s, req[i].token, buf, len)
 *     n = crpc_ipc_client_poll(c, done, 32)
 *            <-- one line, written once --        crpc_ipc_server_reap(s)      every few ms
 *     crpc_ipc_client_close(c)                    crpc_ipc_server_free(s)
 *
 * A message of up to CRPC_IPC_SMALL bytes travels in one cache line with its header; call() and
 * reply() publish at once, so flush() has nothing to do and is there for the common vocabulary.
 *
 * Replies come in any order, now or later. Each call holds one of the client's `depth` places until
 * poll() has returned it; a place never serves two open calls, and a slow call does not hold the
 * others up.
 *
 * Ownership. Request bytes are the server's to read until reply, release or fail of their token.
 * They change before that only if the client lies, or if it went and another took its place: who
 * keeps a request beyond the next recv() and must not see it change copies it. Bytes of a
 * completion stay until the next poll() of the same client. buf is the caller's again on return of
 * call and reply.
 *
 * Death. A client that died, or was killed, is found by reap() within
 * ceil(max_clients / CRPC_IPC_REAP_BURST) calls of it; its tokens go stale and its place is free
 * again. A server that died is found by poll(): at the latest after CRPC_IPC_CHECK_POLLS empty
 * polls and `probe_ms`, each open call completes with -ECONNRESET. Both ask a kernel lock that
 * drops with its process, so a stopped process (SIGSTOP, debugger) is slow but not dead, and
 * containers need to share the directory only. After -ECONNRESET close the client and connect anew.
 *
 * Trust. All processes that may open the segment can write all of it. Whatever a client writes, the
 * server stays inside its slots, does a bounded amount of work, and drops a client that broke the
 * protocol (its calls end with -EPROTO). The same holds for a client and a lying server.
 *
 * Threads: a server object and a client object belong to one thread each. They may be the same
 * thread: a daemon may drive many clients on its own lcore (`server` in the client's conf shares
 * the mapping).
 *
 * Sources: one line per message is the idea of FastForward (Giacomoni et al., PPoPP 2008).
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "crpc_config.h"
#include "crpc_rpc.h"

/** Bytes that travel in one cache line together with their header. */
#define CRPC_IPC_SMALL (CRPC_CACHE_LINE - 8)
/** Clients whose life one crpc_ipc_server_reap() asks the kernel about, at most. */
#define CRPC_IPC_REAP_BURST 16
/** Empty polls between two looks at the clock and the server's state. */
#define CRPC_IPC_CHECK_POLLS 256

/* ---- server ---- */

/** What crpc_ipc_server_create() makes. Zero it, then set what is wanted. */
struct crpc_ipc_server_conf {
	const char *name;     /**< Of the segment: 1 to 47 of [A-Za-z0-9._-]. */
	const char *dir;      /**< NULL: /dev/shm, or with `huge` the first hugetlbfs mount. */
	uint32_t max_clients; /**< 1 to CRPC_IPC_CLIENTS_MAX; 0: 64. */
	uint32_t depth;       /**< Open calls per client, 1 to CRPC_IPC_DEPTH_MAX; 0: 32. */
	uint32_t req_max;     /**< Bytes of a request, to CRPC_IPC_MSG_MAX; 0: CRPC_IPC_SMALL. */
	uint32_t resp_max;    /**< Bytes of a response, likewise. */
	mode_t mode;          /**< Who may connect; 0: 0600, the same user. */
	bool huge;            /**< Huge pages. */
	bool numa_bind;       /**< Memory of numa_node alone. */
	uint32_t numa_node;   /**< Ignored on a machine of one node. */
};

/** Counters since create. */
struct crpc_ipc_server_stats {
	uint64_t recvs;      /**< crpc_ipc_server_recv() calls. */
	uint64_t requests;   /**< Requests received. */
	uint64_t replies;    /**< Requests ended by reply, release or fail. */
	uint64_t stale;      /**< Tokens refused: unknown, used before, or of a client that died. */
	uint64_t reaps;      /**< crpc_ipc_server_reap() calls. */
	uint64_t connects;   /**< Clients admitted. */
	uint64_t closes;     /**< Clients that closed. */
	uint64_t deaths;     /**< Clients that died connected. */
	uint64_t lost_calls; /**< Open requests of clients that died or closed. */
	uint64_t kicks;      /**< Clients dropped because they broke the protocol. */
	uint32_t clients;    /**< Clients now. */
	uint32_t open;       /**< Requests that wait for a reply now. */
};

struct crpc_ipc_server;

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
 * @param req
 *   Filled from the front. `peer` is the client's id, below max_clients and reused after a client
 *   left.
 * @param n
 *   Room in it.
 * @return
 *   How many.
 */
uint16_t crpc_ipc_server_recv(struct crpc_ipc_server *s, struct crpc_req *req, uint16_t n);

/**
 * Answer a request, now or later and in any order.
 *
 * @param s
 *   The server.
 * @param token
 *   Of the request. It is used up if the return value is 0.
 * @param buf
 *   The answer; may lie in the request.
 * @param len
 *   Its bytes, 0 to resp_max.
 * @return
 *   0, or
 *   -EMSGSIZE: longer than resp_max; nothing was sent and the request is still open.
 *   -ECONNRESET: the client died, closed, or was dropped. The token is used up.
 *   -ENOENT: no such open request: the token is used up, or never was one.
 */
int crpc_ipc_server_reply(struct crpc_ipc_server *s, uint64_t token, const void *buf, uint32_t len);

/**
 * End a request that wants no answer: its call completes with status 0 and no bytes.
 *
 * @return
 *   As crpc_ipc_server_reply().
 */
int crpc_ipc_server_release(struct crpc_ipc_server *s, uint64_t token);

/**
 * Fail a request: its call completes with @p status.
 *
 * @param s
 *   The server.
 * @param token
 *   Of the request.
 * @param status
 *   -1 to -4095, an errno.
 * @return
 *   As crpc_ipc_server_reply(), or -EINVAL for another status: the request is still open.
 */
int crpc_ipc_server_fail(struct crpc_ipc_server *s, uint64_t token, int32_t status);

/** Nothing: reply() publishes at once. */
void crpc_ipc_server_flush(struct crpc_ipc_server *s);

/**
 * Look after the clients' lives; call it every few milliseconds from the server's loop.
 *
 * Makes up to CRPC_IPC_REAP_BURST system calls of below a microsecond each. Admits who connected,
 * takes back the places of those who closed or died, and beats the heart that tools watch.
 *
 * @return
 *   How many places came back since the previous reap().
 */
uint32_t crpc_ipc_server_reap(struct crpc_ipc_server *s);

/** The counters. */
void crpc_ipc_server_stats(const struct crpc_ipc_server *s, struct crpc_ipc_server_stats *stats);

/** Write the server, its counters and its clients as text. */
void crpc_ipc_server_dump(const struct crpc_ipc_server *s, FILE *out);

/** Path of the segment. */
const char *crpc_ipc_server_path(const struct crpc_ipc_server *s);

/* ---- client ---- */

/** Whom crpc_ipc_client_connect() connects to. Zero it, then set what is wanted. */
struct crpc_ipc_client_conf {
	const char *name;    /**< The server's. */
	const char *dir;     /**< The server's; NULL: /dev/shm, then the mounted hugetlbfs. */
	uint32_t timeout_ms; /**< Wait so long for the server to come up or a place to be free. */
	uint32_t probe_ms;   /**< Between two questions to the kernel for the server; 0: 10. */
	/** A server of this process, which saves a second mapping; NULL: attach by name. */
	const struct crpc_ipc_server *server;
};

/** Counters since connect. */
struct crpc_ipc_client_stats {
	uint64_t calls;     /**< Accepted. */
	uint64_t completed; /**< With whatever status. */
	uint64_t failed;    /**< Of those, with a status other than 0. */
	uint64_t again;     /**< Refused with -EAGAIN. */
	uint64_t polls;     /**< Empty polls, counted by CRPC_IPC_CHECK_POLLS. */
	uint64_t probes;    /**< Questions to the kernel. */
	uint64_t beats;     /**< The server's heartbeat when last looked at: its reap() calls. */
};

struct crpc_ipc_client;

/**
 * Connect to a server.
 *
 * @return
 *   The client, or NULL with errno: EINVAL, ENOENT (no server of that name), ECONNREFUSED (its
 *   segment is a leftover), EACCES (the segment's mode), EUSERS (all max_clients places are taken),
 *   EPROTO (another version or layout: both are said), ENOMEM. The cause is in crpc_log_last().
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
 * @param buf
 *   The request; the caller's again on return.
 * @param len
 *   Its bytes, 0 to req_max.
 * @param cookie
 *   Comes back with the completion.
 * @return
 *   0: it completes exactly once, through poll().
 *   -EAGAIN: `depth` calls are open; nothing was taken. Poll, then call again.
 *   -EMSGSIZE: longer than req_max.
 *   -ECONNRESET: the server died or closed. Final for this object.
 *   -EPROTO: server and client disagree on the protocol. Final for this object.
 */
int crpc_ipc_client_call(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie);

/**
 * Take up to @p n completions, in order of reply.
 *
 * Gives the bytes of the previous poll's completions back. Never blocks. Once in
 * CRPC_IPC_CHECK_POLLS empty polls it looks at the clock, and once in probe_ms it makes a
 * system call of below a microsecond.
 *
 * @param c
 *   The client.
 * @param done
 *   Filled from the front. Status: 0, -ECONNRESET (the server died or closed: the request may have
 *   been served or not), -EPROTO (as call()), or what the server gave crpc_ipc_server_fail().
 * @param n
 *   Room in it.
 * @return
 *   How many.
 */
uint16_t crpc_ipc_client_poll(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n);

/** Nothing: call() publishes at once. */
void crpc_ipc_client_flush(struct crpc_ipc_client *c);

/** 0 while connected, else the final error that call() gives. */
int crpc_ipc_client_status(const struct crpc_ipc_client *c);

/** Calls that may be open at a time. */
uint32_t crpc_ipc_client_depth(const struct crpc_ipc_client *c);

/** Calls that are open. */
uint32_t crpc_ipc_client_open(const struct crpc_ipc_client *c);

/** Bytes of a request at most. */
uint32_t crpc_ipc_client_req_max(const struct crpc_ipc_client *c);

/** Bytes of a response at most. */
uint32_t crpc_ipc_client_resp_max(const struct crpc_ipc_client *c);

/** The id under which the server knows it: `peer` of its requests. */
uint32_t crpc_ipc_client_id(const struct crpc_ipc_client *c);

/** The counters. */
void crpc_ipc_client_stats(const struct crpc_ipc_client *c, struct crpc_ipc_client_stats *stats);

#endif
