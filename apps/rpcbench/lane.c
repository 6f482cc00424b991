/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>

#include "lane.h"

const struct lane_ops *const lane_ops[LANE_TRANSPORTS] = {
	[LANE_IPC] = &lane_ipc,
	[LANE_UNIX] = &lane_unix,
	[LANE_PIPE] = &lane_pipe,
	[LANE_UCX] = &lane_ucx,
	[LANE_ZMQ_IPC] = &lane_zmq_ipc,
	[LANE_ZMQ_TCP] = &lane_zmq_tcp,
};

/* Where a peer's package was not there, its name and package remain. */
#ifndef RPB_HAVE_UCX
const struct lane_ops lane_ucx = {.name = "ucx_posix", .package = "libucx-dev"};
#endif
#ifndef RPB_HAVE_ZMQ
const struct lane_ops lane_zmq_ipc = {.name = "zmq_ipc", .package = "libzmq3-dev"};
const struct lane_ops lane_zmq_tcp = {.name = "zmq_tcp", .package = "libzmq3-dev"};
#endif

static char why[256];

void
lane_why(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
}

const char *
lane_why_take(void)
{
	static char taken[sizeof(why)];

	snprintf(taken, sizeof(taken), "%s", why);
	why[0] = '\0';
	return taken;
}

void
lane_break(struct lane_client *c, const char *fmt, ...)
{
	va_list ap;

	if (c->broken)
		return;
	c->broken = true;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
}
