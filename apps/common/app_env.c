/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "app_commit.h"
#include "app_env.h"

const char *
app_env_commit(void)
{
	return APP_COMMIT;
}

/* The text behind "name : " in a file of such lines. */
static bool
proc_field(const char *path, const char *name, char *buf, size_t len)
{
	char line[512];
	bool found = false;
	FILE *f = fopen(path, "r");
	char *p = NULL;

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL)
		found = strncmp(line, name, strlen(name)) == 0 && (p = strchr(line, ':')) != NULL;
	if (found) {
		p += 1 + strspn(p + 1, " \t");
		p[strcspn(p, "\n")] = '\0';
		snprintf(buf, len, "%s", p);
	}
	fclose(f);
	return found;
}

void
app_env_cpu(char *buf, size_t len)
{
	if (!proc_field("/proc/cpuinfo", "model name", buf, len))
		snprintf(buf, len, "unknown");
}

uint64_t
app_env_rss_kib(void)
{
	char text[64];
	unsigned long long kib;

	if (!proc_field("/proc/self/status", "VmHWM", text, sizeof(text)) ||
		sscanf(text, "%llu", &kib) != 1)
		return 0;
	return kib;
}

void
app_env_steal(struct app_steal *now)
{
	/* user nice system idle iowait irq softirq steal */
	unsigned long long v[8] = {0};
	FILE *f = fopen("/proc/stat", "r");
	int n;

	*now = (struct app_steal){0};
	if (f == NULL)
		return;
	n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		&v[4], &v[5], &v[6], &v[7]);
	fclose(f);
	if (n != 8)
		return;
	for (int i = 0; i < 8; i++)
		now->total += v[i];
	now->steal = v[7];
}

double
app_env_steal_pct(const struct app_steal *begin)
{
	struct app_steal now;

	app_env_steal(&now);
	if (now.total <= begin->total)
		return 0;
	return 100.0 * (double)(now.steal - begin->steal) / (double)(now.total - begin->total);
}

const double app_pause_us[APP_PAUSES] = {
	20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10000};

void
app_env_pause(double over[APP_PAUSES], uint64_t ns)
{
	double us = (double)ns / 1e3;

	for (uint32_t i = 0; i < APP_PAUSES && us > app_pause_us[i]; i++)
		over[i] += us - app_pause_us[i];
}

double
app_env_pause_floor(const double over[APP_PAUSES], double part)
{
	uint32_t i;

	for (i = 0; i < APP_PAUSES && over[i] >= part; i++)
		;
	return i == 0 ? 0 : app_pause_us[i - 1];
}

bool
app_env_answer(const char *name, int argc, char *const *argv,
	void (*help)(int argc, char *const *argv))
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--version") == 0) {
			printf("%s %s (%s)\n", name, CRPC_VERSION, app_env_commit());
			return true;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			help(argc, argv);
			printf("\n%s --version prints the version.\n", name);
			return true;
		}
	}
	return false;
}
