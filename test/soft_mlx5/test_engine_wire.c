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

#include "test.h"
#include "engine/roce.h"
#include "engine_rig.h"
#include "rnd.h"

static char dir[160];

static bool
exists(const char *file)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return stat(path, &st) == 0;
}

/* A net, and in dir its folder, which must not exist while the net is unused. */
static const char *
new_net(void)
{
	const char *net = rig_net();

	snprintf(dir, sizeof(dir), "%s/soft_mlx5.%u.%s",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (unsigned int)geteuid(), net);
	assert_false(exists(""));
	return net;
}

/* Two contexts of a new net with a queue pair each, connected if @connect. */
static void
pair_open(struct rig_qp *x, struct rig_host *a, struct rig_qp *y, struct rig_host *b, bool connect)
{
	const char *net = new_net();

	rig_host_open(a, net, 4096);
	rig_host_open(b, net, 4096);
	rig_qp_open(a, x, NULL);
	rig_qp_open(b, y, NULL);
	if (connect)
		rig_connect(x, y);
}

/* The same, and nothing of their net is left. */
static void
pair_close(struct rig_qp *x, struct rig_qp *y)
{
	rig_pair_close(x, y);
	assert_false(exists(""));
}

/* A SEND from @x to @y arrives. */
static void
message_arrives(struct rig_qp *x, struct rig_qp *y)
{
	rig_recv(y, NULL, 0, 0);
	rig_send(x, MLX5_OPCODE_SEND, 0, NULL, 0);
	assert_int_equal(rig_expect(x->host, y->host, &x->scq)->op_own >> 4, MLX5_CQE_REQ);
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

TEST(nothing_is_left)
{
	struct rig_host a, b;
	struct rig_qp x, y;

	pair_open(&x, &a, &y, &b, true);
	assert_int_equal(ring_files(), 2);
	message_arrives(&x, &y);
	assert_int_equal(ring_files(), 0); /* Mapped by both ends: their names are gone. */
	rig_link_close(&x, &y);
	rig_host_close(&a);
	assert_true(exists("net"));
	rig_host_close(&b);
	assert_false(exists(""));
}

/* In a child: join, connect to @qpn, report ours, take one message, wait to be killed. */
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
TEST(killed_peer)
{
	const char *net = new_net();
	struct rig_host a, b;
	struct rig_qp q, r;
	int to[2], from[2];
	struct rig_wqe w;
	uint32_t qpn;
	uint64_t t0;
	pid_t pid;
	char c;

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
	rig_set_state(&q, IBV_QPS_RESET);
	rig_connect(&q, &r);
	message_arrives(&q, &r);
	pair_close(&q, &r);
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
}

/* A process killed with rings and a slot: the next one starts as on a fresh net. */
TEST(killed_alone)
{
	struct rig_host a, b, h;
	const char *net = new_net();
	struct rig_qp x, y;
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
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

/* A forked child leaves the net without hurting the parent's nic, and may open one of its own. */
TEST(fork_child)
{
	struct rig_host a, b, mine;
	struct rig_qp x, y;
	int status;
	pid_t pid;

	pair_open(&x, &a, &y, &b, true);
	pid = fork();
	if (pid == 0) {
		sm_nic_fork_child(a.nic);
		sm_nic_fork_child(b.nic);
		rig_host_open(&mine, strrchr(dir, '.') + 1, 4096); /* A slot of its own. */
		rig_host_close(&mine);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	message_arrives(&x, &y);
	pair_close(&x, &y);
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

TEST(refused_nets)
{
	const char *net = new_net();
	struct rig_host h;
	char path[256];
	uint32_t one = 1 << 20;
	int fd;

	assert_int_equal(try_net(""), EINVAL);
	assert_int_equal(try_net("../x"), EINVAL);
	assert_int_equal(try_net("a/b"), EINVAL);
	assert_int_equal(try_net("a b"), EINVAL);
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

TEST(slots_run_out)
{
	const char *net = new_net();
	static struct sm_nic *nic[SM_SLOTS];
	struct sm_nic_attr attr = {.net = net};
	struct sm_nic *more;

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
TEST(many_peers)
{
	enum { N = 24 };
	static struct rig_host h[N], hub;
	static struct rig_qp x[N], y[N];
	const char *net = new_net();

	rig_host_open(&hub, net, 4096);
	for (uint32_t i = 0; i < N; i++) {
		rig_host_open(&h[i], net, 4096);
		rig_link_open(&h[i], &x[i], &hub, &y[i], NULL);
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

/* A context, and who is on its net without the engine: its slot, and rings both ways. */
struct stranger {
	struct rig_host h;
	struct sm_wire *wire;
	struct sm_tx tx;    /* To the context. */
	struct sm_ring *in; /* From it. */
	uint32_t slot, qpn; /* Of a queue pair that it may say it is. */
};

static void
stranger_open(struct stranger *s, uint32_t bytes)
{
	const char *net = new_net();

	memset(s, 0, sizeof(*s));
	rig_host_open(&s->h, net, bytes);
	assert_int_equal(sm_wire_open(net, &s->wire, &s->slot), 0);
	s->qpn = s->slot << 16 | 0x2345;
}

static void
stranger_ring(struct stranger *s)
{
	uint32_t to = sm_nic_slot(s->h.nic);

	s->tx.limit = SM_RING_BYTES;
	assert_int_equal(
		sm_wire_ring_create(s->wire, to, sm_wire_gen(s->wire, to), 0, &s->tx.ring), 0);
}

/* The ring that the context made. */
static struct sm_ring *
stranger_take(struct stranger *s)
{
	uint32_t src, gen;

	s->in = sm_wire_ring_take(s->wire, &src, &gen);
	assert_non_null(s->in);
	return s->in;
}

static void
stranger_close(struct stranger *s)
{
	if (s->tx.ring != NULL)
		sm_wire_ring_free(s->tx.ring);
	if (s->in != NULL)
		sm_wire_ring_free(s->in);
	sm_wire_close(s->wire);
	rig_host_close(&s->h);
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
TEST(hostile_peer)
{
	uint64_t seed = 0x9e3779b97f4a7c15u;
	struct stranger s;
	struct sm_pkt_room room;
	uint32_t taken = 0;

	stranger_open(&s, 65536);
	print_message("seed 0x%lx\n", (unsigned long)seed);
	for (uint32_t round = 0; round < 100; round++) {
		struct rig_qp q;

		rig_qp_open(&s.h, &q, NULL);
		if (s.tx.ring == NULL)
			stranger_ring(&s);
		rig_to_rts(&q, s.qpn);
		for (uint32_t i = 0; i < 8; i++)
			rig_recv(&q, s.h.mem, 4096, s.h.key);
		rig_rdma(&q, MLX5_OPCODE_RDMA_READ, 0, s.h.mem, 1, s.h.mem, 100);
		for (uint32_t i = 0; i < 200; i++) {
			rubbish(&s.tx, &seed, s.qpn, &q, &s.h);
			if (i % 8 == 0)
				sm_nic_progress(s.h.nic, rig_now += 1000);
			while (rig_poll(&q.rcq) != NULL || rig_poll(&q.scq) != NULL)
				taken++;
		}
		rig_qp_close(&q);
	}
	assert_true(taken > 100); /* Some of it did get far. */
	/* A length that no packet has: the peer is cut off, what it sends then is not read. */
	assert_true(sm_tx_room(&s.tx, 0, 0, &room));
	sm_tx_commit(&s.tx, &room, &(struct sm_hdr){0}, 60000, SM_PKT_WRITE, 3);
	for (uint32_t i = 0; i < 100; i++)
		sm_nic_progress(s.h.nic, rig_now += 1000);
	assert_true(sm_nic_idle(s.h.nic));
	stranger_close(&s);
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
TEST(an_initiator_takes_no_requests)
{
	static const enum sm_pkt_type types[] = {SM_PKT_SEND, SM_PKT_WRITE, SM_PKT_READ,
		SM_PKT_CMP_SWAP, SM_PKT_FETCH_ADD};
	struct stranger s;
	struct sm_hdr hdr;
	struct rig_qp q;

	stranger_open(&s, 4096);
	rig_ready_open(&s.h, &q, SM_DCI, 0);
	stranger_ring(&s);
	rig_send_to(&q, 0, UINT64_C(0x7700000077), s.qpn, NULL, s.h.mem, 8);
	rig_run(&s.h, NULL);
	hdr = (struct sm_hdr){.src = s.qpn, .raddr = (uintptr_t)s.h.mem, .rkey = s.h.key};
	for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		hdr.dst = q.qpn | i << 24; /* Each as after another refusal. */
		raw_packet(&s.tx, types[i], SM_PKT_FIRST | SM_PKT_LAST, &hdr, 16);
		rig_run(&s.h, NULL);
		assert_int_equal(rig_state(&q), IBV_QPS_RTS);
		assert_null(rig_poll(&q.scq));
		assert_null(rig_poll(&q.rcq));
	}
	rig_qp_close(&q);
	stranger_close(&s);
}

/*
 * Goal: one pass is a bounded amount of work, whatever a peer says it has taken. Method: one that
 * asks for 32 MiB and says that it always has room.
 */
TEST(a_greedy_reader_gets_its_part_of_a_pass)
{
	const uint32_t bytes = 32u << 20;
	struct stranger s;
	struct soft_mlx5_ledger l;
	struct sm_ring *ring;
	struct rig_qp q;
	uint64_t before;

	stranger_open(&s, bytes);
	rig_qp_open(&s.h, &q, NULL);
	rig_to_rts(&q, s.qpn);
	ring = stranger_take(&s);
	crpc_store_release(&ring->taken, UINT64_C(1) << 62);
	stranger_ring(&s);
	raw_packet(&s.tx, SM_PKT_READ, SM_PKT_FIRST | SM_PKT_LAST,
		&(struct sm_hdr){.dst = q.qpn,
			.src = s.qpn,
			.psn = 0xfffff0,
			.raddr = (uintptr_t)s.h.mem,
			.rkey = s.h.key,
			.imm = bytes},
		0);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(sm_nic_ledger(s.h.nic, 0, &l), 0);
		before = l.dma_read_bytes;
		sm_nic_progress(s.h.nic, rig_now += 1000);
		assert_int_equal(sm_nic_ledger(s.h.nic, 0, &l), 0);
		assert_in_range(l.dma_read_bytes - before, 0, 1 << 20);
	}
	assert_true(l.dma_read_bytes != 0);
	rig_qp_close(&q);
	stranger_close(&s);
}

/* A context that speaks UDP has no use for rings, which its net has for others. */
TEST(rings_to_a_context_over_udp_are_left)
{
	struct stranger s;

	rig_udp = true;
	rig_udp = false;
	stranger_open(&s, 4096);
	stranger_ring(&s);
	for (uint32_t i = 0; i < 10; i++)
		sm_nic_progress(s.h.nic, rig_now += 20000000);
	assert_int_equal(ring_files(), 1);
	stranger_close(&s);
}

/*
 * Goal: a capture is a whole file, whatever a peer sends. Method: rubbish and the longest packet of
 * each type to a context that captures; its file then has frames and nothing behind them.
 */
TEST(a_capture_of_rubbish_is_whole)
{
	enum { HEAD = 24, RECORD = 16, ETHERNET = 14 };
	char path[] = "/tmp/soft_mlx5_capture.XXXXXX";
	uint64_t seed = 0x9e3779b97f4a7c15u, frames = 0;
	int fd = mkstemp(path);
	uint32_t record[4];
	struct stat st;
	struct stranger s;
	struct rig_qp q;
	off_t at = HEAD;

	assert_int_not_equal(fd, -1);
	rig_pcap = path;
	stranger_open(&s, 65536);
	rig_pcap = NULL;
	stranger_ring(&s);
	rig_qp_open(&s.h, &q, NULL);
	rig_to_rts(&q, s.qpn);
	for (uint32_t i = 0; i < 400; i++) {
		const struct sm_hdr h = {.dst = q.qpn, .src = s.qpn};

		rubbish(&s.tx, &seed, s.qpn, &q, &s.h);
		if (i < SM_PKT_SEND_REF - SM_PKT_SEND)
			raw_packet(&s.tx, (enum sm_pkt_type)(SM_PKT_SEND + i), 31, &h, SM_FRAG);
		sm_nic_progress(s.h.nic, rig_now += 1000);
	}
	rig_qp_close(&q);
	stranger_close(&s);
	assert_int_equal(fstat(fd, &st), 0);
	for (; at < st.st_size; at += RECORD + record[3], frames++) {
		assert_int_equal(pread(fd, record, RECORD, at), RECORD);
		assert_in_range(record[3], ETHERNET + SM_ROCE_IP_UDP + 12 + SM_ROCE_ICRC,
			ETHERNET + SM_ROCE_IP_UDP + SM_ROCE_BYTES);
	}
	assert_int_equal(at, st.st_size);
	assert_in_range(frames, 200, 1000);
	close(fd);
	unlink(path);
}

/*
 * Goal: receive WQEs of an SRQ outlive senders that end within a message. Method: as many senders
 * as there are WQEs, each killed in a long message; then short ones, which still find all WQEs.
 */
TEST(senders_that_die_take_no_receives_along)
{
	enum { N = 4 };
	const uint64_t key = UINT64_C(0x7700000077);
	const uint32_t len = 4u << 20;
	const char *net = rig_net();
	uint8_t posted[2 * N << 5];
	struct rig_host a, b;
	struct rig_dct d;
	struct rig_qp q;

	rig_host_open(&b, net, len);
	rig_dct_open(&b, &d, key);
	for (uint32_t i = 0; i < N; i++)
		rig_dct_recv(&d, b.mem, len);
	memcpy(posted, d.srq.buf, sizeof(posted));
	for (uint32_t i = 0; i <= N; i++) {
		rig_host_open(&a, net, len);
		rig_ready_open(&a, &q, SM_DCI, 0);
		for (uint32_t k = 0; k < (i < N ? 1 : N); k++)
			rig_send_to(&q, 0, key, d.qp.qpn, NULL, a.mem, i < N ? len : 8);
		if (i < N) {
			for (uint32_t k = 0; k < 4; k++) {
				sm_nic_progress(a.nic, rig_now += 1000);
				sm_nic_progress(b.nic, rig_now);
			}
			sm_nic_vanish(a.nic);
			for (uint32_t k = 0; k < 20; k++)
				sm_nic_progress(b.nic, rig_now += 10000000);
			assert_null(rig_poll(&d.qp.rcq));
		} else {
			for (uint32_t k = 0; k < N; k++) {
				rig_run(&a, &b);
				assert_non_null(rig_poll(&d.qp.rcq));
				assert_int_equal(be32toh(d.qp.rcq.last.byte_cnt), 8);
			}
		}
		rig_qp_close(&q);
		rig_host_close(&a);
	}
	assert_memory_equal(d.srq.buf, posted, sizeof(posted)); /* The program's: only read. */
	rig_dct_close(&d);
	rig_host_close(&b);
}

/* No descriptor is left when a ring comes: it is taken once there is one, and nothing is lost. */
TEST(ring_comes_without_descriptors)
{
	struct rlimit old, none;
	struct rig_host a, b;
	struct rig_qp x, y;

	pair_open(&x, &a, &y, &b, true);
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
	pair_close(&x, &y);
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

/*
 * A ring comes while none can be made to answer by: what is in it is not lost. And if its sender
 * dies before there can be an answer, what it sent is read without one.
 */
TEST(ring_comes_without_an_answer)
{
	for (uint32_t dies = 0; dies < 2; dies++) {
		struct rig_host a, b;
		struct rig_qp x, y;
		char path[256];

		pair_open(&x, &a, &y, &b, false);
		send_without_an_answer(&x, &y, path, sizeof(path));
		if (dies) {
			sm_nic_vanish(a.nic);
			for (uint32_t i = 0; i < 10; i++)
				sm_nic_progress(b.nic, rig_now += 20000000);
			assert_true(sm_nic_idle(b.nic));
		} else {
			assert_int_equal(unlink(path), 0);
			rig_now += 100000000;
			rig_run(&a, &b);
			rig_to_rts(&y, x.qpn);
			rig_recv(&y, NULL, 0, 0);
			assert_non_null(rig_expect(&a, &b, &y.rcq));
			assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
		}
		pair_close(&x, &y);
	}
}

/* A test that dies with a net open leaves its folder, and the next run takes it away. */
TEST(dead_tests_are_swept)
{
	struct rig_host h;
	int up[2];
	pid_t pid;

	assert_int_equal(pipe(up), 0);
	pid = fork();
	if (pid == 0) {
		rig_host_open(&h, new_net(), 4096);
		/* Without closing it. */
		_exit(write(up[1], dir, sizeof(dir)) != sizeof(dir));
	}
	assert_int_equal(read(up[0], dir, sizeof(dir)), sizeof(dir));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(exists("net"));
	rig_nets_sweep();
	assert_false(exists(""));
	close(up[0]);
	close(up[1]);
}

TEST_MAIN(NULL, NULL)
