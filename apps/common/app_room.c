/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "app_room.h"

static _Thread_local char why[160];

const char *
app_room_lacks(uint32_t files, uint64_t mib)
{
	struct rlimit limit = {0};
	uint32_t unused = 0;
	rlim_t fd;
	void *p;

	getrlimit(RLIMIT_NOFILE, &limit);
	for (fd = 0; fd < limit.rlim_cur && unused < files; fd++)
		unused += fcntl((int)fd, F_GETFD) < 0;
	if (unused < files) {
		snprintf(why, sizeof(why),
			"%u more open files are needed, and the limit of %lu leaves %u; raise it "
			"with ulimit -n",
			files, (unsigned long)limit.rlim_cur, unused);
		return why;
	}
	p = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		getrlimit(RLIMIT_AS, &limit);
		snprintf(why, sizeof(why),
			"%lu MiB more of address space are needed, and the limit of %lu MiB does "
			"not leave them; raise it with ulimit -v",
			(unsigned long)mib, (unsigned long)(limit.rlim_cur >> 20));
		return why;
	}
	munmap(p, mib << 20);
	return NULL;
}
