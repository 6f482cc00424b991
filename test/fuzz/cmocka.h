/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_CMOCKA_H
#define FUZZ_CMOCKA_H

/*
 * In the place of cmocka's for rigs of other tests that a target uses: what they assert must hold
 * for every input.
 */

#include "fuzz.h"

#define assert_true(c) fuzz_check(c)
#define assert_int_equal(a, b) fuzz_check((a) == (b))
#define assert_int_not_equal(a, b) fuzz_check((a) != (b))
#define assert_non_null(p) fuzz_check((p) != NULL)
#define fail_msg(...) fuzz_check(0)

#endif
