/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BULK_CHECK_H
#define BULK_CHECK_H

/** @file The audit of a bulk object, which looks into it. */

#include "crpc_bulk.h"

/**
 * Audit what holds between any two calls: windows equal to the sum over open chunks, units taken
 * once, requests counted.
 *
 * @param at_rest
 *   True: also require full pools, and on working connections no chunk or message left.
 * @return
 *   0, or -EFAULT; the log names the connection, the rule, expected and found.
 */
int bulk_check(const struct crpc_bulk *b, bool at_rest);

#endif
