/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <unistd.h>

#include "app_out.h"
#include "crpc_clock.h"

#define PROGRESS_NS 200000000u

void
app_out_machine(const char *where, const char *lcores)
{
	char cpu[128];

	app_env_cpu(cpu, sizeof(cpu));
	printf("%s, %s %s, commit %s\n", cpu, where, lcores, app_env_commit());
	fflush(stdout);
}

void
app_out_trial(const struct app_trial *t)
{
	printf("slices near %u, far %u, mixed %u; stolen %.2f %%; %s\n", t->count[APP_STATE_NEAR],
		t->count[APP_STATE_FAR], t->count[APP_STATE_MIXED], t->steal_pct,
		t->noisy ? "NOISY: no verdict" : app_state_names[t->state]);
}

struct app_json_base
app_out_base(const struct app_trial *t, const char *app, const char *lcores, uint64_t repeats)
{
	return (struct app_json_base){.app = app,
		.lcores = lcores,
		.state = app_state_names[t->state],
		.steal_pct = t->steal_pct,
		.noisy = t->noisy,
		.repeats = repeats};
}

void
app_out_progress(const char *what, uint64_t done, uint64_t all)
{
	static uint64_t last;
	uint64_t now = crpc_clock_ns();

	if (!isatty(STDERR_FILENO) || (done != all && now - last < PROGRESS_NS))
		return;
	last = now;
	if (done == all)
		fprintf(stderr, "\r%60s\r", "");
	else
		fprintf(stderr, "\r%s: round %lu of %lu", what, (unsigned long)done,
			(unsigned long)all);
	fflush(stderr);
}

const char *
app_target_verdict(const struct app_target *t, bool noisy)
{
	if (t->value < 0)
		return t->unmeasured != NULL ? t->unmeasured : "not measured";
	if (noisy && !t->counted)
		return "noisy";
	if (t->at_most ? t->value <= t->bound : t->value >= t->bound)
		return "pass";
	return t->bounded ? "bounded" : "miss";
}

/* A text that is indented belongs to the line above; for machines it stands alone. */
int
app_out_target(const struct app_target *t, bool noisy, json_t *obj, FILE *json)
{
	const char *verdict = app_target_verdict(t, noisy), *why = t->why != NULL ? t->why : "";
	char value[32] = "-";

	if (t->value >= 0)
		snprintf(value, sizeof(value), "%.4g", t->value);
	printf("  %-56s %10s %-3s %s %-7.4g %s%s%s\n", t->what, value,
		t->unit != NULL ? t->unit : "", t->at_most ? "<=" : ">=", t->bound, verdict,
		why[0] != '\0' ? ": " : "", why);
	if (obj == NULL)
		return 0;
	json_object_set_new(obj, "target", json_string(t->what + strspn(t->what, " ")));
	json_object_set_new(obj, "value", t->value < 0 ? json_null() : json_real(t->value));
	json_object_set_new(obj, "bound", json_real(t->bound));
	json_object_set_new(obj, "at_most", json_boolean(t->at_most));
	json_object_set_new(obj, "verdict", json_string(verdict));
	if (t->why != NULL)
		json_object_set_new(obj, "why", json_string(why));
	return app_json_write(json, obj);
}
