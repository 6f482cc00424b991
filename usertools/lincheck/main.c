/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crpc-lincheck: is what clients of a key-value store saw that of one copy of each key?
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wgl.h"

#define DEFAULT_MAX 50000000

static const char usage[] =
	"crpc-lincheck [--max N] [--json] FILE...\n"
	"\n"
	"Checks that the histories of a key-value store (benchkv --history FILE) are\n"
	"linearizable, key by key: that there is an order of the operations, each between\n"
	"its call and its answer, in which one copy of the value gives all the answers.\n"
	"Several files are parts of one history: give all that a run wrote. - is standard\n"
	"input.\n"
	"\n"
	"A store that was killed and restarted from a snapshot needs two lines more, in a\n"
	"file of text: \"0 * BEGIN END snapshot - ok\", that each key's value at a moment\n"
	"between these was kept, and \"0 * KILLED READY restart - ok\", that each key has\n"
	"that value again. So only what was acknowledged between the two may be lost.\n"
	"\n"
	"  --max N  configurations to remember for one key at most (default 50000000, of\n"
	"           32 bytes each); a key that needs more is undecided\n"
	"  --json   the result as one JSON object\n"
	"\n"
	"Exit status: 0 linearizable; 1 not: the first answer that no order explains is\n"
	"shown, with what went on around it; 2 bad usage or a file that cannot be read;\n"
	"3 undecided.\n";

/* All keys together. */
struct result {
	uint64_t ops, keys, configurations, wrong, undecided;
};

/* Operations of the same key from op[0] on. */
static size_t
same_key(const struct hist_op *op, size_t n)
{
	size_t i = 1;

	while (i < n && op[i].key == op[0].key)
		i++;
	return i;
}

/* The answer that cannot be, and all that overlaps it or ended just before it. */
static void
explain(const struct hist_op *op, size_t n, const struct wgl_report *report)
{
	const struct hist_op *stuck = &op[report->stuck];
	uint64_t from = stuck->call, width = stuck->ret - stuck->call;
	size_t i, shown = 0;

	printf("key %" PRIu64 ": not linearizable: %zu of %zu operations have an order, and then "
	       "no answer explains\n  ",
		stuck->key, report->taken, n);
	hist_write(stdout, stuck);
	printf("   (line %u; the value may be ", stuck->line);
	if (report->value == HIST_NONE)
		printf("none");
	else
		printf("0x%" PRIx64, report->value);
	printf(")\naround it:\n");
	from -= width < from ? width : from;
	for (i = 0; i < n && shown < 20; i++) {
		if (i == report->stuck || op[i].ret < from || op[i].call > stuck->ret)
			continue;
		printf("  ");
		hist_write(stdout, &op[i]);
		printf("   (line %u)\n", op[i].line);
		shown++;
	}
}

static int
check(const struct history *h, uint64_t max, bool json, struct result *r)
{
	struct wgl_report report;
	size_t at, n;

	for (at = 0; at < h->n; at += n) {
		n = same_key(h->op + at, h->n - at);
		r->keys++;
		r->ops += n;
		switch (wgl_check(h->op + at, n, max, &report)) {
		case WGL_YES:
			break;
		case WGL_NO:
			if (r->wrong++ == 0 && !json)
				explain(h->op + at, n, &report);
			break;
		case WGL_UNDECIDED:
			r->undecided++;
			if (!json)
				printf("key %" PRIu64 ": undecided: more than %" PRIu64
				       " configurations; --max allows more\n",
					h->op[at].key, max);
			break;
		case WGL_NOMEM:
			fprintf(stderr, "crpc-lincheck: out of memory at key %" PRIu64
					" with %zu operations; a smaller --max leaves it undecided\n",
				h->op[at].key, n);
			return 2;
		}
		r->configurations += report.configurations;
	}
	return r->wrong != 0 ? 1 : r->undecided != 0 ? 3 : 0;
}

static int
bad_usage(const char *text, const char *what)
{
	fprintf(stderr, "crpc-lincheck: %s%s; crpc-lincheck --help lists what there is\n", text,
		what);
	return 2;
}

/* Add the operations of one file. */
static int
file_add(const char *name, struct history *all)
{
	FILE *in = strcmp(name, "-") == 0 ? stdin : fopen(name, "r");
	int rc;

	if (in == NULL) {
		fprintf(stderr, "crpc-lincheck: %s: %s\n", name, strerror(errno));
		return -1;
	}
	rc = hist_read(in, name, all);
	if (in != stdin)
		fclose(in);
	return rc;
}

static void
print(const struct result *r, bool json)
{
	if (json)
		printf("{\"app\": \"crpc-lincheck\", \"ops\": %" PRIu64 ", \"keys\": %" PRIu64
		       ", \"configurations\": %" PRIu64 ", \"not_linearizable\": %" PRIu64
		       ", \"undecided\": %" PRIu64 "}\n",
			r->ops, r->keys, r->configurations, r->wrong, r->undecided);
	else
		printf("%" PRIu64 " operations on %" PRIu64 " keys: %s (%" PRIu64 " not, %" PRIu64
		       " undecided; %" PRIu64 " configurations)\n",
			r->ops, r->keys,
			r->wrong != 0             ? "not linearizable"
				: r->undecided != 0 ? "undecided"
						    : "linearizable",
			r->wrong, r->undecided, r->configurations);
}

int
main(int argc, char **argv)
{
	struct history h = {0};
	struct result r = {0};
	uint64_t max = DEFAULT_MAX;
	bool json = false;
	int i, files = 0, rc;
	char *end;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--version") == 0) {
			puts("crpc-lincheck " CRPC_VERSION);
			return 0;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--json") == 0) {
			json = true;
		} else if (strcmp(argv[i], "--max") == 0) {
			if (++i == argc)
				return bad_usage("--max needs a number", "");
			errno = 0;
			max = strtoull(argv[i], &end, 10);
			if (*end != '\0' || argv[i][0] < '0' || argv[i][0] > '9' || max == 0 ||
				errno != 0)
				return bad_usage("--max: not a number above 0: ", argv[i]);
		} else if (argv[i][0] == '-' && argv[i][1] != '\0') {
			return bad_usage("unknown option ", argv[i]);
		} else if (file_add(argv[i], &h) != 0) {
			return 2;
		} else {
			files++;
		}
	}
	if (files == 0)
		return bad_usage("a file is needed", "");
	if (!hist_sort(&h)) {
		fprintf(stderr, "crpc-lincheck: out of memory\n");
		free(h.op);
		return 2;
	}
	rc = check(&h, max, json, &r);
	if (rc != 2)
		print(&r, json);
	free(h.op);
	return rc;
}
