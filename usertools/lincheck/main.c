/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crpc-lincheck: is what clients of a key-value store saw that of one copy of each key?
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_opt.h"
#include "wgl.h"

static uint64_t max = 50000000;

static const struct app_opt table[] = {
	APP_OPT("max", "N", &max,
		"configurations to remember for one key, of 32 bytes each; a key that needs more "
		"is undecided",
		1, 1e15),
};

static void
help(int argc, char *const *argv)
{
	printf("usage: crpc-lincheck [OPTION]... FILE...\n\n"
	       "Checks that the histories of a key-value store (benchkv --history FILE) are\n"
	       "linearizable, key by key: that there is an order of the operations, each between\n"
	       "its call and its answer, in which one copy of the value gives all the answers.\n"
	       "Several files are parts of one history: give all that a run wrote. - is standard\n"
	       "input.\n\n"
	       "A store that was killed and restarted from a snapshot needs two lines more, in a\n"
	       "file of text: \"0 * BEGIN END snapshot - ok\", that each key's value at a moment\n"
	       "between these was kept, and \"0 * KILLED READY restart - ok\", that each key has\n"
	       "that value again. So only what was acknowledged between the two may be lost.\n\n");
	app_opt_help(table, CRPC_DIM(table), stdout);
	printf("\nExit status: 0 linearizable; 1 not: the first answer that no order explains is\n"
	       "shown, with what went on around it; 2 bad usage or a file that cannot be read;\n"
	       "3 undecided.\n");
}

/* All keys together. */
struct result {
	uint64_t ops, keys, configurations, wrong, undecided;
};

/* The answer that cannot be, and all that overlaps it or ended just before it. */
static void
explain(const struct app_history_op *op, size_t n, const struct wgl_report *report)
{
	const struct app_history_op *stuck = &op[report->stuck];
	uint64_t from = stuck->call, width = stuck->ret - stuck->call;
	size_t i, shown = 0;

	printf("key %" PRIu64 ": not linearizable: %zu of %zu operations have an order, and then "
	       "no answer explains\n  ",
		stuck->key, report->taken, n);
	hist_write(stdout, stuck);
	printf("   (line %" PRIu64 "; the value may be ", stuck->line);
	hist_write_value(stdout, report->value);
	printf(")\naround it:\n");
	from -= width < from ? width : from;
	for (i = 0; i < n && shown < 20; i++) {
		if (i == report->stuck || op[i].ret < from || op[i].call > stuck->ret)
			continue;
		printf("  ");
		hist_write(stdout, &op[i]);
		printf("   (line %" PRIu64 ")\n", op[i].line);
		shown++;
	}
}

static int
check(const struct history *h, struct result *r)
{
	struct wgl_report report;
	size_t at, n;

	for (at = 0; at < h->n; at += n) {
		n = hist_same_key(h->op + at, h->n - at);
		r->keys++;
		r->ops += n;
		switch (wgl_check(h->op + at, n, max, &report)) {
		case WGL_YES:
			break;
		case WGL_NO:
			if (r->wrong++ == 0)
				explain(h->op + at, n, &report);
			break;
		case WGL_UNDECIDED:
			r->undecided++;
			printf("key %" PRIu64 ": undecided: more than %" PRIu64
			       " configurations; --max allows more\n",
				h->op[at].key, max);
			break;
		case WGL_NOMEM:
			return app_fail("out of memory at key %" PRIu64 " with %zu operations; a "
					"smaller --max leaves it undecided",
				h->op[at].key, n);
		}
		r->configurations += report.configurations;
	}
	return r->wrong != 0 ? 1 : r->undecided != 0 ? 3 : 0;
}

/* Add the operations of one file. */
static int
file_add(const char *name, struct history *all)
{
	FILE *in = strcmp(name, "-") == 0 ? stdin : fopen(name, "r");
	int rc;

	if (in == NULL)
		return app_fail("%s: %s", name, strerror(errno));
	rc = hist_read(in, name, all);
	if (in != stdin)
		fclose(in);
	return rc;
}

static void
print(const struct result *r)
{
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
	char *const *file = argv + 1;
	struct history h = {0};
	struct result r = {0};
	int rc;

	app_fail_name("crpc-lincheck");
	if (app_env_answer("crpc-lincheck", argc, argv, help))
		return APP_EXIT_OK;
	rc = app_opt_parse_first(table, CRPC_DIM(table), argc - 1, &file);
	if (rc == 0 && file == argv + argc)
		rc = app_fail("a file is needed; --help lists what there is");
	for (; rc == 0 && file < argv + argc; file++)
		rc = file_add(*file, &h) == 0 ? 0 : APP_EXIT_USAGE;
	if (rc == 0 && !hist_sort(&h))
		rc = app_fail("out of memory");
	if (rc != 0) {
		free(h.op);
		return rc;
	}
	rc = check(&h, &r);
	if (rc != APP_EXIT_USAGE)
		print(&r);
	free(h.op);
	return rc;
}
