/* SPDX-License-Identifier: BSD-3-Clause */
/* In place of cxx.cc where there is no C++ compiler. */
#include <stddef.h>

#include "rb_cxx.h"

bool
rb_cxx_has(int t)
{
	return false;
}

void *
rb_cxx_open(int t, uint32_t size, uint32_t depth)
{
	return NULL;
}

void
rb_cxx_close(int t, uint32_t size, void *q)
{
}

void
rb_cxx_loop(int t, bool first, void *to, void *back, struct rb_cxx_run *run)
{
}
