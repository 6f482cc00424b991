/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_COMPAT_H
#define CRPC_COMPAT_H

/**
 * @file
 * The one file that tests RTE_VERSION: what DPDK 22.11 lacks or spells otherwise.
 * Only code that links DPDK includes it.
 */

#include <rte_version.h>
#include <rte_telemetry.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define crpc_tel_add_dict_uint rte_tel_data_add_dict_u64
#else
#define crpc_tel_add_dict_uint rte_tel_data_add_dict_uint
#endif

#endif
