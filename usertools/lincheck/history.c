/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text of histories. Every field is checked: a history that is cut short or of another version
 * must not pass for one without faults.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define HEADER "# crpc-history 1"

static const char *const kinds[] = {"put", "get", "del", "cas", "snapshot", "restart"};

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

/* A value that was found: a word that is not 0, or none. */
static bool
word_or_none(const char *text, uint64_t *value)
{
	if (strcmp(text, "none") == 0) {
		*value = HIST_NONE;
		return true;
	}
	return number(text, value) && *value != HIST_NONE;
}

static bool
kind_read(const char *text, uint8_t *kind)
{
	for (*kind = 0; *kind < sizeof(kinds) / sizeof(kinds[0]); (*kind)++)
		if (strcmp(text, kinds[*kind]) == 0)
			return true;
	return false;
}

/* What was to be written. */
static bool
arg_read(struct hist_op *op, char *text)
{
	char *colon;

	switch (op->kind) {
	case HIST_PUT:
		return number(text, &op->value) && op->value != HIST_NONE;
	case HIST_CAS:
		colon = strchr(text, ':');
		if (colon == NULL)
			return false;
		*colon = '\0';
		return word_or_none(text, &op->expected) && number(colon + 1, &op->value) &&
			op->value != HIST_NONE;
	default:
		return strcmp(text, "-") == 0;
	}
}

static bool
result_read(struct hist_op *op, const char *text)
{
	if (!op->done)
		return strcmp(text, "?") == 0;
	op->ok = strcmp(text, "ok") == 0;
	switch (op->kind) {
	case HIST_PUT:
	case HIST_SNAPSHOT:
	case HIST_RESTART:
		return op->ok;
	case HIST_DEL:
		return op->ok || strcmp(text, "none") == 0;
	case HIST_CAS:
		return op->ok || word_or_none(text, &op->found);
	default:
		return word_or_none(text, &op->found);
	}
}

/* What is wrong with a line, or NULL. */
static const char *
line_read(const char *line, struct hist_op *op)
{
	struct fields f;
	uint64_t client;

	*op = (struct hist_op){.ret = UINT64_MAX};
	if (sscanf(line, "%23s %23s %23s %23s %11s %47s %23s %1s", f.client, f.key, f.call, f.ret,
		    f.kind, f.arg, f.result, f.rest) != 7)
		return "expected seven words";
	if (!number(f.client, &client) || client > UINT32_MAX)
		return "the client is no number";
	op->client = (uint32_t)client;
	op->every_key = strcmp(f.key, "*") == 0;
	if (!op->every_key && !number(f.key, &op->key))
		return "the key is no number";
	op->done = strcmp(f.ret, "?") != 0;
	if (!number(f.call, &op->call) || (op->done && !number(f.ret, &op->ret)))
		return "a time is no number";
	if (op->ret < op->call || (op->done && op->ret == UINT64_MAX))
		return "the answer is before the call";
	if (!kind_read(f.kind, &op->kind))
		return "expected put, get, del, cas, snapshot or restart";
	if (op->every_key && op->kind < HIST_SNAPSHOT)
		return "only a snapshot and a restart are of every key";
	if (!arg_read(op, f.arg))
		return "the argument does not fit the operation";
	if (!result_read(op, f.result))
		return "the result does not fit the operation";
	return NULL;
}

static int
by_key_and_call(const void *a, const void *b)
{
	const struct hist_op *x = a, *y = b;

	if (x->every_key != y->every_key)
		return x->every_key ? 1 : -1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->call != y->call)
		return x->call < y->call ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

/* Room for one more. */
static bool
grow(struct history *h)
{
	struct hist_op *op;

	if (h->n < h->room)
		return true;
	h->room = h->room != 0 ? 2 * h->room : 4096;
	op = realloc(h->op, h->room * sizeof(*op));
	if (op == NULL)
		return false;
	h->op = op;
	return true;
}

static const char *
lines_read(FILE *in, struct history *h, uint32_t *number_of)
{
	char line[256];
	const char *wrong;
	size_t len;

	while (fgets(line, sizeof(line), in) != NULL) {
		++*number_of;
		len = strlen(line);
		if (len == 0 || line[len - 1] != '\n')
			return "the line has no end: was the file cut short?";
		line[len - 1] = '\0';
		if (*number_of == 1) {
			if (strcmp(line, HEADER) != 0)
				return "expected \"" HEADER "\"";
			continue;
		}
		if (line[0] == '#' || line[0] == '\0')
			continue;
		if (!grow(h))
			return "out of memory";
		wrong = line_read(line, &h->op[h->n]);
		if (wrong != NULL)
			return wrong;
		h->op[h->n++].line = *number_of;
	}
	if (ferror(in))
		return strerror(errno);
	return *number_of == 0 ? "it is empty" : NULL;
}

const char *
hist_op_read(const struct app_history_op *in, struct hist_op *op, bool *skip)
{
#define BIT(state) (1u << APP_HISTORY_##state)
	/* What can come of each. */
	static const uint8_t states_of[] = {
		[APP_HISTORY_PUT] = BIT(OPEN) | BIT(OK) | BIT(REFUSED),
		[APP_HISTORY_GET] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(REFUSED),
		[APP_HISTORY_DEL] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(REFUSED),
		[APP_HISTORY_CAS] = BIT(OPEN) | BIT(OK) | BIT(NONE) | BIT(FAILED) | BIT(REFUSED),
	};
#undef BIT
	bool finds = in->kind == APP_HISTORY_GET || in->kind == APP_HISTORY_CAS;

	if (in->kind > APP_HISTORY_CAS || in->state > APP_HISTORY_REFUSED)
		return "the operation is none";
	if ((states_of[in->kind] >> in->state & 1) == 0)
		return "the answer is none to such an operation";
	*skip = in->state == APP_HISTORY_REFUSED;
	*op = (struct hist_op){.key = in->key,
		.call = in->call,
		.ret = in->state == APP_HISTORY_OPEN ? UINT64_MAX : in->ret,
		.expected = in->expected,
		.value = in->value,
		.found = finds ? in->found : HIST_NONE,
		.client = in->client,
		.kind = in->kind,
		.done = in->state != APP_HISTORY_OPEN,
		.ok = in->state == APP_HISTORY_OK};
	if (op->ret < op->call)
		return "the answer is before the call";
	if (op->done && op->ret == UINT64_MAX)
		return "the answer came at the time that stands for never";
	if ((in->kind == APP_HISTORY_PUT || in->kind == APP_HISTORY_CAS) && in->value == HIST_NONE)
		return "it writes no value";
	if (in->kind == APP_HISTORY_GET && op->done && op->ok != (in->found != HIST_NONE))
		return "a get that is done has a value, and only then";
	return NULL;
}

static const char *
binary_ops(FILE *in, uint64_t ops, struct history *h, uint32_t *number_of)
{
	struct app_history_op op;
	const char *wrong;
	bool skip;

	for (; *number_of < ops; ) {
		if (fread(&op, sizeof(op), 1, in) != 1)
			return "it ends early: was the file cut short?";
		++*number_of;
		if (!grow(h))
			return "out of memory";
		wrong = hist_op_read(&op, &h->op[h->n], &skip);
		if (wrong != NULL)
			return wrong;
		h->op[h->n].line = *number_of;
		h->n += !skip;
	}
	return NULL;
}

static const char *
binary_read(FILE *in, struct history *h, uint32_t *number_of)
{
	struct app_history_head head;

	if (fread(&head, sizeof(head), 1, in) != 1)
		return "the head is cut short";
	if (head.version != APP_HISTORY_VERSION || head.op_size != sizeof(struct app_history_op))
		return "it is of another version";
	if (head.lost != 0)
		return "operations are missing, for want of room: no verdict is possible";
	if (head.ops > UINT32_MAX)
		return "it has more operations than can be";
	return binary_ops(in, head.ops, h, number_of);
}

int
hist_read(FILE *in, const char *name, struct history *h)
{
	const uint64_t magic = APP_HISTORY_MAGIC;
	uint32_t line = 0;
	const char *wrong;
	bool binary;
	int first = getc(in);

	/* The text begins with another character. */
	binary = first == (int)(magic & 0xff);
	if (first != EOF)
		ungetc(first, in);
	wrong = binary ? binary_read(in, h, &line) : lines_read(in, h, &line);
	if (wrong != NULL) {
		fprintf(stderr, "crpc-lincheck: %s:%u: %s\n", name, line, wrong);
		free(h->op);
		*h = (struct history){0};
		return -1;
	}
	return 0;
}

/* The operations of every key are the last n: each key gets its own. */
static bool
every_key_spread(struct history *h, size_t n)
{
	size_t i, k, ops = h->n - n, keys = 0;
	struct hist_op *op, *to;

	for (i = 0; i < ops; i++)
		keys += i == 0 || h->op[i].key != h->op[i - 1].key;
	op = realloc(h->op, (ops + (keys + 1) * n) * sizeof(*op));
	if (op == NULL)
		return false;
	h->op = op;
	to = op + h->n;
	for (i = 0; i < ops; i++) {
		if (i != 0 && op[i].key == op[i - 1].key)
			continue;
		for (k = 0; k < n; k++, to++) {
			*to = op[ops + k];
			to->key = op[i].key;
			to->every_key = false;
		}
	}
	memmove(op + ops, op + h->n, keys * n * sizeof(*op));
	h->n = ops + keys * n;
	return true;
}

bool
hist_sort(struct history *h)
{
	size_t every = 0;

	if (h->n == 0)
		return true;
	qsort(h->op, h->n, sizeof(*h->op), by_key_and_call);
	while (every < h->n && h->op[h->n - 1 - every].every_key)
		every++;
	if (every == 0)
		return true;
	if (!every_key_spread(h, every))
		return false;
	qsort(h->op, h->n, sizeof(*h->op), by_key_and_call);
	return true;
}

size_t
hist_same_key(const struct hist_op *op, size_t n)
{
	size_t i = 1;

	while (i < n && op[i].key == op[0].key)
		i++;
	return i;
}

void
hist_write_value(FILE *out, uint64_t word)
{
	if (word == HIST_NONE)
		fputs("none", out);
	else
		fprintf(out, "0x%" PRIx64, word);
}

void
hist_write(FILE *out, const struct hist_op *op)
{
	fprintf(out, "%u %" PRIu64 " %" PRIu64 " ", op->client, op->key, op->call);
	if (op->done)
		fprintf(out, "%" PRIu64 " %s ", op->ret, kinds[op->kind]);
	else
		fprintf(out, "? %s ", kinds[op->kind]);
	if (op->kind == HIST_CAS) {
		hist_write_value(out, op->expected);
		fputc(':', out);
	}
	if (op->kind == HIST_PUT || op->kind == HIST_CAS)
		hist_write_value(out, op->value);
	else
		fputc('-', out);
	fputc(' ', out);
	if (!op->done)
		fputc('?', out);
	else if (op->ok && op->kind != HIST_GET)
		fputs("ok", out);
	else
		hist_write_value(out, op->found);
}
