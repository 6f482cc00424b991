/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_H
#define FUZZ_H

/*
 * What a fuzz target offers: libFuzzer's entry. Linked with libFuzzer it explores; linked with
 * fuzz_replay.c it repeats the corpus and a fixed number of mutations of it. README.md says how to
 * add one.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One input. 0. Ends the process if something is wrong: by a sanitizer, or by fuzz_check(). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For a parser that says on stderr what it refuses: reports of ends are not written through it. */
static inline void
fuzz_quiet(void)
{
	static FILE *nowhere;

	if (nowhere == NULL) {
		nowhere = fopen("/dev/null", "w");
		stderr = nowhere != NULL ? nowhere : stderr;
	}
}

/* What must hold for every input. */
#define fuzz_check(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			dprintf(2, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
