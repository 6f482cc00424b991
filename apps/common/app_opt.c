/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"

/* If arg is "--name" or "--name=value": true, and *value is the text behind '=' or NULL. */
static bool
opt_match(const char *arg, const char *name, const char **value)
{
	size_t len = strlen(name);

	if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, len) != 0)
		return false;
	arg += 2 + len;
	if (*arg != '\0' && *arg != '=')
		return false;
	*value = *arg == '=' ? arg + 1 : NULL;
	return true;
}

bool
app_opt_number(const char **at, uint64_t *v)
{
	static const char units[] = "kMG";
	const char *unit;
	uint64_t factor;
	bool good;
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*v = strtoull(*at, &end, 10);
	good = errno == 0;
	unit = *end == '\0' ? NULL : strchr(units, *end == 'K' ? 'k' : *end);
	if (unit != NULL) {
		factor = *++end == 'i' ? 1024 : 1000;
		end += factor == 1024;
		for (; unit >= units && good; unit--)
			good = !__builtin_mul_overflow(*v, factor, v);
	}
	*at = end;
	return good;
}

static bool
parse_uint(const char *text, uint64_t *out)
{
	return app_opt_number(&text, out) && *text == '\0';
}

static int
get_uint(const struct app_opt *opt, const char *text, uint64_t *out)
{
	uint64_t v;

	if (!parse_uint(text, &v))
		return app_fail_once("--%s '%s' is not a whole number; give %.0f to %.0f",
			opt->name, text, opt->min, opt->max);
	if ((double)v < opt->min || (double)v > opt->max)
		return app_fail_once("--%s %s is out of range; give %.0f to %.0f", opt->name, text,
			opt->min, opt->max);
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
	unsigned int i;

	for (i = 0; opt->choices[i] != NULL; i++) {
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
	uint32_t i;

	for (i = 0; i < list->n; i++)
		if (list->v[i] == v)
			return 0;
	if (list->n == APP_LIST_MAX)
		return app_fail_once("--%s has more than %d values; give fewer", opt->name,
			APP_LIST_MAX);
	list->v[list->n++] = v;
	return 0;
}

static int
list_add_text(const struct app_opt *opt, struct app_list *list, const char *text)
{
	unsigned int i;
	uint64_t v;
	int rc = 0;

	if (opt->type == APP_OPT_UINTS) {
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
	case APP_OPT_UINTS:
	case APP_OPT_CHOICES:
		return set_list(opt, text);
	case APP_OPT_FLAG:
		break;
	}
	return app_fail_once(
		"--%s takes no value, but '%s' was given; leave it out", opt->name, text);
}

int
app_opt_parse(const struct app_opt *opts, size_t n, int argc, char *const *argv)
{
	const char *value;
	size_t k;
	int i, rc;

	for (i = 0; i < argc; i++) {
		for (k = 0; k < n; k++)
			if (opt_match(argv[i], opts[k].name, &value))
				break;
		if (k == n)
			return app_fail_once(
				"unknown option '%s'; --help lists the options",
				argv[i]);
		if (value == NULL && opts[k].type == APP_OPT_FLAG) {
			*(bool *)opts[k].dest = true;
			continue;
		}
		if (value == NULL) {
			if (++i == argc)
				return app_fail_once(
					"--%s needs a value; give %s", opts[k].name, opts[k].arg);
			value = argv[i];
		}
		rc = opt_set(&opts[k], value);
		if (rc != 0)
			return rc;
	}
	return 0;
}

const char *
app_opt_find(const char *name, int argc, char *const *argv)
{
	const char *found = NULL, *value;
	int i;

	for (i = 0; i < argc; i++) {
		if (!opt_match(argv[i], name, &value))
			continue;
		if (value == NULL && i + 1 < argc)
			value = argv[i + 1];
		found = value;
	}
	return found;
}

bool
app_opt_has(const char *name, int argc, char *const *argv)
{
	const char *value;
	int i;

	for (i = 0; i < argc; i++)
		if (opt_match(argv[i], name, &value))
			return true;
	return false;
}

/* The values that a list has. */
static void
help_list(const struct app_opt *opt, const char *before, FILE *out)
{
	const struct app_list *list = opt->dest;
	uint32_t i;

	for (i = 0; i < list->n; i++) {
		fputs(i == 0 ? before : ",", out);
		if (opt->type == APP_OPT_CHOICES)
			fputs(opt->choices[list->v[i]], out);
		else
			fprintf(out, "%" PRIu64, list->v[i]);
	}
}

/* Range and default, or what of them there is. */
static void
help_values(const struct app_opt *opt, FILE *out)
{
	uint64_t n;

	switch (opt->type) {
	case APP_OPT_UINT:
		n = *(const uint64_t *)opt->dest;
		fprintf(out, " (%.0f to %.0f", opt->min, opt->max);
		if ((double)n >= opt->min && (double)n <= opt->max)
			fprintf(out, "; default %" PRIu64, n);
		break;
	case APP_OPT_REAL:
		fprintf(out, " (%g to %g; default %g", opt->min, opt->max,
			*(const double *)opt->dest);
		break;
	case APP_OPT_UINTS:
		fprintf(out, " (%.0f to %.0f", opt->min, opt->max);
		help_list(opt, "; default ", out);
		break;
	case APP_OPT_CHOICE:
		fprintf(out, " (default %s", opt->choices[*(const unsigned int *)opt->dest]);
		break;
	case APP_OPT_CHOICES:
		if (((const struct app_list *)opt->dest)->n == 0)
			return;
		help_list(opt, " (default ", out);
		break;
	case APP_OPT_FLAG:
	case APP_OPT_STRING:
		return;
	}
	fputc(')', out);
}

void
app_opt_help(const struct app_opt *opts, size_t n, FILE *out)
{
	char left[64];
	size_t i;

	for (i = 0; i < n; i++) {
		snprintf(left, sizeof(left), "--%s %s", opts[i].name,
			opts[i].arg == NULL ? "" : opts[i].arg);
		fprintf(out, "  %-28s %s", left, opts[i].help);
		help_values(&opts[i], out);
		fputc('\n', out);
	}
}
