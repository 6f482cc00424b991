/* SPDX-License-Identifier: BSD-3-Clause */

/* What comes by ioctl: its attributes, the tables of methods and commands, objects and handles. */
#include "uverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "fabric.h"
#include "say.h"
#include "sysfs.h"

#define ATTRS_MAX 64

/* ---- attributes of an ioctl ---- */

struct attrs {
	struct ib_uverbs_attr a[ATTRS_MAX];
	struct ib_uverbs_attr *user; /* results go there */
	uint16_t n;
};

static const struct ib_uverbs_attr *
find_attr(const struct attrs *set, uint16_t id)
{
	for (uint16_t i = 0; i < set->n; i++)
		if (set->a[i].attr_id == id)
			return &set->a[i];
	return NULL;
}

static uint64_t
attr_value(const struct attrs *set, uint16_t id)
{
	const struct ib_uverbs_attr *attr = find_attr(set, id);

	return attr != NULL && attr->len <= sizeof(attr->data) ? attr->data : 0;
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

/* As much as the program has room for, the rest of its room zero. */
static void
copy_out(void *to, uint32_t room, const union uv_bytes *from, size_t len)
{
	size_t n = crpc_min(room, len);

	if (room == 0)
		return;
	memcpy(to, from->at, n);
	memset((char *)to + n, 0, room - n);
}

static void
copy_in(union uv_bytes *to, const void *from, size_t len)
{
	if (from != NULL)
		memcpy(to->at, from, crpc_min(len, sizeof(to->at)));
}

void
uv_req_both(const struct uv_call *call, void *req, size_t len, size_t common)
{
	bool ex = (call->cmd->nr & UV_EX) != 0;

	memset(req, 0, len);
	memcpy(req, call->req.at + (ex ? 0 : sizeof(uint64_t)), ex ? len : common);
}

/* ---- objects ---- */

/* An object of @size bytes, zero, with a handle; NULL: see errno. */
static void *
obj_new(struct uv_ctx *ctx, enum uv_type type, size_t size)
{
	struct uv_obj *obj = calloc(1, size);
	int err = obj == NULL ? ENOMEM : uv_objs_add(&ctx->objs, obj, type);

	if (err == 0)
		return obj;
	free(obj);
	errno = err;
	return NULL;
}

/* Not inline: the compiler knows the size of a caller's object, and not that its type decides. */
crpc_noinline void
uv_obj_free(struct uv_ctx *ctx, struct uv_obj *obj)
{
	struct uv_cq *cq = (void *)obj;
	struct uv_uar *uar = (void *)obj;

	if (obj->type == UV_CQ && cq->chan != NULL)
		uv_chan_put(cq->chan);
	if (obj->type == UV_UAR && uar->page != NULL)
		munmap(uar->page, UV_PAGE);
	uv_objs_del(&ctx->objs, obj);
	free(obj);
}

int
uv_destroy(struct uv_ctx *ctx, struct uv_call *call)
{
	struct uv_obj *obj = call->obj;
	struct uv_cq *cq = (void *)obj;
	uint32_t *events = uv_resp(call);
	int err = sm_destroy(uv_nic(ctx), obj->any);

	if (err != 0)
		return err;
	if (obj->type == UV_CQ)
		*events++ = uv_events_read(cq->chan, &cq->comp);
	if (call->cmd->resp_min != 0)
		*events = uv_events_read(ctx->async, &cq->queue.async);
	uv_obj_free(ctx, obj);
	return 0;
}

/* ---- UAR pages: pages of the device node's memfd, mapped by the program and by us ---- */

static int
alloc_uar_page(struct uv_ctx *ctx, struct uv_uar *uar)
{
	uar->page_id = (uint32_t)UV_PAGE_UARS + uar->obj.handle;
	if (ftruncate(ctx->fd, (off_t)(UV_PAGE * (UV_PAGE_UARS + ctx->objs.size))) != 0)
		return errno;
	uar->page = uv_page_map(ctx, uar->page_id);
	if (uar->page == NULL)
		return errno;
	memset(uar->page, 0, UV_PAGE);
	return sm_uar_add(uv_nic(ctx), uar->page_id, uar->page, &uar->obj.uar);
}

/* Answers in an attribute: 0, or EINVAL where there is no room for it. */
static int
put_attr(const struct attrs *set, uint16_t id, const void *value, uint32_t size)
{
	const struct ib_uverbs_attr *attr = find_attr(set, id);
	uint32_t room;
	void *to = attr_out(attr, &room);

	if (to == NULL || room < size)
		return EINVAL;
	memcpy(to, value, size);
	set->user[attr - set->a].flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}

/* Not while a queue pair rings there: EBUSY. */
static int
uar_free(struct uv_ctx *ctx, struct uv_uar *uar)
{
	int err = sm_destroy(uv_nic(ctx), uar->obj.uar);

	if (err == 0)
		uv_obj_free(ctx, &uar->obj);
	return err;
}

static int
uar_alloc(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *handle = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	const struct ib_uverbs_attr *type = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
	uint32_t length = UV_PAGE;
	uint64_t offset;
	struct uv_uar *uar;
	int err;

	if (uv_nic(ctx) == NULL || handle == NULL || type == NULL || type->len > sizeof(type->data))
		return EINVAL;
	if ((uint32_t)type->data > 1) /* 0: BlueFlame, 1: no write combining; memory is memory */
		return sm_refuse(EOPNOTSUPP, "a UAR page of type %u", (uint32_t)type->data);
	uar = obj_new(ctx, UV_UAR, sizeof(*uar));
	if (uar == NULL)
		return errno;
	err = alloc_uar_page(ctx, uar);
	if (err != 0) {
		uv_obj_free(ctx, &uar->obj);
		return err;
	}
	offset = (uint64_t)uar->page_id * UV_PAGE;
	if (put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset)) != 0 ||
		put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof(length)) !=
			0 ||
		put_attr(set, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar->page_id,
			sizeof(uar->page_id)) != 0) {
		uar_free(ctx, uar);
		return EINVAL;
	}
	set->user[handle - set->a].data = uar->obj.handle;
	return 0;
}

static int
uar_destroy(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *handle = find_attr(set, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
	struct uv_uar *uar;

	if (handle == NULL)
		return EINVAL;
	uar = uv_get(ctx, (uint32_t)handle->data, UV_UAR);
	return uar != NULL ? uar_free(ctx, uar) : ENOENT;
}

/* ---- device commands: firmware's layout, of which fields are named as in mlx5_ifc.h ---- */

#define CMD_QUERY_HCA_CAP 0x100
#define CMD_RTS2RTS_QP    0x505

/* What rdma-core asks for: general, ODP, atomic, RoCE, QoS, crypto, general 2. */
#define HCA_CAP_GROUPS (UINT64_C(0x1d) | 1u << 0xc | 1u << 0x1a | UINT64_C(1) << 0x20)

#define LOG_RD_ATOM 4
_Static_assert(UV_RD_ATOM_MAX == 1 << LOG_RD_ATOM, "log_max_ra");

/* What there is of the general group; of the others there is nothing. */
static const uint8_t hca_caps[] = {
	[0x24] = 0x20,        /* qpc_extension */
	[0x25] = LOG_RD_ATOM, /* log_max_ra_req_dc */
	[0x27] = LOG_RD_ATOM, /* log_max_ra_res_dc */
	[0x29] = LOG_RD_ATOM, /* log_max_ra_req_qp */
	[0x2b] = LOG_RD_ATOM, /* log_max_ra_res_qp */
	[0x37] = 1,           /* num_ports */
	[0x3f] = 1,           /* cqe_version */
	[0x43] = 0x22,        /* dct, atomic */
	[0x47] = 7,           /* ud, uc, rc */
};

/* A field of whole bytes of a command. */
static uint64_t
cmd_field(const union uv_bytes *cmd, size_t at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | cmd->at[at + i];
	return value;
}

static uint32_t
cmd_read(const struct attrs *set, uint16_t id, union uv_bytes *cmd)
{
	uint32_t len;
	const void *from = attr_in(find_attr(set, id), &len);

	memset(cmd, 0, sizeof(*cmd));
	copy_in(cmd, from, len);
	return (uint32_t)cmd_field(cmd, 0, 2);
}

/* As a kernel, which lets a context without DEVX ask for capabilities. */
static int
devx_other(struct uv_ctx *ctx, const struct attrs *set)
{
	const struct ib_uverbs_attr *out = find_attr(set, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
	uint8_t answer[16 + 4096] = {0}; /* Status and syndrome, and a group. */
	union uv_bytes cmd;
	uint32_t opcode = cmd_read(set, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, &cmd);
	uint64_t group = cmd_field(&cmd, 6, 2) >> 1; /* op_mod; the last bit: of now, or at most */

	(void)ctx;
	if (opcode != CMD_QUERY_HCA_CAP)
		return sm_refuse(EOPNOTSUPP, "device command 0x%x", opcode);
	if (group >= 64 || (HCA_CAP_GROUPS >> group & 1) == 0)
		return sm_refuse(EOPNOTSUPP, "QUERY_HCA_CAP of group 0x%x", (uint32_t)group);
	if (group == 0)
		memcpy(answer + 16, hca_caps, sizeof(hca_caps));
	return out == NULL ? EINVAL
			   : put_attr(set, out->attr_id, answer,
				     (uint32_t)crpc_min(out->len, sizeof(answer)));
}

/* Of commands about objects there is one, mlx5dv_dci_stream_id_reset(), DEVX or not. */
static int
devx_modify(struct uv_ctx *ctx, const struct attrs *set)
{
	uint32_t handle = (uint32_t)attr_value(set, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
	const struct uv_qp *qp = uv_get(ctx, handle, UV_QP);
	union uv_bytes cmd;
	uint32_t opcode = cmd_read(set, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, &cmd);

	/* qpc_ext, opt_param_mask, opt_param_mask_95_32: dci_stream_channel_id alone. */
	if (opcode != CMD_RTS2RTS_QP || cmd.at[8] != 0x80 || cmd_field(&cmd, 0x10, 4) != 0 ||
		cmd_field(&cmd, 0x108, 8) != 1)
		return sm_refuse(EOPNOTSUPP, "device command 0x%x about an object", opcode);
	if (qp == NULL || cmd_field(&cmd, 9, 3) != qp->qpn)
		return EINVAL;
	return sm_dci_stream_reset(
		uv_nic(ctx), qp->queue.obj.qp, (uint32_t)cmd_field(&cmd, 0x112, 2));
}

/* ---- dispatch ---- */

#define REFUSED(NR)    IB_USER_VERBS_CMD_##NR, 0, 0, #NR
#define REFUSED_EX(NR) UV_EX | IB_USER_VERBS_EX_CMD_##NR, 0, 0, #NR

static const struct uv_cmd refused[] = {
	{REFUSED(ATTACH_MCAST)},
	{REFUSED(DETACH_MCAST)},
	{REFUSED(OPEN_XRCD)},
	{REFUSED(CLOSE_XRCD)},
	{REFUSED(CREATE_XSRQ)},
	{REFUSED(OPEN_QP)},
	{REFUSED_EX(CREATE_FLOW)},
	{REFUSED_EX(CREATE_WQ)},
	{REFUSED_EX(CREATE_RWQ_IND_TBL)},
	{REFUSED_EX(MODIFY_CQ)},
	{0},
};

static const struct uv_cmd *
find_command(uint32_t nr)
{
	static const struct uv_cmd *const tables[] = {
		uv_device_commands, uv_object_commands, uv_queue_commands, refused};

	for (uint32_t i = 0; i < CRPC_DIM(tables); i++)
		for (const struct uv_cmd *cmd = tables[i]; cmd->name != NULL; cmd++)
			if (cmd->nr == nr)
				return cmd;
	return NULL;
}

/* The object that a command is about, and the one that it makes. */
static int
call_objects(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct uv_cmd *cmd = call->cmd;
	uint32_t handle;

	if (cmd->type != 0) {
		memcpy(&handle, call->req.at + cmd->handle_at, sizeof(handle));
		call->obj = uv_get(ctx, handle, cmd->type);
		if (call->obj == NULL) /* As the kernel: what cannot be written is not there. */
			return cmd->fn == uv_destroy ? ENOENT : EINVAL;
	}
	if (cmd->makes != 0) {
		call->made = obj_new(ctx, cmd->makes, cmd->size);
		if (call->made == NULL)
			return errno;
	}
	return 0;
}

static int
run_command(struct uv_ctx *ctx, const struct uv_cmd *cmd, const struct attrs *set)
{
	struct uv_call call = {.cmd = cmd};
	const struct uv_obj *made;
	uint32_t req_len, drv_len;
	const void *req = attr_in(find_attr(set, UVERBS_ATTR_CORE_IN), &req_len);
	const void *drv_req = attr_in(find_attr(set, UVERBS_ATTR_UHW_IN), &drv_len);
	void *resp = attr_out(find_attr(set, UVERBS_ATTR_CORE_OUT), &call.resp_room);
	void *drv_resp = attr_out(find_attr(set, UVERBS_ATTR_UHW_OUT), &call.drv_room);
	int err;

	/* libibverbs asks without buffers whether commands can come this way, and takes any answer
	 * but EPROTONOSUPPORT for yes. */
	if (req_len < cmd->req_min || call.resp_room < cmd->resp_min)
		return ENOSPC;
	if (drv_len < cmd->drv_min || (uv_nic(ctx) == NULL && cmd->fn != uv_get_context))
		return EINVAL;
	copy_in(&call.req, req, req_len);
	copy_in(&call.drv_req, drv_req, crpc_min(drv_len, cmd->drv_len));
	err = call_objects(ctx, &call);
	if (err == 0)
		err = cmd->fn(ctx, &call);
	made = call.made;
	if (err != 0 && made != NULL)
		uv_obj_free(ctx, call.made);
	if (err != 0)
		return err;
	if (made != NULL) /* With its handle each such answer begins. */
		memcpy(call.resp.at, &made->handle, sizeof(made->handle));
	copy_out(resp, call.resp_room, &call.resp,
		(cmd->nr & UV_EX) != 0 ? sizeof(call.resp) : cmd->resp_min);
	if (call.drv_answers)
		copy_out(drv_resp, call.drv_room, &call.drv_resp, sizeof(call.drv_resp));
	return 0;
}

/* The time that a card's firmware takes for a command about a queue pair, one after the other. */
static void
firmware_wait(void)
{
	uint32_t us = sm_fabric()->verbs_us;
	struct timespec wait = {us / 1000000, us % 1000000 * 1000L};

	if (us != 0)
		nanosleep(&wait, NULL);
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
	if (cmd->makes == UV_QP || cmd->type == UV_QP)
		firmware_wait();
	err = run_command(ctx, cmd, set);
	if (sm_tracing())
		sm_trace("fd %d %s: %s", ctx->fd, cmd->name, err == 0 ? "ok" : strerror(err));
	return err;
}

static const struct {
	uint16_t object, method;
	int (*fn)(struct uv_ctx *ctx, const struct attrs *set);
} methods[] = {
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, invoke_write},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, uar_alloc},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, uar_destroy},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, devx_other},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, devx_modify},
};

/* Methods that libibverbs and libmlx5 try first by routine and have another way for: a kernel that
 * lacks them says EPROTONOSUPPORT too, and nothing is printed. */
static const struct {
	uint16_t object, first, last;
} probes[] = {
	{UVERBS_OBJECT_DEVICE, 0, UVERBS_METHOD_QUERY_CONTEXT - 1},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT + 1, UINT16_MAX},
	{UVERBS_OBJECT_PD, 0, 1},
	{UVERBS_OBJECT_CQ, 0, 1},
	{UVERBS_OBJECT_QP, 0, 1},
	{UVERBS_OBJECT_SRQ, 0, 1},
	{UVERBS_OBJECT_AH, 0, 1},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_METHOD_MR_DESTROY},
	{UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_METHOD_MW_DESTROY},
	{MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_ALLOC, MLX5_IB_METHOD_VAR_OBJ_ALLOC},
};

static int
dispatch(struct uv_ctx *ctx, const struct ib_uverbs_ioctl_hdr *hdr, const struct attrs *set)
{
	uint16_t object = hdr->object_id, method = hdr->method_id;

	for (uint32_t i = 0; i < CRPC_DIM(methods); i++)
		if (methods[i].object == object && methods[i].method == method)
			return methods[i].fn(ctx, set);
	if (sm_tracing())
		sm_trace("fd %d method 0x%x/0x%x: none", ctx->fd, object, method);
	for (uint32_t i = 0; i < CRPC_DIM(probes); i++)
		if (probes[i].object == object && method >= probes[i].first &&
			method <= probes[i].last)
			return EPROTONOSUPPORT;
	return sm_refuse(EPROTONOSUPPORT, "uverbs object 0x%x, method 0x%x", object, method);
}

int
uv_ioctl(struct uv_ctx *ctx, int fd, const void *arg)
{
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
