/* SPDX-License-Identifier: BSD-3-Clause */
/* An address is a list of endpoints, "tcp://IP:PORT tcp://IP:PORT ...". */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <zmq.h>

#include "app_watch.h"
#include "app_zmq.h"

#define ADDRS_MAX 32

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

/* Append this port of the IPv4 addresses of this host that others may reach. */
static void
addresses_append(char *text, size_t len, const char *port)
{
	uint32_t addr[ADDRS_MAX], n = app_watch_addresses(addr, ADDRS_MAX);
	char ip[INET_ADDRSTRLEN];
	size_t used;

	for (uint32_t i = 0; i < n; i++) {
		used = strlen(text);
		if (inet_ntop(AF_INET, &addr[i], ip, sizeof(ip)) != NULL)
			snprintf(text + used, len - used, " tcp://%s%s", ip, port);
	}
}

int
app_zmq_bind(void *sock, const char *name, bool hosts, char *addr, size_t len)
{
	char text[128];
	size_t n = sizeof(text);

	/* A name that begins with '@' is in no folder, so nothing is left behind. */
	if (name != NULL)
		snprintf(text, sizeof(text), "ipc://@%s", name);
	else
		snprintf(text, sizeof(text), "tcp://%s:*", hosts ? "0.0.0.0" : "127.0.0.1");
	if (zmq_bind(sock, text) != 0 || zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, text, &n) != 0)
		return -EIO;
	snprintf(addr, len, "%s", hosts ? "" : text);
	if (hosts)
		addresses_append(addr, len, strrchr(text, ':'));
	return 0;
}

int
app_zmq_connect(void *sock, const char *addr)
{
	char text[4096], *save = NULL, ip[64];
	unsigned short port;
	struct in_addr in;
	bool list;

	snprintf(text, sizeof(text), "%s", addr);
	list = text[0] == ' ';
	for (char *one = strtok_r(text, " ", &save); one != NULL; one = strtok_r(NULL, " ", &save))
		if (!list ||
			(sscanf(one, "tcp://%63[^:]:%hu", ip, &port) == 2 &&
				inet_pton(AF_INET, ip, &in) == 1 &&
				app_watch_answers(in.s_addr, htons(port))))
			return zmq_connect(sock, one) == 0 ? 0 : -EIO;
	return -EHOSTUNREACH;
}
