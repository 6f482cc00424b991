/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Histories in both forms. Every field is checked: a history that is cut short or of another
 * version must not pass for one without faults.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define HEADER "# crpc-history 1"

static const char *const kinds[APP_HISTORY_KINDS] = {
	"put", "get", "del", "cas", "snapshot", "restart"};

/* ---- operations ---- */

/* Check an operation, and set what means nothing in it. @return NULL, or what is wrong with it. */
static const char *
op_check(struct app_history_op *op)
{
#define BIT(state) (1u << APP_HISTORY_##state)
	/* What can come of each. */
	static const uint8_t states_of[APP_HISTORY_KINDS] = {
		[APP_HISTORY_PUT] = BIT(OPEN) | BIT(OK) | BIT(REFUSED),
		[APP_HISTORY_GET] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(REFUSED),
		[APP_HISTORY_DEL] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(REFUSED),
		[APP_HISTORY_CAS] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(FAILED) | BIT(REFUSED),
		[APP_HISTORY_SNAPSHOT] = BIT(OPEN) | BIT(OK),
		[APP_HISTORY_RESTART] = BIT(OPEN) | BIT(OK),
	};
#undef BIT
	bool writes = op->kind == APP_HISTORY_PUT || op->kind == APP_HISTORY_CAS;

	if (op->kind >= APP_HISTORY_KINDS || op->state > APP_HISTORY_REFUSED)
		return "the operation is none";
	if (op->every_key > (op->kind >= APP_HISTORY_SNAPSHOT))
		return "only a snapshot and a restart are of every key";
	if ((states_of[op->kind] >> op->state & 1) == 0)
		return "the result does not fit the operation";
	if (hist_done(op) && op->ret == UINT64_MAX)
		return "the answer came at the time that stands for never";
	if (!hist_done(op))
		op->ret = UINT64_MAX;
	if (op->ret < op->call)
		return "the answer is before the call";
	if (writes && op->value == HIST_NONE)
		return "it writes no value";
	if (op->kind == APP_HISTORY_GET && hist_done(op) &&
		hist_ok(op) != (op->found != HIST_NONE))
		return "a get that is done has a value, and only then";
	if (op->kind != APP_HISTORY_GET && op->kind != APP_HISTORY_CAS)
		op->found = HIST_NONE;
	return NULL;
}

const char *
hist_add(struct history *h, const struct app_history_op *op, uint64_t line)
{
	struct app_history_op *to = h->op;
	const char *wrong;

	if (h->n == h->room) {
		to = realloc(to, (2 * h->room + 4096) * sizeof(*to));
		if (to == NULL)
			return "out of memory";
		h->op = to;
		h->room = 2 * h->room + 4096;
	}
	to += h->n;
	*to = *op;
	to->line = line;
	wrong = op_check(to);
	h->n += wrong == NULL && op->state != APP_HISTORY_REFUSED;
	return wrong;
}

/* ---- the text ---- */

/* The words of one line. */
struct fields {
	char client[24], key[24], call[24], ret[24], kind[12], arg[48], result[24], rest[2];
};

static bool
number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	return end != text && *end == '\0' && errno == 0 && text[0] != '-';
}

/* A value: a word that is not 0, or none. */
static bool
word_or_none(const char *text, uint64_t *value)
{
	*value = HIST_NONE;
	return strcmp(text, "none") == 0 || (number(text, value) && *value != HIST_NONE);
}

/* What was to be written. */
static bool
arg_read(struct app_history_op *op, char *text)
{
	char *colon = strchr(text, ':');

	if (op->kind == APP_HISTORY_PUT)
		return word_or_none(text, &op->value);
	if (op->kind != APP_HISTORY_CAS)
		return strcmp(text, "-") == 0;
	if (colon == NULL)
		return false;
	*colon = '\0';
	return word_or_none(text, &op->expected) && word_or_none(colon + 1, &op->value);
}

/* What came of it. */
static bool
result_read(struct app_history_op *op, const char *text)
{
	bool get = op->kind == APP_HISTORY_GET;

	if (!hist_done(op))
		return strcmp(text, "?") == 0;
	if (strcmp(text, "ok") == 0)
		return true;
	if (!word_or_none(text, &op->found))
		return false;
	op->state = op->found == HIST_NONE ? APP_HISTORY_NONE
		: get                      ? APP_HISTORY_OK
					   : APP_HISTORY_FAILED;
	return true;
}

/* What is wrong with a line, or NULL. */
static const char *
line_read(const char *line, struct app_history_op *op)
{
	struct fields f;
	uint64_t client;

	*op = (struct app_history_op){0};
	if (sscanf(line, "%23s %23s %23s %23s %11s %47s %23s %1s", f.client, f.key, f.call, f.ret,
		    f.kind, f.arg, f.result, f.rest) != 7)
		return "expected seven words";
	if (!number(f.client, &client) || client > UINT32_MAX)
		return "the client is no number";
	op->client = (uint32_t)client;
	op->every_key = strcmp(f.key, "*") == 0;
	if (!op->every_key && !number(f.key, &op->key))
		return "the key is no number";
	op->state = strcmp(f.ret, "?") == 0 ? APP_HISTORY_OPEN : APP_HISTORY_OK;
	if (!number(f.call, &op->call) || (hist_done(op) && !number(f.ret, &op->ret)))
		return "a time is no number";
	while (op->kind < APP_HISTORY_KINDS && strcmp(f.kind, kinds[op->kind]) != 0)
		op->kind++;
	if (op->kind == APP_HISTORY_KINDS)
		return "expected put, get, del, cas, snapshot or restart";
	if (!arg_read(op, f.arg))
		return "the argument does not fit the operation";
	return result_read(op, f.result) ? NULL : "the result does not fit the operation";
}

static const char *
lines_read(FILE *in, struct history *h, uint64_t *number_of)
{
	struct app_history_op op;
	const char *wrong = NULL;
	char line[256];
	size_t len;

	while (wrong == NULL && fgets(line, sizeof(line), in) != NULL) {
		++*number_of;
		len = strlen(line);
		if (len == 0 || line[len - 1] != '\n')
			return "the line has no end: was the file cut short?";
		line[len - 1] = '\0';
		if (*number_of == 1 && strcmp(line, HEADER) != 0)
			return "expected \"" HEADER "\"";
		if (line[0] == '#' || line[0] == '\0')
			continue;
		wrong = line_read(line, &op);
		if (wrong == NULL)
			wrong = hist_add(h, &op, *number_of);
	}
	if (wrong == NULL && ferror(in))
		return strerror(errno);
	return *number_of == 0 ? "it is empty" : wrong;
}

/* ---- the binary form ---- */

static const char *
binary_read(FILE *in, struct history *h, uint64_t *number_of)
{
	struct app_history_head head;
	struct app_history_op op;
	const char *wrong = NULL;

	if (fread(&head, sizeof(head), 1, in) != 1)
		return "the head is cut short";
	if (head.version != APP_HISTORY_VERSION || head.op_size != sizeof(op))
		return "it is of another version";
	if (head.lost != 0)
		return "operations are missing, for want of room: no verdict is possible";
	while (wrong == NULL && *number_of < head.ops) {
		if (fread(&op, sizeof(op), 1, in) != 1)
			return "it ends early: was the file cut short?";
		wrong = hist_add(h, &op, ++*number_of);
	}
	return wrong;
}

int
hist_read(FILE *in, const char *name, struct history *h)
{
	const uint64_t magic = APP_HISTORY_MAGIC;
	uint64_t line = 0;
	const char *wrong;
	bool binary;
	int first = getc(in);

	/* The text begins with another character. */
	binary = first == (int)(magic & 0xff);
	if (first != EOF)
		ungetc(first, in);
	wrong = binary ? binary_read(in, h, &line) : lines_read(in, h, &line);
	if (wrong != NULL) {
		fprintf(stderr, "crpc-lincheck: %s:%" PRIu64 ": %s\n", name, line, wrong);
		free(h->op);
		*h = (struct history){0};
		return -1;
	}
	return 0;
}

/* ---- order ---- */

/* Those of every key come last. */
static int
by_key_and_call(const void *a, const void *b)
{
	const struct app_history_op *x = a, *y = b;

	if (x->every_key != y->every_key)
		return x->every_key ? 1 : -1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->call != y->call)
		return x->call < y->call ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

bool
hist_sort(struct history *h)
{
	size_t ops = 0, every, i, k;
	struct app_history_op op;

	if (h->n == 0)
		return true;
	qsort(h->op, h->n, sizeof(*h->op), by_key_and_call);
	while (ops < h->n && !h->op[ops].every_key)
		ops++;
	every = h->n - ops;
	for (i = 0; i < ops; i++)
		for (k = 0; k < every && (i == 0 || h->op[i].key != h->op[i - 1].key); k++) {
			op = h->op[ops + k];
			op.key = h->op[i].key;
			op.every_key = 0;
			if (hist_add(h, &op, op.line) != NULL)
				return false;
		}
	h->n -= every;
	memmove(&h->op[ops], &h->op[ops + every], (h->n - ops) * sizeof(*h->op));
	qsort(h->op, h->n, sizeof(*h->op), by_key_and_call);
	return true;
}

size_t
hist_same_key(const struct app_history_op *op, size_t n)
{
	size_t i = 1;

	while (i < n && op[i].key == op[0].key)
		i++;
	return i;
}

/* ---- writing ---- */

void
hist_write_value(FILE *out, uint64_t word)
{
	if (word == HIST_NONE)
		fputs("none", out);
	else
		fprintf(out, "0x%" PRIx64, word);
}

void
hist_write(FILE *out, const struct app_history_op *op)
{
	fprintf(out, "%u %" PRIu64 " %" PRIu64 " ", op->client, op->key, op->call);
	if (hist_done(op))
		fprintf(out, "%" PRIu64 " %s ", op->ret, kinds[op->kind]);
	else
		fprintf(out, "? %s ", kinds[op->kind]);
	if (op->kind == APP_HISTORY_CAS) {
		hist_write_value(out, op->expected);
		fputc(':', out);
	}
	if (op->kind == APP_HISTORY_PUT || op->kind == APP_HISTORY_CAS)
		hist_write_value(out, op->value);
	else
		fputc('-', out);
	fputc(' ', out);
	if (!hist_done(op))
		fputc('?', out);
	else if (hist_ok(op) && op->kind != APP_HISTORY_GET)
		fputs("ok", out);
	else
		hist_write_value(out, op->found);
}
