/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A kernel pins the pages that it is given and says EFAULT if there are none. We look into the
 * process's own memory map, so that a wrong address fails in the command that names it and not in
 * the engine later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "uverbs.h"

struct range {
	uint64_t next; /* everything below was found */
	uint64_t end;
	bool write;
	bool gap;
};

/* One line of /proc/self/maps: "start-end perms ...". Lines come in ascending order. */
static void
take_line(struct range *r, const char *line)
{
	unsigned long lo, hi;
	char perms[5];

	if (sscanf(line, "%lx-%lx %4s", &lo, &hi, perms) != 3 || hi <= r->next)
		return;
	if (lo > r->next || perms[0] != 'r' || (r->write && perms[1] != 'w'))
		r->gap = true;
	else
		r->next = hi;
}

/* The lines that are whole in buf; the number of bytes that they took. */
static size_t
take_lines(struct range *r, char *buf, size_t len)
{
	char *line = buf, *nl;

	while (r->next < r->end && !r->gap &&
			(nl = memchr(line, '\n', len - (size_t)(line - buf))) != NULL) {
		*nl = '\0';
		take_line(r, line);
		line = nl + 1;
	}
	return (size_t)(line - buf);
}

int
uv_check_range(uint64_t start, uint64_t len, bool write)
{
	struct range r = {.next = start, .end = start + len, .write = write};
	char buf[8192];
	size_t have = 0, done;
	ssize_t n;
	int fd;

	if (len == 0 || r.end < start || start == 0)
		return EFAULT;
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	while (r.next < r.end && !r.gap && have < sizeof(buf)) {
		n = read(fd, buf + have, sizeof(buf) - have);
		if (n <= 0)
			break;
		have += (size_t)n;
		done = take_lines(&r, buf, have);
		memmove(buf, buf + done, have - done);
		have -= done;
	}
	close(fd);
	return r.next >= r.end && !r.gap ? 0 : EFAULT;
}
