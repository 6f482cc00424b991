/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app_fail.h"
#include "app_json.h"

int
app_json_check(const char *option, const char *path)
{
	char folder[4096];
	struct stat st;
	bool there;

	if (path == NULL)
		return 0;
	snprintf(folder, sizeof(folder), "%s", path);
	there = stat(path, &st) == 0;
	if (there && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (access(there ? path : dirname(folder), there ? W_OK : W_OK | X_OK) == 0)
		return 0;
	return app_fail("--%s: cannot write '%s': %s; give a file in a folder you may write",
		option, path, strerror(errno));
}

FILE *
app_json_open(const char *option, const char *path)
{
	FILE *f = fopen(path, "a");

	if (f == NULL)
		app_fail("--%s: cannot append to '%s': %s; give a file in a folder you may write",
			option, path, strerror(errno));
	return f;
}

/*
 * At once: a rank that was taken for lost, and whoever took it for that, may append to one file,
 * and what stdio writes in pieces would be mixed.
 */
static int
line_write(FILE *out, const char *line, size_t len)
{
	int fd = fileno(out);

	if (fd < 0) /* Memory. */
		return fwrite(line, 1, len, out) == len && fflush(out) == 0 ? 0 : -EIO;
	errno = ENOSPC; /* Of a line that is cut short. */
	if (fflush(out) != 0 || write(fd, line, len) != (ssize_t)len)
		return -errno;
	return 0;
}

int
app_json_write(FILE *out, json_t *obj)
{
	static bool reported; /* What fails once fails for each line. */
	size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(9);
	size_t len = out == NULL ? 0 : json_dumpb(obj, NULL, 0, flags);
	char *line = malloc(len + 1);
	int rc = out == NULL ? 0 : -ENOMEM;

	if (line != NULL && len != 0 && json_dumpb(obj, line, len, flags) == len) {
		line[len] = '\n';
		rc = line_write(out, line, len + 1);
	}
	free(line);
	json_decref(obj);
	if (rc != 0 && !reported)
		app_fail("--json: a result cannot be written: %s; make room for it and run again",
			strerror(-rc));
	reported |= rc != 0;
	return rc;
}
