/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_SYSFS_H
#define SOFT_MLX5_SYSFS_H

/**
 * @file
 * The part of /sys and /dev in which programs look for RDMA devices, as a real directory tree.
 *
 * The tree is constant for a version of the library, its devices and their addresses (port.h), and
 * private to the user. It is made by the first process that looks for a device and stays:
 * /dev/shm/soft_mlx5-<uid>/<hash of its content>/. Each process makes what it does not find, so
 * several can do so at once, and what was removed is there again for the next one. An entry appears
 * as a whole.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SM_DEVICE_NAME "mlx5_soft"

/* What the device says of itself in sysfs and in QUERY_DEVICE alike: a ConnectX-5. */
#define SM_VENDOR_ID  0x15b3
#define SM_VENDOR_OUI 0x02c9
#define SM_PART_ID    0x1017
#define SM_FW_MAJOR   16
#define SM_FW_MINOR   35
#define SM_FW_SUB     2000
#define SM_GID_PREFIX UINT64_C(0xfe80000000000000)
#define SM_NODE_GUID  UINT64_C(0x020000fffe000100) /**< Plus the number of the device. */

/* The numbers that the kernel gives to uverbs character devices. */
#define SM_UVERBS_MAJOR 231
#define SM_UVERBS_MINOR 192
/* And to a misc device, whose minor number is dynamic. */
#define SM_CM_MAJOR 10
#define SM_CM_MINOR 58

/** Called for each entry; @p link: @p text is what a link points to. False ends the walk. */
typedef bool (*sm_sysfs_visit)(void *arg, const char *path, const char *text, bool link);

/** Walk all entries, parents not included, in a fixed order. True if no visit ended it. */
bool sm_sysfs_walk(sm_sysfs_visit visit, void *arg);

/**
 * Make the tree below a directory that exists, or make it good.
 *
 * @param base
 *   Such as /dev/shm.
 * @param root
 *   Filled with the path of the tree.
 * @param size
 *   Of @p root.
 * @return
 *   0, or an errno value: EPERM (the place is not a private directory of this user), ENAMETOOLONG,
 *   or what the file system said.
 */
int sm_sysfs_make(const char *base, char *root, size_t size);

/**
 * The tree of this process, made at the first call, in the first of SOFT_MLX5_DIR, /dev/shm,
 * XDG_RUNTIME_DIR and /tmp that can hold it.
 *
 * @return
 *   Its path, or NULL: no place can hold it, which was said on stderr.
 */
const char *sm_sysfs_root(void);

#endif
