/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a card, a kernel or a fabric may do otherwise than the one at hand: each case runs on the
 * software ConnectX with the word of SOFT_MLX5_FABRIC that makes it so. DEVICES=2 where ends are
 * on devices of their own.
 *
 *     test_cards CASE             in an environment that fits: meson.build
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "test.h"
#include "device_end.h"
#include "crpc_log.h"
#include "mlx5_copyrpc.h"
#include "soft_mlx5.h"

#define BUF_LEN 65536u
#define WAIT_NS UINT64_C(20000000000)
#define IMM     0x600dcafeu

/* Bytes of a queue pair's address: drivers/common/ib_addr.c. */
#define ADDR_GID_KIND 7
#define ADDR_LID      16
#define ADDR_GID      24

static bool has_dc; /* The driver under test has dynamic connections. */

/* ---- what the driver asks of verbs: the linker puts these before the real ones ---- */

static struct ibv_ah_attr seen; /* The last route. */

int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
struct ibv_ah *__real_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
struct ibv_ah *__wrap_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);

int
__wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_AV) != 0)
		seen = attr->ah_attr;
	return __real_ibv_modify_qp(qp, attr, mask);
}

struct ibv_ah *
__wrap_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	seen = *attr;
	return __real_ibv_create_ah(pd, attr);
}

static struct ibv_context *context[2]; /* The last two that were opened, the older one first. */

struct ibv_pd *__real_ibv_alloc_pd(struct ibv_context *of);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *of);

struct ibv_pd *
__wrap_ibv_alloc_pd(struct ibv_context *of)
{
	context[0] = context[1];
	context[1] = of;
	return __real_ibv_alloc_pd(of);
}

static int access_seen; /* Of the last region. */

struct ibv_mr *__real_ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access);

struct ibv_mr *
__wrap_ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access)
{
	access_seen = (int)access;
	return __real_ibv_reg_mr_iova2(pd, addr, len, iova, access);
}

/* ---- two ends ---- */

static void
open_end(int who, const char *device)
{
	const struct crpc_rdma_conf conf = {.device = device};

	end_close(&e[who]);
	e[who].dev = crpc_rdma_open(&conf);
	assert_or_log(e[who].dev != NULL);
	device_shows_wqes(e[who].dev);
	e[who].buf = aligned_alloc(4096, BUF_LEN);
	assert_non_null(e[who].buf);
	memset(e[who].buf, who, BUF_LEN);
	assert_ok(crpc_rdma_mr_reg(e[who].dev, e[who].buf, BUF_LEN, &e[who].mr));
}

static void
open_both(const char *first, const char *second)
{
	open_end(0, first);
	open_end(1, second);
}

/* Connects two new queue pairs: 0, or what connecting the first of them said. */
static int
connect_both(uint8_t transport)
{
	const struct crpc_rdma_qp_conf conf = {.transport = transport};
	uint8_t addr[2][CRPC_RDMA_ADDR_LEN];
	int rc;

	for (int who = 0; who < 2; who++) {
		crpc_rdma_qp_free(e[who].qp);
		e[who].qp = crpc_rdma_qp_create(e[who].dev, &conf);
		assert_or_log(e[who].qp != NULL);
		crpc_rdma_qp_addr(e[who].qp, addr[who]);
	}
	rc = crpc_rdma_qp_connect(e[0].qp, addr[1]);
	return rc != 0 ? rc : crpc_rdma_qp_connect(e[1].qp, addr[0]);
}

static void
write_from(int who)
{
	const struct crpc_rdma_wr wr = {
		.op = CRPC_RDMA_WRITE_IMM,
		.imm = IMM,
		.raddr = (uintptr_t)e[!who].buf,
		.rkey = e[!who].mr.rkey,
		.num_sge = 1,
		.sge = {{e[who].buf, BUF_LEN, e[who].mr.lkey}},
	};

	assert_int_equal(crpc_rdma_post(e[who].qp, &wr, 1), 1);
}

/* Messages of many packets both ways, over each transport that the driver has. */
static void
connections_work(void)
{
	struct crpc_rdma_cqe cqe;

	for (uint8_t t = CRPC_RDMA_RC; t <= (has_dc ? CRPC_RDMA_DC : CRPC_RDMA_RC); t++) {
		assert_or_log(connect_both(t) == 0);
		for (int who = 0; who < 2; who++) {
			write_from(who);
			if (!wait_type(!who, CRPC_RDMA_CQE_RECV, WAIT_NS, &cqe))
				fail_msg("transport %u, from %d: nothing arrived", t, who);
			assert_int_equal(cqe.imm, IMM);
			assert_int_equal(cqe.byte_len, BUF_LEN);
		}
	}
}

/* A datagram queue pair at each end, and an address of the other's: 0 or -errno of the first. */
static int
address_both(void)
{
	const struct crpc_rdma_qp_conf conf = {
		.transport = CRPC_RDMA_UD, .sq_depth = 8, .rq_depth = 8};
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	for (int who = 0; who < 2; who++) {
		crpc_rdma_ah_free(e[who].ah);
		e[who].ah = NULL;
		crpc_rdma_qp_free(e[who].ud);
		e[who].ud = crpc_rdma_qp_create(e[who].dev, &conf);
		assert_or_log(e[who].ud != NULL);
	}
	for (int who = 0; who < 2; who++) {
		crpc_rdma_qp_addr(e[!who].ud, addr);
		e[who].ah = crpc_rdma_ah_create(e[who].ud, addr);
		if (e[who].ah == NULL)
			return -errno;
	}
	return 0;
}

/* Datagrams of the largest size both ways. */
static void
datagrams_work(void)
{
	struct crpc_rdma_wr dgram = {.op = CRPC_RDMA_SEND_IMM, .num_sge = 1, .imm = IMM};
	struct crpc_rdma_info info;
	struct crpc_rdma_cqe cqe;

	assert_or_log(address_both() == 0);
	for (int who = 0; who < 2; who++) {
		crpc_rdma_info_get(e[who].dev, &info);
		dgram.ah = e[who].ah;
		dgram.sge[0] = (struct crpc_rdma_sge){e[who].buf, info.mtu, e[who].mr.lkey};
		assert_int_equal(crpc_rdma_post(e[who].ud, &dgram, 1), 1);
		if (!wait_type(!who, CRPC_RDMA_CQE_DGRAM, WAIT_NS, &cqe))
			fail_msg("from %d: no datagram arrived", who);
		assert_int_equal(cqe.byte_len, info.mtu);
	}
}

static void
all_works(void)
{
	connections_work();
	datagrams_work();
}

static void
opens_not(const char *device, int err)
{
	const struct crpc_rdma_conf conf = {.device = device};

	errno = 0;
	assert_null(crpc_rdma_open(&conf));
	assert_int_equal(errno, err);
}

/* No connection and no datagram, and the log has these words. */
static void
all_is_refused(const char *words)
{
	for (uint8_t t = CRPC_RDMA_RC; t <= (has_dc ? CRPC_RDMA_DC : CRPC_RDMA_RC); t++) {
		crpc_log_clear();
		assert_int_equal(connect_both(t), -EHOSTUNREACH);
		assert_non_null(strstr(crpc_log_last(), words));
	}
	crpc_log_clear();
	assert_int_equal(address_both(), -EHOSTUNREACH);
	assert_non_null(strstr(crpc_log_last(), words));
}

/* ---- cases ---- */

/* GIDs: 0 v1 and 1 v2, link-local; 2 v1 and 3 v2, IPv4. */
static void
case_roce(void)
{
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	open_both(NULL, NULL);
	all_works();
	crpc_rdma_qp_addr(e[0].qp, addr);
	assert_int_equal(addr[ADDR_GID_KIND], 3);
	assert_int_equal(addr[ADDR_GID + 10], 0xff);
	open_both("mlx5_soft0,gid=0", ",gid=0");
	all_works();
	open_both(",gid=0", ",gid=1");
	all_is_refused("RoCE v1");
	open_both(",gid=1", NULL);
	all_is_refused("IPv4");
	opens_not(",gid=7", EINVAL);
}

/* What goes without a global route is lost, or refused by the kernel. */
static void
case_grh(void)
{
	open_both(NULL, NULL);
	all_works();
}

/* The first device has 4096 bytes, the second one 1024. */
static void
case_mtu(void)
{
	open_both("mlx5_soft0", "mlx5_soft1");
	assert_or_log(connect_both(CRPC_RDMA_RC) == 0);
	crpc_log_clear();
	if (has_dc) {
		assert_int_equal(connect_both(CRPC_RDMA_DC), -EHOSTUNREACH);
		assert_non_null(strstr(crpc_log_last(), "MTU"));
	}
	assert_int_equal(address_both(), -EHOSTUNREACH);
	assert_non_null(strstr(crpc_log_last(), "MTU"));
	open_both("mlx5_soft0,mtu=1024", "mlx5_soft1");
	all_works();
	open_both("mlx5_soft0,mtu=512", "mlx5_soft1,mtu=512");
	all_works();
	opens_not("mlx5_soft1,mtu=2048", EINVAL);
}

/* The first P_Key is one of a limited member: two of those do not reach each other. */
static void
case_pkeys(void)
{
	struct crpc_rdma_cqe cqe;

	open_both(NULL, NULL);
	all_works();
	open_both(",pkey=0x8005", ",pkey=5");
	all_works();
	opens_not(",pkey=0x1234", EINVAL);
	open_both(",pkey=0x7fff", ",pkey=0x7fff");
	assert_or_log(connect_both(CRPC_RDMA_RC) == 0);
	write_from(0);
	assert_true(wait_type(0, CRPC_RDMA_CQE_ERROR, WAIT_NS, &cqe));
	assert_int_equal(cqe.status, -ECONNRESET);
}

static void
path_check(void)
{
	assert_int_equal(seen.sl, 3);
	assert_int_equal(seen.is_global, 1);
	assert_int_equal(seen.grh.traffic_class, 106);
	assert_int_equal(seen.grh.flow_label, 0x12345);
	memset(&seen, 0, sizeof(seen));
}

/* What routes carry is what the user said, and nothing by default. */
static void
case_path(void)
{
	static const char device[] = ",sl=3,class=106,flow=0x12345";

	open_both(device, device);
	for (uint8_t t = CRPC_RDMA_RC; t <= (has_dc ? CRPC_RDMA_DC : CRPC_RDMA_RC); t++) {
		assert_or_log(connect_both(t) == 0);
		path_check();
	}
	assert_or_log(address_both() == 0);
	path_check();
	all_works();
	open_both(NULL, NULL);
	assert_or_log(connect_both(CRPC_RDMA_RC) == 0);
	assert_int_equal(seen.sl | seen.grh.traffic_class | seen.grh.flow_label, 0);
}

/* Behind an error of one DC queue pair lie the sends of another one, which asked for no completion:
 * they are posted again, long before the time that a target has. */
static void
case_flush(void)
{
	const struct crpc_rdma_conf one = {.dcis = 1};
	const struct crpc_rdma_qp_conf conf = {.transport = CRPC_RDMA_DC};
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .num_sge = 1};
	uint8_t addr[CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_qp *bad, *target;
	struct crpc_rdma_cqe cqe;
	uint64_t start;

	for (int who = 0; who < 2; who++)
		end_device(&e[who], &one, BUF_LEN);
	assert_or_log(connect_both(CRPC_RDMA_DC) == 0);
	bad = crpc_rdma_qp_create(e[0].dev, &conf);
	target = crpc_rdma_qp_create(e[1].dev, &conf);
	crpc_rdma_qp_addr(target, addr);
	assert_or_log(crpc_rdma_qp_connect(bad, addr) == 0);
	crpc_rdma_qp_addr(bad, addr);
	assert_or_log(crpc_rdma_qp_connect(target, addr) == 0);
	start = crpc_clock_ns();
	wr.sge[0] = (struct crpc_rdma_sge){e[0].buf, 64, e[0].mr.lkey + 0x5500};
	assert_int_equal(crpc_rdma_post(bad, &wr, 1), 1);
	for (uint32_t i = 0; i < 10; i++)
		write_from(0);
	for (uint32_t i = 0; i < 10; i++)
		assert_true(wait_type(1, CRPC_RDMA_CQE_RECV, WAIT_NS, &cqe));
	assert_in_range(crpc_clock_ns() - start, 0, UINT64_C(3000000000));
	crpc_rdma_qp_free(target);
	crpc_rdma_qp_free(bad);
}

/* A context with many doorbell registers, as MLX5_TOTAL_UUARS makes it: each is a ring's own. */
static void
case_registers(void)
{
	const struct crpc_rdma_conf conf = {.cq_depth = 65536};
	const struct crpc_rdma_qp_conf qp_conf = {.sq_depth = 4, .rq_depth = 4};
	struct crpc_rdma_qp *qp[200];
	uint32_t registers = 0;

	end_device(&e[0], &conf, BUF_LEN);
	for (size_t i = 0; i < CRPC_DIM(qp); i++) {
		qp[i] = crpc_rdma_qp_create(e[0].dev, &qp_conf);
		if (qp[i] == NULL)
			fail_msg("queue pair %zu: %s", i, crpc_log_last());
	}
	for (struct crpc_mlx5_bf *bf = crpc_mlx5_dev(e[0].dev)->bfs; bf != NULL; bf = bf->next)
		registers++;
	assert_in_range(registers, 65, CRPC_DIM(qp));
	for (size_t i = 0; i < CRPC_DIM(qp); i++)
		crpc_rdma_qp_free(qp[i]);
}

/* Something happens to the port of an end, or of both. */
static void
port_change(int who, const char *text)
{
	__typeof__(&soft_mlx5_port) change;

	*(void **)&change = dlsym(RTLD_DEFAULT, SOFT_MLX5_PORT_SYMBOL);
	assert_non_null(change);
	assert_ok(change(context[who], text));
}

/* The subnet manager gives other LIDs: what is made from then on has them. */
static void
lids_change(void)
{
	uint64_t until = crpc_clock_ns() + WAIT_NS;
	uint8_t addr[CRPC_RDMA_ADDR_LEN];

	open_both(NULL, NULL);
	all_works();
	port_change(0, "lid=77");
	port_change(1, "lid=77");
	for (int who = 0; who < 2; who++) {
		do {
			assert_in_range(crpc_clock_ns(), 0, until);
			crpc_rdma_qp_addr(e[who].qp, addr);
		} while (addr[ADDR_LID] != 77);
	}
	all_works();
	port_change(0, "lid=1");
	port_change(1, "lid=1");
}

/* A link that goes down breaks what uses it, and new connections work when it is back. */
static void
link_goes(void)
{
	struct crpc_rdma_cqe cqe;

	open_both(NULL, NULL);
	assert_or_log(connect_both(CRPC_RDMA_RC) == 0);
	port_change(0, "down");
	write_from(1);
	assert_true(wait_type(1, CRPC_RDMA_CQE_ERROR, WAIT_NS, &cqe));
	assert_int_equal(cqe.status, -ECONNRESET);
	port_change(0, "up");
	all_works();
}

/* A device that fails completes nothing any more: its queue pairs break nevertheless. */
static void
device_fails(void)
{
	struct crpc_rdma_cqe cqe;
	uint64_t until;

	open_both(NULL, NULL);
	assert_or_log(connect_both(CRPC_RDMA_RC) == 0);
	assert_or_log(address_both() == 0);
	write_from(0);
	port_change(0, "fatal");
	until = crpc_clock_ns() + WAIT_NS;
	for (uint32_t broken = 0; broken < 2;) {
		assert_in_range(crpc_clock_ns(), 0, until);
		if (crpc_rdma_poll(e[0].dev, &cqe, 1) == 0 || cqe.type != CRPC_RDMA_CQE_ERROR)
			continue;
		assert_int_equal(cqe.status, -EIO);
		broken++;
	}
	assert_int_equal(crpc_rdma_post(e[0].qp, &(struct crpc_rdma_wr){0}, 1), 0);
}

static void
case_events(void)
{
	lids_change();
	link_goes();
	device_fails();
}

/* Whether a look at memory can notice what was written is the device's to say. */
static void
order_is(int in_order)
{
	open_both(NULL, NULL);
	for (uint8_t t = CRPC_RDMA_RC; t <= (has_dc ? CRPC_RDMA_DC : CRPC_RDMA_RC); t++) {
		assert_or_log(connect_both(t) == 0);
		assert_int_equal(crpc_rdma_qp_in_order(e[0].qp), in_order);
	}
}

static void
case_ordered(void)
{
	order_is(1);
}

static void
case_unordered(void)
{
	order_is(0);
}

/* Only what a completion announces may be written in any order. */
static void
case_relaxed(void)
{
	struct crpc_rdma_mr mr;

	open_end(0, NULL);
	assert_int_equal(access_seen & IBV_ACCESS_RELAXED_ORDERING, 0);
	assert_ok(crpc_rdma_mr_reg_flags(
		e[0].dev, e[0].buf, BUF_LEN, CRPC_RDMA_MR_RELAXED, &mr));
	assert_int_not_equal(access_seen & IBV_ACCESS_RELAXED_ORDERING, 0);
	crpc_rdma_mr_dereg(e[0].dev, &mr);
	access_seen = 0;
	e[0].ud = crpc_rdma_qp_create(
		e[0].dev, &(struct crpc_rdma_qp_conf){.transport = CRPC_RDMA_UD});
	assert_non_null(e[0].ud);
	assert_int_not_equal(access_seen & IBV_ACCESS_RELAXED_ORDERING, 0);
}

/* ---- main ---- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"roce", case_roce},
	{"grh", case_grh},
	{"mtu", case_mtu},
	{"pkeys", case_pkeys},
	{"path", case_path},
	{"events", case_events},
	{"flush", case_flush},
	{"ordered", case_ordered},
	{"unordered", case_unordered},
	{"relaxed", case_relaxed},
	{"registers", case_registers},
};

static void
run_case(void **state)
{
	const char *name = *state;

	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		if (strcmp(cases[i].name, name) != 0)
			continue;
		cases[i].run();
		return;
	}
	fail_msg("there is no case %s", name);
}

int
main(int argc, char **argv)
{
	const char *driver = getenv("DRIVER");
	const struct CMUnitTest tests[] = {{.name = argc > 1 ? argv[1] : NULL,
		.test_func = run_case,
		.teardown_func = pair_end,
		.initial_state = argc > 1 ? argv[1] : NULL}};

	has_dc = driver == NULL || strcmp(driver, "verbs") != 0;
	if (argc < 2 || device_missing())
		return 77;
	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
