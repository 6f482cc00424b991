/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_fail.h"
#include "plot.h"

extern char **environ;

/* Where the tool is, seen from the folder of this program: installed, or in the tree. */
static const char *const places[] = {"crpc-plot", "../../../usertools/crpc-plot"};

static int
find_tool(char tool[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;
	size_t i;

	if (n <= 0)
		return -ENOENT;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return -ENOENT;
	slash[1] = '\0';
	for (i = 0; i < CRPC_DIM(places); i++)
		if (snprintf(tool, PATH_MAX, "%s%s", self, places[i]) < PATH_MAX &&
			access(tool, X_OK) == 0)
			return 0;
	return -ENOENT;
}

int
kv_plot(const char *json, const char *folder)
{
	char tool[PATH_MAX], option[] = "-o", *args[5];
	int status = 0, rc;
	pid_t pid;

	rc = find_tool(tool);
	if (rc == 0) {
		args[0] = tool;
		args[1] = option;
		args[2] = strdup(folder);
		args[3] = strdup(json);
		args[4] = NULL;
		rc = posix_spawn(&pid, tool, NULL, NULL, args, environ);
		free(args[2]);
		free(args[3]);
	}
	if (rc == 0 && (waitpid(pid, &status, 0) != pid || status != 0))
		rc = EIO;
	if (rc == 0)
		return 0;
	app_fail("the pictures could not be drawn; install gnuplot and python3, then: crpc-plot "
		 "-o %s %s",
		folder, json);
	return APP_EXIT_RUN;
}
