/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"

bool app_opt_verbose, app_opt_mem_report;
const char *app_opt_driver;

const char *const app_idle_names[] = {"auto", "poll", "yield", NULL};
const char *const app_transport_names[] = {"rc", "dc", NULL};
const char *const app_connect_names[] = {"start", "use", NULL};
const char *const app_flow_names[] = {"window", "read", "notify", NULL};
const char *const app_flush_names[] = {"clocked", "immediate", "deferred", "hold", NULL};

/* Where help texts begin, behind the longest option. */
#define HELP_COLUMN 30

/* If arg is "--name" or "--name=value": true, and *value is the text behind '=' or NULL. */
static bool
opt_match(const char *arg, const char *name, const char **value)
{
	size_t len = strlen(name);

	if (strcmp(arg, "-v") == 0)
		arg = "--verbose";
	if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, len) != 0)
		return false;
	arg += 2 + len;
	if (*arg != '\0' && *arg != '=')
		return false;
	*value = *arg == '=' ? arg + 1 : NULL;
	return true;
}

bool
app_opt_number(const char **at, bool bytes, uint64_t *v)
{
	static const char units[] = "kKmMgG";
	const char *unit;
	uint64_t factor;
	bool good;
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*v = strtoull(*at, &end, 10);
	good = errno == 0;
	unit = *end == '\0' ? NULL : strchr(units, *end);
	if (unit != NULL) {
		factor = bytes || end[1] == 'i' ? 1024 : 1000;
		end += end[1] == 'i' ? 2 : 1;
		for (; unit >= units && good; unit -= 2)
			good = !__builtin_mul_overflow(*v, factor, v);
	}
	*at = end;
	return good;
}

static bool
is_bytes(const struct app_opt *opt)
{
	return strcmp(opt->arg, "BYTES") == 0;
}

/* As a user gives it. */
static const char *
number_text(const struct app_opt *opt, double number, char text[24])
{
	uint64_t n = (uint64_t)number;
	int unit = 0;

	if (opt->type == APP_OPT_REAL) {
		snprintf(text, 24, "%g", number);
		return text;
	}
	for (; is_bytes(opt) && n != 0 && n % 1024 == 0 && unit < 3; unit++)
		n /= 1024;
	snprintf(text, 24, "%" PRIu64 "%.1s", n, &"\0KMG"[unit]);
	return text;
}

static int
get_uint(const struct app_opt *opt, const char *text, uint64_t *out)
{
	char min[24], max[24];
	const char *end = text;
	uint64_t v;

	number_text(opt, opt->min, min);
	number_text(opt, opt->max, max);
	if (!app_opt_number(&end, is_bytes(opt), &v) || *end != '\0')
		return app_fail_once("--%s '%s' is not a whole number; give %s to %s", opt->name,
			text, min, max);
	if ((double)v < opt->min || (double)v > opt->max)
		return app_fail_once(
			"--%s %s is out of range; give %s to %s", opt->name, text, min, max);
	if (opt->pow2 && !crpc_is_pow2(v))
		return app_fail_once("--%s %s is not a power of two; give one from %s to %s",
			opt->name, text, min, max);
	if (opt->unit != 0 && v % opt->unit != 0)
		return app_fail_once("--%s %s is not a multiple of %u", opt->name, text, opt->unit);
	*out = v;
	return 0;
}

static int
set_real(const struct app_opt *opt, const char *text)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 || !isfinite(v))
		return app_fail_once("--%s '%s' is not a number; give %g to %g", opt->name, text,
			opt->min, opt->max);
	if (v < opt->min || v > opt->max)
		return app_fail_once("--%s %s is out of range; give %g to %g", opt->name, text,
			opt->min, opt->max);
	*(double *)opt->dest = v;
	return 0;
}

static int
get_choice(const struct app_opt *opt, const char *text, unsigned int *out)
{
	char list[256] = "";
	size_t len = 0;

	for (unsigned int i = 0; opt->choices[i] != NULL; i++) {
		if (strcmp(text, opt->choices[i]) == 0) {
			*out = i;
			return 0;
		}
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
				i == 0 ? "" : ", ", opt->choices[i]);
	}
	return app_fail_once("--%s '%s' is unknown; give one of: %s", opt->name, text, list);
}

/* A value twice in a list is taken once. */
static int
list_add(const struct app_opt *opt, struct app_list *list, uint64_t v)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->v[i] == v)
			return 0;
	if (list->n == APP_LIST_MAX)
		return app_fail_once(
			"--%s has more than %d values; give fewer", opt->name, APP_LIST_MAX);
	list->v[list->n++] = v;
	return 0;
}

static int
list_add_text(const struct app_opt *opt, struct app_list *list, const char *text)
{
	unsigned int i;
	uint64_t v;
	int rc = 0;

	if (opt->choices == NULL) {
		rc = get_uint(opt, text, &v);
		return rc != 0 ? rc : list_add(opt, list, v);
	}
	if (strcmp(text, "all") != 0) {
		rc = get_choice(opt, text, &i);
		return rc != 0 ? rc : list_add(opt, list, i);
	}
	for (i = 0; rc == 0 && opt->choices[i] != NULL; i++)
		rc = list_add(opt, list, i);
	return rc;
}

/* "a,b,c": replaces the list. */
static int
set_list(const struct app_opt *opt, const char *text)
{
	struct app_list list = {0};
	char word[64];
	size_t len;
	int rc;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		if (len >= sizeof(word))
			len = sizeof(word) - 1; /* Refused with what is seen of it. */
		memcpy(word, text, len);
		word[len] = '\0';
		rc = list_add_text(opt, &list, word);
		if (rc != 0)
			return rc;
		if (text[len] != ',')
			break;
	}
	*(struct app_list *)opt->dest = list;
	return 0;
}

static int
opt_set(const struct app_opt *opt, const char *text)
{
	switch (opt->type) {
	case APP_OPT_UINT:
		return get_uint(opt, text, opt->dest);
	case APP_OPT_REAL:
		return set_real(opt, text);
	case APP_OPT_CHOICE:
		return get_choice(opt, text, opt->dest);
	case APP_OPT_STRING:
		if (*text == '\0')
			return app_fail_once("--%s is empty; give %s", opt->name, opt->arg);
		*(const char **)opt->dest = text;
		return 0;
	case APP_OPT_LIST:
		return set_list(opt, text);
	case APP_OPT_FLAG:
		break;
	}
	return app_fail_once(
		"--%s takes no value, but '%s' was given; leave it out", opt->name, text);
}

static int
refuse(const char *arg)
{
	return app_fail_once("unknown option '%s'; --help lists the options", arg);
}

int
app_opt_parse_first(const struct app_opt *opts, size_t n, int argc, char *const **argv)
{
	char *const *end = *argv + argc;
	const char *value;
	size_t k;
	int rc;

	for (; *argv < end && (**argv)[0] == '-' && (**argv)[1] != '\0'; ++*argv) {
		if (strcmp(**argv, "--") == 0) {
			++*argv;
			break;
		}
		for (k = 0; k < n; k++)
			if (opt_match(**argv, opts[k].name, &value))
				break;
		if (k == n)
			return refuse(**argv);
		if (value == NULL && opts[k].type == APP_OPT_FLAG) {
			*(bool *)opts[k].dest = true;
			continue;
		}
		if (value == NULL) {
			if (++*argv == end)
				return app_fail_once(
					"--%s needs a value; give %s", opts[k].name, opts[k].arg);
			value = **argv;
		}
		rc = opt_set(&opts[k], value);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int
app_opt_parse(const struct app_opt *opts, size_t n, int argc, char *const *argv)
{
	char *const *end = argv + argc;
	int rc = app_opt_parse_first(opts, n, argc, &argv);

	return rc != 0 || argv == end ? rc : refuse(*argv);
}

const char *
app_opt_find(const char *name, int argc, char *const *argv)
{
	const char *found = NULL, *value;

	for (int i = 0; i < argc; i++) {
		if (!opt_match(argv[i], name, &value))
			continue;
		if (value == NULL)
			value = i + 1 < argc ? argv[i + 1] : "";
		found = value;
	}
	return found;
}

bool
app_axes_set(const struct app_axis *axes, uint32_t n, uint64_t at)
{
	for (; n > 0; at /= axes[n].list->n) {
		n--;
		*axes[n].to = (uint32_t)axes[n].list->v[at % axes[n].list->n];
	}
	return at == 0;
}

/* The values that a list has. */
static void
help_list(const struct app_opt *opt, FILE *out)
{
	const struct app_list *list = opt->dest;
	char text[24];

	for (uint32_t i = 0; i < list->n; i++) {
		fputs(i == 0 ? "; default " : ", ", out);
		fputs(opt->choices != NULL ? opt->choices[list->v[i]]
					   : number_text(opt, (double)list->v[i], text),
			out);
	}
}

static void
help_choices(const struct app_opt *opt, FILE *out)
{
	for (size_t i = 0; opt->choices[i] != NULL; i++)
		fprintf(out, "%s%s", i == 0 ? "" : ", ", opt->choices[i]);
	if (opt->type == APP_OPT_LIST)
		fputs(", or all", out);
}

/* What may be given, and the default, if there is one. */
static void
help_values(const struct app_opt *opt, FILE *out)
{
	char min[24], max[24];
	double v = -1;

	if (opt->type == APP_OPT_FLAG || opt->type == APP_OPT_STRING)
		return;
	fputs(" (", out);
	if (opt->choices != NULL)
		help_choices(opt, out);
	else
		fprintf(out, "%s to %s", number_text(opt, opt->min, min),
			number_text(opt, opt->max, max));
	if (opt->type == APP_OPT_LIST)
		help_list(opt, out);
	else if (opt->type == APP_OPT_CHOICE)
		fprintf(out, "; default %s", opt->choices[*(const unsigned int *)opt->dest]);
	else
		v = opt->type == APP_OPT_REAL ? *(const double *)opt->dest
					      : (double)*(const uint64_t *)opt->dest;
	if (opt->choices == NULL && v >= opt->min && v <= opt->max)
		fprintf(out, "; default %s", number_text(opt, v, min));
	fputc(')', out);
}

/* Words from the column where the line is, in lines of 80 columns that begin at `left`. */
static void
help_wrap(char *text, int at, int left, FILE *out)
{
	char *save = NULL;
	int len;

	for (char *word = strtok_r(text, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save)) {
		len = (int)strlen(word) + 1;
		if (at + len > 80) {
			fprintf(out, "\n%*s", left - 1, "");
			at = left - 1;
		}
		fprintf(out, " %s", word);
		at += len;
	}
	fputc('\n', out);
}

void
app_opt_help(const struct app_opt *opts, size_t n, FILE *out)
{
	char left[64], text[1024];
	FILE *f;

	for (size_t i = 0; i < n; i++) {
		snprintf(left, sizeof(left), "  --%s%s%s%s", opts[i].name,
			opts[i].arg == NULL ? "" : " ", opts[i].arg == NULL ? "" : opts[i].arg,
			opts[i].type == APP_OPT_LIST ? "[,...]" : "");
		fprintf(out, "%-*s", HELP_COLUMN - 1, left);
		f = fmemopen(text, sizeof(text), "w");
		if (f == NULL)
			return;
		fputs(opts[i].help, f);
		help_values(&opts[i], f);
		fclose(f);
		help_wrap(text, (int)crpc_max(strlen(left), HELP_COLUMN - 1u), HELP_COLUMN, out);
	}
}
