/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_FILE_H
#define CRPC_FILE_H

/**
 * @file
 * What libraries and programs of this project do with files. Not installed.
 */

#include <stdbool.h>

#include "crpc_util.h"

CRPC_BEGIN_DECLS

/**
 * Make the new name of a file last: that is in its folder. Some file systems have nothing to sync
 * there.
 *
 * @param path
 *   Of the file.
 * @return
 *   0 or -errno.
 */
int __crpc_folder_sync(const char *path);

/**
 * Open a file for reading whose contents are to be believed.
 *
 * @return
 *   A descriptor; -EPERM: it is no regular file of this user or of root, or another one can write
 *   it; -ELOOP: a symbolic link; or another -errno of open().
 */
int __crpc_file_open(const char *path);

/** Whether a file is a regular one of this user with one name: no other user can cut or map it. */
bool __crpc_file_is_private(int fd);

/** The number that a file begins with, as those of sysfs do; below 0: there is none. */
int64_t __crpc_file_number(const char *path);

/** The KiB of a line of /proc/meminfo, "MemFree:" say; UINT64_MAX >> 10: there is none. */
uint64_t __crpc_meminfo(const char *line);

CRPC_END_DECLS

#endif
