/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEAK_PRIVATE_H
#define WEAK_PRIVATE_H

/* Between the search (weak.c), the instrumentation (weak_plain.c) and the judge (weak_main.c). */

#include <string.h>

#include "weak.h"

/** A site without one of its orderings. */
struct weak_fault {
	const struct weak_site *site;
	unsigned int removed;
};

struct weak_result {
	size_t executions;
	size_t states;
	char what[256];
};

/** A macro in an inline function is one site in the source and one object per file. */
static inline bool
weak_same_site(const struct weak_site *a, const struct weak_site *b)
{
	return a->line == b->line && a->orders == b->orders && strcmp(a->file, b->file) == 0;
}

/** A plain load or store of the library's code. */
void weak_plain(const void *p, size_t len, bool store);

/** Make the scenario's objects. The sites that run get its bit. */
void weak_setup(const struct weak_scenario *s, unsigned int bit);

/** Try all executions; false: the last one failed, and *r says how. */
bool weak_explore(const struct weak_fault *fault, struct weak_result *r);

/** Run the failed one once more, printing its accesses. */
void weak_replay(void);

#endif
