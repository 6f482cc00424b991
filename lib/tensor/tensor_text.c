/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors as text, for logs and tools. Nothing here trusts a field.
 */
#include <stdarg.h>
#include <stdio.h>

#include "crpc_tensor.h"

static const char *const dtypes[] = {
		[CRPC_TENSOR_U8] = "u8",
		[CRPC_TENSOR_I8] = "i8",
		[CRPC_TENSOR_U16] = "u16",
		[CRPC_TENSOR_I16] = "i16",
		[CRPC_TENSOR_U32] = "u32",
		[CRPC_TENSOR_I32] = "i32",
		[CRPC_TENSOR_U64] = "u64",
		[CRPC_TENSOR_I64] = "i64",
		[CRPC_TENSOR_F16] = "f16",
		[CRPC_TENSOR_BF16] = "bf16",
		[CRPC_TENSOR_F32] = "f32",
		[CRPC_TENSOR_F64] = "f64",
};

const char *
crpc_tensor_dtype_name(uint32_t dtype)
{
	return dtype < CRPC_DIM(dtypes) ? dtypes[dtype] : NULL;
}

/* A text that is being written; nothing more fits once at == len. */
struct text {
	char *buf;
	size_t len, at;
};

static void crpc_printf(2, 3)
add(struct text *text, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text->buf + text->at, text->len - text->at, fmt, ap);
	va_end(ap);
	if (n > 0)
		text->at = crpc_min(text->at + (size_t)n, text->len);
}

const char *
crpc_tensor_text(const struct crpc_tensor *t, char *buf, size_t len)
{
	struct text text = {.buf = buf, .len = len};
	const char *name = crpc_tensor_dtype_name(t->dtype);
	uint32_t rank = (uint32_t)crpc_min(t->rank, CRPC_TENSOR_RANK_MAX);

	if (len == 0)
		return buf;
	buf[0] = '\0';
	if (t->magic != CRPC_TENSOR_MAGIC || t->version != CRPC_TENSOR_VERSION)
		add(&text, "magic 0x%x version %u: ", t->magic, t->version);
	if (name != NULL)
		add(&text, "%s[", name);
	else
		add(&text, "type %u[", t->dtype);
	for (uint32_t i = 0; i < rank; i++)
		add(&text, "%s%llu", i == 0 ? "" : ",", (unsigned long long)t->shape[i]);
	add(&text, "] stride [");
	for (uint32_t i = 0; i < rank; i++)
		add(&text, "%s%lld", i == 0 ? "" : ",", (long long)t->stride[i]);
	add(&text, "] segment %u", t->segment);
	if (t->rank > CRPC_TENSOR_RANK_MAX)
		add(&text, " rank %u", t->rank);
	if (t->length == 0)
		add(&text, " no bytes at %llu", (unsigned long long)t->offset);
	else if (t->length - 1 <= UINT64_MAX - t->offset)
		add(&text, " bytes %llu..%llu", (unsigned long long)t->offset,
				(unsigned long long)(t->offset + t->length - 1));
	else
		add(&text, " %llu bytes at %llu", (unsigned long long)t->length,
				(unsigned long long)t->offset);
	return buf;
}
