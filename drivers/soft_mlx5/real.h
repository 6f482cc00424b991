/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_REAL_H
#define SOFT_MLX5_REAL_H

/**
 * @file
 * The functions behind those that preload.c replaces.
 */

#include <sys/stat.h>

struct ibv_context;
struct ibv_device;
struct mlx5dv_context_attr;

/**
 * The next definition of @p name after ours, resolved once; @p version may be NULL. With @p soname
 * it is in a library that may have been loaded with RTLD_LOCAL, where RTLD_NEXT finds nothing.
 */
void *sm_real(void *_Atomic *cache, const char *soname, const char *name, const char *version);

/** The function behind ours, and where, as for sm_real(); NULL, and errno: there is none. */
#define REAL(fn, soname, version)                                                                  \
	({                                                                                         \
		static void *_Atomic cache_;                                                       \
		(__typeof__(&fn))sm_real(&cache_, soname, #fn, version);                           \
	})

#define EXPORT __attribute__((visibility("default")))

int sm_real_fstat(int fd, struct stat *st);

#endif
