/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_DIR_H
#define FUZZ_DIR_H

/*
 * A directory in shared memory for a target's segments. A fuzzer ends in every way there is, so
 * that no handler at its end can be relied on: each target locks its directory, and first removes
 * those that are not locked.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#define FUZZ_DIR_ROOT "/dev/shm"

static char dir[64];

/* A descriptor that holds the directory's lock, or -1: another process has it, or it is gone. */
static int
fuzz_dir_lock(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st, now;

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && stat(path, &now) == 0 &&
			st.st_ino == now.st_ino)
		return fd;
	close(fd);
	return -1;
}

/* Remove what lies in the directory, and it. */
static void
fuzz_dir_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	rmdir(path);
}

/* Remove what targets of this name left that were killed. */
static void
fuzz_dir_sweep(const char *prefix)
{
	DIR *d = opendir(FUZZ_DIR_ROOT);
	char path[sizeof(FUZZ_DIR_ROOT) + 256];
	struct dirent *e;
	int fd;

	while (d != NULL && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), FUZZ_DIR_ROOT "/%s", e->d_name);
		fd = fuzz_dir_lock(path);
		if (fd < 0)
			continue;
		fuzz_dir_empty(path);
		close(fd);
	}
	if (d != NULL)
		closedir(d);
}

static void
fuzz_dir_end(void)
{
	fuzz_dir_empty(dir);
}

/* Make `dir`, whose name begins with the prefix, and keep it to the process's end. */
static void
fuzz_dir_make(const char *prefix)
{
	fuzz_dir_sweep(prefix);
	do {
		snprintf(dir, sizeof(dir), FUZZ_DIR_ROOT "/%sXXXXXX", prefix);
		fuzz_check(mkdtemp(dir) != NULL);
	} while (fuzz_dir_lock(dir) < 0); /* a sweeper was faster */
	atexit(fuzz_dir_end);
}

#endif
