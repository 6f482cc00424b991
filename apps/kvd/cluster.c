/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "app_fail.h"
#include "cluster.h"
#include "epoch.h"
#include "event.h"

#define MS UINT64_C(1000000)
/* Time between two lines about strangers. */
#define STRANGE_NS (UINT64_C(500) * MS)
/* Connections that are accepted in a turn. */
#define ACCEPTS 64
/* So far ahead of what is known a rank may begin: 65536 epochs, or two years. */
#define VERSION_STEP (UINT64_C(1) << 56)

/* What an open connection carries. */
#define BYTE_STOP  'B'
#define BYTE_TWICE 'T'

/* Who connected and has not said who it is. */
struct stranger {
	int fd; /* -1: a free place */
	struct sockaddr_storage from;
	uint32_t got;
	uint64_t until_ns;
	struct kvd_hello hello;
};

enum link_state {
	LINK_DOWN,
	LINK_DIALING,
	LINK_HELLO, /* We sent ours. */
	LINK_MET,   /* With --connect use: none of the two has a request for the other. */
	LINK_ADDRESS,
	LINK_OPEN,
};

/* The connection with a rank. */
struct link {
	enum link_state state;
	int fd;
	uint64_t version_begin, instance; /* Of the last that was up; 0: none was. */
	uint64_t until_ns; /* DOWN: until it is dialed; else until it must be in the next state. */
	struct addrinfo *addresses, *next;
	struct kvd_hello hello;
	bool up;
	bool wanted; /* MET: requests wait for it. */
	/* Addresses, each behind its length: what is to be sent, what comes. */
	uint8_t *out, *in;
	size_t out_len, out_at, in_at;
	char said[288]; /* The last line about it, which is not repeated. */
};

struct kvd_cluster {
	struct crpc_kv_server *server;
	struct kvd_hello hello;
	bool on_use;
	int listener;
	struct stranger stranger[KVD_STRANGERS];
	uint64_t strange_ns;
	char strange[256]; /* The last line about one, which is not repeated. */
	struct pollfd fd[1 + KVD_STRANGERS + CRPC_KV_RANKS_MAX]; /* Listener, strangers, links. */
	uint32_t ranks;
	struct link link[];
};

static void
socket_tune(int fd)
{
	const int on = 1, idle_s = 2, every_s = 1, probes = 3;
	const unsigned int patience_ms = 5000;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
}

static int
listen_start(const struct kvd_host *host)
{
	struct addrinfo *list = kvd_host_addresses(host, true);
	const int on = 1;
	int fd = -1, rc = EADDRNOTAVAIL;

	for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 64) == 0)
			break;
		rc = errno;
		close(fd);
		fd = -1;
	}
	if (list != NULL)
		freeaddrinfo(list);
	if (fd < 0)
		app_fail("cannot wait for other ranks at %s port %s: %s; end the process that "
			 "does, or give another port in --hosts",
			host->name, host->port, strerror(rc));
	return fd;
}

struct kvd_cluster *
kvd_cluster_create(const struct kvd_hosts *hosts, const struct kvd_hello *hello,
	struct crpc_kv_server *s, bool on_use)
{
	struct kvd_cluster *c = calloc(1, sizeof(*c) + hosts->n * sizeof(c->link[0]));

	if (c == NULL) {
		app_fail("no memory for the cluster");
		return NULL;
	}
	*c = (struct kvd_cluster){.server = s, .hello = *hello, .on_use = on_use, .listener = -1};
	for (uint32_t i = 0; i < KVD_STRANGERS; i++)
		c->stranger[i].fd = -1;
	for (uint32_t i = 0; i < hosts->n; i++, c->ranks++) {
		c->link[i].fd = -1;
		c->link[i].addresses = kvd_host_addresses(&hosts->host[i], false);
		if (i != hello->rank && c->link[i].addresses == NULL) {
			app_fail("the address of rank %u, %s, is not known; correct --hosts", i,
				hosts->host[i].name);
			goto err;
		}
	}
	c->listener = listen_start(&hosts->host[hello->rank]);
	if (c->listener >= 0)
		return c;
err:
	kvd_cluster_free(c);
	return NULL;
}

/* A line about a rank, unless it was the last one. */
static void
link_say(struct kvd_cluster *c, uint32_t r, const char *what, const char *why)
{
	struct link *l = &c->link[r];
	char text[sizeof(l->said)];

	snprintf(text, sizeof(text), "%s: %s", what, why);
	if (strcmp(text, l->said) == 0)
		return;
	memcpy(l->said, text, sizeof(text));
	kvd_event(CRPC_LOG_WARNING, "rank %u: %s", r, text);
}

/*
 * What a rank has of our endpoints is of no use without a connection: make them new. Those of an
 * open link are with the daemons, which may not have connected them yet.
 */
static void
endpoints_renew(struct kvd_cluster *c, uint32_t r)
{
	int rc = 0;

	if (c->link[r].state == LINK_OPEN || crpc_kv_server_peer(c->server, r) == CRPC_KV_PEER_UP)
		crpc_kv_server_lose(c->server, r, "its connection to kvd ended");
	if (crpc_kv_server_peer(c->server, r) == CRPC_KV_PEER_LOST)
		rc = crpc_kv_server_renew(c->server, r);
	if (rc != 0)
		link_say(c, r, "cannot be connected again", strerror(-rc));
}

static void
messages_free(struct link *l)
{
	free(l->out);
	free(l->in);
	l->out = l->in = NULL;
}

static void
link_close(struct kvd_cluster *c, uint32_t r, uint64_t now, const char *why)
{
	struct link *l = &c->link[r];

	if (l->up)
		kvd_event(
			CRPC_LOG_WARNING, "lost rank %u: %s; operations on its keys fail", r, why);
	if (l->fd >= 0)
		close(l->fd);
	crpc_kv_server_here(c->server, r, false);
	endpoints_renew(c, r);
	messages_free(l);
	l->fd = -1;
	l->up = false;
	l->state = LINK_DOWN;
	l->until_ns = now + KVD_DIAL_MS * MS;
}

/* What it sent was no hello of a rank of ours: say why, close. */
static void
link_refuse(struct kvd_cluster *c, uint32_t r, uint64_t now, const char *why)
{
	link_say(c, r, "refused", why);
	link_close(c, r, now, why);
	c->link[r].until_ns = now + 5 * KVD_DIAL_MS * MS;
}

static bool
hello_send(const struct kvd_cluster *c, int fd, bool refusal)
{
	struct kvd_hello hello = c->hello;

	hello.refusal = refusal;
	if (refusal)
		memset(hello.secret, 0, sizeof(hello.secret));
	return send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello);
}

/*
 * The peer knows us by our address in --hosts; the kernel may take another as the source: 127.0.0.1
 * for a host whose name is 127.0.1.1, or that of another network. If ours does not fit, it may.
 */
static void
bind_own(const struct kvd_cluster *c, int fd, const struct addrinfo *to)
{
	struct sockaddr_in6 at = {0};

	for (const struct addrinfo *a = c->link[c->hello.rank].addresses; a != NULL;
		a = a->ai_next) {
		if (a->ai_family != to->ai_family ||
			kvd_host_loopback(a->ai_addr) != kvd_host_loopback(to->ai_addr))
			continue;
		memcpy(&at, a->ai_addr, a->ai_addrlen);
		at.sin6_port = 0; /* IPv4's is at the same place. */
		if (bind(fd, (struct sockaddr *)&at, a->ai_addrlen) == 0)
			return;
	}
}

static void
dial(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];

	if (l->next == NULL)
		l->next = l->addresses;
	l->fd = socket(l->next->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	l->until_ns = now + KVD_HELLO_MS * MS;
	if (l->fd >= 0) {
		socket_tune(l->fd);
		bind_own(c, l->fd, l->next);
	}
	if (l->fd < 0 ||
		(connect(l->fd, l->next->ai_addr, l->next->ai_addrlen) != 0 &&
			errno != EINPROGRESS))
		link_close(c, r, now, strerror(errno));
	else
		l->state = LINK_DIALING;
	l->next = l->next->ai_next;
}

static void
dialed(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0 ||
		!hello_send(c, l->fd, false)) {
		link_close(c, r, now, "it does not answer");
		return;
	}
	l->state = LINK_HELLO;
	l->in_at = 0;
	l->until_ns = now + KVD_HELLO_MS * MS;
}

/* l->hello is a good one: it may have the connection that it came by. */
static void
link_begin(struct kvd_cluster *c, uint32_t r, int fd, uint64_t now)
{
	size_t max = sizeof(uint32_t) + crpc_kv_server_address_max(c->server);
	struct link *l = &c->link[r];

	l->fd = fd;
	l->out = malloc(max);
	l->in = malloc(max);
	if (l->out == NULL || l->in == NULL) {
		link_refuse(c, r, now, "there is no memory for its addresses");
		return;
	}
	l->out_len = l->out_at = l->in_at = 0;
	l->state = c->on_use ? LINK_MET : LINK_ADDRESS;
	l->until_ns = c->on_use ? UINT64_MAX : now + KVD_ADDRESS_MS * MS;
	crpc_kv_server_here(c->server, r, true);
}

/*
 * Versions of a rank never sink: an older process of it is no rank, and neither is a second one
 * with the same epoch. What is far ahead would shut out all that follow.
 */
static bool
is_next(const struct kvd_cluster *c, uint32_t r, const struct kvd_hello *theirs, char why[256])
{
	const struct link *l = &c->link[r];
	uint64_t version = l->version_begin, instance = l->instance, most;

	if (l->state >= LINK_ADDRESS && l->hello.version_begin > version) {
		version = l->hello.version_begin;
		instance = l->hello.instance;
	}
	most = crpc_max(version, c->hello.version_begin) + VERSION_STEP;
	if (theirs->version_begin < version)
		snprintf(why, 256,
			"expected versions from %" PRIu64 " on, found %" PRIu64
			"; is an older process of it still there, or was its epoch file removed?",
			version, theirs->version_begin);
	else if (theirs->version_begin > most)
		snprintf(why, 256,
			"expected versions up to %" PRIu64 ", found %" PRIu64
			"; correct its clock or epoch file",
			most, theirs->version_begin);
	else if (theirs->version_begin == version && theirs->instance != instance)
		snprintf(why, 256,
			"expected the process that is rank %u, found another with the same epoch; "
			"end one of them",
			r);
	else
		return true;
	return false;
}

/* @return bytes, 0: nothing now, -1: the connection has ended. */
static ssize_t
receive(int fd, void *buf, size_t len)
{
	ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);

	if (n > 0)
		return n;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static void
hello_read(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];
	enum kvd_hello_is is;
	char why[256];
	ssize_t n = receive(l->fd, (uint8_t *)&l->hello + l->in_at, sizeof(l->hello) - l->in_at);

	if (n < 0) {
		link_close(c, r, now, "it closed the connection");
		return;
	}
	l->in_at += (size_t)n;
	if (l->in_at != sizeof(l->hello))
		return;
	is = kvd_hello_check(&c->hello, &l->hello, r, r + 1, why);
	if ((is == KVD_HELLO_STRANGE && l->hello.magic == KVD_HELLO_MAGIC) ||
		(is == KVD_HELLO_GOOD && l->hello.refusal != 0))
		link_refuse(c, r, now, "it refuses our secret or epoch; its own line says which");
	else if (is != KVD_HELLO_GOOD || !is_next(c, r, &l->hello, why))
		link_refuse(c, r, now, why);
	else
		link_begin(c, r, l->fd, now);
}

/* Make and send our addresses. @return false: it has ended. */
static bool
address_send(struct kvd_cluster *c, uint32_t r)
{
	struct link *l = &c->link[r];
	uint32_t word;
	int64_t len;
	ssize_t n;

	if (l->out_len == 0) {
		endpoints_renew(c, r);
		len = crpc_kv_server_address(
			c->server, r, l->out + sizeof(word), crpc_kv_server_address_max(c->server));
		if (len == -EAGAIN)
			return true;
		if (len < 0) {
			link_say(c, r, "has no addresses of ours", strerror((int)-len));
			return false;
		}
		word = (uint32_t)len;
		memcpy(l->out, &word, sizeof(word));
		l->out_len = sizeof(word) + word;
	}
	if (l->out_at == l->out_len)
		return true;
	n = send(l->fd, l->out + l->out_at, l->out_len - l->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	l->out_at += (size_t)n;
	return true;
}

/* Take what there is of its addresses. @return 1: all of them, 0: not yet, -1: it has ended. */
static int
address_read(struct kvd_cluster *c, struct link *l)
{
	size_t want = sizeof(uint32_t);
	uint32_t word;
	ssize_t n;

	for (;;) {
		if (l->in_at >= sizeof(word)) {
			memcpy(&word, l->in, sizeof(word));
			if (word == 0 || word > crpc_kv_server_address_max(c->server))
				return -1;
			want = sizeof(word) + word;
			if (l->in_at == want)
				return 1;
		}
		n = receive(l->fd, l->in + l->in_at, want - l->in_at);
		if (n <= 0)
			return (int)n;
		l->in_at += (size_t)n;
	}
}

/* The exchange of addresses begins with the first request of one of the two. */
static void
met_watch(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];
	int rc = address_read(c, l);

	if (rc < 0) {
		link_close(c, r, now, "its process or host has ended");
	} else if (l->wanted || l->in_at != 0) {
		l->state = LINK_ADDRESS;
		l->until_ns = now + KVD_ADDRESS_MS * MS;
	}
}

static void
address_exchange(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];
	bool alive = address_send(c, r);
	int rc = alive ? address_read(c, l) : -1;

	if (rc < 0)
		link_close(c, r, now, "it ended the exchange of addresses");
	if (rc <= 0 || l->out_len == 0 || l->out_at != l->out_len)
		return;
	rc = crpc_kv_server_connect(
		c->server, r, l->in + sizeof(uint32_t), l->in_at - sizeof(uint32_t));
	if (rc != 0) {
		link_refuse(c, r, now,
			rc == -EPROTO ? "its addresses are of another version or other sizes"
				      : strerror(-rc));
		return;
	}
	messages_free(l);
	l->wanted = false;
	l->state = LINK_OPEN;
}

static void
open_watch(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	struct link *l = &c->link[r];
	enum crpc_kv_peer state = crpc_kv_server_peer(c->server, r);
	uint64_t before = l->version_begin;
	char byte = 0;
	ssize_t n = receive(l->fd, &byte, 1);

	if (byte == BYTE_TWICE) {
		link_say(c, r, "it refused another process",
			"that is this rank too, with the same epoch; end one of them");
		return;
	}
	if (n != 0) {
		link_close(c, r, now, n < 0 ? "its process or host has ended" : "it was stopped");
		return;
	}
	if (state == CRPC_KV_PEER_LOST) {
		link_close(c, r, now, crpc_kv_server_peer_why(c->server, r));
		return;
	}
	if (l->up || state != CRPC_KV_PEER_UP)
		return;
	l->up = true;
	l->said[0] = '\0';
	l->version_begin = l->hello.version_begin;
	l->instance = l->hello.instance;
	kvd_event(CRPC_LOG_NOTICE, "rank %u %s (epoch %" PRIu64 ")", r,
		before == l->version_begin ? "is connected again"
			: before != 0      ? "joined again"
					   : "joined",
		l->version_begin >> KVD_EPOCH_BITS);
}

static void
down_turn(struct kvd_cluster *c, uint32_t r, uint64_t now)
{
	endpoints_renew(c, r);
	if (r < c->hello.rank && now >= c->link[r].until_ns)
		dial(c, r, now);
}

static void
link_turn(struct kvd_cluster *c, uint32_t r, short events, uint64_t now)
{
	static void (*const turns[])(struct kvd_cluster *c, uint32_t r, uint64_t now) = {
		[LINK_DOWN] = down_turn,
		[LINK_DIALING] = dialed,
		[LINK_HELLO] = hello_read,
		[LINK_MET] = met_watch,
		[LINK_ADDRESS] = address_exchange,
		[LINK_OPEN] = open_watch,
	};
	enum link_state state = c->link[r].state;

	if (state != LINK_DOWN && state != LINK_OPEN && now >= c->link[r].until_ns)
		link_close(c, r, now, "it was too slow");
	else if (events != 0 || (state != LINK_DIALING && state != LINK_HELLO))
		turns[state](c, r, now);
}

static void
stranger_end(struct stranger *s)
{
	close(s->fd);
	s->fd = -1;
}

/*
 * A place for one more: a free one, or that of the one who has waited longest; of its own source,
 * if that has its part of the places. NULL: that one came in this turn, so its hello, if it sent
 * one, was not read yet.
 */
static struct stranger *
stranger_place(struct kvd_cluster *c, const struct sockaddr_storage *from, uint64_t until_ns)
{
	struct stranger *s, *oldest = NULL, *mine = NULL, *empty = NULL;
	uint32_t n = 0;

	for (s = c->stranger; s < c->stranger + KVD_STRANGERS; s++) {
		if (s->fd < 0) {
			empty = s;
			continue;
		}
		if (oldest == NULL || s->until_ns < oldest->until_ns)
			oldest = s;
		if (!kvd_host_same(&s->from, from))
			continue;
		n++;
		if (mine == NULL || s->until_ns < mine->until_ns)
			mine = s;
	}
	if (n < KVD_STRANGERS_SOURCE && empty != NULL)
		return empty;
	s = n < KVD_STRANGERS_SOURCE ? oldest : mine;
	if (s->until_ns == until_ns)
		return NULL;
	stranger_end(s);
	return s;
}

static void
stranger_say(struct kvd_cluster *c, uint64_t now, const char why[256])
{
	if (now < c->strange_ns || strcmp(c->strange, why) == 0)
		return;
	snprintf(c->strange, sizeof(c->strange), "%s", why);
	c->strange_ns = now + STRANGE_NS;
	kvd_event(CRPC_LOG_WARNING, "a connection was refused: %s", why);
}

/* Whether an address is that of a rank which connects to us; UINT32_MAX: of any. */
static bool
is_address(const struct kvd_cluster *c, uint32_t r, const struct sockaddr_storage *from)
{
	uint32_t end = r == UINT32_MAX ? c->ranks : r + 1;

	for (uint32_t i = r == UINT32_MAX ? c->hello.rank + 1 : r; i < end; i++)
		for (const struct addrinfo *a = c->link[i].addresses; a != NULL; a = a->ai_next)
			if (kvd_host_same(from, a->ai_addr))
				return true;
	return false;
}

static void
strangers_accept(struct kvd_cluster *c, uint64_t now)
{
	const uint64_t until_ns = now + KVD_HELLO_MS * MS;
	struct sockaddr_storage from;
	char name[64], why[256];
	struct stranger *s;
	socklen_t len;
	int fd;

	for (uint32_t i = 0; i < ACCEPTS; i++) {
		len = sizeof(from);
		memset(&from, 0, sizeof(from));
		fd = accept4(
			c->listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		if (!is_address(c, UINT32_MAX, &from)) {
			close(fd);
			if (getnameinfo((struct sockaddr *)&from, len, name, sizeof(name), NULL, 0,
				    NI_NUMERICHOST) != 0)
				snprintf(name, sizeof(name), "none");
			snprintf(why, sizeof(why),
				"expected the address of a higher rank of --hosts, found %s", name);
			stranger_say(c, now, why);
			continue;
		}
		s = stranger_place(c, &from, until_ns);
		if (s == NULL) {
			close(fd);
			continue;
		}
		socket_tune(fd);
		*s = (struct stranger){.fd = fd, .from = from, .until_ns = until_ns};
	}
}

/* A hello is whole: of a higher rank, which gets its link, or of none. */
static void
stranger_hello(struct kvd_cluster *c, struct stranger *s, uint64_t now)
{
	uint32_t r = s->hello.rank, self = c->hello.rank;
	char why[256];
	enum kvd_hello_is is = kvd_hello_check(&c->hello, &s->hello, self + 1, c->ranks, why);

	if (is == KVD_HELLO_GOOD && !is_address(c, r, &s->from)) {
		snprintf(why, sizeof(why), "it is not at the address of rank %u in --hosts", r);
		is = KVD_HELLO_OTHER;
	}
	if (is == KVD_HELLO_GOOD && !is_next(c, r, &s->hello, why)) {
		is = KVD_HELLO_OTHER;
		if (c->link[r].up && c->link[r].instance != 0 &&
			s->hello.version_begin == c->link[r].version_begin)
			send(c->link[r].fd, &(char){BYTE_TWICE}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	if (!hello_send(c, s->fd, is != KVD_HELLO_GOOD) || is != KVD_HELLO_GOOD) {
		if (is != KVD_HELLO_GOOD)
			stranger_say(c, now, why);
		stranger_end(s);
		return;
	}
	if (c->link[r].state != LINK_DOWN)
		link_close(c, r, now, "it connected again");
	c->link[r].hello = s->hello;
	link_begin(c, r, s->fd, now);
	s->fd = -1;
}

static void
stranger_turn(struct kvd_cluster *c, struct stranger *s, uint64_t now)
{
	ssize_t n = receive(s->fd, (uint8_t *)&s->hello + s->got, sizeof(s->hello) - s->got);

	if (n < 0 || now >= s->until_ns) {
		stranger_end(s);
		return;
	}
	s->got += (uint32_t)n;
	if (s->got == sizeof(s->hello))
		stranger_hello(c, s, now);
}

static short
link_events(const struct link *l)
{
	if (l->state == LINK_DIALING || (l->state == LINK_ADDRESS && l->out_at != l->out_len))
		return POLLIN | POLLOUT;
	return POLLIN;
}

bool
kvd_cluster_met(const struct kvd_cluster *c, uint32_t r)
{
	return c->link[r].state >= LINK_MET;
}

void
kvd_cluster_turn(struct kvd_cluster *c, uint64_t now_ns, int wait_ms)
{
	struct pollfd *fd = c->fd;
	uint32_t r;

	while ((r = crpc_kv_server_wanted(c->server)) != c->ranks)
		c->link[r].wanted = true;
	*fd++ = (struct pollfd){.fd = c->listener, .events = POLLIN};
	for (uint32_t i = 0; i < KVD_STRANGERS; i++)
		*fd++ = (struct pollfd){.fd = c->stranger[i].fd, .events = POLLIN};
	for (uint32_t i = 0; i < c->ranks; i++)
		*fd++ = (struct pollfd){.fd = c->link[i].fd, .events = link_events(&c->link[i])};
	poll(c->fd, (nfds_t)(fd - c->fd), wait_ms);
	for (uint32_t i = 0; i < c->ranks; i++)
		if (i != c->hello.rank)
			link_turn(c, i, c->fd[1 + KVD_STRANGERS + i].revents, now_ns);
	for (uint32_t i = 0; i < KVD_STRANGERS; i++)
		if (c->stranger[i].fd >= 0)
			stranger_turn(c, &c->stranger[i], now_ns);
	if (c->fd[0].revents != 0)
		strangers_accept(c, now_ns);
}

void
kvd_cluster_free(struct kvd_cluster *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i < c->ranks; i++) {
		if (c->link[i].state == LINK_OPEN)
			send(c->link[i].fd, &(char){BYTE_STOP}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (c->link[i].fd >= 0)
			close(c->link[i].fd);
		if (c->link[i].addresses != NULL)
			freeaddrinfo(c->link[i].addresses);
		messages_free(&c->link[i]);
	}
	for (uint32_t i = 0; i < KVD_STRANGERS; i++)
		if (c->stranger[i].fd >= 0)
			close(c->stranger[i].fd);
	if (c->listener >= 0)
		close(c->listener);
	free(c);
}
