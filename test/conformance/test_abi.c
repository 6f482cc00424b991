/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The uverbs interface as a program sees it through unmodified libibverbs and libmlx5, and by
 * ioctls made by hand: hostile requests, objects in use, wrong memory, events, descriptors that
 * are duplicated or closed unseen, and fork. Runs under usertools/soft-mlx5.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "crpc_util.h"
#include "soft_mlx5.h"

#define BUF_LEN     8192
#define SECONDS_MAX 5

static struct ibv_context *
open_dev(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	assert_non_null(list);
	assert_non_null(list[0]);
	ctx = ibv_open_device(list[0]);
	assert_non_null(ctx);
	ibv_free_device_list(list);
	return ctx;
}

/* ---- ioctls by hand ---- */

union raw {
	struct ib_uverbs_ioctl_hdr hdr;
	uint8_t bytes[sizeof(struct ib_uverbs_ioctl_hdr) + 3 * sizeof(struct ib_uverbs_attr)];
};

static union raw
raw_call(uint32_t cmd, const void *in, uint16_t in_len, void *out, uint16_t out_len)
{
	struct ib_uverbs_attr attr[] = {
			{.attr_id = UVERBS_ATTR_WRITE_CMD, .len = 4, .data = cmd},
			{.attr_id = UVERBS_ATTR_CORE_IN, .len = in_len},
			{.attr_id = UVERBS_ATTR_CORE_OUT, .len = out_len, .data = (uintptr_t)out},
	};
	union raw r;

	if (in_len <= 8)
		memcpy(&attr[1].data, in, in_len);
	else
		attr[1].data = (uintptr_t)in;
	memset(&r, 0, sizeof(r));
	r.hdr.length = sizeof(r);
	r.hdr.object_id = UVERBS_OBJECT_DEVICE;
	r.hdr.method_id = UVERBS_METHOD_INVOKE_WRITE;
	r.hdr.num_attrs = 3;
	memcpy(r.bytes + sizeof(r.hdr), attr, sizeof(attr));
	return r;
}

static int
raw_ioctl(int fd, union raw *r)
{
	return ioctl(fd, RDMA_VERBS_IOCTL, r) == 0 ? 0 : errno;
}

static int
raw_cmd(int fd, uint32_t cmd, const void *in, uint16_t in_len, void *out, uint16_t out_len)
{
	union raw r = raw_call(cmd, in, in_len, out, out_len);

	return raw_ioctl(fd, &r);
}

static int
dealloc_pd(int fd, uint32_t handle)
{
	return raw_cmd(fd, IB_USER_VERBS_CMD_DEALLOC_PD, &handle, sizeof(handle), NULL, 0);
}

static int
query_device(int fd)
{
	struct ib_uverbs_query_device_resp resp;
	struct ib_uverbs_query_device req = {0};

	return raw_cmd(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, &req, sizeof(req), &resp, sizeof(resp));
}

TEST(hostile_ioctls_are_refused)
{
	struct ibv_context *ctx = open_dev();
	struct ib_uverbs_reg_mr reg = {0};
	uint32_t handle = 1;
	uint64_t out[32];
	union raw r;

	/* Handles that were never given, and of another type. */
	for (uint32_t i = 0; i < 70; i++)
		assert_int_equal(dealloc_pd(ctx->cmd_fd, i * 61681u), ENOENT);
	assert_int_equal(dealloc_pd(ctx->cmd_fd, UINT32_MAX), ENOENT);
	/* The UAR page that libmlx5 made at open is no PD. */
	for (handle = 0; handle < 64; handle++)
		assert_int_equal(dealloc_pd(ctx->cmd_fd, handle), ENOENT);

	/* Lengths. */
	assert_int_equal(raw_cmd(ctx->cmd_fd, IB_USER_VERBS_CMD_REG_MR, &reg, 16, out, sizeof(out)),
			ENOSPC);
	assert_int_equal(raw_cmd(ctx->cmd_fd, IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), out, 8),
			ENOSPC);
	r = raw_call(IB_USER_VERBS_CMD_DEALLOC_PD, &handle, 4, NULL, 0);
	r.hdr.length--;
	assert_int_equal(raw_ioctl(ctx->cmd_fd, &r), EINVAL);
	r = raw_call(IB_USER_VERBS_CMD_DEALLOC_PD, &handle, 4, NULL, 0);
	r.hdr.num_attrs = 4000;
	r.hdr.length = (uint16_t)(sizeof(r.hdr) + 4000 * sizeof(struct ib_uverbs_attr));
	assert_int_equal(raw_ioctl(ctx->cmd_fd, &r), EINVAL);
	r = raw_call(IB_USER_VERBS_CMD_DEALLOC_PD, &handle, 4, NULL, 0);
	r.hdr.reserved1 = 1;
	assert_int_equal(raw_ioctl(ctx->cmd_fd, &r), EPROTONOSUPPORT);
	r = raw_call(IB_USER_VERBS_CMD_DEALLOC_PD, &handle, 4, NULL, 0);
	r.hdr.attrs[0].attr_id = 99; /* no command */
	assert_int_equal(raw_ioctl(ctx->cmd_fd, &r), EINVAL);

	/* Unknown commands and methods. */
	assert_int_equal(raw_cmd(ctx->cmd_fd, 0x7f, &handle, 4, NULL, 0), EOPNOTSUPP);
	r = raw_call(0, &handle, 4, NULL, 0);
	r.hdr.object_id = 0x2000;
	assert_int_equal(raw_ioctl(ctx->cmd_fd, &r), EPROTONOSUPPORT);
	assert_int_equal(ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, NULL), -1);
	assert_int_equal(errno, EFAULT);
	/* A second GET_CONTEXT on the same descriptor. */
	assert_int_equal(raw_cmd(ctx->cmd_fd, IB_USER_VERBS_CMD_GET_CONTEXT, out, 8, out, 8),
			EINVAL);
	/* Not a device: the kernel answers. */
	assert_int_equal(query_device(0) == 0, 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

TEST(short_answers_are_cut)
{
	struct ibv_context *ctx = open_dev();
	struct ib_uverbs_ex_query_device req = {0};
	struct {
		struct ib_uverbs_ex_query_device_resp resp;
		uint8_t guard[64];
	} out;
	uint16_t len = offsetof(struct ib_uverbs_ex_query_device_resp, timestamp_mask);

	memset(&out, 0xa5, sizeof(out));
	assert_int_equal(raw_cmd(ctx->cmd_fd, 0x80000000u | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, &req,
					 sizeof(req), &out, len),
			0);
	assert_int_equal(out.resp.response_length, len);
	for (size_t i = len; i < sizeof(out); i++)
		assert_int_equal(((uint8_t *)&out)[i], 0xa5);
	ibv_close_device(ctx);
}

/* A device command, of class DEVX_OBJ about an object. */
static int
raw_device_cmd(int fd, uint16_t object, uint16_t method, uint32_t handle, const void *in,
	uint16_t in_len, void *out, uint16_t out_len)
{
	uint16_t first = object == MLX5_IB_OBJECT_DEVX ? MLX5_IB_ATTR_DEVX_OTHER_CMD_IN
						       : MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN;
	union raw r = raw_call(handle, in, in_len, out, out_len);

	r.hdr.object_id = object;
	r.hdr.method_id = method;
	r.hdr.attrs[0].attr_id = MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE;
	if (object == MLX5_IB_OBJECT_DEVX)
		r.hdr.attrs[0].attr_id = 99;
	r.hdr.attrs[1].attr_id = first;
	r.hdr.attrs[2].attr_id = (uint16_t)(first + 1);
	return raw_ioctl(fd, &r);
}

static int
query_hca_cap(int fd, uint16_t opcode, uint16_t group, void *out, uint16_t out_len)
{
	uint16_t in[8] = {htobe16(opcode), 0, 0, htobe16((uint16_t)(group << 1 | 1))};

	return raw_device_cmd(fd, MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, 0, in, sizeof(in),
		out, out_len);
}

/* What a DC queue pair can have open is known; other commands and groups have one clear answer. */
TEST(capabilities_are_answered_without_devx)
{
	struct ibv_context *ctx = open_dev();
	uint8_t out[16 + 4096 + 64];

	memset(out, 0xa5, sizeof(out));
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x100, 0, out, sizeof(out)), 0);
	assert_int_equal(out[0], 0);                 /* status */
	assert_int_equal(out[16 + 36] & 0x20, 0x20); /* qpc_extension */
	assert_int_equal(out[16 + 37] & 0x3f, 4);    /* log_max_ra_req_dc */
	assert_int_equal(out[16 + 39] & 0x3f, 4);    /* log_max_ra_res_dc */
	assert_int_equal(out[16 + 4096], 0xa5);
	/* An answer is cut; a group of which there is nothing. */
	memset(out, 0xa5, sizeof(out));
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x100, 2, out, 20), 0);
	assert_int_equal(out[19], 0);
	assert_int_equal(out[20], 0xa5);
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x100, 0, NULL, 0), EINVAL);
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x100, 7, out, sizeof(out)), EOPNOTSUPP);
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x100, 0x7fff, out, sizeof(out)), EOPNOTSUPP);
	assert_int_equal(query_hca_cap(ctx->cmd_fd, 0x10b, 0, out, sizeof(out)), EOPNOTSUPP);
	ibv_close_device(ctx);
}

/* ---- netlink ---- */

struct nl_request {
	struct nlmsghdr hdr;
	struct nlattr attr;
	uint32_t value;
};

/* The error that a request gets, or -1: something else. 1: it does not get to the kernel's side. */
static int
nl_ask(int fd, const void *req, size_t len)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	_Alignas(struct nlmsghdr) uint8_t buf[4096];
	const struct nlmsghdr *hdr = (const void *)buf;
	const struct nlmsgerr *err = (const void *)&buf[NLMSG_HDRLEN];
	ssize_t n;

	if (sendto(fd, req, len, 0, (const void *)&kernel, sizeof(kernel)) != (ssize_t)len) {
		assert_int_equal(errno, ECONNREFUSED);
		return 1;
	}
	n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	assert_true(n >= (ssize_t)sizeof(*hdr) && hdr->nlmsg_len <= (size_t)n);
	return hdr->nlmsg_type == NLMSG_ERROR ? -err->error : -1;
}

/* Requests that are cut, lie about lengths or name what is not there; and of another socket. */
TEST(netlink_requests_are_checked)
{
	struct nl_request req = {
		.hdr = {.nlmsg_len = sizeof(req), .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)},
		.attr = {.nla_len = NLA_HDRLEN + 4, .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX},
	}, bad;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	int own = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);

	assert_true(fd >= 0 && own >= 0);
	assert_int_equal(nl_ask(fd, &req, sizeof(req)), -1);
	/* By it libibverbs learns that it has nothing to do for a fork. */
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	for (size_t len = 1; len < sizeof(req); len++) /* The length in it is more. */
		assert_int_equal(nl_ask(fd, &req, len), 1);
	for (uint32_t len = 0; len < 256; len++) {
		bad = req;
		bad.attr.nla_len = (uint16_t)(len * 257);
		assert_true(nl_ask(fd, &bad, sizeof(bad)) <= 0);
	}
	bad = req;
	bad.hdr.nlmsg_len = 1;
	assert_int_equal(nl_ask(fd, &bad, sizeof(bad)), 1);
	bad = req;
	bad.value = 7; /* No such device. */
	assert_int_equal(nl_ask(fd, &bad, sizeof(bad)), EINVAL);
	bad = req;
	bad.hdr.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET);
	assert_int_equal(nl_ask(fd, &bad, sizeof(bad)), EINVAL); /* Without a port. */
	bad.value = 7;
	bad.hdr.nlmsg_flags |= NLM_F_DUMP; /* The ports of a device that is not there. */
	assert_int_equal(nl_ask(fd, &bad, sizeof(bad)), EINVAL);
	bad.hdr.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 1023);
	assert_int_equal(nl_ask(fd, &bad, sizeof(bad)), EOPNOTSUPP);
	bad.hdr.nlmsg_type = NLMSG_DONE;
	assert_int_equal(nl_ask(own, &bad, sizeof(bad)), 1);
	close(own);
	close(fd);
}

/* ---- objects ---- */

TEST(contexts_do_not_leak)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_comp_channel *channel;
	uint32_t before = test_open_files() - 8, i;

	/* What answers questions of tools closes its socket a little later, in a thread. */
	ibv_close_device(ctx);
	for (i = 0; i < 500 && before != test_open_files(); i++) {
		before = test_open_files();
		usleep(20000);
	}
	/* More than there are places on a net, with objects left behind in each. */
	for (i = 0; i < 300; i++) {
		ctx = open_dev();
		assert_non_null(ibv_alloc_pd(ctx));
		channel = ibv_create_comp_channel(ctx);
		assert_non_null(ibv_create_cq(ctx, 16, NULL, channel, 0));
		ibv_close_device(ctx);
		close(channel->fd);
	}
	for (i = 0; i < 500 && test_open_files() > before; i++)
		usleep(20000);
	assert_in_range(test_open_files(), 0, before);
}

TEST(objects_in_use_are_busy)
{
	static char buf[BUF_LEN];
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp_init_attr qp_attr = {.send_cq = cq,
			.recv_cq = cq,
			.srq = srq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qp_attr);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);

	assert_non_null(qp);
	assert_non_null(mr);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static int
reg_errno(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(pd, addr, len, access);
	if (mr == NULL)
		return errno;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	return 0;
}

static char *
map_pages(char *hint, size_t len)
{
	char *map = mmap(
		hint, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(map != MAP_FAILED);
	return map;
}

/*
 * Four pages of which the third is not mapped, and stays so: far below what is mapped, where the
 * kernel puts nothing for another thread as long as there is room above.
 */
static char *
map_hole(size_t page)
{
	char *near = map_pages(NULL, 4 * page), *map;

	assert_int_equal(munmap(near, 4 * page), 0);
	map = map_pages(near - (UINT64_C(64) << 30), 4 * page);
	assert_int_equal(munmap(map + 2 * page, page), 0);
	return map;
}

TEST(regions_must_be_mapped_memory)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	size_t page = 4096;
	char *map = map_hole(page);

	assert_int_equal(reg_errno(pd, map, 2 * page, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(reg_errno(pd, map, 4 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	assert_int_equal(reg_errno(pd, map + page, page + 1, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	assert_int_equal(mprotect(map, page, PROT_READ), 0);
	assert_int_equal(reg_errno(pd, map, 2 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	assert_int_equal(reg_errno(pd, map, 2 * page, 0), 0);
	assert_int_equal(reg_errno(pd, NULL, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	assert_int_equal(reg_errno(pd, map, SIZE_MAX / 2, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	assert_int_equal(reg_errno(pd, map + page, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	assert_int_equal(reg_errno(pd, map + page, page,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND),
			EOPNOTSUPP);
	munmap(map, 2 * page);
	munmap(map + 3 * page, page);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
}

TEST(limits_are_checked)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RAW_PACKET,
			.cap = {.max_send_wr = 16,
					.max_recv_wr = 16,
					.max_send_sge = 1,
					.max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2};
	struct ibv_port_attr port;
	struct ibv_qp *qp;

	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(ibv_query_port(ctx, 2, &port), EINVAL);
	assert_null(ibv_create_cq(ctx, 16, NULL, NULL, 1)); /* one completion vector: 0 */
	assert_null(ibv_create_cq(ctx, 1 << 23, NULL, NULL, 0));
	assert_null(ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS),
			EINVAL);
	attr.port_num = 1;
	attr.qp_state = IBV_QPS_RTS; /* not from RESET */
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	assert_int_equal(ibv_modify_qp(qp, &attr,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS),
			0);
	memset(&attr, 0, sizeof(attr));
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_INIT);
	assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(attr.port_num, 1);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
}

/* ---- traffic: a QP connected to itself ---- */

struct loop {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
};

static void
connect_to_self(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
			.port_num = 1,
			.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	assert_int_equal(ibv_modify_qp(qp, &attr,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS),
			0);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.dlid = 1;
	attr.ah_attr.port_num = 1;
	assert_int_equal(ibv_modify_qp(qp, &attr,
					 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
							 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
							 IBV_QP_MAX_DEST_RD_ATOMIC |
							 IBV_QP_MIN_RNR_TIMER),
			0);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	assert_int_equal(ibv_modify_qp(qp, &attr,
					 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
							 IBV_QP_MAX_QP_RD_ATOMIC),
			0);
}

static void
loop_open(struct loop *l)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 64, .max_sge = 1}};
	struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 64, .max_send_sge = 1}};

	memset(l, 0, sizeof(*l));
	l->ctx = open_dev();
	l->channel = ibv_create_comp_channel(l->ctx);
	l->pd = ibv_alloc_pd(l->ctx);
	l->cq = ibv_create_cq(l->ctx, 256, l, l->channel, 0);
	l->srq = ibv_create_srq(l->pd, &srq);
	init.send_cq = init.recv_cq = l->cq;
	init.srq = l->srq;
	l->qp = ibv_create_qp(l->pd, &init);
	assert_non_null(l->qp);
	l->buf = calloc(1, BUF_LEN);
	l->mr = ibv_reg_mr(
			l->pd, l->buf, BUF_LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(l->mr);
	connect_to_self(l->qp);
}

static void
loop_close(struct loop *l)
{
	if (l->qp != NULL)
		assert_int_equal(ibv_destroy_qp(l->qp), 0);
	if (l->cq != NULL)
		assert_int_equal(ibv_destroy_cq(l->cq), 0);
	assert_int_equal(ibv_destroy_srq(l->srq), 0);
	assert_int_equal(ibv_dereg_mr(l->mr), 0);
	assert_int_equal(ibv_dealloc_pd(l->pd), 0);
	if (l->channel != NULL)
		assert_int_equal(ibv_destroy_comp_channel(l->channel), 0);
	assert_int_equal(ibv_close_device(l->ctx), 0);
	free(l->buf);
}

/* A receive into the upper half of the buffer, and a send from its start. */
static void
loop_post(struct loop *l, uint32_t len)
{
	struct ibv_sge to = {(uintptr_t)l->buf + BUF_LEN / 2, BUF_LEN / 2, l->mr->lkey};
	struct ibv_sge from = {(uintptr_t)l->buf, len, l->mr->lkey};
	struct ibv_recv_wr rwr = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_rwr;
	struct ibv_send_wr swr = {.wr_id = 2,
					   .sg_list = &from,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED},
			   *bad_swr;

	assert_int_equal(ibv_post_srq_recv(l->srq, &rwr, &bad_rwr), 0);
	assert_int_equal(ibv_post_send(l->qp, &swr, &bad_swr), 0);
}

static int
loop_poll(struct loop *l, int want)
{
	time_t end = time(NULL) + SECONDS_MAX;
	struct ibv_wc wc;
	int n, got = 0;

	while (got < want && time(NULL) <= end) {
		n = ibv_poll_cq(l->cq, 1, &wc);
		assert_true(n >= 0);
		if (n == 0)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		got++;
	}
	return got;
}

static void
loop_send(struct loop *l)
{
	static const char text[] = "through the loop";

	memcpy(l->buf, text, sizeof(text));
	memset(l->buf + BUF_LEN / 2, 0, sizeof(text));
	loop_post(l, sizeof(text));
	assert_int_equal(loop_poll(l, 2), 2);
	assert_string_equal(l->buf + BUF_LEN / 2, text);
}

static uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The time of the adapter is right from its first pass on, not only once it read the clock. */
TEST(the_first_completion_has_the_present_time)
{
	uint64_t before = monotonic_ns(), stamp;
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq_init_attr_ex cq_init = {
			.cqe = 16, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &cq_init);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
					.max_recv_sge = 1}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_poll_cq_attr poll = {0};
	time_t end = time(NULL) + SECONDS_MAX;
	struct ibv_qp *qp;

	assert_non_null(cq);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	connect_to_self(qp);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	while (ibv_start_poll(cq, &poll) != 0)
		assert_true(time(NULL) <= end);
	stamp = ibv_wc_read_completion_ts(cq);
	ibv_end_poll(cq);
	assert_in_range(stamp, before, monotonic_ns());
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static bool
readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1 && (p.revents & POLLIN) != 0;
}

/* In the place of the C library's, for every library of the process. */
static atomic_bool no_memory;

__attribute__((visibility("default"))) void *
realloc(void *old, size_t size)
{
	static void *(*real)(void *, size_t);

	if (no_memory) {
		errno = ENOMEM;
		return NULL;
	}
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "realloc");
	return real(old, size);
}

TEST(unread_events_do_not_block_destroy)
{
	struct ibv_cq *ev_cq;
	struct loop l;
	void *ev_ctx;

	loop_open(&l);
	assert_false(readable(l.channel->fd, 0));
	assert_int_equal(ibv_req_notify_cq(l.cq, 0), 0);
	loop_post(&l, 16);
	/* No thread polls: the helper thread must notice. */
	assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
	assert_int_equal(ibv_get_cq_event(l.channel, &ev_cq, &ev_ctx), 0);
	assert_ptr_equal(ev_cq, l.cq);
	assert_ptr_equal(ev_ctx, &l);
	ibv_ack_cq_events(l.cq, 1);
	assert_int_equal(loop_poll(&l, 2), 2);

	assert_int_equal(ibv_req_notify_cq(l.cq, 0), 0);
	loop_post(&l, 16);
	assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
	/* Not read, not acknowledged: a kernel takes it back, and needs no memory for that. SIGALRM
	 * ends us if not. */
	alarm(SECONDS_MAX);
	assert_int_equal(ibv_destroy_qp(l.qp), 0);
	no_memory = true;
	assert_int_equal(ibv_destroy_cq(l.cq), 0);
	no_memory = false;
	alarm(0);
	assert_false(readable(l.channel->fd, 0));
	l.qp = NULL;
	l.cq = NULL;
	loop_close(&l);
}

/* Events of other queues on the same channel survive the destruction of one. */
TEST(channels_are_shared)
{
	struct ibv_cq *ev_cq, *other;
	struct loop l;
	void *ev_ctx;
	int dup_fd;

	loop_open(&l);
	other = ibv_create_cq(l.ctx, 16, NULL, l.channel, 0);
	assert_non_null(other);
	dup_fd = dup(l.channel->fd);
	assert_int_equal(ibv_req_notify_cq(l.cq, 0), 0);
	loop_post(&l, 16);
	assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
	assert_int_equal(ibv_destroy_cq(other), 0);
	assert_true(readable(dup_fd, 0));
	assert_int_equal(ibv_get_cq_event(l.channel, &ev_cq, &ev_ctx), 0);
	assert_ptr_equal(ev_cq, l.cq);
	ibv_ack_cq_events(l.cq, 1);
	assert_int_equal(loop_poll(&l, 2), 2);
	/* The channel lives as long as a descriptor of it does. */
	close(l.channel->fd);
	assert_int_equal(dup2(dup_fd, l.channel->fd), l.channel->fd);
	close(dup_fd);
	assert_int_equal(ibv_req_notify_cq(l.cq, 0), 0);
	loop_post(&l, 16);
	assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
	loop_close(&l);
}

/* Connect to the control socket of this process; false: it is not listening. */
static bool
control_connect(int fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	bool found = false;
	int n;

	/* Devices were opened and closed before. */
	for (uint32_t i = 0; !found && i < 1000; i++) {
		n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "soft_mlx5.%u.ctl.%d.%u",
				(unsigned int)geteuid(), (int)getpid(), i);
		found = connect(fd, (struct sockaddr *)&a,
				(socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 +
					(socklen_t)n) == 0;
	}
	return found;
}

/* Ask by it how the contexts are; true if an answer comes in time. */
static bool
control_ask(int fd, int ms)
{
	const char *net = getenv("SOFT_MLX5_NET");
	char text[256];
	int n = snprintf(text, sizeof(text), "stat %s\n", net != NULL ? net : "default");
	bool ok = send(fd, text, (size_t)n, MSG_NOSIGNAL) == n && readable(fd, ms) &&
			recv(fd, text, 3, MSG_WAITALL) == 3 && memcmp(text, "ok\n", 3) == 0;

	while (ok && recv(fd, text, sizeof(text), 0) > 0)
		;
	close(fd);
	return ok;
}

/* Who looks into a process by its control socket takes no event from it. */
TEST(events_arrive_after_a_look_into_the_process)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct ibv_cq *ev_cq;
	struct loop l;
	void *ev_ctx;

	loop_open(&l);
	assert_true(control_connect(fd));
	assert_true(control_ask(fd, SECONDS_MAX * 1000));
	assert_false(readable(l.channel->fd, 0));
	assert_int_equal(ibv_req_notify_cq(l.cq, 0), 0);
	loop_post(&l, 16);
	assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
	assert_int_equal(ibv_get_cq_event(l.channel, &ev_cq, &ev_ctx), 0);
	assert_ptr_equal(ev_cq, l.cq);
	ibv_ack_cq_events(l.cq, 1);
	assert_int_equal(loop_poll(&l, 2), 2);
	loop_close(&l);
}

/* A process without a free descriptor is not looked into, but is again when it has one. */
TEST(control_survives_a_lack_of_descriptors)
{
	int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
	struct rlimit old, none;
	struct loop l;

	loop_open(&l);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	/* A number may have been reserved for this one before; there is none behind it. */
	if (control_connect(first))
		control_ask(first, 300);
	usleep(100000);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(control_connect(second));
	assert_true(control_ask(second, SECONDS_MAX * 1000));
	loop_close(&l);
}

/* However many events pile up, none may get lost. */
#define MANY 700

TEST(many_events_wait_for_room)
{
	struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	static struct ibv_cq *cq[MANY];
	static struct ibv_qp *qp[MANY];
	static int seen[MANY];
	struct ibv_cq *ev_cq;
	struct loop l;
	void *ev_ctx;

	loop_open(&l);
	for (int i = 0; i < MANY; i++) {
		cq[i] = ibv_create_cq(l.ctx, 1, &seen[i], l.channel, 0);
		assert_non_null(cq[i]);
		init.send_cq = init.recv_cq = cq[i];
		qp[i] = ibv_create_qp(l.pd, &init);
		assert_non_null(qp[i]);
		connect_to_self(qp[i]);
		assert_int_equal(ibv_req_notify_cq(cq[i], 0), 0);
		assert_int_equal(ibv_post_send(qp[i], &wr, &bad), 0); /* of no bytes */
	}
	for (int i = 0; i < MANY; i++) {
		assert_true(readable(l.channel->fd, SECONDS_MAX * 1000));
		/* Let them pile up first. */
		if (i == 0)
			usleep(200000);
		assert_int_equal(ibv_get_cq_event(l.channel, &ev_cq, &ev_ctx), 0);
		(*(int *)ev_ctx)++;
		ibv_ack_cq_events(ev_cq, 1);
	}
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(seen[i], 1);
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	}
	loop_close(&l);
}

/*
 * Each of thousands of queue pairs fails before any event is read, which is more than a pipe holds
 * that does not grow. In their midst queues are destroyed: what they had unread is taken back, and
 * nothing of the others. Every other event arrives, once.
 */
#define FAILING 5000
#define ENDED   100

TEST(every_failure_is_an_event)
{
	struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_send_sge = 1}};
	static struct ibv_qp *qp[FAILING];
	static int seen[FAILING];
	struct ibv_async_event ev;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .num_sge = 1}, *bad;
	struct ibv_cq *cq, *other;
	struct ibv_sge sge;
	struct loop l;
	int i, round;

	loop_open(&l);
	sge = (struct ibv_sge){(uintptr_t)l.buf, 8, l.mr->lkey};
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)l.buf; /* With a key that is none. */
	cq = ibv_create_cq(l.ctx, 4 * FAILING, NULL, NULL, 0);
	assert_non_null(cq);
	init.send_cq = init.recv_cq = cq;
	for (i = 0; i < FAILING; i++) {
		init.qp_context = &seen[i];
		qp[i] = ibv_create_qp(l.pd, &init);
		assert_non_null(qp[i]);
		connect_to_self(qp[i]);
		assert_int_equal(ibv_post_send(qp[i], &wr, &bad), 0);
	}
	for (i = 0, round = 0; i < FAILING && round < 100000000; round++) {
		struct ibv_wc wc;

		i += ibv_poll_cq(cq, 1, &wc);
	}
	assert_int_equal(i, FAILING);
	alarm(4 * SECONDS_MAX);
	for (i = 0; i < ENDED; i++) {
		other = ibv_create_cq(l.ctx, 16, NULL, l.channel, 0);
		assert_int_equal(ibv_destroy_cq(other), 0);
		assert_int_equal(ibv_destroy_qp(qp[i * (FAILING / ENDED)]), 0);
		qp[i * (FAILING / ENDED)] = NULL;
	}
	alarm(0);
	for (i = 0; i < FAILING - ENDED; i++) {
		if (!readable(l.ctx->async_fd, SECONDS_MAX * 1000))
			fail_msg("%d events of %d", i, FAILING - ENDED);
		assert_int_equal(ibv_get_async_event(l.ctx, &ev), 0);
		assert_int_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
		(*(int *)ev.element.qp->qp_context)++;
		ibv_ack_async_event(&ev);
	}
	assert_false(readable(l.ctx->async_fd, 10));
	for (i = 0; i < FAILING; i++) {
		assert_int_equal(seen[i], i % (FAILING / ENDED) != 0);
		if (qp[i] != NULL)
			assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	}
	assert_int_equal(ibv_destroy_cq(cq), 0);
	loop_close(&l);
}

TEST(srq_limit_is_an_event)
{
	struct ibv_srq_attr attr = {.srq_limit = 1};
	struct ibv_async_event ev;
	struct loop l;

	loop_open(&l);
	attr.max_wr = 1000;
	assert_int_equal(ibv_modify_srq(l.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.srq_limit = 1000000;
	assert_int_equal(ibv_modify_srq(l.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.srq_limit = 1;
	assert_int_equal(ibv_modify_srq(l.srq, &attr, IBV_SRQ_LIMIT), 0);
	loop_send(&l); /* takes the only receive */
	assert_true(readable(l.ctx->async_fd, SECONDS_MAX * 1000));
	assert_int_equal(ibv_get_async_event(l.ctx, &ev), 0);
	assert_int_equal(ev.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(ev.element.srq, l.srq);
	ibv_ack_async_event(&ev);
	assert_int_equal(ibv_query_srq(l.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	loop_close(&l);
}

TEST(rereg_moves_a_region)
{
	struct loop l;
	char *other = calloc(1, BUF_LEN), *old;

	loop_open(&l);
	loop_send(&l);
	old = l.buf;
	l.buf = other;
	assert_int_equal(ibv_rereg_mr(l.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, BUF_LEN,
					 0),
			0);
	loop_send(&l);
	free(old);
	loop_close(&l);
}

/* Neither a change of access nor one of memory lets the device write what may only be read. */
TEST(rereg_checks_memory)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	size_t page = 4096;
	char *map = map_pages(NULL, 2 * page);
	struct ibv_mr *mr[2];

	assert_true(mprotect(map, page, PROT_READ) == 0);
	mr[0] = ibv_reg_mr(pd, map, page, 0);
	mr[1] = ibv_reg_mr(pd, map + page, page, IBV_ACCESS_LOCAL_WRITE);
	assert_true(mr[0] != NULL && mr[1] != NULL);
	assert_int_not_equal(ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					     IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(errno, EFAULT);
	assert_int_not_equal(ibv_rereg_mr(mr[1], IBV_REREG_MR_CHANGE_TRANSLATION, NULL, map, page,
					     0), 0);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ibv_rereg_mr(mr[1], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	ibv_dereg_mr(mr[0]);
	ibv_dereg_mr(mr[1]);
	munmap(map, 2 * page);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
}

/* ---- descriptors and processes ---- */

TEST(descriptors_may_be_duplicated)
{
	struct ibv_context *ctx = open_dev();
	struct stat st;
	int fd = dup(ctx->cmd_fd), cmd_fd = ctx->cmd_fd;

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(major(st.st_rdev), 231);
	assert_int_equal(query_device(fd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(fstat(cmd_fd, &st), -1);
	assert_int_equal(query_device(fd), 0); /* the file lives */
	assert_int_equal(close(fd), 0);
	assert_int_equal(query_device(fd), EBADF);
}

/* dup2() over a device closes it without a close(); the number then shows another file. */
TEST(numbers_are_not_trusted)
{
	struct ibv_context *ctx = open_dev();
	int keep = dup(ctx->cmd_fd), other = memfd_create("other", 0);
	struct stat st;

	assert_int_equal(dup2(other, ctx->cmd_fd), ctx->cmd_fd);
	assert_int_equal(fstat(ctx->cmd_fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(query_device(ctx->cmd_fd) == 0, 0);
	assert_int_equal(query_device(keep), 0);
	assert_int_equal(dup2(keep, ctx->cmd_fd), ctx->cmd_fd);
	close(keep);
	close(other);
	assert_int_equal(query_device(ctx->cmd_fd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static int
wait_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(fork_leaves_the_parent_alone)
{
	struct loop l, own;
	pid_t pid;

	loop_open(&l);
	loop_send(&l);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(SECONDS_MAX);
		/* What was inherited is dead, and says so. */
		if (query_device(l.ctx->cmd_fd) != EIO)
			_exit(2);
		close(l.ctx->cmd_fd);
		loop_open(&own);
		if (own.qp->qp_num == l.qp->qp_num)
			_exit(3);
		loop_send(&own);
		loop_close(&own);
		_exit(0);
	}
	assert_int_equal(wait_child(pid), 0);
	loop_send(&l);
	/* A child of vfork shares our memory; what it closes is closed there only. */
	pid = vfork();
	if (pid == 0) {
		close(l.ctx->cmd_fd);
		_exit(0);
	}
	assert_int_equal(wait_child(pid), 0);
	loop_send(&l);
	loop_close(&l);
}

static _Atomic bool churn_ends;
static _Atomic uint32_t churned;

/* Commands, events and traffic of contexts that come and go, so that at any time something of them
 * is in the midst of a change. */
static void *
churn(void *arg)
{
	struct ibv_async_event ev;
	struct loop l;

	while (!atomic_load(&churn_ends)) {
		loop_open(&l);
		loop_send(&l);
		loop_post(&l, 8);
		loop_post(&l, BUF_LEN); /* Does not fit: the queue pair fails. */
		assert_int_equal(ibv_get_async_event(l.ctx, &ev), 0);
		ibv_ack_async_event(&ev);
		loop_close(&l);
		atomic_fetch_add(&churned, 1);
	}
	return NULL;
}

static void *
send_always(void *arg)
{
	struct loop *l = arg;

	while (!atomic_load(&churn_ends))
		loop_send(l);
	return NULL;
}

/* Bounded: contexts come and go in the parent. */
static void
churn_goes_on(void)
{
	uint32_t from = atomic_load(&churned);
	time_t end = time(NULL) + 2 * SECONDS_MAX;

	while (atomic_load(&churned) - from < 2) {
		if (time(NULL) > end)
			fail_msg("a child stops its parent");
		usleep(1000);
	}
}

/*
 * Children of a program whose other threads are anywhere. Some close what they inherited and end;
 * others keep it for as long as they live, which keeps no thread of the parent from anything.
 */
TEST(fork_while_others_work)
{
	pthread_t thread[2];
	struct loop l;

	loop_open(&l);
	atomic_store(&churn_ends, false);
	assert_int_equal(pthread_create(&thread[0], NULL, churn, NULL), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, send_always, &l), 0);
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			alarm(6 * SECONDS_MAX);
			if (i % 2 != 0)
				pause();
			for (int fd = 3; fd < 200; fd++)
				close(fd);
			_exit(0);
		}
		if (i % 2 != 0) {
			churn_goes_on();
			kill(pid, SIGKILL);
			assert_int_equal(wait_child(pid), 1000 + SIGKILL);
		} else {
			assert_int_equal(wait_child(pid), 0);
		}
	}
	atomic_store(&churn_ends, true);
	assert_int_equal(pthread_join(thread[0], NULL), 0);
	assert_int_equal(pthread_join(thread[1], NULL), 0);
	loop_close(&l);
}

static void *
own_device(void *arg)
{
	struct loop l;

	for (int i = 0; i < 5; i++) {
		loop_open(&l);
		for (int j = 0; j < 200; j++)
			loop_send(&l);
		loop_close(&l);
	}
	return NULL;
}

static void *
shared_device(void *arg)
{
	struct ibv_context *ctx = arg;
	static char buf[BUF_LEN];

	for (int i = 0; i < 100; i++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
		struct ibv_pd *pd = ibv_alloc_pd(ctx);
		struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
		struct ibv_cq *cq = ibv_create_cq(ctx, 64, NULL, channel, 0);

		assert_true(channel != NULL && pd != NULL && mr != NULL && cq != NULL);
		assert_int_equal(ibv_destroy_cq(cq), 0);
		assert_int_equal(ibv_destroy_comp_channel(channel), 0);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	}
	return NULL;
}

/* Opening, closing, commands and traffic at once; the thread sanitizer looks on. */
TEST(threads_do_not_meet)
{
	struct ibv_context *ctx = open_dev();
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL,
						 i % 2 ? own_device : shared_device, ctx),
				0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	ibv_close_device(ctx);
}

/* A program cannot reset a stream of what has none, nor send another command that way. */
TEST(only_streams_are_reset_by_device_commands)
{
	uint8_t in[0x114] = {5, 5, [8] = 0x80, [0x10f] = 1, [0x113] = 3}, out[16];
	struct loop l;
	int fd;

	loop_open(&l);
	fd = l.ctx->cmd_fd;
#define RESET(handle, len)                                                                         \
	raw_device_cmd(fd, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, handle, in,    \
		len, out, sizeof(out))
	assert_int_equal(RESET(l.qp->handle, sizeof(in)), EINVAL); /* Of queue pair 0. */
	in[9] = (uint8_t)(l.qp->qp_num >> 16);
	in[10] = (uint8_t)(l.qp->qp_num >> 8);
	in[11] = (uint8_t)l.qp->qp_num;
	assert_int_equal(RESET(l.qp->handle, sizeof(in)), EINVAL); /* An RC. */
	assert_int_equal(RESET(l.cq->handle, sizeof(in)), EINVAL);
	assert_int_equal(RESET(12345, sizeof(in)), EINVAL);
	assert_int_equal(RESET(l.qp->handle, 0), EOPNOTSUPP);
	assert_int_equal(RESET(l.qp->handle, 16), EOPNOTSUPP);
	in[1] = 4; /* RTR2RTS_QP */
	assert_int_equal(RESET(l.qp->handle, sizeof(in)), EOPNOTSUPP);
	loop_send(&l);
	loop_close(&l);
}

TEST(progress_is_found_by_name)
{
	__typeof__(&soft_mlx5_progress) progress =
			(__typeof__(progress))dlsym(RTLD_DEFAULT, SOFT_MLX5_PROGRESS_SYMBOL);
	struct ibv_context no_device = {.cmd_fd = -1};
	struct loop l;

	assert_non_null(progress);
	assert_int_equal(progress(&no_device), 0);
	no_device.cmd_fd = INT32_MAX;
	assert_int_equal(progress(&no_device), 0);
	no_device.cmd_fd = 0;
	assert_int_equal(progress(&no_device), 0);
	loop_open(&l);
	while (progress(l.ctx) != 0)
		;
	loop_send(&l);
	loop_close(&l);
}

TEST_MAIN(NULL, NULL)
