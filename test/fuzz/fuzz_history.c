/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Histories that crpc-lincheck is given, in both forms: whatever the file holds, it is read or
 * refused; what was read is the same again after it was written as text; and the search ends with a
 * verdict, by its limit if by nothing else.
 *
 * Input: the file.
 */
#include <string.h>

#include "app_history.h"
#include "fuzz.h"
#include "wgl.h"

#define LIMIT 20000u /* Configurations of a key. */
#define ROOM  (1u << 20)

static int
read_all(const uint8_t *data, size_t size, struct history *h)
{
	FILE *in = fmemopen((void *)(uintptr_t)data, size, "r");
	int rc;

	fuzz_check(in != NULL);
	*h = (struct history){0};
	rc = hist_read(in, "input", h);
	fclose(in);
	fuzz_check(rc == 0 || (rc == -1 && h->op == NULL));
	return rc;
}

/* What an operation says, and not how it was written. */
static void
same(const struct app_history_op *a, const struct app_history_op *b)
{
	fuzz_check(a->key == b->key && a->call == b->call && a->client == b->client);
	fuzz_check(a->kind == b->kind && hist_done(a) == hist_done(b) && a->ret == b->ret);
	if (a->kind == APP_HISTORY_PUT || a->kind == APP_HISTORY_CAS)
		fuzz_check(a->value == b->value);
	if (a->kind == APP_HISTORY_CAS)
		fuzz_check(a->expected == b->expected);
	if (a->kind != APP_HISTORY_GET)
		fuzz_check(hist_ok(a) == hist_ok(b));
	if (hist_done(a) && (a->kind == APP_HISTORY_GET || !hist_ok(a)))
		fuzz_check(a->found == b->found);
}

static void
write_and_read(const struct history *h)
{
	static char text[ROOM];
	FILE *out = fmemopen(text, sizeof(text), "w");
	struct history again;
	long bytes;

	fuzz_check(out != NULL);
	fprintf(out, "# crpc-history 1\n");
	for (size_t i = 0; i < h->n; i++) {
		hist_write(out, &h->op[i]);
		fputc('\n', out);
	}
	bytes = ftell(out);
	fclose(out);
	if (bytes < 0 || (size_t)bytes >= sizeof(text) - 1)
		return;
	fuzz_check(read_all((const uint8_t *)text, (size_t)bytes, &again) == 0);
	fuzz_check(again.n == h->n);
	for (size_t i = 0; i < h->n; i++)
		same(&h->op[i], &again.op[i]);
	free(again.op);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wgl_report report;
	struct history h;
	size_t at, n;

	fuzz_quiet();
	if (size == 0 || read_all(data, size, &h) != 0)
		return 0;
	write_and_read(&h);
	hist_sort(&h);
	for (at = 0; at < h.n; at += n) {
		for (n = 1; at + n < h.n && h.op[at + n].key == h.op[at].key; n++)
			fuzz_check(h.op[at + n].call >= h.op[at + n - 1].call);
		switch (wgl_check(h.op + at, n, LIMIT, &report)) {
		case WGL_NO:
			fuzz_check(report.taken < n && report.stuck < n);
			break;
		case WGL_YES:
		case WGL_UNDECIDED:
			break;
		default:
			fuzz_check(0);
		}
	}
	free(h.op);
	return 0;
}
