/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_json.h"

int
app_json_check(const char *option, const char *path)
{
	char dir[4096];
	char *slash;

	if (access(path, F_OK) == 0) {
		if (access(path, W_OK) == 0)
			return 0;
	} else {
		snprintf(dir, sizeof(dir), "%s", path);
		slash = strrchr(dir, '/');
		if (slash == NULL)
			snprintf(dir, sizeof(dir), ".");
		else
			slash[slash == dir ? 1 : 0] = '\0';
		if (access(dir, W_OK | X_OK) == 0)
			return 0;
	}
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

json_t *
app_json_new(const struct app_json_base *base)
{
	json_t *obj = json_object();
	char cpu[128];

	app_env_cpu(cpu, sizeof(cpu));
	json_object_set_new(obj, "app", json_string(base->app));
	json_object_set_new(obj, "version", json_string(CRPC_VERSION));
	json_object_set_new(obj, "commit", json_string(app_env_commit()));
	json_object_set_new(obj, "cpu", json_string(cpu));
	json_object_set_new(obj, "lcores", json_string(base->lcores));
	json_object_set_new(obj, "state", json_string(base->state));
	json_object_set_new(obj, "steal_pct", json_real(base->steal_pct));
	json_object_set_new(obj, "noisy", json_boolean(base->noisy));
	json_object_set_new(obj, "repeats", json_integer((json_int_t)base->repeats));
	return obj;
}

void
app_json_figure(
	json_t *obj, const char *key, double median, double min, double max, const char *unit)
{
	json_t *fig = json_object();

	json_object_set_new(fig, "median", json_real(median));
	json_object_set_new(fig, "min", json_real(min));
	json_object_set_new(fig, "max", json_real(max));
	json_object_set_new(fig, "unit", json_string(unit));
	json_object_set_new(obj, key, fig);
}

int
app_json_write(FILE *out, json_t *obj)
{
	int rc = json_dumpf(obj, out, JSON_COMPACT | JSON_REAL_PRECISION(9));

	json_decref(obj);
	if (rc != 0 || fputc('\n', out) == EOF || fflush(out) != 0)
		return -EIO;
	return 0;
}
