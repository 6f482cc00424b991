/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire between contexts: killed processes, reused slots, forks, leftovers, foreign versions,
 * and a peer that writes rubbish.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/wire.h"
#include "engine_rig.h"
#include "rnd.h"

static char dir[160];

/* The folder of a net that nobody is on must not exist. */
static void
net_dir(const char *net)
{
	snprintf(dir, sizeof(dir), "%s/soft_mlx5.%u.%s",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (unsigned int)geteuid(), net);
}

static bool
exists(const char *file)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return stat(path, &st) == 0;
}

static uint32_t
ring_files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	uint32_t n = 0;

	while (d != NULL && (e = readdir(d)) != NULL)
		n += e->d_name[0] == 'r';
	if (d != NULL)
		closedir(d);
	return n;
}

static void
nothing_is_left(void **state)
{
	const char *net = rig_net();
	struct rig_host a, b;
	struct rig_qp x, y;

	net_dir(net);
	assert_false(exists(""));
	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	assert_true(exists("net"));
	rig_link_open(&a, &x, &b, &y, NULL);
	assert_int_equal(ring_files(), 2);
	rig_recv(&y, NULL, 0, 0);
	rig_send(&x, MLX5_OPCODE_SEND, 0, NULL, 0);
	assert_non_null(rig_expect(&a, &b, &x.scq));
	assert_int_equal(ring_files(), 0); /* Mapped by both ends: their names are gone. */
	rig_link_close(&x, &y);
	rig_host_close(&a);
	assert_true(exists("net"));
	rig_host_close(&b);
	assert_false(exists(""));
}

/* In a child: join, connect to @qpn, tell ours, take one message, wait to be killed. */
static void
victim(const char *net, int in, int out)
{
	struct rig_host h;
	struct rig_qp q;
	uint32_t peer;

	rig_host_open(&h, net, 4096);
	rig_qp_open(&h, &q, NULL);
	if (read(in, &peer, sizeof(peer)) != sizeof(peer))
		_exit(1);
	rig_to_rts(&q, peer);
	rig_recv(&q, NULL, 0, 0);
	if (write(out, &q.qpn, sizeof(q.qpn)) != sizeof(q.qpn))
		_exit(1);
	rig_expect(&h, NULL, &q.rcq);
	rig_run(&h, NULL); /* Acknowledges it. */
	if (write(out, "x", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* The peer is killed with work open: that fails soon, the slot can be used again. */
static void
killed_peer(void **state)
{
	const char *net = rig_net();
	struct rig_host a, b;
	struct rig_qp q, r;
	int to[2], from[2];
	struct rig_wqe w;
	uint32_t qpn;
	uint64_t t0;
	pid_t pid;
	char c;

	net_dir(net);
	assert_int_equal(pipe(to) | pipe(from), 0);
	pid = fork();
	if (pid == 0)
		victim(net, to[0], from[1]);
	rig_host_open(&a, net, 4096);
	rig_qp_open(&a, &q, NULL);
	assert_int_equal(write(to[1], &q.qpn, sizeof(q.qpn)), sizeof(q.qpn));
	assert_int_equal(read(from[0], &qpn, sizeof(qpn)), sizeof(qpn));
	rig_to_rts(&q, qpn);
	rig_send(&q, MLX5_OPCODE_SEND, 0, NULL, 0);
	rig_run(&a, NULL);
	assert_int_equal(read(from[0], &c, 1), 1);
	assert_int_equal(rig_expect(&a, NULL, &q.scq)->op_own >> 4, MLX5_CQE_REQ);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (uint32_t i = 0; i < 2; i++) {
		rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
		rig_post(&q, &w);
	}
	t0 = rig_now;
	assert_int_equal(RIG_SYND(rig_expect(&a, NULL, &q.scq)),
		MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	assert_in_range(rig_now - t0, 0, 100000000); /* A tenth of a second of virtual time. */
	assert_int_equal(RIG_SYND(rig_expect(&a, NULL, &q.scq)), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	/* The next process finds room and a clean net. */
	rig_host_open(&b, net, 4096);
	rig_qp_open(&b, &r, NULL);
	rig_set_state(&q, SM_QPS_RESET);
	rig_connect(&q, &r);
	rig_recv(&r, NULL, 0, 0);
	rig_send(&q, MLX5_OPCODE_SEND, 0, NULL, 0);
	assert_int_equal(rig_expect(&a, &b, &q.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_pair_close(&q, &r);
	assert_false(exists(""));
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
}

/* A process killed with rings and a slot: the next one starts as on a fresh net. */
static void
killed_alone(void **state)
{
	const char *net = rig_net();
	struct rig_host h;
	int ready[2];
	pid_t pid;
	char c;

	net_dir(net);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct rig_host a, b;
		struct rig_qp x, y;

		rig_host_open(&a, net, 4096);
		rig_host_open(&b, net, 4096);
		rig_link_open(&a, &x, &b, &y, NULL);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(ring_files(), 2);
	rig_host_open(&h, net, 4096);
	assert_int_equal(ring_files(), 0);
	rig_host_close(&h);
	assert_false(exists(""));
	close(ready[0]);
	close(ready[1]);
}

/* A forked child cannot use the parent's nic and cannot hurt it, even by freeing it. */
static void
fork_child(void **state)
{
	const char *net = rig_net();
	struct rig_host a, b, mine;
	struct rig_qp x, y;
	int status;
	pid_t pid;

	net_dir(net);
	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	rig_link_open(&a, &x, &b, &y, NULL);
	pid = fork();
	if (pid == 0) {
		uint32_t pdn;
		struct sm_pd *pd;
		bool ok;

		sm_nic_fork_child(a.nic);
		sm_nic_fork_child(b.nic);
		ok = sm_pd_create(a.nic, &pd, &pdn) == EIO && sm_qp_destroy(a.nic, x.qp) == EIO &&
			sm_nic_progress(a.nic, 1) == 0 && sm_nic_idle(a.nic);
		sm_nic_free(a.nic);
		sm_nic_free(b.nic);
		rig_host_open(&mine, net, 4096); /* A slot of its own. */
		rig_host_close(&mine);
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_recv(&y, NULL, 0, 0);
	rig_send(&x, MLX5_OPCODE_SEND, 0, NULL, 0);
	assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_pair_close(&x, &y);
	assert_false(exists(""));
}

static int
try_net(const char *net)
{
	struct sm_nic_attr attr = {.net = net};
	struct sm_nic *nic;
	int rc = sm_nic_create(&attr, &nic);

	if (rc == 0)
		sm_nic_free(nic);
	return rc;
}

static void
refused_nets(void **state)
{
	const char *net = rig_net();
	struct rig_host h;
	char path[256];
	uint32_t one = 1 << 20;
	int fd;

	assert_int_equal(try_net(""), EINVAL);
	assert_int_equal(try_net("../x"), EINVAL);
	assert_int_equal(try_net("a/b"), EINVAL);
	assert_int_equal(try_net("a b"), EINVAL);
	net_dir(net);
	/* A folder that others may write. */
	assert_int_equal(mkdir(dir, 0700) | chmod(dir, 0777), 0);
	assert_int_equal(try_net(net), EACCES);
	assert_int_equal(rmdir(dir), 0);
	/* Another version in use; the same left behind by the dead is replaced. */
	rig_host_open(&h, net, 4096);
	snprintf(path, sizeof(path), "%s/net", dir);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, &one, sizeof(one), 8), sizeof(one));
	assert_int_equal(try_net(net), EPROTO);
	one = SM_WIRE_VERSION;
	assert_int_equal(pwrite(fd, &one, sizeof(one), 8), sizeof(one));
	close(fd);
	rig_host_close(&h);
	assert_int_equal(mkdir(dir, 0700), 0);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "an older format", 15), 15);
	close(fd);
	assert_int_equal(try_net(net), 0);
	assert_false(exists(""));
}

static void
slots_run_out(void **state)
{
	const char *net = rig_net();
	static struct sm_nic *nic[SM_SLOTS];
	struct sm_nic_attr attr = {.net = net};
	struct sm_nic *more;

	net_dir(net);
	for (uint32_t i = 0; i < SM_SLOTS; i++)
		assert_int_equal(sm_nic_create(&attr, &nic[i]), 0);
	assert_int_equal(sm_nic_create(&attr, &more), ENOSPC);
	sm_nic_free(nic[77]);
	assert_int_equal(sm_nic_create(&attr, &nic[77]), 0);
	for (uint32_t i = 0; i < SM_SLOTS; i++)
		sm_nic_free(nic[i]);
	assert_false(exists(""));
}

/* Many peers, most of them silent for long: each is heard in the end, and answered. */
static void
many_peers(void **state)
{
	enum { N = 24 };
	static struct rig_host h[N], hub;
	static struct rig_qp x[N], y[N];
	const char *net = rig_net();

	net_dir(net);
	rig_host_open(&hub, net, 4096);
	for (uint32_t i = 0; i < N; i++) {
		rig_host_open(&h[i], net, 4096);
		rig_qp_open(&h[i], &x[i], NULL);
		rig_qp_open(&hub, &y[i], NULL);
		rig_connect(&x[i], &y[i]);
	}
	for (uint32_t i = 0; i < 3000; i++) /* They all become silent ones. */
		sm_nic_progress(hub.nic, rig_now += 100);
	for (uint32_t round = 0; round < 20; round++)
		for (uint32_t i = round % 7; i < N; i += 1 + round) {
			rig_recv(&y[i], NULL, 0, 0);
			rig_send(&x[i], MLX5_OPCODE_SEND_IMM, i, NULL, 0);
			assert_int_equal(
				be32toh(rig_expect(&h[i], &hub, &y[i].rcq)->imm_inval_pkey), i);
			assert_non_null(rig_expect(&h[i], &hub, &x[i].scq));
		}
	for (uint32_t i = 0; i < N; i++) {
		rig_link_close(&x[i], &y[i]);
		rig_host_close(&h[i]);
	}
	for (uint32_t i = 0; i < 1000; i++) /* The dead ones are dropped from either list. */
		sm_nic_progress(hub.nic, rig_now += 1000000);
	assert_true(sm_nic_idle(hub.nic));
	rig_host_close(&hub);
	assert_false(exists(""));
}

/* One packet of rubbish: mostly near the truth, so that it gets far. */
static void
rubbish(struct sm_tx *tx, uint64_t *s, uint32_t src, const struct rig_qp *q,
	const struct rig_host *h)
{
	static const uint32_t lens[] = {0, 8, 16, 32, 64, SM_FRAG};
	uint32_t len = lens[rnd(s) % 6];
	struct sm_pkt_room room;
	struct sm_hdr hdr;

	if (!sm_tx_room(tx, len, 0, &room))
		return;
	for (uint32_t i = 0; i < len; i++)
		room.payload[i] = (uint8_t)rnd(s);
	hdr.dst = q->qpn | (uint32_t)(rnd(s) % 3) << 24;
	hdr.src = rnd(s) % 20 == 0 ? (uint32_t)rnd(s) : src;
	hdr.psn = (0xfffff0 + (uint32_t)(rnd(s) % 3)) & 0xffffff;
	hdr.raddr = (uintptr_t)h->mem + (rnd(s) % 4 == 0 ? rnd(s) : rnd(s) % h->bytes);
	hdr.rkey = rnd(s) % 4 == 0 ? (uint32_t)rnd(s) : h->key;
	hdr.imm = rnd(s) % 2 == 0 ? (uint32_t)rnd(s) : (uint32_t)rnd(s) % 20000;
	sm_tx_commit(tx, &room, &hdr, len, (enum sm_pkt_type)(2 + rnd(s) % 9),
		(uint32_t)rnd(s) % 32);
}

/* A peer that speaks the wire, but badly: the nic keeps its memory and goes on with others. */
static void
hostile_peer(void **state)
{
	const char *net = rig_net();
	uint64_t seed = 0x9e3779b97f4a7c15u;
	struct sm_tx tx = {.limit = SM_RING_BYTES};
	struct sm_ring_from from = {0};
	struct sm_pkt_room room;
	struct sm_wire *wire;
	uint32_t slot, taken = 0;
	struct rig_host h;

	net_dir(net);
	rig_host_open(&h, net, 65536);
	assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
	print_message("seed 0x%lx\n", (unsigned long)seed);
	for (uint32_t round = 0; round < 100; round++) {
		struct rig_qp q;

		rig_qp_open(&h, &q, NULL);
		if (tx.ring == NULL)
			assert_int_equal(sm_wire_ring_create(wire, q.qpn >> 16,
				sm_wire_gen(wire, q.qpn >> 16), &from, &tx.ring), 0);
		rig_to_rts(&q, slot << 16 | 0x2345);
		for (uint32_t i = 0; i < 8; i++)
			rig_recv(&q, h.mem, 4096, h.key);
		rig_rdma(&q, MLX5_OPCODE_RDMA_READ, 0, h.mem, 1, h.mem, 100);
		for (uint32_t i = 0; i < 200; i++) {
			rubbish(&tx, &seed, slot << 16 | 0x2345, &q, &h);
			if (i % 8 == 0)
				sm_nic_progress(h.nic, rig_now += 1000);
			while (rig_poll(&q.rcq) != NULL || rig_poll(&q.scq) != NULL)
				taken++;
		}
		rig_qp_close(&q);
	}
	assert_true(taken > 100); /* Some of it did get far. */
	/* A length that no packet has: the peer is cut off, what it sends then is not read. */
	assert_true(sm_tx_room(&tx, 0, 0, &room));
	sm_tx_commit(&tx, &room, &(struct sm_hdr){0}, 60000, SM_PKT_WRITE, 3);
	for (uint32_t i = 0; i < 100; i++)
		sm_nic_progress(h.nic, rig_now += 1000);
	assert_true(sm_nic_idle(h.nic));
	sm_wire_ring_free(tx.ring);
	sm_wire_close(wire);
	rig_host_close(&h);
	assert_false(exists(""));
}

/* A packet by hand into a ring. */
static void
raw_packet(struct sm_tx *tx, enum sm_pkt_type type, uint32_t flags, const struct sm_hdr *h,
	uint32_t len)
{
	struct sm_pkt_room room = {0};

	assert_true(sm_tx_room(tx, len, 0, &room));
	memset(room.payload, 0x77, len);
	sm_tx_commit(tx, &room, h, len, type, flags);
}

/* Who a DCI speaks to sends it requests: it answers to none and goes on. */
static void
an_initiator_takes_no_requests(void **state)
{
	static const enum sm_pkt_type types[] = {SM_PKT_SEND, SM_PKT_WRITE, SM_PKT_READ,
		SM_PKT_CMP_SWAP, SM_PKT_FETCH_ADD};
	struct rig_qp_conf conf = {.type = SM_QPT_DCI};
	const char *net = rig_net();
	struct sm_tx tx = {.limit = SM_RING_BYTES};
	struct sm_ring_from from = {0};
	struct sm_wire *wire;
	struct sm_hdr hdr;
	struct rig_host h;
	struct rig_wqe w;
	struct rig_qp q;
	uint32_t slot;

	rig_host_open(&h, net, 4096);
	assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
	rig_qp_open(&h, &q, &conf);
	rig_ready(&q, 0);
	assert_int_equal(sm_wire_ring_create(wire, q.qpn >> 16,
		sm_wire_gen(wire, q.qpn >> 16), &from, &tx.ring), 0);
	rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	rig_wqe_av(&w, UINT64_C(0x7700000077), slot << 16 | 0x2345, SM_LID, NULL);
	rig_wqe_data(&w, h.mem, 8, h.key);
	rig_post(&q, &w);
	rig_run(&h, NULL);
	hdr = (struct sm_hdr){.src = slot << 16 | 0x2345,
		.raddr = (uintptr_t)h.mem, .rkey = h.key};
	for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		hdr.dst = q.qpn | i << 24; /* Each as after another refusal. */
		raw_packet(&tx, types[i], SM_PKT_FIRST | SM_PKT_LAST, &hdr, 16);
		rig_run(&h, NULL);
		assert_int_equal(rig_state(&q), SM_QPS_RTS);
		assert_null(rig_poll(&q.scq));
		assert_null(rig_poll(&q.rcq));
	}
	rig_qp_close(&q);
	sm_wire_ring_free(tx.ring);
	sm_wire_close(wire);
	rig_host_close(&h);
}

/*
 * Goal: one pass is a bounded amount of work, whatever a peer says it has taken. Method: one that
 * asks for 32 MiB and says that it always has room.
 */
static void
a_greedy_reader_gets_its_part_of_a_pass(void **state)
{
	const uint32_t bytes = 32u << 20;
	const char *net = rig_net();
	struct sm_tx tx = {.limit = SM_RING_BYTES};
	struct sm_ring_from from = {0};
	struct soft_mlx5_ledger l;
	struct sm_wire *wire;
	struct sm_ring *ring;
	uint32_t slot, src, gen;
	struct rig_host h;
	struct rig_qp q;
	uint64_t before;

	rig_host_open(&h, net, bytes);
	assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
	rig_qp_open(&h, &q, NULL);
	rig_to_rts(&q, slot << 16 | 0x2345);
	ring = sm_wire_ring_take(wire, &src, &gen);
	assert_non_null(ring);
	crpc_store_release(&ring->taken, UINT64_C(1) << 62);
	assert_int_equal(sm_wire_ring_create(wire, q.qpn >> 16,
		sm_wire_gen(wire, q.qpn >> 16), &from, &tx.ring), 0);
	raw_packet(&tx, SM_PKT_READ, SM_PKT_FIRST | SM_PKT_LAST, &(struct sm_hdr){.dst = q.qpn,
		.src = slot << 16 | 0x2345, .psn = 0xfffff0, .raddr = (uintptr_t)h.mem,
		.rkey = h.key, .imm = bytes}, 0);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(sm_nic_ledger(h.nic, 0, &l), 0);
		before = l.dma_read_bytes;
		sm_nic_progress(h.nic, rig_now += 1000);
		assert_int_equal(sm_nic_ledger(h.nic, 0, &l), 0);
		assert_in_range(l.dma_read_bytes - before, 0, 1 << 20);
	}
	assert_true(l.dma_read_bytes != 0);
	rig_qp_close(&q);
	sm_wire_ring_free(ring);
	sm_wire_ring_free(tx.ring);
	sm_wire_close(wire);
	rig_host_close(&h);
}

/* A context that speaks UDP has no use for rings, which its net has for others. */
static void
rings_to_a_context_over_udp_are_left(void **state)
{
	const char *net = rig_net();
	struct sm_ring_from from = {0};
	struct sm_ring *ring;
	struct sm_wire *wire;
	struct rig_host h;
	uint32_t slot, to;

	net_dir(net);
	rig_udp = true;
	rig_host_open(&h, net, 4096);
	rig_udp = false;
	to = sm_nic_slot(h.nic);
	assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
	assert_int_equal(sm_wire_ring_create(wire, to, sm_wire_gen(wire, to), &from, &ring), 0);
	for (uint32_t i = 0; i < 10; i++)
		sm_nic_progress(h.nic, rig_now += 20000000);
	assert_int_equal(ring_files(), 1);
	sm_wire_ring_free(ring);
	sm_wire_close(wire);
	rig_host_close(&h);
}

/*
 * Goal: a capture stays within its buffer and ends, whatever a peer writes over the packets that
 * are to be captured. Method: what was sent when the queue pair became ready lies in the ring until
 * the next pass; its reader makes datagrams of it that are longer than any, and the last one longer
 * than what was sent. Ends by SIGALRM if the capture does not.
 */
static void
a_capture_survives_who_overwrites_it(void **state)
{
	enum { N = 30, LEN = 4096 };
	const char *net = rig_net();
	char path[] = "/tmp/soft_mlx5_capture.XXXXXX";
	int fd = mkstemp(path);
	struct sm_wire *wire;
	struct sm_ring *ring;
	uint32_t slot, src, gen;
	struct rig_host h;
	struct rig_wqe w;
	struct rig_qp q;

	assert_int_not_equal(fd, -1);
	rig_pcap = path;
	rig_host_open(&h, net, LEN);
	rig_pcap = NULL;
	assert_int_equal(sm_wire_open(net, &wire, &slot), 0);
	rig_qp_open(&h, &q, NULL);
	for (uint32_t i = 0; i < N; i++) {
		rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
		rig_wqe_data(&w, h.mem, LEN, h.key);
		rig_post(&q, &w);
	}
	rig_to_rts(&q, slot << 16 | 0x2345);
	ring = sm_wire_ring_take(wire, &src, &gen);
	assert_non_null(ring);
	for (uint32_t at = 0; at < N * sm_pkt_bytes(LEN); at += sm_pkt_bytes(SM_FRAG))
		crpc_store_release(&sm_ring_at(ring, at)->head,
			SM_FRAG | (uint32_t)SM_PKT_DATAGRAM << 16 | SM_PKT_LAST << 24);
	alarm(20);
	sm_nic_progress(h.nic, rig_now += 1000);
	alarm(0);
	rig_qp_close(&q);
	sm_wire_ring_free(ring);
	sm_wire_close(wire);
	rig_host_close(&h);
	close(fd);
	unlink(path);
}

/*
 * Goal: receive WQEs of an SRQ outlive senders that end within a message. Method: as many senders
 * as there are WQEs, each killed in a long message; then short ones, which still find all WQEs.
 */
static void
senders_that_die_take_no_receives_along(void **state)
{
	enum { N = 4 };
	const uint64_t key = UINT64_C(0x7700000077);
	const uint32_t len = 4u << 20;
	const char *net = rig_net();
	uint8_t posted[2 * N << 5];
	struct rig_srq srq;
	struct rig_qp_conf target = {.type = SM_QPT_DCT, .dc_key = key, .srq = &srq};
	struct rig_qp_conf conf = {.type = SM_QPT_DCI};
	struct rig_host a, b;
	struct rig_qp q, dct;
	struct rig_wqe w;

	rig_host_open(&b, net, len);
	rig_srq_open(&b, &srq, 2 * N, 5);
	rig_qp_open(&b, &dct, &target);
	rig_ready(&dct, 0);
	for (uint32_t i = 0; i < N; i++)
		rig_srq_recv(&srq, i, i + 1, b.mem, len, b.key);
	memcpy(posted, srq.buf, sizeof(posted));
	for (uint32_t i = 0; i <= N; i++) {
		rig_host_open(&a, net, len);
		rig_qp_open(&a, &q, &conf);
		rig_ready(&q, 0);
		for (uint32_t k = 0; k < (i < N ? 1 : N); k++) {
			rig_wqe(&w, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
			rig_wqe_av(&w, key, dct.qpn, SM_LID, NULL);
			rig_wqe_data(&w, a.mem, i < N ? len : 8, a.key);
			rig_post(&q, &w);
		}
		if (i < N) {
			for (uint32_t k = 0; k < 4; k++) {
				sm_nic_progress(a.nic, rig_now += 1000);
				sm_nic_progress(b.nic, rig_now);
			}
			sm_nic_vanish(a.nic);
			for (uint32_t k = 0; k < 20; k++)
				sm_nic_progress(b.nic, rig_now += 10000000);
			assert_null(rig_poll(&dct.rcq));
		} else {
			for (uint32_t k = 0; k < N; k++) {
				rig_run(&a, &b);
				assert_non_null(rig_poll(&dct.rcq));
				assert_int_equal(be32toh(dct.rcq.last.byte_cnt), 8);
			}
		}
		rig_qp_close(&q);
		rig_host_close(&a);
	}
	assert_memory_equal(srq.buf, posted, sizeof(posted)); /* The program's: only read. */
	rig_qp_close(&dct);
	rig_srq_close(&b, &srq);
	rig_host_close(&b);
}

/* No descriptor is left when a ring comes: it is taken once there is one, and nothing is lost. */
static void
ring_comes_without_descriptors(void **state)
{
	const char *net = rig_net();
	struct rlimit old, none;
	struct rig_host a, b;
	struct rig_qp x, y;

	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	rig_link_open(&a, &x, &b, &y, NULL);
	rig_recv(&y, NULL, 0, 0);
	rig_send(&x, MLX5_OPCODE_SEND_IMM, 7, NULL, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	rig_run(&a, &b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_null(rig_poll(&y.rcq));
	rig_now += 100000000; /* It looks again at its leisure. */
	rig_run(&a, &b);
	assert_non_null(rig_poll(&y.rcq));
	assert_non_null(rig_poll(&x.scq));
	rig_pair_close(&x, &y);
}

/* Where the ring that answers the only one in the folder will be. */
static void
answer_ring(char *path, size_t size)
{
	unsigned int src, sgen, dst, dgen;
	DIR *d = opendir(dir);
	struct dirent *e;

	assert_non_null(d);
	path[0] = '\0';
	while ((e = readdir(d)) != NULL)
		if (sscanf(e->d_name, "r.%u.%u.%u.%u", &src, &sgen, &dst, &dgen) == 4)
			snprintf(path, size, "%s/r.%u.%u.%u.%u", dir, dst, dgen, src, sgen);
	closedir(d);
	assert_string_not_equal(path, "");
}

/* The net's only ring is that of x, which is connected to y: let none be made to answer it by, its
 * name being taken, and send by it. */
static void
send_without_an_answer(struct rig_qp *x, const struct rig_qp *y, char *path, size_t size)
{
	int fd;

	rig_to_rts(x, y->qpn);
	answer_ring(path, size);
	fd = open(path, O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	close(fd);
	rig_send(x, MLX5_OPCODE_SEND_IMM, 7, NULL, 0);
	rig_run(x->host, y->host);
}

/* A ring comes while none can be made to answer by: what is in it is not lost. */
static void
ring_comes_without_an_answer(void **state)
{
	const char *net = rig_net();
	struct rig_host a, b;
	struct rig_qp x, y;
	char path[256];

	net_dir(net);
	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &y, NULL);
	send_without_an_answer(&x, &y, path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	rig_now += 100000000;
	rig_run(&a, &b);
	rig_to_rts(&y, x.qpn);
	rig_recv(&y, NULL, 0, 0);
	assert_non_null(rig_expect(&a, &b, &y.rcq));
	assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_pair_close(&x, &y);
}

/* The same, and its sender dies before there can be an answer: what it sent is read without one. */
static void
a_sender_dies_unanswered(void **state)
{
	const char *net = rig_net();
	struct rig_host a, b;
	struct rig_qp x, y;
	char path[256];

	net_dir(net);
	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &y, NULL);
	send_without_an_answer(&x, &y, path, sizeof(path));
	sm_nic_vanish(a.nic);
	for (uint32_t i = 0; i < 10; i++)
		sm_nic_progress(b.nic, rig_now += 20000000);
	assert_true(sm_nic_idle(b.nic));
	rig_pair_close(&x, &y);
}

/* A test that dies with a net open leaves its folder, and the next run takes it away. */
static void
dead_tests_are_swept(void **state)
{
	int up[2];
	char name[64];
	pid_t pid;

	assert_int_equal(pipe(up), 0);
	pid = fork();
	if (pid == 0) {
		struct rig_host h;
		const char *net = rig_net();

		rig_host_open(&h, net, 4096);
		if (write(up[1], net, strlen(net) + 1) < 0)
			_exit(1);
		_exit(0); /* Without a word to the NIC. */
	}
	assert_true(read(up[0], name, sizeof(name)) > 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	net_dir(name);
	assert_true(exists("net"));
	rig_nets_sweep();
	assert_false(exists(""));
	close(up[0]);
	close(up[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left),
		cmocka_unit_test(killed_peer),
		cmocka_unit_test(killed_alone),
		cmocka_unit_test(fork_child),
		cmocka_unit_test(refused_nets),
		cmocka_unit_test(slots_run_out),
		cmocka_unit_test(many_peers),
		cmocka_unit_test(hostile_peer),
		cmocka_unit_test(an_initiator_takes_no_requests),
		cmocka_unit_test(a_greedy_reader_gets_its_part_of_a_pass),
		cmocka_unit_test(rings_to_a_context_over_udp_are_left),
		cmocka_unit_test(a_capture_survives_who_overwrites_it),
		cmocka_unit_test(senders_that_die_take_no_receives_along),
		cmocka_unit_test(ring_comes_without_descriptors),
		cmocka_unit_test(ring_comes_without_an_answer),
		cmocka_unit_test(a_sender_dies_unanswered),
		cmocka_unit_test(dead_tests_are_swept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
