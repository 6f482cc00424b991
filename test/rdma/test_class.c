/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device class with two drivers, the NIC on paper and one that only records what reaches it:
 * drivers are asked in order, errors say what was found, arguments are checked and defaults filled
 * in before a driver sees them, and the inline calls reach the driver of the right device.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "test.h"
#include "crpc_log.h"
#include "crpc_rdma_driver.h"

static struct crpc_rdma_conf seen_conf;
static struct crpc_rdma_qp_conf seen_qp_conf;
static unsigned int opens;
static unsigned int closes;
static unsigned int calls; /* Operations below open and close that reached a driver. */
static struct crpc_rdma the_dev;
static struct crpc_rdma_qp the_qp;
static const uint8_t *seen_peer;

static uint16_t
fake_post(struct crpc_rdma_qp *qp, const struct crpc_rdma_wr *wr, uint16_t n)
{
	return (uint16_t)(n / 2);
}

static uint16_t
fake_poll(struct crpc_rdma *dev, struct crpc_rdma_cqe *cqe, uint16_t n)
{
	cqe[0].qp_id = 200;
	return 1;
}

static void
fake_close(struct crpc_rdma *dev)
{
	closes++;
}

static void
fake_info_get(const struct crpc_rdma *dev, struct crpc_rdma_info *info)
{
	snprintf(info->name, sizeof(info->name), "b0");
}

static int
fake_mr_reg(struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags,
	struct crpc_rdma_mr *mr)
{
	calls++;
	*mr = (struct crpc_rdma_mr){.addr = addr, .len = len, .lkey = 1, .rkey = 2, .priv = dev};
	return 0;
}

static void
fake_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr)
{
	calls++;
}

static struct crpc_rdma_qp *
fake_qp_create(struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf)
{
	calls++;
	seen_qp_conf = *conf;
	the_qp.dev = dev;
	return &the_qp;
}

static void
fake_qp_free(struct crpc_rdma_qp *qp)
{
	calls++;
}

static void
fake_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	addr[0] = 42;
}

static int
fake_qp_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN])
{
	seen_peer = peer;
	return peer[0] == 42 ? 0 : -EPROTO;
}

static struct crpc_rdma *fake_open(const struct crpc_rdma_conf *conf);

static const struct crpc_rdma_ops fake_ops = {
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.info_get = fake_info_get,
	.mr_reg = fake_mr_reg,
	.mr_dereg = fake_mr_dereg,
	.qp_create = fake_qp_create,
	.qp_free = fake_qp_free,
	.qp_addr = fake_qp_addr,
	.qp_connect = fake_qp_connect,
};

static struct crpc_rdma_driver fake_driver = {.ops = &fake_ops};

/* Registered first, and asked last: it takes nothing that gets there. */
static struct crpc_rdma *
last_open(const struct crpc_rdma_conf *conf)
{
	errno = conf->device != NULL && strcmp(conf->device, "b0") == 0 ? EIO : ENODEV;
	return NULL;
}

static const struct crpc_rdma_ops last_ops = {.name = "last", .is_last = true, .open = last_open};
static struct crpc_rdma_driver last_driver = {.ops = &last_ops};

/* Takes b0, and what comes without a name; "alien" is another's, and "locked" no driver's. */
static struct crpc_rdma *
fake_open(const struct crpc_rdma_conf *conf)
{
	opens++;
	if (conf->device == NULL || strcmp(conf->device, "b0") == 0) {
		seen_conf = *conf;
		the_dev = (struct crpc_rdma){.fp = {fake_post, fake_poll},
			.ops = &fake_ops,
			.stats = {.doorbells = 7}};
		return &the_dev;
	}
	errno = strcmp(conf->device, "locked") == 0  ? EACCES
		: strcmp(conf->device, "alien") == 0 ? ENOTSUP
						     : ENODEV;
	return NULL;
}

static struct crpc_rdma *
open_name(const char *name)
{
	const struct crpc_rdma_conf conf = {.device = name};

	opens = 0;
	crpc_log_clear();
	errno = 0;
	return crpc_rdma_open(&conf);
}

TEST(drivers_are_asked_in_turn)
{
	struct crpc_rdma *paper = open_name("paper");

	assert_non_null(paper);
	assert_int_equal(opens, 0);
	crpc_rdma_close(paper);
	assert_ptr_equal(open_name("b0"), &the_dev);
	assert_ptr_equal(open_name(NULL), &the_dev);
	assert_int_equal(seen_conf.port, 1);
	assert_int_equal(seen_conf.cq_depth, 4096);
	/* A driver that registers twice is still asked once. */
	crpc_rdma_driver_register(&fake_driver);
	assert_null(open_name("c0"));
	assert_int_equal(opens, 1);
}

TEST(a_chosen_driver_is_asked_alone)
{
	assert_int_equal(crpc_rdma_driver_choose("last"), 0);
	assert_null(open_name("b0"));
	assert_int_equal(opens, 0);
	assert_int_equal(crpc_rdma_driver_choose("paper"), 0); /* paper_nic */
	crpc_rdma_close(open_name("paper"));
	assert_int_equal(crpc_rdma_driver_choose("pap"), -ENOENT);
	assert_non_null(strstr(crpc_log_last(), "no RDMA driver pap; found: paper_nic fake last"));
	assert_int_equal(crpc_rdma_driver_choose(NULL), 0);
	assert_ptr_equal(open_name("b0"), &the_dev);
	assert_int_equal(opens, 1);
}

TEST(unknown_device_lists_what_was_found)
{
	assert_null(open_name("mlx5_9"));
	assert_int_equal(errno, ENODEV);
	assert_non_null(strstr(crpc_log_last(), "no RDMA device mlx5_9; found: paper"));
}

TEST(refusals_of_drivers_are_told_apart)
{
	const struct crpc_rdma_conf port = {.device = "paper", .port = 2};

	/* Known to a driver, but not its kind, and no other driver takes it. */
	assert_null(open_name("alien"));
	assert_int_equal(errno, ENOTSUP);
	assert_null(open_name("locked"));
	assert_int_equal(errno, EACCES);
	/* A final refusal ends the search. */
	opens = 0;
	assert_null(crpc_rdma_open(&port));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(opens, 0);
}

TEST(open_checks_arguments)
{
	struct crpc_rdma_conf bad[] = {
		{.device = ""},
		{.device = "b0", .gid = 256},
		{.device = "b0", .mtu = 1000},
		{.device = "b0", .mtu = 8192},
		{.device = "b0", .sl = 16},
		{.device = "b0", .traffic_class = 256},
		{.device = "b0", .flow_label = 1 << 20},
		{.device = "b0", .pkey = 1 << 16},
		{.device = "b0,mtu"},
		{.device = "b0,mtu="},
		{.device = "b0,mtu=1024x"},
		{.device = "b0,hops=1"},
		{.device = "b0,sl=16"},
		{.device = "b0,pkey=-1"},
		{.device = "b0", .cq_depth = CRPC_RDMA_CQ_DEPTH_MAX + 1},
		{.device = "b0", .dcis = CRPC_RDMA_DCIS_MAX + 1},
	};

	opens = 0;
	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		errno = 0;
		assert_null(crpc_rdma_open(&bad[i]));
		assert_int_equal(errno, EINVAL);
	}
	assert_null(crpc_rdma_open(NULL));
	assert_int_equal(opens, 0);
}

/* What follows a device's name sets fields, and the driver sees the name alone. */
TEST(fields_are_set_behind_the_name)
{
	const struct crpc_rdma_conf first = {.device = ",mtu=1024,port=2"};
	struct crpc_rdma *dev;

	dev = open_name("b0,gid=0,sl=3,class=0x6a,flow=1048575,pkey=0x8005");
	assert_non_null(dev);
	assert_int_equal(seen_conf.gid, CRPC_RDMA_GID(0));
	assert_int_equal(seen_conf.sl, 3);
	assert_int_equal(seen_conf.traffic_class, 106);
	assert_int_equal(seen_conf.flow_label, 0xfffff);
	assert_int_equal(seen_conf.pkey, 0x8005);
	assert_int_equal(seen_conf.mtu, 0);
	crpc_rdma_close(dev);
	dev = crpc_rdma_open(&first);
	assert_non_null(dev);
	assert_int_equal(seen_conf.mtu, 1024);
	assert_int_equal(seen_conf.port, 2);
	assert_int_equal(seen_conf.gid, 0);
	crpc_rdma_close(dev);
}

TEST(regions_are_checked)
{
	struct crpc_rdma *dev = open_name("b0");
	struct crpc_rdma_mr mr = {0};
	char byte;

	calls = 0;
	assert_int_equal(crpc_rdma_mr_reg(dev, &byte, 0, &mr), -EINVAL);
	assert_int_equal(crpc_rdma_mr_reg_flags(dev, &byte, 1, 2, &mr), -EINVAL);
	assert_int_equal(crpc_rdma_mr_reg(dev, NULL, 1, &mr), -EINVAL);
	assert_int_equal(crpc_rdma_mr_reg(dev, &byte, UINT64_MAX, &mr), -EINVAL);
	assert_int_equal(crpc_rdma_mr_reg(dev, &byte, 1, NULL), -EINVAL);
	assert_int_equal(crpc_rdma_mr_reg(NULL, &byte, 1, &mr), -EINVAL);
	assert_int_equal(calls, 0);
	assert_int_equal(crpc_rdma_mr_reg(dev, &byte, 1, &mr), 0);
	crpc_rdma_mr_dereg(dev, &mr);
	assert_int_equal(calls, 2);
	/* A second dereg of the same struct does nothing. */
	crpc_rdma_mr_dereg(dev, &mr);
	assert_int_equal(calls, 2);
}

TEST(queue_pairs_are_checked_and_get_defaults)
{
	const struct crpc_rdma_qp_conf big_sq = {.sq_depth = CRPC_RDMA_QUEUE_DEPTH_MAX + 1};
	const struct crpc_rdma_qp_conf big_rq = {.rq_depth = CRPC_RDMA_QUEUE_DEPTH_MAX + 1};
	const struct crpc_rdma_qp_conf zero = {.id = 5};
	struct crpc_rdma *dev = open_name("b0");
	uint8_t addr[CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_qp *qp;

	calls = 0;
	assert_null(crpc_rdma_qp_create(dev, &big_sq));
	assert_int_equal(errno, EINVAL);
	assert_null(crpc_rdma_qp_create(dev, &big_rq));
	assert_null(crpc_rdma_qp_create(dev, NULL));
	assert_null(crpc_rdma_qp_create(NULL, &zero));
	assert_int_equal(calls, 0);
	qp = crpc_rdma_qp_create(dev, &zero);
	assert_non_null(qp);
	assert_int_equal(seen_qp_conf.id, 5);
	assert_int_equal(seen_qp_conf.sq_depth, 64);
	assert_int_equal(seen_qp_conf.rq_depth, 128);

	memset(addr, 0xee, sizeof(addr));
	crpc_rdma_qp_addr(qp, addr);
	assert_int_equal(addr[0], 42);
	assert_int_equal(addr[CRPC_RDMA_ADDR_LEN - 1], 0);
	assert_int_equal(crpc_rdma_qp_connect(qp, addr), 0);
	/* The driver works on a copy: the peer cannot change it between check and use. */
	assert_ptr_not_equal(seen_peer, addr);
	addr[0] = 0;
	assert_int_equal(crpc_rdma_qp_connect(qp, addr), -EPROTO);
	crpc_rdma_qp_free(qp);
	assert_int_equal(calls, 2);
}

TEST(calls_reach_the_driver_of_the_device)
{
	struct crpc_rdma *dev = open_name("b0");
	const struct crpc_rdma_qp_conf conf = {.id = 1};
	struct crpc_rdma_wr wr[4] = {{0}};
	struct crpc_rdma_cqe cqe[1];
	struct crpc_rdma_stats stats;
	struct crpc_rdma_info info;
	struct crpc_rdma_qp *qp = crpc_rdma_qp_create(dev, &conf);

	assert_int_equal(crpc_rdma_post(qp, wr, 4), 2);
	assert_int_equal(crpc_rdma_poll(dev, cqe, 1), 1);
	assert_int_equal(cqe[0].qp_id, 200);
	crpc_rdma_info_get(dev, &info);
	assert_string_equal(info.name, "b0");
	assert_string_equal(info.driver, "fake");
	crpc_rdma_stats_get(dev, &stats);
	assert_int_equal(stats.doorbells, 7);
	closes = 0;
	crpc_rdma_close(NULL);
	crpc_rdma_qp_free(NULL);
	crpc_rdma_close(dev);
	assert_int_equal(closes, 1);
}

int
main(void)
{
	crpc_rdma_driver_register(&last_driver);
	crpc_rdma_driver_register(&fake_driver);
	return test_run(NULL, NULL);
}
