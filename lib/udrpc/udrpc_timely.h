/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UDRPC_TIMELY_H
#define UDRPC_TIMELY_H

/**
 * @file
 * The rate of a session from its round trips: TIMELY (R. Mittal et al., TIMELY: RTT-based
 * Congestion Control for the Datacenter, SIGCOMM 2015). A rising round trip lowers the rate in
 * proportion, a falling one raises it step by step.
 *
 * A session whose rate is the link's and whose round trip is below t_low_ns is not congested:
 * nothing is computed for it and nothing is held back (A. Kalia et al., NSDI 2019, 5.2).
 */

#include <stdbool.h>
#include <stdint.h>

/** What all sessions of a context share. */
struct timely_conf {
	double link;        /**< Bytes per second, the highest rate. */
	uint64_t t_low_ns;  /**< Below: always faster. */
	uint64_t t_high_ns; /**< Above: always slower. */
};

/** One session. It starts with the rate of the link, and zeros. */
struct timely {
	double rate;     /**< Bytes per second. */
	double diff_ns;  /**< Smoothed change of the round trip from sample to sample. */
	uint64_t prev_ns; /**< The last round trip. */
	uint64_t last_ns; /**< When it came. */
	uint32_t falling; /**< Samples in a row without a rising round trip. */
};

/** True: this round trip changes nothing, and nothing needs computing. */
static inline bool
timely_bypass(const struct timely *t, const struct timely_conf *conf, uint64_t rtt_ns)
{
	return rtt_ns < conf->t_low_ns && t->rate >= conf->link;
}

/** One round trip more. */
void __crpc_udrpc_timely_sample(
	struct timely *t, const struct timely_conf *conf, uint64_t now_ns, uint64_t rtt_ns);

#endif
