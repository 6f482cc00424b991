/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>

#include <zmq.h>

#include "app_zmq.h"

void *
app_zmq_socket(void *context, int type, int wait_ms)
{
	void *sock = context == NULL ? NULL : zmq_socket(context, type);
	int zero = 0;

	if (sock == NULL)
		return NULL;
	zmq_setsockopt(sock, ZMQ_SNDHWM, &zero, sizeof(zero));
	zmq_setsockopt(sock, ZMQ_RCVHWM, &zero, sizeof(zero));
	zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(sock, ZMQ_RCVTIMEO, &wait_ms, sizeof(wait_ms));
	return sock;
}

void
app_zmq_end(void *context, void *a, void *b)
{
	if (a != NULL)
		zmq_close(a);
	if (b != NULL)
		zmq_close(b);
	if (context != NULL)
		zmq_ctx_term(context);
}

const char *
app_zmq_why(void)
{
	return zmq_strerror(zmq_errno());
}

int
app_zmq_bind(void *sock, const char *name, const char *ip, char *addr, size_t len)
{
	char text[128];

	/* A name that begins with '@' is in no folder, so nothing is left behind. */
	if (name != NULL)
		snprintf(text, sizeof(text), "ipc://@%s", name);
	else
		snprintf(text, sizeof(text), "tcp://%s:*", ip);
	return zmq_bind(sock, text) == 0 && zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, addr, &len) == 0
		? 0
		: -EIO;
}
