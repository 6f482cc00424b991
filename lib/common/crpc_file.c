/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crpc_file.h"

int
__crpc_folder_sync(const char *path)
{
	char copy[PATH_MAX];
	int fd, rc = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fsync(fd) != 0 && errno != EINVAL)
		rc = -errno;
	close(fd);
	return rc;
}

int
__crpc_file_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
		(st.st_uid == geteuid() || st.st_uid == 0))
		return fd;
	close(fd);
	return -EPERM;
}

bool
__crpc_file_is_private(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
		st.st_uid == geteuid();
}

int64_t
__crpc_file_number(const char *path)
{
	FILE *f = fopen(path, "re");
	int64_t n = -1;

	if (f != NULL && fscanf(f, "%" SCNd64, &n) != 1)
		n = -1;
	if (f != NULL)
		fclose(f);
	return n;
}

uint64_t
__crpc_meminfo(const char *line)
{
	FILE *f = fopen("/proc/meminfo", "re");
	uint64_t kib = UINT64_MAX >> 10;
	char text[128];

	while (f != NULL && fgets(text, sizeof(text), f) != NULL)
		if (strncmp(text, line, strlen(line)) == 0)
			kib = strtoull(text + strlen(line), NULL, 10);
	if (f != NULL)
		fclose(f);
	return kib;
}
