/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_SIM_H
#define SIM_SIM_H

/**
 * @file
 * A cluster in virtual time.
 *
 *     world   hosts, their fabric (drivers/paper_nic), and a heap of who is next
 *     host    a server of lib/kv_server with one daemon, a load of apps/common, and the shared
 *             memory between them, a front of the daemon and the link of the load:
 *
 *         clients (each on a core of its own)          daemon (one core)
 *         app_load_turn()  -- call, at + hop -->       crpc_kv_daemon_turn()  <--> other hosts
 *                          <-- answer, at + hop --
 *
 * With backend delegation all clients of a host write to one line, one after the other. With direct
 * and erpc a client is an actor by itself, whose turns cost what they did, and asks all daemons by
 * its card.
 *
 * Two actors of each host take turns: the daemon, whose turn costs what it did, and its clients,
 * who have a turn when an answer has come. The actor whose time is earliest is next; of several the
 * seed decides. A daemon that finds nothing polls on: its next turn begins at the first multiple of
 * an empty turn after something has come, and at most SIM_IDLE_NS later, as copyrpc has timers.
 * With --colocate the clients have a turn at the end of each of the daemon's, on its core.
 */

#include "app_backend.h"
#include "options.h"

/** Clocks begin here: at 0 nothing has a past. */
#define SIM_BEGIN_NS UINT64_C(1000000)
/** An idle daemon has a turn at least this often: what copyrpc does at a time is that late. */
#define SIM_IDLE_NS UINT64_C(1000)
/** Of a ns: cores count in ps. */
#define SIM_PS UINT64_C(1000)
/** Time between two looks at what is outside of the turns, unless options say another. */
#define SIM_WATCH_NS UINT64_C(1000000)

struct sim_world;
struct sim_host;
struct sim_client;

/** Who takes turns. */
struct sim_actor {
	uint64_t at; /**< Its next turn, ns; UINT64_MAX: none. */
	uint64_t tie;
	uint32_t heap; /**< Where it is in the heap. */
	bool clients;
	struct sim_host *host;
	struct sim_client *client; /**< With ends of their own: of this one alone. */
};

/** A call of a client: its request, and then its answer. */
struct sim_call {
	uint64_t at;    /**< When the request, or the answer, is there. */
	uint64_t begin; /**< When it was made. */
	uint64_t cookie;
	uint32_t len;
	int32_t status;
	enum { SIM_CALL_ENDED, SIM_CALL_ASKED, SIM_CALL_QUEUED, SIM_CALL_TAKEN } state;
};

/** Numbers of calls, in the order of their times. */
struct sim_queue {
	uint32_t *v;
	uint32_t mask, head, tail;
};

/** What the layers had counted. */
struct sim_counts {
	uint64_t taken, answered; /**< Of clients. */
	uint64_t made;            /**< By clients that share the daemon's core. */
	uint64_t remote;          /**< Calls to other hosts. */
	uint64_t served;          /**< Requests of other hosts. */
	uint64_t messages_in, messages_out, batches, cqes, wqes, doorbells, turns, busy;
};

/** A client with an end of its own: backends direct and erpc. */
struct sim_client {
	struct sim_host *host;
	struct sim_actor turn;
	struct app_load *load;
	void *link;
	struct app_end_parts parts;
	uint64_t free;            /**< As of the host. */
	struct sim_counts before; /**< At the begin of the turn. */
};

/** What a control thread knows of another host. */
struct sim_other {
	bool reconnect;
	uint32_t epoch; /**< Of it, when they were connected last. */
};

/** One host. */
struct sim_host {
	struct sim_world *world;
	struct crpc_kv_server *server;
	struct crpc_kv_daemon *daemon;
	struct app_end_parts parts; /**< Of the daemon, or of its port; its device may be NULL. */
	char card[16]; /**< The name of its card. */
	struct app_load_conf load_conf;
	struct app_load *load; /**< Of all its clients; with ends of their own: array, of each. */
	struct sim_actor turn, clients;

	uint64_t begin;   /**< Of the daemon's turn, ns. */
	uint64_t free;    /**< Its core is free then, ps: turns are shorter than a ns is exact. */
	uint64_t watched; /**< When it was looked at last. */
	uint64_t landed;  /**< Completions since the card had a turn on the daemon's core. */
	/** Of it: so far, at the begin of the turn, of the run; of its earlier lives. */
	struct sim_counts now, before, start, past;

	struct sim_call *call; /**< Array of clients x depth. */
	uint8_t *req, *resp;   /**< Their bytes. */
	uint64_t *busy;        /**< Of each client: its core is free then, ns. */
	struct sim_queue asked, answered;
	uint64_t line; /**< Delegation: the line of their ring is free then, ps. */

	/* backends direct and erpc */
	void *port;
	struct sim_client *client; /**< Array of clients. */

	/* faults */
	uint32_t capacity, epoch;
	bool dead;
	uint64_t died, paused, slow; /**< When; until when its daemon stands still, is slow. */
	uint64_t longest;            /**< That a call of its clients took, ns. */
	struct sim_other *other;     /**< Array of hosts: what its control thread knows of each. */
};

/** A host that died and came again, without its keys. */
struct sim_restart {
	uint32_t host;
	uint64_t died, back;
};

/** All of them. */
struct sim_world {
	const struct sim_options *opt;
	struct crpc_paper net;
	struct app_load_conf load;
	struct sim_host *host;
	struct sim_actor **heap;
	uint32_t hosts, actors;
	uint32_t loads; /**< Of each host. */
	uint32_t req_max, resp_max;
	uint64_t rng;
	uint64_t connections;
	int rc; /**< Of what could not be made on the way. */

	struct sim_faults faults;
	uint64_t look_ns; /**< When the control threads look next; UINT64_MAX: never. */
	struct sim_restart restart[SIM_FAULTS_MAX];
	uint32_t restarts;
	struct app_records *records; /**< Of all loads; NULL: there is no history. */
	uint64_t answered_twice;     /**< Answers to calls that had one. */
	uint64_t unnoticed;          /**< Hosts that stood still and were not lost. */
};

/** What came of a run. */
struct sim_result {
	struct app_load_counts load; /**< Of all clients; its distributions are merged. */
	struct sim_counts sum;       /**< Of all daemons, after the warm-up. */
	struct crpc_hist rtt;        /**< Of calls to other hosts, flush to completion, ns. */
	uint64_t sent, answered, open, faults;
	uint64_t cache_misses, dc_switches, retries;
	uint64_t connections; /**< Pairs of hosts; or of client and daemon. */
	uint64_t queue_pairs; /**< Of the card of one host. */
	uint64_t mr_bytes;    /**< That are registered with it. */
	uint64_t quiet_min; /**< Operations of the host with the fewest, in the measured window. */
	uint64_t lost;      /**< Ranks that were lost, counted by each that lost them. */
	double open_mean;   /**< By Little's law. */
};

static inline uint32_t
sim_rank(const struct sim_host *h)
{
	return (uint32_t)(h - h->world->host);
}

/** One of all loads, below hosts x loads. */
static inline struct app_load *
sim_load(const struct sim_world *w, uint32_t i)
{
	return &w->host[i / w->loads].load[i % w->loads];
}

/** The first ns that is not before this time, ps. */
static inline uint64_t
sim_ns(uint64_t ps)
{
	return (ps + SIM_PS - 1) / SIM_PS;
}

/** An actor has something to do at that time, if not before. */
void sim_wake(struct sim_actor *a, uint64_t at);

/** The clock of the daemon's core now, ns: the turn's begin, and what it has done since. */
uint64_t sim_host_clock(void *host);

/**
 * Make a host; @p capacity keys fit its store.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int sim_host_open(struct sim_host *h, struct sim_world *w, uint32_t rank, uint32_t capacity);

/** Join the clients. @return as sim_host_open(). */
int sim_host_join(struct sim_host *h, uint32_t rank);

/** Free it; also what an open that failed has left. */
void sim_host_close(struct sim_host *h);

/** A turn of an actor; it gets the time of the next one. */
void sim_actor_turn(struct sim_actor *a);

/** Add what a context and its device have done. */
void sim_count_net(struct sim_counts *c, const struct app_end_parts *p);

/** What was done between two counts costs a core of the host, ps. */
uint64_t sim_cost(
	const struct sim_host *h, const struct sim_counts *before, const struct sim_counts *c);

/** A core that polls all the time has its next turn: at multiples of an empty one. */
void sim_turn_begin(const struct sim_world *w, uint64_t *free, uint64_t at);

/** A turn of a client with an end of its own. */
void sim_client_turn(struct sim_client *k);

/** Where its daemon takes requests of such clients. */
const struct crpc_kv_front *sim_own_front(const struct sim_world *w);

/** Make the ends of a host, and of its clients. @return as sim_host_open(). */
int sim_own_open(struct sim_host *h);

/** Connect all clients with all daemons. @return 0 or -errno. */
int sim_own_connect(struct sim_world *w);

/** Free what was made. */
void sim_own_close(struct sim_host *h);

/** Count what a host has done so far. */
void sim_host_count(const struct sim_host *h, struct sim_counts *c);

/** Make its server, again after a crash. @return as sim_host_open(). */
int sim_host_start(struct sim_host *h);

/** It dies: its calls end, its keys and its card are gone. */
void sim_host_crash(struct sim_host *h, uint64_t now);

/** Its daemon's watch(), out of turn. */
void sim_watch(struct sim_host *h, uint64_t now);

/** Connect two hosts. @return 0; -EAGAIN: endpoints are not ready; or another -errno. */
int sim_connect(struct sim_host *a, struct sim_host *b, uint64_t now);

/**
 * One run: make the cluster, warm up, measure, let all calls end.
 *
 * @param r
 *   Filled.
 * @return
 *   0; APP_EXIT_RUN: what was found is in *r; APP_EXIT_USAGE after one line.
 */
int sim_run(const struct sim_options *o, struct sim_result *r);

/** The same in a world that is looked at before it is closed. */
int sim_world_run(struct sim_world *w, const struct sim_options *o, struct sim_result *r);
void sim_world_close(struct sim_world *w);

#endif
