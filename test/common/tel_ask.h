/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEL_ASK_H
#define TEL_ASK_H

/**
 * @file
 * A client of DPDK's telemetry socket, for the tests of telemetry commands. Include it after
 * cmocka.h.
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>
#include <rte_eal.h>

#include "crpc_atomic.h"

static int tel_fd = -1;

/* Connect to the EAL of this process. */
static inline void
tel_connect(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char hello[1024];

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/dpdk_telemetry.v2",
		rte_eal_get_runtime_dir());
	tel_fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_true(tel_fd >= 0);
	assert_int_equal(connect(tel_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_true(read(tel_fd, hello, sizeof(hello)) > 0);
}

/* The answer to one command, or JSON null. */
static inline json_t *
ask(const char *command, const char *params)
{
	static char text[1 << 16];
	char line[128];
	json_t *all, *part;
	ssize_t len;

	snprintf(line, sizeof(line), "%s%s%s", command, params[0] == '\0' ? "" : ",", params);
	assert_int_equal(write(tel_fd, line, strlen(line)), (ssize_t)strlen(line));
	len = read(tel_fd, text, sizeof(text) - 1);
	assert_true(len > 0);
	text[len] = '\0';
	all = json_loads(text, 0, NULL);
	assert_non_null(all);
	part = json_incref(json_object_get(all, command));
	json_decref(all);
	assert_non_null(part);
	return part;
}

/* A number of an answer. */
static inline json_int_t
number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_integer(value))
		fail_msg("%s is not there", key);
	return json_integer_value(value);
}

/*
 * Commands give no answer to what is no number of an object, and the last one none to what is no
 * number of a part of object 0; what follows the object is of no interest to the others.
 */
static inline void
tel_refuses(const char *const *commands, size_t n)
{
	static const char *const bad[] = {
		"", "x", "-1", "99", "0x", "0,", "0,x", "0,99", "0,0,0", "4294967296"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (size_t k = strncmp(bad[i], "0,", 2) == 0 ? n - 1 : 0; k < n; k++) {
			json_t *answer = ask(commands[k], bad[i]);

			if (!json_is_null(answer))
				fail_msg("%s,%s was answered", commands[k], bad[i]);
			json_decref(answer);
		}
}

/* An object that nobody polls is told by null, in time, and answers again when it is polled. */
static inline void
tel_waits_for_poll(_Atomic bool *paused, const char *command, const char *key, json_int_t value)
{
	json_t *answer;

	crpc_store_relaxed(paused, true);
	usleep(50000);
	answer = ask(command, "0");
	assert_true(json_is_null(answer));
	json_decref(answer);
	crpc_store_relaxed(paused, false);
	answer = ask(command, "0");
	assert_int_equal(number(answer, key), value);
	json_decref(answer);
}

/* The tests in an EAL of their own; 77 if it does not start. */
static inline int
tel_run(char *program, CMFixtureFunction setup, CMFixtureFunction teardown)
{
	static char prefix[64];
	char *eal[] = {program, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, prefix,
		(char[]){"--log-level=4"}, NULL};
	int rc;

	snprintf(prefix, sizeof(prefix), "--file-prefix=crpc_tel_%d", (int)getpid());
	if (rte_eal_init((int)(sizeof(eal) / sizeof(eal[0])) - 1, eal) < 0)
		return 77;
	rc = test_run(setup, teardown);
	rte_eal_cleanup();
	return rc;
}

#endif
