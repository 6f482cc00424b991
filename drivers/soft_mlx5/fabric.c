/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "crpc_util.h"
#include "say.h"

#define VERBS_US_MAX 1000000ul

static struct sm_fabric fabric;

/* "1024/4096": of each device, the last one of the rest; false: it is none. */
static bool
mtus_read(const char *text)
{
	uint32_t n = 0;
	unsigned long bytes;
	uint8_t code = 0;
	char *end;

	for (;; text = end + 1) {
		bytes = strtoul(text, &end, 10);
		for (code = IBV_MTU_256; code <= IBV_MTU_4096 && bytes != 128ul << code; code++)
			;
		if (code > IBV_MTU_4096 || n == SM_DEVICES_MAX || (*end != '/' && *end != '\0'))
			return false;
		fabric.mtu[n++] = code;
		if (*end == '\0')
			break;
	}
	while (n < SM_DEVICES_MAX)
		fabric.mtu[n++] = code;
	return true;
}

static bool
number_read(const char *text, unsigned long most, uint32_t *value)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	*value = (uint32_t)v;
	return *text >= '0' && *text <= '9' && *end == '\0' && v <= most;
}

/* False: there is no such word. */
static bool
word_read(const char *word)
{
	static const struct {
		const char *name;
		size_t at;
	} flags[] = {
		{"roce", offsetof(struct sm_fabric, roce)},
		{"grh", offsetof(struct sm_fabric, grh)},
		{"pkeys", offsetof(struct sm_fabric, pkeys)},
		{"unordered", offsetof(struct sm_fabric, unordered)},
		{"flush=signalled", offsetof(struct sm_fabric, flush_signalled)},
	};

	for (uint32_t i = 0; i < CRPC_DIM(flags); i++) {
		if (strcmp(word, flags[i].name) == 0) {
			*(bool *)((char *)&fabric + flags[i].at) = true;
			return true;
		}
	}
	if (strncmp(word, "mtu=", 4) == 0)
		return mtus_read(word + 4);
	return strncmp(word, "verbs=", 6) == 0 &&
		number_read(word + 6, VERBS_US_MAX, &fabric.verbs_us);
}

static void
read_once(void)
{
	const char *env = getenv("SOFT_MLX5_FABRIC");
	char text[256] = "", *save = NULL;
	int saved = errno;

	if (env != NULL)
		strncpy(text, env, sizeof(text) - 1);
	for (char *word = strtok_r(text, ",", &save); word != NULL;
		word = strtok_r(NULL, ",", &save))
		if (!word_read(word))
			sm_complain("SOFT_MLX5_FABRIC: '%s' is not one of: roce, grh, "
				    "mtu=BYTES/..., verbs=MICROSECONDS, pkeys, unordered, "
				    "flush=signalled", word);
	if (fabric.roce && fabric.grh) {
		sm_complain("SOFT_MLX5_FABRIC: grh is of InfiniBand, and roce is not; taking roce");
		fabric.grh = false;
	}
	errno = saved;
}

const struct sm_fabric *
sm_fabric(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return &fabric;
}
