/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

/**
 * @file
 * A libcuda.so.1 without a GPU: the few functions that lib/unpack calls, with one device. A
 * kernel runs on its stream's own thread, by the code that the GPU would run, and later than its
 * launch. Device memory can not be touched by the host, and page-locked memory has another address
 * for the device than for the host, so whoever mixes them up is found out. A program that links it
 * gets it from dlopen("libcuda.so.1"), too.
 */

#include <stdbool.h>
#include <stdint.h>

/** Begin nothing more, until it is taken back. */
void fake_cuda_hold(bool hold);
/** That call fails with this CUresult, after so many that do not, and once; NULL: none does. */
void fake_cuda_fail(const char *call, int error, uint32_t after);
/** The next kernel touches nothing and ends with that: from then on everything fails with it. */
void fake_cuda_fault(int error);
/** Calls of that function since the program began. */
uint32_t fake_cuda_calls(const char *call);
/** What was made and is still there, contexts that are current to this thread included. */
uint32_t fake_cuda_left(void);

#endif
