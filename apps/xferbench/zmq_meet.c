/* SPDX-License-Identifier: BSD-3-Clause */
/* How two sides find each other over tcp. An address is "PORT IP IP ...". */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zmq.h>

#include "xb_zmq.h"

#define LOOPBACK "127.0.0.1"
#define KNOCK_MS 1000

void *
xb_zmq_socket(void *context, int type)
{
	void *sock = zmq_socket(context, type);
	int zero = 0;

	if (sock == NULL)
		return NULL;
	zmq_setsockopt(sock, ZMQ_SNDHWM, &zero, sizeof(zero));
	zmq_setsockopt(sock, ZMQ_RCVHWM, &zero, sizeof(zero));
	zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
	return sock;
}

static bool
two_hosts(const struct xb_lane *l)
{
	return l->team->link != NULL && !l->team->one_host;
}

/* Append the IPv4 addresses of this host that others may reach. */
static void
addresses_append(char *text, size_t len)
{
	struct ifaddrs *all = NULL, *a;
	char ip[INET_ADDRSTRLEN];
	struct sockaddr_in in;
	size_t used;

	if (getifaddrs(&all) != 0)
		return;
	for (a = all; a != NULL; a = a->ifa_next) {
		if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET ||
			(a->ifa_flags & IFF_LOOPBACK) != 0 || (a->ifa_flags & IFF_UP) == 0)
			continue;
		memcpy(&in, a->ifa_addr, sizeof(in));
		used = strlen(text);
		if (inet_ntop(AF_INET, &in.sin_addr, ip, sizeof(ip)) != NULL)
			snprintf(text + used, len - used, " %s", ip);
	}
	freeifaddrs(all);
}

int
xb_zmq_bind(struct xb_lane *l, int side, void *sock)
{
	struct xb_addr *addr = &l->addr[side];
	char text[128], *port, *out = (char *)addr->bytes;
	size_t len = sizeof(text);

	if (zmq_bind(sock, two_hosts(l) ? "tcp://0.0.0.0:*" : "tcp://" LOOPBACK ":*") != 0 ||
		zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, text, &len) != 0 ||
		(port = strrchr(text, ':')) == NULL)
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
	snprintf(out, sizeof(addr->bytes), "%s%s", port + 1, two_hosts(l) ? "" : " " LOOPBACK);
	if (two_hosts(l))
		addresses_append(out, sizeof(addr->bytes));
	addr->len = (uint32_t)strlen(out) + 1;
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
xb_zmq_connect(struct xb_lane *l, int side, void *sock)
{
	struct xb_addr *addr = &l->addr[!side];
	char *text = (char *)addr->bytes, *save = NULL, *ip, where[128];
	unsigned long port;

	addr->bytes[sizeof(addr->bytes) - 1] = '\0';
	ip = strtok_r(text, " ", &save);
	port = ip == NULL ? 0 : strtoul(ip, NULL, 10);
	while ((ip = strtok_r(NULL, " ", &save)) != NULL) {
		if (two_hosts(l) && !answers(ip, (uint16_t)port))
			continue;
		snprintf(where, sizeof(where), "tcp://%.64s:%lu", ip, port);
		if (zmq_connect(sock, where) == 0)
			return 0;
		return xb_lane_fail(l, -EIO, "ZeroMQ: %s: %s", where, zmq_strerror(zmq_errno()));
	}
	return xb_lane_fail(l, -EHOSTUNREACH, "ZeroMQ: the other host answers at none of its "
		"addresses; its firewall must let tcp pass");
}
