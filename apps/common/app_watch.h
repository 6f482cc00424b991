/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_WATCH_H
#define APP_WATCH_H

/**
 * @file
 * Which of the other processes of a run have died, whatever they do with each other.
 *
 *     the same host       a pidfd, which the kernel makes readable when the process ends
 *     another host        a TCP connection to it, which its kernel breaks when the process ends; if
 *                         the host itself or the way to it has gone, what we send every
 *                         APP_WATCH_BEACON_MS stays unanswered for APP_WATCH_HOST_MS
 *
 * In every case a kernel answers, not the process: one that only was not given a core for a while
 * is not taken for dead, and one that is dead is found at the next look.
 *
 *     w = app_watch_create(peers)
 *     w->card                               exchanged by the application; then
 *     app_watch_add(w, peer, &their_card)   for each other process
 *     app_watch_look(w, now)                every millisecond or so
 *     w->peer[peer].gone
 *
 * "The same host" is the same kernel, pid namespace and network namespace. A connection is made by
 * the loopback device where both have the same one, else to an address that is not one of our own
 * host's: two hosts may both have the address of a bridge for containers. app_link.h connects so,
 * too.
 *
 * Threads: one, and no thread of its own. app_watch_look() makes a system call every APP_WATCH_MS.
 */

#include <stdbool.h>
#include <stdint.h>

#define APP_WATCH_MS        10
#define APP_WATCH_BEACON_MS 200
#define APP_WATCH_HOST_MS   1000
/** Addresses of a host that are published. */
#define APP_WATCH_ADDRS 8

/** What a process publishes about itself. */
struct app_watch_card {
	uint8_t boot_id[40];     /**< Of the kernel. */
	uint64_t pid_ns, net_ns; /**< Inodes of its namespaces. */
	int32_t pid;
	uint16_t port; /**< Of its listener, in network order; 0: it has none. */
	uint16_t addrs;
	uint32_t addr[APP_WATCH_ADDRS]; /**< IPv4, in network order. */
};

/**
 * Take connections of others.
 *
 * @param card
 *   Zeroed; filled with what they must know of us.
 * @return
 *   The listener, which the caller closes; -errno: there is none, and none can connect.
 */
int app_watch_listen(struct app_watch_card *card, uint32_t callers);

/**
 * Connect to whoever published a card.
 *
 * @param mine
 *   Our own card.
 * @return
 *   The connection, which does not block; -1: none of its addresses answers.
 */
int app_watch_connect(const struct app_watch_card *mine, const struct app_watch_card *card);

/** A process that is watched. */
struct app_watch_peer {
	bool tcp;
	bool gone; /**< It has died. */
};

/** All of them: one place in the poll set for each, its pidfd, our connection to it, or -1. */
struct app_watch {
	uint32_t peers;
	uint32_t callers; /**< Connections of others to us. */
	int listener;
	uint64_t look_ns, beacon_ns; /**< When to do it next. */
	struct app_watch_card card;  /**< What the others must know of us. */
	struct app_watch_peer *peer;
	struct pollfd *fd;
	int *caller;
};

/** Make one for this many processes, ourselves included. @return NULL: ENOMEM. */
struct app_watch *app_watch_create(uint32_t peers);

/** NULL is allowed. */
void app_watch_free(struct app_watch *w);

/**
 * Watch a process from now on.
 *
 * @return
 *   0; -EHOSTUNREACH: it is on another host, and none of its addresses takes our connection;
 *   -ESRCH: it has ended already; or another -errno. Then it is not watched.
 */
int app_watch_add(struct app_watch *w, uint32_t peer, const struct app_watch_card *card);

/** Look after all of them, if it is time. */
void app_watch_look(struct app_watch *w, uint64_t now_ns);

#endif
