/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_UVERBS_H
#define SOFT_MLX5_UVERBS_H

/**
 * @file
 * The uverbs character device: what the kernel's ib_uverbs and mlx5_ib do with an open device node.
 *
 *     ioctl -> uverbs.c    header, attributes, tables of commands, objects, UAR pages, GIDs
 *              context.c   device nodes, contexts and their NICs, fork
 *              cmd_dev.c   device and port
 *              cmd_obj.c   PD, MR, MW, AH, CQ, completion channel
 *              cmd_qp.c    SRQ, QP
 *              event.c     completion channels and asynchronous events
 *              clock.c     the device's clock
 *              memory.c    is this range mapped?
 *
 * libibverbs probes once whether the ioctl can carry the commands of the older write(2)
 * interface, and then sends nearly all commands so. The methods of the newer interface that have
 * an older twin are answered EPROTONOSUPPORT, as by a kernel that does not have them; libibverbs
 * remembers it.
 *
 * Commands of a context are serialised by its lock. Events come from the NIC under its own lock and
 * touch only what stays constant in a queue, and atomics.
 */

#include <pthread.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "crpc_atomic.h"
#include "crpc_util.h"
#include "file.h"
#include "nic.h"
#include "object.h"

#define UV_BYTES_MAX       512 /**< Bytes of a request or an answer, at most. */
#define UV_PAGE         4096
#define UV_PAGE_CLOCK      (UINT64_C(5) << 8) /**< MLX5_IB_MMAP_CORE_CLOCK, as libmlx5 makes it. */
#define UV_PAGE_CLOCK_INFO (UINT64_C(7) << 8) /**< MLX5_IB_MMAP_CLOCK_INFO, version 1. */
#define UV_PAGE_UARS       (UINT64_C(8) << 8) /**< From here on: by the handle of the UAR. */
#define UV_COMP_VECTORS 1
#define UV_CQE_MAX      4194303 /**< CQ entries less one. */
#define UV_WR_MAX       32768   /**< WQEs or WQE blocks of a queue. */
#define UV_SRQ_WR_MAX   32767
#define UV_SGE_MAX      30
#define UV_SRQ_SGE_MAX  31
#define UV_RD_ATOM_MAX  16

typedef int (*uv_poll_fn)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
typedef struct ibv_cq_ex *(*uv_create_cq_fn)(
		struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

typedef int (*uv_start_poll_fn)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);

/** A pipe whose end to read is the program's descriptor. */
struct uv_chan {
	struct sm_file file;
	int tx, rx; /**< Ours: to send events, and to take back what was not read. */
	_Atomic uint32_t refs; /**< The descriptor, and each queue that sends to it. */
	size_t msg_size;
	pthread_mutex_t lock; /**< Order of what is sent. */
};

struct uv_ctx;

/** Events of one queue or port, counted: a destroy reports how many the program has read. */
struct uv_events {
	struct uv_ctx *ctx;
	uint64_t element; /**< What the program calls the queue: its user_handle. */
	_Atomic uint32_t sent;
};

/** A CQ, SRQ, QP or port: what asynchronous events are about. */
struct uv_queue {
	struct uv_obj obj;
	struct uv_events async;
};

/** An open device node. */
struct uv_ctx {
	struct sm_file file;
	int device;
	bool dead;            /**< Inherited by fork: every command is EIO, its memory stays. */
	bool vanished;        /**< Step mode: cut off the net for good. */
	bool undriven;        /**< Poll loops and the helper let it be: dead, or step mode. */
	uint32_t number;      /**< Contexts are listed by it; step mode shows it. */
	char net[128];        /**< That it is on. */
	pthread_mutex_t lock; /**< One command at a time. */
	int fd;               /**< The descriptor of the present command. */
	struct uv_objs objs;
	struct uv_chan *async;
	struct uv_queue port; /**< With neither a handle nor anything in the NIC. */
	_Atomic uint64_t *clock; /**< The page that the program maps; big endian. */

	int nic_err; /**< Why there is no NIC: the errno of a failed GET_CONTEXT, 0 before it. */
	/** NULL before GET_CONTEXT. */
	struct sm_nic *_Atomic nic;

	/* ucx.c */
	LIST_ENTRY(uv_ctx) mapped;
	bool cq_mapped;          /**< The program reads completion queues in memory. */

	/* progress.c */
	uv_poll_fn poll;         /**< libmlx5's ibv_poll_cq, if hooked. */
	uv_create_cq_fn create_cq_ex;
	uv_start_poll_fn _Atomic start_poll; /**< Of its first extended queue, likewise. */
	uint32_t seen_calls;     /**< Helper thread: calls at its last look. */
	uint64_t quiet_since_ns; /**< Helper thread: no calls since. */
	char guard[CRPC_CACHE_GUARD];
	_Atomic uint32_t calls;  /**< Written by polling threads; a lost count is harmless. */
	_Atomic uint32_t empty;  /**< Empty polls in a row. */
	_Atomic uint64_t now_ns; /**< The time that the NIC was driven with last. */
};

/** The device node that a file is, or NULL. */
static inline struct uv_ctx *
uv_ctx_of(struct sm_file *file)
{
	return file != NULL && file->kind == SM_FILE_DEVICE
		? crpc_container_of(file, struct uv_ctx, file)
		: NULL;
}

struct uv_cq {
	struct uv_queue queue;
	struct uv_chan *chan; /**< NULL: no completion channel. */
	struct uv_events comp;
};

struct uv_qp {
	struct uv_queue queue;
	struct ib_uverbs_create_qp_resp cap;
	uint8_t sq_sig_all;
	bool is_dct;
	uint32_t qpn;
};

struct uv_uar {
	struct uv_obj obj;
	uint32_t page_id;
	void *page;
};

struct uv_call;

/** A row of the tables of commands, each of which ends with a row without a name. */
struct uv_cmd {
	uint32_t nr;
	uint16_t req_min;
	uint16_t resp_min;
	const char *name;
	int (*fn)(struct uv_ctx *ctx, struct uv_call *call); /**< NULL: refused by name. */
	enum uv_type type;  /**< Of the object that the request names, if any, ... */
	uint16_t handle_at; /**< ... and where its handle lies in the request. */
	enum uv_type makes; /**< The type of the object that the command makes, if any, ... */
	uint16_t size;      /**< ... and its bytes. */
	uint16_t drv_len;   /**< Bytes of the driver's part of the request that are looked at ... */
	uint16_t drv_min;   /**< ... and must be there. */
};

#define UV_EX IB_USER_VERBS_CMD_FLAG_EXTENDED
/** A row, in braces. Behind the function: UV_OF(), UV_MAKES(), UV_DRV(). */
#define UV_CMD(NR, word, ...)                                                                      \
	IB_USER_VERBS_CMD_##NR, sizeof(struct ib_uverbs_##word),                                   \
		sizeof(struct ib_uverbs_##word##_resp), #NR, __VA_ARGS__
/** Without an answer. */
#define UV_CMD_NO_RESP(NR, word, ...)                                                              \
	IB_USER_VERBS_CMD_##NR, sizeof(struct ib_uverbs_##word), 0, #NR, __VA_ARGS__
#define UV_CMD_EX(NR, req_min, resp_min, ...)                                                      \
	UV_EX | IB_USER_VERBS_EX_CMD_##NR, req_min, resp_min, #NR "_EX", __VA_ARGS__
/** A command about an object, which is found, and one that makes an object, which is there. */
#define UV_OF(word, type, handle) type, offsetof(struct ib_uverbs_##word, handle)
#define UV_MAKES(kind, bytes) .makes = (kind), .size = (bytes)
/** The driver's part of the request, struct mlx5_ib_@p word, is there up to @p member at least. */
#define UV_DRV(word, member)                                                                       \
	.drv_len = sizeof(struct mlx5_ib_##word),                                                  \
	.drv_min = offsetof(struct mlx5_ib_##word, member) +                                       \
		sizeof(((struct mlx5_ib_##word *)0)->member)
#define UV_DESTROY(NR, word, resp_min, type, handle)                                               \
	IB_USER_VERBS_CMD_##NR, sizeof(struct ib_uverbs_##word), resp_min, #NR, uv_destroy,        \
		UV_OF(word, type, handle)

/** A request or an answer: zero where nothing else was written. */
union uv_bytes {
	uint8_t at[UV_BYTES_MAX];
	uint64_t align;
};

/** One command: what came in, copied; and the answer, which is sent if the command succeeds. */
struct uv_call {
	const struct uv_cmd *cmd;
	void *obj;  /**< The object that the request names, each type of which begins with it. */
	void *made; /**< The one that the command makes, zero; it goes if the command fails. */
	union uv_bytes req, resp;
	union uv_bytes drv_req, drv_resp; /**< The driver's part of both. */
	uint32_t resp_room, drv_room;     /**< Bytes of the answers that the program takes. */
	bool drv_answers;                 /**< There is something in drv_resp. */
};

/* ---- context.c ---- */

/** open() of the node of device @p n. A descriptor, or -1 with errno. */
int uv_open(int n, int flags);
/** The net that SOFT_MLX5_NET names. */
const char *uv_net_base(void);
/** Before anything is made that a fork must know of. */
void uv_fork_register(void);
/** The open contexts that live, in the order in which they were opened; their number. */
uint32_t uv_contexts(struct uv_ctx *list[SM_SLOTS]);
int uv_get_context(struct uv_ctx *ctx, struct uv_call *call);

/* ---- uverbs.c ---- */

/** 0 or the errno value of the ioctl. */
int uv_ioctl(struct uv_ctx *ctx, int fd, const void *arg);
#define uv_req(call)      ((const void *)(call)->req.at)
#define uv_resp(call)     ((void *)(call)->resp.at)
#define uv_drv_req(call)  ((const void *)(call)->drv_req.at)
#define uv_drv_resp(call) ((call)->drv_answers = true, (void *)(call)->drv_resp.at)
#define uv_nic(ctx) crpc_load_relaxed(&(ctx)->nic)
/**
 * The request of a command that has an older form, too: what both have is behind the answer's
 * address there, @p common bytes, and the rest is 0.
 */
void uv_req_both(const struct uv_call *call, void *req, size_t len, size_t common);
/** The object of a handle in a request, or NULL; of any kind, each of which begins with it. */
#define uv_get(ctx, handle, type) ((void *)uv_objs_get(&(ctx)->objs, handle, type))
void uv_obj_free(struct uv_ctx *ctx, struct uv_obj *obj);
/** The commands DESTROY, DEALLOC and DEREG: ENOENT, EBUSY while another object needs it. */
int uv_destroy(struct uv_ctx *ctx, struct uv_call *call);

/* ---- commands ---- */

extern const struct uv_cmd uv_device_commands[];
extern const struct uv_cmd uv_object_commands[];
extern const struct uv_cmd uv_queue_commands[];

/* ---- event.c ---- */

/** Make a channel with one reference, its descriptor's. 0 or an errno value. */
int uv_chan_create(enum sm_file_kind kind, struct uv_chan **chan, uint32_t *fd);
void uv_chan_get(struct uv_chan *chan);
void uv_chan_put(struct uv_chan *chan);
/** In a forked child: the descriptor is all that is left of it. */
void uv_chan_fork_child(struct uv_chan *chan);
/** sm_nic_attr.comp_event; @p user is a struct uv_cq. */
void uv_comp_event(void *user);
/** sm_nic_attr.async_event; @p user is a struct uv_queue. */
void uv_async_event(void *user, enum ibv_event_type type);
/** Under the context's lock, when the NIC no longer knows the queue: take its unread events back
 *  and return how many were read. */
uint32_t uv_events_read(struct uv_chan *chan, struct uv_events *events);

/* ---- port_event.c ---- */

/**
 * Something happens to the ports of contexts: "down", "up", "lid=N" (of the first device), or to
 * the whole device: "fatal". Under the drive lock. EINVAL: none of these; or what faults said.
 */
int uv_port_change(struct uv_ctx *const *list, uint32_t n, const char *text);
/** Timers for all contexts, as whoever sends to a lost packet's receiver has to notice. */
int uv_timers(void);

/* ---- clock.c ---- */

/** A page of the device node, which a program maps there, too; NULL, and errno. */
void *uv_page_map(const struct uv_ctx *ctx, uint64_t page);

/** Nanoseconds. */
uint64_t uv_clock_read(clockid_t id);
int uv_clock_open(struct uv_ctx *ctx);

/** Show the time; harmless if several threads do. */
static inline void
uv_clock_tick(struct uv_ctx *ctx, uint64_t now_ns)
{
	crpc_store_relaxed(ctx->clock, __builtin_bswap64(now_ns));
}

/* ---- memory.c ---- */

/** 0 if [start, start + len) is mapped readable, and writable if @p write; else EFAULT, or an errno
 *  value of reading the map. */
int uv_check_range(uint64_t start, uint64_t len, bool write);
/** The same of a queue's buffer and doorbell record (0: none); EINVAL: they are not aligned. */
int uv_check_queue(uint64_t buf, uint64_t len, uint64_t dbrec);

#endif
