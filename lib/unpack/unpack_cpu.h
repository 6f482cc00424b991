/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNPACK_CPU_H
#define UNPACK_CPU_H

#include "crpc_unpack.h"

extern const struct crpc_unpack_ops __crpc_unpack_cpu;

#endif
