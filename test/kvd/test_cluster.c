/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that find each other by TCP: they exchange addresses, one that ends is lost, one that is
 * started again joins again, and no connection of a stranger disturbs them, whatever it sends.
 *
 * Each rank is a kvd_cluster and a server of this file: its addresses say which rank made them for
 * which, and how often its endpoints were renewed, and connect() checks them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_fail.h"
#include "cluster.h"
#include "crpc_clock.h"
#include "epoch.h"
#include "event.h"
#include "test.h"

#define RANKS       3
#define ADDRESS_MAX 100000
#define WAIT_NS     UINT64_C(8000000000)

/* What stands in an address; zeros follow up to its length. */
struct address {
	uint32_t from, to, renewed;
};

struct crpc_kv_server {
	uint32_t rank;
	enum crpc_kv_peer peer[RANKS];
	uint32_t renewed[RANKS], connected[RANKS];
	uint32_t renewing[RANKS]; /* Turns until renew() is done. */
	uint32_t wanted;          /* A rank that requests wait for, and 1. */
	bool here[RANKS];
	bool slow;                /* Its daemons take no step yet: */
	bool connecting[RANKS];
	struct address theirs[RANKS];
};

size_t
crpc_kv_server_address_max(const struct crpc_kv_server *s)
{
	(void)s;
	return ADDRESS_MAX;
}

int64_t
crpc_kv_server_address(struct crpc_kv_server *s, uint32_t peer, void *buf, size_t max)
{
	struct address a = {s->rank, peer, s->renewed[peer]};

	assert_int_equal(max, ADDRESS_MAX);
	assert_false(s->connecting[peer]); /* Its endpoints are the daemons' now. */
	if (s->renewing[peer] != 0 && --s->renewing[peer] != 0)
		return -EAGAIN;
	s->peer[peer] = CRPC_KV_PEER_NEW;
	memset(buf, 0, max);
	memcpy(buf, &a, sizeof(a));
	return ADDRESS_MAX - s->rank;
}

int
crpc_kv_server_connect(struct crpc_kv_server *s, uint32_t peer, const void *buf, size_t len)
{
	assert_int_equal(s->peer[peer], CRPC_KV_PEER_NEW);
	if (len != ADDRESS_MAX - peer)
		return -EPROTO;
	memcpy(&s->theirs[peer], buf, sizeof(s->theirs[peer]));
	if (s->theirs[peer].from != peer || s->theirs[peer].to != s->rank)
		return -EPROTO;
	s->peer[peer] = s->slow ? CRPC_KV_PEER_NEW : CRPC_KV_PEER_UP;
	s->connecting[peer] = s->slow;
	s->connected[peer]++;
	return 0;
}

void
crpc_kv_server_here(struct crpc_kv_server *s, uint32_t peer, bool here)
{
	s->here[peer] = here;
}

uint32_t
crpc_kv_server_wanted(struct crpc_kv_server *s)
{
	uint32_t wanted = s->wanted == 0 ? RANKS : s->wanted - 1;

	s->wanted = 0;
	return wanted;
}

enum crpc_kv_peer
crpc_kv_server_peer(const struct crpc_kv_server *s, uint32_t peer)
{
	return s->peer[peer];
}

const char *
crpc_kv_server_peer_why(const struct crpc_kv_server *s, uint32_t peer)
{
	(void)s;
	(void)peer;
	return "an endpoint to it broke";
}

void
crpc_kv_server_lose(struct crpc_kv_server *s, uint32_t peer, const char *why)
{
	assert_non_null(why);
	s->peer[peer] = CRPC_KV_PEER_LOST;
	s->connecting[peer] = false;
}

int
crpc_kv_server_renew(struct crpc_kv_server *s, uint32_t peer)
{
	assert_int_equal(s->peer[peer], CRPC_KV_PEER_LOST);
	if (s->renewing[peer] != 0)
		return 0;
	s->renewing[peer] = 3;
	s->renewed[peer]++;
	return 0;
}

static struct kvd_hosts hosts;
static struct crpc_kv_server server[RANKS];
static struct kvd_cluster *cluster[RANKS];
static int err_fd, err_old;
static bool on_use;

static struct kvd_hello
hello_of(uint32_t rank, uint64_t epoch)
{
	return (struct kvd_hello){.magic = KVD_HELLO_MAGIC,
		.version = KVD_HELLO_VERSION,
		.rank = rank,
		.version_begin = epoch << KVD_EPOCH_BITS,
		.instance = epoch << 8 | rank,
		.ranks = RANKS,
		.daemons = 1,
		.key_size = 8,
		.value_size = 8,
		.keys = 1000,
		.secret = "the secret of this test"};
}

static void
start(uint32_t rank, uint64_t epoch)
{
	struct kvd_hello hello = hello_of(rank, epoch);

	server[rank] = (struct crpc_kv_server){.rank = rank};
	cluster[rank] = kvd_cluster_create(&hosts, &hello, &server[rank], on_use);
	assert_non_null(cluster[rank]);
}

static void
stop(uint32_t rank)
{
	kvd_cluster_free(cluster[rank]);
	cluster[rank] = NULL;
}

static void
turn(void)
{
	uint32_t r;

	for (r = 0; r < RANKS; r++)
		if (cluster[r] != NULL)
			kvd_cluster_turn(cluster[r], crpc_clock_ns(), 1);
}

/* Whether all that run are connected with each other, as they are now. */
static bool
all_up(void)
{
	uint32_t r, p;

	for (r = 0; r < RANKS; r++)
		for (p = 0; p < RANKS; p++) {
			if (p == r || cluster[r] == NULL || cluster[p] == NULL)
				continue;
			if (server[r].peer[p] != CRPC_KV_PEER_UP ||
				server[r].theirs[p].renewed != server[p].renewed[r])
				return false;
		}
	return true;
}

/* What was printed since the start of the test. */
static const char *
said(void)
{
	static char text[1 << 16];
	ssize_t n = pread(err_fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static uint32_t
times_said(const char *words)
{
	const char *p = said();
	uint32_t n = 0;

	while ((p = strstr(p, words)) != NULL) {
		n++;
		p++;
	}
	return n;
}

static void
until(bool up, const char *words)
{
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	uint32_t i;

	do
		turn();
	while (crpc_clock_ns() < end && ((up && !all_up()) || times_said(words) == 0));
	for (i = 0; i < 5; i++) /* Others notice it too. */
		turn();
	if (up)
		assert_true(all_up());
	if (times_said(words) == 0)
		fail_msg("'%s' was not said, but: %s", words, said());
}

static int
setup(void **state)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	socklen_t len = sizeof(in);
	int fd[RANKS], i;

	(void)state;
	on_use = false;
	app_fail_name("kvd");
	kvd_event_level(2);
	hosts.n = RANKS;
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (i = 0; i < RANKS; i++) {
		in.sin_port = 0;
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(fd[i], (struct sockaddr *)&in, len) != 0 ||
			getsockname(fd[i], (struct sockaddr *)&in, &len) != 0)
			return -1;
		snprintf(hosts.host[i].name, sizeof(hosts.host[i].name), "127.0.0.1");
		snprintf(hosts.host[i].port, sizeof(hosts.host[i].port), "%u", ntohs(in.sin_port));
	}
	for (i = 0; i < RANKS; i++)
		close(fd[i]);
	err_fd = memfd_create("stderr", MFD_CLOEXEC);
	err_old = dup(STDERR_FILENO);
	dup2(err_fd, STDERR_FILENO);
	return 0;
}

static int
teardown(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < RANKS; i++)
		if (cluster[i] != NULL)
			stop(i);
	fflush(stderr);
	dup2(err_old, STDERR_FILENO);
	fputs(said(), stderr);
	close(err_old);
	close(err_fd);
	return 0;
}

/* A connection to a rank, from 127.0.0.source. */
static int
call_from(uint32_t rank, uint32_t source)
{
	struct sockaddr_in from = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) | source)};
	struct sockaddr_in in = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(hosts.host[rank].port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

static int
call(uint32_t rank)
{
	return call_from(rank, 1);
}

static void
say(int fd, const void *buf, size_t len)
{
	assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), len);
}

/* Turn until the rank answers; it ends the connection: 0. */
static ssize_t
hear(int fd, void *buf, size_t len)
{
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	ssize_t n = -1;

	while (n < 0 && crpc_clock_ns() < end) {
		turn();
		n = recv(fd, buf, len, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN)
			n = 0;
	}
	assert_true(n >= 0);
	return n;
}

static void
ranks_join_in_any_order(void **state)
{
	(void)state;
	start(2, 1);
	start(1, 1);
	turn();
	start(0, 1);
	until(true, "rank 2 joined (epoch 1)");
	until(true, "rank 0 joined (epoch 1)");
}

static void
a_rank_that_was_started_again_joins_again(void **state)
{
	uint32_t r, others;

	(void)state;
	for (r = 0; r < RANKS; r++)
		start(r, 5);
	until(true, "joined (epoch 5)");
	for (r = 0; r < RANKS; r++) {
		stop(r);
		until(false, "it was stopped; operations on its keys fail");
		others = server[(r + 1) % RANKS].connected[(r + 2) % RANKS];
		start(r, 6);
		until(true, "joined again (epoch 6)");
		/* The others did not lose each other. */
		assert_int_equal(server[(r + 1) % RANKS].connected[(r + 2) % RANKS], others);
	}
	assert_int_equal(times_said("lost rank 1: "), 2);
	assert_int_equal(times_said("rank 1 joined again (epoch 6)"), 2);
}

static void
meet(void)
{
	uint64_t end = crpc_clock_ns() + WAIT_NS;
	uint32_t met = 0, i;

	while (met != RANKS * (RANKS - 1) && crpc_clock_ns() < end) {
		turn();
		met = 0;
		for (i = 0; i < RANKS * RANKS; i++)
			met += i / RANKS != i % RANKS &&
				kvd_cluster_met(cluster[i / RANKS], i % RANKS);
	}
	assert_int_equal(met, RANKS * (RANKS - 1));
	for (i = 0; i < 20; i++)
		turn();
}

/* With --connect use, of two ranks the one that has a request lets both connect. */
static void
ranks_connect_when_one_has_a_request(void **state)
{
	uint32_t r, epoch;

	(void)state;
	on_use = true;
	for (r = 0; r < RANKS; r++)
		start(r, 1);
	for (epoch = 1; epoch < 3; epoch++) {
		meet();
		assert_int_equal(server[0].connected[1], 0);
		server[epoch == 1 ? 1 : 0].wanted = 1 + (epoch == 1 ? 0 : 1);
		until(false,
			epoch == 1 ? "rank 0 joined (epoch 1)" : "rank 0 joined again (epoch 2)");
		assert_int_equal(server[0].peer[1], CRPC_KV_PEER_UP);
		assert_int_equal(server[0].connected[1], 1);
		assert_int_equal(server[1].connected[0], epoch);
		assert_int_equal(server[2].connected[0] + server[2].connected[1], 0);
		if (epoch == 2)
			break;
		stop(0);
		until(false, "lost rank 0: it was stopped");
		start(0, 2);
	}
	/* One that ends before is no loss. */
	stop(2);
	for (r = 0; r < 20; r++)
		turn();
	assert_false(kvd_cluster_met(cluster[0], 2));
	assert_true(server[0].here[1] && !server[0].here[2]);
	assert_int_equal(times_said("lost rank 2"), 0);
}

static void
a_rank_that_the_server_lost_is_connected_again(void **state)
{
	(void)state;
	start(0, 1);
	start(1, 1);
	until(true, "joined");
	server[0].peer[1] = CRPC_KV_PEER_LOST;
	until(true, "rank 1 is connected again (epoch 1)");
	assert_int_equal(times_said("lost rank 1: an endpoint to it broke"), 1);
	assert_true(server[0].connected[1] == 2 && server[1].connected[0] == 2);
}

/* The old connection still seems to be there: a higher epoch takes its place, a lower one not. */
static void
a_higher_epoch_takes_the_place_of_a_lower_one(void **state)
{
	struct kvd_hello hello = hello_of(1, 9);
	int fd;

	(void)state;
	start(0, 3);
	start(1, 3);
	until(true, "joined");
	fd = call(0);
	say(fd, &hello, sizeof(hello));
	until(false, "lost rank 1: it connected again");
	until(false, "expected versions from 9895604649984 on, found 3298534883328");
	close(fd);
	until(false, "rank 0: refused: it refuses our secret or epoch");
	assert_int_equal(server[0].peer[1], CRPC_KV_PEER_NEW);
	stop(1);
	start(1, 10);
	until(true, "rank 1 joined again (epoch 10)");
}

/* An older process, in a cluster without a secret, prints that it is refused, too. */
static void
a_rank_with_an_older_epoch_is_refused(void **state)
{
	struct kvd_hello hello;
	uint32_t epoch;

	(void)state;
	for (epoch = 5; epoch >= 4; epoch--) {
		hello = hello_of(1, epoch);
		memset(hello.secret, 0, sizeof(hello.secret));
		server[1] = (struct crpc_kv_server){.rank = 1};
		cluster[1] = kvd_cluster_create(&hosts, &hello, &server[1], on_use);
		if (epoch == 5) {
			hello.rank = 0;
			server[0] = (struct crpc_kv_server){.rank = 0};
			cluster[0] = kvd_cluster_create(&hosts, &hello, &server[0], on_use);
			until(true, "rank 1 joined (epoch 5)");
			stop(1);
		}
	}
	until(false, "refused: expected versions from 5497558138880 on, found 4398046511104");
	until(false, "rank 0: refused: it refuses our secret or epoch");
}

static void
refuse(struct kvd_hello hello, const char *words)
{
	const struct kvd_hello none = {0};
	struct kvd_hello answer;
	int fd = call(0);

	say(fd, &hello, sizeof(hello));
	assert_int_equal(hear(fd, &answer, sizeof(answer)), sizeof(answer));
	/* Why is to be seen there, but not our secret. */
	assert_int_equal(answer.version, KVD_HELLO_VERSION);
	assert_memory_equal(answer.secret, none.secret, sizeof(none.secret));
	assert_int_equal(hear(fd, &answer, 1), 0);
	close(fd);
	until(false, words);
	usleep(510000); /* One line in half a second. */
}

/* What a hello alone says of an epoch does not keep the rank out for ever. */
static void
an_epoch_counts_once_its_rank_is_up(void **state)
{
	struct kvd_hello hello = hello_of(1, 1000), answer;
	int fd;

	(void)state;
	start(0, 3);
	fd = call(0);
	say(fd, &hello, sizeof(hello));
	assert_int_equal(hear(fd, &answer, sizeof(answer)), sizeof(answer));
	assert_int_equal(answer.refusal, 0);
	close(fd);
	start(1, 3);
	until(true, "rank 1 joined (epoch 3)");
	/* One that is up keeps earlier ones out, so it cannot be far ahead. */
	refuse(hello_of(1, UINT64_C(1) << 23), "correct its clock or epoch file");
	assert_true(all_up());
}

static void
two_processes_with_one_epoch_are_told_apart(void **state)
{
	struct kvd_hello hello = hello_of(1, 3);
	uint32_t i;

	(void)state;
	start(0, 3);
	start(1, 3);
	until(true, "joined");
	hello.instance++;
	for (i = 0; i < 2; i++) {
		refuse(hello, "expected the process that is rank 1, found another");
		until(true, "rank 0: it refused another process: that is this rank too");
	}
	assert_int_equal(times_said("it refused another process"), 1);
	assert_int_equal(times_said("lost"), 0);
	stop(1);
	refuse(hello, "expected the process that is rank 1, found another");
	start(1, 3);
	until(true, "rank 1 is connected again (epoch 3)");
}

/* Its connection ends before the daemons have connected to it. */
static void
a_rank_that_ends_while_it_is_connected_joins_again(void **state)
{
	(void)state;
	start(0, 1);
	start(1, 1);
	server[0].slow = true;
	while (!server[0].connecting[1])
		turn();
	stop(1);
	start(1, 2);
	server[0].slow = false;
	until(true, "rank 1 joined (epoch 2)");
	assert_int_equal(server[0].connected[1], 2);
}

static void
hellos_that_do_not_fit_are_refused(void **state)
{
	struct kvd_hello hello;

	(void)state;
	start(0, 3);
	start(1, 3);
	until(true, "joined");
	hello = hello_of(2, 1);
	hello.version = 9;
	refuse(hello, "expected version 1 of the exchange between ranks, found 9");
	hello = hello_of(2, 1);
	hello.value_size = 64;
	refuse(hello,
		"expected 3 ranks, --daemons 1, --key-size 8, --value-size 8, --keys 1000, "
		"found 3, 1, 8, 64, 1000");
	hello = hello_of(2, 1);
	hello.secret[3] ^= 1;
	refuse(hello, "another --secret-file");
	refuse(hello_of(0, 1), "expected a rank from 1 to 2, found 0");
	refuse(hello_of(3, 1), "expected a rank from 1 to 2, found 3");
	refuse(hello_of(1, 2), "expected versions from 3298534883328 on, found 2199023255552");
	assert_true(all_up());
	assert_int_equal(times_said("lost"), 0);
}

static void
the_rank_that_is_refused_says_so_once(void **state)
{
	struct kvd_hello hello = hello_of(1, 1);
	uint64_t end;

	(void)state;
	start(0, 1);
	hello.keys = 5;
	server[1] = (struct crpc_kv_server){.rank = 1};
	cluster[1] = kvd_cluster_create(&hosts, &hello, &server[1], on_use);
	until(false,
		"rank 0: refused: expected 3 ranks, --daemons 1, --key-size 8, --value-size 8, "
		"--keys 5, found 3, 1, 8, 8, 1000");
	for (end = crpc_clock_ns() + 1500 * UINT64_C(1000000); crpc_clock_ns() < end;)
		turn();
	assert_int_equal(times_said("rank 0: refused"), 1);
}

/* Strangers that say nothing, more than there are places: a rank joins all the same. */
static void
strangers_do_not_keep_ranks_out(void **state)
{
	int fd[3 * KVD_STRANGERS], i;
	uint32_t files;

	(void)state;
	start(0, 1);
	files = test_open_files();
	for (i = 0; i < (int)CRPC_DIM(fd); i++) {
		fd[i] = call(0);
		turn();
	}
	assert_true(test_open_files() - files <= CRPC_DIM(fd) + KVD_STRANGERS_SOURCE);
	start(1, 1);
	until(true, "rank 1 joined");
	for (i = 0; i < (int)CRPC_DIM(fd); i++)
		close(fd[i]);
}

/* The hosts file names who may connect: others are not even heard, and take no place. */
static void
other_addresses_are_refused_at_once(void **state)
{
	struct kvd_hello hello = hello_of(1, 1), answer;
	uint32_t files, i;
	int fd;

	(void)state;
	snprintf(hosts.host[2].name, sizeof(hosts.host[2].name), "127.0.0.3");
	start(0, 1);
	files = test_open_files();
	for (i = 0; i < 3 * KVD_STRANGERS; i++) {
		fd = call_from(0, 2);
		send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
		assert_int_equal(hear(fd, &answer, sizeof(answer)), 0);
		close(fd);
	}
	assert_int_equal(test_open_files(), files);
	assert_int_equal(times_said("expected the address of a higher rank of --hosts, found "
				    "127.0.0.2"),
		1);
	usleep(510000);
	fd = call_from(0, 3);
	say(fd, &hello, sizeof(hello));
	assert_int_equal(hear(fd, &answer, sizeof(answer)), sizeof(answer));
	assert_int_equal(answer.refusal, 1);
	until(false, "it is not at the address of rank 1 in --hosts");
	close(fd);
	start(1, 1);
	until(true, "rank 1 joined");
}

/* It takes its time with each byte: the connection ends, and so does that of a silent rank. */
static void
slow_senders_time_out(void **state)
{
	struct kvd_hello hello = hello_of(1, 1);
	uint64_t begin, end;
	int fd;
	char c;

	(void)state;
	start(0, 1);
	fd = call(0);
	say(fd, &hello, 1);
	begin = crpc_clock_ns();
	assert_int_equal(hear(fd, &c, 1), 0);
	end = crpc_clock_ns();
	assert_true(end - begin > (KVD_HELLO_MS - 100) * UINT64_C(1000000));
	close(fd);
}

/* A rank, or what has its secret, that does not keep to the exchange. */
static void
hostile_addresses_are_refused(void **state)
{
	static const uint32_t lens[] = {0, ADDRESS_MAX + 1, UINT32_MAX, 8};
	struct kvd_hello hello = hello_of(1, 1), answer;
	static uint8_t waste[ADDRESS_MAX];
	uint32_t i;
	ssize_t n;
	int fd;

	(void)state;
	start(0, 1);
	for (i = 0; i < CRPC_DIM(lens); i++) {
		fd = call(0);
		say(fd, &hello, sizeof(hello));
		assert_int_equal(hear(fd, &answer, sizeof(answer)), sizeof(answer));
		say(fd, &lens[i], sizeof(lens[i]));
		say(fd, waste, 8);
		do
			n = hear(fd, waste, sizeof(waste));
		while (n > 0);
		close(fd);
		assert_int_equal(server[0].peer[1], CRPC_KV_PEER_NEW);
	}
	until(false, "rank 1: refused: its addresses are of another version");
	start(1, 1);
	until(true, "rank 1 joined");
}

/* Random bytes, random ends, and hellos with random changes: the two ranks stay up. */
static void
random_bytes_change_nothing(void **state)
{
	uint64_t seed = (uint64_t)time(NULL), random = seed, w;
	uint8_t bytes[2 * sizeof(struct kvd_hello)];
	struct kvd_hello hello;
	uint32_t files, i, k;
	size_t len;
	int fd;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	start(0, 1);
	start(1, 1);
	until(true, "joined");
	files = test_open_files();
	for (i = 0; i < 500; i++) {
		for (k = 0; k < sizeof(bytes); k += 8) {
			w = crpc_random(&random);
			memcpy(bytes + k, &w, 8);
		}
		hello = hello_of(1, 1);
		w = crpc_random(&random);
		((uint8_t *)&hello)[w % sizeof(hello)] ^= (uint8_t)(1 + (w >> 8) % 255);
		/* A higher epoch is a rank that was started again: that is no stranger. */
		hello.version_begin = 0;
		if (w >> 63 != 0)
			memcpy(bytes, &hello, sizeof(hello));
		len = 1 + (w >> 16) % sizeof(bytes);
		fd = call(0);
		say(fd, bytes, len);
		turn();
		close(fd);
		assert_true(all_up());
	}
	turn();
	turn();
	assert_true(test_open_files() <= files + KVD_STRANGERS);
	assert_int_equal(times_said("lost"), 0);
}

/* The same for the check alone, and for a rank's answer to our call. */
static void
random_hellos_are_checked(void **state)
{
	uint64_t seed = (uint64_t)time(NULL), random = seed, w;
	struct kvd_hello mine = hello_of(0, 1), theirs;
	char why[256];
	uint32_t i, k;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < 200000; i++) {
		theirs = hello_of(1, 1);
		w = crpc_random(&random);
		for (k = 0; k <= w % 4; k++) {
			w = crpc_random(&random);
			((uint8_t *)&theirs)[(w >> 8) % sizeof(theirs)] = (uint8_t)w;
		}
		memset(why, 'x', sizeof(why));
		if (kvd_hello_check(&mine, &theirs, 1, RANKS, why) != KVD_HELLO_GOOD)
			assert_non_null(memchr(why, '\0', sizeof(why)));
		else
			assert_true(theirs.rank >= 1 && theirs.rank < RANKS &&
				memcmp(theirs.secret, mine.secret, sizeof(mine.secret)) == 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ranks_join_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_rank_that_was_started_again_joins_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			ranks_connect_when_one_has_a_request, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_rank_that_the_server_lost_is_connected_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_higher_epoch_takes_the_place_of_a_lower_one, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_rank_with_an_older_epoch_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_rank_that_ends_while_it_is_connected_joins_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			hellos_that_do_not_fit_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_rank_that_is_refused_says_so_once, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers_do_not_keep_ranks_out, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_epoch_counts_once_its_rank_is_up, setup, teardown),
		cmocka_unit_test_setup_teardown(
			two_processes_with_one_epoch_are_told_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(
			other_addresses_are_refused_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(slow_senders_time_out, setup, teardown),
		cmocka_unit_test_setup_teardown(hostile_addresses_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(random_bytes_change_nothing, setup, teardown),
		cmocka_unit_test(random_hellos_are_checked),
	};

	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
