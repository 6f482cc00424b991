/* SPDX-License-Identifier: BSD-3-Clause */
/* The judge: each scenario as the code is, then each ordering removed. */
#include <stdio.h>

#include "weak_private.h"

#define SCENARIOS_MAX 33

bool weak_deep;

/* Every site of the instrumented sources: the linker's bounds of the section. */
extern struct weak_site *const __start_weak_sites[], *const __stop_weak_sites[];

static const char *const order_names[] = {
	[WEAK_ACQUIRE] = "acquire", [WEAK_RELEASE] = "release", [WEAK_SEQ_CST] = "seq_cst"};

static const char *
name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static bool
is_first(struct weak_site *const *site)
{
	struct weak_site *const *s;

	for (s = __start_weak_sites; s < site; s++)
		if (weak_same_site(*s, *site))
			return false;
	return true;
}

/* The scenarios that run a site. */
static unsigned int
ran_in(const struct weak_site *site)
{
	struct weak_site *const *s;
	unsigned int ran = 0;

	for (s = __start_weak_sites; s < __stop_weak_sites; s++)
		if (weak_same_site(*s, site))
			ran |= (*s)->ran;
	return ran;
}

static const char *
why_spare(const struct weak_spare *spares, const struct weak_site *site, unsigned int order)
{
	for (; spares->func != NULL; spares++)
		if (strcmp(spares->func, site->func) == 0 && (spares->orders & order) != 0 &&
			(spares->site_orders == 0 || spares->site_orders == site->orders))
			return spares->why;
	return NULL;
}

/*
 * Whether some scenario fails without one ordering, or the list says why none can: that takes all
 * executions, so it is tried only with --deep.
 */
static bool
judge(const struct weak_fault *fault, const struct weak_scenario *scenarios,
	const struct weak_spare *spares)
{
	const char *why = why_spare(spares, fault->site, fault->removed);
	unsigned int i, ran = ran_in(fault->site);
	struct weak_result r;
	bool found = false;

	printf("%s:%d %s without %s: ", name_of(fault->site->file), fault->site->line,
		fault->site->func, order_names[fault->removed]);
	for (i = 0; scenarios[i].name != NULL && !found; i++) {
		if ((ran >> i & 1) == 0 || (why != NULL && !weak_deep))
			continue;
		weak_setup(&scenarios[i], 0);
		found = !weak_explore(fault, &r);
		if (found)
			printf("%s: %s (execution %zu)\n", scenarios[i].name, r.what, r.executions);
	}
	if (!found)
		printf("not found%s%s%s\n", ran == 0 ? ", no scenario runs it" : "",
			why != NULL ? ", listed: " : "", why != NULL ? why : "");
	if (found && why != NULL)
		printf("... but the list says: %s\n", why);
	return found == (why == NULL);
}

static unsigned int
judge_all(const char *part, const struct weak_scenario *scenarios, const struct weak_spare *spares)
{
	unsigned int order, n = 0, bad = 0;
	struct weak_site *const *s;

	for (s = __start_weak_sites; s < __stop_weak_sites; s++) {
		if (strstr((*s)->file, part) == NULL || !is_first(s))
			continue;
		for (order = WEAK_ACQUIRE; order <= WEAK_SEQ_CST; order <<= 1) {
			if (((*s)->orders & order) == 0)
				continue;
			n++;
			bad += !judge(&(struct weak_fault){*s, order}, scenarios, spares);
		}
	}
	printf("%u orderings removed, %u judged wrongly\n", n, bad);
	return bad;
}

static bool
wanted(int argc, char **argv, const char *name)
{
	bool any = false;
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], name) == 0)
			return true;
		any = any || argv[i][0] != '-';
	}
	return !any;
}

static bool
option(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

int
weak_main(int argc, char **argv, const char *part, const struct weak_scenario *scenarios,
	const struct weak_spare *spares)
{
	struct weak_scenario chosen[SCENARIOS_MAX] = {{NULL}};
	unsigned int n = 0, bad = 0;
	const struct weak_scenario *s;
	struct weak_result r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	weak_deep = option(argc, argv, "--deep");
	for (s = scenarios; s->name != NULL && n < SCENARIOS_MAX - 1; s++) {
		if (!wanted(argc, argv, s->name))
			continue;
		chosen[n] = *s;
		weak_setup(s, 1u << n++);
		if (weak_explore(NULL, &r)) {
			printf("%s: %zu executions, %zu states\n", s->name, r.executions, r.states);
			continue;
		}
		bad++;
		printf("%s: execution %zu fails: %s\n", s->name, r.executions, r.what);
		if (option(argc, argv, "--trace"))
			weak_replay();
	}
	if (bad == 0)
		bad = judge_all(part, chosen, spares);
	return bad != 0;
}
