/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "app_verify.h"

void
app_value_fill_rest(uint8_t *value, uint32_t len, uint64_t word)
{
	uint64_t w = app_pattern(word, 1);
	uint32_t i = 1;

	for (; len >= 8; value += 8, len -= 8) {
		memcpy(value, &w, 8);
		w = app_pattern(word, ++i);
	}
	memcpy(value, &w, len);
}

bool
app_value_whole_rest(const uint8_t *value, uint32_t len, uint64_t word)
{
	uint64_t w, diff = 0, want = app_pattern(word, 1);
	uint32_t i = 1;

	for (; len >= 8; value += 8, len -= 8) {
		memcpy(&w, value, 8);
		diff |= w ^ want;
		want = app_pattern(word, ++i);
	}
	return diff == 0 && memcmp(value, &want, len) == 0;
}

int
app_verify_init(struct app_verify *h, uint32_t keys, uint32_t value_size, uint32_t writer,
	uint32_t writers, bool may_miss)
{
	*h = (struct app_verify){
		.keys = keys,
		.value_size = value_size,
		.writer = writer,
		.writers = writers,
		.may_miss = may_miss,
	};
	h->seen = calloc(keys, sizeof(*h->seen));
	return h->seen == NULL ? -ENOMEM : 0;
}

void
app_verify_fini(struct app_verify *h)
{
	free(h->seen);
	h->seen = NULL;
}

/* The value of a get: is it one that somebody wrote to this key? */
static enum app_fault
check_value(const struct app_verify *h, const struct app_answer *a, uint64_t *word)
{
	uint32_t ahead;

	bool fixed = h->sizes == NULL || app_sizes_fixed(h->sizes);

	if (a->hdr.value_len > h->value_size || (fixed && a->hdr.value_len != h->value_size))
		return APP_FAULT_LENGTH;
	if (!app_value_whole(a->value, a->hdr.value_len, word))
		return APP_FAULT_TORN;
	if (!fixed && a->hdr.value_len != app_sizes_of(h->sizes, *word))
		return APP_FAULT_LENGTH;
	if (app_word_key(*word) != a->key)
		return APP_FAULT_FOREIGN;
	if (app_word_writer(*word) >= h->writers)
		return APP_FAULT_WRITER;
	if (app_word_writer(*word) == h->writer) {
		/* Behind our newest put, in the arithmetic of 24 bits. */
		ahead = (app_word_seq(*word) - h->seq) & ((1u << APP_WORD_SEQ_BITS) - 1);
		if (ahead != 0 && !h->restored && ahead < 1u << (APP_WORD_SEQ_BITS - 1))
			return APP_FAULT_INVENTED;
	}
	return APP_FAULT_NONE;
}

/* The word that the answer's version names; 0 where it names none. */
static enum app_fault
check_answer(const struct app_verify *h, const struct app_answer *a, uint64_t *word)
{
	*word = 0;
	if (a->hdr.op != a->op)
		return APP_FAULT_MALFORMED;
	if (a->hdr.status == CRPC_KV_NOT_FOUND && (a->op != CRPC_KV_PUT || a->conditional))
		return h->may_miss ? APP_FAULT_NONE : APP_FAULT_MISSING;
	if (a->hdr.status == CRPC_KV_MISMATCH && a->conditional)
		return check_value(h, a, word);
	if (a->hdr.status != CRPC_KV_OK)
		return APP_FAULT_STATUS;
	if (a->op == CRPC_KV_GET)
		return check_value(h, a, word);
	if (a->hdr.value_len != 0)
		return APP_FAULT_LENGTH;
	if (a->op == CRPC_KV_PUT)
		*word = a->word;
	return APP_FAULT_NONE;
}

static bool
is_refusal(const struct app_verify *h, const struct app_answer *a)
{
	return a->hdr.status == CRPC_KV_NO_SPACE && h->may_refuse && a->op == CRPC_KV_PUT &&
		a->hdr.op == CRPC_KV_PUT && a->hdr.value_len == 0;
}

enum app_fault
app_verify_check(struct app_verify *h, const struct app_answer *a)
{
	struct app_seen *seen = &h->seen[a->key];
	uint64_t version = a->hdr.version, word, least;
	enum app_fault fault = check_answer(h, a, &word);
	bool missed = a->hdr.status == CRPC_KV_NOT_FOUND;

	if (crpc_unlikely(is_refusal(h, a))) /* It says nothing about the key. */
		return APP_FAULT_NONE;
	if (crpc_unlikely(fault != APP_FAULT_NONE))
		return app_verify_fault(h, fault);
	/* A key absent at version v can be seen again from v + 1 on. */
	least = version + (word == 0);
	if (crpc_unlikely((missed ? least : version) < a->floor))
		return app_verify_fault(h, APP_FAULT_STALE);
	if (!missed && version == seen->version && seen->word != 0 && word != seen->word)
		return app_verify_fault(h, APP_FAULT_FORKED);
	if (least > seen->version || (least == seen->version && word != 0))
		*seen = (struct app_seen){.version = least, .word = word};
	return APP_FAULT_NONE;
}

const char *
app_fault_name(enum app_fault fault)
{
	static const char *const names[APP_FAULTS] = {
		[APP_FAULT_NONE] = "none",
		[APP_FAULT_MALFORMED] = "malformed",
		[APP_FAULT_STATUS] = "wrong status",
		[APP_FAULT_LENGTH] = "wrong length",
		[APP_FAULT_FOREIGN] = "foreign key",
		[APP_FAULT_TORN] = "torn",
		[APP_FAULT_WRITER] = "unknown writer",
		[APP_FAULT_STALE] = "stale",
		[APP_FAULT_FORKED] = "forked",
		[APP_FAULT_INVENTED] = "invented",
		[APP_FAULT_MISSING] = "missing",
		[APP_FAULT_LOST] = "lost",
	};

	return fault < APP_FAULTS ? names[fault] : "unknown";
}
