/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a DCT remembers of those that were connected to it over UDP: not more than its limit,
 * nothing of who was silent for long, and never so little that something is done twice or not at
 * all.
 */
#include <arpa/inet.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"
#include "crpc_util.h"

#include "engine_rig.h"
#include "engine/roce.h"
#include "engine/wire_udp.h"

#define DC_KEY   UINT64_C(0x0badc0de12345678)
#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
#define LIMIT    4u
#define NDCI     10u
#define SECOND   UINT64_C(1000000000)
#define NUMBERS  0x10000u /* Of queue pairs of a context. */

static struct rig_host a, b;
static struct rig_dct dct;
static struct rig_qp dci[NDCI];
static uint32_t sent[NDCI]; /* Messages of each. */
static uint32_t came[NDCI];

/* Where the next context's lives of DCIs begin. Those of one that comes to a number again differ in
 * the upper half. */
static uint32_t lives = 0x5eedff00;

/* In the place of the library's: the test chooses how a process differs from earlier ones. */
ssize_t
getrandom(void *buf, size_t len, unsigned int flags)
{
	if (len == sizeof(lives))
		memcpy(buf, &lives, len);
	else /* A secret. */
		memset(buf, 0x5e, len);
	return (ssize_t)len;
}

static int
open_all(void **state)
{
	const char *net = rig_net();

	rig_udp = true;
	rig_retry = 7;
	rig_dct_conns = LIMIT;
	rig_host_open(&a, net, 1 << 20);
	rig_host_open(&b, net, 1 << 20);
	rig_dct_open(&b, &dct, DC_KEY);
	for (uint32_t i = 0; i < NDCI; i++)
		rig_ready_open(&a, &dci[i], SM_DCI, 0);
	while (dct.posted < 32)
		rig_dct_recv(&dct, b.mem, 4096);
	memset(sent, 0, sizeof(sent));
	memset(came, 0, sizeof(came));
	return 0;
}

static int
close_all(void **state)
{
	for (uint32_t i = 0; i < NDCI; i++)
		rig_qp_close(&dci[i]);
	rig_dct_close(&dct);
	rig_host_close(&a);
	rig_host_close(&b);
	return 0;
}

static void
message(uint32_t i)
{
	rig_send_to(&dci[i], i << 16 | sent[i]++, DC_KEY, dct.qp.qpn, rig_gid, a.mem, 100);
}

/* What arrived: of each in order, none twice, none left out. */
static void
drain(void)
{
	struct mlx5_cqe64 *c;

	while ((c = rig_poll(&dct.qp.rcq)) != NULL) {
		uint32_t imm = be32toh(c->imm_inval_pkey), from = imm >> 16;

		assert_int_equal(c->op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
		assert_true(from < NDCI);
		assert_int_equal(imm & 0xffff, came[from]++);
		rig_dct_recv(&dct, b.mem, 4096);
	}
}

static void
send_ok(uint32_t i)
{
	message(i);
	assert_int_equal(rig_expect(&a, &b, &dci[i].scq)->op_own >> 4, MLX5_CQE_REQ);
	drain();
	assert_int_equal(came[i], sent[i]);
}

/* Both cards work, so many times, a microsecond apart. */
static void
both_progress(uint32_t n)
{
	for (; n != 0; n--, rig_now += 1000) {
		sm_nic_progress(a.nic, rig_now);
		sm_nic_progress(b.nic, rig_now);
	}
}

/* Let so much time pass, with checks for life. */
static void
pass(uint64_t ns)
{
	uint64_t end = rig_now + ns;

	for (; rig_now < end; rig_now += 20000000) {
		sm_nic_progress(a.nic, rig_now);
		sm_nic_progress(b.nic, rig_now);
	}
}

static uint32_t
connections(void)
{
	static const char name[] = "\"connections\":";
	char *text = NULL, *at;
	uint32_t n = 0;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	sm_nic_stat(b.nic, f);
	fclose(f);
	for (at = text; (at = strstr(at, name)) != NULL; at++)
		n += (uint32_t)strtoul(at + sizeof(name) - 1, NULL, 10);
	free(text);
	return n;
}

/* Who comes back after its connection went connects again, goes on with its numbers, and nothing is
 * lost or doubled by it. */
TEST_FIXTURE(the_longest_silent_goes, open_all, close_all)
{
	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t i = 0; i < NDCI; i++) {
			send_ok(i);
			send_ok(i);
			assert_in_range(connections(), 1, LIMIT);
			pass(11 * SECOND / LIMIT + SECOND);
		}
	assert_int_equal(connections(), LIMIT);
}

/* Those that speak are kept: one more is not heard until one of them is silent. */
TEST_FIXTURE(who_speaks_stays, open_all, close_all)
{
	for (uint32_t i = 0; i < LIMIT; i++)
		send_ok(i);
	for (uint32_t n = 0; n < 12; n++) {
		pass(SECOND);
		for (uint32_t i = 0; i < LIMIT; i++)
			send_ok(i);
	}
	message(LIMIT);
	pass(SECOND / 2);
	assert_int_equal(came[LIMIT], 0);
	for (uint32_t i = 0; i < LIMIT; i++)
		send_ok(i);
	pass(2 * SECOND);
	assert_int_equal(connections(), LIMIT);
	assert_null(rig_poll(&dci[LIMIT].scq));
}

/* Threads that read the clock and then wait for each other come with times that step back. */
TEST_FIXTURE(a_time_that_steps_back_makes_no_connection_old, open_all, close_all)
{
	for (uint32_t i = 0; i < LIMIT; i++)
		send_ok(i);
	message(LIMIT);
	for (uint32_t i = 0; i < 200; i++, rig_now += 1000) {
		sm_nic_progress(a.nic, rig_now);
		sm_nic_progress(b.nic, rig_now - SECOND / 10);
	}
	drain();
	assert_int_equal(came[LIMIT], 0);
	for (uint32_t i = 0; i < LIMIT; i++)
		send_ok(i);
	pass(2 * SECOND);
	assert_int_equal(connections(), LIMIT);
}

/* All connections of a host that is silent for half a minute go, and so the host is forgotten. */
TEST_FIXTURE(a_silent_host_is_forgotten, open_all, close_all)
{
	for (uint32_t i = 0; i < LIMIT; i++)
		send_ok(i);
	for (uint32_t s = 0; s < 25; s++)
		pass(SECOND);
	assert_int_equal(connections(), LIMIT);
	for (uint32_t s = 0; s < 10; s++)
		pass(SECOND);
	assert_int_equal(connections(), 0);
	for (uint32_t i = 0; i < NDCI / 2; i++)
		pass(11 * SECOND), send_ok(i);
}

/*
 * A message is done, its acknowledgement lost, and its connection forgotten before it is sent
 * again: it must not be done twice. Its sender fails, and works again after its RESET; others do
 * not notice.
 */
TEST_FIXTURE(what_was_done_is_not_done_again, open_all, close_all)
{
	struct mlx5_cqe64 *c;

	send_ok(0);
	assert_int_equal(sm_nic_faults(a.nic, "drop=1"), 0);
	message(0);
	both_progress(10);
	drain();
	assert_int_equal(came[0], 2);
	sm_nic_progress(a.nic, rig_now); /* The acknowledgement is lost. */
	assert_int_equal(sm_nic_faults(a.nic, ""), 0);
	/* Its host stands still for a minute. */
	for (uint64_t end = rig_now + 60 * SECOND; rig_now < end; rig_now += 20000000)
		sm_nic_progress(b.nic, rig_now);
	assert_int_equal(connections(), 0);
	c = rig_expect(&a, &b, &dci[0].scq);
	assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ_ERR);
	assert_int_equal(RIG_SYND(c), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
	drain();
	assert_int_equal(came[0], 2);
	send_ok(1);
	rig_set_state(&dci[0], IBV_QPS_RESET);
	rig_ready(&dci[0], 0);
	send_ok(0);
}

/* The same, while its connection is remembered: acknowledged, not done again, however late. */
TEST_FIXTURE(what_is_remembered_goes_on, open_all, close_all)
{
	send_ok(0);
	assert_int_equal(sm_nic_faults(a.nic, "drop=1"), 0);
	message(0);
	both_progress(10);
	assert_int_equal(sm_nic_faults(a.nic, ""), 0);
	for (uint64_t end = rig_now + 20 * SECOND; rig_now < end; rig_now += 20000000)
		sm_nic_progress(b.nic, rig_now);
	assert_int_equal(connections(), 1);
	assert_int_equal(rig_expect(&a, &b, &dci[0].scq)->op_own >> 4, MLX5_CQE_REQ);
	drain();
	assert_int_equal(came[0], 2);
	send_ok(0);
}

/* A message of the first DCI, of which all packets are lost, its CONNECT, too. */
static void
send_lost(void)
{
	assert_int_equal(sm_nic_faults(b.nic, "drop=1"), 0);
	message(0);
	both_progress(4);
	assert_int_equal(sm_nic_faults(b.nic, ""), 0);
}

/*
 * The first CONNECT after a RESET is lost, and what follows finds the connection of before: it must
 * not be taken for what was done already, whatever the numbers were.
 */
TEST_FIXTURE(a_lost_connect_is_noticed, open_all, close_all)
{
	for (uint32_t k = 1; k < 12; k++) {
		for (uint32_t n = 0; n < k; n++)
			send_ok(0);
		rig_set_state(&dci[0], IBV_QPS_RESET);
		rig_ready(&dci[0], 0);
		send_lost();
		for (uint32_t i = 0; i < k; i++)
			message(0);
		for (uint32_t i = 0; i <= k; i++)
			assert_int_equal(
				rig_expect(&a, &b, &dci[0].scq)->op_own >> 4, MLX5_CQE_REQ);
		drain();
		assert_int_equal(came[0], sent[0]);
	}
}

/*
 * The first DCI is made with this number. Returns how many queue pairs its context had made before,
 * each of which may have taken a life.
 */
static uint32_t
dci_open_as(uint32_t want)
{
	struct sm_qp_attr attr = {.type = SM_DCI, .pd = a.pd};
	struct sm_qp *qp;
	struct rig_qp cqs;
	uint32_t qpn, made = 1;

	rig_qp_open(&a, &cqs, NULL);
	while (want - cqs.qpn < 2) { /* In the way. */
		rig_qp_close(&cqs);
		rig_qp_open(&a, &cqs, NULL);
		made++;
	}
	attr.send_cq = attr.recv_cq = cqs.scq.cq;
	attr.dbrec = cqs.dbrec;
	attr.uar_page = a.uar_id;
	for (uint32_t i = 0; i < NUMBERS; i++) {
		assert_int_equal(sm_qp_create(a.nic, &attr, &qp, &qpn), 0);
		assert_int_equal(sm_destroy(a.nic, qp), 0);
		made++;
		if (qpn == want - 1)
			break;
	}
	rig_ready_open(&a, &dci[0], SM_DCI, 0);
	assert_int_equal(dci[0].qpn, want);
	rig_qp_close(&cqs);
	return made;
}

/* A new DCI that has the number of an old one is not taken for it: numbers come back in time, and a
 * process that is started again may begin with those it had. */
TEST_FIXTURE(a_number_comes_back, open_all, close_all)
{
	uint32_t want = dci[0].qpn;

	for (uint32_t i = 0; i < 5; i++)
		send_ok(0);
	rig_qp_close(&dci[0]);
	dci_open_as(want);
	for (uint32_t i = 0; i < 5; i++)
		send_ok(0);
}

/*
 * The initiator's process is started again at its address, and happens to get the same numbers,
 * also those of packets. Its first CONNECT is lost: what follows finds the connection of before,
 * which must not take it for what it has seen.
 */
TEST_FIXTURE(a_restarted_process_is_not_taken_for_the_old_one, open_all, close_all)
{
	uint32_t want = dci[0].qpn, addr = a.addr, made;

	send_ok(0);
	send_ok(0);
	for (uint32_t i = 0; i < NDCI; i++)
		rig_qp_close(&dci[i]);
	rig_host_close(&a);
	rig_addr = addr;
	lives += 0x12340000;
	rig_host_open(&a, rig_net(), 1 << 20);
	rig_addr = 0;
	/* The first one of before had the first life. Packet numbers repeat after 256 of them. */
	for (made = dci_open_as(want); made % 256 != 0; made++) {
		rig_set_state(&dci[0], IBV_QPS_RESET);
		rig_ready(&dci[0], 0);
	}
	for (uint32_t i = 1; i < NDCI; i++)
		rig_ready_open(&a, &dci[i], SM_DCI, 0);
	send_lost();
	for (uint32_t i = 0; i < 3; i++)
		message(0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_expect(&a, &b, &dci[0].scq)->op_own >> 4, MLX5_CQE_REQ);
	drain();
	assert_int_equal(came[0], sent[0]);
}

static uint64_t cookie; /* That packets of packet_send() have. */

/* The packet of a ring, as RoCEv2 from a port of a host to b's. */
static void
packet_send(const struct sm_hdr *h, enum sm_roce_transport transport, uint32_t from, uint32_t port)
{
	struct sm_roce_path path = {
		from, b.addr, (uint16_t)port, (uint16_t)(SM_ROCE_PORT + (dct.qp.qpn >> 16))};
	struct sockaddr_in ours = {.sin_family = AF_INET,
		.sin_port = htons(path.sport),
		.sin_addr.s_addr = htonl(from)};
	struct sockaddr_in theirs = {.sin_family = AF_INET,
		.sin_port = htons(path.dport),
		.sin_addr.s_addr = htonl(b.addr)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), whole = IP_PMTUDISC_DO;
	uint8_t bytes[SM_ROCE_BYTES], headers[SM_ROCE_IP_UDP];
	struct sm_roce p;
	uint32_t n;

	assert_true(sm_roce_piece(h, NULL, 10, transport, 0, &p));
	p.word[0] = cookie;
	n = sm_roce_put(&p, bytes);
	sm_roce_ip_udp(&path, n + SM_ROCE_ICRC, headers);
	sm_roce_icrc(headers, bytes, n, bytes + n);
	assert_int_not_equal(fd, -1);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ours, sizeof(ours)), 0);
	assert_int_equal(
		sendto(fd, bytes, n + SM_ROCE_ICRC, 0, (struct sockaddr *)&theirs, sizeof(theirs)),
		n + SM_ROCE_ICRC);
	close(fd);
}

/* A CONNECT that says it is of `slot` of the host at `from`. */
static void
connect_from(uint32_t from, uint32_t slot, uint64_t key)
{
	const struct sm_hdr h = {.head = SM_PKT_CONNECT << 16,
		.dst = dct.qp.qpn,
		.src = slot << 16 | 1,
		.psn = 7,
		.raddr = key,
		.imm = from};

	packet_send(&h, SM_ROCE_DC, from, SM_ROCE_PORT + slot);
}

/*
 * A process on a peer's host, at another port of its address, sends what the peer would: to a
 * connected queue pair, as a datagram, and to a DCT. Nothing of it is heard.
 */
TEST_FIXTURE(other_ports_of_a_host_are_not_the_peer, open_all, close_all)
{
	const uint32_t port = SM_ROCE_PORT + SM_SLOTS + 1, once = SM_PKT_FIRST | SM_PKT_LAST;
	struct rig_qp x, y, d;

	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &y, NULL);
	rig_connect(&x, &y);
	rig_ready_open(&b, &d, SM_UD, 5);
	rig_recv(&y, NULL, 0, 0);
	rig_recv(&d, b.mem, 4096, b.key);
	send_ok(0);
	packet_send(&(struct sm_hdr){.head = SM_PKT_SEND << 16 | once << 24,
			    .dst = y.qpn,
			    .src = x.qpn,
			    .psn = 0xfffff0},
		SM_ROCE_RC, a.addr, port);
	packet_send(&(struct sm_hdr){.head = SM_PKT_DATAGRAM << 16 | once << 24,
			    .dst = d.qpn,
			    .src = x.qpn,
			    .rkey = 5},
		SM_ROCE_UD, a.addr, port);
	packet_send(&(struct sm_hdr){.head = SM_PKT_CONNECT << 16,
			    .dst = dct.qp.qpn,
			    .src = x.qpn,
			    .psn = 7,
			    .raddr = DC_KEY},
		SM_ROCE_DC, a.addr, port);
	both_progress(10);
	assert_null(rig_poll(&y.rcq));
	assert_null(rig_poll(&d.rcq));
	assert_int_equal(connections(), 1);
	rig_send(&x, MLX5_OPCODE_SEND, 0, NULL, 0);
	assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	assert_non_null(rig_poll(&y.rcq));
	send_ok(0);
	rig_link_close(&x, &y);
	rig_qp_close(&d);
}

/* Bytes of the heap, those in maps of their own included. */
static size_t
heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* 20 hosts of 256 contexts, which know their cookies if they hear answers. */
static void
strangers_connect(uint64_t key, bool hear)
{
	for (uint32_t host = 0x7ff00001; host < 0x7ff00015; host++)
		for (uint32_t slot = 0; slot < 256; slot++) {
			cookie = hear ? sm_udp_cookie(b.nic, host, slot) : 0;
			connect_from(host, slot, key);
			if (slot % 16 == 0)
				sm_nic_progress(b.nic, rig_now += 1000);
		}
	cookie = 0;
	sm_nic_progress(b.nic, rig_now += 1000);
}

/* A host that was not there yet gets through to the target. */
static void
newcomer_served(struct rig_host *other)
{
	struct rig_qp q;

	rig_ready_open(other, &q, SM_DCI, 0);
	rig_send_to(&q, 1 << 16, DC_KEY, dct.qp.qpn, rig_gid, other->mem, 100);
	assert_int_equal(rig_expect(other, &b, &q.scq)->op_own >> 4, MLX5_CQE_REQ);
	drain();
	assert_int_equal(came[1], 1);
	rig_qp_close(&q);
}

/*
 * CONNECTs that claim to come from more contexts than a context remembers, each of an address that
 * hears no answer. They cost the receiver no memory, and who can be reached still connects.
 */
TEST_FIXTURE(spoofed_connects_shut_none_out, open_all, close_all)
{
	struct rig_host other;
	size_t before;

	send_ok(0);
	before = heap_bytes();
	strangers_connect(DC_KEY, false);
	assert_in_range(heap_bytes(), 0, before + (4 << 20));
	assert_int_equal(connections(), 1);
	send_ok(0);
	rig_host_open(&other, rig_net(), 4096);
	newcomer_served(&other);
	rig_host_close(&other);
}

/* They receive at the addresses that they have, and know our cookies, but not the key. */
TEST_FIXTURE(strangers_without_the_key_shut_none_out, open_all, close_all)
{
	struct rig_host other;
	struct rig_qp q;

	send_ok(0);
	strangers_connect(DC_KEY + 1, true);
	send_ok(0);
	rig_host_open(&other, rig_net(), 4096);
	rig_ready_open(&other, &q, SM_DCI, 0);
	rig_send_to(&q, 1 << 16, DC_KEY + 1, dct.qp.qpn, rig_gid, other.mem, 100);
	assert_int_equal(((const struct mlx5_err_cqe *)rig_expect(&other, &b, &q.scq))->syndrome,
		MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	rig_qp_close(&q);
	newcomer_served(&other);
	rig_host_close(&other);
}

TEST_MAIN(NULL, NULL)
