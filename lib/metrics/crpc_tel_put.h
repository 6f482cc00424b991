/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_TEL_PUT_H
#define CRPC_TEL_PUT_H

/**
 * @file
 * What answers of telemetry have in common; for its handlers. Inline, so that lib/metrics needs no
 * DPDK: only code that links DPDK includes this.
 */

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "crpc_compat.h"
#include "crpc_hist.h"
#include "crpc_tel.h"

/** A counter of 64 bits in a struct. */
struct crpc_tel_counter {
	const char *name;
	size_t at;
};

/** The counter of this name in @p type. */
#define CRPC_TEL_COUNTER(type, counter)                                                            \
	{                                                                                          \
#counter, offsetof(type, counter)                                                          \
	}

/** The counter's value in the struct at @p stats. */
static inline uint64_t
crpc_tel_value(const void *stats, const struct crpc_tel_counter *counter)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + counter->at, sizeof(value));
	return value;
}

/** @p n counters of the struct at @p stats, into a dictionary that was started. */
static inline void
crpc_tel_put_counters(struct rte_tel_data *d, const struct crpc_tel_counter *counters, size_t n,
	const void *stats)
{
	for (size_t i = 0; i < n; i++)
		crpc_tel_add_dict_uint(d, counters[i].name, crpc_tel_value(stats, &counters[i]));
}

/**
 * Quantiles and maximum of a histogram of ns, into a dictionary that was started: NAME_p50_ns...
 */
static inline void
crpc_tel_put_hist(struct rte_tel_data *d, const char *name, const struct crpc_hist *h)
{
	static const struct {
		const char *name;
		double q;
	} at[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
	char key[RTE_TEL_MAX_STRING_LEN];

	for (size_t i = 0; i < CRPC_DIM(at); i++) {
		snprintf(key, sizeof(key), "%s_%s_ns", name, at[i].name);
		crpc_tel_add_dict_uint(d, key, crpc_hist_quantile(h, at[i].q));
	}
	snprintf(key, sizeof(key), "%s_max_ns", name);
	crpc_tel_add_dict_uint(d, key, h->max);
}

#endif
