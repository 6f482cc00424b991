/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "app_opt.h"
#include "app_sizes.h"

uint32_t
app_sizes_of(const struct app_sizes *s, uint64_t word)
{
	uint32_t draw, i;

	if (app_sizes_fixed(s))
		return s->max;
	word = (word ^ (word >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
	draw = (uint32_t)((word ^ (word >> 32)) * UINT64_C(0x94d049bb133111eb) >> 32);
	if (s->n == 0)
		return s->min + (uint32_t)(((uint64_t)draw * (s->max - s->min + 1)) >> 32);
	for (i = 0; i + 1 < s->n; i++)
		if (draw < s->mix[i].below)
			break;
	return s->mix[i].size;
}

/* A number within limits at *at, which then stands behind it. */
static int
number(const char **at, bool bytes, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t v;

	if (!app_opt_number(at, bytes, &v) || v < min || v > max)
		return -EINVAL;
	*out = (uint32_t)v;
	return 0;
}

/* "8:9,1024:1" */
static int
parse_mix(struct app_sizes *s, const char *text, uint32_t min, uint32_t max)
{
	uint32_t weight[APP_SIZES_MAX];
	uint64_t sum = 0, below = 0;

	s->min = max;
	s->max = min;
	do {
		if (s->n == APP_SIZES_MAX ||
			number(&text, true, min, max, &s->mix[s->n].size) != 0 || *text++ != ':' ||
			number(&text, false, 1, 1000000, &weight[s->n]) != 0)
			return -EINVAL;
		s->min = (uint32_t)crpc_min(s->min, s->mix[s->n].size);
		s->max = (uint32_t)crpc_max(s->max, s->mix[s->n].size);
		sum += weight[s->n++];
	} while (*text++ == ',');
	for (uint32_t i = 0; i < s->n; i++) {
		below += weight[i];
		s->mix[i].below = (uint32_t)crpc_min((below << 32) / sum, UINT32_MAX);
	}
	return text[-1] == '\0' ? 0 : -EINVAL;
}

int
app_sizes_parse(struct app_sizes *s, const char *text, uint32_t min, uint32_t max)
{
	*s = (struct app_sizes){0};
	if (strchr(text, ':') != NULL)
		return parse_mix(s, text, min, max);
	if (number(&text, true, min, max, &s->min) != 0)
		return -EINVAL;
	s->max = s->min;
	if (*text == '\0')
		return 0;
	if (*text++ != '-' || number(&text, true, s->min, max, &s->max) != 0)
		return -EINVAL;
	return *text == '\0' ? 0 : -EINVAL;
}
