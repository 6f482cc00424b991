/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

/**
 * @file
 * Faults of hosts, and the part of kvd's control thread: who is lost, and who is connected again.
 *
 *     crash:2@500+300     the process of host 2 ends 500 us after the begin, and is started again,
 *                         without its keys, 300 us later
 *     pause:0@800+100     the daemon of host 0 stands still; its clients and its card do not
 *     slow:1@200+1000     all that its daemon does takes ten times as long
 *     break:0.1@600       the queue pair of host 0 that has number 1 breaks
 *
 * Faults begin and end, and the control thread of each host looks at the others, every
 * SIM_CONTROL_NS. The end of a process is known to all notice_ns later, or when it is started
 * again; a rank that was lost by a peer loses that peer; what is lost is renewed and connected
 * again. A host that stands still takes no part.
 */

#include <stdbool.h>
#include <stdint.h>

/** Time between two looks. */
#define SIM_CONTROL_NS UINT64_C(10000)
/** Faults of a run at most. */
#define SIM_FAULTS_MAX 32
/** How much longer a slow host takes. */
#define SIM_SLOW 10

enum sim_fault_kind {
	SIM_CRASH,
	SIM_PAUSE,
	SIM_SLOW_DOWN,
	SIM_BREAK,
	SIM_FAULT_KINDS,
};

/** One fault; times count from the begin of the run, ns. */
struct sim_fault {
	enum sim_fault_kind kind;
	uint32_t host, number; /**< number: break. */
	uint64_t at, length;   /**< length: not of break. */
	bool begun, over;
};

struct sim_faults {
	struct sim_fault v[SIM_FAULTS_MAX];
	uint32_t n;
};

/** Names, in the order of the kinds. */
extern const char *const sim_fault_names[];

/**
 * Read a list, with commas between its faults.
 *
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int sim_faults_read(struct sim_faults *f, const char *text, uint32_t hosts);

/** The time at which the last one is over, ns. */
uint64_t sim_faults_end(const struct sim_faults *f);

struct sim_world;

/** What is due now: faults begin and end, and the control threads look. */
void sim_fault_turn(struct sim_world *w, uint64_t now);

#endif
