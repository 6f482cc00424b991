/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>

#include "real.h"
#include "say.h"
#include "soft_mlx5.h"
#include "uverbs.h"

EXPORT const char soft_mlx5_version[] = CRPC_VERSION;

#define USEC UINT64_C(1000)
#define MSEC UINT64_C(1000000)

/* How long a context must not have been driven before the helper drives it, when it found work
 * there recently and when not. */
#define GRACE_HOT_NS (50 * USEC)
#define GRACE_NS     MSEC
/* Sleeps of the helper: while there is work, normally, and when all has been idle for long. */
#define SLEEP_HOT_NS  (20 * USEC)
#define SLEEP_NS      MSEC
#define SLEEP_LONG_NS (4 * MSEC)
#define HOT_FOR_NS    (10 * MSEC)
#define IDLE_AFTER_NS (1000 * MSEC)
/* Work at one go, while there is some; then somebody else may have the core. */
#define WORK_NS (200 * USEC)
/* Times that the helper, having worked, leaves its core and looks again before it sleeps. */
#define EMPTY_YIELDS 32
/*
 * A yield that takes longer was to a thread that spins and kept the core for a tick of the
 * scheduler; a sleeper gets the core back when its timer expires. So the helper only sleeps for a
 * while: at first the short time, twice as long after each further long yield, up to the long one,
 * and the short one again after yields were short for YIELD_CALM_NS.
 */
#define YIELD_LONG_NS    (500 * USEC)
#define YIELD_OFF_NS     (50 * MSEC)
#define YIELD_OFF_MAX_NS (3000 * MSEC)
#define YIELD_CALM_NS    (1000 * MSEC)
/* Polls of an inline driver between two looks at the clock: timers are of ten microseconds and
 * more, and the clock costs as much as an idle look at the NIC. */
#define CLOCK_EVERY 16
/* Empty polls in a row before the core is offered to others, and between offers. */
#define YIELD_EVERY 64

static const char *const mode_names[] = {
	[SM_PROGRESS_INLINE] = "inline",
	[SM_PROGRESS_HOOK] = "hook",
	[SM_PROGRESS_THREAD] = "thread",
	[SM_PROGRESS_STEP] = "step",
};

static uint64_t
clock_ns(void)
{
	return uv_clock_read(CLOCK_MONOTONIC);
}

static enum sm_progress_mode
read_mode(void)
{
	const char *env = getenv("SOFT_MLX5_PROGRESS");

	for (unsigned int i = SM_PROGRESS_INLINE; env != NULL && i < CRPC_DIM(mode_names); i++)
		if (strcmp(env, mode_names[i]) == 0)
			return (enum sm_progress_mode)i;
	if (env != NULL && env[0] != '\0')
		sm_complain("SOFT_MLX5_PROGRESS is '%s', not inline, hook, thread or step; taking "
			    "hook",
			env);
	return SM_PROGRESS_HOOK;
}

enum sm_progress_mode
sm_progress_mode(void)
{
	static _Atomic unsigned int mode;

	if (crpc_load_relaxed(&mode) == SM_PROGRESS_UNKNOWN)
		crpc_store_relaxed(&mode, (unsigned int)read_mode());
	return (enum sm_progress_mode)crpc_load_relaxed(&mode);
}

const char *
sm_progress_name(void)
{
	return mode_names[sm_progress_mode()];
}

/*
 * The NIC reads and writes the program's memory as a card does by DMA: ordered by doorbells and
 * owner bits, of which the thread sanitizer sees nothing, since libmlx5 rings and polls without
 * being instrumented. So it is made not to look; the engine's own tests let it look.
 */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static uint32_t
nic_progress(struct sm_nic *nic, uint64_t now)
{
	uint32_t n;

	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	n = sm_nic_progress(nic, now);
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	return n;
}
#else
#define nic_progress sm_nic_progress
#endif

uint32_t
sm_progress_at(struct uv_ctx *ctx, uint64_t now)
{
	crpc_store_relaxed(&ctx->now_ns, now);
	uv_clock_tick(ctx, now);
	return nic_progress(uv_nic(ctx), now);
}

/* ---- inline ---- */

static struct uv_ctx *
ctx_of(const struct ibv_context *context)
{
	return uv_ctx_of(sm_file_at(context->cmd_fd));
}

static uint32_t
drive(struct uv_ctx *ctx)
{
	struct sm_nic *nic = crpc_load_acquire(&ctx->nic); /* A3 pairs with R3 in uv_get_context */
	uint32_t calls = crpc_load_relaxed(&ctx->calls) + 1;

	if (crpc_unlikely(nic == NULL || ctx->undriven))
		return 0;
	crpc_store_relaxed(&ctx->calls, calls);
	if (crpc_unlikely(calls % CLOCK_EVERY == 0))
		return sm_progress_at(ctx, clock_ns());
	return nic_progress(nic, crpc_load_relaxed(&ctx->now_ns));
}

EXPORT uint32_t
soft_mlx5_progress(struct ibv_context *context)
{
	struct uv_ctx *ctx = ctx_of(context);

	return ctx != NULL ? drive(ctx) : 0;
}

EXPORT int
soft_mlx5_ledger(
	struct ibv_context *context, uint32_t qpn, struct soft_mlx5_ledger *ledger, uint64_t size)
{
	struct uv_ctx *ctx = ctx_of(context);
	struct sm_nic *nic = ctx != NULL ? crpc_load_acquire(&ctx->nic) : NULL; /* A3 */
	struct soft_mlx5_ledger full;
	int err;

	if (nic == NULL || ctx->dead)
		return EINVAL;
	err = sm_nic_ledger(nic, qpn, &full);
	if (err == 0)
		memcpy(ledger, &full, crpc_min(size, sizeof(full)));
	return err;
}

/* ---- hook ---- */

/*
 * If there was nothing to do, and the peer shares our core, it cannot work until we leave it, and a
 * scheduler's time slice is a thousand times longer than a message takes.
 */
bool
sm_progress_empty(struct uv_ctx *ctx)
{
	bool work = drive(ctx) != 0;
	uint32_t empty = work ? 0 : crpc_load_relaxed(&ctx->empty) + 1;

	crpc_store_relaxed(&ctx->empty, empty);
	if (crpc_unlikely(!work && empty % YIELD_EVERY == 0))
		sched_yield();
	return work;
}

static int
poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct uv_ctx *ctx = ctx_of(cq->context);
	int got;

	if (crpc_unlikely(ctx == NULL))
		return -1; /* the program closed the device under the queue */
	got = ctx->poll(cq, n, wc);
	return got == 0 && sm_progress_empty(ctx) ? ctx->poll(cq, n, wc) : got;
}

/*
 * An extended queue has its functions in itself, and no place of ours: libmlx5's is kept with the
 * context, which makes queues of one kind as a rule. Those of another kind the helper drives.
 */
static int
start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct uv_ctx *ctx = ctx_of(cq->context);
	uv_start_poll_fn real;
	int err;

	if (crpc_unlikely(ctx == NULL))
		return EINVAL;
	real = crpc_load_acquire(&ctx->start_poll); /* A4 */
	err = real(cq, attr);
	return err == ENOENT && sm_progress_empty(ctx) ? real(cq, attr) : err;
}

static struct ibv_cq_ex *
hook_cq(struct ibv_cq_ex *cq)
{
	struct uv_ctx *ctx = cq != NULL ? ctx_of(cq->context) : NULL;
	uv_start_poll_fn known = NULL;

	if (ctx == NULL || cq->start_poll == NULL || sm_progress_mode() != SM_PROGRESS_HOOK)
		return cq;
	/* A4 pairs with this release. */
	crpc_cas_acq_rel(&ctx->start_poll, &known, cq->start_poll);
	if (known == NULL || known == cq->start_poll)
		cq->start_poll = start_poll;
	return cq;
}

static struct ibv_cq_ex *
create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct uv_ctx *ctx = ctx_of(context);

	if (ctx == NULL) {
		errno = EINVAL;
		return NULL;
	}
	return hook_cq(ctx->create_cq_ex(context, attr));
}

static struct ibv_context *
hook(struct ibv_context *context)
{
	struct verbs_context *verbs;
	struct uv_ctx *ctx;

	if (context == NULL || sm_progress_mode() != SM_PROGRESS_HOOK)
		return context;
	ctx = ctx_of(context);
	if (ctx == NULL)
		return context;
	ctx->poll = context->ops.poll_cq;
	context->ops.poll_cq = poll_cq;
	verbs = verbs_get_ctx_op(context, create_cq_ex);
	if (verbs != NULL) {
		ctx->create_cq_ex = verbs->create_cq_ex;
		verbs->create_cq_ex = create_cq_ex;
	}
	return context;
}

/* These are defined without a version, which satisfies references with one. */

EXPORT struct ibv_context *
ibv_open_device(struct ibv_device *device)
{
	__typeof__(&ibv_open_device) fn = REAL(ibv_open_device, "libibverbs.so.1", "IBVERBS_1.1");

	return fn != NULL ? hook(fn(device)) : NULL;
}

EXPORT struct ibv_context *
mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	__typeof__(&mlx5dv_open_device) fn = REAL(mlx5dv_open_device, "libmlx5.so.1", "MLX5_1.7");

	return fn != NULL ? hook(fn(device, attr)) : NULL;
}

EXPORT struct ibv_cq_ex *
mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
	struct mlx5dv_cq_init_attr *mlx5_attr)
{
	__typeof__(&mlx5dv_create_cq) fn = REAL(mlx5dv_create_cq, "libmlx5.so.1", "MLX5_1.1");

	return fn != NULL ? hook_cq(fn(context, attr, mlx5_attr)) : NULL;
}

/* ---- helper thread ---- */

/* Whether somebody else drives the context, as far as the helper can see. */
static bool
is_driven(struct uv_ctx *ctx, uint64_t now, bool hot)
{
	uint32_t calls = crpc_load_relaxed(&ctx->calls);

	if (sm_progress_mode() != SM_PROGRESS_HOOK)
		return false;
	if (calls != ctx->seen_calls) {
		ctx->seen_calls = calls;
		ctx->quiet_since_ns = now;
	}
	return now - ctx->quiet_since_ns < (hot ? GRACE_HOT_NS : GRACE_NS);
}

/* Of the helper thread alone, under the drive lock. */
static struct {
	uint64_t off_until_ns;
	uint64_t off_ns;
} yields;

/* Leaves the core to others for a moment; false: that would take too long now. */
static bool
helper_yield(void)
{
	uint64_t from = clock_ns(), to;

	if (from < yields.off_until_ns)
		return false;
	sched_yield();
	to = clock_ns();
	if (crpc_unlikely(to - from > YIELD_LONG_NS)) {
		yields.off_ns = from - yields.off_until_ns > YIELD_CALM_NS
			? YIELD_OFF_NS
			: crpc_min(2 * yields.off_ns, YIELD_OFF_MAX_NS);
		yields.off_until_ns = to + yields.off_ns;
	}
	return true;
}

static uint32_t
help(struct uv_ctx *ctx, uint64_t now)
{
	uint64_t end = now + WORK_NS;
	uint32_t n, sum = 0, empty = 0;

	sm_nic_helped(uv_nic(ctx), true);
	do {
		n = sm_progress_at(ctx, now);
		sum += n;
		/* In a stream the next packet is about to come: a sleep would take far longer. */
		if (n == 0 && (sum == 0 || ++empty == EMPTY_YIELDS || !helper_yield()))
			break;
		now = clock_ns();
	} while (now < end && crpc_load_relaxed(&ctx->calls) == ctx->seen_calls);
	sm_nic_helped(uv_nic(ctx), false);
	return sum;
}

static bool helper_runs; /* Under the drive lock. */
pthread_mutex_t sm_drive_lock = PTHREAD_MUTEX_INITIALIZER;

/* One round over all contexts. False: there is none left. */
static bool
help_all(bool hot, uint32_t *work)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t n;
	uint64_t now;

	*work = 0;
	pthread_mutex_lock(&sm_drive_lock);
	n = uv_contexts(list); /* They cannot go away while we hold the lock. */
	helper_runs = n != 0;
	for (uint32_t i = 0; i < n; i++) {
		now = clock_ns();
		if (!is_driven(list[i], now, hot))
			*work += help(list[i], now);
	}
	pthread_mutex_unlock(&sm_drive_lock);
	return n != 0;
}

static uint64_t
next_sleep(uint64_t since_work_ns)
{
	if (since_work_ns < HOT_FOR_NS)
		return SLEEP_HOT_NS;
	return since_work_ns < IDLE_AFTER_NS ? SLEEP_NS : SLEEP_LONG_NS;
}

static void *
helper(void *arg)
{
	uint64_t last_work = clock_ns() - HOT_FOR_NS, since;
	bool hot = false;
	uint32_t work;

	prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
	while (help_all(hot, &work)) {
		if (work != 0)
			last_work = clock_ns();
		since = clock_ns() - last_work;
		hot = since < HOT_FOR_NS;
		usleep((useconds_t)(next_sleep(since) / USEC));
	}
	return NULL;
}

int
sm_thread_start(void *(*fn)(void *arg), void *arg, const char *name)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 512 * 1024);
	err = pthread_create(&thread, &attr, fn, arg);
	if (err == 0)
		pthread_setname_np(thread, name);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

void
sm_progress_start(void)
{
	int err = 0;

	if (sm_progress_mode() == SM_PROGRESS_INLINE || sm_progress_mode() == SM_PROGRESS_STEP)
		return;
	pthread_mutex_lock(&sm_drive_lock);
	if (!helper_runs)
		err = sm_thread_start(helper, NULL, "soft_mlx5");
	helper_runs = err == 0;
	pthread_mutex_unlock(&sm_drive_lock);
	if (err != 0)
		sm_complain("no helper thread: %s; programs that do not poll will stand still",
			strerror(err));
}

void
sm_progress_fork_child(void)
{
	helper_runs = false;
	pthread_mutex_init(&sm_drive_lock, NULL);
}
