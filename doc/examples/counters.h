/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The service of the tutorial (doc/guides/tutorial.md): counters that clients add to. A request
 * names a counter and an amount; the reply is the counter's new value. The programs differ in what
 * carries the requests, not in what the service does with them.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <crpc_log.h>
#include <crpc_rpc.h>

enum { COUNTERS = 8, ADDS = 1000 };

/* One request. */
struct add {
	uint32_t counter;
	uint32_t amount;
};

/* Execute a request. The bytes lie in memory that the caller may still write, so they are copied
 * first, and the copy is checked and used. Returns 0 and the reply in *value, or -errno. */
static inline int
counters_apply(uint64_t *counters, const struct crpc_req *req, uint64_t *value)
{
	struct add add;

	if (req->len != sizeof(add))
		return -EINVAL;
	memcpy(&add, req->data, sizeof(add));
	if (add.counter >= COUNTERS)
		return -ENOENT;
	*value = counters[add.counter] += add.amount;
	return 0;
}

/* The library prints nothing: crpc_log_last() has the cause of this thread's last error. */
static inline int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

#endif
