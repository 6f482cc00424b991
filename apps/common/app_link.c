/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "app_link.h"
#include "app_stop.h"
#include "app_watch.h"
#include "crpc_clock.h"

#define MEET_MS 20000

/* What a rank publishes: where it listens, and what its peer shows when it connects. */
struct link_card {
	struct app_watch_card at;
	uint64_t secret;
};

int
__app_link_accept(struct app_boot *boot, int listener, uint64_t secret)
{
	const struct timeval patience = {.tv_sec = 1};
	struct pollfd in = {.fd = listener, .events = POLLIN};
	uint64_t now = crpc_clock_ns(), end = now + MEET_MS * UINT64_C(1000000), shown;
	int fd;

	for (; now < end && app_stopped() == 0; now = crpc_clock_ns()) {
		app_boot_look(boot, now);
		if (app_boot_gone(boot, 1 - boot->rank))
			return -ECONNRESET;
		fd = poll(&in, 1, 100) != 1 ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		if (recv(fd, &shown, sizeof(shown), MSG_WAITALL) == (ssize_t)sizeof(shown) &&
			shown == secret)
			return fd;
		close(fd);
	}
	return app_stopped() != 0 ? -EINTR : -ETIMEDOUT;
}

static int
link_connect(const struct link_card *mine, const struct link_card *theirs)
{
	int fd = app_watch_connect(&mine->at, &theirs->at);

	if (fd < 0)
		return -EHOSTUNREACH;
	fcntl(fd, F_SETFL, 0); /* Sends wait for room. */
	if (send(fd, &theirs->secret, sizeof(theirs->secret), MSG_NOSIGNAL) ==
		(ssize_t)sizeof(theirs->secret))
		return fd;
	close(fd);
	return -ECONNRESET;
}

int
app_link_open(struct app_boot *boot)
{
	struct link_card mine = {0}, all[2];
	int listener = app_watch_listen(&mine.at, 1), fd;

	if (getrandom(&mine.secret, sizeof(mine.secret), 0) != (ssize_t)sizeof(mine.secret))
		fd = -EIO;
	else
		fd = app_boot_exchange(boot, "app.link", &mine, sizeof(mine), all, MEET_MS);
	if (fd == 0 && boot->rank != 0)
		fd = link_connect(&mine, &all[0]);
	else if (fd == 0)
		fd = listener < 0 ? listener : __app_link_accept(boot, listener, mine.secret);
	if (listener >= 0)
		close(listener);
	return fd;
}

int
app_link_send(int fd, const void *msg, size_t len)
{
	const uint8_t *from = msg;
	ssize_t n;

	for (; len > 0; from += n, len -= (size_t)n) {
		n = send(fd, from, len, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return errno == EPIPE ? -ECONNRESET : -errno;
		n = crpc_max(n, 0);
	}
	return 0;
}

ssize_t
app_link_recv(int fd, void *buf, size_t len)
{
	ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n == 0 ? -ECONNRESET : n;
}
