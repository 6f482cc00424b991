/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GOLDEN_H
#define GOLDEN_H

/**
 * @file
 * Formats against the files that keep them, test/golden. A format that changes has a new version,
 * never an accident; with CRPC_GOLDEN_WRITE=1 a test then writes its file anew. Include it after
 * cmocka.h.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Bytes in lines of 16, each behind its offset, which begins with @p off. */
static inline void
golden_bytes(FILE *f, const char *what, uint64_t off, const void *p, size_t len)
{
	const uint8_t *b = p;

	fprintf(f, "%s\n", what);
	for (size_t i = 0; i < len; i += 16) {
		fprintf(f, "%06llx:", (unsigned long long)(off + i));
		for (size_t k = i; k < i + 16 && k < len; k++)
			fprintf(f, " %02x", b[k]);
		fprintf(f, "\n");
	}
}

/** Fail unless @p found is the file's text; says what was found. Frees it. */
static inline void
golden_text(const char *path, char *found)
{
	static char want[32768];
	size_t n = 0;
	FILE *f;

	if (getenv("CRPC_GOLDEN_WRITE") != NULL) {
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(found, f);
		fclose(f);
	}
	f = fopen(path, "r");
	if (f != NULL) {
		n = fread(want, 1, sizeof(want) - 1, f);
		fclose(f);
	}
	want[n] = '\0';
	if (strcmp(found, want) != 0)
		printf("found, instead of %s:\n%s", path, found);
	assert_string_equal(found, want);
	free(found);
}

/** Fail unless these bytes are the file's, in lines of 16. */
static inline void
golden_hex(const char *path, const uint8_t *bytes, size_t len)
{
	char *text = NULL;
	size_t size, i;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	for (i = 0; i < len; i++)
		fprintf(f, "%02x%c", bytes[i], i % 16 == 15 || i == len - 1 ? '\n' : ' ');
	fclose(f);
	golden_text(path, text);
}

#endif
