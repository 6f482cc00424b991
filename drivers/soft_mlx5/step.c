/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Step mode: who runs the NIC is a test, pass by pass. See soft_mlx5_step.h.
 */
#include "soft_mlx5_step.h"

#include "progress.h"
#include "uverbs.h"

static uint64_t rng;
static _Atomic uint32_t opened;

uint32_t
sm_step_number(void)
{
	return atomic_fetch_add_explicit(&opened, 1u, memory_order_relaxed) + 1;
}

/* The contexts that @p number names, in list[0] to list[n - 1]; 0 or an errno value. */
static struct uv_ctx *list[SM_SLOTS];
static uint32_t n;

static int
named(uint32_t number)
{
	if (sm_progress_mode() != SM_PROGRESS_STEP)
		return EPERM;
	n = uv_contexts(list);
	if (number == SOFT_MLX5_STEP_ALL)
		return n != 0 ? 0 : ENOENT;
	for (uint32_t i = 0; i < n; i++)
		if (list[i]->number == number) {
			list[0] = list[i];
			n = 1;
			return 0;
		}
	return ENOENT;
}

/* A pass of each of them. */
static int
pass(uint64_t now_ns, uint32_t *work)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < n; i++)
		done += sm_progress_at(list[i], now_ns);
	if (work != NULL)
		*work = done;
	return 0;
}

static int
step_start(uint64_t seed)
{
	if (sm_progress_mode() != SM_PROGRESS_STEP)
		return EPERM;
	if (uv_contexts(list) != 0)
		return EBUSY;
	rng = seed;
	crpc_store_relaxed(&opened, 0u);
	return 0;
}

static uint32_t
step_last(void)
{
	return crpc_load_relaxed(&opened);
}

static int
step_step(uint64_t now_ns, uint32_t *work)
{
	int err = named(SOFT_MLX5_STEP_ALL);

	if (err != 0)
		return err;
	list[0] = list[crpc_random(&rng) % n];
	n = 1;
	return pass(now_ns, work);
}

static int
step_pass(uint32_t number, uint64_t now_ns, uint32_t *work)
{
	int err = named(number);

	return err != 0 ? err : pass(now_ns, work);
}

static int
step_idle(void)
{
	if (sm_progress_mode() != SM_PROGRESS_STEP)
		return -EPERM;
	n = uv_contexts(list);
	for (uint32_t i = 0; i < n; i++)
		if (!sm_nic_idle(uv_nic(list[i])))
			return 0;
	return 1;
}

static int
step_faults(uint32_t number, const char *text)
{
	int err = named(number);

	for (uint32_t i = 0; err == 0 && i < n; i++)
		err = sm_nic_faults(uv_nic(list[i]), text);
	return err;
}

static int
step_break_qp(uint32_t number, uint32_t which)
{
	int err = named(number);

	return err != 0 ? err : sm_nic_break(uv_nic(list[0]), which);
}

static int
step_vanish(uint32_t number)
{
	int err = named(number);

	for (uint32_t i = 0; err == 0 && i < n; i++) {
		sm_nic_vanish(uv_nic(list[i]));
		list[i]->vanished = true;
	}
	return err;
}

static int
step_dump(uint32_t number, FILE *out)
{
	int err = named(number);

	for (uint32_t i = 0; err == 0 && i < n; i++) {
		fprintf(out, "{");
		sm_nic_stat(uv_nic(list[i]), out);
		fprintf(out, "}\n");
	}
	return err;
}

/* Looked up by soft_mlx5_step_find(). */
extern const struct soft_mlx5_step soft_mlx5_step;

__attribute__((visibility("default"))) const struct soft_mlx5_step soft_mlx5_step = {
	.start = step_start,
	.last = step_last,
	.step = step_step,
	.pass = step_pass,
	.idle = step_idle,
	.faults = step_faults,
	.break_qp = step_break_qp,
	.vanish = step_vanish,
	.dump = step_dump,
};
