/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

/**
 * @file
 * The kernel side of soft_mlx5 in a target: linked, not preloaded, so it replaces nothing of the C
 * library; and in step mode, so nothing runs by itself.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "progress.h"
#include "real.h"
#include "soft_mlx5_step.h"
#include "uverbs.h"

extern const struct soft_mlx5_step soft_mlx5_step;

/* ---- what preload.c has ---- */

int
sm_real_fstat(int fd, struct stat *st)
{
	return fstat(fd, st);
}

void *
sm_real(void *_Atomic *cache, const char *soname, const char *name, const char *version)
{
	(void)cache, (void)soname, (void)name, (void)version;
	return NULL;
}

/* ---- a device node ---- */

static inline void
kernel_start(const char *net)
{
	char name[64];

	fuzz_quiet();
	snprintf(name, sizeof(name), "fuzz-%s-%d", net, (int)getpid());
	fuzz_check(setenv("SOFT_MLX5_NET", name, 1) == 0);
	fuzz_check(setenv("SOFT_MLX5_PROGRESS", "step", 1) == 0);
	fuzz_check(setenv("SOFT_MLX5_DIRECT", "off", 1) == 0);
}

static inline void
kernel_close(int fd)
{
	fuzz_check(close(fd) == 0);
	sm_file_closed(fd);
}

/* A message of exactly its length; 0 or an errno value. */
static inline int
kernel_ioctl(int fd, const struct ib_uverbs_ioctl_hdr *hdr, const struct ib_uverbs_attr *attr,
	uint32_t n)
{
	uint8_t *msg = malloc(sizeof(*hdr) + n * sizeof(*attr));
	int err;

	fuzz_check(msg != NULL);
	memcpy(msg, hdr, sizeof(*hdr));
	memcpy(msg + sizeof(*hdr), attr, n * sizeof(*attr));
	err = uv_ioctl(uv_ctx_of(sm_file_find(fd)), fd, msg);
	free(msg);
	fuzz_check(err >= 0 && err < 4096);
	return err;
}

/* Where a command's parts lie. */
struct kernel_parts {
	const void *in, *drv;
	void *out, *drv_out;
	uint16_t in_len, drv_len, out_len, drv_out_len;
};

/* 0 or an errno value. */
static inline int
kernel_command(int fd, uint32_t cmd, const struct kernel_parts *p)
{
	struct ib_uverbs_attr attr[] = {
		{.attr_id = UVERBS_ATTR_WRITE_CMD, .len = 4, .data = cmd},
		{.attr_id = UVERBS_ATTR_CORE_IN, .len = p->in_len, .data = (uintptr_t)p->in},
		{.attr_id = UVERBS_ATTR_CORE_OUT, .len = p->out_len, .data = (uintptr_t)p->out},
		{.attr_id = UVERBS_ATTR_UHW_IN, .len = p->drv_len, .data = (uintptr_t)p->drv},
		{.attr_id = UVERBS_ATTR_UHW_OUT, .len = p->drv_out_len,
			.data = (uintptr_t)p->drv_out},
	};
	const struct ib_uverbs_ioctl_hdr hdr = {.length = sizeof(hdr) + sizeof(attr),
		.object_id = UVERBS_OBJECT_DEVICE, .method_id = UVERBS_METHOD_INVOKE_WRITE,
		.num_attrs = CRPC_DIM(attr)};

	/* What is short stands in the attribute itself. */
	if (p->in_len != 0 && p->in_len <= 8)
		memcpy(&attr[1].data, p->in, p->in_len);
	if (p->drv_len != 0 && p->drv_len <= 8)
		memcpy(&attr[3].data, p->drv, p->drv_len);
	return kernel_ioctl(fd, &hdr, attr, CRPC_DIM(attr));
}

/* As libmlx5 asks for it. The descriptor of asynchronous events. */
static inline int
kernel_context(int fd)
{
	struct mlx5_ib_alloc_ucontext_req_v2 drv = {.total_num_bfregs = 1,
		.num_low_latency_bfregs = 1, .max_cqe_version = 1,
		.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR};
	struct ib_uverbs_get_context_resp resp;
	struct ib_uverbs_get_context req = {0};
	struct kernel_parts p = {.in = &req, .in_len = sizeof(req), .out = &resp,
		.out_len = sizeof(resp), .drv = &drv, .drv_len = sizeof(drv)};

	fuzz_check(kernel_command(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &p) == 0);
	return (int)resp.async_fd;
}

#endif
