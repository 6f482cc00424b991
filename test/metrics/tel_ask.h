/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEL_ASK_H
#define TEL_ASK_H

/**
 * @file
 * A client of DPDK's telemetry socket, for the tests of telemetry commands. Include it after
 * cmocka.h.
 */

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>
#include <rte_eal.h>

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

#endif
