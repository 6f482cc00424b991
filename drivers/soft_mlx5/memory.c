/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A kernel pins the pages that it is given and says EFAULT if there are none. We look into the
 * process's own memory map, so that a wrong address fails in the command that names it and not in
 * the engine later.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "uverbs.h"

int
uv_check_range(uint64_t start, uint64_t len, bool write)
{
	uint64_t next = start, end = start + len; /* Everything below next was found. */
	unsigned long lo, hi;
	char *line = NULL, perms[5];
	size_t room = 0;
	FILE *maps;

	if (len == 0 || end < start || start == 0)
		return EFAULT;
	maps = fopen("/proc/self/maps", "re");
	if (maps == NULL)
		return errno;
	/* "start-end perms ...", in ascending order. */
	while (next < end && getline(&line, &room, maps) > 0) {
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, perms) != 3 || hi <= next)
			continue;
		if (lo > next || perms[0] != 'r' || (write && perms[1] != 'w'))
			break;
		next = hi;
	}
	free(line);
	fclose(maps);
	return next >= end ? 0 : EFAULT;
}

int
uv_check_queue(uint64_t buf, uint64_t len, uint64_t dbrec)
{
	int err = 0;

	if ((buf & 63) != 0 || (dbrec & 7) != 0)
		return EINVAL;
	if (len != 0)
		err = uv_check_range(buf, len, true);
	return err != 0 || dbrec == 0 ? err : uv_check_range(dbrec, 8, true);
}
