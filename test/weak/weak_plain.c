/* SPDX-License-Identifier: BSD-3-Clause */
/* What -fsanitize=thread calls at each plain access; the sanitizer's own library is not linked. */
#include "weak_private.h"

void *
weak_memcpy(void *to, const void *from, size_t n)
{
	weak_plain(from, n, false);
	weak_plain(to, n, true);
	return memmove(to, from, n);
}

void *
weak_memset(void *to, int byte, size_t n)
{
	weak_plain(to, n, true);
	return memset(to, byte, n);
}

void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);

void
__tsan_init(void)
{
}

void
__tsan_func_entry(void *pc)
{
	(void)pc;
}

void
__tsan_func_exit(void)
{
}

#define ACCESS(name, len, store)                                                                   \
	void __tsan_##name(void *p);                                                               \
	void __tsan_##name(void *p)                                                                \
	{                                                                                          \
		weak_plain(p, len, store);                                                         \
	}

ACCESS(read1, 1, false)
ACCESS(read2, 2, false)
ACCESS(read4, 4, false)
ACCESS(read8, 8, false)
ACCESS(read16, 16, false)
ACCESS(write1, 1, true)
ACCESS(write2, 2, true)
ACCESS(write4, 4, true)
ACCESS(write8, 8, true)
ACCESS(write16, 16, true)
ACCESS(unaligned_read2, 2, false)
ACCESS(unaligned_read4, 4, false)
ACCESS(unaligned_read8, 8, false)
ACCESS(unaligned_read16, 16, false)
ACCESS(unaligned_write2, 2, true)
ACCESS(unaligned_write4, 4, true)
ACCESS(unaligned_write8, 8, true)
ACCESS(unaligned_write16, 16, true)

#define RANGE(name, store)                                                                         \
	void __tsan_##name(void *p, long len);                                                     \
	void __tsan_##name(void *p, long len)                                                      \
	{                                                                                          \
		weak_plain(p, (size_t)len, store);                                                 \
	}

RANGE(read_range, false)
RANGE(write_range, true)

void *__tsan_memcpy(void *to, const void *from, size_t n);
void *__tsan_memmove(void *to, const void *from, size_t n);
void *__tsan_memset(void *to, int byte, size_t n);

void *
__tsan_memcpy(void *to, const void *from, size_t n)
{
	return weak_memcpy(to, from, n);
}

void *
__tsan_memmove(void *to, const void *from, size_t n)
{
	return weak_memcpy(to, from, n);
}

void *
__tsan_memset(void *to, int byte, size_t n)
{
	return weak_memset(to, byte, n);
}
