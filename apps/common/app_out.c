/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app_fail.h"
#include "app_opt.h"
#include "app_out.h"
#include "app_perf.h"
#include "crpc_hist.h"
#include "crpc_clock.h"

#define PROGRESS_NS 200000000u
/* Texts that are longer stand below their row. */
#define TEXT_MAX 24
#define CELL_MAX 512
#define COLS_MAX 40

int
app_out_open(struct app_out *out, const char *app, const char *where, const char *lcores,
	const char *json)
{
	char cpu[128], text[512];

	out->app = app;
	out->lcores = lcores;
	if (json != NULL && (out->json = app_json_open("json", json)) == NULL)
		return APP_EXIT_USAGE;
	app_env_cpu(cpu, sizeof(cpu));
	snprintf(text, sizeof(text), "%s %s (%s), %s, %s %s", app, CRPC_VERSION, app_env_commit(),
		cpu, where, lcores);
	app_out_text(2, text);
	fflush(stdout);
	return 0;
}

void
app_out_close(struct app_out *out, bool interrupted)
{
	if (out->json != NULL)
		fclose(out->json);
	json_decref(out->common);
	out->json = NULL;
	out->common = NULL;
	if (interrupted)
		app_note("interrupted: results so far");
}

/* ---- rows ---- */

/* Conditions, which are no columns. */
static const char *const conditions[] = {"schema", "app", "version", "commit", "record", "cpu",
	"lcores", "state", "steal_pct", "away_pct", "noisy", NULL};

json_t *
app_row(const struct app_out *out, const char *record, const struct app_trial *t)
{
	json_t *row;
	char cpu[128];

	app_env_cpu(cpu, sizeof(cpu));
	row = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:f,s:f,s:b}", "schema", APP_JSON_SCHEMA,
		"app", out->app, "version", CRPC_VERSION, "commit", app_env_commit(), "record",
		record, "cpu", cpu, "lcores", out->lcores, "state", app_state_names[t->state],
		"steal_pct", t->steal_pct, "away_pct", t->away_pct, "noisy", t->noisy);
	return row;
}

void
app_row_set(json_t *row, const char *fmt, ...)
{
	json_t *more;
	va_list ap;

	va_start(ap, fmt);
	more = json_vpack_ex(NULL, 0, fmt, ap);
	va_end(ap);
	json_object_update(row, more);
	json_decref(more);
}

void
app_row_figure(json_t *row, const char *key, const struct app_figure *f, const char *unit)
{
	if (f->n != 0)
		app_row_set(row, "{s:{s:f,s:f,s:f,s:s,s:i}}", key, "median", f->median, "min",
			f->min, "max", f->max, "unit", unit, "n", f->n);
}

void
app_row_series(json_t *row, const char *key, const struct app_series *s, const struct app_trial *t,
	const char *unit)
{
	struct app_figure f = app_series_figure(s, t->state);

	app_row_figure(row, key, &f, unit);
}

void
app_row_hist(json_t *row, const char *key, const struct crpc_hist *h, double scale)
{
	app_row_set(row, "{s:{s:f,s:f,s:f,s:f,s:f,s:f}}", key, "mean", crpc_hist_mean(h) * scale,
		"p50", (double)crpc_hist_quantile(h, 0.5) * scale, "p90",
		(double)crpc_hist_quantile(h, 0.9) * scale, "p99",
		(double)crpc_hist_quantile(h, 0.99) * scale, "p999",
		(double)crpc_hist_quantile(h, 0.999) * scale, "max", (double)h->max * scale);
}

void
app_row_counters(json_t *row, const char *key, const uint64_t *counter, double ops)
{
	json_t *o = json_object();

	for (uint32_t i = 0; i < APP_COUNTERS; i++)
		if (counter[i] != 0 && ops > 0)
			app_row_set(o, "{s:f}", app_counter_names[i], (double)counter[i] / ops);
	json_object_set_new(row, key, o);
}

void
app_row_ratio(json_t *row, const char *key, double ratio)
{
	json_object_set_new(row, key, ratio > 0 ? json_real(ratio) : json_null());
}

/* ---- tables ---- */

/* A column: a value, or a part of a figure. */
struct col {
	const char *key, *part;
	char head[2 * TEXT_MAX];
	double scale;
	int width;
	bool left;
	bool first; /* That of the rows, or of their first figure. */
	bool fits;
};

/* Ratios that are a share of what the machine can do: printed in per cent. */
static bool
is_share(const char *key)
{
	return strncmp(key, "ratio_line", 10) == 0 || strcmp(key, "ratio_port") == 0 ||
		strncmp(key, "ratio_memcpy", 12) == 0;
}

static bool
is_ratio(const char *key)
{
	return strncmp(key, "ratio_", 6) == 0;
}

static bool
is_listed(const char *const *keys, const char *key)
{
	for (; *keys != NULL; keys++)
		if (strcmp(*keys, key) == 0)
			return true;
	return false;
}

static bool
is_figure(const json_t *v)
{
	return json_object_get(v, "median") != NULL;
}

static bool
is_plain(const json_t *v)
{
	return json_is_object(v) && !is_figure(v);
}

static void
value_text(const json_t *v, double scale, char text[CELL_MAX])
{
	double x = json_number_value(v) * scale, a = fabs(x);
	int digits = a >= 1000 || a == 0 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : a >= 1 ? 3 : 4;

	if (json_is_real(v))
		snprintf(text, CELL_MAX, "%.*f", digits, x);
	else if (json_is_integer(v))
		snprintf(text, CELL_MAX, "%lld", (long long)json_integer_value(v));
	else if (json_is_boolean(v))
		snprintf(text, CELL_MAX, "%s", json_is_true(v) ? "yes" : "no");
	else
		snprintf(text, CELL_MAX, "%s", json_is_string(v) ? json_string_value(v) : "-");
}

static void
cell(const json_t *row, const struct col *c, char text[CELL_MAX])
{
	const json_t *v = json_object_get(row, c->key);

	value_text(c->part != NULL ? json_object_get(v, c->part) : v, c->scale, text);
}

/* Bytes of a text that go into a line: to the last mark, so that names stay with their values. */
static size_t
line_of(const char *text, size_t room)
{
	size_t word = 0, mark = 0;

	if (strlen(text) <= room)
		return strlen(text);
	for (size_t n = 1; n <= room; n++) {
		if (text[n] != ' ')
			continue;
		word = n;
		if (strchr(",;:", text[n - 1]) != NULL)
			mark = n;
	}
	/* A word may be longer than a line. */
	return mark > room / 2 ? mark : word != 0 ? word : room;
}

void
app_out_text(uint32_t indent, const char *text)
{
	uint32_t used = 0;
	size_t n;

	for (; text[0] != '\0'; used = indent) {
		n = line_of(text, APP_OUT_WIDTH - used);
		printf("%*s%.*s\n", (int)used, "", (int)n, text);
		text += n + strspn(text + n, " ");
	}
}

static bool
in_common(const json_t *rows, const char *key, const json_t *v)
{
	const json_t *row;
	size_t i;

	if (json_is_real(v) || json_is_object(v) || is_ratio(key))
		return false;
	json_array_foreach (rows, i, row)
		if (!json_equal(json_object_get(row, key), v))
			return false;
	return true;
}

static void
col_add(struct col *cols, uint32_t *n, const char *key, const char *part, double scale,
	const char *head, const char *unit)
{
	struct col *c = &cols[(*n)++];

	*c = (struct col){.key = key, .part = part, .scale = scale};
	snprintf(c->head, sizeof(c->head), "%.*s%s%.*s", TEXT_MAX - 1, head,
		*head == '\0' || *unit == '\0' ? "" : " ", TEXT_MAX - 1, unit);
}

/* Columns of a value: of the first figure median, least and greatest. */
static void
cols_of(struct col *cols, uint32_t *n, const char *key, json_t *v)
{
	const char *unit = json_string_value(json_object_get(v, "unit")), *part = strchr(key, '_');
	bool first = true;
	const char *name;
	json_t *member;

	for (uint32_t i = 0; i < *n; i++)
		first &= cols[i].part == NULL;
	if (is_ratio(key)) {
		col_add(cols, n, key, is_figure(v) ? "median" : NULL, is_share(key) ? 100 : 1,
			is_share(key) ? "% of" : "vs", key + 6);
	} else if (is_plain(v)) {
		json_object_foreach (v, name, member)
			if (*n < COLS_MAX)
				col_add(cols, n, key, name, 1, "", name);
	} else if (!is_figure(v)) {
		col_add(cols, n, key, NULL, 1, key, "");
		cols[*n - 1].left = json_is_string(v);
		cols[*n - 1].first = *n == 1;
	} else if (!first) {
		col_add(cols, n, key, "median", 1, part != NULL ? part + 1 : key, unit);
	} else {
		col_add(cols, n, key, "median", 1, "", unit);
		col_add(cols, n, key, "min", 1, "", "min");
		col_add(cols, n, key, "max", 1, "", "max");
		for (uint32_t i = *n - 3; i < *n; i++)
			cols[i].first = true;
	}
}

/*
 * Find the columns of a table, and print what all rows have in common. Of results, numbers with a
 * fraction that are neither figure nor ratio are details, and so are all objects but the first.
 */
static uint32_t
cols_find(struct col *cols, const json_t *rows, bool results, const char *sep, FILE *head)
{
	const char *key;
	char text[CELL_MAX];
	const char *object = NULL;
	uint32_t n = 0, i;
	json_t *row, *v;
	size_t r;

	json_array_foreach (rows, r, row)
		json_object_foreach (row, key, v) {
			for (i = 0; i < n && strcmp(cols[i].key, key) != 0; i++)
				;
			if (i < n || n + 3 > COLS_MAX || is_listed(conditions, key) ||
				json_is_null(v) || json_is_array(v) ||
				(is_plain(v) && object != NULL && strcmp(object, key) != 0) ||
				(results && json_is_real(v) && !is_ratio(key)))
				continue;
			if (is_plain(v))
				object = key;
			if (n == 0 || !in_common(rows, key, v)) {
				cols_of(cols, &n, key, v);
			} else if (r == 0 && !json_is_false(v)) {
				value_text(v, 1, text);
				fprintf(head, "%s%s%s%s", sep, json_is_string(v) ? "" : key,
					json_is_integer(v) ? " " : "", json_is_true(v) ? "" : text);
				sep = ", ";
			}
		}
	return n;
}

/* Widths, and which columns there is room for: the first one, the first figure, then all others. */
static void
cols_fit(struct col *cols, uint32_t n, const json_t *rows)
{
	uint32_t used = 1;
	char text[CELL_MAX];
	struct col *c;
	json_t *row;
	size_t r;

	for (c = cols; c < cols + n; c++) {
		c->width = (int)strlen(c->head);
		json_array_foreach (rows, r, row) {
			cell(row, c, text);
			c->width = (int)crpc_max((size_t)c->width, strlen(text));
		}
	}
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < n; i++) {
			c = &cols[i];
			if (c->fits || c->first < (pass == 0) || (i != 0 && c->width > TEXT_MAX) ||
				used + 1 + (uint32_t)c->width > APP_OUT_WIDTH)
				continue;
			used += 1 + (uint32_t)c->width;
			c->fits = true;
		}
}

/* A line of a table; the head without a row. */
static void
print_line(const struct col *cols, uint32_t n, const json_t *row)
{
	char line[APP_OUT_WIDTH + 2] = " ", text[CELL_MAX];
	const struct col *c;
	size_t used = 1;

	for (uint32_t i = 0; i < 2 * n; i++) { /* Names are to the left of numbers. */
		c = &cols[i % n];
		if (!c->fits || c->left != (i < n))
			continue;
		snprintf(text, sizeof(text), "%s", c->head);
		if (row != NULL)
			cell(row, c, text);
		used += (size_t)snprintf(line + used, sizeof(line) - used, " %*s",
			c->left ? -c->width : c->width, text);
	}
	while (used > 0 && line[used - 1] == ' ')
		used--;
	printf("%.*s\n", (int)used, line);
}

/* Long texts of a row, and its figures if it has none in the table. */
static void
print_below(const json_t *row, const struct col *cols, uint32_t n)
{
	char line[CELL_MAX + 64], text[CELL_MAX];
	const json_t *v;
	bool lacks = true;

	for (uint32_t i = 0; i < n; i++)
		lacks &= !cols[i].fits || cols[i].part == NULL ||
			json_object_get(row, cols[i].key) == NULL;
	for (uint32_t i = 0; i < n; i++) {
		v = json_object_get(row, cols[i].key);
		if (cols[i].fits || !(json_is_string(v) || (lacks && is_figure(v))))
			continue;
		cell(row, &cols[i], text);
		snprintf(line, sizeof(line), "    %.40s: %s", cols[i].head, text);
		app_out_text(6, line);
	}
}

/* Nothing to report, unless all is asked for. */
static bool
is_nothing(const char *key, const json_t *v)
{
	return !app_opt_verbose && strcmp(key, "verify_errors") != 0 &&
		(json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0) ||
			(json_is_number(v) && json_number_value(v) == 0));
}

void
app_out_pairs(const json_t *row, const char *const *keys)
{
	json_t *rest = json_copy((json_t *)(uintptr_t)row), *v;
	char *json, *text = NULL;
	const char *key;
	size_t len;
	void *next;
	FILE *f = open_memstream(&text, &len);

	json_object_foreach_safe (rest, next, key, v)
		if (is_listed(conditions, key) || json_is_array(v) ||
			(keys != NULL && !is_listed(keys, key)) || is_nothing(key, v))
			json_object_del(rest, key);
	json = json_dumps(rest, JSON_REAL_PRECISION(6));
	json_decref(rest);
	if (f != NULL) {
		fputs("    ", f);
		for (char *at = json; at != NULL && at[1] != '\0'; at++)
			if (at != json && *at != '"' && !(*at == ':' && at[-1] == '"'))
				fputc(*at, f);
		fclose(f);
		app_out_text(4, text);
	}
	free(json);
	free(text);
}

void
app_out_verdict(const struct app_trial *t)
{
	char text[256];

	snprintf(text, sizeof(text), "  %s: cores %s", t->noisy ? "NOISY, no verdict" : "quiet",
		app_state_names[t->state]);
	if (t->count[APP_STATE_FAR] + t->count[APP_STATE_MIXED] != 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			" (slices near %u, far %u, mixed %u)", t->count[APP_STATE_NEAR],
			t->count[APP_STATE_FAR], t->count[APP_STATE_MIXED]);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %.2f %% stolen, %.2f %% away",
		t->steal_pct, t->away_pct);
	app_out_text(4, text);
}

/* With the conditions of a trial, unless that is NULL. */
static void
print_table(const char *title, const struct app_trial *t, const json_t *rows)
{
	struct col cols[COLS_MAX], *c;
	char *text = NULL;
	json_t *row, *slices;
	uint32_t n;
	size_t len, r;
	FILE *f = open_memstream(&text, &len);

	if (f == NULL)
		return;
	fprintf(f, "%s", title != NULL ? title : "");
	n = cols_find(cols, rows, t != NULL, title != NULL ? ": " : "", f);
	for (c = cols; c < cols + n && c->part == NULL; c++)
		;
	slices = c < cols + n ? json_object_get(json_array_get(rows, 0), c->key) : NULL;
	if (t != NULL && slices != NULL)
		fprintf(f, "; medians of %lld slices",
			json_integer_value(json_object_get(slices, "n")));
	fclose(f);
	printf("\n");
	app_out_text(2, text);
	free(text);
	cols_fit(cols, n, rows);
	print_line(cols, n, NULL);
	json_array_foreach (rows, r, row) {
		print_line(cols, n, row);
		print_below(row, cols, n);
		if (app_opt_verbose && t != NULL)
			app_out_pairs(row, NULL);
	}
	if (t != NULL)
		app_out_verdict(t);
	fflush(stdout);
}

void
app_out_table(const char *title, json_t *rows)
{
	print_table(title, NULL, rows);
	json_decref(rows);
}

int
app_out_rows(struct app_out *out, const char *title, const struct app_trial *t, json_t *rows)
{
	json_t *row;
	size_t i;
	int rc = 0;

	json_array_foreach (rows, i, row)
		json_object_update(row, out->common);
	if (json_array_size(rows) != 0)
		print_table(title, t, rows);
	json_array_foreach (rows, i, row)
		if (rc == 0)
			rc = app_json_write(out->json, json_incref(row));
	json_decref(rows);
	return rc;
}

void
app_out_progress(const char *what, uint64_t done, uint64_t all)
{
	static uint64_t last;
	uint64_t now = crpc_clock_ns();

	if (!isatty(STDERR_FILENO) || (done != all && now - last < PROGRESS_NS))
		return;
	last = now;
	if (done == all)
		fprintf(stderr, "\r%60s\r", "");
	else
		fprintf(stderr, "\r%s: round %lu of %lu", what, (unsigned long)done,
			(unsigned long)all);
	fflush(stderr);
}
