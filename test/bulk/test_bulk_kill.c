/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill -9 of a real second process in the middle of transfers: of each path, as sender and as
 * receiver, with one rail and with two. Of the survivor every request ends with success or a named
 * error, in bounded time; its pool is full again, no buffer is touched afterwards, its memory is
 * what it was, and its connection works again with a new process.
 *
 * Any RDMA device will do; the tests start it on the software one. Without a device it is skipped.
 * ROUNDS=n in the environment: so many kills; SEED=n: begin with this one.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "bulk_check.h"
#include "bulk_end.h"
#include "crpc_clock.h"
#include "device.h"

#define ROUNDS 6
#define LEN    (1u << 20)
#define CHUNK  (32u << 10)
#define OPEN   4u
#define RAILS  2u
#define S      UINT64_C(1000000000)
/* Longer than any process waits for its core. */
#define LOST_NS (2 * S)
#define WAIT_NS (60 * S)

/* One end, with a message in each of its buffers. */
struct end {
	struct bulk_end at;
	bool sends;
	uint32_t path;
	uint64_t next, ended; /* messages */
	uint8_t *buf[OPEN];
	bool open[OPEN];
};

static bool
end_open(struct end *e)
{
	const struct crpc_copyrpc_conf net = {.ring_size = 16384, .peer_timeout_ns = LOST_NS};
	const struct crpc_bulk_conf bulk = {
		.chunk = CHUNK, .timeout_ns = 2 * LOST_NS, .confirm_ns = S};

	for (uint32_t i = 0; i < OPEN; i++)
		e->buf[i] = malloc(LEN);
	return end_device(&e->at, NULL, &net) && end_bulk(&e->at, &bulk, RAILS);
}

/* The whole of a buffer by socket. */
static bool
give(int fd, const void *data, size_t len)
{
	return write(fd, data, len) == (ssize_t)len;
}

static bool
get(int fd, void *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = read(fd, (char *)data + at, len - at);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

/* Connect to the process at the other side of the socket, with a barrier. */
static bool
meet(struct end *e, int fd)
{
	uint8_t addr[CRPC_BULK_ADDR_LEN], peer[CRPC_BULK_ADDR_LEN], ready = 1;

	crpc_bulk_conn_addr(e->at.conn, addr);
	return give(fd, addr, sizeof(addr)) && get(fd, peer, sizeof(peer)) &&
		crpc_bulk_conn_connect(e->at.conn, peer) == 0 && give(fd, &ready, 1) &&
		get(fd, &ready, 1);
}

static uint64_t
word(uint64_t number, uint32_t at)
{
	return (number + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ at;
}

static bool
is_message(const uint8_t *buf, uint64_t number)
{
	const uint64_t *w = (const uint64_t *)(const void *)buf;

	for (uint32_t i = 0; i < LEN / 8; i++) {
		if (w[i] != word(number, i))
			return false;
	}
	return true;
}

/* Begin what can begin. Messages go in order, one per buffer. False: the connection broke. */
static bool
start(struct end *e)
{
	uint64_t now = crpc_clock_ns(), req, *w;
	int rc;

	for (uint32_t at = e->next % OPEN; !e->open[at]; at = e->next % OPEN) {
		w = (uint64_t *)(void *)e->buf[at];
		for (uint32_t i = 0; e->sends && i < LEN / 8; i++)
			w[i] = word(e->next, i);
		rc = e->sends ? crpc_bulk_isend(e->at.conn, now, 5, w, LEN, e->path, e->next, &req)
			      : crpc_bulk_irecv(e->at.conn, now, 5, w, LEN, 0, e->next, &req);
		if (rc != 0)
			return false;
		e->open[at] = true;
		e->next++;
	}
	return true;
}

/* ---- the process that is killed ---- */

static int
victim(int fd, bool sends, uint32_t path)
{
	struct crpc_bulk_result result;
	struct end e = {.sends = sends, .path = path};

	if (!end_open(&e) || !meet(&e, fd))
		return 1;
	while (start(&e)) {
		crpc_bulk_progress(e.at.b, crpc_clock_ns());
		while (crpc_bulk_test_burst(e.at.b, &result, 1) != 0) {
			if (result.status != 0 ||
				(!sends && !is_message(e.buf[result.cookie % OPEN], result.cookie)))
				return 2;
			e.open[result.cookie % OPEN] = false;
		}
	}
	return 3;
}

static pid_t
victim_start(int *fd, bool sends, uint32_t path)
{
	char text[3][16];
	char *args[] = {
		(char[]){"test_bulk_kill"}, (char[]){"victim"}, text[0], text[1], text[2], NULL};
	int pair[2];
	pid_t pid;

	/* the child's end outlives exec, ours does not */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(text[0], sizeof(text[0]), "%d", pair[1]);
	snprintf(text[1], sizeof(text[1]), "%d", sends);
	snprintf(text[2], sizeof(text[2]), "%u", path);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(pair[0]);
		execv("/proc/self/exe", args);
		_exit(127);
	}
	close(pair[1]);
	*fd = pair[0];
	return pid;
}

/* ---- the survivor ---- */

static struct end survivor;

/*
 * Take what has ended. A buffer is spoiled at once: so later writes into it would show.
 */
static void
take(struct end *e, bool killed, uint64_t seed)
{
	struct crpc_bulk_result result;

	while (crpc_bulk_test_burst(e->at.b, &result, 1) != 0) {
		uint8_t *buf = e->buf[result.cookie % OPEN];

		if (result.status == 0 && !e->sends && !is_message(buf, result.cookie))
			fail_msg("seed %llu: message %llu is not itself", (unsigned long long)seed,
				(unsigned long long)result.cookie);
		if (result.status != 0 &&
			(!killed || (result.status != -ECONNRESET && result.status != -ETIMEDOUT)))
			fail_msg("seed %llu: status %d%s: %s", (unsigned long long)seed,
				result.status, killed ? "" : " before the kill", crpc_log_last());
		memset(buf, 0x5a, LEN);
		e->open[result.cookie % OPEN] = false;
		e->ended++;
	}
}

/* Everything of the peer that died comes to its end. */
static void
bury(struct end *e, uint64_t seed)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint32_t sends, recvs, i, k, touched = 0;

	do {
		crpc_bulk_progress(e->at.b, crpc_clock_ns());
		take(e, true, seed);
		if (crpc_clock_ns() > until)
			fail_msg("seed %llu: requests do not end", (unsigned long long)seed);
	} while (e->ended != e->next);
	crpc_bulk_pool(e->at.conn, &sends, &recvs);
	assert_int_equal(sends, 16);
	assert_int_equal(recvs, 16);
	crpc_bulk_conn_shutdown(e->at.conn); /* with no request open it may not know yet */
	while (crpc_bulk_conn_reset(e->at.conn) != 0) {
		crpc_bulk_progress(e->at.b, crpc_clock_ns());
		assert_true(crpc_clock_ns() < until);
	}
	for (i = 0; i < 2000; i++)
		crpc_bulk_progress(e->at.b, crpc_clock_ns());
	for (i = 0; i < OPEN; i++) {
		for (k = 0; k < LEN; k++)
			touched += e->buf[i][k] != 0x5a;
	}
	assert_int_equal(touched, 0);
	if (bulk_check(e->at.b, true) != 0)
		fail_msg("seed %llu: %s", (unsigned long long)seed, crpc_log_last());
}

/* One process comes, works, and dies. */
static void
life(struct end *e, uint64_t seed)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS, x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t messages = 6 + (x >> 40) % 6, turns = (x >> 20) % 200;
	int fd, status;
	pid_t pid;

	e->path = CRPC_BULK_EAGER << seed % 3;
	e->sends = seed / 3 % 2;
	e->next = e->ended = 0;
	pid = victim_start(&fd, !e->sends, e->path);
	if (!meet(e, fd))
		fail_msg("seed %llu: %s", (unsigned long long)seed, crpc_log_last());
	while (e->ended < messages || turns-- != 0) {
		assert_true(start(e));
		crpc_bulk_progress(e->at.b, crpc_clock_ns());
		take(e, false, seed);
		if (crpc_clock_ns() > until)
			fail_msg("seed %llu: messages stand still", (unsigned long long)seed);
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("seed %llu: the other process ended by itself: %d",
			(unsigned long long)seed, WEXITSTATUS(status));
	close(fd);
	bury(e, seed);
}

TEST(survivor_of_kills)
{
	const char *text = getenv("ROUNDS"), *from = getenv("SEED");
	uint64_t rounds = text != NULL ? strtoull(text, NULL, 0) : ROUNDS, i;
	uint64_t seed = from != NULL ? strtoull(from, NULL, 0) : 0, before, after;
	struct end *e = &survivor;

	if (!end_open(e))
		fail_msg("%s", crpc_log_last());
	life(e, seed);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (i = 1; i < rounds; i++)
		life(e, seed + i);
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	if (after > before + 65536)
		fail_msg("%llu bytes more than after the first kill",
			(unsigned long long)(after - before));
	end_close(&e->at);
	for (i = 0; i < OPEN; i++)
		free(e->buf[i]);
}

int
main(int argc, char **argv)
{
	crpc_clock_init();
	signal(SIGPIPE, SIG_IGN);
	if (argc == 5)
		return victim(atoi(argv[2]), atoi(argv[3]) != 0, (uint32_t)atoi(argv[4]));
	if (device_missing())
		return 77;
	return test_run(NULL, NULL);
}
