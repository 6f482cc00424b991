/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COUNT_H
#define COUNT_H

/** @file The command line of a program whose instructions callgrind counts. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/**
 * The index of the case that the command line names. cases is an array of n elements of size bytes
 * that begin with their name. Without a word it names all and exits with 0; with a wrong one it
 * exits with 1.
 */
static inline size_t
count_case(int argc, char **argv, const void *cases, size_t size, size_t n)
{
	const char *name;

	for (size_t i = 0; i < n; i++) {
		memcpy(&name, (const char *)cases + i * size, sizeof(name));
		if (argc < 2)
			puts(name);
		else if (strcmp(argv[1], name) == 0)
			return i;
	}
	exit(argc < 2 ? 0 : 1);
}

#endif
