/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RB_CXX_H
#define RB_CXX_H

/* The peers that are C++ templates, behind C functions; the loops themselves are in cxx.cc. */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rb_cxx_run {
	uint32_t size;
	uint32_t burst;
	uint32_t inflight;
	bool stream;
	bool check;
	uint64_t end_ticks;
	const uint32_t *stop;
	uint64_t done;
	uint64_t bad;
};

/* t is an enum rb_transport. */
bool rb_cxx_has(int t);
void *rb_cxx_open(int t, uint32_t size, uint32_t depth);
void rb_cxx_close(int t, uint32_t size, void *q);
void rb_cxx_loop(int t, bool first, void *to, void *back, struct rb_cxx_run *run);

#ifdef __cplusplus
}
#endif

#endif
