/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "verify.h"

void
kv_value_fill_rest(uint8_t *value, uint32_t len, uint64_t word)
{
	uint64_t w = kv_pattern(word, 1);
	uint32_t i = 1;

	for (; len >= 8; value += 8, len -= 8) {
		memcpy(value, &w, 8);
		w = kv_pattern(word, ++i);
	}
	memcpy(value, &w, len);
}

bool
kv_value_whole_rest(const uint8_t *value, uint32_t len, uint64_t word)
{
	uint64_t w, diff = 0, want = kv_pattern(word, 1);
	uint32_t i = 1;

	for (; len >= 8; value += 8, len -= 8) {
		memcpy(&w, value, 8);
		diff |= w ^ want;
		want = kv_pattern(word, ++i);
	}
	return diff == 0 && memcmp(value, &want, len) == 0;
}

int
kv_history_init(struct kv_history *h, uint32_t keys, uint32_t value_size, uint32_t writer,
	uint32_t writers, bool may_miss)
{
	*h = (struct kv_history){
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
kv_history_fini(struct kv_history *h)
{
	free(h->seen);
	h->seen = NULL;
}

/* The value of a get: is it one that somebody wrote to this key? */
static enum kv_fault
check_value(const struct kv_history *h, const struct kv_answer *a, uint64_t *word)
{
	uint32_t ahead;

	bool fixed = h->sizes == NULL || kv_sizes_fixed(h->sizes);

	if (a->hdr.value_len > h->value_size || (fixed && a->hdr.value_len != h->value_size))
		return KV_FAULT_LENGTH;
	if (!kv_value_whole(a->value, a->hdr.value_len, word))
		return KV_FAULT_TORN;
	if (!fixed && a->hdr.value_len != kv_sizes_of(h->sizes, *word))
		return KV_FAULT_LENGTH;
	if (kv_word_key(*word) != a->key)
		return KV_FAULT_FOREIGN;
	if (kv_word_writer(*word) >= h->writers)
		return KV_FAULT_WRITER;
	if (kv_word_writer(*word) == h->writer) {
		/* Behind our newest put, in the arithmetic of 24 bits. */
		ahead = (kv_word_seq(*word) - h->seq) & ((1u << KV_WORD_SEQ_BITS) - 1);
		if (ahead != 0 && !h->restored && ahead < 1u << (KV_WORD_SEQ_BITS - 1))
			return KV_FAULT_INVENTED;
	}
	return KV_FAULT_NONE;
}

/* The word that the answer's version names; 0 where it names none. */
static enum kv_fault
check_answer(const struct kv_history *h, const struct kv_answer *a, uint64_t *word)
{
	*word = 0;
	if (a->hdr.op != a->op)
		return KV_FAULT_MALFORMED;
	if (a->hdr.status == KV_NOT_FOUND && (a->op != KV_PUT || a->conditional))
		return h->may_miss ? KV_FAULT_NONE : KV_FAULT_MISSING;
	if (a->hdr.status == KV_MISMATCH && a->conditional)
		return check_value(h, a, word);
	if (a->hdr.status != KV_OK)
		return KV_FAULT_STATUS;
	if (a->op == KV_GET)
		return check_value(h, a, word);
	if (a->hdr.value_len != 0)
		return KV_FAULT_LENGTH;
	if (a->op == KV_PUT)
		*word = a->word;
	return KV_FAULT_NONE;
}

static bool
is_refusal(const struct kv_history *h, const struct kv_answer *a)
{
	return a->hdr.status == KV_NO_SPACE && h->may_refuse && a->op == KV_PUT &&
		a->hdr.op == KV_PUT && a->hdr.value_len == 0;
}

enum kv_fault
kv_history_check(struct kv_history *h, const struct kv_answer *a)
{
	struct kv_seen *seen = &h->seen[a->key];
	uint64_t version = a->hdr.version, word, least;
	enum kv_fault fault = check_answer(h, a, &word);
	bool missed = a->hdr.status == KV_NOT_FOUND;

	if (crpc_unlikely(is_refusal(h, a))) /* It says nothing about the key. */
		return KV_FAULT_NONE;
	if (crpc_unlikely(fault != KV_FAULT_NONE))
		return kv_history_fault(h, fault);
	/* A key absent at version v can be seen again from v + 1 on. */
	least = version + (word == 0);
	if (crpc_unlikely((missed ? least : version) < a->floor))
		return kv_history_fault(h, KV_FAULT_STALE);
	if (!missed && version == seen->version && seen->word != 0 && word != seen->word)
		return kv_history_fault(h, KV_FAULT_FORKED);
	if (least > seen->version || (least == seen->version && word != 0))
		*seen = (struct kv_seen){.version = least, .word = word};
	return KV_FAULT_NONE;
}

const char *
kv_fault_name(enum kv_fault fault)
{
	static const char *const names[KV_FAULTS] = {
		[KV_FAULT_NONE] = "none",
		[KV_FAULT_MALFORMED] = "malformed",
		[KV_FAULT_STATUS] = "wrong status",
		[KV_FAULT_LENGTH] = "wrong length",
		[KV_FAULT_FOREIGN] = "foreign key",
		[KV_FAULT_TORN] = "torn",
		[KV_FAULT_WRITER] = "unknown writer",
		[KV_FAULT_STALE] = "stale",
		[KV_FAULT_FORKED] = "forked",
		[KV_FAULT_INVENTED] = "invented",
		[KV_FAULT_MISSING] = "missing",
		[KV_FAULT_LOST] = "lost",
	};

	return fault < KV_FAULTS ? names[fault] : "unknown";
}
