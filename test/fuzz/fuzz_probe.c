/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiles and links where clang has its libFuzzer; meson asks. */
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return 0;
}
