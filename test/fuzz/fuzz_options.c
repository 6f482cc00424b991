/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a user types: benchkv's options, sizes and sweeps, and the text of faults that a software
 * card gets by its environment and by its control socket. It is taken, within the limits that
 * are documented, or refused.
 *
 * Input: a byte that says which, then arguments with ends of lines between them, or the text.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app_load.h"
#include "fuzz.h"
#include "options.h"

#include "nic.h"

#define ARGS 32

static void
options(char *text, enum kv_program program)
{
	char *argv[ARGS + 1], *save = NULL, *arg;
	struct kv_options o;
	int argc = 0;

	for (arg = strtok_r(text, "\n", &save); arg != NULL && argc < ARGS;
			arg = strtok_r(NULL, "\n", &save))
		argv[argc++] = arg;
	argv[argc] = NULL;
	if (kv_options_parse(&o, program, argc, argv) != 0)
		return;
	fuzz_check(o.qd >= 1 && o.qd <= APP_LOAD_DEPTH_MAX && o.clients <= APP_LOAD_CLIENTS_MAX);
	fuzz_check(o.read_ratio >= 0 && o.read_ratio <= 1 && o.delete_ratio >= 0);
	fuzz_check(o.read_ratio + o.delete_ratio <= 1 + 1e-9);
	fuzz_check(isfinite(o.rate) && isfinite(o.skew) && o.seconds > 0);
	(void)kv_options_check_ranks(&o, 2);
}

static struct sm_nic *nic;

static void
nic_free(void)
{
	sm_nic_free(nic);
}

static void
faults(const char *text)
{
	char net[64];
	struct sm_nic_attr attr = {.net = net};
	int rc;

	if (nic == NULL) {
		snprintf(net, sizeof(net), "fuzz-options-%d", (int)getpid());
		fuzz_check(sm_nic_create(&attr, &nic) == 0 && atexit(nic_free) == 0);
	}
	rc = sm_nic_faults(nic, text);
	fuzz_check(rc == 0 || rc == EINVAL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	fuzz_quiet();
	if (size == 0)
		return 0;
	text = malloc(size);
	fuzz_check(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] % 3 == 2)
		faults(text);
	else
		options(text, (enum kv_program)(data[0] % 3));
	free(text);
	return 0;
}
