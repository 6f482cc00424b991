/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TCP_HAND_H
#define TCP_HAND_H

/**
 * @file
 * A bulk object with one connection over TCP, whose peer is the test, by hand: it writes and reads
 * the stream. A virtual clock; the loopback device delivers in the call that sends.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bulk_conn.h"

#define HAND_REQUESTS 4u
#define HAND_SLOTS    4u

struct hand {
	struct crpc_bulk *b;
	struct crpc_bulk_conn *conn;
	struct bulk_wire_addr head; /**< Of the peer's address. */
	struct bulk_wire_tcp self;  /**< Where the object listens. */
	int listener, fd;           /**< Of the peer. */
	uint64_t now;
};

/** Connect to the object, as the peer or a stranger. */
static inline int
hand_socket(const struct hand *h)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(h->self.port)};

	memcpy(&to.sin_addr, h->self.ip, 4);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline void
hand_write(struct hand *h, const void *p, uint32_t len)
{
	(void)!send(h->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/** A message without a body. */
static inline void
hand_say(struct hand *h, uint8_t type, uint64_t id)
{
	const struct bulk_wire_head msg = bulk_wire_head(type, sizeof(msg), id);

	hand_write(h, &msg, sizeof(msg));
}

static inline void
hand_turns(struct hand *h, uint32_t n)
{
	for (; n != 0; n--)
		crpc_bulk_progress(h->b, h->now += 1000);
}

/** Make the object; conf has what is not the same for all. False: the log says why. */
static inline bool
hand_open(struct hand *h, const struct crpc_bulk_conf *from, uint32_t rails)
{
	struct crpc_bulk_conf conf = *from;
	uint8_t addr[CRPC_BULK_ADDR_LEN];

	conf.requests = HAND_REQUESTS;
	conf.slots = HAND_SLOTS;
	strcpy(conf.port[0].tcp, "127.0.0.1");
	*h = (struct hand){.listener = -1, .fd = -1, .now = 1000000};
	h->b = crpc_bulk_create(&conf);
	h->conn = h->b != NULL ? crpc_bulk_conn_create(h->b, rails, 7) : NULL;
	if (h->conn == NULL)
		return false;
	crpc_bulk_conn_addr(h->conn, addr);
	memcpy(&h->self, addr + sizeof(h->head), sizeof(h->self));
	h->head = (struct bulk_wire_addr){.magic = BULK_WIRE_ADDR_MAGIC,
		.version = BULK_WIRE_VERSION,
		.rails = (uint8_t)rails,
		.nports = 1,
		.requests = HAND_REQUESTS,
		.chunk = conf.chunk,
		.slots = HAND_SLOTS};
	return true;
}

/** The object connects to the peer at this address; as crpc_bulk_conn_connect(). */
static inline int
hand_meet_at(struct hand *h, const struct bulk_wire_tcp *at)
{
	uint8_t addr[CRPC_BULK_ADDR_LEN] = {0};

	memcpy(addr, &h->head, sizeof(h->head));
	for (uint32_t i = 0; i < h->head.rails; i++)
		memcpy(addr + sizeof(h->head) + i * sizeof(*at), at, sizeof(*at));
	return crpc_bulk_conn_connect(h->conn, addr);
}

/** The peer connects, as its key is the smaller one. */
static inline int
hand_meet(struct hand *h)
{
	const struct bulk_wire_tcp at = {.magic = BULK_WIRE_TCP_MAGIC,
		.version = BULK_WIRE_TCP_VERSION,
		.port = 1,
		.ip = {127, 0, 0, 1}};
	int rc = hand_meet_at(h, &at);

	if (rc != 0)
		return rc;
	h->fd = hand_socket(h);
	hand_say(h, BULK_HELLO, h->self.key);
	hand_turns(h, 2);
	return 0;
}

/** The object connects, as the peer's key is the greater one. */
static inline int
hand_meet_listening(struct hand *h)
{
	struct bulk_wire_tcp at = {.magic = BULK_WIRE_TCP_MAGIC,
		.version = BULK_WIRE_TCP_VERSION,
		.key = UINT64_MAX,
		.ip = {127, 0, 0, 1}};
	struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(self);
	int on = 1, rc;

	h->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(h->listener, (struct sockaddr *)&self, len) != 0 || listen(h->listener, 1) != 0 ||
		getsockname(h->listener, (struct sockaddr *)&self, &len) != 0 ||
		setsockopt(h->listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		return -errno;
	at.port = ntohs(self.sin_port);
	rc = hand_meet_at(h, &at);
	if (rc == 0)
		h->fd = accept(h->listener, NULL, NULL);
	return rc;
}

/** The next @p len bytes that the object sends; fewer if there are no more. */
static inline uint32_t
hand_read(struct hand *h, void *to, uint32_t len)
{
	uint32_t have = 0;
	ssize_t n;

	for (uint32_t i = 0; i < 1000 && have < len; i++) {
		hand_turns(h, 1);
		n = recv(h->fd, (uint8_t *)to + have, len - have, MSG_DONTWAIT);
		have += n > 0 ? (uint32_t)n : 0;
	}
	return have;
}

static inline void
hand_close(struct hand *h)
{
	crpc_bulk_free(h->b);
	if (h->fd >= 0)
		close(h->fd);
	if (h->listener >= 0)
		close(h->listener);
}

#endif
