/* SPDX-License-Identifier: BSD-3-Clause */
#include "udrpc_timely.h"

/* Weight of the newest difference. */
#define ALPHA 0.46
/* Strength of a decrease. */
#define BETA 0.26
/* One step up and the lowest rate, bytes per second. */
#define STEP     5e6
#define RATE_MIN 15e6
/* Round trip of an empty network, ns: the unit of gradients, and the time of one full step. */
#define RTT_MIN 2000.0
/* After so many falling samples the steps are larger, by as much. */
#define FALLING 5
/* One sample takes at most half of the rate. */
#define CUT_MAX 0.5

/* The rate's factor for a decrease of this strength, 0 to 1 or above, in this share of a round. */
static double
cut(double strength, double share)
{
	double by = BETA * strength * share;

	return 1.0 - (by < CUT_MAX ? by : CUT_MAX);
}

void
__crpc_udrpc_timely_sample(
	struct timely *t, const struct timely_conf *conf, uint64_t now_ns, uint64_t rtt_ns)
{
	double rtt = (double)rtt_ns, share = (double)(now_ns - t->last_ns) / RTT_MIN, gradient;

	if (t->prev_ns == 0)
		t->prev_ns = rtt_ns;
	/* many samples come in one round trip: together they count as one */
	if (share > 1.0)
		share = 1.0;
	t->diff_ns = (1 - ALPHA) * t->diff_ns + ALPHA * (rtt - (double)t->prev_ns);
	t->prev_ns = rtt_ns;
	t->last_ns = now_ns;
	gradient = t->diff_ns / RTT_MIN;
	if (rtt_ns < conf->t_low_ns) {
		t->rate += STEP * share;
	} else if (rtt_ns > conf->t_high_ns) {
		t->rate *= cut(1.0 - (double)conf->t_high_ns / rtt, share);
		t->falling = 0;
	} else if (gradient <= 0) {
		t->falling += t->falling < FALLING;
		t->rate += STEP * share * (t->falling == FALLING ? FALLING : 1);
	} else {
		t->rate *= cut(gradient, share);
		t->falling = 0;
	}
	if (t->rate < RATE_MIN)
		t->rate = RATE_MIN;
	if (t->rate > conf->link)
		t->rate = conf->link;
}
