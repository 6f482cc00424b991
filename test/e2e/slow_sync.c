/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: a disk that takes SLOW_SYNC_S seconds to make a file lasting. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fsync(int fd);

int
fsync(int fd)
{
	const char *s = getenv("SLOW_SYNC_S");
	struct timespec left = {.tv_sec = s == NULL ? 0 : atoi(s)};
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		while (nanosleep(&left, &left) != 0)
			;
	return (int)syscall(SYS_fsync, fd);
}
