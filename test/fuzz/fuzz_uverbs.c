/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program can say to the device node of soft_mlx5: commands with any handle, length and
 * address, and attribute lists of any shape; between them it writes its queues, rings, and closes
 * what it was given. Addresses of commands lie in an arena: some of it may be written, some only
 * read, and some is not there. Whatever it says: nothing is read behind an attribute or beside the
 * arena, and when the node is closed nothing is left.
 *
 * Input: steps of 16 bytes. A command is followed by its request and the driver's part of it, an
 * attribute list by its attributes, each with as many bytes as it says, a write by its bytes.
 */
#include <sys/mman.h>

#include "fuzz_kernel.h"

#define STEPS    48u
#define CHANS    8u
#define ATTRS    70u
#define RW_LEN   (256u << 10)
#define RO_LEN   (64u << 10)
#define GAP_LEN  (64u << 10)
#define BYTES_MAX 512u

enum what { COMMAND, LIST, WRITE, RING, PASS, CLOSE, WHATS };

enum how {
	TRUE_LEN = 1,    /* Lengths of the request and the answer. */
	TRUE_FD = 2,     /* A channel that is there. */
	TRUE_IOVA = 4,   /* As the address. */
	TRUE_MEMORY = 8, /* Addresses in what may be written, and aligned. */
	NO_DRIVER = 16,
};

struct step {
	uint8_t what, how, cmd, n;
	uint16_t in, out, drv, drv_out;
	uint32_t at;
};
_Static_assert(sizeof(struct step) == 16, "an input's");

#define EX(cmd) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (cmd))

/*
 * Lengths of a command's request, answer and driver's part, and where addresses lie: in the request
 * (0: nowhere), and in the driver's part as the structure has them.
 */
#define PLAIN(nr, in, out)                                                                         \
	{                                                                                          \
		nr, in, out, 0, 0,                                                                 \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define CMD(NR, word, out) PLAIN(IB_USER_VERBS_CMD_##NR, sizeof(struct ib_uverbs_##word), out)
#define AT(NR, word, out, addr)                                                                    \
	{                                                                                          \
		IB_USER_VERBS_CMD_##NR, sizeof(struct ib_uverbs_##word), out, 0,                   \
			offsetof(struct ib_uverbs_##word, addr),                                   \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define QUEUE(nr, word, out, drv)                                                                  \
	{                                                                                          \
		nr, sizeof(struct ib_uverbs_##word), out, sizeof(struct mlx5_ib_##drv), 0,         \
		{                                                                                  \
			offsetof(struct mlx5_ib_##drv, buf_addr) + 1,                              \
				offsetof(struct mlx5_ib_##drv, db_addr) + 1                        \
		}                                                                                  \
	}
static const struct command {
	uint32_t nr;
	uint16_t in, out, drv;
	uint16_t in_addr, drv_addr[2]; /* Plus 1 in the driver's part. */
} commands[] = {
	{IB_USER_VERBS_CMD_GET_CONTEXT, 8, 8, sizeof(struct mlx5_ib_alloc_ucontext_req_v2), 0, {0}},
	CMD(QUERY_DEVICE, query_device, 176),
	CMD(QUERY_PORT, query_port, 40),
	CMD(ALLOC_PD, alloc_pd, 4),
	CMD(DEALLOC_PD, dealloc_pd, 0),
	AT(REG_MR, reg_mr, 12, start),
	AT(REREG_MR, rereg_mr, 8, start),
	CMD(DEREG_MR, dereg_mr, 0),
	{IB_USER_VERBS_CMD_ALLOC_MW, sizeof(struct ib_uverbs_alloc_mw), 8, 8, 0, {0}},
	CMD(DEALLOC_MW, dealloc_mw, 0),
	CMD(CREATE_AH, create_ah, 4),
	CMD(DESTROY_AH, destroy_ah, 0),
	CMD(CREATE_COMP_CHANNEL, create_comp_channel, 4),
	QUEUE(IB_USER_VERBS_CMD_CREATE_CQ, create_cq, 8, create_cq),
	{IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(struct ib_uverbs_resize_cq), 8,
		sizeof(struct mlx5_ib_resize_cq), 0,
		{offsetof(struct mlx5_ib_resize_cq, buf_addr) + 1, 0}},
	CMD(DESTROY_CQ, destroy_cq, 8),
	QUEUE(IB_USER_VERBS_CMD_CREATE_SRQ, create_srq, 16, create_srq),
	CMD(MODIFY_SRQ, modify_srq, 0),
	CMD(QUERY_SRQ, query_srq, 16),
	CMD(DESTROY_SRQ, destroy_srq, 4),
	QUEUE(IB_USER_VERBS_CMD_CREATE_QP, create_qp, 32, create_qp),
	CMD(MODIFY_QP, modify_qp, 0),
	CMD(QUERY_QP, query_qp, 128),
	CMD(DESTROY_QP, destroy_qp, 4),
	PLAIN(EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), 8, 304),
	QUEUE(EX(IB_USER_VERBS_EX_CMD_CREATE_CQ), ex_create_cq, 16, create_cq),
	QUEUE(EX(IB_USER_VERBS_EX_CMD_CREATE_QP), ex_create_qp, 40, create_qp),
	PLAIN(EX(IB_USER_VERBS_EX_CMD_MODIFY_QP), sizeof(struct ib_uverbs_ex_modify_qp), 8),
	PLAIN(IB_USER_VERBS_CMD_ATTACH_MCAST, 24, 0),
	{0x1234, 8, 8, 8, 0, {0}},
};

static uint8_t *arena;
static int device, chan[CHANS];
static uint32_t chans;
static uint64_t now;

/* ---- memory ---- */

static void
arena_make(void)
{
	arena = mmap(NULL, RW_LEN + RO_LEN + 2 * GAP_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	fuzz_check(arena != MAP_FAILED);
	arena += GAP_LEN;
	fuzz_check(mprotect(arena, RW_LEN, PROT_READ | PROT_WRITE) == 0);
	fuzz_check(mprotect(arena + RW_LEN, RO_LEN, PROT_READ) == 0);
}

static void
addr_mend(uint8_t *at, uint8_t how)
{
	uint64_t addr;

	memcpy(&addr, at, sizeof(addr));
	addr = how & TRUE_MEMORY ? (addr & ~UINT64_C(63)) % RW_LEN
				 : addr % (RW_LEN + RO_LEN + GAP_LEN);
	addr += (uintptr_t)arena;
	memcpy(at, &addr, sizeof(addr));
}

/* Bytes of the input in memory of exactly their number, zeros where it ends. */
static uint8_t *
bytes_take(struct fuzz_input *in, uint32_t len)
{
	uint8_t *p = malloc(len == 0 ? 1 : len);

	fuzz_check(p != NULL);
	(void)fuzz_take_some(in, p, len);
	return p;
}

/* ---- steps ---- */

static void
chan_note(int fd)
{
	if (chans == CHANS)
		kernel_close(fd);
	else
		chan[chans++] = fd;
}

static void
ask(const struct command *c, const struct step *s, struct kernel_parts *p)
{
	int err, fd;

	p->out_len = s->how & TRUE_LEN ? c->out : s->out % BYTES_MAX;
	p->drv_out_len = s->drv_out % BYTES_MAX;
	p->out = calloc(1, p->out_len + 1u);
	p->drv_out = calloc(1, p->drv_out_len + 1u);
	fuzz_check(p->out != NULL && p->drv_out != NULL);
	err = kernel_command(device, c->nr, p);
	if (err == 0 && (c->nr == IB_USER_VERBS_CMD_GET_CONTEXT ||
				c->nr == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL)) {
		memcpy(&fd, p->out, sizeof(fd));
		chan_note(fd);
	}
	free(p->out);
	free(p->drv_out);
}

static void
command(const struct step *s, struct fuzz_input *input)
{
	const struct command *c = &commands[s->cmd % CRPC_DIM(commands)];
	uint32_t in_len = s->how & TRUE_LEN ? c->in : s->in % BYTES_MAX, i;
	uint32_t drv_len = s->how & NO_DRIVER ? 0 : s->how & TRUE_LEN ? c->drv : s->drv % BYTES_MAX;
	uint8_t *in = bytes_take(input, in_len), *drv = bytes_take(input, drv_len);
	struct kernel_parts p;

	if (c->in_addr != 0 && in_len >= c->in_addr + 8u)
		addr_mend(in + c->in_addr, s->how);
	/* It lies behind the length, in both requests that have one. */
	if (c->in_addr != 0 && (s->how & TRUE_IOVA) && in_len >= c->in_addr + 24u)
		memcpy(in + c->in_addr + 16, in + c->in_addr, 8);
	for (i = 0; i < 2; i++)
		if (c->drv_addr[i] != 0 && drv_len >= c->drv_addr[i] + 7u)
			addr_mend(drv + c->drv_addr[i] - 1, s->how);
	if ((c->nr == IB_USER_VERBS_CMD_CREATE_CQ || c->nr == EX(IB_USER_VERBS_EX_CMD_CREATE_CQ)) &&
			(s->how & TRUE_FD) && chans != 0 && in_len >= c->in)
		memcpy(in + (c->nr == IB_USER_VERBS_CMD_CREATE_CQ
					? offsetof(struct ib_uverbs_create_cq, comp_channel)
					: offsetof(struct ib_uverbs_ex_create_cq, comp_channel)),
			&chan[s->at % chans], sizeof(int));
	p = (struct kernel_parts){.in = in, .in_len = (uint16_t)in_len, .drv = drv,
		.drv_len = (uint16_t)drv_len};
	ask(c, s, &p);
	free(in);
	free(drv);
}

/* Answers are written where these say, whatever their length. */
static bool
is_out(const struct ib_uverbs_ioctl_hdr *hdr, uint16_t id)
{
	if (hdr->object_id == MLX5_IB_OBJECT_UAR)
		return id >= MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET;
	return id == UVERBS_ATTR_CORE_OUT || id == UVERBS_ATTR_UHW_OUT;
}

/* An attribute of 16 bytes; what it points to, if it does. */
static uint8_t *
attr_take(const struct ib_uverbs_ioctl_hdr *hdr, struct ib_uverbs_attr *attr, struct fuzz_input *in)
{
	bool out;
	uint8_t *buf;

	(void)fuzz_take_some(in, attr, sizeof(*attr));
	attr->len %= BYTES_MAX;
	out = is_out(hdr, attr->attr_id);
	/* Descriptors are given by commands, which know of them. */
	if (attr->attr_id == UVERBS_ATTR_WRITE_CMD &&
			((uint32_t)attr->data == IB_USER_VERBS_CMD_GET_CONTEXT ||
				(uint32_t)attr->data == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL))
		attr->data = IB_USER_VERBS_CMD_ALLOC_PD;
	if (attr->len <= 8 && !(out && attr->data % 2 != 0)) {
		attr->data = out ? 0 : attr->data;
		return NULL;
	}
	buf = bytes_take(in, attr->len);
	attr->data = (uintptr_t)buf;
	return buf;
}

static void
list(const struct step *s, struct fuzz_input *in)
{
	static const uint16_t ids[][2] = {
		{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE},
		{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC},
		{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY},
	};
	uint32_t n = s->n % ATTRS, i, k = s->cmd % (CRPC_DIM(ids) + 1);
	struct ib_uverbs_ioctl_hdr hdr = {.num_attrs = (uint16_t)n, .object_id = (uint16_t)s->at,
		.method_id = (uint16_t)(s->at >> 16)};
	struct ib_uverbs_attr attr[ATTRS] = {0};
	uint8_t *buf[ATTRS] = {0};

	hdr.length = (uint16_t)(sizeof(hdr) + n * sizeof(attr[0]));
	if (k < CRPC_DIM(ids)) {
		hdr.object_id = ids[k][0];
		hdr.method_id = ids[k][1];
	}
	if (s->how & 1)
		hdr.length = s->in;
	for (i = 0; i < n; i++)
		buf[i] = attr_take(&hdr, &attr[i], in);
	(void)kernel_ioctl(device, &hdr, attr, n);
	for (i = 0; i < n; i++)
		free(buf[i]);
}

/* A doorbell: the program's page and ours are the same memory. */
static void
ring(const struct step *s, struct fuzz_input *in)
{
	struct uv_ctx *ctx = crpc_container_of(sm_file_find(device), struct uv_ctx, file);
	uint8_t *word = bytes_take(in, 8);
	struct uv_obj *obj;

	for (uint32_t h = 1; (obj = uv_objs_at_or_after(&ctx->objs, h)) != NULL;
		h = obj->handle + 1)
		if (obj->type == UV_UAR)
			memcpy((uint8_t *)crpc_container_of(obj, struct uv_uar, obj)->page +
					s->at % (UV_PAGE / 8) * 8, word, 8);
	free(word);
}

static void
step(const struct step *s, struct fuzz_input *in)
{
	uint8_t *bytes;

	switch (s->what % WHATS) {
	case COMMAND:
		command(s, in);
		break;
	case LIST:
		list(s, in);
		break;
	case WRITE:
		bytes = bytes_take(in, s->n);
		memcpy(arena + s->at % (RW_LEN - 256), bytes, s->n);
		free(bytes);
		break;
	case RING:
		ring(s, in);
		break;
	case CLOSE:
		if (chans != 0)
			kernel_close(chan[--chans]);
		break;
	default:
		now += (uint64_t)s->at + 1;
		soft_mlx5_step.pass(SOFT_MLX5_STEP_ALL, now, NULL);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct step s;

	if (arena == NULL) {
		kernel_start("uverbs");
		arena_make();
	}
	memset(arena, 0, RW_LEN);
	now = 1000;
	chans = 0;
	device = uv_open(0, 0);
	fuzz_check(device >= 0);
	if (size != 0 && data[0] % 8 != 7) /* An input may forget it, or ask again. */
		chan_note(kernel_context(device));
	fuzz_skip(&in, 1);
	for (uint32_t i = 0; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++)
		step(&s, &in);
	while (chans != 0)
		kernel_close(chan[--chans]);
	kernel_close(device);
	fuzz_check(crpc_load_relaxed(&sm_file_count) == 0 && LIST_EMPTY(&sm_files));
	return 0;
}
