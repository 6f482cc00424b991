/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bad network: packets are lost, corrupt, late, double, in another order, receive queues look
 * empty. What is reliable arrives exactly once, in order, whole; what is not arrives whole or not.
 * On either wire, and over UDP also without faults of ours.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "crpc_util.h"
#include "engine_rig.h"
#include "rnd.h"

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
/* Seldom enough that eight attempts in a row, which would end in an error, do not fail. */
#define BAD "drop=0.02,corrupt=0.01,dup=0.02,delay=0.02,reorder=0.02,rnr=0.02"
#define DC_KEY UINT64_C(0x7700000077)
#define MAX_LEN 12000u
#define SLOT 32768u
#define NSLOTS 8u

static struct rig_host a, b;
static uint32_t seed;

static void
bad_hosts(const char *faults)
{
	static char text[128];
	const char *net = rig_net();

	seed = seed != 0 ? seed : (uint32_t)rnd_seed();
	printf("seed %u: %s\n", seed, faults);
	srand(seed++);
	snprintf(text, sizeof(text), "seed=%u,%s", seed, faults);
	rig_faults = text;
	rig_retry = 7;
	rig_rnr_retry = 7;
	rig_host_open(&a, net, 1 << 20);
	rig_host_open(&b, net, 1 << 20);
	for (uint32_t i = 0; i < SLOT; i++)
		a.mem[i] = b.mem[i] = (uint8_t)(i * 7 + i / 251);
}

static void
good_again(void)
{
	rig_host_close(&a);
	rig_host_close(&b);
	rig_faults = NULL;
	rig_retry = 2;
	rig_rnr_retry = 3;
	rig_mtu = IBV_MTU_4096;
}

/* Payloads begin at a place that follows from their number. */
static uint8_t *
source(struct rig_host *h, uint32_t n)
{
	return h->mem + n % 1000;
}

static void
both(void)
{
	sm_nic_progress(a.nic, rig_now += 1000);
	sm_nic_progress(b.nic, rig_now);
}

/* One QP pair: what each side has done and seen. */
struct flow {
	struct rig_qp x, y; /* On a, on b. */
	uint32_t sent, arrived, posted, open, adds, lens[NSLOTS];
};

static uint8_t *
place(uint32_t n)
{
	return b.mem + SLOT * (2 + n % NSLOTS);
}

static void
post_something(struct flow *f)
{
	uint32_t what = (uint32_t)rand() % 8, len = (uint32_t)rand() % (rand() % 3 ? 64 : MAX_LEN);
	struct rig_wqe w;

	if (what == 0) {
		rig_wqe(&w, MLX5_OPCODE_RDMA_READ, SIGNALED, 0);
		rig_wqe_raddr(&w, b.mem, b.key);
		rig_wqe_data(&w, a.mem + 2 * SLOT, len, a.key);
	} else if (what == 1) {
		rig_wqe(&w, MLX5_OPCODE_ATOMIC_FA, SIGNALED, 0);
		rig_wqe_raddr(&w, b.mem + b.bytes - 8, b.key);
		rig_wqe_atomic(&w, 1, 0);
		rig_wqe_data(&w, a.mem + 3 * SLOT, 8, a.key);
		f->adds++;
	} else if (f->posted - f->sent == 0) {
		return;
	} else {
		f->lens[f->sent % NSLOTS] = len;
		rig_wqe(&w, what < 5 ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALED,
			f->sent);
		if (what >= 5)
			rig_wqe_raddr(&w, place(f->sent), b.key);
		rig_wqe_data(&w, source(&a, f->sent), len, a.key);
		f->sent++;
	}
	rig_post(&f->x, &w);
	f->open++;
}

static void
collect(struct flow *f)
{
	for (struct mlx5_cqe64 *c; (c = rig_poll(&f->x.scq)) != NULL; f->open--)
		assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
	for (struct mlx5_cqe64 *c; (c = rig_poll(&f->y.rcq)) != NULL; f->arrived++) {
		uint32_t len = f->lens[f->arrived % NSLOTS];

		assert_int_equal(be32toh(c->imm_inval_pkey), f->arrived);
		assert_int_equal(be32toh(c->byte_cnt), len);
		assert_memory_equal(place(f->arrived), source(&a, f->arrived), len);
	}
}

static void
rc_exactly_once(void **state)
{
	struct flow f;

	for (uint32_t round = 0; round < 6; round++) {
		memset(&f, 0, sizeof(f));
		rig_mtu = (uint8_t)(IBV_MTU_256 + round % 5); /* Messages of up to 47 packets. */
		bad_hosts(round % 2 == 0 ? BAD : "drop=0.03,dup=0.05,reorder=0.03,rnr=0.05");
		rig_qp_open(&a, &f.x, NULL);
		rig_qp_open(&b, &f.y, NULL);
		rig_connect(&f.x, &f.y);
		for (uint32_t n = 0; n < 1000000 && (f.sent < 1500 || f.open != 0); n++) {
			while (f.posted - f.arrived < NSLOTS)
				rig_recv(&f.y, place(f.posted++), MAX_LEN, b.key);
			if (f.open < 8 && f.sent < 1500)
				post_something(&f);
			both();
			collect(&f);
		}
		assert_int_equal(f.open, 0);
		assert_int_equal(f.arrived, f.sent);
		assert_int_equal(*(uint64_t *)(void *)(b.mem + b.bytes - 8), f.adds);
		rig_qp_close(&f.x);
		rig_qp_close(&f.y);
		good_again();
	}
}

/* Two senders that go to and fro between two targets. */
static void
dc_exactly_once(void **state)
{
	uint32_t sent[2][2] = {{0}}, seen[2][2] = {{0}}, arrived[2] = {0};
	uint32_t open[2] = {0}, total = 0;
	struct rig_qp x[2];
	struct rig_dct t[2];

	bad_hosts("drop=0.03,dup=0.02,delay=0.02,reorder=0.03");
	for (uint32_t i = 0; i < 2; i++) {
		rig_dct_open(&b, &t[i], DC_KEY);
		rig_ready_open(&a, &x[i], SM_DCI, 0);
	}
	for (uint32_t n = 0; n < 2000000 && (total < 2000 || open[0] != 0 || open[1] != 0); n++) {
		uint32_t i = (uint32_t)rand() % 2, k = (uint32_t)rand() % 2;

		for (uint32_t j = 0; j < 2; j++)
			while (t[j].posted - arrived[j] < 32)
				rig_dct_recv(&t[j], b.mem + SLOT, 4096);
		if (open[i] < 4 && total < 2000) {
			rig_send_to(&x[i], i << 24 | sent[i][k]++, DC_KEY, t[k].qp.qpn, NULL, a.mem,
				(uint32_t)rand() % 4096);
			open[i]++;
			total++;
		}
		both();
		for (uint32_t j = 0; j < 2; j++) {
			for (struct mlx5_cqe64 *c; (c = rig_poll(&x[j].scq)) != NULL; open[j]--)
				assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
			for (struct mlx5_cqe64 *c; (c = rig_poll(&t[j].qp.rcq)) != NULL;
				arrived[j]++) {
				uint32_t imm = be32toh(c->imm_inval_pkey);

				assert_int_equal(imm & 0xffffff, seen[imm >> 24][j]++);
			}
		}
	}
	assert_int_equal(open[0] + open[1], 0);
	assert_memory_equal(sent, seen, sizeof(sent));
	for (uint32_t i = 0; i < 2; i++) {
		rig_qp_close(&x[i]);
		rig_dct_close(&t[i]);
	}
	good_again();
}

/* Datagrams are lost or whole; none is invented. */
static void
ud_whole_or_not(void **state)
{
	uint32_t arrived = 0, next = 0;
	struct rig_qp x, y;

	bad_hosts("drop=0.2,corrupt=0.1");
	rig_ready_open(&a, &x, SM_UD, 5);
	rig_ready_open(&b, &y, SM_UD, 5);
	for (uint32_t i = 0; i < 1000; i++) {
		struct mlx5_cqe64 *c;

		rig_recv(&y, b.mem + SLOT, 8192, b.key);
		rig_send_to(&x, i, 5, y.qpn, NULL, source(&a, i), i % 4096);
		assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
		rig_run(&a, &b);
		c = rig_poll(&y.rcq);
		if (c == NULL) {
			y.rq_pi--; /* Its receive WQE is still there. */
			continue;
		}
		assert_true(be32toh(c->imm_inval_pkey) >= next);
		next = be32toh(c->imm_inval_pkey) + 1;
		assert_memory_equal(b.mem + SLOT + 40, source(&a, i), i % 4096);
		arrived++;
	}
	assert_in_range(arrived, 500, 900);
	rig_link_close(&x, &y);
	good_again();
}

/* A network that loses everything ends in retries exceeded, and a good one is not suspected. */
static void
all_is_lost(void **state)
{
	struct rig_qp x, y;
	struct rig_wqe w;

	bad_hosts("drop=1");
	rig_link_open(&a, &x, &b, &y, NULL);
	rig_wqe(&w, MLX5_OPCODE_RDMA_WRITE, 0, 0);
	rig_wqe_raddr(&w, b.mem, b.key);
	rig_wqe_data(&w, a.mem, 8, a.key);
	rig_post(&x, &w);
	assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ_ERR);
	assert_int_equal(RIG_SYND(&x.scq.last), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	rig_link_close(&x, &y);
	good_again();
}

static void
bad_settings(void **state)
{
	static const char *const bad[] = {"drop", "drop=", "drop=2", "drop=-1", "loss=0.1",
		"drop=0.1,", "drop=0.1x", "seed=x", ",", "drop=nan"};
	struct sm_nic_attr attr = {.net = rig_net()};
	struct sm_nic *nic;

	for (uint32_t i = 0; i < CRPC_DIM(bad); i++) {
		attr.faults = bad[i];
		assert_int_equal(sm_nic_create(&attr, &nic), i == 5 ? 0 : EINVAL);
		if (i == 5)
			sm_nic_free(nic);
	}
}

static int
over_udp(void **state)
{
	rig_udp = true;
	return 0;
}

static int
over_rings(void **state)
{
	rig_udp = false;
	return 0;
}

#define UDP(test) {#test "_udp", test, over_udp, over_rings, NULL}

/* One message of @len bytes from the second half of b's memory, or to it, over a network that does
 * @faults, in steps of so much time; b has every so manieth. */
static void
long_message(uint8_t op, uint32_t len, const char *faults, uint64_t step_ns, uint32_t b_every)
{
	uint64_t end = rig_now + UINT64_C(1000000000000);
	struct mlx5_cqe64 *c;
	struct rig_qp x, y;

	rig_faults = faults;
	rig_retry = 7;
	rig_pair_open(&x, &a, &y, &b, 2 * len, NULL);
	rig_connect(&x, &y);
	for (uint32_t i = 0; i < len; i++)
		b.mem[len + i] = (uint8_t)(i * 13 + i / 509);
	rig_rdma(&x, op, 0, b.mem + len, b.key, a.mem + len, len);
	for (uint32_t i = 0; (c = rig_poll(&x.scq)) == NULL; i++) {
		assert_true(rig_now < end);
		sm_nic_progress(a.nic, rig_now += step_ns);
		if (i % b_every == b_every - 1)
			sm_nic_progress(b.nic, rig_now);
	}
	assert_int_equal(c->op_own >> 4, MLX5_CQE_REQ);
	assert_memory_equal(a.mem + len, b.mem + len, len);
	rig_pair_close(&x, &y);
	rig_faults = NULL;
	rig_retry = 2;
}

/*
 * A READ whose response takes longer than all retries last, when packets of it are lost: what is
 * asked for again comes at once, not behind the rest of the response that is of no use any more.
 * At 5 ms a pass and at most the ring's 256 KiB in each it takes 640 ms and more.
 */
static void
a_long_read_outlives_losses(void **state)
{
	long_message(MLX5_OPCODE_RDMA_READ, 32u << 20, "seed=3,drop=0.002", 5000000, 1);
}

/*
 * Both sides get a core now and then only: 100 s in which the peer was silent, but of which
 * this one saw a hundredth, do not end a connection.
 */
static void
no_core_is_not_silence(void **state)
{
	rig_timeout = 14;
	long_message(MLX5_OPCODE_RDMA_WRITE, 4096, NULL, 500000000, 200);
	rig_timeout = 8;
}

/* A fetch-and-add of 1 to b's first word, of which the first response is lost if @lost: the old
 * value. */
static uint64_t
fetch_add(struct rig_qp *q, bool lost)
{
	uint64_t old;

	rig_fetch_add(q, b.mem, b.key, 1, a.mem, 8);
	if (lost) {
		assert_int_equal(sm_nic_faults(a.nic, "drop=1"), 0);
		for (uint32_t i = 0; i < 20; i++, rig_now += 1000) {
			sm_nic_progress(a.nic, rig_now);
			sm_nic_progress(b.nic, rig_now);
		}
		assert_int_equal(sm_nic_faults(a.nic, ""), 0);
		assert_null(rig_poll(&q->scq));
	}
	assert_int_equal(rig_expect(&a, &b, &q->scq)->op_own >> 4, MLX5_CQE_REQ);
	memcpy(&old, a.mem, sizeof(old));
	return old;
}

/*
 * Goal: what a responder remembers of atomics ends with the connection. Method: a second connection
 * has the numbers of the first, and the response to its atomic is lost: what comes instead is its
 * own value, not that of the first connection's.
 */
static void
an_atomic_after_reset_has_its_own_value(void **state)
{
	struct rig_qp x, y;

	rig_retry = 7;
	rig_pair_open(&x, &a, &y, &b, 4096, NULL);
	assert_int_equal(sm_nic_timers(b.nic), 0);
	rig_connect(&x, &y);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(fetch_add(&x, i != 0), i);
		rig_reconnect(&x, &y);
	}
	rig_pair_close(&x, &y);
	rig_retry = 2;
}

/*
 * Goal: a queue pair that is connected again waits for its answer as long as at first. Method: no
 * retries; it fails, its peer is heard meanwhile, and it is connected again with the same numbers.
 */
static void
a_new_connection_has_the_whole_timeout(void **state)
{
	struct rig_qp x, y;

	rig_retry = 0;
	rig_timeout = 14;
	rig_pair_open(&x, &a, &y, &b, 4096, NULL);
	assert_int_equal(sm_nic_timers(a.nic) | sm_nic_timers(b.nic), 0);
	rig_connect(&x, &y);
	rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 8);
	while (rig_poll(&x.scq) == NULL)
		sm_nic_progress(a.nic, rig_now += 1000000);
	assert_int_equal(RIG_SYND(&x.scq.last), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	for (uint32_t i = 0; i < 200; i++) { /* It answers what it finds. */
		sm_nic_progress(a.nic, rig_now += 1000000);
		sm_nic_progress(b.nic, rig_now);
	}
	rig_reconnect(&x, &y);
	rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE, 0, b.mem, b.key, a.mem, 8);
	for (uint32_t i = 0; i < 20; i++)
		sm_nic_progress(a.nic, rig_now += 100000);
	assert_null(rig_poll(&x.scq));
	assert_int_equal(rig_expect(&a, &b, &x.scq)->op_own >> 4, MLX5_CQE_REQ);
	rig_pair_close(&x, &y);
	rig_retry = 2;
	rig_timeout = 8;
}

/*
 * Goal: over UDP a pass sends to others, too, where one peer gets more than a pass can send.
 * Method: datagrams to b, in each pass more than go out, and meanwhile a message to a third host.
 */
static void
a_flood_to_one_host_leaves_others_their_turn(void **state)
{
	enum { FLOODS = 12, EACH = 4096 };
	static struct rig_qp flood[FLOODS];
	struct rig_qp_conf ud = {.type = SM_UD};
	struct rig_qp x, y, sink;
	struct rig_host c;
	struct rig_wqe w;
	const char *net = rig_net();

	rig_host_open(&a, net, 4096);
	rig_host_open(&b, net, 4096);
	rig_host_open(&c, net, 4096);
	rig_qp_open(&a, &x, NULL);
	rig_qp_open(&b, &sink, &ud);
	rig_qp_open(&c, &y, NULL);
	ud.sq_nbb = 2 * EACH;
	for (uint32_t i = 0; i < FLOODS; i++) {
		rig_qp_open(&a, &flood[i], &ud);
		rig_ready(&flood[i], 5);
		for (uint32_t k = 0; k < EACH; k++) {
			rig_wqe(&w, MLX5_OPCODE_SEND, 0, 0);
			rig_wqe_av(&w, 5, sink.qpn, SM_LID, rig_gid);
			rig_queue(&flood[i], &w);
		}
	}
	for (uint32_t pass = 0; pass < 100 && rig_poll(&x.scq) == NULL; pass++) {
		if (pass < FLOODS)
			rig_ring(&flood[pass]);
		if (pass == FLOODS) { /* Now they are all at it. */
			rig_connect(&x, &y);
			rig_rdma(&x, MLX5_OPCODE_RDMA_WRITE, 0, c.mem, c.key, a.mem, 8);
		}
		sm_nic_progress(a.nic, rig_now += 1000);
		sm_nic_progress(c.nic, rig_now);
	}
	assert_int_equal(x.scq.ci, 1);
	for (uint32_t i = 0; i < FLOODS; i++)
		rig_qp_close(&flood[i]);
	rig_qp_close(&x);
	rig_link_close(&y, &sink);
	rig_host_close(&a);
	rig_host_close(&b);
	rig_host_close(&c);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rc_exactly_once),
		cmocka_unit_test(dc_exactly_once),
		cmocka_unit_test(ud_whole_or_not),
		cmocka_unit_test(all_is_lost),
		cmocka_unit_test(bad_settings),
		cmocka_unit_test(a_long_read_outlives_losses),
		cmocka_unit_test(an_atomic_after_reset_has_its_own_value),
		cmocka_unit_test(a_new_connection_has_the_whole_timeout),
		UDP(rc_exactly_once),
		UDP(dc_exactly_once),
		UDP(ud_whole_or_not),
		UDP(all_is_lost),
		UDP(a_long_read_outlives_losses),
		UDP(an_atomic_after_reset_has_its_own_value),
		UDP(a_flood_to_one_host_leaves_others_their_turn),
		UDP(no_core_is_not_silence),
	};

	seed = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
