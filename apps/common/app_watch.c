/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app_watch.h"

/* How long a connection may take to come about. */
#define CONNECT_MS 1000

static uint64_t
inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* IPv4 addresses of this host that others may know it by. */
static void
addresses_write(struct app_watch_card *card)
{
	struct ifaddrs *list;
	struct sockaddr_in in;

	if (getifaddrs(&list) != 0)
		return;
	for (struct ifaddrs *at = list; at != NULL && card->addrs < APP_WATCH_ADDRS;
		at = at->ifa_next) {
		if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
			(at->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != IFF_UP)
			continue;
		memcpy(&in, at->ifa_addr, sizeof(in));
		card->addr[card->addrs++] = in.sin_addr.s_addr;
	}
	freeifaddrs(list);
}

static void
card_write(struct app_watch_card *card)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f != NULL) {
		if (fgets((char *)card->boot_id, sizeof(card->boot_id), f) == NULL)
			card->boot_id[0] = 0;
		fclose(f);
	}
	card->pid_ns = inode_of("/proc/self/ns/pid");
	card->net_ns = inode_of("/proc/self/ns/net");
	card->pid = getpid();
	addresses_write(card);
}

int
app_watch_listen(struct app_watch_card *card, uint32_t callers)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	socklen_t len = sizeof(in);
	const int on = 1; /* Connections inherit it. */
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err;

	card_write(card);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
		bind(fd, (struct sockaddr *)&in, len) == 0 && listen(fd, (int)callers) == 0 &&
		getsockname(fd, (struct sockaddr *)&in, &len) == 0) {
		card->port = in.sin_port;
		return fd;
	}
	err = -errno;
	close(fd);
	return err;
}

struct app_watch *
app_watch_create(uint32_t peers)
{
	struct app_watch *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->peers = peers;
	w->listener = -1;
	w->peer = calloc(peers, sizeof(*w->peer));
	w->fd = calloc(peers, sizeof(*w->fd));
	w->caller = calloc(peers, sizeof(*w->caller));
	if (w->peer == NULL || w->fd == NULL || w->caller == NULL) {
		app_watch_free(w);
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < peers; i++)
		w->fd[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	w->listener = app_watch_listen(&w->card, peers);
	return w;
}

void
app_watch_free(struct app_watch *w)
{
	if (w == NULL)
		return;
	for (uint32_t i = 0; i < w->peers && w->fd != NULL; i++)
		if (w->fd[i].fd >= 0)
			close(w->fd[i].fd);
	for (uint32_t i = 0; i < w->callers; i++)
		close(w->caller[i]);
	if (w->listener >= 0)
		close(w->listener);
	free(w->peer);
	free(w->fd);
	free(w->caller);
	free(w);
}

/* Whether it has our loopback device. */
static bool
is_near(const struct app_watch_card *mine, const struct app_watch_card *card)
{
	return memcmp(card->boot_id, mine->boot_id, sizeof(card->boot_id)) == 0 &&
		card->boot_id[0] != 0 && card->net_ns == mine->net_ns;
}

/* Whether it has a pid here. */
static bool
is_here(const struct app_watch_card *mine, const struct app_watch_card *card)
{
	return is_near(mine, card) && card->pid_ns == mine->pid_ns;
}

static bool
is_ours(const struct app_watch_card *mine, uint32_t addr)
{
	for (uint32_t i = 0; i < mine->addrs; i++)
		if (mine->addr[i] == addr)
			return true;
	return false;
}

/* A connection to one address, which may still be on its way; or -1. */
static int
connect_start(uint32_t addr, uint16_t port)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = addr};
	const unsigned int patience = APP_WATCH_HOST_MS;
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience)) == 0 &&
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
		(connect(fd, (const struct sockaddr *)&in, sizeof(in)) == 0 ||
			errno == EINPROGRESS))
		return fd;
	close(fd);
	return -1;
}

/* Whether a connection has come about. */
static bool
is_connected(int fd)
{
	socklen_t len = sizeof(int);
	int err = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0;
}

int
app_watch_connect(const struct app_watch_card *mine, const struct app_watch_card *card)
{
	struct pollfd fd[APP_WATCH_ADDRS];
	const uint32_t loopback = htonl(INADDR_LOOPBACK), *addr = card->addr;
	uint32_t n = 0, addrs = card->addrs;
	int found = -1;

	if (is_near(mine, card)) {
		addr = &loopback;
		addrs = 1;
	}
	for (uint32_t i = 0; i < addrs && i < APP_WATCH_ADDRS && card->port != 0; i++) {
		if (is_ours(mine, addr[i]))
			continue;
		fd[n] = (struct pollfd){
			.fd = connect_start(addr[i], card->port), .events = POLLOUT};
		n += fd[n].fd >= 0;
	}
	for (uint32_t left = n; left > 0 && found < 0 && poll(fd, n, CONNECT_MS) > 0;) {
		for (uint32_t i = 0; i < n && found < 0; i++) {
			if (fd[i].revents == 0)
				continue;
			if (is_connected(fd[i].fd)) {
				found = fd[i].fd;
			} else {
				close(fd[i].fd);
				left--;
			}
			fd[i].fd = -1;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		if (fd[i].fd >= 0)
			close(fd[i].fd);
	return found;
}

int
app_watch_add(struct app_watch *w, uint32_t peer, const struct app_watch_card *card)
{
	int fd;

	if (peer >= w->peers || w->fd[peer].fd >= 0)
		return -EINVAL;
	if (is_here(&w->card, card)) {
		fd = pidfd_open(card->pid, 0);
		if (fd < 0)
			return -errno;
	} else {
		fd = app_watch_connect(&w->card, card);
		if (fd < 0)
			return -EHOSTUNREACH;
		w->peer[peer].tcp = true;
	}
	w->fd[peer].fd = fd;
	return 0;
}

static void
lose(struct app_watch *w, uint32_t i)
{
	w->peer[i].gone = true;
	close(w->fd[i].fd);
	w->fd[i].fd = -1;
}

/* A process that watches us sends a byte now and then. Whatever comes is of no interest. */
static void
callers_look(struct app_watch *w)
{
	uint8_t waste[256];
	ssize_t n;
	int fd;

	while (w->listener >= 0 && w->callers < w->peers) {
		fd = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			break;
		w->caller[w->callers++] = fd;
	}
	for (uint32_t i = 0; i < w->callers;) {
		n = recv(w->caller[i], waste, sizeof(waste), MSG_DONTWAIT);
		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
			i++;
			continue;
		}
		close(w->caller[i]);
		w->caller[i] = w->caller[--w->callers];
	}
}

static void
beacons_send(struct app_watch *w)
{
	for (uint32_t i = 0; i < w->peers; i++)
		if (w->fd[i].fd >= 0 && w->peer[i].tcp &&
			send(w->fd[i].fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
			errno != EAGAIN && errno != EINTR)
			lose(w, i);
	callers_look(w);
}

void
app_watch_look(struct app_watch *w, uint64_t now_ns)
{
	if (now_ns < w->look_ns)
		return;
	w->look_ns = now_ns + APP_WATCH_MS * UINT64_C(1000000);
	/*
	 * No peer writes on these connections: what can be read is their end, as
	 * that of a process.
	 */
	if (poll(w->fd, w->peers, 0) > 0)
		for (uint32_t i = 0; i < w->peers; i++)
			if (w->fd[i].fd >= 0 && w->fd[i].revents != 0)
				lose(w, i);
	if (now_ns < w->beacon_ns)
		return;
	w->beacon_ns = now_ns + APP_WATCH_BEACON_MS * UINT64_C(1000000);
	beacons_send(w);
}
