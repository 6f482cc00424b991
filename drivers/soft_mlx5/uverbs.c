/* SPDX-License-Identifier: BSD-3-Clause */

/* This file is long because it has the table of all commands and what it needs around it. */
#include "uverbs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "control.h"
#include "crpc_log.h"
#include "port.h"
#include "progress.h"
#include "say.h"
#include "sysfs.h"

#define ATTRS_MAX 64
#define EX(cmd)   (IB_USER_VERBS_CMD_FLAG_EXTENDED | (cmd))

/* ---- attributes of an ioctl ---- */

struct attrs {
	struct ib_uverbs_attr a[ATTRS_MAX];
	struct ib_uverbs_attr *user; /* results go there */
	uint16_t n;
};

static const struct ib_uverbs_attr *
find_attr(const struct attrs *set, uint16_t id)
{
	uint16_t i;

	for (i = 0; i < set->n; i++)
		if (set->a[i].attr_id == id)
			return &set->a[i];
	return NULL;
}

/* Values of up to 8 bytes stand in the attribute itself. */
static const void *
attr_in(const struct ib_uverbs_attr *attr, uint32_t *len)
{
	*len = attr != NULL ? attr->len : 0;
	if (attr == NULL || attr->len == 0)
		return NULL;
	return attr->len <= sizeof(attr->data) ? (const void *)&attr->data
					       : (const void *)(uintptr_t)attr->data;
}

static void *
attr_out(const struct ib_uverbs_attr *attr, uint32_t *len)
{
	*len = attr != NULL && attr->data != 0 ? attr->len : 0;
	return *len == 0 ? NULL : (void *)(uintptr_t)attr->data;
}

/* ---- answers ---- */

static void
copy_out(void *to, uint32_t room, const void *from, size_t len)
{
	size_t n = crpc_min(room, len);

	if (room == 0)
		return;
	memcpy(to, from, n);
	memset((char *)to + n, 0, room - n);
}

void
uv_reply(const struct uv_call *call, const void *resp, size_t len)
{
	copy_out(call->out, call->out_len, resp, len);
}

void
uv_reply_driver(const struct uv_call *call, const void *resp, size_t len)
{
	copy_out(call->uhw_out, call->uhw_out_len, resp, len);
}

int
uv_driver_req(const struct uv_call *call, void *req, size_t len, size_t min)
{
	if (call->uhw_in_len < min)
		return EINVAL;
	memset(req, 0, len);
	if (call->uhw_in_len > 0)
		memcpy(req, call->uhw_in, crpc_min(len, call->uhw_in_len));
	return 0;
}

struct sm_nic *
uv_nic(struct uv_ctx *ctx)
{
	return crpc_load_relaxed(&ctx->nic);
}

/* ---- context ---- */

/* The net; over UDP one for each address, since it numbers the contexts of that alone. */
static void
net_name(const struct sm_port *port, char *name, size_t size)
{
	const char *net = getenv("SOFT_MLX5_NET");
	uint32_t a = port->addr;

	snprintf(name, size, "%s", net != NULL && net[0] != '\0' ? net : "default");
	if (a != 0)
		snprintf(name + strlen(name), size - strlen(name), ".%u.%u.%u.%u", a >> 24,
				a >> 16 & 0xff, a >> 8 & 0xff, a & 0xff);
}

/* What makes the time of day of the clock that drives the NIC. */
static uint64_t
day_epoch(void)
{
	struct timespec day, run;

	clock_gettime(CLOCK_REALTIME, &day);
	clock_gettime(CLOCK_MONOTONIC, &run);
	return (uint64_t)(day.tv_sec - run.tv_sec) * 1000000000u +
			(uint64_t)(day.tv_nsec - run.tv_nsec);
}

uint32_t
uv_contexts(struct uv_ctx *list[SM_SLOTS])
{
	struct sm_file *file;
	struct uv_ctx *ctx;
	uint32_t i, n = 0;

	sm_files_lock();
	for (file = sm_files_first(); file != NULL && n < SM_SLOTS; file = file->next) {
		if (file->kind != SM_FILE_DEVICE)
			continue;
		ctx = crpc_container_of(file, struct uv_ctx, file);
		/* A3 pairs with R3 in get_context */
		if (ctx->dead || ctx->vanished || crpc_load_acquire(&ctx->nic) == NULL)
			continue;
		for (i = n++; i > 0 && list[i - 1]->number > ctx->number; i--)
			list[i] = list[i - 1];
		list[i] = ctx;
	}
	sm_files_unlock();
	return n;
}

/*
 * How payloads go straight from source to destination: words of SOFT_MLX5_DIRECT. In step mode a
 * seed stands for an order of packets, which are those of the ring.
 */
static void
direct_conf(struct sm_nic_attr *attr)
{
	const char *env = getenv("SOFT_MLX5_DIRECT"), *word = env != NULL ? env : "";
	size_t len;

	attr->direct = SM_DIRECT_DEFAULT;
	for (; *word != '\0'; word += len + (word[len] == ',')) {
		unsigned long n = strtoul(word, NULL, 10);

		len = strcspn(word, ",");
		if (len == 3 && memcmp(word, "off", len) == 0)
			attr->direct = 0;
		else if (len == 6 && memcmp(word, "kernel", len) == 0)
			attr->direct_kernel = true;
		else if (strspn(word, "0123456789") == len && n >= SM_DIRECT_LEAST &&
				n <= SM_MSG_MAX)
			attr->direct = (uint32_t)n;
		else
			sm_complain("SOFT_MLX5_DIRECT is '%s', not of: off, kernel, bytes "
				    "from %u to %u", env, SM_DIRECT_LEAST, SM_MSG_MAX);
	}
	if (sm_progress_is_step())
		attr->direct = 0;
}

static int
make_nic(struct uv_ctx *ctx, struct sm_nic **nic)
{
	const struct sm_port *port = sm_port((uint32_t)ctx->device);
	char net[256];
	struct sm_nic_attr attr = {
			.net = net,
			.faults = getenv("SOFT_MLX5_FAULTS"),
			.udp_addr = port->addr,
			.mtu = port->mtu,
			.device = (uint32_t)ctx->device,
			.devices = sm_ports(),
			.pcap = getenv("SOFT_MLX5_PCAP"),
			.pcap_epoch_ns = day_epoch(),
			.comp_event = uv_comp_event,
			.async_event = uv_async_event,
	};
	int err;

	if (port->ethernet && port->addr == 0)
		return EADDRNOTAVAIL; /* Which was said. */
	direct_conf(&attr);
	net_name(port, net, sizeof(net));
	memcpy(attr.gid, port->gid, sizeof(attr.gid));
	crpc_log_clear();
	err = sm_nic_create(&attr, nic);
	if (err == EADDRINUSE || err == EADDRNOTAVAIL)
		sm_complain("%s: cannot take a UDP port of RoCEv2 there: %s", port->netdev,
				strerror(err));
	else if (err == EEXIST)
		sm_complain("SOFT_MLX5_PCAP is '%s', which is there and is no capture of ours: "
			    "remove it", attr.pcap);
	else if (err == ENOSPC)
		sm_complain("net '%s': all %d places are taken by living processes; close some, or "
			    "use "
			    "another net (SOFT_MLX5_NET)",
				attr.net, SM_SLOTS);
	else if (err == EPROTO)
		sm_complain("net '%s' was made by another version of the library; end its "
			    "processes, "
			    "or use another net (SOFT_MLX5_NET)",
				attr.net);
	else if (err == EINVAL && attr.faults != NULL)
		sm_complain("SOFT_MLX5_FAULTS is '%s', not such as seed=1,drop=0.01,corrupt=0.01,"
			    "dup=0.01,delay=0.01,reorder=0.01,rnr=0.01",
				attr.faults);
	else if (err != 0)
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

static int
get_context(struct uv_ctx *ctx, struct uv_call *call)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req;
	struct mlx5_ib_alloc_ucontext_resp drv = {
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
			.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE |
					MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
			.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
			.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
			.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
			.log_uar_size = 12,
			.num_uars_per_page = 1,
	};
	struct ib_uverbs_get_context_resp resp = {.num_comp_vectors = UV_COMP_VECTORS};
	struct sm_nic *nic;
	int err, fd;

	if (uv_nic(ctx) != NULL)
		return EINVAL;
	/* libmlx5 repeats a request that fails in the form of an older kernel. */
	if (ctx->nic_err != 0)
		return ctx->nic_err;
	err = uv_driver_req(call, &req, sizeof(req), sizeof(struct mlx5_ib_alloc_ucontext_req));
	if (err == 0)
		err = check_context_req(&req);
	if (err == 0)
		err = uv_chan_create(SM_FILE_ASYNC, &ctx->async, &fd);
	if (err != 0)
		return err;
	err = ctx->clock != NULL ? 0 : uv_clock_open(ctx);
	if (err == 0)
		err = make_nic(ctx, &nic);
	if (err != 0) {
		close(fd);
		ctx->async = NULL;
		return err;
	}
	uv_chan_get(ctx->async);
	ctx->number = sm_step_number();
	net_name(sm_port((uint32_t)ctx->device), ctx->net, sizeof(ctx->net));
	crpc_store_release(&ctx->nic, nic); /* R3 */
	sm_progress_start();
	sm_control_open();
	drv.response_length = (uint32_t)crpc_min(call->uhw_out_len, sizeof(drv));
	resp.async_fd = (uint32_t)fd;
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

static void
free_obj(struct uv_ctx *ctx, struct uv_obj *obj)
{
	struct uv_cq *cq;

	if (obj->type == UV_CQ) {
		cq = crpc_container_of(obj, struct uv_cq, obj);
		if (cq->chan != NULL)
			uv_chan_put(cq->chan);
	} else if (obj->type == UV_UAR) {
		munmap(crpc_container_of(obj, struct uv_uar, obj)->page, UV_PAGE);
	}
	uv_objs_del(&ctx->objs, obj);
	free(obj); /* obj is the first member of each kind */
}

/* The last descriptor of the device node was closed: what the program did not destroy goes. */
static void
release_device(struct sm_file *file)
{
	struct uv_ctx *ctx = crpc_container_of(file, struct uv_ctx, file);
	struct uv_obj *obj;

	if (ctx->dead) { /* Another thread may have been changing its objects at the fork. */
		if (uv_nic(ctx) != NULL)
			sm_nic_free(uv_nic(ctx));
		return;
	}
	pthread_mutex_lock(&ctx->lock);
	/* The helper may have found the context before it left the list. */
	sm_drive_lock();
	sm_drive_unlock();
	/* First the engine, which knows the objects and their memory. */
	if (uv_nic(ctx) != NULL) {
		sm_control_close();
		sm_nic_free(uv_nic(ctx));
	}
	while ((obj = uv_objs_at_or_after(&ctx->objs, 1)) != NULL)
		free_obj(ctx, obj);
	uv_objs_fini(&ctx->objs);
	uv_clock_close(ctx);
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

	for (file = sm_files_first(); file != NULL; file = file->next) {
		if (file->kind != SM_FILE_DEVICE) {
			uv_chan_fork_child(crpc_container_of(file, struct uv_chan, file));
			continue;
		}
		ctx = crpc_container_of(file, struct uv_ctx, file);
		pthread_mutex_init(&ctx->lock, NULL);
		if (!ctx->dead && uv_nic(ctx) != NULL)
			sm_nic_fork_child(uv_nic(ctx));
		ctx->dead = ctx->undriven = true;
	}
	sm_progress_fork_child();
	sm_control_fork_child();
	sm_files_fork_child();
}

static void
fork_prepare(void)
{
	sm_drive_lock(); /* so that the helper thread is not inside a NIC */
	sm_files_lock();
}

static void
fork_parent(void)
{
	sm_files_unlock();
	sm_drive_unlock();
}

static void
register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int
uv_open(int n, int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct uv_ctx *ctx;
	int fd, err;

	pthread_once(&once, register_fork);
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL) {
		errno = ENOMEM;
		return -1;
	}
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->device = n;
	ctx->undriven = sm_progress_is_step();
	ctx->file.kind = SM_FILE_DEVICE;
	ctx->file.release = release_device;
	/* Page 0 of the file stays unused, so that no UAR has offset or number 0. */
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

int
uv_device_number(struct sm_file *file)
{
	return crpc_container_of(file, struct uv_ctx, file)->device;
}

/* ---- UAR pages: pages of the device node's memfd, mapped by the program and by us ---- */

static int
map_uar(struct uv_ctx *ctx, struct uv_uar *uar)
{
	int err;

	uar->page = mmap(NULL, UV_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->fd,
			(off_t)uar->page_id * UV_PAGE);
	if (uar->page == MAP_FAILED)
		return errno;
	memset(uar->page, 0, UV_PAGE);
	madvise(uar->page, UV_PAGE, MADV_DONTFORK);
	err = sm_uar_add(uv_nic(ctx), uar->page_id, uar->page);
	if (err == 0)
		err = uv_objs_add(&ctx->objs, &uar->obj, UV_UAR);
	else
		goto err_unmap;
	if (err == 0)
		return 0;
	sm_uar_del(uv_nic(ctx), uar->page_id);

err_unmap:
	munmap(uar->page, UV_PAGE);
	return err;
}

static int
alloc_uar_page(struct uv_ctx *ctx, struct uv_uar *uar)
{
	uint32_t i = ctx->uar_next;
	int err;

	if (ctx->uars == UV_UARS_MAX)
		return ENOMEM; /* as firmware without free UARs */
	while (ctx->uar_used[i])
		i = (i + 1) % UV_UARS_MAX;
	uar->page_id = i + 1;
	err = map_uar(ctx, uar);
	if (err != 0)
		return err;
	ctx->uar_used[i] = true;
	ctx->uar_next = (i + 1) % UV_UARS_MAX;
	ctx->uars++;
	return 0;
}

static bool
put_attr(const struct attrs *set, uint16_t id, const void *value, uint32_t size)
{
	const struct ib_uverbs_attr *attr = find_attr(set, id);
	uint32_t room;
	void *to = attr_out(attr, &room);

	if (to == NULL || room < size)
		return false;
	memcpy(to, value, size);
	set->user[attr - set->a].flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return true;
}

static int
uar_alloc(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *handle = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	const struct ib_uverbs_attr *type = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
	uint64_t offset = 0;
	uint32_t length = UV_PAGE, id = 0;
	struct uv_uar *uar;
	int err;

	if (uv_nic(ctx) == NULL || handle == NULL || type == NULL || type->len > sizeof(type->data))
		return EINVAL;
	if ((uint32_t)type->data > 1) /* 0: BlueFlame, 1: no write combining; memory is memory */
		return sm_refuse(EOPNOTSUPP, "a UAR page of type %u", (uint32_t)type->data);
	/* Before anything is made: is there room for the answer? */
	if (!put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset)) ||
			!put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length,
					sizeof(length)) ||
			!put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &id, sizeof(id)))
		return EINVAL;
	uar = calloc(1, sizeof(*uar));
	if (uar == NULL)
		return ENOMEM;
	err = alloc_uar_page(ctx, uar);
	if (err != 0) {
		free(uar);
		return err;
	}
	offset = (uint64_t)uar->page_id * UV_PAGE;
	put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset));
	put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar->page_id, sizeof(uar->page_id));
	set->user[handle - set->a].data = uar->obj.handle;
	return 0;
}

static int
uar_destroy(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *handle = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
	struct uv_uar *uar;
	int err;

	if (handle == NULL)
		return EINVAL;
	uar = uv_get(ctx, (uint32_t)handle->data, UV_UAR, uv_uar);
	if (uar == NULL)
		return ENOENT;
	/* Not while a queue pair rings there: EBUSY. */
	err = sm_uar_del(uv_nic(ctx), uar->page_id);
	if (err != 0)
		return err;
	ctx->uar_used[uar->page_id - 1] = false;
	ctx->uars--;
	free_obj(ctx, &uar->obj);
	return 0;
}

/* ---- the GID table: one entry, the others are empty ---- */

static uint64_t
attr_value(const struct attrs *set, uint16_t id)
{
	const struct ib_uverbs_attr *attr = find_attr(set, id);

	return attr != NULL && attr->len <= sizeof(attr->data) ? attr->data : 0;
}

static struct ib_uverbs_gid_entry
gid_entry(const struct uv_ctx *ctx)
{
	const struct sm_port *port = sm_port((uint32_t)ctx->device);
	struct ib_uverbs_gid_entry entry = {.port_num = 1,
			.gid_type = port->ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
			.netdev_ifindex = port->ifindex};

	memcpy(entry.gid, port->gid, sizeof(port->gid));
	return entry;
}

static int
query_gid_table(struct uv_ctx *ctx, const struct attrs *set)
{
	struct ib_uverbs_gid_entry entry = gid_entry(ctx);
	uint64_t size = attr_value(set, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE), n = 1;

	if (size != sizeof(entry) ||
			(uint32_t)attr_value(set, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) != 0)
		return EINVAL;
	return put_attr(set, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &entry, sizeof(entry)) &&
					put_attr(set, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES,
							&n, sizeof(n))
			? 0
			: EINVAL;
}

static int
query_gid_entry(struct uv_ctx *ctx, const struct attrs *set)
{
	struct ib_uverbs_gid_entry entry = gid_entry(ctx);
	uint32_t index = (uint32_t)attr_value(set, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);

	if ((uint32_t)attr_value(set, UVERBS_ATTR_QUERY_GID_ENTRY_PORT) != 1 ||
			index >= SM_GIDS ||
			(uint32_t)attr_value(set, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0)
		return EINVAL;
	if (index != 0)
		return ENODATA;
	return put_attr(set, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof(entry))
			? 0
			: EINVAL;
}

/* ---- dispatch ---- */

struct uv_cmd {
	uint32_t cmd;
	uint16_t req_min;
	uint16_t resp_min;
	uv_cmd_fn fn; /* NULL: refused by name */
	const char *name;
};

#define CMD(nr, req, resp, fn)                                                                     \
	{                                                                                          \
		nr, sizeof(req), sizeof(resp), fn, &#nr[sizeof("IB_USER_VERBS_CMD")]               \
	}
#define REFUSED(nr)                                                                                \
	{                                                                                          \
		nr, 0, 0, NULL, &#nr[sizeof("IB_USER_VERBS_CMD")]                                  \
	}

struct uv_nothing {
	char none[0];
};

static const struct uv_cmd commands[] = {
		CMD(IB_USER_VERBS_CMD_GET_CONTEXT, struct ib_uverbs_get_context,
				struct ib_uverbs_get_context_resp, get_context),
		CMD(IB_USER_VERBS_CMD_QUERY_DEVICE, struct ib_uverbs_query_device,
				struct ib_uverbs_query_device_resp, uv_query_device),
		CMD(IB_USER_VERBS_CMD_QUERY_PORT, struct ib_uverbs_query_port,
				struct ib_uverbs_query_port_resp, uv_query_port),
		CMD(IB_USER_VERBS_CMD_ALLOC_PD, struct ib_uverbs_alloc_pd,
				struct ib_uverbs_alloc_pd_resp, uv_alloc_pd),
		CMD(IB_USER_VERBS_CMD_DEALLOC_PD, struct ib_uverbs_dealloc_pd, struct uv_nothing,
				uv_dealloc_pd),
		CMD(IB_USER_VERBS_CMD_REG_MR, struct ib_uverbs_reg_mr, struct ib_uverbs_reg_mr_resp,
				uv_reg_mr),
		CMD(IB_USER_VERBS_CMD_ALLOC_MW, struct ib_uverbs_alloc_mw,
				struct ib_uverbs_alloc_mw_resp, uv_alloc_mw),
		CMD(IB_USER_VERBS_CMD_DEALLOC_MW, struct ib_uverbs_dealloc_mw, struct uv_nothing,
				uv_dealloc_mw),
		CMD(IB_USER_VERBS_CMD_REREG_MR, struct ib_uverbs_rereg_mr,
				struct ib_uverbs_rereg_mr_resp, uv_rereg_mr),
		CMD(IB_USER_VERBS_CMD_DEREG_MR, struct ib_uverbs_dereg_mr, struct uv_nothing,
				uv_dereg_mr),
		CMD(IB_USER_VERBS_CMD_CREATE_AH, struct ib_uverbs_create_ah,
				struct ib_uverbs_create_ah_resp, uv_create_ah),
		CMD(IB_USER_VERBS_CMD_DESTROY_AH, struct ib_uverbs_destroy_ah, struct uv_nothing,
				uv_destroy_ah),
		CMD(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, struct ib_uverbs_create_comp_channel,
				struct ib_uverbs_create_comp_channel_resp, uv_create_comp_channel),
		CMD(IB_USER_VERBS_CMD_CREATE_CQ, struct ib_uverbs_create_cq,
				struct ib_uverbs_create_cq_resp, uv_create_cq),
		CMD(IB_USER_VERBS_CMD_RESIZE_CQ, struct ib_uverbs_resize_cq,
				struct ib_uverbs_resize_cq_resp, uv_resize_cq),
		CMD(IB_USER_VERBS_CMD_DESTROY_CQ, struct ib_uverbs_destroy_cq,
				struct ib_uverbs_destroy_cq_resp, uv_destroy_cq),
		CMD(IB_USER_VERBS_CMD_CREATE_SRQ, struct ib_uverbs_create_srq,
				struct ib_uverbs_create_srq_resp, uv_create_srq),
		CMD(IB_USER_VERBS_CMD_MODIFY_SRQ, struct ib_uverbs_modify_srq, struct uv_nothing,
				uv_modify_srq),
		CMD(IB_USER_VERBS_CMD_QUERY_SRQ, struct ib_uverbs_query_srq,
				struct ib_uverbs_query_srq_resp, uv_query_srq),
		CMD(IB_USER_VERBS_CMD_DESTROY_SRQ, struct ib_uverbs_destroy_srq,
				struct ib_uverbs_destroy_srq_resp, uv_destroy_srq),
		CMD(IB_USER_VERBS_CMD_CREATE_QP, struct ib_uverbs_create_qp,
				struct ib_uverbs_create_qp_resp, uv_create_qp),
		CMD(IB_USER_VERBS_CMD_MODIFY_QP, struct ib_uverbs_modify_qp, struct uv_nothing,
				uv_modify_qp),
		CMD(IB_USER_VERBS_CMD_QUERY_QP, struct ib_uverbs_query_qp,
				struct ib_uverbs_query_qp_resp, uv_query_qp),
		CMD(IB_USER_VERBS_CMD_DESTROY_QP, struct ib_uverbs_destroy_qp,
				struct ib_uverbs_destroy_qp_resp, uv_destroy_qp),
		{EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), sizeof(struct ib_uverbs_ex_query_device),
				offsetof(struct ib_uverbs_ex_query_device_resp, odp_caps),
				uv_query_device_ex, "QUERY_DEVICE_EX"},
		{EX(IB_USER_VERBS_EX_CMD_CREATE_CQ), sizeof(struct ib_uverbs_ex_create_cq),
				sizeof(struct ib_uverbs_ex_create_cq_resp), uv_create_cq_ex,
				"CREATE_CQ_EX"},
		{EX(IB_USER_VERBS_EX_CMD_CREATE_QP),
				offsetof(struct ib_uverbs_ex_create_qp, create_flags),
				offsetof(struct ib_uverbs_ex_create_qp_resp, comp_mask),
				uv_create_qp_ex, "CREATE_QP_EX"},
		{EX(IB_USER_VERBS_EX_CMD_MODIFY_QP), sizeof(struct ib_uverbs_modify_qp), 0,
				uv_modify_qp_ex, "MODIFY_QP_EX"},
		REFUSED(IB_USER_VERBS_CMD_ATTACH_MCAST),
		REFUSED(IB_USER_VERBS_CMD_DETACH_MCAST),
		REFUSED(IB_USER_VERBS_CMD_OPEN_XRCD),
		REFUSED(IB_USER_VERBS_CMD_CLOSE_XRCD),
		REFUSED(IB_USER_VERBS_CMD_CREATE_XSRQ),
		REFUSED(IB_USER_VERBS_CMD_OPEN_QP),
		{EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW), 0, 0, NULL, "CREATE_FLOW"},
		{EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), 0, 0, NULL, "CREATE_WQ"},
		{EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), 0, 0, NULL, "CREATE_RWQ_IND_TBL"},
		{EX(IB_USER_VERBS_EX_CMD_MODIFY_CQ), 0, 0, NULL, "MODIFY_CQ"},
};

static const struct uv_cmd *
find_command(uint32_t cmd)
{
	size_t i;

	for (i = 0; i < CRPC_DIM(commands); i++)
		if (commands[i].cmd == cmd)
			return &commands[i];
	return NULL;
}

static int
run_command(struct uv_ctx *ctx, const struct uv_cmd *cmd, const struct attrs *set)
{
	const void *in;
	struct uv_call call;

	memset(&call, 0, sizeof(call));
	in = attr_in(find_attr(set, UVERBS_ATTR_CORE_IN), &call.req_len);
	call.out = attr_out(find_attr(set, UVERBS_ATTR_CORE_OUT), &call.out_len);
	call.uhw_in = attr_in(find_attr(set, UVERBS_ATTR_UHW_IN), &call.uhw_in_len);
	call.uhw_out = attr_out(find_attr(set, UVERBS_ATTR_UHW_OUT), &call.uhw_out_len);
	/* libibverbs asks without buffers whether commands can come this way, and takes any answer
	 * but EPROTONOSUPPORT for yes. */
	if (call.req_len < cmd->req_min || call.out_len < cmd->resp_min)
		return ENOSPC;
	if (in != NULL)
		memcpy(call.req.bytes, in, crpc_min(call.req_len, sizeof(call.req.bytes)));
	if (uv_nic(ctx) == NULL && cmd->fn != get_context)
		return EINVAL;
	return cmd->fn(ctx, &call);
}

static int
invoke_write(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *nr = find_attr(set, UVERBS_ATTR_WRITE_CMD);
	const struct uv_cmd *cmd;
	int err;

	if (nr == NULL || nr->len > sizeof(nr->data))
		return EINVAL;
	cmd = find_command((uint32_t)nr->data);
	if (cmd == NULL)
		return sm_refuse(EOPNOTSUPP, "uverbs command 0x%x", (uint32_t)nr->data);
	if (cmd->fn == NULL)
		return sm_refuse(EOPNOTSUPP, "uverbs command %s", cmd->name);
	err = run_command(ctx, cmd, set);
	if (sm_tracing())
		sm_trace("fd %d %s: %s", ctx->fd, cmd->name, err == 0 ? "ok" : strerror(err));
	return err;
}

/* Methods that libibverbs and libmlx5 try first by routine and have another way for: a kernel that
 * lacks them says EPROTONOSUPPORT too, and nobody is to be told. */
static bool
is_probe(uint16_t object, uint16_t method)
{
	switch (object) {
	case UVERBS_OBJECT_DEVICE:
		return method != UVERBS_METHOD_QUERY_CONTEXT;
	case UVERBS_OBJECT_PD:
	case UVERBS_OBJECT_CQ:
	case UVERBS_OBJECT_QP:
	case UVERBS_OBJECT_SRQ:
	case UVERBS_OBJECT_AH:
		return method <= 1;
	case UVERBS_OBJECT_MR:
		return method == UVERBS_METHOD_MR_DESTROY;
	case UVERBS_OBJECT_MW:
		return method == UVERBS_METHOD_MW_DESTROY;
	case MLX5_IB_OBJECT_DEVX:
		return method == MLX5_IB_METHOD_DEVX_OTHER;
	case MLX5_IB_OBJECT_VAR:
		return method == MLX5_IB_METHOD_VAR_OBJ_ALLOC;
	default:
		return false;
	}
}

static int
dispatch(struct uv_ctx *ctx, const struct ib_uverbs_ioctl_hdr *hdr, const struct attrs *set)
{
	if (hdr->object_id == UVERBS_OBJECT_DEVICE && hdr->method_id == UVERBS_METHOD_INVOKE_WRITE)
		return invoke_write(ctx, set);
	if (hdr->object_id == MLX5_IB_OBJECT_UAR && hdr->method_id == MLX5_IB_METHOD_UAR_OBJ_ALLOC)
		return uar_alloc(ctx, set);
	if (hdr->object_id == MLX5_IB_OBJECT_UAR &&
			hdr->method_id == MLX5_IB_METHOD_UAR_OBJ_DESTROY)
		return uar_destroy(ctx, set);
	if (hdr->object_id == UVERBS_OBJECT_DEVICE &&
			hdr->method_id == UVERBS_METHOD_QUERY_GID_TABLE)
		return query_gid_table(ctx, set);
	if (hdr->object_id == UVERBS_OBJECT_DEVICE &&
			hdr->method_id == UVERBS_METHOD_QUERY_GID_ENTRY)
		return query_gid_entry(ctx, set);
	if (sm_tracing())
		sm_trace("fd %d method 0x%x/0x%x: none", ctx->fd, hdr->object_id, hdr->method_id);
	if (!is_probe(hdr->object_id, hdr->method_id))
		return sm_refuse(EPROTONOSUPPORT, "uverbs object 0x%x, method 0x%x", hdr->object_id,
				hdr->method_id);
	return EPROTONOSUPPORT;
}

int
uv_ioctl(struct sm_file *file, int fd, const void *arg)
{
	struct uv_ctx *ctx = crpc_container_of(file, struct uv_ctx, file);
	struct ib_uverbs_ioctl_hdr hdr;
	struct attrs set;
	int err;

	if (arg == NULL)
		return EFAULT;
	memcpy(&hdr, arg, sizeof(hdr));
	if (hdr.reserved1 != 0 || hdr.reserved2 != 0)
		return EPROTONOSUPPORT;
	if (hdr.num_attrs > ATTRS_MAX ||
			hdr.length != sizeof(hdr) + hdr.num_attrs * sizeof(struct ib_uverbs_attr))
		return EINVAL;
	set.n = hdr.num_attrs;
	set.user = (struct ib_uverbs_attr *)((uintptr_t)arg + sizeof(hdr));
	memcpy(set.a, set.user, set.n * sizeof(set.a[0]));

	pthread_mutex_lock(&ctx->lock);
	ctx->fd = fd;
	err = ctx->dead ? EIO : dispatch(ctx, &hdr, &set);
	pthread_mutex_unlock(&ctx->lock);
	return err;
}
