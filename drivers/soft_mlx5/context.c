/* SPDX-License-Identifier: BSD-3-Clause */

/* Device nodes as descriptors of this process, the contexts behind them, and what fork does. */
#include "uverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cm.h"
#include "control.h"
#include "crpc_log.h"
#include "fabric.h"
#include "progress.h"
#include "say.h"
#include "ucx.h"

const char *
uv_net_base(void)
{
	const char *net = getenv("SOFT_MLX5_NET");

	return net != NULL && net[0] != '\0' ? net : "default";
}

/* The net; over UDP one for each address, since it numbers the contexts of that alone. */
static void
net_name(const struct sm_port *port, char *name, size_t size)
{
	uint32_t a = port->addr;

	snprintf(name, size, "%s", uv_net_base());
	if (a != 0)
		snprintf(name + strlen(name), size - strlen(name), ".%u.%u.%u.%u", a >> 24,
				a >> 16 & 0xff, a >> 8 & 0xff, a & 0xff);
}

uint32_t
uv_contexts(struct uv_ctx *list[SM_SLOTS])
{
	struct sm_file *file;
	struct uv_ctx *ctx;
	uint32_t i, n = 0;

	pthread_mutex_lock(&sm_files_lock);
	LIST_FOREACH (file, &sm_files, link) {
		ctx = uv_ctx_of(file);
		/* A3 pairs with R3 in uv_get_context */
		if (n == SM_SLOTS || ctx == NULL || ctx->dead || ctx->vanished ||
			crpc_load_acquire(&ctx->nic) == NULL)
			continue;
		for (i = n++; i > 0 && list[i - 1]->number > ctx->number; i--)
			list[i] = list[i - 1];
		list[i] = ctx;
	}
	pthread_mutex_unlock(&sm_files_lock);
	return n;
}

/*
 * From how many bytes on payloads go straight from source to destination; 0: none. In step mode a
 * seed stands for an order of packets, which are those of the ring.
 */
static uint32_t
direct_from(void)
{
	const char *env = getenv("SOFT_MLX5_DIRECT");
	unsigned long n = env != NULL ? strtoul(env, NULL, 10) : 0;

	if (sm_progress_mode() == SM_PROGRESS_STEP || (env != NULL && strcmp(env, "off") == 0))
		return 0;
	if (n >= SM_DIRECT_LEAST && n <= SM_MSG_MAX && env[strspn(env, "0123456789")] == '\0')
		return (uint32_t)n;
	if (env != NULL && env[0] != '\0')
		sm_complain("SOFT_MLX5_DIRECT is '%s', not off or bytes from %u to %u", env,
			SM_DIRECT_LEAST, SM_MSG_MAX);
	return SM_DIRECT_DEFAULT;
}

static int
make_nic(struct uv_ctx *ctx, struct sm_nic **nic)
{
	const struct sm_port *port = sm_port((uint32_t)ctx->device);
	struct sm_nic_attr attr = {
		.net = ctx->net,
		.faults = getenv("SOFT_MLX5_FAULTS"),
		.udp_addr = port->addr,
		.direct = direct_from(),
		.mtu = port->mtu,
		.lid = sm_port(0)->lid,
		.pkeys = port->npkeys,
		.pkey_limited = sm_fabric()->pkeys,
		.flush_signalled = sm_fabric()->flush_signalled,
		.ethernet = port->ethernet,
		.grh_required = sm_fabric()->grh || sm_fabric()->roce,
		.device = (uint32_t)ctx->device,
		.devices = sm_ports(),
		.pcap = getenv("SOFT_MLX5_PCAP"),
		/* What makes the time of day of the clock that drives the NIC. */
		.pcap_epoch_ns = uv_clock_read(CLOCK_REALTIME) - uv_clock_read(CLOCK_MONOTONIC),
		.comp_event = uv_comp_event,
		.async_event = uv_async_event,
	};
	int err;

	if (port->udp && port->addr == 0)
		return EADDRNOTAVAIL; /* Which was said. */
	net_name(port, ctx->net, sizeof(ctx->net));
	memcpy(attr.gid, port->gid[0].raw, sizeof(attr.gid));
	for (uint32_t i = 0; i < port->ngids; i++) {
		if (port->gid[i].type == IBV_GID_TYPE_ROCE_V1)
			attr.roce_v1 |= 1u << i;
		memcpy(attr.gid_ipv4, port->gid[i].raw, sizeof(attr.gid_ipv4));
	}
	crpc_log_clear();
	err = sm_nic_create(&attr, nic);
	if (err != 0)
		sm_complain("cannot attach to net '%s': %s", attr.net,
			crpc_log_last()[0] != '\0' ? crpc_log_last() : strerror(err));
	ctx->nic_err = err;
	return err;
}

static int
check_context_req(const struct mlx5_ib_alloc_ucontext_req_v2 *req)
{
	/* Device commands by which libmlx5 would go round the verbs. It asks for them first and
	 * goes on without. */
	if ((req->flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0)
		return EPERM;
	if (req->comp_mask != 0 || (req->flags & ~(uint32_t)MLX5_IB_ALLOC_UCTX_DEVX) != 0)
		return sm_refuse(EOPNOTSUPP, "a context with flags 0x%x, comp_mask 0x%x",
				req->flags, req->comp_mask);
	if (req->max_cqe_version < 1 || (req->lib_caps & MLX5_LIB_CAP_DYN_UAR) == 0)
		return sm_refuse(EOPNOTSUPP, "a libmlx5 older than rdma-core 25 (no dynamic UARs)");
	return 0;
}

int
uv_get_context(struct uv_ctx *ctx, struct uv_call *call)
{
	struct ib_uverbs_get_context_resp *resp = uv_resp(call);
	struct mlx5_ib_alloc_ucontext_resp *drv = uv_drv_resp(call);
	struct sm_nic *nic;
	int err;

	*drv = (struct mlx5_ib_alloc_ucontext_resp){
		.response_length = (uint32_t)crpc_min(call->drv_room, sizeof(*drv)),
		.qp_tab_size = 1 << 17,
		.bf_reg_size = 512,
		/* none in advance: libmlx5 allocates UAR pages as objects */
		.tot_bfregs = 0,
		.cache_line_size = 64,
		.max_sq_desc_sz = 1024,
		.max_rq_desc_sz = 512,
		.max_send_wqebb = UV_WR_MAX,
		.max_recv_wr = UV_WR_MAX,
		.max_srq_recv_wr = UV_SRQ_WR_MAX,
		.num_ports = 1,
		.cqe_version = 1,
		.cmds_supp_uhw =
			MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
	};
	resp->num_comp_vectors = UV_COMP_VECTORS;
	if (uv_nic(ctx) != NULL)
		return EINVAL;
	/* libmlx5 repeats a request that fails in the form of an older kernel. */
	if (ctx->nic_err != 0)
		return ctx->nic_err;
	err = check_context_req(uv_drv_req(call));
	if (err == 0)
		err = uv_chan_create(SM_FILE_ASYNC, &ctx->async, &resp->async_fd);
	if (err != 0)
		return err;
	err = ctx->clock != NULL ? 0 : uv_clock_open(ctx);
	if (err == 0)
		err = make_nic(ctx, &nic);
	if (err != 0) {
		close((int)resp->async_fd);
		ctx->async = NULL;
		return err;
	}
	uv_chan_get(ctx->async);
	ctx->number = sm_step_number();
	crpc_store_release(&ctx->nic, nic); /* R3 */
	sm_progress_start();
	sm_control_open();
	return 0;
}

/* The last descriptor of the device node was closed: what the program did not destroy goes. */
static void
release_device(struct sm_file *file)
{
	struct uv_ctx *ctx = crpc_container_of(file, struct uv_ctx, file);
	struct uv_obj *obj;

	if (ctx->dead) /* Another thread may have been changing its objects at the fork. */
		return;
	pthread_mutex_lock(&ctx->lock);
	/* The helper may have found the context before it left the list. */
	pthread_mutex_lock(&sm_drive_lock);
	pthread_mutex_unlock(&sm_drive_lock);
	sm_ucx_forget(ctx);
	/* First the engine, which knows the objects and their memory. */
	if (uv_nic(ctx) != NULL) {
		sm_control_close();
		sm_nic_free(uv_nic(ctx));
	}
	while ((obj = uv_objs_at_or_after(&ctx->objs, 1)) != NULL)
		uv_obj_free(ctx, obj);
	free(ctx->objs.slot);
	if (ctx->clock != NULL)
		munmap(ctx->clock, UV_PAGE);
	if (ctx->async != NULL)
		uv_chan_put(ctx->async);
	pthread_mutex_unlock(&ctx->lock);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

static void
fork_child(void)
{
	struct sm_file *file;
	struct uv_ctx *ctx;

	LIST_FOREACH (file, &sm_files, link) {
		ctx = uv_ctx_of(file);
		if (file->kind == SM_FILE_CM)
			continue;
		if (ctx == NULL) {
			uv_chan_fork_child(crpc_container_of(file, struct uv_chan, file));
			continue;
		}
		pthread_mutex_init(&ctx->lock, NULL);
		if (!ctx->dead && uv_nic(ctx) != NULL)
			sm_nic_fork_child(uv_nic(ctx));
		ctx->dead = ctx->undriven = true;
	}
	sm_progress_fork_child();
	sm_ucx_fork_child();
	sm_control_fork_child();
	sm_files_fork_child();
	cm_fork_child();
}

static void
fork_prepare(void)
{
	pthread_mutex_lock(&cm_lock);
	pthread_mutex_lock(&sm_drive_lock); /* so that the helper thread is not inside a NIC */
	pthread_mutex_lock(&sm_files_lock);
}

static void
fork_parent(void)
{
	pthread_mutex_unlock(&sm_files_lock);
	pthread_mutex_unlock(&sm_drive_lock);
	pthread_mutex_unlock(&cm_lock);
}

static void
register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void
uv_fork_register(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork);
}

int
uv_open(int n, int flags)
{
	struct uv_ctx *ctx;
	int fd, err;

	uv_fork_register();
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL) {
		errno = ENOMEM;
		return -1;
	}
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->device = n;
	ctx->port.async = (struct uv_events){.ctx = ctx, .element = 1};
	ctx->undriven = sm_progress_mode() == SM_PROGRESS_STEP;
	ctx->file.kind = SM_FILE_DEVICE;
	ctx->file.release = release_device;
	/* What is mapped of it: the clock's pages, and behind them those of UARs as they come. */
	fd = memfd_create("soft_mlx5", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
	if (fd < 0)
		goto err_free;
	if (ftruncate(fd, (off_t)(UV_PAGE * (UV_PAGE_CLOCK_INFO + 1))) != 0)
		goto err_close;
	err = sm_file_add(&ctx->file, fd);
	if (err == 0)
		return fd;
	errno = err;

err_close:
	err = errno;
	close(fd);
	errno = err;
err_free:
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
	return -1;
}
