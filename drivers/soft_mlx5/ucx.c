/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * uct_worker_create() and uct_worker_destroy() are replaced, and mlx5dv_init_obj(), by which a
 * program learns where a completion queue lies in memory. UCX is found at run time and its headers
 * are not needed: the types here are those of its ABI, which is the same since UCX 1.5.
 */
#include "ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <infiniband/mlx5dv.h>

#include "progress.h"
#include "real.h"
#include "uverbs.h"

typedef void *uct_worker_h;
typedef unsigned int (*ucs_callback_t)(void *arg);
typedef int8_t ucs_status_t; /* an enum, packed */

#define CALLBACK_FAST      1u
#define CALLBACK_ID_NULL   (-1)
#define STATUS_UNSUPPORTED ((ucs_status_t)-22)

struct worker {
	LIST_ENTRY(worker) link;
	uct_worker_h uct;
	int callback;
};

static LIST_HEAD(, worker) workers = LIST_HEAD_INITIALIZER(workers);
static pthread_mutex_t workers_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the contexts ---- */

static LIST_HEAD(, uv_ctx) mapped = LIST_HEAD_INITIALIZER(mapped);
static _Atomic uint32_t nmapped;
/*
 * Workers of several threads drive at the same time and do not wait for each other. A thread that
 * adds or removes a context waits for them, and new ones let it go first.
 */
static pthread_rwlock_t mapped_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void
remember(struct uv_ctx *ctx)
{
	pthread_rwlock_wrlock(&mapped_lock);
	if (!ctx->cq_mapped) {
		ctx->cq_mapped = true;
		LIST_INSERT_HEAD(&mapped, ctx, mapped);
		crpc_fetch_add_relaxed(&nmapped, 1u);
	}
	pthread_rwlock_unlock(&mapped_lock);
}

void
sm_ucx_forget(struct uv_ctx *ctx)
{
	pthread_rwlock_wrlock(&mapped_lock);
	if (ctx->cq_mapped) {
		LIST_REMOVE(ctx, mapped);
		crpc_fetch_add_relaxed(&nmapped, -1u);
	}
	pthread_rwlock_unlock(&mapped_lock);
}

void
sm_ucx_fork_child(void)
{
	static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

	mapped_lock = fresh;
	LIST_INIT(&mapped);
	crpc_store_relaxed(&nmapped, 0);
	pthread_mutex_init(&workers_lock, NULL);
}

/* Without a version the reference of a program to any version is satisfied. */
EXPORT int
mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t types)
{
	__typeof__(&mlx5dv_init_obj) fn = REAL(mlx5dv_init_obj, "libmlx5.so.1", "MLX5_1.2");
	struct uv_ctx *ctx;
	int err;

	if (fn == NULL)
		return ENOSYS;
	err = fn(obj, types);
	if (err != 0 || (types & MLX5DV_OBJ_CQ) == 0)
		return err;
	ctx = uv_ctx_of(sm_file_at(obj->cq.in->context->cmd_fd));
	if (ctx != NULL)
		remember(ctx);
	return 0;
}

/* ---- the workers ---- */

/*
 * A function of UCX: that of the caller, which depends on UCX, or is UCX. A process may have loaded
 * two copies, and each of them for one caller alone.
 */
static void *
find_uct(const char *name, const void *ours, const void *caller)
{
	void *_Atomic uncached = NULL;
	void *lib, *fn = NULL;
	Dl_info info;

	if (dladdr(caller, &info) != 0) {
		lib = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		fn = lib != NULL ? dlsym(lib, name) : NULL;
		if (lib != NULL)
			dlclose(lib);
	}
	return fn != NULL && fn != ours ? fn : sm_real(&uncached, "libuct.so.0", name, NULL);
}

#define UCT(type, fn, ours) ((type)find_uct(#fn, ours, __builtin_return_address(0)))

static unsigned int
drive_mapped(void *arg)
{
	struct uv_ctx *ctx;
	unsigned int n = 0;

	(void)arg;
	if (crpc_load_relaxed(&nmapped) == 0 || pthread_rwlock_tryrdlock(&mapped_lock) != 0)
		return 0;
	LIST_FOREACH (ctx, &mapped, mapped)
		n += sm_progress_empty(ctx);
	pthread_rwlock_unlock(&mapped_lock);
	return n;
}

typedef ucs_status_t (*create_fn)(void *async, unsigned int thread_mode, uct_worker_h *worker);
typedef void (*destroy_fn)(uct_worker_h worker);
typedef void (*register_fn)(uct_worker_h worker, ucs_callback_t fn, void *arg, unsigned int flags,
		int *callback);
typedef void (*unregister_fn)(uct_worker_h worker, int *callback);

EXPORT ucs_status_t uct_worker_create(void *async, unsigned int thread_mode, uct_worker_h *uct);
EXPORT void uct_worker_destroy(uct_worker_h uct);

ucs_status_t
uct_worker_create(void *async, unsigned int thread_mode, uct_worker_h *uct)
{
	create_fn create = UCT(create_fn, uct_worker_create, uct_worker_create);
	register_fn add = UCT(register_fn, uct_worker_progress_register_safe, NULL);
	ucs_status_t status = create != NULL ? create(async, thread_mode, uct) : STATUS_UNSUPPORTED;
	struct worker *worker;

	if (status != 0 || add == NULL || sm_progress_mode() != SM_PROGRESS_HOOK)
		return status;
	worker = malloc(sizeof(*worker));
	if (worker == NULL)
		return status; /* the helper thread drives */
	worker->uct = *uct;
	worker->callback = CALLBACK_ID_NULL;
	add(*uct, drive_mapped, NULL, CALLBACK_FAST, &worker->callback);
	pthread_mutex_lock(&workers_lock);
	LIST_INSERT_HEAD(&workers, worker, link);
	pthread_mutex_unlock(&workers_lock);
	return status;
}

void
uct_worker_destroy(uct_worker_h uct)
{
	destroy_fn destroy = UCT(destroy_fn, uct_worker_destroy, uct_worker_destroy);
	unregister_fn del = UCT(unregister_fn, uct_worker_progress_unregister_safe, NULL);
	struct worker *worker;

	pthread_mutex_lock(&workers_lock);
	LIST_FOREACH (worker, &workers, link)
		if (worker->uct == uct)
			break;
	if (worker != NULL)
		LIST_REMOVE(worker, link);
	pthread_mutex_unlock(&workers_lock);
	if (worker != NULL && del != NULL)
		del(uct, &worker->callback);
	free(worker);
	if (destroy != NULL)
		destroy(uct);
}
