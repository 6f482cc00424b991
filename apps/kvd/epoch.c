/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_file.h"
#include "epoch.h"

static bool
name_of(const char *path, uint32_t rank, const char *end, char name[PATH_MAX])
{
	return snprintf(name, PATH_MAX, "%s.%u.epoch%s", path, rank, end) < PATH_MAX;
}

/* The number in a file: digits and a newline, nothing else. */
static int
number_read(const char *name, uint64_t *n, char text[32])
{
	int fd = __crpc_file_open(name);
	ssize_t len;
	char *end;

	*n = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd == -EPERM ? -EBADMSG : fd;
	len = read(fd, text, 31);
	close(fd);
	if (len < 0)
		return -errno;
	text[len] = '\0';
	errno = 0;
	*n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || errno != 0 || strcmp(end, "\n") != 0 || *n == 0 ||
		*n >= KVD_EPOCH_MAX)
		return -EBADMSG;
	return 0;
}

static int
number_write(const char *name, const char *fresh, uint64_t n)
{
	int fd, rc = 0;

	unlink(fresh); /* Of one that was killed. */
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (dprintf(fd, "%" PRIu64 "\n", n) < 0 || fsync(fd) != 0)
		rc = -errno;
	if (close(fd) != 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(fresh, name) != 0)
		rc = -errno;
	return rc == 0 ? __crpc_folder_sync(name) : rc;
}

int
kvd_epoch_raise(const char *path, uint32_t rank, uint64_t *epoch, char why[256])
{
	char name[PATH_MAX], fresh[PATH_MAX], text[32] = "";
	uint64_t n;
	int rc;

	if (!name_of(path, rank, "", name) || !name_of(path, rank, ".new", fresh)) {
		snprintf(why, 256, "the path of %zu bytes is too long", strlen(path));
		return -ENAMETOOLONG;
	}
	rc = number_read(name, &n, text);
	if (rc == -EBADMSG) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(why, 256,
			"%.100s: expected a number from 1 to %" PRIu64
			", found '%s'; write one there that is above all earlier epochs",
			name, KVD_EPOCH_MAX - 1, text);
		return rc;
	}
	n = crpc_max(n, *epoch) + 1;
	if (rc == 0)
		rc = number_write(name, fresh, n);
	if (rc == 0)
		*epoch = n;
	else
		snprintf(why, 256, "%.200s: %s", name, strerror(-rc));
	return rc;
}

int
kvd_epoch_exists(const char *path, uint32_t rank)
{
	char name[PATH_MAX];

	return name_of(path, rank, "", name) && access(name, F_OK) == 0;
}
