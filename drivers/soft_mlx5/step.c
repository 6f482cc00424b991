/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Step mode: who runs the NIC is a test, pass by pass. See soft_mlx5_step.h.
 */
#include "soft_mlx5_step.h"

#include "progress.h"
#include "uverbs.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int soft_mlx5_step_start(uint64_t seed);
EXPORT uint32_t soft_mlx5_step_last(void);
EXPORT int soft_mlx5_step_step(uint64_t now_ns, uint32_t *work);
EXPORT int soft_mlx5_step_pass(uint32_t number, uint64_t now_ns, uint32_t *work);
EXPORT int soft_mlx5_step_idle(void);
EXPORT int soft_mlx5_step_faults(uint32_t number, const char *text);
EXPORT int soft_mlx5_step_break_qp(uint32_t number, uint32_t which);
EXPORT int soft_mlx5_step_vanish(uint32_t number);
EXPORT int soft_mlx5_step_dump(uint32_t number, FILE *out);

static uint64_t rng;
static _Atomic uint32_t opened;

uint32_t
sm_step_number(void)
{
	return atomic_fetch_add_explicit(&opened, 1u, memory_order_relaxed) + 1;
}

static uint64_t
step_random(void)
{
	/* SplitMix64 (Steele, Lea, Flood 2014). */
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* The contexts that @p number names; 0 or an errno value. */
static int
named(uint32_t number, struct uv_ctx *list[SM_SLOTS], uint32_t *n)
{
	uint32_t i;

	if (!sm_progress_is_step())
		return EPERM;
	*n = uv_contexts(list);
	if (number == SOFT_MLX5_STEP_ALL)
		return *n != 0 ? 0 : ENOENT;
	for (i = 0; i < *n; i++)
		if (list[i]->number == number) {
			list[0] = list[i];
			*n = 1;
			return 0;
		}
	return ENOENT;
}

static uint32_t
pass(struct uv_ctx *ctx, uint64_t now_ns)
{
	uint32_t work;

	crpc_store_relaxed(&ctx->now_ns, now_ns);
	uv_clock_tick(ctx, now_ns);
	work = sm_nic_progress(uv_nic(ctx), now_ns);
	if (crpc_load_relaxed(&ctx->late_events) != 0)
		uv_send_late(ctx);
	return work;
}

int
soft_mlx5_step_start(uint64_t seed)
{
	struct uv_ctx *list[SM_SLOTS];

	if (!sm_progress_is_step())
		return EPERM;
	if (uv_contexts(list) != 0)
		return EBUSY;
	rng = seed;
	crpc_store_relaxed(&opened, 0u);
	return 0;
}

uint32_t
soft_mlx5_step_last(void)
{
	return crpc_load_relaxed(&opened);
}

int
soft_mlx5_step_step(uint64_t now_ns, uint32_t *work)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t n, done;
	int err = named(SOFT_MLX5_STEP_ALL, list, &n);

	if (err != 0)
		return err;
	done = pass(list[step_random() % n], now_ns);
	if (work != NULL)
		*work = done;
	return 0;
}

int
soft_mlx5_step_pass(uint32_t number, uint64_t now_ns, uint32_t *work)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t i, n, done = 0;
	int err = named(number, list, &n);

	if (err != 0)
		return err;
	for (i = 0; i < n; i++)
		done += pass(list[i], now_ns);
	if (work != NULL)
		*work = done;
	return 0;
}

int
soft_mlx5_step_idle(void)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t i, n;

	if (!sm_progress_is_step())
		return -EPERM;
	n = uv_contexts(list);
	for (i = 0; i < n; i++)
		if (!sm_nic_idle(uv_nic(list[i])))
			return 0;
	return 1;
}

int
soft_mlx5_step_faults(uint32_t number, const char *text)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t i, n;
	int err = named(number, list, &n);

	for (i = 0; err == 0 && i < n; i++)
		err = sm_nic_faults(uv_nic(list[i]), text);
	return err;
}

int
soft_mlx5_step_break_qp(uint32_t number, uint32_t which)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t n;
	int err = named(number, list, &n);

	return err != 0 ? err : sm_nic_break(uv_nic(list[0]), which);
}

int
soft_mlx5_step_vanish(uint32_t number)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t i, n;
	int err = named(number, list, &n);

	for (i = 0; err == 0 && i < n; i++) {
		sm_nic_vanish(uv_nic(list[i]));
		list[i]->vanished = true;
	}
	return err;
}

int
soft_mlx5_step_dump(uint32_t number, FILE *out)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t i, n;
	int err = named(number, list, &n);

	for (i = 0; err == 0 && i < n; i++)
		sm_nic_dump(uv_nic(list[i]), out);
	return err;
}
