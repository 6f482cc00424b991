/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_H
#define FUZZ_H

/*
 * What a fuzz target offers: libFuzzer's entry. Linked with libFuzzer it explores; linked with
 * fuzz_replay.c it repeats the corpus and a fixed number of mutations of it. README.md says how to
 * add one.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What is left of an input. */
struct fuzz_input {
	const uint8_t *p;
	size_t left;
};

/* Pass over @len bytes, or what is left; how many. */
static inline size_t
fuzz_skip(struct fuzz_input *in, size_t len)
{
	size_t n = len < in->left ? len : in->left;

	in->p += n;
	in->left -= n;
	return n;
}

/* The next @len bytes, zeros where the input ends; how many it had. */
static inline size_t
fuzz_take_some(struct fuzz_input *in, void *to, size_t len)
{
	const uint8_t *from = in->p;
	size_t n = fuzz_skip(in, len);

	memset((uint8_t *)to + n, 0, len - n);
	memcpy(to, from, n);
	return n;
}

/* The next @len bytes; false, and none taken: there are not so many. */
static inline bool
fuzz_take(struct fuzz_input *in, void *to, size_t len)
{
	return in->left >= len && fuzz_take_some(in, to, len) == len;
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
