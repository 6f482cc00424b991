/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The address of a queue pair on the wire: golden bytes, and nothing damaged is taken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "crpc_log.h"
#include "mlx5_ring.h"

static const struct crpc_ib_addr sample = {
	.qpn = 0x00abcdef,
	.psn = 0x00123456,
	.lid = 0x1122,
	.link_layer = IBV_LINK_LAYER_INFINIBAND,
	.mtu = IBV_MTU_4096,
	.rd_atomic = 16,
	.gid_kind = 1 + IBV_GID_TYPE_IB,
	.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
};

/* clang-format off */
static const uint8_t golden[CRPC_RDMA_ADDR_LEN] = {
	'C', 'M', 'X', '5', 2, 1, 5, 1, 0xef, 0xcd, 0xab, 0, 0x56, 0x34, 0x12, 0,
	0x22, 0x11, 16, 0, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0,
	1, 2, 3, 4, 5, 6, 7, 8,
};
/* clang-format on */

TEST(golden_bytes)
{
	uint8_t bytes[CRPC_RDMA_ADDR_LEN];
	struct crpc_ib_addr a;

	crpc_ib_addr_encode(&sample, bytes);
	assert_memory_equal(bytes, golden, sizeof(golden));
	memset(&a, 0xff, sizeof(a));
	assert_int_equal(crpc_ib_addr_decode(golden, CRPC_IB_RC, &a), 0);
	assert_int_equal(a.qpn, sample.qpn);
	assert_int_equal(a.psn, sample.psn);
	assert_int_equal(a.lid, sample.lid);
	assert_int_equal(a.link_layer, sample.link_layer);
	assert_int_equal(a.mtu, sample.mtu);
	assert_int_equal(a.rd_atomic, sample.rd_atomic);
	assert_int_equal(a.gid_kind, sample.gid_kind);
	assert_memory_equal(a.gid, sample.gid, 16);
}

/* The kinds with a key of their own, and no address of one is taken for another's. */
TEST(kinds_are_told_apart)
{
	struct crpc_ib_addr a = sample, back;
	uint8_t bytes[CRPC_RDMA_ADDR_LEN];

	for (uint8_t kind = CRPC_IB_RC; kind <= CRPC_IB_DC; kind++) {
		a.kind = kind;
		a.key = kind == CRPC_IB_DC   ? 0xc0decafed00dbeef
			: kind == CRPC_IB_UD ? 0x7fffffff
					     : 0;
		crpc_ib_addr_encode(&a, bytes);
		for (uint8_t want = CRPC_IB_RC; want <= CRPC_IB_DC; want++) {
			assert_int_equal(crpc_ib_addr_decode(bytes, want, &back),
				want == kind ? 0 : -EPROTO);
			if (want == kind)
				assert_true(back.key == a.key && back.kind == kind);
		}
	}
	assert_int_equal(bytes[40], 0xef);
	assert_int_equal(bytes[47], 0xc0);
	/* A Q_Key with the highest bit would be the sender's own. */
	a.kind = CRPC_IB_UD;
	a.key = 0x80000000;
	crpc_ib_addr_encode(&a, bytes);
	assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_UD, &back), -EPROTO);
}

TEST(damage_is_refused_and_named)
{
	static const struct {
		uint32_t at;
		uint8_t byte;
		const char *text;
	} bad[] = {
		{0, 'X', "none of this driver"},
		{4, 1, "version 1"},
		{5, 0, "link layer"},
		{5, 3, "link layer"},
		{6, 0, "MTU"},
		{6, 6, "MTU"},
		{7, 4, "unknown kind"},
		{11, 1, "QPN"},
		{15, 1, "sequence"},
		{19, 1, "of a datagram queue pair, needed is one of a reliable connection"},
		{19, 9, "unknown kind"},
		{23, 1, "reserved"},
		{40, 1, "key"},
		{63, 0x80, "reserved"},
	};
	uint8_t bytes[CRPC_RDMA_ADDR_LEN];
	struct crpc_ib_addr a;

	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		memcpy(bytes, golden, sizeof(bytes));
		bytes[bad[i].at] = bad[i].byte;
		memset(&a, 0x5a, sizeof(a));
		crpc_log_clear();
		assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_RC, &a), -EPROTO);
		assert_non_null(strstr(crpc_log_last(), bad[i].text));
		/* The output is set only on success. */
		assert_int_equal(a.qpn, 0x5a5a5a5a);
	}
	/* The reserved QPNs 0 and 1, that of multicast; an address without any way to the peer. */
	memcpy(bytes, golden, sizeof(bytes));
	memset(bytes + 8, 0, 4);
	assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_RC, &a), -EPROTO);
	bytes[8] = 1;
	assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_RC, &a), -EPROTO);
	memset(bytes + 8, 0xff, 3);
	assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_RC, &a), -EPROTO);
	memcpy(bytes, golden, sizeof(bytes));
	bytes[7] = bytes[16] = bytes[17] = 0;
	assert_int_equal(crpc_ib_addr_decode(bytes, CRPC_IB_RC, &a), -EPROTO);
	assert_non_null(strstr(crpc_log_last(), "neither LID nor GID"));
}

TEST(table_finds_what_was_added_and_nothing_else)
{
	static struct crpc_mlx5_qp qps[CRPC_RDMA_QPS_MAX];
	struct crpc_mlx5_table t;

	for (uint32_t n = 1; n <= CRPC_RDMA_QPS_MAX; n *= 8) {
		assert_int_equal(crpc_mlx5_table_init(&t, n), 0);
		for (uint32_t i = 0; i < n; i++) {
			/* Dense, and with high bits that differ: both occur. */
			qps[i].ib.qpn = i % 2 ? 0x100 + i : (i & 0xff) << 16 | i | 8;
			crpc_mlx5_table_add(&t, &qps[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			assert_ptr_equal(crpc_mlx5_table_find(&t, qps[i].ib.qpn), &qps[i]);
		assert_null(crpc_mlx5_table_find(&t, 0xfffffe));
		assert_null(crpc_mlx5_table_find(&t, 0));
		free(t.slot);
	}
}

/*
 * Within a subnet the LID is enough, unless the port wants a global route header in everything, as
 * virtual functions on InfiniBand do.
 */
TEST(ports_that_want_a_global_route_get_one)
{
	struct crpc_ib ib = {
		.port = 1, .port_attr.link_layer = IBV_LINK_LAYER_INFINIBAND, .has_gid = true};
	struct crpc_ib_addr peer = {.link_layer = IBV_LINK_LAYER_INFINIBAND,
		.lid = 7,
		.gid_kind = 1 + IBV_GID_TYPE_IB,
		.gid = {0xfe, 0x80, [15] = 9}};
	struct ibv_ah_attr ah = {0};

	memcpy(ib.gid.gid.raw, peer.gid, sizeof(peer.gid));
	assert_int_equal(crpc_ib_route_fill(&ib, &peer, &ah), 0);
	assert_int_equal(ah.is_global, 0);
	assert_int_equal(ah.dlid, 7);
	ib.port_attr.flags = IBV_QPF_GRH_REQUIRED;
	assert_int_equal(crpc_ib_route_fill(&ib, &peer, &ah), 0);
	assert_int_equal(ah.is_global, 1);
	assert_memory_equal(ah.grh.dgid.raw, peer.gid, sizeof(peer.gid));
	ib.has_gid = false;
	assert_int_equal(crpc_ib_route_fill(&ib, &peer, &ah), -EHOSTUNREACH);
}

TEST_MAIN(NULL, NULL)
