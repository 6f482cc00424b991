/* SPDX-License-Identifier: BSD-3-Clause */
/* An address is a list of endpoints, "tcp://IP:PORT tcp://IP:PORT ...". */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zmq.h>

#include "app_watch.h"
#include "app_zmq.h"

#define KNOCK_MS  1000
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

/* Whether somebody takes connections there. */
static bool
answers(const char *ip, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err = 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(err);
	bool ok;

	if (fd < 0)
		return false;
	ok = inet_pton(AF_INET, ip, &in.sin_addr) == 1 &&
		(connect(fd, (const struct sockaddr *)&in, sizeof(in)) == 0 ||
			errno == EINPROGRESS) &&
		poll(&p, 1, KNOCK_MS) == 1 &&
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0;
	close(fd);
	return ok;
}

int
app_zmq_connect(void *sock, const char *addr)
{
	char text[4096], *save = NULL, ip[64];
	unsigned short port;
	bool list;

	snprintf(text, sizeof(text), "%s", addr);
	list = text[0] == ' ';
	for (char *one = strtok_r(text, " ", &save); one != NULL; one = strtok_r(NULL, " ", &save))
		if (!list ||
			(sscanf(one, "tcp://%63[^:]:%hu", ip, &port) == 2 && answers(ip, port)))
			return zmq_connect(sock, one) == 0 ? 0 : -EIO;
	return -EHOSTUNREACH;
}
